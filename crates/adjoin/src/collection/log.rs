//! The redo log. Each write is durable in the log before it is acknowledged.
//!
//! Writers append records to a shared buffer. Then one of them writes and syncs the records of all waiting threads
//! (group commit, like the leader and followers in RocksDB's write path).
//!
//! If a write to the file fails, for example because the disk is full, all records of its group and all later ones are
//! dropped. The file is cut back to its last complete record, and later writes continue from there. If a sync fails,
//! the content of the disk is unknown, so all later writes fail too.

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

/// If the waiting records take more than this number of bytes, further writers wait.
pub(super) const WAITING_BYTES_MAX: usize = 2 << 20;
/// Size in bytes at which a log file is completed and the next one begins.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes that may be written without a sync if no writer asks for one.
const UNSYNCED_BYTES_MAX: u64 = 16 << 20;

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "String")]
pub enum Durability {
    /// After a sync. Neither a crash of the process nor a loss of power can lose the write.
    #[default]
    Group,
    /// After the write to the operating system. The write survives a crash of the process, but perhaps not a loss of
    /// power.
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
    /// Signals that a group of records was written or has failed: one for groups of even number, one for groups of odd
    /// number. When a group ends, all of its threads are woken, but only one thread of the next group, which then
    /// writes that group.
    moved: [Condvar; 2],
    /// Bytes written to log files since the collection was opened.
    written_bytes: AtomicU64,
    _memory: Reservation,
}

/// Handle of an appended record, with which a thread waits for its commit.
#[derive(Clone)]
pub(super) struct Appended {
    /// Sequence number. If the record is dropped, a later record gets this number.
    pub(super) sequence: u64,
    era: Arc<FailureEpoch>,
}

/// Period between two failures of writes. It is set once, by the failure that ends it.
pub(super) type FailureEpoch = OnceLock<Cut>;

/// Records that were dropped because they could not be written.
pub(super) struct Cut {
    /// Number of the last record that was written before the failure.
    written: u64,
    why: String,
}

struct State {
    /// Records that no thread has begun to write yet.
    waiting: Vec<u8>,
    /// The point after the last appended record.
    end: Point,
    /// Number of the group of waiting records.
    group: usize,
    /// Number of the last record of the previous group, which was written or is being written. `u64::MAX` from the
    /// start of a group's write until its records are taken from the buffer.
    taken: u64,
    /// The point after the last record that was written to the operating system. Records up to `durable` are also
    /// durable.
    written: Point,
    durable: u64,
    unsynced_bytes: u64,
    file: File,
    /// Number of syncs.
    syncs: u64,
    era: Arc<FailureEpoch>,
    /// If set, the records after this one were dropped, but their changes in memory are not undone yet. Until they are
    /// undone, nothing is appended.
    undo_after: Option<u64>,
    /// Why the last write failed. `None` if a write has succeeded since.
    failure: Option<String>,
    /// Why the log has failed for good. `None` if it can be written.
    failed: Option<String>,
}

/// State of the file to which records are written.
enum File {
    /// No record was written since the collection was opened. The context has reserved the memory for reading the last
    /// file again.
    Unopened(Box<(LogContents, Context)>),
    Open(SegmentWriter),
    /// A write failed, and the bytes after the tail have yet to be cut off.
    Cut(Tail),
    /// A thread is writing to the file.
    Taken,
}

