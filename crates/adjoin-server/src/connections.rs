//! Connections: how many there may be, how slow a client may be, and how they end.
//!
//! If clients hold all connections, supervisors and writers are still answered: some connections are kept for them. A client that
//! connects then gets a kept connection for one request. If all of these are taken, it takes the place of the oldest client that
//! has not sent its request yet.

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
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

use crate::heads::InspectedStream;
use crate::metrics::Metrics;
use crate::problem::{KIND, Problem};

/// Bytes that a connection may buffer of what comes: its headers, and the body piece by piece.
const BUFFER_BYTES: usize = 16 << 10;
/// What a connection takes in memory: that, and what is known of it.
pub(crate) const CONNECTION_BYTES: u64 = BUFFER_BYTES as u64 + (8 << 10);
/// How long the head of a request may take to come, from the start of a connection or the answer before.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// How long a client may take nothing of what is sent to it.
const SEND_TIME: Duration = Duration::from_secs(30);
/// Connections that are kept for [`KEPT_PATHS`] when all others are taken.
pub(crate) const KEPT: u64 = 16;
/// Requests that are answered on kept connections: a supervisor must see that the server lives, and writers go on.
const KEPT_PATHS: [&str; 5] = ["/livez", "/readyz", "/metrics", "/v1/vectors", "/v1/vectors/delete"];
/// How long clients that are under way when the server ends are still taken in: what is said of a server that ends needs a
/// moment to get around.
const LAST_CALL: Duration = Duration::from_millis(250);
/// How long requests that were taken in may take when the server ends.
const DRAIN_TIME: Duration = Duration::from_secs(60);
/// The answer to a client that connects when there are as many connections as there may be.
fn crowded() -> Problem {
    Problem::unavailable("as many clients are connected as memory allows; try again later")
}

/// The bytes of that answer.
fn crowded_response() -> Vec<u8> {
    let body = crowded().body();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {KIND}\r\nretry-after: 1\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.into_bytes(), body].concat()
}

/// Answers a request on a kept connection, which ends then.
async fn answer_kept(request: Request, next: Next) -> Response {
    let mut response = match KEPT_PATHS.contains(&request.uri().path()) {
        true => next.run(request).await,
        false => crowded().into_response(),
    };
    response.headers_mut().insert(axum::http::header::CONNECTION, axum::http::HeaderValue::from_static("close"));
    response
}

/// A kept connection.
#[derive(Default)]
struct OpenConnection {
    /// Whether its request has arrived: then it is not given to another client.
    has_request: AtomicBool,
    /// Notified when another client takes its place.
    ended: Notify,
}

/// Kept connections that are taken, the oldest first.
#[derive(Default)]
struct OpenConnections(Mutex<VecDeque<Arc<OpenConnection>>>);

impl OpenConnections {
    /// Takes a kept connection, in place of the oldest without a request if there is no other. `None` if all have one.
    fn take(&self) -> Option<Arc<OpenConnection>> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.len() as u64 >= KEPT {
            let idle = taken.iter().position(|kept| !kept.has_request.load(Ordering::Relaxed))?;
            taken.remove(idle)?.ended.notify_one();
        }
        let kept = Arc::<OpenConnection>::default();
        taken.push_back(kept.clone());
        Some(kept)
    }

    /// Gives a kept connection back.
    fn give_back(&self, kept: &Arc<OpenConnection>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, kept));
    }
}

/// What a connection is served with.
struct Listening {
    router: Router,
    /// Answers requests on kept connections.
    kept_router: Router,
    metrics: Arc<Metrics>,
    slots: Arc<Semaphore>,
    kept: Arc<OpenConnections>,
    graceful: GracefulShutdown,
}

