//! Policy that decides which buckets stay in memory between the queries of a batch, and between batches. It only keeps
//! account of bytes: the caller loads buckets, and reports each use.

use std::collections::BTreeSet;

/// Position of the next use if no further use is known.
pub const NEVER: u32 = u32::MAX;
/// An old use counts half after this number of later uses per bucket, on average.
const USES_REMEMBERED: f64 = 16.0;
/// Value at which the counts of uses are scaled down.
const COUNT_MAX: f64 = 1e200;

/// Sizes of buckets, and costs of reading them.
#[derive(Debug, Clone)]
pub struct BucketCosts {
    /// Size of each bucket in the cache, in the unit of the capacity: bytes.
    pub sizes: Vec<u64>,
    /// Cost of reading each bucket.
    pub reads: Vec<f64>,
}

/// Priority with which a bucket stays in the cache. The bucket with the lowest priority is evicted first.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stay {
    /// Larger if the batch uses the bucket sooner.
    soon: u32,
    /// Cost of the reads that uses of the bucket save, per byte of the bucket.
    saved: f64,
}

impl Eq for Stay {}

impl PartialOrd for Stay {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Stay {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.soon.cmp(&other.soon).then(self.saved.total_cmp(&other.saved))
    }
}

/// The buckets in a cache, and the state of its policy.
pub struct Residency {
    capacity: u64,
    costs: BucketCosts,
    held_bytes: u64,
    held: Vec<Option<Stay>>,
    /// Buckets in the cache by priority.
    by_stay: BTreeSet<(Stay, u32)>,
    /// Weighted number of uses of each bucket. Older uses have lower weights.
    counts: Vec<f64>,
    /// Weight of the next use.
    next_counts: f64,
    next_uses: Vec<u32>,
}

impl Residency {
    /// Creates an empty cache.
    pub fn new(capacity: u64, costs: BucketCosts) -> Self {
        let buckets = costs.sizes.len();
        assert_eq!(buckets, costs.reads.len(), "a bucket has a size and a cost");
        Self {
            capacity,
            costs,
            held_bytes: 0,
            held: vec![None; buckets],
            by_stay: BTreeSet::new(),
            counts: vec![0.0; buckets],
            next_counts: 1.0,
            next_uses: vec![NEVER; buckets],
        }
    }

    /// Returns the memory in bytes of this policy for `buckets` buckets.
    pub fn memory_bytes(buckets: usize) -> u64 {
        let of_costs = size_of::<u64>() + size_of::<f64>();
        let of_bucket = size_of::<Option<Stay>>() + 3 * size_of::<(Stay, u32)>() + size_of::<f64>();
        (buckets * (of_costs + of_bucket + size_of::<[u32; 4]>())) as u64
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.held.len()
    }

    /// Returns the size of a bucket in bytes.
    pub fn size(&self, bucket: u32) -> u64 {
        self.costs.sizes[bucket as usize]
    }

    /// Returns whether a bucket is in the cache.
    pub fn holds(&self, bucket: u32) -> bool {
        self.held[bucket as usize].is_some()
    }

    /// Returns whether a bucket fits next to the buckets in the cache.
    pub fn fits(&self, bucket: u32) -> bool {
        self.held_bytes + self.size(bucket) <= self.capacity
    }

    /// Records the position in the batch at which a bucket is used next; [`NEVER`] if it is not used again.
    pub fn expect(&mut self, bucket: u32, next_use: u32) {
        self.next_uses[bucket as usize] = next_use;
        self.rank(bucket);
    }

    /// Counts a use of a bucket, cached or not.
    pub fn note_use(&mut self, bucket: u32) {
        self.counts[bucket as usize] += self.next_counts;
        // Instead of reducing the weights of earlier uses, the weight of later uses grows, so that a use changes only
        // one count.
        self.next_counts *= 1.0 + std::f64::consts::LN_2 / (USES_REMEMBERED * self.held.len() as f64);
        // All counts are scaled, so their ratios do not change. This keeps them within the range of f64.
        if self.next_counts > COUNT_MAX {
            self.counts.iter_mut().for_each(|count| *count /= COUNT_MAX);
            self.next_counts /= COUNT_MAX;
            (0..self.held.len() as u32).for_each(|bucket| self.rank(bucket));
        }
        self.rank(bucket);
    }

