//! Destination of the pairs that a worker finds. Pairs are collected in batches for the sink, or only counted per row
//! if the sink needs no more.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::join::watched::Watched;
use crate::load::LoadedBucket;
use crate::sink::{PairBatch, Tally};
use crate::source::IdKind;

/// Most pairs of a batch. The numbers of their rows take less than 64 KiB. Larger blocks of memory are mappings of their own,
/// and the system clears them each time.
const BATCH_PAIRS: usize = 7000;
/// Number of counts that one test checks. Most counts are 0.
const COUNTS_AT_ONCE: usize = 8;

/// Destination of the pairs that a worker finds.
pub(super) enum FoundPairs<'a> {
    /// Pairs are collected in batches.
    Pairs(Batch),
    /// Pairs are counted.
    Counts(RowCounts<'a>),
}

/// The next batch for the sink.
pub(super) struct Batch {
    pairs: PairBatch,
    /// The batch is emitted once it has this many bytes.
    bytes: u64,
    /// Whether the first bucket of a task is always on the left, as in a join of two sets. With one set, the earlier
    /// row of a pair is on the left.
    sided: bool,
}

/// A member of a bucket.
pub(super) struct Member<'a, T: Coordinate> {
    pub(super) bucket: &'a LoadedBucket<T>,
    pub(super) number: u32,
}

impl<T: Coordinate> Member<'_, T> {
    fn row(&self) -> u64 {
        self.bucket.row(self.number)
    }
}

/// Pairs per row of two buckets. After each task, they are added to the counts of all rows.
pub(super) struct RowCounts<'a> {
    tally: &'a Tally,
    watched: Option<(&'a Watched, &'a [AtomicU64])>,
    /// Counts of the members of both buckets.
    sides: [Vec<u32>; 2],
    /// Number of sides whose counts are added to the tally: 2, or only the left one if there are two sets.
    tallied: usize,
}

impl<'a> FoundPairs<'a> {
    /// Creates a destination that collects pairs in batches. A batch is emitted once it has `bytes` bytes. `ids` are
    /// the kinds of the left and right ids. `sided` is true for two sets.
    pub(super) fn pairs(ids: [IdKind; 2], bytes: u64, sided: bool) -> Self {
        Self::Pairs(Batch { pairs: PairBatch::of_kinds(ids), bytes, sided })
    }

    /// Creates a destination that counts pairs in `tally`, and pairs of watched rows separately. `sided` is true for
    /// two sets.
    pub(super) fn counts(tally: &'a Tally, watched: Option<(&'a Watched, &'a [AtomicU64])>, sided: bool) -> Self {
        let tallied = if sided { 1 } else { 2 };
        Self::Counts(RowCounts { tally, watched, sides: [Vec::new(), Vec::new()], tallied })
    }

    /// Returns the memory in bytes for buckets of at most `rows` members, without the batches on their way to the
    /// sink.
    pub(super) fn members_bytes(rows: usize) -> u64 {
        (2 * rows * size_of::<u32>()) as u64
    }

    /// Emits the last batch, which may be short.
    pub(super) fn finish(self, emit: &mut dyn FnMut(PairBatch)) {
        if let Self::Pairs(Batch { pairs, .. }) = self
            && !pairs.is_empty()
        {
            emit(pairs);
        }
    }
}

impl Batch {
    /// Adds a pair, and emits the batch if it is full.
    pub(super) fn push<T: Coordinate>(
        &mut self,
        a: Member<'_, T>,
        b: Member<'_, T>,
        value: f32,
        emit: &mut dyn FnMut(PairBatch),
    ) {
        let pairs = &mut self.pairs;
        let a_first = self.sided || a.row() < b.row();
        let (left, right) = if a_first { (a, b) } else { (b, a) };
        pairs.left_rows.push(left.row());
        pairs.right_rows.push(right.row());
        pairs.left_ids.push_from(left.bucket.ids(), left.number as usize);
        pairs.right_ids.push_from(right.bucket.ids(), right.number as usize);
        pairs.values.push(value);
        if pairs.len() >= BATCH_PAIRS || pairs.bytes() >= self.bytes {
            // Vectors that grow would be moved several times before the next batch is full.
            let next = PairBatch::with_room_of(pairs);
            emit(std::mem::replace(pairs, next));
        }
    }
}

impl RowCounts<'_> {
    /// Resets the counts for two buckets with `a` and `b` members.
    pub(super) fn begin(&mut self, a: usize, b: usize) {
        for (side, members) in self.sides.iter_mut().zip([a, b]) {
            side.clear();
            side.resize(members, 0);
        }
    }

    /// Counts a pair of members.
    pub(super) fn add(&mut self, x: u32, y: u32) {
        self.sides[0][x as usize] += 1;
        self.sides[1][y as usize] += 1;
    }

    /// Adds the counts to the totals of all rows. Returns the number of pairs.
    pub(super) fn end<T: Coordinate>(&mut self, a: &LoadedBucket<T>, b: &LoadedBucket<T>) -> Result<u64> {
        let mut pairs = 0;
        for (number, (side, bucket, other)) in [(&self.sides[0], a, b), (&self.sides[1], b, a)].into_iter().enumerate()
        {
            for (counts, first) in side.chunks(COUNTS_AT_ONCE).zip((0..).step_by(COUNTS_AT_ONCE)) {
                // Most members have no pair, so one test skips several of them.
                if counts.iter().fold(0, |any, count| any | count) == 0 {
                    continue;
                }
                for (member, &count) in (first..).zip(counts).filter(|&(_, &count)| count > 0) {
                    pairs += u64::from(count);
                    if number < self.tallied {
                        self.tally.add(bucket.row(member), count)?;
                    }
                    if let Some((watched, found)) = self.watched
                        && let Some(at) = watched.position(number, bucket.row(member))
                    {
                        // A bucket has either only old or only new rows, so all rows of the other bucket have the same
                        // weight.
                        let weight = watched.weight_of(other.row(0));
                        found[at].fetch_add(weight * u64::from(count), Ordering::Relaxed);
                    }
                }
            }
        }
        // Each pair was counted on both sides.
        Ok(pairs / 2)
    }
}
