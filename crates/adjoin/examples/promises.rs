//! Is the promise of recall kept? Joins whole real sets many times, each with a sample of another seed, and compares
//! what was found with the truth.
//!
//! `promises DATA WORK`: DATA holds the sets, WORK the stores, the truth and one line for each run in `runs.csv`. Runs
//! that are listed there are not made again, so it can be interrupted; the summary at the end is of all of them.
//! The calibrated rule is forced: where it would cost less to find every pair, a user gets every pair.

#![allow(clippy::unwrap_used, reason = "a poisoned lock is a bug here")]
#![allow(clippy::disallowed_methods, reason = "half of the seeds are to be new ones")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::join::{Aim, JoinOptions, join, prepare};
use adjoin::plan::Rule;
use adjoin::predicate::Predicate;
use adjoin::report::Statistics;
use adjoin::sink::{PairBatch, PairSink};
use adjoin::source::{self, SourceOptions};
use adjoin::store::{BuildOptions, Store, build};
use adjoin::truth::{GroundtruthOptions, groundtruth};

/// Sets and thresholds: those with 1, 10 and 100 neighbours a vector on average, and round ones.
const SETTINGS: [(&str, &[f64]); 5] = [
    ("sift-200k.u8bin", &[62.426, 126.566, 226.555]),
    ("sift-stars-50k.u8bin", &[43.243, 77.569, 174.880]),
    ("debdesc.f16.npy", &[0.9416, 0.7296, 0.5118, 0.95, 0.9, 0.85, 0.8]),
    ("wordnet-20k.f16.npy", &[0.6613, 0.526, 0.3938, 0.95, 0.9, 0.85, 0.8]),
    ("sift-900k.u8bin", &[79.793]),
];
const RECALLS: [f64; 4] = [0.8, 0.9, 0.95, 0.99];
/// Seeds that are always the same; as many more are drawn for a new `runs.csv`.
const SEEDS: u64 = 20;
const SEEDS_AT_ONCE: usize = 5;
/// Of the runs of a setting, at least so many of 20 must reach the recall; of all runs, at least these shares.
const REACHED_OF_20: f64 = 15.0;
const REACHED_SHARE: f64 = 0.93;
const COVERED_SHARE: f64 = 0.92;
const MEMORY: u64 = 8 << 30;

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [data, work] = arguments.as_slice() else {
        eprintln!("usage: promises DATA WORK");
        std::process::exit(2);
    };
    match run(data, work) {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("promises: {error}");
            std::process::exit(2);
        }
    }
}

fn run(data: &Path, work: &Path) -> Result<bool> {
    let failed = |error: std::io::Error| Error::device(format!("{}: {error}", work.display()));
    fs::create_dir_all(work).map_err(failed)?;
    let context = Context::default().with_memory(MEMORY);
    let list = work.join("runs.csv");
    let done = fs::read_to_string(&list).unwrap_or_default();
    let seeds = seeds(work).map_err(failed)?;
    let settings = SETTINGS.iter().flat_map(|&(name, all)| all.iter().map(move |&threshold| (name, threshold)));
    let settings: Vec<_> = settings.filter(|(name, _)| data.join(name).exists()).collect();
    // Some seeds of every setting before more of any, so that an early stop leaves a fair picture.
    for seeds in seeds.chunks(SEEDS_AT_ONCE) {
        for &(name, threshold) in &settings {
            let mut setting = None;
            let keys = RECALLS.iter().flat_map(|recall| seeds.iter().map(move |seed| (*recall, *seed)));
            for (recall, seed) in keys {
                let key = format!("{name},{threshold},{recall},{seed},");
                if done.lines().any(|line| line.starts_with(&key)) {
                    continue;
                }
                let setting = match &mut setting {
                    Some(setting) => setting,
                    none => none.insert(Setting::open(&context, &data.join(name), work, threshold)?),
                };
                let line = setting.measure(&context, recall, seed)?;
                let file = fs::OpenOptions::new().create(true).append(true).open(&list);
                file.and_then(|mut file| writeln!(file, "{key}{line}")).map_err(failed)?;
            }
        }
    }
    Ok(summarise(&fs::read_to_string(&list).map_err(failed)?))
}

/// Fixed seeds, and as many drawn when the list was begun.
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

