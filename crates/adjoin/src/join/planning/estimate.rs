//! Estimates the cost of a rule from the pairs of some sampled vectors.

use std::ops::Range;

use adjoin_kernels::{HitMask, Kernel, Panel};

use super::neighbors::NeighborSearch;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Threshold};
use crate::base::random::Random;
use crate::load::{Buckets, DrawnVectors, draw_other_places};
use crate::plan::{BucketPairsToVisit, Facts, Gap, Place, Rule, guessed_threshold, pair_threshold};

/// Number of sampled vectors.
const VECTORS: u64 = 1_000;
/// Number of sampled vectors that are compared with all others at once.
const BLOCK: usize = 32;

/// Vectors, with the bucket of each and its squared distance to the center of that bucket.
pub(super) struct Placed<T: Coordinate> {
    pub(super) vectors: Panel<T>,
    pub(super) buckets: Vec<u32>,
    pub(super) own: Vec<f64>,
}

/// Sampled vectors, and the centers of their buckets in the same order.
pub(super) struct PairSample<T: Coordinate> {
    kernel: Kernel,
    placed: Placed<T>,
    centers: Panel<T>,
    /// Index of the first vector of the second set, or of the first new vector. A pair consists of a vector before
    /// this index and a vector at or after it. `None` if all vectors can be paired.
    second: Option<usize>,
    /// Number of pairs within buckets.
    own_pairs: u64,
    meets: BucketPairsToVisit,
}

/// A pair of sampled vectors of different buckets.
pub(super) struct DrawnPair {
    /// Buckets of the two vectors.
    pub(super) buckets: (u32, u32),
    pub(super) gap: Gap,
    pub(super) x: Place,
    pub(super) y: Place,
}

impl<T: Coordinate> PairSample<T> {
    pub(super) fn draw(search: &NeighborSearch<'_, T>, seed: u64) -> Result<Self> {
        let buckets = search.buckets;
        let parts = buckets.parts();
        let of_each = VECTORS / parts.len() as u64;
        let draw = |part: Range<u32>| draw_other_places(buckets, part, &[], of_each, Random::new(seed, "estimate"));
        let places: Vec<(u32, u32)> = parts.iter().cloned().flat_map(draw).collect();
        let drawn = DrawnVectors::read(search.context, buckets, search.centers, &places)?;
        let drawn_of_first = drawn.of_buckets(parts[0].clone()).len();
        let of_buckets = drawn.places.iter().map(|&(bucket, _)| bucket).collect();
        let placed = Placed { vectors: drawn.members.panel, buckets: of_buckets, own: drawn.own };
        // Only pairs of an old and a new row are sampled. This assumes that two new rows are as often near each other.
        let second = (parts.len() > 1).then_some(drawn_of_first);
        let own = buckets.meeting_themselves().into_iter();
        let own_pairs = own.map(|number| pairs_of(buckets.members(number).into())).sum();
        let sample = Self::new(search.context.kernel, placed, search.centers, own_pairs, buckets.meetings());
        Ok(Self { second, ..sample })
    }

    /// Creates a sample from vectors that the caller has sampled, from a set with `own_pairs` pairs within buckets.
    pub(super) fn new(
        kernel: Kernel,
        placed: Placed<T>,
        all_centers: &Panel<T>,
        own_pairs: u64,
        meets: BucketPairsToVisit,
    ) -> Self {
        let mut centers = Panel::zeroed(placed.buckets.len(), all_centers.dimensions());
        for (k, &bucket) in placed.buckets.iter().enumerate() {
            centers.row_mut(k).copy_from_slice(&all_centers.row(bucket as usize)[..all_centers.dimensions()]);
        }
        Self { kernel, placed, centers, second: None, own_pairs, meets }
    }

    /// Returns the memory of a sample in bytes.
    pub(super) fn memory_bytes(buckets: &Buckets<'_>) -> u64 {
        let (dimensions, vectors) = (buckets.vectors().dimensions, VECTORS.min(buckets.rows()));
        DrawnVectors::<T>::memory_bytes(buckets, vectors)
            + 2 * Panel::<T>::bytes_for(vectors as usize, dimensions)
            + 3 * (BLOCK as u64) * vectors * size_of::<T::Distance>() as u64
    }

    /// Returns the number of pairs within buckets, which every rule compares.
    pub(super) fn own_pairs(&self) -> u64 {
        self.own_pairs
    }

