//! Checks that a search of an index with changes finds the right rows among the remaining and the unmerged rows. Also
//! checks that an index returns its rows.

mod delete_list;
mod lists;
mod memory;
mod unmerged;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{CollectionChanges, DeleteList, Index, IndexOptions, IndexRows, UnmergedRows, hit_schema, search_changed};
use crate::base::context::Context;
use crate::base::error::{ErrorKind, Result};
use crate::base::options::{Element, Metric, VectorType};
use crate::base::predicate::Predicate;
use crate::base::random::Random;
use crate::base::report::SearchStatistics;
use crate::execute::Hit;
use crate::query::{IdRoom, QuerySources, QueryTarget, QueryVectors, SearchEffort, SearchGoal, SearchOptions};
use crate::sink::{Collect, HitBatch};
use crate::source::{IdKind, Ids, SourceInfo, TextIds, VectorBatch, VectorScan, VectorSource};
use crate::sql::Condition;
use crate::store::{self, BuildOptions, Store};

/// Vectors in memory, as numbers and as stored bytes.
pub(super) struct Set {
    info: SourceInfo,
    values: Vec<f64>,
    stored: Vec<u8>,
    ids: Ids,
}

impl Set {
    pub(super) fn new(vectors: VectorType, values: Vec<f64>, ids: Ids) -> Self {
        let bytes = |&value: &f64| match vectors.element {
            Element::U8 => vec![value as u8],
            Element::F32 => (value as f32).to_le_bytes().to_vec(),
            other => panic!("no set here is of {other}"),
        };
        let rows = (values.len() / vectors.dimensions) as u64;
        let info = SourceInfo { rows, vectors, ids: ids.kind(), rounded_from_f64: false };
        Self { info, stored: values.iter().flat_map(bytes).collect(), values, ids }
    }

    /// Samples rows from a few vectors, so that many rows are equal. Ids are consecutive numbers from `first_id`.
    pub(super) fn drawn(vectors: VectorType, rows: usize, first_id: i64, seed: u64) -> Self {
        // The seed of the vectors is fixed, so that sets with different seeds have equal vectors.
        let (mut few, mut random) = (Random::new(9, "vectors"), Random::new(seed, "rows"));
        let few: Vec<f64> = (0..250 * vectors.dimensions).map(|_| value(vectors, &mut few)).collect();
        let few: Vec<&[f64]> = few.chunks(vectors.dimensions).collect();
        let values = (0..rows).flat_map(|_| few[random.below(250) as usize].to_vec()).collect();
        Self::new(vectors, values, Ids::Int64((0..rows as i64).map(|row| first_id + 3 * row).collect()))
    }

    /// Creates random rows, of which hardly any two are equal.
    pub(super) fn spread(vectors: VectorType, rows: usize, seed: u64) -> Self {
        let mut random = Random::new(seed, "spread");
        Self::new(vectors, (0..rows * vectors.dimensions).map(|_| value(vectors, &mut random)).collect(), Ids::None)
    }

    /// Wraps stored vectors, without ids.
    pub(super) fn of_stored(vectors: VectorType, stored: Vec<u8>) -> Self {
        let info = SourceInfo {
            rows: (stored.len() / vectors.bytes()) as u64,
            vectors,
            ids: IdKind::None,
            rounded_from_f64: false,
        };
        Self { info, values: Vec::new(), stored, ids: Ids::None }
    }

    /// Returns its rows followed by the rows of another set.
    pub(super) fn and(self, other: Self) -> Self {
        Self::new(self.info.vectors, [self.values, other.values].concat(), Ids::None)
    }

    /// Returns the same floats, each increased by `by`.
    pub(super) fn moved(self, by: f64) -> Self {
        let ids = self.ids;
        Self::new(self.info.vectors, self.values.into_iter().map(|value| value + by).collect(), ids)
    }

    pub(super) fn with_ids(self, ids: Ids) -> Self {
        Self { info: SourceInfo { ids: ids.kind(), ..self.info }, ids, ..self }
    }

    pub(super) fn ids(&self) -> &Ids {
        &self.ids
    }

    fn rows(&self) -> usize {
        self.info.rows as usize
    }

    fn vector(&self, row: usize) -> &[f64] {
        &self.values[row * self.info.vectors.dimensions..][..self.info.vectors.dimensions]
    }

    pub(super) fn stored(&self, row: usize) -> &[u8] {
        &self.stored[row * self.info.vectors.bytes()..][..self.info.vectors.bytes()]
    }
}

