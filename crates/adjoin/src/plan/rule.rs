//! The rules that decide which pairs of members of two buckets are compared.
//!
//! Let x be a member of bucket i, and y a member of bucket j. A rule depends on the distances of x and y to both
//! centers, and on the distance of the centers (D). A rule consists of one or two [`RulePart`]s, and admits a pair if
//! one of them does. Each part adds a number for x and a number for y, and compares the sum with a limit. The limit
//! grows with the *threshold* `t` of the rule, which is the only number that a calibration sets. So for each pair and
//! each edge, there is a least threshold that admits it.

use serde::{Deserialize, Serialize};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::bucket_graph::EdgeSide;

/// Rule that decides which pairs are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Admits a pair if the margins of both members, each towards the other's center, add up to at most a limit that
    /// follows from eps. Misses no pair.
    MarginSum,
    /// Admits a pair if the key sum or the margin sum admits it. The key sum estimates the distance of two members
    /// from their distances to both centers. It is precise if cells are smaller than eps. The margin sum admits
    /// members near the bisector of their centers. It is precise if cells are larger than eps.
    Union,
}

impl Rule {
    /// Returns the name for statistics and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::MarginSum => "margin-sum",
            Self::Union => "union",
        }
    }

    /// Returns whether the rule is proved to miss no pair. If not, it needs a threshold from a calibration.
    pub fn is_exact(self) -> bool {
        self == Self::MarginSum
    }

    /// Returns the parts of the rule for an edge between two centers with the distance `gap`.
    pub fn parts(self, eps: f64, gap: Gap) -> RuleParts {
        let along = 2.0 * gap.distance() * eps;
        let part = |measure, offset, scale| Some(RulePart { measure, offset, scale });
        match self {
            // Key sum: d(x, y)^2 = d(x, c_j)^2 + d(y, c_i)^2 - D^2 - 2 <x - c_i, y - c_j>. On average, the last term
            // is 0, since residuals are orthogonal. Margin sum: 2 D d(x, y) is always at least the sum of both
            // margins.
            Self::Union => [part(Measure::Distance, gap.squared, eps * eps), part(Measure::Margin, -along, along)],
            Self::MarginSum => [part(Measure::Margin, 0.0, along), None],
        }
    }
}

/// Distance between two centers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gap {
    /// `D^2`.
    pub squared: f64,
}

impl Gap {
    fn distance(self) -> f64 {
        self.squared.sqrt()
    }

    /// Returns a lower bound on the measure of any member towards the other center. `radius` is the radius of the
    /// member's bucket.
    pub fn least(self, measure: Measure, radius: f64) -> f64 {
        let distance = self.distance();
        // Let r be the distance of a member to its own center. By the triangle inequality, its distance to the other
        // center is at least D - r. So the squares of these distances differ by at least D (D - 2 r).
        match measure {
            Measure::Distance => (distance - radius).max(0.0).powi(2),
            Measure::Margin => distance * (distance - 2.0 * radius),
        }
    }
}

/// Position of a member: its squared distances to its own center and to the other one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// To its own center.
    pub own: f64,
    /// To the other center.
    pub other: f64,
}

/// Number that a rule computes for a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// The squared distance to the other center.
    Distance,
    /// The squared distance to the other center, minus the squared distance to the member's own center.
    Margin,
}

impl Measure {
    /// Returns the measure of a member.
    pub fn of(self, place: Place) -> f64 {
        match self {
            Self::Distance => place.other,
            Self::Margin => place.other - place.own,
        }
    }
}

/// Part of a rule for an edge. Admits a pair if the measures of both members add up to at most `offset + scale * t`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RulePart {
    /// Measure that is computed for each member.
    pub measure: Measure,
    offset: f64,
    scale: f64,
}

/// The parts of a rule for an edge.
pub(crate) type RuleParts = [Option<RulePart>; 2];

impl RulePart {
    /// Returns the largest sum of measures that threshold `t` admits.
    pub fn limit(&self, t: f64) -> f64 {
        self.offset + self.scaled(t)
    }

    /// Returns the part of the limit that depends on the threshold `t`. It is 0 if eps is 0 or the centers are equal,
    /// even if `t` is infinite.
    fn scaled(&self, t: f64) -> f64 {
        // A scale of 0 times an infinite threshold would be NaN.
        if self.scale > 0.0 { self.scale * t } else { 0.0 }
    }

    /// Returns a member's measure minus half of the offset. This excess is of the order of eps, so it can be stored
    /// with few digits, no matter how far apart the centers are.
    pub fn excess(&self, measure: f64) -> f64 {
        measure - self.offset / 2.0
    }

