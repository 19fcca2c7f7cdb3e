//! Tests of sources in object stores, against a server in this process that fails as it is told.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod server;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use adjoin::device::{AlignedBuffer, Cause, Device, DeviceError, FileKind, FileSystem, NewObject};
use adjoin::{Context, Error, SourceOptions, VectorSource, open_source};
use adjoin_object::{ObjectDevice, Retries, StoreSettings};
use server::{Fault, KEY_ID, Server};

const MIB: usize = 1 << 20;

/// Waits that a test can afford.
const SHORT: Retries = Retries {
    times_max: 8,
    first_wait: Duration::from_millis(1),
    total_max: Duration::from_secs(60),
    answer_max: Duration::from_secs(60),
};

fn device(variables: Vec<(String, String)>, retries: Retries) -> Arc<dyn Device> {
    let settings = StoreSettings { retries, variables };
    Arc::new(ObjectDevice::with_settings(Arc::new(FileSystem::pread()), settings))
}

fn context_of(server: &Server) -> Context {
    context_with(server.variables(), SHORT)
}

fn context_with(variables: Vec<(String, String)>, retries: Retries) -> Context {
    let mut context = Context::default().with_memory(256 << 20);
    context.device = device(variables, retries);
    context
}

fn open(context: &Context, names: &[&str]) -> Result<Arc<dyn VectorSource>, Error> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    open_source(context, &names, &SourceOptions::default())
}

fn error_of(context: &Context, name: &str) -> String {
    open(context, &[name]).and_then(|source| scan(&*source)).unwrap_err().to_string()
}

fn scan(source: &dyn VectorSource) -> Result<Vec<u8>, Error> {
    let (mut scan, mut bytes) = (source.scan(1 << 20)?, Vec::new());
    while let Some(batch) = scan.next_batch()? {
        bytes.extend(batch.bytes);
    }
    Ok(bytes)
}

fn u8bin(dimensions: usize, bytes: &[u8]) -> Vec<u8> {
    let header = [bytes.len() / dimensions, dimensions].map(|number| u32::try_from(number).unwrap().to_le_bytes());
    [&header.concat(), bytes].concat()
}

