//! Values of rows of bytes, computed once for a group.
//!
//! Columns are stored as `y - c`, and `|x - y|^2 = (|x|^2 - 2 c sum(x)) + |y|^2 - 2 x.(y - c)`. The same holds for heads,
//! and most pairs that are compared are so far apart that their heads show it.

use std::arch::x86_64::*;
use std::mem::transmute;
use std::ops::Range;

use crate::block_levels::bytes::{Sums, finished, quads};
use crate::columns::{HEADS, PackedColumns, TILE_COLUMNS, head_ends};
use crate::panel::Panel;
use crate::registers::Integers;
use crate::tile::{Block, Group, TILE_ROWS};

/// Value that levels with VNNI subtract from the elements of columns, since one operand of `vpdpbusd` is signed.
pub(super) const VNNI_CENTER: u8 = 128;

/// Loads a register of bytes.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn bytes(line: &[u8; 32]) -> __m256i {
    // SAFETY: both are 32 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<[u8; 32], __m256i>(*line) }
}

/// Returns the bytes at even positions and the bytes at odd positions, both as 16-bit integers.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn widened(bytes: __m256i) -> [__m256i; 2] {
    [_mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(bytes)]
}

/// Returns sums of the squares of four bytes each.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn squares(bytes: __m256i) -> __m256i {
    let [even, odd] = widened(bytes);
    _mm256_add_epi32(_mm256_madd_epi16(even, even), _mm256_madd_epi16(odd, odd))
}

/// Squared norms and sums of the rows of a group, or of their heads.
#[derive(Clone, Copy)]
pub(crate) struct RowSums {
    norms: [u32; TILE_ROWS],
    sums: [u32; TILE_ROWS],
}

/// Values of the rows of a group.
pub(crate) struct GroupRows {
    /// Sums of whole rows.
    pub(super) whole: RowSums,
    /// Sums of the heads, if there are any.
    pub(super) heads: Option<[RowSums; HEADS]>,
    /// The largest byte of a row.
    pub(super) largest: u8,
}

impl RowSums {
    /// Returns the value that each row adds to its distances, modulo 2^32.
    #[inline(always)]
    pub(super) fn terms(&self, center: u8) -> [u32; TILE_ROWS] {
        let mut terms = self.norms;
        for row in 0..TILE_ROWS {
            terms[row] = terms[row].wrapping_sub((2 * u32::from(center)).wrapping_mul(self.sums[row]));
        }
        terms
    }

    /// Returns half of each term, rounded down. The rows must be heads.
    #[inline(always)]
    pub(super) fn half_terms(&self, center: u8) -> [i32; TILE_ROWS] {
        let mut halves = [0; TILE_ROWS];
        for row in 0..TILE_ROWS {
            halves[row] = (self.norms[row] / 2).wrapping_sub(u32::from(center) * self.sums[row]).cast_signed();
        }
        halves
    }
}

impl GroupRows {
    /// Computes the values of a group, without heads.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(super) fn new(group: &Group<'_, u8>) -> Self {
        let mut running = Running::new();
        Self { whole: running.add(group, 0..group.rows[0].len()), heads: None, largest: running.largest() }
    }

    /// Computes the values of a group of vectors with `dimensions` dimensions, and of its heads.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(super) fn with_heads(group: &Group<'_, u8>, dimensions: usize) -> Self {
        let Some([quarter, half]) = head_ends(dimensions) else { return Self::new(group) };
        let mut running = Running::new();
        let heads = [running.add(group, 0..quarter), running.add(group, quarter..half)];
        Self { whole: running.add(group, half..group.rows[0].len()), heads: Some(heads), largest: running.largest() }
    }
}

/// Sums and the largest byte of the rows of a group so far, in lanes.
struct Running {
    norms: [__m256i; TILE_ROWS],
    sums: [__m256i; TILE_ROWS],
    most: __m256i,
}

impl Running {
    #[target_feature(enable = "avx2")]
    #[inline]
    fn new() -> Self {
        let zero = _mm256_setzero_si256();
        Self { norms: [zero; TILE_ROWS], sums: [zero; TILE_ROWS], most: zero }
    }

