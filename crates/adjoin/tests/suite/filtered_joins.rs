//! Filtered joins. Do they return the pairs of plain loops that pass the filter, and do they keep their promises?

use std::collections::HashSet;

use adjoin::{
    Condition, JoinEffort, JoinOptions, Metric, Predicate, Result, Store,
    lab::{
        join::{JoinSide, RowFilter, Sets},
        plan::Rule,
        sql::PairCondition,
    },
};

use crate::filters::{CASES, Case, DIMENSIONS, Data, NAMES, Passes, Row};
use crate::harness::{Built, Joined, Setup, assert_same};
use crate::oracle::Pair;
use crate::search::values;

/// Returns the rows of a store that pass a filter, or `None` if there is no filter.
pub(crate) fn filter(setup: &Setup, store: &Store, condition: Option<&str>) -> Result<Option<RowFilter>> {
    condition.map(|text| RowFilter::new(&setup.context(), store, &Condition::parse(text)?)).transpose()
}

/// Joins the rows of a store that pass a filter.
pub(crate) fn join(setup: &Setup, store: &Store, condition: &str, options: &JoinOptions) -> Joined {
    let filter = filter(setup, store, Some(condition)).unwrap();
    Built::collect(&setup.context(), JoinSide::new(store, filter.as_ref()).into(), options).unwrap()
}

/// Returns the pairs of which both rows pass.
pub(crate) fn only(all: &[Pair], data: &Data, passes: Passes) -> Vec<Pair> {
    let passes = |row: u64| passes(&data.rows[row as usize]);
    all.iter().copied().filter(|&(left, right, _)| passes(left) && passes(right)).collect()
}

pub(crate) fn predicate(metric: Metric) -> Predicate {
    match metric {
        Metric::L2 => Predicate::L2 { eps: 45.0 },
        _ => Predicate::Cosine { min_similarity: 0.995 },
    }
}

#[test]
fn filtered_joins_find_all_pairs_for_any_filter() {
    for metric in [Metric::L2, Metric::Cosine] {
        let data = Data::new(values(2_500, DIMENSIONS, 1), 1);
        let setup = Setup::default().with_metric(metric).with_buckets(60);
        let store = data.store("store", &setup, &NAMES).unwrap();
        let all = data.set().true_pairs(predicate(metric));
        assert!(all.len() > 5_000, "{} pairs", all.len());
        for (condition, passes) in CASES {
            let truth = only(&all, &data, passes);
            let count = data.rows.iter().filter(|row| passes(row)).count() as u64;
            let joined = join(&setup, &store, condition, &setup.join_options(predicate(metric)));
            let what = format!("{condition}, {metric}");
            assert_same(&joined.pairs, &truth, &what);
            let counts = joined.statistics.join;
            assert_eq!(counts.passing_rows, Some(count), "{what}");
            assert!(counts.candidate_pairs <= count * count.saturating_sub(1) / 2, "{what}: {counts:?}");
        }
    }
}

#[test]
fn buckets_without_filtered_rows_are_not_read() {
    let data = Data::new(values(2_000, DIMENSIONS, 2), 2);
    let setup = Setup::default().with_buckets(200);
    let store = data.store("store", &setup, &NAMES).unwrap();
    let options = setup.join_options(predicate(Metric::L2));
    let of = |condition: &str| join(&setup, &store, condition, &options).statistics;
    let whole = of("pick >= 0");
    assert_eq!((whole.join.skipped_buckets, whole.join.skipped_bytes), (Some(0), Some(0)));
    let mut before = whole.common.io.bytes_requested.unwrap();
    for pick in [100, 10, 1] {
        let statistics = of(&format!("pick < {pick}"));
        let read = statistics.common.io.bytes_requested.unwrap();
        assert!(read < before, "pick < {pick}: {read} of {before} bytes");
        let skipped = statistics.join.skipped_buckets.unwrap();
        let rows = statistics.join.passing_rows.unwrap();
        assert!(rows > 0 && skipped + rows >= u64::from(store.manifest().buckets), "{skipped} skipped, {rows} rows");
        before = read;
    }
    let none = of("pick < 0");
    assert_eq!((none.join.pairs, none.common.io.bytes_requested), (0, Some(0)));
    assert_eq!(none.join.skipped_buckets, Some(store.manifest().buckets.into()));
    let unfiltered = Built::collect(&setup.context(), (&store).into(), &options).unwrap().statistics.join;
    assert_eq!((unfiltered.passing_rows, unfiltered.skipped_buckets, unfiltered.skipped_bytes), (None, None, None));
}