    /// Returns the least threshold that admits members with these excesses.
    fn threshold(&self, x: f64, y: f64) -> f64 {
        let excess = x + y;
        if self.scale > 0.0 {
            return excess / self.scale;
        }
        // Excesses were rounded up to f32 when stored.
        let size: f64 = [x, y].into_iter().filter(|excess| excess.is_finite()).map(f64::abs).sum();
        let slack = 2.0 * f64::from(f32::EPSILON) * size + f64::from(f32::MIN_POSITIVE);
        if excess <= slack { f64::NEG_INFINITY } else { f64::INFINITY }
    }
}

/// Returns the least threshold at which a rule with these parts admits a pair, if its edge exists.
pub(crate) fn pair_threshold(parts: &RuleParts, x: Place, y: Place) -> f64 {
    let of = |part: &RulePart| part.threshold(part.excess(part.measure.of(x)), part.excess(part.measure.of(y)));
    parts.iter().flatten().map(of).fold(f64::INFINITY, f64::min)
}

/// Minimum number of pairs for which an edge is worth holding two buckets in memory. A larger minimum would reduce the
/// recall of vectors with few neighbors.
const EDGE_PAIRS_MIN: u32 = 4;
/// Ranks of the members whose measures are stored; their products reach [`EDGE_PAIRS_MIN`].
const RANKS: [u32; 3] = [1, 2, 4];

/// One side of an edge: the least excesses of a bucket's members towards another center, for both parts of a rule.
/// Contains the excesses of the members with ranks 1, 2 and 4.
#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Nearness {
    /// The bucket of the members.
    pub from: u32,
    /// The other bucket.
    pub towards: u32,
    /// The excesses for each part, by rank. An excess is infinite if the member is out of reach. If there are fewer
    /// members than ranks, the last member is repeated.
    pub least: [[f32; 3]; 2],
}

impl EdgeSide for Nearness {
    fn direction(&self) -> (u32, u32) {
        (self.from, self.towards)
    }
}

/// Returns for each part the excess above which a member cannot be in a pair at any threshold up to `t_max`.
/// `other_radius` is the radius of the other bucket.
pub(crate) fn excess_limits(parts: &RuleParts, t_max: f64, gap: Gap, other_radius: f64) -> [f64; 2] {
    let of = |part: RulePart| part.scaled(t_max) - part.excess(gap.least(part.measure, other_radius));
    parts.map(|part| part.map_or(f64::NEG_INFINITY, of))
}

/// Graph of the pairs of buckets that may be compared, with the least threshold at which each pair is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ThresholdGraph {
    /// Edges (i, j) with i < j in ascending order, each with its least threshold.
    pub edges: Vec<(u32, u32, f32)>,
}

impl ThresholdGraph {
    /// Adds the edges for which a threshold of at most `t_max` admits `EDGE_PAIRS_MIN` pairs, or all pairs if there
    /// are fewer.
    ///
    /// `sides` must be sorted by edge, and contain both sides of an edge or none. If a side is missing, no member of
    /// its bucket is in reach. `rows` returns the number of members of a bucket.
    pub(crate) fn add(
        &mut self,
        sides: &[Nearness],
        t_max: f64,
        rows: impl Fn(u32) -> u32,
        parts: impl Fn(u32, u32) -> RuleParts,
    ) {
        for sides in sides.chunk_by(|a, b| a.edge() == b.edge()) {
            let (i, j) = sides[0].edge();
            let of = |bucket: u32| {
                let side = sides.iter().find(|side| side.from == bucket);
                side.map_or([[f32::INFINITY; 3]; 2], |side| side.least)
            };
            let edge_t = edge_threshold(&parts(i, j), [of(i), of(j)], [rows(i), rows(j)]);
            if edge_t <= t_max {
                // The threshold is rounded up, so that a run with exactly this threshold does not lose the edge.
                self.edges.push((i, j, (edge_t as f32).next_up()));
            }
        }
    }

    /// Returns the least threshold of an edge; infinity if there is no such edge.
    pub(crate) fn edge_t(&self, i: u32, j: u32) -> f64 {
        let edge = (i.min(j), i.max(j));
        let at = self.edges.binary_search_by_key(&edge, |&(i, j, _)| (i, j));
        at.map_or(f64::INFINITY, |at| self.edges[at].2.into())
    }
}

