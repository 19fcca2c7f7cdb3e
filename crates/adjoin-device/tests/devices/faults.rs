//! Tests of the simulator's faults, and of the bugs that a checker must find with them. The canaries are programs
//! that forget a sync. A checker that accepts them is broken.

use std::io::ErrorKind;
use std::path::Path;

use adjoin_device::{Device, DeviceError, FaultPlan, Keep, Operation, Pieces, SimulatedDevice};

use crate::harness::pattern;

const CONFIG: &str = "config";
const DRAFT: &str = "config.draft";

fn path(name: &str) -> &Path {
    Path::new(name)
}

/// Steps of a safe replacement that a program leaves out.
#[derive(Clone, Copy, Default)]
struct Forgets {
    file_sync: bool,
    folder_sync: bool,
    draft: bool,
}

/// Replaces a file. If no step is left out, the new contents are durable when this returns.
fn replace(device: &SimulatedDevice, bytes: &[u8], forgets: Forgets) -> Result<(), DeviceError> {
    let draft = if forgets.draft { CONFIG } else { DRAFT };
    let mut file = device.create(path(draft))?;
    for piece in bytes.chunks(3_000) {
        file.append(piece)?;
    }
    if !forgets.file_sync {
        file.sync()?;
    }
    if !forgets.draft {
        device.rename(path(DRAFT), path(CONFIG))?;
    }
    if !forgets.folder_sync {
        device.sync_folder(path(""))?;
    }
    Ok(())
}

/// Returns the selections of surviving changes to test. They are all simple ones and 20 seeds for each unit.
fn ways_to_keep(device: &SimulatedDevice) -> Vec<Keep> {
    let mut ways = vec![Keep::Nothing, Keep::Everything, Keep::Names, Keep::Data];
    ways.extend((0..device.unsynced()).flat_map(|i| [Keep::AllBut(i), Keep::Only(i)]));
    let pieces = [Pieces::Whole, Pieces::Sectors, Pieces::Blocks];
    ways.extend((0..20).flat_map(|seed| pieces.map(|pieces| Keep::Seeded { seed, pieces })));
    ways
}

/// Replaces a file once for each operation and fault, with a crash before the operation or a torn write during it.
/// Returns a description of the first loss.
fn find_loss(forgets: Forgets) -> Option<String> {
    let (old, new) = (pattern(5_000), [1, 2, 3].repeat(3_000));
    for at in 0.. {
        for plan in [FaultPlan::Crash { at }, FaultPlan::Torn { at, sectors: 0 }, FaultPlan::Torn { at, sectors: 3 }] {
            let device = SimulatedDevice::new(plan);
            device.put(CONFIG, &old);
            let done = replace(&device, &new, forgets);
            assert_eq!(done.is_err(), device.crashed());
            for keep in ways_to_keep(&device) {
                let found = device.after_crash(keep).bytes(CONFIG);
                let whole = found.as_ref() == Some(&new) || (done.is_err() && found.as_ref() == Some(&old));
                if !whole {
                    return Some(format!("{plan:?}, {keep:?}: {:?} bytes", found.map(|found| found.len())));
                }
            }
            if done.is_ok() {
                return None;
            }
        }
    }
    unreachable!("some run meets no fault")
}

#[test]
fn a_replacement_that_syncs_file_and_folder_survives_every_crash() {
    assert_eq!(find_loss(Forgets::default()), None);
}

#[test]
fn canary_a_forgotten_sync_of_the_file_is_caught() {
    assert!(find_loss(Forgets { file_sync: true, ..Forgets::default() }).is_some());
}

#[test]
fn canary_a_forgotten_sync_of_the_folder_is_caught() {
    assert!(find_loss(Forgets { folder_sync: true, ..Forgets::default() }).is_some());
}

#[test]
fn canary_writing_over_the_file_itself_is_caught() {
    assert!(find_loss(Forgets { draft: true, ..Forgets::default() }).is_some());
}

