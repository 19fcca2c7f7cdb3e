//! Traits through which every file is accessed.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::aligned::AlignedBuffer;
use crate::error::{DeviceError, Operation};

/// Maximum length of a range for [`ReadFile::read_ahead`], in bytes. Each range is read by one request.
pub const READ_AHEAD_PIECE_BYTES: u64 = 2 << 20;

/// Files and folders, as the engine uses them. All offsets and lengths are in bytes.
pub trait Device: Send + Sync {
    /// Returns the name of the read method: `io_uring`, `pread` or `simulated`.
    fn name(&self) -> &'static str;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// If there is no such file, or the caller may not read it.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>, DeviceError>;

    /// Creates a file for writing. Truncates the file if it exists.
    ///
    /// # Errors
    /// If the folder is missing, or the caller may not write to it.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, DeviceError>;

    /// Opens an existing file for appending after its first `len` bytes. The bytes after these are cut off. A device
    /// need not support this.
    ///
    /// # Errors
    /// If there is no such file, it is shorter than `len`, or the caller may not write to it. `Unsupported` if the
    /// device does not support this.
    fn continue_file(&self, path: &Path, _len: u64) -> Result<Box<dyn WriteFile>, DeviceError> {
        Err(DeviceError::new(Operation::Create, path, io::ErrorKind::Unsupported.into()))
    }

    /// Creates a folder. Its parent must exist.
    ///
    /// # Errors
    /// If the parent is missing, the caller may not write to the parent, or the folder exists.
    fn create_folder(&self, path: &Path) -> Result<(), DeviceError>;

    /// Renames a file or folder atomically. An existing file with the new name is replaced.
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

    /// Removes an empty folder. A device with concurrent writers must implement this as one atomic operation.
    fn remove_empty_folder(&self, path: &Path) -> Result<(), DeviceError> {
        if self.list(path)?.is_empty() {
            return self.remove_folder(path);
        }
        Err(DeviceError::new(Operation::RemoveFolder, path, io::ErrorKind::DirectoryNotEmpty.into()))
    }

    /// Makes the creations, renames and removals in a folder durable.
    fn sync_folder(&self, path: &Path) -> Result<(), DeviceError>;

    /// Returns the free bytes of the volume that contains `path`.
    fn free_bytes(&self, path: &Path) -> Result<u64, DeviceError>;

    /// Returns the kind of the object at `path`, or `None` if there is none. Links are followed.
    fn kind(&self, path: &Path) -> Result<Option<FileKind>, DeviceError>;

    /// Returns the names in a folder, sorted by their bytes.
    ///
    /// # Errors
    /// If there is no such folder or it may not be read.
    fn list(&self, folder: &Path) -> Result<Vec<OsString>, DeviceError>;

    /// Returns the names in a folder for which `wanted` returns true, sorted by their bytes. A device with large
    /// folders should not hold the other names in memory.
    ///
    /// # Errors
    /// If there is no such folder or it may not be read.
    fn list_only(&self, folder: &Path, wanted: &dyn Fn(&OsStr) -> bool) -> Result<Vec<OsString>, DeviceError> {
        Ok(self.list(folder)?.into_iter().filter(|name| wanted(name)).collect())
    }

    /// Returns whether this device can access object stores ([`Location::Remote`](crate::Location::Remote)).
    fn reads_object_stores(&self) -> bool {
        false
    }

    /// Returns the paths of all files in a remote folder and its subfolders, sorted by their bytes. An object store
    /// lists all of them by one query, not by one per subfolder.
    ///
    /// # Errors
    /// If the folder may not be listed, or the device reads no object stores.
    fn list_below(&self, folder: &Path) -> Result<Vec<PathBuf>, DeviceError> {
        Err(DeviceError::new(Operation::List, folder, io::ErrorKind::Unsupported.into()))
    }

    /// Returns how many bytes of memory the device needs to read a folder in an object store, in addition to the
    /// caller's buffers.
    fn object_reading_bytes(&self) -> u64 {
        0
    }

    /// Returns the minimum memory for writing an object of `len` bytes, in bytes.
    fn object_writing_bytes(&self, _len: u64) -> u64 {
        0
    }

