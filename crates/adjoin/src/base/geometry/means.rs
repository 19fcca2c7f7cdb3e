//! Computes means of vectors, to which k-means moves its centers.

use adjoin_kernels::Panel;

use super::Coordinate;

/// Moves each center to the mean of its members. Centers without members are not moved. `of` has the center of each
/// point.
pub(crate) fn move_to_means<T: Coordinate>(points: &Panel<T>, of: &[u32], centers: &mut Panel<T>) {
    let mut means = Means::new(centers.rows(), centers.dimensions());
    of.iter().enumerate().for_each(|(row, &center)| means.add(center as usize, points.row(row)));
    means.write(centers);
}

/// Maximum number of members that are added per center. Further members would hardly move the mean, and a sum of bytes
/// can hold this many.
const MEMBERS_MAX: u32 = 1 << 24;

/// Sums of the members of each center. They are added in the order of the calls of [`Means::add`].
pub(crate) struct Means<T: Coordinate> {
    sums: Vec<T::Sum>,
    counts: Vec<u32>,
    dimensions: usize,
}

impl<T: Coordinate> Means<T> {
    /// Creates sums without members.
    pub(crate) fn new(centers: usize, dimensions: usize) -> Self {
        Self { sums: vec![T::Sum::default(); centers * dimensions], counts: vec![0; centers], dimensions }
    }

    /// Adds a member to a center.
    pub(crate) fn add(&mut self, center: usize, point: &[T]) {
        if self.counts[center] < MEMBERS_MAX {
            self.counts[center] += 1;
            T::add_to(point, &mut self.sums[center * self.dimensions..][..self.dimensions]);
        }
    }

    /// Moves each center to the mean of its members. Centers without members are not moved.
    pub(crate) fn write(&self, centers: &mut Panel<T>) {
        for (k, &count) in self.counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            let sum = &self.sums[k * self.dimensions..][..self.dimensions];
            for (to, &sum) in centers.row_mut(k).iter_mut().zip(sum) {
                *to = T::from_mean(sum.into() / f64::from(count));
            }
        }
    }
}

/// Copies row `row` of a panel to row `at` of another panel with the same number of dimensions.
pub(crate) fn copy_row<T: Coordinate>(from: &Panel<T>, row: usize, to: &mut Panel<T>, at: usize) {
    let coordinates = &from.row(row)[..from.dimensions()];
    to.row_mut(at).copy_from_slice(coordinates);
}
