//! A checksum of each block of the file of buckets: by these a part of a bucket is verified, where its own are of all of it.

use std::path::Path;

use adjoin_device::{Reservation, WriteFile};
use xxhash_rust::xxh3::Xxh3;

use super::files::{FileFacts, Role};
use super::folder::FolderFiles;
use super::format::{BLOCK_BYTES, checksum};
use crate::context::Context;
use crate::error::Result;

/// The checksums of the blocks of bytes that come in pieces.
#[derive(Default)]
pub(super) struct BlockHasher {
    block: Xxh3,
    /// Bytes of the block that is not whole yet.
    filled: u64,
}

impl BlockHasher {
    /// Takes bytes; hands over the checksum of each block that they end.
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

/// The file of the checksums while that of the buckets is written.
pub(super) struct BlockWriter {
    hasher: BlockHasher,
    file: Box<dyn WriteFile>,
    hash: Xxh3,
    bytes: u64,
    /// Checksums on their way.
    ended: Vec<u8>,
}

impl BlockWriter {
    /// # Errors
    /// Where the disk refuses.
    pub(super) fn create(context: &Context, path: &Path) -> Result<Self> {
        let file = context.device.create(path)?;
        Ok(Self { hasher: BlockHasher::default(), file, hash: Xxh3::new(), bytes: 0, ended: Vec::new() })
    }

    /// Takes the next bytes of the file of buckets.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.ended.clear();
        self.hasher.update(bytes, |sum| self.ended.extend_from_slice(&sum.to_le_bytes()));
        self.hash.update(&self.ended);
        self.bytes += self.ended.len() as u64;
        Ok(self.file.append(&self.ended)?)
    }

    /// What a manifest says of the file.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub(super) fn finish(mut self) -> Result<FileFacts> {
        self.file.sync()?;
        let checksum = self.hash.digest();
        Ok(FileFacts::new(&Role::Blocks.file_of(checksum), self.bytes, Some(checksum)))
    }
}

/// The checksums of all blocks, in memory.
pub(super) struct BlockSums {
    sums: Vec<u8>,
    _memory: Reservation,
}

impl BlockSums {
    /// Reads them.
    ///
    /// # Errors
    /// Where memory does not suffice, or they cannot be read or are not as written.
    pub(super) fn read(context: &Context, files: FolderFiles<'_>) -> Result<Self> {
        let memory = context.reserve(files.files[Role::Blocks].bytes, "the checksums of parts of buckets")?;
        Ok(Self { sums: files.read(context, Role::Blocks)?, _memory: memory })
    }

    /// The first of some whole blocks, which begin at `offset`, that is not as it was written: where it begins.
    pub(super) fn damaged(&self, offset: u64, blocks: &[u8]) -> Option<u64> {
        let first = (offset / BLOCK_BYTES) as usize;
        let sums = self.sums.as_chunks::<8>().0.get(first..).unwrap_or_default();
        let blocks = blocks.chunks(BLOCK_BYTES as usize);
        let sums = sums.iter().map(|&sum| Some(u64::from_le_bytes(sum))).chain(std::iter::repeat(None));
        let bad = blocks.zip(sums).position(|(block, sum)| sum != Some(checksum(block)));
        bad.map(|bad| offset + bad as u64 * BLOCK_BYTES)
    }
}
