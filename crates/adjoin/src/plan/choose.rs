//! Chooses between an exact rule, and a rule that needs a calibration and misses some pairs.

/// Recalls, and the thresholds that the union rule is assumed to need for them. They are used to estimate the cost of
/// the rule.
const THRESHOLDS_GUESSED: [(f64, f64); 3] = [(0.9, 1.1), (0.97, 1.3), (1.0, 1.6)];
/// Approximate number of centers that a calibrated rule considers around each center.
const CENTERS_AROUND: u64 = 256;

/// Numbers of vectors and buckets to join, and of the pairs of vectors and of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketPairsToVisit {
    /// Number of vectors.
    pub rows: u64,
    /// Number of buckets.
    pub buckets: u64,
    /// Number of pairs of vectors.
    pub pairs: u64,
    /// Number of pairs of buckets.
    pub bucket_pairs: u64,
    /// For each vector, the number of buckets that its own bucket may be compared with, summed over all vectors.
    pub centers_of_rows: u64,
}

/// Numbers of vectors and buckets of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetSize {
    /// Number of vectors.
    pub rows: u64,
    /// Number of buckets.
    pub buckets: u64,
}

impl BucketPairsToVisit {
    /// Returns the numbers for a set that is joined with itself.
    pub fn within(SetSize { rows, buckets }: SetSize) -> Self {
        let pairs_of = |n: u64| n * n.saturating_sub(1) / 2;
        let (pairs, bucket_pairs) = (pairs_of(rows), pairs_of(buckets));
        Self { rows, buckets, pairs, bucket_pairs, centers_of_rows: rows * buckets }
    }

    /// Returns the numbers for two sets that are joined with each other.
    pub fn between(a: SetSize, b: SetSize) -> Self {
        Self {
            rows: a.rows + b.rows,
            buckets: a.buckets + b.buckets,
            pairs: a.rows * b.rows,
            bucket_pairs: a.buckets * b.buckets,
            centers_of_rows: a.rows * b.buckets + b.rows * a.buckets,
        }
    }

    /// Returns the numbers for new vectors and buckets that are joined with old ones and with each other.
    pub fn grown(old: SetSize, new: SetSize) -> Self {
        let (with_old, among_new) = (Self::between(old, new), Self::within(new));
        Self {
            pairs: with_old.pairs + among_new.pairs,
            bucket_pairs: with_old.bucket_pairs + among_new.bucket_pairs,
            centers_of_rows: with_old.centers_of_rows + among_new.centers_of_rows,
            ..with_old
        }
    }
}

/// Facts about a join with a threshold, before a rule is chosen. Numbers of pairs are estimated from a sample. Those
/// that a rule or a bound admits count only pairs of different buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Numbers of vectors, buckets and pairs to join.
    pub meets: BucketPairsToVisit,
    /// Number of result pairs. If there are few, only the order of magnitude is known.
    pub results: u64,
    /// Number of pairs that the margin-sum rule admits.
    pub margin_sum_pairs: u64,
    /// Number of pairs that the union rule admits at [`guessed_threshold`].
    pub union_pairs: u64,
    /// Number of pairs that the triangle inequality with one center does not exclude. As a fraction of all pairs, this
    /// is about the fraction of vectors with which a calibration compares a sampled vector. If two sets are joined, a
    /// pair has one vector of each.
    pub near_pairs: u64,
}

/// Requirements on the rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RuleTarget {
    /// The recall to reach.
    pub recall: f64,
    /// Factor by which an exact rule may cost more than an approximate one.
    pub patience: f64,
    /// Number of vectors that a calibration may have to sample.
    pub sample: u64,
}

/// Method by which pairs are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The margin-sum rule, which misses no pair.
    Exact,
    /// The union rule, with a threshold from a calibration.
    Calibrated {
        /// Maximum number of vectors to sample. More would cost more than the rule saves.
        sample_max: u64,
    },
}

/// Returns the threshold that the union rule is assumed to need for a recall before any calibration.
pub(crate) fn guessed_threshold(recall: f64) -> f64 {
    THRESHOLDS_GUESSED.iter().find(|(most, _)| recall <= *most).map_or(f64::MAX, |(_, threshold)| *threshold)
}

