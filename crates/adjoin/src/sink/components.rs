//! Which rows are connected by chains of pairs: union-find, each component named by its first row.

use crate::row_numbers::{RowNumbers, RowSet};

/// The connected components of the pairs so far.
pub struct Components {
    /// A row of the same component that comes earlier, or the row itself where it is the first.
    earlier: RowNumbers,
    paired: RowSet,
}

impl Components {
    /// Each of `rows` rows alone.
    pub fn new(rows: u64) -> Self {
        Self { earlier: RowNumbers::new(rows, |row| row), paired: RowSet::new(rows) }
    }

    /// Bytes that it takes in memory.
    pub fn memory_bytes(rows: u64) -> u64 {
        RowNumbers::memory_bytes(rows) + RowSet::memory_bytes(rows)
    }

    /// Takes a pair.
    pub fn join(&mut self, a: u64, b: u64) {
        self.paired.insert(a);
        self.paired.insert(b);
        let (a, b) = (self.first(a), self.first(b));
        self.earlier.set(a.max(b), a.min(b));
    }

    /// The first row of a row's component.
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

    /// Whether a row is in any pair.
    pub fn is_paired(&self, row: u64) -> bool {
        self.paired.contains(row)
    }
}
