//! Changes of the layout of an index. Are vectors, ids and edges unchanged, and does the order depend only on the
//! index?

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use adjoin::{
    Element, ErrorKind, HitBatch, Index, IndexOptions, Metric, Random, RelayoutReport,
    lab::index::IndexManifest,
    lab::{GivenOrder, relayout_in_order, store::Role},
};

use crate::harness::{Set, Setup, error_of, files_of};
use crate::index::{Indexed, options, recall};
use crate::search::{assert_same, true_hits, values};

/// Data of a vertex. Neighbors are row numbers, since vertex numbers depend on the layout.
#[derive(Debug, PartialEq, Eq)]
struct Vertex {
    vector: Vec<u8>,
    neighbors: BTreeSet<u64>,
    code: Vec<u8>,
    is_entry: bool,
    leads_in: bool,
}

/// Content of the files of an index, decoded as the documentation of the format describes it.
struct Contents {
    by_row: BTreeMap<u64, Vertex>,
    /// Mean fraction of the other vertices on a vertex's page that are its neighbors.
    overlap_ratio: f64,
    /// Mean difference between the number of a vertex and the number of its farthest neighbor.
    bandwidth: f64,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn contents(folder: &Path) -> Contents {
    let context = Setup::default().context();
    let facts: IndexManifest = Index::open(&context, folder).unwrap().facts().clone();
    let file = |role| std::fs::read(folder.join(&facts.files[role].name)).unwrap();
    let (bytes, degree, vertices) = (facts.vectors.bytes(), facts.degree, facts.vertices as usize);
    let record = bytes + 4 * degree + 5 + 2;
    let page_bytes = (8 + record).next_multiple_of(facts.page_bytes as usize);
    let records = (page_bytes - 8) / record;
    let (pages, codes, navigation) = (file(Role::Pages), file(Role::Codes), file(Role::Navigation));
    let parts = |vertex: usize| {
        let (page, slot) = (&pages[vertex / records * page_bytes..][..page_bytes], vertex % records);
        let (lists, rows) = (8 + records * bytes, 8 + records * (bytes + 4 * degree));
        let count = number(&page[rows + 5 * records + 2 * slot..][..2]) as usize;
        let list = page[lists + 4 * degree * slot..][..4 * count].chunks(4).map(|bytes| number(bytes) as usize);
        (page[8 + slot * bytes..][..bytes].to_vec(), number(&page[rows + 5 * slot..][..5]), list.collect::<Vec<_>>())
    };
    let all: Vec<_> = (0..vertices).map(parts).collect();
    let sample = number(&navigation[..4]) as usize;
    let led: Vec<usize> = navigation[4..][..4 * sample].chunks(4).map(|bytes| number(bytes) as usize).collect();
    for (k, &vertex) in led.iter().enumerate() {
        assert_eq!(all[vertex].0, navigation[4 + 4 * sample + k * bytes..][..bytes], "vectors of the navigation graph");
    }
    let (mut near, mut far) = (0.0, 0);
    let mut by_row = BTreeMap::new();
    for (vertex, (vector, row, list)) in all.iter().enumerate() {
        let on_page = (vertices - vertex / records * records).min(records);
        let beside = list.iter().filter(|&&other| other / records == vertex / records).count();
        near += if on_page == 1 { 0.0 } else { beside as f64 / (on_page - 1) as f64 };
        far += list.iter().map(|other| other.abs_diff(vertex)).max().unwrap_or(0);
        let of_vertex = Vertex {
            vector: vector.clone(),
            neighbors: list.iter().map(|&other| all[other].1).collect(),
            code: codes[vertex * facts.code_bytes..][..facts.code_bytes].to_vec(),
            is_entry: facts.entry as usize == vertex,
            leads_in: led.contains(&vertex),
        };
        assert!(by_row.insert(*row, of_vertex).is_none(), "row {row} twice");
    }
    Contents { by_row, overlap_ratio: near / vertices as f64, bandwidth: far as f64 / vertices as f64 }
}

/// Lays out a copy of an index in the way that builds do.
fn relaid(indexed: &Indexed, setup: &Setup) -> adjoin::Result<RelayoutReport> {
    Index::relayout(&setup.context(), &indexed.path(), Some(&indexed.beside("relaid")), true)
}

/// Lays out an index in place, with its vertices in a random order.
fn shuffled(indexed: &Indexed, setup: &Setup, seed: u64) -> RelayoutReport {
    let vertices = Index::open(&setup.context(), &indexed.path()).unwrap().facts().vertices;
    let mut order: Vec<u32> = (0..vertices).collect();
    Random::new(seed, "order of pages").shuffle(&mut order);
    let given = GivenOrder { name: "shuffled", order: &order };
    relayout_in_order(&setup.context(), &indexed.path(), None, given, false).unwrap()
}

#[test]
fn relayout_preserves_vectors_ids_and_edges() {
    let rows = 3_000;
    let texts: Vec<String> = (0..rows).map(|row| format!("{}{row}", "x".repeat(row % 50))).collect();
    let numbers: Vec<i64> = (0..rows as i64).map(|row| 7 - 3 * row).collect();
    let plain = Set::of(Element::U8, 3, &values(rows, 3, 1));
    let queries = Set::of(Element::U8, 3, &values(60, 3, 2));
    let setup = Setup::default();
    for set in [plain.clone(), plain.clone().with_text_ids(&texts), plain.with_ids(&numbers)] {
        let indexed = Indexed::build(&setup, &set, &IndexOptions { code_bytes: Some(3), ..options() });
        let before = contents(&indexed.path());
        assert!(before.by_row.len() < rows, "some vectors are equal");
        let wanted = indexed.search(&setup, &queries, 9, rows);
        let truth = true_hits(&set, &queries, adjoin::QueryTarget::Nearest(9), Metric::L2);
        let usual = recall(&indexed.search(&setup, &queries, 9, 20).hits, &truth);
        let mixed = shuffled(&indexed, &setup, 5);
        let grown = relaid(&indexed, &setup).unwrap();
        for (name, done, at) in [("shuffled", mixed, indexed.path()), ("grown", grown, indexed.beside("relaid"))] {
            let after = contents(&at);
            assert!(after.by_row == before.by_row, "{name}");
            assert_eq!(done.manifest.layout, name);
            assert!((done.manifest.overlap_ratio - after.overlap_ratio).abs() < 1e-12, "{name}");
            assert!((done.bandwidth - after.bandwidth).abs() < 1e-6, "{name}");
            assert!(Index::verify(&setup.context(), &at).unwrap().is_sound(), "{name}");
            let found = indexed.search_at(&at, &setup, &queries, 9, rows);
            assert_same(&found.hits, &wanted.hits, name);
            let ids = |batches: &[HitBatch]| batches.iter().map(|batch| batch.ids.clone()).collect::<Vec<_>>();
            assert!(ids(&found.batches) == ids(&wanted.batches), "{name}: ids");
            let short = recall(&indexed.search_at(&at, &setup, &queries, 9, 20).hits, &truth);
            // Walks read other pages, so the recall may differ.
            assert!(short > usual - 0.08, "{name}: recall {short}, it was {usual}");
        }
    }
}

/// Checks an index of large vectors. With the smallest budget, not even one window of pages fits in memory.
#[test]
fn relayout_bytes_depend_only_on_the_index() {
    let set = Set::of(Element::F32, 256, &values(14_000, 256, 3)).with_ids(&(0..14_000).collect::<Vec<_>>());
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &options());
    shuffled(&indexed, &setup, 1);
    relaid(&indexed, &setup).unwrap();
    let wanted = files_of(&indexed.beside("relaid"));
    let said = error_of(relaid(&indexed, &Setup { memory: 15_100_000, ..setup.clone() })).to_string();
    let (_, least) = said.split_once("give memory ").unwrap();
    let least = least.split_once("MB").unwrap().0.parse::<u64>().unwrap() * 1_000_000;
    assert!(least < 43_000_000, "{said}");
    for (threads, memory) in [(1, setup.memory), (5, setup.memory), (2, least)] {
        relaid(&indexed, &Setup { threads, memory, ..setup.clone() }).unwrap();
        assert!(files_of(&indexed.beside("relaid")) == wanted, "{threads} threads, {memory} bytes");
    }
    // The index is replaced in place, which does not need `force`.
    let done = Index::relayout(&setup.context(), &indexed.path(), None, false).unwrap();
    assert!(
        files_of(&indexed.path()) == wanted && done.manifest.overlap_ratio > 0.1,
        "{}",
        done.manifest.overlap_ratio
    );
}

