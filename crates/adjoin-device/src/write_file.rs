//! A file written front to back, bypassing the page cache if the file system allows it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::creator::Creator;
use crate::device::WriteFile;
use crate::error::{DeviceError, Operation};
use crate::page_cache;
use crate::read_file::direct_alignment;

/// Bytes that a file being written buffers. The creator of a file reserves them.
pub const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// Fewer bytes of whole blocks go through the page cache, so that small appends do not wait for the disk.
const DIRECT_BYTES_MIN: usize = 64 << 10;

/// Buffers bytes, and writes whole blocks directly if there are many.
///
/// Few blocks, and a partial last block, go through the page cache, so that the file is never longer than the appended
/// bytes. A block that fills up is written again, with the same bytes at its start, so a torn rewrite cannot damage
/// synced bytes.
pub(crate) struct AppendFile {
    file: File,
    path: PathBuf,
    creator: Creator,
    /// Alignment of direct writes in bytes; `None` if they are refused.
    direct: Option<usize>,
    /// Whether the file is in direct mode now.
    in_direct_mode: bool,
    buffer: AlignedBuffer,
    /// File offset of the first byte of the buffer.
    start: u64,
    /// Bytes in the buffer, and how many of them were written to the system.
    filled: usize,
    written: usize,
    failed: bool,
}

impl AppendFile {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Self::of(File::create(path)?, path)
    }

    /// Opens an existing file for appending after its first `len` bytes. Bytes that do not fill a block are read back
    /// into the buffer.
    pub(crate) fn go_on(path: &Path, len: u64) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.set_len(len)?;
        let start = len / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let mut begun = vec![0; (len - start) as usize];
        file.read_exact_at(&mut begun, start)?;
        let mut opened = Self::of(file, path)?;
        opened.buffer[..begun.len()].copy_from_slice(&begun);
        (opened.start, opened.filled, opened.written) = (start, begun.len(), begun.len());
        Ok(opened)
    }

    fn of(file: File, path: &Path) -> io::Result<Self> {
        let mut created = Self {
            direct: direct_alignment(&file),
            file,
            path: path.to_owned(),
            creator: Creator::this_process(),
            in_direct_mode: false,
            buffer: AlignedBuffer::zeroed(WRITE_BUFFER_BYTES),
            start: 0,
            filled: 0,
            written: 0,
            failed: false,
        };
        if created.set_direct_mode(true).is_err() {
            created.direct = None;
        }
        Ok(created)
    }

    fn set_direct_mode(&mut self, on: bool) -> io::Result<()> {
        if self.in_direct_mode != on {
            page_cache::bypass(&self.file, on)?;
            self.in_direct_mode = on;
        }
        Ok(())
    }

    fn gather(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // Copied even if the bytes would fill whole blocks, since the caller's memory is not aligned.
            let (now, later) = bytes.split_at(bytes.len().min(self.buffer.len() - self.filled));
            self.buffer[self.filled..][..now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == self.buffer.len() {
                self.write_out()?;
                self.start += self.filled as u64;
                (self.filled, self.written) = (0, 0);
            }
        }
        Ok(())
    }

    /// Writes the buffered bytes to the system.
    fn write_out(&mut self) -> io::Result<()> {
        assert!(self.written <= self.filled && self.filled <= self.buffer.len());
        if let Some(alignment) = self.direct {
            // From the start of the block that was partial at the last write: it has more bytes now and is written
            // again.
            let blocks = self.written / alignment * alignment..self.filled / alignment * alignment;
            if blocks.len() >= DIRECT_BYTES_MIN {
                self.written = self.write_directly(blocks, alignment)?;
            }
        }
        if self.written < self.filled {
            self.set_direct_mode(false)?;
            self.file.write_all_at(&self.buffer[self.written..self.filled], self.start + self.written as u64)?;
            self.written = self.filled;
        }
        Ok(())
    }

    /// Writes whole blocks of the buffer. Returns the position reached, which is less than requested if the system
    /// refuses direct writes here.
    fn write_directly(&mut self, blocks: Range<usize>, alignment: usize) -> io::Result<usize> {
        self.set_direct_mode(true)?;
        let mut at = blocks.start;
        while at < blocks.end && at.is_multiple_of(alignment) {
            match self.file.write_at(&self.buffer[at..blocks.end], self.start + at as u64) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(bytes) => at += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    // Refused after all: this and all later bytes go through the page cache.
                    self.direct = None;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(at.max(self.written))
    }

    /// Performs `work` unless something failed before. A failure now makes all later calls fail.
    fn attempt(
        &mut self,
        operation: Operation,
        work: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> Result<(), DeviceError> {
        let done = match self.creator.check() {
            Ok(()) if self.failed => Err(io::Error::other("an earlier write to it failed")),
            Ok(()) => work(self),
            Err(forked) => Err(forked),
        };
        self.failed |= done.is_err();
        done.map_err(|source| DeviceError::new(operation, &self.path, source))
    }
}

impl WriteFile for AppendFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), DeviceError> {
        self.attempt(Operation::Write, |file| file.gather(bytes))
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.attempt(Operation::Flush, Self::write_out)
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.flush()?;
        // On macOS, the standard library asks for F_FULLFSYNC here: fsync alone leaves bytes in the cache of the drive.
        self.attempt(Operation::Sync, |file| file.file.sync_all())
    }
}

