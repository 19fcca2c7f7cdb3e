//! Groups vectors that are near each other, so that one bound can exclude a whole group.

use std::ops::Range;

use adjoin_kernels::{Kernel, Panel};

use crate::base::geometry::Coordinate;

/// Relative error bound for the few f64 operations of a bound.
const SLACK: f64 = 1e-12;

/// Groups of consecutive rows of a panel. Rows are in the order of a tree of their buckets' centers, so consecutive
/// ones are near each other.
pub(super) struct Groups<T: Coordinate> {
    /// Number of rows per group. The last group may be smaller.
    size: usize,
    rows: usize,
    /// The mean of each group.
    pub(super) pivots: Panel<T>,
    /// Squared distance of each row to the pivot of its group.
    own: Vec<T::Distance>,
    /// Upper bound on the distance between the pivot of each group and its rows.
    radii: Vec<f64>,
}

/// Some of the rows of one group.
pub(super) struct Group {
    /// Row of the pivot.
    pub(super) pivot: u32,
    pub(super) rows: Range<usize>,
}

impl<T: Coordinate> Groups<T> {
    /// Divides the rows of a panel into groups of `size` rows.
    pub(super) fn new(kernel: Kernel, panel: &Panel<T>, size: usize) -> Self {
        let (count, dimensions) = (panel.rows(), panel.dimensions());
        let mut groups = Self {
            size,
            rows: count,
            pivots: Panel::zeroed(count.div_ceil(size), dimensions),
            own: Vec::with_capacity(count),
            radii: Vec::with_capacity(count.div_ceil(size)),
        };
        let mut sums = vec![T::Sum::default(); dimensions];
        for pivot in 0..groups.count() {
            let rows = groups.rows_of(pivot);
            sums.fill(T::Sum::default());
            rows.clone().for_each(|row| T::add_to(&panel.row(row)[..dimensions], &mut sums));
            let mean = |&sum: &T::Sum| T::from_mean(sum.into() / rows.len() as f64);
            groups.pivots.row_mut(pivot).iter_mut().zip(&sums).for_each(|(to, sum)| *to = mean(sum));
            groups.own.extend(rows.clone().map(|row| kernel.distance(panel.row(row), groups.pivots.row(pivot))));
            let at_most = groups.own[rows].iter().map(|&own| T::at_most(own, dimensions));
            groups.radii.push(at_most.fold(0.0, f64::max).sqrt() * (1.0 + SLACK));
        }
        groups
    }

    /// Returns the memory in bytes per row, rounded up.
    pub(super) fn bytes_a_row(dimensions: usize, size: usize) -> u64 {
        let of_group = Panel::<T>::bytes_for(1, dimensions) + size_of::<f64>() as u64;
        of_group.div_ceil(size as u64) + size_of::<T::Distance>() as u64
    }

    /// Returns the memory in bytes that does not depend on the number of rows: the pivot of a last, smaller group, and
    /// the sums for a mean.
    pub(super) fn least_bytes(dimensions: usize) -> u64 {
        Panel::<T>::bytes_for(1, dimensions) + (size_of::<f64>() + dimensions * size_of::<T::Sum>()) as u64
    }

    pub(super) fn count(&self) -> usize {
        self.pivots.rows()
    }

    /// Returns the rows of a group.
    pub(super) fn rows_of(&self, group: usize) -> Range<usize> {
        let start = group * self.size;
        start..(start + self.size).min(self.rows)
    }

    /// Returns the groups with rows in the range `rows`, without the groups that have no row within a distance of
    /// `point`. `distance_to` returns this distance for each group. The first and the last group may be incomplete.
    pub(super) fn near(
        &self,
        kernel: Kernel,
        point: &[T],
        rows: Range<usize>,
        distance_to: impl Fn(usize) -> f64,
    ) -> Vec<Group> {
        let reaches = |&group: &usize| {
            let squared = kernel.distance(point, self.pivots.row(group));
            // By the triangle inequality, no row is nearer to the point than this.
            let least = T::at_least(squared, self.pivots.dimensions()).sqrt() * (1.0 - SLACK) - self.radii[group];
            least <= distance_to(group)
        };
        let group = |group: usize| {
            let of = self.rows_of(group);
            Group { pivot: group as u32, rows: of.start.max(rows.start)..of.end.min(rows.end) }
        };
        let all = rows.start / self.size..rows.end.div_ceil(self.size);
        all.filter(reaches).map(group).filter(|group| !group.rows.is_empty()).collect()
    }

    /// Returns the squared distance of a row to the pivot of its group.
    pub(super) fn own(&self, row: usize) -> T::Distance {
        self.own[row]
    }
}
