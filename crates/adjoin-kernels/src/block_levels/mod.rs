//! Levels that compute whole blocks of distances. Such a level computes a block; everything around it is compiled once
//! for AVX2 or NEON.
//!
//! Columns are packed so that lanes are columns, and elements of rows are broadcast. This leaves one distance in each
//! lane, and nothing to add across lanes (the micro-kernels of BLIS and OpenBLAS, whose panels are packed the same way).
//!
//! - `floats.rs`: distances of floats
//! - `bytes.rs`: the layout of bytes, and distances from products

// Loops over register tiles index several arrays at once; they unroll completely.
#![allow(clippy::needless_range_loop)]

pub(crate) mod bytes;
pub(crate) mod floats;

use crate::blocks;
use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::number::Number;
use crate::panel::Panel;
use crate::tile::{Block, Group, HitMask, LeastOfColumn, LeastRows, NearestColumns, Tiles};

/// Blocks of distances, implemented by each level.
///
/// # Safety
/// A value of the type must prove that the processor has AVX2 or NEON.
pub(crate) unsafe trait Blocks<T: Number>: Sized {
    /// Values computed once for the rows of a group.
    type Prepared;

    /// Implements [`Tiles::pack`].
    fn pack(&self, panel: &Panel<T>, order: &[u32], columns: &mut PackedColumns<T>);

    /// Implements [`Tiles::distance`].
    fn distance(&self, x: &[T], y: &[T]) -> T::Distance;

    /// Computes the squared distances of `x` to the rows `row(k)`.
    fn one_to_rows<'a>(&self, x: &[T], row: impl Fn(usize) -> &'a [T], out: &mut [T::Distance]);

    /// Prepares the rows of a group for columns.
    fn prepare(&self, group: &Group<'_, T>, columns: &PackedColumns<T>) -> Self::Prepared;

    /// Computes the squared distances of a group to the columns from `from` on.
    fn block(
        &self,
        group: &Group<'_, T>,
        prepared: &mut Self::Prepared,
        columns: &PackedColumns<T>,
        from: usize,
    ) -> Block<T>;

    /// Returns a bit per distance that is not above the limit; NaN counts as such.
    fn near(&self, distances: &[T::Distance; TILE_COLUMNS], limit: T::Distance) -> u64;

    /// Updates the best distances and their columns, lane by lane, with distances to the columns from `first` on.
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
    let mut prepared = level.prepare(group, columns);
    let block = |from| level.block(group, &mut prepared, columns, from);
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

/// Implements [`Blocks::one_to_rows`] by distances to `R` rows at once.
#[inline(always)]
pub(crate) fn by_rows<'a, T: Number, const R: usize>(
    row: impl Fn(usize) -> &'a [T],
    out: &mut [T::Distance],
    distances: impl Fn([&'a [T]; R]) -> [T::Distance; R],
) {
    for (chunk, out) in out.chunks_mut(R).enumerate() {
        let last = out.len() - 1;
        // Rows past the end repeat the last one; their distances are not copied.
        // A loop, since the compiler does not inline the closure of `array::from_fn` everywhere.
        let mut rows = [row(chunk * R); R];
        for (k, place) in rows.iter_mut().enumerate().skip(1) {
            *place = row(chunk * R + k.min(last));
        }
        out.copy_from_slice(&distances(rows)[..=last]);
    }
}
