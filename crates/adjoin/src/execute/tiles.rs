//! Members of two buckets against each other: the kernel leaves out what is surely too far, the predicate decides the
//! rest. Of integers the kernel knows the exact distance, so what it leaves belongs to the result.

use adjoin_kernels::{HitMask, Kernel, TILE_COLUMNS, TILE_ROWS};

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
/// Columns of a mask of hits, at least: some levels find them tile by tile.
const MASK_COLUMNS_MIN: usize = 4;
/// Hits whose values are computed at once.
const DECIDED_AT_ONCE: usize = 256;

/// One worker's comparison of members.
pub(crate) struct Tiles<'a, T: Coordinate> {
    kernel: Kernel,
    predicate: Predicate,
    filter: Filter<'a, T>,
    hits: Vec<HitMask>,
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
        let hits = 2 * block_rows(columns) * columns / MASK_COLUMNS_MIN * size_of::<HitMask>();
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
            compared.verified_pairs += self.filter.within(Ordered { order, ..rows }, columns, reach, &mut self.hits);
            let mut new = members(&self.hits, order, columns.order).filter(|&(x, y)| is_new(x, y));
            loop {
                self.pairs.clear();
                self.pairs.extend(new.by_ref().take(DECIDED_AT_ONCE));
                if self.pairs.is_empty() {
                    break;
                }
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

    /// The same for those to whom values do not matter: of integers, none is computed again.
    ///
    /// # Errors
    /// Of `take`.
    pub(crate) fn find(
        &mut self,
        rows: Ordered<'_, T>,
        columns: Ordered<'_, T>,
        reach: &[u32],
        is_new: impl Fn(u32, u32) -> bool,
        mut take: impl FnMut(u32, u32) -> Result<()>,
    ) -> Result<Compared> {
        if T::is_float() {
            return self.compare(rows, columns, reach, is_new, |x, y, _| take(x, y));
        }
        let mut compared = Compared::default();
        self.filter.pack(columns);
        let block_rows = block_rows(columns.order.len());
        for (order, reach) in rows.order.chunks(block_rows).zip(reach.chunks(block_rows)) {
            compared.verified_pairs += self.filter.within(Ordered { order, ..rows }, columns, reach, &mut self.hits);
            for (x, y) in members(&self.hits, order, columns.order).filter(|&(x, y)| is_new(x, y)) {
                take(x, y)?;
            }
        }
        Ok(compared)
    }
}

/// The members of hits between rows and columns in these orders.
fn members(hits: &[HitMask], rows: &[u32], columns: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    hits.iter().flat_map(move |mask| {
        let x = rows[mask.row as usize];
        mask.columns().map(move |column| (x, columns[column as usize]))
    })
}
