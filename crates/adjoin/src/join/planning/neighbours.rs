//! The true neighbours of drawn vectors, and the least threshold of a rule that finds each: one pass over the store.

use std::sync::Mutex;

use adjoin_kernels::{Panel, TILE_COLUMNS};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::execute::{Ordered, Tiles};
use crate::geometry::{Coordinate, Threshold};
use crate::load::{BucketPass, Buckets, Coding, Drawn, LoadedBucket};
use crate::plan::{Gap, Place, Rule, pair_threshold};
use crate::predicate::Predicate;
use crate::random::Random;
use crate::workers::lock;

/// Neighbours noted of all vectors, about. Of a vector that has more than its part, as many are drawn at random.
const NOTED: u64 = 300_000;
/// The part of a vector.
const NOTED_OF_ONE: std::ops::RangeInclusive<u64> = 64..=4096;
/// Covers the few f64 operations of the bound below.
const SLACK: f64 = 1e-12;

/// A drawn vector and its neighbours.
#[derive(Debug, Clone, Default)]
pub(super) struct Neighbours {
    /// The row of the vector.
    pub(super) row: u64,
    /// How many there are.
    pub(super) count: u64,
    /// Some or all of them.
    pub(super) noted: Vec<Neighbour>,
}

/// A neighbour of a drawn vector.
#[derive(Debug, Clone, Copy)]
pub(super) struct Neighbour {
    /// Drawn by lot which are noted: those of the least.
    lot: u32,
    /// Where it lies.
    pub(super) bucket: u32,
    /// The least threshold at which the rule admits the pair, on an edge that is there.
    pub(super) t: f32,
}

/// Bytes of so many vectors, and the most that their neighbours take beside that.
pub(super) fn neighbours_bytes(vectors: u64) -> (u64, u64) {
    let noted = noted_and_more(noted_max(vectors)) * size_of::<Neighbour>();
    (vectors * size_of::<Neighbours>() as u64, vectors * noted as u64)
}

/// Memory for neighbours, of which most vectors have few.
pub(super) struct Room<'a> {
    /// Bytes that are left.
    pub(super) bytes: u64,
    /// The error where they do not suffice.
    pub(super) refusal: &'a (dyn Fn() -> Error + Sync),
}

/// Neighbours of a vector that are held before the supernumerary ones go.
fn noted_and_more(most: usize) -> usize {
    most + most / 4
}

/// Neighbours noted of each of so many vectors, at most.
fn noted_max(vectors: u64) -> usize {
    (NOTED / vectors.max(1)).clamp(*NOTED_OF_ONE.start(), *NOTED_OF_ONE.end()) as usize
}

/// What is looked for.
#[derive(Clone, Copy)]
pub(super) struct NeighbourSearch<'a, T: Coordinate> {
    pub(super) context: &'a Context,
    pub(super) buckets: &'a Buckets<'a>,
    pub(super) centers: &'a Panel<T>,
    pub(super) threshold: &'a Threshold,
    pub(super) predicate: Predicate,
    pub(super) coding: Option<&'a Coding>,
    pub(super) rule: Rule,
    /// Bytes for reading ahead.
    pub(super) read_ahead: u64,
}

/// Some of the drawn vectors: those that are looked for at once.
pub(super) struct Chunk<T> {
    pub(super) drawn: Drawn<T>,
    /// How many were drawn before them, and how many are in all.
    pub(super) first: usize,
    pub(super) of: u64,
}

