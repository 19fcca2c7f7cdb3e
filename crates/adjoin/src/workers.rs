//! Threads that work on a list of items and end with the call.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::report::Cancel;

/// Threads to use where the caller does not say: as many as the machine runs at once.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Splits `0..items` among threads: each makes a state of its own and calls `work(state, item)`, items in ascending
/// order of their start. The results come back in the order of the items, whatever thread made them.
///
/// # Errors
/// The first error of any item; the others stop at their next item.
pub fn map_items<S, R: Send>(
    threads: usize,
    items: usize,
    cancel: &Cancel,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let stop = AtomicUsize::new(usize::MAX);
    let done: Mutex<Vec<Option<R>>> = Mutex::new((0..items).map(|_| None).collect());
    let run = || {
        let mut own = state();
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= items || stop.load(Ordering::Relaxed) != usize::MAX {
                return;
            }
            match cancel.check().and_then(|()| work(&mut own, item)) {
                Ok(result) => done.lock().unwrap_or_else(PoisonError::into_inner)[item] = Some(result),
                Err(error) => {
                    stop.store(item, Ordering::Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items).max(1) {
            scope.spawn(run);
        }
        run();
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(done.into_iter().flatten().collect())
}

/// Items of a [`map_stream`] in memory at once, at most: with each thread, before each thread, and at the start.
pub fn streamed_items(threads: usize) -> usize {
    2 * threads.max(1) + 1
}

/// As [`map_items`], over items that the calling thread takes from `next` as they are wanted.
///
/// # Errors
/// The first error of `next` or of any item.
pub fn map_stream<I: Send, S, R: Send>(
    threads: usize,
    mut next: impl FnMut() -> Result<Option<I>>,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, I) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let stop = AtomicBool::new(false);
    let fail = |error| {
        stop.store(true, Ordering::Relaxed);
        lock(&failed).get_or_insert(error);
    };
    let done: Mutex<Vec<Option<R>>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (sender, items) = sync_channel::<(usize, I)>(threads.max(1));
        // Shared by the workers alone: once they are gone, whatever ended them, nobody waits for them.
        let items = Arc::new(Mutex::new(items));
        for _ in 0..threads.max(1) {
            let items = items.clone();
            let (done, stop, fail, state, work) = (&done, &stop, &fail, &state, &work);
            scope.spawn(move || {
                let mut own = state();
                loop {
                    let Ok((place, item)) = lock(&items).recv() else { return };
                    if stop.load(Ordering::Relaxed) {
                        continue;
                    }
                    match work(&mut own, item) {
                        Ok(result) => lock(done)[place] = Some(result),
                        Err(error) => fail(error),
                    }
                }
            });
        }
        drop(items);
        for place in 0.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            match next() {
                Ok(Some(item)) => {
                    lock(&done).push(None);
                    if sender.send((place, item)).is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return fail(error),
            }
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()),
    }
}

/// Locks; a panic elsewhere is told by whoever joins that thread.
pub(crate) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_keeps_its_order_and_ends_with_the_first_error() {
        for threads in [1, 3] {
            let mut items = 0..100u32;
            let squares = map_stream(threads, || Ok(items.next()), || (), |(), i| Ok(i * i)).unwrap();
            assert_eq!(squares, (0..100).map(|i| i * i).collect::<Vec<_>>());
            let mut items = 0..;
            let failed = map_stream(
                threads,
                || Ok(items.next()),
                || (),
                |(), i: u32| match i {
                    500 => Err(Error::input("five hundred")),
                    _ => Ok(()),
                },
            );
            assert_eq!(failed.unwrap_err().to_string(), "five hundred");
            let failed = map_stream(threads, || Err::<Option<u32>, _>(Error::input("none")), || (), |(), _| Ok(()));
            assert_eq!(failed.unwrap_err().to_string(), "none");
        }
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_of_all_workers_ends_the_stream() {
        let mut items = 0..;
        let _ = map_stream(2, || Ok(items.next()), || (), |(), _: u32| -> Result<()> { panic!("of a worker") });
    }

    #[test]
    fn results_keep_the_order_of_items() {
        for threads in [1, 2, 5] {
            let squares = map_items(threads, 100, &Cancel::default(), || (), |(), i| Ok(i * i)).unwrap();
            assert_eq!(squares, (0..100).map(|i| i * i).collect::<Vec<_>>());
        }
        let none: Vec<usize> = map_items(2, 0, &Cancel::default(), || (), |(), i| Ok(i)).unwrap();
        assert!(none.is_empty());
    }

    #[test]
    fn the_error_of_an_item_ends_the_call() {
        let failed = map_items(
            2,
            1000,
            &Cancel::default(),
            || (),
            |(), i| match i {
                500 => Err(Error::input("five hundred")),
                _ => Ok(()),
            },
        );
        assert_eq!(failed.unwrap_err().to_string(), "five hundred");
        let cancel = Cancel::default();
        cancel.cancel();
        assert!(map_items(2, 10, &cancel, || (), |(), _| Ok(())).is_err());
    }
}
