//! The queue of queries. The queries that arrive while a batch is answered form the next batch.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::options::{Answer, Request, ServeOptions};
use crate::error::{Error, Result};
use crate::workers::lock;

/// Callback that receives an answer.
pub(super) type Reply = Box<dyn FnOnce(Result<Answer>) + Send>;

/// A waiting query and its callback.
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) arrived: Instant,
    pub(super) reply: Reply,
}

impl ServeOptions {
    /// Returns the bytes reserved for each query that may wait, with `dimensions` dimensions. Twice the size of one,
    /// since as many may wait while others are answered.
    pub fn waiting_bytes(dimensions: usize) -> u64 {
        2 * (dimensions * size_of::<f32>() + size_of::<Waiting>() + REPLY_BYTES) as u64
    }
}

/// Bytes of a callback.
const REPLY_BYTES: usize = 64;

/// The queue.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    waiting_max: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    closed: bool,
}

impl Queue {
    /// Creates a queue for at most `waiting_max` queries.
    pub(super) fn new(waiting_max: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), waiting_max }
    }

    /// Adds queries, which end up in one batch if it has room for all of them. Queries beyond the limit are refused at
    /// once.
    pub(super) fn push(&self, mut waiting: Vec<Waiting>) {
        let mut state = lock(&self.state);
        let room = if state.closed { 0 } else { self.waiting_max - state.waiting.len() };
        let refused = waiting.split_off(room.min(waiting.len()));
        let is_closed = state.closed;
        state.waiting.extend(waiting);
        drop(state);
        self.changed.notify_one();
        for refused in refused {
            (refused.reply)(Err(Error::overloaded(if is_closed {
                "the service is ending; ask another one".to_owned()
            } else {
                format!("{} queries wait already; ask again later", self.waiting_max)
            })));
        }
    }

    /// Returns the most queries that may wait.
    pub(super) fn waiting_max(&self) -> usize {
        self.waiting_max
    }

    /// Returns the number of waiting queries.
    pub(super) fn len(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// Refuses further queries; queries in the queue are still answered.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Waits for queries, and for further ones until `gather` after the arrival of the first. Returns them in order of
    /// arrival. If there are more than `queries_max`, chooses the earliest deadlines, then the earliest arrivals.
    /// Queries whose deadline has passed get an error. Returns `None` once the queue is closed and empty.
    pub(super) fn next_batch(&self, queries_max: usize, gather: Duration) -> Option<Vec<Waiting>> {
        let mut state = lock(&self.state);
        loop {
            while state.waiting.is_empty() {
                if state.closed {
                    return None;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let until = state.waiting.front().map(|first| first.arrived + gather);
            // If the time has passed already, the batch starts at once.
            let left = until.and_then(|until| until.checked_duration_since(Instant::now())).unwrap_or_default();
            if !left.is_zero() && !state.closed {
                (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let batch = take_batch(&mut state.waiting, queries_max, Instant::now());
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }
}

/// Takes at most `queries_max` waiting queries.
fn take_batch(waiting: &mut VecDeque<Waiting>, queries_max: usize, now: Instant) -> Vec<Waiting> {
    let (late, mut in_time): (Vec<Waiting>, Vec<Waiting>) =
        waiting.drain(..).partition(|waiting| waiting.request.deadline.is_some_and(|deadline| deadline <= now));
    for late in late {
        let waited = now.duration_since(late.arrived).as_millis();
        (late.reply)(Err(Error::late(format!(
            "the deadline passed while the query waited, for {waited} ms; allow more"
        ))));
    }
    if in_time.len() > queries_max {
        // The sort is stable, so it keeps the order of arrival.
        in_time.sort_by_key(|waiting| (waiting.request.deadline.is_none(), waiting.request.deadline));
        waiting.extend(in_time.drain(queries_max..));
        // The queries that wait for the next batch are in the order of arrival again.
        waiting.make_contiguous().sort_by_key(|waiting| waiting.arrived);
        in_time.sort_by_key(|waiting| waiting.arrived);
    }
    in_time
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, unbounded};

    use super::*;
    use crate::error::ErrorKind;
    use crate::query::{QueryTarget, SearchEffort};

    type Replies = Receiver<(usize, Result<Answer>)>;

    /// Queries whose deadlines are that many seconds from now and that arrive one millisecond apart. Each asks for as
    /// many hits as its number.
    fn queries(now: Instant, deadlines: &[Option<i64>]) -> (Vec<Waiting>, Replies) {
        let (reply, replies) = unbounded();
        let waiting = |(number, after): (usize, &Option<i64>)| {
            let deadline = after.map(|after| match u64::try_from(after) {
                Ok(after) => now + Duration::from_secs(after),
                Err(_) => now - Duration::from_millis(1),
            });
            let request = Request {
                vector: Vec::new(),
                target: QueryTarget::Nearest(number as u64),
                effort: SearchEffort::Exact,
                deadline,
            };
            let reply = reply.clone();
            let reply = Box::new(move |answer| reply.send((number, answer)).unwrap());
            Waiting { request, arrived: now + Duration::from_millis(number as u64), reply }
        };
        (deadlines.iter().enumerate().map(waiting).collect(), replies)
    }

    fn numbers(batch: &[Waiting]) -> Vec<usize> {
        let number = |waiting: &Waiting| match waiting.request.target {
            QueryTarget::Nearest(number) => number as usize,
            QueryTarget::Within(_) => unreachable!("none is made"),
        };
        batch.iter().map(number).collect()
    }

    #[test]
    fn batches_take_the_earliest_deadlines_and_refuse_late_queries() {
        let now = Instant::now();
        let (waiting, replies) = queries(now, &[None, Some(9), Some(-1), None, Some(3)]);
        let mut waiting = VecDeque::from(waiting);
        assert_eq!(numbers(&take_batch(&mut waiting, 3, now)), [0, 1, 4], "as they came");
        let (number, late) = replies.try_recv().unwrap();
        assert_eq!((number, late.unwrap_err().kind()), (2, ErrorKind::Late));
        assert_eq!(numbers(&take_batch(&mut waiting, 3, now)), [3]);
        let (waiting, _replies) = queries(now, &[None, None, Some(9), Some(3)]);
        assert_eq!(numbers(&take_batch(&mut waiting.into(), 1, now)), [3]);
    }

    #[test]
    fn a_full_or_closed_queue_refuses_queries_and_answers_accepted_ones() {
        let queue = Queue::new(2);
        let (waiting, replies) = queries(Instant::now(), &[None; 4]);
        let mut waiting = waiting.into_iter();
        queue.push(waiting.by_ref().take(3).collect());
        let (number, refused) = replies.try_recv().unwrap();
        assert_eq!((number, refused.unwrap_err().kind(), queue.len()), (2, ErrorKind::Overloaded, 2));
        queue.close();
        queue.push(waiting.collect());
        assert_eq!(replies.try_recv().unwrap().1.unwrap_err().kind(), ErrorKind::Overloaded);
        assert_eq!(
            numbers(&queue.next_batch(9, Duration::from_secs(1_000)).unwrap()),
            [0, 1],
            "a closed one gathers no more"
        );
        assert!(queue.next_batch(9, Duration::ZERO).is_none());
    }

    #[test]
    fn a_batch_has_the_queries_that_arrived_meanwhile() {
        let queue = Queue::new(9);
        let (waiting, _replies) = queries(Instant::now() - Duration::from_secs(1), &[None; 3]);
        std::thread::scope(|scope| {
            let batch = scope.spawn(|| queue.next_batch(9, Duration::ZERO).map(|batch| numbers(&batch)));
            let mut waiting = waiting.into_iter();
            queue.push(waiting.by_ref().take(1).collect());
            assert_eq!(batch.join().unwrap(), Some(vec![0]));
            queue.push(waiting.collect());
            assert_eq!(numbers(&queue.next_batch(9, Duration::from_millis(1)).unwrap()), [1, 2]);
        });
    }
}
