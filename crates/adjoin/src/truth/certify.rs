//! Certification: finds the threshold at which a rule reaches a recall with 95 % confidence, for any data, no matter
//! how the rows outside the sample are distributed.
//!
//! A bootstrap reflects only the sampled rows. If few rows have many of the missed pairs, most samples contain none
//! of these rows, and a bootstrap promises too much. The tests here bound the number of pairs that such rows can
//! hide. Each test is an e-value: the capital of a gambler who bets on every sampled row against the hypothesis "the
//! mean is at most m". If the hypothesis is true, the capital reaches 1 / alpha with a probability of at most alpha
//! (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2024). The test needs a lower
//! bound on the numbers, but no upper bound. It is valid for samples without replacement.

use super::calibrate::Tally;
use super::poisson::most_mean;

/// Probability that a certified threshold misses its target.
pub(crate) const ALPHA: f64 = 0.05;
/// Number of samples that may be tested, of which the second is larger. Each test gets an equal part of [`ALPHA`].
pub(crate) const TESTS: u32 = 2;
/// Number of bets of one e-value. Each bet is half of the previous one, since the best bet is not known in advance.
const BETS: usize = 6;
/// Fraction of the alpha of a test that is used for the bound on the number of rows with many missed pairs.
const TAIL_PART: f64 = 0.2;
/// Maximum number of thresholds to test.
const THRESHOLDS_MAX: usize = 200;
/// Number of rows of the first sample, which estimates the number of neighbors per row. Each further step has a quarter
/// more rows, so that several targets can share samples.
pub const ROWS_MIN: u64 = 2_000;
/// Number of steps between the samples of the two tests of a target.
const STEPS_BETWEEN_TESTS: u32 = 4;
/// Number of bisection steps for a certified bound.
const BOUND_STEPS: u32 = 12;

/// Capital of bets against the hypothesis "the mean is at most `mean`", for numbers that are at least `least`.
struct EValue {
    bets: [f64; BETS],
    capital: [f64; BETS],
    logarithms: [f64; BETS],
    mean: f64,
}

impl EValue {
    fn new(least: f64, mean: f64) -> Self {
        // A bet of 1 / (mean - least) could lose all capital at a single number. The factor 0.99 prevents that.
        let bets = std::array::from_fn(|k| 0.99 / (mean - least) / f64::from(1u32 << k));
        Self { bets, capital: [1.0; BETS], logarithms: [0.0; BETS], mean }
    }

    fn add(&mut self, number: f64) {
        for ((bet, capital), logarithm) in self.bets.iter().zip(&mut self.capital).zip(&mut self.logarithms) {
            *capital *= 1.0 + bet * (number - self.mean);
            // The product over many rows would overflow, and a logarithm per row would be slow. So the logarithm is
            // taken only when the product becomes very large or very small.
            if !(1e-100..1e100).contains(capital) {
                *logarithm += capital.ln();
                *capital = 1.0;
            }
        }
    }

    /// Adds `count` zeros.
    fn add_zeros(&mut self, count: u64) {
        let mean = self.mean;
        let bets = self.bets.iter().zip(&mut self.logarithms);
        bets.for_each(|(bet, logarithm)| *logarithm += count as f64 * (-bet * mean).ln_1p());
    }

    /// Returns whether the hypothesis is rejected at the level `alpha`.
    fn refutes(&self, alpha: f64) -> bool {
        let of = |k: usize| self.logarithms[k] + self.capital[k].ln();
        // The mean of several e-values is an e-value. The largest is factored out, so that the sum does not overflow.
        let most = (0..BETS).map(of).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = (0..BETS).map(|k| (of(k) - most).exp()).sum();
        most + (sum / BETS as f64).ln() >= -alpha.ln()
    }
}

/// A sampled row that has neighbors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DrawnRow {
    /// Number of neighbors of the row.
    pub(crate) neighbors: u64,
    /// End of its recorded neighbors in [`RowSample::thresholds`].
    pub(crate) end: u32,
}

/// Sampled rows, and the least threshold that finds each recorded neighbor.
#[derive(Debug, Clone, Default)]
pub struct RowSample {
    /// Whether the sample has all rows and all their neighbors, so that recalls are exact.
    pub(crate) whole: bool,
    /// The rows that have neighbors.
    pub(crate) rows: Vec<DrawnRow>,
    /// For each recorded neighbor, the least threshold that finds it.
    pub(crate) thresholds: Vec<f32>,
}

