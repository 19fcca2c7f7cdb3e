//! Connected components of rows: union-find, with each component named by its first row.

use crate::base::row_numbers::{RowNumbers, RowSet};

/// The connected components of the pairs so far.
pub struct Components {
    /// Per row, an earlier row of its component, or the row itself if it is the first.
    earlier: RowNumbers,
    paired: RowSet,
}

impl Components {
    /// Creates components of `rows` rows, each alone.
    pub fn new(rows: u64) -> Self {
        Self { earlier: RowNumbers::new(rows, |row| row), paired: RowSet::new(rows) }
    }

    /// Returns the bytes of memory for `rows` rows.
    pub fn memory_bytes(rows: u64) -> u64 {
        RowNumbers::memory_bytes(rows) + RowSet::memory_bytes(rows)
    }

    /// Adds a pair.
    pub fn join(&mut self, row: u64, other: u64) {
        self.paired.insert(row);
        self.paired.insert(other);
        let (row, other) = (self.first(row), self.first(other));
        // The earlier row stays the name of the component; balancing by size would lose that.
        self.earlier.set(row.max(other), row.min(other));
    }

    /// Returns the first row of a row's component.
    pub fn first(&mut self, mut row: u64) -> u64 {
        loop {
            let earlier = self.earlier.get(row);
            if earlier == row {
                return row;
            }
            // Path halving (Tarjan and van Leeuwen 1984).
            let before = self.earlier.get(earlier);
            self.earlier.set(row, before);
            row = before;
        }
    }

    /// Returns whether a row is in any pair.
    pub fn is_paired(&self, row: u64) -> bool {
        self.paired.contains(row)
    }
}
