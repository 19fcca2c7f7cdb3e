//! A file that is written from start to end. Writes bypass the page cache if the file system allows it.

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

/// Size of the buffer of a file that is being written. The caller that creates the file reserves this memory.
pub const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// Minimum length of a direct write, in bytes. Fewer bytes go through the page cache, so that small appends do not
/// wait for the disk.
const DIRECT_BYTES_MIN: usize = 64 << 10;

/// File with a buffer of appended bytes. Whole blocks are written directly if there are many of them.
///
/// A few blocks, and a partial last block, go through the page cache, so that the file is never longer than the
/// appended bytes. When a partial block has filled up, it is written again as a whole. Its first bytes are unchanged,
/// so a torn write cannot damage bytes that were synced.
pub(crate) struct AppendFile {
    file: File,
    path: PathBuf,
    creator: Creator,
    /// Alignment of direct writes in bytes; `None` if they are refused.
    direct: Option<usize>,
    /// Whether the open file bypasses the page cache at the moment.
    in_direct_mode: bool,
    buffer: AlignedBuffer,
    /// Offset in the file of the first byte of the buffer.
    start: u64,
    /// Number of bytes in the buffer, and how many of them were passed to the system.
    filled: usize,
    written: usize,
    failed: bool,
}

impl AppendFile {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Self::of(File::create(path)?, path)
    }

    /// Opens an existing file for appending after its first `len` bytes, and cuts off the rest. If these bytes end in
    /// a partial block, that block is read into the buffer.
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
            // All bytes are copied, even whole blocks, because the caller's memory is not aligned.
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

    /// Passes the buffered bytes to the system.
    fn write_out(&mut self) -> io::Result<()> {
        assert!(self.written <= self.filled && self.filled <= self.buffer.len());
        if let Some(alignment) = self.direct {
            // Starts at the block that was partial at the last write. It has more bytes now, so it is written again.
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

    /// Writes blocks of the buffer directly. Returns the position in the buffer up to which bytes are written. It is
    /// below `blocks.end` if the system refuses direct writes.
    fn write_directly(&mut self, blocks: Range<usize>, alignment: usize) -> io::Result<usize> {
        self.set_direct_mode(true)?;
        let mut at = blocks.start;
        while at < blocks.end && at.is_multiple_of(alignment) {
            match self.file.write_at(&self.buffer[at..blocks.end], self.start + at as u64) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(bytes) => at += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    // The system refuses direct writes after all. These bytes and all later ones go through the page
                    // cache.
                    self.direct = None;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(at.max(self.written))
    }

    /// Performs `work` unless an earlier operation failed. If `work` fails, all later calls fail too.
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
        // On macOS, the standard library uses F_FULLFSYNC here, because fsync alone leaves bytes in the cache of the
        // drive.
        self.attempt(Operation::Sync, |file| file.file.sync_all())
    }
}

impl Drop for AppendFile {
    fn drop(&mut self) {
        // A forked child shares the file with its parent, and the parent writes these bytes.
        if !self.failed && self.creator.is_this_process() {
            let _ = self.write_out(); // errors are reported by flush and sync
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends pieces of odd lengths, and syncs after some of them. After each sync, the file must have all appended
    /// bytes.
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
