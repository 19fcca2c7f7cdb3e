//! The redo log: what every write changes, durable before the write is acknowledged.
//!
//! Writers put records into memory one after the other; then one of them, for all that wait, hands them to the disk and makes
//! them durable (group commit: the leader and followers of RocksDB's write path). After a failure nobody knows what the disk
//! has, so that everybody fails from then on.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::{Reservation, WRITE_BUFFER_BYTES};

use super::frame::{frame_bytes, push_frame};
use super::segment::{End, Frame, Point, Segment, SegmentWriter, file_name, first_of, no_header};
use super::sync::{Condvar, Mutex, MutexGuard, lock};
use crate::context::Context;
use crate::error::{Error, Result};

/// Bytes of records that wait for the disk before others must wait too.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// Bytes of a file of the log from which on the next is begun.
const SEGMENT_BYTES: u64 = 64 << 20;
/// A file with fewer bytes is copied when the log is opened again, so that files do not pile up.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Bytes that may be written and not yet durable, where nobody waits for that.
const UNSYNCED_BYTES_MAX: u64 = 16 << 20;

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// When a loss of power takes it no more.
    #[default]
    Group,
    /// When the system has it: the end of the process does not take it, a loss of power may.
    Buffered,
}

/// What the files of a log were found to hold.
pub(super) struct Found {
    /// Behind the last record.
    pub(super) point: Point,
    /// Records up to this are known to be durable.
    durable: u64,
    /// The last file, and its bytes.
    last: Option<(Segment, u64)>,
    /// Files, and bytes of records in them.
    pub(super) files: usize,
    pub(super) bytes: u64,
    /// Whether the last one ends in a record that was cut off.
    pub(super) is_torn: bool,
}

/// The files of a log, open: what they hold can be read whatever becomes of their names.
pub(super) struct Segments {
    whole: Vec<Segment>,
    /// Files without a record: their paths, and the records with which they would begin.
    empty: Vec<(PathBuf, u64)>,
}

impl Segments {
    /// Opens the files from the one that begins with record `first` on.
    ///
    /// # Errors
    /// Where the device fails, a file is missing, or the header of one is not that of such a file.
    pub(super) fn open(context: &Context, folder: &Path, (salt, first): (u64, u64)) -> Result<Self> {
        let names =
            context.device.list_only(folder, &|name| name.to_str().is_some_and(|name| first_of(name).is_some()))?;
        // Files before that are left over: what they say is in the index.
        let all = names.iter().filter_map(|name| first_of(name.to_str()?));
        let mut firsts: Vec<u64> = all.filter(|&record| record >= first).collect();
        firsts.sort_unstable();
        let (mut whole, mut empty) = (Vec::new(), Vec::new());
        for first in firsts {
            match Segment::open(context, folder, salt, first)? {
                Some(segment) => whole.push(segment),
                None => empty.push((folder.join(file_name(first)), first)),
            }
        }
        let begins = whole.first().map_or(Point::START.next, |segment| segment.start.next);
        if begins != first {
            let missing = folder.join(file_name(first));
            if empty.iter().any(|(path, _)| *path == missing) {
                return Err(no_header(&missing));
            }
            return Err(Error::corrupt(format!("{} is missing; bring it back from a backup", missing.display())));
        }
        Ok(Self { whole, empty })
    }

    /// Whether one of the files begins with a record.
    pub(super) fn has(&self, first: u64) -> bool {
        self.whole.iter().any(|segment| segment.start.next == first)
    }

    /// Bytes of the files.
    pub(super) fn file_bytes(&self) -> u64 {
        self.whole.iter().map(Segment::file_bytes).sum()
    }

    /// Hands over each record.
    ///
    /// # Errors
    /// Where the device or `take` fails, memory does not suffice, or a record that was durable is not as it was written.
    pub(super) fn read(self, context: &Context, take: &mut dyn FnMut(Frame<'_>) -> Result<()>) -> Result<Found> {
        let files = self.whole.len();
        let mut found = Found { point: Point::START, durable: 0, last: None, files, bytes: 0, is_torn: false };
        let mut segments = self.whole.into_iter().peekable();
        while let Some(segment) = segments.next() {
            context.cancel.check()?;
            let until = segments.peek().map(|next| next.start);
            let End { point, durable, bytes, is_torn } = segment.read(context, until, take)?;
            let of_all = found.bytes + bytes;
            found = Found { point, durable: durable.max(found.durable), bytes: of_all, is_torn, ..found };
            found.last = Some((segment, bytes));
        }
        // A file without records that would begin after a record that is not there: its name says that there was one.
        match self.empty.iter().find(|(_, first)| *first > found.point.next) {
            Some((path, _)) => Err(no_header(path)),
            None => Ok(found),
        }
    }
}

/// The files of a log that are there now, those that do not count any more among them: how many, and their bytes.
///
/// # Errors
/// Where the device fails.
pub(super) fn on_disk(context: &Context, folder: &Path) -> Result<(usize, u64)> {
    let names = context.device.list_only(folder, &|name| name.to_str().is_some_and(|name| first_of(name).is_some()))?;
    let (mut files, mut bytes) = (0, 0);
    for name in names {
        match context.device.open(&folder.join(name)) {
            Ok(file) => (files, bytes) = (files + 1, bytes + file.len()),
            Err(error) if error.source.kind() == ErrorKind::NotFound => {} // a merge has removed it meanwhile
            Err(error) => return Err(error.into()),
        }
    }
    Ok((files, bytes))
}

impl Found {
    /// The number of the last record; 0 where there is none.
    pub(super) fn sequence(&self) -> u64 {
        self.point.next - 1
    }

