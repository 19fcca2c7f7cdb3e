//! What a folder is: a store, or something else that adjoin keeps in folders with a manifest.

use std::path::Path;

use adjoin_device::FileKind;

use super::format::MANIFEST_FILE;
use super::manifest::{Envelope, Kind, read_manifest_bytes};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::message::{Mention, message};

/// What a folder is; none where it has no manifest, or is no folder.
///
/// # Errors
/// Where the manifest is damaged, or of a kind that only a later version knows, or the device does not let us look.
pub fn kind_of(context: &Context, folder: &Path) -> Result<Option<Kind>> {
    if !has_manifest(context, folder)? {
        return Ok(None);
    }
    let bytes = read_manifest_bytes(context, folder)?;
    Envelope::parse(&bytes)
        .map(|envelope| Some(envelope.kind))
        .map_err(|unreadable| unreadable.in_folder(folder, Kind::Store))
}

/// Whether a folder has a manifest, whatever it says.
pub(crate) fn has_manifest(context: &Context, folder: &Path) -> Result<bool> {
    Ok(context.device.kind(&folder.join(MANIFEST_FILE))? == Some(FileKind::File))
}

/// The store among the inputs of a join: none where all are sources, as a live index is one. It comes alone, and without an
/// option that has a meaning only while one is built.
///
/// # Errors
/// Where it does not, or an input is of another kind, or as [`kind_of`].
pub fn sole_store<'a>(
    context: &Context,
    inputs: &'a [String],
    only_for_builds: Option<Mention>,
) -> Result<Option<&'a Path>> {
    for input in inputs {
        let Some(kind) = kind_of(context, Path::new(input))? else { continue };
        match kind {
            Kind::Store => {}
            Kind::Live => continue,
            Kind::Index => return Err(kind.is_not(Kind::Store, Path::new(input))),
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
