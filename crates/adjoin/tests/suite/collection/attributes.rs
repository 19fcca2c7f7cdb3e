//! Rows with columns. Filtered searches and deletes are compared with plain loops, and invalid columns are refused.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use adjoin::{
    Attribute, Collect, Collection, CollectionOptions, Condition, Context, Durability, Element, ErrorKind, HitBatch,
    IdKind, Ids, Metric, Predicate, QueryTarget, Random, SearchEffort, SearchOptions, VectorType, Write,
    lab::{
        collection::{MergeMethod, Put},
        query::QuerySources,
    },
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Date64Array, Float64Array, Int32Array, Int64Array, NullArray,
    StringArray,
};

use super::carried::Carried;
use super::{LIVE, Model, VECTORS, content, context_on, device, options, set};
use crate::datasets::{Shape, make};
use crate::harness::{Set, Setup, error_of};
use crate::oracle::floats;

const DIMENSIONS: usize = 4;
const TYPE: VectorType = VectorType { element: Element::U8, dimensions: DIMENSIONS };
const ATTRIBUTES: [&str; 4] = ["lang:text", "year:int64", "pick:int64", "day:date"];

/// The vector and the columns of a row.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    vector: [u8; DIMENSIONS],
    lang: Option<&'static str>,
    year: Option<i32>,
    /// Random number from 0 to 999.
    pick: i64,
    day: i32,
}

type Rows = BTreeMap<i64, Row>;
type Passes = fn(&Row) -> bool;

/// A filter as SQL and as a plain function.
#[derive(Clone, Copy)]
struct Case {
    condition: &'static str,
    passes: Passes,
}

const fn case(condition: &'static str, passes: Passes) -> Case {
    Case { condition, passes }
}

/// Filters that few, many, no or all rows pass. Some are correlated with the vector.
const CASES: [Case; 9] = [
    case("pick < 0", |_| false),
    case("pick < 5", |row| row.pick < 5),
    case("pick < 100", |row| row.pick < 100),
    case("pick % 2 = 0", |row| row.pick % 2 == 0),
    case("pick >= 0", |_| true),
    case("lang = 'en' and year >= 2020", |row| row.lang == Some("en") && row.year.is_some_and(|year| year >= 2020)),
    case("lang is null or year is null", |row| row.lang.is_none() || row.year.is_none()),
    case("day < '1970-02-01'", |row| row.day < 31),
    case("1000 / (pick + 1) > 10", |row| 1000 / (row.pick + 1) > 10),
];

impl Row {
    /// Returns a random row. There are few distinct vectors, so rows with equal vectors are frequent.
    fn draw(random: &mut Random) -> Self {
        let vector = [(); DIMENSIONS].map(|()| random.below(12) as u8);
        let lang = [Some("en"), Some("de"), None][random.below(3) as usize];
        let year = (random.below(8) > 0).then(|| 2015 + random.below(10) as i32);
        Self { vector, lang, year, pick: random.below(1_000) as i64, day: 10 * i32::from(vector[0]) }
    }

    fn squared(&self, other: &[u8]) -> f64 {
        self.vector.iter().zip(other).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)).sum()
    }
}

/// Returns rows as a source with other column types than the collection has.
fn source(rows: &Rows) -> Carried {
    let ids: Vec<i64> = rows.keys().copied().collect();
    let stored = rows.values().flat_map(|row| row.vector).collect();
    let days = rows.values().map(|row| Some(i64::from(row.day) * 86_400_000));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("day", Arc::new(days.collect::<Date64Array>())),
        ("lang", Arc::new(rows.values().map(|row| row.lang).collect::<StringArray>())),
        ("year", Arc::new(rows.values().map(|row| row.year).collect::<Int32Array>())),
        ("pick", Arc::new(rows.values().map(|row| Some(row.pick as f64)).collect::<Float64Array>())),
    ];
    Carried::new(Set::of_stored(TYPE, stored).with_ids(&ids), columns)
}

