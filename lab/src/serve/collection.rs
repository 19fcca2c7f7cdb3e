//! Sends batches, or queries at their arrival times, to a cached search.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use adjoin::{
    CacheStatistics, CachedSearch, Context, Element, QueryTarget, Result, SearchEffort, ServedHits, ServedQuery, Store,
    VectorType,
    lab::{
        report::LatencyStatistics,
        serve::{CacheOptions, NewPlanner},
    },
};
use serde_json::{Value, json};

use super::arrivals::arrivals;
use super::{Options, queries};
use crate::batches::{BatchOrder, Residency, Retention, plan_batch};

/// Maximum number of queries that may wait in a replay. Further queries are refused.
const WAITING_MAX: usize = 20_000;

/// A cached search, the queries that are sent to it in turn, and their target and effort.
pub(crate) struct Asking {
    search: CachedSearch,
    vectors: VectorType,
    /// Stored floats of the vector of each query.
    queries: Vec<Vec<u8>>,
    pub(crate) wanted: QueryTarget,
    pub(crate) effort: SearchEffort,
}

/// Names of an order of batches, and of a cache policy.
#[derive(Clone, Copy)]
pub(crate) struct PolicyNames<'a> {
    pub(crate) order: &'a str,
    pub(crate) cache: &'a str,
}

impl Asking {
    pub(crate) fn open(store: &Path, file: &str, policy: PolicyNames<'_>, options: &Options<'_>) -> Result<Self> {
        let queries = queries::read(&Context::default(), file)?;
        let stored = |query: &Vec<f32>| query.iter().flat_map(|value| value.to_le_bytes()).collect();
        let queries: Vec<Vec<u8>> = queries.iter().map(stored).collect();
        let memory = options.value("memory", f64::from(1 << 30)) as u64;
        let mut context = Context::default().with_memory(memory);
        context.threads = options.value("threads", context.threads as f64) as usize;
        let store = Arc::new(Store::open(&context, store)?);
        let bytes: u64 = store.extents().iter().map(|extent| extent.bytes(false)).sum();
        let vectors = VectorType { element: Element::F32, ..store.manifest().vectors };
        let cache_bytes = Some((bytes as f64 * options.value("share", 0.1)) as u64);
        let cache_options = CacheOptions { cache_bytes, ..CacheOptions::default() };
        let (order, retention): (BatchOrder, Retention) = (policy.order.parse()?, policy.cache.parse()?);
        let search = CachedSearch::open_planned(&context, store, &cache_options, planner(order, retention))?;
        let wanted = QueryTarget::Nearest(options.value("k", 10.0) as u64);
        let effort = SearchEffort::Probes(options.value("nprobe", 30.0) as u32);
        Ok(Self { search, vectors, queries, wanted, effort })
    }

    /// Returns the requested number of hits per query, or 0 for a threshold.
    fn hits(&self) -> usize {
        match self.wanted {
            QueryTarget::Nearest(hits) => hits as usize,
            QueryTarget::Within(_) => 0,
        }
    }

    fn query(&self, number: usize) -> ServedQuery<'_> {
        let stored = &self.queries[number % self.queries.len()];
        ServedQuery { vectors: self.vectors, stored, target: self.wanted, effort: self.effort, deadline: None }
    }

    /// Answers one batch of queries. `numbers` selects the queries.
    pub(crate) fn answer(&self, numbers: impl Iterator<Item = usize>) -> Vec<Result<ServedHits>> {
        let queries: Vec<ServedQuery<'_>> = numbers.map(|number| self.query(number)).collect();
        let mut answers: Vec<Option<Result<ServedHits>>> = queries.iter().map(|_| None).collect();
        self.search.answer(&queries, &mut |number, hits| answers[number] = Some(hits));
        answers.into_iter().map(|answer| answer.expect("each query is delivered")).collect()
    }

    /// Answers queries as they arrive, until all have arrived. Queries that arrive during a batch form the next one.
    /// The first query of a batch waits for others until `gather` after its arrival. Returns the latency of each
    /// query.
    fn answer_arrivals(&self, waiting: &Receiver<Arrival>, gather: Duration) -> Vec<TimedAnswer> {
        let mut times = Vec::new();
        while let Ok(first) = waiting.recv() {
            let until = first.intended + gather;
            let mut batch = vec![first];
            while let Ok(next) = waiting.recv_timeout(until.saturating_duration_since(Instant::now())) {
                batch.push(next);
            }
            let queries: Vec<ServedQuery<'_>> = batch.iter().map(|arrival| self.query(arrival.number)).collect();
            self.search.answer(&queries, &mut |number, hits| {
                hits.expect("a query without a deadline is answered");
                let Arrival { at, intended, .. } = batch[number];
                times.push(TimedAnswer { at, seconds: intended.elapsed().as_secs_f64() });
            });
        }
        times
    }
}

