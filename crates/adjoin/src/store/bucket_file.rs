//! The file of buckets while it is written, extent by extent.

use adjoin_device::WriteFile;
use xxhash_rust::xxh3::Xxh3;
use zerocopy::IntoBytes;

use super::blocks::BlockWriter;
use super::checkpoint::LISTED_BYTES;
use super::files::FileFacts;
use super::format::{Extent, HEADER_BYTES};
use crate::base::error::Result;
use crate::base::sealed::SealedWriter;

/// Facts about the written file of buckets.
#[derive(Default)]
pub(crate) struct Written {
    /// Number of the center of each extent.
    pub(crate) centers: Vec<u32>,
    /// The bucket table.
    pub(crate) table: Vec<u8>,
    pub(crate) bytes: u64,
    /// Digest of all headers. It also covers the rest of the file, since headers contain checksums.
    pub(crate) digest: u64,
    /// The file of block checksums, if rows are sorted.
    pub(crate) blocks: Option<FileFacts>,
    /// Time spent waiting for records to be read and arranged, in seconds.
    pub(crate) waited: f64,
}

/// Receives extents: the file of buckets, or the result of a part of a build.
pub(super) trait ExtentFile {
    /// Appends an extent with the padding after it.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    fn append(&mut self, extent: &[u8]) -> Result<()>;

    /// Makes all extents durable, if the file does not do so when it is finished.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    fn sync(&mut self) -> Result<()>;
}

impl ExtentFile for Box<dyn WriteFile> {
    fn append(&mut self, extent: &[u8]) -> Result<()> {
        Ok((**self).append(extent)?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok((**self).sync()?)
    }
}

impl ExtentFile for &mut SealedWriter {
    fn append(&mut self, extent: &[u8]) -> Result<()> {
        SealedWriter::append(self, extent)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The file of buckets while it is being written.
pub(super) struct Writing<'w> {
    pub(super) file: Box<dyn ExtentFile + 'w>,
    pub(super) written: Written,
    /// Hash of the headers of all extents.
    pub(super) headers: Xxh3,
    blocks: Option<BlockWriter>,
    /// Extents since the last checkpoint; empty if there are no checkpoints.
    pub(super) leg: Leg,
}

/// Extents written since the last checkpoint.
#[derive(Default)]
pub(super) struct Leg {
    pub(super) listed: Vec<[u8; LISTED_BYTES]>,
    pub(super) checksum: Xxh3,
    pub(super) rows: u64,
}

impl Leg {
    /// Adds an extent, which includes its header.
    pub(super) fn add(&mut self, extent: &Extent, bytes: &[u8]) {
        let mut listed = [0; LISTED_BYTES];
        listed[..HEADER_BYTES].copy_from_slice(&bytes[..HEADER_BYTES]);
        listed[HEADER_BYTES..].copy_from_slice(extent.as_bytes());
        self.listed.push(listed);
        self.checksum.update(bytes);
        self.rows += u64::from(extent.rows);
    }
}

impl<'w> Writing<'w> {
    pub(super) fn new(file: impl ExtentFile + 'w, blocks: Option<BlockWriter>) -> Self {
        Self { file: Box::new(file), written: Written::default(), headers: Xxh3::new(), blocks, leg: Leg::default() }
    }

    /// Appends an extent, which includes its header and the padding after it.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn append(&mut self, center: u32, extent: &Extent, bytes: &[u8]) -> Result<()> {
        self.headers.update(&bytes[..HEADER_BYTES]);
        self.written.centers.push(center);
        self.written.table.extend_from_slice(extent.as_bytes());
        self.file.append(bytes)?;
        self.blocks.as_mut().map_or(Ok(()), |blocks| blocks.append(bytes))?;
        self.written.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Returns the facts about the file, after its last extent.
    ///
    /// # Errors
    /// Fails if the file of block checksums cannot be written.
    pub(super) fn finish(self) -> Result<Written> {
        let blocks = self.blocks.map(BlockWriter::finish).transpose()?;
        Ok(Written { digest: self.headers.digest(), blocks, ..self.written })
    }
}

/// Pads the extent that starts at `start` in `bytes` and at `offset` in the file.
pub(super) fn pad(bytes: &mut Vec<u8>, start: usize, offset: u64, alignment: usize) {
    let before = offset as usize;
    bytes.resize(start + (before + bytes.len() - start).next_multiple_of(alignment) - before, 0);
}