    /// Estimates the number of pairs within the threshold. If there are few, only the order of magnitude is correct.
    pub(super) fn expect_results(&self, threshold: &Threshold) -> u64 {
        let (kernel, count) = (self.kernel, self.placed.buckets.len());
        let all: Vec<u32> = (0..count as u32).collect();
        let vectors = &self.placed.vectors;
        let limit = T::tile_limit(threshold);
        let mut within = 0u64;
        let (columns, mut hits) = (kernel.pack(vectors, &all), Vec::new());
        for block in all.chunks(BLOCK) {
            let reach: Vec<u32> = block.iter().map(|&row| self.earlier_partners(row)).collect();
            hits.clear();
            kernel.within(vectors, block, &columns, &reach, limit, &mut hits);
            // A mask may have bits of columns beyond the reach of its row, since whole tiles are computed.
            let before = |mask: &HitMask| {
                let row = block[mask.row as usize];
                mask.columns().take_while(|&column| column < self.earlier_partners(row)).count() as u64
            };
            within += hits.iter().map(before).sum::<u64>();
        }
        let pairs: u64 = all.iter().map(|&row| u64::from(self.earlier_partners(row))).sum();
        (within as f64 / pairs.max(1) as f64 * self.meets.pairs as f64) as u64
    }

    /// Returns the number of earlier vectors with which a vector is paired: all of them or, if there are two sets,
    /// those of the other set.
    fn earlier_partners(&self, vector: u32) -> u32 {
        match self.second {
            Some(second) if (vector as usize) < second => 0,
            Some(second) => second as u32,
            None => vector,
        }
    }

    /// Estimates the number of pairs of different buckets that meet a condition, for each of N conditions.
    pub(super) fn expect<const N: usize>(&self, holds: impl Fn(&DrawnPair) -> [bool; N]) -> [u64; N] {
        let (kernel, count) = (self.kernel, self.placed.buckets.len());
        let all: Vec<u32> = (0..count as u32).collect();
        let vectors = &self.placed.vectors;
        let (center_columns, mut held, mut seen) = (kernel.pack(&self.centers, &all), [0u64; N], 0u64);
        let [mut to_others, mut from_others, mut gaps] = [(); 3].map(|()| Vec::new());
        for block in all.chunks(BLOCK) {
            let block_centers = kernel.pack(&self.centers, block);
            for out in [&mut to_others, &mut from_others, &mut gaps] {
                out.resize(block.len() * count, T::Distance::default());
            }
            kernel.many_to_many(vectors, block, &center_columns, &mut to_others);
            kernel.many_to_many(&self.centers, block, &center_columns, &mut gaps);
            kernel.many_to_many(vectors, &all, &block_centers, &mut from_others);
            for (row, &a) in block.iter().enumerate() {
                // A vector of the second set can only be the second vector of a pair.
                let first = match self.second {
                    Some(second) if a as usize >= second => break,
                    second => second.unwrap_or(a as usize + 1),
                };
                for b in first..count {
                    let at = row * count + b;
                    let others = (to_others[at], from_others[b * block.len() + row], gaps[at]);
                    let Some(pair) = self.pair(a as usize, b, others) else { continue };
                    seen += 1;
                    held.iter_mut().zip(holds(&pair)).for_each(|(held, holds)| *held += u64::from(holds));
                }
            }
        }
        let cross = (self.meets.pairs - self.own_pairs) as f64;
        held.map(|held| (held as f64 / seen.max(1) as f64 * cross) as u64)
    }

    /// Returns the facts on which the choice of a rule depends. `residual` bounds the distance between any vector and
    /// its rounded form.
    pub(super) fn facts(&self, threshold: &Threshold, residual: f64, recall: f64) -> Facts {
        let (eps, guessed) = (threshold.distance, guessed_threshold(recall));
        // For an exact rule, the threshold must be widened by the rounding error.
        let proved = threshold.widened(2.0 * residual).distance;
        let [margin_sum_pairs, union_pairs, near_pairs] = self.expect(|pair| {
            let of = |rule: Rule, eps| pair_threshold(&rule.parts(eps, pair.gap), pair.x, pair.y);
            let near = pair.y.own.sqrt() >= pair.x.other.sqrt() - eps;
            [of(Rule::MarginSum, proved) <= 1.0, of(Rule::Union, eps) <= guessed, near]
        });
        Facts { meets: self.meets, results: self.expect_results(threshold), margin_sum_pairs, union_pairs, near_pairs }
    }

    fn pair(&self, a: usize, b: usize, others: (T::Distance, T::Distance, T::Distance)) -> Option<DrawnPair> {
        let dimensions = self.centers.dimensions();
        let buckets = (self.placed.buckets[a], self.placed.buckets[b]);
        (buckets.0 != buckets.1).then(|| DrawnPair {
            buckets,
            gap: Gap { squared: T::at_most(others.2, dimensions) },
            x: Place { own: self.placed.own[a], other: T::at_least(others.0, dimensions) },
            y: Place { own: self.placed.own[b], other: T::at_least(others.1, dimensions) },
        })
    }
}

/// Returns the number of pairs of `n` items.
pub(super) fn pairs_of(n: u64) -> u64 {
    n * n.saturating_sub(1) / 2
}
