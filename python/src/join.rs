//! Joins, and results computed from their pairs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use adjoin::{
    BuildOptions, Choice, Context, Error, IdKind, Job, KeepRule, OpenedSets, Output, PairSchema, PairSink, PairWriter,
    Predicate, Result, ResultKind, Target,
};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;

use crate::options::{JoinFilters, JoinTarget, Resources, StoreOptions, json};
use crate::pair_file::{self, PairFileWriter};
use crate::report::PageRequest;
use crate::run::{Running, lock, raised};

/// The result of a join, with its pairs in a temporary file.
#[pyclass(frozen)]
pub(crate) struct Joined {
    stats: String,
    predicate: Predicate,
    /// Columns that pairs, removed rows and clusters carry.
    columns: Vec<String>,
    /// File of the pairs.
    pairs: PathBuf,
    shared: Arc<Shared>,
}

/// Data that a result shares with its results at nearer thresholds.
struct Shared {
    running: Running,
    folder: PathBuf,
    /// Number of files that were created so far, used for unique file names.
    files: AtomicU64,
    /// The sets as they were joined, even if the store's folder has changed since. `None` after the result was
    /// closed.
    opened: Mutex<Option<Arc<OpenedSets>>>,
}

impl Shared {
    /// Returns the path of a new file in the folder.
    fn new_file(&self, kind: &str, extension: &str) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!("{kind}-{number}.{extension}"))
    }

    fn opened(&self) -> Result<Arc<OpenedSets>> {
        self.running.check_creator()?;
        lock(&self.opened).clone().ok_or_else(|| Error::option("this result was closed; join again"))
    }
}

const PAIRS: &str = "pairs.arrows";

/// Pairs to find.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct JoinRequest {
    target: JoinTarget,
    filters: JoinFilters,
    columns: Vec<String>,
    /// File next to which checkpoints are written, and whether one of other options is discarded.
    resume: Option<(PathBuf, bool)>,
}

/// Joins a set with itself, with another set, or with new rows, and writes the pairs to a file in `folder`.
#[pyfunction]
pub(crate) fn join(
    py: Python<'_>,
    sets: [Vec<String>; 3],
    request: JoinRequest,
    store_options: StoreOptions,
    resources: Resources,
    folder: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Joined> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    let (stats, predicate, opened) = running.run(py, |context| {
        let join = request.target.join_options(store_options.seed())?;
        let build = store_options.build_options(join.predicate.metric(), false)?;
        let sink = |pairs: PairSchema| -> Result<Box<dyn PairSink>> {
            Ok(Box::new(PairFileWriter::create(&folder.join(PAIRS), pairs)?))
        };
        let job = Job {
            inputs: &sets[0],
            with: &sets[1],
            new: &sets[2],
            source: store_options.source_options()?,
            // The job itself keeps the columns for the filters and for the result.
            build: BuildOptions { attributes: Vec::new(), ..build },
            conditions: request.filters.parse()?,
            columns: &request.columns,
            join,
            output: Output::Sink(&sink),
            yes: true,
            resume: request.resume.map(|(path, force)| Target::File { path, force }),
        };
        let opened = job.open(context)?;
        let statistics = job.run(context, &opened)?;
        Ok((json(&statistics)?, join.predicate, opened))
    })?;
    let (pairs, opened) = (folder.join(PAIRS), Mutex::new(Some(Arc::new(opened))));
    let shared = Shared { running: running.silent(), folder, files: AtomicU64::new(0), opened };
    Ok(Joined { stats, predicate, columns: request.columns, pairs, shared: Arc::new(shared) })
}

/// Returns the columns of a set that the filters read. The set is 0 for the first or only set, and 1 for the other
/// set. Refuses filters on a missing set, before data is written for it.
#[pyfunction]
pub(crate) fn condition_columns(
    py: Python<'_>,
    filters: JoinFilters,
    set: usize,
    are_two_sets: bool,
) -> PyResult<Vec<String>> {
    let columns = filters.parse().and_then(|conditions| {
        conditions.check(are_two_sets)?;
        Ok(conditions.columns(set, are_two_sets))
    });
    columns.map_err(|error| raised(py, &error))
}

#[pymethods]
impl Joined {
    #[getter]
    fn stats(&self) -> &str {
        &self.stats
    }

    /// Streams the pairs in the Arrow format.
    fn pairs(&self, py: Python<'_>) -> PyResult<PyRecordBatchReader> {
        if !self.columns.is_empty() {
            return self.rows(py, ResultKind::Pairs.name(), KeepRule::default().name());
        }
        self.shared.opened().and_then(|_| pair_file::stream(&self.pairs)).map_err(|error| raised(py, &error))
    }

