//! Checks that a merged index has the expected rows, each once, and that searches find them.

use super::cells::{CENTERS, Cells};
use super::{Merge, Newcomers, REPLACEMENTS};
use crate::base::context::Context;
use crate::base::geometry::with_coordinates;
use crate::base::options::{Element, Metric, VectorType};
use crate::base::random::Random;
use crate::base::row_numbers::RowSet;
use crate::index::calibration::Calibration;
use crate::index::tests::{Indexed, Set};
use crate::index::{DeleteList, GivenOrder, Index, IndexRows, relayout_in_order, search};
use crate::load::Members;
use crate::query::{QuerySources, QueryTarget, SearchEffort, SearchOptions};
use crate::sink::Collect;
use crate::source::{Ids, VectorSource};

const BYTES: VectorType = VectorType { element: Element::U8, dimensions: 6 };

impl Newcomers for Set {
    fn rows(&self) -> u32 {
        self.info().rows as u32
    }

    fn vector(&self, number: u32) -> &[u8] {
        self.stored(number as usize)
    }

    fn push_id(&self, number: u32, ids: &mut Ids) {
        ids.push_from(self.ids(), number as usize);
    }
}

/// Ids and vectors, ordered by id.
type Rows = Vec<(i64, Vec<u8>)>;

/// Returns all rows of an index.
fn rows_of(index: &Index) -> Rows {
    let source = IndexRows::new(index, None);
    let (mut scan, mut rows) = (source.scan(1 << 16).unwrap(), Vec::new());
    while let Some(batch) = scan.next_batch().unwrap() {
        let Ids::Int64(ids) = &batch.ids else { panic!("ids of another kind") };
        let vectors = batch.bytes.chunks_exact(source.info().vectors.bytes());
        rows.extend(ids.iter().copied().zip(vectors.map(<[u8]>::to_vec)));
    }
    rows.sort();
    rows
}

/// Merges rows, many of which are equal, both in the index and among the inserted rows.
fn merged(context: &Context, indexed: &Indexed, share: u64, came: &Set, replacements: usize) -> (Index, Rows) {
    let index = &indexed.index;
    let mut random = Random::new(share, "deleted");
    let deleted = DeleteList::of(index, (0..index.facts().rows as u32).filter(|_| random.below(100) < share));
    let entries: Vec<u32> = (0..index.facts().rows as u32).filter(|&entry| !deleted.has(entry)).collect();
    let ids = index.ids_of(index.facts().ids, &entries).unwrap();
    let Ids::Int64(ids) = ids else { panic!("ids of another kind") };
    let stored = index.vectors_of(&Context::default(), &entries).unwrap();
    let vectors = stored.chunks_exact(index.facts().vectors.bytes()).map(<[u8]>::to_vec);
    let mut wanted: Rows = ids.into_iter().zip(vectors).collect();
    let Ids::Int64(new_ids) = came.ids() else { panic!("ids of another kind") };
    wanted.extend(new_ids.iter().enumerate().map(|(row, &id)| (id, came.stored(row).to_vec())));
    wanted.sort();
    let folder = indexed.at(&format!("merged-{share}-{}-{}", came.info().rows, context.threads));
    let merge = Merge { context, index, deleted: &deleted, newcomers: came, replacements };
    assert!(merge.is_possible());
    merge.run(&folder).unwrap();
    (Index::open(context, &folder).unwrap(), wanted)
}

#[test]
fn a_merged_index_has_the_kept_and_inserted_rows() {
    let context = &Context::default();
    let indexed = Indexed::new(Set::drawn(BYTES, 2_000, 0, 1), Metric::L2);
    for (share, came, replacements) in [(0, 0, REPLACEMENTS), (0, 300, 1), (30, 0, REPLACEMENTS), (60, 900, 1)] {
        let came = Set::drawn(BYTES, came, 100_000, 2 + share);
        let (index, wanted) = merged(context, &indexed, share, &came, replacements);
        assert_eq!(rows_of(&index), wanted, "{share} % went");
        let damages = Index::verify(context, index.folder()).unwrap().damages;
        assert!(damages.is_empty(), "{damages:?}");
        let distinct: std::collections::HashSet<&Vec<u8>> = wanted.iter().map(|(_, vector)| vector).collect();
        assert_eq!(index.facts().vertices as usize, distinct.len(), "a vertex for each vector");
    }
}

