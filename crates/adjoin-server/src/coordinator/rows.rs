//! Rows of all shards by id, with vectors and columns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use adjoin::{Element, IdKind, Ids, OnMissing, VectorType, device::Reservation};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use arrow_select::interleave::interleave;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

use super::Coordinator;
use super::failure::Failures;
use super::hits::read_table;
use super::link::ShardRequest;
use super::routes::turn;
use super::scatter::{Gathered, gather_until, scatter};
use super::shard::CommonFacts;
use crate::body;
use crate::body_limits::{BodyBytes, Limits};
use crate::exchange::{ARROW, JSON, JSON_TIMES, apart, content_type, deadline_of, reserve, respond_rows, unwritable};
use crate::json::{self, Vectors};
use crate::problem::Problem;
use crate::request::names_of;
use crate::rows::{FetchedRows, RowsMembers};

/// Memory of an id: its text in the request to shards, and its place among the rows.
const ID_BYTES: u64 = 160;

/// Rows of a request that a shard has.
struct ShardRows {
    /// Ids and vectors, then the columns.
    table: RecordBatch,
    memory: Reservation,
}

/// Rows of all shards that were found, in the order of the ids of a request.
struct FoundRows {
    table: RecordBatch,
    memory: Reservation,
    /// First id that no shard has.
    missing: Option<String>,
    failures: Failures,
}

/// Answers a request for rows. It fails if a shard does, since only that shard may have a row.
pub(super) async fn rows(
    State(coordinator): State<Arc<Coordinator>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let arrived = Instant::now();
    content_type(&headers, &[JSON])?;
    let limits = Limits { bytes: coordinator.body_bytes, times: JSON_TIMES, clients: &coordinator.clients };
    let BodyBytes { bytes, memory } = body::read(&headers, body, &limits).await?;
    let members: RowsMembers = apart(bytes.len(), || json::object(&bytes, RowsMembers::EXAMPLE))?;
    drop(bytes);
    let (deadline, on_missing) = (deadline_of(members.deadline_ms, arrived)?, members.on_missing()?);
    let names = names_of("ids", members.ids)?;
    let until = gather_until(deadline, Instant::now());
    let _turn = turn(&coordinator, until).await?;
    let found = find(&coordinator, &names, until, false).await?;
    drop(memory);
    match found.missing {
        Some(name) if on_missing == OnMissing::Error => Err(missing(&name)),
        _ => respond_rows(&coordinator.clients, &headers, &FetchedRows::new(found.table, found.memory)),
    }
}

/// Looks up the vectors of rows by id.
///
/// # Errors
/// If no shard has one of the rows, or a shard fails that might have it.
pub(super) async fn look_up(
    coordinator: &Arc<Coordinator>,
    names: Ids,
    until: Instant,
    may_be_partial: bool,
) -> Result<(Vectors, Reservation), Problem> {
    let found = find(coordinator, &names, until, may_be_partial).await?;
    match found.missing {
        Some(_) if !found.failures.is_empty() => {
            return Err(found.failures.problem(coordinator.shards.len(), may_be_partial));
        }
        Some(name) => return Err(missing(&name)),
        None => {}
    }
    let kind = coordinator.common().vectors;
    let values = found.table.column(1).as_fixed_size_list().values().to_data();
    let bytes = kind.bytes() / kind.dimensions;
    let values = &values.buffers()[0].as_slice()[values.offset() * bytes..][..values.len() * bytes];
    Ok((Vectors { rows: found.table.num_rows(), kind, stored: values.to_vec() }, found.memory))
}

fn missing(name: &str) -> Problem {
    Problem::bad_request(format!("no row has the id {}", name.escape_debug()))
}

/// Finds rows in all shards.
async fn find(
    coordinator: &Arc<Coordinator>,
    names: &Ids,
    until: Instant,
    may_be_partial: bool,
) -> Result<FoundRows, Problem> {
    let clients = &coordinator.clients;
    let asking = reserve(clients, 6 * names.bytes() + ID_BYTES * names.len() as u64, 0)?;
    let left_ms = until.saturating_duration_since(Instant::now()).as_millis().max(1) as u64;
    let members = json!({"ids": texts_of(names), "on_missing": "skip", "deadline_ms": left_ms});
    let request = ShardRequest {
        method: Method::POST,
        path: "/v1/rows".into(),
        content_type: Some(JSON),
        accept: Some(ARROW),
        answer_bytes_max: u64::MAX,
        answered_bytes: Arc::default(),
        body: Bytes::from(members.to_string()),
    };
    let common = coordinator.common().clone();
    let read = Arc::new(move |body| read_rows(&common, body));
    let Gathered { answers, failures } = scatter(coordinator, request, until, may_be_partial, read).await?;
    let held: u64 = answers.iter().map(|(_, rows)| rows.memory.bytes()).sum();
    // Merged rows are as large as the answers of the shards, and vectors for a search are copied once more.
    let memory = reserve(clients, held, held)?;
    let (table, missing) = apart(held as usize, || merge(names, &answers))?;
    drop(asking);
    Ok(FoundRows { table, memory, missing, failures })
}

