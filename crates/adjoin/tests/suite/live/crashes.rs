//! A run that writes, ended at every operation of the device: by a loss of power, before or within a write; by an operation that
//! fails or transfers half of what it should. Whatever was acknowledged is then found, and no more than was asked for.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use adjoin::context::Context;
use adjoin::device::{Device, FaultPlan, Keep, Pieces, SimulatedDevice};
use adjoin::error::Result;
use adjoin::live::{Collection, Durability};
use adjoin::random::Random;

use super::{LIVE, Model, Step, content, context_on, device};
use crate::faults::{Forgetful, Forgets};
use crate::harness::Setup;

/// Writes of a run.
const WRITES: usize = 1_800;
/// One of so many writes is followed by a merge.
const MERGED_ONE_OF: u64 = 300;
/// Trials, where not every operation is tried.
const TRIALS: u64 = 1_000;

/// A run so far.
struct Run {
    device: SimulatedDevice,
    /// What there was after each write.
    states: Vec<Model>,
    /// Of these, the last that no loss of power may take, that no end of the process may take, and that was asked for.
    durable: usize,
    buffered: usize,
    asked: usize,
    result: Result<()>,
}

/// Writes until something fails.
fn run(seed: u64, plan: FaultPlan, forgets: Option<&Forgets>) -> Run {
    let (device, durable, buffered, asked) = (device(), 0, 0, 0);
    device.set_plan(plan);
    let context = match forgets {
        None => context_on(&device),
        Some(forgets) => {
            let forgetful: Arc<dyn Device> = Arc::new(Forgetful::new(device.clone(), forgets.clone()));
            Setup { threads: 1, ..Setup::default() }.context_on(forgetful)
        }
    };
    let mut run = Run { device, states: vec![Model::new()], durable, buffered, asked, result: Ok(()) };
    run.result = run.write(&context, &mut Random::new(seed, "writes"));
    run
}

impl Run {
    fn write(&mut self, context: &Context, random: &mut Random) -> Result<()> {
        let open = || Collection::open(context, Path::new(LIVE));
        let mut collection = open()?;
        for _ in 0..WRITES {
            let mut model = self.states[self.asked].clone();
            let step = Step::draw(random, &model);
            step.apply(&mut model);
            self.states.push(model);
            self.asked += 1;
            let durability = if random.below(3) > 0 { Durability::Group } else { Durability::Buffered };
            step.write(&collection, durability).inspect_err(|error| {
                // Once the log has failed, nothing is taken any more.
                let of_log = error.to_string().contains("the log cannot be written");
                assert!(!of_log || step.write(&collection, durability).is_err());
            })?;
            self.acknowledged(durability);
            if random.below(MERGED_ONE_OF) == 0 {
                collection.merge(context)?;
                self.acknowledged(Durability::Group);
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

    fn acknowledged(&mut self, durability: Durability) {
        self.buffered = self.asked;
        if durability == Durability::Group {
            self.durable = self.asked;
        }
    }

    /// That a device found afterwards has all that counts, and can be written to.
    fn check(&self, found: &SimulatedDevice, least: usize) -> std::result::Result<(), String> {
        let context = &context_on(found);
        let open = || Collection::open(context, Path::new(LIVE)).map_err(|error| error.to_string());
        let collection = open()?;
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
fn trial(seed: u64, at: u64, random: &mut Random, forgets: Option<&Forgets>) -> std::result::Result<(), String> {
    let plans = [
        FaultPlan::Crash { at },
        FaultPlan::Torn { at, sectors: random.below(3) },
        FaultPlan::Fail { at, kind: ErrorKind::Other },
        FaultPlan::Fail { at, kind: ErrorKind::StorageFull },
        FaultPlan::Short { at },
    ];
    let plan = if forgets.is_some() { plans[0] } else { plans[random.below(plans.len() as u64) as usize] };
    let run = run(seed, plan, forgets);
    for keep in ways(random, run.device.unsynced()) {
        // Where only the program ended, what the system had is there too.
        let least = if keep == Keep::Everything { run.buffered } else { run.durable };
        let why = |why| format!("{plan:?}, {keep:?} ({:?}): {why}", run.result.as_ref().err().map(ToString::to_string));
        run.check(&run.device.after_crash(keep), least).map_err(why)?;
    }
    Ok(())
}

fn operations(seed: u64) -> u64 {
    let undisturbed = run(seed, FaultPlan::None, None);
    undisturbed.result.unwrap();
    undisturbed.device.operations().len() as u64
}

#[test]
fn no_acknowledged_write_is_lost_wherever_a_run_ends() {
    let (seed, mut random) = (1, Random::new(1, "trials"));
    let operations = operations(seed);
    assert!(operations > 5_000, "{operations}");
    let trials: Vec<u64> = match is_stress() {
        true => (0..4).flat_map(|_| 0..operations).collect(),
        false => (0..TRIALS).map(|_| random.below(operations)).collect(),
    };
    for at in trials {
        trial(seed, at, &mut random, None).unwrap_or_else(|why| panic!("operation {at}: {why}"));
    }
}

#[test]
fn canary_a_forgotten_sync_of_the_log_is_caught() {
    let missed = |forgets: &Forgets| {
        let mut random = Random::new(2, "trials");
        (0..400).find_map(|at| trial(2, at, &mut random, Some(forgets)).err())
    };
    for forgets in [Forgets::FileSync("log.partial".into()), Forgets::FolderSync(0)] {
        assert!(missed(&forgets).is_some(), "{forgets:?} goes unnoticed");
    }
    assert_eq!(missed(&Forgets::FolderSync(10_000)), None, "there is no such sync");
}
