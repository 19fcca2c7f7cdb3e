//! Settings that may affect only the speed of a join. Pairs, counts and the store must stay equal.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin::{
    Element, ErrorKind, IdKind, JoinEffort, JoinStatistics, Metric, OnDuplicateId, PairSchema, PairWriter, Predicate,
    Random, Result, SourceAttributes, SourceInfo, Target, VectorScan, VectorSource,
    kernels::Kernel,
    lab::{plan::Rule, report::JoinCounts},
};

use arrow_array::UInt64Array;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::datasets::{Shape, make};
use crate::harness::{Built, Set, Setup, assert_same, error_of, files_of};
use crate::oracle::Pair;

/// Returns sets for each type of coordinates, with a threshold at which there are pairs.
fn cases() -> Vec<(Set, Predicate)> {
    let l2 = |eps| Predicate::L2 { eps };
    let cosine = |min_similarity| Predicate::Cosine { min_similarity };
    vec![
        (make(Shape::Repeated, Element::F32, 900, 33, 1), l2(1.5)),
        (make(Shape::Uniform, Element::F16, 900, 4, 2), l2(0.4)),
        (make(Shape::Clustered, Element::U8, 900, 17, 3), l2(60.0)),
        (make(Shape::Repeated, Element::I8, 900, 70, 4), l2(110.0)),
        (make(Shape::Clustered, Element::F32, 900, 33, 5), cosine(0.9)),
        (make(Shape::Clustered, Element::I8, 900, 9, 6), cosine(0.95)),
    ]
}

fn kernels() -> Vec<Kernel> {
    let kernels = Kernel::available();
    assert_eq!(kernels[0].name(), "reference");
    println!("levels: {:?}", kernels.iter().map(Kernel::name).collect::<Vec<_>>());
    kernels
}

/// Returns the counts of a join that must depend only on the plan.
fn counts(statistics: &JoinStatistics) -> JoinCounts {
    statistics.join
}

/// Returns the smallest cache with which a join is not refused. A refusal names this number.
pub(crate) fn least_cache(built: &Built, setup: &Setup, predicate: Predicate) -> u64 {
    let with = |cache_bytes| Setup { cache_bytes: Some(cache_bytes), ..setup.clone() };
    let mut cache_bytes = 1 << 30;
    while built.prepare(&with(cache_bytes), predicate).is_ok() {
        cache_bytes /= 2;
    }
    let error = error_of(built.prepare(&with(cache_bytes), predicate).map(|_| ()));
    assert_eq!(error.kind(), ErrorKind::Option, "{error}");
    let least: u64 = error.to_string().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(cache_bytes < least && least <= 2 * cache_bytes, "{error}");
    assert!(built.prepare(&with(least - 1), predicate).is_err() && built.prepare(&with(least), predicate).is_ok());
    least
}

#[test]
fn pairs_and_counts_do_not_depend_on_threads_kernels_or_budgets() {
    for (set, predicate) in cases() {
        let built = Setup::default().with_metric(predicate.metric()).with_buckets(60).build(&set).unwrap();
        let wanted = set.true_pairs(predicate);
        assert!(wanted.len() > 500, "{predicate:?}: {}", wanted.len());
        let setup = Setup::default();
        let first = counts(&built.join(&setup, predicate).unwrap().statistics);
        let least = least_cache(&built, &setup, predicate);
        let mut setups = Vec::new();
        for kernel in kernels() {
            for threads in [1, 2, 3] {
                for cache_bytes in [None, Some(least), Some(2 * least)] {
                    setups.push(Setup { kernel, threads, cache_bytes, ..setup.clone() });
                }
            }
        }
        setups.extend([67 << 20, 100 << 20, 1 << 34].map(|memory| Setup { memory, ..setup.clone() }));
        for setup in setups {
            let joined = built.join(&setup, predicate).unwrap();
            let Setup { threads, cache_bytes, memory, .. } = setup;
            let what = format!("{predicate:?} {} {threads} {cache_bytes:?} {memory}", setup.kernel.name());
            assert_same(&joined.pairs, &wanted, &what);
            assert_eq!(counts(&joined.statistics), first, "{what}");
        }
    }
}

#[test]
fn predicted_reads_with_a_small_cache_are_exact() {
    let (set, predicate) = cases().swap_remove(1);
    let built = Setup::default().with_buckets(60).build(&set).unwrap();
    let least = least_cache(&built, &Setup::default(), predicate);
    let reads_with = |cache_bytes| {
        let setup = Setup { cache_bytes, ..Setup::default() };
        let prepared = built.prepare(&setup, predicate).unwrap().explain(&built.store);
        let joined = built.join(&setup, predicate).unwrap();
        // Reads are a sample to fit the codes, one pass for the margins, a sample to predict the pairs, and the reads
        // of the plan.
        let rows = built.store.manifest().rows;
        let drawn = (rows.min(500) + rows.min(1_500)) * built.store.manifest().vectors.bytes() as u64;
        let read = joined.statistics.common.io.bytes_requested;
        assert_eq!(read, Some(prepared.store_bytes + drawn + prepared.bytes_read), "of this run alone");
        assert_eq!(joined.statistics.common.predicted.unwrap().bytes_read, Some(prepared.bytes_read));
        prepared.bytes_read
    };
    let (small, large) = (reads_with(Some(least)), reads_with(None));
    assert!(small > 2 * large, "{small} {large}");
}