fn value(vectors: VectorType, random: &mut Random) -> f64 {
    match vectors.element {
        // There are few values, so that many distances are equal and the order of ties matters.
        Element::U8 => random.below(9) as f64,
        _ => f64::from(random.below(2_000) as f32 / 1_000.0 - 1.0),
    }
}

impl VectorSource for Set {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, _batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        let (rows, bytes, ids) = (self.rows(), self.stored.clone(), self.ids.clone());
        Ok(Box::new(Once(Some(VectorBatch { first_row: 0, rows, bytes, faults: Vec::new(), ids }))))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        batch_bytes
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        (PathBuf::from("memory"), row)
    }
}

/// A scan of one batch.
struct Once(Option<VectorBatch>);

impl VectorScan for Once {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        Ok(self.0.take())
    }
}

/// Unmerged rows that are compared one by one.
struct Compared<'a>(&'a Set, Metric);

impl UnmergedRows for Compared<'_> {
    fn rows(&self) -> u64 {
        self.0.info.rows
    }

    fn finding_bytes(&self, _context: &Context) -> u64 {
        0
    }

    fn find(
        &self,
        _context: &Context,
        QueryVectors { vectors, stored }: QueryVectors<'_>,
        wanted: QueryTarget,
        first_row: u64,
    ) -> Result<Option<Vec<Vec<Hit>>>> {
        let Self(set, metric) = *self;
        let predicate = if let QueryTarget::Within(within) = wanted { within } else { Predicate::all(metric) };
        let found = |query: &[u8]| {
            let hit = |row: usize| {
                let value = predicate.decide(set.info.vectors, query, set.stored(row))?;
                // The nearness of an integer vector is its exact squared distance, as in the engine, so that ties are
                // equal.
                let exact = vectors.element.is_integer() && metric == Metric::L2;
                let nearness = if exact { squared(query, set.stored(row)) } else { predicate.nearness_of(value) };
                Some(Hit { nearness, row: first_row + row as u64, place: (row as u32, 0) })
            };
            let mut hits: Vec<Hit> = (0..set.rows()).filter_map(hit).collect();
            hits.sort_unstable();
            hits.truncate(wanted.hits_max());
            hits
        };
        Ok(Some(stored.chunks(vectors.bytes()).map(found).collect()))
    }

    fn append_id(&self, number: u32, ids: &mut Ids, room: &mut IdRoom<'_>) -> bool {
        ids.push_from(&self.0.ids, number as usize);
        room.take_id(self.0.ids.bytes_of(number as usize))
    }
}

fn squared(a: &[u8], b: &[u8]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a.abs_diff(b)).powi(2)).sum()
}

/// Computes the distance, similarity or inner product of two vectors by its formula.
fn value_of(metric: Metric, a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    match metric {
        Metric::L2 => a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt(),
        Metric::Cosine => dot(a, b) / (dot(a, a) * dot(b, b)).sqrt(),
        Metric::Ip => dot(a, b),
    }
}

/// An index and the set that it was built from.
pub(super) struct Indexed {
    folder: TempDir,
    set: Set,
    metric: Metric,
    pub(super) index: Index,
}

/// Expected hits of a query: rows and values.
type Hits = Vec<(u64, f32)>;

impl Indexed {
    pub(super) fn new(set: Set, metric: Metric) -> Self {
        Self::with_navigation(set, metric, None)
    }

    /// Builds an index with this number of sampled vertices in the navigation graph, if it is given.
    pub(super) fn with_navigation(set: Set, metric: Metric, navigation: Option<u32>) -> Self {
        let (context, folder) = (Context::default(), tempfile::tempdir().unwrap());
        let at = |name: &str| folder.path().join(name);
        let options = BuildOptions { metric, buckets: Some(9), ..BuildOptions::default() };
        Store::build(&context, &set, &at("store"), &options).unwrap();
        let store = Store::open(&context, &at("store")).unwrap();
        let (degree, code_bytes) = (Some(8), Some(8));
        let options = IndexOptions { degree, build_list: 24, code_bytes, navigation, ..IndexOptions::default() };
        Index::build(&context, &store, &at("index"), &options, false).unwrap();
        let index = Index::open(&context, &at("index")).unwrap();
        Self { folder, set, metric, index }
    }

