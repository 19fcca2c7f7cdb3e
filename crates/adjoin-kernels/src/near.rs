//! Fast f32 sums with a known error, and conversion of halves to floats. These are loops over lanes, which the compiler
//! vectorizes for each level. All levels agree bit for bit.

use crate::reference::{Reference, sum_in_lanes};

/// Partial sums.
const LANES: usize = 64;
/// Power of two that corrects the exponent of a half read as a float.
const REBIAS: f32 = f32::from_bits((127 + 112) << 23);

/// Sums in f32 and conversions, implemented by each level.
pub(crate) trait Near {
    fn dot(&self, x: &[f32], y: &[f32]) -> f32;
    fn squared_distance(&self, x: &[f32], y: &[f32]) -> f32;
    fn halves_as_floats(&self, halves: &[u8], floats: &mut [f32]);
}

impl Near for Reference {
    fn dot(&self, x: &[f32], y: &[f32]) -> f32 {
        dot(x, y)
    }

    fn squared_distance(&self, x: &[f32], y: &[f32]) -> f32 {
        squared_distance(x, y)
    }

    fn halves_as_floats(&self, halves: &[u8], floats: &mut [f32]) {
        halves_as_floats(halves, floats);
    }
}

#[inline(always)]
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
    sum_in_lanes::<_, LANES>(x, y, |x, y| x * y)
}

#[inline(always)]
pub(crate) fn squared_distance(x: &[f32], y: &[f32]) -> f32 {
    sum_in_lanes::<_, LANES>(x, y, |x, y| (x - y) * (x - y))
}

/// Converts halves to floats. A half has the layout of a float with fewer bits, so after shifting only its exponent is
/// too small.
#[inline(always)]
pub(crate) fn halves_as_floats(halves: &[u8], floats: &mut [f32]) {
    for (&half, float) in halves.as_chunks().0.iter().zip(floats) {
        let half = u32::from(u16::from_le_bytes(half));
        let size = f32::from_bits((half & 0x7fff) << 13) * REBIAS;
        *float = f32::from_bits(size.to_bits() | (half & 0x8000) << 16);
    }
}

/// Returns a bound on the error of [`crate::Kernel::dot_near`] and [`crate::Kernel::squared_distance_near`], as a
/// fraction of the sum of the absolute terms, if nothing overflows or underflows.
///
/// With `u = 2^-24`, a term carries at most three roundings of its own, one for each of the `ceil(dimensions / 64)`
/// steps of its lane, and six in the tree (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). As in
/// [`crate::relative_error`], two more cover the terms of second order.
pub fn near_error(dimensions: usize) -> f64 {
    (dimensions.div_ceil(LANES) + 11) as f64 * 2.0_f64.powi(-24)
}
