//! Is it worth the calibration of a rule that misses some pairs, or is every pair found as cheaply?

use super::rule::Rule;

/// Up to which recall the union rule needs about which threshold: a first guess, to tell what it costs.
const THRESHOLDS_GUESSED: [(f64, f64); 3] = [(0.9, 1.1), (0.97, 1.3), (1.0, 1.6)];
/// Centers that a calibrated rule looks at around each, about.
const CENTERS_AROUND: u64 = 256;

/// What is known of a set at a threshold before any rule is chosen. Pairs are those of different buckets, expected from a
/// sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Vectors.
    pub rows: u64,
    /// Buckets.
    pub buckets: u64,
    /// Pairs that the margin-sum rule admits.
    pub margin_sum_pairs: u64,
    /// Pairs that the union rule admits at [`guessed_threshold`].
    pub union_pairs: u64,
    /// Pairs that the triangle inequality with one center leaves: a sampled vector is compared with its share of them.
    pub near_pairs: u64,
}

/// What is wanted of the rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wanted {
    /// The recall to reach.
    pub recall: f64,
    /// How many times the distances of a rule that misses some pairs one that misses none may compute.
    pub patience: f64,
    /// Vectors that a calibration draws at least.
    pub sample: u64,
}

/// How pairs are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// By a rule that misses none.
    Exact(Rule),
    /// By a rule whose threshold a calibration sets, which may look for the neighbours of so many vectors.
    Calibrated {
        /// The rule.
        rule: Rule,
        /// More vectors would cost more than the rule saves.
        sample_max: u64,
    },
}

/// The threshold that the union rule is taken to need for a recall, before any is calibrated.
pub fn guessed_threshold(recall: f64) -> f64 {
    THRESHOLDS_GUESSED.iter().find(|(most, _)| recall <= *most).map_or(f64::MAX, |(_, threshold)| *threshold)
}

/// The rule that is expected to compute fewer distances, those of its calibration included.
pub fn choose(facts: &Facts, wanted: Wanted) -> Choice {
    let Facts { rows, buckets, margin_sum_pairs, union_pairs, near_pairs } = *facts;
    let exact = (rows * buckets + margin_sum_pairs) as f64;
    let approximate = (rows * CENTERS_AROUND.min(buckets) + union_pairs) as f64;
    let all = rows as f64 * rows as f64 / 2.0;
    let a_vector = near_pairs as f64 / all.max(1.0) * rows as f64;
    let affordable = (exact / wanted.patience - approximate) / a_vector.max(1.0);
    if affordable >= wanted.sample as f64 {
        return Choice::Calibrated { rule: Rule::Union, sample_max: affordable as u64 };
    }
    Choice::Exact(Rule::MarginSum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of 1M vectors in 5,000 buckets.
    fn facts(margin_sum_pairs: u64, union_pairs: u64) -> Facts {
        Facts { rows: 1_000_000, buckets: 5_000, margin_sum_pairs, union_pairs, near_pairs: 100_000_000_000 }
    }

    fn chosen(facts: &Facts, patience: f64) -> Choice {
        choose(facts, Wanted { recall: 0.95, patience, sample: 2_000 })
    }

    #[test]
    fn a_rule_that_saves_much_is_calibrated() {
        // (10^6 * 5,000 + 10^11 - 10^6 * 256 - 10^9) / (10^11 / (10^12 / 2) * 10^6)
        let affordable = (105_000_000_000u64 - 1_256_000_000) / 200_000;
        let expected = Choice::Calibrated { rule: Rule::Union, sample_max: affordable };
        assert_eq!(chosen(&facts(100_000_000_000, 1_000_000_000), 1.0), expected);
    }

    #[test]
    fn a_rule_that_saves_less_than_its_calibration_takes_is_not() {
        assert_eq!(
            chosen(&facts(1_000_000_000, 900_000_000), 1.0),
            Choice::Calibrated { rule: Rule::Union, sample_max: 24_220 }
        );
        assert_eq!(chosen(&facts(0, 4_400_000_000), 1.0), Choice::Exact(Rule::MarginSum));
        assert_eq!(chosen(&facts(1_000_000_000, 900_000_000), 6.0), Choice::Exact(Rule::MarginSum), "with patience");
    }

    #[test]
    fn a_higher_recall_is_taken_to_need_a_larger_threshold() {
        assert_eq!([0.5, 0.9, 0.95, 0.99].map(guessed_threshold), [1.1, 1.1, 1.3, 1.6]);
    }
}
