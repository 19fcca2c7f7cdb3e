//! Connections: their maximum number, limits on slow clients, and shutdown.
//!
//! If all connections are taken, a new client replaces the oldest one that has not sent a request yet. So a client that
//! opens connections and sends nothing, or half a head, shuts out no other client.
//!
//! Some connections are reserved, so that supervisors and writers are answered even if clients with requests hold all
//! other connections. In that case, a new client gets a reserved connection for one request.

use std::collections::VecDeque;
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_io_timeout::TimeoutStream;

use crate::heads::InspectedStream;
use crate::metrics::Metrics;
use crate::problem::{KIND, Problem};

/// Bytes of input that a connection may buffer: the headers, and the body piece by piece.
const BUFFER_BYTES: usize = 16 << 10;
/// Memory of a connection: its buffer and its state.
pub(crate) const CONNECTION_BYTES: u64 = BUFFER_BYTES as u64 + (8 << 10);
/// Time limit for the head of a request to arrive, from the start of a connection or the previous answer.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Time after which a connection is closed if the client reads nothing of its answer.
const SEND_TIME: Duration = Duration::from_secs(30);
/// Connections reserved for [`KEPT_PATHS`] when all others are taken.
pub(crate) const KEPT: u64 = 16;
/// Requests that are answered on reserved connections: a supervisor must see that the server is alive, and writers must
/// be able to continue.
const KEPT_PATHS: [&str; 5] = ["/livez", "/readyz", "/metrics", "/v1/vectors", "/v1/vectors/delete"];
/// Time for which connections are still accepted after the shutdown begins, since load balancers need a moment to
/// notice it.
const LAST_CALL: Duration = Duration::from_millis(250);
/// Time limit for the answers to accepted requests at shutdown.
const DRAIN_TIME: Duration = Duration::from_secs(60);
/// Returns the problem for a client that connects when all connections are taken.
fn crowded() -> Problem {
    Problem::unavailable("as many clients are connected as memory allows; try again later")
}

/// Returns the response for a client that connects when all connections are taken.
fn crowded_response() -> Vec<u8> {
    let body = crowded().body();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {KIND}\r\nretry-after: 1\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.into_bytes(), body].concat()
}

/// Answers a request on a reserved connection, if it is for one of [`KEPT_PATHS`]. The connection is then closed.
async fn answer_kept(request: Request, next: Next) -> Response {
    let mut response = match KEPT_PATHS.contains(&request.uri().path()) {
        true => next.run(request).await,
        false => crowded().into_response(),
    };
    response.headers_mut().insert(axum::http::header::CONNECTION, axum::http::HeaderValue::from_static("close"));
    response
}

/// A connection.
#[derive(Default)]
struct OpenConnection {
    /// Whether a request has arrived. If so, the connection is not given to another client.
    has_request: AtomicBool,
    /// Notified when the connection is given to another client.
    ended: Notify,
}

/// Connections in use, oldest first.
struct OpenConnections {
    most: usize,
    taken: Mutex<VecDeque<Arc<OpenConnection>>>,
}

impl OpenConnections {
    /// Creates room for `most` connections.
    fn up_to(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// Takes a connection. If none is free, takes the oldest one whose request has not arrived. Returns `None` if all
    /// requests have arrived.
    fn take(&self) -> Option<Arc<OpenConnection>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.len() >= self.most {
            // A client that has sent no request loses no work, and may connect again.
            let idle = taken.iter().position(|open| !open.has_request.load(Ordering::Relaxed))?;
            taken.remove(idle)?.ended.notify_one();
        }
        let open = Arc::<OpenConnection>::default();
        taken.push_back(open.clone());
        Some(open)
    }

    /// Frees a connection.
    fn give_back(&self, open: &Arc<OpenConnection>) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, open));
    }
}

/// State shared by all connections.
struct Listening {
    router: Router,
    /// Answers requests on reserved connections.
    kept_router: Router,
    metrics: Arc<Metrics>,
    open: Arc<OpenConnections>,
    /// Reserved connections.
    kept: Arc<OpenConnections>,
    graceful: GracefulShutdown,
}

