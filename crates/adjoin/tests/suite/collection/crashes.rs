//! A run of writes that is interrupted at every operation of the device. The power is lost before or during the
//! operation, or the operation fails, or it transfers only half of its bytes. After that, all acknowledged writes
//! must be found, and nothing that was not requested.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use adjoin::{
    Collection, Context, Durability, Error, Random, Result,
    device::{
        FaultPlan, Keep, LoggedOperation,
        Operation::{Remove, RemoveFolder, Rename, SyncFolder},
        Pieces, SimulatedDevice,
    },
};

use super::{LIVE, Model, Step, bare_device, content, context_on, create, device};
use crate::faults::{Forgetful, Forgets};
use crate::harness::Setup;

/// Numbers of writes and merges of a run.
#[derive(Clone, Copy)]
struct Workload {
    /// Seed of the random writes.
    seed: u64,
    writes: usize,
    /// Mean number of writes from one merge to the next.
    merged_one_of: u64,
}

const LONG: Workload = Workload { seed: 1, writes: 1_800, merged_one_of: 300 };
/// A workload with few writes and many merges.
const SHORT: Workload = Workload { seed: 3, writes: 30, merged_one_of: 6 };
/// Number of random operations at which a missing sync must be noticed, after those on names.
const FORGOTTEN_TRIALS: u64 = 60;
/// Kinds of syncs that can be left out: before anything depends on them, another sync makes their names durable.
const REDUNDANT: [&str; 3] = [
    "folder data/live after data/live/index-*",
    "folder data/live after data/live/places-*.bin",
    "folder data/live/index-* after data/live/index-*/attributes-*.parquet",
];
/// Number of trials, unless every operation is tried.
const TRIALS: u64 = 500;

/// State of a run when it ended.
struct Run {
    device: SimulatedDevice,
    /// Kinds of the syncs of this run. A test can then skip each kind.
    syncs: BTreeSet<String>,
    /// Content after each write.
    states: Vec<Model>,
    /// Whether the collection was created.
    is_made: bool,
    /// Indexes in `states` of three writes: the last one that must survive a loss of power, the last one that must
    /// survive the death of the process, and the last one that was requested.
    durable: usize,
    buffered: usize,
    asked: usize,
    result: Result<()>,
}

/// Creates a collection and writes to it, until an operation fails.
fn run(workload: Workload, plan: FaultPlan, forgets: &Forgets) -> Run {
    let device = bare_device();
    device.set_plan(plan);
    let forgetful = Arc::new(Forgetful::new(device.clone(), forgets.clone()));
    let context = Setup { threads: 1, ..Setup::default() }.context_on(forgetful.clone());
    let (syncs, states, is_made) = (BTreeSet::new(), vec![Model::new()], false);
    let mut run = Run { device, syncs, states, is_made, durable: 0, buffered: 0, asked: 0, result: Ok(()) };
    let written = run.write(&context, workload, &mut Random::new(workload.seed, "writes"));
    run.result = std::mem::replace(&mut run.result, Ok(())).and(written);
    run.syncs = forgetful.kinds();
    run
}

impl Run {
    fn write(&mut self, context: &Context, workload: Workload, random: &mut Random) -> Result<()> {
        let Workload { writes, merged_one_of, .. } = workload;
        create(context)?;
        self.is_made = true;
        let open = || Collection::open(context, Path::new(LIVE));
        let mut collection = open()?;
        for _ in 0..writes {
            let mut model = self.states[self.asked].clone();
            let step = Step::draw(random, &model);
            step.apply(&mut model);
            self.states.push(model);
            self.asked += 1;
            let durability = if random.below(3) > 0 { Durability::Group } else { Durability::Buffered };
            if let Err(error) = step.write(&collection, durability) {
                self.refused(context, &collection, &error);
                let again = step.write(&collection, durability);
                // If a sync failed, all later writes are refused. After any other failure, the next write succeeds.
                let is_final = error.to_string().contains("the log cannot be written:");
                assert!(!is_final || again.is_err());
                self.result = Err(error);
                again?;
            }
            self.acknowledged(durability);
            if random.below(merged_one_of) == 0 {
                // If a merge fails, writes still succeed, and the next merge may succeed.
                match collection.merge(context) {
                    Ok(_) => self.acknowledged(Durability::Group),
                    Err(error) => self.result = Err(error),
                }
            }
            match random.below(60) {
                0 => {
                    collection.flush()?;
                    self.acknowledged(Durability::Group);
                }
                1 => {
                    collection.close()?;
                    self.acknowledged(Durability::Group);
                    collection = open()?;
                }
                // The process ends without closing the collection, and another process opens it.
                2 => {
                    drop(collection);
                    collection = open()?;
                }
                _ => {}
            }
        }
        collection.close()
    }

