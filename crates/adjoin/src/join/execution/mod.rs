//! Runs the plan that [`super::planning`] computed, and reports statistics.

mod found;
mod verify;
mod views;

use std::ops::AddAssign;
use std::sync::atomic::AtomicU64;

use adjoin_kernels::Panel;
use serde::{Deserialize, Serialize};

use self::found::FoundPairs;
use self::verify::Counts;
pub(super) use self::verify::Verifier;
use super::prepared::{COUNT_MAX, PlanFacts, Prepared};
use super::watched::Watched;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, with_coordinates};
use crate::base::report::{
    CommonStatistics, IoStatistics, JoinCounts, JoinStatistics, PredictedStatistics, SecondsStatistics, SharedSeconds,
    Stopwatch, StrategyStatistics,
};
use crate::execute::{BatchConsumer, Execution, Waits, batches_in_flight};
use crate::load::{Buckets, Cache, JoinSide, ReadCounts, Sets};
use crate::plan::CacheCounts;
use crate::sink::{PairBatch, PairSink, Written};
use crate::source::IdKind;
use crate::store::Store;
use adjoin_device::MemoryBudget;

/// Maximum bytes of pairs on their way from the workers to the sink, with and without ids.
const QUEUED_BYTES: u64 = 12 << 20;
const QUEUED_BYTES_WITHOUT_IDS: u64 = 6 << 20;

/// Limits for the bytes of pairs on their way to the sink.
pub(super) struct Queue;

impl Queue {
    /// Returns the lower limit. With less, workers would often wait for the sink.
    pub(super) fn least(with_ids: bool) -> u64 {
        Self::most(with_ids) / 6
    }

    /// Returns the upper limit. More would not reduce waiting.
    pub(super) fn most(with_ids: bool) -> u64 {
        if with_ids { QUEUED_BYTES } else { QUEUED_BYTES_WITHOUT_IDS }
    }
}

impl Prepared {
    /// Runs the plan: finds the pairs and passes them to `sink`. Uses only the memory that the plan holds. If a plan
    /// is run twice at the same time, the second run waits for the first.
    ///
    /// # Errors
    /// Fails if the store or the sink fails, or the work is canceled. The sink's result is then not published.
    pub fn run<'a>(
        &self,
        context: &Context,
        sets: impl Into<Sets<'a>>,
        mut sink: Box<dyn PairSink + '_>,
    ) -> Result<JoinStatistics> {
        let sets = sets.into();
        let mut done = run(context, sets, self, &mut *sink)?;
        let written = done.measure_writing(|| sink.finish())?;
        Ok(self.statistics(context, sets, &done, written))
    }
}

/// Runs a part of a join. The caller finishes `sink`, and may first pass the pairs of other parts to it. The results
/// of all parts can be added.
///
/// # Errors
/// Fails as [`Prepared::run`] does.
pub fn run<'a>(
    context: &Context,
    sets: impl Into<Sets<'a>>,
    prepared: &Prepared,
    sink: &mut dyn PairSink,
) -> Result<Done> {
    run_sets(context, sets.into(), prepared, sink)
}

/// Runs a join of sets. This function is separate from [`run`] because a generic function is compiled again in each
/// crate that calls it, together with all generic functions that it calls.
fn run_sets(context: &Context, sets: Sets<'_>, prepared: &Prepared, sink: &mut dyn PairSink) -> Result<Done> {
    let buckets = &sets.buckets()?.rounded(prepared.decided.coding.clone());
    let memory = &prepared.memory.held();
    let context = &context.with_threads(prepared.memory.division.threads);
    with_coordinates!(buckets.space(), T => {
        let centers = &buckets.centers::<T>()?;
        Run::<T> { context, sets, buckets, prepared, centers, memory }.execute(sink)
    })
}

/// Stores found pairs at checkpoints. A leg consists of the tasks between two checkpoints.
pub(crate) trait SaveCheckpoints {
    /// Stores a batch of pairs of the current leg.
    fn take(&mut self, pairs: &PairBatch) -> Result<()>;

    /// Ends a leg. Called when all tasks before number `tasks` are done and their pairs are stored. `done` covers all
    /// legs up to this one.
    fn end_leg(&mut self, tasks: usize, done: Done) -> Result<()>;
}

