//! Plans a batch of queries: the order in which buckets are read and compared, and the buckets that are kept for the
//! next batch.
//!
//! All queries of a batch are known before its first bucket is read, so all of its cache accesses are known too.
//! `residency.rs` chooses the buckets to evict. `steps.rs` orders the buckets and simulates the cache. The printed
//! plan is the one that is executed.

mod residency;
mod steps;
#[cfg(test)]
mod tests;

pub use residency::{BucketCosts, NEVER, Residency};
pub use steps::{BatchCounts, BatchPlan, BatchStep, plan_batch};