/// With a list of all vertices, a search finds every row that walks reach.
#[test]
fn each_row_of_a_merged_index_is_found() {
    let context = &Context::default();
    for (element, metric) in [(Element::U8, Metric::L2), (Element::F32, Metric::Cosine)] {
        let vectors = VectorType { element, dimensions: 7 };
        let numbered = |set: Set, first: i64| {
            let ids = (first..first + set.info().rows as i64).collect();
            set.with_ids(Ids::Int64(ids))
        };
        let indexed = Indexed::new(numbered(Set::spread(vectors, 1_500, 1), 0), metric);
        let came = numbered(Set::spread(vectors, 400, 2), 10_000);
        let (index, wanted) = merged(context, &indexed, 25, &came, REPLACEMENTS);
        let hits = Collect::default();
        let all = wanted.len();
        let options = SearchOptions::new(QueryTarget::Nearest(1), SearchEffort::List(all), 1);
        let stored = wanted.iter().flat_map(|(_, vector)| vector.clone()).collect();
        let queries = Set::of_stored(vectors, stored);
        search(context, &index, QuerySources::new(&queries), &options, Box::new(hits.clone())).unwrap();
        let row_of: std::collections::HashMap<u64, i64> = {
            let entries: Vec<u32> = (0..index.facts().rows as u32).collect();
            let Ids::Int64(ids) = index.ids_of(index.facts().ids, &entries).unwrap() else { panic!("other ids") };
            Indexed::rows_of(&index).into_iter().map(|row| row as u64).zip(ids).collect()
        };
        for ((id, _), found) in wanted.iter().zip(hits.hits()) {
            assert_eq!(row_of[&found[0].0], *id, "{element} {metric}");
        }
    }
}

/// The navigation graph of a small index has few vertices, and all cells are compared.
#[test]
fn near_vertices_are_the_nearest_of_all_cells_that_are_compared() {
    for (element, metric) in [(Element::U8, Metric::L2), (Element::F32, Metric::Cosine)] {
        let vectors = VectorType { element, dimensions: 7 };
        let indexed = Indexed::new(Set::spread(vectors, 1_500, 1), metric);
        let (index, space) = (&indexed.index, indexed.index.facts().space());
        let mut kept = RowSet::new(index.facts().vertices.into());
        (0..index.facts().vertices).filter(|vertex| vertex % 7 > 0).for_each(|vertex| kept.insert(vertex.into()));
        let all: Vec<u32> = kept.iter().map(|vertex| vertex as u32).collect();
        let (count, queries) = (20, Set::spread(vectors, 40, 2));
        let queries: Vec<u8> = (0..40).flat_map(|row| queries.stored(row).to_vec()).collect();
        with_coordinates!(space, T => {
            let context = Context::default();
            let queries = Members::<T>::new(context.kernel, space, &queries);
            let of_index = Members::<T>::new(context.kernel, space, &index.vectors_of(&context, &all).unwrap());
            for context in [context.clone().with_threads(1), context.with_threads(3).with_memory(24 << 20)] {
                let cells = Cells::<T>::find(&context, index, &kept).unwrap();
                let probed = cells.probed(&queries.panel).unwrap();
                let found = cells.nearest(&queries, &probed, count).unwrap();
                for (query, found) in found.into_iter().enumerate() {
                    let distance = |row: usize| -> f64 {
                        let (x, y) = (queries.panel.row(query), of_index.panel.row(row));
                        x.iter().zip(y).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)).sum()
                    };
                    let mut expected: Vec<(f64, u32)> = (0..all.len()).map(|row| (distance(row), all[row])).collect();
                    expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
                    let expected: Vec<u32> = expected[..count].iter().map(|&(_, vertex)| vertex).collect();
                    assert_eq!(found[..count], expected, "{element} {metric} query {query}");
                    let farther = &found[count..];
                    assert!(farther.len() <= CENTERS && farther.iter().all(|&vertex| kept.contains(vertex.into())));
                }
            }
        });
    }
}

