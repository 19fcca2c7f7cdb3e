//! Answers to requests, with hits and statistics of the search: as JSON, or as a table in an Arrow stream.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use adjoin::{
    HitSchema, IdKind, Ids, Metric, RecallStatistics, Result, SearchStatistics, ServedHits, device::Reservation,
};
use arrow_array::{Float32Array, RecordBatch, UInt32Array};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use serde::{Deserialize, Serialize};

use crate::columns::{ColumnTexts, Columns};

/// Maximum bytes of a hit as JSON, without a text id: member names, a number of 20 digits, and a float.
const TEXT_BYTES_OF_HIT: u64 = 72;
/// Maximum bytes of JSON per byte of a text id. A control character is escaped to six bytes.
const TEXT_BYTES_OF_BYTE: u64 = 6;
/// Maximum bytes of an answer in addition to its hits, and maximum bytes per query.
const TEXT_BYTES: u64 = 2_048;
const TEXT_BYTES_OF_QUERY: u64 = 4;

/// Key of the metadata of a table of hits whose value has the other members of the answer as JSON.
pub(crate) const ANSWER_METADATA: &str = "adjoin";

/// Hits of the queries of a request.
pub(crate) struct RequestHits {
    /// For each query, the end of its hits in the fields below.
    pub(crate) ends: Vec<usize>,
    pub(crate) rows: Vec<u64>,
    pub(crate) ids: Ids,
    pub(crate) values: Vec<f32>,
    /// Columns of the hits, if the request asks for any.
    pub(crate) columns: Option<Columns>,
    /// Reservation for the fields above.
    pub(crate) memory: Reservation,
}

/// Statistics of an answer: averages over the queries that were searched together.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct AnswerFacts {
    /// The promised recall and its lower bound; null if the request gave a number of probes instead of a recall.
    pub(crate) recall: Option<PromisedRecall>,
    /// Number of queries that were searched together.
    pub(crate) batch_queries: u64,
    pub(crate) probes_per_query: Option<f64>,
    pub(crate) bytes_per_query: f64,
    pub(crate) distances_per_query: f64,
    pub(crate) queue_ms: f64,
    pub(crate) search_ms: f64,
    /// Shards that were searched; `None` if the server searches a folder.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) coverage: Option<Coverage>,
}

/// Shards that an answer covers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Coverage {
    /// Whether the rows of some shards are missing.
    pub(crate) partial: bool,
    pub(crate) shards: ShardCoverage,
}

/// Numbers of shards, and the failed ones.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ShardCoverage {
    pub(crate) total: usize,
    pub(crate) answered: usize,
    pub(crate) failed: Vec<ShardFailure>,
}

/// Shard that did not answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ShardFailure {
    /// Address of the shard.
    pub(crate) shard: String,
    pub(crate) status: u16,
    pub(crate) detail: String,
}

impl AnswerFacts {
    /// Returns the statistics of a finished search.
    pub(crate) fn of(statistics: &SearchStatistics) -> Self {
        let SearchStatistics { common, search } = statistics;
        Self {
            recall: common.recall.as_ref().and_then(PromisedRecall::of),
            batch_queries: search.queries,
            probes_per_query: search.probes_per_query,
            bytes_per_query: search.bytes_per_query,
            distances_per_query: search.distances_per_query,
            queue_ms: 0.0,
            search_ms: common.seconds.total * 1e3,
            coverage: None,
        }
    }

    /// Adds one of the `queries` queries of a request.
    pub(crate) fn add(&mut self, hits: &ServedHits, queries: usize) {
        let share = 1.0 / queries as f64;
        self.recall = hits.recall.as_ref().and_then(PromisedRecall::of);
        // The queries of a request may be answered in several parts of a batch. The size of the largest part is
        // reported.
        self.batch_queries = self.batch_queries.max(hits.together.into());
        *self.probes_per_query.get_or_insert(0.0) += share * hits.probes as f64;
        self.bytes_per_query += share * hits.read_bytes as f64;
        self.distances_per_query += share * hits.looked_at as f64;
    }
}

/// Recall promised for queries that are distributed like the rows of the folder.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct PromisedRecall {
    /// The target.
    target: f64,
    /// Lower bound at 95 % confidence.
    low: f64,
    /// Whether the bound reaches the target.
    kept: bool,
}

