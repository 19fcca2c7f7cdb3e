use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{FixedSizeListBuilder, UInt8Builder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;

use super::lists::{Edges, ListWriter, Windows};
use super::reach;
use super::vertices::VertexMap;
use crate::context::Context;
use crate::index::{self, Index, IndexOptions, Layout};
use crate::load::{Buckets, ReadAhead, least_read_ahead};
use crate::plan::Load;
use crate::random::Random;
use crate::source::{self, IdKind, Ids, SourceOptions};
use crate::sql::Condition;
use crate::store::{self, BuildOptions, Store};

/// Lists of random vertices, some of which nothing leads to.
fn some_lists(random: &mut Random, vertices: u32, degree: u64) -> Vec<Vec<u32>> {
    let list = |vertex: u32, random: &mut Random| {
        let mut list: Vec<u32> = Vec::new();
        for _ in 0..random.below(degree + 1) {
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
fn what_was_not_reached_is_linked_and_nothing_is_cut_off() {
    let (context, folder) = (Context::default(), tempfile::tempdir().unwrap());
    let mut random = Random::new(1, "reach");
    for (vertices, degree) in [(1, 2), (2, 2), (40, 2), (300, 3), (300, 8)] {
        let lists = some_lists(&mut random, vertices, degree);
        let mut writer = ListWriter::new(&context, folder.path(), Windows::of_size(vertices, 7)).unwrap();
        (0..).zip(&lists).for_each(|(vertex, list)| writer.push(vertex, list).unwrap());
        let entry = random.below(vertices.into()) as u32;
        let repaired = reach::repair(&context, writer.finish().unwrap(), (entry, degree as usize)).unwrap();
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
fn sources_are_where_edges_come_from() {
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

/// A store of vectors of two bytes.
fn store_of(context: &Context, folder: &Path, bytes: &[u8]) -> Store {
    let file = folder.join("vectors.u8bin");
    let header = [(bytes.len() / 2) as u32, 2].map(u32::to_le_bytes).concat();
    std::fs::write(&file, [&header, bytes].concat()).unwrap();
    let source = source::open(context, &[file.display().to_string()], &SourceOptions::default()).unwrap();
    let options = BuildOptions { buckets: Some(7), ..BuildOptions::default() };
    store::build(context, &*source, &folder.join("store"), &options).unwrap();
    Store::open(context, &folder.join("store")).unwrap()
}

#[test]
fn equal_vectors_share_a_vertex_wherever_they_lie() {
    let mut random = Random::new(3, "equal vectors");
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

/// A file of vectors of two bytes, many of them equal, with the number of each row as its id and as an attribute.
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
fn attributes_lie_by_entry_and_stay_with_their_rows_in_any_order() {
    let mut random = Random::new(4, "attributes");
    for values in [256, 12] {
        let (context, folder) = (Context::default(), tempfile::tempdir().unwrap());
        let rows = 1_500u32;
        let bytes: Vec<u8> = (0..2 * rows).map(|_| random.below(values) as u8).collect();
        let file = folder.path().join("set.parquet");
        write_numbered(&file, &bytes);
        let source = source::open(&context, &[file.display().to_string()], &SourceOptions::default()).unwrap();
        let attributes = vec!["number".to_owned()];
        let options = BuildOptions { buckets: Some(9), attributes, ..BuildOptions::default() };
        store::build(&context, &*source, &folder.path().join("store"), &options).unwrap();
        let store = Store::open(&context, &folder.path().join("store")).unwrap();
        let [at, anew] = ["index", "anew"].map(|name| folder.path().join(name));
        index::build(&context, &store, &at, &IndexOptions::default(), false).unwrap();
        index::relayout(&context, &at, Some(&anew), Layout::Degree, false).unwrap();
        let all: Vec<u32> = (0..rows).collect();
        let mut orders = Vec::new();
        for folder in [at, anew] {
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
