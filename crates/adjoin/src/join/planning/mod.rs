//! From a store and a threshold to a plan: the passes that its inputs need, then the plan itself.

mod calibration;
mod curve;
mod edge_sides;
mod estimate;
mod margins;
mod nearness;
mod neighbours;

use adjoin_device::{MemoryBudget, Reservation};
use adjoin_kernels::Panel;

use self::calibration::{CALIBRATION_VECTORS, Calibrated, Goal, calibrate, calibration_read_ahead};
pub use self::curve::neighbour_curve;
use self::estimate::{DrawnPair, PairSample};
use self::margins::{Graph, PassMemory, margin_edges, triangle_edges};
use self::neighbours::Search;
use super::execution::{Queue, Verifier};
use super::options::{Aim, JoinOptions};
use super::prepared::{Admission, Prepared, RunMemory};
use super::watched::Watched;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{Coordinate, Threshold, with_coordinates};
use crate::load::{Buckets, Cache, Coding, Drawn, LoadedBucket, draw_places, least_read_ahead, read_ahead_bytes};
use crate::message::{Argument, message};
use crate::options::Metric;
use crate::plan::{BucketGraph, BucketSizes, CacheStart, Policy, Rule, Task, pair_threshold, schedule};
use crate::report::{RecallStatistics, Stopwatch};
use crate::sink::PairWriter;
use crate::source::IdKind;
use crate::store::Store;

/// What memory is for, as a refusal says it.
const PURPOSE: &str = "this join";
/// The least memory for margins on their way to edges.
const MARGIN_BYTES_MIN: u64 = 2 << 20;
/// Bytes of the schedule for each task: the task itself, the next uses of its buckets, and the loads before it; most
/// tasks find their buckets in the cache.
const BYTES_A_TASK: u64 = 8 + 8 + 4;
/// The same where the uses to come are not known.
const BYTES_A_TASK_ALONE: u64 = 8;
/// The most memory for margins on their way: what is more goes to disk in large pieces anyway.
const MARGIN_BYTES_MAX: u64 = 32 << 20;

/// Up to which recall the union rule needs about which threshold: a first guess, to tell what it costs.
const THRESHOLDS_GUESSED: [(f64, f64); 3] = [(0.9, 1.1), (0.97, 1.3), (1.0, 1.6)];
/// Centers that a calibrated rule looks at around each, about.
const CENTERS_AROUND: u64 = 256;

/// Vectors from which is learned how floats are rounded.
const CODING_VECTORS: u64 = 500;

/// Plans a join.
///
/// # Errors
/// Where the predicate is not of the store's metric, the budget is too small, the store cannot be read, or the rule
/// that is asked for cannot be shown to reach the recall.
pub fn prepare(context: &Context, store: &Store, options: &JoinOptions, with_ids: bool) -> Result<Prepared> {
    with_planner(context, store, options, with_ids, |planner| planner.prepare())
}

/// The least memory that a join without ids can be planned and run with, so that a sink that is made before can refuse, with the need
/// of both in one message, what would not fit.
///
/// # Errors
/// Where the predicate is not of the store's metric, or the store cannot be read.
pub fn least_memory(context: &Context, store: &Store, options: &JoinOptions) -> Result<u64> {
    with_planner(context, store, options, false, |planner| Ok(planner.least()))
}

/// Plans a join by `rule`, which needs a threshold, once for each of some recalls; vectors are drawn and their neighbours
/// found for all of them together. Each plan is that of [`prepare`] for its recall alone; none where no sample supports
/// the promise.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_each(
    context: &Context,
    store: &Store,
    options: &JoinOptions,
    (rule, recalls): (Rule, &[f64]),
    with_ids: bool,
) -> Result<Vec<Option<Prepared>>> {
    with_planner(context, store, options, with_ids, |planner| planner.prepare_each(rule, recalls))
}

