//! Nearest neighbors of each row.

use std::path::PathBuf;

use adjoin::{EffortOptions, Metric, NearestJob, SearchEffort};
use pyo3::prelude::*;

use crate::options::{Resources, StoreOptions};
use crate::run::{Running, raised};
use crate::search::{Found, QUERY_BYTES, into_file};

/// Target and options of a search for nearest neighbors.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct NeighborsRequest {
    k: u64,
    within: Option<f64>,
    metric: Option<String>,
    recall: Option<f64>,
    exact: bool,
}

/// Finds the neighbors of each row of a store or of sources, and writes them to a file in `folder`.
#[pyfunction]
pub(crate) fn nearest(
    py: Python<'_>,
    sources: Vec<String>,
    request: NeighborsRequest,
    store_options: StoreOptions,
    resources: Resources,
    folder: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Found> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        let NeighborsRequest { k, within, metric, recall, exact } = request;
        let metric = metric.as_deref().map(str::parse::<Metric>).transpose()?;
        let effort = SearchEffort::try_from(EffortOptions { recall, exact, ..EffortOptions::default() })?;
        let job = NearestJob {
            inputs: &sources,
            source: store_options.source_options()?,
            build: store_options.build_options(metric.unwrap_or(Metric::L2), false)?,
            metric,
            k,
            within,
            effort,
        };
        let opened = job.open(context)?;
        let of_rows = QUERY_BYTES * opened.store.manifest().rows;
        let _of_rows = context.reserve(of_rows, "numbers of rows and neighbors")?;
        let file = folder.join("neighbors.parquet");
        into_file(context, &file, opened.store.neighbor_schema(), |sink| job.run(context, &opened, Some(sink)))
    })
}