#[test]
fn a_rename_may_be_durable_before_the_data() {
    let device = SimulatedDevice::new(FaultPlan::None);
    let forgets = Forgets { file_sync: true, ..Forgets::default() };
    replace(&device, b"bytes", forgets).unwrap();
    assert_eq!(device.after_crash(Keep::Nothing).bytes(CONFIG), Some(Vec::new()));
    assert_eq!(device.after_crash(Keep::Everything).bytes(CONFIG), Some(b"bytes".to_vec()));
}

#[test]
fn injected_errors_name_the_failed_operation() {
    let kinds = [ErrorKind::Other, ErrorKind::StorageFull, ErrorKind::PermissionDenied];
    let count = {
        let device = SimulatedDevice::new(FaultPlan::None);
        replace(&device, &pattern(9_000), Forgets::default()).unwrap();
        device.operations().len() as u64
    };
    assert_eq!(count, 1 + 3 + 1 + 1 + 1);
    for (at, kind) in (0..count).flat_map(|at| kinds.map(|kind| (at, kind))) {
        let device = SimulatedDevice::new(FaultPlan::Fail { at, kind });
        let error = replace(&device, &pattern(9_000), Forgets::default()).unwrap_err();
        let log = device.operations();
        assert_eq!((log.len() as u64, error.source.kind()), (at + 1, kind));
        let last = log.last().unwrap();
        assert_eq!((last.number, last.operation, &last.path), (at, error.operation, &error.path));
        assert!(!device.crashed());
    }
}

#[test]
fn a_short_transfer_is_an_error() {
    let device = SimulatedDevice::new(FaultPlan::Short { at: 1 });
    let mut file = device.create(path("file")).unwrap();
    assert_eq!(file.append(&[7; 1_000]).unwrap_err().source.kind(), ErrorKind::WriteZero);
    assert!(file.append(b"more").is_err() && file.sync().is_err(), "after an error nothing more is written");
    drop(file);
    assert_eq!(device.bytes("file").unwrap(), [7; 500]);

    device.put("whole", &[8; 1_000]);
    let file = device.open(path("whole")).unwrap();
    device.set_plan(FaultPlan::Short { at: device.operations().len() as u64 });
    let mut buffer = [0; 1_000];
    assert_eq!(file.read_at(0, &mut buffer).unwrap_err().source.kind(), ErrorKind::UnexpectedEof);
    assert_eq!((buffer[499], buffer[500]), (8, 0));
    assert!(file.read_at(0, &mut buffer).is_ok());
}

#[test]
fn a_torn_write_leaves_whole_sectors_and_a_crashed_device() {
    for sectors in 0..6 {
        let device = SimulatedDevice::new(FaultPlan::Torn { at: 4, sectors });
        let mut file = device.create(path("file")).unwrap();
        file.append(&[1; 100]).unwrap();
        file.sync().unwrap();
        device.sync_folder(path("")).unwrap();
        assert!(file.append(&[2; 2_000]).is_err());
        assert!(device.crashed() && device.list(path("")).is_err() && device.open(path("file")).is_err());
        let found = device.after_crash(Keep::Nothing).bytes("file").unwrap();
        assert_eq!(found.len() as u64, 100 + (512 * sectors).min(2_000));
        assert!(found[..100] == [1; 100] && found[100..].iter().all(|byte| *byte == 2));
        assert_eq!(device.operations().last().unwrap().operation, Operation::Write);
    }
}

