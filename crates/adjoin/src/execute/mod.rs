//! Executes a schedule. One thread reads buckets in the order of the schedule, workers load and visit them, and the
//! calling thread consumes the results. If a thread is ahead of the next one, it waits, so nothing is dropped and no
//! queue grows without bound.
//!
//! The [`Visitor`] defines the work on two buckets, for a join, a search or a graph. `tiles.rs` compares their
//! members.

mod near_places;
mod nearest;
#[cfg(test)]
pub(crate) mod tests;
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

/// Capacity of the queues of jobs and of batches, per worker.
const QUEUED_PER_WORKER: usize = 4;
/// Number of tasks per job. Waking a worker costs as much as a small task, so a job has many.
pub(crate) const TASKS_PER_JOB: usize = 32;

/// Returns the maximum number of batches in flight. Each worker fills one while others are queued, and the calling
/// thread consumes one.
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
    /// Number of tasks that an earlier run did. Progress reports include them.
    pub(crate) done_before: u64,
    pub(crate) with_ids: bool,
    /// Bytes for read-ahead.
    pub(crate) read_ahead: u64,
    /// Name of the phase in progress reports and traces: one word.
    pub(crate) phase: &'static str,
}

/// The loaded buckets of a task: two buckets, or one bucket twice.
pub(crate) struct Loaded<'a, T: Coordinate> {
    pub(crate) task: Task,
    pub(crate) a: &'a LoadedBucket<T>,
    pub(crate) b: &'a LoadedBucket<T>,
}

/// Work of one worker of an execution.
pub(crate) trait Visitor<T: Coordinate> {
    /// Results that are passed to the calling thread.
    type Batch: Send;
    /// Report of the worker at the end.
    type Report: Send;

    /// Processes up to [`TASKS_PER_JOB`] tasks, and passes full batches to `emit`.
    fn visit(&mut self, visits: &[Loaded<'_, T>], emit: &mut dyn FnMut(Self::Batch)) -> Result<()>;

    /// Called after the last task. Passes remaining batches to `emit`.
    fn finish(self, emit: &mut dyn FnMut(Self::Batch)) -> Self::Report;
}

/// Time that threads spent waiting for each other, in seconds, summed over threads.
#[derive(Default)]
pub(crate) struct Waits {
    /// Time that workers waited for buckets.
    pub(crate) for_disk: SharedSeconds,
    /// Time that workers waited for the calling thread.
    pub(crate) for_batches: SharedSeconds,
}

/// Unit of work of a worker.
enum Job<T: Coordinate> {
    Load(Arc<CachedBucket<T>>),
    Visit(Vec<Visit<T>>),
}

/// A task with its buckets: two buckets, or one bucket twice.
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
    /// Cancelled by the first error, or by a thread that panics.
    stop: Cancel,
}

/// Guard that stops an execution if its thread panics, since other threads would wait for that thread.
struct StopOnPanic<'a>(&'a Cancel);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

/// Work of the calling thread of an execution.
pub(crate) trait BatchConsumer<B, R> {
    /// Consumes a batch of a worker.
    fn take(&mut self, batch: B) -> Result<()>;

    /// Called at the end of a leg, when all tasks before number `tasks` are done and their batches are consumed.
    /// `reports` are the reports of the workers since the last leg ended.
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
    /// Executes the schedule. `cache` must hold the buckets with which the schedule starts. Each worker has its own
    /// visitor. `take` consumes the batches of all visitors. Returns the visitors' reports.
    ///
    /// # Errors
    /// Returns the first error: of the device, about damaged bytes, of a visitor, of `take`, or that the run was
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

    /// Executes the schedule in legs. Each number in `ends` is the task before which a leg ends; the last leg ends
    /// with the last task. Between two legs, no work is in progress, but the cache and the read-ahead buffers are
    /// kept.
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
            // One thread reads for all legs, since an operating system may cancel the reads of a thread that ends.
            let read = move || {
                let _stop = StopOnPanic(&run.stop);
                run.note(run.read(cache, &legs));
            };
            run.note(spawn_scoped(scope, "adjoin reader", read).map(drop));
            for &end in ends {
                // Only workers hold the receiver. So once they have ended, for any reason, the reader does not wait
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

/// A leg for the reader: all tasks before number `end`. Its workers receive `jobs`.
struct Leg<T: Coordinate> {
    end: usize,
    jobs: Sender<Job<T>>,
}

impl<T: Coordinate> ExecutionRun<'_, T> {
    /// Records an error. The first one is kept, and stops all threads.
    fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            let mut failed = lock(&self.failed);
            if !self.stop.is_cancelled() {
                *failed = Some(error);
            }
            self.stop.cancel();
        }
    }

    /// Follows the schedule leg by leg. Reads the buckets to load, and sends jobs to the workers.
    fn read(&self, cache: &mut Cache<T>, legs: &Receiver<Leg<T>>) -> Result<()> {
        let Execution { context, buckets, sizes, schedule, with_ids, read_ahead, phase, .. } = *self.of;
        let loads = schedule.loads(sizes);
        let mut ahead = ReadAhead::new(context, phase, buckets, with_ids, read_ahead, loads, &self.stop)?.in_parts();
        let (mut steps, mut done) = (schedule.steps(sizes), 0);
        for Leg { end, jobs } in legs {
            let mut waiting = Waiting { visits: Vec::new(), jobs };
            // Evictions after the last task belong to the last leg.
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
                    // If a worker panics, its memory may never be free.
                    cache.reserve_when_free(bytes, &self.stop)
                })?;
                let stored = ahead.next_bucket()?.expect("reader and plan follow one list of steps");
                assert_eq!(stored.number(), bucket, "reader and plan follow one list of steps");
                waiting.hand_out(Job::Load(cache.insert(stored, memory)));
            }
            Step::Verify(task) => waiting.visit(Visit { task, a: cache.get(task.0), b: cache.get(task.1) }),
        }
        Ok(())
    }

    /// Starts the workers, which do all jobs, and consumes their batches in this thread. Returns the reports of the
    /// workers.
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
            // If the run is stopped, batches are dropped, but they are still received: workers may wait for space in
            // the queue.
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
            // If the run is stopped, jobs are dropped, but they are still received: the reader may wait for the memory
            // that they hold.
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

/// Visits that will be sent to a worker as one job.
struct Waiting<T: Coordinate> {
    visits: Vec<Visit<T>>,
    jobs: Sender<Job<T>>,
}

impl<T: Coordinate> Waiting<T> {
    /// Adds a visit. Sends all visits as a job if there are enough.
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
