//! Arrival times of requests.

use std::time::Duration;

use adjoin::Random;

/// Shape of the Weibull distribution of the times between arrivals. CALL (section 5) uses that distribution, but does
/// not print its parameters. At 0.5, arrivals cluster: the standard deviation is 2.2 times the mean.
const SHAPE: f64 = 0.5;
/// Mean of that distribution in units of its scale: the gamma function at 1 + 1 / shape = 3.
const MEAN: f64 = 2.0;
/// Probability that a second has a burst, and the factor by which the rate is higher in it (CALL, section 5).
const BURST_CHANCE: f64 = 0.1;
const BURST_TIMES: f64 = 3.0;

/// Returns arrival times, in ascending order, relative to the start. Outside of bursts, there are `rate` arrivals per
/// second on average.
pub(super) fn arrivals(rate: f64, seconds: f64, seed: u64) -> Vec<Duration> {
    let (mut times, mut bursts) = (Random::new(seed, "arrivals"), Random::new(seed, "bursts"));
    let mut rate_of_next = || if bursts.uniform() < BURST_CHANCE { BURST_TIMES * rate } else { rate };
    let (mut moments, mut at, mut second, mut now) = (Vec::new(), 0.0, 0.0, rate_of_next());
    loop {
        // The time to the next arrival, by inversion of the distribution function, in units of the mean. The argument
        // of the logarithm is above 0.
        let mut left = (-(1.0 - times.uniform()).ln()).powf(1.0 / SHAPE) / MEAN;
        // This time elapses at the rate of the current second: three times as fast in a burst.
        while left > now * (second + 1.0 - at) {
            left -= now * (second + 1.0 - at);
            (second, now) = (second + 1.0, rate_of_next());
            at = second;
            if at >= seconds {
                return moments;
            }
        }
        at += left / now;
        if at >= seconds {
            return moments;
        }
        moments.push(Duration::from_secs_f64(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrival_times_depend_on_the_seed_and_ascend() {
        let first = arrivals(100.0, 20.0, 7);
        assert_eq!(first, arrivals(100.0, 20.0, 7));
        assert_ne!(first, arrivals(100.0, 20.0, 8));
        assert!(first.is_sorted() && first.last().unwrap() < &Duration::from_secs(20));
    }

    #[test]
    fn some_seconds_have_bursts_of_arrivals() {
        let moments = arrivals(1_000.0, 400.0, 1);
        let mut counts = vec![0; 400];
        moments.iter().for_each(|moment| counts[moment.as_secs() as usize] += 1);
        let bursts = counts.iter().filter(|&&count| count > 2_000).count();
        assert!((20..=60).contains(&bursts), "{bursts} of 400 seconds");
        let usual: Vec<usize> = counts.into_iter().filter(|&count| count <= 2_000).collect();
        let mean = usual.iter().sum::<usize>() as f64 / usual.len() as f64;
        assert!((900.0..1_100.0).contains(&mean), "{mean}");
    }
}
