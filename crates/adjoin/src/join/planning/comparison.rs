//! Compares sampled vectors with the members of a bucket.
//!
//! Two bounds exclude pairs of a sampled vector x and a member y of bucket j, whose center is `c_j`.
//!
//! The bound of the exact rule excludes most sampled vectors. It holds for any two centers; here these are `c_j` and the
//! pivot p of a group of sampled vectors. If the distance of x and y is at most `eps`, then the margins
//! `d(x, c_j)^2 - d(x, p)^2` and `d(y, p)^2 - d(y, c_j)^2` add up to at most `2 d(p, c_j) eps`. So x has no neighbor in
//! the bucket if the sum of its own margin and the least margin of the members is larger.
//!
//! The other vectors are compared with the members for which `d(x, c_j) <= d(y, c_j) + eps`, by the triangle inequality.
//! Sorting members by their margins for each group would take longer than the distances that it saves.
//!
//! If vectors were rounded, eps is increased by the residuals of both.

use std::ops::Range;

use adjoin_kernels::{Kernel, PackedColumns, Panel};

use super::drawn_groups::{DrawnGroups, GROUP_VECTORS};
use super::neighbors::{Neighbor, NeighborSearch};
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::random::Random;
use crate::execute::{Ordered, Tiles};
use crate::join::selection::{least_measure, most_within};
use crate::load::{DrawnVectors, LoadedBucket};
use crate::plan::{Gap, Place, Rule, pair_threshold};

/// Number of neighbors that a worker holds before they are recorded.
const FOUND_AT_ONCE: usize = 4096;
/// Number of consecutive centers to which the distances of the sampled vectors are computed at once.
const CENTERS_AT_ONCE: usize = 16;
/// Number of pivots to which the distances of a bucket's members are computed at once.
const PIVOTS_AT_ONCE: usize = 16;
/// Relative error bound for the few operations of a bound, which are rounded to f32.
const SLACK: f64 = 1e-6;

/// Found neighbors, each with the index of its sampled vector.
pub(super) type Found = Vec<(u32, Neighbor)>;

/// State of a worker.
pub(super) struct Comparison<'a, T: Coordinate> {
    search: &'a NeighborSearch<'a, T>,
    drawn: &'a DrawnVectors<T>,
    groups: &'a DrawnGroups<T>,
    centers: NearCenters<T>,
    members: MembersByReach,
    pivots: PivotDistances<T>,
    margins: Margins,
    near: NearVectors,
    tiles: Tiles<'a, T>,
    found: Found,
}

/// Distances of all sampled vectors to consecutive centers. A worker asks for centers in ascending order.
struct NearCenters<T: Coordinate> {
    numbers: Range<u32>,
    order: Vec<u32>,
    /// For each of these centers, the squared distances of the vectors.
    distances: Vec<T::Distance>,
}

/// The members of a bucket, sorted by their reach. The one with the largest reach is first.
struct MembersByReach {
    /// The upper half of a number is the inverted bits of the reach, the lower half the member.
    sorted: Vec<u64>,
    order: Vec<u32>,
    /// Upper bounds on the distance of each member to the center plus its residual, in this order.
    reach: Vec<f32>,
}

/// Distances between the members of a bucket and some pivots.
struct PivotDistances<T: Coordinate> {
    order: Vec<u32>,
    columns: PackedColumns<T>,
    /// For each pivot, the squared distances of the members.
    distances: Vec<T::Distance>,
}

/// Sort keys of the margins of the members and of the vectors of a group ([`Coordinate::measure_keys`]).
struct Margins {
    of_members: Vec<u32>,
    of_vectors: Vec<u32>,
    /// Vectors with small margins. The lower half of a number is the position in the group.
    chosen: Vec<u64>,
}

/// Sampled vectors that may have a neighbor in the bucket. The one with the largest reach is first.
struct NearVectors {
    /// The upper half of a number is the inverted reach, the lower half the vector. The reach is the number of members
    /// to compare with, the first ones of [`MembersByReach`].
    chosen: Vec<u64>,
    vectors: Vec<u32>,
    reach: Vec<u32>,
}

