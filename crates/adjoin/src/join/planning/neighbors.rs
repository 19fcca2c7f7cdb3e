//! A pass over the store that finds the true neighbors of sampled vectors. For each neighbor, it computes the least
//! threshold of the rule that finds it.

use std::sync::Mutex;

use adjoin_kernels::Panel;

use super::comparison::Comparison;
use super::drawn_groups::DrawnGroups;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Threshold};
use crate::base::mutex::lock;
use crate::base::predicate::Predicate;
use crate::load::{BucketPass, Buckets, DrawnVectors, KeptBuckets};
use crate::truth::ROWS_MIN;

/// Maximum number of neighbors to record for all sampled vectors together, unless more vectors have neighbors. It bounds
/// the memory of a calibration before any neighbor is known.
pub(super) const NOTED_MAX: u64 = 1 << 16;
/// Number of neighbors that the vectors of a first sample may record together, before [`NOTED_MAX`] applies. Each vector
/// may record an equal part, so a single vector cannot take the place of all others.
const NOTED_AT_FIRST: u64 = 300_000;
/// Limits of the number of neighbors to record for a vector.
const NOTED_OF_ONE: std::ops::RangeInclusive<u64> = 64..=4096;
/// Memory of a vector in two samples of a certification, in bytes.
const CERTIFIED_VECTOR_BYTES: usize = 48;
/// Capacity of a list when its first neighbor is recorded.
const FIRST_CAPACITY: usize = 2;

/// The neighbors of a sampled vector.
#[derive(Debug, Clone, Default)]
pub(super) struct Neighbors {
    /// The row of the vector.
    pub(super) row: u64,
    /// Number of neighbors: `count` is the sum of their weights, `unweighted` counts each one once.
    pub(super) count: u64,
    pub(super) unweighted: u64,
    /// Some or all of the neighbors. At least one if there are any.
    pub(super) noted: Vec<Neighbor>,
}

/// A neighbor of a sampled vector.
#[derive(Debug, Clone, Copy)]
pub(super) struct Neighbor {
    /// Random number. If there are too many neighbors, those with the smallest lots are recorded.
    pub(super) lot: u32,
    /// Bucket of the neighbor, and its index in the bucket.
    pub(super) bucket: u32,
    pub(super) member: u32,
    /// The least threshold at which the rule admits the pair, if the edge between the buckets exists.
    pub(super) t: f32,
}

/// Sampled vectors with their neighbors.
///
/// If there are more than [`NOTED_MAX`] neighbors, each one is recorded with the same probability, so vectors with many
/// neighbors are represented well. A vector always records one of its neighbors. Which neighbors are recorded depends
/// on all neighbors of all vectors, but neither on the order in which they are found nor on the memory.
pub(super) struct Sample {
    /// Bucket of each vector, and its position in the bucket.
    pub(super) places: Vec<(u32, u32)>,
    pub(super) neighbors: Vec<Neighbors>,
    /// Largest lot of a neighbor that is recorded in any case.
    lot_most: u32,
    /// Maximum number of neighbors to record per vector.
    of_one: usize,
    /// Number of recorded neighbors. Counts at most `of_one` for a vector.
    noted: u64,
}

/// Returns the memory in bytes of `vectors` vectors and their neighbors. `rows` is the number of all vectors.
pub(super) fn neighbors_bytes(rows: u64, vectors: u64) -> u64 {
    // Each vector also has a place and certification data. All of this exists twice while more vectors are added.
    let of_vectors = 2 * vectors * (size_of::<Neighbors>() + 8 + CERTIFIED_VECTOR_BYTES) as u64;
    // A list doubles as it grows.
    let capacity = 2 * noted_bound(rows, vectors) + vectors.min(rows) * FIRST_CAPACITY as u64;
    of_vectors + capacity * size_of::<Neighbor>() as u64
}

/// Returns the maximum number of neighbors that are held for `vectors` vectors.
pub(super) fn noted_bound(rows: u64, vectors: u64) -> u64 {
    let of_one = noted_and_more(noted_max(rows)) as u64;
    // The list of a vector may be a quarter longer before it is cut.
    (vectors * of_one).min(NOTED_MAX.max(vectors) * 5 / 4)
}

/// Returns how many neighbors the list of a vector may hold before it is cut to `most`.
fn noted_and_more(most: usize) -> usize {
    most + most / 4
}

