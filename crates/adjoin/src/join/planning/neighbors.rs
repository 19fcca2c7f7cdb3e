//! A pass over the store that finds the true neighbors of sampled vectors. For each neighbor, it computes the least
//! threshold of the rule that finds it.

use std::ops::Range;
use std::sync::Mutex;

use adjoin_kernels::{Kernel, PackedColumns, Panel};

use super::groups::{Group, Groups};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Threshold};
use crate::base::mutex::lock;
use crate::base::predicate::Predicate;
use crate::base::random::Random;
use crate::execute::{Ordered, Tiles};
use crate::join::selection::{Side, select};
use crate::load::{BucketPass, Buckets, DrawnVectors, LoadedBucket};
use crate::plan::{Gap, Measure, Place, Rule, pair_threshold};
use crate::truth::ROWS_MIN;

/// Approximate number of neighbors to record, for all vectors together. If a vector has more neighbors than its part
/// of this number, a random sample of them is recorded.
const NOTED: u64 = 300_000;
/// Limits of the number of neighbors to record for a vector.
const NOTED_OF_ONE: std::ops::RangeInclusive<u64> = 64..=4096;
/// Memory of a vector in two samples of a certification, in bytes.
const CERTIFIED_VECTOR_BYTES: usize = 48;
/// Number of sampled vectors per group. Smaller groups have tighter bounds, but there are more pivots for which
/// distances to members are computed and sorted.
pub(super) const GROUP_VECTORS: usize = 128;
/// Number of neighbors that a worker holds before they are recorded.
const FOUND_AT_ONCE: usize = 4096;
/// Number of pivots to which the distances of a bucket's members are computed at once.
const PIVOTS_AT_ONCE: usize = 16;
/// Relative error bound for the few f64 operations in `farthest`.
const SLACK: f64 = 1e-12;

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
    lot: u32,
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
/// Two bounds exclude pairs of a sampled vector x and a member y of bucket j, whose center is `c_j`. First, if the
/// distance of x and y is at most `eps`, then `d(x, c_j) <= d(y, c_j) + eps` by the triangle inequality. This excludes
/// all x that are far from the whole bucket, first by groups, then one by one. Second, the exact rule excludes single
/// pairs. Its bound holds for any two centers; the ones used here are `c_j` and the pivot of a group of sampled
/// vectors.
pub(super) fn neighbors<T: Coordinate>(
    search: &NeighborSearch<'_, T>,
    drawn: &DrawnVectors<T>,
    room: &mut Room<'_>,
) -> Result<(Vec<Neighbors>, u64)> {
    let NeighborSearch { context, buckets, centers, read_ahead, .. } = *search;
    let most = noted_max(buckets.rows());
    let found = Mutex::new((vec![Neighbors::default(); drawn.len()], room));
    let groups = Groups::new(context.kernel, &drawn.members.panel, GROUP_VECTORS);
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

/// Found neighbors, each with the index of its sampled vector.
type Found = Vec<(u32, Neighbor)>;

/// State of a worker.
pub(super) struct Comparison<'a, T: Coordinate> {
    search: &'a NeighborSearch<'a, T>,
    drawn: &'a DrawnVectors<T>,
    groups: &'a Groups<T>,
    near: NearGroups<T>,
    selected: Selected<T>,
    tiles: Tiles<'a, T>,
    found: Found,
}

/// Sampled vectors that may have a neighbor in the current bucket, by the triangle inequality.
struct NearGroups<T: Coordinate> {
    vectors: Vec<u32>,
    /// Distances of these vectors to the center of the bucket.
    to_center: Vec<T::Distance>,
    /// Vectors of a group that is searched for near ones, and their distances to the center.
    searched: Vec<u32>,
    searched_to_center: Vec<T::Distance>,
    /// For each group with such vectors: its pivot, and the end of its vectors in `vectors`.
    pivots: Vec<u32>,
    ends: Vec<usize>,
    /// The members of the bucket, and their distances to the pivots of some groups.
    order: Vec<u32>,
    columns: PackedColumns<T>,
    distances: Vec<T::Distance>,
}

/// Vectors of a group and members of a bucket that are to be compared.
struct Selected<T: Coordinate> {
    /// Vectors of the group, with their distances to the center of the bucket.
    vectors: Side<T>,
    /// Distances of these vectors to the pivot of the group.
    own: Vec<T::Distance>,
    members: Side<T>,
    /// The selected vectors, and the number of members with which each of them is compared.
    rows: Vec<u32>,
    reach: Vec<u32>,
}

