//! What plans say of a stream of batches.

use std::path::Path;
use std::time::Instant;

use adjoin::context::Context;
use adjoin::error::Result;
use adjoin::plan::batch::{
    Assignment, BatchCounts, BatchOrder, Bitmaps, BucketCosts, HashedSets, Reading, Residency, Retention, finish_times,
    greedy_packing, group, plan_batch,
};
use adjoin::store::Store;
use serde_json::json;

use crate::{Options, queries};

/// Queries of a batch in table II.
const GROUPED: [usize; 4] = [1_000, 1_500, 2_000, 2_500];
/// Thresholds of table III.
const THETAS: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
/// Loaders of the paper's setup.
const LOADERS: usize = 8;
/// Queries that arrive in a second, which is what the clock of a plan goes by.
const RATE: f64 = 100.0;

/// A stream of batches and the buckets that they need.
struct Stream {
    batches: Vec<Vec<Vec<u32>>>,
    /// Bytes of each bucket on disk.
    extents: Vec<u64>,
}

/// A cache of so many entries, or of a share of all bytes.
enum Capacity {
    Entries(u64),
    Share(f64),
}

impl Stream {
    /// What all batches cost by an order and a cache; the first batch warms up.
    fn play(&self, order: BatchOrder, retention: Retention, capacity: &Capacity) -> (BatchCounts, f64) {
        let reads: Vec<f64> = self.extents.iter().map(|&bytes| bytes as f64).collect();
        let (sizes, capacity) = match capacity {
            Capacity::Entries(entries) => (vec![1; self.extents.len()], *entries),
            Capacity::Share(share) => (self.extents.clone(), (self.extents.iter().sum::<u64>() as f64 * share) as u64),
        };
        let mut cache = Residency::new(retention, capacity, BucketCosts { sizes, reads });
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

    fn tell(&self, what: &str, (order, retention): (BatchOrder, Retention), capacity: &Capacity) {
        let (counts, bytes_per_query) = self.play(order, retention, capacity);
        let theta = if let BatchOrder::Grouped { theta, .. } = order { Some(theta) } else { None };
        let cache = match capacity {
            Capacity::Entries(entries) => json!({"entries": entries}),
            Capacity::Share(share) => json!({"share": share}),
        };
        println!(
            "{}",
            json!({"what": what, "order": order.name(), "cache": retention.name(), "capacity": cache, "theta": theta,
                "hit_rate": counts.hit_rate(true), "hit_rate_without_prefetched": counts.hit_rate(false),
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
    loading(&lists[0], &extents);
    let batch = options.value("batch", 300.0) as usize;
    let stream = Stream { batches: lists.chunks_exact(batch).map(<[_]>::to_vec).collect(), extents };
    for capacity in
        [Capacity::Entries(options.value("entries", 50.0) as u64), Capacity::Share(options.value("share", 0.1))]
    {
        for retention in Retention::ALL {
            stream.tell("caches", (BatchOrder::Arrival, retention), &capacity);
        }
        for order in BatchOrder::ALL {
            stream.tell("orders", (order, Retention::Lru), &capacity);
            stream.tell("orders", (order, Retention::Foreseen), &capacity);
        }
        for (theta, reading) in
            THETAS.into_iter().flat_map(|theta| [(theta, Reading::Similarity), (theta, Reading::Distance)])
        {
            let call = BatchOrder::Grouped { theta, reading, prefetches: true };
            stream.tell("thetas", (call, Retention::Lru), &capacity);
        }
    }
    Ok(())
}

/// Table II: the time of grouping by both forms of sets.
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

/// Figure 14: when the loaders of a query are done, in bytes.
fn loading(list: &[u32], extents: &[u64]) {
    let size = |bucket: u32| extents[bucket as usize];
    let by_number = {
        let mut buckets = list.to_vec();
        buckets.sort_unstable();
        buckets
    };
    let packed = greedy_packing(list, size, LOADERS);
    for (name, order, assignment) in [
        ("round-robin", &by_number, Assignment::RoundRobin),
        ("greedy-packing", &packed, Assignment::RoundRobin),
        ("shared", &by_number, Assignment::Shared),
        ("greedy-packing-shared", &packed, Assignment::Shared),
    ] {
        let sizes: Vec<u64> = order.iter().map(|&bucket| size(bucket)).collect();
        let done = finish_times(&sizes, LOADERS, assignment);
        let mean = done.iter().sum::<u64>() as f64 / done.len() as f64;
        println!("{}", json!({"what": "loading", "order": name, "last": done.iter().max(), "mean": mean}));
    }
}
