//! Admission queue: decides which requests are accepted, and which are searched next. Requests are admitted by their
//! predicted cost, in bytes of vectors to compare, so that an admitted request is answered before its deadline.
//! Requests that arrive during a batch form the next one (CALL, section 3).
//!
//! A prediction can be wrong by any factor, for example after a collection has grown. So a request is never refused
//! because of its prediction alone: if no other request runs or waits, it is admitted, and its duration corrects the
//! prediction.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::answer::Answer;
use crate::problem::Problem;
use crate::request::Request;

/// Maximum number of waiting requests.
const WAITING_MAX: usize = 16_384;
/// Maximum number of queries in a batch.
const BATCH_QUERIES_MAX: usize = 8_192;
/// Maximum predicted duration of a batch, since requests that arrive during the batch wait for its end.
const BATCH_SECONDS_MAX: f64 = 1.0;
/// Safety factor on predicted durations.
const MARGIN: f64 = 1.25;
/// Maximum number of seconds after which a refused client is asked to retry.
const RETRY_AFTER_MAX: f64 = 60.0;
/// Weight of the last batch in the pace.
const LEARNED: f64 = 0.2;
/// Maximum factor by which the last batch may be faster than the pace. Beyond it, the pace is raised at once: it was
/// measured on other work.
const SLOWER_MAX: f64 = 4.0;

/// An admitted request.
pub(crate) struct Job {
    pub(crate) request: Request,
    /// Predicted bytes of the vectors that its queries are compared with.
    pub(crate) bytes: f64,
    pub(crate) arrived: Instant,
    pub(crate) reply: oneshot::Sender<Result<Answer, Problem>>,
}

/// Cost of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    /// Bytes of vectors compared. For a request that was cut off, its predicted bytes are counted.
    pub(crate) bytes: f64,
    pub(crate) seconds: f64,
    /// Whether every request was answered. If not, `seconds` is only a lower bound on the time that `bytes` take.
    pub(crate) is_whole: bool,
}

/// Bytes of vectors compared per second; `None` until measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ServiceRate(Option<f64>);

impl ServiceRate {
    /// Predicts how many seconds `bytes` take; 0 if the pace is unknown.
    fn seconds(self, bytes: f64) -> f64 {
        self.0.map_or(0.0, |pace| bytes / pace)
    }

    /// Returns the pace corrected by a batch that has ended.
    fn corrected(self, Outcome { bytes, seconds, is_whole }: Outcome) -> Self {
        // If a batch failed early, its duration says nothing. If it was cut off after its predicted time, the pace is
        // slower than predicted.
        if !is_whole && (bytes <= 0.0 || seconds <= self.seconds(bytes)) {
            return self;
        }
        let now = bytes.max(1.0) / seconds.max(1e-6);
        // Durations per byte are averaged, not rates: with a mean of rates, one fast batch would hide many slow ones.
        let mean = |pace| 1.0 / ((1.0 - LEARNED) / pace + LEARNED / now);
        Self(Some(self.0.map_or(now, |pace| f64::max(mean(pace), now / SLOWER_MAX))))
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    waiting_bytes: f64,
    /// Predicted end of the running batch; `None` if none runs.
    busy_until: Option<Instant>,
    pace: ServiceRate,
    is_closed: bool,
    /// Whether the thread that takes batches has ended before the queue was closed.
    is_abandoned: bool,
}

/// Jobs in the order of their arrival.
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    /// Returns the current time. Tests pass a clock that they control.
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
}

impl Default for Queue {
    fn default() -> Self {
        Self { state: Mutex::default(), arrived: Condvar::new(), clock: Box::new(Instant::now) }
    }
}

impl Queue {
    /// Admits a job.
    ///
    /// # Errors
    /// If the queue is closed or full; or if other jobs run or wait, and the job is predicted to miss its deadline
    /// because of them.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Problem> {
        let mut state = self.lock();
        if state.is_abandoned {
            return Err(Problem::failed());
        }
        if state.is_closed {
            return Err(Problem::draining());
        }
        let now = (self.clock)();
        let seconds = state.seconds_until_done(job.bytes, now);
        // The predicted time until the queue is empty. A job that is submitted then would be admitted.
        let retry_after = state.seconds_until_done(0.0, now).clamp(1.0, RETRY_AFTER_MAX).ceil() as u64;
        if state.waiting.len() >= WAITING_MAX {
            return Err(Problem::crowded(
                format!("{WAITING_MAX} requests are already waiting; try again later"),
                retry_after,
            ));
        }
        let left = job.request.deadline.saturating_duration_since(now).as_secs_f64();
        if MARGIN * seconds > left && !state.is_idle() {
            let [left, needed] = [left, seconds].map(|seconds| (seconds * 1e3).ceil());
            return Err(Problem::crowded(
                format!("an answer takes about {needed} ms now, but the deadline is in {left} ms; try again later"),
                retry_after,
            ));
        }
        state.waiting_bytes += job.bytes;
        state.waiting.push_back(job);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Waits for jobs, and returns the jobs of the next batch. Returns `None` once the queue is closed and empty.
    pub(crate) fn next_batch(&self) -> Option<Vec<Job>> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.is_closed {
                return None;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let now = (self.clock)();
        let (count, bytes) = batch_of(&state.waiting, state.pace, now);
        let batch: Vec<Job> = state.waiting.drain(..count).collect();
        // The sum is computed again, since rounding errors would accumulate if the bytes of the batch were
        // subtracted.
        state.waiting_bytes = state.waiting.iter().map(|job| job.bytes).sum();
        state.busy_until = Some(now + Duration::from_secs_f64(state.pace.seconds(bytes)));
        Some(batch)
    }

