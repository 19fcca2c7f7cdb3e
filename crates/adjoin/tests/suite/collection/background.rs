//! Merges in the background, and merges for which the memory does not suffice.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use adjoin::{
    Cancel, Collection, Context, Durability, Element, ErrorKind, IdKind, Ids, Metric, Progress, VectorType, Write,
    lab::collection::{MergerOptions, Put, start_merger},
};

use super::options;
use crate::datasets::{Shape, make};
use crate::harness::{Set, Setup};

const VECTORS: VectorType = VectorType { element: Element::U8, dimensions: 128 };
const AT_BYTES: u64 = 256 << 10;
const ROWS: usize = 6_000;
/// Time limit of waits for events. It is reached only if a test fails.
const LONG: Duration = Duration::from_secs(1_800);

/// Splits a set into parts of `of_write` rows. Row numbers are the ids.
fn parts(rows: &Set, of_write: usize) -> impl Iterator<Item = Set> {
    let bytes = VECTORS.bytes();
    let part = move |first: usize| {
        let ids: Vec<i64> = (first..first + of_write).map(|id| id as i64).collect();
        Set::of_stored(VECTORS, rows.stored()[first * bytes..][..of_write * bytes].to_vec()).with_ids(&ids)
    };
    (0..ROWS / of_write).map(move |number| part(number * of_write))
}

/// Creates a collection with a graph that is cheap to build.
fn open(context: &Context, live: &Path) -> Arc<Collection> {
    let mut cheap = options(VECTORS, Metric::L2, IdKind::Int64);
    (cheap.index.degree, cheap.index.build_list) = (Some(8), 16);
    Collection::create(context, live, &cheap).unwrap();
    Arc::new(Collection::open(context, live).unwrap())
}

fn merges_at(at_bytes: u64) -> MergerOptions {
    MergerOptions { at_bytes, threads: 1, retry_after: Duration::from_millis(1) }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn merges_start_automatically_and_writes_wait_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let context = Setup::default().context();
    let collection = open(&context, &live);
    let merger = start_merger(&collection, merges_at(AT_BYTES)).unwrap();
    let second = start_merger(&collection, MergerOptions::of(&context)).err().unwrap();
    assert!(second.to_string().contains("is already merged in the background"), "{second}");
    let rows = make(Shape::Clustered, Element::U8, ROWS, 128, 6);
    for of_write in parts(&rows, 100) {
        let write = Write { insert: Some(&of_write), ..Write::default() };
        collection.write(&write, Durability::Buffered).unwrap();
        let held = collection.statistics().unwrap().unmerged_bytes;
        assert!(held <= 2 * AT_BYTES, "{held}");
    }
    wait_until("the last merge", || collection.statistics().unwrap().unmerged_bytes < AT_BYTES);
    let statistics = collection.statistics().unwrap();
    assert!(statistics.last_merge.is_some() && statistics.waits > 0, "{statistics:?}");
    assert!(statistics.waited_seconds > 0.0 && statistics.merge_failure.is_none(), "{statistics:?}");
    assert_eq!(statistics.facts.rows, ROWS as u64);
    // If a quarter of the rows on disk are deleted, a merge starts, even if only a few rows are in memory.
    let gone = Ids::Int64((0..ROWS as i64 / 3).collect());
    collection.write(&Write { delete: Some(&gone), ..Write::default() }, Durability::Group).unwrap();
    wait_until("a merge of what is gone", || collection.facts().deleted == 0);
    drop(merger);
    let got = collection.get(&Ids::Int64((0..ROWS as i64).collect())).unwrap();
    let bytes = VECTORS.bytes();
    for (id, vector) in got.iter().enumerate() {
        let wanted = (id >= ROWS / 3).then(|| rows.stored()[id * bytes..][..bytes].to_vec());
        assert_eq!(*vector, wanted, "{id}");
    }
    // Without a merger, writes do not wait and nothing is merged.
    let more = make(Shape::Clustered, Element::U8, 5_000, 128, 7);
    collection.load(&more.in_batches_of(500), Put::Upsert, Durability::Buffered).unwrap();
    assert!(collection.statistics().unwrap().unmerged_bytes > 2 * AT_BYTES);
}