impl Drop for AppendFile {
    fn drop(&mut self) {
        // A forked child shares the file with its parent, which writes these bytes itself.
        if !self.failed && self.creator.is_this_process() {
            let _ = self.write_out(); // errors are reported by flush and sync
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends odd pieces, some followed by a sync: after each, the file is exactly what was appended.
    #[test]
    fn a_synced_file_has_all_appended_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for direct in [true, false] {
            let mut file = AppendFile::create(&path).unwrap();
            file.direct = file.direct.filter(|_| direct);
            let mut expected = Vec::new();
            for (step, len) in [1, 511, 4096, 0, 100_000, WRITE_BUFFER_BYTES, 3, 2 * WRITE_BUFFER_BYTES + 9, 4087]
                .into_iter()
                .enumerate()
            {
                let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + step) as u8).collect();
                file.append(&bytes).unwrap();
                expected.extend(bytes);
                if step % 3 != 1 {
                    file.sync().unwrap();
                    assert!(std::fs::read(&path).unwrap() == expected, "after step {step}");
                }
            }
            file.append(b"tail").unwrap();
            drop(file);
            expected.extend(b"tail");
            assert!(std::fs::read(&path).unwrap() == expected);
        }
    }

    #[test]
    fn whole_blocks_bypass_the_page_cache_if_supported() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = AppendFile::create(&folder.path().join("file")).unwrap();
        if file.direct.is_none() {
            return eprintln!("skipped: no direct writes on this file system");
        }
        file.append(&vec![1; WRITE_BUFFER_BYTES]).unwrap();
        assert!(file.direct.is_some() && file.in_direct_mode);
        file.append(&[2; 5]).unwrap();
        file.sync().unwrap();
        assert!(file.direct.is_some() && !file.in_direct_mode);
    }

    #[test]
    fn a_failed_file_refuses_later_writes() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return eprintln!("skipped: no /dev/full");
        }
        let mut file = AppendFile::create(full).unwrap();
        file.append(b"a few bytes").unwrap();
        assert_eq!(file.sync().unwrap_err().source.kind(), io::ErrorKind::StorageFull);
        assert!(file.append(b"more").unwrap_err().to_string().contains("earlier write"));
    }

    #[test]
    fn a_forked_child_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = AppendFile::create(&path).unwrap();
        file.append(b"of the parent").unwrap();
        file.creator = Creator::another_process();
        for refused in [file.append(b"x"), file.flush(), file.sync()] {
            assert!(refused.unwrap_err().to_string().contains("open it in the child"));
        }
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }
}
