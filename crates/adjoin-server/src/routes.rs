//! Routes of the API, and the responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use adjoin::{
    Cancel, Collection, Context, Error, ErrorKind, Folder, Ids, SearchOptions, WriteReport, device::Reservation,
};
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::sync::{Semaphore, oneshot};

use crate::access::Access;
use crate::backend::{Backend, Lane};
use crate::body;
use crate::body_limits::{BodyBytes, Limits};
use crate::exchange::{
    DEADLINE_MS, JSON, JSON_TIMES, RAW_TIMES, apart, beyond, content_type, deadline_of, limits_of, reserve, respond,
    respond_rows, unwritable,
};
use crate::json::{self, Members, Vectors};
use crate::layers::layered;
use crate::metrics::{Gauges, Metrics};
use crate::problem::Problem;
use crate::queries::{Queries, QueryReader};
use crate::queue::{Job, Queue};
use crate::request::{Request, names_of, search_options};
use crate::rows::{FetchedRows, RowsMembers};
use crate::writes::{self, WRITE_TIMES};

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
    pub(crate) access: Arc<Access>,
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
        .route("/metrics", get(metrics));
    let open = Router::new().route("/readyz", get(ready));
    layered(guarded, open, &server.access, &server.metrics).with_state(server.clone())
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
    let mut info = serde_json::to_value(served.folder().facts()).map_err(unwritable)?;
    info["columns"] = attributes.into();
    info["limits"] = limits_of(server.body_bytes);
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
    let reader = QueryReader {
        context: server.backend.context(),
        clients: server.backend.clients(),
        vectors: server.backend.facts().vectors,
        body_bytes: server.body_bytes,
    };
    let (members, queries) = reader.read(&headers, query, body).await?;
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
    respond(server.backend.clients(), &headers, &answer)
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
    respond_rows(server.backend.clients(), &headers, &fetched)
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
