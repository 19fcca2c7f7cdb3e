//! Merges the hits of shards: the nearest of all, or all within a radius.

use std::sync::Arc;

use adjoin::{Ids, Metric, SearchEffort, device::MemoryBudget};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};
use arrow_select::interleave::interleave;
use axum::http::StatusCode;

use super::hits::{ExpectedHits, FIXED_COLUMNS, ShardHits};
use crate::answer::{AnswerFacts, PromisedRecall, RequestHits};
use crate::columns::Columns;
use crate::exchange::{reserve, unwritable};
use crate::problem::Problem;

/// Bytes of a merged hit without its id and columns, and of its place while it is sorted.
const HIT_BYTES: u64 = 48;
/// Bytes of the columns of a query, without their values.
const QUERY_BYTES: u64 = 1 << 10;

/// Place of a hit: its shard, and its row in the table of the shard.
type Place = (usize, usize);

/// Merges the hits of shards. Hits of equal values keep the order of the shards, so that shards with consecutive rows
/// give the hits of one folder with all rows.
///
/// # Errors
/// If the columns of shards differ, or the memory for clients does not hold the hits.
pub(crate) fn merge(
    expected: &ExpectedHits,
    names: &[String],
    shards: &[(&str, ShardHits)],
    clients: &MemoryBudget,
) -> Result<RequestHits, Problem> {
    let hits: u64 = shards.iter().map(|(_, shard)| shard.table.num_rows() as u64).sum();
    let held: u64 = shards.iter().map(|(_, shard)| shard.memory.bytes()).sum();
    let of_columns = if expected.columns > 0 { expected.queries as u64 * QUERY_BYTES } else { 0 };
    let memory = reserve(clients, held + hits * HIT_BYTES + of_columns, held)?;
    let mut columns = columns_of(names, shards)?.map(Columns::new);
    let (mut ends, mut values, mut ids) = (Vec::new(), Vec::new(), Ids::empty(expected.ids));
    for query in 0..expected.queries {
        let places = places_of(expected, shards, query);
        for &(shard, row) in &places {
            let hits = &shards[shard].1;
            values.push(hits.values()[row]);
            push_id(&mut ids, hits.table.column(2), row);
        }
        ends.push(values.len());
        if let Some(columns) = &mut columns {
            columns.push(interleaved(&columns.schema, shards, &places).map_err(unwritable)?);
        }
    }
    let rows = vec![0; values.len()]; // hits of shards have ids
    Ok(RequestHits { ends, rows, ids, values, columns, memory })
}

/// Returns the places of the hits of a query, nearest first.
fn places_of(expected: &ExpectedHits, shards: &[(&str, ShardHits)], query: usize) -> Vec<Place> {
    let mut places = Vec::new();
    for (number, (_, hits)) in shards.iter().enumerate() {
        let start = if query == 0 { 0 } else { hits.ends[query - 1] };
        places.extend((start..hits.ends[query]).map(|row| (number, row)));
    }
    let value = |&(shard, row): &Place| shards[shard].1.values()[row];
    // A stable sort, so that the order of the shards decides between equal values. -0 and 0 are equal.
    places.sort_by(|one, other| {
        let order = value(one).partial_cmp(&value(other)).unwrap_or(std::cmp::Ordering::Equal);
        if expected.metric == Metric::L2 { order } else { order.reverse() }
    });
    places.truncate(expected.k.map_or(usize::MAX, |k| usize::try_from(k).unwrap_or(usize::MAX)));
    places
}

fn push_id(ids: &mut Ids, column: &dyn Array, row: usize) {
    match ids {
        Ids::Int64(ids) => ids.push(column.as_primitive::<Int64Type>().value(row)),
        Ids::Utf8(texts) => texts.push(column.as_string::<i32>().value(row).as_bytes()),
        Ids::None => {}
    }
}

/// Returns the schema of the columns that hits carry, called `names`; `None` if they carry none.
fn columns_of(names: &[String], shards: &[(&str, ShardHits)]) -> Result<Option<SchemaRef>, Problem> {
    let Some((first, hits)) = shards.first().filter(|_| !names.is_empty()) else { return Ok(None) };
    let schema = hits.table.schema();
    let of_first = &schema.fields()[FIXED_COLUMNS..];
    for (url, other) in &shards[1..] {
        let schema = other.table.schema();
        for (field, expected) in schema.fields()[FIXED_COLUMNS..].iter().zip(of_first) {
            if (field.name(), field.data_type()) != (expected.name(), expected.data_type()) {
                let [found, expected] =
                    [field, expected].map(|field| format!("{} ({})", field.name(), field.data_type()));
                let detail =
                    format!("the column {found} of {url} is {expected} in {first}; build shards with equal columns");
                return Err(Problem::new(StatusCode::BAD_GATEWAY, detail));
            }
        }
    }
    // In a table of hits, a column has another name if it is called like one of the first columns.
    let name = |field: &Field| match field.name().strip_prefix("columns.") {
        Some(own) if !names.contains(field.name()) => own.to_owned(),
        _ => field.name().clone(),
    };
    let fields: Vec<Field> =
        of_first.iter().map(|field| Field::new(name(field), field.data_type().clone(), true)).collect();
    Ok(Some(Arc::new(Schema::new(fields))))
}

