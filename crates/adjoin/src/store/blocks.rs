//! Checksums of the blocks of the file of buckets. They verify reads of a part of a bucket. The checksums in a
//! bucket's header can only verify the whole bucket.

use std::path::Path;

use adjoin_device::{Reservation, WriteFile};
use xxhash_rust::xxh3::Xxh3;

use super::files::{FileFacts, Role};
use super::folder::FolderFiles;
use super::format::{BLOCK_BYTES, checksum};
use crate::base::context::Context;
use crate::base::error::Result;

/// Hasher that computes the checksum of each block, from bytes that arrive in pieces.
#[derive(Default)]
pub(super) struct BlockHasher {
    block: Xxh3,
    /// Number of bytes of the incomplete block so far.
    filled: u64,
}

impl BlockHasher {
    /// Adds bytes. Calls `take` with the checksum of each block that becomes complete.
    pub(super) fn update(&mut self, mut bytes: &[u8], mut take: impl FnMut(u64)) {
        while !bytes.is_empty() {
            let (some, rest) = bytes.split_at(bytes.len().min((BLOCK_BYTES - self.filled) as usize));
            self.block.update(some);
            self.filled += some.len() as u64;
            if self.filled == BLOCK_BYTES {
                take(self.block.digest());
                *self = Self::default();
            }
            bytes = rest;
        }
    }
}

/// Writer of the file of block checksums. It is written along with the file of buckets.
pub(super) struct BlockWriter {
    hasher: BlockHasher,
    file: Box<dyn WriteFile>,
    hash: Xxh3,
    bytes: u64,
    /// Buffer for checksums of completed blocks.
    ended: Vec<u8>,
}

impl BlockWriter {
    /// Creates the file.
    ///
    /// # Errors
    /// Fails if the file cannot be created.
    pub(super) fn create(context: &Context, path: &Path) -> Result<Self> {
        let file = context.device.create(path)?;
        Ok(Self { hasher: BlockHasher::default(), file, hash: Xxh3::new(), bytes: 0, ended: Vec::new() })
    }

    /// Adds the next bytes of the file of buckets.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.ended.clear();
        // The last block is also complete, since the file of buckets ends with a whole block.
        self.hasher.update(bytes, |sum| self.ended.extend_from_slice(&sum.to_le_bytes()));
        self.hash.update(&self.ended);
        self.bytes += self.ended.len() as u64;
        Ok(self.file.append(&self.ended)?)
    }

    /// Completes the file and returns its entry for the manifest.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn finish(mut self) -> Result<FileFacts> {
        self.file.sync()?;
        let checksum = self.hash.digest();
        Ok(FileFacts::new(&Role::Blocks.file_of(checksum), self.bytes, Some(checksum)))
    }
}

/// Checksums of all blocks, in memory.
pub(super) struct BlockSums {
    sums: Vec<u8>,
    _memory: Reservation,
}

impl BlockSums {
    /// Reads the checksums.
    ///
    /// # Errors
    /// Fails if memory does not suffice, or the file cannot be read or is damaged.
    pub(super) fn read(context: &Context, files: FolderFiles<'_>) -> Result<Self> {
        let memory = context.reserve(files.files[Role::Blocks].bytes, "the checksums of parts of buckets")?;
        Ok(Self { sums: files.read(context, Role::Blocks)?, _memory: memory })
    }

    /// Verifies complete blocks, the first of which starts at byte `offset`. Returns the offset of the first damaged
    /// block, if any.
    pub(super) fn damaged(&self, offset: u64, blocks: &[u8]) -> Option<u64> {
        let first = (offset / BLOCK_BYTES) as usize;
        let sums = self.sums.as_chunks::<8>().0.get(first..).unwrap_or_default();
        let blocks = blocks.chunks(BLOCK_BYTES as usize);
        // A block without a checksum counts as damaged: the file of checksums is too short.
        let sums = sums.iter().map(|&sum| Some(u64::from_le_bytes(sum))).chain(std::iter::repeat(None));
        let bad = blocks.zip(sums).position(|(block, sum)| sum != Some(checksum(block)));
        bad.map(|bad| offset + bad as u64 * BLOCK_BYTES)
    }
}
