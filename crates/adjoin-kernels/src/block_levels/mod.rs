//! Code that is shared by the levels that compute whole blocks of distances. Such a level implements only the
//! computation of a block. The loops around it are compiled once for AVX2 and once for NEON.
//!
//! Columns are packed such that each lane is a column, and elements of rows are broadcast to all lanes. This leaves
//! one distance in each lane, and nothing to add across lanes. The micro-kernels of BLIS and OpenBLAS pack their
//! panels in this way too.
//!
//! - `floats.rs`: distances of floats
//! - `bytes.rs`: layout of bytes, and their distances from products

// Loops over register tiles index several arrays at once; they unroll completely.
#![allow(clippy::needless_range_loop)]

pub(crate) mod bytes;
pub(crate) mod floats;

use crate::blocks;
use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::number::Number;
use crate::panel::Panel;
use crate::tile::{Block, Group, HitMask, LeastOfColumn, LeastRows, NearestColumns, Tiles};

/// Functions on blocks of distances, which each level implements.
///
/// # Safety
/// A value of the type must prove that the processor has AVX2 or NEON.
pub(crate) unsafe trait Blocks<T: Number>: Sized {
    /// Values that are computed once for the rows of a group.
    type Prepared;

    /// Implements [`Tiles::pack`].
    fn pack(&self, panel: &Panel<T>, order: &[u32], columns: &mut PackedColumns<T>);

    /// Implements [`Tiles::distance`].
    fn distance(&self, x: &[T], y: &[T]) -> T::Distance;

    /// Writes to `out[k]` the squared distance of `x` to `row(k)`.
    fn one_to_rows<'a>(&self, x: &[T], row: impl Fn(usize) -> &'a [T], out: &mut [T::Distance]);

    /// Computes the values that [`Blocks::block`] needs for the rows of a group.
    fn prepare(&self, group: &Group<'_, T>, columns: &PackedColumns<T>) -> Self::Prepared;

    /// Computes the squared distances of a group to the block of columns that starts at `from`.
    fn block(
        &self,
        group: &Group<'_, T>,
        prepared: &mut Self::Prepared,
        columns: &PackedColumns<T>,
        from: usize,
    ) -> Block<T>;

    /// Computes the values that [`Blocks::block_within`] needs for the rows of a group.
    #[inline(always)] // so that large values are not moved
    fn prepare_within(&self, group: &Group<'_, T>, columns: &PackedColumns<T>) -> Self::Prepared {
        self.prepare(group, columns)
    }

    /// Computes the distances as [`Blocks::block`] does. May return `None` if all of them are above `limit`. If an element
    /// is not finite, some of them may be NaN nevertheless.
    fn block_within(
        &self,
        group: &Group<'_, T>,
        prepared: &mut Self::Prepared,
        columns: &PackedColumns<T>,
        from: usize,
        _limit: T::Distance,
    ) -> Option<Block<T>> {
        Some(self.block(group, prepared, columns, from))
    }

    /// Returns a mask of the distances that are not above `limit`. NaN counts as not above.
    fn near(&self, distances: &[T::Distance; TILE_COLUMNS], limit: T::Distance) -> u64;

    /// Compares, in each lane, a distance with the best one. If it is less, updates the best distance and its column.
    /// The first lane is column `first`.
    fn nearer(
        &self,
        distances: &[T::Distance; TILE_COLUMNS],
        first: u32,
        best: &mut [T::Distance; TILE_COLUMNS],
        places: &mut [u32; TILE_COLUMNS],
    );
}

impl<T: Number, L: Blocks<T>> Tiles<T> for L {
    fn pack(&self, panel: &Panel<T>, order: &[u32], columns: &mut PackedColumns<T>) {
        Blocks::pack(self, panel, order, columns);
    }

    fn distance(&self, x: &[T], y: &[T]) -> T::Distance {
        Blocks::distance(self, x, y)
    }

    fn one_to_many(&self, x: &[T], panel: &Panel<T>, out: &mut [T::Distance]) {
        self.one_to_rows(x, |k| panel.row(k), out);
    }

