//! Measures the recall that a join reaches, with the vectors of its calibration, whose true neighbors are known. The
//! result includes pairs beyond the rule, which the join finds because it computes whole tiles.

use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::Reservation;
use serde::{Deserialize, Serialize};

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::report::{Interval, RecallStatistics};
use crate::sink::PairBatch;
use crate::truth::{Recalls, Tally, recalls};

/// Minimum bits of the filter per watched row. With this number, one lookup excludes most rows that are not watched.
const FILTER_BITS: usize = 64;
/// Multiplier for Fibonacci hashing, which spreads row numbers even if they are not random.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The vectors whose found pairs are counted. With one set, its vectors are watched on both sides of pairs. With two
/// sets, rows of the first are watched on the left, rows of the second on the right.
pub(super) struct Watched {
    sets: Vec<WatchedSet>,
    /// First row that may be watched. A pair of two such rows can be seen from both of them. A pair with an earlier
    /// row can be seen from one row only, so it has weight 2.
    first_row: u64,
    _memory: Reservation,
}

/// The watched vectors of a set, with their numbers of neighbors.
struct WatchedSet {
    vectors: WatchedVectors,
    /// Number of watched vectors in earlier sets.
    first: usize,
    /// Bloom filter with one bit per row.
    filter: Vec<u64>,
}

/// Watched vectors as data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WatchedVectors {
    /// Row and number of neighbors of each vector.
    pub(super) vectors: Vec<(u64, u64)>,
    /// Whether these are all vectors that have neighbors.
    pub(super) whole: bool,
    pub(super) seed: u64,
}

impl Watched {
    /// Creates counters for vectors of one set or of two. Rows from `first_row` on may be watched.
    pub(super) fn new(context: &Context, sets: Vec<WatchedVectors>, first_row: u64) -> Result<Self> {
        let of = |set: &WatchedVectors| {
            let count = set.vectors.len();
            count * (16 + 8) + WatchedSet::bits(count) / 8 // 8 bytes more for the pairs found
        };
        let memory = context.reserve(sets.iter().map(of).sum::<usize>() as u64, "measuring the recall")?;
        let mut first = 0;
        let sets = sets.into_iter().map(|vectors| {
            let set = WatchedSet::new(vectors, first);
            first += set.vectors.vectors.len();
            set
        });
        Ok(Self { sets: sets.collect(), first_row, _memory: memory })
    }

    /// Returns the weight of a pair of a watched row, given the other row.
    pub(super) fn weight_of(&self, other: u64) -> u64 {
        if other < self.first_row { 2 } else { 1 }
    }

    /// Returns the number of watched vectors.
    pub(super) fn len(&self) -> usize {
        self.sets.iter().map(|set| set.vectors.vectors.len()).sum()
    }

    /// Returns the watched vectors by set.
    pub(super) fn vectors(&self) -> Vec<WatchedVectors> {
        self.sets.iter().map(|set| set.vectors.clone()).collect()
    }

    /// Creates a counter of found pairs for each watched vector.
    pub(super) fn found(&self) -> Vec<AtomicU64> {
        self.sets.iter().flat_map(|set| &set.vectors.vectors).map(|_| AtomicU64::new(0)).collect()
    }

    /// Returns the index of a row among the watched vectors. `side` is 0 if the row is on the left side of pairs, 1 if
    /// it is on the right. `None` if the row is not watched.
    pub(super) fn position(&self, side: usize, row: u64) -> Option<usize> {
        // With one set, the same vectors are watched on both sides.
        self.sets[side % self.sets.len()].position(row)
    }

    /// Adds the pairs of watched vectors in a batch to the counters `found`.
    pub(super) fn count(&self, batch: &PairBatch, found: &[AtomicU64]) {
        let rows = [&batch.left_rows, &batch.right_rows];
        for (side, (rows, others)) in [(rows[0], rows[1]), (rows[1], rows[0])].into_iter().enumerate() {
            for (&row, &other) in rows.iter().zip(others) {
                if let Some(at) = self.position(side, row) {
                    found[at].fetch_add(self.weight_of(other), Ordering::Relaxed);
                }
            }
        }
    }

