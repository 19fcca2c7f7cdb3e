//! Changes of the live image that are not durable yet.

use super::image::{Image, Name, Node};

#[derive(Debug, Clone)]
pub(super) enum Change {
    /// Adds a name for a file or folder.
    Link(Name, Node),
    /// Removes the name of a file or folder.
    Unlink(Name, Node),
    /// Renames a file or folder in one step.
    Rename { from: Name, to: Name, node: Node },
    /// Truncates a file to `len` bytes.
    Truncate { file: u64, len: u64 },
    /// Writes bytes to a file, from `offset` on.
    Write { file: u64, offset: u64, bytes: Vec<u8> },
}

impl Change {
    /// Applies the change to an image. Changes to names are skipped if the image lacks the name that they remove.
    pub(super) fn apply(&self, image: &mut Image) {
        match self {
            Self::Link(name, node) => image.link(name, *node),
            Self::Unlink(name, node) => drop(image.unlink(name, *node)),
            Self::Rename { from, to, node } => {
                if image.unlink(from, *node) {
                    image.link(to, *node);
                }
            }
            Self::Truncate { file, len } => image.truncate(*file, *len),
            Self::Write { file, offset, bytes } => image.write(*file, *offset, bytes),
        }
    }

    /// Returns the file that must be synced to make the change durable.
    pub(super) fn file(&self) -> Option<u64> {
        match self {
            Self::Truncate { file, .. } | Self::Write { file, .. } => Some(*file),
            _ => None,
        }
    }

    /// Returns the folders that contain the changed names. A rename has two. Syncing either of them makes the whole
    /// rename durable, as on journaling file systems.
    pub(super) fn folders(&self) -> Vec<u64> {
        match self {
            Self::Link(name, _) | Self::Unlink(name, _) => vec![name.folder],
            Self::Rename { from, to, .. } => vec![from.folder, to.folder],
            Self::Truncate { .. } | Self::Write { .. } => Vec::new(),
        }
    }

    /// Splits the change into pieces that may be lost separately. A write is cut at offsets in its file that are
    /// multiples of `piece_bytes`. Any other change is one piece.
    pub(super) fn pieces(&self, piece_bytes: u64) -> Vec<Self> {
        let Self::Write { file, offset, bytes } = self else { return vec![self.clone()] };
        let mut pieces = Vec::new();
        let mut rest = bytes.as_slice();
        let mut at = *offset;
        while !rest.is_empty() {
            let room = piece_bytes - at % piece_bytes;
            let (piece, later) = rest.split_at(rest.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            pieces.push(Self::Write { file: *file, offset: at, bytes: piece.to_vec() });
            at += piece.len() as u64;
            rest = later;
        }
        pieces
    }
}
