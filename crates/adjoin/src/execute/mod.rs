//! Executes a schedule: one thread reads buckets in its order, workers load and visit them, and the calling thread
//! consumes the results. A thread that is ahead waits for the next one, so nothing is dropped and no queue grows
//! without bound.
//!
//! The [`Visitor`] defines the work on two buckets: a join's, a search's or a graph's. `tiles.rs` compares the members.

mod near_places;
mod nearest;
#[cfg(test)]
mod tests;
mod tiles;

use std::sync::{Arc, Mutex};

use adjoin_kernels::Panel;
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::Coordinate;
use crate::base::mutex::lock;
use crate::base::report::{Cancel, SharedSeconds};
use crate::base::workers::spawn_scoped;
use crate::load::{Buckets, Cache, CachedBucket, LoadedBucket, ReadAhead, StoredBucket};
use crate::plan::{BucketSizes, Schedule, Step, Task};

pub(crate) use near_places::{NearComparison, NearPlaces};
pub(crate) use nearest::{AllNearest, Hit, Nearest, NearestSearch, NumberedQueries, PackedBucket};
pub(crate) use tiles::{Ordered, Tiles};

/// Queue length per worker, for jobs and for batches.
const QUEUED_PER_WORKER: usize = 4;
/// Tasks of a job. Waking a worker costs as much as a small task.
pub(crate) const TASKS_PER_JOB: usize = 32;

/// Returns the most batches in flight: each worker fills one while its others wait, and the calling thread has one.
pub(crate) fn batches_in_flight(threads: usize) -> usize {
    (QUEUED_PER_WORKER + 1) * threads.max(1) + 1
}

/// A schedule over buckets, ready to be executed.
pub(crate) struct Execution<'a, T: Coordinate> {
    pub(crate) context: &'a Context,
    pub(crate) buckets: &'a Buckets<'a>,
    pub(crate) centers: &'a Panel<T>,
    pub(crate) sizes: &'a BucketSizes,
    pub(crate) schedule: &'a Schedule,
    /// Tasks done by an earlier run, which progress reports include.
    pub(crate) done_before: u64,
    pub(crate) with_ids: bool,
    /// Bytes for reading ahead.
    pub(crate) read_ahead: u64,
    /// Name of the phase in progress reports and traces: one word.
    pub(crate) phase: &'static str,
}

/// Two buckets that have a task, or one bucket with itself.
pub(crate) struct Loaded<'a, T: Coordinate> {
    pub(crate) task: Task,
    pub(crate) a: &'a LoadedBucket<T>,
    pub(crate) b: &'a LoadedBucket<T>,
}

/// One worker's part in an execution.
pub(crate) trait Visitor<T: Coordinate> {
    /// Results passed to the calling thread.
    type Batch: Send;
    /// The worker's report at the end.
    type Report: Send;

    /// Makes up to [`TASKS_PER_JOB`] visits, and passes full batches to `emit`.
    fn visit(&mut self, visits: &[Loaded<'_, T>], emit: &mut dyn FnMut(Self::Batch)) -> Result<()>;

    /// Called after the last task.
    fn finish(self, emit: &mut dyn FnMut(Self::Batch)) -> Self::Report;
}

/// Time that threads spent waiting for each other, in seconds, summed over threads.
#[derive(Default)]
pub(crate) struct Waits {
    /// Workers that wait for buckets.
    pub(crate) for_disk: SharedSeconds,
    /// Workers that wait for the calling thread.
    pub(crate) for_batches: SharedSeconds,
}

/// A unit of a worker's work.
enum Job<T: Coordinate> {
    Load(Arc<CachedBucket<T>>),
    Visit(Vec<Visit<T>>),
}

/// Two buckets to visit, or one with itself.
struct Visit<T: Coordinate> {
    task: Task,
    a: Arc<CachedBucket<T>>,
    b: Arc<CachedBucket<T>>,
}

/// An execution in progress.
struct ExecutionRun<'a, T: Coordinate> {
    of: &'a Execution<'a, T>,
    waits: &'a Waits,
    failed: Mutex<Option<Error>>,
    /// Set by the first error and by a worker that panics.
    stop: Cancel,
}

/// Stops an execution if its thread panics, since the others would wait for it.
struct StopOnPanic<'a>(&'a Cancel);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

/// The calling thread's part in an execution.
pub(crate) trait BatchConsumer<B, R> {
    /// Consumes a batch of a worker.
    fn take(&mut self, batch: B) -> Result<()>;

    /// Called when all tasks before number `tasks` are done and their batches consumed. `reports` are the workers'
    /// reports since the last leg ended.
    fn end_leg(&mut self, tasks: usize, reports: Vec<R>) -> Result<()>;
}

/// Consumes batches as they arrive, and collects all reports.
struct CollectAll<F, R> {
    take: F,
    reports: Vec<R>,
}

