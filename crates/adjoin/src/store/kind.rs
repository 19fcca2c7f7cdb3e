//! Detects the kind of a folder with a manifest, e.g. a store.

use std::io;
use std::path::Path;

use adjoin_device::{DeviceError, FileKind, Location};

use super::format::MANIFEST_FILE;
use super::manifest::{Envelope, FolderKind, read_manifest_bytes};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::source::{check_remote, is_glob};

impl FolderKind {
    /// Returns the kind of a folder; `None` if it has no manifest or is not a folder.
    ///
    /// # Errors
    /// Fails if the manifest is damaged, if only a later version knows its kind, or if the device denies access.
    pub fn of(context: &Context, folder: &Path) -> Result<Option<FolderKind>> {
        Ok(find_manifest(context, folder)?.map(|(kind, _)| kind))
    }
}

/// Reads the manifest of a folder. Returns its kind and its bytes; `None` if there is none.
///
/// # Errors
/// Fails as [`FolderKind::of`] does.
pub(crate) fn find_manifest(context: &Context, folder: &Path) -> Result<Option<(FolderKind, Vec<u8>)>> {
    if !has_manifest(context, folder)? {
        return Ok(None);
    }
    let bytes = read_manifest_bytes(context, folder)?;
    let envelope = Envelope::parse(&bytes).map_err(|unreadable| unreadable.in_folder(folder, FolderKind::Store))?;
    Ok(Some((envelope.kind, bytes)))
}

/// Returns whether a folder has a manifest file. The contents of the file do not matter.
pub(crate) fn has_manifest(context: &Context, folder: &Path) -> Result<bool> {
    let manifest = folder.join(MANIFEST_FILE);
    let Location::Remote(name) = Location::of(folder) else {
        return Ok(context.device.kind(&manifest)? == Some(FileKind::File));
    };
    check_remote(&*context.device, name)?;
    if name.is_web() || is_glob(name) {
        return Ok(false);
    }
    match context.device.kind(&manifest) {
        // Some object stores also deny access to a missing object, unless the user is allowed to list objects. So a
        // denied manifest is an error only if access to the folder itself fails, too.
        Err(error) if matches!(error.source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound) => {
            context.device.kind(folder)?;
            Ok(false)
        }
        Ok(kind) => Ok(kind == Some(FileKind::File)),
        // The error names the folder, because the user did not name the manifest.
        Err(error) => Err(DeviceError { path: folder.to_owned(), ..error }.into()),
    }
}

/// Refuses a folder in an object store. Called for kinds of folders that can only be read from a disk.
///
/// # Errors
/// Fails if the folder is remote.
pub(crate) fn refuse_remote(kind: FolderKind, folder: &Path) -> Result<()> {
    let Location::Remote(name) = Location::of(folder) else { return Ok(()) };
    let url = name.public_url();
    Err(Error::input(format!(
        "{url} is {kind}, whose many small reads are slow in an object store; copy it to a disk with: adjoin copy \
         {url} FOLDER"
    )))
}
