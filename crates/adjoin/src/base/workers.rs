//! Threads that process a list of items. They end before the call returns.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crossbeam_channel::bounded;

use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::mutex::lock;
use crate::base::report::Cancel;

/// Returns the default number of threads, which is the parallelism that the system reports. It considers the cores
/// that this process may use and the processor time of its cgroup. A fraction of a core is rounded down, so that no
/// thread is throttled.
pub(crate) fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Starts a thread in `scope`.
///
/// # Errors
/// Fails if the system does not start another thread. Running threads continue, and the caller waits for them.
pub(crate) fn spawn_scoped<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> R + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, R>> {
    spawn_by(Builder::new(), scope, name, work)
}

fn spawn_by<'scope, R: Send + 'scope>(
    builder: Builder,
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> R + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, R>> {
    // The closure is boxed, so that the code that starts a thread is compiled once per result type, not once per
    // closure.
    let work: Box<dyn FnOnce() -> R + Send + 'scope> = Box::new(work);
    builder.name(name.to_owned()).spawn_scoped(scope, work).map_err(Error::no_thread)
}

impl Error {
    /// Returns the error for a thread that the system did not start.
    pub fn no_thread(error: std::io::Error) -> Error {
        let refused = message![
            format!("no thread can be started: {error}; allow more processes or give "),
            Argument::Threads.with(1)
        ];
        Error::device(refused).caused_by(error)
    }
}

/// Distributes the items `0..items` over threads. Each thread creates its own state and calls `work(state, item)`.
/// Items are started in ascending order. Results are in the order of the items, regardless of the threads that
/// computed them.
///
/// # Errors
/// Returns the first error of any item, or of a thread that cannot be started. Other threads stop before their next
/// item.
pub fn map_items<S, R: Send>(
    threads: usize,
    items: usize,
    cancel: &Cancel,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    map_items_by(&Builder::new, threads, items, cancel, state, work)
}

/// Implements [`map_items`]. `builder` creates the builder of each thread.
fn map_items_by<S, R: Send>(
    builder: &dyn Fn() -> Builder,
    threads: usize,
    items: usize,
    cancel: &Cancel,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let stop = AtomicBool::new(false);
    let fail = |error| {
        stop.store(true, Ordering::Relaxed);
        lock(&failed).get_or_insert(error);
    };
    // Results are stored by item, so that their order does not depend on the threads.
    let done: Mutex<Vec<Option<R>>> = Mutex::new((0..items).map(|_| None).collect());
    let run = || {
        let mut own = state();
        loop {
            // Each thread takes one item at a time, so a slow item delays only its own thread.
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= items || stop.load(Ordering::Relaxed) {
                return;
            }
            match cancel.check().and_then(|()| work(&mut own, item)) {
                Ok(result) => lock(&done)[item] = Some(result),
                Err(error) => fail(error),
            }
        }
    };
    run_on_threads(builder, threads.min(items).max(1), &fail, &run);
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(done.into_iter().flatten().collect())
}

/// Calls `run` on `threads` threads, including the calling thread. If a thread cannot be started, calls `fail`. In
/// that case the calling thread does not call `run`, but waits for the others.
fn run_on_threads(builder: &dyn Fn() -> Builder, threads: usize, fail: &dyn Fn(Error), run: &(dyn Fn() + Sync)) {
    std::thread::scope(|scope| {
        // The calling thread is one of the threads.
        for _ in 1..threads {
            if let Err(error) = spawn_by(builder(), scope, "adjoin work", run) {
                // `fail` also stops the threads that have started. The scope waits for them.
                return fail(error);
            }
        }
        // With a single thread, no other thread is started.
        run();
    });
}

/// Returns the maximum number of items of a [`map_stream`] in memory. Each thread has an item that it processes and an
/// item that waits, and one more item is being produced.
pub(crate) fn streamed_items(threads: usize) -> usize {
    2 * threads.max(1) + 1
}

/// Processes items like [`map_items`], but the calling thread gets them from `next` when they are needed.
///
/// # Errors
/// Returns the first error of `next`, of any item, or of a thread that cannot be started.
pub(crate) fn map_stream<I: Send, S, R: Send>(
    threads: usize,
    next: impl FnMut() -> Result<Option<I>>,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, I) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    map_stream_by(&Builder::new, threads, next, state, work)
}

/// Implements [`map_stream`]. `builder` creates the builder of each thread.
fn map_stream_by<I: Send, S, R: Send>(
    builder: &dyn Fn() -> Builder,
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
        // Only the workers hold receivers. After all of them have ended, sending fails instead of blocking.
        let (sender, items) = bounded::<(usize, I)>(threads.max(1));
        for _ in 0..threads.max(1) {
            let items = items.clone();
            let (done, stop, fail, state, work) = (&done, &stop, &fail, &state, &work);
            let spawned = spawn_by(builder(), scope, "adjoin work", move || {
                let mut own = state();
                for (place, item) in items {
                    if stop.load(Ordering::Relaxed) {
                        // After a failure, items are received but not processed, so that the producer does not wait
                        // for a worker that has ended.
                        continue;
                    }
                    match work(&mut own, item) {
                        Ok(result) => lock(done)[place] = Some(result),
                        Err(error) => fail(error),
                    }
                }
            });
            if let Err(error) = spawned {
                return fail(error); // dropping the sender ends the workers that wait for items
            }
        }
        drop(items);
        for place in 0.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            match next() {
                Ok(Some(item)) => {
                    // The entry for the result is added before a worker can finish the item.
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

    /// Creates builders of threads. All builders after the first `granted` ask for a stack that is too large for any
    /// machine, so that the system refuses to start their threads.
    fn granting(granted: usize) -> impl Fn() -> Builder {
        let asked = AtomicUsize::new(0);
        move || match asked.fetch_add(1, Ordering::Relaxed) < granted {
            true => Builder::new(),
            false => Builder::new().stack_size(1 << 60),
        }
    }

    #[test]
    fn a_failed_thread_start_is_an_error_and_running_threads_end() {
        let refused = |error: Error| {
            assert_eq!(error.kind(), crate::base::error::ErrorKind::Device);
            let said = error.to_string();
            assert!(said.starts_with("no thread can be started: ") && said.contains("give threads 1"), "{said}");
        };
        for granted in 0..3 {
            let mut items = 0..;
            let stream = map_stream_by(&granting(granted), 4, || Ok(items.next()), || (), |(), _: u32| Ok(()));
            refused(stream.unwrap_err());
            let no_results = |(): &mut (), _| Ok(());
            refused(map_items_by(&granting(granted), 4, 100_000, &Cancel::default(), || (), no_results).unwrap_err());
        }
        std::thread::scope(|scope| assert_eq!(spawn_scoped(scope, "one", || 1).unwrap().join().unwrap(), 1));
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
