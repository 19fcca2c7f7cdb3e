//! The redo log: each write is durable in it before it is acknowledged.
//!
//! Writers append records to a buffer one after the other. Then one of them writes the records of all waiting threads
//! and syncs them (group commit, like the leader and followers in RocksDB's write path).
//!
//! If a write to the file fails, as on a full disk, the records of its group and all later ones fail. The file is cut
//! back to the last complete record, and later writes continue from there. After a failed sync, the content of the disk
//! is unknown, so all later writes fail too.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use adjoin_device::{Reservation, WRITE_BUFFER_BYTES};
use serde::Deserialize;

use super::frame::{RecordLinks, frame_bytes, push_frame};
use super::log_files::LogContents;
use super::segment::{Failure, Point, SegmentWriter, Tail};
use super::sync::{Condvar, Mutex, MutexGuard, lock};
use crate::base::choice::choices;
use crate::base::context::Context;
use crate::base::error::{Error, Result};

/// Bytes of waiting records from which on further writers wait.
pub(super) const WAITING_BYTES_MAX: usize = 2 << 20;
/// Size from which on a log file is followed by the next.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes that may be written but not synced if no writer waits for a sync.
const UNSYNCED_BYTES_MAX: u64 = 16 << 20;

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "String")]
pub enum Durability {
    /// After a sync: neither a crash of the process nor a loss of power can lose the write.
    #[default]
    Group,
    /// After the write to the operating system: it survives a crash of the process, but perhaps not a loss of power.
    Buffered,
}

choices! { "the durability" => Durability { Group = "group", Buffered = "buffered" } }

impl TryFrom<String> for Durability {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

/// The log of a collection that is open for writing.
pub(super) struct Log {
    context: Context,
    folder: PathBuf,
    salt: u64,
    state: Mutex<State>,
    /// Two signals, for groups of even and of odd number, that a group of records was written or has failed. When a
    /// group ends, all of its threads are woken, but only one thread of the next group, which then writes that group.
    moved: [Condvar; 2],
    /// Bytes written to files since opening.
    written_bytes: AtomicU64,
    _memory: Reservation,
}

/// An appended record, for the thread that waits for its commit.
#[derive(Clone)]
pub(super) struct Appended {
    /// Sequence number. If the record is dropped, a later one gets the same number.
    pub(super) sequence: u64,
    era: Arc<FailureEpoch>,
}

/// The time between two failures. The failure that ends it sets it once.
pub(super) type FailureEpoch = OnceLock<Cut>;

/// Records that were dropped because they could not be written.
pub(super) struct Cut {
    /// The last record that was written before.
    written: u64,
    why: String,
}

struct State {
    /// Records that no thread has taken to the disk yet.
    waiting: Vec<u8>,
    /// The point after the last appended record.
    end: Point,
    /// Number of the group of waiting records.
    group: usize,
    /// Last record of the group before, which has been or is being written; `u64::MAX` until the records of that group
    /// are taken.
    taken: u64,
    /// The point after the records that were written to the operating system. Records up to `durable` are durable.
    written: Point,
    durable: u64,
    unsynced_bytes: u64,
    file: File,
    /// Number of syncs.
    syncs: u64,
    era: Arc<FailureEpoch>,
    /// Records after this one were dropped, and their changes in memory are not undone yet. Until then, nothing is
    /// appended.
    undo_after: Option<u64>,
    /// Why the last write failed, if none has succeeded since.
    failure: Option<String>,
    /// Why nothing can be written any more.
    failed: Option<String>,
}

/// Destination of records.
enum File {
    /// The log was not written to since opening. The context has reserved memory for reading the last file again.
    Unopened(Box<(LogContents, Context)>),
    Open(SegmentWriter),
    /// A write failed: the bytes after the tail must be cut off.
    Cut(Tail),
    /// A thread is writing to it.
    Taken,
}

/// The right to write to the log's file. If its thread ends before it returns the file, the log has failed, and all
/// waiting threads are woken.
struct Turn<'a> {
    log: &'a Log,
    is_over: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let why = "the thread that wrote it ended".to_owned();
            self.log.drop_unwritten(&mut lock(&self.log.state), why, true);
        }
    }
}

