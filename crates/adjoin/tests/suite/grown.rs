//! Joins of new rows with a store. Do they find the pairs with new rows that a join of all rows finds, and do they
//! keep their promises?

use adjoin::{
    BuildOptions, Collect, Conditions, Element, Job, JoinEffort, JoinOptions, JoinStatistics, KeepRule, Metric, Output,
    Predicate, SourceOptions, Target, lab::plan::Rule,
};

use crate::datasets::{Shape, make, shapes};
use crate::harness::{Built, Set, Setup, assert_same};
use crate::model::thresholds;
use crate::oracle::Pair;

/// Builds a store of the rows before `first_new`, and a store of the other rows.
fn built(set: &Set, first_new: u64, metric: Metric) -> Option<[Built; 2]> {
    let setup = Setup::default().with_metric(metric).skipping_bad_rows();
    let [old, new] = set.split_at(first_new);
    let build = |set: &Set, rows: u64| setup.clone().with_buckets(1 + (set.rows() / rows) as u32).build(set).ok();
    Some([build(&old, 12)?, build(&new, 5)?])
}

fn run([old, new]: &[Built; 2], setup: &Setup, join: JoinOptions, output: Output<'_>) -> JoinStatistics {
    let [inputs, new] = [old, new].map(|built| vec![built.path().to_str().unwrap().to_owned()]);
    let (source, build, conditions) = (SourceOptions::default(), BuildOptions::default(), Conditions::default());
    let job = Job {
        inputs: &inputs,
        with: &[],
        new: &new,
        source,
        build,
        conditions,
        columns: &[],
        join,
        output,
        yes: false,
        resume: None,
    };
    let context = setup.context();
    let opened = job.open(&context).unwrap();
    job.run(&context, &opened).unwrap()
}

fn join(stores: &[Built; 2], setup: &Setup, predicate: Predicate) -> (Vec<Pair>, JoinStatistics) {
    let sink = Collect::default();
    let collect = |_| Ok(Box::new(sink.clone()) as _);
    let statistics = run(stores, setup, setup.join_options(predicate), Output::Sink(&collect));
    let pairs = sink.pairs();
    assert_eq!(statistics.join.pairs, pairs.len() as u64, "the statistics count what the sink got");
    (pairs, statistics)
}

/// Returns the lines of a result per row.
fn lines(
    stores: &[Built; 2],
    predicate: Predicate,
    output: impl FnOnce(Option<Target>) -> Output<'static>,
) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.csv");
    let target = Target::File { path: path.clone(), force: false };
    run(stores, &Setup::default(), JoinOptions::exact(predicate), output(Some(target)));
    std::fs::read_to_string(path).unwrap().lines().skip(1).map(str::to_owned).collect()
}

/// Returns the pairs with a new row.
fn of_new(pairs: Vec<Pair>, first_new: u64) -> Vec<Pair> {
    pairs.into_iter().filter(|pair| pair.1 >= first_new).collect()
}

#[test]
fn every_pair_of_a_new_row_is_found_on_every_shape() {
    for element in [Element::F32, Element::F16, Element::U8, Element::I8] {
        for (number, &shape) in shapes(element).iter().enumerate() {
            let set = make(shape, element, 160, 7, number as u64);
            for metric in [Metric::L2, Metric::Cosine] {
                let first_new = [150, 100, 1][number % 3];
                let Some(stores) = built(&set, first_new, metric) else { continue };
                let every = match metric {
                    Metric::L2 => Predicate::L2 { eps: f64::MAX.sqrt() },
                    _ => Predicate::Cosine { min_similarity: -1.0 },
                };
                let square =
                    |value: f32| if metric == Metric::L2 { f64::from(value).powi(2) } else { f64::from(value) };
                let mut values: Vec<f64> = set.true_pairs(every).iter().map(|pair| square(pair.2)).collect();
                values.retain(|value| value.is_finite());
                values.sort_unstable_by(f64::total_cmp);
                for predicate in thresholds(metric, &values, &[0.02, 0.5]) {
                    let what = format!("{element} {shape:?}, {metric}, {predicate:?}");
                    let (found, told) = join(&stores, &Setup::default(), predicate);
                    assert_same(&found, &of_new(set.true_pairs(predicate), first_new), &what);
                    assert_eq!(told.join.new_rows, Some(stores[1].store.manifest().rows), "{what}");
                }
            }
        }
    }
}