/// Rows are compared with each other in cells, or, if many are in one cell, through a graph.
#[test]
fn inserted_rows_find_each_other_in_cells() {
    let indexed = Indexed::new(Set::spread(BYTES, 1_500, 1), Metric::L2);
    let (context, index) = (&Context::default(), &indexed.index);
    let kept = RowSet::all(index.facts().vertices.into());
    let cells = Cells::<u8>::find(context, index, &kept).unwrap();
    let of = |rows: &Set| {
        let stored: Vec<u8> = (0..rows.info().rows as usize).flat_map(|row| rows.stored(row).to_vec()).collect();
        Members::<u8>::new(context.kernel, index.facts().space(), &stored).panel
    };
    let panel = of(&Set::spread(BYTES, 200, 2));
    // The index has 15 cells, and all of them are compared.
    let found = cells.near_each_other(&panel, &cells.probed(&panel).unwrap(), 12).unwrap().unwrap();
    for (row, found) in found.into_iter().enumerate() {
        let squared = |other: usize| -> u32 {
            let pairs = panel.row(row).iter().zip(panel.row(other));
            pairs.map(|(&x, &y)| u32::from(x.abs_diff(y)).pow(2)).sum()
        };
        let mut expected: Vec<u32> = (0..200).filter(|&other| other != row as u32).collect();
        expected.sort_by_key(|&other| (squared(other as usize), other));
        assert_eq!(found, expected[..12], "row {row}");
    }
    let many = of(&Set::spread(BYTES, 3_000, 3));
    let one_cell = vec![vec![0]; 3_000];
    assert!(cells.near_each_other(&many, &one_cell, 12).unwrap().is_none());
}

/// The navigation graph of a merged index has about as many vertices as the navigation graph of a new index. Inserted rows
/// have their share, also if the number of vertices is fixed.
#[test]
fn the_navigation_graph_of_a_merged_index_is_a_sample_of_its_vertices() {
    let context = &Context::default();
    let vectors = VectorType { element: Element::U8, dimensions: 12 };
    for navigation in [None, Some(50)] {
        let rows = Set::spread(vectors, 5_000, 1).with_ids(Ids::Int64((0..5_000).collect()));
        let indexed = Indexed::with_navigation(rows, Metric::L2, navigation);
        for (percent, inserts) in [(0, 600), (10, 600), (40, 0), (95, 0)] {
            let ids = Ids::Int64((100_000..100_000 + inserts as i64).collect());
            let inserted = Set::spread(vectors, inserts, 2 + percent).with_ids(ids);
            let (index, _) = merged(context, &indexed, percent, &inserted, REPLACEMENTS);
            let mut vertices = index.navigation.vertices().to_vec();
            vertices.sort_unstable();
            vertices.dedup();
            assert_eq!(vertices.len(), index.navigation.vertices().len(), "no vertex is in it twice");
            let wanted = navigation.map_or(index.facts().vertices as usize / 100, |count| count as usize);
            let most = wanted + super::navigation::ISLANDS_MAX;
            assert!((wanted * 3 / 4..=most).contains(&vertices.len()), "{} of {wanted} vertices", vertices.len());
            let Ids::Int64(ids) = index.ids_of(index.facts().ids, &vertices).unwrap() else { panic!("other ids") };
            let of_inserted = ids.into_iter().filter(|&id| id >= 100_000).count();
            let expected = wanted * inserts / index.facts().rows as usize;
            assert!(of_inserted.abs_diff(expected) <= expected * 3 / 4, "{of_inserted} of {expected} inserted ones");
        }
    }
}

