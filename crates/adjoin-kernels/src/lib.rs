//! Squared distances between vectors, as fast as the processor allows and the same on every processor.
//!
//! A [`Panel`] holds vectors as padded rows. A [`Kernel`] is a level of the instruction set that this processor has;
//! it computes one vector against a panel, or a panel against [`PackedColumns`], which are vectors packed for that level:
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
//! // Row 0 looks at columns 0..3 and keeps those within distance 5, given as its square.
//! let pairs = kernel.within(&panel, &[0], &columns, &[3], 25, &mut hits);
//! let columns: Vec<u32> = hits.iter().flat_map(|mask| mask.columns()).collect();
//! assert_eq!((pairs, columns), (3, vec![0, 1]));
//! ```
//!
//! Bytes give exact integers. Floats are summed in one fixed order that every level repeats bit for bit (see
//! `reference.rs`, the truth that the others are tested against), within [`relative_error`] of the exact value.
//! The number of pairs that [`Kernel::within`] computes depends on its arguments alone, never on the level.
//!
//! `panel.rs` and `columns.rs` hold the data, `tile.rs` the loops over tiles and the rounding rule, `dispatch.rs` the
//! choice of a level, `x86/` the fast levels, `centroids.rs` the nearest of short vectors, `wide.rs` sums in f64, `near.rs` quick ones in f32,
//! `rounding.rs` floats as bytes, `lists.rs` searches in lists of distances, `lookup.rs` distances by codes, `prefetch.rs`
//! memory asked for ahead.

#![allow(unsafe_code)] // views of aligned storage (panel.rs) and intrinsics (x86/, prefetch.rs)

mod centroids;
mod columns;
mod dispatch;
mod lists;
mod lookup;
mod near;
mod panel;
mod prefetch;
mod reference;
mod rounding;
mod tile;
mod wide;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use centroids::Centroids;
pub use columns::PackedColumns;
pub use dispatch::{Kernel, Scalar};
pub use lookup::{CodeRows, TABLE_ENTRIES};
pub use near::near_error;
pub use panel::{DIMENSIONS_MAX, Panel};
pub use prefetch::prefetch;
pub use reference::relative_error;
pub use rounding::Grid;
pub use tile::{HitMask, LEAST_RANKS, LeastOfColumn, MASK_COLUMNS, TILE_COLUMNS, TILE_ROWS, rounded_reach};
pub use wide::wide_error;
