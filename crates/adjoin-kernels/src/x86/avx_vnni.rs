//! AVX2 with the VNNI instructions in their VEX encoding. Processors without AVX-512 have these (Alder Lake and
//! later).
//!
//! `vpdpbusd` multiplies and adds 32 pairs of bytes at once. One of its operands is signed, so a column is stored as
//! `y - 128`, and `x.y = x.(y - 128) + 128 sum(x)`, as on AVX-512. Everything else is as on AVX2.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::block_levels::Blocks;
use crate::block_levels::bytes::{Line, Sums, cut, finished, interleave, lines};
use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::panel::Panel;
use crate::registers::Integers;
use crate::tile::{Block, Group, TILE_ROWS};

use super::avx2::{Avx2, halves, norm};
use super::rows::{self, GroupRows, VNNI_CENTER, add_head_norms};

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
    type Prepared = GroupRows;

    fn pack(&self, panel: &Panel<u8>, order: &[u32], columns: &mut PackedColumns<u8>) {
        // SAFETY: `self` proves AVX2.
        unsafe {
            interleave(panel, order, columns, |_| VNNI_CENTER, |vector| norm(vector));
            add_head_norms(panel, order, columns, |head| norm(head));
        }
    }

    fn distance(&self, x: &[u8], y: &[u8]) -> u32 {
        Blocks::distance(&self.avx2, x, y)
    }

    fn one_to_rows<'a>(&self, x: &[u8], row: impl Fn(usize) -> &'a [u8], out: &mut [u32]) {
        self.avx2.one_to_rows(x, row, out);
    }

    fn prepare(&self, group: &Group<'_, u8>, _: &PackedColumns<u8>) -> Self::Prepared {
        // SAFETY: `self` proves AVX2 and AVX-VNNI.
        unsafe { GroupRows::new(group) }
    }

    fn prepare_within(&self, group: &Group<'_, u8>, columns: &PackedColumns<u8>) -> Self::Prepared {
        // SAFETY: `self` proves AVX2 and AVX-VNNI.
        unsafe { GroupRows::with_heads(group, columns.dimensions) }
    }

    fn block(
        &self,
        group: &Group<'_, u8>,
        rows: &mut Self::Prepared,
        columns: &PackedColumns<u8>,
        from: usize,
    ) -> Block<u8> {
        // SAFETY: `self` proves AVX2 and AVX-VNNI.
        unsafe { block(group, rows, columns, from) }
    }

    fn block_within(
        &self,
        group: &Group<'_, u8>,
        rows: &mut Self::Prepared,
        columns: &PackedColumns<u8>,
        from: usize,
        limit: u32,
    ) -> Option<Block<u8>> {
        // SAFETY: `self` proves AVX2 and AVX-VNNI.
        unsafe { block_within(group, rows, columns, from, limit) }
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

/// Computes the squared distances of a group to the block of columns that starts at `from`.
#[target_feature(enable = "avx2,avxvnni")]
fn block(group: &Group<'_, u8>, rows: &GroupRows, columns: &PackedColumns<u8>, from: usize) -> Block<u8> {
    let lines = lines(columns, from);
    let mut sums = [Integers::splat(0); TILE_ROWS];
    add_products(&mut sums, group, lines, 0..lines.len());
    finished(sums, rows.whole.terms(VNNI_CENTER), columns, from)
}

/// Computes distances as [`block`] does. Returns `None` if the heads show that all are above `limit`.
#[target_feature(enable = "avx2,avxvnni")]
fn block_within(
    group: &Group<'_, u8>,
    rows: &GroupRows,
    columns: &PackedColumns<u8>,
    from: usize,
    limit: u32,
) -> Option<Block<u8>> {
    let Some(heads) = &rows.heads else { return Some(block(group, rows, columns, from)) };
    let lines = lines(columns, from);
    rows::block_within(&rows.whole, heads, (columns, from), VNNI_CENTER, limit, |sums, quads| {
        add_products(sums, group, lines, quads);
    })
}

/// Adds the products of some quads of a group with a block of columns. `lines` has all lines of the block.
#[target_feature(enable = "avx2,avxvnni")]
#[inline]
fn add_products(sums: &mut Sums, group: &Group<'_, u8>, lines: &[Line], quads: Range<usize>) {
    let mut rows: [&[[u8; 4]]; TILE_ROWS] = [&[]; TILE_ROWS];
    for row in 0..TILE_ROWS {
        rows[row] = &cut(group.rows[row], lines.len())[quads.clone()];
    }
    let (lines, mut local) = (&lines[quads], *sums);
    for quad in 0..lines.len() {
        let columns = halves(&lines[quad]);
        for row in 0..TILE_ROWS {
            let four = _mm256_set1_epi32(i32::from_ne_bytes(rows[row][quad]));
            for half in 0..2 {
                local[row].0[half] = _mm256_dpbusd_avx_epi32(local[row].0[half], four, columns[half]);
            }
        }
    }
    *sums = local;
}
