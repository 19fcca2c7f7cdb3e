//! One memory budget for the whole process, from which every buffer is reserved. A run reserves the memory for all
//! its work at once, and divides this reservation as a budget of its own.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::creator::Creator;

/// Interval at which a waiting thread checks whether it was canceled.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A cache whose memory other work may take.
pub trait Reclaimable: Send + Sync {
    /// Releases the cache. Its reservation returns to the budget once no thread uses the cache anymore.
    fn release(&self);
}

/// Bound on the bytes that are reserved at the same time. Clones share one count.
#[derive(Clone)]
pub struct MemoryBudget {
    shared: Arc<Shared>,
}

struct Shared {
    creator: Creator,
    state: Mutex<State>,
    released: Condvar,
}

struct State {
    total: u64,
    /// Bytes reserved.
    held: u64,
    /// Bytes reserved by runs and caches. Runs end and caches are released, so it makes sense to wait for them.
    held_by_runs: u64,
    /// Caches that are released when a reservation does not fit.
    caches: Vec<Weak<dyn Reclaimable>>,
    /// The reservation that this budget divides, if any.
    within: Option<Reservation>,
}

impl State {
    fn free(&self) -> u64 {
        self.total - self.held
    }
}

/// Error: a reservation does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} bytes do not fit into the {free} bytes left of a budget of {total}")]
pub struct BudgetExceeded {
    /// Bytes requested.
    pub wanted: u64,
    /// Bytes that were free.
    pub free: u64,
    /// Size of the budget.
    pub total: u64,
}

/// Bytes reserved from a budget. Dropping the reservation returns them.
pub struct Reservation {
    budget: MemoryBudget,
    bytes: u64,
    by_run: bool,
}

impl MemoryBudget {
    /// Creates a budget of `total` bytes, all of them free.
    pub fn new(total: u64) -> Self {
        Self::of(total, None)
    }

    /// Creates a budget that divides a reservation. The reservation is held as long as the budget or a reservation
    /// from it exists.
    pub fn within(reservation: Reservation) -> Self {
        Self::of(reservation.bytes, Some(reservation))
    }

    fn of(total: u64, within: Option<Reservation>) -> Self {
        let state = Mutex::new(State { total, held: 0, held_by_runs: 0, caches: Vec::new(), within });
        let creator = Creator::this_process();
        Self { shared: Arc::new(Shared { creator, state, released: Condvar::new() }) }
    }

    /// Returns the process that created the budget. Its forked children must not reserve anything.
    pub fn creator(&self) -> Creator {
        self.shared.creator
    }

    /// Returns the size of the budget.
    pub fn total(&self) -> u64 {
        self.lock().total
    }

    /// Shrinks the budget to `bytes`, or to the bytes that are reserved now if they are more. If the budget divides a
    /// reservation, the rest returns to the budget of that reservation.
    pub fn shrink(&self, bytes: u64) {
        let mut state = self.lock();
        state.total = state.total.min(bytes.max(state.held));
        let total = state.total;
        state.within.iter_mut().for_each(|within| within.shrink(total));
    }

    /// Returns the bytes that are free at this moment.
    pub fn free(&self) -> u64 {
        self.lock().free()
    }

    /// Returns the bytes that are reserved at this moment.
    pub fn reserved(&self) -> u64 {
        self.lock().held
    }

    /// Returns the bytes that will be free once all runs have ended and all caches are released.
    pub fn free_between_runs(&self) -> u64 {
        let state = self.lock();
        state.free() + state.held_by_runs
    }

