//! The sampled pairs that are farthest from each other within a threshold.

/// Number of pairs per threshold.
const PAIRS: usize = 2;
/// Bytes of the pairs of a threshold.
pub(super) const PAIRS_BYTES: u64 = size_of::<FarthestPairs>() as u64;

/// A pair of usable rows, by their positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NearPair {
    pub(super) places: [u64; 2],
    pub(super) value: f32,
    /// Larger for pairs that are farther from each other.
    farness: f32,
}

impl NearPair {
    pub(super) fn new(a: u64, b: u64, value: f32, farness: f32) -> Self {
        Self { places: [a.min(b), a.max(b)], value, farness }
    }

    /// Returns whether this pair is a better example than `other`. The order is total, so that the examples do not
    /// depend on the order in which pairs are found.
    fn precedes(&self, other: &Self) -> bool {
        let by_farness = other.farness.total_cmp(&self.farness);
        by_farness.then_with(|| self.places.cmp(&other.places)).is_lt()
    }
}

/// The pairs that are farthest from each other, at most [`PAIRS`].
#[derive(Debug, Clone, Default)]
pub(super) struct FarthestPairs([Option<NearPair>; PAIRS]);

impl FarthestPairs {
    /// Adds a pair, unless it is known or the farthest pairs are farther.
    pub(super) fn add(&mut self, pair: NearPair) {
        if self.pairs().any(|known| known.places == pair.places) {
            return;
        }
        let mut next = Some(pair);
        for known in &mut self.0 {
            if let Some(pair) = next
                && known.is_none_or(|known| pair.precedes(&known))
            {
                next = known.replace(pair);
            }
        }
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = NearPair> {
        self.0.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farthest_pairs_do_not_depend_on_the_order_in_which_they_are_found() {
        let pairs = [(3, 1, 0.5), (1, 3, 0.5), (4, 5, 0.25), (0, 9, 0.5), (2, 7, 0.125)];
        let pairs = pairs.map(|(a, b, value)| NearPair::new(a, b, value, value));
        for first in 0..pairs.len() {
            let mut farthest = FarthestPairs::default();
            (0..pairs.len()).for_each(|k| farthest.add(pairs[(first + k) % pairs.len()]));
            let places: Vec<[u64; 2]> = farthest.pairs().map(|pair| pair.places).collect();
            assert_eq!(places, [[0, 9], [1, 3]], "from pair {first} on");
        }
    }
}
