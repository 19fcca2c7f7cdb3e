//! Counts how often joins reach the promised recall, over many runs.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use adjoin::{Context, Error, JoinEffort, JoinOptions, Result, lab::plan::Rule};

use super::setting::{Joined, Reached, RecallReached, Setting};

/// Sets with thresholds. At some of them, a vector has 1, 10 or 100 neighbors on average. Others are round numbers.
const SETTINGS: [(&str, &[f64]); 5] = [
    ("sift-200k.u8bin", &[62.426, 126.566, 226.555]),
    ("sift-stars-50k.u8bin", &[43.243, 77.569, 174.880]),
    ("debdesc.f16.npy", &[0.9416, 0.7296, 0.5118, 0.95, 0.9, 0.85, 0.8]),
    ("wordnet-20k.f16.npy", &[0.6613, 0.526, 0.3938, 0.95, 0.9, 0.85, 0.8]),
    ("sift-900k.u8bin", &[79.793]),
];
/// Sets with thresholds, for joins of two sets and of new rows.
const PARTS: [(&str, &[f64]); 3] =
    [("sift-200k.u8bin", &[126.566]), ("debdesc.f16.npy", &[0.7296, 0.85]), ("wordnet-20k.f16.npy", &[0.526])];
const RECALLS: [f64; 4] = [0.8, 0.9, 0.95, 0.99];
/// Number of fixed seeds. An equal number of random seeds is added when `runs.csv` is started.
const SEEDS: u64 = 20;
const SEEDS_AT_ONCE: usize = 5;
/// Number of seeds for runs in which the planner chooses the rule.
const SEEDS_CHOSEN: usize = 2;
/// Conditions for a kept promise. Of 20 runs of a setting, at least the first number must reach the recall. Of all
/// runs, at least the next fraction must reach it, and in at least the last fraction, the reported interval must
/// contain it.
const REACHED_OF_20: f64 = 15.0;
const REACHED_SHARE: f64 = 0.93;
const COVERED_SHARE: f64 = 0.92;

/// Recorded if no sample supports the promise. In that case, a user gets a message and every pair.
const REFUSED: &str = "refused";

/// Runs the joins of two sets and of new rows that are not listed yet. Returns whether the promise is kept over all
/// runs.
pub(crate) fn of_parts(context: &Context, data: &Path, work: &Path) -> Result<bool> {
    let failed = |error: std::io::Error| Error::device(format!("{}: {error}", work.display()));
    let seeds = seeds(work).map_err(failed)?;
    let (mut holds, calibrated) = (true, true);
    for joined in [Joined::Between, Joined::Grown] {
        let list = format!("{}.csv", joined.name());
        let made = Runs { context, data, work, calibrated, joined, settings: &PARTS }.make(&list, &seeds)?;
        println!("{}:", joined.name());
        holds &= summarize(&made);
    }
    Ok(holds)
}

/// Runs the joins that are not listed yet. Returns whether the promise is kept over all runs.
pub(crate) fn all(context: &Context, data: &Path, work: &Path) -> Result<bool> {
    let failed = |error: std::io::Error| Error::device(format!("{}: {error}", work.display()));
    let seeds = seeds(work).map_err(failed)?;
    let by = |calibrated| Runs { context, data, work, calibrated, joined: Joined::Within, settings: &SETTINGS };
    let forced = by(true).make("runs.csv", &seeds)?;
    let chosen = by(false).make("chosen.csv", &seeds[..SEEDS_CHOSEN])?;
    println!("the union rule, whatever it costs:");
    let forced_holds = summarize(&forced);
    println!("\nthe rule that the planner chooses:");
    Ok(summarize(&chosen) && forced_holds)
}

/// Runs that choose the rule in one way.
struct Runs<'a> {
    context: &'a Context,
    data: &'a Path,
    work: &'a Path,
    /// Whether all joins use the calibrated rule. Otherwise the planner chooses the rule.
    calibrated: bool,
    joined: Joined,
    settings: &'a [(&'static str, &'static [f64])],
}