    /// Returns the recall that the join reached. `told` is the certified recall of the rule, and `found` the number of
    /// found pairs of each watched vector. The join finds everything that the rule finds, so the certified lower bound
    /// of the rule also holds for the join.
    pub(super) fn measured(&self, told: &RecallStatistics, found: &[u64]) -> RecallStatistics {
        let of_set = |set: &WatchedSet| {
            let WatchedVectors { vectors, whole, seed } = &set.vectors;
            let tally = |(&(_, neighbors), &found): (&(u64, u64), &u64)| Tally {
                neighbors: neighbors as f64,
                found: found as f64,
            };
            let tallies: Vec<Tally> = vectors.iter().zip(&found[set.first..]).map(tally).collect();
            recalls(&tallies, *whole, *seed)
        };
        let all: Vec<Recalls> = self.sets.iter().map(of_set).collect();
        let measured = of_sets(told.clone(), &all);
        let bounded = |measured: Option<Interval>, told: Option<Interval>| {
            measured.map(|measured| told.map_or(measured, |told| bounded(measured, told.low)))
        };
        let pair = bounded(measured.pair, told.pair);
        let per_vector = bounded(measured.per_vector, told.per_vector);
        let per_right_vector = bounded(measured.per_right_vector, told.per_right_vector);
        let promised = if told.of_pairs_only { [pair, None, None] } else { [pair, per_vector, per_right_vector] };
        let every = || promised.into_iter().flatten();
        // A recall is a quotient of rounded sums. So a recall that reaches the target may be computed as slightly
        // smaller.
        let least = told.target * (1.0 - 1e-9);
        let kept = match every().all(|recall| is_certain(&recall)) {
            // If there is no sampling error, the estimates are exact.
            true => every().all(|recall| recall.estimate >= least),
            false => told.kept && every().all(|recall| recall.high >= least),
        };
        RecallStatistics { kept, pair: pair.map(open_above), per_vector, per_right_vector, ..measured }
    }
}

fn is_certain(recall: &Interval) -> bool {
    recall.low == recall.high
}

/// Replaces the lower bounds of a sample's recalls by certified ones. `pair_low` is the bound per pair, `vector_low`
/// the bound per vector.
pub(super) fn with_bounds(recalls: Recalls, pair_low: f64, vector_low: f64) -> Recalls {
    let Recalls { pair, per_vector } = recalls;
    Recalls { pair: open_above(bounded(pair, pair_low)), per_vector: bounded(per_vector, vector_low) }
}

/// Replaces the lower bound of a recall by a certified one, unless the recall is certain.
fn bounded(recall: Interval, low: f64) -> Interval {
    if is_certain(&recall) { recall } else { Interval { low: low.min(recall.estimate), ..recall } }
}

/// Raises the upper bound of the recall per pair to 1, unless it is certain. Only its lower bound is certified: the
/// join may find all pairs that the sample does not contain.
fn open_above(pair: Interval) -> Interval {
    if is_certain(&pair) { pair } else { Interval { high: 1.0, ..pair } }
}

/// Combines the recalls of the samples of one or two sets. The recall per pair is that of the first set, unless only
/// the second set knows it for certain.
pub(super) fn of_sets(told: RecallStatistics, sets: &[Recalls]) -> RecallStatistics {
    let (first, second) = (sets.first().expect("a join has at least one set"), sets.get(1));
    let certain = second.filter(|second| second.pair.low == second.pair.high);
    RecallStatistics {
        pair: Some(certain.unwrap_or(first).pair),
        per_vector: Some(first.per_vector),
        per_right_vector: second.map(|second| second.per_vector),
        ..told
    }
}

impl WatchedSet {
    fn new(mut vectors: WatchedVectors, first: usize) -> Self {
        vectors.vectors.sort_unstable();
        let filter = vec![0; Self::bits(vectors.vectors.len()) / 64];
        let mut watched = Self { vectors, first, filter };
        for at in 0..watched.vectors.vectors.len() {
            let (word, bit) = watched.hash(watched.vectors.vectors[at].0);
            watched.filter[word] |= bit;
        }
        watched
    }

    /// Returns the bits of the filter for `count` rows.
    fn bits(count: usize) -> usize {
        (count * FILTER_BITS).next_power_of_two().max(64)
    }

    /// Returns the word and bit of a row in the filter.
    fn hash(&self, row: u64) -> (usize, u64) {
        let hash = row.wrapping_mul(SPREAD) >> 32;
        // The lowest 6 bits of the hash select the bit of a word, the bits above them select the word.
        (hash as usize >> 6 & (self.filter.len() - 1), 1 << (hash & 63))
    }

