//! Runs work with an interruption at every operation, and checks the state afterwards. The checker returns the first
//! violation, so that canaries can test whether it finds one.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::device::{Device, FaultPlan, Keep, LoggedOperation, Operation, Pieces, SimulatedDevice};

use super::subjects::{Found, Subject, Tree, tree};

/// Size of a sector in bytes. A torn write ends at the end of a sector.
const SECTOR_BYTES: u64 = 512;
/// Maximum number of repetitions until a trial reaches a given operation. The order of operations depends on threads.
const ATTEMPTS: u64 = 30;

/// Number of trials of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of operations of an undisturbed run.
    pub(crate) operations: usize,
    /// Number of runs in which an operation failed.
    pub(crate) failed: usize,
    /// Number of runs in which a transfer was truncated.
    pub(crate) short: usize,
    /// Number of runs that ended with a loss of power: within a write, and before an operation.
    pub(crate) torn: usize,
    pub(crate) crashed: usize,
    /// Number of device states that were checked after a loss of power.
    pub(crate) images: usize,
    /// Number of these states on which the work was run again.
    pub(crate) redone: usize,
}

/// Function that wraps the device on which the work runs.
pub(crate) type Wrap<'a> = &'a (dyn Fn(SimulatedDevice) -> Arc<dyn Device> + Sync);

/// Returns the device without a wrapper.
pub(crate) fn plain(device: SimulatedDevice) -> Arc<dyn Device> {
    Arc::new(device)
}

/// Number of random subsets of unsynced changes per crash: if all trials run, and by default.
const SUBSETS: usize = 8;
const SUBSETS_USUALLY: usize = 3;
/// Number of changes per crash that are dropped one at a time, by default.
const LEFT_OUT_USUALLY: usize = 6;

/// Returns the maximum number of trials: `usual`, or no limit if `ADJOIN_EVERY_FAULT` is set.
fn at_most(usual: usize) -> usize {
    if std::env::var_os("ADJOIN_EVERY_FAULT").is_some() { usize::MAX } else { usual }
}

/// Identifies an operation, however the threads are interleaved: its kind, its file, and its number among operations
/// of this kind on this file.
type Key = (&'static str, PathBuf, usize);

fn keys(log: &[LoggedOperation]) -> Vec<Key> {
    let mut seen = std::collections::HashMap::new();
    let key = |operation: &LoggedOperation| {
        let nth = seen.entry((operation.operation, operation.path.clone())).or_insert(0);
        *nth += 1;
        (operation.operation.word(), operation.path.clone(), *nth)
    };
    log.iter().map(key).collect()
}

/// A run with an interruption.
struct Run {
    device: SimulatedDevice,
    result: adjoin::Result<()>,
    log: Vec<LoggedOperation>,
}

pub(crate) struct Trials<'a> {
    pub(crate) subject: &'a dyn Subject,
    pub(crate) wrap: Wrap<'a>,
    pub(crate) counts: Counts,
}

impl<'a> Trials<'a> {
    pub(crate) fn of(subject: &'a dyn Subject) -> Self {
        Self { subject, wrap: &plain, counts: Counts::default() }
    }

    /// Runs all kinds of trials.
    pub(crate) fn all(mut self) -> Result<Counts, String> {
        self.failures()?;
        self.torn_writes()?;
        self.crashes()?;
        Ok(self.counts)
    }

    fn run(&self, plan: FaultPlan) -> Run {
        let device = self.subject.device();
        device.set_plan(plan);
        let result = self.subject.work((self.wrap)(device.clone()), self.subject.force());
        let log = device.operations();
        Run { device, result, log }
    }

    fn undisturbed(&mut self) -> Result<Run, String> {
        let run = self.run(FaultPlan::None);
        run.result.as_ref().map_err(|error| format!("undisturbed: {error}"))?;
        self.counts.operations = run.log.len();
        Ok(run)
    }

    /// Fails every operation once, and truncates every transfer once.
    pub(crate) fn failures(&mut self) -> Result<(), String> {
        let whole = self.undisturbed()?;
        let after = tree(&whole.device);
        let all = keys(&whole.log);
        let fails = |kind| move |at| FaultPlan::Fail { at, kind };
        self.counts.failed += self.each_fails(&all, &after, &fails(ErrorKind::Other))?;
        self.counts.failed += self.each_fails(&all, &after, &fails(ErrorKind::StorageFull))?;
        let transfers: Vec<Key> = all.into_iter().filter(|key| ["read", "write"].contains(&key.0)).collect();
        self.counts.short += self.each_fails(&transfers, &after, &|at| FaultPlan::Short { at })?;
        Ok(())
    }