impl<'a, T: Coordinate> Comparison<'a, T> {
    pub(super) fn new(
        search: &'a NeighborSearch<'a, T>,
        drawn: &'a DrawnVectors<T>,
        groups: &'a DrawnGroups<T>,
    ) -> Self {
        let NeighborSearch { context, predicate, threshold, .. } = *search;
        let kernel = context.kernel;
        Self {
            search,
            drawn,
            groups,
            centers: NearCenters { numbers: 0..0, order: Vec::new(), distances: Vec::new() },
            members: MembersByReach { sorted: Vec::new(), order: Vec::new(), reach: Vec::new() },
            pivots: PivotDistances {
                order: Vec::new(),
                columns: kernel.pack(&Panel::zeroed(0, threshold.dimensions), &[]),
                distances: Vec::with_capacity(PIVOTS_AT_ONCE * search.buckets.rows_max()),
            },
            margins: Margins { of_members: Vec::new(), of_vectors: Vec::new(), chosen: Vec::new() },
            near: NearVectors { chosen: Vec::new(), vectors: Vec::new(), reach: Vec::new() },
            tiles: Tiles::new(kernel, predicate, threshold),
            found: Vec::with_capacity(FOUND_AT_ONCE),
        }
    }

    /// Memory of a worker in bytes per sampled vector. Vectors double as they grow.
    pub(super) const BYTES_A_VECTOR: u64 = (CENTERS_AT_ONCE * size_of::<T::Distance>() + 2 * (8 + 4 + 4)) as u64;

    /// Returns the memory in bytes of a worker for buckets of at most `rows` members, without the memory per sampled
    /// vector.
    pub(super) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let found = FOUND_AT_ONCE * size_of::<(u32, Neighbor)>();
        let by_reach = rows * 2 * (size_of::<u64>() + size_of::<u32>() + size_of::<f32>());
        // Vectors double as they grow.
        let of_pivots = rows * (2 * size_of::<u32>() + PIVOTS_AT_ONCE * size_of::<T::Distance>());
        let margins = 2 * (rows * size_of::<u32>() + GROUP_VECTORS * (size_of::<u32>() + size_of::<u64>()));
        Tiles::<T>::memory_bytes(rows, dimensions)
            + PackedColumns::<T>::bytes_for(rows, dimensions)
            + (found + by_reach + of_pivots + margins) as u64
    }

    /// Finds the neighbors in a bucket. Passes them to `take`, with the indexes of the sampled vectors. Returns the
    /// number of distances computed.
    pub(super) fn compare(
        &mut self,
        number: u32,
        bucket: &LoadedBucket<T>,
        take: &dyn Fn(&mut Found) -> Result<()>,
    ) -> Result<u64> {
        let NeighborSearch { context, buckets, centers, .. } = *self.search;
        let partners = self.drawn.of_buckets(buckets.partners(number));
        if partners.is_empty() {
            return Ok(0);
        }
        self.centers.measure(context.kernel, centers, &self.groups.columns, number);
        self.members.sort(bucket);
        self.near.chosen.clear();
        // Workers may compute distances to the same centers, but the result must not depend on their number.
        let mut computed = self.drawn.len() as u64 + self.choose_by_margins(number, bucket, &partners);
        self.choose_unusual(number, partners);
        self.near.sort();
        let NearVectors { vectors, reach, .. } = &self.near;
        let sides = Sides { search: self.search, drawn: self.drawn };
        let compared = Compared { vectors, members: &self.members.order, reach };
        computed += sides.find(&mut self.tiles, (number, bucket), compared, &mut self.found, take)?;
        take(&mut self.found)?;
        Ok(computed)
    }

    /// Chooses vectors with usual residuals, by the margins of their groups. Returns the number of distances computed.
    fn choose_by_margins(&mut self, number: u32, bucket: &LoadedBucket<T>, partners: &Range<usize>) -> u64 {
        let kernel = self.search.context.kernel;
        let (groups, mut computed) = (DrawnGroups::<T>::groups_of(partners), 0);
        self.pivots.pack(kernel, &bucket.members.panel);
        for first in groups.clone().step_by(PIVOTS_AT_ONCE) {
            let some = first..groups.end.min(first + PIVOTS_AT_ONCE);
            computed += self.pivots.measure(kernel, &self.groups.pivots, some.clone());
            for group in some {
                self.choose_of_group(group, group - first, number, bucket, partners);
            }
        }
        computed
    }

    /// Chooses vectors of a group. `at` is the index of its pivot in [`Self::pivots`].
    fn choose_of_group(
        &mut self,
        group: usize,
        at: usize,
        number: u32,
        bucket: &LoadedBucket<T>,
        partners: &Range<usize>,
    ) {
        let NeighborSearch { context, buckets, centers, threshold, .. } = *self.search;
        let (kernel, dimensions) = (context.kernel, threshold.dimensions);
        let vectors = DrawnGroups::<T>::vectors_of(group, partners);
        let usual = buckets.space().residual_seen();
        let gap = kernel.distance(self.groups.pivots.row(group), centers.row(number as usize));
        let widened = threshold.widened(bucket.members.residual_max() + usual);
        let limit = T::margin_limit(&widened, T::at_most(gap, dimensions));
        let (to_pivot, to_center) = (self.pivots.of(at), self.centers.of(number));
        let Margins { of_members, of_vectors, chosen } = &mut self.margins;
        T::measure_keys(to_pivot, Some(&bucket.own), dimensions, of_members);
        let own = &self.groups.own[vectors.clone()];
        T::measure_keys(&to_center[vectors.clone()], Some(own), dimensions, of_vectors);
        chosen.clear();
        let most = most_within(limit, least_measure::<T>(kernel, of_members));
        kernel.at_most(of_vectors, T::key_up_to(most), chosen);
        for &chosen in &*chosen {
            let vector = vectors.start as u32 + chosen as u32;
            if self.drawn.members.residual_of(vector) <= usual {
                self.near.choose(vector, to_center[vector as usize], self.search, self.drawn, &self.members);
            }
        }
    }

    /// Chooses vectors with larger residuals than usual. They are few, and would weaken the bound for their groups.
    fn choose_unusual(&mut self, number: u32, partners: Range<usize>) {
        let (drawn, to_center) = (self.drawn, self.centers.of(number));
        for &vector in self.groups.unusual.iter().filter(|&&vector| partners.contains(&(vector as usize))) {
            self.near.choose(vector, to_center[vector as usize], self.search, drawn, &self.members);
        }
    }
}

