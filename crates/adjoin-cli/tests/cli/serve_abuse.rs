//! `adjoin serve` with slow, numerous, broken or hostile clients. Other clients must still be answered, and resources
//! must not grow.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::inputs::fbin;
use crate::place::Place;
use crate::serve::small;
use crate::serving::{Serving, response};

/// Time after which a test fails if an expected event has not occurred.
const PATIENCE: Duration = Duration::from_secs(600);

fn answers(serving: &Serving) {
    let answer = serving.post("/v1/search", &json!({"queries": [[9, 8]], "k": 1}));
    assert_eq!(answer.json()["hits"][0][0]["id"], 6, "{answer:?}");
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the number of files and sockets that a server has open.
fn open_files(serving: &Serving) -> usize {
    fs::read_dir(format!("/proc/{}/fd", serving.pid())).unwrap().count()
}

fn resident_bytes(serving: &Serving) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", serving.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Opens a thousand connections that send nothing, half a request or garbage, and closes them. Other clients must be
/// answered meanwhile. After that, the server must hold no more files and memory than before.
#[test]
fn broken_connections_neither_block_other_clients_nor_leak_files() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 512MB");
    answers(&serving);
    let before = open_files(&serving);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let idle: Vec<TcpStream> = (0..1_000).map(|_| serving.connect()).collect();
    wait_until("all are taken in", || serving.metric("adjoin_connections") >= 1_001.0);
    answers(&serving);
    let head = "POST /v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    for (k, mut stream) in idle.iter().enumerate() {
        let said = match k % 5 {
            0 => "GET /live".to_owned(),
            1 => format!("{head}content-length: 1000\r\n\r\n{{\"queries\""),
            2 => format!("{head}transfer-encoding: chunked\r\n\r\n5\r\n{{\"que\r\n"),
            3 => "\u{1}\u{2}\u{3} garbage \r\n\r\n GET / HTTP/9\r\n\r\n".repeat(10),
            _ => String::new(),
        };
        let _ = stream.write_all(said.as_bytes()); // fails if the server closes the connection at the first garbage
        if k % 2 == 0 {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
    answers(&serving);
    drop(idle);
    wait_until("all are gone", || serving.metric("adjoin_connections") <= 1.0);
    answers(&serving);
    wait_until("their files are closed", || open_files(&serving) <= before + 1);
    assert!(resident_bytes(&serving) < 64_000_000);
    assert_eq!(serving.end().0, Some(0));
}

/// Checks a server whose connections are all held by clients that send nothing, or half the head of a request. New
/// clients replace them, and the server refuses nobody.
#[test]
fn clients_that_send_no_request_make_way_for_others() {
    let place = Place::new();
    place.done("collection create set.live --dimensions 2");
    let serving = Serving::start(&place, "set.live --memory 64MB");
    let mut idle: Vec<TcpStream> = (0..500).map(|_| serving.connect()).collect();
    idle.iter_mut().step_by(2).for_each(|stream| drop(stream.write_all(b"POST /v1/sea")));
    assert_eq!(serving.post("/v1/vectors", &json!({"ids": [6], "vectors": [[9, 8]]})).status, 200);
    for _ in 0..20 {
        let found = serving.post("/v1/search", &json!({"queries": [[9, 8]], "k": 1}));
        assert_eq!(found.json()["hits"][0][0]["id"], 6);
    }
    drop(idle);
    assert_eq!(serving.end().0, Some(0));
}

/// Checks a server whose connections are all held by clients in the middle of a request. Searches are refused, but
/// supervisors and writers are answered.
#[test]
fn the_server_refuses_searches_until_clients_with_requests_disconnect() {
    let place = Place::new();
    place.done("collection create set.live --dimensions 2");
    let serving = Serving::start(&place, "set.live --memory 64MB");
    let head =
        "POST /v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n";
    let find = || serving.post("/v1/search", &json!({"queries": [[9, 8]], "k": 1}));
    let mut busy: Vec<TcpStream> = Vec::new();
    let mut refused = find();
    // A connection counts as busy once the server has read the head, which may be a moment later.
    while refused.status != 503 && busy.len() < 10_000 {
        let mut stream = serving.connect();
        stream.write_all(head.as_bytes()).unwrap();
        busy.push(stream);
        refused = find();
    }
    assert!(refused.problem(503).contains("as many clients are connected as memory allows"));
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(serving.get(path).status, 200, "{path}");
    }
    assert_eq!(serving.post("/v1/vectors", &json!({"ids": [6], "vectors": [[9, 8]]})).status, 200);
    drop(busy);
    wait_until("there is room again", || find().status == 200);
    assert_eq!(find().json()["hits"][0][0]["id"], 6);
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn oversized_bodies_are_refused_before_reading() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let most = serving.get("/v1/info").json()["limits"]["body_bytes"].as_u64().unwrap();
    let mut stream = serving.connect();
    let head = "POST /v1/search HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n";
    stream.write_all(format!("{head}content-length: {}\r\n\r\n", u64::MAX / 2).as_bytes()).unwrap();
    assert!(response(stream).problem(413).contains("a body may have"));
    // A body of endless chunks is refused when it exceeds the limit.
    let mut stream = serving.connect();
    stream.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 60_000, " ".repeat(60_000));
    let sent = (0..2 + most / 30_000).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count() as u64;
    assert!(sent <= 2 + most / 30_000);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes); // the server leaves input unread, which resets the connection
    assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&bytes));
    // Bodies of the maximum size with invalid contents are refused.
    for body in [vec![b'['; most as usize], vec![0; most as usize], b"[1e999]".repeat(most as usize / 7)] {
        serving.ask("POST /v1/search\ncontent-type: application/json", &body).problem(400);
    }
    let long = format!("GET /v1/info\nx: {}", "y".repeat(100_000));
    assert_eq!(serving.ask(&long, b"").status, 431);
    answers(&serving);
    assert!(resident_bytes(&serving) < 64_000_000);
    assert_eq!(serving.end().0, Some(0));
}

