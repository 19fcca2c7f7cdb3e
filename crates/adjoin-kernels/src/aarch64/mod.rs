//! Levels of AArch64.

mod bytes;
mod dot;

use std::arch::is_aarch64_feature_detected;

use crate::block_levels::bytes::{interleave, near, nearer};
use crate::block_levels::{
    Blocks, by_rows,
    floats::{self, blocks_of_floats},
};
use crate::centroids::{Centroids, nearest_centroids_by};
use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::lists::at_most_by;
use crate::panel::Panel;
use crate::registers::{Floats, Integers};
use crate::tile::{Block, Group, TILE_ROWS};

/// Proof that the processor has NEON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(());

impl Neon {
    pub(crate) fn detect() -> Option<Self> {
        // If numbers are little-endian, lanes have the order of memory.
        let here = cfg!(target_endian = "little") && is_aarch64_feature_detected!("neon");
        here.then_some(Self(()))
    }
}

/// Proof that the processor has NEON and its instructions for products of bytes (`dotprod`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeonDot {
    neon: Neon,
}

impl NeonDot {
    pub(crate) fn detect() -> Option<Self> {
        let neon = Neon::detect()?;
        is_aarch64_feature_detected!("dotprod").then_some(Self { neon })
    }

    /// Returns the level below, which computes everything except distances of bytes.
    pub(crate) fn base(&self) -> &Neon {
        &self.neon
    }
}

/// Implements a level's distances of bytes with the functions of `$module`, which need `$features`.
macro_rules! blocks_of_bytes {
    ($level:ty, $module:ident, $features:literal) => {
        // SAFETY: only the level's `detect` creates the type, and it checks for these features.
        unsafe impl Blocks<u8> for $level {
            /// The squared length of each row.
            type Prepared = [u32; TILE_ROWS];

            fn pack(&self, panel: &Panel<u8>, order: &[u32], columns: &mut PackedColumns<u8>) {
                #[target_feature(enable = $features)]
                fn pack(panel: &Panel<u8>, order: &[u32], columns: &mut PackedColumns<u8>) {
                    interleave(panel, order, columns, |_| 0, |vector| $module::norm(vector));
                }
                // SAFETY: `self` proves the features.
                unsafe { pack(panel, order, columns) }
            }

            fn distance(&self, x: &[u8], y: &[u8]) -> u32 {
                // SAFETY: `self` proves the features.
                unsafe { $module::distance(x, y) }
            }

            fn one_to_rows<'a>(&self, x: &[u8], row: impl Fn(usize) -> &'a [u8], out: &mut [u32]) {
                // SAFETY: `self` proves the features.
                by_rows(row, out, |rows| unsafe { $module::one_to_eight(x, rows) });
            }

            fn prepare(&self, group: &Group<'_, u8>, _: &PackedColumns<u8>) -> Self::Prepared {
                // SAFETY: `self` proves the features.
                group.rows.map(|row| unsafe { $module::norm(row) })
            }

            fn block(
                &self,
                group: &Group<'_, u8>,
                terms: &mut Self::Prepared,
                columns: &PackedColumns<u8>,
                from: usize,
            ) -> Block<u8> {
                // SAFETY: `self` proves the features.
                unsafe { $module::block(group, *terms, columns, from) }
            }

            fn near(&self, distances: &[u32; TILE_COLUMNS], limit: u32) -> u64 {
                // SAFETY: `self` proves NEON.
                unsafe { near(distances, limit) }
            }

            fn nearer(
                &self,
                distances: &[u32; TILE_COLUMNS],
                first: u32,
                best: &mut [u32; TILE_COLUMNS],
                places: &mut [u32; TILE_COLUMNS],
            ) {
                // SAFETY: `self` proves NEON.
                unsafe { nearer(distances, first, best, places) }
            }
        }
    };
}

blocks_of_bytes!(Neon, bytes, "neon");
blocks_of_bytes!(NeonDot, dot, "neon,dotprod");

// SAFETY: only `Neon::detect` creates the type, and it checks for NEON.
blocks_of_floats!(Neon);

/// Implements [`crate::lists::Lists::at_most`].
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn at_most(values: &[u32], most: u32, found: &mut Vec<u64>) {
    at_most_by(values, most, found, |chunk| Integers::load(chunk).not_above(most) as u32);
}

/// Implements [`crate::Kernel::nearest_centroids`].
#[target_feature(enable = "neon")]
#[inline]
pub(crate) fn nearest_centroids(points: &Panel<f32>, start: usize, centroids: &Centroids, out: &mut [(u32, f32)]) {
    nearest_centroids_by(points, start, centroids, out, |sums, block, nearest, blocks| {
        let (mut least, mut places) = (Floats::load(nearest), Integers::load(blocks));
        least.take_less(&mut places, Floats::load(sums), Integers::splat(block));
        (*nearest, *blocks) = (least.to_array(), places.to_array());
    });
}
