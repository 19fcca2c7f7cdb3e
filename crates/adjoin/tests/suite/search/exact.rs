//! Exact searches, for which a bound excludes buckets.

use std::sync::Arc;

use adjoin::{
    Collect, Element, Metric, Predicate, QueryTarget, Random, SearchEffort, SearchOptions, SearchQueries, Store,
    VectorType,
    device::Device,
    kernels::Kernel,
    lab::{buckets::search, report::SearchCounts},
};
use adjoin_device::FileSystem;

use super::{ELEMENTS, Found, Hits, METRICS, assert_same, find, in_order, numbers, values};
use crate::datasets::{Shape, make, shapes};
use crate::harness::{Built, Set, Setup};
use crate::real::first;

/// Effort that probes every bucket, without a bound.
const WHOLE: SearchEffort = SearchEffort::Probes(u32::MAX);

/// For each query, all rows of the set, nearest first.
struct Truth(Vec<Vec<(f64, u64, f32)>>);

impl Truth {
    fn new(set: &Set, queries: &Set, metric: Metric) -> Self {
        let (all, queries) = (numbers(set, set.stored()), numbers(queries, queries.stored()));
        let vectors = queries.chunks_exact(set.vectors().dimensions);
        Self(vectors.map(|query| in_order(set.vectors().element, &all, query, metric)).collect())
    }

    fn hits(&self, target: QueryTarget) -> Vec<Hits> {
        let (k, within) = match target {
            QueryTarget::Nearest(k) => (k as usize, f64::INFINITY),
            QueryTarget::Within(Predicate::L2 { eps }) => (usize::MAX, eps * eps),
            QueryTarget::Within(Predicate::Cosine { min_similarity }) => (usize::MAX, -min_similarity),
            QueryTarget::Within(Predicate::InnerProduct { .. }) => unreachable!("nobody can ask for that"),
        };
        let near = |all: &Vec<(f64, u64, f32)>| {
            all.iter().filter(|hit| hit.0 <= within).take(k).map(|hit| (hit.1, hit.2)).collect()
        };
        self.0.iter().map(near).collect()
    }

    /// Returns a threshold that equals the value of the hit of the first query at a rank.
    fn at_rank(&self, rank: usize, metric: Metric) -> Option<QueryTarget> {
        let nearness = self.0[0][rank].0;
        match metric {
            Metric::L2 => Some(QueryTarget::Within(Predicate::l2(nearness.sqrt()).unwrap())),
            Metric::Cosine => Some(QueryTarget::Within(Predicate::cosine((-nearness).clamp(-1.0, 1.0)).unwrap())),
            Metric::Ip => None,
        }
    }
}

/// Compares searches with the truth. Returns the smallest and the largest mean fraction of the buckets that were
/// probed.
pub(super) fn check(set: &Set, queries: &Set, setup: &Setup, what: &str) -> (f64, f64) {
    let (metric, n) = (setup.build.metric, set.rows());
    let (built, truth) = (setup.build(set).unwrap(), Truth::new(set, queries, metric));
    let (mut least, mut most) = (1.0_f64, 0.0_f64);
    let nearest = [1, 10, 100, n + 1].map(QueryTarget::Nearest);
    for wanted in nearest.into_iter().chain([0, 9].into_iter().filter_map(|rank| truth.at_rank(rank, metric))) {
        let what = format!("{what} {metric} {wanted:?}");
        let Found { hits, statistics, .. } = find(setup, &built.store, queries, wanted, SearchEffort::Exact).unwrap();
        assert_same(&hits, &truth.hits(wanted), &what);
        assert_eq!(statistics.common.strategy.probes, Some("bound"));
        let share = statistics.search.probes_per_query.unwrap() / statistics.search.buckets.unwrap() as f64;
        assert!(share <= 1.0, "{what}: no bucket twice");
        (least, most) = (least.min(share), most.max(share));
    }
    (least, most)
}

/// Returns whether a set contains a zero vector. The cosine of such a vector is undefined.
fn has_zeros(set: &Set) -> bool {
    numbers(set, set.stored()).chunks_exact(set.vectors().dimensions).any(|vector| vector.iter().all(|&x| x == 0.0))
}

