//! Routes of the API, and the responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use adjoin::{
    ArrowTable, Cancel, Collection, Context, Error, ErrorKind, Folder, Ids, SearchOptions, VectorType, WriteReport,
    device::{MemoryBudget, Reservation},
    format_bytes,
};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request as HttpRequest, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::sync::{Semaphore, oneshot};

use crate::access::{self, Access};
use crate::answer::Answer;
use crate::backend::{Backend, Lane};
use crate::body;
use crate::body_limits::{BodyBytes, Limits};
use crate::json::{self, Members, QUERIES_MAX, Vectors};
use crate::metrics::{Gauges, Metrics};
use crate::problem::Problem;
use crate::queue::{Job, Queue};
use crate::request::{K_MAX, Request, element_of, names_of, queries_count, queries_of, raw, search_options};
use crate::rows::{FetchedRows, RowsMembers};
use crate::writes::{self, WRITE_TIMES};

const JSON: &str = "application/json";
const RAW: &str = "application/octet-stream";
const ARROW: &str = "application/vnd.apache.arrow.stream";

/// Description of the API as OpenAPI 3.1.
const OPENAPI: &str = include_str!("../assets/openapi.json");

/// Page for browsers; it loads nothing from other hosts.
const PAGE: &str = include_str!("../assets/page.html");
const PAGE_POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; \
                           style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'none'";

/// Default and maximum deadline of a request, in milliseconds.
const DEADLINE_MS: u64 = 30_000;
const DEADLINE_MS_MAX: u64 = 600_000;
/// Maximum size of a body that is parsed on the thread of the runtime. Parsing a larger one would block other
/// requests.
const AT_ONCE_BYTES: usize = 64 << 10;
/// Memory to parse a JSON body, as a multiple of its size. In the worst case, the two bytes `0,` become four bytes,
/// in a vector that grows by doubling.
const JSON_TIMES: u64 = 5;
/// Memory for a body of raw vectors, as a multiple of its size: the search copies them.
const RAW_TIMES: u64 = 2;

/// Rows are looked up by id only if the total memory divided by this number is free.
const LOOK_UP_PART: u64 = 4;
/// Memory to look up an id, in addition to the text of the id, which is counted with the body.
const NAME_BYTES: u64 = 128;
/// Maximum number of concurrent writes to a collection; the log makes them durable together.
pub(crate) const WRITES: usize = 8;

/// State shared by all requests.
pub(crate) struct Server {
    pub(crate) backend: Arc<Backend>,
    /// One queue per lane, in the order of [`Lane::ALL`].
    pub(crate) queues: [Arc<Queue>; Lane::ALL.len()],
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access: Access,
    /// Maximum size of a body in bytes.
    pub(crate) body_bytes: u64,
    pub(crate) is_draining: AtomicBool,
    /// Permits for concurrent writes.
    pub(crate) writes: Arc<Semaphore>,
    /// Permit to look up rows by id: one request at a time.
    pub(crate) look_ups: Arc<Semaphore>,
    /// Canceled at shutdown, to refuse writes that wait for merges or memory.
    pub(crate) stop_writes: Cancel,
}

/// Builds the router.
pub(crate) fn router(server: &Arc<Server>) -> Router {
    let guarded = Router::new()
        .route("/v1/search", post(search))
        .route("/v1/rows", post(rows))
        .route("/v1/vectors", post(put))
        .route("/v1/vectors/delete", post(delete))
        .route("/v1/info", get(info))
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(server.clone(), guard));
    let openapi = || async { ([(header::CONTENT_TYPE, JSON)], OPENAPI) };
    let open = Router::new().route("/livez", get(|| async { "ok\n" })).route("/readyz", get(ready));
    let open = open.route("/openapi.json", get(openapi)).route("/", get(page));
    let missing =
        || async { Problem::new(StatusCode::NOT_FOUND, "there is no such path; /openapi.json lists all paths") };
    let method = || async {
        Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this path does not support the method; /openapi.json \
                                                                 lists the methods",
        )
    };
    guarded
        .merge(open)
        .fallback(missing)
        .method_not_allowed_fallback(method)
        .layer(from_fn(well_formed))
        .layer(from_fn_with_state(server.clone(), count))
        .with_state(server.clone())
}

