//! Which threshold of a rule keeps the promise of recall? Draws vectors, finds their true neighbours, and asks the
//! bootstrap; makes the graph of edges on the way, as an edge that is left out costs recall too.

use std::ops::Range;
use std::sync::Arc;

use adjoin_device::Reservation;

use super::nearness::{self, Horizon, NearGraph, near_graph};
use super::neighbours::{
    Chunk, Comparison, Neighbour, NeighbourSearch, Neighbours, Room, neighbours, neighbours_bytes,
};
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::join::watched::{Watched, WatchedVectors};
use crate::load::{BucketPass, Buckets, Drawn, draw_other_places, least_read_ahead, read_ahead_bytes};
use crate::plan::{Rule, Task};
use crate::random::Random;
use crate::store::format::Extent;
use crate::truth::{NeighbourSample, Recalls};

/// Vectors from which a threshold is set at first. From as many others the recall is told; they have no part in the
/// threshold.
const VECTORS: u64 = 1_000;
/// How many times more are drawn where a sample cannot support the promise, or fewer than so many have neighbours: the
/// fewer have, the farther beyond the target a bootstrap must aim.
const MORE: u64 = 3;
const WITH_NEIGHBOURS_MIN: usize = 500;
/// So many are enough whoever has neighbours, as long as they support the promise.
const VECTORS_ENOUGH: u64 = 3_000;
/// A sample of more than this share of all vectors might as well be all of them.
const SHARE_MAX: f64 = 1.0 / 3.0;
/// Centers that are looked at around each, narrow at first.
const CENTERS: [usize; 3] = [128, 512, usize::MAX];
/// How far beyond the largest threshold of a sampled pair edges are looked for, as a share of it.
const BEYOND_LARGEST: f64 = 0.3;
/// What memory is for, as a refusal says it.
const PURPOSE: &str = "calibrating this join";
/// Fewer vectors are not worth a pass over the store.
const CHUNK_VECTORS_MIN: u64 = 1024;
/// Bytes of a neighbour that counts once more, in two samples and in the order of one.
const MORE_BYTES: u64 = 20;
/// The least memory for neighbours, where they may be more: most vectors have few.
const NEIGHBOURS_BYTES_MIN: u64 = 1 << 20;

/// A rule that is ready to be used.
pub(super) struct Calibrated {
    pub(super) graph: Arc<NearGraph>,
    pub(super) t: f64,
    /// Whether the sample supports the promise.
    pub(super) kept: bool,
    /// What the sample of each set says of the rule, without what whole tiles find beyond it.
    pub(super) recalls: Vec<Recalls>,
    /// Vectors that tell the recall that the join reaches.
    pub(super) watched: Watched,
    /// What the recall comes from.
    pub(super) vectors: u64,
    pub(super) vectors_with_neighbours: u64,
    pub(super) pairs: u64,
    /// Distances to centers, and between sampled vectors and others.
    pub(super) center_distances: u64,
    pub(super) sample_distances: u64,
}

/// Memory of the pass that finds neighbours.
struct Memory {
    /// Drawn vectors that are compared at once.
    chunk: u64,
    /// Bytes for neighbours.
    neighbours: u64,
    reserved: Reservation,
}

/// What a threshold is to reach.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    pub(super) recall: f64,
    /// A threshold of the rule that is to be used whatever it reaches.
    pub(super) t: Option<f64>,
    pub(super) seed: u64,
}

