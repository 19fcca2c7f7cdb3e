//! Carries out a schedule: one thread reads buckets in its order, workers compare them, the calling thread hands the
//! pairs to the sink. Each waits for the next when it is ahead; nothing is dropped and nothing piles up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use adjoin_device::{MemoryBudget, Reservation};
use adjoin_kernels::Panel;

use super::bucket::LoadedBucket;
use super::options::JoinOptions;
use super::prepare::Prepared;
use super::verify::{Counts, Verifier};
use super::watched::Watched;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{Coordinate, with_coordinates};
use crate::plan::{Step, Task};
use crate::predicate::Predicate;
use crate::report::{
    IoStatistics, PredictedStatistics, RecallStatistics, SecondsStatistics, SharedSeconds, Statistics, Stopwatch,
};
use crate::sink::{PairBatch, PairSink, Written};
use crate::source::IdKind;
use crate::store::{ReadAhead, Store, bucket_bytes};
use crate::workers::lock;

/// Jobs and batches that wait for each worker.
const QUEUED_PER_WORKER: usize = 4;
/// Bytes of pairs on their way from the workers to the sink, with ids and without.
const QUEUED_BYTES: u64 = 12 << 20;
const QUEUED_BYTES_WITHOUT_IDS: u64 = 6 << 20;
/// Tasks of a job: waking a worker costs as much as a small task.
const TASKS_PER_JOB: usize = 32;

/// Bytes of pairs that are on their way to the sink at most.
pub(super) fn queued_bytes(with_ids: bool) -> u64 {
    if with_ids { QUEUED_BYTES } else { QUEUED_BYTES_WITHOUT_IDS }
}

/// Finds every pair that `options` asks for, as planned, and hands them to `sink`.
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
    let manifest = store.manifest();
    with_coordinates!(manifest.vectors, manifest.metric, T => {
        let centers = store.centers::<T>()?;
        let run = Run::<T> { context, store, prepared, options, centers: &centers, waits: Waits::default(), failed: Mutex::default(), stop: AtomicBool::new(false) };
        run.execute(sink)
    })
}

#[derive(Default)]
struct Waits {
    for_disk: SharedSeconds,
    for_sink: SharedSeconds,
    write: SharedSeconds,
}

/// Two buckets to compare, or one with itself.
struct Pair<T> {
    task: Task,
    a: Arc<Held<T>>,
    b: Arc<Held<T>>,
}

/// What a worker does at once.
type Job<T> = Vec<Pair<T>>;

/// A bucket in the cache; its memory comes back when the last job on it is done.
struct Held<T> {
    bucket: LoadedBucket<T>,
    _memory: Reservation,
}

struct Run<'a, T: Coordinate> {
    context: &'a Context,
    store: &'a Store,
    prepared: &'a Prepared,
    options: &'a JoinOptions,
    centers: &'a Panel<T>,
    waits: Waits,
    failed: Mutex<Option<Error>>,
    stop: AtomicBool,
}

