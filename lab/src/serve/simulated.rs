//! Replays arrivals in simulated time, at rates that each contender sustains (CALL, Figures 4 and 10 to 12, Table III).
//!
//! The capacity of a contender is its rate in batches of 1,000 queries that follow one another. Loads are fractions of
//! it; a load includes the bursts. Results do not depend on the machine: plans are made as for real searches, and
//! `device.rs` executes them.

use std::path::Path;

use adjoin::{Context, Result, Store, lab::report::LatencyStatistics};
use serde_json::json;

use super::arrivals::{BURST_CHANCE, arrivals};
use super::device::{Device, Executed};
use super::plans::{Capacity, THETAS};
use super::{Options, queries};
use crate::batches::{BatchOrder, Reading, Residency, Retention, THETA, plan_batch};

/// Fractions of a capacity.
const LOADS: [f64; 4] = [0.2, 0.5, 0.8, 0.9];
/// Load of the contenders that differ in theta or in the time of gathering.
const USUAL_LOAD: f64 = 0.8;
/// Number of queries of a batch, and number of batches, that measure a capacity. The first batch is not counted.
const BATCH: usize = 1_000;
const BATCHES: usize = 5;
/// Time in seconds that CALL collects queries (Table II).
const GATHER: f64 = 3.0;
/// Number of steps of a printed distribution.
const QUANTILES: usize = 50;

/// An order of batches, a cache policy, and the seconds that a batch waits for further queries.
#[derive(Debug, Clone, Copy)]
struct Contender {
    order: BatchOrder,
    retention: Retention,
    gather: f64,
}

impl Contender {
    fn new(order: BatchOrder, retention: Retention) -> Self {
        Self { order, retention, gather: 0.0 }
    }

    fn call(theta: f64, reading: Reading) -> Self {
        Self::new(BatchOrder::Grouped { theta, reading, prefetches: true }, Retention::Lru)
    }

    /// Returns ours, both readings of CALL, and the caches that CALL is compared with.
    fn all() -> [Self; 6] {
        [
            Self::new(BatchOrder::BucketMajor, Retention::Foreseen),
            Self::call(THETA, Reading::Similarity),
            Self::call(THETA, Reading::Distance),
            Self::new(BatchOrder::Arrival, Retention::Fifo),
            Self::new(BatchOrder::Arrival, Retention::Wlru { prefetches: true }),
            Self::new(BatchOrder::Arrival, Retention::Clru { prefetches: true }),
        ]
    }
}

/// What is equal for all contenders.
struct Simulation {
    /// Buckets that each query probes. Queries arrive in this order, again and again.
    lists: Vec<Vec<u32>>,
    /// Bytes of each bucket.
    extents: Vec<u64>,
    capacity: Capacity,
    device: Device,
    warm: f64,
    seconds: f64,
    /// Maximum number of arrivals. If there were more, warm-up and replay are shorter.
    most: f64,
    burst: f64,
    seed: u64,
}

/// Counts of a second.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    uses: u64,
    misses: u64,
    bytes: u64,
}

/// Result of a replay.
#[derive(Default)]
struct Replayed {
    /// Time from arrival to answer of each query, and the part of it after the search in the cache began, in
    /// milliseconds.
    latencies: Vec<f32>,
    own: Vec<f32>,
    /// Counts of each second after the warm-up.
    seconds: Vec<Second>,
    /// Seconds from the warm-up to the last arrival.
    length: f64,
    batches: usize,
}

impl Replayed {
    /// Counts something in the second of a time, which is relative to the end of the warm-up.
    fn count(&mut self, at: f64, count: impl FnOnce(&mut Second)) {
        if at >= 0.0
            && let Some(second) = self.seconds.get_mut(at as usize)
        {
            count(second);
        }
    }
}

impl Simulation {
    /// Plans a batch of queries, and executes it.
    fn batch(&self, contender: Contender, cache: &mut Residency, numbers: std::ops::Range<usize>, at: f64) -> Executed {
        let lists: Vec<Vec<u32>> = numbers.map(|number| self.lists[number % self.lists.len()].clone()).collect();
        let plan = plan_batch(contender.order, &lists, cache, at);
        self.device.execute(&plan, &lists, &self.extents, at)
    }

    /// Returns the queries per second of batches that follow one another.
    fn full_rate(&self, contender: Contender) -> f64 {
        let mut cache = self.capacity.cache(contender.retention, &self.extents);
        let (mut at, mut begun) = (0.0, 0.0);
        for batch in 0..BATCHES {
            begun = if batch == 1 { at } else { begun };
            at = self.batch(contender, &mut cache, batch * BATCH..(batch + 1) * BATCH, at).end;
        }
        ((BATCHES - 1) * BATCH) as f64 / (at - begun)
    }

