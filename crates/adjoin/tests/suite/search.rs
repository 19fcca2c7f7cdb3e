//! Searches of a store. Do they find the nearest rows by the formula, with any method on any device?

mod exact;
mod inner_products;
mod nearest;

use adjoin::{
    Collect, EffortOptions, Element, HitBatch, Ids, Metric, Predicate, QueryTarget, Random, Result, SearchEffort,
    SearchOptions, SearchQueries, SearchStatistics, Store, VectorSource, kernels::Kernel, lab::buckets::search,
};

use crate::harness::{Set, Setup, error_of};

pub(crate) const ELEMENTS: [Element; 4] = [Element::F32, Element::F16, Element::U8, Element::I8];
pub(crate) const METRICS: [Metric; 3] = [Metric::L2, Metric::Cosine, Metric::Ip];

/// Rows and values of the hits of a query.
pub(crate) type Hits = Vec<(u64, f32)>;

/// Returns vectors around a few places. Some vectors are repeated.
pub(crate) fn values(rows: usize, dimensions: usize, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed, "search");
    let places: Vec<f64> = (0..8 * dimensions).map(|_| random.uniform() * 100.0).collect();
    let mut values: Vec<f64> = Vec::with_capacity(rows * dimensions);
    for row in 0..rows {
        if row > 10 && random.below(5) == 0 {
            let other = random.below(row as u64) as usize * dimensions;
            values.extend_from_within(other..other + dimensions);
        } else {
            let place = random.below(8) as usize * dimensions;
            let near = places[place..place + dimensions].iter();
            values.extend(near.map(|x| (x + 10.0 * random.normal()).clamp(0.5, 120.0)));
        }
    }
    values
}

/// Decodes elements. Shares no code with the engine.
fn numbers(set: &Set, stored: &[u8]) -> Vec<f64> {
    match set.vectors().element {
        Element::U8 => stored.iter().map(|&byte| f64::from(byte)).collect(),
        Element::I8 => stored.iter().map(|&byte| f64::from(i8::from_le_bytes([byte]))).collect(),
        Element::F16 => stored.chunks_exact(2).map(|two| half::f16::from_le_bytes([two[0], two[1]]).to_f64()).collect(),
        Element::F32 => {
            stored.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()).into()).collect()
        }
    }
}

/// Returns all rows of a set in order of nearness to a query, each with nearness, row number and reported value. Sums
/// are in f64 and in the order of the elements.
fn in_order(element: Element, all: &[f64], query: &[f64], metric: Metric) -> Vec<(f64, u64, f32)> {
    let sum =
        |x: &[f64], y: &[f64], term: fn(f64, f64) -> f64| x.iter().zip(y).fold(0.0, |sum, (x, y)| sum + term(*x, *y));
    let dot = |x: &[f64], y: &[f64]| sum(x, y, |x, y| x * y);
    let of = |(row, vector): (u64, &[f64])| match metric {
        Metric::L2 => {
            let squared = sum(query, vector, |x, y| (x - y) * (x - y));
            (squared, row, squared.sqrt() as f32)
        }
        Metric::Cosine => {
            let cosine = dot(query, vector) / (dot(query, query) * dot(vector, vector)).sqrt();
            (-cosine, row, cosine as f32)
        }
        Metric::Ip => {
            let score = dot(query, vector);
            (-score, row, 0.0 + score as f32)
        }
    };
    let mut all: Vec<_> = (0..).zip(all.chunks_exact(query.len())).map(of).collect();
    // Squared distances of integers are exact. Other distances count as equal if their reported values are equal.
    let is_exact = metric == Metric::L2 && element.is_integer();
    let reported = |value: f32| if metric == Metric::L2 { value } else { 0.0 - value };
    let nearness = |hit: &(f64, u64, f32)| if is_exact { hit.0 } else { reported(hit.2).into() };
    all.sort_by(|a, b| nearness(a).total_cmp(&nearness(b)).then(a.1.cmp(&b.1)));
    all
}