    /// Adds a bucket to the cache.
    ///
    /// # Panics
    /// If it is in the cache, or does not fit.
    pub fn insert(&mut self, bucket: u32) {
        assert!(!self.holds(bucket) && self.fits(bucket), "a bucket is inserted once, if it fits");
        self.held_bytes += self.size(bucket);
        let stay = self.stay(bucket);
        self.held[bucket as usize] = Some(stay);
        self.by_stay.insert((stay, bucket));
    }

    /// Returns the buckets in the cache, in the order of eviction.
    pub fn victims(&self) -> impl Iterator<Item = u32> {
        self.by_stay.iter().map(|&(_, bucket)| bucket)
    }

    /// Removes a bucket from the cache.
    ///
    /// # Panics
    /// If it is not in the cache.
    pub fn evict(&mut self, bucket: u32) {
        let stay = self.held[bucket as usize].take().expect("only a held bucket is evicted");
        self.held_bytes -= self.size(bucket);
        self.by_stay.remove(&(stay, bucket));
    }

    /// Returns the current priority of a bucket.
    fn stay(&self, bucket: u32) -> Stay {
        let at = bucket as usize;
        let BucketCosts { sizes, reads } = &self.costs;
        // The saved cost is divided by the size, so that small buckets with many uses are kept longest.
        Stay { soon: NEVER - self.next_uses[at], saved: self.counts[at] * reads[at] / sizes[at].max(1) as f64 }
    }

    /// Updates the priority of a cached bucket.
    fn rank(&mut self, bucket: u32) {
        let stay = self.stay(bucket);
        if let Some(before) = &mut self.held[bucket as usize] {
            // The set finds an entry by its priority, so the entry is removed with its old priority.
            self.by_stay.remove(&(*before, bucket));
            *before = stay;
            self.by_stay.insert((stay, bucket));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn residency(capacity: u64, sizes: &[u64]) -> Residency {
        let costs = BucketCosts { sizes: sizes.to_vec(), reads: sizes.iter().map(|&size| 1.0 + size as f64).collect() };
        Residency::new(capacity, costs)
    }

    /// Uses a bucket. If it had to be loaded, returns the buckets that were evicted for it.
    fn take(residency: &mut Residency, bucket: u32) -> Option<Vec<u32>> {
        residency.note_use(bucket);
        if residency.holds(bucket) {
            return None;
        }
        let mut gone = Vec::new();
        while !residency.fits(bucket) {
            let victim = residency.victims().next().unwrap();
            residency.evict(victim);
            gone.push(victim);
        }
        residency.insert(bucket);
        Some(gone)
    }

    proptest! {
        #[test]
        fn no_cache_exceeds_its_capacity(uses in prop::collection::vec(0u32..9, 0..80), sizes in prop::collection::vec(1u64..7, 9)) {
            let mut residency = residency(10, &sizes);
            for &bucket in &uses {
                take(&mut residency, bucket);
                let held: u64 = (0..9).filter(|&bucket| residency.holds(bucket)).map(|bucket| sizes[bucket as usize]).sum();
                prop_assert!(held <= 10 && held == residency.held_bytes && residency.holds(bucket));
            }
        }
    }

    #[test]
    fn evicts_the_latest_next_use_then_the_least_cost_per_byte() {
        let mut foreseen = residency(10, &[2, 4, 4, 2]);
        [0, 1, 2].into_iter().for_each(|bucket| drop(take(&mut foreseen, bucket)));
        foreseen.expect(0, 7);
        foreseen.expect(2, 3);
        assert_eq!(foreseen.victims().collect::<Vec<_>>(), [1, 0, 2], "never, late, soon");
        [0, 2].into_iter().for_each(|bucket| foreseen.expect(bucket, NEVER));
        foreseen.note_use(1);
        // Buckets 0 and 2 have one use each; their reads cost 3 for 2 bytes and 5 for 4.
        assert_eq!(take(&mut foreseen, 3), Some(vec![2]));
    }

    #[test]
    fn use_counts_remain_finite_and_decay() {
        let mut foreseen = residency(2, &[1; 3]);
        (0..100).for_each(|_| drop(take(&mut foreseen, 0)));
        (0..60_000).for_each(|_| drop(take(&mut foreseen, 1)));
        assert!(foreseen.counts.iter().all(|count| count.is_finite()));
        (0..10).for_each(|_| foreseen.note_use(2));
        assert_eq!(take(&mut foreseen, 2), Some(vec![0]));
    }
}
