//! A pass over the store that finds the true neighbors of sampled vectors. For each neighbor, it computes the least
//! threshold of the rule that finds it.

use std::sync::Mutex;

use adjoin_kernels::Panel;

use super::comparison::Comparison;
use super::drawn_groups::DrawnGroups;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Threshold};
use crate::base::mutex::lock;
use crate::base::predicate::Predicate;
use crate::load::{BucketPass, Buckets, DrawnVectors};
use crate::truth::ROWS_MIN;

/// Approximate number of neighbors to record, for all vectors together. If a vector has more neighbors than its part
/// of this number, a random sample of them is recorded.
const NOTED: u64 = 300_000;
/// Limits of the number of neighbors to record for a vector.
const NOTED_OF_ONE: std::ops::RangeInclusive<u64> = 64..=4096;
/// Memory of a vector in two samples of a certification, in bytes.
const CERTIFIED_VECTOR_BYTES: usize = 48;

/// The neighbors of a sampled vector.
#[derive(Debug, Clone, Default)]
pub(super) struct Neighbors {
    /// The row of the vector.
    pub(super) row: u64,
    /// Number of neighbors: `count` is the sum of their weights, `unweighted` counts each one once.
    pub(super) count: u64,
    pub(super) unweighted: u64,
    /// Some or all of the neighbors.
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

/// Returns the memory in bytes of `vectors` vectors, and the maximum memory of their neighbors.
pub(super) fn neighbors_bytes(rows: u64, vectors: u64) -> (u64, u64) {
    let noted = noted_and_more(noted_max(rows)) * size_of::<Neighbor>();
    // Each vector also has a place and certification data. All of this exists twice while more vectors are added.
    (2 * vectors * (size_of::<Neighbors>() + 8 + CERTIFIED_VECTOR_BYTES) as u64, vectors * noted as u64)
}

/// Memory that is left for neighbors. Most vectors have few neighbors.
pub(super) struct Room<'a> {
    /// Remaining bytes.
    pub(super) bytes: u64,
    /// Creates the error that reports that the memory does not suffice.
    pub(super) refusal: &'a (dyn Fn() -> Error + Sync),
}

/// Returns how many neighbors the list of a vector may hold before it is cut to `most`.
fn noted_and_more(most: usize) -> usize {
    most + most / 4
}

/// Returns the maximum number of neighbors to record per vector. It depends on the number of rows, but not on the
/// sample size. So a larger sample records all neighbors that a smaller one records.
fn noted_max(rows: u64) -> usize {
    let drawn_at_first = rows.clamp(1, 2 * ROWS_MIN);
    (NOTED / drawn_at_first).clamp(*NOTED_OF_ONE.start(), *NOTED_OF_ONE.end()) as usize
}

/// Parameters of a search for neighbors.
#[derive(Clone, Copy)]
pub(super) struct NeighborSearch<'a, T: Coordinate> {
    pub(super) context: &'a Context,
    pub(super) buckets: &'a Buckets<'a>,
    pub(super) centers: &'a Panel<T>,
    pub(super) threshold: &'a Threshold,
    pub(super) predicate: Predicate,
    /// Bytes for reading ahead.
    pub(super) read_ahead: u64,
}

/// Finds the neighbors of sampled vectors. Returns them, and the number of distances computed.
///
pub(super) fn neighbors<T: Coordinate>(
    search: &NeighborSearch<'_, T>,
    drawn: &DrawnVectors<T>,
    room: &mut Room<'_>,
) -> Result<(Vec<Neighbors>, u64)> {
    let NeighborSearch { context, buckets, centers, read_ahead, .. } = *search;
    let most = noted_max(buckets.rows());
    let found = Mutex::new((vec![Neighbors::default(); drawn.len()], room));
    let groups = DrawnGroups::new(context.kernel, drawn);
    let state = || Comparison::new(search, drawn, &groups);
    let pass = BucketPass { context, buckets, centers, phase: "calibrate", read_ahead };
    let distances = pass.run(state, |comparison, number, bucket| {
        for vector in drawn.of_bucket(number) {
            lock(&found).0[vector].row = bucket.row(drawn.places[vector].1);
        }
        comparison.compare(number, bucket, &|some| {
            let (found, room) = &mut *lock(&found);
            let weight = buckets.pair_weight(number);
            let add = |(vector, neighbor): (u32, Neighbor)| found[vector as usize].add(neighbor, weight, most);
            let taken = some.drain(..).map(add).sum();
            room.bytes = room.bytes.checked_sub(taken).ok_or_else(room.refusal)?;
            Ok(())
        })
    })?;
    let (mut found, _) = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.iter_mut().for_each(|neighbors| neighbors.settle(most));
    Ok((found, distances.iter().sum()))
}

impl Neighbors {
    /// Records a neighbor of weight `weight`. Returns the increase in memory, in bytes.
    fn add(&mut self, neighbor: Neighbor, weight: u64, most: usize) -> u64 {
        let before = self.noted.capacity();
        self.count += weight;
        self.unweighted += 1;
        if self.noted.len() == self.noted.capacity() {
            // The capacity doubles up to the limit of the list. It is controlled here, since it determines the memory
            // that is counted.
            let wanted = (2 * self.noted.len()).clamp(4, noted_and_more(most));
            self.noted.reserve_exact(wanted - self.noted.len());
        }
        self.noted.push(neighbor);
        if self.noted.len() >= noted_and_more(most) {
            self.settle(most);
        }
        ((self.noted.capacity() - before) * size_of::<Neighbor>()) as u64
    }

    /// Keeps the `most` neighbors with the smallest lots. Their order does not depend on the order in which they were
    /// found.
    fn settle(&mut self, most: usize) {
        self.noted.sort_unstable_by_key(|neighbor| (neighbor.lot, neighbor.bucket, neighbor.member));
        self.noted.truncate(most);
    }
}
