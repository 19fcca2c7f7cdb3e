//! Builds or joins with the same output that run at the same time, and runs that follow a killed one. In any order,
//! the output is one complete result, and a run that fails does not affect the others. A second build is refused
//! while the first one runs. Without file locks, both builds run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use adjoin::{
    BuildOptions, Context, Element, Error, IdKind, Metric, OwnFolder, PairBatch, PairSchema, PairSink, PairWriter,
    Result, SourceInfo, Store, Target, VectorBatch, VectorScan, VectorSource,
    device::{Device, FaultPlan, Keep, SimulatedDevice},
};

use crate::datasets::{Shape, make};
use crate::harness::{Set, Setup, error_of};

const STORE: &str = "data/store";

/// A set that runs an action at the end of its first scan.
struct Meanwhile<'a> {
    set: &'a Set,
    scans: AtomicU64,
    act: Mutex<Box<dyn FnMut() -> Result<()> + Send + 'a>>,
}

impl<'a> Meanwhile<'a> {
    fn new(set: &'a Set, act: impl FnMut() -> Result<()> + Send + 'a) -> Self {
        Self { set, scans: AtomicU64::new(0), act: Mutex::new(Box::new(act)) }
    }
}

impl VectorSource for Meanwhile<'_> {
    fn info(&self) -> &SourceInfo {
        self.set.info()
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        let is_first = self.scans.fetch_add(1, Ordering::Relaxed) == 0;
        Ok(Box::new(MeanwhileScan { source: self, scan: self.set.scan(batch_bytes)?, is_first }))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        self.set.scan_bytes(batch_bytes)
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        self.set.locate(row)
    }
}

struct MeanwhileScan<'s, 'a> {
    source: &'s Meanwhile<'a>,
    scan: Box<dyn VectorScan + 's>,
    is_first: bool,
}

impl VectorScan for MeanwhileScan<'_, '_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let batch = self.scan.next_batch()?;
        if batch.is_none() && std::mem::take(&mut self.is_first) {
            (self.source.act.lock().unwrap())()?;
        }
        Ok(batch)
    }
}

fn machine() -> (SimulatedDevice, Context) {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("data/unrelated", b"stays");
    let context = context_on(&device);
    (device, context)
}

fn machine_without_locks() -> (SimulatedDevice, Context) {
    let (device, context) = machine();
    device.refuse_locks();
    (device, context)
}

fn context_on(device: &SimulatedDevice) -> Context {
    Setup::default().context_on(Arc::new(device.clone()))
}

fn options(force: bool) -> BuildOptions {
    BuildOptions { force, buckets: Some(4), ..BuildOptions::default() }
}

/// Builds a store as a separate process would: with a budget of its own.
fn into_store(context: &Context, source: &dyn VectorSource, force: bool) -> Result<()> {
    let context = context.clone().with_memory(context.memory_bytes());
    Store::build(&context, source, Path::new(STORE), &options(force)).map(|_| ())
}

/// Returns the files of the store. Checks that it is sound and has no other files.
#[track_caller]
fn whole(device: &SimulatedDevice, context: &Context) -> BTreeMap<String, Vec<u8>> {
    let report = Store::verify(context, Path::new(STORE)).unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
    assert!(report.leftovers.is_empty(), "{:?}", report.leftovers);
    let names = device.list(Path::new(STORE)).unwrap().into_iter().map(|name| name.into_string().unwrap());
    names.map(|name| (name.clone(), device.bytes(Path::new(STORE).join(&name)).unwrap())).collect()
}

/// Returns the files of a store that is built from a set while no other build runs.
fn alone(set: &Set) -> BTreeMap<String, Vec<u8>> {
    let (device, context) = machine();
    into_store(&context, set, false).unwrap();
    whole(&device, &context)
}

fn sets() -> [Set; 2] {
    [make(Shape::Clustered, Element::F32, 90, 3, 1), make(Shape::Uniform, Element::U8, 70, 5, 2)]
}

