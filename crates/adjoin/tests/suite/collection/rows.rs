//! Writes, searches and merges of a collection on a device without faults.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use adjoin::{
    Collect, Collection, Durability, Element, ErrorKind, IdKind, Ids, Metric, Predicate, QueryTarget, Random,
    SearchEffort, SearchOptions, VectorType, Write,
    device::Device,
    lab::{collection::Put, query::QuerySources},
};

use super::carried::Carried;
use super::history::{History, Shared, User};
use super::{LIVE, Model, Step, VECTORS, content, context_on, create, device, options, options_of_steps, set};
use crate::datasets::{Shape, make};
use crate::harness::{Set, Setup, error_of};
use crate::oracle::floats;

/// Number of writes per thread in tests with concurrent writers.
const WRITES_AT_ONCE: usize = 250;

#[test]
fn writes_are_visible_immediately_and_after_reopening() {
    let device = device();
    let context = &context_on(&device);
    let (mut model, mut random) = (Model::new(), Random::new(3, "writes"));
    let mut sequence = 0;
    for round in 0..30 {
        let collection = Collection::open(context, Path::new(LIVE)).unwrap();
        assert_eq!(content(context, &collection).unwrap(), model, "round {round}");
        for _ in 0..20 {
            let step = Step::draw(&mut random, &model);
            let before = model.clone();
            step.apply(&mut model);
            let written = step.write(&collection, Durability::Buffered).unwrap();
            assert!(written.sequence >= sequence);
            sequence = written.sequence;
            let came = (step.insert.len() + step.upsert.len()) as u64;
            assert_eq!(written.rows, came);
            assert_eq!(before.len() as u64 + came - written.deleted, model.len() as u64, "{step:?}");
            let missing = step.delete.iter().filter(|id| !before.contains_key(id)).count() as u64;
            assert_eq!(written.missing, missing);
            assert_eq!(content(context, &collection).unwrap(), model, "round {round}");
        }
        if round % 3 == 2 {
            let merged = collection.merge(context).unwrap();
            let facts = collection.facts();
            assert_eq!((merged.rows, facts.rows, facts.unmerged, facts.deleted), (facts.rows, facts.rows, 0, 0));
            assert_eq!(content(context, &collection).unwrap(), model, "round {round}");
            assert!(Collection::verify(context, Path::new(LIVE)).unwrap().is_sound());
        }
        // In every other round, the collection is dropped without closing it.
        if round % 2 == 0 {
            collection.close().unwrap();
        }
    }
    let names = device.list(Path::new(LIVE)).unwrap();
    let starts = ["index-", "log-", "manifest.json", "places-"];
    let is_of = |(name, start): (&std::ffi::OsString, &&str)| name.to_str().unwrap().starts_with(start);
    assert!(names.len() == 4 && names.iter().zip(&starts).all(is_of), "small files of the log become one: {names:?}");
}

#[test]
fn readers_open_a_collection_while_one_writer_writes() {
    let device = device();
    let context = &context_on(&device);
    let writer = Collection::open(context, Path::new(LIVE)).unwrap();
    let of = |id: i64| Model::from([(id, [id as u8; 3])]);
    writer.load(&set(&of(1)), Put::Insert, Durability::Group).unwrap();
    let reader = Collection::open_read_only(context, Path::new(LIVE)).unwrap();
    let refused = error_of(Collection::open(context, Path::new(LIVE))).to_string();
    assert!(refused.contains("data/live is being written by"), "{refused}");
    writer.load(&set(&of(2)), Put::Insert, Durability::Group).unwrap();
    assert_eq!(content(context, &reader).unwrap(), of(1));
    assert_eq!(content(context, &writer).unwrap().len(), 2);
    let refused = error_of(reader.load(&set(&of(3)), Put::Insert, Durability::Group)).to_string();
    assert!(refused.contains("opened read-only"), "{refused}");
}

