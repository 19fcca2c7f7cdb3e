//! Bodies of requests and answers: their types, their memory and deadlines.

use std::time::{Duration, Instant};

use adjoin::{
    VectorType,
    device::{MemoryBudget, Reservation},
    format_bytes,
};
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::answer::Answer;
use crate::json::QUERIES_MAX;
use crate::problem::Problem;
use crate::request::K_MAX;
use crate::rows::FetchedRows;

pub(crate) const JSON: &str = "application/json";
pub(crate) const RAW: &str = "application/octet-stream";
pub(crate) const ARROW: &str = "application/vnd.apache.arrow.stream";

/// Default and maximum deadline of a request, in milliseconds.
pub(crate) const DEADLINE_MS: u64 = 30_000;
pub(crate) const DEADLINE_MS_MAX: u64 = 600_000;
/// Maximum size of a body that is parsed at once; parsing a larger one must not block other requests.
pub(crate) const AT_ONCE_BYTES: usize = 64 << 10;
/// Memory to parse a JSON body, as a multiple of its size: `0,` becomes four bytes, in a vector that doubles.
pub(crate) const JSON_TIMES: u64 = 5;
/// Memory for a body of raw vectors, as a multiple of its size: the search copies them.
pub(crate) const RAW_TIMES: u64 = 2;

/// Runs work on `bytes` bytes; if they are many, without blocking other requests.
pub(crate) fn apart<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    if bytes > AT_ONCE_BYTES { tokio::task::block_in_place(work) } else { work() }
}

/// Returns the type of a body, which must be one of `known`.
pub(crate) fn content_type<'a>(headers: &HeaderMap, known: &[&'a str]) -> Result<&'a str, Problem> {
    let said = headers.get(header::CONTENT_TYPE).and_then(|said| said.to_str().ok()).unwrap_or_default();
    let said = said.split(';').next().unwrap_or_default().trim();
    known.iter().find(|known| said.eq_ignore_ascii_case(known)).copied().ok_or_else(|| {
        let refused = format!("the content type is {said:?}; send one of {}", known.join(", "));
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, refused)
    })
}

/// Returns the deadline of a request.
pub(crate) fn deadline_of(deadline_ms: Option<u64>, arrived: Instant) -> Result<Instant, Problem> {
    let deadline_ms = deadline_ms.unwrap_or(DEADLINE_MS);
    if !(1..=DEADLINE_MS_MAX).contains(&deadline_ms) {
        return Err(Problem::bad_request(format!("deadline_ms is {deadline_ms}; give 1 to {DEADLINE_MS_MAX}")));
    }
    Ok(arrived + Duration::from_millis(deadline_ms))
}

/// Returns the limits of requests, for `/v1/info`.
pub(crate) fn limits_of(body_bytes: u64) -> serde_json::Value {
    json!({
        "body_bytes": body_bytes, "queries": QUERIES_MAX, "k": K_MAX,
        "dimensions": VectorType::DIMENSIONS_MAX, "deadline_ms": DEADLINE_MS_MAX,
    })
}

/// Formats the answer as the client accepts it. Its memory is reserved until it is sent.
pub(crate) fn respond(clients: &MemoryBudget, headers: &HeaderMap, answer: &Answer) -> Result<Response, Problem> {
    let (bytes, held) = (answer.text_bytes(), answer.found.memory.bytes());
    let memory = reserve(clients, bytes, held)?;
    let (kind, text) = apart(bytes as usize, || match accepts_arrow(headers) {
        true => answer.to_arrow().map(|table| (ARROW, table)).map_err(unwritable),
        false => answer.to_json().map(|text| (JSON, text)).map_err(unwritable),
    })?;
    Ok(send(kind, text, memory))
}

/// Formats rows as the client accepts them. Their memory is reserved until they are sent.
pub(crate) fn respond_rows(
    clients: &MemoryBudget,
    headers: &HeaderMap,
    rows: &FetchedRows,
) -> Result<Response, Problem> {
    let (bytes, held) = (rows.text_bytes(), rows.memory.bytes());
    let memory = reserve(clients, bytes, held)?;
    let (kind, text) = apart(bytes as usize, || match accepts_arrow(headers) {
        true => rows.to_arrow().map(|table| (ARROW, table)).map_err(unwritable),
        false => rows.to_json().map(|text| (JSON, text)).map_err(unwritable),
    })?;
    Ok(send(kind, text, memory))
}

/// Returns a response whose memory is released once it is sent.
fn send(kind: &'static str, text: Vec<u8>, memory: Reservation) -> Response {
    ([(header::CONTENT_TYPE, kind)], Bytes::from_owner(Sent { text, _memory: memory })).into_response()
}

/// Returns whether the client asks for a table.
fn accepts_arrow(headers: &HeaderMap) -> bool {
    headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok()).is_some_and(|text| text.contains(ARROW))
}

/// Bytes of a response that is being sent.
struct Sent {
    text: Vec<u8>,
    _memory: Reservation,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Reserves memory for a request or its answer, in addition to the `held` bytes of that request.
pub(crate) fn reserve(clients: &MemoryBudget, bytes: u64, held: u64) -> Result<Reservation, Problem> {
    let needed = bytes.saturating_add(held);
    let reserved = clients.reserve(bytes);
    reserved.map_err(|_| beyond(needed, clients))
}

/// Returns the problem for a request that needs `needed` bytes of the memory for clients, which are not free.
pub(crate) fn beyond(needed: u64, clients: &MemoryBudget) -> Problem {
    let all = clients.total();
    // A request that takes most of the memory itself would be refused at every retry.
    if needed > all / 4 * 3 {
        let [needed, all] = [needed, all].map(format_bytes);
        return Problem::new(
            StatusCode::INSUFFICIENT_STORAGE,
            format!("the queries or their hits take {needed} of the {all} for clients; request fewer at once"),
        );
    }
    Problem::crowded("other requests hold the memory for clients; try again later", 1)
}

/// Returns the problem for an answer that cannot be written, which is a bug.
pub(crate) fn unwritable(error: impl std::fmt::Display) -> Problem {
    tracing::error!("an answer cannot be written: {error}");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be written because of a bug in the server")
}
