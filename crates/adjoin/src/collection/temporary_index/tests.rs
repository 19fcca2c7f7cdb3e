//! Checks the hits, the memory and the undoing of changes of a temporary index, with and without buckets.

use super::*;
use crate::base::allocated::{allocated, assert_states_bytes};
use crate::base::options::{Element, VectorType};
use crate::base::random::Random;
use crate::index::UnmergedRows;
use crate::query::{QueryTarget, QueryVectors};
use crate::source::{IdKind, TextIds};

fn change(ids: &[i64], stored: &[u8]) -> Change {
    let none = Ids::empty(IdKind::Int64);
    Change { deleted: none, ids: Ids::Int64(ids.to_vec()), stored: stored.to_vec(), attributes: Default::default() }
}

/// Inserts `rows` rows in changes of 700, and packs all full blocks as searches do.
fn grown(context: &Context, space: Space<'static>, kind: IdKind, rows: i64) -> TemporaryIndex {
    let mut index = TemporaryIndex::new(context, space, Ids::empty(kind)).unwrap();
    for first in (0..rows).step_by(700) {
        let mut texts = TextIds::default();
        (first..first + 700).for_each(|k| texts.push(format!("document {k}").as_bytes()));
        let ids = match kind {
            IdKind::Utf8 => Ids::Utf8(texts),
            _ => Ids::Int64((first..first + 700).collect()),
        };
        let (deleted, stored) = (Ids::empty(kind), vec![1; 700 * space.vectors.bytes()]);
        let change = Change { deleted, ids, stored, attributes: Default::default() };
        let room = TemporaryIndex::room_for(context, index.bytes_of(&change)).unwrap();
        let mut deletes = TemporaryIndex::room_for(context, index.deleting_bytes(&change)).unwrap();
        index.apply(&change, room, &mut deletes);
    }
    for full in &index.full {
        with_coordinates!(space, T => _ = full.packed::<T>(context.kernel, space));
    }
    index
}

#[test]
fn rows_hold_at_most_the_bytes_that_are_reserved_for_them() {
    for (element, dimensions) in [(Element::U8, 128), (Element::F32, 48), (Element::I8, 384)] {
        for kind in [IdKind::Int64, IdKind::Utf8] {
            let space = Space::plain(VectorType { element, dimensions }, Metric::L2);
            let (index, held) = allocated(|| grown(&Context::default(), space, kind, 20_000));
            assert_states_bytes(held, index.memory.bytes());
        }
    }
}

/// Groups full blocks into buckets until none are left to group.
fn bucket_all(context: &Context, index: &mut TemporaryIndex) {
    while let Some(bucketing) = index.begin_bucketing() {
        assert!(index.begin_bucketing().is_none(), "one thread groups at a time");
        let made = bucketing.run(context, 7).unwrap();
        index.end_bucketing(&bucketing, Some(made));
    }
}

/// Creates an index of `rows` drawn vectors around some points, with the row numbers as ids.
fn drawn(context: &Context, space: Space<'static>, rows: usize, seed: u64) -> TemporaryIndex {
    let mut index = TemporaryIndex::new(context, space, Ids::empty(IdKind::Int64)).unwrap();
    let stored = vectors(space, rows, POINTS, seed);
    for (k, stored) in stored.chunks(500 * space.vectors.bytes()).enumerate() {
        let first = 500 * k as i64;
        let ids: Vec<i64> = (first..first + (stored.len() / space.vectors.bytes()) as i64).collect();
        insert(context, &mut index, &change(&ids, stored));
    }
    index
}

fn insert(context: &Context, index: &mut TemporaryIndex, change: &Change) {
    let room = TemporaryIndex::room_for(context, index.bytes_of(change)).unwrap();
    let mut deletes = TemporaryIndex::room_for(context, index.deleting_bytes(change)).unwrap();
    index.apply(change, room, &mut deletes);
}

/// Seed of the points around which rows are drawn.
const POINTS: u64 = 1;

/// Draws vectors around 40 points, which depend on the seed `points`.
fn vectors(space: Space<'static>, rows: usize, points: u64, seed: u64) -> Vec<u8> {
    let (points, own) = (&mut Random::new(points, "points"), &mut Random::new(seed, "vectors"));
    let dimensions = space.vectors.dimensions;
    let points: Vec<u64> = (0..40 * dimensions).map(|_| points.below(200)).collect();
    let mut stored = Vec::new();
    for _ in 0..rows {
        let point = own.below(40) as usize * dimensions;
        for coordinate in &points[point..point + dimensions] {
            let value = coordinate + own.below(56);
            match space.vectors.element {
                Element::F32 => stored.extend((value as f32 + 0.25).to_le_bytes()),
                _ => stored.push(value as u8),
            }
        }
    }
    stored
}

/// Returns the row numbers of the `k` nearest rows of some queries.
fn nearest(context: &Context, view: &TemporaryView, queries: &[u8], k: u64) -> Vec<Vec<u64>> {
    let queries = QueryVectors { vectors: view.space.vectors, stored: queries };
    let found = view.find(context, queries, QueryTarget::Nearest(k), 0).unwrap().unwrap();
    found.iter().map(|hits| hits.iter().map(|hit| hit.row).collect()).collect()
}

