//! Sizes that a collection reports, compared with the files on disk.

use std::path::Path;

use adjoin::{
    Collection, Durability,
    device::{Device, Operation, SimulatedDevice},
    lab::collection::Put,
};

use super::{LIVE, Model, context_on, device, set};

/// Returns the total size of all files below a folder with `part` in their path, in bytes. Manifests are not
/// counted.
fn bytes_of(device: &SimulatedDevice, at: &Path, part: &str) -> u64 {
    let names = device.list(at).unwrap();
    let bytes = |path: &Path| match device.bytes(path) {
        Some(bytes) if path.to_str().unwrap().contains(part) && !path.ends_with("manifest.json") => bytes.len() as u64,
        Some(_) => 0,
        None => bytes_of(device, path, part),
    };
    names.iter().map(|name| bytes(&at.join(name))).sum()
}

/// Returns the number of bytes that operations from number `first` on have written.
fn written_since(device: &SimulatedDevice, first: usize) -> u64 {
    let operations = device.operations();
    operations[first..].iter().filter(|of| of.operation == Operation::Write).map(|of| of.bytes).sum()
}

#[test]
fn statistics_match_the_files_on_disk() {
    let device = device();
    let context = &context_on(&device);
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    let opened = collection.statistics().unwrap();
    assert_eq!((opened.ingested_bytes, opened.written_bytes, opened.write_amplification), (0, 0, None));
    assert_eq!(opened.write_ms, None);
    let first = device.operations().len();
    let rows: Model = (0..30).map(|id| (id, [id as u8, 1, 2])).collect();
    for _ in 0..3 {
        collection.load(&set(&rows), Put::Upsert, Durability::Group).unwrap();
    }
    let written = collection.statistics().unwrap();
    // A row takes 11 bytes: 8 for the id and 3 for the vector.
    assert_eq!((written.ingested_bytes, written.facts.deleted), (3 * 30 * 11, 60));
    assert_eq!(written.written_bytes, written_since(&device, first));
    assert_eq!(written.written_bytes, written.facts.log_bytes);
    assert_eq!(written.facts.log_bytes, bytes_of(&device, Path::new(LIVE), "log-"));
    assert_eq!((written.index_bytes, written.dead_bytes, written.last_merge), (0, 60 * 3, None));
    let latency = written.write_ms.expect("there were three writes");
    assert!([latency.p50, latency.p99, latency.p999, latency.max].is_sorted(), "{latency:?}");
    let amplified = written.written_bytes as f64 / written.ingested_bytes as f64;
    assert!(written.unmerged_bytes > 3 * 30 * 11 && written.write_amplification == Some(amplified));
    let merge = collection.merge(context).unwrap();
    let merged = collection.statistics().unwrap();
    assert_eq!((merged.last_merge, merged.dead_bytes, merged.facts.unmerged), (Some(merge), 0, 0));
    assert!(merged.unmerged_bytes < written.unmerged_bytes && merge.rows == 30);
    let of_index = bytes_of(&device, Path::new(LIVE), "index-") + bytes_of(&device, Path::new(LIVE), "places-");
    assert_eq!(merged.index_bytes, of_index);
    // The statistics do not count four manifests: of the store, of the index, and two of the collection.
    let really = written_since(&device, first);
    assert!((really - 8_000..=really).contains(&merged.written_bytes), "{} of {really}", merged.written_bytes);
    // A third of the rows on disk is replaced.
    let some: Model = rows.into_iter().take(10).collect();
    collection.load(&set(&some), Put::Upsert, Durability::Group).unwrap();
    let replaced = collection.statistics().unwrap();
    assert_eq!(replaced.dead_bytes, replaced.index_bytes / 3);
    collection.close().unwrap();
    let reader = Collection::open_read_only(context, Path::new(LIVE)).unwrap().statistics().unwrap();
    assert_eq!((reader.last_merge, reader.write_amplification, reader.facts.deleted), (None, None, 10));
    assert_eq!((reader.index_bytes, reader.dead_bytes), (replaced.index_bytes, replaced.dead_bytes));
}