/// Returns ids as JSON values.
fn texts_of(ids: &Ids) -> Vec<Value> {
    match ids {
        Ids::Int64(ids) => ids.iter().map(|&id| id.into()).collect(),
        Ids::Utf8(texts) => (0..texts.len()).map(|k| String::from_utf8_lossy(texts.get(k)).into()).collect(),
        Ids::None => Vec::new(),
    }
}

fn read_rows(common: &CommonFacts, body: BodyBytes) -> Result<ShardRows, String> {
    let BodyBytes { bytes, mut memory } = body;
    let table = read_table(&bytes)?;
    // The table is a copy of at most this size.
    memory.shrink(bytes.len() as u64);
    let schema = table.schema();
    let kinds: Vec<&DataType> = schema.fields().iter().map(|field| field.data_type()).collect();
    let is_expected = match kinds[..] {
        [id, DataType::FixedSizeList(item, length), ..] => {
            id == common.ids.field("id").data_type()
                && *item.data_type() == kind_of(common.vectors)
                && usize::try_from(*length) == Ok(common.vectors.dimensions)
        }
        _ => false,
    };
    let has_nulls = table.columns().iter().take(2).any(|column| column.null_count() > 0);
    if !is_expected || has_nulls {
        return Err("its rows have other ids or vectors than the other shards".into());
    }
    Ok(ShardRows { table, memory })
}

fn kind_of(vectors: VectorType) -> DataType {
    match vectors.element {
        Element::F32 => DataType::Float32,
        Element::F16 => DataType::Float16,
        Element::U8 => DataType::UInt8,
        Element::I8 => DataType::Int8,
    }
}

/// Returns the rows in the order of `names`, and the first id without a row.
fn merge(names: &Ids, shards: &[(usize, ShardRows)]) -> Result<(RecordBatch, Option<String>), Problem> {
    let schema = shards.first().ok_or_else(|| unwritable("no shard"))?.1.table.schema();
    for (_, shard) in shards {
        let other = shard.table.schema();
        let kinds = |schema: &arrow_schema::Schema| -> Vec<_> {
            schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
        };
        if kinds(&other) != kinds(&schema) {
            let detail = "the rows of shards have different columns; build shards with equal columns";
            return Err(Problem::new(StatusCode::BAD_GATEWAY, detail));
        }
    }
    let (mut places, mut missing) = (Vec::with_capacity(names.len()), None);
    let known = places_by_id(names.kind(), shards);
    for (k, id) in texts_of(names).into_iter().enumerate() {
        match known.get(&id) {
            Some(&place) => places.push(place),
            None => drop(missing.get_or_insert_with(|| names.display(k, 0).to_string())),
        }
    }
    let column = |number: usize| {
        let of_shards: Vec<&dyn Array> = shards.iter().map(|(_, shard)| shard.table.column(number).as_ref()).collect();
        interleave(&of_shards, &places)
    };
    let columns = (0..schema.fields().len()).map(column).collect::<Result<Vec<_>, _>>().map_err(unwritable)?;
    Ok((RecordBatch::try_new(schema, columns).map_err(unwritable)?, missing))
}

/// Returns the shard and the row of each id. If several shards have an id, the first of them counts.
fn places_by_id(kind: IdKind, shards: &[(usize, ShardRows)]) -> HashMap<Value, (usize, usize)> {
    let mut known = HashMap::new();
    for (number, (_, shard)) in shards.iter().enumerate() {
        let ids = shard.table.column(0);
        for row in 0..ids.len() {
            let id: Value = match kind {
                IdKind::Utf8 => ids.as_string::<i32>().value(row).into(),
                IdKind::Int64 | IdKind::None => ids.as_primitive::<Int64Type>().value(row).into(),
            };
            known.entry(id).or_insert((number, row));
        }
    }
    known
}
