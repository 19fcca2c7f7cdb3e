//! An open collection and its write path.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::Creator;
use serde::Serialize;

use super::backpressure::Backpressure;
use super::change::Change;
use super::latencies::WriteLatencies;
use super::leftovers::remove_unnamed;
use super::log::{Appended, Durability, Log};
use super::log_files::LogContents;
use super::manifest::{CollectionManifest, CollectionOptions};
use super::state::{State, Undo, WriteRoom};
use super::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, lock};
use super::temporary_index::TemporaryIndex;
use super::write::{Incoming, Put, Write};
use crate::base::context::Context;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::locks::{WriterLock, check_opened_here};
use crate::base::report::Cancel;
use crate::source::{Ids, VectorSource};
use crate::store::{FolderKind, is_replaced, refuse_remote};

/// [`Collection::load`] merges when the rows in memory take more than `1 / MERGED_SHARE` of the budget, or more than
/// `MERGED_BYTES`: each query is compared with all of these rows.
const MERGED_SHARE: u64 = 4;
const MERGED_BYTES: u64 = 256 << 20;

/// A folder of vectors that can be changed and searched at any time from any thread.
///
/// A write is applied completely or not at all. Every search that begins after the acknowledgment of a write sees it;
/// a search may also see a write that is not acknowledged yet. Only one process writes at a time. Any number of
/// processes can open the collection for reading, and see its state at the time of opening.
pub struct Collection {
    pub(super) context: Context,
    creator: Creator,
    folder: PathBuf,
    manifest: RwLock<CollectionManifest>,
    state: RwLock<State>,
    log: OpenedLog,
    /// `None` if the collection is open for reading only.
    writer: Option<Writer>,
}

/// Size and condition of the log at opening.
struct OpenedLog {
    files: usize,
    bytes: u64,
    /// Whether the log ended with a torn record.
    was_cut: bool,
}

pub(super) struct Writer {
    pub(super) log: Log,
    /// Lock that is held while a write gets its number and is applied, so that writes are applied one after the other.
    pub(super) order: Mutex<()>,
    /// Undo records of changes in memory that may not be in the log yet, in the order of the changes. A thread that
    /// needs both locks takes `order` first.
    undo: Mutex<VecDeque<Undo>>,
    /// Lock that is held during a merge, so that only one merge runs at a time.
    pub(super) merging: Mutex<()>,
    /// Bytes of vectors and ids written since opening.
    pub(super) ingested_bytes: AtomicU64,
    /// Merges since opening.
    pub(super) merges: Mutex<Merges>,
    pub(super) pressure: Backpressure,
    /// Durations of writes since opening.
    pub(super) latencies: WriteLatencies,
    /// Sequence number of the last write before the collection was opened.
    opened_at: u64,
    _lock: WriterLock,
}

/// Result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct WriteReport {
    /// Sequence number of the write. A search now sees all writes up to this number. If the write changed nothing, it
    /// is the number of the last write.
    pub sequence: u64,
    /// Number of rows that were inserted, including those that replaced others. If several rows to upsert have one id,
    /// each of them counts.
    pub rows: u64,
    /// Number of rows that were removed, by a delete or because another row replaced them. If several rows to upsert
    /// have one id, all but the last are replaced.
    pub deleted: u64,
    /// Number of ids to delete that no row had.
    pub missing: u64,
}

impl Writer {
    /// Discards the undo records of changes that are in the log by now.
    pub(super) fn forget_undo(&self) {
        let (written, mut undo) = (self.log.written(), lock(&self.undo));
        while undo.pop_front_if(|first| first.sequence <= written).is_some() {}
    }
}

impl WriteReport {
    /// Returns the combined result of this write and a later one.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        let Self { sequence, rows, deleted, missing } = later;
        Self { sequence, rows: self.rows + rows, deleted: self.deleted + deleted, missing: self.missing + missing }
    }
}

