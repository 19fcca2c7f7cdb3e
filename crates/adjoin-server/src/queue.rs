//! What waits to be searched, and what comes next: requests are admitted by what they are predicted to cost, in bytes of vectors
//! to compare, so that what is admitted is answered before its deadline; those that arrive while a batch runs form the next
//! (CALL, section 3).

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::answer::Answer;
use crate::problem::Problem;
use crate::request::Request;

/// Requests that wait, at most.
const WAITING_MAX: usize = 16_384;
/// Queries of a batch, at most.
const BATCH_QUERIES_MAX: usize = 8_192;
/// How long a batch may be predicted to take: whoever arrives meanwhile waits for its end.
const BATCH_SECONDS_MAX: f64 = 1.0;
/// How many times as long as predicted something may take.
const MARGIN: f64 = 1.25;
/// The weight of the last batch in what is known of the pace.
const LEARNED: f64 = 0.2;

/// A request on its way to the search.
pub(crate) struct Job {
    pub(crate) request: Request,
    /// Bytes of vectors that it is predicted to be compared with.
    pub(crate) bytes: f64,
    pub(crate) arrived: Instant,
    pub(crate) reply: oneshot::Sender<Result<Answer, Problem>>,
}

/// Bytes of vectors that are compared in a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Pace(Option<f64>);

impl Pace {
    /// How long so many bytes are predicted to take; 0 where nothing is known yet.
    fn seconds(self, bytes: f64) -> f64 {
        self.0.map_or(0.0, |pace| bytes / pace)
    }

    /// The same after something that was predicted to take so many bytes took so long.
    fn learned(self, bytes: f64, seconds: f64) -> Self {
        let now = bytes.max(1.0) / seconds.max(1e-6);
        // Of durations, as these are what is predicted: a mean of rates would let one fast batch hide many slow ones.
        Self(Some(self.0.map_or(now, |pace| 1.0 / ((1.0 - LEARNED) / pace + LEARNED / now))))
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    waiting_bytes: f64,
    /// When the batch that runs is predicted to end.
    busy_until: Option<Instant>,
    pace: Pace,
    is_closed: bool,
}

/// Jobs in the order in which they arrived.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
}

impl Queue {
    /// Admits a job.
    ///
    /// # Errors
    /// Where the queue is closed or full, or the job would not be done before its deadline.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Problem> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Problem::draining());
        }
        let now = Instant::now();
        let seconds = state.seconds_until_done(job.bytes, now);
        let retry_after = seconds.ceil().max(1.0) as u64;
        if state.waiting.len() >= WAITING_MAX {
            return Err(Problem::crowded(format!("{WAITING_MAX} requests wait already; try again later"), retry_after));
        }
        let left = job.request.deadline.saturating_duration_since(now).as_secs_f64();
        if MARGIN * seconds > left {
            let [left, needed] = [left, seconds].map(|seconds| (seconds * 1e3).ceil());
            return Err(Problem::crowded(
                format!("an answer takes about {needed} ms now, the deadline is in {left} ms; try again later"),
                retry_after,
            ));
        }
        state.waiting_bytes += job.bytes;
        state.waiting.push_back(job);
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// The jobs of the next batch, as soon as there are any; none once the queue is closed and empty.
    pub(crate) fn next_batch(&self) -> Option<Vec<Job>> {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.is_closed {
                return None;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let now = Instant::now();
        let (count, bytes) = batch_of(&state.waiting, state.pace, now);
        let batch: Vec<Job> = state.waiting.drain(..count).collect();
        state.waiting_bytes = state.waiting.iter().map(|job| job.bytes).sum();
        state.busy_until = Some(now + Duration::from_secs_f64(state.pace.seconds(bytes)));
        Some(batch)
    }

    /// Learns from a batch that has ended, for which so many bytes were predicted; nothing where not all of it was searched for.
    pub(crate) fn ended(&self, bytes: Option<f64>, seconds: f64) {
        let mut state = self.lock();
        state.pace = bytes.map_or(state.pace, |bytes| state.pace.learned(bytes, seconds));
        state.busy_until = None;
    }

    /// Admits nothing more; what waits is still done.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_all();
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How long it is predicted to take until a job of so many bytes is done that comes now.
    fn seconds_until_done(&self, bytes: f64, now: Instant) -> f64 {
        let running = self.busy_until.map_or(0.0, |until| until.saturating_duration_since(now).as_secs_f64());
        running + self.pace.seconds(self.waiting_bytes + bytes)
    }
}

