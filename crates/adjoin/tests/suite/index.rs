//! Graph indexes. Do they find the nearest rows by the formula? Are bytes, reads and hits equal on any device and
//! with any number of threads?

mod built;
mod kept_pages;
mod recall;
mod strategies;
mod within;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{
    Collect, Context, Element, ErrorKind, HitBatch, Ids, Index, IndexOptions, Metric, QueryTarget, Result,
    SearchEffort, SearchOptions, SearchStatistics, Store,
    device::{Device, FaultPlan, FileSystem, SimulatedDevice},
    kernels::Kernel,
    lab::{GivenOrder, PageGraph, index, query::QuerySources, relayout_in_order},
};
use tempfile::TempDir;

use crate::harness::{Set, Setup, error_of, files_of};
use crate::search::{ELEMENTS, Hits, METRICS, assert_same, true_hits, values};

/// An index and its store in a temporary folder.
pub(crate) struct Indexed {
    folder: TempDir,
}

/// Returns options of a graph with few edges, so that walks have several steps.
pub(crate) fn options() -> IndexOptions {
    IndexOptions { degree: Some(8), build_list: 24, code_bytes: Some(4), ..IndexOptions::default() }
}

impl Indexed {
    pub(crate) fn build(setup: &Setup, set: &Set, options: &IndexOptions) -> Self {
        let indexed = Self { folder: tempfile::tempdir().unwrap() };
        let context = setup.context();
        let store = indexed.folder.path().join("store");
        Store::build(&context, set, &store, &setup.build).unwrap();
        Index::build(&context, &Store::open(&context, &store).unwrap(), &indexed.path(), options, false).unwrap();
        indexed
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.beside("index")
    }

    /// Returns a path in the same temporary folder.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn search(&self, setup: &Setup, queries: &Set, k: u64, list: usize) -> Found {
        self.search_at(&self.path(), setup, queries, k, list)
    }

    pub(crate) fn search_at(&self, folder: &Path, setup: &Setup, queries: &Set, k: u64, list: usize) -> Found {
        search_in(&setup.context(), folder, queries, k, list).unwrap()
    }
}

pub(crate) struct Found {
    pub(crate) batches: Vec<HitBatch>,
    pub(crate) hits: Vec<Hits>,
    statistics: SearchStatistics,
}

fn search_in(context: &Context, folder: &Path, queries: &Set, k: u64, list: usize) -> Result<Found> {
    search_open(context, &Index::open(context, folder)?, queries, k, list)
}

fn search_open(context: &Context, index: &Index, queries: &Set, k: u64, list: usize) -> Result<Found> {
    let sink = Collect::default();
    let options = SearchOptions::new(QueryTarget::Nearest(k), SearchEffort::List(list), 1);
    let statistics = index::search(context, index, QuerySources::new(queries), &options, Box::new(sink.clone()))?;
    let (batches, hits) = (sink.batches(), sink.hits());
    assert_eq!(statistics.search.queries, hits.len() as u64, "the statistics count what the sink got");
    assert_eq!(statistics.search.hits, hits.iter().map(Vec::len).sum::<usize>() as u64);
    Ok(Found { batches, hits, statistics })
}

/// Returns the fraction of the true hits that were found. Hits with equal values count as equal, since rows at equal
/// distances are interchangeable.
pub(crate) fn recall(found: &[Hits], expected: &[Hits]) -> f64 {
    let right = |(found, expected): (&Hits, &Hits)| expected.iter().filter(|hit| found.contains(hit)).count();
    let all: usize = expected.iter().map(Vec::len).sum();
    found.iter().zip(expected).map(right).sum::<usize>() as f64 / all as f64
}

