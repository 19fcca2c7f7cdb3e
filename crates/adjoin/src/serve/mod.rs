//! Searches of a store for a continuous stream of queries, with low latency in little memory.
//!
//! A [`CachedSearch`] answers one batch of queries at a time on the thread of its caller, and keeps buckets in memory for
//! the next batch. It has no queue: the caller admits queries, and passes those that waited during a batch as the next
//! one. Each query is delivered as soon as the last of its buckets was compared, even while the batch goes on.
//!
//! `answering.rs` gets the probes of each query from [`crate::buckets`], and from [`crate::plan::batch`] the order in
//! which buckets are read and compared and the buckets to keep. `pass.rs` executes that plan. `batch.rs` delivers the
//! hits, with ids that `names.rs` noted on the way. The hits of a query depend neither on the others in its batch nor on
//! the plan.

mod answering;
mod batch;
mod names;
mod options;
mod pass;
mod search;

#[doc(hidden)]
pub use options::{CacheOptions, NewPlanner, usual_planner};
pub use options::{CacheStatistics, ServedHits, ServedQuery};
pub use search::CachedSearch;

/// Purpose of the memory, for error messages.
const PURPOSE: &str = "serving this store";
