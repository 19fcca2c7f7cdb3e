//! Buckets that are held in memory between tasks: carries out the steps of [`crate::plan`], which decides what is held.

use std::sync::{Arc, Mutex, OnceLock};

use adjoin_device::{BudgetExceeded, MemoryBudget, Reservation};

use super::bucket::LoadedBucket;
use super::read_ahead::StoredBucket;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::plan::Steps;
use crate::workers::lock;

/// The buckets in memory. What it holds at the end of one schedule may be there when the next begins.
pub(crate) struct Cache<T: Coordinate> {
    memory: MemoryBudget,
    held: Vec<Option<Arc<CachedBucket<T>>>>,
}

/// A bucket in the cache; its memory comes back when it was evicted and the last job on it is done.
pub(crate) struct CachedBucket<T: Coordinate> {
    /// What was read, until somebody works on it.
    stored: Mutex<Option<StoredBucket>>,
    /// None where it could not be loaded.
    loaded: OnceLock<Option<LoadedBucket<T>>>,
    _memory: Reservation,
}

impl<T: Coordinate> Cache<T> {
    /// An empty one for so many buckets, of which those that fit into `memory` are held at a time.
    pub(crate) fn new(memory: MemoryBudget, buckets: usize) -> Self {
        let mut held = Vec::new();
        held.resize_with(buckets, || None);
        Self { memory, held }
    }

    /// Bytes of its table for so many buckets, the steps that it follows included.
    pub(crate) fn table_bytes(buckets: usize) -> u64 {
        (buckets * (size_of::<Option<Arc<CachedBucket<T>>>>() + Steps::BYTES_A_BUCKET)) as u64
    }

    /// Memory for a bucket, if it is free: buckets that were evicted may still be worked on.
    pub(crate) fn reserve(&self, bytes: u64) -> std::result::Result<Reservation, BudgetExceeded> {
        self.memory.reserve(bytes)
    }

    /// The same, once those who work on evicted ones are done.
    pub(crate) fn reserve_when_free(&self, bytes: u64) -> Reservation {
        self.memory.reserve_when_free(bytes).expect("the least cache holds every bucket")
    }

    /// Takes a bucket that was read.
    pub(crate) fn insert(&mut self, stored: StoredBucket, memory: Reservation) -> Arc<CachedBucket<T>> {
        let slot = &mut self.held[stored.number() as usize];
        assert!(slot.is_none(), "a bucket is loaded when it is not held");
        let bucket = CachedBucket { stored: Mutex::new(Some(stored)), loaded: OnceLock::new(), _memory: memory };
        slot.insert(Arc::new(bucket)).clone()
    }

    /// Lets go of a bucket.
    pub(crate) fn evict(&mut self, number: u32) {
        let evicted = self.held[number as usize].take();
        assert!(evicted.is_some(), "only what is held is evicted");
    }

    /// A bucket that is held.
    pub(crate) fn get(&self, number: u32) -> Arc<CachedBucket<T>> {
        self.held[number as usize].clone().expect("the schedule loads before it verifies")
    }

    /// The buckets that are held, ascending.
    #[cfg(test)]
    pub(crate) fn resident(&self) -> Vec<u32> {
        (0..).zip(&self.held).filter(|(_, held)| held.is_some()).map(|(number, _)| number).collect()
    }
}

impl<T: Coordinate> CachedBucket<T> {
    /// Loads the bucket, unless somebody has begun to: whoever has other work does not wait for that.
    ///
    /// # Errors
    /// Of `load`.
    pub(crate) fn load_ahead(&self, load: impl FnOnce(StoredBucket) -> Result<LoadedBucket<T>>) -> Result<()> {
        let Some(stored) = lock(&self.stored).take() else { return Ok(()) };
        let _told = ToldAtLast(&self.loaded);
        let bucket = load(stored)?;
        let set = self.loaded.set(Some(bucket));
        assert!(set.is_ok(), "only who took what was read sets it");
        Ok(())
    }

    /// The bucket: whoever asks first loads it, others wait for that. None where it could not be loaded: who tried got
    /// the error.
    pub(crate) fn loaded(
        &self,
        load: impl FnOnce(StoredBucket) -> Result<LoadedBucket<T>>,
    ) -> Result<Option<&LoadedBucket<T>>> {
        self.load_ahead(load)?;
        Ok(self.loaded.wait().as_ref())
    }
}

/// Tells those who wait for a bucket that it could not be loaded, where it was not, a panic included.
struct ToldAtLast<'a, T: Coordinate>(&'a OnceLock<Option<LoadedBucket<T>>>);

impl<T: Coordinate> Drop for ToldAtLast<'_, T> {
    fn drop(&mut self) {
        let _ = self.0.set(None); // refused where the bucket is there
    }
}
