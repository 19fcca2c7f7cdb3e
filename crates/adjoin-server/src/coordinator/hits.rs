//! Hits of one shard: an Arrow stream whose bytes are not trusted.

use std::panic::{AssertUnwindSafe, catch_unwind};

use adjoin::{IdKind, Metric, device::Reservation};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt32Type};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::MessageHeader;
use arrow_ipc::reader::StreamReader;
use arrow_schema::DataType;
use arrow_select::concat::concat_batches;

use crate::answer::{ANSWER_METADATA, AnswerFacts};
use crate::body_limits::BodyBytes;

/// Marker before the length of a message.
const MARKER: [u8; 4] = [0xFF; 4];
/// Number of columns of a table of hits before the columns that the request names: query, rank, id and value.
pub(super) const FIXED_COLUMNS: usize = 4;

/// Properties of the hits that a request asks for.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedHits {
    pub(crate) queries: usize,
    /// Maximum number of hits of a query; `None` for thresholds.
    pub(crate) k: Option<u64>,
    pub(crate) metric: Metric,
    pub(crate) ids: IdKind,
    /// Number of columns that the request asks for.
    pub(crate) columns: usize,
}

/// Hits of a shard, ordered by query and nearest first.
pub(crate) struct ShardHits {
    /// End of the hits of each query.
    pub(crate) ends: Vec<usize>,
    /// Query, rank, id and value, then the columns that the request asks for.
    pub(crate) table: RecordBatch,
    pub(crate) facts: AnswerFacts,
    pub(crate) memory: Reservation,
}

impl ShardHits {
    /// Returns the values of all hits.
    pub(crate) fn values(&self) -> &[f32] {
        self.table.column(FIXED_COLUMNS - 1).as_primitive::<Float32Type>().values()
    }

    /// Reads the answer of a shard.
    ///
    /// # Errors
    /// If it is not a table of the expected hits: returns the reason.
    pub(crate) fn read(expected: &ExpectedHits, body: BodyBytes) -> Result<Self, String> {
        let BodyBytes { bytes, mut memory } = body;
        let table = read_table(&bytes)?;
        // The table is a copy of at most this size.
        memory.shrink(bytes.len() as u64);
        drop(bytes);
        let facts =
            table.schema().metadata().get(ANSWER_METADATA).cloned().ok_or("it lacks the facts of the search")?;
        let facts = serde_json::from_str(&facts).map_err(|error| format!("the facts of the search: {error}"))?;
        let ends = check(expected, &table)?;
        Ok(Self { ends, table, facts, memory })
    }
}

/// Reads a table of any columns from an Arrow stream. It takes at most the memory of the stream.
///
/// # Errors
/// If the bytes are not a stream, or one with dictionaries or compressed buffers.
pub(super) fn read_table(bytes: &[u8]) -> Result<RecordBatch, String> {
    check_messages(bytes)?;
    // Arrow checks lengths and offsets, but panics on some combinations of types.
    let read = catch_unwind(AssertUnwindSafe(|| {
        let stream = StreamReader::try_new(bytes, None)?;
        let schema = stream.schema();
        let batches = stream.collect::<Result<Vec<_>, _>>()?;
        match &batches[..] {
            [batch] => Ok(batch.clone()),
            batches => concat_batches(&schema, batches),
        }
    }));
    let read = read.map_err(|_| "it is not a valid Arrow stream".to_owned())?;
    read.map_err(|error| format!("it is not a valid Arrow stream: {error}"))
}

