//! The state of a collection: long-term index, delete list and temporary index.

use std::path::Path;
use std::sync::Arc;

use adjoin_device::Reservation;

use super::change::Change;
use super::log_files::{LogContents, Segments};
use super::long_term_index::LongTermIndex;
use super::manifest::CollectionManifest;
use super::merged_texts::MergedTexts;
use super::segment::LogStart;
use super::temporary_index::{self, TemporaryIndex, TemporaryView};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::index::DeleteList;
use crate::source::Ids;

/// Bytes of ids that are looked up together while the log is replayed.
const IDS_TOGETHER_BYTES: u64 = 512 << 10;

/// State of a collection after the write with number `sequence`.
pub(super) struct State {
    pub(super) long_term: Option<Arc<LongTermIndex>>,
    pub(super) deleted: DeleteList,
    pub(super) temporary: TemporaryIndex,
    /// Sequence number of the last write.
    pub(super) sequence: u64,
}

/// Undo record of a change. Contains its sequence number, the entries on disk that it deleted or replaced, and its
/// changes to the temporary index.
pub(super) struct Undo {
    pub(super) sequence: u64,
    entries: Vec<u32>,
    temporary: temporary_index::Undo,
    /// Memory for undoing the change, which never fails.
    room: Reservation,
}

/// Memory for a change.
pub(super) struct WriteRoom {
    /// Memory of the rows to insert.
    pub(super) rows: Reservation,
    /// Memory for deleting rows, and for undoing that. A search may share each part of the lists of deleted rows, so
    /// that the part must be copied.
    pub(super) deletes: Reservation,
}

impl StateView {
    /// Returns a view that does not hold the packed forms of rows in memory, for work that takes long.
    pub(super) fn without_packed(self) -> Self {
        Self { view: self.view.without_packed(), ..self }
    }

    /// Returns the sizes of the id texts and columns of all rows.
    pub(super) fn texts(&self) -> MergedTexts {
        MergedTexts::of(self.long_term.as_deref(), self.view.text_bytes())
    }
}

impl Undo {
    /// Returns the number of rows that the change deleted or replaced.
    pub(super) fn deleted(&self) -> u64 {
        self.entries.len() as u64 + self.temporary.deleted()
    }
}

/// Immutable view of the state at one moment. Searches use it for as long as they need.
#[derive(Clone)]
pub(super) struct StateView {
    pub(super) long_term: Option<Arc<LongTermIndex>>,
    pub(super) deleted: DeleteList,
    pub(super) view: TemporaryView,
    /// Number of live rows.
    pub(super) rows: u64,
    pub(super) sequence: u64,
}

impl State {
    /// Restores the state from the long-term index that the manifest names and from the log.
    ///
    /// # Errors
    /// If the log or the long-term index cannot be read, or memory does not suffice.
    pub(super) fn read(context: &Context, folder: &Path, manifest: &CollectionManifest) -> Result<(Self, LogContents)> {
        let merged = manifest.merged();
        let long_term = merged.map(|sequence| LongTermIndex::open(context, folder, sequence, &manifest.attributes));
        let long_term = long_term.transpose()?.map(Arc::new);
        let deleted = DeleteList::new(long_term.as_ref().map_or(0, |long_term| long_term.index.facts().rows));
        let temporary = TemporaryIndex::new(context, manifest.space(), Ids::empty(manifest.ids))?;
        let mut state = Self { long_term, deleted, temporary, sequence: manifest.first_record - 1 };
        let found = state.replay(context, folder, manifest, None)?;
        Ok((state, found))
    }

