//! Single queries, which are answered by a cached search and by a search without a cache.

use std::path::Path;
use std::time::Instant;

use adjoin::{
    Collect, Context, Error, QueryTarget, Result, SearchEffort, SearchOptions, SearchQueries, Store,
    lab::{buckets, report::LatencyStatistics, source},
};
use serde_json::json;

use super::Options;
use super::collection::{Asking, PolicyNames};
use crate::one_query::OneQuery;

/// Times both kinds of searches in turn, with the same queries. Fails if their hits differ.
pub(crate) fn run(store: &Path, file: &str, options: &Options<'_>) -> Result<()> {
    let policy = PolicyNames { order: "bucket-major", cache: "foreseen" };
    let asking = Asking::open(store, file, policy, options)?;
    let context = Context::default().with_memory(options.value("memory", f64::from(1 << 30)) as u64);
    let store = Store::open(&context, store)?;
    let source = source::open(&context, &[file.to_owned()], &Default::default())?;
    let stored = source.info().vectors.bytes();
    let mut scan = source.scan(1 << 20)?;
    let first = scan.next_batch()?.ok_or_else(|| Error::input("there are no queries"))?;
    let [mut served, mut direct] = [const { Vec::new() }; 2];
    for (number, bytes) in first.bytes.chunks_exact(stored).take(options.value("queries", 200.0) as usize).enumerate() {
        let begun = Instant::now();
        let answer = asking.answer(std::iter::once(number)).remove(0)?;
        served.push(1e3 * begun.elapsed().as_secs_f32());
        let query = OneQuery::new(source.info(), bytes.to_vec());
        let begun = Instant::now();
        let found = searched(&context, &store, &query, asking.wanted, asking.effort)?;
        direct.push(1e3 * begun.elapsed().as_secs_f32());
        assert_eq!(answer.rows, found, "query {number}");
    }
    let of = |times| LatencyStatistics::of(times);
    println!("{}", json!({"what": "lone", "queries": served.len(), "served_ms": of(served), "direct_ms": of(direct)}));
    Ok(())
}

/// Returns the rows that a search without a cache finds.
fn searched(
    context: &Context,
    store: &Store,
    query: &OneQuery,
    target: QueryTarget,
    effort: SearchEffort,
) -> Result<Vec<u64>> {
    let hits = Collect::default();
    let options = SearchOptions::new(target, effort, 1);
    buckets::search(context, store, SearchQueries::new(query), &options, Box::new(hits.clone()))?;
    Ok(hits.hits().remove(0).into_iter().map(|(row, _)| row).collect())
}