impl<B, R, F: FnMut(B) -> Result<()>> BatchConsumer<B, R> for CollectAll<F, R> {
    fn take(&mut self, batch: B) -> Result<()> {
        (self.take)(batch)
    }

    fn end_leg(&mut self, _tasks: usize, mut reports: Vec<R>) -> Result<()> {
        self.reports.append(&mut reports);
        Ok(())
    }
}

impl<T: Coordinate> Execution<'_, T> {
    /// Executes the schedule. `cache` must hold the buckets that the schedule starts with. Each worker has its own
    /// visitor; `take` consumes their batches. Returns the visitors' reports.
    ///
    /// # Errors
    /// Returns the first error of the device, of damaged bytes, of a visitor or of `take`, or that the run was
    /// canceled.
    pub(crate) fn run<V: Visitor<T>>(
        &self,
        cache: &mut Cache<T>,
        visitor: impl Fn() -> V + Sync,
        take: impl FnMut(V::Batch) -> Result<()>,
        waits: &Waits,
    ) -> Result<Vec<V::Report>> {
        let mut whole = CollectAll { take, reports: Vec::new() };
        self.run_in_legs(cache, visitor, &[self.schedule.tasks.len()], &mut whole, waits)?;
        Ok(whole.reports)
    }

    /// Executes the schedule in legs, which end before the task numbers `ends`; the last leg ends with all tasks.
    /// Between two legs no work is in progress, while the cache and the read-ahead buffers are kept.
    ///
    /// # Errors
    /// Fails as [`Execution::run`] does.
    pub(crate) fn run_in_legs<V: Visitor<T>>(
        &self,
        cache: &mut Cache<T>,
        visitor: impl Fn() -> V + Sync,
        ends: &[usize],
        consumer: &mut dyn BatchConsumer<V::Batch, V::Report>,
        waits: &Waits,
    ) -> Result<()> {
        let run = ExecutionRun { of: self, waits, failed: Mutex::default(), stop: Cancel::default() };
        let (first, tasks) = (self.done_before, self.schedule.tasks.len() as u64);
        self.context.progress.begin(self.phase, "tasks", first + tasks);
        std::thread::scope(|scope| {
            let (run, (leg_sender, legs)) = (&run, bounded(0));
            // One thread reads for all legs: an operating system may cancel the reads of a thread that ends.
            let read = move || {
                let _stop = StopOnPanic(&run.stop);
                run.note(run.read(cache, &legs));
            };
            run.note(spawn_scoped(scope, "adjoin reader", read).map(drop));
            for &end in ends {
                // Only workers hold the receiver: once they have ended, for whatever reason, the reader does not wait
                // for them.
                let (job_sender, jobs) = bounded(self.workers() * QUEUED_PER_WORKER);
                if leg_sender.send(Leg { end, jobs: job_sender }).is_err() {
                    break; // the reader has failed
                }
                let reports = run.visit_all(&visitor, jobs, consumer);
                if run.stop.is_cancelled() {
                    break;
                }
                run.note(consumer.end_leg(end, reports));
            }
        });
        lock(&run.failed).take().map_or(Ok(()), Err)
    }

    fn workers(&self) -> usize {
        self.context.threads.max(1)
    }
}

/// The next leg to read for: tasks before number `end`, for the workers that receive `jobs`.
struct Leg<T: Coordinate> {
    end: usize,
    jobs: Sender<Job<T>>,
}

