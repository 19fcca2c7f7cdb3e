//! Routes of a coordinator.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use adjoin::SearchOptions;
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use super::Coordinator;
use super::hits::{ExpectedHits, ShardHits};
use super::merge::{facts_of, merge};
use super::rows::{look_up, rows};
use super::scatter::{Gathered, gather_until, scatter};
use super::shard::ColumnFacts;
use super::shard_search::{request, request_bytes_max};
use crate::answer::{Answer, Coverage, ShardCoverage};
use crate::exchange::{JSON, apart, deadline_of, limits_of, reserve, respond, unwritable};
use crate::json::Members;
use crate::layers::layered;
use crate::metrics::Gauges;
use crate::problem::Problem;
use crate::queries::{Queries, QueryReader};
use crate::request::search_options;

/// Header of partial answers.
const PARTIAL_HEADER: &str = "adjoin-partial";

/// Builds the router.
pub(crate) fn router(coordinator: &Arc<Coordinator>) -> Router {
    let guarded = Router::new()
        .route("/v1/search", post(search))
        .route("/v1/rows", post(rows))
        .route("/v1/vectors", post(refuse_write))
        .route("/v1/vectors/delete", post(refuse_write))
        .route("/v1/info", get(info))
        .route("/metrics", get(metrics));
    let open = Router::new().route("/readyz", get(ready));
    layered(guarded, open, &coordinator.access, &coordinator.metrics).with_state(coordinator.clone())
}

/// Answers 503 if no shard is available. If some are, requests that accept partial answers succeed, and the others are
/// told which shard is missing; a load balancer that dropped all coordinators would turn one failed shard into an
/// outage.
async fn ready(State(coordinator): State<Arc<Coordinator>>) -> Response {
    if coordinator.is_draining.load(Ordering::Relaxed) {
        return Problem::draining().into_response();
    }
    let down: Vec<String> = coordinator
        .shards
        .iter()
        .filter_map(|shard| shard.down().map(|problem| format!("{}: {}", shard.url(), problem.detail)))
        .collect();
    if down.len() == coordinator.shards.len() {
        return Problem::unavailable(format!("no shard is available: {}", down.join("; "))).into_response();
    }
    let lines: String = down.iter().map(|line| format!("not available: {line}\n")).collect();
    format!("ready\n{lines}").into_response()
}