pub(crate) fn true_hits(set: &Set, queries: &Set, target: QueryTarget, metric: Metric) -> Vec<Hits> {
    let (k, within) = match target {
        QueryTarget::Nearest(k) => (k as usize, f64::INFINITY),
        QueryTarget::Within(Predicate::L2 { eps }) => (usize::MAX, eps * eps),
        QueryTarget::Within(Predicate::Cosine { min_similarity }) => (usize::MAX, -min_similarity),
        QueryTarget::Within(Predicate::InnerProduct { .. }) => unreachable!("nobody can ask for that"),
    };
    let (all, queries) = (numbers(set, set.stored()), numbers(queries, queries.stored()));
    let of = |query: &[f64]| {
        let near =
            in_order(set.vectors().element, &all, query, metric).into_iter().filter(|hit| hit.0 <= within).take(k);
        near.map(|(_, row, value)| (row, value)).collect()
    };
    queries.chunks_exact(set.vectors().dimensions).map(of).collect()
}

struct Found {
    batches: Vec<HitBatch>,
    hits: Vec<Hits>,
    statistics: SearchStatistics,
}

fn find(setup: &Setup, store: &Store, queries: &Set, target: QueryTarget, effort: SearchEffort) -> Result<Found> {
    find_of(setup, store, SearchQueries::new(queries), target, effort)
}

fn find_of(
    setup: &Setup,
    store: &Store,
    queries: SearchQueries<'_>,
    target: QueryTarget,
    effort: SearchEffort,
) -> Result<Found> {
    let sink = Collect::default();
    let options = SearchOptions::new(target, effort, 1);
    let statistics = search(&setup.context(), store, queries, &options, Box::new(sink.clone()))?;
    let (batches, hits) = (sink.batches(), sink.hits());
    assert_eq!(statistics.search.queries, hits.len() as u64, "the statistics count what the sink got");
    assert_eq!(statistics.search.hits, hits.iter().map(Vec::len).sum::<usize>() as u64);
    Ok(Found { batches, hits, statistics })
}

#[track_caller]
pub(crate) fn assert_same(found: &[Hits], expected: &[Hits], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: queries");
    for (query, (found, expected)) in found.iter().zip(expected).enumerate() {
        let bits = |hits: &Hits| hits.iter().map(|&(row, value)| (row, value.to_bits())).collect::<Vec<_>>();
        assert_eq!(bits(found), bits(expected), "{what}: query {query}: {found:?}, not {expected:?}");
    }
}

/// Returns the rows that are the queries, in the order of their hits. The first hits of a batch may belong to the
/// last query of the previous batch.
pub(super) fn query_rows(batches: &[HitBatch]) -> Vec<u64> {
    let new = |batch: &HitBatch| batch.query_rows[usize::from(batch.hits_before > 0)..].to_vec();
    batches.iter().flat_map(new).collect()
}

#[test]
fn an_exact_search_equals_brute_force() {
    for (element, metric) in ELEMENTS.into_iter().flat_map(|element| METRICS.map(|metric| (element, metric))) {
        let set = Set::of(element, 12, &values(400, 12, 1));
        let queries = Set::of(element, 12, &[values(20, 12, 2), values(30, 12, 1)].concat()); // 30 are rows of the set
        let setup = Setup::default().with_metric(metric).with_buckets(23);
        let built = setup.build(&set).unwrap();
        let radii = match metric {
            Metric::L2 => [0.0, 30.0, 1e9].map(|eps| QueryTarget::Within(Predicate::l2(eps).unwrap())).to_vec(),
            Metric::Cosine => {
                [1.0, 0.98, -1.0].map(|least| QueryTarget::Within(Predicate::cosine(least).unwrap())).to_vec()
            }
            Metric::Ip => Vec::new(),
        };
        for wanted in [1, 10, 100, 400, 401, u64::MAX].map(QueryTarget::Nearest).into_iter().chain(radii) {
            let what = format!("{element} {metric} {wanted:?}");
            let wanted_hits = true_hits(&set, &queries, wanted, metric);
            let found = find(&setup, &built.store, &queries, wanted, SearchEffort::Exact).unwrap();
            assert_same(&found.hits, &wanted_hits, &what);
            assert!(found.hits.iter().any(|hits| !hits.is_empty()), "{what}: a test that finds nothing shows nothing");
        }
    }
}

