//! Compares sampled vectors with the members of a bucket.
//!
//! Two bounds exclude pairs of a sampled vector x and a member y of bucket j, whose center is `c_j`. First, if the
//! distance of x and y is at most `eps`, then `d(x, c_j) <= d(y, c_j) + eps` by the triangle inequality. This excludes
//! all x that are far from the whole bucket, and pairs with members near the center. If vectors were rounded, their
//! residuals are added to eps. Second, the exact rule excludes
//! single pairs. Its bound holds for any two centers; the ones used here are `c_j` and the pivot of a group of sampled
//! vectors. It is used if the first bound leaves many pairs of a group.

use std::cmp::Reverse;
use std::ops::Range;

use adjoin_kernels::{Kernel, PackedColumns, Panel};

use super::drawn_groups::{DrawnGroups, GROUP_VECTORS};
use super::near_rows::NearRows;
use super::neighbors::{Neighbor, NeighborSearch};
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::random::Random;
use crate::execute::{Ordered, Tiles};
use crate::join::selection::{Side, select};
use crate::load::{DrawnVectors, LoadedBucket};
use crate::plan::{Gap, Measure, Place, Rule, pair_threshold};

/// Number of neighbors that a worker holds before they are recorded.
const FOUND_AT_ONCE: usize = 4096;
/// Number of pivots to which the distances of a bucket's members are computed at once.
const PIVOTS_AT_ONCE: usize = 16;
/// The pairs of a group are compared without its pivot if they are at most this multiple of the distances to the
/// pivot. Selecting a member by its distance to the pivot takes longer than computing the distance.
const PAIRS_PER_PIVOT_DISTANCE: usize = 3;
/// Assumed radius of a bucket, as a multiple of the one that is known before the bucket is read. A bucket that exceeds
/// this, or has members with unusual residuals, is compared with all sampled vectors.
const RADIUS_EXPECTED: f64 = 1.001;
/// Relative error bound for the few operations of a bound, which are rounded to f32.
const SLACK: f64 = 1e-6;

/// Found neighbors, each with the index of its sampled vector.
pub(super) type Found = Vec<(u32, Neighbor)>;

/// State of a worker.
pub(super) struct Comparison<'a, T: Coordinate> {
    search: &'a NeighborSearch<'a, T>,
    drawn: &'a DrawnVectors<T>,
    groups: &'a DrawnGroups<T>,
    near_rows: NearRows<T>,
    near: NearVectors<T>,
    members: MembersByReach,
    direct: Direct,
    pivots: PivotDistances<T>,
    selected: Selected<T>,
    tiles: Tiles<'a, T>,
    found: Found,
}

/// Sampled vectors that may have a neighbor in the current bucket, by the triangle inequality.
struct NearVectors<T: Coordinate> {
    /// Vectors whose distances to the center of the bucket are computed.
    searched: Vec<u32>,
    distances: Vec<T::Distance>,
    vectors: Vec<u32>,
    /// Squared distances of these vectors to the center of the bucket.
    to_center: Vec<T::Distance>,
    /// Number of members to compare each vector with: the first ones of [`MembersByReach`].
    reach: Vec<u32>,
}

/// The members of a bucket, sorted by their reach. The one with the largest reach is first.
struct MembersByReach {
    /// The bits of the reach and the member.
    sorted: Vec<(Reverse<u32>, u32)>,
    order: Vec<u32>,
    /// Upper bounds on the distance of each member to the center plus its residual, in this order.
    reach: Vec<f32>,
}

/// Vectors to compare without a pivot. The vector with the largest reach is first.
struct Direct {
    chosen: Vec<(Reverse<u32>, u32)>,
    vectors: Vec<u32>,
    reach: Vec<u32>,
}

