//! Fast sums in f32 with a known error, and conversion of f16 to f32. These are loops over lanes that the compiler
//! vectorizes for each level. The results of all levels are equal, bit for bit.

use crate::reference::{Reference, sum_in_lanes};

/// Number of partial sums.
const LANES: usize = 64;
/// Factor that corrects the exponent after the bits of an f16 are read as an f32.
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

/// Converts f16 to f32. The formats have the same layout, with fewer bits in f16. After the bits are shifted into
/// place, only the exponent is too small.
#[inline(always)]
pub(crate) fn halves_as_floats(halves: &[u8], floats: &mut [f32]) {
    for (&half, float) in halves.as_chunks().0.iter().zip(floats) {
        let half = u32::from(u16::from_le_bytes(half));
        let size = f32::from_bits((half & 0x7fff) << 13) * REBIAS;
        *float = f32::from_bits(size.to_bits() | (half & 0x8000) << 16);
    }
}

/// Returns a bound on the error of [`crate::Kernel::dot_near`] and [`crate::Kernel::squared_distance_near`], as a
/// fraction of the sum of the absolute values of the terms. It holds if nothing overflows or underflows.
///
/// Let `u = 2^-24` be the bound on the relative error of one rounding. A term takes at most three roundings itself,
/// one in each of the `ceil(dimensions / 64)` steps of its lane, and six in the tree (Higham, Accuracy and Stability
/// of Numerical Algorithms, section 4.2). As in [`crate::relative_error`], two more cover the terms of second order.
pub fn near_error(dimensions: usize) -> f64 {
    (dimensions.div_ceil(LANES) + 11) as f64 * 2.0_f64.powi(-24)
}
