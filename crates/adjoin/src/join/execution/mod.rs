//! Carries out what [`super::planning`] prepared, and tells what that took.

mod verify;

use adjoin_kernels::Panel;

use self::verify::Counts;
pub(super) use self::verify::Verifier;
use super::options::JoinOptions;
use super::prepared::{Prepared, RunMemory};
use super::watched::Watched;
use crate::context::Context;
use crate::error::Result;
use crate::execute::{Execution, Waits, batches_in_flight};
use crate::geometry::{Coordinate, with_coordinates};
use crate::load::{Buckets, Cache};
use crate::predicate::Predicate;
use crate::report::{
    IoStatistics, PredictedStatistics, RecallStatistics, SecondsStatistics, SharedSeconds, Statistics, Stopwatch,
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

/// Finds every pair that `options` asks for, as planned, and hands them to `sink`, within the memory that the plan holds.
/// Of two runs of one plan at the same time, the second waits for the first.
///
/// # Errors
/// Where the store or the sink fails, or the work is cancelled. The sink's result then does not appear.
pub fn join(
    context: &Context,
    store: &Store,
    prepared: &Prepared,
    options: &JoinOptions,
    sink: Box<dyn PairSink + '_>,
) -> Result<Statistics> {
    let buckets = &Buckets::of(store);
    // All at once: two runs of one plan that each held a part would wait for each other.
    let RunMemory { budget, division, .. } = &prepared.memory;
    let held = budget.reserve_when_free(division.bytes() - division.tasks);
    let memory = MemoryBudget::within(held.expect("the plan holds what its run needs"));
    let context = &context.with_threads(division.threads);
    with_coordinates!(buckets.vectors(), buckets.metric(), T => {
        let centers = &buckets.centers::<T>()?;
        Run::<T> { context, store, buckets, prepared, options, centers, memory: &memory }.execute(sink)
    })
}

struct Run<'a, T: Coordinate> {
    context: &'a Context,
    store: &'a Store,
    buckets: &'a Buckets<'a>,
    prepared: &'a Prepared,
    options: &'a JoinOptions,
    centers: &'a Panel<T>,
    /// Of the run.
    memory: &'a MemoryBudget,
}

/// What an execution took.
struct Took {
    counts: Counts,
    recall: RecallStatistics,
    written: Written,
    waits: Waits,
    write_seconds: f64,
    seconds: f64,
}

