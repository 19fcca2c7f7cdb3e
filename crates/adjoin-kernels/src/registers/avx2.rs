//! Sixteen numbers in two registers of AVX2.

// Loops over registers index several arrays at once; they unroll completely.
#![allow(clippy::needless_range_loop)]

use std::arch::x86_64::*;
use std::mem::transmute;

/// Sixteen floats.
#[derive(Clone, Copy)]
pub(crate) struct Floats([__m256; 2]);

impl Floats {
    /// Sets all sixteen lanes to `value`.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn splat(value: f32) -> Self {
        Self([_mm256_set1_ps(value); 2])
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn load(values: &[f32; 16]) -> Self {
        // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
        Self(unsafe { transmute::<[f32; 16], [__m256; 2]>(*values) })
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn to_array(self) -> [f32; 16] {
        // SAFETY: as in `load`.
        unsafe { transmute::<[__m256; 2], [f32; 16]>(self.0) }
    }

    /// Returns `self + other`.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn plus(self, other: Self) -> Self {
        let mut sums = self.0;
        for half in 0..2 {
            sums[half] = _mm256_add_ps(sums[half], other.0[half]);
        }
        Self(sums)
    }

    /// Returns `self + (x - y)^2`. There are two roundings: one of the difference, and one of the sum.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    pub(crate) fn plus_squared_difference(self, x: Self, y: Self) -> Self {
        let mut sums = self.0;
        for half in 0..2 {
            let difference = _mm256_sub_ps(x.0[half], y.0[half]);
            sums[half] = _mm256_fmadd_ps(difference, difference, sums[half]);
        }
        Self(sums)
    }

    /// Returns a mask of the lanes that are not greater than `limit`. NaN counts as not greater.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn not_above(self, limit: f32) -> u64 {
        let limit = _mm256_set1_ps(limit);
        // The comparison is "not greater", since "less or equal" would be false for NaN.
        let bits = |half| u64::from(_mm256_movemask_ps(_mm256_cmp_ps::<_CMP_NGT_UQ>(half, limit)).cast_unsigned());
        bits(self.0[0]) | bits(self.0[1]) << 8
    }

    /// Replaces each lane that is greater than the lane of `others`, and its position in `places`. NaN in `others`
    /// replaces nothing.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn take_less(&mut self, places: &mut Integers, others: Self, other_places: Integers) {
        for half in 0..2 {
            let is_less = _mm256_cmp_ps::<_CMP_LT_OQ>(others.0[half], self.0[half]);
            self.0[half] = _mm256_blendv_ps(self.0[half], others.0[half], is_less);
            let is_less = _mm256_castps_si256(is_less);
            places.0[half] = _mm256_blendv_epi8(places.0[half], other_places.0[half], is_less);
        }
    }
}

/// Sixteen integers.
#[derive(Clone, Copy)]
pub(crate) struct Integers(pub(crate) [__m256i; 2]);

impl Integers {
    /// Sets all sixteen lanes to `value`.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn splat(value: u32) -> Self {
        Self([_mm256_set1_epi32(value.cast_signed()); 2])
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn load(values: &[u32; 16]) -> Self {
        // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
        Self(unsafe { transmute::<[u32; 16], [__m256i; 2]>(*values) })
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn to_array(self) -> [u32; 16] {
        // SAFETY: as in `load`.
        unsafe { transmute::<[__m256i; 2], [u32; 16]>(self.0) }
    }

    /// Returns `first`, `first + 1`, ..., `first + 15`.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn from(first: u32) -> Self {
        let low = _mm256_add_epi32(_mm256_set1_epi32(first.cast_signed()), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        Self([low, _mm256_add_epi32(low, _mm256_set1_epi32(8))])
    }

    /// Returns `self + other - 2 * twice`, modulo 2^32.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn plus_minus_twice(self, other: Self, twice: Self) -> Self {
        let mut sums = self.0;
        for half in 0..2 {
            let doubled = _mm256_slli_epi32::<1>(twice.0[half]);
            sums[half] = _mm256_sub_epi32(_mm256_add_epi32(sums[half], other.0[half]), doubled);
        }
        Self(sums)
    }

    /// Returns `self - value`, modulo 2^32.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn minus(self, value: i32) -> Self {
        let value = _mm256_set1_epi32(value);
        Self([_mm256_sub_epi32(self.0[0], value), _mm256_sub_epi32(self.0[1], value)])
    }

    /// Returns half of each signed lane, rounded down.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn halved(self) -> Self {
        Self([_mm256_srai_epi32::<1>(self.0[0]), _mm256_srai_epi32::<1>(self.0[1])])
    }

    /// Returns the larger of two signed lanes.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn larger(self, other: Self) -> Self {
        Self([_mm256_max_epi32(self.0[0], other.0[0]), _mm256_max_epi32(self.0[1], other.0[1])])
    }

    /// Returns whether all signed lanes are less than those of `others`.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn are_below(self, others: Self) -> bool {
        let below = |half: usize| _mm256_cmpgt_epi32(others.0[half], self.0[half]);
        _mm256_movemask_epi8(_mm256_and_si256(below(0), below(1))) == -1
    }

    /// Returns a mask of the lanes that are at most `limit`.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn not_above(self, limit: u32) -> u64 {
        let limit = _mm256_set1_epi32(limit.cast_signed());
        let bits = |values| {
            let near = _mm256_cmpeq_epi32(_mm256_max_epu32(values, limit), limit);
            u64::from(_mm256_movemask_ps(_mm256_castsi256_ps(near)).cast_unsigned())
        };
        bits(self.0[0]) | bits(self.0[1]) << 8
    }

    /// Replaces each lane that is greater than the lane of `others`, and its position in `places`.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(crate) fn take_less(&mut self, places: &mut Self, others: Self, other_places: Self) {
        for half in 0..2 {
            let least = _mm256_min_epu32(self.0[half], others.0[half]);
            let is_kept = _mm256_cmpeq_epi32(least, self.0[half]);
            places.0[half] = _mm256_blendv_epi8(other_places.0[half], places.0[half], is_kept);
            self.0[half] = least;
        }
    }
}

