//! What is nearest to these queries, asked over HTTP? A store, an index or a collection that is served.
//!
//! A request goes this way: `connections.rs` takes it off the wire within limits, `access.rs` asks who may, `routes.rs`
//! reads its body, `request.rs` makes queries of it (from JSON in `json.rs`, a table, or raw bytes), the `queue.rs` of its lane
//! admits it by its predicted cost (`costs.rs`) and puts it into the next batch, `backend.rs` searches for the batch, `answer.rs`
//! makes text of what was found. What goes wrong is a `problem.rs` (RFC 9457) with the words of the engine; what was done is
//! counted in `metrics.rs`.
//!
//! All that is held for clients is reserved from a part of the budget that searches do not touch, so that a burst of requests
//! is refused rather than felt.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod attributes;
mod backend;
mod batches;
mod body;
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
mod served;
mod server;
mod writes;

pub use load::{LoadOptions, LoadReport, load};
pub use options::{Level, ServerOptions};
pub use server::serve;