/// Result of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Merged {
    /// Rows in the long-term index after the merge.
    pub rows: u64,
    /// Sequence number of the last write that the merge contains.
    pub sequence: u64,
    /// Duration; 0 if there was nothing to merge.
    pub seconds: f64,
    /// Bytes written, including temporary files.
    pub bytes_written: u64,
}

/// Merges since the collection was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Merges {
    pub(super) count: u64,
    pub(super) last: Option<Merged>,
    pub(super) bytes_written: u64,
}

impl Merges {
    pub(super) fn add(&mut self, merged: Merged) {
        self.count += 1;
        self.bytes_written += merged.bytes_written;
        self.last = Some(merged);
    }
}

/// Size and state of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CollectionFacts {
    /// Number of live rows.
    pub rows: u64,
    /// Number of live rows that are in memory, not merged yet.
    pub unmerged: u64,
    /// Number of rows that were deleted or replaced, and still take up memory or disk space.
    pub deleted: u64,
    /// Sequence number of the last write.
    pub sequence: u64,
    /// Number of log files at opening.
    pub log_files: usize,
    /// Total bytes of the log files at opening.
    pub log_bytes: u64,
    /// Whether the log ended with a torn record at opening. Such a record is a write that was never acknowledged.
    pub log_was_cut: bool,
}

impl Collection {
    /// Creates an empty collection in `folder`.
    ///
    /// # Errors
    /// If an option is out of range, the folder is in use, or the device fails.
    pub fn create(context: &Context, folder: &Path, options: &CollectionOptions) -> Result<()> {
        CollectionManifest::create(context, folder, options)
    }

    /// Opens the collection for writing and searching. Reserves memory from the context's budget for all rows in the
    /// log, and for the parts of the long-term index that searches need.
    ///
    /// # Errors
    /// If there is no collection, another process writes to it, it is damaged or has a newer format, or memory does not
    /// suffice.
    pub fn open(context: &Context, folder: &Path) -> Result<Self> {
        // The manifest is checked before the lock is taken: taking it creates a file, and the folder may be something
        // else.
        CollectionManifest::read(context, folder)?;
        let lock = WriterLock::take_of_collection(&context.device, folder)?;
        // The manifest is read again under the lock, since a merge may have ended after the first read.
        let (mut opened, found) = Self::read(context, folder, CollectionManifest::read(context, folder)?)?;
        let manifest = opened.manifest();
        // Files are removed only under the lock. Without it, a file that this manifest does not name could belong to
        // the merge of another writer.
        remove_unnamed(context, folder, &manifest)?;
        let opened_at = found.sequence();
        let log = Log::new(context, folder, manifest.log().salt, found)?;
        let (order, merging, merges) = (Mutex::new(()), Mutex::new(()), Mutex::default());
        let (ingested_bytes, pressure, undo) = (AtomicU64::new(0), Backpressure::default(), Mutex::default());
        let latencies = WriteLatencies::none();
        opened.writer = Some(Writer {
            log,
            order,
            undo,
            merging,
            ingested_bytes,
            merges,
            pressure,
            latencies,
            opened_at,
            _lock: lock,
        });
        Ok(opened)
    }

    /// Opens the collection for searching only, in its current state.
    ///
    /// # Errors
    /// As [`Self::open`], except that other processes may write.
    pub fn open_read_only(context: &Context, folder: &Path) -> Result<Self> {
        Self::open_read(context, folder, CollectionManifest::read(context, folder)?)
    }

    /// Opens the collection for searching only, given a manifest that was just read. See [`Self::open_read_only`].
    ///
    /// # Errors
    /// As [`Self::open_read_only`].
    pub(crate) fn open_read(context: &Context, folder: &Path, manifest: CollectionManifest) -> Result<Self> {
        Ok(Self::read(context, folder, manifest)?.0)
    }

