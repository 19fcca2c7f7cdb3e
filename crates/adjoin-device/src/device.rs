//! The traits that every file access goes through.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::aligned::AlignedBuffer;
use crate::error::{DeviceError, Operation};

/// Most bytes of a range that [`ReadFile::read_ahead`] reads by one request.
pub const READ_AHEAD_PIECE_BYTES: u64 = 2 << 20;

/// Files and folders, as the engine uses them. All offsets and lengths are in bytes.
pub trait Device: Send + Sync {
    /// Returns the name of the read method: `io_uring`, `pread` or `simulated`.
    fn name(&self) -> &'static str;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// If there is no such file or it may not be read.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>, DeviceError>;

    /// Creates a file, or truncates an existing one, for writing from its start.
    ///
    /// # Errors
    /// If the folder is missing or may not be written.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, DeviceError>;

    /// Opens an existing file for appending after its first `len` bytes, and cuts off the rest. Devices need not
    /// support this.
    ///
    /// # Errors
    /// If there is no such file, it is shorter, or it may not be written; `Unsupported` if the device does not support
    /// this.
    fn continue_file(&self, path: &Path, _len: u64) -> Result<Box<dyn WriteFile>, DeviceError> {
        Err(DeviceError::new(Operation::Create, path, io::ErrorKind::Unsupported.into()))
    }

    /// Creates a folder. Its parent must exist, the folder must not.
    ///
    /// # Errors
    /// If the parent is missing or may not be written, or the folder exists.
    fn create_folder(&self, path: &Path) -> Result<(), DeviceError>;

    /// Renames a file or folder atomically; an existing file of the new name is replaced.
    ///
    /// # Errors
    /// If the system refuses.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DeviceError>;

    /// Removes a file.
    ///
    /// # Errors
    /// If there is no such file or the system refuses.
    fn remove(&self, path: &Path) -> Result<(), DeviceError>;

    /// Removes a folder with everything in it.
    ///
    /// # Errors
    /// If there is no such folder or the system refuses.
    fn remove_folder(&self, path: &Path) -> Result<(), DeviceError>;

    /// Removes an empty folder. A device with concurrent writers does this atomically.
    ///
    /// # Errors
    /// If there is no such folder, it is not empty, or the system refuses.
    fn remove_empty_folder(&self, path: &Path) -> Result<(), DeviceError> {
        if self.list(path)?.is_empty() {
            return self.remove_folder(path);
        }
        Err(DeviceError::new(Operation::RemoveFolder, path, io::ErrorKind::DirectoryNotEmpty.into()))
    }

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// If the system refuses.
    fn sync_folder(&self, path: &Path) -> Result<(), DeviceError>;

    /// Returns the bytes that can still be written to the volume of `path`.
    ///
    /// # Errors
    /// If the system refuses.
    fn free_bytes(&self, path: &Path) -> Result<u64, DeviceError>;

    /// Returns what exists at `path`, following links; `None` if nothing does.
    ///
    /// # Errors
    /// If the system does not permit the check.
    fn kind(&self, path: &Path) -> Result<Option<FileKind>, DeviceError>;

    /// Returns the names in a folder, sorted by their bytes.
    ///
    /// # Errors
    /// If there is no such folder or it may not be read.
    fn list(&self, folder: &Path) -> Result<Vec<OsString>, DeviceError>;

    /// Returns the names in a folder for which `wanted` returns true, sorted by their bytes. A device with large
    /// folders never holds the other names.
    ///
    /// # Errors
    /// If there is no such folder or it may not be read.
    fn list_only(&self, folder: &Path, wanted: &dyn Fn(&OsStr) -> bool) -> Result<Vec<OsString>, DeviceError> {
        Ok(self.list(folder)?.into_iter().filter(|name| wanted(name)).collect())
    }

    /// Returns whether names that are [`Location::Remote`](crate::Location::Remote) lead to object stores.
    fn reads_object_stores(&self) -> bool {
        false
    }

    /// Returns the paths of all files in a remote folder and the folders below it, sorted by their bytes. An object
    /// store lists them without asking for each folder.
    ///
    /// # Errors
    /// If the folder may not be listed, or the device reads no object stores.
    fn list_below(&self, folder: &Path) -> Result<Vec<PathBuf>, DeviceError> {
        Err(DeviceError::new(Operation::List, folder, io::ErrorKind::Unsupported.into()))
    }

