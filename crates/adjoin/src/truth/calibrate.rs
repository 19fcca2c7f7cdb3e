//! Computes the threshold of a rule, and bounds on its recall, from sampled vectors with known true neighbors.
//!
//! Both the recall of pairs and the mean recall of vectors are considered. If most pairs are in dense regions, a rule
//! may find nearly all pairs, and still miss the only neighbor of most other vectors. The sample consists of random
//! vectors, so a replicate of the bootstrap resamples vectors, not pairs. Pairs of one vector tend to be found or
//! missed together; if they were treated as independent, the bounds would be too narrow.

use super::poisson::{least_mean, most_mean, weight};
use crate::base::random::Random;
use crate::base::report::Interval;

/// Number of replicates of the bootstrap.
const REPLICATES: usize = 200;
/// Number of replicates that may miss the target. It corresponds to a one-sided confidence of 97 % instead of 95 %,
/// because the tail of a bootstrap is too short if the sample is skewed.
const REPLICATES_MISSING: usize = 6;
/// Probability of each tail of a printed interval.
const TAIL: f64 = 0.025;
/// If fewer vectors than this miss neighbors, there is too little data for a bootstrap.
const MISSES_MIN: f64 = 20.0;

/// Sampled vectors with neighbors, and the rule threshold at which each neighbor is found.
#[derive(Debug, Clone, Default)]
pub struct NeighborSample {
    /// Number of sampled vectors, with and without neighbors.
    pub vectors: u64,
    /// Whether the sample has all vectors, so that recalls are exact.
    pub whole: bool,
    /// For each vector that has neighbors, the number of its true neighbors, and the end of its recorded neighbors in
    /// `pair_ts`.
    pub neighbors: Vec<(u64, u32)>,
    /// For each recorded neighbor, the least threshold that finds it. All neighbors of a vector are recorded, or a
    /// random sample of them.
    pub pair_ts: Vec<f32>,
}

/// Recorded neighbors of one vector that are found at the same threshold. Searches of indexes have few different
/// thresholds, the lengths of their lists, so steps are much fewer than neighbors.
#[derive(Debug, Clone, Copy)]
struct Step {
    threshold: f32,
    vector: u32,
    /// Number of these neighbors.
    noted: u32,
}

/// Pair recall and per-vector recall.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recalls {
    /// Fraction of all pairs.
    pub pair: Interval,
    /// Mean fraction of a vector's neighbors, over vectors that have any.
    pub per_vector: Interval,
}

/// Number of neighbors of a vector, and number of them that are found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tally {
    /// All neighbors.
    pub neighbors: f64,
    /// Neighbors found, or their expected number.
    pub found: f64,
}

impl NeighborSample {
    /// Returns the number of pairs of the sampled vectors.
    pub fn pairs(&self) -> u64 {
        self.neighbors.iter().map(|&(neighbors, _)| neighbors).sum()
    }

    /// Returns the smallest threshold that finds every neighbor that can be found.
    pub fn largest_threshold(&self) -> f64 {
        let finite = self.pair_ts.iter().copied().filter(|threshold| *threshold < f32::INFINITY);
        finite.fold(f32::NEG_INFINITY, f32::max).into()
    }

    /// Returns the recall that 95 % of the vectors reach with this threshold.
    pub(crate) fn fifth_percentile(&self, threshold: f64) -> f64 {
        let share = |vector: usize| {
            let noted = self.noted(vector);
            noted.iter().filter(|&&noted| f64::from(noted) <= threshold).count() as f64 / noted.len() as f64
        };
        let mut shares: Vec<f64> = (0..self.neighbors.len()).map(share).collect();
        shares.sort_unstable_by(f64::total_cmp);
        // If no vector has neighbors, none is missed.
        shares.get(shares.len() / 20).copied().unwrap_or(1.0)
    }

    /// Returns the thresholds of the recorded neighbors of a vector. `vector` is its position among the vectors with
    /// neighbors.
    pub(crate) fn noted(&self, vector: usize) -> &[f32] {
        let start = if vector == 0 { 0 } else { self.neighbors[vector - 1].1 };
        &self.pair_ts[start as usize..self.neighbors[vector].1 as usize]
    }

