//! Several builds, or joins, into one place at the same time: whoever comes first or last, what is there is one whole
//! result, and whoever fails takes nothing from the others.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use adjoin::context::Context;
use adjoin::device::{Device, FaultPlan, SimulatedDevice};
use adjoin::error::{Error, Result};
use adjoin::options::{Element, Metric};
use adjoin::output::Target;
use adjoin::sink::{PairBatch, PairSchema, PairSink, PairWriter};
use adjoin::source::{IdKind, SourceInfo, VectorScan, VectorSource};
use adjoin::store::{BuildOptions, build, verify};

use crate::datasets::{Shape, make};
use crate::harness::{Set, Setup, error_of};

const STORE: &str = "data/store";

/// A set during whose second scan, of two, something else happens.
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
        if self.scans.fetch_add(1, Ordering::Relaxed) == 1 {
            (self.act.lock().unwrap())()?;
        }
        self.set.scan(batch_bytes)
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        self.set.scan_bytes(batch_bytes)
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        self.set.locate(row)
    }
}

fn machine() -> (SimulatedDevice, Context) {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("data/unrelated", b"stays");
    let context = Setup::default().context_on(Arc::new(device.clone()));
    (device, context)
}

fn options(force: bool) -> BuildOptions {
    BuildOptions { force, buckets: Some(4), ..BuildOptions::default() }
}

fn into_store(context: &Context, source: &dyn VectorSource, force: bool) -> Result<()> {
    build(context, source, Path::new(STORE), &options(force)).map(|_| ())
}

/// The files of the store, which is whole and has nothing beside it.
#[track_caller]
fn whole(device: &SimulatedDevice, context: &Context) -> BTreeMap<String, Vec<u8>> {
    let report = verify(context, Path::new(STORE)).unwrap();
    assert!(report.is_sound(), "{:?}", report.damages);
    assert!(report.leftovers.is_empty(), "{:?}", report.leftovers);
    let names = device.list(Path::new(STORE)).unwrap().into_iter().map(|name| name.into_string().unwrap());
    names.map(|name| (name.clone(), device.bytes(Path::new(STORE).join(&name)).unwrap())).collect()
}

/// The store that a set makes when nobody disturbs it.
fn alone(set: &Set) -> BTreeMap<String, Vec<u8>> {
    let (device, context) = machine();
    into_store(&context, set, false).unwrap();
    whole(&device, &context)
}

fn sets() -> [Set; 2] {
    [make(Shape::Clustered, Element::F32, 90, 3, 1), make(Shape::Uniform, Element::U8, 70, 5, 2)]
}

#[test]
fn a_build_that_comes_second_replaces_nothing_without_force() {
    let [one, other] = sets();
    for second in [&one, &other] {
        let (device, context) = machine();
        let first_to_publish = || into_store(&context, &other, false);
        let error = error_of(into_store(&context, &Meanwhile::new(second, first_to_publish), false));
        assert!(error.to_string().contains("data/store is a store already"), "{error}");
        assert!(whole(&device, &context) == alone(&other), "also where both have the same vectors");
    }
}

#[test]
fn a_build_that_comes_second_replaces_all_with_force() {
    let [one, other] = sets();
    for (third, second) in [(&one, &other), (&other, &one), (&one, &one)] {
        let (device, context) = machine();
        into_store(&context, third, false).unwrap();
        let first_to_publish = || into_store(&context, &other, true);
        into_store(&context, &Meanwhile::new(second, first_to_publish), true).unwrap();
        assert!(whole(&device, &context) == alone(second));
    }
}

#[test]
fn a_build_that_fails_takes_nothing_from_another() {
    let [one, other] = sets();
    for set in [&one, &other] {
        let (device, context) = machine();
        let publish_and_fail = || {
            into_store(&context, &other, false)?;
            Err(Error::device("the source has failed"))
        };
        let error = error_of(into_store(&context, &Meanwhile::new(set, publish_and_fail), false));
        assert_eq!(error.to_string(), "the source has failed");
        assert!(whole(&device, &context) == alone(&other));
    }
}

/// The one that made the folder ends first, with an error, while another writes into it.
#[test]
fn a_folder_stays_while_another_build_is_in_it() {
    let [one, other] = sets();
    let (device, context) = machine();
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
fn what_a_killed_build_left_is_no_obstacle() {
    let [one, _] = sets();
    let (device, context) = machine();
    device.put("data/store/build-17-0.partial/rows", b"of a build that was killed");
    device.put("data/store/vectors-0123456789abcdef.bin", b"of a build that was killed");
    into_store(&context, &one, false).unwrap();
    let report = verify(&context, Path::new(STORE)).unwrap();
    assert!(report.is_sound());
    assert_eq!(report.leftovers, ["build-17-0.partial", "vectors-0123456789abcdef.bin"]);
    device.put("data/other/letter", b"dear");
    let error = error_of(build(&context, &one, Path::new("data/other"), &options(true)));
    assert!(error.to_string().contains("something that is no store"), "{error}");
}

#[test]
fn results_at_once_are_each_whole_and_the_first_is_not_replaced_without_force() {
    for (force, left_row) in [(false, 1), (true, 2)] {
        let (device, context) = machine();
        let target = Target::File { path: "data/pairs.csv".into(), force };
        let schema = PairSchema { ids: IdKind::None, metric: Metric::L2 };
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
        let wanted = format!("left,right,distance\n{left_row},9,0.5\n");
        assert_eq!(device.bytes("data/pairs.csv").unwrap(), wanted.as_bytes());
        assert_eq!(device.list(Path::new("data")).unwrap(), ["pairs.csv", "unrelated"]);
    }
}