fn interleaved(
    schema: &SchemaRef,
    shards: &[(&str, ShardHits)],
    places: &[Place],
) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let column = |number: usize| {
        let of_shards: Vec<&dyn Array> = shards.iter().map(|(_, hits)| hits.table.column(number).as_ref()).collect();
        interleave(&of_shards, places)
    };
    let columns = (FIXED_COLUMNS..FIXED_COLUMNS + schema.fields().len()).map(column).collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(schema.clone(), columns)
}

/// Returns the recall to ask of each of `shards` shards, so that the union of their hits has the recall `target`.
///
/// A true hit that is missing in the union is missing in the hits of its shard. So the fractions that the shards miss
/// add up at worst, namely if all that they miss are among the nearest rows of all.
pub(crate) fn recall_of_shard(target: f64, shards: usize) -> f64 {
    if shards == 1 { target } else { 1.0 - (1.0 - target) / shards as f64 }
}

/// Returns the statistics of a merged answer. `is_whole` tells whether all shards with rows are among `shards`.
pub(crate) fn facts_of(effort: SearchEffort, shards: &[(&str, ShardHits)], is_whole: bool) -> AnswerFacts {
    let all = || shards.iter().map(|(_, shard)| &shard.facts);
    let max = |of: fn(&AnswerFacts) -> f64| all().map(of).fold(0.0, f64::max);
    let target = match effort {
        SearchEffort::Recall(target) => Some(target),
        SearchEffort::Exact => Some(1.0),
        SearchEffort::Probes(_) | SearchEffort::List(_) => None,
    };
    // Nothing is known about the rows of a shard that is missing.
    let low = target.filter(|_| is_whole).and_then(|_| {
        let missed = all().map(|facts| facts.recall.map(|recall| 1.0 - recall.low()));
        missed.sum::<Option<f64>>().map(|missed| (1.0 - missed).max(0.0))
    });
    AnswerFacts {
        recall: target.zip(low).map(|(target, low)| PromisedRecall::new(target, low)),
        batch_queries: all().map(|facts| facts.batch_queries).max().unwrap_or(0),
        probes_per_query: all().map(|facts| facts.probes_per_query).sum(),
        bytes_per_query: all().map(|facts| facts.bytes_per_query).sum(),
        distances_per_query: all().map(|facts| facts.distances_per_query).sum(),
        queue_ms: max(|facts| facts.queue_ms),
        search_ms: max(|facts| facts.search_ms),
        coverage: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::hits::tests::{EXPECTED, read};
    use super::*;

    fn merged(expected: &ExpectedHits, shards: &[&[(u32, i64, f32)]]) -> (Vec<usize>, Ids, Vec<f32>) {
        let clients = MemoryBudget::new(1 << 20);
        let shards: Vec<_> = shards.iter().map(|hits| ("http://a", read(hits).unwrap())).collect();
        let found = merge(expected, &[], &shards, &clients).unwrap();
        (found.ends, found.ids, found.values)
    }

    #[test]
    fn the_nearest_of_all_shards_are_kept_in_order() {
        let shards: [&[(u32, i64, f32)]; 3] =
            [&[(0, 1, 0.5), (0, 2, 3.0), (2, 3, 0.0)], &[(0, 4, 0.0), (0, 5, 0.5)], &[]];
        let (ends, ids, values) = merged(&EXPECTED, &shards);
        assert_eq!((ends, values), (vec![2, 2, 3], vec![0.0, 0.5, 0.0]));
        assert_eq!(ids, Ids::Int64(vec![4, 1, 3]), "shard 0 is before shard 1 if values are equal");
        let within = ExpectedHits { k: None, ..EXPECTED };
        assert_eq!(merged(&within, &shards).1, Ids::Int64(vec![4, 1, 5, 2, 3]));
    }

    #[test]
    fn hits_that_memory_does_not_hold_are_refused() {
        let shards = [("http://a", read(&[(0, 1, 0.5)]).unwrap())];
        let refused = merge(&EXPECTED, &[], &shards, &MemoryBudget::new(64)).err().unwrap();
        assert_eq!(refused.status, StatusCode::INSUFFICIENT_STORAGE);
    }

    /// Checks the bound on sets in which each shard misses the worst of its hits.
    #[test]
    fn the_promise_holds_for_the_union_at_worst() {
        for shards in [1, 2, 7, 64] {
            for target in [0.5, 0.9, 0.95, 0.999, 1.0] {
                let missed = shards as f64 * (1.0 - recall_of_shard(target, shards));
                assert!((1.0 - missed - target).abs() < 1e-12, "{shards} shards, {target}");
            }
        }
        let answered = |low: f64| {
            let mut hits = read(&[]).unwrap();
            hits.facts.recall = Some(PromisedRecall::new(0.975, low));
            ("http://a", hits)
        };
        let recall = |shards: &[(&str, ShardHits)], is_whole| {
            let facts = facts_of(SearchEffort::Recall(0.95), shards, is_whole);
            serde_json::to_value(facts.recall).unwrap()
        };
        let two = [answered(0.975), answered(0.98)];
        let promised = recall(&two, true);
        assert_eq!((&promised["target"], &promised["kept"]), (&0.95.into(), &true.into()));
        assert!((promised["low"].as_f64().unwrap() - 0.955).abs() < 1e-9);
        assert_eq!(recall(&[answered(0.975), answered(0.97)], true)["kept"], false);
        assert!(recall(&two, false).is_null(), "nothing is promised without a shard");
        assert!(recall(&[answered(0.975), ("http://b", read(&[]).unwrap())], true).is_null());
    }
}
