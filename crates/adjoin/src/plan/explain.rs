//! The plan in words, for a person who decides whether to run it.

use std::fmt;

use super::bucket_graph::BucketGraph;
use super::schedule::{BucketSizes, Schedule};
use crate::options::format_bytes;

/// What a join is going to do and to cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Name of the rule that picks pairs.
    pub rule: String,
    /// Vectors.
    pub rows: u64,
    /// Buckets.
    pub buckets: u64,
    /// Pairs of buckets to compare.
    pub edges: u64,
    /// Name of the order.
    pub order: String,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Bytes of the store's buckets.
    pub store_bytes: u64,
    /// Bytes that the run reads.
    pub bytes_read: u64,
    /// Share of uses that find their bucket in the cache.
    pub hit_rate: f64,
    /// Pairs of vectors that the rule admits, at most; whole tiles around them are computed.
    pub candidate_pairs_max: u64,
    /// Pairs of vectors there are.
    pub all_pairs: u64,
}

/// Explains a schedule. `rows` are the vectors of each bucket.
pub fn explain(rule: &str, graph: &BucketGraph, sizes: &BucketSizes, schedule: &Schedule, rows: &[u32]) -> Explanation {
    let all: u64 = rows.iter().copied().map(u64::from).sum();
    let pairs_of = |n: u64| n * n.saturating_sub(1) / 2;
    let own = rows.iter().map(|&n| pairs_of(u64::from(n))).sum::<u64>();
    Explanation {
        rule: rule.into(),
        rows: all,
        buckets: graph.buckets as u64,
        edges: graph.edges.len() as u64,
        order: schedule.order.name().into(),
        cache_bytes: schedule.capacity,
        store_bytes: sizes.extents.iter().sum(),
        bytes_read: schedule.counts.bytes,
        hit_rate: schedule.counts.hit_rate(),
        candidate_pairs_max: own + graph.edge_pairs_max,
        all_pairs: pairs_of(all),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        let bucket_pairs = self.buckets * self.buckets.saturating_sub(1) / 2;
        writeln!(out, "rule         {}", self.rule)?;
        writeln!(out, "vectors      {} in {} buckets", self.rows, self.buckets)?;
        writeln!(
            out,
            "edges        {} ({:.1} % of all pairs of buckets)",
            self.edges,
            share(self.edges, bucket_pairs)
        )?;
        writeln!(
            out,
            "pairs        at most {} admitted, {:.1} a vector ({:.2} % of all pairs)",
            self.candidate_pairs_max,
            self.candidate_pairs_max as f64 / self.rows.max(1) as f64,
            share(self.candidate_pairs_max, self.all_pairs)
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
