//! A device that records the operations on another device.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::HEADER;
use super::parse::escape;
use crate::aligned::AlignedBuffer;
use crate::device::{Cause, Completion, Device, FileKind, FileStamp, Lock, ReadFile, ReadQueue, WriteFile};
use crate::error::{DeviceError, Operation};

/// Bytes of lines that are buffered before they are written to the file.
const BUFFER_BYTES: usize = 64 << 10;

/// Device that passes operations to another device and records each in a file of the machine. Holds 64 KiB of lines
/// and the names of the files in memory.
///
/// If the trace cannot be written, for example because the disk is full, the operations still proceed.
/// [`finish`](Self::finish) reports the error.
pub struct Recorder {
    device: Arc<dyn Device>,
    log: Arc<Log>,
}

struct Log {
    begun: Instant,
    lines: Mutex<Lines>,
}

struct Lines {
    out: BufWriter<File>,
    files: HashMap<PathBuf, u64>,
    error: Option<io::Error>,
}

/// Fields of a line that are known before the operation is performed.
#[derive(Clone, Copy)]
struct Asked {
    operation: Operation,
    file: u64,
    offset: u64,
    bytes: u64,
    cause: Cause,
}

impl Asked {
    /// Creates the fields of an operation on a whole file or folder.
    fn of_whole(operation: Operation, file: u64) -> Self {
        Self { operation, file, offset: 0, bytes: 0, cause: Cause::UNKNOWN }
    }
}

impl Recorder {
    /// Creates a recorder of the operations on `device`. Writes the trace to a file at `trace`, which is replaced if
    /// it exists.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(device: Arc<dyn Device>, trace: &Path) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, File::create(trace)?);
        writeln!(out, "{HEADER}")?;
        let lines = Lines { out, files: HashMap::new(), error: None };
        Ok(Self { device, log: Arc::new(Log { begun: Instant::now(), lines: Mutex::new(lines) }) })
    }

    /// Writes the buffered lines to the file. Recording continues after that.
    ///
    /// # Errors
    /// If a line could not be written, now or earlier. The trace is then incomplete.
    pub fn finish(&self) -> io::Result<()> {
        let mut lines = self.log.lock();
        match lines.error.take() {
            Some(error) => Err(error),
            None => lines.out.flush(),
        }
    }

    /// Performs an operation that has a path, and records it.
    fn measure<R>(
        &self,
        operation: Operation,
        path: &Path,
        work: impl FnOnce(&dyn Device) -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        let file = self.log.number(path);
        self.log.measure(Asked::of_whole(operation, file), || work(&*self.device))
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of a file. Writes a line with its name if this is its first use.
    fn number(&self, path: &Path) -> u64 {
        let mut lines = self.lock();
        let next = lines.files.len() as u64;
        if let Some(number) = lines.files.get(path) {
            return *number;
        }
        lines.files.insert(path.to_owned(), next);
        lines.write(&format!("file {next} {}", escape(path)));
        next
    }

    fn measure<R>(&self, asked: Asked, work: impl FnOnce() -> Result<R, DeviceError>) -> Result<R, DeviceError> {
        let start = self.begun.elapsed();
        let done = work();
        self.write(asked, start, done.is_ok(), None);
        done
    }

    fn write(&self, asked: Asked, start: Duration, ok: bool, to: Option<u64>) {
        let Asked { operation, file, offset, bytes, cause } = asked;
        let taken = self.begun.elapsed() - start;
        let outcome = if ok { "ok" } else { "failed" };
        let step = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let why = format!("{} {} {}", cause.consumer, step(cause.step), step(cause.after));
        let to = to.map(|to| format!(" {to}")).unwrap_or_default();
        let (operation, start, taken) = (operation.word(), start.as_nanos(), taken.as_nanos());
        self.lock().write(&format!("{operation} {file} {offset} {bytes} {start} {taken} {outcome} {why}{to}"));
    }
}

impl Lines {
    /// Writes a line. Does nothing if an earlier line could not be written.
    fn write(&mut self, line: &str) {
        if self.error.is_none() {
            self.error = writeln!(self.out, "{line}").err();
        }
    }
}

