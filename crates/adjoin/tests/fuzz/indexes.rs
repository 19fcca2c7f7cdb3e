//! Fuzz tests of the files of an index. Checksums are corrected after the damage, so that it reaches the code behind
//! the checks.

use adjoin::{
    BuildOptions, Collect, Context, Element, ErrorKind, Folder, Index, IndexOptions, OnBad, OnDuplicateId, QueryTarget,
    Random, Result, SearchEffort, SearchOptions, SourceOptions, Store, VectorType,
    lab::index::IndexManifest,
    lab::{
        index::search,
        query::QuerySources,
        source::open,
        store::{FileFacts, Role},
    },
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::files::Files;
use crate::mutate::{edge, mutate};
use crate::{MEMORY_MAX, check_error, corpus, fuzz_each};

/// Budget of the process that opens an index.
const BUDGET: u64 = 64 << 20;
/// Only one out of every 10 cases is run, since each case opens, searches and verifies.
const SHARE: u64 = 10;
/// Size of a page and of a block of ids, in bytes. Each starts with a checksum of its other bytes.
const PAGE_BYTES: usize = 4_096;

/// An index, its files in memory, and a file of queries.
struct Whole {
    folder: tempfile::TempDir,
    queries: String,
    files: Files,
    manifest: IndexManifest,
}

fn indexes() -> Vec<Whole> {
    corpus::sources().into_iter().map(|(name, bytes)| whole(name, &bytes)).collect()
}

fn whole(name: &str, bytes: &[u8]) -> Whole {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, bytes).unwrap();
    let context = Context::default();
    let opened = open(&context, &[file.to_str().unwrap().into()], &SourceOptions::default()).unwrap();
    let queries = folder.path().join("queries.u8bin");
    let dimensions = opened.info().vectors.dimensions;
    std::fs::write(&queries, corpus::counted_file(VectorType { element: Element::U8, dimensions })).unwrap();
    let queries = queries.to_str().unwrap().to_owned();
    let (on_bad, on_duplicate_id) = (OnBad::Skip, OnDuplicateId::Keep);
    let of_store = BuildOptions { buckets: Some(3), on_duplicate_id, on_bad, ..BuildOptions::default() };
    let store = folder.path().join("store");
    Store::build(&context, &*opened, &store, &of_store).unwrap();
    let (degree, code_bytes) = (Some(4), Some(2));
    let options = IndexOptions { degree, build_list: 8, code_bytes, ..IndexOptions::default() };
    let index = folder.path().join("index");
    let manifest =
        Index::build(&context, &Store::open(&context, &store).unwrap(), &index, &options, false).unwrap().manifest;
    let mut files = Files::default();
    for entry in std::fs::read_dir(&index).unwrap().map(|entry| entry.unwrap()) {
        files.put(entry.file_name().to_str().unwrap(), std::fs::read(entry.path()).unwrap());
    }
    Whole { folder, queries, files, manifest }
}

impl Whole {
    /// Opens, searches and verifies an index that consists of `files`. Returns whether the search succeeded.
    fn survive(&self, files: &Files) -> bool {
        let at = self.folder.path().join("index");
        let queries = open(&Context::default(), std::slice::from_ref(&self.queries), &SourceOptions::default());
        let queries = queries.unwrap();
        let mut context = Context::default().with_memory(BUDGET);
        context.device = files.device(&at);
        context.threads = 1;
        let searched = || -> Result<()> {
            let index = Index::open(&context, &at)?;
            for (k, effort) in
                [(3, SearchEffort::List(7)), (2, SearchEffort::Recall(0.6)), (120, SearchEffort::Recall(0.6))]
            {
                let options = SearchOptions::new(QueryTarget::Nearest(k), effort, 1);
                search(&context, &index, QuerySources::new(&*queries), &options, Box::new(Collect::default()))?;
            }
            Ok(())
        };
        let searched = searched();
        match &searched {
            Err(error) if error.kind() == ErrorKind::Budget => {}
            // If the damaged index has another vector type, the error may name the queries and not the index.
            Err(error) => check_error(error, self.folder.path().to_str().unwrap()),
            Ok(()) => {}
        }
        match Index::verify(&context, &at) {
            Ok(report) => {
                let shown = report.damages.iter().map(ToString::to_string);
                shown.for_each(|damage| assert!(!damage.contains(char::is_control), "{damage:?}"));
            }
            Err(error) if error.kind() == ErrorKind::Budget => {}
            Err(error) => check_error(&error, at.to_str().unwrap()),
        }
        searched.is_ok()
    }

