//! Which threshold of a rule keeps the promise of recall? Draws vectors, finds their true neighbours, and certifies a
//! threshold with them; makes the graph of edges on the way, as an edge that is left out costs recall too.

use std::ops::Range;
use std::sync::Arc;

use adjoin_device::Reservation;

use super::nearness::{self, Horizon, NearGraph, near_graph};
use super::neighbours::{Comparison, Neighbour, NeighbourSearch, Neighbours, Room, neighbours, neighbours_bytes};
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::join::watched::{Watched, WatchedVectors, with_bounds};
use crate::load::{BucketPass, Buckets, Drawn, draw_other_places, least_read_ahead, read_ahead_bytes};
use crate::plan::{Rule, Task};
use crate::random::Random;
use crate::store::format::Extent;
use crate::truth::{
    Certification, PairSample, ROWS_MIN, Recalls, RowSample, recalls, rows_of_step, rows_to_draw, steps_to_test,
};

/// A sample of more than this share of all vectors might as well be all of them.
const SHARE_MAX: f64 = 1.0 / 3.0;
/// Neighbors of a vector for which the least budget has room. Fewer need a larger sample, for which memory is asked when it
/// is known.
const NEIGHBORS_FORESEEN: f64 = 4.0;
/// Centers that are looked at around each, narrow at first.
const CENTERS: [usize; 3] = [128, 512, usize::MAX];
/// How far beyond the largest threshold of a sampled pair edges are looked for, as a share of it.
const BEYOND_LARGEST: f64 = 0.3;
/// What memory is for, as a refusal says it.
const PURPOSE: &str = "calibrating this join";
/// Fewer vectors are not worth a pass over the store.
const CHUNK_VECTORS_MIN: u64 = 1024;
/// Bytes of a noted neighbor in the samples of two certifications, for each time that it counts.
const CERTIFIED_BYTES: u64 = 80;
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
/// A first sample tells how many neighbors a vector has, and so how large a sample each goal needs. Samples grow by steps,
/// each of which holds the one before, so a goal gets the same vectors whichever others share the passes.
pub(super) fn calibrate<T: Coordinate>(
    search: &NeighbourSearch<'_, T>,
    goals: &[Goal],
    vectors_max: u64,
) -> Result<Vec<Option<Calibrated>>> {
    let mut all: Vec<Attempt> = goals.iter().map(|&goal| Attempt::new(goal)).collect();
    let Some(seed) = goals.first().map(|goal| goal.seed) else { return Ok(Vec::new()) };
    let mut sampled = Sampled::new(search.buckets);
    let mut next = Some(0);
    while let Some(step) = next {
        let draws = sampled.draws(search.buckets, step);
        if draws.iter().zip(&sampled.parts).any(|(wanted, part)| part.promised && *wanted > vectors_max) {
            break;
        }
        let distances = sampled.draw_up_to(search, step, seed)?;
        let mut due = Vec::new();
        for attempt in all.iter_mut().filter(|attempt| attempt.found.is_none()) {
            attempt.sample_distances += distances;
            if step == 0 {
                attempt.steps = sampled.steps_for(attempt.goal.recall);
            }
            // What is known of all vectors is tested at once.
            if attempt.steps.contains(&step) || sampled.is_whole() {
                due.push(attempt);
            }
        }
        let mut sought = Vec::new();
        for attempt in due {
            match attempt.goal.t {
                Some(t) => sampled.with_threshold(search, t, attempt)?,
                None => sought.push(attempt),
            }
        }
        sampled.calibrate(search, sought)?;
        if sampled.is_whole() {
            break;
        }
        let open = all.iter().filter(|attempt| attempt.found.is_none());
        next = open.filter_map(|attempt| sampled.next_step(search.buckets, attempt, step)).min();
    }
    Ok(all.into_iter().map(|attempt| attempt.found).collect())
}

/// Vectors of each set whose neighbors a calibration finds at first.
const CALIBRATION_VECTORS: u64 = ROWS_MIN;