    /// Checks that a failed write has changed nothing, if the collection can still be read.
    fn refused(&self, context: &Context, collection: &Collection, error: &Error) {
        if let Ok(found) = content(context, collection) {
            assert_eq!(found, self.states[self.asked - 1], "{error}");
        }
    }

    fn acknowledged(&mut self, durability: Durability) {
        self.buffered = self.asked;
        if durability == Durability::Group {
            self.durable = self.asked;
        }
    }

    /// Checks that a collection on `found` has all writes up to index `least`, and accepts further writes.
    fn check(&self, found: &SimulatedDevice, least: usize) -> std::result::Result<(), String> {
        let context = &context_on(found);
        if !self.is_made {
            // An attempt to create the collection was interrupted. The next attempt completes it or is refused.
            let Err(error) = create(context) else { return Ok(()) };
            let said = error.to_string();
            let is_said = ["is already a collection", "choose another folder"].iter().any(|words| said.contains(words));
            return if is_said { Ok(()) } else { Err(said) };
        }
        let collection = Collection::open(context, Path::new(LIVE)).map_err(|error| error.to_string())?;
        let mut model = content(context, &collection)?;
        let Some(at) = (least..=self.asked).rev().find(|&write| self.states[write] == model) else {
            let earlier = (0..least).rev().find(|&write| self.states[write] == model);
            return Err(format!("what is there is of write {earlier:?}, acknowledged were {least}"));
        };
        let step = Step::draw(&mut Random::new(at as u64, "after"), &model);
        step.apply(&mut model);
        step.write(&collection, Durability::Group).map_err(|error| error.to_string())?;
        drop(collection);
        let power_went = found.after_crash(Keep::Nothing);
        let context = &context_on(&power_went);
        let collection = Collection::open(context, Path::new(LIVE)).map_err(|error| error.to_string())?;
        if content(context, &collection)? == model { Ok(()) } else { Err("a write after that is lost".into()) }
    }
}

/// Returns selections of the unsynced changes that may survive a loss of power.
fn ways(random: &mut Random, unsynced: usize) -> Vec<Keep> {
    let pieces = [Pieces::Whole, Pieces::Sectors, Pieces::Blocks][random.below(3) as usize];
    let seeded = Keep::Seeded { seed: random.below(1 << 40), pieces };
    let one = |random: &mut Random| random.below(unsynced.max(1) as u64) as usize;
    let or_nothing = |keep| if unsynced == 0 { Keep::Nothing } else { keep };
    let (but, only) = (Keep::AllBut(one(random)), Keep::Only(one(random)));
    let mut some = vec![Keep::Names, Keep::Data, or_nothing(but), or_nothing(only), seeded];
    random.shuffle(&mut some);
    some.truncate(if is_stress() { some.len() } else { 2 });
    [vec![Keep::Nothing, Keep::Everything], some].concat()
}

/// Returns whether every operation and every state must be tried.
fn is_stress() -> bool {
    std::env::var_os("ADJOIN_EVERY_FAULT").is_some()
}

/// Interrupts a run at operation `at` in a random way. Returns a description of the violation, if any.
fn trial(workload: Workload, at: u64, random: &mut Random) -> std::result::Result<(), String> {
    let plans = [
        FaultPlan::Crash { at },
        FaultPlan::Torn { at, sectors: random.below(3) },
        FaultPlan::Fail { at, kind: ErrorKind::Other },
        FaultPlan::Fail { at, kind: ErrorKind::StorageFull },
        FaultPlan::Short { at },
    ];
    ended(workload, plans[random.below(plans.len() as u64) as usize], random, &Forgets::Nothing)
}

