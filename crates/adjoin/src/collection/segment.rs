//! A file of the log: a header with the file's position in the log, followed by records (`frame.rs`).
//!
//! A file is named after its first record, and ends where the next file begins. If there are more bytes after that
//! point, they were not durable when the next file was created, and were copied to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{DeviceError, Operation, ReadFile, Reservation, WriteFile};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::change::Change;
use super::frame::{ALIGNMENT, HEAD_BYTES, Head};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::store::format::checksum;

/// Version of the log format.
pub(super) const LOG_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"ADJOINLG";
/// Name of a log file before it becomes part of the log. A leftover file of this name is overwritten.
pub(super) const DRAFT: &str = "log.partial";
/// Bytes per read of a file, unless a record is larger.
const PIECE_BYTES: usize = 1 << 20;
/// Memory in bytes for reading a file, unless a record is larger.
pub(super) const READING_BYTES: u64 = PIECE_BYTES as u64;
/// Bytes per read when rows are counted.
const COUNTING_BYTES: u64 = 64 << 10;
/// Bytes per read when a file is compared with zeros.
const ZEROS_TOGETHER: usize = 4 << 10;

/// Header at the start of a file.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    version: u32,
    zero: u32,
    salt: u64,
    first: u64,
    previous: u64,
    zeros: [u64; 2],
    /// XXH3 of the preceding bytes.
    checksum: u64,
}

const HEADER_BYTES: usize = size_of::<Header>();

/// Position between two records of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    /// Number of the record after it.
    pub(super) next: u64,
    /// Checksum of the record before it; 0 before the first.
    pub(super) previous: u64,
}

impl Point {
    /// Position before the first record of the log.
    pub(super) const START: Self = Self { next: 1, previous: 0 };
}

/// Start of the valid records of a log.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogStart {
    /// Seed of the checksums.
    pub(super) salt: u64,
    /// Number of the first record. Earlier ones are in the long-term index.
    pub(super) first: u64,
}

/// A point of the log, and its byte offset in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilePoint {
    pub(super) point: Point,
    pub(super) offset: u64,
}

/// Number of rows in the records of a log.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LogRows {
    /// Number of rows that the records insert or update.
    pub(super) rows: u64,
    /// Bytes of the largest record.
    pub(super) record_bytes_max: u64,
}

/// A record and its bytes in the file.
pub(super) struct Frame<'a> {
    pub(super) head: Head,
    pub(super) bytes: &'a [u8],
    pub(super) payload: &'a [u8],
}

/// Position and condition of the end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// The point after the last record of the file.
    pub(super) point: Point,
    /// Records up to this number are known to be durable.
    pub(super) durable: u64,
    /// Total bytes of the header and the records.
    pub(super) bytes: u64,
    /// Whether bytes of a torn record follow the last record.
    pub(super) is_torn: bool,
    /// Bytes of memory that reading the file took.
    pub(super) memory_bytes: u64,
}

/// Returns the name of the file that begins with record `first`.
pub(super) fn file_name(first: u64) -> String {
    format!("log-{first:016x}.bin")
}

/// Returns the number of the first record of the file with this name; `None` if it is not the name of a log file.
pub(super) fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-")?.strip_suffix(".bin")?;
    let first = u64::from_str_radix(digits, 16).ok()?;
    (name == file_name(first)).then_some(first)
}

/// An open log file.
pub(super) struct Segment {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    salt: u64,
    /// The point before its first record.
    pub(super) start: Point,
}

impl Segment {
    /// Opens the file that begins with record `first`, and checks its header. Returns `None` if there is no valid
    /// header and no byte after it, or if the file consists of zeros. A crash can leave such a file, and so can a
    /// program that copies files.
    ///
    /// # Errors
    /// If the device fails, or the header is invalid.
    pub(super) fn open(context: &Context, folder: &Path, salt: u64, first: u64) -> Result<Option<Self>> {
        let path = folder.join(file_name(first));
        let file = context.device.open(&path)?;
        let mut bytes = [0; HEADER_BYTES];
        if file.len() >= HEADER_BYTES as u64 {
            file.read_at(0, &mut bytes)?;
        }
        let header = Header::read_from_bytes(&bytes).expect("the array has the bytes of a header");
        let is_sound = checksum(&bytes[..HEADER_BYTES - size_of::<u64>()]) == header.checksum && header.magic == MAGIC;
        // The version is checked before the other fields, so that a file of a newer version is not reported as
        // damaged.
        if is_sound && header.version > LOG_VERSION {
            return Err(Error::input(format!(
                "{} has log version {}, but this adjoin reads versions up to {LOG_VERSION}; upgrade adjoin",
                path.display(),
                header.version
            )));
        }
        if !is_sound && (file.len() <= HEADER_BYTES as u64 || is_zeros(&*file)?) {
            return Ok(None);
        }
        if !is_sound || header.salt != salt || header.first != first {
            return Err(no_header(&path));
        }
        let start = Point { next: first, previous: header.previous };
        Ok(Some(Self { path, file, salt, start }))
    }