/// A query that waits.
struct Arrival {
    number: usize,
    /// Time of the arrival: in seconds from the start of the replay, and as an instant.
    at: f64,
    intended: Instant,
}

/// Latency of a query in seconds, and its arrival in seconds from the start of the replay.
struct TimedAnswer {
    at: f64,
    seconds: f64,
}

/// Returns a planner that uses an order of batches and a cache policy.
fn planner(order: BatchOrder, retention: Retention) -> NewPlanner {
    Arc::new(move |costs, capacity| {
        let mut cache = Residency::new(retention, capacity, costs);
        Box::new(move |lists, seconds| plan_batch(order, lists, &mut cache, seconds))
    })
}

/// Returns the difference between two snapshots of the statistics.
fn between(before: &CacheStatistics, after: &CacheStatistics) -> Value {
    let queries = (after.queries - before.queries).max(1) as f64;
    let [uses, misses, prefetched, loads] = [
        after.counts.uses - before.counts.uses,
        after.counts.misses - before.counts.misses,
        after.counts.prefetched - before.counts.prefetched,
        after.counts.loads - before.counts.loads,
    ];
    json!({"queries": after.queries - before.queries, "batches": after.batches - before.batches, "loads": loads, "uses": uses,
        "bytes_per_query": (after.read_bytes - before.read_bytes) as f64 / queries,
        "hit_rate": 1.0 - misses as f64 / uses.max(1) as f64,
        "hit_rate_without_prefetched": 1.0 - (misses + prefetched) as f64 / uses.max(1) as f64,
        "plan_ms_per_query": 1e3 * (after.plan_seconds - before.plan_seconds) / queries, "cache_bytes": after.cache_bytes})
}

pub(crate) fn batches(store: &Path, file: &str, policy: PolicyNames<'_>, options: &Options<'_>) -> Result<()> {
    let asking = Asking::open(store, file, policy, options)?;
    let (size, count) = (options.value("batch", 1_000.0) as usize, options.value("batches", 5.0) as usize);
    let mut hits = options.text("hits").map(|path| BufWriter::new(File::create(path).expect("a file to write")));
    let mut before = asking.search.statistics();
    for batch in 0..count {
        let begun = Instant::now();
        let answers = asking.answer(batch * size..(batch + 1) * size);
        let seconds = begun.elapsed().as_secs_f64();
        for answer in answers {
            let rows = answer?.rows;
            if let Some(file) = &mut hits {
                let numbers = (0..asking.hits()).map(|at| rows.get(at).map_or(u32::MAX, |&row| row as u32));
                numbers.for_each(|row| file.write_all(&row.to_le_bytes()).expect("room on the disk"));
            }
        }
        let after = asking.search.statistics();
        let done = between(&before, &after);
        println!(
            "{}",
            json!({"what": "batch", "order": policy.order, "cache": policy.cache, "batch": batch, "seconds": seconds,
                "queries_per_second": size as f64 / seconds, "done": done})
        );
        before = after;
    }
    Ok(())
}

pub(crate) fn replay(store: &Path, file: &str, policy: PolicyNames<'_>, options: &Options<'_>) -> Result<()> {
    let asking = &Asking::open(store, file, policy, options)?;
    let (warm, rate) = (options.value("warm", 5.0), options.value("rate", 100.0));
    let all = warm + options.value("seconds", 30.0);
    let due = arrivals(all, rate, options.value("burst", 3.0), options.value("seed", 1.0) as u64);
    let gather = Duration::from_secs_f64(options.value("gather", 0.0));
    let (sender, waiting) = sync_channel(WAITING_MAX);
    let begun = Instant::now();
    let (mut before, mut refused) = (CacheStatistics::default(), 0);
    let answered = std::thread::scope(|scope| {
        let answering = scope.spawn(move || asking.answer_arrivals(&waiting, gather));
        for (number, &at) in due.iter().enumerate() {
            let intended = begun + Duration::from_secs_f64(at);
            std::thread::sleep(intended.saturating_duration_since(Instant::now()));
            if number > 0 && due[number - 1] < warm && at >= warm {
                before = asking.search.statistics();
            }
            match sender.try_send(Arrival { number, at, intended }) {
                Err(TrySendError::Full(_)) if at >= warm => refused += 1,
                _ => {}
            }
        }
        drop(sender);
        answering.join().expect("all batches were answered")
    });
    let measured = answered.iter().filter(|answer| answer.at >= warm);
    let times: Vec<f32> = measured.map(|answer| (1e3 * answer.seconds) as f32).collect();
    let ended = begun.elapsed().as_secs_f64();
    let done = between(&before, &asking.search.statistics());
    println!(
        "{}",
        json!({"what": "replay", "order": policy.order, "cache": policy.cache, "rate": rate, "answered": times.len(), "refused": refused,
            "seconds_after_the_last_arrival": ended - all, "latency_ms": LatencyStatistics::of(times), "done": done})
    );
    Ok(())
}
