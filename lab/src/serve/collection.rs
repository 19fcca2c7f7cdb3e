//! Batches and arrivals against a service.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use adjoin::context::Context;
use adjoin::error::{ErrorKind, Result};
use adjoin::query::{QueryTarget, SearchEffort};
use adjoin::report::LatencyStatistics;
use adjoin::serve::{NewPlanner, Request, ServeOptions, ServeStatistics, Service};
use adjoin::store::Store;
use serde_json::{Value, json};

use super::arrivals::arrivals;
use super::{Options, queries};
use crate::batches::{BatchOrder, Residency, Retention, plan_batch};

/// A service, the queries that it gets in turn, and their target and effort.
pub(crate) struct Asking {
    pub(crate) service: Service,
    queries: Vec<Vec<f32>>,
    pub(crate) wanted: QueryTarget,
    pub(crate) effort: SearchEffort,
}

/// Names of an order of batches and of a cache policy.
#[derive(Clone, Copy)]
pub(crate) struct PolicyNames<'a> {
    pub(crate) order: &'a str,
    pub(crate) cache: &'a str,
}

impl Asking {
    pub(crate) fn open(store: &Path, file: &str, policy: PolicyNames<'_>, options: &Options<'_>) -> Result<Self> {
        let queries = queries::read(&Context::default(), file)?;
        let memory = options.value("memory", f64::from(1 << 30)) as u64;
        let mut context = Context::default().with_memory(memory);
        context.threads = options.value("threads", context.threads as f64) as usize;
        let store = Arc::new(Store::open(&context, store)?);
        let bytes: u64 = store.extents().iter().map(|extent| extent.bytes(false)).sum();
        let options_of_service = ServeOptions {
            cache_bytes: Some((bytes as f64 * options.value("share", 0.1)) as u64),
            gather: Duration::from_secs_f64(options.value("gather", 0.0)),
            waiting_max: 20_000,
            ..ServeOptions::default()
        };
        let (order, retention): (BatchOrder, Retention) = (policy.order.parse()?, policy.cache.parse()?);
        let service = Service::open_planned(&context, store, options_of_service, planner(order, retention))?;
        let wanted = QueryTarget::Nearest(options.value("k", 10.0) as u64);
        Ok(Self { service, queries, wanted, effort: SearchEffort::Probes(options.value("nprobe", 30.0) as u32) })
    }

    /// Returns the requested number of hits.
    fn hits(&self) -> usize {
        match self.wanted {
            QueryTarget::Nearest(hits) => hits as usize,
            QueryTarget::Within(_) => 0,
        }
    }

    pub(crate) fn request(&self, number: usize) -> Request {
        let vector = self.queries[number % self.queries.len()].clone();
        Request { vector, target: self.wanted, effort: self.effort, deadline: None }
    }
}

/// Returns a planner with an order of batches and a cache policy.
fn planner(order: BatchOrder, retention: Retention) -> NewPlanner {
    Arc::new(move |costs, capacity| {
        let mut cache = Residency::new(retention, capacity, costs);
        Box::new(move |lists, seconds| plan_batch(order, lists, &mut cache, seconds))
    })
}

/// Returns the difference between two snapshots of the statistics.
fn between(before: &ServeStatistics, after: &ServeStatistics) -> Value {
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
    let mut before = asking.service.statistics();
    for batch in 0..count {
        let requests = (batch * size..(batch + 1) * size).map(|number| asking.request(number)).collect();
        let begun = Instant::now();
        let answers = asking.service.answer(requests);
        let seconds = begun.elapsed().as_secs_f64();
        for answer in answers {
            let rows = answer?.rows;
            if let Some(file) = &mut hits {
                let numbers = (0..asking.hits()).map(|at| rows.get(at).map_or(u32::MAX, |&row| row as u32));
                numbers.for_each(|row| file.write_all(&row.to_le_bytes()).expect("room on the disk"));
            }
        }
        let after = asking.service.statistics();
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
    let (sender, answered) = channel();
    let begun = Instant::now();
    let mut before = ServeStatistics::default();
    for (number, &at) in due.iter().enumerate() {
        let intended = begun + Duration::from_secs_f64(at);
        std::thread::sleep(intended.saturating_duration_since(Instant::now()));
        if number > 0 && due[number - 1] < warm && at >= warm {
            before = asking.service.statistics();
        }
        let sender = sender.clone();
        asking.service.submit(asking.request(number), move |answer| {
            let refused = answer.err().map(|error| error.kind());
            sender.send((at, intended.elapsed().as_secs_f64(), refused)).unwrap();
        });
    }
    drop(sender);
    let mut times = Vec::new();
    let mut refused = 0;
    for (at, seconds, failed) in answered {
        assert!(failed.is_none_or(|kind| kind == ErrorKind::Overloaded), "{failed:?}");
        match failed {
            _ if at < warm => {}
            Some(_) => refused += 1,
            None => times.push((1e3 * seconds) as f32),
        }
    }
    let ended = begun.elapsed().as_secs_f64();
    let done = between(&before, &asking.service.statistics());
    println!(
        "{}",
        json!({"what": "replay", "order": policy.order, "cache": policy.cache, "rate": rate, "answered": times.len(), "refused": refused,
            "seconds_after_the_last_arrival": ended - all, "latency_ms": LatencyStatistics::of(times), "done": done})
    );
    Ok(())
}
