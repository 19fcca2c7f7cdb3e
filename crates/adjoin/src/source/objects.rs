//! Finds the files of a source that is in an object store.

use std::path::{Path, PathBuf};

use adjoin_device::{Device, FileKind, Location, RemoteName};

use super::folder::{FolderFiles, by_bytes, is_left_out};
use super::format::no_such_file;
use super::globs::{WILDCARDS, no_match};
use super::table_formats::refuse_tables_of;
use crate::base::error::{Error, Result};

/// Schemes that the message for a build without object stores names.
const SCHEMES: &str = "s3://, gs://, az:// and http(s)://";

/// Files that a remote name stands for.
pub(super) enum Objects {
    /// Single objects, sorted by the bytes of their URLs.
    Files(Vec<PathBuf>),
    /// The objects below a prefix.
    Folder(FolderFiles),
}

/// Checks that the device can read a remote name. Also checks that the name contains no secret, since messages and
/// manifests would repeat it.
///
/// # Errors
/// Fails if the device cannot read the name, or if the name may contain a secret.
pub(crate) fn check_remote(device: &dyn Device, name: RemoteName<'_>) -> Result<()> {
    let url = name.public_url();
    if name.may_hold_secret() {
        return Err(Error::input(format!(
            "{url}: the URL holds a user name or a query, which may be secret; leave it out, and pass credentials in \
             the environment"
        )));
    }
    if !device.reads_object_stores() {
        return Err(Error::input(format!(
            "{url}: this build does not read {SCHEMES}; copy the files first, or install a build with object stores"
        )));
    }
    if name.bucket.is_empty() {
        return Err(Error::input(format!("{url}: the URL lacks a bucket; write {}://BUCKET/KEY", name.scheme)));
    }
    Ok(())
}

/// Returns whether a remote name is a glob.
pub(crate) fn is_glob(name: RemoteName<'_>) -> bool {
    name.key.contains(WILDCARDS)
}

/// Finds the objects of a remote name. The name may be an object, a glob or a prefix.
///
/// # Errors
/// Fails if nothing matches, if the object store denies access, or if the objects belong to a table with a log.
pub(super) fn find(device: &dyn Device, source: &str, name: RemoteName<'_>, split: Option<&str>) -> Result<Objects> {
    check_remote(device, name)?;
    if is_glob(name) {
        return glob(device, source, name).map(Objects::Files);
    }
    let path = Path::new(name.url);
    match device.kind(path)? {
        Some(FileKind::Folder) => {
            let files = device.list_below(path)?;
            refuse_tables_of(path, &files)?;
            FolderFiles::of_objects(path, files, split).map(Objects::Folder)
        }
        Some(_) => {
            let folder = path.parent().unwrap_or(path);
            let log = folder.join("_delta_log");
            // Errors are ignored: the user may have permission to read the object, but not to list others.
            if matches!(device.kind(&log), Ok(Some(FileKind::Folder))) {
                refuse_tables_of(folder, &[log.join("any")])?;
            }
            Ok(Objects::Files(vec![path.to_owned()]))
        }
        None => Err(no_such_file(path)),
    }
}

/// Finds the objects that match a glob. As in a shell, `*` matches neither a slash nor a leading dot.
fn glob(device: &dyn Device, source: &str, name: RemoteName<'_>) -> Result<Vec<PathBuf>> {
    if name.is_web() {
        return Err(Error::input(format!(
            "{}: a web server does not list its files, so globs do not work; name each file",
            name.public_url()
        )));
    }
    let pattern = glob::Pattern::new(name.key).map_err(|error| {
        Error::input(format!(
            "{source}: is not a glob: {error}; in a glob, * and ? match any characters, and [ starts a set of \
             characters"
        ))
    })?;
    let bucket = format!("{}://{}", name.scheme, name.bucket);
    let fixed = name.key.split('/').take_while(|part| !part.contains(WILDCARDS));
    let folder = fixed.fold(PathBuf::from(&bucket), |folder, part| folder.join(part));
    let listed = device.list_below(&folder)?;
    refuse_tables_of(&folder, &listed)?;
    let options = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..glob::MatchOptions::new()
    };
    let asks_for_left_out = is_left_out(Path::new(name.key));
    let matches = |path: &PathBuf| {
        let key = path.to_str().and_then(|url| url.strip_prefix(&bucket)?.strip_prefix('/')).unwrap_or_default();
        pattern.matches_with(key, options) && (asks_for_left_out || !is_left_out(path))
    };
    let mut files: Vec<PathBuf> = listed.into_iter().filter(matches).collect();
    files.sort_by(|a, b| by_bytes(a, b));
    if files.is_empty() { Err(no_match(source)) } else { Ok(files) }
}

/// Returns the remote name of a source. Returns `None` if the source is not in an object store.
pub(super) fn remote(source: &str) -> Option<RemoteName<'_>> {
    match Location::of(Path::new(source)) {
        Location::Remote(name) => Some(name),
        Location::Local(_) => None,
    }
}
