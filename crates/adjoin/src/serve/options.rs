//! Queries, hits, options and statistics of a [`super::CachedSearch`].

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::base::options::{Element, Metric, VectorType, f16_values, f32_values};
use crate::base::predicate::Predicate;
use crate::base::report::RecallStatistics;
use crate::execute::Hit;
use crate::plan::batch::{BatchCounts, BatchPlan, BucketCosts, Residency, plan_batch};
use crate::query::{QueryTarget, SearchEffort};
use crate::source::Ids;

/// One query of a batch.
#[derive(Debug, Clone, Copy)]
pub struct ServedQuery<'a> {
    /// Type of the vector, with the dimensions of the store.
    pub vectors: VectorType,
    /// The vector, in the layout of its type.
    pub stored: &'a [u8],
    /// What to find.
    pub target: QueryTarget,
    /// How hard to search.
    pub effort: SearchEffort,
    /// Time after which the answer is useless.
    pub deadline: Option<Instant>,
}

impl ServedQuery<'_> {
    /// Returns the vector as floats.
    pub(super) fn floats(&self) -> Vec<f32> {
        match self.vectors.element {
            Element::F32 => f32_values(self.stored).map(|value| value as f32).collect(),
            Element::F16 => f16_values(self.stored).map(|value| value as f32).collect(),
            Element::U8 => self.stored.iter().map(|&value| f32::from(value)).collect(),
            Element::I8 => self.stored.iter().map(|&value| f32::from(value.cast_signed())).collect(),
        }
    }
}

/// Hits of a query, nearest first, ties by row number.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedHits {
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
    pub recall: Option<RecallStatistics>,
}

impl ServedHits {
    /// Returns hits without facts on how they were found.
    pub(super) fn new(metric: Metric, hits: &[Hit], ids: Ids) -> Self {
        let rows = hits.iter().map(|hit| hit.row).collect();
        let values = hits.iter().map(|hit| Predicate::value_of(metric, hit.nearness)).collect();
        Self { rows, ids, values, probes: 0, looked_at: 0, read_bytes: 0, together: 0, recall: None }
    }

    /// Returns the bytes of rows, values and ids.
    pub fn bytes(&self) -> u64 {
        (self.rows.len() * (size_of::<u64>() + size_of::<f32>())) as u64 + self.ids.bytes()
    }
}

/// Plans a batch of queries from the buckets that each probes, at a time in seconds since the store was opened. Tracks
/// the cache with which its plans are executed.
pub(crate) type Planner = Box<dyn FnMut(&[Vec<u32>], f64) -> BatchPlan + Send>;

/// Makes planners for an empty cache of a capacity in bytes.
pub type NewPlanner = Arc<dyn Fn(BucketCosts, u64) -> Planner + Send + Sync>;

/// Returns the planner of [`plan_batch`].
pub fn usual_planner() -> NewPlanner {
    Arc::new(|costs, capacity| {
        // The planner tracks what the cache holds from one batch to the next.
        let mut cache = Residency::new(capacity, costs);
        Box::new(move |lists, _| plan_batch(lists, &mut cache))
    })
}

/// Options of a [`super::CachedSearch`].
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Bytes of buckets to keep in memory; half of the free memory if `None`.
    pub cache_bytes: Option<u64>,
    /// Seed of the calibration sample.
    pub seed: u64,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { cache_bytes: None, seed: 1 }
    }
}

/// Statistics that are available while a batch is answered.
pub(super) type SharedStatistics = Arc<Mutex<CacheStatistics>>;

/// Work of a [`super::CachedSearch`] so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct CacheStatistics {
    /// Queries of all batches.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_every_type_become_floats() {
        let floats = |element, stored: &[u8]| {
            let vectors = VectorType { element, dimensions: 2 };
            let (target, effort) = (QueryTarget::Nearest(1), SearchEffort::Exact);
            ServedQuery { vectors, stored, target, effort, deadline: None }.floats()
        };
        assert_eq!(floats(Element::U8, &[0, 255]), [0.0, 255.0]);
        assert_eq!(floats(Element::I8, &[0, 255]), [0.0, -1.0]);
        assert_eq!(floats(Element::F16, &[0, 0x3c, 0, 0xc0]), [1.0, -2.0]);
        assert_eq!(floats(Element::F32, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0]), [1.0, 0.0]);
    }
}
