//! From a store and a threshold to a plan: the passes that its inputs need, then the plan itself.

use adjoin_kernels::{Columns, Panel};

use super::bucket::LoadedBucket;
use super::margins::{Graph, PassMemory, margin_edges, triangle_edges};
use super::options::{JoinOptions, Rule};
use super::verify::Verifier;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{Coordinate, Threshold, with_coordinates};
use crate::options::Metric;
use crate::plan::{BucketGraph, BucketSizes, Explanation, Schedule, explain, schedule};
use crate::report::Stopwatch;
use crate::source::IdKind;
use crate::store::{Store, least_read_ahead, read_ahead_bytes};
use crate::workers::streamed_items;

/// Bytes that results hold on their way out: batches between workers and sink, and what the sink's writer gathers.
const SINK_BYTES: u64 = 10 << 20;
/// The same for ids.
const SINK_ID_BYTES: u64 = 8 << 20;
/// The least memory for margins on their way to edges.
const MARGIN_BYTES_MIN: u64 = 4 << 20;
/// Bytes of the schedule for each task: the task itself, its next uses, and the edge that it comes from.
const BYTES_A_TASK: u64 = 8 + 16 + 8;

/// A join that is planned and can be run.
pub struct Prepared {
    pub(super) graph: BucketGraph,
    pub(super) sizes: BucketSizes,
    pub(super) schedule: Schedule,
    pub(super) threshold: Threshold,
    pub(super) center_distances: u64,
    pub(super) plan_seconds: f64,
    pub(super) with_ids: bool,
    /// Bytes for reading ahead of the cache.
    pub(super) read_ahead: u64,
    rule: Rule,
}

impl Prepared {
    /// What the join is going to do.
    pub fn explain(&self, store: &Store) -> Explanation {
        let rows: Vec<u32> = store.extents().iter().map(|extent| extent.rows).collect();
        explain(self.rule.name(), &self.graph, &self.sizes, &self.schedule, &rows)
    }
}

/// Plans a join; reads the store at most once.
///
/// # Errors
/// Where the predicate is not of the store's metric, the budget is too small, or the store cannot be read.
pub fn prepare(context: &Context, store: &Store, options: &JoinOptions, with_ids: bool) -> Result<Prepared> {
    check_metric(store, options)?;
    let manifest = store.manifest();
    with_coordinates!(manifest.vectors, manifest.metric, T => prepare_as::<T>(context, store, options, with_ids))
}

fn check_metric(store: &Store, options: &JoinOptions) -> Result<()> {
    let remedy = match (store.manifest().metric, options.predicate.metric()) {
        (Metric::L2, Metric::Cosine) => "give --eps, or build the store with --metric cosine",
        (Metric::Cosine, Metric::L2) => "give --min-similarity, or build the store with --metric l2",
        _ => return Ok(()),
    };
    let metric = store.manifest().metric;
    Err(Error::option(format!("{} was built for the metric {metric}; {remedy}", store.folder().display())))
}

fn prepare_as<T: Coordinate>(
    context: &Context,
    store: &Store,
    options: &JoinOptions,
    with_ids: bool,
) -> Result<Prepared> {
    let watch = Stopwatch::start();
    let (vectors, metric) = (store.manifest().vectors, store.manifest().metric);
    let threshold = Threshold::new(options.predicate, vectors);
    let extents = store.extents();
    let sizes = BucketSizes {
        extents: extents.iter().map(|extent| extent.bytes(with_ids)).collect(),
        memory: extents
            .iter()
            .map(|extent| LoadedBucket::<T>::memory_bytes(extent, vectors, metric, with_ids))
            .collect(),
    };
    let Graph { graph, center_distances } = {
        let pass = pass_bytes::<T>(context, &sizes, vectors.dimensions);
        // What the run needs whatever the pass finds is refused now and not after it.
        let run = bytes_beside_cache::<T>(context, store, 0, with_ids)
            + least_read_ahead(extents, with_ids)
            + sizes.two_largest();
        let least = pass + least_read_ahead(extents, false) + MARGIN_BYTES_MIN;
        drop(context.reserve(run.max(least), "this join")?);
        let free = context.budget().free() - pass;
        let read_ahead = read_ahead_bytes(extents, false, free - MARGIN_BYTES_MIN);
        // Half of what is left is for the edges.
        let memory = PassMemory { read_ahead, margins: ((free - read_ahead) / 2).max(MARGIN_BYTES_MIN) };
        let _memory = context.reserve(pass + read_ahead + memory.margins, "this join")?;
        match options.rule {
            Rule::MarginSum => margin_edges::<T>(context, store, &threshold, memory)?,
            Rule::Triangle => triangle_edges::<T>(context, store, &threshold)?,
        }
    };
    let (capacity, read_ahead) = divide::<T>(context, store, &graph, &sizes, with_ids, options.cache_bytes)?;
    let schedule = schedule(&graph, &sizes, capacity);
    let plan_seconds = watch.seconds();
    let rule = options.rule;
    Ok(Prepared { graph, sizes, schedule, threshold, center_distances, plan_seconds, with_ids, read_ahead, rule })
}

/// What the pass that finds the edges holds.
fn pass_bytes<T: Coordinate>(context: &Context, sizes: &BucketSizes, dimensions: usize) -> u64 {
    let buckets = sizes.memory.len();
    let largest = sizes.memory.iter().copied().max().unwrap_or(0);
    let centers = Panel::<T>::bytes_for(buckets, dimensions) + Columns::<T>::bytes_for(buckets, dimensions);
    let a_worker = (buckets * (32 * size_of::<T::Distance>() + 20 + size_of::<T::Distance>())) as u64;
    centers + context.threads as u64 * a_worker + streamed_items(context.threads) as u64 * largest
}

/// The cache that the budget leaves, or that the caller wants, and what is for reading ahead of it; refuses a cache that
/// holds no edge.
fn divide<T: Coordinate>(
    context: &Context,
    store: &Store,
    graph: &BucketGraph,
    sizes: &BucketSizes,
    with_ids: bool,
    wanted: Option<u64>,
) -> Result<(u64, u64)> {
    let others = bytes_beside_cache::<T>(context, store, graph.edges.len(), with_ids);
    let least = sizes.least_cache(graph);
    // Checks that the least fits beside all else; what is more than that is the cache.
    drop(context.reserve(others + least_read_ahead(store.extents(), with_ids) + least, "this join")?);
    let free = context.budget().free() - others;
    let read_ahead = read_ahead_bytes(store.extents(), with_ids, free - least);
    let free = free - read_ahead;
    match wanted {
        Some(wanted) if wanted < least => Err(Error::option(format!(
            "a cache of {wanted} bytes holds not even two buckets that must meet; give at least {least}"
        ))),
        Some(wanted) => Ok((wanted.min(free), read_ahead)),
        None => Ok((free, read_ahead)),
    }
}

/// What the run holds beside the cache of buckets, for a graph of so many edges.
fn bytes_beside_cache<T: Coordinate>(context: &Context, store: &Store, edges: usize, with_ids: bool) -> u64 {
    let dimensions = store.manifest().vectors.dimensions;
    let buckets = store.extents().len();
    let rows = store.extents().iter().map(|extent| extent.rows).max().unwrap_or(0) as usize;
    let workers = context.threads as u64 * Verifier::<T>::memory_bytes(rows, dimensions);
    let tasks = (buckets + edges) as u64 * BYTES_A_TASK;
    let ids = if with_ids && store.manifest().ids != IdKind::None { SINK_ID_BYTES } else { 0 };
    workers + Panel::<T>::bytes_for(buckets, dimensions) + tasks + SINK_BYTES + ids
}