    /// Returns the least threshold at which both recalls are at least `target`, with 95 % confidence. Returns `None`
    /// if the sample does not support any threshold.
    ///
    /// Each replicate includes one additional vector whose neighbors are all missed. It represents kinds of vectors
    /// that the sample does not contain.
    pub fn calibrate(&self, target: f64, seed: u64) -> Option<f64> {
        if self.neighbors.is_empty() {
            return self.whole.then_some(f64::NEG_INFINITY);
        }
        let order = self.steps();
        // If the sample has all vectors, recalls are exact, and no bootstrap is needed.
        if self.whole {
            let ones = vec![1.0; self.neighbors.len()];
            return self.least_threshold(&order, &ones, 0.0, target);
        }
        let mut random = Random::new(seed, "bootstrap");
        let mut weights = vec![0.0; self.neighbors.len()];
        let mut thresholds: Vec<f64> = (0..REPLICATES)
            .map(|_| {
                weights.iter_mut().for_each(|drawn| *drawn = weight(&mut random));
                // Weight of the additional vector.
                let missed = weight(&mut random);
                self.least_threshold(&order, &weights, missed, target).unwrap_or(f64::INFINITY)
            })
            .collect();
        thresholds.sort_unstable_by(f64::total_cmp);
        Some(thresholds[REPLICATES - 1 - REPLICATES_MISSING]).filter(|&t| t < f64::INFINITY)
    }

    /// Returns the bytes of a recorded neighbor while a threshold is chosen.
    pub(crate) fn step_bytes() -> u64 {
        (size_of::<f32>() + size_of::<(f32, u32)>() + size_of::<Step>()) as u64
    }

    /// Returns all recorded neighbors, sorted by threshold, and by vector if thresholds are equal.
    fn steps(&self) -> Vec<Step> {
        let of = |vector: usize| self.noted(vector).iter().map(move |&threshold| (threshold, vector as u32));
        let mut all: Vec<_> = (0..self.neighbors.len()).flat_map(of).collect();
        all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let step = |same: &[(f32, u32)]| Step { threshold: same[0].0, vector: same[0].1, noted: same.len() as u32 };
        all.chunk_by(|a, b| a == b).map(step).collect()
    }

    /// Returns the least threshold at which both recalls reach the target, if vectors have the given weights and the
    /// additional vector has the weight `missed`.
    fn least_threshold(&self, steps: &[Step], weights: &[f64], missed: f64, target: f64) -> Option<f64> {
        let count = self.neighbors.len() as f64;
        let pairs: f64 = self.neighbors.iter().zip(weights).map(|(&(pairs, _), weight)| weight * pairs as f64).sum();
        let vectors: f64 = weights.iter().sum();
        // `missed` is the weight of a fictitious vector, of which nothing is found. It has the mean number of pairs.
        let wanted_pairs = target * (pairs + missed * self.pairs() as f64 / count);
        let wanted_vectors = target * (vectors + missed);
        // The tolerance allows for rounding errors in sums of many fractions.
        let reached = |found: f64, wanted: f64| found >= wanted * (1.0 - 1e-9);
        let (mut found, mut shares) = (0.0, 0.0);
        let mut steps = steps.iter().peekable();
        while let Some(&Step { threshold, vector, noted }) = steps.next() {
            let vector = vector as usize;
            // The recorded neighbors of a vector represent all of its neighbors.
            let share = weights[vector] * f64::from(noted) / self.noted(vector).len() as f64;
            found += share * self.neighbors[vector].0 as f64;
            shares += share;
            // All neighbors with equal thresholds are found together, so the sums are compared only after the last of
            // them.
            let last_of_its_threshold = steps.peek().is_none_or(|next| next.threshold > threshold);
            if last_of_its_threshold && reached(found, wanted_pairs) && reached(shares, wanted_vectors) {
                return Some(threshold.into()).filter(|&t: &f64| t < f64::INFINITY);
            }
        }
        (wanted_pairs == 0.0 && wanted_vectors == 0.0).then_some(f64::NEG_INFINITY)
    }