/// What is the same for all plans that are made of a store at one threshold.
trait Planning {
    /// What a join needs, whatever its passes over the buckets find.
    fn least(&self) -> u64;
    fn prepare(&mut self) -> Result<Prepared>;
    fn prepare_each(&mut self, rule: Rule, recalls: &[f64]) -> Result<Vec<Option<Prepared>>>;
}

fn with_planner<R>(
    context: &Context,
    store: &Store,
    options: &JoinOptions,
    with_ids: bool,
    plan: impl FnOnce(&mut dyn Planning) -> Result<R>,
) -> Result<R> {
    check_metric(store, options)?;
    let (buckets, watch) = (&Buckets::of(store), Stopwatch::start());
    with_coordinates!(buckets.vectors(), buckets.metric(), T => {
        let centers = buckets.centers::<T>()?;
        let threshold = Threshold::new(options.predicate, buckets.vectors());
        let (threshold, centers) = (&threshold, &centers);
        let context = context.clone();
        plan(&mut Planner::<T> { context, buckets, options, with_ids, threshold, centers, coding: None, watch })
    })
}

fn check_metric(store: &Store, options: &JoinOptions) -> Result<()> {
    let (built_for, wanted) = (store.manifest().metric, options.predicate.metric());
    let threshold = match (built_for, wanted) {
        (Metric::L2, Metric::Cosine) => Argument::Eps,
        (Metric::Cosine, Metric::L2) => Argument::MinSimilarity,
        _ => return Ok(()),
    };
    Err(Error::option(message![
        format!("{} was built for the metric {built_for}; give ", store.folder().display()),
        threshold,
        ", or build the store with ",
        Argument::Metric.with(wanted)
    ]))
}

impl<T: Coordinate> Planning for Planner<'_, T> {
    fn least(&self) -> u64 {
        let Self { ref context, buckets, with_ids, .. } = *self;
        let run = bytes_of_tasks(buckets.extents().len(), Policy::Lru)
            + bytes_beside_cache::<T>(context.threads, buckets, with_ids)
            + Queue::least(with_ids)
            + least_read_ahead(buckets.extents(), with_ids)
            + self.sizes().two_largest();
        let coding = if T::is_float() { Drawn::<T>::memory_bytes(buckets, CODING_VECTORS) } else { 0 };
        let planning = match self.options.rule {
            Some(rule) if !rule.is_exact() => calibration::least_bytes(&self.search(rule), CALIBRATION_VECTORS),
            _ => {
                let pass = margins::memory_bytes::<T>(context.threads, buckets);
                pass + least_read_ahead(buckets.extents(), false) + MARGIN_BYTES_MIN
            }
        };
        run.max(planning).max(coding).max(PairSample::memory_bytes(&self.search(Rule::MarginSum)))
    }

    fn prepare(&mut self) -> Result<Prepared> {
        self.begin()?;
        let edges = self.edges()?;
        let prepared = self.plan(edges, self.context.budget().free())?;
        self.context.budget().shrink(0); // to what the plan and its run hold
        Ok(prepared)
    }

    fn prepare_each(&mut self, rule: Rule, recalls: &[f64]) -> Result<Vec<Option<Prepared>>> {
        self.begin()?;
        let all = self.calibrated(rule, recalls, u64::MAX)?;
        // Each gets an equal part of what is left, as they may be run at the same time.
        let mut left = all.iter().flatten().count() as u64;
        let mut plan = |edges| {
            let free = self.context.budget().free() / left;
            left -= 1;
            self.plan(edges, free)
        };
        all.into_iter().map(|edges| edges.map(&mut plan).transpose()).collect()
    }
}

struct Planner<'a, T: Coordinate> {
    context: Context,
    buckets: &'a Buckets<'a>,
    options: &'a JoinOptions,
    with_ids: bool,
    threshold: &'a Threshold,
    centers: &'a Panel<T>,
    coding: Option<Coding>,
    /// Since planning began.
    watch: Stopwatch,
}

