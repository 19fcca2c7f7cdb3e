//! Tests of the command line. They run the program in temporary folders, as users do.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod build_parts;
mod carried_columns;
mod cgroup;
mod collection;
mod collection_copies;
mod collection_ranges;
mod collection_refused;
mod columns;
#[cfg(feature = "object")]
mod copy;
mod cross;
mod decisions;
mod dedupe;
#[cfg(feature = "object")]
mod dedupe_in_buckets;
mod dedupe_texts;
mod documents;
mod end_to_end;
mod explain;
mod filtered_joins;
mod filters;
mod flash;
mod formats;
mod get;
mod golden;
mod groups;
mod harness_sets;
mod ids;
mod index;
mod inputs;
mod integers;
mod killed_collection;
mod killed_parts;
mod layouts;
mod leftovers;
mod manual;
mod memory;
mod memory_harness;
mod nearest;
mod neighbors;
mod new_rows;
#[cfg(feature = "object")]
#[allow(dead_code)] // only the tests of its own crate need some of its faults
#[path = "../../../adjoin-object/tests/objects/server.rs"]
mod object_server;
#[cfg(feature = "object")]
mod object_stores;
mod options;
mod pairs;
mod parts;
#[cfg(feature = "object")]
mod parts_in_buckets;
mod place;
mod refused_inputs;
mod refused_options;
mod remedies;
mod replacing;
mod report;
mod report_kinds;
mod resume;
mod search;
mod serve;
mod serve_abuse;
mod serve_bodies;
mod serve_collection;
mod serve_fuzzed;
mod serve_how_to;
mod serve_shards;
mod serve_shards_failing;
mod serving;
mod shards;
mod signals;
mod soak;
mod statistics;
mod streams;
mod target_rows;
mod threads;
mod verify;