#[test]
fn a_list_of_all_vertices_equals_brute_force() {
    for (element, metric) in ELEMENTS.into_iter().flat_map(|element| METRICS.map(|metric| (element, metric))) {
        let set = Set::of(element, 6, &values(700, 6, 3));
        let queries = Set::of(element, 6, &values(40, 6, 4));
        let setup = Setup::default().with_metric(metric);
        let indexed = Indexed::build(&setup, &set, &options());
        for k in [1, 7, 1_000] {
            let wanted = true_hits(&set, &queries, QueryTarget::Nearest(k), metric);
            let found = indexed.search(&setup, &queries, k, 700);
            assert_same(&found.hits, &wanted, &format!("{element} {metric} {k}"));
        }
        let wanted = true_hits(&set, &queries, QueryTarget::Nearest(5), metric);
        let found = indexed.search(&setup, &queries, 5, 60);
        let recall = recall(&found.hits, &wanted);
        assert!(recall > 0.95, "{element} {metric}: {recall}");
        let report = Index::verify(&setup.context(), &indexed.path()).unwrap();
        assert!(report.is_sound() && report.pages > 0, "{:?}", report.damages);
    }
}

#[test]
fn a_shorter_list_reads_less_with_less_recall() {
    let set = Set::of(Element::U8, 16, &values(20_000, 16, 5));
    let queries = Set::of(Element::U8, 16, &values(200, 16, 6));
    let (setup, wanted) = (Setup::default(), true_hits(&set, &queries, QueryTarget::Nearest(5), Metric::L2));
    let indexed = Indexed::build(&setup, &set, &IndexOptions { code_bytes: Some(8), ..options() });
    let [short, long] = [5, 100].map(|list| indexed.search(&setup, &queries, 5, list));
    let [of_short, of_long] = [&short, &long].map(|found| recall(&found.hits, &wanted));
    assert!(of_short < of_long && of_long > 0.9, "{of_short} {of_long}");
    let reads = [&short, &long].map(|found| found.statistics.search.reads_per_query);
    assert!(reads[0] < 0.5 * reads[1], "{reads:?}");
    let latency = long.statistics.search.latency_ms.unwrap();
    assert!(latency.p50 <= latency.p95 && latency.p95 <= latency.p99 && latency.p99 <= latency.max);
}

/// Checks that the order of pages puts neighbors on one page. In the order of rows, almost no neighbors would share
/// one.
#[test]
fn neighbors_share_a_page() {
    let set = Set::of(Element::U8, 16, &values(5_000, 16, 5));
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &options());
    let context = setup.context();
    let graph = PageGraph::read(&context, &Index::open(&context, &indexed.path()).unwrap()).unwrap();
    let mut order: Vec<u32> = (0..graph.rows.len() as u32).collect();
    order.sort_unstable_by_key(|&vertex| graph.rows[vertex as usize]);
    let given = GivenOrder { name: "rows", order: &order };
    let by_rows = relayout_in_order(&context, &indexed.path(), Some(&indexed.beside("rows")), given, false).unwrap();
    let queries = Set::of(Element::U8, 16, &values(200, 16, 6));
    let reads = |at: &Path| indexed.search_at(at, &setup, &queries, 5, 100).statistics.search.reads_per_query;
    let (usual, of_rows) = (reads(&indexed.path()), reads(&indexed.beside("rows")));
    assert!(usual < 0.9 * of_rows, "{usual} {of_rows}");
    let ratio = Index::open(&context, &indexed.path()).unwrap().facts().overlap_ratio;
    assert!(by_rows.manifest.overlap_ratio < 0.02 && ratio > 0.04, "{} {ratio}", by_rows.manifest.overlap_ratio);
}