    /// A file for records behind the last. What is not known to be durable is written again, as the disk may still lose what
    /// could be read.
    fn resume(&self, context: &Context, folder: &Path, salt: u64) -> Result<SegmentWriter> {
        let mut writer = None;
        let from = match &self.last {
            Some((segment, bytes)) if *bytes < SEGMENT_BYTES_MIN => segment.start.next,
            _ => self.durable + 1,
        };
        if let Some((segment, _)) = &self.last {
            segment.read(context, None, &mut |frame| {
                let (next, previous) = (frame.head.sequence, frame.head.previous);
                // A record may have become readable since; it was not acknowledged, nor applied.
                if next < from || next >= self.point.next {
                    return Ok(());
                }
                if writer.is_none() {
                    writer = Some(SegmentWriter::draft(context, folder, salt, Point { next, previous })?);
                }
                writer.as_mut().map_or(Ok(()), |writer| writer.append(frame.bytes))
            })?;
        }
        let mut writer = match writer {
            Some(writer) => writer,
            None => SegmentWriter::draft(context, folder, salt, self.point)?,
        };
        writer.place(context, folder)?;
        Ok(writer)
    }
}

/// The log of a live index that is written to.
pub(super) struct Log {
    context: Context,
    folder: PathBuf,
    salt: u64,
    state: Mutex<State>,
    /// Records of a group were written, or that failed: groups of even and of odd number. So those who wait for one that is being
    /// written are told when that has ended, and of those who wait for the next only one, who writes it.
    moved: [Condvar; 2],
    /// Bytes that went to files since it was opened.
    written_bytes: AtomicU64,
    _memory: Reservation,
}

struct State {
    /// Records that no one has taken to the disk, and what is behind them.
    waiting: Vec<u8>,
    end: Point,
    /// Number of the group of records that wait, and the last record that may be in the group before, which is being written or was.
    group: usize,
    taken: u64,
    /// Records up to these were handed to the system, and are durable.
    written: u64,
    durable: u64,
    unsynced_bytes: u64,
    file: File,
    /// How often something was made durable.
    syncs: u64,
    failed: Option<String>,
}

/// Where records go.
enum File {
    /// The log was not written to since it was opened.
    Unopened(Found),
    Open(SegmentWriter),
    /// Whoever writes has it.
    Taken,
}

impl Log {
    /// Of what was found.
    ///
    /// # Errors
    /// Where memory does not suffice.
    pub(super) fn new(context: &Context, folder: &Path, salt: u64, found: Found) -> Result<Self> {
        let memory = context.reserve((2 * WAITING_BYTES_MAX + WRITE_BUFFER_BYTES) as u64, "the log")?;
        let (end, durable, written) = (found.point, found.durable, found.sequence());
        let file = File::Unopened(found);
        let (waiting, unsynced_bytes, syncs, failed) = (Vec::new(), 0, 0, None);
        let (group, taken) = (1, written);
        let state = State { waiting, end, group, taken, written, durable, unsynced_bytes, file, syncs, failed };
        let (context, folder) = (context.clone(), folder.to_owned());
        let (state, moved, written_bytes) = (Mutex::new(state), Default::default(), AtomicU64::new(0));
        Ok(Self { context, folder, salt, state, moved, written_bytes, _memory: memory })
    }

    /// Puts a record behind the last; returns its number. Waits where too much waits for the disk already.
    ///
    /// # Errors
    /// Where the log failed before.
    pub(super) fn append(&self, payload: &[u8]) -> Result<u64> {
        let mut state = lock(&self.state);
        loop {
            state.check(&self.folder)?;
            let bytes = state.waiting.len() + frame_bytes(payload.len());
            if bytes <= WAITING_BYTES_MAX || state.waiting.is_empty() {
                break;
            }
            let taken = state.taken;
            state = self.commit_more(state, taken, Durability::Buffered);
        }
        let (end, durable) = (state.end, state.durable);
        let previous = push_frame(&mut state.waiting, self.salt, (end.next, end.previous, durable), payload);
        state.end = Point { next: end.next + 1, previous };
        Ok(end.next)
    }

