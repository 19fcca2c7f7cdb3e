//! Fuzz tests of the files of a store. Checksums are corrected after the damage, so that it reaches the code behind
//! the checks.

use std::path::Path;

use adjoin::{
    BuildOptions, Context, ErrorKind, Folder, IdKind, JoinEffort, JoinOptions, KeepRule, Metric, OnDuplicateId,
    PairSink, Predicate, Random, Result, SourceOptions, Store, Target,
    lab::store::StoreManifest,
    lab::store::StoreVerifyReport,
    lab::{
        load::{Buckets, ReadAhead, least_read_ahead},
        plan::Load,
        sink::{Clusters, Counts, Keep},
        source::open,
        store::{
            FileFacts, Role,
            format::{BLOCK_BYTES, BucketFacts, Extent, HEADER_BYTES, checksum, decode_bucket, decode_table},
        },
    },
};
use zerocopy::IntoBytes;

use crate::files::Files;
use crate::mutate::{edge, mutate};
use crate::{MEMORY_MAX, check_error, corpus, fuzz, fuzz_each};

/// Budget of the process that opens a store.
const BUDGET: u64 = 64 << 20;
/// Only one out of every 10 crafted cases is run, since each case joins ten times.
const CRAFTED_SHARE: u64 = 10;

/// A store with its files in memory.
struct Whole {
    folder: tempfile::TempDir,
    files: Files,
    manifest: StoreManifest,
}

fn stores() -> Vec<Whole> {
    let sources = corpus::sources();
    let plain = sources.iter().map(|(name, bytes)| whole(name, bytes, None).unwrap());
    // For a source with a column of ids, a second store is built, which is sorted by the ids.
    let sorted = sources.iter().filter_map(|(name, bytes)| whole(name, bytes, Some("id".into())).ok());
    let all: Vec<Whole> = plain.chain(sorted).collect();
    assert!(all.len() > sources.len(), "some are sorted");
    all
}

fn whole(name: &str, bytes: &[u8], sort_by: Option<String>) -> Result<Whole> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, bytes).unwrap();
    let context = Context::default();
    let source = open(&context, &[file.to_str().unwrap().into()], &SourceOptions::default()).unwrap();
    let options = BuildOptions {
        buckets: Some(3),
        on_duplicate_id: OnDuplicateId::Keep,
        on_bad: adjoin::OnBad::Skip,
        sort_by,
        ..BuildOptions::default()
    };
    let store = folder.path().join("store");
    let manifest = Store::build(&context, &*source, &store, &options)?.manifest;
    let mut files = Files::default();
    for entry in std::fs::read_dir(&store).unwrap().map(|entry| entry.unwrap()) {
        files.put(entry.file_name().to_str().unwrap(), std::fs::read(entry.path()).unwrap());
    }
    Ok(Whole { folder, files, manifest })
}

impl Whole {
    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("store")
    }

    /// Opens, reads and verifies a store that consists of `files`. Returns the report if the store could be opened
    /// and verified.
    fn survive(&self, files: &Files) -> Option<StoreVerifyReport> {
        let context = self.context(files);
        let read = || -> Result<()> {
            let store = Store::open(&context, &self.path())?;
            // The centers have one of the two types. Reading them as the other type must fail.
            let buckets = Buckets::of(&store);
            [buckets.centers::<u8>().map(drop), buckets.centers::<f32>().map(drop)]
                .into_iter()
                .filter_map(std::result::Result::err)
                .for_each(|error| check_error(&error, "its centers do not match its vectors"));
            let memory = least_read_ahead(store.extents(), true);
            let loads = Load::each(buckets.count());
            let mut ahead = ReadAhead::new(&context, "fuzz", &buckets, true, memory, loads, &context.cancel)?;
            while let Some(stored) = ahead.next_bucket()? {
                stored.decode(&buckets)?;
            }
            Ok(())
        };
        if let Err(error) = read() {
            check_error(&error, self.path().to_str().unwrap());
        }
        match Store::verify(&context, &self.path()) {
            Ok(report) => {
                let shown = report.damages.iter().map(ToString::to_string);
                shown.for_each(|damage| assert!(!damage.contains(char::is_control), "{damage:?}"));
                Some(report)
            }
            Err(error) if error.kind() == ErrorKind::Budget => None,
            Err(error) => {
                check_error(&error, self.path().to_str().unwrap());
                None
            }
        }
    }

    fn context(&self, files: &Files) -> Context {
        let mut context = Context::default().with_memory(BUDGET);
        context.device = files.device(&self.path());
        context.threads = 1;
        context
    }

    /// Returns the types and sizes that are needed to decode a bucket.
    fn facts(&self) -> BucketFacts {
        let StoreManifest { vectors, ids, source_rows, .. } = self.manifest;
        BucketFacts { vectors, ids, source_rows, is_sorted: self.manifest.sorted_by.is_some() }
    }
}