#[test]
fn each_set_of_a_cross_join_has_its_own_filter() {
    let (a, b) = (Data::new(values(900, DIMENSIONS, 3), 3), Data::new(values(400, DIMENSIONS, 4), 4));
    let setup = Setup::default().with_buckets(25);
    let stores = [a.store("a", &setup, &NAMES).unwrap(), b.store("b", &setup, &["lang", "pick"]).unwrap()];
    let options = setup.join_options(predicate(Metric::L2));
    let all = a.set().true_pairs_with(&b.set(), predicate(Metric::L2));
    let any: Passes = |_| true;
    let cases: [[Option<Case>; 2]; 4] = [
        [Some(("near", |row| row.near)), None],
        [None, Some(("lang = 'en'", |row| row.lang == Some("en")))],
        [Some(("pick < 100", |row| row.pick < 100)), Some(("pick % 2 = 0", |row| row.pick % 2 == 0))],
        [Some(("pick < 0", |_| false)), Some(("pick % 2 = 0", |row| row.pick % 2 == 0))],
    ];
    for [of_a, of_b] in cases {
        let conditions = [of_a.map(|of| of.0), of_b.map(|of| of.0)];
        let filters = [0, 1].map(|k| filter(&setup, &stores[k], conditions[k]).unwrap());
        let [left, right] = [0, 1].map(|k| JoinSide::new(&stores[k], filters[k].as_ref()));
        let joined = Built::collect(&setup.context(), Sets::between(left, right), &options).unwrap();
        let passes = [of_a, of_b].map(|of| of.map_or(any, |of| of.1));
        let is_left = |pair: &Pair| passes[0](&a.rows[pair.0 as usize]) && passes[1](&b.rows[pair.1 as usize]);
        let truth: Vec<Pair> = all.iter().copied().filter(is_left).collect();
        assert_same(&joined.pairs, &truth, &format!("{conditions:?}"));
        let counts = joined.statistics.join;
        assert_eq!([counts.passing_rows, counts.with_passing_rows], [left.passing_rows(), right.passing_rows()]);
    }
}

/// Returns the recall per pair and the recall per row. Recall per row is the mean fraction of a row's pairs that were
/// found, over rows that have pairs.
fn recalls(found: &[Pair], truth: &[Pair], rows: usize) -> [f64; 2] {
    let counts = |pairs: &[Pair]| {
        let mut counts = vec![0.0; rows];
        pairs.iter().for_each(|pair| [pair.0, pair.1].iter().for_each(|&row| counts[row as usize] += 1.0));
        counts
    };
    let shares: Vec<f64> =
        counts(found).iter().zip(counts(truth)).filter(|(_, all)| *all > 0.0).map(|(found, all)| found / all).collect();
    [found.len() as f64 / truth.len() as f64, shares.iter().sum::<f64>() / shares.len() as f64]
}

/// A pair filter as a plain function of the left and the right row.
type Counts = fn(&Row, &Row) -> bool;

const PAIR_CASES: [(&str, Counts); 6] = [
    ("left.lang <> right.lang", |left, right| left.lang.zip(right.lang).is_some_and(|(left, right)| left != right)),
    ("left.lang = right.lang", |left, right| left.lang.zip(right.lang).is_some_and(|(left, right)| left == right)),
    ("left.year < right.year", |left, right| left.year.zip(right.year).is_some_and(|(left, right)| left < right)),
    ("not (left.pick <= right.pick or left.code = right.code)", |left, right| {
        left.pick > right.pick && left.code != right.code
    }),
    ("left.is_new <> right.is_new or left.score > right.score", |left, right| {
        left.is_new.zip(right.is_new).is_some_and(|(left, right)| left != right)
            || left.score.zip(right.score).is_some_and(|(left, right)| left > right)
    }),
    ("right.pick + 500 < left.pick and left.near", |left, right| right.pick + 500 < left.pick && left.near),
];