#[test]
fn an_index_is_changed_only_if_little_is_inserted_and_deleted() {
    let context = &Context::default();
    let indexed = Indexed::new(Set::drawn(BYTES, 2_000, 0, 1), Metric::L2);
    let limits = [(0, 250), (200, 225), (360, 50), (400, 0)];
    for (deleted, came) in limits {
        for (deleted, came, pays) in [(deleted, came, true), (deleted + 1, came + 1, false)] {
            let deleted = &DeleteList::of(&indexed.index, 0..deleted);
            let newcomers = &Set::drawn(BYTES, came, 100_000, 2);
            let merge = Merge { context, index: &indexed.index, deleted, newcomers, replacements: REPLACEMENTS };
            assert_eq!(merge.pays(), pays, "{} deleted and {came} inserted", deleted.len());
        }
    }
}

/// Copies of an old vector have no vertex of their own.
#[test]
fn calibration_lists_inserted_copies_also_after_relayout() {
    let context = &Context::default();
    let indexed = Indexed::new(Set::drawn(BYTES, 2_000, 0, 1), Metric::L2);
    let copies = Set::of_stored(BYTES, indexed.index.vectors_of(context, &[5]).unwrap().repeat(100));
    let copies = copies.with_ids(Ids::Int64((100_000..100_100).collect()));
    let (merged, _) = merged(context, &indexed, 10, &copies, REPLACEMENTS);
    let relaid = indexed.at("relaid");
    // Reversed, so that the entries of all rows change.
    let order: Vec<u32> = (0..merged.facts().vertices).rev().collect();
    let reversed = GivenOrder { name: "reversed", order: &order };
    relayout_in_order(context, merged.folder(), Some(&relaid), reversed, false).unwrap();
    for index in [&merged, &Index::open(context, &relaid).unwrap()] {
        let inserted = index.calibration.as_ref().map(Calibration::inserted).unwrap();
        let Ids::Int64(mut ids) = index.ids_of(index.facts().ids, &inserted.entries).unwrap() else {
            panic!("other ids")
        };
        ids.sort_unstable();
        assert_eq!(ids, (100_000..100_100).collect::<Vec<_>>());
        assert!(inserted.whole && inserted.entries.is_sorted());
    }
}

/// Returns the recall@10 of some queries with a list of `list` candidates.
fn recall_of(context: &Context, index: &Index, queries: &Set, list: usize) -> f64 {
    let find = |effort| {
        let (hits, options) = (Collect::default(), SearchOptions::new(QueryTarget::Nearest(10), effort, 1));
        search(context, index, QuerySources::new(queries), &options, Box::new(hits.clone())).unwrap();
        hits.hits()
    };
    let (found, wanted) = (find(SearchEffort::List(list)), find(SearchEffort::Exact));
    // Hits are compared by distance and not by row, since equally near rows are equally right.
    let far = |hits: &[(u64, f32)]| hits.last().map_or(0.0, |hit| hit.1);
    let right =
        found.iter().zip(&wanted).map(|(found, wanted)| found.iter().filter(|hit| hit.1 <= far(wanted)).count());
    right.sum::<usize>() as f64 / wanted.iter().map(Vec::len).sum::<usize>() as f64
}

#[test]
fn inserted_rows_of_a_new_region_are_linked_with_each_other() {
    let context = &Context::default();
    let vectors = VectorType { element: Element::F32, dimensions: 12 };
    let indexed = Indexed::new(Set::spread(vectors, 1_500, 1).with_ids(Ids::Int64((0..1_500).collect())), Metric::L2);
    // The rows are so far away that no old vertex is a useful neighbor.
    let far = Set::spread(vectors, 500, 2).moved(100.0).with_ids(Ids::Int64((10_000..10_500).collect()));
    let (index, _) = merged(context, &indexed, 0, &far, REPLACEMENTS);
    let recalls = [&far, &Set::spread(vectors, 200, 3)].map(|queries| recall_of(context, &index, queries, 40));
    assert!(recalls.iter().all(|&recall| recall >= 0.9), "of new and old rows: {recalls:?}");
    let inserted = index.calibration.as_ref().unwrap().inserted();
    assert!(inserted.whole && inserted.entries.len() == 500, "the recall of inserted rows is measured");
}

