//! Some of the members of the buckets of a store.

use crate::row_numbers::RankedSet;

/// Members that count, where others do not: a set of *places*, which number the members of all buckets in their order.
#[derive(Clone, Copy)]
pub(crate) struct Subset<'a> {
    pub(crate) places: &'a RankedSet,
    /// The first place of each bucket, and the end.
    pub(crate) starts: &'a [u32],
}

impl Subset<'_> {
    /// Whether a member of a bucket counts.
    pub(crate) fn contains(self, bucket: u32, member: u32) -> bool {
        self.places.contains(self.starts[bucket as usize] + member)
    }

    /// How many members of a bucket count.
    pub(crate) fn rows(self, bucket: u32) -> u64 {
        let [start, end] = [bucket, bucket + 1].map(|bucket| self.places.rank(self.starts[bucket as usize]));
        (end - start).into()
    }
}
