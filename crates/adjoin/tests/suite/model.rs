//! Compares joins with the oracle, including all bits of the values. The thresholds are values of pairs, and the next
//! stricter numbers.

use adjoin::{Collect, Element, GroundtruthOptions, Metric, Predicate};
use proptest::prelude::*;

use crate::datasets::{Shape, make, shapes};
use crate::harness::{Set, Setup, assert_same, difference, join};

const ELEMENTS: [Element; 4] = [Element::F32, Element::F16, Element::U8, Element::I8];

/// Returns two thresholds for a pair at each quantile: the strictest one that accepts the pair, and the next stricter
/// one. A small quantile gives strict thresholds.
pub(crate) fn thresholds(metric: Metric, values: &[f64], quantiles: &[f64]) -> Vec<Predicate> {
    let mut thresholds = Vec::new();
    for quantile in quantiles.iter().filter(|_| !values.is_empty()) {
        let place = ((values.len() - 1) as f64 * quantile) as usize;
        thresholds.extend(match metric {
            Metric::L2 => last_inside(values[place]).map(|eps| Predicate::L2 { eps: eps.max(0.0) }),
            Metric::Cosine | Metric::Ip => {
                let value = values[values.len() - 1 - place];
                [value, value.next_up()].map(|s| Predicate::Cosine { min_similarity: s.clamp(-1.0, 1.0) })
            }
        });
    }
    thresholds
}

/// Returns the smallest `eps` with `eps * eps >= squared`, and the next smaller number.
fn last_inside(squared: f64) -> [f64; 2] {
    let mut eps = squared.sqrt();
    while eps * eps < squared {
        eps = eps.next_up();
    }
    while eps > 0.0 && eps.next_down() * eps.next_down() >= squared {
        eps = eps.next_down();
    }
    [eps, eps.next_down()]
}

/// Joins a set at thresholds that are spread over all its distances.
fn check(set: &Set, metric: Metric, quantiles: &[f64], number: usize, what: &str) {
    let oracle = set.oracle(metric);
    let setup = Setup { threads: 1 + number % 3, ..Setup::default() }.with_metric(metric).skipping_bad_rows();
    let setup = match number % 4 {
        0 => setup,
        1 => setup.with_buckets(1 + set.rows() as u32 / 12),
        2 => setup.with_buckets(1 + set.rows() as u32 / 3),
        _ => setup.with_buckets(2),
    };
    let built = match setup.build(set) {
        Ok(built) => built,
        // A lattice of one or two rows may consist of zero vectors only.
        Err(error) => return assert!(error.to_string().contains("usable vector"), "{what}: {error}"),
    };
    for predicate in thresholds(metric, &oracle.values(), quantiles) {
        let wanted = oracle.pairs(predicate);
        let found = built.join(&setup, predicate).unwrap().pairs;
        assert_same(&found, &wanted, &format!("{what}, {metric}, {predicate:?}"));
    }
}

/// Checks sets of all sizes, elements, shapes and metrics. Only one out of every `every` combinations is checked.
fn check_sizes(sizes: &[(usize, usize)], every: usize, quantiles: &[f64]) {
    let mut number: usize = 0;
    for &(rows, dimensions) in sizes {
        for element in ELEMENTS {
            for &shape in shapes(element) {
                let set = make(shape, element, rows, dimensions, number as u64);
                for metric in [Metric::L2, Metric::Cosine] {
                    number += 1;
                    if !number.is_multiple_of(every) {
                        continue;
                    }
                    let what = format!("{rows} x {dimensions} {element} {shape:?}, number {number}");
                    check(&set, metric, quantiles, number, &what);
                }
            }
        }
    }
}

#[test]
fn tiny_sets_join_like_the_oracle() {
    let sizes = [(1, 3), (2, 1), (2, 128), (3, 2), (3, 31), (10, 1), (10, 3), (10, 31), (49, 2), (50, 3), (50, 128)];
    check_sizes(&sizes, 1, &[0.0, 0.02, 0.3, 1.0]);
}

#[test]
fn small_sets_join_like_the_oracle() {
    check_sizes(&[(100, 2), (100, 31)], 1, &[0.0, 0.01, 0.6]);
    check_sizes(&[(500, 1), (500, 3), (500, 31)], 2, &[0.0005, 0.02, 0.2]);
}

#[test]
fn sets_of_a_thousand_join_like_the_oracle() {
    check_sizes(&[(1000, 3), (1000, 128)], 5, &[0.000_02, 0.01]);
}

#[test]
fn sets_of_three_thousand_join_like_the_oracle() {
    check_sizes(&[(3000, 31)], 7, &[0.000_01, 0.003]);
}

#[test]
fn vectors_of_most_dimensions_join_like_the_oracle() {
    check_sizes(&[(2, 8192), (10, 8192), (50, 8192)], 2, &[0.0, 0.1, 1.0]);
}