/// Sums the lanes of each of four distances, by the same tree of additions as the reference implementation. Only the
/// operands of an addition may be swapped.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn tree(sums: [Floats; 4]) -> [f32; 4] {
    let mut eight = [_mm256_setzero_ps(); 4];
    for pair in 0..4 {
        eight[pair] = _mm256_add_ps(sums[pair].0[0], sums[pair].0[1]);
    }
    let four = [halves(eight[0], eight[1]), halves(eight[2], eight[3])];
    // Each part of 128 bits has lanes 0 and 1 of an even distance, then of the next one.
    let two = _mm256_add_ps(
        _mm256_shuffle_ps::<0b01_00_01_00>(four[0], four[1]),
        _mm256_shuffle_ps::<0b11_10_11_10>(four[0], four[1]),
    );
    let one = _mm256_add_ps(two, _mm256_movehdup_ps(two));
    let (low, high) = (_mm256_castps256_ps128(one), _mm256_extractf128_ps::<1>(one));
    // Distances 0 and 2 are in lanes 0 and 2 of `low`. Distances 1 and 3 are in lanes 0 and 2 of `high`.
    let ordered = _mm_unpacklo_ps(_mm_shuffle_ps::<0b10_00>(low, low), _mm_shuffle_ps::<0b10_00>(high, high));
    // SAFETY: both are 16 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<__m128, [f32; 4]>(ordered) }
}

/// Adds lanes `l` and `l + 4` of each register. The low half of the result has the sums of `a`, the high half those
/// of `b`.
#[target_feature(enable = "avx2")]
#[inline]
fn halves(a: __m256, b: __m256) -> __m256 {
    _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
}

/// Transposes a matrix of eight by eight floats.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn transposed_floats(rows: [[f32; 8]; 8]) -> [[f32; 8]; 8] {
    // SAFETY: both are 256 bytes without padding, for which every bit pattern is a value.
    let rows = unsafe { transmute::<[[f32; 8]; 8], [__m256; 8]>(rows) };
    let mut pairs = [_mm256_setzero_ps(); 8];
    for pair in 0..4 {
        pairs[2 * pair] = _mm256_unpacklo_ps(rows[2 * pair], rows[2 * pair + 1]);
        pairs[2 * pair + 1] = _mm256_unpackhi_ps(rows[2 * pair], rows[2 * pair + 1]);
    }
    // `fours[4 * half + k]` has elements k and k + 4 of rows `4 * half ..+ 4`.
    let mut fours = [_mm256_setzero_ps(); 8];
    for half in 0..2 {
        let [a, b, c, d] = [pairs[4 * half], pairs[4 * half + 1], pairs[4 * half + 2], pairs[4 * half + 3]];
        fours[4 * half] = _mm256_shuffle_ps::<0b01_00_01_00>(a, c);
        fours[4 * half + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(a, c);
        fours[4 * half + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(b, d);
        fours[4 * half + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(b, d);
    }
    let mut out = [_mm256_setzero_ps(); 8];
    for element in 0..4 {
        out[element] = _mm256_permute2f128_ps::<0x20>(fours[element], fours[4 + element]);
        out[4 + element] = _mm256_permute2f128_ps::<0x31>(fours[element], fours[4 + element]);
    }
    // SAFETY: as above.
    unsafe { transmute::<[__m256; 8], [[f32; 8]; 8]>(out) }
}

/// Subtracts `center` from each byte, modulo 256, and transposes a matrix of eight by eight words of four bytes.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn transposed_words(rows: [&[u8; 32]; 8], center: u8) -> [[u8; 32]; 8] {
    let center = _mm256_set1_epi8(center.cast_signed());
    let mut words = [_mm256_setzero_si256(); 8];
    for (word, row) in words.iter_mut().zip(rows) {
        // SAFETY: both are 32 bytes without padding, for which every bit pattern is a value.
        *word = _mm256_sub_epi8(unsafe { transmute::<[u8; 32], __m256i>(*row) }, center);
    }
    // `fours[4 * four + k]` has words k and k + 4 of rows `4 * four ..+ 4`.
    let mut fours = [_mm256_setzero_si256(); 8];
    for four in 0..2 {
        let [a, b, c, d] = [words[4 * four], words[4 * four + 1], words[4 * four + 2], words[4 * four + 3]];
        let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
        let (ab_high, cd_high) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
        fours[4 * four] = _mm256_unpacklo_epi64(ab, cd);
        fours[4 * four + 1] = _mm256_unpackhi_epi64(ab, cd);
        fours[4 * four + 2] = _mm256_unpacklo_epi64(ab_high, cd_high);
        fours[4 * four + 3] = _mm256_unpackhi_epi64(ab_high, cd_high);
    }
    let mut out = [_mm256_setzero_si256(); 8];
    for word in 0..4 {
        out[word] = _mm256_permute2x128_si256::<0x20>(fours[word], fours[4 + word]);
        out[4 + word] = _mm256_permute2x128_si256::<0x31>(fours[word], fours[4 + word]);
    }
    // SAFETY: both are 256 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<[__m256i; 8], [[u8; 32]; 8]>(out) }
}
