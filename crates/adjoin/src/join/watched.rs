//! Vectors whose true neighbours are known and that had no part in setting a threshold: how many of their pairs does the
//! join find? What it compares beyond the rule, in whole tiles, is counted with the rest.

use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::Reservation;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::error::Result;
use crate::report::RecallStatistics;
use crate::sink::PairBatch;
use crate::truth::{Recalls, Tally, recalls};

/// Bits of the filter for each row, at least: so many rows that are not watched are told by one look.
const FILTER_BITS: usize = 64;
/// Fibonacci hashing: spreads row numbers, which need not be random.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The vectors, and for each how many neighbours it has.
pub(super) struct Watched {
    vectors: WatchedVectors,
    /// A bit for each hash of a row.
    filter: Vec<u64>,
    _memory: Reservation,
}

/// The same as data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WatchedVectors {
    /// Row and number of neighbours of each.
    pub(super) vectors: Vec<(u64, u64)>,
    /// Whether these are all vectors that have neighbours.
    pub(super) whole: bool,
    pub(super) seed: u64,
}

impl Watched {
    /// Watches vectors.
    pub(super) fn new(context: &Context, mut vectors: WatchedVectors) -> Result<Self> {
        let count = vectors.vectors.len();
        let bits = (count * FILTER_BITS).next_power_of_two().max(64);
        // 8 more for what is found.
        let memory = context.reserve((count * (16 + 8) + bits / 8) as u64, "measuring the recall")?;
        vectors.vectors.sort_unstable();
        let mut watched = Self { vectors, filter: vec![0; bits / 64], _memory: memory };
        for at in 0..count {
            let (word, bit) = watched.hash(watched.vectors.vectors[at].0);
            watched.filter[word] |= bit;
        }
        Ok(watched)
    }

    /// The vectors that are watched.
    pub(super) fn vectors(&self) -> &WatchedVectors {
        &self.vectors
    }

    /// Where the filter has its bit for a row.
    fn hash(&self, row: u64) -> (usize, u64) {
        let hash = row.wrapping_mul(SPREAD) >> 32;
        (hash as usize >> 6 & (self.filter.len() - 1), 1 << (hash & 63))
    }

    /// Nothing found yet.
    pub(super) fn found(&self) -> Vec<AtomicU64> {
        self.vectors.vectors.iter().map(|_| AtomicU64::new(0)).collect()
    }

    /// Where a row is among the watched ones.
    pub(super) fn position(&self, row: u64) -> Option<usize> {
        let (word, bit) = self.hash(row);
        if self.filter[word] & bit == 0 {
            return None;
        }
        self.vectors.vectors.binary_search_by_key(&row, |&(row, _)| row).ok()
    }

    /// Counts the pairs of watched vectors.
    pub(super) fn count(&self, batch: &PairBatch, found: &[AtomicU64]) {
        for at in batch.left_rows.iter().chain(&batch.right_rows).filter_map(|&row| self.position(row)) {
            found[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The recall reached, given the pairs found of each. Whether the promise was kept stays as it was told: the interval
    /// of these vectors is for reading, and at 95 % confidence it would belie one true promise in forty.
    pub(super) fn measured(&self, told: &RecallStatistics, found: &[u64]) -> RecallStatistics {
        let WatchedVectors { vectors, whole, seed } = &self.vectors;
        let tally = |(&(_, neighbours), &found): (&(u64, u64), &u64)| Tally {
            neighbours: neighbours as f64,
            found: found as f64,
        };
        let tallies: Vec<Tally> = vectors.iter().zip(found).map(tally).collect();
        let Recalls { pair, per_vector } = recalls(&tallies, *whole, *seed);
        RecallStatistics { pair: Some(pair), per_vector: Some(per_vector), ..told.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::IdKind;

    fn watched(vectors: Vec<(u64, u64)>) -> Watched {
        Watched::new(&Context::default(), WatchedVectors { vectors, whole: false, seed: 1 }).unwrap()
    }

    #[test]
    fn pairs_of_watched_vectors_are_counted_and_no_others() {
        let mut random = crate::random::Random::new(1, "watched");
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
    fn the_recall_is_that_of_the_pairs_found() {
        let watched = watched((0..1000).map(|row| (row, 4)).collect());
        let told = RecallStatistics::proved_of_pairs(0.9);
        let of = |found: u64| watched.measured(&told, &vec![found; 1000]);
        let (all, some) = (of(4).pair.unwrap(), of(3).per_vector.unwrap());
        assert!(all.estimate == 1.0 && all.low < 1.0 && of(4).kept);
        assert!(some.estimate == 0.75 && some.high < 0.8);
    }
}