    /// Corrects the pace by the outcome of a batch that has ended; `None` if none of its requests was searched.
    pub(crate) fn ended(&self, outcome: Option<Outcome>) {
        let mut state = self.lock();
        state.pace = outcome.map_or(state.pace, |outcome| state.pace.corrected(outcome));
        state.busy_until = None;
    }

    /// Refuses all jobs, including waiting ones, because the thread that takes batches has ended.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        // After a regular close, the thread is expected to end.
        state.is_abandoned = !state.is_closed;
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|job| drop(job.reply.send(Err(Problem::failed()))));
    }

    /// Returns whether the thread that takes batches ended although the queue was not closed.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    /// Stops admitting jobs; waiting jobs are still processed.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_all();
    }

    /// Returns the number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether no job runs or waits.
    fn is_idle(&self) -> bool {
        self.busy_until.is_none() && self.waiting.is_empty()
    }

    /// Predicts the seconds until a job of `bytes` is done if it is submitted now.
    fn seconds_until_done(&self, bytes: f64, now: Instant) -> f64 {
        let running = self.busy_until.map_or(0.0, |until| until.saturating_duration_since(now).as_secs_f64());
        running + self.pace.seconds(self.waiting_bytes + bytes)
    }
}

/// Returns the number of waiting jobs that form the next batch, and their bytes. The batch has at least one job, and
/// as many as are predicted to end before the first of their deadlines.
fn batch_of(waiting: &VecDeque<Job>, pace: ServiceRate, now: Instant) -> (usize, f64) {
    let (mut bytes, mut queries, mut left) = (0.0, 0, BATCH_SECONDS_MAX);
    for (count, job) in waiting.iter().enumerate() {
        let (more, rows) = (bytes + job.bytes, queries + job.request.rows);
        let first = left.min(job.request.deadline.saturating_duration_since(now).as_secs_f64() / MARGIN);
        // The first job is always taken. Otherwise a job that exceeds the limits would block the queue forever.
        if count > 0 && (pace.seconds(more) > first || rows > BATCH_QUERIES_MAX) {
            return (count, bytes);
        }
        (bytes, queries, left) = (more, rows, first);
    }
    (waiting.len(), bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use adjoin::{Element, QueryTarget, SearchEffort, SearchOptions, VectorType, device::MemoryBudget};

    use super::*;
    use crate::request::SEED;

    /// Clock that advances only when a test moves it.
    #[derive(Clone)]
    struct Clock(Arc<Mutex<Instant>>);

    impl Clock {
        fn new() -> Self {
            Self(Arc::new(Mutex::new(Instant::now())))
        }

        fn now(&self) -> Instant {
            *self.0.lock().unwrap()
        }

        fn advance(&self, seconds: f64) {
            *self.0.lock().unwrap() += Duration::from_secs_f64(seconds);
        }

        fn job(&self, bytes: f64, deadline_ms: u64) -> Job {
            let search = SearchOptions::new(QueryTarget::Nearest(1), SearchEffort::default(), SEED);
            let arrived = self.now();
            let request = Request {
                search,
                vectors: VectorType { element: Element::U8, dimensions: 1 },
                rows: 1,
                stored: vec![0],
                deadline: arrived + Duration::from_millis(deadline_ms),
                _memory: MemoryBudget::new(1).reserve(0).unwrap(),
            };
            Job { request, bytes, arrived, reply: oneshot::channel().0 }
        }

        /// Returns a queue without a known pace.
        fn queue(&self) -> Queue {
            let clock = self.clone();
            Queue { clock: Box::new(move || clock.now()), ..Queue::default() }
        }

        /// Returns a queue with a pace of a thousand bytes per second.
        fn paced_queue(&self) -> Queue {
            let queue = self.queue();
            queue.ended(Some(whole(1_000.0, 1.0)));
            queue
        }

        /// Runs a batch of the queue that takes `seconds`; returns the number of its jobs.
        fn run_batch(&self, queue: &Queue, seconds: f64) -> usize {
            let batch = queue.next_batch().unwrap();
            self.advance(seconds);
            queue.ended(Some(whole(batch.iter().map(|job| job.bytes).sum(), seconds)));
            batch.len()
        }
    }

    fn whole(bytes: f64, seconds: f64) -> Outcome {
        Outcome { bytes, seconds, is_whole: true }
    }

    #[test]
    fn requests_that_would_miss_their_deadline_are_refused() {
        let clock = Clock::new();
        let queue = clock.paced_queue();
        for _ in 0..8 {
            queue.submit(clock.job(1_000.0, 60_000)).unwrap();
        }
        let refused = queue.submit(clock.job(1_000.0, 9_000)).unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.retry_after), (429, Some(8)));
        assert!(refused.detail.contains("about 9000 ms"), "{}", refused.detail);
        queue.submit(clock.job(1_000.0, 60_000)).unwrap();
        assert_eq!(queue.waiting(), 9);
    }

    #[test]
    fn no_request_is_refused_before_a_rate_is_measured() {
        let clock = Clock::new();
        let queue = clock.queue();
        queue.submit(clock.job(1e18, 1_000)).unwrap();
        queue.submit(clock.job(1e18, 1_000)).unwrap();
    }

    /// Checks that a pace a million times too slow refuses requests only while another one runs, and that each of those
    /// corrects it.
    #[test]
    fn a_wrong_rate_is_corrected_by_running_requests() {
        let clock = Clock::new();
        let queue = clock.queue();
        queue.ended(Some(whole(1.0, 1.0)));
        let large = || clock.job(1e6, 30_000);
        let mut refused = 0;
        for _ in 0..100 {
            queue.submit(large()).unwrap();
            refused += u32::from(queue.submit(large()).is_err());
            while queue.waiting() > 0 {
                clock.run_batch(&queue, 1.0);
            }
        }
        assert_eq!(refused, 1, "before the first of them has ended");
    }

    /// Checks that a batch cut off by its deadline lowers the pace, and that a batch that failed at once does not raise
    /// it.
    #[test]
    fn failed_batches_can_only_lower_the_rate() {
        let pace = ServiceRate::default().corrected(whole(100.0, 1.0));
        let failed = |seconds| pace.corrected(Outcome { bytes: 100.0, seconds, is_whole: false });
        assert_eq!(failed(0.001), pace);
        assert!(failed(30.0).seconds(100.0) > 5.0);
    }

    #[test]
    fn a_batch_ends_before_the_first_deadline_in_it() {
        let clock = Clock::new();
        let queue = clock.paced_queue();
        for deadline_ms in [60_000, 60_000, 900, 60_000] {
            queue.submit(clock.job(200.0, deadline_ms)).unwrap();
        }
        // Three jobs take 600 ms. Four would take 800 ms, but only 900 / 1.25 = 720 ms are left.
        assert_eq!([clock.run_batch(&queue, 0.6), clock.run_batch(&queue, 0.2)], [3, 1]);
    }

    #[test]
    fn a_batch_has_at_least_one_request_and_takes_at_most_a_second() {
        let clock = Clock::new();
        let queue = clock.paced_queue();
        for bytes in [5_000.0, 600.0, 300.0, 200.0] {
            queue.submit(clock.job(bytes, 60_000)).unwrap();
        }
        assert_eq!([5.0, 0.9, 0.2].map(|seconds| clock.run_batch(&queue, seconds)), [1, 2, 1]);
    }

    #[test]
    fn a_closed_queue_refuses_jobs_and_returns_waiting_ones() {
        let clock = Clock::new();
        let queue = clock.paced_queue();
        queue.submit(clock.job(1.0, 1_000)).unwrap();
        queue.close();
        assert_eq!(queue.submit(clock.job(1.0, 1_000)).unwrap_err().status, 503);
        assert_eq!(queue.next_batch().unwrap().len(), 1);
        assert!(queue.next_batch().is_none());
    }

    #[test]
    fn an_abandoned_queue_answers_the_waiting_jobs() {
        let clock = Clock::new();
        let queue = clock.queue();
        let (reply, mut answer) = oneshot::channel();
        queue.submit(Job { reply, ..clock.job(1.0, 1_000) }).unwrap();
        queue.abandon();
        assert_eq!(answer.try_recv().unwrap().err().unwrap().status, 503);
        assert_eq!(queue.submit(clock.job(1.0, 1_000)).unwrap_err().status, 503);
        assert!(queue.is_abandoned() && queue.next_batch().is_none());
    }

    #[test]
    fn the_service_rate_follows_the_batches() {
        let mut pace = ServiceRate::default();
        assert_eq!(pace.seconds(5.0), 0.0);
        for _ in 0..50 {
            pace = pace.corrected(whole(100.0, 2.0));
        }
        assert!((pace.seconds(100.0) - 2.0).abs() < 1e-9);
        assert!((pace.corrected(whole(100.0, 12.0)).seconds(100.0) - 4.0).abs() < 1e-9);
    }
}
