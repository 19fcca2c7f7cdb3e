//! Locking of mutexes.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if it is poisoned. The panic that poisoned it is reported when its thread is joined.
pub(crate) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