/// Returns the least threshold at which an edge has enough pairs. Uses rectangles that the members with stored ranks
/// bound.
fn edge_threshold(parts: &RuleParts, least: [[[f32; 3]; 2]; 2], rows: [u32; 2]) -> f64 {
    // If two small buckets have fewer pairs than the minimum, all of their pairs suffice.
    let enough = EDGE_PAIRS_MIN.min(rows[0].saturating_mul(rows[1]));
    let of = |(number, part): (usize, &Option<RulePart>)| {
        let part = part.as_ref()?;
        let side = |side: usize, rank: usize| f64::from(least[side][number][rank]);
        let ranks = (0..3).flat_map(|a| (0..3).map(move |b| (a, b)));
        // The a-th least member of one side and the b-th least member of the other bound a rectangle of a times b
        // pairs.
        let enough = ranks.filter(|&(a, b)| RANKS[a] * RANKS[b] >= enough);
        Some(enough.map(|(a, b)| part.threshold(side(0, a), side(1, b))).fold(f64::INFINITY, f64::min))
    };
    parts.iter().enumerate().filter_map(of).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    type Point = [f64; 3];

    fn squared(x: &Point, y: &Point) -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - y) * (x - y)).sum()
    }

    fn points(count: usize, seed: u64) -> Vec<Point> {
        let mut random = Random::new(seed, "points");
        (0..count).map(|_| [(); 3].map(|()| random.uniform())).collect()
    }

    /// Returns the positions of x, which belongs to center i, and of y, which belongs to center j.
    fn places(x: &Point, y: &Point, i: &Point, j: &Point) -> (Place, Place) {
        (Place { own: squared(x, i), other: squared(x, j) }, Place { own: squared(y, j), other: squared(y, i) })
    }

    #[test]
    fn margins_of_a_pair_within_eps_never_exceed_it() {
        let all = points(40, 1);
        for [x, y, i, j] in all.as_chunks().0 {
            let (eps, gap) = (squared(x, y).sqrt(), Gap { squared: squared(i, j) });
            let (a, b) = places(x, y, i, j);
            for (rule, bound) in [(Rule::MarginSum, 1.0), (Rule::Union, 2.0)] {
                let threshold = pair_threshold(&rule.parts(eps, gap), a, b);
                assert!(threshold <= bound + 1e-12, "{} {threshold}", rule.name());
            }
        }
    }

    #[test]
    fn a_pair_passes_from_its_threshold_on() {
        let all = points(40, 2);
        for [x, y, i, j] in all.as_chunks().0 {
            let (a, b) = places(x, y, i, j);
            for rule in [Rule::Union, Rule::MarginSum] {
                let parts = rule.parts(0.3, Gap { squared: squared(i, j) });
                let t = pair_threshold(&parts, a, b);
                let admits = |t: f64| {
                    let of = |part: &RulePart| part.measure.of(a) + part.measure.of(b) <= part.limit(t);
                    parts.iter().flatten().any(of)
                };
                assert!(admits(t + 1e-9) && !admits(t - 1e-9), "{} {t}", rule.name());
            }
        }
    }

    #[test]
    fn equal_centers_exclude_no_pair() {
        let gap = Gap { squared: 0.0 };
        let place = Place { own: 2.0, other: 2.0 };
        let parts = Rule::Union.parts(0.1, gap);
        assert_eq!(pair_threshold(&parts, place, place), f64::NEG_INFINITY);
    }

    /// Returns a side with stored excesses for the first part of the union rule.
    fn side(from: u32, towards: u32, least: [f32; 3]) -> Nearness {
        Nearness { from, towards, least: [least, [f32::INFINITY; 3]] }
    }

    #[test]
    fn a_sum_of_both_sides_needs_rectangles_of_enough_pairs() {
        let key = |a: f32| a - 4.5; // D^2 / 2
        let sides = |far: f32| [side(0, 1, [key(1.0), key(2.0), key(4.0)]), side(1, 0, [key(1.0), key(2.0), key(far)])];
        let parts = |_: u32, _: u32| [Rule::Union.parts(1.0, Gap { squared: 9.0 })[0], None];
        for (far, threshold) in [(2.5, 1.0 + 2.5 - 9.0), (100.0, 2.0 + 2.0 - 9.0)] {
            let mut graph = ThresholdGraph::default();
            graph.add(&sides(far), 10.0, |_| 100, parts);
            assert!((graph.edge_t(1, 0) - threshold).abs() < 1e-5, "{far}");
        }
        let edge = |rows: u32, sides: &[Nearness], t_max: f64| {
            let mut graph = ThresholdGraph::default();
            graph.add(sides, t_max, |_| rows, parts);
            graph.edge_t(0, 1)
        };
        let all = sides(2.5);
        assert!((edge(1, &all, 10.0) - (1.0 + 1.0 - 9.0)).abs() < 1e-5, "one pair is enough if there is no other");
        assert_eq!(edge(100, &all, -6.0), f64::INFINITY, "too far");
        assert_eq!(edge(100, &all[..1], 10.0), f64::INFINITY, "one side has no pairs");
    }
}