    /// Returns both recalls of a rule with the given threshold, with 95 % confidence intervals.
    pub fn recalls(&self, threshold: f64, seed: u64) -> Recalls {
        let tally = |vector: usize| {
            let noted = self.noted(vector);
            let found = noted.iter().filter(|&&t| f64::from(t) <= threshold).count() as f64;
            let neighbors = self.neighbors[vector].0 as f64;
            Tally { neighbors, found: neighbors * found / noted.len() as f64 }
        };
        let tallies: Vec<Tally> = (0..self.neighbors.len()).map(tally).collect();
        recalls(&tallies, self.whole, seed)
    }
}

/// Selects a random half of the sampled vectors, which sets a threshold. The other half measures the recall that it
/// reaches.
pub(crate) fn setting_half(count: usize, seed: u64) -> Vec<bool> {
    let mut sets = vec![false; count];
    let half = Random::new(seed, "setting").ascending_sample(count as u64 / 2, count as u64);
    half.iter().for_each(|&vector| sets[vector as usize] = true);
    sets
}

/// Computes both recalls with 95 % confidence intervals, from the sampled vectors that have neighbors. If `whole` is
/// true, these are all vectors that have neighbors, so both recalls are exact.
pub(crate) fn recalls(vectors: &[Tally], whole: bool, seed: u64) -> Recalls {
    let [pair, per_vector] = ratios(vectors, || 1.0);
    if whole {
        let certain = |estimate| Interval { estimate, low: estimate, high: estimate };
        return Recalls { pair: certain(pair), per_vector: certain(per_vector) };
    }
    let mut random = Random::new(seed, "interval");
    let replicate = |_| ratios(vectors, || weight(&mut random));
    let (pairs, shares) = (0..5 * REPLICATES).map(replicate).map(|[pair, per_vector]| (pair, per_vector)).unzip();
    let sum = |of: fn(f64) -> f64| vectors.iter().map(|vector| of(vector.neighbors)).sum::<f64>();
    let squares = sum(|neighbors| neighbors * neighbors);
    // Kish's effective sample size. It is small if a few vectors have most of the pairs.
    let effective = if squares > 0.0 { sum(|neighbors| neighbors).powi(2) / squares } else { 0.0 };
    Recalls { pair: interval(pair, pairs, effective), per_vector: interval(per_vector, shares, vectors.len() as f64) }
}

/// Returns the fraction of all pairs that are found, and the mean fraction per vector. `weigh` returns the weight of
/// the next vector.
fn ratios(vectors: &[Tally], mut weigh: impl FnMut() -> f64) -> [f64; 2] {
    let (mut found, mut pairs, mut shares, mut count) = (0.0, 0.0, 0.0, 0.0);
    for vector in vectors {
        let weight = weigh();
        pairs += weight * vector.neighbors;
        found += weight * vector.found;
        count += weight;
        shares += weight * vector.found / vector.neighbors;
    }
    let ratio = |found: f64, all: f64| if all > 0.0 { found / all } else { 1.0 };
    [ratio(found, pairs), ratio(shares, count)]
}

