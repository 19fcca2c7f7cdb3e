//! A join or a build in parts: the plan, the run of a part, and the merge.

use std::path::PathBuf;

use adjoin::{BuildPlan, Context, Error, KeepRule, PartOptions, PartPlan, Result, Target};
use pyo3::prelude::*;

use crate::options::{JoinTarget, Resources, StoreOptions, json};
use crate::run::{Running, raised};

/// A plan to write.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PlanRequest {
    store: PathBuf,
    target: JoinTarget,
    parts: u32,
    result: String,
    seed: u64,
    path: PathBuf,
    force: bool,
}

/// Writes the plan of a join in parts. Returns the statistics of the plan.
#[pyfunction]
pub(crate) fn plan(
    py: Python<'_>,
    request: PlanRequest,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        let PlanRequest { ref store, ref target, parts, ref result, seed, ref path, force } = request;
        let options = PartOptions { join: target.join_options(seed)?, parts, result: result.parse()? };
        let (_, statistics) = PartPlan::create(context, store, &options, path, force)?;
        json(&statistics)
    })
}

/// A plan of a build to write.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PlanBuildRequest {
    metric: String,
    parts: u32,
    path: PathBuf,
    force: bool,
}

/// Writes the plan of a build in parts. Returns the statistics of the plan.
#[pyfunction]
pub(crate) fn plan_build(
    py: Python<'_>,
    sources: Vec<String>,
    request: PlanBuildRequest,
    store_options: StoreOptions,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        let PlanBuildRequest { ref metric, parts, ref path, force } = request;
        let (source, build) = (store_options.source_options()?, store_options.build_options(metric.parse()?, false)?);
        let (_, statistics) = BuildPlan::create(context, &sources, &source, &build, parts, path, force)?;
        json(&statistics)
    })
}

/// Refuses options of a join for the plan of a build.
fn refuse_for_builds(options: &[(&str, bool)]) -> Result<()> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => {
            Err(Error::option(format!("{option} can be used only with the plan of a join; leave it out")))
        }
        None => Ok(()),
    }
}

/// A part to run.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PartRequest {
    plan: PathBuf,
    part: String,
    folder: PathBuf,
    store: Option<PathBuf>,
    force: bool,
}

/// Runs a part of a join or of a build. Returns its statistics, or `None` if the result of the part exists already.
#[pyfunction]
pub(crate) fn run_part(
    py: Python<'_>,
    request: PartRequest,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<Option<String>> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        let PartRequest { ref plan, ref part, ref folder, ref store, force } = request;
        if BuildPlan::is_at(context, plan)? {
            refuse_for_builds(&[("store", store.is_some())])?;
            let plan = BuildPlan::read(context, plan)?;
            let number = plan.part_number(part)?;
            return plan.run_part(context, number, folder, force)?.map(|statistics| json(&statistics)).transpose();
        }
        let plan = PartPlan::read(context, plan)?;
        let number = plan.part_number(part)?;
        let store = plan.open_store(context, store.as_deref())?;
        plan.run_part(context, &store, number, folder, force)?.map(|statistics| json(&statistics)).transpose()
    })
}

/// Parts to merge.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct MergeRequest {
    plan: PathBuf,
    folder: PathBuf,
    path: PathBuf,
    /// The result; `None` for the planned one.
    result: Option<String>,
    rule: String,
    store: Option<PathBuf>,
    columns: Vec<String>,
    force: bool,
}

/// Merges the results of all parts of a join or of a build. Returns the statistics.
#[pyfunction]
pub(crate) fn merge(
    py: Python<'_>,
    request: MergeRequest,
    resources: Resources,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let running = Running::new(&resources, progress).map_err(|error| raised(py, &error))?;
    running.run(py, |context| {
        if BuildPlan::is_at(context, &request.plan)? {
            return merge_build(context, &request);
        }
        let MergeRequest { ref plan, ref folder, ref path, ref result, ref rule, ref store, ref columns, force } =
            request;
        let plan = PartPlan::read(context, plan)?;
        let result = result.as_deref().map_or_else(|| Ok(plan.result()), str::parse)?;
        let store = plan.open_store(context, store.as_deref())?;
        let context = &context.clone().or_temporary(Target::parent_of(path));
        let output = result.output(Some(Target::File { path: path.clone(), force }), rule.parse()?);
        json(&plan.merge(context, &store, folder, &output, columns)?)
    })
}

/// Merges the results of all parts of a build.
fn merge_build(context: &Context, request: &MergeRequest) -> Result<String> {
    let MergeRequest { plan, folder, path, result, rule, store, columns, force } = request;
    let is_other_rule = rule.parse::<KeepRule>()? != KeepRule::default();
    refuse_for_builds(&[
        ("result", result.is_some()),
        ("keep_rule", is_other_rule),
        ("store", store.is_some()),
        ("columns", !columns.is_empty()),
    ])?;
    let (_, statistics) = BuildPlan::read(context, plan)?.merge(context, folder, path, *force)?;
    json(&statistics)
}
