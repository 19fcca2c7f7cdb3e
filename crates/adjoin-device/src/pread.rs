//! The file system of the machine, by `pread`, past the page cache where it allows that.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::device::{Device, DeviceError, Operation, ReadFile, WriteFile};

/// Largest piece that an unaligned read takes through a buffer of its own.
const BOUNCE_BYTES: usize = 1 << 20;

/// The machine's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileSystem;

impl Device for FileSystem {
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>, DeviceError> {
        let failed = |source| DeviceError::new(Operation::Open, path, source);
        // Asked before it is opened: a named pipe would wait for its writer, and signals could not end that.
        let kind = fs::metadata(path).map_err(failed)?.file_type();
        if kind.is_dir() {
            return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(failed(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a pipe or device is read once, not at offsets",
            )));
        }
        let (file, direct) = open_direct(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let len = metadata.len();
        Ok(Arc::new(PreadFile { file, path: path.to_owned(), len, direct }))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, DeviceError> {
        let file = File::create(path).map_err(|source| DeviceError::new(Operation::Create, path, source))?;
        Ok(Box::new(AppendFile { file, path: path.to_owned() }))
    }

    fn create_folder(&self, path: &Path) -> Result<(), DeviceError> {
        fs::create_dir(path).map_err(|source| DeviceError::new(Operation::CreateFolder, path, source))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DeviceError> {
        fs::rename(from, to).map_err(|source| DeviceError::new(Operation::Rename, from, source))
    }

    fn remove(&self, path: &Path) -> Result<(), DeviceError> {
        fs::remove_file(path).map_err(|source| DeviceError::new(Operation::Remove, path, source))
    }

    fn remove_folder(&self, path: &Path) -> Result<(), DeviceError> {
        fs::remove_dir_all(path).map_err(|source| DeviceError::new(Operation::Remove, path, source))
    }

    fn sync_folder(&self, path: &Path) -> Result<(), DeviceError> {
        let sync = || File::open(path)?.sync_all();
        sync().map_err(|source| DeviceError::new(Operation::Sync, path, source))
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, DeviceError> {
        let facts = rustix::fs::statvfs(path)
            .map_err(|errno| DeviceError::new(Operation::FreeSpace, path, io::Error::from(errno)))?;
        Ok(facts.f_bavail * facts.f_frsize)
    }
}

/// Opens past the page cache; where the file system refuses that, through it.
fn open_direct(path: &Path) -> io::Result<(File, bool)> {
    let direct_flag = OFlags::DIRECT.bits().cast_signed();
    match OpenOptions::new().read(true).custom_flags(direct_flag).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok((File::open(path)?, false)),
        Err(error) => Err(error),
    }
}

struct PreadFile {
    file: File,
    path: PathBuf,
    len: u64,
    direct: bool,
}

impl PreadFile {
    /// Reads whole blocks into an aligned buffer; less only where the file ends.
    fn read_blocks(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.direct && !filled.is_multiple_of(BLOCK_BYTES) {
                break; // a direct read is short only at the end of the file
            }
        }
        Ok(filled)
    }

    /// Reads through an aligned buffer, for offsets, lengths or addresses that are not.
    fn read_bounced(&self, offset: u64, buffer: &mut [u8]) -> io::Result<u64> {
        let mut transferred = 0;
        let mut done = 0;
        while done < buffer.len() {
            let position = offset + done as u64;
            let skipped = (position % BLOCK_BYTES as u64) as usize;
            let wanted = (buffer.len() - done).min(BOUNCE_BYTES - skipped);
            let mut blocks = AlignedBuffer::zeroed((skipped + wanted).next_multiple_of(BLOCK_BYTES));
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

impl ReadFile for PreadFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError> {
        let aligned = [offset as usize, buffer.len(), buffer.as_ptr() as usize].iter().all(|x| x % BLOCK_BYTES == 0);
        let read = if !self.direct {
            self.file.read_exact_at(buffer, offset).map(|()| buffer.len() as u64)
        } else if aligned {
            self.read_blocks(offset, buffer).and_then(|filled| match filled == buffer.len() {
                true => Ok(filled as u64),
                false => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            })
        } else {
            self.read_bounced(offset, buffer)
        };
        read.map_err(|source| DeviceError {
            offset: Some(offset),
            ..DeviceError::new(Operation::Read, &self.path, source)
        })
    }
}

struct AppendFile {
    file: File,
    path: PathBuf,
}

impl WriteFile for AppendFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), DeviceError> {
        self.file.write_all(bytes).map_err(|source| DeviceError::new(Operation::Write, &self.path, source))
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.file.sync_all().map_err(|source| DeviceError::new(Operation::Sync, &self.path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_is_read_and_the_end_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
        let mut file = FileSystem.create(&path).unwrap();
        file.append(&bytes[..7_000]).unwrap();
        file.append(&bytes[7_000..]).unwrap();
        file.sync().unwrap();

        let file = FileSystem.open(&path).unwrap();
        assert_eq!(file.len(), 20_000);
        for (offset, len) in [(0, 20_000), (1, 19_999), (4_095, 2), (19_999, 1), (12_288, 4_096), (20_000, 0)] {
            let mut read = vec![0; len];
            file.read_at(offset as u64, &mut read).unwrap();
            assert_eq!(read, bytes[offset..offset + len]);
        }
        let mut aligned = AlignedBuffer::zeroed(8_192);
        assert_eq!(file.read_at(4_096, &mut aligned).unwrap(), 8_192);
        assert_eq!(*aligned, bytes[4_096..12_288]);

        let error = file.read_at(19_999, &mut [0; 2]).unwrap_err();
        assert_eq!((error.operation, error.offset), (Operation::Read, Some(19_999)));
    }

    #[test]
    fn errors_name_the_file() {
        let missing = FileSystem.open(Path::new("no/such/file")).err().unwrap();
        assert_eq!(missing.to_string(), "cannot open no/such/file: No such file or directory (os error 2)");
        assert!(FileSystem.open(Path::new("/")).is_err());
    }
}
