//! Requests, answers, options and statistics of a service.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::plan::batch::{BatchCounts, BatchPlan, BucketCosts, Residency, plan_batch};
use crate::query::{QueryTarget, SearchEffort};
use crate::report::RecallStatistics;
use crate::source::Ids;

/// One query.
#[derive(Debug, Clone)]
pub struct Request {
    /// The vector, with the dimensions of the store.
    pub vector: Vec<f32>,
    /// What to find.
    pub target: QueryTarget,
    /// How hard to search.
    pub effort: SearchEffort,
    /// Time after which the answer is useless.
    pub deadline: Option<Instant>,
}

/// Hits of a query, nearest first, ties by row number.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Row numbers of the hits.
    pub rows: Vec<u64>,
    /// Ids of the hits, if the store has ids.
    pub ids: Ids,
    /// Distances (L2, true), similarities (cosine) or scores (inner product).
    pub values: Vec<f32>,
    /// Buckets that the query probed.
    pub probes: u64,
    /// Vectors in these buckets.
    pub looked_at: u64,
    /// Bytes read for all queries that were answered together, divided by their number.
    pub read_bytes: u64,
    /// Number of queries that were answered together.
    pub together: u32,
    /// The promised recall.
    pub recall: Option<Recall>,
}

/// Recall promised for queries that are distributed like the rows of the store.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Recall {
    /// The target.
    pub target: f64,
    /// Lower bound at 95 % confidence.
    pub low: f64,
    /// Whether the bound reaches the target.
    pub kept: bool,
}

impl Recall {
    /// Extracts the promise from a search's statistics.
    pub fn of(recall: &RecallStatistics) -> Option<Self> {
        recall.at_k.map(|at_k| Self { target: recall.target, low: at_k.low, kept: recall.kept })
    }
}

/// Plans a batch of queries from the buckets that each probes, at a time in seconds since the service started. Tracks the
/// cache with which its plans are executed.
pub type Planner = Box<dyn FnMut(&[Vec<u32>], f64) -> BatchPlan>;

/// Makes planners for an empty cache of a capacity in bytes.
pub type NewPlanner = Arc<dyn Fn(BucketCosts, u64) -> Planner + Send + Sync>;

/// Returns the planner of [`plan_batch`].
pub(super) fn usual_planner() -> NewPlanner {
    Arc::new(|costs, capacity| {
        // The planner tracks what the cache holds from one batch to the next.
        let mut cache = Residency::new(capacity, costs);
        Box::new(move |lists, _| plan_batch(lists, &mut cache))
    })
}

/// Options of a service.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Bytes of buckets to keep in memory; half of the free memory if `None`.
    pub cache_bytes: Option<u64>,
    /// How long the first query of a batch waits for others. If zero, a batch has the queries that arrived while the
    /// one before was answered.
    pub gather: Duration,
    /// Most waiting queries; further ones are refused.
    pub waiting_max: usize,
    /// Seed of the calibration sample.
    pub seed: u64,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self { cache_bytes: None, gather: Duration::ZERO, waiting_max: 2_000, seed: 1 }
    }
}

/// Work of a service so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServeStatistics {
    /// Queries that were taken from the queue.
    pub queries: u64,
    /// Number of their batches.
    pub batches: u64,
    /// Cache counts of their plans.
    pub counts: BatchCounts,
    /// Bytes read for queries.
    pub read_bytes: u64,
    /// Bytes read for calibration.
    pub learning_bytes: u64,
    /// Seconds spent on planning.
    pub plan_seconds: f64,
    /// Bytes of buckets that may be kept in memory.
    pub cache_bytes: u64,
}
