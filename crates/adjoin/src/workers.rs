//! Threads that work on a list of items and end with the call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

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

#[cfg(test)]
mod tests {
    use super::*;

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
