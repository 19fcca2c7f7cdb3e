//! `adjoin collection` with invalid input, or on a machine with problems. One line must state the problem, the exit
//! code must be 2, and existing data must be unchanged.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use adjoin::lab::store::format::checksum;

use crate::collection::small;
use crate::inputs::fbin;
use crate::place::{Place, Ran, SmallDisk, ran};

/// Checks that a run was refused with one line. Unlike [`Place::refused`], this allows that files were added.
fn refused(of: Ran, words: &[&str]) {
    let lines: Vec<&str> = of.said.lines().filter(|line| !line.contains("refuses direct reads")).collect();
    assert_eq!((of.code, of.out.as_str(), lines.len()), (Some(2), "", 1), "{}", of.said);
    assert!(lines[0].starts_with("adjoin: ") && words.iter().all(|word| lines[0].contains(word)), "{}", of.said);
}

/// Returns all rows, by their distance to the origin.
fn content(place: &Place, live: &str) -> String {
    place.done(&format!("search {live} --queries origin.fbin -k 100000 -L 100000 --quiet")).out
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    let place = Place::new();
    place.write("origin.fbin", &fbin(8, &[0.; 8]));
    place.done("gen --rows 500 --dimensions 8 -o few.fbin --quiet");
    place.done("gen --rows 100000 --dimensions 8 -o many.fbin --quiet");
    place.done("collection create far.live --dimensions 8 --degree 8 --build-list 10 --code-bytes 4");
    place.done("collection write far.live --insert many.fbin --quiet");
    let Some(_disk) = SmallDisk::new(&place, 1 << 20) else { return };
    place.done("collection create disk/set.live --dimensions 8 --degree 8 --build-list 10 --code-bytes 4");
    place.done("collection write disk/set.live --insert few.fbin --quiet");
    let before = content(&place, "disk/set.live");
    place.write("disk/filler", &[1; 900 << 10]);
    let lines = [
        ("collection merge disk/set.live --quiet", &["a merge needs at least", "free some space on that disk"][..]),
        ("collection write disk/set.live --upsert many.fbin --quiet", &["No space left"]),
        (
            "collection snapshot far.live -o disk/rows.parquet --quiet",
            &["cannot write disk/", "No space left", "free some space there"],
        ),
        (
            "collection backup far.live disk/copy.live --quiet",
            &["disk/copy.live needs", "choose a folder on another disk"],
        ),
    ];
    for (line, words) in lines {
        let names = |place: &Place| place.listing().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        let there = names(&place);
        refused(place.run(line), words);
        let more: Vec<_> = names(&place).into_iter().filter(|path| !there.contains(path)).collect();
        assert!(more.iter().all(|path| path.to_str().unwrap().contains("/log")), "{line}: {more:?}");
        assert_eq!(content(&place, "disk/set.live"), before, "{line}");
        assert!(place.done("verify disk/set.live").out.starts_with("sound: "), "{line}");
    }
    std::fs::remove_file(place.path("disk/filler")).unwrap();
    place.write("gone", b"0\n");
    place.done("collection write disk/set.live --delete gone --upsert few.fbin --quiet");
    assert_eq!(content(&place, "disk/set.live").lines().count(), before.lines().count());
    place.done("collection merge disk/set.live --quiet");
}

