//! Sums in f64 over vectors of floats, in one fixed order that suits vector registers. Every level compiles the same
//! loops, so the results of all levels are equal, bit for bit.

use crate::reference::{Reference, sum_in_lanes};

/// Number of partial sums.
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

/// Returns the inner product. The product of two floats is exact in f64, so a fused multiply-add would give the same
/// result.
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

/// Returns a bound on the difference between two sums in f64: the result of [`crate::Kernel::dot_wide`] or
/// [`crate::Kernel::squared_distance_wide`], and the sum of the same terms in the order of the elements. The bound is
/// a fraction of the sum of the absolute values of the terms.
///
/// In both sums, a term takes at most `dimensions + 3` roundings with a relative error of at most `u = 2^-53` each
/// (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). Thus both sums are within `(dimensions + 4)
/// u` of the exact one, and their difference is at most twice that. The bound is twice this difference, which leaves
/// a margin for what a caller computes from the sums.
pub fn wide_error(dimensions: usize) -> f64 {
    (4 * (dimensions + 4)) as f64 * 2.0_f64.powi(-53)
}
