//! Collections: vectors that can be inserted, deleted and searched.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use adjoin::collection::{
    Attribute, AttributeValue, Collection as Live, CollectionOptions, CollectionRow, Durability, Merger, MergerOptions,
    Write, backup,
};
use adjoin::context::Context;
use adjoin::device::Creator;
use adjoin::error::{Error, Result};
use adjoin::locks::check_creator;
use adjoin::options::{VectorType, parse_bytes};
use adjoin::output::Target;
use adjoin::query::QuerySources;
use adjoin::sink::write_vectors;
use adjoin::source::{IdKind, Ids, TextIds, VectorSource};
use adjoin::sql::Condition;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::Value;
use crate::options::{IndexRequest, Resources, StoreOptions, json};
use crate::run::{Counted, Running, raised};
use crate::search::{Found, WantedOfIndex, into_file};

/// Properties of a new collection.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct WantedLive {
    dimensions: usize,
    element: String,
    metric: String,
    ids: String,
    /// Columns, each as `name:type`.
    columns: Vec<String>,
}

/// Creates an empty collection.
#[pyfunction]
pub(crate) fn create_live(
    py: Python<'_>,
    folder: PathBuf,
    wanted: WantedLive,
    index: IndexRequest,
    seed: u64,
) -> PyResult<()> {
    let create = || {
        let index = index.options(seed)?;
        let vectors = VectorType { element: wanted.element.parse()?, dimensions: wanted.dimensions };
        let attributes = wanted.columns.iter().map(|text| text.parse()).collect::<Result<Vec<Attribute>>>()?;
        let (metric, ids) = (wanted.metric.parse()?, kind_of(&wanted.ids));
        let options = CollectionOptions { vectors, metric, ids, attributes, index };
        Live::create(&adjoin::context::Context::default(), &folder, &options)
    };
    create().map_err(|error| raised(py, &error))
}

fn kind_of(ids: &str) -> IdKind {
    if ids == "text" { IdKind::Utf8 } else { IdKind::Int64 }
}

/// Ids passed from Python.
#[derive(FromPyObject)]
pub(crate) enum SomeIds {
    Integers(Vec<i64>),
    Texts(Vec<String>),
}

impl SomeIds {
    /// Converts the ids to ids of the engine. An empty list gets the given kind.
    pub(crate) fn into_ids(self, kind: IdKind) -> Ids {
        match self {
            Self::Integers(ids) if ids.is_empty() => Ids::empty(kind),
            Self::Integers(ids) => Ids::Int64(ids),
            Self::Texts(all) => {
                let mut ids = TextIds::default();
                all.iter().for_each(|id| ids.push(id.as_bytes()));
                Ids::Utf8(ids)
            }
        }
    }
}

/// Sources of new rows, and options for reading them.
type Rows = Option<(Vec<String>, StoreOptions)>;

/// A vector and its columns; dates are days and timestamps microseconds.
type Row<'py> = (Bound<'py, PyBytes>, Vec<Option<Value>>);

fn value_of(value: AttributeValue) -> Option<Value> {
    match value {
        AttributeValue::Null => None,
        AttributeValue::Text(text) => Some(Value::Text(text)),
        AttributeValue::Int64(integer) | AttributeValue::Timestamp(integer) => Some(Value::Integer(integer)),
        AttributeValue::Float64(float) => Some(Value::Float(float)),
        AttributeValue::Bool(truth) => Some(Value::Bool(truth)),
        AttributeValue::Date(days) => Some(Value::Integer(days.into())),
    }
}

fn durability(buffered: bool) -> Durability {
    if buffered { Durability::Buffered } else { Durability::Group }
}

/// An open collection, until it is closed.
#[pyclass(frozen)]
pub(crate) struct Collection {
    creator: Creator,
    folder: PathBuf,
    open: RwLock<Option<Open>>,
}

struct Open {
    live: Arc<Live>,
    /// `None` without automatic merges.
    merger: Option<(Merger, Counted)>,
}

impl Open {
    /// Starts automatic merges, if requested.
    fn start(live: Live, merge_at: Option<&str>, context: &Context) -> Result<(Arc<Live>, Option<Merger>)> {
        let live = Arc::new(live);
        let usual = MergerOptions::of(context);
        let options = match merge_at {
            None => return Ok((live, None)),
            Some("auto") => usual,
            Some(size) => MergerOptions { at_bytes: parse_bytes(size)?, ..usual },
        };
        let merger = Merger::start(&live, options)?;
        Ok((live, Some(merger)))
    }

    /// Closes the collection. Returns the value that a thread with the interpreter's lock must drop.
    fn close(self) -> (Option<Counted>, Result<()>) {
        let Self { live, merger } = self;
        let counted = merger.map(|(merger, counted)| {
            drop(merger);
            counted
        });
        (counted, Arc::into_inner(live).map_or(Ok(()), Live::close))
    }
}

impl Collection {
    /// Calls `work` with the open collection.
    fn with<R>(&self, work: impl FnOnce(&Live) -> Result<R>) -> Result<R> {
        self.check_creator()?;
        let live = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let open = live.as_ref().ok_or_else(|| Error::input("the collection was closed; open it again"))?;
        work(&open.live)
    }

