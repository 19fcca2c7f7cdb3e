//! Distances of bytes from products.
//!
//! Columns are interleaved, and stored as signed bytes: the middle of the range of a block is subtracted. If their
//! products with the bytes of the rows are small enough, `narrow.rs` adds them in 16 bits. Otherwise, shifts turn four
//! elements into pairs of 16-bit integers, which `vpmaddwd` multiplies and adds without saturation. The bytes of a row
//! are widened once, and used for all columns of its group. Storing widened columns would save one instruction in ten
//! but take twice the memory.

use std::arch::x86_64::*;
use std::mem::{MaybeUninit, transmute};
use std::ops::Range;

use crate::block_levels::bytes::{Line, Sums, cut, finished, lines};
use crate::columns::{ByteRange, PackedColumns, TILE_COLUMNS};
use crate::registers::Integers;
use crate::tile::{Block, Group, TILE_ROWS};

use super::super::rows::{self, GroupRows, bytes, squares, widened};
use super::narrow;

/// Number of dimensions whose elements are widened together. They stay in the first-level cache together with some
/// columns.
const STRIPE: usize = 2048;
const STRIPE_QUADS: usize = STRIPE / 4;

/// Number of elements that are widened at once.
const WIDENED: usize = 32;

/// Loads a line into two registers.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::x86) fn halves(line: &Line) -> [__m256i; 2] {
    // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<Line, [__m256i; 2]>(*line) }
}

/// Returns the signed bytes at even positions and those at odd positions, both as 16-bit integers.
#[target_feature(enable = "avx2")]
#[inline]
fn signed(bytes: __m256i) -> [__m256i; 2] {
    [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)), _mm256_srai_epi16::<8>(bytes)]
}

/// Returns the squared length of a padded vector, or of a multiple of 32 elements.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::x86) fn norm(vector: &[u8]) -> u32 {
    let mut sums = _mm256_setzero_si256();
    for line in vector.as_chunks().0 {
        sums = _mm256_add_epi32(sums, squares(bytes(line)));
    }
    sum_of_lanes(sums)
}

/// Returns the sum of all lanes.
#[target_feature(enable = "avx2")]
#[inline]
fn sum_of_lanes(sums: __m256i) -> u32 {
    let four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
    let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b11_10>(four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<1>(two))).cast_unsigned()
}

/// The rows of a group. One stripe of them is held in widened form.
pub(crate) struct Rows {
    group: GroupRows,
    /// For each row, the widened elements of the stripe: of each chunk of [`WIDENED`] elements, first those at even
    /// positions, then those at odd positions.
    parts: [[[MaybeUninit<[i32; 8]>; STRIPE / WIDENED]; 2]; TILE_ROWS],
    /// Number of chunks of `parts` that are initialized.
    written: usize,
    /// Number of the stripe in `parts`.
    stripe: usize,
}

impl Rows {
    /// Creates rows without a widened stripe.
    #[inline(always)]
    pub(super) fn new(group: GroupRows) -> Self {
        // A nested array expression would be filled with zeros, which takes longer than some blocks.
        // SAFETY: values of `MaybeUninit` need no initialization.
        let parts =
            unsafe { MaybeUninit::<[[[MaybeUninit<_>; STRIPE / WIDENED]; 2]; TILE_ROWS]>::uninit().assume_init() };
        Self { group, parts, written: 0, stripe: usize::MAX }
    }

    /// Returns how many products of quads can be added in 16 bits if the columns have this range: 1, 2, 4 or 8. Returns 0
    /// if not even the products of half a quad fit.
    #[inline(always)]
    fn quads_together(&self, range: ByteRange) -> usize {
        let pair = 2 * u32::from(self.group.largest) * u32::from(range.largest);
        match i16::MAX.cast_unsigned() as u32 / pair.max(1) {
            0 => 0,
            1 => 1,
            2..4 => 2,
            4..8 => 4,
            _ => 8,
        }
    }

    /// Widens a stripe of the rows, unless this stripe is held already.
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

    /// Returns the pairs of a row in the stripe, one per quad. With `odd` 0, they are of the elements at even positions;
    /// with 1, of those at odd positions.
    #[inline(always)]
    fn part(&self, row: usize, odd: usize) -> &[i32] {
        let written = &self.parts[row][odd][..self.written];
        // SAFETY: `hold` wrote the first `written` chunks of every part.
        unsafe { written.assume_init_ref() }.as_flattened()
    }
}

