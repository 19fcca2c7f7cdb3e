//! Finds the threshold of the union rule for the promised recall. Samples vectors, finds their true neighbors, and
//! uses them to certify a threshold. Also computes the graph of edges, since an edge that is left out reduces the
//! recall too.

use std::ops::Range;

use adjoin_device::Reservation;

use super::comparison::Comparison;
use super::drawn_groups::{DrawnGroups, GROUP_VECTORS};
use super::nearness::{self, CENTERS_MAX, Horizon, NearGraph, near_graph};
use super::neighbors::{Neighbor, NeighborSearch, Neighbors, Sample, find_neighbors, neighbors_bytes, noted_bound};
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::random::Random;
use crate::join::watched::{Watched, WatchedVectors, with_bounds};
use crate::load::{BucketPass, Buckets, DrawnVectors, draw_other_places, least_read_ahead, read_ahead_bytes};
use crate::plan::Task;
use crate::store::format::Extent;
use crate::truth::{
    Certification, PairSample, ROWS_MIN, Recalls, RowSample, recalls, rows_of_step, rows_to_draw, steps_to_test,
};

/// If a sample would exceed this fraction of all vectors, all vectors are used instead.
const SHARE_MAX: f64 = 1.0 / 3.0;
/// Number of neighbors per vector that the smallest budget assumes. If there are fewer neighbors, a larger sample is
/// needed. Its memory is reserved once its size is known.
const NEIGHBORS_FORESEEN: f64 = 4.0;
/// Numbers of nearest centers to examine for each center, in successive attempts. The last attempt examines all.
const CENTERS: [usize; 3] = [128, CENTERS_MAX, usize::MAX];
/// Edges are searched up to the largest threshold of a sampled pair plus this fraction of it, unless a smaller
/// threshold suffices.
const BEYOND_LARGEST: f64 = 0.3;
/// Purpose of the memory, for messages.
const PURPOSE: &str = "calibrating this join";
/// Minimum number of vectors per pass over the store. A pass for fewer vectors is not worthwhile.
const CHUNK_VECTORS_MIN: u64 = 1024;
/// Memory of a recorded neighbor in the samples of two certifications, in bytes, per unit of its weight.
const CERTIFIED_NEIGHBOR_BYTES: u64 = 80;

/// A calibrated rule with the edges that it needs.
pub(super) struct Calibrated {
    pub(super) graph: NearGraph,
    pub(super) t: f64,
    /// Recall of the rule in the sample of each set. Does not include pairs beyond the rule that are found because
    /// whole tiles are computed.
    pub(super) recalls: Vec<Recalls>,
    /// Sampled vectors, with which the run measures the recall that it reaches.
    pub(super) watched: Watched,
    /// Size of the sample: its vectors, its vectors that have neighbors, and its pairs.
    pub(super) vectors: u64,
    pub(super) vectors_with_neighbors: u64,
    pub(super) pairs: u64,
    /// Number of computed distances to centers, and between sampled vectors and others.
    pub(super) center_distances: u64,
    pub(super) sample_distances: u64,
}

/// The recall that a threshold must reach.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    pub(super) recall: f64,
    /// Whether the recall is for all pairs only, and not for the mean over vectors.
    pub(super) of_pairs_only: bool,
    pub(super) seed: u64,
}

/// Finds a threshold that reaches the recall of `goal`. Returns `None` if no sample of at most `vectors_max` vectors
/// suffices to certify it.
///
/// A first sample shows how many neighbors a vector has, which determines how large a sample is needed. Samples grow
/// in steps. Each sample contains the sample of the preceding step.
pub(super) fn calibrate<T: Coordinate>(
    search: &NeighborSearch<'_, T>,
    goal: Goal,
    vectors_max: u64,
) -> Result<Option<Calibrated>> {
    let NeighborSearch { context, buckets, .. } = *search;
    // A budget that is too small is refused before the first pass.
    let foreseen = vectors_in_least(buckets.rows(), buckets.promised().len() as u64, goal.recall);
    drop(context.reserve(least_bytes::<T>(buckets, context.threads, foreseen), PURPOSE)?);
    let mut sampled = Sampled::new(buckets);
    let (mut steps, mut step, mut spent) = (Vec::new(), 0, Distances::default());
    loop {
        let draws = sampled.draws(buckets, step);
        if draws.iter().zip(&sampled.parts).any(|(wanted, part)| part.promised && *wanted > vectors_max) {
            return Ok(None);
        }
        spent.of_sample += sampled.draw_up_to(search, step, goal.seed)?;
        if step == 0 {
            steps = sampled.steps_for(goal.recall);
        }
        // If the sample contains all vectors, it cannot grow, so it is tested at once.
        if steps.contains(&step) || sampled.is_whole() {
            let found = sampled.calibrate(search, goal, &mut spent)?;
            if found.is_some() || sampled.is_whole() {
                return Ok(found);
            }
        }
        step = sampled.next_step(buckets, &steps, step);
    }
}