    /// Interrupts each of the operations `all` once, even if its number differs from run to run.
    fn each_fails(&self, all: &[Key], after: &Tree, plan: &dyn Fn(u64) -> FaultPlan) -> Result<usize, String> {
        let mut left: BTreeSet<&Key> = all.iter().collect();
        let mut order: Vec<Key> = keys(&self.run(FaultPlan::None).log);
        let mut trials = 0;
        for _ in 0..ATTEMPTS {
            let numbers = order.iter().enumerate().filter(|(_, key)| left.contains(key)).map(|(at, _)| at as u64);
            for at in numbers.collect::<Vec<_>>() {
                let run = self.run(plan(at));
                let is_transfer = matches!(run.log[at as usize].operation, Operation::Read | Operation::Write);
                if matches!(plan(at), FaultPlan::Short { .. }) && !is_transfer {
                    continue; // the order of operations has changed, so nothing was truncated
                }
                trials += 1;
                self.check_failure(&run, at as usize, after)
                    .map_err(|why| format!("{:?} at {:?}: {why}", plan(at), run.log.get(at as usize)))?;
                left.remove(&keys(&run.log)[at as usize]);
            }
            if left.is_empty() {
                return Ok(trials);
            }
            order = keys(&self.run(FaultPlan::None).log);
        }
        Err(format!("never met: {left:?}"))
    }

    /// Checks the state after an operation failed while the machine continued to run.
    fn check_failure(&self, run: &Run, at: usize, after: &Tree) -> Result<(), String> {
        let hit = &run.log[at];
        let removes = matches!(hit.operation, Operation::Remove | Operation::RemoveFolder)
            || is_put_aside(hit)
            || is_look_at_another(&run.log, at);
        let found = self.subject.found(&run.device.after_crash(Keep::Everything))?;
        let now = tree(&run.device);
        let published = run.log[..at].iter().any(|operation| self.subject.is_publishing(operation));
        match &run.result {
            Ok(()) if !removes => Err("the work succeeds".into()),
            Ok(()) => {
                let found = if found.after { Ok(()) } else { Err("the old result is left".into()) };
                found.and_then(|()| only_leftovers(&now, after, &Tree::new()))
            }
            Err(error) if !names(error, hit) => Err(format!("the error does not name the file: {error}")),
            Err(_) if published => {
                let found = if found.after { Ok(()) } else { Err("published, but not there".into()) };
                found.and_then(|()| only_leftovers(&now, after, &tree(&self.subject.device())))
            }
            Err(_) => {
                let before = tree(&self.subject.device());
                if !found.before {
                    return Err("the new result is there before it was published".into());
                }
                if removes { only_leftovers(&now, &before, &Tree::new()) } else { same(&now, &before) }
            }
        }
    }

    /// Tears one write of each file. The write ends at each sector, or at some of them.
    pub(crate) fn torn_writes(&mut self) -> Result<(), String> {
        let log = self.undisturbed()?.log;
        let written: BTreeSet<&Path> =
            log.iter().filter(|op| op.operation == Operation::Write).map(|op| op.path.as_path()).collect();
        for (seed, path) in written.into_iter().enumerate() {
            let writes: Vec<_> = log.iter().filter(|op| op.operation == Operation::Write && op.path == path).collect();
            let write = writes[(seed * 7 + 3) % writes.len()];
            let sectors_max = write.bytes.div_ceil(SECTOR_BYTES);
            let step = sectors_max.div_ceil(at_most(64) as u64).max(1);
            for sectors in (0..=sectors_max).step_by(step as usize) {
                self.counts.torn += 1;
                let ways = |_| vec![Keep::Nothing, Keep::Everything, Keep::Names];
                self.crash(FaultPlan::Torn { at: write.number, sectors }, write.number, ways)?;
            }
        }
        Ok(())
    }

    /// Lets the power fail before every operation, and once after the last one.
    pub(crate) fn crashes(&mut self) -> Result<(), String> {
        let operations = self.undisturbed()?.log.len() as u64;
        for at in 0..=operations {
            self.counts.crashed += 1;
            self.crash(FaultPlan::Crash { at }, at, |unsynced| ways_to_keep(unsynced, at))?;
        }
        Ok(())
    }

    /// Kills the process before every operation, and runs the work again. No leftovers of the first run may remain.
    pub(crate) fn kills(&mut self) -> Result<(), String> {
        let whole = self.undisturbed()?;
        let wanted = tree(&whole.device);
        for at in 0..whole.log.len() as u64 {
            let image = self.run(FaultPlan::Crash { at }).device.after_crash(Keep::Everything);
            let done = self.redo(&image).and_then(|()| same(&tree(&image), &wanted));
            done.map_err(|why| format!("killed at {:?}: {why}", whole.log[at as usize]))?;
        }
        Ok(())
    }