impl PromisedRecall {
    /// Creates the promise of a target for which `low` is a lower bound.
    pub(crate) fn new(target: f64, low: f64) -> Self {
        // The bound is a sum, which may be rounded down.
        Self { target, low, kept: low + 1e-9 >= target }
    }

    /// Returns the lower bound.
    pub(crate) fn low(self) -> f64 {
        self.low
    }

    /// Extracts the promise from a search's statistics.
    fn of(recall: &RecallStatistics) -> Option<Self> {
        recall.at_k.map(|at_k| Self { target: recall.target, low: at_k.low, kept: recall.kept })
    }
}

/// Hits of a request, and statistics of the search.
pub(crate) struct Answer {
    pub(crate) metric: Metric,
    pub(crate) found: RequestHits,
    pub(crate) facts: AnswerFacts,
}

impl Answer {
    /// Returns the maximum size of the answer as text, in bytes.
    pub(crate) fn text_bytes(&self) -> u64 {
        let RequestHits { ends, rows, ids, columns, .. } = &self.found;
        let of_columns = columns.as_ref().map_or(0, Columns::text_bytes);
        let of_ids = if ids.kind() == IdKind::Utf8 { TEXT_BYTES_OF_BYTE * ids.bytes() } else { 0 };
        let failed = self.facts.coverage.iter().flat_map(|coverage| &coverage.shards.failed);
        let of_failed = failed.map(|failure| TEXT_BYTES + TEXT_BYTES_OF_BYTE * failure.detail.len() as u64);
        TEXT_BYTES
            + of_failed.sum::<u64>()
            + TEXT_BYTES_OF_QUERY * ends.len() as u64
            + TEXT_BYTES_OF_HIT * rows.len() as u64
            + of_ids
            + of_columns
    }

    /// Writes the answer as JSON.
    ///
    /// # Errors
    /// If Arrow cannot write a column as JSON. This does not happen for columns that folders can keep.
    pub(crate) fn to_json(&self) -> std::result::Result<Vec<u8>, ArrowError> {
        // Exactly this number of bytes is reserved in the memory for clients, so the text must not grow beyond it.
        let mut text = Vec::with_capacity(self.text_bytes() as usize);
        let name = self.metric.value_field().name().clone();
        text.extend_from_slice(b"{\"hits\":[");
        let RequestHits { ends, rows, ids, values, columns, .. } = &self.found;
        let mut columns = columns.as_ref().map(ColumnTexts::new);
        let mut start = 0;
        for (query, &end) in ends.iter().enumerate() {
            text.extend_from_slice(if query == 0 { b"[" } else { b",[" });
            for hit in start..end {
                text.extend_from_slice(if hit == start { b"{\"id\":" } else { b",{\"id\":" });
                write_id(&mut text, ids, hit, rows[hit]);
                // The debug format prints the fewest digits that identify the value. JSON cannot represent an
                // infinite distance.
                let _ = match values[hit] {
                    value if value.is_finite() => write!(text, ",\"{name}\":{value:?}"),
                    _ => write!(text, ",\"{name}\":null"),
                };
                if let Some(columns) = &mut columns {
                    text.extend_from_slice(b",\"columns\":");
                    columns.write_next(&mut text)?;
                }
                text.push(b'}');
            }
            text.push(b']');
            start = end;
        }
        text.extend_from_slice(b"],");
        let facts = serde_json::to_vec(&self.facts).unwrap_or_default();
        text.extend_from_slice(facts.get(1..).unwrap_or(b"}")); // members of the same object
        Ok(text)
    }

