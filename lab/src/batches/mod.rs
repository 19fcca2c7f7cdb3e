//! Plans batches of queries with orders and caches to compare the engine's with.
//!
//! `order.rs` orders queries or buckets; `grouping.rs` does so like CALL, by the overlap of sets (`overlap.rs`).
//! `residency.rs` chooses the buckets to evict (`s3_fifo.rs` is one policy), and `steps.rs` simulates that.
//! `loaders.rs` computes when several loaders finish.

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