#[test]
fn a_failed_merge_is_reported_and_retried() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let context = Setup::default().context();
    let collection = open(&context, &live);
    let refused = start_merger(&collection, merges_at(1)).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Option);
    let rows = make(Shape::Clustered, Element::U8, ROWS, 128, 6);
    let mut parts = parts(&rows, 500);
    let mut write = |count: usize| {
        for of_write in parts.by_ref().take(count) {
            let write = Write { insert: Some(&of_write), ..Write::default() };
            collection.write(&write, Durability::Buffered).unwrap();
        }
    };
    // There are enough rows for a merge to begin when the merger starts. But all memory is taken by then.
    write(8);
    let others = context.reserve(context.budget().free() - (8 << 20), "others").unwrap();
    assert_eq!(start_merger(&collection, merges_at(AT_BYTES)).err().unwrap().kind(), ErrorKind::Budget);
    drop(others);
    let held = std::fs::read_dir(&live).unwrap().count();
    let merger = {
        // A file in place of the merge's temporary folder makes the merge fail even if there is enough memory.
        let sequence = collection.facts().sequence;
        std::fs::write(live.join(format!("index-{sequence:016x}")), b"in the way").unwrap();
        start_merger(&collection, merges_at(AT_BYTES)).unwrap()
    };
    wait_until("a failure", || collection.statistics().unwrap().merge_failure.is_some());
    assert_eq!(collection.facts().rows, 4_000);
    assert_eq!(collection.failure(), None, "writes and later merges go on");
    // When the file is removed, the next attempt of the merger succeeds.
    let _ = std::fs::remove_file(live.join(format!("index-{:016x}", collection.facts().sequence)));
    wait_until("a merge", || collection.statistics().unwrap().merges > 0);
    let statistics = collection.statistics().unwrap();
    assert_eq!((statistics.merge_failure, statistics.facts.rows), (None, 4_000), "{held} files before");
    write(usize::MAX);
    assert_eq!(collection.facts().rows, ROWS as u64);
    drop(merger);
    let read_only = Arc::new(Collection::open_read_only(&context, &live).unwrap());
    let refused = start_merger(&read_only, MergerOptions::of(&context)).err().unwrap();
    assert!(refused.to_string().contains("was opened read-only"), "{refused}");
}

/// Checks that a write is accepted if no merge is due, even if it is larger than the limit at which writes wait.
#[test]
fn writes_of_any_size_wait_only_for_due_merges() {
    let folder = tempfile::tempdir().unwrap();
    let context = Setup::default().context();
    let collection = open(&context, &folder.path().join("live"));
    let merger = start_merger(&collection, merges_at(AT_BYTES)).unwrap();
    let rows = make(Shape::Clustered, Element::U8, ROWS, 128, 6);
    let all = parts(&rows, ROWS).next().unwrap();
    collection.write(&Write { insert: Some(&all), ..Write::default() }, Durability::Group).unwrap();
    // The next write waits for the merge, but not longer than until its deadline.
    let cancel = Cancel::default();
    cancel.cancel();
    let late = collection.write_until(&Write { upsert: Some(&all), ..Write::default() }, Durability::Group, &cancel);
    assert!(late.is_ok_and(|written| written.rows == ROWS as u64) || collection.facts().rows == ROWS as u64);
    drop(merger);
}

/// Checks that a write is refused if a merge of all rows would then exceed the budget. The refusal names a budget
/// that suffices. Accepted rows can be merged, searched and opened again.
#[test]
fn writes_that_could_not_be_merged_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let context = Setup { memory: 63 << 20, ..Setup::default() }.context();
    let collection = open(&context, &live);
    let merger = start_merger(&collection, merges_at(4 << 20)).unwrap();
    let rows = make(Shape::Clustered, Element::U8, ROWS, 128, 6);
    let mut taken = 0;
    let refused = parts(&rows, 100).find_map(|of_write| {
        let written = collection.write(&Write { insert: Some(&of_write), ..Write::default() }, Durability::Buffered);
        taken += u64::from(written.is_ok()) * 100;
        written.err()
    });
    let refused = refused.expect("not all rows fit");
    assert_eq!(refused.kind(), ErrorKind::Budget);
    assert!(refused.to_string().contains("writing these rows, and merging them later, needs at least"), "{refused}");
    assert!(taken > 0 && collection.facts().rows == taken, "{taken}");
    // Deletes are accepted, and everything can be merged.
    let gone = Ids::Int64(vec![0]);
    collection.write(&Write { delete: Some(&gone), ..Write::default() }, Durability::Group).unwrap();
    drop(merger);
    collection.merge(&context).unwrap();
    drop(collection);
    let again = Arc::new(Collection::open(&context, &live).unwrap());
    assert_eq!(again.facts().rows, taken - 1);
    start_merger(&again, merges_at(4 << 20)).unwrap();
}

/// Progress that makes a merge panic.
struct Panics;

impl Progress for Panics {
    fn begin(&self, phase: &str, _unit: &str, _total: u64) {
        // Writes read rows too, so the phase `read` must not panic.
        assert_eq!(phase, "read", "as is asked for");
    }
    fn advance(&self, _done: u64) {}
    fn note(&self, _line: &str) {}
}

