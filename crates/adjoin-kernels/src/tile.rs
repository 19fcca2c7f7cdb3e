//! Loops over tiles, and the rule that rounds a reach. The rule is the same for all levels, so they all compute the
//! same number of pairs.

use std::ops::Range;

use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::number::Number;
use crate::panel::{Lines, Panel};
use crate::prefetch::prefetch;

/// Number of rows of a group. They share one reach.
pub const TILE_ROWS: usize = 4;

/// Bytes of columns in a chunk. All rows are compared with a chunk before the next one, so a chunk must stay in the
/// second-level cache. A chunk of half the first-level cache was no faster, and much slower if it had room for only a
/// few long vectors.
const CHUNK_BYTES: usize = 128 << 10;

/// Number of columns that one [`HitMask`] covers.
pub const MASK_COLUMNS: usize = 64;

/// Hits of one row, as a bit mask of up to [`MASK_COLUMNS`] columns. One word stands for many pairs, so reporting
/// them is cheap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HitMask {
    /// Position of the row in the order of the rows.
    pub row: u32,
    /// Column of the lowest bit.
    pub column: u32,
    /// One bit per column from `column` on; at least one is set.
    pub bits: u64,
}

impl HitMask {
    /// Returns the number of hits.
    pub fn count(self) -> u32 {
        self.bits.count_ones()
    }

    /// Returns the columns of the hits, in ascending order.
    pub fn columns(self) -> impl Iterator<Item = u32> {
        let mut bits = self.bits;
        std::iter::from_fn(move || {
            let column = (bits != 0).then(|| self.column + bits.trailing_zeros());
            bits &= bits.wrapping_sub(1);
            column
        })
    }
}

/// Number of smallest values that are kept per column.
pub const LEAST_RANKS: usize = 4;

/// Smallest distances and smallest margins of a column, in ascending order. If there are fewer, the largest value of
/// the type fills the rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeastOfColumn<T: Number> {
    /// Squared distances to rows.
    pub distances: [T::Distance; LEAST_RANKS],
    /// Margins: squared distances to rows, minus the value that the row subtracts.
    pub margins: [T::Margin; LEAST_RANKS],
}

impl<T: Number> LeastOfColumn<T> {
    /// The initial state, without any distance.
    pub const NONE: Self = Self { distances: [T::FARTHEST; LEAST_RANKS], margins: [T::MARGIN_MAX; LEAST_RANKS] };
}

/// Inserts a value into an ascending list. The largest value of the list is dropped.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only levels of x86-64 use it"))]
#[inline(always)]
pub(crate) fn insert<V: Copy + PartialOrd>(least: &mut [V; LEAST_RANKS], value: V) {
    let mut value = value;
    for place in least {
        if value < *place {
            std::mem::swap(place, &mut value);
        }
    }
}

/// For each row of a group, the nearest column so far and its distance.
pub(crate) type NearestColumns<T> = [(u32, <T as Number>::Distance); TILE_ROWS];

/// Distances of one group of rows to [`TILE_COLUMNS`] columns.
pub(crate) type Block<T> = [[<T as Number>::Distance; TILE_COLUMNS]; TILE_ROWS];

/// Functions on tiles of distances. Each level implements them on a token that proves that the processor has the
/// level.
pub(crate) trait Tiles<T: Number> {
    /// Packs `panel.row(order[k])` as column `k`. The norms and ranges of the columns must be empty. All other fields are
    /// overwritten except their level.
    fn pack(&self, panel: &Panel<T>, order: &[u32], columns: &mut PackedColumns<T>);

    /// Returns the squared distance of two padded rows.
    fn distance(&self, x: &[T], y: &[T]) -> T::Distance;

    /// Computes the squared distances of `x` to every row of the panel, as [`Tiles::distance`] does.
    fn one_to_many(&self, x: &[T], panel: &Panel<T>, out: &mut [T::Distance]);

    /// Computes the squared distances of `x` to some rows of the panel, as [`Tiles::distance`] does.
    fn one_to_some(&self, x: &[T], panel: &Panel<T>, rows: &[u32], out: &mut [T::Distance]);

