//! Results of searches.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use adjoin::{
    CommonStatistics, Context, Error, HitBatch, HitSchema, HitSink, HitWriter, NearestStatistics, Result,
    SearchStatistics, Target, Written,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use pyo3_arrow::PyRecordBatchReader;

use crate::join::{parquet_columns, stream};
use crate::options::json;
use crate::run::{lock, raised};

/// The result of a search.
#[pyclass(frozen)]
pub(crate) struct Found {
    stats: String,
    keeps_promises: bool,
    hits: StoredHits,
    queries: Queries,
}

/// Where the hits of a search are.
enum StoredHits {
    Memory(SchemaRef, Vec<RecordBatch>),
    /// In a temporary file.
    File(PathBuf),
}

impl StoredHits {
    /// Streams the hits.
    fn stream(&self) -> Result<PyRecordBatchReader> {
        match self {
            Self::Memory(schema, batches) => {
                let batches = batches.clone().into_iter().map(Ok);
                Ok(PyRecordBatchReader::new(Box::new(RecordBatchIterator::new(batches, schema.clone()))))
            }
            Self::File(file) => stream(file),
        }
    }

    /// Returns the columns of ids and of values, batch by batch.
    fn columns(&self) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>)> {
        match self {
            Self::Memory(schema, batches) if batches.is_empty() => {
                let empty = RecordBatch::new_empty(schema.clone());
                Ok((vec![empty.column(IDS).clone()], vec![empty.column(VALUES).clone()]))
            }
            Self::Memory(_, batches) => {
                let column = |place: usize| batches.iter().map(|batch| batch.column(place).clone()).collect();
                Ok((column(IDS), column(VALUES)))
            }
            Self::File(file) => columns_of(file),
        }
    }
}

/// Places of the columns of ids and of values in a table of hits.
const IDS: usize = 2;
const VALUES: usize = 3;

/// Data about the answered queries, in their order.
#[derive(Default)]
struct Queries {
    rows: Vec<u64>,
    /// Number of hits per query.
    counts: Vec<u64>,
}

/// Bytes held per query.
pub(crate) const QUERY_BYTES: u64 = 2 * size_of::<u64>() as u64;

/// A column of ids, and its type. The column is a buffer of little-endian integers, signed or unsigned, or a list of
/// texts.
pub(crate) type IdColumn<'py> = (Bound<'py, PyAny>, &'static str);

/// Writes hits to a file, and counts them per query.
struct Counted<'a> {
    writer: HitWriter<'a>,
    queries: Arc<Mutex<Queries>>,
}

impl HitSink for Counted<'_> {
    fn wants_ids(&self) -> bool {
        true
    }

    fn memory_bytes(&self) -> u64 {
        self.writer.memory_bytes()
    }

    fn take_spare(&mut self, search: &Context) {
        self.writer.take_spare(search);
    }

    fn accept(&mut self, batch: &HitBatch) -> Result<()> {
        let starts = std::iter::once(&0).chain(&batch.ends);
        let mut counts = starts.zip(&batch.ends).map(|(start, end)| (end - start) as u64);
        let mut queries = lock(&self.queries);
        let known = usize::from(batch.hits_before > 0);
        if batch.hits_before > 0 {
            let last = queries.counts.last_mut().expect("an earlier batch had the first hits of this query");
            *last += counts.next().unwrap_or(0);
        }
        queries.rows.extend(&batch.query_rows[known..]);
        queries.counts.extend(counts);
        drop(queries);
        self.writer.accept(batch)
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Box::new(self.writer).finish()
    }
}

