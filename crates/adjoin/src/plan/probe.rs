//! The probe rule, which decides how many of its nearest buckets a query probes.
//!
//! A rule depends on two properties of a bucket: the rank of its center by distance to the query, and its *margin*.
//! The margin is the squared distance of the query to the center, minus the squared distance to the nearest center. A
//! rule by rank alone is the fixed number of probes of an inverted file; a rule by margin alone is a ball. Queries
//! between many centers have many small margins, and need more buckets than queries near one center; beyond some rank,
//! few neighbors are found at any margin. A sum of both finds as many neighbors in fewer buckets than either
//! (docs/methods.md, "Which buckets a query looks into"). It needs no distance to a vector, so all buckets of a batch
//! are known before any is read.

/// Number of its nearest buckets that a query probes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Probes {
    /// All buckets that may hold a hit, according to a bound. No hit is missed.
    Bound,
    /// A fixed number.
    Nearest(u32),
    /// The number that a rule admits.
    By(ProbeRule),
}

/// Rule that admits a bucket of rank r (from 0) and margin m if `ln(r + 1) + per_margin * m <= t`. Always admits the
/// nearest bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ProbeRule {
    /// Weight of the margin, at least 0.
    pub per_margin: f64,
    /// Threshold of the rule. An infinite threshold admits all buckets.
    pub t: f64,
}

impl ProbeRule {
    /// Returns the least threshold that admits a bucket.
    pub(crate) fn threshold(per_margin: f64, rank: u64, margin: f64) -> f64 {
        if rank == 0 { f64::NEG_INFINITY } else { (rank as f64).ln_1p() + per_margin * margin }
    }

    /// Returns an upper bound on the margin of admitted buckets with this rank or a higher one.
    pub(crate) fn margin_max(&self, rank: u64) -> f64 {
        let left = self.t - (rank as f64).ln_1p();
        // The bound is slightly larger because of rounding errors of the sum.
        if self.per_margin > 0.0 { (left.max(0.0) + self.t.abs() * 1e-9) / self.per_margin } else { f64::INFINITY }
    }

    /// Returns the number of admitted buckets, given the margins of all buckets in ascending order. The first margin
    /// is 0, since it is that of the nearest bucket.
    pub(crate) fn count(&self, margins: impl Iterator<Item = f64>) -> usize {
        (0..)
            .zip(margins)
            .take_while(|&(rank, margin)| Self::threshold(self.per_margin, rank, margin) <= self.t)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_bucket_is_probed_and_more_with_larger_thresholds() {
        let margins = [0.0, 1.0, 1.0, 3.0, 8.0];
        let count = |per_margin, t| ProbeRule { per_margin, t }.count(margins.into_iter());
        assert_eq!(count(1.0, f64::NEG_INFINITY), 1);
        assert_eq!(count(1.0, f64::INFINITY), 5);
        assert_eq!(count(0.0, 3f64.ln()), 3, "by rank alone");
        assert_eq!(count(1.0, 2f64.ln() + 1.0), 2);
        assert!((0..40).map(|t| count(0.5, f64::from(t) / 8.0)).is_sorted());
    }

    #[test]
    fn no_bucket_beyond_the_largest_margin_is_probed() {
        let rule = ProbeRule { per_margin: 0.25, t: 2.0 };
        for rank in 1..6 {
            let beyond = rule.margin_max(rank) * (1.0 + 1e-9);
            let margins = (0..=rank).map(|other| if other < rank { 0.0 } else { beyond });
            assert_eq!(rule.count(margins), rank as usize);
        }
        assert_eq!(ProbeRule { per_margin: 0.0, ..rule }.margin_max(1), f64::INFINITY);
    }
}
