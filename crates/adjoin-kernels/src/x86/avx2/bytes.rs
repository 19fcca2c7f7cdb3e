//! Bytes by products: `|x - y|^2 = |x|^2 + |y|^2 - 2 x.y`, exact modulo 2^32, and the squared distance fits 32 bits.
//!
//! Columns are interleaved as for VNNI: a line of 64 bytes holds four consecutive elements of each of 16 columns. A
//! mask and a shift turn them into pairs of 16-bit integers, which `vpmaddwd` multiplies and adds without saturation.
//! The bytes of a row are widened the same way once for all columns of its group. Widened columns would save one
//! instruction in ten, and take twice the memory.

use std::arch::x86_64::*;
use std::mem::{MaybeUninit, transmute};

use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::panel::Panel;
use crate::tile::{Block, Group, TILE_ROWS};

use super::narrow;

/// Four elements of each of sixteen columns.
pub(in crate::x86) type Line = [u8; 64];

/// Products of each row and the columns of a block, as two registers.
pub(in crate::x86) type Sums = [[__m256i; 2]; TILE_ROWS];

/// Dimensions whose elements are widened together. They stay in the first-level cache together with some columns.
const STRIPE: usize = 2048;

/// Elements widened at once.
const WIDENED: usize = 32;

/// Returns the lines of a block of 16 columns: one per four dimensions.
fn quads(dimensions: usize) -> usize {
    dimensions.div_ceil(4)
}

/// Returns the lines of the block that starts at `column`.
pub(in crate::x86) fn lines(columns: &PackedColumns<u8>, column: usize) -> &[Line] {
    let quads = quads(columns.dimensions);
    &columns.storage.as_slice().as_chunks().0[column / TILE_COLUMNS * quads..][..quads]
}

/// Returns the first `steps` arrays of `N` elements of a vector.
#[inline(always)]
pub(in crate::x86) fn cut<T, const N: usize>(vector: &[T], steps: usize) -> &[[T; N]] {
    &vector.as_chunks().0[..steps]
}

/// Loads a register of bytes.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::x86) fn bytes(line: &[u8; 32]) -> __m256i {
    // SAFETY: both are 32 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<[u8; 32], __m256i>(*line) }
}

/// Loads a line as two registers.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::x86) fn halves(line: &Line) -> [__m256i; 2] {
    // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<Line, [__m256i; 2]>(*line) }
}

/// Returns the bytes at even places, then those at odd ones, as 16-bit integers.
#[target_feature(enable = "avx2")]
#[inline]
fn widened(bytes: __m256i) -> [__m256i; 2] {
    [_mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(bytes)]
}

/// Writes columns, each element minus `center`, and norms.
#[target_feature(enable = "avx2")]
pub(in crate::x86) fn interleave(panel: &Panel<u8>, order: &[u32], columns: &mut PackedColumns<u8>, center: u8) {
    let (zeros, quads) = (vec![0; panel.stride()], quads(panel.dimensions()));
    let center = _mm256_set1_epi8(center.cast_signed());
    let filled = order.len().next_multiple_of(TILE_COLUMNS);
    (columns.len, columns.dimensions) = (order.len(), panel.dimensions());
    columns.storage.resize(filled / TILE_COLUMNS * quads);
    let blocks = columns.storage.as_mut_slice().as_chunks_mut::<32>().0.chunks_exact_mut((2 * quads).max(1));
    for (block, members) in blocks.zip(order.chunks(TILE_COLUMNS)) {
        let mut vectors = [&zeros[..]; TILE_COLUMNS];
        for (vector, &member) in vectors.iter_mut().zip(members) {
            *vector = panel.row(member as usize);
        }
        for (half, vectors) in vectors.as_chunks::<8>().0.iter().enumerate() {
            for (chunk, lines) in block.chunks_mut(16).enumerate() {
                interleave_lines(vectors, chunk, center, half, lines);
            }
        }
    }
    columns.norms.resize(filled, 0);
    for (norm_of, &member) in columns.norms.iter_mut().zip(order) {
        *norm_of = norm(panel.row(member as usize));
    }
}

