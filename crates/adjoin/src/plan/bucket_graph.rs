//! Which pairs of buckets may hold a pair of the result?

/// The least margin of a bucket's members towards another center: the least `d(x, c_j)^2 - d(x, c_i)^2` of all `x` in
/// bucket i, never above its true value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeastMargin {
    /// The other bucket, j.
    pub bucket: u32,
    /// The least margin.
    pub margin: f32,
    /// Members of i that are near enough to take part, whatever j's members are like.
    pub members: u32,
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

/// The edges of the margin-sum bound: buckets i and j are compared if some x in i and y in j may have
/// `margin(x -> j) + margin(y -> i) <= limit(i, j)`. Then no pair within the threshold is missed, whatever center a
/// vector was assigned to: the projections of x and y on the line of both centers are that far apart
/// (docs/methods.md, "The exact rule").
///
/// `margins[i]` lists what was found for bucket i, by ascending other bucket; what is absent is beyond the limit.
pub fn margin_graph(margins: &[Vec<LeastMargin>], limit: impl Fn(u32, u32) -> f64) -> BucketGraph {
    let mut edges = Vec::new();
    let mut edge_pairs_max = 0;
    for (i, towards) in margins.iter().enumerate() {
        let i = i as u32;
        for of_i in towards.iter().filter(|margin| margin.bucket > i) {
            let back = &margins[of_i.bucket as usize];
            let Ok(at) = back.binary_search_by_key(&i, |margin| margin.bucket) else { continue };
            let sum = f64::from(of_i.margin) + f64::from(back[at].margin);
            if within(sum, limit(i, of_i.bucket)) {
                edges.push((i, of_i.bucket));
                edge_pairs_max += u64::from(of_i.members) * u64::from(back[at].members);
            }
        }
    }
    BucketGraph { buckets: margins.len(), edges, edge_pairs_max }
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

    fn least(bucket: u32, margin: f32) -> LeastMargin {
        LeastMargin { bucket, margin, members: 2 }
    }

    #[test]
    fn an_edge_needs_both_sides_near_enough() {
        let margins = [vec![least(1, 3.0), least(2, 1.0)], vec![least(0, 2.0), least(2, 0.0)], vec![least(0, 5.0)]];
        let graph = margin_graph(&margins, |_, _| 5.0);
        assert_eq!(graph, BucketGraph { buckets: 3, edges: vec![(0, 1)], edge_pairs_max: 4 });
        assert_eq!(margin_graph(&margins, |_, _| 6.0).edges, [(0, 1), (0, 2)]);
    }

    #[test]
    fn what_cannot_be_told_is_compared() {
        let margins = [vec![least(1, f32::NEG_INFINITY)], vec![least(0, 0.0)]];
        assert_eq!(margin_graph(&margins, |_, _| f64::NAN).edges.len(), 1);
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