/// Guard of the thread that writes to the file. If the thread ends before it returns the file, the log fails, and all
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
    /// Creates a log that continues after the records in `found`.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(super) fn new(context: &Context, folder: &Path, salt: u64, found: LogContents) -> Result<Self> {
        let memory = context.reserve(Self::memory_bytes(), PURPOSE)?;
        // This memory is reserved now, so that the first write need not wait until a search releases memory.
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

    /// Returns the memory of a log in bytes: the records that are being written, the waiting records, and the buffer
    /// of the file.
    pub(super) const fn memory_bytes() -> u64 {
        (2 * WAITING_BYTES_MAX + WRITE_BUFFER_BYTES) as u64
    }

    /// Appends a record to the buffer. Waits if the buffer is full. Returns `None` if the caller must first undo the
    /// changes of dropped records in memory.
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
            // A record that exceeds the limit by itself is appended to an empty buffer. Otherwise it would wait
            // forever.
            if state.waiting.len() + more <= WAITING_BYTES_MAX || state.waiting.is_empty() {
                break;
            }
            // A write to the operating system empties the buffer. A sync is left to the threads that ask for one.
            let taken = state.taken;
            state = self.commit_more(state, taken, Durability::Buffered);
        }
        let (end, durable) = (state.end, state.durable);
        // The buffer is grown here, not by `Vec`, so that its capacity never exceeds the limit or the size of one
        // larger record.
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

    /// Returns the last appended record.
    pub(super) fn last(&self) -> Appended {
        let state = lock(&self.state);
        state.appended(state.end.next - 1)
    }

    /// Waits until a record is as durable as `durability` demands. Writes and syncs it if no other thread does.
    ///
    /// # Errors
    /// If the record could not be written; it was then dropped, with all later ones. Or if it was written but could
    /// not be made durable; it is then kept.
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
            // Gives up after one failed attempt: a second attempt would probably fail for the same reason.
            if let Some(cut) = era.get() {
                return Err(not_written(&self.folder, &cut.why));
            }
            state = self.commit_more(state, record.sequence, durability);
        }
    }

    /// Makes all records durable. Returns the number of the last one.
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

    /// If dropped records have changes in memory that are not undone yet, returns the number of the last record before
    /// them. Otherwise returns `None`.
    pub(super) fn undo_after(&self) -> Option<u64> {
        lock(&self.state).undo_after
    }

    /// Records that the changes of dropped records are undone in memory.
    pub(super) fn undone(&self) {
        lock(&self.state).undo_after = None;
    }

    /// Returns why the last write failed, or why the log has failed for good. `None` if the last write succeeded.
    pub(super) fn failure(&self) -> Option<String> {
        let state = lock(&self.state);
        state.failed.clone().or_else(|| state.failure.clone())
    }

    /// Makes all records durable, and starts a new file for later records. The caller must keep other threads from
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

    /// Puts the file back, wakes all threads of the group that was written, and wakes one thread of the next group.
    fn put_back(&self, state: &mut State, file: File) {
        let (next, ended) = (&self.moved[state.group % 2], &self.moved[(state.group + 1) % 2]);
        state.file = file;
        ended.notify_all();
        next.notify_one();
    }

    /// Drops all records that were not written yet, and wakes all waiting threads.
    fn drop_unwritten(&self, state: &mut State, why: String, is_final: bool) {
        let written = state.written.next - 1;
        let era = std::mem::take(&mut state.era);
        // No other thread can end the epoch: the state is locked.
        let _ = era.set(Cut { written, why: why.clone() });
        state.waiting = Vec::new();
        // Later records get the numbers of the dropped ones, since the numbers of records have no gaps.
        (state.end, state.taken) = (state.written, written);
        state.undo_after = Some(written);
        if is_final {
            state.failed = Some(why);
        } else {
            state.failure = Some(why);
        }
        self.moved.iter().for_each(Condvar::notify_all);
    }

    /// Waits until the group of record `sequence` is written, or until this thread may write that group.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, sequence: u64) -> MutexGuard<'a, State> {
        let group = if sequence <= state.taken { state.group + 1 } else { state.group };
        self.moved[group % 2].wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bytes written to log files since the collection was opened.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of syncs.
    pub(super) fn syncs(&self) -> u64 {
        lock(&self.state).syncs
    }

    /// Returns the current failure epoch. As long as the epoch has not ended, records that were read from a file are
    /// still part of the log.
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
        // Records that are appended before the buffer is taken below still belong to this group.
        (state.group, state.taken) = (state.group + 1, u64::MAX);
        if durability == Durability::Group {
            // Writers that the last group woke may be about to append. This lets them do so, and one sync serves them
            // too.
            drop(state);
            std::thread::yield_now();
            state = lock(&self.state);
        }
        let (frames, end) = (std::mem::take(&mut state.waiting), state.end);
        state.taken = end.next - 1;
        let unsynced_bytes = state.unsynced_bytes + frames.len() as u64;
        let syncs = durability == Durability::Group || unsynced_bytes >= UNSYNCED_BYTES_MAX;
        // The lock is released during the write, so other threads can append the next group.
        drop(state);
        let (file, written) = self.write(file, &frames, syncs);
        // A new file may only begin once all earlier records are durable.
        let (file, begun) = match file {
            File::Open(writer) if written.is_ok() && syncs && writer.bytes >= SEGMENT_BYTES => self.roll(writer, end),
            file => (file, Ok(())),
        };
        drop(frames);
        let mut state = lock(&self.state);
        turn.is_over = true;
        self.put_back(&mut state, file);
        // The result is stored in the state, from which waiting threads learn it.
        match written {
            Ok(()) => {
                state.failure = None;
                state.written = end;
                state.unsynced_bytes = if syncs { 0 } else { unsynced_bytes };
                if syncs {
                    state.durable = end.next - 1;
                    state.syncs += 1;
                }
                // The records of this group are durable. Only later records cannot be written.
                if let Err(Failure { error, .. }) = begun {
                    self.drop_unwritten(&mut state, error.to_string(), true);
                }
            }
            Err(Failure { error, is_final }) => self.drop_unwritten(&mut state, error.to_string(), is_final),
        }
        state
    }

    /// Writes frames, and syncs them if `syncs`. Returns the file and the result. After a failure, the returned file
    /// is cut back to its content before the write, or has yet to be cut.
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
        // Read before the append, which counts its bytes even if they are not written.
        let tail = writer.tail();
        let written = writer.append(frames).map_err(Failure::from).and_then(|()| writer.hand_over(syncs));
        let Err(failure) = written else {
            self.count(frames.len() as u64);
            return (File::Open(writer), Ok(()));
        };
        drop(writer);
        // After a failed sync, the kernel may have dropped the pages and may report success for the next sync (Rebello
        // et al., "Can applications recover from fsync failures?", 2020). So the file is never written again.
        if failure.is_final {
            return (File::Cut(tail), Err(failure));
        }
        // The file is cut at once, so that no reader takes the rejected bytes for a record. If this fails, the next
        // writer tries again.
        match tail.reopen(context, folder) {
            Ok(writer) => (File::Open(writer), Err(failure)),
            Err(of_cut) => (File::Cut(tail), Err(Failure { is_final: of_cut.is_final, ..failure })),
        }
    }

    /// Starts the next file. Keeps the current file if the next one cannot be created yet.
    fn roll(&self, writer: SegmentWriter, end: Point) -> (File, std::result::Result<(), Failure>) {
        match self.new_file(end) {
            Ok(next) => (File::Open(next), Ok(())),
            // The disk may be full for a while. Until it has space, the current file grows beyond its usual size.
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

/// Returns the error of a write that failed, after which other writes may succeed.
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
            // Has the effect of a panic in the thread that has the file.
            drop(Turn { log, is_over: false });
            let told = waiting.join().unwrap().unwrap_err().to_string();
            assert!(told.contains("the thread that wrote it ended"), "{told}");
        });
        assert!(log.append(b"another").is_err() && log.failure().is_some());
    }
}
