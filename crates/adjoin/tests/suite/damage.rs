//! Damaged stores. An error must name the file, and no wrong result may be returned.

use std::path::{Path, PathBuf};

use adjoin::{
    Collect, Element, Error, ErrorKind, Folder, PairBatch, PairSink, Predicate, QueryTarget, Result, SearchEffort,
    SearchOptions, SearchQueries, Store, Written,
    lab::{buckets::search, sink::Discard, store::format::HEADER_BYTES},
};

use crate::datasets::{Shape, make};
use crate::harness::{Built, Set, Setup, error_of, files_of, within_seconds};

const PREDICATE: Predicate = Predicate::L2 { eps: 1.0 };

/// Sink that requests ids and discards everything.
struct DiscardIds;

impl PairSink for DiscardIds {
    fn wants_ids(&self) -> bool {
        true
    }

    fn accept(&mut self, _batch: &PairBatch) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

fn store() -> Built {
    let ids: Vec<String> = (0..200).map(|row| format!("id {row}")).collect();
    let set = make(Shape::Clustered, Element::F16, 200, 5, 9).with_text_ids(&ids);
    Setup::default().with_buckets(12).build(&set).unwrap()
}

fn file_starting_with(folder: &Path, start: &str) -> PathBuf {
    let name = files_of(folder).into_keys().find(|name| name.starts_with(start)).unwrap();
    folder.join(name)
}

/// Damages a file, runs `work`, and restores the file.
fn with_damage<R>(path: &Path, damage: impl FnOnce(&mut Vec<u8>), work: impl FnOnce() -> R) -> R {
    let whole = std::fs::read(path).unwrap();
    let mut damaged = whole.clone();
    damage(&mut damaged);
    assert!(damaged != whole);
    std::fs::write(path, &damaged).unwrap();
    let result = work();
    std::fs::write(path, &whole).unwrap();
    result
}

/// Opens the store, and joins it into `sink`.
fn open_and_join(folder: &Path, sink: Box<dyn PairSink>) -> Result<()> {
    let setup = Setup::default();
    let context = setup.context();
    let store = Store::open(&context, folder)?;
    let options = setup.join_options(PREDICATE);
    let prepared = options.prepare(&context, &store, sink.wants_ids())?;
    prepared.run(&context, &store, sink).map(|_| ())
}

#[track_caller]
fn assert_corrupt(error: &Error, file: &Path) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let named = error.to_string().contains(file.to_str().unwrap());
    assert!(named && error.to_string().contains("build the store again"), "{error} does not name {}", file.display());
}

#[test]
fn a_flipped_byte_of_a_bucket_is_found() {
    let built = store();
    let path = file_starting_with(&built.path(), "vectors-");
    assert!(built.store.extents().len() > 5);
    for (number, extent) in built.store.extents().iter().enumerate() {
        let (start, body, end) = (extent.offset, extent.body_bytes, extent.bytes(true));
        let places = [0, 8, 16, 56, HEADER_BYTES as u64, body / 2, body - 9, body - 1, body, end - 1];
        for (k, at) in places.into_iter().enumerate() {
            let flip = |bytes: &mut Vec<u8>| bytes[(start + at) as usize] ^= 1 << (k % 8);
            with_damage(&path, flip, || {
                let error = error_of(open_and_join(&built.path(), Box::new(DiscardIds)));
                assert_corrupt(&error, &path);
                assert!(error.to_string().contains(&format!("bucket {number}")), "{error}");
                // Ids are read and verified only if they are requested.
                let without_ids = open_and_join(&built.path(), Box::new(Discard));
                assert_eq!(without_ids.is_ok(), at >= body, "byte {at} of bucket {number}");
            });
        }
    }
    open_and_join(&built.path(), Box::new(DiscardIds)).unwrap();
}

