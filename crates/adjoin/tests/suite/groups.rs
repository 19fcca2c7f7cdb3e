//! Counts, clusters and rows to keep, compared with simple code on all pairs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use adjoin::{
    Context, Element, FolderKind, IdKind, JoinStatistics, KeepRule, Metric, PairBatch, PairSink, Predicate, Result,
    Store, Target,
    lab::{
        context::RUNTIME_BYTES,
        sink::{Clusters, Counts, Keep},
    },
};
use proptest::prelude::*;

use crate::harness::{Built, Set, Setup, error_of};
use crate::oracle::Pair;

/// Name of a row in a result.
type Name<'a> = &'a dyn Fn(u64) -> String;

/// Folder in which all results per row are written.
pub(crate) struct Results {
    folder: tempfile::TempDir,
}

/// Function that passes the pairs of a join to a sink, and finishes the sink.
type Feed<'a> = &'a dyn Fn(&Context, &Store, Box<dyn PairSink + '_>);

impl Results {
    pub(crate) fn of(built: &Built, setup: &Setup, feed: Feed<'_>) -> Self {
        let results = Self { folder: tempfile::tempdir().unwrap() };
        let (context, store) = (setup.context(), &built.store);
        let target = |name: &str| results.target(name);
        feed(&context, store, Box::new(Counts::create(&context, store, Some(&target("counts")), 0).unwrap()));
        feed(&context, store, Box::new(Clusters::create(&context, store, Some(&target("clusters")), 0).unwrap()));
        for (rule, name) in [(KeepRule::Greedy, "greedy"), (KeepRule::Cluster, "first")] {
            let (removed, kept) = (target(name), target(&format!("{name}-kept")));
            let keep = Keep::create(&context, store, rule, Some(&removed), Some(&kept), 0).unwrap();
            feed(&context, store, Box::new(keep));
        }
        assert_eq!(results.folder.path().read_dir().unwrap().count(), 6, "results alone are left");
        results
    }

    fn target(&self, name: &str) -> Target {
        Target::File { path: self.folder.path().join(name).with_extension("csv"), force: false }
    }

    /// Returns the lines of a result without its header. Checks the header.
    fn lines(&self, name: &str, header: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join(name).with_extension("csv")).unwrap();
        let mut lines = text.lines().map(str::to_owned);
        assert_eq!(lines.next().as_deref(), Some(header), "{name}");
        lines.collect()
    }
}

fn run_into(
    context: &Context,
    store: &Store,
    setup: &Setup,
    predicate: Predicate,
    sink: Box<dyn PairSink + '_>,
) -> Result<JoinStatistics> {
    let options = setup.join_options(predicate);
    let prepared = options.prepare(context, store, false)?;
    prepared.run(context, store, sink)
}

/// Returns for each row its neighbors with their values. Each pair counts for both of its rows.
fn neighbors(pairs: &[Pair]) -> BTreeMap<u64, Vec<(u64, f32)>> {
    let mut neighbors: BTreeMap<u64, Vec<(u64, f32)>> = BTreeMap::new();
    for &(x, y, value) in pairs {
        neighbors.entry(x).or_default().push((y, value));
        neighbors.entry(y).or_default().push((x, value));
    }
    neighbors
}

/// Returns for each row that has a pair the first row of its connected component. Traverses the graph.
fn first_rows(neighbors: &BTreeMap<u64, Vec<(u64, f32)>>) -> BTreeMap<u64, u64> {
    let mut first = BTreeMap::new();
    for &row in neighbors.keys() {
        let mut waiting = vec![row];
        while let Some(reached) = waiting.pop() {
            if let Entry::Vacant(place) = first.entry(reached) {
                place.insert(row);
                waiting.extend(neighbors[&reached].iter().map(|(other, _)| other));
            }
        }
    }
    first
}

