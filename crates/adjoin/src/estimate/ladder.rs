//! The thresholds at which neighbors are counted. They range from the distance of the nearest pairs to a distance at
//! which a vector has many neighbors.

use crate::base::error::Result;
use crate::base::options::Metric;
use crate::base::predicate::Predicate;

/// Maximum number of thresholds, without the requested one. It is limited because a set of rungs is a mask of 128
/// bits.
const RUNGS_MAX: usize = 120;
/// The farthest threshold divided by the nearest one.
const SPAN: f64 = 64.0;
/// Smallest distance under cosine. Nearer thresholds cannot be distinguished, since the computed similarity of equal
/// vectors may differ slightly from 1.
const DISTANCE_MIN_COSINE: f64 = 2e-3;
/// Number of significant digits to which distances are rounded, so that users can type them.
const DIGITS: i32 = 4;
/// Number of digits after the first one in thresholds between two rungs. Similarities are rounded to multiples of 1 /
/// `STEPS_OF_SIMILARITY`.
const DIGITS_BETWEEN: usize = 7;
const STEPS_OF_SIMILARITY: f64 = 1e5;

/// Thresholds from the nearest to the farthest. Each is a rung.
pub(super) struct Ladder {
    rungs: Vec<f64>,
    /// Key of each rung in the f32 precision of results: a distance, or a negated similarity.
    keys: Vec<f32>,
    metric: Metric,
    /// Rung of the requested threshold, if any.
    pub(super) asked: Option<usize>,
}

/// A set of rungs, with one bit for each.
pub(super) type Rungs = u128;

/// Returns the set of `rung` and all later rungs.
pub(super) fn from_rung(rung: u8) -> Rungs {
    Rungs::MAX.checked_shl(rung.into()).unwrap_or(0)
}

/// Returns the set of all rungs before `rung`.
pub(super) fn before_rung(rung: u8) -> Rungs {
    !from_rung(rung)
}

impl Ladder {
    /// Creates a ladder up to pairs at distance `farthest`. Under cosine, this is the distance between vectors scaled
    /// to length 1.
    pub(super) fn new(metric: Metric, farthest: f64, asked: Option<&Predicate>) -> Self {
        let farthest = if metric == Metric::Cosine { farthest.clamp(DISTANCE_MIN_COSINE, 2.0) } else { farthest };
        let at = |k: usize| farthest * SPAN.powf(-(k as f64) / (RUNGS_MAX as f64));
        let mut rungs: Vec<f64> = (0..RUNGS_MAX).map(|k| threshold_of(metric, at(k))).collect();
        // The thresholds are in a geometric progression, which never reaches 0, the threshold of equal vectors.
        if metric == Metric::L2 {
            rungs.push(0.0);
        }
        let asked = asked.map(threshold);
        rungs.extend(asked);
        Self::of_rungs(metric, rungs, asked)
    }

    fn of_rungs(metric: Metric, mut rungs: Vec<f64>, asked: Option<f64>) -> Self {
        rungs.retain(|rung| rung.is_finite());
        rungs.sort_unstable_by(|a, b| key(metric, *a).total_cmp(&key(metric, *b)));
        // Rungs that are close may be equal after rounding.
        rungs.dedup();
        let keys = rungs.iter().map(|&rung| key(metric, rung) as f32).collect();
        let asked = asked.and_then(|asked| rungs.iter().position(|&rung| rung == asked));
        Self { rungs, keys, metric, asked }
    }

    /// Returns a ladder of thresholds from the previous rung to `rung`, including both. Returns `None` if there are
    /// no thresholds between them.
    pub(super) fn between(&self, rung: usize) -> Option<Self> {
        let (from, to) = (*self.rungs.get(rung.checked_sub(1)?)?, *self.rungs.get(rung)?);
        let at = |k: usize| from + (to - from) * k as f64 / RUNGS_MAX as f64;
        let between = (1..RUNGS_MAX).map(|k| format!("{:.*e}", DIGITS_BETWEEN, at(k)).parse().unwrap_or(to));
        let rungs = between.filter(|rung| (from.min(to)..from.max(to)).contains(rung)).chain([from, to]).collect();
        Some(Self::of_rungs(self.metric, rungs, None)).filter(|ladder| ladder.len() > 2)
    }

    /// Returns a ladder of nearer thresholds, if the only rung before `rung` is the one for equal vectors.
    pub(super) fn finer(&self, rung: usize) -> Option<Self> {
        let is_next = self.metric == Metric::L2 && rung == 1 && self.rungs[0] == 0.0;
        is_next.then(|| Self::new(self.metric, self.rungs[rung], None))
    }

    pub(super) fn len(&self) -> usize {
        self.rungs.len()
    }

    pub(super) fn threshold(&self, rung: usize) -> f64 {
        self.rungs[rung]
    }

    /// Returns the predicate of pairs within a rung.
    ///
    /// # Errors
    /// If the threshold is invalid, which never happens.
    pub(super) fn predicate(&self, rung: usize) -> Result<Predicate> {
        match self.metric {
            Metric::L2 => Predicate::l2(self.rungs[rung]),
            _ => Predicate::cosine(self.rungs[rung]),
        }
    }

