//! AVX-512 with VNNI. `bytes.rs` computes distances from products, `floats.rs` from differences.

mod bytes;
mod floats;

use std::arch::x86_64::*;
use std::mem::transmute;

use crate::block_levels::{by_rows, bytes::quads};
use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::panel::Panel;
use crate::reference::LANES;
use crate::tile::{Group, HitMask, LeastOfColumn, LeastRows, NearestColumns, Tiles};

/// Proof that the processor has AVX-512 F, BW, VL and VNNI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        let here = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        here.then_some(Self(()))
    }

    /// Computes the distances of `x` to the rows `row(k)`.
    fn one_to_rows_f32<'a>(&self, x: &[f32], row: impl Fn(usize) -> &'a [f32], out: &mut [f32]) {
        // SAFETY: `self` proves the level.
        by_rows(row, out, |rows| unsafe { floats::distances([x], rows)[0] });
    }
}

impl Tiles<u8> for Avx512 {
    fn pack(&self, panel: &Panel<u8>, order: &[u32], columns: &mut PackedColumns<u8>) {
        let filled = order.len().next_multiple_of(TILE_COLUMNS);
        (columns.len, columns.dimensions) = (order.len(), panel.dimensions());
        columns.storage.resize(filled / TILE_COLUMNS * quads(panel.dimensions()));
        columns.norms.resize(filled, 0);
        // SAFETY: `self` proves the level.
        unsafe { bytes::interleave(panel, order, columns) }
    }

    fn distance(&self, x: &[u8], y: &[u8]) -> u32 {
        // SAFETY: `self` proves the level.
        unsafe { bytes::distance(x, y) }
    }

    fn one_to_many(&self, x: &[u8], panel: &Panel<u8>, out: &mut [u32]) {
        // SAFETY: `self` proves the level.
        unsafe { bytes::one_to_rows(x, |k| panel.row(k), out) }
    }

    fn one_to_some(&self, x: &[u8], panel: &Panel<u8>, rows: &[u32], out: &mut [u32]) {
        // SAFETY: `self` proves the level.
        unsafe { bytes::one_to_rows(x, |k| panel.row(rows[k] as usize), out) }
    }

    fn matrix(&self, group: &Group<'_, u8>, columns: &PackedColumns<u8>, out: &mut [u32]) {
        // SAFETY: `self` proves the level.
        unsafe { bytes::matrix(group, columns, out) }
    }

    fn within(&self, group: &Group<'_, u8>, columns: &PackedColumns<u8>, limit: u32, hits: &mut Vec<HitMask>) {
        // SAFETY: `self` proves the level.
        unsafe { bytes::within(group, columns, limit, hits) }
    }

    fn nearest(&self, group: &Group<'_, u8>, columns: &PackedColumns<u8>, nearest: &mut NearestColumns<u8>) {
        // SAFETY: `self` proves the level.
        unsafe { bytes::nearest(group, columns, nearest) }
    }

    fn least_of_columns(
        &self,
        rows: LeastRows<'_, u8>,
        columns: &PackedColumns<u8>,
        from: usize,
        out: &mut [LeastOfColumn<u8>],
    ) {
        // SAFETY: `self` proves the level.
        unsafe { bytes::least(rows, columns, from, out) }
    }
}

impl Tiles<f32> for Avx512 {
    fn pack(&self, panel: &Panel<f32>, order: &[u32], columns: &mut PackedColumns<f32>) {
        columns.copy_rows(panel, order);
    }

    fn distance(&self, x: &[f32], y: &[f32]) -> f32 {
        // SAFETY: `self` proves the level.
        unsafe { floats::distances([x], [y; 4])[0][0] }
    }

    fn one_to_many(&self, x: &[f32], panel: &Panel<f32>, out: &mut [f32]) {
        self.one_to_rows_f32(x, |k| panel.row(k), out);
    }

    fn one_to_some(&self, x: &[f32], panel: &Panel<f32>, rows: &[u32], out: &mut [f32]) {
        self.one_to_rows_f32(x, |k| panel.row(rows[k] as usize), out);
    }

    fn matrix(&self, group: &Group<'_, f32>, columns: &PackedColumns<f32>, out: &mut [f32]) {
        for from in group.columns.clone().step_by(4) {
            let to = group.columns.end.min(from + 4);
            // SAFETY: `self` proves the level.
            let distances = unsafe { floats::distances(group.rows, floats::four_columns(columns, from)) };
            for (line, distances) in out.chunks_exact_mut(columns.len).zip(&distances).take(group.count) {
                line[from..to].copy_from_slice(&distances[..to - from]);
            }
        }
    }

    fn within(&self, group: &Group<'_, f32>, columns: &PackedColumns<f32>, limit: f32, hits: &mut Vec<HitMask>) {
        // SAFETY: `self` proves the level.
        unsafe { floats::within(group, columns, limit, hits) }
    }

    fn nearest(&self, group: &Group<'_, f32>, columns: &PackedColumns<f32>, nearest: &mut NearestColumns<f32>) {
        // SAFETY: `self` proves the level.
        unsafe { floats::nearest(group, columns, nearest) }
    }

    fn least_of_columns(
        &self,
        rows: LeastRows<'_, f32>,
        columns: &PackedColumns<f32>,
        from: usize,
        out: &mut [LeastOfColumn<f32>],
    ) {
        // SAFETY: `self` proves the level.
        unsafe { floats::least(rows, columns, from, out) }
    }
}

/// Loads a register of 32-bit integers.
#[target_feature(enable = "avx512f")]
#[inline]
fn integers(line: &[u32; 16]) -> __m512i {
    // SAFETY: both are 64 bytes without padding, for which every bit pattern is a value.
    unsafe { transmute::<[u32; 16], __m512i>(*line) }
}

/// Implements [`crate::lists::at_most`] for this level.
#[target_feature(enable = "avx512f")]
pub(crate) fn at_most(values: &[u32], most: u32, found: &mut Vec<u64>) {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let limit = _mm512_set1_epi32(most.cast_signed());
    for (chunk, start) in chunks.iter().zip((0..).step_by(LANES)) {
        let mut near = u32::from(_mm512_cmple_epu32_mask(integers(chunk), limit));
        while near != 0 {
            let lane = near.trailing_zeros() as usize;
            found.push(u64::from(chunk[lane]) << 32 | (start + lane) as u64);
            near &= near - 1;
        }
    }
    let start = values.len() - rest.len();
    let near = rest.iter().zip(start..).filter(|(value, _)| **value <= most);
    found.extend(near.map(|(&value, place)| u64::from(value) << 32 | place as u64));
}