async fn metrics(State(coordinator): State<Arc<Coordinator>>) -> Response {
    let now = Gauges {
        budget_bytes: coordinator.context.memory_bytes(),
        waiting: 0,
        rows: coordinator.shards.iter().filter_map(|shard| shard.facts()).map(|facts| facts.rows).sum(),
        cache: None,
    };
    let text = coordinator.metrics.text(&now) + &super::metrics::text(&coordinator.shards);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn info(State(coordinator): State<Arc<Coordinator>>) -> Response {
    let (mut rows, mut columns, mut shards) = (0, None::<Vec<ColumnFacts>>, Vec::new());
    for shard in &coordinator.shards {
        let (facts, down) = (shard.facts(), shard.down());
        shards.push(json!({
            "shard": shard.url(),
            "available": facts.is_some() && down.is_none(),
            "kind": facts.as_ref().map(|facts| &facts.kind),
            "rows": facts.as_ref().map(|facts| facts.rows),
            "detail": down.map(|problem| problem.detail),
        }));
        let Some(facts) = facts else { continue };
        rows += facts.rows;
        // Hits can carry the columns that all shards have.
        match &mut columns {
            None => columns = Some(facts.columns),
            Some(columns) => columns.retain(|column| facts.columns.contains(column)),
        }
    }
    let common = coordinator.common();
    let info = json!({
        "kind": "coordinator",
        "rows": rows,
        "element": common.vectors.element,
        "dimensions": common.vectors.dimensions,
        "metric": common.metric,
        "ids": common.ids,
        "buckets": null,
        "sequence": null,
        "columns": columns.unwrap_or_default(),
        "limits": limits_of(coordinator.body_bytes),
        "version": env!("CARGO_PKG_VERSION"),
        "shards": shards,
    });
    ([(header::CONTENT_TYPE, JSON)], info.to_string()).into_response()
}

async fn refuse_write() -> Problem {
    Problem::bad_request("a coordinator does not write; send the write to the server of the shard that has the row")
}

/// Waits until a request to all shards may be sent.
///
/// # Errors
/// If that is not the case by `until`.
pub(super) async fn turn(coordinator: &Coordinator, until: Instant) -> Result<OwnedSemaphorePermit, Problem> {
    let turn = tokio::time::timeout_at(until.into(), coordinator.turns.clone().acquire_owned());
    match turn.await {
        Ok(turn) => turn.map_err(|_| Problem::draining()),
        Err(_) => Err(Problem::crowded("the shards are asked for other requests already; try again later", 1)),
    }
}

async fn search(
    State(coordinator): State<Arc<Coordinator>>,
    headers: HeaderMap,
    query: Result<Query<Members>, QueryRejection>,
    body: Body,
) -> Result<Response, Problem> {
    let arrived = Instant::now();
    let (clients, common) = (&coordinator.clients, coordinator.common());
    let reader = QueryReader {
        context: &coordinator.context,
        clients,
        vectors: common.vectors,
        body_bytes: coordinator.body_bytes,
    };
    let (members, queries) = reader.read(&headers, query, body).await?;
    let options = search_options(&members)?;
    let until = gather_until(deadline_of(members.deadline_ms, arrived)?, Instant::now());
    let _turn = turn(&coordinator, until).await?;
    let (vectors, memory) = match queries {
        Queries::Vectors(vectors, memory) => (vectors, memory),
        Queries::Names(names) => look_up(&coordinator, names, until, members.partial).await?,
    };
    if vectors.kind.dimensions != common.vectors.dimensions {
        let [given, stored] = [vectors.kind.dimensions, common.vectors.dimensions];
        return Err(Problem::bad_request(format!(
            "queries have {given} dimensions, the vectors of the shards {stored}"
        )));
    }
    let (count, columns) = (vectors.rows, options.columns.len());
    let k = match options.target {
        adjoin::QueryTarget::Nearest(k) => Some(k),
        adjoin::QueryTarget::Within(_) => None,
    };
    let expected = ExpectedHits { queries: count, k, metric: common.metric, ids: common.ids, columns };
    let elements = (count * vectors.kind.dimensions) as u64;
    let sending = reserve(clients, request_bytes_max(elements, &members), memory.bytes())?;
    let left_ms = until.saturating_duration_since(Instant::now()).as_millis().max(1) as u64;
    let sent = request(&members, &options, vectors, coordinator.shards.len(), left_ms).map_err(unwritable)?;
    let read = expected.clone();
    let read = Arc::new(move |body| ShardHits::read(&read, body));
    let gathered = scatter(&coordinator, sent, until, members.partial, read).await?;
    drop((memory, sending));
    let answer = merged(&coordinator, &expected, &options, gathered)?;
    coordinator.metrics.searched(count as u64, (answer.facts.bytes_per_query * count as f64) as u64);
    let is_partial = answer.facts.coverage.as_ref().is_some_and(|coverage| coverage.partial);
    let mut response = respond(clients, &headers, &answer)?;
    if is_partial {
        response.headers_mut().insert(PARTIAL_HEADER, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Merges the answers of shards.
fn merged(
    coordinator: &Coordinator,
    expected: &ExpectedHits,
    options: &SearchOptions,
    gathered: Gathered<ShardHits>,
) -> Result<Answer, Problem> {
    let Gathered { answers, failures } = gathered;
    let answers: Vec<(&str, ShardHits)> =
        answers.into_iter().map(|(number, hits)| (coordinator.shards[number].url(), hits)).collect();
    let bytes: u64 = answers.iter().map(|(_, hits)| hits.memory.bytes()).sum();
    let merging = || merge(expected, &options.columns, &answers, &coordinator.clients);
    let found = apart(bytes as usize, merging)?;
    let facts = facts_of(options.effort, &answers, failures.is_empty());
    let shards =
        ShardCoverage { total: coordinator.shards.len(), answered: answers.len(), failed: failures.reported() };
    let coverage = Some(Coverage { partial: !failures.is_empty(), shards });
    Ok(Answer { metric: expected.metric, found, facts: crate::answer::AnswerFacts { coverage, ..facts } })
}