/// The edges of a plan, and what is known of the rule that they are for.
struct Edges {
    graph: BucketGraph,
    /// Holds the bytes of the graph.
    memory: Reservation,
    admission: Admission,
    recall: RecallStatistics,
    watched: Option<Watched>,
    center_distances: u64,
    sample_distances: u64,
    predicted_pairs: u64,
    predicted_results: u64,
    calibrate_seconds: Option<f64>,
}

impl<T: Coordinate> Planner<'_, T> {
    /// Takes the memory of the run, from now to its last pair, and finds out how floats are rounded.
    fn begin(&mut self) -> Result<()> {
        self.context = self.context.for_run(self.least(), PURPOSE)?;
        self.coding = self.fit_coding()?;
        Ok(())
    }

    /// How floats are rounded, from drawn vectors; integers need no rounding.
    fn fit_coding(&self) -> Result<Option<Coding>> {
        let Self { ref context, buckets, options, centers, .. } = *self;
        if !T::is_float() {
            return Ok(None);
        }
        let _memory = context.reserve(Drawn::<T>::memory_bytes(buckets, CODING_VECTORS), PURPOSE)?;
        let places = draw_places(buckets, CODING_VECTORS, options.seed, "coding");
        let drawn = Drawn::read(context, buckets, centers, &places)?;
        Ok(Some(Coding::fit(&drawn.members.panel)))
    }

    fn sizes(&self) -> BucketSizes {
        let Self { buckets, with_ids, .. } = *self;
        let (vectors, metric, extents) = (buckets.vectors(), buckets.metric(), buckets.extents());
        let memory = |extent| LoadedBucket::<T>::memory_bytes(extent, vectors, metric, with_ids);
        BucketSizes {
            extents: extents.iter().map(|extent| extent.bytes(with_ids)).collect(),
            memory: extents.iter().map(memory).collect(),
        }
    }

    /// A plan for edges whose run, as the plan itself, finds room in `free` bytes: from now on it holds what it needs.
    fn plan(&self, edges: Edges, free: u64) -> Result<Prepared> {
        let Self { ref context, buckets, options, with_ids, .. } = *self;
        let sizes = self.sizes();
        let Edges { graph, memory, .. } = edges;
        let free = free + memory.bytes();
        drop(memory); // tasks take the place of edges
        let division = self.divide(&graph, &sizes, free)?;
        let Division { tasks, beside, read_ahead, capacity, .. } = division;
        let budget = MemoryBudget::within(context.reserve(tasks + beside + read_ahead + capacity, PURPOSE)?);
        let plan = budget.reserve(tasks).expect("it is a part of the sum");
        let schedule = schedule(graph, &sizes, CacheStart::cold(division.capacity, division.policy), options.order);
        Ok(Prepared {
            sizes,
            schedule,
            threshold: *self.threshold,
            coding: self.coding.clone(),
            admission: edges.admission,
            recall: edges.recall,
            watched: edges.watched,
            center_distances: edges.center_distances,
            sample_distances: edges.sample_distances,
            predicted_pairs: edges.predicted_pairs,
            predicted_results: edges.predicted_results,
            plan_seconds: self.watch.seconds() - edges.calibrate_seconds.unwrap_or(0.0),
            calibrate_seconds: edges.calibrate_seconds,
            with_ids,
            memory: RunMemory { budget, beside: beside + read_ahead, _plan: plan },
            queue: division.queue,
            read_ahead,
            reads: buckets.read_counts(),
        })
    }

    /// The edges by the rule that is asked for, or that costs least and keeps the promise.
    fn edges(&self) -> Result<Edges> {
        let Self { options, .. } = *self;
        let target = options.aim.target();
        let pointless = target >= 1.0 || self.threshold.distance == 0.0;
        match options.rule {
            rule if options.threshold.is_some() && rule.is_none_or(Rule::is_exact) => Err(Error::option(
                "a threshold is for a rule that needs one; name the rule, or leave the threshold out",
            )),
            Some(rule) if rule.is_exact() => self.exact(rule),
            Some(rule) if options.aim == Aim::Every => Err(Error::option(format!(
                "the rule {} is not proved to find every pair; leave it out, or ask for a recall below 1",
                rule.name()
            ))),
            Some(rule) => self.calibrated(rule, &[target], u64::MAX)?.remove(0).ok_or_else(|| {
                let rule = rule.name();
                Error::option(message![
                    format!(
                        "the rule {rule} cannot be shown to reach a recall of {target} here; leave it out, or give "
                    ),
                    Argument::Exact
                ])
            }),
            None if pointless => self.exact(Rule::MarginSum),
            None => match self.worth_calibrating(target)? {
                Some(vectors_max) => match self.calibrated(Rule::Union, &[target], vectors_max)?.remove(0) {
                    Some(edges) => Ok(edges),
                    None => self.exact(Rule::MarginSum),
                },
                None => self.exact(Rule::MarginSum),
            },
        }
    }

    fn search(&self, rule: Rule) -> Search<'_, T> {
        let Self { ref context, buckets, options, threshold, centers, .. } = *self;
        let coding = self.coding.as_ref();
        let read_ahead = calibration_read_ahead(buckets.extents(), context.budget().free());
        Search { context, buckets, centers, threshold, predicate: options.predicate, coding, rule, read_ahead }
    }

    /// Whether a calibrated rule is expected to compute fewer distances than one that misses nothing, and if so, of how
    /// many vectors it may look for the neighbours.
    fn worth_calibrating(&self, target: f64) -> Result<Option<u64>> {
        let search = self.search(Rule::Union);
        let _memory = self.context.reserve(PairSample::memory_bytes(&search), PURPOSE)?;
        let pairs = PairSample::draw(&search, self.options.seed)?;
        let (eps, rows) = (self.threshold.distance, self.buckets.rows());
        let guessed = THRESHOLDS_GUESSED.iter().find(|(recall, _)| target <= *recall).map_or(f64::MAX, |(_, t)| *t);
        let [by_proof, by_union, near] = pairs.expect(|pair| {
            let of = |rule: Rule| pair_threshold(rule, &rule.parts(eps, pair.gap), pair.x, pair.y);
            let near = pair.y.own.sqrt() >= pair.x.other.sqrt() - eps;
            [of(Rule::MarginSum) <= 1.0, of(Rule::Union) <= guessed, near]
        });
        let exact = (rows * self.centers.rows() as u64 + by_proof) as f64;
        let around = CENTERS_AROUND.min(self.centers.rows() as u64);
        let approximate = (rows * around + by_union) as f64;
        // Each sampled vector is compared with the share of all that the triangle inequality leaves.
        let all = rows as f64 * rows as f64 / 2.0;
        let a_vector = near as f64 / all.max(1.0) * rows as f64;
        let affordable = (exact / self.options.aim.patience() - approximate) / a_vector.max(1.0);
        Ok((affordable >= CALIBRATION_VECTORS as f64).then_some(affordable as u64))
    }

    /// The edges of a rule with a threshold for each of some recalls; none where it cannot be shown to reach one.
    fn calibrated(&self, rule: Rule, recalls: &[f64], vectors_max: u64) -> Result<Vec<Option<Edges>>> {
        let watch = Stopwatch::start();
        let search = self.search(rule);
        let JoinOptions { threshold, seed, .. } = *self.options;
        let goals: Vec<Goal> = recalls.iter().map(|&recall| Goal { recall, threshold, seed }).collect();
        let found = calibrate(&search, &goals, vectors_max)?;
        let _memory = self.context.reserve(PairSample::memory_bytes(&search), PURPOSE)?;
        let pairs = PairSample::draw(&search, seed)?;
        let edges = |(found, &recall): (Option<Calibrated>, &f64)| {
            found.map(|found| self.edges_of(rule, recall, found, &pairs, &watch)).transpose()
        };
        found.into_iter().zip(recalls).map(edges).collect()
    }

    fn edges_of(
        &self,
        rule: Rule,
        target: f64,
        found: Calibrated,
        pairs: &PairSample<'_, T>,
        watch: &Stopwatch,
    ) -> Result<Edges> {
        let threshold = found.threshold;
        let kept = || found.graph.edges.iter().filter(|edge| f64::from(edge.2) <= threshold);
        let count = kept().count();
        let memory = self.context.reserve((count * size_of::<Task>()) as u64, PURPOSE)?;
        let mut edges = Vec::with_capacity(count);
        edges.extend(kept().map(|&(i, j, _)| (i, j)));
        let graph = BucketGraph { buckets: self.centers.rows(), edges };
        let (predicted_pairs, predicted_results) = self.predict(pairs, rule, &graph, |pair| {
            pair_threshold(rule, &rule.parts(self.threshold.distance, pair.gap), pair.x, pair.y) <= threshold
                && found.graph.threshold(pair.buckets.0, pair.buckets.1) <= threshold
        });
        Ok(Edges {
            graph,
            memory,
            admission: Admission { rule, threshold: Some(threshold) },
            recall: RecallStatistics {
                target,
                kept: found.kept,
                pair: found.recalls.pair,
                per_vector: found.recalls.per_vector,
                sample_vectors: Some(found.vectors),
                sample_vectors_with_neighbours: Some(found.vectors_with_neighbours),
                sample_pairs: Some(found.pairs),
            },
            watched: Some(found.watched),
            center_distances: found.center_distances,
            sample_distances: found.sample_distances,
            predicted_pairs,
            predicted_results,
            calibrate_seconds: Some(watch.seconds()),
        })
    }

    /// The edges of a rule that misses nothing.
    fn exact(&self, rule: Rule) -> Result<Edges> {
        let Graph { graph, memory, center_distances } = self.exact_graph(rule)?;
        let parts = |pair: &DrawnPair| rule.parts(self.threshold.distance, pair.gap);
        let search = self.search(rule);
        let _memory = self.context.reserve(PairSample::memory_bytes(&search), PURPOSE)?;
        let pairs = PairSample::draw(&search, self.options.seed)?;
        let (predicted_pairs, predicted_results) =
            self.predict(&pairs, rule, &graph, |pair| pair_threshold(rule, &parts(pair), pair.x, pair.y) <= 1.0);
        Ok(Edges {
            graph,
            memory,
            admission: Admission { rule, threshold: None },
            recall: RecallStatistics::proved(self.options.aim.target()),
            watched: None,
            center_distances,
            sample_distances: 0,
            predicted_pairs,
            predicted_results,
            calibrate_seconds: None,
        })
    }

    /// Pairs that are compared where buckets are taken whole.
    fn whole_pairs(&self, graph: &BucketGraph) -> u64 {
        let rows = |bucket: u32| u64::from(self.buckets.extent(bucket).rows);
        let own = (0..self.centers.rows() as u32).map(|bucket| rows(bucket) * rows(bucket).saturating_sub(1) / 2);
        own.sum::<u64>() + graph.edges.iter().map(|&(i, j)| rows(i) * rows(j)).sum::<u64>()
    }

    /// Pairs that a rule is expected to admit, given what it says of pairs of different buckets, and those of the result.
    fn predict(
        &self,
        pairs: &PairSample<'_, T>,
        rule: Rule,
        graph: &BucketGraph,
        admits: impl Fn(&DrawnPair) -> bool,
    ) -> (u64, u64) {
        let admitted = if rule.takes_whole() {
            self.whole_pairs(graph)
        } else {
            let [others] = pairs.expect(|pair| [admits(pair)]);
            pairs.own_pairs() + others
        };
        (admitted, pairs.expect_results())
    }

    fn exact_graph(&self, rule: Rule) -> Result<Graph> {
        let Self { ref context, buckets, threshold, centers, .. } = *self;
        if rule == Rule::Triangle {
            return triangle_edges(context, buckets, centers, threshold);
        }
        let pass = margins::memory_bytes::<T>(context.threads, buckets);
        let free = context.budget().free() - pass;
        let read_ahead = read_ahead_bytes(buckets.extents(), false, free - MARGIN_BYTES_MIN);
        // The rest is for the edges.
        let margins = ((free - read_ahead) / 4).clamp(MARGIN_BYTES_MIN, MARGIN_BYTES_MAX);
        let _memory = context.reserve(pass + read_ahead + margins, PURPOSE)?;
        margin_edges(context, buckets, centers, threshold, PassMemory { read_ahead, margins })
    }

    /// Divides `free` bytes among the parts of a run; refuses where they hold no edge. Where the uses to come of so many
    /// edges cannot be held, the cache goes by those that were.
    fn divide(&self, graph: &BucketGraph, sizes: &BucketSizes, free: u64) -> Result<Division> {
        let Self { ref context, buckets, options, with_ids, .. } = *self;
        let least_cache = sizes.least_cache(graph);
        let beside = bytes_beside_cache::<T>(context.threads, buckets, with_ids);
        let tasks = |policy| bytes_of_tasks(buckets.extents().len() + graph.edges.len(), policy);
        let least_queue = Queue::least(with_ids);
        let least_read_ahead = least_read_ahead(buckets.extents(), with_ids);
        let least = |policy| tasks(policy) + beside + least_queue + least_read_ahead + least_cache;
        let policy = if least(options.policy) <= free { options.policy } else { Policy::Lru };
        let Some(spare) = free.checked_sub(least(policy)) else {
            return Err(context.too_small(least(policy) + context.budget().total() - free, PURPOSE));
        };
        let queue = (least_queue + spare / 8).min(Queue::most(with_ids));
        let spare = spare - (queue - least_queue);
        let read_ahead = read_ahead_bytes(buckets.extents(), with_ids, spare);
        let free_for_cache = least_cache + spare - (read_ahead - least_read_ahead).min(spare);
        let capacity = match options.cache_bytes {
            Some(wanted) if wanted < least_cache => {
                return Err(Error::option(format!(
                    "a cache of {wanted} bytes holds not even two buckets that must meet; give at least {least_cache}"
                )));
            }
            Some(wanted) => wanted.min(free_for_cache),
            // More than all buckets is of no use.
            None => free_for_cache.min(sizes.memory.iter().sum::<u64>().max(least_cache)),
        };
        Ok(Division { capacity, read_ahead, queue, policy, tasks: tasks(policy), beside: beside + queue })
    }
}

