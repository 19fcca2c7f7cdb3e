//! From a store and a threshold to a plan: the passes that its inputs need, then the plan itself.

mod calibration;
mod curve;
mod edge_sides;
mod estimate;
mod margins;
mod nearness;
mod neighbours;

use adjoin_kernels::{Columns, Panel};

use self::calibration::{CALIBRATION_VECTORS, Calibrated, Goal, calibrate, calibration_read_ahead};
pub use self::curve::neighbour_curve;
use self::estimate::{DrawnPair, PairSample};
use self::margins::{Graph, PassMemory, margin_edges, triangle_edges};
use self::neighbours::Search;
use super::execution::{Verifier, Watched, queued_bytes};
use super::options::{Aim, JoinOptions};
use super::prepared::{Admission, Prepared};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{Coordinate, Threshold, with_coordinates};
use crate::load::{Buckets, Cache, Coding, Drawn, LoadedBucket, Pass, draw_places, least_read_ahead, read_ahead_bytes};
use crate::options::Metric;
use crate::plan::{BucketGraph, BucketSizes, CacheStart, Policy, Rule, pair_threshold, schedule};
use crate::report::{RecallStatistics, Stopwatch};
use crate::source::IdKind;
use crate::store::Store;

/// Bytes that the sink's writer gathers, and for ids beside that.
const WRITER_BYTES: u64 = 4 << 20;
const WRITER_ID_BYTES: u64 = 2 << 20;
/// The least memory for margins on their way to edges.
const MARGIN_BYTES_MIN: u64 = 4 << 20;
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
    /// What a join that misses nothing needs, whatever its pass over the buckets finds.
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
        plan(&mut Planner::<T> { context, buckets, options, with_ids, threshold, centers, coding: None, watch })
    })
}

fn check_metric(store: &Store, options: &JoinOptions) -> Result<()> {
    let remedy = match (store.manifest().metric, options.predicate.metric()) {
        (Metric::L2, Metric::Cosine) => "give --eps, or build the store with --metric cosine",
        (Metric::Cosine, Metric::L2) => "give --min-similarity, or build the store with --metric l2",
        _ => return Ok(()),
    };
    let metric = store.manifest().metric;
    Err(Error::option(format!("{} was built for the metric {metric}; {remedy}", store.folder().display())))
}

impl<T: Coordinate> Planning for Planner<'_, T> {
    fn least(&self) -> u64 {
        let Self { context, buckets, with_ids, .. } = *self;
        let (extents, sizes) = (buckets.extents(), self.sizes());
        let pass = pass_bytes::<T>(context, &sizes, buckets.vectors().dimensions);
        let run = bytes_beside_cache::<T>(context, buckets, (0, Policy::Lru), with_ids)
            + least_read_ahead(extents, with_ids)
            + sizes.two_largest();
        let least = pass + least_read_ahead(extents, false) + MARGIN_BYTES_MIN;
        run.max(least).max(PairSample::memory_bytes(&self.search(Rule::MarginSum)))
    }

    fn prepare(&mut self) -> Result<Prepared> {
        self.coding = self.fit_coding()?;
        self.plan(self.edges(&self.sizes())?)
    }

    fn prepare_each(&mut self, rule: Rule, recalls: &[f64]) -> Result<Vec<Option<Prepared>>> {
        self.coding = self.fit_coding()?;
        let all = self.calibrated(rule, recalls, u64::MAX)?;
        all.into_iter().map(|edges| edges.map(|edges| self.plan(edges)).transpose()).collect()
    }
}

