//! Queries that wait for an answer: those that came while a batch was answered are the next one.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::options::{Answer, Request, ServeOptions};
use crate::error::{Error, Result};
use crate::workers::lock;

/// What takes an answer.
pub(super) type Reply = Box<dyn FnOnce(Result<Answer>) + Send>;

/// A query that waits, and what takes its answer.
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) arrived: Instant,
    pub(super) reply: Reply,
}

impl ServeOptions {
    /// Bytes that are reserved for each query that may wait, of so many dimensions: as many may wait while others are
    /// answered.
    pub fn waiting_bytes(dimensions: usize) -> u64 {
        2 * (dimensions * size_of::<f32>() + size_of::<Waiting>() + REPLY_BYTES) as u64
    }
}

/// Bytes of what takes an answer.
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
    /// For so many queries at most.
    pub(super) fn new(waiting_max: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), waiting_max }
    }

    /// Lets queries wait, which no batch divides that has room for all of them; refuses at once those for whom there is no room.
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

    /// How many may wait.
    pub(super) fn waiting_max(&self) -> usize {
        self.waiting_max
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// No more queries are taken; those that wait are still answered.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Waits for queries, and from the arrival of the first on as long as `gather` says for more; at most so many, those with
    /// the earliest deadline first, then those that came first. Those whose deadline has passed are told so. None once the
    /// queue is closed and empty.
    pub(super) fn next_batch(&self, most: usize, gather: Duration) -> Option<Vec<Waiting>> {
        let mut state = lock(&self.state);
        loop {
            while state.waiting.is_empty() {
                if state.closed {
                    return None;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let until = state.waiting.front().map(|first| first.arrived + gather);
            let left = until.and_then(|until| until.checked_duration_since(Instant::now())).unwrap_or_default();
            if !left.is_zero() && !state.closed {
                (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let batch = take_batch(&mut state.waiting, most, Instant::now());
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }
}

/// Takes at most so many of those that wait.
fn take_batch(waiting: &mut VecDeque<Waiting>, most: usize, now: Instant) -> Vec<Waiting> {
    let (late, mut in_time): (Vec<Waiting>, Vec<Waiting>) =
        waiting.drain(..).partition(|waiting| waiting.request.deadline.is_some_and(|deadline| deadline <= now));
    for late in late {
        let waited = now.duration_since(late.arrived).as_millis();
        (late.reply)(Err(Error::late(format!(
            "the deadline passed while the query waited, for {waited} ms; allow more"
        ))));
    }
    if in_time.len() > most {
        // Stable: those that came first stay first.
        in_time.sort_by_key(|waiting| (waiting.request.deadline.is_none(), waiting.request.deadline));
        waiting.extend(in_time.drain(most..));
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

    /// Queries with these deadlines, so many seconds after now, that arrived a millisecond after each other: each wants as
    /// many hits as its number says.
    fn queries(now: Instant, deadlines: &[Option<i64>]) -> (Vec<Waiting>, Replies) {
        let (reply, replies) = unbounded();
        let waiting = |(number, after): (usize, &Option<i64>)| {
            let deadline = after.map(|after| match u64::try_from(after) {
                Ok(after) => now + Duration::from_secs(after),
                Err(_) => now - Duration::from_millis(1),
            });
            let request = Request {
                vector: Vec::new(),
                wanted: QueryTarget::Nearest(number as u64),
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
        let number = |waiting: &Waiting| match waiting.request.wanted {
            QueryTarget::Nearest(number) => number as usize,
            QueryTarget::Within(_) => unreachable!("none is made"),
        };
        batch.iter().map(number).collect()
    }

    #[test]
    fn deadlines_come_first_where_not_all_fit_and_late_ones_are_told() {
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
    fn a_full_or_closed_queue_refuses_at_once_and_answers_what_it_took() {
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
    fn a_batch_is_what_came_meanwhile() {
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