#[test]
fn rows_in_buckets_are_found_with_the_promised_recall_and_all_without_one() {
    let context = &Context::default().with_threads(2);
    for (element, dimensions, metric) in
        [(Element::U8, 512, Metric::L2), (Element::F32, 160, Metric::L2), (Element::F32, 160, Metric::Cosine)]
    {
        let space = Space::plain(VectorType { element, dimensions }, metric);
        let rows = 36 * block_rows(space) + 77;
        let mut index = drawn(context, space, rows, 2);
        let gone: Vec<i64> = (0..rows as i64).step_by(3).collect();
        let deletes = Change { deleted: Ids::Int64(gone), ..change(&[], &[]) };
        insert(context, &mut index, &deletes);
        let (queries, unlike) = (vectors(space, 600, POINTS, 3), vectors(space, 600, POINTS + 1, 3));
        let [all, all_unlike] = [&queries, &unlike].map(|queries| nearest(context, &index.view(), queries, 10));
        bucket_all(context, &mut index);
        assert_eq!(index.bucketed.len(), 1);
        let view = index.view();
        assert_eq!(nearest(context, &view, &queries, 10), all, "{element} {metric}");
        for recall in [0.8, 0.99] {
            let view = view.clone().with_recall(recall);
            let found = nearest(context, &view, &queries, 10);
            assert!(found.iter().flatten().all(|row| row % 3 != 0), "deleted rows are no hits");
            let hits = found.iter().zip(&all).flat_map(|(found, all)| all.iter().filter(|row| found.contains(row)));
            let reached = hits.count() as f64 / 6_000.0;
            assert!(reached >= recall, "{element} {metric}: {reached} of {recall}");
            // Queries around other points are compared with all rows.
            assert_eq!(nearest(context, &view, &unlike, 10), all_unlike, "{element} {metric}");
        }
        // The sample does not support this recall, so queries are compared with all rows.
        assert_eq!(nearest(context, &view.with_recall(0.99999), &queries, 10), all);
    }
}

#[test]
fn few_groups_hold_all_full_blocks_and_take_the_memory_that_they_state() {
    let space = Space::plain(VectorType { element: Element::U8, dimensions: 1_024 }, Metric::L2);
    let block = block_rows(space);
    let (index, held) = allocated(|| {
        let context = &Context::default().with_threads(1);
        let mut index = drawn(context, space, 7 * block, 1);
        assert!(!index.needs_buckets());
        let more = vectors(space, block, POINTS, 9);
        for k in 8..=160 {
            let ids: Vec<i64> = (k * 1_000..k * 1_000 + block as i64).collect();
            insert(context, &mut index, &change(&ids, &more));
            bucket_all(context, &mut index);
        }
        index
    });
    let groups: Vec<usize> = index.bucketed.iter().map(|group| group.blocks).collect();
    assert_eq!(groups, [128, 32]);
    assert_states_bytes(held, LEAST_BYTES + index.held_bytes());
}

#[test]
fn buckets_of_removed_blocks_are_dropped_and_without_memory_all_rows_are_compared() {
    let space = Space::plain(VectorType { element: Element::U8, dimensions: 1_024 }, Metric::L2);
    let context = &Context::default().with_threads(1);
    let mut index = drawn(context, space, 33 * block_rows(space), 1);
    let bucketing = index.begin_bucketing().unwrap();
    let made = bucketing.run(context, 1).unwrap();
    let mut other = drawn(context, space, 33 * block_rows(space), 1);
    other.end_bucketing(&bucketing, Some(made));
    assert!(other.bucketed.is_empty() && other.needs_buckets());
    let small = &context.clone().with_memory(1 << 20);
    assert!(bucketing.run(small, 1).is_err());
    index.end_bucketing(&bucketing, None);
    assert!(index.bucketed.is_empty() && !index.needs_buckets());
}

#[test]
fn an_undone_change_with_an_id_twice_leaves_the_earlier_row() {
    let context = &Context::default();
    let space = Space::plain(VectorType { element: Element::U8, dimensions: 1 }, Metric::L2);
    let mut index = TemporaryIndex::new(context, space, Ids::empty(IdKind::Int64)).unwrap();
    let room = || TemporaryIndex::room_for(context, 1 << 10).unwrap();
    let (earlier, refused) = (change(&[7], &[1]), change(&[7, 7, 8, 8], &[2, 3, 4, 5]));
    let deletes = &mut TemporaryIndex::room_for(context, 1 << 20).unwrap();
    let _ = index.apply(&earlier, room(), deletes);
    let undo = index.apply(&refused, room(), deletes);
    assert_eq!((index.live(), index.number(&refused.ids, 0), index.number(&refused.ids, 2)), (2, Some(2), Some(4)));
    index.undo(undo, deletes);
    assert_eq!((index.live(), index.deleted_rows()), (1, 4));
    assert_eq!((index.number(&refused.ids, 0), index.number(&refused.ids, 2)), (Some(0), None));
    assert_eq!(index.view().rows(), 1);
}
