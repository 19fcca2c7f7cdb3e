//! Prints the plan of a join for a user who decides whether to run it.

use std::fmt;

use super::choose::BucketPairsToVisit;
use super::rule::Rule;
use super::schedule::{BucketSizes, Schedule};
use crate::base::options::{format_bytes, format_number};

/// Planned work and cost of a join.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Name of the rule that selects pairs.
    pub rule: String,
    /// Threshold of the rule, if it has one.
    pub threshold: Option<f64>,
    /// Number of vectors.
    pub rows: u64,
    /// Number of buckets.
    pub buckets: u64,
    /// Number of pairs of buckets to compare.
    pub edges: u64,
    /// Number of all pairs of buckets.
    pub bucket_pairs: u64,
    /// Name of the order.
    pub order: String,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Bytes of the store's buckets.
    pub store_bytes: u64,
    /// Bytes that the run reads.
    pub bytes_read: u64,
    /// Fraction of uses that find their bucket in the cache.
    pub hit_rate: f64,
    /// Expected number of pairs of vectors that the rule admits. The run computes whole tiles, which contain more
    /// pairs.
    pub candidate_pairs: u64,
    /// Number of all pairs of vectors.
    pub all_pairs: u64,
}

/// Explains a schedule. `rule` is its rule, with its threshold. `meets` are the numbers of pairs that the join could
/// compare. `candidate_pairs` is the number of pairs that the rule is expected to admit.
pub(crate) fn explain(
    rule: Rule,
    threshold: Option<f64>,
    meets: &BucketPairsToVisit,
    sizes: &BucketSizes,
    schedule: &Schedule,
    candidate_pairs: u64,
) -> Explanation {
    Explanation {
        rule: rule.name().into(),
        threshold,
        rows: meets.rows,
        buckets: meets.buckets,
        edges: schedule.edges(),
        bucket_pairs: meets.bucket_pairs,
        order: schedule.order.to_string(),
        cache_bytes: schedule.capacity,
        store_bytes: sizes.extents.iter().sum(),
        bytes_read: schedule.counts.bytes,
        hit_rate: schedule.counts.hit_rate(),
        candidate_pairs,
        all_pairs: meets.pairs,
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        match self.threshold {
            Some(threshold) => writeln!(out, "rule         {}, threshold {threshold:.3}", self.rule)?,
            None => writeln!(out, "rule         {}, which finds every pair", self.rule)?,
        }
        writeln!(out, "vectors      {} in {} buckets", format_number(self.rows), format_number(self.buckets))?;
        writeln!(
            out,
            "edges        {} ({:.1} % of all pairs of buckets)",
            format_number(self.edges),
            share(self.edges, self.bucket_pairs)
        )?;
        writeln!(
            out,
            "pairs        about {} admitted, {:.1} per vector ({:.2} % of all pairs)",
            format_number(self.candidate_pairs),
            self.candidate_pairs as f64 / self.rows.max(1) as f64,
            share(self.candidate_pairs, self.all_pairs)
        )?;
        writeln!(out, "order        {}, cache of {}", self.order, format_bytes(self.cache_bytes))?;
        writeln!(
            out,
            "reads        {}, {:.2} times the store's {}; {:.1} % of uses hit the cache",
            format_bytes(self.bytes_read),
            self.bytes_read as f64 / self.store_bytes.max(1) as f64,
            format_bytes(self.store_bytes),
            100.0 * self.hit_rate
        )
    }
}
