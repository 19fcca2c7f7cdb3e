//! Reads files in pieces of a fixed size.

use std::ops::Range;
use std::sync::Arc;

use adjoin_device::{AlignedBuffer, DeviceError, ReadFile};
use xxhash_rust::xxh3::Xxh3;

use crate::base::context::Context;
use crate::base::error::Result;
use crate::store::blocks::BlockHasher;

/// Size of a piece, in bytes. Only one piece of a file is in memory at a time, even if a bucket is larger.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// Checksums of the blocks of a file that have been read.
#[derive(Default)]
pub(super) struct BlocksRead {
    hasher: BlockHasher,
    /// Checksum of the checksums of all blocks.
    pub(super) sums: Xxh3,
}

/// A file that is read from front to back, with one piece of it in memory.
pub(super) struct Pieces {
    pub(super) file: Arc<dyn ReadFile>,
    buffer: AlignedBuffer,
    start: u64,
    len: usize,
    pub(super) bytes_read: u64,
    /// Checksums of the blocks read so far, if requested.
    pub(super) blocks: Option<BlocksRead>,
}

impl Pieces {
    pub(super) fn new(file: Arc<dyn ReadFile>) -> Self {
        let len = file.len().min(PIECE_BYTES as u64) as usize;
        Self { file, buffer: AlignedBuffer::zeroed(len), start: 0, len: 0, bytes_read: 0, blocks: None }
    }

    /// Passes the bytes of a range of the file to `see`, in order and in pieces. The inner error is a failure of the
    /// device, which the caller lists as damage. The outer error ends the verification.
    pub(super) fn visit(
        &mut self,
        context: &Context,
        range: Range<u64>,
        see: &mut dyn FnMut(&[u8]),
    ) -> Result<std::result::Result<(), DeviceError>> {
        let mut at = range.start;
        while at < range.end {
            context.cancel.check()?;
            let piece = match self.from(at) {
                Ok(piece) => piece,
                Err(error) => return Ok(Err(error)),
            };
            let seen = (range.end - at).min(piece.len() as u64);
            see(&piece[..seen as usize]);
            at += seen;
        }
        Ok(Ok(()))
    }

    /// Returns bytes of the piece that contains `offset`, from `offset` on. The offset must be within the file.
    fn from(&mut self, offset: u64) -> std::result::Result<&[u8], DeviceError> {
        assert!(offset < self.file.len(), "reads stay within the file");
        if !(self.start..self.start + self.len as u64).contains(&offset) {
            // Pieces start at multiples of their size, so that direct reads are aligned.
            let start = offset - offset % PIECE_BYTES as u64;
            let len = (self.file.len() - start).min(PIECE_BYTES as u64) as usize;
            self.len = 0; // if the read fails, nothing is in memory
            self.bytes_read += self.file.read_at(start, &mut self.buffer[..len])?;
            (self.start, self.len) = (start, len);
            if let Some(BlocksRead { hasher, sums }) = &mut self.blocks {
                hasher.update(&self.buffer[..len], |sum| sums.update(&sum.to_le_bytes()));
            }
        }
        Ok(&self.buffer[(offset - self.start) as usize..self.len])
    }
}
