//! Does an index that is laid out anew hold the same vectors, ids and edges, in an order that depends on nothing but the index?

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use adjoin::error::ErrorKind;
use adjoin::index::{self, Index, IndexManifest, IndexOptions, Layout, RelayoutReport};
use adjoin::options::{Element, Metric};
use adjoin::sink::HitBatch;
use adjoin::store::{Role, Store};

use crate::harness::{Set, Setup, error_of, files_of};
use crate::index::{Indexed, options, recall};
use crate::search::{assert_same, true_hits, values};

/// The layouts that an index can be given.
fn layouts() -> impl Iterator<Item = Layout> {
    Layout::ALL.into_iter().filter(|layout| !matches!(layout, Layout::Rows | Layout::Buckets))
}

/// What an index holds of a vertex, by rows instead of numbers of vertices.
#[derive(Debug, PartialEq, Eq)]
struct Vertex {
    vector: Vec<u8>,
    neighbors: BTreeSet<u64>,
    code: Vec<u8>,
    is_entry: bool,
    leads_in: bool,
}

/// What the files of an index hold, read as the page on the format says.
struct Contents {
    by_row: BTreeMap<u64, Vertex>,
    /// How many neighbors vertices have on their pages, as a share of the others there: the mean.
    overlap_ratio: f64,
    /// How far the farthest neighbor is: the mean.
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

fn relaid(indexed: &Indexed, setup: &Setup, layout: Layout) -> adjoin::error::Result<RelayoutReport> {
    index::relayout(&setup.context(), &indexed.path(), Some(&indexed.beside("relaid")), layout, true)
}

#[test]
fn vectors_ids_and_edges_stay_with_their_rows() {
    let rows = 3_000;
    let texts: Vec<String> = (0..rows).map(|row| format!("{}{row}", "x".repeat(row % 50))).collect();
    let numbers: Vec<i64> = (0..rows as i64).map(|row| 7 - 3 * row).collect();
    let plain = Set::of(Element::U8, 3, &values(rows, 3, 1));
    let queries = Set::of(Element::U8, 3, &values(60, 3, 2));
    let setup = Setup::default();
    for (set, layouts) in [
        (plain.clone(), layouts().collect::<Vec<_>>()),
        (plain.clone().with_text_ids(&texts), vec![Layout::Bnf]),
        (plain.with_ids(&numbers), vec![Layout::Degree]),
    ] {
        let indexed =
            Indexed::build(&setup, &set, &IndexOptions { layout: Layout::Buckets, code_bytes: 3, ..options() });
        let before = contents(&indexed.path());
        assert!(before.by_row.len() < rows, "some vectors are equal");
        let wanted = indexed.search(&setup, &queries, 9, rows);
        let truth = true_hits(&set, &queries, adjoin::query::QueryTarget::Nearest(9), Metric::L2);
        let usual = recall(&indexed.search(&setup, &queries, 9, 20).hits, &truth);
        for layout in layouts {
            let done = relaid(&indexed, &setup, layout).unwrap();
            let at = indexed.beside("relaid");
            let after = contents(&at);
            assert!(after.by_row == before.by_row, "{layout}");
            assert_eq!(done.manifest.layout, layout);
            assert!((done.manifest.overlap_ratio - after.overlap_ratio).abs() < 1e-12, "{layout}");
            assert!((done.bandwidth - after.bandwidth).abs() < 1e-6, "{layout}");
            assert!(index::verify(&setup.context(), &at).unwrap().is_sound(), "{layout}");
            let found = indexed.search_at(&at, &setup, &queries, 9, rows);
            assert_same(&found.hits, &wanted.hits, layout.name());
            let ids = |batches: &[HitBatch]| batches.iter().map(|batch| batch.ids.clone()).collect::<Vec<_>>();
            assert!(ids(&found.batches) == ids(&wanted.batches), "{layout}: ids");
            let short = recall(&indexed.search_at(&at, &setup, &queries, 9, 20).hits, &truth);
            // Walks go by other pages.
            assert!(short > usual - 0.08, "{layout}: recall {short}, it was {usual}");
        }
    }
}

/// An index of vectors so large that with the least budget no window of pages is in memory as a whole.
#[test]
fn the_bytes_depend_on_nothing_but_the_index() {
    let set = Set::of(Element::F32, 256, &values(14_000, 256, 3)).with_ids(&(0..14_000).collect::<Vec<_>>());
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &IndexOptions { layout: Layout::Rows, ..options() });
    relaid(&indexed, &setup, Layout::Grown).unwrap();
    let wanted = files_of(&indexed.beside("relaid"));
    let said = error_of(relaid(&indexed, &Setup { memory: 15_100_000, ..setup.clone() }, Layout::Grown)).to_string();
    let (_, least) = said.split_once("give memory ").unwrap();
    let least = least.split_once("MB").unwrap().0.parse::<u64>().unwrap() * 1_000_000;
    assert!(least < 40_000_000, "{said}");
    for (threads, memory) in [(1, setup.memory), (5, setup.memory), (2, least)] {
        relaid(&indexed, &Setup { threads, memory, ..setup.clone() }, Layout::Grown).unwrap();
        assert!(files_of(&indexed.beside("relaid")) == wanted, "{threads} threads, {memory} bytes");
    }
    // In place of the one that was there, without being asked.
    let done = index::relayout(&setup.context(), &indexed.path(), None, Layout::Grown, false).unwrap();
    assert!(
        files_of(&indexed.path()) == wanted && done.manifest.overlap_ratio > 0.1,
        "{}",
        done.manifest.overlap_ratio
    );
}