    /// Applies the records of the log. Skips the records in `before`. Returns the content of the log.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn replay(
        &mut self,
        context: &Context,
        folder: &Path,
        manifest: &CollectionManifest,
        before: Option<&LogContents>,
    ) -> Result<LogContents> {
        let state = self;
        let mut touched = Ids::empty(manifest.ids);
        let start = manifest.log();
        let first = before.and_then(LogContents::last_file).unwrap_or(start.first);
        let found =
            Segments::open(context, folder, LogStart { first, ..start })?.read(context, before, &mut |frame| {
                let number = frame.head.sequence;
                let _copy = TemporaryIndex::room_for(context, Change::copied_bytes(frame.payload))?;
                let change = Change::from_bytes(frame.payload, manifest.rows());
                let change = change.ok_or_else(|| {
                    let at = folder.display();
                    Error::corrupt(format!(
                        "{at}: record {number} of the log is not from this collection; restore the \
                                            folder from a backup"
                    ))
                })?;
                let room = TemporaryIndex::room_for(context, state.temporary.bytes_of(&change))?;
                let mut deletes = TemporaryIndex::room_for(context, state.temporary.deleting_bytes(&change))?;
                state.temporary.apply(&change, room, &mut deletes);
                state.sequence = number;
                // If a later record contains the id of a row on disk, that row was replaced or deleted, no matter what
                // happens to the id afterwards.
                for ids in [&change.deleted, &change.ids] {
                    (0..ids.len()).for_each(|k| touched.push_from(ids, k));
                }
                // Ids are looked up in groups: if a block of the lookup holds several of them, it is read once.
                if touched.bytes() >= IDS_TOGETHER_BYTES {
                    state.forget(context, &std::mem::replace(&mut touched, Ids::empty(manifest.ids)))?;
                }
                Ok(())
            })?;
        state.forget(context, &touched)?;
        Ok(found)
    }

    /// Adds the rows on disk with these ids to the delete list.
    fn forget(&mut self, context: &Context, ids: &Ids) -> Result<()> {
        let Some(long_term) = &self.long_term else { return Ok(()) };
        let entries: Vec<u32> = long_term.entries(ids)?.into_iter().flatten().collect();
        let bytes = DeleteList::change_bytes(entries.len() as u64, long_term.index.facts().rows);
        let room = &mut TemporaryIndex::room_for(context, bytes)?;
        for entry in entries {
            self.deleted.add(&long_term.index, entry, room);
        }
        Ok(())
    }

    /// Returns the memory in bytes for the deletes of a change, and for undoing them. The change deletes or replaces at
    /// most `entries` rows of the long-term index.
    pub(super) fn deleting_bytes(&self, change: &Change, entries: u64) -> u64 {
        let rows = self.long_term.as_ref().map_or(0, |long_term| long_term.index.facts().rows);
        2 * (DeleteList::change_bytes(entries, rows) + self.temporary.deleting_bytes(change))
    }

    /// Applies a change for which `room` was reserved, and returns its undo record. `entries` are the entries of the
    /// change's ids in the long-term index; without a long-term index there are none.
    pub(super) fn apply(&mut self, change: &Change, room: WriteRoom, mut entries: Vec<u32>, sequence: u64) -> Undo {
        let WriteRoom { rows, deletes: mut room } = room;
        // The undo record omits entries that were deleted before this change, so undoing it leaves them deleted.
        if let Some(long_term) = &self.long_term {
            entries.retain(|&entry| self.deleted.add(&long_term.index, entry, &mut room));
        }
        self.sequence = sequence;
        let temporary = self.temporary.apply(change, rows, &mut room);
        Undo { sequence, entries, temporary, room }
    }

    /// Undoes the last change that is not undone yet.
    pub(super) fn undo(&mut self, Undo { sequence, entries, temporary, mut room }: Undo) {
        self.temporary.undo(temporary, &mut room);
        if let Some(long_term) = &self.long_term {
            entries.into_iter().for_each(|entry| self.deleted.undo(&long_term.index, entry, &mut room));
        }
        self.sequence = sequence - 1;
    }

    /// Returns whether a live row has id `k`. `entry` is the entry of this id in the long-term index, if any.
    pub(super) fn has(&self, ids: &Ids, k: usize, entry: Option<u32>) -> bool {
        self.temporary.has(ids, k) || entry.is_some_and(|entry| !self.deleted.has(entry))
    }

    /// Returns the number of live rows on disk.
    fn rows_on_disk(&self) -> u64 {
        self.long_term.as_ref().map_or(0, |long_term| long_term.index.facts().rows) - self.deleted.len()
    }

    /// Returns the number of live rows.
    pub(super) fn rows(&self) -> u64 {
        self.rows_on_disk() + self.temporary.live()
    }

    /// Returns a view of the current state.
    pub(super) fn moment(&self) -> StateView {
        let (long_term, deleted, view) = (self.long_term.clone(), self.deleted.clone(), self.temporary.view());
        StateView { long_term, deleted, view, rows: self.rows(), sequence: self.sequence }
    }
}
