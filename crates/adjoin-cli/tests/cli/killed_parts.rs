//! Joins and builds in parts whose processes are killed. A process is killed once it has transferred a random number of
//! bytes, which does not depend on the speed of the machine. The same command must then give the bytes of an
//! uninterrupted run.

use std::process::Stdio;

use adjoin::Random;

use crate::place::{Place, skip};

/// Number of processes to kill per command: by default, and with `ADJOIN_EVERY_FAULT`.
const KILLS: (usize, usize) = (6, 100);

/// Returns the number of bytes and of calls by which a process has read and written so far. Returns `None` if the system
/// does not report it.
fn transferred(process: u32) -> Option<u64> {
    let counts = std::fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    counts.lines().map(|line| line.split_once(": ")?.1.parse::<u64>().ok()).sum()
}

/// Runs a command, and kills it once it has transferred more than `most`. Returns whether it was killed, and the amount
/// that it has transferred.
fn killed_after(place: &Place, line: &str, most: u64) -> (bool, u64) {
    let words: Vec<&str> = line.split(' ').collect();
    let mut child = place.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut amount = 0;
    while child.try_wait().unwrap().is_none() {
        amount = transferred(child.id()).unwrap_or(amount);
        if amount > most {
            let _ = child.kill();
            break;
        }
        std::thread::yield_now();
    }
    let status = child.wait().unwrap();
    assert!(status.code().is_none_or(|code| code == 0), "{line}: {status}");
    (status.code().is_none(), amount)
}

/// Kills runs of `line`, which writes `result`, at random moments. Checks that the result is complete if the file
/// `last` exists, and that the next run has the bytes and files of an uninterrupted run.
fn kill_and_run_again(place: &Place, line: &str, result: &str, last: &str) {
    let (_, whole) = killed_after(place, line, u64::MAX);
    if whole == 0 {
        return skip("procfs", "the system does not report the bytes that a process transfers");
    }
    let (expected, names) = (place.tree(result), names(place));
    assert!(!expected.is_empty());
    let mut random = Random::new(1, line);
    let kills = if std::env::var_os("ADJOIN_EVERY_FAULT").is_some() { KILLS.1 } else { KILLS.0 };
    let mut killed = 0;
    for _ in 0..kills {
        place.removed(result);
        killed += usize::from(killed_after(place, line, random.below(whole)).0);
        let left = place.tree(result);
        let is_complete = expected.iter().all(|file| left.contains(file));
        assert!(is_complete || !place.path(last).exists(), "{line}: an incomplete result has appeared");
        place.done(line);
        assert!(place.tree(result) == expected, "{line}: another result after a kill");
        assert_eq!(self::names(place), names, "{line}: leftovers of the killed run");
    }
    assert!(killed > 0, "{line}: no run was killed");
}

/// Returns the names of all files and folders.
fn names(place: &Place) -> Vec<std::path::PathBuf> {
    place.listing().into_iter().map(|(path, _)| path).collect()
}

#[test]
fn killed_parts_of_a_join_and_its_killed_merge_run_again() {
    let place = Place::on_disk();
    place.done("gen --rows 20000 --dimensions 32 -o set.fbin");
    place.done("build set.fbin -o set.store");
    place.done("plan set.store --eps 2.0 --parts 2 -o set.plan");
    for part in 1..=2 {
        let line = format!("run-part set.plan --part {part}/2 -o parts --memory 60MB");
        let file = format!("parts/part-0000{part}-of-00002");
        kill_and_run_again(&place, &line, &file, &file);
    }
    kill_and_run_again(
        &place,
        "merge set.plan parts -o pairs.parquet --force --memory 60MB",
        "pairs.parquet",
        "pairs.parquet",
    );
    place.done("merge set.plan parts --result removed -o removed.csv");
    place.done("join set.store --eps 2.0 --result removed -o one.csv");
    assert!(place.text("removed.csv") == place.text("one.csv"));
}

#[test]
fn killed_parts_of_a_build_and_its_killed_merge_run_again() {
    let place = Place::on_disk();
    place.done("gen --rows 20000 --dimensions 32 -o set.fbin");
    place.done("plan-build set.fbin --parts 2 -o set.plan");
    for part in 1..=4 {
        let line = format!("run-part set.plan --part {part}/4 -o parts --memory 60MB");
        let file = format!("parts/part-0000{part}-of-00004");
        kill_and_run_again(&place, &line, &file, &file);
    }
    let merge = "merge set.plan parts -o merged.store --force --memory 60MB";
    kill_and_run_again(&place, merge, "merged.store", "merged.store/manifest.json");
    place.done("build set.fbin -o one.store");
    assert!(place.names_and_bytes("merged.store") == place.names_and_bytes("one.store"));
}
