//! Rules with a threshold. Are their promises kept, and are their results reproducible?

use std::sync::Arc;

use adjoin::{
    Element, JoinEffort, JoinOptions, JoinStatistics, Metric, Predicate, Random,
    device::{Device, FileSystem},
    kernels::Kernel,
    lab::plan::Rule,
};

use crate::datasets::{Shape, make, shapes};
use crate::hard::clump;
use crate::harness::{Built, Joined, Set, Setup, assert_same, error_of};
use crate::invariance::least_cache;
use crate::model::thresholds;
use crate::oracle::Pair;

/// Returns the recall per pair and the recall per vector.
fn recalls(found: &[Pair], truth: &[Pair]) -> (f64, f64) {
    let rows = truth.iter().map(|pair| pair.1 as usize + 1).max().unwrap_or(0);
    let count = |pairs: &[Pair]| {
        let mut counts = vec![0.0; rows];
        pairs.iter().flat_map(|pair| [pair.0, pair.1]).for_each(|row| counts[row as usize] += 1.0);
        counts
    };
    let (found_of, true_of) = (count(found), count(truth));
    let shares =
        found_of.iter().zip(&true_of).filter(|(_, wanted)| **wanted > 0.0).map(|(found, wanted)| found / wanted);
    let with_neighbors = true_of.iter().filter(|wanted| **wanted > 0.0).count();
    (found.len() as f64 / truth.len().max(1) as f64, shares.sum::<f64>() / with_neighbors.max(1) as f64)
}

/// Checks that a result is a subset of the true pairs and has no pair twice.
#[track_caller]
fn assert_part(found: &[Pair], truth: &[Pair], what: &str) {
    assert!(found.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)), "a pair occurs twice: {what}");
    assert!(found.iter().all(|pair| truth.binary_search_by(|x| (x.0, x.1).cmp(&(pair.0, pair.1))).is_ok()), "{what}");
}

fn promised(built: &Built, predicate: Predicate, recall: f64) -> Joined {
    let setup = Setup { rule: Rule::Union, aim: JoinEffort::recall(recall).unwrap(), ..Setup::default() };
    let joined = built.join(&setup, predicate).unwrap_or_else(|error| panic!("{predicate:?} {recall}: {error}"));
    let said = joined.statistics.common.recall.as_ref().unwrap();
    assert!(said.kept && said.target == recall && said.sample_vectors.is_some());
    joined
}

