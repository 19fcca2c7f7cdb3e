//! Plans a join, given stores and a threshold. First runs the passes that collect the inputs, then computes the plan.

mod calibration;
mod comparison;
mod curve;
mod division;
mod drawn_groups;
mod edge_sides;
mod edges;
mod estimate;
mod foresee;
mod margins;
mod near_rows;
mod nearness;
mod neighbors;

use adjoin_device::MemoryBudget;

use self::division::{RunSize, advised, least_of_any, least_to_calibrate, needs, sizes};
use self::edges::{Edges, Passes, fit_coding};
pub(crate) use self::foresee::{Foresight, UnopenedSet, least_of_unbuilt};
use super::options::JoinOptions;
use super::prepared::{JoinPlan, PlanFacts, Predicted, Prepared, RunMemory, Spent};
use super::watched::Watched;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Threshold, with_coordinates};
use crate::base::message::{Argument, message};
use crate::base::options::Metric;
use crate::base::report::Stopwatch;
use crate::load::{Buckets, Sets};
use crate::plan::{
    BucketSizes, CacheStart, Division, Lead, Needs, Policy, Task, divide, schedule, schedule_in_order, tasks_of,
    threads_within,
};
use crate::store::Store;

/// Purpose of the memory, for messages.
const PURPOSE: &str = "this join";
/// Purpose of the memory of edges, for messages.
const PLAN_PURPOSE: &str = "the plan of this join";

impl JoinOptions {
    /// Plans a join of a store with itself or of two stores with each other.
    ///
    /// # Errors
    /// Fails if
    /// - the predicate does not match the metric of the stores, or their vectors cannot be compared,
    /// - the budget is too small or a store cannot be read, or
    /// - the requested rule cannot be shown to reach the recall.
    pub fn prepare<'a>(&self, context: &Context, sets: impl Into<Sets<'a>>, with_ids: bool) -> Result<Prepared> {
        prepare_sets(context, sets.into(), self, with_ids)
    }
}

/// Plans a join of sets. This function is separate from [`JoinOptions::prepare`] because a generic function is
/// compiled again in each crate that calls it, together with all generic functions that it calls.
fn prepare_sets(context: &Context, sets: Sets<'_>, options: &JoinOptions, with_ids: bool) -> Result<Prepared> {
    let begun = begin(context, checked(sets, options)?, options, with_ids)?;
    with_coordinates!(begun.buckets.space(), T => {
        Planner::new::<T>(&begun, options, with_ids).prepare::<T>()
    })
}

/// Returns the least memory in bytes with which a join without ids can be planned and run. A sink that is created
/// before the planning adds it to its own memory: if the budget is too small for both, one error states the sum.
///
/// # Errors
/// Fails if the predicate does not match the metric of the stores, or their vectors cannot be compared.
pub fn least_memory<'a>(sets: impl Into<Sets<'a>>, options: &JoinOptions) -> Result<u64> {
    Ok(least_of_any(&checked(sets.into(), options)?, options, false))
}

/// Returns an upper bound in bytes on the memory that a join needs, for most results of planning.
///
/// # Errors
/// Fails if the predicate does not match the metric of the stores, or their vectors cannot be compared.
pub(crate) fn memory_bound<'a>(sets: impl Into<Sets<'a>>, options: &JoinOptions, with_ids: bool) -> Result<u64> {
    Ok(advised(&checked(sets.into(), options)?, options, with_ids))
}

/// Prepares an earlier plan for these sets, for example one that was read from a file. The result equals that of
/// [`JoinOptions::prepare`], but has the memory of this context.
///
/// # Errors
/// Fails if the plan is not for these sets, or the budget is too small.
pub fn resume<'a>(context: &Context, sets: impl Into<Sets<'a>>, plan: JoinPlan) -> Result<Prepared> {
    let capacity = Some(plan.capacity);
    resume_within(context, sets.into(), plan, capacity)
}

