//! HTTP/1.1 client for shards. It reuses connections, and reads answers within the memory for clients.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use adjoin::{Error, Result, device::MemoryBudget};
use axum::body::{Body, Bytes};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::failure::Failure;
use crate::body::read_all;
use crate::body_limits::{BodyBytes, Limits};
use crate::exchange::beyond;

/// Bytes of an answer that a connection buffers.
const BUFFER_BYTES: usize = 32 << 10;
/// Memory of a connection to a shard: its buffers for reading and writing, and its state.
pub(crate) const LINK_BYTES: u64 = 2 * BUFFER_BYTES as u64 + (8 << 10);
/// Memory for an answer as a multiple of its size: its bytes, and the table that is read from them.
const ANSWER_TIMES: u64 = 2;
/// Maximum number of idle connections to a shard.
const IDLE_MAX: usize = 64;

/// One end of an open connection.
pub(crate) type Sender = http1::SendRequest<Full<Bytes>>;

/// Address of a shard.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShardAddress {
    /// Address as a client would write it, without a final slash.
    pub(crate) url: String,
    authority: Authority,
}

impl ShardAddress {
    /// Parses an address such as `http://10.0.0.7:7700`.
    ///
    /// # Errors
    /// If it is of another form.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        // The address is in logs and answers, which must not contain passwords.
        if url.contains('@') {
            return Err(Error::option(
                "the address of a shard has a user or a password; give the key with --shard-key-file instead",
            ));
        }
        let wrong = |why: &str| Error::option(format!("{url:?} {why}; write a shard like http://10.0.0.7:7700"));
        if url.starts_with("https://") {
            return Err(wrong("asks for TLS, which servers do not use among themselves"));
        }
        let rest = url.strip_prefix("http://").ok_or_else(|| wrong("is not the address of a server"))?;
        let authority = rest.strip_suffix('/').unwrap_or(rest).parse::<Authority>();
        let authority = authority.ok().filter(|authority| !authority.host().is_empty());
        let authority = authority.ok_or_else(|| wrong("is not the address of a server, or has a path"))?;
        Ok(Self { url: format!("http://{authority}"), authority })
    }

    /// Returns the host and the port to connect to.
    fn target(&self) -> String {
        format!("{}:{}", self.authority.host(), self.authority.port_u16().unwrap_or(80))
    }
}

/// Request to a shard.
#[derive(Debug, Clone)]
pub(crate) struct ShardRequest {
    pub(crate) method: Method,
    /// Path and query string.
    pub(crate) path: String,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) accept: Option<&'static str>,
    /// Maximum size of the answer in bytes.
    pub(crate) answer_bytes_max: u64,
    /// Memory for the answers of all shards so far.
    pub(crate) answered_bytes: Arc<AtomicU64>,
    pub(crate) body: Bytes,
}

/// Answer of a shard.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: BodyBytes,
}

/// Reason why an exchange has no reply.
pub(crate) enum ExchangeError {
    /// The connection was closed before the answer. An idle one may be closed at any time.
    Lost(hyper::Error),
    Failed(Failure),
}

/// Connections to a shard.
pub(crate) struct Link {
    pub(crate) address: ShardAddress,
    host: HeaderValue,
    /// Value of the header `Authorization`.
    authorization: Option<HeaderValue>,
    idle: Mutex<Vec<Sender>>,
}

