//! Hits of queries, and sinks for them.

use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, Float32Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};

use super::row_groups::Encoders;
use super::sink::{Discard, Written};
use super::table::{TableWriter, add_columns};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::mutex::lock;
use crate::base::options::Metric;
use crate::base::output::Target;
use crate::source::{IdKind, Ids};

/// Maximum number of hits that are written at once, and maximum bytes of their ids and of the ids of their queries.
const BATCH_HITS: usize = 8 << 10;
const BATCH_ID_BYTES: u64 = 128 << 10;
/// The memory of threads that encode the result is at most one part in this number of the memory that a search leaves
/// free, since batches of fewer queries would make the search slower.
const ENCODING_LEAST_PARTS: u64 = 8;
/// Most bytes of a result that stays in memory.
const SMALL_BYTES: usize = 1 << 20;

/// Hits of consecutive queries. The hits of a query are sorted, nearest first; ties are in the order of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct HitBatch {
    /// Row numbers of the queries.
    pub query_rows: Vec<u64>,
    /// Number of hits of the first query in earlier batches. A query may have more hits than fit into a batch.
    pub hits_before: u64,
    /// Ids of the queries, if any.
    pub query_ids: Ids,
    /// For each query, the end of its hits in the fields below.
    pub ends: Vec<usize>,
    /// Row numbers of the hits.
    pub rows: Vec<u64>,
    /// Ids of the hits, if the sink needs ids and the store has any.
    pub ids: Ids,
    /// Distances (L2, true) or similarities (cosine).
    pub values: Vec<f32>,
    /// Columns of the hits, if the search asks for any (`SearchOptions::columns`).
    pub columns: Option<RecordBatch>,
}

/// Facts about the hits, known before the first batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HitSchema {
    /// Kind of the queries' ids.
    pub query_ids: IdKind,
    /// Kind of the ids of the store.
    pub ids: IdKind,
    /// Metric, which determines the name of the value column.
    pub metric: Metric,
    /// Columns that hits carry. Empty unless the search requests columns.
    pub columns: SchemaRef,
}

impl HitBatch {
    /// Creates an empty batch with these kinds of ids of queries and hits.
    pub(crate) fn empty(query_ids: IdKind, ids: IdKind) -> Self {
        Self {
            query_rows: Vec::new(),
            hits_before: 0,
            query_ids: Ids::empty(query_ids),
            ends: Vec::new(),
            rows: Vec::new(),
            ids: Ids::empty(ids),
            values: Vec::new(),
            columns: None,
        }
    }
}

impl HitSchema {
    /// Returns the fields of a table of hits: `query`, `rank`, `id`, and `distance`, `similarity` or `score`, then
    /// the columns. A column whose name is taken by an earlier field, such as `rank`, is called `columns.rank`.
    pub fn fields(&self) -> Vec<Field> {
        let Self { query_ids, ids, metric, columns } = self;
        let rank = Field::new("rank", DataType::UInt32, false);
        let mut fields = vec![query_ids.field("query"), rank, ids.field("id"), metric.value_field()];
        add_columns(&mut fields, columns);
        fields
    }

    /// Creates the schema of hits without columns.
    pub(crate) fn of(query_ids: IdKind, ids: IdKind, metric: Metric) -> Self {
        Self { query_ids, ids, metric, columns: Arc::new(Schema::empty()) }
    }

    /// Returns the schema with these columns, if any.
    pub(crate) fn with_columns(self, columns: Option<SchemaRef>) -> Self {
        Self { columns: columns.unwrap_or(self.columns), ..self }
    }
}

/// Consumer of hits, in the order of the queries.
pub trait HitSink {
    /// Returns whether hits must include ids.
    fn wants_ids(&self) -> bool;

    /// Returns the maximum bytes that the sink holds. The search reserves them.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Reserves some of the memory that a search leaves free, so that the result is written faster. Called before the
    /// search begins.
    fn take_spare(&mut self, _search: &Context) {}

    /// Consumes the hits of some queries.
    ///
    /// # Errors
    /// If the hits cannot be stored. The search then ends.
    fn accept(&mut self, batch: &HitBatch) -> Result<()>;

    /// Completes the result, and makes it appear under its name.
    ///
    /// # Errors
    /// If the result cannot be stored.
    fn finish(self: Box<Self>) -> Result<Written>;
}

/// Writes hits: columns `query`, `rank` (from 1), `id`, and `distance`, `similarity` or `score`, then the columns
/// that the search requests. A column whose name is taken, such as `rank`, is called `columns.rank`.
///
/// The table is created when the first hits arrive, so that nothing is written to standard output if queries are
/// refused.
pub struct HitWriter<'a> {
    context: &'a Context,
    target: &'a Target,
    hits: HitSchema,
    /// Number of hits of the last query that were written so far.
    hits_of_query: u32,
    small: Option<SmallResult>,
    /// Threads that encode the table, if memory suffices for them.
    encoders: Option<Encoders>,
    table: Option<TableWriter>,
}

/// A result that stays in memory while it is small.
struct SmallResult {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    bytes: usize,
    /// Receives the batches at the end.
    to: Arc<Mutex<Option<Vec<RecordBatch>>>>,
}

impl<'a> HitWriter<'a> {
    /// Creates a writer. The table is created when the first hits arrive.
    pub fn new(context: &'a Context, target: &'a Target, hits: HitSchema) -> Self {
        Self { context, target, hits, hits_of_query: 0, small: None, encoders: None, table: None }
    }