/// Checks sets so small that the samples contain all vectors. The promise must then be kept exactly.
#[test]
fn the_recall_of_pairs_with_new_rows_is_exact_if_fully_sampled() {
    for (element, eps) in [(Element::U8, 60.0), (Element::F32, 0.9)] {
        let set = make(Shape::Clustered, element, 900, 12, 1);
        let predicate = Predicate::l2(eps).unwrap();
        let truth = of_new(set.true_pairs(predicate), 600);
        let stores = built(&set, 600, Metric::L2).unwrap();
        let setup = Setup { rule: Rule::Union, aim: JoinEffort::recall(0.8).unwrap(), ..Setup::default() };
        let (found, told) = join(&stores, &setup, predicate);
        let (told, reached) = (told.common.recall.unwrap(), found.len() as f64 / truth.len() as f64);
        assert!(truth.iter().any(|pair| pair.0 >= 600) && truth.iter().any(|pair| pair.0 < 600));
        assert!(told.kept && reached >= 0.8, "{element}: {reached}, {told:?}");
        assert!((told.pair.unwrap().estimate - reached).abs() < 1e-9, "{element}: {told:?}");
    }
}

#[test]
fn counts_and_removals_of_new_rows_equal_those_of_one_set() {
    let names: Vec<String> = (0..260).map(|row| format!("n{row}")).collect();
    let numbers: Vec<i64> = (0..260).map(|row| 1_000 - row).collect();
    let plain = make(Shape::Repeated, Element::U8, 260, 6, 1);
    let predicate = Predicate::l2(30.0).unwrap();
    let (all, first_new) = (plain.true_pairs(predicate), 200);
    for set in [plain.clone(), plain.clone().with_ids(&numbers), plain.clone().with_text_ids(&names)] {
        let stores = built(&set, first_new, Metric::L2).unwrap();
        let is_named = stores[0].store.manifest().ids == adjoin::IdKind::Utf8;
        let id = |row: u64| match (set.has_ids(), is_named) {
            (false, _) => row.to_string(),
            (true, false) => numbers[row as usize].to_string(),
            (true, true) => names[row as usize].clone(),
        };
        let counts = lines(&stores, predicate, Output::Counts);
        let pairs_of = |row: u64| all.iter().filter(move |pair| pair.0 == row || pair.1 == row).count();
        let wanted: Vec<String> = (first_new..260).map(|row| format!("{},{}", id(row), pairs_of(row))).collect();
        assert_eq!(counts, wanted);

        let rule = KeepRule::Greedy;
        let kept = lines(&stores, predicate, |kept| Output::Keep { rule, removed: None, kept });
        let mut gone = Vec::new();
        for row in first_new..260 {
            if all.iter().any(|pair| pair.1 == row && !gone.contains(&pair.0)) {
                gone.push(row);
            }
        }
        let wanted: Vec<String> = (first_new..260).filter(|row| !gone.contains(row)).map(id).collect();
        assert_eq!(kept, wanted);
        let removed = lines(&stores, predicate, |removed| Output::Keep { rule, removed, kept: None });
        let nearest = |row: u64| {
            let near = all.iter().filter(|pair| pair.1 == row && !gone.contains(&pair.0));
            near.min_by(|x, y| x.2.total_cmp(&y.2).then(x.0.cmp(&y.0))).unwrap()
        };
        let line = |row: &u64| format!("{},{},{:?}", id(*row), id(nearest(*row).0), nearest(*row).2);
        assert_eq!(removed, gone.iter().map(line).collect::<Vec<_>>());
        assert!((1..60).contains(&gone.len()), "some go, some stay");
    }
}