/// Writes chunk `chunk` (32 elements) of eight vectors into one half of up to eight lines: a transposition of eight by
/// eight words.
#[target_feature(enable = "avx2")]
#[inline]
fn interleave_lines(vectors: &[&[u8]; 8], chunk: usize, center: __m256i, half: usize, lines: &mut [[u8; 32]]) {
    let mut words = [_mm256_setzero_si256(); 8];
    for (word, vector) in words.iter_mut().zip(vectors) {
        *word = _mm256_sub_epi8(bytes(&vector.as_chunks().0[chunk]), center);
    }
    // `fours[4 * four + k]` has words k and k + 4 of vectors `4 * four ..+ 4`.
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
    for word in 0..4 {
        let low = _mm256_permute2x128_si256::<0x20>(fours[word], fours[4 + word]);
        let high = _mm256_permute2x128_si256::<0x31>(fours[word], fours[4 + word]);
        for (quad, value) in [(word, low), (word + 4, high)] {
            if let Some(place) = lines.get_mut(2 * quad + half) {
                // SAFETY: as in `bytes`.
                *place = unsafe { transmute::<__m256i, [u8; 32]>(value) };
            }
        }
    }
}

/// Returns the squared length of a padded vector.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::x86) fn norm(vector: &[u8]) -> u32 {
    let mut sums = [_mm256_setzero_si256(); 2];
    for line in vector.as_chunks().0 {
        let [even, odd] = widened(bytes(line));
        sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(even, even));
        sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(odd, odd));
    }
    sum_of_lanes(_mm256_add_epi32(sums[0], sums[1]))
}

/// Adds all lanes.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::x86) fn sum_of_lanes(sums: __m256i) -> u32 {
    let four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b11_10>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<1>(two))).cast_unsigned()
}

/// The rows of a group, widened as far as they were needed.
pub(in crate::x86) struct Rows {
    /// What each row adds to its distances.
    terms: [u32; TILE_ROWS],
    /// How many products of quads fit 16 bits together, if the columns are narrow.
    quads_together: Option<usize>,
    /// Elements of the stripe, by row: of each chunk of [`WIDENED`] those at even places, and those at odd ones.
    parts: [[[MaybeUninit<[i32; 8]>; STRIPE / WIDENED]; 2]; TILE_ROWS],
    /// Chunks written, from the first one on.
    written: usize,
    /// The stripe that `parts` hold.
    stripe: usize,
}

impl Rows {
    /// Creates rows of which nothing is widened.
    #[inline(always)]
    pub(super) fn new(terms: [u32; TILE_ROWS], quads_together: Option<usize>) -> Self {
        let parts = [[[MaybeUninit::uninit(); STRIPE / WIDENED]; 2]; TILE_ROWS];
        Self { terms, quads_together, parts, written: 0, stripe: usize::MAX }
    }

    /// Widens a stripe of the rows, unless it is the one that is held.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn hold(&mut self, rows: &[&[u8]; TILE_ROWS], stripe: usize) {
        if self.stripe == stripe {
            return;
        }
        let chunks = &rows[0].as_chunks::<WIDENED>().0[stripe * (STRIPE / WIDENED)..];
        self.written = chunks.len().min(STRIPE / WIDENED);
        for (row, parts) in rows.iter().zip(&mut self.parts) {
            let chunks = &row.as_chunks::<WIDENED>().0[stripe * (STRIPE / WIDENED)..][..self.written];
            let [evens, odds] = parts;
            for (chunk, (even, odd)) in chunks.iter().zip(evens.iter_mut().zip(odds)) {
                let wide = widened(bytes(chunk));
                // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
                let [low, high] = unsafe { transmute::<[__m256i; 2], [[i32; 8]; 2]>(wide) };
                even.write(low);
                odd.write(high);
            }
        }
        self.stripe = stripe;
    }

    /// Returns the pairs of `quads` quads of the stripe: those at even places or at odd ones.
    #[inline(always)]
    fn part(&self, row: usize, odd: usize, quads: usize) -> &[i32] {
        let written = &self.parts[row][odd][..self.written];
        // SAFETY: `hold` wrote the first `written` chunks of every part.
        let chunks = unsafe { written.assume_init_ref() };
        &chunks.as_flattened()[..quads]
    }
}

