//! Builds, joins and searches on a disk that fails, tears writes, fills up or loses power, at every operation. The
//! result must be complete or absent, and existing results must not be lost.

mod forgetful;
mod subjects;
mod trials;

use std::sync::Arc;

use adjoin::{Append, Element, OnBad, OnDuplicateId, Store, lab::context::RUNTIME_BYTES};

use arrow_array::{ArrayRef, Int32Array, RecordBatch};

use crate::datasets::{Shape, make};
use crate::harness::{Set, Setup, error_of};
pub(crate) use forgetful::{Forgetful, Forgets};
use subjects::{Build, Growth, IndexBuild, Join, Subject, Wanted};
use trials::Trials;

/// Returns a setup with a budget so small that everything spills to temporary files if it can.
pub(crate) fn spilling() -> Setup {
    Setup { memory: least_memory(), ..Setup::default().with_buckets(6) }
}

pub(crate) fn large(seed: u64) -> Set {
    let rows = 16_384;
    let ids: Vec<String> = (0..rows).map(|row| format!("{row:>128}")).collect();
    make(Shape::Clustered, Element::U8, rows, 2, seed).with_text_ids(&ids).in_batches_of(4_096)
}

fn small(seed: u64) -> Set {
    make(Shape::Clustered, Element::F32, 60, 3, seed)
}

/// Returns the smallest budget, in steps of 32 KiB, with which the build succeeds. It is near the budget that a
/// refusal names: up to 1 MB below it, or above it by the memory for the ids of the largest bucket.
fn least_memory() -> u64 {
    let with = |memory| Setup { memory, ..Setup::default().with_buckets(6) }.build(&large(1));
    let said = error_of(with(RUNTIME_BYTES + 1)).to_string();
    let (_, least) = said.split_once("give memory ").unwrap();
    let least = least.split_once("MB").unwrap().0.parse::<u64>().unwrap() * 1_000_000;
    (0..70).map(|step| least - 1_000_000 + (step << 15)).find(|&memory| with(memory).is_ok()).unwrap()
}

#[track_caller]
fn try_all(name: &str, subject: &dyn Subject) {
    let counts = Trials::of(subject).all().unwrap_or_else(|why| panic!("{name}: {why}"));
    println!("{name}: {counts:?}");
    assert!(counts.operations <= 300 && counts.images > counts.crashed && counts.redone > 0, "{name}: {counts:?}");
}

fn old_and_small() -> [Build; 2] {
    let setup = || Setup::default().with_buckets(4);
    let old = Build::new("an old store", make(Shape::Uniform, Element::U8, 40, 5, 7), setup(), None);
    [old, Build::new("a small store", small(1), setup(), None)]
}

#[test]
fn a_small_build_survives_every_fault() {
    let [_, fresh] = old_and_small();
    try_all(fresh.name, &fresh);
}

#[test]
fn a_small_build_over_an_old_store_survives_every_fault() {
    let [old, fresh] = old_and_small();
    let setup = || Setup::default().with_buckets(4);
    try_all("over another store", &Build::new("", small(1), setup(), Some(&old)));
    try_all("over the same store", &Build::new("", small(1), setup(), Some(&fresh)));
}

#[test]
fn a_sorted_build_survives_every_fault() {
    let years: Int32Array = (0..60).map(|row| (row % 7 > 0).then_some(row * 11 % 13)).collect();
    let columns = RecordBatch::try_from_iter([("year", Arc::new(years) as ArrayRef)]).unwrap();
    let mut setup = Setup::default().with_buckets(4);
    setup.build.sort_by = Some("year".into());
    let [old, _] = old_and_small();
    let sorted = Build::new("a sorted store", small(1).with_columns(columns.clone()), setup.clone(), None);
    try_all(sorted.name, &sorted);
    let over = Build::new("over a store", small(1).with_columns(columns), setup, Some(&old));
    try_all("a sorted store over another", &over);
}

#[test]
fn a_spilling_build_survives_every_fault() {
    let fresh = Build::new("a store that spills", large(1), spilling(), None);
    let device = fresh.device();
    fresh.work(Arc::new(device.clone()), false).unwrap();
    let log = device.operations();
    for temporary in ["/.adjoin-rows-", "/.adjoin-sample-", "/.adjoin-ids-"] {
        let written = log.iter().any(|operation| operation.path.to_string_lossy().contains(temporary));
        assert!(written, "{temporary} stay in memory");
    }
    try_all(fresh.name, &fresh);
}

#[test]
fn a_spilling_build_over_an_old_store_survives_every_fault() {
    let [old, _] = old_and_small();
    try_all("spilling over a store", &Build::new("", large(1), spilling(), Some(&old)));
}

#[test]
fn an_append_survives_every_fault() {
    let [_, store] = old_and_small();
    let some = make(Shape::Clustered, Element::F32, 20, 3, 5);
    try_all("an append", &Growth::new(&store, some, Setup::default()));
}

#[test]
fn a_spilling_append_survives_every_fault() {
    let [old, new] = large(1).split_at(14_000);
    let built = Setup::default().with_buckets(6).build(&old).unwrap();
    let wanted = Append { new: Some(&new), delete: None, on_bad: OnBad::Error, on_duplicate_id: OnDuplicateId::Error };
    let enough =
        |memory: u64| Store::append(&Setup { memory, ..Setup::default() }.context(), &built.path(), &wanted).is_ok();
    let memory = (1..).map(|step| RUNTIME_BYTES + (step << 18)).find(|&memory| enough(memory)).unwrap();
    let store = Build::new("", old, spilling(), None);
    let growth = Growth::new(&store, new.clone(), Setup { memory: memory + (1 << 18), ..Setup::default() });
    let device = growth.device();
    growth.work(Arc::new(device.clone()), true).unwrap();
    let log = device.operations();
    assert!(log.iter().any(|operation| operation.path.to_string_lossy().contains("/.adjoin-rows-")), "it spills");
    try_all("an append that spills", &growth);
}

