//! Which pairs of buckets may hold a pair of the result?

/// The least margin of a bucket's members towards another center: the least `d(x, c_j)^2 - d(x, c_i)^2` of all `x` in
/// bucket i, never above its true value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeastMargin {
    /// The bucket of the members, i.
    pub from: u32,
    /// The other bucket, j.
    pub towards: u32,
    /// The least margin.
    pub margin: f32,
    /// Members of i that are near enough to take part, whatever j's members are like.
    pub members: u32,
}

impl LeastMargin {
    /// Bytes as stored.
    pub const BYTES: usize = 16;

    /// As stored.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let words = [self.from, self.towards, self.margin.to_bits(), self.members];
        let mut bytes = [0; Self::BYTES];
        bytes.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
        bytes
    }

    /// Reads one.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |k: usize| u32::from_le_bytes(bytes.as_chunks::<4>().0[k]);
        Self { from: word(0), towards: word(1), margin: f32::from_bits(word(2)), members: word(3) }
    }

    /// The edge that it is about.
    fn edge(&self) -> (u32, u32) {
        (self.from.min(self.towards), self.from.max(self.towards))
    }
}

/// Buckets as vertices, pairs of buckets to compare as edges. Each bucket is compared with itself too.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketGraph {
    /// Number of buckets.
    pub buckets: usize,
    /// Edges (i, j) with i < j, ascending.
    pub edges: Vec<(u32, u32)>,
    /// Pairs of vectors that the rule is expected to admit on the edges, at most.
    pub edge_pairs_max: u64,
}

/// Adds the edges of the margin-sum bound to a graph: buckets i and j are compared if some x in i and y in j may have
/// `margin(x -> j) + margin(y -> i) <= limit(i, j)`. Then no pair within the threshold is missed, whatever center a
/// vector was assigned to: the projections of x and y on the line of both centers are that far apart
/// (docs/methods.md, "The exact rule").
///
/// `margins` holds both sides of each edge that it holds any of; a side that is absent is beyond the limit. It is left
/// in another order, and edges are added in theirs.
pub fn add_margin_edges(graph: &mut BucketGraph, margins: &mut Vec<LeastMargin>, limit: impl Fn(u32, u32) -> f64) {
    margins.sort_unstable_by_key(|margin| (margin.edge(), margin.from, std::cmp::Reverse(margin.members)));
    margins.dedup_by_key(|margin| (margin.from, margin.towards));
    for sides in margins.chunk_by(|a, b| a.edge() == b.edge()) {
        let &[of_i, of_j] = sides else { continue };
        let (i, j) = of_i.edge();
        if within(f64::from(of_i.margin) + f64::from(of_j.margin), limit(i, j)) {
            graph.edges.push((i, j));
            graph.edge_pairs_max += u64::from(of_i.members) * u64::from(of_j.members);
        }
    }
}

/// The edges of DiskJoin's triangle inequality (equation 1): `D - r_i - r_j <= eps`.
///
/// `center_distance(i, j)` is never above the true distance, radii and `eps` never below.
pub fn triangle_graph(
    rows: &[u32],
    radii: &[f32],
    eps: f64,
    mut center_distances_from: impl FnMut(u32, &mut Vec<f64>),
) -> BucketGraph {
    let mut edges = Vec::new();
    let mut edge_pairs_max = 0;
    let mut distances = Vec::new();
    for i in 0..rows.len() {
        center_distances_from(i as u32, &mut distances);
        for j in i + 1..rows.len() {
            let gap = distances[j] - f64::from(radii[i]) - f64::from(radii[j]);
            if within(gap, eps * (1.0 + 8.0 * f64::EPSILON)) {
                edges.push((i as u32, j as u32));
                edge_pairs_max += u64::from(rows[i]) * u64::from(rows[j]);
            }
        }
    }
    BucketGraph { buckets: rows.len(), edges, edge_pairs_max }
}

/// `sum <= limit`, and also where either is not a number: what cannot be told is compared.
pub(crate) fn within(sum: f64, limit: f64) -> bool {
    !matches!(sum.partial_cmp(&limit), Some(std::cmp::Ordering::Greater))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least(from: u32, towards: u32, margin: f32) -> LeastMargin {
        LeastMargin { from, towards, margin, members: 2 }
    }

    fn graph_of(margins: &[LeastMargin], limit: f64) -> BucketGraph {
        let mut graph = BucketGraph { buckets: 3, edges: Vec::new(), edge_pairs_max: 0 };
        add_margin_edges(&mut graph, &mut margins.to_vec(), |_, _| limit);
        graph
    }

    #[test]
    fn an_edge_needs_both_sides_near_enough() {
        let twice = LeastMargin { members: 1, ..least(1, 0, 2.0) };
        let margins = [least(2, 0, 5.0), least(0, 1, 3.0), least(1, 0, 2.0), least(0, 2, 1.0), least(1, 2, 0.0), twice];
        assert_eq!(graph_of(&margins, 5.0), BucketGraph { buckets: 3, edges: vec![(0, 1)], edge_pairs_max: 4 });
        assert_eq!(graph_of(&margins, 6.0).edges, [(0, 1), (0, 2)]);
    }

    #[test]
    fn what_cannot_be_told_is_compared() {
        let margins = [least(0, 1, f32::NEG_INFINITY), least(1, 0, 0.0)];
        assert_eq!(graph_of(&margins, f64::NAN).edges.len(), 1);
    }

    #[test]
    fn margins_come_back_as_stored() {
        let margin = least(7, u32::MAX, -1.5);
        assert_eq!(LeastMargin::decode(&margin.encode()), margin);
    }

    #[test]
    fn the_triangle_rule_keeps_touching_buckets() {
        let centers: [f64; 3] = [0.0, 10.0, 30.0];
        let graph = triangle_graph(&[1, 2, 3], &[2.0, 3.0, 1.0], 5.0, |i, distances| {
            *distances = centers.iter().map(|c| (c - centers[i as usize]).abs()).collect();
        });
        assert_eq!(graph, BucketGraph { buckets: 3, edges: vec![(0, 1)], edge_pairs_max: 2 });
    }
}
