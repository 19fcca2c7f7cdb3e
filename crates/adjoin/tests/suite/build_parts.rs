//! Builds in parts. Any number of parts, run in any order and more than once, must give the bytes of one machine's store.
//! Parts that are missing, damaged or of another plan must be refused. A crash must leave nothing half-written.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{
    BuildOptions, BuildPlan, Metric, OnBad, OnDuplicateId, Random, Result, SourceOptions, Store,
    device::{FaultPlan, Keep, Pieces, SimulatedDevice},
    open_source,
};
use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use crate::harness::{Setup, error_of, files_of};

/// Number of operations at which a run crashes.
const MOMENTS: u64 = 40;
const DIMENSIONS: usize = 8;

/// A source in files, and the options of its build.
struct Case {
    folder: tempfile::TempDir,
    setup: Setup,
    sources: Vec<String>,
}

impl Case {
    fn new(setup: Setup, files: &[(&str, Vec<u8>)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, bytes)| fs::write(folder.path().join(name), bytes).unwrap());
        let sources = files.iter().map(|(name, _)| folder.path().join(name).display().to_string()).collect();
        Self { folder, setup, sources }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn one_machine(&self) -> PathBuf {
        let (context, store) = (self.setup.context(), self.path("one.store"));
        let source = open_source(&context, &self.sources, &SourceOptions::default()).unwrap();
        Store::build(&context, &*source, &store, &BuildOptions { force: true, ..self.setup.build.clone() }).unwrap();
        store
    }

    fn plan(&self, parts: u32) -> Result<BuildPlan> {
        let (options, path) = (SourceOptions::default(), self.path("plan"));
        let build = &self.setup.build;
        BuildPlan::create(&self.setup.context(), &self.sources, &options, build, parts, &path, true)
            .map(|(plan, _)| plan)
    }

    fn run(&self, plan: &BuildPlan, number: u32, force: bool) -> Result<bool> {
        Ok(plan.run_part(&self.setup.context(), number, &self.path("parts"), force)?.is_some())
    }

    fn run_all(&self, plan: &BuildPlan) {
        (1..=plan.parts().len() as u32).for_each(|number| assert!(self.run(plan, number, true).unwrap()));
    }

    fn part(&self, number: u32, parts: u32) -> PathBuf {
        self.path("parts").join(format!("part-{number:05}-of-{:05}", 2 * parts))
    }

    fn merge(&self, plan: &BuildPlan) -> Result<PathBuf> {
        let store = self.path("merged.store");
        let _ = fs::remove_dir_all(&store);
        let merged = plan.merge(&self.setup.context(), &self.path("parts"), &store, false);
        assert_eq!(store.exists(), merged.is_ok(), "a store appears only if all of it is there");
        merged.map(|_| store)
    }
}

/// Returns values in a few dense regions.
fn values(rows: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed, "values of a build in parts");
    let values = (0..rows).flat_map(|_| {
        let region = random.below(9) as f64;
        [0; DIMENSIONS].map(|_| (region * 20.0 + random.uniform() * 30.0) as f32)
    });
    values.collect()
}

fn counted(rows: usize, bytes: Vec<u8>) -> Vec<u8> {
    [(rows as u32).to_le_bytes().to_vec(), (DIMENSIONS as u32).to_le_bytes().to_vec(), bytes].concat()
}

fn u8bin(rows: usize, seed: u64) -> Vec<u8> {
    counted(rows, values(rows, seed).iter().map(|&value| value as u8).collect())
}

fn fbin(rows: usize, seed: u64) -> Vec<u8> {
    counted(rows, values(rows, seed).iter().flat_map(|value| value.to_le_bytes()).collect())
}

fn f16_npy(rows: usize, seed: u64) -> Vec<u8> {
    let header = format!("{{'descr': '<f2', 'fortran_order': False, 'shape': ({rows}, {DIMENSIONS}), }}");
    let header = format!("{header:<117}\n");
    let data = values(rows, seed).into_iter().flat_map(|value| half::f16::from_f32(value).to_le_bytes());
    [b"\x93NUMPY\x01\x00".to_vec(), (header.len() as u16).to_le_bytes().to_vec(), header.into_bytes(), data.collect()]
        .concat()
}