impl<T: Coordinate> Run<'_, T> {
    fn execute(&self, mut sink: Box<dyn PairSink + '_>) -> Result<Statistics> {
        let Self { context, buckets, prepared, centers, memory, .. } = *self;
        let Prepared { sizes, schedule, with_ids, watched, .. } = prepared;
        let watch = Stopwatch::start();
        let of_cache = memory.reserve(schedule.capacity).expect("it is a part of the sum");
        let (waits, write) = (Waits::default(), SharedSeconds::default());
        let mut cache = Cache::new(MemoryBudget::within(of_cache), sizes.memory.len());
        let mut found = watched.as_ref().map_or_else(Vec::new, Watched::found);
        let (with_ids, read_ahead) = (*with_ids, prepared.memory.division.read_ahead);
        let execution = Execution { context, buckets, centers, sizes, schedule, with_ids, read_ahead, phase: "join" };
        let take = |batch: PairBatch| {
            if let Some(watched) = watched {
                watched.count(&batch, &mut found);
            }
            write.measure(|| sink.accept(&batch))
        };
        let all = execution.run(&mut cache, || self.verifier(), take, &waits)?;
        let counts = all.into_iter().fold(Counts::default(), |mut total, counts| {
            total += counts;
            total
        });
        let written = write.measure(|| sink.finish())?;
        let told = &prepared.recall;
        let recall = watched.as_ref().map_or(told.clone(), |watched| watched.measured(told, &found));
        let (write_seconds, seconds) = (write.seconds(), watch.seconds());
        Ok(self.statistics(Took { counts, recall, written, waits, write_seconds, seconds }))
    }

    fn verifier(&self) -> Verifier<'_, T> {
        let Self { context, store, prepared, options, centers, .. } = *self;
        let ids = if prepared.with_ids { store.manifest().ids } else { IdKind::None };
        // What grows may be twice as large.
        let in_flight = batches_in_flight(context.threads) as u64;
        let batch_bytes = prepared.memory.division.queue / (2 * in_flight);
        let (threshold, coding) = (&prepared.threshold, prepared.coding.as_ref());
        let admission = prepared.admission;
        Verifier::new(context.kernel, centers, (options.predicate, threshold), coding, admission, (ids, batch_bytes))
    }

    fn statistics(&self, took: Took) -> Statistics {
        let Took { counts, recall, written, waits, write_seconds, seconds } = took;
        let manifest = self.store.manifest();
        let (eps, min_similarity) = match self.options.predicate {
            Predicate::L2 { eps } => (Some(eps), None),
            Predicate::Cosine { min_similarity } => (None, Some(min_similarity)),
        };
        let center_distances = self.prepared.center_distances + counts.center_distances;
        Statistics {
            version: 1,
            command: "join".into(),
            rows: manifest.rows,
            dimensions: manifest.vectors.dimensions,
            element: manifest.vectors.element.to_string(),
            metric: manifest.metric.to_string(),
            eps,
            min_similarity,
            seed: manifest.seed,
            skipped_rows: manifest.skipped_rows,
            duplicate_ids: manifest.duplicate_ids,
            pairs: Some(counts.pairs),
            candidate_pairs: Some(counts.candidate_pairs),
            verified_pairs: Some(counts.verified_pairs),
            exact_checks: Some(counts.exact_checks),
            center_distances: Some(center_distances),
            edges: Some(self.prepared.schedule.edges()),
            buckets: Some(u64::from(manifest.buckets)),
            recall: Some(recall),
            memory: self.context.memory(),
            io: self.io(written),
            seconds: SecondsStatistics {
                total: seconds + self.prepared.plan_seconds + self.prepared.calibrate_seconds.unwrap_or(0.0),
                calibrate: self.prepared.calibrate_seconds,
                plan: Some(self.prepared.plan_seconds),
                execute: Some(seconds),
                write: Some(write_seconds),
                compute_waited_for_disk: Some(waits.for_disk.seconds()),
                compute_waited_for_sink: Some(waits.for_batches.seconds()),
                ..SecondsStatistics::default()
            },
            predicted: PredictedStatistics {
                bytes_read: Some(self.prepared.schedule.counts.bytes),
                verified_pairs: Some(self.prepared.predicted_pairs),
                center_distances: None,
            },
            strategy: self.strategy(),
            threads: self.context.threads,
            kernel: self.context.kernel.name().into(),
            written,
        }
    }

    fn strategy(&self) -> serde_json::Map<String, serde_json::Value> {
        let centers = serde_json::to_value(self.store.manifest().centers).unwrap_or_default();
        let named = [
            ("rule", self.prepared.admission.rule.name().into()),
            ("threshold", self.prepared.admission.threshold.into()),
            ("sample_seed", self.options.seed.into()),
            ("sample_distances", self.prepared.sample_distances.into()),
            ("order", self.prepared.schedule.order.name().into()),
            ("cache", self.prepared.schedule.policy.name().into()),
            ("centers", centers),
        ];
        named.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn io(&self, written: Written) -> IoStatistics {
        let counts = self.prepared.reads + self.buckets.read_counts();
        let store_bytes = self.buckets.bytes(self.prepared.with_ids);
        IoStatistics {
            bytes_read: Some(counts.bytes_read),
            bytes_requested: Some(counts.bytes_requested),
            read_amplification: Some(counts.bytes_read as f64 / counts.bytes_requested.max(1) as f64),
            passes: Some(counts.bytes_requested as f64 / store_bytes.max(1) as f64),
            bytes_written: Some(written.bytes),
            spill_bytes: Some(written.spill_bytes),
            reads: Some(counts.reads),
            cache_hit_rate: Some(self.prepared.schedule.counts.hit_rate()),
            device: self.context.device.name().into(),
            direct: Some(self.buckets.is_direct()),
        }
    }
}