    /// Writes the hits as a table with the columns `query` (its number in the request), `rank` (from 1), `id`, and
    /// `distance`, `similarity` or `score`, then the columns of the hits, named as in files of hits. The other
    /// members of the answer are in the metadata of the table ([`ANSWER_METADATA`]).
    ///
    /// # Errors
    /// If Arrow returns an error, which it does not for columns of equal length.
    pub(crate) fn to_arrow(&self) -> std::result::Result<Vec<u8>, ArrowError> {
        let RequestHits { ends, rows, ids, values, columns: carried, .. } = &self.found;
        let (mut queries, mut ranks, mut start) = (Vec::new(), Vec::new(), 0);
        for (query, &end) in (0u32..).zip(ends) {
            queries.extend((start..end).map(|_| query));
            ranks.extend((1u32..).take(end - start));
            start = end;
        }
        let whole = |name| Field::new(name, DataType::UInt32, false);
        let mut fields = vec![whole("query"), whole("rank"), ids.kind().field("id"), self.metric.value_field()];
        let mut columns = vec![
            Arc::new(UInt32Array::from(queries)) as _,
            Arc::new(UInt32Array::from(ranks)) as _,
            ids.column(rows),
            Arc::new(Float32Array::from(values.clone())) as _,
        ];
        if let Some(Columns { schema, parts, .. }) = carried {
            let (query_ids, ids, metric) = (IdKind::None, ids.kind(), self.metric);
            let named = HitSchema { query_ids, ids, metric, columns: schema.clone() };
            fields.extend(named.fields().split_off(fields.len()));
            columns.extend(concat_batches(schema, parts)?.columns().iter().cloned());
        }
        let facts = serde_json::to_string(&self.facts).unwrap_or_default(); // cannot fail for numbers and texts
        let metadata = HashMap::from([(ANSWER_METADATA.to_owned(), facts)]);
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        let mut stream = StreamWriter::try_new(Vec::new(), &schema)?;
        stream.write(&RecordBatch::try_new(schema, columns)?)?;
        stream.into_inner()
    }
}

/// Writes the id of a hit, or its row number if rows have no ids.
fn write_id(text: &mut Vec<u8>, ids: &Ids, hit: usize, row: u64) {
    // Writing to a vector cannot fail.
    let _ = match ids {
        Ids::Utf8(texts) => serde_json::to_writer(text, &String::from_utf8_lossy(texts.get(hit))).map_err(Into::into),
        Ids::Int64(ids) => write!(text, "{}", ids[hit]),
        Ids::None => write!(text, "{row}"),
    };
}

/// Hits of one query: a range of the hits of a batch.
pub(crate) struct QueryHits<'a> {
    pub(crate) rows: &'a [u64],
    /// Ids of all hits of the batch. `first_id` is the position of this query's first id.
    pub(crate) ids: &'a Ids,
    pub(crate) first_id: usize,
    pub(crate) values: &'a [f32],
    pub(crate) columns: Option<RecordBatch>,
}

impl RequestHits {
    /// Returns an empty set of hits.
    pub(crate) fn none(ids: IdKind, memory: Reservation) -> Self {
        Self { ends: Vec::new(), rows: Vec::new(), ids: Ids::empty(ids), values: Vec::new(), columns: None, memory }
    }

    /// Reopens the last query, so that the hits added next belong to it.
    pub(crate) fn reopen(&mut self) {
        self.ends.pop();
    }

    /// Adds the hits of a query. Calls `reserve` with the bytes of these hits and with the bytes that are already
    /// held.
    ///
    /// # Errors
    /// If the memory for clients is too small for the hits.
    pub(crate) fn push(
        &mut self,
        QueryHits { rows, ids, first_id, values, columns }: QueryHits<'_>,
        reserve: impl FnOnce(u64, u64) -> Result<Reservation>,
    ) -> Result<()> {
        let before = self.held_bytes();
        self.rows.extend_from_slice(rows);
        self.values.extend_from_slice(values);
        if *ids != Ids::None {
            (first_id..first_id + rows.len()).for_each(|k| self.ids.push_from(ids, k));
        }
        self.ends.push(self.rows.len());
        if let Some(columns) = columns {
            self.columns.get_or_insert_with(|| Columns::new(columns.schema())).push(columns);
        }
        let more = reserve(self.held_bytes() - before, self.memory.bytes())?;
        self.memory.join(more);
        Ok(())
    }

    /// Returns the bytes of all hits, including the spare capacity of growing vectors.
    fn held_bytes(&self) -> u64 {
        let of_columns = self.columns.as_ref().map_or(0, Columns::held_bytes);
        2 * (8 * self.ends.len() as u64 + 12 * self.rows.len() as u64 + self.ids.held_bytes()) + of_columns
    }
}

#[cfg(test)]
mod tests {
    use adjoin::device::MemoryBudget;
    use serde_json::{Value, json};

    use super::*;

