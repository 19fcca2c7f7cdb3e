//! Runs that are interrupted. The exit code must identify the signal, and no temporary files may be left.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::place::Place;

/// Time limit for an event that never occurs. It is so long that it is not reached on a slow machine.
const PATIENCE: Duration = Duration::from_secs(1_800);
/// Number of rows of the first set, and number of sets to try. Each set has twice as many rows as the previous one.
const ROWS: usize = 200_000;
const ATTEMPTS: usize = 3;

/// Interrupts runs of `line` as soon as `begun` returns true. The folder has the source `set.fbin` and a `store` of
/// it.
fn interrupt(line: &str, begun: impl Fn(&Place) -> bool) {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let ended = (0..ATTEMPTS).find_map(|attempt| interrupt_once(line, ROWS << attempt, signal, &begun));
        let output = ended.unwrap_or_else(|| panic!("{line} always ends before it can be interrupted"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert_eq!(said.lines().last(), Some("adjoin: interrupted; temporary files are removed"), "{line}");
    }
}

/// Interrupts one run. Returns `None` if it ended before the signal.
fn interrupt_once(line: &str, rows: usize, signal: Signal, begun: &impl Fn(&Place) -> bool) -> Option<Output> {
    let place = Place::new();
    place.done(&format!("gen --rows {rows} --dimensions 64 -o set.fbin --quiet"));
    if line.contains("store") && !line.starts_with("build") {
        place.done("build set.fbin --buckets 100 -o store --quiet");
    }
    let before = place.listing();
    let words: Vec<&str> = line.split(' ').collect();
    let mut child = place.command(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    if !wait_until_begun(&mut child, || begun(&place)) {
        assert!(child.wait().unwrap().success(), "{line}");
        return None;
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.success() {
        return None;
    }
    assert_eq!(place.listing(), before, "{line}");
    Some(output)
}

/// Waits until `begun` returns true. Returns false if the run ended before.
pub(crate) fn wait_until_begun(child: &mut Child, begun: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !begun() {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(started.elapsed() < PATIENCE, "the phase never begins");
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Returns whether the folder contains a file or folder with `part` in its path.
pub(crate) fn holds(place: &Place, part: &str) -> bool {
    holds_one(place, |path| path.to_string_lossy().contains(part))
}

/// Returns whether the folder contains a file or folder for which `is_it` returns true.
pub(crate) fn holds_one(place: &Place, is_it: impl Fn(&Path) -> bool) -> bool {
    // Unlike a full listing, this works if files appear and disappear meanwhile.
    let mut waiting = vec![place.path("")];
    while let Some(folder) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        if paths.iter().any(|path| is_it(path)) {
            return true;
        }
        waiting.extend(paths.into_iter().filter(|path| path.is_dir()));
    }
    false
}

/// Returns how many times the signal thread of a process has waited so far. Returns `None` if it is not waiting now.
fn watcher_waits(process: u32) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let file = |task: &Path, name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
    let watcher = tasks.flatten().map(|task| task.path()).find(|task| file(task, "comm").trim() == "signals")?;
    let status = file(&watcher, "status");
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    field("State:")?.starts_with('S').then(|| field("voluntary_ctxt_switches:")?.parse().ok())?
}

#[test]
fn a_build_is_interrupted() {
    interrupt("build set.fbin -o fresh", |place| place.path("fresh").is_dir());
}

#[test]
fn a_build_is_interrupted_while_it_writes() {
    interrupt("build set.fbin -o fresh --buckets 300", |place| holds(place, ".partial/vectors.bin"));
}

#[test]
fn an_interrupted_forced_build_keeps_the_old_store() {
    let place = Place::new();
    place.done("gen --rows 200000 --dimensions 64 -o set.fbin --quiet");
    place.done("gen --rows 100 --dimensions 4 -o small.fbin --quiet");
    place.done("build small.fbin -o store --quiet");
    let before = place.listing();
    let words = ["build", "set.fbin", "-o", "store", "--force", "--threads", "1"];
    let mut child = place.command(&words).stderr(Stdio::null()).spawn().unwrap();
    // The draft appears before the source is read. When it exists, a signal arrives during the build.
    let is_new = |path: &Path| !before.iter().any(|(old, _)| path.ends_with(old));
    assert!(wait_until_begun(&mut child, || holds_one(&place, is_new)), "it ends before it can be interrupted");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(place.listing(), before);
    assert!(place.done("info store").out.contains("100 of 4 x f32"));
}

#[test]
fn a_join_of_a_source_is_interrupted_while_it_builds() {
    interrupt("join set.fbin --eps 3 -o pairs.parquet", |place| holds(place, ".adjoin-store-"));
}

#[test]
fn a_join_of_a_store_is_interrupted_while_it_compares() {
    for ending in ["parquet", "csv"] {
        interrupt(&format!("join store --eps 3 -o pairs.{ending}"), |place| holds(place, ".partial"));
    }
}

/// Starts a join through `env` with an option that sets how signals are handled. Sends SIGHUP while the join builds
/// its store.
fn hung_up(env: &str) -> Option<(Place, Output)> {
    if !Command::new("env").args([env, "true"]).status().is_ok_and(|status| status.success()) {
        println!("skipped: env does not know {env}");
        return None;
    }
    let place = Place::new();
    place.done("gen --rows 200000 --dimensions 64 -o set.fbin --quiet");
    let mut command = Command::new("env");
    command.args([env, env!("CARGO_BIN_EXE_adjoin"), "join", "set.fbin", "--eps", "0.1", "-o", "pairs.csv"]);
    command.current_dir(place.path("")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stderr.take()); // nothing reads the messages any more, as if the terminal had been closed
    assert!(wait_until_begun(&mut child, || holds(&place, ".adjoin-store-")), "it ends before it can be hung up");
    kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
    let output = child.wait_with_output().unwrap();
    Some((place, output))
}

#[test]
fn a_closed_terminal_interrupts_a_join() {
    let Some((place, output)) = hung_up("--default-signal=HUP") else { return };
    assert_eq!(output.status.code(), Some(129));
    assert_eq!(place.listing().len(), 1, "{:?}", place.listing());
}

#[test]
fn a_join_started_with_nohup_survives_a_closed_terminal() {
    let Some((place, output)) = hung_up("--ignore-signal=HUP") else { return };
    assert_eq!(output.status.code(), Some(0));
    assert!(place.text("pairs.csv").starts_with("left_id,right_id,distance\n") && place.listing().len() == 2);
}

#[test]
fn a_join_is_interrupted_while_it_sorts_pairs() {
    let line = "join store --eps 3 --exact --result removed -o gone.csv --kept kept.csv --memory 64MB";
    interrupt(line, |place| holds(place, ".adjoin-sorted-"));
}

#[test]
fn a_ground_truth_is_interrupted() {
    interrupt("groundtruth set.fbin --eps 3 -o pairs.parquet", |place| holds(place, ".partial"));
}

#[test]
fn a_join_is_interrupted_along_with_its_reader() {
    let place = Place::new();
    place.done("gen --rows 3000 --dimensions 4 -o set.fbin --quiet");
    let before = place.listing();
    let words = ["join", "set.fbin", "--eps", "100", "-o", "-"];
    let mut child = place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    // The remaining pairs do not fit in a pipe, so from now on the join waits for its reader.
    std::io::BufRead::read_line(&mut reader, &mut String::new()).unwrap();
    let pid = child.id();
    assert!(wait_until_begun(&mut child, || watcher_waits(pid).is_some()));
    let waits = watcher_waits(pid);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    // When the signal thread waits again, it has handled this signal.
    assert!(wait_until_begun(&mut child, || watcher_waits(pid) > waits));
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(place.listing(), before);
}

#[test]
fn the_generation_of_a_set_is_interrupted() {
    let place = Place::new();
    let before = place.listing();
    let mut child = place
        .command(&["gen", "--rows", "4000000", "--dimensions", "64", "-o", "big.fbin", "--quiet"])
        .spawn()
        .unwrap();
    assert!(wait_until_begun(&mut child, || holds(&place, ".partial")));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(place.listing(), before);
}

#[test]
fn progress_is_printed_to_standard_error_line_by_line() {
    let place = Place::new();
    // Interrupts the run after it has printed its first line of progress.
    let words = ["gen", "--rows", "1000000000", "--dimensions", "2", "--element", "u8", "-o", "big.u8bin"];
    let mut child = place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let line = lines.next().unwrap().unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(
        line.starts_with("generate: ") && line.contains(" of 1,000,000,000 rows, ") && line.ends_with(" s left"),
        "{line}"
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0));
    assert!(place.listing().is_empty());
}
