//! The command line as its users meet it: the built binary, run in temporary folders.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod cgroup;
mod cross;
mod dedupe;
mod end_to_end;
mod explain;
mod filtered_joins;
mod filters;
mod flash;
mod formats;
mod groups;
mod ids;
mod index;
mod inputs;
mod killed_live;
mod layouts;
mod leftovers;
mod live;
mod live_copies;
mod live_ranges;
mod live_refused;
mod manual;
mod memory;
mod nearest;
mod neighbours;
mod options;
mod pairs;
mod place;
mod refused_inputs;
mod refused_options;
mod replacing;
mod report;
mod search;
mod serve;
mod serve_abuse;
mod serve_fuzzed;
mod serve_how_to;
mod serve_live;
mod serving;
mod signals;
mod statistics;
mod streams;
mod target_rows;
mod threads;
mod verify;
