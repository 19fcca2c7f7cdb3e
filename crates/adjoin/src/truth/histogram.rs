//! Approximate histogram of distances.

use crate::base::geometry::Coordinate;

/// Number of bins. The bin of a squared distance is given by the upper 16 bits of its f32, so a bin is less than 1 %
/// wide.
const BINS: usize = 1 << 16;

/// Histogram of computed squared distances.
pub(crate) struct DistanceHistogram {
    counts: Vec<u64>,
}

impl DistanceHistogram {
    /// Bytes of a histogram.
    pub(crate) const BYTES: u64 = 8 * BINS as u64;

    /// Creates an empty histogram.
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BINS] }
    }

    /// Adds distances.
    pub(crate) fn add<T: Coordinate>(&mut self, squared: &[T::Distance]) {
        // Bits of nonnegative floats are in the order of the floats.
        squared.iter().for_each(|&squared| self.counts[(T::rough(squared).to_bits() >> 16) as usize] += 1);
    }

    /// Subtracts `zeros` distances of 0, for example of vectors to themselves.
    pub(crate) fn leave_out_zeros(&mut self, zeros: u64) {
        self.counts[0] = self.counts[0].saturating_sub(zeros);
    }

    /// Returns the approximate squared distance with the given rank. Returns `None` if there are fewer distances.
    pub(crate) fn squared_of(&self, rank: u64) -> Option<f64> {
        let mut below = 0;
        let bin = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        Some(f64::from(f32::from_bits((bin as u32) << 16)))
    }

    /// Returns the approximate number of distances that are at most the given squared distance.
    pub(crate) fn count_within(&self, squared: f64) -> u64 {
        let bin = ((squared.max(0.0) as f32).min(f32::MAX).to_bits() >> 16) as usize;
        self.counts[..=bin].iter().sum()
    }
}
