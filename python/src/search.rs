//! Searches of stores and indexes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use adjoin::buckets::{QuerySet, SearchQueries, hit_schema, search as find};
use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::index::{self, Index as GraphIndex};
use adjoin::output::Target;
use adjoin::query::{EffortOptions, QuerySources, QueryTarget, SearchEffort, SearchOptions};
use adjoin::sink::{HitBatch, HitSchema, HitSink, HitWriter, Written};
use adjoin::source::VectorSource;
use adjoin::sql::Condition;
use adjoin::store::Store;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{ArrowError, DataType};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use pyo3_arrow::PyRecordBatchReader;

use crate::join::{parquet, stream};
use crate::options::{Resources, StoreOptions, json};
use crate::run::{Running, lock, raised};

/// Target and effort of a search of a store.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TargetHits {
    store: PathBuf,
    calibrate_with: Option<String>,
    k: Option<u64>,
    radius: Option<f64>,
    min_similarity: Option<f64>,
    recall: Option<f64>,
    exact: bool,
    nprobe: Option<u32>,
    condition: Option<String>,
}

/// The result of a search, with its hits in a temporary file.
#[pyclass(frozen)]
pub(crate) struct Found {
    stats: String,
    file: PathBuf,
    queries: Queries,
}

/// Data about the answered queries, in their order.
#[derive(Default)]
struct Queries {
    rows: Vec<u64>,
    /// Number of hits per query.
    counts: Vec<u64>,
}

/// Bytes held per query.
pub(crate) const QUERY_BYTES: u64 = 2 * size_of::<u64>() as u64;

