//! Joins in parts. Any number of parts, run in any order and more than once, must give the result of one machine.
//! Parts that are missing, damaged or of another plan must be refused. A crash must leave nothing half-written.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{
    Choice, CommonStatistics, Element, Error, Job, JoinEffort, JoinOptions, JoinStatistics, KeepRule, PartOptions,
    PartPlan, Predicate, Random, Result, ResultKind, Store, Target,
    device::{Device, FaultPlan, Keep, Pieces, SimulatedDevice},
    lab::plan::Rule,
};

use crate::datasets::{Shape, make};
use crate::harness::{Built, Set, Setup, error_of};

/// Number of operations at which the run crashes.
const MOMENTS: u64 = 40;

/// Returns rows in a few dense regions. The order of their ids is not the order of the rows.
fn set(random: &mut Random, rows: u64) -> Set {
    let values: Vec<f64> = (0..rows)
        .flat_map(|_| {
            let region = random.below(5) as f64;
            [region, -region, 2.0 * region, 0.5].map(|center| center + random.uniform() * 0.4)
        })
        .collect();
    let set = Set::of(Element::F32, 4, &values);
    match random.below(3) {
        0 => set,
        1 => set.with_ids(&Vec::from_iter((0..rows as i64).map(|row| 7 * rows as i64 - row))),
        _ => set.with_text_ids(&Vec::from_iter((0..rows).map(|row| format!("id of {}", 1_000 - row)))),
    }
}

struct Parts<'a> {
    built: &'a Built,
    setup: &'a Setup,
    join: JoinOptions,
    folder: &'a Path,
}

impl Parts<'_> {
    fn plan(&self, parts: u32, result: ResultKind) -> Result<PartPlan> {
        let options = PartOptions { join: self.join, parts, result };
        let path = self.folder.join("plan");
        PartPlan::create(&self.setup.context(), &self.built.path(), &options, &path, true).map(|(plan, _)| plan)
    }

    fn run(&self, plan: &PartPlan, number: u32, force: bool) -> Result<bool> {
        let done = plan.run_part(&self.setup.context(), &self.built.store, number, &self.parts(), force)?;
        Ok(done.is_some())
    }

    fn parts(&self) -> PathBuf {
        self.folder.join("parts")
    }

    fn part(&self, number: u32, of: u32) -> PathBuf {
        self.parts().join(format!("part-{number:05}-of-{of:05}"))
    }

    fn merge(&self, plan: &PartPlan, result: ResultKind, rule: KeepRule) -> Result<Vec<u8>> {
        let path = self.folder.join("merged.csv");
        let output = result.output(Some(Target::File { path: path.clone(), force: true }), rule);
        let _ = std::fs::remove_file(&path);
        let merged = plan.merge(&self.setup.context(), &self.built.store, &self.parts(), &output, &[]);
        assert_eq!(path.exists(), merged.is_ok(), "a result appears only if all of it is there");
        merged.map(|_| std::fs::read(path).unwrap())
    }

    fn one_machine(&self, result: ResultKind, rule: KeepRule) -> Vec<u8> {
        let path = self.folder.join("one.csv");
        let inputs = [self.built.path().display().to_string()];
        let output = result.output(Some(Target::File { path: path.clone(), force: true }), rule);
        let job = Job { output, ..Job::new(&inputs, self.join) };
        let context = self.setup.context();
        job.run(&context, &job.open(&context).unwrap()).unwrap();
        std::fs::read(path).unwrap()
    }
}

fn sorted_lines(text: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
    lines.sort_unstable();
    lines
}