#[test]
fn queries_of_other_types_are_compared_without_conversion() {
    let (floats, bytes) = (values(300, 8, 3), values(40, 8, 4).into_iter().map(f64::round).collect::<Vec<_>>());
    for (of_set, of_queries, metric) in [
        (Element::F16, Element::F32, Metric::L2),
        (Element::F32, Element::F16, Metric::Cosine),
        (Element::F32, Element::U8, Metric::L2),
        (Element::U8, Element::F32, Metric::L2),
        (Element::I8, Element::U8, Metric::L2),
        (Element::U8, Element::F16, Metric::Cosine),
        (Element::U8, Element::F32, Metric::Ip),
        (Element::F16, Element::I8, Metric::Ip),
    ] {
        let (set, queries) = (Set::of(of_set, 8, &floats), Set::of(of_queries, 8, &bytes));
        let setup = Setup::default().with_metric(metric).with_buckets(9);
        let (built, wanted) = (setup.build(&set).unwrap(), QueryTarget::Nearest(5));
        let found = find(&setup, &built.store, &queries, wanted, SearchEffort::Exact).unwrap();
        assert_same(
            &found.hits,
            &true_hits(&set, &queries, wanted, metric),
            &format!("{of_set} {of_queries} {metric}"),
        );
    }
}

/// Returns a set that is large enough for a calibration, and queries for it.
fn large(element: Element) -> (Set, Set) {
    let all = values(11_500, 16, 5);
    let (of_set, of_queries) = all.split_at(9_000 * 16);
    (Set::of(element, 16, of_set).in_batches_of(1_000), Set::of(element, 16, of_queries).in_batches_of(600))
}