/// Returns for each removed row its nearest kept row and the value. Rows are decided in the order of `rows`.
fn greedy(rows: &[u64], neighbors: &BTreeMap<u64, Vec<(u64, f32)>>, metric: Metric) -> BTreeMap<u64, (u64, f32)> {
    let mut gone: BTreeMap<u64, (u64, f32)> = BTreeMap::new();
    let rank = |value: f32| if metric == Metric::L2 { value } else { -value };
    for row in rows {
        let near = neighbors.get(row).into_iter().flatten();
        let kept = near.filter(|(other, _)| other < row && !gone.contains_key(other));
        if let Some(&nearest) = kept.min_by(|a, b| rank(a.1).total_cmp(&rank(b.1)).then(a.0.cmp(&b.0))) {
            gone.insert(*row, nearest);
        }
    }
    gone
}

/// Passes the given pairs to a sink, and finishes the sink.
pub(crate) fn feed_with(pairs: &[Pair], mut sink: Box<dyn PairSink + '_>) {
    for some in pairs.chunks(1_000) {
        let mut batch = PairBatch::new(IdKind::None);
        for &(left, right, value) in some {
            batch.left_rows.push(left);
            batch.right_rows.push(right);
            batch.values.push(value);
        }
        sink.accept(&batch).unwrap();
    }
    sink.finish().unwrap();
}

/// Compares all results with the ones that follow from the true pairs of `rows`. `value` returns the value of any two
/// rows.
pub(crate) fn check(
    results: &Results,
    metric: Metric,
    rows: &[u64],
    pairs: &[Pair],
    name: Name<'_>,
    value: &dyn Fn(u64, u64) -> f32,
) {
    let column = if metric == Metric::L2 { "distance" } else { "similarity" };
    let near = neighbors(pairs);
    let counts = rows.iter().map(|row| format!("{},{}", name(*row), near.get(row).map_or(0, Vec::len)));
    assert_eq!(results.lines("counts", "id,count"), counts.collect::<Vec<_>>());

    let first = first_rows(&near);
    let mut clusters: Vec<(u64, u64)> = first.iter().map(|(&row, &first)| (first, row)).collect();
    clusters.sort_unstable();
    let lines = clusters.iter().map(|&(first, row)| format!("{},{}", name(row), name(first)));
    assert_eq!(results.lines("clusters", "id,cluster"), lines.collect::<Vec<_>>());

    let gone = greedy(rows, &near, metric);
    let line = |row: u64, kept: u64, value: f32| format!("{},{},{value:?}", name(row), name(kept));
    let lines = gone.iter().map(|(&row, &(kept, value))| line(row, kept, value));
    assert_eq!(values_as_f32(results.lines("greedy", &format!("id,kept_id,{column}"))), lines.collect::<Vec<_>>());
    let stay = rows.iter().filter(|row| !gone.contains_key(row)).map(|&row| name(row));
    assert_eq!(results.lines("greedy-kept", "id"), stay.collect::<Vec<_>>());

    let others = clusters.iter().filter(|(first, row)| first != row);
    let lines = others.map(|&(first, row)| line(row, first, value(first, row)));
    assert_eq!(values_as_f32(results.lines("first", &format!("id,kept_id,{column}"))), lines.collect::<Vec<_>>());
    let stay = rows.iter().filter(|row| first.get(row).is_none_or(|first| first == *row)).map(|&row| name(row));
    assert_eq!(results.lines("first-kept", "id"), stay.collect::<Vec<_>>());
}

/// Formats the last field of each line, a value, as Rust formats an f32.
fn values_as_f32(lines: Vec<String>) -> Vec<String> {
    let again = |line: String| {
        let (before, value) = line.rsplit_once(',').unwrap();
        format!("{before},{:?}", value.parse::<f32>().unwrap())
    };
    lines.into_iter().map(again).collect()
}

/// How the rows are named.
#[derive(Debug, Clone, Copy)]
enum Naming {
    Numbers,
    Integers,
    Texts,
}

impl Naming {
    fn name(self, row: u64) -> String {
        match self {
            Self::Numbers => row.to_string(),
            Self::Integers => (100 - 7 * row as i64).to_string(),
            Self::Texts => format!("é{}", 1_000_000 - row * row),
        }
    }