impl<'a, T: Coordinate> Comparison<'a, T> {
    fn new(search: &'a NeighborSearch<'a, T>, drawn: &'a DrawnVectors<T>, groups: &'a Groups<T>) -> Self {
        let NeighborSearch { context, predicate, threshold, .. } = *search;
        let tiles = Tiles::new(context.kernel, predicate, threshold);
        let (near, selected) = (NearGroups::new(search, drawn.len()), Selected::new());
        let found = Vec::with_capacity(FOUND_AT_ONCE);
        Self { search, drawn, groups, near, selected, tiles, found }
    }

    /// Memory of a worker in bytes per sampled vector.
    pub(super) const BYTES_A_VECTOR: u64 = (size_of::<T::Distance>() + 4 + 1) as u64;

    /// Returns the memory in bytes of a worker for buckets of at most `rows` members, without the memory per sampled
    /// vector.
    pub(super) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let found = FOUND_AT_ONCE * size_of::<(u32, Neighbor)>();
        Tiles::<T>::memory_bytes(rows, dimensions)
            + NearGroups::<T>::memory_bytes(rows, dimensions)
            + Selected::<T>::memory_bytes(rows)
            + found as u64
    }

    /// Finds the neighbors in a bucket. Passes them to `take`, with the indexes of the sampled vectors. Returns the
    /// number of distances computed.
    fn compare(
        &mut self,
        number: u32,
        bucket: &LoadedBucket<T>,
        take: &dyn Fn(&mut Found) -> Result<()>,
    ) -> Result<u64> {
        let NeighborSearch { context, buckets, centers, .. } = *self.search;
        let (kernel, center) = (context.kernel, centers.row(number as usize));
        let partners = self.drawn.of_buckets(buckets.partners(number));
        let farthest = self.farthest(bucket);
        let groups = self.groups.near(kernel, center, partners, |_| farthest);
        let mut computed = self.groups.count() as u64;
        computed += self.near.find(kernel, center, &self.drawn.members.panel, &groups, farthest);
        if self.near.pivots.is_empty() {
            return Ok(computed);
        }
        self.near.pack(kernel, &bucket.members.panel);
        for first in (0..self.near.pivots.len()).step_by(PIVOTS_AT_ONCE) {
            let groups = first..self.near.pivots.len().min(first + PIVOTS_AT_ONCE);
            computed += self.near.measure(kernel, &self.groups.pivots, groups.clone());
            for group in groups {
                self.select(group, group - first, center, bucket);
                computed += self.compare_selected(number, bucket, take)?;
            }
        }
        take(&mut self.found)?;
        Ok(computed)
    }

    /// Returns the largest distance to the bucket's center that a vector with a neighbor in the bucket can have.
    fn farthest(&self, bucket: &LoadedBucket<T>) -> f64 {
        let farthest = (0..bucket.len() as u32).map(|member| bucket.own_at_most(member)).fold(0.0, f64::max).sqrt();
        (farthest + self.widened(bucket).distance) * (1.0 + SLACK)
    }

    /// Returns the threshold, widened by the rounding errors of the coordinates.
    fn widened(&self, bucket: &LoadedBucket<T>) -> Threshold {
        self.search.threshold.widened(bucket.members.residual + self.drawn.members.residual)
    }

    /// Selects the pairs of near vectors of a group and members of the bucket that the exact rule admits. `at` is the
    /// index of the group's pivot among the pivots to which the distances of the members were computed.
    fn select(&mut self, group: usize, at: usize, center: &[T], bucket: &LoadedBucket<T>) {
        let (kernel, pivots) = (self.search.context.kernel, &self.groups.pivots);
        let (pivot, dimensions) = (pivots.row(self.near.pivots[group] as usize), pivots.dimensions());
        let limit = T::margin_limit(&self.widened(bucket), T::at_most(kernel.distance(pivot, center), dimensions));
        let near = self.near.of_group(group);
        let vectors_of_group = &self.near.vectors[near.clone()];
        let Selected { vectors, own, members, rows, reach } = &mut self.selected;
        vectors.distances.clear();
        vectors.distances.extend_from_slice(&self.near.to_center[near]);
        own.clear();
        own.extend(vectors_of_group.iter().map(|&vector| self.groups.own(vector as usize)));
        members.distances.clear();
        members.distances.extend_from_slice(&self.near.distances[at * bucket.len()..][..bucket.len()]);
        vectors.measure(Measure::Margin, own, dimensions);
        members.measure(Measure::Margin, &bucket.own, dimensions);
        select(kernel, limit, vectors, members, reach);
        rows.clear();
        rows.extend(vectors.order.iter().map(|&at| vectors_of_group[at as usize]));
    }

    /// Compares the selected pairs. Returns the number of distances computed.
    fn compare_selected(
        &mut self,
        number: u32,
        bucket: &LoadedBucket<T>,
        take: &dyn Fn(&mut Found) -> Result<()>,
    ) -> Result<u64> {
        let Selected { members, rows, reach, .. } = &self.selected;
        if rows.is_empty() {
            return Ok(0);
        }
        let drawn = Ordered { members: &self.drawn.members, order: rows };
        let columns = Ordered { members: &bucket.members, order: &members.order };
        let (sides, found) = (Sides { search: self.search, drawn: self.drawn }, &mut self.found);
        // If many vectors are equal, all of them are neighbors of each other, so the neighbors of a whole bucket must
        // not be held at once.
        let note = |vector, member| {
            found.extend(sides.neighbor(vector, number, member, bucket));
            if found.len() < FOUND_AT_ONCE { Ok(()) } else { take(found) }
        };
        let counts = |vector, member| sides.counts(vector, member, bucket);
        Ok(self.tiles.find(drawn, columns, reach, counts, note)?.verified_pairs)
    }
}

