//! Sources in object stores, given on the command line.

use std::process::Output;

use crate::inputs::fbin;
use crate::object_server::{Fault, Server};
use crate::place::Place;

/// Starts a server with two objects. Each row of one object is near a row of the other one.
fn server() -> Server {
    let server = Server::start();
    server.put("set/0.fbin", &fbin(2, &[0.0, 0.0, 5.0, 5.0]));
    server.put("set/1.fbin", &fbin(2, &[0.5, 0.0, 5.0, 5.5]));
    server
}

fn run(place: &Place, server: &Server, line: &str) -> Output {
    let words: Vec<&str> = line.split(' ').collect();
    place.command(&words).envs(server.variables()).output().unwrap()
}

fn refused(place: &Place, server: &Server, line: &str, expected: &str) {
    let ran = run(place, server, line);
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2), "{line}: {said}");
    assert!(said.lines().count() == 1 && said.contains(expected), "{line}: {said}");
    assert!(ran.stdout.is_empty() && place.names().is_empty(), "{line}: {:?}", place.names());
}

#[test]
fn vectors_in_a_bucket_are_joined_as_files_are() {
    let (place, server) = (Place::new(), server());
    for name in ["s3://bucket/set", "s3://bucket/set/*.fbin", "s3://bucket/set/0.fbin s3://bucket/set/1.fbin"] {
        let ran = run(&place, &server, &format!("join {name} --eps 1 --quiet -o -"));
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), "left_id,right_id,distance\n0,2,0.5\n1,3,0.5\n", "{said}");
    }
    assert_eq!(run(&place, &server, "build s3://bucket/set --metric l2 -o there").status.code(), Some(0));
    place.write("0.fbin", &fbin(2, &[0.0, 0.0, 5.0, 5.0]));
    place.write("1.fbin", &fbin(2, &[0.5, 0.0, 5.0, 5.5]));
    place.done("build 0.fbin 1.fbin --metric l2 -o here");
    assert_eq!(place.names_and_bytes("there"), place.names_and_bytes("here"));
}

#[test]
fn failures_are_one_line_and_leave_nothing() {
    let (place, server) = (Place::new(), server());
    for (line, expected) in [
        ("join s3://bucket/absent.fbin --eps 1 -o pairs.csv", "adjoin: s3://bucket/absent.fbin: there is no such file"),
        ("join s3://absent/set/*.fbin --eps 1 -o pairs.csv", "cannot list s3://absent/set: there is no such bucket"),
        (
            "build s3://bucket/set --metric l2 -o s3://bucket/store",
            "-o cannot write to s3://bucket/store; name a local file",
        ),
        ("join s3://bucket/set --eps 1 -o s3://absent/p.csv", "s3://absent/p.csv: there is no such bucket"),
        ("join s3://bucket/set --eps 1 -o s3://bucket/set", "s3://bucket/set is a folder; name a file for the result"),
        ("join s3://bucket/set --eps 1 -o s3://bucket", "is not the name of an object in a bucket"),
        (
            "join s3://bucket/set --eps 1 -o s3://bucket/set/0.fbin",
            "set/0.fbin exists already; give --force to replace it",
        ),
        ("join s3://bucket/set --eps 1 -o s3://bucket/p.txt", "p.txt"),
        ("join s3://bucket/set --eps 1 -o s3://bucket/p.csv --resume", "--resume saves checkpoints next to the result"),
        ("join s3://bucket/set --eps 1 -o s3://bucket/p.csv --memory 30MB", "uploading a result needs at least"),
        ("info s3://absent/store", "cannot look up s3://absent/store: there is no such bucket"),
        ("info s3://bucket/set/0.fbin", "s3://bucket/set/0.fbin"),
    ] {
        refused(&place, &server, line, expected);
    }
    // Access is denied from the second range on, when a build has already begun.
    server.put("set/2.fbin", &fbin(2, &vec![1.0; 1 << 20]));
    server.set_faults(|request| request.range.is_some_and(|(start, _)| start > 0).then_some(Fault::Deny));
    let line = "build s3://bucket/set --metric l2 --quiet -o store";
    refused(&place, &server, line, "access is denied (403 ExpiredToken); check AWS_ACCESS_KEY_ID");
}

#[test]
fn stores_in_a_bucket_are_read_as_stores_on_disk_are() {
    let (place, server) = (Place::new(), Server::start());
    place.done("gen --rows 2000 --dimensions 16 -o base.fbin --quiet");
    place.done("build base.fbin --metric l2 -o base");
    for (path, bytes) in place.tree("base") {
        let key = path.strip_prefix(place.path("base")).unwrap_or(&path).to_str().unwrap().to_owned();
        server.put(&format!("stores/base/{key}"), &bytes);
    }
    for line in [
        "info STORE",
        "verify STORE --quiet",
        "join STORE --eps 0.7 --exact --quiet -o -",
        "search STORE --queries base.fbin -k 3 --exact --quiet -o -",
    ] {
        let here = place.done(&line.replace("STORE", "base"));
        let there = run(&place, &server, &line.replace("STORE", "s3://bucket/stores/base"));
        let said = String::from_utf8(there.stderr).unwrap();
        assert_eq!(there.status.code(), Some(0), "{line}: {said}");
        let printed = String::from_utf8(there.stdout).unwrap().replace("s3://bucket/stores/base", "base");
        // Pairs are written in the order in which threads find them.
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(&printed), sorted(&here.out), "{line}");
    }
}

