//! Mutated requests. Each must get an answer or a closed connection, and none may trigger a bug of the server.

#[path = "../../../adjoin/tests/fuzz/mutate.rs"]
pub(crate) mod mutate;

use std::io::{Read, Write};
use std::net::Shutdown;

use adjoin::Random;
use serde_json::{Value, json};

use self::mutate::mutate;
use crate::place::Place;
use crate::serve::queries;
use crate::serving::Serving;

/// Default number of cases. They take a few seconds.
const CASES: u64 = 3_000;
/// Statuses with which a request may be refused.
const REFUSED: &[u16] = &[400, 403, 404, 405, 408, 413, 414, 415, 417, 429, 431, 501, 504, 505];

/// Returns a request with the right content length.
fn request(head: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("{head}\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Returns the heads and bodies of valid requests.
fn right() -> Vec<(&'static str, Vec<u8>)> {
    let json = |path, body: Value| (path, body.to_string().into_bytes());
    const SEARCH: &str = "POST /v1/search HTTP/1.1\r\ncontent-type: application/json";
    const RAW: &str = "POST /v1/search?k=2&list=10&element=u8&where=year%3E1 HTTP/1.1\r\ncontent-type: application/octet-stream\r\naccept: application/vnd.apache.arrow.stream";
    const TABLE: &str = "POST /v1/search?k=2&recall=0.5 HTTP/1.1\r\ncontent-type: application/vnd.apache.arrow.stream";
    const PUT: &str = "POST /v1/vectors HTTP/1.1\r\ncontent-type: application/json";
    const DELETE: &str = "POST /v1/vectors/delete HTTP/1.1\r\ncontent-type: application/json; charset=utf-8";
    vec![
        json(SEARCH, json!({"queries": [[1, 2.5], [-3e1, 0]], "k": 3, "recall": 0.9, "deadline_ms": 1000})),
        json(SEARCH, json!({"like": ["a", "é\n"], "radius": 1.5, "where": "lang = 'en' or year in (1, 2)"})),
        (RAW, vec![1, 2, 3, 255]),
        (TABLE, queries(&[Some(vec![1.0, 2.0]), Some(vec![3.0, 4.0])])),
        json(PUT, json!({"ids": ["a", "b"], "vectors": [[1, 2], [3, 4]], "columns": [{"year": 1}, {"lang": null}]})),
        json(DELETE, json!({"ids": ["x", "y"], "durability": "buffered"})),
        json(DELETE, json!({"where": "year > 100"})),
        ("GET /v1/info HTTP/1.1", Vec::new()),
    ]
}

#[test]
fn fuzzed_requests_do_not_break_the_server() {
    let place = Place::new();
    place.done("collection create set.live --dimensions 2 --ids text --columns lang:text,year:int64");
    let serving = Serving::start(&place, "set.live --memory 128MB");
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse::<u64>().unwrap());
    let from = number("ADJOIN_FUZZ_FROM", 0);
    let right = right();
    let bodies: Vec<Vec<u8>> = right.iter().map(|(_, body)| body.clone()).collect();
    for (head, body) in &right {
        let mut stream = serving.connect();
        stream.write_all(&request(head, body)).unwrap();
        let status = crate::serving::response(stream).status;
        assert!(status == 200 || body.windows(4).any(|some| some == b"like") && status == 400, "{head}: {status}");
    }
    for case in from..from + number("ADJOIN_FUZZ_CASES", CASES).min(100_000) {
        let mut random = Random::new(case, "requests");
        let (head, mut body) = right[random.below(right.len() as u64) as usize].clone();
        let mut sent = Vec::new();
        if random.below(3) > 0 {
            mutate(&mut random, &mut body, &bodies);
            sent.extend(request(head, &body));
        } else {
            sent.extend(request(head, &body));
            mutate(&mut random, &mut sent, &bodies);
        }
        let mut stream = serving.connect();
        let _ = stream.write_all(&sent); // fails if the server closes the connection before the end
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer); // the server may leave input unread, which resets the connection
        let answer = String::from_utf8_lossy(&answer);
        let version = ["HTTP/1.1 ", "HTTP/1.0 "].iter().find_map(|version| answer.strip_prefix(version));
        let status = version.and_then(|rest| rest.get(..3)?.parse::<u16>().ok());
        let is_borne = answer.is_empty() || status.is_some_and(|status| status == 200 || REFUSED.contains(&status));
        let repeat = format!("repeat it with ADJOIN_FUZZ_FROM={case} ADJOIN_FUZZ_CASES=1");
        assert!(is_borne, "case {case}, {repeat}: {:?}: {answer}", String::from_utf8_lossy(&sent));
    }
    let (code, said) = serving.end();
    assert!(code == Some(0) && !said.contains(" bug") && !said.contains("panic"), "{said}");
}
