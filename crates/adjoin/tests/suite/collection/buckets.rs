//! Searches of more unmerged rows than are compared one by one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adjoin::{
    Collect, Collection, Context, Durability, Element, IdKind, Ids, IndexOptions, Metric, QueryTarget, SearchEffort,
    SearchOptions, SearchStatistics, VectorType, Write,
    lab::{
        collection::{MergerOptions, Put, start_merger},
        query::QuerySources,
    },
};

use super::attributes::by_query;
use super::options;
use crate::datasets::{Shape, make};
use crate::harness::{Set, Setup};

/// A block of these vectors has 128 rows.
const VECTORS: VectorType = VectorType { element: Element::U8, dimensions: 2_048 };
const MERGED: usize = 400;
const UNMERGED: usize = 9_000;
const K: u64 = 10;
/// Time limit of the wait for buckets. It is reached only if the test fails.
const LONG: Duration = Duration::from_secs(1_800);

fn create(context: &Context, live: &Path) -> Arc<Collection> {
    let mut cheap = options(VECTORS, Metric::L2, IdKind::Int64);
    cheap.index = IndexOptions { degree: Some(8), build_list: 16, ..IndexOptions::default() };
    Collection::create(context, live, &cheap).unwrap();
    Arc::new(Collection::open(context, live).unwrap())
}

/// Returns the ids of the hits of each query.
fn search(collection: &Collection, queries: &Set, effort: SearchEffort) -> (Vec<Vec<i64>>, SearchStatistics) {
    let (context, hits) = (Context::default().with_memory(256 << 20), Collect::default());
    let options = SearchOptions::new(QueryTarget::Nearest(K), effort, 1);
    let found = collection.search(&context, QuerySources::new(queries), &options, Box::new(hits.clone())).unwrap();
    let all = by_query(&hits).into_iter().map(|hits| hits.into_iter().map(|(id, _)| id).collect()).collect();
    (all, found)
}

#[test]
fn searches_of_many_unmerged_rows_reach_their_recall() {
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let context = Setup { memory: 1 << 30, threads: 2, ..Setup::default() }.context();
    let collection = create(&context, &live);
    let first = make(Shape::Clustered, Element::U8, MERGED, VECTORS.dimensions, 6);
    let ids: Vec<i64> = (0..MERGED as i64).collect();
    collection.load(&first.with_ids(&ids), Put::Insert, Durability::Buffered).unwrap();
    collection.merge(&context).unwrap();
    let merger = start_merger(&collection, MergerOptions { at_bytes: 1 << 30, ..MergerOptions::of(&context) }).unwrap();
    let more = make(Shape::Clustered, Element::U8, UNMERGED, VECTORS.dimensions, 7);
    let ids: Vec<i64> = (MERGED as i64..(MERGED + UNMERGED) as i64).collect();
    let rows = more.stored().to_vec();
    collection.load(&more.in_batches_of(300).with_ids(&ids), Put::Insert, Durability::Buffered).unwrap();
    let begun = Instant::now();
    while collection.statistics().unwrap().bucketed_rows < 8_000 {
        assert!(begun.elapsed() < LONG, "rows are not in buckets");
        std::thread::sleep(Duration::from_millis(5));
    }
    let gone: Vec<i64> = ids.iter().copied().step_by(4).collect();
    collection.write(&Write { delete: Some(&Ids::Int64(gone)), ..Write::default() }, Durability::Group).unwrap();
    let queries = Set::of_stored(VECTORS, rows[..300 * VECTORS.bytes()].to_vec());
    let (all, exact) = search(&collection, &queries, SearchEffort::Exact);
    assert_eq!(exact.common.recall.unwrap().at_k.unwrap().estimate, 1.0);
    for effort in [SearchEffort::Recall(0.9), SearchEffort::List(64)] {
        let (found, statistics) = search(&collection, &queries, effort);
        let deleted = |id: &&i64| **id >= MERGED as i64 && (**id - MERGED as i64) % 4 == 0;
        assert_eq!(found.iter().flatten().filter(deleted).count(), 0);
        let hits = found.iter().zip(&all).flat_map(|(found, all)| all.iter().filter(|id| found.contains(id))).count();
        let reached = hits as f64 / (300 * K) as f64;
        assert!(reached >= 0.9, "{effort:?}: {reached}");
        // The reported recall does not exceed the promise for rows in buckets.
        assert!(statistics.common.recall.is_none_or(|recall| recall.at_k.unwrap().estimate <= 0.95));
    }
    drop(merger);
    collection.merge(&context).unwrap();
    assert_eq!(collection.statistics().unwrap().bucketed_rows, 0);
    assert_eq!(search(&collection, &queries, SearchEffort::Exact).0, all);
}