#[test]
fn a_concurrent_build_into_a_folder_is_refused() {
    let [one, other] = sets();
    for (there, force) in [(false, false), (true, true)] {
        let (device, context) = machine();
        if there {
            into_store(&context, &other, false).unwrap();
        }
        let scanned = Meanwhile::new(&other, || panic!("it is refused before it reads anything twice"));
        let second = || {
            let error = error_of(into_store(&context, &scanned, force));
            let said = "data/store is being written by process 1 on a simulated host; wait until it is done, or choose \
                        another folder";
            assert_eq!(error.to_string(), said);
            assert_eq!(scanned.scans.load(Ordering::Relaxed), 0);
            Ok(())
        };
        into_store(&context, &Meanwhile::new(&one, second), force).unwrap();
        assert!(whole(&device, &context) == alone(&one));
        into_store(&context, &other, true).unwrap();
        assert!(whole(&device, &context) == alone(&other), "the lock is given back");
    }
}

#[test]
fn a_stale_lock_file_neither_blocks_a_build_nor_is_left_over() {
    let [one, other] = sets();
    let (device, context) = machine();
    device.put("data/store/writer.lock", b"process 1 on host a since 2020-01-01 00:00:00 UTC");
    into_store(&context, &one, false).unwrap();
    assert!(whole(&device, &context) == alone(&one));
    device.put("data/store/writer.lock", b"process 1 on host a since 2020-01-01 00:00:00 UTC");
    let report = Store::verify(&context, Path::new(STORE)).unwrap();
    assert!(report.is_sound() && report.leftovers.is_empty(), "{:?}", report.leftovers);
    into_store(&context, &other, true).unwrap();
    assert!(whole(&device, &context) == alone(&other));
}

/// Checks that all leftovers of killed runs are removed. Folders of running processes and of unknown owners are kept.
#[test]
fn only_folders_of_ended_processes_are_removed() {
    let [one, _] = sets();
    let (device, context) = machine();
    device.put("data/store/.adjoin-build-17-0.partial/vectors.bin", b"of a build that was killed");
    device.put("data/store/.adjoin-build-17-0.partial/owner.lock", b"");
    device.put("data/store/.adjoin-build-17-1.removed/vectors.bin", b"of a build that was killed as it ended");
    device.create_folder(Path::new("data/store/.adjoin-rows-17-0.partial")).unwrap();
    device.put("data/store/vectors-0123456789abcdef.bin", b"of a build that was killed as it ended");
    into_store(&context, &one, false).unwrap();
    assert!(whole(&device, &context) == alone(&one));

    let beside =
        ["data/.adjoin-result-x-0.partial", "data/.adjoin-17-0.store", "data/other-1-0.partial", "data/.adjoin-"];
    for folder in beside {
        device.put(Path::new(folder).join("owner.lock"), b"not ours");
    }
    device.put("data/.adjoin-result-17-0.partial/result", b"without a lock: perhaps of a run where there are none");
    let living = OwnFolder::create(&context.device, Path::new("data"), "store").unwrap();
    let another = OwnFolder::create(&context.device, Path::new("data"), "store").unwrap();
    assert_ne!(living.path(), another.path());
    drop(another);
    let mut left = beside.map(|path| OsString::from(path.trim_start_matches("data/"))).to_vec();
    left.extend([".adjoin-result-17-0.partial", "store", "unrelated"].map(OsString::from));
    left.push(living.path().file_name().unwrap().to_owned());
    left.sort();
    assert_eq!(device.list(Path::new("data")).unwrap(), left);

    // Simulates the death of the process that holds the lock.
    let later = device.after_crash(Keep::Everything);
    drop(OwnFolder::create(&context_on(&later).device, Path::new("data"), "result").unwrap());
    left.retain(|name| !living.path().ends_with(name));
    assert_eq!(later.list(Path::new("data")).unwrap(), left);
}

#[test]
fn nothing_is_removed_if_locks_are_unsupported() {
    let (device, context) = machine_without_locks();
    device.put("data/.adjoin-result-17-0.partial/owner.lock", b"");
    device.create_folder(Path::new("data/.adjoin-result-17-1.partial")).unwrap();
    let folder = OwnFolder::create(&context.device, Path::new("data"), "result").unwrap();
    assert!(device.list(folder.path()).unwrap().is_empty());
    drop(folder);
    let names = [".adjoin-result-17-0.partial", ".adjoin-result-17-1.partial", "unrelated"];
    assert_eq!(device.list(Path::new("data")).unwrap(), names);
}

