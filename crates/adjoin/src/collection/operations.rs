//! A collection that is open: what writers and searches do with it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::{Creator, Reservation};
use serde::Serialize;

use super::background::Backpressure;
use super::change::Change;
use super::log::{Appended, Durability, Log, LogContents};
use super::manifest::{CollectionManifest, CollectionOptions};
use super::merge::remove_unnamed;
use super::state::{State, Undo};
use super::statistics::Merges;
use super::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, lock};
use super::write::{Incoming, Put, Write};
use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::locks::{WriterLock, check_creator};
use crate::report::Cancel;
use crate::source::{Ids, VectorSource};
use crate::store::is_replaced;

/// Rows in memory are merged where they take more than one part in so many of the budget, or so many bytes: queries are compared
/// with all of them.
const MERGED_SHARE: u64 = 4;
const MERGED_BYTES: u64 = 256 << 20;

/// Vectors that come and go, kept in a folder, and searched at any time from any thread.
///
/// A write is applied whole or not at all, and is found by every search that begins after it was acknowledged; one that is not
/// acknowledged may be found too. One process writes, any number read what was there when they opened it.
pub struct Collection {
    pub(super) context: Context,
    creator: Creator,
    folder: PathBuf,
    manifest: RwLock<CollectionManifest>,
    state: RwLock<State>,
    /// Files of the log when it was opened, their bytes, and whether it ended in a record that was cut off.
    log: (usize, u64, bool),
    /// None where it is only read.
    writer: Option<Writer>,
}

pub(super) struct Writer {
    pub(super) log: Log,
    /// Writes get their numbers and are applied one after the other.
    pub(super) order: Mutex<()>,
    /// What undoes the changes that are in memory and may not be in the log yet, in their order. Locked after `order`, if both are.
    undo: Mutex<VecDeque<Undo>>,
    /// One merge at a time.
    pub(super) merging: Mutex<()>,
    /// Bytes of the vectors and ids that came, and what merges did, since it was opened.
    pub(super) came_bytes: AtomicU64,
    pub(super) merges: Mutex<Merges>,
    pub(super) pressure: Backpressure,
    /// The number of the last write when it was opened.
    opened_at: u64,
    _lock: WriterLock,
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Written {
    /// The number of the write: all writes up to it are in what a search finds. That of the last one where it changed nothing.
    pub sequence: u64,
    /// Rows that came.
    pub rows: u64,
    /// Rows that went: those of ids that were deleted, and of ids whose rows were replaced.
    pub gone: u64,
    /// Ids that were to be deleted, and that no row has.
    pub missing: u64,
}

impl Writer {
    /// Lets go of what undoes changes that are in the log.
    pub(super) fn forget_undo(&self) {
        let (written, mut undo) = (self.log.written(), lock(&self.undo));
        while undo.pop_front_if(|first| first.sequence <= written).is_some() {}
    }
}

impl Written {
    /// What this write and a later one did.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        let Self { sequence, rows, gone, missing } = later;
        Self { sequence, rows: self.rows + rows, gone: self.gone + gone, missing: self.missing + missing }
    }
}

/// What a merge did.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Merged {
    /// Rows of the index on disk now.
    pub rows: u64,
    /// The last write that it has.
    pub sequence: u64,
    /// How long that took; 0 where there was nothing to merge.
    pub seconds: f64,
    /// Bytes that were written, those of temporary files among them.
    pub bytes_written: u64,
}

/// What a collection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CollectionFacts {
    /// Rows that can be found.
    pub rows: u64,
    /// Rows of these that are in memory, as they are not merged yet.
    pub unmerged: u64,
    /// Rows that were deleted or replaced, and still take memory or room on disk.
    pub gone: u64,
    /// The number of the last write.
    pub sequence: u64,
    /// Files of the log, and their bytes, when it was opened.
    pub log_files: usize,
    /// Bytes of these.
    pub log_bytes: u64,
    /// Whether the log ended in a write that was cut off: one that was never acknowledged.
    pub log_was_cut: bool,
}