    /// Computes the squared distances of the group to its columns. The distance of row `r` and column `c` is `out[r *
    /// columns.len() + c]`.
    fn matrix(&self, group: &Group<'_, T>, columns: &PackedColumns<T>, out: &mut [T::Distance]);

    /// Appends the group's pairs with a squared distance of at most `limit`.
    fn within(&self, group: &Group<'_, T>, columns: &PackedColumns<T>, limit: T::Distance, hits: &mut Vec<HitMask>);

    /// Replaces entries of `nearest` for which a column of the group is nearer.
    fn nearest(&self, group: &Group<'_, T>, columns: &PackedColumns<T>, nearest: &mut NearestColumns<T>);

    /// Finds the smallest distances and margins, over all rows, of the columns from `from` on. `out` has one element
    /// per column, at most [`LEAST_COLUMNS`].
    fn least_of_columns(
        &self,
        rows: LeastRows<'_, T>,
        columns: &PackedColumns<T>,
        from: usize,
        out: &mut [LeastOfColumn<T>],
    );
}

/// Number of columns that `least_of_columns` processes together. Their smallest values stay in registers or in the
/// nearest cache.
pub(crate) const LEAST_COLUMNS: usize = 4 * TILE_COLUMNS;

/// Rows of a panel in some order.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a, T> {
    pub(crate) panel: &'a Panel<T>,
    pub(crate) order: &'a [u32],
}

/// Rows that columns are compared with. `own` has the value that each row subtracts from a distance to get a margin.
#[derive(Clone, Copy)]
pub(crate) struct LeastRows<'a, T: Number> {
    pub(crate) rows: Rows<'a, T>,
    pub(crate) own: &'a [T::Distance],
}

impl<'a, T: Number> LeastRows<'a, T> {
    /// Returns the rows of each tile, and the values that they subtract.
    #[inline(always)]
    pub(crate) fn tiles(self) -> impl Iterator<Item = (&'a [u32], &'a [T::Distance])> {
        self.rows.order.chunks(TILE_ROWS).zip(self.own.chunks(TILE_ROWS))
    }
}

/// Up to [`TILE_ROWS`] rows, and the columns that they are compared with.
pub(crate) struct Group<'a, T> {
    /// Padded rows. A short group repeats its last row, and distances of repeated rows are ignored.
    pub(crate) rows: [&'a [T]; TILE_ROWS],
    /// Number of rows that are not repeated.
    pub(crate) count: usize,
    /// Position of the first row in the order.
    pub(crate) position: usize,
    /// Columns. The range starts at a multiple of [`TILE_COLUMNS`]. It ends at such a multiple or at the last column.
    pub(crate) columns: Range<usize>,
}

impl<'a, T: Number> Group<'a, T> {
    /// Creates a group of the rows `members` of a panel. There must be at least one.
    pub(crate) fn new(panel: &'a Panel<T>, members: &[u32], position: usize, columns: Range<usize>) -> Self {
        let mut rows = [panel.row(members[members.len() - 1] as usize); TILE_ROWS];
        for (row, &member) in rows.iter_mut().zip(members) {
            *row = panel.row(member as usize);
        }
        Self { rows, count: members.len(), position, columns }
    }

