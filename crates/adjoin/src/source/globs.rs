//! Globs: names of sources with wildcards.

use std::io;
use std::path::{Path, PathBuf};

use super::folder::{by_bytes, is_left_out};
use super::foreign::guarded;
use super::table_formats::is_cache_of_saved;
use crate::base::error::{Error, Result};

/// Characters that make a path a glob.
pub(super) const WILDCARDS: [char; 3] = ['*', '?', '['];

/// Returns the files that match a glob, sorted by the bytes of their paths.
pub(super) fn glob_files(pattern: &str) -> Result<Vec<PathBuf>> {
    // As in a shell, a wildcard does not match a leading dot.
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
    let matches = glob::glob_with(pattern, options).map_err(|error| {
        Error::input(format!(
            "{pattern}: is not a glob: {error}; in a glob, * and ? match any characters, and [ starts a set of \
             characters"
        ))
    })?;
    // The glob crate panics at a name that is not UTF-8, so the panic is caught.
    let all = || Ok::<_, Error>(matches.collect::<Vec<_>>());
    let all = guarded(Path::new(pattern), "", all).map_err(|_| {
        Error::input(format!(
            "{pattern}: a file name that the glob matches is not UTF-8; name the folder instead of the glob, or \
             rename the file"
        ))
    })?;
    let mut paths = Vec::new();
    for path in all {
        paths.push(path.map_err(|error| {
            let folder = error.path().display().to_string();
            let error = io::Error::from(error);
            Error::device(format!("cannot list {folder}: {error}")).caused_by(error)
        })?);
    }
    // If the pattern itself starts like the files to skip, the user asks for them explicitly.
    let asks_for = |start: &str| {
        Path::new(pattern).file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(start.as_bytes()))
    };
    let (asks_for_left_out, asks_for_caches) = (is_left_out(Path::new(pattern)), asks_for("cache-"));
    let is_left_out =
        |path: &Path| !asks_for_left_out && is_left_out(path) || !asks_for_caches && is_cache_of_saved(path);
    let is_wanted = |path: &PathBuf| !is_left_out(path) && !path.is_dir();
    let mut files: Vec<PathBuf> = paths.into_iter().filter(is_wanted).collect();
    files.sort_by(|a, b| by_bytes(a, b));
    if files.is_empty() {
        return Err(no_match(pattern));
    }
    Ok(files)
}

pub(super) fn no_match(pattern: &str) -> Error {
    Error::input(format!("{pattern}: no file matches; check the path, and quote the glob for the shell"))
}