/// Runs a workload with a fault plan, and checks states in which the disk may be afterwards.
fn ended(
    workload: Workload,
    plan: FaultPlan,
    random: &mut Random,
    forgets: &Forgets,
) -> std::result::Result<(), String> {
    let run = run(workload, plan, forgets);
    for keep in ways(random, run.device.unsynced()) {
        // If only the process died, changes in the cache of the system survive too.
        let least = if keep == Keep::Everything { run.buffered } else { run.durable };
        let why = |why| format!("{plan:?}, {keep:?} ({:?}): {why}", run.result.as_ref().err().map(ToString::to_string));
        run.check(&run.device.after_crash(keep), least).map_err(why)?;
    }
    Ok(())
}

/// Returns an undisturbed run and its number of operations.
fn undisturbed(workload: Workload) -> (Run, u64) {
    let undisturbed = run(workload, FaultPlan::None, &Forgets::Nothing);
    assert!(undisturbed.result.is_ok());
    let operations = undisturbed.device.operations().len() as u64;
    (undisturbed, operations)
}

#[test]
fn no_acknowledged_write_is_lost_at_any_crash_point() {
    let (workload, mut random) = (LONG, Random::new(1, "trials"));
    let (_, operations) = undisturbed(workload);
    assert!(operations > 5_000, "{operations}");
    let trials: Vec<u64> = match is_stress() {
        true => (0..2).flat_map(|_| 0..operations).collect(),
        false => (0..TRIALS).map(|_| random.below(operations)).collect(),
    };
    println!("{} trials", trials.len());
    let next = AtomicUsize::new(0);
    let some = || {
        // The random numbers of a trial depend only on its number, not on the thread that runs it.
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&at) = trials.get(number) else { break };
            let mut random = Random::new(number as u64, "trial");
            trial(workload, at, &mut random).unwrap_or_else(|why| panic!("operation {at}: {why}"));
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(some);
        }
    });
}

/// Returns the numbers of the operations of a run on names in the folder of the collection.
fn operations_on_names(run: &Run) -> Vec<u64> {
    let live = Path::new(LIVE);
    let changes_names = |logged: &LoggedOperation| {
        let LoggedOperation { operation, path, .. } = logged;
        let of_live = path == live || path.parent() == Some(live);
        of_live && [Rename, SyncFolder, Remove, RemoveFolder].contains(operation)
    };
    run.device.operations().iter().filter(|of| changes_names(of)).map(|of| of.number).collect()
}