/// Returns the stored bytes of the first rows of a set, which are used as centers.
fn first_rows(set: &Set, count: u32) -> Arc<[u8]> {
    set.stored()[..count as usize * set.vectors().bytes()].into()
}

#[test]
fn pairs_do_not_depend_on_buckets_or_centers() {
    for (set, predicate) in cases() {
        let wanted: Vec<Pair> = set.true_pairs(predicate);
        for buckets in [Some(1), Some(2), Some(30), Some(450), Some(900), None] {
            for (given, seed) in [(false, 1), (false, 77), (true, 1)] {
                let mut setup = Setup::default().with_metric(predicate.metric());
                setup.build.buckets = buckets;
                setup.build.centers = buckets.filter(|_| given).map(|count| first_rows(&set, count));
                setup.build.seed = seed;
                let built = setup.build(&set).unwrap();
                let joined = built.join(&setup, predicate).unwrap();
                let what = format!("{predicate:?} {buckets:?} {seed}, given {given}");
                assert_same(&joined.pairs, &wanted, &what);
            }
        }
    }
}

#[test]
fn store_bytes_do_not_depend_on_the_build_environment() {
    for (set, predicate) in cases() {
        for (given, buckets) in [(None, None), (None, Some(100)), (Some(50), Some(50))] {
            let mut setup = Setup::default().with_metric(predicate.metric());
            setup.build.buckets = buckets;
            setup.build.centers = given.map(|count| first_rows(&set, count));
            let files = |setup: &Setup, set: &Set| files_of(&setup.build(set).unwrap().path());
            let wanted = files(&setup, &set);
            assert_eq!(wanted.len(), 4);
            for kernel in kernels() {
                for threads in [1, 2, 3] {
                    let setup = Setup { kernel, threads, ..setup.clone() };
                    assert!(files(&setup, &set) == wanted, "{predicate:?} {} {threads}", kernel.name());
                }
            }
            let other_batches = set.clone().in_batches_of(1);
            let small = Setup { memory: 67 << 20, ..setup.clone() };
            assert!(files(&small, &other_batches) == wanted, "{predicate:?}: batches or budget show in the store");
            let mut other_seed = setup.clone();
            other_seed.build.seed = 2;
            assert!(given.is_some() || files(&other_seed, &set) != wanted, "canary: the comparison sees another seed");
        }
    }
}

/// A set that counts its scans.
struct Counted {
    set: Set,
    scans: AtomicU64,
}

impl VectorSource for Counted {
    fn info(&self) -> &SourceInfo {
        self.set.info()
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.set.scan(batch_bytes)
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        self.set.scan_bytes(batch_bytes)
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        self.set.locate(row)
    }

    fn attributes(&self) -> Option<&dyn SourceAttributes> {
        self.set.attributes()
    }
}

/// Sets of every element type, with every kind of ids, with and without bad rows.
fn sets_to_hold() -> Vec<(Set, Metric)> {
    const ROWS: usize = 9_000;
    let texts =
        |longest: usize| (0..ROWS).map(|row| format!("{row:>width$}", width = row % longest)).collect::<Vec<_>>();
    let numbers: Vec<i64> = (0..ROWS as i64).map(|row| 5 - 3 * row).collect();
    let set = |shape, element, dimensions, seed| make(shape, element, ROWS, dimensions, seed).in_batches_of(1_000);
    vec![
        (set(Shape::Clustered, Element::F32, 33, 1), Metric::L2),
        (set(Shape::Clustered, Element::F32, 33, 2).with_ids(&numbers).with_missing(&[0, 17, 8_999]), Metric::Cosine),
        (set(Shape::Clustered, Element::F32, 20, 3).with_text_ids(&texts(9)), Metric::Ip),
        (set(Shape::Uniform, Element::F16, 40, 4).with_text_ids(&texts(1_000)), Metric::L2),
        (set(Shape::Repeated, Element::U8, 64, 5).with_ids(&numbers), Metric::L2),
        (set(Shape::Clustered, Element::I8, 70, 6).with_missing(&(3_000..5_500).collect::<Vec<_>>()), Metric::L2),
    ]
}