    /// Replays arrivals. Queries that arrive during a batch form the next one. `rate` includes bursts.
    fn replay(&self, contender: Contender, rate: f64) -> Replayed {
        let usual = rate / (1.0 + BURST_CHANCE * (self.burst - 1.0));
        let shorter = (self.most / (rate * (self.warm + self.seconds))).min(1.0);
        let (warm, length) = (self.warm * shorter, self.seconds * shorter);
        let due = arrivals(warm + length, usual, self.burst, self.seed);
        let mut cache = self.capacity.cache(contender.retention, &self.extents);
        let mut replayed =
            Replayed { seconds: vec![Second::default(); length.ceil() as usize], length, ..Replayed::default() };
        let (mut free, mut first) = (0.0f64, 0);
        while first < due.len() {
            let at = free.max(due[first] + contender.gather);
            let next = first + due[first..].partition_point(|&due| due <= at);
            let done = self.batch(contender, &mut cache, first..next, at);
            replayed.batches += usize::from(at >= warm);
            for (number, &(began, ended)) in (first..next).zip(&done.queries) {
                if due[number] >= warm {
                    replayed.latencies.push((1e3 * (ended - due[number])) as f32);
                    replayed.own.push((1e3 * (ended - began)) as f32);
                }
                let uses = self.lists[number % self.lists.len()].len() as u64;
                replayed.count(ended - warm, |second| second.uses += uses);
            }
            for &(began, bucket, is_ahead) in &done.reads {
                let bytes = self.extents[bucket as usize];
                replayed.count(began - warm, |second| {
                    second.misses += u64::from(!is_ahead);
                    second.bytes += bytes;
                });
            }
            (free, first) = (done.end, next);
        }
        replayed
    }

    /// Replays arrivals, and prints a record.
    fn print(&self, what: &str, contender: Contender, full_rate: f64, load: f64, rate: f64) {
        let Replayed { mut latencies, own, seconds, length, batches } = self.replay(contender, rate);
        latencies.sort_unstable_by(f32::total_cmp);
        let last = latencies.len().saturating_sub(1);
        let quantiles: Vec<f32> =
            (0..=QUANTILES).filter_map(|at| latencies.get(last * at / QUANTILES).copied()).collect();
        let theta = if let BatchOrder::Grouped { theta, .. } = contender.order { Some(theta) } else { None };
        let (uses, misses, bytes) = seconds.iter().fold((0, 0, 0), |(uses, misses, bytes), second| {
            (uses + second.uses, misses + second.misses, bytes + second.bytes)
        });
        let rates: Vec<Option<f64>> = seconds.iter().map(|second| hit_rate(second.uses, second.misses)).collect();
        let queries = latencies.len().max(1) as f64;
        println!(
            "{}",
            json!({"what": what, "order": contender.order.name(), "cache": contender.retention.name(), "theta": theta,
                "gather": contender.gather, "capacity": self.capacity.record(), "full_rate": full_rate, "load": load, "rate": rate,
                "queries": latencies.len(), "seconds": length, "per_batch": queries / batches.max(1) as f64, "latency_ms": LatencyStatistics::of(latencies),
                "own_ms": LatencyStatistics::of(own), "quantiles_ms": quantiles, "hit_rate": hit_rate(uses, misses),
                "hit_rates": rates, "bytes_per_query": bytes as f64 / queries})
        );
    }
}

/// Returns the fraction of uses that found their bucket in the cache or prefetched, if there were uses. A second may
/// have reads for uses of the next one.
fn hit_rate(uses: u64, misses: u64) -> Option<f64> {
    (uses > 0).then(|| (1.0 - misses as f64 / uses as f64).max(0.0))
}

pub(crate) fn run(store: &Path, file: &str, options: &Options<'_>) -> Result<()> {
    let context = Context::default();
    let store = Store::open(&context, store)?;
    let lists = queries::lists(&store, &queries::read(&context, file)?, options.value("nprobe", 30.0) as usize)?;
    let simulation = Simulation {
        lists,
        extents: store.extents().iter().map(|extent| extent.bytes(false)).collect(),
        capacity: match options.text("entries") {
            Some(_) => Capacity::Entries(options.value("entries", 50.0) as u64),
            None => Capacity::Share(options.value("share", 0.1)),
        },
        device: Device {
            loaders: options.value("loaders", 8.0) as usize,
            request: 1e-6 * options.value("request", 50.0),
            reads: 1e6 * options.value("reads", 1_300.0),
            compares: 1e6 * options.value("compares", 10_000.0),
        },
        warm: options.value("warm", 61.0),
        seconds: options.value("seconds", 60.0),
        most: options.value("most", 20_000.0),
        burst: options.value("burst", 3.0),
        seed: options.value("seed", 1.0) as u64,
    };
    let all = Contender::all().map(|contender| (contender, simulation.full_rate(contender)));
    let least = |rates: &mut dyn Iterator<Item = f64>| rates.fold(f64::INFINITY, f64::min);
    let slowest = least(&mut all.iter().map(|&(_, rate)| rate));
    for (contender, full_rate) in all {
        for load in LOADS {
            simulation.print("own rates", contender, full_rate, load, load * full_rate);
            simulation.print("equal rates", contender, full_rate, load, load * slowest);
        }
    }
    let thetas = THETAS.map(|theta| Contender::call(theta, Reading::Similarity));
    let thetas = thetas.map(|contender| (contender, simulation.full_rate(contender)));
    let slowest_theta = least(&mut thetas.iter().map(|&(_, rate)| rate));
    for (contender, full_rate) in thetas {
        simulation.print("thetas", contender, full_rate, USUAL_LOAD, USUAL_LOAD * slowest_theta);
    }
    let gathering = Contender { gather: GATHER, ..Contender::call(THETA, Reading::Similarity) };
    simulation.print("gathering", gathering, simulation.full_rate(gathering), USUAL_LOAD, USUAL_LOAD * slowest);
    Ok(())
}
