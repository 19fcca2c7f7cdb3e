use std::collections::HashMap;
use std::path::Path;

use super::lists::{Edges, ListWriter, Windows};
use super::reach;
use super::vertices::VertexMap;
use crate::context::Context;
use crate::load::{Buckets, ReadAhead, least_read_ahead};
use crate::plan::Load;
use crate::random::Random;
use crate::source::{self, SourceOptions};
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
