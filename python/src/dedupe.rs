//! Deduplication of data sets.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use adjoin::{Dedupe, Error, Nearness, OrderBy, Result, Target, TextOptions};
use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;

use crate::join::parquet;
use crate::options::{JoinTarget, Resources, StoreOptions, json};
use crate::run::{Running, raised};

/// Which rows to keep, and the paths of the output and of the list of removed rows. With `texts`, texts are compared
/// instead of vectors.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct RowsToKeep {
    texts: Option<Texts>,
    keep_by: Option<String>,
    exact_text: Option<String>,
    decisions: Option<PathBuf>,
    output: PathBuf,
    removed: PathBuf,
    columns: Vec<String>,
    force: bool,
}

/// Texts to compare instead of vectors.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Texts {
    column: String,
    min_jaccard: Option<f64>,
    shingles: String,
    shingle_size: Option<usize>,
}

impl Texts {
    fn options(&self, target: &JoinTarget, seed: u64) -> Result<TextOptions> {
        Ok(TextOptions {
            min_jaccard: self.min_jaccard.unwrap_or(TextOptions::MIN_JACCARD),
            aim: target.aim()?,
            unit: self.shingles.parse()?,
            size: self.shingle_size,
            seed,
            ..TextOptions::new(self.column.clone())
        })
    }
}

/// Writes the data set without its near-duplicates. Returns a report as JSON.
#[pyfunction]
pub(crate) fn dedupe(
    py: Python<'_>,
    sources: Vec<String>,
    target: JoinTarget,
    rows_to_keep: RowsToKeep,
    store_options: StoreOptions,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        let RowsToKeep { texts, keep_by, exact_text, decisions, output, removed, columns, force } = &rows_to_keep;
        let seed = store_options.seed();
        let by = match texts {
            Some(texts) => Nearness::Texts(texts.options(&target, seed)?),
            None => {
                let join = target.join_options(seed)?;
                Nearness::Vectors { build: store_options.build_options(join.predicate.metric(), false)?, join }
            }
        };
        let what = Dedupe {
            inputs: &sources,
            source: store_options.source_options()?,
            by,
            keep_by: keep_by.as_deref().map(OrderBy::parse).transpose()?,
            exact_text: exact_text.as_deref().map(OrderBy::parse).transpose()?,
            decisions: decisions.as_deref(),
            output,
            removed: Some(Target::File { path: removed.clone(), force: *force }),
            columns,
            force: *force,
        };
        json(&what.run(&context.clone().or_temporary(Target::parent_of(output)))?)
    })
}

/// Streams the rows of Parquet or Arrow files with one schema, one file after the other.
#[pyfunction]
pub(crate) fn rows(py: Python<'_>, files: Vec<PathBuf>) -> PyResult<PyRecordBatchReader> {
    let readers = files.iter().map(|file| reader(file)).collect::<Result<Vec<_>>>();
    let readers = readers.map_err(|error| raised(py, &error))?;
    let schema: SchemaRef =
        readers.first().map_or_else(|| SchemaRef::new(arrow_schema::Schema::empty()), |one| one.schema());
    let batches = readers.into_iter().flatten();
    Ok(PyRecordBatchReader::new(Box::new(RecordBatchIterator::new(batches, schema))))
}

type Reader = Box<dyn RecordBatchReader<Item = std::result::Result<RecordBatch, ArrowError>> + Send>;

fn reader(path: &Path) -> Result<Reader> {
    let cannot = |error: &dyn std::error::Error| Error::device(format!("cannot read {}: {error}", path.display()));
    let open = || File::open(path).map_err(|error| cannot(&error));
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet")) {
        return Ok(Box::new(parquet(path)?));
    }
    let has_streams = ["arrow", "feather", "ipc"];
    if !path.extension().is_some_and(|ending| has_streams.iter().any(|known| ending.eq_ignore_ascii_case(known))) {
        return Err(Error::input(format!(
            "{}: rows can be streamed only from files of Parquet and Arrow; read that file itself",
            path.display()
        )));
    }
    if let Ok(file) = FileReader::try_new_buffered(open()?, None) {
        return Ok(Box::new(file));
    }
    let stream = StreamReader::try_new(BufReader::new(open()?), None).map_err(|error| cannot(&error))?;
    Ok(Box::new(stream))
}
