//! Plans batches of queries with other orders and caches, to compare the engine's with.
//!
//! `order.rs` orders queries or buckets. `grouping.rs` groups queries as CALL does, by the overlap of sets
//! (`overlap.rs`). `residency.rs` chooses the buckets to evict, and `s3_fifo.rs` is one of its policies. `steps.rs`
//! simulates the cache. `loaders.rs` computes when several loaders finish.

mod grouping;
mod loaders;
mod order;
mod overlap;
mod residency;
mod s3_fifo;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use grouping::{Reading, group};
pub(crate) use loaders::{Assignment, finish_times, greedy_packing};
pub(crate) use order::{BatchOrder, THETA};
pub(crate) use overlap::{Bitmaps, HashedSets, Overlap};
pub(crate) use residency::{Residency, Retention};
pub(crate) use steps::{hit_rate, plan_batch};
