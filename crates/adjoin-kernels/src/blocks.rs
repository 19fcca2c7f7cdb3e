//! Loops around a level's computation of a block of distances. They work on arrays of lanes, so the compiler
//! vectorizes them with the instructions of the level that calls them.

use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::number::Number;
use crate::tile::{Block, Group, HitMask, LEAST_COLUMNS, LEAST_RANKS, LeastOfColumn, LeastRows, NearestColumns};

/// One value per column of a block.
type Lanes<V> = [V; TILE_COLUMNS];

/// Implements [`crate::tile::Tiles::matrix`]. `block` computes the block that starts at a column.
#[inline(always)]
pub(crate) fn matrix<T: Number>(
    group: &Group<'_, T>,
    columns: &PackedColumns<T>,
    out: &mut [T::Distance],
    mut block: impl FnMut(usize) -> Block<T>,
) {
    for from in group.columns.clone().step_by(TILE_COLUMNS) {
        let to = group.columns.end.min(from + TILE_COLUMNS);
        let distances = block(from);
        for (line, distances) in out.chunks_exact_mut(columns.len).zip(&distances).take(group.count) {
            line[from..to].copy_from_slice(&distances[..to - from]);
        }
    }
}

/// Implements [`crate::tile::Tiles::within`]. `block` computes the block that starts at a column, or returns `None` if
/// all of its distances are above the limit. `near` returns a mask of the distances for which [`is_within`] is true.
#[inline(always)]
pub(crate) fn within<T: Number>(
    group: &Group<'_, T>,
    limit: T::Distance,
    hits: &mut Vec<HitMask>,
    mut block: impl FnMut(usize) -> Option<Block<T>>,
    near: impl Fn(&Lanes<T::Distance>, T::Distance) -> u64,
) {
    for from in group.columns.clone().step_by(TILE_COLUMNS) {
        for (row, distances) in block(from).iter().flatten().enumerate() {
            let bits = near(distances, limit);
            if bits != 0 && row < group.count {
                group.hit(row, from, bits, hits);
            }
        }
    }
}

/// Returns a mask of the distances for which [`is_within`] is true.
#[inline(always)]
pub(crate) fn near<D: Copy + PartialOrd>(distances: &Lanes<D>, limit: D) -> u64 {
    let bit = |(k, &distance): (usize, &D)| u64::from(is_within(distance, limit)) << k;
    distances.iter().enumerate().map(bit).fold(0, |bits, bit| bits | bit)
}

/// Returns whether a distance is not above `limit`. NaN is the distance of vectors that overflowed or are invalid. It
/// counts as within the limit, because the caller checks hits again.
#[allow(clippy::neg_cmp_op_on_partial_ord)] // `<=` would be false for NaN
#[inline(always)]
fn is_within<D: PartialOrd>(distance: D, limit: D) -> bool {
    !(distance > limit)
}

/// Implements [`crate::tile::Tiles::nearest`]. `nearer` is the function [`nearer`] or a level's version of it.
#[inline(always)]
pub(crate) fn nearest<T: Number>(
    group: &Group<'_, T>,
    nearest: &mut NearestColumns<T>,
    mut block: impl FnMut(usize) -> Block<T>,
    nearer: impl Fn(&Lanes<T::Distance>, u32, &mut Lanes<T::Distance>, &mut Lanes<u32>),
) {
    let mut best = nearest.map(|(_, distance)| [distance; TILE_COLUMNS]);
    let mut places = nearest.map(|(column, _)| [column; TILE_COLUMNS]);
    for from in group.columns.clone().step_by(TILE_COLUMNS) {
        let mut distances = block(from);
        let real = group.columns.end - from;
        if real < TILE_COLUMNS {
            // Columns past the end are zero vectors, which may be nearer than any column.
            distances.iter_mut().for_each(|distances| distances[real..].fill(T::FARTHEST));
        }
        for ((best, places), distances) in best.iter_mut().zip(&mut places).zip(&distances) {
            nearer(distances, from as u32, best, places);
        }
    }
    for (nearest, (best, places)) in nearest.iter_mut().zip(best.iter().zip(&mut places)) {
        // Each lane has the first of the nearest columns in this lane. If several lanes have the same distance, the
        // lowest of their columns is the first of all.
        let distance = least_lane(*best);
        for lane in 0..TILE_COLUMNS {
            places[lane] = if best[lane] == distance { places[lane] } else { u32::MAX };
        }
        *nearest = (least_lane(*places), distance);
    }
}

