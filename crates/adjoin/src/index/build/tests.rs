use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, UInt8Builder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;

use super::lists::{Edges, ListWriter, Windows};
use super::reach;
use super::vertices::VertexMap;
use crate::base::context::Context;
use crate::base::random::Random;
use crate::buckets::{NearRows, least_near_rows};
use crate::index::{self, GivenOrder, Index, IndexOptions};
use crate::load::{Buckets, ReadAhead, least_read_ahead, read_coordinates};
use crate::plan::Load;
use crate::source::{self, IdKind, Ids, SourceOptions};
use crate::sql::Condition;
use crate::store::{BuildOptions, Store};

/// Returns random lists. Some vertices have no incoming edge.
fn some_lists(random: &mut Random, vertices: u32, degree: u64) -> Vec<Vec<u32>> {
    let list = |vertex: u32, random: &mut Random| {
        let mut list: Vec<u32> = Vec::new();
        for _ in 0..random.below(degree + 1) {
            // All edges lead to the first half, so no vertex of the second half can be reached.
            let other = random.below(u64::from(vertices).div_ceil(2)) as u32;
            if other != vertex && !list.contains(&other) {
                list.push(other);
            }
        }
        list
    };
    (0..vertices).map(|vertex| list(vertex, random)).collect()
}

fn reached(lists: &[Vec<u32>], entry: u32) -> Vec<bool> {
    let mut reached = vec![false; lists.len()];
    let mut open = vec![entry];
    while let Some(vertex) = open.pop() {
        if !std::mem::replace(&mut reached[vertex as usize], true) {
            open.extend(&lists[vertex as usize]);
        }
    }
    reached
}

#[test]
fn unreached_vertices_are_linked_without_cutting_others_off() {
    let (context, folder) = (Context::default(), tempfile::tempdir().unwrap());
    let mut random = Random::new(1, "reach");
    for (vertices, degree) in [(1, 2), (2, 2), (40, 2), (300, 3), (300, 8)] {
        let lists = some_lists(&mut random, vertices, degree);
        let mut writer = ListWriter::new(&context, folder.path(), Windows::of_size(vertices, 7)).unwrap();
        (0..).zip(&lists).for_each(|(vertex, list)| writer.push(vertex, list).unwrap());
        let entry = random.below(vertices.into()) as u32;
        let repaired = reach::repair(&context, writer.finish().unwrap(), entry, degree as usize).unwrap();
        let range = repaired.range(&context, 0..vertices).unwrap();
        let after: Vec<Vec<u32>> = (0..vertices).map(|vertex| range.of(vertex).to_vec()).collect();
        assert!(reached(&after, entry).iter().all(|&reached| reached), "{vertices} of degree {degree}");
        for (vertex, list) in (0..).zip(&after) {
            assert!(list.len() <= degree as usize && !list.contains(&vertex), "{list:?} of {vertex}");
            let mut once = list.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), list.len(), "{list:?} of {vertex}");
        }
    }
}

#[test]
fn incoming_edges_have_the_right_sources() {
    let (context, folder) = (Context::default(), tempfile::tempdir().unwrap());
    let mut random = Random::new(2, "sources");
    let windows = Windows::of_size(100, 13);
    let mut edges = Edges::new(&context, folder.path(), windows).unwrap();
    let mut expected: HashMap<u32, Vec<u32>> = HashMap::new();
    for from in 0..100 {
        for _ in 0..random.below(9) {
            let to = random.below(100) as u32;
            edges.push(from, to).unwrap();
            expected.entry(to).or_default().push(from);
        }
    }
    let sources = edges.finish().unwrap();
    for window in 0..windows.count() {
        let (ends, all, _memory) = sources.window(&context, window).unwrap();
        let mut start = 0;
        for (vertex, end) in windows.vertices(window).zip(ends) {
            assert_eq!(all[start..end as usize], expected.remove(&vertex).unwrap_or_default(), "to {vertex}");
            start = end as usize;
        }
    }
}

