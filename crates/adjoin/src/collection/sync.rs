//! Locks that decide who of several threads comes when: those of the system, or, in builds with `adjoin_shuttle`, those of the
//! model checker Shuttle, with which a test chooses among the orders in which threads may come (`make interleavings`).

#[cfg(adjoin_shuttle)]
pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(adjoin_shuttle))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(adjoin_shuttle))]
pub(super) use crate::workers::lock;

/// Locks; a panic elsewhere is told by whoever joins that thread.
#[cfg(adjoin_shuttle)]
pub(super) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
