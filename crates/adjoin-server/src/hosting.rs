//! Resources of a server that do not depend on what it searches: logging, threads, the listener and the memory for
//! clients.

use std::net::SocketAddr;
use std::time::Duration;

use adjoin::{Cancel, Error, Result};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};

use crate::connections::{CONNECTION_BYTES, KEPT};
use crate::options::{LogFormat, ServerOptions};

/// Threads that serve clients, and their stack size.
const THREADS: usize = 2;
const STACK_BYTES: usize = 512 << 10;
/// Memory of these threads and the libraries.
pub(crate) const RUNTIME_BYTES: u64 = 4 << 20;
/// One part in `BODY_PART` of the memory for clients is the limit of a body.
const BODY_PART: u64 = 16;
/// Upper limits of a body and of connections.
const BODY_BYTES_MAX: u64 = 64 << 20;
const CONNECTIONS_MAX: u64 = 4_096;
/// Files that may be open in addition to connections.
const FILES: u64 = 256 + KEPT;
/// Interval of the checks for shutdown.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Division of the memory for clients.
pub(crate) struct Division {
    pub(crate) connections: u64,
    pub(crate) clients: u64,
    /// Maximum size of a body in bytes.
    pub(crate) body: u64,
}

impl Division {
    /// Divides `all` bytes for a server that keeps `other_files` files open: at most half for connections, the rest for
    /// requests and answers.
    pub(crate) fn of(all: u64, other_files: u64) -> Self {
        let files = files_max().saturating_sub(FILES + other_files).max(1);
        let without_kept = all.saturating_sub(KEPT * CONNECTION_BYTES);
        let connections = (without_kept / 2 / CONNECTION_BYTES).clamp(1, CONNECTIONS_MAX.min(files));
        let clients = all.saturating_sub((connections + KEPT) * CONNECTION_BYTES);
        Self { connections, clients, body: (clients / BODY_PART).min(BODY_BYTES_MAX) }
    }

    /// Returns the memory of all connections and of the threads that serve them.
    pub(crate) fn fixed_bytes(&self) -> u64 {
        RUNTIME_BYTES + (self.connections + KEPT) * CONNECTION_BYTES
    }
}

/// Logs to standard error from now on, unless other code in this process has already set up logging.
pub(crate) fn start_logging(options: &ServerOptions) {
    let log = tracing_subscriber::fmt().with_max_level(options.level).with_ansi(false).with_writer(std::io::stderr);
    let _ = match options.log_format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}

/// Starts the threads that serve clients, and at most `blocking` threads for work that blocks.
///
/// # Errors
/// If the system cannot start a thread.
pub(crate) fn runtime(blocking: usize) -> Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(THREADS).max_blocking_threads(blocking + 2 * THREADS).thread_stack_size(STACK_BYTES);
    builder.thread_name("adjoin clients").enable_io().enable_time();
    builder.build().map_err(Error::no_thread)
}

/// Listens on an address. Returns the listener and its address: the system chooses the port if it is 0.
///
/// # Errors
/// If the address is taken, or not of this machine.
pub(crate) fn listen(runtime: &Runtime, at: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let cannot = |error: std::io::Error| {
        Error::device(format!("cannot listen on {at}: {error}; name another address with --listen")).caused_by(error)
    };
    // A socket needs the runtime already when it is created.
    let _entered = runtime.enter();
    let bound = || {
        let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A server that was stopped can start again at once, although its old connections are not forgotten yet.
        socket.set_reuseaddr(true)?;
        socket.bind(at)?;
        // With the usual 128 waiting connections, further clients that connect at once would try again after a second.
        socket.listen(CONNECTIONS_MAX as u32)
    };
    let listener = bound().map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    Ok((listener, address))
}

/// Completes when the server is to shut down.
pub(crate) async fn stopped(stop: Cancel) {
    while !stop.is_cancelled() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns how many files this process may open, after raising its limit as far as allowed.
pub(crate) fn files_max() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // The soft limit is often 1024 for the sake of `select`, and each connection takes a file.
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    limit.current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn many_clients_connect_before_the_server_accepts_one() {
        let (listener, at) = listen(&runtime(1).unwrap(), "127.0.0.1:0".parse().unwrap()).unwrap();
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let count = most.trim().parse().unwrap_or(300).min(300);
        // The time is reached only if the test fails.
        let connect = |_| TcpStream::connect_timeout(&at, Duration::from_secs(600)).unwrap();
        let clients: Vec<TcpStream> = (0..count).map(connect).collect();
        drop((listener, clients));
    }

    #[test]
    fn memory_for_clients_is_divided_within_its_limit() {
        for all in [128 << 10, 8 << 20, 64 << 20, 1 << 37] {
            let division = Division::of(all, 0);
            let Division { connections, clients, body } = division;
            assert!(
                division.fixed_bytes() - RUNTIME_BYTES + clients <= all.max((1 + KEPT) * CONNECTION_BYTES),
                "{all}"
            );
            assert!(connections >= 1 && body <= clients / BODY_PART && body <= BODY_BYTES_MAX);
        }
    }
}
