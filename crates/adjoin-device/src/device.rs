//! The face that every file access goes through.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::aligned::AlignedBuffer;
use crate::error::{DeviceError, Operation};

/// Files and folders, as the engine uses them. All offsets and lengths are in bytes.
pub trait Device: Send + Sync {
    /// How it reads: `io_uring`, `pread` or `simulated`.
    fn name(&self) -> &'static str;

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

    /// Opens a file that is there for writing behind its first `len` bytes; what it has behind those is cut off. A device need
    /// not know how.
    ///
    /// # Errors
    /// Where there is no such file, it is shorter or may not be written; `Unsupported` where the device does not know how.
    fn continue_file(&self, path: &Path, _len: u64) -> Result<Box<dyn WriteFile>, DeviceError> {
        Err(DeviceError::new(Operation::Create, path, io::ErrorKind::Unsupported.into()))
    }

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

    /// Removes a folder in which nothing is. A device that others write to at the same time does this in one step.
    ///
    /// # Errors
    /// Where there is none, something is in it, or the system refuses.
    fn remove_empty_folder(&self, path: &Path) -> Result<(), DeviceError> {
        if self.list(path)?.is_empty() {
            return self.remove_folder(path);
        }
        Err(DeviceError::new(Operation::RemoveFolder, path, io::ErrorKind::DirectoryNotEmpty.into()))
    }

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

    /// What lies at `path`, links followed; `None` where nothing does.
    ///
    /// # Errors
    /// Where the system does not let us look.
    fn kind(&self, path: &Path) -> Result<Option<FileKind>, DeviceError>;

    /// The names in a folder, sorted by their bytes.
    ///
    /// # Errors
    /// Where there is none or it may not be read.
    fn list(&self, folder: &Path) -> Result<Vec<OsString>, DeviceError>;

    /// Those of the names in a folder that are `wanted`, sorted by their bytes. A device on which folders are large holds no
    /// others.
    ///
    /// # Errors
    /// Where there is no such folder or it may not be read.
    fn list_only(&self, folder: &Path, wanted: &dyn Fn(&OsStr) -> bool) -> Result<Vec<OsString>, DeviceError> {
        Ok(self.list(folder)?.into_iter().filter(|name| wanted(name)).collect())
    }

    /// Takes the lock of a file, which is made where it is missing, unless somebody has it. Nobody else gets it, in this
    /// process or another, until what is returned is dropped or the process has ended, however it ended. The file says who
    /// has its lock. It may be removed by who holds the lock, and by nobody else.
    ///
    /// # Errors
    /// Where the folder is missing, or the file cannot be written.
    fn lock(&self, path: &Path) -> Result<Lock, DeviceError>;

    /// A queue that keeps up to `depth` reads in flight, 1 to 4096; other numbers are taken for the nearest of these.
    ///
    /// # Errors
    /// Where the system gives no threads for it.
    fn read_queue(&self, depth: usize) -> Result<Box<dyn ReadQueue>, DeviceError>;
}

/// What lies at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Bytes.
    File,
    /// Names.
    Folder,
    /// A pipe, a device or the like.
    Other,
}

/// What a device says of the contents of a file at a moment: where it says something else later, they have changed. Where
/// it says the same, they may have changed all the same, between two ticks of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    /// Length in bytes.
    pub len: u64,
    /// When it was written last, by the clock of the device, in nanoseconds; 0 where the device does not say.
    pub written_ns: i128,
    /// When its contents or its facts were changed last, in nanoseconds; 0 where the device does not say. No program can set
    /// it back, but to give the file another name or other rights changes it too.
    pub changed_ns: i128,
}

impl FileStamp {
    /// Whether the contents are those of another moment, as far as length and time of writing tell.
    #[must_use]
    pub fn has_contents_of(&self, other: &Self) -> bool {
        (self.len, self.written_ns) == (other.len, other.written_ns)
    }
}

/// What came of asking for a lock.
pub enum Lock {
    /// It is ours.
    Ours(HeldLock),
    /// Somebody else has it: who, in words.
    Others(String),
    /// There are no locks where this file lies; it is not made either.
    Unsupported,
}

/// A lock that is held until this is dropped.
pub struct HeldLock {
    _lock: Box<dyn Any + Send + Sync>,
}