/// Returns the interval of the replicates. If few neighbors were missed, the interval includes the exact interval for
/// this number of misses among the effective number of vectors. Without misses, that is the rule of three.
fn interval(estimate: f64, mut replicates: Vec<f64>, effective: f64) -> Interval {
    replicates.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| replicates[(share * (replicates.len() - 1) as f64).round() as usize];
    let (mut low, mut high) = (at(TAIL), at(1.0 - TAIL));
    let misses = (1.0 - estimate) * effective;
    if misses < MISSES_MIN {
        low = low.min(1.0 - most_mean(misses.ceil() as u32, TAIL) / effective);
        high = high.max(1.0 - least_mean(misses.floor() as u32, TAIL) / effective);
    }
    // If there are no vectors, the bounds are 0 divided by 0.
    let within = |bound: f64| if bound.is_nan() { 0.0 } else { bound.clamp(0.0, 1.0) };
    Interval { estimate, low: within(low), high: within(high).max(estimate) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a sample of vectors with up to `most` neighbors. Each neighbor is found at a threshold between 0 and 1
    /// that all neighbors of a vector nearly share, so pairs of one vector are found or missed together.
    fn sample(vectors: u64, most: u64, seed: u64) -> NeighborSample {
        let mut random = Random::new(seed, "sample");
        let mut sample = NeighborSample { vectors, ..NeighborSample::default() };
        for _ in 0..vectors {
            let neighbors = random.below(most + 1);
            let of_all = random.uniform();
            sample.pair_ts.extend((0..neighbors).map(|_| (of_all + 0.01 * random.uniform()) as f32));
            if neighbors > 0 {
                sample.neighbors.push((neighbors, sample.pair_ts.len() as u32));
            }
        }
        sample
    }

    /// Returns the smaller of both recalls of a sample that represents the whole population.
    fn truth(all: &NeighborSample, threshold: f64) -> f64 {
        let recalls = NeighborSample { whole: true, ..all.clone() }.recalls(threshold, 1);
        recalls.pair.estimate.min(recalls.per_vector.estimate)
    }

    #[test]
    fn a_complete_sample_gives_the_least_threshold() {
        let all = NeighborSample { whole: true, ..sample(500, 5, 1) };
        for target in [0.3, 0.9, 1.0] {
            let threshold = all.calibrate(target, 1).unwrap();
            assert!(truth(&all, threshold) >= target - 1e-9);
            assert!(truth(&all, threshold - 1e-6) < target);
        }
        assert_eq!(
            NeighborSample { whole: true, ..NeighborSample::default() }.calibrate(0.9, 1),
            Some(f64::NEG_INFINITY)
        );
    }

    #[test]
    fn calibrated_thresholds_reach_the_target_at_the_stated_rate() {
        let all = sample(200_000, 8, 99);
        for target in [0.8, 0.95] {
            let reached = (0..100).filter(|&seed| {
                let threshold = sample(1_500, 8, seed).calibrate(target, seed).unwrap();
                truth(&all, threshold) >= target
            });
            let reached = reached.count();
            assert!(reached >= 93, "{target}: {reached} of 100");
        }
    }

    #[test]
    fn recall_intervals_cover_the_truth_at_the_stated_rate() {
        let all = sample(200_000, 8, 99);
        for threshold in [0.5, 0.9, 0.999] {
            let truth = NeighborSample { whole: true, ..all.clone() }.recalls(threshold, 1);
            let held = (0..100).filter(|&seed| {
                let told = sample(1_000, 8, seed).recalls(threshold, seed);
                let holds = |told: Interval, truth: Interval| (told.low..=told.high).contains(&truth.estimate);
                holds(told.pair, truth.pair) && holds(told.per_vector, truth.per_vector)
            });
            let held = held.count();
            assert!(held >= 88, "{threshold}: {held} of 100");
        }
    }

    #[test]
    fn too_small_samples_give_no_threshold() {
        assert_eq!(NeighborSample { vectors: 1000, ..NeighborSample::default() }.calibrate(0.5, 1), None);
        assert_eq!(sample(100, 3, 1).calibrate(0.99, 1), None);
        assert!(sample(100, 3, 1).calibrate(0.5, 1).is_some());
        let mut unreachable = sample(1000, 3, 1);
        unreachable.pair_ts.iter_mut().step_by(3).for_each(|threshold| *threshold = f32::INFINITY);
        assert_eq!(unreachable.calibrate(0.9, 1), None);
    }

    #[test]
    fn a_small_sample_without_misses_is_not_certain() {
        let recalls = sample(300, 1, 1).recalls(2.0, 1);
        assert_eq!((recalls.pair.estimate, recalls.pair.high), (1.0, 1.0));
        assert!((0.9..0.98).contains(&recalls.pair.low), "{recalls:?}");
    }

    #[test]
    fn sampled_neighbors_represent_all_neighbors() {
        let all =
            NeighborSample { vectors: 2, whole: false, neighbors: vec![(10, 2), (1, 3)], pair_ts: vec![0.0, 1.0, 1.0] };
        let recalls = all.recalls(0.5, 1);
        assert!((recalls.pair.estimate - 5.0 / 11.0).abs() < 1e-12);
        assert!((recalls.per_vector.estimate - 0.25).abs() < 1e-12);
    }
}
