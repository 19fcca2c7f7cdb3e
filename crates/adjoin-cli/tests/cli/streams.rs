//! Standard output and standard error: what is written to each, and what happens if one is closed or full.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::place::{Place, SmallDisk};

fn with_set_and_store() -> Place {
    let place = Place::new();
    place.done("gen --rows 3000 --dimensions 4 -o set.fbin");
    place.done("build set.fbin -o store");
    place
}

#[test]
fn progress_for_programs_is_an_object_per_line() {
    let place = with_set_and_store();
    let ran = place.done("join store --eps 1 -o pairs.csv --progress json");
    let objects = ran.said.lines().filter(|line| line.starts_with('{'));
    let objects: Vec<Value> = objects.map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_phases: Vec<&Value> = objects.iter().filter(|object| object["event"] == "progress").collect();
    assert!(of_phases.len() >= 2, "{}", ran.said);
    for pair in of_phases.windows(2) {
        let [before, after] = [pair[0], pair[1]];
        let [from, to] = [before, after].map(|object| object["done"].as_u64().unwrap());
        assert!(before["phase"] != after["phase"] || from <= to, "{}", ran.said);
        assert!(after["phase"].is_string() && after["unit"].is_string() && after["total"].is_u64(), "{}", ran.said);
    }
    let quiet = place.done("join store --eps 1 -o pairs.csv --force --progress json --quiet");
    assert_eq!(quiet.said, "");
}

#[test]
fn quiet_commands_print_nothing() {
    let place = Place::new();
    for line in [
        "gen --rows 500 --dimensions 4 -o set.fbin",
        "build set.fbin -o store",
        "join store --eps 1 -o pairs.parquet --stats stats.json",
        "join set.fbin --eps 1 -o pairs.csv",
        "groundtruth set.fbin --eps 1 -o truth.csv",
    ] {
        let ran = place.done(&format!("{line} --quiet"));
        assert_eq!((ran.out.as_str(), ran.said.as_str()), ("", ""), "{line}");
    }
}

#[test]
fn standard_output_carries_results_only() {
    let place = with_set_and_store();
    for line in [
        "build set.fbin -o other",
        "join store --eps 1 -o a.csv",
        "groundtruth set.fbin --eps 1 -o b.csv",
        "gen --rows 5 --dimensions 4 -o c.npy",
    ] {
        let ran = place.done(line);
        assert!(ran.out.is_empty() && !ran.said.is_empty(), "{line}");
    }
    for line in ["join store --eps 0.2 -o -", "groundtruth set.fbin --eps 0.2 -o -"] {
        let ran = place.done(line);
        assert!(
            ran.out.starts_with("left_id,right_id,distance\n")
                && ran.out.lines().skip(1).all(|line| line.matches(',').count() == 2)
        );
        assert!(ran.said.contains(" pairs"), "{}", ran.said);
    }
    let help = place.done("join --help");
    assert!(help.out.contains("--min-similarity") && help.said.is_empty());
    assert!(place.done("--version").out.starts_with("adjoin "));
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_error() {
    let place = with_set_and_store();
    let before = place.listing();
    for line in ["join store --eps 100 -o -", "join set.fbin --eps 100 -o -", "groundtruth set.fbin --eps 100 -o -"] {
        let words: Vec<&str> = line.split(' ').collect();
        let mut child = place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), first.as_str()), (Some(0), "left_id,right_id,distance\n"), "{line}");
        assert!(output.stderr.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(place.listing(), before, "{line}");
    }
    for line in ["info store", "info store --json", "explain store --eps 1", "join --help"] {
        let words: Vec<&str> = line.split(' ').collect();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.command(&words).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output();
        let output = output.unwrap();
        assert!(output.status.code() == Some(0) && output.stderr.is_empty(), "{line}");
    }
}

/// Checks a reader that closes the pipe early. Only the output to the pipe ends; other requested files are still
/// written.
#[test]
fn other_outputs_are_written_if_the_reader_closes_the_pipe() {
    let place = with_set_and_store();
    place.done("join store --eps 2 --result removed -o gone.csv --kept expected.csv");
    place.write("kept.csv", b"old");
    let pairs = "join store --eps 100 -o - --force";
    for (line, written) in [
        (format!("{pairs} --stats stats.json"), &["stats.json"][..]),
        (format!("{pairs} --trace trace.txt --stats stats.json"), &["trace.txt", "stats.json"]),
        ("join store --eps 2 --result removed -o - --kept kept.csv --force --stats stats.json".into(), &["kept.csv"]),
        ("join store --eps 2 --result counts -o - --stats stats.json --force".into(), &["stats.json"]),
        ("join store --eps 2 --result clusters -o - --stats stats.json --force".into(), &["stats.json"]),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let words: Vec<&str> = line.split(' ').collect();
        let output = place.command(&words).stdout(writer).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {said}");
        assert!(said.contains("standard output was closed"), "{line}: {said}");
        for name in written {
            assert!(place.read(name).len() > 100, "{line}: {name}");
        }
        if line.contains("--stats") {
            assert!(place.text("stats.json").contains("\"pairs\": "), "{line}");
            std::fs::remove_file(place.path("stats.json")).unwrap();
        }
    }
    assert_eq!(place.text("kept.csv"), place.text("expected.csv"));
    assert!(!place.listing().iter().any(|(path, _)| path.to_string_lossy().contains(".partial")));
}

#[test]
fn a_full_disk_is_reported_in_one_line() {
    let place = with_set_and_store();
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else {
        println!("skipped: this system has no /dev/full");
        return;
    };
    let before = place.listing();
    for line in [
        "join store --eps 100 -o -",
        "join set.fbin --eps 0 -o -",
        "groundtruth set.fbin --eps 1 -o -",
        "info store",
        "info store --json",
        "explain store --eps 1",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = place.command(&words).stdout(full.try_clone().unwrap()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{line}: {said}");
        assert!(said.starts_with("adjoin: cannot write standard output: ") && said.contains("No space left"), "{said}");
        assert_eq!(place.listing(), before, "{line}");
    }
}

#[test]
fn failed_writes_to_a_full_disk_leave_no_files() {
    let place = with_set_and_store();
    let Some(_disk) = SmallDisk::new(&place, 32 << 10) else { return };
    for line in [
        "build set.fbin -o disk/store",
        "join store --eps 100 --yes --quiet -o disk/pairs.parquet",
        "join store --eps 100 --yes --quiet -o disk/pairs.csv",
        "join store --eps 100 --yes --quiet -o disk/pairs.jsonl",
        "join set.fbin --eps 1 --yes --quiet -o disk/pairs.parquet",
        "groundtruth set.fbin --eps 100 -o disk/pairs.parquet",
    ] {
        place.refused(line, &["No space left"]);
    }
    place.refused("join store --eps 100 -o disk/pairs.csv", &["disk/pairs.csv needs about", "--yes"]);
    place.refused("gen --rows 5000 --dimensions 4 -o disk/a.fbin", &["disk/a.fbin needs 80.0 kB", "free"]);
    place.done("join store --eps 0.001 -o disk/pairs.parquet");
}
