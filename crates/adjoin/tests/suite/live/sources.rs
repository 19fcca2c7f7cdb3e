//! The rows of a live index as a source of other commands.

use std::path::Path;

use adjoin::job::open_source;
use adjoin::live::{Collection, Durability, open_rows};
use adjoin::random::Random;
use adjoin::source::{IdChoice, Ids, SourceOptions, VectorSource};

use super::{LIVE, Model, Step, context_on, device};
use crate::harness::error_of;

/// What a scan in batches of so many bytes hands over.
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

/// Rows on disk, in memory, and gone; a source stays what it was while others write and merge, which removes the files that it
/// reads.
#[test]
fn a_source_is_the_rows_of_the_moment_at_which_it_was_opened() {
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
fn a_live_index_is_read_alone_and_with_its_own_ids() {
    let device = device();
    let context = &context_on(&device);
    let refused = |names: &[&str], options: &SourceOptions| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        error_of(open_source(context, &names, options)).to_string()
    };
    let plain = SourceOptions::default();
    assert!(refused(&[LIVE], &plain).contains("data/live has no rows; write some"), "{}", refused(&[LIVE], &plain));
    assert!(refused(&["a.npy", LIVE], &plain).contains("data/live is a live index, which is read alone"));
    let named = SourceOptions { ids: IdChoice::Column("id".into()), ..SourceOptions::default() };
    assert!(refused(&[LIVE], &named).contains("data/live is a live index, and id-column has a meaning only for files"));
}
