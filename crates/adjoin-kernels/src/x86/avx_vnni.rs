//! AVX2 with the VNNI instructions in their VEX encoding. Processors without AVX-512 have these (Alder Lake and
//! later).
//!
//! `vpdpbusd` multiplies and adds 32 pairs of bytes at once. One of its operands is signed, so a column is stored as
//! `y - 128`, and `x.y = x.(y - 128) + 128 sum(x)`, as on AVX-512. Everything else is as on AVX2.

use std::arch::x86_64::*;

use crate::block_levels::Blocks;
use crate::block_levels::bytes::{cut, finished, interleave, lines};
use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::panel::Panel;
use crate::registers::Integers;
use crate::tile::{Block, Group, TILE_ROWS};

use super::avx2::{Avx2, bytes, halves, norm, sum_of_lanes};

/// Proof that the processor has AVX2, FMA and AVX-VNNI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AvxVnni {
    avx2: Avx2,
}

impl AvxVnni {
    pub(crate) fn detect() -> Option<Self> {
        let avx2 = Avx2::detect()?;
        is_x86_feature_detected!("avxvnni").then_some(Self { avx2 })
    }

    /// Returns the level below, which computes everything except distances of bytes.
    pub(crate) fn base(&self) -> &Avx2 {
        &self.avx2
    }
}

// SAFETY: the type holds an `Avx2`, which proves AVX2.
unsafe impl Blocks<u8> for AvxVnni {
    /// Value that each row adds to its distances: `|x|^2 - 256 sum(x)`, modulo 2^32.
    type Prepared = [u32; TILE_ROWS];

    fn pack(&self, panel: &Panel<u8>, order: &[u32], columns: &mut PackedColumns<u8>) {
        // SAFETY: `self` proves AVX2.
        unsafe { interleave(panel, order, columns, 128, |vector| norm(vector)) }
    }

    fn distance(&self, x: &[u8], y: &[u8]) -> u32 {
        Blocks::distance(&self.avx2, x, y)
    }

    fn one_to_rows<'a>(&self, x: &[u8], row: impl Fn(usize) -> &'a [u8], out: &mut [u32]) {
        self.avx2.one_to_rows(x, row, out);
    }

    fn prepare(&self, group: &Group<'_, u8>, _: &PackedColumns<u8>) -> Self::Prepared {
        let [a, b, c, d] = group.rows;
        // SAFETY: `self` proves AVX2 and AVX-VNNI.
        unsafe { [row_term(a), row_term(b), row_term(c), row_term(d)] }
    }

    fn block(
        &self,
        group: &Group<'_, u8>,
        terms: &mut Self::Prepared,
        columns: &PackedColumns<u8>,
        from: usize,
    ) -> Block<u8> {
        // SAFETY: `self` proves AVX2 and AVX-VNNI.
        unsafe { block(group, *terms, columns, from) }
    }

    fn near(&self, distances: &[u32; TILE_COLUMNS], limit: u32) -> u64 {
        Blocks::<u8>::near(&self.avx2, distances, limit)
    }

    fn nearer(
        &self,
        distances: &[u32; TILE_COLUMNS],
        first: u32,
        best: &mut [u32; TILE_COLUMNS],
        places: &mut [u32; TILE_COLUMNS],
    ) {
        Blocks::<u8>::nearer(&self.avx2, distances, first, best, places);
    }
}

/// Returns `|x|^2 - 256 sum(x)` over a padded vector, modulo 2^32.
#[target_feature(enable = "avx2,avxvnni")]
#[inline]
fn row_term(vector: &[u8]) -> u32 {
    let mut sums = _mm256_setzero_si256();
    for chunk in vector.as_chunks().0 {
        sums = _mm256_dpbusd_avx_epi32(sums, bytes(chunk), _mm256_set1_epi8(1));
    }
    norm(vector).wrapping_sub(sum_of_lanes(sums) << 8)
}

/// Computes the squared distances of a group to the block of columns that starts at `from`.
#[target_feature(enable = "avx2,avxvnni")]
fn block(group: &Group<'_, u8>, terms: [u32; TILE_ROWS], columns: &PackedColumns<u8>, from: usize) -> Block<u8> {
    let lines = lines(columns, from);
    let mut rows: [&[[u8; 4]]; TILE_ROWS] = [&[]; TILE_ROWS];
    for row in 0..TILE_ROWS {
        rows[row] = cut(group.rows[row], lines.len());
    }
    let mut sums = [Integers::splat(0); TILE_ROWS];
    for quad in 0..lines.len() {
        let columns = halves(&lines[quad]);
        for row in 0..TILE_ROWS {
            let four = _mm256_set1_epi32(i32::from_ne_bytes(rows[row][quad]));
            for half in 0..2 {
                sums[row].0[half] = _mm256_dpbusd_avx_epi32(sums[row].0[half], four, columns[half]);
            }
        }
    }
    finished(sums, terms, columns, from)
}
