//! Carries out what [`super::planning`] prepared, and tells what that took.

mod found;
mod verify;
mod views;

use std::ops::AddAssign;
use std::sync::atomic::AtomicU64;

use adjoin_kernels::Panel;

use self::found::Found;
use self::verify::Counts;
pub(super) use self::verify::Verifier;
use super::prepared::{Decided, Prepared, RunMemory};
use super::watched::Watched;
use crate::context::Context;
use crate::error::Result;
use crate::execute::{Execution, Waits, batches_in_flight};
use crate::geometry::{Coordinate, with_coordinates};
use crate::load::{Buckets, Cache, ReadCounts, Sets, Side};
use crate::plan::CacheCounts;
use crate::report::{
    CommonStatistics, IoStatistics, JoinCounts, JoinStatistics, PredictedStatistics, SecondsStatistics, SharedSeconds,
    Stopwatch, StrategyStatistics,
};
use crate::sink::{PairBatch, PairSink, Written};
use crate::source::IdKind;
use crate::store::Store;
use adjoin_device::MemoryBudget;

/// Bytes of pairs on their way from the workers to the sink, with ids and without.
const QUEUED_BYTES: u64 = 12 << 20;
const QUEUED_BYTES_WITHOUT_IDS: u64 = 6 << 20;

/// Bytes of pairs on their way to the sink.
pub(super) struct Queue;

impl Queue {
    /// With less, workers wait for the sink again and again.
    pub(super) fn least(with_ids: bool) -> u64 {
        Self::most(with_ids) / 6
    }

    /// More would not make anybody wait less.
    pub(super) fn most(with_ids: bool) -> u64 {
        if with_ids { QUEUED_BYTES } else { QUEUED_BYTES_WITHOUT_IDS }
    }
}

/// Finds every pair that was asked for, as planned, and hands them to `sink`, within the memory that the plan holds. Of two
/// runs of one plan at the same time, the second waits for the first.
///
/// # Errors
/// Where the store or the sink fails, or the work is cancelled. The sink's result then does not appear.
pub fn join<'a>(
    context: &Context,
    sets: impl Into<Sets<'a>>,
    prepared: &Prepared,
    mut sink: Box<dyn PairSink + '_>,
) -> Result<JoinStatistics> {
    let sets = sets.into();
    let mut done = run(context, sets, prepared, &mut *sink)?;
    let written = done.measure_writing(|| sink.finish())?;
    Ok(prepared.statistics(context, sets, &done, written))
}

/// The same for a part of a join: `sink` may take the pairs of others too, before it is finished. What the parts have done
/// adds up.
///
/// # Errors
/// As [`join`].
pub fn run<'a>(
    context: &Context,
    sets: impl Into<Sets<'a>>,
    prepared: &Prepared,
    sink: &mut dyn PairSink,
) -> Result<Done> {
    let sets = sets.into();
    let buckets = &sets.buckets()?.rounded(prepared.decided.coding.clone());
    // All at once: two runs of one plan that each held a part would wait for each other.
    let RunMemory { budget, division, .. } = &prepared.memory;
    let held = budget.reserve_when_free(division.bytes() - division.tasks);
    let memory = &MemoryBudget::within(held.expect("the plan holds what its run needs"));
    let context = &context.with_threads(division.threads);
    with_coordinates!(buckets.space(), T => {
        let centers = &buckets.centers::<T>()?;
        Run::<T> { context, sets, buckets, prepared, centers, memory }.execute(sink)
    })
}

