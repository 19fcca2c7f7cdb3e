//! What is asked of a service and what it says.

use std::time::{Duration, Instant};

use crate::plan::batch::{BatchCounts, BatchOrder, Retention};
use crate::query::{QueryTarget, SearchEffort};
use crate::report::RecallStatistics;
use crate::source::Ids;

/// One query.
#[derive(Debug, Clone)]
pub struct Request {
    /// As many elements as the vectors of the store have.
    pub vector: Vec<f32>,
    /// What is wanted of it.
    pub wanted: QueryTarget,
    /// Where it looks.
    pub effort: SearchEffort,
    /// When the answer is of no use any more.
    pub deadline: Option<Instant>,
}

/// What a query found, nearest first, the earlier row first where two are equally near.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Row numbers of the hits.
    pub rows: Vec<u64>,
    /// Their ids, where the store has any.
    pub ids: Ids,
    /// Distances (L2, true), similarities (cosine) or scores (inner product).
    pub values: Vec<f32>,
    /// Buckets that the query looked into.
    pub probes: u64,
    /// Vectors in these.
    pub looked_at: u64,
    /// Its share of the bytes that were read for the queries that were answered together.
    pub read_bytes: u64,
    /// How many that were.
    pub together: u32,
    /// The recall that is promised.
    pub recall: Option<Recall>,
}

/// The recall that is promised of queries that are distributed as the rows of the store are.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Recall {
    /// What was asked for.
    pub target: f64,
    /// What is known to be reached, with 95 % confidence.
    pub low: f64,
    /// Whether that is enough.
    pub kept: bool,
}

impl Recall {
    /// Of what a search reports.
    pub fn of(recall: &RecallStatistics) -> Option<Self> {
        recall.at_k.map(|at_k| Self { target: recall.target, low: at_k.low, kept: recall.kept })
    }
}

/// How queries are served.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The order within a batch.
    pub order: BatchOrder,
    /// What stays in memory.
    pub retention: Retention,
    /// Bytes of buckets that stay in memory; half of what is free where nothing is said.
    pub cache_bytes: Option<u64>,
    /// How long the first query of a batch waits for others; without, those that came while another batch was answered are the
    /// next.
    pub gather: Duration,
    /// Queries that may wait; others are refused.
    pub waiting_max: usize,
    /// Seed of the vectors that are drawn to learn a recall.
    pub seed: u64,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            order: BatchOrder::BucketMajor,
            retention: Retention::Foreseen,
            cache_bytes: None,
            gather: Duration::ZERO,
            waiting_max: 2_000,
            seed: 1,
        }
    }
}

/// What was done so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServeStatistics {
    /// Queries that were taken up to be answered.
    pub queries: u64,
    /// Batches that they came in.
    pub batches: u64,
    /// What their plans say of the cache.
    pub counts: BatchCounts,
    /// Bytes that were read for them.
    pub read_bytes: u64,
    /// Bytes that were read to learn where queries must look.
    pub learning_bytes: u64,
    /// Time that planning took, in seconds.
    pub plan_seconds: f64,
    /// Bytes of buckets that may stay in memory.
    pub cache_bytes: u64,
}
