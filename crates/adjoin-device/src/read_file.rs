//! An open file that is read at offsets. Reads bypass the page cache if the file system allows it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::device::{FileStamp, ReadFile};
use crate::error::{DeviceError, Operation};
use crate::page_cache::open_bypassing;

/// Maximum length of the pieces in which an unaligned read is performed. Each piece has an aligned buffer of its own.
const BOUNCE_BYTES: usize = 1 << 20;
/// Minimum alignment that is used, even if the system reports a smaller one: no device has smaller blocks.
#[cfg(any(target_os = "linux", test))]
const ALIGNMENT_MIN: usize = 512;

pub(crate) struct OpenFile {
    pub(crate) file: File,
    path: PathBuf,
    len: u64,
    /// Alignment of direct reads in bytes; `None` if reads go through the page cache.
    direct: Option<usize>,
}

impl OpenFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // Checked before the file is opened: opening a named pipe would wait for a writer, and signals could not
        // interrupt it.
        let kind = fs::metadata(path)?.file_type();
        if kind.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot read from a pipe or device; save it to a file first",
            ));
        }
        let (file, direct) = open_direct(path)?;
        let len = file.metadata()?.len();
        Ok(Self { file, path: path.to_owned(), len, direct })
    }

    /// Creates the error of a read at `offset`.
    pub(crate) fn failed(&self, offset: u64, source: io::Error) -> DeviceError {
        DeviceError::read(&self.path, offset, source)
    }

    /// Returns whether the system can read into the buffer directly, without a copy.
    pub(crate) fn takes(&self, offset: u64, buffer: &[u8]) -> bool {
        let aligned = |alignment: usize| {
            offset.is_multiple_of(alignment as u64)
                && buffer.len().is_multiple_of(alignment)
                && buffer.as_ptr().addr().is_multiple_of(alignment)
        };
        self.direct.is_none_or(aligned)
    }

    /// Returns whether a read that stopped after `filled` bytes has reached the end of the file. The end of the file
    /// is the only reason for a direct read to stop within a block.
    pub(crate) fn ends_after(&self, filled: usize) -> bool {
        self.direct.is_some_and(|alignment| !filled.is_multiple_of(alignment))
    }

    /// Performs a read for which [`takes`](Self::takes) returns true. Returns the number of bytes read. It is less
    /// than the buffer's length only at the end of the file.
    fn read_blocks(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        // A direct read that stopped within a block must not be continued: the next offset would be unaligned, so the
        // kernel would refuse it.
        while filled < buffer.len() && !self.ends_after(filled) {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Performs a read with an unaligned offset, length or address: reads into an aligned buffer and copies. Returns
    /// the number of bytes transferred.
    fn read_bounced(&self, offset: u64, buffer: &mut [u8]) -> io::Result<u64> {
        let alignment = self.alignment();
        let mut transferred = 0;
        let mut done = 0;
        while done < buffer.len() {
            let position = offset + done as u64;
            let skipped = (position % alignment as u64) as usize;
            let wanted = (buffer.len() - done).min(BOUNCE_BYTES - skipped);
            // Extended to whole blocks, because direct reads cannot start or end within a block.
            let mut blocks = AlignedBuffer::zeroed((skipped + wanted).next_multiple_of(alignment));
            let filled = self.read_blocks(position - skipped as u64, &mut blocks)?;
            if filled < skipped + wanted {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            buffer[done..done + wanted].copy_from_slice(&blocks[skipped..skipped + wanted]);
            transferred += filled as u64;
            done += wanted;
        }
        Ok(transferred)
    }
}

impl ReadFile for OpenFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn stamp(&self) -> Result<FileStamp, DeviceError> {
        let facts = self.file.metadata();
        let facts = facts.map_err(|source| DeviceError::new(Operation::Kind, &self.path, source))?;
        // The stamp omits the inode number: some network file systems assign a new one each time the file is opened.
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        let written_ns = ns(facts.mtime(), facts.mtime_nsec());
        let changed_ns = ns(facts.ctime(), facts.ctime_nsec());
        Ok(FileStamp { len: facts.len(), written_ns, changed_ns, version: 0 })
    }

    fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    fn alignment(&self) -> usize {
        self.direct.unwrap_or(BLOCK_BYTES)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| i64::try_from(*end).is_ok());
        let read = if end.is_none() {
            Err(io::Error::from(io::ErrorKind::UnexpectedEof)) // no file is that long
        } else if self.takes(offset, buffer) {
            self.read_blocks(offset, buffer).and_then(|filled| match filled == buffer.len() {
                true => Ok(filled as u64),
                false => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            })
        } else {
            self.read_bounced(offset, buffer)
        };
        read.map_err(|source| self.failed(offset, source))
    }
}

/// Opens a file for direct reads, or for reads through the page cache if the file system refuses direct ones. Returns
/// the file and the alignment of its direct reads.
fn open_direct(path: &Path) -> io::Result<(File, Option<usize>)> {
    match open_bypassing(path) {
        // Some file systems accept the flag when the file is opened and refuse the reads later.
        Ok(file) => match direct_alignment(&file) {
            Some(alignment) => Ok((file, Some(alignment))),
            None => Ok((File::open(path)?, None)),
        },
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok((File::open(path)?, None)),
        Err(error) => Err(error),
    }
}

/// Returns the alignment that the system requires for direct access, a power of two from 512 to 4096. Assumes 4096 if
/// the system does not report it. Returns `None` if the system requires more than 4096 or does not allow direct
/// access.
pub(crate) fn direct_alignment(file: &File) -> Option<usize> {
    #[cfg(not(target_os = "linux"))]
    let _ = file;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, StatxFlags};
        let asked = StatxFlags::DIOALIGN;
        if let Ok(facts) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, asked)
            && facts.stx_mask & asked.bits() != 0
        {
            return usable_alignment(facts.stx_dio_mem_align, facts.stx_dio_offset_align);
        }
    }
    Some(BLOCK_BYTES)
}

/// Combines the alignments of memory addresses and file offsets into one that satisfies both. Returns `None` if there
/// is none up to 4096, or if `offset` is 0, which means that direct access is not supported.
#[cfg(any(target_os = "linux", test))]
fn usable_alignment(memory: u32, offset: u32) -> Option<usize> {
    let wanted = memory.max(offset) as usize;
    let usable = offset > 0 && wanted.is_power_of_two() && wanted <= BLOCK_BYTES;
    usable.then_some(wanted.max(ALIGNMENT_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_are_powers_of_two_up_to_a_block() {
        assert_eq!(usable_alignment(4, 512), Some(512));
        assert_eq!(usable_alignment(512, 4096), Some(4096));
        assert_eq!(usable_alignment(1, 1), Some(512));
        for refused in [(0, 0), (4, 65_536), (4, 1_536)] {
            assert_eq!(usable_alignment(refused.0, refused.1), None);
        }
    }

    #[test]
    fn open_files_report_their_alignment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [7; 5_000]).unwrap();
        let file = OpenFile::open(&path).unwrap();
        let alignment = file.alignment();
        assert!(alignment.is_power_of_two() && (512..=4096).contains(&alignment));
        let mut buffer = AlignedBuffer::zeroed(alignment);
        assert!(file.takes(alignment as u64, &buffer) && file.read_at(alignment as u64, &mut buffer).is_ok());
        assert_eq!(file.takes(1, &buffer), !file.is_direct());
    }
}
