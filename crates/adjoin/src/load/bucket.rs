//! A bucket in memory, as coordinates.

use adjoin_device::MappedBlocks;
use adjoin_kernels::{Kernel, Panel};

use super::buckets::Buckets;
use super::members::Members;
use super::pair_filter::PairFilter;
use super::read_ahead::{StoredBucket, StoredMembers};
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::source::Ids;
use crate::sql::Rank;

/// Bytes of a bucket in memory that do not depend on its members: references to it, and its entry in a cache.
const BUCKET_BYTES: u64 = 512;

/// Loaded members of a bucket, with their row numbers and ids.
pub(crate) struct LoadedBucket<T: Coordinate> {
    pub(crate) members: Members<T>,
    /// Computed squared distance of each member to the bucket's center.
    pub(crate) own: Vec<T::Distance>,
    rows: Vec<u64>,
    ids: Ids,
    /// Position of the first loaded member among the filtered members of the bucket.
    first: u32,
    /// Ranks for the pair filter: the same number of ranks for each member. Empty if there is no filter.
    ranks: Vec<Rank>,
}

impl<T: Coordinate> LoadedBucket<T> {
    /// Verifies the bytes of a bucket that was read, and converts them. Row N of `centers` is the center of bucket N.
    ///
    /// # Errors
    /// Fails if the bytes are damaged.
    pub(crate) fn load(
        buckets: &Buckets<'_>,
        kernel: Kernel,
        centers: &Panel<T>,
        stored: StoredBucket,
    ) -> Result<Self> {
        let StoredMembers { first, vectors, rows, ids } = stored.members(buckets)?;
        let members = Members::new(kernel, buckets.space(), &vectors);
        // If the numbers differed, vectors would get the row numbers of other rows.
        assert_eq!(members.len(), rows.len(), "a bucket has a row number for each vector");
        let mut own = vec![T::Distance::default(); members.len()];
        // The distances are computed here once, since the rules need them for every edge of the bucket.
        kernel.one_to_many(centers.row(stored.number() as usize), &members.panel, &mut own);
        let number = stored.number();
        let ranks = match buckets.pairs() {
            Some(_) => (0..rows.len() as u32).flat_map(|member| buckets.ranks(number, member)).copied().collect(),
            None => Vec::new(),
        };
        Ok(Self { members, own, rows, ids, first, ranks })
    }

    /// Wraps vectors that do not belong to a bucket, so that they can be compared with queries.
    pub(crate) fn of_rows(members: Members<T>, rows: Vec<u64>) -> Self {
        assert_eq!(members.len(), rows.len(), "each member has a row");
        Self { members, own: Vec::new(), rows, ids: Ids::None, first: 0, ranks: Vec::new() }
    }

    /// Returns the memory of a bucket in bytes.
    pub(crate) fn memory_bytes(buckets: &Buckets<'_>, number: u32, with_ids: bool) -> u64 {
        let rows = u64::from(buckets.members(number));
        if rows == 0 {
            return 0;
        }
        let ids = if with_ids { buckets.extent(number).id_bytes } else { 0 };
        let [of_row, own] = [size_of::<u64>(), size_of::<T::Distance>()].map(|bytes| rows * bytes as u64);
        let blocks = [of_row, own, rows * buckets.rank_bytes(number), ids].map(MappedBlocks::block_bytes);
        Members::<T>::memory_bytes(rows, buckets.space()) + blocks.iter().sum::<u64>() + BUCKET_BYTES
    }

    /// Returns the additional memory in bytes while a bucket is loaded, for the bucket that needs the most. If a
    /// filter is set, it consists of the stored vectors of filtered members, and the row numbers and ids of all
    /// members. If the rows of a store are sorted by a column, it also has a second copy of the row numbers.
    pub(crate) fn loading_bytes(buckets: &Buckets<'_>, with_ids: bool) -> u64 {
        let of = |number: u32| {
            let (extent, members) = (buckets.extent(number), buckets.members(number));
            // Row numbers and ids are decoded for all members before the filter drops some of them.
            let of_all = u64::from(extent.rows) * size_of::<u64>() as u64 + if with_ids { extent.id_bytes } else { 0 };
            u64::from(members) * buckets.vectors().bytes() as u64 + of_all
        };
        let sorted = |number: u32| {
            let is_sorted = buckets.at(number).0.manifest().sorted_by.is_some();
            u64::from(is_sorted) * u64::from(buckets.extent(number).rows) * size_of::<u64>() as u64
        };
        let all = |number| sorted(number) + if buckets.is_part(number) { of(number) } else { 0 };
        buckets.taking_part().map(all).max().unwrap_or(0)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns an upper bound on the squared distance of a member to the bucket's center.
    pub(crate) fn own_at_most(&self, member: u32) -> f64 {
        T::at_most(self.own[member as usize], self.members.panel.dimensions())
    }

    /// Returns the position of a member among all filtered members of its bucket.
    pub(crate) fn place(&self, member: u32) -> u32 {
        self.first + member
    }

    pub(crate) fn row(&self, member: u32) -> u64 {
        self.rows[member as usize]
    }

    /// Returns the ranks of a member for the pair filter; empty if there is no filter.
    pub(crate) fn ranks(&self, member: u32) -> &[Rank] {
        let width = self.ranks.len() / self.rows.len();
        &self.ranks[member as usize * width..][..width]
    }

    /// Returns whether a filter accepts a pair of members of two buckets. The left row of the pair is the earlier one.
    /// If two sets are joined, it is the row of the first set, so `self` must be a bucket of that set.
    pub(crate) fn is_accepted(&self, member: u32, other: &Self, other_member: u32, filter: &PairFilter) -> bool {
        let (ranks, other_ranks) = (self.ranks(member), other.ranks(other_member));
        match filter.is_of_two_sets() || self.row(member) < other.row(other_member) {
            true => filter.accepts(ranks, other_ranks),
            false => filter.accepts(other_ranks, ranks),
        }
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }
}
