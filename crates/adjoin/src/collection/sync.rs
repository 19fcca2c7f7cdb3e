//! Locks that determine the order of threads. They are usually those of the standard library. In builds with
//! `adjoin_shuttle`, they are those of the model checker Shuttle, with which a test explores interleavings (`make
//! interleavings`). This module does not sync files; `log.rs` does.

#[cfg(adjoin_shuttle)]
pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(adjoin_shuttle))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(adjoin_shuttle))]
pub(super) use crate::base::mutex::lock;

/// Locks a mutex, even if another thread panicked while it held the lock. The thread that joins the other one reports
/// the panic.
#[cfg(adjoin_shuttle)]
pub(super) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