/// Estimates the vectors that a calibration draws if there are about `pairs` pairs.
pub(super) fn vectors_foreseen(rows: u64, pairs: u64, recall: f64) -> u64 {
    // The number of pairs is a rough guess, so the first sample decides in doubt.
    let neighbors = 4.0 * pairs as f64 / rows.max(1) as f64;
    if pairs == 0 { ROWS_MIN } else { rows_to_draw(rows, neighbors, recall) }
}

/// Vectors whose calibration the least budget has room for, drawn of `rows` of as many as `sets` sets.
pub(super) fn vectors_in_least(rows: u64, sets: u64, recall: f64) -> u64 {
    let first = sets * CALIBRATION_VECTORS;
    if recall >= 1.0 { first } else { rows_to_draw(rows, NEIGHBORS_FORESEEN, recall).max(first) }
}

/// A goal on its way.
struct Attempt {
    goal: Goal,
    /// The steps whose samples are tested.
    steps: Vec<u32>,
    found: Option<Calibrated>,
    /// Distances computed so far.
    center_distances: u64,
    sample_distances: u64,
}

impl Attempt {
    fn new(goal: Goal) -> Self {
        Self { goal, steps: Vec::new(), found: None, center_distances: 0, sample_distances: 0 }
    }
}

/// A set whose vectors are drawn.
struct Part {
    buckets: Range<u32>,
    rows: u64,
    /// Whether its vectors are promised a recall. Others are drawn to see pairs from both sides.
    promised: bool,
}

/// Drawn vectors with their neighbours, by ascending place.
struct Sampled {
    parts: Vec<Part>,
    places: Vec<(u32, u32)>,
    neighbours: Vec<Neighbours>,
    /// Steps that were drawn.
    steps: u32,
    /// The edges between the buckets of neighbours, ascending.
    edges: Vec<Task>,
    /// Of the neighbours, and of these.
    memory: Vec<Reservation>,
    of_edges: Option<Reservation>,
}

impl Sampled {
    fn new(buckets: &Buckets<'_>) -> Self {
        let promised = buckets.promised();
        let part = |set: Range<u32>| Part {
            rows: buckets.rows_of(set.clone()),
            promised: promised.contains(&set),
            buckets: set,
        };
        Self {
            parts: buckets.parts().into_iter().map(part).collect(),
            places: Vec::new(),
            neighbours: Vec::new(),
            steps: 0,
            edges: Vec::new(),
            memory: Vec::new(),
            of_edges: None,
        }
    }

    /// Vectors of each part in the sample of a step: at one rate, and of sets that are promised a recall at least some. All
    /// vectors if these are most of them.
    fn draws(&self, buckets: &Buckets<'_>, step: u32) -> Vec<u64> {
        let rate = rows_of_step(step) as f64 / buckets.rows().max(1) as f64;
        let wanted = |part: &Part| {
            let least = if part.promised { ROWS_MIN } else { 0 };
            let wanted = ((rate * part.rows as f64).ceil() as u64).max(least);
            if wanted as f64 > SHARE_MAX * part.rows as f64 { part.rows } else { wanted }
        };
        let draws: Vec<u64> = self.parts.iter().map(wanted).collect();
        let all_promised = self.parts.iter().zip(&draws).filter(|(part, _)| part.promised);
        let seen_from_one_side = all_promised.clone().all(|(part, wanted)| *wanted == part.rows);
        let others = |(part, wanted): (&Part, u64)| if part.promised || !seen_from_one_side { wanted } else { 0 };
        self.parts.iter().zip(draws).map(others).collect()
    }

    /// The drawn vectors of a part.
    fn of_part(&self, part: &Part) -> Range<usize> {
        within(&self.places, &part.buckets)
    }

    fn is_all_of(&self, part: &Part) -> bool {
        self.of_part(part).len() as u64 == part.rows
    }

    /// Whether all vectors that are promised a recall were drawn.
    fn is_whole(&self) -> bool {
        self.parts.iter().filter(|part| part.promised).all(|part| self.is_all_of(part))
    }

