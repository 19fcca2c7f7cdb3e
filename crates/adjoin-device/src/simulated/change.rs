//! What alters an image, kept until it is durable.

use super::image::{Image, Name, Node};

#[derive(Debug, Clone)]
pub(super) enum Change {
    /// A new file or folder under a name.
    Link(Name, Node),
    /// A name is gone.
    Unlink(Name, Node),
    /// Another name in one step.
    Rename { from: Name, to: Name, node: Node },
    /// A file is cut to so many bytes.
    Truncate { file: u64, len: u64 },
    /// Bytes of a file.
    Write { file: u64, offset: u64, bytes: Vec<u8> },
}

impl Change {
    /// Applies it, where what it builds on is there.
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

    /// The file whose sync makes it durable.
    pub(super) fn file(&self) -> Option<u64> {
        match self {
            Self::Truncate { file, .. } | Self::Write { file, .. } => Some(*file),
            _ => None,
        }
    }

    /// The folders whose names it alters. The sync of either makes a rename durable, which is one step, as with file
    /// systems that keep a journal.
    pub(super) fn folders(&self) -> Vec<u64> {
        match self {
            Self::Link(name, _) | Self::Unlink(name, _) => vec![name.folder],
            Self::Rename { from, to, .. } => vec![from.folder, to.folder],
            Self::Truncate { .. } | Self::Write { .. } => Vec::new(),
        }
    }

    /// Itself, a write cut at multiples of `piece_bytes` of its file.
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