    /// Appends hits of the group's row `row`. Bit `k` of `bits` stands for column `column + k`. Bits past the last
    /// column are ignored.
    #[inline(never)] // it is rarely called, and inlined it would take registers from the tile
    pub(crate) fn hit(&self, row: usize, column: usize, bits: u64, hits: &mut Vec<HitMask>) {
        let left = self.columns.end - column;
        let bits = if left < MASK_COLUMNS { bits & ((1 << left) - 1) } else { bits };
        if bits != 0 {
            hits.push(HitMask { row: (self.position + row) as u32, column: column as u32, bits });
        }
    }
}

/// Returns the number of columns that a group of [`TILE_ROWS`] rows is compared with: the largest reach, rounded up
/// to whole blocks and capped at `columns`.
pub fn rounded_reach(reach: &[u32], columns: usize) -> usize {
    let largest = reach.iter().copied().max().unwrap_or(0) as usize;
    largest.next_multiple_of(TILE_COLUMNS).min(columns)
}

/// Returns the number of columns in a chunk of [`CHUNK_BYTES`]. It is a multiple of the number of columns of every
/// level's register tile. The widest tiles have 64 columns of bytes and 16 of floats.
fn chunk_columns<T: Number>(dimensions: usize) -> usize {
    let fit = CHUNK_BYTES / (dimensions * size_of::<T>()).max(1);
    let unit = Lines::<T>::PER_LINE;
    (fit / unit).max(1) * unit
}

/// Number of rows that are prefetched while the distances to the previous rows are computed.
const ROWS_AHEAD: usize = 16;

/// Implements [`crate::Kernel::one_to_some`].
pub(crate) fn one_to_some<T: Number>(
    tiles: &dyn Tiles<T>,
    x: &[T],
    panel: &Panel<T>,
    rows: &[u32],
    out: &mut [T::Distance],
) {
    let ask_for = |rows: &[u32]| rows.iter().for_each(|&row| prefetch(panel.row(row as usize)));
    let (first, mut ahead) = rows.split_at(rows.len().min(ROWS_AHEAD));
    ask_for(first);
    for (rows, out) in rows.chunks(ROWS_AHEAD).zip(out.chunks_mut(ROWS_AHEAD)) {
        let (next, later) = ahead.split_at(ahead.len().min(ROWS_AHEAD));
        ask_for(next);
        ahead = later;
        tiles.one_to_some(x, panel, rows, out);
    }
}

/// Implements [`crate::Kernel::many_to_many`].
pub(crate) fn many_to_many<T: Number>(
    tiles: &dyn Tiles<T>,
    rows: Rows<'_, T>,
    columns: &PackedColumns<T>,
    out: &mut [T::Distance],
) {
    let chunk = chunk_columns::<T>(columns.dimensions);
    for from in (0..columns.len).step_by(chunk) {
        let to = columns.len.min(from + chunk);
        let parts = rows.order.chunks(TILE_ROWS).zip(out.chunks_mut(TILE_ROWS * columns.len));
        for (group, (members, out)) in parts.enumerate() {
            tiles.matrix(&Group::new(rows.panel, members, group * TILE_ROWS, from..to), columns, out);
        }
    }
}

/// Implements [`crate::Kernel::within`].
pub(crate) fn within<T: Number>(
    tiles: &dyn Tiles<T>,
    rows: Rows<'_, T>,
    reach: &[u32],
    columns: &PackedColumns<T>,
    limit: T::Distance,
    hits: &mut Vec<HitMask>,
) -> u64 {
    let group = |positions: Range<usize>| (rounded_reach(&reach[positions], columns.len), limit);
    within_groups(tiles, rows, columns, group, hits)
}

/// Implements [`crate::Kernel::within_each`].
pub(crate) fn within_each<T: Number>(
    tiles: &dyn Tiles<T>,
    rows: Rows<'_, T>,
    limits: &[T::Distance],
    columns: &PackedColumns<T>,
    hits: &mut Vec<HitMask>,
) -> u64 {
    let largest = |a: T::Distance, b: T::Distance| if b > a { b } else { a };
    let group = |positions: Range<usize>| {
        let limit = limits[positions].iter().copied().reduce(largest);
        (columns.len, limit.expect("a group has a row"))
    };
    within_groups(tiles, rows, columns, group, hits)
}

/// Finds pairs by groups of rows. `group` receives the positions of a group's rows in the order, and returns the
/// column to stop at and the limit.
fn within_groups<T: Number>(
    tiles: &dyn Tiles<T>,
    rows: Rows<'_, T>,
    columns: &PackedColumns<T>,
    group: impl Fn(Range<usize>) -> (usize, T::Distance),
    hits: &mut Vec<HitMask>,
) -> u64 {
    let chunk = chunk_columns::<T>(columns.dimensions);
    let mut computed = 0;
    for from in (0..columns.len).step_by(chunk) {
        for (number, members) in rows.order.chunks(TILE_ROWS).enumerate() {
            let position = number * TILE_ROWS;
            let (end, limit) = group(position..position + members.len());
            let to = end.min(from + chunk);
            if from < to {
                tiles.within(&Group::new(rows.panel, members, position, from..to), columns, limit, hits);
                computed += (members.len() * (to - from)) as u64;
            }
        }
    }
    computed
}

/// Implements [`crate::Kernel::nearest`].
pub(crate) fn nearest<T: Number>(
    tiles: &dyn Tiles<T>,
    rows: Rows<'_, T>,
    columns: &PackedColumns<T>,
    out: &mut [(u32, T::Distance)],
) {
    let chunk = chunk_columns::<T>(columns.dimensions);
    out.fill((0, T::FARTHEST));
    for from in (0..columns.len).step_by(chunk) {
        let to = columns.len.min(from + chunk);
        for (group, (members, out)) in rows.order.chunks(TILE_ROWS).zip(out.chunks_mut(TILE_ROWS)).enumerate() {
            let mut nearest = [(0, T::FARTHEST); TILE_ROWS];
            nearest[..out.len()].copy_from_slice(out);
            tiles.nearest(&Group::new(rows.panel, members, group * TILE_ROWS, from..to), columns, &mut nearest);
            out.copy_from_slice(&nearest[..members.len()]);
        }
    }
}

/// Implements [`crate::Kernel::least_of_columns`].
pub(crate) fn least_of_columns<T: Number>(
    tiles: &dyn Tiles<T>,
    rows: LeastRows<'_, T>,
    columns: &PackedColumns<T>,
    out: &mut [LeastOfColumn<T>],
) {
    out.fill(LeastOfColumn::NONE);
    for (out, from) in out.chunks_mut(LEAST_COLUMNS).zip((0..).step_by(LEAST_COLUMNS)) {
        tiles.least_of_columns(rows, columns, from, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_is_the_largest_rounded_up_and_capped() {
        for (reach, columns, expected) in [
            (&[0, 0, 0, 0][..], 100, 0),
            (&[0, 1, 0][..], 100, 16),
            (&[16, 3][..], 100, 16),
            (&[17][..], 100, 32),
            (&[97][..], 100, 100),
            (&[u32::MAX][..], 100, 100),
            (&[5][..], 0, 0),
        ] {
            assert_eq!(rounded_reach(reach, columns), expected, "{reach:?} of {columns}");
        }
    }

    #[test]
    fn chunks_are_whole_tiles() {
        for dimensions in [0, 1, 100, 128, 384, 8192] {
            assert_eq!(chunk_columns::<f32>(dimensions) % TILE_COLUMNS, 0);
            assert!(chunk_columns::<u8>(dimensions) > 0);
        }
    }
}