    /// Returns the bytes of memory that reads of a folder in an object store hold beyond the buffers of the caller.
    fn object_reading_bytes(&self) -> u64 {
        0
    }

    /// Returns the least bytes of memory with which an object of `len` bytes is written.
    fn object_writing_bytes(&self, _len: u64) -> u64 {
        0
    }

    /// Starts to write a file in an object store. It appears when [`WriteFile::sync`] returns, whole, and never if the
    /// returned file is dropped before. Nothing can be appended after that.
    ///
    /// # Errors
    /// If the store refuses, or the device writes no object stores.
    fn create_object(&self, path: &Path, _object: NewObject) -> Result<Box<dyn WriteFile>, DeviceError> {
        Err(DeviceError::new(Operation::Create, path, io::ErrorKind::Unsupported.into()))
    }

    /// Takes the lock of a file unless it is held; creates the file if it is missing. No other process or thread can
    /// take the lock until the returned value is dropped or the process has ended, in whatever way. The file names the
    /// holder of the lock. Only the holder may remove it.
    ///
    /// # Errors
    /// If the folder is missing or the file cannot be written.
    fn lock(&self, path: &Path) -> Result<Lock, DeviceError>;

    /// Creates a queue that keeps up to `depth` reads in flight; `depth` is clamped to 1 to 4096.
    ///
    /// # Errors
    /// If the system provides no threads for it.
    fn read_queue(&self, depth: usize) -> Result<Box<dyn ReadQueue>, DeviceError>;
}

/// An object to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewObject {
    /// Its exact length in bytes. Stores limit the number of parts of an object, so it decides on their length.
    pub len: u64,
    /// Bytes of memory for it, at least [`Device::object_writing_bytes`]. More of them allow more parts on their way.
    pub memory_bytes: u64,
    /// Whether an object of this name may be replaced.
    pub replace: bool,
}

/// Kind of object at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Regular file: bytes.
    File,
    /// Folder: names.
    Folder,
    /// Anything else: a pipe, a device or the like.
    Other,
}

/// Length and times of a file at one moment. Different stamps mean that the contents have changed. Equal stamps do not
/// prove the opposite: the file may have changed between two ticks of the device's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Length in bytes.
    pub len: u64,
    /// Time of the last write by the device's clock, in nanoseconds; 0 if unknown.
    pub written_ns: i128,
    /// Time of the last change of contents or metadata, in nanoseconds; 0 if unknown. No program can set it back, but
    /// renaming the file or changing its permissions updates it too.
    pub changed_ns: i128,
    /// Digest of the version that an object store states, such as an ETag; 0 if it states none.
    pub version: u64,
}

impl FileStamp {
    /// Returns whether length, time of writing and version equal those of the other stamp, so that the contents probably
    /// do too.
    #[must_use]
    pub fn has_contents_of(&self, other: &Self) -> bool {
        (self.len, self.written_ns, self.version) == (other.len, other.written_ns, other.version)
    }
}

/// Outcome of an attempt to take a lock.
pub enum Lock {
    /// The lock was taken.
    Ours(HeldLock),
    /// Another process or thread holds the lock; its description.
    Others(String),
    /// The file system has no locks. The file was not created either.
    Unsupported,
}

/// A lock, held until this is dropped.
pub struct HeldLock {
    _lock: Box<dyn Any + Send + Sync>,
}

impl HeldLock {
    /// Wraps `lock`, which is released when dropped.
    pub(crate) fn new(lock: impl Any + Send + Sync) -> Self {
        Self { _lock: Box::new(lock) }
    }
}

/// An open file, read at offsets, from any thread.
///
/// It is `Any` so that the queue of a device recognizes the device's own files.
pub trait ReadFile: Any + Send + Sync {
    /// Returns the length in bytes at the time of opening.
    fn len(&self) -> u64;

    /// Returns the file's current stamp.
    ///
    /// # Errors
    /// If the system fails.
    fn stamp(&self) -> Result<FileStamp, DeviceError> {
        Ok(FileStamp { len: self.len(), written_ns: 0, changed_ns: 0, version: 0 })
    }

    /// Returns whether each read takes long whatever its length, as one from an object store does.
    fn is_remote(&self) -> bool {
        false
    }

    /// Returns the bytes that [`read_ahead`](Self::read_ahead) holds at most.
    fn read_ahead_bytes(&self) -> u64 {
        0
    }

