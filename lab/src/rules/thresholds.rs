//! Thresholds of rules that compare whole buckets. For a bucket and each other one, it is the smallest threshold at
//! which they are compared.

use std::f64::consts::FRAC_2_PI;

use super::Rule;

/// Properties of a bucket and a join that rules for whole buckets need, in addition to the distances between centers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Neighborhood {
    /// Threshold of the join.
    pub(super) eps: f64,
    /// Upper bound on the distances of the bucket's members to its center.
    pub(super) radius: f64,
    /// Number of dimensions of the vectors.
    pub(super) dimensions: usize,
}

/// Returns the thresholds at which a bucket is compared with each other bucket, for rules that compare whole buckets.
/// `squared` has the squared distances between their centers, in ascending order.
pub(super) fn bucket_thresholds(rule: Rule, of: Neighborhood, squared: &[f64]) -> Vec<f64> {
    let Neighborhood { eps, radius, dimensions } = of;
    match rule {
        Rule::Arc => arc_thresholds(eps, 1.0, squared),
        Rule::ArcMu => arc_thresholds(eps, mu(dimensions), squared),
        Rule::ArcRadius => arc_thresholds(radius + eps, 1.0, squared),
        Rule::ArcRadiusMu => arc_thresholds(radius + eps, mu(dimensions), squared),
        _ => (1..=squared.len()).map(|rank| rank as f64).collect(),
    }
}

/// Returns, for each other bucket, the fraction of the ball that is still found if this bucket and all farther ones
/// are dropped. It is 1 minus the missed fraction. By equation 3, the missed fraction is `factor` times the sum of
/// `arccos(min(x, 1))` with `x = (D / 2) / ball`, where `D` is the distance between the centers.
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

/// Returns `pi^(-1/2) Gamma((d - 1) / 2) / Gamma(d / 2)`, the constant of equation 3 for `d` dimensions. It is 1 for
/// two dimensions and `2 / pi` for three. From `d` to `d + 2` dimensions, it is multiplied by `(d - 1) / d`. For one
/// dimension it is infinite, so a bucket that cuts off an arc is never dropped.
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

    const SQUARED: [f64; 4] = [1.0, 4.0, 9.0, 100.0];

    fn whole(rule: Rule, eps: f64, radius: f64, dimensions: usize) -> Vec<f64> {
        bucket_thresholds(rule, Neighborhood { eps, radius, dimensions }, &SQUARED)
    }

    #[test]
    fn rules_for_whole_buckets_order_them_by_distance() {
        assert_eq!(whole(Rule::Nearest, 1.0, 5.0, 8), [1.0, 2.0, 3.0, 4.0]);
        let arc = whole(Rule::Arc, 2.0, 5.0, 8);
        // With the paper's lambda of 1, all buckets are taken. Beyond twice eps, nothing is missed.
        assert!(arc.is_sorted() && arc[3] == 1.0 && arc[0] < arc[1], "{arc:?}");
        assert!((arc[2] - (1.0 - 0.75f64.acos())).abs() < 1e-12);
    }

    #[test]
    fn radius_rules_use_the_farthest_member() {
        assert_eq!(whole(Rule::ArcRadius, 0.5, 1.5, 8), whole(Rule::Arc, 2.0, 0.0, 8));
        assert_eq!(whole(Rule::ArcRadiusMu, 0.5, 1.5, 8), whole(Rule::ArcMu, 2.0, 0.0, 8));
        assert!(whole(Rule::ArcRadius, 2.0, 4.0, 8)[3] < 1.0, "a center at 10 is within twice that");
    }

    #[test]
    fn mu_scales_the_missed_fraction() {
        let (arc, with_mu) = (whole(Rule::Arc, 2.0, 0.0, 7), whole(Rule::ArcMu, 2.0, 0.0, 7));
        let missed = arc.iter().zip(&with_mu).map(|(arc, with_mu)| (mu(7) * (1.0 - arc)) - (1.0 - with_mu));
        assert!(missed.map(f64::abs).fold(0.0, f64::max) < 1e-12);
        assert_eq!(whole(Rule::ArcMu, 2.0, 0.0, 1), [f64::NEG_INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0]);
        assert_eq!(whole(Rule::ArcRadiusMu, 0.0, 0.0, 1), [1.0; 4], "a ball of nothing shares nothing");
    }

    /// Compares with the formula of equation 3, evaluated with known values of the gamma function.
    #[test]
    fn mu_matches_the_formula_of_the_paper() {
        let root_of_pi = std::f64::consts::PI.sqrt();
        let gamma_of_halves = [root_of_pi, 1.0, root_of_pi / 2.0, 1.0, 3.0 / 4.0 * root_of_pi, 2.0];
        for (d, gamma) in (2..).zip(gamma_of_halves.windows(2)) {
            assert!((mu(d) - gamma[0] / gamma[1] / root_of_pi).abs() < 1e-12, "{d}");
        }
        // Gamma(x) / Gamma(x + 1/2) is about x^(-1/2) (1 + 1 / (8 x)).
        let x = 127.0 / 2.0;
        assert!((mu(128) * root_of_pi * f64::sqrt(x) / (1.0 + 1.0 / (8.0 * x)) - 1.0).abs() < 1e-4);
    }
}
