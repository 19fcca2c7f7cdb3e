//! Files of a store. Checksums are put right after the damage, so that what lies behind them is reached.

use std::path::Path;

use adjoin::context::Context;
use adjoin::error::{ErrorKind, Result};
use adjoin::options::{Element, VectorType};
use adjoin::random::Random;
use adjoin::source::{IdKind, SourceOptions, open};
use adjoin::store::format::{HEADER_BYTES, MANIFEST_FILE, checksum, decode_bucket, decode_table};
use adjoin::store::{
    BuildOptions, FileFacts, Manifest, OnDuplicateId, ReadAhead, Store, build, least_read_ahead, verify,
};

use crate::files::Files;
use crate::mutate::mutate;
use crate::{MEMORY_MAX, check_error, corpus, fuzz};

/// A store, its files in memory; the folder is there too, since a store is looked for in the file system.
struct Whole {
    folder: tempfile::TempDir,
    files: Files,
    manifest: Manifest,
}

fn stores() -> Vec<Whole> {
    let sources = [
        ("a.u8bin", corpus::counted_file(VectorType { element: Element::U8, dimensions: 5 })),
        ("a.parquet", corpus::parquet().swap_remove(0)),
        ("b.parquet", corpus::parquet().pop().unwrap()),
    ];
    sources.into_iter().map(|(name, bytes)| whole(name, &bytes)).collect()
}

fn whole(name: &str, bytes: &[u8]) -> Whole {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, bytes).unwrap();
    let context = Context::default();
    let source = open(&context, &[file.to_str().unwrap().into()], &SourceOptions::default()).unwrap();
    let options = BuildOptions {
        buckets: Some(3),
        on_duplicate_id: OnDuplicateId::Keep,
        on_bad: adjoin::store::OnBad::Skip,
        ..BuildOptions::default()
    };
    let store = folder.path().join("store");
    let manifest = build(&context, &*source, &store, &options).unwrap().manifest;
    let mut files = Files::default();
    for entry in std::fs::read_dir(&store).unwrap().map(|entry| entry.unwrap()) {
        files.put(entry.file_name().to_str().unwrap(), std::fs::read(entry.path()).unwrap());
    }
    Whole { folder, files, manifest }
}

impl Whole {
    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("store")
    }

    /// Opens, reads and verifies the store with these files.
    fn survive(&self, files: &Files) {
        let mut context = Context::default();
        context.device = files.device(&self.path());
        let read = || -> Result<()> {
            let store = Store::open(&context, &self.path())?;
            // One of them is not of the store's kind, and is refused.
            [store.centers::<u8>().map(drop), store.centers::<f32>().map(drop)]
                .into_iter()
                .filter_map(std::result::Result::err)
                .for_each(|error| check_error(&error, "centers of a wrong length"));
            let buckets = 0..store.extents().len() as u32;
            let memory = least_read_ahead(store.extents(), true);
            let mut ahead = ReadAhead::new(&context, &store, true, memory, buckets)?;
            while ahead.next(|_| ())?.is_some() {}
            Ok(())
        };
        if let Err(error) = read() {
            check_error(&error, self.path().to_str().unwrap());
        }
        match verify(&context, &self.path()) {
            Ok(report) => report.damages.iter().for_each(|damage| assert!(!damage.file.contains('\n'))),
            Err(error) if error.kind() == ErrorKind::Budget => {}
            Err(error) => check_error(&error, self.path().to_str().unwrap()),
        }
    }
}

fn pick<'a>(random: &mut Random, stores: &'a [Whole]) -> &'a Whole {
    &stores[random.below(stores.len() as u64) as usize]
}

