//! Detects the kind of a folder with a manifest, e.g. a store.

use std::path::Path;

use adjoin_device::FileKind;

use super::format::MANIFEST_FILE;
use super::manifest::{Envelope, FolderKind, read_manifest_bytes};
use super::reader::Store;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Mention, message};

impl FolderKind {
    /// Returns the kind of a folder; `None` if it has no manifest or is not a folder.
    ///
    /// # Errors
    /// Fails if the manifest is damaged or of a kind that only a later version knows, or the device does not allow access.
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

/// Returns whether a folder has a manifest file, whatever its contents.
pub(crate) fn has_manifest(context: &Context, folder: &Path) -> Result<bool> {
    Ok(context.device.kind(&folder.join(MANIFEST_FILE))? == Some(FileKind::File))
}

impl Store {
    /// Returns the store among the inputs of a join; `None` if all inputs are sources, which collections are too. A store
    /// must be the only input, and options that apply only to builds (`only_for_builds`) must be absent.
    ///
    /// # Errors
    /// Fails if the store is not the only input, such an option is given, an input is an index, or [`FolderKind::of`] fails.
    pub fn sole_input<'a>(
        context: &Context,
        inputs: &'a [String],
        only_for_builds: Option<Mention>,
    ) -> Result<Option<&'a Path>> {
        for input in inputs {
            let Some(kind) = FolderKind::of(context, Path::new(input))? else { continue };
            match kind {
                FolderKind::Store => {}
                // A collection is read as a source, from a snapshot of its rows.
                FolderKind::Collection => continue,
                FolderKind::Index => return Err(kind.is_not(FolderKind::Store, Path::new(input))),
            }
            if inputs.len() > 1 {
                return Err(Error::option(format!(
                    "{input} is a store, which is joined alone; give one store, or only sources"
                )));
            }
            if let Some(option) = only_for_builds {
                return Err(Error::option(message![
                    format!("{input} is a store, and "),
                    option,
                    " has a meaning only while one is built; leave it out, or build again with it"
                ]));
            }
            return Ok(Some(Path::new(input)));
        }
        Ok(None)
    }
}