impl Collection {
    /// Makes a collection without vectors in `folder`.
    ///
    /// # Errors
    /// Where an option is out of range, something is there already, or the device refuses.
    pub fn create(context: &Context, folder: &Path, options: &CollectionOptions) -> Result<()> {
        CollectionManifest::create(context, folder, options)
    }

    /// Opens it to write and to search. All that its log holds is in memory then, reserved from the budget of the context, and
    /// of the index on disk what its searches hold.
    ///
    /// # Errors
    /// Where there is none, another process writes, it is damaged or of a newer version, or memory does not suffice.
    pub fn open(context: &Context, folder: &Path) -> Result<Self> {
        // Before the lock makes a file in a folder that is something else.
        CollectionManifest::read(context, folder)?;
        let lock = WriterLock::take(&context.device, folder)?;
        let (mut opened, found) = Self::read(context, folder)?;
        let manifest = opened.manifest();
        remove_unnamed(context, folder, &manifest)?;
        let opened_at = found.sequence();
        let log = Log::new(context, folder, manifest.log().0, found)?;
        let (order, merging, merges) = (Mutex::new(()), Mutex::new(()), Mutex::default());
        let (came_bytes, pressure, undo) = (AtomicU64::new(0), Backpressure::default(), Mutex::default());
        opened.writer =
            Some(Writer { log, order, undo, merging, came_bytes, merges, pressure, opened_at, _lock: lock });
        Ok(opened)
    }

    /// Opens it to search only: what it holds now.
    ///
    /// # Errors
    /// As [`Self::open`], but for other processes.
    pub fn open_read_only(context: &Context, folder: &Path) -> Result<Self> {
        Ok(Self::read(context, folder)?.0)
    }

    fn read(context: &Context, folder: &Path) -> Result<(Self, LogContents)> {
        let (manifest, (state, found)) = loop {
            let manifest = CollectionManifest::read(context, folder)?;
            let read = State::read(context, folder, &manifest);
            // Where a merge has ended meanwhile, files are gone; then it is the new index that is opened.
            if read.is_ok() || !is_replaced(context, folder, &manifest.manifest_xxh3) {
                break (manifest, read?);
            }
            context.cancel.check()?;
        };
        if found.is_torn {
            let said = "the log ends in a write that was cut off and never acknowledged; it is left out";
            context.progress.note(said);
        }
        let log = (found.files, found.bytes, found.is_torn);
        let (manifest, state) = (RwLock::new(manifest), RwLock::new(state));
        let (context, folder) = (context.clone(), folder.to_owned());
        let creator = Creator::this_process();
        Ok((Self { context, creator, folder, manifest, state, log, writer: None }, found))
    }