/// Checks operations on the names that determine the current state, in merges and in the log. Each of them fails
/// once, and each is once the last one before a loss of power.
#[test]
fn failed_or_lost_operations_on_names_lose_no_row() {
    let (workload, mut random) = (SHORT, Random::new(3, "trials"));
    let numbers = operations_on_names(&undisturbed(workload).0);
    assert!(numbers.len() > 40, "{}", numbers.len());
    for at in numbers {
        for plan in [FaultPlan::Crash { at }, FaultPlan::Fail { at, kind: ErrorKind::Other }] {
            ended(workload, plan, &mut random, &Forgets::Nothing).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

/// Skips each kind of sync in a run that creates a collection, writes, reopens and merges. There are syncs of the
/// log, its folder, the manifest, and the files of an index and their folders. Each omission must be noticed, unless
/// the sync is redundant.
#[test]
fn canary_every_forgotten_sync_is_caught() {
    let workload = Workload { seed: 2, ..SHORT };
    let (undisturbed, operations) = undisturbed(workload);
    let missed = |forgets: &Forgets| {
        let mut random = Random::new(2, "trials");
        // What an omission leaves unsynced is lost most easily just before and after the next operations on names.
        let names = operations_on_names(&run(workload, FaultPlan::None, forgets));
        let names = names.into_iter().flat_map(|at| [at, at + 1]);
        let others: Vec<u64> = (0..FORGOTTEN_TRIALS).map(|_| random.below(operations)).collect();
        names.chain(others).find_map(|at| ended(workload, FaultPlan::Crash { at }, &mut random, forgets).err())
    };
    // The store from which an index is built is temporary, so its syncs do not count.
    let kinds: Vec<&String> = undisturbed.syncs.iter().filter(|kind| !kind.contains(".adjoin-store-")).collect();
    for kind in &kinds {
        let why = missed(&Forgets::Kind((*kind).clone()));
        println!("{kind}: {why:?}");
        assert_eq!(why.is_none(), REDUNDANT.contains(&kind.as_str()), "{kind}: {why:?}");
    }
    for redundant in REDUNDANT {
        assert!(kinds.iter().any(|kind| *kind == redundant), "there is no {redundant}");
    }
    assert_eq!(missed(&Forgets::Nothing), None);
}

/// Checks that a full disk refuses a write as a whole. Once there is space, the next write is accepted.
#[test]
fn a_full_disk_refuses_a_whole_write_and_the_log_continues() {
    for durability in [Durability::Group, Durability::Buffered] {
        let (device, mut model) = (device(), Model::new());
        let context = &context_on(&device);
        let collection = Collection::open(context, Path::new(LIVE)).unwrap();
        let step = |ids: std::ops::Range<i64>, first: u8| Step {
            upsert: ids.map(|id| (id, [first, id as u8, 3])).collect(),
            ..Step::default()
        };
        let first = step(0..6, 1);
        first.write(&collection, durability).unwrap();
        first.apply(&mut model);
        for round in 0..3 {
            // The disk has space for none or only some of the first bytes of the write.
            device.set_free_bytes(10 * round);
            let replacing = Step { delete: vec![5], ..step(3..5, 200) };
            for refused in [&replacing, &step(20..30, 7)] {
                let error = refused.write(&collection, durability).unwrap_err().to_string();
                assert!(error.contains("the write was refused") && error.ends_with("write it again"), "{error}");
                assert!(collection.log_failure().is_some());
                assert_eq!(content(context, &collection).unwrap(), model);
            }
            device.set_free_bytes(1 << 30);
            let next = step(10 + round as i64..12 + round as i64, 50);
            next.write(&collection, durability).unwrap();
            next.apply(&mut model);
            assert_eq!((content(context, &collection).unwrap(), collection.log_failure()), (model.clone(), None));
            if round == 1 {
                collection.merge(context).unwrap();
            }
        }
        let sequence = collection.facts().sequence;
        assert_eq!(sequence, 4);
        drop(collection);
        for found in [device.clone(), device.after_crash(Keep::Everything)] {
            let again = Collection::open(&context_on(&found), Path::new(LIVE)).unwrap();
            assert_eq!((content(context, &again).unwrap(), again.facts().sequence), (model.clone(), sequence));
        }
    }
}

/// Checks that all writers of a group get its error. None of them may get the result of a later record with the same
/// number.
#[test]
fn writers_of_a_group_that_fails_are_all_refused() {
    let device = device();
    let context = &context_on(&device);
    let collection = &Collection::open(context, Path::new(LIVE)).unwrap();
    let step = |id: i64| Step { insert: Model::from([(id, [1, 2, id as u8])]), ..Step::default() };
    step(0).write(collection, Durability::Group).unwrap();
    device.set_free_bytes(0);
    let write_all = |ids: std::ops::Range<i64>| -> Vec<bool> {
        std::thread::scope(|threads| {
            let write = |id| threads.spawn(move || step(id).write(collection, Durability::Group).is_ok());
            let writers: Vec<_> = ids.map(write).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        })
    };
    assert_eq!(write_all(1..9), [false; 8]);
    assert_eq!(collection.facts().rows, 1);
    device.set_free_bytes(1 << 30);
    assert_eq!(write_all(1..9), [true; 8]);
    assert_eq!((collection.facts().rows, collection.facts().sequence), (9, 9));
}

/// Checks the first write after opening, which reads the last file of the log again. The memory for that must have
/// been reserved when the collection was opened.
#[test]
fn memory_for_the_first_write_is_reserved_at_opening() {
    let device = device();
    let step = |id: i64| Step { insert: Model::from([(id, [1, 2, id as u8])]), ..Step::default() };
    let open = |context: &Context| Collection::open(context, Path::new(LIVE)).unwrap();
    step(0).write(&open(&context_on(&device)), Durability::Group).unwrap();
    let context = &context_on(&device);
    let collection = open(context);
    let others = context.reserve(context.budget().free() - (8 << 20), "others").unwrap();
    step(1).write(&collection, Durability::Group).unwrap();
    drop(others);
    assert_eq!(collection.facts().rows, 2);
}
