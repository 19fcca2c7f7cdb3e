//! The reference level: plain loops that define what every level computes.

use crate::blocks;
use crate::columns::PackedColumns;
use crate::number::Number;
use crate::panel::Panel;
use crate::tile::{Block, Group, HitMask, LeastOfColumn, LeastRows, NearestColumns, Tiles};

/// Number of partial sums of a distance of floats.
pub(crate) const LANES: usize = 16;

/// The level that every processor has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference;

/// Returns the exact squared distance of two vectors of bytes.
fn distance_u8(x: &[u8], y: &[u8]) -> u32 {
    x.iter().zip(y).map(|(&x, &y)| u32::from(x.abs_diff(y)).pow(2)).sum()
}

/// Returns the squared distance of two vectors of floats, from differences. Lane `l` sums the squares for elements
/// `l`, `l + 16`, ... with one rounding per step. Then the lanes are added in halves.
fn distance_f32(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    for (x, y) in x.chunks_exact(LANES).zip(y.chunks_exact(LANES)) {
        for (sum, (&x, &y)) in lanes.iter_mut().zip(x.iter().zip(y)) {
            let difference = x - y;
            *sum = difference.mul_add(difference, *sum);
        }
    }
    sum_in_halves(lanes)
}

/// Adds the upper half of the lanes to the lower half, and repeats this until one lane is left.
#[inline(always)]
pub(crate) fn sum_in_halves<F: Copy + std::ops::AddAssign, const N: usize>(mut lanes: [F; N]) -> F {
    let mut half = N / 2;
    while half > 0 {
        for lane in 0..half {
            let upper = lanes[lane + half];
            lanes[lane] += upper;
        }
        half /= 2;
    }
    lanes[0]
}

/// Sums `term` over the elements of two vectors. Lane `l` sums the terms of elements `l`, `l + N`, ... Then the lanes
/// are added in halves.
#[inline(always)]
pub(crate) fn sum_in_lanes<F, const N: usize>(x: &[f32], y: &[f32], term: impl Fn(f32, f32) -> F) -> F
where
    F: Copy + Default + std::ops::AddAssign,
{
    let mut lanes = [F::default(); N];
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<N>(), y.as_chunks::<N>());
    for (x, y) in xs.iter().zip(ys) {
        for lane in 0..N {
            lanes[lane] += term(x[lane], y[lane]);
        }
    }
    for (lane, (&x, &y)) in lanes.iter_mut().zip(x_rest.iter().zip(y_rest)) {
        *lane += term(x, y);
    }
    sum_in_halves(lanes)
}

/// Returns a bound `r` on the relative error of the distance of two vectors of `dimensions` floats. If the exact
/// squared distance is `s`, the computed one differs from it by at most `r * s`. It holds if no sum overflows and no
/// square underflows.
///
/// Let `u = 2^-24` be the bound on the relative error of one rounding. A computed difference is `(x - y)(1 + a)` with
/// `|a| <= u`, so its square has this factor twice. A lane takes `n = ceil(dimensions / 16)` fused steps, and each
/// rounds the sum of the lane once. The tree adds four roundings. Thus every term of the sum has at most `n + 6`
/// factors `1 + a`. No term is negative, so the sum is off by a factor between `(1 - u)^(n + 6)` and `(1 + u)^(n +
/// 6)` (Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2). For `k = n + 6`, `(1 + u)^k -
/// 1` is below `k u + (k u)^2`. Up to [`crate::DIMENSIONS_MAX`] dimensions, `k^2 u` is below 2, so the bound is `(n +
/// 8) u`.
pub fn relative_error(dimensions: usize) -> f64 {
    (dimensions.div_ceil(LANES) + 8) as f64 * 2.0_f64.powi(-24)
}

/// Computes the distances of a group to the block of columns that starts at `from`.
fn block<T: Number>(group: &Group<'_, T>, columns: &PackedColumns<T>, from: usize, distance: Distance<T>) -> Block<T> {
    let mut block = Block::<T>::default();
    for (row, distances) in group.rows.iter().zip(&mut block) {
        for (column, place) in distances.iter_mut().enumerate() {
            *place = distance(row, columns.row(from + column));
        }
    }
    block
}

/// A function that returns the squared distance of two padded vectors.
type Distance<T> = fn(&[T], &[T]) -> <T as Number>::Distance;

macro_rules! plain_loops {
    ($scalar:ty, $distance:path) => {
        impl Tiles<$scalar> for Reference {
            fn pack(&self, panel: &Panel<$scalar>, order: &[u32], columns: &mut PackedColumns<$scalar>) {
                columns.copy_rows(panel, order);
            }

            fn distance(&self, x: &[$scalar], y: &[$scalar]) -> <$scalar as Number>::Distance {
                $distance(x, y)
            }

            fn one_to_many(&self, x: &[$scalar], panel: &Panel<$scalar>, out: &mut [<$scalar as Number>::Distance]) {
                for (row, place) in out.iter_mut().enumerate() {
                    *place = $distance(x, panel.row(row));
                }
            }

            fn one_to_some(
                &self,
                x: &[$scalar],
                panel: &Panel<$scalar>,
                rows: &[u32],
                out: &mut [<$scalar as Number>::Distance],
            ) {
                for (&row, place) in rows.iter().zip(out) {
                    *place = $distance(x, panel.row(row as usize));
                }
            }

            fn matrix(
                &self,
                group: &Group<'_, $scalar>,
                columns: &PackedColumns<$scalar>,
                out: &mut [<$scalar as Number>::Distance],
            ) {
                blocks::matrix(group, columns, out, |from| block(group, columns, from, $distance));
            }

            fn within(
                &self,
                group: &Group<'_, $scalar>,
                columns: &PackedColumns<$scalar>,
                limit: <$scalar as Number>::Distance,
                hits: &mut Vec<HitMask>,
            ) {
                let distances = |from| Some(block(group, columns, from, $distance));
                blocks::within(group, limit, hits, distances, blocks::near);
            }

            fn nearest(
                &self,
                group: &Group<'_, $scalar>,
                columns: &PackedColumns<$scalar>,
                nearest: &mut NearestColumns<$scalar>,
            ) {
                let distances = |from| block(group, columns, from, $distance);
                blocks::nearest(group, nearest, distances, blocks::nearer);
            }

            fn least_of_columns(
                &self,
                rows: LeastRows<'_, $scalar>,
                columns: &PackedColumns<$scalar>,
                from: usize,
                out: &mut [LeastOfColumn<$scalar>],
            ) {
                let distances = |group: &Group<'_, $scalar>, (): &mut (), from| block(group, columns, from, $distance);
                blocks::least_of_columns(rows, from, out, |_| (), distances);
            }
        }
    };
}

plain_loops!(u8, distance_u8);
plain_loops!(f32, distance_f32);
