//! Arrival times of queries (CALL, section V-A). They have a constant rate, with occasional bursts at three times
//! that rate.
//!
//! The paper uses a Weibull distribution and intervals, but gives neither the parameters nor the length. Here, the
//! times between arrivals have shape 0.8, which is slightly more uneven than a Poisson process. An interval is a
//! second.

use adjoin::Random;

/// Probability that an interval is a burst.
pub(super) const BURST_CHANCE: f64 = 0.1;
const SHAPE: f64 = 0.8;
/// Mean of a Weibull distribution of scale 1: Gamma(1 + 1 / shape).
const MEAN: f64 = 1.133_003_096;

/// Returns the arrival times in seconds, in ascending order. There are `rate` arrivals per second, and `burst` times
/// as many during bursts.
pub(crate) fn arrivals(seconds: f64, rate: f64, burst: f64, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed, "arrivals");
    let bursts: Vec<bool> = (0..seconds.ceil() as usize).map(|_| random.uniform() < BURST_CHANCE).collect();
    let (mut all, mut at) = (Vec::new(), 0.0);
    loop {
        let rate = if bursts.get(at as usize).is_some_and(|&burst| burst) { rate * burst } else { rate };
        at += (-(1.0 - random.uniform()).ln()).powf(1.0 / SHAPE) / MEAN / rate;
        if at >= seconds {
            return all;
        }
        all.push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_seconds_have_bursts_at_the_requested_factor() {
        let (seconds, rate) = (2_000, 50.0);
        let all = arrivals(f64::from(seconds), rate, 3.0, 1);
        assert!(all.is_sorted() && all.last().is_some_and(|&last| last < f64::from(seconds)));
        let mut counts = vec![0; seconds as usize];
        all.iter().for_each(|&at| counts[at as usize] += 1);
        let bursts: Vec<i32> = counts.iter().copied().filter(|&count| count > 100).collect();
        let others: Vec<i32> = counts.iter().copied().filter(|&count| count <= 100).collect();
        let mean = |counts: &[i32]| f64::from(counts.iter().sum::<i32>()) / counts.len() as f64;
        assert!((0.08..0.12).contains(&(bursts.len() as f64 / f64::from(seconds))), "{} bursts", bursts.len());
        assert!((145.0..155.0).contains(&mean(&bursts)), "{}", mean(&bursts));
        assert!((48.0..52.0).contains(&mean(&others)), "{}", mean(&others));
    }
}
