//! Policies that choose the buckets to keep in memory between the queries of a batch, and between batches. A policy
//! sees only the sizes of buckets and the times of their uses. It does not depend on loaders or on the positions of
//! buckets.

use std::collections::BTreeSet;
use std::str::FromStr;

use super::s3_fifo::S3Fifo;
use adjoin::{
    Error, Result,
    lab::plan::batch::{self, BucketCosts},
};

/// Length of WLRU's window in seconds. WLRU and CLRU prefetch once per window (CALL, sections III-B and III-C).
const WINDOW_SECONDS: f64 = 60.0;
/// Number of buckets that WLRU keeps because they were used most in a window.
const WINDOW_TOP: usize = 10;
/// Number of buckets that WLRU and CLRU prefetch at a time.
const PREFETCH: usize = 20;
/// Mean number of uses per bucket after which an earlier use counts half.
const USES_REMEMBERED: f64 = 16.0;
/// Maximum use count. Beyond it, all counts are scaled down.
const COUNT_MAX: f64 = 1e200;

/// Which bucket is evicted when another one needs its space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retention {
    /// The bucket that was loaded longest ago.
    Fifo,
    /// The bucket that was used longest ago.
    Lru,
    /// The bucket that was used longest ago, except that the ten most used ones of the last full minute are evicted
    /// last (CALL, section III-B).
    Wlru {
        /// Whether the 20 most used buckets of the last minute are loaded once per minute.
        prefetches: bool,
    },
    /// The bucket with the smallest product of uses and loading time (CALL, section V-A, after EdgeRAG).
    Clru {
        /// Whether the 20 buckets that take longest to load are loaded once per minute.
        prefetches: bool,
    },
    /// The bucket that the queues of S3-FIFO choose.
    S3Fifo,
    /// The bucket that the engine chooses.
    Foreseen,
}

impl Retention {
    /// All policies.
    pub(crate) const ALL: [Self; 8] = [
        Self::Fifo,
        Self::Lru,
        Self::Wlru { prefetches: false },
        Self::Wlru { prefetches: true },
        Self::Clru { prefetches: false },
        Self::Clru { prefetches: true },
        Self::S3Fifo,
        Self::Foreseen,
    ];

    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Lru => "lru",
            Self::Wlru { prefetches: false } => "wlru",
            Self::Wlru { prefetches: true } => "wlru-prefetch",
            Self::Clru { prefetches: false } => "clru",
            Self::Clru { prefetches: true } => "clru-prefetch",
            Self::S3Fifo => "s3-fifo",
            Self::Foreseen => "foreseen",
        }
    }
}

impl FromStr for Retention {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|retention| retention.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|retention| retention.name()).collect();
            Error::option(format!("no such cache: {name}; choose one of {}", names.join(", ")))
        })
    }
}

/// Rank of a bucket. The bucket with the smallest rank is evicted first.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stay(u64, f64);

impl Eq for Stay {}

impl PartialOrd for Stay {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Stay {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0).then(self.1.total_cmp(&other.1))
    }
}

/// The buckets in a cache, and the data from which a policy chooses the bucket to evict.
pub(crate) struct Residency {
    retention: Retention,
    capacity: u64,
    costs: BucketCosts,
    held_bytes: u64,
    held: Vec<Option<Stay>>,
    /// Cached buckets ordered by rank. Empty for S3-FIFO and for the engine's policy.
    by_stay: BTreeSet<(Stay, u32)>,
    queues: Option<S3Fifo>,
    foreseen: Option<batch::Residency>,
    /// Number of uses and loads so far.
    time: u64,
    /// Weighted number of uses of each bucket. Earlier uses have smaller weights.
    counts: Vec<f64>,
    /// Weight of the next use.
    next_counts: f64,
    /// For each bucket, the number of uses in this window, and whether it was one of the most used in the last
    /// window.
    recent: Vec<u32>,
    is_top: Vec<bool>,
    window: u64,
}