    fn one_to_some(&self, x: &[T], panel: &Panel<T>, rows: &[u32], out: &mut [T::Distance]) {
        self.one_to_rows(x, |k| panel.row(rows[k] as usize), out);
    }

    fn matrix(&self, group: &Group<'_, T>, columns: &PackedColumns<T>, out: &mut [T::Distance]) {
        // SAFETY: `self` proves the features.
        unsafe { matrix(self, group, columns, out) }
    }

    fn within(&self, group: &Group<'_, T>, columns: &PackedColumns<T>, limit: T::Distance, hits: &mut Vec<HitMask>) {
        // SAFETY: `self` proves the features.
        unsafe { within(self, group, columns, limit, hits) }
    }

    fn nearest(&self, group: &Group<'_, T>, columns: &PackedColumns<T>, nearest: &mut NearestColumns<T>) {
        // SAFETY: `self` proves the features.
        unsafe { nearest_columns(self, group, columns, nearest) }
    }

    fn least_of_columns(
        &self,
        rows: LeastRows<'_, T>,
        columns: &PackedColumns<T>,
        from: usize,
        out: &mut [LeastOfColumn<T>],
    ) {
        // SAFETY: `self` proves the features.
        unsafe { least_of_columns(self, rows, columns, from, out) }
    }
}

/// Implements [`Tiles::matrix`].
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn matrix<T: Number, L: Blocks<T>>(
    level: &L,
    group: &Group<'_, T>,
    columns: &PackedColumns<T>,
    out: &mut [T::Distance],
) {
    let mut prepared = level.prepare(group, columns);
    blocks::matrix(group, columns, out, |from| level.block(group, &mut prepared, columns, from));
}

/// Implements [`Tiles::within`].
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn within<T: Number, L: Blocks<T>>(
    level: &L,
    group: &Group<'_, T>,
    columns: &PackedColumns<T>,
    limit: T::Distance,
    hits: &mut Vec<HitMask>,
) {
    let mut prepared = level.prepare_within(group, columns);
    let block = |from| level.block_within(group, &mut prepared, columns, from, limit);
    blocks::within(group, limit, hits, block, |distances, limit| level.near(distances, limit));
}

/// Implements [`Tiles::nearest`].
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn nearest_columns<T: Number, L: Blocks<T>>(
    level: &L,
    group: &Group<'_, T>,
    columns: &PackedColumns<T>,
    nearest: &mut NearestColumns<T>,
) {
    let mut prepared = level.prepare(group, columns);
    let block = |from| level.block(group, &mut prepared, columns, from);
    blocks::nearest(group, nearest, block, |distances, first, best, places| {
        level.nearer(distances, first, best, places)
    });
}

/// Implements [`Tiles::least_of_columns`].
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
fn least_of_columns<T: Number, L: Blocks<T>>(
    level: &L,
    rows: LeastRows<'_, T>,
    columns: &PackedColumns<T>,
    from: usize,
    out: &mut [LeastOfColumn<T>],
) {
    blocks::least_of_columns(
        rows,
        from,
        out,
        |group| level.prepare(group, columns),
        |group, prepared, from| level.block(group, prepared, columns, from),
    );
}

/// Implements [`Blocks::one_to_rows`]. `distances` computes the distances to `R` rows at once.
#[inline(always)]
pub(crate) fn by_rows<'a, T: Number, const R: usize>(
    row: impl Fn(usize) -> &'a [T],
    out: &mut [T::Distance],
    distances: impl Fn([&'a [T]; R]) -> [T::Distance; R],
) {
    for (chunk, out) in out.chunks_mut(R).enumerate() {
        let last = out.len() - 1;
        // If rows are missing at the end, the last row is repeated. The distances to repeated rows are not copied.
        // This is a loop, since the compiler does not inline the closure of `array::from_fn` everywhere.
        let mut rows = [row(chunk * R); R];
        for (k, place) in rows.iter_mut().enumerate().skip(1) {
            *place = row(chunk * R + k.min(last));
        }
        out.copy_from_slice(&distances(rows)[..=last]);
    }
}