#[test]
fn the_end_of_the_merge_thread_is_reported_and_writes_do_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let mut context = Setup::default().context();
    context.progress = Arc::new(Panics);
    let collection = open(&context, &folder.path().join("live"));
    let merger = start_merger(&collection, merges_at(AT_BYTES)).unwrap();
    let rows = make(Shape::Clustered, Element::U8, ROWS, 128, 6);
    for of_write in parts(&rows, 1_000) {
        collection.write(&Write { insert: Some(&of_write), ..Write::default() }, Durability::Buffered).unwrap();
    }
    wait_until("the end of the thread", || collection.failure().is_some());
    assert!(collection.failure().unwrap().contains("the merge thread has ended"));
    assert_eq!(collection.facts().rows, ROWS as u64);
    drop(merger);
}

/// Checks that a collection still accepts writes after a refused merge.
#[test]
fn writes_are_accepted_after_a_refused_merge() {
    let folder = tempfile::tempdir().unwrap();
    let context = Setup::default().context();
    let collection = open(&context, &folder.path().join("live"));
    let rows = make(Shape::Clustered, Element::U8, ROWS, 128, 6);
    let mut parts = parts(&rows, 1_000);
    let mut write = || {
        let of_write = parts.next().unwrap();
        collection.write(&Write { insert: Some(&of_write), ..Write::default() }, Durability::Group).unwrap();
    };
    write();
    let others = context.reserve(context.budget().free() - (8 << 20), "others").unwrap();
    assert_eq!(collection.merge(&context).unwrap_err().kind(), ErrorKind::Budget);
    write();
    drop(others);
    assert_eq!(collection.merge(&context).unwrap().rows, 2_000);
    write();
    assert_eq!(collection.facts().rows, 3_000);
}

#[test]
fn a_merge_is_refused_early_if_its_index_could_not_be_opened() {
    const MANY: usize = 3 * ROWS;
    const STEP: u64 = 64 << 10;
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let mut of_codes = options(VECTORS, Metric::L2, IdKind::Int64);
    (of_codes.index.degree, of_codes.index.build_list) = (Some(8), 16);
    of_codes.index.code_bytes = Some(128);
    let context = Setup::default().context();
    Collection::create(&context, &live, &of_codes).unwrap();
    let collection = Collection::open(&context, &live).unwrap();
    let rows = make(Shape::Clustered, Element::U8, MANY, 128, 6);
    collection.load(&rows.in_batches_of(MANY), Put::Insert, Durability::Group).unwrap();
    collection.merge(&context).unwrap();
    drop(collection);
    // The budget suffices to open the collection and to write once, but not to open it twice.
    let opens = |&memory: &u64| Collection::open(&Setup { memory, ..Setup::default() }.context(), &live).is_ok();
    let least = (0..).map(|step| (8 << 20) + step * STEP).find(opens).unwrap();
    let small = Setup { memory: least + 16 * STEP, ..Setup::default() }.context();
    let collection = Collection::open(&small, &live).unwrap();
    let gone = Ids::Int64(vec![1]);
    collection.write(&Write { delete: Some(&gone), ..Write::default() }, Durability::Group).unwrap();
    let refused = collection.merge(&small).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Budget);
    assert!(refused.to_string().contains("opening the merged index next to the present one needs"), "{refused}");
    let facts = collection.facts();
    assert_eq!((facts.rows, facts.deleted), (MANY as u64 - 1, 1));
    drop(collection);
    let collection = Collection::open(&context, &live).unwrap();
    assert_eq!(collection.merge(&context).unwrap().rows, MANY as u64 - 1);
}

/// Progress that records the least free memory of a budget when a phase begins.
struct LeastFree {
    context: Context,
    least: AtomicU64,
}

impl Progress for LeastFree {
    fn begin(&self, _phase: &str, _unit: &str, _total: u64) {
        self.least.fetch_min(self.context.budget().free(), Ordering::Relaxed);
    }
    fn advance(&self, _done: u64) {}
    fn note(&self, _line: &str) {}
}

#[test]
fn a_merge_leaves_memory_for_the_writes_until_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let context = Setup::default().context().with_memory(256 << 20);
    let collection = open(&context, &folder.path().join("live"));
    let rows = make(Shape::Clustered, Element::U8, ROWS, 128, 6);
    let least_free = |collection: &Collection| {
        let least = Arc::new(LeastFree { context: context.clone(), least: AtomicU64::new(u64::MAX) });
        let mut context = context.clone();
        context.progress = least.clone();
        collection.merge(&context).unwrap();
        least.least.load(Ordering::Relaxed)
    };
    let mut parts = parts(&rows, 1_000);
    let mut write = || {
        let of_write = parts.next().unwrap();
        collection.write(&Write { insert: Some(&of_write), ..Write::default() }, Durability::Buffered).unwrap();
    };
    write();
    // Without a merger, a merge takes three quarters of the free memory.
    assert!(least_free(&collection) < 70 << 20);
    // Writes may take 120 MiB for rows until they wait, and another half for buckets.
    let merger = start_merger(&collection, merges_at(60 << 20)).unwrap();
    write();
    let free = least_free(&collection);
    assert!(free > 175 << 20, "{free}");
    drop(merger);
}
