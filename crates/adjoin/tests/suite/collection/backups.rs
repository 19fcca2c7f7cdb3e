//! Copies of a collection. Is their content right, and which files remain after a failure?

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use adjoin::{
    Collection, Context, Durability, Error, Folder, IdKind, Ids, Metric, Random, Write,
    device::{Device, FaultPlan, Keep, SimulatedDevice},
};

use super::{LIVE, Model, Step, VECTORS, content, context_on, device, options, set};
use crate::harness::{Setup, error_of};

const COPY: &str = "data/copy";

/// A way to copy a collection while no writer has it open.
type Copying = fn(&Context, &Path, &Path, bool) -> Result<(), Error>;

const COPYING: [Copying; 2] = [
    |context, from, to, force| Collection::backup(context, from, to, force).map(|_| ()),
    |context, from, to, force| Folder::copy(context, from, to, force).map(|_| ()),
];

/// Opens a collection read-only and returns its content.
fn found(device: &SimulatedDevice, live: &str) -> Result<Model, String> {
    let context = &context_on(device);
    let report = Collection::verify(context, Path::new(live)).map_err(|error| error.to_string())?;
    assert!(report.is_sound());
    let collection = Collection::open_read_only(context, Path::new(live)).unwrap();
    content(context, &collection)
}

#[test]
fn a_backup_has_the_current_rows_and_is_independent() {
    let device = device();
    let context = &context_on(&device);
    let (mut model, mut random) = (Model::new(), Random::new(6, "writes"));
    let copied = |number: usize| PathBuf::from(format!("data/copy-{number}"));
    // The collection has no log at first, later it has a log, and then an index too.
    Collection::backup(context, Path::new(LIVE), &copied(0), false).unwrap();
    assert_eq!(found(&device, "data/copy-0").unwrap(), model);
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    for round in 1..40 {
        let step = Step::draw(&mut random, &model);
        step.apply(&mut model);
        let written = step.write(&collection, Durability::Buffered).unwrap();
        if round % 7 == 0 {
            collection.merge(context).unwrap();
        }
        let done = Collection::backup(context, Path::new(LIVE), &copied(round), false).unwrap();
        assert!(done.rows == model.len() as u64 && done.sequence >= written.sequence && done.bytes > 0, "{done:?}");
        assert_eq!(found(&device, copied(round).to_str().unwrap()).unwrap(), model, "round {round}");
        // The copy is changed, merged and copied again. This must not affect the original.
        let copy = Collection::open(context, &copied(round)).unwrap();
        let (step, mut other) = (Step::draw(&mut random, &model), model.clone());
        step.apply(&mut other);
        step.write(&copy, Durability::Group).unwrap();
        copy.merge(context).unwrap();
        assert_eq!(content(context, &copy).unwrap(), other, "round {round}");
        copy.close().unwrap();
        Collection::backup(context, &copied(round), &copied(0), true).unwrap();
        assert_eq!(found(&device, "data/copy-0").unwrap(), other, "round {round}");
        assert_eq!(content(context, &collection).unwrap(), model, "round {round}");
        let after_a_loss_of_power = device.after_crash(Keep::Nothing);
        assert_eq!(found(&after_a_loss_of_power, "data/copy-0").unwrap(), other, "round {round}");
    }
    let names = device.list(Path::new("data")).unwrap();
    assert_eq!(names.len(), 42, "nothing else is left: {names:?}");
}

/// Adds all files below the folder `at` to `all`.
fn files(device: &SimulatedDevice, at: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for path in device.list(at).unwrap().iter().map(|name| at.join(name)) {
        match device.bytes(&path) {
            Some(bytes) => drop(all.insert(path, bytes)),
            None => files(device, &path, all),
        }
    }
}

fn files_of(device: &SimulatedDevice) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    files(device, Path::new("data"), &mut all);
    all
}

/// Returns the sizes of files. Their bytes cannot be compared, since the salt of a log is random.
fn sizes_of(device: &SimulatedDevice) -> BTreeMap<PathBuf, usize> {
    files_of(device).into_iter().map(|(path, bytes)| (path, bytes.len())).collect()
}