impl Link {
    /// Creates a link without connections.
    ///
    /// # Errors
    /// If the key cannot be sent in a header.
    pub(crate) fn new(address: ShardAddress, key: Option<&str>) -> Result<Self> {
        let wrong = |_| Error::option("the key of the shards cannot be sent in a header");
        let host = HeaderValue::from_str(address.authority.as_str()).map_err(wrong)?;
        let bearer = |key: &str| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(wrong)?;
            value.set_sensitive(true);
            Ok::<_, Error>(value)
        };
        Ok(Self { host, authorization: key.map(bearer).transpose()?, address, idle: Mutex::default() })
    }

    /// Returns an idle connection, the one used last, if there is one that is not closed.
    pub(crate) fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.lock();
        std::iter::from_fn(|| idle.pop()).find(|sender| !sender.is_closed())
    }

    /// Closes all idle connections.
    pub(crate) fn close_idle(&self) {
        self.lock().clear();
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// If the shard cannot be reached.
    pub(crate) async fn connect(&self) -> std::result::Result<Sender, Failure> {
        let unreachable = |error: &dyn std::fmt::Display| Failure::unavailable(format!("cannot connect: {error}"));
        let stream = TcpStream::connect(self.address.target()).await.map_err(|error| unreachable(&error))?;
        let _ = stream.set_nodelay(true); // requests are written whole, so there is nothing to wait for
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER_BYTES);
        let (sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
        // It ends when the sender is dropped, or when the shard closes the connection.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    /// Sends a request, and reads the answer. The connection may be kept for other requests afterwards.
    ///
    /// # Errors
    /// If the connection is lost, the answer is not HTTP, or memory does not suffice for it.
    pub(crate) async fn exchange(
        &self,
        sender: &mut Sender,
        request: &ShardRequest,
        clients: &MemoryBudget,
    ) -> std::result::Result<Reply, ExchangeError> {
        sender.ready().await.map_err(ExchangeError::Lost)?;
        let response = sender.send_request(self.http(request)).await.map_err(ExchangeError::Lost)?;
        read(response, request, clients).await.map_err(ExchangeError::Failed)
    }

    /// Keeps a connection for other requests.
    pub(crate) fn keep(&self, sender: Sender) {
        let mut idle = self.lock();
        if idle.len() < IDLE_MAX {
            idle.push(sender);
        }
    }

    fn http(&self, request: &ShardRequest) -> Request<Full<Bytes>> {
        let mut http = Request::new(Full::new(request.body.clone()));
        *http.method_mut() = request.method.clone();
        // Paths are composed of percent-encoded text, so they are valid.
        *http.uri_mut() = request.path.parse().unwrap_or_default();
        let headers = http.headers_mut();
        headers.insert(header::HOST, self.host.clone());
        let values = [(header::CONTENT_TYPE, request.content_type), (header::ACCEPT, request.accept)];
        for (name, value) in values.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Some(key) = &self.authorization {
            headers.insert(header::AUTHORIZATION, key.clone());
        }
        http
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Sender>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the answer to a request.
async fn read(
    response: Response<Incoming>,
    request: &ShardRequest,
    clients: &MemoryBudget,
) -> std::result::Result<Reply, Failure> {
    let (head, body) = response.into_parts();
    let (declared, bytes_max) = (body.size_hint().lower(), request.answer_bytes_max);
    if declared > bytes_max {
        return Err(Failure::unreadable(format!("its answer has {declared} bytes, more than {bytes_max}")));
    }
    // Answers of all shards that never fit together must not be asked for again.
    let bytes = ANSWER_TIMES.saturating_mul(declared).min(i64::MAX as u64);
    let bytes = bytes.saturating_add(request.answered_bytes.fetch_add(bytes, Ordering::Relaxed));
    if bytes > clients.total() / 4 * 3 {
        return Err(Failure::Request(beyond(bytes, clients)));
    }
    let limits = Limits { bytes: bytes_max, times: ANSWER_TIMES, clients };
    let body = read_all(Body::new(body), declared, &limits).await.map_err(|problem| match problem.status {
        StatusCode::TOO_MANY_REQUESTS => Failure::Request(problem),
        _ => Failure::unavailable("the connection was closed before the end of its answer"),
    })?;
    Ok(Reply { status: head.status, headers: head.headers, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_addresses_have_a_host_and_no_path_or_password() {
        for (url, target) in [
            ("http://a:7700", "a:7700"),
            ("http://a.example.org/", "a.example.org:80"),
            ("http://127.0.0.1:1", "127.0.0.1:1"),
            ("http://[::1]:7700", "[::1]:7700"),
        ] {
            let address = ShardAddress::parse(url).unwrap();
            assert_eq!((address.target().as_str(), address.url.as_str()), (target, url.trim_end_matches('/')));
        }
        for (url, words) in [
            ("a:7700", "not the address of a server"),
            ("", "not the address of a server"),
            ("http://", "not the address of a server"),
            ("http://a/v1", "has a path"),
            ("http://a b", "has a path"),
            ("https://a", "asks for TLS"),
            ("http://user:secret@a", "--shard-key-file"),
        ] {
            let refused = ShardAddress::parse(url).unwrap_err().to_string();
            assert!(refused.contains(words) && !refused.contains("secret"), "{url}: {refused}");
        }
    }
}
