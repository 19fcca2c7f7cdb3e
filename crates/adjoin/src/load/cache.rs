//! A cache of buckets in memory. It makes no decisions, but follows the steps that [`crate::plan`] computes.

use std::sync::{Arc, Mutex, OnceLock};

use adjoin_device::{BudgetExceeded, MemoryBudget, Reservation};

use super::bucket::LoadedBucket;
use super::read_ahead::StoredBucket;
use crate::base::error::{Error, Result};
use crate::base::geometry::Coordinate;
use crate::base::mutex::lock;
use crate::base::report::Cancel;
use crate::plan::Steps;

/// The buckets in memory. Buckets that are still cached at the end of a schedule can be used by the next one.
pub(crate) struct Cache<T: Coordinate> {
    memory: MemoryBudget,
    held: Vec<Option<Arc<CachedBucket<T>>>>,
}

/// A bucket in the cache. Its memory is released once the bucket is evicted and the last job that uses it is done.
pub(crate) struct CachedBucket<T: Coordinate> {
    /// The bytes that were read, until a worker loads the bucket from them.
    stored: Mutex<Option<StoredBucket>>,
    /// `None` if loading failed.
    loaded: OnceLock<Option<LoadedBucket<T>>>,
    _memory: Reservation,
}

impl<T: Coordinate> Cache<T> {
    /// Creates an empty cache for `buckets` buckets. The memory of cached buckets is reserved from `memory`.
    pub(crate) fn new(memory: MemoryBudget, buckets: usize) -> Self {
        let mut held = Vec::new();
        held.resize_with(buckets, || None);
        Self { memory, held }
    }

    /// Returns the bytes of the cache's table for `buckets` buckets, and of the state of its steps.
    pub(crate) fn table_bytes(buckets: usize) -> u64 {
        (buckets * (size_of::<Option<Arc<CachedBucket<T>>>>() + Steps::BYTES_A_BUCKET)) as u64
    }

    /// Reserves memory for a bucket. Fails if not enough is free, since evicted buckets that are still in use hold
    /// memory.
    pub(crate) fn reserve(&self, bytes: u64) -> std::result::Result<Reservation, BudgetExceeded> {
        self.memory.reserve(bytes)
    }

    /// Reserves memory for a bucket. Waits until workers have finished with evicted buckets.
    ///
    /// # Errors
    /// Fails if `cancel` is cancelled before that.
    pub(crate) fn reserve_when_free(&self, bytes: u64, cancel: &Cancel) -> Result<Reservation> {
        let reserved = self.memory.reserve_when_free(bytes, || cancel.check().is_err());
        match reserved.expect("the least cache holds every bucket") {
            Some(reserved) => Ok(reserved),
            None => Err(cancel.check().err().unwrap_or_else(Error::cancelled)),
        }
    }

    /// Inserts a bucket that was read, with its reservation.
    pub(crate) fn insert(&mut self, stored: StoredBucket, memory: Reservation) -> Arc<CachedBucket<T>> {
        let slot = &mut self.held[stored.number() as usize];
        assert!(slot.is_none(), "a bucket is inserted only if the cache does not hold it");
        let bucket = CachedBucket { stored: Mutex::new(Some(stored)), loaded: OnceLock::new(), _memory: memory };
        slot.insert(Arc::new(bucket)).clone()
    }

    /// Evicts a bucket.
    pub(crate) fn evict(&mut self, number: u32) {
        let evicted = self.held[number as usize].take();
        assert!(evicted.is_some(), "only a held bucket is evicted");
    }

    /// Returns a bucket that is held.
    pub(crate) fn get(&self, number: u32) -> Arc<CachedBucket<T>> {
        self.held[number as usize].clone().expect("the schedule loads before it verifies")
    }
}

impl<T: Coordinate> CachedBucket<T> {
    /// Loads the bucket with `load`, unless another thread has begun to. Does not wait for that thread.
    ///
    /// # Errors
    /// Fails if `load` does.
    pub(crate) fn load_ahead(&self, load: impl FnOnce(StoredBucket) -> Result<LoadedBucket<T>>) -> Result<()> {
        // The thread that takes the bytes loads the bucket. It does not hold the lock while it does.
        let Some(stored) = lock(&self.stored).take() else { return Ok(()) };
        // Other threads may wait for this bucket, so their wait must end even after an error or a panic.
        let _on_failure = SetOnDrop(&self.loaded);
        let bucket = load(stored)?;
        let set = self.loaded.set(Some(bucket));
        assert!(set.is_ok(), "only the thread that took the bytes sets the bucket");
        Ok(())
    }

    /// Returns the bucket. The first caller loads it, and other callers wait until it is loaded. Returns `None` if the
    /// thread that loaded it failed; that thread got the error.
    pub(crate) fn loaded(
        &self,
        load: impl FnOnce(StoredBucket) -> Result<LoadedBucket<T>>,
    ) -> Result<Option<&LoadedBucket<T>>> {
        self.load_ahead(load)?;
        Ok(self.loaded.wait().as_ref())
    }
}

/// Guard of the thread that loads a bucket. If it is dropped before the bucket is loaded, by an error or a panic, it
/// reports the failure to the threads that wait for the bucket.
struct SetOnDrop<'a, T: Coordinate>(&'a OnceLock<Option<LoadedBucket<T>>>);

impl<T: Coordinate> Drop for SetOnDrop<'_, T> {
    fn drop(&mut self) {
        let _ = self.0.set(None); // fails if the bucket was loaded
    }
}