    fn crash(&mut self, plan: FaultPlan, at: u64, ways: impl Fn(usize) -> Vec<Keep>) -> Result<(), String> {
        let run = self.run(plan);
        let said = |why: &str| format!("{plan:?} at {:?}: {why}", run.log.get(at as usize));
        if run.result.is_ok() == run.device.crashed() {
            return Err(said("the work ends as if it knew nothing of it"));
        }
        let allowed = match run.result {
            Ok(()) => Found { before: false, after: true }, // work that has succeeded is durable
            Err(_) => allowed(self.subject, &run.log, at as usize),
        };
        let ways = ways(run.device.unsynced());
        let again = (self.counts.crashed + self.counts.torn) % ways.len();
        for (number, keep) in ways.into_iter().enumerate() {
            self.counts.images += 1;
            let image = run.device.after_crash(keep);
            let checked = self.check_image(&image, allowed);
            checked.map_err(|why| said(&format!("{keep:?}: {why}")))?;
            if number == again {
                self.counts.redone += 1;
                self.redo(&image).map_err(|why| said(&format!("{keep:?}, done again: {why}")))?;
            }
        }
        Ok(())
    }

    fn check_image(&self, image: &SimulatedDevice, allowed: Found) -> Result<(), String> {
        let found = self.subject.found(image)?;
        if image.bytes("data/unrelated").as_deref() != Some(b"stays".as_slice()) {
            return Err("a file that has nothing to do with it is gone".into());
        }
        let right = (found.before && allowed.before) || (found.after && allowed.after);
        if right { Ok(()) } else { Err(format!("found {found:?}, allowed {allowed:?}")) }
    }

    /// Checks that the work succeeds if it is run again on the state after a crash.
    fn redo(&self, image: &SimulatedDevice) -> Result<(), String> {
        self.subject.work(Arc::new(image.clone()), true).map_err(|error| error.to_string())?;
        let found = self.subject.found(image)?;
        if found.after { Ok(()) } else { Err("the old result is left".into()) }
    }
}

/// Returns the states that are allowed after a crash at operation `at`. Up to the rename that publishes, it is the
/// old result. After the next sync of the folder, it is the new one. In between, it may be either.
fn allowed(subject: &dyn Subject, log: &[LoggedOperation], at: usize) -> Found {
    let Some(rename) = log.iter().position(|operation| subject.is_publishing(operation)) else {
        return Found { before: true, after: false };
    };
    let is_sync = |op: &LoggedOperation| op.operation == Operation::SyncFolder && op.path == subject.folder();
    let sync = log.iter().skip(rename).position(is_sync).map(|since| rename + since);
    Found { before: sync.is_none_or(|sync| at <= sync), after: at >= rename }
}

/// Returns whether an operation renames a folder in order to remove it.
fn is_put_aside(operation: &LoggedOperation) -> bool {
    operation.operation == Operation::Rename && operation.path.extension().is_some_and(|end| end == "partial")
}

/// Returns whether an operation checks only whether the owner of a folder is alive. If such a check fails, the folder
/// is kept.
fn is_look_at_another(log: &[LoggedOperation], at: usize) -> bool {
    let LoggedOperation { operation, path, .. } = &log[at];
    let locked = |before: &LoggedOperation| before.operation == Operation::Lock && before.path == *path;
    path.ends_with("owner.lock")
        && (*operation == Operation::Kind || (*operation == Operation::Lock && log[..at].iter().any(locked)))
}

/// Returns selections of the unsynced changes that survive: none, all, all but one, and random subsets.
fn ways_to_keep(unsynced: usize, at: u64) -> Vec<Keep> {
    let mut ways = vec![Keep::Nothing, Keep::Everything];
    if unsynced == 0 {
        return ways[..1].to_vec();
    }
    // If there are many changes, each crash drops different ones.
    let step = unsynced.div_ceil(at_most(LEFT_OUT_USUALLY)).max(1);
    ways.extend((0..unsynced).skip(at as usize % step).step_by(step).map(Keep::AllBut));
    let pieces = [Pieces::Whole, Pieces::Sectors, Pieces::Blocks];
    let seeded = |seed: u64| Keep::Seeded { seed: seed + 1_000 * at, pieces: pieces[seed as usize % 3] };
    ways.extend((0..SUBSETS.min(at_most(SUBSETS_USUALLY)) as u64).map(seeded));
    ways
}

/// Returns whether an error names the file of the failed operation.
fn names(error: &adjoin::Error, hit: &LoggedOperation) -> bool {
    error.to_string().contains(hit.path.to_str().unwrap())
}

fn same(found: &Tree, expected: &Tree) -> Result<(), String> {
    let paths = found.keys().chain(expected.keys());
    match paths.into_iter().find(|path| found.get(*path) != expected.get(*path)) {
        Some(path) => Err(format!("{} is not as it was", path.display())),
        None => Ok(()),
    }
}

/// Checks that the result is in place. Other files may only be temporary files or files of the old result.
fn only_leftovers(found: &Tree, expected: &Tree, old: &Tree) -> Result<(), String> {
    let temporary = |path: &Path| path.to_string_lossy().contains("/.adjoin-") || path.ends_with("writer.lock");
    let beside = |path: &PathBuf| !expected.contains_key(path) && (temporary(path) || old.get(path) == found.get(path));
    let rest = found.iter().filter(|(path, _)| !beside(path)).map(|(path, bytes)| (path.clone(), bytes.clone()));
    same(&rest.collect(), expected)
}