impl Log {
    /// Creates a log that continues after `found`.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(super) fn new(context: &Context, folder: &Path, salt: u64, found: LogContents) -> Result<Self> {
        let memory = context.reserve(Self::memory_bytes(), PURPOSE)?;
        // Reserved now, so that the first write does not wait for the memory of a search.
        let reading = context.with_reserved(found.resuming_bytes(), PURPOSE)?;
        let (end, durable) = (found.point, found.durable);
        let taken = found.sequence();
        let file = File::Unopened(Box::new((found, reading)));
        let (waiting, unsynced_bytes, syncs, written, group) = (Vec::new(), 0, 0, end, 1);
        let (era, undo_after, failure, failed) = (Arc::default(), None, None, None);
        let state = State {
            waiting,
            end,
            group,
            taken,
            written,
            durable,
            unsynced_bytes,
            file,
            syncs,
            era,
            undo_after,
            failure,
            failed,
        };
        let (context, folder) = (context.clone(), folder.to_owned());
        let (state, moved, written_bytes) = (Mutex::new(state), Default::default(), AtomicU64::new(0));
        Ok(Self { context, folder, salt, state, moved, written_bytes, _memory: memory })
    }

    /// Returns the bytes that a log holds: records being written, records waiting, and a file's buffer.
    pub(super) const fn memory_bytes() -> u64 {
        (2 * WAITING_BYTES_MAX + WRITE_BUFFER_BYTES) as u64
    }

    /// Appends a record. Waits if too many bytes are waiting for the disk. Returns `None` if the changes of dropped
    /// records in memory must be undone first.
    ///
    /// # Errors
    /// If the log has failed for good.
    pub(super) fn append(&self, payload: &[u8]) -> Result<Option<Appended>> {
        let mut state = lock(&self.state);
        let more = frame_bytes(payload.len());
        loop {
            state.check(&self.folder)?;
            if state.undo_after.is_some() {
                return Ok(None);
            }
            // A record above the limit is appended if it is alone; it would wait forever otherwise.
            if state.waiting.len() + more <= WAITING_BYTES_MAX || state.waiting.is_empty() {
                break;
            }
            // A write to the operating system suffices to empty the buffer. Syncs are left to threads that asked for
            // one.
            let taken = state.taken;
            state = self.commit_more(state, taken, Durability::Buffered);
        }
        let (end, durable) = (state.end, state.durable);
        // Grown by hand, so that no more is reserved than the waiting limit, or a single larger record.
        let needed = state.waiting.len() + more;
        if needed > state.waiting.capacity() {
            let capacity = needed.max((2 * needed).min(WAITING_BYTES_MAX));
            let more = capacity - state.waiting.len();
            state.waiting.reserve_exact(more);
        }
        let links = RecordLinks { sequence: end.next, previous: end.previous, durable };
        let previous = push_frame(&mut state.waiting, self.salt, links, payload);
        state.end = Point { next: end.next + 1, previous };
        Ok(Some(state.appended(end.next)))
    }

    /// Returns the last record.
    pub(super) fn last(&self) -> Appended {
        let state = lock(&self.state);
        state.appended(state.end.next - 1)
    }

    /// Waits until a record is as durable as `durability` asks, and writes or syncs it unless another thread does.
    ///
    /// # Errors
    /// If the record could not be written: it was dropped, with all later ones. Or if it was written, but could not be
    /// made durable: it is kept.
    pub(super) fn commit(&self, record: &Appended, durability: Durability) -> Result<()> {
        let mut state = lock(&self.state);
        let era = state.era.clone();
        loop {
            match record.era.get() {
                Some(cut) if cut.written < record.sequence => {
                    state.check(&self.folder)?;
                    return Err(not_written(&self.folder, &cut.why));
                }
                _ if state.has(record.sequence, durability) => return Ok(()),
                _ => {}
            }
            state.check(&self.folder)?;
            // One attempt suffices: each further one may fail for the same reason.
            if let Some(cut) = era.get() {
                return Err(not_written(&self.folder, &cut.why));
            }
            state = self.commit_more(state, record.sequence, durability);
        }
    }

    /// Makes all records durable; returns the number of the last.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub(super) fn flush(&self) -> Result<u64> {
        let last = self.last();
        self.commit(&last, Durability::Group)?;
        Ok(last.sequence)
    }

    /// Returns the number of the last record that was written to the operating system.
    pub(super) fn written(&self) -> u64 {
        lock(&self.state).written.next - 1
    }

    /// Returns the record after which all were dropped, if their changes in memory are not undone yet.
    pub(super) fn undo_after(&self) -> Option<u64> {
        lock(&self.state).undo_after
    }

    /// Notes that the changes of dropped records are undone.
    pub(super) fn undone(&self) {
        lock(&self.state).undo_after = None;
    }

    /// Returns why the last write failed, or why all further ones will; `None` if one has succeeded since.
    pub(super) fn failure(&self) -> Option<String> {
        let state = lock(&self.state);
        state.failed.clone().or_else(|| state.failure.clone())
    }

    /// Makes all records durable, and begins a new file with the next one. The caller must keep other threads from
    /// appending.
    ///
    /// # Errors
    /// If the log or the new file cannot be written.
    pub(super) fn begin_file(&self) -> Result<()> {
        self.flush()?;
        let mut state = lock(&self.state);
        let file = loop {
            state.check(&self.folder)?;
            match std::mem::replace(&mut state.file, File::Taken) {
                File::Taken => {
                    let taken = state.taken;
                    state = self.wait(state, taken);
                }
                file => break file,
            }
        };
        let end = state.end;
        drop(state);
        let mut turn = Turn { log: self, is_over: false };
        let begun = self.new_file(end);
        let mut state = lock(&self.state);
        turn.is_over = true;
        match begun {
            Ok(writer) => self.put_back(&mut state, File::Open(writer)),
            // The log continues with the current file.
            Err(Failure { error, is_final: false }) => {
                self.put_back(&mut state, file);
                return Err(error);
            }
            Err(Failure { error, is_final: true }) => {
                self.drop_unwritten(&mut state, error.to_string(), true);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Creates an empty log file for the records after `start`.
    fn new_file(&self, start: Point) -> std::result::Result<SegmentWriter, Failure> {
        let mut writer = SegmentWriter::draft(&self.context, &self.folder, self.salt, start)?;
        writer.place(&self.context, &self.folder)?;
        self.count(writer.bytes);
        Ok(writer)
    }

    fn count(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the file, wakes all threads of the group that was written, and one of the next group.
    fn put_back(&self, state: &mut State, file: File) {
        let (next, ended) = (&self.moved[state.group % 2], &self.moved[(state.group + 1) % 2]);
        state.file = file;
        ended.notify_all();
        next.notify_one();
    }

    /// Drops all records that were not written, and wakes all waiting threads.
    fn drop_unwritten(&self, state: &mut State, why: String, is_final: bool) {
        let written = state.written.next - 1;
        let era = std::mem::take(&mut state.era);
        // No other thread can end the epoch: the state is locked.
        let _ = era.set(Cut { written, why: why.clone() });
        state.waiting = Vec::new();
        // Later records get the numbers of the dropped ones, since records follow each other without gaps.
        (state.end, state.taken) = (state.written, written);
        state.undo_after = Some(written);
        if is_final {
            state.failed = Some(why);
        } else {
            state.failure = Some(why);
        }
        self.moved.iter().for_each(Condvar::notify_all);
    }

    /// Waits until the group of record `sequence` was written, or until this thread may write it.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, sequence: u64) -> MutexGuard<'a, State> {
        let group = if sequence <= state.taken { state.group + 1 } else { state.group };
        self.moved[group % 2].wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes written to files since opening.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of syncs.
    pub(super) fn syncs(&self) -> u64 {
        lock(&self.state).syncs
    }

    /// Returns the current failure epoch. Records read from a file are still part of the log unless the epoch has ended
    /// since.
    pub(super) fn era(&self) -> Arc<FailureEpoch> {
        lock(&self.state).era.clone()
    }

    /// Writes the waiting records, or waits for the thread that is writing.
    fn commit_more<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        sequence: u64,
        durability: Durability,
    ) -> MutexGuard<'a, State> {
        let file = std::mem::replace(&mut state.file, File::Taken);
        if matches!(file, File::Taken) {
            return self.wait(state, sequence);
        }
        let mut turn = Turn { log: self, is_over: false };
        // A record that is appended before the frames are taken belongs to this group.
        (state.group, state.taken) = (state.group + 1, u64::MAX);
        if durability == Durability::Group {
            // Writers woken by the last group may be about to append: then one sync serves them too.
            drop(state);
            std::thread::yield_now();
            state = lock(&self.state);
        }
        let (frames, end) = (std::mem::take(&mut state.waiting), state.end);
        state.taken = end.next - 1;
        let unsynced_bytes = state.unsynced_bytes + frames.len() as u64;
        let syncs = durability == Durability::Group || unsynced_bytes >= UNSYNCED_BYTES_MAX;
        // The lock is not held during the write, so other threads append the next group meanwhile.
        drop(state);
        let (file, written) = self.write(file, &frames, syncs);
        // The next file begins after these records, which are durable.
        let (file, begun) = match file {
            File::Open(writer) if written.is_ok() && syncs && writer.bytes >= SEGMENT_BYTES => self.roll(writer, end),
            file => (file, Ok(())),
        };
        drop(frames);
        let mut state = lock(&self.state);
        turn.is_over = true;
        self.put_back(&mut state, file);
        // Waiting threads learn from the state what failed.
        match written {
            Ok(()) => {
                state.failure = None;
                state.written = end;
                state.unsynced_bytes = if syncs { 0 } else { unsynced_bytes };
                if syncs {
                    state.durable = end.next - 1;
                    state.syncs += 1;
                }
                // The records of this group are durable; only later ones cannot be written.
                if let Err(Failure { error, .. }) = begun {
                    self.drop_unwritten(&mut state, error.to_string(), true);
                }
            }
            Err(Failure { error, is_final }) => self.drop_unwritten(&mut state, error.to_string(), is_final),
        }
        state
    }

    /// Writes frames, and syncs them if `syncs`. Returns the file and the result. After a failure, the file holds what
    /// was written before.
    fn write(&self, file: File, frames: &[u8], syncs: bool) -> (File, std::result::Result<(), Failure>) {
        let Self { context, folder, salt, .. } = self;
        let mut writer = match file {
            File::Open(writer) => writer,
            File::Unopened(found) => match found.0.resume(&found.1, folder, *salt) {
                Ok(writer) => {
                    self.count(writer.bytes);
                    writer
                }
                Err(failure) => return (File::Unopened(found), Err(failure)),
            },
            File::Cut(tail) => match tail.reopen(context, folder) {
                Ok(writer) => writer,
                Err(failure) => return (File::Cut(tail), Err(failure)),
            },
            File::Taken => unreachable!("the writing thread has the file"),
        };
        // Before the append, which counts bytes that the file may not get.
        let tail = writer.tail();
        let written = writer.append(frames).map_err(Failure::from).and_then(|()| writer.hand_over(syncs));
        let Err(failure) = written else {
            self.count(frames.len() as u64);
            return (File::Open(writer), Ok(()));
        };
        drop(writer);
        // After a failed sync, the kernel may have dropped the pages and report success to the next one (Rebello et
        // al., "Can applications recover from fsync failures?", 2020). So the file is not written again.
        if failure.is_final {
            return (File::Cut(tail), Err(failure));
        }
        // Cut at once, so that no reader takes the refused bytes for a record. If this fails, the next writer tries
        // again.
        match tail.reopen(context, folder) {
            Ok(writer) => (File::Open(writer), Err(failure)),
            Err(of_cut) => (File::Cut(tail), Err(Failure { is_final: of_cut.is_final, ..failure })),
        }
    }

    /// Begins the next file, or continues with this one if another cannot be created yet.
    fn roll(&self, writer: SegmentWriter, end: Point) -> (File, std::result::Result<(), Failure>) {
        match self.new_file(end) {
            Ok(next) => (File::Open(next), Ok(())),
            // A full disk is temporary. Until then, this file grows beyond its usual size.
            Err(Failure { is_final: false, .. }) => (File::Open(writer), Ok(())),
            Err(failure) => (File::Open(writer), Err(failure)),
        }
    }
}

impl State {
    fn appended(&self, sequence: u64) -> Appended {
        Appended { sequence, era: self.era.clone() }
    }

    fn has(&self, sequence: u64, durability: Durability) -> bool {
        let reached = match durability {
            Durability::Group => self.durable,
            Durability::Buffered => self.written.next - 1,
        };
        reached >= sequence
    }

    fn check(&self, folder: &Path) -> Result<()> {
        let Some(failed) = &self.failed else { return Ok(()) };
        Err(Error::device(format!(
            "{}: the log cannot be written: {failed}; open the collection again before the next write",
            folder.display()
        )))
    }
}

/// Returns the error of a write that was refused, after which others may succeed.
fn not_written(folder: &Path, why: &str) -> Error {
    let at = folder.display();
    Error::device(format!("{at}: the write was refused, since its log cannot be written now: {why}; write it again"))
}

/// Purpose of the memory, for error messages.
const PURPOSE: &str = "the log";

#[cfg(test)]
mod tests {
    use super::super::log_files::Segments;
    use super::super::segment::LogStart;
    use super::*;

    #[test]
    fn a_panicking_writer_wakes_waiting_threads() {
        let folder = tempfile::tempdir().unwrap();
        let context = Context::default();
        let found = Segments::open(&context, folder.path(), LogStart { salt: 7, first: 1 }).unwrap();
        let found = found.read(&context, None, &mut |_| Ok(())).unwrap();
        let log = &Log::new(&context, folder.path(), 7, found).unwrap();
        let record = &log.append(b"a record").unwrap().unwrap();
        lock(&log.state).file = File::Taken;
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| log.commit(record, Durability::Group));
            // As if the thread that has the file had panicked.
            drop(Turn { log, is_over: false });
            let told = waiting.join().unwrap().unwrap_err().to_string();
            assert!(told.contains("the thread that wrote it ended"), "{told}");
        });
        assert!(log.append(b"another").is_err() && log.failure().is_some());
    }
}