/// What was done of a join.
#[derive(Debug, Clone, Default)]
pub struct Done {
    counts: Counts,
    /// Of each vector that is watched, the pairs found.
    found: Vec<u64>,
    reads: ReadCounts,
    /// Loads of buckets that the plan foresaw, their bytes, and the uses of buckets.
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
        if self.found.is_empty() {
            self.found = other.found;
        } else {
            assert_eq!(self.found.len(), other.found.len(), "both are parts of one join");
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
    /// Of the run.
    memory: &'a MemoryBudget,
}

impl<T: Coordinate> Run<'_, T> {
    fn execute(&self, sink: &mut dyn PairSink) -> Result<Done> {
        let Self { context, buckets, prepared, centers, memory, .. } = *self;
        let Prepared { decided, sizes, schedule, watched, .. } = prepared;
        let watch = Stopwatch::start();
        let of_cache = memory.reserve(schedule.capacity).expect("it is a part of the sum");
        let (waits, write) = (Waits::default(), SharedSeconds::default());
        let mut cache = Cache::new(MemoryBudget::within(of_cache), sizes.memory.len());
        let found = watched.as_ref().map_or_else(Vec::new, Watched::found);
        let (with_ids, read_ahead) = (decided.with_ids, prepared.memory.division.read_ahead);
        let execution = Execution { context, buckets, centers, sizes, schedule, with_ids, read_ahead, phase: "join" };
        let all = match sink.tally() {
            Some(tally) => {
                let watched = watched.as_ref().map(|watched| (watched, &*found));
                let visitor = || self.verifier(Found::counts(tally, watched, buckets.are_of_two_sets()));
                execution.run(&mut cache, visitor, |_| unreachable!("pairs are counted"), &waits)?
            }
            None => {
                let [left_from, right_from] = self.sets.numbers_from();
                let take = |mut batch: PairBatch| {
                    watched.iter().for_each(|watched| watched.count(&batch, &found));
                    batch.left_rows.iter_mut().for_each(|row| *row += left_from);
                    batch.right_rows.iter_mut().for_each(|row| *row += right_from);
                    write.measure(|| sink.accept(&batch))
                };
                execution.run(&mut cache, || self.verifier(self.batches()), take, &waits)?
            }
        };
        let mut counts = Counts::default();
        all.into_iter().for_each(|of_worker| counts += of_worker);
        Ok(Done {
            counts,
            found: found.into_iter().map(AtomicU64::into_inner).collect(),
            reads: buckets.read_counts(),
            foreseen: schedule.counts,
            predicted_center_distances: decided.predicted.center_distances,
            edges: schedule.edges(),
            is_direct: buckets.is_direct(),
            seconds: watch.seconds(),
            write_seconds: write.seconds(),
            waited_for_disk: waits.for_disk.seconds(),
            waited_for_sink: waits.for_batches.seconds(),
        })
    }

    fn verifier<'r>(&'r self, found: Found<'r>) -> Verifier<'r, T> {
        let Self { context, buckets, prepared, centers, .. } = *self;
        let Decided { predicate, admission, .. } = prepared.decided;
        let looked_for = (predicate, &prepared.threshold);
        Verifier::new(context.kernel, centers, looked_for, (admission, buckets.pairs()), found)
    }

    /// Batches of the size that the queue bears.
    fn batches(&self) -> Found<'static> {
        let kind = |store: &Store| if self.prepared.decided.with_ids { store.manifest().ids } else { IdKind::None };
        let ids = [self.sets.left(), self.sets.right()].map(kind);
        // What grows may be twice as large.
        let in_flight = batches_in_flight(self.context.threads) as u64;
        Found::pairs(ids, self.prepared.memory.division.queue / (2 * in_flight), self.buckets.are_of_two_sets())
    }
}

impl Prepared {
    /// What a join has done whose parts are done, and that it wrote.
    ///
    /// # Panics
    /// Where these are not sets that can be joined.
    pub fn statistics<'a>(
        &self,
        context: &Context,
        sets: impl Into<Sets<'a>>,
        done: &Done,
        written: Written,
    ) -> JoinStatistics {
        let sets = sets.into();
        let buckets = sets.buckets().expect("they were joined");
        let Decided { ref recall, spent, predicted, .. } = self.decided;
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
                seconds: None, // a plan weighs its choices, and measures no speed
            }),
            strategy: self.strategy(sets),
            threads: self.memory.division.threads,
            ..sets.left().manifest().statistics(context, "join")
        };
        let with_rows = sets.other().map(|other| other.manifest().rows);
        let is_filtered = sets.sides().any(|side| side.passing_rows().is_some());
        let skipped = is_filtered.then(|| buckets.skipped(self.decided.with_ids));
        let join = JoinCounts {
            with_rows,
            passing_rows: sets.left_side().passing_rows(),
            with_passing_rows: sets.other_side().and_then(Side::passing_rows),
            skipped_buckets: skipped.map(|(buckets, _)| buckets),
            skipped_bytes: skipped.map(|(_, bytes)| bytes),
            buckets: buckets.count().into(),
            ..self.counts(done)
        };
        JoinStatistics { common, join, among_new: None, written }
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
        let Decided { admission, seed, spent, .. } = &self.decided;
        StrategyStatistics {
            rule: Some(admission.rule.name()),
            t: admission.t,
            sample_seed: Some(*seed),
            sample_distances: Some(spent.sample_distances),
            order: Some(self.schedule.order.name()),
            lead: sets.other().map(|_| self.schedule.lead.name()),
            cache: Some(self.schedule.policy.name()),
            centers: Some(sets.left().manifest().centers.name()),
            ..StrategyStatistics::default()
        }
    }

    fn io(&self, context: &Context, buckets: &Buckets<'_>, done: &Done, written: Written) -> IoStatistics {
        let mut counts = self.decided.spent.reads;
        counts += done.reads;
        let store_bytes = buckets.bytes(self.decided.with_ids);
        let io = counts.statistics(context, (store_bytes, done.is_direct), written);
        IoStatistics { cache_hit_rate: Some(done.foreseen.hit_rate()), ..io }
    }
}