    fn read(context: &Context, folder: &Path, mut manifest: CollectionManifest) -> Result<(Self, LogContents)> {
        refuse_remote(FolderKind::Collection, folder)?;
        let (state, found) = loop {
            let read = State::read(context, folder, &manifest);
            // If a merge ended meanwhile, it removed files of the old index. Then the new index is opened.
            if read.is_ok() || !is_replaced(context, folder, &manifest.manifest_xxh3) {
                break read?;
            }
            context.cancel.check()?;
            manifest = CollectionManifest::read(context, folder)?;
        };
        if found.is_torn {
            let said = "the log ends in an incomplete write that was never acknowledged; it is ignored";
            context.progress.note(said);
        }
        let log = OpenedLog { files: found.files, bytes: found.bytes, was_cut: found.is_torn };
        let (manifest, state) = (RwLock::new(manifest), RwLock::new(state));
        let (context, folder) = (context.clone(), folder.to_owned());
        let creator = Creator::this_process();
        Ok((Self { context, creator, folder, manifest, state, log, writer: None }, found))
    }

    /// Returns a copy of the manifest.
    pub fn manifest(&self) -> CollectionManifest {
        self.manifest.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_manifest(&self, manifest: CollectionManifest) {
        *self.manifest.write().unwrap_or_else(PoisonError::into_inner) = manifest;
    }

    /// Returns the folder of the collection.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the size and state of the collection.
    pub fn facts(&self) -> CollectionFacts {
        let state = self.state();
        let OpenedLog { files: log_files, bytes: log_bytes, was_cut: log_was_cut } = self.log;
        let deleted = state.temporary.deleted_rows() + state.deleted.len();
        let (rows, unmerged, sequence) = (state.rows(), state.temporary.live(), state.sequence);
        CollectionFacts { rows, unmerged, deleted, sequence, log_files, log_bytes, log_was_cut }
    }

    /// Deletes, inserts and upserts rows, in this order. Applies all of these operations or none. Returns once the
    /// write is as durable as `durability` demands.
    ///
    /// # Errors
    /// If an inserted id exists already or is given twice, a vector or id has another type than the collection's,
    /// memory does not suffice, or the log cannot be written. After an error, nothing was changed. Later writes may
    /// succeed, unless a sync failed.
    pub fn write(&self, write: &Write<'_>, durability: Durability) -> Result<WriteReport> {
        self.write_until(write, durability, &self.context.cancel)
    }

    /// As [`Self::write`], but stops waiting for merges and memory when `cancel` is cancelled or its deadline passes.
    ///
    /// # Errors
    /// As [`Self::write`], and if it is cancelled or its deadline passes.
    pub fn write_until(&self, write: &Write<'_>, durability: Durability, cancel: &Cancel) -> Result<WriteReport> {
        self.check_creator()?;
        let context = &self.context.with_cancel(cancel);
        self.writer()?.latencies.of(|| {
            let incoming = Incoming::read(context, self, write)?;
            let (written, record) = self.put(context, &incoming)?;
            self.commit(&record, durability)?;
            Ok(written)
        })
    }

    /// Waits until a record is as durable as `durability` demands.
    ///
    /// # Errors
    /// If the log cannot be written. The changes of the record in memory are then undone.
    pub(super) fn commit(&self, record: &Appended, durability: Durability) -> Result<()> {
        let writer = self.writer()?;
        let committed = writer.log.commit(record, durability);
        if committed.is_err() {
            // Waits for a write that is being applied: its undo record must be in the list before the list is
            // processed.
            let _order = lock(&writer.order);
            self.undo_dropped(writer);
        } else {
            writer.forget_undo();
        }
        committed
    }

    /// Undoes the changes in memory of all records that the log has dropped, in reverse order. The caller must hold
    /// the lock on `order`.
    pub(super) fn undo_dropped(&self, writer: &Writer) {
        let Some(written) = writer.log.undo_after() else { return };
        let mut undo = lock(&writer.undo);
        let mut state = self.state_mut();
        // The order is reversed, since a later change may have deleted rows that an earlier one inserted.
        while let Some(last) = undo.pop_back_if(|last| last.sequence > written) {
            state.undo(last);
        }
        writer.log.undone();
    }

    /// Writes all rows of a source in several writes. Returns the sum of their results once the last write is as
    /// durable as `durability` demands. If the collection has no merger, merges between two writes when unmerged rows
    /// take too much memory.
    ///
    /// # Errors
    /// As [`Self::write`]. The rows of the writes before the failed one are stored.
    pub fn load(&self, source: &dyn VectorSource, put: Put, durability: Durability) -> Result<WriteReport> {
        self.check_creator()?;
        let mut all = WriteReport { sequence: self.state().sequence, ..WriteReport::default() };
        let (mut may_merge, mut last) = (!self.has_merger(), None);
        let taken = Incoming::each(&self.context, self, source, put, "write", &mut |incoming| {
            if may_merge && self.is_full() {
                may_merge = self.merge_if_possible()?;
            }
            let (written, record) = self.writer()?.latencies.of(|| {
                let (written, record) = self.put(&self.context, &incoming)?;
                // One sync at the end makes all of them durable.
                self.commit(&record, Durability::Buffered)?;
                Ok((written, record))
            })?;
            all = all.and(written);
            last = Some(record);
            Ok(())
        });
        // This is also done after an error: the earlier rows are reported as written, so they must be durable.
        if let Some(last) = &last {
            self.commit(last, durability)?;
        }
        taken.map(|()| all).map_err(|error| match all.rows {
            0 => error,
            rows => error.after(&format!("{rows} earlier rows were written; ")),
        })
    }

    /// Returns whether the rows in memory take so large a part of the budget that a merge should precede further
    /// writes.
    pub(super) fn is_full(&self) -> bool {
        let most = self.context.budget().total() / MERGED_SHARE;
        self.state().temporary.held_bytes() > most.min(MERGED_BYTES)
    }

    /// Merges if memory suffices for a merge, and returns whether it did. If it did not, memory may still suffice for
    /// more rows.
    pub(super) fn merge_if_possible(&self) -> Result<bool> {
        match self.merge(&self.context) {
            Err(error) if error.kind() == ErrorKind::Budget => {
                self.context.progress.note(&format!("rows are kept in memory, unmerged: {error}"));
                Ok(false)
            }
            merged => merged.map(|_| true),
        }
    }

    /// Appends a change to the log and applies it in memory. Returns the result and the log record.
    pub(super) fn put(&self, context: &Context, incoming: &Incoming<'_>) -> Result<(WriteReport, Appended)> {
        let writer = self.writer()?;
        let bytes = self.state().temporary.bytes_of(&incoming.change);
        // This waits before `order` is locked, since other writes may have to end first.
        self.keep_pace(bytes, &context.cancel)?;
        let room = self.make_room(context, &incoming.change, bytes)?;
        let put = {
            let _order = lock(&writer.order);
            self.put_in_turn(writer, incoming, room)?
        };
        self.tell_merger()?;
        Ok(put)
    }

    /// As [`Self::put`], but for a caller that holds the lock on `order`, so that no other write changes the state
    /// meanwhile.
    pub(super) fn put_in_turn(
        &self,
        writer: &Writer,
        incoming: &Incoming<'_>,
        mut room: WriteRoom,
    ) -> Result<(WriteReport, Appended)> {
        let change = &incoming.change;
        let (record, entries, missing) = loop {
            self.undo_dropped(writer);
            let (entries, missing) = self.check_change(incoming)?;
            if change.ids.is_empty() && missing == change.deleted.len() as u64 {
                // Nothing is logged. The caller still waits for the last record, since a write that is not durable yet
                // may have deleted the rows.
                let sequence = self.state().sequence;
                return Ok((WriteReport { sequence, missing, ..WriteReport::default() }, writer.log.last()));
            }
            // The number of rows that the write deletes is known only now.
            let bytes = self.state().deleting_bytes(change, entries.len() as u64);
            room.deletes.shrink(bytes);
            room.deletes.join(TemporaryIndex::room_for(&self.context, bytes - room.deletes.bytes())?);
            // `None` means that the log dropped records on which the check of this change was based. Check again.
            if let Some(record) = writer.log.append(&incoming.payload)? {
                break (record, entries, missing);
            }
        };
        writer.ingested_bytes.fetch_add(change.stored.len() as u64 + change.ids.bytes(), Ordering::Relaxed);
        // The change is applied after the log has accepted the record. If the log refuses it, memory is unchanged.
        let undo = self.state_mut().apply(change, room, entries, record.sequence);
        let written =
            WriteReport { sequence: record.sequence, rows: change.ids.len() as u64, deleted: undo.deleted(), missing };
        // The undo record is kept until the log record is written: if the write of its group fails, the change is
        // undone.
        lock(&writer.undo).push_back(undo);
        Ok((written, record))
    }

    /// Checks a change against the current rows. Returns the entries of its ids in the long-term index, and the number
    /// of ids to delete that no row has. The caller must hold the lock on `order`.
    fn check_change(&self, incoming: &Incoming<'_>) -> Result<(Vec<u32>, u64)> {
        let change = &incoming.change;
        let (of_deleted, of_rows) = (self.entries_of(&change.deleted)?, self.entries_of(&change.ids)?);
        // The lock on `order` keeps other writes and merges from changing the entries until they are used.
        let state = self.state();
        incoming.check(|k| state.has(&change.ids, k, of_rows[k]))?;
        let is_missing = |k: &usize| !state.has(&change.deleted, *k, of_deleted[*k]);
        let missing = (0..change.deleted.len()).filter(is_missing).count() as u64;
        Ok((of_deleted.into_iter().chain(of_rows).flatten().collect(), missing))
    }

    /// Returns the entry of each id in the long-term index, even if the entry has been deleted since.
    fn entries_of(&self, ids: &Ids) -> Result<Vec<Option<u32>>> {
        let long_term = self.state().long_term.clone();
        long_term.map_or_else(|| Ok(vec![None; ids.len()]), |long_term| long_term.entries(ids))
    }

    /// Returns for each id whether a live row has it.
    pub(super) fn ids_there(&self, ids: &Ids) -> Result<Vec<bool>> {
        let entries = self.entries_of(ids)?;
        let state = self.state();
        Ok(entries.into_iter().enumerate().map(|(k, entry)| state.has(ids, k, entry)).collect())
    }

    /// Makes all writes durable. Returns the sequence number of the last one.
    ///
    /// # Errors
    /// If the collection is open for reading only, or the log cannot be written.
    pub fn flush(&self) -> Result<u64> {
        let writer = self.writer()?;
        writer.log.flush().inspect_err(|_| {
            let _order = lock(&writer.order);
            self.undo_dropped(writer);
        })
    }

    /// Returns how often the log was synced since opening.
    pub fn syncs(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.log.syncs())
    }