impl HeldLock {
    /// Dropping `lock` gives it back.
    pub(crate) fn new(lock: impl Any + Send + Sync) -> Self {
        Self { _lock: Box::new(lock) }
    }
}

/// An open file, read at offsets, from any thread.
///
/// `Any`, so that the queue of a device knows the files of that device.
pub trait ReadFile: Any + Send + Sync {
    /// Length in bytes when it was opened.
    fn len(&self) -> u64;

    /// What the device says of its contents now.
    ///
    /// # Errors
    /// Where the system fails.
    fn stamp(&self) -> Result<FileStamp, DeviceError> {
        Ok(FileStamp { len: self.len(), written_ns: 0, changed_ns: 0 })
    }

    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether reads go past the page cache.
    fn is_direct(&self) -> bool;

    /// What offsets, lengths and addresses of a read must be multiples of so that it needs no copy: a power of two from
    /// 512 to 4096. An [`AlignedBuffer`] has such an address.
    fn alignment(&self) -> usize;

    /// Fills `buffer` from `offset` on. Returns the bytes that were transferred for it, alignment included.
    ///
    /// # Errors
    /// Where the system fails, or the file ends before the buffer is full.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError>;
}

/// Reads in flight, many at a time; their ends come in any order. Files of other devices are read as well, but while
/// [`submit`](Self::submit) waits.
///
/// Dropping it waits for the reads in flight, whose buffers belong to the system until then.
pub trait ReadQueue: Send {
    /// Starts to fill the whole of `buffer` from `offset` on. Waits for an earlier read where the queue is full.
    /// `cause` says for a trace why; no other device looks at it.
    ///
    /// What is not aligned as the file wants it is read through a copy, while `submit` waits.
    ///
    /// # Errors
    /// Where the read cannot be started at all. What happens to it later is said by its [`Completion`].
    fn submit(
        &mut self,
        token: u64,
        cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        buffer: AlignedBuffer,
    ) -> Result<(), DeviceError>;

    /// As [`submit`](Self::submit), but the read may start no earlier than with the next call of it or of
    /// [`wait`](Self::wait): reads that start together cost the processor less.
    ///
    /// # Errors
    /// As those of [`submit`](Self::submit).
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

    /// Waits until a read has ended; `None` where none is in flight.
    fn wait(&mut self) -> Option<Completion>;

    /// Reads that were submitted and not yet returned by [`wait`](Self::wait).
    fn in_flight(&self) -> usize;
}

/// Who asks for a read, for what, and what it waited for: enough to tell from a trace which reads may be in flight at the
/// same time on a device of another speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// Who asks: one word, such as `join`.
    pub consumer: &'static str,
    /// Number of the consumer's step that cannot begin before these bytes are there; of several, the first.
    pub step: Option<u64>,
    /// Number of the step of the same consumer whose reads had to end before this one could be asked for, lower than
    /// `step`; `None` where it waited for nothing.
    pub after: Option<u64>,
}

impl Cause {
    /// Where nobody says.
    pub const UNKNOWN: Self = Self { consumer: "-", step: None, after: None };
}

/// A read that has ended.
pub struct Completion {
    /// What its submission was called.
    pub token: u64,
    /// The buffer that was handed in. An empty one where the kernel failed in a way that leaves it unknown whether it
    /// still writes there; that memory is then given up.
    pub buffer: AlignedBuffer,
    /// Bytes transferred for it, alignment included, or why not all of the buffer was filled: a read that reaches past
    /// the end of its file is an `UnexpectedEof`.
    pub result: Result<u64, DeviceError>,
}

/// A file being written front to back. It may gather up to [`WRITE_BUFFER_BYTES`](crate::WRITE_BUFFER_BYTES).
///
/// After an error nothing more can be written: what the file then holds is unknown, and a system that failed to make
/// bytes durable may have forgotten that they were not. Dropping it writes what is left, without a word on failure.
pub trait WriteFile: Send {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// Where the system fails, as on a full disk; perhaps for what was appended earlier.
    fn append(&mut self, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Hands all that was appended to the system: whoever opens the file now sees it, a loss of power may take it.
    ///
    /// # Errors
    /// Where the system fails.
    fn flush(&mut self) -> Result<(), DeviceError>;

    /// Makes all that was appended durable.
    ///
    /// # Errors
    /// Where the system fails.
    fn sync(&mut self) -> Result<(), DeviceError>;
}
