//! Poisson numbers: weights of a bootstrap, and bounds on a mean from an observed count.

use crate::base::random::Random;

/// Largest count for which probabilities are summed. For larger counts, the terms would be too small for f64.
const COUNT_SUMMED_MAX: u32 = 400;

/// Probabilities that a Poisson number with mean 1 is at most 0, 1, 2, ... Later terms do not change the sum anymore. They
/// are computed only by sums and quotients, so that they are equal on every machine.
const AT_MOST: [f64; 19] = {
    let mut term = 1.0 / std::f64::consts::E;
    let mut sums = [term; 19];
    let mut count = 1;
    while count < sums.len() {
        term /= count as f64;
        sums[count] = sums[count - 1] + term;
        count += 1;
    }
    sums
};

/// Draws a Poisson number with mean 1.
pub(super) fn weight(random: &mut Random) -> f64 {
    let uniform = random.uniform();
    AT_MOST.iter().take_while(|&&sum| uniform >= sum).count() as f64
}

/// Returns the probability of at most `count` events, if `mean` events are expected.
fn at_most(count: u32, mean: f64) -> f64 {
    let mut term = (-mean).exp();
    let mut sum = term;
    for k in 1..=count {
        term *= mean / f64::from(k);
        sum += term;
    }
    sum
}

/// Returns the largest mean for which the probability of at most `count` events is at least `tail`. For large counts,
/// the result is slightly larger.
pub(super) fn most_mean(count: u32, tail: f64) -> f64 {
    if count <= COUNT_SUMMED_MAX {
        return bisect(|mean| at_most(count, mean) > tail);
    }
    // Wilson and Hilferty's cube root of a chi-squared number is approximately normal, and this bounds the normal tail.
    let (deviations, events) = ((-2.0 * tail.ln()).sqrt(), f64::from(count) + 1.0);
    events * (1.0 - 1.0 / (9.0 * events) + deviations / (3.0 * events.sqrt())).powi(3)
}

/// Returns the least mean for which the probability of at least `count` events is at least `tail`.
pub(super) fn least_mean(count: u32, tail: f64) -> f64 {
    if count == 0 { 0.0 } else { bisect(|mean| 1.0 - at_most(count - 1, mean) < tail) }
}

/// Returns the point at which a condition that holds at 0 stops holding.
fn bisect(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1000.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if holds(middle) { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_bounds_match_published_tables() {
        // Garwood's exact intervals of 95 %.
        for (count, low, high) in [(0, 0.0, 3.689), (1, 0.0253, 5.572), (3, 0.6187, 8.767), (10, 4.795, 18.39)] {
            assert!((least_mean(count, 0.025) - low).abs() < 2e-3, "{count}");
            assert!((most_mean(count, 0.025) - high).abs() < 2e-3, "{count}");
        }
        assert!((most_mean(0, 0.05) - 3.0).abs() < 0.005, "the rule of three");
        let (summed, by_formula) = (most_mean(COUNT_SUMMED_MAX, 0.005), most_mean(COUNT_SUMMED_MAX + 1, 0.005));
        assert!(summed < by_formula && by_formula < 1.05 * summed, "{summed} {by_formula}");
    }

    #[test]
    fn weights_have_mean_and_variance_1() {
        let mut random = Random::new(1, "test");
        let drawn: Vec<f64> = (0..100_000).map(|_| weight(&mut random)).collect();
        let mean = drawn.iter().sum::<f64>() / 1e5;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}