    /// Returns an error in a forked child, before any lock is touched: a thread that the child does not have may hold
    /// it.
    fn check_creator(&self) -> Result<()> {
        check_creator(self.creator, self.folder.display())
    }
}

#[pymethods]
impl Collection {
    #[new]
    fn open(
        py: Python<'_>,
        folder: PathBuf,
        read_only: bool,
        merge_at: Option<String>,
        resources: Resources,
    ) -> PyResult<Self> {
        let running = Running::new(&resources, None).map_err(|error| raised(py, &error))?;
        let open = if read_only { Live::open_read_only } else { Live::open };
        let merge_at = merge_at.filter(|_| !read_only);
        let counted = merge_at.is_some().then(|| running.counted());
        let open = |context: &Context| Open::start(open(context, &folder)?, merge_at.as_deref(), context);
        let (live, merger) = running.run(py, open)?;
        let opened = Open { live, merger: merger.zip(counted) };
        Ok(Self { creator: Creator::this_process(), folder, open: RwLock::new(Some(opened)) })
    }

    /// Returns the metadata and the size of the collection, as two JSON objects.
    #[getter]
    fn info(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let told = self.with(|live| Ok((json(&live.manifest())?, json(&live.facts())?)));
        told.map_err(|error| raised(py, &error))
    }

    /// Returns the size of the collection and the cost of its writes since it was opened, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.with(|live| json(&live.statistics()?))).map_err(|error| raised(py, &error))
    }

    /// Deletes rows, then writes rows of sources, all or nothing. Returns a report as JSON.
    fn write(
        &self,
        py: Python<'_>,
        rows: (Rows, Rows),
        delete: SomeIds,
        buffered: bool,
        resources: Resources,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
        running.run(py, |context| {
            self.with(|live| {
                let open = |rows: Rows| rows.map(|(files, options)| options.open(context, &files)).transpose();
                let (insert, upsert) = (open(rows.0)?, open(rows.1)?);
                let delete = delete.into_ids(live.manifest().ids);
                let [insert, upsert] =
                    [&insert, &upsert].map(|rows| rows.as_deref().map(|rows| rows as &dyn VectorSource));
                json(&live.write(&Write { delete: Some(&delete), insert, upsert }, durability(buffered))?)
            })
        })
    }

    /// Returns the vectors of some ids as stored; `None` for unknown ids.
    fn get<'py>(&self, py: Python<'py>, ids: SomeIds) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let found = py.detach(|| self.with(|live| live.get(&ids.into_ids(live.manifest().ids))));
        let found = found.map_err(|error| raised(py, &error))?;
        Ok(found.into_iter().map(|vector| vector.map(|vector| PyBytes::new(py, &vector))).collect())
    }

    /// Returns the vectors and columns of some ids; `None` for unknown ids.
    fn get_rows<'py>(&self, py: Python<'py>, ids: SomeIds) -> PyResult<Vec<Option<Row<'py>>>> {
        let found = py.detach(|| self.with(|live| live.get_rows(&ids.into_ids(live.manifest().ids))));
        let found = found.map_err(|error| raised(py, &error))?;
        let row = |CollectionRow { vector, attributes }: CollectionRow| {
            (PyBytes::new(py, &vector), attributes.into_iter().map(value_of).collect())
        };
        Ok(found.into_iter().map(|found| found.map(row)).collect())
    }

    /// Deletes the rows that pass a filter. Returns a report as JSON.
    fn delete_where(
        &self,
        py: Python<'_>,
        condition: String,
        buffered: bool,
        resources: Resources,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
        running.run(py, |_| {
            let condition = Condition::parse(&condition)?;
            self.with(|live| json(&live.delete_where(&condition, durability(buffered))?))
        })
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
            self.with(|live| {
                into_file(context, &file, live.hit_schema(&*queries), |sink| {
                    let sets = QuerySources { queries: &*queries, calibrate_with: like.as_deref() };
                    live.search(context, sets, &options, sink)
                })
            })
        })
    }

    /// Merges rows in memory into the index on disk. Returns a report as JSON.
    fn merge(&self, py: Python<'_>, resources: Resources, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
        running.run(py, |context| self.with(|live| json(&live.merge(context)?)))
    }

    /// Writes the current rows to a file and returns their number.
    fn snapshot(
        &self,
        py: Python<'_>,
        path: PathBuf,
        force: bool,
        resources: Resources,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
        let target = Target::File { path, force };
        running.run(py, |context| self.with(|live| Ok(write_vectors(context, &live.snapshot(), &target)?.rows)))
    }

    /// Copies the collection as it is now to a folder. Returns the content of the copy as JSON.
    fn backup(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        force: bool,
        resources: Resources,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
        running.run(py, |context| self.with(|live| json(&backup(context, live.folder(), &folder, force)?)))
    }

    /// Makes all writes durable and returns the number of the last one.
    fn flush(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.with(Live::flush)).map_err(|error| raised(py, &error))
    }

    /// Makes all writes durable, and lets another process write.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check_creator().map_err(|error| raised(py, &error))?;
        let (counted, closed) = py.detach(|| {
            let live = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
            live.map_or((None, Ok(())), Open::close)
        });
        drop(counted);
        closed.map_err(|error| raised(py, &error))
    }
}