/// Checks sets so small that the sample contains all vectors. The promise must then be kept exactly.
#[test]
fn the_promise_is_kept_on_every_shape() {
    for element in [Element::F32, Element::U8, Element::F16, Element::I8] {
        for (number, &shape) in shapes(element).iter().enumerate() {
            if matches!(shape, Shape::Scaled(scale) if scale > 1e18) {
                continue; // squares overflow, and then these rules are refused
            }
            let set = make(shape, element, 500, 12, number as u64);
            for metric in [Metric::L2, Metric::Cosine] {
                let setup = Setup::default().with_metric(metric).with_buckets(25).skipping_bad_rows();
                let Ok(built) = setup.build(&set) else { continue };
                let oracle = set.oracle(metric);
                for predicate in thresholds(metric, &oracle.values(), &[0.02]) {
                    let truth = set.true_pairs(predicate);
                    for recall in [0.6, 0.95] {
                        let what = format!("{shape:?} {element} {predicate:?} {recall}");
                        let joined = promised(&built, predicate, recall);
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

/// Checks the neighbors of sampled rows, which are found with a bound between groups of rows and buckets. All rows
/// are sampled, so together they have every pair twice.
#[test]
fn sampled_rows_have_all_their_neighbors() {
    for element in [Element::F32, Element::U8, Element::F16, Element::I8] {
        for (number, shape) in [Shape::Uniform, Shape::Clustered, Shape::Repeated].into_iter().enumerate() {
            // With this number of rows, the last group is smaller than the others.
            let set = make(shape, element, 450, 10 + 30 * number, 7);
            for metric in [Metric::L2, Metric::Cosine] {
                let setup = Setup::default().with_metric(metric).with_buckets(40).skipping_bad_rows();
                let built = setup.build(&set).unwrap();
                let oracle = set.oracle(metric);
                for predicate in thresholds(metric, &oracle.values(), &[0.0, 0.001, 0.05, 0.5, 1.0]) {
                    let truth = set.true_pairs(predicate);
                    let what = format!("{shape:?} {element} {predicate:?}");
                    let setup = Setup { rule: Rule::Union, aim: JoinEffort::recall(0.7).unwrap(), ..Setup::default() };
                    let Ok(joined) = built.join(&setup, predicate) else {
                        // An edge is left out if it has fewer pairs than this. Then the rule may find none.
                        assert!(truth.len() < 4, "{what}");
                        continue;
                    };
                    let recall = joined.statistics.common.recall.unwrap();
                    assert_eq!(recall.sample_pairs, Some(2 * truth.len() as u64), "{what}");
                }
            }
        }
    }
}

/// Returns a set so large that only a part of it is sampled.
fn sampled_set() -> (Set, Predicate) {
    (clump(Element::U8, 4_000, 4_000, 8), Predicate::l2(1.5).unwrap())
}

/// Returns a set of floats. Joins first compare the codes of its vectors.
fn sampled_floats() -> (Set, Predicate) {
    (make(Shape::Clustered, Element::F32, 8_000, 24, 3), Predicate::cosine(0.9).unwrap())
}

/// Returns `set` with a few vectors that point along the first axis. Codes clip them.
fn with_clipped_vectors(set: &Set) -> (Set, Vec<u32>) {
    let (mut stored, bytes) = (set.stored().to_vec(), set.vectors().bytes());
    let rows: Vec<u32> = (1..6).map(|k| 1_300 * k).collect();
    for &row in &rows {
        let first = (100.0 + row as f32).to_le_bytes();
        stored[row as usize * bytes..][..first.len()].copy_from_slice(&first);
    }
    (Set::of_stored(set.vectors(), stored), rows)
}

#[test]
fn a_few_clipped_vectors_do_not_widen_the_search_for_others() {
    let (set, predicate) = sampled_floats();
    let (with_clipped, rows) = with_clipped_vectors(&set);
    let setup = Setup::default().with_metric(Metric::Cosine).with_buckets(150);
    let [of_set, of_clipped] = [&set, &with_clipped].map(|set| {
        let built = setup.build(set).unwrap();
        let joined = promised(&built, predicate, 0.9);
        assert!(joined.statistics.join.exact_checks > 0, "codes are compared first");
        (built, joined)
    });
    let distances = |joined: &Joined| joined.statistics.common.strategy.sample_distances.unwrap();
    let [usual, clipped] = [&of_set, &of_clipped].map(|(_, joined)| distances(joined));
    assert!(clipped * 10 < usual * 11, "{clipped} distances instead of {usual}");
    let exact = of_clipped.0.join(&Setup { rule: Rule::MarginSum, ..setup }, predicate).unwrap();
    let truth = with_clipped.true_pairs(predicate);
    assert_same(&exact.pairs, &truth, "exact");
    let of_two = |pair: &&Pair| rows.contains(&(pair.0 as u32)) && rows.contains(&(pair.1 as u32));
    assert_eq!(truth.iter().filter(of_two).count(), rows.len() * (rows.len() - 1) / 2);
}

#[test]
fn calibrated_joins_do_not_depend_on_threads_kernels_or_devices() {
    for (set, predicate) in [sampled_set(), sampled_floats()] {
        let built = Setup::default().with_metric(predicate.metric()).with_buckets(150).build(&set).unwrap();
        let all = built.store.extents().iter().map(|extent| extent.bytes(false)).sum::<u64>();
        let setup = Setup { rule: Rule::Union, aim: JoinEffort::recall(0.9).unwrap(), ..Setup::default() };
        let first = built.join(&setup, predicate).unwrap();
        let sampled = first.statistics.common.recall.as_ref().unwrap().sample_vectors.unwrap();
        assert!(sampled < 8_000 / 3, "{sampled} vectors are all");
        let least = least_cache(&built, &setup, predicate);
        let caches = [5, 10, 20, 100].map(|percent| Some((4 * all * percent / 100).max(least)));
        let mut more = vec![
            Setup { threads: 1, ..setup.clone() },
            Setup { threads: 3, ..setup.clone() },
            Setup { kernel: Kernel::available()[0], ..setup.clone() },
            Setup { memory: 67 << 20, ..setup.clone() },
        ];
        more.extend(caches.map(|cache_bytes| Setup { cache_bytes, ..setup.clone() }));
        let mut again: Vec<Joined> = more.iter().map(|setup| built.join(setup, predicate).unwrap()).collect();
        for device in devices() {
            again.push(built.join_on(device, &setup, predicate).unwrap());
        }
        for again in again {
            assert_same(&again.pairs, &first.pairs, "again");
            assert_eq!(again.statistics.common.strategy.t, first.statistics.common.strategy.t);
            assert_eq!(again.statistics.join.edges, first.statistics.join.edges);
            assert_eq!(again.statistics.join.candidate_pairs, first.statistics.join.candidate_pairs);
            assert_eq!(again.statistics.join.exact_checks, first.statistics.join.exact_checks);
            let told =
                |joined: &Joined| joined.statistics.common.recall.as_ref().map(|told| (told.pair, told.per_vector));
            assert_eq!(told(&again), told(&first));
        }
    }
}

#[test]
fn a_calibration_with_enough_memory_reads_buckets_once() {
    for (set, predicate) in [sampled_set(), sampled_floats()] {
        let built = Setup::default().with_metric(predicate.metric()).with_buckets(150).build(&set).unwrap();
        let passes = promised(&built, predicate, 0.9).statistics.common.io.passes.unwrap();
        // One pass calibrates, and the join is the other one. Single vectors are read in addition.
        assert!((2.0..2.6).contains(&passes), "{passes}");
    }
}

/// Returns the device with threads, and the device with io_uring if the system allows it.
fn devices() -> Vec<Arc<dyn Device>> {
    let pread: Arc<dyn Device> = Arc::new(FileSystem::pread());
    let ring = FileSystem::io_uring().ok().map(|ring| -> Arc<dyn Device> { Arc::new(ring) });
    std::iter::once(pread).chain(ring).collect()
}

/// Checks that the reported recall is of the pairs that were found, which may exceed the pairs that the rule admits:
/// tiles are wider than the buckets, so all pairs of two buckets that meet are compared.
#[test]
fn the_reported_recall_is_that_of_the_pairs_found() {
    let set = make(Shape::Clustered, Element::U8, 500, 12, 5);
    let predicate = Predicate::l2(60.0).unwrap();
    let truth = set.true_pairs(predicate);
    let built = Setup::default().with_buckets(60).build(&set).unwrap();
    for recall in [0.5, 0.8, 0.95] {
        let joined = promised(&built, predicate, recall);
        let told = joined.statistics.common.recall.unwrap();
        let (of_pairs, of_vectors) = (told.pair.unwrap(), told.per_vector.unwrap());
        let (pair, per_vector) = recalls(&joined.pairs, &truth);
        assert!(pair < 1.0 || recall > 0.9);
        // All vectors are watched, so both estimates are certain.
        assert_eq!((of_pairs.low, of_pairs.high), (of_pairs.estimate, of_pairs.estimate));
        assert!((of_pairs.estimate - pair).abs() < 1e-12 && (of_vectors.estimate - per_vector).abs() < 1e-12);
    }
}

/// Returns sets in which half of the rows are in one place or a third of them are equal, with very strict and very
/// loose thresholds.
fn hard_cases() -> Vec<(&'static str, Set, Predicate, u32)> {
    let equal = |rows: usize| {
        let mut random = adjoin::Random::new(5, "equal");
        let rest = (0..8 * rows * 7 / 10).map(|_| random.below(128) as f64).collect::<Vec<_>>();
        Set::of(Element::U8, 8, &[vec![64.0; 8 * rows * 3 / 10], rest].concat())
    };
    let positive: Vec<f64> = {
        let mut random = adjoin::Random::new(6, "positive");
        (0..16 * 1500).map(|_| random.uniform()).collect()
    };
    let l2 = |eps| Predicate::l2(eps).unwrap();
    let unlike = Predicate::cosine(0.5).unwrap();
    vec![
        ("half in one cell", clump(Element::U8, 1_500, 1_500, 8), l2(1.5), 100),
        ("three in ten equal", equal(2_000), l2(40.0), 100),
        ("all equal", Set::of(Element::U8, 4, &vec![9.0; 4 * 1_200]), l2(3.0), 40),
        ("eps beyond all", make(Shape::Clustered, Element::U8, 1_200, 6, 1), l2(1e6), 60),
        ("eps 0", equal(2_000), l2(0.0), 100),
        ("fewer rows than centers", make(Shape::Clustered, Element::F32, 40, 6, 2), l2(1.0), 1_000),
        ("most pairs alike", Set::of(Element::F32, 16, &positive), unlike, 80),
    ]
}

/// Returns the predicted and the actual number of candidate pairs.
fn predicted_and_found(statistics: &JoinStatistics) -> (u64, u64) {
    let predicted = statistics.common.predicted.as_ref().and_then(|predicted| predicted.verified_pairs);
    (predicted.unwrap(), statistics.join.candidate_pairs)
}

#[test]
fn hard_cases_reach_the_recall_and_the_predicted_pairs() {
    for (name, set, predicate, buckets) in hard_cases() {
        let truth = set.true_pairs(predicate);
        let built = Setup::default().with_metric(predicate.metric()).with_buckets(buckets).build(&set).unwrap();
        // The rule is given by name, or the engine chooses it.
        for rule in [Some(Rule::Union), None] {
            for recall in [0.8, 0.99] {
                let setup = Setup { aim: JoinEffort::recall(recall).unwrap(), memory: 67 << 20, ..Setup::default() };
                let options = JoinOptions { rule, ..setup.join_options(predicate) };
                let what = format!("{name} {rule:?} {recall}");
                let joined = built.join_with(&setup, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_part(&joined.pairs, &truth, &what);
                let (pair, per_vector) = recalls(&joined.pairs, &truth);
                assert!(truth.is_empty() || pair.min(per_vector) >= recall - 1e-6, "{what}: {pair} {per_vector}");
                let (predicted, found) = predicted_and_found(&joined.statistics);
                let factor = (predicted + 1) as f64 / (found + 1) as f64;
                assert!((1.0 / 1.5..1.5).contains(&factor), "{what}: {predicted} of {found}");
            }
        }
    }
}

/// Returns a set with most pairs in one place, and with most vectors elsewhere.
fn crowded_set() -> Set {
    let mut random = Random::new(8, "crowded");
    let crowd = (0..400 * 6).map(|_| 500.0 + random.uniform()).collect::<Vec<_>>();
    let others = (0..2_600 * 6).map(|_| 100.0 * random.uniform());
    Set::of(Element::F32, 6, &[crowd, others.collect()].concat())
}

#[test]
fn a_recall_of_pairs_does_not_promise_that_of_vectors() {
    let (set, predicate) = (crowded_set(), Predicate::l2(18.0).unwrap());
    let truth = set.true_pairs(predicate);
    let built = Setup::default().with_buckets(100).build(&set).unwrap();
    let [both, of_pairs] = JoinEffort::RECALL_OF.map(|of| {
        let aim = JoinEffort::recall(0.9).unwrap().with_recall_of(of).unwrap();
        built.join(&Setup { rule: Rule::Union, aim, ..Setup::default() }, predicate).unwrap()
    });
    let facts = |joined: &Joined| {
        let (recall, (pair, per_vector)) = (&joined.statistics.common.recall, recalls(&joined.pairs, &truth));
        let recall = recall.as_ref().unwrap();
        (recall.of_pairs_only, recall.kept, pair >= 0.9, per_vector >= 0.9)
    };
    assert_eq!([facts(&both), facts(&of_pairs)], [(false, true, true, true), (true, true, true, false)]);
    let checked = [&both, &of_pairs].map(|joined| joined.statistics.join.candidate_pairs);
    assert!(checked[1] < checked[0], "fewer pairs suffice: {checked:?}");
    for unpromised in [JoinEffort::Every, JoinEffort::Unsaid] {
        let error = error_of(unpromised.with_recall_of("pairs")).to_string();
        assert!(error.contains("recall_of pairs needs recall"), "{error}");
    }
}

#[test]
fn predicted_pair_counts_are_close() {
    let (set, predicate) = sampled_set();
    let built = Setup::default().with_buckets(150).build(&set).unwrap();
    for (rule, recall) in [(Rule::Union, 0.8), (Rule::Union, 0.95), (Rule::MarginSum, 1.0)] {
        let setup = Setup { rule, aim: JoinEffort::recall(recall).unwrap(), ..Setup::default() };
        let statistics = built.join(&setup, predicate).unwrap().statistics;
        let (predicted, found) = predicted_and_found(&statistics);
        let factor = predicted as f64 / found as f64;
        assert!((1.0 / 1.5..1.5).contains(&factor), "{} {recall}: {predicted} of {found}", rule.name());
    }
}

#[test]
fn exact_joins_refuse_rules_that_may_miss_pairs() {
    let (set, predicate) = sampled_set();
    let built = Setup::default().build(&set).unwrap();
    let error = error_of(built.join(&Setup { rule: Rule::Union, ..Setup::default() }, predicate));
    assert!(error.to_string().contains("union is not proven to find every pair"), "{error}");
}
