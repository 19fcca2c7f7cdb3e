//! Searches that need memory that another run holds. They must wait and not be refused, but give up at their
//! deadline.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use adjoin::{Collection, Context, Durability, ErrorKind, lab::report::Notes};

use super::{LIVE, Model, Step, context_on, device, found_below};
use crate::harness::error_of;

const WAITS: &str = "waiting for memory that another run holds";

/// Creates a collection with rows on disk, rows in memory and deleted rows.
fn collection(context: &Context) -> Collection {
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    let rows = |from: u8, to: u8| -> Model { (from..to).map(|id| (i64::from(id), [id, 0, 0])).collect() };
    let upsert = |model| Step { upsert: model, ..Step::default() };
    upsert(rows(0, 30)).write(&collection, Durability::Group).unwrap();
    collection.merge(context).unwrap();
    upsert(rows(30, 40)).write(&collection, Durability::Group).unwrap();
    Step { delete: vec![3, 5], ..Step::default() }.write(&collection, Durability::Group).unwrap();
    collection
}

#[test]
fn a_search_waits_for_a_run_that_holds_the_memory() {
    let device = device();
    for (below, rows) in [(None, 38), (Some(20), 18)] {
        let notes = Arc::new(Notes::default());
        let mut context = context_on(&device);
        context.progress = notes.clone();
        let collection = &collection(&context);
        let before = notes.lines().len();
        let run = context.for_run(1, "another run").unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| found_below(&context, collection, below));
            while !notes.lines()[before..].iter().any(|line| line == WAITS) {
                assert!(!waiting.is_finished(), "it waits");
                std::thread::yield_now();
            }
            drop(run);
            assert_eq!(waiting.join().unwrap().unwrap().len(), rows);
        });
        Step { upsert: Model::from([(3, [3, 0, 0]), (5, [5, 0, 0])]), ..Step::default() }
            .write(collection, Durability::Group)
            .unwrap();
    }
}

#[test]
fn a_waiting_search_ends_at_its_deadline() {
    let device = device();
    let context = context_on(&device);
    let collection = collection(&context);
    let _run = context.for_run(1, "another run").unwrap();
    let mut late = context.clone();
    late.cancel = context.cancel.with_deadline(Some(Instant::now()));
    for below in [None, Some(20)] {
        assert_eq!(error_of(found_below(&late, &collection, below)).kind(), ErrorKind::Late);
    }
}