/// Runs a join in legs. Each number in `ends` is the task before which a leg ends; the last leg ends with the last
/// task. The first `done_before` tasks were done by earlier runs. Found pairs are stored by `keeper`; [`hand_over`]
/// passes them to a sink later.
///
/// # Errors
/// Fails if the store or the keeper fails, or the work is canceled.
pub(crate) fn run_in_legs(
    context: &Context,
    sets: Sets<'_>,
    prepared: &Prepared,
    done_before: u64,
    ends: &[usize],
    keeper: &mut dyn SaveCheckpoints,
) -> Result<()> {
    let buckets = &sets.buckets()?.rounded(prepared.decided.coding.clone());
    let memory = &prepared.memory.held();
    let context = &context.with_threads(prepared.memory.division.threads);
    with_coordinates!(buckets.space(), T => {
        let centers = &buckets.centers::<T>()?;
        let run = Run::<T> { context, sets, buckets, prepared, centers, memory };
        run.execute_in_legs(done_before, ends, keeper)
    })
}

/// Passes the stored pairs of all legs to `sink`. `next` returns the next batch of them. The result contains the
/// number of pairs found for each watched vector.
///
/// # Errors
/// Fails if `next` or the sink fails, or the work is canceled.
pub(crate) fn hand_over(
    context: &Context,
    prepared: &Prepared,
    mut next: impl FnMut() -> Result<Option<PairBatch>>,
    sink: &mut dyn PairSink,
) -> Result<Done> {
    let (watch, write) = (Stopwatch::start(), SharedSeconds::default());
    let mut handing = BatchDelivery::new(prepared.watched.as_ref(), sink, &write);
    while let Some(batch) = next()? {
        context.cancel.check()?;
        handing.hand(batch)?;
    }
    let found = handing.into_found();
    Ok(Done { found, seconds: watch.seconds(), write_seconds: write.seconds(), ..Done::default() })
}

/// Passes batches of pairs to the sink. Counts the pairs of watched vectors, and measures the time that the sink
/// takes.
struct BatchDelivery<'a> {
    watched: Option<&'a Watched>,
    /// Number of pairs found for each watched vector.
    found: Vec<AtomicU64>,
    sink: &'a mut dyn PairSink,
    write: &'a SharedSeconds,
}

impl<'a> BatchDelivery<'a> {
    fn new(watched: Option<&'a Watched>, sink: &'a mut dyn PairSink, write: &'a SharedSeconds) -> Self {
        let found = watched.map_or_else(Vec::new, Watched::found);
        Self { watched, found, sink, write }
    }

    fn hand(&mut self, batch: PairBatch) -> Result<()> {
        self.watched.iter().for_each(|watched| watched.count(&batch, &self.found));
        self.write.measure(|| self.sink.accept(&batch))
    }

    fn into_found(self) -> Vec<u64> {
        counts_of(self.found)
    }
}

fn counts_of(found: Vec<AtomicU64>) -> Vec<u64> {
    found.into_iter().map(AtomicU64::into_inner).collect()
}

/// Counts and times of a join, or of a part of one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Done {
    counts: Counts,
    /// Number of pairs found for each watched vector. It is empty for a leg, since stored pairs are counted at the
    /// end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    found: Vec<u64>,
    reads: ReadCounts,
    /// Predicted numbers of bucket loads, bytes loaded, and uses of buckets.
    foreseen: CacheCounts,
    predicted_center_distances: u64,
    edges: u64,
    is_direct: bool,
    seconds: f64,
    write_seconds: f64,
    waited_for_disk: f64,
    waited_for_sink: f64,
}

impl AddAssign for Done {
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        // The sum starts with the default value, which has no counts.
        if self.found.is_empty() {
            self.found = other.found;
        } else if !other.found.is_empty() {
            assert_eq!(self.found.len(), other.found.len(), "parts of one join watch equal numbers of vectors");
            self.found.iter_mut().zip(other.found).for_each(|(found, more)| *found += more);
        }
        self.reads += other.reads;
        self.foreseen += other.foreseen;
        self.predicted_center_distances += other.predicted_center_distances;
        self.edges += other.edges;
        self.is_direct |= other.is_direct;
        self.seconds += other.seconds;
        self.write_seconds += other.write_seconds;
        self.waited_for_disk += other.waited_for_disk;
        self.waited_for_sink += other.waited_for_sink;
    }
}