/// Computes the distances of a group to a block of columns.
#[target_feature(enable = "avx2")]
pub(super) fn block(group: &Group<'_, u8>, rows: &mut Rows, columns: &PackedColumns<u8>, from: usize) -> Block<u8> {
    let lines = lines(columns, from);
    let sums = match rows.quads_together {
        None => wide_products(group, rows, lines),
        Some(8) => narrow::products::<8>(group, lines),
        Some(4) => narrow::products::<4>(group, lines),
        Some(2) => narrow::products::<2>(group, lines),
        Some(_) => narrow::products::<1>(group, lines),
    };
    finished(sums, rows.terms, columns, from)
}

/// Computes the products of a group with a block of columns.
#[target_feature(enable = "avx2")]
#[inline]
fn wide_products(group: &Group<'_, u8>, rows: &mut Rows, lines: &[Line]) -> Sums {
    let mut sums = [[_mm256_setzero_si256(); 2]; TILE_ROWS];
    for (stripe, lines) in lines.chunks(STRIPE / 4).enumerate() {
        rows.hold(&group.rows, stripe);
        add_products(&mut sums, rows, lines);
    }
    sums
}

/// Adds the products of the rows of a stripe.
#[target_feature(enable = "avx2")]
#[inline]
fn add_products(sums: &mut Sums, wide: &Rows, lines: &[Line]) {
    let mut rows: [[&[i32]; 2]; TILE_ROWS] = [[&[]; 2]; TILE_ROWS];
    for row in 0..TILE_ROWS {
        rows[row] = [wide.part(row, 0, lines.len()), wide.part(row, 1, lines.len())];
    }
    let mut local = *sums;
    for quad in 0..lines.len() {
        let [left, right] = halves(&lines[quad]);
        let columns = [widened(left), widened(right)];
        for row in 0..TILE_ROWS {
            for odd in 0..2 {
                let pair = _mm256_set1_epi32(rows[row][odd][quad]);
                for half in 0..2 {
                    let products = _mm256_madd_epi16(pair, columns[half][odd]);
                    local[row][half] = _mm256_add_epi32(local[row][half], products);
                }
            }
        }
    }
    *sums = local;
}

/// Returns `terms + norms - 2 sums`. Intermediate sums may wrap around; the distance itself fits 32 bits, so it comes
/// out right.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::x86) fn finished(
    mut sums: Sums,
    terms: [u32; TILE_ROWS],
    columns: &PackedColumns<u8>,
    from: usize,
) -> Block<u8> {
    let norms = integers(&columns.norms.as_chunks().0[from / TILE_COLUMNS]);
    for row in 0..TILE_ROWS {
        let term = _mm256_set1_epi32(terms[row].cast_signed());
        for half in 0..2 {
            let doubled = _mm256_slli_epi32::<1>(sums[row][half]);
            sums[row][half] = _mm256_sub_epi32(_mm256_add_epi32(term, norms[half]), doubled);
        }
    }
    // SAFETY: both are 256 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<Sums, Block<u8>>(sums) }
}

/// Implements `Blocks::near`.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::x86) fn near(distances: &[u32; TILE_COLUMNS], limit: u32) -> u64 {
    let [low, high] = integers(distances);
    let limit = _mm256_set1_epi32(limit.cast_signed());
    bits_at_most(low, limit) | bits_at_most(high, limit) << 8
}