/// The neighbours of drawn vectors, and how many distances it took to find them.
///
/// No vector y of bucket j is within eps of x unless `d(y, c_j) >= d(x, c_j) - eps`: with the members in descending
/// order of their distance to the center, a prefix is compared.
pub(super) fn neighbours<T: Coordinate>(
    search: &NeighbourSearch<'_, T>,
    chunk: &Chunk<T>,
    room: &mut Room<'_>,
) -> Result<(Vec<Neighbours>, u64)> {
    let NeighbourSearch { context, buckets, centers, read_ahead, .. } = *search;
    let (drawn, most) = (&chunk.drawn, noted_max(chunk.of));
    let found = Mutex::new((vec![Neighbours::default(); drawn.len()], room));
    let state = || Comparison::new(search, chunk);
    let pass = BucketPass { context, buckets, centers, phase: "calibrate", read_ahead };
    let distances = pass.run(state, |comparison, number, bucket| {
        let distances = comparison.compare(number, bucket);
        let (found, room) = &mut *lock(&found);
        for vector in drawn.of_bucket(number) {
            found[vector].row = bucket.row(drawn.places[vector].1);
        }
        let add = |(vector, neighbour): (u32, Neighbour)| found[vector as usize].add(neighbour, most);
        let taken = comparison.found.drain(..).map(add).sum();
        room.bytes = room.bytes.checked_sub(taken).ok_or_else(room.refusal)?;
        Ok(distances)
    })?;
    let (mut found, _) = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.iter_mut().for_each(|neighbours| neighbours.settle(most));
    Ok((found, distances.iter().sum()))
}

impl Neighbours {
    /// Notes a neighbour; returns how many bytes more are held.
    fn add(&mut self, neighbour: Neighbour, most: usize) -> u64 {
        let before = self.noted.capacity();
        self.count += 1;
        if self.noted.len() == self.noted.capacity() {
            let wanted = (2 * self.noted.len()).clamp(4, noted_and_more(most));
            self.noted.reserve_exact(wanted - self.noted.len());
        }
        self.noted.push(neighbour);
        if self.noted.len() >= noted_and_more(most) {
            self.settle(most);
        }
        ((self.noted.capacity() - before) * size_of::<Neighbour>()) as u64
    }

    /// Keeps those of the least lots, in an order that does not depend on that of their finding.
    fn settle(&mut self, most: usize) {
        self.noted.sort_unstable_by_key(|neighbour| (neighbour.lot, neighbour.bucket, neighbour.t.to_bits()));
        self.noted.truncate(most);
    }
}

/// A worker's state.
pub(super) struct Comparison<'a, T: Coordinate> {
    search: &'a NeighbourSearch<'a, T>,
    chunk: &'a Chunk<T>,
    /// Of each drawn vector to the center of the bucket in question.
    distances: Vec<T::Distance>,
    /// Drawn vectors that may have a neighbour in it, with how many of its members they are compared, by that number.
    reaching: Vec<Vec<(u32, u32)>>,
    tiles: Tiles<'a, T>,
    found: Vec<(u32, Neighbour)>,
}

impl<'a, T: Coordinate> Comparison<'a, T> {
    fn new(search: &'a NeighbourSearch<'a, T>, chunk: &'a Chunk<T>) -> Self {
        let NeighbourSearch { context, predicate, threshold, coding, .. } = *search;
        let tiles = Tiles::new(context.kernel, predicate, threshold, coding);
        let distances = vec![T::Distance::default(); chunk.drawn.len()];
        Self { search, chunk, distances, reaching: Vec::new(), tiles, found: Vec::new() }
    }

