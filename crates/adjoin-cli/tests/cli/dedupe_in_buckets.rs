//! Data sets in an object store that `dedupe` reads and writes.

use crate::inputs::fbin;
use crate::object_server::{Fault, Server};
use crate::parts_in_buckets::{done, killed_at, refused, run};
use crate::place::Place;

const LINE: &str = "dedupe s3://bucket/set --eps 1 --threads 2 --quiet -o s3://bucket/clean";

/// Puts two shards into the bucket and into a folder. The last row of each one is near a row of the other one.
fn place_and_server() -> (Place, Server) {
    let (place, server) = (Place::new(), Server::start());
    std::fs::create_dir_all(place.path("set/inner")).unwrap();
    for (name, rows) in [("0.fbin", [0.0, 0.0, 5.0, 5.0]), ("inner/1.fbin", [9.0, 9.0, 5.0, 5.5])] {
        place.write(&format!("set/{name}"), &fbin(2, &rows));
        server.put(&format!("set/{name}"), &fbin(2, &rows));
    }
    (place, server)
}

/// Returns the names of the objects in the output folder.
fn written(server: &Server) -> Vec<String> {
    server.objects().into_keys().filter_map(|key| key.strip_prefix("clean/").map(str::to_owned)).collect()
}

#[test]
fn a_bucket_is_deduplicated_to_another_folder_as_files_are() {
    let (place, server) = place_and_server();
    place.done("dedupe set --eps 1 --quiet -o clean --removed removed.csv");
    let before = place.listing();
    done(&place, &server, &format!("{LINE} --removed s3://bucket/removed.csv"));
    assert_eq!(written(&server), ["0.fbin", "_SUCCESS", "inner/1.fbin"]);
    let objects = server.objects();
    for name in ["0.fbin", "inner/1.fbin"] {
        assert!(objects[&format!("clean/{name}")] == place.read(&format!("clean/{name}")), "{name}");
    }
    assert!(objects["clean/inner/1.fbin"] == fbin(2, &[9.0, 9.0]) && objects["clean/_SUCCESS"].is_empty());
    assert!(objects["removed.csv"] == place.read("removed.csv"));
    assert_eq!((place.listing(), server.unfinished()), (before, 0), "no temporary files are left");
    // The output is a source, in which the mark is skipped.
    done(&place, &server, "join s3://bucket/clean --eps 1 --quiet -o none.csv");
    assert_eq!(place.text("none.csv"), "left_id,right_id,distance\n");
    refused(&place, &server, LINE, "clean exists already, and is complete only if it has _SUCCESS; remove its objects");
}

#[test]
fn a_single_object_is_deduplicated_to_an_object() {
    let (place, server) = place_and_server();
    server.put("one.fbin", &fbin(2, &[0.0, 0.0, 5.0, 5.0, 0.5, 0.0]));
    let line = "dedupe s3://bucket/one.fbin --eps 1 --quiet -o s3://bucket/kept.fbin";
    done(&place, &server, line);
    assert!(server.objects()["kept.fbin"] == fbin(2, &[0.0, 0.0, 5.0, 5.0]));
    refused(&place, &server, line, "kept.fbin exists already; give --force to replace it");
    done(&place, &server, "dedupe s3://bucket/one.fbin --eps 0.1 --quiet --force -o s3://bucket/kept.fbin");
    assert!(server.objects()["kept.fbin"] == server.objects()["one.fbin"]);
    assert!(!server.objects().contains_key("_SUCCESS"), "a single object appears atomically and needs no mark");
    // A prefix with one object is a folder, like a local folder with one file.
    done(&place, &server, "dedupe s3://bucket/set/inner --eps 1 --quiet -o s3://bucket/clean");
    assert_eq!(written(&server), ["1.fbin", "_SUCCESS"]);
}

#[test]
fn outputs_that_cannot_be_written_are_refused_before_any_work() {
    let (place, server) = place_and_server();
    for (line, expected) in [
        ("-o s3://bucket/set", "s3://bucket/set is the source or within it; choose another name"),
        ("-o s3://bucket/set/clean", "s3://bucket/set/clean is the source or within it"),
        ("-o s3://bucket", "s3://bucket is not the name of a folder in a bucket; name one"),
        ("-o s3://absent/clean", "s3://absent/clean: there is no such bucket"),
        ("-o https://host/clean", "https://host/clean is not the name of a folder in a bucket"),
        ("-o s3://bucket/clean --memory 40MB", "needs at least"),
    ] {
        server.take_requests();
        refused(&place, &server, &format!("dedupe s3://bucket/set --eps 1 {line}"), expected);
        assert!(server.take_requests().iter().all(|request| request.method != "PUT"), "{line}");
    }
    let line = "dedupe s3://bucket/set/0.fbin --eps 1 --force -o s3://bucket/set/0.fbin";
    refused(&place, &server, line, "s3://bucket/set/0.fbin is the source or within it");
    assert_eq!(server.objects().len(), 2);
}

#[test]
fn a_refused_upload_leaves_no_shard() {
    let (place, server) = place_and_server();
    for denied in ["inner/1.fbin", "_SUCCESS"] {
        server.set_faults(move |request| {
            (request.method == "PUT" && request.path.ends_with(denied)).then_some(Fault::Deny)
        });
        refused(&place, &server, LINE, "access is denied (403 ExpiredToken)");
        let left = written(&server);
        assert!(!left.contains(&"_SUCCESS".to_owned()), "{left:?}");
        assert!(denied == "_SUCCESS" || left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_killed_run_leaves_no_folder_that_looks_complete() {
    let (place, server) = place_and_server();
    let requests = killed_at(&place, &server, LINE, usize::MAX).1;
    let whole = written(&server);
    let mut killed = 0;
    for most in 0..requests {
        let (place, server) = place_and_server();
        killed += usize::from(killed_at(&place, &server, LINE, most).0);
        let left = written(&server);
        assert!(!left.contains(&"_SUCCESS".to_owned()) || left == whole, "request {most}: {left:?}");
    }
    assert!(killed > requests / 2, "{killed} of {requests} runs were killed");
}

/// Runs a command with the budgets that its refusals name. No refused run writes an object. Returns the number of
/// refusals.
pub(crate) fn refusals_until_done(place: &Place, server: &Server, line: &str) -> usize {
    let (mut named, objects) = (25_u64, server.objects().len());
    for refusals in 0.. {
        let (code, said) = run(place, server, &format!("{line} --memory {named}MB"));
        if code == Some(0) {
            return refusals;
        }
        assert_eq!((code, server.objects().len()), (Some(2), objects), "{said}");
        let larger = said.split("--memory ").nth(1).and_then(|rest| rest.split("MB").next()).expect(&said);
        let larger: u64 = larger.parse().unwrap();
        assert!(larger > named, "{said}");
        named = larger;
    }
    unreachable!("the loop has no end")
}

#[test]
fn the_memory_that_a_refusal_names_suffices_for_the_upload_too() {
    let (place, server) = place_and_server();
    assert_eq!(refusals_until_done(&place, &server, "dedupe set --eps 1 -o s3://bucket/clean"), 1);
    let (place, server) = place_and_server();
    // The first refusal is of the source, whose rows are not known until it is open.
    assert_eq!(refusals_until_done(&place, &server, "dedupe s3://bucket/set --eps 1 -o s3://bucket/clean"), 2);
}
