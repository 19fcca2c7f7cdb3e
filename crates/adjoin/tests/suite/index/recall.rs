//! Recall of searches in an index. Is it as promised and as reported?

use adjoin::{
    Collect, Element, Index, IndexOptions, Metric, QueryTarget, SearchEffort, SearchOptions, VectorSource,
    lab::query::QuerySources,
};

use super::{Found, Indexed, options, recall};
use crate::harness::{Set, Setup, error_of};
use crate::search::{assert_same, true_hits, values};

pub(super) const DIMENSIONS: usize = 16;

/// Returns vectors, and held-out queries.
pub(super) fn sets(rows: usize, queries: usize) -> (Set, Set) {
    let all = values(rows + queries, DIMENSIONS, 11);
    let (set, queries) = all.split_at(rows * DIMENSIONS);
    (Set::of(Element::U8, DIMENSIONS, set), Set::of(Element::U8, DIMENSIONS, queries))
}

fn calibrated<'a>(queries: &'a Set, calibrate_with: &'a Set) -> QuerySources<'a> {
    QuerySources { queries, calibrate_with: Some(calibrate_with) }
}

fn promised(indexed: &Indexed, setup: &Setup, queries: QuerySources<'_>, k: u64, target: f64) -> Found {
    let context = setup.context();
    let index = Index::open(&context, &indexed.path()).unwrap();
    let sink = Collect::default();
    let options = SearchOptions::new(QueryTarget::Nearest(k), SearchEffort::Recall(target), 1);
    let statistics = adjoin::lab::index::search(&context, &index, queries, &options, Box::new(sink.clone())).unwrap();
    Found { batches: sink.batches(), hits: sink.hits(), statistics }
}

fn list_of(found: &Found) -> usize {
    found.statistics.common.strategy.t.unwrap() as usize
}

#[test]
fn held_out_queries_reach_the_target_recall() {
    let (set, queries) = sets(20_000, 1_000);
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &IndexOptions { code_bytes: Some(8), ..options() });
    let mut lists = Vec::new();
    for (k, target) in [(10, 0.8), (10, 0.95), (1, 0.9), (150, 0.9)] {
        let wanted = true_hits(&set, &queries, QueryTarget::Nearest(k), Metric::L2);
        let found = promised(&indexed, &setup, QuerySources::new(&queries), k, target);
        let (common, reached) = (&found.statistics.common, recall(&found.hits, &wanted));
        assert!(reached >= target, "{k} {target}: {reached}");
        let told = common.recall.as_ref().unwrap();
        let at_k = told.at_k.unwrap();
        assert!(told.kept && told.target == target && at_k.estimate >= target - 0.01, "{told:?}");
        // Calibration queries are rows. They are hidden from their own walks, but not from the graph, so their recall
        // is lower if vertices have few edges.
        assert!((at_k.low - 0.02..at_k.high + 0.12).contains(&reached), "{reached} is not {at_k:?}");
        assert_eq!((told.queries.as_deref(), told.sample_queries), (Some("rows of the index"), Some(1_000)));
        assert_eq!(common.seconds.calibrate.is_some(), k > 100, "up to 100 hits the index knows");
        let same = indexed.search(&setup, &queries, k, list_of(&found));
        assert_same(&found.hits, &same.hits, "by a list of that length");
        assert_eq!(found.statistics.search.reads_per_query, same.statistics.search.reads_per_query);
        lists.push(list_of(&found));
    }
    assert!(lists[0] < lists[1] && lists[1] < 200, "{lists:?}");
}

#[test]
fn calibration_queries_adapt_the_effort_to_other_queries() {
    let (set, queries) = sets(20_000, 1_000);
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &IndexOptions { code_bytes: Some(8), ..options() });
    // Queries between the clumps of the rows.
    let far = Set::of(Element::U8, DIMENSIONS, &(0..16_000).map(|k| f64::from(k * 7 % 119)).collect::<Vec<_>>());
    let wanted = true_hits(&set, &far, QueryTarget::Nearest(10), Metric::L2);
    let of_rows = promised(&indexed, &setup, QuerySources::new(&far), 10, 0.9);
    let of_far = promised(&indexed, &setup, calibrated(&far, &far), 10, 0.9);
    let reached = recall(&of_far.hits, &wanted);
    let told = of_far.statistics.common.recall.as_ref().unwrap();
    assert!(told.kept && reached >= 0.9, "{reached} {told:?}");
    assert_eq!((told.queries.as_deref(), told.sample_queries), (Some("calibrate-with"), Some(1_000)));
    assert!(list_of(&of_rows) != list_of(&of_far), "these queries are not like rows");
    let of_others = promised(&indexed, &setup, calibrated(&queries, &queries), 10, 0.9);
    let wanted = true_hits(&set, &queries, QueryTarget::Nearest(10), Metric::L2);
    assert!(recall(&of_others.hits, &wanted) >= 0.9);
}

