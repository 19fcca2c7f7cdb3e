//! Measures writes and searches of a collection. Prints one JSON object per line.
//!
//! `live writes FOLDER [NAME=VALUE]...`: `rows` writes of one row each, buffered and in groups, by one writer and by
//! many.
//!
//! `live sustained FOLDER FILE [NAME=VALUE]...`: inserts, deletes and searches at the same time. FILE is a `.u8bin`.
//! Names: `share` (fraction of the rows that exist at the start), `minutes`, `merge_at` in bytes, `merge_threads`,
//! `rate` in rows per second, `keep=1` (no row is deleted), `searchers` (threads that search), `k`, `list`.
//!
//! `live burst FOLDER FILE [NAME=VALUE]...`: inserts of `rows` rows into a collection with `merged` rows on disk, with a
//! budget of `memory` bytes, and searches among these rows.
//!
//! `live merge FOLDER [NAME=VALUE]...`: merges a collection by changing its index. Names: `threads`, and
//! `replacements` (default 1). If a deleted vertex was a neighbor of a vertex, at most `replacements` neighbors of
//! the deleted vertex are candidates for new neighbors.
//!
//! `writes`, `sustained` and `burst` create FOLDER and keep it.

mod burst;
mod file;
mod rows;
mod sustained;
mod writes;

use std::path::Path;

use adjoin::{Collect, Collection, Context, Error, HitBatch, Ids, Result};

/// Returns a percentile of times, in microseconds, or 0 if there are no times. `share` is the fraction of the times
/// that are not longer than the result.
fn percentile_us(seconds: &mut [f64], share: f64) -> f64 {
    seconds.sort_unstable_by(f64::total_cmp);
    let last = seconds.len().saturating_sub(1);
    seconds.get((last as f64 * share) as usize).map_or(0.0, |seconds| 1e6 * seconds)
}

/// Returns the ids of the hits of each query. One batch holds all hits of a query, since there are few.
fn ids_of(found: &Collect) -> Vec<Vec<i64>> {
    let mut all = Vec::new();
    for HitBatch { ends, ids, .. } in found.batches() {
        let Ids::Int64(ids) = ids else { unreachable!("ids of these collections are integers") };
        let starts = std::iter::once(0).chain(ends.iter().copied());
        all.extend(starts.zip(&ends).map(|(start, &end)| ids[start..end].to_vec()));
    }
    all
}

/// Returns the fraction of the wanted ids that were found.
fn recall_of(found: &[Vec<i64>], wanted: &[Vec<i64>]) -> f64 {
    let both = found.iter().zip(wanted).flat_map(|(found, wanted)| wanted.iter().filter(|id| found.contains(id)));
    both.count() as f64 / wanted.iter().map(Vec::len).sum::<usize>() as f64
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let value = |name: &str, usual: f64| {
        let given = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        given.map_or(usual, |text| text.parse().expect("a number"))
    };
    match words[..] {
        ["writes", folder, ..] => writes::run(Path::new(folder), value("rows", 100_000.0) as i64),
        ["sustained", folder, file, ..] => {
            let asked = sustained::Asked {
                share: value("share", 0.9),
                minutes: value("minutes", 2.0),
                merge_at: value("merge_at", 0.0) as u64,
                merge_threads: value("merge_threads", 1.0) as usize,
                rate: value("rate", 0.0),
                keep: value("keep", 0.0) > 0.0,
                searchers: value("searchers", 1.0) as usize,
                k: value("k", 10.0) as u64,
                list: value("list", 40.0) as usize,
            };
            sustained::run(Path::new(folder), Path::new(file), &asked)
        }
        ["burst", folder, file, ..] => {
            let [merged, rows] =
                [("merged", 100_000.0), ("rows", 100_000.0)].map(|(name, usual)| value(name, usual) as usize);
            burst::run(Path::new(folder), Path::new(file), merged, rows, value("memory", f64::from(1 << 30)) as u64)
        }
        ["merge", folder, ..] => {
            let context = Context::default().with_resources(None, Some(value("threads", 2.0) as usize))?;
            let collection = Collection::open(&context, Path::new(folder))?;
            collection.merge_replacing(&context, value("replacements", 1.0) as usize)?;
            collection.close()
        }
        _ => Err(Error::option(
            "give writes FOLDER [NAME=VALUE]..., sustained FOLDER FILE [NAME=VALUE]..., burst FOLDER FILE [NAME=VALUE]... or \
             merge FOLDER [NAME=VALUE]...",
        )),
    }
}
