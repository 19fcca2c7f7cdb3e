//! What may be found, where a condition leaves the rest out or it was deleted; and how it is looked for.

use adjoin_device::Reservation;

use super::{CollectionChanges, Index, IndexManifest, PURPOSE_SEARCH};
use crate::context::Context;
use crate::error::Result;
use crate::row_numbers::{RankedSet, RowSet};
use crate::sql::Condition;
use crate::store::FilterBitmap;

/// What a read costs, with all that a walk does about it, in distances by codes: some tens of microseconds to some nanoseconds.
const READ_COST: f64 = 2_500.0;
/// Reads of a walk for each candidate that it expands, about, as a page brings others too.
const READS_OF_CANDIDATE: f64 = 0.6;
/// The least share of the vertices that is left by deletes for walks among them to be like those among all.
const MOST_LEFT: f64 = 0.1;
/// Fraction of the rows whose deletion leaves a calibration by all rows as it is: the misses of the others weigh at most as many
/// times more as there are fewer rows.
const DELETED_MAX: f64 = 0.05;

/// Rows that meet a condition or were not deleted, and the vertices that have any.
pub(super) struct FilteredVertices {
    /// By entry.
    rows: FilterBitmap,
    vertices: RankedSet,
    by_condition: bool,
    _memory: Reservation,
}

impl FilteredVertices {
    /// Bytes with which rows are found that meet a condition, or were not deleted.
    pub(super) fn least_bytes(
        facts: &IndexManifest,
        (by_condition, changes): (bool, Option<&CollectionChanges<'_>>),
    ) -> u64 {
        let (rows, vertices) = (facts.rows, u64::from(facts.vertices));
        let has_deleted = changes.is_some_and(|changes| changes.deleted.len() > 0);
        match by_condition {
            true => FilterBitmap::least_bytes(rows) + 2 * RankedSet::memory_bytes(vertices),
            false if has_deleted => RankedSet::memory_bytes(rows) + RankedSet::memory_bytes(vertices),
            false => 0,
        }
    }

    /// Those of an index that meet a condition, and are not among the entries that were deleted.
    ///
    /// # Errors
    /// Where the index has not the attributes that are asked for, or memory does not suffice.
    pub(super) fn of(
        context: &Context,
        index: &Index,
        (condition, deleted): (&Condition, Option<&RowSet>),
    ) -> Result<Self> {
        let rows = index.passing_without(context, condition, deleted)?;
        let vertices = index.facts().vertices.into();
        let memory = context.reserve_between_runs(2 * RankedSet::memory_bytes(vertices), PURPOSE_SEARCH)?;
        let mut admitted = RowSet::new(vertices);
        rows.iter().for_each(|entry| admitted.insert(index.vertex_of(entry).into()));
        Ok(Self { rows, vertices: RankedSet::new(admitted), by_condition: true, _memory: memory })
    }

    /// Those of an index that were not deleted, given the entries that were; none where nothing was.
    ///
    /// # Errors
    /// Where memory does not suffice.
    pub(super) fn without(context: &Context, index: &Index, deleted: &RowSet) -> Result<Option<Self>> {
        if deleted.len() == 0 {
            return Ok(None);
        }
        let (entries, vertices) = (index.facts().rows, u64::from(index.facts().vertices));
        let rows = FilterBitmap::others(context, deleted, entries, PURPOSE_SEARCH)?;
        let memory = context.reserve_between_runs(RankedSet::memory_bytes(vertices), PURPOSE_SEARCH)?;
        let mut admitted = deleted.others(vertices);
        for vertex in index.duplicates.vertices().filter(|&vertex| deleted.contains(vertex.into())) {
            if index.further_entries(vertex).any(|entry| rows.contains(entry)) {
                admitted.insert(vertex.into());
            }
        }
        Ok(Some(Self { rows, vertices: RankedSet::new(admitted), by_condition: false, _memory: memory }))
    }

    /// Whether walks for them may find another share than walks among all do: where a condition chose them, which may have to
    /// do with where they lie, or few are left. Else a walk that keeps as many of them as it would of all finds as much.
    pub(super) fn is_apart(&self, index: &Index) -> bool {
        self.by_condition || f64::from(self.vertices.len()) < MOST_LEFT * f64::from(index.facts().vertices)
    }

    /// Whether so many rows were deleted that the recall of those that are left may differ from that of all.
    pub(super) fn is_thinned(&self, index: &Index) -> bool {
        !self.by_condition && self.rows() as f64 <= (1.0 - DELETED_MAX) * index.facts().rows as f64
    }

    /// Whether the other rows were deleted, rather than left out by a condition.
    pub(super) fn is_by_deletes(&self) -> bool {
        !self.by_condition
    }

    /// Whether a row may be found, by its entry.
    pub(super) fn admits(&self, entry: u32) -> bool {
        self.rows.contains(entry)
    }

    /// How many rows meet the condition, where there is one.
    pub(super) fn passing_rows(&self) -> Option<u64> {
        self.by_condition.then(|| self.rows())
    }

    /// Candidates that a walk comes to hold that is to keep so many that may be found, about.
    pub(super) fn held(&self, index: &Index, list: usize) -> usize {
        let vertices = u64::from(index.facts().vertices);
        (list as u64 * vertices).div_ceil(u64::from(self.vertices.len()).max(1)).min(vertices.max(list as u64)) as usize
    }

    /// The least row of a vertex that may be found, given its first one, which lies on its page; that one where none may be.
    pub(super) fn row_of(&self, index: &Index, vertex: u32, first: u64) -> u64 {
        if self.rows.contains(vertex) {
            return first;
        }
        let mut further = index.further_entries(vertex).zip(index.duplicates.of(vertex).1);
        further.find(|&(entry, _)| self.rows.contains(entry)).map_or(first, |(_, &row)| row)
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> u64 {
        self.rows.count()
    }

    /// The vertices that have any.
    pub(super) fn vertices(&self) -> &RankedSet {
        &self.vertices
    }

    /// Whether an entry may be found.
    pub(super) fn has(&self, entry: u32) -> bool {
        self.rows.contains(entry)
    }

    /// Whether a search measures all that may be found by their codes, rather than to walk among all others: a walk that is to
    /// keep `list` of them comes by as many more as they are rare, and reads their pages.
    pub(super) fn is_by_codes(&self, index: &Index, list: usize) -> bool {
        let admitted = f64::from(self.vertices.len());
        let rarity = f64::from(index.facts().vertices) / admitted.max(1.0);
        let reads_in_vain = READS_OF_CANDIDATE * list as f64 * (rarity - 1.0);
        admitted < READ_COST * reads_in_vain
    }
}