impl Done {
    /// Creates a result that has only predictions.
    pub(super) fn foreseen(foreseen: CacheCounts, center_distances: u64, edges: u64) -> Self {
        Self { foreseen, predicted_center_distances: center_distances, edges, ..Self::default() }
    }

    /// Returns only the results that depend on nothing but the plan and the sets: the counts, without times and reads.
    pub(crate) fn reproducible(self) -> Self {
        Self { counts: self.counts, found: self.found, ..Self::default() }
    }

    /// Returns whether these can be the counts of a part of `prepared`: their sum cannot overflow, and the number of
    /// watched vectors matches.
    pub(crate) fn is_of(&self, prepared: &Prepared) -> bool {
        let Counts { pairs, candidate_pairs, verified_pairs, exact_checks, center_distances } = self.counts;
        let counts = [pairs, candidate_pairs, verified_pairs, exact_checks, center_distances];
        let watched = prepared.watched.as_ref().map_or(0, Watched::len);
        self.found.len() == watched && counts.iter().chain(&self.found).all(|count| *count <= COUNT_MAX)
    }

    /// Sets the time of the work.
    pub(crate) fn took(self, seconds: f64) -> Self {
        Self { seconds, ..self }
    }

    /// Returns the predicted bytes of the buckets that the schedule reads.
    pub(crate) fn foreseen_bytes(&self) -> u64 {
        self.foreseen.bytes
    }

    /// Returns the seconds that workers waited for the disk, summed over the workers.
    pub(crate) fn waited_for_disk(&self) -> f64 {
        self.waited_for_disk
    }

    /// Returns the number of compared pairs.
    pub(crate) fn verified_pairs(&self) -> u64 {
        self.counts.verified_pairs
    }

    fn measure_writing<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let watch = Stopwatch::start();
        let result = work();
        let seconds = watch.seconds();
        self.write_seconds += seconds;
        self.seconds += seconds;
        result
    }
}

struct Run<'a, T: Coordinate> {
    context: &'a Context,
    sets: Sets<'a>,
    buckets: &'a Buckets<'a>,
    prepared: &'a Prepared,
    centers: &'a Panel<T>,
    /// Memory that the plan holds for the run.
    memory: &'a MemoryBudget,
}

