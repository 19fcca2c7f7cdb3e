//! Sixteen numbers in four registers of NEON.

// Loops over registers index several arrays at once; they unroll completely.
#![allow(clippy::needless_range_loop)]

use std::arch::aarch64::*;
use std::mem::transmute;

/// Sixteen floats.
#[derive(Clone, Copy)]
pub(crate) struct Floats([float32x4_t; 4]);

impl Floats {
    /// Sets all sixteen lanes to `value`.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn splat(value: f32) -> Self {
        Self([vdupq_n_f32(value); 4])
    }

    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn load(values: &[f32; 16]) -> Self {
        // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
        Self(unsafe { transmute::<[f32; 16], [float32x4_t; 4]>(*values) })
    }

    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn to_array(self) -> [f32; 16] {
        // SAFETY: as in `load`.
        unsafe { transmute::<[float32x4_t; 4], [f32; 16]>(self.0) }
    }

    /// Returns `self + other`.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn plus(self, other: Self) -> Self {
        let mut sums = self.0;
        for quarter in 0..4 {
            sums[quarter] = vaddq_f32(sums[quarter], other.0[quarter]);
        }
        Self(sums)
    }

    /// Returns `self + (x - y)^2`. There are two roundings: one of the difference, and one of the sum.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn plus_squared_difference(self, x: Self, y: Self) -> Self {
        let mut sums = self.0;
        for quarter in 0..4 {
            let difference = vsubq_f32(x.0[quarter], y.0[quarter]);
            sums[quarter] = vfmaq_f32(sums[quarter], difference, difference);
        }
        Self(sums)
    }

    /// Returns a mask of the lanes that are not greater than `limit`. NaN counts as not greater.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn not_above(self, limit: f32) -> u64 {
        let limit = vdupq_n_f32(limit);
        let mut above = [vdupq_n_u32(0); 4];
        for quarter in 0..4 {
            // The comparison is "greater", negated later, since "less or equal" would be false for NaN.
            above[quarter] = vcgtq_f32(self.0[quarter], limit);
        }
        bits_of_zeros(above)
    }

    /// Replaces each lane that is greater than the lane of `others`, and its position in `places`. NaN in `others`
    /// replaces nothing.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn take_less(&mut self, places: &mut Integers, others: Self, other_places: Integers) {
        for quarter in 0..4 {
            let is_less = vcltq_f32(others.0[quarter], self.0[quarter]);
            self.0[quarter] = vbslq_f32(is_less, others.0[quarter], self.0[quarter]);
            places.0[quarter] = vbslq_u32(is_less, other_places.0[quarter], places.0[quarter]);
        }
    }
}

/// Sixteen integers.
#[derive(Clone, Copy)]
pub(crate) struct Integers(pub(crate) [uint32x4_t; 4]);

impl Integers {
    /// Sets all sixteen lanes to `value`.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn splat(value: u32) -> Self {
        Self([vdupq_n_u32(value); 4])
    }

    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn load(values: &[u32; 16]) -> Self {
        // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
        Self(unsafe { transmute::<[u32; 16], [uint32x4_t; 4]>(*values) })
    }

    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn to_array(self) -> [u32; 16] {
        // SAFETY: as in `load`.
        unsafe { transmute::<[uint32x4_t; 4], [u32; 16]>(self.0) }
    }

    /// Returns `first`, `first + 1`, ..., `first + 15`.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn from(first: u32) -> Self {
        let mut values = Self::load(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]).0;
        for quarter in 0..4 {
            values[quarter] = vaddq_u32(values[quarter], vdupq_n_u32(first));
        }
        Self(values)
    }

    /// Returns `self + other - 2 * twice`, modulo 2^32.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn plus_minus_twice(self, other: Self, twice: Self) -> Self {
        let mut sums = self.0;
        for quarter in 0..4 {
            let sum = vaddq_u32(sums[quarter], other.0[quarter]);
            sums[quarter] = vmlsq_u32(sum, twice.0[quarter], vdupq_n_u32(2));
        }
        Self(sums)
    }

    /// Returns a mask of the lanes that are at most `limit`.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn not_above(self, limit: u32) -> u64 {
        let limit = vdupq_n_u32(limit);
        let mut above = [vdupq_n_u32(0); 4];
        for quarter in 0..4 {
            above[quarter] = vcgtq_u32(self.0[quarter], limit);
        }
        bits_of_zeros(above)
    }

    /// Replaces each lane that is greater than the lane of `others`, and its position in `places`.
    #[target_feature(enable = "neon")]
    #[inline]
    pub(crate) fn take_less(&mut self, places: &mut Self, others: Self, other_places: Self) {
        for quarter in 0..4 {
            let is_less = vcltq_u32(others.0[quarter], self.0[quarter]);
            self.0[quarter] = vminq_u32(self.0[quarter], others.0[quarter]);
            places.0[quarter] = vbslq_u32(is_less, other_places.0[quarter], places.0[quarter]);
        }
    }
}

