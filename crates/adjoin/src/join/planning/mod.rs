//! From a store and a threshold to a plan: the passes that its inputs need, then the plan itself.

mod calibration;
mod curve;
mod division;
mod edge_sides;
mod edges;
mod estimate;
mod margins;
mod nearness;
mod neighbours;

use adjoin_device::MemoryBudget;

pub use self::curve::neighbour_curve;
use self::division::{CODING_VECTORS, centers_bytes, least, needs, sizes};
use self::edges::{Edges, Passes};
use super::options::JoinOptions;
use super::prepared::{Prepared, RunMemory};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{Coordinate, Threshold, with_coordinates};
use crate::load::{Buckets, Coding, Drawn, draw_places};
use crate::message::{Argument, message};
use crate::options::Metric;
use crate::plan::{BucketGraph, BucketSizes, CacheStart, Division, Policy, Rule, divide, schedule, threads_within};
use crate::report::Stopwatch;
use crate::store::Store;

/// What memory is for, as a refusal says it.
const PURPOSE: &str = "this join";

/// Plans a join.
///
/// # Errors
/// Where the predicate is not of the store's metric, the budget is too small, the store cannot be read, or the rule
/// that is asked for cannot be shown to reach the recall.
pub fn prepare(context: &Context, store: &Store, options: &JoinOptions, with_ids: bool) -> Result<Prepared> {
    check_metric(store, options)?;
    let buckets = &Buckets::of(store);
    with_coordinates!(buckets.vectors(), buckets.metric(), T => {
        Planner::begin::<T>(context, buckets, options, with_ids)?.prepare::<T>()
    })
}

/// The least memory that a join without ids can be planned and run with, so that a sink that is made before can refuse,
/// with the need of both in one message, what would not fit.
///
/// # Errors
/// Where the predicate is not of the store's metric.
pub fn least_memory(store: &Store, options: &JoinOptions) -> Result<u64> {
    check_metric(store, options)?;
    let buckets = &Buckets::of(store);
    Ok(with_coordinates!(buckets.vectors(), buckets.metric(), T => least::<T>(buckets, options, false, 1)))
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
    check_metric(store, options)?;
    let buckets = &Buckets::of(store);
    with_coordinates!(buckets.vectors(), buckets.metric(), T => {
        Planner::begin::<T>(context, buckets, options, with_ids)?.prepare_each::<T>(rule, recalls)
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

struct Planner<'a> {
    /// Its budget is that of the run, from now to its last pair; its threads are those that find room there.
    context: Context,
    buckets: &'a Buckets<'a>,
    options: &'a JoinOptions,
    with_ids: bool,
    threshold: Threshold,
    /// Since planning began.
    watch: Stopwatch,
}

impl<'a> Planner<'a> {
    /// Takes the memory of the run.
    fn begin<T: Coordinate>(
        context: &Context,
        buckets: &'a Buckets<'a>,
        options: &'a JoinOptions,
        with_ids: bool,
    ) -> Result<Self> {
        let watch = Stopwatch::start();
        let least = |threads| least::<T>(buckets, options, with_ids, threads);
        let context = context.for_run(least(1), PURPOSE)?;
        let context = context.with_threads(threads_within(context.threads, context.budget().free(), least));
        let threshold = Threshold::new(options.predicate, buckets.vectors());
        Ok(Self { context, buckets, options, with_ids, threshold, watch })
    }

    fn prepare<T: Coordinate>(&self) -> Result<Prepared> {
        let coding = self.fit_coding::<T>()?;
        let edges = self.passes::<T>(coding.as_ref())?.edges()?;
        let prepared = self.plan::<T>(edges, coding, self.context.budget().free())?;
        self.context.budget().shrink(0); // to what the plan and its run hold
        Ok(prepared)
    }

    fn prepare_each<T: Coordinate>(&self, rule: Rule, recalls: &[f64]) -> Result<Vec<Option<Prepared>>> {
        let coding = self.fit_coding::<T>()?;
        let all = self.passes::<T>(coding.as_ref())?.calibrated(rule, recalls, u64::MAX)?;
        // Each gets an equal part of what is left, as they may be run at the same time.
        let mut left = all.iter().flatten().count() as u64;
        let mut plan = |edges| {
            let free = self.context.budget().free() / left;
            left -= 1;
            self.plan::<T>(edges, coding.clone(), free)
        };
        all.into_iter().map(|edges| edges.map(&mut plan).transpose()).collect()
    }

    fn passes<'p, T: Coordinate>(&'p self, coding: Option<&'p Coding>) -> Result<Passes<'p, T>> {
        Passes::new(&self.context, self.buckets, (self.options, &self.threshold), coding)
    }

    /// How floats are rounded, from drawn vectors; integers need no rounding.
    fn fit_coding<T: Coordinate>(&self) -> Result<Option<Coding>> {
        let Self { ref context, buckets, options, .. } = *self;
        if !T::is_float() {
            return Ok(None);
        }
        let bytes = centers_bytes::<T>(buckets) + Drawn::<T>::memory_bytes(buckets, CODING_VECTORS);
        let _memory = context.reserve(bytes, PURPOSE)?;
        let places = draw_places(buckets, CODING_VECTORS, options.seed, "coding");
        let drawn = Drawn::<T>::read(context, buckets, &buckets.centers()?, &places)?;
        Ok(Some(Coding::fit(&drawn.members.panel)))
    }

    /// A plan for edges whose run, as the plan itself, finds room in `free` bytes: from now on it holds what it needs.
    fn plan<T: Coordinate>(&self, edges: Edges, coding: Option<Coding>, free: u64) -> Result<Prepared> {
        let Self { ref context, buckets, options, with_ids, .. } = *self;
        let sizes = sizes::<T>(buckets, with_ids);
        let Edges { graph, memory, .. } = edges;
        let free = free + memory.bytes();
        drop(memory); // tasks take the place of edges
        let division = self.divide::<T>(&graph, &sizes, free)?;
        let budget = MemoryBudget::within(context.reserve(division.bytes(), PURPOSE)?);
        let of_tasks = budget.reserve(division.tasks).expect("it is a part of the sum");
        let schedule = schedule(graph, &sizes, CacheStart::cold(division.capacity, division.policy), options.order);
        Ok(Prepared {
            sizes,
            schedule,
            threshold: self.threshold,
            coding,
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
            memory: RunMemory { budget, division, _tasks: of_tasks },
            reads: buckets.read_counts(),
        })
    }

    /// Divides `free` bytes among the parts of a run; refuses where they hold no edge.
    fn divide<T: Coordinate>(&self, graph: &BucketGraph, sizes: &BucketSizes, free: u64) -> Result<Division> {
        let Self { ref context, buckets, options, with_ids, .. } = *self;
        let least_cache = sizes.least_cache(graph);
        let tasks = (graph.buckets + graph.edges.len()) as u64;
        let needs = needs::<T>(buckets, sizes, with_ids, (tasks, least_cache));
        let least = needs.least(1, Policy::Lru);
        let division = divide(&needs, (context.threads, options.policy), options.cache_bytes, free);
        let division = division.ok_or_else(|| context.too_small(least + context.budget().total() - free, PURPOSE))?;
        match options.cache_bytes {
            Some(wanted) if wanted < least_cache => Err(Error::option(format!(
                "a cache of {wanted} bytes holds not even two buckets that must meet; give at least {least_cache}"
            ))),
            _ => Ok(division),
        }
    }
}
