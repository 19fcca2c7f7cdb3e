//! A burst of writes that no merge follows: the rate of inserts, the time of searches among the unmerged rows with and
//! without buckets, and the time in which the collection opens again.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adjoin::{
    Collect, Collection, Context, Durability, QueryTarget, Result, SearchEffort, SearchOptions, Write,
    lab::{
        collection::{MergerOptions, start_merger},
        query::QuerySources,
    },
};
use serde_json::json;

use super::file::{File, opened};
use super::{ids_of, percentile_us, recall_of};

/// Number of rows per write, and of queries.
const TOGETHER: usize = 100;
const QUERIES: usize = 500;
const K: u64 = 10;
const RECALL: f64 = 0.95;
const SEARCH_MEMORY: u64 = 1 << 30;
/// Buckets are complete if their number of rows has not changed for this time.
const QUIET: Duration = Duration::from_secs(2);

/// Searches for one query after another. Returns the times in seconds, and the ids of all hits.
fn search(collection: &Collection, file: &File, effort: SearchEffort) -> Result<(Vec<f64>, Vec<Vec<i64>>)> {
    let context = Context::default().with_memory(SEARCH_MEMORY);
    let options = SearchOptions::new(QueryTarget::Nearest(K), effort, 1);
    let (mut times, mut found) = (Vec::new(), Vec::new());
    // The first searches calibrate, and fill caches.
    for number in (0..QUERIES / 10).chain(0..QUERIES) {
        let (query, hits) = (file.part(file.rows() - 1 - number, 1, 0), Collect::default());
        let begun = Instant::now();
        collection.search(&context, QuerySources::new(&query), &options, Box::new(hits.clone()))?;
        times.push(begun.elapsed().as_secs_f64());
        found.extend(ids_of(&hits));
    }
    Ok((times.split_off(QUERIES / 10), found.split_off(QUERIES / 10)))
}

/// Waits until no more rows are put into buckets. Returns the duration in seconds.
fn bucketed(collection: &Collection) -> Result<f64> {
    let begun = Instant::now();
    let (mut rows, mut changed) = (0, begun);
    while changed.elapsed() < QUIET {
        let now = collection.statistics()?.bucketed_rows;
        if now != rows {
            (rows, changed) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok((changed - begun).as_secs_f64())
}

/// Inserts `rows` rows into a collection with `merged` rows on disk. The last rows of the file are the queries.
pub(crate) fn run(folder: &Path, file: &Path, merged: usize, rows: usize, memory: u64) -> Result<()> {
    let file = &File::read(file).expect("the file can be read");
    let context = Context::default().with_memory(memory);
    let collection = opened(&context, folder, file, merged)?;
    let others = file.rows() - QUERIES;
    let begun = Instant::now();
    for first in (merged..merged + rows).step_by(TOGETHER) {
        let some = file.part(first % others, TOGETHER.min(merged + rows - first), first as i64);
        collection.write(&Write { insert: Some(&some), ..Write::default() }, Durability::Buffered)?;
    }
    let insert_seconds = begun.elapsed().as_secs_f64();
    let figures = |times: &mut Vec<f64>| {
        let mean = 1e6 * times.iter().sum::<f64>() / times.len() as f64;
        json!({"mean_us": mean, "p99_us": percentile_us(times, 0.99)})
    };
    let (mut all, _) = search(&collection, file, SearchEffort::Recall(RECALL))?;
    let merger = start_merger(&collection, MergerOptions { at_bytes: 1 << 40, ..MergerOptions::of(&context) })?;
    let bucket_seconds = bucketed(&collection)?;
    let (mut some, found) = search(&collection, file, SearchEffort::Recall(RECALL))?;
    let (_, wanted) = search(&collection, file, SearchEffort::Exact)?;
    let recall = recall_of(&found, &wanted);
    let of = collection.statistics()?;
    let resident = adjoin::device::current_resident_bytes();
    drop(merger);
    Arc::into_inner(collection).map_or(Ok(()), Collection::close)?;
    let begun = Instant::now();
    let again = Collection::open(&context, folder)?;
    println!(
        "{}",
        json!({"merged": merged, "rows": rows, "inserts_per_second": rows as f64 / insert_seconds, "all": figures(&mut all),
            "buckets": figures(&mut some), "bucket_seconds": bucket_seconds, "bucketed_rows": of.bucketed_rows,
            "recall": recall, "open_seconds": begun.elapsed().as_secs_f64(), "unmerged_bytes": of.unmerged_bytes,
            "resident_bytes": resident, "unmerged": again.facts().unmerged})
    );
    Ok(())
}