impl Device for Recorder {
    fn name(&self) -> &'static str {
        self.device.name()
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>, DeviceError> {
        let file = self.measure(Operation::Open, path, |device| device.open(path))?;
        Ok(Arc::new(RecordedFile { file, number: self.log.number(path), log: self.log.clone() }))
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, DeviceError> {
        let file = self.measure(Operation::Create, path, |device| device.create(path))?;
        Ok(Box::new(RecordedWriter { file, number: self.log.number(path), offset: 0, log: self.log.clone() }))
    }

    fn create_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.measure(Operation::CreateFolder, path, |device| device.create_folder(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DeviceError> {
        let (file, new) = (self.log.number(from), self.log.number(to));
        let start = self.log.begun.elapsed();
        let done = self.device.rename(from, to);
        self.log.write(Asked::of_whole(Operation::Rename, file), start, done.is_ok(), Some(new));
        done
    }

    fn remove(&self, path: &Path) -> Result<(), DeviceError> {
        self.measure(Operation::Remove, path, |device| device.remove(path))
    }

    fn remove_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.measure(Operation::RemoveFolder, path, |device| device.remove_folder(path))
    }

    fn remove_empty_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.measure(Operation::RemoveFolder, path, |device| device.remove_empty_folder(path))
    }

    fn sync_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.measure(Operation::SyncFolder, path, |device| device.sync_folder(path))
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, DeviceError> {
        self.measure(Operation::FreeSpace, path, |device| device.free_bytes(path))
    }

    fn kind(&self, path: &Path) -> Result<Option<FileKind>, DeviceError> {
        self.measure(Operation::Kind, path, |device| device.kind(path))
    }

    fn list(&self, folder: &Path) -> Result<Vec<OsString>, DeviceError> {
        self.measure(Operation::List, folder, |device| device.list(folder))
    }

    fn list_only(&self, folder: &Path, wanted: &dyn Fn(&OsStr) -> bool) -> Result<Vec<OsString>, DeviceError> {
        self.measure(Operation::List, folder, |device| device.list_only(folder, wanted))
    }

    fn reads_object_stores(&self) -> bool {
        self.device.reads_object_stores()
    }

    fn list_below(&self, folder: &Path) -> Result<Vec<PathBuf>, DeviceError> {
        self.measure(Operation::List, folder, |device| device.list_below(folder))
    }

    fn lock(&self, path: &Path) -> Result<Lock, DeviceError> {
        self.measure(Operation::Lock, path, |device| device.lock(path))
    }

    fn read_queue(&self, depth: usize) -> Result<Box<dyn ReadQueue>, DeviceError> {
        let queue = self.device.read_queue(depth)?;
        Ok(Box::new(RecordedQueue { queue, log: self.log.clone(), pending: HashMap::new(), next: 0 }))
    }
}

struct RecordedFile {
    file: Arc<dyn ReadFile>,
    number: u64,
    log: Arc<Log>,
}

impl ReadFile for RecordedFile {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn stamp(&self) -> Result<FileStamp, DeviceError> {
        self.file.stamp()
    }

    // `read_ahead` is not passed on. Thus each read is recorded when the engine requests it, and with its own offset
    // and length.
    fn is_remote(&self) -> bool {
        self.file.is_remote()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn alignment(&self) -> usize {
        self.file.alignment()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError> {
        let (bytes, cause) = (buffer.len() as u64, Cause::UNKNOWN);
        let asked = Asked { operation: Operation::Read, file: self.number, offset, bytes, cause };
        self.log.measure(asked, || self.file.read_at(offset, buffer))
    }
}

struct RecordedWriter {
    file: Box<dyn WriteFile>,
    number: u64,
    offset: u64,
    log: Arc<Log>,
}

impl RecordedWriter {
    fn measure(
        &mut self,
        operation: Operation,
        bytes: u64,
        work: impl FnOnce(&mut dyn WriteFile) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let asked = Asked { operation, file: self.number, offset: self.offset, bytes, cause: Cause::UNKNOWN };
        self.offset += bytes;
        self.log.measure(asked, || work(&mut *self.file))
    }
}

impl WriteFile for RecordedWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<(), DeviceError> {
        self.measure(Operation::Write, bytes.len() as u64, |file| file.append(bytes))
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.measure(Operation::Flush, 0, |file| file.flush())
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.measure(Operation::Sync, 0, |file| file.sync())
    }
}

/// Queue that submits each read under a number of its own as token, since the caller's tokens may repeat.
struct RecordedQueue {
    queue: Box<dyn ReadQueue>,
    log: Arc<Log>,
    pending: HashMap<u64, PendingRead>,
    next: u64,
}

struct PendingRead {
    token: u64,
    /// `None` if the file was not opened through this recorder. Such a read is not recorded.
    asked: Option<Asked>,
    start: Duration,
}

/// A method of [`ReadQueue`] that submits a read.
type Submit =
    fn(&mut (dyn ReadQueue + 'static), u64, Cause, &Arc<dyn ReadFile>, u64, AlignedBuffer) -> Result<(), DeviceError>;

impl RecordedQueue {
    fn record(
        &mut self,
        submit: Submit,
        token: u64,
        cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        buffer: AlignedBuffer,
    ) -> Result<(), DeviceError> {
        let any: &dyn Any = &**file;
        let recorded = any.downcast_ref::<RecordedFile>();
        let bytes = buffer.len() as u64;
        let asked = recorded.map(|file| Asked { operation: Operation::Read, file: file.number, offset, bytes, cause });
        let start = self.log.begun.elapsed();
        let file = recorded.map_or(file, |recorded| &recorded.file);
        submit(&mut *self.queue, self.next, cause, file, offset, buffer)?;
        self.pending.insert(self.next, PendingRead { token, asked, start });
        self.next += 1;
        Ok(())
    }
}

impl ReadQueue for RecordedQueue {
    fn submit(
        &mut self,
        token: u64,
        cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        buffer: AlignedBuffer,
    ) -> Result<(), DeviceError> {
        self.record(<dyn ReadQueue>::submit, token, cause, file, offset, buffer)
    }

    fn submit_later(
        &mut self,
        token: u64,
        cause: Cause,
        file: &Arc<dyn ReadFile>,
        offset: u64,
        buffer: AlignedBuffer,
    ) -> Result<(), DeviceError> {
        self.record(<dyn ReadQueue>::submit_later, token, cause, file, offset, buffer)
    }

    fn wait(&mut self) -> Option<Completion> {
        let done = self.queue.wait()?;
        let PendingRead { token, asked, start } =
            self.pending.remove(&done.token).expect("submitted under this number");
        if let Some(asked) = asked {
            self.log.write(asked, start, done.result.is_ok(), None);
        }
        Some(Completion { token, ..done })
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }
}
