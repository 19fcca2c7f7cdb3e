//! Products of bytes for narrow columns: their bytes differ little, as in codes of 7 or 6 bits.
//!
//! The columns are stored as signed bytes, minus a value in the middle of their range. `vpmaddubsw` multiplies the
//! unsigned bytes of a row by them, and adds pairs of products in 16 bits. These do not saturate, since `2 * 255 * 64
//! < 2^15`. The smaller the elements, the more of these sums can be added in 16 bits before they are widened.

use std::arch::x86_64::*;

use crate::block_levels::bytes::{Line, Sums, cut};
use crate::columns::Narrow;
use crate::panel::Panel;
use crate::registers::Integers;
use crate::tile::{Group, TILE_ROWS};

use super::bytes::{bytes, halves, norm, sum_of_lanes};

/// Maximum absolute value of a stored element. With it, rows may have any bytes.
const STORED_MAX: u32 = 64;

/// Number of bytes that are compared at once.
const LANES: usize = 32;

/// Returns how the columns are stored if their bytes differ little enough; `None` otherwise.
#[target_feature(enable = "avx2")]
pub(super) fn narrow(panel: &Panel<u8>, order: &[u32]) -> Option<Narrow> {
    let (mut least, mut most) = ([u8::MAX; LANES], [0; LANES]);
    for &member in order {
        let (chunks, rest) = panel.row(member as usize)[..panel.dimensions()].as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                (least[lane], most[lane]) = (chunk[lane].min(least[lane]), chunk[lane].max(most[lane]));
            }
        }
        for ((&byte, least), most) in rest.iter().zip(&mut least).zip(&mut most) {
            (*least, *most) = (byte.min(*least), byte.max(*most));
        }
    }
    let (least, most) = (least.into_iter().fold(u8::MAX, u8::min), most.into_iter().fold(0, u8::max));
    let largest = u32::from(most.saturating_sub(least)).div_ceil(2);
    let center = u32::from(least.min(most)) + largest;
    (largest <= STORED_MAX).then_some(Narrow { center: center as u8, largest })
}

/// Returns how many products of quads can be added in 16 bits for this group: 1, 2, 4 or 8.
#[target_feature(enable = "avx2")]
pub(super) fn quads_together(group: &Group<'_, u8>, narrow: Narrow) -> usize {
    let mut most = 0;
    for row in group.rows {
        for &byte in row {
            most = byte.max(most);
        }
    }
    let pair = 2 * u32::from(most) * narrow.largest;
    let fits = |quads: u32| quads * pair <= i16::MAX.cast_unsigned().into();
    [8, 4, 2].into_iter().find(|&quads| fits(quads)).unwrap_or(1) as usize
}

/// Returns the value that a row adds to each of its distances: `|x|^2 - 2 center sum(x)`, modulo 2^32.
#[target_feature(enable = "avx2")]
pub(super) fn row_term(vector: &[u8], narrow: Narrow) -> u32 {
    let mut sums = _mm256_setzero_si256();
    for chunk in vector.as_chunks().0 {
        // The instruction returns four sums of eight bytes each.
        sums = _mm256_add_epi64(sums, _mm256_sad_epu8(bytes(chunk), _mm256_setzero_si256()));
    }
    norm(vector).wrapping_sub((2 * u32::from(narrow.center)).wrapping_mul(sum_of_lanes(sums)))
}

/// Computes the products of a group with a block of columns. The products of `N` quads are added in 16 bits.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn products<const N: usize>(group: &Group<'_, u8>, lines: &[Line]) -> Sums {
    let mut sums = [Integers::splat(0); TILE_ROWS];
    let (chunks, rest) = lines.as_chunks::<N>();
    let mut rows: [&[[[u8; 4]; N]]; TILE_ROWS] = [&[]; TILE_ROWS];
    let mut row_rests: [&[[u8; 4]]; TILE_ROWS] = [&[]; TILE_ROWS];
    for row in 0..TILE_ROWS {
        let (chunks_of_row, rest_of_row) = cut(group.rows[row], lines.len()).as_chunks();
        (rows[row], row_rests[row]) = (&chunks_of_row[..chunks.len()], &rest_of_row[..rest.len()]);
    }
    for chunk in 0..chunks.len() {
        for row in 0..TILE_ROWS {
            add_products(&mut sums[row], &rows[row][chunk], &chunks[chunk]);
        }
    }
    for quad in 0..rest.len() {
        for row in 0..TILE_ROWS {
            add_products(&mut sums[row], &[row_rests[row][quad]], &[rest[quad]]);
        }
    }
    sums
}

/// Adds the products of `N` quads of a row with `N` lines.
#[target_feature(enable = "avx2")]
#[inline]
fn add_products<const N: usize>(Integers(sums): &mut Integers, row: &[[u8; 4]; N], lines: &[Line; N]) {
    let mut pairs = [_mm256_setzero_si256(); 2];
    for quad in 0..N {
        let four = _mm256_set1_epi32(i32::from_ne_bytes(row[quad]));
        let columns = halves(&lines[quad]);
        for half in 0..2 {
            pairs[half] = _mm256_add_epi16(pairs[half], _mm256_maddubs_epi16(four, columns[half]));
        }
    }
    for half in 0..2 {
        sums[half] = _mm256_add_epi32(sums[half], _mm256_madd_epi16(pairs[half], _mm256_set1_epi16(1)));
    }
}