#[test]
fn bounds_exclude_no_hit_of_hard_sets() {
    let mut shares = Vec::new();
    for (element, metric) in ELEMENTS.into_iter().flat_map(|of| METRICS.map(|metric| (of, metric))) {
        for &shape in shapes(element) {
            // Scores of such long vectors may exceed f32. Their rows are then refused.
            if metric == Metric::Ip && matches!(shape, Shape::Scaled(scale) if scale > 1e18) {
                continue;
            }
            let set = make(shape, element, 300, 3, 1);
            let setup = Setup::default().with_metric(metric).with_buckets(40);
            for count in [9, 60] {
                let bytes = set.vectors().bytes();
                let own = Set::of_stored(set.vectors(), set.stored()[..count / 2 * bytes].to_vec());
                let strange = make(shape, element, count, 3, 2);
                if metric == Metric::Cosine && (has_zeros(&set) || has_zeros(&strange)) {
                    continue;
                }
                let both = Set::of_stored(set.vectors(), [own.stored(), strange.stored()].concat());
                shares.push(check(&set, &both, &setup, &format!("{element} {shape:?} {count}")));
            }
        }
    }
    let few = shares.iter().filter(|(least, _)| *least < 0.3).count();
    let all = shares.iter().filter(|(_, most)| *most == 1.0).count();
    assert!(4 * few > shares.len() && all > 0, "tests of a bound that leaves out nothing show nothing: {shares:?}");
}

/// Returns every fifth of the first rows of a real set, scaled by `scale` and with another element type. Also returns
/// queries, which are other rows and some rows of the set.
fn sampled(file: &str, header: usize, to: Element, scale: f64) -> Option<(Set, Set)> {
    let (source, stored) = first(file, header)?;
    let vectors = source.vectors();
    let whole = Set::of_stored(vectors, stored);
    let all = numbers(&whole, whole.stored());
    let rows = |start: usize, step: usize| -> Vec<f64> {
        let rows = all.chunks_exact(vectors.dimensions).skip(start).step_by(step).flatten();
        rows.map(|x| x * scale).collect()
    };
    let (set, mut queries) = (rows(0, 5), rows(1, 1_499));
    queries.extend(rows(0, 2_995)); // these queries are rows of the set
    let of = |values: &[f64]| Set::of(to, vectors.dimensions, values).in_batches_of(1_000);
    Some((of(&set), of(&queries)))
}

#[test]
fn exact_search_finds_real_vectors_of_every_type_and_metric() {
    for (file, header, to, scale) in [
        ("sift-200k.u8bin", 8, Element::U8, 1.0),
        ("sift-stars-50k.u8bin", 8, Element::U8, 1.0),
        ("sift-stars-50k.u8bin", 8, Element::I8, 0.5),
        ("debdesc.f16.npy", 128, Element::F16, 1.0),
        ("wordnet-20k.f16.npy", 128, Element::F32, 1.0),
        ("wordnet-20k.f16.npy", 128, Element::I8, 400.0),
    ] {
        let Some((set, queries)) = sampled(file, header, to, scale) else { return };
        for metric in METRICS {
            check(&set, &queries, &Setup::default().with_metric(metric), &format!("{file} {to}"));
        }
    }
}

/// Returns a set of points in the plane, for which queries need few buckets. Also returns enough queries that small
/// budgets split them.
fn plane(element: Element) -> (Set, Set) {
    let all = values(9_000, 2, 21);
    let (of_set, of_queries) = all.split_at(6_000 * 2);
    (Set::of(element, 2, of_set).in_batches_of(500), Set::of(element, 2, of_queries).in_batches_of(700))
}

fn devices() -> Vec<Arc<dyn Device>> {
    let ring = FileSystem::io_uring().ok().map(|ring| -> Arc<dyn Device> { Arc::new(ring) });
    std::iter::once(Arc::new(FileSystem::pread()) as Arc<dyn Device>).chain(ring).collect()
}

/// Opens the store on another device, and searches it.
fn find_on(setup: &Setup, built: &Built, device: Arc<dyn Device>, queries: &Set, target: QueryTarget) -> Vec<Hits> {
    let context = setup.context_on(device);
    let store = Store::open(&context, &built.path()).unwrap();
    let (sink, options) = (Collect::default(), SearchOptions::new(target, SearchEffort::Exact, 1));
    search(&context, &store, SearchQueries::new(queries), &options, Box::new(sink.clone())).unwrap();
    sink.hits()
}

