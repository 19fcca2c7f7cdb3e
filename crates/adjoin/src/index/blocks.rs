//! Reads and writes files of blocks. Each block has a checksum, so that any part of a file can be read and verified.

use std::ops::Range;

use adjoin_device::ReadFile;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::drafting::{Draft, Drafted};
use crate::base::error::Result;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 4_096;
const CHECKSUM_BYTES: usize = size_of::<u64>();
/// Bytes of contents per block.
const HELD_BYTES: usize = BLOCK_BYTES - CHECKSUM_BYTES;

/// Splits contents into blocks and writes them.
pub(super) struct BlockWriter {
    draft: Draft,
    block: Vec<u8>,
    number: u64,
}

impl BlockWriter {
    pub(super) fn new(draft: Draft) -> Self {
        Self { draft, block: vec![0; CHECKSUM_BYTES], number: 0 }
    }

    /// Appends contents.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn append(&mut self, mut contents: &[u8]) -> Result<()> {
        while !contents.is_empty() {
            let (some, rest) = contents.split_at(contents.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(some);
            contents = rest;
            if self.block.len() == BLOCK_BYTES {
                self.write()?;
            }
        }
        Ok(())
    }

    /// Pads the last block with zeros, and makes the file durable.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn finish(mut self) -> Result<Drafted> {
        if self.block.len() > CHECKSUM_BYTES {
            self.write()?;
        }
        self.draft.finish()
    }

    fn write(&mut self) -> Result<()> {
        self.block.resize(BLOCK_BYTES, 0);
        // The number of the block is the seed, so the checksum of a block at a wrong place does not match.
        let checksum = xxh3_64_with_seed(&self.block[CHECKSUM_BYTES..], self.number);
        self.block[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        self.draft.append(&self.block)?;
        self.block.truncate(CHECKSUM_BYTES);
        self.number += 1;
        Ok(())
    }
}

/// Returns the length of a file that has `contents` bytes of contents.
pub(super) fn file_bytes(contents: u64) -> u64 {
    contents.div_ceil(HELD_BYTES as u64) * BLOCK_BYTES as u64
}

/// Reader of contents from blocks. It caches the last block.
pub(super) struct BlockReader<'a> {
    file: &'a dyn ReadFile,
    block: Vec<u8>,
    number: Option<u64>,
}

/// Reason why contents cannot be read.
pub(super) enum Unreadable {
    /// The device failed.
    Device(crate::base::error::Error),
    /// The block with this number is damaged or missing.
    Damaged(u64),
    /// The contents give an impossible location for the id of the entry with this number.
    Impossible(u64),
}

impl<'a> BlockReader<'a> {
    pub(super) fn new(file: &'a dyn ReadFile) -> Self {
        Self { file, block: vec![0; BLOCK_BYTES], number: None }
    }

    /// Returns the number of blocks, including a last block that is cut off.
    pub(super) fn count(&self) -> u64 {
        self.file.len().div_ceil(BLOCK_BYTES as u64)
    }

    /// Returns the largest number of bytes of contents that the file can have.
    pub(super) fn held_bytes(&self) -> u64 {
        self.count() * HELD_BYTES as u64
    }

    /// Appends the contents of a block to `out`.
    pub(super) fn read_block(&mut self, number: u64, out: &mut Vec<u8>) -> std::result::Result<(), Unreadable> {
        let held = HELD_BYTES as u64;
        self.read(number * held..(number + 1) * held, out)
    }

    /// Appends a range of the contents to `out`.
    pub(super) fn read(&mut self, range: Range<u64>, out: &mut Vec<u8>) -> std::result::Result<(), Unreadable> {
        let mut at = range.start;
        while at < range.end {
            let number = at / HELD_BYTES as u64;
            self.load(number)?;
            let from = (at % HELD_BYTES as u64) as usize;
            let count = ((range.end - at) as usize).min(HELD_BYTES - from);
            out.extend_from_slice(&self.block[CHECKSUM_BYTES + from..][..count]);
            at += count as u64;
        }
        Ok(())
    }

    fn load(&mut self, number: u64) -> std::result::Result<(), Unreadable> {
        if self.number == Some(number) {
            return Ok(());
        }
        // A failed read leaves unknown bytes in the buffer.
        self.number = None;
        // A block that is cut off at the end of the file counts as damaged.
        if number >= self.file.len() / BLOCK_BYTES as u64 {
            return Err(Unreadable::Damaged(number));
        }
        let read: Result<u64> = self.file.read_at(number * BLOCK_BYTES as u64, &mut self.block).map_err(Into::into);
        read.map_err(Unreadable::Device)?;
        let checksum = xxh3_64_with_seed(&self.block[CHECKSUM_BYTES..], number);
        if self.block[..CHECKSUM_BYTES] != checksum.to_le_bytes() {
            return Err(Unreadable::Damaged(number));
        }
        self.number = Some(number);
        Ok(())
    }
}