#[test]
fn invalid_writes_are_refused_and_write_nothing() {
    let device = device();
    let context = &context_on(&device);
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    let there = Model::from([(5, [5; 3])]);
    collection.load(&set(&there), Put::Insert, Durability::Group).unwrap();
    let twice = Carried::of(Set::of_stored(VECTORS, vec![1; 6]).with_ids(&[8, 8]));
    let other = Carried::of(Set::of(Element::U8, 4, &[1.0; 4]).with_ids(&[8]));
    let floats = Carried::of(Set::of(Element::F32, 3, &[1.0; 3]).with_ids(&[8]));
    let texts = Carried::of(Set::of_stored(VECTORS, vec![1; 3]).with_text_ids(&["8".into()]));
    let both = Carried::of(Set::of_stored(VECTORS, vec![1; 6]).with_ids(&[6, 5]));
    let named = Ids::empty(IdKind::Utf8);
    for (insert, delete, words) in [
        (&twice, None, "set.in.memory: the id 8 of row 1 occurs twice in one write; give it once (data/live)"),
        (
            &other,
            None,
            "set.in.memory has vectors of 4 x u8, but data/live stores 3 x u8; give vectors of the same model",
        ),
        (&floats, None, "vectors of 3 x f32, but data/live stores 3 x u8; convert the vectors to u8, or create"),
        (&texts, None, "the ids are texts, but those of data/live are integers"),
        (&both, Some(&named), "the ids are texts"),
        (&both, None, "the id 5 of row 1 already exists; upsert the row to replace it"),
    ] {
        let write = Write { insert: Some(insert), delete, upsert: None };
        let refused = error_of(collection.write(&write, Durability::Group));
        assert!(refused.kind() == ErrorKind::Input && refused.to_string().contains(words), "{refused}");
        assert_eq!(content(context, &collection).unwrap(), there);
    }
    // Rows that a write deletes do not conflict with the rows that it inserts.
    let gone = Ids::Int64(vec![5, 77]);
    let write = Write { insert: Some(&both), delete: Some(&gone), upsert: None };
    let written = collection.write(&write, Durability::Group).unwrap();
    assert_eq!((written.rows, written.deleted, written.missing), (2, 1, 1));
    for (wrong, words) in [
        (options(VECTORS, Metric::L2, IdKind::None), "need ids; give int64 or text"),
        (options(VectorType { dimensions: 0, ..VECTORS }, Metric::L2, IdKind::Int64), "0 dimensions"),
    ] {
        let refused = error_of(Collection::create(context, Path::new("data/new"), &wrong)).to_string();
        assert!(refused.contains(words), "{refused}");
    }
    let refused = error_of(create(context)).to_string();
    assert!(refused.contains("data/live is already a collection"), "{refused}");
}

/// Checks that rows are refused if they contain NaN, or if they are zero and the metric is cosine. The message has
/// the row number.
#[test]
fn refuses_nan_and_zero_vectors_with_their_row() {
    let context = Setup::default().context();
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let vectors = VectorType { element: Element::F32, dimensions: 2 };
    let options = options(vectors, Metric::Cosine, IdKind::Int64);
    Collection::create(&context, &live, &options).unwrap();
    let collection = Collection::open(&context, &live).unwrap();
    for (bad, words) in [(f64::NAN, "has NaN at element 0"), (0.0, "is all zeros, so its cosine is undefined")] {
        let set = Set::of(Element::F32, 2, &[1.0, 1.0, bad, 0.0]);
        let refused = error_of(collection.load(&set, Put::Insert, Durability::Group)).to_string();
        assert!(refused.contains("set.in.memory: the vector of row 1") && refused.contains(words), "{refused}");
    }
    assert_eq!(collection.facts().rows, 0);
}

/// A collection with its vectors, to compare searches with exact results.
struct Exact {
    all: Set,
    metric: Metric,
    values: Vec<f64>,
    collection: Collection,
}

impl Exact {
    const ROWS: usize = 3_000;
    const DIMENSIONS: usize = 97;

