//! Joins of a source that can be resumed. The disk loses power or fails at every operation. The next run must
//! continue and produce equal bytes. Damaged checkpoints must be noticed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{
    BuildOptions, Conditions, ErrorKind, Job, Metric, Output, Predicate, Random, Result, SourceOptions, Target,
    device::{Device, FaultPlan, FileKind, Keep, Pieces, SimulatedDevice},
};

use crate::harness::Setup;

const RESULT: &str = "data/pairs.csv";
const KEPT: &str = "data/.adjoin-pairs.csv.resume";
/// Number of operations at which the run is interrupted. `ADJOIN_EVERY_FAULT` selects all.
const MOMENTS: usize = 25;
/// Number of bytes that are damaged: by default, and with `ADJOIN_EVERY_FAULT`.
const DAMAGES: (u64, u64) = (60, 3_000);

fn every_fault() -> bool {
    std::env::var_os("ADJOIN_EVERY_FAULT").is_some()
}

/// Returns a device with a source.
fn device() -> SimulatedDevice {
    let mut random = Random::new(1, "resumed");
    let (rows, dimensions) = (400u32, 4u32);
    let values = (0..rows * dimensions).flat_map(|_| (random.uniform() as f32).to_le_bytes());
    let bytes: Vec<u8> = [rows, dimensions].into_iter().flat_map(u32::to_le_bytes).chain(values).collect();
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("data/set.fbin", &bytes);
    device
}

/// Runs the join, which is divided into legs with a checkpoint after each. Returns how many legs earlier runs had
/// completed.
fn work(device: &SimulatedDevice, force: bool, resume: bool) -> Result<u64> {
    let setup = Setup { threads: 1, ..Setup::default() };
    let context = setup.context_on(Arc::new(device.clone())).or_temporary(Path::new("data"));
    let inputs = ["data/set.fbin".to_owned()];
    let target = Target::File { path: PathBuf::from(RESULT), force };
    let job = Job {
        inputs: &inputs,
        with: &[],
        new: &[],
        source: SourceOptions::default(),
        build: BuildOptions { metric: Metric::L2, buckets: Some(12), ..BuildOptions::default() },
        conditions: Conditions::default(),
        columns: &[],
        join: setup.join_options(Predicate::L2 { eps: 0.2 }),
        resume: resume.then(|| target.clone()),
        output: Output::Pairs(Some(target)),
        yes: true,
    };
    let opened = job.open(&context)?;
    Ok(job.run(&context, &opened)?.resume.map_or(0, |resume| resume.legs_done_before))
}

/// Runs the join undisturbed, with and without checkpoints. Returns the number of operations and the result.
fn undisturbed() -> (u64, Vec<u8>) {
    let [plain, kept] = [device(), device()];
    work(&plain, false, false).unwrap();
    work(&kept, false, true).unwrap();
    assert!(plain.bytes(Path::new(RESULT)) == kept.bytes(Path::new(RESULT)));
    assert_eq!(kept.list(Path::new("data")).unwrap(), ["pairs.csv", "set.fbin"]);
    (kept.operations().len() as u64, kept.bytes(Path::new(RESULT)).unwrap())
}

fn moments(operations: u64) -> impl Iterator<Item = u64> {
    let step = if every_fault() { 1 } else { operations.div_ceil(MOMENTS as u64) };
    (0..operations).step_by(step as usize)
}

/// Runs the join again and checks the result. Returns how many legs earlier runs had completed.
#[track_caller]
fn goes_on(device: &SimulatedDevice, expected: &[u8], what: &str) -> u64 {
    let is_there = device.kind(Path::new(RESULT)).unwrap().is_some();
    let done = work(device, is_there, true).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(device.bytes(Path::new(RESULT)).as_deref() == Some(expected), "{what}: another result");
    assert_eq!(device.kind(Path::new(KEPT)).unwrap(), None, "{what}");
    done
}

#[test]
fn a_run_resumes_after_a_loss_of_power() {
    let (operations, wanted) = undisturbed();
    let mut done = 0;
    for at in moments(operations) {
        let crashed = device();
        crashed.set_plan(FaultPlan::Crash { at });
        if work(&crashed, true, true).is_ok() {
            continue; // the order of operations depends on threads
        }
        let seeded = Keep::Seeded { seed: at, pieces: Pieces::Whole };
        for keep in [Keep::Nothing, Keep::Everything, Keep::Names, Keep::Data, seeded] {
            let what = format!("a crash before operation {at}, {keep:?}");
            done += goes_on(&crashed.after_crash(keep), &wanted, &what);
        }
    }
    assert!(done > 100, "runs go on with what was kept: {done} legs");
}

#[test]
fn a_run_resumes_after_a_failed_operation() {
    let (operations, wanted) = undisturbed();
    let mut done = 0;
    for at in moments(operations) {
        let failing = device();
        failing.set_plan(FaultPlan::Fail { at, kind: std::io::ErrorKind::StorageFull });
        let _ = work(&failing, true, true);
        failing.set_plan(FaultPlan::None);
        done += goes_on(&failing, &wanted, &format!("after operation {at} failed"));
    }
    assert!(done > 20, "runs go on with what was kept: {done} legs");
}

/// Returns all files in a folder and its subfolders.
fn files(device: &SimulatedDevice, folder: &Path) -> Vec<PathBuf> {
    let paths = device.list(folder).unwrap().into_iter().map(|name| folder.join(name));
    let inner = |path: PathBuf| match device.kind(&path).unwrap() {
        Some(FileKind::Folder) => files(device, &path),
        _ => vec![path],
    };
    paths.flat_map(inner).collect()
}

#[test]
fn damaged_checkpoints_are_detected_or_harmless() {
    let (operations, wanted) = undisturbed();
    let mut random = Random::new(2, "damages");
    let (mut refused, mut gone_on) = (0, 0);
    for number in 0..if every_fault() { DAMAGES.1 } else { DAMAGES.0 } {
        let crashed = device();
        crashed.set_plan(FaultPlan::Crash { at: operations / 8 * (2 + number % 6) });
        let _ = work(&crashed, false, true);
        let kept = crashed.after_crash(Keep::Everything);
        if kept.kind(Path::new(KEPT)).unwrap().is_none() {
            continue;
        }
        let files = files(&kept, Path::new(KEPT));
        let path = &files[random.below(files.len() as u64) as usize];
        let mut bytes = kept.bytes(path).unwrap();
        if bytes.is_empty() {
            continue;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(4) {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 1 << random.below(8),
        }
        kept.put(path, &bytes);
        let what = format!("{} at byte {at}", path.display());
        match work(&kept, false, true) {
            Ok(_) => gone_on += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
                refused += 1;
                if kept.kind(Path::new(KEPT)).unwrap().is_some() {
                    let again = work(&kept, false, true).unwrap_err().to_string();
                    assert!(again.contains("give force to start again"), "{what}: {again}");
                }
            }
        }
        work(&kept, true, true).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(kept.bytes(Path::new(RESULT)) == Some(wanted.clone()), "{what}: another result");
    }
    println!("{refused} refused, {gone_on} gone on with");
    assert!(refused > 10 && gone_on > 0);
}
