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
    /// Bytes of the vector, in the layout of its type.
    pub stored: &'a [u8],
    /// Target of the query.
    pub target: QueryTarget,
    /// Effort of the search.
    pub effort: SearchEffort,
    /// Time after which an error is delivered instead of hits.
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

/// Hits of a query, nearest first. Equally near hits are ordered by row number.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedHits {
    /// Row numbers of the hits.
    pub rows: Vec<u64>,
    /// Ids of the hits, if the store has ids.
    pub ids: Ids,
    /// Values of the hits: distances (L2, not squared), similarities (cosine) or scores (inner product).
    pub values: Vec<f32>,
    /// Number of buckets that the query probed.
    pub probes: u64,
    /// Number of vectors in these buckets.
    pub looked_at: u64,
    /// Bytes read for all queries that were answered together, divided by their number.
    pub read_bytes: u64,
    /// Number of queries that were answered together.
    pub together: u32,
    /// Recall that is promised for the query, if any.
    pub recall: Option<RecallStatistics>,
}

impl ServedHits {
    /// Creates hits without statistics.
    pub(super) fn new(metric: Metric, hits: &[Hit], ids: Ids) -> Self {
        let rows = hits.iter().map(|hit| hit.row).collect();
        let values = hits.iter().map(|hit| Predicate::value_of(metric, hit.nearness)).collect();
        Self { rows, ids, values, probes: 0, looked_at: 0, read_bytes: 0, together: 0, recall: None }
    }

    /// Returns the bytes of the row numbers, values and ids.
    pub fn bytes(&self) -> u64 {
        (self.rows.len() * (size_of::<u64>() + size_of::<f32>())) as u64 + self.ids.bytes()
    }
}

/// Function that plans a batch of queries. Its arguments are the buckets that each query probes, and the time in
/// seconds since the store was opened. It keeps track of the cache with which its plans are executed.
pub(crate) type Planner = Box<dyn FnMut(&[Vec<u32>], f64) -> BatchPlan + Send>;

/// Function that creates a planner for an empty cache, from the costs of buckets and the capacity of the cache in
/// bytes.
pub type NewPlanner = Arc<dyn Fn(BucketCosts, u64) -> Planner + Send + Sync>;

/// Returns a function that creates planners which use [`plan_batch`].
pub fn usual_planner() -> NewPlanner {
    Arc::new(|costs, capacity| {
        // The planner keeps track of the buckets in the cache from one batch to the next.
        let mut cache = Residency::new(capacity, costs);
        Box::new(move |lists, _| plan_batch(lists, &mut cache))
    })
}

/// Options of a [`super::CachedSearch`].
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Bytes of buckets to keep in memory. If `None`, half of the free memory is used.
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
    /// Number of queries in all batches.
    pub queries: u64,
    /// Number of batches.
    pub batches: u64,
    /// Counts of the plans of all batches.
    pub counts: BatchCounts,
    /// Bytes read for queries.
    pub read_bytes: u64,
    /// Bytes read for calibration.
    pub learning_bytes: u64,
    /// Seconds spent on planning.
    pub plan_seconds: f64,
    /// Largest number of bytes of buckets that are kept in memory.
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
