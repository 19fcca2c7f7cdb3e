//! Groups sampled vectors that are near each other, so that one bound can exclude members of a bucket for a whole
//! group.

use std::ops::Range;

use adjoin_kernels::{Kernel, Panel};

use crate::base::geometry::Coordinate;
use crate::load::DrawnVectors;

/// Number of sampled vectors per group. Smaller groups have tighter bounds, but there are more pivots for which
/// distances to members are computed and sorted.
pub(super) const GROUP_VECTORS: usize = 128;

/// Sampled vectors, divided into groups of consecutive ones. Buckets are stored in the order of a tree of their
/// centers, so consecutive vectors are near each other.
pub(super) struct DrawnGroups<T: Coordinate> {
    /// The mean of each group.
    pub(super) pivots: Panel<T>,
    /// Squared distance of each sampled vector to the pivot of its group.
    own: Vec<T::Distance>,
}

/// Some of the sampled vectors of one group.
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

    /// Returns the memory in bytes per sampled vector, rounded up.
    pub(super) fn bytes_a_vector(dimensions: usize) -> u64 {
        Panel::<T>::bytes_for(1, dimensions).div_ceil(GROUP_VECTORS as u64) + size_of::<T::Distance>() as u64
    }

    /// Returns the memory in bytes that does not depend on the number of vectors: the pivot of a last, smaller group,
    /// and the sums for a mean.
    pub(super) fn least_bytes(dimensions: usize) -> u64 {
        Panel::<T>::bytes_for(1, dimensions) + (dimensions * size_of::<T::Sum>()) as u64
    }

    /// Returns the groups of a range of sampled vectors. The first and the last group may be incomplete.
    pub(super) fn of(&self, vectors: Range<usize>) -> impl Iterator<Item = DrawnGroup> {
        let pivots = vectors.start / GROUP_VECTORS..vectors.end.div_ceil(GROUP_VECTORS);
        let group = move |pivot| DrawnGroup { pivot: pivot as u32, vectors: group_of(pivot, &vectors) };
        let groups = pivots.map(group);
        groups.filter(|group| !group.vectors.is_empty())
    }

    /// Returns the squared distance of a sampled vector to the pivot of its group.
    pub(super) fn own(&self, vector: usize) -> T::Distance {
        self.own[vector]
    }
}

/// Returns the part of the range `vectors` that belongs to group `pivot`.
fn group_of(pivot: usize, vectors: &Range<usize>) -> Range<usize> {
    let start = pivot * GROUP_VECTORS;
    start.max(vectors.start)..(start + GROUP_VECTORS).min(vectors.end)
}
