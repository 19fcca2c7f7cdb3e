//! Sampled queries and the buckets of their hits, with which a probe rule is calibrated.

use super::probing::Measured;
use crate::base::geometry::Coordinate;
use crate::plan::ProbeRule;
use crate::truth::NeighborSample;

/// Rank of the bucket whose margin is typical of a query. The inverse of that margin is the unit of weights.
const TYPICAL_RANK: usize = 10;

/// A recorded hit of a sampled query: the rank and the margin of the hit's bucket.
pub(crate) type NotedHit = (u32, f32);

/// A sampled query and its recorded hits.
pub(crate) struct SampledQuery {
    /// Number of all hits.
    hits: u64,
    noted: Vec<NotedHit>,
    /// Margin at [`TYPICAL_RANK`].
    margin: f64,
}

impl SampledQuery {
    /// Creates a query with `hits` hits. `buckets` has the buckets of the recorded hits, and `measured` the distances to
    /// all centers.
    pub(crate) fn new<T: Coordinate>(
        measured: &mut Measured<'_>,
        hits: u64,
        buckets: impl Iterator<Item = u32>,
    ) -> Self {
        let noted = buckets.map(|bucket| {
            let (rank, margin) = measured.place_of::<T>(bucket);
            // The margin is rounded up, so that a threshold computed from it admits the bucket.
            (rank as u32, (margin as f32).next_up())
        });
        let noted = noted.collect();
        Self { hits, noted, margin: measured.margin_of_rank::<T>(TYPICAL_RANK) }
    }
}

/// Sampled queries with the buckets of their hits.
pub(crate) struct ProbeSample {
    /// For each query, the number of its hits, and the end of its recorded hits in `noted`.
    queries: Vec<(u64, usize)>,
    noted: Vec<NotedHit>,
    /// Median over the queries of the margin at [`TYPICAL_RANK`].
    margin: f64,
}

impl ProbeSample {
    /// Creates a sample of queries.
    pub(crate) fn of(sampled: Vec<SampledQuery>) -> Self {
        let mut margins: Vec<f64> = sampled.iter().map(|query| query.margin).collect();
        margins.sort_unstable_by(f64::total_cmp);
        let margin = margins.get(margins.len() / 2).copied().unwrap_or(0.0);
        let mut sample = Self { queries: Vec::with_capacity(sampled.len()), noted: Vec::new(), margin };
        for query in sampled {
            sample.noted.extend(query.noted);
            sample.queries.push((query.hits, sample.noted.len()));
        }
        sample
    }

    /// Returns the bytes of `queries` queries with `noted` recorded hits each.
    pub(crate) fn memory_bytes(queries: u64, noted: u64) -> u64 {
        queries * (noted * size_of::<NotedHit>() as u64 + size_of::<(u64, usize)>() as u64)
    }

    /// Returns the number of queries.
    pub(crate) fn queries(&self) -> usize {
        self.queries.len()
    }

    /// Returns the weight of margins in a rule ([`ProbeRule::per_margin`]), relative to the logarithm of the rank.
    pub(crate) fn per_margin(&self, weight: f64) -> f64 {
        // If all margins are 0, they do not distinguish buckets, and only the rank decides.
        if self.margin > 0.0 { weight / self.margin } else { 0.0 }
    }

    /// Returns the sample restricted to the `k` nearest hits of each query. All hits of this sample must be recorded.
    pub(crate) fn nearest(&self, k: u64) -> Self {
        let mut nearest = Self { queries: Vec::new(), noted: Vec::new(), margin: self.margin };
        let mut start = 0;
        for &(count, end) in &self.queries {
            let count = count.min(k);
            // All hits are recorded, nearest first, so the first `count` are the nearest.
            nearest.noted.extend_from_slice(&self.noted[start..start + count as usize]);
            nearest.queries.push((count, nearest.noted.len()));
            start = end;
        }
        nearest
    }

    /// Returns the least thresholds at which the recorded hits are found, for the queries for which `takes` returns
    /// true.
    pub(crate) fn of_rule(&self, per_margin: f64, takes: impl Fn(usize) -> bool) -> NeighborSample {
        let mut sample = NeighborSample::default();
        let mut start = 0;
        for (k, &(count, end)) in self.queries.iter().enumerate() {
            let noted = &self.noted[start..end];
            start = end;
            if !takes(k) {
                continue;
            }
            sample.vectors += 1;
            if count > 0 {
                // The threshold is rounded up: if it were slightly too small, it would not admit the bucket.
                let t =
                    |&(rank, margin): &NotedHit| ProbeRule::threshold(per_margin, rank.into(), margin.into()) as f32;
                sample.pair_ts.extend(noted.iter().map(t).map(f32::next_up));
                sample.neighbors.push((count, sample.pair_ts.len() as u32));
            }
        }
        sample
    }
}