#[test]
fn a_small_region_far_from_all_others_is_found() {
    let context = &Context::default();
    let vectors = VectorType { element: Element::F32, dimensions: 12 };
    let far = |seed| Set::spread(vectors, 40, seed).moved(100.0);
    // A sample of one row in a hundred has hardly any of the 40.
    for seed in 0..4 {
        let indexed = Indexed::new(Set::spread(vectors, 1_000, seed).and(far(10 + seed)), Metric::L2);
        let recall = recall_of(context, &indexed.index, &far(20 + seed), 40);
        assert!(recall >= 0.9, "seed {seed}: {recall}");
    }
}

#[test]
fn rows_inserted_into_copies_of_one_vector_are_linked() {
    let context = &Context::default();
    let vectors = VectorType { element: Element::F32, dimensions: 12 };
    // All inserted rows find the same old vertex, so they can be reached only from each other.
    let one = Set::spread(vectors, 1, 1).stored(0).repeat(300);
    let copies = Set::of_stored(vectors, one).with_ids(Ids::Int64((0..300).collect()));
    let indexed = Indexed::new(copies, Metric::L2);
    assert_eq!(indexed.index.facts().vertices, 1);
    let others = Set::spread(vectors, 1_200, 2).with_ids(Ids::Int64((10_000..11_200).collect()));
    let (index, _) = merged(context, &indexed, 0, &others, REPLACEMENTS);
    let recall = recall_of(context, &index, &others, 40);
    assert!(recall >= 0.9, "{recall}");
}

#[test]
fn a_merged_index_does_not_depend_on_threads_or_memory() {
    let indexed = Indexed::new(Set::drawn(BYTES, 3_000, 0, 1), Metric::L2);
    let came = Set::drawn(BYTES, 500, 100_000, 3);
    let manifest = |memory: &str, threads| {
        let context = Context::default().with_resources(Some(memory), Some(threads)).unwrap();
        let (index, _) = merged(&context, &indexed, 10, &came, REPLACEMENTS);
        index.facts().encode()
    };
    let usual = manifest("1GiB", 2);
    assert_eq!(manifest("1GiB", 1), usual);
    // The manifest contains the checksums of all files, so equal manifests mean equal indexes.
    assert_eq!(manifest("64MiB", 3), usual);
}

#[test]
fn a_merge_trains_codes_only_if_their_error_has_grown() {
    let context = &Context::default();
    let vectors = VectorType { element: Element::F32, dimensions: 24 };
    let numbered = |set: Set, first: i64| {
        let ids = (first..first + set.info().rows as i64).collect();
        set.with_ids(Ids::Int64(ids))
    };
    let indexed = Indexed::new(numbered(Set::spread(vectors, 3_000, 1), 0), Metric::L2);
    let facts = indexed.index.facts();
    let alike = numbered(Set::spread(vectors, 300, 2), 10_000);
    let (index, _) = merged(context, &indexed, 10, &alike, REPLACEMENTS);
    let codebook = |index: &Index| index.quantizer.to_bytes();
    assert!(codebook(&index) == codebook(&indexed.index));
    assert_eq!(index.facts().code_error, facts.code_error);
    let mut random = Random::new(3, "far");
    let far = (0..600 * vectors.dimensions).map(|_| 1e4 + random.below(100) as f64).collect();
    let far = Set::new(vectors, far, Ids::Int64((20_000..20_600).collect()));
    let (index, _) = merged(context, &indexed, 11, &far, REPLACEMENTS);
    assert!(codebook(&index) != codebook(&indexed.index));
    assert!(index.facts().code_error < facts.code_error, "the spread is larger");
}
