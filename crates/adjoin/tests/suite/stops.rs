//! Work that ends early because it is canceled or a sink fails. It must return the reason and leave no files.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use adjoin::{
    Cancel, Collect, Element, Error, ErrorKind, IdKind, Metric, PairBatch, PairSchema, PairSink, PairWriter, Predicate,
    Progress, Result, Store, Target, Written,
    lab::{sink::Discard, store::TemporaryStore},
};

use crate::datasets::{Shape, make};
use crate::hard::clump;
use crate::harness::{Setup, assert_same, error_of, files_of, within_seconds};

/// Time limit in seconds for a join, which is reached only if it hangs.
const PATIENCE_SECONDS: u64 = 1_800;

/// Progress that cancels the work at the report with number `after`.
struct CancelAfter {
    after: u64,
    told: AtomicU64,
    cancel: Cancel,
}

impl CancelAfter {
    fn setup(after: u64, setup: &Setup) -> (Arc<Self>, Setup) {
        let cancel = Cancel::default();
        let progress = Arc::new(Self { after, told: AtomicU64::new(0), cancel: cancel.clone() });
        (progress.clone(), Setup { cancel, progress, ..setup.clone() })
    }
}

impl Progress for CancelAfter {
    fn begin(&self, _phase: &str, _unit: &str, _total: u64) {}

    fn advance(&self, _done: u64) {
        if self.told.fetch_add(1, Ordering::Relaxed) + 1 == self.after {
            self.cancel.cancel();
        }
    }

    fn note(&self, _line: &str) {}
}

#[track_caller]
fn assert_cancelled(error: &Error) {
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Cancelled, "cancelled"));
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn work_canceled_before_its_start_does_nothing() {
    let set = make(Shape::Clustered, Element::U8, 300, 8, 1);
    let setup = Setup::default();
    let built = setup.build(&set).unwrap();
    let cancelled = Setup::default();
    cancelled.cancel.cancel();
    let folder = tempfile::tempdir().unwrap();
    let context = cancelled.context().with_temporary(folder.path()).unwrap();
    assert_cancelled(&error_of(Store::build(&context, &set, &folder.path().join("store"), &setup.build)));
    assert_cancelled(&error_of(TemporaryStore::build(&context, &set, &setup.build)));
    assert!(is_empty(folder.path()));
    assert_cancelled(&error_of(built.join(&cancelled, Predicate::L2 { eps: 20.0 })));
}

/// Cancels builds: one at its first report of progress, one at its second, and so on, until a build completes.
#[test]
fn a_canceled_build_leaves_no_files() {
    let set = make(Shape::Clustered, Element::F32, 400, 8, 1).in_batches_of(50);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut cancelled = 0;
    for after in 1.. {
        let (progress, setup) = CancelAfter::setup(after, &Setup::default().with_buckets(20));
        match Store::build(&setup.context(), &set, &path, &setup.build) {
            Err(error) => {
                assert_cancelled(&error);
                assert!(is_empty(folder.path()), "after {after}");
                cancelled += 1;
            }
            Ok(_) if progress.told.load(Ordering::Relaxed) < after => break,
            // The build was canceled after all its work was done.
            Ok(_) => {
                assert!(Store::open(&setup.context(), &path).is_ok());
                std::fs::remove_dir_all(&path).unwrap();
            }
        }
    }
    assert!(cancelled > 10, "{cancelled} builds were cancelled");
    assert_eq!(files_of(&path).len(), 4);
}

/// Checks that a canceled build leaves the old store unchanged.
#[test]
fn a_canceled_rebuild_keeps_the_old_store() {
    let old = make(Shape::Clustered, Element::F32, 200, 8, 1);
    let new = make(Shape::Uniform, Element::U8, 300, 5, 2);
    let built = Setup::default().build(&old).unwrap();
    let before = files_of(&built.path());
    for after in [1, 2, 3, 5, 8] {
        let mut forcing = Setup::default().with_buckets(15);
        forcing.build.force = true;
        let (_, setup) = CancelAfter::setup(after, &forcing);
        let built_over = Store::build(&setup.context(), &new, &built.path(), &setup.build);
        assert_cancelled(&error_of(built_over));
        assert!(files_of(&built.path()) == before, "after {after}");
    }
}