/// Counts responses and their time since the arrival of the request.
async fn count(State(server): State<Arc<Server>>, request: HttpRequest, next: Next) -> Response {
    let (begun, method, path) = (Instant::now(), request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    if method == axum::http::Method::POST {
        server.metrics.responded(status, took);
    } else {
        server.metrics.answered(status);
    }
    tracing::debug!("{method} {path:?} {status} {:.1} ms", took.as_secs_f64() * 1e3);
    response
}

/// Refuses requests that servers and proxies may interpret differently.
async fn well_formed(request: HttpRequest, next: Next) -> Response {
    match access::check_framing(request.version(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Refuses requests that [`Access`] does not allow.
async fn guard(State(server): State<Arc<Server>>, request: HttpRequest, next: Next) -> Response {
    match server.access.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn ready(State(server): State<Arc<Server>>) -> Response {
    if server.is_draining.load(Ordering::Relaxed) {
        return Problem::draining().into_response();
    }
    if server.queues.iter().any(|queue| queue.is_abandoned()) {
        return Problem::failed().into_response();
    }
    if let Some(failure) = server.backend.served().failure() {
        return Problem::unavailable(format!("writes are refused, searches are answered: {failure}")).into_response();
    }
    "ready\n".into_response()
}

async fn page() -> Response {
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, PAGE_POLICY)];
    (headers, PAGE).into_response()
}

async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let now = Gauges {
        budget_bytes: server.backend.context().memory_bytes(),
        waiting: server.queues.iter().map(|queue| queue.waiting()).sum(),
        rows: server.backend.facts().rows,
        cache: server.backend.cache_statistics(),
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], server.metrics.text(&now)).into_response()
}

async fn info(State(server): State<Arc<Server>>) -> Result<Response, Problem> {
    let served = server.backend.served();
    let attributes = tokio::task::block_in_place(|| served.folder().attributes())?;
    let attributes: Vec<_> = attributes.into_iter().map(|(name, kind)| json!({"name": name, "type": kind})).collect();
    let limits = json!({
        "body_bytes": server.body_bytes, "queries": QUERIES_MAX, "k": K_MAX,
        "dimensions": VectorType::DIMENSIONS_MAX, "deadline_ms": DEADLINE_MS_MAX,
    });
    let mut info = serde_json::to_value(served.folder().facts()).map_err(unwritable)?;
    info["columns"] = attributes.into();
    info["limits"] = limits;
    info["version"] = env!("CARGO_PKG_VERSION").into();
    Ok(([(header::CONTENT_TYPE, JSON)], info.to_string()).into_response())
}

async fn search(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    query: Result<Query<Members>, QueryRejection>,
    body: Body,
) -> Result<Response, Problem> {
    let arrived = Instant::now();
    let kind = content_type(&headers, &[JSON, RAW, ARROW])?;
    let in_address = query.map_err(|refused| Problem::bad_request(refused.body_text()))?.0;
    // Members in the URL are refused if the body has members, since the two might contradict each other.
    if kind == JSON && in_address != Members::default() {
        return Err(Problem::bad_request(
            "a request in JSON has all its members in the body; leave out those after `?`",
        ));
    }
    let times = if kind == JSON { JSON_TIMES } else { RAW_TIMES };
    let limits = Limits { bytes: server.body_bytes, times, clients: server.backend.clients() };
    let held = body::read(&headers, body, &limits).await?;
    let (members, queries) = match kind {
        JSON => apart(held.bytes.len(), || of_json(held))?,
        ARROW => apart(held.bytes.len(), || of_arrow(&server, held, in_address))?,
        _ => of_raw(&server, held, in_address)?,
    };
    // All members are checked before ids are looked up, since that may read the whole folder.
    let asked = SearchBody::of(&server, &members, arrived)?;
    let (queries, memory) = match queries {
        Queries::Vectors(vectors, memory) => (vectors, memory),
        Queries::Names(names) => look_up(&server, names, asked.deadline).await?,
    };
    let request = asked.with(queries, memory);
    let (rows, deadline) = (request.rows as u64, request.deadline);
    let bytes = server.backend.predicted_bytes(&request.search, request.rows);
    let (reply, answer) = oneshot::channel();
    let lane = server.backend.lane(&request.search);
    server.queues[lane as usize].submit(Job { request, bytes, arrived, reply })?;
    let answer = tokio::time::timeout_at(deadline.into(), answer).await.map_err(|_| Problem::late())?;
    let answer = answer.map_err(|_| Problem::draining())??;
    server.metrics.searched(rows, (answer.facts.bytes_per_query * rows as f64) as u64);
    respond(&server, &headers, &answer)
}

async fn rows(State(server): State<Arc<Server>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let arrived = Instant::now();
    content_type(&headers, &[JSON])?;
    let limits = Limits { bytes: server.body_bytes, times: JSON_TIMES, clients: server.backend.clients() };
    let BodyBytes { bytes, memory } = body::read(&headers, body, &limits).await?;
    let members: RowsMembers = apart(bytes.len(), || json::object(&bytes, RowsMembers::EXAMPLE))?;
    drop(bytes);
    let (deadline, on_missing) = (deadline_of(members.deadline_ms, arrived)?, members.on_missing()?);
    let names = names_of("ids", members.ids)?;
    let looking_up = reserve(server.backend.clients(), names.len() as u64 * NAME_BYTES, memory.bytes())?;
    let backend = server.backend.clone();
    let fetched = in_turn(&server, deadline, move |folder, context| {
        FetchedRows::read(folder, context, &names, on_missing, backend.clients())
    });
    let fetched = fetched.await?.map_err(|bytes| beyond(bytes, server.backend.clients()))?;
    drop((looking_up, memory));
    let (bytes, held) = (fetched.text_bytes(), fetched.memory.bytes());
    let memory = reserve(server.backend.clients(), bytes, held)?;
    let (kind, text) = apart(bytes as usize, || match accepts_arrow(&headers) {
        true => fetched.to_arrow().map(|table| (ARROW, table)).map_err(unwritable),
        false => fetched.to_json().map(|text| (JSON, text)).map_err(unwritable),
    })?;
    Ok(([(header::CONTENT_TYPE, kind)], Bytes::from_owner(Sent { text, _memory: memory })).into_response())
}

async fn put(State(server): State<Arc<Server>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    write(server, &headers, body, writes::put).await
}

async fn delete(State(server): State<Arc<Server>>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    write(server, &headers, body, writes::delete).await
}

/// Runs a write to the collection on a thread that may block on other writes, on merges and on the disk.
async fn write(
    server: Arc<Server>,
    headers: &HeaderMap,
    body: Body,
    work: fn(&Collection, &[u8], &Cancel) -> Result<WriteReport, Problem>,
) -> Result<Response, Problem> {
    let deadline = Instant::now() + Duration::from_millis(DEADLINE_MS);
    content_type(headers, &[JSON])?;
    let collection = server.backend.served().collection()?.clone();
    let limits = Limits { bytes: server.body_bytes, times: WRITE_TIMES, clients: server.backend.clients() };
    let BodyBytes { bytes, memory } = body::read(headers, body, &limits).await?;
    // The permit is acquired after the body has arrived, so that slow clients do not block other writes.
    let turn = tokio::time::timeout_at(deadline.into(), server.writes.clone().acquire_owned());
    let turn =
        turn.await.map_err(|_| writes::problem_of(&Problem::late(), true, false))?.map_err(|_| Problem::draining())?;
    let cancel = server.stop_writes.with_deadline(Some(deadline));
    let written = tokio::task::spawn_blocking(move || {
        // The permit and the memory are held until the write ends. If the client disconnects, the write still
        // continues.
        let _held = (turn, memory);
        work(&collection, &bytes, &cancel).map_err(|problem| {
            let is_alone = server.writes.available_permits() + 1 == WRITES && !collection.is_merging();
            writes::problem_of(&problem, is_alone, collection.log_failure().is_some())
        })
    });
    let written = written.await.map_err(unwritable)??;
    let text = serde_json::to_vec(&written).map_err(unwritable)?;
    Ok(([(header::CONTENT_TYPE, JSON)], text).into_response())
}

/// Runs `work` on `bytes` bytes. If the bytes are many, other requests are not blocked meanwhile.
fn apart<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    if bytes > AT_ONCE_BYTES { tokio::task::block_in_place(work) } else { work() }
}