impl Runs<'_> {
    /// Runs the joins that a list lacks. Returns the complete list.
    fn make(&self, list: &str, seeds: &[u64]) -> Result<String> {
        let list = self.work.join(list);
        let failed = |error: std::io::Error| Error::device(format!("{}: {error}", list.display()));
        let done = fs::read_to_string(&list).unwrap_or_default();
        let settings =
            self.settings.iter().flat_map(|&(name, all)| all.iter().map(move |&threshold| (name, threshold)));
        let settings: Vec<_> = settings.filter(|(name, _)| self.data.join(name).exists()).collect();
        // All settings are run with a few seeds before any is run with more. If the program is stopped early, the
        // sample is balanced.
        for seeds in seeds.chunks(SEEDS_AT_ONCE) {
            for &(name, threshold) in &settings {
                let key = |recall: f64, seed: u64| format!("{name},{threshold},{recall},{seed},");
                let is_done = |recall, seed| done.lines().any(|line| line.starts_with(&key(recall, seed)));
                let missing = seeds.iter().map(|&seed| {
                    let recalls: Vec<f64> = RECALLS.into_iter().filter(|&recall| !is_done(recall, seed)).collect();
                    (seed, recalls)
                });
                let missing: Vec<_> = missing.filter(|(_, recalls)| !recalls.is_empty()).collect();
                if missing.is_empty() {
                    continue;
                }
                let setting = Setting::open(self.context, &self.data.join(name), self.work, threshold, self.joined)?;
                let file = fs::OpenOptions::new().create(true).append(true).open(&list).map_err(failed)?;
                let file = Mutex::new(file);
                self.measure(&setting, missing, |seed, recall, line| {
                    let noted = writeln!(file.lock().unwrap(), "{}{line}", key(recall, seed));
                    noted.map_err(failed)
                })?;
            }
        }
        fs::read_to_string(&list).map_err(failed)
    }

    /// Runs joins in parallel, each on one thread. Passes the seed, the recall and the line of each join to `note`.
    fn measure(
        &self,
        setting: &Setting,
        missing: Vec<(u64, Vec<f64>)>,
        note: impl Fn(u64, f64, String) -> Result<()> + Sync,
    ) -> Result<()> {
        let missing = Mutex::new(missing.into_iter());
        let workers = self.context.threads.max(1);
        let work = || {
            let mut one = Context::default().with_memory(self.context.memory_bytes() / workers as u64);
            one.threads = 1;
            loop {
                let Some((seed, recalls)) = missing.lock().unwrap().next() else { return Ok(()) };
                for recall in recalls {
                    let reached = self.join(&one, setting, seed, recall)?;
                    note(seed, recall, reached.map_or(REFUSED.to_owned(), |reached| line(&reached)))?;
                }
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().unwrap())
        })
    }

    /// Joins once. Returns `None` if no sample supports the promise.
    fn join(&self, one: &Context, setting: &Setting, seed: u64, recall: f64) -> Result<Option<Reached>> {
        let rule = self.calibrated.then_some(Rule::Union);
        let options =
            JoinOptions { seed, rule, ..JoinOptions::approximate(setting.predicate, JoinEffort::recall(recall)?) };
        match setting.join(one, &options) {
            Err(error) if self.calibrated && error.to_string().contains("cannot be shown to reach") => Ok(None),
            reached => reached.map(Some),
        }
    }
}

/// Returns the fixed seeds, and the random seeds that were drawn when the list was started.
#[allow(clippy::disallowed_methods, reason = "half of the seeds are to be new ones")]
fn seeds(work: &Path) -> std::io::Result<Vec<u64>> {
    let path = work.join("seeds");
    if !path.exists() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64);
        let drawn: Vec<String> = (0..SEEDS).map(|k| (now.wrapping_mul(k + 3) >> 8).to_string()).collect();
        fs::write(&path, drawn.join("\n"))?;
    }
    let drawn = fs::read_to_string(&path)?;
    Ok((1..=SEEDS).chain(drawn.lines().filter_map(|line| line.parse().ok())).collect())
}

