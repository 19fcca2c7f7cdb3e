//! A bucket in memory, ready for the kernels.

use adjoin_kernels::{Kernel, Panel};

use crate::error::Result;
use crate::geometry::Coordinate;
use crate::options::VectorType;
use crate::predicate::Predicate;
use crate::source::Ids;
use crate::store::format::Extent;
use crate::store::{BucketBytes, Store};

/// Blocks of a direct read that a bucket's bytes may reach into on both sides.
const ALIGNMENT_BYTES: u64 = 2 * adjoin_device::BLOCK_BYTES as u64;

/// A bucket's members as coordinates, and as they are stored for the last decision.
pub(super) struct LoadedBucket<T> {
    pub(super) panel: Panel<T>,
    /// For each member, a bound that its squared distance to the bucket's center does not pass.
    pub(super) own_at_most: Vec<f64>,
    bytes: BucketBytes,
    vectors: VectorType,
}

impl<T: Coordinate> LoadedBucket<T> {
    /// Reads bucket `number`, whose center is the row of that number in `centers`.
    pub(super) fn read(store: &Store, kernel: Kernel, centers: &Panel<T>, number: u32, with_ids: bool) -> Result<Self> {
        let manifest = store.manifest();
        let vectors = manifest.vectors;
        let bytes = store.read_bucket(number, with_ids)?;
        let mut panel = Panel::zeroed(bytes.bucket.rows.len(), vectors.dimensions);
        T::load(vectors, manifest.metric, bytes.vectors(), &mut panel);
        let mut own = vec![T::Distance::default(); panel.rows()];
        kernel.one_to_many(centers.row(number as usize), &panel, &mut own);
        let own_at_most = own.iter().map(|&squared| T::at_most(squared, vectors.dimensions)).collect();
        Ok(Self { panel, own_at_most, bytes, vectors })
    }

    /// Bytes that the bucket of an extent takes once it is read.
    pub(super) fn memory_bytes(extent: &Extent, vectors: VectorType, with_ids: bool) -> u64 {
        let rows = u64::from(extent.rows);
        let ids = if with_ids { extent.id_bytes } else { 0 };
        let panel = Panel::<T>::bytes_for(extent.rows as usize, vectors.dimensions);
        // The second column of ids: decoded beside their bytes. 16: a row number and a bound for each member.
        extent.bytes(with_ids) + ALIGNMENT_BYTES + panel + 16 * rows + ids
    }

    pub(super) fn len(&self) -> usize {
        self.panel.rows()
    }

    pub(super) fn row(&self, member: u32) -> u64 {
        self.bytes.bucket.rows[member as usize]
    }

    pub(super) fn ids(&self) -> &Ids {
        &self.bytes.bucket.ids
    }

    /// The value of a pair of the result, decided on the stored elements.
    pub(super) fn decide(&self, predicate: Predicate, member: u32, other: &Self, other_member: u32) -> Option<f32> {
        predicate.decide(self.vectors, self.stored(member), other.stored(other_member))
    }

    fn stored(&self, member: u32) -> &[u8] {
        &self.bytes.vectors()[member as usize * self.vectors.bytes()..][..self.vectors.bytes()]
    }
}
