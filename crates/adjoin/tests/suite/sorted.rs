//! Rows that are sorted within buckets. Is their order right, are joins and searches unchanged, and are parts of a
//! bucket verified when they are read?

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use adjoin::{
    Append, BuildOptions, Element, ErrorKind, IdKind, Ids, Index, IndexOptions, Metric, OnBad, OnDuplicateId,
    Predicate, QueryTarget, Random, Result, SearchEffort, SearchQueries, SourceOptions, Store,
    device::{Device, FaultPlan, Keep, SimulatedDevice},
    lab::{
        join::JoinSide,
        source,
        store::{
            self, Role,
            format::{BucketFacts, HEADER_BYTES, decode_bucket},
        },
    },
};
use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};

use crate::filtered_joins::{self, filter, join, predicate};
use crate::filters::{self, CASES, DIMENSIONS, Data, NAMES, find};
use crate::harness::{Built, Joined, Set, Setup, assert_same, error_of, files_of};
use crate::oracle::Pair;
use crate::search::{true_hits, values};

const ROWS: usize = 3_000;
/// Number of dimensions at which reading a whole bucket takes longer than reading a part of it.
const WIDE: usize = 64;

fn sorted(setup: &Setup, column: &str) -> Setup {
    let mut setup = setup.clone();
    setup.build.sort_by = Some(column.into());
    setup
}

/// Vectors with a year and a word, either of which may be missing.
struct Years {
    set: Set,
    years: Vec<Option<i32>>,
    words: Vec<Option<String>>,
}

impl Years {
    fn new(element: Element, ids: IdKind, seed: u64) -> Self {
        let mut random = Random::new(seed, "years");
        let years: Vec<Option<i32>> =
            (0..ROWS).map(|_| (random.below(20) > 0).then(|| random.below(1_000) as i32 - 200)).collect();
        let words: Vec<Option<String>> = (0..ROWS)
            .map(|_| {
                (random.below(20) > 0).then(|| "word ".repeat(random.below(5) as usize) + &random.below(50).to_string())
            })
            .collect();
        let columns: [(&str, ArrayRef); 2] = [
            ("year", Arc::new(years.iter().copied().collect::<Int32Array>())),
            ("word", Arc::new(words.iter().map(Option::as_deref).collect::<StringArray>())),
        ];
        let columns = columns.map(|(name, column)| (name, column, true));
        let set = Set::of(element, WIDE, &values(ROWS, WIDE, seed));
        let set = match ids {
            IdKind::None => set,
            IdKind::Int64 => set.with_ids(&(0..ROWS as i64).map(|row| -7 * row).collect::<Vec<_>>()),
            IdKind::Utf8 => set.with_text_ids(&(0..ROWS).map(id_of).collect::<Vec<_>>()),
        };
        let set = set.in_batches_of(500).with_columns(RecordBatch::try_from_iter_with_nullable(columns).unwrap());
        Self { set, years, words }
    }
}

fn id_of(row: usize) -> String {
    format!("{row:>width$}", width = 4 + row % 9)
}

/// Returns for each center the rows of its buckets, in stored order. Checks that each stored vector and id is that of
/// its row.
fn rows_by_center(built: &Store, set: &Set) -> Vec<Vec<u64>> {
    let manifest = built.manifest();
    let [vectors, centers] = [Role::Vectors, Role::Centers]
        .map(|role| std::fs::read(built.folder().join(&manifest.files[role].name)).unwrap());
    let center_bytes = centers.len() / built.extents().len();
    let facts = BucketFacts {
        vectors: manifest.vectors,
        ids: manifest.ids,
        source_rows: manifest.source_rows,
        is_sorted: manifest.sorted_by.is_some(),
    };
    let mut buckets: Vec<(&[u8], Vec<u64>)> = Vec::new();
    for ((number, extent), center) in (0..).zip(built.extents()).zip(centers.chunks(center_bytes)) {
        let bytes = &vectors[extent.offset as usize..(extent.offset + extent.bytes(true)) as usize];
        let bucket = decode_bucket(number, &facts, extent, bytes).unwrap();
        let size = manifest.vectors.bytes();
        for (k, (&row, vector)) in bucket.rows.iter().zip(bytes[bucket.vectors.clone()].chunks(size)).enumerate() {
            assert_eq!(vector, &set.stored()[row as usize * size..][..size], "row {row}");
            match &bucket.ids {
                Ids::None => assert_eq!(manifest.ids, IdKind::None),
                Ids::Int64(ids) => assert_eq!(ids[k], -7 * row as i64),
                Ids::Utf8(texts) => assert_eq!(texts.get(k), id_of(row as usize).as_bytes()),
            }
        }
        match buckets.last_mut() {
            Some((last, rows)) if *last == center => rows.extend(bucket.rows),
            _ => buckets.push((center, bucket.rows)),
        }
    }
    buckets.into_iter().map(|(_, rows)| rows).collect()
}

