//! Here are queries that come all the time, some alone and many at once; answer each soon, in little memory.
//!
//! Queries wait in a queue (`queue.rs`) until those before them are answered, and are then a batch: `answering.rs` asks
//! [`crate::search`] where they look, [`crate::plan::batch`] in which order buckets are read and compared and which of them
//! stay in memory for the next batch, and `pass.rs` carries that out. A query is answered (`batch.rs`) when it has looked into the last
//! of its buckets, with the ids that `names.rs` noted on the way. A [`Service`] is all of it for a store, on a thread of
//! its own. What a query finds depends neither on the others in its batch nor on the plan.

mod answering;
mod batch;
mod names;
mod options;
mod pass;
mod queue;
mod service;

pub use options::{Answer, Recall, Request, ServeOptions, ServeStatistics};
pub use service::Service;

/// What memory is for, as a refusal says it.
const PURPOSE: &str = "serving this store";
