//! Checks that `Store::verify` finds a flipped bit in any byte of any file, and names the damaged part.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use adjoin::{
    Context, Element, ErrorKind, Folder, Random, Result, Store,
    lab::store::StoreManifest,
    lab::store::StoreVerifyReport,
    lab::store::{
        Damage, DamagedPart, Role,
        format::{EXTENT_ALIGNMENT, Extent},
    },
};
use adjoin_device::{Device, DeviceError, FileKind, Lock, Operation, ReadFile, ReadQueue, WriteFile};

use crate::datasets::{Shape, make};
use crate::harness::{Built, Setup, error_of, files_of};

/// A file in memory. Reading it may fail.
#[derive(Clone, Default)]
struct File {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// If set, the file has no content that can be read, but reports this length.
    hollow_bytes: Option<u64>,
    fails: bool,
}

/// Files of a store in memory, so that they can be damaged many thousand times.
#[derive(Clone, Default)]
struct Files {
    folder: PathBuf,
    files: BTreeMap<String, File>,
}

impl Files {
    fn of(built: &Built) -> Self {
        let file = |bytes: Vec<u8>| File { bytes: Arc::new(Mutex::new(bytes)), ..File::default() };
        let files = files_of(&built.path()).into_iter().map(|(name, bytes)| (name, file(bytes))).collect();
        Self { folder: built.path(), files }
    }

    fn name(&self, start: &str) -> String {
        self.files.keys().find(|name| name.starts_with(start)).unwrap().clone()
    }

    fn len(&self, name: &str) -> usize {
        self.files[name].bytes.lock().unwrap().len()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        self.files[name].bytes.lock().unwrap().clone()
    }

    fn flip(&self, name: &str, at: usize, bit: u32) {
        self.files[name].bytes.lock().unwrap()[at] ^= 1 << bit;
    }

    /// Replaces the file `name` by `bytes`, and verifies.
    fn with(&self, name: &str, bytes: Vec<u8>) -> Result<StoreVerifyReport> {
        let mut files = self.clone();
        files.files.insert(name.into(), File { bytes: Arc::new(Mutex::new(bytes)), ..File::default() });
        files.verify()
    }

    fn context(&self) -> Context {
        let mut context = Setup::default().context().with_memory(67 << 20);
        context.device = Arc::new(self.clone());
        context
    }

    fn verify(&self) -> Result<StoreVerifyReport> {
        Store::verify(&self.context(), &self.folder)
    }
}