/// A table with text ids in no order, two columns, and a bad row. Its row groups do not end where parts end.
fn parquet(rows: usize, seed: u64, first_id: usize) -> Vec<u8> {
    let mut vectors = FixedSizeListBuilder::new(Float32Builder::new(), DIMENSIONS as i32);
    for (row, vector) in values(rows, seed).chunks(DIMENSIONS).enumerate() {
        vector.iter().for_each(|&value| vectors.values().append_value(value / 7.0));
        vectors.append(row != 17);
    }
    let ids = (0..rows).map(|row| format!("id {}", first_id + 10_000 - row)).collect::<Vec<_>>();
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(StringArray::from(ids))),
        ("vector", Arc::new(vectors.finish())),
        ("year", Arc::new(Int32Array::from_iter((0..rows).map(|row| (row % 5 > 0).then_some(row as i32 % 40))))),
        ("text", Arc::new(StringArray::from_iter((0..rows).map(|row| Some("word ".repeat(row % 30)))))),
    ];
    let table = RecordBatch::try_from_iter(columns).unwrap();
    let groups = WriterProperties::builder().set_max_row_group_row_count(Some(130)).build();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, table.schema(), Some(groups)).unwrap();
    writer.write(&table).unwrap();
    writer.close().unwrap();
    file
}

fn json_lines(rows: usize, seed: u64) -> Vec<u8> {
    let line = |(row, vector): (usize, &[f32])| format!("{{\"id\": {}, \"vector\": {vector:?}}}\n", 5_000 - row);
    values(rows, seed).chunks(DIMENSIONS).enumerate().map(line).collect::<String>().into_bytes()
}

/// Returns sources of every kind of elements and ids, in one or several files.
fn cases() -> Vec<(&'static str, Case)> {
    let setup = |buckets| Setup::default().with_buckets(buckets);
    let mut columns = setup(21).skipping_bad_rows().with_metric(Metric::Cosine);
    columns.build.attributes = vec!["text".into(), "year".into()];
    let mut products = setup(9);
    products.build.metric = Metric::Ip;
    let mut repeated = setup(12).skipping_bad_rows();
    repeated.build.on_duplicate_id = OnDuplicateId::Keep;
    vec![
        ("u8", Case::new(setup(30), &[("a.u8bin", u8bin(900, 1))])),
        ("f16", Case::new(setup(8), &[("a.npy", f16_npy(500, 2))])),
        ("f32 in three files", {
            Case::new(setup(40), &[("a.fbin", fbin(250, 3)), ("b.fbin", fbin(3, 4)), ("c.fbin", fbin(600, 5))])
        }),
        ("text ids and columns", {
            Case::new(columns, &[("a.parquet", parquet(700, 6, 0)), ("b.parquet", parquet(300, 7, 20_000))])
        }),
        ("repeated ids", Case::new(repeated, &[("a.parquet", parquet(300, 6, 0)), ("b.parquet", parquet(200, 7, 9))])),
        ("integer ids", Case::new(products, &[("a.jsonl", json_lines(400, 8))])),
        ("fewer rows than parts", Case::new(setup(2), &[("a.fbin", fbin(3, 9))])),
    ]
}

#[test]
fn any_number_of_parts_gives_the_store_of_one_machine() {
    let mut random = Random::new(1, "build in parts");
    for (what, case) in cases() {
        let one = files_of(&case.one_machine());
        for parts in [1, 2, 4] {
            let what = format!("{what}, {parts} parts");
            let plan = case.plan(parts).unwrap();
            let _ = fs::remove_dir_all(case.path("parts"));
            for phase in [1..=parts, parts + 1..=2 * parts] {
                let mut order: Vec<u32> = phase.collect();
                random.shuffle(&mut order);
                order.into_iter().for_each(|number| run_twice(&case, &plan, number, &what));
            }
            let merged = case.merge(&plan).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(files_of(&merged) == one, "{what}");
        }
    }
}

/// Runs a part twice, the second time with another number of threads and the least memory, and compares the bytes.
fn run_twice(case: &Case, plan: &BuildPlan, number: u32, what: &str) {
    let part = case.part(number, plan.parts().len() as u32 / 2);
    assert!(case.run(plan, number, false).unwrap(), "{what}");
    let first = fs::read(&part).unwrap();
    assert!(!case.run(plan, number, false).unwrap(), "{what}: a part that is done is not run again");
    let small = Setup { threads: 1, memory: 40 << 20, ..case.setup.clone() };
    let run = |setup: &Setup| plan.run_part(&setup.context(), number, &case.path("parts"), true);
    assert!(run(&small).unwrap().is_some());
    assert!(fs::read(&part).unwrap() == first, "{what}: part {number} has other bytes");
}