    /// Returns a path in the folder of the index.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn rows_of_entries(&self) -> Vec<usize> {
        Self::rows_of(&self.index)
    }

    /// Returns the row of each entry, read from the pages and the file of duplicates only.
    pub(super) fn rows_of(index: &Index) -> Vec<usize> {
        let facts = index.facts();
        let shape = facts.shape();
        let pages: Vec<u32> = (0..shape.pages(facts.vertices) as u32).collect();
        let mut rows = Vec::new();
        for page in pages {
            let mut buffer = vec![0; shape.bytes()];
            let bytes = index.read_pages(page, &mut buffer).unwrap();
            let slots = 0..shape.vertices(page, facts.vertices).len();
            rows.extend(slots.map(|slot| super::page::Page::of_checked(shape, bytes).row(slot) as usize));
        }
        rows.extend(index.duplicates.rows().iter().map(|&row| row as usize));
        rows
    }

    /// Returns the entries of the rows for which `is_deleted` is true.
    fn deleted(&self, is_deleted: &dyn Fn(usize) -> bool) -> DeleteList {
        let entries = (0..).zip(self.rows_of_entries()).filter(|&(_, row)| is_deleted(row));
        DeleteList::of(&self.index, entries.map(|(entry, _)| entry))
    }

    /// Returns the expected hits of each query among remaining and additional rows.
    fn wanted(
        &self,
        queries: &Set,
        unmerged: &Set,
        is_deleted: &dyn Fn(usize) -> bool,
        wanted: QueryTarget,
    ) -> Vec<Hits> {
        let left = (0..self.set.rows()).filter(|&row| !is_deleted(row)).map(|row| (row as u64, self.set.vector(row)));
        let first = self.set.info.rows;
        let more = (0..unmerged.rows()).map(|row| (first + row as u64, unmerged.vector(row)));
        let all: Vec<(u64, &[f64])> = left.chain(more).collect();
        let of_query = |query: usize| {
            let value = |vector: &[f64]| value_of(self.metric, queries.vector(query), vector) as f32;
            let mut hits: Hits = all.iter().map(|&(row, vector)| (row, value(vector))).collect();
            // The nearest vector has the smallest distance, but the largest similarity.
            let sign = if self.metric == Metric::L2 { 1.0 } else { -1.0 };
            hits.sort_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)).then(a.0.cmp(&b.0)));
            match wanted {
                QueryTarget::Nearest(k) => hits.truncate(k as usize),
                QueryTarget::Within(Predicate::L2 { eps }) => hits.retain(|hit| f64::from(hit.1) <= eps),
                QueryTarget::Within(Predicate::Cosine { min_similarity }) => {
                    hits.retain(|hit| f64::from(hit.1) >= min_similarity);
                }
                QueryTarget::Within(Predicate::InnerProduct { .. }) => {
                    panic!("of inner products there are no thresholds")
                }
            }
            hits
        };
        (0..queries.rows()).map(of_query).collect()
    }

    fn search(
        &self,
        context: &Context,
        queries: &Set,
        unmerged: &Set,
        deleted: &DeleteList,
        SearchGoal { target, effort }: SearchGoal,
    ) -> Result<Found> {
        let sink = Collect::default();
        let options = SearchOptions::new(target, effort, 1);
        let changes = CollectionChanges { deleted, unmerged: &Compared(unmerged, self.metric), columns: None };
        let queries = QuerySources::new(queries);
        let statistics = search_changed(context, &self.index, queries, &options, &changes, Box::new(sink.clone()))?;
        assert_eq!(statistics.search.passing_rows, None, "nothing is asked of attributes");
        Ok(Found { statistics, hits: sink.hits(), batches: sink.batches() })
    }
}

struct Found {
    statistics: SearchStatistics,
    hits: Vec<Hits>,
    batches: Vec<HitBatch>,
}

impl Found {
    /// Checks that each hit has the id of its row.
    fn assert_ids(&self, set: &Set, unmerged: &Set) {
        for batch in &self.batches {
            let mut wanted = Ids::empty(set.ids.kind());
            for &row in &batch.rows {
                match row.checked_sub(set.info.rows) {
                    None => wanted.push_from(&set.ids, row as usize),
                    Some(number) => wanted.push_from(&unmerged.ids, number as usize),
                }
            }
            assert_eq!(batch.ids, wanted);
        }
    }
}

fn context_of(threads: usize) -> Context {
    let mut context = Context::default();
    context.threads = threads;
    context
}

fn u8s(dimensions: usize) -> VectorType {
    VectorType { element: Element::U8, dimensions }
}

/// A case of deletes, with its name.
type Deletes<'a> = (&'static str, &'a dyn Fn(usize) -> bool);