#[test]
fn index_bytes_reads_and_hits_depend_only_on_vectors_and_options() {
    let set = Set::of(Element::F16, 12, &values(1_500, 12, 7)).with_ids(&(0..1_500).rev().collect::<Vec<_>>());
    let queries = Set::of(Element::F16, 12, &values(60, 12, 8));
    let setup = Setup::default().with_metric(Metric::Cosine);
    let first = Indexed::build(&setup, &set, &options());
    let found = first.search(&setup, &queries, 5, 20);
    let mut others = [1, 2, 5].map(|threads| Setup { threads, ..setup.clone() }).to_vec();
    others.extend(Kernel::available().into_iter().map(|kernel| Setup { kernel, ..setup.clone() }));
    others.push(Setup { memory: 43_000_000, ..setup.clone() });
    for other in others {
        let what = format!("{} threads, {}, {} bytes", other.threads, other.kernel.name(), other.memory);
        let same = Indexed::build(&other, &set, &options());
        assert!(files_of(&same.path()) == files_of(&first.path()), "{what}: bytes of the index");
        let again = first.search(&other, &queries, 5, 20);
        assert_same(&again.hits, &found.hits, &what);
        assert_eq!(again.statistics.search.reads_per_query, found.statistics.search.reads_per_query, "{what}");
    }
    let simulated = SimulatedDevice::new(FaultPlan::None);
    files_of(&first.path()).iter().for_each(|(name, bytes)| simulated.put(Path::new("index").join(name), bytes));
    let devices: [(Arc<dyn Device>, PathBuf); 2] =
        [(Arc::new(FileSystem::pread()), first.path()), (Arc::new(simulated), "index".into())];
    for (device, folder) in devices {
        let name = device.name();
        let again = search_in(&setup.context_on(device), &folder, &queries, 5, 20).unwrap();
        assert_same(&again.hits, &found.hits, name);
        assert_eq!(again.statistics.search.reads_per_query, found.statistics.search.reads_per_query, "{name}");
    }
    let other = IndexOptions { seed: 9, ..options() };
    assert!(files_of(&Indexed::build(&setup, &set, &other).path()) != files_of(&first.path()), "the seed matters");
}

/// Checks a single query, which uses read-ahead. It must have the hits of the query in a batch, and need the same
/// pages.
#[test]
fn a_single_query_has_the_hits_of_a_batch() {
    let values_of = values(40, 16, 6);
    let set = Set::of(Element::U8, 16, &values(20_000, 16, 5));
    let setup = Setup { threads: 1, ..Setup::default() };
    let indexed = Indexed::build(&setup, &set, &IndexOptions { code_bytes: Some(8), ..options() });
    let all = indexed.search(&setup, &Set::of(Element::U8, 16, &values_of), 5, 30);
    let simulated = SimulatedDevice::new(FaultPlan::None);
    files_of(&indexed.path()).iter().for_each(|(name, bytes)| simulated.put(Path::new("index").join(name), bytes));
    let (mut reads, mut pages_read) = (0.0, 0);
    for (query, hits) in values_of.chunks(16).zip(&all.hits) {
        let query = Set::of(Element::U8, 16, query);
        let lone = indexed.search(&setup, &query, 5, 30);
        assert_same(&lone.hits, std::slice::from_ref(hits), "alone");
        reads += lone.statistics.search.reads_per_query;
        pages_read += lone.statistics.common.io.reads.unwrap();
        let device: Arc<dyn Device> = Arc::new(simulated.clone());
        let other = search_in(&setup.context_on(device), Path::new("index"), &query, 5, 30).unwrap();
        assert_same(&other.hits, &lone.hits, "in another order of reads");
        assert_eq!(other.statistics.common.io.reads, lone.statistics.common.io.reads, "pages looked at ahead");
    }
    assert_eq!(reads, (40.0 * all.statistics.search.reads_per_query).round(), "reads of the walks");
    assert!(pages_read as f64 > reads, "{pages_read} {reads}: some were read ahead and not needed");
    assert!(pages_read as f64 <= 3.0 * reads, "{pages_read} {reads}");
}

#[test]
fn hits_have_their_ids_also_for_equal_vectors() {
    let rows = 400;
    let texts: Vec<String> = (0..rows).map(|row| format!("{}{row}", "x".repeat(row % 50))).collect();
    let numbers: Vec<i64> = (0..rows as i64).map(|row| 7 - 3 * row).collect();
    let plain = Set::of(Element::U8, 2, &values(rows, 2, 1));
    let queries = Set::of(Element::U8, 2, &values(30, 2, 2));
    for set in [plain.clone().with_text_ids(&texts), plain.with_ids(&numbers)] {
        let indexed = Indexed::build(&Setup::default(), &set, &options());
        let found = indexed.search(&Setup::default(), &queries, 20, 400);
        let wanted = true_hits(&set, &queries, QueryTarget::Nearest(20), Metric::L2);
        assert_same(&found.hits, &wanted, "with ids");
        for HitBatch { rows, ids, .. } in found.batches {
            match ids {
                Ids::Int64(ids) => assert!(ids.iter().zip(&rows).all(|(&id, &row)| id == numbers[row as usize])),
                Ids::Utf8(ids) => {
                    assert!(rows.iter().enumerate().all(|(k, &row)| ids.get(k) == texts[row as usize].as_bytes()));
                }
                Ids::None => panic!("hits without ids"),
            }
        }
    }
}

