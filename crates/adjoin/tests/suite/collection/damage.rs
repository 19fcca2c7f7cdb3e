//! Collections with damaged files. An error must name the damage, and no acknowledged write may be lost silently.

use std::path::{Path, PathBuf};

use adjoin::{
    Collection, Durability, ErrorKind, Random,
    device::{Device, Keep, SimulatedDevice},
};

use super::{LIVE, Model, Step, content, context_on, device};

/// Creates a collection with a merge and later writes, and closes it. Returns the device and the content.
fn closed() -> (SimulatedDevice, Model) {
    let device = device();
    let context = &context_on(&device);
    let (mut model, mut random) = (Model::new(), Random::new(4, "writes"));
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    for round in 0..30 {
        let step = Step::draw(&mut random, &model);
        step.apply(&mut model);
        step.write(&collection, Durability::Group).unwrap();
        if round == 15 {
            collection.merge(context).unwrap();
        }
    }
    collection.close().unwrap();
    (device, model)
}

/// Returns the files of a collection, except for its index on disk, which `index::verify` checks.
fn files(device: &SimulatedDevice) -> Vec<PathBuf> {
    let names = device.list(Path::new(LIVE)).unwrap();
    let paths: Vec<PathBuf> = names.iter().map(|name| Path::new(LIVE).join(name)).collect();
    paths.into_iter().filter(|path| device.bytes(path).is_some()).collect()
}

/// Checks a collection in which one file is changed: it is refused with the name of that file, or it is complete.
/// Returns whether it was refused.
fn check(device: &SimulatedDevice, model: &Model, path: &Path, bytes: &[u8]) -> bool {
    let changed = device.after_crash(Keep::Everything);
    changed.put(path, bytes);
    let context = &context_on(&changed);
    match Collection::verify(context, Path::new(LIVE)) {
        Ok(report) => {
            assert!(report.is_sound());
            let collection = Collection::open(context, Path::new(LIVE)).unwrap();
            assert_eq!(&content(context, &collection).unwrap(), model, "{}", path.display());
            false
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains(LIVE), "{said}");
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Input), "{said}");
            true
        }
    }
}

#[test]
fn flipped_bytes_of_a_collection_are_detected_or_harmless() {
    let (device, model) = closed();
    let files = files(&device);
    assert_eq!(files.len(), 3, "{files:?}");
    for path in files {
        let bytes = device.bytes(&path).unwrap();
        let flipped = (0..bytes.len()).filter(|&at| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            check(&device, &model, &path, &bytes)
        });
        // Only damage to the last record of the log may remain unnoticed. This record states that all others are
        // durable.
        let (found, bytes) = (flipped.count(), bytes.len());
        assert!(found + 64 >= bytes, "{}: {found} of {bytes}", path.display());
    }
}

#[test]
fn truncated_and_missing_files_are_reported() {
    let (device, model) = closed();
    for path in files(&device) {
        let bytes = device.bytes(&path).unwrap();
        for len in [0, 1, 63, 64, bytes.len() / 2, bytes.len() - 1] {
            let is_log = path.to_str().unwrap().contains("log-");
            // A loss of power may truncate the log, so a log that ends early is not damaged.
            assert!(is_log && len >= 64 || check(&device, &model, &path, &bytes[..len]), "{} {len}", path.display());
        }
        let without = device.after_crash(Keep::Everything);
        without.remove(&path).unwrap();
        let error = Collection::verify(&context_on(&without), Path::new(LIVE)).unwrap_err().to_string();
        assert!(error.contains(LIVE), "{error}");
    }
}