/// Creates a collection with rows on disk and in memory. If `copied` is true, also creates a copy of an older state
/// next to it. Returns the device, and the content of the collection and of the copy.
fn with_copy(copied: bool) -> (SimulatedDevice, [Model; 2]) {
    let device = device();
    let context = &context_on(&device);
    let (mut models, mut random) = ([Model::new(), Model::new()], Random::new(7, "writes"));
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    for round in 0..12 {
        let step = Step::draw(&mut random, &models[0]);
        step.apply(&mut models[0]);
        step.write(&collection, Durability::Group).unwrap();
        if round == 5 && copied {
            Collection::backup(context, Path::new(LIVE), Path::new(COPY), false).unwrap();
            models[1] = models[0].clone();
        }
        if round == 8 {
            collection.merge(context).unwrap();
        }
    }
    collection.close().unwrap();
    (device, models)
}

/// Checks that a failed operation leaves a complete copy or the old state, and no other files.
#[test]
fn a_failed_backup_leaves_no_files() {
    for (copied, by) in [false, true].into_iter().flat_map(|copied| COPYING.map(|by| (copied, by))) {
        let copy = |device: &SimulatedDevice| by(&context_on(device), Path::new(LIVE), Path::new(COPY), copied);
        let (device, [_, older]) = with_copy(copied);
        let first = device.operations().len();
        copy(&device).unwrap();
        let (after, operations) = (sizes_of(&device), device.operations().len() - first);
        assert!(operations > 40, "{operations}");
        for at in 0..operations as u64 {
            let (device, [now, _]) = with_copy(copied);
            let kind = if at % 2 == 0 { ErrorKind::StorageFull } else { ErrorKind::Other };
            device.set_plan(FaultPlan::Fail { at: first as u64 + at, kind });
            let done = copy(&device);
            device.set_plan(FaultPlan::None);
            assert_eq!(found(&device, LIVE).unwrap(), now, "operation {at}");
            match done {
                // If the last operations fail, the folder of the drafts may remain. The next run removes it.
                Ok(()) => assert_eq!(found(&device, COPY).unwrap(), now, "operation {at}"),
                Err(_) if copied => {
                    let there = found(&device, COPY).or_else(|_| found(&device, "data/copy.replaced")).unwrap();
                    assert!(there == older || there == now, "operation {at}");
                }
                Err(_) => {
                    let is_whole =
                        device.kind(Path::new(COPY)).unwrap().is_none() || found(&device, COPY).unwrap() == now;
                    assert!(is_whole, "operation {at}");
                }
            }
            by(&context_on(&device), Path::new(LIVE), Path::new(COPY), true).unwrap();
            assert_eq!(sizes_of(&device), after, "operation {at}");
        }
    }
}

#[test]
fn a_backup_is_atomic_under_power_loss() {
    for (copied, by) in [false, true].into_iter().flat_map(|copied| COPYING.map(|by| (copied, by))) {
        let (device, _) = with_copy(copied);
        let first = device.operations().len();
        by(&context_on(&device), Path::new(LIVE), Path::new(COPY), copied).unwrap();
        let operations = device.operations().len() - first;
        for at in 0..operations as u64 {
            let (device, [now, older]) = with_copy(copied);
            device.set_plan(FaultPlan::Crash { at: first as u64 + at });
            let done = by(&context_on(&device), Path::new(LIVE), Path::new(COPY), copied).is_ok();
            for keep in [Keep::Nothing, Keep::Everything, Keep::Names, Keep::Data] {
                let device = device.after_crash(keep);
                assert_eq!(found(&device, LIVE).unwrap(), now, "operation {at}, {keep:?}");
                match found(&device, COPY) {
                    Ok(there) => assert!(there == now || copied && !done && there == older, "operation {at}, {keep:?}"),
                    Err(why) => {
                        assert!(
                            !done && device.kind(Path::new(COPY)).unwrap().is_none(),
                            "operation {at}, {keep:?}: {why}"
                        );
                        // The crash was between two renames, so the older copy has another name.
                        assert!(
                            !copied || found(&device, "data/copy.replaced").unwrap() == older,
                            "operation {at}, {keep:?}"
                        );
                    }
                }
                // The next run succeeds without manual cleanup, and leaves no other files.
                by(&context_on(&device), Path::new(LIVE), Path::new(COPY), true).unwrap();
                assert_eq!(found(&device, COPY).unwrap(), now, "operation {at}, {keep:?}");
                assert_eq!(device.list(Path::new("data")).unwrap(), ["copy", "live", "unrelated"]);
            }
        }
    }
}

