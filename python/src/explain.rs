//! Estimates of the results and the cost of a join.

use std::path::Path;

use adjoin::{Error, Estimate, FolderKind, Metric, Predicate};
use pyo3::prelude::*;

use crate::options::{JoinTarget, Resources, StoreOptions, json};
use crate::run::{Running, raised};

/// Returns the estimate as JSON.
#[pyfunction]
pub(crate) fn explain(
    py: Python<'_>,
    sources: Vec<String>,
    target: JoinTarget,
    metric: Option<String>,
    store_options: StoreOptions,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        for source in &sources {
            if let Some(kind) = FolderKind::of(context, Path::new(source))? {
                let refused = format!("{source} is {kind}; give the data set that it was built from");
                return Err(Error::input(refused));
            }
        }
        let (asked, aim) = (target.predicate()?, target.aim()?);
        let metric = metric.as_deref().map(str::parse).transpose()?;
        let metric = metric.or(asked.as_ref().map(Predicate::metric)).unwrap_or(Metric::L2);
        let build = store_options.build_options(metric, false)?;
        let source = store_options.open(context, &sources)?;
        json(&Estimate::new(context, &*source, &build, asked, aim)?)
    })
}

/// Returns the threshold at which about the requested number of rows is kept, if the first of several near rows is
/// kept. If no threshold is close to the requested number, also returns the number of rows that is kept.
#[pyfunction]
pub(crate) fn threshold_leaving(
    py: Python<'_>,
    sources: Vec<String>,
    rows: u64,
    metric: String,
    store_options: StoreOptions,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<(f64, Option<u64>)> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        let (source, build) = (store_options.source_options()?, store_options.build_options(metric.parse()?, false)?);
        let leaving = Estimate::threshold_leaving(context, &sources, &source, &build, rows)?;
        let missed = leaving.misses(rows).then(|| leaving.rows.estimate.round() as u64);
        Ok((leaving.threshold, missed))
    })
}