/// Groups to compare by their pivots, and the distances between the members of the bucket and some pivots.
struct PivotDistances<T: Coordinate> {
    pivots: Vec<u32>,
    /// For each pivot, the range of the group's vectors in [`NearVectors`].
    near: Vec<Range<usize>>,
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
            near_rows: NearRows::new(kernel, threshold.dimensions),
            near: NearVectors {
                searched: Vec::new(),
                distances: Vec::new(),
                vectors: Vec::new(),
                to_center: Vec::new(),
                reach: Vec::new(),
            },
            members: MembersByReach { sorted: Vec::new(), order: Vec::new(), reach: Vec::new() },
            direct: Direct { chosen: Vec::new(), vectors: Vec::new(), reach: Vec::new() },
            pivots: PivotDistances::new(search),
            selected: Selected::new(),
            tiles: Tiles::new(kernel, predicate, threshold),
            found: Vec::with_capacity(FOUND_AT_ONCE),
        }
    }

    /// Memory of a worker in bytes per sampled vector. Vectors double as they grow.
    pub(super) const BYTES_A_VECTOR: u64 =
        NearRows::<T>::BYTES_A_ROW + 2 * (2 * (size_of::<T::Distance>() + 4) + 4 + (8 + 4 + 4) + 1) as u64;

    /// Returns the memory in bytes of a worker for buckets of at most `rows` members, without the memory per sampled
    /// vector.
    pub(super) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let found = FOUND_AT_ONCE * size_of::<(u32, Neighbor)>();
        let by_reach = rows * 2 * (size_of::<(Reverse<u32>, u32)>() + size_of::<u32>() + size_of::<f32>());
        Tiles::<T>::memory_bytes(rows, dimensions)
            + NearRows::<T>::memory_bytes(dimensions)
            + PivotDistances::<T>::memory_bytes(rows, dimensions)
            + Selected::<T>::memory_bytes(rows)
            + (found + by_reach) as u64
    }

    /// Finds the neighbors in a bucket. Passes them to `take`, with the indexes of the sampled vectors. Returns the
    /// number of distances computed.
    pub(super) fn compare(
        &mut self,
        number: u32,
        bucket: &LoadedBucket<T>,
        take: &dyn Fn(&mut Found) -> Result<()>,
    ) -> Result<u64> {
        self.members.sort(bucket);
        self.find_near(number);
        let mut computed = (self.drawn.len() + self.near.searched.len()) as u64;
        self.divide(bucket.len());
        computed += self.compare_direct(number, bucket, take)?;
        if !self.pivots.pivots.is_empty() {
            computed += self.compare_by_pivots(number, bucket, take)?;
        }
        take(&mut self.found)?;
        Ok(computed)
    }

    /// Finds the sampled vectors that may have a neighbor in the bucket.
    fn find_near(&mut self, number: u32) {
        let NeighborSearch { context, buckets, centers, threshold, .. } = *self.search;
        let (kernel, drawn, dimensions) = (context.kernel, self.drawn, threshold.dimensions);
        let (near, panel) = (&mut self.near, &drawn.members.panel);
        let farthest = self.members.reach.first().map_or(0.0, |&reach| reach.into());
        let limit = |residual: f64| T::tile_limit(&threshold.widened(farthest + residual));
        // Radii are distances between unrounded vectors. A computed distance of a member to the center may be larger by
        // the residuals of both, and the residuals of the member and of the sampled vector are added to eps. One of
        // these four residuals is included in the radius.
        let usual = buckets.space().residual_seen();
        let expected =
            |number| T::tile_limit(&threshold.widened(buckets.radius(number) * RADIUS_EXPECTED + 3.0 * usual));
        let is_usual = |vector: u32| drawn.members.residual_of(vector) <= usual;
        // The few vectors with larger residuals are compared with every center.
        let of_row = |vector: usize| if is_usual(vector as u32) { T::Distance::default() } else { T::FARTHEST };
        let partners = drawn.of_buckets(buckets.partners(number));
        let partners = partners.start as u32..partners.end as u32;
        near.searched.clear();
        let usual_limit = limit(usual);
        if usual_limit <= expected(number) {
            let take = |vector| near.searched.push(vector);
            self.near_rows.find(kernel, (centers, number), panel, expected, of_row, take);
            near.searched.retain(|vector| partners.contains(vector));
        } else {
            near.searched.extend(partners);
        }
        near.distances.resize(near.searched.len(), T::Distance::default());
        kernel.one_to_some(centers.row(number as usize), panel, &near.searched, &mut near.distances);
        near.vectors.clear();
        near.to_center.clear();
        near.reach.clear();
        for (&vector, &squared) in near.searched.iter().zip(&near.distances) {
            if squared > usual_limit && is_usual(vector) {
                continue;
            }
            let distance = T::at_least(squared, dimensions).sqrt() * (1.0 - SLACK);
            let widened = threshold.widened(drawn.members.residual_of(vector));
            let reach = self.members.from(distance - widened.distance);
            if reach > 0 {
                near.vectors.push(vector);
                near.to_center.push(squared);
                near.reach.push(reach);
            }
        }
    }

    /// Decides which near vectors are compared by the pivots of their groups, and which are compared directly.
    fn divide(&mut self, members: usize) {
        let NearVectors { vectors, reach, .. } = &self.near;
        self.direct.chosen.clear();
        self.pivots.clear();
        let mut start = 0;
        for group in vectors.chunk_by(|&a, &b| DrawnGroups::<T>::group_of(a) == DrawnGroups::<T>::group_of(b)) {
            let near = start..start + group.len();
            start = near.end;
            let pairs: usize = reach[near.clone()].iter().map(|&reach| reach as usize).sum();
            if pairs > PAIRS_PER_PIVOT_DISTANCE * members {
                self.pivots.pivots.push(DrawnGroups::<T>::group_of(group[0]));
                self.pivots.near.push(near);
            } else {
                let all = reach[near].iter().zip(group).map(|(&reach, &vector)| (Reverse(reach), vector));
                self.direct.chosen.extend(all);
            }
        }
        self.direct.sort();
    }

    fn compare_direct(
        &mut self,
        number: u32,
        bucket: &LoadedBucket<T>,
        take: &dyn Fn(&mut Found) -> Result<()>,
    ) -> Result<u64> {
        let Direct { vectors, reach, .. } = &self.direct;
        let sides = Sides { search: self.search, drawn: self.drawn };
        let compared = Compared { vectors, members: &self.members.order, reach };
        sides.find(&mut self.tiles, (number, bucket), compared, &mut self.found, take)
    }

    fn compare_by_pivots(
        &mut self,
        number: u32,
        bucket: &LoadedBucket<T>,
        take: &dyn Fn(&mut Found) -> Result<()>,
    ) -> Result<u64> {
        let NeighborSearch { context, centers, .. } = *self.search;
        let kernel = context.kernel;
        let sides = Sides { search: self.search, drawn: self.drawn };
        self.pivots.pack(kernel, &bucket.members.panel);
        let (all, mut computed) = (self.pivots.pivots.len(), 0);
        for first in (0..all).step_by(PIVOTS_AT_ONCE) {
            let groups = first..all.min(first + PIVOTS_AT_ONCE);
            computed += self.pivots.measure(kernel, &self.groups.pivots, groups.clone());
            for group in groups {
                self.select(group, group - first, centers.row(number as usize), bucket);
                let Selected { members, rows, reach, .. } = &self.selected;
                let compared = Compared { vectors: rows, members: &members.order, reach };
                computed += sides.find(&mut self.tiles, (number, bucket), compared, &mut self.found, take)?;
            }
        }
        Ok(computed)
    }

    /// Selects the pairs of near vectors of a group and members of the bucket that the exact rule admits. `at` is the
    /// index of the group's pivot among the pivots to which the distances of the members were computed.
    fn select(&mut self, group: usize, at: usize, center: &[T], bucket: &LoadedBucket<T>) {
        let (kernel, pivots) = (self.search.context.kernel, &self.groups.pivots);
        let (pivot, dimensions) = (pivots.row(self.pivots.pivots[group] as usize), pivots.dimensions());
        let near = self.pivots.near[group].clone();
        let (of_group, to_center) = (&self.near.vectors[near.clone()], &self.near.to_center[near]);
        let residuals = bucket.members.residual_max() + self.drawn.members.residual_among(of_group);
        let widened = self.search.threshold.widened(residuals);
        let limit = T::margin_limit(&widened, T::at_most(kernel.distance(pivot, center), dimensions));
        let Selected { vectors, own, members, rows, reach } = &mut self.selected;
        vectors.distances.clear();
        vectors.distances.extend_from_slice(to_center);
        own.clear();
        own.extend(of_group.iter().map(|&vector| self.groups.own(vector as usize)));
        members.distances.clear();
        members.distances.extend_from_slice(&self.pivots.distances[at * bucket.len()..][..bucket.len()]);
        vectors.measure(Measure::Margin, own, dimensions);
        members.measure(Measure::Margin, &bucket.own, dimensions);
        select(kernel, limit, vectors, members, reach);
        rows.clear();
        rows.extend(vectors.order.iter().map(|&at| of_group[at as usize]));
    }
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
            (Reverse(reach.to_bits()), member)
        }));
        sorted.sort_unstable();
        order.clear();
        order.extend(sorted.iter().map(|&(_, member)| member));
        reach.clear();
        reach.extend(sorted.iter().map(|&(Reverse(bits), _)| f32::from_bits(bits)));
    }

    /// Returns the number of members that reach at least this distance from the center.
    fn from(&self, distance: f64) -> u32 {
        self.reach.partition_point(|&reach| f64::from(reach) * (1.0 + SLACK) >= distance) as u32
    }
}