    /// Returns the files of the index with the file of `role` replaced by `bytes`. The manifest describes the new
    /// file correctly.
    fn with(&self, role: Role, bytes: Vec<u8>) -> Files {
        let (mut manifest, mut files) = (self.manifest.clone(), self.files.clone());
        let facts = &mut manifest.files[role];
        let whole = facts.xxh3.is_some();
        *facts = FileFacts::of(&facts.name, &bytes);
        if !whole {
            facts.xxh3 = None;
        }
        files.put(&facts.name.clone(), bytes);
        files.put(Folder::MANIFEST_FILE, manifest.encode());
        files
    }

    fn bytes(&self, role: Role) -> Vec<u8> {
        self.files.0[&self.manifest.files[role].name].to_vec()
    }
}

fn pick<'a>(random: &mut Random, indexes: &'a [Whole]) -> &'a Whole {
    &indexes[random.below(indexes.len() as u64) as usize]
}

/// Mutates the file of `role`, and uses the index. `put_right` corrects the checksums. Checks that some of the
/// damaged indexes can still be searched.
fn fuzz_role(target: &str, role: Role, put_right: impl Fn(&mut Vec<u8>)) {
    let indexes = indexes();
    let corpus: Vec<Vec<u8>> = indexes.iter().map(|index| index.bytes(role)).collect();
    let mut searched = 0;
    fuzz_each(target, SHARE, MEMORY_MAX, |random| {
        let index = pick(random, &indexes);
        let mut bytes = index.bytes(role);
        mutate(random, &mut bytes, &corpus);
        put_right(&mut bytes);
        searched += u32::from(index.survive(&index.with(role, bytes)));
    });
    eprintln!("{target}: {searched} are searched");
}

/// Corrects the checksums of pages, or of blocks of ids.
fn seal(bytes: &mut [u8]) {
    for (number, page) in (0..).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
        let checksum = xxh3_64_with_seed(&page[8..], number);
        page[..8].copy_from_slice(&checksum.to_le_bytes());
    }
}

#[test]
fn undamaged_indexes_can_be_searched() {
    indexes().iter().for_each(|index| assert!(index.survive(&index.files), "{}", index.queries));
}

#[test]
fn codebooks() {
    fuzz_role("codebook", Role::Codebook, |_| ());
}

#[test]
fn navigation_graphs() {
    fuzz_role("navigation", Role::Navigation, |_| ());
}

#[test]
fn duplicates() {
    fuzz_role("duplicates", Role::Duplicates, |_| ());
}

#[test]
fn calibrations() {
    fuzz_role("calibration", Role::Calibration, |_| ());
}

#[test]
fn blocks_of_ids() {
    fuzz_role("ids", Role::Ids, |bytes| seal(bytes));
}

#[test]
fn pages() {
    fuzz_role("pages", Role::Pages, |bytes| seal(bytes));
}

#[test]
fn manifests_of_indexes() {
    let indexes = indexes();
    let corpus: Vec<Vec<u8>> = indexes.iter().map(|index| index.manifest.encode()).collect();
    fuzz_each("index manifest", SHARE, MEMORY_MAX, |random| {
        let index = pick(random, &indexes);
        let mut files = index.files.clone();
        let bytes = if random.below(2) == 0 {
            let mut bytes = index.manifest.encode();
            mutate(random, &mut bytes, &corpus);
            bytes
        } else {
            changed(random, &index.manifest).encode()
        };
        files.put(Folder::MANIFEST_FILE, bytes);
        index.survive(&files);
    });
}

/// Returns a manifest in which one field is changed and the checksum is correct.
fn changed(random: &mut Random, manifest: &IndexManifest) -> IndexManifest {
    let mut manifest = manifest.clone();
    let number = edge(random, manifest.rows as usize);
    match random.below(10) {
        0 => manifest.rows = number,
        1 => manifest.source_rows = number,
        2 => manifest.vertices = number as u32,
        3 => manifest.degree = number as usize,
        4 => manifest.code_bytes = number as usize,
        5 => manifest.page_bytes = number,
        6 => manifest.vectors.dimensions = number as usize,
        7 => manifest.entry = number as u32,
        8 => manifest.seed = number,
        _ => {
            let there: Vec<Role> = Role::INDEX.into_iter().filter(|&role| manifest.files.get(role).is_some()).collect();
            manifest.files[there[random.below(there.len() as u64) as usize]].bytes = number;
        }
    }
    manifest
}