/// Returns the type of a body, which must be one of `known`.
fn content_type<'a>(headers: &HeaderMap, known: &[&'a str]) -> Result<&'a str, Problem> {
    let said = headers.get(header::CONTENT_TYPE).and_then(|said| said.to_str().ok()).unwrap_or_default();
    let said = said.split(';').next().unwrap_or_default().trim();
    known.iter().find(|known| said.eq_ignore_ascii_case(known)).copied().ok_or_else(|| {
        let refused = format!("the content type is {said:?}; send one of {}", known.join(", "));
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, refused)
    })
}

/// Queries of a request.
enum Queries {
    Vectors(Vectors, Reservation),
    /// Vectors of the rows with these ids.
    Names(Ids),
}

fn of_json(held: BodyBytes) -> Result<(Members, Queries), Problem> {
    let BodyBytes { bytes, memory } = held;
    let mut members: Members = json::object(&bytes, Members::EXAMPLE)?;
    drop(bytes);
    if members.element.is_some() {
        return Err(Problem::bad_request("element is for raw bodies; numbers in JSON are f32"));
    }
    let queries = match (members.queries.take(), members.like.take()) {
        (Some(_), Some(_)) => return Err(Problem::bad_request("queries and like are both given; give one of them")),
        (None, Some(like)) => Queries::Names(names_of("like", like)?),
        (queries, None) => Queries::Vectors(queries_of(queries)?, memory),
    };
    Ok((members, queries))
}

