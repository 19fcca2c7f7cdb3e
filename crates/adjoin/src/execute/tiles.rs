//! Compares the members of two buckets. The kernel excludes pairs that are certainly too far apart, and the predicate
//! decides the other pairs. If coordinates are exact integers, all pairs that the kernel returns belong to the result.

use adjoin_kernels::{HitMask, Kernel, PackedColumns, Panel, TILE_COLUMNS, TILE_ROWS};

use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Threshold};
use crate::base::predicate::Predicate;
use crate::load::{Decider, Members, PairDetail};

/// Maximum number of rows per call of the kernel.
const BLOCK_ROWS: usize = 64;
/// Number of rows per call of the kernel if there are many columns. `BLOCK_PAIRS` bounds the number of pairs per call,
/// each of which may be a hit.
const BLOCK_ROWS_MIN: usize = 4 * TILE_ROWS;
const BLOCK_PAIRS: usize = 128 << 10;
/// Minimum number of columns of a mask of hits. With some CPU levels, the kernel finds hits tile by tile.
pub(super) const MASK_COLUMNS_MIN: usize = 4;
/// Number of hits that are decided at once.
const DECIDED_AT_ONCE: usize = 256;

/// Members of a bucket in some order.
#[derive(Clone, Copy)]
pub(crate) struct Ordered<'a, T> {
    pub(crate) members: &'a Members<T>,
    pub(crate) order: &'a [u32],
}

/// State of a worker that compares members of buckets.
pub(crate) struct Tiles<'a, T: Coordinate> {
    kernel: Kernel,
    predicate: Predicate,
    threshold: &'a Threshold,
    columns: PackedColumns<T>,
    hits: Vec<HitMask>,
    /// Hits to decide, as pairs of members, and the decisions about them.
    pairs: Vec<(u32, u32)>,
    decided: Vec<Option<f32>>,
}

/// Returns the number of rows per call of the kernel if there are `columns` columns. It is a multiple of the rows of a
/// tile.
pub(super) fn block_rows(columns: usize) -> usize {
    (BLOCK_PAIRS / columns.max(1) / TILE_ROWS * TILE_ROWS).clamp(BLOCK_ROWS_MIN, BLOCK_ROWS)
}

/// Cost of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Number of computed distances, including those of whole tiles.
    pub(crate) verified_pairs: u64,
    /// Number of pairs that were decided by their stored values.
    pub(crate) decided_pairs: u64,
}

impl<'a, T: Coordinate> Tiles<'a, T> {
    /// Creates a worker that decides pairs by `predicate`. `threshold` is the threshold of the predicate, in
    /// coordinates.
    pub(crate) fn new(kernel: Kernel, predicate: Predicate, threshold: &'a Threshold) -> Self {
        let columns = kernel.pack(&Panel::zeroed(0, threshold.dimensions), &[]);
        Self { kernel, predicate, threshold, columns, hits: Vec::new(), pairs: Vec::new(), decided: Vec::new() }
    }

    /// Returns the memory in bytes of a worker for at most `columns` columns.
    pub(crate) fn memory_bytes(columns: usize, dimensions: usize) -> u64 {
        // Hits are in a vector that doubles as it grows.
        let columns = columns.next_multiple_of(TILE_COLUMNS);
        let hits = 2 * block_rows(columns) * columns / MASK_COLUMNS_MIN * size_of::<HitMask>();
        let decided = DECIDED_AT_ONCE * (size_of::<(u32, u32)>() + size_of::<Option<f32>>());
        PackedColumns::<T>::bytes_for(columns, dimensions) + (hits + decided) as u64
    }

    /// Finds the result pairs between each row and its first `reach` columns; `reach` has one entry per row, and never
    /// increases from row to row. Candidates for which `is_new` returns false are left out. Calls `take` with each
    /// result pair: a member of `rows`, a member of `columns`, and the value.
    ///
    /// # Errors
    /// Fails if `take` does.
    pub(crate) fn compare(
        &mut self,
        rows: Ordered<'_, T>,
        columns: Ordered<'_, T>,
        reach: &[u32],
        is_new: impl Fn(u32, u32) -> bool,
        take: impl FnMut(u32, u32, f32) -> Result<()>,
    ) -> Result<Compared> {
        self.decide(PairDetail::Values, rows, columns, reach, is_new, take)
    }