    /// Waits until a record is as safe as is wanted, and sees to that where nobody does.
    ///
    /// # Errors
    /// Where the log cannot be written; then that and all later records may be lost.
    pub(super) fn commit(&self, sequence: u64, durability: Durability) -> Result<()> {
        let mut state = lock(&self.state);
        while !state.has(sequence, durability) {
            state.check(&self.folder)?;
            state = self.commit_more(state, sequence, durability);
        }
        Ok(())
    }

    /// Makes all records durable; returns the number of the last.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub(super) fn flush(&self) -> Result<u64> {
        let last = lock(&self.state).end.next - 1;
        self.commit(last, Durability::Group)?;
        Ok(last)
    }

    /// Makes all records durable, and begins a file with the next one. Nobody may append meanwhile.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub(super) fn begin_file(&self) -> Result<()> {
        self.flush()?;
        let mut state = lock(&self.state);
        loop {
            state.check(&self.folder)?;
            match std::mem::replace(&mut state.file, File::Taken) {
                File::Taken => {
                    let taken = state.taken;
                    state = self.wait(state, taken);
                }
                _ => break,
            }
        }
        let end = state.end;
        drop(state);
        self.put_back(self.new_file(end)).map(drop)
    }

    /// An empty file of the log, for records behind a point.
    fn new_file(&self, start: Point) -> Result<SegmentWriter> {
        let mut writer = SegmentWriter::draft(&self.context, &self.folder, self.salt, start)?;
        writer.place(&self.context, &self.folder)?;
        self.count(writer.bytes);
        Ok(writer)
    }

    fn count(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives the file back to whoever writes next; after an error nobody does.
    fn put_back(&self, written: Result<SegmentWriter>) -> Result<MutexGuard<'_, State>> {
        let mut state = lock(&self.state);
        let (next, ended) = (&self.moved[state.group % 2], &self.moved[(state.group + 1) % 2]);
        ended.notify_all();
        match written {
            Ok(writer) => {
                state.file = File::Open(writer);
                next.notify_one();
                Ok(state)
            }
            Err(error) => {
                state.failed = Some(error.to_string());
                next.notify_all();
                Err(error)
            }
        }
    }

    /// Waits while somebody writes for who has appended a record: until that was written, or may be by whoever waits.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, sequence: u64) -> MutexGuard<'a, State> {
        let group = if sequence <= state.taken { state.group + 1 } else { state.group };
        self.moved[group % 2].wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that went to its files since it was opened.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// How often something was made durable.
    pub(super) fn syncs(&self) -> u64 {
        lock(&self.state).syncs
    }

    /// Takes to the disk what waits, or waits for who does.
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
        // Whoever appends until the frames are taken belongs to this group.
        (state.group, state.taken) = (state.group + 1, u64::MAX);
        if durability == Durability::Group {
            // Writers that were told of the last group may be about to append: one sync is for them too then.
            drop(state);
            std::thread::yield_now();
            state = lock(&self.state);
        }
        let (frames, end) = (std::mem::take(&mut state.waiting), state.end);
        state.taken = end.next - 1;
        let unsynced_bytes = state.unsynced_bytes + frames.len() as u64;
        let syncs = durability == Durability::Group || unsynced_bytes >= UNSYNCED_BYTES_MAX;
        drop(state);
        let written = self.write(file, &frames, end, syncs);
        // Whoever waits is told by the state what failed.
        let Ok(mut state) = self.put_back(written) else { return lock(&self.state) };
        state.written = end.next - 1;
        state.unsynced_bytes = if syncs { 0 } else { unsynced_bytes };
        if syncs {
            state.durable = end.next - 1;
            state.syncs += 1;
        }
        state
    }

    fn write(&self, file: File, frames: &[u8], end: Point, syncs: bool) -> Result<SegmentWriter> {
        let Self { context, folder, salt, .. } = self;
        let mut writer = match file {
            File::Open(writer) => writer,
            File::Unopened(found) => {
                let writer = found.resume(context, folder, *salt)?;
                self.count(writer.bytes);
                writer
            }
            File::Taken => unreachable!("who writes has the file"),
        };
        writer.append(frames)?;
        self.count(frames.len() as u64);
        writer.hand_over(syncs)?;
        if syncs && writer.bytes >= SEGMENT_BYTES {
            writer = self.new_file(end)?;
        }
        Ok(writer)
    }
}

impl State {
    fn has(&self, sequence: u64, durability: Durability) -> bool {
        let reached = match durability {
            Durability::Group => self.durable,
            Durability::Buffered => self.written,
        };
        reached >= sequence
    }

    fn check(&self, folder: &Path) -> Result<()> {
        let Some(failed) = &self.failed else { return Ok(()) };
        Err(Error::device(format!(
            "{}: the log cannot be written: {failed}; nothing more is taken until the live index is opened again",
            folder.display()
        )))
    }
}
