//! Rules with a threshold: is what they promise so, and is what they find always the same?

use std::collections::BTreeMap;

use adjoin::join::Aim;
use adjoin::kernels::Kernel;
use adjoin::options::{Element, Metric};
use adjoin::plan::Rule;
use adjoin::predicate::Predicate;

use crate::datasets::{Shape, make, shapes};
use crate::hard::clump;
use crate::harness::{Built, Joined, Set, Setup, assert_same, error_of};
use crate::model::thresholds;
use crate::oracle::Pair;

const RULES: [Rule; 5] = [Rule::Union, Rule::Distance, Rule::Margin, Rule::Nearest, Rule::Arc];

/// Pair recall and mean per-vector recall.
fn recalls(found: &[Pair], truth: &[Pair]) -> (f64, f64) {
    let count = |pairs: &[Pair]| {
        let mut counts = BTreeMap::<u64, f64>::new();
        for (x, y, _) in pairs {
            *counts.entry(*x).or_default() += 1.0;
            *counts.entry(*y).or_default() += 1.0;
        }
        counts
    };
    let (found_of, true_of) = (count(found), count(truth));
    let shares = true_of.iter().map(|(x, wanted)| found_of.get(x).unwrap_or(&0.0) / wanted);
    (found.len() as f64 / truth.len().max(1) as f64, shares.sum::<f64>() / true_of.len().max(1) as f64)
}

/// What was found is a part of the truth, each pair once.
#[track_caller]
fn assert_part(found: &[Pair], truth: &[Pair], what: &str) {
    assert!(found.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)), "a pair comes twice: {what}");
    assert!(found.iter().all(|pair| truth.binary_search_by(|x| (x.0, x.1).cmp(&(pair.0, pair.1))).is_ok()), "{what}");
}

fn promised(built: &Built, rule: Rule, predicate: Predicate, recall: f64) -> Joined {
    let setup = Setup { rule, aim: Aim::recall(recall).unwrap(), ..Setup::default() };
    let joined =
        built.join(&setup, predicate).unwrap_or_else(|error| panic!("{} {predicate:?} {recall}: {error}", rule.name()));
    let said = joined.statistics.recall.as_ref().unwrap();
    assert!(said.kept && said.target == recall && said.sample_vectors.is_some());
    joined
}

/// Sets so small that the sample is all vectors: the promise must then hold to the pair.
#[test]
fn every_rule_keeps_its_promise_on_every_shape() {
    for element in [Element::F32, Element::U8, Element::F16, Element::I8] {
        for (number, &shape) in shapes(element).iter().enumerate() {
            if matches!(shape, Shape::Scaled(scale) if scale > 1e18) {
                continue; // squares overflow: such rules see no distances, and refuse
            }
            let set = make(shape, element, 500, 12, number as u64);
            for metric in [Metric::L2, Metric::Cosine] {
                let setup = Setup::default().with_metric(metric).with_buckets(25).skipping_bad_rows();
                let Ok(built) = setup.build(&set) else { continue };
                let oracle = set.oracle(metric);
                for predicate in thresholds(metric, &oracle.values(), &[0.02]) {
                    let truth = set.true_pairs(predicate);
                    for (rule, recall) in RULES.into_iter().flat_map(|rule| [0.6, 0.95].map(|r| (rule, r))) {
                        let what = format!("{shape:?} {element} {predicate:?} {} {recall}", rule.name());
                        let joined = promised(&built, rule, predicate, recall);
                        assert_part(&joined.pairs, &truth, &what);
                        let (pair, per_vector) = recalls(&joined.pairs, &truth);
                        let reached = truth.is_empty() || pair.min(per_vector) >= recall - 1e-6;
                        assert!(reached, "{what}: {pair} {per_vector}");
                    }
                }
            }
        }
    }
}

/// A set large enough that only a part of it is sampled.
fn sampled_set() -> (Set, Predicate) {
    (clump(Element::U8, 4_000, 4_000, 8), Predicate::l2(1.5).unwrap())
}

#[test]
fn threads_kernels_caches_and_budgets_change_neither_threshold_nor_pairs() {
    let (set, predicate) = sampled_set();
    let built = Setup::default().with_buckets(150).build(&set).unwrap();
    for rule in [Rule::Union, Rule::Distance] {
        let setup = Setup { rule, aim: Aim::recall(0.9).unwrap(), ..Setup::default() };
        let first = built.join(&setup, predicate).unwrap();
        let sampled = first.statistics.recall.as_ref().unwrap().sample_vectors.unwrap();
        assert!(sampled < 8_000 / 3, "{sampled} vectors are all");
        let more = [
            Setup { threads: 1, ..setup.clone() },
            Setup { threads: 3, ..setup.clone() },
            Setup { kernel: Kernel::available()[0], ..setup.clone() },
            Setup { memory: 64 << 20, ..setup.clone() },
            Setup { cache_bytes: Some(1 << 20), ..setup.clone() },
        ];
        for setup in more {
            let again = built.join(&setup, predicate).unwrap();
            assert_same(&again.pairs, &first.pairs, rule.name());
            assert_eq!(again.statistics.strategy["threshold"], first.statistics.strategy["threshold"]);
            assert_eq!(again.statistics.edges, first.statistics.edges);
            assert_eq!(again.statistics.candidate_pairs, first.statistics.candidate_pairs);
        }
    }
}

#[test]
fn predictions_come_near() {
    let (set, predicate) = sampled_set();
    let built = Setup::default().with_buckets(150).build(&set).unwrap();
    for (rule, recall) in [(Rule::Union, 0.8), (Rule::Union, 0.95), (Rule::Nearest, 0.9), (Rule::MarginSum, 1.0)] {
        let setup = Setup { rule, aim: Aim::recall(recall).unwrap(), ..Setup::default() };
        let statistics = built.join(&setup, predicate).unwrap().statistics;
        let (predicted, found) = (statistics.predicted.verified_pairs.unwrap(), statistics.candidate_pairs.unwrap());
        let factor = predicted as f64 / found as f64;
        assert!((1.0 / 1.5..1.5).contains(&factor), "{} {recall}: {predicted} of {found}", rule.name());
    }
}

#[test]
fn a_rule_that_may_miss_pairs_is_not_taken_for_every_pair() {
    let (set, predicate) = sampled_set();
    let built = Setup::default().build(&set).unwrap();
    let error = error_of(built.join(&Setup { rule: Rule::Union, ..Setup::default() }, predicate));
    assert!(error.to_string().contains("union is not proved to find every pair"), "{error}");
}