#[test]
fn an_index_build_survives_every_fault() {
    let [old, store] = old_and_small();
    let fresh = IndexBuild::new(&store, None);
    try_all("an index", &fresh);
    try_all("an index over another", &IndexBuild::new(&store, Some(&IndexBuild::new(&old, None))));
    try_all("an index over the same", &IndexBuild::new(&store, Some(&fresh)));
    try_all("an index in another layout", &IndexBuild::backwards(&fresh));
}

#[test]
fn an_index_with_columns_survives_every_fault() {
    let fresh = IndexBuild::with_halves();
    try_all("an index with attributes", &fresh);
    try_all("an index with attributes in another layout", &IndexBuild::backwards(&fresh));
    try_all("a search with a condition", &Join::filtered(&fresh, "data/hits.csv", None));
    try_all("a search with a condition over a file", &Join::filtered(&fresh, "data/hits.parquet", Some(b"of old")));
}

#[test]
fn a_join_survives_every_fault() {
    let [_, store] = old_and_small();
    try_all("a join into CSV", &Join::new(&store, Wanted::Pairs, "data/pairs.csv", None));
    try_all(
        "a join into Parquet over a file",
        &Join::new(&store, Wanted::Pairs, "data/pairs.parquet", Some(b"of old")),
    );
}

#[test]
fn a_search_survives_every_fault() {
    let [_, store] = old_and_small();
    try_all("a search into CSV", &Join::new(&store, Wanted::Hits, "data/hits.csv", None));
    try_all(
        "a search into Parquet over a file",
        &Join::new(&store, Wanted::Hits, "data/hits.parquet", Some(b"of old")),
    );
}

#[test]
fn a_join_that_sorts_on_disk_survives_every_fault() {
    let [_, few] = old_and_small();
    let equal = Set::of(Element::U8, 1, &[3.0; 300]).with_ids(&(0..300).collect::<Vec<_>>());
    let store = Build::new("equal vectors", equal, Setup::default().with_buckets(2), None);
    let join = Join::new(&store, Wanted::Keep, "data/gone.csv", Some(b"of old"));
    let device = join.device();
    join.work(Arc::new(device.clone()), true).unwrap();
    let runs = device
        .operations()
        .iter()
        .filter(|operation| operation.path.to_string_lossy().contains(".adjoin-sorted-"))
        .count();
    assert!(runs > 5, "{runs} operations on temporary files");
    // Crashes are not tried here. Temporary files are left after a crash like any other drafts.
    Trials::of(&join).failures().unwrap_or_else(|why| panic!("{why}"));
    try_all("rows that go", &Join::new(&few, Wanted::Keep, "data/gone.csv", None));
}

#[test]
fn the_next_run_removes_leftovers_of_a_killed_run() {
    let [old, fresh] = old_and_small();
    let over = Build::new("", small(1), Setup::default().with_buckets(4), Some(&old));
    let join = Join::new(&fresh, Wanted::Keep, "data/gone.csv", None);
    for subject in [&fresh as &dyn Subject, &over, &join] {
        Trials::of(subject).kills().unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Runs work that skips a step. Returns the error that the checker reports, if any.
fn missed(subject: &dyn Subject, forgets: &Forgets) -> Option<String> {
    let wrap = |device| -> Arc<dyn adjoin::device::Device> { Arc::new(Forgetful::new(device, forgets.clone())) };
    let mut trials = Trials { wrap: &wrap, ..Trials::of(subject) };
    match forgets {
        Forgets::Removal => trials.failures().err(),
        _ => trials.crashes().err(),
    }
}

#[test]
fn canary_every_forgotten_sync_is_caught() {
    let [old, fresh] = old_and_small();
    let over = Build::new("", small(1), Setup::default().with_buckets(4), Some(&old));
    let files = ["vectors.bin", "centers.bin", "buckets.bin", "manifest.json"];
    // A build into a new folder first syncs the name of that folder. Both builds then sync the names of the files,
    // and later the name of the manifest.
    for (subject, folder_syncs) in [(&fresh, 3), (&over, 2)] {
        let forgotten = files.map(|file| Forgets::FileSync(file.into())).into_iter();
        for forgets in forgotten.chain((0..folder_syncs).map(Forgets::FolderSync)) {
            assert!(missed(subject, &forgets).is_some(), "{forgets:?} goes unnoticed");
        }
        assert_eq!(missed(subject, &Forgets::FolderSync(folder_syncs)), None, "there is no such sync");
    }
    let attributes = Forgets::FileSync("attributes.parquet".into());
    assert!(missed(&IndexBuild::with_halves(), &attributes).is_some(), "attributes");
    let join = Join::new(&fresh, Wanted::Pairs, "data/pairs.csv", None);
    for forgets in [Forgets::FileSync("result".into()), Forgets::FolderSync(0)] {
        assert!(missed(&join, &forgets).is_some(), "{forgets:?} goes unnoticed");
    }
}

#[test]
fn canary_a_forgotten_removal_is_caught() {
    let [_, fresh] = old_and_small();
    let said = missed(&fresh, &Forgets::Removal).expect("leftovers are noticed");
    assert!(said.contains("is not as it was"), "{said}");
}