/// Builds a store of vectors of two bytes.
fn store_of(context: &Context, folder: &Path, bytes: &[u8]) -> Store {
    let file = folder.join("vectors.u8bin");
    let header = [(bytes.len() / 2) as u32, 2].map(u32::to_le_bytes).concat();
    std::fs::write(&file, [&header, bytes].concat()).unwrap();
    let source = source::open(context, &[file.display().to_string()], &SourceOptions::default()).unwrap();
    let options = BuildOptions { buckets: Some(7), ..BuildOptions::default() };
    Store::build(context, &*source, &folder.join("store"), &options).unwrap();
    Store::open(context, &folder.join("store")).unwrap()
}

#[test]
fn equal_vectors_of_all_buckets_share_a_vertex() {
    let mut random = Random::new(3, "equal vectors");
    // With few values per byte, most vectors are equal to vectors in other buckets.
    for (rows, values) in [(1, 1), (500, 1), (500, 3), (3_000, 40), (3_000, 250)] {
        let bytes: Vec<u8> = (0..2 * rows).map(|_| random.below(values) as u8).collect();
        let folder = tempfile::tempdir().unwrap();
        let context = Context::default();
        let store = store_of(&context, folder.path(), &bytes);
        let buckets = Buckets::of(&store);
        let centers = buckets.centers::<u8>().unwrap();
        let map = VertexMap::find(&context, &buckets, &centers, folder.path()).unwrap();
        let mut vertex_of: HashMap<&[u8], u32> = HashMap::new();
        let mut first_row: HashMap<u32, u64> = HashMap::new();
        let mut stand = 0;
        let memory = least_read_ahead(buckets.extents(), false);
        let loads = Load::each(buckets.count());
        let mut ahead = ReadAhead::new(&context, "test", &buckets, false, memory, loads, &context.cancel).unwrap();
        while let Some(bucket) = ahead.next_bucket().unwrap() {
            for (member, row) in (0..).zip(bucket.decode(&buckets).unwrap().rows) {
                let number = bucket.number();
                let vector = &bytes[2 * row as usize..][..2];
                let (vertex, stands) = map.vertex_of(number, member);
                assert_eq!(*vertex_of.entry(vector).or_insert(vertex), vertex, "{vector:?}");
                stand += u32::from(stands);
                if stands {
                    assert_eq!(first_row.insert(vertex, row), None);
                    assert!(map.of_bucket(number).contains(&vertex));
                }
            }
        }
        assert_eq!((map.len(), map.len() as usize), (stand, vertex_of.len()));
        for (vector, vertex) in vertex_of {
            let least = bytes.chunks(2).position(|other| other == vector).unwrap() as u64;
            assert_eq!(first_row[&vertex], least, "{vector:?} stands for the least row");
        }
    }
}

/// Returns the places of the nearest rows of each row in the subset, ascending.
fn near_places(context: &Context, near: NearRows<'_>) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    near.each(context, &mut |first, found| {
        assert_eq!(first as usize, all.len(), "rows come in their order");
        all.extend(found.into_iter().map(|mut places| {
            places.sort_unstable();
            places
        }));
        Ok(())
    })
    .unwrap();
    all
}

#[test]
fn near_rows_are_the_nearest_rows_with_any_memory() {
    let mut random = Random::new(5, "near rows");
    for (rows, values, count) in [(1, 9, 3), (2, 9, 5), (300, 16, 4), (1_400, 250, 10), (6_000, 250, 20)] {
        let bytes: Vec<u8> = (0..2 * rows).map(|_| random.below(values) as u8).collect();
        let (folder, context) = (tempfile::tempdir().unwrap(), Context::default());
        let store = store_of(&context, folder.path(), &bytes);
        let buckets = Buckets::of(&store);
        let centers = buckets.centers::<u8>().unwrap();
        let map = VertexMap::find(&context, &buckets, &centers, folder.path()).unwrap();
        let subset = map.subset();
        let near = NearRows { buckets: &buckets, subset, count, recall: 0.8, seed: 1 };
        let found = near_places(&context, near);
        let little = context.for_run(least_near_rows(&context, &buckets, count), "a test").unwrap();
        assert_eq!(near_places(&little, near), found, "{rows} rows with the least memory");
        let mut one = Context::default();
        one.threads = 1;
        assert_eq!(near_places(&one, near), found, "{rows} rows on one thread");

        let places = subset.draw(u64::MAX, 1, "all");
        let vectors = read_coordinates::<u8>(&context, &buckets, &places).unwrap();
        let places: Vec<u32> = places.iter().map(|&(bucket, member)| subset.starts[bucket as usize] + member).collect();
        assert_eq!(found.len(), places.len());
        let (mut missed, mut wanted) = (0, 0);
        for (x, found) in found.iter().enumerate() {
            let squared = |y: usize| -> u32 {
                let of = |k: usize| u32::from(vectors.row(x)[k].abs_diff(vectors.row(y)[k])).pow(2);
                (0..2).map(of).sum()
            };
            let others = (0..places.len()).filter(|&y| y != x);
            let mut nearest: Vec<(u32, u32)> = others.map(|y| (squared(y), places[y])).collect();
            nearest.sort_unstable();
            nearest.truncate(count as usize);
            assert_eq!(found.len(), nearest.len());
            missed += nearest.iter().filter(|(_, place)| found.binary_search(place).is_err()).count();
            wanted += nearest.len();
        }
        // With few rows, all are compared.
        let most = if rows < 1_500 { 0 } else { wanted / 4 };
        assert!(missed <= most, "{missed} of {wanted} of {rows} rows");
    }
}

