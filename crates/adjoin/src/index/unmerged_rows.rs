//! Searches an index together with changes that are not merged into it. The index on disk does not change until the
//! merge. Until then, deleted rows are excluded from its hits (`filtered_vertices.rs`), and inserted rows are searched
//! separately (FreshDiskANN: Singh et al., 2021).

use adjoin_device::Reservation;
use arrow_array::RecordBatch;

use super::delete_list::DeleteList;
use super::{Index, IndexManifest};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::execute::{Hit, Nearest};
use crate::query::{IdRoom, NamedHits, Naming, QueryTarget, QueryVectors};
use crate::source::{IdKind, Ids};
use crate::store::{ColumnGathering, GatheredColumns, ResultColumns};

/// Changes to an index that are not merged into it.
#[derive(Clone, Copy)]
pub(crate) struct CollectionChanges<'a> {
    /// Deleted rows of the index.
    pub(crate) deleted: &'a DeleteList,
    /// Rows that are not in the index.
    pub(crate) unmerged: &'a dyn UnmergedRows,
    /// The columns of the unmerged rows that hits carry, if any.
    pub(crate) columns: Option<UnmergedColumns<'a>>,
}

/// Columns of unmerged rows that hits carry.
#[derive(Clone, Copy)]
pub(crate) struct UnmergedColumns<'a> {
    /// Returns a table with the columns of the rows with the given numbers. The table may end early, but has at least
    /// one row.
    pub(crate) first_of: &'a (dyn Fn(&[u32]) -> RecordBatch + Sync),
    /// Largest number of bytes of a row.
    pub(crate) row_bytes_max: u64,
}

impl UnmergedColumns<'_> {
    /// Adds the columns of the rows with the given numbers to `gathering`. Returns `false` if they do not fit in
    /// `room`.
    pub(crate) fn add_to(self, gathering: &mut ColumnGathering, mut numbers: &[u32], room: &mut IdRoom<'_>) -> bool {
        while !numbers.is_empty() {
            let table = (self.first_of)(numbers);
            numbers = &numbers[table.num_rows()..];
            if !gathering.add(table, room) {
                return false;
            }
        }
        true
    }
}

/// Rows that are searched in addition to the index.
pub(crate) trait UnmergedRows: Sync {
    /// Returns the number of rows.
    fn rows(&self) -> u64;

    /// Returns the bytes that [`UnmergedRows::find`] needs on all threads, not counting hits.
    fn finding_bytes(&self, context: &Context) -> u64;

    /// Finds the hits of each query among these rows, nearest first. In a hit, `place.0` is the number of the row among
    /// these rows, from 0, and `row` is this number plus `first_row`. Returns `None` if memory does not hold the hits,
    /// which can happen only if the number of hits has no limit.
    ///
    /// # Errors
    /// If memory does not suffice, or if the work is cancelled.
    fn find(
        &self,
        context: &Context,
        queries: QueryVectors<'_>,
        target: QueryTarget,
        first_row: u64,
    ) -> Result<Option<Vec<Vec<Hit>>>>;

    /// Appends the id of a row to `ids`, which are of its kind. Returns `false` if the id does not fit in `room`.
    fn append_id(&self, number: u32, ids: &mut Ids, room: &mut IdRoom<'_>) -> bool;
}

/// Value of `place.1` in hits that are unmerged rows. It is 0 in hits that are rows of the index.
const UNMERGED: u32 = 1;

/// Target of a search, and the changes since the index was built.
#[derive(Clone, Copy)]
pub(super) struct ChangedTarget<'a> {
    pub(super) wanted: QueryTarget,
    pub(super) changes: Option<&'a CollectionChanges<'a>>,
}

/// Hits of queries among unmerged rows.
#[derive(Default)]
pub(super) struct UnmergedHits {
    /// Hits of each query, nearest first. Empty if there are no unmerged rows.
    hits: Vec<Vec<Hit>>,
    _memory: Option<Reservation>,
}

impl UnmergedHits {
    /// Returns the hits of each query, nearest first. Returns an empty list if there are no unmerged rows.
    pub(super) fn hits(&self) -> &[Vec<Hit>] {
        &self.hits
    }

    /// Adds these hits to `found`, the hits in the index, and keeps the nearest of both.
    pub(super) fn add_to(self, found: &mut [Vec<Hit>], wanted: QueryTarget) {
        for (hits, more) in found.iter_mut().zip(self.hits) {
            hits.extend(more);
            hits.sort(); // merges two sorted parts
            hits.truncate(wanted.hits_max());
        }
    }
}

