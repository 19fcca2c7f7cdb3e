//! A bucket in memory: its members, and where they lie.

use adjoin_kernels::{Kernel, Panel};

use super::buckets::Buckets;
use super::members::Members;
use super::read_ahead::StoredBucket;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::options::{Metric, VectorType};
use crate::source::Ids;
use crate::store::format::Extent;

/// A bucket's members, and where they lie.
pub(crate) struct LoadedBucket<T> {
    pub(crate) members: Members<T>,
    /// For each member, a bound that its squared distance to the bucket's center does not pass.
    pub(crate) own_at_most: Vec<f64>,
    rows: Vec<u64>,
    ids: Ids,
}

impl<T: Coordinate> LoadedBucket<T> {
    /// Checks and converts what was read; the bucket's center is the row of its number in `centers`.
    ///
    /// # Errors
    /// Where the bytes are not as written.
    pub(crate) fn load(
        buckets: &Buckets<'_>,
        kernel: Kernel,
        centers: &Panel<T>,
        stored: StoredBucket,
    ) -> Result<Self> {
        let decoded = stored.decode(buckets)?;
        let vectors = &stored.bytes()[decoded.vectors];
        let members = Members::new(kernel, buckets.vectors(), buckets.metric(), vectors);
        assert_eq!(members.len(), decoded.rows.len(), "a bucket has a row number for each vector");
        let mut own = vec![T::Distance::default(); members.len()];
        kernel.one_to_many(centers.row(stored.number() as usize), &members.panel, &mut own);
        let dimensions = members.panel.dimensions();
        let own_at_most = own.iter().map(|&squared| T::at_most(squared, dimensions)).collect();
        Ok(Self { members, own_at_most, rows: decoded.rows, ids: decoded.ids })
    }

    /// Bytes that the bucket of an extent takes in memory.
    pub(crate) fn memory_bytes(extent: &Extent, vectors: VectorType, metric: Metric, with_ids: bool) -> u64 {
        let rows = u64::from(extent.rows);
        let ids = if with_ids { extent.id_bytes } else { 0 };
        // 16: a row number and a bound for each member.
        Members::<T>::memory_bytes(rows, vectors, metric) + 16 * rows + ids
    }

    /// Bytes that are held beside it while it is loaded: the distances from which bounds are made.
    pub(crate) fn scratch_bytes(rows: usize) -> u64 {
        (rows * size_of::<T::Distance>()) as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn row(&self, member: u32) -> u64 {
        self.rows[member as usize]
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }
}
