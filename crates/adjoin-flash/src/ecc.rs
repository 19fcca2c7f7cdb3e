//! Bit errors of pages. Determines for which pages a hard decision of the decoder fails.
//!
//! Planes have different raw bit error rates (NDSearch, Figure 18(a)). The rate of a plane is the mean rate times a
//! factor whose logarithm is approximately normal. The fraction of a plane's hard decisions that fail is proportional
//! to its rate. The mean of this fraction over all planes is the configured one.

/// For each plane, the fraction of its hard decisions that fail.
#[derive(Debug, Clone)]
pub(crate) struct PlaneErrors {
    shares: Vec<f64>,
    seed: u64,
}

impl PlaneErrors {
    pub(crate) fn new(planes: u64, mean: f64, spread: f64, seed: u64) -> Self {
        let factors = error_factors(planes, spread, seed);
        let shares = factors.into_iter().map(|factor| (mean * factor).min(1.0)).collect();
        Self { shares, seed }
    }

    /// Returns whether the hard decision fails for a read of a plane. `read` is the number of the read within the
    /// run.
    pub(crate) fn fails(&self, plane: u64, read: u64) -> bool {
        let share = self.shares[plane as usize];
        // The lower 40 bits hold the number of the read, which is enough for any run. With a hash, planes need no
        // state of their own.
        share > 0.0 && uniform(self.seed ^ mixed(plane << 40 ^ read)) < share
    }
}

/// Returns the raw bit error rate of each plane as a multiple of the mean over all planes.
pub fn error_factors(planes: u64, spread: f64, seed: u64) -> Vec<f64> {
    // The sum of twelve uniform numbers, each with variance 1/12, is approximately normal.
    let normal = |plane: u64| (0..12).map(|k| uniform(mixed(seed ^ (plane * 12 + k)))).sum::<f64>() - 6.0;
    let factors: Vec<f64> = (0..planes).map(|plane| (spread * normal(plane)).exp()).collect();
    // The mean of log-normal factors is above 1. Dividing by it makes the mean rate the configured one.
    let mean = factors.iter().sum::<f64>() / planes.max(1) as f64;
    factors.into_iter().map(|factor| factor / mean).collect()
}

/// Hashes a number with splitmix64 (Steele, Lea and Flood, 2014). This gives random access to the stream of a seed.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

fn uniform(number: u64) -> f64 {
    // An f64 represents integers of up to 53 bits exactly.
    (mixed(number) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_error_rate_of_planes_is_the_configured_rate() {
        for share in [0.01, 0.05, 0.1, 0.3] {
            let errors = PlaneErrors::new(512, share, 0.5, 1);
            let failed = (0..400_000u64).filter(|read| errors.fails(read % 512, *read)).count() as f64 / 400_000.0;
            assert!((failed / share - 1.0).abs() < 0.05, "{failed} of {share}");
        }
    }

    #[test]
    fn planes_differ_and_none_fails_without_errors() {
        let factors = error_factors(512, 0.5, 1);
        let (least, most) = factors.iter().fold((f64::MAX, 0.0f64), |(a, b), &f| (a.min(f), b.max(f)));
        assert!(least < 0.5 && most > 2.0, "{least} {most}");
        let none = PlaneErrors::new(8, 0.0, 0.5, 1);
        assert!((0..1_000).all(|read| !none.fails(read % 8, read)));
    }
}
