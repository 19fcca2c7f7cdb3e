//! Writes with any number of rows. The result must depend neither on batches nor on memory.

use std::path::Path;
use std::sync::Arc;

use adjoin::{
    Collection, Condition, Context, Durability, Element, IdKind, Ids, Metric, Write, WriteReport,
    lab::{collection::Put, report::Notes},
};

use super::{LIVE, Model, content, context_on, device, options, set};
use crate::harness::{Set, Setup, error_of};

/// Returns vectors with one element, which is the row number.
fn numbered(ids: &[i64]) -> Set {
    let values: Vec<f64> = (0..ids.len()).map(|row| row as f64).collect();
    Set::of(Element::F32, 1, &values).with_ids(ids).in_batches_of(1_000)
}

/// Opens an empty collection for vectors of [`numbered`]. Also returns the context and its notes.
fn opened(folder: &Path, memory: u64) -> (Context, Collection, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let mut context = Setup { memory, threads: 1, ..Setup::default() }.context();
    context.progress = notes.clone();
    let live = folder.join("live");
    Collection::create(&context, &live, &options(numbered(&[]).vectors(), Metric::L2, IdKind::Int64)).unwrap();
    (context.clone(), Collection::open(&context, &live).unwrap(), notes)
}

/// Returns the row number that [`numbered`] gave to the row with this id.
fn row_of(collection: &Collection, id: i64) -> Option<f32> {
    let vector = collection.get(&Ids::Int64(vec![id])).unwrap().remove(0)?;
    Some(f32::from_le_bytes(vector.try_into().unwrap()))
}

fn has_said_steps(notes: &Notes) -> bool {
    notes.lines().iter().any(|line| line.contains("written in several steps"))
}

const PLENTY: u64 = 2 << 30;

#[test]
fn the_last_row_of_an_id_wins_in_memory_and_on_disk() {
    for rows in [10, 40_000] {
        let folder = tempfile::tempdir().unwrap();
        let (_, collection, notes) = opened(folder.path(), PLENTY);
        let ids: Vec<i64> = (0..rows).chain([5, 7, 7]).collect();
        let (set, rows) = (numbered(&ids), rows as u64);
        let write = Write { upsert: Some(&set), ..Write::default() };
        let written = collection.write_all(&write, None, Durability::Buffered).unwrap();
        assert_eq!((written.rows, written.deleted, collection.facts().rows), (rows + 3, 3, rows));
        assert_eq!([5, 7, 8].map(|id| row_of(&collection, id)), [rows, rows + 2, 8].map(|row| Some(row as f32)));
        assert!(!has_said_steps(&notes));
        assert_eq!(written.sequence, 1, "one step is one record");
    }
}

#[test]
fn an_insert_that_is_refused_writes_nothing() {
    for rows in [10, 40_000] {
        let folder = tempfile::tempdir().unwrap();
        let (_, collection, notes) = opened(folder.path(), PLENTY);
        let there = numbered(&[-1, 3]);
        collection.load(&there, Put::Insert, Durability::Buffered).unwrap();
        let all: Vec<i64> = (4..rows).collect();
        let last = rows - 4;
        for (extra, words) in [
            (5, format!("the id 5 of row {last} occurs twice in one write; give it once")),
            (3, format!("the id 3 of row {last} already exists; upsert the row to replace it")),
        ] {
            let set = numbered(&[&all[..], &[extra]].concat());
            // A refused row causes the whole write to be refused, including its deletes and upserts.
            let (delete, upsert) = (Ids::Int64(vec![-1]), numbered(&[-2]));
            let write = Write { delete: Some(&delete), insert: Some(&set), upsert: Some(&upsert) };
            let refused = error_of(collection.write_all(&write, None, Durability::Buffered)).to_string();
            assert!(refused.contains(&words), "{refused}");
            assert_eq!((collection.facts().rows, collection.facts().sequence), (2, 1));
        }
        // Rows that a write deletes do not conflict with the rows that it inserts.
        let (delete, set) = (Ids::Int64(vec![3]), numbered(&[&all[..], &[3]].concat()));
        let write = Write { delete: Some(&delete), insert: Some(&set), upsert: None };
        let WriteReport { rows: inserted, deleted: gone, missing, .. } =
            collection.write_all(&write, None, Durability::Buffered).unwrap();
        assert_eq!((inserted, gone, missing), (rows as u64 - 3, 1, 0));
        assert_eq!(row_of(&collection, 3), Some(last as f32));
        assert!(!has_said_steps(&notes));
    }
}

#[test]
fn filtered_deletes_and_inserts_are_one_atomic_step() {
    let device = device();
    let context = &context_on(&device);
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    let mut model: Model = (0..20).map(|id| (id, [10 * id as u8; 3])).collect();
    collection.load(&set(&model), Put::Insert, Durability::Group).unwrap();
    let (condition, delete) = (Condition::parse("size < 50").unwrap(), Ids::Int64(vec![3, 19, 99]));
    let again = Model::from([(4, [200; 3]), (30, [201; 3])]);
    let new = set(&again);
    let write = Write { delete: Some(&delete), insert: Some(&new), upsert: None };
    let sequence = collection.facts().sequence + 1;
    let written = collection.write_all(&write, Some(&condition), Durability::Group).unwrap();
    assert_eq!(written, WriteReport { sequence, rows: 2, deleted: 6, missing: 1 });
    model.retain(|&id, vector| vector[0] >= 50 && id != 19);
    model.extend(again);
    assert_eq!(content(context, &collection).unwrap(), model);
    // If one of the rows is refused, the filter deletes nothing either.
    let twice = set(&Model::from([(30, [1; 3])]));
    let write = Write { insert: Some(&twice), ..Write::default() };
    let condition = Condition::parse("size < 60").unwrap();
    let refused = error_of(collection.write_all(&write, Some(&condition), Durability::Group)).to_string();
    assert!(refused.contains("the id 30 of row 0 already exists"), "{refused}");
    assert_eq!(content(context, &collection).unwrap(), model);
}
