//! Subsets of the members of a store's buckets.

use crate::base::random::Random;
use crate::base::row_numbers::RankedSet;
use crate::store::format::Extent;

/// Returns the position in bucket order of the first row of each bucket of a store, followed by the number of rows.
pub(crate) fn starts(extents: &[Extent]) -> Vec<u32> {
    let mut starts = Vec::with_capacity(extents.len() + 1);
    starts.push(0);
    let mut place = 0;
    starts.extend(extents.iter().map(|extent| {
        place += extent.rows;
        place
    }));
    starts
}

/// A subset of a store's members, as a set of *places*: positions of members in bucket order.
#[derive(Clone, Copy)]
pub(crate) struct Subset<'a> {
    pub(crate) places: &'a RankedSet,
    /// Place of the first member of each bucket, followed by the number of members.
    pub(crate) starts: &'a [u32],
}

impl Subset<'_> {
    /// Returns whether a member of a bucket is in the subset.
    pub(crate) fn contains(self, bucket: u32, member: u32) -> bool {
        self.places.contains(self.starts[bucket as usize] + member)
    }

    /// Returns the size of the subset.
    pub(crate) fn len(self) -> u64 {
        self.places.len().into()
    }

    /// Samples `count` distinct members of the subset, or takes all if there are fewer. Returns the bucket of each and
    /// its position in the bucket, in ascending order.
    pub(crate) fn draw(self, count: u64, seed: u64, purpose: &str) -> Vec<(u32, u32)> {
        let ranks = Random::new(seed, purpose).ascending_sample(count.min(self.len()), self.len());
        let (mut ranks, mut bucket) = (ranks.into_iter().peekable(), 0);
        let drawn = (0..).zip(self.places.iter()).filter(|(rank, _)| ranks.next_if_eq(rank).is_some());
        let of_bucket = |(_, place): (u64, u32)| {
            while place >= self.starts[bucket as usize + 1] {
                bucket += 1;
            }
            (bucket, place - self.starts[bucket as usize])
        };
        drawn.map(of_bucket).collect()
    }

    /// Returns the members of a bucket that are in the subset, in ascending order.
    pub(crate) fn members(self, bucket: u32) -> impl Iterator<Item = u32> {
        let [start, end] = [bucket, bucket + 1].map(|bucket| self.starts[bucket as usize]);
        (0..end - start).filter(move |&member| self.contains(bucket, member))
    }

    /// Returns the position of the member of a bucket that has `rank` members of the subset before it.
    ///
    /// # Panics
    /// Panics if the bucket has no such member.
    pub(crate) fn member(self, bucket: u32, rank: u32) -> u32 {
        let start = self.starts[bucket as usize];
        self.places.at_rank(self.places.rank(start) + rank) - start
    }

    /// Returns how many members of a bucket are in the subset.
    pub(crate) fn rows(self, bucket: u32) -> u64 {
        let [start, end] = [bucket, bucket + 1].map(|bucket| self.places.rank(self.starts[bucket as usize]));
        (end - start).into()
    }
}