    fn answer(ids: Ids) -> Answer {
        let memory = MemoryBudget::new(1).reserve(0).unwrap();
        let (ends, rows, values) = (vec![2, 2, 3], vec![7, 8, 9], vec![0.0, 1.5, 1e-7]);
        let found = RequestHits { ends, rows, ids, values, columns: None, memory };
        let facts = AnswerFacts {
            recall: None,
            batch_queries: 4,
            probes_per_query: Some(2.0),
            bytes_per_query: 100.0,
            distances_per_query: 5.0,
            queue_ms: 1.0,
            search_ms: 2.0,
            coverage: None,
        };
        Answer { metric: Metric::L2, found, facts }
    }

    #[test]
    fn json_hits_fit_the_reserved_bytes() {
        let numbered: Value = serde_json::from_slice(&answer(Ids::None).to_json().unwrap()).unwrap();
        assert_eq!(numbered["hits"][0], json!([{"id": 7, "distance": 0.0}, {"id": 8, "distance": 1.5}]));
        assert_eq!((&numbered["hits"][1], &numbered["batch_queries"]), (&json!([]), &json!(4)));
        let named = Ids::Int64(vec![i64::MIN, 0, i64::MAX]);
        assert_eq!(
            serde_json::from_slice::<Value>(&answer(named).to_json().unwrap()).unwrap()["hits"][2][0]["id"],
            i64::MAX
        );
        let texts = answer(["a\"b", "\u{1}\u{2}", "é"].into_iter().collect());
        let text = texts.to_json().unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap()["hits"][0][0]["id"], "a\"b");
        assert!(text.len() as u64 <= texts.text_bytes());
    }

    #[test]
    fn hits_carry_columns_as_objects_and_in_tables() {
        let columns: [(&str, arrow_array::ArrayRef); 3] = [
            ("id", Arc::new(arrow_array::StringArray::from(vec![Some("a\n\"\u{1}"), None, Some("")]))),
            ("year", Arc::new(arrow_array::Int64Array::from(vec![Some(i64::MIN), Some(2), None]))),
            ("real", Arc::new(arrow_array::Float64Array::from(vec![f64::MIN, f64::MIN_POSITIVE, -0.0]))),
        ];
        let table =
            RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
        let mut carried = Columns::new(table.schema());
        [(0, 1), (1, 0), (1, 2)].into_iter().for_each(|(first, rows)| carried.push(table.slice(first, rows)));
        let mut answer = answer(Ids::None);
        answer.found.columns = Some(carried);
        let text = answer.to_json().unwrap();
        assert!(text.len() as u64 <= answer.text_bytes());
        let hits = serde_json::from_slice::<Value>(&text).unwrap()["hits"].take();
        assert_eq!(hits[0][0]["columns"], json!({"id": "a\n\"\u{1}", "year": i64::MIN, "real": f64::MIN}));
        assert_eq!(hits[0][1]["columns"], json!({"id": null, "year": 2, "real": f64::MIN_POSITIVE}));
        assert_eq!(hits[2][0], json!({"id": 9, "distance": 1e-7, "columns": {"id": "", "year": null, "real": -0.0}}));
        let stream = answer.to_arrow().unwrap();
        let mut tables = arrow_ipc::reader::StreamReader::try_new(&stream[..], None).unwrap();
        let found = tables.next().unwrap().unwrap();
        let names: Vec<String> = found.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["query", "rank", "id", "distance", "columns.id", "year", "real"]);
        assert_eq!(found.columns()[4..], table.columns()[..]);
    }

    #[test]
    fn arrow_hits_are_a_table_with_query_and_rank() {
        let stream = answer(Ids::None).to_arrow().unwrap();
        let tables = arrow_ipc::reader::StreamReader::try_new(&stream[..], None).unwrap();
        let tables: Vec<RecordBatch> = tables.collect::<std::result::Result<_, _>>().unwrap();
        let [table] = &tables[..] else { panic!("{} tables", tables.len()) };
        let column = |name: &str| {
            format!("{:?}", table.column_by_name(name).unwrap().to_data().buffers()[0].typed_data::<u32>())
        };
        assert_eq!([column("query"), column("rank")], ["[0, 0, 2]", "[1, 2, 1]"]);
        assert_eq!(table.schema().field(3).name(), "distance");
    }
}