#[test]
fn users_without_write_permission_can_only_read() {
    let place = small();
    place.write("gone", b"1\n");
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let powerless = |line: &str| place.powerless(&words(line).iter().map(String::as_str).collect::<Vec<_>>());
    let Some(search) = powerless("search set.live --queries queries.fbin -k 1 --quiet") else { return };
    std::fs::set_permissions(place.path("set.live"), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(ran(search).code, Some(0));
    for (line, said) in [
        ("collection write set.live --delete gone", &["set.live", "denied"][..]),
        ("collection merge set.live", &["set.live", "denied"]),
        ("collection create new.live --dimensions 2", &["new.live", "denied"]),
        ("collection backup set.live copy.live", &["denied"]),
        ("collection snapshot set.live -o rows.parquet", &["denied"]),
    ] {
        let Some(command) = powerless(line) else { return };
        place.refuses(command, &[line], said);
    }
}

#[test]
fn a_second_writer_is_refused_while_the_first_writes() {
    let place = small();
    place.write("gone", b"1\n");
    let mut first = place.command(&["collection", "write", "set.live", "--delete", "-", "--quiet"]);
    let mut first = first.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    while !place.path("set.live/writer.lock").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    place.write("missing", b"77\n");
    place.done("collection backup set.live copy.live --quiet");
    let of_writer = "wait until it is done; if it is a server, write by its HTTP API";
    for (line, remedy) in [
        ("collection write set.live --delete missing", of_writer),
        ("collection merge set.live", of_writer),
        ("collection backup copy.live set.live --force", "wait until it is done, or choose another folder"),
    ] {
        // The process creates the lock file first and takes the lock shortly after that.
        let mut second = place.run(line);
        for _ in 0..100 {
            if second.code != Some(0) {
                break;
            }
            second = place.run(line);
        }
        refused(second, &["set.live is being written by", remedy]);
    }
    assert_eq!(place.done("search set.live --queries queries.fbin -k 9 --quiet").out.lines().count(), 19);
    first.stdin.take().unwrap().write_all(b"0\n").unwrap();
    assert!(first.wait().unwrap().success());
    place.done("collection write set.live --delete gone --quiet");
    assert_eq!(place.done("search set.live --queries queries.fbin -k 9 --quiet").out.lines().count(), 15);
}

/// Checks collections of a later version. The manifest or the log is valid but has version 2.
#[test]
fn refuses_collections_of_a_newer_version() {
    let lines = [
        "search set.live --queries queries.fbin -k 1",
        "collection write set.live --upsert set.fbin",
        "collection merge set.live",
        "info set.live",
        "verify set.live",
        "collection snapshot set.live -o rows.parquet",
        "collection backup set.live copy.live",
        "join set.live --eps 1 -o pairs.csv",
    ];
    let place = small();
    let text = place.text("set.live/manifest.json");
    let key = "\"manifest_xxh3\": \"";
    let at = text.find(key).unwrap() + key.len();
    let blank = [&text[..at], &"0".repeat(16), &text[at + 16..]].concat();
    let blank = blank.replace("\"format_version\": 1", "\"format_version\": 9");
    let sum = format!("{:016x}", checksum(blank.as_bytes()));
    place.write("set.live/manifest.json", [&blank[..at], &sum, &blank[at + 16..]].concat().as_bytes());
    for line in lines {
        place.refused(line, &["set.live has format version 9", "upgrade adjoin"]);
    }
    place.write("set.live/manifest.json", text.as_bytes());
    let log = "set.live/log-0000000000000001.bin";
    let bytes = place.read(log);
    let mut newer = bytes.clone();
    newer[8] = 2;
    let sum = checksum(&newer[..56]);
    newer[56..64].copy_from_slice(&sum.to_le_bytes());
    place.write(log, &newer);
    for line in lines {
        place.refused(line, &["log-0000000000000001.bin has log version 2", "upgrade adjoin"]);
    }
    place.write(log, &bytes);
    place.done("verify set.live");
}

#[test]
fn ids_of_another_kind_are_refused() {
    let place = small();
    place.write("texts.jsonl", b"{\"id\": \"a\", \"v\": [0, 1]}\n");
    place.done("collection create named.live --dimensions 2 --ids text");
    for (line, words) in [
        (
            "collection write set.live --upsert texts.jsonl",
            &["the ids are texts, but those of set.live are integers"][..],
        ),
        ("collection write named.live --insert set.fbin", &["set.fbin has no ids", "--id-column"]),
        ("collection write named.live --insert set.live", &["the ids are integers, but those of named.live are texts"]),
    ] {
        place.refused(line, words);
    }
}

/// Checks, for many shapes, that it is enough to follow the advice "give --memory X" once.
#[test]
fn advised_memory_suffices_for_collections() {
    let place = Place::new();
    for (rows, dimensions, more) in
        [(300, 8, ""), (4_000, 4, " --ids text"), (1_500, 96, ""), (400, 700, ""), (6_000, 16, "")]
    {
        let set = format!("set-{rows}-{dimensions}");
        place.done(&format!("gen --rows {rows} --dimensions {dimensions} -o {set}.fbin --quiet"));
        let is_text = !more.is_empty();
        let source = if is_text {
            let texts =
                |row: usize| format!("{{\"id\": \"row number {row}\", \"v\": {:?}}}\n", [row % 7, row % 11, row, 1]);
            place.write(&format!("{set}.jsonl"), (0..rows).map(texts).collect::<String>().as_bytes());
            format!("{set}.jsonl")
        } else {
            format!("{set}.fbin")
        };
        place.done(&format!("collection create {set}.live --dimensions {dimensions}{more}"));
        for line in [format!("collection write {set}.live --upsert {source}"), format!("collection merge {set}.live")] {
            let first = place.run(&format!("{line} --memory 25MB --quiet"));
            if first.code == Some(0) {
                continue;
            }
            let budget = first.said.split("--memory ").nth(1).and_then(|rest| rest.split(' ').next());
            let budget = budget.unwrap_or_else(|| panic!("{line}: {}", first.said));
            let second = place.run(&format!("{line} --memory {budget} --quiet"));
            // An unoptimized program may hold more memory than the budget counts, and then ends with code 1.
            assert!(matches!(second.code, Some(0 | 1)), "{line} with {budget}: {}", second.said);
        }
    }
}