#[test]
fn searches_equal_brute_force_with_deleted_and_additional_rows() {
    let f32s = VectorType { element: Element::F32, dimensions: 5 };
    let within = [
        Some(QueryTarget::Within(Predicate::L2 { eps: 5.0 })),
        Some(QueryTarget::Within(Predicate::Cosine { min_similarity: 0.4 })),
        None,
    ];
    let cases = [(u8s(4), Metric::L2), (f32s, Metric::Cosine), (f32s, Metric::Ip)];
    for ((vectors, metric), within) in cases.into_iter().zip(within) {
        let indexed = Indexed::new(Set::drawn(vectors, 600, 1, 1), metric);
        // If no vertex had several rows, the deletes below would test nothing.
        assert!(indexed.index.facts().vertices < 250 && indexed.index.duplicates.len() > 350);
        let queries = Set::drawn(vectors, 17, 0, 2);
        let additions = [0, 3, 400].map(|rows| Set::drawn(vectors, rows, 1_000_000, 3));
        let same = |row: usize, other: usize| indexed.set.vector(row) == indexed.set.vector(other);
        let deletes: [Deletes<'_>; 6] = [
            ("none", &|_| false),
            ("a third", &|row| row % 3 == 0),
            ("the first of each vertex, of a few all", &|row| {
                row < 5 || (0..row).all(|before| !same(row, before)) || same(row, 5)
            }),
            ("all but one of each vertex", &|row| (row + 1..600).any(|after| same(row, after))),
            ("all but a few", &|row| row % 150 != 7),
            ("all", &|_| true),
        ];
        for (name, is_deleted) in deletes {
            let deleted = &indexed.deleted(is_deleted);
            for unmerged in &additions {
                for wanted in [1, 10, 2_000].map(QueryTarget::Nearest).into_iter().chain(within) {
                    let what = format!("{metric}, {name} deleted, {} unmerged, {wanted:?}", unmerged.rows());
                    let right = indexed.wanted(&queries, unmerged, is_deleted, wanted);
                    // A list as long as the index and a recall of 1 must both find every hit.
                    for (threads, effort) in [(1, SearchEffort::List(600)), (3, SearchEffort::Recall(1.0))] {
                        let goal = SearchGoal { target: wanted, effort };
                        let found = indexed.search(&context_of(threads), &queries, unmerged, deleted, goal).unwrap();
                        assert_eq!(found.hits, right, "{what}, {effort:?}");
                        found.assert_ids(&indexed.set, unmerged);
                    }
                }
            }
        }
    }
}

/// Returns the fraction of the expected hits that were found.
fn recall(found: &[Hits], right: &[Hits]) -> f64 {
    let of = |(found, right): (&Hits, &Hits)| right.iter().filter(|hit| found.contains(hit)).count();
    found.iter().zip(right).map(of).sum::<usize>() as f64 / right.iter().map(Vec::len).sum::<usize>() as f64
}