#[test]
fn any_number_of_parts_gives_the_result_of_one_machine() {
    let mut random = Random::new(1, "parts");
    for round in 0..3 {
        let rows = 60 + random.below(300);
        let setup = Setup::default().with_buckets(4 + random.below(12) as u32);
        let built = setup.build(&set(&mut random, rows)).unwrap();
        let join = setup.join_options(Predicate::l2(0.08 + 0.1 * random.uniform()).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let of = Parts { built: &built, setup: &setup, join, folder: folder.path() };
        let mut pairs_before = None;
        for parts in [1, 2, 4, 8] {
            for &planned in ResultKind::ALL {
                let what = format!("round {round}, {parts} parts for {planned}");
                let plan = of.plan(parts, planned).unwrap();
                let _ = std::fs::remove_dir_all(of.parts());
                run_all_twice(&of, &plan, parts, &mut random, &what);
                let merged = of.merge(&plan, planned, KeepRule::Greedy).unwrap();
                let one = of.one_machine(planned, KeepRule::Greedy);
                if planned != ResultKind::Pairs {
                    assert!(merged == one, "{what}");
                    continue;
                }
                assert!(sorted_lines(&merged) == sorted_lines(&one), "{what}");
                assert!(*pairs_before.get_or_insert(merged.clone()) == merged, "{what}: the order of pairs");
                for &result in ResultKind::ALL.iter().filter(|&&result| result != ResultKind::Pairs) {
                    let merged = of.merge(&plan, result, KeepRule::Cluster).unwrap();
                    assert!(merged == of.one_machine(result, KeepRule::Cluster), "{what}, {result}");
                }
            }
        }
    }
}

/// Runs all parts in a random order. Runs each again, with other threads and another budget, and compares the bytes.
/// Checks that a part that is done is run again only by force.
fn run_all_twice(of: &Parts<'_>, plan: &PartPlan, parts: u32, random: &mut Random, what: &str) {
    let mut order = Vec::from_iter(1..=parts);
    random.shuffle(&mut order);
    for number in order {
        assert!(of.run(plan, number, false).unwrap(), "{what}");
        let first = std::fs::read(of.part(number, parts)).unwrap();
        assert!(!of.run(plan, number, false).unwrap(), "{what}: a part that is done is not run again");
        let other = Setup { threads: 1, memory: 43 << 20, ..of.setup.clone() };
        let again = Parts { setup: &other, join: of.join, ..*of };
        assert!(again.run(plan, number, true).unwrap());
        assert!(std::fs::read(of.part(number, parts)).unwrap() == first, "{what}: part {number} has other bytes");
    }
}

#[test]
fn the_recall_and_the_counts_of_all_parts_are_those_of_one_machine() {
    let setup = Setup { rule: Rule::Union, aim: JoinEffort::Recall(0.9), ..Setup::default() }.with_buckets(40);
    let sets = [
        (make(Shape::Uniform, Element::U8, 2_000, 6, 1), Predicate::l2(45.0).unwrap()),
        (make(Shape::Clustered, Element::F16, 2_000, 20, 3), Predicate::cosine(0.9).unwrap()),
    ];
    for (set, predicate) in sets {
        let setup = setup.clone().with_metric(predicate.metric());
        let built = setup.build(&set).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let of = Parts { built: &built, setup: &setup, join: setup.join_options(predicate), folder: folder.path() };
        let one = built.join(&setup, predicate).unwrap().statistics;
        for planned in [ResultKind::Pairs, ResultKind::Counts, ResultKind::Clusters] {
            let plan = of.plan(5, planned).unwrap();
            for number in 1..=5 {
                let part = plan.run_part(&setup.context(), &built.store, number, &of.parts(), true).unwrap().unwrap();
                let CommonStatistics { io, predicted, strategy, .. } = part.common;
                let of_part = (io.bytes_requested, strategy.sample_distances);
                assert_eq!(of_part, (predicted.unwrap().bytes_read, Some(0)), "the plan states the cost of planning");
            }
            let output = planned.output(None, KeepRule::Greedy);
            let merged = plan.merge(&setup.context(), &built.store, &of.parts(), &output, &[]).unwrap();
            let facts = |statistics: &JoinStatistics| {
                let CommonStatistics { recall, predicted, strategy, .. } = &statistics.common;
                let mut join = statistics.join;
                join.largest_cluster = None;
                let predicted = predicted.as_ref().map(|predicted| predicted.center_distances);
                format!("{recall:?} {predicted:?} {strategy:?} {join:?}")
            };
            assert_eq!(facts(&merged), facts(&one), "{planned}");
            assert!(merged.common.recall.unwrap().sample_vectors.is_some(), "the recall was measured");
        }
    }
}

/// Returns a small join in parts, all of which have run.
fn finished<'a>(built: &'a Built, setup: &'a Setup, folder: &'a Path, result: ResultKind) -> (Parts<'a>, PartPlan) {
    let join = setup.join_options(Predicate::l2(0.1).unwrap());
    let of = Parts { built, setup, join, folder };
    let plan = of.plan(3, result).unwrap();
    (1..=3).for_each(|number| assert!(of.run(&plan, number, true).unwrap()));
    (of, plan)
}