#[test]
fn a_search_reports_a_damaged_bucket_unless_it_is_not_needed() {
    let built = store();
    let path = file_starting_with(&built.path(), "vectors-");
    let context = Setup::default().context();
    let queries = make(Shape::Clustered, Element::F16, 200, 5, 9); // equal to the rows of the store, so every bucket has some
    let search_for = |queries: &Set| {
        let (sink, options) = (Collect::default(), SearchOptions::new(QueryTarget::Nearest(1), SearchEffort::Exact, 1));
        let store = Store::open(&context, &built.path())?;
        let sets = SearchQueries::new(queries);
        search(&context, &store, sets, &options, Box::new(sink.clone())).map(|_| sink.hits())
    };
    let one = Set::of_stored(queries.vectors(), queries.stored()[..queries.vectors().bytes()].to_vec());
    let wanted = search_for(&one).unwrap();
    let mut not_needed = 0;
    for (number, extent) in built.store.extents().iter().enumerate() {
        for at in [8, HEADER_BYTES as u64, extent.body_bytes - 1] {
            with_damage(
                &path,
                |bytes| bytes[(extent.offset + at) as usize] ^= 1,
                || {
                    let error = error_of(search_for(&queries));
                    assert_corrupt(&error, &path);
                    assert!(error.to_string().contains(&format!("bucket {number}")), "{error}");
                    match search_for(&one) {
                        Ok(found) => {
                            assert_eq!(found, wanted, "a bucket that cannot hold it");
                            not_needed += 1;
                        }
                        Err(error) => assert!(error.to_string().contains(&format!("bucket {number}")), "{error}"),
                    }
                },
            );
        }
    }
    assert!(not_needed > 0 && not_needed < 3 * built.store.extents().len());
}

#[test]
fn flipped_bytes_of_centers_table_and_manifest_are_detected() {
    let built = store();
    for start in ["centers-", "buckets-", Folder::MANIFEST_FILE] {
        let path = file_starting_with(&built.path(), start);
        for at in 0..std::fs::metadata(&path).unwrap().len() as usize {
            let flip = |bytes: &mut Vec<u8>| bytes[at] ^= 1 << (at % 8);
            let error = with_damage(&path, flip, || error_of(Store::open(&Setup::default().context(), &built.path())));
            assert_corrupt(&error, &path);
        }
    }
}

#[test]
fn files_of_a_wrong_length_are_refused() {
    let built = store();
    for start in ["centers-", "buckets-", "vectors-", Folder::MANIFEST_FILE] {
        let path = file_starting_with(&built.path(), start);
        let len = std::fs::metadata(&path).unwrap().len() as usize;
        for new_len in [0, 1, len / 2, len - 1, len + 1, len + 4096] {
            let cut = |bytes: &mut Vec<u8>| bytes.resize(new_len, b' ');
            let error = with_damage(&path, cut, || error_of(Store::open(&Setup::default().context(), &built.path())));
            assert_corrupt(&error, &path);
        }
    }
}

#[test]
fn a_missing_file_of_a_store_is_reported() {
    for start in ["centers-", "buckets-", "vectors-"] {
        let built = store();
        let path = file_starting_with(&built.path(), start);
        std::fs::remove_file(&path).unwrap();
        let error = error_of(Store::open(&Setup::default().context(), &built.path()));
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    let built = store();
    std::fs::remove_file(built.path().join(Folder::MANIFEST_FILE)).unwrap();
    let error = error_of(Store::open(&Setup::default().context(), &built.path()));
    assert_eq!((error.kind(), error.to_string().contains("is not a store")), (ErrorKind::Input, true), "{error}");
}

/// Checks that a join does not hang but fails if the store is truncated after it was opened.
#[test]
fn a_join_of_a_truncated_open_store_fails() {
    let built = store();
    let path = file_starting_with(&built.path(), "vectors-");
    let len = std::fs::metadata(&path).unwrap().len();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(len / 2).unwrap();
    let error = error_of(within_seconds(1_800, move || built.join(&Setup::default(), PREDICATE)));
    assert!(matches!(error.kind(), ErrorKind::Device | ErrorKind::Corrupt), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}

/// Checks two stores of equal shape with swapped files. Each file is valid, but the combination is not.
#[test]
fn a_file_of_another_store_is_refused() {
    let setup = Setup::default().with_buckets(1);
    let [one, other] = [1, 2].map(|seed| setup.build(&make(Shape::Uniform, Element::U8, 64, 4, seed)).unwrap());
    for start in ["centers-", "buckets-"] {
        let path = file_starting_with(&one.path(), start);
        let foreign = std::fs::read(file_starting_with(&other.path(), start)).unwrap();
        let error =
            with_damage(&path, |bytes| *bytes = foreign, || error_of(Store::open(&setup.context(), &one.path())));
        assert_corrupt(&error, &path);
    }
}
