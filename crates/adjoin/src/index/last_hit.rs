//! Decides how far a walk goes if some hits of its query are rows outside the index.
//!
//! A list of L candidates finds the K nearest of all vertices with the recall that was measured for L. The last of K hits
//! has a rank among the vertices: deleted vertices near the query increase it, and unmerged rows near the query decrease
//! it. If it is R, a walk needs the R nearest vertices, so it expands the first L * max(1, R / K) candidates. Without
//! unmerged rows, this is about the list that counts only candidates that can be hits.

use crate::execute::Hit;
use crate::query::QueryTarget;

/// The nearness of the last of the hits so far, and the vertices that are nearer.
#[derive(Default)]
pub(super) struct LastHit {
    /// Maximum number of hits. 0 if all candidates in the list are expanded.
    k: usize,
    /// Nearness of the hits so far, ascending, in the index and outside.
    hits: Vec<f64>,
    /// Nearness of vertices that are as near as the last hit, including vertices that cannot be hits.
    vertices: Vec<f64>,
    /// Maximum length of `vertices`.
    vertices_max: usize,
}

impl LastHit {
    /// Returns the memory in bytes of a walk for `k` hits that holds `held` candidates.
    pub(super) fn memory_bytes(k: u64, held: u64) -> u64 {
        // Vectors double as they grow.
        size_of::<f64>() as u64 * 2 * (k + held)
    }

    /// Starts a query with a walk that holds `held` candidates. `outside` are hits outside the index, nearest first.
    pub(super) fn begin(&mut self, wanted: QueryTarget, held: usize, outside: &[Hit]) {
        self.hits.clear();
        self.vertices.clear();
        self.k = match wanted {
            QueryTarget::Nearest(k) if !outside.is_empty() => k as usize,
            // A threshold has no last hit.
            QueryTarget::Nearest(_) | QueryTarget::Within(_) => 0,
        };
        self.hits.extend(outside.iter().take(self.k).map(|hit| hit.nearness));
        self.vertices_max = held;
    }

    /// Adds the vertices of a page with their nearness. `can_be_hit` returns whether a vertex can be a hit.
    pub(super) fn add(&mut self, page: &[(f64, u32)], can_be_hit: impl Fn(u32) -> bool) {
        if self.k == 0 {
            return;
        }
        for &(nearness, vertex) in page {
            if nearness > self.nearness() {
                continue;
            }
            if self.vertices.len() < self.vertices_max {
                self.vertices.push(nearness);
            }
            if can_be_hit(vertex) {
                let place = self.hits.partition_point(|&other| other <= nearness);
                self.hits.insert(place, nearness);
                self.hits.truncate(self.k);
            }
        }
        let most = self.nearness();
        self.vertices.retain(|&nearness| nearness <= most);
    }

    /// Returns the number of candidates, nearest first, that a walk with a list of `list` expands.
    pub(super) fn candidates(&self, list: usize) -> usize {
        match self.k {
            0 => usize::MAX,
            k => list.saturating_mul(self.vertices.len().max(k)) / k,
        }
    }

    /// Returns the nearness of the last hit; infinite if there are fewer than K.
    fn nearness(&self) -> f64 {
        if self.hits.len() < self.k { f64::INFINITY } else { self.hits[self.k - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::predicate::Predicate;

    fn outside(nearness: &[f64]) -> Vec<Hit> {
        nearness.iter().map(|&nearness| Hit { nearness, row: 0, place: (0, 0) }).collect()
    }

    /// Number of a deleted vertex; all others can be hits.
    const DELETED: u32 = 0;
    const LIVE: u32 = 1;

    fn add(last: &mut LastHit, page: &[(f64, u32)]) {
        last.add(page, |vertex| vertex != DELETED);
    }

    /// Returns the number of candidates for a list of 40, K of 4 and vertices of the given nearness.
    fn candidates(hits: &[f64], vertices: &[(f64, u32)]) -> usize {
        let mut last = LastHit::default();
        last.begin(QueryTarget::Nearest(4), 1_000, &outside(hits));
        vertices.chunks(3).for_each(|page| add(&mut last, page));
        last.candidates(40)
    }

    #[test]
    fn deleted_vertices_nearer_than_the_last_hit_lengthen_the_walk() {
        let live = |nearness: f64| (nearness, LIVE);
        let deleted = |nearness: f64| (nearness, DELETED);
        // Nothing is deleted: the list suffices, no matter how near the outer rows are.
        let kept: Vec<(f64, u32)> = (0..50).map(|k| live(f64::from(k))).collect();
        assert_eq!(candidates(&[0.5], &kept), 40);
        assert_eq!(candidates(&[0.1, 0.2, 0.3, 0.4], &kept), 40);
        // Every second vertex is deleted. The fourth of the outer hits and the live vertices has rank 4.
        let half: Vec<(f64, u32)> =
            (0..50).map(|k| if k % 2 == 0 { live(f64::from(k)) } else { deleted(f64::from(k)) }).collect();
        assert_eq!(candidates(&[0.5, 2.5, 4.5, 6.5], &half), 40);
        // The outer rows are far: the live vertices 0, 2, 4 and 6 are the hits, and the last has rank 7.
        assert_eq!(candidates(&[100.0], &half), 40 * 7 / 4);
        // All vertices are deleted. Those nearer than the fourth outer row count.
        let deleted_only: Vec<(f64, u32)> = (0..50).map(|k| deleted(f64::from(k))).collect();
        assert_eq!(candidates(&[1.0, 2.0, 3.0, 9.5], &deleted_only), 40 * 10 / 4);
        // The walk does not end before there are K hits.
        assert_eq!(candidates(&[1.0, 2.0, 3.0], &deleted_only), 40 * 50 / 4);
    }

    #[test]
    fn walks_without_outer_hits_or_with_a_threshold_expand_their_list() {
        assert_eq!(candidates(&[], &[(1.0, DELETED); 30]), usize::MAX);
        let (mut last, within) = (LastHit::default(), QueryTarget::Within(Predicate::L2 { eps: 2.0 }));
        last.begin(within, 1_000, &outside(&[1.0]));
        add(&mut last, &[(1.0, LIVE)]);
        assert_eq!(last.candidates(40), usize::MAX);
    }

    #[test]
    fn the_number_of_vertices_is_limited() {
        let mut last = LastHit::default();
        last.begin(QueryTarget::Nearest(4), 20, &outside(&[5.0]));
        add(&mut last, &[(1.0, DELETED); 1_000]);
        assert_eq!((last.vertices.len(), last.candidates(8)), (20, 40));
    }
}
