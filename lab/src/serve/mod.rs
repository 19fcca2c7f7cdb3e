//! Measures the cost of serving a store, for each order of batches and each cache policy. Prints one JSON object per
//! line.
//!
//! `serve plans STORE QUERIES [NAME=VALUE]...`: makes plans. Prints hit rates and bytes (CALL, Figures 9 and 13, Table
//! III) and the time of grouping (Table II). Also loads the buckets of some queries with 8 loaders (Figures 6 and 14). Names:
//! `nprobe`, `batch` (number of queries), `entries` (size of the paper's cache), `share` (size of our cache as a
//! fraction of all bytes).
//!
//! `serve batches STORE QUERIES ORDER CACHE [NAME=VALUE]...`: answers one batch after another. Names: `nprobe`,
//! `batch`, `batches`, `share`, `memory`, `threads`, `k`, and `hits` (a file that gets K row numbers of 4 bytes for
//! each query).
//!
//! `serve replay STORE QUERIES ORDER CACHE [NAME=VALUE]...`: sends queries at their arrival times, even if earlier
//! ones are not answered yet (Figures 4 and 10 to 13). Prints latencies from arrival to answer. Names: as for
//! `batches`, and `rate` per second, `burst` (factor of the rate), `seconds` (after `warm` seconds), `gather`
//! (seconds that a batch waits), `seed`.
//!
//! `serve simulated STORE QUERIES [NAME=VALUE]...`: replays arrivals in simulated time, at fractions of the capacity of
//! each contender, and for each theta (Figures 4 and 10 to 12, Table III). Names: `nprobe`, `entries` or `share`, `warm`,
//! `seconds`, `most` (number of arrivals), `burst`, `seed`, and for the device `loaders`, `request` (microseconds
//! before a read), `reads` and `compares` (MB per second).
//!
//! `serve lone STORE QUERIES [NAME=VALUE]...`: answers one query at a time, in turn by a cached search and by a
//! search without a cache. Names: `queries`, and as for `batches`.

mod arrivals;
mod collection;
mod device;
mod loading;
mod lone;
mod plans;
mod queries;
mod simulated;

use std::path::Path;

use adjoin::{Error, Result};

use self::collection::PolicyNames;

/// Options of the form NAME=VALUE.
struct Options<'a>(&'a [&'a str]);

impl Options<'_> {
    fn value(&self, name: &str, usual: f64) -> f64 {
        self.text(name).map_or(usual, |text| text.parse().expect("a number"))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["plans", store, queries, ref options @ ..] => plans::run(Path::new(store), queries, &Options(options)),
        ["batches", store, queries, order, cache, ref options @ ..] => {
            collection::batches(Path::new(store), queries, PolicyNames { order, cache }, &Options(options))
        }
        ["replay", store, queries, order, cache, ref options @ ..] => {
            collection::replay(Path::new(store), queries, PolicyNames { order, cache }, &Options(options))
        }
        ["simulated", store, queries, ref options @ ..] => simulated::run(Path::new(store), queries, &Options(options)),
        ["lone", store, queries, ref options @ ..] => lone::run(Path::new(store), queries, &Options(options)),
        _ => Err(Error::option(
            "give plans, simulated or lone STORE QUERIES [NAME=VALUE]..., or batches or replay STORE QUERIES ORDER CACHE [NAME=VALUE]...",
        )),
    }
}
