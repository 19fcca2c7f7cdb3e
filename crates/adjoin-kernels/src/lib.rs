//! Squared distances between vectors. They are computed as fast as the processor allows, and are equal on every
//! processor.
//!
//! A [`Panel`] holds vectors as padded rows. A [`Kernel`] is an instruction set level that this processor has. It
//! compares one vector with a panel, or a panel with [`PackedColumns`], which are vectors in the layout of that
//! level:
//!
//! ```
//! use adjoin_kernels::{Kernel, Panel};
//!
//! let mut panel = Panel::<u8>::zeroed(3, 2);
//! for (row, vector) in [[0, 0], [3, 4], [200, 9]].iter().enumerate() {
//!     panel.row_mut(row).copy_from_slice(vector);
//! }
//! let kernel = Kernel::detect();
//! let columns = kernel.pack(&panel, &[0, 1, 2]);
//! let mut hits = Vec::new();
//! // Row 0 is compared with columns 0..3; those within distance 5 are kept (the limit is squared).
//! let pairs = kernel.within(&panel, &[0], &columns, &[3], 25, &mut hits);
//! let columns: Vec<u32> = hits.iter().flat_map(|mask| mask.columns()).collect();
//! assert_eq!((pairs, columns), (3, vec![0, 1]));
//! ```
//!
//! Distances of bytes are exact integers. Distances of floats are sums in one fixed order, so their bits are equal on
//! every level. They are within [`relative_error`] of the exact value. `reference.rs` defines the order, and tests
//! compare the other levels with it. The number of pairs that [`Kernel::within`] computes depends only on its
//! arguments, not on the level.
//!
//! - `number.rs`, `panel.rs`, `columns.rs`: the data
//! - `tile.rs`: loops over tiles, and the rounding rule for reaches
//! - `blocks.rs`: loops over blocks of distances that most levels share
//! - `block_levels/`: code that the levels of AVX2 and NEON share

#![allow(unsafe_code)] // views of aligned storage (panel.rs) and intrinsics

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod block_levels;
mod blocks;
mod centroids;
mod columns;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod compiled;
mod dispatch;
mod lists;
mod lookup;
mod near;
mod number;
mod panel;
mod prefetch;
mod reference;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod registers;
mod rounding;
mod tile;
mod wide;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use centroids::Centroids;
pub use columns::{PackedColumns, TILE_COLUMNS};
pub use dispatch::{Kernel, Scalar};
pub use lookup::{CodeRows, TABLE_ENTRIES};
pub use near::near_error;
pub use number::Number;
pub use panel::{DIMENSIONS_MAX, Panel};
pub use prefetch::prefetch;
pub use reference::relative_error;
pub use rounding::Grid;
pub use tile::{HitMask, LEAST_RANKS, LeastOfColumn, MASK_COLUMNS, TILE_ROWS, rounded_reach};
pub use wide::wide_error;
