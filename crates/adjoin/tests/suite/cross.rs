//! Joins of two sets. Do they equal plain loops in both orders of the sets, and do they keep their promises?

use adjoin::{
    Collect, Element, JoinEffort, JoinOptions, KeepRule, Metric, PairSink, Predicate, Target,
    lab::{
        join::{Sets, resume},
        plan::{Lead, Order, Rule, Task, sort_tasks},
        sink::{Counts, Keep},
    },
};

use crate::datasets::{Shape, make, shapes};
use crate::hard::clump;
use crate::harness::{Built, Set, Setup, assert_same, error_of};
use crate::model::thresholds;
use crate::oracle::Pair;

/// Builds stores of both sets, with about `rows_of_bucket` rows per bucket.
fn built(sets: [&Set; 2], metric: Metric, rows_of_bucket: [u64; 2]) -> Option<[Built; 2]> {
    let setup = Setup::default().with_metric(metric).skipping_bad_rows();
    let build = |set: &Set, rows: u64| setup.clone().with_buckets(1 + (set.rows() / rows) as u32).build(set).ok();
    Some([build(sets[0], rows_of_bucket[0])?, build(sets[1], rows_of_bucket[1])?])
}

/// Joins in both directions with exact rules, at thresholds across all distances.
fn check(sets: [&Set; 2], metric: Metric, quantiles: &[f64], what: &str) {
    let Some([a, b]) = built(sets, metric, [12, 5]) else { return };
    let every = match metric {
        Metric::L2 => Predicate::L2 { eps: f64::MAX.sqrt() },
        _ => Predicate::Cosine { min_similarity: -1.0 },
    };
    let square = |value: f32| if metric == Metric::L2 { f64::from(value).powi(2) } else { f64::from(value) };
    let mut values: Vec<f64> = sets[0].true_pairs_with(sets[1], every).iter().map(|pair| square(pair.2)).collect();
    values.retain(|value| value.is_finite());
    values.sort_unstable_by(f64::total_cmp);
    for predicate in thresholds(metric, &values, quantiles) {
        let (there, back) = (sets[0].true_pairs_with(sets[1], predicate), sets[1].true_pairs_with(sets[0], predicate));
        let setup = Setup::default();
        let options = setup.join_options(predicate);
        let what = format!("{what}, {metric}, {predicate:?}");
        assert_same(&a.cross_join(&b, &setup, &options).unwrap().pairs, &there, &what);
        assert_same(&b.cross_join(&a, &setup, &options).unwrap().pairs, &back, &format!("{what}, back"));
    }
}

#[test]
fn every_pair_of_two_sets_is_found_on_every_shape() {
    for element in [Element::F32, Element::F16, Element::U8, Element::I8] {
        for (number, &shape) in shapes(element).iter().enumerate() {
            let [a, b] = [(150, 1), (60, 2)].map(|(rows, seed)| make(shape, element, rows, 7, number as u64 + seed));
            for metric in [Metric::L2, Metric::Cosine] {
                check([&a, &b], metric, &[0.0, 0.02, 0.5], &format!("{element} {shape:?}"));
            }
        }
    }
}

#[test]
fn sets_of_every_size_and_range_are_joined() {
    for element in [Element::F32, Element::U8] {
        let of = |rows, seed| make(Shape::Clustered, element, rows, 5, seed);
        for (rows, others) in [(1, 1), (1, 400), (400, 1), (2, 3), (13, 700)] {
            check(
                [&of(rows, 1), &of(others, 2)],
                Metric::L2,
                &[0.0, 0.1, 1.0],
                &format!("{rows} x {others} {element}"),
            );
        }
    }
    let (near, far) =
        (make(Shape::Clustered, Element::F32, 200, 5, 1), make(Shape::Offset(50.0), Element::F32, 90, 5, 2));
    check([&near, &far], Metric::L2, &[0.0, 0.01, 0.3], "other ranges");
    let small = make(Shape::Scaled(1e-3), Element::F32, 90, 5, 3);
    check([&near, &small], Metric::L2, &[0.0, 0.01, 0.3], "another scale");
    let [a, b] = built([&near, &far], Metric::L2, [12, 5]).unwrap();
    let setup = Setup::default();
    let joined = a.cross_join(&b, &setup, &setup.join_options(Predicate::l2(1.0).unwrap())).unwrap();
    assert!(joined.pairs.is_empty(), "nothing is near");
}

/// Checks a cross join of a store with itself. Each row is paired with itself. Each pair of near rows is found in
/// both directions.
#[test]
fn a_set_is_joined_with_itself() {
    let set = make(Shape::Repeated, Element::U8, 300, 6, 4);
    let built = Setup::default().with_buckets(25).build(&set).unwrap();
    let setup = Setup::default();
    let predicate = Predicate::l2(20.0).unwrap();
    let joined = built.cross_join(&built, &setup, &setup.join_options(predicate)).unwrap();
    assert_same(&joined.pairs, &set.true_pairs_with(&set, predicate), "with itself");
    assert_eq!(joined.pairs.len(), 2 * set.true_pairs(predicate).len() + 300);
    assert_eq!(joined.statistics.join.with_rows, Some(300));
}