impl<T: Coordinate> Run<'_, T> {
    fn execute(&self, sink: &mut dyn PairSink) -> Result<Done> {
        let Self { buckets, prepared, .. } = *self;
        let watch = Stopwatch::start();
        let (waits, write) = (Waits::default(), SharedSeconds::default());
        let (mut cache, execution) = (self.cache(), self.execution(0));
        // A sink that needs only counts offers a tally. Workers count into it, so no pairs pass through the queue.
        let tallied = sink.tally().is_some();
        let (all, found) = if tallied {
            let watched = prepared.watched.as_ref();
            let found = watched.map_or_else(Vec::new, Watched::found);
            let tally = sink.tally().expect("the sink has offered a tally");
            let watched = watched.map(|watched| (watched, &*found));
            let visitor = || self.verifier(FoundPairs::counts(tally, watched, buckets.are_of_two_sets()));
            let all = execution.run(&mut cache, visitor, |_| unreachable!("pairs are counted"), &waits)?;
            (all, counts_of(found))
        } else {
            let mut handing = BatchDelivery::new(prepared.watched.as_ref(), sink, &write);
            let take = |batch: PairBatch| handing.hand(batch);
            let all = execution.run(&mut cache, || self.verifier(self.batches()), take, &waits)?;
            (all, handing.into_found())
        };
        let mut done = self.done(all, &waits, watch);
        // All tasks of the plan were run, so the predictions for all tasks apply.
        done += prepared.whole();
        Ok(Done { found, write_seconds: write.seconds(), ..done })
    }

    fn execute_in_legs(&self, done_before: u64, ends: &[usize], keeper: &mut dyn SaveCheckpoints) -> Result<()> {
        let waits = Waits::default();
        let (mut cache, execution) = (self.cache(), self.execution(done_before));
        let mut keeping =
            Keeping { run: self, keeper, waits: &waits, watch: Stopwatch::start(), counts: Counts::default() };
        execution.run_in_legs(&mut cache, || self.verifier(self.batches()), ends, &mut keeping, &waits)
    }

    fn cache(&self) -> Cache<T> {
        let Prepared { schedule, sizes, .. } = self.prepared;
        let bytes = schedule.capacity + self.prepared.memory.division.evicted;
        let of_cache = self.memory.reserve(bytes).expect("the cache is a part of the reserved sum");
        Cache::new(MemoryBudget::within(of_cache), sizes.memory.len())
    }

    fn execution(&self, done_before: u64) -> Execution<'_, T> {
        let Self { context, buckets, prepared, centers, .. } = *self;
        let Prepared { decided, sizes, schedule, .. } = prepared;
        let (with_ids, read_ahead) = (decided.with_ids, prepared.memory.division.read_ahead);
        Execution { context, buckets, centers, sizes, schedule, done_before, with_ids, read_ahead, phase: "join" }
    }

    /// Returns the sum of the workers' counts, and the times so far.
    fn done(&self, reports: impl IntoIterator<Item = Counts>, waits: &Waits, watch: Stopwatch) -> Done {
        let mut counts = Counts::default();
        reports.into_iter().for_each(|of_worker| counts += of_worker);
        Done {
            counts,
            reads: self.buckets.read_counts(),
            is_direct: self.buckets.is_direct(),
            seconds: watch.seconds(),
            waited_for_disk: waits.for_disk.seconds(),
            waited_for_sink: waits.for_batches.seconds(),
            ..Done::default()
        }
    }

    fn verifier<'r>(&'r self, found: FoundPairs<'r>) -> Verifier<'r, T> {
        let Self { context, buckets, prepared, centers, .. } = *self;
        let PlanFacts { predicate, admission, .. } = prepared.decided;
        let (threshold, pair_filter) = (&prepared.threshold, buckets.pairs());
        Verifier::new(context.kernel, centers, predicate, threshold, admission, pair_filter, found)
    }

    /// Creates a destination for pairs, with batches of a size that fits the queue.
    fn batches(&self) -> FoundPairs<'static> {
        let kind = |store: &Store| if self.prepared.decided.with_ids { store.manifest().ids } else { IdKind::None };
        let ids = [self.sets.left(), self.sets.right()].map(kind);
        // A vector that grows may have twice the capacity that it needs.
        let in_flight = batches_in_flight(self.context.threads) as u64;
        FoundPairs::pairs(ids, self.prepared.memory.division.queue / (2 * in_flight), self.buckets.are_of_two_sets())
    }
}

/// Passes the batches and legs of a run to the keeper.
struct Keeping<'a, T: Coordinate> {
    run: &'a Run<'a, T>,
    keeper: &'a mut dyn SaveCheckpoints,
    waits: &'a Waits,
    watch: Stopwatch,
    /// Sum of the counts of all ended legs.
    counts: Counts,
}

impl<T: Coordinate> BatchConsumer<PairBatch, Counts> for Keeping<'_, T> {
    fn take(&mut self, batch: PairBatch) -> Result<()> {
        self.keeper.take(&batch)
    }

    fn end_leg(&mut self, tasks: usize, reports: Vec<Counts>) -> Result<()> {
        // The reports are those of one leg, but a checkpoint covers all legs so far.
        let done = self.run.done(reports.into_iter().chain([self.counts]), self.waits, self.watch);
        self.counts = done.counts;
        self.keeper.end_leg(tasks, done)
    }
}

impl Prepared {
    /// Returns the predictions for all tasks of the plan.
    pub(crate) fn whole(&self) -> Done {
        Done {
            foreseen: self.schedule.counts,
            predicted_center_distances: self.decided.predicted.center_distances,
            edges: self.schedule.edges(),
            ..Done::default()
        }
    }