fn some(random: &mut Random, ids: impl Iterator<Item = i64>) -> Rows {
    ids.map(|id| (id, Row::draw(random))).collect()
}

fn create(live: &Path, context: &Context) -> Collection {
    let attributes = ATTRIBUTES.map(|text| text.parse::<Attribute>().unwrap()).to_vec();
    let options = CollectionOptions { attributes, ..options(TYPE, Metric::L2, IdKind::Int64) };
    Collection::create(context, live, &options).unwrap();
    Collection::open(context, live).unwrap()
}

/// Checks that queries find the nearest rows that pass the filter. Only distances are compared, since rows with equal
/// distances may be in any order.
fn check(collection: &Collection, rows: &Rows, target: QueryTarget, case: Case) {
    let Case { condition, passes } = case;
    let mut random = Random::new(9, "queries");
    let queries: Vec<[u8; DIMENSIONS]> = (0..7).map(|_| [(); DIMENSIONS].map(|()| random.below(12) as u8)).collect();
    let (set, hits) = (Set::of_stored(TYPE, queries.concat()), Collect::default());
    let mut options = SearchOptions::new(target, SearchEffort::List(rows.len().max(1)), 1);
    options.filter = Some(Condition::parse(condition).unwrap());
    let context = Setup { threads: 2, ..Setup::default() }.context();
    let statistics = collection.search(&context, QuerySources::new(&set), &options, Box::new(hits.clone())).unwrap();
    let passing: Rows = rows.clone().into_iter().filter(|(_, row)| passes(row)).collect();
    assert_eq!(statistics.search.passing_rows, Some(passing.len() as u64), "{condition}");
    for (query, found) in queries.iter().zip(by_query(&hits)) {
        let mut all: Vec<f64> = passing.values().map(|row| row.squared(query)).collect();
        all.sort_by(f64::total_cmp);
        match target {
            QueryTarget::Nearest(k) => all.truncate(k as usize),
            QueryTarget::Within(Predicate::L2 { eps }) => all.retain(|squared| squared.sqrt() <= eps),
            QueryTarget::Within(_) => unreachable!("the metric is l2"),
        }
        let squared: Vec<f64> = found.iter().map(|(_, far)| f64::from(*far).powi(2).round()).collect();
        assert_eq!(squared, all, "{condition}, {query:?}");
        for (id, far) in found {
            let row = passing.get(&id).unwrap_or_else(|| panic!("{condition}: {id} does not pass"));
            assert_eq!(f64::from(far).powi(2).round(), row.squared(query), "{condition}: {id}");
        }
    }
}

/// Returns the ids and distances of the hits of each query.
pub(super) fn by_query(hits: &Collect) -> Vec<Vec<(i64, f32)>> {
    let mut queries: Vec<Vec<(i64, f32)>> = Vec::new();
    for HitBatch { ids, values, ends, hits_before, .. } in hits.batches() {
        let Ids::Int64(ids) = ids else { panic!("ids are integers") };
        let all: Vec<_> = ids.into_iter().zip(values).collect();
        let starts = std::iter::once(0).chain(ends.clone());
        for (number, (start, end)) in starts.zip(ends).enumerate() {
            // The first hits of a batch may belong to the last query of the previous batch.
            match queries.last_mut().filter(|_| number == 0 && hits_before > 0) {
                Some(last) => last.extend_from_slice(&all[start..end]),
                None => queries.push(all[start..end].to_vec()),
            }
        }
    }
    queries
}

