//! The engine as a Python extension, declared in `adjoin/_engine.pyi`. This crate converts Python objects to options
//! and results to Arrow streams; the Python package around it has the types and the documentation.

mod collection;
mod columns;
mod dedupe;
mod explain;
mod folder;
mod groundtruth;
mod join;
mod nearest;
mod open_folder;
mod options;
mod pair_file;
mod parts;
mod queries;
mod report;
mod rows;
mod run;
mod search;

use std::ffi::OsString;
use std::path::PathBuf;

use adjoin::{Append, AppendReport, Argument, BuildOptions, IdKind, Metric, Opened, Store, Target, VectorSource};
use adjoin_cli::run as run_command;
use pyo3::prelude::*;
use pyo3::types::PyModule;

use collection::SomeIds;
use options::{IndexRequest, Resources, StoreOptions, StoreRequest};
use run::{Running, raised};

/// Allocator of the engine, which returns freed memory to the system. Python's own allocator is not affected.
#[global_allocator]
static ALLOCATOR: adjoin::device::MappedBlocks = adjoin::device::MappedBlocks;

/// Runs the command line and returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| run_command(arguments))
}

/// Builds a store. Returns its memory use as JSON.
#[pyfunction]
fn build(
    py: Python<'_>,
    sources: Vec<String>,
    store: String,
    request: StoreRequest,
    store_options: StoreOptions,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        let source = store_options.open(context, &sources)?;
        // Only the same call may continue from a checkpoint, so the checkpoint records the options of the source.
        let resume = request.resume.then(|| store_options.source_options()).transpose()?;
        let options = BuildOptions { resume, ..store_options.build_options(request.metric.parse()?, request.force)? };
        Store::build(context, &*source, store.as_ref(), &options)?;
        options::json(&context.memory())
    })
}

/// Writes the next generation of a store, with new rows and without the rows with the given ids. Returns a report as
/// JSON, including the memory use.
#[pyfunction]
fn append(
    py: Python<'_>,
    sources: Vec<String>,
    store: String,
    delete: SomeIds,
    store_options: StoreOptions,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        let folder = store.as_ref();
        let kind = Store::open(context, folder)?.manifest().ids;
        let source = (!sources.is_empty()).then(|| store_options.open(context, &sources)).transpose()?;
        let BuildOptions { on_bad, on_duplicate_id, .. } = store_options.build_options(Metric::L2, true)?;
        let delete = delete.into_ids(if kind == IdKind::None { IdKind::Int64 } else { kind });
        let new = source.as_deref().map(|source| source as &dyn VectorSource);
        let request = Append { new, delete: Some(&delete).filter(|ids| !ids.is_empty()), on_bad, on_duplicate_id };
        let AppendReport { new_rows, skipped_rows, removed_rows, missing_ids, bytes_read, bytes_written, .. } =
            Store::append(context, folder, &request)?;
        options::json(&serde_json::json!({
            "new_rows": new_rows,
            "skipped_rows": skipped_rows,
            "removed_rows": removed_rows,
            "missing_ids": missing_ids,
            "bytes_read": bytes_read,
            "bytes_written": bytes_written,
            "memory": context.memory(),
        }))
    })
}

/// Builds an index of a store or of sources. Returns its memory use as JSON.
#[pyfunction]
fn build_index(
    py: Python<'_>,
    sources: Vec<String>,
    index: String,
    request: IndexRequest,
    store_options: StoreOptions,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        let options = request.options(store_options.seed())?;
        let metric = request.metric.as_deref().map(str::parse::<Metric>).transpose()?;
        let source = store_options.source_options()?;
        let of_store = store_options.build_options(metric.unwrap_or(Metric::L2), false)?;
        let of_builds = metric.map(|metric| Argument::Metric.with(metric)).or(source.only_for_builds(&of_store));
        let context = &context.clone().or_temporary(Target::parent_of(index.as_ref()));
        let later = |source: &dyn VectorSource| options.building_bytes(context, source, &of_store);
        let opened = Opened::new(context, &sources, &source, &of_store, of_builds, &later)?;
        adjoin::Index::build(context, &opened.store, index.as_ref(), &options, request.force)?;
        options::json(&context.memory())
    })
}

/// Moves the vectors of an index to other pages. Returns its memory use as JSON.
#[pyfunction]
fn relayout(
    py: Python<'_>,
    index: PathBuf,
    output: Option<PathBuf>,
    force: bool,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        adjoin::Index::relayout(context, &index, output.as_deref(), force)?;
        options::json(&context.memory())
    })
}

/// Returns the resident memory of the process, and restarts the measurement of its peak.
#[pyfunction]
fn resident_from_now_on() -> u64 {
    adjoin::Context::resident_from_now_on()
}

#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("CHOICES", options::choices(module.py())?)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(pair_file::spool, module)?)?;
    module.add_function(wrap_pyfunction!(columns::write_columns, module)?)?;
    module.add_function(wrap_pyfunction!(pair_file::columns, module)?)?;
    module.add_function(wrap_pyfunction!(resident_from_now_on, module)?)?;
    module.add_function(wrap_pyfunction!(build, module)?)?;
    module.add_function(wrap_pyfunction!(append, module)?)?;
    module.add_function(wrap_pyfunction!(build_index, module)?)?;
    module.add_function(wrap_pyfunction!(relayout, module)?)?;
    module.add_function(wrap_pyfunction!(groundtruth::groundtruth, module)?)?;
    module.add_function(wrap_pyfunction!(groundtruth::generate, module)?)?;
    module.add_function(wrap_pyfunction!(folder::kind_of, module)?)?;
    module.add_function(wrap_pyfunction!(folder::copy_folder, module)?)?;
    module.add_function(wrap_pyfunction!(explain::explain, module)?)?;
    module.add_function(wrap_pyfunction!(explain::threshold_leaving, module)?)?;
    module.add_function(wrap_pyfunction!(join::join, module)?)?;
    module.add_function(wrap_pyfunction!(join::condition_columns, module)?)?;
    module.add_function(wrap_pyfunction!(parts::plan, module)?)?;
    module.add_function(wrap_pyfunction!(parts::plan_build, module)?)?;
    module.add_function(wrap_pyfunction!(parts::run_part, module)?)?;
    module.add_function(wrap_pyfunction!(parts::merge, module)?)?;
    module.add_function(wrap_pyfunction!(dedupe::dedupe, module)?)?;
    module.add_function(wrap_pyfunction!(dedupe::rows, module)?)?;
    module.add_function(wrap_pyfunction!(nearest::nearest, module)?)?;
    module.add_function(wrap_pyfunction!(report::report, module)?)?;
    module.add_function(wrap_pyfunction!(report::write_parquet, module)?)?;
    module.add_function(wrap_pyfunction!(collection::create_live, module)?)?;
    module.add_class::<collection::Collection>()?;
    module.add_class::<search::Found>()?;
    module.add_class::<folder::Folder>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<join::Joined>()
}