/// Number of neighbors of a row that a threshold finds, and number that it misses.
#[derive(Clone, Copy)]
struct RowRecall {
    found: f64,
    missed: f64,
}

impl RowSample {
    /// Creates a sample without rows. `whole` means that all rows will be added, with all neighbors.
    pub fn new(whole: bool) -> Self {
        Self { whole, ..Self::default() }
    }

    /// Adds a row with its number of neighbors, and the thresholds of its recorded neighbors.
    pub fn push(&mut self, neighbors: u64, thresholds: impl IntoIterator<Item = f32>) {
        self.thresholds.extend(thresholds);
        self.rows.push(DrawnRow { neighbors, end: self.thresholds.len() as u32 });
    }

    fn noted(&self, row: usize) -> std::ops::Range<usize> {
        let start = if row == 0 { 0 } else { self.rows[row - 1].end };
        start as usize..self.rows[row].end as usize
    }

    /// Returns, for each row, the numbers of neighbors that a threshold finds and misses. They are extrapolated from
    /// the recorded neighbors.
    fn recalls(&self, threshold: f64) -> impl Iterator<Item = RowRecall> {
        self.rows.iter().enumerate().map(move |(row, &DrawnRow { neighbors, .. })| {
            let noted = &self.thresholds[self.noted(row)];
            let missed = noted.iter().filter(|&&least| f64::from(least) > threshold).count();
            let missed = missed as f64 * neighbors as f64 / noted.len().max(1) as f64;
            RowRecall { found: neighbors as f64 - missed, missed }
        })
    }

    /// Returns a lower bound on the mean recall per row at a threshold. It is wrong with a probability of at most
    /// `alpha`.
    pub(crate) fn least_recall(&self, threshold: f64, alpha: f64) -> f64 {
        largest(|recall| self.certifies_rows(threshold, recall, alpha))
    }

    /// Returns the tally of each row for a threshold.
    pub(crate) fn tallies(&self, threshold: f64) -> Vec<Tally> {
        let tally = |RowRecall { found, missed }| Tally { neighbors: found + missed, found };
        self.recalls(threshold).map(tally).collect()
    }

    /// Returns whether the mean recall of rows with neighbors is at least `target`.
    fn certifies_rows(&self, threshold: f64, target: f64, alpha: f64) -> bool {
        let shares = self.recalls(threshold).map(|RowRecall { found, missed }| found / (found + missed));
        if self.whole {
            // The tolerance allows for rounding errors in sums of many fractions.
            return shares.sum::<f64>() >= target * self.rows.len() as f64 * (1.0 - 1e-9);
        }
        // Each number is the recall of a row minus the target, so it is at least -target. The hypothesis is that the
        // mean is at most 0.
        let mut e_value = EValue::new(-target, 0.0);
        shares.for_each(|share| e_value.add(share - target));
        e_value.refutes(alpha)
    }
}

/// Sampled rows from which the recall of pairs is estimated. Each pair must be a neighbor of both of its rows.
#[derive(Debug, Clone, Default)]
pub struct PairSample {
    /// The sampled rows.
    pub sample: RowSample,
    /// For each recorded neighbor, a number that identifies its row; it is below `partner_count`.
    pub partners: Vec<u32>,
    /// Number of distinct rows that are recorded neighbors.
    pub partner_count: usize,
    /// Number of rows from which the sample was drawn, at a uniform rate.
    pub population: u64,
    /// Number of sampled rows, with and without neighbors.
    pub drawn: u64,
}

impl PairSample {
    /// Returns the mean number of neighbors per row.
    fn mean_neighbors(&self) -> f64 {
        let neighbors: u64 = self.sample.rows.iter().map(|row| row.neighbors).sum();
        neighbors as f64 / self.drawn.max(1) as f64
    }

    /// Returns the limit `many`: a row that misses more pairs than this counts as a row with many missed pairs.
    fn many(&self, target: f64, alpha: f64) -> f64 {
        let missable = (1.0 - target) * self.drawn as f64 * self.mean_neighbors();
        (missable / (24.0 * target * (BETS as f64 / alpha).ln())).max(1.0)
    }