    /// Returns the bytes of the file, including a torn record.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file.len()
    }

    /// Returns the open file.
    pub(super) fn file(&self) -> &Arc<dyn ReadFile> {
        &self.file
    }

    /// Returns the point before the first record.
    pub(super) fn begin(&self) -> FilePoint {
        FilePoint { point: self.start, offset: HEADER_BYTES as u64 }
    }

    /// Calls `take` with all records from the point `from` up to `until`, the start of the next file. If `until` is
    /// `None`, this is the last file, and reading stops at its end or at a torn record.
    ///
    /// # Errors
    /// If the device or `take` fails, memory is too small for a record, or a record that was durable is damaged.
    pub(super) fn read(
        &self,
        context: &Context,
        from: FilePoint,
        until: Option<Point>,
        take: &mut dyn FnMut(Frame<'_>) -> Result<()>,
    ) -> Result<End> {
        let mut window = Window::new(context, &*self.file)?;
        let FilePoint { point, offset } = from;
        let mut end = End { point, durable: 0, bytes: offset, is_torn: false, memory_bytes: 0 };
        while until.is_none_or(|until| end.point.next < until.next) {
            let Some(frame) = self.frame_at(&mut window, end.bytes, end.point)? else { break };
            let (head, bytes) = (frame.head, frame.bytes.len() as u64);
            take(frame)?;
            end.point = Point { next: head.sequence + 1, previous: head.checksum };
            end.durable = head.durable;
            end.bytes += bytes;
        }
        match until {
            // A next file exists, and it is created only once all records of this file are durable.
            Some(until) if end.point == until => end.durable = until.next - 1,
            Some(_) => {
                let why = format!("the record at byte {} is damaged", end.bytes);
                return Err(damaged(&self.path, &why));
            }
            None => self.check_cut(&mut window, end)?,
        }
        end.is_torn = end.bytes < self.file.len();
        end.memory_bytes = window.memory.bytes();
        Ok(end)
    }

    /// Counts the rows in the file without verifying the records.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn count_rows(&self) -> Result<LogRows> {
        let (mut counted, mut at) = (LogRows::default(), HEADER_BYTES as u64);
        let (mut start, mut piece) = (at, Vec::new());
        let record_start = HEAD_BYTES + Change::HEAD_BYTES;
        while at + record_start as u64 <= self.file.len() {
            if at + record_start as u64 > start + piece.len() as u64 {
                piece.resize(COUNTING_BYTES.min(self.file.len() - at) as usize, 0);
                self.file.read_at(at, &mut piece)?;
                start = at;
            }
            let bytes = &piece[(at - start) as usize..];
            let Some(head) = Head::of(bytes) else { break };
            counted.rows += Change::rows_of(&bytes[HEAD_BYTES..]);
            let record = head.frame_bytes() as u64;
            counted.record_bytes_max = counted.record_bytes_max.max(record);
            at += record;
        }
        Ok(counted)
    }

    /// Returns the record at a byte offset; `None` if no valid record that follows `point` is there.
    fn frame_at<'w>(&self, window: &'w mut Window<'_>, offset: u64, point: Point) -> Result<Option<Frame<'w>>> {
        let Some(head) = window.get(offset, HEAD_BYTES)?.and_then(Head::of) else { return Ok(None) };
        // A record of an earlier log or file may be at this offset; the chain of checksums excludes them.
        if head.sequence != point.next || head.previous != point.previous {
            return Ok(None);
        }
        let Some(bytes) = window.get(offset, head.frame_bytes())? else { return Ok(None) };
        Ok(head.payload(self.salt, bytes).map(|payload| Frame { head, bytes, payload }))
    }

    /// Checks that the last file ends because of a loss of power, not because of damage. A loss of power may keep any
    /// bytes of the records that were being written. None of these records states that another one of them is durable.
    /// So if a record after the end states that a lost record was durable, the file is damaged.
    fn check_cut(&self, window: &mut Window<'_>, end: End) -> Result<()> {
        let lost = end.point.next;
        // The length field of a damaged record cannot be trusted, so the next record may begin at any aligned offset.
        for at in (end.bytes..self.file.len()).step_by(ALIGNMENT) {
            let Some(head) = window.get(at, HEAD_BYTES)?.and_then(Head::of) else { continue };
            if head.durable < lost {
                continue;
            }
            let frame = window.get(at, head.frame_bytes())?;
            if frame.is_some_and(|frame| head.payload(self.salt, frame).is_some()) {
                let (from, by) = (end.bytes, head.sequence);
                let why = format!("record {lost} at byte {from} is damaged: record {by} at byte {at} follows it");
                return Err(damaged(&self.path, &why));
            }
        }
        Ok(())
    }
}