    /// What it says of itself.
    pub fn manifest(&self) -> CollectionManifest {
        self.manifest.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_manifest(&self, manifest: CollectionManifest) {
        *self.manifest.write().unwrap_or_else(PoisonError::into_inner) = manifest;
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it holds now.
    pub fn facts(&self) -> CollectionFacts {
        let state = self.state();
        let (log_files, log_bytes, log_was_cut) = self.log;
        let gone = state.fresh.gone() + state.gone.rows;
        let (rows, unmerged, sequence) = (state.rows(), state.fresh.live(), state.sequence);
        CollectionFacts { rows, unmerged, gone, sequence, log_files, log_bytes, log_was_cut }
    }

    /// Deletes, inserts and replaces rows, in this order, all or none of them; returns when that is as safe as is asked for.
    ///
    /// # Errors
    /// Where an id that is inserted is there already, or one comes twice; a vector or id is of another kind than those that are
    /// there; memory does not suffice; or the log cannot be written: then the write has changed nothing, and later ones may be
    /// taken, unless it was a sync that failed.
    pub fn write(&self, write: &Write<'_>, durability: Durability) -> Result<Written> {
        self.write_until(write, durability, &self.context.cancel)
    }

    /// As [`Self::write`], but waits for merges, and for the memory of others, no longer than `cancel` allows.
    ///
    /// # Errors
    /// As [`Self::write`], and when it is cancelled or its deadline passes.
    pub fn write_until(&self, write: &Write<'_>, durability: Durability, cancel: &Cancel) -> Result<Written> {
        self.check_creator()?;
        let context = &self.context.with_cancel(cancel);
        let incoming = Incoming::read(context, self, write)?;
        let (written, record) = self.put(context, &incoming)?;
        self.commit(&record, durability)?;
        Ok(written)
    }

    /// Waits until a record is as safe as is asked for.
    ///
    /// # Errors
    /// If the log cannot be written: what the record changed in memory is undone then.
    pub(super) fn commit(&self, record: &Appended, durability: Durability) -> Result<()> {
        let writer = self.writer()?;
        let committed = writer.log.commit(record, durability);
        if committed.is_err() {
            let _order = lock(&writer.order);
            self.undo_dropped(writer);
        } else {
            writer.forget_undo();
        }
        committed
    }

    /// Undoes what records changed in memory that the log has dropped, the last first. Nobody else may write meanwhile.
    pub(super) fn undo_dropped(&self, writer: &Writer) {
        let Some(written) = writer.log.undo_after() else { return };
        let mut undo = lock(&writer.undo);
        let mut state = self.state_mut();
        while let Some(last) = undo.pop_back_if(|last| last.sequence > written) {
            state.undo(last);
        }
        writer.log.undone();
    }

    /// Takes all rows of a source, in writes of some of them each; what that says is the sum of these. Returns when the last is
    /// as safe as is asked for. Merges meanwhile where the rows in memory come to take too much of it.
    ///
    /// # Errors
    /// As [`Self::write`]; the rows before the write that fails are there.
    pub fn load(&self, source: &dyn VectorSource, put: Put, durability: Durability) -> Result<Written> {
        self.check_creator()?;
        let mut all = Written { sequence: self.state().sequence, ..Written::default() };
        let (mut may_merge, mut last) = (!self.has_merger(), None);
        let taken = Incoming::each(&self.context, self, (source, put), "write", &mut |incoming| {
            if may_merge && self.is_full() {
                may_merge = self.merge_if_possible()?;
            }
            let (written, record) = self.put(&self.context, &incoming)?;
            self.commit(&record, Durability::Buffered)?;
            all = all.and(written);
            last = Some(record);
            Ok(())
        });
        if let Some(last) = &last {
            self.commit(last, durability)?;
        }
        taken.map(|()| all).map_err(|error| match all.rows {
            0 => error,
            rows => error.after(&format!("{rows} rows before were written; ")),
        })
    }

    /// Whether so many rows are in memory that a merge should come before more do: it needs memory too.
    pub(super) fn is_full(&self) -> bool {
        let most = self.context.budget().total() / MERGED_SHARE;
        self.state().fresh.held_bytes() > most.min(MERGED_BYTES)
    }

    /// Merges unless memory does not suffice for that; whether it did. It may still suffice for the rows.
    pub(super) fn merge_if_possible(&self) -> Result<bool> {
        match self.merge(&self.context) {
            Err(error) if error.kind() == ErrorKind::Budget => {
                self.context.progress.note(&format!("rows stay in memory, unmerged: {error}"));
                Ok(false)
            }
            merged => merged.map(|_| true),
        }
    }

    /// Applies what comes, and puts it into the log, as the record that is returned.
    pub(super) fn put(&self, context: &Context, incoming: &Incoming<'_>) -> Result<(Written, Appended)> {
        let writer = self.writer()?;
        let bytes = self.state().fresh.bytes_of(&incoming.change);
        // Before it is its turn: others may have to end first.
        self.keep_pace(bytes, &context.cancel)?;
        let room = self.make_room(context, incoming.change.ids.len() as u64, bytes)?;
        let put = {
            let _order = lock(&writer.order);
            self.put_in_turn(writer, incoming, room)?
        };
        self.tell_merger()?;
        Ok(put)
    }

    /// Applies what comes. Nobody else may write meanwhile, so that what is read here stays so.
    pub(super) fn put_in_turn(
        &self,
        writer: &Writer,
        incoming: &Incoming<'_>,
        room: Reservation,
    ) -> Result<(Written, Appended)> {
        let change = &incoming.change;
        let (record, entries, missing) = loop {
            self.undo_dropped(writer);
            let (entries, missing) = self.check_change(incoming)?;
            if change.ids.is_empty() && missing == change.deleted.len() as u64 {
                let sequence = self.state().sequence;
                return Ok((Written { sequence, missing, ..Written::default() }, writer.log.last()));
            }
            // Otherwise records that this was checked against have just been dropped.
            if let Some(record) = writer.log.append(&incoming.payload)? {
                break (record, entries, missing);
            }
        };
        writer.came_bytes.fetch_add(change.stored.len() as u64 + change.ids.bytes(), Ordering::Relaxed);
        let undo = self.state_mut().apply((change, room), entries.into_iter(), record.sequence);
        let written =
            Written { sequence: record.sequence, rows: change.ids.len() as u64, gone: undo.deleted(), missing };
        lock(&writer.undo).push_back(undo);
        Ok((written, record))
    }

    /// Checks a change against the rows that there are. Returns the entries on disk of its ids, and how many of the ids that are to be
    /// deleted no row has.
    fn check_change(&self, incoming: &Incoming<'_>) -> Result<(Vec<u32>, u64)> {
        let change = &incoming.change;
        let (of_deleted, of_rows) = (self.entries_of(&change.deleted)?, self.entries_of(&change.ids)?);
        let state = self.state();
        incoming.check(|k| state.has((&change.ids, k), of_rows[k]))?;
        let is_missing = |k: &usize| !state.has((&change.deleted, *k), of_deleted[*k]);
        let missing = (0..change.deleted.len()).filter(is_missing).count() as u64;
        Ok((of_deleted.into_iter().chain(of_rows).flatten().collect(), missing))
    }

    /// The entries on disk of some ids, whether or not they were deleted since.
    fn entries_of(&self, ids: &Ids) -> Result<Vec<Option<u32>>> {
        let base = self.state().base.clone();
        base.map_or_else(|| Ok(vec![None; ids.len()]), |base| base.entries(ids))
    }

    /// Whether a row has each of some ids now.
    pub(super) fn ids_there(&self, ids: &Ids) -> Result<Vec<bool>> {
        let entries = self.entries_of(ids)?;
        let state = self.state();
        Ok(entries.into_iter().enumerate().map(|(k, entry)| state.has((ids, k), entry)).collect())
    }

    /// Makes all writes durable; returns the number of the last.
    ///
    /// # Errors
    /// Where it is only read, or the log cannot be written.
    pub fn flush(&self) -> Result<u64> {
        let writer = self.writer()?;
        writer.log.flush().inspect_err(|_| {
            let _order = lock(&writer.order);
            self.undo_dropped(writer);
        })
    }

    /// How often the log was made durable since it was opened.
    pub fn syncs(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.log.syncs())
    }

    /// Makes all writes durable, and notes that in the log: from then on no write can be lost without a word, whatever happens
    /// to the bytes of the file.
    ///
    /// # Errors
    /// Where the log cannot be written.
    pub fn close(self) -> Result<()> {
        self.check_creator()?;
        let Some(writer) = &self.writer else { return Ok(()) };
        if writer.log.flush()? == writer.opened_at {
            return Ok(());
        }
        let closing = writer.log.append(&Change::empty(self.manifest().ids).to_bytes())?;
        closing.map_or(Ok(()), |closing| writer.log.commit(&closing, Durability::Buffered))
    }

    /// Why the last write to the log failed, or all will; none if the last one succeeded.
    pub fn log_failure(&self) -> Option<String> {
        self.writer.as_ref()?.log.failure()
    }

    /// Refuses to go on in a forked child, which shares the log with its parent and has none of its threads.
    ///
    /// # Errors
    /// In a forked child of the process that opened the collection.
    pub fn check_creator(&self) -> Result<()> {
        check_creator(self.creator, self.folder.display())
    }

    pub(super) fn writer(&self) -> Result<&Writer> {
        self.check_creator()?;
        self.writer.as_ref().ok_or_else(|| {
            let at = self.folder.display();
            Error::input(format!("{at} was opened to be read only; open it to write"))
        })
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}
