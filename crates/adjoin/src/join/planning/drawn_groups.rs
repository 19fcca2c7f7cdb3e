//! Groups sampled vectors that are near each other, so that the bound of the exact rule can use one pivot for all of
//! them.

use std::ops::Range;

use adjoin_kernels::{Kernel, PackedColumns, Panel, TILE_COLUMNS};

use crate::base::geometry::Coordinate;
use crate::load::DrawnVectors;

/// Number of sampled vectors per group. Smaller groups have tighter bounds, but there are more pivots to which the
/// distances of members are computed.
pub(super) const GROUP_VECTORS: usize = 256;

/// Sampled vectors, divided into groups of consecutive ones. Buckets are stored in the order of a tree of their
/// centers, so consecutive vectors are near each other.
pub(super) struct DrawnGroups<T: Coordinate> {
    /// The sampled vectors.
    pub(super) columns: PackedColumns<T>,
    /// The mean of each group.
    pub(super) pivots: Panel<T>,
    /// Squared distance of each sampled vector to the pivot of its group.
    pub(super) own: Vec<T::Distance>,
    /// The vectors with a larger residual than usual, in ascending order.
    pub(super) unusual: Vec<u32>,
}

impl<T: Coordinate> DrawnGroups<T> {
    /// Groups vectors. `usual` is the largest usual residual.
    pub(super) fn new(kernel: Kernel, drawn: &DrawnVectors<T>, usual: f64) -> Self {
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
        let mut all: Vec<u32> = (0..count as u32).collect();
        let columns = kernel.pack(panel, &all);
        all.retain(|&vector| drawn.members.residual_of(vector) > usual);
        Self { columns, pivots, own, unusual: all }
    }

    /// Returns the memory in bytes per sampled vector, rounded up.
    pub(super) fn bytes_a_vector(dimensions: usize) -> u64 {
        let packed = PackedColumns::<T>::bytes_for(TILE_COLUMNS, dimensions).div_ceil(TILE_COLUMNS as u64);
        let of_number = (size_of::<u32>() + size_of::<T::Distance>()) as u64;
        packed + of_number + Panel::<T>::bytes_for(1, dimensions).div_ceil(GROUP_VECTORS as u64)
    }

    /// Returns the memory in bytes that does not depend on the number of vectors: the pivot of a last, smaller group,
    /// unused columns, and the sums for a mean.
    pub(super) fn least_bytes(dimensions: usize) -> u64 {
        let unused = PackedColumns::<T>::bytes_for(TILE_COLUMNS, dimensions);
        Panel::<T>::bytes_for(1, dimensions) + unused + (dimensions * size_of::<T::Sum>()) as u64
    }

    /// Returns the groups that contain a range of sampled vectors.
    pub(super) fn groups_of(vectors: &Range<usize>) -> Range<usize> {
        vectors.start / GROUP_VECTORS..vectors.end.div_ceil(GROUP_VECTORS)
    }

    /// Returns the vectors of a group that are in the range `among`.
    pub(super) fn vectors_of(group: usize, among: &Range<usize>) -> Range<usize> {
        (group * GROUP_VECTORS).max(among.start)..((group + 1) * GROUP_VECTORS).min(among.end)
    }
}