fn of_raw(server: &Server, held: BodyBytes, members: Members) -> Result<(Members, Queries), Problem> {
    let BodyBytes { bytes, memory } = held;
    let mut vectors = server.backend.facts().vectors;
    vectors.element = element_of(members.element.as_deref(), vectors.element)?;
    let rows = raw(vectors, &bytes)?;
    Ok((members, Queries::Vectors(Vectors { rows, kind: vectors, stored: bytes }, memory)))
}

fn of_arrow(server: &Server, held: BodyBytes, members: Members) -> Result<(Members, Queries), Problem> {
    let BodyBytes { bytes, mut memory } = held;
    if members.element.is_some() {
        return Err(Problem::bad_request("element is for raw bodies; a table states its own types"));
    }
    let table = ArrowTable::open(server.backend.context(), "the body", bytes)?;
    let (kind, rows) = (table.vectors(), queries_count(table.rows())?);
    let needed = rows as u64 * kind.bytes() as u64 + table.reading_bytes();
    memory.join(reserve(server.backend.clients(), needed, memory.bytes())?);
    let stored = table.read()?;
    drop(table);
    Ok((members, Queries::Vectors(Vectors { rows, kind, stored }, memory)))
}

/// Looks up the vectors of rows by id. A store or an index is scanned until all ids are found.
async fn look_up(server: &Server, names: Ids, deadline: Instant) -> Result<(Vectors, Reservation), Problem> {
    let (kind, rows) = (server.backend.facts().vectors, names.len());
    let memory = reserve(server.backend.clients(), rows as u64 * (RAW_TIMES * kind.bytes() as u64 + NAME_BYTES), 0)?;
    let found = in_turn(server, deadline, move |folder, context| {
        let found = folder.find(context, &names)?;
        let missing = found.missing().first().map(|&k| names.display(k, 0));
        Ok((missing, found.vectors(context)?))
    });
    let (missing, stored) = found.await?;
    if let Some(name) = missing {
        return Err(Problem::bad_request(format!("no row has the id {}", name.escape_debug())));
    }
    Ok((Vectors { rows, kind, stored }, memory))
}

