//! The plan of a batch, step by step: loads, evictions and comparisons.

use std::fmt;

use super::residency::{NEVER, Residency};

/// A bucket that takes as many bytes alone reaches the full rate of a disk; smaller neighbors are read together.
const ALONE_BYTES: u64 = 256 << 10;

/// One step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchStep {
    /// Read a bucket into the cache. If queries are answered one after the other, not before the comparisons of earlier
    /// `turn`s.
    Load {
        /// The bucket.
        bucket: u32,
        /// Increases with each query, and with the prefetches between two.
        turn: u32,
    },
    /// Drop a bucket from the cache.
    Evict(u32),
    /// Compare a cached bucket with a query, or with all queries that probe it.
    Compare {
        /// The bucket.
        bucket: u32,
        /// Number of the query in the batch.
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
    /// Buckets that queries probe, summed over the queries.
    pub uses: u64,
    /// Uses of buckets that were not in the cache.
    pub misses: u64,
    /// Uses of buckets that were in the cache only because of a prefetch.
    pub prefetched: u64,
    /// Buckets read, including prefetches.
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
    /// Their cost.
    pub counts: BatchCounts,
}

impl BatchPlan {
    /// Returns the most bytes of a plan for `uses` uses of buckets by queries.
    pub fn memory_bytes(uses: u64) -> u64 {
        let of_use = 3 * size_of::<BatchStep>() + size_of::<[u32; 8]>();
        uses * of_use as u64
    }

    /// Whether queries are answered one after the other, each once all of its buckets are there.
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

/// Plans a batch of queries that look into the listed buckets. The cache is then what it is after the last step.
///
/// # Panics
/// Where a bucket does not fit into the empty cache.
pub fn plan_batch(lists: &[Vec<u32>], cache: &mut Residency) -> BatchPlan {
    let mut queries = vec![0u64; cache.buckets()];
    lists.iter().flatten().for_each(|&bucket| queries[bucket as usize] += 1);
    let order = order(&queries, cache);
    // Expectations of the last batch would otherwise keep buckets that this one does not use.
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
        // All queries of the batch were compared with it, so it is the first to be evicted.
        cache.expect(bucket, NEVER);
    }
    plan
}

/// The buckets that queries look into, each once, in the order in which they are compared.
fn order(queries: &[u64], cache: &Residency) -> Vec<u32> {
    let mut buckets: Vec<u32> = (0..queries.len() as u32).filter(|&bucket| queries[bucket as usize] > 0).collect();
    let largest_first = |bucket: u32| std::cmp::Reverse(cache.size(bucket));
    // Cached buckets first, before loads evict them. The sort is stable: small buckets keep the order on disk, in
    // which neighbors share a read.
    buckets.sort_by_key(|&bucket| match (cache.holds(bucket), cache.size(bucket) >= ALONE_BYTES) {
        (true, _) => (0, largest_first(bucket)),
        (false, true) => (1, largest_first(bucket)),
        (false, false) => (2, std::cmp::Reverse(0)),
    });
    buckets
}
