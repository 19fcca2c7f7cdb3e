//! Plans a batch of queries: the order in which their buckets are read and compared, and the buckets kept for the next
//! batch.
//!
//! A batch is known before its first bucket is read, and so are its cache accesses. `residency.rs` chooses the
//! buckets to evict, and `steps.rs` orders the buckets and simulates the cache. The printed plan is the one that is
//! executed.

mod residency;
mod steps;
#[cfg(test)]
mod tests;

pub use residency::{BucketCosts, NEVER, Residency};
pub use steps::{BatchCounts, BatchPlan, BatchStep, plan_batch};
