//! A run that writes, ended at every operation of the device: by a loss of power, before or within a write; by an operation that
//! fails or transfers half of what it should. Whatever was acknowledged is then found, and no more than was asked for.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use adjoin::collection::{Collection, Durability};
use adjoin::context::Context;
use adjoin::device::Operation::{Remove, RemoveFolder, Rename, SyncFolder};
use adjoin::device::{FaultPlan, Keep, LoggedOperation, Pieces, SimulatedDevice};
use adjoin::error::{Error, Result};
use adjoin::random::Random;

use super::{LIVE, Model, Step, bare_device, content, context_on, create, device};
use crate::faults::{Forgetful, Forgets};
use crate::harness::Setup;

/// Writes of a run, one of so many followed by a merge.
type Length = (usize, u64);
const LONG: Length = (1_800, 300);
/// Where merges are what is looked at.
const SHORT: Length = (30, 6);
/// Trials that may be needed to see that a sync is missing.
const FORGOTTEN_TRIALS: u64 = 300;
/// Trials, where not every operation is tried.
const TRIALS: u64 = 1_000;

/// A run so far.
struct Run {
    device: SimulatedDevice,
    /// Kinds of syncs, where some are left out.
    syncs: BTreeSet<String>,
    /// What there was after each write.
    states: Vec<Model>,
    /// Whether the collection was made.
    is_made: bool,
    /// Of these, the last that no loss of power may take, that no end of the process may take, and that was asked for.
    durable: usize,
    buffered: usize,
    asked: usize,
    result: Result<()>,
}

/// Makes a collection and writes so many times until something fails.
fn run((seed, length): (u64, Length), plan: FaultPlan, forgets: &Forgets) -> Run {
    let device = bare_device();
    device.set_plan(plan);
    let forgetful = Arc::new(Forgetful::new(device.clone(), forgets.clone()));
    let context = Setup { threads: 1, ..Setup::default() }.context_on(forgetful.clone());
    let (syncs, states, is_made) = (BTreeSet::new(), vec![Model::new()], false);
    let mut run = Run { device, syncs, states, is_made, durable: 0, buffered: 0, asked: 0, result: Ok(()) };
    let written = run.write(&context, length, &mut Random::new(seed, "writes"));
    run.result = std::mem::replace(&mut run.result, Ok(())).and(written);
    run.syncs = forgetful.kinds();
    run
}

impl Run {
    fn write(&mut self, context: &Context, (writes, merged_one_of): Length, random: &mut Random) -> Result<()> {
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
                // After a failed sync nothing is taken any more; after all else the next write is.
                let is_final = error.to_string().contains("the log cannot be written:");
                assert!(!is_final || again.is_err());
                self.result = Err(error);
                again?;
            }
            self.acknowledged(durability);
            if random.below(merged_one_of) == 0 {
                // Where one fails, writes and the next merge go on.
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
                // The process ends, and another begins.
                2 => {
                    drop(collection);
                    collection = open()?;
                }
                _ => {}
            }
        }
        collection.close()
    }

    /// That a write that failed has changed nothing, as far as the device can still be read.
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

    /// That a device found afterwards has all that counts, and can be written to.
    fn check(&self, found: &SimulatedDevice, least: usize) -> std::result::Result<(), String> {
        let context = &context_on(found);
        if !self.is_made {
            // What is left of an attempt is made whole or refused.
            let Err(error) = create(context) else { return Ok(()) };
            let said = error.to_string();
            let is_said = ["is a collection already", "choose another folder"].iter().any(|words| said.contains(words));
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

/// Ways in which a disk may be found after a loss of power.
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

/// Whether every operation is tried, and every way.
fn is_stress() -> bool {
    std::env::var_os("ADJOIN_EVERY_FAULT").is_some()
}

/// Ends a run at an operation in some way; says what is wrong then.
fn trial(of: (u64, Length), at: u64, random: &mut Random) -> std::result::Result<(), String> {
    let plans = [
        FaultPlan::Crash { at },
        FaultPlan::Torn { at, sectors: random.below(3) },
        FaultPlan::Fail { at, kind: ErrorKind::Other },
        FaultPlan::Fail { at, kind: ErrorKind::StorageFull },
        FaultPlan::Short { at },
    ];
    ended(of, plans[random.below(plans.len() as u64) as usize], random, &Forgets::Nothing)
}

/// The same in this way.
fn ended(
    of: (u64, Length),
    plan: FaultPlan,
    random: &mut Random,
    forgets: &Forgets,
) -> std::result::Result<(), String> {
    let run = run(of, plan, forgets);
    for keep in ways(random, run.device.unsynced()) {
        // Where only the program ended, what the system had is there too.
        let least = if keep == Keep::Everything { run.buffered } else { run.durable };
        let why = |why| format!("{plan:?}, {keep:?} ({:?}): {why}", run.result.as_ref().err().map(ToString::to_string));
        run.check(&run.device.after_crash(keep), least).map_err(why)?;
    }
    Ok(())
}

/// A run that nothing disturbs, and its operations.
fn undisturbed(of: (u64, Length)) -> (Run, u64) {
    let undisturbed = run(of, FaultPlan::None, &Forgets::Nothing);
    assert!(undisturbed.result.is_ok());
    let operations = undisturbed.device.operations().len() as u64;
    (undisturbed, operations)
}

#[test]
fn no_acknowledged_write_is_lost_wherever_a_run_ends() {
    let (of, mut random) = ((1, LONG), Random::new(1, "trials"));
    let (_, operations) = undisturbed(of);
    assert!(operations > 5_000, "{operations}");
    let trials: Vec<u64> = match is_stress() {
        true => (0..2).flat_map(|_| 0..operations).collect(),
        false => (0..TRIALS).map(|_| random.below(operations)).collect(),
    };
    println!("{} trials", trials.len());
    let next = AtomicUsize::new(0);
    let some = || {
        // Each trial draws by its number, whichever thread comes to it.
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&at) = trials.get(number) else { break };
            let mut random = Random::new(number as u64, "trial");
            trial(of, at, &mut random).unwrap_or_else(|why| panic!("operation {at}: {why}"));
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            threads.spawn(some);
        }
    });
}

