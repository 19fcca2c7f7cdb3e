//! Which buckets does a query look into? Its nearest ones, as far as a rule goes.
//!
//! All that a rule knows of a bucket is its rank among the centers by their distance to the query, and its *margin*: the
//! squared distance to its center less that to the nearest one. By rank alone it is the fixed number of probes of an
//! inverted file; by margin alone that of a ball. Queries that lie between many centers have many small margins, and
//! need more buckets than those that lie near one; beyond some rank few neighbors are found at any margin. A sum of
//! both finds as many neighbors in fewer buckets than either (docs/methods.md, "Which buckets a query looks into"), and
//! asks for no distance to a vector, so that all buckets of a batch are known before any is read.

/// How many of a query's nearest buckets are looked into.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Probes {
    /// All in which something may lie that is wanted, by a bound: nothing is missed.
    Bound,
    /// So many, whatever the query.
    Nearest(u32),
    /// As many as a rule admits.
    By(ProbeRule),
}

/// Admits a bucket of rank r, from 0, and margin m where `ln(r + 1) + per_margin * m <= t`. The nearest is always admitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeRule {
    /// What a margin counts for, at least 0.
    pub per_margin: f64,
    /// The threshold of the rule; infinite for all buckets.
    pub t: f64,
}

impl ProbeRule {
    /// The least threshold that admits a bucket.
    pub fn threshold(per_margin: f64, rank: u64, margin: f64) -> f64 {
        if rank == 0 { f64::NEG_INFINITY } else { (rank as f64).ln_1p() + per_margin * margin }
    }

    /// A margin that no bucket of a rank from this one on exceeds if it is admitted.
    pub fn margin_max(&self, rank: u64) -> f64 {
        let left = self.t - (rank as f64).ln_1p();
        // A little more, for the roundings of the sum.
        if self.per_margin > 0.0 { (left.max(0.0) + self.t.abs() * 1e-9) / self.per_margin } else { f64::INFINITY }
    }

    /// How many buckets are admitted, of margins that ascend from the nearest bucket's, which is 0.
    pub fn count(&self, margins: impl Iterator<Item = f64>) -> usize {
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
    fn the_nearest_bucket_is_always_admitted_and_more_as_the_threshold_grows() {
        let margins = [0.0, 1.0, 1.0, 3.0, 8.0];
        let count = |per_margin, t| ProbeRule { per_margin, t }.count(margins.into_iter());
        assert_eq!(count(1.0, f64::NEG_INFINITY), 1);
        assert_eq!(count(1.0, f64::INFINITY), 5);
        assert_eq!(count(0.0, 3f64.ln()), 3, "by rank alone");
        assert_eq!(count(1.0, 2f64.ln() + 1.0), 2);
        assert!((0..40).map(|t| count(0.5, f64::from(t) / 8.0)).is_sorted());
    }

    #[test]
    fn no_margin_beyond_the_largest_is_admitted() {
        let rule = ProbeRule { per_margin: 0.25, t: 2.0 };
        for rank in 1..6 {
            let beyond = rule.margin_max(rank) * (1.0 + 1e-9);
            let margins = (0..=rank).map(|other| if other < rank { 0.0 } else { beyond });
            assert_eq!(rule.count(margins), rank as usize);
        }
        assert_eq!(ProbeRule { per_margin: 0.0, ..rule }.margin_max(1), f64::INFINITY);
    }
}