/// What a trial says is what an index then has; more rounds do not make it worse, and nothing is written.
#[test]
fn a_trial_says_how_good_a_layout_will_be() {
    let set = Set::of(Element::U8, 6, &values(3_000, 6, 4));
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &IndexOptions { layout: Layout::Buckets, code_bytes: 6, ..options() });
    let (before, context) = (files_of(&indexed.path()), setup.context());
    let index = Index::open(&context, &indexed.path()).unwrap();
    let tried = |layout, rounds| index::try_layout(&context, &index, layout, rounds).unwrap().overlap_ratio;
    for layout in layouts() {
        let done = relaid(&indexed, &setup, layout).unwrap();
        assert_eq!(tried(layout, 8), done.manifest.overlap_ratio, "{layout}");
    }
    assert_eq!(tried(Layout::Bnf, 0), tried(Layout::Bnp, 0), "no round improves");
    for layout in [Layout::Bnf, Layout::Bns, Layout::Gp3] {
        let by_rounds = [0, 1, 2, 8].map(|rounds| tried(layout, rounds));
        assert!(by_rounds.is_sorted() && by_rounds[0] < by_rounds[2], "{layout}: {by_rounds:?}");
    }
    assert!(files_of(&indexed.path()) == before, "nothing has changed");
    let said = error_of(index::try_layout(&context, &index, Layout::Rows, 8)).to_string();
    assert!(said.contains("layout rows") && said.contains("build the index again"), "{said}");
}

#[test]
fn what_cannot_be_laid_out_anew_is_refused_and_stays() {
    let set = Set::of(Element::U8, 4, &values(400, 4, 3));
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &IndexOptions { code_bytes: 4, ..options() });
    let before = files_of(&indexed.path());
    let context = setup.context();
    let refused = |from: &Path, to: Option<&Path>, layout| {
        let error = error_of(index::relayout(&context, from, to, layout, false));
        (error.kind(), error.to_string())
    };
    for layout in [Layout::Rows, Layout::Buckets] {
        let (_, said) = refused(&indexed.path(), None, layout);
        assert!(said.contains(layout.name()) && said.contains("build the index again"), "{said}");
    }
    let store = Store::open(&context, &indexed.beside("store")).unwrap();
    let by_vectors = IndexOptions { layout: Layout::Gp1, ..options() };
    let said = error_of(index::build(&context, &store, &indexed.beside("other"), &by_vectors, false)).to_string();
    assert!(said.contains("layout gp1 goes by vectors") && !indexed.beside("other").exists(), "{said}");
    let (_, said) = refused(&indexed.beside("store"), None, Layout::Grown);
    assert!(said.contains("store"), "{said}");
    let (_, said) = refused(&indexed.path(), Some(&indexed.beside("store")), Layout::Grown);
    assert!(said.contains("is a store, not a graph index"), "{said}");
    let (_, said) = refused(&indexed.path(), Some(&indexed.path()), Layout::Grown);
    assert!(said.contains("already"), "{said}");
    assert!(files_of(&indexed.path()) == before, "nothing has changed");
    let pages = before.keys().find(|name| name.starts_with("pages-")).unwrap();
    let mut damaged = before[pages].clone();
    damaged[5_000] ^= 1;
    std::fs::write(indexed.path().join(pages), &damaged).unwrap();
    let (kind, said) = refused(&indexed.path(), None, Layout::Grown);
    assert!(kind == ErrorKind::Corrupt && said.contains("page 1") && said.contains(pages.as_str()), "{said}");
    std::fs::write(indexed.path().join(pages), &before[pages]).unwrap();
    assert!(files_of(&indexed.path()) == before, "nothing has changed");
}
