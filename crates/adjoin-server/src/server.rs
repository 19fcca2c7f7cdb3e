//! A server from its start to its end.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use adjoin::context::Context;
use adjoin::device::MemoryBudget;
use adjoin::error::{Error, Result};
use adjoin::report::{Cancel, Progress};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::access::Access;
use crate::backend::{Backend, Lane};
use crate::batches;
use crate::connections::{self, CONNECTION_BYTES, KEPT};
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::queue::Queue;
use crate::routes::{Server, router};

/// Threads that talk to clients, and their stacks.
const THREADS: usize = 2;
const STACK_BYTES: usize = 512 << 10;
/// Writes to a collection that are under way at the same time: the log makes those durable together.
pub(crate) const WRITES: usize = 8;
/// How long writes that wait for the disk may take when the server ends; those that are acknowledged are safe in any case.
const END_TIME: Duration = Duration::from_secs(10);
/// What they and the libraries hold.
const RUNTIME_BYTES: u64 = 4 << 20;
/// One part in so many of the budget is for clients, of that one half for connections, and one part in so many for a body.
const CLIENTS_PART: u64 = 8;
const BODY_PART: u64 = 16;
/// Limits of what these parts come to.
const BODY_BYTES_MAX: u64 = 64 << 20;
const CONNECTIONS_MAX: u64 = 4_096;
/// Files that may be open beside connections.
const FILES: u64 = 256 + KEPT;
/// How often is looked whether the server is to end, and whether something new was published.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const TAKE_UP_EVERY: Duration = Duration::from_secs(1);
/// How many times the time until the next try doubles after generations that were refused.
const TAKE_UP_DOUBLINGS: u32 = 5;

/// How the memory for clients is divided.
struct Division {
    connections: u64,
    clients: u64,
    body: u64,
}

impl Division {
    fn of(free: u64) -> Self {
        let all = free / CLIENTS_PART;
        let files = files_max().saturating_sub(FILES).max(1);
        let without_kept = all.saturating_sub(KEPT * CONNECTION_BYTES);
        let connections = (without_kept / 2 / CONNECTION_BYTES).clamp(1, CONNECTIONS_MAX.min(files));
        let clients = all.saturating_sub((connections + KEPT) * CONNECTION_BYTES);
        Self { connections, clients, body: (clients / BODY_PART).min(BODY_BYTES_MAX) }
    }
}

/// Serves what `options` name until `stop` is set, then answers what was taken in and returns. `listening` is told where, once
/// requests are answered there.
///
/// # Errors
/// Where an option makes no sense, what is to be served cannot be opened, the budget is too small, or the address is taken.
pub fn serve(
    context: &Context,
    options: &ServerOptions,
    stop: &Cancel,
    listening: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    options.check()?;
    let mut context = context.clone();
    context.progress = Arc::new(Logged::default());
    let context = &context;
    // Another one in this process has set where logs go.
    let _ = tracing_subscriber::fmt()
        .with_max_level(options.level)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .try_init();
    let division = Division::of(context.budget().free());
    let purpose = "serving";
    let _of_runtime = context.reserve(RUNTIME_BYTES + (division.connections + KEPT) * CONNECTION_BYTES, purpose)?;
    let clients = MemoryBudget::within(context.reserve(division.clients, purpose)?);
    let backend = Arc::new(Backend::open(context, clients, &options.folder)?);
    let metrics = Arc::new(Metrics::default());
    let queues = Lane::ALL.map(|_| Arc::new(Queue::default()));
    let runtime = runtime()?;
    let listener =
        runtime.block_on(TcpListener::bind(options.listen)).map_err(|error| cannot_listen(options.listen, error))?;
    let address = listener.local_addr().map_err(|error| cannot_listen(options.listen, error))?;
    let batches = start_batches(&backend, &queues, &metrics)?;
    let server = Arc::new(Server {
        backend: backend.clone(),
        queues: queues.clone(),
        metrics: metrics.clone(),
        access: Access::of(options.key.as_deref(), address),
        body_bytes: division.body,
        is_draining: false.into(),
        writes: Arc::new(Semaphore::new(WRITES)),
        stop_writes: Cancel::default(),
        look_ups: Arc::new(Semaphore::new(1)),
    });
    let facts = backend.facts();
    tracing::info!("{} of {} rows: listening on http://{address}", facts.kind, facts.rows);
    let told = listening(address);
    if told.is_ok() {
        let taking_up = runtime.spawn(take_up(backend.clone(), metrics.clone()));
        let draining = || {
            tracing::info!("ending: what was taken in is answered");
            server.is_draining.store(true, Ordering::Relaxed);
            server.stop_writes.cancel();
        };
        let (stop, connections) = (stopped(stop.clone()), division.connections as usize);
        runtime.block_on(connections::run((listener, connections), router(&server), &metrics, stop, draining));
        taking_up.abort();
        backend.end_searches();
    }
    queues.iter().for_each(|queue| queue.close());
    for batches in batches {
        let _ = batches.join(); // it says itself what went wrong
    }
    drop(server);
    runtime.shutdown_timeout(END_TIME);
    told?;
    Arc::into_inner(backend).map_or(Ok(()), Backend::close)
}

