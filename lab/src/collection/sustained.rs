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
    /// Whether no row is deleted. Inserts then end with the file.
    pub(crate) keep: bool,
    /// Number of threads that search.
    pub(crate) searchers: usize,
    /// Number of hits per query.
    pub(crate) k: u64,
    /// Length of the candidate list.
    pub(crate) list: usize,
}

/// Number of queries for which the recall is measured, and the interval of these measurements.
const CHECKED: usize = 200;
const CHECKED_EVERY: Duration = Duration::from_secs(60);

/// Interval of the records.
const EVERY: Duration = Duration::from_secs(2);

/// A collection that is searched and written to at the same time, and what was measured so far.
struct Run<'a> {
    asked: &'a Asked,
    collection: &'a Collection,
    file: &'a File,
    /// Number of rows that exist at the start.
    first: usize,
    begun: Instant,
    /// Set to end the searches and writes.
    ended: AtomicBool,
    /// Number of inserted and deleted rows.
    written: AtomicU64,
    /// Held by each write, and while the recall is measured.
    order: Mutex<()>,
    /// Durations of the searches since the last record, in seconds.
    times: Mutex<Vec<f64>>,
}

impl Run<'_> {
    /// Searches for one query after another. The threads start at different queries.
    fn search(&self, searcher: usize) -> Result<()> {
        let context = Context::default().with_memory(SEARCH_MEMORY).keeping_caches();
        let options = SearchOptions::new(QueryTarget::Nearest(self.asked.k), SearchEffort::List(self.asked.list), 1);
        for number in searcher * QUERIES / self.asked.searchers.. {
            if self.ended.load(Ordering::Relaxed) {
                break;
            }
            let query = self.file.part(self.file.rows() - 1 - number % QUERIES, 1, 0);
            let begun = Instant::now();
            self.collection.search(&context, QuerySources::new(&query), &options, Box::new(Collect::default()))?;
            self.times.lock().unwrap().push(begun.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Deletes the oldest rows, unless they are kept, and inserts as many others, at the rate that was asked for.
    fn write(&self) -> Result<()> {
        let (begun, others) = (Instant::now(), self.file.rows() - QUERIES);
        let Asked { rate, keep, .. } = *self.asked;
        for number in 0.. {
            let done = number * TOGETHER;
            if self.ended.load(Ordering::Relaxed) || keep && self.first + done + TOGETHER > others {
                break;
            }
            let rows = self.file.part((self.first + done) % others, TOGETHER, (self.first + done) as i64);
            let gone = (!keep).then(|| Ids::Int64((done as i64..(done + TOGETHER) as i64).collect()));
            let write = Write { delete: gone.as_ref(), insert: Some(&rows), ..Write::default() };
            let writing = self.order.lock().unwrap();
            self.collection.write(&write, Durability::Group)?;
            drop(writing);
            let changed = if keep { TOGETHER } else { 2 * TOGETHER };
            self.written.fetch_add(changed as u64, Ordering::Relaxed);
            if rate > 0.0 {
                let due = Duration::from_secs_f64((done + TOGETHER) as f64 / rate);
                std::thread::sleep(due.saturating_sub(begun.elapsed()));
            }
        }
        Ok(())
    }

    /// Prints a record of the last interval, in which `rows` rows were written.
    fn tell(&self, phase: &str, rows: u64) -> Result<()> {
        let (of, seconds) = (self.collection.statistics()?, EVERY.as_secs_f64());
        let mut all = std::mem::take(&mut *self.times.lock().unwrap());
        let mean = 1e6 * all.iter().sum::<f64>() / all.len().max(1) as f64;
        let [p50, p99] = [0.5, 0.99].map(|share| percentile_us(&mut all, share));
        let line = json!({"phase": phase, "at": self.begun.elapsed().as_secs_f64(),
            "searches_per_second": all.len() as f64 / seconds, "mean_us": mean, "p50_us": p50, "p99_us": p99,
            "writes_per_second": rows as f64 / seconds, "merging": of.merging, "merges": of.merges,
            "unmerged": of.facts.unmerged, "unmerged_bytes": of.unmerged_bytes, "deleted": of.facts.deleted,
            "rows": of.facts.rows, "waits": of.waits, "waited_seconds": of.waited_seconds,
            "log_bytes": of.facts.log_bytes, "index_bytes": of.index_bytes,
            "resident_bytes": adjoin::device::current_resident_bytes(),
            "last_merge_seconds": of.last_merge.map(|merge| merge.seconds), "written_bytes": of.written_bytes,
            "ingested_bytes": of.ingested_bytes, "write_p99_ms": of.write_ms.map(|ms| ms.p99),
            "write_p999_ms": of.write_ms.map(|ms| ms.p999), "write_max_ms": of.write_ms.map(|ms| ms.max)});
        println!("{line}");
        Ok(())
    }

    /// Prints the recall of searches with the list. Writes wait meanwhile.
    fn tell_recall(&self) -> Result<()> {
        let _no_writes = self.order.lock().unwrap();
        let (begun, queries) = (Instant::now(), self.file.part(self.file.rows() - CHECKED, CHECKED, 0));
        let find = |effort: SearchEffort| -> Result<Vec<Vec<i64>>> {
            let (context, hits) = (Context::default().with_memory(SEARCH_MEMORY), Collect::default());
            let options = SearchOptions::new(QueryTarget::Nearest(self.asked.k), effort, 1);
            self.collection.search(&context, QuerySources::new(&queries), &options, Box::new(hits.clone()))?;
            Ok(ids_of(&hits))
        };
        let recall = recall_of(&find(SearchEffort::List(self.asked.list))?, &find(SearchEffort::Exact)?);
        println!("{}", json!({"phase": "recall", "recall": recall, "seconds": begun.elapsed().as_secs_f64()}));
        // These searches ran next to the measurement.
        self.times.lock().unwrap().clear();
        Ok(())
    }
}

pub(crate) fn run(folder: &Path, file: &Path, asked: &Asked) -> Result<()> {
    let file = &File::read(file).expect("the file can be read");
    let context = Context::default().with_memory(MEMORY);
    let first = ((file.rows() - QUERIES) as f64 * asked.share) as usize;
    let collection = &opened(&context, folder, file, first)?;
    let run = &Run {
        asked,
        collection,
        file,
        first,
        begun: Instant::now(),
        ended: AtomicBool::new(false),
        written: AtomicU64::new(0),
        order: Mutex::new(()),
        times: Mutex::default(),
    };
    std::thread::scope(|scope| -> Result<()> {
        let searching: Vec<_> =
            (0..asked.searchers).map(|searcher| scope.spawn(move || run.search(searcher))).collect();
        for _ in 0..5 {
            std::thread::sleep(EVERY);
            run.tell("idle", 0)?;
        }
        let usual = MergerOptions::of(&context);
        let at_bytes = if asked.merge_at > 0 { asked.merge_at } else { usual.at_bytes };
        let merger = start_merger(collection, MergerOptions { at_bytes, threads: asked.merge_threads, ..usual })?;
        let writing = scope.spawn(|| run.write());
        let until = Instant::now() + Duration::from_secs_f64(60.0 * asked.minutes);
        let (mut before, mut checked) = (0, Instant::now());
        while Instant::now() < until {
            std::thread::sleep(EVERY);
            run.tell("all", run.written.load(Ordering::Relaxed) - before)?;
            if checked.elapsed() >= CHECKED_EVERY {
                run.tell_recall()?;
                checked = Instant::now();
            }
            before = run.written.load(Ordering::Relaxed);
        }
        run.ended.store(true, Ordering::Relaxed);
        writing.join().expect("the thread does not panic")?;
        for searcher in searching {
            searcher.join().expect("the thread does not panic")?;
        }
        drop(merger);
        Ok(())
    })
}