/// How the memory of a run is divided among its parts.
struct Division {
    capacity: u64,
    read_ahead: u64,
    /// Bytes of pairs on their way to the sink.
    queue: u64,
    policy: Policy,
    /// Bytes of the schedule.
    tasks: u64,
    /// What the run holds beside all that, the pairs on their way included.
    beside: u64,
}

/// Bytes of a schedule of so many tasks.
fn bytes_of_tasks(tasks: usize, policy: Policy) -> u64 {
    tasks as u64 * if policy == Policy::Belady { BYTES_A_TASK } else { BYTES_A_TASK_ALONE }
}

/// What the run holds beside its schedule, the cache of buckets, and what waits to be read or written.
fn bytes_beside_cache<T: Coordinate>(threads: usize, buckets: &Buckets<'_>, with_ids: bool) -> u64 {
    let (dimensions, count, rows) = (buckets.vectors().dimensions, buckets.extents().len(), buckets.rows_max());
    let a_worker = Verifier::<T>::memory_bytes(rows, dimensions) + LoadedBucket::<T>::scratch_bytes(rows);
    let ids = (0..buckets.count()).any(|bucket| buckets.ids(bucket) != IdKind::None);
    threads as u64 * a_worker
        + Panel::<T>::bytes_for(count, dimensions)
        + Cache::<T>::table_bytes(count)
        + if with_ids { PairWriter::memory_bytes(ids) } else { 0 }
}