/// Size of the first sample of a calibration, in vectors per set.
const CALIBRATION_VECTORS: u64 = ROWS_MIN;

/// Estimates the number of vectors that a calibration samples, given the approximate number of result pairs.
pub(super) fn vectors_foreseen(rows: u64, pairs: u64, recall: f64) -> u64 {
    // The number of pairs is a rough guess. If it is 0, assume that the first sample suffices.
    let neighbors = 4.0 * pairs as f64 / rows.max(1) as f64;
    if pairs == 0 { ROWS_MIN } else { rows_to_draw(rows, neighbors, recall) }
}

/// Returns the number of vectors in the samples of the first and the last test of a calibration, if a vector has
/// `neighbors` neighbors.
pub(super) fn vectors_drawn(rows: u64, neighbors: f64, recall: f64) -> Vec<u64> {
    let drawn = |step| match rows_of_step(step) {
        most if most as f64 > SHARE_MAX * rows as f64 => rows,
        some => some,
    };
    steps_to_test(rows_to_draw(rows, neighbors, recall)).into_iter().map(drawn).collect()
}

/// Returns the number of sampled vectors for which the smallest budget must suffice. They are sampled from `rows` rows
/// of `sets` sets.
pub(super) fn vectors_in_least(rows: u64, sets: u64, recall: f64) -> u64 {
    let first = sets * CALIBRATION_VECTORS;
    if recall >= 1.0 { first } else { rows_to_draw(rows, NEIGHBORS_FORESEEN, recall).max(first) }
}

/// Number of distances computed so far.
#[derive(Debug, Clone, Copy, Default)]
struct Distances {
    /// To centers.
    to_centers: u64,
    /// Between sampled vectors and others.
    of_sample: u64,
}

/// A set of vectors, or the old or new rows of a set, from which vectors are sampled.
struct Part {
    buckets: Range<u32>,
    rows: u64,
    /// Whether a recall is promised for its vectors. Other parts are sampled so that pairs can be seen from both
    /// sides.
    promised: bool,
}

