//! The thread that searches: one batch after the other, of all that has arrived.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adjoin::error::Result;
use adjoin::workers::no_thread;
use axum::http::StatusCode;

use crate::backend::{Backend, is_ours};
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::queue::{Job, Queue};
use crate::request::Request;

/// Starts the thread; it ends when the queue is closed and empty.
///
/// # Errors
/// Where the system gives no thread.
pub(crate) fn start(backend: Arc<Backend>, queue: Arc<Queue>, metrics: Arc<Metrics>) -> Result<JoinHandle<()>> {
    let work = move || {
        while let Some(batch) = queue.next_batch() {
            let begun = Instant::now();
            let bytes = run(&backend, &metrics, batch, begun);
            queue.ended(bytes, begun.elapsed().as_secs_f64());
        }
    };
    std::thread::Builder::new().name("adjoin batches".into()).spawn(work).map_err(no_thread)
}

/// Answers the jobs of a batch whose clients still wait. Returns what was predicted for these, where all were answered.
fn run(backend: &Backend, metrics: &Metrics, batch: Vec<Job>, begun: Instant) -> Option<f64> {
    let (jobs, late): (Vec<Job>, Vec<Job>) = batch.into_iter().partition(|job| job.request.deadline > begun);
    late.into_iter().for_each(|job| drop(job.reply.send(Err(Problem::late()))));
    let jobs: Vec<Job> = jobs.into_iter().filter(|job| !job.reply.is_closed()).collect();
    if jobs.is_empty() {
        return None;
    }
    let bytes = jobs.iter().map(|job| job.bytes).sum();
    let split = |Job { request, arrived, reply, .. }| (request, Some((arrived, reply)));
    let (requests, mut replies): (Vec<Request>, Vec<_>) = jobs.into_iter().map(split).unzip();
    let mut all_answered = true;
    metrics.batch(requests.iter().map(|request| request.rows as u64).sum());
    let asked: Vec<&Request> = requests.iter().collect();
    let answered = catch_unwind(AssertUnwindSafe(|| {
        backend.answer(&asked, &mut |k, answer| {
            let Some((arrived, reply)) = replies[k].take() else { return };
            all_answered &= answer.is_ok();
            let queued: Duration = begun.saturating_duration_since(arrived);
            if let Err(error) = &answer
                && is_ours(error)
            {
                tracing::error!("{error}");
            }
            let answer = answer.map(|mut answer| {
                answer.told.queue_ms = queued.as_secs_f64() * 1e3;
                answer
            });
            metrics.queued(queued);
            let _ = reply.send(answer.map_err(Problem::from)); // a client that is gone
        });
    }));
    if answered.is_err() {
        tracing::error!("a search failed on a bug; its requests are told so");
        let bug = || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the search failed on a bug of the server");
        replies.into_iter().flatten().for_each(|(_, reply)| drop(reply.send(Err(bug()))));
        return None;
    }
    all_answered.then_some(bytes)
}