/// Returns a mask of the lanes that are zero. In all other lanes, all bits must be set.
#[target_feature(enable = "neon")]
#[inline]
fn bits_of_zeros(lanes: [uint32x4_t; 4]) -> u64 {
    // Keeps the low byte of each lane.
    let low = vuzp1q_u16(vreinterpretq_u16_u32(lanes[0]), vreinterpretq_u16_u32(lanes[1]));
    let high = vuzp1q_u16(vreinterpretq_u16_u32(lanes[2]), vreinterpretq_u16_u32(lanes[3]));
    let bytes = vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
    // Usually no lane is zero. Half a byte of each lane shows this with fewer instructions.
    let nibbles = vget_lane_u64::<0>(vreinterpret_u64_u8(vshrn_n_u16::<4>(vreinterpretq_u16_u8(bytes))));
    if nibbles == u64::MAX {
        return 0;
    }
    // SAFETY: both are 16 bytes without padding, for which every bit pattern is a value.
    let weights =
        unsafe { transmute::<[u8; 16], uint8x16_t>([1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]) };
    let bits = vbicq_u8(weights, bytes);
    u64::from(vaddv_u8(vget_low_u8(bits))) | u64::from(vaddv_u8(vget_high_u8(bits))) << 8
}

/// Adds the lanes of four distances in the order of the reference's tree. The additions are the same as there, except
/// that operands may be swapped.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn tree(sums: [Floats; 4]) -> [f32; 4] {
    let mut fours = [vdupq_n_f32(0.0); 4];
    for (four, Floats([a, b, c, d])) in fours.iter_mut().zip(sums) {
        *four = vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d));
    }
    let [a, b, c, d] = fours;
    // Lanes 0 and 1 of each distance remain.
    let (low, high) = (halves_added(a, b), halves_added(c, d));
    // SAFETY: both are 16 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<float32x4_t, [f32; 4]>(vpaddq_f32(low, high)) }
}

/// Adds lanes `l` and `l + 2` of each register. The low half of the result has the sums of `a`, the high half those
/// of `b`.
#[target_feature(enable = "neon")]
#[inline]
fn halves_added(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
    vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(a, b)), vreinterpretq_f32_f64(vzip2q_f64(a, b)))
}

/// Transposes a matrix of eight by eight floats.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn transposed_floats(rows: [[f32; 8]; 8]) -> [[f32; 8]; 8] {
    // SAFETY: both are 256 bytes without padding, for which every bit pattern is a value.
    let rows = unsafe { transmute::<[[f32; 8]; 8], [[uint32x4_t; 2]; 8]>(rows) };
    // SAFETY: as above.
    unsafe { transmute::<[[uint32x4_t; 2]; 8], [[f32; 8]; 8]>(transposed(rows)) }
}

/// Subtracts `center` from each byte, modulo 256, and transposes a matrix of eight by eight words of four bytes.
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn transposed_words(rows: [&[u8; 32]; 8], center: u8) -> [[u8; 32]; 8] {
    let center = vdupq_n_u8(center);
    let mut words = [[vdupq_n_u32(0); 2]; 8];
    for (words, row) in words.iter_mut().zip(rows) {
        // SAFETY: both are 32 bytes without padding, for which every bit pattern is a value.
        let halves = unsafe { transmute::<[u8; 32], [uint8x16_t; 2]>(*row) };
        for half in 0..2 {
            words[half] = vreinterpretq_u32_u8(vsubq_u8(halves[half], center));
        }
    }
    // SAFETY: both are 256 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<[[uint32x4_t; 2]; 8], [[u8; 32]; 8]>(transposed(words)) }
}

/// Transposes a matrix of eight by eight words, as four matrices of four by four.
#[target_feature(enable = "neon")]
#[inline]
fn transposed(rows: [[uint32x4_t; 2]; 8]) -> [[uint32x4_t; 2]; 8] {
    let mut out = rows;
    for rows_half in 0..2 {
        for half in 0..2 {
            let [a, b, c, d] = [0, 1, 2, 3].map(|row| rows[4 * rows_half + row][half]);
            let (ab, cd) = (vtrn1q_u32(a, b), vtrn1q_u32(c, d));
            let (ab_odd, cd_odd) = (vtrn2q_u32(a, b), vtrn2q_u32(c, d));
            out[4 * half][rows_half] = pairs::<false>(ab, cd);
            out[4 * half + 1][rows_half] = pairs::<false>(ab_odd, cd_odd);
            out[4 * half + 2][rows_half] = pairs::<true>(ab, cd);
            out[4 * half + 3][rows_half] = pairs::<true>(ab_odd, cd_odd);
        }
    }
    out
}

/// Returns the low halves of `a` and `b`, or the high halves if `HIGH` is set.
#[target_feature(enable = "neon")]
#[inline]
fn pairs<const HIGH: bool>(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
    let (a, b) = (vreinterpretq_u64_u32(a), vreinterpretq_u64_u32(b));
    vreinterpretq_u32_u64(if HIGH { vzip2q_u64(a, b) } else { vzip1q_u64(a, b) })
}
