//! Cached searches. Do they find the hits of a search without a cache, with any batches, order and cache?

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use adjoin::{
    CachedSearch, Collect, Element, ErrorKind, Ids, Metric, Predicate, QueryTarget, Result, SearchEffort,
    SearchOptions, SearchQueries, ServedHits, ServedQuery, Store, VectorType,
    lab::{
        buckets::search,
        plan::batch::{BatchCounts, BatchPlan, BatchStep},
        serve::{CacheOptions, usual_planner},
    },
};

use crate::harness::{Built, Set, Setup, error_of, files_of};
use crate::search::{Hits, METRICS, assert_same, values};

const DIMENSIONS: usize = 12;

/// A query that owns its vector.
#[derive(Clone)]
struct Query {
    vector: Vec<u8>,
    target: QueryTarget,
    effort: SearchEffort,
    deadline: Option<Instant>,
}

fn query(vector: &[f64], target: QueryTarget, effort: SearchEffort) -> Query {
    let vector = vector.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect();
    Query { vector, target, effort, deadline: None }
}

/// Returns one query per vector. All have the same target and effort.
fn queries_of(vectors: &[f64], target: QueryTarget, effort: SearchEffort) -> Vec<Query> {
    vectors.chunks_exact(DIMENSIONS).map(|vector| query(vector, target, effort)).collect()
}

/// Answers queries in one batch. Returns the answers in the order of the queries.
fn answer(search: &CachedSearch, queries: &[Query]) -> Vec<Result<ServedHits>> {
    let mut answers: Vec<Option<Result<ServedHits>>> = queries.iter().map(|_| None).collect();
    search.answer(&served_queries(queries), &mut |number, hits| {
        assert!(answers[number].replace(hits).is_none(), "query {number} is delivered once");
    });
    answers.into_iter().map(Option::unwrap).collect()
}

fn served_queries(queries: &[Query]) -> Vec<ServedQuery<'_>> {
    let served = |query| {
        let &Query { ref vector, target, effort, deadline } = query;
        let vectors = VectorType { element: Element::F32, dimensions: vector.len() / 4 };
        ServedQuery { vectors, stored: vector, target, effort, deadline }
    };
    queries.iter().map(served).collect()
}

fn open(setup: &Setup, built: &Built, options: CacheOptions) -> Result<CachedSearch> {
    let context = setup.context();
    let store = Arc::new(Store::open(&context, &built.path())?);
    CachedSearch::open_planned(&context, store, &options, usual_planner())
}

/// Opens a search that answers one query after the other, and that keeps no bucket between queries.
fn open_by_query(setup: &Setup, built: &Built, options: CacheOptions) -> Result<CachedSearch> {
    let context = setup.context();
    let store = Arc::new(Store::open(&context, &built.path())?);
    let plan = |lists: &[Vec<u32>], _: f64| {
        let of_query = |(query, list): (u32, &Vec<u32>)| -> Vec<BatchStep> {
            let of_bucket = |&bucket: &u32| {
                let compare = BatchStep::Compare { bucket, query: Some(query) };
                [BatchStep::Load { bucket, turn: query + 1 }, compare, BatchStep::Evict(bucket)]
            };
            list.iter().flat_map(of_bucket).collect()
        };
        BatchPlan { steps: (0..).zip(lists).flat_map(of_query).collect(), counts: BatchCounts::default() }
    };
    CachedSearch::open_planned(&context, store, &options, Arc::new(move |_, _| Box::new(plan)))
}

fn hits(answers: &[Result<ServedHits>]) -> Vec<Hits> {
    let of = |answer: &Result<ServedHits>| {
        let answer = answer.as_ref().unwrap();
        answer.rows.iter().copied().zip(answer.values.iter().copied()).collect()
    };
    answers.iter().map(of).collect()
}

/// Returns the hits of a search without a cache.
fn searched(setup: &Setup, built: &Built, queries: &Set, target: QueryTarget, effort: SearchEffort) -> Vec<Hits> {
    let sink = Collect::default();
    let options = SearchOptions::new(target, effort, 1);
    let sets = SearchQueries::new(queries);
    search(&setup.context(), &built.store, sets, &options, Box::new(sink.clone())).unwrap();
    sink.hits()
}

/// Returns a store of 600 vectors with ids in 40 buckets, and 30 queries.
fn served(element: Element, metric: Metric) -> (Setup, Built, Vec<f64>, Set) {
    let ids: Vec<i64> = (0..600).map(|row| 7_000 - 3 * row).collect();
    let set = Set::of(element, DIMENSIONS, &values(600, DIMENSIONS, 1)).with_ids(&ids);
    let setup = Setup::default().with_metric(metric).with_buckets(40);
    let built = setup.build(&set).unwrap();
    let is_integer = matches!(element, Element::U8 | Element::I8);
    let queries: Vec<f64> =
        values(30, DIMENSIONS, 2).into_iter().map(|value| if is_integer { value.round() } else { value }).collect();
    let set = Set::of(if is_integer { element } else { Element::F32 }, DIMENSIONS, &queries);
    (setup, built, queries, set)
}

