//! Distances of bytes with instructions that every AArch64 processor has: `umull` multiplies eight pairs of bytes,
//! and `uadalp` adds neighboring products to sums of 32 bits.

// Loops over register tiles index several arrays at once; they unroll completely.
#![allow(clippy::needless_range_loop)]

use std::arch::aarch64::*;
use std::mem::transmute;

use crate::block_levels::bytes::{Line, cut, finished, lines};
use crate::columns::PackedColumns;
use crate::registers::Integers;
use crate::tile::{Block, Group, TILE_ROWS};

/// Loads a line into four registers.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn quarters(line: &Line) -> [uint8x16_t; 4] {
    // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<Line, [uint8x16_t; 4]>(*line) }
}

/// Loads a register of bytes.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn bytes(values: &[u8; 16]) -> uint8x16_t {
    // SAFETY: both are 16 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<[u8; 16], uint8x16_t>(*values) }
}

/// Adds the lanes of each of eight registers. Element `k` of the result is the sum of register `k`.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn sums_of_lanes(sums: [uint32x4_t; 8]) -> [u32; 8] {
    let [a, b, c, d, e, f, g, h] = sums;
    let low = vpaddq_u32(vpaddq_u32(a, b), vpaddq_u32(c, d));
    let high = vpaddq_u32(vpaddq_u32(e, f), vpaddq_u32(g, h));
    // SAFETY: both are 32 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<[uint32x4_t; 2], [u32; 8]>([low, high]) }
}

/// Returns the sum of all lanes.
#[target_feature(enable = "neon")]
#[inline]
pub(super) fn sum_of_lanes(Integers([a, b, c, d]): Integers) -> u32 {
    vaddvq_u32(vaddq_u32(vaddq_u32(a, b), vaddq_u32(c, d)))
}

/// Defines the functions that sum squares. `$add_squares` adds the squares of sixteen bytes to four sums.
macro_rules! sums_of_squares {
    ($features:literal, $add_squares:path) => {
        /// Returns the squared length of a padded vector.
        #[target_feature(enable = $features)]
        pub(super) fn norm(vector: &[u8]) -> u32 {
            let mut sums = Integers::splat(0);
            for line in vector.as_chunks().0 {
                let x = quarters(line);
                for quarter in 0..4 {
                    sums.0[quarter] = $add_squares(sums.0[quarter], x[quarter]);
                }
            }
            sum_of_lanes(sums)
        }

        /// Returns the squared distance of two padded vectors, from differences.
        #[target_feature(enable = $features)]
        pub(super) fn distance(x: &[u8], y: &[u8]) -> u32 {
            let mut sums = Integers::splat(0);
            for (x, y) in x.as_chunks().0.iter().zip(y.as_chunks().0) {
                let (x, y) = (quarters(x), quarters(y));
                for quarter in 0..4 {
                    sums.0[quarter] = $add_squares(sums.0[quarter], vabdq_u8(x[quarter], y[quarter]));
                }
            }
            sum_of_lanes(sums)
        }

        /// Returns the squared distances of the padded vector `x` to eight others, from differences.
        #[target_feature(enable = $features)]
        pub(super) fn one_to_eight(x: &[u8], rows: [&[u8]; 8]) -> [u32; 8] {
            let steps = x.len() / 16;
            let x: &[[u8; 16]] = cut(x, steps);
            let mut y: [&[[u8; 16]]; 8] = [&[]; 8];
            for row in 0..8 {
                y[row] = cut(rows[row], steps);
            }
            let mut sums = [vdupq_n_u32(0); 8];
            for step in 0..steps {
                let x = bytes(&x[step]);
                for row in 0..8 {
                    sums[row] = $add_squares(sums[row], vabdq_u8(x, bytes(&y[row][step])));
                }
            }
            sums_of_lanes(sums)
        }
    };
}

pub(super) use sums_of_squares;

sums_of_squares!("neon", add_squares);

/// Adds the squares of sixteen bytes to four sums.
#[target_feature(enable = "neon")]
#[inline]
fn add_squares(sums: uint32x4_t, x: uint8x16_t) -> uint32x4_t {
    let low = vget_low_u8(x);
    vpadalq_u16(vpadalq_u16(sums, vmull_u8(low, low)), vmull_high_u8(x, x))
}

/// Computes the squared distances of a group to the block of columns that starts at `from`.
#[target_feature(enable = "neon")]
pub(super) fn block(
    group: &Group<'_, u8>,
    terms: [u32; TILE_ROWS],
    columns: &PackedColumns<u8>,
    from: usize,
) -> Block<u8> {
    let lines = lines(columns, from);
    let mut sums = [Integers::splat(0); TILE_ROWS];
    // Eight columns are processed at a time. With two sums for each row and column, they fill half of the registers.
    for half in 0..2 {
        let pairs = products(group, lines, half);
        for row in 0..TILE_ROWS {
            let [a, b, c, d] = pairs[row];
            sums[row].0[2 * half] = vpaddq_u32(a, b);
            sums[row].0[2 * half + 1] = vpaddq_u32(c, d);
        }
    }
    finished(sums, terms, columns, from)
}

/// Computes the products of a group with half of the columns of a block. Each product is returned as two neighboring
/// sums, which the caller must add.
#[target_feature(enable = "neon")]
#[inline]
fn products(group: &Group<'_, u8>, lines: &[Line], half: usize) -> [[uint32x4_t; 4]; TILE_ROWS] {
    let mut rows: [&[[u8; 4]]; TILE_ROWS] = [&[]; TILE_ROWS];
    for row in 0..TILE_ROWS {
        rows[row] = cut(group.rows[row], lines.len());
    }
    let mut sums = [[vdupq_n_u32(0); 4]; TILE_ROWS];
    for quad in 0..lines.len() {
        let columns = quarters(&lines[quad]);
        for row in 0..TILE_ROWS {
            let four = vreinterpretq_u8_u32(vdupq_n_u32(u32::from_le_bytes(rows[row][quad])));
            for part in 0..2 {
                let columns = columns[2 * half + part];
                let low = vmull_u8(vget_low_u8(columns), vget_low_u8(four));
                sums[row][2 * part] = vpadalq_u16(sums[row][2 * part], low);
                let high = vmull_high_u8(columns, four);
                sums[row][2 * part + 1] = vpadalq_u16(sums[row][2 * part + 1], high);
            }
        }
    }
    sums
}
