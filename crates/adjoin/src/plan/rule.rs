//! The rules that decide which pairs of two buckets are compared.
//!
//! Let x be in bucket i and y in bucket j. A rule depends on the distances of x and y to both centers, and on the
//! distance of the centers (D). A rule is one or two [`RulePart`]s, and admits a pair that any of them admits. Each
//! part combines a number of x with one of y, and compares the result with a limit that grows with the *threshold* `t`
//! of the rule, the one number that a calibration sets. So each pair and each edge has a least threshold that admits
//! it.

use std::f64::consts::FRAC_2_PI;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::bucket_graph::EdgeSide;
use crate::error::{Error, Result};

/// Which pairs are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Members whose margins towards each other's center add up to at most the threshold: misses nothing.
    MarginSum,
    /// All pairs of buckets that the triangle inequality cannot exclude (DiskJoin, equation 1): misses nothing.
    Triangle,
    /// Key sum or margin sum. The key sum admits members that a sum of distances puts near each other; it is sharp if
    /// cells are smaller than eps. The margin sum admits members near the bisector of their centers; it is sharp if
    /// cells are larger.
    Union,
    /// Members with a distance of at most `sqrt(t) * eps` to the other center, on either side.
    Distance,
    /// Members with a margin of at most `t * eps` towards the other center, on either side.
    Margin,
    /// All members of a bucket with its `t` nearest others.
    Nearest,
    /// All members of a bucket with the members that DiskJoin's probabilistic pruning leaves (section 5.2, Algorithm 3), read
    /// with the ball of radius eps around the center; `t` is its lambda.
    Arc,
    /// [`Self::Arc`] with the constant `mu` that equation 3 has and Algorithm 3 omits.
    ArcMu,
    /// [`Self::Arc`] with a ball that holds everything within eps of a member: its radius is the bucket's plus eps.
    ArcRadius,
    /// [`Self::ArcRadius`] with `mu`.
    ArcRadiusMu,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 10] = [
        Self::Union,
        Self::MarginSum,
        Self::Triangle,
        Self::Distance,
        Self::Margin,
        Self::Nearest,
        Self::Arc,
        Self::ArcMu,
        Self::ArcRadius,
        Self::ArcRadiusMu,
    ];

    /// Returns the name as a strategy.
    pub fn name(self) -> &'static str {
        match self {
            Self::MarginSum => "margin-sum",
            Self::Triangle => "triangle",
            Self::Union => "union",
            Self::Distance => "distance",
            Self::Margin => "margin",
            Self::Nearest => "nearest",
            Self::Arc => "arc",
            Self::ArcMu => "arc-mu",
            Self::ArcRadius => "arc-radius",
            Self::ArcRadiusMu => "arc-radius-mu",
        }
    }

    /// Returns whether it is proved to miss nothing; any other rule needs a threshold from a calibration.
    pub fn is_exact(self) -> bool {
        matches!(self, Self::MarginSum | Self::Triangle)
    }

    /// Returns whether it admits all pairs of an edge or none. Its parts then apply to the values of
    /// [`bucket_thresholds`].
    pub fn takes_whole(self) -> bool {
        match self {
            Self::Triangle | Self::Nearest | Self::Arc | Self::ArcMu | Self::ArcRadius | Self::ArcRadiusMu => true,
            Self::MarginSum | Self::Union | Self::Distance | Self::Margin => false,
        }
    }

    /// Returns its parts on an edge between centers at a distance of `gap`.
    pub fn parts(self, eps: f64, gap: Gap) -> RuleParts {
        let along = 2.0 * gap.distance() * eps;
        let squared = eps * eps;
        let part = |measure, combine, offset, scale| Some(RulePart { measure, combine, offset, scale });
        match self {
            // Key sum: d(x, y)^2 = d(x, c_j)^2 + d(y, c_i)^2 - D^2 - 2 <x - c_i, y - c_j>, and residuals are orthogonal
            // on average. Margin sum: d(x, y) >= the sum of both margins, always.
            Self::Union => [
                part(Measure::Distance, Combine::Sum, gap.squared, squared),
                part(Measure::Margin, Combine::Sum, -along, along),
            ],
            Self::Distance => [part(Measure::Distance, Combine::Either, 0.0, squared), None],
            Self::Margin => [part(Measure::Margin, Combine::Either, 0.0, along), None],
            Self::MarginSum => [part(Measure::Margin, Combine::Sum, 0.0, along), None],
            Self::Triangle | Self::Nearest | Self::Arc | Self::ArcMu | Self::ArcRadius | Self::ArcRadiusMu => {
                [part(Measure::Distance, Combine::Either, 0.0, 1.0), None]
            }
        }
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|rule| rule.name()).collect();
            Error::option(format!("no such rule: {name}; choose one of {}", names.join(", ")))
        })
    }
}

