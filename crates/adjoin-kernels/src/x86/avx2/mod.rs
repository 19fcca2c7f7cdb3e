//! AVX2 with fused multiply-add. Columns are packed so that lanes are columns, and elements of rows are broadcast. This
//! leaves one distance in each lane, and nothing to add across lanes (the micro-kernels of BLIS and OpenBLAS, whose
//! panels are packed the same way).

mod bytes;
mod floats;
mod narrow;

use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::panel::Panel;
use crate::tile::{Block, Group};

use super::eight_lanes::Blocks;

pub(super) use bytes::{bytes, cut, finished, halves, interleave, lines, norm, sum_of_lanes};

/// Proof that the processor has AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        let here = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        here.then_some(Self(()))
    }
}

// SAFETY: `Avx2::detect` alone creates the type, after a check for AVX2.
unsafe impl Blocks<u8> for Avx2 {
    type Prepared = bytes::Rows;

    fn pack(&self, panel: &Panel<u8>, order: &[u32], columns: &mut PackedColumns<u8>) {
        // SAFETY: `self` proves AVX2.
        unsafe {
            columns.narrow = narrow::narrow(panel, order);
            let center = columns.narrow.map_or(0, |narrow| narrow.center);
            interleave(panel, order, columns, center);
        }
    }

    fn distance(&self, x: &[u8], y: &[u8]) -> u32 {
        // SAFETY: `self` proves AVX2.
        unsafe { bytes::distance(x, y) }
    }

    fn one_to_rows<'a>(&self, x: &[u8], row: impl Fn(usize) -> &'a [u8], out: &mut [u32]) {
        for (chunk, out) in out.chunks_mut(8).enumerate() {
            let last = out.len() - 1;
            // Rows past the end repeat the last one; their distances are not copied.
            let rows = std::array::from_fn(|k| row(chunk * 8 + k.min(last)));
            // SAFETY: `self` proves AVX2.
            let distances = unsafe { bytes::one_to_eight(x, rows) };
            out.copy_from_slice(&distances[..=last]);
        }
    }

    #[inline(always)] // rows that are not widened yet must not be moved
    fn prepare(&self, group: &Group<'_, u8>, columns: &PackedColumns<u8>) -> Self::Prepared {
        let [a, b, c, d] = group.rows;
        // SAFETY: `self` proves AVX2.
        unsafe {
            let Some(narrow) = columns.narrow else {
                return bytes::Rows::new([norm(a), norm(b), norm(c), norm(d)], None);
            };
            let term = |row| narrow::row_term(row, narrow);
            bytes::Rows::new([term(a), term(b), term(c), term(d)], Some(narrow::quads_together(group, narrow)))
        }
    }

    fn block(
        &self,
        group: &Group<'_, u8>,
        prepared: &mut Self::Prepared,
        columns: &PackedColumns<u8>,
        from: usize,
    ) -> Block<u8> {
        // SAFETY: `self` proves AVX2.
        unsafe { bytes::block(group, prepared, columns, from) }
    }

    fn near(&self, distances: &[u32; TILE_COLUMNS], limit: u32) -> u64 {
        // SAFETY: `self` proves AVX2.
        unsafe { bytes::near(distances, limit) }
    }

    fn nearer(
        &self,
        distances: &[u32; TILE_COLUMNS],
        first: u32,
        best: &mut [u32; TILE_COLUMNS],
        places: &mut [u32; TILE_COLUMNS],
    ) {
        // SAFETY: `self` proves AVX2.
        unsafe { bytes::nearer(distances, first, best, places) }
    }
}

// SAFETY: `Avx2::detect` alone creates the type, after a check for AVX2.
unsafe impl Blocks<f32> for Avx2 {
    type Prepared = ();

    fn pack(&self, panel: &Panel<f32>, order: &[u32], columns: &mut PackedColumns<f32>) {
        // SAFETY: `self` proves AVX2.
        unsafe { floats::interleave(panel, order, columns) }
    }

    fn distance(&self, x: &[f32], y: &[f32]) -> f32 {
        // SAFETY: `self` proves AVX2 and FMA.
        let [distance, ..] = unsafe { floats::one_to_rows(x, [y]) };
        distance
    }

    fn one_to_rows<'a>(&self, x: &[f32], row: impl Fn(usize) -> &'a [f32], out: &mut [f32]) {
        for (chunk, out) in out.chunks_mut(4).enumerate() {
            let last = out.len() - 1;
            // Rows past the end repeat the last one; their distances are not copied.
            let rows: [&[f32]; 4] = std::array::from_fn(|k| row(chunk * 4 + k.min(last)));
            // SAFETY: `self` proves AVX2 and FMA.
            let distances = unsafe { floats::one_to_rows(x, rows) };
            out.copy_from_slice(&distances[..=last]);
        }
    }

    fn prepare(&self, _: &Group<'_, f32>, _: &PackedColumns<f32>) -> Self::Prepared {}

    fn block(
        &self,
        group: &Group<'_, f32>,
        (): &mut Self::Prepared,
        columns: &PackedColumns<f32>,
        from: usize,
    ) -> Block<f32> {
        // SAFETY: `self` proves AVX2 and FMA.
        unsafe { floats::block(group, columns, from) }
    }

    fn near(&self, distances: &[f32; TILE_COLUMNS], limit: f32) -> u64 {
        // SAFETY: `self` proves AVX2.
        unsafe { floats::near(distances, limit) }
    }

    fn nearer(
        &self,
        distances: &[f32; TILE_COLUMNS],
        first: u32,
        best: &mut [f32; TILE_COLUMNS],
        places: &mut [u32; TILE_COLUMNS],
    ) {
        // SAFETY: `self` proves AVX2.
        unsafe { floats::nearer(distances, first, best, places) }
    }
}
