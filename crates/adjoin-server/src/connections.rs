//! Connections: how many there may be, how slow a client may be, and how they end.

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
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
/// How long clients that are under way when the server ends are still taken in: what is said of a server that ends needs a
/// moment to get around.
const LAST_CALL: Duration = Duration::from_millis(250);
/// How long requests that were taken in may take when the server ends.
const DRAIN_TIME: Duration = Duration::from_secs(60);
/// The answer to who comes when there are as many connections as there may be.
fn crowded() -> Vec<u8> {
    let body = Problem::unavailable("as many clients are connected as memory allows; try again later").body();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {KIND}\r\nretry-after: 1\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    [head.into_bytes(), body].concat()
}

/// Takes in connections until `stop` is there, and a moment longer; then waits until those that are open have their answers.
/// `draining` is called in between.
pub(crate) async fn run(
    (listener, most): (TcpListener, usize),
    router: Router,
    metrics: &Arc<Metrics>,
    stop: impl Future<Output = ()>,
    draining: impl FnOnce(),
) {
    let (slots, graceful) = (Arc::new(Semaphore::new(most)), GracefulShutdown::new());
    {
        let taking_in = take_in(&listener, &router, metrics, (&slots, &graceful));
        tokio::pin!(taking_in);
        tokio::select! {
            () = &mut taking_in => {}
            () = stop => {}
        }
        draining();
        let _ = tokio::time::timeout(LAST_CALL, taking_in).await;
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIME, graceful.shutdown()).await.is_err() {
        tracing::warn!("some clients did not take their answers in {} s; they are left", DRAIN_TIME.as_secs());
    }
}

/// Takes in connections for ever.
async fn take_in(
    listener: &TcpListener,
    router: &Router,
    metrics: &Arc<Metrics>,
    room: (&Arc<Semaphore>, &GracefulShutdown),
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => admit(stream, router, metrics, room),
            Err(error) => {
                tracing::warn!("a connection could not be taken in: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await; // until others have ended
            }
        }
    }
}

/// Serves a connection, if there is room for it.
fn admit(
    stream: TcpStream,
    router: &Router,
    metrics: &Arc<Metrics>,
    (slots, graceful): (&Arc<Semaphore>, &GracefulShutdown),
) {
    let Ok(slot) = slots.clone().try_acquire_owned() else {
        metrics.answered(503);
        let _ = stream.into_std().and_then(|mut stream| stream.write(&crowded())); // as far as it goes at once
        return;
    };
    let _ = stream.set_nodelay(true); // answers are whole: nothing more comes to be sent with them
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(SEND_TIME));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(
            TokioIo::new(InspectedStream::new(Box::pin(stream))),
            TowerToHyperService::new(router.clone()),
        );
    let (connection, metrics) = (graceful.watch(connection), metrics.clone());
    tokio::spawn(async move {
        let _connected = metrics.connected();
        if let Err(error) = connection.await {
            tracing::debug!("a connection ended: {error}");
        }
        drop(slot);
    });
}
