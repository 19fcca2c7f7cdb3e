//! Inner products of vectors with widely different lengths, zero vectors, and promised recalls.

use adjoin::{
    Collect, Element, ErrorKind, Index, IndexOptions, Metric, Predicate, QueryTarget, Random, RecallStatistics,
    SearchEffort, SearchOptions,
    lab::{index, query::QuerySources},
};

use super::exact::check;
use super::{ELEMENTS, Hits, assert_same, find, numbers, true_hits, values};
use crate::harness::{Set, Setup, error_of, files_of};
use crate::index::{Indexed, options, recall};
use crate::real::first;

fn setup() -> Setup {
    Setup::default().with_metric(Metric::Ip)
}

/// Standard deviation of the logarithms of the factors. With it, they span three orders of magnitude.
const WIDELY: f64 = 1.2;

/// Scales vectors by log-normal factors. `spread` is the standard deviation of the logarithms.
fn stretched(values: &[f64], dimensions: usize, spread: f64, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed, "lengths");
    let stretch = |vector: &[f64]| {
        let factor = (spread * random.normal() - 3.0).exp();
        vector.iter().map(|x| x * factor).collect::<Vec<_>>()
    };
    values.chunks_exact(dimensions).flat_map(stretch).collect()
}

/// Shifts values so that they are centered at zero.
fn around_zero(values: &[f64]) -> Vec<f64> {
    values.iter().map(|x| x - 60.0).collect()
}

#[test]
fn inner_products_of_any_length_miss_no_hit() {
    for element in ELEMENTS {
        let signed = element != Element::U8;
        let [set, queries] = [(400, 1), (40, 2)].map(|(rows, seed)| {
            let values = values(rows, 7, seed);
            let mut all = stretched(&if signed { around_zero(&values) } else { values }, 7, WIDELY, seed);
            all[14..28].fill(0.0);
            Set::of(element, 7, &all)
        });
        check(&set, &queries, &setup().with_buckets(30), &format!("{element} of all lengths"));
    }
}

#[test]
fn equal_vectors_are_ordered_by_row_for_inner_products() {
    for value in [0.0, 3.0] {
        let set = Set::of(Element::F32, 3, &[value; 900]);
        let queries = Set::of(Element::F32, 3, &[0.0, 0.0, 0.0, 1.0, 2.0, 3.0, -1.0, -2.0, -3.0]);
        check(&set, &queries, &setup().with_buckets(7), "one vector");
        let indexed = Indexed::build(&setup(), &set, &options());
        let wanted = true_hits(&set, &queries, QueryTarget::Nearest(5), Metric::Ip);
        assert_same(&indexed.search(&setup(), &queries, 5, 300).hits, &wanted, "one vector");
    }
}

/// Searches a store and its index with a promised recall. Returns the hits and the reported recall of both.
fn promised(indexed: &Indexed, queries: &Set, k: u64, target: f64) -> [(Vec<Hits>, RecallStatistics); 2] {
    let context = setup().context();
    let store = adjoin::Store::open(&context, &indexed.beside("store")).unwrap();
    let of_store = find(&setup(), &store, queries, QueryTarget::Nearest(k), SearchEffort::Recall(target)).unwrap();
    let index = Index::open(&context, &indexed.path()).unwrap();
    let sink = Collect::default();
    let options = SearchOptions::new(QueryTarget::Nearest(k), SearchEffort::Recall(target), 1);
    let of_index =
        index::search(&context, &index, QuerySources::new(queries), &options, Box::new(sink.clone())).unwrap();
    let told = |common: adjoin::CommonStatistics| common.recall.unwrap();
    [(of_store.hits, told(of_store.statistics.common)), (sink.hits(), told(of_index.common))]
}

