//! Runs every command with `--memory` on random sets, starting with the smallest budget. The budget that a refusal
//! names must suffice, and so must every larger one. The process must never exceed its budget. GNU `time` measures
//! the peak memory of the process.
//!
//! These environment variables set the number and kind of runs:
//!
//! - `ADJOIN_MEMORY_RUNS`: number of runs
//! - `ADJOIN_MEMORY_SEED`: seed of the first set
//! - `ADJOIN_MEMORY_ONLY`: runs only commands with this text in their name
//! - `ADJOIN_MEMORY_PROGRAM`: path of the program; by default, the program that was built with the test

use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::harness_sets::{Element, IdLength, Shape, write_set};
use crate::options::least_budget;
use crate::place::{Place, Ran, ran, skip};
use adjoin::Random;

/// Default number of runs.
const RUNS: u64 = 0;
/// Options for building the folders, with an ample budget.
const AMPLE: &str = "--memory 2GB --quiet --force";
/// Further budgets to try, as multiples of the budget that a refusal named.
const LARGER: [f64; 4] = [1.07, 1.3, 1.9, 3.5];
/// Maximum number of refusals. After that, the named budget must suffice.
const REFUSALS_MAX: u64 = 1;
/// Budget of the first run.
const FIRST_BUDGET: &str = "19MB";
/// Size of the unit in which GNU `time` reports memory, in bytes.
const KIB: u64 = 1 << 10;
/// Number of bytes by which an unoptimized program may exceed its budget, since its code takes more pages.
const UNOPTIMIZED_BYTES: f64 = 4e6;

/// A command to try. Words in braces in its line are replaced by random choices.
struct Tried {
    name: &'static str,
    line: &'static str,
    /// Folder that the command changes. Every run gets a copy of it.
    changes: Option<&'static str>,
}

const fn reads(name: &'static str, line: &'static str) -> Tried {
    Tried { name, line, changes: None }
}

const fn changes(name: &'static str, line: &'static str, folder: &'static str) -> Tried {
    Tried { name, line, changes: Some(folder) }
}

/// All commands that have `--memory`. Some are listed several times, with different results.
const COMMANDS: &[Tried] = &[
    reads("build", "build set.parquet {columns} -o out.store"),
    changes("append", "append store --new beyond.parquet", "store"),
    reads("join pairs", "join store --eps {eps} {promise} -o out.{table}"),
    reads("join without -o", "join store --eps {eps} {promise}"),
    reads("join counts", "join store --eps {eps} {promise} --result counts -o out.{table}"),
    reads("join clusters", "join store --eps {eps} {promise} --result clusters -o out.{table}"),
    reads("join keep", "join store --eps {eps} {promise} --result removed -o out.{table} --kept kept.{table}"),
    reads("join source", "join set.parquet --eps {eps} {promise} -o out.{table}"),
    reads("join --with", "join store --with other --eps {eps} {promise} -o out.{table}"),
    reads("join --new", "join store --new other --eps {eps} {promise} -o out.{table}"),
    reads("join --where", "join store --where \"number < 500\" --eps {eps} {promise} -o out.{table}"),
    reads("join --neighbors", "join store --neighbors {k_of_all} {promise} -o out.{table}"),
    reads("join --neighbors source", "join set.parquet --neighbors {k_of_all} {promise} -o out.{table}"),
    reads("dedupe", "dedupe set.parquet --eps {eps} -o out.parquet --removed removed.{table}"),
    reads("explain source", "explain set.parquet --eps {eps}"),
    reads("explain store", "explain store --eps {eps}"),
    reads("search", "search store --queries queries.parquet -k {k} {promise} -o out.{table}"),
    reads("search radius", "search store --queries queries.parquet --radius {radius} {promise} -o out.{table}"),
    reads("search --where", "search store --queries queries.parquet -k {k} --where \"number < 500\" -o out.{table}"),
    reads("search itself", "search store --queries store -k {k_of_all} {promise} -o out.{table}"),
    reads("index build", "index build store -o out.index"),
    reads("index build source", "index build set.parquet {columns} -o out.index"),
    changes("index relayout", "index relayout index", "index"),
    reads("search of an index", "search index --queries queries.parquet -k {k} -o out.{table}"),
    reads("search of an index --list", "search index --queries queries.parquet -k 10 --list {k} -o out.{table}"),
    reads("search of an index radius", "search index --queries queries.parquet --radius {radius} -o out.{table}"),
    reads(
        "search of an index --where",
        "search index --queries queries.parquet -k {k} --where \"number < 500\" -o out.{table}",
    ),
    changes("collection write", "collection write live --upsert more.parquet", "live"),
    changes("collection write --delete-where", "collection write live --delete-where \"number < 300\"", "live"),
    changes("collection merge", "collection merge live", "live"),
    reads("search of a collection", "search live --queries queries.parquet -k {k} -o out.{table}"),
    reads("search of a collection radius", "search live --queries queries.parquet --radius {radius} -o out.{table}"),
    reads("search of a collection of new rows", "search fresh --queries queries.parquet -k {k} -o out.{table}"),
    reads("collection snapshot", "collection snapshot live -o out.parquet"),
    reads("collection backup", "collection backup live out.live"),
    reads("join live", "join live --eps {eps} -o out.{table}"),
    reads("verify store", "verify store"),
    reads("verify index", "verify index"),
    reads("verify live", "verify live"),
    reads("copy store", "copy store out.store"),
    reads("copy index", "copy index out.index"),
    reads("copy live", "copy live out.live"),
    reads("report", "report pairs.parquet --names set.parquet --name-column text -o out.html"),
    reads("groundtruth pairs", "groundtruth set.parquet --eps {eps} -o out.{table}"),
    reads("groundtruth sample", "groundtruth set.parquet --eps {eps} --sample 100 -o out.{table}"),
];

