//! Inserts, deletes and searches at the same time for some minutes. Measures rates, latencies and resources.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use adjoin::{
    Collect, Collection, Context, Durability, Ids, QueryTarget, Result, SearchEffort, SearchOptions, Write,
    lab::{
        collection::{MergerOptions, start_merger},
        query::QuerySources,
    },
};
use serde_json::json;

use super::file::{File, opened};
use super::{ids_of, percentile_us, recall_of};

/// Number of rows per write.
const TOGETHER: usize = 10;
/// Number of rows of the file that are used as queries.
const QUERIES: usize = 10_000;
const K: u64 = 10;
const LIST: usize = 40;
/// Budgets of the collection and of its searches, in bytes.
const MEMORY: u64 = 1 << 30;
const SEARCH_MEMORY: u64 = 256 << 20;

/// Options of the experiment.
pub(crate) struct Asked {
    /// Fraction of the rows that exist at the start. The others are inserted later.
    pub(crate) share: f64,
    pub(crate) minutes: f64,
    /// Size of the rows in memory at which a merge starts, in bytes. 0 means the default.
    pub(crate) merge_at: u64,
    pub(crate) merge_threads: usize,
    /// Number of rows that are inserted per second, which is also the number of deleted ones. 0 means as fast as
    /// possible.
    pub(crate) rate: f64,
}

/// Number of queries for which the recall is measured, and the interval of these measurements.
const CHECKED: usize = 200;
const CHECKED_EVERY: Duration = Duration::from_secs(60);

/// Durations of searches that were not taken yet, in seconds.
#[derive(Default)]
struct Times(Mutex<Vec<f64>>);

impl Times {
    fn take(&self) -> Vec<f64> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn add(&self, seconds: f64) {
        self.0.lock().unwrap().push(seconds);
    }
}

/// Searches for one query after another, until `ended` is set.
fn search(collection: &Collection, file: &File, times: &Times, ended: &AtomicBool) -> Result<()> {
    let context = Context::default().with_memory(SEARCH_MEMORY).keeping_caches();
    let options = SearchOptions::new(QueryTarget::Nearest(K), SearchEffort::List(LIST), 1);
    for number in 0.. {
        if ended.load(Ordering::Relaxed) {
            break;
        }
        let query = file.part(file.rows() - 1 - number % QUERIES, 1, 0);
        let begun = Instant::now();
        collection.search(&context, QuerySources::new(&query), &options, Box::new(Collect::default()))?;
        times.add(begun.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Returns the recall of searches with a list of [`LIST`]. No row may be written meanwhile.
fn recall(collection: &Collection, file: &File) -> Result<f64> {
    let queries = file.part(file.rows() - CHECKED, CHECKED, 0);
    let find = |effort: SearchEffort| -> Result<Vec<Vec<i64>>> {
        let (context, hits) = (Context::default().with_memory(SEARCH_MEMORY), Collect::default());
        let options = SearchOptions::new(QueryTarget::Nearest(K), effort, 1);
        collection.search(&context, QuerySources::new(&queries), &options, Box::new(hits.clone()))?;
        Ok(ids_of(&hits))
    };
    Ok(recall_of(&find(SearchEffort::List(LIST))?, &find(SearchEffort::Exact)?))
}

pub(crate) fn run(folder: &Path, file: &Path, asked: &Asked) -> Result<()> {
    let file = &File::read(file).expect("the file can be read");
    let context = Context::default().with_memory(MEMORY);
    let others = file.rows() - QUERIES;
    let first = (others as f64 * asked.share) as usize;
    let collection = &opened(&context, folder, file, first)?;
    let (times, ended, written) = (&Times::default(), &AtomicBool::new(false), &AtomicU64::new(0));
    // Held by each write, and while the recall is measured.
    let order = &Mutex::new(());
    let begun = Instant::now();
    let tell = |phase: &str, seconds: f64, rows: u64| -> Result<()> {
        let of = collection.statistics()?;
        let mut all = times.take();
        let mean = 1e6 * all.iter().sum::<f64>() / all.len().max(1) as f64;
        let [p50, p99] = [0.5, 0.99].map(|share| percentile_us(&mut all, share));
        let line = json!({"phase": phase, "at": begun.elapsed().as_secs_f64(), "searches_per_second": all.len() as f64 / seconds,
            "mean_us": mean, "p50_us": p50, "p99_us": p99, "writes_per_second": rows as f64 / seconds,
            "merging": of.merging, "merges": of.merges, "unmerged": of.facts.unmerged,
            "unmerged_bytes": of.unmerged_bytes, "deleted": of.facts.deleted, "rows": of.facts.rows,
            "waits": of.waits, "waited_seconds": of.waited_seconds, "log_bytes": of.facts.log_bytes,
            "index_bytes": of.index_bytes, "resident_bytes": adjoin::device::current_resident_bytes(),
            "last_merge_seconds": of.last_merge.map(|merge| merge.seconds), "written_bytes": of.written_bytes, "ingested_bytes": of.ingested_bytes,
            "write_p99_ms": of.write_ms.map(|ms| ms.p99), "write_p999_ms": of.write_ms.map(|ms| ms.p999), "write_max_ms": of.write_ms.map(|ms| ms.max)});
        println!("{line}");
        Ok(())
    };
    std::thread::scope(|scope| -> Result<()> {
        let searching = scope.spawn(|| search(collection, file, times, ended));
        let every = Duration::from_secs(2);
        for _ in 0..5 {
            std::thread::sleep(every);
            tell("idle", every.as_secs_f64(), 0)?;
        }
        let usual = MergerOptions::of(&context);
        let at_bytes = if asked.merge_at > 0 { asked.merge_at } else { usual.at_bytes };
        let merger = start_merger(collection, MergerOptions { at_bytes, threads: asked.merge_threads, ..usual })?;
        let writing = scope.spawn(|| -> Result<()> {
            let begun = Instant::now();
            for number in 0.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let done = number * TOGETHER;
                let rows = file.part((first + done) % others, TOGETHER, (first + done) as i64);
                let gone = Ids::Int64((done as i64..(done + TOGETHER) as i64).collect());
                let write = Write { delete: Some(&gone), insert: Some(&rows), ..Write::default() };
                let writing = order.lock().unwrap();
                collection.write(&write, Durability::Group)?;
                drop(writing);
                written.fetch_add(2 * TOGETHER as u64, Ordering::Relaxed);
                if asked.rate > 0.0 {
                    let due = Duration::from_secs_f64((done + TOGETHER) as f64 / asked.rate);
                    std::thread::sleep(due.saturating_sub(begun.elapsed()));
                }
            }
            Ok(())
        });
        let (until, mut before) = (Instant::now() + Duration::from_secs_f64(60.0 * asked.minutes), 0);
        let mut checked = Instant::now();
        while Instant::now() < until {
            std::thread::sleep(every);
            let now = written.load(Ordering::Relaxed);
            tell("all", every.as_secs_f64(), now - before)?;
            if checked.elapsed() >= CHECKED_EVERY {
                let _no_writes = order.lock().unwrap();
                let (begun, recall) = (Instant::now(), recall(collection, file)?);
                println!("{}", json!({"phase": "recall", "recall": recall, "seconds": begun.elapsed().as_secs_f64()}));
                // These searches ran next to the measurement.
                times.take();
                checked = Instant::now();
            }
            before = written.load(Ordering::Relaxed);
        }
        ended.store(true, Ordering::Relaxed);
        writing.join().expect("the thread does not panic")?;
        searching.join().expect("the thread does not panic")?;
        drop(merger);
        Ok(())
    })
}