/// Sends several requests on one connection before the first answer, followed by garbage.
#[test]
fn pipelined_requests_are_answered_in_order() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let mut stream = serving.connect();
    for k in [1, 2, 3] {
        let body = json!({"queries": [[0, 0]], "k": k}).to_string();
        let head = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        let text = format!("POST /v1/search HTTP/1.1\r\nhost: localhost\r\n{head}{body}");
        stream.write_all(text.as_bytes()).unwrap();
    }
    stream.write_all(b"\0\0\0 no request\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let hits: Vec<usize> = text.split("HTTP/1.1 ").map(|answer| answer.matches("\"id\":").count()).collect();
    assert_eq!(hits, [0, 1, 2, 3, 0], "{text}");
    assert!(text.contains("HTTP/1.1 400"), "{text}");
    answers(&serving);
}

/// Checks that accepted requests are answered if SIGTERM arrives while their clients wait.
#[test]
fn a_terminating_server_answers_accepted_requests() {
    let place = Place::new();
    place.done("gen --rows 50000 --dimensions 32 --element u8 -o set.u8bin --quiet");
    place.done("build set.u8bin -o set.store --quiet");
    let serving = Serving::start(&place, "set.store --memory 128MB");
    let queries: Vec<u8> = (0..32 * 200).map(|k| (k % 251) as u8).collect();
    let head = "POST /v1/search?k=10&deadline_ms=600000 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let head = format!("{head}content-type: application/octet-stream\r\nexpect: 100-continue\r\n");
    let head = format!("{head}content-length: {}\r\n\r\n", queries.len());
    let asked = || {
        let mut stream = serving.connect();
        stream.write_all(head.as_bytes()).unwrap();
        // The server sends this line when it starts to read the body.
        let goes_on = b"HTTP/1.1 100 Continue\r\n\r\n";
        let mut said = vec![0; goes_on.len()];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(said, goes_on);
        stream.write_all(&queries).unwrap();
        stream
    };
    let streams: Vec<TcpStream> = (0..8).map(|_| asked()).collect();
    serving.terminate();
    let statuses: Vec<u16> = streams.into_iter().map(|stream| response(stream).status).collect();
    assert_eq!(statuses, [200; 8]);
    let (code, said) = serving.wait();
    assert!(code == Some(0) && said.contains("shutting down: accepted requests are answered"), "{code:?} {said}");
}