#[test]
fn a_refused_relayout_does_not_change_the_index() {
    let set = Set::of(Element::U8, 4, &values(400, 4, 3));
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &IndexOptions { code_bytes: Some(4), ..options() });
    let before = files_of(&indexed.path());
    let context = setup.context();
    let refused = |from: &Path, to: Option<&Path>| {
        let error = error_of(Index::relayout(&context, from, to, false));
        (error.kind(), error.to_string())
    };
    let (_, said) = refused(&indexed.beside("store"), None);
    assert!(said.contains("store"), "{said}");
    let (_, said) = refused(&indexed.path(), Some(&indexed.beside("store")));
    assert!(said.contains("is a store, not a graph index"), "{said}");
    let (_, said) = refused(&indexed.path(), Some(&indexed.path()));
    assert!(said.contains("already"), "{said}");
    assert!(files_of(&indexed.path()) == before, "nothing has changed");
    let pages = before.keys().find(|name| name.starts_with("pages-")).unwrap();
    let mut damaged = before[pages].clone();
    damaged[5_000] ^= 1;
    std::fs::write(indexed.path().join(pages), &damaged).unwrap();
    let (kind, said) = refused(&indexed.path(), None);
    assert!(kind == ErrorKind::Corrupt && said.contains("page 1") && said.contains(pages.as_str()), "{said}");
    std::fs::write(indexed.path().join(pages), &before[pages]).unwrap();
    assert!(files_of(&indexed.path()) == before, "nothing has changed");
}
