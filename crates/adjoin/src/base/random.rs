//! Random numbers that depend only on a seed. They are the same on every machine and in every version.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A stream of random numbers.
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Creates the stream for a seed. Streams with different values of `purpose` are independent.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // Streams are separate for each purpose, so that an additional number in one place does not change numbers
        // elsewhere.
        Self(Xoshiro256PlusPlus::seed_from_u64(seed ^ xxhash_rust::xxh3::xxh3_64(purpose.as_bytes())))
    }

    /// Returns a random number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // Returns the upper half of a product. It is uniform except for a bias of less than end / 2^64.
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a uniform random number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        // An f64 has a precision of 53 bits, so each result is exact and below 1.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an approximately normal random number with mean 0 and variance 1. It is a sum of 12 uniform numbers, so
    /// it does not depend on the `ln` of a library.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// Returns a random number that is less precisely normal, at the cost of a single uniform number. It is a sum of
    /// four numbers of 16 bits, and is at most 3.5 away from 0.
    pub fn rough_normal(&mut self) -> f32 {
        const DEVIATION: f32 = 37837.227; // 2^16 / sqrt(3)
        // A single draw gives four uniform numbers of 16 bits.
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

    /// Returns `count` distinct random numbers below `end`, in ascending order (Knuth, TAOCP 2, 3.4.2, algorithm S).
    pub fn ascending_sample(&mut self, count: u64, end: u64) -> Vec<u64> {
        let mut picked = Vec::with_capacity(count as usize);
        for number in 0..end {
            let missing = count - picked.len() as u64;
            if missing == 0 {
                break;
            }
            // A number is chosen with probability `missing / (end - number)`, so all samples are equally likely.
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
