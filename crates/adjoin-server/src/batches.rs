//! Search threads, one per lane. A thread runs one batch at a time; the next batch has the requests that arrived
//! meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adjoin::{Error, ErrorKind, Result};
use axum::http::StatusCode;

use crate::backend::{Backend, Lane, is_ours};
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::queue::{Job, Outcome, Queue};
use crate::request::Request;

/// Guard that refuses the jobs of a queue if its thread ends before the queue is closed. Otherwise they would wait
/// forever.
struct AbandonAtLast<'a>(&'a Queue);

impl Drop for AbandonAtLast<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Starts the thread of a lane. It ends when the queue is closed and empty.
///
/// # Errors
/// If the system cannot start a thread.
pub(crate) fn start(
    backend: Arc<Backend>,
    lane: Lane,
    queue: Arc<Queue>,
    metrics: Arc<Metrics>,
) -> Result<JoinHandle<()>> {
    let work = move || {
        let _abandon = AbandonAtLast(&queue);
        while let Some(batch) = queue.next_batch() {
            queue.ended(run(&backend, lane, &metrics, batch));
        }
    };
    std::thread::Builder::new().name("adjoin batches".into()).spawn(work).map_err(Error::no_thread)
}

/// Answers the jobs of a batch whose clients still wait. Returns the cost of the batch, or `None` if no job was
/// searched.
fn run(backend: &Backend, lane: Lane, metrics: &Metrics, batch: Vec<Job>) -> Option<Outcome> {
    let begun = Instant::now();
    // Jobs whose deadline passed in the queue are not searched, since that would only delay the other jobs.
    let (jobs, late): (Vec<Job>, Vec<Job>) = batch.into_iter().partition(|job| job.request.deadline > begun);
    late.into_iter().for_each(|job| drop(job.reply.send(Err(Problem::late()))));
    let jobs: Vec<Job> = jobs.into_iter().filter(|job| !job.reply.is_closed()).collect();
    if jobs.is_empty() {
        return None;
    }
    let predicted: Vec<f64> = jobs.iter().map(|job| job.bytes).collect();
    let split = |Job { request, arrived, reply, .. }| (request, Some((arrived, reply)));
    let (requests, mut replies): (Vec<Request>, Vec<_>) = jobs.into_iter().map(split).unzip();
    metrics.batch(requests.iter().map(|request| request.rows as u64).sum());
    let asked: Vec<&Request> = requests.iter().collect();
    let mut outcome = Outcome { bytes: 0.0, seconds: 0.0, is_whole: true };
    // A panic must not end the thread of the lane, since other clients wait for it.
    let answered = catch_unwind(AssertUnwindSafe(|| {
        backend.answer(lane, &asked, &mut |k, answer| {
            let Some((arrived, reply)) = replies[k].take() else { return };
            match &answer {
                Ok(answer) => {
                    outcome.bytes += backend.bytes_compared(asked[k].rows, answer.facts.distances_per_query);
                }
                Err(error) if error.kind() == ErrorKind::Late => {
                    // If a search was cut off, the number of its distances is unknown, so its predicted bytes are
                    // counted. They would have taken at least the time that was spent.
                    outcome.is_whole = false;
                    outcome.bytes += predicted[k];
                }
                Err(error) if is_ours(error) => tracing::error!("{error}"),
                Err(_) => {}
            }
            let queued: Duration = begun.saturating_duration_since(arrived);
            let answer = answer.map(|mut answer| {
                answer.facts.queue_ms = queued.as_secs_f64() * 1e3;
                answer
            });
            metrics.queued(queued);
            let _ = reply.send(answer.map_err(Problem::from)); // fails if the client has disconnected
        });
    }));
    if answered.is_err() {
        tracing::error!("a search failed because of a bug; its requests are answered with an error");
        let bug = || {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the search failed because of a bug in the \
                                                                      server",
            )
        };
        replies.into_iter().flatten().for_each(|(_, reply)| drop(reply.send(Err(bug()))));
        return None;
    }
    // If all requests failed, the duration says nothing about the pace.
    Some(Outcome { seconds: begun.elapsed().as_secs_f64(), ..outcome }).filter(|outcome| outcome.bytes > 0.0)
}
