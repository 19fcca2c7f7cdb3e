//! The delete list of an index: its deleted rows, by entry.

use adjoin_device::Reservation;

use super::Index;
use crate::base::row_numbers::RowSet;
use crate::base::shared_rows::SharedRows;

/// Rows of an index that were deleted or replaced. The entry of a vertex's first row is the number of the vertex. The
/// entries of further rows follow, sorted by vertex. A clone is a snapshot, which later changes do not affect.
#[derive(Clone)]
pub(crate) struct DeleteList {
    entries: SharedRows,
    /// Number of vertices of which all rows are deleted.
    vertices: u32,
}

impl DeleteList {
    /// Creates an empty list for an index of `rows` rows.
    pub(crate) fn new(rows: u64) -> Self {
        Self { entries: SharedRows::new(rows), vertices: 0 }
    }

    /// Returns a list of the given entries.
    #[cfg(test)]
    pub(super) fn of(index: &Index, entries: impl Iterator<Item = u32>) -> Self {
        let rows = index.facts().rows;
        let budget = adjoin_device::MemoryBudget::new(u64::MAX);
        let memory = &mut budget.reserve(Self::change_bytes(rows, rows)).expect("the budget has no bound");
        let mut deleted = Self::new(rows);
        entries.for_each(|entry| _ = deleted.add(index, entry, memory));
        deleted
    }

    /// Returns an upper bound in bytes on the memory for adding or removing `count` entries of an index of `rows` rows.
    pub(crate) fn change_bytes(count: u64, rows: u64) -> u64 {
        SharedRows::change_bytes(count, rows)
    }

    /// Adds an entry, with memory from `memory`. Returns `false` if the list contains it already.
    ///
    /// # Panics
    /// Panics if `memory` is less than [`Self::change_bytes`].
    pub(crate) fn add(&mut self, index: &Index, entry: u32, memory: &mut Reservation) -> bool {
        let is_new = self.entries.insert(entry.into(), memory);
        if is_new && self.has_vertex(index, index.vertex_of(entry)) {
            self.vertices += 1;
        }
        is_new
    }

    /// Removes an entry that was added, with memory from `memory`.
    ///
    /// # Panics
    /// Panics if the list does not have the entry, or if `memory` is less than [`Self::change_bytes`].
    pub(crate) fn undo(&mut self, index: &Index, entry: u32, memory: &mut Reservation) {
        if self.has_vertex(index, index.vertex_of(entry)) {
            self.vertices -= 1;
        }
        assert!(self.entries.remove(entry.into(), memory), "entry {entry} was deleted");
    }

    /// Returns the deleted entries.
    pub(crate) fn entries(&self) -> &SharedRows {
        &self.entries
    }

    /// Returns the number of deleted rows.
    pub(crate) fn len(&self) -> u64 {
        self.entries.len()
    }

    /// Returns whether a row is deleted, given its entry.
    pub(crate) fn has(&self, entry: u32) -> bool {
        self.entries.contains(entry.into())
    }

    /// Returns whether all rows of a vertex are deleted.
    pub(super) fn has_vertex(&self, index: &Index, vertex: u32) -> bool {
        // Few vertices have further rows, but one of them may have most rows of the index, so these are not visited.
        self.has(vertex) && {
            let further = index.further_entries(vertex);
            self.entries.count_in(further.start.into()..further.end.into()) == further.len() as u64
        }
    }

    /// Returns the number of vertices of which all rows are deleted.
    pub(super) fn vertices(&self) -> u32 {
        self.vertices
    }

    /// Returns the vertices with at least one row that is not deleted.
    pub(super) fn kept_vertices(&self, index: &Index) -> RowSet {
        let vertices = index.facts().vertices;
        let mut kept = self.entries.complement(vertices.into());
        // Entries ascend. The entries of first rows are those below the number of vertices.
        for vertex in self.entries.iter().map(|entry| entry as u32).take_while(|&entry| entry < vertices) {
            if !self.has_vertex(index, vertex) {
                kept.insert(vertex.into());
            }
        }
        kept
    }
}
