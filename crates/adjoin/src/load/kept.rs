//! Buckets that stay in memory between passes over all buckets.

use std::sync::{Arc, Mutex, OnceLock};

use adjoin_device::{Reclaimable, Reservation};

use super::bucket::LoadedBucket;
use super::buckets::Buckets;
use crate::base::context::Context;
use crate::base::geometry::Coordinate;
use crate::base::mutex::lock;

/// Maximum fraction of the free memory for kept buckets: 1 / `KEPT_SHARE`.
const KEPT_SHARE: u64 = 2;
/// Buckets are kept only if they are at least this fraction of all buckets, 1 / `WORTHWHILE_SHARE`. Otherwise other
/// work uses the memory better.
const WORTHWHILE_SHARE: u64 = 4;

/// The first buckets of all passes of a run, as many as fit in half of the free memory. Later passes do not read them
/// again. Other work may take their memory between passes.
pub(crate) struct KeptBuckets<T: Coordinate>(Mutex<Option<Arc<FirstBuckets<T>>>>);

/// Buckets 0 to `loaded.len()`. A bucket is empty until the first pass has loaded it.
pub(super) struct FirstBuckets<T: Coordinate> {
    loaded: Vec<OnceLock<LoadedBucket<T>>>,
    _memory: Reservation,
}

impl<T: Coordinate> KeptBuckets<T> {
    const PLACE_BYTES: u64 = size_of::<OnceLock<LoadedBucket<T>>>() as u64;

    /// Keeps no buckets until [`Self::make_room`] is called.
    pub(crate) fn none() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// Reserves memory for the buckets that the next pass loads.
    pub(crate) fn make_room(self: &Arc<Self>, context: &Context, buckets: &Buckets<'_>) {
        let of = |number| LoadedBucket::<T>::memory_bytes(buckets, number, false) + Self::PLACE_BYTES;
        let (all, most) = ((0..buckets.count()).map(of).sum::<u64>(), context.budget().free() / KEPT_SHARE);
        let (mut count, mut bytes) = (0, 0);
        while count < buckets.count() && bytes + of(count) <= most {
            bytes += of(count);
            count += 1;
        }
        if bytes * WORTHWHILE_SHARE < all {
            return;
        }
        let owner: Arc<dyn Reclaimable> = self.clone();
        // If other work takes the memory first, no bucket is kept.
        if let Ok(memory) = context.budget().reserve_for_cache(bytes, Arc::downgrade(&owner)) {
            let loaded = (0..count).map(|_| OnceLock::new()).collect();
            *lock(&self.0) = Some(Arc::new(FirstBuckets { loaded, _memory: memory }));
        }
    }

    /// Returns the buckets, unless other work took their memory. Their memory is not released before the result is
    /// dropped.
    pub(super) fn first(&self) -> Option<Arc<FirstBuckets<T>>> {
        lock(&self.0).clone()
    }
}

impl<T: Coordinate> Reclaimable for KeptBuckets<T> {
    fn release(&self) {
        lock(&self.0).take();
    }
}

impl<T: Coordinate> FirstBuckets<T> {
    /// Returns the number of buckets that need not be read, since an earlier pass has loaded them.
    pub(super) fn ready(&self, buckets: &Buckets<'_>) -> u32 {
        let is_ready = |number: &u32| self.get(*number).is_some() || buckets.members(*number) == 0;
        (0..self.loaded.len() as u32).take_while(is_ready).count() as u32
    }

    pub(super) fn get(&self, number: u32) -> Option<&LoadedBucket<T>> {
        self.place(number)?.get()
    }

    /// Returns the place of a bucket, or `None` if it is not one of the first ones.
    pub(super) fn place(&self, number: u32) -> Option<&OnceLock<LoadedBucket<T>>> {
        self.loaded.get(number as usize)
    }
}