#[test]
fn the_leading_set_of_every_order_is_the_one_that_reads_less() {
    let [a, b] = [(2_000, 1), (600, 2)].map(|(rows, seed)| make(Shape::Clustered, Element::U8, rows, 8, seed));
    let predicate = Predicate::l2(30.0).unwrap();
    let truth = a.true_pairs_with(&b, predicate);
    let [a, b] = built([&a, &b], Metric::L2, [20, 20]).unwrap();
    let setup = Setup { cache_bytes: Some(16 << 10), ..Setup::default() };
    let (context, sets) = (setup.context(), Sets::between(&a.store, &b.store));
    let chosen = setup.join_options(predicate).prepare(&context, sets, false).unwrap();
    let mut least = u64::MAX;
    for order in Order::ALL {
        for lead in Lead::ALL {
            let (capacity, sizes) = chosen.cache();
            let sort = |tasks: &mut [Task]| sort_tasks(tasks, &sizes.memory, capacity, order, lead);
            let plan = chosen.plan(sets).reordered(order.name(), lead, sort, |_| None);
            let ordered = resume(&context, sets, plan).unwrap();
            let sink = Collect::default();
            let joined = ordered.run(&context, sets, Box::new(sink.clone())).unwrap();
            assert_same(&sink.pairs(), &truth, &format!("{}, {}", order.name(), lead.name()));
            let strategy = &joined.common.strategy;
            assert_eq!((strategy.order.as_deref(), strategy.lead), (Some(order.name()), Some(lead.name())));
            let predicted = joined.common.predicted.unwrap().bytes_read.unwrap();
            assert!(predicted > 0);
            least = least.min(predicted);
        }
    }
    assert_eq!(chosen.explain(sets).bytes_read, least);
}

/// Returns the recall per pair, and the recall per row of the left set and of the right set. Recall per row is the
/// mean fraction of a row's pairs that were found, over rows that have pairs.
fn recalls(found: &[Pair], truth: &[Pair]) -> [f64; 3] {
    let mean = |row: fn(&Pair) -> u64| {
        let mut counts = std::collections::BTreeMap::<u64, [f64; 2]>::new();
        truth.iter().for_each(|pair| counts.entry(row(pair)).or_default()[0] += 1.0);
        found.iter().for_each(|pair| counts.get_mut(&row(pair)).unwrap()[1] += 1.0);
        counts.values().map(|[all, found]| found / all).sum::<f64>() / counts.len().max(1) as f64
    };
    [found.len() as f64 / truth.len() as f64, mean(|pair| pair.0), mean(|pair| pair.1)]
}

/// Checks sets so small that the samples contain all vectors. The recall must then be exact, both promised and
/// reported, for pairs and for the vectors of both sides.
#[test]
fn cross_join_recall_of_pairs_and_both_sides_is_exact() {
    for (element, eps) in [(Element::U8, 60.0), (Element::F32, 0.9)] {
        let [a, b] = [(700, 1), (300, 2)].map(|(rows, seed)| make(Shape::Clustered, element, rows, 12, seed));
        let predicate = Predicate::l2(eps).unwrap();
        let truth = a.true_pairs_with(&b, predicate);
        let [a, b] = built([&a, &b], Metric::L2, [9, 9]).unwrap();
        for recall in [0.5, 0.9] {
            let setup = Setup { rule: Rule::Union, aim: JoinEffort::recall(recall).unwrap(), ..Setup::default() };
            let joined = a.cross_join(&b, &setup, &setup.join_options(predicate)).unwrap();
            let reached = recalls(&joined.pairs, &truth);
            let what = format!("{element} {recall}: {reached:?}");
            assert!(reached.iter().all(|reached| *reached >= recall - 1e-6), "{what}");
            let told = joined.statistics.common.recall.unwrap();
            let told_of = [told.pair, told.per_vector, told.per_right_vector].map(|of| of.unwrap().estimate);
            let is_so = |(told, reached): (&f64, &f64)| (told - reached).abs() < 1e-9;
            assert!(told.kept && told_of.iter().zip(&reached).all(is_so), "{what}, told {told_of:?}");
            assert_eq!(told.sample_pairs, Some(2 * truth.len() as u64), "each pair is seen from both sides");
        }
    }
}

