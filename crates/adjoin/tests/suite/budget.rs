//! Budgets that are too small. The refusal names the smallest sufficient budget, and with that one the run succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin::{Element, ErrorKind, PairBatch, PairSink, Predicate, Result, Written, lab::context::RUNTIME_BYTES};

use crate::datasets::{Shape, make};
use crate::harness::{Set, Setup, assert_same, error_of};

/// Returns the budget that a refusal asks for, in bytes.
fn asked_for(message: &str) -> u64 {
    let number = message.split("give memory ").nth(1).and_then(|rest| rest.split("MB").next());
    number.and_then(|number| number.parse::<u64>().ok()).unwrap_or_else(|| panic!("{message}")) * 1_000_000
}

/// Runs `work` with a budget that is too small, and then with the one that the refusal names.
#[track_caller]
fn refused_then_done<R>(too_small: u64, work: impl Fn(u64) -> Result<R>) -> R {
    let error = error_of(work(too_small));
    assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
    let asked = asked_for(&error.to_string());
    assert!(asked > too_small, "{error}");
    work(asked).unwrap_or_else(|again| panic!("refused with {too_small} bytes: {error}\nand again: {again}"))
}

fn sparse_sets() -> [(Set, f64); 2] {
    [(make(Shape::Clustered, Element::F32, 3000, 64, 1), 2.0), (make(Shape::Uniform, Element::F16, 300, 2000, 3), 20.0)]
}

/// Returns a set, and a threshold at which all or nearly all pairs of buckets are edges.
fn dense_set() -> (Set, f64) {
    (make(Shape::Clustered, Element::U8, 20_000, 16, 2), 20.0)
}

const TOO_SMALL: [u64; 3] = [1, 1 << 20, RUNTIME_BYTES + (1 << 20)];

#[test]
fn the_least_budget_of_a_build_is_enough() {
    for (set, _) in sparse_sets().into_iter().chain([dense_set()]) {
        for too_small in TOO_SMALL {
            refused_then_done(too_small, |memory| Setup { memory, ..Setup::default() }.build(&set).map(|_| ()));
        }
    }
}

#[test]
fn the_least_budget_of_a_join_is_enough() {
    for (set, eps) in sparse_sets() {
        let predicate = Predicate::L2 { eps };
        let built = Setup::default().build(&set).unwrap();
        let wanted = built.join(&Setup::default(), predicate).unwrap().pairs;
        for too_small in TOO_SMALL {
            let found =
                refused_then_done(too_small, |memory| built.join(&Setup { memory, ..Setup::default() }, predicate));
            assert_same(&found.pairs, &wanted, "with the least budget");
        }
    }
}

/// Checks a join with many edges. A refusal before the pass that finds the edges names a budget without memory for
/// edges. A refusal after that pass names a budget that suffices.
#[test]
fn the_least_budget_of_a_join_counts_edges_after_their_pass() {
    let (set, eps) = dense_set();
    let predicate = Predicate::L2 { eps };
    let built = Setup::default().build(&set).unwrap();
    let join = |memory| built.join(&Setup { memory, ..Setup::default() }, predicate);
    let beside_edges = asked_for(&error_of(join(1)).to_string());
    let whole = match join(beside_edges) {
        Err(_) => refused_then_done(beside_edges, join),
        Ok(joined) => joined,
    };
    assert_same(&whole.pairs, &join(1 << 30).unwrap().pairs, "with the least budget");
}

/// Sink that records the size of the largest batch.
struct Largest(Arc<AtomicU64>);

impl PairSink for Largest {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        self.0.fetch_max(batch.bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

/// Checks that batches for a slow sink hold no more memory than is reserved, even with many threads.
#[test]
fn waiting_batches_fit_their_reservation() {
    let (set, eps) = dense_set();
    let built = Setup::default().build(&set).unwrap();
    for threads in [1, 64] {
        let setup = Setup { threads, ..Setup::default() };
        let (context, options) = (setup.context(), setup.join_options(Predicate::L2 { eps }));
        let prepared = options.prepare(&context, &built.store, false).unwrap();
        let largest = Arc::new(AtomicU64::new(0));
        prepared.run(&context, &built.store, Box::new(Largest(largest.clone()))).unwrap();
        let at_once = 5 * threads as u64 + 1;
        let held = largest.load(Ordering::Relaxed) * at_once;
        assert!(held > 1 << 19 && held <= 10 << 20, "{threads} threads: {held}");
    }
}
