//! Selects the pairs between two groups of vectors that a bound admits: the measures of both vectors add up to at most
//! a limit.

use adjoin_kernels::Kernel;

use crate::base::geometry::Coordinate;
use crate::plan::{Measure, within};

/// Vectors on one side of a comparison.
pub(super) struct Side<T: Coordinate> {
    /// Distance of each vector to the center of the other side.
    pub(super) distances: Vec<T::Distance>,
    /// Sort key of each vector's measure ([`Coordinate::measure_keys`]).
    pub(super) keys: Vec<u32>,
    /// Selected vectors in ascending order of measure. The upper half of a number is the key, the lower half the
    /// vector.
    chosen: Vec<u64>,
    pub(super) order: Vec<u32>,
}

impl<T: Coordinate> Default for Side<T> {
    fn default() -> Self {
        Self { distances: Vec::new(), keys: Vec::new(), chosen: Vec::new(), order: Vec::new() }
    }
}

/// Returns the largest measure with which a vector can be part of a pair, given the least measure of the other side.
pub(super) fn most_within(limit: f64, least_other: f64) -> f64 {
    let most = limit - least_other;
    // If both numbers are infinite, the difference is NaN. Then any vector can be part of a pair.
    if most.is_nan() { f64::INFINITY } else { most }
}

/// Returns the least measure with one of these keys; infinity if there are none.
pub(super) fn least_measure<T: Coordinate>(kernel: Kernel, keys: &[u32]) -> f64 {
    let least = kernel.first_least::<u8>(keys);
    keys.get(least).map_or(f64::INFINITY, |&key| T::measure_of(key))
}

/// Selects the pairs of two measured sides whose measures add up to at most `limit`. Sorts both sides by measure. The
/// partners of each row are then a prefix of `others`, whose length is in `reach`. It never grows from one row to the
/// next.
pub(super) fn select<T: Coordinate>(
    kernel: Kernel,
    limit: f64,
    rows: &mut Side<T>,
    others: &mut Side<T>,
    reach: &mut Vec<u32>,
) {
    let least = (least_measure::<T>(kernel, &rows.keys), least_measure::<T>(kernel, &others.keys));
    rows.choose(kernel, most_within(limit, least.1));
    others.choose(kernel, most_within(limit, least.0));
    let measure = |chosen: &u64| T::measure_of((chosen >> 32) as u32);
    let mut reached = others.chosen.len();
    reach.clear();
    for row in rows.chosen.iter().map(measure) {
        let admits = |other| within(row + measure(other), limit);
        // The measures of the rows ascend, so the reach of a row is at most the reach of the row before it.
        while reached > 0 && !admits(&others.chosen[reached - 1]) {
            reached -= 1;
        }
        if reached == 0 {
            break;
        }
        reach.push(reached as u32);
    }
    let widest = reach.first().map_or(0, |&reach| reach as usize);
    rows.keep(reach.len());
    others.keep(widest);
}

impl<T: Coordinate> Side<T> {
    /// Computes the keys of `measure` for all vectors. `own` are the distances of the vectors to the center of their
    /// own side.
    pub(super) fn measure(&mut self, measure: Measure, own: &[T::Distance], dimensions: usize) {
        let own = (measure == Measure::Margin).then_some(own);
        T::measure_keys(&self.distances, own, dimensions, &mut self.keys);
    }

    /// Selects the vectors with a measure of at most `most`, and sorts them by measure, then by position. Usually
    /// there are few, so sorting is cheap.
    fn choose(&mut self, kernel: Kernel, most: f64) {
        self.chosen.clear();
        kernel.at_most(&self.keys, T::key_up_to(most), &mut self.chosen);
        self.chosen.sort_unstable();
    }

    fn keep(&mut self, count: usize) {
        self.order.clear();
        self.order.extend(self.chosen[..count].iter().map(|&chosen| chosen as u32));
    }
}