/// Distance of two centers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gap {
    /// `D^2`.
    pub squared: f64,
}

impl Gap {
    fn distance(self) -> f64 {
        self.squared.sqrt()
    }

    /// Returns a lower bound on a measure of members towards the other center, in a bucket of this radius.
    pub fn least(self, measure: Measure, radius: f64) -> f64 {
        let distance = self.distance();
        match measure {
            Measure::Distance => (distance - radius).max(0.0).powi(2),
            Measure::Margin => distance * (distance - 2.0 * radius),
        }
    }
}

/// Position of a member: squared distances to its own center and to the other one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// To its own center.
    pub own: f64,
    /// To the other center.
    pub other: f64,
}

/// The number of a member that a rule uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// The squared distance to the other center.
    Distance,
    /// The squared distance to the other center minus that to its own.
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

/// How the measures of two members are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// Their sum.
    Sum,
    /// The smaller one.
    Either,
}

impl Combine {
    /// Combines two measures.
    pub fn of(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Sum => x + y,
            Self::Either => x.min(y),
        }
    }
}

/// A part of a rule on an edge: admits a pair if its combined measure is at most `offset + scale * t`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RulePart {
    /// The measure of a member.
    pub measure: Measure,
    /// How two measures are combined.
    pub combine: Combine,
    offset: f64,
    scale: f64,
}

/// The parts of a rule on an edge.
pub type RuleParts = [Option<RulePart>; 2];

impl RulePart {
    /// Returns the largest combined measure that threshold `t` admits.
    pub fn limit(&self, t: f64) -> f64 {
        self.offset + self.scaled(t)
    }

    /// Returns what threshold `t` adds: nothing at eps = 0 or for equal centers, even if `t` is infinite.
    fn scaled(&self, t: f64) -> f64 {
        if self.scale > 0.0 { self.scale * t } else { 0.0 }
    }

    /// Returns a member's measure minus its part of the offset. Excesses are of the order of eps, so they can be stored
    /// with few digits, however far apart the centers are.
    pub fn excess(&self, measure: f64) -> f64 {
        measure - self.part_of_offset()
    }

    /// Returns the measure of a member from its excess.
    pub fn measure_of(&self, excess: f64) -> f64 {
        excess + self.part_of_offset()
    }

    fn part_of_offset(&self) -> f64 {
        self.offset / if self.combine == Combine::Sum { 2.0 } else { 1.0 }
    }

    /// Returns the least threshold that admits members with these excesses.
    fn threshold(&self, x: f64, y: f64) -> f64 {
        let excess = self.combine.of(x, y);
        if self.scale > 0.0 {
            return excess / self.scale;
        }
        // Excesses were rounded up to f32 when stored.
        let size: f64 = [x, y].into_iter().filter(|excess| excess.is_finite()).map(f64::abs).sum();
        let slack = 2.0 * f64::from(f32::EPSILON) * size + f64::from(f32::MIN_POSITIVE);
        if excess <= slack { f64::NEG_INFINITY } else { f64::INFINITY }
    }
}

/// Returns the least threshold at which a rule with these parts admits a pair, on an edge that is compared.
pub fn pair_threshold(rule: Rule, parts: &RuleParts, x: Place, y: Place) -> f64 {
    if rule.takes_whole() {
        return f64::NEG_INFINITY;
    }
    let of = |part: &RulePart| part.threshold(part.excess(part.measure.of(x)), part.excess(part.measure.of(y)));
    parts.iter().flatten().map(of).fold(f64::INFINITY, f64::min)
}

/// An edge with fewer pairs is not worth holding two buckets in memory. A larger limit would cost recall of vectors
/// with few neighbors.
const EDGE_PAIRS_MIN: u32 = 4;
/// Ranks of the members whose measures are stored; their products reach [`EDGE_PAIRS_MIN`].
const RANKS: [u32; 3] = [1, 2, 4];

/// The least excesses of a bucket's members towards another center, for both parts of a rule: of ranks 1, 2 and
/// 4.
#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Nearness {
    /// The bucket of the members.
    pub from: u32,
    /// The other bucket.
    pub towards: u32,
    /// The excesses of each part; infinite if that member is out of reach. If there are fewer members, the last one is
    /// repeated.
    pub least: [[f32; 3]; 2],
}

