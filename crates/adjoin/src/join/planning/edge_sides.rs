//! What two buckets know of each other, brought together: each says it of many others, and an edge needs both.

use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use crate::context::Context;
use crate::error::Result;
use crate::plan::EdgeSide;
use crate::store::{PartitionSizes, Partitions};
use crate::workers::lock;

/// Sides of edges on their way to each other: buckets lie in stripes, and a partition holds the sides between two
/// stripes, in both directions. What does not fit into memory goes to a temporary file.
pub(super) struct EdgeSides<'a, S> {
    context: &'a Context,
    buckets: u64,
    stripes: u64,
    partitions: usize,
    sides: Mutex<Partitions>,
    of: PhantomData<S>,
}

impl<'a, S: EdgeSide> EdgeSides<'a, S> {
    /// None yet; `memory` bytes are for them.
    pub(super) fn new(context: &'a Context, buckets: u32, memory: u64) -> Self {
        let buckets = u64::from(buckets);
        // A third for the partition that is looked at; as large as that if every bucket is near every other.
        let (held, looked_at) = (memory / 3 * 2, memory / 3);
        let all = buckets * buckets * size_of::<S>() as u64;
        let stripes = (2 * all).div_ceil(looked_at.max(1)).isqrt() + 1;
        let sizes = PartitionSizes::within(held, stripes * (stripes + 1) / 2);
        let sides = Mutex::new(Partitions::new(context, &context.temporary(None), "edges", sizes));
        Self { context, buckets, stripes, partitions: sizes.partitions, sides, of: PhantomData }
    }

    /// Takes what a bucket says.
    pub(super) fn take(&self, sides: impl Iterator<Item = S>) -> Result<()> {
        let mut partitions = lock(&self.sides);
        for side in sides {
            let (from, towards) = side.direction();
            partitions.push(self.partition(from, towards), &[side.as_bytes()])?;
        }
        Ok(())
    }

    /// The partition of an edge: pairs of stripes, numbered row by row.
    fn partition(&self, i: u32, j: u32) -> usize {
        let stripe = |bucket: u32| u64::from(bucket) * self.stripes / self.buckets;
        let (low, high) = (stripe(i.min(j)), stripe(i.max(j)));
        let pair = low * self.stripes - low * low.saturating_sub(1) / 2 + (high - low);
        (pair * self.partitions as u64 / (self.stripes * (self.stripes + 1) / 2)) as usize
    }

    /// Hands over all sides, both of an edge at once and one behind the other.
    pub(super) fn gather(self, mut take: impl FnMut(&[S]) -> Result<()>) -> Result<()> {
        let records = self.sides.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?;
        let mut sides: Vec<S> = Vec::new();
        for partition in 0..self.partitions {
            self.context.cancel.check()?;
            sides.clear();
            records.read(partition, |bytes| {
                let side = |bytes| S::read_from_bytes(bytes).expect("chunks are as long as a side");
                sides.extend(bytes.chunks_exact(size_of::<S>()).map(side));
                Ok(())
            })?;
            sides.sort_unstable_by_key(|side| (side.edge(), side.direction().0));
            take(&sides)?;
        }
        Ok(())
    }
}