fn small() -> (Built, Setup) {
    let setup = Setup::default().with_buckets(9);
    (setup.build(&set(&mut Random::new(2, "small"), 200)).unwrap(), setup)
}

#[test]
fn parts_that_cannot_be_merged_are_refused() {
    let (built, setup) = small();
    let folder = tempfile::tempdir().unwrap();
    let (of, plan) = finished(&built, &setup, folder.path(), ResultKind::Pairs);
    let refused = |words: &str| {
        let error = error_of(of.merge(&plan, ResultKind::Pairs, KeepRule::Greedy)).to_string();
        assert!(error.contains(words), "{error}");
    };
    let part = of.part(2, 3);
    let whole = std::fs::read(&part).unwrap();

    std::fs::remove_file(&part).unwrap();
    refused("1 of 3 parts missing in");
    for end in [0, 10, 20, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&part, &whole[..end]).unwrap();
        refused("run that part again");
    }
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 4;
    std::fs::write(&part, &changed).unwrap();
    refused("is damaged");
    assert!(of.run(&plan, 2, false).unwrap(), "a damaged part is made again");
    assert!(std::fs::read(&part).unwrap() == whole);
    std::fs::copy(of.part(1, 3), &part).unwrap();
    refused("is a part of another plan");
    std::fs::write(&part, &whole).unwrap();
    of.merge(&plan, ResultKind::Pairs, KeepRule::Greedy).unwrap();

    let other = Parts { join: setup.join_options(Predicate::l2(0.11).unwrap()), ..of };
    let other_plan = other.plan(3, ResultKind::Pairs).unwrap();
    let error = error_of(other.run(&other_plan, 1, false)).to_string();
    assert!(error.contains("is a part of another plan"), "{error}");
}

#[test]
fn parts_belong_to_the_plan_of_the_same_join_however_often_it_is_planned() {
    let (built, setup) = small();
    let folder = tempfile::tempdir().unwrap();
    let (of, _) = finished(&built, &setup, folder.path(), ResultKind::Pairs);
    let again = of.plan(3, ResultKind::Pairs).unwrap();
    assert!(!of.run(&again, 2, false).unwrap(), "the part is done");
    of.merge(&again, ResultKind::Pairs, KeepRule::Greedy).unwrap();
}

#[test]
fn a_run_that_finds_its_part_done_removes_what_killed_runs_left() {
    let (built, setup) = small();
    let folder = tempfile::tempdir().unwrap();
    let (of, plan) = finished(&built, &setup, folder.path(), ResultKind::Pairs);
    let left = of.parts().join(".adjoin-result-17-0.partial");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("owner.lock"), "").unwrap();
    assert!(!of.run(&plan, 2, false).unwrap(), "the part is done");
    let names = std::fs::read_dir(of.parts()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.count(), 3, "the parts only");
}

#[test]
fn results_that_parts_do_not_hold_are_refused() {
    let (built, setup) = small();
    let folder = tempfile::tempdir().unwrap();
    for (planned, wanted) in [
        (ResultKind::Counts, ResultKind::Clusters),
        (ResultKind::Clusters, ResultKind::Removed),
        (ResultKind::Removed, ResultKind::Pairs),
    ] {
        let (of, plan) = finished(&built, &setup, folder.path(), planned);
        let error = error_of(of.merge(&plan, wanted, KeepRule::Greedy)).to_string();
        assert!(error.contains(&format!("was planned for the result {planned}")), "{error}");
    }
}