impl EdgeSide for Nearness {
    fn direction(&self) -> (u32, u32) {
        (self.from, self.towards)
    }
}

/// Returns the excesses beyond which members are out of reach up to threshold `t_max`, given the radius of the other
/// bucket.
pub fn excess_limits(parts: &RuleParts, t_max: f64, gap: Gap, other_radius: f64) -> [f64; 2] {
    let of = |part: RulePart| {
        let largest = part.scaled(t_max);
        match part.combine {
            Combine::Sum => largest - part.excess(gap.least(part.measure, other_radius)),
            Combine::Either => largest,
        }
    };
    parts.map(|part| part.map_or(f64::NEG_INFINITY, of))
}

/// Pairs of buckets that may be compared, with the least threshold at which they are.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ThresholdGraph {
    /// Edges (i, j) with i < j, ascending, each with its threshold.
    pub edges: Vec<(u32, u32, f32)>,
}

impl ThresholdGraph {
    /// Adds the edges for which a threshold up to `t_max` admits [`EDGE_PAIRS_MIN`] pairs, or all if there are fewer.
    ///
    /// `sides` must be sorted by edge, and hold both sides of an edge or none; no member of a missing side is in reach.
    /// `rows` returns the number of members of a bucket.
    pub fn add(
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
                self.edges.push((i, j, (edge_t as f32).next_up()));
            }
        }
    }

    /// Returns the threshold of an edge; infinite if there is no such edge.
    pub fn edge_t(&self, i: u32, j: u32) -> f64 {
        let edge = (i.min(j), i.max(j));
        let at = self.edges.binary_search_by_key(&edge, |&(i, j, _)| (i, j));
        at.map_or(f64::INFINITY, |at| self.edges[at].2.into())
    }
}

/// Returns the least threshold at which an edge has enough pairs, by rectangles of the members with stored ranks.
fn edge_threshold(parts: &RuleParts, least: [[[f32; 3]; 2]; 2], rows: [u32; 2]) -> f64 {
    let enough = EDGE_PAIRS_MIN.min(rows[0].saturating_mul(rows[1]));
    let of = |(number, part): (usize, &Option<RulePart>)| {
        let part = part.as_ref()?;
        let side = |side: usize, rank: usize| f64::from(least[side][number][rank]);
        let threshold = |x: f64, y: f64| part.threshold(x, y);
        Some(match part.combine {
            Combine::Sum => {
                let ranks = (0..3).flat_map(|a| (0..3).map(move |b| (a, b)));
                let enough = ranks.filter(|&(a, b)| RANKS[a] * RANKS[b] >= enough);
                enough.map(|(a, b)| threshold(side(0, a), side(1, b))).fold(f64::INFINITY, f64::min)
            }
            Combine::Either => {
                let of = |(near, others): (usize, u32)| {
                    let rank = RANKS.iter().position(|rank| rank.saturating_mul(others) >= enough)?;
                    Some(threshold(side(near, rank), f64::INFINITY))
                };
                [(0, rows[1]), (1, rows[0])].into_iter().filter_map(of).fold(f64::INFINITY, f64::min)
            }
        })
    };
    parts.iter().enumerate().filter_map(of).fold(f64::INFINITY, f64::min)
}

/// Properties of a bucket, in addition to its distances to others, for rules that take whole buckets.
#[derive(Debug, Clone, Copy)]
pub struct Neighborhood {
    /// The threshold of the join.
    pub eps: f64,
    /// Upper bound on the distances of members to the center.
    pub radius: f64,
    /// Dimensions of the vectors.
    pub dimensions: usize,
}

/// Returns the thresholds at which a bucket is compared with others, for a rule that takes whole buckets. `squared` are
/// the squared distances of their centers, ascending.
pub fn bucket_thresholds(rule: Rule, of: Neighborhood, squared: &[f64]) -> Vec<f64> {
    let Neighborhood { eps, radius, dimensions } = of;
    match rule {
        Rule::Arc => arc_thresholds(eps, 1.0, squared),
        Rule::ArcMu => arc_thresholds(eps, mu(dimensions), squared),
        Rule::ArcRadius => arc_thresholds(radius + eps, 1.0, squared),
        Rule::ArcRadiusMu => arc_thresholds(radius + eps, mu(dimensions), squared),
        _ => (1..=squared.len()).map(|rank| rank as f64).collect(),
    }
}