/// How many of the jobs that wait are done together, at least one, and their bytes: as many as are predicted to end before the
/// first deadline among them.
fn batch_of(waiting: &VecDeque<Job>, pace: Pace, now: Instant) -> (usize, f64) {
    let (mut bytes, mut queries, mut left) = (0.0, 0, BATCH_SECONDS_MAX);
    for (count, job) in waiting.iter().enumerate() {
        let (more, rows) = (bytes + job.bytes, queries + job.request.rows);
        let first = left.min(job.request.deadline.saturating_duration_since(now).as_secs_f64() / MARGIN);
        if count > 0 && (pace.seconds(more) > first || rows > BATCH_QUERIES_MAX) {
            return (count, bytes);
        }
        (bytes, queries, left) = (more, rows, first);
    }
    (waiting.len(), bytes)
}

#[cfg(test)]
mod tests {
    use adjoin::device::MemoryBudget;
    use adjoin::options::{Element, VectorType};
    use adjoin::search::Wanted;

    use super::*;
    use crate::request::Sought;

    fn job(bytes: f64, deadline_ms: u64) -> Job {
        let sought = Sought {
            wanted: Wanted::Nearest(1),
            recall: None,
            exact: false,
            nprobe: None,
            list: None,
            condition: None,
        };
        let arrived = Instant::now();
        let request = Request {
            sought,
            vectors: VectorType { element: Element::U8, dimensions: 1 },
            rows: 1,
            stored: vec![0],
            deadline: arrived + Duration::from_millis(deadline_ms),
            _memory: MemoryBudget::new(1).reserve(0).unwrap(),
        };
        Job { request, bytes, arrived, reply: oneshot::channel().0 }
    }

    /// A queue that is known to do a thousand bytes in a second.
    fn queue() -> Queue {
        let queue = Queue::default();
        queue.ended(Some(1_000.0), 1.0);
        queue
    }

    #[test]
    fn what_would_be_late_is_refused_and_told_when_to_come_again() {
        let queue = queue();
        for _ in 0..8 {
            queue.submit(job(1_000.0, 60_000)).unwrap();
        }
        let refused = queue.submit(job(1_000.0, 9_000)).unwrap_err();
        assert_eq!((refused.status.as_u16(), refused.retry_after), (429, Some(9)));
        assert!(refused.detail.contains("about 9000 ms"), "{}", refused.detail);
        queue.submit(job(1_000.0, 60_000)).unwrap();
        assert_eq!(queue.waiting(), 9);
    }

    #[test]
    fn nothing_is_refused_for_its_cost_before_any_is_known() {
        Queue::default().submit(job(1e18, 1_000)).unwrap();
    }

    #[test]
    fn a_batch_ends_before_the_first_deadline_in_it() {
        let queue = queue();
        for deadline_ms in [60_000, 60_000, 900, 60_000] {
            queue.submit(job(200.0, deadline_ms)).unwrap();
        }
        let next = || queue.next_batch().unwrap().len();
        // Three take 600 ms, four would take 800 where 900 / 1.25 are left.
        assert_eq!([next(), next()], [3, 1]);
    }

    #[test]
    fn a_batch_is_as_long_as_those_who_come_may_wait_and_has_at_least_one() {
        let queue = queue();
        for bytes in [5_000.0, 600.0, 300.0, 200.0] {
            queue.submit(job(bytes, 60_000)).unwrap();
        }
        let next = || queue.next_batch().unwrap().len();
        assert_eq!([next(), next(), next()], [1, 2, 1]);
    }

    #[test]
    fn a_closed_queue_takes_nothing_and_gives_what_waits() {
        let queue = queue();
        queue.submit(job(1.0, 1_000)).unwrap();
        queue.close();
        assert_eq!(queue.submit(job(1.0, 1_000)).unwrap_err().status, 503);
        assert_eq!(queue.next_batch().unwrap().len(), 1);
        assert!(queue.next_batch().is_none());
    }

    #[test]
    fn the_pace_follows_what_batches_take() {
        let mut pace = Pace::default();
        assert_eq!(pace.seconds(5.0), 0.0);
        for _ in 0..50 {
            pace = pace.learned(100.0, 2.0);
        }
        assert!((pace.seconds(100.0) - 2.0).abs() < 1e-9);
        assert!((pace.learned(100.0, 12.0).seconds(100.0) - 4.0).abs() < 1e-9);
    }
}