    /// Returns the steps whose samples a goal needs, given the number of neighbors in the first sample.
    fn steps_for(&self, recall: f64) -> Vec<u32> {
        let (mut rows, mut neighbors) = (0, 0.0);
        for part in &self.parts {
            let drawn = self.of_part(part);
            let counts: usize = self.neighbours[drawn.clone()].iter().map(|found| found.unweighted as usize).sum();
            rows += part.rows;
            neighbors += counts as f64 / drawn.len().max(1) as f64 * part.rows as f64;
        }
        let sees_all_pairs = self.parts.iter().any(|part| part.promised && self.is_all_of(part));
        let needed = match sees_all_pairs {
            true => ROWS_MIN,
            false => rows_to_draw(rows, neighbors / rows.max(1) as f64, recall),
        };
        steps_to_test(needed).to_vec()
    }

    /// The next step whose sample an attempt needs: the one at which all is drawn if that is sooner.
    fn next_step(&self, buckets: &Buckets<'_>, attempt: &Attempt, step: u32) -> Option<u32> {
        let is_whole = |step: &u32| {
            let draws = self.draws(buckets, *step);
            self.parts.iter().zip(draws).all(|(part, wanted)| !part.promised || wanted == part.rows)
        };
        let last = (step + 1..).find(is_whole).expect("at some step all vectors are drawn");
        Some(attempt.steps.iter().copied().find(|next| *next > step).map_or(last, |next| next.min(last)))
    }

    /// Draws the vectors of all steps up to one and finds their neighbours; returns how many distances that took.
    fn draw_up_to<T: Coordinate>(&mut self, search: &NeighbourSearch<'_, T>, step: u32, seed: u64) -> Result<u64> {
        let mut places: Vec<(u32, u32)> = Vec::new();
        for step in self.steps..=step {
            let seed = seed.wrapping_add(u64::from(step) << 32);
            let mut all = self.places.iter().chain(&places).copied().collect::<Vec<_>>();
            all.sort_unstable();
            for (part, wanted) in self.parts.iter().zip(self.draws(search.buckets, step)) {
                let known = &all[within(&all, &part.buckets)];
                let more = wanted.saturating_sub(known.len() as u64);
                let of = (part.buckets.clone(), known);
                places.extend(draw_other_places(search.buckets, of, more, seed, "calibration"));
            }
        }
        self.steps = step + 1;
        places.sort_unstable();
        self.find(search, places)
    }

    /// Finds the neighbours of vectors and takes them in.
    fn find<T: Coordinate>(&mut self, search: &NeighbourSearch<'_, T>, places: Vec<(u32, u32)>) -> Result<u64> {
        let NeighbourSearch { context, buckets, centers, .. } = *search;
        let count = places.len() as u64;
        self.of_edges = None; // they are made anew
        let held = context.budget().total() - context.budget().free();
        let Memory { chunk, neighbours: bytes, mut reserved } = plan_memory(search, count)?;
        let (mut found, mut computed) = (Vec::with_capacity(places.len()), 0);
        let (of_vectors, most_of_neighbours) = neighbours_bytes(buckets.rows(), count);
        let least = least_bytes::<T>(buckets, search.rule, context.threads, count);
        // With so much, all neighbours have room beside a chunk, which takes half of what is spare.
        let more = most_of_neighbours - least_for_neighbours(buckets, count);
        let of_chunk = (count - CHUNK_VECTORS_MIN.min(count)) * bytes_of_drawn::<T>(buckets, context.threads);
        let refusal = || context.too_small(held + least + more + more.min(of_chunk), PURPOSE);
        let mut room = Room { bytes, refusal: &refusal };
        for chunk in places.chunks((chunk as usize).max(1)) {
            let drawn = Drawn::read(context, buckets, centers, chunk)?;
            let (neighbours, distances) = neighbours(search, &drawn, &mut room)?;
            computed += distances;
            found.extend(neighbours);
        }
        reserved.shrink(of_vectors + (bytes - room.bytes));
        self.memory.push(reserved);
        self.add(places, found);
        let noted = self.neighbours.iter().flat_map(|found| &found.noted);
        let bytes = |one: &Neighbour| size_of::<Task>() as u64 + buckets.pair_weight(one.bucket) * CERTIFIED_BYTES;
        self.of_edges = Some(context.reserve(noted.map(bytes).sum(), PURPOSE)?);
        self.edges = edges_between(&self.places, &self.neighbours);
        Ok(computed)
    }