    fn position(&self, row: u64) -> Option<usize> {
        let (word, bit) = self.hash(row);
        if self.filter[word] & bit == 0 {
            return None;
        }
        let at = self.vectors.vectors.binary_search_by_key(&row, |&(row, _)| row);
        at.ok().map(|at| self.first + at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::IdKind;

    fn watched(vectors: Vec<(u64, u64)>) -> Watched {
        Watched::new(&Context::default(), vec![WatchedVectors { vectors, whole: false, seed: 1 }], 0).unwrap()
    }

    #[test]
    fn only_pairs_of_watched_vectors_are_counted() {
        let mut random = crate::base::random::Random::new(1, "watched");
        let vectors: Vec<(u64, u64)> = random.ascending_sample(200, 3000).into_iter().map(|row| (row, 9)).collect();
        let watched = watched(vectors.iter().rev().copied().collect());
        let mut batch = PairBatch::new(IdKind::None);
        for _ in 0..20_000 {
            batch.left_rows.push(random.below(3000));
            batch.right_rows.push(random.below(3000));
        }
        let found = watched.found();
        watched.count(&batch, &found);
        for (&(row, _), found) in vectors.iter().zip(found.into_iter().map(AtomicU64::into_inner)) {
            let of = |rows: &[u64]| rows.iter().filter(|&&other| other == row).count() as u64;
            assert_eq!(found, of(&batch.left_rows) + of(&batch.right_rows));
        }
    }

    #[test]
    fn watched_rows_of_two_sets_are_counted_separately() {
        let sets = [vec![(1, 2), (5, 2)], vec![(5, 3)]].map(|vectors| WatchedVectors { vectors, whole: true, seed: 1 });
        let watched = Watched::new(&Context::default(), sets.into(), 0).unwrap();
        let pairs = PairBatch { left_rows: vec![1, 5, 5], right_rows: vec![5, 1, 5], ..PairBatch::new(IdKind::None) };
        let found = watched.found();
        watched.count(&pairs, &found);
        let found: Vec<u64> = found.into_iter().map(AtomicU64::into_inner).collect();
        assert_eq!(found, [1, 2, 2]);
        let measured = watched.measured(&RecallStatistics::promised(0.9), &found);
        let [pair, left, right] =
            [measured.pair, measured.per_vector, measured.per_right_vector].map(|of| of.unwrap().estimate);
        assert!((pair - 2.0 / 3.0).abs() < 1e-12, "what a whole set knows for certain, the second before the first");
        assert!((left - 0.75).abs() < 1e-12 && (right - 2.0 / 3.0).abs() < 1e-12, "{left} {right}");
    }

    #[test]
    fn measured_recall_keeps_the_certified_lower_bound() {
        let watched = watched((0..1000).map(|row| (row, 4)).collect());
        let certified = Some(Interval { estimate: 0.95, low: 0.91, high: 1.0 });
        let told = RecallStatistics { pair: certified, per_vector: certified, ..RecallStatistics::promised(0.9) };
        let of = |found: u64| watched.measured(&told, &vec![found; 1000]);
        let (all, some) = (of(4), of(3));
        assert_eq!(all.pair, Some(Interval { estimate: 1.0, low: 0.91, high: 1.0 }));
        assert!(all.kept && all.per_vector.unwrap().low == 0.91);
        let per_vector = some.per_vector.unwrap();
        assert!(
            per_vector.estimate == 0.75 && per_vector.high < 0.8 && !some.kept,
            "the join misses what was certified"
        );
    }

    #[test]
    fn a_recall_measured_on_all_vectors_is_exact() {
        let vectors = WatchedVectors { vectors: (0..100).map(|row| (row, 2)).collect(), whole: true, seed: 1 };
        let watched = Watched::new(&Context::default(), vec![vectors], 0).unwrap();
        let told = RecallStatistics { kept: false, ..RecallStatistics::promised(0.5) };
        for (found, kept) in [(1, true), (0, false)] {
            let measured = watched.measured(&told, &[found; 100]);
            let certain = Interval { estimate: found as f64 / 2.0, low: found as f64 / 2.0, high: found as f64 / 2.0 };
            assert_eq!((measured.pair, measured.kept), (Some(certain), kept));
        }
    }
}
