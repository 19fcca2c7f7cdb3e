//! Systems that refuse to start more threads. The program must print one line, end with exit code 2 and leave no
//! files.

use crate::place::{Place, Ran, ran};

/// Number of threads that suffices for every command in these tests.
const ENOUGH: usize = 24;

/// Runs the program with a limit of one thread, then two, and so on, until it works. Each failure must state the
/// reason.
fn until_it_works(place: &Place, line: &str) {
    let arguments: Vec<&str> = line.split(' ').collect();
    let before = place.listing();
    for threads in 1..=ENOUGH {
        let Some(command) = place.with_threads(threads, &arguments) else { return };
        let Ran { code, said, .. } = ran(command);
        if code == Some(0) {
            assert!(threads > 1, "{line}: the limit does not bind");
            return;
        }
        assert_eq!(code, Some(2), "{line} with {threads} threads: {said}");
        let lines: Vec<&str> = said.lines().filter(|line| !line.contains("refuses ")).collect();
        assert_eq!(lines.len(), 1, "{line} with {threads} threads: {said}");
        assert!(lines[0].starts_with("adjoin: ") && lines[0].contains("no thread can be started: "), "{said}");
        assert!(lines[0].contains("; allow more processes"), "{said}");
        assert_eq!(place.listing(), before, "{line} with {threads} threads");
    }
    panic!("{line} does not work with {ENOUGH} threads");
}

#[test]
fn failures_to_start_threads_are_one_line() {
    let place = Place::new();
    place.done("gen --rows 2000 --dimensions 8 -o set.fbin --quiet");
    place.done("build set.fbin -o store --quiet");
    until_it_works(&place, "verify store --quiet");
    until_it_works(&place, "explain store --eps 0.5 --threads 4 --quiet");
    until_it_works(&place, "explain store --eps 0.5 --threads 4 --quiet --device pread");
    until_it_works(&place, "join store --eps 0.5 --threads 4 --quiet");
    until_it_works(&place, "groundtruth set.fbin --eps 0.5 --threads 4 --quiet -o pairs.csv");
    until_it_works(&place, "build set.fbin -o other --threads 4 --quiet");
}
