//! Number of pairs per row, counted by many threads.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::base::error::Result;
use crate::base::mutex::lock;
use crate::base::sorter::{Records, Sorter};

/// Number of pairs after which the counter of a row wraps around to 0.
const WRAP: u64 = 1 << u8::BITS;

/// Number of pairs per row, counted by many threads.
///
/// Most rows have few neighbors, so the counter of a row is one byte. Each time it wraps around, a record of the row
/// is added to a sorter on disk.
pub struct Tally {
    /// Count of each row modulo [`WRAP`].
    counters: Vec<AtomicU8>,
    /// For each row, one record per [`WRAP`] neighbors.
    wraps: Mutex<Sorter>,
}

impl Tally {
    /// Creates an empty tally. `wraps` sorts the records of counters that wrapped around.
    pub(super) fn new(rows: u64, wraps: Sorter) -> Self {
        Self { counters: (0..rows).map(|_| AtomicU8::new(0)).collect(), wraps: Mutex::new(wraps) }
    }

    /// Adds `count` pairs of a row.
    ///
    /// # Errors
    /// If sorted records cannot be written to disk.
    pub fn add(&self, row: u64, count: u32) -> Result<()> {
        let below = (u64::from(count) % WRAP) as u8;
        let before = self.counters[row as usize].fetch_add(below, Ordering::Relaxed); // wraps around
        // The counter has wrapped around if the sum does not fit in a byte.
        let wraps = u64::from(count) / WRAP + u64::from(before.checked_add(below).is_none());
        if wraps == 0 {
            return Ok(());
        }
        // This code runs once per 256 neighbors of a row, so threads rarely wait for the lock.
        let mut sorter = lock(&self.wraps);
        (0..wraps).try_for_each(|_| sorter.push((row, 0), &[]))
    }

    /// Returns the counts, to be read in ascending order of rows.
    pub(super) fn finish(self) -> Result<RowCounts> {
        let wraps = self.wraps.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?;
        Ok(RowCounts { counters: self.counters, wraps: Records::new(wraps)? })
    }
}

/// The counts of a completed tally.
pub(super) struct RowCounts {
    counters: Vec<AtomicU8>,
    wraps: Records,
}

impl RowCounts {
    pub(super) fn rows(&self) -> u64 {
        self.counters.len() as u64
    }

    /// Returns the count of a row. Rows must be passed in ascending order.
    pub(super) fn of(&mut self, row: u64) -> Result<u64> {
        let mut count = u64::from(self.counters[row as usize].load(Ordering::Relaxed));
        self.wraps.each_of(row, |_, _| {
            count += WRAP;
            Ok(())
        })?;
        Ok(count)
    }

    /// Returns the bytes written while sorting.
    pub(super) fn spilled(&self) -> u64 {
        self.wraps.spilled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::context::Context;

    #[test]
    fn concurrent_counts_of_a_row_are_exact() {
        let context = Context::default();
        let folder = tempfile::tempdir().unwrap();
        let tally = Tally::new(3, Sorter::new(&context, &folder.path().join("wraps"), 1 << 20));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..500).for_each(|_| tally.add(1, 1).unwrap());
                    [255, 256, 257, 1000].into_iter().for_each(|count| tally.add(2, count).unwrap());
                });
            }
        });
        let mut counts = tally.finish().unwrap();
        assert_eq!([0, 1, 2].map(|row| counts.of(row).unwrap()), [0, 2000, 4 * 1768]);
    }
}
