//! Products of bytes that fit in 16 bits.
//!
//! `vpmaddubsw` multiplies the unsigned bytes of a row by the signed bytes of columns, and adds pairs of products in 16
//! bits. The smaller the bytes of both are, the more of these sums can be added in 16 bits before they are widened. Codes
//! of 7 or 6 bits, for example, have small bytes.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::block_levels::bytes::{Line, Sums, cut};
use crate::columns::ByteRange;
use crate::panel::Panel;
use crate::registers::Integers;
use crate::tile::{Group, TILE_ROWS};

use super::bytes::halves;

/// Number of bytes that are compared at once.
const LANES: usize = 32;

/// Returns the range of the bytes of some rows of a panel.
#[target_feature(enable = "avx2")]
pub(super) fn range(panel: &Panel<u8>, members: &[u32]) -> ByteRange {
    let (mut least, mut most) = ([u8::MAX; LANES], [0; LANES]);
    for &member in members {
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
    let largest = most.saturating_sub(least).div_ceil(2);
    ByteRange { center: least.min(most) + largest, largest }
}

/// Adds the products of some quads of a group with a block of columns. The products of `N` quads are added in 16 bits.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn add_products<const N: usize>(
    sums: &mut Sums,
    group: &Group<'_, u8>,
    lines: &[Line],
    quads: Range<usize>,
) {
    let mut local = *sums;
    let (chunks, rest) = lines[quads.clone()].as_chunks::<N>();
    let mut rows: [&[[[u8; 4]; N]]; TILE_ROWS] = [&[]; TILE_ROWS];
    let mut row_rests: [&[[u8; 4]]; TILE_ROWS] = [&[]; TILE_ROWS];
    for row in 0..TILE_ROWS {
        let (chunks_of_row, rest_of_row) = cut(group.rows[row], lines.len())[quads.clone()].as_chunks();
        (rows[row], row_rests[row]) = (&chunks_of_row[..chunks.len()], &rest_of_row[..rest.len()]);
    }
    for chunk in 0..chunks.len() {
        for row in 0..TILE_ROWS {
            add_products_of_quads(&mut local[row], &rows[row][chunk], &chunks[chunk]);
        }
    }
    for quad in 0..rest.len() {
        for row in 0..TILE_ROWS {
            add_products_of_quads(&mut local[row], &[row_rests[row][quad]], &[rest[quad]]);
        }
    }
    *sums = local;
}

/// Adds the products of `N` quads of a row with `N` lines.
#[target_feature(enable = "avx2")]
#[inline]
fn add_products_of_quads<const N: usize>(Integers(sums): &mut Integers, row: &[[u8; 4]; N], lines: &[Line; N]) {
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
