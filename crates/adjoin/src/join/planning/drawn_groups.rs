//! Groups sampled vectors that are near each other, so that one bound can exclude members of a bucket for a whole
//! group.

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

impl<T: Coordinate> DrawnGroups<T> {
    pub(super) fn new(kernel: Kernel, drawn: &DrawnVectors<T>) -> Self {
        let (panel, count) = (&drawn.members.panel, drawn.len());
        let mut pivots = Panel::zeroed(count.div_ceil(GROUP_VECTORS), panel.dimensions());
        let mut own = Vec::with_capacity(count);
        let mut sums = vec![T::Sum::default(); panel.dimensions()];
        for pivot in 0..pivots.rows() {
            let vectors = pivot * GROUP_VECTORS..count.min((pivot + 1) * GROUP_VECTORS);
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

    /// Returns the number of the group of a sampled vector, which is the row of its pivot.
    pub(super) fn group_of(vector: u32) -> u32 {
        vector / GROUP_VECTORS as u32
    }

    /// Returns the squared distance of a sampled vector to the pivot of its group.
    pub(super) fn own(&self, vector: usize) -> T::Distance {
        self.own[vector]
    }
}