#[test]
fn a_budget_that_is_too_small_is_refused_with_one_that_suffices() {
    let case = Case::new(Setup::default().with_buckets(300), &[("a.fbin", fbin(20_000, 1))]);
    let one = files_of(&case.one_machine());
    let plan = case.plan(2).unwrap();
    for number in 1..=4 {
        let run = |memory| {
            let setup = Setup { memory, ..case.setup.clone() };
            plan.run_part(&setup.context(), number, &case.path("parts"), true)
        };
        let refused = error_of(run(18_100_000)).to_string();
        let before = refused.split("MB or more").next().unwrap();
        let digits = before.rfind(|letter: char| !letter.is_ascii_digit()).map_or(before, |at| &before[at + 1..]);
        let named = digits.parse::<u64>().unwrap_or_else(|_| panic!("no budget is named: {refused}"));
        assert!(run(named * 1_000_000).unwrap_or_else(|error| panic!("{refused}: {error}")).is_some());
    }
    assert!(files_of(&case.merge(&plan).unwrap()) == one);
}

fn small() -> (Case, BuildPlan) {
    let case = Case::new(Setup::default().with_buckets(9), &[("a.u8bin", u8bin(300, 1))]);
    let plan = case.plan(3).unwrap();
    (case, plan)
}

#[test]
fn parts_that_are_missing_or_damaged_are_named() {
    let (case, plan) = small();
    let refused = |result: Result<bool>, words: &str| {
        let error = error_of(result).to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(case.run(&plan, 5, false), "parts 1 to 3 read");
    assert!(case.run(&plan, 2, false).unwrap());
    refused(case.run(&plan, 5, false), "part 5 of 6 writes rows that parts 1 to 3 read: 2 of 6 parts missing in");
    refused(case.run(&plan, 5, false), "1, 3; run them first");
    case.run_all(&plan);
    for (damaged, reader) in [(2, 5), (5, 0)] {
        let part = case.part(damaged, 3);
        let whole = fs::read(&part).unwrap();
        let read = |words: &str| match reader {
            0 => refused(case.merge(&plan).map(|_| true), words),
            reader => refused(case.run(&plan, reader, true), words),
        };
        fs::remove_file(&part).unwrap();
        read("of 6 parts missing");
        for end in [0, 10, 20, 100, whole.len() / 2, whole.len() - 1] {
            fs::write(&part, &whole[..end]).unwrap();
            read("run that part again");
        }
        let mut changed = whole.clone();
        changed[whole.len() / 3] ^= 4;
        fs::write(&part, &changed).unwrap();
        assert!(case.run(&plan, damaged, false).unwrap(), "a damaged part is made again");
        assert!(fs::read(&part).unwrap() == whole);
        fs::copy(case.part(damaged + 1, 3), &part).unwrap();
        read("is a part of another plan");
        fs::write(&part, &whole).unwrap();
    }
    case.merge(&plan).unwrap();
}

#[test]
fn no_changed_byte_of_a_part_changes_the_store() {
    let (case, plan) = small();
    case.run_all(&plan);
    let one = files_of(&case.merge(&plan).unwrap());
    let written: Vec<Vec<u8>> = (4..=6).map(|number| fs::read(case.part(number, 3)).unwrap()).collect();
    for number in [1, 4] {
        let whole = fs::read(case.part(number, 3)).unwrap();
        for at in (0..whole.len()).step_by(97) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(case.part(number, 3), &changed).unwrap();
            if number == 4 {
                assert!(case.merge(&plan).map_or(true, |store| files_of(&store) == one), "byte {at} of part 4");
                continue;
            }
            for (number, expected) in (4..=6).zip(&written) {
                let done = case.run(&plan, number, true);
                assert!(done.is_err() || fs::read(case.part(number, 3)).unwrap() == *expected, "byte {at} of part 1");
                fs::write(case.part(number, 3), expected).unwrap();
            }
        }
        fs::write(case.part(number, 3), &whole).unwrap();
    }
}