#[test]
fn the_calibrated_recall_holds_after_deletes() {
    let vectors = VectorType { element: Element::F32, dimensions: 8 };
    let indexed = Indexed::new(Set::spread(vectors, 6_000, 1), Metric::L2);
    let (queries, one) = (Set::spread(vectors, 200, 2), Set::spread(vectors, 1, 4));
    let none = Set::spread(vectors, 0, 3);
    let asked = SearchGoal { target: QueryTarget::Nearest(10), effort: SearchEffort::Recall(0.9) };
    let mut lists = Vec::new();
    for share in [0.0, 0.1, 0.5, 0.8] {
        let mut random = Random::new(5, "deletes");
        let gone: Vec<bool> = (0..6_000).map(|_| random.below(1_000) < (share * 1e3) as u64).collect();
        // This deletes half of the rows, by location.
        let is_deleted =
            |row: usize| gone[row] && (row.is_multiple_of(2) || share < 0.4 || indexed.set.vector(row)[0] > -0.5);
        let deleted = &indexed.deleted(&is_deleted);
        for queries in [&queries, &one] {
            let right = indexed.wanted(queries, &none, &is_deleted, asked.target);
            let found = indexed.search(&context_of(1), queries, &none, deleted, asked).unwrap();
            let reached = recall(&found.hits, &right);
            // A single query has only ten hits, so its recall varies more.
            assert!(reached >= if queries.rows() == 1 { 0.6 } else { 0.9 }, "{share}: {reached}");
            let common = &found.statistics.common;
            assert_eq!((common.strategy.probes, common.seconds.calibrate), (Some("walk"), None), "{share} deleted");
            assert!(found.hits.concat().iter().all(|&(row, _)| !is_deleted(row as usize)), "{share}");
            lists.push(common.strategy.t);
            let again = indexed.search(&context_of(3), queries, &none, deleted, asked).unwrap();
            assert_eq!(again.hits, found.hits, "{share} on three threads");
            let effort = SearchEffort::List(common.strategy.t.unwrap() as usize);
            let same = SearchGoal { target: QueryTarget::Nearest(10), effort };
            let by_list = indexed.search(&context_of(2), queries, &none, deleted, same).unwrap();
            assert_eq!(by_list.hits, found.hits, "{share} by a list of that length");
        }
    }
    // After many deletes, the remaining rows decide, which may need longer lists.
    assert!(lists.is_sorted() && lists[..4].iter().all(|list| *list == lists[0]), "{lists:?}");
    assert!(lists[0].unwrap() < 200.0, "walks end early");
    // With more hits than the calibration covers, comparing one query costs less than calibrating a list.
    let is_deleted = |row: usize| row % 3 == 1;
    let many = SearchGoal { target: QueryTarget::Nearest(150), ..asked };
    let deleted = &indexed.deleted(&is_deleted);
    let found = indexed.search(&context_of(2), &one, &none, deleted, many).unwrap();
    assert_eq!(found.statistics.common.strategy.probes, Some("whole"));
    assert_eq!(found.hits, indexed.wanted(&one, &none, &is_deleted, many.target));
    let is_deleted = |row: usize| row % 20 != 3;
    let deleted = &indexed.deleted(&is_deleted);
    let found = indexed.search(&context_of(1), &queries, &none, deleted, asked).unwrap();
    assert_eq!(found.statistics.common.strategy.probes, Some("whole"), "few are left");
    assert_eq!(found.hits, indexed.wanted(&queries, &none, &is_deleted, asked.target));
}

#[test]
fn the_suggested_least_memory_finds_the_same_hits() {
    let indexed = Indexed::new(Set::drawn(u8s(4), 3_000, 1, 1), Metric::L2);
    let (queries, unmerged) = (Set::drawn(u8s(4), 300, 0, 2), Set::drawn(u8s(4), 900, 1_000_000, 3));
    let deleted = &indexed.deleted(&|row| row % 5 == 2);
    for wanted in [QueryTarget::Nearest(2_000), QueryTarget::Within(Predicate::L2 { eps: 4.0 })] {
        for effort in [SearchEffort::List(40), SearchEffort::Recall(0.9)] {
            let goal = SearchGoal { target: wanted, effort };
            let search = |context: &Context| indexed.search(context, &queries, &unmerged, deleted, goal);
            let all = search(&context_of(2)).unwrap();
            // The message must name a budget that suffices for all later steps too.
            let refused = search(&context_of(2).with_memory(18_500_000)).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::Budget);
            let said = refused.to_string();
            let least = said.split_once("give memory ").and_then(|(_, rest)| rest.split_once("MB")).unwrap().0;
            let context = context_of(2).with_memory(least.parse::<u64>().unwrap() * 1_000_000);
            let found = search(&context).unwrap_or_else(|error| panic!("{least}: {error}"));
            assert_eq!(found.hits, all.hits, "{wanted:?} {effort:?} with {least} MB");
        }
    }
}

#[test]
fn a_condition_on_an_index_without_columns_is_refused() {
    let indexed = Indexed::new(Set::drawn(u8s(4), 20, 1, 1), Metric::L2);
    let mut options = SearchOptions::new(QueryTarget::Nearest(1), SearchEffort::default(), 1);
    options.filter = Some(Condition::parse("year > 2000").unwrap());
    let (queries, deleted) = (Set::drawn(u8s(4), 1, 0, 2), DeleteList::new(20));
    let changes = CollectionChanges { deleted: &deleted, unmerged: &Compared(&queries, Metric::L2), columns: None };
    let sink = Box::new(Collect::default());
    let sources = QuerySources::new(&queries);
    let refused = search_changed(&Context::default(), &indexed.index, sources, &options, &changes, sink).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Input);
    assert!(refused.to_string().contains("no columns"), "{refused}");
    assert_eq!(hit_schema(indexed.index.facts(), &queries).ids, IdKind::Int64);
}

/// Returns a text for each row, some of them empty or long.
fn texts(rows: usize) -> Ids {
    let mut ids = TextIds::default();
    (0..rows).for_each(|row| ids.push(format!("{row}-{}", "ä".repeat(row * row % 97)).as_bytes()));
    Ids::Utf8(ids)
}