/// Maximum number of hits of all rows together.
const ALL_HITS_MAX: u64 = 4_000_000;

/// A failed check.
struct Fault {
    seed: u64,
    name: &'static str,
    line: String,
    what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}: seed {}: adjoin {}", self.name, self.what, self.seed, self.line)
    }
}

/// A folder with a set of vectors, and with all folders that the commands read.
struct Sets {
    place: Place,
    shape: Shape,
    seed: u64,
}

impl Sets {
    fn new(seed: u64) -> Self {
        Self::of(Shape::draw(&mut Random::new(seed, "memory harness")), seed)
    }

    fn of(shape: Shape, seed: u64) -> Self {
        let place = Place::new();
        let quarter_from = |first: u64| first..first + shape.rows / 4 + 1;
        write_set(&place.path("set.parquet"), &shape, 0..shape.rows, seed);
        write_set(&place.path("more.parquet"), &shape, quarter_from(shape.rows - shape.rows / 10), seed + 1);
        write_set(&place.path("beyond.parquet"), &shape, quarter_from(shape.rows), seed + 2);
        write_set(&place.path("queries.parquet"), &shape, 0..shape.queries, seed);
        Self { place, shape, seed }
    }

    /// Builds the folder `name` if it does not exist.
    fn has(&self, name: &str) {
        if self.place.path(name).exists() {
            return;
        }
        let columns = self.shape.columns();
        match name {
            "store" => self.done(&format!("build set.parquet {columns} -o store {AMPLE}")),
            "other" => self.done(&format!("build beyond.parquet {columns} -o other {AMPLE}")),
            "index" => self.done(&format!("index build set.parquet {columns} -o index {AMPLE}")),
            "pairs.parquet" => {
                self.has("store");
                self.done(&format!("join store --eps {} --exact -o pairs.parquet {AMPLE}", self.shape.eps));
            }
            "live" | "fresh" => {
                self.create(name);
                self.done(&format!("collection write {name} --upsert set.parquet --memory 2GB --quiet"));
                if name == "live" {
                    self.done("collection merge live --memory 2GB --quiet");
                    self.done("collection write live --upsert more.parquet --memory 2GB --quiet");
                }
            }
            _ => panic!("{name} is a file of the set"),
        }
    }

    fn create(&self, name: &str) {
        let Shape { dimensions, element, ids, text_bytes, .. } = &self.shape;
        let ids = if matches!(ids, IdLength::Number) { "int64" } else { "text" };
        let columns = if *text_bytes > 0 { "--columns number:int64,text:text" } else { "--columns number:int64" };
        let element = element.name();
        self.done(&format!(
            "collection create {name} --dimensions {dimensions} --element {element} --ids {ids} {columns}"
        ));
    }

    fn done(&self, line: &str) {
        let ran = self.place.run_words(&words(line));
        assert_eq!(ran.code, Some(0), "seed {}: adjoin {line}: {}", self.seed, ran.said);
    }