/// Finds a threshold for each goal, of vectors drawn by one seed; none where no sample of at most `vectors_max` vectors
/// supports the promise. The goals share the passes over the store.
///
/// Where two sets are joined, vectors of each are drawn, and the larger threshold is used: it fails only where that of the
/// set which needs the larger one is too small, so both promises hold with the confidence of one.
pub(super) fn calibrate<T: Coordinate>(
    search: &NeighbourSearch<'_, T>,
    goals: &[Goal],
    vectors_max: u64,
) -> Result<Vec<Option<Calibrated>>> {
    let sets: Vec<(Range<u32>, u64)> =
        search.buckets.promised().into_iter().map(|set| (set.clone(), search.buckets.rows_of(set))).collect();
    let mut all: Vec<Attempt> = goals.iter().map(|&goal| Attempt::new(goal)).collect();
    let mut vectors = VECTORS;
    let mut sampled = None;
    for round in 0u64.. {
        let draws = sets.iter().map(|(set, rows)| {
            let whole = 2.0 * vectors as f64 > SHARE_MAX * *rows as f64;
            Draw { set: set.clone(), whole, wanted: if whole { *rows } else { 2 * vectors } }
        });
        let draws: Vec<Draw> = draws.collect();
        let open = all.iter_mut().zip(goals).filter(|(attempt, _)| attempt.found.is_none());
        let reseeded = open.map(|(attempt, goal)| {
            attempt.goal.seed = goal.seed.wrapping_add(round << 32);
            attempt
        });
        let mut open: Vec<&mut Attempt> = reseeded.collect();
        if open.is_empty() || draws.iter().any(|draw| draw.wanted > vectors_max) {
            break;
        }
        // Those that were drawn before are drawn still.
        let before = sampled.take().unwrap_or_else(Sampled::default);
        let (more, distances) = before.draw_more(search, &draws, open[0].goal.seed)?;
        let sampled = sampled.insert(more);
        open.iter_mut().for_each(|attempt| attempt.sample_distances += distances);
        let mut sought = Vec::new();
        for attempt in open {
            match attempt.goal.t {
                Some(t) => sampled.with_threshold(search, t, attempt)?,
                None => sought.push(attempt),
            }
        }
        sampled.calibrate(search, sought)?;
        if draws.iter().all(|draw| draw.whole) {
            break;
        }
        vectors *= MORE;
    }
    Ok(all.into_iter().map(|attempt| attempt.found).collect())
}

/// What is to be drawn of a set, with what was drawn before.
struct Draw {
    /// Its buckets.
    set: Range<u32>,
    /// How many vectors, and whether these are all.
    wanted: u64,
    whole: bool,
}

/// Vectors of a set whose neighbours a calibration looks for at first.
pub(super) const CALIBRATION_VECTORS: u64 = 2 * VECTORS;
/// The same where few have neighbours.
pub(super) const MORE_VECTORS: u64 = MORE * CALIBRATION_VECTORS;

/// A goal on its way.
struct Attempt {
    goal: Goal,
    found: Option<Calibrated>,
    /// Distances computed so far.
    center_distances: u64,
    sample_distances: u64,
}

impl Attempt {
    fn new(goal: Goal) -> Self {
        Self { goal, found: None, center_distances: 0, sample_distances: 0 }
    }
}

/// Drawn vectors with their neighbours, by ascending place.
#[derive(Default)]
struct Sampled {
    places: Vec<(u32, u32)>,
    neighbours: Vec<Neighbours>,
    /// Whether each sets the threshold; the others are aside.
    setting: Vec<bool>,
    /// Those of each set, and whether they are all of it.
    sets: Vec<(Range<usize>, bool)>,
    /// The edges between the buckets of neighbours, ascending.
    edges: Vec<Task>,
    /// Of the neighbours, and of these.
    memory: Vec<Reservation>,
    of_edges: Option<Reservation>,
}

impl Sampled {
    /// Draws more vectors of each set and finds their neighbours; returns how many distances that took, too. One
    /// half of those that come sets the threshold, or all where these are all there are.
    fn draw_more<T: Coordinate>(
        mut self,
        search: &NeighbourSearch<'_, T>,
        draws: &[Draw],
        seed: u64,
    ) -> Result<(Self, u64)> {
        let NeighbourSearch { context, buckets, centers, .. } = *search;
        let known = self.places.len();
        let mut setting = Vec::new();
        let mut places = Vec::new();
        let mut halves = Random::new(seed, "setting");
        for Draw { set, wanted, .. } in draws {
            let known = &self.places[within(&self.places, set)];
            let more = wanted - known.len() as u64;
            let drawn = draw_other_places(buckets, (set.clone(), known), more, seed, "calibration");
            let (first, count) = (places.len(), drawn.len() as u64);
            places.extend(drawn);
            setting.resize(places.len(), false);
            halves.ascending_sample(count / 2, count).iter().for_each(|&k| setting[first + k as usize] = true);
        }
        let count = places.len() as u64;
        let wanted = draws.iter().map(|draw| draw.wanted).sum();
        self.of_edges = None; // they are made anew
        let held = context.budget().total() - context.budget().free();
        let Memory { chunk, neighbours: bytes, mut reserved } = plan_memory(search, count)?;
        let (mut found, mut computed) = (Vec::with_capacity(places.len()), 0);
        let (of_vectors, most_of_neighbours) = neighbours_bytes(count);
        let least = least_bytes::<T>(buckets, search.rule, context.threads, count);
        // With so much, all neighbours have room beside a chunk, which takes half of what is spare.
        let more = most_of_neighbours - least_for_neighbours(count);
        let of_chunk = (count - CHUNK_VECTORS_MIN.min(count)) * bytes_of_drawn::<T>(buckets, context.threads);
        let refusal = || context.too_small(held + least + more + more.min(of_chunk), PURPOSE);
        let mut room = Room { bytes, refusal: &refusal };
        for chunk in places.chunks(chunk as usize) {
            let first = known + found.len();
            let drawn = Chunk { drawn: Drawn::read(context, buckets, centers, chunk)?, first, of: wanted };
            let (neighbours, distances) = neighbours(search, &drawn, &mut room)?;
            computed += distances;
            found.extend(neighbours);
        }
        reserved.shrink(of_vectors + (bytes - room.bytes));
        self.memory.push(reserved);
        self.add(places, found, setting);
        self.sets = draws.iter().map(|draw| (within(&self.places, &draw.set), draw.whole)).collect();
        let whole = self.sets.iter().filter(|(_, whole)| *whole);
        whole.for_each(|(of, _)| self.setting[of.clone()].fill(true));
        let noted = self.neighbours.iter().flat_map(|found| &found.noted);
        let bytes = |one: &Neighbour| size_of::<Task>() as u64 + (buckets.pair_weight(one.bucket) - 1) * MORE_BYTES;
        self.of_edges = Some(context.reserve(noted.map(bytes).sum(), PURPOSE)?);
        self.edges = edges_between(&self.places, &self.neighbours);
        Ok((self, computed))
    }

