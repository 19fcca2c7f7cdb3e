//! Finds the hits of queries among the rows in memory.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bucketed::{BucketedBlocks, BucketedRows, HITS_MAX, ProbingQueries};
use super::view::TemporaryView;
use super::{BLOCK_BYTES, Full, PURPOSE_SEARCH, block_rows};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, with_coordinates};
use crate::base::workers::map_items;
use crate::execute::{AllNearest, Hit, NearestSearch, NumberedQueries, PackedBucket};
use crate::load::Members;
use crate::query::QueryTarget;

/// Maximum number of queries for which the buckets to probe are listed at once.
const QUERIES_TOGETHER: u32 = 256;
/// Minimum bytes of vectors to compare, times queries, for which another thread is worth its start.
const THREAD_BYTES: u64 = 4 << 20;

/// Rows that some queries are compared with.
struct Comparison<'a, T: Coordinate> {
    rows: RowsToCompare<'a, T>,
    queries: &'a [u32],
}

enum RowsToCompare<'a, T: Coordinate> {
    Block(&'a Full),
    Piece(&'a PackedBucket<T>),
}

impl<'a, T: Coordinate> Comparison<'a, T> {
    fn piece((piece, queries): (&'a PackedBucket<T>, &'a [u32])) -> Self {
        Self { rows: RowsToCompare::Piece(piece), queries }
    }

    /// Returns the number of pairs of a row and a query.
    fn pairs(&self) -> u64 {
        let rows = match self.rows {
            RowsToCompare::Block(block) => block.rows().len(),
            RowsToCompare::Piece(piece) => piece.len(),
        };
        (rows * self.queries.len()) as u64
    }
}

/// A search of the rows in memory for the hits of some queries.
struct Finding<'a, T: Coordinate> {
    view: &'a TemporaryView,
    context: &'a Context,
    queries: &'a Members<T>,
    nearest: &'a AllNearest,
    /// Number of hits that fit in memory, and number of hits so far.
    room: u64,
    held: AtomicU64,
}