    /// Creates a collection and deletes a third of its rows.
    fn new(live: &Path, element: Element, metric: Metric, shape: Shape) -> Self {
        let mut all = make(shape, element, Self::ROWS, Self::DIMENSIONS, 5);
        if metric == Metric::Ip && element == Element::F32 {
            all = longer_and_longer(&all);
        }
        let context = Setup::default().context();
        Collection::create(&context, live, &options(all.vectors(), metric, IdKind::Int64)).unwrap();
        let collection = Collection::open(&context, live).unwrap();
        collection.load(&all, Put::Insert, Durability::Buffered).unwrap();
        let gone: Vec<i64> = (0..Self::ROWS as i64).filter(|id| id % 3 == 1).collect();
        collection.write(&Write { delete: Some(&Ids::Int64(gone)), ..Write::default() }, Durability::Group).unwrap();
        let values = match element {
            Element::U8 => all.stored().iter().map(|&x| x.into()).collect(),
            Element::I8 => all.stored().iter().map(|&x| x.cast_signed().into()).collect(),
            _ => floats(element, all.stored()),
        };
        Self { all, metric, values, collection }
    }

    fn vector(&self, row: usize) -> &[f64] {
        &self.values[row * Self::DIMENSIONS..][..Self::DIMENSIONS]
    }

    fn some(&self, rows: std::ops::Range<usize>) -> Set {
        let bytes = self.all.vectors().bytes();
        Set::of_stored(self.all.vectors(), self.all.stored()[rows.start * bytes..rows.end * bytes].to_vec())
    }

    /// Deletes two rows and inserts a deleted row again.
    fn change(&self) {
        let back = self.some(1..2).with_ids(&[1]);
        let delete = Ids::Int64(vec![0, 3]);
        let write = Write { delete: Some(&delete), insert: Some(&back), upsert: None };
        self.collection.write(&write, Durability::Group).unwrap();
    }

