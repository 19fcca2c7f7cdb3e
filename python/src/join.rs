//! A join, and what is made of its pairs afterwards.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::join::{join as run_join, prepare};
use adjoin::output::Target;
use adjoin::predicate::Predicate;
use adjoin::sink::{Clusters, Counts, Keep, PairSink};
use adjoin::store::{Store, TemporaryStore, sole_store};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;

use crate::options::{Resources, StoreOptions, Wanted, json};
use crate::pair_file::{self, PairFileWriter};
use crate::run::{Running, lock, raised};

/// A join that was done: its pairs lie in a temporary file.
#[pyclass(frozen)]
pub(crate) struct Joined {
    stats: String,
    running: Running,
    folder: PathBuf,
    /// Results of rows so far, each of which has a file name of its own.
    results: AtomicU64,
    /// None once it is closed.
    kept: Mutex<Option<Arc<Kept>>>,
}

/// What the results of rows need: the store that was joined, whatever lies in its folder by then.
struct Kept {
    store: Store,
    _temporary: Option<TemporaryStore>,
}

const PAIRS: &str = "pairs.arrows";

/// Joins, into a file in `folder`.
#[pyfunction]
pub(crate) fn join(
    py: Python<'_>,
    sources: Vec<String>,
    wanted: Wanted,
    store_options: StoreOptions,
    resources: Resources,
    folder: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Joined> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    let (stats, kept) = running.run(py, |context| {
        let options = wanted.join_options(store_options.seed())?;
        let (kept, build_seconds) = open(context, &sources, options.predicate, &store_options)?;
        let store = &kept.store;
        let prepared = prepare(context, store, &options, true)?;
        let manifest = store.manifest();
        let sink = PairFileWriter::create(&folder.join(PAIRS), manifest.ids, manifest.metric)?;
        let mut statistics = run_join(context, store, &prepared, &options, Box::new(sink))?;
        statistics.seconds.build = build_seconds;
        statistics.seconds.total += build_seconds.unwrap_or(0.0);
        Ok((json(&statistics)?, kept))
    })?;
    Ok(Joined {
        stats,
        running: running.silent(),
        folder,
        results: AtomicU64::new(0),
        kept: Mutex::new(Some(Arc::new(kept))),
    })
}

/// The store that is named, or one that is built from sources where temporary files go, and how long that took.
fn open(
    context: &Context,
    sources: &[String],
    predicate: Predicate,
    options: &StoreOptions,
) -> Result<(Kept, Option<f64>)> {
    if let Some(folder) = sole_store(context, sources, &options.only_for_builds())? {
        return Ok((Kept { store: Store::open(context, folder)?, _temporary: None }, None));
    }
    let source = options.open(context, sources)?;
    let build = options.build_options(predicate.metric(), false)?;
    let (temporary, report) = TemporaryStore::build(context, &*source, &build)?;
    let store = Store::open(context, temporary.folder())?;
    Ok((Kept { store, _temporary: Some(temporary) }, Some(report.seconds.total)))
}

#[pymethods]
impl Joined {
    #[getter]
    fn stats(&self) -> &str {
        &self.stats
    }

    /// The pairs as an Arrow stream.
    fn pairs(&self, py: Python<'_>) -> PyResult<PyRecordBatchReader> {
        self.kept().and_then(|_| pair_file::stream(&self.folder.join(PAIRS))).map_err(|error| raised(py, &error))
    }

    /// What is said of rows, as Arrow streams; of the rows that stay, too, where they are chosen.
    fn rows(&self, py: Python<'_>, what: &str, rule: &str) -> PyResult<(PyRecordBatchReader, PyRecordBatchReader)> {
        let made = self.running.run(py, |context| {
            let kept = self.kept()?;
            let store = &kept.store;
            let number = self.results.fetch_add(1, Ordering::Relaxed);
            let files = ["rows", "kept"].map(|name| self.folder.join(format!("{name}-{number}.parquet")));
            let [rows, kept] = files.each_ref().map(|path| Target::File { path: path.clone(), force: false });
            let mut sink: Box<dyn PairSink> = match what {
                "counts" => Box::new(Counts::create(context, store, Some(&rows), 0)?),
                "clusters" => Box::new(Clusters::create(context, store, Some(&rows), 0)?),
                _ => Box::new(Keep::create(context, store, rule.parse()?, (Some(&rows), Some(&kept)), 0)?),
            };
            pair_file::replay(context, &self.folder.join(PAIRS), &mut *sink)?;
            sink.finish()?;
            let kept = if what == "keep" { &files[1] } else { &files[0] };
            let streams = (stream(&files[0])?, stream(kept)?);
            // They are open, and need no name any more.
            files.iter().for_each(|path| drop(std::fs::remove_file(path)));
            Ok(streams)
        })?;
        Ok(made)
    }

    /// Removes the store, where one was built for the join.
    fn close(&self) {
        lock(&self.kept).take();
    }
}

impl Joined {
    fn kept(&self) -> Result<Arc<Kept>> {
        lock(&self.kept).clone().ok_or_else(|| Error::option("this result was closed; join again"))
    }
}

/// A Parquet file as a stream; it may be removed while it is read.
fn stream(path: &Path) -> Result<PyRecordBatchReader> {
    let cannot = |error: String| Error::device(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(|error| cannot(error.to_string()))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| cannot(error.to_string()))?;
    let reader = builder.build().map_err(|error| cannot(error.to_string()))?;
    Ok(PyRecordBatchReader::new(Box::new(reader)))
}