#[test]
fn index_calibration_does_not_depend_on_threads_or_budget() {
    let (set, queries) = sets(6_000, 1_000);
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &options());
    let told = |setup: &Setup, k: u64, calibrate_with: Option<&dyn VectorSource>| {
        let found = promised(&indexed, setup, QuerySources { queries: &queries, calibrate_with }, k, 0.9);
        let recall = found.statistics.common.recall.unwrap();
        (found.statistics.common.strategy.t, recall.at_k, recall.p5)
    };
    for (k, calibrate_with) in [(120, None), (10, Some(&queries as &dyn VectorSource))] {
        let wanted = told(&setup, k, calibrate_with);
        assert_eq!(told(&Setup { threads: 1, ..Setup::default() }, k, calibrate_with), wanted);
        let context = Setup { memory: 22_000_000, ..Setup::default() }.context();
        let index = Index::open(&context, &indexed.path()).unwrap();
        let options = SearchOptions::new(QueryTarget::Nearest(k), SearchEffort::default(), 1);
        let sources = QuerySources { queries: &queries, calibrate_with };
        let sink = Box::new(Collect::default());
        let said = error_of(adjoin::lab::index::search(&context, &index, sources, &options, sink)).to_string();
        let (_, least) = said.split_once("give memory ").unwrap_or_else(|| panic!("{said}"));
        let memory = least.split_once("MB").unwrap().0.parse::<u64>().unwrap() * 1_000_000;
        assert_eq!(told(&Setup { memory, ..Setup::default() }, k, calibrate_with), wanted, "with {memory} bytes");
    }
}

/// Checks that the first search of an open index calibrates the effort, and that later ones reuse it. A few queries
/// with more hits than the calibration covers are answered exactly.
#[test]
fn an_open_index_calibrates_once_and_answers_many_hits_exactly() {
    let (set, queries) = sets(6_000, 20);
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &options());
    let context = setup.context();
    let index = Index::open(&context, &indexed.path()).unwrap();
    let search = |k: u64| {
        let sink = Collect::default();
        let options = SearchOptions::new(QueryTarget::Nearest(k), SearchEffort::Recall(0.9), 1);
        let found =
            adjoin::lab::index::search(&context, &index, QuerySources::new(&queries), &options, Box::new(sink.clone()))
                .unwrap();
        (sink.hits(), found.common.recall.unwrap().at_k.unwrap(), found.common.strategy.t)
    };
    for k in [10, 120] {
        assert!(!index.is_calibrated(k, 0.9, 1));
        let first = search(k);
        assert!(index.is_calibrated(k, 0.9, 1) && !index.is_calibrated(k, 0.8, 1));
        let again = search(k);
        assert_same(&again.0, &first.0, "again");
        assert_eq!((again.1, again.2), (first.1, first.2));
        assert_eq!((first.1.low == 1.0, first.2.is_none()), (k == 120, k == 120));
    }
    assert_same(&search(120).0, &true_hits(&set, &queries, QueryTarget::Nearest(120), Metric::L2), "exactly");
}

#[test]
fn unsupported_recalls_search_everything_or_report_failure() {
    let (set, queries) = sets(600, 100);
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &options());
    for target in [0.999, 1.0] {
        let wanted = true_hits(&set, &queries, QueryTarget::Nearest(10), Metric::L2);
        let found = promised(&indexed, &setup, QuerySources::new(&queries), 10, target);
        assert_same(&found.hits, &wanted, "everything is looked at");
        let told = found.statistics.common.recall.unwrap();
        assert!(told.kept && told.at_k.unwrap().low == 1.0 && told.sample_queries.is_none());
    }
    let (set, queries) = sets(9_000, 100);
    let indexed = Indexed::build(&setup, &set, &IndexOptions { code_bytes: Some(8), ..options() });
    let found = promised(&indexed, &setup, QuerySources::new(&queries), 10, 0.9999);
    let told = found.statistics.common.recall.unwrap();
    assert!(!told.kept && told.at_k.unwrap().low < 0.9999, "{told:?}");
    let one = Set::of(Element::U8, DIMENSIONS, &values(1, DIMENSIONS, 3));
    let alone = Indexed::build(&setup, &one, &options());
    assert_eq!(promised(&alone, &setup, QuerySources::new(&one), 3, 0.9).hits.concat().len(), 1);
}
