//! Searches a store for a continuous stream of queries, with low latency and little memory.
//!
//! A [`CachedSearch`] answers one batch of queries at a time on the thread of its caller, and keeps buckets in memory
//! for the next batch. It has no queue. The caller admits queries, and passes those that arrive during a batch as the
//! next batch. The hits of a query are delivered as soon as the last of its buckets was compared, even if the batch is
//! still in progress.
//!
//! `answering.rs` gets the probes of each query from [`crate::buckets`]. It gets a plan from [`crate::plan::batch`]:
//! the order in which buckets are read and compared, and the buckets to keep. `pass.rs` executes the plan. `batch.rs`
//! delivers the hits, with the ids that `names.rs` noted when buckets were compared. The hits of a query do not depend
//! on the other queries of its batch or on the plan.

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