/// Checks the headers of all messages, so that no header makes the reader allocate more bytes than the stream has.
fn check_messages(bytes: &[u8]) -> Result<(), String> {
    let cut = || "its Arrow stream is cut off".to_owned();
    let number = |at: &[u8]| at.first_chunk().map(|bytes| u32::from_le_bytes(*bytes) as usize).ok_or_else(cut);
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = rest.strip_prefix(&MARKER).unwrap_or(rest);
        let length = number(rest)?;
        if length == 0 {
            return Ok(());
        }
        let header = rest.get(4..).and_then(|rest| rest.get(..length)).ok_or_else(cut)?;
        let message = arrow_ipc::root_as_message(header).map_err(|_| "it is not an Arrow stream".to_owned())?;
        let is_plain = match message.header_type() {
            MessageHeader::Schema => true,
            // The length of a compressed buffer is not known before it is decompressed.
            MessageHeader::RecordBatch => {
                message.header_as_record_batch().is_some_and(|batch| batch.compression().is_none())
            }
            _ => false,
        };
        if !is_plain {
            return Err("its Arrow stream has dictionaries or compressed buffers".into());
        }
        let body = usize::try_from(message.bodyLength()).map_err(|_| cut())?;
        rest = rest[4 + length..].get(body..).ok_or_else(cut)?;
    }
    Ok(())
}

