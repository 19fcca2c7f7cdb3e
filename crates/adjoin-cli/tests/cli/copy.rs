//! `adjoin copy` of folders between disks and object stores.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use adjoin::{Collection, Context, Folder};

use crate::object_server::{Fault, Request, Server};
use crate::place::Place;

/// One small folder of each kind, without columns.
const KINDS: [&str; 3] = ["store", "index", "live"];

fn place() -> Place {
    let place = Place::new();
    place.done("gen --rows 600 --dimensions 8 -o set.fbin --quiet");
    place.done("build set.fbin --buckets 20 -o store --quiet");
    place.done("index build store -o index --quiet");
    place.done("collection create live --dimensions 8");
    place.done("collection write live --insert set.fbin --quiet");
    place.done("collection merge live --quiet");
    place.write("ids", b"3\n4\n");
    place.done("collection write live --delete ids --quiet");
    place
}

fn command(place: &Place, server: &Server, line: &str) -> Command {
    let mut command = place.command(&line.split(' ').collect::<Vec<_>>());
    command.envs(server.variables());
    command
}

fn run(place: &Place, server: &Server, line: &str) -> Output {
    command(place, server, line).output().unwrap()
}

fn done(place: &Place, server: &Server, line: &str) -> String {
    let ran = run(place, server, line);
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(0), "{line}: {said}");
    said
}

/// Runs a command that must fail with one error. It must leave no file on this machine, and no folder in the object
/// store that can be opened.
fn refused(place: &Place, server: &Server, line: &str, expected: &str) {
    let before = place.listing();
    let ran = run(place, server, line);
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(matches!(ran.status.code(), Some(2 | 4)), "{line}: {:?} {said}", ran.status.code());
    // Lines that report which objects are left are notes, not errors.
    let is_error = |line: &&str| line.starts_with("adjoin: ") && !line.contains(" are left without a manifest");
    let errors: Vec<&str> = said.lines().filter(is_error).collect();
    assert!(errors.len() == 1 && errors[0].contains(expected), "{line}: {said}");
    assert_eq!(place.listing(), before, "{line}");
    assert_eq!(server.unfinished(), 0, "{line}");
}

/// Returns the files of a folder, with their paths relative to it.
fn files(place: &Place, folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let within = |(path, bytes): (PathBuf, Vec<u8>)| (path.strip_prefix(place.path(folder)).unwrap().to_owned(), bytes);
    place.tree(folder).into_iter().map(within).collect()
}

/// Returns the objects below a prefix, with their keys relative to it.
fn objects(server: &Server, prefix: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let within = |(key, bytes): (String, Vec<u8>)| Some((key.strip_prefix(prefix)?.strip_prefix('/')?.into(), bytes));
    server.objects().into_iter().filter_map(within).collect()
}

fn put_folder(place: &Place, server: &Server, folder: &str) {
    files(place, folder).iter().for_each(|(path, bytes)| server.put(&format!("{folder}/{}", path.display()), bytes));
}

fn is_put(request: &Request) -> bool {
    request.method == "PUT"
}

#[test]
fn folders_are_copied_to_a_bucket_and_back() {
    let (place, server) = (place(), Server::start());
    for kind in KINDS {
        let said = done(&place, &server, &format!("copy {kind} s3://bucket/deep/er/{kind}/"));
        let words = if kind == "live" { "collection copied and verified" } else { "copied and verified" };
        assert!(said.contains(&format!("s3://bucket/deep/er/{kind}/: ")) && said.contains(words), "{said}");
        assert_eq!(objects(&server, &format!("deep/er/{kind}")), files(&place, kind), "{kind}");
        done(&place, &server, &format!("copy s3://bucket/deep/er/{kind} back --quiet"));
        assert_eq!(files(&place, "back"), files(&place, kind), "{kind}");
        place.done("verify back --quiet");
        place.removed("back");
        let url = format!("file://{}", place.path("here").display());
        place.done(&format!("copy {kind} {url} --quiet"));
        assert_eq!(files(&place, "here"), files(&place, kind), "{kind}");
        place.removed("here");
        done(&place, &server, &format!("copy s3://bucket/deep/er/{kind} s3://bucket/other/{kind} --quiet"));
        assert_eq!(objects(&server, &format!("other/{kind}")), files(&place, kind), "{kind}");
    }
    // Only the request that writes the manifest has a condition. The manifest is written last.
    let line = "search s3://bucket/other/index --queries set.fbin -k 2 -o -";
    let said = String::from_utf8(run(&place, &server, line).stderr).unwrap();
    assert!(said.contains("copy it to a disk with: adjoin copy s3://bucket/other/index FOLDER"), "{said}");
}