/// Runs a search, and keeps its hits in memory if they are few. Otherwise they are written to a file.
pub(crate) fn into_memory_or_file(
    context: &Context,
    file: &Path,
    schema: HitSchema,
    search: impl FnOnce(Box<dyn HitSink + '_>) -> Result<SearchStatistics>,
) -> Result<Found> {
    let target = Target::File { path: file.to_owned(), force: false };
    let (small, fields) = (Arc::new(Mutex::new(None)), schema.fields());
    let writer = HitWriter::new(context, &target, schema).keeping_small(small.clone());
    let (statistics, queries) = counted(writer, search)?;
    let hits = match lock(&small).take() {
        Some(batches) => StoredHits::Memory(Arc::new(Schema::new(fields)), batches),
        None => StoredHits::File(file.to_owned()),
    };
    Found::new(&statistics, &statistics.common, hits, queries)
}

/// Searches for the neighbors of rows, and writes them to a file.
pub(crate) fn into_file(
    context: &Context,
    file: &Path,
    schema: HitSchema,
    search: impl FnOnce(Box<dyn HitSink + '_>) -> Result<NearestStatistics>,
) -> Result<Found> {
    let target = Target::File { path: file.to_owned(), force: false };
    let (statistics, queries) = counted(HitWriter::new(context, &target, schema), search)?;
    Found::new(&statistics, &statistics.common, StoredHits::File(file.to_owned()), queries)
}

/// Runs a search into `writer`. Returns its statistics, and the queries that it answered.
fn counted<S>(writer: HitWriter<'_>, search: impl FnOnce(Box<dyn HitSink + '_>) -> Result<S>) -> Result<(S, Queries)> {
    let queries = Arc::default();
    let statistics = search(Box::new(Counted { writer, queries: Arc::clone(&queries) }))?;
    let queries = std::mem::take(&mut *lock(&queries));
    Ok((statistics, queries))
}

impl Found {
    fn new(
        statistics: &impl serde::Serialize,
        common: &CommonStatistics,
        hits: StoredHits,
        queries: Queries,
    ) -> Result<Self> {
        let keeps_recall = common.recall.as_ref().is_none_or(|recall| recall.kept);
        let keeps_promises = keeps_recall && common.memory.kept != Some(false);
        Ok(Self { stats: json(statistics)?, keeps_promises, hits, queries })
    }
}

#[pymethods]
impl Found {
    /// Whether the hits are in memory, and not in a file.
    #[getter]
    fn in_memory(&self) -> bool {
        matches!(self.hits, StoredHits::Memory(..))
    }

    /// Statistics of the run as JSON.
    #[getter]
    fn stats(&self) -> &str {
        &self.stats
    }

    /// Whether the run stayed within its memory, and reached its recall.
    #[getter]
    fn keeps_promises(&self) -> bool {
        self.keeps_promises
    }

    /// Streams the hits in the Arrow format.
    fn hits(&self, py: Python<'_>) -> PyResult<PyRecordBatchReader> {
        self.hits.stream().map_err(|error| raised(py, &error))
    }

    /// Returns the number of hits per query, as little-endian u64.
    fn counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &little_endian(&self.queries.counts))
    }

    /// Returns the row number of each query in its set, as little-endian u64.
    fn rows<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &little_endian(&self.queries.rows))
    }

    /// Returns the ids of all hits with their type (`u8` or `i8` for integers of eight bytes, or `text`), and their
    /// values as f32.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<(IdColumn<'py>, Bound<'py, PyBytes>)> {
        let (ids, values) = py.detach(|| self.hits.columns()).map_err(|error| raised(py, &error))?;
        let values: Vec<u8> = values
            .iter()
            .flat_map(|values| values.as_primitive::<Float32Type>().values().iter().flat_map(|x| x.to_le_bytes()))
            .collect();
        Ok((id_column(py, &ids)?, PyBytes::new(py, &values)))
    }
}

/// Converts a column of ids, which is given in parts, for Python.
pub(crate) fn id_column<'py>(py: Python<'py>, ids: &[ArrayRef]) -> PyResult<IdColumn<'py>> {
    let kind = ids.first().map_or(DataType::UInt64, |ids| ids.data_type().clone());
    Ok(match kind {
        DataType::Utf8 => {
            let texts = PyList::empty(py);
            for ids in ids {
                ids.as_string::<i32>().iter().try_for_each(|id| texts.append(id))?;
            }
            (texts.into_any(), "text")
        }
        DataType::Int64 => {
            let of = |ids: &ArrayRef| ids.as_primitive::<Int64Type>().values().to_vec();
            let bytes: Vec<u8> = ids.iter().flat_map(of).flat_map(i64::to_le_bytes).collect();
            (PyBytes::new(py, &bytes).into_any(), "i8")
        }
        _ => {
            let of = |ids: &ArrayRef| ids.as_primitive::<UInt64Type>().values().to_vec();
            let bytes: Vec<u8> = ids.iter().flat_map(of).flat_map(u64::to_le_bytes).collect();
            (PyBytes::new(py, &bytes).into_any(), "u8")
        }
    })
}

fn little_endian(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Returns the columns of ids and of values of a file of hits, batch by batch.
fn columns_of(path: &Path) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>)> {
    let cannot = |error: ArrowError| Error::device(format!("cannot read {}: {error}", path.display()));
    let (mut ids, mut values) = (Vec::new(), Vec::new());
    // Only ids and values are read, since other columns of hits may be much larger.
    for batch in parquet_columns(path, Some(&[IDS, VALUES]))? {
        let batch = batch.map_err(&cannot)?;
        ids.push(batch.column(0).clone());
        values.push(batch.column(1).clone());
    }
    Ok((ids, values))
}
