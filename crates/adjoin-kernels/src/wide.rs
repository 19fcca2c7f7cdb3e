//! Sums in f64 over vectors of floats, in one fixed order that suits vector registers. Every level compiles the same
//! loops, so all agree bit for bit.

use crate::reference::{Reference, sum_in_lanes};

/// Partial sums.
const LANES: usize = 32;

/// Sums in f64, implemented by each level.
pub(crate) trait Wide {
    fn dot(&self, x: &[f32], y: &[f32]) -> f64;
    fn squared_distance(&self, x: &[f32], y: &[f32]) -> f64;
}

impl Wide for Reference {
    fn dot(&self, x: &[f32], y: &[f32]) -> f64 {
        dot(x, y)
    }

    fn squared_distance(&self, x: &[f32], y: &[f32]) -> f64 {
        squared_distance(x, y)
    }
}

/// Returns the inner product. The product of two floats is exact in f64, so fusing it with the sum changes nothing.
#[inline(always)]
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f64 {
    sum_in_lanes::<_, LANES>(x, y, |x, y| f64::from(x) * f64::from(y))
}

/// Returns the squared distance.
#[inline(always)]
pub(crate) fn squared_distance(x: &[f32], y: &[f32]) -> f64 {
    sum_in_lanes::<_, LANES>(x, y, |x, y| {
        let difference = f64::from(x) - f64::from(y);
        difference * difference
    })
}

/// Returns a bound on the difference between [`crate::Kernel::dot_wide`] or [`crate::Kernel::squared_distance_wide`]
/// and the same sum in f64 in the order of the elements, as a fraction of the sum of the absolute terms.
///
/// Either way a term carries at most `dimensions + 3` roundings of `u = 2^-53` (Higham, Accuracy and Stability of
/// Numerical Algorithms, section 4.2), so both are within `(dimensions + 4) u` of the exact sum. The bound is twice
/// their sum, which leaves a margin for what a caller computes from them.
pub fn wide_error(dimensions: usize) -> f64 {
    (4 * (dimensions + 4)) as f64 * 2.0_f64.powi(-53)
}
