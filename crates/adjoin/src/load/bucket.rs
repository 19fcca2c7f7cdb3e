//! A bucket in memory: its members, and where they lie.

use adjoin_kernels::{Kernel, Panel};

use super::buckets::Buckets;
use super::members::Members;
use super::read_ahead::StoredBucket;
use crate::error::Result;
use crate::geometry::{Coordinate, Space};
use crate::source::Ids;
use crate::store::format::Extent;

/// A bucket's members, and where they lie.
pub(crate) struct LoadedBucket<T: Coordinate> {
    pub(crate) members: Members<T>,
    /// For each member, its computed squared distance to the bucket's center.
    pub(crate) own: Vec<T::Distance>,
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
        let members = Members::new(kernel, buckets.space(), vectors);
        assert_eq!(members.len(), decoded.rows.len(), "a bucket has a row number for each vector");
        let mut own = vec![T::Distance::default(); members.len()];
        kernel.one_to_many(centers.row(stored.number() as usize), &members.panel, &mut own);
        Ok(Self { members, own, rows: decoded.rows, ids: decoded.ids })
    }

    /// Members that lie in no bucket, with their rows: they can be compared with queries.
    pub(crate) fn of_rows(members: Members<T>, rows: Vec<u64>) -> Self {
        assert_eq!(members.len(), rows.len(), "each member has a row");
        Self { members, own: Vec::new(), rows, ids: Ids::None }
    }

    /// Bytes that the bucket of an extent takes in memory.
    pub(crate) fn memory_bytes(extent: &Extent, space: Space<'_>, with_ids: bool) -> u64 {
        let rows = u64::from(extent.rows);
        let ids = if with_ids { extent.id_bytes } else { 0 };
        let a_row = (size_of::<u64>() + size_of::<T::Distance>()) as u64;
        Members::<T>::memory_bytes(rows, space) + a_row * rows + ids
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// A bound that the squared distance of a member to the bucket's center does not pass.
    pub(crate) fn own_at_most(&self, member: u32) -> f64 {
        T::at_most(self.own[member as usize], self.members.panel.dimensions())
    }

    pub(crate) fn row(&self, member: u32) -> u64 {
        self.rows[member as usize]
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }
}
