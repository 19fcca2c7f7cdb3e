//! Distances of floats, computed from differences as the reference defines them.
//!
//! The reference sums elements `l`, `l + 16`, ... in lane `l` and then adds the lanes in halves. Here, each lane of a
//! register is a column. Therefore the sums of the reference's sixteen lanes are computed one after the other, each
//! in the reference's order of elements. Two sums are added as soon as both exist. Columns are packed in the order in
//! which their elements are needed, so that a block is read from its first line to its last.

use crate::columns::{PackedColumns, TILE_COLUMNS};
use crate::panel::Panel;
use crate::reference::LANES;
use crate::registers::{Floats, Integers, transposed_floats, tree};
use crate::tile::{Block, Group, TILE_ROWS};

use super::bytes::cut;

/// Lanes of the reference in the order in which its tree needs them. Entry `k` is `k` with its bits reversed, so the
/// permutation is its own inverse. The sums at positions `2 k` and `2 k + 1` are added first, then the sums of two
/// such pairs, and so on.
const TREE_ORDER: [usize; LANES] = [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15];

/// Number of levels of the tree.
const TREE_LEVELS: usize = LANES.ilog2() as usize;

/// For each row, its sums for the columns of a block.
type Sums = [Floats; TILE_ROWS];

/// Returns how many elements each lane of the reference sums, including padding.
fn steps_of(dimensions: usize) -> usize {
    dimensions.div_ceil(LANES)
}

/// Packs columns. Line `position * steps + step` of a block holds element `16 step + TREE_ORDER[position]` of sixteen
/// columns.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(crate) fn interleave(panel: &Panel<f32>, order: &[u32], columns: &mut PackedColumns<f32>) {
    let (zeros, steps) = (vec![0.0; panel.stride()], steps_of(panel.dimensions()));
    let blocks = order.len().div_ceil(TILE_COLUMNS);
    (columns.len, columns.dimensions) = (order.len(), panel.dimensions());
    columns.storage.resize(blocks * LANES * steps);
    let blocks = columns.storage.as_mut_slice().as_chunks_mut::<8>().0.chunks_exact_mut((2 * LANES * steps).max(1));
    for (block, members) in blocks.zip(order.chunks(TILE_COLUMNS)) {
        let mut vectors = [&zeros[..]; TILE_COLUMNS];
        for (vector, &member) in vectors.iter_mut().zip(members) {
            *vector = panel.row(member as usize);
        }
        for (half, vectors) in vectors.as_chunks::<8>().0.iter().enumerate() {
            for eight in 0..2 * steps {
                let elements = transposed_floats(vectors.map(|vector| vector.as_chunks().0[eight]));
                for (element, values) in elements.into_iter().enumerate() {
                    let position = TREE_ORDER[eight % 2 * 8 + element];
                    block[(position * steps + eight / 2) * 2 + half] = values;
                }
            }
        }
    }
}

/// Computes the squared distances of a group to the block of columns that starts at `from`.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(crate) fn block(group: &Group<'_, f32>, columns: &PackedColumns<f32>, from: usize) -> Block<f32> {
    block_unless(group, columns, from, |_| false).expect("nothing stops the computation")
}

/// Computes a block of distances. Returns `None` as soon as some of the reference's lanes show that all of them are
/// above `limit` (the partial distance of [`head_ends`](crate::columns::head_ends)): rounded sums of squares do not
/// decrease if more squares are added. If an element is not finite, it may return either.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(crate) fn block_within(
    group: &Group<'_, f32>,
    columns: &PackedColumns<f32>,
    from: usize,
    limit: f32,
) -> Option<Block<f32>> {
    block_unless(group, columns, from, |sums| {
        let mut near = 0;
        for row in 0..TILE_ROWS {
            near |= sums[row].not_above(limit);
        }
        near == 0
    })
}

/// Computes a block of distances. Returns `None` if `can_stop` returns true for the sums of a quarter or of half of the
/// lanes.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
fn block_unless(
    group: &Group<'_, f32>,
    columns: &PackedColumns<f32>,
    from: usize,
    can_stop: impl Fn(&Sums) -> bool,
) -> Option<Block<f32>> {
    let steps = steps_of(columns.dimensions);
    let lines: &[[f32; LANES]] = &columns.storage.as_slice().as_chunks().0[from * steps..][..LANES * steps];
    let mut rows: [&[[f32; LANES]]; TILE_ROWS] = [&[]; TILE_ROWS];
    for row in 0..TILE_ROWS {
        rows[row] = cut(group.rows[row], steps);
    }
    // For each level of the tree, a sum that waits for its neighbor.
    let mut waiting = [[Floats::splat(0.0); TILE_ROWS]; TREE_LEVELS];
    for (position, lane) in TREE_ORDER.into_iter().enumerate() {
        // Skips the line of the last step if it has only padding, which adds nothing.
        let filled = columns.dimensions.saturating_sub(lane).div_ceil(LANES);
        let mut sums = lane_sums(&rows, &lines[position * steps..][..filled], lane);
        let mut level = 0;
        while position >> level & 1 == 1 {
            sums = added(waiting[level], sums);
            level += 1;
        }
        if level == TREE_LEVELS {
            return Some([sums[0].to_array(), sums[1].to_array(), sums[2].to_array(), sums[3].to_array()]);
        }
        if (position == LANES / 4 - 1 || position == LANES / 2 - 1) && can_stop(&sums) {
            return None;
        }
        waiting[level] = sums;
    }
    unreachable!("the last position ends at the root of the tree")
}