/// Computes the distances of a group to a block of columns.
#[target_feature(enable = "avx2")]
pub(super) fn block(group: &Group<'_, u8>, rows: &mut Rows, columns: &PackedColumns<u8>, from: usize) -> Block<u8> {
    let (lines, range) = (lines(columns, from), columns.ranges[from / TILE_COLUMNS]);
    let mut sums = [Integers::splat(0); TILE_ROWS];
    let together = rows.quads_together(range);
    add_products(&mut sums, group, rows, together, lines, 0..lines.len());
    finished(sums, rows.group.whole.terms(range.center), columns, from)
}

/// Computes the distances of a group to a block of columns. `None` if their heads show that all are above `limit`.
#[target_feature(enable = "avx2")]
pub(super) fn block_within(
    group: &Group<'_, u8>,
    rows: &mut Rows,
    columns: &PackedColumns<u8>,
    from: usize,
    limit: u32,
) -> Option<Block<u8>> {
    let GroupRows { whole, heads: Some(heads), .. } = rows.group else {
        return Some(block(group, rows, columns, from));
    };
    let (lines, range) = (lines(columns, from), columns.ranges[from / TILE_COLUMNS]);
    let together = rows.quads_together(range);
    rows::block_within(&whole, &heads, (columns, from), range.center, limit, |sums, quads| {
        add_products(sums, group, rows, together, lines, quads);
    })
}

/// Adds the products of some quads of a group with a block of columns. `lines` has all lines of the block.
#[target_feature(enable = "avx2")]
#[inline]
fn add_products(
    sums: &mut Sums,
    group: &Group<'_, u8>,
    rows: &mut Rows,
    together: usize,
    lines: &[Line],
    quads: Range<usize>,
) {
    match together {
        8 => narrow::add_products::<8>(sums, group, lines, quads),
        4 => narrow::add_products::<4>(sums, group, lines, quads),
        2 => narrow::add_products::<2>(sums, group, lines, quads),
        1 => narrow::add_products::<1>(sums, group, lines, quads),
        _ => add_wide_products(sums, group, rows, lines, quads),
    }
}

/// Adds products that do not fit in 16 bits.
#[target_feature(enable = "avx2")]
#[inline]
fn add_wide_products(sums: &mut Sums, group: &Group<'_, u8>, rows: &mut Rows, lines: &[Line], quads: Range<usize>) {
    let mut start = quads.start;
    while start < quads.end {
        let (stripe, first) = (start / STRIPE_QUADS, start % STRIPE_QUADS);
        let end = quads.end.min(start - first + STRIPE_QUADS);
        rows.hold(&group.rows, stripe);
        add_products_of_stripe(sums, rows, &lines[start..end], first);
        start = end;
    }
}

/// Adds products with `lines`, the first of which is number `first` of the stripe that the rows hold.
#[target_feature(enable = "avx2")]
#[inline]
fn add_products_of_stripe(sums: &mut Sums, wide: &Rows, lines: &[Line], first: usize) {
    let mut rows: [[&[i32]; 2]; TILE_ROWS] = [[&[]; 2]; TILE_ROWS];
    for row in 0..TILE_ROWS {
        for odd in 0..2 {
            rows[row][odd] = &wide.part(row, odd)[first..][..lines.len()];
        }
    }
    let mut local = *sums;
    for quad in 0..lines.len() {
        let [left, right] = halves(&lines[quad]);
        let columns = [signed(left), signed(right)];
        for row in 0..TILE_ROWS {
            for odd in 0..2 {
                let pair = _mm256_set1_epi32(rows[row][odd][quad]);
                for half in 0..2 {
                    let products = _mm256_madd_epi16(pair, columns[half][odd]);
                    local[row].0[half] = _mm256_add_epi32(local[row].0[half], products);
                }
            }
        }
    }
    *sums = local;
}

/// Returns the squared distance of two padded vectors.
#[target_feature(enable = "avx2")]
pub(super) fn distance(x: &[u8], y: &[u8]) -> u32 {
    let mut sums = [_mm256_setzero_si256(); 2];
    for (x, y) in x.as_chunks().0.iter().zip(y.as_chunks().0) {
        let (x, y) = (bytes(x), bytes(y));
        // One of the two saturating differences is 0, so `or` yields |x - y|.
        let [even, odd] = widened(_mm256_or_si256(_mm256_subs_epu8(x, y), _mm256_subs_epu8(y, x)));
        sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(even, even));
        sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(odd, odd));
    }
    sum_of_lanes(_mm256_add_epi32(sums[0], sums[1]))
}

/// Returns the squared distances of the padded vector `x` to eight others, from differences.
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