impl<T: Coordinate> NearCenters<T> {
    /// Computes the distances of the vectors to the center `number` and to the next ones, unless this was done before.
    fn measure(&mut self, kernel: Kernel, centers: &Panel<T>, vectors: &PackedColumns<T>, number: u32) {
        if self.numbers.contains(&number) {
            return;
        }
        self.numbers = number..(number + CENTERS_AT_ONCE as u32).min(centers.rows() as u32);
        self.order.clear();
        self.order.extend(self.numbers.clone());
        self.distances.resize(self.order.len() * vectors.len(), T::Distance::default());
        kernel.many_to_many(centers, &self.order, vectors, &mut self.distances);
    }

    /// Returns the squared distances of the vectors to a center.
    fn of(&self, number: u32) -> &[T::Distance] {
        let count = self.distances.len() / self.order.len();
        &self.distances[(number - self.numbers.start) as usize * count..][..count]
    }
}

impl NearVectors {
    /// Adds a vector if it may have a neighbor by the triangle inequality. `to_center` is its squared distance to the
    /// center of the bucket.
    fn choose<T: Coordinate>(
        &mut self,
        vector: u32,
        to_center: T::Distance,
        search: &NeighborSearch<'_, T>,
        drawn: &DrawnVectors<T>,
        members: &MembersByReach,
    ) {
        let threshold = search.threshold;
        let distance = T::at_least(to_center, threshold.dimensions).sqrt() * (1.0 - SLACK);
        let widened = threshold.widened(drawn.members.residual_of(vector));
        let reach = members.from(distance - widened.distance);
        if reach > 0 {
            self.chosen.push(descending(reach, vector));
        }
    }

    fn sort(&mut self) {
        self.chosen.sort_unstable();
        self.vectors.clear();
        self.vectors.extend(self.chosen.iter().map(|&chosen| chosen as u32));
        self.reach.clear();
        self.reach.extend(self.chosen.iter().map(|&chosen| key_of(chosen)));
    }
}

