//! A server from start to shutdown.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use adjoin::{Cancel, Context, Progress, Result, device::MemoryBudget};
use tokio::sync::Semaphore;

use crate::access::Access;
use crate::backend::{Backend, Lane};
use crate::batches;
use crate::connections;
use crate::coordinator;
use crate::hosting::{Division, listen, runtime, start_logging, stopped};
use crate::metrics::Metrics;
use crate::options::{ServedData, ServerOptions};
use crate::queue::Queue;
use crate::routes::{Server, WRITES, router};

/// Time limit at shutdown for writes that wait for the disk. Acknowledged writes are safe in any case.
const END_TIME: Duration = Duration::from_secs(10);
/// The budget divided by this number is the memory for clients.
const CLIENTS_PART: u64 = 8;
/// Interval of the checks for new generations.
const TAKE_UP_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of times that the retry interval doubles if a generation cannot be opened.
const TAKE_UP_DOUBLINGS: u32 = 5;

/// Serves the folder or the shards of `options` until `stop` is set, then answers all accepted requests and returns.
/// Calls `listening` with the address as soon as it accepts requests.
///
/// # Errors
/// If an option is invalid, the folder cannot be opened, the shards do not answer or disagree, the budget is too small,
/// or the address is taken.
pub fn serve(
    context: &Context,
    options: &ServerOptions,
    stop: &Cancel,
    listening: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    options.check()?;
    let mut context = context.clone();
    context.progress = Arc::new(Logged::default());
    start_logging(options);
    match &options.data {
        ServedData::Folder(folder) => serve_folder(&context, options, folder, stop, listening),
        ServedData::Shards(shards) => coordinator::serve(&context, options, shards, stop, listening),
    }
}

fn serve_folder(
    context: &Context,
    options: &ServerOptions,
    folder: &Path,
    stop: &Cancel,
    listening: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let division = Division::of(context.budget().free() / CLIENTS_PART, 0);
    let purpose = "serving";
    let _of_runtime = context.reserve(division.fixed_bytes(), purpose)?;
    let clients = MemoryBudget::within(context.reserve(division.clients, purpose)?);
    let backend = Arc::new(Backend::open(context, clients, folder)?);
    let metrics = Arc::new(Metrics::default());
    let queues = Lane::ALL.map(|_| Arc::new(Queue::default()));
    let runtime = runtime(WRITES)?;
    let (listener, address) = listen(&runtime, options.listen)?;
    let batches = start_batches(&backend, &queues, &metrics)?;
    let server = Arc::new(Server {
        backend: backend.clone(),
        queues: queues.clone(),
        metrics: metrics.clone(),
        access: Arc::new(Access::of(options.key.as_deref(), address)),
        body_bytes: division.body,
        is_draining: false.into(),
        writes: Arc::new(Semaphore::new(WRITES)),
        stop_writes: Cancel::default(),
        look_ups: Arc::new(Semaphore::new(1)),
    });
    let facts = backend.facts();
    tracing::info!("{} of {} rows: listening on http://{address}", facts.kind, facts.rows);
    let started = listening(address);
    if started.is_ok() {
        let taking_up = runtime.spawn(take_up(backend.clone(), metrics.clone()));
        let draining = || {
            tracing::info!("shutting down: accepted requests are answered");
            server.is_draining.store(true, Ordering::Relaxed);
            // A write that waits for a merge might wait longer than the time limit of the shutdown.
            server.stop_writes.cancel();
        };
        let (stop, connections) = (stopped(stop.clone()), division.connections as usize);
        runtime.block_on(connections::run(listener, connections, router(&server), &metrics, stop, draining));
        taking_up.abort();
        // No client waits anymore. The threads of the lanes end only after their searches, so these are canceled.
        backend.end_searches();
    }
    queues.iter().for_each(|queue| queue.close());
    for batches in batches {
        let _ = batches.join(); // the thread logs its own failure
    }
    // Only the last owner of the backend can close it, so the other references are dropped first: those of the server
    // and of the tasks of the runtime.
    drop(server);
    runtime.shutdown_timeout(END_TIME);
    started?;
    Arc::into_inner(backend).map_or(Ok(()), Backend::close)
}

/// Starts the thread of each lane.
fn start_batches(
    backend: &Arc<Backend>,
    queues: &[Arc<Queue>; Lane::ALL.len()],
    metrics: &Arc<Metrics>,
) -> Result<Vec<JoinHandle<()>>> {
    let lanes = Lane::ALL.into_iter().zip(queues);
    lanes.map(|(lane, queue)| batches::start(backend.clone(), lane, queue.clone(), metrics.clone())).collect()
}

/// Logs each note of the engine once, and ignores the progress of searches.
#[derive(Default)]
struct Logged(Mutex<HashSet<String>>);

/// Maximum number of lines remembered as logged.
const LINES_KNOWN_MAX: usize = 64;

impl Progress for Logged {
    fn begin(&self, _phase: &str, _unit: &str, _total: u64) {}
    fn advance(&self, _done: u64) {}
    fn note(&self, line: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < LINES_KNOWN_MAX && known.insert(line.to_owned()) {
            tracing::info!("{line}");
        } else {
            tracing::debug!("{line}");
        }
    }
}

/// Opens new generations as they are published. If one cannot be opened, it is retried at growing intervals.
async fn take_up(backend: Arc<Backend>, metrics: Arc<Metrics>) {
    let (mut wait, mut refused) = (TAKE_UP_EVERY, 0);
    loop {
        tokio::time::sleep(wait).await;
        wait = TAKE_UP_EVERY;
        match tokio::task::block_in_place(|| backend.take_up()) {
            Ok(true) => {
                refused = 0;
                metrics.generation();
                tracing::info!("switched to the published generation: {} rows", backend.facts().rows);
            }
            Ok(false) => {}
            Err(error) => {
                metrics.generation_refused();
                tracing::error!("the published generation cannot be served, the previous one is still served: {error}");
                refused = (refused + 1).min(TAKE_UP_DOUBLINGS);
                wait = TAKE_UP_EVERY * (1 << refused);
            }
        }
    }
}