impl<T: Coordinate> Run<'_, T> {
    fn execute(&self, mut sink: Box<dyn PairSink + '_>) -> Result<Statistics> {
        let watch = Stopwatch::start();
        let threads = self.context.threads.max(1);
        let (job_sender, job_receiver) = sync_channel(threads * QUEUED_PER_WORKER);
        let (batch_sender, batch_receiver) = sync_channel(threads * QUEUED_PER_WORKER);
        // Shared by the workers alone: once they are gone, whatever ended them, the reader does not wait for them.
        let jobs = Arc::new(Mutex::new(job_receiver));
        let total = Mutex::new(Counts::default());
        let mut found = self.prepared.watched.as_ref().map_or_else(Vec::new, Watched::found);
        self.context.progress.begin("join", "tasks", self.prepared.schedule.tasks.len() as u64);
        std::thread::scope(|scope| {
            scope.spawn(|| self.note(self.read(job_sender)));
            for _ in 0..threads {
                let (jobs, batches, total) = (jobs.clone(), batch_sender.clone(), &total);
                scope.spawn(move || self.note(self.work(&jobs, &batches).map(|counts| *lock(total) += counts)));
            }
            drop((jobs, batch_sender));
            self.drain(batch_receiver, &mut *sink, &mut found);
        });
        if let Some(error) = lock(&self.failed).take() {
            return Err(error);
        }
        let written = self.waits.write.measure(|| sink.finish())?;
        let total = *lock(&total);
        let told = &self.prepared.recall;
        let recall = self.prepared.watched.as_ref().map_or(told.clone(), |watched| watched.measured(told, &found));
        Ok(self.statistics(total, recall, written, watch.seconds()))
    }

    /// Keeps the first error and stops everyone.
    fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            lock(&self.failed).get_or_insert(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Follows the schedule: reads what it loads, hands out what it verifies.
    fn read(&self, jobs: SyncSender<Job<T>>) -> Result<()> {
        let Prepared { sizes, schedule, with_ids, read_ahead, .. } = self.prepared;
        let (with_ids, read_ahead) = (*with_ids, *read_ahead);
        let mut cache =
            Cache { budget: MemoryBudget::new(schedule.capacity), held: Vec::new(), waiting: Vec::new(), jobs };
        cache.held.resize_with(sizes.memory.len(), || None);
        let loads = schedule.loads(sizes);
        let mut ahead = ReadAhead::new(self.context, self.store, with_ids, read_ahead, loads)?;
        let mut done = 0;
        for step in schedule.steps(sizes) {
            match step {
                Step::Evict(bucket) => cache.held[bucket as usize] = None,
                Step::Load(bucket) => {
                    let memory = cache.make_room(sizes.memory[bucket as usize]);
                    cache.held[bucket as usize] = Some(Arc::new(self.load(&mut ahead, memory)?));
                }
                Step::Verify(task) => {
                    cache.hand_out(task);
                    done += 1;
                }
            }
            if cache.waiting.is_empty() {
                self.context.cancel.check()?;
                if self.stopped() {
                    return Ok(());
                }
                self.context.progress.advance(done);
            }
        }
        cache.send();
        Ok(())
    }

    fn load<I: Iterator<Item = u32>>(&self, ahead: &mut ReadAhead<'_, I>, memory: Reservation) -> Result<Held<T>> {
        let loaded = ahead.next(|read| LoadedBucket::new(self.store, self.context.kernel, self.centers, read))?;
        Ok(Held { bucket: loaded.expect("both follow the same steps"), _memory: memory })
    }

    fn work(&self, jobs: &Mutex<Receiver<Job<T>>>, batches: &SyncSender<PairBatch>) -> Result<Counts> {
        let manifest = self.store.manifest();
        let ids = if self.prepared.with_ids { manifest.ids } else { IdKind::None };
        // Each worker fills one while its others wait, and the sink has one; what grows may be twice as large.
        let in_flight = (QUEUED_PER_WORKER + 1) * self.context.threads.max(1) + 1;
        let batch_bytes = queued_bytes(ids != IdKind::None) / (2 * in_flight as u64);
        let mut verifier = Verifier::new(
            self.context.kernel,
            self.centers,
            self.options.predicate,
            &self.prepared.threshold,
            self.prepared.coding.as_ref(),
            self.prepared.admission,
            (PairBatch::new(ids), batch_bytes),
        );
        let mut emit = |batch| {
            let sent = self.waits.for_sink.measure(|| batches.send(batch).is_ok());
            sent.then_some(()).ok_or_else(|| unreachable!("the calling thread receives until all workers have ended"))
        };
        while let Ok(job) = self.waits.for_disk.measure(|| lock(jobs).recv()) {
            // Once stopped, jobs are only let go: the reader may wait for the memory that they hold.
            for Pair { task, a, b } in job.into_iter().take_while(|_| !self.stopped()) {
                self.note(verifier.verify(task, &a.bucket, &b.bucket, &mut emit));
            }
        }
        verifier.finish(&mut emit)
    }

    /// Hands batches to the sink; once stopped, lets them go, as workers wait for a place in the queue.
    fn drain(&self, batches: Receiver<PairBatch>, sink: &mut dyn PairSink, found: &mut [u64]) {
        for batch in batches {
            if let Some(watched) = &self.prepared.watched {
                watched.count(&batch, found);
            }
            if !self.stopped() {
                self.note(self.waits.write.measure(|| sink.accept(&batch)));
            }
        }
    }

    fn statistics(&self, counts: Counts, recall: RecallStatistics, written: Written, seconds: f64) -> Statistics {
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
                write: Some(self.waits.write.seconds()),
                compute_waited_for_disk: Some(self.waits.for_disk.seconds()),
                compute_waited_for_sink: Some(self.waits.for_sink.seconds()),
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
        let counts = self.store.read_counts();
        let store_bytes = bucket_bytes(self.store.extents(), self.prepared.with_ids);
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
            direct: Some(self.store.is_direct()),
        }
    }
}

/// The buckets in memory, and the tasks on them that are about to be handed out.
struct Cache<T> {
    budget: MemoryBudget,
    held: Vec<Option<Arc<Held<T>>>>,
    waiting: Job<T>,
    jobs: SyncSender<Job<T>>,
}

impl<T> Cache<T> {
    /// Memory for a bucket, once those who still work on evicted ones are done.
    fn make_room(&mut self, bytes: u64) -> Reservation {
        if let Ok(memory) = self.budget.reserve(bytes) {
            return memory;
        }
        self.send(); // tasks that wait here may hold what is waited for
        self.budget.reserve_when_free(bytes).expect("the least cache holds every bucket")
    }

    /// Hands out a task, sooner or later.
    fn hand_out(&mut self, task: Task) {
        let of = |bucket: u32| self.held[bucket as usize].clone().expect("the schedule loads before it verifies");
        self.waiting.push(Pair { task, a: of(task.0), b: of(task.1) });
        if self.waiting.len() >= TASKS_PER_JOB {
            self.send();
        }
    }

    fn send(&mut self) {
        let sent = self.jobs.send(std::mem::take(&mut self.waiting));
        assert!(sent.is_ok(), "workers receive until the reader has ended");
    }
}
