//! A store that is served on its own thread.

use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use adjoin_device::Creator;
use crossbeam_channel::{Sender, bounded, unbounded};

use super::PURPOSE;
use super::answering::Answering;
use super::batch::Batch;
use super::options::{Answer, NewPlanner, Request, ServeOptions, ServeStatistics, usual_planner};
use super::queue::{Queue, Waiting};
use crate::buckets::Searcher;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{Coordinate, with_coordinates};
use crate::load::Buckets;
use crate::locks::check_creator;
use crate::store::Store;
use crate::workers::{lock, no_thread};

/// Answers queries of a store until it is dropped; queries that wait at that time are still answered.
pub struct Service {
    creator: Creator,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Queue,
    statistics: Mutex<ServeStatistics>,
}

/// Closes the queue when its thread ends, even by a panic, so that no query waits forever.
struct CloseAtLast<'a>(&'a Queue);

impl Drop for CloseAtLast<'_> {
    fn drop(&mut self) {
        self.0.close();
        // Dropping the callbacks closes their channels, which wakes the threads that wait.
        drop(self.0.next_batch(usize::MAX, std::time::Duration::ZERO));
    }
}

impl Service {
    /// Starts to serve a store with all the free memory in the context's budget. Give it its own budget.
    ///
    /// # Errors
    /// If the budget is too small, the store cannot be read, or the thread cannot be started.
    pub fn open(context: &Context, store: Arc<Store>, options: ServeOptions) -> Result<Self> {
        Self::open_planned(context, store, options, usual_planner())
    }

    /// Begins to serve a store by plans that others make: of the laboratory.
    ///
    /// # Errors
    /// As [`Service::open`].
    #[doc(hidden)]
    pub fn open_planned(
        context: &Context,
        store: Arc<Store>,
        options: ServeOptions,
        planner: NewPlanner,
    ) -> Result<Self> {
        let (queue, statistics) = (Queue::new(options.waiting_max), Mutex::default());
        let shared = Arc::new(Shared { queue, statistics });
        let (ready, opened) = bounded(1);
        let (own, context) = (shared.clone(), context.clone());
        let serve = move || {
            let _close = CloseAtLast(&own.queue);
            let failed = ready.clone();
            if let Err(error) = serve_store(&context, &store, &options, &planner, &own, ready) {
                // Once the store is open, errors belong to queries.
                let _ = failed.send(Err(error));
            }
        };
        let thread = Builder::new().name("adjoin serve".to_owned()).spawn(serve).map_err(no_thread)?;
        let service = Self { creator: Creator::this_process(), shared, thread: Some(thread) };
        opened.recv().unwrap_or_else(|_| Err(ended()))?;
        Ok(service)
    }

    /// Queues a query. `reply` gets its answer on the service's thread, or at once if the query is refused, and must
    /// return quickly. It is dropped without a call if the service fails.
    pub fn submit(&self, request: Request, reply: impl FnOnce(Result<Answer>) + Send + 'static) {
        if let Err(forked) = self.check_creator() {
            return reply(Err(forked));
        }
        self.shared.queue.push(vec![Waiting { request, arrived: Instant::now(), reply: Box::new(reply) }]);
    }

    /// Answers queries together. Calls `take` with the number and answer of each as soon as it is known, and returns
    /// after the last. Can be called from any thread. If there are more queries than may wait, some are refused.
    pub fn answer_each(&self, requests: Vec<Request>, mut take: impl FnMut(usize, Result<Answer>)) {
        if self.check_creator().is_err() {
            let refuse = || self.check_creator().map(|()| unreachable!("the check failed above"));
            return (0..requests.len()).for_each(|number| take(number, refuse()));
        }
        let ((sender, replies), arrived) = (unbounded(), Instant::now());
        let mut is_open = vec![true; requests.len()];
        let waiting = requests.into_iter().enumerate().map(|(number, request)| {
            let sender = sender.clone();
            // The receiver lives until the last answer has arrived.
            let reply = Box::new(move |answer| drop(sender.send((number, answer))));
            Waiting { request, arrived, reply }
        });
        self.shared.queue.push(waiting.collect());
        drop(sender);
        for (number, answer) in &replies {
            is_open[number] = false;
            take(number, answer);
        }
        (0..).zip(is_open).filter(|&(_, is_open)| is_open).for_each(|(number, _)| take(number, Err(ended())));
    }

    /// Returns the answers of queries, in their order; see [`Service::answer_each`].
    pub fn answer(&self, requests: Vec<Request>) -> Vec<Result<Answer>> {
        let mut answers: Vec<Option<Result<Answer>>> = requests.iter().map(|_| None).collect();
        self.answer_each(requests, |number, answer| answers[number] = Some(answer));
        answers.into_iter().map(|answer| answer.expect("each query has an answer")).collect()
    }

    fn check_creator(&self) -> Result<()> {
        check_creator(self.creator, "this service of a store")
    }

    /// Returns the most queries that may wait.
    pub fn waiting_max(&self) -> usize {
        self.shared.queue.waiting_max()
    }

    /// Returns the number of waiting queries.
    pub fn waiting(&self) -> usize {
        self.shared.queue.len()
    }

    /// Returns whether the service's thread has ended on an error or a panic. All queries are then refused; open
    /// another service.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the statistics so far.
    pub fn statistics(&self) -> ServeStatistics {
        *lock(&self.shared.statistics)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A forked child does not have the thread, and may find the queue locked.
        if self.check_creator().is_err() {
            self.thread.take().into_iter().for_each(std::mem::forget);
            return;
        }
        self.shared.queue.close();
        if let Some(thread) = self.thread.take() {
            // Waiting queries were answered with the failure already.
            let _ = thread.join();
        }
    }
}

/// Returns the error of a service after its thread has ended.
fn ended() -> Error {
    Error::device("the service of this store has failed; open it again")
}

/// Answers queries until the queue is closed; signals `ready` once it can.
fn serve_store(
    context: &Context,
    store: &Store,
    options: &ServeOptions,
    planner: &NewPlanner,
    shared: &Shared,
    ready: Sender<Result<()>>,
) -> Result<()> {
    let buckets = &Buckets::of(store);
    with_coordinates!(buckets.space(), T => serve::<T>(context, buckets, options, planner, shared, ready))
}

fn serve<T: Coordinate>(
    context: &Context,
    buckets: &Buckets<'_>,
    options: &ServeOptions,
    planner: &NewPlanner,
    shared: &Shared,
    ready: Sender<Result<()>>,
) -> Result<()> {
    let waiting_bytes = options.waiting_max as u64 * ServeOptions::waiting_bytes(buckets.vectors().dimensions);
    let least = waiting_bytes + Answering::<T>::least_bytes(buckets, context.threads, options);
    let mut context = context.for_run(least, PURPOSE)?;
    // The deadline of the caller's work does not apply to queries, which have their own.
    context.cancel = context.cancel.with_deadline(None);
    let context = &context;
    let _of_waiting = context.reserve(waiting_bytes, PURPOSE)?;
    let searcher = &Searcher::<T>::new(context, buckets)?;
    let mut answering = Answering::new(searcher, options, planner, &shared.statistics)?;
    let _ = ready.send(Ok(()));
    drop(ready);
    let most = answering.most();
    while let Some(batch) = shared.queue.next_batch(most, options.gather) {
        answering.answer(&Batch::new(batch));
    }
    Ok(())
}
