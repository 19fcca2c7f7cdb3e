//! Frames in files. A frame has a head, with its length and its checksum, and bytes.

use std::sync::Arc;

use adjoin_device::ReadFile;
use xxhash_rust::xxh3::xxh3_64;

use crate::base::error::Result;

/// Size of the head of a frame in bytes: a length and a checksum.
pub(crate) const FRAME_HEAD_BYTES: usize = 4 + 8;

/// Number of bytes to read at a time from an object store, where a read of a short frame takes as long.
const REQUEST_BYTES: usize = 1 << 20;

/// The head of a frame.
pub(crate) type FrameHead = [u8; FRAME_HEAD_BYTES];

/// Encodes the head of a frame.
pub(crate) fn frame_head(length: u32, checksum: u64) -> FrameHead {
    let mut head = [0; FRAME_HEAD_BYTES];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4..].copy_from_slice(&checksum.to_le_bytes());
    head
}

/// Decodes the length and the checksum in the head of a frame.
pub(crate) fn split_head(head: &FrameHead) -> (u32, u64) {
    let (length, checksum) = head.split_at(4);
    let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
    (length, u64::from_le_bytes(checksum.try_into().expect("eight bytes")))
}

/// Reader of frames, one after the other.
pub(crate) struct Frames {
    file: Arc<dyn ReadFile>,
    offset: u64,
    end: u64,
    longest: usize,
    frame: Vec<u8>,
    /// Bytes of a file in an object store, from `buffered_from` on.
    buffer: Vec<u8>,
    buffered_from: u64,
}

impl Frames {
    /// Creates a reader of the frames in the range `part` of a file. A frame of more than `longest` bytes counts as
    /// damaged.
    pub(crate) fn new(file: Arc<dyn ReadFile>, part: std::ops::Range<u64>, longest: usize) -> Self {
        let (frame, buffer) = (Vec::new(), Vec::new());
        Self { file, offset: part.start, end: part.end, longest, frame, buffer, buffered_from: 0 }
    }

    /// Returns a reader of the frames from `offset` on.
    pub(crate) fn reader_at(&self, offset: u64) -> Self {
        Self::new(self.file.clone(), offset.min(self.end)..self.end, self.longest)
    }

    /// Returns the offset in the file of the next read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the end of the last frame.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns whether all frames are read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.offset == self.end
    }

    /// Returns the bytes of the last frame that was read.
    pub(crate) fn last(&self) -> &[u8] {
        &self.frame
    }

    /// Reads the next frame and returns its head. Returns `None` if the frame is damaged or incomplete.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub(crate) fn read_next(&mut self) -> Result<Option<FrameHead>> {
        let mut head = [0; FRAME_HEAD_BYTES];
        if !self.read(&mut head)? {
            return Ok(None);
        }
        let (length, checksum) = split_head(&head);
        // The length is checked before the buffer grows, since a damaged length may be any number.
        if u64::from(length) > self.end - self.offset || length as usize > self.longest {
            return Ok(None);
        }
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(length as usize, 0);
        let is_whole = self.read(&mut frame)?;
        self.frame = frame;
        Ok((is_whole && xxh3_64(&self.frame) == checksum).then_some(head))
    }

    /// Fills `bytes` from the file. Returns false if too few bytes are left.
    fn read(&mut self, bytes: &mut [u8]) -> Result<bool> {
        if bytes.len() as u64 > self.end - self.offset {
            return Ok(false);
        }
        if self.file.is_remote() && bytes.len() < REQUEST_BYTES {
            self.read_buffered(bytes)?;
        } else {
            self.file.read_at(self.offset, bytes)?;
        }
        self.offset += bytes.len() as u64;
        Ok(true)
    }

    /// Fills `bytes` from the buffer, which is filled first unless it has them.
    fn read_buffered(&mut self, bytes: &mut [u8]) -> Result<()> {
        let buffered = self.buffered_from..self.buffered_from + self.buffer.len() as u64;
        if self.offset < buffered.start || self.offset + bytes.len() as u64 > buffered.end {
            self.buffer.resize((self.end - self.offset).min(REQUEST_BYTES as u64) as usize, 0);
            self.buffered_from = self.offset;
            self.file.read_at(self.offset, &mut self.buffer)?;
        }
        let start = (self.offset - self.buffered_from) as usize;
        bytes.copy_from_slice(&self.buffer[start..start + bytes.len()]);
        Ok(())
    }
}