    /// Reserves `bytes`. Releases caches if they do not fit otherwise.
    ///
    /// # Errors
    /// [`BudgetExceeded`] if fewer bytes are free.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, BudgetExceeded> {
        let refused = match self.reserve_of_free(bytes, false) {
            Err(refused) => refused,
            reserved => return reserved,
        };
        if self.release_caches() { self.reserve_of_free(bytes, false) } else { Err(refused) }
    }

    /// Reserves `bytes` for a cache, which is released when another reservation does not fit. No other cache is released
    /// for it.
    ///
    /// # Errors
    /// [`BudgetExceeded`] if fewer bytes are free.
    pub fn reserve_for_cache(&self, bytes: u64, cache: Weak<dyn Reclaimable>) -> Result<Reservation, BudgetExceeded> {
        let reserved = self.reserve_of_free(bytes, true)?;
        let caches = &mut self.lock().caches;
        // A cache may reserve memory several times.
        caches.retain(|other| other.strong_count() > 0 && !Weak::ptr_eq(other, &cache));
        caches.push(cache);
        Ok(reserved)
    }

    /// Releases all caches. Returns whether there were any.
    fn release_caches(&self) -> bool {
        // Without the lock, which the reservation of a released cache takes.
        let caches = std::mem::take(&mut self.lock().caches);
        caches.iter().filter_map(Weak::upgrade).map(|cache| cache.release()).count() > 0
    }

    fn reserve_of_free(&self, bytes: u64, by_run: bool) -> Result<Reservation, BudgetExceeded> {
        let mut state = self.lock();
        let (free, total) = (state.free(), state.total);
        if bytes > free {
            return Err(BudgetExceeded { wanted: bytes, free, total });
        }
        Ok(self.take(&mut state, bytes, by_run))
    }

    /// Reserves `bytes`. Waits until enough bytes are free. Returns `None` if `cancelled` returned true before that.
    ///
    /// # Errors
    /// [`BudgetExceeded`] if the whole budget is smaller than `bytes`.
    pub fn reserve_when_free(
        &self,
        bytes: u64,
        cancelled: impl Fn() -> bool,
    ) -> Result<Option<Reservation>, BudgetExceeded> {
        let mut state = self.lock();
        while bytes > state.free() {
            let total = state.total;
            if bytes > total {
                return Err(BudgetExceeded { wanted: bytes, free: total, total });
            }
            if !state.caches.is_empty() {
                drop(state);
                self.release_caches();
                state = self.lock();
                continue;
            }
            if cancelled() {
                return Ok(None);
            }
            (state, _) = self.shared.released.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(Some(self.take(&mut state, bytes, false)))
    }

    /// Waits until at least `least` bytes are free, and reserves all free bytes for a run. Returns `None` if
    /// `cancelled` returned true before that. Releases caches if fewer bytes are free, and calls `waiting` once if it
    /// has to wait.
    ///
    /// The wait is only for other runs: other reservations may never end.
    ///
    /// # Errors
    /// [`BudgetExceeded`] if `least` would not be free even after all runs have ended.
    pub fn reserve_for_run(
        &self,
        least: u64,
        cancelled: impl Fn() -> bool,
        waiting: impl FnOnce(),
    ) -> Result<Option<Reservation>, BudgetExceeded> {
        let mut waiting = Some(waiting);
        let mut state = self.lock();
        loop {
            let (free, total) = (state.free(), state.total);
            if least <= free {
                return Ok(Some(self.take(&mut state, free, true)));
            }
            if least > free + state.held_by_runs {
                return Err(BudgetExceeded { wanted: least, free: free + state.held_by_runs, total });
            }
            if cancelled() {
                return Ok(None);
            }
            if !state.caches.is_empty() {
                drop(state);
                self.release_caches();
                state = self.lock();
                continue;
            }
            waiting.take().into_iter().for_each(|waiting| waiting());
            (state, _) = self.shared.released.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn take(&self, state: &mut State, bytes: u64, by_run: bool) -> Reservation {
        state.held += bytes;
        state.held_by_runs += if by_run { bytes } else { 0 };
        assert!(state.held <= state.total, "reservations stay within the budget");
        Reservation { budget: self.clone(), bytes, by_run }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Returns the size of the reservation, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Shrinks the reservation to `bytes` if it is larger. The rest returns to the budget.
    pub fn shrink(&mut self, bytes: u64) {
        let back = self.bytes.saturating_sub(bytes);
        self.give_back(back);
        self.bytes -= back;
    }

    /// Splits off `bytes` of the reservation.
    ///
    /// # Panics
    /// If the reservation is smaller.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        assert!(bytes <= self.bytes, "{bytes} bytes are split off {} bytes", self.bytes);
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes, by_run: self.by_run }
    }

    /// Merges another reservation into this one.
    ///
    /// # Panics
    /// If the reservations belong to different budgets, or only one of them is for a run.
    pub fn join(&mut self, mut other: Self) {
        assert!(Arc::ptr_eq(&self.budget.shared, &other.budget.shared), "both reservations are of one budget");
        assert_eq!(self.by_run, other.by_run, "both reservations are of runs, or neither is");
        self.bytes += std::mem::take(&mut other.bytes);
    }

    fn give_back(&self, bytes: u64) {
        // In a forked child, the thread that holds this lock may not exist, and waiting for the lock would never end.
        if !self.budget.shared.creator.is_this_process() {
            return;
        }
        let mut state = self.budget.lock();
        assert!(state.held >= bytes, "no more bytes are released than were reserved");
        state.held -= bytes;
        state.held_by_runs -= if self.by_run { bytes } else { 0 };
        drop(state);
        self.budget.shared.released.notify_all();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_add_up_and_are_released() {
        let budget = MemoryBudget::new(100);
        let first = budget.reserve(60).unwrap();
        assert_eq!(budget.free(), 40);
        let refused = budget.reserve(41).err().unwrap();
        assert_eq!(refused, BudgetExceeded { wanted: 41, free: 40, total: 100 });
        drop(first);
        assert_eq!(budget.reserve(100).unwrap().bytes(), 100);
    }

    #[test]
    fn a_part_of_a_reservation_is_released_on_its_own() {
        let budget = MemoryBudget::new(100);
        let mut whole = budget.reserve(60).unwrap();
        let part = whole.split(20);
        assert_eq!((whole.bytes(), part.bytes(), budget.free()), (40, 20, 40));
        drop(whole);
        assert_eq!(budget.free(), 80);
        drop(part);
        assert_eq!(budget.free(), 100);
    }

    #[test]
    fn waiting_ends_when_bytes_are_released() {
        let budget = MemoryBudget::new(10);
        let held = budget.reserve(10).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| budget.reserve_when_free(4, || false).unwrap().unwrap().bytes());
            drop(held);
            assert_eq!(waiter.join().unwrap(), 4);
        });
        assert!(budget.reserve_when_free(11, || false).is_err());
        let _held = budget.reserve(7).unwrap();
        assert!(budget.reserve_when_free(4, || true).unwrap().is_none());
        assert_eq!(budget.reserve_when_free(3, || true).unwrap().unwrap().bytes(), 3);
    }

    fn for_run(budget: &MemoryBudget, least: u64) -> Result<Option<Reservation>, BudgetExceeded> {
        budget.reserve_for_run(least, || false, || ())
    }

    #[test]
    fn a_nested_budget_holds_its_reservation() {
        let whole = MemoryBudget::new(100);
        let part = MemoryBudget::within(whole.reserve(60).unwrap());
        let held = part.reserve(50).unwrap();
        part.shrink(55);
        assert_eq!((whole.free(), part.free(), part.reserve(11).is_err()), (45, 5, true));
        drop(part);
        assert_eq!(whole.free(), 45, "somebody still holds some of it");
        drop(held);
        assert_eq!(whole.free(), 100);
    }

    #[test]
    fn a_run_reserves_all_free_bytes_and_can_shrink() {
        let budget = MemoryBudget::new(100);
        let kept = budget.reserve(30).unwrap();
        let mut run = for_run(&budget, 50).unwrap().unwrap();
        assert_eq!((run.bytes(), budget.free()), (70, 0));
        run.shrink(20);
        assert_eq!((run.bytes(), budget.free()), (20, 50));
        run.shrink(90);
        assert_eq!(for_run(&budget, 40).unwrap().unwrap().bytes(), 50);
        drop((run, kept));
        assert_eq!(budget.free(), 100);
    }

    #[test]
    fn a_run_waits_only_for_other_runs() {
        let budget = MemoryBudget::new(100);
        let kept = budget.reserve(30).unwrap();
        let first = for_run(&budget, 1).unwrap().unwrap();
        let refused = for_run(&budget, 71).err().unwrap();
        assert_eq!(refused, BudgetExceeded { wanted: 71, free: 70, total: 100 });
        assert!(budget.reserve_for_run(70, || true, || ()).unwrap().is_none(), "cancelled");
        let (told, was_told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let budget = &budget;
            let waiter = scope.spawn(move || {
                let run = budget.reserve_for_run(70, || false, || told.send(()).unwrap());
                run.unwrap().unwrap().bytes()
            });
            was_told.recv().unwrap();
            drop(first);
            assert_eq!(waiter.join().unwrap(), 70);
        });
        drop(kept);
    }

    /// A cache that holds its reservation until it is released.
    #[derive(Default)]
    struct Cache(Mutex<Option<Arc<Reservation>>>);

    impl Cache {
        fn new(budget: &MemoryBudget, bytes: u64) -> Arc<Self> {
            let cache = Arc::new(Self::default());
            let owner: Arc<dyn Reclaimable> = cache.clone();
            *cache.0.lock().unwrap() = Some(Arc::new(budget.reserve_for_cache(bytes, Arc::downgrade(&owner)).unwrap()));
            cache
        }
    }

    impl Reclaimable for Cache {
        fn release(&self) {
            self.0.lock().unwrap().take();
        }
    }

    #[test]
    fn a_cache_is_released_when_a_reservation_does_not_fit() {
        let budget = MemoryBudget::new(100);
        let reserve = |bytes| budget.reserve(bytes).map(|held| held.bytes());
        let cache = Cache::new(&budget, 60);
        assert_eq!((budget.free(), budget.free_between_runs()), (40, 100));
        assert_eq!(reserve(40), Ok(40));
        assert!(cache.0.lock().unwrap().is_some(), "what fits leaves the cache alone");
        assert_eq!(reserve(41), Ok(41));
        assert!(cache.0.lock().unwrap().is_none());
        assert_eq!(reserve(101).unwrap_err().free, 100);

        let cache = Cache::new(&budget, 60);
        assert_eq!(for_run(&budget, 40).unwrap().unwrap().bytes(), 40);
        assert_eq!(for_run(&budget, 100).unwrap().unwrap().bytes(), 100);
        assert!(cache.0.lock().unwrap().is_none());

        let _cache = Cache::new(&budget, 60);
        assert_eq!(budget.reserve_when_free(80, || false).unwrap().unwrap().bytes(), 80);
        let _cache = Cache::new(&budget, 60);
        let owner: Arc<dyn Reclaimable> = Arc::new(Cache::default());
        assert!(budget.reserve_for_cache(41, Arc::downgrade(&owner)).is_err(), "a cache releases no other cache");
    }

    #[test]
    fn a_run_waits_for_a_released_cache_that_is_in_use() {
        let budget = MemoryBudget::new(100);
        let cache = Cache::new(&budget, 60);
        let in_use = cache.0.lock().unwrap().clone();
        assert!(budget.reserve(41).is_err());
        let (told, was_told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let budget = &budget;
            let waiter = scope.spawn(move || {
                let run = budget.reserve_for_run(70, || false, || told.send(()).unwrap());
                run.unwrap().unwrap().bytes()
            });
            was_told.recv().unwrap();
            drop(in_use);
            assert_eq!(waiter.join().unwrap(), 100);
        });
    }

    #[test]
    fn a_forked_child_releases_no_reservation() {
        let mut budget = MemoryBudget::new(10);
        Arc::get_mut(&mut budget.shared).unwrap().creator = Creator::another_process();
        let held = budget.reserve(6).unwrap();
        let _locked = budget.lock(); // by a thread that the child does not have
        drop(held);
    }
}
