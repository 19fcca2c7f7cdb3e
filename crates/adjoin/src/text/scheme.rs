//! Schemes that compute the keys of a text. Only texts with a common key are compared.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::random::Random;

/// Maximum number of hash functions. More of them take longer than an exact search in most sets.
const HASHES_MAX: usize = 1_024;
/// Number of counters of [`ShingleCounts`]. They take 4 MiB, whatever the memory budget is, since the keys of an exact
/// search depend on them.
const COUNTERS: usize = 1 << 20;

/// Costs that decide which bands are the cheapest, in nanoseconds: of a hash function for one shingle, of looking up a
/// key, and of comparing two texts.
const HASH_COST: f64 = 0.5;
const LOOKUP_COST: f64 = 100.0;
const COMPARISON_COST: f64 = 500.0;
/// Number of shingles of a text, and fraction of the other texts that have half of the least similarity, as assumed for
/// the costs.
const SHINGLES_LIKELY: f64 = 100.0;
const HALF_SIMILAR_SHARE: f64 = 1e-4;

/// Scheme that computes keys.
pub(crate) enum Scheme {
    /// A key is a hash of some minima of hash functions (MinHash). Two texts with similarity `s` have a common key with
    /// the probability `1 - (1 - s^rows)^bands`.
    Bands(Bands),
    /// The keys are the shingles at the start of a global order (prefix filter). Two texts that reach the threshold
    /// always have a common key.
    Prefixes(Prefixes),
}

/// Facts about a scheme, for statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SchemeFacts {
    pub(crate) name: &'static str,
    /// Numbers of bands and of hash functions per band.
    pub(crate) bands: Option<[u64; 2]>,
    /// Probability that two texts at the threshold are compared.
    pub(crate) recall: f64,
}

impl Scheme {
    /// Chooses the bands for a recall below 1, and the exact scheme if its keys are at most `patience` times as many.
    ///
    /// # Errors
    /// If too many hash functions would be necessary for the recall.
    pub(crate) fn choose(
        min_jaccard: f64,
        recall: f64,
        patience: f64,
        counts: ShingleCounts,
        seed: u64,
    ) -> Result<Self> {
        let exact = recall >= 1.0;
        let shape = if exact { None } else { Shape::cheapest(min_jaccard, recall, counts.texts) };
        match shape {
            None if !exact => {
                let least = message![
                    Argument::MinJaccard.with(min_jaccard),
                    " is too low for approximate comparisons; give ",
                    Argument::Exact
                ];
                Err(Error::option(least))
            }
            Some(shape) if counts.prefixes as f64 > patience * (shape.bands as u64 * counts.texts) as f64 => {
                Ok(Self::Bands(Bands::new(shape, min_jaccard, seed)))
            }
            _ => Ok(Self::Prefixes(Prefixes { min_jaccard, counters: counts.counters })),
        }
    }

    /// Returns facts for statistics.
    pub(crate) fn facts(&self) -> SchemeFacts {
        match self {
            Self::Bands(Bands { shape, min_jaccard, .. }) => SchemeFacts {
                name: "minhash",
                bands: Some([shape.bands, shape.rows].map(|count| count as u64)),
                recall: shape.chance(*min_jaccard),
            },
            Self::Prefixes(_) => SchemeFacts { name: "prefix", bands: None, recall: 1.0 },
        }
    }

    /// Returns the maximum number of keys of a text with `shingles` shingles.
    pub(crate) fn keys_max(&self, shingles: usize) -> usize {
        match self {
            Self::Bands(bands) => bands.shape.bands,
            Self::Prefixes(prefixes) => prefix_length(shingles, prefixes.min_jaccard),
        }
    }

    /// Returns the keys of a set, which must not be empty.
    pub(crate) fn keys(&self, set: &[u64]) -> Vec<u32> {
        match self {
            Self::Bands(bands) => bands.keys(set),
            Self::Prefixes(prefixes) => prefixes.keys(set),
        }
    }
}

/// Numbers of bands, and of hash functions per band.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    bands: usize,
    rows: usize,
}

impl Shape {
    /// Returns the cheapest shape with which two texts at the threshold have a common key with a probability of at
    /// least `recall`. Returns `None` if each shape needs too many hash functions.
    fn cheapest(min_jaccard: f64, recall: f64, texts: u64) -> Option<Self> {
        let shapes = (1..=HASHES_MAX).map_while(|rows| {
            let missed = 1.0 - min_jaccard.powi(rows as i32);
            let bands = ((1.0 - recall).ln() / missed.ln()).ceil().clamp(1.0, f64::from(u32::MAX)) as usize;
            // The logarithms are rounded, so that one band may be missing.
            let shape = Self { bands, rows };
            let shape = if shape.chance(min_jaccard) < recall { Self { bands: bands + 1, rows } } else { shape };
            (shape.bands.saturating_mul(rows) <= HASHES_MAX).then_some(shape)
        });
        shapes.min_by(|a, b| a.cost(min_jaccard, texts).total_cmp(&b.cost(min_jaccard, texts)))
    }

    /// Returns the probability that two texts with this similarity have a common key.
    fn chance(&self, similarity: f64) -> f64 {
        1.0 - (1.0 - similarity.powi(self.rows as i32)).powi(self.bands as i32)
    }

    /// Returns the likely cost of a text, in nanoseconds.
    fn cost(&self, min_jaccard: f64, texts: u64) -> f64 {
        let compared = self.chance(min_jaccard / 2.0) * HALF_SIMILAR_SHARE * texts as f64;
        let hashes = (self.bands * self.rows) as f64;
        HASH_COST * SHINGLES_LIKELY * hashes + LOOKUP_COST * self.bands as f64 + COMPARISON_COST * compared
    }
}