    /// Returns a view of the file for a reader that needs `ranges` of at most [`READ_AHEAD_PIECE_BYTES`] in
    /// this order. Ranges are read before they are needed, several at a time. Reads of other ranges are allowed. `None` if the file is read fast enough without.
    fn read_ahead(self: Arc<Self>, _ranges: Vec<Range<u64>>) -> Option<Arc<dyn ReadFile>> {
        None
    }

    /// Returns whether the file is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether reads bypass the page cache.
    fn is_direct(&self) -> bool;

    /// Returns the alignment of offsets, lengths and addresses with which a read needs no copy: a power of two from 512
    /// to 4096. The address of an [`AlignedBuffer`] is always aligned.
    fn alignment(&self) -> usize;

    /// Fills `buffer` from `offset` on. Returns the bytes transferred, including those read only for alignment.
    ///
    /// # Errors
    /// If the system fails, or the file ends before the buffer is full.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError>;
}

/// Many reads in flight at a time, completed in any order. Files of other devices are read as well, but synchronously,
/// within [`submit`](Self::submit).
///
/// Dropping the queue waits for the reads in flight, because the system owns their buffers until then.
pub trait ReadQueue: Send {
    /// Starts to fill the whole of `buffer` from `offset` on. Waits for an earlier read if the queue is full. `cause`
    /// is recorded in traces; no other device uses it.
    ///
    /// A read that is not aligned as the file requires is copied, while `submit` waits.
    ///
    /// # Errors
    /// If the read cannot be started. Later failures are reported by its [`Completion`].
    fn submit(
        &mut self,
        token: u64,
        cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        buffer: AlignedBuffer,
    ) -> Result<(), DeviceError>;

    /// Submits a read as [`submit`](Self::submit) does, but may delay it until the next call of `submit` or
    /// [`wait`](Self::wait). Reads that start together cost less processor time.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    fn submit_later(
        &mut self,
        token: u64,
        cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        buffer: AlignedBuffer,
    ) -> Result<(), DeviceError> {
        self.submit(token, cause, file, offset, buffer)
    }

    /// Waits until a read has ended; returns `None` if none is in flight.
    fn wait(&mut self) -> Option<Completion>;

    /// Returns the number of reads submitted and not yet returned by [`wait`](Self::wait).
    fn in_flight(&self) -> usize;
}

/// Why a read was submitted: the consumer, its step, and the step it waited for. From this, a trace shows which reads
/// could be in flight together on a device of another speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// The consumer in one word, such as `join`.
    pub consumer: &'static str,
    /// Number of the consumer's step that needs these bytes; the first if several do.
    pub step: Option<u64>,
    /// Number of the earlier step of the same consumer whose reads had to end before this one could be submitted; lower
    /// than `step`. `None` if the read waited for nothing.
    pub after: Option<u64>,
}

impl Cause {
    /// The cause of reads without one.
    pub const UNKNOWN: Self = Self { consumer: "-", step: None, after: None };
}

/// A read that has ended.
pub struct Completion {
    /// The token passed to `submit`.
    pub token: u64,
    /// The buffer passed to `submit`. It is empty if the kernel failed in a way that leaves it unknown whether it still
    /// writes to the buffer; that memory is then leaked.
    pub buffer: AlignedBuffer,
    /// Bytes transferred, including those read only for alignment, or why the buffer was not filled. A read past the
    /// end of the file is an `UnexpectedEof`.
    pub result: Result<u64, DeviceError>,
}

/// A file being written front to back. It may buffer up to [`WRITE_BUFFER_BYTES`](crate::WRITE_BUFFER_BYTES).
///
/// After an error nothing more can be written. The contents of the file are then unknown, since a system that failed to
/// make bytes durable may have forgotten that they were not. Dropping the file writes the rest, and ignores errors.
pub trait WriteFile: Send {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// If the system fails, for example on a full disk. The error may concern bytes appended earlier.
    fn append(&mut self, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Writes all appended bytes to the system. A reader that opens the file now sees them, but a loss of power may
    /// lose them.
    ///
    /// # Errors
    /// If the system fails.
    fn flush(&mut self) -> Result<(), DeviceError>;

    /// Makes all appended bytes durable.
    ///
    /// # Errors
    /// If the system fails.
    fn sync(&mut self) -> Result<(), DeviceError>;
}