    /// Returns whether a threshold finds at least `target` of all pairs.
    ///
    /// The e-value needs numbers with a lower bound, so rows that miss more than `many` pairs are left out. Let
    /// `unseen` be an upper bound on the number of such rows in the population. At most `unseen * (unseen - 1) / 2`
    /// missed pairs are between two of them. Every other missed pair of such a row is also missed by a row that is
    /// not left out. There it counts twice, once for each of its rows. It is unknown which rows of the population are
    /// left out, so the rows that are missed most often as neighbors are assumed to be.
    fn certifies_pairs(&self, threshold: f64, target: f64, many: f64, alpha: f64) -> bool {
        let recalls: Vec<RowRecall> = self.sample.recalls(threshold).collect();
        if self.sample.whole {
            let [found, missed] = [|of: &RowRecall| of.found, |of: &RowRecall| of.missed]
                .map(|part: fn(&RowRecall) -> f64| recalls.iter().map(part).sum::<f64>());
            return found >= target * (found + missed) * (1.0 - 1e-9);
        }
        let seen = recalls.iter().filter(|row| row.missed > many).count();
        let share = most_mean(seen as u32, TAIL_PART * alpha) / self.drawn.max(1) as f64;
        let unseen = (share * self.population as f64).floor().min(self.population as f64);
        let hidden = target * unseen * (unseen - 1.0).max(0.0) / self.population as f64;
        let is_hub = self.missed_most(threshold, unseen as usize);
        // A row that is not left out misses at most `many` pairs, and each missed pair counts at most twice.
        let mut e_value = EValue::new(-2.0 * target * many, hidden);
        let mut counted = 0;
        for (row, &RowRecall { found, missed }) in recalls.iter().enumerate().filter(|(_, row)| row.missed <= many) {
            let noted = self.sample.noted(row);
            let weight = (found + missed) / noted.len().max(1) as f64;
            let with_hubs = match missed > 0.0 {
                true => noted.filter(|&at| self.is_missed(at, threshold) && is_hub[self.partners[at] as usize]).count(),
                false => 0,
            };
            e_value.add((1.0 - target) * found - target * (missed + weight * with_hubs as f64));
            counted += 1;
        }
        // Rows without pairs and rows that were left out add 0.
        e_value.add_zeros(self.drawn - counted);
        // The rest of alpha is used for the bound `unseen`.
        e_value.refutes((1.0 - TAIL_PART) * alpha)
    }

    fn is_missed(&self, noted: usize, threshold: f64) -> bool {
        f64::from(self.sample.thresholds[noted]) > threshold
    }

    /// Selects the `count` rows that are missed most often as neighbors.
    fn missed_most(&self, threshold: f64, count: usize) -> Vec<bool> {
        let mut times = vec![0u32; self.partner_count];
        let missed = (0..self.partners.len()).filter(|&at| self.is_missed(at, threshold));
        missed.for_each(|at| times[self.partners[at] as usize] += 1);
        if count >= times.len() {
            return vec![true; times.len()];
        }
        let mut order: Vec<u32> = (0..times.len() as u32).collect();
        let mut is_hub = vec![false; times.len()];
        if count > 0 {
            // Ties are broken by row number, so that the choice does not depend on the selection algorithm.
            let by_times = |&partner: &u32| (std::cmp::Reverse(times[partner as usize]), partner);
            order.select_nth_unstable_by_key(count - 1, by_times);
            order[..count].iter().for_each(|&partner| is_hub[partner as usize] = true);
        }
        is_hub
    }
}

/// Returns how many rows to sample from a population with `neighbors` neighbors per row on average. With this number,
/// the bound on unseen rows with many missed pairs has little effect on the certified recall.
pub fn rows_to_draw(population: u64, neighbors: f64, target: f64) -> u64 {
    let odds = target / (1.0 - target).max(1e-9);
    let rows = 8.2 * (2.0 * population as f64 * odds / neighbors.max(1e-9)).sqrt();
    (rows.ceil() as u64).max(ROWS_MIN)
}

/// Returns the number of rows of the sample of a step.
pub(crate) fn rows_of_step(step: u32) -> u64 {
    (0..step).fold(ROWS_MIN, |rows, _| rows.saturating_add(rows / 4))
}

/// Returns the steps at which to test a target that needs a sample of `rows` rows.
pub(crate) fn steps_to_test(rows: u64) -> [u32; TESTS as usize] {
    let first = (0..).find(|&step| rows_of_step(step) >= rows).expect("steps grow without end");
    [first, first + STEPS_BETWEEN_TESTS]
}