/// Returns the fraction that is found when a bucket and all farther ones are dropped: 1 minus the missed fraction of
/// the ball. By equation 3, that is `factor` times the sum of `arccos(min(x, 1))`, `x = (D / 2) / ball`.
fn arc_thresholds(ball: f64, factor: f64, squared: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let found = squared.iter().rev().map(|squared| {
        sum += (squared.sqrt() / 2.0 / ball).min(1.0).acos();
        // If no arc is cut off, nothing is missed, even if the factor is infinite.
        if sum > 0.0 { 1.0 - factor * sum } else { 1.0 }
    });
    let mut thresholds: Vec<f64> = found.collect();
    thresholds.reverse();
    thresholds
}

/// Returns `pi^(-1/2) Gamma((d - 1) / 2) / Gamma(d / 2)`, the constant of equation 3. It is 1 in two dimensions and `2
/// / pi` in three; from d to d + 2 dimensions, it is multiplied by `(d - 1) / d`. In one dimension it is infinite, so a
/// bucket that shares an arc is never dropped.
fn mu(dimensions: usize) -> f64 {
    let (first, of_first) = match dimensions {
        1 => return f64::INFINITY,
        even if even.is_multiple_of(2) => (2, 1.0),
        _ => (3, FRAC_2_PI),
    };
    (first..dimensions).step_by(2).fold(of_first, |mu, d| mu * (d - 1) as f64 / d as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    type Point = [f64; 3];

    fn squared(x: &Point, y: &Point) -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - y) * (x - y)).sum()
    }

    fn points(count: usize, seed: u64) -> Vec<Point> {
        let mut random = Random::new(seed, "points");
        (0..count).map(|_| [(); 3].map(|()| random.uniform())).collect()
    }

    /// Returns the positions of x (center i) and y (center j).
    fn places(x: &Point, y: &Point, i: &Point, j: &Point) -> (Place, Place) {
        (Place { own: squared(x, i), other: squared(x, j) }, Place { own: squared(y, j), other: squared(y, i) })
    }

    #[test]
    fn margins_of_a_pair_within_eps_never_exceed_it() {
        let all = points(40, 1);
        for [x, y, i, j] in all.as_chunks().0 {
            let (eps, gap) = (squared(x, y).sqrt(), Gap { squared: squared(i, j) });
            let (a, b) = places(x, y, i, j);
            for (rule, bound) in [(Rule::MarginSum, 1.0), (Rule::Union, 2.0), (Rule::Margin, 0.5)] {
                let threshold = pair_threshold(rule, &rule.parts(eps, gap), a, b);
                assert!(threshold <= bound + 1e-12, "{} {threshold}", rule.name());
            }
        }
    }

    #[test]
    fn a_pair_is_admitted_from_its_threshold_on() {
        let all = points(40, 2);
        for [x, y, i, j] in all.as_chunks().0 {
            let (a, b) = places(x, y, i, j);
            for rule in [Rule::Union, Rule::Distance, Rule::Margin, Rule::MarginSum] {
                let parts = rule.parts(0.3, Gap { squared: squared(i, j) });
                let t = pair_threshold(rule, &parts, a, b);
                let admits = |t: f64| {
                    let of = |part: &RulePart| part.combine.of(part.measure.of(a), part.measure.of(b)) <= part.limit(t);
                    parts.iter().flatten().any(of)
                };
                assert!(admits(t + 1e-9) && !admits(t - 1e-9), "{} {t}", rule.name());
            }
        }
    }

    #[test]
    fn centers_in_one_place_part_nobody() {
        let gap = Gap { squared: 0.0 };
        let place = Place { own: 2.0, other: 2.0 };
        let parts = Rule::Union.parts(0.1, gap);
        assert_eq!(pair_threshold(Rule::Union, &parts, place, place), f64::NEG_INFINITY);
    }

    /// Stored excesses of the first part of the distance rule at eps = 1, which are the squared distances.
    fn side(from: u32, towards: u32, least: [f32; 3]) -> Nearness {
        Nearness { from, towards, least: [least, [f32::INFINITY; 3]] }
    }

    #[test]
    fn an_edge_is_there_from_the_threshold_on_that_admits_enough_pairs() {
        let of = |rows: u32, sides: &[Nearness]| {
            let mut graph = ThresholdGraph::default();
            graph.add(sides, 10.0, |_| rows, |_, _| Rule::Distance.parts(1.0, Gap { squared: 9.0 }));
            graph.edge_t(1, 0)
        };
        let both = [side(0, 1, [2.0, 3.0, 5.0]), side(1, 0, [4.0, 6.0, 7.0])];
        assert!((of(100, &both) - 2.0).abs() < 1e-6, "one member meets a hundred");
        assert!((of(2, &both) - 3.0).abs() < 1e-6, "it takes both of two to meet two");
        assert!((of(100, &both[1..]) - 4.0).abs() < 1e-6, "one side is enough for this rule");
        assert_eq!(of(100, &[side(0, 1, [11.0; 3])]), f64::INFINITY, "too far");
    }

    #[test]
    fn a_sum_of_both_sides_needs_rectangles_of_enough_pairs() {
        let key = |a: f32| a - 4.5; // D^2 / 2
        let sides = |far: f32| [side(0, 1, [key(1.0), key(2.0), key(4.0)]), side(1, 0, [key(1.0), key(2.0), key(far)])];
        let parts = |_: u32, _: u32| [Rule::Union.parts(1.0, Gap { squared: 9.0 })[0], None];
        for (far, threshold) in [(2.5, 1.0 + 2.5 - 9.0), (100.0, 2.0 + 2.0 - 9.0)] {
            let mut graph = ThresholdGraph::default();
            graph.add(&sides(far), 10.0, |_| 100, parts);
            assert!((graph.edge_t(0, 1) - threshold).abs() < 1e-5, "{far}");
        }
    }

    const SQUARED: [f64; 4] = [1.0, 4.0, 9.0, 100.0];

    fn whole(rule: Rule, eps: f64, radius: f64, dimensions: usize) -> Vec<f64> {
        bucket_thresholds(rule, Neighborhood { eps, radius, dimensions }, &SQUARED)
    }

    #[test]
    fn whole_buckets_are_asked_for_from_the_nearest_on() {
        assert_eq!(whole(Rule::Nearest, 1.0, 5.0, 8), [1.0, 2.0, 3.0, 4.0]);
        let arc = whole(Rule::Arc, 2.0, 5.0, 8);
        // The paper's lambda of 1 takes all; beyond twice eps nothing is missed.
        assert!(arc.is_sorted() && arc[3] == 1.0 && arc[0] < arc[1], "{arc:?}");
        assert!((arc[2] - (1.0 - 0.75f64.acos())).abs() < 1e-12);
    }

    #[test]
    fn a_ball_around_all_members_reaches_as_far_as_they_do() {
        assert_eq!(whole(Rule::ArcRadius, 0.5, 1.5, 8), whole(Rule::Arc, 2.0, 0.0, 8));
        assert_eq!(whole(Rule::ArcRadiusMu, 0.5, 1.5, 8), whole(Rule::ArcMu, 2.0, 0.0, 8));
        assert!(whole(Rule::ArcRadius, 2.0, 4.0, 8)[3] < 1.0, "a center at 10 is within twice that");
    }

    #[test]
    fn mu_scales_what_is_missed() {
        let (arc, with_mu) = (whole(Rule::Arc, 2.0, 0.0, 7), whole(Rule::ArcMu, 2.0, 0.0, 7));
        let missed = arc.iter().zip(&with_mu).map(|(arc, with_mu)| (mu(7) * (1.0 - arc)) - (1.0 - with_mu));
        assert!(missed.map(f64::abs).fold(0.0, f64::max) < 1e-12);
        assert_eq!(whole(Rule::ArcMu, 2.0, 0.0, 1), [f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0]);
        assert_eq!(whole(Rule::ArcRadiusMu, 0.0, 0.0, 1), [1.0; 4], "a ball of nothing shares nothing");
    }

    /// Values of the gamma function, by the formula of equation 3.
    #[test]
    fn mu_is_that_of_the_paper() {
        let root_of_pi = std::f64::consts::PI.sqrt();
        let gamma_of_halves = [root_of_pi, 1.0, root_of_pi / 2.0, 1.0, 3.0 / 4.0 * root_of_pi, 2.0];
        for (d, gamma) in (2..).zip(gamma_of_halves.windows(2)) {
            assert!((mu(d) - gamma[0] / gamma[1] / root_of_pi).abs() < 1e-12, "{d}");
        }
        // Gamma(x) / Gamma(x + 1/2) is about x^(-1/2) (1 + 1 / (8 x)).
        let x = 127.0 / 2.0;
        assert!((mu(128) * root_of_pi * f64::sqrt(x) / (1.0 + 1.0 / (8.0 * x)) - 1.0).abs() < 1e-4);
    }

    #[test]
    fn rules_are_known_by_their_names() {
        for rule in Rule::ALL {
            assert_eq!(rule.name().parse::<Rule>().unwrap(), rule);
        }
        assert!("arc-sine".parse::<Rule>().unwrap_err().to_string().contains("arc, arc-mu, arc-radius, arc-radius-mu"));
    }
}