    /// Writes no table if the result is small. `to` receives the result instead, in memory.
    #[must_use]
    pub fn keeping_small(self, to: Arc<Mutex<Option<Vec<RecordBatch>>>>) -> Self {
        let schema = Arc::new(Schema::new(self.hits.fields()));
        Self { small: Some(SmallResult { schema, batches: Vec::new(), bytes: 0, to }), ..self }
    }

    /// Returns the table, and creates it if necessary.
    fn table(&mut self) -> Result<&mut TableWriter> {
        if self.table.is_none() {
            let mut table = TableWriter::create(self.context, self.target, self.hits.fields())?;
            if let Some(encoders) = self.encoders.take() {
                table.encode_on(encoders);
            }
            self.table = Some(table);
        }
        Ok(self.table.as_mut().expect("the table was just created"))
    }

    fn write(&mut self, batch: &HitBatch, hits: &[(usize, usize, u32)]) -> Result<()> {
        let (mut query_ids, mut ids) = (Ids::empty(batch.query_ids.kind()), Ids::empty(batch.ids.kind()));
        for &(query, hit, _) in hits {
            query_ids.push_from(&batch.query_ids, query);
            ids.push_from(&batch.ids, hit);
        }
        let of = |row: fn(&(usize, usize, u32)) -> usize, rows: &[u64]| -> Vec<u64> {
            hits.iter().map(|hit| rows[row(hit)]).collect()
        };
        let mut columns = vec![
            query_ids.column(&of(|hit| hit.0, &batch.query_rows)),
            Arc::new(UInt32Array::from_iter_values(hits.iter().map(|hit| hit.2))),
            ids.column(&of(|hit| hit.1, &batch.rows)),
            Arc::new(Float32Array::from_iter_values(hits.iter().map(|hit| batch.values[hit.1]))) as _,
        ];
        // Hits are written in the order of the batch, so their columns are a slice of the columns of the batch.
        if let (Some(carried), Some(&(_, first, _))) = (&batch.columns, hits.first()) {
            columns.extend(carried.slice(first, hits.len()).columns().iter().cloned());
        } else {
            columns.extend(RecordBatch::new_empty(self.hits.columns.clone()).columns().iter().cloned());
        }
        self.write_columns(columns)
    }

    /// Keeps or writes some rows of the table. Once the result is not small anymore, all rows are written.
    fn write_columns(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        let Some(small) = &mut self.small else { return self.table()?.write(columns) };
        let batch =
            RecordBatch::try_new(small.schema.clone(), columns).expect("the columns have the types of the fields");
        small.bytes += batch.get_array_memory_size();
        small.batches.push(batch);
        if small.bytes <= SMALL_BYTES {
            return Ok(());
        }
        let batches = self.small.take().map_or_else(Vec::new, |small| small.batches);
        let table = self.table()?;
        batches.into_iter().try_for_each(|batch| table.write(batch.columns().to_vec()))
    }
}

impl HitSink for HitWriter<'_> {
    fn wants_ids(&self) -> bool {
        true
    }

    fn memory_bytes(&self) -> u64 {
        let HitSchema { query_ids, ids, columns, .. } = &self.hits;
        // Text columns need the most memory. So if there are texts or other columns, the memory of texts is assumed.
        let has_texts = [*query_ids, *ids].contains(&IdKind::Utf8) || !columns.fields().is_empty();
        let ids = if has_texts { IdKind::Utf8 } else { *ids };
        // A batch that makes the result too large has the bytes of a batch of the search in addition.
        let small = if self.small.is_some() { 2 * SMALL_BYTES as u64 } else { 0 };
        // If the extension is unknown, creating the table fails later.
        TableWriter::memory_bytes(self.target, ids).map_or(0, |bytes| bytes.written) + small
    }

    fn take_spare(&mut self, search: &Context) {
        self.encoders = Encoders::in_spare(search, &Fields::from(self.hits.fields()), ENCODING_LEAST_PARTS);
    }

    fn accept(&mut self, batch: &HitBatch) -> Result<()> {
        let mut some = Vec::with_capacity(BATCH_HITS.min(batch.rows.len()));
        let (mut start, mut id_bytes) = (0, 0);
        for (query, &end) in batch.ends.iter().enumerate() {
            // If the first query of a batch continues the last query of the previous batch, its ranks continue too.
            if query > 0 || batch.hits_before == 0 {
                self.hits_of_query = 0;
            }
            for hit in start..end {
                self.hits_of_query += 1;
                some.push((query, hit, self.hits_of_query));
                id_bytes += batch.query_ids.bytes_of(query) + batch.ids.bytes_of(hit);
                if some.len() == BATCH_HITS || id_bytes >= BATCH_ID_BYTES {
                    self.write(batch, &some)?;
                    some.clear();
                    id_bytes = 0;
                }
            }
            start = end;
        }
        self.write(batch, &some)
    }

    fn finish(mut self: Box<Self>) -> Result<Written> {
        if let Some(SmallResult { batches, to, .. }) = self.small {
            *lock(&to) = Some(batches);
            return Ok(Written::default());
        }
        // Creates the table even if there were no hits, so that a result always exists.
        self.table()?;
        self.table.map_or_else(|| Ok(Written::default()), TableWriter::finish)
    }
}

impl HitSink for Discard {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, _batch: &HitBatch) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}
