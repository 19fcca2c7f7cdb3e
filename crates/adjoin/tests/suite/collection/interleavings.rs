//! Interleavings of the threads of a collection. A model checker chooses them: it may switch threads at every lock.
//! These tests exist only in builds with `adjoin_shuttle` (`make interleavings`).

use std::path::Path;
use std::sync::Arc;

use adjoin::{
    Collection, Random,
    device::{Device, Keep},
};
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use super::history::{History, Shared, User};
use super::{LIVE, context_on, device, rows};

/// Number of interleavings to try with each scheduler.
const ORDERS: usize = 1_000;
/// Number of changes of priority. A bug that depends on the order of this number of events is found with a known
/// probability (PCT, Burckhardt et al., 2010).
const CHANGES: usize = 3;

fn check(scheduler: impl Scheduler + 'static, scenario: fn()) {
    let mut config = Config::default();
    // Indexes are built on this stack.
    config.stack_size = 4 << 20;
    assert_eq!(Runner::new(scheduler, config).run(scenario), ORDERS);
}

fn check_all(scenario: fn()) {
    check(RandomScheduler::new(ORDERS), scenario);
    check(PctScheduler::new(CHANGES, ORDERS), scenario);
}

/// Runs writers, searches, merges and losses of power concurrently.
fn all_at_once() {
    let device = device();
    let shared = Shared::new(Collection::open(&context_on(&device), Path::new(LIVE)).unwrap());
    let seed = shuttle::rand::thread_rng().next_u64();
    let user = |name: &str| User::new(&shared, context_on(&device), Random::new(seed, name));
    let on = |mut user: User, work: fn(&mut User)| {
        thread::spawn(move || {
            work(&mut user);
            user.done()
        })
    };
    let mut threads = vec![
        on(user("first"), |user| (0..4).for_each(|_| user.write())),
        on(user("second"), |user| (0..4).for_each(|_| user.write())),
        on(user("merge"), |user| (0..2).for_each(|_| user.merge())),
        on(user("other merge"), User::merge),
        on(user("search"), |user| (0..3).for_each(|_| user.search())),
        on(user("get"), |user| (0..3).for_each(|_| user.get())),
        on(user("flush"), |user| {
            user.flush();
            user.open(Path::new(LIVE));
        }),
    ];
    let (mut power, disk) = (user("power"), device.clone());
    threads.push(thread::spawn(move || {
        for _ in 0..2 {
            power.open_durable(|| context_on(&disk.after_crash(Keep::Nothing)), Path::new(LIVE));
            thread::yield_now();
        }
        power.done()
    }));
    let history = History::of_all(threads.into_iter().map(|thread| thread.join().unwrap()));
    history.check().unwrap();
    let (states, shared) = (history.states().unwrap(), Arc::into_inner(shared).unwrap());
    assert_eq!(shared.collection.facts().sequence as usize + 1, states.len());
    shared.collection.close().unwrap();
    let found = device.after_crash(Keep::Nothing);
    let again = Collection::open(&context_on(&found), Path::new(LIVE)).unwrap();
    assert_eq!(rows(&again).unwrap(), states[states.len() - 1]);
    assert!(found.list(Path::new(LIVE)).unwrap().len() <= 5, "nothing is left over");
}

#[test]
fn no_thread_interleaving_loses_or_duplicates_a_row() {
    check_all(all_at_once);
}
