//! Open stores do not change. If a store is opened while it is replaced, the result is the old or the new store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use adjoin::{
    Element, ErrorKind, IdKind, Predicate, Store,
    device::Device,
    lab::store::{
        Role,
        format::{BucketFacts, HEADER_BYTES, checksum, decode_bucket},
    },
};
use adjoin_device::{DeviceError, FileKind, FileSystem, Lock, ReadFile, ReadQueue, WriteFile};

use crate::datasets::{Shape, make};
use crate::harness::{Built, Set, Setup, error_of};

fn old() -> Set {
    make(Shape::Clustered, Element::F32, 300, 4, 1)
}

fn new() -> Set {
    make(Shape::Clustered, Element::F32, 200, 6, 2)
}

fn forced() -> Setup {
    let mut setup = Setup::default().with_buckets(8);
    setup.build.force = true;
    setup
}

fn replace(path: &Path) {
    let setup = forced();
    Store::build(&setup.context(), &new(), path, &setup.build).unwrap();
}

#[test]
fn open_readers_keep_a_replaced_store() {
    let (setup, predicate) = (forced(), Predicate::l2(0.3).unwrap());
    let built = setup.build(&old()).unwrap();
    let before = built.join(&setup, predicate).unwrap().pairs;
    replace(&built.path());
    assert_eq!(built.join(&setup, predicate).unwrap().pairs, before);
    let now = Store::open(&setup.context(), &built.path()).unwrap();
    assert_eq!((built.store.manifest().rows, now.manifest().rows), (300, 200));
}

/// A device that replaces the store just before a given file is opened.
struct Replacing {
    device: FileSystem,
    before: Mutex<Option<&'static str>>,
    store: PathBuf,
}

impl Replacing {
    fn new(built: &Built, before: &'static str) -> Arc<Self> {
        let (device, _) = FileSystem::detect();
        Arc::new(Self { device, before: Mutex::new(Some(before)), store: built.path() })
    }
}

impl Device for Replacing {
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>, DeviceError> {
        let name = path.file_name().unwrap().to_str().unwrap();
        if self.before.lock().unwrap().take_if(|start| name.starts_with(*start)).is_some() {
            replace(&self.store);
        }
        self.device.open(path)
    }

    fn name(&self) -> &'static str {
        self.device.name()
    }

    fn kind(&self, path: &Path) -> Result<Option<FileKind>, DeviceError> {
        self.device.kind(path)
    }

    fn list(&self, folder: &Path) -> Result<Vec<OsString>, DeviceError> {
        self.device.list(folder)
    }

    fn read_queue(&self, depth: usize) -> Result<Box<dyn ReadQueue>, DeviceError> {
        self.device.read_queue(depth)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>, DeviceError> {
        self.device.create(path)
    }

    fn create_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.device.create_folder(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DeviceError> {
        self.device.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<(), DeviceError> {
        self.device.remove(path)
    }

    fn remove_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.device.remove_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> Result<(), DeviceError> {
        self.device.sync_folder(path)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64, DeviceError> {
        self.device.free_bytes(path)
    }

    fn lock(&self, path: &Path) -> Result<Lock, DeviceError> {
        self.device.lock(path)
    }
}

#[test]
fn opening_a_store_during_a_replacement_gives_one_of_the_two() {
    let setup = forced();
    for before in ["manifest", "centers-", "buckets-", "vectors-"] {
        let built = setup.build(&old()).unwrap();
        let store = Store::open(&setup.context_on(Replacing::new(&built, before)), &built.path()).unwrap();
        assert_eq!(store.manifest().rows, 200, "{before}");
        let built = setup.build(&old()).unwrap();
        let report = Store::verify(&setup.context_on(Replacing::new(&built, before)), &built.path()).unwrap();
        assert!(report.is_sound() && report.leftovers.is_empty(), "{before}: {report:?}");
    }
}

/// Changes the row number of the last row of a bucket. Corrects the checksums, and removes the tag from the file
/// name.
fn forge_row(built: &Built, row: u64) {
    let mut manifest = built.store.manifest().clone();
    let path = built.path().join(&manifest.files[Role::Vectors].name);
    let mut bytes = std::fs::read(&path).unwrap();
    let extent = built.store.extents()[2];
    let (start, end) = (extent.offset as usize, (extent.offset + extent.body_bytes) as usize);
    bytes[end - 8..end].copy_from_slice(&row.to_le_bytes());
    let body = checksum(&bytes[start + HEADER_BYTES..end]);
    bytes[start + 16..start + 24].copy_from_slice(&body.to_le_bytes());
    let header = checksum(&bytes[start..start + HEADER_BYTES - 8]);
    bytes[start + HEADER_BYTES - 8..start + HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
    let facts = BucketFacts { vectors: manifest.vectors, ids: IdKind::None, source_rows: u64::MAX, is_sorted: false };
    assert!(decode_bucket(2, &facts, &extent, &bytes[start..end]).is_ok() || row == 0, "its checksums are right");
    manifest.files[Role::Vectors].name = "vectors.bin".into();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(built.path().join("vectors.bin"), bytes).unwrap();
    std::fs::write(built.path().join("manifest.json"), manifest.encode()).unwrap();
}

#[test]
fn invalid_row_numbers_are_detected_by_joins_and_verify() {
    let (setup, predicate) = (forced(), Predicate::l2(0.3).unwrap());
    for row in [300, 1 << 40, u64::MAX - 1, 0] {
        let built = setup.build(&old()).unwrap();
        forge_row(&built, row);
        let report = Store::verify(&setup.context(), &built.path()).unwrap();
        assert_eq!((report.damage_count, report.damages[0].bucket), (1, Some(2)), "{row}: {report:?}");
        assert!(report.damages[0].fault.contains("row numbers do not ascend, or are not below the 300 rows"));
        let (device, _) = FileSystem::detect();
        let error = error_of(built.join_on(Arc::new(device), &setup, predicate));
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("bucket 2: its row numbers do not ascend"), "{error}");
    }
}
