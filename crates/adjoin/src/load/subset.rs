//! Some of the members of the buckets of a store.

use crate::row_numbers::RowSet;

/// Members that count, where others do not: a set of *places*, which number the members of all buckets in their order.
#[derive(Clone, Copy)]
pub(crate) struct Subset<'a> {
    pub(crate) places: &'a RowSet,
    /// The first place of each bucket.
    pub(crate) starts: &'a [u32],
}

impl Subset<'_> {
    /// Whether a member of a bucket counts.
    pub(crate) fn contains(self, bucket: u32, member: u32) -> bool {
        self.places.contains((self.starts[bucket as usize] + member).into())
    }
}