#[test]
fn places_that_are_taken_are_refused_and_replaced_with_force() {
    let (place, server) = (place(), Server::start());
    place.done("build set.fbin --buckets 9 -o small --quiet");
    server.put("mixed/readme.txt", b"mine");
    done(&place, &server, "copy store s3://bucket/store --quiet");
    done(&place, &server, "copy live s3://bucket/live --quiet");
    for (line, expected) in [
        ("copy small s3://bucket/store", "s3://bucket/store is already a store; give --force to replace it"),
        ("copy index s3://bucket/store --force", "s3://bucket/store is a store, not a graph index"),
        ("copy live s3://bucket/live", "s3://bucket/live is already a collection; give --force"),
        ("copy live s3://bucket/live --force", "cannot be replaced atomically in an object store; remove it"),
        ("copy store s3://bucket/mixed", "s3://bucket/mixed holds files that are not a store"),
        ("copy store s3://bucket/mixed/readme.txt", "s3://bucket/mixed/readme.txt is a file, but a store is a folder"),
        ("copy store s3://bucket", "is not the name of a folder in a bucket"),
        ("copy store http://127.0.0.1:1/store", "is not the name of a folder in a bucket"),
        ("copy s3://bucket/store s3://bucket/store/in", "is inside s3://bucket/store"),
        ("copy s3://bucket/mixed here", "s3://bucket/mixed is not a store, an index or a collection"),
        ("copy s3://bucket/store small", "small is already a store; give --force to replace it"),
        ("copy set.fbin s3://bucket/set", "set.fbin is not a store, an index or a collection"),
        ("copy store absent/store", "absent does not exist"),
    ] {
        let before = server.objects();
        refused(&place, &server, line, expected);
        assert!(server.objects() == before, "{line}");
    }
    done(&place, &server, "copy small s3://bucket/store --force --quiet");
    assert_eq!(objects(&server, "store"), files(&place, "small"));
    done(&place, &server, "copy s3://bucket/store store --force --quiet");
    assert_eq!(files(&place, "store"), files(&place, "small"));
}

#[test]
fn interrupted_uploads_do_not_open_and_are_completed_by_the_next() {
    let place = place();
    for kind in KINDS {
        let writes = files(&place, kind).len();
        for failing in 0..writes {
            let server = Server::start();
            let mut writes = 0;
            server.set_faults(move |request| {
                writes += usize::from(is_put(request));
                (is_put(request) && writes > failing).then_some(Fault::Deny)
            });
            refused(&place, &server, &format!("copy {kind} s3://bucket/x"), "access is denied (403 ExpiredToken)");
            assert_eq!(objects(&server, "x").len(), failing, "{kind}");
            server.set_faults(|_| None);
            refused(&place, &server, "copy s3://bucket/x here", "is not a store, an index or a collection");
            done(&place, &server, &format!("copy {kind} s3://bucket/x --quiet"));
            assert_eq!(objects(&server, "x"), files(&place, kind), "{kind}");
        }
    }
    // Leftovers of another copy are removed, since a log must have no other files next to it.
    let server = Server::start();
    server.put("x/log-0000000000000fff.bin", b"of another log");
    server.put("x/index-0000000000000fff/pages.bin", b"of another index");
    done(&place, &server, "copy live s3://bucket/x --quiet");
    assert_eq!(objects(&server, "x"), files(&place, "live"));
}

#[test]
fn interrupted_downloads_leave_nothing() {
    let (place, server) = (place(), Server::start());
    for kind in KINDS {
        put_folder(&place, &server, kind);
        server.take_requests();
        done(&place, &server, &format!("copy s3://bucket/{kind} back --quiet"));
        place.removed("back");
        let reads = server.take_requests().iter().filter(|request| request.range.is_some()).count();
        for failing in 0..reads {
            let mut reads = 0;
            server.set_faults(move |request| {
                reads += usize::from(request.range.is_some());
                (request.range.is_some() && reads > failing).then_some(Fault::Deny)
            });
            refused(&place, &server, &format!("copy s3://bucket/{kind} back"), "access is denied (403 ExpiredToken)");
        }
        server.set_faults(|_| None);
    }
}

#[test]
fn throttled_copies_succeed_and_others_are_refused_in_one_line() {
    let (place, server) = (place(), Server::start());
    let mut k = 0;
    server.set_faults(move |_| {
        k += 1;
        (k % 3 == 0).then_some(Fault::SlowDown)
    });
    done(&place, &server, "copy store s3://bucket/store --quiet");
    done(&place, &server, "copy s3://bucket/store back --quiet");
    server.set_faults(|_| None);
    assert_eq!(files(&place, "back"), files(&place, "store"));
    for (line, expected) in [
        ("copy store s3://absent/store", "s3://absent/store: there is no such bucket; check its name and the endpoint"),
        ("copy s3://absent/store here", "s3://absent/store: there is no such bucket"),
    ] {
        refused(&place, &server, line, expected);
    }
    for line in ["copy index s3://bucket/index", "copy s3://bucket/store here"] {
        let ran = command(&place, &server, line).env("AWS_ACCESS_KEY_ID", "AKIDWRONG").output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(ran.status.code() == Some(2) && said.lines().count() == 1, "{said}");
        assert!(said.contains("access is denied (403") && !said.contains("AKID"), "{said}");
    }
    assert!(objects(&server, "index").is_empty());
}