/// Checks sets of which only a part is sampled. The calibrated rule must not find all pairs, and the estimates must
/// be close to the truth.
#[test]
fn sampled_recall_of_a_cross_join_is_close_to_the_truth() {
    let [a, b] = [4_000, 3_000].map(|rows| clump(Element::U8, rows, rows, 8));
    let predicate = Predicate::l2(1.5).unwrap();
    let truth = a.true_pairs_with(&b, predicate);
    let [a, b] = built([&a, &b], Metric::L2, [40, 40]).unwrap();
    let setup = Setup { rule: Rule::Union, aim: JoinEffort::recall(0.9).unwrap(), ..Setup::default() };
    let joined = a.cross_join(&b, &setup, &setup.join_options(predicate)).unwrap();
    let reached = recalls(&joined.pairs, &truth);
    assert!(reached.iter().all(|reached| *reached >= 0.9), "{reached:?}");
    let told = joined.statistics.common.recall.unwrap();
    assert!(told.kept && told.sample_vectors.unwrap() < 14_000 / 2, "{told:?}");
    for (told, reached) in [told.pair, told.per_vector, told.per_right_vector].into_iter().zip(reached) {
        let told = told.unwrap();
        assert!((told.low - 0.02..=told.high + 0.02).contains(&reached), "{told:?} {reached}");
    }
}

/// Joins two sets into a sink for rows. Returns the lines of the result.
fn lines<'a>(
    sets: Sets<'a>,
    predicate: Predicate,
    sink: impl FnOnce(&Target) -> Box<dyn PairSink + 'a>,
) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.csv");
    let context = Setup::default().context();
    let sink = sink(&Target::File { path: path.clone(), force: false });
    let prepared = JoinOptions::exact(predicate).prepare(&context, sets, false).unwrap();
    prepared.run(&context, sets, sink).unwrap();
    std::fs::read_to_string(path).unwrap().lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn cross_join_counts_and_removals_equal_brute_force() {
    let of = |rows, seed| make(Shape::Repeated, Element::U8, rows, 6, seed);
    let names: Vec<String> = (0..80).map(|row| format!("n{row}")).collect();
    let numbers: Vec<i64> = (0..200).map(|row| 1_000 - row).collect();
    let predicate = Predicate::l2(30.0).unwrap();
    for (a, b) in [
        (of(200, 1), of(80, 2)),
        (of(200, 1).with_ids(&numbers), of(80, 2).with_text_ids(&names)),
        (of(200, 1), of(80, 2).with_text_ids(&names)),
        (of(200, 1).with_ids(&numbers), of(80, 2)),
    ] {
        let truth = a.true_pairs_with(&b, predicate);
        let [one, other] = built([&a, &b], Metric::L2, [10, 10]).unwrap();
        let (sets, context) = (Sets::between(&one.store, &other.store), Setup::default().context());
        let id = |row: u64| if a.has_ids() { numbers[row as usize].to_string() } else { row.to_string() };
        let other_id = |row: u64| if b.has_ids() { names[row as usize].clone() } else { row.to_string() };
        let pairs_of = |row: u64| truth.iter().filter(move |pair| pair.0 == row);

        let counts = lines(sets, predicate, |to| Box::new(Counts::create(&context, sets, Some(to), 0).unwrap()));
        let wanted: Vec<String> = (0..200).map(|row| format!("{},{}", id(row), pairs_of(row).count())).collect();
        assert_eq!(counts, wanted);

        let greedy = KeepRule::Greedy;
        let kept =
            lines(sets, predicate, |to| Box::new(Keep::create(&context, sets, greedy, None, Some(to), 0).unwrap()));
        let wanted: Vec<String> = (0..200).filter(|&row| pairs_of(row).count() == 0).map(id).collect();
        assert_eq!(kept, wanted);
        assert!((1..200).contains(&kept.len()), "some go, some stay");

        let removed =
            lines(sets, predicate, |to| Box::new(Keep::create(&context, sets, greedy, Some(to), None, 0).unwrap()));
        let nearest = |row: u64| pairs_of(row).min_by(|x, y| x.2.total_cmp(&y.2).then(x.1.cmp(&y.1)));
        let wanted: Vec<String> = (0..200)
            .filter_map(|row| nearest(row).map(|near| format!("{},{},{:?}", id(row), other_id(near.1), near.2)))
            .collect();
        assert_eq!(removed, wanted);
    }
}

#[test]
fn sets_that_cannot_be_compared_are_refused() {
    let of = |element, dimensions| {
        let set = make(Shape::Clustered, element, 40, dimensions, 1);
        Setup::default().build(&set).unwrap()
    };
    let refused = |a: &Built, b: &Built, predicate| {
        let setup = Setup::default();
        error_of(a.cross_join(b, &setup, &setup.join_options(predicate))).to_string()
    };
    let (bytes, l2) = (of(Element::U8, 6), Predicate::l2(1.0).unwrap());
    let dimensions = refused(&bytes, &of(Element::U8, 7), l2);
    assert!(
        dimensions.contains("6 x u8") && dimensions.contains("7 x u8") && dimensions.contains("one model"),
        "{dimensions}"
    );
    let elements = refused(&bytes, &of(Element::I8, 6), l2);
    assert!(elements.contains("6 x u8") && elements.contains("6 x i8") && elements.contains("convert"), "{elements}");
    let set = make(Shape::Clustered, Element::U8, 40, 6, 1);
    let cosine = Setup::default().with_metric(Metric::Cosine).build(&set).unwrap();
    assert!(refused(&bytes, &cosine, l2).contains("metric cosine"));
}