    /// Returns the line of a command, with random choices in place of the words in braces.
    fn line(&self, command: &Tried, random: &mut Random) -> String {
        let mut chosen = |of: &[&str]| of[random.below(of.len() as u64) as usize].to_owned();
        let table = chosen(&["parquet", "csv", "jsonl"]);
        let promise = chosen(&["", "", "--exact", "--recall 0.8"]);
        let k = chosen(&["1", "10", "100", "1000", "5000"]);
        // If every row is a query, the result must still fit on the disk.
        let k_of_all = k.parse::<u64>().unwrap().min((ALL_HITS_MAX / self.shape.rows).max(1));
        let threads = chosen(&["1", "2", "3"]);
        let Shape { eps, .. } = self.shape;
        let radius = eps * [0.5, 1.0, 4.0, 100.0][random.below(4) as usize];
        let columns = self.shape.columns();
        let said = [
            ("{columns}", columns.to_owned()),
            ("{eps}", eps.to_string()),
            ("{radius}", radius.to_string()),
            ("{promise}", promise),
            ("{table}", table),
            ("{k}", k),
            ("{k_of_all}", k_of_all.to_string()),
        ];
        let line = said.iter().fold(command.line.to_owned(), |line, (word, said)| line.replace(word, said));
        if ["verify", "report", "copy"].iter().any(|name| line.starts_with(name)) {
            line
        } else {
            format!("{line} --threads {threads}")
        }
    }

    /// Runs a command with a budget. If the command changes a folder, that folder is restored first. Also returns the
    /// peak memory of the process in bytes.
    fn run(&self, command: &Tried, line: &str, budget: &str) -> (Ran, u64) {
        self.restore(command);
        for name in self.place.names().iter().filter(|name| is_result(name)) {
            self.place.removed(name);
        }
        let line = format!("{line} --memory {budget}");
        let arguments = words(&line);
        let measured = self.place.path("peak");
        let mut timed = Command::new("/usr/bin/time");
        timed.args(["--quiet", "--format=%M", "--output"]).arg(&measured);
        timed.arg(program()).args(&arguments).current_dir(self.place.path("")).env("TMPDIR", self.place.path(""));
        let ran = ran(timed);
        let peak = std::fs::read_to_string(&measured).unwrap();
        (ran, peak.trim().parse::<u64>().unwrap() * KIB)
    }

    /// Restores the folder that a command changes.
    fn restore(&self, command: &Tried) {
        if let Some(folder) = command.changes {
            self.place.removed(folder);
            copy(&self.place.path(&format!("{folder}.as-it-was")), &self.place.path(folder));
        }
    }

    /// Tries a command with the budget that its refusal names, and with larger ones. Returns the number of runs.
    fn try_command(&self, command: &Tried, random: &mut Random, faults: &mut Vec<Fault>) -> u64 {
        self.prepare(command);
        let runs = self.try_line(command, &self.line(command, random), faults);
        // Later commands read this folder, so it must be unchanged.
        self.restore(command);
        runs
    }

    /// Builds the folders that a command reads.
    fn prepare(&self, command: &Tried) {
        ["store", "other", "index", "live", "fresh", "pairs.parquet"]
            .into_iter()
            .filter(|name| command.line.split(' ').any(|word| word == *name))
            .for_each(|name| self.has(name));
        if let Some(folder) = command.changes {
            let kept = self.place.path(&format!("{folder}.as-it-was"));
            if !kept.exists() {
                copy(&self.place.path(folder), &kept);
            }
        }
    }

    /// Tries one command line with several budgets. Returns the number of runs.
    fn try_line(&self, command: &Tried, line: &str, faults: &mut Vec<Fault>) -> u64 {
        let (mut runs, mut refusals, mut budget) = (0, 0, FIRST_BUDGET.to_owned());
        let mut fault = |budget: &str, what: String| {
            let line = format!("{line} --memory {budget}");
            faults.push(Fault { seed: self.seed, name: command.name, line, what });
        };
        loop {
            let (ran, peak) = self.run(command, line, &budget);
            runs += 1;
            if let Some(what) = over(&ran, peak, &budget) {
                fault(&budget, what);
            }
            if ran.code != Some(2) {
                break;
            }
            if !ran.said.contains("give --memory ") {
                fault(&budget, format!("refused without a budget that would do: {}", ran.said.trim()));
                return runs;
            }
            refusals += 1;
            if refusals == REFUSALS_MAX + 1 {
                fault(&budget, format!("the budget that was named is refused: {}", ran.said.trim()));
            }
            if refusals > 6 {
                return runs;
            }
            budget = least_budget(&ran.said);
        }
        let least: f64 = budget.trim_end_matches("MB").parse().unwrap();
        for times in LARGER {
            let budget = format!("{:.1}MB", least * times);
            let (ran, peak) = self.run(command, line, &budget);
            runs += 1;
            if let Some(what) = over(&ran, peak, &budget) {
                fault(&budget, what);
            } else if ran.code == Some(2) {
                fault(&budget, format!("refused, but {least} MB suffice: {}", ran.said.trim()));
            }
        }
        runs
    }
}

