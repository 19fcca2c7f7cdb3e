//! The true neighbours of drawn vectors, and the least threshold of a rule that finds each: one pass over the store.

use std::ops::Range;
use std::sync::Mutex;

use adjoin_kernels::{Panel, TILE_COLUMNS};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::execute::{Ordered, Tiles};
use crate::geometry::{Coordinate, Threshold};
use crate::load::{BucketPass, Buckets, Drawn, LoadedBucket};
use crate::plan::{Gap, Place, Rule, pair_threshold};
use crate::predicate::Predicate;
use crate::random::Random;
use crate::truth::ROWS_MIN;
use crate::workers::lock;

/// Neighbours noted of all vectors, about. Of a vector that has more than its part, as many are drawn at random.
const NOTED: u64 = 300_000;
/// The part of a vector.
const NOTED_OF_ONE: std::ops::RangeInclusive<u64> = 64..=4096;
/// Bytes of a vector in two samples of a certification.
const CERTIFIED_BYTES: usize = 48;
/// Neighbours that a worker holds before they are noted.
const FOUND_AT_ONCE: usize = 4096;
/// Covers the few f64 operations of the bound below.
const SLACK: f64 = 1e-12;

/// A drawn vector and its neighbours.
#[derive(Debug, Clone, Default)]
pub(super) struct Neighbours {
    /// The row of the vector.
    pub(super) row: u64,
    /// How many there are, by their weights, and each once.
    pub(super) count: u64,
    pub(super) unweighted: u64,
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
    pub(super) member: u32,
    /// The least threshold at which the rule admits the pair, on an edge that is there.
    pub(super) t: f32,
}

/// Bytes of so many vectors, and the most that their neighbours take beside that.
pub(super) fn neighbours_bytes(rows: u64, vectors: u64) -> (u64, u64) {
    let noted = noted_and_more(noted_max(rows)) * size_of::<Neighbour>();
    // Of each its place too, and what a certification holds of it; all twice while more are taken in.
    (2 * vectors * (size_of::<Neighbours>() + 8 + CERTIFIED_BYTES) as u64, vectors * noted as u64)
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

/// Neighbours noted of a vector, at most. Of few vectors all are drawn at once; of others it does not depend on how many are
/// drawn, so that larger samples hold smaller ones.
fn noted_max(rows: u64) -> usize {
    let drawn_at_first = rows.clamp(1, 2 * ROWS_MIN);
    (NOTED / drawn_at_first).clamp(*NOTED_OF_ONE.start(), *NOTED_OF_ONE.end()) as usize
}

/// What is looked for.
#[derive(Clone, Copy)]
pub(super) struct NeighbourSearch<'a, T: Coordinate> {
    pub(super) context: &'a Context,
    pub(super) buckets: &'a Buckets<'a>,
    pub(super) centers: &'a Panel<T>,
    pub(super) threshold: &'a Threshold,
    pub(super) predicate: Predicate,
    pub(super) rule: Rule,
    /// Bytes for reading ahead.
    pub(super) read_ahead: u64,
}

/// The neighbours of drawn vectors, and how many distances it took to find them.
///
/// No vector y of bucket j is within eps of x unless `d(y, c_j) >= d(x, c_j) - eps`: with the members in descending
/// order of their distance to the center, a prefix is compared.
pub(super) fn neighbours<T: Coordinate>(
    search: &NeighbourSearch<'_, T>,
    drawn: &Drawn<T>,
    room: &mut Room<'_>,
) -> Result<(Vec<Neighbours>, u64)> {
    let NeighbourSearch { context, buckets, centers, read_ahead, .. } = *search;
    let most = noted_max(buckets.rows());
    let found = Mutex::new((vec![Neighbours::default(); drawn.len()], room));
    let state = || Comparison::new(search, drawn);
    let pass = BucketPass { context, buckets, centers, phase: "calibrate", read_ahead };
    let distances = pass.run(state, |comparison, number, bucket| {
        for vector in drawn.of_bucket(number) {
            lock(&found).0[vector].row = bucket.row(drawn.places[vector].1);
        }
        comparison.compare(number, bucket, &|some| {
            let (found, room) = &mut *lock(&found);
            let weight = buckets.pair_weight(number);
            let add = |(vector, neighbour): (u32, Neighbour)| found[vector as usize].add((neighbour, weight), most);
            let taken = some.drain(..).map(add).sum();
            room.bytes = room.bytes.checked_sub(taken).ok_or_else(room.refusal)?;
            Ok(())
        })
    })?;
    let (mut found, _) = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.iter_mut().for_each(|neighbours| neighbours.settle(most));
    Ok((found, distances.iter().sum()))
}