#[test]
fn a_canceled_join_leaves_no_files() {
    let set = make(Shape::Clustered, Element::F32, 1500, 8, 1);
    let built = Setup::default().with_buckets(150).build(&set).unwrap();
    let predicate = Predicate::L2 { eps: 1.0 };
    let whole = built.join(&Setup::default(), predicate).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pairs.parquet");
    let built = Arc::new(built);
    let mut cancelled = 0;
    for threads in [1, 2, 3] {
        for after in (0..12).map(|power| 1 << power) {
            let (progress, setup) = CancelAfter::setup(after, &Setup { threads, ..Setup::default() });
            let target = Target::File { path: path.clone(), force: false };
            let schema = PairSchema { ids: [IdKind::None; 2], metric: Metric::L2, of_two_sets: false };
            let sink = Box::new(PairWriter::create(&setup.context(), &target, schema).unwrap());
            let built = built.clone();
            match within_seconds(PATIENCE_SECONDS, move || built.join_into(&setup, predicate, sink)) {
                Err(error) => {
                    assert_cancelled(&error);
                    assert!(is_empty(folder.path()), "after {after}");
                    cancelled += 1;
                }
                Ok(statistics) => {
                    // The join was not canceled, or it was canceled after all its work was done.
                    assert_eq!(statistics.join.pairs, whole.statistics.join.pairs);
                    assert_eq!(files_of(folder.path()).len(), 1);
                    std::fs::remove_file(&path).unwrap();
                    let told = progress.told.load(Ordering::Relaxed);
                    assert!(told <= after + 1, "cancelled after {after} pieces of progress, went on to {told}");
                }
            }
        }
    }
    assert!(cancelled >= 12, "{cancelled} joins were cancelled");
}

/// Sink that fails, cancels or delays at batch `at`, counted from 1.
struct Moody {
    at: u64,
    seen: u64,
    mood: Mood,
}

enum Mood {
    Fail,
    FailAtEnd,
    Cancel(Cancel),
}

impl PairSink for Moody {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, _batch: &PairBatch) -> Result<()> {
        self.seen += 1;
        assert!(self.seen <= self.at || !matches!(self.mood, Mood::Fail), "a sink that failed is given no more");
        match &self.mood {
            Mood::Fail if self.seen == self.at => Err(Error::device(format!("batch {} does not fit", self.at))),
            Mood::Cancel(cancel) if self.seen == self.at => {
                cancel.cancel();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        match self.mood {
            Mood::FailAtEnd => Err(Error::device("the end does not fit")),
            Mood::Fail => panic!("a sink that failed is not finished"),
            Mood::Cancel(_) => Ok(Written::default()),
        }
    }
}

#[test]
fn a_sink_that_fails_ends_the_join() {
    let built = Arc::new(Setup::default().with_buckets(40).build(&clump(Element::U8, 2000, 100, 4)).unwrap());
    let predicate = Predicate::L2 { eps: 4.0 };
    let (pairs, least) = {
        let all = Setup { cache_bytes: Some(1), ..Setup::default() };
        let refusal = error_of(built.join(&all, predicate)).to_string();
        let least: u64 = refusal.rsplit(' ').next().unwrap().parse().unwrap();
        (built.join_into(&Setup::default(), predicate, Box::new(Discard)).unwrap().join.pairs, least)
    };
    assert!(pairs > 100 * 16 * 1024, "{pairs} pairs are not enough batches");
    for threads in [1, 2, 3] {
        for cache_bytes in [None, Some(least)] {
            for at in [1, 2, 5, 20, 60, 100] {
                let setup = Setup { threads, cache_bytes, ..Setup::default() };
                let built = built.clone();
                let sink = Box::new(Moody { at, seen: 0, mood: Mood::Fail });
                let ended = within_seconds(PATIENCE_SECONDS, move || built.join_into(&setup, predicate, sink));
                let error = error_of(ended);
                assert_eq!((error.kind(), error.to_string()), (ErrorKind::Device, format!("batch {at} does not fit")));
            }
        }
    }
    let sink = Box::new(Moody { at: 0, seen: 0, mood: Mood::FailAtEnd });
    let error = error_of(built.join_into(&Setup::default(), predicate, sink));
    assert_eq!(error.to_string(), "the end does not fit");
}

#[test]
fn a_sink_may_cancel() {
    let built = Arc::new(Setup::default().with_buckets(200).build(&clump(Element::U8, 2000, 100, 4)).unwrap());
    let mut cancelled = 0;
    for (threads, at) in [(1, 1), (2, 1), (2, 10), (3, 30)] {
        let cancel = Cancel::default();
        let sink = Box::new(Moody { at, seen: 0, mood: Mood::Cancel(cancel.clone()) });
        let setup = Setup { threads, cancel, ..Setup::default() };
        let built = built.clone();
        let ended = within_seconds(PATIENCE_SECONDS, move || built.join_into(&setup, Predicate::L2 { eps: 4.0 }, sink));
        if let Err(error) = ended {
            assert_cancelled(&error);
            cancelled += 1;
        }
    }
    assert!(cancelled > 0);
}

/// Sink that delays every batch.
struct Slow(Collect);

impl PairSink for Slow {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        std::thread::sleep(Duration::from_millis(3));
        self.0.accept(batch)
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

#[test]
fn a_slow_sink_gets_every_pair() {
    let set = clump(Element::I8, 1500, 100, 4);
    let predicate = Predicate::L2 { eps: 4.0 };
    let sink = Collect::default();
    let built = Setup::default().with_buckets(40).build(&set).unwrap();
    let statistics = built.join_into(&Setup::default(), predicate, Box::new(Slow(sink.clone()))).unwrap();
    assert_same(&sink.pairs(), &set.true_pairs(predicate), "a slow sink");
    assert!(statistics.common.seconds.write.unwrap() > 0.1);
}
