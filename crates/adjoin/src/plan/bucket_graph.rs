//! The graph of bucket pairs that may hold a pair of the result.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// One side of an edge: what a pass over one bucket finds out about another bucket. The bytes of a side are stored
/// until both sides of the edge are brought together.
pub(crate) trait EdgeSide: Copy + FromBytes + IntoBytes + Immutable + Send + Sync {
    /// Returns the bucket of this side, and the other bucket of the edge.
    fn direction(&self) -> (u32, u32);

    /// Returns the edge, with the lower bucket number first.
    fn edge(&self) -> (u32, u32) {
        let (from, towards) = self.direction();
        (from.min(towards), from.max(towards))
    }
}

/// The least margin of a bucket's members towards another center: the minimum of `d(x, c_j)^2 - d(x, c_i)^2` over all
/// `x` in bucket i. Rounding never makes it larger than its true value.
#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct LeastMargin {
    /// Bucket i, which has the members.
    pub from: u32,
    /// Bucket j, towards whose center the margins are measured.
    pub towards: u32,
    /// The least margin.
    pub margin: f32,
}

impl EdgeSide for LeastMargin {
    fn direction(&self) -> (u32, u32) {
        (self.from, self.towards)
    }
}

/// Graph with buckets as vertices, and pairs of different buckets to compare as edges.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketGraph {
    /// Number of buckets.
    pub buckets: usize,
    /// Edges (i, j) with i < j, ascending.
    pub edges: Vec<(u32, u32)>,
}

impl BucketGraph {
    /// Returns whether two buckets have an edge. Edges must be in ascending order.
    pub fn contains(&self, i: u32, j: u32) -> bool {
        self.edges.binary_search(&(i.min(j), i.max(j))).is_ok()
    }
}

/// Adds the edges of the margin-sum rule to a graph. Buckets i and j are compared if `margin(x -> j) + margin(y -> i)
/// <= limit(i, j)` may hold for some x in i and y in j. This misses no pair within the threshold, even if vectors are
/// assigned to other centers than their nearest: the sum of the margins bounds the distance of the projections of x
/// and y on the line through both centers (docs/methods.md, "The exact rule").
///
/// `sides` must be sorted by edge. If one side of an edge is missing, its margin is beyond the limit, and there is no
/// edge. Duplicate sides must be equal.
pub(crate) fn add_margin_edges(graph: &mut BucketGraph, sides: &[LeastMargin], limit: impl Fn(u32, u32) -> f64) {
    for sides in sides.chunk_by(|a, b| a.edge() == b.edge()) {
        let (i, j) = sides[0].edge();
        let of = |bucket: u32| sides.iter().find(|side| side.from == bucket).map(|side| f64::from(side.margin));
        // If a side is missing, no member of its bucket is in reach.
        if let (Some(of_i), Some(of_j)) = (of(i), of(j))
            && within(of_i + of_j, limit(i, j))
        {
            graph.edges.push((i, j));
        }
    }
}

/// Returns whether `sum <= limit`. Returns true if either is NaN, so that undecidable pairs are compared.
pub(crate) fn within(sum: f64, limit: f64) -> bool {
    !matches!(sum.partial_cmp(&limit), Some(std::cmp::Ordering::Greater))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least(from: u32, towards: u32, margin: f32) -> LeastMargin {
        LeastMargin { from, towards, margin }
    }

    fn edges_of(sides: &[LeastMargin], limit: f64) -> Vec<(u32, u32)> {
        let mut graph = BucketGraph { buckets: 3, edges: Vec::new() };
        add_margin_edges(&mut graph, sides, |_, _| limit);
        graph.edges
    }

    #[test]
    fn edges_need_both_sides_within_the_threshold() {
        let sides = [least(0, 1, 3.0), least(1, 0, 2.0), least(1, 0, 2.0), least(0, 2, 1.0), least(2, 0, 5.0)];
        assert_eq!(edges_of(&sides, 5.0), [(0, 1)]);
        assert_eq!(edges_of(&sides, 6.0), [(0, 1), (0, 2)]);
        assert!(edges_of(&sides[..1], 100.0).is_empty());
    }

    #[test]
    fn nan_bounds_keep_an_edge() {
        let sides = [least(0, 1, f32::NEG_INFINITY), least(1, 0, 0.0)];
        assert_eq!(edges_of(&sides, f64::NAN).len(), 1);
    }
}