/// Checks the columns, the order and the number of hits. Returns the end of the hits of each query.
fn check(expected: &ExpectedHits, table: &RecordBatch) -> Result<Vec<usize>, String> {
    let schema = table.schema();
    let names = ["query", "rank", "id", expected.metric.value_field().name().as_str()].map(str::to_owned);
    let kinds = [DataType::UInt32, DataType::UInt32, expected.ids.field("id").data_type().clone(), DataType::Float32];
    if table.num_columns() != FIXED_COLUMNS + expected.columns {
        let wanted = FIXED_COLUMNS + expected.columns;
        return Err(format!("its table has {} columns, {wanted} are expected", table.num_columns()));
    }
    for ((field, column), (name, kind)) in schema.fields().iter().zip(table.columns()).zip(names.iter().zip(&kinds)) {
        if field.name() != name || field.data_type() != kind || column.null_count() > 0 {
            let (found, found_kind) = (field.name(), field.data_type());
            return Err(format!("its table has the column {found} of type {found_kind}, {name} of {kind} is expected"));
        }
    }
    let queries = table.column(0).as_primitive::<UInt32Type>().values();
    let values = table.column(FIXED_COLUMNS - 1).as_primitive::<Float32Type>().values();
    if !queries.is_sorted() || queries.last().is_some_and(|&last| last as usize >= expected.queries) {
        return Err("the queries of its hits are not in order".into());
    }
    let ends: Vec<usize> =
        (0..expected.queries).map(|query| queries.partition_point(|&at| at as usize <= query)).collect();
    let mut start = 0;
    for &end in &ends {
        let of_query = &values[start..end];
        let is_ordered = match expected.metric {
            Metric::L2 => of_query.is_sorted(),
            Metric::Cosine | Metric::Ip => of_query.iter().rev().is_sorted(),
        };
        // A NaN is not ordered, except if it is alone.
        if !is_ordered || of_query.iter().any(|value| value.is_nan()) {
            return Err("the hits of a query are not ordered by their values".into());
        }
        if expected.k.is_some_and(|k| of_query.len() as u64 > k) {
            return Err(format!("it returned {} hits of a query", of_query.len()));
        }
        start = end;
    }
    Ok(ends)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use adjoin::device::MemoryBudget;
    use arrow_array::{ArrayRef, Float32Array, Int64Array, UInt32Array};
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
    use proptest::prelude::*;

    use super::*;

    pub(crate) const EXPECTED: ExpectedHits =
        ExpectedHits { queries: 3, k: Some(2), metric: Metric::L2, ids: IdKind::Int64, columns: 0 };

    /// Returns a table of hits, each with its query, id and distance.
    pub(crate) fn table(hits: &[(u32, i64, f32)]) -> RecordBatch {
        let columns: [(&str, ArrayRef); 4] = [
            ("query", Arc::new(UInt32Array::from_iter_values(hits.iter().map(|hit| hit.0)))),
            ("rank", Arc::new(UInt32Array::from_iter_values(hits.iter().map(|_| 1)))),
            ("id", Arc::new(Int64Array::from_iter_values(hits.iter().map(|hit| hit.1)))),
            ("distance", Arc::new(Float32Array::from_iter_values(hits.iter().map(|hit| hit.2)))),
        ];
        let facts = serde_json::to_string(&AnswerFacts::default()).unwrap();
        let table = RecordBatch::try_from_iter(columns).unwrap();
        let metadata = HashMap::from([(ANSWER_METADATA.to_owned(), facts)]);
        let schema = table.schema().as_ref().clone().with_metadata(metadata);
        table.with_schema(Arc::new(schema)).unwrap()
    }

    fn stream(table: &RecordBatch, options: IpcWriteOptions) -> Vec<u8> {
        let mut stream = StreamWriter::try_new_with_options(Vec::new(), &table.schema(), options).unwrap();
        stream.write(table).unwrap();
        stream.into_inner().unwrap()
    }

    pub(crate) fn read(hits: &[(u32, i64, f32)]) -> Result<ShardHits, String> {
        read_bytes(stream(&table(hits), IpcWriteOptions::default()))
    }

    fn read_bytes(bytes: Vec<u8>) -> Result<ShardHits, String> {
        let memory = MemoryBudget::new(1 << 20).reserve(bytes.len() as u64).unwrap();
        ShardHits::read(&EXPECTED, BodyBytes { bytes, memory })
    }

    #[test]
    fn hits_are_split_by_query() {
        let hits = read(&[(0, 7, 0.5), (0, -7, 0.5), (2, 9, f32::INFINITY)]).unwrap();
        assert_eq!((hits.ends.as_slice(), hits.values()), (&[2, 2, 3][..], &[0.5, 0.5, f32::INFINITY][..]));
        assert_eq!(read(&[]).unwrap().ends, [0, 0, 0]);
    }

    #[test]
    fn unexpected_hits_are_refused() {
        for (hits, words) in [
            (&[(1, 0, 0.0), (0, 1, 0.0)][..], "queries"),
            (&[(3, 0, 0.0)], "queries"),
            (&[(0, 0, 1.0), (0, 1, 0.5)], "not ordered"),
            (&[(0, 0, f32::NAN)], "not ordered"),
            (&[(0, 0, 1.0), (0, 1, 1.0), (0, 2, 1.0)], "3 hits of a query"),
        ] {
            let refused = read(hits).err().unwrap();
            assert!(refused.contains(words), "{hits:?}: {refused}");
        }
        let good = table(&[(0, 0, 0.0)]);
        let schema = good.schema().as_ref().clone().with_metadata(HashMap::new());
        let bare = RecordBatch::try_new(Arc::new(schema), good.columns().to_vec()).unwrap();
        let lz4 = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
        for (bytes, words) in [
            (stream(&good.project(&[0, 1, 2]).unwrap(), IpcWriteOptions::default()), "3 columns, 4 are expected"),
            (stream(&good.project(&[0, 1, 3, 2]).unwrap(), IpcWriteOptions::default()), "id of Int64 is expected"),
            (stream(&bare, IpcWriteOptions::default()), "lacks the facts"),
            (stream(&good, lz4), "compressed"),
            (b"<html>".to_vec(), "cut off"),
            (Vec::new(), "not a valid Arrow stream"),
            (vec![0; 8], "not a valid Arrow stream"),
        ] {
            let refused = read_bytes(bytes).err().unwrap();
            assert!(refused.contains(words), "{words}: {refused}");
        }
    }

    proptest! {
        /// Checks that damaged answers are read or refused.
        #[test]
        fn no_answer_panics(at in 0..900usize, byte in any::<u8>(), cut in 0..1_000usize) {
            let mut bytes = stream(&table(&[(0, 1, 0.5), (1, 2, 0.5)]), IpcWriteOptions::default());
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(500)));
            let _ = read_bytes(bytes);
        }
    }
}