    fn give(self, set: Set) -> Set {
        let rows = 0..set.rows();
        match self {
            Self::Numbers => set,
            Self::Integers => set.with_ids(&rows.map(|row| 100 - 7 * row as i64).collect::<Vec<_>>()),
            Self::Texts => set.with_text_ids(&rows.map(|row| self.name(row)).collect::<Vec<_>>()),
        }
    }
}

/// Builds a set in which some rows are missing, and compares all results.
fn check_set(set: Set, naming: Naming, missing: &[u64], setup: &Setup, predicate: Predicate) {
    let setup = setup.clone().with_metric(predicate.metric()).skipping_bad_rows();
    let there = |row: &u64| !missing.contains(row);
    let rows: Vec<u64> = (0..set.rows()).filter(there).collect();
    let pairs: Vec<Pair> = set.true_pairs(predicate).into_iter().filter(|(x, y, _)| there(x) && there(y)).collect();
    let oracle = set.oracle(predicate.metric());
    let built = setup.build(&naming.give(set).with_missing(missing)).unwrap();
    let value = |x: u64, y: u64| oracle.value(x, y);
    let feed = |context: &Context, store: &Store, sink: Box<dyn PairSink + '_>| {
        run_into(context, store, &setup, predicate, sink).unwrap();
    };
    let results = Results::of(&built, &setup, &feed);
    check(&results, predicate.metric(), &rows, &pairs, &|row| naming.name(row), &value);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn groups_equal_brute_force(
        values in proptest::collection::vec(1..60u8, 2 * 40..2 * 120),
        naming in prop_oneof![Just(Naming::Numbers), Just(Naming::Integers), Just(Naming::Texts)],
        missing in proptest::collection::btree_set(0..40u64, 0..6),
        (eps, similarity, cosine) in (0.0..6.0f64, 0.99..1.0f64, any::<bool>()),
    ) {
        let values: Vec<f64> = values[..values.len() / 2 * 2].iter().map(|&value| f64::from(value)).collect();
        let set = Set::of(Element::F32, 2, &values);
        let predicate = if cosine { Predicate::cosine(similarity) } else { Predicate::l2(eps) };
        let missing: Vec<u64> = missing.into_iter().collect();
        check_set(set, naming, &missing, &Setup::default().with_buckets(7), predicate.unwrap());
    }
}

/// Checks a chain: a is near b, and b is near c, but a is not near c.
#[test]
fn a_chain_removes_only_rows_near_a_kept_row() {
    let set = Set::of(Element::F32, 1, &[0.0, 1.0, 2.0, 3.0, 4.0, 9.0]);
    let setup = Setup::default();
    let built = setup.build(&set).unwrap();
    let pairs = set.true_pairs(Predicate::l2(1.0).unwrap());
    let results = Results::of(&built, &setup, &|_, _, sink| feed_with(&pairs, sink));
    assert_eq!(results.lines("greedy", "id,kept_id,distance"), ["1,0,1.0", "3,2,1.0"]);
    assert_eq!(results.lines("greedy-kept", "id"), ["0", "2", "4", "5"]);
    assert_eq!(results.lines("first", "id,kept_id,distance"), ["1,0,1.0", "2,0,2.0", "3,0,3.0", "4,0,4.0"]);
    assert_eq!(results.lines("first-kept", "id"), ["0", "5"]);
}

