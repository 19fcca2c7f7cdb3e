//! Collections: vectors that can be inserted, deleted and searched.

use std::path::PathBuf;
use std::sync::Arc;

use adjoin::{
    Attribute, Collection as Live, CollectionOptions, Condition, Durability, IdKind, Ids, Result, Target, VectorSource,
    VectorType, Write,
};
use pyo3::prelude::*;

use crate::open_folder::OpenFolder;
use crate::options::{IndexRequest, Resources, StoreOptions, json};
use crate::run::{Running, raised};

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
        Live::create(&adjoin::Context::default(), &folder, &options)
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
            Self::Texts(ids) => ids.iter().collect(),
        }
    }
}

/// Sources of rows to write, and the options for reading them; `None` if there are none.
type Rows = Option<(Vec<String>, StoreOptions)>;

fn durability(buffered: bool) -> Durability {
    if buffered { Durability::Buffered } else { Durability::Group }
}

/// A handle for writes to an open collection.
#[pyclass(frozen)]
pub(crate) struct Collection(pub(crate) Arc<OpenFolder>);

#[pymethods]
impl Collection {
    /// Returns the size of the collection and the cost of its writes since it was opened, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.with_collection(|live| json(&live.statistics()?))).map_err(|error| raised(py, &error))
    }

    /// Deletes rows, then writes the rows of sources. Applies everything or nothing. Returns a report as JSON.
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
            self.0.with_collection(|live| {
                let open = |rows: Rows| rows.map(|(files, options)| options.open(context, &files)).transpose();
                let (insert, upsert) = (open(rows.0)?, open(rows.1)?);
                let delete = delete.into_ids(live.manifest().ids);
                let [insert, upsert] =
                    [&insert, &upsert].map(|rows| rows.as_deref().map(|rows| rows as &dyn VectorSource));
                json(&live.write(&Write { delete: Some(&delete), insert, upsert }, durability(buffered))?)
            })
        })
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
            self.0.with_collection(|live| json(&live.delete_where(&condition, durability(buffered))?))
        })
    }

    /// Merges rows in memory into the index on disk. Returns a report as JSON.
    fn merge(&self, py: Python<'_>, resources: Resources, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
        running.run(py, |context| self.0.with_collection(|live| json(&live.merge(context)?)))
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
        running
            .run(py, |context| self.0.with_collection(|live| Ok(target.write_vectors(context, &live.snapshot())?.rows)))
    }

    /// Copies the current state of the collection to a folder. Returns the size of the copy as JSON.
    fn backup(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        force: bool,
        resources: Resources,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
        running.run(py, |context| {
            self.0.with_collection(|live| json(&Live::backup(context, live.folder(), &folder, force)?))
        })
    }

    /// Makes all writes durable and returns the number of the last one.
    fn flush(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.0.with_collection(Live::flush)).map_err(|error| raised(py, &error))
    }

    /// Makes all writes durable, and lets another process write.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.0.check_creator().map_err(|error| raised(py, &error))?;
        let (counted, closed) = py.detach(|| self.0.close());
        drop(counted);
        closed.map_err(|error| raised(py, &error))
    }
}
