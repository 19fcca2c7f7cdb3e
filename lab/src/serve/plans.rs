//! Computes the cost of plans for a stream of batches.

use std::path::Path;
use std::time::Instant;

use adjoin::{
    Context, Result, Store,
    lab::plan::batch::{BatchCounts, BatchStep, BucketCosts},
};
use serde_json::{Value, json};

use super::{Options, loading, queries};
use crate::batches::{
    BatchOrder, Bitmaps, HashedSets, Overlap, Reading, Residency, Retention, THETA, group, hit_rate, plan_batch,
};

/// Numbers of queries per batch in Table II.
const GROUPED: [usize; 4] = [1_000, 1_500, 2_000, 2_500];
/// Thresholds in Table III.
pub(super) const THETAS: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
/// Number of queries in the squares of Figure 3.
const OVERLAPPING: usize = 10;
/// Number of queries per second. It determines the clock of a plan.
const RATE: f64 = 100.0;

/// A stream of batches, with the buckets that each query probes.
struct Stream {
    batches: Vec<Vec<Vec<u32>>>,
    /// Size of each bucket on disk, in bytes.
    extents: Vec<u64>,
}

/// Size of a cache: a number of entries, or a fraction of all bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Capacity {
    Entries(u64),
    Share(f64),
}

impl Capacity {
    /// Returns an empty cache of this size for buckets of the given sizes in bytes.
    pub(super) fn cache(self, retention: Retention, extents: &[u64]) -> Residency {
        let reads: Vec<f64> = extents.iter().map(|&bytes| bytes as f64).collect();
        let (sizes, capacity) = match self {
            Self::Entries(entries) => (vec![1; extents.len()], entries),
            Self::Share(share) => (extents.to_vec(), (extents.iter().sum::<u64>() as f64 * share) as u64),
        };
        Residency::new(retention, capacity, BucketCosts { sizes, reads })
    }

    /// Returns the size for a record.
    pub(super) fn record(self) -> Value {
        match self {
            Self::Entries(entries) => json!({"entries": entries}),
            Self::Share(share) => json!({"share": share}),
        }
    }
}

impl Stream {
    /// Plans all batches with an order and a cache policy. Returns the counts and the bytes per query. The first
    /// batch only warms up the cache and is not counted.
    fn play(&self, order: BatchOrder, retention: Retention, capacity: Capacity) -> (BatchCounts, f64) {
        let mut cache = capacity.cache(retention, &self.extents);
        let (mut counts, mut bytes, mut queries) = (BatchCounts::default(), 0, 0);
        for (at, lists) in self.batches.iter().enumerate() {
            let seconds = (at * self.batches[0].len()) as f64 / RATE;
            let plan = plan_batch(order, lists, &mut cache, seconds);
            if at == 0 {
                continue;
            }
            counts += plan.counts;
            queries += lists.len();
            bytes += plan
                .steps
                .iter()
                .map(|step| step.loaded().map_or(0, |bucket| self.extents[bucket as usize]))
                .sum::<u64>();
        }
        (counts, bytes as f64 / queries.max(1) as f64)
    }

    /// Prints Figure 5: the hit rates of the first queries of groups, and of the other queries.
    fn borders(&self, reading: Reading, prefetches: bool, capacity: Capacity) {
        let order = BatchOrder::Grouped { theta: THETA, reading, prefetches };
        let mut cache = capacity.cache(Retention::Lru, &self.extents);
        let [mut first, mut others] = [(0, 0); 2];
        for (at, lists) in self.batches.iter().enumerate() {
            let plan = plan_batch(order, lists, &mut cache, 0.0);
            if at == 0 {
                continue;
            }
            let groups = group(&Bitmaps::new(lists, self.extents.len() as u32), THETA, reading);
            let heads = groups.iter().flat_map(|group| group.iter().enumerate().map(|(at, &query)| (query, at == 0)));
            let heads: Vec<(u32, bool)> = heads.collect();
            // Number of loads in each turn. A query has one turn, and the prefetch after it another one.
            let mut loaded = vec![0; 2 * heads.len() + 2];
            plan.steps.iter().for_each(|step| {
                if let BatchStep::Load { turn, .. } = *step {
                    loaded[turn as usize] += 1;
                }
            });
            for (place, &(query, is_first)) in heads.iter().enumerate() {
                let (uses, misses) = if is_first { &mut first } else { &mut others };
                *uses += lists[query as usize].len();
                *misses += loaded[2 * place + 1];
            }
        }
        let rate = |(uses, misses): (usize, usize)| 1.0 - misses as f64 / uses.max(1) as f64;
        println!("{}", json!({"what": "borders", "order": order.name(), "first": rate(first), "others": rate(others)}));
    }

