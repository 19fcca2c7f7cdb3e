//! Finds the rows and vertices that can be hits if a filter or deletes exclude others. Helps to choose the search
//! method.

use adjoin_device::Reservation;

use super::{CollectionChanges, Index, IndexManifest, PURPOSE_SEARCH};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::row_numbers::{RankedSet, RowSet};
use crate::sql::Condition;
use crate::store::FilterBitmap;

/// Cost of a page read and of the steps of a walk that belong to it, in units of the cost of a distance by codes. A
/// read takes tens of microseconds, a distance a few nanoseconds.
const READ_COST: f64 = 2_500.0;
/// Approximate number of reads of a walk per expanded candidate. It is below 1, since a page may hold several
/// candidates.
const READS_OF_CANDIDATE: f64 = 0.6;
/// If deletes leave a smaller fraction of the vertices than this, walks may have another recall than without deletes.
const MOST_LEFT: f64 = 0.1;
/// If at least this fraction of the rows is deleted, a calibration with all rows is not used anymore. If fewer rows are
/// deleted, each miss has a little more weight among the remaining rows. The weight grows at most by the factor by
/// which the number of rows shrinks.
const DELETED_MAX: f64 = 0.05;

/// Rows that pass the filter and are not deleted, and the vertices with at least one of these rows.
pub(super) struct FilteredVertices {
    /// Rows, by entry.
    rows: FilterBitmap,
    vertices: RankedSet,
    by_condition: bool,
    _memory: Reservation,
}

impl FilteredVertices {
    /// Returns the bytes for finding the rows that pass a filter and are not deleted.
    pub(super) fn least_bytes(
        facts: &IndexManifest,
        by_condition: bool,
        changes: Option<&CollectionChanges<'_>>,
    ) -> u64 {
        let (rows, vertices) = (facts.rows, u64::from(facts.vertices));
        let has_deleted = changes.is_some_and(|changes| changes.deleted.len() > 0);
        match by_condition {
            true => FilterBitmap::least_bytes(rows) + 2 * RankedSet::memory_bytes(vertices),
            false if has_deleted => RankedSet::memory_bytes(rows) + RankedSet::memory_bytes(vertices),
            false => 0,
        }
    }

    /// Finds the rows of an index that pass a filter and are not in `deleted`.
    ///
    /// # Errors
    /// If the index lacks a column of the filter, or if memory does not suffice.
    pub(super) fn of(
        context: &Context,
        index: &Index,
        condition: &Condition,
        deleted: Option<&RowSet>,
    ) -> Result<Self> {
        let rows = index.passing_without(context, condition, deleted)?;
        let vertices = index.facts().vertices.into();
        let memory = context.reserve_between_runs(2 * RankedSet::memory_bytes(vertices), PURPOSE_SEARCH)?;
        let mut admitted = RowSet::new(vertices);
        // A vertex can be a hit if any of its rows passes.
        rows.iter().for_each(|entry| admitted.insert(index.vertex_of(entry).into()));
        Ok(Self { rows, vertices: RankedSet::new(admitted), by_condition: true, _memory: memory })
    }

    /// Returns the rows of an index that are not in `deleted`, or `None` if nothing is deleted.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(super) fn without(context: &Context, index: &Index, deleted: &RowSet) -> Result<Option<Self>> {
        if deleted.len() == 0 {
            return Ok(None);
        }
        let (entries, vertices) = (index.facts().rows, u64::from(index.facts().vertices));
        let rows = FilterBitmap::others(context, deleted, entries, PURPOSE_SEARCH)?;
        let memory = context.reserve_between_runs(RankedSet::memory_bytes(vertices), PURPOSE_SEARCH)?;
        // The entry of a vertex's first row is the number of the vertex, so the first bits are for the first rows of
        // vertices.
        let mut admitted = deleted.others(vertices);
        // The first row of a vertex may be deleted while another of its rows remains.
        for vertex in index.duplicates.vertices().filter(|&vertex| deleted.contains(vertex.into())) {
            if index.further_entries(vertex).any(|entry| rows.contains(entry)) {
                admitted.insert(vertex.into());
            }
        }
        Ok(Some(Self { rows, vertices: RankedSet::new(admitted), by_condition: false, _memory: memory }))
    }

    /// Returns whether walks may have another recall for these rows than for all rows. They may if a filter selected
    /// the rows, since a filter may correlate with their location, or if few rows remain after deletes. Otherwise a
    /// walk whose list counts only these rows has the recall of a walk among all rows.
    pub(super) fn is_apart(&self, index: &Index) -> bool {
        self.by_condition || f64::from(self.vertices.len()) < MOST_LEFT * f64::from(index.facts().vertices)
    }

    /// Returns whether the recall of the remaining rows may differ from the recall of all rows because of deletes.
    pub(super) fn is_thinned(&self, index: &Index) -> bool {
        !self.by_condition && self.rows() as f64 <= (1.0 - DELETED_MAX) * index.facts().rows as f64
    }

    /// Returns whether rows are excluded only because they are deleted, and not by a filter.
    pub(super) fn is_by_deletes(&self) -> bool {
        !self.by_condition
    }

    /// Returns whether a row, given by its entry, can be a hit.
    pub(super) fn admits(&self, entry: u32) -> bool {
        self.rows.contains(entry)
    }

    /// Returns the number of rows that pass the filter, or `None` if there is no filter.
    pub(super) fn passing_rows(&self) -> Option<u64> {
        self.by_condition.then(|| self.rows())
    }

    /// Returns the approximate number of all candidates that a walk holds if `list` of them can be hits.
    pub(super) fn held(&self, index: &Index, list: usize) -> usize {
        let vertices = u64::from(index.facts().vertices);
        // If one vertex in s can be a hit, a walk holds about s candidates for each candidate that can be a hit.
        (list as u64 * vertices).div_ceil(u64::from(self.vertices.len()).max(1)).min(vertices.max(list as u64)) as usize
    }

    /// Returns the number of the first row of a vertex that can be a hit. `first` is the number of its first row, as
    /// stored on its page. Returns `first` if no row of the vertex can be a hit.
    pub(super) fn row_of(&self, index: &Index, vertex: u32, first: u64) -> u64 {
        if self.rows.contains(vertex) {
            return first;
        }
        // The row numbers of a vertex ascend, so the first row that can be a hit has the smallest number.
        let mut further = index.further_entries(vertex).zip(index.duplicates.of(vertex).1);
        further.find(|&(entry, _)| self.rows.contains(entry)).map_or(first, |(_, &row)| row)
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows.count()
    }

    /// Returns the vertices with at least one row that can be a hit.
    pub(super) fn vertices(&self) -> &RankedSet {
        &self.vertices
    }

    /// Returns whether an entry can be a hit.
    pub(super) fn has(&self, entry: u32) -> bool {
        self.rows.contains(entry)
    }

    /// Returns whether a search estimates the distances of all admitted vertices by codes instead of walking among all
    /// vertices. If admitted vertices are rare, a walk must visit many other vertices, and read their pages, before it
    /// has `list` admitted ones.
    pub(super) fn is_by_codes(&self, index: &Index, list: usize) -> bool {
        let admitted = f64::from(self.vertices.len());
        let rarity = f64::from(index.facts().vertices) / admitted.max(1.0);
        // The comparison by codes also reads the pages of its list, so only the reads beyond these count.
        let reads_in_vain = READS_OF_CANDIDATE * list as f64 * (rarity - 1.0);
        admitted < READ_COST * reads_in_vain
    }
}
