//! The plan of a batch, step by step: loads, evictions and comparisons.

use std::fmt;

use super::residency::{NEVER, Residency};

/// Bytes of a bucket at which reading it alone reaches the full rate of a disk. Smaller adjacent buckets are read
/// together.
const ALONE_BYTES: u64 = 256 << 10;

/// One step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchStep {
    /// Read a bucket into the cache. If queries are answered one after the other, the read starts only after the
    /// comparisons of all earlier turns.
    Load {
        /// The bucket.
        bucket: u32,
        /// Number of the turn. Each query is a turn, and so are the prefetches between two queries.
        turn: u32,
    },
    /// Drop a bucket from the cache.
    Evict(u32),
    /// Compare a cached bucket with a query, or with all queries that probe it.
    Compare {
        /// The bucket.
        bucket: u32,
        /// Number of the query in the batch. `None` compares all queries that probe the bucket.
        query: Option<u32>,
    },
}

impl BatchStep {
    /// Returns the bucket that is loaded, if the step is a load.
    pub fn loaded(&self) -> Option<u32> {
        if let Self::Load { bucket, .. } = *self { Some(bucket) } else { None }
    }
}

/// Cost of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchCounts {
    /// Number of buckets that a query probes, summed over all queries.
    pub uses: u64,
    /// Number of uses of buckets that were not in the cache.
    pub misses: u64,
    /// Number of uses of buckets that were in the cache only because of a prefetch.
    pub prefetched: u64,
    /// Number of buckets read, including prefetches.
    pub loads: u64,
}

impl std::ops::AddAssign for BatchCounts {
    fn add_assign(&mut self, other: Self) {
        self.uses += other.uses;
        self.misses += other.misses;
        self.prefetched += other.prefetched;
        self.loads += other.loads;
    }
}

/// The plan of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPlan {
    /// The steps.
    pub steps: Vec<BatchStep>,
    /// Cost of the steps.
    pub counts: BatchCounts,
}

impl BatchPlan {
    /// Returns the maximum memory in bytes of a plan for `uses` uses of buckets by queries.
    pub fn memory_bytes(uses: u64) -> u64 {
        let of_use = 3 * size_of::<BatchStep>() + size_of::<[u32; 8]>();
        uses * of_use as u64
    }

    /// Returns whether queries are answered one after the other, each once all of its buckets are in memory.
    pub fn is_by_query(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, BatchStep::Compare { query: Some(_), .. }))
    }
}

impl fmt::Display for BatchPlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BatchCounts { uses, misses, prefetched, loads } = self.counts;
        writeln!(out, "uses {uses}, misses {misses}, prefetched {prefetched}, loads {loads}")?;
        for step in &self.steps {
            match step {
                BatchStep::Load { bucket, turn } => writeln!(out, "{turn:>4}  load {bucket}")?,
                BatchStep::Evict(bucket) => writeln!(out, "      evict {bucket}")?,
                BatchStep::Compare { bucket, query: Some(query) } => {
                    writeln!(out, "      compare {bucket} with {query}")?
                }
                BatchStep::Compare { bucket, query: None } => writeln!(out, "      compare {bucket}")?,
            }
        }
        Ok(())
    }
}

/// Plans a batch of queries. `lists` has the buckets that each query probes. Updates `cache` to its state after the
/// last step.
///
/// # Panics
/// If a bucket does not fit into the empty cache.
pub fn plan_batch(lists: &[Vec<u32>], cache: &mut Residency) -> BatchPlan {
    let mut queries = vec![0u64; cache.buckets()];
    lists.iter().flatten().for_each(|&bucket| queries[bucket as usize] += 1);
    let order = order(&queries, cache);
    // Clears the expected uses of the last batch: they would keep buckets that this batch does not use.
    (0..queries.len() as u32).for_each(|bucket| cache.expect(bucket, NEVER));
    (0..).zip(&order).for_each(|(at, &bucket)| cache.expect(bucket, at));
    let mut plan = BatchPlan { steps: Vec::new(), counts: BatchCounts::default() };
    for (at, &bucket) in (0..).zip(&order) {
        let is_missing = !cache.holds(bucket);
        plan.counts.uses += queries[bucket as usize];
        plan.counts.misses += u64::from(is_missing);
        cache.note_use(bucket);
        if is_missing {
            while !cache.fits(bucket) {
                let victim = cache.victims().next().expect("a bucket fits into the empty cache");
                cache.evict(victim);
                plan.steps.push(BatchStep::Evict(victim));
            }
            plan.counts.loads += 1;
            cache.insert(bucket);
            plan.steps.push(BatchStep::Load { bucket, turn: 2 * at + 1 });
        }
        plan.steps.push(BatchStep::Compare { bucket, query: None });
        // All queries of the batch were compared with this bucket, so it is evicted before all others.
        cache.expect(bucket, NEVER);
    }
    plan
}

/// Returns the buckets that queries probe, in the order of the comparisons.
fn order(queries: &[u64], cache: &Residency) -> Vec<u32> {
    let mut buckets: Vec<u32> = (0..queries.len() as u32).filter(|&bucket| queries[bucket as usize] > 0).collect();
    let largest_first = |bucket: u32| std::cmp::Reverse(cache.size(bucket));
    // Cached buckets are first, before loads evict them. The sort is stable, so small buckets stay in the order on
    // disk, in which adjacent ones share a read.
    buckets.sort_by_key(|&bucket| match (cache.holds(bucket), cache.size(bucket) >= ALONE_BYTES) {
        (true, _) => (0, largest_first(bucket)),
        (false, true) => (1, largest_first(bucket)),
        (false, false) => (2, std::cmp::Reverse(0)),
    });
    buckets
}