impl<T: Coordinate + 'static> Finding<'_, T> {
    /// Returns whether the hits do not fit in memory. Remaining rows are then skipped, and the caller divides the batch.
    fn is_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.room
    }

    fn compare(&self, comparisons: &[Comparison<'_, T>]) -> Result<()> {
        let Self { view: TemporaryView { space, .. }, context, queries, nearest, .. } = *self;
        let numbered = NumberedQueries { members: queries, first: 0 };
        let state = || NearestSearch::new(context.kernel, *space, numbered, nearest);
        let pairs: u64 = comparisons.iter().map(Comparison::pairs).sum();
        let worthwhile = 1 + pairs.saturating_mul(space.vectors.bytes() as u64) / THREAD_BYTES;
        let threads = context.threads.min(worthwhile as usize);
        map_items(threads, comparisons.len(), &context.cancel, state, |search, number| {
            if self.is_full() {
                return Ok(());
            }
            let Comparison { rows, queries } = &comparisons[number];
            let packed = match rows {
                RowsToCompare::Block(block) => block.packed::<T>(context.kernel, *space),
                RowsToCompare::Piece(piece) => piece,
            };
            let is_there = |member: u32| self.view.is_live(packed.row(member) as u32);
            let (_, more) = search.compare_packed(number as u32, packed, &is_there, queries);
            self.held.fetch_add(more, Ordering::Relaxed);
            Ok(())
        })
        .map(drop)
    }

    /// Compares some queries with the buckets that they probe, and with all rows that are not in buckets. Then compares
    /// queries with distant hits with the other buckets.
    fn find(&self, some: Range<u32>, target: QueryTarget) -> Result<()> {
        let Self { view, context, queries, nearest, .. } = *self;
        let all = &some.clone().collect::<Vec<u32>>()[..];
        let wanted = view.recall.zip(view.nearest_with_deleted(target));
        let buckets: Vec<&BucketedRows<T>> = view.bucketed.iter().map(|bucketed| bucketed.of::<T>()).collect();
        let probed = buckets.iter().map(|bucketed| match wanted {
            Some((recall, k)) => bucketed.probed(context, queries, some.clone(), k, recall),
            None => Ok(None),
        });
        let probed = probed.collect::<Result<Vec<Option<ProbingQueries>>>>()?;
        let mut comparisons = Vec::new();
        for (bucketed, probed) in buckets.iter().zip(&probed) {
            match probed {
                Some(probed) => comparisons.extend(bucketed.pieces_of(probed).map(Comparison::piece)),
                None => comparisons.extend(bucketed.pieces().iter().map(|piece| Comparison::piece((piece, all)))),
            }
        }
        let block = |block| Comparison { rows: RowsToCompare::Block(block), queries: all };
        comparisons.extend(view.blocks_without_buckets().map(block));
        self.compare(&comparisons)?;
        for (bucketed, probed) in buckets.iter().zip(&probed) {
            let (Some(probed), Some((_, k))) = (probed, wanted) else { continue };
            let far: Vec<u32> = some.clone().filter(|&query| bucketed.is_beyond(k, nearest.most(query))).collect();
            if far.is_empty() {
                continue;
            }
            let others = bucketed.not_probed(probed, &far);
            self.compare(&bucketed.pieces_of(&others).map(Comparison::piece).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

impl TemporaryView {
    pub(super) fn find_members<T: Coordinate + 'static>(
        &self,
        context: &Context,
        queries: &Members<T>,
        target: QueryTarget,
        first_row: u64,
    ) -> Result<Option<Vec<Vec<Hit>>>> {
        let _memory = context.reserve(self.working_bytes::<T>(context), PURPOSE_SEARCH)?;
        let count = queries.len() as u32;
        let nearest = AllNearest::new((0..count).map(|_| target.nearest(self.space.metric, None)));
        let (room, held) = (target.room(context), AtomicU64::new(0));
        let finding = Finding { view: self, context, queries, nearest: &nearest, room, held };
        for start in (0..count).step_by(QUERIES_TOGETHER as usize) {
            finding.find(start..count.min(start + QUERIES_TOGETHER), target)?;
        }
        if finding.is_full() {
            return Ok(None);
        }
        // The row numbers of these rows follow those of the long-term index. The place holds the number in memory,
        // with which the id is looked up.
        let numbered = |hit: Hit| Hit { row: first_row + hit.row, place: (hit.row as u32, 0), ..hit };
        let found = nearest.into_sorted(context)?;
        Ok(Some(found.into_iter().map(|hits| hits.into_iter().map(numbered).collect()).collect()))
    }

    /// Returns the recall of hits for a target; `None` if no row is missed.
    pub(in crate::collection) fn recall_of_hits(&self, target: QueryTarget) -> Option<f64> {
        self.recall.filter(|_| !self.bucketed.is_empty() && self.nearest_with_deleted(target).is_some())
    }

    /// Returns how many nearest rows, deleted ones included, contain the wanted number of live rows on average. Returns
    /// `None` if no rule for buckets can be calibrated for this number.
    fn nearest_with_deleted(&self, target: QueryTarget) -> Option<u64> {
        let QueryTarget::Nearest(k) = target else { return None };
        let with_deleted = (k * self.rows_ever()).div_ceil(self.live.max(1));
        Some(with_deleted).filter(|&k| k <= HITS_MAX)
    }

    /// Returns the blocks whose rows are not in buckets.
    fn blocks_without_buckets(&self) -> impl Iterator<Item = &Full> {
        let end = self.bucketed.last().map_or(0, |bucketed| bucketed.end());
        self.blocks[self.blocks.partition_point(|block| block.first < end)..].iter().map(|block| &**block)
    }

    /// Returns the memory in bytes for a search of these rows.
    pub(super) fn searching_bytes(&self, context: &Context) -> u64 {
        with_coordinates!(self.space, T => self.working_bytes::<T>(context))
    }

    /// Returns the memory in bytes for a search of a temporary index over `space` without buckets.
    pub(in crate::collection) fn finding_bytes_of(context: &Context, space: Space<'static>) -> u64 {
        with_coordinates!(space, T => bytes_without_buckets::<T>(context, space))
    }

    fn working_bytes<T: Coordinate + 'static>(&self, context: &Context) -> u64 {
        let of = |bucketed: &Arc<BucketedBlocks>| bucketed.of::<T>().probing_bytes(context, QUERIES_TOGETHER.into());
        bytes_without_buckets::<T>(context, self.space) + self.bucketed.iter().map(of).sum::<u64>()
    }
}

fn bytes_without_buckets<T: Coordinate>(context: &Context, space: Space<'static>) -> u64 {
    let rows = block_rows(space);
    let of_thread = NearestSearch::<T>::memory_bytes(rows, space.dimensions());
    // The copy of the last block is counted separately.
    let last = PackedBucket::<T>::memory_bytes(rows, space) + 3 * BLOCK_BYTES as u64;
    context.threads.max(1) as u64 * of_thread + last
}