#[test]
fn results_are_written_to_a_bucket() {
    let (place, server) = (Place::new(), server());
    place.write("all.fbin", &fbin(2, &[0.0, 0.0, 5.0, 5.0, 0.5, 0.0, 5.0, 5.5]));
    place.done("build all.fbin --metric l2 -o store --quiet");
    place.write("ids", b"1\n3\n");
    let before = place.listing();
    for (line, object) in [
        ("join s3://bucket/set --eps 1 -o s3://bucket/out/pairs.csv --stats s3://bucket/out/join.json", "pairs.csv"),
        ("search store --queries store -k 1 --exact -o s3://bucket/out/hits.jsonl", "hits.jsonl"),
        ("get store --ids ids -o s3://bucket/out/rows.jsonl", "rows.jsonl"),
        ("groundtruth all.fbin --eps 1 -o s3://bucket/out/true.csv", "true.csv"),
    ] {
        let said = String::from_utf8(run(&place, &server, line).stderr).unwrap();
        assert!(said.contains(&format!("s3://bucket/out/{object}: uploaded, ")), "{line}: {said}");
        assert!(!said.contains(".partial"), "a message names a file that no longer exists: {said}");
        assert_eq!(place.listing(), before, "{line}");
        let here = line.replace("s3://bucket/out/", "here-");
        assert_eq!(run(&place, &server, &here).status.code(), Some(0), "{here}");
        assert_eq!(server.objects()[&format!("out/{object}")], place.read(&format!("here-{object}")), "{line}");
        place.names().iter().filter(|name| name.starts_with("here-")).for_each(|name| place.removed(name));
    }
    assert!(server.objects()["out/join.json"].starts_with(b"{"));
    assert_eq!(server.unfinished(), 0);
    let line = "join s3://bucket/set --eps 0.1 -o s3://bucket/out/pairs.csv --force --quiet";
    assert_eq!(run(&place, &server, line).status.code(), Some(0));
    assert_eq!(server.objects()["out/pairs.csv"], b"left_id,right_id,distance\n");
}

#[test]
fn results_in_a_bucket_do_not_replace_inputs_or_each_other() {
    let (place, server) = (Place::new(), server());
    server.put("rows.jsonl", b"{\"vector\":[0,0]}\n{\"vector\":[0,1]}\n");
    server.put("pairs.csv", b"left_id,right_id,distance\n0,1,1\n");
    let objects = server.objects();
    for (line, expected) in [
        ("join s3://bucket/rows.jsonl --eps 1 -o s3://bucket/rows.jsonl", "s3://bucket/rows.jsonl is an input, so no"),
        ("join s3://bucket/*.jsonl --eps 1 -o s3://bucket/rows.jsonl", "s3://bucket/*.jsonl is an input, so no result"),
        ("join s3://bucket/set --eps 1 -o s3://bucket/set/pairs.csv", "s3://bucket/set is an input, so no result can"),
        ("report s3://bucket/pairs.csv -o s3://bucket/pairs.csv", "s3://bucket/pairs.csv is an input, so no result"),
        (
            "join s3://bucket/set --eps 1 -o s3://bucket/new.csv --stats s3://bucket/new.csv",
            "s3://bucket/new.csv is named for two results; name two objects",
        ),
        (
            "dedupe s3://bucket/rows.jsonl --eps 1 -o s3://bucket/new.jsonl --removed s3://bucket/new.jsonl",
            "-o writes the data set to s3://bucket/new.jsonl, so no other result can be written to",
        ),
        (
            "dedupe s3://bucket/set --eps 1 -o s3://bucket/new --removed s3://bucket/new/removed.csv",
            "-o writes the data set to s3://bucket/new, so no other result",
        ),
    ] {
        refused(&place, &server, &format!("{line} --force"), expected);
        assert!(server.objects() == objects, "{line}");
    }
}

#[test]
fn results_that_are_not_uploaded_are_kept() {
    let (place, server) = (Place::new(), server());
    server.set_faults(|request| (request.method == "PUT").then_some(Fault::Deny));
    let ran = run(&place, &server, "join s3://bucket/set --eps 1 -o s3://bucket/pairs.csv --quiet");
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!((ran.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("access is denied (403 ExpiredToken)") && said.contains("0-pairs.csv"), "{said}");
    assert_eq!(place.names(), ["0-pairs.csv"]);
    assert_eq!(place.text("0-pairs.csv"), "left_id,right_id,distance\n0,2,0.5\n1,3,0.5\n");
    assert!(!server.objects().contains_key("pairs.csv"));
}
