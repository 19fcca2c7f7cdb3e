//! Appends to a store. Does the next generation have the kept and the appended rows, and does it work like any other
//! store?

use std::path::Path;

use adjoin::{
    Append, AppendReport, Element, IdKind, Ids, JoinOptions, Metric, OnBad, OnDuplicateId, Predicate, Result, Store,
    Target,
    lab::{context::RUNTIME_BYTES, sink::Counts},
};

use crate::datasets::{Shape, make};
use crate::harness::{Built, Set, Setup, assert_same, error_of, files_of};
use crate::oracle::Pair;

fn grow(setup: &Setup, folder: &Path, new: Option<&Set>, delete: Option<&Ids>) -> Result<AppendReport> {
    let new = new.map(|set| set as _);
    let (on_bad, on_duplicate_id) = (setup.build.on_bad, setup.build.on_duplicate_id);
    Store::append(&setup.context(), folder, &Append { new, delete, on_bad, on_duplicate_id })
}

/// Opens a store and verifies every byte of it.
fn opened(folder: &Path) -> Store {
    let context = Setup::default().context();
    let report = Store::verify(&context, folder).unwrap();
    assert!(report.is_sound() && report.leftovers.is_empty() && report.strangers.is_empty(), "{report:?}");
    Store::open(&context, folder).unwrap()
}

fn pairs(store: &Store, predicate: Predicate) -> Vec<Pair> {
    let setup = Setup::default();
    Built::collect(&setup.context(), store.into(), &setup.join_options(predicate)).unwrap().pairs
}

/// Returns the ids of all rows, in order of row number.
fn ids_of(store: &Store) -> Vec<String> {
    let (folder, context) = (tempfile::tempdir().unwrap(), Setup::default().context());
    let path = folder.path().join("counts.csv");
    let target = Target::File { path: path.clone(), force: false };
    let sink = Counts::create(&context, store, Some(&target), 0).unwrap();
    let predicate = match store.manifest().metric {
        Metric::L2 => Predicate::L2 { eps: 0.0 },
        _ => Predicate::Cosine { min_similarity: 1.0 },
    };
    let prepared = JoinOptions::exact(predicate).prepare(&context, store, false).unwrap();
    prepared.run(&context, store, Box::new(sink)).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().skip(1).map(|line| line.split_once(',').unwrap().0.to_owned()).collect()
}

fn without(pairs: Vec<Pair>, gone: &[u64]) -> Vec<Pair> {
    pairs.into_iter().filter(|pair| !gone.contains(&pair.0) && !gone.contains(&pair.1)).collect()
}

#[test]
fn a_join_after_append_equals_a_join_of_all_rows() {
    let numbers: Vec<i64> = (0..300).map(|row| 900 - 3 * row).collect();
    let names: Vec<String> = (0..300).map(|row| format!("row {row} of many")).collect();
    let gone: Vec<u64> = vec![0, 7, 8, 9, 101, 199];
    for (element, metric, eps) in [
        (Element::F32, Metric::L2, 0.6),
        (Element::F16, Metric::Cosine, 0.97),
        (Element::U8, Metric::L2, 45.0),
        (Element::I8, Metric::L2, 45.0),
        (Element::U8, Metric::Cosine, 0.97),
    ] {
        let predicate = match metric {
            Metric::L2 => Predicate::L2 { eps },
            _ => Predicate::Cosine { min_similarity: eps },
        };
        let plain = make(Shape::Clustered, element, 300, 8, 4);
        for kind in [IdKind::None, IdKind::Int64, IdKind::Utf8] {
            let setup = Setup::default().with_metric(metric).with_buckets(17);
            let (set, delete) = match kind {
                IdKind::None => (plain.clone(), Ids::Int64(gone.iter().map(|&row| row as i64).collect())),
                IdKind::Int64 => {
                    let of = |&row: &u64| numbers[row as usize];
                    (plain.clone().with_ids(&numbers), Ids::Int64(gone.iter().map(of).collect()))
                }
                IdKind::Utf8 => {
                    (plain.clone().with_text_ids(&names), gone.iter().map(|&row| &names[row as usize]).collect())
                }
            };
            let what = format!("{element} {metric} {kind:?}");
            let [old, new] = set.split_at(200);
            let built = setup.build(&old).unwrap();
            let report = grow(&setup, &built.path(), Some(&new), Some(&delete)).unwrap();
            assert_eq!((report.new_rows, report.removed_rows, report.missing_ids), (100, 6, 0), "{what}");
            let store = opened(&built.path());
            let manifest = store.manifest();
            assert_eq!((manifest.rows, manifest.source_rows, manifest.skipped_rows), (294, 300, 6), "{what}");
            assert_eq!((manifest.removed_rows, manifest.built_rows), (6, Some(200)), "{what}");
            let truth = without(set.true_pairs(predicate), &gone);
            assert!(truth.len() > 50, "{what}: {}", truth.len());
            assert_same(&pairs(&store, predicate), &truth, &what);
            let id = |row: u64| match kind {
                IdKind::None => row.to_string(),
                IdKind::Int64 => numbers[row as usize].to_string(),
                IdKind::Utf8 => names[row as usize].clone(),
            };
            let wanted: Vec<String> = (0..300).filter(|row| !gone.contains(row)).map(id).collect();
            assert_eq!(ids_of(&store), wanted, "{what}");
            // Readers that opened the old generation keep it.
            assert_same(&pairs(&built.store, predicate), &old.true_pairs(predicate), &what);
        }
    }
}

