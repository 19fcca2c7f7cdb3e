//! Distances of bytes with `udot`. It multiplies sixteen pairs of bytes, and adds four products to each sum of 32 bits.

// Loops over register tiles index several arrays at once; they unroll completely.
#![allow(clippy::needless_range_loop)]

use std::arch::aarch64::*;
use std::arch::asm;

use crate::block_levels::bytes::{Line, Sums, cut, finished, lines};
use crate::columns::PackedColumns;
use crate::registers::Integers;
use crate::tile::{Block, Group, TILE_ROWS};

use super::bytes::{bytes, quarters, sum_of_lanes, sums_of_lanes, sums_of_squares};

sums_of_squares!("neon,dotprod", add_squares);

/// Adds the squares of sixteen bytes to four sums.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn add_squares(mut sums: uint32x4_t, x: uint8x16_t) -> uint32x4_t {
    // The intrinsics of these instructions are not stable yet.
    // SAFETY: the instruction only reads and writes registers, and the processor has its features.
    unsafe {
        asm!("udot {0:v}.4s, {1:v}.16b, {1:v}.16b", inout(vreg) sums, in(vreg) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    sums
}

/// Adds, for each of four columns, the products of its four bytes with quad `QUAD` of a row.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn add_products<const QUAD: i32>(mut sums: uint32x4_t, columns: uint8x16_t, row: uint8x16_t) -> uint32x4_t {
    // SAFETY: as in `add_squares`.
    unsafe {
        asm!("udot {0:v}.4s, {1:v}.16b, {2:v}.4b[{3}]", inout(vreg) sums, in(vreg) columns, in(vreg) row, const QUAD,
            options(pure, nomem, nostack, preserves_flags));
    }
    sums
}

/// Computes the squared distances of a group to the block of columns that starts at `from`.
#[target_feature(enable = "neon,dotprod")]
pub(super) fn block(
    group: &Group<'_, u8>,
    terms: [u32; TILE_ROWS],
    columns: &PackedColumns<u8>,
    from: usize,
) -> Block<u8> {
    let lines = lines(columns, from);
    let (chunks, rest) = lines.as_chunks::<4>();
    // Rows are padded to whole cache lines, so there are four quads of each row even if fewer than four lines are left.
    let mut rows: [&[[u8; 16]]; TILE_ROWS] = [&[]; TILE_ROWS];
    for row in 0..TILE_ROWS {
        rows[row] = cut(group.rows[row], lines.len().div_ceil(4));
    }
    let mut sums = [Integers::splat(0); TILE_ROWS];
    for chunk in 0..chunks.len() {
        let four = four_quads(&rows, chunk);
        add_line::<0>(&mut sums, &four, &chunks[chunk][0]);
        add_line::<1>(&mut sums, &four, &chunks[chunk][1]);
        add_line::<2>(&mut sums, &four, &chunks[chunk][2]);
        add_line::<3>(&mut sums, &four, &chunks[chunk][3]);
    }
    if let Some(first) = rest.first() {
        let four = four_quads(&rows, chunks.len());
        add_line::<0>(&mut sums, &four, first);
        rest.get(1).into_iter().for_each(|line| add_line::<1>(&mut sums, &four, line));
        rest.get(2).into_iter().for_each(|line| add_line::<2>(&mut sums, &four, line));
    }
    finished(sums, terms, columns, from)
}

/// Loads four quads of each row.
#[target_feature(enable = "neon")]
#[inline]
fn four_quads(rows: &[&[[u8; 16]]; TILE_ROWS], chunk: usize) -> [uint8x16_t; TILE_ROWS] {
    let mut four = [vdupq_n_u8(0); TILE_ROWS];
    for row in 0..TILE_ROWS {
        four[row] = bytes(&rows[row][chunk]);
    }
    four
}

/// Adds the products of quad `QUAD` of each row with the columns of a line.
#[target_feature(enable = "neon,dotprod")]
#[inline]
fn add_line<const QUAD: i32>(sums: &mut Sums, rows: &[uint8x16_t; TILE_ROWS], line: &Line) {
    let columns = quarters(line);
    for row in 0..TILE_ROWS {
        for quarter in 0..4 {
            sums[row].0[quarter] = add_products::<QUAD>(sums[row].0[quarter], columns[quarter], rows[row]);
        }
    }
}