/// Starts the thread of each lane.
fn start_batches(
    backend: &Arc<Backend>,
    queues: &[Arc<Queue>; Lane::ALL.len()],
    metrics: &Arc<Metrics>,
) -> Result<Vec<JoinHandle<()>>> {
    let lanes = Lane::ALL.into_iter().zip(queues);
    lanes.map(|(lane, queue)| batches::start((backend.clone(), lane), queue.clone(), metrics.clone())).collect()
}

/// Puts lines that a person should read once into the log; nobody asks for the progress of each search.
#[derive(Default)]
struct Logged(Mutex<HashSet<String>>);

/// Different lines that are known to have been logged, at most.
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

fn runtime() -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(THREADS).max_blocking_threads(WRITES + 2 * THREADS).thread_stack_size(STACK_BYTES);
    builder.thread_name("adjoin clients").enable_io().enable_time();
    builder.build().map_err(adjoin::workers::no_thread)
}

fn cannot_listen(listen: SocketAddr, error: std::io::Error) -> Error {
    Error::device(format!("cannot listen on {listen}: {error}; name another address with --listen")).caused_by(error)
}

/// Returns when the server is to end.
async fn stopped(stop: Cancel) {
    while !stop.is_cancelled() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Takes up generations that are published. If one cannot be opened, it is tried again, less and less often.
async fn take_up(backend: Arc<Backend>, metrics: Arc<Metrics>) {
    let (mut wait, mut refused) = (TAKE_UP_EVERY, 0);
    loop {
        tokio::time::sleep(wait).await;
        wait = TAKE_UP_EVERY;
        match tokio::task::block_in_place(|| backend.take_up()) {
            Ok(true) => {
                refused = 0;
                metrics.generation();
                tracing::info!("took up what was published: {} rows", backend.facts().rows);
            }
            Ok(false) => {}
            Err(error) => {
                metrics.generation_refused();
                tracing::error!("what was published cannot be served, the one before goes on: {error}");
                refused = (refused + 1).min(TAKE_UP_DOUBLINGS);
                wait = TAKE_UP_EVERY * (1 << refused);
            }
        }
    }
}

/// Files that this process may have open: as many as it may allow itself.
fn files_max() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    limit.current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_for_clients_is_a_part_that_is_divided() {
        for free in [1 << 20, 64 << 20, 512 << 20, 1 << 40] {
            let Division { connections, clients, body } = Division::of(free);
            assert!(
                (connections + KEPT) * CONNECTION_BYTES + clients
                    <= (free / CLIENTS_PART).max((1 + KEPT) * CONNECTION_BYTES)
            );
            assert!(connections >= 1 && body <= clients / BODY_PART && body <= BODY_BYTES_MAX);
        }
    }
}
