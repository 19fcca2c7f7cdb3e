//! One budget for the whole process: who buffers, reserves.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Bytes that may be held at once. Clones share one count.
#[derive(Clone)]
pub struct MemoryBudget {
    shared: Arc<Shared>,
}

struct Shared {
    total: u64,
    reserved: Mutex<u64>,
    released: Condvar,
}

/// A reservation that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} bytes do not fit into the {free} bytes left of a budget of {total}")]
pub struct BudgetExceeded {
    /// Bytes asked for.
    pub wanted: u64,
    /// Bytes that were free.
    pub free: u64,
    /// Size of the budget.
    pub total: u64,
}

/// Bytes taken from a budget; given back when dropped.
pub struct Reservation {
    budget: MemoryBudget,
    bytes: u64,
}

impl MemoryBudget {
    /// A budget of `total` bytes, nothing reserved.
    pub fn new(total: u64) -> Self {
        let shared = Shared { total, reserved: Mutex::new(0), released: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Size of the budget.
    pub fn total(&self) -> u64 {
        self.shared.total
    }

    /// Bytes not reserved at this moment.
    pub fn free(&self) -> u64 {
        self.shared.total - *self.lock()
    }

    /// Takes `bytes`, or says how much is missing.
    ///
    /// # Errors
    /// [`BudgetExceeded`] where fewer bytes are free.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, BudgetExceeded> {
        let mut reserved = self.lock();
        let free = self.shared.total - *reserved;
        if bytes > free {
            return Err(BudgetExceeded { wanted: bytes, free, total: self.shared.total });
        }
        *reserved += bytes;
        Ok(Reservation { budget: self.clone(), bytes })
    }

    /// Takes `bytes` as soon as others have given back enough.
    ///
    /// # Errors
    /// [`BudgetExceeded`] where the whole budget is smaller than `bytes`.
    pub fn reserve_when_free(&self, bytes: u64) -> Result<Reservation, BudgetExceeded> {
        let total = self.shared.total;
        if bytes > total {
            return Err(BudgetExceeded { wanted: bytes, free: total, total });
        }
        let mut reserved = self.lock();
        while bytes > total - *reserved {
            reserved = self.shared.released.wait(reserved).unwrap_or_else(PoisonError::into_inner);
        }
        *reserved += bytes;
        Ok(Reservation { budget: self.clone(), bytes })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, u64> {
        self.shared.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = self.budget.lock();
        assert!(*reserved >= self.bytes, "more given back than taken");
        *reserved -= self.bytes;
        self.budget.shared.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_add_up_and_come_back() {
        let budget = MemoryBudget::new(100);
        let first = budget.reserve(60).unwrap();
        assert_eq!(budget.free(), 40);
        let refused = budget.reserve(41).err().unwrap();
        assert_eq!(refused, BudgetExceeded { wanted: 41, free: 40, total: 100 });
        drop(first);
        assert_eq!(budget.reserve(100).unwrap().bytes(), 100);
    }

    #[test]
    fn waiting_ends_when_bytes_come_back() {
        let budget = MemoryBudget::new(10);
        let held = budget.reserve(10).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| budget.reserve_when_free(4).unwrap().bytes());
            drop(held);
            assert_eq!(waiter.join().unwrap(), 4);
        });
        assert!(budget.reserve_when_free(11).is_err());
    }
}