/// Joins with a pair filter.
fn join_pairs(setup: &Setup, sets: Sets<'_>, condition: &str, options: &JoinOptions) -> Joined {
    let condition = PairCondition::parse(condition).unwrap();
    let pairs = sets.pairs_that_meet(&setup.context(), condition).unwrap();
    Built::collect(&setup.context(), sets.with_pairs(Some(&pairs)), options).unwrap()
}

#[test]
fn pair_filters_find_exactly_the_matching_pairs() {
    let (data, other) = (Data::new(values(1_500, DIMENSIONS, 5), 5), Data::new(values(500, DIMENSIONS, 6), 6));
    let setup = Setup::default().with_buckets(40);
    let stores = [data.store("a", &setup, &NAMES).unwrap(), other.store("b", &setup, &NAMES).unwrap()];
    let options = setup.join_options(predicate(Metric::L2));
    let (within, between) =
        (data.set().true_pairs(predicate(Metric::L2)), data.set().true_pairs_with(&other.set(), predicate(Metric::L2)));
    let filter = filter(&setup, &stores[0], Some("pick < 700")).unwrap();
    let passes: Passes = |row| row.pick < 700;
    for (condition, counts) in PAIR_CASES {
        let of = |all: &[Pair], others: &[Row]| -> Vec<Pair> {
            let counts = |pair: &Pair| counts(&data.rows[pair.0 as usize], &others[pair.1 as usize]);
            all.iter().copied().filter(counts).collect()
        };
        let truth = of(&within, &data.rows);
        assert!(truth.len() > 30 && truth.len() < within.len(), "{condition}: {} pairs", truth.len());
        let joined = join_pairs(&setup, (&stores[0]).into(), condition, &options);
        assert_same(&joined.pairs, &truth, condition);
        let among = JoinSide::new(&stores[0], filter.as_ref());
        let joined = join_pairs(&setup, among.into(), condition, &options);
        assert_same(&joined.pairs, &only(&truth, &data, passes), &format!("{condition}, of rows that pass"));
        let truth: Vec<Pair> =
            of(&between, &other.rows).into_iter().filter(|pair| passes(&data.rows[pair.0 as usize])).collect();
        let joined = join_pairs(&setup, Sets::between(among, &stores[1]), condition, &options);
        assert_same(&joined.pairs, &truth, &format!("{condition}, of two sets"));
    }
}

#[test]
fn pair_filters_accept_new_rows_on_either_side() {
    let (data, more) = (Data::new(values(900, DIMENSIONS, 5), 5), Data::new(values(300, DIMENSIONS, 6), 6));
    let setup = Setup::default().with_buckets(30);
    let stores = [data.store("a", &setup, &NAMES).unwrap(), more.store("b", &setup, &NAMES).unwrap()];
    let options = setup.join_options(predicate(Metric::L2));
    let (first_new, rows) = (data.rows.len() as u64, [&data.rows[..], &more.rows].concat());
    let with_old = data.set().true_pairs_with(&more.set(), predicate(Metric::L2));
    let with_old = with_old.into_iter().map(|(left, right, value)| (left, first_new + right, value));
    let among_new = more.set().true_pairs(predicate(Metric::L2)).into_iter();
    let among_new = among_new.map(|(left, right, value)| (first_new + left, first_new + right, value));
    let all: Vec<Pair> = with_old.chain(among_new).collect();
    for (condition, counts) in PAIR_CASES {
        let counts = |pair: &&Pair| counts(&rows[pair.0 as usize], &rows[pair.1 as usize]);
        let truth: Vec<Pair> = all.iter().filter(counts).copied().collect();
        assert!(truth.iter().any(|pair| pair.0 >= first_new) && truth.len() < all.len(), "{condition}");
        let joined = join_pairs(&setup, Sets::grown(&stores[0], &stores[1]), condition, &options);
        assert_same(&joined.pairs, &truth, condition);
    }
}