/// Returns a description if a run exceeded its budget or ended with an unexpected code.
fn over(ran: &Ran, peak: u64, budget: &str) -> Option<String> {
    let bytes = budget.trim_end_matches("MB").parse::<f64>().unwrap() * 1e6;
    let is_optimized = !program().contains("/debug/");
    let allowed = bytes + if is_optimized { 0.0 } else { UNOPTIMIZED_BYTES };
    if peak as f64 > allowed {
        return Some(format!("held {:.1} of {budget}, exit code {:?}", peak as f64 / 1e6, ran.code));
    }
    // Code 1 means that the run missed its target for recall or memory. Memory is checked above.
    let ends_well = matches!(ran.code, Some(0..=2));
    (!ends_well).then(|| format!("ended with {:?}: {}", ran.code, ran.said.trim()))
}

/// Returns the path of the program to run.
fn program() -> String {
    std::env::var("ADJOIN_MEMORY_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_adjoin").to_owned())
}

/// Returns whether a file or folder is the result of a run.
fn is_result(name: &str) -> bool {
    ["out.", "kept.", "removed."].iter().any(|start| name.starts_with(start))
}

/// Splits a line into words. Words within quotes are one word.
fn words(line: &str) -> Vec<&str> {
    let parts = line.split('"').enumerate();
    parts.flat_map(|(k, part)| if k % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }).collect()
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &target) } else { std::fs::copy(&path, &target).map(drop).unwrap() }
    }
}

/// Returns the number in an environment variable, or `otherwise` if it is not set.
fn number_of(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |number| number.parse().unwrap())
}

/// Returns whether the peak memory of a process can be measured.
fn can_measure() -> bool {
    let there = Path::new("/usr/bin/time").exists();
    if !there {
        skip("time", "there is no GNU time, which reads the peak of a process");
    }
    there
}

/// Checks searches with long ids. The hits of 20 queries have ids of 20 MB in total.
#[test]
fn searches_with_long_ids_fit_the_suggested_budget() {
    if !can_measure() {
        return;
    }
    let mut shape = Shape::draw(&mut Random::new(1, "long ids"));
    (shape.rows, shape.distinct, shape.queries, shape.dimensions) = (2_000, 2_000, 20, 8);
    (shape.element, shape.ids, shape.text_bytes) = (Element::U8, IdLength::Text(2_000), 0);
    let (sets, mut faults) = (Sets::of(shape, 1), Vec::new());
    for (folder, line) in [("store", "search store"), ("index", "search index"), ("live", "search live")] {
        sets.has(folder);
        let line = format!("{line} --queries queries.parquet -k 500 -o out.csv --threads 1");
        sets.try_line(&reads("long ids", ""), &line, &mut faults);
    }
    assert!(faults.is_empty(), "{}", in_lines(&faults));
}

/// Checks merges of rows with long ids and columns. Both affect the peak memory and the budget that a refusal names.
#[test]
fn merges_with_long_ids_and_columns_fit_the_suggested_budget() {
    if !can_measure() {
        return;
    }
    let mut shape = Shape::draw(&mut Random::new(1, "long rows"));
    (shape.rows, shape.distinct, shape.queries, shape.dimensions) = (1_500, 1_500, 1, 8);
    (shape.element, shape.ids, shape.text_bytes) = (Element::U8, IdLength::Text(2_000), 3_000);
    let (sets, mut faults) = (Sets::of(shape, 1), Vec::new());
    let merge = COMMANDS.iter().find(|command| command.name == "collection merge").expect("a command of the list");
    sets.prepare(merge);
    for method in ["fastest", "build"] {
        sets.try_line(merge, &format!("{} --method {method} --threads 1", merge.line), &mut faults);
    }
    assert!(faults.is_empty(), "{}", in_lines(&faults));
}

fn in_lines(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("{fault}\n")).collect()
}

#[test]
fn every_command_fits_the_budgets_that_it_accepts() {
    if !can_measure() {
        return;
    }
    let (most, first) = (number_of("ADJOIN_MEMORY_RUNS", RUNS), number_of("ADJOIN_MEMORY_SEED", 1));
    let only = std::env::var("ADJOIN_MEMORY_ONLY").unwrap_or_default();
    let commands: Vec<&Tried> = COMMANDS.iter().filter(|command| command.name.contains(&only)).collect();
    let (mut runs, mut faults) = (0, Vec::new());
    for seed in (first..).take_while(|_| most > 0) {
        let sets = Sets::new(seed);
        let mut random = Random::new(seed, "commands");
        let mut order = commands.clone();
        random.shuffle(&mut order);
        for command in order {
            let before = faults.len();
            runs += sets.try_command(command, &mut random, &mut faults);
            faults[before..].iter().for_each(|fault| println!("{fault}: {:?}", sets.shape));
            if runs >= most {
                break;
            }
        }
        if runs >= most {
            break;
        }
    }
    println!("{runs} runs, {} faults", faults.len());
    assert!(faults.is_empty(), "{}", in_lines(&faults));
}
