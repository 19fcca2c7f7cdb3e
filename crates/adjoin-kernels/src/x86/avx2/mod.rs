//! AVX2 with fused multiply-add.

mod bytes;
mod narrow;

use crate::block_levels::bytes::{interleave, near, nearer};
use crate::block_levels::{
    Blocks, by_rows,
    floats::{self, blocks_of_floats},
};
use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::panel::Panel;
use crate::tile::{Block, Group};

use super::rows::{GroupRows, add_head_norms};

pub(super) use bytes::{halves, norm};

/// Proof that the processor has AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        let here = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        here.then_some(Self(()))
    }
}

// SAFETY: only `Avx2::detect` creates the type, and it checks for AVX2.
unsafe impl Blocks<u8> for Avx2 {
    type Prepared = bytes::Rows;

    fn pack(&self, panel: &Panel<u8>, order: &[u32], columns: &mut PackedColumns<u8>) {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let mut ranges = std::mem::take(&mut columns.ranges);
            ranges.reserve_exact(order.len().div_ceil(TILE_COLUMNS)); // so that `PackedColumns::bytes_for` is a bound
            ranges.extend(order.chunks(TILE_COLUMNS).map(|members| narrow::range(panel, members)));
            interleave(panel, order, columns, |block| ranges[block].center, |vector| norm(vector));
            columns.ranges = ranges;
            add_head_norms(panel, order, columns, |head| norm(head));
        }
    }

    fn distance(&self, x: &[u8], y: &[u8]) -> u32 {
        // SAFETY: `self` proves AVX2.
        unsafe { bytes::distance(x, y) }
    }

    fn one_to_rows<'a>(&self, x: &[u8], row: impl Fn(usize) -> &'a [u8], out: &mut [u32]) {
        // SAFETY: `self` proves AVX2.
        by_rows(row, out, |rows| unsafe { bytes::one_to_eight(x, rows) });
    }

    #[inline(always)] // so that the large, still empty buffer of widened rows is not moved
    fn prepare(&self, group: &Group<'_, u8>, _: &PackedColumns<u8>) -> Self::Prepared {
        // SAFETY: `self` proves AVX2.
        bytes::Rows::new(unsafe { GroupRows::new(group) })
    }

    #[inline(always)] // as `prepare`
    fn prepare_within(&self, group: &Group<'_, u8>, columns: &PackedColumns<u8>) -> Self::Prepared {
        // SAFETY: `self` proves AVX2.
        bytes::Rows::new(unsafe { GroupRows::with_heads(group, columns.dimensions) })
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

    fn block_within(
        &self,
        group: &Group<'_, u8>,
        prepared: &mut Self::Prepared,
        columns: &PackedColumns<u8>,
        from: usize,
        limit: u32,
    ) -> Option<Block<u8>> {
        // SAFETY: `self` proves AVX2.
        unsafe { bytes::block_within(group, prepared, columns, from, limit) }
    }

    fn near(&self, distances: &[u32; TILE_COLUMNS], limit: u32) -> u64 {
        // SAFETY: `self` proves AVX2.
        unsafe { near(distances, limit) }
    }

    fn nearer(
        &self,
        distances: &[u32; TILE_COLUMNS],
        first: u32,
        best: &mut [u32; TILE_COLUMNS],
        places: &mut [u32; TILE_COLUMNS],
    ) {
        // SAFETY: `self` proves AVX2.
        unsafe { nearer(distances, first, best, places) }
    }
}

// SAFETY: only `Avx2::detect` creates the type, and it checks for AVX2 and FMA.
blocks_of_floats!(Avx2);