fn check_all(collection: &Collection, rows: &Rows) {
    let within = QueryTarget::Within(Predicate::l2(3.0).unwrap());
    for case in CASES {
        [QueryTarget::Nearest(6), within].iter().for_each(|&wanted| check(collection, rows, wanted, case));
    }
    let ids: Vec<i64> = (-3..4_000).step_by(7).collect();
    let found = collection.get(&Ids::Int64(ids.clone())).unwrap();
    for (id, vector) in ids.iter().zip(found) {
        assert_eq!(vector, rows.get(id).map(|row| row.vector.to_vec()), "{id}");
    }
    let there: Vec<&Row> = ids.iter().filter_map(|id| rows.get(id)).collect();
    let wanted: [ArrayRef; 4] = [
        Arc::new(there.iter().map(|row| row.lang).collect::<StringArray>()),
        Arc::new(there.iter().map(|row| row.year.map(i64::from)).collect::<Int64Array>()),
        Arc::new(there.iter().map(|row| Some(row.pick)).collect::<Int64Array>()),
        Arc::new(there.iter().map(|row| Some(row.day)).collect::<Date32Array>()),
    ];
    assert_eq!(collection.get_attributes(&Ids::Int64(ids)).unwrap().columns(), wanted);
}

fn put(collection: &Collection, rows: &mut Rows, more: Rows) {
    collection.load(&source(&more), Put::Upsert, Durability::Buffered).unwrap();
    rows.extend(more);
}

fn delete_where(collection: &Collection, rows: &mut Rows, case: Case) {
    let Case { condition, passes } = case;
    let written = collection.delete_where(&Condition::parse(condition).unwrap(), Durability::Group).unwrap();
    let before = rows.len();
    rows.retain(|_, row| !passes(row));
    assert_eq!((written.rows, written.deleted, written.missing), (0, (before - rows.len()) as u64, 0), "{condition}");
    assert_eq!(collection.facts().rows, rows.len() as u64);
}

/// Checks that searches find what a filter over all rows finds. The rows are in memory, on disk, or in both with
/// deleted and replaced rows, and the collection is also reopened. Rows keep their columns.
#[test]
fn filtered_searches_and_deletes_equal_a_scan_of_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (live, context) = (folder.path().join("live"), Setup::default().context());
    let (mut random, mut rows) = (Random::new(1, "attributes"), Rows::new());
    let collection = create(&live, &context);
    check_all(&collection, &rows);
    put(&collection, &mut rows, some(&mut random, 0..3_000));
    check_all(&collection, &rows);
    delete_where(&collection, &mut rows, case("pick = 7 or pick = 9", |row| row.pick == 7 || row.pick == 9));
    assert_eq!(collection.merge(&context).unwrap().rows, rows.len() as u64);
    check_all(&collection, &rows);
    put(&collection, &mut rows, some(&mut random, (0..600).chain(3_000..3_200)));
    let gone: Vec<i64> = (500..700).collect();
    collection.write(&Write { delete: Some(&Ids::Int64(gone)), ..Write::default() }, Durability::Group).unwrap();
    rows.retain(|id, _| !(500..700).contains(id));
    check_all(&collection, &rows);
    // This filter would fail on a deleted row (division by zero), but it is not evaluated on deleted rows.
    delete_where(&collection, &mut rows, case("pick = 0", |row| row.pick == 0));
    let divides = case("1000 / pick > 10", |row| 1_000 / row.pick > 10);
    check(&collection, &rows, QueryTarget::Nearest(5), divides);
    delete_where(
        &collection,
        &mut rows,
        case("lang = 'de' and day < '1970-01-15'", |row| row.lang == Some("de") && row.day < 14),
    );
    check_all(&collection, &rows);
    drop(collection);
    let collection = Collection::open(&context, &live).unwrap();
    check_all(&collection, &rows);
    // Two merges that change the index in place.
    for next in [3_200, 3_400] {
        collection.merge_by(&context, MergeMethod::Change).unwrap();
        check_all(&collection, &rows);
        put(&collection, &mut rows, some(&mut random, next - 150..next + 200));
        delete_where(&collection, &mut rows, case("pick % 11 = 3", |row| row.pick % 11 == 3));
    }
    check_all(&collection, &rows);
    delete_where(&collection, &mut rows, case("true", |_| true));
    check_all(&collection, &rows);
    assert_eq!(collection.merge(&context).unwrap().rows, 0);
    put(&collection, &mut rows, some(&mut random, 0..20));
    check_all(&collection, &rows);
    drop(collection);
    assert!(Collection::verify(&context, &live).unwrap().is_sound());
}