#[test]
fn damaged_folders_are_not_copied() {
    let (place, server, context) = (place(), Server::start(), Context::default());
    for kind in KINDS {
        // Empty files are skipped: the lock file of a collection has no byte to damage.
        for (path, bytes) in place.tree(kind).into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            // These offsets include headers and ends of buckets, pages and blocks.
            let places = [0, 9, bytes.len() / 2, bytes.len() - 1].into_iter().filter(|at| *at < bytes.len());
            for at in places {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                std::fs::write(&path, &damaged).unwrap();
                let copied = Folder::copy(&context, &place.path(kind), &place.path("back"), false);
                // The end of a log may be torn, so readers do not report it as damage.
                let is_torn = path.file_name().unwrap().to_str().unwrap().starts_with("log-");
                assert!(copied.is_err() || is_torn, "{} {at}", path.display());
                place.removed("back");
            }
            std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
            let copied = Folder::copy(&context, &place.path(kind), &place.path("back"), false);
            assert!(copied.is_err() || path.to_str().unwrap().contains("log-"), "{}", path.display());
            place.removed("back");
            std::fs::write(&path, &bytes).unwrap();
        }
        let whole = Folder::copy(&context, &place.path(kind), &place.path("back"), false).unwrap();
        assert_eq!(whole.files, files(&place, kind).len() as u64);
        place.removed("back");
    }
    // The file in the object store is truncated, then damaged, then missing.
    put_folder(&place, &server, "store");
    let vectors = server.objects().into_keys().find(|key| key.starts_with("store/vectors-")).unwrap();
    let bytes = server.objects().remove(&vectors).unwrap();
    server.put(&vectors, &bytes[..bytes.len() - 4_096]);
    refused(&place, &server, "copy s3://bucket/store back", "bytes instead of");
    let mut damaged = bytes.clone();
    damaged[1_000] ^= 1;
    server.put(&vectors, &damaged);
    for to in ["back", "s3://bucket/back"] {
        refused(&place, &server, &format!("copy s3://bucket/store {to}"), "s3://bucket/store is damaged, so no copy");
        assert!(!server.objects().contains_key("back/manifest.json"));
    }
    let without = Server::start();
    server.objects().iter().filter(|(key, _)| **key != vectors).for_each(|(key, bytes)| without.put(key, bytes));
    refused(&place, &without, "copy s3://bucket/store back", "there is no such");
}

#[test]
fn objects_that_change_are_noticed() {
    let (place, server) = (place(), Server::start());
    put_folder(&place, &server, "index");
    server.set_faults(|request| (request.range.is_some() && request.path.contains("pages-")).then_some(Fault::Replace));
    refused(&place, &server, "copy s3://bucket/index back", "it has changed since it was opened");
    // Another writer replaces a file of the copy after this copy has written it.
    server.set_faults(|request| {
        let is_last = request.method == "PUT" && request.path.contains("vectors-");
        is_last.then_some(Fault::ReplaceAfter)
    });
    refused(&place, &server, "copy store s3://bucket/store", "it has changed since it was opened");
    assert!(!server.objects().contains_key("store/manifest.json"));
}

#[test]
fn collections_that_are_open_for_writing_are_refused() {
    let (place, server) = (place(), Server::start());
    let live = Collection::open(&Context::default(), Path::new(&place.path("live"))).unwrap();
    refused(
        &place,
        &server,
        "copy live s3://bucket/live",
        "live is open for writing; close it, or copy it with: adjoin",
    );
    live.close().unwrap();
    done(&place, &server, "copy live s3://bucket/live --quiet");
}

/// Checks that the memory that a refusal names suffices, and that the process does not exceed it.
#[test]
fn the_memory_that_is_named_suffices() {
    let (place, server) = (place(), Server::start());
    for kind in KINDS {
        put_folder(&place, &server, kind);
        for line in [format!("copy {kind} s3://bucket/to/{kind}"), format!("copy s3://bucket/{kind} back")] {
            let mut budget = 19;
            loop {
                let ran = run(&place, &server, &format!("{line} --memory {budget}MB --quiet"));
                let said = String::from_utf8(ran.stderr).unwrap();
                if ran.status.code() == Some(0) {
                    break;
                }
                let named = said.split("give --memory ").nth(1).unwrap_or_else(|| panic!("{line}: {said}"));
                let named = named.split("MB").next().unwrap().parse().unwrap();
                assert!(budget == 19 && named > budget, "{line} --memory {budget}MB: {said}");
                budget = named;
            }
            place.removed("back");
        }
    }
}