impl Residency {
    /// Creates an empty cache.
    pub(crate) fn new(retention: Retention, capacity: u64, costs: BucketCosts) -> Self {
        let buckets = costs.sizes.len();
        assert_eq!(buckets, costs.reads.len(), "a bucket has a size and a cost");
        let queues = (retention == Retention::S3Fifo).then(|| S3Fifo::new(capacity, buckets));
        let foreseen = (retention == Retention::Foreseen).then(|| batch::Residency::new(capacity, costs.clone()));
        Self {
            retention,
            capacity,
            costs,
            held_bytes: 0,
            held: vec![None; buckets],
            by_stay: BTreeSet::new(),
            queues,
            foreseen,
            time: 0,
            counts: vec![0.0; buckets],
            next_counts: 1.0,
            recent: vec![0; buckets],
            is_top: vec![false; buckets],
            window: 0,
        }
    }

    /// Returns the number of buckets.
    pub(crate) fn buckets(&self) -> usize {
        self.held.len()
    }

    /// Returns the size of a bucket in bytes.
    pub(crate) fn size(&self, bucket: u32) -> u64 {
        self.costs.sizes[bucket as usize]
    }

    /// Returns whether a bucket is cached.
    pub(crate) fn holds(&self, bucket: u32) -> bool {
        self.held[bucket as usize].is_some()
    }

    /// Returns whether a bucket fits without an eviction.
    pub(crate) fn fits(&self, bucket: u32) -> bool {
        self.held_bytes + self.size(bucket) <= self.capacity
    }

    /// Returns whether the policy needs to know the next use of each bucket.
    pub(crate) fn foresees(&self) -> bool {
        self.foreseen.is_some()
    }