impl<T: Coordinate> NearGroups<T> {
    fn new(search: &NeighborSearch<'_, T>, drawn: usize) -> Self {
        let NeighborSearch { context, buckets, threshold, .. } = *search;
        Self {
            vectors: Vec::with_capacity(drawn),
            to_center: Vec::with_capacity(drawn),
            searched: Vec::with_capacity(GROUP_VECTORS),
            searched_to_center: Vec::with_capacity(GROUP_VECTORS),
            pivots: Vec::new(),
            ends: Vec::new(),
            order: Vec::new(),
            columns: context.kernel.pack(&Panel::zeroed(0, threshold.dimensions), &[]),
            distances: Vec::with_capacity(PIVOTS_AT_ONCE * buckets.rows_max()),
        }
    }

    /// Returns the memory in bytes for buckets of at most `rows` members, without the memory per sampled vector.
    fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let of_members = rows * (size_of::<u32>() + PIVOTS_AT_ONCE * size_of::<T::Distance>());
        // The last group may be smaller than the others.
        let of_group = size_of::<u32>() + size_of::<usize>() + GROUP_VECTORS * (4 + size_of::<T::Distance>());
        PackedColumns::<T>::bytes_for(rows, dimensions) + (of_members + of_group) as u64
    }

    /// Finds the vectors of `groups` that are within the distance `farthest` of the bucket's center. Returns the number
    /// of distances computed.
    fn find(&mut self, kernel: Kernel, center: &[T], drawn: &Panel<T>, groups: &[Group], farthest: f64) -> u64 {
        self.vectors.clear();
        self.to_center.clear();
        self.pivots.clear();
        self.ends.clear();
        let (farthest, mut computed) = (farthest.powi(2), 0);
        for Group { pivot, rows } in groups {
            let before = self.vectors.len();
            self.searched.clear();
            self.searched.extend(rows.start as u32..rows.end as u32);
            self.searched_to_center.resize(rows.len(), T::Distance::default());
            kernel.one_to_some(center, drawn, &self.searched, &mut self.searched_to_center);
            computed += rows.len() as u64;
            for (&vector, &squared) in self.searched.iter().zip(&self.searched_to_center) {
                if T::at_least(squared, drawn.dimensions()) <= farthest {
                    self.vectors.push(vector);
                    self.to_center.push(squared);
                }
            }
            if self.vectors.len() > before {
                self.pivots.push(*pivot);
                self.ends.push(self.vectors.len());
            }
        }
        computed
    }

    /// Packs the members of the bucket.
    fn pack(&mut self, kernel: Kernel, members: &Panel<T>) {
        self.order.clear();
        self.order.extend(0..members.rows() as u32);
        kernel.pack_into(members, &self.order, &mut self.columns);
    }

    /// Computes the distances between the members and the pivots of some groups. Returns the number of distances.
    fn measure(&mut self, kernel: Kernel, pivots: &Panel<T>, groups: Range<usize>) -> u64 {
        self.distances.resize(groups.len() * self.columns.len(), T::Distance::default());
        kernel.many_to_many(pivots, &self.pivots[groups], &self.columns, &mut self.distances);
        self.distances.len() as u64
    }

    /// Returns the range of the near vectors of a group.
    fn of_group(&self, group: usize) -> Range<usize> {
        group.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[group]
    }
}