    /// Returns the distances or similarities of a query to the rows for which `is_there` returns true, nearest first.
    fn true_values(&self, query: usize, is_there: impl Fn(usize) -> bool) -> Vec<f64> {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        let x = self.vector(query);
        let value = |y: &[f64]| match self.metric {
            Metric::Cosine => -dot(x, y) / (dot(x, x) * dot(y, y)).sqrt(),
            Metric::Ip => -dot(x, y),
            Metric::L2 => x.iter().zip(y).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt(),
        };
        let rows = (0..Self::ROWS).filter(|&row| is_there(row));
        let mut all: Vec<f64> = rows.map(|row| value(self.vector(row))).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn check(&self, target: QueryTarget, threads: usize, is_there: impl Fn(usize) -> bool) {
        let context = Setup { threads, ..Setup::default() }.context();
        // If the list has room for all rows, the search is exhaustive.
        let (hits, effort) = (Collect::default(), SearchEffort::List(Self::ROWS));
        let options = SearchOptions::new(target, effort, 1);
        self.collection
            .search(&context, QuerySources::new(&self.some(0..20)), &options, Box::new(hits.clone()))
            .unwrap();
        for (query, found) in hits.hits().into_iter().enumerate() {
            let all = self.true_values(query, &is_there);
            let near = match target {
                QueryTarget::Nearest(k) => k as usize,
                QueryTarget::Within(predicate) => {
                    let most = if let Predicate::L2 { eps } = predicate { eps } else { -0.5 };
                    all.iter().filter(|&&far| far <= most + 1e-9 * most.abs()).count()
                }
            };
            assert_eq!(found.len(), near, "query {query}");
            for ((_, shown), target) in found.into_iter().zip(all) {
                let shown = if self.metric == Metric::L2 { shown.into() } else { -f64::from(shown) };
                assert!((shown - target).abs() < 1e-4 * (1.0 + target.abs()), "query {query}: {shown}, {target}");
            }
        }
    }
}

/// Scales vectors so that each is longer than the vectors before it, the last some 150 times as long as the first.
fn longer_and_longer(set: &Set) -> Set {
    let (dimensions, values) = (set.vectors().dimensions, floats(Element::F32, set.stored()));
    let scaled = (0..).zip(&values).map(|(k, value)| value * ((k / dimensions) as f64 / 600.0).exp());
    Set::of(Element::F32, dimensions, &scaled.collect::<Vec<_>>())
}

/// Compares hits with distances and inner products in f64, for several element types and metrics and many blocks of
/// rows. The rows are in memory, then on disk, and then some of them are changed in memory.
#[test]
fn hits_equal_an_exact_scan() {
    for (element, metric, shape) in [
        (Element::U8, Metric::L2, Shape::Clustered),
        (Element::I8, Metric::Cosine, Shape::Uniform),
        (Element::F16, Metric::L2, Shape::Uniform),
        (Element::F32, Metric::Cosine, Shape::Clustered),
        (Element::I8, Metric::Ip, Shape::Uniform),
        (Element::F32, Metric::Ip, Shape::Clustered),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let exact = Exact::new(&folder.path().join("live"), element, metric, shape);
        let two_of_three = |row: usize| row % 3 != 1;
        let changed = |row: usize| row == 1 || two_of_three(row) && ![0, 3].contains(&row);
        let within = within(metric, &exact.values, Exact::DIMENSIONS).map(QueryTarget::Within);
        let targets: Vec<QueryTarget> = std::iter::once(QueryTarget::Nearest(10)).chain(within).collect();
        for threads in [1, 3] {
            targets.iter().for_each(|&wanted| exact.check(wanted, threads, two_of_three));
        }
        exact.collection.merge(&Setup::default().context()).unwrap();
        for threads in [1, 3] {
            targets.iter().for_each(|&wanted| exact.check(wanted, threads, two_of_three));
        }
        exact.change();
        targets.iter().for_each(|&wanted| exact.check(wanted, 2, changed));
    }
}

/// Returns a threshold within which queries have some hits. Inner products have none.
fn within(metric: Metric, values: &[f64], dimensions: usize) -> Option<Predicate> {
    match metric {
        Metric::Cosine => Some(Predicate::cosine(0.5).unwrap()),
        Metric::Ip => None,
        Metric::L2 => {
            let (a, b) = (&values[..dimensions], &values[3 * dimensions..4 * dimensions]);
            Some(Predicate::l2(a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt()).unwrap())
        }
    }
}

/// Checks one call that inserts more rows than fit in memory.
#[test]
fn inserts_larger_than_memory_are_merged_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let context = Setup { memory: 204 << 20, ..Setup::default() }.context();
    let rows = make(Shape::Clustered, Element::F32, 90_000, 128, 6).in_batches_of(1_000);
    let mut cheap = options(rows.vectors(), Metric::L2, IdKind::Int64);
    (cheap.index.degree, cheap.index.build_list) = (Some(8), 16);
    Collection::create(&context, &live, &cheap).unwrap();
    let collection = Collection::open(&context, &live).unwrap();
    assert_eq!(collection.load(&rows, Put::Insert, Durability::Buffered).unwrap().rows, 90_000);
    let facts = collection.facts();
    assert!(facts.rows == 90_000 && facts.unmerged < 45_000, "{facts:?}");
    let bytes = rows.vectors().bytes();
    // A budget that is too small for a merge may still suffice for the rows in memory.
    let context = Setup { memory: 100 << 20, ..Setup::default() }.context();
    let (other, rows_of_other) = (folder.path().join("other"), make(Shape::Uniform, Element::F32, 12_000, 384, 6));
    Collection::create(&context, &other, &options(rows_of_other.vectors(), Metric::L2, IdKind::Int64)).unwrap();
    let other = Collection::open(&context, &other).unwrap();
    other.load(&rows_of_other.in_batches_of(500), Put::Insert, Durability::Buffered).unwrap();
    assert_eq!((other.facts().rows, other.facts().unmerged), (12_000, 12_000));
    for id in [0, 49_999, 89_999] {
        let vector = rows.stored()[id * bytes..][..bytes].to_vec();
        assert_eq!(collection.get(&Ids::Int64(vec![id as i64])).unwrap(), [Some(vector)]);
    }
}