fn pick<'a>(random: &mut Random, stores: &'a [Whole]) -> &'a Whole {
    &stores[random.below(stores.len() as u64) as usize]
}

#[test]
fn manifests() {
    let stores = stores();
    let corpus: Vec<Vec<u8>> = stores.iter().map(|store| store.files.0[Folder::MANIFEST_FILE].to_vec()).collect();
    fuzz("manifest", MEMORY_MAX, |random| {
        let store = pick(random, &stores);
        let mut bytes = store.files.0[Folder::MANIFEST_FILE].to_vec();
        mutate(random, &mut bytes, &corpus);
        if random.below(8) > 0 {
            seal_manifest(&mut bytes);
        }
        if let Err(error) = StoreManifest::decode(Path::new("there"), &bytes) {
            check_error(&error, "there");
        }
        let mut files = store.files.clone();
        files.put(Folder::MANIFEST_FILE, bytes);
        let _ = store.survive(&files);
    });
}

/// Corrects the checksum of a manifest if it still has one.
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
        let role = if random.below(4) > 0 { Role::Table } else { Role::Centers };
        let role = &mut manifest.files[role];
        let mut bytes = store.files.0[&role.name].to_vec();
        mutate(random, &mut bytes, &[]);
        let vectors_bytes = store.manifest.files[Role::Vectors].bytes;
        if let Err(error) = decode_table(&bytes, &store.facts(), manifest.rows, vectors_bytes) {
            check_error(&error, "bucket table");
        }
        *role = FileFacts::of(&role.name, &bytes);
        let name = role.name.clone();
        if random.below(4) == 0 {
            manifest.buckets = (bytes.len() / 32).max(1) as u32;
        }
        let mut files = store.files.clone();
        files.put(&name, bytes);
        files.put(Folder::MANIFEST_FILE, manifest.encode());
        let _ = store.survive(&files);
    });
}

#[test]
fn buckets() {
    let stores = stores();
    fuzz("buckets", MEMORY_MAX, |random| {
        let store = pick(random, &stores);
        let extents = store.extents();
        let name = &store.manifest.files[Role::Vectors].name;
        let mut bytes = store.files.0[name].to_vec();
        let number = random.below(extents.len() as u64) as usize;
        let extent = extents[number];
        let start = extent.offset as usize;
        let mut bucket = bytes[start..start + extent.bytes(true) as usize].to_vec();
        mutate(random, &mut bucket, &[]);
        seal_bucket(&mut bucket, extent.body_bytes as usize);
        for ids in [store.manifest.ids, IdKind::Int64, IdKind::Utf8, IdKind::None] {
            let mut listed = extent;
            listed.id_bytes = (bucket.len() as u64).saturating_sub(extent.body_bytes);
            let facts = BucketFacts { ids, ..store.facts() };
            if let Err(error) = decode_bucket(number as u32, &facts, &listed, &bucket) {
                check_error(&error, "bucket ");
            }
        }
        bytes.splice(start..start + extent.bytes(true) as usize, bucket);
        let mut files = store.files.clone();
        files.put(name, bytes);
        let _ = store.survive(&files);
    });
}

impl Whole {
    fn extents(&self) -> Vec<Extent> {
        let [table, vectors] = [Role::Table, Role::Vectors].map(|role| &self.manifest.files[role]);
        decode_table(&self.files.0[&table.name], &self.facts(), self.manifest.rows, vectors.bytes).unwrap()
    }
}