#[test]
fn manifests() {
    let stores = stores();
    let corpus: Vec<Vec<u8>> = stores.iter().map(|store| store.files.0[MANIFEST_FILE].to_vec()).collect();
    fuzz("manifest", MEMORY_MAX, |random| {
        let store = pick(random, &stores);
        let mut bytes = store.files.0[MANIFEST_FILE].to_vec();
        mutate(random, &mut bytes, &corpus);
        if random.below(8) > 0 {
            seal_manifest(&mut bytes);
        }
        if let Err(error) = Manifest::decode(Path::new("there"), &bytes) {
            check_error(&error, "there");
        }
        let mut files = store.files.clone();
        files.put(MANIFEST_FILE, bytes);
        store.survive(&files);
    });
}

/// Puts the checksum of a manifest right, if it still has one.
fn seal_manifest(bytes: &mut [u8]) {
    let key = b"\"manifest_xxh3\": \"";
    let Some(at) = bytes.windows(key.len()).position(|window| window == key).map(|at| at + key.len()) else { return };
    if bytes.len() < at + 16 {
        return;
    }
    bytes[at..at + 16].fill(b'0');
    let digits = format!("{:016x}", checksum(bytes));
    bytes[at..at + 16].copy_from_slice(digits.as_bytes());
}

#[test]
fn tables_and_centers() {
    let stores = stores();
    fuzz("table", MEMORY_MAX, |random| {
        let store = pick(random, &stores);
        let mut manifest = store.manifest.clone();
        let role = if random.below(4) > 0 { &mut manifest.files.table } else { &mut manifest.files.centers };
        let mut bytes = store.files.0[&role.name].to_vec();
        mutate(random, &mut bytes, &[]);
        let vectors_bytes = store.manifest.files.vectors.bytes;
        if let Err(error) = decode_table(&bytes, manifest.vectors, manifest.rows, vectors_bytes) {
            check_error(&error, "bucket table");
        }
        *role = FileFacts::of(&role.name, &bytes);
        let name = role.name.clone();
        if random.below(4) == 0 {
            manifest.buckets = (bytes.len() / 32).max(1) as u32;
        }
        let mut files = store.files.clone();
        files.put(&name, bytes);
        files.put(MANIFEST_FILE, manifest.encode());
        store.survive(&files);
    });
}

#[test]
fn buckets() {
    let stores = stores();
    fuzz("buckets", MEMORY_MAX, |random| {
        let store = pick(random, &stores);
        let manifest = &store.manifest;
        let table = &store.files.0[&manifest.files.table.name];
        let extents = decode_table(table, manifest.vectors, manifest.rows, manifest.files.vectors.bytes).unwrap();
        let mut bytes = store.files.0[&manifest.files.vectors.name].to_vec();
        let number = random.below(extents.len() as u64) as usize;
        let extent = extents[number];
        let start = extent.offset as usize;
        let mut bucket = bytes[start..start + extent.bytes(true) as usize].to_vec();
        mutate(random, &mut bucket, &[]);
        seal_bucket(&mut bucket, extent.body_bytes as usize);
        for kind in [manifest.ids, IdKind::Int64, IdKind::Utf8, IdKind::None] {
            let mut listed = extent;
            listed.id_bytes = (bucket.len() as u64).saturating_sub(extent.body_bytes);
            if let Err(error) = decode_bucket(number as u32, manifest.vectors, &listed, kind, &bucket) {
                check_error(&error, "bucket ");
            }
        }
        bytes.splice(start..start + extent.bytes(true) as usize, bucket);
        let mut files = store.files.clone();
        files.put(&manifest.files.vectors.name, bytes);
        store.survive(&files);
    });
}

/// Puts the checksums of a bucket right, and says so many bytes of ids as there are.
fn seal_bucket(bucket: &mut [u8], body_bytes: usize) {
    if bucket.len() < HEADER_BYTES {
        return;
    }
    let body_end = body_bytes.min(bucket.len());
    let body = checksum(&bucket[HEADER_BYTES..body_end]);
    let ids = checksum(&bucket[body_end..]);
    let id_bytes = (bucket.len() - body_end) as u64;
    for (at, value) in [(16, body), (24, ids), (32, id_bytes)] {
        bucket[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    let header = checksum(&bucket[..HEADER_BYTES - 8]);
    bucket[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
}