#[test]
fn searches_small_sets_equal_vectors_and_large_vectors() {
    let setup = Setup::default();
    let one = Set::of(Element::F32, 3, &[1.0, 2.0, 3.0]);
    let found = Indexed::build(&setup, &one, &options()).search(&setup, &one, 10, 10);
    assert_same(&found.hits, &[vec![(0, 0.0)]], "one vector");
    let equal = Set::of(Element::U8, 1, &[5.0; 300]);
    let found = Indexed::build(&setup, &equal, &options()).search(&setup, &equal, 3, 10);
    assert!(found.hits.iter().all(|hits| *hits == [(0, 0.0), (1, 0.0), (2, 0.0)]), "rows that come first");
    // With these vectors, the record of a vertex takes two pages.
    let large = Set::of(Element::F32, 1_500, &values(60, 1_500, 3));
    let found = Indexed::build(&setup, &large, &options()).search(&setup, &large, 4, 60);
    assert_same(&found.hits, &true_hits(&large, &large, QueryTarget::Nearest(4), Metric::L2), "large vectors");
    let reads = found.statistics.search;
    assert_eq!(reads.bytes_per_query, 8_192.0 * reads.reads_per_query);
}

#[test]
fn rows_that_were_skipped_keep_their_numbers() {
    let set = Set::of(Element::F32, 4, &values(120, 4, 3)).with_missing(&[0, 5, 60, 119]);
    let setup = Setup::default().skipping_bad_rows();
    let queries = Set::of(Element::F32, 4, &values(10, 4, 4));
    let found = Indexed::build(&setup, &set, &options()).search(&setup, &queries, 200, 120);
    let without = |hits: Hits| hits.into_iter().filter(|hit| ![0, 5, 60, 119].contains(&hit.0)).collect::<Hits>();
    let wanted: Vec<Hits> =
        true_hits(&set, &queries, QueryTarget::Nearest(200), Metric::L2).into_iter().map(without).collect();
    assert_same(&found.hits, &wanted, "without those that are missing");
}

/// Checks that the smallest budget that a refusal names suffices.
#[test]
fn the_suggested_least_budget_suffices() {
    let ids: Vec<String> = (0..20_000).map(|row| format!("the vector of row {row}")).collect();
    let set = Set::of(Element::F32, 16, &values(20_000, 16, 3)).with_text_ids(&ids);
    let indexed = Indexed::build(&Setup::default(), &set, &options());
    let queries = Set::of(Element::F32, 16, &values(100, 16, 4));
    let within = |memory: u64| {
        let context = Setup { memory, ..Setup::default() }.context();
        let store = Store::open(&context, &indexed.folder.path().join("store"))?;
        Index::build(&context, &store, &indexed.path(), &options(), true)?;
        drop(store);
        search_in(&context, &indexed.path(), &queries, 10, 100).map(|_| ())
    };
    let said = error_of(within(20_000_000)).to_string();
    assert!(said.contains("building the index needs at least"), "{said}");
    let (_, least) = said.split_once("give memory ").unwrap();
    let least = least.split_once("MB").unwrap().0.parse::<u64>().unwrap() * 1_000_000;
    within(least).unwrap();
    let searched = |memory: u64| {
        let context = Setup { memory, ..Setup::default() }.context();
        search_in(&context, &indexed.path(), &queries, 10, 5_000).map(|found| found.hits)
    };
    let said = error_of(searched(21_000_000)).to_string();
    let (_, least) = said.split_once("give memory ").unwrap();
    let least = least.split_once("MB").unwrap().0.parse::<u64>().unwrap() * 1_000_000;
    let plenty = indexed.search(&Setup::default(), &queries, 10, 5_000);
    assert_same(&searched(least).unwrap(), &plenty.hits, "with the least budget");
}

