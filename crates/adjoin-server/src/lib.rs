//! HTTP server that searches a store, an index or a collection.
//!
//! A request passes these modules: `connections.rs` reads it from the wire within limits, `access.rs` checks access,
//! `routes.rs` reads its body, and `request.rs` turns that (JSON through `json.rs`, a table, or raw bytes) into
//! queries. The `queue.rs` of its lane admits it by its predicted cost (`costs.rs`) and adds it to the next batch.
//! `backend.rs` chooses the memory and the method of its search, `answering.rs` searches, and `answer.rs` formats the hits. Failures become a `problem.rs` (RFC 9457)
//! with the message of the engine. `metrics.rs` counts.
//!
//! All memory held for clients is reserved from a part of the budget that searches do not use, so that a burst of
//! requests is refused and does not slow down running searches.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod answering;
mod attributes;
mod backend;
mod batches;
mod body;
mod body_limits;
mod columns;
mod connections;
mod costs;
mod encoding;
mod heads;
mod ids;
mod json;
mod load;
mod metrics;
mod options;
mod problem;
mod queue;
mod request;
mod routes;
mod rows;
mod served;
mod server;
mod writes;

pub use load::{LoadLatency, LoadOptions, LoadReport, load};
pub use options::{Level, LogFormat, ServerOptions};
pub use server::serve;
