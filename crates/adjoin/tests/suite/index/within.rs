//! Searches of an index within a threshold. Do they reach the promised recall for any number of hits?

use adjoin::{
    Collect, Element, Index, IndexOptions, Metric, Predicate, QueryTarget, SearchEffort, SearchOptions,
    lab::query::QuerySources,
};

use super::recall::{DIMENSIONS, sets};
use super::{Found, Indexed, options, recall};
use crate::harness::{Set, Setup, error_of};
use crate::search::{ELEMENTS, assert_same, true_hits, values};

fn within(indexed: &Indexed, setup: &Setup, queries: &Set, predicate: Predicate, effort: SearchEffort) -> Found {
    let context = setup.context();
    let index = Index::open(&context, &indexed.path()).unwrap();
    let sink = Collect::default();
    let options = SearchOptions::new(QueryTarget::Within(predicate), effort, 1);
    let statistics =
        adjoin::lab::index::search(&context, &index, QuerySources::new(queries), &options, Box::new(sink.clone()))
            .unwrap();
    Found { batches: sink.batches(), hits: sink.hits(), statistics }
}

fn l2(eps: f64) -> Predicate {
    Predicate::l2(eps).unwrap()
}

#[test]
fn range_searches_of_an_index_reach_the_recall() {
    let (set, queries) = sets(20_000, 2_000);
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &IndexOptions { code_bytes: Some(8), ..options() });
    let mut hits = Vec::new();
    for (radius, target) in [(16.0, 0.9), (22.0, 0.95), (40.0, 0.95)] {
        let wanted = true_hits(&set, &queries, QueryTarget::Within(l2(radius)), Metric::L2);
        let found = within(&indexed, &setup, &queries, l2(radius), SearchEffort::Recall(target));
        let reached = recall(&found.hits, &wanted);
        assert!(reached >= target, "{radius}: {reached} of {target}");
        let right = found.hits.iter().zip(&wanted).all(|(found, wanted)| found.iter().all(|hit| wanted.contains(hit)));
        assert!(right, "what is found is within the radius");
        let (common, search) = (&found.statistics.common, &found.statistics.search);
        let told = common.recall.as_ref().unwrap();
        assert!(told.kept && told.at_k.unwrap().estimate >= target - 0.01, "{told:?}");
        assert_eq!((common.strategy.probes, search.k), (Some("walk"), None));
        assert!(search.reads_per_query < 0.5 * f64::from(20_000 / 30), "{}", search.reads_per_query);
        hits.push(search.hits);
    }
    assert!(hits[0] > 100 && hits.is_sorted() && hits[2] > 100 * 2_000, "no cap: {hits:?}");
}

#[test]
fn range_searches_of_few_queries_are_exact() {
    for (element, metric) in ELEMENTS.into_iter().flat_map(|element| [(element, Metric::L2), (element, Metric::Cosine)])
    {
        let mut rows = values(900, 6, 3);
        let copies = rows[..6].repeat(300);
        rows.extend(copies);
        let set = Set::of(element, 6, &rows);
        let queries = Set::of(element, 6, &[&rows[..60], &values(30, 6, 4)].concat());
        let setup = Setup::default().with_metric(metric);
        let indexed = Indexed::build(&setup, &set, &options());
        let thresholds = match metric {
            Metric::L2 => [l2(0.0), l2(9.0), l2(1e9)],
            _ => [1.0, 0.97, -1.0].map(|similarity| Predicate::cosine(similarity).unwrap()),
        };
        for predicate in thresholds {
            let wanted = true_hits(&set, &queries, QueryTarget::Within(predicate), metric);
            let found = within(&indexed, &setup, &queries, predicate, SearchEffort::Recall(0.9));
            assert_same(&found.hits, &wanted, &format!("{element} {predicate:?}"));
            let common = &found.statistics.common;
            assert_eq!((common.strategy.probes, common.recall.as_ref().unwrap().kept), (Some("whole"), true));
        }
        let all = thresholds[2];
        let wanted = true_hits(&set, &queries, QueryTarget::Within(all), metric);
        let walked = within(&indexed, &setup, &queries, all, SearchEffort::List(5));
        assert_same(&walked.hits, &wanted, "a walk goes as far as the threshold, whatever its list");
        assert!(walked.statistics.common.recall.is_none());
    }
}

#[test]
fn range_hits_do_not_depend_on_threads_or_memory() {
    let (set, queries) = sets(8_000, 1_500);
    let setup = Setup::default();
    let indexed = Indexed::build(&setup, &set, &options());
    let of = |setup: &Setup, effort| within(&indexed, setup, &queries, l2(60.0), effort);
    for effort in [SearchEffort::Recall(0.9), SearchEffort::List(20)] {
        let wanted = of(&setup, effort);
        assert!(wanted.statistics.search.hits > 500_000, "{}", wanted.statistics.search.hits);
        let one = of(&Setup { threads: 1, ..Setup::default() }, effort);
        assert_same(&one.hits, &wanted.hits, "one thread");
        let little = of(&Setup { memory: 37_000_000, ..Setup::default() }, effort);
        assert_same(&little.hits, &wanted.hits, "little memory");
        assert_eq!(little.statistics.common.strategy.t, wanted.statistics.common.strategy.t);
    }
    let context = setup.context();
    let index = Index::open(&context, &indexed.path()).unwrap();
    let cosine = QueryTarget::Within(Predicate::cosine(0.9).unwrap());
    let options = SearchOptions::new(cosine, SearchEffort::default(), 1);
    let refused = error_of(adjoin::lab::index::search(
        &context,
        &index,
        QuerySources::new(&queries),
        &options,
        Box::new(Collect::default()),
    ));
    assert!(refused.to_string().contains("metric l2; give radius"), "{refused}");
}

#[test]
fn a_radius_without_neighbors_has_no_hits() {
    let (set, _) = sets(20_000, 1);
    let far = Set::of(Element::U8, DIMENSIONS, &vec![255.0; 1_200 * DIMENSIONS]);
    let indexed = Indexed::build(&Setup::default(), &set, &options());
    for effort in [SearchEffort::Recall(0.95), SearchEffort::List(10)] {
        let found = within(&indexed, &Setup::default(), &far, l2(1.0), effort);
        assert!(found.hits.len() == 1_200 && found.hits.iter().all(Vec::is_empty));
    }
}