/// Prepares an earlier plan with a cache of `cache_bytes`, or of all remaining memory if that is `None`.
///
/// # Errors
/// Fails as [`resume`] does.
pub(crate) fn resume_within(
    context: &Context,
    sets: Sets<'_>,
    plan: JoinPlan,
    cache_bytes: Option<u64>,
) -> Result<Prepared> {
    let buckets = sets.buckets()?;
    plan.check(sets, &buckets)?;
    let PlanFacts { predicate, seed, with_ids, ref coding, .. } = plan.decided;
    // The plan contains its rule, so neither a calibration nor memory for one is needed.
    let options = &JoinOptions { seed, cache_bytes, ..JoinOptions::exact(predicate) };
    let (watch, buckets) = (Stopwatch::start(), buckets.rounded(coding.clone()));
    let context = context.for_run(least_of_any(&buckets, options, with_ids), PURPOSE)?;
    let begun = Begun { context, buckets, watch };
    with_coordinates!(begun.buckets.space(), T => {
        Planner::new::<T>(&begun, options, with_ids).resume::<T>(plan)
    })
}

/// Checks that sets can be joined with these options. Returns their buckets.
fn checked<'a>(sets: Sets<'a>, options: &JoinOptions) -> Result<Buckets<'a>> {
    sets.stores().try_for_each(|store| check_metric(store, options))?;
    sets.buckets()
}

fn check_metric(store: &Store, options: &JoinOptions) -> Result<()> {
    let (built_for, wanted) = (store.manifest().metric, options.predicate.metric());
    built_for.check_joins(store.folder().display())?;
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

/// A join at the start of its planning.
struct Begun<'a> {
    /// Context with the memory of the join, which is reserved from the start of planning to the last pair.
    context: Context,
    buckets: Buckets<'a>,
    /// Time since planning started.
    watch: Stopwatch,
}

/// Reserves the memory for planning and running the join, and decides how floats are rounded.
fn begin<'a>(context: &Context, buckets: Buckets<'a>, options: &JoinOptions, with_ids: bool) -> Result<Begun<'a>> {
    let watch = Stopwatch::start();
    // A refusal names a budget for everything, including memory that others, such as the sink, already hold.
    let context = context.naming_more(advised(&buckets, options, with_ids));
    let context = context.for_run(least_of_any(&buckets, options, with_ids), PURPOSE)?;
    let coding = fit_coding(&context, &buckets, options)?;
    Ok(Begun { context, buckets: buckets.rounded(coding), watch })
}

struct Planner<'a> {
    /// Context with the memory of the join, and with the number of threads for which this memory suffices.
    context: Context,
    buckets: &'a Buckets<'a>,
    options: &'a JoinOptions,
    with_ids: bool,
    threshold: Threshold,
    /// Time since planning started.
    watch: &'a Stopwatch,
}

impl<'a> Planner<'a> {
    fn new<T: Coordinate>(begun: &'a Begun<'a>, options: &'a JoinOptions, with_ids: bool) -> Self {
        let Begun { ref context, ref buckets, ref watch } = *begun;
        let least = |threads| least_to_calibrate::<T>(buckets, options, with_ids, threads);
        let context = context.with_threads(threads_within(context.threads, context.budget().free(), least));
        let threshold = Threshold::new(options.predicate, buckets.space());
        Self { context, buckets, options, with_ids, threshold, watch }
    }

    fn prepare<T: Coordinate>(&self) -> Result<Prepared> {
        let passes = self.passes::<T>()?;
        let edges = passes.edges()?;
        drop(passes); // also frees the centers
        let prepared = self.plan::<T>(edges, self.context.budget().free())?;
        self.context.budget().shrink(0); // only the plan and its run hold memory now
        Ok(prepared)
    }

