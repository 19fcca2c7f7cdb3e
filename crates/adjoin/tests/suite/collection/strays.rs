//! Files in the folder of a collection that the collection did not write or did not complete.

use std::path::{Path, PathBuf};

use adjoin::{Collection, Durability, ErrorKind, device::Device, lab::collection::Put};

use super::{LIVE, Model, content, context_on, device, set};
use crate::harness::error_of;

fn log(first: u64) -> PathBuf {
    Path::new(LIVE).join(format!("log-{first:016x}.bin"))
}

/// Returns one row for each id of a range.
fn rows(ids: std::ops::Range<i64>) -> Model {
    ids.map(|id| (id, [id as u8; 3])).collect()
}

#[test]
fn log_files_without_records_are_harmless() {
    for merged in [false, true] {
        for bytes in [0, 1, 63] {
            for zeros in [false, true] {
                let device = device();
                let context = &context_on(&device);
                let collection = Collection::open(context, Path::new(LIVE)).unwrap();
                collection.load(&set(&rows(0..3)), Put::Insert, Durability::Group).unwrap();
                if merged {
                    collection.merge(context).unwrap();
                    collection.load(&set(&rows(3..5)), Put::Insert, Durability::Group).unwrap();
                }
                let (next, there) = (collection.facts().sequence + 1, content(context, &collection).unwrap());
                drop(collection);
                device.put(log(next), &vec![if zeros { 0 } else { 7 }; if zeros { 100 * bytes } else { bytes }]);
                let report = Collection::verify(context, Path::new(LIVE)).unwrap();
                assert_eq!(report.leftovers, [log(next).file_name().unwrap().to_str().unwrap()]);
                for round in 0..3 {
                    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
                    let mut wanted = there.clone();
                    wanted.extend(rows(10..10 + round));
                    assert_eq!(content(context, &collection).unwrap(), wanted);
                    let one = set(&rows(10 + round..11 + round));
                    collection.load(&one, Put::Insert, Durability::Group).unwrap();
                }
            }
        }
    }
}

/// Checks a log file if the records that precede it are lost. The name of the file states which records these are.
#[test]
fn a_log_file_after_lost_records_is_damage() {
    let device = device();
    let context = &context_on(&device);
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    collection.load(&set(&rows(0..3)), Put::Insert, Durability::Group).unwrap();
    let next = collection.facts().sequence + 1;
    drop(collection);
    device.put(log(next + 1), b"");
    let refused = error_of(Collection::open(context, Path::new(LIVE)));
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("its header is damaged"), "{refused}");
}

#[test]
fn foreign_files_are_listed_and_not_changed() {
    let device = device();
    let context = &context_on(&device);
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    collection.load(&set(&rows(0..9)), Put::Insert, Durability::Group).unwrap();
    collection.merge(context).unwrap();
    drop(collection);
    let names = device.list(Path::new(LIVE)).unwrap();
    let index =
        names.iter().find_map(|name| name.to_str().filter(|name| name.starts_with("index-"))).unwrap().to_owned();
    let mut strangers = Vec::new();
    for folder in ["", &index] {
        for name in [
            ".DS_Store",
            ".manifest.json.swp",
            ".nfs000000000001",
            "log-0000000000000001.bin (conflicted copy)",
            "log-0000000000000001.bin~",
            "log-1.bin",
            "manifest.json.part",
            "manifest.json~",
            "pages (1).bin",
        ] {
            let path = Path::new(folder).join(name);
            device.put(Path::new(LIVE).join(&path), b"");
            strangers.push(path.to_str().unwrap().to_owned());
        }
    }
    let report = Collection::verify(context, Path::new(LIVE)).unwrap();
    assert_eq!((report.strangers, report.leftovers), (strangers.clone(), Vec::new()));
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    assert_eq!(content(context, &collection).unwrap(), rows(0..9));
    collection.load(&set(&rows(9..12)), Put::Insert, Durability::Group).unwrap();
    Collection::backup(context, Path::new(LIVE), Path::new("data/copy"), false).unwrap();
    assert!(Collection::verify(context, Path::new("data/copy")).unwrap().strangers.is_empty());
    drop(collection);
    assert!(strangers.iter().all(|path| device.bytes(Path::new(LIVE).join(path)).is_some()));
}