    /// Takes in more vectors.
    fn add(&mut self, places: Vec<(u32, u32)>, neighbours: Vec<Neighbours>, setting: Vec<bool>) {
        let known = self.places.drain(..).zip(self.neighbours.drain(..)).zip(self.setting.drain(..));
        let mut all: Vec<_> = known.chain(places.into_iter().zip(neighbours).zip(setting)).collect();
        all.sort_unstable_by_key(|((place, _), _)| *place);
        for ((place, neighbours), setting) in all {
            self.places.push(place);
            self.neighbours.push(neighbours);
            self.setting.push(setting);
        }
    }

    /// Finds threshold and edges for each goal that this sample supports.
    fn calibrate<T: Coordinate>(&self, search: &NeighbourSearch<'_, T>, sought: Vec<&mut Attempt>) -> Result<()> {
        if sought.is_empty() {
            return Ok(());
        }
        let every_edge = self.setting_samples(search.buckets, None);
        let is_enough = |(sample, (_, whole)): (&NeighbourSample, &(Range<usize>, bool))| {
            *whole || sample.vectors >= VECTORS_ENOUGH || sample.neighbours.len() >= WITH_NEIGHBOURS_MIN
        };
        if !every_edge.iter().zip(&self.sets).all(is_enough) {
            return Ok(());
        }
        let largest = every_edge.iter().map(NeighbourSample::largest_threshold).fold(f64::NEG_INFINITY, f64::max);
        let farther = if largest.is_finite() { largest + BEYOND_LARGEST * largest.abs() } else { largest };
        let supported = sought.into_iter().filter_map(|attempt| {
            let Goal { recall, seed, .. } = attempt.goal;
            threshold_for(&every_edge, recall, seed)?;
            // Edges that are left out cost recall, which a larger threshold makes up for; an edge of few pairs is there
            // only from a larger one on than each of them.
            let stricter = threshold_for(&every_edge, 1.0 - (1.0 - recall) / 3.0, seed);
            Some((attempt, reach_of(search, stricter.unwrap_or(farther))))
        });
        let mut open: Vec<(&mut Attempt, f64)> = supported.collect();
        for (number, centers) in CENTERS.into_iter().enumerate() {
            // One pass for all, as far as the farthest of them looks; none takes a threshold beyond its own horizon.
            let Some(t) = open.iter().map(|(_, horizon)| *horizon).reduce(f64::max) else { break };
            let (graph, distances) = near_graph(search, Horizon { t, centers }, &self.edges)?;
            let samples = self.setting_samples(search.buckets, Some(&graph));
            let graph = Arc::new(graph);
            let mut left = Vec::new();
            for (attempt, horizon) in open {
                attempt.center_distances += distances;
                let Goal { recall, seed, .. } = attempt.goal;
                match threshold_for(&samples, recall, seed).filter(|&t| t <= horizon) {
                    Some(t) => self.settle(search, attempt, graph.clone(), (t, true))?,
                    None => left.push((attempt, reach_of(search, farther))),
                }
            }
            open = left;
            if number > 0 && centers >= search.centers.rows() {
                break;
            }
        }
        Ok(())
    }