    /// Takes in more vectors.
    fn add(&mut self, places: Vec<(u32, u32)>, neighbours: Vec<Neighbours>) {
        let known = self.places.drain(..).zip(self.neighbours.drain(..));
        let mut all: Vec<_> = known.chain(places.into_iter().zip(neighbours)).collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        (self.places, self.neighbours) = all.into_iter().unzip();
    }

    /// Finds threshold and edges for each goal that this sample supports.
    fn calibrate<T: Coordinate>(&self, search: &NeighbourSearch<'_, T>, sought: Vec<&mut Attempt>) -> Result<()> {
        if sought.is_empty() {
            return Ok(());
        }
        let every_edge = self.certification(search.buckets, None);
        let largest = every_edge.largest_threshold();
        let farther = if largest.is_finite() { largest + BEYOND_LARGEST * largest.abs() } else { largest };
        let supported = sought.into_iter().filter_map(|attempt| {
            let recall = attempt.goal.recall;
            every_edge.certifies(largest, recall).then_some(())?;
            // Edges that are left out cost recall, which a larger threshold makes up for; an edge of few pairs is there
            // only from a larger one on than each of them.
            let stricter = every_edge.least_threshold(1.0 - (1.0 - recall) / 3.0, largest);
            Some((attempt, reach_of(search, stricter.unwrap_or(farther))))
        });
        let mut open: Vec<(&mut Attempt, f64)> = supported.collect();
        for (number, centers) in CENTERS.into_iter().enumerate() {
            // One pass for all, as far as the farthest of them looks; none takes a threshold beyond its own horizon.
            let Some(t) = open.iter().map(|(_, horizon)| *horizon).reduce(f64::max) else { break };
            let (graph, distances) = near_graph(search, Horizon { t, centers }, &self.edges)?;
            let certification = self.certification(search.buckets, Some(&graph));
            let graph = Arc::new(graph);
            let mut left = Vec::new();
            for (attempt, horizon) in open {
                attempt.center_distances += distances;
                match certification.least_threshold(attempt.goal.recall, horizon) {
                    Some(t) => self.settle(search, attempt, (graph.clone(), &certification), (t, true))?,
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
        let horizon = Horizon { t: reach_of(search, t), centers: usize::MAX };
        let (graph, distances) = near_graph(search, horizon, &self.edges)?;
        attempt.center_distances += distances;
        let certification = self.certification(search.buckets, Some(&graph));
        let kept = certification.certifies(t, attempt.goal.recall);
        self.settle(search, attempt, (Arc::new(graph), &certification), (t, kept))
    }

    /// Notes what is known of a threshold.
    fn settle<T: Coordinate>(
        &self,
        search: &NeighbourSearch<'_, T>,
        attempt: &mut Attempt,
        (graph, certification): (Arc<NearGraph>, &Certification),
        (t, kept): (f64, bool),
    ) -> Result<()> {
        let Goal { recall, seed, .. } = attempt.goal;
        let least_of_pairs = certification.least_pair_recall(t, recall);
        let least_of_rows = certification.least_row_recalls(t);
        let told = certification.sets.iter().zip(&least_of_rows).map(|(set, &least_of_rows)| {
            let told = recalls(&set.tallies(t), set.whole, seed);
            with_bounds(told, (least_of_pairs, least_of_rows))
        });
        let promised = || self.parts.iter().filter(|part| part.promised);
        let watched = promised().map(|part| {
            let with_neighbours = self.of_part(part).filter(|&k| self.neighbours[k].count > 0);
            let vectors = with_neighbours.map(|k| (self.neighbours[k].row, self.neighbours[k].count)).collect();
            WatchedVectors { vectors, whole: self.is_all_of(part), seed }
        });
        attempt.found = Some(Calibrated {
            recalls: told.collect(),
            watched: Watched::new(search.context, watched.collect(), search.buckets.first_new_row())?,
            t,
            kept,
            vectors: promised().map(|part| self.of_part(part).len() as u64).sum(),
            vectors_with_neighbours: certification.sets.iter().map(|set| set.rows.len() as u64).sum(),
            pairs: certification.sets.iter().flat_map(|set| &set.rows).map(|row| row.neighbors).sum(),
            graph,
            center_distances: attempt.center_distances,
            sample_distances: attempt.sample_distances,
        });
        Ok(())
    }

    /// What certifies a threshold; neighbours on edges that a graph does not have are never found.
    fn certification(&self, buckets: &Buckets<'_>, graph: Option<&NearGraph>) -> Certification {
        let promised: Vec<&Part> = self.parts.iter().filter(|part| part.promised).collect();
        let sets = promised.iter().map(|part| self.rows(buckets, graph, self.of_part(part), self.is_all_of(part)));
        let sets: Vec<RowSample> = sets.collect();
        // Vectors of one set that are all there are show every pair.
        let pairs = match promised.iter().position(|part| self.is_all_of(part)) {
            Some(whole) => {
                let drawn: Vec<usize> = self.of_part(promised[whole]).collect();
                let sample = sets[whole].clone();
                self.pair_sample(buckets, (sample, true), &drawn, promised[whole].rows)
            }
            None => {
                let drawn = self.at_one_rate();
                let rows = self.parts.iter().map(|part| part.rows).sum();
                let mut sample = RowSample::default();
                drawn.iter().for_each(|&k| self.push(&mut sample, (buckets, graph), k, false));
                self.pair_sample(buckets, (sample, false), &drawn, rows)
            }
        };
        Certification { sets, pairs }
    }

    /// Drawn vectors of all parts, of each as many as of the part of which the smallest share was drawn.
    fn at_one_rate(&self) -> Vec<usize> {
        let rates = self.parts.iter().filter(|part| part.rows > 0);
        let rate = rates.map(|part| self.of_part(part).len() as f64 / part.rows as f64).fold(1.0, f64::min);
        let some = self.parts.iter().enumerate().flat_map(|(number, part)| {
            let drawn = self.of_part(part);
            let count = ((rate * part.rows as f64).round() as u64).min(drawn.len() as u64);
            let mut lot = Random::new(number as u64, "one rate");
            let chosen = lot.ascending_sample(count, drawn.len() as u64);
            chosen.into_iter().map(move |k| drawn.start + k as usize)
        });
        some.collect()
    }

    /// Some of the drawn vectors, by their numbers, each pair counted as often as the recall of the set counts it.
    fn rows(&self, buckets: &Buckets<'_>, graph: Option<&NearGraph>, of: Range<usize>, whole: bool) -> RowSample {
        // Where not all neighbours are noted, something is left to chance after all.
        let weight = |neighbour: &Neighbour| buckets.pair_weight(neighbour.bucket);
        let are_noted = |found: &Neighbours| found.count == found.noted.iter().map(weight).sum::<u64>();
        let whole = whole && self.neighbours[of.clone()].iter().all(are_noted);
        let mut sample = RowSample { whole, ..RowSample::default() };
        of.for_each(|k| self.push(&mut sample, (buckets, graph), k, true));
        sample
    }

    /// Adds a drawn vector to a sample if it has neighbors, which count by their weights or once.
    fn push(
        &self,
        sample: &mut RowSample,
        (buckets, graph): (&Buckets<'_>, Option<&NearGraph>),
        k: usize,
        weighted: bool,
    ) {
        let (found, (bucket, _)) = (&self.neighbours[k], self.places[k]);
        if found.count == 0 {
            return;
        }
        let t = |neighbour: &Neighbour| match graph {
            Some(graph) if neighbour.bucket != bucket => {
                (graph.edge_t(bucket, neighbour.bucket) as f32).max(neighbour.t)
            }
            _ => neighbour.t,
        };
        let weight = |neighbour: &Neighbour| if weighted { buckets.pair_weight(neighbour.bucket) as usize } else { 1 };
        let all = found.noted.iter().map(|neighbour| (t(neighbour), weight(neighbour)));
        let count = if weighted { found.count } else { found.unweighted };
        sample.push(count, all.flat_map(|(t, weight)| std::iter::repeat_n(t, weight)));
    }

    /// The sample of pairs that these drawn vectors have, of so many rows; partners are numbered as neighbors are noted.
    fn pair_sample(
        &self,
        buckets: &Buckets<'_>,
        (sample, weighted): (RowSample, bool),
        drawn: &[usize],
        population: u64,
    ) -> PairSample {
        let weight = |neighbour: &Neighbour| if weighted { buckets.pair_weight(neighbour.bucket) as usize } else { 1 };
        let noted = || drawn.iter().flat_map(|&k| &self.neighbours[k].noted);
        let mut places: Vec<(u32, u32)> = noted().map(|one| (one.bucket, one.member)).collect();
        places.sort_unstable();
        places.dedup();
        let number =
            |one: &Neighbour| places.binary_search(&(one.bucket, one.member)).expect("all partners are listed") as u32;
        let partners = noted().flat_map(|one| std::iter::repeat_n(number(one), weight(one))).collect();
        PairSample { sample, partners, partner_count: places.len(), population, drawn: drawn.len() as u64 }
    }
}

/// Those of ascending places that lie in some buckets.
fn within(places: &[(u32, u32)], buckets: &Range<u32>) -> Range<usize> {
    let before = |end: u32| places.partition_point(|&(bucket, _)| bucket < end);
    before(buckets.start)..before(buckets.end)
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
    let least_for_neighbours = least_for_neighbours(buckets, count);
    let neighbours = neighbours_bytes(buckets.rows(), count).1.min(least_for_neighbours + (spare - more));
    let bytes = least + more + (neighbours - least_for_neighbours);
    Ok(Memory { chunk, neighbours, reserved: context.reserve(bytes, PURPOSE)? })
}

/// The least bytes with which so many vectors are drawn, their neighbours found, and edges, beside the centers.
pub(super) fn least_bytes<T: Coordinate>(buckets: &Buckets<'_>, rule: Rule, threads: usize, count: u64) -> u64 {
    let count = count.min(buckets.rows());
    let finding = least_for_finding::<T>(buckets, threads, count);
    let edges = neighbours_bytes(buckets.rows(), count).0
        + least_for_neighbours(buckets, count)
        + nearness::least_bytes::<T>(rule, buckets, threads);
    finding.max(edges) + least_read_ahead(buckets.extents(), false)
}

/// The least bytes with which so many vectors are drawn and their neighbours found, those for reading ahead apart.
fn least_for_finding<T: Coordinate>(buckets: &Buckets<'_>, threads: usize, count: u64) -> u64 {
    let a_worker = Comparison::<T>::memory_bytes(buckets.rows_max(), buckets.vectors().dimensions);
    neighbours_bytes(buckets.rows(), count).0
        + least_for_neighbours(buckets, count)
        + BucketPass::<T>::bytes(threads, buckets)
        + threads as u64 * a_worker
        + CHUNK_VECTORS_MIN.min(count) * bytes_of_drawn::<T>(buckets, threads)
}

/// The least bytes for the neighbours of so many vectors.
fn least_for_neighbours(buckets: &Buckets<'_>, count: u64) -> u64 {
    neighbours_bytes(buckets.rows(), count).1.min(NEIGHBOURS_BYTES_MIN)
}

/// Bytes that each drawn vector takes while neighbours are looked for.
fn bytes_of_drawn<T: Coordinate>(buckets: &Buckets<'_>, threads: usize) -> u64 {
    Drawn::<T>::memory_bytes(buckets, 1) + threads as u64 * Comparison::<T>::BYTES_A_VECTOR
}

/// Bytes for reading ahead during a calibration.
pub(super) fn calibration_read_ahead(extents: &[Extent], free: u64) -> u64 {
    read_ahead_bytes(extents, false, free / 4)
}