    /// Adds some elements of the rows. Returns the sums of all elements so far.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn add(&mut self, group: &Group<'_, u8>, elements: Range<usize>) -> RowSums {
        for row in 0..TILE_ROWS {
            for chunk in group.rows[row][elements.clone()].as_chunks().0 {
                let x = bytes(chunk);
                self.norms[row] = _mm256_add_epi32(self.norms[row], squares(x));
                // The instruction returns four sums of eight bytes each.
                self.sums[row] = _mm256_add_epi64(self.sums[row], _mm256_sad_epu8(x, _mm256_setzero_si256()));
                self.most = _mm256_max_epu8(self.most, x);
            }
        }
        RowSums { norms: sums_of_lanes(self.norms), sums: sums_of_lanes(self.sums) }
    }

    /// Returns the largest byte.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn largest(&self) -> u8 {
        let half = _mm_max_epu8(_mm256_castsi256_si128(self.most), _mm256_extracti128_si256::<1>(self.most));
        // The instruction finds the smallest of eight 16-bit integers. Here they are inverted bytes.
        let inverted = _mm_xor_si128(half, _mm_set1_epi8(-1));
        let pairs = _mm_min_epu8(inverted, _mm_srli_epi16::<8>(inverted));
        !(_mm_cvtsi128_si32(_mm_minpos_epu16(_mm_and_si128(pairs, _mm_set1_epi16(0xff)))) as u8)
    }
}

/// Adds the lanes of each register.
#[target_feature(enable = "avx2")]
#[inline]
fn sums_of_lanes(sums: [__m256i; TILE_ROWS]) -> [u32; TILE_ROWS] {
    let [a, b, c, d] = sums;
    let four = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    let total = _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
    // SAFETY: both are 16 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<__m128i, [u32; TILE_ROWS]>(total) }
}

/// Computes the norms of the heads of columns. `norm` returns the norm of some elements.
pub(super) fn add_head_norms(
    panel: &Panel<u8>,
    order: &[u32],
    columns: &mut PackedColumns<u8>,
    norm: impl Fn(&[u8]) -> u32,
) {
    let Some(ends) = head_ends(panel.dimensions()) else { return };
    let blocks = order.len().div_ceil(TILE_COLUMNS);
    columns.head_norms.reserve_exact(blocks); // so that `PackedColumns::bytes_for` is a bound
    columns.head_norms.resize(blocks, [[0; TILE_COLUMNS]; HEADS]);
    for (norms, members) in columns.head_norms.iter_mut().zip(order.chunks(TILE_COLUMNS)) {
        for (lane, &member) in members.iter().enumerate() {
            let vector = panel.row(member as usize);
            let (mut start, mut sum) = (0, 0);
            for head in 0..HEADS {
                sum += norm(&vector[start..ends[head]]);
                norms[head][lane] = sum;
                start = ends[head];
            }
        }
    }
}

/// Computes a block of distances in steps. Returns `None` as soon as a head shows that all of them are above `limit`.
/// `add` adds the products of a range of quads to sums.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn block_within(
    whole: &RowSums,
    heads: &[RowSums; HEADS],
    (columns, from): (&PackedColumns<u8>, usize),
    center: u8,
    limit: u32,
    mut add: impl FnMut(&mut Sums, Range<usize>),
) -> Option<Block<u8>> {
    let norms = &columns.head_norms[from / TILE_COLUMNS];
    let mut sums = [Integers::splat(0); TILE_ROWS];
    let mut start = 0;
    for (head, end) in head_ends(columns.dimensions).into_iter().flatten().enumerate() {
        add(&mut sums, start..quads(end));
        if are_above(&sums, &heads[head].half_terms(center), &norms[head], limit) {
            return None;
        }
        start = quads(end);
    }
    add(&mut sums, start..quads(columns.dimensions));
    Some(finished(sums, whole.terms(center), columns, from))
}

/// Returns whether all distances `term + norm - 2 sum` are above `limit`. May return false if one is just above it:
/// `sum - term / 2 < (norm - limit) / 2` is computed with halves that are rounded down.
#[target_feature(enable = "avx2")]
#[inline]
fn are_above(sums: &Sums, half_terms: &[i32; TILE_ROWS], norms: &[u32; TILE_COLUMNS], limit: u32) -> bool {
    // Distances of heads are below 2^31 (`head_ends`), so none is above a larger limit.
    let Ok(limit) = i32::try_from(limit) else { return false };
    let mut largest = sums[0].minus(half_terms[0]);
    for row in 1..TILE_ROWS {
        largest = largest.larger(sums[row].minus(half_terms[row]));
    }
    largest.are_below(Integers::load(norms).minus(limit).halved())
}