    /// Makes all writes durable, and records that in the log. From then on, damage to any write in the file is
    /// detected.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn close(self) -> Result<()> {
        self.check_creator()?;
        let Some(writer) = &self.writer else { return Ok(()) };
        // If nothing was written since opening, a closing record is not needed and would only make the log grow.
        if writer.log.flush()? == writer.opened_at {
            return Ok(());
        }
        let closing = writer.log.append(&Change::empty(self.manifest().ids).to_bytes())?;
        closing.map_or(Ok(()), |closing| writer.log.commit(&closing, Durability::Buffered))
    }

    /// Returns why the last write to the log failed, or why the log has failed for good. `None` if the last write
    /// succeeded.
    pub fn log_failure(&self) -> Option<String> {
        self.writer.as_ref()?.log.failure()
    }

    /// Fails in a forked child, which shares the log with its parent but has none of the parent's threads.
    ///
    /// # Errors
    /// If this process is a forked child of the one that opened the collection.
    pub fn check_creator(&self) -> Result<()> {
        check_opened_here(self.creator, self.folder.display())
    }

    pub(super) fn writer(&self) -> Result<&Writer> {
        self.check_creator()?;
        self.writer.as_ref().ok_or_else(|| {
            let at = self.folder.display();
            Error::input(format!("{at} was opened read-only; open it for writing"))
        })
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}
