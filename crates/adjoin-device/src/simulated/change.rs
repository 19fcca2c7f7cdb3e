//! Changes of an image that are not durable yet.

use super::image::{Image, Name, Node};

#[derive(Debug, Clone)]
pub(super) enum Change {
    /// Adds a file or folder under a new name.
    Link(Name, Node),
    /// Removes a name.
    Unlink(Name, Node),
    /// Renames in one step.
    Rename { from: Name, to: Name, node: Node },
    /// Truncates a file to `len` bytes.
    Truncate { file: u64, len: u64 },
    /// Writes bytes of a file.
    Write { file: u64, offset: u64, bytes: Vec<u8> },
}

impl Change {
    /// Applies the change if what it builds on exists.
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

    /// Returns the folders that contain the changed names. A sync of either folder makes a rename durable, which is one
    /// step, as on journaling file systems.
    pub(super) fn folders(&self) -> Vec<u64> {
        match self {
            Self::Link(name, _) | Self::Unlink(name, _) => vec![name.folder],
            Self::Rename { from, to, .. } => vec![from.folder, to.folder],
            Self::Truncate { .. } | Self::Write { .. } => Vec::new(),
        }
    }

    /// Returns the change in pieces: a write is cut at multiples of `piece_bytes` of its file.
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
