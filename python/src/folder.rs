//! Open stores, indexes and collections, and their searches.

use std::path::PathBuf;
use std::sync::Arc;

use adjoin::{
    ClosedFolder, Condition, Context, EffortOptions, Error, Folder as Opened, FolderKind, IdKind, Index, OnMissing,
    QueryTarget, Result, SearchEffort, SearchOptions, SearchQueries, Store, VectorSource,
};
use pyo3::prelude::*;
use serde_json::{Value, json as object};

use crate::collection::{Collection, SomeIds};
use crate::open_folder::{OpenFolder, Opening};
use crate::options::{Resources, StoreOptions, json, plain_context};
use crate::queries::GivenQueries;
use crate::rows::Rows;
use crate::run::{Running, raised};
use crate::search::{Found, into_memory_or_file};

/// Target and effort of a search.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SearchArguments {
    calibrate_with: Option<String>,
    k: Option<u64>,
    radius: Option<f64>,
    min_similarity: Option<f64>,
    recall: Option<f64>,
    exact: bool,
    nprobe: Option<u32>,
    list: Option<usize>,
    condition: Option<String>,
    columns: Vec<String>,
}

impl SearchArguments {
    fn options(&self, seed: u64) -> Result<SearchOptions> {
        let Self { k, radius, min_similarity, recall, exact, nprobe: probes, list, .. } = *self;
        let target = QueryTarget::of(k, radius, min_similarity)?;
        let effort = SearchEffort::try_from(EffortOptions { recall, exact, probes, list })?;
        let mut options = SearchOptions::new(target, effort, seed);
        options.filter = self.condition.as_deref().map(Condition::parse).transpose()?;
        options.columns.clone_from(&self.columns);
        options.check().map(|()| options)
    }

    /// Opens the calibration queries, if given.
    fn calibrate_with(&self, context: &Context, options: &StoreOptions) -> Result<Option<Arc<dyn VectorSource>>> {
        let open = |source: &String| options.open(context, std::slice::from_ref(source));
        self.calibrate_with.as_ref().map(open).transpose()
    }
}

/// Copies a store, an index or a collection. Returns the size of the copy as JSON.
#[pyfunction]
pub(crate) fn copy_folder(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    force: bool,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| json(&adjoin::Folder::copy(context, &source, &target, force)?))
}

/// Returns the kind of a folder: `store`, `index` or `collection`.
#[pyfunction]
pub(crate) fn kind_of(py: Python<'_>, folder: PathBuf) -> PyResult<&'static str> {
    let closed = ClosedFolder::read(&plain_context(), &folder).map_err(|error| raised(py, &error))?;
    Ok(closed.kind().name())
}

/// An open store, index or collection. Searches may run on any thread.
#[pyclass(frozen)]
pub(crate) struct Folder(Arc<OpenFolder>);

#[pymethods]
impl Folder {
    #[new]
    fn open(py: Python<'_>, path: PathBuf, opening: Opening, resources: Resources) -> PyResult<Self> {
        let running = Running::new(&resources, None).map_err(|error| raised(py, &error))?;
        let counted = running.counted();
        let (folder, merger) = running.run(py, |context| opening.open(context, &path))?;
        let merger = merger.map(|merger| (merger, counted));
        Ok(Self(Arc::new(OpenFolder::new(path, running.context().clone(), folder, merger))))
    }

    /// Returns a handle for writes to a collection.
    fn collection(&self) -> Collection {
        Collection(self.0.clone())
    }

    /// Returns the manifest and the current properties as one JSON object.
    #[getter]
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        let info = self.0.with(|folder| {
            let mut info = match folder {
                Opened::Store(store) => object!(store.manifest()),
                Opened::Index(index) => object!(index.facts()),
                Opened::Collection(live) => object!(live.manifest()),
            };
            if let (Value::Object(info), Value::Object(facts)) = (&mut info, object!(folder.facts())) {
                info.extend(facts);
            }
            Ok(info.to_string())
        });
        info.map_err(|error| raised(py, &error))
    }

    /// Returns the names of the columns.
    fn columns(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let named = self.0.with(Opened::attributes).map_err(|error| raised(py, &error))?;
        Ok(named.into_iter().map(|(name, _)| name).collect())
    }

    /// Searches for queries, or for the rows of a store if there are none. A large result is written to `file`.
    fn search(
        &self,
        py: Python<'_>,
        queries: GivenQueries,
        asked: (SearchArguments, StoreOptions),
        resources: Resources,
        file: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Found> {
        let ((wanted, store_options), open) = (asked, self.0.clone());
        let running = Running::sharing(open.context(), &resources, progress).map_err(|error| raised(py, &error))?;
        running.run_short(py, move |context| {
            let context = &file.parent().map_or_else(|| context.clone(), |folder| context.clone().or_temporary(folder));
            let options = wanted.options(store_options.seed())?;
            let _of_queries = context.reserve_between_runs(queries.memory_bytes(), "the queries")?;
            let source = queries.open(context, &store_options)?;
            let calibrate_with = wanted.calibrate_with(context, &store_options)?;
            let queries = SearchQueries { source: source.as_deref(), calibrate_with: calibrate_with.as_deref() };
            open.with(|folder| {
                into_memory_or_file(context, &file, folder.hit_schema(queries, &options)?, |sink| {
                    folder.search(context, queries, &options, sink)
                })
            })
        })
    }

    /// Fetches rows by id, in the order of the ids. If no row has an id, it is skipped with `skip_missing`; otherwise
    /// it is an error.
    fn get(
        &self,
        py: Python<'_>,
        ids: SomeIds,
        skip_missing: bool,
        resources: Resources,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Rows> {
        let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
        running.run(py, |context| {
            self.0.with(|folder| {
                let kind = folder.facts().ids;
                let ids = ids.into_ids(if kind == IdKind::None { IdKind::Int64 } else { kind });
                let run = folder.fetching_run(context, &ids)?;
                let found = folder.find(&run, &ids)?;
                let on_missing = if skip_missing { OnMissing::Skip } else { OnMissing::Error };
                found.check_missing(&ids, on_missing)?;
                Ok(Rows(found.table(&run)?))
            })
        })
    }

    /// Verifies every byte of the folder on disk. Returns the names of files that do not belong to it as JSON.
    fn verify(&self, py: Python<'_>, resources: Resources, progress: Option<Py<PyAny>>) -> PyResult<String> {
        let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
        let (path, kind) = (self.0.path(), self.0.kind());
        running.run(py, |context| {
            let (damage, count, leftovers, strangers) = match kind {
                FolderKind::Store => {
                    let report = Store::verify(context, path)?;
                    let damage = report.damages.first().map(ToString::to_string);
                    (damage, report.damage_count, report.leftovers, report.strangers)
                }
                FolderKind::Index => {
                    let report = Index::verify(context, path)?;
                    let damage = report.damages.first().map(ToString::to_string);
                    (damage, report.damage_count, report.leftovers, report.strangers)
                }
                FolderKind::Collection => {
                    let report = adjoin::Collection::verify(context, path)?;
                    let index = report.index.unwrap_or_default();
                    let damage = index.damages.first().map(ToString::to_string);
                    (damage, index.damage_count, report.leftovers, report.strangers)
                }
            };
            match damage {
                None => json(&object!({"leftovers": leftovers, "strangers": strangers})),
                Some(damage) => {
                    let at = path.display();
                    Err(Error::corrupt(format!("{at} is damaged in {count} places; the first is {damage}")))
                }
            }
        })
    }
}