    /// Returns the statistics of a completed join.
    ///
    /// # Panics
    /// Panics if the sets cannot be joined.
    pub fn statistics<'a>(
        &self,
        context: &Context,
        sets: impl Into<Sets<'a>>,
        done: &Done,
        written: Written,
    ) -> JoinStatistics {
        self.statistics_of_sets(context, sets.into(), done, written)
    }

    fn statistics_of_sets(&self, context: &Context, sets: Sets<'_>, done: &Done, written: Written) -> JoinStatistics {
        let buckets = sets.buckets().expect("these sets were joined");
        let PlanFacts { ref recall, spent, predicted, .. } = self.decided;
        let common = CommonStatistics {
            recall: Some(self.watched.as_ref().map_or(recall.clone(), |watched| watched.measured(recall, &done.found))),
            io: self.io(context, &buckets, done, written),
            seconds: SecondsStatistics {
                total: done.seconds + spent.plan_seconds + spent.calibrate_seconds.unwrap_or(0.0),
                build: None,
                calibrate: spent.calibrate_seconds,
                plan: Some(spent.plan_seconds),
                execute: Some(done.seconds),
                write: Some(done.write_seconds),
                compute_waited_for_disk: Some(done.waited_for_disk),
                compute_waited_for_sink: Some(done.waited_for_sink),
            },
            predicted: Some(PredictedStatistics {
                bytes_read: Some(done.foreseen.bytes),
                verified_pairs: Some(predicted.candidate_pairs),
                center_distances: Some(spent.center_distances + done.predicted_center_distances),
                seconds: None, // a plan compares costs, and measures no speed
            }),
            strategy: self.strategy(sets),
            threads: self.memory.division.threads,
            skipped_rows: sets.stores().map(|store| store.manifest().without_vectors()).sum(),
            ..sets.left().manifest().statistics(context, "join")
        };
        // New rows of a set are reported separately from the rows of a second set.
        let of_second = |is_grown: bool| sets.other_side().filter(|_| sets.have_grown() == is_grown);
        let rows = |side: JoinSide<'_>| side.store().manifest().rows;
        let is_filtered = sets.sides().any(|side| side.passing_rows().is_some());
        let skipped = is_filtered.then(|| buckets.skipped(self.decided.with_ids));
        let join = JoinCounts {
            with_rows: of_second(false).map(rows),
            new_rows: of_second(true).map(rows),
            passing_rows: sets.left_side().passing_rows(),
            with_passing_rows: of_second(false).and_then(JoinSide::passing_rows),
            new_passing_rows: of_second(true).and_then(JoinSide::passing_rows),
            skipped_buckets: skipped.map(|(buckets, _)| buckets),
            skipped_bytes: skipped.map(|(_, bytes)| bytes),
            buckets: buckets.count().into(),
            largest_cluster: written.largest_cluster,
            removed_beyond_threshold: written.removed_beyond_threshold,
            ..self.counts(done)
        };
        JoinStatistics { common, join, resume: None, written }
    }

    /// Returns the statistics of a join that is planned but not run, with the recall that the plan promises.
    pub(crate) fn statistics_of_plan(&self, context: &Context, sets: Sets<'_>) -> JoinStatistics {
        let found = vec![0; self.watched.as_ref().map_or(0, Watched::len)];
        let mut statistics = self.statistics(context, sets, &Done { found, ..self.whole() }, Written::default());
        statistics.common.recall = Some(self.decided.recall.clone());
        statistics
    }

    fn counts(&self, done: &Done) -> JoinCounts {
        let (eps, min_similarity) = self.decided.predicate.thresholds();
        let Counts { pairs, candidate_pairs, verified_pairs, exact_checks, center_distances } = done.counts;
        JoinCounts {
            eps,
            min_similarity,
            pairs,
            candidate_pairs,
            verified_pairs,
            exact_checks,
            center_distances: self.decided.spent.center_distances + center_distances,
            edges: done.edges,
            ..JoinCounts::default()
        }
    }

    fn strategy(&self, sets: Sets<'_>) -> StrategyStatistics {
        let PlanFacts { admission, seed, spent, .. } = &self.decided;
        StrategyStatistics {
            rule: Some(admission.rule.name()),
            t: admission.t,
            sample_seed: Some(*seed),
            sample_distances: Some(spent.sample_distances),
            order: Some(self.schedule.order.clone()),
            lead: sets.other().map(|_| self.schedule.lead.name()),
            cache: Some(self.schedule.cache()),
            centers: Some(sets.left().manifest().centers.name()),
            ..StrategyStatistics::default()
        }
    }

    fn io(&self, context: &Context, buckets: &Buckets<'_>, done: &Done, written: Written) -> IoStatistics {
        let mut counts = self.decided.spent.reads;
        counts += done.reads;
        let store_bytes = buckets.bytes(self.decided.with_ids);
        let io = counts.statistics(context, store_bytes, done.is_direct, written);
        IoStatistics { cache_hit_rate: Some(done.foreseen.hit_rate()), ..io }
    }
}
