//! Sums in f64 over vectors of floats, in one fixed order that suits vector registers: every level repeats it bit for bit,
//! as each is these loops compiled for it.

use crate::reference::{Reference, sum_in_halves};

/// Partial sums.
const LANES: usize = 32;

/// What a level computes.
pub(crate) trait Wide {
    fn dot(&self, x: &[f32], y: &[f32]) -> f64;
    fn squared_distance(&self, x: &[f32], y: &[f32]) -> f64;
}

impl Wide for Reference {
    fn dot(&self, x: &[f32], y: &[f32]) -> f64 {
        dot(x, y)
    }

    fn squared_distance(&self, x: &[f32], y: &[f32]) -> f64 {
        squared_distance(x, y)
    }
}

/// Inner product. The product of two floats is exact in f64, so it does not matter whether it is fused with the sum.
#[inline(always)]
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f64 {
    sum(x, y, |x, y| x * y)
}

/// Squared distance.
#[inline(always)]
pub(crate) fn squared_distance(x: &[f32], y: &[f32]) -> f64 {
    sum(x, y, |x, y| (x - y) * (x - y))
}

/// Sums a term: lane `l` those of elements `l`, `l + 32`, ..., then the lanes are added in halves.
#[inline(always)]
fn sum(x: &[f32], y: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    let mut lanes = [0.0_f64; LANES];
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in xs.iter().zip(ys) {
        for lane in 0..LANES {
            lanes[lane] += term(x[lane].into(), y[lane].into());
        }
    }
    for (lane, (&x, &y)) in lanes.iter_mut().zip(x_rest.iter().zip(y_rest)) {
        *lane += term(x.into(), y.into());
    }
    sum_in_halves(lanes)
}

/// How far [`crate::Kernel::dot_wide`] and [`crate::Kernel::squared_distance_wide`] may be from the same sums taken in
/// f64 and in the order of the elements, as a share of the sum of the absolute terms.
///
/// Either way a term carries at most `dimensions + 3` roundings of `u = 2^-53` (Higham, Accuracy and Stability of
/// Numerical Algorithms, section 4.2), so both are within `(dimensions + 4) u` of the exact sum; twice that is granted,
/// for what a caller computes from them.
pub fn wide_error(dimensions: usize) -> f64 {
    (4 * (dimensions + 4)) as f64 * 2.0_f64.powi(-53)
}