/// Compares, in each lane, a distance with the best one. If it is less, updates the best distance and its column. The
/// first lane is column `first`.
#[inline(always)]
pub(crate) fn nearer<D: Copy + PartialOrd>(
    distances: &Lanes<D>,
    first: u32,
    best: &mut Lanes<D>,
    places: &mut Lanes<u32>,
) {
    for lane in 0..TILE_COLUMNS {
        if distances[lane] < best[lane] {
            (best[lane], places[lane]) = (distances[lane], first + lane as u32);
        }
    }
}

/// Returns the smallest value. None of the values may be NaN.
#[inline(always)]
fn least_lane<V: Copy + PartialOrd>(mut values: Lanes<V>) -> V {
    let mut half = TILE_COLUMNS / 2;
    while half > 0 {
        for lane in 0..half {
            let upper = values[lane + half];
            values[lane] = if upper < values[lane] { upper } else { values[lane] };
        }
        half /= 2;
    }
    values[0]
}

/// Smallest distances and smallest margins of each column of a block, in ascending order.
#[derive(Clone, Copy)]
struct LeastOfBlock<T: Number> {
    distances: [Lanes<T::Distance>; LEAST_RANKS],
    margins: [Lanes<T::Margin>; LEAST_RANKS],
}

impl<T: Number> LeastOfBlock<T> {
    /// The initial state, without any distance.
    const NONE: Self = Self {
        distances: [[T::FARTHEST; TILE_COLUMNS]; LEAST_RANKS],
        margins: [[T::MARGIN_MAX; TILE_COLUMNS]; LEAST_RANKS],
    };

    /// Adds the distances of all columns to one row. `own` is subtracted from each to get the margins.
    #[inline(always)]
    fn note(&mut self, distances: &Lanes<T::Distance>, own: T::Distance) {
        insert(&mut self.distances, *distances);
        insert(&mut self.margins, distances.map(|distance| T::margin(distance, own)));
    }
}

/// Inserts one value into the ascending list of each lane. The largest value of each list is dropped.
#[inline(always)]
fn insert<V: Copy + PartialOrd>(least: &mut [Lanes<V>; LEAST_RANKS], mut values: Lanes<V>) {
    for places in least {
        for lane in 0..TILE_COLUMNS {
            let (value, place) = (values[lane], places[lane]);
            let is_less = value < place;
            places[lane] = if is_less { value } else { place };
            values[lane] = if is_less { place } else { value };
        }
    }
}

/// Implements [`crate::tile::Tiles::least_of_columns`]. `prepare` computes the values for the rows of a group that
/// `block` needs. `block` computes the block that starts at a column.
#[inline(always)]
pub(crate) fn least_of_columns<T: Number, P>(
    rows: LeastRows<'_, T>,
    from: usize,
    out: &mut [LeastOfColumn<T>],
    prepare: impl Fn(&Group<'_, T>) -> P,
    block: impl Fn(&Group<'_, T>, &mut P, usize) -> Block<T>,
) {
    let mut blocks = [LeastOfBlock::<T>::NONE; LEAST_COLUMNS / TILE_COLUMNS];
    let firsts = || (from..from + out.len()).step_by(TILE_COLUMNS);
    for (members, own) in rows.tiles() {
        let group = Group::new(rows.rows.panel, members, 0, from..from + out.len());
        let mut prepared = prepare(&group);
        for (least, first) in blocks.iter_mut().zip(firsts()) {
            // A short group repeats its last row. `own` has no elements for repeated rows, so `zip` skips them and
            // none counts twice.
            let distances = block(&group, &mut prepared, first);
            distances.iter().zip(own).for_each(|(distances, &own)| least.note(distances, own));
        }
    }
    for (out, block) in out.chunks_mut(TILE_COLUMNS).zip(&blocks) {
        for rank in 0..LEAST_RANKS {
            for (lane, least) in out.iter_mut().enumerate() {
                (least.distances[rank], least.margins[rank]) = (block.distances[rank][lane], block.margins[rank][lane]);
            }
        }
    }
}