    fn passes<T: Coordinate>(&self) -> Result<Passes<'_, T>> {
        Passes::new(&self.context, self.buckets, self.options, &self.threshold)
    }

    /// Computes the plan for the edges of a join. The plan and its run fit in `free` bytes. The plan holds this memory
    /// until it is dropped.
    fn plan<T: Coordinate>(&self, edges: Edges, free: u64) -> Result<Prepared> {
        let Self { buckets, options, with_ids, .. } = *self;
        let Edges { graph, memory, admission, recall, watched, .. } = edges;
        let free = free + memory.bytes();
        drop(memory); // tasks take the place of edges
        let predicted = Predicted {
            candidate_pairs: edges.predicted_pairs,
            results: edges.predicted_results,
            center_distances: center_distances(buckets, &graph.edges),
        };
        let own = buckets.meeting_themselves();
        let tasks = (own.len() + graph.edges.len()) as u64;
        let run = RunSize { tasks, results: edges.predicted_results };
        let room = self.room::<T>(&graph.edges, run, free)?;
        // If there is only one set, no other set can lead.
        let leads = if buckets.parts().len() == 1 { &[Lead::Left][..] } else { &Lead::ALL };
        let schedule = schedule(tasks_of(graph, &own), &room.sizes, room.start(), leads);
        let spent = Spent {
            center_distances: edges.center_distances,
            sample_distances: edges.sample_distances,
            calibrate_seconds: edges.calibrate_seconds,
            // The calibration is part of the planning, but its time is reported separately.
            plan_seconds: self.watch.seconds() - edges.calibrate_seconds.unwrap_or(0.0),
            reads: buckets.read_counts(),
        };
        let JoinOptions { predicate, seed, .. } = *options;
        let coding = buckets.coding().cloned();
        let decided = PlanFacts { predicate, seed, with_ids, admission, coding, recall, predicted, spent };
        let Room { sizes, memory } = room;
        Ok(Prepared { decided, sizes, schedule, threshold: self.threshold, watched, memory })
    }

    /// Prepares an existing plan for a run within the free memory.
    fn resume<T: Coordinate>(&self, plan: JoinPlan) -> Result<Prepared> {
        let JoinPlan { mut decided, watched, order, lead, tasks, steps, .. } = plan;
        let watched =
            watched.map(|watched| Watched::new(&self.context, watched, self.buckets.first_new_row())).transpose()?;
        // The plan may be a part with only some of the tasks, so the prediction for all tasks does not apply.
        decided.predicted.center_distances = center_distances(self.buckets, &tasks);
        let run = RunSize { tasks: tasks.len() as u64, results: decided.predicted.results };
        let room = self.room::<T>(&tasks, run, self.context.budget().free())?;
        let mut schedule = schedule_in_order(tasks, order, lead, &room.sizes, room.start());
        if let Some(steps) = steps {
            schedule = schedule.with_steps(steps, &room.sizes);
        }
        self.context.budget().shrink(0);
        let Room { sizes, memory } = room;
        Ok(Prepared { decided, sizes, schedule, threshold: self.threshold, watched, memory })
    }

    /// Reserves the memory for a run out of `free` bytes. `edges` are its tasks between different buckets.
    fn room<T: Coordinate>(&self, edges: &[Task], run: RunSize, free: u64) -> Result<Room> {
        let Self { ref context, buckets, with_ids, .. } = *self;
        let sizes = sizes::<T>(buckets, with_ids);
        let needs = needs::<T>(buckets, &sizes, with_ids, run, sizes.least_cache(edges));
        let division = self.divide(&needs, free)?;
        let budget = MemoryBudget::within(context.reserve(division.bytes(), PURPOSE)?);
        let of_tasks = budget.reserve(division.tasks).expect("tasks are a part of the reserved sum");
        Ok(Room { sizes, memory: RunMemory { budget, division, _tasks: of_tasks } })
    }

    /// Divides `free` bytes among the parts of a run. Fails if they do not suffice for a single edge.
    fn divide(&self, needs: &Needs, free: u64) -> Result<Division> {
        let Self { ref context, options, .. } = *self;
        let least = needs.least(1, Policy::Lru);
        let division = divide(needs, context.threads, options.cache_bytes, free);
        let division = division.ok_or_else(|| context.too_small(least + context.budget().total() - free, PURPOSE))?;
        let least_cache = needs.cache.start();
        match options.cache_bytes {
            Some(wanted) if wanted < *least_cache => Err(Error::option(format!(
                "a cache of {wanted} bytes cannot hold two buckets to compare; give at least {least_cache}"
            ))),
            _ => Ok(division),
        }
    }
}

/// The memory of a run, and the sizes of its buckets.
struct Room {
    sizes: BucketSizes,
    memory: RunMemory,
}

impl Room {
    /// Returns the state of the cache at the start of the run.
    fn start(&self) -> CacheStart {
        let Division { capacity, policy, .. } = self.memory.division;
        CacheStart { capacity, policy }
    }
}

/// Returns the number of distances to centers that a run computes. For each edge, these are the distances of all
/// members of both buckets to the center of the other bucket.
fn center_distances(buckets: &Buckets<'_>, tasks: &[Task]) -> u64 {
    let rows = |bucket: u32| u64::from(buckets.members(bucket));
    let edges = tasks.iter().filter(|(i, j)| i != j);
    edges.map(|&(i, j)| rows(i) + rows(j)).sum()
}