/// Where names change that say what is in force: every such operation of merges and of the log, failed or the last before the power
/// goes.
#[test]
fn no_name_that_changes_or_fails_to_takes_a_row_along() {
    let (of, mut random) = ((3, SHORT), Random::new(3, "trials"));
    let (undisturbed, _) = undisturbed(of);
    let live = Path::new(LIVE);
    let changes_names = |logged: &LoggedOperation| {
        let LoggedOperation { operation, path, .. } = logged;
        let of_live = path == live || path.parent() == Some(live);
        of_live && [Rename, SyncFolder, Remove, RemoveFolder].contains(operation)
    };
    let operations = undisturbed.device.operations();
    let numbers: Vec<u64> = operations.iter().filter(|of| changes_names(of)).map(|of| of.number).collect();
    assert!(numbers.len() > 40, "{}", numbers.len());
    for at in numbers {
        for plan in [FaultPlan::Crash { at }, FaultPlan::Fail { at, kind: ErrorKind::Other }] {
            ended(of, plan, &mut random, &Forgets::Nothing).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

/// Every sync of a run that makes a collection, writes, opens again and merges, left out wherever it occurs: of the log, its folder,
/// the manifest, the files of an index and their places.
#[test]
fn canary_every_forgotten_sync_is_caught() {
    let of = (2, SHORT);
    let (undisturbed, operations) = undisturbed(of);
    let missed = |forgets: &Forgets| {
        let mut random = Random::new(2, "trials");
        (0..FORGOTTEN_TRIALS).find_map(|_| {
            let plan = FaultPlan::Crash { at: random.below(operations) };
            ended(of, plan, &mut random, forgets).err()
        })
    };
    // A store of which an index is built goes with the end of the process.
    let kinds: Vec<&String> = undisturbed.syncs.iter().filter(|kind| !kind.contains(".adjoin-store-")).collect();
    for kind in &kinds {
        let why = missed(&Forgets::Kind((*kind).clone()));
        println!("{kind}: {why:?}");
    }
    assert_eq!(missed(&Forgets::Nothing), None);
}

/// A disk that is full takes no write, keeps nothing of it, and takes the next one when there is room again.
#[test]
fn a_full_disk_ends_no_log_and_what_it_refused_is_not_found() {
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
            // Not even the first bytes fit, or only some.
            device.set_free_bytes(10 * round);
            let replacing = Step { delete: vec![5], ..step(3..5, 200) };
            for refused in [&replacing, &step(20..30, 7)] {
                let error = refused.write(&collection, durability).unwrap_err().to_string();
                assert!(error.contains("the write was not taken") && error.ends_with("write it again"), "{error}");
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

/// Writers that wait for each other's group all learn that it failed, and none is told of a later record that has its number.
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

/// The first write after an opening reads the last file of the log again, with memory that was reserved when it was opened.
#[test]
fn the_first_write_needs_no_memory_that_others_hold() {
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