/// Checks that concurrent writes, searches, lookups, opens and merges are linearizable: the order of the write
/// numbers explains all results.
#[test]
fn concurrent_operations_are_linearizable() {
    let folder = tempfile::tempdir().unwrap();
    let live = &folder.path().join("live");
    let context = || Setup::default().context();
    Collection::create(&context(), live, &options_of_steps()).unwrap();
    let shared = &Shared::new(Collection::open(&context(), live).unwrap());
    let (user, ended) = (|name| User::new(shared, context(), Random::new(9, name)), &AtomicBool::new(false));
    let history = std::thread::scope(|scope| {
        let until_the_end = |name, work: fn(&mut User, &Path)| {
            let mut user = user(name);
            scope.spawn(move || {
                while !ended.load(Ordering::Acquire) {
                    work(&mut user, live);
                }
                work(&mut user, live);
                user.done()
            })
        };
        let others = [
            until_the_end("search", |user, _| user.search()),
            until_the_end("other search", |user, _| user.search()),
            until_the_end("get", |user, _| user.get()),
            until_the_end("open", User::open),
            until_the_end("merge", |user, _| user.merge()),
            until_the_end("flush", |user, _| user.flush()),
        ];
        let writers = ["first", "second", "third"].map(|name| {
            let mut user = user(name);
            scope.spawn(move || {
                (0..WRITES_AT_ONCE).for_each(|_| user.write());
                user.done()
            })
        });
        // `ended` is set even if a writer failed, so that the other threads end.
        let of_writers = writers.map(|writer| writer.join());
        ended.store(true, Ordering::Release);
        History::of_all(of_writers.into_iter().chain(others.map(|other| other.join())).map(|history| history.unwrap()))
    });
    history.check().unwrap();
    let states = history.states().unwrap();
    assert!(states.len() > WRITES_AT_ONCE, "{}", states.len());
    let (facts, syncs) = (shared.collection.facts(), shared.collection.syncs());
    assert_eq!((facts.sequence, facts.unmerged, facts.deleted), (states.len() as u64 - 1, 0, 0), "{syncs} syncs");
    let reader = Collection::open_read_only(&context(), live).unwrap();
    assert_eq!(content(&context(), &reader).unwrap(), states[states.len() - 1]);
    assert!(Collection::verify(&context(), live).unwrap().is_sound());
}

#[test]
fn text_ids_name_rows() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let context = Setup::default().context();
    let options = options(VECTORS, Metric::L2, IdKind::Utf8);
    Collection::create(&context, &live, &options).unwrap();
    let rows = |ids: &[&str]| {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        Set::of_stored(VECTORS, (0..3 * ids.len()).map(|k| k as u8).collect()).with_text_ids(&ids)
    };
    let collection = Collection::open(&context, &live).unwrap();
    collection.load(&rows(&["", "ä", "long name of a row"]), Put::Insert, Durability::Group).unwrap();
    collection.load(&rows(&["ä"]), Put::Upsert, Durability::Group).unwrap();
    drop(collection);
    let collection = Collection::open(&context, &live).unwrap();
    let got = collection.get(&["ä", "long name of a row", "b"].into_iter().collect()).unwrap();
    assert_eq!(got, [Some(vec![0, 1, 2]), Some(vec![6, 7, 8]), None]);
    let (hits, options) = (Collect::default(), SearchOptions::new(QueryTarget::Nearest(2), SearchEffort::default(), 1));
    collection.search(&context, QuerySources::new(&rows(&["query"])), &options, Box::new(hits.clone())).unwrap();
    let Ids::Utf8(found) = &hits.batches()[0].ids else { panic!("ids are texts") };
    // Both rows equal the query, so the row that was inserted first is first.
    assert_eq!((found.get(0), found.get(1)), (&b""[..], "ä".as_bytes()));
    let none = error_of(collection.load(&Set::of_stored(VECTORS, vec![1; 3]), Put::Insert, Durability::Group));
    assert!(none.to_string().contains("set.in.memory has no ids, but the rows of"), "{none}");
}