/// Writes vectors of two bytes, many of them equal, with the number of each row as its id and in a column.
fn write_numbered(path: &Path, bytes: &[u8]) {
    let mut vectors = FixedSizeListBuilder::new(UInt8Builder::new(), 2);
    for vector in bytes.chunks_exact(2) {
        vectors.values().append_slice(vector);
        vectors.append(true);
    }
    let numbers = Int64Array::from_iter_values(0..bytes.len() as i64 / 2);
    let columns: [(&str, ArrayRef); 3] =
        [("id", Arc::new(numbers.clone())), ("vector", Arc::new(vectors.finish())), ("number", Arc::new(numbers))];
    let table = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(std::fs::File::create(path).unwrap(), table.schema(), None).unwrap();
    writer.write(&table).unwrap();
    writer.close().unwrap();
}

#[test]
fn columns_are_ordered_by_entry_and_follow_their_rows() {
    let mut random = Random::new(4, "attributes");
    // With 256 values per byte, few vectors are equal. With 12, most are.
    for values in [256, 12] {
        let (context, folder) = (Context::default(), tempfile::tempdir().unwrap());
        let rows = 1_500u32;
        let bytes: Vec<u8> = (0..2 * rows).map(|_| random.below(values) as u8).collect();
        let file = folder.path().join("set.parquet");
        write_numbered(&file, &bytes);
        let source = source::open(&context, &[file.display().to_string()], &SourceOptions::default()).unwrap();
        let attributes = vec!["number".to_owned()];
        let options = BuildOptions { buckets: Some(9), attributes, ..BuildOptions::default() };
        Store::build(&context, &*source, &folder.path().join("store"), &options).unwrap();
        let store = Store::open(&context, &folder.path().join("store")).unwrap();
        let [at, again] = ["index", "again"].map(|name| folder.path().join(name));
        Index::build(&context, &store, &at, &IndexOptions::default(), false).unwrap();
        let vertices = index::Index::open(&context, &at).unwrap().facts().vertices;
        let backwards: Vec<u32> = (0..vertices).rev().collect();
        let given = GivenOrder { name: "backwards", order: &backwards };
        index::relayout_in_order(&context, &at, Some(&again), given, false).unwrap();
        let all: Vec<u32> = (0..rows).collect();
        let mut orders = Vec::new();
        for folder in [at, again] {
            let index = Index::open(&context, &folder).unwrap();
            assert_eq!(index.facts().vertices < rows, index.duplicates.len() > 0);
            assert!(values > 12 || index.duplicates.len() > 500, "else the test shows nothing");
            let Ids::Int64(ids) = index.ids_of(IdKind::Int64, &all).unwrap() else { panic!("ids are numbers") };
            for limit in [0, 1, 700, i64::from(rows)] {
                let condition = Condition::parse(&format!("number < {limit}")).unwrap();
                let passing = index.passing(&context, &condition).unwrap();
                assert_eq!(passing.count(), limit as u64);
                for (entry, &id) in all.iter().zip(&ids) {
                    assert_eq!(passing.contains(*entry), id < limit, "entry {entry} of row {id}");
                }
            }
            orders.push(ids);
        }
        assert_ne!(orders[0], orders[1], "else the order did not change");
    }
}