impl<T: Coordinate> ExecutionRun<'_, T> {
    /// Keeps the first error and stops all threads.
    fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            let mut failed = lock(&self.failed);
            if !self.stop.is_cancelled() {
                *failed = Some(error);
            }
            self.stop.cancel();
        }
    }

    /// Follows the schedule leg by leg: reads the buckets to load, and hands out visits.
    fn read(&self, cache: &mut Cache<T>, legs: &Receiver<Leg<T>>) -> Result<()> {
        let Execution { context, buckets, sizes, schedule, with_ids, read_ahead, phase, .. } = *self.of;
        let loads = schedule.loads(sizes);
        let mut ahead = ReadAhead::new(context, phase, buckets, with_ids, read_ahead, loads, &self.stop)?.in_parts();
        let (mut steps, mut done) = (schedule.steps(sizes), 0);
        for Leg { end, jobs } in legs {
            let mut waiting = Waiting { visits: Vec::new(), jobs };
            // Evictions after the last task are steps of the last leg.
            while done < end || end == schedule.tasks.len() {
                let Some(step) = steps.next() else { break };
                done += usize::from(matches!(step, Step::Verify(_)));
                self.follow(step, cache, &mut ahead, &mut waiting)?;
                if waiting.visits.is_empty() {
                    context.cancel.check()?;
                    if self.stop.is_cancelled() {
                        return Ok(());
                    }
                    context.progress.advance(self.of.done_before + done as u64);
                }
            }
            waiting.send();
        }
        Ok(())
    }

    fn follow(
        &self,
        step: Step,
        cache: &mut Cache<T>,
        ahead: &mut ReadAhead<'_>,
        waiting: &mut Waiting<T>,
    ) -> Result<()> {
        match step {
            Step::Evict(bucket) => cache.evict(bucket),
            Step::Load(bucket) => {
                let bytes = self.of.sizes.memory[bucket as usize];
                let memory = cache.reserve(bytes).or_else(|_| {
                    waiting.send(); // visits that wait here may hold the memory
                    Ok::<_, Error>(cache.reserve_when_free(bytes))
                })?;
                let stored = ahead.next_bucket()?.expect("reader and plan follow one list of steps");
                assert_eq!(stored.number(), bucket, "reader and plan follow one list of steps");
                waiting.hand_out(Job::Load(cache.insert(stored, memory)));
            }
            Step::Verify(task) => waiting.visit(Visit { task, a: cache.get(task.0), b: cache.get(task.1) }),
        }
        Ok(())
    }

    /// Lets workers do all jobs while this thread consumes their batches. Returns the workers' reports.
    fn visit_all<V: Visitor<T>>(
        &self,
        visitor: &(impl Fn() -> V + Sync),
        jobs: Receiver<Job<T>>,
        taker: &mut dyn BatchConsumer<V::Batch, V::Report>,
    ) -> Vec<V::Report> {
        let (batch_sender, batches) = bounded(self.of.workers() * QUEUED_PER_WORKER);
        let reports = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let reports = &reports;
            for _ in 0..self.of.workers() {
                let (jobs, batches) = (jobs.clone(), batch_sender.clone());
                let work = move || {
                    let _stop = StopOnPanic(&self.stop);
                    let report = self.work(visitor(), &jobs, &batches);
                    lock(reports).push(report);
                };
                self.note(spawn_scoped(scope, "adjoin worker", work).map(drop));
            }
            drop((jobs, batch_sender));
            // Once stopped, batches are only dropped, since workers wait for space in the queue.
            for batch in batches {
                if !self.stop.is_cancelled() {
                    self.note(taker.take(batch));
                }
            }
        });
        std::mem::take(&mut *lock(&reports))
    }

    fn work<V: Visitor<T>>(&self, mut visitor: V, jobs: &Receiver<Job<T>>, batches: &Sender<V::Batch>) -> V::Report {
        let mut emit = |batch| {
            let sent = self.waits.for_batches.measure(|| batches.send(batch));
            assert!(sent.is_ok(), "the calling thread receives until all workers have ended");
        };
        while let Ok(job) = self.waits.for_disk.measure(|| jobs.recv()) {
            // Once stopped, jobs are only dropped, since the reader may wait for the memory that they hold.
            match job {
                _ if self.stop.is_cancelled() => {}
                Job::Load(bucket) => self.note(bucket.load_ahead(|stored| self.load(stored))),
                Job::Visit(visits) => self.note(self.visit(&visits, &mut visitor, &mut emit)),
            }
        }
        visitor.finish(&mut emit)
    }

    fn visit<V: Visitor<T>>(&self, visits: &[Visit<T>], visitor: &mut V, emit: &mut dyn FnMut(V::Batch)) -> Result<()> {
        let loaded = |bucket| CachedBucket::loaded(bucket, |stored| self.load(stored));
        let mut all = Vec::with_capacity(visits.len());
        for Visit { task, a, b } in visits {
            match (loaded(a)?, loaded(b)?) {
                (Some(a), Some(b)) => all.push(Loaded { task: *task, a, b }),
                _ => return Ok(()), // the thread that tried to load it reports the error
            }
        }
        visitor.visit(&all, emit)
    }

    fn load(&self, stored: StoredBucket) -> Result<LoadedBucket<T>> {
        let Execution { context, buckets, centers, .. } = *self.of;
        LoadedBucket::load(buckets, context.kernel, centers, stored)
    }
}

/// Visits that will be handed out as one job.
struct Waiting<T: Coordinate> {
    visits: Vec<Visit<T>>,
    jobs: Sender<Job<T>>,
}

impl<T: Coordinate> Waiting<T> {
    /// Adds a visit, and hands out all once there are enough.
    fn visit(&mut self, visit: Visit<T>) {
        self.visits.push(visit);
        if self.visits.len() >= TASKS_PER_JOB {
            self.send();
        }
    }

    fn send(&mut self) {
        let visits = std::mem::take(&mut self.visits);
        if !visits.is_empty() {
            self.hand_out(Job::Visit(visits));
        }
    }

    fn hand_out(&self, job: Job<T>) {
        let _ = self.jobs.send(job); // without workers the run is stopped, which the reader will notice
    }
}
