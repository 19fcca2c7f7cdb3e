//! Vectors of a store drawn at random, in memory.

use adjoin_kernels::Panel;

use super::bucket::Members;
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::random::Random;
use crate::store::{Store, read_vectors};

/// Drawn vectors.
pub(super) struct Drawn<T> {
    pub(super) members: Members<T>,
    /// Bucket and place in it of each, ascending.
    pub(super) places: Vec<(u32, u32)>,
    /// Squared distance of each to the center of its bucket.
    pub(super) own: Vec<f64>,
}

/// Places of `count` different vectors, ascending.
pub(super) fn draw_places(store: &Store, count: u64, seed: u64, purpose: &str) -> Vec<(u32, u32)> {
    let mut buckets = store.extents().iter().zip(0u32..);
    let (mut bucket, mut start, mut end) = (0, 0, 0);
    let rows = store.manifest().rows;
    let drawn = Random::new(seed, purpose).ascending_sample(count.min(rows), rows);
    let place_of = |number: u64| {
        while number >= end {
            let (extent, next) = buckets.next().expect("buckets hold all vectors");
            (bucket, start, end) = (next, end, end + u64::from(extent.rows));
        }
        (bucket, (number - start) as u32)
    };
    drawn.into_iter().map(place_of).collect()
}

impl<T: Coordinate> Drawn<T> {
    /// Reads vectors.
    pub(super) fn read(context: &Context, store: &Store, centers: &Panel<T>, places: &[(u32, u32)]) -> Result<Self> {
        let members = Members::new(store, context.kernel, &read_vectors(context, store, places)?);
        let own = |(k, &(bucket, _)): (usize, &(u32, u32))| {
            let squared = context.kernel.distance(members.panel.row(k), centers.row(bucket as usize));
            T::at_most(squared, centers.dimensions())
        };
        let own = places.iter().enumerate().map(own).collect();
        Ok(Self { members, places: places.to_vec(), own })
    }

    /// Bytes that so many take in memory, while they are read.
    pub(super) fn memory_bytes(store: &Store, count: u64) -> u64 {
        let manifest = store.manifest();
        let members = Members::<T>::memory_bytes(count, manifest.vectors, manifest.metric);
        members + count * (manifest.vectors.bytes() as u64 + 16 + 8)
    }

    /// Those of a bucket.
    pub(super) fn of_bucket(&self, number: u32) -> std::ops::Range<usize> {
        let before = |end: u32| self.places.partition_point(|&(bucket, _)| bucket < end);
        before(number)..before(number + 1)
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}