/// Checks that pairs that do not fit in memory are sorted on disk, and that the budget is kept.
#[test]
fn pairs_that_do_not_fit_are_sorted_on_disk() {
    let values: Vec<f64> = (0..1_500).map(|row| f64::from(row % 3)).collect();
    let set = Set::of(Element::U8, 1, &values);
    let setup = Setup { memory: 99 << 20, ..Setup::default() };
    let built = setup.build(&set).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let context = setup.context();
    let target = Target::File { path: folder.path().join("gone.csv"), force: false };
    let keep = Keep::create(&context, &built.store, KeepRule::Greedy, Some(&target), None, 0).unwrap();
    let statistics = run_into(&context, &built.store, &setup, Predicate::l2(0.0).unwrap(), Box::new(keep)).unwrap();
    assert_eq!(statistics.join.pairs, 3 * 500 * 499 / 2);
    assert!(statistics.common.io.spill_bytes.unwrap() > 4 << 20, "{:?}", statistics.common.io);
    let lines = std::fs::read_to_string(folder.path().join("gone.csv")).unwrap();
    let wanted = (3..1_500).map(|row| format!("{row},{},0.0", row % 3));
    assert!(lines.lines().skip(1).map(str::to_owned).eq(wanted));
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

/// Checks counts near each multiple of 256, the number of values of a byte.
#[test]
fn counts_beyond_a_byte_are_exact() {
    let wanted = [0, 1, 255, 256, 257, 511, 512, 100_000];
    let last = wanted.len() as u64;
    let mut pairs: Vec<Pair> = Vec::new();
    for round in 0..*wanted.iter().max().unwrap() {
        pairs.extend((0..).zip(wanted).filter(|&(_, count)| round < count).map(|(row, _)| (row, last, 0.0)));
    }
    for naming in [Naming::Numbers, Naming::Integers, Naming::Texts] {
        let set = naming.give(Set::of(Element::U8, 1, &[1.0; 11])).with_missing(&[9]);
        let setup = Setup::default().skipping_bad_rows();
        let built = setup.build(&set).unwrap();
        let results = Results::of(&built, &setup, &|_, _, sink| feed_with(&pairs, sink));
        let counts = (0..).zip(wanted).chain([(last, pairs.len() as u64), (10, 0)]);
        let lines = counts.map(|(row, count)| format!("{},{count}", naming.name(row)));
        assert_eq!(results.lines("counts", "id,count"), lines.collect::<Vec<_>>(), "{naming:?}");
    }
}

/// Checks that the memory for counts does not grow with the number of neighbors, neither of all rows nor of one row.
#[test]
fn counts_that_do_not_fit_are_sorted_on_disk() {
    let (rows, each, of_one) = (40_000u64, 300, 20_000_000u64);
    let set = Set::of(Element::U8, 1, &vec![1.0; rows as usize]);
    let setup = Setup { memory: 35 << 20, ..Setup::default() };
    let built = setup.build(&set).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let context = setup.context();
    let target = Target::File { path: folder.path().join("counts.csv"), force: false };
    let before = context.budget().free();
    let mut counts = Box::new(Counts::create(&context, &built.store, Some(&target), 0).unwrap());
    let held = before - context.budget().free();
    assert!(held > rows && held < rows + (6 << 20), "{held}");
    let batch = |left: Vec<u64>, right: Vec<u64>| {
        let values = vec![0.0; left.len()];
        PairBatch { left_rows: left, right_rows: right, values, ..PairBatch::new(IdKind::None) }
    };
    let all = batch((0..rows / 2).collect(), (rows / 2..rows).collect());
    (0..each).for_each(|_| counts.accept(&all).unwrap());
    let one = batch(vec![7; 10_000], vec![7; 10_000]);
    (0..of_one / 20_000).for_each(|_| counts.accept(&one).unwrap());
    let written = counts.finish().unwrap();
    assert!(written.spill_bytes > rows * 11, "{written:?}");
    let lines = std::fs::read_to_string(folder.path().join("counts.csv")).unwrap();
    let wanted = (0..rows).map(|row| format!("{row},{}", each + if row == 7 { of_one } else { 0 }));
    assert!(lines.lines().skip(1).map(str::to_owned).eq(wanted));
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

/// Checks that a join is refused at the start if the budget is too small for a few bytes per row.
#[test]
fn results_refuse_budgets_too_small_for_all_rows() {
    let set = Set::of(Element::U8, 1, &vec![1.0; 100_000]);
    let setup = Setup::default();
    let built = setup.build(&set).unwrap();
    let context = Context::default().with_memory(RUNTIME_BYTES + (2 << 20));
    let error = error_of(Clusters::create(&context, &built.store, None, 0));
    assert!(error.to_string().starts_with("finding clusters needs at least"), "{error}");
    assert_eq!(FolderKind::of(&context, &built.path()).unwrap(), Some(FolderKind::Store));
}