/// Returns the line that records a join.
fn line(reached: &Reached) -> String {
    let Reached { statistics, recall: RecallReached { pair, per_vector, per_right_vector } } = reached;
    let per_vector = per_vector.min(*per_right_vector);
    let recall = statistics.common.recall.as_ref().expect("a join reports its recall");
    let [of_pairs, of_left] = [recall.pair, recall.per_vector].map(|of| of.expect("a join has both recalls"));
    // For two sets, it is the interval of the set with the lower recall.
    let of_vectors = recall.per_right_vector.filter(|_| per_right_vector == &per_vector).unwrap_or(of_left);
    format!(
        "{pair},{per_vector},{},{},{},{},{},{},{:.2}",
        of_pairs.low,
        of_pairs.high,
        of_vectors.low,
        of_vectors.high,
        recall.kept,
        reached.compared(),
        statistics.common.seconds.total,
    )
}

/// A recorded run.
struct Run<'a> {
    set: &'a str,
    threshold: &'a str,
    target: f64,
    pair: f64,
    per_vector: f64,
    intervals: [(f64, f64); 2],
    kept: bool,
    compared: f64,
    seconds: f64,
}

impl<'a> Run<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(Self {
            set: fields.first()?,
            threshold: fields.get(1)?,
            target: number(2)?,
            pair: number(4)?,
            per_vector: number(5)?,
            intervals: [(number(6)?, number(7)?), (number(8)?, number(9)?)],
            kept: *fields.get(10)? == "true",
            compared: number(11)?,
            seconds: number(12)?,
        })
    }

    fn reached(&self) -> bool {
        self.pair >= self.target && self.per_vector >= self.target
    }

    fn covered(&self) -> [bool; 2] {
        let within = |value: f64, (low, high): (f64, f64)| low - 1e-9 <= value && value <= high + 1e-9;
        [within(self.pair, self.intervals[0]), within(self.per_vector, self.intervals[1])]
    }
}

fn summarize(list: &str) -> bool {
    let mut lines: Vec<&str> = list.lines().collect();
    lines.sort_unstable();
    let runs: Vec<Run> = lines.into_iter().filter_map(Run::parse).collect();
    println!(
        "set                    threshold   R     runs  reached  intervals hold   pair recall  per vector  compared  seconds"
    );
    let share = |count: usize, of: usize| count as f64 / of.max(1) as f64;
    let mut worst = 20.0f64;
    for group in runs.chunk_by(|a, b| (a.set, a.threshold, a.target) == (b.set, b.threshold, b.target)) {
        let reached = share(group.iter().filter(|run| run.reached()).count(), group.len());
        if group.len() >= 20 {
            worst = worst.min(20.0 * reached);
        }
        let covered = |k: usize| 100.0 * share(group.iter().filter(|run| run.covered()[k]).count(), group.len());
        let mean = |of: fn(&Run) -> f64| group.iter().map(of).sum::<f64>() / group.len() as f64;
        let first = &group[0];
        println!(
            "{:<22} {:<10} {:.2}  {:>5}  {:>5.1} %  {:>5.1} % {:>5.1} %  {:>10.4}  {:>10.4}  {:>8.1}  {:>7.2}",
            first.set,
            first.threshold,
            first.target,
            group.len(),
            100.0 * reached,
            covered(0),
            covered(1),
            mean(|run| run.pair),
            mean(|run| run.per_vector),
            mean(|run| run.compared),
            mean(|run| run.seconds),
        );
    }
    let reached = share(runs.iter().filter(|run| run.reached()).count(), runs.len());
    let covered = share(runs.iter().flat_map(Run::covered).filter(|&covered| covered).count(), 2 * runs.len());
    let kept = runs.iter().all(|run| run.kept);
    println!(
        "{} runs: recall reached in {:.2} %, intervals hold in {:.2} %, said to be kept in all: {kept}",
        runs.len(),
        100.0 * reached,
        100.0 * covered
    );
    println!("refused where no sample supports the promise: {}", list.matches(REFUSED).count());
    println!("in the worst setting {worst:.1} of 20");
    let holds = reached >= REACHED_SHARE && covered >= COVERED_SHARE && worst >= REACHED_OF_20 && kept;
    println!("{}", if holds { "the promise holds" } else { "THE PROMISE DOES NOT HOLD" });
    holds
}