    fn decide(
        &mut self,
        detail: PairDetail,
        rows: Ordered<'_, T>,
        columns: Ordered<'_, T>,
        reach: &[u32],
        is_new: impl Fn(u32, u32) -> bool,
        mut take: impl FnMut(u32, u32, f32) -> Result<()>,
    ) -> Result<Compared> {
        self.each_block(rows, columns, reach, |tiles, order| {
            let Self { kernel, predicate, threshold, ref hits, ref mut pairs, ref mut decided, .. } = *tiles;
            let (decider, mut decided_pairs) = (Decider { kernel, predicate }, 0);
            let mut new = members(hits, order, columns.order).filter(|&(x, y)| is_new(x, y));
            loop {
                pairs.clear();
                // Pairs are decided in batches: if a bucket is dense, there may be millions of hits.
                pairs.extend(new.by_ref().take(DECIDED_AT_ONCE));
                if pairs.is_empty() {
                    return Ok(decided_pairs);
                }
                if detail == PairDetail::Members && matches!(predicate, Predicate::L2 { .. }) {
                    // Most pairs are so near that their codes prove it.
                    let mut taken = Ok(());
                    pairs.retain(|&(x, y)| {
                        let decided = rows.members.decide_by_codes(kernel, threshold, x, columns.members, y);
                        if decided == Some(true) && taken.is_ok() {
                            taken = take(x, y, f32::NAN);
                        }
                        decided.is_none()
                    });
                    taken?;
                }
                decided_pairs += pairs.len() as u64;
                rows.members.decide(decider, detail, pairs, columns.members, decided);
                for (&(x, y), &decided) in pairs.iter().zip(&*decided) {
                    if let Some(value) = decided {
                        take(x, y, value)?;
                    }
                }
            }
        })
    }

    /// Finds the result pairs without their values. If coordinates are exact, no distance is computed twice. See
    /// [`Self::compare`] for the parameters.
    ///
    /// # Errors
    /// Fails if `take` does.
    pub(crate) fn find(
        &mut self,
        rows: Ordered<'_, T>,
        columns: Ordered<'_, T>,
        reach: &[u32],
        is_new: impl Fn(u32, u32) -> bool,
        mut take: impl FnMut(u32, u32) -> Result<()>,
    ) -> Result<Compared> {
        // If coordinates were rounded, the kernel finds only candidates, which are decided by their stored values.
        if !rows.members.are_exact() {
            return self.decide(PairDetail::Members, rows, columns, reach, is_new, |x, y, _| take(x, y));
        }
        self.each_block(rows, columns, reach, |tiles, order| {
            let mut new = members(&tiles.hits, order, columns.order).filter(|&(x, y)| is_new(x, y));
            new.try_for_each(|(x, y)| take(x, y))?;
            Ok(0)
        })
    }

    /// Calls `take` after each block of rows, with the rows of the block; the hits are in `self.hits`. `take` returns
    /// the number of pairs that it decided.
    fn each_block(
        &mut self,
        rows: Ordered<'_, T>,
        columns: Ordered<'_, T>,
        reach: &[u32],
        mut take: impl FnMut(&mut Self, &[u32]) -> Result<u64>,
    ) -> Result<Compared> {
        let mut compared = Compared::default();
        self.kernel.pack_into(&columns.members.panel, columns.order, &mut self.columns);
        let of_columns = columns.members.residual_among(columns.order);
        let block_rows = block_rows(columns.order.len());
        for (order, reach) in rows.order.chunks(block_rows).zip(reach.chunks(block_rows)) {
            self.hits.clear();
            let panel = &rows.members.panel;
            // A coordinate vector may differ from its vector by its residual, so the threshold is widened by both
            // residuals.
            let residuals = rows.members.residual_among(order) + of_columns;
            let limit = T::tile_limit(&self.threshold.widened(residuals));
            compared.verified_pairs += self.kernel.within(panel, order, &self.columns, reach, limit, &mut self.hits);
            compared.decided_pairs += take(self, order)?;
        }
        Ok(compared)
    }
}

/// Returns the hits as pairs of members. `rows` and `columns` are the orders in which members were passed to the
/// kernel.
fn members(hits: &[HitMask], rows: &[u32], columns: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    hits.iter().flat_map(move |mask| {
        let x = rows[mask.row as usize];
        mask.columns().map(move |column| (x, columns[column as usize]))
    })
}