/// Returns a number by which items are sorted by descending key, and by ascending item if keys are equal.
fn descending(key: u32, item: u32) -> u64 {
    u64::from(!key) << 32 | u64::from(item)
}

/// Returns the key of a number of [`descending`].
fn key_of(number: u64) -> u32 {
    !((number >> 32) as u32)
}

impl MembersByReach {
    fn sort<T: Coordinate>(&mut self, bucket: &LoadedBucket<T>) {
        let Self { sorted, order, reach } = self;
        sorted.clear();
        sorted.extend((0..bucket.len() as u32).map(|member| {
            let reach = bucket.own_at_most(member).sqrt() + bucket.members.residual_of(member);
            // A computation that overflows may return NaN, which is out of reach of nothing.
            let reach = if reach < f64::INFINITY { (reach as f32).next_up() } else { f32::INFINITY };
            // Floats of at least 0 have the order of their bits.
            descending(reach.to_bits(), member)
        }));
        sorted.sort_unstable();
        order.clear();
        order.extend(sorted.iter().map(|&member| member as u32));
        reach.clear();
        reach.extend(sorted.iter().map(|&member| f32::from_bits(key_of(member))));
    }

    /// Returns the number of members that reach at least this distance from the center.
    fn from(&self, distance: f64) -> u32 {
        self.reach.partition_point(|&reach| f64::from(reach) * (1.0 + SLACK) >= distance) as u32
    }
}

impl<T: Coordinate> PivotDistances<T> {
    /// Packs the members of the bucket.
    fn pack(&mut self, kernel: Kernel, members: &Panel<T>) {
        self.order.clear();
        self.order.extend(0..members.rows() as u32);
        kernel.pack_into(members, &self.order, &mut self.columns);
    }

    /// Computes the distances between the members and some pivots. Returns the number of distances.
    fn measure(&mut self, kernel: Kernel, pivots: &Panel<T>, groups: Range<usize>) -> u64 {
        let order: Vec<u32> = groups.map(|group| group as u32).collect();
        self.distances.resize(order.len() * self.columns.len(), T::Distance::default());
        kernel.many_to_many(pivots, &order, &self.columns, &mut self.distances);
        self.distances.len() as u64
    }

    /// Returns the squared distances of the members to the pivot with the index `at`.
    fn of(&self, at: usize) -> &[T::Distance] {
        let members = self.columns.len();
        &self.distances[at * members..][..members]
    }
}

/// Pairs to compare: each vector with its first `reach` members.
struct Compared<'a> {
    vectors: &'a [u32],
    members: &'a [u32],
    reach: &'a [u32],
}

/// Decides pairs of a sampled vector and a member of a bucket.
struct Sides<'a, T: Coordinate> {
    search: &'a NeighborSearch<'a, T>,
    drawn: &'a DrawnVectors<T>,
}

impl<T: Coordinate> Sides<'_, T> {
    /// Compares pairs, and adds the neighbors to `found`. Returns the number of distances computed.
    fn find(
        &self,
        tiles: &mut Tiles<'_, T>,
        (number, bucket): (u32, &LoadedBucket<T>),
        compared: Compared<'_>,
        found: &mut Found,
        take: &dyn Fn(&mut Found) -> Result<()>,
    ) -> Result<u64> {
        if compared.vectors.is_empty() {
            return Ok(0);
        }
        let rows = Ordered { members: &self.drawn.members, order: compared.vectors };
        let columns = Ordered { members: &bucket.members, order: compared.members };
        // If many vectors are equal, all of them are neighbors of each other, so the neighbors of a whole bucket must
        // not be held at once.
        let note = |vector, member| {
            found.extend(self.neighbor(vector, number, member, bucket));
            if found.len() < FOUND_AT_ONCE { Ok(()) } else { take(found) }
        };
        let counts = |vector, member| self.counts(vector, member, bucket);
        Ok(tiles.find(rows, columns, compared.reach, counts, note)?.verified_pairs)
    }

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
            let [center, other] = [at.0, number].map(|number| centers.row(number as usize));
            let gap = Gap { squared: T::at_most(squared(center, other), dimensions) };
            let x = Place {
                own: drawn.own[vector as usize],
                other: T::at_least(squared(other, drawn.members.panel.row(vector as usize)), dimensions),
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