/// Samples of one join: one for each set of rows whose recall is promised, and one for all pairs.
#[derive(Debug, Clone, Default)]
pub struct Certification {
    /// Whether a target is for all pairs only, and not for the mean over rows.
    pub of_pairs_only: bool,
    /// The rows of each set.
    pub sets: Vec<RowSample>,
    /// The rows from which the recall of all pairs is estimated.
    pub pairs: PairSample,
}

impl Certification {
    /// Returns the level of one test.
    fn alpha() -> f64 {
        ALPHA / f64::from(TESTS)
    }

    /// Returns whether a threshold reaches the target in all samples.
    pub(crate) fn certifies(&self, threshold: f64, target: f64) -> bool {
        let alpha = Self::alpha();
        let many = self.pairs.many(target, alpha);
        (self.of_pairs_only || self.sets.iter().all(|set| set.certifies_rows(threshold, target, alpha)))
            && self.pairs.certifies_pairs(threshold, target, many, alpha)
    }

    /// Returns the least threshold up to `most` that is certified to reach the target. Returns `None` if the samples
    /// support no threshold.
    ///
    /// Thresholds are tested from the largest downward, until one fails its test. So an insufficient threshold is
    /// returned only if the largest insufficient threshold passes its test. Therefore one sample can both choose and
    /// certify a threshold, without a correction for the number of tests.
    pub fn least_threshold(&self, target: f64, most: f64) -> Option<f64> {
        let all = self.thresholds(most);
        if self.is_whole() {
            // Recalls are exact, and grow with the threshold, so the least threshold is found by bisection.
            let least = all.partition_point(|&threshold| !self.certifies(threshold, target));
            return all.get(least).copied();
        }
        tested(&all).take_while(|&&threshold| self.certifies(threshold, target)).last().copied()
    }

    /// Returns the smallest threshold that finds every neighbor that can be found; negative infinity if there is
    /// none.
    pub(crate) fn largest_threshold(&self) -> f64 {
        self.thresholds(f64::INFINITY).last().copied().unwrap_or(f64::NEG_INFINITY)
    }

    /// Returns whether all samples have all rows, so that recalls are exact.
    pub(crate) fn is_whole(&self) -> bool {
        self.pairs.sample.whole && self.sets.iter().all(|set| set.whole)
    }

    /// Returns the distinct thresholds of neighbors up to `most`, ascending.
    fn thresholds(&self, most: f64) -> Vec<f64> {
        let samples = self.sets.iter().chain(std::iter::once(&self.pairs.sample));
        let all = thresholds_to_test(samples, most);
        if all.is_empty() && self.is_whole() {
            return vec![f64::NEG_INFINITY]; // there are no pairs
        }
        all
    }

    /// Returns the certified lower bound on the recall of pairs at a threshold.
    pub(crate) fn least_pair_recall(&self, threshold: f64, target: f64) -> f64 {
        let alpha = Self::alpha();
        let many = self.pairs.many(target, alpha);
        largest(|recall| self.pairs.certifies_pairs(threshold, recall, many, alpha))
    }

    /// Returns, for each set, the certified lower bound on the mean recall of its rows at a threshold.
    pub(crate) fn least_row_recalls(&self, threshold: f64) -> Vec<f64> {
        self.sets.iter().map(|set| set.least_recall(threshold, Self::alpha())).collect()
    }
}

/// Returns the distinct thresholds of neighbors up to `most`, ascending.
fn thresholds_to_test<'a>(samples: impl Iterator<Item = &'a RowSample>, most: f64) -> Vec<f64> {
    let mut all: Vec<f32> = samples.flat_map(|sample| &sample.thresholds).copied().collect();
    all.retain(|&threshold| f64::from(threshold) <= most && threshold < f32::INFINITY);
    all.sort_unstable_by(f32::total_cmp);
    all.dedup();
    all.into_iter().map(f64::from).collect()
}

/// Selects at most [`THRESHOLDS_MAX`] of the thresholds, largest first.
fn tested(all: &[f64]) -> impl Iterator<Item = &f64> {
    let (count, steps) = (all.len(), all.len().min(THRESHOLDS_MAX));
    (0..steps).rev().map(move |k| &all[if steps < count { k * (count - 1) / (steps - 1) } else { k }])
}

/// Returns the largest recall for which `holds` is true, by bisection.
fn largest(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..BOUND_STEPS {
        let middle = (low + high) / 2.0;
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}