/// Checks sets so small that the samples contain all vectors. The recall must then be exact, both promised and
/// reported.
#[test]
fn the_recall_of_filtered_joins_counts_only_filtered_pairs() {
    let data = Data::new(values(1_400, DIMENSIONS, 7), 7);
    let setup = Setup::default().with_buckets(150);
    let store = data.store("store", &setup, &NAMES).unwrap();
    let all = data.set().true_pairs(predicate(Metric::L2));
    let filter = filter(&setup, &store, Some("pick % 2 = 0")).unwrap();
    let passing = only(&all, &data, |row| row.pick % 2 == 0);
    let (condition, counts) = PAIR_CASES[2];
    let pairs = Sets::from(&store).pairs_that_meet(&setup.context(), PairCondition::parse(condition).unwrap()).unwrap();
    let among = JoinSide::new(&store, filter.as_ref());
    let counted = |all: &[Pair]| -> Vec<Pair> {
        let counts = |pair: &Pair| counts(&data.rows[pair.0 as usize], &data.rows[pair.1 as usize]);
        all.iter().copied().filter(counts).collect()
    };
    let cases: [(Sets<'_>, Vec<Pair>); 3] = [
        (among.into(), passing.clone()),
        (Sets::from(&store).with_pairs(Some(&pairs)), counted(&all)),
        (Sets::from(among).with_pairs(Some(&pairs)), counted(&passing)),
    ];
    for (number, (sets, truth)) in cases.iter().enumerate() {
        let ends: HashSet<(u64, u64)> = truth.iter().map(|pair| (pair.0, pair.1)).collect();
        for recall in [0.5, 0.8, 0.9] {
            let setup = Setup { rule: Rule::Union, aim: JoinEffort::recall(recall).unwrap(), ..setup.clone() };
            let options = setup.join_options(predicate(Metric::L2));
            let joined = Built::collect(&setup.context(), *sets, &options).unwrap();
            let reached = recalls(&joined.pairs, truth, data.rows.len());
            let what = format!("case {number}, {recall}: {reached:?}");
            assert!(joined.pairs.iter().all(|pair| ends.contains(&(pair.0, pair.1))), "{what}: no other pairs");
            assert!(reached.iter().all(|reached| *reached >= recall - 1e-6), "{what}");
            let told = joined.statistics.common.recall.unwrap();
            let told_of = [told.pair, told.per_vector].map(|of| of.unwrap().estimate);
            let is_so = |(told, reached): (&f64, &f64)| (told - reached).abs() < 1e-9;
            assert!(told.kept && told_of.iter().zip(&reached).all(is_so), "{what}, told {told_of:?}");
        }
    }
}

/// Checks a set of which a part is sampled. Most rows do not pass the filter and lie elsewhere. They must not affect
/// the recall.
#[test]
fn the_recall_of_filtered_rows_is_sampled_from_them() {
    let data = Data::new(values(16_000, DIMENSIONS, 8), 8);
    let setup =
        Setup { rule: Rule::Union, aim: JoinEffort::recall(0.9).unwrap(), ..Setup::default() }.with_buckets(300);
    let store = data.store("store", &setup, &NAMES).unwrap();
    let predicate = Predicate::L2 { eps: 22.0 };
    let all = data.set().true_pairs(predicate);
    for (condition, passes) in [CASES[4], CASES[7]] {
        let truth = only(&all, &data, passes);
        let joined = join(&setup, &store, condition, &setup.join_options(predicate));
        let reached = recalls(&joined.pairs, &truth, data.rows.len());
        let told = joined.statistics.common.recall.unwrap();
        let what = format!("{condition}: {reached:?}, told {told:?}");
        assert!(reached.iter().all(|reached| *reached >= 0.9) && told.kept, "{what}");
        assert!(told.sample_vectors.unwrap() < joined.statistics.join.passing_rows.unwrap() / 2, "{what}");
        let near = |told: adjoin::Interval, reached: f64| (told.low - 0.02..=told.high + 0.02).contains(&reached);
        assert!(near(told.pair.unwrap(), reached[0]) && near(told.per_vector.unwrap(), reached[1]), "{what}");
    }
}
