//! Removal of files that unfinished or past merges have left in the folder of a collection.

use std::path::Path;

use super::long_term_index::{folder_name, is_of_merge, places_name};
use super::manifest::CollectionManifest;
use super::segment::first_of;
use crate::base::context::Context;
use crate::base::error::Result;

/// Removes indexes that `manifest` does not name, and log files whose records are all in its index. Does nothing if
/// another manifest is in force. Syncs the folder first: otherwise a loss of power could restore an older manifest
/// that names the removed files.
///
/// # Errors
/// If the device fails.
pub(super) fn remove_unnamed(context: &Context, folder: &Path, manifest: &CollectionManifest) -> Result<()> {
    let named = manifest.merged().map(|sequence| [folder_name(sequence), places_name(sequence)]);
    let of_merge = |name: &str| is_of_merge(name) && !named.iter().flatten().any(|named| named == name);
    let of_log = |name: &str| first_of(name).is_some_and(|first| first < manifest.first_record);
    let is_left = |name: &str| of_merge(name) || of_log(name);
    let device = &context.device;
    let left = device.list_only(folder, &|name| name.to_str().is_some_and(is_left))?;
    if left.is_empty() || !manifest.is_in_force(context, folder)? {
        return Ok(());
    }
    device.sync_folder(folder)?;
    for name in left {
        let path = folder.join(&name);
        match name.to_str().is_some_and(|name| name.starts_with("index-")) {
            true => device.remove_folder(&path)?,
            false => device.remove(&path)?,
        }
    }
    Ok(())
}