/// Returns a bit per lane that is at most the limit, as unsigned integers.
#[target_feature(enable = "avx2")]
#[inline]
fn bits_at_most(values: __m256i, limit: __m256i) -> u64 {
    let near = _mm256_cmpeq_epi32(_mm256_max_epu32(values, limit), limit);
    u64::from(_mm256_movemask_ps(_mm256_castsi256_ps(near)).cast_unsigned())
}

/// Implements `Blocks::nearer`.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::x86) fn nearer(
    distances: &[u32; TILE_COLUMNS],
    first: u32,
    best: &mut [u32; TILE_COLUMNS],
    places: &mut [u32; TILE_COLUMNS],
) {
    let (mut nearest, mut columns) = (integers(best), integers(places));
    let (distances, candidates) = (integers(distances), columns_from(first));
    for half in 0..2 {
        let least = _mm256_min_epu32(nearest[half], distances[half]);
        let kept = _mm256_cmpeq_epi32(least, nearest[half]);
        columns[half] = _mm256_blendv_epi8(candidates[half], columns[half], kept);
        nearest[half] = least;
    }
    (*best, *places) = (array(nearest), array(columns));
}

/// Loads sixteen integers.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn integers(values: &[u32; TILE_COLUMNS]) -> [__m256i; 2] {
    // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<[u32; TILE_COLUMNS], [__m256i; 2]>(*values) }
}

/// Stores sixteen integers.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn array(values: [__m256i; 2]) -> [u32; TILE_COLUMNS] {
    // SAFETY: as in `integers`.
    unsafe { transmute::<[__m256i; 2], [u32; TILE_COLUMNS]>(values) }
}

/// Returns the sixteen columns from `first` on.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn columns_from(first: u32) -> [__m256i; 2] {
    let low = _mm256_add_epi32(_mm256_set1_epi32(first.cast_signed()), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    [low, _mm256_add_epi32(low, _mm256_set1_epi32(8))]
}

/// Returns the squared distance of two padded vectors.
#[target_feature(enable = "avx2")]
pub(super) fn distance(x: &[u8], y: &[u8]) -> u32 {
    let mut sums = [_mm256_setzero_si256(); 2];
    for (x, y) in x.as_chunks().0.iter().zip(y.as_chunks().0) {
        let (x, y) = (bytes(x), bytes(y));
        // One of the saturating differences is 0, so both together are |x - y|.
        let [even, odd] = widened(_mm256_or_si256(_mm256_subs_epu8(x, y), _mm256_subs_epu8(y, x)));
        sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(even, even));
        sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(odd, odd));
    }
    sum_of_lanes(_mm256_add_epi32(sums[0], sums[1]))
}

/// Computes the squared distances of a padded vector to eight, by differences.
#[target_feature(enable = "avx2")]
pub(super) fn one_to_eight(x: &[u8], rows: [&[u8]; 8]) -> [u32; 8] {
    let steps = x.len() / WIDENED;
    let x: &[[u8; WIDENED]] = cut(x, steps);
    let mut y: [&[[u8; WIDENED]]; 8] = [&[]; 8];
    for row in 0..8 {
        y[row] = cut(rows[row], steps);
    }
    let mut sums = [_mm256_setzero_si256(); 8];
    for step in 0..steps {
        let x = bytes(&x[step]);
        for row in 0..8 {
            let y = bytes(&y[row][step]);
            let [even, odd] = widened(_mm256_or_si256(_mm256_subs_epu8(x, y), _mm256_subs_epu8(y, x)));
            let squares = _mm256_add_epi32(_mm256_madd_epi16(even, even), _mm256_madd_epi16(odd, odd));
            sums[row] = _mm256_add_epi32(sums[row], squares);
        }
    }
    let low = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    let high = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[4], sums[5]), _mm256_hadd_epi32(sums[6], sums[7]));
    let total =
        _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(low, high), _mm256_permute2x128_si256::<0x31>(low, high));
    // SAFETY: both are 32 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<__m256i, [u32; 8]>(total) }
}
