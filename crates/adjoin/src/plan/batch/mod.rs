//! Plans a batch of queries: the order in which their buckets are read and compared, and the buckets kept for the next
//! batch.
//!
//! A batch is known before its first bucket is read, and so are its cache accesses. `order.rs` orders queries or
//! buckets; `grouping.rs` does so like CALL, by the overlap of sets (`overlap.rs`). `residency.rs` chooses the buckets
//! to evict (`s3_fifo.rs` is one policy), and `steps.rs` simulates that; the printed plan is the one that is executed.
//! `loaders.rs` computes when several loaders finish.

mod residency;
mod steps;
#[cfg(test)]
mod tests;

pub use residency::{BucketCosts, Residency};
pub use steps::{BatchCounts, BatchPlan, BatchStep, plan_batch};