/// A store that is forged with knowledge of the format. Facts of the manifest, entries of the table and contents of
/// buckets are changed, and the lengths that follow from them too. All checksums are correct.
struct Crafted {
    manifest: StoreManifest,
    /// Extents that the buckets really have, and extents that the table states.
    laid: Vec<Extent>,
    extents: Vec<Extent>,
    centers: Vec<u8>,
    vectors: Vec<u8>,
}

impl Crafted {
    fn of(store: &Whole) -> Self {
        let bytes = |role| store.files.0[&store.manifest.files[role].name].to_vec();
        let mut manifest = store.manifest.clone();
        // Without a tag in this name, the buckets are not bound to the file.
        manifest.files[Role::Vectors].name = "vectors.bin".into();
        Self {
            manifest,
            laid: store.extents(),
            extents: store.extents(),
            centers: bytes(Role::Centers),
            vectors: bytes(Role::Vectors),
        }
    }

    fn change(&mut self, random: &mut Random) {
        match random.below(4) {
            0 => self.change_manifest(random),
            1 => self.change_table(random),
            2 => self.change_rows(random),
            _ => {
                let bucket = random.below(self.laid.len() as u64) as usize;
                let range = self.body(bucket).start as usize
                    ..(self.laid[bucket].offset + self.laid[bucket].bytes(true)) as usize;
                let at = range.start + random.below(range.len() as u64) as usize;
                let with = [0, 1, 0x7F, 0x80, 0xFF][random.below(5) as usize];
                self.vectors[at..range.end.min(at + 1 + random.below(8) as usize)].fill(with);
                if random.below(4) == 0 {
                    let at = random.below(self.centers.len() as u64) as usize;
                    self.centers[at..].iter_mut().take(4).for_each(|byte| *byte = with);
                }
            }
        }
    }

    fn change_manifest(&mut self, random: &mut Random) {
        let number = edge(random, self.manifest.rows as usize);
        let manifest = &mut self.manifest;
        match random.below(8) {
            0 => manifest.rows = number,
            1 => manifest.source_rows = number,
            2 => manifest.skipped_rows = number,
            3 => manifest.buckets = number as u32,
            4 => manifest.vectors.dimensions = number as usize,
            5 => manifest.files[Role::STORE[random.below(3) as usize]].bytes = number,
            6 => manifest.ids = [IdKind::None, IdKind::Int64, IdKind::Utf8][random.below(3) as usize],
            _ => manifest.metric = [Metric::L2, Metric::Cosine][random.below(2) as usize],
        }
        if random.below(2) == 0 {
            manifest.skipped_rows = manifest.source_rows.saturating_sub(manifest.rows);
        }
    }

    fn change_table(&mut self, random: &mut Random) {
        let number = edge(random, self.vectors.len());
        let bucket = random.below(self.extents.len() as u64) as usize;
        let extent = &mut self.extents[bucket];
        match random.below(5) {
            0 => extent.offset = number,
            1 => extent.rows = number as u32,
            2 => extent.radius = f32::from_bits(number as u32),
            3 => extent.body_bytes = number,
            _ => extent.id_bytes = number,
        }
    }

    /// Returns the range of bytes of a bucket's row numbers and ids in the file of vectors.
    fn body(&self, bucket: usize) -> std::ops::Range<u64> {
        let Extent { offset, body_bytes, .. } = self.laid[bucket];
        offset + HEADER_BYTES as u64..offset + body_bytes
    }

