//! Joins and builds in parts whose source, store, plan and parts are in an object store.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use adjoin::Random;
use rustix::process::{Pid, Signal, kill_process};

use crate::object_server::Server;
use crate::place::Place;

/// Number of processes to kill per command: by default, and with `ADJOIN_EVERY_FAULT`.
const KILLS: (usize, usize) = (6, 100);

/// Creates a set and its store, here and in the bucket.
fn place_and_server() -> (Place, Server) {
    let (place, server) = (Place::new(), Server::start());
    place.done("gen --rows 3000 --dimensions 32 -o set.fbin");
    server.put("set/set.fbin", &place.read("set.fbin"));
    place.done("build set.fbin -o one.store");
    for (name, bytes) in place.names_and_bytes("one.store") {
        server.put(&format!("one.store/{name}"), &bytes);
    }
    (place, server)
}

/// Runs the program with access to the bucket. Returns its exit code and messages.
pub(crate) fn run(place: &Place, server: &Server, line: &str) -> (Option<i32>, String) {
    let words: Vec<&str> = line.split(' ').collect();
    let ran = place.command(&words).envs(server.variables()).output().unwrap();
    (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
}

#[track_caller]
pub(crate) fn done(place: &Place, server: &Server, line: &str) -> String {
    let (code, said) = run(place, server, line);
    assert_eq!(code, Some(0), "{line}: {said}");
    said
}

#[track_caller]
pub(crate) fn refused(place: &Place, server: &Server, line: &str, expected: &str) {
    let before = place.listing();
    let (code, said) = run(place, server, line);
    assert_eq!((code, said.lines().count()), (Some(2), 1), "{line}: {said}");
    assert!(said.contains(expected), "{line}: {said}");
    assert_eq!(place.listing(), before, "{line}");
}

#[test]
fn a_build_of_a_bucket_in_parts_gives_the_store_of_local_files() {
    let (place, server) = place_and_server();
    done(&place, &server, "plan-build s3://bucket/set --parts 2 -o build.plan");
    (1..=4).for_each(|part| drop(done(&place, &server, &format!("run-part build.plan --part {part}/4 -o parts"))));
    done(&place, &server, "merge build.plan parts -o merged.store");
    assert!(place.names_and_bytes("merged.store") == place.names_and_bytes("one.store"));
    server.put("set/set.fbin", &place.read("set.fbin"));
    refused(&place, &server, "run-part build.plan --part 1/4 --force -o parts", "set.fbin has changed since");
}

#[test]
fn plans_and_parts_of_a_build_are_in_a_bucket() {
    let (place, server) = place_and_server();
    let before = place.listing();
    let said = done(&place, &server, "plan-build s3://bucket/set --parts 2 -o s3://bucket/job/build.plan");
    assert!(said.contains("s3://bucket/job/build.plan: uploaded"), "{said}");
    server.take_requests();
    for part in 1..=4 {
        done(&place, &server, &format!("run-part s3://bucket/job/build.plan --part {part}/4 -o s3://bucket/job/parts"));
    }
    // The plan has 60 centers, each in a frame of its own.
    let requests = server.take_requests().len();
    assert!(requests < 4 * 60, "{requests} requests: a request reads many frames");
    let said = done(&place, &server, "run-part s3://bucket/job/build.plan --part 2/4 -o s3://bucket/job/parts");
    assert!(said.contains("part 2/4 is in s3://bucket/job/parts already"), "{said}");
    assert_eq!(place.listing(), before, "no temporary files are left");
    let merge = "merge s3://bucket/job/build.plan s3://bucket/job/parts -o";
    refused(&place, &server, &format!("{merge} s3://bucket/merged.store"), "cannot write to s3://bucket/merged.store");
    let whole = server.objects()["job/parts/part-00003-of-00004"].clone();
    server.put("job/parts/part-00003-of-00004", &whole[..whole.len() - 3]);
    refused(&place, &server, &format!("{merge} merged.store"), "part-00003-of-00004 is damaged (it is cut off)");
    server.put("job/parts/part-00003-of-00004", &whole);
    done(&place, &server, &format!("{merge} merged.store"));
    assert!(place.names_and_bytes("merged.store") == place.names_and_bytes("one.store"));
    assert_eq!(server.unfinished(), 0);
}

#[test]
fn plans_and_parts_of_a_join_are_in_a_bucket() {
    let (place, server) = place_and_server();
    let before = place.listing();
    done(&place, &server, "plan s3://bucket/one.store --eps 2.0 --parts 3 -o s3://bucket/job/join.plan");
    refused(
        &place,
        &server,
        "plan s3://bucket/one.store --eps 2.0 --parts 3 -o s3://bucket/job/join.plan",
        "join.plan exists already; give --force to replace it",
    );
    for part in [2, 1, 3] {
        done(&place, &server, &format!("run-part s3://bucket/job/join.plan --part {part}/3 -o s3://bucket/job/parts"));
    }
    let merge = "merge s3://bucket/job/join.plan s3://bucket/job/parts --result removed -o";
    done(&place, &server, &format!("{merge} s3://bucket/job/removed.csv"));
    assert_eq!(place.listing(), before, "no temporary files are left");
    place.done("join one.store --eps 2.0 --result removed -o removed.csv");
    assert!(place.text("removed.csv").lines().count() > 10);
    assert!(server.objects()["job/removed.csv"] == place.read("removed.csv"));
    assert_eq!(server.unfinished(), 0);
    refused(&place, &server, "run-part s3://bucket/absent.plan --part 1/3 -o parts", "absent.plan is missing");
}

/// Runs a command, and kills it at its request number `most`, counted from 0, if there is one. Returns whether it was
/// killed, and its number of requests.
pub(crate) fn killed_at(place: &Place, server: &Server, line: &str, most: usize) -> (bool, usize) {
    let (send, receive) = mpsc::channel::<Pid>();
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    server.set_faults(move |_| {
        if seen.fetch_add(1, Ordering::Relaxed) == most {
            kill_process(receive.recv().unwrap(), Signal::KILL).unwrap();
        }
        None
    });
    let words: Vec<&str> = line.split(' ').collect();
    let mut command = place.command(&words);
    let mut child = command.envs(server.variables()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    send.send(Pid::from_child(&child)).unwrap();
    let status = child.wait().unwrap();
    server.set_faults(|_| None);
    assert!(status.code().is_none_or(|code| code == 0), "{line}: {status}");
    (status.code().is_none(), count.load(Ordering::Relaxed))
}

#[test]
fn parts_that_are_killed_at_any_request_run_again() {
    let (place, server) = place_and_server();
    done(&place, &server, "plan-build s3://bucket/set --parts 2 -o s3://bucket/build.plan");
    done(&place, &server, "plan s3://bucket/one.store --eps 2.0 --parts 2 -o s3://bucket/join.plan");
    let parts = [("build.plan", 1, 4), ("build.plan", 3, 4), ("join.plan", 2, 2)];
    let kills = if std::env::var_os("ADJOIN_EVERY_FAULT").is_some() { KILLS.1 } else { KILLS.0 };
    let (before, mut random) = (place.listing(), Random::new(1, "killed requests"));
    done(&place, &server, "run-part s3://bucket/build.plan --part 2/4 -o s3://bucket/parts-build.plan");
    for (plan, part, parts) in parts {
        let line = format!("run-part s3://bucket/{plan} --part {part}/{parts} --force -o s3://bucket/parts-{plan}");
        let object = format!("parts-{plan}/part-{part:05}-of-{parts:05}");
        let (is_killed, requests) = killed_at(&place, &server, &line, usize::MAX);
        assert!(!is_killed && requests > 5, "{requests} requests");
        let expected = server.objects()[&object].clone();
        let mut killed = 0;
        for _ in 0..kills {
            killed += usize::from(killed_at(&place, &server, &line, random.below(requests as u64) as usize).0);
            assert!(server.objects()[&object] == expected, "{line}: a part that exists is complete");
            done(&place, &server, &line);
            assert!(server.objects()[&object] == expected, "{line}: another part after a kill");
        }
        assert!(killed > 0, "{line}: no run was killed");
        assert_eq!(place.listing(), before, "leftovers of killed runs are removed");
    }
}
