//! Remembers, while an index is open, the methods by which searches keep a promised recall. Choosing a method from the
//! calibration of the index takes longer than most searches, and a new calibration takes even longer. Therefore a
//! method is chosen only once for each K, recall and seed.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::base::mutex::lock;
use crate::base::report::RecallStatistics;

/// Largest number of remembered promises.
const PROMISES_MAX: usize = 64;

/// A recall that a search for the K nearest promises.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Promise {
    pub(super) k: u64,
    pub(super) recall: f64,
    /// Seed of the calibration sample and of the bootstrap over it.
    pub(super) seed: u64,
}

/// Method that keeps a promise, and the recall that it reaches.
#[derive(Debug, Clone)]
pub(super) struct Keeping {
    /// Length of the list of walks, or `None` for a comparison with all pages.
    pub(super) list: Option<usize>,
    pub(super) recall: RecallStatistics,
}

/// Remembered promises. The last one is the most recently used.
#[derive(Debug, Default)]
pub(super) struct Promises(Mutex<Vec<(Promise, Keeping)>>);

impl Promises {
    /// Returns the method that keeps a promise. Returns `None` if the method is unknown or if another thread holds the
    /// lock.
    pub(super) fn get(&self, promise: Promise) -> Option<Keeping> {
        let mut known = self.try_lock()?;
        let position = known.iter().position(|(known, _)| *known == promise)?;
        // The promise is moved to the end, so that the first promise is always the least recently used one.
        let found = known.remove(position);
        known.push(found);
        known.last().map(|(_, keeping)| keeping.clone())
    }

    /// Remembers the method that keeps a promise. Does nothing if another thread holds the lock. If there are too many
    /// promises, forgets the least recently used one.
    pub(super) fn put(&self, promise: Promise, keeping: Keeping) {
        let Some(mut known) = self.try_lock() else { return };
        known.retain(|(known, _)| *known != promise);
        if known.len() == PROMISES_MAX {
            known.remove(0);
        }
        known.push((promise, keeping));
    }

    /// Returns whether a method for the promise is known.
    pub(super) fn contains(&self, promise: Promise) -> bool {
        lock(&self.0).iter().any(|(known, _)| *known == promise)
    }

    /// Takes the lock if it is free, and never waits for it. If a process is forked while one of its threads holds the
    /// lock, the lock stays held in the child process, where this thread does not exist. Without the lock, a promise is
    /// derived again.
    fn try_lock(&self) -> Option<MutexGuard<'_, Vec<(Promise, Keeping)>>> {
        match self.0.try_lock() {
            Ok(known) => Some(known),
            Err(TryLockError::Poisoned(poisoned)) => Some(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise(k: u64, recall: f64) -> Promise {
        Promise { k, recall, seed: 1 }
    }

    fn keeping(list: usize) -> Keeping {
        Keeping { list: Some(list), recall: RecallStatistics::promised(0.9) }
    }

    #[test]
    fn lookups_do_not_wait_for_a_lock_held_during_a_fork() {
        let promises = Promises::default();
        promises.put(promise(1, 0.9), keeping(1));
        let held = promises.0.lock().unwrap();
        assert!(promises.get(promise(1, 0.9)).is_none());
        promises.put(promise(2, 0.9), keeping(2));
        drop(held);
        assert!(promises.contains(promise(1, 0.9)) && !promises.contains(promise(2, 0.9)));
    }

    #[test]
    fn evicts_the_least_recently_used_recall() {
        let promises = Promises::default();
        let put = |k: u64| promises.put(promise(k, 0.9), keeping(k as usize));
        (0..PROMISES_MAX as u64).for_each(put);
        assert_eq!(promises.get(promise(0, 0.9)).unwrap().list, Some(0));
        put(1_000);
        assert!(promises.contains(promise(0, 0.9)) && promises.contains(promise(1_000, 0.9)));
        assert!(!promises.contains(promise(1, 0.9)) && promises.get(promise(0, 0.8)).is_none());
    }
}