#[test]
fn appends_can_be_repeated_until_the_store_has_doubled() {
    let (setup, predicate) = (Setup::default().with_buckets(9), Predicate::L2 { eps: 45.0 });
    let set = make(Shape::Clustered, Element::U8, 400, 8, 4);
    let [mut there, _] = set.split_at(160);
    let built = setup.build(&there).unwrap();
    let mut gone = Vec::new();
    for (end, goes) in [(161, vec![2, 160]), (240, vec![160, 161, 3]), (300, vec![]), (320, vec![250])] {
        let [before, _] = set.split_at(end);
        let [_, new] = before.split_at(there.rows());
        let delete = Ids::Int64(goes.iter().map(|&row| row as i64).collect());
        let report = grow(&setup, &built.path(), Some(&new), Some(&delete)).unwrap();
        // Only rows that exist are deleted, and each only once.
        let went: Vec<u64> = goes.into_iter().filter(|row| *row < there.rows() && !gone.contains(row)).collect();
        assert_eq!(
            (report.removed_rows, report.missing_ids),
            (went.len() as u64, delete.len() as u64 - went.len() as u64)
        );
        gone.extend(went);
        there = before;
        assert_same(
            &pairs(&opened(&built.path()), predicate),
            &without(there.true_pairs(predicate), &gone),
            &format!("{end}"),
        );
    }
    let before = files_of(&built.path());
    let [_, more] = set.split_at(399);
    let error = error_of(grow(&setup, &built.path(), Some(&more), None)).to_string();
    assert!(error.contains("was built from 160 rows") && error.contains("161 rows appended"), "{error}");
    // Deletes without new rows are possible.
    assert!(files_of(&built.path()) == before);
    let report = grow(&setup, &built.path(), None, Some(&Ids::Int64(vec![5, 5, -1, 1 << 40]))).unwrap();
    assert_eq!((report.new_rows, report.removed_rows, report.missing_ids), (0, 1, 2));
    gone.push(5);
    assert_same(
        &pairs(&opened(&built.path()), predicate),
        &without(there.true_pairs(predicate), &gone),
        "rows that go",
    );
    let all = Ids::Int64((0..320).collect());
    let error = error_of(grow(&setup, &built.path(), None, Some(&all))).to_string();
    assert!(error.contains("no row would be left"), "{error}");
}

#[test]
fn appended_bytes_do_not_depend_on_budget_or_threads() {
    let names: Vec<String> = (0..9_000).map(|row| format!("{row:>128}")).collect();
    let set = make(Shape::Clustered, Element::F32, 9_000, 24, 2).with_text_ids(&names).in_batches_of(500);
    let [old, new] = set.split_at(6_000);
    let build = || Setup::default().with_buckets(40).build(&old).unwrap();
    let delete = Ids::Int64(vec![]);
    let with = |memory, threads| {
        let built = build();
        let setup = Setup { memory, threads, ..Setup::default() };
        let spilled = grow(&setup, &built.path(), Some(&new), None).map(|report| report.spill_bytes);
        (spilled, files_of(&built.path()))
    };
    let (spilled, wanted) = with(1 << 30, 2);
    assert_eq!(spilled.unwrap(), 0);
    let (refused, after) = with(RUNTIME_BYTES + 1, 1);
    assert!(after == files_of(&build().path()), "nothing is left");
    let said = refused.unwrap_err().to_string();
    let named = said.split_once("give memory ").unwrap().1.split_once("MB").unwrap().0.parse::<u64>().unwrap();
    // The budget that the refusal names suffices for every step. Smaller budgets may suffice too, and with the
    // smallest one the append spills to disk.
    let (mut memory, mut least) = (named * 1_000_000, None);
    while let (Ok(spilled), after) = with(memory, 1) {
        least = Some((spilled, after));
        memory -= 250_000;
    }
    let (spilled, small) = least.unwrap_or_else(|| panic!("what is named is refused: {said}"));
    assert!(spilled > 100_000, "it spills");
    assert!(small == wanted, "in the least memory");
    let (_, many) = with(1 << 30, 5);
    assert!(many == wanted, "on five threads");
    assert!(
        error_of(grow(&Setup::default(), &build().path(), None, Some(&delete)))
            .to_string()
            .contains("delete takes ids")
    );
}