/// Checks that the rows of each bucket are sorted by a key and then by number, and that rows without a key are last.
fn assert_sorted<K: Ord>(buckets: &[Vec<u64>], rows: usize, key: impl Fn(u64) -> Option<K>) {
    assert_eq!(buckets.iter().map(Vec::len).sum::<usize>(), rows);
    for bucket in buckets {
        assert!(bucket.is_sorted_by_key(|&row| (key(row).is_none(), key(row), row)));
    }
}

#[test]
fn sorted_builds_order_rows_with_their_ids_and_columns() {
    for (element, ids) in [(Element::F32, IdKind::Utf8), (Element::U8, IdKind::None), (Element::F16, IdKind::Int64)] {
        let data = Years::new(element, ids, 1);
        let setup = Setup::default().with_buckets(12);
        let by_year = sorted(&setup, "year").build(&data.set).unwrap();
        assert_sorted(&rows_by_center(&by_year.store, &data.set), ROWS, |row| data.years[row as usize]);
        let by_word = sorted(&setup, "word").build(&data.set).unwrap();
        assert_sorted(&rows_by_center(&by_word.store, &data.set), ROWS, |row| data.words[row as usize].clone());
        assert_eq!(by_word.store.attributes().unwrap().len(), 1, "the column is kept without being named");
        for built in [&by_year, &by_word] {
            assert!(Store::verify(&setup.context(), &built.path()).unwrap().is_sound());
        }
    }
}

#[test]
fn rows_of_a_center_are_sorted_over_all_of_its_buckets() {
    let rows = 9_000;
    let same: Vec<f64> =
        (0..rows).flat_map(|row| if row % 10 == 0 { [row as f64; WIDE] } else { [5.0; WIDE] }).collect();
    let years: Int32Array = (0..rows).map(|row| Some(row * 7_919 % 1_000)).collect();
    let columns = RecordBatch::try_from_iter([("year", Arc::new(years) as ArrayRef)]).unwrap();
    let set = Set::of(Element::F32, WIDE, &same).in_batches_of(1_000).with_columns(columns);
    let built = sorted(&Setup::default().with_buckets(40), "year").build(&set).unwrap();
    let by_center = rows_by_center(&built.store, &set);
    assert!(by_center.len() < built.store.extents().len(), "a center has several buckets, else the test shows nothing");
    assert_sorted(&by_center, rows as usize, |row| Some(row * 7_919 % 1_000));
}

/// Joins the rows that pass a filter. Returns pairs and statistics.
fn joined(setup: &Setup, store: &Store, condition: &str, within: Predicate) -> Result<Joined> {
    let filter = filter(setup, store, Some(condition))?;
    Built::collect(&setup.context(), JoinSide::new(store, filter.as_ref()).into(), &setup.join_options(within))
}