impl ChangedTarget<'_> {
    /// Returns the number of rows.
    pub(super) fn rows(self, facts: &IndexManifest) -> u64 {
        facts.rows + self.changes.map_or(0, |changes| changes.unmerged.rows())
    }

    /// Returns the bytes that a query needs in addition to its own reservation if all rows are hits.
    pub(super) fn all_hits_bytes(self, facts: &IndexManifest) -> u64 {
        self.wanted.all_hits_bytes(self.rows(facts))
    }

    /// Returns the bytes to reserve for the hits of a query among unmerged rows.
    pub(super) fn bytes_of_hits(self) -> u64 {
        let rows = self.changes.map_or(0, |changes| changes.unmerged.rows());
        match self.wanted.among(rows) {
            QueryTarget::Nearest(0) | QueryTarget::Within(_) => 0,
            QueryTarget::Nearest(k) => Nearest::memory_bytes(k),
        }
    }

    /// Returns the bytes for finding hits among unmerged rows.
    pub(super) fn finding_bytes(self, context: &Context) -> u64 {
        self.changes.map_or(0, |changes| changes.unmerged.finding_bytes(context))
    }

    /// Finds the hits among unmerged rows. Returns `None` if memory does not hold the hits.
    ///
    /// # Errors
    /// The errors of [`UnmergedRows::find`].
    pub(super) fn unmerged_hits(
        self,
        context: &Context,
        index: &Index,
        queries: QueryVectors<'_>,
    ) -> Result<Option<UnmergedHits>> {
        let Some(CollectionChanges { unmerged, .. }) = self.changes.filter(|changes| changes.unmerged.rows() > 0)
        else {
            return Ok(Some(UnmergedHits::default()));
        };
        // Memory is reserved for K hits. There are no more hits than unmerged rows, so K is limited to their number.
        let wanted = self.wanted.among(unmerged.rows());
        // Unmerged rows are numbered after the rows of the index. If two hits are equally near, the one in the index is
        // first.
        let Some(mut hits) = unmerged.find(context, queries, wanted, index.facts().source_rows)? else {
            return Ok(None);
        };
        hits.iter_mut().flatten().for_each(|hit| hit.place.1 = UNMERGED);
        // These hits are held while the index is searched.
        let held = self.wanted.held_bytes(hits.iter().map(|hits| hits.len() as u64).sum());
        Ok(context.budget().reserve(held).ok().map(|memory| UnmergedHits { hits, _memory: Some(memory) }))
    }

    /// Reads the columns of hits by their places. Returns `None` if they do not fit in `room`.
    ///
    /// # Errors
    /// If the columns of the index cannot be read, or are damaged.
    pub(super) fn columns(
        self,
        context: &Context,
        stored: &ResultColumns<'_>,
        places: &[(u32, u32)],
        room: &mut IdRoom<'_>,
    ) -> Result<Option<GatheredColumns>> {
        // The keys of unmerged rows are larger than the keys of all entries, which are less than 2^32.
        let key = |&(number, whose): &(u32, u32)| u64::from(whose) << 32 | u64::from(number);
        let mut gathering = ColumnGathering::new(places.iter().map(key).collect());
        let keys = gathering.distinct();
        let (on_disk, in_memory) = keys.split_at(keys.partition_point(|&key| key >> 32 != u64::from(UNMERGED)));
        let numbers = |keys: &[u64]| keys.iter().map(|&key| key as u32).collect::<Vec<u32>>();
        let fits = gathering.add_stored(context, stored, &numbers(on_disk), room)?
            && self
                .changes
                .and_then(|changes| changes.columns)
                .is_none_or(|columns| columns.add_to(&mut gathering, &numbers(in_memory), room));
        Ok(fits.then(|| gathering.finish()))
    }

    /// Looks up the ids of hits by their places. Returns `None` if they do not fit in `room`.
    ///
    /// # Errors
    /// If the ids of the index cannot be read, or are damaged.
    pub(super) fn name(
        self,
        index: &Index,
        kind: IdKind,
        places: &[(u32, u32)],
        room: &mut IdRoom<'_>,
    ) -> Result<Option<NamedHits>> {
        let mut naming = Naming::new(kind, places);
        let mut reader = index.id_reader(kind);
        while let Some((number, whose)) = naming.place() {
            let fits = match self.changes.filter(|_| whose == UNMERGED) {
                Some(CollectionChanges { unmerged, .. }) => unmerged.append_id(number, naming.ids(), room),
                None => {
                    let appended = reader.append(number, naming.ids(), &mut |bytes| room.take_id(bytes));
                    appended.map_err(|unreadable| index.unreadable_id(unreadable))?
                }
            };
            if !fits {
                return Ok(None);
            }
            naming.advance();
        }
        Ok(Some(naming.finish()))
    }
}