impl<T: Coordinate> Selected<T> {
    fn new() -> Self {
        let (vectors, members) = (Side::default(), Side::default());
        Self { vectors, own: Vec::new(), members, rows: Vec::new(), reach: Vec::new() }
    }

    /// Returns the memory in bytes for buckets of at most `rows` members.
    fn memory_bytes(rows: usize) -> u64 {
        let of_group = GROUP_VECTORS * (Side::<T>::BYTES_A_VECTOR + size_of::<T::Distance>() + 2 * size_of::<u32>());
        (rows * Side::<T>::BYTES_A_VECTOR + of_group) as u64
    }
}

/// Pairs of a sampled vector and a member of a bucket that are within the threshold.
struct Sides<'a, T: Coordinate> {
    search: &'a NeighborSearch<'a, T>,
    drawn: &'a DrawnVectors<T>,
}

impl<T: Coordinate> Sides<'_, T> {
    /// Returns whether the pair filter accepts a pair that is within the threshold.
    fn counts(&self, vector: u32, member: u32, bucket: &LoadedBucket<T>) -> bool {
        let (buckets, drawn) = (self.search.buckets, self.drawn);
        let Some(filter) = buckets.pairs() else { return true };
        let (own, place) = drawn.places[vector as usize];
        // The filter has a left and a right side. With one set, the earlier row is on the left.
        let is_left = match buckets.are_of_two_sets() {
            true => buckets.part_of(own) == 0,
            false => drawn.rows[vector as usize] < bucket.row(member),
        };
        let (of_vector, of_member) = (buckets.ranks(own, place), bucket.ranks(member));
        if is_left { filter.accepts(of_vector, of_member) } else { filter.accepts(of_member, of_vector) }
    }

    /// Returns the neighbor that a pair within the threshold represents. `None` if both are the same vector.
    fn neighbor(&self, vector: u32, number: u32, member: u32, bucket: &LoadedBucket<T>) -> Option<(u32, Neighbor)> {
        let NeighborSearch { context, centers, threshold, .. } = *self.search;
        let drawn = self.drawn;
        let at = drawn.places[vector as usize];
        if at == (number, member) {
            return None;
        }
        // Every rule compares all pairs within a bucket.
        let t = if at.0 == number {
            f64::NEG_INFINITY
        } else {
            let dimensions = centers.dimensions();
            let squared = |a: &[T], b: &[T]| context.kernel.distance(a, b);
            let [center, of_bucket] = [at.0, number].map(|number| centers.row(number as usize));
            let gap = Gap { squared: T::at_most(squared(center, of_bucket), dimensions) };
            let x = Place {
                own: drawn.own[vector as usize],
                other: T::at_least(squared(of_bucket, drawn.members.panel.row(vector as usize)), dimensions),
            };
            let y = Place {
                own: bucket.own_at_most(member),
                other: T::at_least(squared(center, bucket.members.panel.row(member as usize)), dimensions),
            };
            pair_threshold(&Rule::Union.parts(threshold.distance, gap), x, y)
        };
        // The lot must not depend on which vectors are searched at once, since that depends on the memory.
        let own = u64::from(at.0).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(at.1);
        let lot = Random::new(own << 32 ^ own >> 32 ^ u64::from(number), "lot").below(u64::from(u32::MAX)) as u32;
        let lot = lot.wrapping_add(member.wrapping_mul(0x9E37_79B1)); // spreads the members of one bucket
        // The threshold is rounded up: if it were slightly too small, it would not admit the pair.
        let t = if t.is_finite() { (t as f32).next_up() } else { t as f32 };
        Some((vector, Neighbor { lot, bucket: number, member, t }))
    }
}