impl Direct {
    fn sort(&mut self) {
        self.chosen.sort_unstable();
        self.vectors.clear();
        self.vectors.extend(self.chosen.iter().map(|&(_, vector)| vector));
        self.reach.clear();
        self.reach.extend(self.chosen.iter().map(|&(Reverse(reach), _)| reach));
    }
}

impl<T: Coordinate> PivotDistances<T> {
    fn new(search: &NeighborSearch<'_, T>) -> Self {
        let NeighborSearch { context, buckets, threshold, .. } = *search;
        Self {
            pivots: Vec::new(),
            near: Vec::new(),
            order: Vec::new(),
            columns: context.kernel.pack(&Panel::zeroed(0, threshold.dimensions), &[]),
            distances: Vec::with_capacity(PIVOTS_AT_ONCE * buckets.rows_max()),
        }
    }

    /// Returns the memory in bytes for buckets of at most `rows` members, without the memory per sampled vector.
    fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let of_members = rows * (size_of::<u32>() + PIVOTS_AT_ONCE * size_of::<T::Distance>());
        // The last group may be smaller than the others.
        let of_group = size_of::<u32>() + size_of::<Range<usize>>();
        PackedColumns::<T>::bytes_for(rows, dimensions) + (of_members + of_group) as u64
    }

    fn clear(&mut self) {
        self.pivots.clear();
        self.near.clear();
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