#[test]
fn changed_sources_and_other_plans_are_refused() {
    let (case, plan) = small();
    case.run_all(&plan);
    let path = case.path("plan");
    let whole = fs::read(&path).unwrap();
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        error_of(BuildPlan::read(&case.setup.context(), &path)).to_string()
    };
    let mut newer = whole.clone();
    newer[8] += 1;
    assert!(read(&newer).contains("newer than the version"));
    assert!(read(&whole[..whole.len() - 5]).contains("is damaged"));
    assert!(read(b"something else").contains("is not the plan of a build"));
    fs::write(&path, &whole).unwrap();
    for text in ["0/6", "7/6", "1/3", "1", "a/b"] {
        assert!(plan.part_number(text).is_err(), "{text}");
    }
    assert_eq!(plan.part_number("2/6").unwrap(), 2);
    assert!(case.plan(3).is_ok() && fs::read(&path).unwrap() == whole, "an equal plan has equal bytes");
    let other = case.plan(2).unwrap();
    assert!(error_of(case.merge(&other)).to_string().contains("2 of 4 parts missing"));
    fs::write(case.path("a.u8bin"), u8bin(300, 2)).unwrap();
    let error = error_of(case.run(&plan, 1, true)).to_string();
    assert!(error.contains("a.u8bin has changed since") && error.contains("plan again"), "{error}");
}

#[test]
fn options_that_parts_do_not_support_are_refused() {
    let (mut case, _) = small();
    assert!(error_of(case.plan(0)).to_string().contains("give 1 to"));
    case.setup.build.sort_by = Some("year".into());
    assert!(error_of(case.plan(2)).to_string().contains("not supported for a build in parts"));
    case.setup.build = BuildOptions { attributes: vec!["year".into()], on_bad: OnBad::Skip, ..BuildOptions::default() };
    assert!(case.plan(2).is_err(), "the file has no columns");
}

#[test]
fn a_part_or_a_merge_after_a_crash_has_the_same_bytes() {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("/data/set.fbin", &fbin(400, 4));
    let setup = Setup { threads: 1, ..Setup::default() }.with_buckets(9);
    let context = |device: &SimulatedDevice| setup.context_on(Arc::new(device.clone()));
    let [plan_file, parts, store] = ["/data/plan", "/data/parts", "/data/store"].map(Path::new);
    let sources = [String::from("/data/set.fbin")];
    let plan = |device: &SimulatedDevice| {
        let options = SourceOptions::default();
        BuildPlan::create(&context(device), &sources, &options, &setup.build, 2, plan_file, true).map(|(plan, _)| plan)
    };
    let run = |device: &SimulatedDevice, number| -> Result<()> {
        BuildPlan::read(&context(device), plan_file)?.run_part(&context(device), number, parts, false).map(|_| ())
    };
    let merge = |device: &SimulatedDevice| -> Result<()> {
        BuildPlan::read(&context(device), plan_file)?.merge(&context(device), parts, store, true).map(|_| ())
    };
    plan(&device).unwrap();
    let part = |number| parts.join(format!("part-{number:05}-of-00004"));
    for step in 1..=5_u32 {
        let work = |device: &SimulatedDevice| if step == 5 { merge(device) } else { run(device, step) };
        let result =
            |device: &SimulatedDevice| device.bytes(&if step == 5 { store.join("manifest.json") } else { part(step) });
        let undisturbed = device.after_crash(Keep::Everything);
        let before = undisturbed.operations().len() as u64;
        work(&undisturbed).unwrap();
        let operations = undisturbed.operations().len() as u64 - before;
        let expected = result(&undisturbed).unwrap();
        assert!(operations > MOMENTS / 4, "{operations}");
        for at in (0..operations).step_by((operations / MOMENTS).max(1) as usize) {
            let crashed = device.after_crash(Keep::Everything);
            crashed.set_plan(FaultPlan::Crash { at });
            let _ = work(&crashed);
            for keep in [Keep::Nothing, Keep::Everything, Keep::Seeded { seed: at, pieces: Pieces::Whole }] {
                let restarted = crashed.after_crash(keep);
                let before = result(&restarted);
                assert!(
                    before.is_none_or(|bytes| bytes == expected),
                    "step {step} is whole or missing: {at}, {keep:?}"
                );
                work(&restarted).unwrap();
                assert!(result(&restarted).as_ref() == Some(&expected), "step {step}, {at}, {keep:?}");
                assert!(step < 5 || Store::open(&context(&restarted), store).is_ok(), "{at}, {keep:?}");
            }
        }
        work(&device).unwrap();
    }
}
