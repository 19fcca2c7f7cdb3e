//! Filtered searches. Do they find the nearest rows that pass the filter, and no others?

use std::path::Path;
use std::sync::Arc;

use adjoin::{
    BuildOptions, Collect, Condition, Element, ErrorKind, Index, IndexOptions, Metric, OnBad, Predicate, QueryTarget,
    Random, Result, SearchEffort, SearchOptions, SearchQueries, SearchStatistics, SourceOptions, Store, VectorSource,
    lab::{
        buckets::search,
        index,
        query::QuerySources,
        source,
        store::{self, Role},
    },
};
use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, DictionaryArray, Float64Array, Int32Array, RecordBatch, StringArray,
};
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

use crate::harness::{Set, Setup, error_of, files_of};
use crate::search::{Hits, assert_same, true_hits, values};

pub(crate) const DIMENSIONS: usize = 8;
pub(crate) const NAMES: [&str; 8] = ["lang", "year", "score", "is_new", "day", "pick", "near", "code"];

/// Columns of a row.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) lang: Option<&'static str>,
    pub(crate) year: Option<i32>,
    pub(crate) score: Option<f64>,
    pub(crate) is_new: Option<bool>,
    day: i32,
    /// Random number from 0 to 999.
    pub(crate) pick: i32,
    /// Whether the first coordinate is small. This column is correlated with the vector.
    pub(crate) near: bool,
    pub(crate) code: &'static str,
}

/// A filter as a plain function.
pub(crate) type Passes = fn(&Row) -> bool;