    /// Returns a key that is larger for pairs that are farther from each other.
    pub(super) fn farness(&self, value: f32) -> f32 {
        key(self.metric, f64::from(value)) as f32
    }

    /// Returns the first rung that includes a pair with the distance or similarity `value`. If no rung does because
    /// of rounding errors, returns the last rung.
    pub(super) fn rung_of(&self, value: f32) -> u8 {
        let key = self.farness(value);
        // Keys have the precision of results, so a pair exactly at the threshold is included.
        self.keys.partition_point(|&rung| rung < key).min(self.keys.len() - 1) as u8
    }
}

fn threshold(predicate: &Predicate) -> f64 {
    match *predicate {
        Predicate::L2 { eps } => eps,
        Predicate::Cosine { min_similarity } => min_similarity,
        Predicate::InnerProduct { min_score } => min_score,
    }
}

/// Returns a key that is smaller for nearer thresholds.
fn key(metric: Metric, threshold: f64) -> f64 {
    if metric == Metric::L2 { threshold } else { -threshold }
}

/// Returns a threshold near the given distance that has few digits, so that users can type it.
fn threshold_of(metric: Metric, distance: f64) -> f64 {
    match metric {
        Metric::L2 if distance > 0.0 => {
            let unit = 10f64.powi(distance.log10().floor() as i32 + 1 - DIGITS);
            // The number is formatted and parsed again, so that the printed threshold is exactly the one that is
            // used.
            let digits = (DIGITS - 1 - distance.log10().floor() as i32).max(0) as usize;
            format!("{:.digits$}", (distance / unit).ceil() * unit).parse().unwrap_or(distance)
        }
        Metric::L2 => 0.0,
        _ => {
            // For vectors of length 1, d^2 = 2 - 2 s.
            let similarity = (1.0 - distance * distance / 2.0).max(-1.0);
            // The similarity is rounded down, so that pairs at this distance are within the threshold.
            (similarity * STEPS_OF_SIMILARITY).floor().max(-STEPS_OF_SIMILARITY) / STEPS_OF_SIMILARITY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_ascend_and_include_the_requested_threshold() {
        let asked = Predicate::l2(0.123_456).unwrap();
        for farthest in [0.0, 1e-30, 1.0, 12_345.678, 1e30] {
            let ladder = Ladder::new(Metric::L2, farthest, Some(&asked));
            assert!(ladder.len() <= 128 && ladder.rungs.is_sorted_by(|a, b| a < b), "{farthest}");
            assert_eq!(ladder.threshold(ladder.asked.unwrap()), 0.123_456);
            assert!(ladder.threshold(ladder.len() - 1) >= farthest);
        }
        for farthest in [0.0, 0.1, 1.4, 3.0] {
            let ladder = Ladder::new(Metric::Cosine, farthest, None);
            assert!(ladder.len() <= 128 && ladder.rungs.is_sorted_by(|a, b| a > b), "{farthest}");
            assert!((-1.0..1.0).contains(&ladder.threshold(0)) && ladder.asked.is_none());
        }
    }

    #[test]
    fn a_pair_is_within_its_rung_and_all_later_ones() {
        let ladder = Ladder::new(Metric::L2, 10.0, None);
        assert_eq!((ladder.rung_of(0.0), usize::from(ladder.rung_of(10.0))), (0, ladder.len() - 1));
        for value in [0.2, 1.0, 3.3f32] {
            let rung = usize::from(ladder.rung_of(value));
            assert!(ladder.threshold(rung) >= f64::from(value) && ladder.threshold(rung - 1) < f64::from(value));
        }
        let similar = Ladder::new(Metric::Cosine, 1.0, Some(&Predicate::cosine(0.9).unwrap()));
        assert_eq!(usize::from(similar.rung_of(0.9)), similar.asked.unwrap());
        assert!(similar.rung_of(0.999) < similar.rung_of(0.6));
    }

    #[test]
    fn ladders_between_rungs_get_finer_until_indistinguishable() {
        for ladder in [Ladder::new(Metric::L2, 12.0, None), Ladder::new(Metric::Cosine, 1.0, None)] {
            let (metric, ends) = (ladder.metric, [ladder.threshold(70), ladder.threshold(71)]);
            let between = ladder.between(71).unwrap();
            assert!(between.len() > 100 && between.len() <= 128);
            assert_eq!([between.threshold(0), between.threshold(between.len() - 1)], ends);
            assert!(between.rungs.is_sorted_by(|a, b| key(metric, *a) < key(metric, *b)));
            assert!(ladder.between(0).is_none() && ladder.between(ladder.len()).is_none());
            let mut last = between;
            while let Some(between) = last.between(last.len() / 2) {
                last = between;
            }
        }
    }

    #[test]
    fn sets_of_rungs_have_one_bit_per_rung() {
        assert_eq!((from_rung(0), before_rung(0)), (Rungs::MAX, 0));
        assert_eq!((from_rung(127), before_rung(127)), (1 << 127, Rungs::MAX >> 1));
        assert_eq!((from_rung(u8::MAX), before_rung(u8::MAX)), (0, Rungs::MAX), "none has no rung");
    }
}
