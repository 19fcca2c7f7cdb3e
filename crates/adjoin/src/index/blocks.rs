//! A file of which any part can be read and is checked: blocks, each a checksum and the bytes that follow it.

use std::ops::Range;

use adjoin_device::ReadFile;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::Result;

/// Bytes of a block.
const BLOCK_BYTES: usize = 4_096;
const CHECKSUM_BYTES: usize = size_of::<u64>();
/// Bytes in a block that are of the contents.
const HELD_BYTES: usize = BLOCK_BYTES - CHECKSUM_BYTES;

/// Contents as blocks; the last is filled up with zeros.
pub(super) fn encode(contents: &[u8]) -> Vec<u8> {
    let mut blocks = Vec::with_capacity(file_bytes(contents.len() as u64) as usize);
    for (number, held) in (0..).zip(contents.chunks(HELD_BYTES)) {
        let start = blocks.len();
        blocks.extend([0; CHECKSUM_BYTES]);
        blocks.extend_from_slice(held);
        blocks.resize(start + BLOCK_BYTES, 0);
        let checksum = xxh3_64_with_seed(&blocks[start + CHECKSUM_BYTES..], number);
        blocks[start..start + CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }
    blocks
}

/// Bytes of a file with so many bytes of contents.
pub(super) fn file_bytes(contents: u64) -> u64 {
    contents.div_ceil(HELD_BYTES as u64) * BLOCK_BYTES as u64
}

/// Reads contents of blocks, the last block kept.
pub(super) struct BlockReader<'a> {
    file: &'a dyn ReadFile,
    block: Vec<u8>,
    number: Option<u64>,
}

/// Why contents cannot be had.
pub(super) enum Unreadable {
    /// The device failed.
    Device(crate::error::Error),
    /// A block is not as written, or there is none.
    Damaged(u64),
    /// The contents say something of an entry that cannot be.
    Impossible(u64),
}

impl<'a> BlockReader<'a> {
    pub(super) fn new(file: &'a dyn ReadFile) -> Self {
        Self { file, block: vec![0; BLOCK_BYTES], number: None }
    }

    /// How many blocks there are, one that is cut off among them.
    pub(super) fn count(&self) -> u64 {
        self.file.len().div_ceil(BLOCK_BYTES as u64)
    }

    /// Bytes that contents have room in.
    pub(super) fn held_bytes(&self) -> u64 {
        self.count() * HELD_BYTES as u64
    }

    /// Appends all that a block holds to `out`.
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
        self.number = None;
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