/// Cost of each kind of operation, in nanoseconds of a core with AVX2. The costs were measured once and are equal on
/// all machines, so that a choice does not depend on the machine. Only their ratios matter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Weights {
    /// Computing the distance of a pair that a rule admits.
    pair: f64,
    /// Computing the distance of two vectors in large tiles.
    tile: f64,
    /// Computing the distance between a member and a center in the pass that finds edges.
    center: f64,
    /// Processing a member of an edge: its distance to the other center, and the selection.
    member_of_edge: f64,
    /// Processing a sampled vector and a bucket: the distance to the center, a part of the distances between members
    /// and the pivots of groups, and the test whether the bucket may hold a neighbor.
    bucket_of_sampled: f64,
    /// Processing a pair of a sampled vector and another one that the triangle inequality with one center does not
    /// exclude.
    near_sampled: f64,
}

impl Weights {
    /// Returns the cost of a distance in large tiles. The speed of a machine is measured by this operation.
    pub(crate) fn tile(&self) -> f64 {
        self.tile
    }

    /// Returns the cost of a distance to a center.
    pub(crate) fn center(&self) -> f64 {
        self.center
    }

    /// Returns the costs for vectors with `dimensions` coordinates. `bytes` states whether coordinates are bytes or
    /// floats. The formulas were fitted to the processor time of 40 joins of 20,000 to 1M vectors with 32 to 384
    /// dimensions.
    pub(crate) fn of(bytes: bool, dimensions: usize) -> Self {
        let d = dimensions as f64;
        match bytes {
            true => Self {
                pair: 2.0 + d / 35.0,
                tile: 0.5 + d / 50.0,
                center: 1.7 + d / 47.0,
                member_of_edge: 4.3 + d / 7.5,
                bucket_of_sampled: 10.0 + d / 30.0,
                near_sampled: 1.7 + d / 180.0,
            },
            false => Self {
                pair: 2.0 + d / 16.0,
                tile: 1.0 + d / 20.0,
                center: 2.2 + d / 18.0,
                member_of_edge: 4.3 + d / 5.0,
                bucket_of_sampled: 10.0 + d / 10.0,
                near_sampled: 1.7 + d / 20.0,
            },
        }
    }
}

/// Cost of a calibration in addition to its passes, in nanoseconds. It is mostly the bootstrap.
const BOOTSTRAP: f64 = 150e6;
/// Let `a` be the fraction of all pairs that a rule admits. Of the pairs of two buckets that have an edge, the rule is
/// assumed to admit the fraction `ADMITTED_OF_EDGE * sqrt(a)`. On 6 sets with 5 thresholds each, the factor was 0.15
/// to 0.27.
const ADMITTED_OF_EDGE: f64 = 0.2;

impl Facts {
    /// Returns the cost of finding and comparing all admitted pairs of different buckets, if there are `admitted` such
    /// pairs.
    fn cost(&self, admitted: u64, weights: &Weights) -> f64 {
        let BucketPairsToVisit { rows, buckets, pairs, bucket_pairs, .. } = self.meets;
        let (rows, buckets, admitted) = (rows as f64, buckets as f64, admitted as f64);
        let of_bucket = rows / buckets.max(1.0);
        let of_edge = ADMITTED_OF_EDGE * (admitted / pairs.max(1) as f64).sqrt() * of_bucket * of_bucket;
        let edges = (admitted / of_edge.max(1.0)).min(bucket_pairs as f64);
        // For each edge, the members of both of its buckets are processed.
        admitted * weights.pair + 2.0 * edges * of_bucket * weights.member_of_edge
    }
}

/// Expected costs of the methods that find pairs, in the unit of [`Weights`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Costs {
    /// Cost of the exact rule.
    pub exact: f64,
    /// Cost of the union rule, without the sampled vectors of its calibration.
    pub approximate: f64,
    /// Cost per sampled vector of the calibration.
    pub a_vector: f64,
}

impl Costs {
    /// Estimates the costs of a join.
    pub(crate) fn of(facts: &Facts, weights: &Weights) -> Self {
        let Facts { meets, margin_sum_pairs, union_pairs, near_pairs, .. } = *facts;
        let BucketPairsToVisit { rows, buckets, pairs, centers_of_rows, .. } = meets;
        let centers = |computed: u64| computed as f64 * weights.center;
        Self {
            exact: centers(centers_of_rows) + facts.cost(margin_sum_pairs, weights),
            approximate: centers(centers_of_rows.min(rows * CENTERS_AROUND))
                + facts.cost(union_pairs, weights)
                + BOOTSTRAP,
            a_vector: buckets as f64 * weights.bucket_of_sampled
                + near_pairs as f64 / pairs.max(1) as f64 * rows as f64 * weights.near_sampled,
        }
    }
}