/// Checks buckets with more equal vectors than an extent may hold. They continue in further extents, which are filled
/// one after the other.
#[test]
fn split_buckets_grow_in_further_extents() {
    let vectors = adjoin::VectorType { element: Element::U8, dimensions: 8_192 };
    let stored = |rows: std::ops::Range<u64>| {
        let byte = |row: u64, k: usize| if row.is_multiple_of(8) { (row as usize * 31 + k * 7) as u8 } else { 9 };
        rows.flat_map(|row| (0..8_192).map(move |k| byte(row, k))).collect::<Vec<u8>>()
    };
    let setup = Setup::default().with_buckets(20);
    let set = Set::of_stored(vectors, stored(0..640));
    let [old, new] = set.split_at(400);
    let built = setup.build(&old).unwrap();
    let most = |store: &Store| store.extents().iter().map(|extent| extent.rows).max().unwrap();
    assert!(most(&built.store) < 350, "it is split");
    let [some, others] = new.split_at(100);
    for new in [&some, &others] {
        grow(&setup, &built.path(), Some(new), None).unwrap();
    }
    let store = opened(&built.path());
    assert_eq!(store.extents().iter().filter(|extent| extent.rows == 128).count(), 2, "{:?}", store.extents());
    let equal = (0..640u64).filter(|row| !row.is_multiple_of(8)).count();
    let found = pairs(&store, Predicate::L2 { eps: 0.0 });
    assert!(found.len() >= equal * (equal - 1) / 2, "{}", found.len());
}

#[test]
fn refused_appends_do_not_change_the_store() {
    let ids: Vec<i64> = (0..60).collect();
    let set = make(Shape::Clustered, Element::F32, 60, 5, 1).with_ids(&ids);
    let setup = Setup::default().with_buckets(4);
    let built = setup.build(&set).unwrap();
    let before = files_of(&built.path());
    let refused = |new: &Set, words: &[&str]| {
        let error = error_of(grow(&setup, &built.path(), Some(new), None)).to_string();
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
        assert!(files_of(&built.path()) == before);
    };
    let of = |element, dimensions| make(Shape::Clustered, element, 10, dimensions, 1);
    let named = |first: i64| of(Element::F32, 5).with_ids(&(first..first + 10).collect::<Vec<_>>());
    refused(&of(Element::F32, 6).with_ids(&[0; 10]), &["5 x f32", "6 x f32"]);
    refused(&of(Element::F32, 5), &["integer ids", "no ids"]);
    refused(&named(55), &["the id 55 of row 0 was used by an earlier row (5 such rows in all)", "delete"]);
    refused(&of(Element::F32, 5).with_ids(&[70, 71, 72, 73, 74, 75, 76, 77, 70, 79]), &["the id 70 of row 8"]);
    refused(&named(60).with_missing(&[4]), &["row 4"]);

    // There are two ways to append rows with ids that exist: the old rows are deleted first, or duplicates are kept.
    let skipping = setup.clone().skipping_bad_rows();
    let delete = Ids::Int64((55..60).collect());
    let report = grow(&skipping, &built.path(), Some(&named(55).with_missing(&[9])), Some(&delete)).unwrap();
    assert_eq!((report.new_rows, report.removed_rows, report.skipped_rows), (9, 5, 1));
    assert_eq!(report.manifest.duplicate_ids, 0);
    let keep = Setup {
        build: adjoin::BuildOptions { on_duplicate_id: OnDuplicateId::Keep, ..setup.build.clone() },
        ..setup.clone()
    };
    assert_eq!(grow(&keep, &built.path(), Some(&named(50)), None).unwrap().manifest.duplicate_ids, 10);
    // Existing duplicates are kept. They do not cause new rows to be refused.
    assert_eq!(grow(&setup, &built.path(), Some(&named(90)), None).unwrap().manifest.duplicate_ids, 10);
    assert_eq!(opened(&built.path()).manifest().source_rows, 90);
    assert_eq!(OnBad::Skip, skipping.build.on_bad);
}

#[test]
fn append_refuses_longer_vectors_for_inner_products() {
    let setup = Setup::default().with_metric(Metric::Ip).with_buckets(3);
    let built = setup.build(&Set::of(Element::F32, 2, &[3.0, 4.0, 1.0, 0.0, 0.0, 0.5, 1.0, 1.0])).unwrap();
    let error = error_of(grow(&setup, &built.path(), Some(&Set::of(Element::F32, 2, &[1.0, 1.0, 4.0, 4.0])), None));
    assert!(error.to_string().contains("the vector of row 1 is longer than 5"), "{error}");
    grow(&setup, &built.path(), Some(&Set::of(Element::F32, 2, &[1.0, 1.0, 4.0, 3.0])), None).unwrap();
    assert_eq!(opened(&built.path()).manifest().longest, Some(5.0));
}