#[test]
fn hits_do_not_depend_on_threads_kernels_or_budgets() {
    for (element, metric) in [
        (Element::U8, Metric::L2),
        (Element::F32, Metric::L2),
        (Element::F16, Metric::Cosine),
        (Element::F32, Metric::Ip),
    ] {
        let (set, queries) = large(element);
        let setup = Setup::default().with_metric(metric).with_buckets(120);
        let built = setup.build(&set).unwrap();
        for (wanted, effort) in [
            (QueryTarget::Nearest(10), SearchEffort::Recall(0.9)),
            (QueryTarget::Nearest(3), SearchEffort::Probes(7)),
            (QueryTarget::Nearest(10), SearchEffort::Exact),
        ] {
            let of = |setup: &Setup| find(setup, &built.store, &queries, wanted, effort).unwrap();
            let first = of(&setup);
            let mut others = vec![Setup { threads: 1, ..setup.clone() }, Setup { threads: 5, ..setup.clone() }];
            others.push(Setup { memory: 31_000_000, ..setup.clone() });
            others.extend(Kernel::available().into_iter().map(|kernel| Setup { kernel, ..setup.clone() }));
            for other in &others {
                let what = format!("{element} {effort:?} {} {} {}", other.threads, other.kernel.name(), other.memory);
                let found = of(other);
                assert_same(&found.hits, &first.hits, &what);
                assert_eq!(
                    found.statistics.search.probes_per_query, first.statistics.search.probes_per_query,
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn the_recall_is_reached_by_probing_some_buckets() {
    let (set, queries) = large(Element::F32);
    let setup = Setup::default().with_buckets(120);
    let built = setup.build(&set).unwrap();
    let wanted = QueryTarget::Nearest(10);
    let all = find(&setup, &built.store, &queries, wanted, SearchEffort::Exact).unwrap().hits;
    let mut probes = Vec::new();
    for target in [0.5, 0.9, 0.99] {
        let Found { hits, statistics, .. } =
            find(&setup, &built.store, &queries, wanted, SearchEffort::Recall(target)).unwrap();
        let share = |(hits, all): (&Hits, &Hits)| hits.iter().filter(|hit| all.contains(hit)).count() as f64 / 10.0;
        let reached = hits.iter().zip(&all).map(share).sum::<f64>() / all.len() as f64;
        let recall = statistics.common.recall.unwrap();
        // The queries are not rows of the set, but have the same distribution.
        assert!(reached >= target - 0.01, "{target}: {reached}");
        let at_k = recall.at_k.unwrap();
        assert!(recall.kept && at_k.low <= reached + 0.02 && reached - 0.02 <= at_k.high, "{recall:?}");
        assert!((0.0..=1.0).contains(&recall.p5.unwrap()));
        assert_eq!(recall.sample_queries, Some(2_000));
        probes.push(statistics.search.probes_per_query.unwrap());
    }
    assert!(probes.is_sorted() && probes[0] < 15.0 && probes[2] < 90.0, "{probes:?}");
}

#[test]
fn few_queries_are_exact_and_each_bucket_is_read_once() {
    let (set, queries) = large(Element::U8);
    let setup = Setup::default().with_buckets(120);
    let built = setup.build(&set).unwrap();
    let few = Set::of(Element::U8, 16, &values(50, 16, 5));
    let found = find(&setup, &built.store, &few, QueryTarget::Nearest(4), SearchEffort::Recall(0.9)).unwrap();
    assert_eq!(found.statistics.common.recall.unwrap().sample_queries, None);
    assert_same(&found.hits, &true_hits(&set, &few, QueryTarget::Nearest(4), Metric::L2), "few queries");
    let bytes: u64 = built.store.extents().iter().map(|extent| extent.bytes(false)).sum();
    let found =
        find(&setup, &built.store, &queries, QueryTarget::Nearest(4), SearchEffort::Probes(30)).unwrap().statistics;
    assert_eq!(found.common.io.bytes_requested, Some(bytes), "2,500 queries look into every bucket");
    assert_eq!(found.search.probes_per_query, Some(30.0));
}

#[test]
fn hits_and_queries_have_their_ids() {
    let set = Set::of(Element::F32, 6, &values(200, 6, 7));
    let names: Vec<String> = (0..200).map(|row| format!("row-{}", "x".repeat(row % 7)) + &row.to_string()).collect();
    let queries = Set::of(Element::F32, 6, &values(9, 6, 8)).with_ids(&[5, -3, 8, 1, 0, 2, 100, i64::MAX, 9]);
    let setup = Setup::default().with_buckets(11);
    let built = setup.build(&set.with_text_ids(&names)).unwrap();
    let found = find(&setup, &built.store, &queries, QueryTarget::Nearest(7), SearchEffort::Exact).unwrap();
    let HitBatch { query_ids, rows, ids: Ids::Utf8(ids), .. } = &found.batches[0] else { panic!("names are texts") };
    assert_eq!(*query_ids, Ids::Int64(vec![5, -3, 8, 1, 0, 2, 100, i64::MAX, 9]));
    assert_eq!(rows.len(), 63);
    for (k, &row) in rows.iter().enumerate() {
        assert_eq!(ids.get(k), names[row as usize].as_bytes());
    }
}

#[test]
fn refuses_invalid_requests_in_one_line() {
    let set = Set::of(Element::U8, 4, &values(50, 4, 9));
    let l2 = Setup::default().with_buckets(3);
    let cosine = l2.clone().with_metric(Metric::Cosine);
    let (on_l2, on_cosine) = (l2.build(&set).unwrap(), cosine.build(&set).unwrap());
    let floats = |values: &[f64]| Set::of(Element::F32, 4, values);
    let four = QueryTarget::Nearest(4);
    for (built, queries, wanted, words) in [
        (&on_l2, Set::of(Element::U8, 3, &[1.0; 3]), four, "queries have 3 dimensions, but the vectors of"),
        (&on_l2, floats(&[1.0, 2.0, 0.5, 1.0]), four, "element 2 of row 0 is 0.5; the vectors of the store are u8"),
        (&on_l2, floats(&[1.0, 2.0, f64::NAN, 1.0]), four, "row 0"),
        (&on_cosine, floats(&[1.0, 2.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.0]), four, "row 1"),
        (&on_cosine, floats(&[1.0; 4]), QueryTarget::Within(Predicate::l2(1.0).unwrap()), "give min-similarity"),
        (&on_l2, floats(&[1.0; 4]), QueryTarget::Within(Predicate::cosine(0.5).unwrap()), "give radius"),
    ] {
        let refused = error_of(find(&l2, &built.store, &queries, wanted, SearchEffort::Exact)).to_string();
        assert!(refused.contains(words) && !refused.contains('\n'), "{refused}");
    }
    for refused in [
        QueryTarget::of(Some(0), None, None),
        QueryTarget::of(Some(1), Some(1.0), None),
        QueryTarget::of(None, None, None),
    ] {
        assert!(refused.is_err());
    }
    assert!(QueryTarget::of(None, Some(-1.0), None).is_err() && QueryTarget::of(None, None, Some(1.5)).is_err());
    let none = EffortOptions::default();
    for refused in [
        EffortOptions { recall: Some(0.0), ..none },
        EffortOptions { recall: Some(f64::NAN), ..none },
        EffortOptions { recall: Some(0.5), exact: true, ..none },
        EffortOptions { probes: Some(0), ..none },
        EffortOptions { list: Some(0), ..none },
        EffortOptions { probes: Some(1), list: Some(1), ..none },
    ] {
        assert!(SearchEffort::try_from(refused).is_err());
    }
    let walk = find(&l2, &on_l2.store, &floats(&[1.0; 4]), four, SearchEffort::List(8));
    assert!(error_of(walk).to_string().contains("list 8 is for graph indexes"));
    let none = find(&l2, &on_l2.store, &floats(&[]), four, SearchEffort::default()).unwrap();
    assert!(none.hits.is_empty());
}

/// Returns the budget that a refusal names, in bytes.
fn named_in(refused: &str) -> u64 {
    let named = refused.split("give memory ").nth(1).and_then(|rest| rest.split("MB").next());
    named.unwrap_or_else(|| panic!("{refused}")).parse::<u64>().unwrap() * 1_000_000
}

const TOO_SMALL: u64 = 15_100_000;

#[test]
fn a_refused_search_budget_names_a_sufficient_one() {
    let (set, queries) = large(Element::F32);
    let setup = Setup::default().with_buckets(120);
    let built = setup.build(&set).unwrap();
    for (wanted, effort) in
        [(QueryTarget::Nearest(100), SearchEffort::Recall(0.9)), (QueryTarget::Nearest(10), SearchEffort::Exact)]
    {
        let with = |memory| find(&Setup { memory, ..setup.clone() }, &built.store, &queries, wanted, effort);
        let least = named_in(&error_of(with(TOO_SMALL)).to_string());
        let found = with(least).unwrap_or_else(|error| panic!("{least}: {error}"));
        assert_same(&found.hits, &with(1 << 30).unwrap().hits, "in the least memory");
    }
}

#[test]
fn only_queries_with_more_hits_than_memory_are_refused() {
    let (rows, dimensions) = (60_000, 64);
    let set = Set::of(Element::U8, dimensions, &vec![7.0; dimensions * rows]).in_batches_of(10_000);
    let setup = Setup::default();
    let built = setup.build(&set).unwrap();
    let all = QueryTarget::Within(Predicate::l2(0.0).unwrap());
    let many = Set::of(Element::U8, dimensions, &vec![7.0; 12 * dimensions]);
    let with = |memory| find(&Setup { memory, ..setup.clone() }, &built.store, &many, all, SearchEffort::Exact);
    // This budget suffices for one query at a time, but not for several at once.
    let least = named_in(&error_of(with(TOO_SMALL)).to_string());
    let found = with(least).unwrap();
    assert!(found.hits.iter().all(|hits| hits.len() == rows && hits == &found.hits[0]));
    assert!(found.batches.len() > 1, "fewer at once");
    // A search with fewer hits would fit in this budget.
    let refused = (1..).find_map(|step| with(least - step * 2_000_000).err()).unwrap().to_string();
    assert!(refused.contains("hits of one query do not fit into memory"), "{refused}");
    assert!(with(named_in(&refused)).is_ok(), "the budget that is named suffices");
}

#[test]
fn rows_as_queries_exclude_themselves() {
    let set = Set::of(Element::F32, 5, &values(700, 5, 10)).with_ids(&(1_000..1_700).collect::<Vec<_>>());
    for memory in [1 << 30, 23_000_000] {
        let setup = Setup { memory, ..Setup::default() }.with_buckets(31);
        let built = setup.build(&set).unwrap();
        let found =
            find_of(&setup, &built.store, SearchQueries::default(), QueryTarget::Nearest(6), SearchEffort::Exact)
                .unwrap();
        let asked: Vec<u64> = query_rows(&found.batches);
        let with_itself = true_hits(&set, &set, QueryTarget::Nearest(7), Metric::L2);
        for (row, hits) in asked.iter().zip(&found.hits) {
            let others = with_itself[*row as usize].iter().copied().filter(|hit| hit.0 != *row);
            assert_same(std::slice::from_ref(hits), &[others.take(6).collect()], &format!("row {row}"));
        }
        let ids = found.batches.iter().flat_map(|batch| match &batch.query_ids {
            Ids::Int64(ids) => ids[usize::from(batch.hits_before > 0)..].to_vec(),
            _ => panic!("ids are integers"),
        });
        assert!(ids.zip(&asked).all(|(id, row)| id == 1_000 + *row as i64));
        assert_eq!(asked.iter().collect::<std::collections::BTreeSet<_>>().len(), 700);
    }
}

/// Checks rows as queries, which are first compared with the rows of their own bucket. They must find the same hits
/// as equal vectors from a source.
#[test]
fn rows_as_queries_equal_queries_with_their_vectors() {
    for (element, metric) in ELEMENTS.into_iter().flat_map(|of| [(of, Metric::L2), (of, Metric::Cosine)]) {
        let set = Set::of(element, 5, &values(900, 5, 20));
        let setup = Setup::default().with_metric(metric).with_buckets(150);
        let built = setup.build(&set).unwrap();
        for (k, probes) in [(1, 1), (3, 2), (15, 3), (40, 9), (899, 4)] {
            let of = |queries, k| {
                find_of(&setup, &built.store, queries, QueryTarget::Nearest(k), SearchEffort::Probes(probes))
            };
            let (rows, asked) = (of(SearchQueries::default(), k).unwrap(), of(SearchQueries::new(&set), k).unwrap());
            let numbers: Vec<u64> = query_rows(&rows.batches);
            for (row, hits) in numbers.iter().zip(&rows.hits) {
                let what = format!("{element} {metric}: {k} nearest of row {row} in {probes} buckets");
                assert_eq!(hits.len() as u64, k, "{what}");
                // Queries from a source find their own row too, so they have one other hit fewer.
                let others: Hits = asked.hits[*row as usize].iter().copied().filter(|hit| hit.0 != *row).collect();
                assert!(others.len() as u64 + 1 >= k, "{what}");
                assert_same(&[hits[..others.len()].to_vec()], &[others], &what);
            }
        }
    }
}

#[test]
fn a_query_probes_more_buckets_until_it_has_k_hits() {
    let set = Set::of(Element::U8, 6, &values(500, 6, 11));
    let setup = Setup::default().with_buckets(100);
    let built = setup.build(&set).unwrap();
    let few = Set::of(Element::U8, 6, &values(20, 6, 12));
    for k in [1, 50, 500, 600] {
        let found = find(&setup, &built.store, &few, QueryTarget::Nearest(k), SearchEffort::Probes(1)).unwrap();
        assert!(found.hits.iter().all(|hits| hits.len() as u64 == k.min(500)), "{k}");
    }
}

#[test]
fn calibration_queries_give_the_recall_of_other_queries() {
    let (set, _) = large(Element::F32);
    // The queries are between the places of the set, so more buckets are near them.
    let mut random = Random::new(3, "between");
    let strangers: Vec<f64> = (0..5_000 * 16).map(|_| 20.0 + 60.0 * random.uniform()).collect();
    let (asked, like) = strangers.split_at(2_500 * 16);
    let [asked, like] = [asked, like].map(|of| Set::of(Element::F32, 16, of).in_batches_of(700));
    let setup = Setup::default().with_buckets(120);
    let built = setup.build(&set).unwrap();
    let wanted = QueryTarget::Nearest(10);
    let all = find(&setup, &built.store, &asked, wanted, SearchEffort::Exact).unwrap().hits;
    let reached = |calibrate_with: Option<&dyn VectorSource>| {
        let sets = SearchQueries { source: Some(&asked), calibrate_with };
        let Found { hits, statistics, .. } =
            find_of(&setup, &built.store, sets, wanted, SearchEffort::Recall(0.9)).unwrap();
        let share = |(hits, all): (&Hits, &Hits)| hits.iter().filter(|hit| all.contains(hit)).count() as f64 / 10.0;
        (hits.iter().zip(&all).map(share).sum::<f64>() / all.len() as f64, statistics)
    };
    let (by_rows, statistics) = reached(None);
    assert_eq!(statistics.common.recall.unwrap().queries.as_deref(), Some("rows of the store"));
    let (by_others, statistics) = reached(Some(&like));
    let recall = statistics.common.recall.unwrap();
    assert_eq!(recall.queries.as_deref(), Some("calibrate-with"));
    assert!(by_rows < 0.85, "{by_rows}: a test in which rows are like the queries shows nothing");
    assert!(by_others >= 0.89 && recall.at_k.unwrap().low - 0.02 <= by_others, "{by_others} {recall:?}");
}
