//! Groups drawn vectors that are near each other, so that one bound excludes members of a bucket for all of a group.

use std::ops::Range;

use adjoin_kernels::{Kernel, Panel};

use crate::base::geometry::Coordinate;
use crate::load::DrawnVectors;

/// Drawn vectors of a group. With fewer, the bound is tighter, but members are measured from and sorted for more pivots.
pub(super) const GROUP_VECTORS: usize = 128;

/// Drawn vectors in groups of consecutive ones. Buckets are stored in the order of a tree of their centers, so these are
/// near each other.
pub(super) struct DrawnGroups<T: Coordinate> {
    /// The mean of each group.
    pub(super) pivots: Panel<T>,
    /// Squared distance of each drawn vector to the pivot of its group.
    own: Vec<T::Distance>,
}

/// Some drawn vectors of one group.
pub(super) struct DrawnGroup {
    /// Row of the pivot.
    pub(super) pivot: u32,
    pub(super) vectors: Range<usize>,
}

impl<T: Coordinate> DrawnGroups<T> {
    pub(super) fn new(kernel: Kernel, drawn: &DrawnVectors<T>) -> Self {
        let (panel, count) = (&drawn.members.panel, drawn.len());
        let mut pivots = Panel::zeroed(count.div_ceil(GROUP_VECTORS), panel.dimensions());
        let mut own = Vec::with_capacity(count);
        let mut sums = vec![T::Sum::default(); panel.dimensions()];
        for pivot in 0..pivots.rows() {
            let vectors = group_of(pivot, &(0..count));
            sums.fill(T::Sum::default());
            vectors.clone().for_each(|vector| T::add_to(&panel.row(vector)[..sums.len()], &mut sums));
            let mean = |&sum: &T::Sum| T::from_mean(sum.into() / vectors.len() as f64);
            pivots.row_mut(pivot).iter_mut().zip(&sums).for_each(|(to, sum)| *to = mean(sum));
            own.extend(vectors.map(|vector| kernel.distance(panel.row(vector), pivots.row(pivot))));
        }
        Self { pivots, own }
    }

    /// Returns the bytes per drawn vector, rounded up.
    pub(super) fn bytes_a_vector(dimensions: usize) -> u64 {
        Panel::<T>::bytes_for(1, dimensions).div_ceil(GROUP_VECTORS as u64) + size_of::<T::Distance>() as u64
    }

    /// Returns the bytes that are held for any number of vectors: the pivot of a last, smaller group, and the sums of a
    /// mean.
    pub(super) fn least_bytes(dimensions: usize) -> u64 {
        Panel::<T>::bytes_for(1, dimensions) + (dimensions * size_of::<T::Sum>()) as u64
    }

    /// Returns the groups of some drawn vectors.
    pub(super) fn of(&self, vectors: Range<usize>) -> impl Iterator<Item = DrawnGroup> {
        let pivots = vectors.start / GROUP_VECTORS..vectors.end.div_ceil(GROUP_VECTORS);
        let group = move |pivot| DrawnGroup { pivot: pivot as u32, vectors: group_of(pivot, &vectors) };
        let groups = pivots.map(group);
        groups.filter(|group| !group.vectors.is_empty())
    }

    /// Returns the squared distance of a drawn vector to the pivot of its group.
    pub(super) fn own(&self, vector: usize) -> T::Distance {
        self.own[vector]
    }
}

/// Returns the vectors of a group among `vectors`.
fn group_of(pivot: usize, vectors: &Range<usize>) -> Range<usize> {
    let start = pivot * GROUP_VECTORS;
    start.max(vectors.start)..(start + GROUP_VECTORS).min(vectors.end)
}