    /// Starts to write a file in an object store. The file appears, complete, when [`WriteFile::sync`] returns. After
    /// that, nothing can be appended. If the returned value is dropped before, the file never appears.
    ///
    /// # Errors
    /// If the store refuses, or the device does not write to object stores.
    fn create_object(&self, path: &Path, _object: NewObject) -> Result<Box<dyn WriteFile>, DeviceError> {
        Err(DeviceError::new(Operation::Create, path, io::ErrorKind::Unsupported.into()))
    }

    /// Takes the lock of a file unless another thread or process holds it. Creates the file if it is missing. The
    /// lock is released when the returned value is dropped or the process ends in any way. The file contains a
    /// description of the holder. Only the holder may remove the file.
    ///
    /// # Errors
    /// If the folder is missing or the file cannot be written.
    fn lock(&self, path: &Path) -> Result<Lock, DeviceError>;

    /// Creates a queue that keeps up to `depth` reads in flight. `depth` is clamped to the range 1 to 4096.
    ///
    /// # Errors
    /// If the system cannot start the threads of the queue.
    fn read_queue(&self, depth: usize) -> Result<Box<dyn ReadQueue>, DeviceError>;
}

/// An object to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewObject {
    /// Exact length of the object in bytes. A store limits the number of parts of an object, so the length of a part
    /// depends on it.
    pub len: u64,
    /// Bytes of memory for writing the object, at least [`Device::object_writing_bytes`]. More memory allows more
    /// parts to be uploaded at the same time.
    pub memory_bytes: u64,
    /// Whether an object of this name may be replaced.
    pub replace: bool,
}

/// Kind of the object at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else, such as a pipe or a device.
    Other,
}

/// Length and times of a file at one moment. If two stamps differ, the contents may have changed. If they are equal,
/// the contents are probably equal. This is not certain: the file may have changed between two ticks of the device's
/// clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Length in bytes.
    pub len: u64,
    /// Time of the last write by the device's clock, in nanoseconds; 0 if unknown.
    pub written_ns: i128,
    /// Time of the last change of contents or metadata, in nanoseconds; 0 if unknown. Unlike `written_ns`, no program
    /// can set it. A rename of the file or a change of its permissions updates it too.
    pub changed_ns: i128,
    /// Digest of the version that an object store reports, such as an ETag; 0 if the store reports none.
    pub version: u64,
}

impl FileStamp {
    /// Returns whether both stamps have the same length, time of writing and version. The contents are then probably
    /// equal.
    #[must_use]
    pub fn has_contents_of(&self, other: &Self) -> bool {
        (self.len, self.written_ns, self.version) == (other.len, other.written_ns, other.version)
    }
}

/// Outcome of an attempt to take a lock.
pub enum Lock {
    /// The lock was taken.
    Ours(HeldLock),
    /// Another process or thread holds the lock. Contains a description of the holder.
    Others(String),
    /// The file system does not support locks. No file was created.
    Unsupported,
}

/// A lock that is released when this value is dropped.
pub struct HeldLock {
    _lock: Box<dyn Any + Send + Sync>,
}

impl HeldLock {
    /// Wraps `lock`, which is released when dropped.
    pub(crate) fn new(lock: impl Any + Send + Sync) -> Self {
        Self { _lock: Box::new(lock) }
    }
}

/// An open file. Any thread can read it at any offset.
///
/// The trait extends `Any` so that a device's queue recognizes the files that the device itself opened.
pub trait ReadFile: Any + Send + Sync {
    /// Returns the length that the file had when it was opened, in bytes.
    fn len(&self) -> u64;

    /// Returns the file's current stamp.
    ///
    /// # Errors
    /// If the system fails.
    fn stamp(&self) -> Result<FileStamp, DeviceError> {
        Ok(FileStamp { len: self.len(), written_ns: 0, changed_ns: 0, version: 0 })
    }

    /// Returns whether every read takes long, even a short one. This is so in object stores.
    fn is_remote(&self) -> bool {
        false
    }

    /// Returns the maximum memory that a view from [`read_ahead`](Self::read_ahead) uses, in bytes.
    fn read_ahead_bytes(&self) -> u64 {
        0
    }

    /// Returns a view of the file for a reader that needs `ranges` in this order. Each range has at most
    /// [`READ_AHEAD_PIECE_BYTES`]. The view reads several ranges at the same time, before the reader needs them. It
    /// can read other ranges too. Returns `None` if the file is fast enough without read-ahead.
    fn read_ahead(self: Arc<Self>, _ranges: Vec<Range<u64>>) -> Option<Arc<dyn ReadFile>> {
        None
    }