impl Neighbours {
    /// Notes a neighbour, which counts so many times; returns how many bytes more are held.
    fn add(&mut self, (neighbour, weight): (Neighbour, u64), most: usize) -> u64 {
        let before = self.noted.capacity();
        self.count += weight;
        self.unweighted += 1;
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
        self.noted.sort_unstable_by_key(|neighbour| (neighbour.lot, neighbour.bucket, neighbour.member));
        self.noted.truncate(most);
    }
}

/// Neighbours, each with the number of the vector that has it.
type Found = Vec<(u32, Neighbour)>;

/// A worker's state.
pub(super) struct Comparison<'a, T: Coordinate> {
    search: &'a NeighbourSearch<'a, T>,
    drawn: &'a Drawn<T>,
    /// Of each drawn vector to the center of the bucket in question, and what stands for it.
    distances: Vec<T::Distance>,
    keys: Vec<u32>,
    /// Keys in the upper half, members or vectors in the lower one.
    chosen: Vec<u64>,
    /// The members of the bucket, farthest from its center first.
    order: Vec<u32>,
    /// For each tile of these, the largest key of a vector that may have a neighbour in it.
    tile_limits: Vec<u32>,
    /// Drawn vectors that may have a neighbour in the bucket, and with how many of its members they are compared.
    rows: Vec<u32>,
    reach: Vec<u32>,
    tiles: Tiles<'a, T>,
    found: Found,
}

impl<'a, T: Coordinate> Comparison<'a, T> {
    fn new(search: &'a NeighbourSearch<'a, T>, drawn: &'a Drawn<T>) -> Self {
        let NeighbourSearch { context, predicate, threshold, .. } = *search;
        let tiles = Tiles::new(context.kernel, predicate, threshold);
        let vectors = drawn.len();
        let [keys, order, tile_limits, rows, reach] = [(); 5].map(|()| Vec::new());
        let (distances, chosen) = (vec![T::Distance::default(); vectors], Vec::with_capacity(vectors));
        Self {
            search,
            drawn,
            distances,
            keys,
            chosen,
            order,
            tile_limits,
            rows,
            reach,
            tiles,
            found: Vec::with_capacity(FOUND_AT_ONCE),
        }
    }

    /// Bytes that a worker holds for each drawn vector.
    pub(super) const BYTES_A_VECTOR: u64 = (size_of::<T::Distance>() + 4 + 8 + 4 + 4) as u64;