    fn change_rows(&mut self, random: &mut Random) {
        let bucket = random.below(self.laid.len() as u64) as usize;
        let (rows, end) = (u64::from(self.laid[bucket].rows), self.body(bucket).end);
        let at = (end - 8 * (1 + random.below(rows))) as usize;
        let number = edge(random, self.manifest.source_rows as usize);
        self.vectors[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }

    /// Returns the files of the store with correct checksums.
    fn seal(mut self, store: &Whole) -> Files {
        // Buckets are sealed at their real extents, even if the table states others.
        for extent in &self.laid {
            let range = extent.offset as usize..(extent.offset + extent.bytes(true)) as usize;
            let mut bucket = self.vectors[range.clone()].to_vec();
            seal_bucket(&mut bucket, extent.body_bytes as usize);
            self.vectors[range].copy_from_slice(&bucket);
        }
        let table = self.extents.as_bytes().to_vec();
        let mut files = Files::default();
        for (role, bytes) in [(Role::Centers, &self.centers), (Role::Table, &table)] {
            let facts = &mut self.manifest.files[role];
            let said = facts.bytes;
            let written = store.manifest.files[role].bytes;
            *facts = FileFacts::of(&facts.name, bytes);
            if said != written {
                facts.bytes = said;
            }
            files.put(&facts.name, bytes.clone());
        }
        if let Some(attributes) = self.manifest.files.get(Role::Attributes) {
            files.put(&attributes.name, store.files.0[&attributes.name].to_vec());
            let blocks: Vec<u8> =
                self.vectors.chunks(BLOCK_BYTES as usize).flat_map(|block| checksum(block).to_le_bytes()).collect();
            let facts = &mut self.manifest.files[Role::Blocks];
            *facts = FileFacts::of(&facts.name, &blocks);
            files.put(&facts.name, blocks);
        }
        files.put(&self.manifest.files[Role::Vectors].name, self.vectors);
        files.put(Folder::MANIFEST_FILE, self.manifest.encode());
        files
    }
}

/// Plans a join and runs it with every sink. If ids occur twice, sinks that name rows by id are skipped.
fn join_all(context: &Context, folder: &Path) -> Result<()> {
    let store = Store::open(context, folder)?;
    let predicate = match store.manifest().metric {
        Metric::L2 => Predicate::l2(40.0)?,
        Metric::Cosine | Metric::Ip => Predicate::cosine(0.9)?,
    };
    let target = |name: &str| Target::File { path: folder.join("..").join(name), force: true };
    let (rows, kept) = (target("rows.parquet"), target("kept.parquet"));
    for options in [JoinOptions::exact(predicate), JoinOptions::approximate(predicate, JoinEffort::recall(0.9)?)] {
        for rule in [None, Some(KeepRule::Greedy), Some(KeepRule::Cluster)] {
            let joined = |sink: Box<dyn PairSink + '_>| -> Result<()> {
                let prepared = options.prepare(context, &store, sink.wants_ids())?;
                assert!(!prepared.explain(&store).to_string().is_empty());
                prepared.run(context, &store, sink).map(drop)
            };
            match rule {
                None => {
                    joined(Box::new(Counts::create(context, &store, Some(&rows), 0)?))?;
                    joined(Box::new(Clusters::create(context, &store, Some(&rows), 0)?))?;
                }
                Some(_) if store.manifest().duplicate_ids > 0 => {}
                Some(rule) => joined(Box::new(Keep::create(context, &store, rule, Some(&rows), Some(&kept), 0)?))?,
            }
        }
    }
    Ok(())
}

/// Checks that a store joins without an error if `verify` finds it sound. Other stores must join or return an error
/// of one line. A lack of memory is no failure.
#[test]
fn crafted_stores() {
    let stores = stores();
    let (mut sound, mut joined) = (0, 0);
    fuzz_each("crafted", CRAFTED_SHARE, MEMORY_MAX, |random| {
        let store = pick(random, &stores);
        let mut crafted = Crafted::of(store);
        (0..1 + random.below(3)).for_each(|_| crafted.change(random));
        let files = crafted.seal(store);
        let is_sound = store.survive(&files).is_some_and(|report| report.is_sound());
        let result = join_all(&store.context(&files), &store.path());
        sound += u32::from(is_sound);
        joined += u32::from(result.is_ok());
        match result {
            Err(error) if error.kind() == ErrorKind::Budget => {}
            Err(error) => {
                assert!(!is_sound, "verify calls it sound, but: {error}");
                check_error(&error, "");
            }
            Ok(()) => {}
        }
    });
    eprintln!("{sound} are sound, {joined} join");
    assert!(sound > 0 && joined > 0, "{sound} sound, {joined} joined");
}

/// Corrects the checksums of a bucket, and its number of id bytes.
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