/// Returns the maximum number of neighbors to record per vector. It depends on the number of rows, but not on the
/// sample size. So a larger sample records all neighbors that a smaller one records.
fn noted_max(rows: u64) -> usize {
    let drawn_at_first = rows.clamp(1, 2 * ROWS_MIN);
    (NOTED_AT_FIRST / drawn_at_first).clamp(*NOTED_OF_ONE.start(), *NOTED_OF_ONE.end()) as usize
}

/// Parameters of a search for neighbors.
#[derive(Clone, Copy)]
pub(super) struct NeighborSearch<'a, T: Coordinate> {
    pub(super) context: &'a Context,
    pub(super) buckets: &'a Buckets<'a>,
    pub(super) centers: &'a Panel<T>,
    pub(super) threshold: &'a Threshold,
    pub(super) predicate: Predicate,
    /// Buckets that stay in memory between passes.
    pub(super) kept: &'a KeptBuckets<T>,
    /// Bytes for reading ahead.
    pub(super) read_ahead: u64,
}

/// Finds the neighbors of sampled vectors, and adds both to `sample`. Returns the number of distances computed.
pub(super) fn find_neighbors<T: Coordinate>(
    search: &NeighborSearch<'_, T>,
    drawn: &DrawnVectors<T>,
    sample: &mut Sample,
) -> Result<u64> {
    let NeighborSearch { context, buckets, centers, kept, read_ahead, .. } = *search;
    let first = sample.neighbors.len();
    sample.places.extend_from_slice(&drawn.places);
    sample.neighbors.resize(first + drawn.len(), Neighbors::default());
    let sample = Mutex::new(sample);
    let groups = DrawnGroups::new(context.kernel, drawn, buckets.space().residual_seen());
    let state = || Comparison::new(search, drawn, &groups);
    let pass = BucketPass { context, buckets, centers, phase: "calibrate", read_ahead };
    let distances = pass.run_keeping(kept, state, |comparison, number, bucket| {
        for vector in drawn.of_bucket(number) {
            lock(&sample).neighbors[first + vector].row = bucket.row(drawn.places[vector].1);
        }
        comparison.compare(number, bucket, &|found| {
            let mut sample = lock(&sample);
            let weight = buckets.pair_weight(number);
            found.drain(..).for_each(|(vector, neighbor)| sample.add(first + vector as usize, neighbor, weight));
            Ok(())
        })
    })?;
    Ok(distances.iter().sum())
}

impl Sample {
    /// Creates an empty sample of `rows` vectors.
    pub(super) fn new(rows: u64) -> Self {
        Self { places: Vec::new(), neighbors: Vec::new(), lot_most: u32::MAX, of_one: noted_max(rows), noted: 0 }
    }

    /// Adds a neighbor of weight `weight` to the vector with the index `vector`.
    fn add(&mut self, vector: usize, neighbor: Neighbor, weight: u64) {
        let Self { ref mut neighbors, ref mut noted, lot_most, of_one, .. } = *self;
        let list = &mut neighbors[vector];
        *noted -= list.counted(of_one);
        list.add(neighbor, weight, lot_most, of_one);
        *noted += list.counted(of_one);
        self.thin();
    }

    /// Drops neighbors with large lots until at most [`NOTED_MAX`] are recorded.
    fn thin(&mut self) {
        while self.noted > NOTED_MAX && self.lot_most > 0 {
            self.lot_most /= 2;
            self.neighbors.iter_mut().for_each(|list| list.thin(self.lot_most));
            self.noted = self.neighbors.iter().map(|list| list.counted(self.of_one)).sum();
        }
    }

    /// Sorts the vectors by place, and each vector's neighbors by lot.
    pub(super) fn sort(&mut self) {
        let Self { places, neighbors, of_one, .. } = self;
        neighbors.iter_mut().for_each(|list| list.settle(*of_one));
        let mut all: Vec<_> = places.drain(..).zip(neighbors.drain(..)).collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        (self.places, self.neighbors) = all.into_iter().unzip();
    }
}

impl Neighbors {
    /// Returns the number of recorded neighbors, but at most `most`. It does not depend on the order in which
    /// neighbors are found.
    fn counted(&self, most: usize) -> u64 {
        self.noted.len().min(most) as u64
    }