#[test]
fn index_rows_return_built_rows_and_ids_without_deleted_ones() {
    let rows = 1_300;
    for (kind, values) in [(IdKind::None, 4), (IdKind::Int64, 6), (IdKind::Utf8, 2)] {
        let mut set = Set::drawn(u8s(values), rows, -5, 1);
        match kind {
            IdKind::None => set.ids = Ids::None,
            IdKind::Int64 => {}
            IdKind::Utf8 => set.ids = texts(rows),
        }
        set.info.ids = kind;
        let indexed = Indexed::new(set, Metric::L2);
        let entries = indexed.rows_of_entries();
        assert_ids_in_order(&indexed, &entries);
        let deletes: [&dyn Fn(usize) -> bool; 4] = [&|_| false, &|row| row % 3 != 1, &|row| row != 700, &|_| true];
        for is_deleted in deletes {
            let deleted = indexed.deleted(is_deleted);
            let source = IndexRows::new(&indexed.index, (deleted.len() > 0).then_some(&deleted));
            let right: Vec<usize> = entries.iter().copied().filter(|&row| !is_deleted(row)).collect();
            let wanted = set_of(&indexed.set, &right);
            assert_eq!(source.info(), wanted.info());
            for batch_bytes in [0, 1, 100, 5_000, 1 << 20, usize::MAX] {
                let found = read_all(&source, batch_bytes);
                assert_eq!((found.bytes, found.ids), (wanted.stored.clone(), wanted.ids.clone()), "{kind:?}");
            }
            assert_eq!(source.locate(7), (indexed.folder.path().join("index"), 7));
        }
    }
}

fn set_of(set: &Set, rows: &[usize]) -> Set {
    let mut ids = Ids::empty(set.ids.kind());
    if set.ids.kind() != IdKind::None {
        rows.iter().for_each(|&row| ids.push_from(&set.ids, row));
    }
    Set::new(set.info.vectors, rows.iter().flat_map(|&row| set.vector(row).to_vec()).collect(), ids)
}

fn assert_ids_in_order(indexed: &Indexed, entries: &[usize]) {
    let mut given = Vec::new();
    let take = &mut |entry: u32, id: &[u8]| {
        assert_eq!(entry as usize, given.len());
        given.push(id.to_vec());
        Ok(())
    };
    indexed.index.each_id(&Context::default(), take).unwrap();
    let id = |&row: &usize| {
        let mut id = Vec::new();
        indexed.set.ids.append_bytes_of(row, &mut id);
        id
    };
    let all = if indexed.set.ids.kind() == IdKind::None { &[] } else { entries };
    assert_eq!(given, all.iter().map(id).collect::<Vec<_>>());
}

/// Reads all batches into one.
fn read_all(source: &dyn VectorSource, batch_bytes: usize) -> VectorBatch {
    let info = source.info();
    let ids = Ids::empty(info.ids);
    let mut all = VectorBatch { first_row: 0, rows: 0, bytes: Vec::new(), faults: Vec::new(), ids };
    let mut scan = source.scan(batch_bytes).unwrap();
    while let Some(batch) = scan.next_batch().unwrap() {
        assert_eq!((batch.first_row, batch.bytes.len()), (all.rows as u64, batch.rows * info.vectors.bytes()));
        // A batch has at least one row, even if this row is larger than a batch should be.
        assert!(batch.rows == 1 || batch.bytes.len() <= batch_bytes);
        all.bytes.extend(&batch.bytes);
        (0..batch.ids.len()).for_each(|k| all.ids.push_from(&batch.ids, k));
        all.rows += batch.rows;
    }
    assert_eq!((all.rows as u64, scan.next_batch().unwrap()), (info.rows, None));
    all
}

#[test]
fn reading_rows_of_a_damaged_page_fails() {
    let indexed = Indexed::new(Set::drawn(u8s(4), 900, 1, 1), Metric::L2);
    let all = indexed.deleted(&|_| true);
    let pages = indexed.folder.path().join("index").join(&indexed.index.facts().files[store::Role::Pages].name);
    flip(&pages, 10);
    let mut scan = IndexRows::new(&indexed.index, None);
    let error = scan.scan(1_000).unwrap().next_batch().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("page 0: checksum mismatch"), "{error}");
    scan = IndexRows::new(&indexed.index, Some(&all));
    assert_eq!(scan.scan(1_000).unwrap().next_batch().unwrap(), None, "no page is read of which nothing is left");
}

/// Changes a byte of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}