    /// Returns the result at a nearer threshold, and its number of pairs. It lives as long as this result.
    fn at(&self, py: Python<'_>, threshold: f64) -> PyResult<(Self, u64)> {
        self.shared.running.run(py, |context| {
            self.shared.opened()?;
            let (predicate, pairs) = (nearer(self.predicate, threshold)?, self.shared.new_file("pairs", "arrows"));
            let count = pair_file::copy_within(context, &self.pairs, &pairs, predicate)?;
            let (stats, columns, shared) = (self.stats.clone(), self.columns.clone(), self.shared.clone());
            Ok((Self { stats, predicate, columns, pairs, shared }, count))
        })
    }

    /// Streams a result about rows in the Arrow format.
    fn rows(&self, py: Python<'_>, result: &str, rule: &str) -> PyResult<PyRecordBatchReader> {
        self.shared.running.run(py, |context| {
            let path = self.shared.new_file("rows", "parquet");
            let target = Target::File { path: path.clone(), force: false };
            self.write_result(
                context,
                result.parse::<ResultKind>()?.output(Some(target), rule.parse()?),
                &self.columns,
            )?;
            let rows = stream(&path)?;
            // The file is open, so its name can be removed.
            drop(std::fs::remove_file(&path));
            Ok(rows)
        })
    }

    /// Writes the pairs, or a result about rows, to a file.
    fn write(&self, py: Python<'_>, path: PathBuf, result: &str, rule: &str, force: bool) -> PyResult<()> {
        self.shared.running.run(py, |context| {
            let context = &context.clone().or_temporary(Target::parent_of(&path));
            let target = Target::File { path, force };
            self.write_result(context, result.parse::<ResultKind>()?.output(Some(target), rule.parse()?), &self.columns)
        })
    }

    /// Writes an HTML page about the pairs, or about a result about rows.
    fn report(&self, py: Python<'_>, result: &str, rule: &str, page: PageRequest) -> PyResult<()> {
        self.shared.running.run(py, |context| {
            Target::check_free(&*context.device, &page.path, page.force)?;
            let file = self.shared.new_file("page", "parquet");
            let target = Target::File { path: file.clone(), force: false };
            let output = result.parse::<ResultKind>()?.output(Some(target), rule.parse()?);
            self.write_result(context, output, &self.columns)?;
            let written = page.write(context, &file, &self.stats);
            drop(std::fs::remove_file(&file));
            written
        })
    }

    /// Removes the store, if one was built for the join.
    fn close(&self) {
        // In a forked child, the lock may be held by a thread that exists only in the parent.
        if self.shared.running.check_creator().is_ok() {
            lock(&self.shared.opened).take();
        }
    }
}

impl Joined {
    /// Computes a result from the pairs in the temporary file and writes it. Pairs, removed rows
    /// and clusters carry `columns`.
    fn write_result(&self, context: &Context, output: Output<'_>, columns: &[String]) -> Result<()> {
        let opened = self.shared.opened()?;
        let with_ids = opened.sets().schema().ids != [IdKind::None; 2];
        let bytes = if matches!(output, Output::Pairs(_)) { PairWriter::memory_bytes(with_ids) } else { 0 };
        let _memory = context.reserve(bytes, "writing this result")?;
        let mut sink = output.sink(context, opened.sets(), self.predicate, columns)?;
        pair_file::replay(context, &self.pairs, &mut *sink)?;
        sink.finish().map(drop)
    }
}

/// Returns a predicate with another threshold, of which every pair is within `predicate`.
///
/// # Errors
/// Fails if the threshold is farther, or no valid threshold.
fn nearer(predicate: Predicate, threshold: f64) -> Result<Predicate> {
    let (nearer, is_nearer, allowed) = match predicate {
        Predicate::L2 { eps } => (Predicate::l2(threshold)?, threshold <= eps, format!("at most {eps}")),
        Predicate::Cosine { min_similarity } => {
            (Predicate::cosine(threshold)?, threshold >= min_similarity, format!("at least {min_similarity}"))
        }
        Predicate::InnerProduct { .. } => unreachable!("inner products are not joined"),
    };
    match is_nearer {
        true => Ok(nearer),
        false => Err(Error::option(format!("threshold is {threshold}; this join allows {allowed}; join again"))),
    }
}

/// Streams a Parquet file. The file may be removed while it is read.
pub(crate) fn stream(path: &Path) -> Result<PyRecordBatchReader> {
    Ok(PyRecordBatchReader::new(Box::new(parquet(path)?)))
}

/// Reads the rows of a Parquet file.
pub(crate) fn parquet(path: &Path) -> Result<ParquetRecordBatchReader> {
    parquet_columns(path, None)
}

/// Reads the rows of a Parquet file, with the columns at the given indexes, or with all columns.
pub(crate) fn parquet_columns(path: &Path, places: Option<&[usize]>) -> Result<ParquetRecordBatchReader> {
    let cannot = |error: String| Error::device(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(|error| cannot(error.to_string()))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| cannot(error.to_string()))?;
    let mask = places.map(|places| ProjectionMask::roots(builder.parquet_schema(), places.iter().copied()));
    builder.with_projection(mask.unwrap_or_else(ProjectionMask::all)).build().map_err(|error| cannot(error.to_string()))
}