    /// Bytes that a worker holds for buckets of at most `rows` members, those for each drawn vector apart.
    pub(super) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        // Of each member its key, as sorted, and its place in the order.
        let found = FOUND_AT_ONCE * size_of::<(u32, Neighbour)>();
        Tiles::<T>::memory_bytes(rows, dimensions) + (rows * (4 + 8 + 4) + found) as u64
    }

    /// Finds the neighbours that lie in a bucket, and hands them to `take`, each with the number of the vector that has it;
    /// returns the distances that were computed.
    fn compare(
        &mut self,
        number: u32,
        bucket: &LoadedBucket<T>,
        take: &dyn Fn(&mut Found) -> Result<()>,
    ) -> Result<u64> {
        let NeighbourSearch { context, centers, .. } = *self.search;
        let all = self.drawn;
        context.kernel.one_to_many(centers.row(number as usize), &all.members.panel, &mut self.distances);
        self.order(bucket);
        self.choose_rows(all.of_buckets(self.search.buckets.partners(number)));
        let Self { ref order, ref rows, ref reach, .. } = *self;
        let drawn = Ordered { members: &all.members, order: rows };
        let columns = Ordered { members: &bucket.members, order };
        let (sides, found) =
            (Sides { search: self.search, drawn: self.drawn, distances: &self.distances }, &mut self.found);
        // Of many equal vectors, all are neighbours of each other: they are not held for a whole bucket.
        let note = |vector, member| {
            found.extend(sides.neighbour(vector, number, member, bucket));
            if found.len() < FOUND_AT_ONCE { Ok(()) } else { take(found) }
        };
        let counts = |vector, member| sides.counts(vector, member, bucket);
        let compared = self.tiles.find(drawn, columns, reach, counts, note)?;
        take(&mut self.found)?;
        Ok(all.len() as u64 + compared.verified_pairs)
    }

    /// Puts the members of a bucket in descending order of their distance to its center, and finds out how far from there
    /// a vector may lie to have a neighbour in each tile of them.
    fn order(&mut self, bucket: &LoadedBucket<T>) {
        let residuals = bucket.members.residual + self.drawn.members.residual;
        let (eps, dimensions) = (self.search.threshold.widened(residuals).distance, bucket.members.panel.dimensions());
        T::measure_keys(&bucket.own, None, dimensions, &mut self.keys);
        self.chosen.clear();
        self.chosen.extend(self.keys.iter().zip(0..).map(|(&key, member)| u64::from(!key) << 32 | member));
        self.chosen.sort_unstable();
        self.order.clear();
        self.order.extend(self.chosen.iter().map(|&chosen| chosen as u32));
        let farthest = self.order.iter().step_by(TILE_COLUMNS).map(|&member| bucket.own_at_most(member).sqrt());
        self.tile_limits.clear();
        self.tile_limits.extend(farthest.map(|own| T::key_up_to(((own + eps) * (1.0 + SLACK)).powi(2))));
    }

    /// Finds those of some drawn vectors that may have a neighbour in the bucket, and with how many of its members they are compared:
    /// most first, as rows of a tile share the largest reach.
    fn choose_rows(&mut self, of: Range<usize>) {
        let (kernel, members) = (self.search.context.kernel, self.order.len());
        T::measure_keys(&self.distances[of.clone()], None, self.search.threshold.dimensions, &mut self.keys);
        self.chosen.clear();
        kernel.at_most(&self.keys, self.tile_limits.first().copied().unwrap_or(0), &mut self.chosen);
        self.chosen.iter_mut().for_each(|chosen| *chosen += of.start as u64); // vectors are the lower halves
        let limits = &self.tile_limits;
        let tiles = |chosen: u64| limits.partition_point(|&limit| (chosen >> 32) as u32 <= limit);
        // Sorted in one go, by how many reach how many tiles.
        let mut starts = vec![0; limits.len() + 1];
        self.chosen.iter().for_each(|&chosen| starts[limits.len() - tiles(chosen)] += 1);
        let mut start = 0;
        starts.iter_mut().for_each(|count| start += std::mem::replace(count, start));
        for list in [&mut self.rows, &mut self.reach] {
            list.resize(self.chosen.len(), 0);
        }
        for &chosen in &self.chosen {
            let reached = tiles(chosen);
            let at = &mut starts[limits.len() - reached];
            self.rows[*at] = chosen as u32;
            self.reach[*at] = (reached * TILE_COLUMNS).min(members) as u32;
            *at += 1;
        }
    }
}

/// Drawn vectors and a bucket, seen from each other.
struct Sides<'a, T: Coordinate> {
    search: &'a NeighbourSearch<'a, T>,
    drawn: &'a Drawn<T>,
    /// Of each drawn vector to the center of the bucket.
    distances: &'a [T::Distance],
}

impl<T: Coordinate> Sides<'_, T> {
    /// Whether a pair counts, if it is within the threshold.
    fn counts(&self, vector: u32, member: u32, bucket: &LoadedBucket<T>) -> bool {
        let (buckets, drawn) = (self.search.buckets, self.drawn);
        let Some(filter) = buckets.pairs() else { return true };
        let (own, place) = drawn.places[vector as usize];
        let is_left = match buckets.are_of_two_sets() {
            true => buckets.part_of(own) == 0,
            false => drawn.rows[vector as usize] < bucket.row(member),
        };
        let (of_vector, of_member) = (buckets.ranks(own, place), bucket.ranks(member));
        if is_left { filter.accepts(of_vector, of_member) } else { filter.accepts(of_member, of_vector) }
    }

    /// What is noted of a pair within the threshold; nothing of a vector with itself.
    fn neighbour(&self, vector: u32, number: u32, member: u32, bucket: &LoadedBucket<T>) -> Option<(u32, Neighbour)> {
        let NeighbourSearch { context, centers, threshold, rule, .. } = *self.search;
        let drawn = self.drawn;
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
        let own = u64::from(at.0).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(at.1);
        let lot = Random::new(own << 32 ^ own >> 32 ^ u64::from(number), "lot").below(u64::from(u32::MAX)) as u32;
        let lot = lot.wrapping_add(member.wrapping_mul(0x9E37_79B1)); // spreads the members of one bucket
        // Rounded up, as a threshold that is a little too small does not admit the pair.
        let t = if t.is_finite() { (t as f32).next_up() } else { t as f32 };
        Some((vector, Neighbour { lot, bucket: number, member, t }))
    }
}