/// Checks that a collection reaches the recall that its index promises. The queries are not the calibration queries.
#[test]
fn filtered_collection_searches_reach_the_recall() {
    let folder = tempfile::tempdir().unwrap();
    let (live, context) = (folder.path().join("live"), Setup::default().context());
    let vectors = VectorType { element: Element::F32, dimensions: 16 };
    let attribute: Attribute = "near:bool".parse().unwrap();
    let options = CollectionOptions { attributes: vec![attribute], ..options(vectors, Metric::L2, IdKind::Int64) };
    Collection::create(&context, &live, &options).unwrap();
    let collection = Collection::open(&context, &live).unwrap();
    let all = make(Shape::Clustered, vectors.element, 4_000, vectors.dimensions, 3);
    let values = floats(vectors.element, all.stored());
    let row = |row: usize| &values[row * vectors.dimensions..][..vectors.dimensions];
    let mut firsts: Vec<f64> = (0..4_000).map(|k| row(k)[0]).collect();
    firsts.sort_by(f64::total_cmp);
    let near: Vec<bool> = (0..4_000).map(|k| row(k)[0] < firsts[1_000]).collect();
    let part = |rows: std::ops::Range<usize>| {
        let bytes = vectors.bytes();
        let stored = all.stored()[rows.start * bytes..rows.end * bytes].to_vec();
        let ids: Vec<i64> = rows.clone().map(|id| id as i64).collect();
        let near = BooleanArray::from(near[rows].to_vec());
        Carried::new(Set::of_stored(vectors, stored).with_ids(&ids), vec![("near", Arc::new(near))])
    };
    collection.load(&part(0..3_000), Put::Insert, Durability::Buffered).unwrap();
    collection.merge(&context).unwrap();
    collection.load(&part(3_000..4_000), Put::Insert, Durability::Buffered).unwrap();
    let gone: Vec<i64> = (0..4_000).step_by(4).collect();
    collection.write(&Write { delete: Some(&Ids::Int64(gone)), ..Write::default() }, Durability::Buffered).unwrap();
    let mut options = SearchOptions::new(QueryTarget::Nearest(5), SearchEffort::Recall(0.9), 1);
    options.filter = Some(Condition::parse("near").unwrap());
    let hits = Collect::default();
    collection.search(&context, QuerySources::new(&part(0..4_000)), &options, Box::new(hits.clone())).unwrap();
    let there: Vec<usize> = (0..4_000).filter(|&k| near[k] && k % 4 > 0).collect();
    let (mut found, mut wanted) = (0, 0);
    for (query, hits) in by_query(&hits).into_iter().enumerate().step_by(16) {
        let squared = |k: usize| row(k).iter().zip(row(query)).map(|(x, y)| (x - y).powi(2)).sum::<f64>();
        let mut all: Vec<f64> = there.iter().map(|&k| squared(k)).collect();
        all.sort_by(f64::total_cmp);
        found += hits.iter().filter(|&&(id, _)| squared(id as usize) <= all[4] * (1.0 + 1e-6)).count();
        wanted += 5;
        assert!(hits.iter().all(|&(id, _)| near[id as usize] && id % 4 > 0));
    }
    assert!(found as f64 >= 0.88 * f64::from(wanted), "{found} of {wanted}");
}