/// Computes the sums of lane `lane` of the reference.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
fn lane_sums(rows: &[&[[f32; LANES]]; TILE_ROWS], lines: &[[f32; LANES]], lane: usize) -> Sums {
    let steps = lines.len();
    let rows = [&rows[0][..steps], &rows[1][..steps], &rows[2][..steps], &rows[3][..steps]];
    // The compiler does not know that every entry of `TREE_ORDER` is below the length of a line.
    let lane = lane % LANES;
    let mut sums = [Floats::splat(0.0); TILE_ROWS];
    for step in 0..steps {
        let columns = Floats::load(&lines[step]);
        for row in 0..TILE_ROWS {
            let element = Floats::splat(rows[row][step][lane]);
            sums[row] = sums[row].plus_squared_difference(element, columns);
        }
    }
    sums
}

/// Adds the sums of each row.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
fn added(a: Sums, mut b: Sums) -> Sums {
    for row in 0..TILE_ROWS {
        b[row] = a[row].plus(b[row]);
    }
    b
}

/// Implements `Blocks::near`.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
pub(crate) fn near(distances: &[f32; TILE_COLUMNS], limit: f32) -> u64 {
    Floats::load(distances).not_above(limit)
}

/// Implements `Blocks::nearer`. A NaN distance is never nearer.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
#[inline]
pub(crate) fn nearer(
    distances: &[f32; TILE_COLUMNS],
    first: u32,
    best: &mut [f32; TILE_COLUMNS],
    places: &mut [u32; TILE_COLUMNS],
) {
    let (mut nearest, mut columns) = (Floats::load(best), Integers::load(places));
    nearest.take_less(&mut columns, Floats::load(distances), Integers::from(first));
    (*best, *places) = (nearest.to_array(), columns.to_array());
}

/// Computes the squared distances of `x` to up to four vectors.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
#[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
pub(crate) fn one_to_rows<const R: usize>(x: &[f32], rows: [&[f32]; R]) -> [f32; 4] {
    let steps = x.len() / LANES;
    let x = cut(x, steps);
    let mut y: [&[[f32; LANES]]; R] = [&[]; R];
    for row in 0..R {
        y[row] = cut(rows[row], steps);
    }
    let mut sums = [Floats::splat(0.0); 4];
    for step in 0..steps {
        let x = Floats::load(&x[step]);
        for row in 0..R {
            sums[row] = sums[row].plus_squared_difference(x, Floats::load(&y[row][step]));
        }
    }
    tree(sums)
}

/// Implements a level's distances of floats with the functions of this module. Only the level's `detect` may create
/// the type, and it must check for the features that these functions need.
macro_rules! blocks_of_floats {
    ($level:ty) => {
        // SAFETY: a value of the type proves the features.
        unsafe impl Blocks<f32> for $level {
            type Prepared = ();

            fn pack(&self, panel: &Panel<f32>, order: &[u32], columns: &mut PackedColumns<f32>) {
                // SAFETY: `self` proves the features.
                unsafe { floats::interleave(panel, order, columns) }
            }

            fn distance(&self, x: &[f32], y: &[f32]) -> f32 {
                // SAFETY: `self` proves the features.
                let [distance, ..] = unsafe { floats::one_to_rows(x, [y]) };
                distance
            }

            fn one_to_rows<'a>(&self, x: &[f32], row: impl Fn(usize) -> &'a [f32], out: &mut [f32]) {
                // SAFETY: `self` proves the features.
                by_rows(row, out, |rows: [&[f32]; 4]| unsafe { floats::one_to_rows(x, rows) });
            }

            fn prepare(&self, _: &Group<'_, f32>, _: &PackedColumns<f32>) -> Self::Prepared {}

            fn block(
                &self,
                group: &Group<'_, f32>,
                (): &mut Self::Prepared,
                columns: &PackedColumns<f32>,
                from: usize,
            ) -> Block<f32> {
                // SAFETY: `self` proves the features.
                unsafe { floats::block(group, columns, from) }
            }

            fn block_within(
                &self,
                group: &Group<'_, f32>,
                (): &mut Self::Prepared,
                columns: &PackedColumns<f32>,
                from: usize,
                limit: f32,
            ) -> Option<Block<f32>> {
                // SAFETY: `self` proves the features.
                unsafe { floats::block_within(group, columns, from, limit) }
            }

            fn near(&self, distances: &[f32; TILE_COLUMNS], limit: f32) -> u64 {
                // SAFETY: `self` proves the features.
                unsafe { floats::near(distances, limit) }
            }

            fn nearer(
                &self,
                distances: &[f32; TILE_COLUMNS],
                first: u32,
                best: &mut [f32; TILE_COLUMNS],
                places: &mut [u32; TILE_COLUMNS],
            ) {
                // SAFETY: `self` proves the features.
                unsafe { floats::nearer(distances, first, best, places) }
            }
        }
    };
}

pub(crate) use blocks_of_floats;