    /// Sets the time, in seconds from any fixed moment. If a new minute has begun, returns the buckets to prefetch.
    pub(crate) fn tick(&mut self, seconds: f64) -> Vec<u32> {
        let window = (seconds / WINDOW_SECONDS).max(0.0) as u64;
        if window <= self.window {
            return Vec::new();
        }
        // If the last window had no uses, there are no most used buckets.
        let recent = std::mem::replace(&mut self.recent, vec![0; self.held.len()]);
        let recent = if window == self.window + 1 { recent } else { self.recent.clone() };
        self.window = window;
        let most_used = first_by(&recent, |&uses| f64::from(uses));
        match self.retention {
            Retention::Wlru { prefetches } => {
                self.is_top.fill(false);
                most_used.iter().take(WINDOW_TOP).for_each(|&bucket| self.is_top[bucket as usize] = true);
                self.rank_again();
                most_used.into_iter().take(if prefetches { PREFETCH } else { 0 }).collect()
            }
            Retention::Clru { prefetches: true } => {
                first_by(&self.costs.reads, |&cost| cost).into_iter().take(PREFETCH).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Sets when a bucket is used next, as a position in the batch, or [`batch::NEVER`].
    pub(crate) fn expect(&mut self, bucket: u32, next_use: u32) {
        if let Some(foreseen) = &mut self.foreseen {
            foreseen.expect(bucket, next_use);
        }
    }

    /// Counts a use of a bucket. The bucket need not be cached.
    pub(crate) fn note_use(&mut self, bucket: u32) {
        self.time += 1;
        self.recent[bucket as usize] += 1;
        self.counts[bucket as usize] += self.next_counts;
        self.next_counts *= 1.0 + std::f64::consts::LN_2 / (USES_REMEMBERED * self.held.len() as f64);
        if self.next_counts > COUNT_MAX {
            self.counts.iter_mut().for_each(|count| *count /= COUNT_MAX);
            self.next_counts /= COUNT_MAX;
            self.rank_again();
        }
        if let Some(queues) = &mut self.queues {
            queues.note_use(bucket);
        } else if let Some(foreseen) = &mut self.foreseen {
            foreseen.note_use(bucket);
        } else if self.retention != Retention::Fifo {
            self.rank(bucket);
        }
    }

    /// Adds a bucket to the cache.
    ///
    /// # Panics
    /// If the bucket is cached already or does not fit.
    pub(crate) fn insert(&mut self, bucket: u32) {
        assert!(!self.holds(bucket) && self.fits(bucket), "a bucket is inserted once, if it fits");
        self.time += 1;
        self.held_bytes += self.size(bucket);
        let stay = self.stay(bucket);
        self.held[bucket as usize] = Some(stay);
        match (&mut self.queues, &mut self.foreseen) {
            (Some(queues), _) => queues.insert(bucket, self.costs.sizes[bucket as usize]),
            (_, Some(foreseen)) => foreseen.insert(bucket),
            _ => {
                self.by_stay.insert((stay, bucket));
            }
        }
    }

    /// Returns the next bucket to evict among the buckets for which `may_go` returns true, if there is one.
    pub(crate) fn victim(&mut self, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        match (&mut self.queues, &self.foreseen) {
            (Some(queues), _) => queues.victim(|bucket| self.costs.sizes[bucket as usize], may_go),
            (_, Some(foreseen)) => foreseen.victims().find(|&bucket| may_go(bucket)),
            _ => self.by_stay.iter().map(|&(_, bucket)| bucket).find(|&bucket| may_go(bucket)),
        }
    }

    /// Removes a bucket from the cache.
    ///
    /// # Panics
    /// If the bucket is not cached.
    pub(crate) fn evict(&mut self, bucket: u32) {
        let stay = self.held[bucket as usize].take().expect("only a held bucket is evicted");
        self.held_bytes -= self.size(bucket);
        self.by_stay.remove(&(stay, bucket));
        if let Some(queues) = &mut self.queues {
            queues.evict(bucket, self.costs.sizes[bucket as usize]);
        }
        if let Some(foreseen) = &mut self.foreseen {
            foreseen.evict(bucket);
        }
    }

    /// Returns the rank that a bucket gets if it is loaded or used now.
    fn stay(&self, bucket: u32) -> Stay {
        let at = bucket as usize;
        match self.retention {
            Retention::Fifo | Retention::Lru | Retention::S3Fifo | Retention::Foreseen => Stay(self.time, 0.0),
            Retention::Wlru { .. } => Stay(self.is_top[at].into(), self.time as f64),
            Retention::Clru { .. } => Stay(0, self.counts[at] * self.costs.reads[at]),
        }
    }

    /// Updates the rank of a bucket if it is cached.
    fn rank(&mut self, bucket: u32) {
        let stay = self.stay(bucket);
        if let Some(before) = &mut self.held[bucket as usize] {
            self.by_stay.remove(&(*before, bucket));
            *before = stay;
            self.by_stay.insert((stay, bucket));
        }
    }

    /// Updates the ranks of all cached buckets. The parts that depend on the time of the last use are kept.
    fn rank_again(&mut self) {
        for bucket in 0..self.held.len() {
            let Some(before) = self.held[bucket] else { continue };
            let stay = match self.retention {
                Retention::Wlru { .. } => Stay(self.is_top[bucket].into(), before.1),
                Retention::Clru { .. } => self.stay(bucket as u32),
                Retention::Fifo | Retention::Lru | Retention::S3Fifo | Retention::Foreseen => continue,
            };
            self.by_stay.remove(&(before, bucket as u32));
            self.held[bucket] = Some(stay);
            self.by_stay.insert((stay, bucket as u32));
        }
    }
}

/// Returns the buckets with nonzero values, in descending order of value. Buckets with equal values are ordered by
/// number.
fn first_by<V>(values: &[V], value: impl Fn(&V) -> f64) -> Vec<u32> {
    let mut buckets: Vec<u32> =
        (0..values.len() as u32).filter(|&bucket| value(&values[bucket as usize]) > 0.0).collect();
    buckets.sort_by(|&a, &b| value(&values[b as usize]).total_cmp(&value(&values[a as usize])));
    buckets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn residency(retention: Retention, capacity: u64, sizes: &[u64]) -> Residency {
        let costs = BucketCosts { sizes: sizes.to_vec(), reads: sizes.iter().map(|&size| 1.0 + size as f64).collect() };
        Residency::new(retention, capacity, costs)
    }

    /// Uses a bucket. If it had to be loaded, returns the buckets that were evicted for it.
    fn take(residency: &mut Residency, bucket: u32) -> Option<Vec<u32>> {
        residency.note_use(bucket);
        if residency.holds(bucket) {
            return None;
        }
        let mut gone = Vec::new();
        while !residency.fits(bucket) {
            let victim = residency.victim(|_| true).unwrap();
            residency.evict(victim);
            gone.push(victim);
        }
        residency.insert(bucket);
        Some(gone)
    }

    /// A cache as a plain list. The first bucket is evicted first.
    struct PlainCache<'a> {
        retention: Retention,
        capacity: u64,
        sizes: &'a [u64],
        list: Vec<u32>,
    }

    impl PlainCache<'_> {
        /// Uses a bucket. If it had to be loaded, returns the buckets that were evicted for it.
        fn take(&mut self, bucket: u32) -> Option<Vec<u32>> {
            let Self { retention, capacity, sizes, list } = self;
            if let Some(place) = list.iter().position(|&held| held == bucket) {
                if *retention == Retention::Lru {
                    list.remove(place);
                    list.push(bucket);
                }
                return None;
            }
            let mut evicted = Vec::new();
            let held = |list: &[u32]| list.iter().map(|&bucket| sizes[bucket as usize]).sum::<u64>();
            while held(list) + sizes[bucket as usize] > *capacity {
                evicted.push(list.remove(0));
            }
            list.push(bucket);
            Some(evicted)
        }
    }

    proptest! {
        #[test]
        fn queue_caches_equal_plain_lists(uses in prop::collection::vec(0u32..9, 0..80), sizes in prop::collection::vec(1u64..7, 9)) {
            for retention in [Retention::Fifo, Retention::Lru] {
                let mut residency = residency(retention, 14, &sizes);
                let mut plain = PlainCache { retention, capacity: 14, sizes: &sizes, list: Vec::new() };
                for &bucket in &uses {
                    prop_assert_eq!(take(&mut residency, bucket), plain.take(bucket));
                }
            }
        }

        #[test]
        fn no_cache_exceeds_its_capacity(uses in prop::collection::vec((0u32..9, 0.0f64..40.0), 0..80), sizes in prop::collection::vec(1u64..7, 9)) {
            for retention in Retention::ALL {
                let (mut residency, mut seconds) = (residency(retention, 10, &sizes), 0.0);
                for &(bucket, passed) in &uses {
                    seconds += passed;
                    let _ = residency.tick(seconds);
                    take(&mut residency, bucket);
                    let held: u64 = (0..9).filter(|&bucket| residency.holds(bucket)).map(|bucket| sizes[bucket as usize]).sum();
                    prop_assert!(held <= 10 && held == residency.held_bytes && residency.holds(bucket));
                }
            }
        }
    }

    #[test]
    fn wlru_evicts_the_most_used_of_the_last_minute_last() {
        let mut wlru = residency(Retention::Wlru { prefetches: true }, 12, &[1; 30]);
        // Bucket 0 is used most, then 1, and so on. None of the ten most used ones is used in the next minute.
        (0..12).for_each(|bucket| (0..20 - bucket).for_each(|_| drop(take(&mut wlru, bucket))));
        assert!(wlru.tick(59.0).is_empty());
        assert_eq!(wlru.tick(60.0), (0..12).collect::<Vec<_>>(), "those of the last minute, at most 20");
        assert_eq!(take(&mut wlru, 20), Some(vec![10]));
        assert_eq!(take(&mut wlru, 21), Some(vec![11]));
        assert_eq!(take(&mut wlru, 22), Some(vec![20]));
        assert!(wlru.tick(185.0).is_empty(), "of the minute before nothing is known");
        assert_eq!(take(&mut wlru, 23), Some(vec![0]));
    }

    #[test]
    fn clru_evicts_rarely_used_and_cheap_buckets_first() {
        let mut clru = residency(Retention::Clru { prefetches: true }, 12, &[3, 4, 5, 4]);
        [0, 0, 0, 1, 2].into_iter().for_each(|bucket| drop(take(&mut clru, bucket)));
        // Products of uses and cost of buckets 0, 1 and 2: about 3 x 4, 1 x 5 and 1 x 6.
        assert_eq!(take(&mut clru, 3), Some(vec![1]));
        assert_eq!(clru.tick(61.0), [2, 1, 3, 0]);
    }

    #[test]
    fn use_counts_remain_finite_and_decay() {
        let mut clru = residency(Retention::Clru { prefetches: false }, 2, &[1; 3]);
        (0..100).for_each(|_| drop(take(&mut clru, 0)));
        (0..60_000).for_each(|_| drop(take(&mut clru, 1)));
        assert!(clru.counts.iter().all(|count| count.is_finite()));
        (0..10).for_each(|_| clru.note_use(2));
        assert_eq!(take(&mut clru, 2), Some(vec![0]));
    }

    #[test]
    fn retention_names_can_be_parsed() {
        for retention in Retention::ALL {
            assert_eq!(retention.name().parse::<Retention>().unwrap(), retention);
        }
        assert!("lfu".parse::<Retention>().unwrap_err().to_string().contains("fifo, lru, wlru"));
    }
}