#[test]
fn refuses_rows_with_invalid_columns_and_writes_nothing() {
    let device = device();
    let context = &context_on(&device);
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    let there = Model::from([(5, [5; 3])]);
    collection.load(&set(&there), Put::Insert, Durability::Group).unwrap();
    let plain = || Set::of_stored(VECTORS, vec![1; 6]).with_ids(&[8, 9]);
    let with = |columns: Vec<(&str, ArrayRef)>| Carried::new(plain(), columns);
    let names = || Arc::new(StringArray::from(vec![Some("a"), None])) as ArrayRef;
    let sizes = || Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef;
    let long = "x".repeat(1 << 20);
    for (rows, words) in [
        (with(vec![("size", sizes())]), "there is no column name for the columns of data/live"),
        (
            with(vec![("size", names()), ("name", names())]),
            "set.in.memory: column size is Utf8, but among the columns of data/live it is int64",
        ),
        (with(vec![("size", sizes()), ("name", sizes())]), "column name is Int64"),
        (
            with(vec![("size", Arc::new(Float64Array::from(vec![1.0, 2.5]))), ("name", names())]),
            "set.in.memory: column size of row 1 is \"2.5\", which is not a valid int64",
        ),
        (
            with(vec![("size", sizes()), ("name", Arc::new(StringArray::from(vec!["a", &long])))]),
            "set.in.memory: the columns of row 1 take 1.0 MB, more than the 1.0 MB allowed",
        ),
    ] {
        for put in [Put::Insert, Put::Upsert] {
            let refused = error_of(collection.load(&rows, put, Durability::Group));
            assert!(refused.kind() == ErrorKind::Input && refused.to_string().contains(words), "{refused}");
        }
        let refused = error_of(collection.write(&Write { insert: Some(&rows), ..Write::default() }, Durability::Group));
        assert!(refused.to_string().contains(words), "{refused}");
        assert_eq!(content(context, &collection).unwrap(), there);
    }
    let refused = error_of(collection.load(&plain(), Put::Insert, Durability::Group)).to_string();
    assert!(
        refused.contains(
            "the columns of data/live: the source has no columns; give a source in Parquet, Arrow or \
                              JSON lines"
        ),
        "{refused}"
    );
    for (condition, words) in [
        ("colour = 'red'", "there is no column colour; choose from name, size"),
        ("size", "not true or false"),
        ("name > 3", "cannot filter rows by name > 3"),
    ] {
        let refused = error_of(collection.delete_where(&Condition::parse(condition).unwrap(), Durability::Group));
        assert!(refused.to_string().contains(words), "{refused}");
        assert_eq!(content(context, &collection).unwrap(), there);
    }
    let nulls = with(vec![("size", Arc::new(NullArray::new(2))), ("name", Arc::new(NullArray::new(2)))]);
    collection.load(&nulls, Put::Insert, Durability::Group).unwrap();
    let found = collection.get_attributes(&Ids::Int64(vec![9])).unwrap();
    assert!(found.num_rows() == 1 && found.columns().iter().all(|column| column.null_count() == 1), "{found:?}");
}

/// Checks filtered deletes during concurrent writes. Each deletes only rows that exist, and all matching rows that
/// were written before it.
#[test]
fn filtered_deletes_work_during_concurrent_writes() {
    let folder = tempfile::tempdir().unwrap();
    let (live, context) = (folder.path().join("live"), Setup::default().context());
    let collection = create(&live, &context);
    let condition = Condition::parse("pick >= 0").unwrap();
    let gone = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut random = Random::new(2, "attributes");
            for id in 0..150 {
                let rows = some(&mut random, 2 * id..2 * id + 2);
                collection
                    .write(&Write { insert: Some(&source(&rows)), ..Write::default() }, Durability::Buffered)
                    .unwrap();
            }
        });
        let mut gone = 0;
        while !writer.is_finished() {
            let written = collection.delete_where(&condition, Durability::Buffered).unwrap();
            let with_others = collection.write_all(&Write::default(), Some(&condition), Durability::Buffered).unwrap();
            let counts = [written.deleted, with_others.deleted];
            assert!(counts.iter().all(|gone| gone % 2 == 0), "a write is there as a whole or not at all: {counts:?}");
            gone += counts.iter().sum::<u64>();
            collection.merge(&context).unwrap();
        }
        gone + collection.delete_where(&condition, Durability::Group).unwrap().deleted
    });
    assert_eq!((gone, collection.facts().rows), (300, 0));
}
