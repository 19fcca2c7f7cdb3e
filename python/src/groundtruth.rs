//! Pairs found by brute force, and random vectors, for tests of joins and searches.

use std::path::PathBuf;

use adjoin::{Element, Generated, GroundtruthOptions, PairSchema, Predicate, Target, VectorType};
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatchReader;

use crate::options::{Resources, StoreOptions, json};
use crate::pair_file::{self, PairFileWriter};
use crate::run::{Running, raised};

/// Pairs to find by brute force.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TruthRequest {
    eps: Option<f64>,
    min_similarity: Option<f64>,
    sample: Option<u64>,
    /// File of the pairs.
    file: PathBuf,
}

/// Finds all pairs within a threshold by brute force, and writes them to a file. Returns the pairs as a stream, and the
/// memory use as JSON.
#[pyfunction]
pub(crate) fn groundtruth(
    py: Python<'_>,
    sources: Vec<String>,
    request: TruthRequest,
    store_options: StoreOptions,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<(PyRecordBatchReader, String)> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        let predicate = Predicate::of(request.eps, request.min_similarity)?;
        let source = store_options.open(context, &sources)?;
        let schema = PairSchema { ids: [source.info().ids; 2], metric: predicate.metric(), of_two_sets: false };
        let sink = Box::new(PairFileWriter::create(&request.file, schema)?);
        let options = GroundtruthOptions { predicate, sample: request.sample, seed: store_options.seed() };
        options.run(context, &*source, sink)?;
        Ok((pair_file::stream(&request.file)?, json(&context.memory())?))
    })
}

/// Random vectors to write.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct GenerateRequest {
    rows: u64,
    dimensions: usize,
    element: String,
    hardness: f64,
    seed: u64,
    path: PathBuf,
    force: bool,
}

/// Writes random vectors to a file.
#[pyfunction]
pub(crate) fn generate(
    py: Python<'_>,
    request: GenerateRequest,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        let GenerateRequest { rows, dimensions, ref element, hardness, seed, path, force } = request;
        let vectors = VectorType { element: element.parse::<Element>()?, dimensions };
        Generated { rows, vectors, hardness, seed }.write(context, &Target::File { path, force }).map(drop)
    })
}