#[test]
fn plans_of_other_versions_and_stores_are_refused() {
    let (built, setup) = small();
    let folder = tempfile::tempdir().unwrap();
    let (of, plan) = finished(&built, &setup, folder.path(), ResultKind::Pairs);
    let other = setup.build(&set(&mut Random::new(3, "other"), 200)).unwrap();
    let elsewhere = Parts { built: &other, ..of };
    let error = error_of(elsewhere.run(&plan, 1, true)).to_string();
    assert!(error.contains("this plan is for another store"), "{error}");
    let error = error_of(elsewhere.merge(&plan, ResultKind::Pairs, KeepRule::Greedy)).to_string();
    assert!(error.contains("this plan is for another store"), "{error}");

    let path = folder.path().join("plan");
    let whole = std::fs::read(&path).unwrap();
    let read = |bytes: &[u8]| -> Error {
        std::fs::write(&path, bytes).unwrap();
        error_of(PartPlan::read(&setup.context(), &path))
    };
    let mut older = whole.clone();
    older[8] -= 1;
    assert!(read(&older).to_string().contains("older than the version"));
    assert!(read(&whole[..whole.len() - 5]).to_string().contains("is damaged"));
    assert!(read(b"something else").to_string().contains("is not the plan of a join"));
    for text in ["0/3", "4/3", "1/4", "1", "a/b"] {
        assert!(plan.part_number(text).is_err(), "{text}");
    }
    assert_eq!(plan.part_number("2/3").unwrap(), 2);
}

#[test]
fn a_part_run_again_after_a_crash_has_the_same_bytes() {
    let mut random = Random::new(4, "crash");
    let values: Vec<u8> = (0..400 * 4).flat_map(|_| (random.uniform() as f32).to_le_bytes()).collect();
    let bytes = [400u32.to_le_bytes().to_vec(), 4u32.to_le_bytes().to_vec(), values].concat();
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("data/set.fbin", &bytes);
    let setup = Setup { threads: 1, ..Setup::default() }.with_buckets(9);
    let context = |device: &SimulatedDevice| setup.context_on(Arc::new(device.clone()));
    let source = adjoin::open_source(&context(&device), &["data/set.fbin".into()], &Default::default()).unwrap();
    let [store, plan_file, parts] = ["data/store", "data/plan", "data/parts"].map(Path::new);
    Store::build(&context(&device), &*source, store, &setup.build).unwrap();
    let join = setup.join_options(Predicate::l2(0.1).unwrap());
    let options = PartOptions { join, parts: 2, result: ResultKind::Pairs };
    PartPlan::create(&context(&device), store, &options, plan_file, false).unwrap();
    let begun = device.operations().len() as u64;
    let work = |device: &SimulatedDevice| -> Result<()> {
        let context = context(device);
        let plan = PartPlan::read(&context, plan_file)?;
        plan.run_part(&context, &plan.open_store(&context, Some(store))?, 1, parts, false).map(|_| ())
    };
    let part = parts.join("part-00001-of-00002");
    let undisturbed = device.after_crash(Keep::Everything);
    let before = undisturbed.operations().len() as u64;
    work(&undisturbed).unwrap();
    let operations = undisturbed.operations().len() as u64 - before;
    let expected = undisturbed.bytes(&part).unwrap();
    assert!(begun > 0 && operations > MOMENTS);
    for at in (0..operations).step_by((operations / MOMENTS) as usize) {
        let crashed = device.after_crash(Keep::Everything);
        crashed.set_plan(FaultPlan::Crash { at });
        let _ = work(&crashed);
        for keep in [Keep::Nothing, Keep::Everything, Keep::Seeded { seed: at, pieces: Pieces::Whole }] {
            let restarted = crashed.after_crash(keep);
            let before = restarted.bytes(&part);
            assert!(before.as_ref().is_none_or(|bytes| *bytes == expected), "a part is whole: {at}, {keep:?}");
            work(&restarted).unwrap();
            assert!(restarted.bytes(&part).as_ref() == Some(&expected), "{at}, {keep:?}");
            // If the part is done already, a run writes nothing. It leaves the leftovers to the run of another part.
            let is_clean = restarted.list(parts).unwrap() == ["part-00001-of-00002"];
            assert!(is_clean || before.is_some(), "{at}, {keep:?}");
        }
    }
}