/// A filter on years as SQL and as a plain function.
type OfYears = (&'static str, fn(Option<i32>) -> bool);

const OF_YEARS: [OfYears; 8] = [
    ("year < -150", |year| year.is_some_and(|year| year < -150)),
    ("year between 100 and 160", |year| year.is_some_and(|year| (100..=160).contains(&year))),
    ("year >= 700", |year| year.is_some_and(|year| year >= 700)),
    ("year = 77", |year| year == Some(77)),
    ("year is null", |year| year.is_none()),
    ("year is null or year < -190", |year| year.is_none_or(|year| year < -190)),
    ("year % 3 = 0", |year| year.is_some_and(|year| year % 3 == 0)),
    ("year > 5000", |_| false),
];

#[test]
fn filtered_joins_of_sorted_stores_read_parts_of_buckets() {
    let within = Predicate::l2(105.0).unwrap();
    for (element, ids) in [
        (Element::F32, IdKind::None),
        (Element::F32, IdKind::Utf8),
        (Element::U8, IdKind::Int64),
        (Element::I8, IdKind::None),
        (Element::F16, IdKind::Utf8),
    ] {
        let data = Years::new(element, ids, 2);
        let setup = Setup::default().with_buckets(4);
        let by_year = sorted(&setup, "year").build(&data.set).unwrap();
        let mut setup_plain = setup.clone();
        setup_plain.build.attributes = vec!["year".into()];
        let plain = setup_plain.build(&data.set).unwrap();
        let all = data.set.true_pairs(within);
        assert!(all.len() > 10_000, "{} pairs", all.len());
        for (condition, passes) in OF_YEARS {
            let passes = |row: u64| passes(data.years[row as usize]);
            let truth: Vec<Pair> = all.iter().copied().filter(|&(a, b, _)| passes(a) && passes(b)).collect();
            let [of_plain, of_sorted] =
                [&plain, &by_year].map(|built| joined(&setup, &built.store, condition, within).unwrap());
            let what = format!("{condition}, {element}, {ids:?}");
            assert_same(&of_plain.pairs, &truth, &what);
            assert_same(&of_sorted.pairs, &truth, &what);
            let [before, now] = [&of_plain, &of_sorted].map(|of| of.statistics.common.io.bytes_read.unwrap());
            // Reads end at the end of a block, hence the tolerance.
            assert!(now <= before + 8_192, "{what}: {now} of {before} bytes");
            let common = &of_sorted.statistics.common;
            let (predicted, read) =
                (common.predicted.as_ref().unwrap().bytes_read.unwrap_or(0), common.io.bytes_requested.unwrap());
            assert!(predicted <= read, "{what}: {predicted} bytes are predicted, {read} were asked for");
        }
    }
}

#[test]
fn sorted_stores_give_the_results_of_unsorted_ones_for_any_filter() {
    let data = Data::new(values(1_500, DIMENSIONS, 3), 3);
    let setup = Setup::default().with_buckets(2);
    let all = data.set().true_pairs(predicate(Metric::L2));
    let queries = Set::of(Element::F32, DIMENSIONS, &values(12, DIMENSIONS, 2));
    let hits = true_hits(&data.set(), &queries, QueryTarget::Nearest(2_000), Metric::L2);
    for column in ["pick", "lang", "score", "is_new", "year"] {
        let store = data.store(column, &sorted(&setup, column), &NAMES).unwrap();
        for (condition, passes) in CASES {
            let what = format!("{condition}, sorted by {column}");
            let found = join(&setup, &store, condition, &setup.join_options(predicate(Metric::L2)));
            assert_same(&found.pairs, &filtered_joins::only(&all, &data, passes), &what);
            let (target, effort) = (QueryTarget::Nearest(7), SearchEffort::default());
            let (found, _) =
                find(&setup, &store, SearchQueries::new(&queries), target, effort, Some(condition)).unwrap();
            crate::search::assert_same(&found, &filters::only(&hits, &data.rows, passes, 7), &what);
        }
        let index = data.folder.path().join("index");
        Index::build(&setup.context(), &store, &index, &IndexOptions::default(), true).unwrap();
        assert_eq!(Index::open(&setup.context(), &index).unwrap().facts().rows, 1_500);
    }
}

#[test]
fn bytes_read_decrease_with_the_filtered_rows() {
    let data = Years::new(Element::F32, IdKind::Int64, 4);
    let setup = Setup::default().with_buckets(3);
    let built = sorted(&setup, "year").build(&data.set).unwrap();
    let within = Predicate::l2(60.0).unwrap();
    let read = |condition: &str| {
        let io = joined(&setup, &built.store, condition, within).unwrap().statistics.common.io;
        (io.bytes_read.unwrap(), io.bytes_requested.unwrap())
    };
    let whole = read("year is null or year is not null");
    let mut before = whole;
    for (most, share) in [(300, 0.8), (0, 0.45), (-150, 0.25), (-190, 0.2)] {
        let now = read(&format!("year < {most}"));
        assert!(now < before && now.0 < (whole.0 as f64 * share) as u64, "year < {most}: {now:?} of {whole:?}");
        before = now;
    }
    let queries = SearchQueries::new(&data.set);
    let searched = |condition: &str| {
        let (target, effort) = (QueryTarget::Nearest(3), SearchEffort::Exact);
        find(&setup, &built.store, queries, target, effort, Some(condition)).unwrap().1.common.io.bytes_read.unwrap()
    };
    assert!(searched("year < -150") < searched("year is not null") / 4, "searches read parts too");
    let io = built.join(&setup, within).unwrap().statistics.common.io;
    assert_eq!(io.bytes_requested.unwrap(), whole.1, "without a condition all is read, as where all rows meet it");
}

#[test]
fn a_sorted_store_does_not_depend_on_threads_or_memory() {
    let mut some = values(20_000, 32, 6);
    (0..40).for_each(|k| some[k * 70 * 32] = f64::NAN);
    let missing: Vec<u64> = (0..40).map(|k| k * 70).collect();
    let ids: Vec<String> = (0..20_000).map(id_of).collect();
    let words: StringArray = (0..20_000).map(|row| (row % 11 > 0).then(|| format!("{:>90}", row * 7 % 101))).collect();
    let columns = RecordBatch::try_from_iter_with_nullable([("word", Arc::new(words) as ArrayRef, true)]).unwrap();
    (0..40).for_each(|k| some[k * 70 * 32] = 1.0);
    let set = Set::of(Element::F32, 32, &some).with_text_ids(&ids).with_missing(&missing).in_batches_of(999);
    let set = set.with_columns(columns);
    let setup = sorted(&Setup::default().with_buckets(40).skipping_bad_rows(), "word");
    let of = |threads, memory| files_of(&Setup { threads, memory, ..setup.clone() }.build(&set).unwrap().path());
    let first = of(2, 1 << 30);
    assert_eq!(first.len(), 6);
    let refused =
        error_of(Setup { memory: adjoin::lab::context::RUNTIME_BYTES + 1, ..setup.clone() }.build(&set)).to_string();
    let least = refused.split_once("give memory ").unwrap().1.split_once("MB").unwrap().0.parse::<u64>().unwrap();
    for (threads, memory) in [(1, 512 << 20), (5, 300 << 20), (2, least * 1_000_000)] {
        assert!(of(threads, memory) == first, "{threads} threads, {memory} bytes");
    }
}

#[test]
fn damaged_parts_of_buckets_are_detected() {
    let data = Years::new(Element::F32, IdKind::Int64, 7);
    let setup = Setup::default().with_buckets(3);
    let built = sorted(&setup, "year").build(&data.set).unwrap();
    let within = Predicate::l2(105.0).unwrap();
    let sound = joined(&setup, &built.store, "year < -150", within).unwrap().pairs;
    let path = |role: Role| built.path().join(&built.store.manifest().files[role].name);
    let try_with = |role: Role, at: usize, bytes: &[u8]| {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(path(role), &damaged).unwrap();
        assert!(!Store::verify(&setup.context(), &built.path()).unwrap().is_sound(), "byte {at}");
        let found = Store::open(&setup.context(), &built.path())
            .and_then(|store| joined(&setup, &store, "year < -150", within));
        std::fs::write(path(role), bytes).unwrap();
        found
    };
    let vectors = std::fs::read(path(Role::Vectors)).unwrap();
    // A filter reads the first members of each bucket: their vectors, their row numbers, and the rest of the blocks
    // with these.
    for extent in built.store.extents() {
        let start = extent.offset as usize + HEADER_BYTES;
        let rows = (extent.offset + extent.body_bytes) as usize - 8 * extent.rows as usize;
        for at in [start, start + 1_000, rows, rows + 9] {
            let error = error_of(try_with(Role::Vectors, at, &vectors));
            assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("block at byte"), "{at}: {error}");
        }
    }
    let mut random = Random::new(1, "flips");
    let mut seen = BTreeMap::new();
    for _ in 0..60 {
        match try_with(Role::Vectors, random.below(vectors.len() as u64) as usize, &vectors) {
            Ok(found) => {
                assert_same(&found.pairs, &sound, "a byte that was not read");
                *seen.entry("unread").or_insert(0) += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                *seen.entry("found").or_insert(0) += 1;
            }
        }
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    let blocks = std::fs::read(path(Role::Blocks)).unwrap();
    assert_eq!(blocks.len(), vectors.len() / 512);
    for at in [0, blocks.len() / 2, blocks.len() - 1] {
        let error = error_of(try_with(Role::Blocks, at, &blocks));
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[test]
fn a_crashed_sorted_build_resumes_to_the_same_bytes() {
    let data = Data::new(values(500, DIMENSIONS, 9), 9);
    let set = std::fs::read(data.folder.path().join("set/1.parquet")).unwrap();
    let fresh = || {
        let device = SimulatedDevice::new(FaultPlan::None);
        device.put("data/set.parquet", &set);
        device
    };
    let folder = Path::new("data/store");
    let work = |device: &SimulatedDevice, resume: bool| -> Result<()> {
        let setup = Setup { threads: 1, ..sorted(&Setup::default().with_buckets(6), "year") };
        let context = setup.context_on(Arc::new(device.clone()));
        let source = source::open(&context, &["data/set.parquet".into()], &SourceOptions::default())?;
        let force = device.kind(&folder.join("manifest.json"))?.is_some();
        let resume = resume.then(SourceOptions::default);
        Store::build(&context, &*source, folder, &BuildOptions { resume, force, ..setup.build }).map(drop)
    };
    let files = |device: &SimulatedDevice| -> BTreeMap<_, _> {
        let names = device.list(folder).unwrap().into_iter();
        names.map(|name| (name.clone(), device.bytes(folder.join(name)).unwrap())).collect()
    };
    let [plain, kept] = [fresh(), fresh()];
    work(&plain, false).unwrap();
    work(&kept, true).unwrap();
    let wanted = files(&plain);
    assert!(wanted.len() == 6 && files(&kept) == wanted);
    let operations = kept.operations().len() as u64;
    let mut ended = 0;
    for at in (0..operations).step_by(operations.div_ceil(20) as usize) {
        let crashed = fresh();
        crashed.set_plan(FaultPlan::Crash { at });
        ended += u32::from(work(&crashed, true).is_err());
        for keep in [Keep::Nothing, Keep::Everything] {
            let again = crashed.after_crash(keep);
            work(&again, true).unwrap_or_else(|error| panic!("operation {at}, {keep:?}: {error}"));
            assert!(files(&again) == wanted, "operation {at}, {keep:?}");
        }
    }
    assert!(ended > 10, "{ended} were ended");
}

#[test]
fn refuses_invalid_sort_columns_and_appends_to_sorted_stores() {
    let data = Years::new(Element::U8, IdKind::None, 8);
    let setup = Setup::default();
    let with_lists = Data::new(values(60, DIMENSIONS, 7), 7);
    let refused = error_of(with_lists.store("refused", &sorted(&setup, "vector"), &["lang"])).to_string();
    let words = ["column vector is FixedSizeList", "but values of sort-by must be texts, numbers"];
    assert!(words.iter().all(|words| refused.contains(words)), "{refused}");
    let refused = error_of(sorted(&setup, "month").build(&data.set)).to_string();
    assert!(refused.contains("there is no column month for values of sort-by"), "{refused}");
    let built = sorted(&setup, "year").build(&data.set).unwrap();
    let before = files_of(&built.path());
    let (on_bad, on_duplicate_id) = (OnBad::Error, OnDuplicateId::Error);
    let gone = Ids::Int64(vec![1]);
    let wanted = Append { new: None, delete: Some(&gone), on_bad, on_duplicate_id };
    let refused = error_of(Store::append(&setup.context(), &built.path(), &wanted)).to_string();
    assert!(refused.contains("is sorted by year") && refused.contains("build it again"), "{refused}");
    assert!(files_of(&built.path()) == before);
    assert_eq!(built.store.manifest().format_version, store::format::SORTED_VERSION);
}