    /// Returns whether the file is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether reads bypass the page cache.
    fn is_direct(&self) -> bool;

    /// Returns the alignment that offset, length and address of a read must have to be filled without a copy. It is a
    /// power of two from 512 to 4096. The address of an [`AlignedBuffer`] always has it.
    fn alignment(&self) -> usize;

    /// Returns `range`, extended to whole blocks if reads bypass the page cache, but not beyond the end of the file. A
    /// read of the result into an [`AlignedBuffer`] needs no copy.
    fn blocks_of(&self, range: Range<u64>) -> Range<u64> {
        let alignment = if self.is_direct() { self.alignment() as u64 } else { 1 };
        let end = range.end.next_multiple_of(alignment).min(self.len().max(range.end));
        range.start / alignment * alignment..end
    }

    /// Fills `buffer` with the bytes from `offset` on. Returns the number of bytes transferred, including bytes that
    /// were read only for alignment.
    ///
    /// # Errors
    /// If the system fails, or the file ends before the buffer is full.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError>;
}

/// Queue that keeps many reads in flight. They complete in any order. A file of another device is read synchronously,
/// within [`submit`](Self::submit).
///
/// Dropping the queue waits for the reads in flight, because the system may write to their buffers until they end.
pub trait ReadQueue: Send {
    /// Starts to fill `buffer` with the bytes from `offset` on. Waits for an earlier read to end if the queue is
    /// full. Only [`Recorder`](crate::Recorder) uses `cause`.
    ///
    /// If the read does not have the [alignment](ReadFile::alignment) of the file, `submit` performs it synchronously
    /// and copies the bytes.
    ///
    /// # Errors
    /// If the read cannot be started. If it fails later, its [`Completion`] has the error.
    fn submit(
        &mut self,
        token: u64,
        cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        buffer: AlignedBuffer,
    ) -> Result<(), DeviceError>;

    /// Submits a read as [`submit`](Self::submit) does, but may delay its start until the next call of `submit`, or
    /// until [`wait`](Self::wait) finds no finished read. Starting several reads at once takes less processor time.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
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

    /// Waits until a read has ended and returns it. Returns `None` if no read is in flight.
    fn wait(&mut self) -> Option<Completion>;

    /// Returns the number of reads that were submitted and that [`wait`](Self::wait) has not returned yet.
    fn in_flight(&self) -> usize;
}

/// Why a read was submitted: its consumer, the step that needs the bytes, and the step that it waited for. With
/// causes, a trace shows which reads could be in flight together on a faster or slower device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// The consumer in one word, such as `join`.
    pub consumer: &'static str,
    /// Number of the consumer's step that needs these bytes. If several steps do, it is the first one.
    pub step: Option<u64>,
    /// Number of an earlier step of the same consumer, lower than `step`. This read could be submitted only when the
    /// reads of that step had ended. `None` if the read waited for nothing.
    pub after: Option<u64>,
}

impl Cause {
    /// Cause of a read with an unknown consumer.
    pub const UNKNOWN: Self = Self { consumer: "-", step: None, after: None };
}

/// A read that has ended.
pub struct Completion {
    /// The token passed to `submit`.
    pub token: u64,
    /// The buffer passed to `submit`. If the kernel failed such that it may still write to that buffer, the buffer is
    /// leaked and this one is empty.
    pub buffer: AlignedBuffer,
    /// Number of bytes transferred, including bytes that were read only for alignment, or the reason why the buffer
    /// was not filled. A read past the end of the file fails with `UnexpectedEof`.
    pub result: Result<u64, DeviceError>,
}

/// A file that is written from start to end. It may buffer up to [`WRITE_BUFFER_BYTES`](crate::WRITE_BUFFER_BYTES).
///
/// After an error, nothing more can be written, and the contents of the file are unknown: a system that failed to
/// make bytes durable may have dropped them from its cache. Dropping the value writes the buffered bytes and ignores
/// errors.
pub trait WriteFile: Send {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// If the system fails, for example because the disk is full. The error may be due to bytes that were appended
    /// earlier.
    fn append(&mut self, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Passes all appended bytes to the system. A reader that opens the file after that sees them, but they may be
    /// lost if the power fails.
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
