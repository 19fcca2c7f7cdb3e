//! The plan of a batch as steps: loads, evictions and comparisons.

use adjoin::lab::plan::batch::{BatchCounts, BatchPlan, BatchStep, NEVER};

use super::order::{BatchOrder, Piece, pieces};
use super::residency::Residency;

/// Returns the fraction of uses that found their bucket in the cache. If `with_prefetched` is true, the use of a
/// prefetched bucket is a hit, as in CALL.
pub(crate) fn hit_rate(counts: &BatchCounts, with_prefetched: bool) -> f64 {
    let missed = counts.misses + if with_prefetched { 0 } else { counts.prefetched };
    1.0 - missed as f64 / counts.uses.max(1) as f64
}

/// Plans a batch of queries. `lists` has the buckets that each query probes, and `seconds` is the time from any fixed
/// moment. Afterwards, the cache is in the state after the last step.
///
/// # Panics
/// If a bucket does not fit in the empty cache.
pub(crate) fn plan_batch(order: BatchOrder, lists: &[Vec<u32>], cache: &mut Residency, seconds: f64) -> BatchPlan {
    let pieces = pieces(order, lists, cache);
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
    BatchPlan { steps: planning.steps, counts: planning.counts }
}

/// State of a plan under construction.
struct Planning<'a> {
    cache: &'a mut Residency,
    steps: Vec<BatchStep>,
    counts: BatchCounts,
    /// Number of queries that probe each bucket.
    queries: Vec<u32>,
    /// Whether each bucket was prefetched and has not been used since.
    is_ahead: Vec<bool>,
    /// Whether each bucket must stay in the cache because it has not been compared yet.
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

    /// Returns, for each bucket of each piece, its next use after that piece. Reports the first use of each bucket to
    /// the cache. If the cache does not need next uses, returns an empty list.
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

    /// Loads the buckets of a piece and compares them. If they do not all fit, it does so for some of them at a time.
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

    /// Compares the buckets of a piece that are loaded and wait for it. They may be evicted afterwards.
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

    /// Counts the uses of a bucket: one if it is compared for one query, or one per query that probes it if `by_all`
    /// is true. If `is_missing` is true, the first use had to wait for the bucket.
    fn count(&mut self, bucket: u32, by_all: bool, is_missing: bool) {
        self.counts.uses += if by_all { self.queries[bucket as usize].into() } else { 1 };
        self.counts.misses += u64::from(is_missing);
        self.counts.prefetched += u64::from(!is_missing && self.is_ahead[bucket as usize]);
        self.is_ahead[bucket as usize] = false;
        self.cache.note_use(bucket);
    }

    /// Loads the missing ones among some buckets. None of these buckets is evicted for another one.
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

    /// Evicts buckets until `bucket` fits. Returns false if all remaining buckets must stay.
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