/// Serves up to `connections_max` connections, plus the reserved ones, until `stop` completes. Then calls `draining`,
/// accepts connections for a short grace period, and waits until all accepted requests are answered.
pub(crate) async fn run(
    listener: TcpListener,
    connections_max: usize,
    router: Router,
    metrics: &Arc<Metrics>,
    stop: impl Future<Output = ()>,
    draining: impl FnOnce(),
) {
    let listening = Listening {
        kept_router: router.clone().layer(from_fn(answer_kept)),
        router,
        metrics: metrics.clone(),
        open: OpenConnections::up_to(connections_max),
        kept: OpenConnections::up_to(KEPT as usize),
        graceful: GracefulShutdown::new(),
    };
    {
        let taking_in = listening.take_in(&listener);
        tokio::pin!(taking_in);
        tokio::select! {
            () = &mut taking_in => {}
            () = stop => {}
        }
        // From now on, `/readyz` answers with 503, so that load balancers choose another server before the socket is
        // closed.
        draining();
        let _ = tokio::time::timeout(LAST_CALL, taking_in).await;
    }
    drop(listener);
    // Idle connections are closed at once. The others are closed after their answers.
    if tokio::time::timeout(DRAIN_TIME, listening.graceful.shutdown()).await.is_err() {
        tracing::warn!(
            "some clients did not read their answers within {} s; their connections are closed",
            DRAIN_TIME.as_secs()
        );
    }
}

impl Listening {
    /// Accepts connections forever.
    async fn take_in(&self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.admit(stream),
                Err(error) => {
                    tracing::warn!("a connection could not be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await; // until other connections have closed
                }
            }
        }
    }

    /// Serves a client on a connection, on a reserved one, or not at all, depending on which are free.
    fn admit(&self, stream: TcpStream) {
        for (all, router) in [(&self.open, &self.router), (&self.kept, &self.kept_router)] {
            if let Some(open) = all.take() {
                return self.serve(stream, open, all.clone(), router.clone());
            }
        }
        self.metrics.answered(503);
        // The response is sent with a single write that does not block. If the client does not read it, the rest is
        // dropped.
        let _ = stream.into_std().and_then(|mut stream| stream.write(&crowded_response()));
    }

    /// Serves a client on a connection, which is one of `all`.
    fn serve(&self, stream: TcpStream, open: Arc<OpenConnection>, all: Arc<OpenConnections>, router: Router) {
        let (router, own) = (TowerToHyperService::new(router), open.clone());
        let service = service_fn(move |request| {
            // A request has arrived, so the connection is not given to another client anymore.
            own.has_request.store(true, Ordering::Relaxed);
            router.call(request)
        });
        let connection = http().serve_connection(TokioIo::new(inspected(stream)), service);
        let (connection, metrics) = (self.graceful.watch(connection), self.metrics.clone());
        tokio::spawn(async move {
            let _connected = metrics.connected();
            // If the connection is given to another client, it is dropped here, which closes it.
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!("a connection ended: {error}");
                },
                () = open.ended.notified() => metrics.answered(503),
            }
            all.give_back(&open);
        });
    }
}

fn http() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(BUFFER_BYTES);
    builder
}

/// Wraps the stream of a client to limit the time of each send and to check the heads of requests.
fn inspected(stream: TcpStream) -> InspectedStream<Pin<Box<TimeoutStream<TcpStream>>>> {
    let _ = stream.set_nodelay(true); // an answer is one write, so TCP should not wait for more data
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(SEND_TIME));
    InspectedStream::new(Box::pin(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_are_closed_before_busy_ones() {
        let all = OpenConnections::up_to(16);
        let first = all.take().unwrap();
        first.has_request.store(true, Ordering::Relaxed);
        let others: Vec<Arc<OpenConnection>> = (1..16).map(|_| all.take().unwrap()).collect();
        let last = all.take().expect("the oldest without a request makes way");
        let is_taken =
            |open: &Arc<OpenConnection>| all.taken.lock().unwrap().iter().any(|other| Arc::ptr_eq(other, open));
        assert!(is_taken(&first) && !is_taken(&others[0]) && is_taken(&others[1]) && is_taken(&last));
        others.iter().chain([&last]).for_each(|open| open.has_request.store(true, Ordering::Relaxed));
        assert!(all.take().is_none(), "all have requests");
        all.give_back(&first);
        assert!(all.take().is_some());
    }
}
