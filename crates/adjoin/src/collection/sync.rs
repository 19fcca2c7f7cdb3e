//! Locks that determine the order of threads: those of the standard library or, in builds with `adjoin_shuttle`, those
//! of the model checker Shuttle, with which a test explores interleavings (`make interleavings`). Files are synced in
//! `log.rs`.

#[cfg(adjoin_shuttle)]
pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(adjoin_shuttle))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(adjoin_shuttle))]
pub(super) use crate::base::mutex::lock;

/// Locks a mutex. A panic in another thread is reported by the thread that joins it.
#[cfg(adjoin_shuttle)]
pub(super) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