    /// Prints the counts of [`Self::play`].
    fn print(&self, what: &str, order: BatchOrder, retention: Retention, capacity: Capacity) {
        let (counts, bytes_per_query) = self.play(order, retention, capacity);
        let theta = if let BatchOrder::Grouped { theta, .. } = order { Some(theta) } else { None };
        println!(
            "{}",
            json!({"what": what, "order": order.name(), "cache": retention.name(), "capacity": capacity.record(), "theta": theta,
                "hit_rate": hit_rate(&counts, true), "hit_rate_without_prefetched": hit_rate(&counts, false),
                "loads": counts.loads, "uses": counts.uses, "bytes_per_query": bytes_per_query})
        );
    }
}

pub(crate) fn run(store: &Path, file: &str, options: &Options<'_>) -> Result<()> {
    let context = Context::default();
    let store = Store::open(&context, store)?;
    let queries = queries::read(&context, file)?;
    let lists = queries::lists(&store, &queries, options.value("nprobe", 30.0) as usize)?;
    let extents: Vec<u64> = store.extents().iter().map(|extent| extent.bytes(false)).collect();
    grouping(&lists, extents.len() as u32);
    loading::print(&context, &store, &lists)?;
    overlap(&lists, extents.len() as u32);
    let batch = options.value("batch", 300.0) as usize;
    let stream = Stream { batches: lists.chunks_exact(batch).map(<[_]>::to_vec).collect(), extents };
    for (reading, prefetches) in [
        (Reading::Similarity, false),
        (Reading::Similarity, true),
        (Reading::Distance, false),
        (Reading::Distance, true),
    ] {
        stream.borders(reading, prefetches, Capacity::Entries(options.value("entries", 50.0) as u64));
    }
    for capacity in
        [Capacity::Entries(options.value("entries", 50.0) as u64), Capacity::Share(options.value("share", 0.1))]
    {
        for order in BatchOrder::ALL {
            Retention::ALL.into_iter().for_each(|retention| stream.print("orders", order, retention, capacity));
        }
        for (theta, reading) in
            THETAS.into_iter().flat_map(|theta| [(theta, Reading::Similarity), (theta, Reading::Distance)])
        {
            let call = BatchOrder::Grouped { theta, reading, prefetches: true };
            stream.print("thetas", call, Retention::Lru, capacity);
        }
    }
    Ok(())
}

/// Prints Table II: the time of grouping, with both representations of sets.
fn grouping(lists: &[Vec<u32>], buckets: u32) {
    for count in GROUPED {
        let some = &lists[..count.min(lists.len())];
        let begun = Instant::now();
        let by_bitmaps = group(&Bitmaps::new(some, buckets), 0.3, Reading::Similarity);
        let bitmap_ms = 1e3 * begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let by_hash = group(&HashedSets::new(some), 0.3, Reading::Similarity);
        let hash_ms = 1e3 * begun.elapsed().as_secs_f64();
        assert_eq!(by_bitmaps, by_hash, "both forms group alike");
        println!(
            "{}",
            json!({"what": "grouping", "queries": some.len(), "groups": by_bitmaps.len(), "bitmap_ms": bitmap_ms, "hash_ms": hash_ms})
        );
    }
}

/// Prints Figure 3: the Jaccard index of the buckets that two queries probe.
fn overlap(lists: &[Vec<u32>], buckets: u32) {
    let some = &lists[..OVERLAPPING.min(lists.len())];
    let (sets, mut common) = (Bitmaps::new(some, buckets), Vec::new());
    let [mut neighbors, mut all] = [const { Vec::new() }; 2];
    for a in 1..some.len() {
        sets.common_with_earlier(a, &mut common);
        let shares = common.iter().enumerate().map(|(b, &common)| {
            let either = sets.size(a) + sets.size(b) - common;
            f64::from(common) / f64::from(either.max(1))
        });
        all.extend(shares);
        neighbors.extend(all.last());
    }
    let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    let largest = all.iter().copied().fold(0.0, f64::max);
    println!(
        "{}",
        json!({"what": "overlap", "queries": some.len(), "neighbors": mean(&neighbors), "all": mean(&all), "largest": largest})
    );
}