impl Device for Files {
    fn open(&self, path: &Path) -> std::result::Result<Arc<dyn ReadFile>, DeviceError> {
        let name = path.file_name().unwrap().to_str().unwrap();
        match self.files.get(name) {
            Some(file) => Ok(Arc::new(Open { file: file.clone(), path: path.to_owned() })),
            None => Err(DeviceError {
                operation: Operation::Open,
                path: path.to_owned(),
                offset: None,
                source: std::io::Error::from(std::io::ErrorKind::NotFound),
            }),
        }
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    fn kind(&self, path: &Path) -> std::result::Result<Option<FileKind>, DeviceError> {
        let name = path.file_name().unwrap().to_str().unwrap();
        Ok(if path == self.folder {
            Some(FileKind::Folder)
        } else {
            self.files.contains_key(name).then_some(FileKind::File)
        })
    }

    fn list(&self, _folder: &Path) -> std::result::Result<Vec<OsString>, DeviceError> {
        Ok(self.files.keys().map(OsString::from).collect())
    }

    fn read_queue(&self, _depth: usize) -> std::result::Result<Box<dyn ReadQueue>, DeviceError> {
        panic!("verifying reads one piece after the other")
    }

    fn lock(&self, _path: &Path) -> std::result::Result<Lock, DeviceError> {
        panic!("verifying locks nothing")
    }

    fn create(&self, _path: &Path) -> std::result::Result<Box<dyn WriteFile>, DeviceError> {
        panic!("verifying writes nothing")
    }

    fn create_folder(&self, _path: &Path) -> std::result::Result<(), DeviceError> {
        panic!("verifying makes nothing")
    }

    fn rename(&self, _from: &Path, _to: &Path) -> std::result::Result<(), DeviceError> {
        panic!("verifying renames nothing")
    }

    fn remove(&self, _path: &Path) -> std::result::Result<(), DeviceError> {
        panic!("verifying removes nothing")
    }

    fn remove_folder(&self, _path: &Path) -> std::result::Result<(), DeviceError> {
        panic!("verifying removes nothing")
    }

    fn sync_folder(&self, _path: &Path) -> std::result::Result<(), DeviceError> {
        panic!("verifying changes nothing")
    }

    fn free_bytes(&self, _path: &Path) -> std::result::Result<u64, DeviceError> {
        panic!("verifying needs no room")
    }
}

struct Open {
    file: File,
    path: PathBuf,
}

impl ReadFile for Open {
    fn len(&self) -> u64 {
        self.file.hollow_bytes.unwrap_or(self.file.bytes.lock().unwrap().len() as u64)
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn alignment(&self) -> usize {
        512
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::result::Result<u64, DeviceError> {
        assert!(self.file.hollow_bytes.is_none(), "read before its length was found impossible");
        if self.file.fails {
            let source = std::io::Error::other("the disk is gone");
            return Err(DeviceError {
                operation: Operation::Read,
                path: self.path.clone(),
                offset: Some(offset),
                source,
            });
        }
        let bytes = self.file.bytes.lock().unwrap();
        buffer.copy_from_slice(&bytes[offset as usize..][..buffer.len()]);
        Ok(buffer.len() as u64)
    }
}

/// Returns four small stores: u8 without ids, f32 with text ids, i8 with integer ids and skipped rows, and f16 with
/// three rows.
fn stores() -> Vec<Built> {
    let texts: Vec<String> = (0..70).map(|row| format!("id {row}")).collect();
    let numbers: Vec<i64> = (0..90).map(|row| row * 7 - 100).collect();
    let few = Setup::default().with_buckets(6);
    vec![
        few.build(&make(Shape::Clustered, Element::U8, 60, 5, 1)).unwrap(),
        few.build(&make(Shape::Clustered, Element::F32, 70, 3, 2).with_text_ids(&texts)).unwrap(),
        few.skipping_bad_rows()
            .build(&make(Shape::Uniform, Element::I8, 90, 7, 3).with_ids(&numbers).with_missing(&[4, 80]))
            .unwrap(),
        Setup::default().with_buckets(1).build(&make(Shape::Uniform, Element::F16, 3, 2, 4)).unwrap(),
    ]
}

/// Returns the bucket that contains byte `at` of the file of vectors, or precedes it.
fn bucket_at(extents: &[Extent], at: u64) -> u32 {
    extents.partition_point(|extent| extent.offset <= at) as u32 - 1
}

/// Flips a bit in each byte of each file, one at a time. Returns the number of flips, or a description of the first
/// one that was not found.
fn flip_every_byte(
    built: &Built,
    seed: u64,
    checker: impl Fn(&Files) -> StoreVerifyReport,
) -> std::result::Result<u64, String> {
    let mut random = Random::new(seed, "flips");
    let files = Files::of(built);
    let vectors = files.name("vectors-");
    let mut flips = 0;
    for name in files.files.keys() {
        for at in 0..files.len(name) {
            let bit = random.below(8) as u32;
            files.flip(name, at, bit);
            let report = checker(&files);
            files.flip(name, at, bit);
            let bucket = (*name == vectors).then(|| bucket_at(built.store.extents(), at as u64));
            let found = |damage: &Damage| damage.file == *name && damage.bucket == bucket && holds(damage, at as u64);
            if report.damages.len() != 1 || !report.damages.iter().all(found) {
                return Err(format!("byte {at} of {name}, bit {bit}: {:?}", report.damages));
            }
            flips += 1;
        }
    }
    Ok(flips)
}

/// Returns whether a reported damage includes byte `at`.
fn holds(damage: &Damage, at: u64) -> bool {
    damage.bytes.as_ref().is_none_or(|bytes| bytes.contains(&at))
}

#[test]
fn flipped_bytes_of_every_file_are_detected_and_located() {
    let mut flips = 0;
    for (seed, built) in stores().iter().enumerate() {
        let report = Files::of(built).verify().unwrap();
        assert!(report.is_sound() && report.remedy().is_none() && report.leftovers.is_empty(), "{report:?}");
        assert_eq!(report.buckets, built.store.extents().len() as u64);
        flips += flip_every_byte(built, seed as u64, |files| files.verify().unwrap()).unwrap();
    }
    eprintln!("{flips} flips");
    assert!(flips > 15_000, "only {flips} flips");
}

/// Checks that the test above would notice a checker that ignores one part of the files.
#[test]
fn canary_a_checker_that_ignores_a_part_is_caught() {
    let built = &stores()[0];
    for ignored in
        [DamagedPart::Manifest, DamagedPart::Centers, DamagedPart::Table, DamagedPart::Bucket, DamagedPart::Padding]
    {
        let blind = |files: &Files| {
            let mut report = files.verify().unwrap();
            report.damages.retain(|damage| damage.part != ignored);
            report
        };
        let missed = flip_every_byte(built, 1, blind).unwrap_err();
        assert!(missed.ends_with("[]"), "{missed}");
    }
}

#[test]
fn files_of_another_length_are_detected() {
    for built in &stores() {
        let files = Files::of(built);
        for name in files.files.keys() {
            let whole = files.bytes(name);
            for len in (0..whole.len()).chain([1, 100, 511, 512, 4096].map(|more| whole.len() + more)) {
                for filling in [0, b' '] {
                    let mut bytes = whole.clone();
                    bytes.resize(len, filling);
                    let report = files.with(name, bytes).unwrap();
                    let named = report.damages.iter().all(|damage| damage.file == *name);
                    assert!(!report.is_sound() && named, "{len} bytes of {name}: {report:?}");
                }
            }
        }
    }
}

#[test]
fn missing_files_are_reported_and_other_files_checked() {
    let built = &stores()[1];
    let whole = Files::of(built);
    let vectors = whole.name("vectors-");
    whole.flip(&vectors, built.store.extents()[2].offset as usize + 70, 3);
    for start in ["centers-", "buckets-", "vectors-"] {
        let mut files = whole.clone();
        let name = files.name(start);
        files.files.remove(&name);
        let report = files.verify().unwrap();
        let missing = |damage: &&Damage| damage.file == name && damage.fault == "is missing";
        assert_eq!(report.damages.iter().filter(missing).count(), 1, "{report:?}");
        let flipped = report.damages.iter().any(|damage| damage.bucket == Some(2) && damage.rows.is_some());
        assert_eq!(flipped, start != "vectors-", "{report:?}");
        assert!(report.remedy().unwrap().contains("build the store again"));
    }
    let mut files = whole.clone();
    files.files.remove(Folder::MANIFEST_FILE);
    let error = error_of(files.verify());
    assert_eq!((error.kind(), error.to_string().contains("it has no manifest.json")), (ErrorKind::Input, true));
}

#[test]
fn buckets_are_located_by_headers_if_the_table_is_damaged() {
    for built in &stores()[..3] {
        let files = Files::of(built);
        let (table, vectors) = (files.name("buckets-"), files.name("vectors-"));
        files.flip(&table, 17, 0);
        let report = files.verify().unwrap();
        assert_eq!((report.damage_count, report.damages[0].part), (1, DamagedPart::Table), "{report:?}");
        assert_eq!(report.buckets, built.store.extents().len() as u64);
        assert!(report.remedy().unwrap().starts_with("no vector is lost"));
        // A bucket with a damaged header is not found. The buckets before and after it are.
        let lost = built.store.extents()[1];
        files.flip(&vectors, lost.offset as usize + 9, 0);
        files.flip(&vectors, built.store.extents()[3].offset as usize + 64, 0);
        let report = files.verify().unwrap();
        let gap = lost.offset..built.store.extents()[2].offset;
        assert!(report.damages.iter().any(|damage| damage.bytes == Some(gap.clone())), "{report:?}");
        assert!(report.damages.iter().any(|damage| damage.bucket == Some(3)), "{report:?}");
        assert_eq!(report.damage_count, 4, "{report:?}"); // the fourth is the number of buckets
        assert!(report.remedy().unwrap().contains("this cannot be repaired"));
    }
}

#[test]
fn all_damages_are_listed_with_padding_distinguished() {
    let built = &stores()[2];
    let files = Files::of(built);
    let vectors = files.name("vectors-");
    for extent in built.store.extents() {
        files.flip(&vectors, (extent.offset + extent.bytes(true)) as usize, 1);
    }
    let buckets = built.store.extents().len();
    let report = files.verify().unwrap();
    assert_eq!(report.damage_count as usize, buckets, "{report:?}");
    assert!(report.remedy().unwrap().contains("only padding"));
    let extent = &built.store.extents()[4];
    files.flip(&vectors, (extent.offset + extent.body_bytes) as usize, 1);
    files.flip(&vectors, extent.offset as usize + 64, 1);
    let report = files.verify().unwrap();
    let faults: Vec<String> = report.damages.iter().map(Damage::to_string).collect();
    assert_eq!(report.damage_count as usize, buckets + 2);
    let ids = faults.iter().find(|fault| fault.contains("ids: checksum mismatch")).unwrap();
    let start = extent.offset + extent.body_bytes;
    assert!(ids.contains(&format!("bucket 4, bytes {start} to {}, rows ", start + extent.id_bytes - 1)), "{ids}");
    assert!(faults.iter().any(|fault| fault.contains("vectors or row numbers: checksum mismatch")), "{faults:?}");
}

/// Checks a combination of files of two stores. Each file is valid, but they do not belong together. The tag in the
/// name of the file of vectors shows this.
#[test]
fn files_of_another_store_are_found() {
    let setup = Setup::default().with_buckets(1);
    let [one, other] = [1, 2].map(|seed| setup.build(&make(Shape::Uniform, Element::U8, 64, 4, seed)).unwrap());
    let (one, other) = (Files::of(&one), Files::of(&other));
    for start in ["centers-", "buckets-", "vectors-"] {
        let (name, foreign) = (one.name(start), other.bytes(&other.name(start)));
        assert_eq!(one.len(&name), foreign.len());
        let report = one.with(&name, foreign).unwrap();
        assert_eq!((report.damage_count, &report.damages[0].file), (1, &name), "{report:?}");
    }
    let report = one.with(Folder::MANIFEST_FILE, other.bytes(Folder::MANIFEST_FILE)).unwrap();
    assert_eq!(report.damage_count, 3, "{report:?}"); // the manifest names three files that are missing
    assert_eq!(report.leftovers.len(), 3);
}

/// Returns the manifest of a store, changed by `change` and with a correct checksum.
fn forged(files: &Files, change: impl FnOnce(&mut StoreManifest)) -> Vec<u8> {
    let mut manifest = StoreManifest::decode(&files.folder, &files.bytes(Folder::MANIFEST_FILE)).unwrap();
    change(&mut manifest);
    manifest.encode()
}

#[test]
fn newer_manifests_are_refused_and_wrong_ones_detected() {
    let built = &stores()[0];
    let files = Files::of(built);
    let error = error_of(files.with(Folder::MANIFEST_FILE, forged(&files, |manifest| manifest.format_version += 2)));
    assert_eq!((error.kind(), error.to_string().contains("upgrade adjoin")), (ErrorKind::Input, true), "{error}");
    let lies: [fn(&mut StoreManifest); 5] = [
        |manifest| manifest.buckets += 1,
        |manifest| manifest.rows += 1,
        |manifest| manifest.vectors.dimensions += 1,
        |manifest| manifest.files[Role::Vectors].bytes -= EXTENT_ALIGNMENT,
        |manifest| manifest.files[Role::Table].name = "../table".into(),
    ];
    for lie in lies {
        assert!(!files.with(Folder::MANIFEST_FILE, forged(&files, lie)).unwrap().is_sound());
    }
}

#[test]
fn memory_is_not_allocated_for_an_impossible_table() {
    let built = &stores()[0];
    let mut files = Files::of(built);
    let huge = forged(&files, |manifest| manifest.files[Role::Table].bytes = 1 << 50);
    files.files.insert(Folder::MANIFEST_FILE.into(), File { bytes: Arc::new(Mutex::new(huge)), ..File::default() });
    assert!(!files.verify().unwrap().is_sound(), "such a table does not follow from the number of buckets");
    // The number of buckets would explain such a table, and the lengths of the other files agree with it.
    let huge = forged(&Files::of(built), |manifest| {
        (manifest.rows, manifest.source_rows, manifest.buckets) = (1 << 40, 1 << 40, u32::MAX);
        manifest.files[Role::Table].bytes = u64::from(u32::MAX) * 32;
        manifest.files[Role::Centers].bytes = u64::from(u32::MAX) * 5;
        manifest.files[Role::Vectors].bytes = 5 << 40;
    });
    files.files.insert(Folder::MANIFEST_FILE.into(), File { bytes: Arc::new(Mutex::new(huge)), ..File::default() });
    assert!(!files.verify().unwrap().is_sound(), "the files are shorter");
    for (start, bytes) in [("buckets-", u64::from(u32::MAX) * 32), ("vectors-", 5 << 40)] {
        files.files.insert(files.name(start), File { hollow_bytes: Some(bytes), ..File::default() });
    }
    assert_eq!(error_of(files.verify()).kind(), ErrorKind::Budget);
    assert_eq!(error_of(Store::open(&files.context(), &files.folder)).kind(), ErrorKind::Budget);
}

#[test]
fn device_errors_are_listed_and_other_files_checked() {
    let built = &stores()[1];
    for start in [Folder::MANIFEST_FILE, "centers-", "buckets-", "vectors-"] {
        let mut files = Files::of(built);
        let name = files.name(start);
        files.files.get_mut(&name).unwrap().fails = true;
        let report = files.verify().unwrap();
        assert!(!report.is_sound());
        for damage in report.damages {
            assert!(damage.file == name && damage.fault.contains("the disk is gone"), "{damage:?}");
        }
    }
}

#[test]
fn unlisted_files_are_leftovers_and_harmless() {
    let built = &stores()[0];
    for name in ["vectors.bin.partial", "vectors-by-hand-16-chars.bin", "centers-0123456789abcdef.bin"] {
        std::fs::write(built.path().join(name), b"whatever").unwrap();
    }
    ["notes", ".adjoin-build-7-0.partial"]
        .iter()
        .for_each(|name| std::fs::create_dir(built.path().join(name)).unwrap());
    let report = Store::verify(&Setup::default().context(), &built.path()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.strangers, ["notes", "vectors-by-hand-16-chars.bin", "vectors.bin.partial"]);
    assert_eq!(report.leftovers, [".adjoin-build-7-0.partial", "centers-0123456789abcdef.bin"]);
    let setup = Setup::default();
    setup.cancel.cancel();
    assert_eq!(error_of(Store::verify(&setup.context(), &built.path())).kind(), ErrorKind::Cancelled);
}