/// Checks promises for the ten nearest rows of held-out queries. Returns the number of calibration queries in the
/// store and in the index, for the last target.
fn check_promises(set: &Set, queries: &Set, options: &IndexOptions, targets: &[f64], what: &str) -> [Option<u64>; 2] {
    let indexed = Indexed::build(&setup(), set, options);
    let report = Index::verify(&setup().context(), &indexed.path()).unwrap();
    assert!(report.is_sound(), "{what}: {:?}", report.damages);
    let wanted = true_hits(set, queries, QueryTarget::Nearest(10), Metric::Ip);
    let mut learned = [None; 2];
    for &target in targets {
        let found = promised(&indexed, queries, 10, target);
        for (of, (hits, told)) in ["store", "index"].into_iter().zip(&found) {
            let reached = recall(hits, &wanted);
            // These are not the calibration queries.
            assert!(reached >= target - 0.01 && told.kept, "{what}, {of}, {target}: {reached}, {told:?}");
        }
        learned = found.map(|(_, told)| told.sample_queries);
    }
    learned
}

#[test]
fn inner_product_recall_is_reached_for_widely_different_lengths() {
    let dimensions = 16;
    let all = stretched(&around_zero(&values(14_500, dimensions, 5)), dimensions, WIDELY, 6);
    let (of_set, of_queries) = all.split_at(12_000 * dimensions);
    let [set, queries] = [of_set, of_queries].map(|of| Set::of(Element::F32, dimensions, of).in_batches_of(900));
    let options = IndexOptions { code_bytes: Some(8), ..options() };
    let learned = check_promises(&set, &queries, &options, &[0.9, 0.95, 0.99], "made");
    assert_eq!(learned, [Some(2_000), Some(1_000)], "nothing is learned where all is looked at");
}

#[test]
fn inner_product_recall_is_reached_for_scaled_real_vectors() {
    let Some((source, stored)) = first("wordnet-20k.f16.npy", 128) else { return };
    let dimensions = source.vectors().dimensions;
    let whole = Set::of_stored(source.vectors(), stored);
    let all = stretched(&numbers(&whole, whole.stored()), dimensions, 0.4, 7);
    // Every fourth row is used. One in twenty of these is held out as a query.
    let rows = all.chunks_exact(dimensions).step_by(4).enumerate();
    let of = |held_out: bool| -> Vec<f64> {
        rows.clone().filter(|(row, _)| (row % 20 == 7) == held_out).flat_map(|(_, vector)| vector.to_vec()).collect()
    };
    let [set, queries] = [false, true].map(|held_out| Set::of(Element::F16, dimensions, &of(held_out)));
    check_promises(&set, &queries, &IndexOptions::default(), &[0.9], "wordnet");
}

#[test]
fn inner_product_index_bytes_do_not_depend_on_threads() {
    let set = Set::of(Element::F32, 9, &stretched(&around_zero(&values(3_000, 9, 8)), 9, WIDELY, 9));
    let built = [1, 5].map(|threads| Indexed::build(&Setup { threads, ..setup() }, &set, &options()));
    let [one, other] = built.each_ref().map(|built| files_of(&built.path()));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    assert!(one == other, "bytes differ");
}

#[test]
fn joins_and_thresholds_are_refused() {
    let set = Set::of(Element::F32, 4, &values(50, 4, 10));
    let built = setup().build(&set).unwrap();
    for predicate in [Predicate::l2(1.0).unwrap(), Predicate::cosine(0.9).unwrap()] {
        let refused = error_of(built.join(&setup(), predicate));
        assert_eq!(refused.kind(), ErrorKind::Option);
        assert!(refused.to_string().contains("a join needs a distance"), "{refused}");
        let found = find(&setup(), &built.store, &set, QueryTarget::Within(predicate), SearchEffort::Exact);
        assert!(error_of(found).to_string().ends_with("was built for the metric ip; give k"));
    }
    let curve = built.store.neighbor_curve(&setup().context(), 1);
    assert!(error_of(curve).to_string().contains("a join needs a distance"));
}