/// Reads rows by id, one request at a time, on a thread that may block.
async fn in_turn<R: Send + 'static>(
    server: &Server,
    deadline: Instant,
    read: impl FnOnce(&Folder, &Context) -> Result<R, Error> + Send + 'static,
) -> Result<R, Problem> {
    let late = |_| Problem::late();
    let turn = tokio::time::timeout_at(deadline.into(), server.look_ups.clone().acquire_owned());
    let turn = turn.await.map_err(late)?.map_err(|_| Problem::draining())?;
    let (served, mut context) = (server.backend.served(), server.backend.context().clone());
    // The search is canceled at the deadline, since the client does not wait longer.
    context.cancel = context.cancel.with_deadline(Some(deadline));
    let found = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        // Waits for memory that searches hold only briefly. A collection needs no such memory, since it has a
        // directory of ids.
        let run = context.for_run(context.budget().total() / LOOK_UP_PART, "looking up rows by their ids");
        let context = match (served.folder(), run) {
            (Folder::Store(_) | Folder::Index(_), Ok(run)) => run,
            (_, Err(error)) if error.kind() == ErrorKind::Late => return Err(error),
            _ => context,
        };
        read(served.folder(), &context)
    });
    let found = tokio::time::timeout_at(deadline.into(), found).await.map_err(late)?.map_err(unwritable)?;
    found.map_err(Problem::from)
}

/// Returns the deadline of a request.
fn deadline_of(deadline_ms: Option<u64>, arrived: Instant) -> Result<Instant, Problem> {
    let deadline_ms = deadline_ms.unwrap_or(DEADLINE_MS);
    if !(1..=DEADLINE_MS_MAX).contains(&deadline_ms) {
        return Err(Problem::bad_request(format!("deadline_ms is {deadline_ms}; give 1 to {DEADLINE_MS_MAX}")));
    }
    Ok(arrived + Duration::from_millis(deadline_ms))
}

/// A search request without its queries.
struct SearchBody {
    search: SearchOptions,
    deadline: Instant,
}

impl SearchBody {
    fn of(server: &Server, members: &Members, arrived: Instant) -> Result<Self, Problem> {
        let search = search_options(members)?;
        let served = server.backend.served();
        // Only columns need a read.
        match search.columns.is_empty() {
            true => served.check(&search)?,
            false => tokio::task::block_in_place(|| served.check(&search))?,
        }
        Ok(Self { search, deadline: deadline_of(members.deadline_ms, arrived)? })
    }

    fn with(self, queries: Vectors, mut memory: Reservation) -> Request {
        let Self { search, deadline } = self;
        let Vectors { rows, kind: vectors, mut stored } = queries;
        // In the queue, a request holds only its queries, so the rest of the body's memory is released.
        stored.shrink_to_fit();
        memory.shrink(RAW_TIMES * stored.len() as u64);
        Request { search, vectors, rows, stored, deadline, _memory: memory }
    }
}

/// Formats the answer as JSON or Arrow, whichever the client accepts. Its memory is reserved until it is sent.
fn respond(server: &Server, headers: &HeaderMap, answer: &Answer) -> Result<Response, Problem> {
    let (bytes, held) = (answer.text_bytes(), answer.found.memory.bytes());
    let memory = reserve(server.backend.clients(), bytes, held)?;
    let (kind, text) = apart(bytes as usize, || match accepts_arrow(headers) {
        true => answer.to_arrow().map(|table| (ARROW, table)).map_err(unwritable),
        false => answer.to_json().map(|text| (JSON, text)).map_err(unwritable),
    })?;
    Ok(([(header::CONTENT_TYPE, kind)], Bytes::from_owner(Sent { text, _memory: memory })).into_response())
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
fn reserve(clients: &MemoryBudget, bytes: u64, held: u64) -> Result<Reservation, Problem> {
    let needed = bytes.saturating_add(held);
    let reserved = clients.reserve(bytes);
    reserved.map_err(|_| beyond(needed, clients))
}

/// Returns the problem for a request that needs `needed` bytes of the memory for clients if they are not free.
fn beyond(needed: u64, clients: &MemoryBudget) -> Problem {
    let all = clients.total();
    // If the request alone needs most of the memory, a retry would not help.
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
fn unwritable(error: impl std::fmt::Display) -> Problem {
    tracing::error!("an answer cannot be written: {error}");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be written because of a bug in the server")
}