#[test]
fn harmful_copies_are_refused() {
    COPYING.into_iter().for_each(harmful_copies_are_refused_by);
}

fn harmful_copies_are_refused_by(by: Copying) {
    let (device, _) = with_copy(true);
    let context = &context_on(&device);
    let copy = |to: &str, force| error_of(by(context, Path::new(LIVE), Path::new(to), force)).to_string();
    let before = files_of(&device);
    for (to, force, words) in [
        (COPY, false, "data/copy is already a collection; give force to replace it"),
        (LIVE, true, "data/live is inside data/live, so it cannot be its copy"),
        ("data/live/copy", true, "is inside data/live"),
        ("data", true, "data holds files that are not a collection"),
        ("data/unrelated", true, "data/unrelated is a file, but a collection is a folder"),
        ("none/copy", false, "none does not exist, so it cannot hold none/copy"),
    ] {
        assert!(copy(to, force).contains(words), "{to}: {}", copy(to, force));
    }
    // A folder has the name that a backup would use, but no backup has created it.
    by(context, Path::new(LIVE), Path::new("data/copy.replaced"), false).unwrap();
    assert!(copy(COPY, true).contains("data/copy.replaced exists"), "{}", copy(COPY, true));
    assert!(found(&device, "data/copy.replaced").is_ok());
    device.remove_folder(Path::new("data/copy.replaced")).unwrap();
    let writer = Collection::open(context, Path::new(COPY)).unwrap();
    assert!(copy(COPY, true).contains("data/copy is being written by"), "{}", copy(COPY, true));
    drop(writer);
    device.set_free_bytes(100);
    assert!(copy("data/new", false).contains("data/new needs"), "{}", copy("data/new", false));
    assert!(files_of(&device) == before);
    // Changes a byte of a page or of a record.
    let changed = before.iter().filter(|(path, _)| path.starts_with(LIVE) && !path.ends_with("manifest.json"));
    for (path, bytes) in changed {
        let device = device.after_crash(Keep::Everything);
        let mut bytes = bytes.clone();
        let at = bytes.len().min(100) - 1;
        bytes[at] ^= 0x10;
        device.put(path, &bytes);
        let copied = by(&context_on(&device), Path::new(LIVE), Path::new("data/new"), false);
        assert!(copied.is_err() && device.kind(Path::new("data/new")).unwrap().is_none(), "{}", path.display());
    }
}

/// Copies a collection repeatedly during writes and merges. Checks that each copy has all rows that were acknowledged
/// before it began.
#[test]
fn backups_during_writes_and_merges_have_acknowledged_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (live, copy) = (folder.path().join("live"), folder.path().join("copy"));
    let context = Setup::default().context();
    Collection::create(&context, &live, &options(VECTORS, Metric::L2, IdKind::Int64)).unwrap();
    let collection = Collection::open(&context, &live).unwrap();
    let (last, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let vector = |id: i64| [(id % 251) as u8, (id / 251) as u8, 9];
    std::thread::scope(|scope| {
        let (collection, last, ended, live, copy) = (&collection, &last, &ended, &live, &copy);
        let writer = scope.spawn(move || {
            for id in 1..=300 {
                let (rows, gone) = (Model::from([(id, vector(id))]), Ids::Int64(vec![id - 50]));
                let write = Write { insert: Some(&set(&rows)), delete: Some(&gone), upsert: None };
                collection.write(&write, Durability::Buffered).unwrap();
                last.store(id as u64, Ordering::Release);
            }
        });
        scope.spawn(move || {
            while !ended.load(Ordering::Acquire) {
                let context = Setup::default().context();
                let before = last.load(Ordering::Acquire) as i64;
                Collection::backup(&context, live, copy, true).unwrap();
                let after = last.load(Ordering::Acquire) as i64 + 1;
                let copied = Collection::open_read_only(&context, copy).unwrap();
                let there = copied.get(&Ids::Int64((1..=after).collect())).unwrap();
                for (id, found) in (1..).zip(there) {
                    assert!(id > before - 50 || found.is_none(), "{id} of {before}");
                    assert!(id > before || id <= after - 50 || found == Some(vector(id).to_vec()), "{id} of {before}");
                }
            }
        });
        while !writer.is_finished() {
            collection.merge(&context).unwrap();
        }
        ended.store(true, Ordering::Release);
    });
}