/// Returns whether all bytes of a file are zero.
fn is_zeros(file: &dyn ReadFile) -> Result<bool> {
    let mut piece = vec![0; ZEROS_TOGETHER];
    for start in (0..file.len()).step_by(ZEROS_TOGETHER) {
        let some = &mut piece[..(file.len() - start).min(ZEROS_TOGETHER as u64) as usize];
        file.read_at(start, some)?;
        if some.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the error of a log file whose header is damaged.
pub(super) fn no_header(path: &Path) -> Error {
    damaged(path, "its header is damaged")
}

/// Returns the error of a damaged log file.
fn damaged(path: &Path, why: &str) -> Error {
    Error::corrupt(format!("{}: {why}; restore the folder from a backup", path.display()))
}

/// Buffered reader of a file.
struct Window<'a> {
    context: &'a Context,
    file: &'a dyn ReadFile,
    memory: Reservation,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(context: &'a Context, file: &'a dyn ReadFile) -> Result<Self> {
        let memory = context.reserve_between_runs(Self::memory_bytes(), PURPOSE)?;
        Ok(Self { context, file, memory, start: 0, bytes: Vec::new() })
    }

    const fn memory_bytes() -> u64 {
        PIECE_BYTES as u64
    }

    /// Returns `len` bytes from `offset`; `None` if the file has fewer.
    fn get(&mut self, offset: u64, len: usize) -> Result<Option<&[u8]>> {
        let left = self.file.len().saturating_sub(offset);
        if left < len as u64 {
            return Ok(None);
        }
        if offset < self.start || offset + len as u64 > self.start + self.bytes.len() as u64 {
            let piece = left.min(PIECE_BYTES.max(len) as u64);
            let more = piece.saturating_sub(self.memory.bytes());
            self.memory.join(self.context.reserve_between_runs(more, PURPOSE)?);
            self.bytes.resize(piece as usize, 0);
            self.file.read_at(offset, &mut self.bytes)?;
            self.start = offset;
        }
        Ok(Some(&self.bytes[(offset - self.start) as usize..][..len]))
    }
}

const PURPOSE: &str = "reading the log";

/// Failure of a write to the log.
pub(super) struct Failure {
    pub(super) error: Error,
    /// Whether a sync failed, after which the content of the disk is unknown.
    pub(super) is_final: bool,
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let is_final = matches!(error.operation, Operation::Sync | Operation::SyncFolder);
        Self { is_final, error: error.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, is_final: false }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

/// A log file, and the number of its bytes that are valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tail {
    first: u64,
    bytes: u64,
}

impl Tail {
    /// Cuts the file back to its valid bytes, and opens it for appending.
    ///
    /// # Errors
    /// If the device fails. The failure is final if the device cannot truncate files.
    pub(super) fn reopen(self, context: &Context, folder: &Path) -> std::result::Result<SegmentWriter, Failure> {
        let Self { first, bytes } = self;
        match context.device.continue_file(&folder.join(file_name(first)), bytes) {
            Ok(file) => Ok(SegmentWriter { file, first, bytes }),
            Err(error) => {
                let is_final = error.source.kind() == std::io::ErrorKind::Unsupported;
                Err(Failure { error: error.into(), is_final })
            }
        }
    }
}

/// A log file that is being written.
pub(super) struct SegmentWriter {
    file: Box<dyn WriteFile>,
    first: u64,
    /// Bytes of the file.
    pub(super) bytes: u64,
}

impl SegmentWriter {
    /// Creates a draft file that begins at a point of the log. [`Self::place`] makes it part of the log.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn draft(context: &Context, folder: &Path, salt: u64, start: Point) -> Result<Self> {
        let mut file = context.device.create(&folder.join(DRAFT))?;
        let Point { next: first, previous } = start;
        let (version, zero, zeros) = (LOG_VERSION, 0, [0; 2]);
        let mut header = Header { magic: MAGIC, version, zero, salt, first, previous, zeros, checksum: 0 };
        header.checksum = checksum(&header.as_bytes()[..HEADER_BYTES - size_of::<u64>()]);
        file.append(header.as_bytes())?;
        Ok(Self { file, first, bytes: HEADER_BYTES as u64 })
    }

    /// Syncs the draft and renames it, so that it becomes part of the log. Replaces a file that begins with the same
    /// record.
    ///
    /// # Errors
    /// If the device fails. A failed sync of the draft loses nothing, so it is not final. A failed rename is final,
    /// since the file may or may not be part of the log afterwards.
    pub(super) fn place(&mut self, context: &Context, folder: &Path) -> std::result::Result<(), Failure> {
        // Converted to an error that is not final: the draft is not part of the log yet.
        self.file.sync().map_err(Error::from)?;
        let device = &context.device;
        let placed = device.rename(&folder.join(DRAFT), &folder.join(file_name(self.first)));
        let placed = placed.and_then(|()| device.sync_folder(folder));
        placed.map_err(|error| Failure { error: error.into(), is_final: true })
    }

    /// Returns the name and the current length of the file, as the valid tail.
    pub(super) fn tail(&self) -> Tail {
        Tail { first: self.first, bytes: self.bytes }
    }

    /// Appends records.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn append(&mut self, frames: &[u8]) -> Result<()> {
        self.bytes += frames.len() as u64;
        Ok(self.file.append(frames)?)
    }

    /// Writes all records to the operating system, and syncs them if `durable`.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn hand_over(&mut self, durable: bool) -> std::result::Result<(), Failure> {
        let handed = if durable { self.file.sync() } else { self.file.flush() };
        Ok(handed?)
    }
}