/// Returns the rule with the lower expected cost. The cost of the union rule includes its calibration.
pub(crate) fn choose(facts: &Facts, target: RuleTarget, weights: &Weights) -> Choice {
    let Costs { exact, approximate, a_vector } = Costs::of(facts, weights);
    let affordable = (exact / target.patience - approximate) / a_vector.max(1.0);
    if affordable >= target.sample as f64 {
        return Choice::Calibrated { sample_max: affordable as u64 };
    }
    Choice::Exact
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of 1M vectors in 5,000 buckets.
    fn facts(margin_sum_pairs: u64, union_pairs: u64) -> Facts {
        let meets = BucketPairsToVisit::within(SetSize { rows: 1_000_000, buckets: 5_000 });
        Facts { meets, results: 0, margin_sum_pairs, union_pairs, near_pairs: 100_000_000_000 }
    }

    fn chosen(facts: &Facts, patience: f64) -> Choice {
        choose(facts, RuleTarget { recall: 0.95, patience, sample: 2_000 }, &Weights::of(true, 170))
    }

    #[test]
    fn a_rule_that_saves_much_is_calibrated() {
        let Choice::Calibrated { sample_max } = chosen(&facts(100_000_000_000, 1_000_000_000), 1.0) else {
            panic!("the exact rule compares 100 times as many pairs");
        };
        // Seconds for 1e11 and 1e9 pairs, for the 400 members of each edge, and for distances to centers. The exact
        // rule has all edges. The union rule has 1e9 pairs divided by 200 * 200 * 0.2 * sqrt(1e9 / 5e11) pairs per
        // edge.
        let exact = 100.0 * 6.857_142_857 + 12_497_500.0 * 400.0 * 26.966_666_667e-9 + 5e9 * 5.317_021_277e-9;
        let edges = 1e9 / (8_000.0 * (1e9f64 / 499_999.5e6).sqrt());
        let approximate = 6.857_142_857 + edges * 400.0 * 26.966_666_667e-9 + 0.256e9 * 5.317_021_277e-9 + 0.15;
        // A sampled vector is compared with 5,000 centers and with near vectors, which are a fifth of all vectors.
        let a_vector = 5_000.0 * 15.666_666_667e-9 + 200_000.2 * 2.644_444_444e-9;
        let expected = (exact - approximate) / a_vector;
        assert!((sample_max as f64 / expected - 1.0).abs() < 2e-6, "{sample_max} {expected}");
    }

    #[test]
    fn a_rule_that_saves_less_than_its_calibration_is_not_calibrated() {
        assert_eq!(chosen(&facts(1_000_000_000, 950_000_000), 4.0), Choice::Exact, "with patience");
        assert_eq!(chosen(&facts(0, 4_400_000_000), 1.0), Choice::Exact);
        assert!(matches!(chosen(&facts(1_000_000_000, 950_000_000), 1.0), Choice::Calibrated { .. }));
    }

    #[test]
    fn a_small_set_is_joined_exactly() {
        let facts = Facts {
            meets: BucketPairsToVisit::within(SetSize { rows: 10_000, buckets: 200 }),
            results: 0,
            margin_sum_pairs: 2_000_000,
            union_pairs: 500_000,
            near_pairs: 40_000_000,
        };
        assert_eq!(chosen(&facts, 1.0), Choice::Exact);
    }

    /// The vectors of each set are compared only with the centers of the other set. For the vectors of the large set,
    /// these centers are few. The vectors of the small set are few themselves.
    #[test]
    fn a_small_set_is_joined_exactly_with_a_large_one() {
        let meets = BucketPairsToVisit::between(
            SetSize { rows: 1_000_000, buckets: 5_000 },
            SetSize { rows: 1_000, buckets: 30 },
        );
        assert_eq!((meets.pairs, meets.bucket_pairs, meets.centers_of_rows), (1_000_000_000, 150_000, 35_000_000));
        let facts =
            Facts { meets, results: 0, margin_sum_pairs: 20_000_000, union_pairs: 5_000_000, near_pairs: 100_000_000 };
        assert_eq!(chosen(&facts, 1.0), Choice::Exact);
    }

    #[test]
    fn guessed_thresholds_grow_with_the_recall() {
        assert_eq!([0.5, 0.9, 0.95, 0.99].map(guessed_threshold), [1.1, 1.1, 1.3, 1.6]);
    }

    #[test]
    fn floats_cost_more_than_bytes() {
        let (bytes, floats) = (Weights::of(true, 128), Weights::of(false, 128));
        assert!(floats.pair > bytes.pair && floats.center > bytes.center && floats.tile > bytes.tile);
    }
}