    /// Finds out what is known of a threshold that was given.
    fn with_threshold<T: Coordinate>(
        &self,
        search: &NeighbourSearch<'_, T>,
        t: f64,
        attempt: &mut Attempt,
    ) -> Result<()> {
        let Goal { recall, seed, .. } = attempt.goal;
        let horizon = Horizon { t: reach_of(search, t), centers: usize::MAX };
        let (graph, distances) = near_graph(search, horizon, &self.edges)?;
        attempt.center_distances += distances;
        let samples = self.setting_samples(search.buckets, Some(&graph));
        let kept = threshold_for(&samples, recall, seed).is_some_and(|needed| needed <= t);
        self.settle(search, attempt, Arc::new(graph), (t, kept))
    }

    /// Notes what is known of a threshold.
    fn settle<T: Coordinate>(
        &self,
        search: &NeighbourSearch<'_, T>,
        attempt: &mut Attempt,
        graph: Arc<NearGraph>,
        (t, kept): (f64, bool),
    ) -> Result<()> {
        let seed = attempt.goal.seed;
        let asides: Vec<NeighbourSample> = self
            .sets
            .iter()
            .map(|set| self.sample(search.buckets, Some(&graph), set, |k| set.1 || !self.setting[k]))
            .collect();
        let watched = self.sets.iter().map(|(of, whole)| {
            let aside = of.clone().filter(|&k| self.neighbours[k].count > 0 && (*whole || !self.setting[k]));
            let vectors = aside.map(|k| (self.neighbours[k].row, self.neighbours[k].count)).collect();
            WatchedVectors { vectors, whole: *whole, seed }
        });
        let sum = |of: fn(&NeighbourSample) -> u64| asides.iter().map(of).sum();
        attempt.found = Some(Calibrated {
            recalls: asides.iter().map(|aside| aside.recalls(t, seed)).collect(),
            watched: Watched::new(search.context, watched.collect(), search.buckets.first_new_row())?,
            t,
            kept,
            vectors: sum(|aside| aside.vectors),
            vectors_with_neighbours: sum(|aside| aside.neighbours.len() as u64),
            pairs: sum(NeighbourSample::pairs),
            graph,
            center_distances: attempt.center_distances,
            sample_distances: attempt.sample_distances,
        });
        Ok(())
    }

    /// The vectors of each set that set the threshold.
    fn setting_samples(&self, buckets: &Buckets<'_>, graph: Option<&NearGraph>) -> Vec<NeighbourSample> {
        self.sets.iter().map(|set| self.sample(buckets, graph, set, |k| self.setting[k])).collect()
    }

    /// Some of the sampled vectors of a set, by their numbers; neighbours on edges that a graph does not have are never found.
    fn sample(
        &self,
        buckets: &Buckets<'_>,
        graph: Option<&NearGraph>,
        (of, whole): &(Range<usize>, bool),
        some: impl Fn(usize) -> bool,
    ) -> NeighbourSample {
        // Where not all neighbours are noted, something is left to chance after all.
        let weight = |neighbour: &Neighbour| buckets.pair_weight(neighbour.bucket);
        let are_noted = |found: &Neighbours| found.count == found.noted.iter().map(weight).sum::<u64>();
        let whole = *whole && self.neighbours[of.clone()].iter().all(are_noted);
        let mut sample = NeighbourSample { whole, ..NeighbourSample::default() };
        let chosen = of.clone().filter(|&k| some(k)).flat_map(|k| &self.neighbours[k].noted);
        sample.pair_ts.reserve_exact(chosen.map(weight).sum::<u64>() as usize);
        for k in of.clone().filter(|&k| some(k)) {
            let (found, (bucket, _)) = (&self.neighbours[k], self.places[k]);
            sample.vectors += 1;
            if found.count == 0 {
                continue;
            }
            let t = |neighbour: &Neighbour| match graph {
                Some(graph) if neighbour.bucket != bucket => {
                    (graph.edge_t(bucket, neighbour.bucket) as f32).max(neighbour.t)
                }
                _ => neighbour.t,
            };
            let all = found.noted.iter().map(|neighbour| (t(neighbour), weight(neighbour) as usize));
            sample.pair_ts.extend(all.flat_map(|(t, weight)| std::iter::repeat_n(t, weight)));
            sample.neighbours.push((found.count, sample.pair_ts.len() as u32));
        }
        sample
    }
}

/// Those of ascending places that lie in some buckets.
fn within(places: &[(u32, u32)], buckets: &Range<u32>) -> Range<usize> {
    let before = |end: u32| places.partition_point(|&(bucket, _)| bucket < end);
    before(buckets.start)..before(buckets.end)
}

