//! Members of two buckets against each other: the kernel leaves out what is surely too far, the predicate decides the
//! rest.

use adjoin_kernels::{Kernel, TILE_COLUMNS, TILE_ROWS};

use super::filter::{Filter, Ordered};
use crate::error::Result;
use crate::geometry::{Coordinate, Threshold};
use crate::load::Coding;
use crate::predicate::Predicate;

/// Rows that go to the kernel at once.
const BLOCK_ROWS: usize = 64;
/// The same where columns are many, so that fewer pairs may be hits at once than this.
const BLOCK_ROWS_MIN: usize = 4 * TILE_ROWS;
const BLOCK_PAIRS: usize = 128 << 10;
/// Hits whose values are computed at once.
const DECIDED_AT_ONCE: usize = 256;

/// One worker's comparison of members.
pub(crate) struct Tiles<'a, T: Coordinate> {
    kernel: Kernel,
    predicate: Predicate,
    filter: Filter<'a, T>,
    hits: Vec<(u32, u32)>,
    /// Of the hits, the members of those that are to be decided, and what became of them.
    pairs: Vec<(u32, u32)>,
    decided: Vec<Option<f32>>,
}

/// Rows that go to the kernel at once, with so many columns: whole tiles.
fn block_rows(columns: usize) -> usize {
    (BLOCK_PAIRS / columns.max(1) / TILE_ROWS * TILE_ROWS).clamp(BLOCK_ROWS_MIN, BLOCK_ROWS)
}

/// What a comparison took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Pairs whose distance was computed, whole tiles included.
    pub(crate) verified_pairs: u64,
    /// Pairs that were decided by their values as stored.
    pub(crate) decided_pairs: u64,
}

impl<'a, T: Coordinate> Tiles<'a, T> {
    /// For pairs that `predicate` accepts, which is `threshold` in coordinates.
    pub(crate) fn new(
        kernel: Kernel,
        predicate: Predicate,
        threshold: &'a Threshold,
        coding: Option<&'a Coding>,
    ) -> Self {
        let filter = Filter::new(kernel, threshold, coding);
        Self { kernel, predicate, filter, hits: Vec::new(), pairs: Vec::new(), decided: Vec::new() }
    }

    /// Bytes that it holds for at most so many columns.
    pub(crate) fn memory_bytes(columns: usize, dimensions: usize) -> u64 {
        // Hits in a vector that doubles as it grows.
        let columns = columns.next_multiple_of(TILE_COLUMNS);
        let hits = 2 * block_rows(columns) * columns * size_of::<(u32, u32)>();
        let decided = DECIDED_AT_ONCE * (size_of::<(u32, u32)>() + size_of::<Option<f32>>());
        Filter::<T>::memory_bytes(columns, dimensions) + (hits + decided) as u64
    }

    /// Finds the pairs of the result among each row and the first `reach` columns, of which there is one for each row,
    /// not ascending. Of the pairs that may belong to it, those that `is_new` refuses are left out; the others are
    /// handed to `take` as member of `rows`, member of `columns` and value.
    ///
    /// # Errors
    /// Of `take`.
    pub(crate) fn compare(
        &mut self,
        rows: Ordered<'_, T>,
        columns: Ordered<'_, T>,
        reach: &[u32],
        is_new: impl Fn(u32, u32) -> bool,
        mut take: impl FnMut(u32, u32, f32) -> Result<()>,
    ) -> Result<Compared> {
        let mut compared = Compared::default();
        self.filter.pack(columns);
        let block_rows = block_rows(columns.order.len());
        for (order, reach) in rows.order.chunks(block_rows).zip(reach.chunks(block_rows)) {
            let block = Ordered { order, ..rows };
            compared.verified_pairs += self.filter.within(block, columns, reach, &mut self.hits);
            let members = |&(row, column): &(u32, u32)| (order[row as usize], columns.order[column as usize]);
            for hits in self.hits.chunks(DECIDED_AT_ONCE) {
                self.pairs.clear();
                self.pairs.extend(hits.iter().map(members).filter(|&(x, y)| is_new(x, y)));
                compared.decided_pairs += self.pairs.len() as u64;
                rows.members.decide(self.kernel, self.predicate, &self.pairs, columns.members, &mut self.decided);
                for (&(x, y), &decided) in self.pairs.iter().zip(&self.decided) {
                    if let Some(value) = decided {
                        take(x, y, value)?;
                    }
                }
            }
        }
        Ok(compared)
    }
}
