//! The plan of a batch, step by step: loads, evictions and comparisons.

use std::fmt;

use super::order::{BatchOrder, Piece, pieces};
use super::residency::{NEVER, Residency};

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

impl BatchCounts {
    /// Returns the fraction of uses that found their bucket in the cache, with or without prefetched ones; CALL counts
    /// them.
    pub fn hit_rate(&self, with_prefetched: bool) -> f64 {
        let missed = self.misses + if with_prefetched { 0 } else { self.prefetched };
        1.0 - missed as f64 / self.uses.max(1) as f64
    }
}

/// The plan of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPlan {
    /// The steps.
    pub steps: Vec<BatchStep>,
    /// Their cost.
    pub counts: BatchCounts,
    /// Number of groups of queries.
    pub groups: usize,
}

impl BatchPlan {
    /// Returns the most bytes of a plan for `uses` uses of buckets by queries.
    pub fn memory_bytes(uses: u64) -> u64 {
        let of_use = 3 * size_of::<BatchStep>() + 4 * size_of::<u32>() + size_of::<Piece>();
        uses * of_use as u64
    }
}

impl fmt::Display for BatchPlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BatchCounts { uses, misses, prefetched, loads } = self.counts;
        writeln!(out, "groups {}, uses {uses}, misses {misses}, prefetched {prefetched}, loads {loads}", self.groups)?;
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

/// Plans a batch of queries with their lists of buckets, at a time in seconds since some start. Updates the cache to
/// its state after the last step.
///
/// # Panics
/// If a bucket does not fit into the empty cache.
pub fn plan_batch(order: BatchOrder, lists: &[Vec<u32>], cache: &mut Residency, seconds: f64) -> BatchPlan {
    let (pieces, groups) = pieces(order, lists, cache);
    let mut planning = Planning::new(cache, lists);
    let ahead = planning.cache.tick(seconds);
    planning.prefetch(&ahead);
    planning.turn += 1;
    let next_uses = planning.next_uses(&pieces);
    for (at, piece) in pieces.iter().enumerate() {
        let next_uses = next_uses.get(at).map_or(&[][..], Vec::as_slice);
        planning.carry_out(piece, next_uses);
        planning.turn += 1;
        planning.prefetch(&piece.prefetch);
        planning.turn += 1;
    }
    BatchPlan { steps: planning.steps, counts: planning.counts, groups }
}

/// A plan under construction.
struct Planning<'a> {
    cache: &'a mut Residency,
    steps: Vec<BatchStep>,
    counts: BatchCounts,
    /// Number of queries of each bucket.
    queries: Vec<u32>,
    /// Buckets that were prefetched and not used since.
    is_ahead: Vec<bool>,
    /// Buckets that must not be evicted, since they are still to be compared.
    is_pinned: Vec<bool>,
    turn: u32,
}

impl<'a> Planning<'a> {
    fn new(cache: &'a mut Residency, lists: &[Vec<u32>]) -> Self {
        let mut queries = vec![0; cache.buckets()];
        lists.iter().flatten().for_each(|&bucket| queries[bucket as usize] += 1);
        let [is_ahead, is_pinned] = [(); 2].map(|()| vec![false; cache.buckets()]);
        Self { cache, steps: Vec::new(), counts: BatchCounts::default(), queries, is_ahead, is_pinned, turn: 0 }
    }

    /// Returns the next use of each piece's buckets after it, and tells the cache each first use, if its policy needs
    /// them.
    fn next_uses(&mut self, pieces: &[Piece]) -> Vec<Vec<u32>> {
        if !self.cache.foresees() {
            return Vec::new();
        }
        let mut next = vec![NEVER; self.cache.buckets()];
        let mut uses = vec![Vec::new(); pieces.len()];
        for (at, piece) in pieces.iter().enumerate().rev() {
            uses[at] = piece.buckets.iter().map(|&bucket| next[bucket as usize]).collect();
            piece.buckets.iter().for_each(|&bucket| next[bucket as usize] = at as u32);
        }
        (0..).zip(next).for_each(|(bucket, first)| self.cache.expect(bucket, first));
        uses
    }

    /// Loads the buckets of a piece and compares them, as many at a time as fit.
    fn carry_out(&mut self, piece: &Piece, next_uses: &[u32]) {
        let is_missing: Vec<bool> = piece.buckets.iter().map(|&bucket| !self.cache.holds(bucket)).collect();
        for (&bucket, &is_missing) in piece.buckets.iter().zip(&is_missing) {
            self.count(bucket, piece.query.is_none(), is_missing);
            self.is_pinned[bucket as usize] = !is_missing;
        }
        let mut waiting: Vec<usize> = (0..is_missing.len()).filter(|&at| !is_missing[at]).collect();
        for at in (0..is_missing.len()).filter(|&at| is_missing[at]) {
            while !self.make_room(piece.buckets[at]) {
                assert!(!waiting.is_empty(), "a bucket fits into the empty cache");
                self.compare(piece, next_uses, &mut waiting);
            }
            self.load(piece.buckets[at]);
            self.is_pinned[piece.buckets[at] as usize] = true;
            waiting.push(at);
        }
        self.compare(piece, next_uses, &mut waiting);
    }

    /// Compares the waiting buckets of a piece; they may be evicted after that.
    fn compare(&mut self, piece: &Piece, next_uses: &[u32], waiting: &mut Vec<usize>) {
        for at in waiting.drain(..) {
            let bucket = piece.buckets[at];
            self.steps.push(BatchStep::Compare { bucket, query: piece.query });
            self.is_pinned[bucket as usize] = false;
            if let Some(&next) = next_uses.get(at) {
                self.cache.expect(bucket, next);
            }
        }
    }

    /// Counts the uses of a bucket: by one query, or by all of its queries at once, of which only one counts as a miss.
    fn count(&mut self, bucket: u32, by_all: bool, is_missing: bool) {
        self.counts.uses += if by_all { self.queries[bucket as usize].into() } else { 1 };
        self.counts.misses += u64::from(is_missing);
        self.counts.prefetched += u64::from(!is_missing && self.is_ahead[bucket as usize]);
        self.is_ahead[bucket as usize] = false;
        self.cache.note_use(bucket);
    }

    /// Loads the missing ones of `buckets`, without evicting others of them.
    fn prefetch(&mut self, buckets: &[u32]) {
        buckets.iter().for_each(|&bucket| self.is_pinned[bucket as usize] = true);
        for &bucket in buckets {
            if !self.cache.holds(bucket) && self.make_room(bucket) {
                self.load(bucket);
                self.is_ahead[bucket as usize] = true;
            }
        }
        buckets.iter().for_each(|&bucket| self.is_pinned[bucket as usize] = false);
    }

    fn load(&mut self, bucket: u32) {
        self.counts.loads += 1;
        self.cache.insert(bucket);
        self.steps.push(BatchStep::Load { bucket, turn: self.turn });
    }

    /// Evicts buckets until another one fits; returns false if all that are left must be kept.
    fn make_room(&mut self, bucket: u32) -> bool {
        while !self.cache.fits(bucket) {
            let Some(victim) = self.cache.victim(|held| !self.is_pinned[held as usize]) else { return false };
            self.cache.evict(victim);
            self.is_ahead[victim as usize] = false;
            self.steps.push(BatchStep::Evict(victim));
        }
        true
    }
}
