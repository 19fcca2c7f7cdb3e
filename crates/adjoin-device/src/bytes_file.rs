//! Bytes in memory that are read like a file.

use std::io;
use std::path::{Path, PathBuf};

use crate::device::ReadFile;
use crate::error::DeviceError;

/// Bytes in memory that are read like a file. Error messages contain the name.
pub struct BytesFile {
    name: PathBuf,
    bytes: Vec<u8>,
}

impl BytesFile {
    /// Creates a file that contains `bytes`.
    pub fn new(name: &Path, bytes: Vec<u8>) -> Self {
        Self { name: name.to_owned(), bytes }
    }
}

impl ReadFile for BytesFile {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn alignment(&self) -> usize {
        512
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError> {
        let start = usize::try_from(offset).ok();
        let there = start.and_then(|start| self.bytes.get(start..)?.get(..buffer.len()));
        let there = there.ok_or_else(|| DeviceError::read(&self.name, offset, io::ErrorKind::UnexpectedEof.into()))?;
        buffer.copy_from_slice(there);
        Ok(buffer.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bytes_up_to_the_end_and_fails_after() {
        let file = BytesFile::new(Path::new("body"), vec![1, 2, 3]);
        let mut two = [0; 2];
        assert_eq!((file.len(), file.read_at(1, &mut two).unwrap(), two), (3, 2, [2, 3]));
        for offset in [2, 3, 4, u64::MAX] {
            let error = file.read_at(offset, &mut two).unwrap_err().to_string();
            assert!(error.contains("body"), "{error}");
        }
    }
}