/// A filter as SQL and as a plain function.
pub(crate) type Case = (&'static str, Passes);

pub(crate) const CASES: [Case; 18] = [
    ("pick < 0", |_| false),
    ("pick < 1", |row| row.pick < 1),
    ("pick < 10", |row| row.pick < 10),
    ("pick < 100", |row| row.pick < 100),
    ("pick % 2 = 0", |row| row.pick % 2 == 0),
    ("pick >= 0", |_| true),
    ("near", |row| row.near),
    ("not near", |row| !row.near),
    ("lang = 'en'", |row| row.lang == Some("en")),
    ("lang <> 'en'", |row| row.lang.is_some_and(|lang| lang != "en")),
    ("lang is null or year is null", |row| row.lang.is_none() || row.year.is_none()),
    ("lang = 'en' and year >= 2020", |row| row.lang == Some("en") && row.year.is_some_and(|year| year >= 2020)),
    ("lang in ('de', 'fr') or score < 0.1", |row| {
        row.lang.is_some_and(|lang| lang != "en") || row.score.is_some_and(|score| score < 0.1)
    }),
    ("not (year between 2010 and 2019)", |row| row.year.is_some_and(|year| !(2010..2020).contains(&year))),
    ("is_new", |row| row.is_new == Some(true)),
    ("day >= '1970-03-01' and is_new = false", |row| row.day >= 59 && row.is_new == Some(false)),
    ("code like 'a%'", |row| row.code.starts_with('a')),
    ("score * 10 > year - 2015", |row| {
        row.score.zip(row.year).is_some_and(|(score, year)| score * 10.0 > f64::from(year - 2015))
    }),
];

fn rows_of(values: &[f64], seed: u64) -> Vec<Row> {
    let mut random = Random::new(seed, "attributes");
    let mut some = |of: u64| (random.below(10) > 0).then(|| random.below(of));
    let row = |vector: &[f64]| Row {
        lang: some(3).map(|lang| ["en", "de", "fr"][lang as usize]),
        year: some(25).map(|year| 2000 + year as i32),
        score: some(1_000).map(|score| score as f64 / 1_000.0),
        is_new: some(2).map(|is_new| is_new == 1),
        day: some(100).unwrap_or(0) as i32,
        pick: some(1_000).unwrap_or(500) as i32,
        near: vector[0] < 40.0,
        code: ["ab", "ac", "b"][some(3).unwrap_or(0) as usize],
    };
    values.chunks_exact(DIMENSIONS).map(row).collect()
}

fn table(values: &[f64], rows: &[Row]) -> RecordBatch {
    let mut vectors = FixedSizeListBuilder::new(Float32Builder::new(), DIMENSIONS as i32);
    for vector in values.chunks_exact(DIMENSIONS) {
        vector.iter().for_each(|&value| vectors.values().append_value(value as f32));
        vectors.append(!vector[0].is_nan());
    }
    let codes: DictionaryArray<Int8Type> = rows.iter().map(|row| row.code).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("code", Arc::new(codes)),
        ("vector", Arc::new(vectors.finish())),
        ("lang", Arc::new(rows.iter().map(|row| row.lang).collect::<StringArray>())),
        ("year", Arc::new(rows.iter().map(|row| row.year).collect::<Int32Array>())),
        ("score", Arc::new(rows.iter().map(|row| row.score).collect::<Float64Array>())),
        ("is_new", Arc::new(rows.iter().map(|row| row.is_new).collect::<BooleanArray>())),
        ("day", Arc::new(rows.iter().map(|row| Some(row.day)).collect::<Date32Array>())),
        ("pick", Arc::new(rows.iter().map(|row| Some(row.pick)).collect::<Int32Array>())),
        ("near", Arc::new(rows.iter().map(|row| Some(row.near)).collect::<BooleanArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn write(path: &Path, table: &RecordBatch) {
    let mut writer = ArrowWriter::try_new(std::fs::File::create(path).unwrap(), table.schema(), None).unwrap();
    writer.write(table).unwrap();
    writer.close().unwrap();
}

/// A folder with a source in two files, and its content.
pub(crate) struct Data {
    pub(crate) folder: TempDir,
    pub(crate) values: Vec<f64>,
    pub(crate) rows: Vec<Row>,
}

impl Data {
    pub(crate) fn new(values: Vec<f64>, seed: u64) -> Self {
        let (folder, rows) = (tempfile::tempdir().unwrap(), rows_of(&values, seed));
        let all = table(&values, &rows);
        let first = rows.len() / 3;
        std::fs::create_dir(folder.path().join("set")).unwrap();
        write(&folder.path().join("set/0.parquet"), &all.slice(0, first));
        write(&folder.path().join("set/1.parquet"), &all.slice(first, rows.len() - first));
        Self { folder, values, rows }
    }

    pub(crate) fn set(&self) -> Set {
        Set::of(Element::F32, DIMENSIONS, &self.values)
    }

    fn source(&self, setup: &Setup) -> Arc<dyn VectorSource> {
        let inputs = [self.folder.path().join("set").display().to_string()];
        source::open(&setup.context(), &inputs, &SourceOptions::default()).unwrap()
    }

    pub(crate) fn store(&self, name: &str, setup: &Setup, attributes: &[&str]) -> Result<Store> {
        let attributes = attributes.iter().map(|&name| name.to_owned()).collect();
        let options = BuildOptions { attributes, ..setup.build.clone() };
        let folder = self.folder.path().join(name);
        Store::build(&setup.context(), &*self.source(setup), &folder, &options)?;
        Store::open(&setup.context(), &folder)
    }
}

pub(crate) fn find(
    setup: &Setup,
    store: &Store,
    queries: SearchQueries<'_>,
    target: QueryTarget,
    effort: SearchEffort,
    condition: Option<&str>,
) -> Result<(Vec<Hits>, SearchStatistics)> {
    let sink = Collect::default();
    let condition = condition.map(Condition::parse).transpose()?;
    let options = SearchOptions { filter: condition, ..SearchOptions::new(target, effort, 1) };
    let statistics = search(&setup.context(), store, queries, &options, Box::new(sink.clone()))?;
    Ok((sink.hits(), statistics))
}

/// Returns, for each query, its first `k` hits among the rows that pass.
pub(crate) fn only(all: &[Hits], rows: &[Row], passes: fn(&Row) -> bool, k: usize) -> Vec<Hits> {
    let of = |hits: &Hits| hits.iter().copied().filter(|hit| passes(&rows[hit.0 as usize])).take(k).collect();
    all.iter().map(of).collect()
}

#[test]
fn filtered_searches_find_the_nearest_rows_for_any_filter() {
    for metric in [Metric::L2, Metric::Cosine] {
        let data = Data::new(values(1_100, DIMENSIONS, 1), 1);
        let setup = Setup::default().with_buckets(30).with_metric(metric);
        let store = data.store("store", &setup, &NAMES).unwrap();
        let queries = Set::of(Element::F32, DIMENSIONS, &values(12, DIMENSIONS, 2));
        let all = true_hits(&data.set(), &queries, QueryTarget::Nearest(2_000), metric);
        for (condition, passes) in CASES {
            let count = data.rows.iter().filter(|row| passes(row)).count() as u64;
            for k in [1, 7, 2_000] {
                let (target, effort) = (QueryTarget::Nearest(k), SearchEffort::default());
                let (found, statistics) =
                    find(&setup, &store, SearchQueries::new(&queries), target, effort, Some(condition)).unwrap();
                let what = format!("{condition}, {k} by {metric}");
                assert_same(&found, &only(&all, &data.rows, passes, k as usize), &what);
                assert_eq!(statistics.search.passing_rows, Some(count), "{what}");
            }
        }
        let (target, effort) = (QueryTarget::Nearest(5), SearchEffort::Exact);
        let (found, statistics) = find(&setup, &store, SearchQueries::new(&queries), target, effort, None).unwrap();
        assert_same(&found, &only(&all, &data.rows, |_| true, 5), "without a condition");
        assert_eq!(statistics.search.passing_rows, None);
    }
}

#[test]
fn filtered_rows_are_queries_for_nearest_and_range_search() {
    let data = Data::new(values(900, DIMENSIONS, 3), 3);
    let setup = Setup::default().with_buckets(25);
    let store = data.store("store", &setup, &NAMES).unwrap();
    let all = true_hits(&data.set(), &data.set(), QueryTarget::Nearest(900), Metric::L2);
    for (condition, passes) in CASES {
        let (target, effort) = (QueryTarget::Nearest(4), SearchEffort::default());
        let (found, _) = find(&setup, &store, SearchQueries::default(), target, effort, Some(condition)).unwrap();
        // If rows are the queries, results are in the order of buckets. Therefore results are compared as a set.
        let mut wanted: Vec<Hits> = Vec::new();
        for (row, hits) in all.iter().enumerate().filter(|(row, _)| passes(&data.rows[*row])) {
            let others: Hits = hits.iter().copied().filter(|hit| hit.0 != row as u64).collect();
            wanted.extend(only(&[others], &data.rows, passes, 4));
        }
        let sorted = |hits: Vec<Hits>| {
            let mut all: Vec<Vec<(u64, u32)>> =
                hits.iter().map(|hits| hits.iter().map(|&(row, value)| (row, value.to_bits())).collect()).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(sorted(found), sorted(wanted), "{condition}");
    }
    let near: Vec<f64> = data.values[..9 * DIMENSIONS].iter().map(|value| value + 1.0).collect();
    let queries = Set::of(Element::F32, DIMENSIONS, &near);
    let within = QueryTarget::Within(Predicate::L2 { eps: 35.0 });
    let all = true_hits(&data.set(), &queries, within, Metric::L2);
    let (target, effort) = (within, SearchEffort::default());
    let (found, _) = find(&setup, &store, SearchQueries::new(&queries), target, effort, Some("lang = 'en'")).unwrap();
    assert!(all.iter().map(Vec::len).sum::<usize>() > 100, "{all:?}");
    assert_same(&found, &only(&all, &data.rows, |row| row.lang == Some("en"), 900), "within");
}

#[test]
fn filtered_searches_reach_the_recall_among_filtered_rows() {
    let data = Data::new(values(24_000, DIMENSIONS, 5), 5);
    let setup = Setup::default().with_buckets(150);
    let store = data.store("store", &setup, &NAMES).unwrap();
    let queries = Set::of(Element::F32, DIMENSIONS, &values(2_400, DIMENSIONS, 5)).in_batches_of(500);
    let cases: [(&str, Passes, bool); 4] = [
        ("pick % 2 = 0", |row| row.pick % 2 == 0, true),
        ("near", |row| row.near, true),
        ("not near", |row| !row.near, true),
        ("pick < 100", |row| row.pick < 100, false),
    ];
    for (condition, passes, is_learned) in cases {
        let count = data.rows.iter().filter(|row| passes(row)).count();
        assert_eq!(count > 6_000, is_learned, "{condition}: {count} rows, else the test shows nothing");
        let of = |effort| {
            find(&setup, &store, SearchQueries::new(&queries), QueryTarget::Nearest(10), effort, Some(condition))
                .unwrap()
        };
        let (all, _) = of(SearchEffort::Exact);
        let (found, statistics) = of(SearchEffort::Recall(0.9));
        let share = |(hits, all): (&Hits, &Hits)| hits.iter().filter(|hit| all.contains(hit)).count() as f64 / 10.0;
        let reached = found.iter().zip(&all).map(share).sum::<f64>() / all.len() as f64;
        let recall = statistics.common.recall.unwrap();
        assert_eq!(recall.sample_queries.is_some(), is_learned, "{condition}: {recall:?}");
        assert!(recall.kept && reached >= 0.89, "{condition}: {reached} {recall:?}");
        assert!(is_learned || reached == 1.0, "{condition}: what is not learned is exact");
    }
}

/// Builds an index of a store, in the same folder.
fn index_of(data: &Data, setup: &Setup, store: &Store) -> Index {
    let folder = data.folder.path().join("index");
    let (degree, code_bytes) = (Some(12), Some(8));
    let options = IndexOptions { degree, build_list: 32, code_bytes, ..IndexOptions::default() };
    Index::build(&setup.context(), store, &folder, &options, true).unwrap();
    Index::open(&setup.context(), &folder).unwrap()
}

fn find_in_index(
    setup: &Setup,
    index: &Index,
    queries: &Set,
    target: QueryTarget,
    effort: SearchEffort,
    condition: &str,
) -> (Vec<Hits>, SearchStatistics) {
    let sink = Collect::default();
    let condition = Some(Condition::parse(condition).unwrap());
    let options = SearchOptions { filter: condition, ..SearchOptions::new(target, effort, 1) };
    let found =
        index::search(&setup.context(), index, QuerySources::new(queries), &options, Box::new(sink.clone())).unwrap();
    (sink.hits(), found)
}

#[test]
fn index_searches_find_filtered_rows_for_any_filter() {
    for metric in [Metric::L2, Metric::Cosine] {
        let mut some = values(1_100, DIMENSIONS, 1);
        let copies = some[..8 * DIMENSIONS].repeat(20);
        some.extend(copies); // equal vectors share a vertex, though only some of its rows pass
        let data = Data::new(some, 1);
        let setup = Setup::default().with_buckets(30).with_metric(metric);
        let index = index_of(&data, &setup, &data.store("store", &setup, &NAMES).unwrap());
        let queries = Set::of(Element::F32, DIMENSIONS, &[&values(12, DIMENSIONS, 2), &data.values[..40]].concat());
        let all = true_hits(&data.set(), &queries, QueryTarget::Nearest(2_000), metric);
        for (condition, passes) in CASES {
            let count = data.rows.iter().filter(|row| passes(row)).count() as u64;
            for k in [1, 7, 2_000] {
                let wanted = only(&all, &data.rows, passes, k as usize);
                let what = format!("{condition}, {k} by {metric}");
                for effort in [SearchEffort::default(), SearchEffort::List(2_000)] {
                    let (found, statistics) =
                        find_in_index(&setup, &index, &queries, QueryTarget::Nearest(k), effort, condition);
                    assert_same(&found, &wanted, &what);
                    assert_eq!(statistics.search.passing_rows, Some(count), "{what}");
                }
            }
        }
        let everything = match metric {
            Metric::L2 => Predicate::l2(1e6).unwrap(),
            _ => Predicate::cosine(-1.0).unwrap(),
        };
        let (found, _) = find_in_index(
            &setup,
            &index,
            &queries,
            QueryTarget::Within(everything),
            SearchEffort::List(4),
            "lang = 'en'",
        );
        assert_same(&found, &only(&all, &data.rows, |row| row.lang == Some("en"), 2_000), "within");
    }
}

#[test]
fn filtered_index_searches_reach_the_recall() {
    let data = Data::new(values(20_000, DIMENSIONS, 5), 5);
    let setup = Setup::default().with_buckets(150);
    let index = index_of(&data, &setup, &data.store("store", &setup, &NAMES).unwrap());
    let queries = Set::of(Element::F32, DIMENSIONS, &values(1_200, DIMENSIONS, 5)).in_batches_of(500);
    let all = true_hits(&data.set(), &queries, QueryTarget::Nearest(10_000), Metric::L2);
    let cases: [(&str, Passes, &str); 5] = [
        ("pick >= 20", |row| row.pick >= 20, "walk"),
        ("pick % 2 = 0", |row| row.pick % 2 == 0, "codes"),
        ("near", |row| row.near, "codes"),
        ("not near and pick < 300", |row| !row.near && row.pick < 300, "codes"),
        ("pick < 10", |row| row.pick < 10, "whole"),
    ];
    for (condition, passes, way) in cases {
        let wanted = only(&all, &data.rows, passes, 10);
        let of =
            |setup: &Setup, effort| find_in_index(setup, &index, &queries, QueryTarget::Nearest(10), effort, condition);
        let (found, statistics) = of(&setup, SearchEffort::Recall(0.9));
        let share = |(hits, all): (&Hits, &Hits)| hits.iter().filter(|hit| all.contains(hit)).count() as f64 / 10.0;
        let reached = found.iter().zip(&wanted).map(share).sum::<f64>() / wanted.len() as f64;
        let recall = statistics.common.recall.unwrap();
        assert!(recall.kept && reached >= 0.9, "{condition}: {reached} {recall:?}");
        assert_eq!(statistics.common.strategy.probes, Some(way), "{condition}");
        let right = found.iter().flatten().all(|hit| passes(&data.rows[hit.0 as usize]));
        assert!(right, "{condition}: only rows that pass are found");
        if let Some(list) = statistics.common.strategy.t {
            let (same, _) = of(&Setup { threads: 1, ..setup.clone() }, SearchEffort::List(list as usize));
            assert_same(&same, &found, condition);
        }
    }
}

#[test]
fn store_bytes_do_not_depend_on_threads_memory_or_columns() {
    let mut some = values(3_000, DIMENSIONS, 6);
    // Rows without a usable vector are skipped, together with their columns.
    (0..40).for_each(|k| some[k * 70 * DIMENSIONS] = f64::NAN);
    let data = Data::new(some, 6);
    let setup = Setup::default().with_buckets(40).skipping_bad_rows();
    assert_eq!(setup.build.on_bad, OnBad::Skip);
    let of = |name: &str, setup: &Setup, attributes: &[&str]| {
        drop(data.store(name, setup, attributes).unwrap());
        files_of(&data.folder.path().join(name))
    };
    let plain = of("plain", &setup, &[]);
    let first = of("first", &setup, &NAMES);
    assert_eq!((plain.len(), first.len()), (4, 5));
    for (name, bytes) in plain.iter().filter(|(name, _)| *name != "manifest.json") {
        assert!(first[name] == *bytes, "{name} is the same with attributes and without");
    }
    for (name, threads, memory) in [("alone", 1, 512 << 20), ("little", 2, 43 << 20), ("more", 5, 300 << 20)] {
        assert!(of(name, &Setup { threads, memory, ..setup.clone() }, &NAMES) == first, "{name}");
    }
    let store = Store::open(&setup.context(), &data.folder.path().join("first")).unwrap();
    let names: Vec<String> = store.attributes().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, NAMES, "in the order in which they were named");
    let passing = store.passing(&setup.context(), &Condition::parse("pick < 100").unwrap()).unwrap();
    let kept = data.rows.iter().zip(data.values.chunks(DIMENSIONS)).filter(|(_, vector)| !vector[0].is_nan());
    assert_eq!(passing.count(), kept.filter(|(row, _)| row.pick < 100).count() as u64);
    assert_eq!(passing.iter().count() as u64, passing.count());
    assert!(passing.iter().all(|place| passing.contains(place)));
}

#[test]
fn refuses_invalid_columns_and_filters() {
    let data = Data::new(values(60, DIMENSIONS, 7), 7);
    let setup = Setup::default();
    let store = data.store("store", &setup, &["lang", "year"]).unwrap();
    let plain = data.store("plain", &setup, &[]).unwrap();
    let queries = data.set();
    let asked = |store: &Store, condition: &str| {
        let (target, effort) = (QueryTarget::Nearest(3), SearchEffort::default());
        error_of(find(&setup, store, SearchQueries::new(&queries), target, effort, Some(condition)))
    };
    for (condition, words) in [
        ("pick = 3", "there is no column pick; choose from lang, year"),
        ("year = 'x'", "cannot filter rows by year = 'x'"),
        ("year", "not true or false"),
        ("lang < ", "cannot read"),
    ] {
        let refused = asked(&store, condition);
        assert!(refused.kind() == ErrorKind::Option && refused.to_string().contains(words), "{refused}");
    }
    let refused = asked(&plain, "year = 2020").to_string();
    assert!(refused.contains("plain has no columns, which where needs"), "{refused}");
    for (names, words) in [
        (&["language"][..], "there is no column language for columns; its columns are code"),
        (&["lang", "lang"], "columns lang is named twice"),
        (&["vector"], "column vector is FixedSizeList"),
    ] {
        let refused = error_of(data.store("refused", &setup, names)).to_string();
        assert!(refused.contains(words), "{refused}");
        assert!(!data.folder.path().join("refused").exists(), "nothing is left");
    }
    let set = data.set();
    let attributes = vec!["lang".to_owned()];
    let options = BuildOptions { attributes, ..BuildOptions::default() };
    let refused = Store::build(&setup.context(), &set, &data.folder.path().join("none"), &options);
    assert!(error_of(refused).to_string().contains(
        "columns: the source has no columns; give a source in Parquet, \
                                                    Arrow or JSON lines"
    ));
}

#[test]
fn damaged_columns_are_detected() {
    let data = Data::new(values(400, DIMENSIONS, 8), 8);
    let setup = Setup::default().with_buckets(10);
    let store = data.store("store", &setup, &NAMES).unwrap();
    let context = setup.context();
    let folder = data.folder.path().join("index");
    Index::build(&context, &store, &folder, &IndexOptions::default(), false).unwrap();
    let condition = Condition::parse("pick < 100").unwrap();
    let of_index = Index::open(&context, &folder).unwrap();
    assert!(of_index.passing(&context, &condition).is_ok());
    let name = |files: &store::Files| files[Role::Attributes].name.clone();
    let files = [store.folder().join(name(&store.manifest().files)), folder.join(name(&of_index.facts().files))];
    assert!(Store::verify(&context, store.folder()).unwrap().is_sound());
    assert!(Index::verify(&context, &folder).unwrap().is_sound());
    for path in files {
        let sound = std::fs::read(&path).unwrap();
        for at in [0, sound.len() / 2, sound.len() - 1] {
            let mut damaged = sound.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, damaged).unwrap();
            let (report, passing) = if path.starts_with(&folder) {
                let opened = Index::open(&context, &folder).unwrap();
                (Index::verify(&context, &folder).unwrap().is_sound(), opened.passing(&context, &condition))
            } else {
                let opened = Store::open(&context, store.folder()).unwrap();
                (Store::verify(&context, store.folder()).unwrap().is_sound(), opened.passing(&context, &condition))
            };
            assert!(!report && passing.is_err_and(|error| error.kind() == ErrorKind::Corrupt), "byte {at}");
        }
        std::fs::write(&path, sound).unwrap();
    }
}