/// Checks that a folder is kept if it is created while another run removes leftovers.
#[test]
fn concurrent_threads_create_their_own_folders() {
    let folder = tempfile::tempdir().unwrap();
    let context = Context::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let own = OwnFolder::create(&context.device, folder.path(), "store").unwrap();
                    let file = own.path().join("file");
                    std::fs::write(&file, b"ours").unwrap();
                    std::thread::yield_now();
                    assert_eq!(std::fs::read(&file).unwrap(), b"ours");
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_second_of_two_builds_fails_without_force() {
    let [one, other] = sets();
    for second in [&one, &other] {
        let (device, context) = machine_without_locks();
        let first_to_publish = || into_store(&context, &other, false);
        let error = error_of(into_store(&context, &Meanwhile::new(second, first_to_publish), false));
        assert!(error.to_string().contains("data/store is already a store"), "{error}");
        assert!(whole(&device, &context) == alone(&other), "also where both have the same vectors");
    }
}

#[test]
fn the_second_of_two_builds_replaces_the_first_with_force() {
    let [one, other] = sets();
    for (third, second) in [(&one, &other), (&other, &one), (&one, &one)] {
        let (device, context) = machine_without_locks();
        into_store(&context, third, false).unwrap();
        let first_to_publish = || into_store(&context, &other, true);
        into_store(&context, &Meanwhile::new(second, first_to_publish), true).unwrap();
        assert!(whole(&device, &context) == alone(second));
    }
}

#[test]
fn a_failed_build_does_not_affect_a_concurrent_one() {
    let [one, other] = sets();
    for set in [&one, &other] {
        let (device, context) = machine_without_locks();
        let publish_and_fail = || {
            into_store(&context, &other, false)?;
            Err(Error::device("the source has failed"))
        };
        let error = error_of(into_store(&context, &Meanwhile::new(set, publish_and_fail), false));
        assert_eq!(error.to_string(), "the source has failed");
        assert!(whole(&device, &context) == alone(&other));
    }
}

/// Checks that a folder is kept if the build that created it fails while another build writes into it.
#[test]
fn a_failed_build_keeps_a_folder_that_another_build_uses() {
    let [one, other] = sets();
    let (device, context) = machine_without_locks();
    let fail_while_another_is_at_work = || {
        let outer = Meanwhile::new(&other, || {
            let inner = Meanwhile::new(&one, || Err(Error::device("the source has failed")));
            error_of(into_store(&context, &inner, false));
            Ok(())
        });
        into_store(&context, &outer, false)?;
        Err(Error::device("the source has failed"))
    };
    error_of(into_store(&context, &Meanwhile::new(&one, fail_while_another_is_at_work), false));
    assert!(whole(&device, &context) == alone(&other));
}

#[test]
fn leftovers_of_a_killed_build_do_not_block_the_next() {
    let [one, _] = sets();
    let (device, context) = machine();
    device.put("data/store/.adjoin-build-17-0.partial/rows", b"of a build that was killed");
    device.put("data/store/vectors-0123456789abcdef.bin", b"of a build that was killed");
    into_store(&context, &one, false).unwrap();
    let report = Store::verify(&context, Path::new(STORE)).unwrap();
    assert!(report.is_sound());
    assert_eq!(report.leftovers, [".adjoin-build-17-0.partial", "vectors-0123456789abcdef.bin"]);
    device.put("data/other/letter", b"dear");
    let error = error_of(Store::build(&context, &one, Path::new("data/other"), &options(true)));
    assert!(error.to_string().contains("files that are not a store"), "{error}");
}

#[test]
fn concurrent_results_replace_the_first_only_with_force() {
    for (force, left_row) in [(false, 1), (true, 2)] {
        let (device, context) = machine();
        let target = Target::File { path: "data/pairs.csv".into(), force };
        let schema = PairSchema { ids: [IdKind::None; 2], metric: Metric::L2, of_two_sets: false };
        let mut sinks = [1, 2].map(|_| Box::new(PairWriter::create(&context, &target, schema).unwrap()));
        for (row, sink) in [1, 2].into_iter().zip(&mut sinks) {
            let mut batch = PairBatch::new(IdKind::None);
            (batch.left_rows, batch.right_rows, batch.values) = (vec![row], vec![9], vec![0.5]);
            sink.accept(&batch).unwrap();
        }
        let [first, second] = sinks;
        first.finish().unwrap();
        let second = second.finish();
        assert_eq!(second.is_ok(), force);
        let wanted = format!("left_id,right_id,distance\n{left_row},9,0.5\n");
        assert_eq!(device.bytes("data/pairs.csv").unwrap(), wanted.as_bytes());
        assert_eq!(device.list(Path::new("data")).unwrap(), ["pairs.csv", "unrelated"]);
    }
}