#[test]
fn held_rows_give_the_store_of_two_scans() {
    for (set, metric) in sets_to_hold() {
        let mut setup = Setup::default().with_metric(metric).with_buckets(90).skipping_bad_rows();
        setup.build.on_duplicate_id = OnDuplicateId::Keep;
        let built = |setup: &Setup| {
            let source = Counted { set: set.clone(), scans: AtomicU64::new(0) };
            let built = setup.build(&source).map(|built| files_of(&built.path()));
            (built, source.scans.into_inner())
        };
        let (wanted, scans) = built(&setup);
        assert_eq!(scans, 1, "{:?}", set.vectors());
        let wanted = wanted.unwrap();
        let refused = error_of(built(&Setup { memory: 1 << 20, ..setup.clone() }).0).to_string();
        let least: u64 = refused.split_once("give memory ").unwrap().1.split_once("MB").unwrap().0.parse().unwrap();
        let mut seen = BTreeSet::new();
        for step in 0..12 {
            let memory = least * 1_000_000 + step * step * 1_000_000;
            let threads = 1 + step as usize % 4;
            let (again, scans) = built(&Setup { memory, threads, ..setup.clone() });
            assert!(again.unwrap() == wanted, "{:?}: {memory} bytes, {threads} threads", set.vectors());
            seen.insert(scans);
        }
        let (fewest, most) = (seen.first().copied(), seen.last().copied());
        assert!(fewest == Some(1) && most >= Some(2), "{:?}: {seen:?} scans", set.vectors());
    }
}

#[test]
fn manifests_contain_nothing_about_the_machine() {
    let set = make(Shape::Clustered, Element::F32, 100, 4, 1);
    let built = Setup::default().with_metric(Metric::Cosine).build(&set).unwrap();
    let manifest = String::from_utf8(files_of(&built.path())["manifest.json"].clone()).unwrap();
    let path = built.path();
    for word in ["thread", "memory", "budget", "kernel", "avx", "time", "set.in.memory", path.to_str().unwrap()] {
        assert!(!manifest.contains(word), "{manifest}");
    }
}

#[test]
fn the_rule_threshold_does_not_depend_on_the_budget() {
    // The values are uniform in 6 of 128 dimensions. Thus vectors have many neighbors, and a sample takes much
    // memory.
    let mut random = Random::new(7, "uniform");
    let values: Vec<f64> = (0..5000 * 128).map(|k| if k % 128 < 6 { random.uniform() } else { 0.0 }).collect();
    let set = Set::of(Element::F32, 128, &values);
    let predicate = Predicate::L2 { eps: 0.45 };
    let built = Setup::default().with_buckets(60).build(&set).unwrap();
    let with = |memory| Setup { rule: Rule::Union, aim: JoinEffort::Recall(0.9), memory, ..Setup::default() };
    let found = [1 << 30, 59 << 20].map(|memory| built.join(&with(memory), predicate).unwrap().statistics);
    let [roomy, tight] = found;
    assert!(2 * roomy.join.pairs > 5000 * 64, "vectors have more neighbors than are noted: {:?}", roomy.join);
    let [of_roomy, of_tight] = [&roomy.common.strategy, &tight.common.strategy];
    assert_eq!(of_roomy.t, of_tight.t);
    assert_eq!(counts(&roomy), counts(&tight));
}

/// The pairs are encoded on several threads if memory suffices.
#[test]
fn many_pairs_are_written_whole_with_any_memory() {
    const ROWS: usize = 1_600;
    let built = Setup::default().with_buckets(40).build(&make(Shape::Uniform, Element::U8, ROWS, 8, 1)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (threads, memory) in [(1, 1 << 30), (2, 1 << 30), (3, 1 << 30), (2, 32 << 20)] {
        let path = folder.path().join("pairs.parquet");
        let setup = Setup { threads, memory, ..Setup::default() };
        let target = Target::File { path: path.clone(), force: true };
        let schema = PairSchema { ids: [IdKind::None; 2], metric: Metric::L2, of_two_sets: false };
        let sink = Box::new(PairWriter::create(&setup.context(), &target, schema).unwrap());
        let statistics = built.join_into(&setup, Predicate::L2 { eps: 1e4 }, sink).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap()).unwrap();
        let mut pairs: Vec<(u64, u64)> = Vec::new();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let ids = [0, 1].map(|column| batch.column(column).as_primitive::<UInt64Type>().clone());
            let [left, right]: [UInt64Array; 2] = ids;
            pairs.extend(left.values().iter().copied().zip(right.values().iter().copied()));
        }
        pairs.sort_unstable();
        let all = (0..ROWS as u64).flat_map(|left| (left + 1..ROWS as u64).map(move |right| (left, right)));
        assert!(pairs.iter().copied().eq(all), "{threads} threads, {memory} bytes: {} pairs", pairs.len());
        assert_eq!(statistics.join.pairs, pairs.len() as u64);
    }
}
