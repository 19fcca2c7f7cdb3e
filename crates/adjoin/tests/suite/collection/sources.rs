//! Rows of a collection as a source for other commands.

use std::collections::BTreeMap;
use std::path::Path;

use adjoin::{
    Collection, Durability, Element, IdChoice, IdKind, Ids, Metric, Random, SourceOptions, Target, VectorSource, Write,
    lab::{
        collection::{Put, open_rows},
        source,
    },
    open_source,
};

use super::{LIVE, Model, Step, context_on, device, options};
use crate::datasets::{Shape, make};
use crate::harness::{Setup, error_of};

/// Returns the rows of a scan in batches of `batch_bytes`.
pub(crate) fn scanned(source: &dyn VectorSource, batch_bytes: usize) -> Model {
    let (mut scan, mut all, mut rows) = (source.scan(batch_bytes).unwrap(), Model::new(), 0);
    while let Some(batch) = scan.next_batch().unwrap() {
        assert_eq!(batch.first_row, rows);
        rows += batch.rows as u64;
        let Ids::Int64(ids) = batch.ids else { panic!("ids are integers") };
        assert_eq!(ids.len(), batch.rows);
        all.extend(ids.into_iter().zip(batch.bytes.as_chunks().0.iter().copied()));
    }
    assert_eq!((all.len() as u64, rows), (rows, source.info().rows), "each id is there once");
    all
}

/// Checks a source with rows on disk, rows in memory and deleted rows. The source must not change while others write
/// and merge. These merges remove the files that the source reads.
#[test]
fn a_collection_source_is_a_snapshot() {
    let device = device();
    let context = &context_on(&device);
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    let (mut model, mut random) = (Model::new(), Random::new(5, "writes"));
    let mut opened = Vec::new();
    for round in 0..40 {
        let step = Step::draw(&mut random, &model);
        step.apply(&mut model);
        step.write(&collection, Durability::Group).unwrap();
        if round % 9 == 8 {
            collection.merge(context).unwrap();
        }
        opened.push((open_rows(context, Path::new(LIVE)).unwrap(), model.clone()));
    }
    drop(collection);
    for (source, model) in &opened {
        for batch_bytes in [1, 20, 1 << 20] {
            assert_eq!(scanned(&**source, batch_bytes), *model);
        }
    }
}

#[test]
fn a_collection_is_a_single_source_with_its_own_ids() {
    let device = device();
    let context = &context_on(&device);
    let refused = |names: &[&str], options: &SourceOptions| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        error_of(open_source(context, &names, options)).to_string()
    };
    let plain = SourceOptions::default();
    assert!(refused(&[LIVE], &plain).contains("data/live has no rows; write some"), "{}", refused(&[LIVE], &plain));
    assert!(
        refused(&["a.npy", LIVE], &plain)
            .contains("data/live is a collection, which cannot be combined with other sources")
    );
    let named = SourceOptions { ids: IdChoice::Column("id".into()), ..SourceOptions::default() };
    assert!(refused(&[LIVE], &named).contains("data/live is a collection, and id-column applies only to files"));
}

/// Returns vectors by the text of their ids.
fn by_id(source: &dyn VectorSource) -> BTreeMap<String, Vec<u8>> {
    let (mut scan, mut all) = (source.scan(10_000).unwrap(), BTreeMap::new());
    while let Some(batch) = scan.next_batch().unwrap() {
        let vectors = batch.bytes.chunks_exact(source.info().vectors.bytes());
        vectors.enumerate().for_each(|(k, vector)| drop(all.insert(batch.ids.display(k, 0), vector.to_vec())));
    }
    all
}

/// Checks that rows that are written as Parquet are equal when they are read again, for several element types and for
/// integer and text ids.
#[test]
fn snapshot_files_have_the_current_rows() {
    for (element, texts) in [(Element::F32, true), (Element::F16, false), (Element::U8, true), (Element::I8, false)] {
        let folder = tempfile::tempdir().unwrap();
        let (live, file) = (folder.path().join("live"), folder.path().join("rows.parquet"));
        let context = Setup::default().context();
        let rows = make(Shape::Uniform, element, 1_000, 33, 1);
        let rows = match texts {
            true => rows.with_text_ids(&(0..1_000).map(|row| format!("row {row}")).collect::<Vec<_>>()),
            false => rows.with_ids(&(0..1_000).map(|row| -row).collect::<Vec<_>>()),
        };
        let kind = if texts { IdKind::Utf8 } else { IdKind::Int64 };
        Collection::create(&context, &live, &options(rows.vectors(), Metric::L2, kind)).unwrap();
        let collection = Collection::open(&context, &live).unwrap();
        collection.load(&rows, Put::Insert, Durability::Buffered).unwrap();
        collection.merge(&context).unwrap();
        collection.load(&rows, Put::Upsert, Durability::Buffered).unwrap();
        let gone = match texts {
            true => ["row 0", "row 999", "other"].into_iter().collect(),
            false => Ids::Int64(vec![0, -999, 1]),
        };
        collection.write(&Write { delete: Some(&gone), ..Write::default() }, Durability::Group).unwrap();
        let target = Target::File { path: file.clone(), force: false };
        let written = target.write_vectors(&context, &collection.snapshot()).unwrap();
        let name = file.display().to_string();
        let read = source::open(&context, &[name], &SourceOptions::default()).unwrap();
        assert_eq!((written.rows, read.info().rows, read.info().vectors), (998, 998, rows.vectors()));
        let (mut wanted, found) = (by_id(&rows), by_id(&*read));
        wanted.retain(|id, _| !["row 0", "row 999", "0", "-999"].contains(&&**id));
        assert!(found == wanted && found.len() == 998, "{element}");
        let refused = error_of(target.write_vectors(&context, &collection.snapshot())).to_string();
        assert!(refused.contains("rows.parquet exists already"), "{refused}");
        let csv = Target::File { path: folder.path().join("rows.csv"), force: false };
        let refused = error_of(csv.write_vectors(&context, &collection.snapshot())).to_string();
        assert!(refused.contains("give a name that ends in .parquet"), "{refused}");
    }
}