    /// Counts a neighbor of weight `weight`. Records it if its lot is at most `lot_most`, or if the vector would
    /// otherwise record no neighbor.
    fn add(&mut self, neighbor: Neighbor, weight: u64, lot_most: u32, most: usize) {
        self.count += weight;
        self.unweighted += 1;
        match &mut self.noted[..] {
            [only] if only.lot > lot_most => {
                if neighbor.key() < only.key() {
                    *only = neighbor;
                }
            }
            [_, ..] if neighbor.lot > lot_most => {}
            _ => self.push(neighbor, most),
        }
    }

    fn push(&mut self, neighbor: Neighbor, most: usize) {
        if self.noted.len() == self.noted.capacity() {
            // The capacity is controlled here, since it determines the memory that is counted.
            let wanted = (2 * self.noted.len()).clamp(FIRST_CAPACITY, noted_and_more(most));
            self.noted.reserve_exact(wanted - self.noted.len());
        }
        self.noted.push(neighbor);
        if self.noted.len() >= noted_and_more(most) {
            self.settle(most);
        }
    }

    /// Drops neighbors whose lot is above `lot_most`, but keeps the one with the smallest lot.
    fn thin(&mut self, lot_most: u32) {
        let Some(first) = self.noted.iter().min_by_key(|neighbor| neighbor.key()).copied() else { return };
        self.noted.retain(|neighbor| neighbor.lot <= lot_most);
        if self.noted.is_empty() {
            self.noted.push(first);
        }
        self.noted.shrink_to_fit();
    }

    /// Keeps the `most` neighbors with the smallest lots. Their order does not depend on the order in which they were
    /// found.
    fn settle(&mut self, most: usize) {
        self.noted.sort_unstable_by_key(Neighbor::key);
        self.noted.truncate(most);
    }
}

impl Neighbor {
    fn key(&self) -> (u32, u32, u32) {
        (self.lot, self.bucket, self.member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    /// Returns all neighbors of some vectors, of which one has a third of all.
    fn all(count: u32, seed: u64) -> Vec<(usize, Neighbor)> {
        let mut random = Random::new(seed, "neighbors");
        let one = |member: u32| {
            let vector = if member.is_multiple_of(3) { 0 } else { random.below(900) as usize };
            let lot = random.below(u64::from(u32::MAX)) as u32;
            (vector, Neighbor { lot, bucket: member % 7, member, t: 1.0 })
        };
        (0..count).map(one).collect()
    }

    fn sample_of(found: &[(usize, Neighbor)]) -> Sample {
        let mut sample = Sample::new(1 << 20);
        sample.neighbors.resize(1000, Neighbors::default());
        found.iter().for_each(|&(vector, neighbor)| sample.add(vector, neighbor, 2));
        sample.neighbors.iter_mut().for_each(|list| list.settle(sample.of_one));
        sample
    }

    fn keys(sample: &Sample) -> Vec<Vec<(u32, u32, u32)>> {
        sample.neighbors.iter().map(|list| list.noted.iter().map(Neighbor::key).collect()).collect()
    }

    #[test]
    fn recorded_neighbors_do_not_depend_on_their_order() {
        for count in [0, 1_000, 60_000, 300_000] {
            let mut found = all(count, 1);
            let forward = sample_of(&found);
            found.reverse();
            let backward = sample_of(&found);
            Random::new(5, "order").shuffle(&mut found);
            let shuffled = sample_of(&found);
            assert!(keys(&forward) == keys(&backward) && keys(&forward) == keys(&shuffled), "{count}");
            let counted: u64 = forward.neighbors.iter().map(|list| list.unweighted).sum();
            assert_eq!(counted, u64::from(count));
        }
    }

    #[test]
    fn recorded_neighbors_are_bounded_and_each_vector_has_one() {
        let found = all(400_000, 2);
        let sample = sample_of(&found);
        let held: usize = sample.neighbors.iter().map(|list| list.noted.len()).sum();
        // The limit is halved at most once too often.
        assert!((NOTED_MAX as usize / 2 - 1000..=NOTED_MAX as usize).contains(&held), "{held}");
        for (vector, list) in sample.neighbors.iter().enumerate() {
            let smallest = found.iter().filter(|(of, _)| *of == vector).map(|(_, neighbor)| neighbor.key()).min();
            assert_eq!(list.noted.first().map(Neighbor::key), smallest);
            assert!(list.noted.len() <= sample.of_one);
        }
    }
}