struct Planner<'a, T: Coordinate> {
    context: &'a Context,
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
    /// How floats are rounded, from drawn vectors; integers need no rounding.
    fn fit_coding(&self) -> Result<Option<Coding>> {
        let Self { context, buckets, options, centers, .. } = *self;
        if !T::is_float() {
            return Ok(None);
        }
        // What is needed later is refused now.
        let bytes = Drawn::<T>::memory_bytes(buckets, CODING_VECTORS);
        drop(context.reserve(bytes.max(self.least()), "this join")?);
        let _memory = context.reserve(bytes, "this join")?;
        let drawn =
            Drawn::read(context, buckets, centers, &draw_places(buckets, CODING_VECTORS, options.seed, "coding"))?;
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

    /// A plan for edges.
    fn plan(&self, edges: Edges) -> Result<Prepared> {
        let Self { context, buckets, options, with_ids, .. } = *self;
        let sizes = self.sizes();
        let Division { capacity, read_ahead, policy } =
            divide::<T>(context, buckets, &edges.graph, &sizes, with_ids, options)?;
        let schedule = schedule(edges.graph, &sizes, CacheStart::cold(capacity, policy), options.order);
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
            read_ahead,
            reads: buckets.read_counts(),
        })
    }

    /// The edges by the rule that is asked for, or that costs least and keeps the promise.
    fn edges(&self, sizes: &BucketSizes) -> Result<Edges> {
        let Self { options, .. } = *self;
        let target = options.aim.target();
        let pointless = target >= 1.0 || self.threshold.distance == 0.0;
        match options.rule {
            rule if options.threshold.is_some() && rule.is_none_or(Rule::is_exact) => Err(Error::option(
                "a threshold is for a rule that needs one; name the rule, or leave the threshold out",
            )),
            Some(rule) if rule.is_exact() => self.exact(rule, sizes),
            Some(rule) if options.aim == Aim::Every => Err(Error::option(format!(
                "the rule {} is not proved to find every pair; leave it out, or ask for a recall below 1",
                rule.name()
            ))),
            Some(rule) => self.calibrated(rule, &[target], u64::MAX)?.remove(0).ok_or_else(|| {
                Error::option(format!(
                    "the rule {} cannot be shown to reach a recall of {target} here; leave it out, or give --exact",
                    rule.name()
                ))
            }),
            None if pointless => self.exact(Rule::MarginSum, sizes),
            None => match self.worth_calibrating(target)? {
                Some(vectors_max) => match self.calibrated(Rule::Union, &[target], vectors_max)?.remove(0) {
                    Some(edges) => Ok(edges),
                    None => self.exact(Rule::MarginSum, sizes),
                },
                None => self.exact(Rule::MarginSum, sizes),
            },
        }
    }

    fn search(&self, rule: Rule) -> Search<'_, T> {
        let Self { context, buckets, options, threshold, centers, .. } = *self;
        let coding = self.coding.as_ref();
        let read_ahead = calibration_read_ahead(buckets.extents(), context.budget().free());
        Search { context, buckets, centers, threshold, predicate: options.predicate, coding, rule, read_ahead }
    }

    /// Whether a calibrated rule is expected to compute fewer distances than one that misses nothing, and if so, of how
    /// many vectors it may look for the neighbours.
    fn worth_calibrating(&self, target: f64) -> Result<Option<u64>> {
        let search = self.search(Rule::Union);
        let _memory = self.context.reserve(PairSample::memory_bytes(&search), "this join")?;
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
        let _memory = self.context.reserve(PairSample::memory_bytes(&search), "this join")?;
        let pairs = PairSample::draw(&search, seed)?;
        let edges = |(found, &recall): (Option<Calibrated>, &f64)| {
            found.map(|found| self.edges_of(rule, recall, found, &pairs, &watch))
        };
        Ok(found.into_iter().zip(recalls).map(edges).collect())
    }

    fn edges_of(
        &self,
        rule: Rule,
        target: f64,
        found: Calibrated,
        pairs: &PairSample<'_, T>,
        watch: &Stopwatch,
    ) -> Edges {
        let threshold = found.threshold;
        let kept = found.graph.edges.iter().filter(|edge| f64::from(edge.2) <= threshold);
        let graph = BucketGraph { buckets: self.centers.rows(), edges: kept.map(|&(i, j, _)| (i, j)).collect() };
        let (predicted_pairs, predicted_results) = self.predict(pairs, rule, &graph, |pair| {
            pair_threshold(rule, &rule.parts(self.threshold.distance, pair.gap), pair.x, pair.y) <= threshold
                && found.graph.threshold(pair.buckets.0, pair.buckets.1) <= threshold
        });
        Edges {
            graph,
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
        }
    }

    /// The edges of a rule that misses nothing.
    fn exact(&self, rule: Rule, sizes: &BucketSizes) -> Result<Edges> {
        let Graph { graph, center_distances } = self.exact_graph(rule, sizes)?;
        let parts = |pair: &DrawnPair| rule.parts(self.threshold.distance, pair.gap);
        let search = self.search(rule);
        let _memory = self.context.reserve(PairSample::memory_bytes(&search), "this join")?;
        let pairs = PairSample::draw(&search, self.options.seed)?;
        let (predicted_pairs, predicted_results) =
            self.predict(&pairs, rule, &graph, |pair| pair_threshold(rule, &parts(pair), pair.x, pair.y) <= 1.0);
        Ok(Edges {
            graph,
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

    fn exact_graph(&self, rule: Rule, sizes: &BucketSizes) -> Result<Graph> {
        let Self { context, buckets, threshold, centers, .. } = *self;
        let extents = buckets.extents();
        let pass = pass_bytes::<T>(context, sizes, buckets.vectors().dimensions);
        // What the run needs is refused now and not after the pass.
        drop(context.reserve(self.least(), "this join")?);
        let free = context.budget().free() - pass;
        let read_ahead = read_ahead_bytes(extents, false, free - MARGIN_BYTES_MIN);
        // The rest is for the edges.
        let margins = ((free - read_ahead) / 4).clamp(MARGIN_BYTES_MIN, MARGIN_BYTES_MAX);
        let memory = PassMemory { read_ahead, margins };
        let _memory = context.reserve(pass + read_ahead + memory.margins, "this join")?;
        match rule {
            Rule::Triangle => Ok(triangle_edges(context, buckets, centers, threshold)),
            _ => margin_edges(context, buckets, centers, threshold, memory),
        }
    }
}

/// What the pass that finds the edges holds.
fn pass_bytes<T: Coordinate>(context: &Context, sizes: &BucketSizes, dimensions: usize) -> u64 {
    let buckets = sizes.memory.len();
    let largest = sizes.memory.iter().copied().max().unwrap_or(0);
    let centers = Panel::<T>::bytes_for(buckets, dimensions) + Columns::<T>::bytes_for(buckets, dimensions);
    let a_worker = (buckets * (32 * size_of::<T::Distance>() + 20 + size_of::<T::Distance>())) as u64;
    centers + context.threads as u64 * a_worker + Pass::<T>::bytes(context.threads, largest)
}

/// How the budget is divided among the parts of a run.
struct Division {
    capacity: u64,
    read_ahead: u64,
    policy: Policy,
}

/// The cache that the budget leaves, or that the caller wants, and what is for reading ahead of it; refuses a cache that
/// holds no edge. Where the uses to come of so many edges cannot be held, the cache goes by those that were.
fn divide<T: Coordinate>(
    context: &Context,
    buckets: &Buckets<'_>,
    graph: &BucketGraph,
    sizes: &BucketSizes,
    with_ids: bool,
    options: &JoinOptions,
) -> Result<Division> {
    let least = sizes.least_cache(graph);
    let others = |policy| bytes_beside_cache::<T>(context, buckets, (graph.edges.len(), policy), with_ids);
    let needs = |policy| others(policy) + least_read_ahead(buckets.extents(), with_ids) + least;
    let fits = needs(options.policy) <= context.budget().free();
    let policy = if fits { options.policy } else { Policy::Lru };
    // Checks that the least fits beside all else; what is more than that is the cache.
    drop(context.reserve(needs(policy), "this join")?);
    let others = others(policy);
    let free = context.budget().free() - others;
    let read_ahead = read_ahead_bytes(buckets.extents(), with_ids, free - least);
    let free = free - read_ahead;
    let capacity = match options.cache_bytes {
        Some(wanted) if wanted < least => {
            return Err(Error::option(format!(
                "a cache of {wanted} bytes holds not even two buckets that must meet; give at least {least}"
            )));
        }
        wanted => wanted.unwrap_or(free).min(free),
    };
    Ok(Division { capacity, read_ahead, policy })
}

/// What the run holds beside the cache of buckets, for a graph of so many edges and a cache of a policy.
fn bytes_beside_cache<T: Coordinate>(
    context: &Context,
    buckets: &Buckets<'_>,
    (edges, policy): (usize, Policy),
    with_ids: bool,
) -> u64 {
    let dimensions = buckets.vectors().dimensions;
    let count = buckets.extents().len();
    let rows = buckets.extents().iter().map(|extent| extent.rows).max().unwrap_or(0) as usize;
    let workers = context.threads as u64 * Verifier::<T>::memory_bytes(rows, dimensions);
    let a_task = if policy == Policy::Belady { BYTES_A_TASK } else { BYTES_A_TASK_ALONE };
    let tasks = (count + edges) as u64 * a_task;
    let with_ids = with_ids && (0..buckets.count()).any(|bucket| buckets.ids(bucket) != IdKind::None);
    let sink = WRITER_BYTES + if with_ids { WRITER_ID_BYTES } else { 0 } + queued_bytes(with_ids);
    workers + Panel::<T>::bytes_for(count, dimensions) + Cache::<T>::table_bytes(count) + tasks + sink
}