/// Columns of hits: ids as little-endian integers, signed or unsigned, or as texts, and values as f32.
type Columns<'py> = (Bound<'py, PyAny>, &'static str, Bound<'py, PyBytes>);

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

    fn accept(&mut self, batch: &HitBatch) -> Result<()> {
        let starts = std::iter::once(&0).chain(&batch.ends);
        let mut counts = starts.zip(&batch.ends).map(|(start, end)| (end - start) as u64);
        let mut queries = lock(&self.queries);
        let known = usize::from(batch.hits_before > 0);
        if batch.hits_before > 0 {
            let last = queries.counts.last_mut().expect("its first hits came before");
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

/// Searches a store for queries from sources, or for its own rows if there are no sources, and writes the hits to a
/// file in `folder`.
#[pyfunction]
pub(crate) fn search(
    py: Python<'_>,
    sources: Vec<String>,
    wanted: TargetHits,
    store_options: StoreOptions,
    resources: Resources,
    folder: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Found> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    let file = folder.join("hits.parquet");
    running.run(py, |context| {
        let TargetHits { store, calibrate_with, k, radius, min_similarity, recall, exact, nprobe, condition } = wanted;
        let target = QueryTarget::of(k, radius, min_similarity)?;
        let effort = SearchEffort::try_from(EffortOptions { recall, exact, probes: nprobe, list: None })?;
        let condition = condition.as_deref().map(Condition::parse).transpose()?;
        let options = SearchOptions { filter: condition, ..SearchOptions::new(target, effort, store_options.seed()) };
        let store = Store::open(context, &store)?;
        let source = if sources.is_empty() { None } else { Some(store_options.open(context, &sources)?) };
        let queries = source.as_deref().map_or(QuerySet::Rows, QuerySet::Source);
        let like = calibrate_with.map(|source| store_options.open(context, &[source])).transpose()?;
        let sets = SearchQueries { queries, calibrate_with: like.as_deref() };
        into_file(context, &file, hit_schema(&store, queries), |sink| find(context, &store, sets, &options, sink))
    })
}

/// Runs a search and writes its hits to a file.
pub(crate) fn into_file<S: serde::Serialize>(
    context: &Context,
    file: &Path,
    schema: HitSchema,
    search: impl FnOnce(Box<dyn HitSink + '_>) -> Result<S>,
) -> Result<Found> {
    let target = Target::File { path: file.to_owned(), force: false };
    let queries = Arc::default();
    let writer = HitWriter::new(context, &target, schema);
    let statistics = search(Box::new(Counted { writer, queries: Arc::clone(&queries) }))?;
    let queries = std::mem::take(&mut *lock(&queries));
    Ok(Found { stats: json(&statistics)?, file: file.to_owned(), queries })
}

/// Target and effort of a search of an index.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct WantedOfIndex {
    calibrate_with: Option<String>,
    k: Option<u64>,
    radius: Option<f64>,
    min_similarity: Option<f64>,
    recall: Option<f64>,
    exact: bool,
    list: Option<usize>,
    condition: Option<String>,
}

impl WantedOfIndex {
    pub(crate) fn options(&self, seed: u64) -> Result<SearchOptions> {
        let Self { k, radius, min_similarity, recall, exact, list, .. } = *self;
        let target = QueryTarget::of(k, radius, min_similarity)?;
        let effort = SearchEffort::try_from(EffortOptions { recall, exact, probes: None, list })?;
        let mut options = SearchOptions::new(target, effort, seed);
        options.filter = self.condition.as_deref().map(Condition::parse).transpose()?;
        options.check().map(|()| options)
    }

    /// Opens the calibration queries, if given.
    pub(crate) fn like(&self, context: &Context, options: &StoreOptions) -> Result<Option<Arc<dyn VectorSource>>> {
        let open = |source: &String| options.open(context, std::slice::from_ref(source));
        self.calibrate_with.as_ref().map(open).transpose()
    }
}

/// An open index. Searches may run on any thread.
#[pyclass(frozen)]
pub(crate) struct Index(GraphIndex);

#[pymethods]
impl Index {
    #[new]
    fn open(py: Python<'_>, folder: PathBuf, resources: Resources) -> PyResult<Self> {
        let running = Running::new(&resources, None).map_err(|error| raised(py, &error))?;
        running.run(py, |context| GraphIndex::open(context, &folder)).map(Self)
    }

    /// Returns the metadata of the index as JSON.
    #[getter]
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        json(self.0.facts()).map_err(|error| raised(py, &error))
    }

    /// Searches for queries from sources, and writes the hits to a file in `folder`.
    fn search(
        &self,
        py: Python<'_>,
        sources: Vec<String>,
        asked: (WantedOfIndex, StoreOptions),
        resources: Resources,
        folder: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Found> {
        let (wanted, store_options) = asked;
        let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
        let file = folder.join("hits.parquet");
        running.run(py, |context| {
            let options = wanted.options(store_options.seed())?;
            let queries = store_options.open(context, &sources)?;
            let like = wanted.like(context, &store_options)?;
            let sets = QuerySources { queries: &*queries, calibrate_with: like.as_deref() };
            into_file(context, &file, index::hit_schema(self.0.facts(), &*queries), |sink| {
                index::search(context, &self.0, sets, &options, sink)
            })
        })
    }
}

#[pymethods]
impl Found {
    #[getter]
    fn stats(&self) -> &str {
        &self.stats
    }

    /// Streams the hits in the Arrow format.
    fn hits(&self, py: Python<'_>) -> PyResult<PyRecordBatchReader> {
        stream(&self.file).map_err(|error| raised(py, &error))
    }

    /// Returns the number of hits per query, as little-endian u64.
    fn counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &little_endian(&self.queries.counts))
    }

    /// Returns the row number of each query in its set, as little-endian u64.
    fn rows<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &little_endian(&self.queries.rows))
    }

    /// Returns ids and values of all hits, and the type of the ids: `u8`, `i8` (of eight bytes) or `text`.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Columns<'py>> {
        let (ids, values) = py.detach(|| columns_of(&self.file)).map_err(|error| raised(py, &error))?;
        let values: Vec<u8> = values
            .iter()
            .flat_map(|values| values.as_primitive::<Float32Type>().values().iter().flat_map(|x| x.to_le_bytes()))
            .collect();
        let kind = ids.first().map_or(DataType::UInt64, |ids| ids.data_type().clone());
        let (ids, kind) = match kind {
            DataType::Utf8 => {
                let texts = PyList::empty(py);
                for ids in &ids {
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
        };
        Ok((ids, kind, PyBytes::new(py, &values)))
    }
}

fn little_endian(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Returns the columns of ids and of values of a file of hits, batch by batch.
fn columns_of(path: &Path) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>)> {
    let cannot = |error: ArrowError| Error::device(format!("cannot read {}: {error}", path.display()));
    let (mut ids, mut values) = (Vec::new(), Vec::new());
    for batch in parquet(path)? {
        let batch = batch.map_err(&cannot)?;
        ids.push(batch.column(2).clone());
        values.push(batch.column(3).clone());
    }
    Ok((ids, values))
}
