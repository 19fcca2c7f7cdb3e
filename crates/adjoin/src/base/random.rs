//! Random numbers that are the same for a seed on every machine and in every version.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A stream of random numbers.
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Creates the stream of a seed; streams with different `purpose` are independent.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // The purpose separates streams, so that one more draw in one place changes no other place.
        Self(Xoshiro256PlusPlus::seed_from_u64(seed ^ xxhash_rust::xxh3::xxh3_64(purpose.as_bytes())))
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The upper half of the product: uniform except for a bias below end / 2^64.
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        // 53 bits are the precision of f64, so every result is exact and below 1.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an approximately normal number with mean 0 and variance 1: the sum of 12 uniform ones, which needs no
    /// library's `ln`.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// Returns a rougher normal number at the cost of one uniform number: the sum of four numbers of 16 bits, within
    /// 3.5 of 0.
    pub fn rough_normal(&mut self) -> f32 {
        const DEVIATION: f32 = 37837.227; // 2^16 / sqrt(3)
        // The sum of four uniform numbers of 16 bits, from a single draw.
        let bits = self.0.next_u64();
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        (sum as f32 - 131_070.0) / DEVIATION
    }

    /// Shuffles items (Knuth, TAOCP 2, 3.4.2, algorithm P).
    pub fn shuffle<I>(&mut self, items: &mut [I]) {
        for k in (1..items.len()).rev() {
            items.swap(k, self.below(k as u64 + 1) as usize);
        }
    }

    /// Returns `count` distinct numbers below `end`, ascending (Knuth, TAOCP 2, 3.4.2, algorithm S).
    pub fn ascending_sample(&mut self, count: u64, end: u64) -> Vec<u64> {
        let mut picked = Vec::with_capacity(count as usize);
        for number in 0..end {
            let missing = count - picked.len() as u64;
            if missing == 0 {
                break;
            }
            // Each number is chosen with the probability that is left for it, so all samples are equally likely.
            if self.below(end - number) < missing {
                picked.push(number);
            }
        }
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_ascending_and_have_the_requested_size() {
        for (count, end) in [(0, 0), (0, 5), (5, 5), (3, 1000)] {
            let sample = Random::new(1, "test").ascending_sample(count, end);
            assert_eq!(sample.len() as u64, count);
            assert!(sample.is_sorted_by(|a, b| a < b) && sample.iter().all(|&x| x < end));
        }
    }

    #[test]
    fn random_streams_are_deterministic() {
        let mut stream = Random::new(7, "fixed");
        let first: Vec<u64> = (0..3).map(|_| stream.below(1000)).collect();
        let mut again = Random::new(7, "fixed");
        assert_eq!(first, (0..3).map(|_| again.below(1000)).collect::<Vec<_>>());
        assert_ne!(first[0], Random::new(7, "other").below(1000));
        let mean = (0..10_000).map(|_| stream.normal()).sum::<f64>() / 10_000.0;
        assert!(mean.abs() < 0.05);
    }
}
