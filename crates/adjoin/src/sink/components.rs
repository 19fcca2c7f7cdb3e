//! Connected components of rows, by union-find. Each component is identified by its first row.

use crate::base::row_numbers::{RowNumbers, RowSet};

/// Connected components of the pairs that were added so far.
pub struct Components {
    /// For each row, an earlier row of its component, or the row itself if it is the first one.
    earlier: RowNumbers,
    paired: RowSet,
}

impl Components {
    /// Creates a component for each of `rows` rows.
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
        // The earlier root becomes the root, so that the root is always the first row. Union by size would not keep
        // this.
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