#[test]
fn hits_with_a_bound_equal_a_full_scan_on_every_machine() {
    let within = |metric| match metric {
        Metric::L2 => Predicate::l2(2.0).unwrap(),
        _ => Predicate::cosine(0.9999).unwrap(),
    };
    for (element, metric) in [(Element::F32, Metric::L2), (Element::I8, Metric::L2), (Element::F16, Metric::Cosine)] {
        let (set, queries) = plane(element);
        let setup = Setup::default().with_metric(metric).with_buckets(300);
        let built = setup.build(&set).unwrap();
        for wanted in [QueryTarget::Nearest(7), QueryTarget::Within(within(metric))] {
            let whole = find(&setup, &built.store, &queries, wanted, WHOLE).unwrap();
            let SearchCounts { probes_per_query, buckets, .. } = whole.statistics.search;
            assert_eq!(probes_per_query, buckets.map(|buckets| buckets as f64));
            let of = |setup: &Setup| find(setup, &built.store, &queries, wanted, SearchEffort::Exact).unwrap();
            let first = of(&setup).statistics.search;
            let (probes, buckets) = (first.probes_per_query.unwrap(), first.buckets.unwrap());
            assert!(probes < 0.3 * buckets as f64, "{wanted:?}: {probes}");
            let mut others = [1, 2, 5].map(|threads| Setup { threads, ..setup.clone() }).to_vec();
            others.extend(Kernel::available().into_iter().map(|kernel| Setup { kernel, ..setup.clone() }));
            for other in others {
                let (what, found) = (format!("{element} {} {}", other.threads, other.kernel.name()), of(&other));
                assert_same(&found.hits, &whole.hits, &what);
                let counts = found.statistics.search;
                assert_eq!(counts.probes_per_query, first.probes_per_query, "{what}");
                assert_eq!(counts.distances_per_query, first.distances_per_query, "{what}");
            }
            for memory in [21_000_000, 22_000_000] {
                assert_same(&of(&Setup { memory, ..setup.clone() }).hits, &whole.hits, &format!("{memory}"));
            }
            for device in devices() {
                let what = device.name();
                assert_same(&find_on(&setup, &built, device, &queries, wanted), &whole.hits, what);
            }
        }
    }
}

#[test]
fn bounded_exact_searches_limit_repeated_reads() {
    let bytes_read = |set: &Set, queries: &Set, wanted, buckets| {
        let setup = Setup::default().with_buckets(buckets);
        let built = setup.build(set).unwrap();
        let found = find(&setup, &built.store, queries, wanted, SearchEffort::Exact).unwrap().statistics;
        let store: u64 = built.store.extents().iter().map(|extent| extent.bytes(false)).sum();
        (found.common.io.bytes_requested.unwrap(), store, found.search.probes_per_query.unwrap())
    };
    let of_plane = plane(Element::F32);
    let some = |queries: &Set, count: usize| {
        Set::of_stored(queries.vectors(), queries.stored()[..count * queries.vectors().bytes()].to_vec())
    };
    // With few queries, each bucket is read at most once.
    for count in [1, 16] {
        let (bytes, store, _) = bytes_read(&of_plane.0, &some(&of_plane.1, count), QueryTarget::Nearest(5), 300);
        assert!(bytes < store / 3, "{count}: {bytes} of {store}");
    }
    // With many queries, each first probes its nearest buckets. After that, it probes all others that the bound does
    // not exclude.
    let (bytes, store, probes) = bytes_read(&of_plane.0, &of_plane.1, QueryTarget::Nearest(5), 300);
    assert!(bytes <= 2 * store && probes < 60.0, "{bytes} of {store}, {probes}");
    // With a radius, it is known in advance which buckets must be probed.
    let within = QueryTarget::Within(Predicate::l2(0.5).unwrap());
    let (bytes, store, probes) = bytes_read(&of_plane.0, &of_plane.1, within, 300);
    assert!(bytes <= store && probes < 30.0, "{bytes} of {store}, {probes}");
    // In many dimensions, the bound excludes nothing. Many queries then read the store once.
    let mut random = Random::new(1, "uniform");
    let all: Vec<f64> = (0..13_000 * 24).map(|_| random.uniform()).collect();
    let [set, queries] =
        [&all[..3_000 * 24], &all[3_000 * 24..]].map(|of| Set::of(Element::F32, 24, of).in_batches_of(1_000));
    let (bytes, store, probes) = bytes_read(&set, &queries, QueryTarget::Nearest(5), 50);
    assert_eq!((queries.rows(), bytes, probes), (10_000, store, 50.0));
    let (bytes, store, _) = bytes_read(&set, &some(&queries, 16), QueryTarget::Nearest(5), 50);
    assert!(bytes <= store, "{bytes} of {store}");
}

#[test]
fn equal_vectors_are_ordered_by_row_across_buckets() {
    // Equal vectors are in several buckets. The hits must be the first rows among them, even if a nearer bucket has
    // enough other rows.
    let values: Vec<f64> = (0..400).flat_map(|row| [f64::from(row % 5), 0.0]).collect();
    let (set, queries) = (Set::of(Element::U8, 2, &values), Set::of(Element::U8, 2, &[2.0, 0.0, 1.0, 0.0]));
    for buckets in [1, 5, 60] {
        check(&set, &queries, &Setup::default().with_buckets(buckets), "equal vectors");
    }
    let one_vector = VectorType { element: Element::U8, dimensions: 2 };
    let equal = Set::of_stored(one_vector, vec![9; 600]);
    check(&equal, &queries, &Setup::default().with_buckets(7), "one place");
}
