//! The face that every file access goes through.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files and folders, as the engine uses them. All offsets and lengths are in bytes.
pub trait Device: Send + Sync {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// Where there is no such file or it may not be read.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>, DeviceError>;

    /// Creates a file, or empties the one that is there, for writing from its start.
    ///
    /// # Errors
    /// Where the folder is missing or may not be written.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, DeviceError>;

    /// Makes a folder; its parent must be there, it must not.
    ///
    /// # Errors
    /// Where the parent is missing, may not be written, or the folder is there.
    fn create_folder(&self, path: &Path) -> Result<(), DeviceError>;

    /// Gives a file or folder another name in one step; a file of that name is replaced.
    ///
    /// # Errors
    /// Where the system refuses.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DeviceError>;

    /// Removes a file.
    ///
    /// # Errors
    /// Where there is none or the system refuses.
    fn remove(&self, path: &Path) -> Result<(), DeviceError>;

    /// Removes a folder with everything in it.
    ///
    /// # Errors
    /// Where there is none or the system refuses.
    fn remove_folder(&self, path: &Path) -> Result<(), DeviceError>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// Where the system refuses.
    fn sync_folder(&self, path: &Path) -> Result<(), DeviceError>;

    /// Bytes that may still be written where `path` lies.
    ///
    /// # Errors
    /// Where the system refuses.
    fn free_bytes(&self, path: &Path) -> Result<u64, DeviceError>;
}

/// An open file, read at offsets, from any thread.
pub trait ReadFile: Send + Sync {
    /// Length in bytes when it was opened.
    fn len(&self) -> u64;

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether reads go past the page cache.
    fn is_direct(&self) -> bool;

    /// Fills `buffer` from `offset` on. Returns the bytes that were transferred for it, alignment included.
    ///
    /// # Errors
    /// Where the system fails, or the file ends before the buffer is full.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError>;
}

/// A file being written front to back.
pub trait WriteFile: Send {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// Where the system fails, as on a full disk.
    fn append(&mut self, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Makes all that was appended durable.
    ///
    /// # Errors
    /// Where the system fails.
    fn sync(&mut self) -> Result<(), DeviceError>;
}

/// What was asked of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Operation {
    Open,
    Read,
    Create,
    Write,
    Sync,
    Rename,
    Remove,
    CreateFolder,
    FreeSpace,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Create => "create",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::CreateFolder => "create the folder",
            Self::FreeSpace => "ask the free space of",
        })
    }
}

/// An operation that failed, on which file, and why.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}{}: {source}", path.display(), at(*offset))]
pub struct DeviceError {
    /// What was asked.
    pub operation: Operation,
    /// Of which file or folder.
    pub path: PathBuf,
    /// At which byte, for reads.
    pub offset: Option<u64>,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

fn at(offset: Option<u64>) -> String {
    offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default()
}

impl DeviceError {
    pub(crate) fn new(operation: Operation, path: &Path, source: io::Error) -> Self {
        Self { operation, path: path.to_owned(), offset: None, source }
    }
}
