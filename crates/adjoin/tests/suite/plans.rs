//! Plans as data. A plan that is written, read and run in parts must find the pairs of an undivided run.

use adjoin::{
    Collect, CommonStatistics, Element, ErrorKind, JoinEffort, JoinStatistics, Predicate, Random, Written,
    lab::{
        join::{Done, JoinPlan, resume, run},
        plan::Rule,
    },
};

use crate::datasets::{Shape, make};
use crate::harness::{Built, Setup, assert_same, error_of};
use crate::oracle::Pair;

/// Returns stores with each type of coordinates, with an exact and with a calibrated rule.
fn cases() -> Vec<(Built, Setup, Predicate)> {
    let l2 = |eps| Predicate::L2 { eps };
    let cosine = |min_similarity| Predicate::Cosine { min_similarity };
    let sets = [
        (make(Shape::Uniform, Element::U8, 2000, 6, 1), l2(45.0)),
        (make(Shape::Uniform, Element::F32, 2000, 6, 2), l2(0.25)),
        (make(Shape::Clustered, Element::F16, 2000, 20, 3), cosine(0.9)),
    ];
    let aims = [(Rule::MarginSum, JoinEffort::Every), (Rule::Union, JoinEffort::Recall(0.9))];
    let mut all = Vec::new();
    for (set, predicate) in sets {
        for (rule, aim) in aims {
            let setup = Setup { rule, aim, ..Setup::default() }.with_metric(predicate.metric()).with_buckets(40);
            all.push((setup.build(&set).unwrap(), setup, predicate));
        }
    }
    all
}

fn plan(built: &Built, setup: &Setup, predicate: Predicate) -> JoinPlan {
    let context = setup.context();
    let prepared = setup.join_options(predicate).prepare(&context, &built.store, false).unwrap();
    prepared.plan(&built.store)
}

/// Runs the parts of a plan one after the other. Returns the pairs and the statistics of all parts.
fn run_all(built: &Built, setup: &Setup, parts: &[JoinPlan]) -> (Vec<Pair>, JoinStatistics) {
    let (context, store) = (setup.context(), &built.store);
    let mut sink = Collect::default();
    let mut all = Done::default();
    let mut last = None;
    for part in parts {
        drop(last.take()); // releases its memory
        let prepared = resume(&context, store, part.clone()).unwrap();
        all += run(&context, store, &prepared, &mut sink).unwrap();
        last = Some(prepared);
    }
    let statistics = last.unwrap().statistics(&context, store, &all, Written::default());
    (sink.pairs(), statistics)
}

/// Returns the statistics that must not depend on the division into parts.
fn facts(statistics: &JoinStatistics) -> String {
    let CommonStatistics { recall, predicted, strategy, .. } = &statistics.common;
    let predicted = predicted.as_ref().map(|predicted| (predicted.verified_pairs, predicted.center_distances));
    format!("{:?} {predicted:?} {recall:?} {strategy:?}", statistics.join)
}

#[test]
fn a_written_plan_finds_the_same_pairs_in_one_run_and_in_parts() {
    for (built, setup, predicate) in cases() {
        let wanted = built.join(&setup, predicate).unwrap();
        let plan = plan(&built, &setup, predicate);
        let read = JoinPlan::read(&plan.write()).unwrap();
        let (pairs, statistics) = run_all(&built, &setup, std::slice::from_ref(&read));
        assert_same(&pairs, &wanted.pairs, "by a plan that was read");
        assert_eq!(facts(&statistics), facts(&wanted.statistics));
        let predicted = |statistics: &JoinStatistics| statistics.common.predicted.clone().unwrap();
        assert_eq!(predicted(&statistics).bytes_read, predicted(&wanted.statistics).bytes_read);
        let center_distances = statistics.join.center_distances;
        assert_eq!(Some(center_distances), predicted(&statistics).center_distances, "they are known beforehand");

        let third = read.tasks() / 3;
        let parts = [0..third, third..third, third..2 * third, 2 * third..read.tasks()].map(|tasks| read.part(tasks));
        let (pairs, statistics) = run_all(&built, &setup, &parts);
        assert_same(&pairs, &wanted.pairs, "in parts");
        assert_eq!(facts(&statistics), facts(&wanted.statistics), "in parts");
    }
}

#[test]
fn a_plan_of_another_store_is_refused() {
    let all = cases();
    let [(one, setup, predicate), .., (other, _, _)] = all.as_slice() else { panic!("there are several") };
    let plan = plan(one, setup, *predicate);
    let error = error_of(resume(&setup.context(), &other.store, plan).map(|_| ()));
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.to_string().contains("is for another store"), "{error}");
    assert!(error_of(JoinPlan::read("{}").map(|_| ())).to_string().contains("is not the plan of a join"));
}

/// Checks that every damaged plan is refused or runs, without a panic.
#[test]
fn no_plan_panics() {
    let mut random = Random::new(1, "plans");
    for (built, setup, predicate) in cases() {
        let text = plan(&built, &setup, predicate).write();
        let context = setup.context();
        let (mut ran, mut refused) = (0, 0);
        for _ in 0..150 {
            let mut changed = text.clone().into_bytes();
            // Only digits are changed, so that most of the text is still a plan.
            let digits: Vec<usize> = (0..changed.len()).filter(|&at| changed[at].is_ascii_digit()).collect();
            for _ in 0..=random.below(3) {
                changed[digits[random.below(digits.len() as u64) as usize]] = b'0' + random.below(10) as u8;
            }
            let read = JoinPlan::read(std::str::from_utf8(&changed).unwrap());
            let done = read.and_then(|plan| {
                let prepared = resume(&context, &built.store, plan)?;
                run(&context, &built.store, &prepared, &mut Collect::default())?;
                Ok(())
            });
            *if done.is_ok() { &mut ran } else { &mut refused } += 1;
        }
        assert!(ran > 0 && refused > 0, "{ran} ran, {refused} were refused");
    }
}