/// Checks that a flipped byte is noticed when the index is opened and searched, or when it is verified. It must never
/// cause a panic.
#[test]
fn flipped_bytes_of_an_index_are_detected() {
    let ids: Vec<String> = (0..250).map(|row| format!("id {row}")).collect();
    let set = Set::of(Element::U8, 4, &values(250, 4, 3)).with_text_ids(&ids);
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &IndexOptions { code_bytes: Some(2), ..options() });
    let context = Setup { threads: 1, ..setup }.context();
    for (name, whole) in files_of(&indexed.path()) {
        if name.ends_with(".lock") {
            continue;
        }
        let path = indexed.path().join(&name);
        for at in (0..whole.len()).step_by((whole.len() / 60).max(1)) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&path, &damaged).unwrap();
            let report = Index::verify(&context, &indexed.path());
            assert!(report.is_ok_and(|report| !report.is_sound()), "byte {at} of {name} is not noticed");
            if let Err(error) = search_in(&context, &indexed.path(), &set, 3, 250) {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                assert!(error.to_string().contains("build the index again"), "{error}");
            } else {
                assert!(name.starts_with("ids-"), "a search goes on with byte {at} of {name} flipped");
            }
        }
        for len in [0, whole.len() / 2, whole.len() - 1, whole.len() + 1] {
            let mut cut = whole.clone();
            cut.resize(len, b' ');
            std::fs::write(&path, &cut).unwrap();
            assert!(search_in(&context, &indexed.path(), &set, 3, 250).is_err(), "{name} of {len} bytes");
        }
        std::fs::write(&path, &whole).unwrap();
    }
    assert!(Index::verify(&context, &indexed.path()).unwrap().is_sound());
}

#[test]
fn invalid_index_builds_and_searches_are_refused_with_a_remedy() {
    let set = Set::of(Element::U8, 4, &values(200, 4, 3));
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &options());
    let context = setup.context();
    let store = Store::open(&context, &indexed.folder.path().join("store")).unwrap();
    let refused = |context: &Context, folder: &str, options: &IndexOptions| {
        error_of(Index::build(context, &store, &indexed.folder.path().join(folder), options, false)).to_string()
    };
    for (folder, options, says) in [
        ("index", options(), "is already a graph index; give force to replace it"),
        ("store", options(), "is a store, not a graph index; choose another folder"),
        ("new", IndexOptions { page_bytes: 5_000, ..options() }, "page is 5000 bytes; give 4KiB, 8KiB or 16KiB"),
        ("new", IndexOptions { code_bytes: Some(0), ..options() }, "code-bytes is 0; give 1 to 1024"),
    ] {
        let said = refused(&context, folder, &options);
        assert!(said.contains(says), "{said}");
    }
    let small = Setup { memory: 19_000_000, ..Setup::default() }.context();
    let said = refused(&small, "new", &options());
    assert!(said.contains("building the index needs at least") && said.contains("give memory"), "{said}");
    let said = error_of(Store::open(&context, &indexed.path())).to_string();
    assert!(said.contains("is a graph index, not a store"), "{said}");
    let said = error_of(Index::open(&context, store.folder())).to_string();
    assert!(said.contains("is a store, not a graph index"), "{said}");
    let other = Set::of(Element::U8, 5, &values(3, 5, 3));
    let said = error_of(search_in(&context, &indexed.path(), &other, 3, 10)).to_string();
    assert!(said.contains("queries have 5 dimensions"), "{said}");
    for (k, list, says) in [(0, 10, "k 0 asks for nothing"), (1, 0, "list is 0; give 1 to")] {
        let said = error_of(search_in(&context, &indexed.path(), &set, k, list)).to_string();
        assert!(said.contains(says), "{said}");
    }
}