/// Checks that the server reports damage of its store in a message, and opens a store that is published later.
#[test]
fn the_server_reports_damage_and_opens_a_new_store() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let vectors = || {
        let mut files = fs::read_dir(place.path("set.store")).unwrap().map(|entry| entry.unwrap().path());
        files.find(|path| path.to_string_lossy().contains("vectors-")).unwrap()
    };
    let bytes = fs::read(vectors()).unwrap();
    fs::OpenOptions::new().write(true).open(vectors()).unwrap().set_len(10).unwrap();
    let told = serving.post("/v1/search", &json!({"queries": [[9, 8]], "k": 1})).problem(500);
    assert!(told.contains("vectors-"), "{told}");
    fs::write(vectors(), bytes).unwrap();
    answers(&serving);
    place.write("other.fbin", &fbin(2, &[9., 8., 0., 0., 1., 1.]));
    place.done("build other.fbin -o set.store --force --quiet");
    wait_until("the new store is taken up", || serving.get("/v1/info").json()["rows"] == 3);
    assert_eq!(serving.post("/v1/search", &json!({"queries": [[9, 8]], "k": 1})).json()["hits"][0][0]["id"], 0);
    let before = open_files(&serving);
    fs::write(place.path("set.store").join("manifest.json"), b"{").unwrap();
    wait_until("the damaged one is refused", || serving.metric("adjoin_generations_refused_total") >= 1.0);
    assert_eq!(serving.post("/v1/search", &json!({"queries": [[9, 8]], "k": 1})).status, 200, "the one before goes on");
    assert!(open_files(&serving) <= before + 1);
    let (code, said) = serving.end();
    assert!(code == Some(0) && said.contains("cannot be served, the previous one is still served"), "{said}");
}

#[test]
fn a_late_request_times_out_and_the_next_is_answered() {
    let place = Place::new();
    place.done("gen --rows 50000 --dimensions 64 --element u8 -o set.u8bin --quiet");
    place.done("build set.u8bin -o set.store --quiet");
    let serving = Serving::start(&place, "set.store --memory 128MB");
    let queries: Vec<u8> = (0..64 * 4_000).map(|k| (k % 251 * (k % 251) % 251) as u8).collect();
    let ask = |deadline_ms: u32| {
        let head = format!("POST /v1/search?k=10&exact=true&deadline_ms={deadline_ms}");
        serving.ask(&format!("{head}\ncontent-type: application/octet-stream"), &queries)
    };
    // With the maximum deadline, the test does not depend on the speed of the machine.
    assert_eq!(ask(600_000).status, 200);
    // The search takes 12.8 billion differences of bytes, which take longer than 1 ms on any machine.
    ask(1).problem(504);
    assert_eq!(ask(600_000).status, 200, "and afterwards all is as before");
    let shed = ["crowded", "late"].map(|reason| serving.metric(&format!("adjoin_shed_total{{reason=\"{reason}\"}}")));
    assert_eq!(shed, [0.0, 1.0]);
}

/// Checks a request with more hits than fit in the memory for clients. It must be refused as not repeatable, and the
/// hits found so far must be released.
#[test]
fn hits_larger_than_memory_are_refused_and_late_ones_released() {
    let place = Place::new();
    place.done("gen --rows 20000 --dimensions 2 --element u8 -o set.u8bin --quiet");
    place.done("build set.u8bin -o set.store --quiet");
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let all = |queries: usize, deadline_ms: u64| {
        let queries = vec![[7, 7]; queries];
        let body = json!({"queries": queries, "radius": 1000, "exact": true, "deadline_ms": deadline_ms});
        serving.post("/v1/search", &body)
    };
    assert!(all(100, 600_000).problem(507).contains("request fewer"));
    assert_eq!(all(4_000, 500).status / 100, 5);
    // Late requests are canceled.
    let near = serving.post("/v1/search", &json!({"queries": [[7, 7]], "k": 1, "nprobe": 1}));
    assert_eq!(near.status, 200, "{near:?}");
    assert!(resident_bytes(&serving) < 64_000_000, "{}", resident_bytes(&serving));
    assert_eq!(serving.end().0, Some(0));
}
