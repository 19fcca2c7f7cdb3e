//! A service that answers a continuous stream of queries of a store, with low latency in little memory.
//!
//! Queries wait in a queue (`queue.rs`) while earlier ones are answered, and then form a batch. `answering.rs` gets the
//! probes of each query from [`crate::buckets`], and from [`crate::plan::batch`] the order in which buckets are read
//! and compared and the buckets to keep for the next batch. `pass.rs` executes that plan. A query is answered
//! (`batch.rs`) when the last of its buckets was compared, with ids that `names.rs` noted on the way. A [`Service`]
//! combines all of this for a store, on its own thread. The hits of a query depend neither on the others in its batch
//! nor on the plan.

mod answering;
mod batch;
mod names;
mod options;
mod pass;
mod queue;
mod service;

pub use options::{Answer, Recall, Request, ServeOptions, ServeStatistics};
#[doc(hidden)]
pub use options::{NewPlanner, Planner};
pub use service::Service;

/// Purpose of the memory, for error messages.
const PURPOSE: &str = "serving this store";