/// Sampled vectors with their neighbors, sorted by place (bucket and member).
struct Sampled {
    parts: Vec<Part>,
    sample: Sample,
    /// Number of steps whose samples are included.
    steps: u32,
    /// Edges between the buckets of sampled vectors and the buckets of their neighbors, in ascending order.
    edges: Vec<Task>,
    /// Memory of the neighbors, and of the edges and certifications.
    memory: Option<Reservation>,
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
            sample: Sample::new(buckets.rows()),
            steps: 0,
            edges: Vec::new(),
            memory: None,
            of_edges: None,
        }
    }

    /// Returns the number of vectors of each part in the sample of a step. All parts are sampled at one rate, but a
    /// part with a promised recall has at least `ROWS_MIN` vectors. If more than `SHARE_MAX` of a part would be
    /// sampled, all of its vectors are.
    fn draws(&self, buckets: &Buckets<'_>, step: u32) -> Vec<u64> {
        let rate = rows_of_step(step) as f64 / buckets.rows().max(1) as f64;
        let wanted = |part: &Part| {
            let least = if part.promised { ROWS_MIN } else { 0 };
            let wanted = ((rate * part.rows as f64).ceil() as u64).max(least);
            if wanted as f64 > SHARE_MAX * part.rows as f64 { part.rows } else { wanted }
        };
        let draws: Vec<u64> = self.parts.iter().map(wanted).collect();
        // If all vectors with a promised recall are sampled, every pair is seen from one of them. Then no others are
        // needed.
        let all_promised = self.parts.iter().zip(&draws).filter(|(part, _)| part.promised);
        let seen_from_one_side = all_promised.clone().all(|(part, wanted)| *wanted == part.rows);
        let others = |(part, wanted): (&Part, u64)| if part.promised || !seen_from_one_side { wanted } else { 0 };
        self.parts.iter().zip(draws).map(others).collect()
    }

    /// Returns the indexes of the sampled vectors of a part.
    fn of_part(&self, part: &Part) -> Range<usize> {
        within(&self.sample.places, &part.buckets)
    }

    fn is_all_of(&self, part: &Part) -> bool {
        self.of_part(part).len() as u64 == part.rows
    }

    /// Returns whether the sample contains all vectors with a promised recall.
    fn is_whole(&self) -> bool {
        self.parts.iter().filter(|part| part.promised).all(|part| self.is_all_of(part))
    }

    /// Returns the steps at which the sample is tested, given the number of neighbors in the first sample.
    fn steps_for(&self, recall: f64) -> Vec<u32> {
        let (mut rows, mut neighbors) = (0, 0.0);
        for part in &self.parts {
            let drawn = self.of_part(part);
            let counts: usize =
                self.sample.neighbors[drawn.clone()].iter().map(|found| found.unweighted as usize).sum();
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

    /// Returns the next step at which the sample is tested. If an earlier step already samples all vectors with a
    /// promised recall, returns that step.
    fn next_step(&self, buckets: &Buckets<'_>, steps: &[u32], step: u32) -> u32 {
        let is_whole = |step: &u32| {
            let draws = self.draws(buckets, *step);
            self.parts.iter().zip(draws).all(|(part, wanted)| !part.promised || wanted == part.rows)
        };
        let last = (step + 1..).find(is_whole).expect("samples grow until all vectors are drawn");
        steps.iter().copied().find(|next| *next > step).map_or(last, |next| next.min(last))
    }

    /// Samples the vectors of all steps up to `step`, and finds their neighbors. Returns the number of distances
    /// computed.
    fn draw_up_to<T: Coordinate>(&mut self, search: &NeighborSearch<'_, T>, step: u32, seed: u64) -> Result<u64> {
        let mut places: Vec<(u32, u32)> = Vec::new();
        for step in self.steps..=step {
            // Each step has its own random stream, so the sample of a step contains the samples of all earlier steps.
            let seed = seed.wrapping_add(u64::from(step) << 32);
            let mut all = self.sample.places.iter().chain(&places).copied().collect::<Vec<_>>();
            all.sort_unstable();
            for (part, wanted) in self.parts.iter().zip(self.draws(search.buckets, step)) {
                let known = &all[within(&all, &part.buckets)];
                let more = wanted.saturating_sub(known.len() as u64);
                let random = Random::new(seed, "calibration");
                places.extend(draw_other_places(search.buckets, part.buckets.clone(), known, more, random));
            }
        }
        self.steps = step + 1;
        places.sort_unstable();
        self.find(search, places)
    }

    /// Finds the neighbors of the vectors at `places`, and adds both to the sample. Returns the number of distances
    /// computed.
    fn find<T: Coordinate>(&mut self, search: &NeighborSearch<'_, T>, places: Vec<(u32, u32)>) -> Result<u64> {
        let NeighborSearch { context, buckets, centers, .. } = *search;
        // The edges are computed again below. The memory for all vectors includes the earlier ones.
        (self.of_edges, self.memory) = (None, None);
        let known = self.sample.places.len() as u64;
        let (chunk, mut reserved) = plan_memory(search, known, places.len() as u64)?;
        let mut computed = 0;
        for chunk in places.chunks((chunk as usize).max(1)) {
            let drawn = DrawnVectors::read(context, buckets, centers, chunk)?;
            computed += find_neighbors(search, &drawn, &mut self.sample)?;
        }
        self.sample.sort();
        // Only the vectors and their neighbors remain.
        let held = self.sample.places.len() as u64;
        reserved.shrink(neighbors_bytes(buckets.rows(), held));
        self.memory = Some(reserved);
        let noted = self.sample.neighbors.iter().flat_map(|found| &found.noted);
        let bytes = |one: &Neighbor| bytes_of_certified(buckets.pair_weight(one.bucket));
        self.of_edges = Some(context.reserve(noted.map(bytes).sum(), PURPOSE)?);
        self.edges = edges_between(&self.sample.places, &self.sample.neighbors);
        Ok(computed)
    }

    /// Finds the threshold and the edges for a goal. Returns `None` if this sample is too small to certify the goal.
    fn calibrate<T: Coordinate>(
        &self,
        search: &NeighborSearch<'_, T>,
        goal: Goal,
        spent: &mut Distances,
    ) -> Result<Option<Calibrated>> {
        let Goal { recall, of_pairs_only, .. } = goal;
        let every_edge = self.certification(search.buckets, None, of_pairs_only);
        let largest = every_edge.largest_threshold();
        let farther = if largest.is_finite() { largest + BEYOND_LARGEST * largest.abs() } else { largest };
        // If the largest threshold cannot be certified, no smaller one can.
        if !every_edge.certifies(largest, recall) {
            return Ok(None);
        }
        // Edges that are left out reduce the recall, and a larger threshold compensates this. For an edge with few
        // pairs, the threshold at which the edge exists may be larger than the thresholds that its pairs need.
        let stricter = every_edge.least_threshold(1.0 - (1.0 - recall) / 3.0, largest);
        let mut t = reach_of(stricter.unwrap_or(farther));
        for (number, centers) in CENTERS.into_iter().enumerate() {
            let (graph, distances) = near_graph(search, Horizon { t, centers }, &self.edges)?;
            spent.to_centers += distances;
            let certification = self.certification(search.buckets, Some(&graph), of_pairs_only);
            if let Some(t) = certification.least_threshold(recall, t) {
                return self.settle(search, goal, graph, &certification, t, *spent).map(Some);
            }
            // The next attempt also includes edges that only a larger threshold admits.
            t = reach_of(farther);
            if number > 0 && centers >= search.centers.rows() {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the result for the certified threshold `t`.
    fn settle<T: Coordinate>(
        &self,
        search: &NeighborSearch<'_, T>,
        goal: Goal,
        graph: NearGraph,
        certification: &Certification,
        t: f64,
        spent: Distances,
    ) -> Result<Calibrated> {
        let Goal { recall, seed, .. } = goal;
        let pair_low = certification.least_pair_recall(t, recall);
        let row_lows = certification.least_row_recalls(t);
        let bounded_recalls = certification.sets.iter().zip(&row_lows).map(|(set, &row_low)| {
            let measured = recalls(&set.tallies(t), set.whole, seed);
            with_bounds(measured, pair_low, row_low)
        });
        let promised = || self.parts.iter().filter(|part| part.promised);
        let watched = promised().map(|part| {
            let with_neighbors = self.of_part(part).filter(|&k| self.sample.neighbors[k].count > 0);
            let vectors =
                with_neighbors.map(|k| (self.sample.neighbors[k].row, self.sample.neighbors[k].count)).collect();
            WatchedVectors { vectors, whole: self.is_all_of(part), seed }
        });
        Ok(Calibrated {
            recalls: bounded_recalls.collect(),
            watched: Watched::new(search.context, watched.collect(), search.buckets.first_new_row())?,
            t,
            vectors: promised().map(|part| self.of_part(part).len() as u64).sum(),
            vectors_with_neighbors: certification.sets.iter().map(|set| set.rows.len() as u64).sum(),
            pairs: certification.sets.iter().flat_map(|set| &set.rows).map(|row| row.neighbors).sum(),
            graph,
            center_distances: spent.to_centers,
            sample_distances: spent.of_sample,
        })
    }

    /// Returns a certification that tests thresholds with this sample. If `graph` is given and lacks an edge,
    /// neighbors on that edge count as never found.
    fn certification(&self, buckets: &Buckets<'_>, graph: Option<&NearGraph>, of_pairs_only: bool) -> Certification {
        let promised: Vec<&Part> = self.parts.iter().filter(|part| part.promised).collect();
        let sets = promised.iter().map(|part| self.rows(buckets, graph, self.of_part(part), self.is_all_of(part)));
        let sets: Vec<RowSample> = sets.collect();
        // If all vectors of one set are sampled, they show every pair.
        let pairs = match promised.iter().position(|part| self.is_all_of(part)) {
            Some(whole) => {
                let drawn: Vec<usize> = self.of_part(promised[whole]).collect();
                let sample = sets[whole].clone();
                self.pair_sample(buckets, sample, true, &drawn, promised[whole].rows)
            }
            None => {
                let drawn = self.at_one_rate();
                let rows = self.parts.iter().map(|part| part.rows).sum();
                let mut sample = RowSample::default();
                drawn.iter().for_each(|&k| self.push(&mut sample, buckets, graph, k, false));
                self.pair_sample(buckets, sample, false, &drawn, rows)
            }
        };
        Certification { of_pairs_only, sets, pairs }
    }

    /// Selects sampled vectors of all parts at one rate: the smallest fraction at which any part was sampled. Returns
    /// their indexes.
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

    /// Returns the sampled vectors with the indexes `of`, for the recall per vector. Pairs count by weight, as in the
    /// recall of the set. `whole` states that these are all vectors of the set.
    fn rows(&self, buckets: &Buckets<'_>, graph: Option<&NearGraph>, of: Range<usize>, whole: bool) -> RowSample {
        // If some neighbors were not recorded, the recorded ones are a random sample, so the result is one too.
        let weight = |neighbor: &Neighbor| buckets.pair_weight(neighbor.bucket);
        let are_noted = |found: &Neighbors| found.count == found.noted.iter().map(weight).sum::<u64>();
        let whole = whole && self.sample.neighbors[of.clone()].iter().all(are_noted);
        let mut sample = RowSample::new(whole);
        of.for_each(|k| self.push(&mut sample, buckets, graph, k, true));
        sample
    }

    /// Adds sampled vector `k` to `sample` if it has neighbors. If `weighted`, neighbors count by weight, otherwise
    /// once each.
    fn push(&self, sample: &mut RowSample, buckets: &Buckets<'_>, graph: Option<&NearGraph>, k: usize, weighted: bool) {
        let (found, (bucket, _)) = (&self.sample.neighbors[k], self.sample.places[k]);
        if found.count == 0 {
            return;
        }
        // A pair of two buckets is found only if their edge is admitted too.
        let t = |neighbor: &Neighbor| match graph {
            Some(graph) if neighbor.bucket != bucket => (graph.edge_t(bucket, neighbor.bucket) as f32).max(neighbor.t),
            _ => neighbor.t,
        };
        let weight = |neighbor: &Neighbor| if weighted { buckets.pair_weight(neighbor.bucket) as usize } else { 1 };
        let all = found.noted.iter().map(|neighbor| (t(neighbor), weight(neighbor)));
        let count = if weighted { found.count } else { found.unweighted };
        sample.push(count, all.flat_map(|(t, weight)| std::iter::repeat_n(t, weight)));
    }

    /// Returns the sample of the pairs of these sampled vectors, which represent `population` rows. If `weighted`,
    /// pairs count by weight, otherwise once each. Partners are numbered in the order in which neighbors were
    /// recorded.
    fn pair_sample(
        &self,
        buckets: &Buckets<'_>,
        sample: RowSample,
        weighted: bool,
        drawn: &[usize],
        population: u64,
    ) -> PairSample {
        let weight = |neighbor: &Neighbor| if weighted { buckets.pair_weight(neighbor.bucket) as usize } else { 1 };
        let noted = || drawn.iter().flat_map(|&k| &self.sample.neighbors[k].noted);
        let mut places: Vec<(u32, u32)> = noted().map(|one| (one.bucket, one.member)).collect();
        places.sort_unstable();
        places.dedup();
        let number =
            |one: &Neighbor| places.binary_search(&(one.bucket, one.member)).expect("all partners are listed") as u32;
        let partners = noted().flat_map(|one| std::iter::repeat_n(number(one), weight(one))).collect();
        PairSample { sample, partners, partner_count: places.len(), population, drawn: drawn.len() as u64 }
    }
}

/// Returns the range of `places` that belong to `buckets`. Places must be in ascending order.
fn within(places: &[(u32, u32)], buckets: &Range<u32>) -> Range<usize> {
    let before = |end: u32| places.partition_point(|&(bucket, _)| bucket < end);
    before(buckets.start)..before(buckets.end)
}

/// Returns the edges between the buckets of vectors and the buckets of their neighbors, in ascending order.
fn edges_between(places: &[(u32, u32)], neighbors: &[Neighbors]) -> Vec<Task> {
    let noted = neighbors.iter().map(|found| found.noted.len()).sum();
    let mut edges = Vec::with_capacity(noted);
    for (&(bucket, _), found) in places.iter().zip(neighbors) {
        let others = found.noted.iter().map(|neighbor| neighbor.bucket).filter(|&other| other != bucket);
        edges.extend(others.map(|other| (bucket.min(other), bucket.max(other))));
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// Returns the threshold up to which edges are needed, given the threshold `t` of a sample. It is slightly larger than
/// `t`, since recorded thresholds are rounded up.
fn reach_of(t: f64) -> f64 {
    match t {
        t if t.is_finite() => t + 1e-4 * t.abs() + f64::from(f32::MIN_POSITIVE),
        buckets_alone_suffice => buckets_alone_suffice,
    }
}

/// Reserves the memory for finding the neighbors of `count` vectors in addition to `known` earlier ones.
/// Returns the number of vectors to compare in one pass.
fn plan_memory<T: Coordinate>(search: &NeighborSearch<'_, T>, known: u64, count: u64) -> Result<(u64, Reservation)> {
    let NeighborSearch { context, buckets, .. } = *search;
    // If the budget is too small, the error names the memory of the whole step, not only of its first part.
    drop(context.reserve(least_bytes::<T>(buckets, context.threads, known + count), PURPOSE)?);
    let least = least_for_finding::<T>(buckets, context.threads, known + count) + search.read_ahead;
    let spare = context.budget().free().saturating_sub(least);
    let per_vector = bytes_of_drawn::<T>(buckets, context.threads);
    let chunk_least = CHUNK_VECTORS_MIN.min(count);
    let chunk = match chunk_least + spare / per_vector {
        some if some >= count => count,
        // A vector is in one group, no matter how large the chunks are.
        some => some / GROUP_VECTORS as u64 * GROUP_VECTORS as u64,
    };
    let more = (chunk - chunk_least) * per_vector;
    Ok((chunk, context.reserve(least + more, PURPOSE)?))
}

/// Returns the least memory in bytes for sampling `count` vectors, finding their neighbors, and finding edges. Does
/// not include the centers.
pub(super) fn least_bytes<T: Coordinate>(buckets: &Buckets<'_>, threads: usize, count: u64) -> u64 {
    let count = count.min(buckets.rows());
    let finding = least_for_finding::<T>(buckets, threads, count);
    let certified = noted_bound(buckets.rows(), count) * bytes_of_certified(buckets.pair_weight_max());
    let edges = neighbors_bytes(buckets.rows(), count) + certified + nearness::least_bytes::<T>(buckets, threads);
    finding.max(edges) + least_read_ahead(buckets.extents(), false)
}

/// Returns the memory in bytes of a recorded neighbor in the list of edges and in certifications.
pub(super) fn bytes_of_certified(weight: u64) -> u64 {
    size_of::<Task>() as u64 + weight * CERTIFIED_NEIGHBOR_BYTES
}

/// Returns the least memory in bytes for sampling `count` vectors and finding their neighbors, without read-ahead.
fn least_for_finding<T: Coordinate>(buckets: &Buckets<'_>, threads: usize, count: u64) -> u64 {
    let dimensions = buckets.space().dimensions();
    let a_worker = Comparison::<T>::memory_bytes(buckets.rows_max(), dimensions);
    neighbors_bytes(buckets.rows(), count)
        + BucketPass::<T>::bytes(threads, buckets)
        + threads as u64 * a_worker
        + DrawnGroups::<T>::least_bytes(dimensions)
        + CHUNK_VECTORS_MIN.min(count) * bytes_of_drawn::<T>(buckets, threads)
}

/// Returns the memory in bytes per sampled vector while neighbors are searched.
fn bytes_of_drawn<T: Coordinate>(buckets: &Buckets<'_>, threads: usize) -> u64 {
    DrawnVectors::<T>::memory_bytes(buckets, 1)
        + DrawnGroups::<T>::bytes_a_vector(buckets.space().dimensions())
        + threads as u64 * Comparison::<T>::BYTES_A_VECTOR
}

/// Returns the memory in bytes for read-ahead during a calibration, out of `free` bytes.
pub(super) fn calibration_read_ahead(extents: &[Extent], free: u64) -> u64 {
    read_ahead_bytes(extents, false, free / 4)
}