/// Hash functions in bands.
pub(crate) struct Bands {
    shape: Shape,
    min_jaccard: f64,
    /// Parameters of each hash function.
    masks: Vec<u32>,
    factors: Vec<u32>,
}

impl Bands {
    fn new(shape: Shape, min_jaccard: f64, seed: u64) -> Self {
        let mut random = Random::new(seed, "minhash");
        let mut numbers = || (0..shape.bands * shape.rows).map(|_| random.below(1 << 32) as u32).collect::<Vec<_>>();
        let (masks, factors) = (numbers(), numbers());
        // A product with an odd number is a permutation.
        Self { shape, min_jaccard, masks, factors: factors.iter().map(|factor| factor | 1).collect() }
    }

    fn keys(&self, set: &[u64]) -> Vec<u32> {
        let mut minima = vec![u32::MAX; self.masks.len()];
        for shingle in set {
            let shingle = (shingle ^ shingle >> 32) as u32;
            for ((least, mask), factor) in minima.iter_mut().zip(&self.masks).zip(&self.factors) {
                let mixed = (shingle ^ mask).wrapping_mul(*factor);
                *least = (*least).min(mixed ^ mixed >> 15);
            }
        }
        let bands = minima.chunks_exact(self.shape.rows).enumerate();
        let key = |(band, minima): (usize, &[u32])| {
            let bytes: Vec<u8> = minima.iter().flat_map(|least| least.to_le_bytes()).collect();
            (xxh3_64_with_seed(&bytes, band as u64) >> 32) as u32
        };
        bands.map(key).collect()
    }
}

/// Order of shingles for exact searches: rare ones are first.
pub(crate) struct Prefixes {
    min_jaccard: f64,
    counters: Vec<u32>,
}

impl Prefixes {
    fn keys(&self, set: &[u64]) -> Vec<u32> {
        let mut ordered: Vec<(u32, u64)> = set.iter().map(|&hash| (self.counters[counter_of(hash)], hash)).collect();
        ordered.sort_unstable();
        ordered.truncate(prefix_length(set.len(), self.min_jaccard));
        ordered.into_iter().map(|(_, hash)| (hash >> 32) as u32).collect()
    }
}

/// Returns the number of first shingles of a set of which any similar set has one. A similar set has at least
/// `min_jaccard` times the elements, so it cannot lack more of them.
fn prefix_length(shingles: usize, min_jaccard: f64) -> usize {
    let mut common = (shingles as f64 * min_jaccard) as usize;
    // The product is rounded, so the number is corrected by the division that defines the similarity.
    while common > 0 && (common - 1) as f64 / shingles as f64 >= min_jaccard {
        common -= 1;
    }
    while (common as f64 / shingles as f64) < min_jaccard {
        common += 1;
    }
    shingles - common + 1
}

fn counter_of(hash: u64) -> usize {
    hash as usize % COUNTERS
}

/// Statistics of all sets, by which a scheme is chosen.
pub(crate) struct ShingleCounts {
    min_jaccard: f64,
    /// Numbers of texts with a shingle. Several shingles may share a counter.
    counters: Vec<u32>,
    /// Number of texts that have shingles.
    pub(crate) texts: u64,
    /// Number of keys of the exact scheme.
    prefixes: u64,
}

impl ShingleCounts {
    /// Creates the counts of no sets.
    pub(crate) fn new(min_jaccard: f64) -> Self {
        Self { min_jaccard, counters: vec![0; COUNTERS], texts: 0, prefixes: 0 }
    }

    /// Returns the memory for the counts, in bytes.
    pub(crate) fn memory_bytes() -> u64 {
        (COUNTERS * size_of::<u32>()) as u64
    }

    /// Adds a set, which must not be empty.
    pub(crate) fn add(&mut self, set: &[u64]) {
        self.texts += 1;
        self.prefixes += prefix_length(set.len(), self.min_jaccard) as u64;
        for &hash in set {
            let counter = &mut self.counters[counter_of(hash)];
            *counter = counter.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_bands_reach_the_recall() {
        for min_jaccard in [0.01, 0.2, 0.5, 0.7, 0.8, 0.95, 1.0] {
            for recall in [0.01, 0.5, 0.9, 0.95, 0.99, 0.999] {
                for texts in [1, 10_000, 1 << 40] {
                    let Some(shape) = Shape::cheapest(min_jaccard, recall, texts) else {
                        assert!(min_jaccard < 0.05, "{min_jaccard} {recall}");
                        continue;
                    };
                    assert!(shape.chance(min_jaccard) >= recall, "{shape:?}: {min_jaccard} {recall}");
                    let fewer = Shape { bands: shape.bands - 1, ..shape };
                    assert!(fewer.chance(min_jaccard) < recall, "{shape:?}: {min_jaccard} {recall}");
                }
            }
        }
        // More texts need bands that fewer dissimilar texts share.
        let [few, many] = [100, 100_000_000].map(|texts| Shape::cheapest(0.8, 0.95, texts).unwrap());
        assert!(few.rows < many.rows, "{few:?} {many:?}");
    }

    #[test]
    fn a_similar_set_cannot_avoid_a_prefix() {
        for min_jaccard in [0.1, 1.0 / 3.0, 0.5, 0.7, 0.8, 0.9, 1.0] {
            for shingles in 1..200usize {
                let common_min = (0..=shingles).find(|&common| common as f64 / shingles as f64 >= min_jaccard).unwrap();
                assert_eq!(prefix_length(shingles, min_jaccard), shingles - common_min + 1, "{shingles} {min_jaccard}");
            }
        }
    }
}
