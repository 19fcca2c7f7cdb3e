//! Strategies of walks. Do they change what they should, and nothing else?

use adjoin::{
    Collect, Index, IndexOptions, Metric, QueryTarget, SearchEffort, SearchOptions,
    lab::{Entry, WalkStrategy, query::QuerySources},
};

use super::recall::sets;
use super::{Found, Indexed, options, recall};
use crate::harness::{Set, Setup};
use crate::search::{assert_same, true_hits};

fn search(indexed: &Indexed, setup: &Setup, queries: &Set, strategy: WalkStrategy, effort: SearchEffort) -> Found {
    let context = setup.context();
    let index = Index::open(&context, &indexed.path()).unwrap().walking_by(strategy);
    let sink = Collect::default();
    let options = SearchOptions::new(QueryTarget::Nearest(10), effort, 1);
    let statistics =
        adjoin::lab::index::search(&context, &index, QuerySources::new(queries), &options, Box::new(sink.clone()))
            .unwrap();
    Found { batches: sink.batches(), hits: sink.hits(), statistics }
}

/// Builds an index with the smallest page size, so that there are many pages.
fn indexed(set: &Set) -> Indexed {
    Indexed::build(&Setup::default(), set, &IndexOptions { code_bytes: Some(8), ..options() })
}

#[test]
fn walk_concurrency_and_caching_change_only_reads() {
    let (set, queries) = sets(12_000, 600);
    let indexed = indexed(&set);
    let list = SearchEffort::List(40);
    let usual = WalkStrategy::default();
    let of = |memory, threads, strategy| {
        search(&indexed, &Setup { memory, threads, ..Setup::default() }, &queries, strategy, list)
    };
    let (much, little) = (67_000_000, 23_000_000);
    let wanted = of(much, 2, usual);
    let needed = wanted.statistics.search.reads_per_query * 600.0;
    let from_disk = |found: &Found| found.statistics.common.io.reads.unwrap() as f64;
    for (memory, threads, strategy) in [
        (much, 1, usual),
        (much, 2, WalkStrategy { walks: 1, ..usual }),
        (much, 2, WalkStrategy { walks: 3, ahead: 1, near_together: false, ..usual }),
        (much, 2, WalkStrategy { ahead: 16, walks: 2, ..usual }),
        (little, 2, usual),
        (little, 2, WalkStrategy { walks: 1, ahead: 1, ..usual }),
    ] {
        let found = of(memory, threads, strategy);
        assert_same(&found.hits, &wanted.hits, &format!("{strategy:?}"));
        let reads = found.statistics.search.reads_per_query * 600.0;
        assert!((reads - needed).abs() < 1e-6, "{memory} {threads} {strategy:?}: {reads} of {needed}");
        if memory == much {
            assert!(from_disk(&found) < 0.3 * needed, "{strategy:?}: {} of {needed}", from_disk(&found));
        }
    }
    assert!(
        from_disk(&wanted) <= 12_000.0 / 50.0,
        "no page is read twice where memory holds all: {}",
        from_disk(&wanted)
    );
}

#[test]
fn walk_strategies_reach_the_same_recall_with_a_long_list() {
    let (set, queries) = sets(12_000, 200);
    let indexed = indexed(&set);
    let wanted = true_hits(&set, &queries, QueryTarget::Nearest(10), Metric::L2);
    let of = |strategy, list| search(&indexed, &Setup::default(), &queries, strategy, SearchEffort::List(list));
    let usual = WalkStrategy::default();
    let (beam, expanded) = (|beam| WalkStrategy { beam, ..usual }, |expanded| WalkStrategy { expanded, ..usual });
    let vertex = WalkStrategy { entry: Entry::Vertex, ..usual };
    let reads = |found: &Found| found.statistics.search.reads_per_query;
    let plain = of(usual, 80);
    assert!(recall(&plain.hits, &wanted) > 0.95);
    let all_others = WalkStrategy { beam: 8, expanded: 0.0, ..vertex };
    for strategy in [beam(4), expanded(0.0), expanded(1.0), vertex, all_others] {
        // Walks that start at a single entry vertex do not reach all clumps.
        let least = if strategy.entry == Entry::Vertex { 0.5 } else { 0.95 };
        let reached = recall(&of(strategy, 200).hits, &wanted);
        assert!(reached > least, "{strategy:?}: {reached}");
    }
    let share = |found: &Found| found.statistics.search.vertex_utilization.unwrap();
    assert_eq!(share(&of(expanded(1.0), 80)), 1.0);
    assert!(share(&of(expanded(0.0), 80)) < share(&plain) && share(&plain) < 1.0);
    assert!(reads(&of(beam(8), 80)) > reads(&plain), "a beam reads pages that it comes not to need");
    assert!(reads(&of(vertex, 80)) > reads(&plain), "the navigation graph saves the way in");
}

#[test]
fn the_recall_is_reached_by_the_requested_walk_strategy() {
    let (set, queries) = sets(12_000, 300);
    let indexed = indexed(&set);
    let wanted = true_hits(&set, &queries, QueryTarget::Nearest(10), Metric::L2);
    let usual = WalkStrategy::default();
    let other = WalkStrategy { entry: Entry::Vertex, expanded: 0.0, beam: 2, ..usual };
    for (strategy, learns) in [(WalkStrategy { walks: 2, ..usual }, false), (other, true)] {
        let found = search(&indexed, &Setup::default(), &queries, strategy, SearchEffort::Recall(0.9));
        let common = &found.statistics.common;
        assert!(common.recall.as_ref().unwrap().kept && recall(&found.hits, &wanted) >= 0.9, "{strategy:?}");
        assert_eq!(common.seconds.calibrate.is_some(), learns, "what the index knows is of its own walks");
    }
}

#[test]
fn a_larger_navigation_graph_saves_reads() {
    let (set, queries) = sets(12_000, 200);
    let reads = |navigation| {
        let options = IndexOptions { navigation: Some(navigation), ..options() };
        let indexed = Indexed::build(&Setup::default(), &set, &options);
        let found = search(&indexed, &Setup::default(), &queries, WalkStrategy::default(), SearchEffort::List(40));
        found.statistics.search.reads_per_query
    };
    let (few, many, all) = (reads(10), reads(3_000), reads(u32::MAX));
    assert!(few > many && few > all, "{few} {many} {all}");
}

#[test]
fn an_index_opens_with_the_suggested_memory() {
    let (set, _) = sets(12_000, 1);
    for navigation in [None, Some(12_000)] {
        let indexed = Indexed::build(&Setup::default(), &set, &IndexOptions { navigation, ..options() });
        let refusal = |memory| {
            let context = Setup { memory, ..Setup::default() }.context();
            Index::open(&context, &indexed.path()).err().map(|error| error.to_string())
        };
        let told = refusal(1_000_000).unwrap();
        let named = told.split("give memory ").nth(1).and_then(|rest| rest.split("MB").next());
        let least: u64 = named.unwrap_or_else(|| panic!("{told}")).parse().unwrap();
        assert_eq!(refusal(least * 1_000_000), None, "{navigation:?}: {told}");
        assert!(refusal((least - 2) * 1_000_000).is_some_and(|told| told.contains("opening the index")));
    }
}
