//! Leftovers of killed runs. The next run must remove them, but no files of running processes. Also tests which
//! folder is used for temporary files.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use adjoin::device::{Operation, Trace};
use rustix::process::{Pid, Signal, kill_process};

use crate::place::Place;
use crate::signals::{holds, holds_one, wait_until_begun};

/// Starts a run, and stops it with a signal as soon as `begun` returns true.
fn stopped(place: &Place, line: &str, begun: impl Fn() -> bool) -> Child {
    let words: Vec<&str> = line.split(' ').collect();
    let mut child = place.command(&words).stderr(Stdio::null()).spawn().unwrap();
    assert!(wait_until_begun(&mut child, begun), "{line} ends too soon");
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    child
}

fn go_on(mut child: Child) -> Option<i32> {
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    child.wait().unwrap().code()
}

/// Starts a run repeatedly, and kills it after each of these delays in milliseconds.
fn kill_after(place: &Place, line: &str, delays_ms: &[u64]) {
    let words: Vec<&str> = line.split(' ').collect();
    for &delay in delays_ms {
        let mut child = place.command(&words).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn names(place: &Place, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(folder)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_next_join_removes_leftovers_of_killed_joins() {
    let place = Place::new();
    place.done("gen --rows 60000 --dimensions 32 -o set.fbin --quiet");
    let line = "join set.fbin --eps 0.4 --exact --result removed -o gone.csv --kept kept.csv --trace trace.txt --force";
    for part in [".adjoin-store-", "vectors.bin", ".adjoin-result-", ".adjoin-trace-"] {
        let mut child = stopped(&place, line, || holds(&place, part));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    kill_after(&place, line, &[5, 10, 20, 40, 80, 160, 320]);
    place.done(line);
    assert_eq!(names(&place, ""), ["gone.csv", "kept.csv", "set.fbin", "trace.txt"]);
}

#[test]
fn the_next_build_removes_leftovers_of_killed_builds() {
    let place = Place::new();
    place.done("gen --rows 60000 --dimensions 32 -o set.fbin --quiet");
    place.done("gen --rows 100 --dimensions 32 -o small.fbin --quiet");
    place.done("build small.fbin -o store --quiet");
    let line = "build set.fbin -o store --force";
    for part in ["writer.lock", ".adjoin-build-", "/vectors.bin"] {
        let mut child = stopped(&place, line, || holds(&place, part));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    kill_after(&place, line, &[10, 40, 160, 320]);
    place.done("build small.fbin -o store --force");
    assert_eq!(names(&place, "store").len(), 4, "{:?}", names(&place, "store"));
    assert!(place.done("verify store").out.starts_with("sound"));
}

#[test]
fn temporary_files_of_a_running_join_are_kept() {
    let place = Place::new();
    place.done("gen --rows 60000 --dimensions 32 -o set.fbin --quiet");
    place.done("gen --rows 100 --dimensions 32 -o small.fbin --quiet");
    // The owner of a folder is known once the lock file has content. Before that, another process may take the
    // folder, and then the owner creates another one.
    let is_owned = |path: &Path| path.ends_with("owner.lock") && path.metadata().is_ok_and(|facts| facts.len() > 0);
    let is_owned_result = |path: &Path| path.to_string_lossy().contains(".adjoin-result-") && is_owned(path);
    let moments: [&dyn Fn() -> bool; 2] = [&|| holds(&place, "/vectors.bin"), &|| holds_one(&place, is_owned_result)];
    for (number, moment) in moments.into_iter().enumerate() {
        let line = format!("join set.fbin --eps 0.4 -o large-{number}.csv");
        let child = stopped(&place, &line, moment);
        let before = place.listing();
        place.done("join small.fbin --eps 0.4 -o pairs.csv --force");
        let kept = place.listing();
        assert!(
            before.iter().all(|(path, _)| kept.iter().any(|(there, _)| there == path)),
            "{before:?}, then {kept:?}"
        );
        assert_eq!(go_on(child), Some(0), "{line}");
    }
    assert_eq!(names(&place, ""), ["large-0.csv", "large-1.csv", "pairs.csv", "set.fbin", "small.fbin"]);
}

#[test]
fn a_refused_second_build_names_the_running_process() {
    let place = Place::new();
    place.done("gen --rows 60000 --dimensions 32 -o set.fbin --quiet");
    place.done("gen --rows 100 --dimensions 32 -o small.fbin --quiet");
    for force in ["", " --force"] {
        let child = stopped(&place, &format!("build set.fbin -o store{force}"), || holds(&place, ".adjoin-build-"));
        let process = format!("store is being written by process {} on host ", child.id());
        let words = [&process, " since 20", " UTC; wait until it is done, or choose another folder"];
        place.refused(&format!("build small.fbin -o store{force}"), &words);
        assert_eq!(go_on(child), Some(0));
        assert!(place.done("info store").out.contains("60,000 of 32 x f32"));
    }
}

#[test]
fn temporary_files_are_written_to_the_given_folder() {
    let place = Place::new();
    place.done("gen --rows 2000 --dimensions 8 -o set.fbin --quiet");
    place.write("file", b"");
    for (folder, words) in [
        ("missing", "does not exist; create that folder first"),
        (
            "file",
            "is not a folder; name \
    one",
        ),
    ] {
        for line in ["build set.fbin -o store", "join set.fbin --eps 0.1 -o pairs.csv"] {
            place.refused(&format!("{line} --temporary {folder}"), &[&format!("--temporary {folder} {words}")]);
        }
    }
    std::fs::create_dir(place.path("locked")).unwrap();
    let words = ["join", "set.fbin", "--eps", "0.1", "--temporary", "locked"];
    if let Some(command) = place.powerless(&words) {
        place.refuses(command, &words, &["--temporary locked cannot be written; name another folder"]);
    }
    std::fs::create_dir(place.path("scratch")).unwrap();
    let trace = "--trace trace.txt --force --temporary scratch";
    place.done(&format!("join set.fbin --eps 0.1 -o pairs.csv {trace}"));
    let read = Trace::parse(&place.read("trace.txt")).unwrap();
    let made = read.operations().iter().filter(|asked| asked.operation == Operation::CreateFolder);
    let made: Vec<&str> = made.map(|asked| read.name(asked.file).to_str().unwrap()).collect();
    assert!(made.iter().any(|name| name.starts_with("scratch/.adjoin-store-")), "{made:?}");
    assert_eq!(names(&place, "scratch"), Vec::<String>::new());
    assert!(place.done("build --help").out.contains("--temporary <DIR>"));
}