#[test]
fn cached_searches_find_search_hits_with_any_order_cache_and_threads() {
    let kinds = [
        (Element::F32, Metric::L2),
        (Element::U8, Metric::L2),
        (Element::F16, Metric::Cosine),
        (Element::I8, Metric::Ip),
    ];
    for (element, metric) in kinds {
        let (setup, built, queries, set) = served(element, metric);
        // The threshold is the distance of the fifth hit of the first query.
        let (_, fifth) = searched(&setup, &built, &set, QueryTarget::Nearest(5), SearchEffort::Exact)[0][4];
        let within = match metric {
            Metric::L2 => QueryTarget::Within(Predicate::l2(fifth.into()).unwrap()),
            Metric::Cosine => QueryTarget::Within(Predicate::cosine(fifth.into()).unwrap()),
            Metric::Ip => QueryTarget::Nearest(100),
        };
        let wishes = [
            (QueryTarget::Nearest(10), SearchEffort::Probes(7)),
            (within, SearchEffort::Probes(9)),
            (QueryTarget::Nearest(3), SearchEffort::Exact),
        ];
        let expected = wishes.map(|(wanted, effort)| searched(&setup, &built, &set, wanted, effort));
        assert!(expected.iter().all(|hits| hits.iter().any(|hits| !hits.is_empty())));
        // The cache has room for one bucket, for some, or for all.
        for (threads, cache_bytes) in [(1, 1), (2, 8_000), (3, 1 << 20)] {
            let options = || CacheOptions { cache_bytes: Some(cache_bytes), ..CacheOptions::default() };
            let setup = Setup { threads, ..setup.clone() };
            for (plans, search) in
                [("by bucket", open(&setup, &built, options())), ("by query", open_by_query(&setup, &built, options()))]
            {
                let search = search.unwrap();
                // One batch has requests of all kinds. It is repeated when the cache is filled.
                for _ in 0..2 {
                    let all = wishes.map(|(wanted, effort)| queries_of(&queries, wanted, effort)).concat();
                    let answers = answer(&search, &all);
                    let what = format!("{element} {metric} {plans} {threads} {cache_bytes}");
                    assert_same(&hits(&answers), &expected.concat(), &what);
                    for answer in answers.iter().flatten() {
                        let Ids::Int64(ids) = &answer.ids else { panic!("the store has ids") };
                        assert!(ids.iter().zip(&answer.rows).all(|(&id, &row)| id == 7_000 - 3 * row as i64), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_batch_reads_each_bucket_once_and_the_next_uses_the_cache() {
    let (setup, built, queries, _) = served(Element::F32, Metric::L2);
    let search = open(&setup, &built, CacheOptions::default()).unwrap();
    let batch = || queries_of(&queries, QueryTarget::Nearest(5), SearchEffort::Probes(6));
    let answers: Vec<ServedHits> = answer(&search, &batch()).into_iter().map(Result::unwrap).collect();
    assert!(answers.iter().all(|answer| answer.probes == 6 && answer.recall.is_none()));
    let first = search.statistics();
    assert!(first.counts.loads <= 40 && first.counts.uses == 180 && first.read_bytes > 0, "{first:?}");
    answer(&search, &batch());
    let second = search.statistics();
    assert_eq!(
        (second.counts.loads, second.counts.uses, second.queries),
        (first.counts.loads, 360, 60),
        "all are kept"
    );
}

#[test]
fn a_cached_search_calibrates_once_and_probes_like_a_search() {
    let all = values(11_500, DIMENSIONS, 5);
    let (of_set, of_queries) = all.split_at(9_000 * DIMENSIONS);
    let setup = Setup::default().with_buckets(120);
    let built = setup.build(&Set::of(Element::F32, DIMENSIONS, of_set).in_batches_of(1_000)).unwrap();
    let queries = Set::of(Element::F32, DIMENSIONS, of_queries);
    let (wanted, effort) = (QueryTarget::Nearest(10), SearchEffort::Recall(0.9));
    let expected = searched(&setup, &built, &queries, wanted, effort);
    let search = open(&setup, &built, CacheOptions::default()).unwrap();
    let answers = answer(&search, &queries_of(of_queries, wanted, effort));
    assert_same(&hits(&answers), &expected, "recall");
    let recall = answers[0].as_ref().unwrap().recall.clone().unwrap();
    assert!(recall.target == 0.9 && recall.at_k.unwrap().low >= 0.85, "{recall:?}");
    let learned = search.statistics().learning_bytes;
    assert!(learned > 0);
    answer(&search, &queries_of(&of_queries[..DIMENSIONS], wanted, effort));
    assert_eq!(search.statistics().learning_bytes, learned);
}

/// Checks that a cached search samples once, and derives the rule for each K and recall from this sample. Searches
/// for many hits are exact and need no sample.
#[test]
fn a_cached_search_derives_rules_from_one_calibration_sample() {
    let all = values(11_500, DIMENSIONS, 5);
    let (of_set, of_queries) = all.split_at(9_000 * DIMENSIONS);
    let setup = Setup::default().with_buckets(120);
    let built = setup.build(&Set::of(Element::F32, DIMENSIONS, of_set).in_batches_of(1_000)).unwrap();
    let queries = Set::of(Element::F32, DIMENSIONS, of_queries);
    let search = open(&setup, &built, CacheOptions::default()).unwrap();
    let mut learned = Vec::new();
    for (k, recall) in [(10, 0.9), (3, 0.9), (10, 0.8)] {
        let (wanted, effort) = (QueryTarget::Nearest(k), SearchEffort::Recall(recall));
        let expected = searched(&setup, &built, &queries, wanted, effort);
        let before = search.statistics().learning_bytes;
        assert_same(
            &hits(&answer(&search, &queries_of(of_queries, wanted, effort))),
            &expected,
            &format!("{k} {recall}"),
        );
        learned.push(search.statistics().learning_bytes - before);
    }
    assert!(learned[0] > 2 * learned[1].max(learned[2]), "the sample is drawn once: {learned:?}");
    let before = search.statistics().learning_bytes;
    let some = &of_queries[..2 * DIMENSIONS];
    for wanted in [QueryTarget::Nearest(1_000), QueryTarget::Within(Predicate::l2(1e9).unwrap())] {
        let exact = searched(&setup, &built, &Set::of(Element::F32, DIMENSIONS, some), wanted, SearchEffort::Exact);
        let answers = answer(&search, &queries_of(some, wanted, SearchEffort::Recall(0.9)));
        assert_same(&hits(&answers), &exact, "many hits");
        let recall = answers[0].as_ref().unwrap().recall.clone().unwrap();
        assert_eq!((recall.target, recall.at_k.unwrap().low), (0.9, 1.0));
    }
    assert_eq!(search.statistics().learning_bytes, before);
}

/// Checks that a batch finds all hits even if the batch before it panicked.
#[test]
fn a_batch_after_a_panic_finds_all_hits() {
    let (setup, built, queries, set) = served(Element::F32, Metric::L2);
    let (wanted, effort) = (QueryTarget::Nearest(4), SearchEffort::Probes(5));
    for opened in [open, open_by_query] {
        let search = opened(&setup, &built, CacheOptions { cache_bytes: Some(8_000), ..CacheOptions::default() });
        let (search, all) = (search.unwrap(), queries_of(&queries, wanted, effort));
        let ended = catch_unwind(AssertUnwindSafe(|| {
            search.answer(&served_queries(&all), &mut |_, _| panic!("a caller with a bug"));
        }));
        assert!(ended.is_err());
        assert_same(&hits(&answer(&search, &all)), &searched(&setup, &built, &set, wanted, effort), "the next batch");
    }
}

#[test]
fn queries_are_delivered_in_the_order_of_their_last_bucket() {
    let (setup, built, queries, _) = served(Element::F32, Metric::L2);
    let setup = Setup { threads: 1, ..setup };
    let search = open_by_query(&setup, &built, CacheOptions::default()).unwrap();
    let all = queries_of(&queries, QueryTarget::Nearest(4), SearchEffort::Probes(5));
    let mut order = Vec::new();
    search.answer(&served_queries(&all), &mut |number, _| order.push(number));
    assert_eq!(order, (0..30).collect::<Vec<_>>());
}

#[test]
fn invalid_queries_are_refused_and_others_answered() {
    for metric in METRICS {
        let (setup, built, queries, set) = served(Element::U8, metric);
        let (wanted, effort) = (QueryTarget::Nearest(4), SearchEffort::Probes(5));
        let search = open(&setup, &built, CacheOptions::default()).unwrap();
        let mut all = queries_of(&queries, wanted, effort);
        let good = all.len();
        let of = |vector: &[f64]| query(vector, wanted, effort);
        all.push(of(&[1.0; 11]));
        all.push(of(&[f64::NAN; 12]));
        let mut expected = vec!["have 11 dimensions", "has NaN at element 0"];
        if metric == Metric::L2 {
            all.push(of(&[0.5; 12]));
            expected.push("queries need whole numbers of that type");
        }
        if metric == Metric::Cosine {
            all.push(of(&[0.0; 12]));
            expected.push("all zeros");
        }
        let other = if metric == Metric::L2 { Predicate::cosine(0.5) } else { Predicate::l2(1.0) };
        all.push(query(&queries[..12], QueryTarget::Within(other.unwrap()), effort));
        expected.push("was built for the metric");
        let mut answers = answer(&search, &all);
        let refused = answers.split_off(good);
        assert_same(&hits(&answers), &searched(&setup, &built, &set, wanted, effort), "the others");
        for (refused, expected) in refused.into_iter().zip(expected) {
            let error = error_of(refused).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

#[test]
fn a_damaged_bucket_fails_only_the_queries_that_need_it() {
    let (setup, built, queries, set) = served(Element::F32, Metric::L2);
    let (wanted, effort) = (QueryTarget::Nearest(4), SearchEffort::Probes(3));
    let expected = searched(&setup, &built, &set, wanted, effort);
    let path = files_of(&built.path()).into_keys().find(|name| name.starts_with("vectors")).unwrap();
    let path = built.path().join(path);
    let whole = std::fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    let extent = &built.store.extents()[17];
    damaged[extent.offset as usize + 100] ^= 1;
    for opened in [open, open_by_query] {
        std::fs::write(&path, &damaged).unwrap();
        let search = opened(&setup, &built, CacheOptions::default()).unwrap();
        let answers = answer(&search, &queries_of(&queries, wanted, effort));
        let (mut good, mut bad) = (0, 0);
        for (answer, expected) in answers.into_iter().zip(&expected) {
            match answer {
                Ok(answer) => {
                    assert_same(&hits(&[Ok(answer)]), std::slice::from_ref(expected), "not damaged");
                    good += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    bad += 1;
                }
            }
        }
        assert!(good > 0 && bad > 0, "{good} {bad}");
        std::fs::write(&path, &whole).unwrap();
        assert_same(&hits(&answer(&search, &queries_of(&queries, wanted, effort))), &expected, "whole again");
    }
}

#[test]
fn concurrent_callers_get_their_own_answers() {
    let (setup, built, queries, set) = served(Element::F32, Metric::L2);
    let (wanted, effort) = (QueryTarget::Nearest(4), SearchEffort::Probes(5));
    let expected = searched(&setup, &built, &set, wanted, effort);
    let search = open(&setup, &built, CacheOptions { cache_bytes: Some(8_000), ..CacheOptions::default() }).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let (search, queries, expected) = (&search, &queries, &expected);
            scope.spawn(move || {
                for number in (0..30).map(|number| (number + 4 * caller) % 30) {
                    let answers =
                        answer(search, &queries_of(&queries[number * DIMENSIONS..][..DIMENSIONS], wanted, effort));
                    assert_same(&hits(&answers), &expected[number..=number], "one of many");
                }
            });
        }
    });
    assert_eq!(search.statistics().queries, 240);
}

#[test]
fn late_queries_are_refused() {
    let (setup, built, queries, _) = served(Element::F32, Metric::L2);
    let search = open(&setup, &built, CacheOptions::default()).unwrap();
    let mut all = queries_of(&queries[..3 * DIMENSIONS], QueryTarget::Nearest(4), SearchEffort::Probes(5));
    all[1].deadline = Some(Instant::now());
    let kinds = answer(&search, &all).into_iter().map(|hits| hits.err().map(|error| error.kind()));
    assert_eq!(kinds.collect::<Vec<_>>(), [None, Some(ErrorKind::Late), None]);
}

#[test]
fn a_refused_budget_names_a_sufficient_one() {
    let (setup, built, queries, set) = served(Element::F32, Metric::L2);
    let small = |memory| open(&Setup { memory, ..setup.clone() }, &built, CacheOptions::default());
    let error = error_of(small(19_000_000));
    assert_eq!(error.kind(), ErrorKind::Budget);
    let said = error.to_string();
    let least =
        said.split("give memory ").nth(1).and_then(|rest| rest.split("MB").next()).unwrap_or_else(|| panic!("{said}"));
    let search = small(1_000_000 * least.parse::<u64>().unwrap()).unwrap();
    let (wanted, effort) = (QueryTarget::Nearest(4), SearchEffort::Probes(5));
    let expected = searched(&setup, &built, &set, wanted, effort);
    assert_same(&hits(&answer(&search, &queries_of(&queries, wanted, effort))), &expected, "in the least memory");
}
