//! HTTP server that searches a store, an index or a collection, or other servers (`coordinator/`).
//!
//! A request passes these modules. `connections.rs` reads it from the network within limits. `layers.rs` and `access.rs`
//! check access, `routes.rs` has the handlers, `queries.rs` reads the body (JSON by `json.rs`, a table, or raw bytes), and
//! `request.rs` the options. `exchange.rs` has the types, deadlines and memory of bodies. The queue of its lane
//! (`queue.rs`) admits the request by its predicted cost (`costs.rs`) and adds it to the next batch. `backend.rs` chooses
//! the memory and the method of the search, `answering.rs` searches, and `answer.rs` formats the hits. A failure becomes
//! a problem document (RFC 9457, `problem.rs`) with the message of the engine. `metrics.rs` counts requests.
//!
//! All memory for clients is reserved from a part of the budget that searches do not use. So if too many requests
//! arrive at once, some are refused, and running searches do not slow down.
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
mod coordinator;
mod costs;
mod encoding;
mod exchange;
mod heads;
mod hosting;
mod ids;
mod json;
mod layers;
mod load;
mod metrics;
mod options;
mod problem;
mod queries;
mod queue;
mod request;
mod routes;
mod rows;
mod served;
mod server;
mod writes;

pub use load::{LoadLatency, LoadOptions, LoadReport, load};
pub use options::{Level, LogFormat, ServedData, ServerOptions, ShardOptions};
pub use server::serve;
