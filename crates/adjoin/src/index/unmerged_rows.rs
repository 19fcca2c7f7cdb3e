//! Searches an index together with changes that are not merged into it. An index on disk never changes: deleted rows
//! are excluded from its hits (`filtered_vertices.rs`), and inserted rows are searched separately (FreshDiskANN: Singh
//! et al., 2021).

use arrow_array::RecordBatch;

use super::{Index, IndexManifest};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::row_numbers::RowSet;
use crate::execute::{Hit, Nearest};
use crate::query::{IdRoom, NamedHits, Naming, QueryTarget, QueryVectors};
use crate::source::{IdKind, Ids};
use crate::store::{ColumnGathering, GatheredColumns, ResultColumns};

/// Changes to an index that are not merged into it.
#[derive(Clone, Copy)]
pub(crate) struct CollectionChanges<'a> {
    /// Deleted entries, out of all entries of the index. First rows of vertices have the numbers of their vertices;
    /// other rows follow, by vertex.
    pub(crate) deleted: &'a RowSet,
    /// Rows that are not in the index.
    pub(crate) unmerged: &'a dyn UnmergedRows,
    /// The columns of these rows that hits carry, if any.
    pub(crate) columns: Option<UnmergedColumns<'a>>,
}

/// Columns of unmerged rows that hits carry.
#[derive(Clone, Copy)]
pub(crate) struct UnmergedColumns<'a> {
    /// Returns the columns of some of the first rows of these numbers, at least of one.
    pub(crate) first_of: &'a (dyn Fn(&[u32]) -> RecordBatch + Sync),
    /// Most bytes of a row.
    pub(crate) row_bytes_max: u64,
}

impl UnmergedColumns<'_> {
    /// Adds rows, by number, to the columns of hits. Returns whether `room` holds them.
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

    /// Returns the bytes that [`UnmergedRows::find`] takes on all threads, without its hits.
    fn finding_bytes(&self, context: &Context) -> u64;

    /// Finds the hits of some queries among these rows, each nearest first. `place.0` of a hit is its number among these rows, from 0; `row` is that number plus
    /// `first_row`. Returns `None` if memory does not hold the hits of queries without a limit on hits.
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

    /// Appends the id of a row to ids of the same kind if there is room for it. Returns whether there is.
    fn append_id(&self, number: u32, ids: &mut Ids, room: &mut IdRoom<'_>) -> bool;
}

/// Value of `place.1` in hits outside the index. Hits in the index have 0.
const UNMERGED: u32 = 1;

/// Target of a search, and the changes since the index was built.
#[derive(Clone, Copy)]
pub(super) struct ChangedTarget<'a> {
    pub(super) wanted: QueryTarget,
    pub(super) changes: Option<&'a CollectionChanges<'a>>,
}

impl ChangedTarget<'_> {
    /// Returns the number of rows.
    pub(super) fn rows(self, facts: &IndexManifest) -> u64 {
        facts.rows + self.changes.map_or(0, |changes| changes.unmerged.rows())
    }

    /// Returns the memory, beyond that reserved with a query, with which it is answered even if it finds every row.
    pub(super) fn all_hits_bytes(self, facts: &IndexManifest) -> u64 {
        self.wanted.all_hits_bytes(self.rows(facts))
    }

    /// Returns the bytes of a query's hits outside the index that are reserved with it.
    pub(super) fn bytes_of_hits(self) -> u64 {
        let rows = self.changes.map_or(0, |changes| changes.unmerged.rows());
        match self.wanted.among(rows) {
            QueryTarget::Nearest(0) | QueryTarget::Within(_) => 0,
            QueryTarget::Nearest(k) => Nearest::memory_bytes(k),
        }
    }

    /// Returns the bytes for finding hits outside the index.
    pub(super) fn finding_bytes(self, context: &Context) -> u64 {
        self.changes.map_or(0, |changes| changes.unmerged.finding_bytes(context))
    }

    /// Adds the hits outside the index to those in it, and keeps the nearest of both. Returns `None` if memory does not
    /// hold them.
    ///
    /// # Errors
    /// Those of [`UnmergedRows::find`].
    pub(super) fn add_unmerged(
        self,
        context: &Context,
        index: &Index,
        queries: QueryVectors<'_>,
        mut found: Vec<Vec<Hit>>,
    ) -> Result<Option<Vec<Vec<Hit>>>> {
        let Some(CollectionChanges { unmerged, .. }) = self.changes.filter(|changes| changes.unmerged.rows() > 0)
        else {
            return Ok(Some(found));
        };
        // The hits in the index are held while the other rows are searched.
        let held = self.wanted.held_bytes(found.iter().map(|hits| hits.len() as u64).sum());
        let Ok(_held) = context.budget().reserve(held) else { return Ok(None) };
        // Memory for hits is reserved by K, and there are no more hits than rows.
        let wanted = self.wanted.among(unmerged.rows());
        // Numbered after the rows of the index, so that of equally near hits those in the index are first.
        let Some(more) = unmerged.find(context, queries, wanted, index.facts().source_rows)? else { return Ok(None) };
        for (hits, more) in found.iter_mut().zip(more) {
            hits.extend(more.into_iter().map(|hit| Hit { place: (hit.place.0, UNMERGED), ..hit }));
            hits.sort(); // merges two sorted parts
            hits.truncate(self.wanted.hits_max());
        }
        Ok(Some(found))
    }

    /// Reads the columns of the hits at some places. Returns `None` if they do not fit into `room`.
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
        // Unmerged rows follow all entries, of which there are less than 2^32.
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

    /// Looks up the ids of the hits at some places. Returns `None` if they do not fit into `room`.
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
