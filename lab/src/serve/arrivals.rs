//! Arrival times of queries (CALL, section V-A). They have a constant rate, with occasional bursts at three times
//! that rate.
//!
//! The paper uses a Weibull distribution and intervals, but gives neither the parameters nor the length. Here, the
//! times between arrivals have shape 0.8, which is slightly more uneven than a Poisson process. An interval is a
//! second.

use adjoin::Random;

/// Probability that an interval is a burst.
const BURST_CHANCE: f64 = 0.1;
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
