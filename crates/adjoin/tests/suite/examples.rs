//! Runs the tests of the crate's examples.

#[path = "../../examples/collection.rs"]
mod collection;
#[path = "../../examples/dedupe.rs"]
mod dedupe;
#[path = "../../examples/join.rs"]
mod join;
#[path = "../../examples/own_sink.rs"]
mod own_sink;
#[path = "../../examples/own_source.rs"]
mod own_source;
#[path = "../../examples/search.rs"]
mod search;