/// Takes in at most `most` connections, and the kept ones, until `stop` is there, and a moment longer; then waits until those that
/// are open have their answers. `draining` is called in between.
pub(crate) async fn run(
    (listener, most): (TcpListener, usize),
    router: Router,
    metrics: &Arc<Metrics>,
    stop: impl Future<Output = ()>,
    draining: impl FnOnce(),
) {
    let listening = Listening {
        kept_router: router.clone().layer(from_fn(answer_kept)),
        router,
        metrics: metrics.clone(),
        slots: Arc::new(Semaphore::new(most)),
        kept: Arc::default(),
        graceful: GracefulShutdown::new(),
    };
    {
        let taking_in = listening.take_in(&listener);
        tokio::pin!(taking_in);
        tokio::select! {
            () = &mut taking_in => {}
            () = stop => {}
        }
        draining();
        let _ = tokio::time::timeout(LAST_CALL, taking_in).await;
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIME, listening.graceful.shutdown()).await.is_err() {
        tracing::warn!("some clients did not take their answers in {} s; they are left", DRAIN_TIME.as_secs());
    }
}

impl Listening {
    /// Takes in connections for ever.
    async fn take_in(&self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.admit(stream),
                Err(error) => {
                    tracing::warn!("a connection could not be taken in: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await; // until others have ended
                }
            }
        }
    }

    /// Serves a connection, if there is room for it.
    fn admit(&self, stream: TcpStream) {
        if let Ok(slot) = self.slots.clone().try_acquire_owned() {
            return self.serve(stream, slot);
        }
        match self.kept.take() {
            Some(kept) => self.serve_kept(stream, kept),
            None => {
                self.metrics.answered(503);
                // As far as it goes at once.
                let _ = stream.into_std().and_then(|mut stream| stream.write(&crowded_response()));
            }
        }
    }

    fn serve(&self, stream: TcpStream, slot: OwnedSemaphorePermit) {
        let service = TowerToHyperService::new(self.router.clone());
        let connection = http().serve_connection(TokioIo::new(inspected(stream)), service);
        let (connection, metrics) = (self.graceful.watch(connection), self.metrics.clone());
        tokio::spawn(async move {
            let _connected = metrics.connected();
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(slot);
        });
    }

    /// Serves one request of a kept connection.
    fn serve_kept(&self, stream: TcpStream, kept: Arc<OpenConnection>) {
        let (router, own) = (TowerToHyperService::new(self.kept_router.clone()), kept.clone());
        let service = service_fn(move |request| {
            own.has_request.store(true, Ordering::Relaxed);
            router.call(request)
        });
        let connection = http().serve_connection(TokioIo::new(inspected(stream)), service);
        let (connection, metrics, all) = (self.graceful.watch(connection), self.metrics.clone(), self.kept.clone());
        tokio::spawn(async move {
            let _connected = metrics.connected();
            tokio::select! {
                _ = connection => {}
                () = kept.ended.notified() => metrics.answered(503),
            }
            all.give_back(&kept);
        });
    }
}

fn http() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(BUFFER_BYTES);
    builder
}

/// The stream of a client, with a bound on how long a send takes and checks of request heads.
fn inspected(stream: TcpStream) -> InspectedStream<Pin<Box<TimeoutStream<TcpStream>>>> {
    let _ = stream.set_nodelay(true); // answers are whole: nothing more comes to be sent with them
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(SEND_TIME));
    InspectedStream::new(Box::pin(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_connection_without_a_request_makes_way_and_one_with_a_request_stays() {
        let all = OpenConnections::default();
        let first = all.take().unwrap();
        first.has_request.store(true, Ordering::Relaxed);
        let others: Vec<Arc<OpenConnection>> = (1..KEPT).map(|_| all.take().unwrap()).collect();
        let last = all.take().expect("the oldest without a request makes way");
        let is_taken = |kept: &Arc<OpenConnection>| all.0.lock().unwrap().iter().any(|other| Arc::ptr_eq(other, kept));
        assert!(is_taken(&first) && !is_taken(&others[0]) && is_taken(&others[1]) && is_taken(&last));
        others.iter().chain([&last]).for_each(|kept| kept.has_request.store(true, Ordering::Relaxed));
        assert!(all.take().is_none(), "all have requests");
        all.give_back(&first);
        assert!(all.take().is_some());
    }
}
