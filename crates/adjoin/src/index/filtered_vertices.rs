//! Finds the rows and vertices that can be hits if a filter or deletes exclude others. Helps to choose the search
//! method.

use std::ops::Range;

use adjoin_device::Reservation;

use super::delete_list::DeleteList;
use super::{Index, IndexManifest, PURPOSE_SEARCH};
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
pub(super) struct FilteredVertices<'a> {
    index: &'a Index,
    filter: RowFilter<'a>,
}

enum RowFilter<'a> {
    /// Rows that pass a filter and are not deleted, by entry, and the vertices with at least one of them.
    Condition { rows: FilterBitmap, vertices: RankedSet, _memory: Reservation },
    /// All rows that are not deleted. A search decides this for each vertex that it visits, so it does no work for the
    /// other rows.
    Kept(&'a DeleteList),
}

impl<'a> FilteredVertices<'a> {
    /// Returns the bytes for finding the rows that pass a filter and are not deleted.
    pub(super) fn least_bytes(facts: &IndexManifest, by_condition: bool) -> u64 {
        let (rows, vertices) = (facts.rows, u64::from(facts.vertices));
        if by_condition { FilterBitmap::least_bytes(rows) + 2 * RankedSet::memory_bytes(vertices) } else { 0 }
    }

    /// Finds the rows of an index that pass a filter and are not deleted.
    ///
    /// # Errors
    /// If the index lacks a column of the filter, or if memory does not suffice.
    pub(super) fn of(
        context: &Context,
        index: &'a Index,
        condition: &Condition,
        deleted: Option<&DeleteList>,
    ) -> Result<Self> {
        let rows = index.passing_without(context, condition, deleted)?;
        let count = index.facts().vertices.into();
        let memory = context.reserve_between_runs(2 * RankedSet::memory_bytes(count), PURPOSE_SEARCH)?;
        let mut vertices = RowSet::new(count);
        // A vertex can be a hit if any of its rows passes.
        rows.iter().for_each(|entry| vertices.insert(index.vertex_of(entry).into()));
        let filter = RowFilter::Condition { rows, vertices: RankedSet::new(vertices), _memory: memory };
        Ok(Self { index, filter })
    }

    /// Returns the rows of an index that are not deleted, or `None` if nothing is deleted.
    pub(super) fn excluding(index: &'a Index, deleted: &'a DeleteList) -> Option<Self> {
        (deleted.len() > 0).then_some(Self { index, filter: RowFilter::Kept(deleted) })
    }

    /// Returns whether walks may have another recall for these rows than for all rows. They may if a filter selected
    /// the rows, since a filter may correlate with their location, or if few rows remain after deletes. Otherwise a
    /// walk whose list counts only these rows has the recall of a walk among all rows.
    pub(super) fn is_apart(&self) -> bool {
        !self.is_by_deletes() || f64::from(self.vertices()) < MOST_LEFT * f64::from(self.index.facts().vertices)
    }

    /// Returns whether the recall of the remaining rows may differ from the recall of all rows because of deletes.
    pub(super) fn is_thinned(&self) -> bool {
        self.is_by_deletes() && self.rows() as f64 <= (1.0 - DELETED_MAX) * self.index.facts().rows as f64
    }

    /// Returns whether rows are excluded only because they are deleted, and not by a filter.
    pub(super) fn is_by_deletes(&self) -> bool {
        matches!(self.filter, RowFilter::Kept(_))
    }

    /// Returns whether a row, given by its entry, can be a hit.
    pub(super) fn admits(&self, entry: u32) -> bool {
        match &self.filter {
            RowFilter::Condition { rows, .. } => rows.contains(entry),
            RowFilter::Kept(deleted) => !deleted.has(entry),
        }
    }

    /// Returns whether a vertex has a row that can be a hit.
    pub(super) fn admits_vertex(&self, vertex: u32) -> bool {
        match &self.filter {
            RowFilter::Condition { vertices, .. } => vertices.contains(vertex),
            RowFilter::Kept(deleted) => !deleted.has_vertex(self.index, vertex),
        }
    }

    /// Returns whether any vertex in `range` has a row that can be a hit.
    pub(super) fn admits_any(&self, mut range: Range<u32>) -> bool {
        match &self.filter {
            RowFilter::Condition { vertices, .. } => vertices.rank(range.start) < vertices.rank(range.end),
            RowFilter::Kept(_) => range.any(|vertex| self.admits_vertex(vertex)),
        }
    }

    /// Returns the number of rows that pass the filter, or `None` if there is no filter.
    pub(super) fn passing_rows(&self) -> Option<u64> {
        (!self.is_by_deletes()).then(|| self.rows())
    }

    /// Returns the approximate number of all candidates that a walk holds if `list` of them can be hits.
    pub(super) fn held(&self, list: usize) -> usize {
        let vertices = u64::from(self.index.facts().vertices);
        // If one vertex in s can be a hit, a walk holds about s candidates for each candidate that can be a hit.
        (list as u64 * vertices).div_ceil(u64::from(self.vertices()).max(1)).min(vertices.max(list as u64)) as usize
    }

    /// Returns the number of the first row of a vertex that can be a hit. `first` is the number of its first row, as
    /// stored on its page. Returns `first` if no row of the vertex can be a hit.
    pub(super) fn row_of(&self, vertex: u32, first: u64) -> u64 {
        if self.admits(vertex) {
            return first;
        }
        // The row numbers of a vertex ascend, so the first row that can be a hit has the smallest number.
        let mut further = self.index.further_entries(vertex).zip(self.index.duplicates.of(vertex).1);
        further.find(|&(entry, _)| self.admits(entry)).map_or(first, |(_, &row)| row)
    }

    /// Returns the number of rows that can be hits.
    pub(super) fn rows(&self) -> u64 {
        match &self.filter {
            RowFilter::Condition { rows, .. } => rows.count(),
            RowFilter::Kept(deleted) => self.index.facts().rows - deleted.len(),
        }
    }

    /// Returns the number of vertices with at least one row that can be a hit.
    pub(super) fn vertices(&self) -> u32 {
        match &self.filter {
            RowFilter::Condition { vertices, .. } => vertices.len(),
            RowFilter::Kept(deleted) => self.index.facts().vertices - deleted.vertices(),
        }
    }

    /// Iterates over the vertices with at least one row that can be a hit, in ascending order.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = u32> + '_> {
        match &self.filter {
            RowFilter::Condition { vertices, .. } => Box::new(vertices.iter()),
            RowFilter::Kept(_) => {
                Box::new((0..self.index.facts().vertices).filter(|&vertex| self.admits_vertex(vertex)))
            }
        }
    }

    /// Returns whether a search estimates the distances of all admitted vertices by codes instead of walking among all
    /// vertices. If admitted vertices are rare, a walk must visit many other vertices, and read their pages, before it
    /// has `list` admitted ones.
    pub(super) fn is_by_codes(&self, list: usize) -> bool {
        let admitted = f64::from(self.vertices());
        let rarity = f64::from(self.index.facts().vertices) / admitted.max(1.0);
        // The comparison by codes also reads the pages of its list, so only the reads beyond these count.
        let reads_in_vain = READS_OF_CANDIDATE * list as f64 * (rarity - 1.0);
        admitted < READ_COST * reads_in_vain
    }
}
