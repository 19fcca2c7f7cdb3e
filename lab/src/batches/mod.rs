//! Plans of batches of queries by other orders and caches than those of the engine.
//!
//! `order.rs` orders queries or buckets, `grouping.rs` as CALL does by the overlap of sets (`overlap.rs`); `residency.rs` says
//! who leaves the cache (`s3_fifo.rs` is one way), `steps.rs` plays that through. `loaders.rs` knows when several loaders are
//! done.

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
