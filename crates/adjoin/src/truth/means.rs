//! Estimates of population means from a sample, with bounds.

use super::poisson::{least_mean, most_mean, weight};
use crate::base::random::Random;
use crate::base::report::Interval;

/// Replicates of the bootstrap.
const REPLICATES: usize = 400;
/// Each tail of an interval.
const TAIL: f64 = 0.025;
/// If fewer vectors than this have a nonzero number, there is too little data for a bootstrap.
const SEEN_MIN: usize = 20;
/// Quantile of the standard normal distribution for one tail.
const DEVIATIONS: f64 = 1.96;

/// Estimates the means of several nonnegative numbers of vectors, with 95 % confidence intervals. `numbers` has a
/// list per number, with an element per sampled vector. If `whole` is true, the sample is the whole population, and
/// the means are exact.
///
/// The bounds are computed by a bootstrap over vectors. If few vectors have a nonzero number, the interval includes
/// the exact interval for this number of events. If none has, the upper bound is given by the rule of three.
pub(crate) fn means(numbers: &[Vec<f64>], whole: bool, seed: u64) -> Vec<Interval> {
    let estimates = numbers.iter().map(|of| of.iter().sum::<f64>() / of.len().max(1) as f64);
    if whole {
        return estimates.map(|estimate| Interval { estimate, low: estimate, high: estimate }).collect();
    }
    let vectors = numbers.first().map_or(0, Vec::len);
    let mut random = Random::new(seed, "means");
    let mut replicates = vec![Vec::with_capacity(REPLICATES); numbers.len()];
    let mut weights = vec![0.0; vectors];
    for _ in 0..REPLICATES {
        weights.iter_mut().for_each(|drawn| *drawn = weight(&mut random));
        let all = weights.iter().sum::<f64>().max(1.0);
        for (of, replicates) in numbers.iter().zip(&mut replicates) {
            replicates.push(of.iter().zip(&weights).map(|(number, weight)| number * weight).sum::<f64>() / all);
        }
    }
    let with_bounds = estimates.zip(numbers.iter().zip(replicates));
    with_bounds.map(|(estimate, (of, replicates))| interval(estimate, of, replicates)).collect()
}

fn interval(estimate: f64, numbers: &[f64], mut replicates: Vec<f64>) -> Interval {
    replicates.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| replicates[(share * (replicates.len() - 1) as f64).round() as usize];
    // The percentiles of a bootstrap may not enclose the estimate, so the bounds are widened if necessary.
    let (mut low, mut high) = (at(TAIL).min(estimate), at(1.0 - TAIL).max(estimate));
    let seen = numbers.iter().filter(|number| **number > 0.0).count();
    let count = numbers.len().max(1) as f64;
    // If all numbers are 0, every replicate is 0, and the interval would have no width.
    if seen == 0 {
        high = most_mean(0, TAIL) / count;
    } else if seen < SEEN_MIN {
        low = low.min(estimate * least_mean(seen as u32, TAIL) / seen as f64);
        high = high.max(estimate * most_mean(seen as u32, TAIL) / seen as f64);
    }
    Interval { estimate, low, high }
}

/// Returns the least fraction of the population that is consistent with the sample, with 97.5 % confidence (Wilson's
/// interval).
pub(crate) fn least_share(seen: u64, all: u64) -> f64 {
    if all == 0 {
        return 0.0;
    }
    let (n, squared) = (all as f64, DEVIATIONS * DEVIATIONS);
    let share = seen as f64 / n;
    let spread = DEVIATIONS * (share * (1.0 - share) / n + squared / (4.0 * n * n)).sqrt();
    ((share + squared / (2.0 * n) - spread) / (1.0 + squared / n)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a random number for each vector. Most are 0, the others are at most 20.
    fn numbers(vectors: usize, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed, "numbers");
        let number = |random: &mut Random| if random.below(10) == 0 { random.below(21) as f64 } else { 0.0 };
        (0..vectors).map(|_| number(&mut random)).collect()
    }

    #[test]
    fn mean_intervals_cover_the_mean_at_the_stated_rate() {
        for vectors in [60, 1_000] {
            let held = (0..200).filter(|&seed| {
                let told = means(&[numbers(vectors, seed)], false, seed)[0];
                (told.low..=told.high).contains(&1.0)
            });
            let held = held.count();
            assert!(held >= 180, "{vectors}: {held} of 200");
        }
    }

    #[test]
    fn zero_counts_have_an_upper_bound_and_complete_samples_are_exact() {
        let none = means(&[vec![0.0; 100]], false, 1)[0];
        assert!(none.estimate == 0.0 && none.low == 0.0 && (0.03..0.04).contains(&none.high), "{none:?}");
        let whole = means(&[vec![1.0, 3.0]], true, 1)[0];
        assert_eq!((whole.estimate, whole.low, whole.high), (2.0, 2.0, 2.0));
    }

    #[test]
    fn fractions_of_small_samples_have_a_lower_bound() {
        assert_eq!(least_share(0, 0), 0.0);
        assert!((0.86..0.87).contains(&least_share(25, 25)));
        assert!((0.40..0.41).contains(&least_share(50, 100)));
    }
}