/// Checks points k * (3, 4) * 2^p. Their distances are multiples of 5 * 2^p, and every square and sum is exact.
#[test]
fn pairs_exactly_at_the_threshold_are_found() {
    for power in [-70, -20, 0, 3, 55] {
        let unit = 2f64.powi(power);
        let rows = 400;
        let values: Vec<f64> = (0..rows).flat_map(|k| [3.0, 4.0].map(|x| x * unit * f64::from(k * 7 % rows))).collect();
        let set = Set::of(Element::F32, 2, &values);
        let built = Setup::default().with_buckets(40).build(&set).unwrap();
        for steps in [1, 2, 17, 399] {
            let eps = 5.0 * unit * f64::from(steps);
            let pairs_at = |distance: i32| (rows - distance) as usize;
            for (eps, most) in [(eps.next_down(), steps - 1), (eps, steps), (eps.next_up(), steps)] {
                let found = built.join(&Setup::default(), Predicate::L2 { eps }).unwrap().pairs;
                assert_eq!(found.len(), (1..=most).map(pairs_at).sum::<usize>(), "2^{power}, {steps}, {eps:e}");
                assert_same(&found, &set.true_pairs(Predicate::L2 { eps }), "multiples of five");
            }
        }
    }
}

/// Checks that the comparison can fail: if a threshold is one step off, the result differs.
#[test]
fn canary_a_threshold_one_step_off_is_noticed() {
    for metric in [Metric::L2, Metric::Cosine] {
        for element in ELEMENTS {
            let set = make(Shape::Uniform, element, 200, 5, 11);
            let oracle = set.oracle(metric);
            let [at, stricter] = thresholds(metric, &oracle.values(), &[0.3])[..] else { unreachable!() };
            let found = join(&set, &Setup::default().with_buckets(20).skipping_bad_rows(), at).unwrap().pairs;
            assert_eq!(difference(&found, &oracle.pairs(at)), None);
            let difference = difference(&found, &oracle.pairs(stricter)).expect("the pair at the threshold is gone");
            assert!(difference.contains("0 missing") && difference.contains("wrong"), "{difference}");
        }
    }
}

#[test]
fn canary_a_value_one_bit_off_is_noticed() {
    let set = make(Shape::Uniform, Element::F32, 100, 5, 12);
    let at = Predicate::L2 { eps: 1.0 };
    let mut wanted = set.true_pairs(at);
    let found = join(&set, &Setup::default(), at).unwrap().pairs;
    assert_same(&found, &wanted, "before");
    wanted[7].2 = wanted[7].2.next_up();
    assert!(difference(&found, &wanted).is_some());
    wanted.remove(7);
    assert!(difference(&found, &wanted).is_some());
}

#[test]
fn the_ground_truth_equals_the_oracle() {
    for (element, metric) in ELEMENTS.into_iter().flat_map(|e| [(e, Metric::L2), (e, Metric::Cosine)]) {
        let set = make(Shape::Clustered, element, 2100, 9, 5);
        let oracle = set.oracle(metric);
        let predicate = thresholds(metric, &oracle.values(), &[0.01])[0];
        let wanted = oracle.pairs(predicate);
        assert!(wanted.len() > 10_000);
        let sink = Collect::default();
        let options = GroundtruthOptions { predicate, sample: None, seed: 1 };
        let report = options.run(&Setup::default().context(), &set, Box::new(sink.clone())).unwrap();
        assert_same(&sink.pairs(), &wanted, "ground truth");
        assert_eq!((report.rows, report.pairs), (2100, wanted.len() as u64));

        let sink = Collect::default();
        let options = GroundtruthOptions { sample: Some(300), ..options };
        options.run(&Setup::default().context(), &set, Box::new(sink.clone())).unwrap();
        let sampled = sink.pairs();
        assert!(sampled.iter().all(|pair| wanted.binary_search_by_key(&(pair.0, pair.1), |w| (w.0, w.1)).is_ok()));
        // 300 of 2,100 rows are sampled, so the probability that a pair has a sampled row is 0.265.
        let share = sampled.len() as f64 / wanted.len() as f64;
        assert!((0.18..0.36).contains(&share) && sampled.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)), "{share}");
    }
}

/// Returns tiny sets with few distinct values, so that many pairs have equal distances.
fn tied_sets() -> impl Strategy<Value = (Element, usize, Vec<f64>)> {
    let element = prop::sample::select(ELEMENTS.to_vec());
    (element, 1..=40usize, 1..=20usize, 1..=6i32).prop_flat_map(|(element, rows, dimensions, most)| {
        let least = if element == Element::U8 { 0 } else { -most };
        let values = prop::collection::vec((least..=most).prop_map(f64::from), rows * dimensions);
        (Just(element), Just(dimensions), values)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tied_sets_join_like_the_oracle(
        (element, dimensions, values) in tied_sets(),
        buckets in 1..=20u32,
        quantile in 0.0..=1.0f64,
        cosine in any::<bool>(),
        threads in 1..=3usize,
    ) {
        let metric = if cosine { Metric::Cosine } else { Metric::L2 };
        let set = Set::of(element, dimensions, &values);
        let setup = Setup { threads, ..Setup::default() }.with_buckets(buckets).skipping_bad_rows();
        let oracle = set.oracle(metric);
        if let Ok(built) = setup.clone().with_metric(metric).build(&set) {
            for predicate in thresholds(metric, &oracle.values(), &[quantile]) {
                let found = built.join(&setup, predicate).unwrap().pairs;
                prop_assert_eq!(difference(&found, &oracle.pairs(predicate)), None, "{:?}", predicate);
            }
        }
    }
}