/// A set with its truth at one threshold.
struct Setting {
    store: Store,
    predicate: Predicate,
    /// Neighbours of each row.
    truth: Vec<u32>,
}

/// Counts the neighbours of each row.
struct Neighbours(Arc<Mutex<Vec<u32>>>);

impl PairSink for Neighbours {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        let mut counts = self.0.lock().unwrap();
        batch.left_rows.iter().chain(&batch.right_rows).for_each(|&row| counts[row as usize] += 1);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        Ok(0)
    }
}

impl Setting {
    fn open(context: &Context, file: &Path, work: &Path, threshold: f64) -> Result<Self> {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let predicate = if name.ends_with(".npy") { Predicate::cosine(threshold)? } else { Predicate::l2(threshold)? };
        let names = [file.to_string_lossy().into_owned()];
        let source = source::open(context.device.clone(), &names, &SourceOptions::default())?;
        let folder = work.join(format!("{name}.store"));
        if !adjoin::store::is_store(context, &folder)? {
            let options = BuildOptions { metric: predicate.metric(), ..BuildOptions::default() };
            build(context, &*source, &folder, &options)?;
        }
        let store = Store::open(context, &folder)?;
        let at = work.join(format!("{name}-{threshold}.truth"));
        let truth = match fs::read(&at) {
            Ok(bytes) => bytes.as_chunks().0.iter().map(|&count| u32::from_le_bytes(count)).collect(),
            Err(_) => {
                let counts = Arc::new(Mutex::new(vec![0; source.info().rows as usize]));
                let options = GroundtruthOptions { predicate, sample: None, seed: 1 };
                groundtruth(context, &*source, &options, Box::new(Neighbours(counts.clone())))?;
                let truth = std::mem::take(&mut *counts.lock().unwrap());
                let bytes: Vec<u8> = truth.iter().flat_map(|count: &u32| count.to_le_bytes()).collect();
                fs::write(&at, bytes).map_err(|error| Error::device(format!("{}: {error}", at.display())))?;
                truth
            }
        };
        println!("{name} at {threshold}: {} pairs", truth.iter().map(|&count| u64::from(count)).sum::<u64>() / 2);
        Ok(Self { store, predicate, truth })
    }

    /// Joins once; what is to be noted of it.
    fn measure(&self, context: &Context, recall: f64, seed: u64) -> Result<String> {
        let options = JoinOptions {
            rule: Some(Rule::Union),
            seed,
            ..JoinOptions::approximate(self.predicate, Aim::recall(recall)?)
        };
        let counts = Arc::new(Mutex::new(vec![0; self.truth.len()]));
        let prepared = prepare(context, &self.store, &options, false)?;
        let sink = Box::new(Neighbours(counts.clone()));
        let statistics = join(context, &self.store, &prepared, &options, sink)?;
        let found = counts.lock().unwrap();
        Ok(line(&statistics, &self.truth, &found))
    }
}

fn line(statistics: &Statistics, truth: &[u32], found: &[u32]) -> String {
    let sum = |counts: &[u32]| counts.iter().map(|&count| f64::from(count)).sum::<f64>();
    let shares = truth.iter().zip(found).filter(|(truth, _)| **truth > 0);
    let shares: Vec<f64> = shares.map(|(&truth, &found)| f64::from(found) / f64::from(truth)).collect();
    let pair = if sum(truth) > 0.0 { sum(found) / sum(truth) } else { 1.0 };
    let per_vector = if shares.is_empty() { 1.0 } else { shares.iter().sum::<f64>() / shares.len() as f64 };
    let recall = statistics.recall.as_ref().expect("a join tells its recall");
    format!(
        "{pair},{per_vector},{},{},{},{},{},{},{:.2}",
        recall.pair.low,
        recall.pair.high,
        recall.per_vector.low,
        recall.per_vector.high,
        recall.kept,
        statistics.candidate_pairs.unwrap_or(0) as f64 / statistics.rows as f64,
        statistics.seconds.total,
    )
}

/// A run as noted.
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

fn summarise(list: &str) -> bool {
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
        worst = worst.min(20.0 * reached);
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
    println!("in the worst setting {worst:.1} of 20");
    let holds = reached >= REACHED_SHARE && covered >= COVERED_SHARE && worst >= REACHED_OF_20 && kept;
    println!("{}", if holds { "the promise holds" } else { "THE PROMISE DOES NOT HOLD" });
    holds
}
