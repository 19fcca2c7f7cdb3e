//! A server from start to shutdown.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use adjoin::{Cancel, Context, Error, Progress, Result, device::MemoryBudget};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::access::Access;
use crate::backend::{Backend, Lane};
use crate::batches;
use crate::connections::{self, CONNECTION_BYTES, KEPT};
use crate::metrics::Metrics;
use crate::options::{LogFormat, ServerOptions};
use crate::queue::Queue;
use crate::routes::{Server, WRITES, router};

/// Threads that serve clients, and their stack size.
const THREADS: usize = 2;
const STACK_BYTES: usize = 512 << 10;
/// Time limit at shutdown for writes that wait for the disk. Acknowledged writes are safe in any case.
const END_TIME: Duration = Duration::from_secs(10);
/// Memory of the threads that serve clients, and of the libraries.
const RUNTIME_BYTES: u64 = 4 << 20;
/// The budget divided by `CLIENTS_PART` is the memory for clients. Half of it is for connections. The other half
/// divided by `BODY_PART` is the maximum size of a body.
const CLIENTS_PART: u64 = 8;
const BODY_PART: u64 = 16;
/// Upper limits on the size of a body and on the number of connections.
const BODY_BYTES_MAX: u64 = 64 << 20;
const CONNECTIONS_MAX: u64 = 4_096;
/// Files that may be open in addition to connections.
const FILES: u64 = 256 + KEPT;
/// Intervals of the checks for shutdown and for new generations.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const TAKE_UP_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of times that the retry interval doubles if a generation cannot be opened.
const TAKE_UP_DOUBLINGS: u32 = 5;

/// Division of the memory for clients.
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

/// Starts logging to standard error, unless other code in this process has already set up logging.
fn start_logging(options: &ServerOptions) {
    let log = tracing_subscriber::fmt().with_max_level(options.level).with_ansi(false).with_writer(std::io::stderr);
    let _ = match options.log_format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}

/// Serves the folder of `options` until `stop` is set, then answers all accepted requests and returns. Calls
/// `listening` with the address as soon as it accepts requests.
///
/// # Errors
/// If an option is invalid, the folder cannot be opened, the budget is too small, or the address is taken.
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
    start_logging(options);
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
    // With port 0, the system chooses a port. The caller must be able to report it.
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

fn runtime() -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(THREADS).max_blocking_threads(WRITES + 2 * THREADS).thread_stack_size(STACK_BYTES);
    builder.thread_name("adjoin clients").enable_io().enable_time();
    builder.build().map_err(Error::no_thread)
}

fn cannot_listen(listen: SocketAddr, error: std::io::Error) -> Error {
    Error::device(format!("cannot listen on {listen}: {error}; name another address with --listen")).caused_by(error)
}

/// Completes when the server is to shut down.
async fn stopped(stop: Cancel) {
    while !stop.is_cancelled() {
        tokio::time::sleep(LOOK_EVERY).await;
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

/// Raises the limit on open files as far as allowed. Returns the limit.
fn files_max() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // Each connection takes a file. The soft limit is often only 1024, because `select` cannot handle more.
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    limit.current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_clients_is_divided_within_its_limit() {
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
