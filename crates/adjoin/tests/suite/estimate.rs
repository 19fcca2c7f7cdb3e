//! Estimates of the size of a join's result, compared with all pairs in f64.

use adjoin::{AtThreshold, BuildOptions, Element, Estimate, Interval, JoinEffort, Metric, OnBad, Predicate, Random};

use crate::datasets::{Shape, make, shapes};
use crate::harness::{Set, Setup, error_of};

/// Returns the true number of pairs, and the true number of removed rows if the first of near rows is kept.
fn truth(set: &Set, predicate: Predicate) -> (f64, f64) {
    let pairs = set.true_pairs(predicate);
    let mut gone = vec![false; set.rows() as usize];
    let mut by_later: Vec<(u64, u64)> = pairs.iter().map(|&(left, right, _)| (right, left)).collect();
    by_later.sort_unstable();
    for (later, earlier) in by_later {
        gone[later as usize] |= !gone[earlier as usize];
    }
    (pairs.len() as f64, gone.iter().filter(|gone| **gone).count() as f64)
}

fn ask(set: &Set, build: &BuildOptions, asked: Option<Predicate>) -> Estimate {
    let setup = Setup::default();
    Estimate::new(&setup.context(), set, build, asked, JoinEffort::Unsaid).unwrap()
}

fn asked(estimate: &Estimate) -> AtThreshold {
    estimate.explain.asked().unwrap().clone()
}

fn predicate(metric: Metric, threshold: f64) -> Predicate {
    match metric {
        Metric::L2 => Predicate::l2(threshold).unwrap(),
        Metric::Cosine | Metric::Ip => Predicate::cosine(threshold).unwrap(),
    }
}

/// Returns a threshold between two consecutive f32 values. The values of a result are f32. Each is on the same side of
/// this threshold as its f64 value.
fn between_values(threshold: f64) -> f64 {
    f64::from(threshold as f32) * (1.0 + 3e-8)
}

#[test]
fn estimates_from_all_rows_are_exact() {
    for element in [Element::F32, Element::U8, Element::F16, Element::I8] {
        for (number, &shape) in shapes(element).iter().enumerate() {
            if matches!(shape, Shape::Scaled(_)) {
                continue; // some lengths exceed f32, and then no threshold is valid
            }
            let set = make(shape, element, 300, 6, number as u64);
            for metric in [Metric::L2, Metric::Cosine] {
                let build = BuildOptions { metric, on_bad: OnBad::Skip, ..BuildOptions::default() };
                let usable = ask(&set, &build, None);
                let middle = usable.explain.thresholds[usable.explain.thresholds.len() / 2].threshold;
                let wanted = predicate(metric, between_values(middle).clamp(-1.0, 1e9));
                let told = asked(&ask(&set, &build, Some(wanted)));
                if usable.common.skipped_rows > 0 {
                    continue; // the oracle does not skip rows
                }
                let (pairs, removed) = truth(&set, wanted);
                let what = format!("{element} {shape:?} {metric} {wanted:?}");
                for (told, truth) in [(told.pairs, pairs), (told.removed_rows, removed)] {
                    assert_eq!((told.estimate, told.low, told.high), (truth, truth, truth), "{what}");
                }
            }
        }
    }
}

/// Returns vectors, about a third of which are near an earlier one. Some of these are near each other.
fn families(rows: usize, dimensions: usize, seed: u64) -> Set {
    let mut random = Random::new(seed, "families");
    let mut values: Vec<f64> = Vec::with_capacity(rows * dimensions);
    for row in 0..rows {
        let near = row > 0 && random.below(3) == 0;
        let like = random.below(row.clamp(1, 400) as u64) as usize * dimensions;
        for k in 0..dimensions {
            let value = if near { values[like + k] + 0.05 * random.normal() } else { random.normal() };
            values.push(value);
        }
    }
    Set::of(Element::F32, dimensions, &values)
}

#[test]
fn estimate_intervals_cover_the_truth() {
    let (mut told, mut held) = (0, 0);
    let wanted = [Predicate::l2(0.3).unwrap(), Predicate::l2(1.8).unwrap(), Predicate::cosine(0.97).unwrap()];
    for seed in 0..3 {
        let set = families(6_000, 8, seed);
        for wanted in wanted {
            let (pairs, removed) = truth(&set, wanted);
            let build = BuildOptions { metric: wanted.metric(), seed, ..BuildOptions::default() };
            let estimate = ask(&set, &build, Some(wanted));
            assert_eq!((estimate.common.rows, estimate.explain.compared_rows), (6_000, 4_096));
            let at = asked(&estimate);
            for (name, Interval { estimate, low, high }, truth) in
                [("pairs", at.pairs, pairs), ("removed", at.removed_rows, removed)]
            {
                told += 1;
                held += u32::from((low..=high).contains(&truth));
                let off = (estimate / truth).max(truth / estimate);
                assert!(off < 1.5, "{name} at {wanted:?}, seed {seed}: {estimate} of {truth}");
            }
        }
    }
    assert!(held >= told - 2, "{held} of {told}");
}

#[test]
fn explained_thresholds_ascend_with_their_neighbors() {
    let set = families(5_000, 8, 9);
    let estimate = ask(&set, &BuildOptions::default(), None);
    let neighbors: Vec<f64> = estimate.explain.thresholds.iter().map(|at| at.neighbors).collect();
    assert!(neighbors.is_sorted() && estimate.explain.thresholds.is_sorted_by(|a, b| a.threshold < b.threshold));
    let nearest = |wanted: f64| neighbors.iter().map(|n| (n / wanted).ln().abs()).fold(f64::INFINITY, f64::min);
    for wanted in [1.0, 10.0, 100.0] {
        assert!(nearest(wanted) < 0.5, "{wanted}: {neighbors:?}");
    }
    for at in &estimate.explain.thresholds {
        let intervals = [at.pairs, at.pairs_bytes, at.removed_rows, at.seconds];
        assert!(intervals.iter().all(|of| 0.0 <= of.low && of.low <= of.estimate && of.estimate <= of.high), "{at:?}");
        assert!(at.removed_rows.high <= 5_000.0 && at.seconds.estimate.is_finite(), "{at:?}");
    }
}

#[test]
fn estimates_without_pairs_or_memory_are_refused() {
    let build = BuildOptions::default();
    let refused = |set: &Set, setup: &Setup| {
        error_of(Estimate::new(&setup.context(), set, &build, None, JoinEffort::Every)).to_string()
    };
    let one = Set::of(Element::F32, 2, &[1.0, 2.0]);
    assert!(refused(&one, &Setup::default()).contains("one row"));
    let none = Set::of(Element::F32, 2, &[]);
    assert!(refused(&none, &Setup::default()).contains("no rows"));
    let little = Setup { memory: 19 << 20, ..Setup::default() };
    assert!(refused(&families(100, 8, 1), &little).contains("this estimate needs at least"));
}
