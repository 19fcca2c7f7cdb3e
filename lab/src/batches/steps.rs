//! The plan of a batch: what is loaded, let go of and compared, step by step.

use adjoin::plan::batch::{BatchCounts, BatchPlan, BatchStep};

use super::order::{BatchOrder, Piece, pieces};
use super::residency::{NEVER, Residency};

/// Share of uses that found their bucket in the cache; with those that were loaded ahead, as CALL counts them, or without.
pub(crate) fn hit_rate(counts: &BatchCounts, with_prefetched: bool) -> f64 {
    let missed = counts.misses + if with_prefetched { 0 } else { counts.prefetched };
    1.0 - missed as f64 / counts.uses.max(1) as f64
}

/// Plans a batch of queries that look into the listed buckets, at a time in seconds since some beginning. The cache is then what
/// it is after the last step.
///
/// # Panics
/// Where a bucket does not fit into the empty cache.
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

/// A plan in the making.
struct Planning<'a> {
    cache: &'a mut Residency,
    steps: Vec<BatchStep>,
    counts: BatchCounts,
    /// Queries of each bucket.
    queries: Vec<u32>,
    /// Buckets that were loaded ahead and not used since.
    is_ahead: Vec<bool>,
    /// Buckets that must stay: nobody looked at them yet.
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

    /// When the buckets of each piece are used next after it, where the cache asks; tells it when each is used first.
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

    /// Loads what a piece needs and compares it: as much of it at once as there is room for.
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

    /// Compares those buckets of a piece that wait for it; from then on they may go.
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

    /// Counts the uses of a bucket: by all of its queries at once, one of which may have had to wait for it, or by one.
    fn count(&mut self, bucket: u32, by_all: bool, is_missing: bool) {
        self.counts.uses += if by_all { self.queries[bucket as usize].into() } else { 1 };
        self.counts.misses += u64::from(is_missing);
        self.counts.prefetched += u64::from(!is_missing && self.is_ahead[bucket as usize]);
        self.is_ahead[bucket as usize] = false;
        self.cache.note_use(bucket);
    }

    /// Loads what is missing of some buckets, which others of them do not make room for.
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

    /// Lets go of buckets until another one fits; false where all that are left must stay.
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
