//! Where temporary files are created. Nothing may be written into the folder of a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{
    BuildOptions, Element, KeepRule, Predicate, Store, Target,
    device::{FaultPlan, FileSystem, LoggedOperation, Operation, Recorder, SimulatedDevice, Trace},
    lab::{sink::Keep, store::TemporaryStore},
};

use crate::datasets::{Shape, make};
use crate::faults;
use crate::harness::{Set, Setup, error_of};

/// Operations that change names or contents of files.
const WRITES: [Operation; 8] = [
    Operation::Create,
    Operation::Write,
    Operation::Sync,
    Operation::Rename,
    Operation::Remove,
    Operation::CreateFolder,
    Operation::RemoveFolder,
    Operation::Lock,
];

/// Checks that planning writes nothing into the folder of the store, which may be on a read-only medium.
#[test]
fn planning_writes_nothing_into_the_store_folder() {
    let set = make(Shape::Uniform, Element::U8, 3_000, 4, 1);
    let setup = Setup { memory: 35 << 20, ..Setup::default() };
    let built = Setup::default().with_buckets(500).build(&set).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let trace = scratch.path().join("trace");
    let recorder = Arc::new(Recorder::create(Arc::new(FileSystem::detect().0), &trace).unwrap());
    let context = setup.context_on(recorder.clone()).or_temporary(scratch.path());
    let store = Store::open(&context, &built.path()).unwrap();
    // At this threshold, all buckets are near each other.
    setup.join_options(Predicate::L2 { eps: 1_000.0 }).prepare(&context, &store, false).unwrap();
    recorder.finish().unwrap();
    let trace = Trace::parse(&std::fs::read(trace).unwrap()).unwrap();
    let writes = trace.operations().iter().filter(|asked| WRITES.contains(&asked.operation));
    let written: Vec<&Path> = writes.map(|asked| trace.name(asked.file)).collect();
    let spilled = |path: &&&Path| path.to_string_lossy().contains(".adjoin-edges-");
    assert!(written.iter().filter(spilled).count() > 5, "edges stay in memory: {written:?}");
    assert!(written.iter().all(|path| path.starts_with(scratch.path())), "{written:?}");
}

/// Returns the folders in which temporary folders for `what` were created.
fn made_for(log: &[LoggedOperation], what: &str) -> Vec<PathBuf> {
    let start = format!(".adjoin-{what}-");
    let made = log.iter().filter(|operation| operation.operation == Operation::CreateFolder);
    made.filter(|operation| operation.path.file_name().unwrap().to_string_lossy().starts_with(&start))
        .map(|operation| operation.path.parent().unwrap().to_owned())
        .collect()
}

#[test]
fn spilled_data_is_written_to_the_temporary_folder() {
    for place in [None, Some(Path::new("scratch"))] {
        let device = SimulatedDevice::new(FaultPlan::None);
        device.put("scratch/mine", b"stays");
        device.put("data/mine", b"stays");
        let mut context = faults::spilling().context_on(Arc::new(device.clone()));
        if let Some(folder) = place {
            context = context.with_temporary(folder).unwrap();
        }
        let options = BuildOptions { buckets: Some(6), ..BuildOptions::default() };
        Store::build(&context, &faults::large(1), Path::new("data/store"), &options).unwrap();
        let log = device.operations();
        for what in ["rows", "sample", "ids"] {
            let folders = made_for(&log, what);
            let is_right = |folder: &PathBuf| match place {
                Some(place) => folder == place,
                None => folder.to_string_lossy().starts_with("data/store/.adjoin-build-"),
            };
            assert!(!folders.is_empty() && folders.iter().all(is_right), "{what} in {folders:?}");
        }
        assert_eq!(made_for(&log, "build"), [Path::new("data/store")]);
        assert_eq!(device_list(&device, "scratch"), ["mine"]);
        assert_eq!(device_list(&device, "data/store").len(), 4);
    }
}

#[test]
fn temporary_files_of_a_join_are_in_the_temporary_folder() {
    let set = Set::of(Element::U8, 1, &[3.0; 300]).with_ids(&(0..300).collect::<Vec<_>>());
    for (named, folder) in [(None, "data"), (Some(Path::new("scratch")), "scratch")] {
        let device = SimulatedDevice::new(FaultPlan::None);
        device.put("scratch/mine", b"stays");
        device.put("data/mine", b"stays");
        let setup = Setup { threads: 1, memory: 67 << 20, ..Setup::default() };
        let mut context = setup.context_on(Arc::new(device.clone()));
        if let Some(folder) = named {
            context = context.with_temporary(folder).unwrap();
        }
        let context = context.or_temporary(Path::new("data"));
        let (temporary, _) = TemporaryStore::build(&context, &set, &BuildOptions::default()).unwrap();
        let store = Store::open(&context, temporary.folder()).unwrap();
        let options = setup.join_options(Predicate::L2 { eps: 1.0 });
        let target = Target::File { path: "data/gone.csv".into(), force: false };
        let sink = Box::new(Keep::create(&context, &store, KeepRule::Greedy, Some(&target), None, 0).unwrap());
        let prepared = options.prepare(&context, &store, false).unwrap();
        prepared.run(&context, &store, sink).unwrap();
        drop((store, temporary));
        let log = device.operations();
        assert_eq!(made_for(&log, "store"), [Path::new(folder)]);
        let sorted = made_for(&log, "sorted");
        assert!(!sorted.is_empty() && sorted.iter().all(|at| at == Path::new(folder)), "{sorted:?}");
        assert_eq!(device_list(&device, "scratch"), ["mine"]);
        assert_eq!(device_list(&device, "data"), ["gone.csv", "mine"]);
    }
}

#[test]
fn refuses_unwritable_temporary_folders() {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("data/file", b"");
    let refused = |folder: &str| {
        let context = Setup::default().context_on(Arc::new(device.clone()));
        error_of(context.with_temporary(Path::new(folder))).to_string()
    };
    assert_eq!(refused("none"), "temporary none does not exist; create that folder first");
    assert_eq!(refused("data/file"), "temporary data/file is not a folder; name one");
    let next = device.operations().len() as u64;
    device.set_plan(FaultPlan::Fail { at: next + 1, kind: std::io::ErrorKind::ReadOnlyFilesystem });
    let said = refused("data");
    assert!(said.starts_with("temporary data cannot be written; name another folder ("), "{said}");
    assert_eq!(device_list(&device, "data"), ["file"]);
}

fn device_list(device: &SimulatedDevice, folder: &str) -> Vec<String> {
    let names = adjoin::device::Device::list(device, Path::new(folder)).unwrap();
    names.into_iter().map(|name| name.into_string().unwrap()).collect()
}
