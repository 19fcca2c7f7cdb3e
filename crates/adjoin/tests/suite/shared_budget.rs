//! Joins at the same time on one context, which share its budget. A second join waits if waiting helps, and is
//! refused otherwise.

use std::sync::Arc;
use std::sync::mpsc::channel;

use adjoin::{
    Collect, Context, Element, ErrorKind, JoinOptions, Predicate,
    lab::{context::RUNTIME_BYTES, join::least_memory, report::Notes},
};

use crate::datasets::{Shape, make};
use crate::harness::{Built, Set, Setup, assert_same, error_of, within_seconds};

const PREDICATE: Predicate = Predicate::L2 { eps: 2.0 };
/// Memory for edges in bytes, which the smallest budget of a join does not include.
const SPARE: u64 = 512 << 10;

fn built() -> (Set, Built) {
    let set = make(Shape::Clustered, Element::F32, 3000, 64, 1);
    let built = Setup::default().with_buckets(60).build(&set).unwrap();
    (set, built)
}

/// Returns a context with a budget that suffices for one join but not for two. Also returns its notes.
fn for_one(built: &Built, options: &JoinOptions) -> (Context, Arc<Notes>) {
    let least = least_memory(&built.store, options).unwrap();
    let notes = Arc::new(Notes::default());
    let mut context = Context::default().with_memory(RUNTIME_BYTES + least + SPARE);
    assert!(least > SPARE, "two do not fit");
    (context.threads, context.progress) = (2, notes.clone());
    (context, notes)
}

#[test]
fn concurrent_joins_find_all_pairs_and_release_their_memory() {
    let (set, built) = built();
    let wanted = set.true_pairs(PREDICATE);
    let options = JoinOptions::exact(PREDICATE);
    for memory in [None, Some(1 << 30)] {
        let (context, _) = for_one(&built, &options);
        let context = memory.map_or(context.clone(), |memory| context.with_memory(memory));
        let total = context.budget().free();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let prepared = options.prepare(&context, &built.store, false).unwrap();
                    let sink = Collect::default();
                    prepared.run(&context, &built.store, Box::new(sink.clone())).unwrap();
                    assert_same(&sink.pairs(), &wanted, "beside other joins");
                });
            }
        });
        assert_eq!(context.budget().free(), total);
    }
}

#[test]
fn a_join_waits_for_memory_until_it_is_canceled() {
    let (_, built) = built();
    let options = JoinOptions::exact(PREDICATE);
    let (context, notes) = for_one(&built, &options);
    let first = options.prepare(&context, &built.store, false).unwrap();
    let cancel = context.cancel.clone();
    within_seconds(1_800, move || {
        let (started, has_started) = channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                started.send(()).unwrap();
                options.prepare(&context, &built.store, false).map(drop)
            });
            has_started.recv().unwrap();
            while !notes.lines().iter().any(|line| line == "waiting for memory that another run holds") {
                assert!(!waiting.is_finished(), "it waits");
                std::thread::yield_now();
            }
            cancel.cancel();
            assert_eq!(error_of(waiting.join().unwrap()).kind(), ErrorKind::Cancelled);
        });
        drop(first);
    });
}

/// Checks that a join is refused at once if the memory that it needs is not held by a run.
#[test]
fn a_join_that_cannot_fit_is_refused_without_waiting() {
    let (_, built) = built();
    let options = JoinOptions::exact(PREDICATE);
    let (context, _) = for_one(&built, &options);
    let held = context.reserve(2 * SPARE, "somebody who keeps it").unwrap();
    let error = error_of(options.prepare(&context, &built.store, false));
    assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
    drop(held);
    options.prepare(&context, &built.store, false).unwrap();
}

#[test]
fn a_plan_can_run_twice_concurrently() {
    let (set, built) = built();
    let options = JoinOptions::exact(PREDICATE);
    let (context, _) = for_one(&built, &options);
    let prepared = options.prepare(&context, &built.store, false).unwrap();
    let wanted = set.true_pairs(PREDICATE);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let sink = Collect::default();
                prepared.run(&context, &built.store, Box::new(sink.clone())).unwrap();
                assert_same(&sink.pairs(), &wanted, "of one plan");
            });
        }
    });
}
