//! Here are the buckets that each query of a batch looks into; in which order are they read and compared, and what is kept for
//! the next batch?
//!
//! A batch is known before its first bucket is read: so is what a cache will be asked for. `order.rs` orders queries or
//! buckets, `grouping.rs` as CALL does by the overlap of sets (`overlap.rs`); `residency.rs` says who leaves the cache
//! (`s3_fifo.rs` is one way), `steps.rs` plays that through: what is printed is what is done. `loaders.rs` knows when several
//! loaders are done.

mod grouping;
mod loaders;
mod order;
mod overlap;
mod residency;
mod s3_fifo;
mod steps;
#[cfg(test)]
mod tests;

pub use grouping::{Reading, group};
pub use loaders::{Assignment, finish_times, greedy_packing};
pub use order::{BatchOrder, THETA};
pub use overlap::{Bitmaps, HashedSets, Overlap};
pub use residency::{BucketCosts, Residency, Retention};
pub use steps::{BatchCounts, BatchPlan, BatchStep, plan_batch};
