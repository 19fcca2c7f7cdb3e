//! Reads files of a folder and verifies the length and checksum that the manifest states.

use std::path::Path;
use std::sync::Arc;

use adjoin_device::{AlignedBuffer, ReadFile};
use xxhash_rust::xxh3::Xxh3;

use super::files::{Files, Role, read_whole};
use super::manifest::FolderKind;
use crate::base::context::Context;
use crate::base::error::{Error, Result};

/// The files that a manifest names.
#[derive(Clone, Copy)]
pub(crate) struct FolderFiles<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) kind: FolderKind,
    pub(crate) files: &'a Files,
}

impl FolderFiles<'_> {
    /// Opens a file and verifies its length.
    ///
    /// # Errors
    /// Fails if the file is missing or does not have the length that the manifest states.
    pub(crate) fn open(self, context: &Context, role: Role) -> Result<Arc<dyn ReadFile>> {
        let facts = &self.files[role];
        let file = context.device.open(&facts.path(self.folder))?;
        if file.len() != facts.bytes {
            return Err(self.damaged(role, &format!("has {} bytes instead of {}", file.len(), facts.bytes)));
        }
        Ok(file)
    }

    /// Reads a file that is verified as a whole. The caller has reserved the memory.
    ///
    /// # Errors
    /// Fails as [`Self::open`] does, or if the file is damaged.
    pub(crate) fn read(self, context: &Context, role: Role) -> Result<Vec<u8>> {
        let contents = read_whole(&*self.open(context, role)?)?;
        if self.files[role].matches(&contents) { Ok(contents) } else { Err(self.damaged(role, "checksum mismatch")) }
    }

    /// Returns the error for a damaged file.
    pub(crate) fn damaged(self, role: Role, why: &str) -> Error {
        let at = self.files[role].path(self.folder);
        Error::corrupt(format!("{}: {why}; {}", at.display(), self.kind.remedy()))
    }
}

/// Reads an open file in pieces of `piece` bytes (the last may be shorter) and passes them to `take`. Verifies the
/// checksum of the whole file at the end.
///
/// # Errors
/// Fails if the device fails or the file is damaged.
pub(super) fn read_checked(
    file: &dyn ReadFile,
    files: FolderFiles<'_>,
    role: Role,
    piece: usize,
    mut take: impl FnMut(&[u8]),
) -> Result<()> {
    let mut hash = Xxh3::new();
    let mut buffer = AlignedBuffer::zeroed(piece.min(file.len() as usize));
    for start in (0..file.len()).step_by(piece) {
        let bytes = &mut buffer[..piece.min((file.len() - start) as usize)];
        file.read_at(start, bytes)?;
        hash.update(bytes);
        take(bytes);
    }
    match files.files[role].has_checksum(hash.digest()) {
        true => Ok(()),
        false => Err(files.damaged(role, "checksum mismatch")),
    }
}