/// Vectors whose bytes differ from place to place.
fn vectors(len: usize) -> Vec<u8> {
    (0..len).map(|k| (k.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
}

#[test]
fn files_of_a_bucket_are_found_by_name_glob_and_prefix() {
    let server = Server::start();
    for (key, byte) in [("set/b/2.u8bin", 2), ("set/1.u8bin", 1), ("set/3.u8bin", 3), ("other.u8bin", 4)] {
        server.put(key, &u8bin(1, &[byte]));
    }
    for key in ["set/_SUCCESS", "set/.hidden/9.u8bin", "set/README.md"] {
        server.put(key, b"no vectors");
    }
    let context = context_of(&server);
    for (name, expected) in [
        ("s3://bucket/set/1.u8bin", &[1][..]),
        ("s3://bucket/set/*.u8bin", &[1, 3]),
        ("s3://bucket/*/?.u8bin", &[1, 3]),
        ("s3://bucket/set/**/*.u8bin", &[1, 3, 2]),
        ("s3://bucket/*.u8bin", &[4]),
        ("s3://bucket/set", &[1, 3, 2]),
        ("s3://bucket/set/", &[1, 3, 2]),
    ] {
        let source = open(&context, &[name]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(scan(&*source).unwrap(), expected, "{name}");
    }
    let notes = open(&context, &["s3://bucket/set"]).unwrap().notes();
    assert_eq!(notes, ["s3://bucket/set: ignored files of other types: .hidden, README.md, _SUCCESS"]);
    let both = open(&context, &["s3://bucket/other.u8bin", "s3://bucket/set/b"]).unwrap();
    assert_eq!(scan(&*both).unwrap(), [4, 2]);
}

#[test]
fn what_is_not_there_is_refused() {
    let server = Server::start();
    server.put("set/part.u8bin", &u8bin(1, &[1]));
    server.put("table/_delta_log/00.json", b"");
    server.put("table/part.u8bin", &u8bin(1, &[1]));
    let context = context_of(&server);
    for (name, expected) in [
        ("s3://bucket/nothing.u8bin", "s3://bucket/nothing.u8bin: there is no such file or folder; check the path"),
        ("s3://bucket/set/*.npy", "s3://bucket/set/*.npy: no file matches; check the path"),
        ("s3://absent/a.u8bin", "s3://absent/a.u8bin: there is no such bucket; check its name and the endpoint"),
        ("s3://absent/*.u8bin", "cannot list s3://absent: there is no such bucket"),
        ("s3://", "the URL lacks a bucket; write s3://BUCKET/KEY"),
        ("s3://bucket/table", "s3://bucket/table: is a Delta table"),
        ("s3://bucket/table/*.u8bin", "s3://bucket/table: is a Delta table"),
        ("s3://bucket/table/part.u8bin", "s3://bucket/table: is a Delta table"),
        ("s3://bucket/set/[.u8bin", "is not a glob"),
        ("s3://bucket/a//b.u8bin", "the key has an empty part"),
        ("http://localhost/*.u8bin", "a web server does not list its files"),
    ] {
        let said = error_of(&context, name);
        assert!(said.contains(expected) && !said.contains('\n'), "{name}: {said}");
    }
}

#[test]
fn secrets_are_never_repeated() {
    let server = Server::start();
    server.put("a.u8bin", &u8bin(1, &[1]));
    let mut variables = server.variables();
    variables.push(("AWS_ACCESS_KEY_ID".into(), "AKIDWRONG".into()));
    let context = context_with(variables, SHORT);
    let url = server.url();
    for (name, expected) in [
        ("s3://bucket/a.u8bin", "s3://bucket/a.u8bin: access is denied (403"),
        ("s3://bucket/*.u8bin", "cannot list s3://bucket: access is denied (403 InvalidAccessKeyId); check AWS_ACCESS"),
        ("s3://user:hidden@bucket/a.u8bin", "s3://bucket/a.u8bin: the URL holds a user name or a query"),
        (&format!("{url}/bucket/a.u8bin?X-Amz-Signature=hidden"), "a.u8bin: the URL holds a user name or a query"),
    ] {
        let said = error_of(&context, name);
        assert!(said.contains(expected) && !said.contains('\n'), "{name}: {said}");
        for secret in ["hidden", "never-shown", "AKID", KEY_ID] {
            assert!(!said.contains(secret), "{said}");
        }
    }
}

#[test]
fn long_objects_are_read_ahead_once_and_whole() {
    let server = Server::start();
    let bytes = vectors(9 * MIB);
    server.put("a.u8bin", &u8bin(64, &bytes));
    let context = context_of(&server);
    let source = open(&context, &["s3://bucket/a.u8bin"]).unwrap();
    server.take_requests();
    assert_eq!(scan(&*source).unwrap(), bytes);
    let read: Vec<_> = server.take_requests().into_iter().filter_map(|request| request.range).collect();
    let read_bytes: usize = read.iter().map(|(start, end)| end - start).sum();
    // The header is read once more, before the vectors.
    assert!(read.len() <= 6 && read_bytes <= bytes.len() + 64, "{read:?}");
}

#[test]
fn parquet_files_are_read_as_from_a_disk() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sample.parquet");
    let file = std::fs::read(path).unwrap();
    let server = Server::start();
    server.put("sample.parquet", &file);
    let context = context_of(&server);
    let options = SourceOptions { ids: adjoin::IdChoice::Column("name".into()), ..SourceOptions::default() };
    let [there, here] =
        ["s3://bucket/sample.parquet", path].map(|name| open_source(&context, &[name.to_owned()], &options).unwrap());
    assert_eq!(there.info(), here.info());
    server.take_requests();
    assert_eq!(scan(&*there).unwrap(), scan(&*here).unwrap());
    let read: Vec<_> = server.take_requests().into_iter().filter_map(|request| request.range).collect();
    let read_bytes: usize = read.iter().map(|(start, end)| end - start).sum();
    assert!(read_bytes <= file.len() + file.len() / 10, "{read_bytes} of {}: {read:?}", file.len());
}

#[test]
fn files_of_the_web_and_of_urls_of_this_machine_are_read() {
    let server = Server::start();
    server.put("lines.jsonl", b"{\"v\": [1, 2]}\n{\"v\": [3, 4]}\n");
    let context = context_of(&server);
    let web = open(&context, &[&format!("{}/bucket/lines.jsonl", server.url())]).unwrap();
    assert_eq!(web.info().rows, 2);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a b.u8bin"), u8bin(1, &[7])).unwrap();
    let url = format!("file://{}/a%20b.u8bin", folder.path().display());
    assert_eq!(scan(&*open(&context, &[&url]).unwrap()).unwrap(), [7]);
}

#[test]
fn throttled_and_broken_requests_are_tried_again() {
    let server = Server::start();
    let bytes = vectors(5 * MIB);
    server.put("a.u8bin", &u8bin(64, &bytes));
    let context = context_of(&server);
    let mut k = 0;
    server.set_faults(move |request| {
        k += 1;
        match k % 4 {
            0 => Some(Fault::SlowDown),
            2 if request.range.is_some() => Some(Fault::Drop),
            _ => None,
        }
    });
    let source = open(&context, &["s3://bucket/a.u8bin"]).unwrap();
    assert_eq!(scan(&*source).unwrap(), bytes);
}

#[test]
fn a_store_that_keeps_failing_is_reported() {
    let server = Server::start();
    server.put("a.u8bin", &u8bin(64, &vectors(MIB)));
    let impatient = Retries { times_max: 1, answer_max: Duration::from_millis(200), ..SHORT };
    let context = context_with(server.variables(), impatient);
    for (fault, expected) in [
        (Fault::SlowDown, "the store answers 503 SlowDown, even after retries; run again later"),
        (
            Fault::Deny,
            "access is denied (403 ExpiredToken); check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or set \
             AWS_SKIP_SIGNATURE=true for a public bucket",
        ),
        (Fault::Stall, "the store is too slow, even after retries; run again later"),
        (Fault::Drop, "the connection is lost, even after retries; check the network"),
    ] {
        server.set_faults(move |request| request.range.is_some().then_some(fault));
        let said = error_of(&context, "s3://bucket/a.u8bin");
        assert!(said.starts_with("cannot read s3://bucket/a.u8bin at byte ") && said.ends_with(expected), "{said}");
    }
    drop(server.take_requests());
    let nobody = vec![("AWS_ENDPOINT_URL".to_owned(), "http://127.0.0.1:1".to_owned())];
    let variables = server.variables().into_iter().chain(nobody).collect();
    let context = context_with(variables, impatient);
    let said = error_of(&context, "s3://bucket/a.u8bin");
    assert!(said.ends_with("s3://bucket/a.u8bin: no connection; check the network and the endpoint"), "{said}");
}

#[test]
fn an_object_that_changes_is_noticed() {
    let server = Server::start();
    let old = vectors(40 * MIB);
    server.put("a.u8bin", &u8bin(64, &old));
    let context = context_of(&server);
    let source = open(&context, &["s3://bucket/a.u8bin"]).unwrap();
    let mut scanning = source.scan(1 << 20).unwrap();
    scanning.next_batch().unwrap().unwrap();
    // The same length and time: only the tag differs.
    server.put("a.u8bin", &u8bin(64, &vec![1; 40 * MIB]));
    let said = loop {
        match scanning.next_batch() {
            Ok(batch) => assert!(batch.is_some(), "rows of two versions were mixed"),
            Err(error) => break error.to_string(),
        }
    };
    let expected = "it has changed since it was opened; run again when nothing writes to it";
    assert!(said.contains("s3://bucket/a.u8bin") && said.ends_with(expected), "{said}");
    let said = scan(&*source).unwrap_err().to_string();
    assert_eq!(said, format!("s3://bucket/a.u8bin: {expected}"));
}

#[test]
fn a_queue_reads_objects_and_files() {
    let server = Server::start();
    let (bytes, folder) = (vectors(300_000), tempfile::tempdir().unwrap());
    server.put("a", &bytes);
    let local = folder.path().join("a");
    std::fs::write(&local, &bytes).unwrap();
    let device = device(server.variables(), SHORT);
    assert_eq!(device.kind(Path::new("s3://bucket/a")).unwrap(), Some(FileKind::File));
    let files = [Path::new("s3://bucket/a"), &local].map(|path| device.open(path).unwrap());
    let mut queue = device.read_queue(4).unwrap();
    for token in 0..40 {
        let file = &files[token as usize % 2];
        queue.submit(token, Cause::UNKNOWN, file, token * 4_096, AlignedBuffer::zeroed(4_096)).unwrap();
    }
    let mut tokens = Vec::new();
    while let Some(done) = queue.wait() {
        let start = done.token as usize * 4_096;
        assert_eq!((done.result.unwrap(), &done.buffer[..]), (4_096, &bytes[start..start + 4_096]));
        tokens.push(done.token);
    }
    tokens.sort_unstable();
    assert_eq!(tokens, (0..40).collect::<Vec<_>>());
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn files_are_not_written_to_a_store_as_to_a_disk() {
    let server = Server::start();
    let device = device(server.variables(), SHORT);
    let refused = device.create(Path::new("s3://bucket/out.parquet")).err().unwrap().to_string();
    assert_eq!(
        refused,
        "cannot create s3://bucket/out.parquet: object stores take whole objects only; write to a local folder, and \
         copy it"
    );
    assert!(server.take_requests().is_empty());
}

/// Writes an object in pieces that are no divisors of a part.
fn write(device: &dyn Device, url: &str, bytes: &[u8], memory_bytes: u64, replace: bool) -> Result<(), DeviceError> {
    let object = NewObject { len: bytes.len() as u64, memory_bytes, replace };
    let mut file = device.create_object(Path::new(url), object)?;
    bytes.chunks(777_777).try_for_each(|some| file.append(some))?;
    file.sync()
}

#[test]
fn objects_appear_whole_and_in_equal_parts() {
    let server = Server::start();
    let device = device(server.variables(), SHORT);
    for len in [0, 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 16 * MIB, 50 * MIB] {
        let bytes = vectors(len);
        for memory_bytes in [device.object_writing_bytes(len as u64), 1 << 30] {
            write(&*device, "s3://bucket/a/b", &bytes, memory_bytes, true).unwrap();
            assert!(server.objects()["a/b"] == bytes, "{len}");
        }
    }
    assert_eq!(server.unfinished(), 0);
}

#[test]
fn objects_that_are_not_synced_never_appear() {
    let server = Server::start();
    let device = device(server.variables(), SHORT);
    let (bytes, url) = (vectors(30 * MIB), Path::new("s3://bucket/a"));
    let object = NewObject { len: bytes.len() as u64, memory_bytes: 1 << 30, replace: true };
    for appended in [0, 1, 9 * MIB, 30 * MIB] {
        let mut file = device.create_object(url, object).unwrap();
        file.append(&bytes[..appended]).unwrap();
        drop(file);
        assert!(server.objects().is_empty() && server.unfinished() == 0, "{appended}");
    }
}

/// Refuses each request that writes once, the last of them the one that completes.
#[test]
fn objects_with_a_refused_request_never_appear() {
    let bytes = vectors(30 * MIB);
    for failing in 0..6 {
        // A new server each time, as parts of an object that was given up may still arrive at the old one.
        let server = Server::start();
        let device = device(server.variables(), SHORT);
        let mut writes = 0;
        server.set_faults(move |request| {
            let is_write = !["GET", "HEAD", "DELETE"].contains(&&*request.method);
            writes += usize::from(is_write);
            (is_write && writes == failing + 1).then_some(Fault::Deny)
        });
        let done = write(&*device, "s3://bucket/a", &bytes, 1 << 30, true);
        server.set_faults(|_| None);
        assert_eq!((done.is_ok(), server.objects().len(), server.unfinished()), (false, 0, 0), "{failing}");
        let said = done.unwrap_err().to_string();
        assert!(said.starts_with("cannot write s3://bucket/a: access is denied (403 ExpiredToken)"), "{said}");
    }
}

#[test]
fn writes_that_are_throttled_are_tried_again_and_objects_of_others_are_kept() {
    let server = Server::start();
    let device = device(server.variables(), SHORT);
    let (bytes, mut k) = (vectors(20 * MIB), 0);
    server.set_faults(move |_| {
        k += 1;
        (k % 2 == 0).then_some(Fault::SlowDown)
    });
    write(&*device, "s3://bucket/a", &bytes, 1 << 30, true).unwrap();
    server.set_faults(|_| None);
    assert!(server.objects()["a"] == bytes);
    for other in [&b"other"[..], &vectors(9 * MIB)] {
        let said = write(&*device, "s3://bucket/a", other, 1 << 30, false).unwrap_err();
        assert_eq!(said.source.kind(), std::io::ErrorKind::AlreadyExists);
        assert!(server.objects()["a"] == bytes && server.unfinished() == 0);
    }
    device.remove(Path::new("s3://bucket/a")).unwrap();
    assert!(server.objects().is_empty());
    // Another writer replaces the object at once.
    server.set_faults(|request| (request.method == "PUT").then_some(Fault::ReplaceAfter));
    let said = write(&*device, "s3://bucket/a", b"other", 1 << 30, true).unwrap_err().to_string();
    assert!(said.ends_with("it has changed since it was opened; run again when nothing writes to it"), "{said}");
}