/// The threshold that keeps the promise for every set; none where the sample of one does not support it.
fn threshold_for(samples: &[NeighbourSample], recall: f64, seed: u64) -> Option<f64> {
    let of_each = samples.iter().map(|sample| sample.calibrate(recall, seed));
    of_each.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
}

/// The edges between the buckets of vectors and those of their neighbours, ascending.
fn edges_between(places: &[(u32, u32)], neighbours: &[Neighbours]) -> Vec<Task> {
    let noted = neighbours.iter().map(|found| found.noted.len()).sum();
    let mut edges = Vec::with_capacity(noted);
    for (&(bucket, _), found) in places.iter().zip(neighbours) {
        let others = found.noted.iter().map(|neighbour| neighbour.bucket).filter(|&other| other != bucket);
        edges.extend(others.map(|other| (bucket.min(other), bucket.max(other))));
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// Up to which threshold edges are wanted, given what a sample wants: a little more, as noted numbers are rounded up.
/// Rules that take buckets whole learn theirs only from the edges.
fn reach_of<T: Coordinate>(search: &NeighbourSearch<'_, T>, t: f64) -> f64 {
    match t {
        _ if search.rule.takes_whole() => f64::MAX,
        t if t.is_finite() => t + 1e-4 * t.abs() + f64::from(f32::MIN_POSITIVE),
        buckets_alone_suffice => buckets_alone_suffice,
    }
}

/// What fits into memory.
fn plan_memory<T: Coordinate>(search: &NeighbourSearch<'_, T>, count: u64) -> Result<Memory> {
    let NeighbourSearch { context, buckets, rule, .. } = *search;
    drop(context.reserve(least_bytes::<T>(buckets, rule, context.threads, count), PURPOSE)?);
    let least = least_for_finding::<T>(buckets, context.threads, count) + search.read_ahead;
    let spare = context.budget().free().saturating_sub(least);
    let per_vector = bytes_of_drawn::<T>(buckets, context.threads);
    let chunk_least = CHUNK_VECTORS_MIN.min(count);
    let chunk = (chunk_least + spare / 2 / per_vector).clamp(chunk_least, count);
    let more = (chunk - chunk_least) * per_vector;
    let least_for_neighbours = least_for_neighbours(count);
    let neighbours = neighbours_bytes(count).1.min(least_for_neighbours + (spare - more));
    let bytes = least + more + (neighbours - least_for_neighbours);
    Ok(Memory { chunk, neighbours, reserved: context.reserve(bytes, PURPOSE)? })
}

/// The least bytes with which so many vectors are drawn, their neighbours found, and edges, beside the centers.
pub(super) fn least_bytes<T: Coordinate>(buckets: &Buckets<'_>, rule: Rule, threads: usize, count: u64) -> u64 {
    let count = count.min(buckets.rows());
    let finding = least_for_finding::<T>(buckets, threads, count);
    let edges =
        neighbours_bytes(count).0 + least_for_neighbours(count) + nearness::least_bytes::<T>(rule, buckets, threads);
    finding.max(edges) + least_read_ahead(buckets.extents(), false)
}

/// The least bytes with which so many vectors are drawn and their neighbours found, those for reading ahead apart.
fn least_for_finding<T: Coordinate>(buckets: &Buckets<'_>, threads: usize, count: u64) -> u64 {
    let a_worker = Comparison::<T>::memory_bytes(buckets.rows_max(), buckets.vectors().dimensions);
    neighbours_bytes(count).0
        + least_for_neighbours(count)
        + BucketPass::<T>::bytes(threads, buckets)
        + threads as u64 * a_worker
        + CHUNK_VECTORS_MIN.min(count) * bytes_of_drawn::<T>(buckets, threads)
}

/// The least bytes for the neighbours of so many vectors.
fn least_for_neighbours(count: u64) -> u64 {
    neighbours_bytes(count).1.min(NEIGHBOURS_BYTES_MIN)
}

/// Bytes that each drawn vector takes while neighbours are looked for.
fn bytes_of_drawn<T: Coordinate>(buckets: &Buckets<'_>, threads: usize) -> u64 {
    Drawn::<T>::memory_bytes(buckets, 1) + threads as u64 * Comparison::<T>::BYTES_A_VECTOR
}

/// Bytes for reading ahead during a calibration.
pub(super) fn calibration_read_ahead(extents: &[Extent], free: u64) -> u64 {
    read_ahead_bytes(extents, false, free / 4)
}