    /// Bytes that a worker holds for buckets of at most `rows` members, those for each drawn vector apart.
    pub(super) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        // Order and distance of each member, sorted.
        Tiles::<T>::memory_bytes(rows, dimensions) + (rows * (4 + 8)) as u64
    }

    /// Finds the neighbours that lie in a bucket; returns the distances that were computed.
    fn compare(&mut self, number: u32, bucket: &LoadedBucket<T>) -> u64 {
        let NeighbourSearch { context, centers, threshold, .. } = *self.search;
        let all = &self.chunk.drawn;
        let mut order: Vec<u32> = (0..bucket.len() as u32).collect();
        let own = |member: u32| bucket.own_at_most(member);
        order.sort_unstable_by(|&a, &b| own(b).total_cmp(&own(a)).then(a.cmp(&b)));
        context.kernel.one_to_many(centers.row(number as usize), &all.members.panel, &mut self.distances);
        let dimensions = centers.dimensions();
        let to_center: Vec<f64> = order.iter().map(|&member| own(member).sqrt() * (1.0 + SLACK)).collect();
        let reach = |&squared: &T::Distance| {
            let least = T::at_least(squared, dimensions).sqrt() * (1.0 - SLACK) - threshold.distance;
            match to_center.first() {
                Some(&farthest) if farthest >= least => to_center.partition_point(|&own| own >= least) as u32,
                _ => 0,
            }
        };
        // Farthest first, as rows of a tile share the largest reach; to the width of a tile, which sorts in one go.
        self.reaching.resize_with(order.len().div_ceil(TILE_COLUMNS), Vec::new);
        self.reaching.iter_mut().for_each(Vec::clear);
        for (vector, squared) in (0..).zip(&self.distances) {
            let reach = reach(squared);
            if reach > 0 {
                self.reaching[(reach as usize - 1) / TILE_COLUMNS].push((vector, reach));
            }
        }
        let (rows, reach): (Vec<u32>, Vec<u32>) = self.reaching.iter().rev().flatten().copied().unzip();
        let drawn = Ordered { members: &all.members, order: &rows };
        let columns = Ordered { members: &bucket.members, order: &order };
        let (sides, found) =
            (Sides { search: self.search, chunk: self.chunk, distances: &self.distances }, &mut self.found);
        let take = |vector, member| {
            found.extend(sides.neighbour(vector, number, member, bucket));
            Ok(())
        };
        let compared = self.tiles.find(drawn, columns, &reach, |_, _| true, take);
        let compared = compared.expect("nothing here fails");
        all.len() as u64 + compared.verified_pairs
    }
}

/// Drawn vectors and a bucket, seen from each other.
struct Sides<'a, T: Coordinate> {
    search: &'a NeighbourSearch<'a, T>,
    chunk: &'a Chunk<T>,
    /// Of each drawn vector to the center of the bucket.
    distances: &'a [T::Distance],
}

impl<T: Coordinate> Sides<'_, T> {
    /// What is noted of a pair within the threshold; nothing of a vector with itself.
    fn neighbour(&self, vector: u32, number: u32, member: u32, bucket: &LoadedBucket<T>) -> Option<(u32, Neighbour)> {
        let NeighbourSearch { context, centers, threshold, rule, .. } = *self.search;
        let Chunk { drawn, first, .. } = self.chunk;
        let at = drawn.places[vector as usize];
        if at == (number, member) {
            return None;
        }
        let t = if at.0 == number {
            f64::NEG_INFINITY
        } else {
            let dimensions = centers.dimensions();
            let squared = |a: &[T], b: &[T]| context.kernel.distance(a, b);
            let center = centers.row(at.0 as usize);
            let gap = Gap { squared: T::at_most(squared(center, centers.row(number as usize)), dimensions) };
            let x = Place {
                own: drawn.own[vector as usize],
                other: T::at_least(self.distances[vector as usize], dimensions),
            };
            let y = Place {
                own: bucket.own_at_most(member),
                other: T::at_least(squared(center, bucket.members.panel.row(member as usize)), dimensions),
            };
            pair_threshold(rule, &rule.parts(threshold.distance, gap), x, y)
        };
        // The same whichever vectors are looked for at once, which the memory decides.
        let lot = (*first as u64 + u64::from(vector)) << 32 | u64::from(number);
        let lot = Random::new(lot, "lot").below(u64::from(u32::MAX)) as u32;
        let lot = lot.wrapping_add(member.wrapping_mul(0x9E37_79B1)); // spreads the members of one bucket
        // Rounded up, as a threshold that is a little too small does not admit the pair.
        let t = if t.is_finite() { (t as f32).next_up() } else { t as f32 };
        Some((vector, Neighbour { lot, bucket: number, t }))
    }
}