#[test]
fn a_crash_keeps_or_loses_aligned_pieces_of_unsynced_bytes() {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("file", b"");
    let mut file = device.create(path("file")).unwrap();
    file.append(&[3; 700]).unwrap();
    file.append(&[3; 9_000]).unwrap();
    for (pieces, bytes) in [(Pieces::Sectors, 512), (Pieces::Blocks, 4_096)] {
        let mut mixed = 0;
        for seed in 0..50 {
            let found = device.after_crash(Keep::Seeded { seed, pieces }).bytes("file").unwrap();
            // Each unit of a write is present or all zeros. The first write ends at byte 700, where the second one
            // starts.
            let uniform = |range: &[u8]| range.windows(2).all(|pair| pair[0] == pair[1]);
            let halves = |(i, part): (usize, &[u8])| {
                let (first, second) = part.split_at(700usize.saturating_sub(i * bytes).min(part.len()));
                [first.to_vec(), second.to_vec()]
            };
            let parts: Vec<Vec<u8>> = found.chunks(bytes).enumerate().flat_map(halves).collect();
            assert!(parts.iter().all(|part| uniform(part)), "seed {seed}");
            mixed += u32::from(found.contains(&0) && found.contains(&3));
        }
        assert!(mixed > 10, "{mixed} of 50 seeds lose something in the middle");
    }
    let same = Keep::Seeded { seed: 9, pieces: Pieces::Sectors };
    assert_eq!(device.after_crash(same).bytes("file"), device.after_crash(same).bytes("file"));
}

#[test]
fn operations_that_depend_on_a_lost_name_are_lost() {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.create_folder(path("folder")).unwrap();
    drop(device.create(path("folder/a")).unwrap());
    device.rename(path("folder/a"), path("folder/b")).unwrap();
    let found = device.after_crash(Keep::AllBut(1));
    assert!(found.list(path("folder")).unwrap().is_empty());
    let found = device.after_crash(Keep::AllBut(2));
    assert_eq!(found.list(path("folder")).unwrap(), ["a"]);
    device.sync_folder(path("folder")).unwrap();
    assert_eq!(device.unsynced(), 1, "a folder's own name belongs to its parent");
    assert!(device.after_crash(Keep::Nothing).list(path("")).unwrap().is_empty());
    device.sync_folder(path("")).unwrap();
    assert_eq!(device.after_crash(Keep::Nothing).list(path("folder")).unwrap(), ["b"]);
}

#[test]
fn a_durable_rename_makes_its_prerequisites_durable() {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("to/there", b"");
    device.create_folder(path("from")).unwrap();
    drop(device.create(path("from/a")).unwrap());
    device.rename(path("from/a"), path("to/a")).unwrap();
    device.sync_folder(path("to")).unwrap();
    let found = device.after_crash(Keep::Nothing);
    assert_eq!(found.list(path("to")).unwrap(), ["a", "there"]);
    assert!(device.after_crash(Keep::Everything).list(path("from")).unwrap().is_empty());
}

#[test]
fn a_removal_is_undone_unless_the_folder_was_synced() {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("folder/inner/file", b"bytes");
    device.remove_folder(path("folder")).unwrap();
    assert!(device.bytes("folder/inner/file").is_none());
    assert_eq!(device.after_crash(Keep::Nothing).bytes("folder/inner/file").unwrap(), b"bytes");
    assert_eq!(device.after_crash(Keep::Only(0)).list(path("folder/inner")).unwrap().len(), 0);
    device.sync_folder(path("")).unwrap();
    assert!(device.after_crash(Keep::Nothing).list(path("")).unwrap().is_empty());
}

#[test]
fn simulated_devices_import_and_export_real_folders() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(from.path().join("a/b")).unwrap();
    std::fs::write(from.path().join("a/b/file"), b"bytes").unwrap();
    std::fs::write(from.path().join("empty"), b"").unwrap();
    let device = SimulatedDevice::new(FaultPlan::None);
    device.import(from.path(), path("here")).unwrap();
    assert!(device.operations().is_empty() && device.unsynced() == 0);
    device.export(path("here"), to.path()).unwrap();
    assert_eq!(std::fs::read(to.path().join("a/b/file")).unwrap(), b"bytes");
    assert!(to.path().join("empty").is_file());
}
