//! `adjoin serve`: headers that determine how a body is read, and extreme numbers in JSON.

use std::io::Write;

use serde_json::{Value, json};

use crate::place::Place;
use crate::serve::small;
use crate::serving::{Response, Serving, response};

/// Returns a gzip member that contains the bytes uncompressed.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let crc = !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    });
    let length = bytes.len() as u16;
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    let lengths = [length.to_le_bytes(), (!length).to_le_bytes()].concat();
    let tail = [crc.to_le_bytes(), u32::from(length).to_le_bytes()].concat();
    [&head[..], &lengths, bytes, &tail].concat()
}

/// Returns a zstd frame that contains up to 255 bytes uncompressed.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let block = ((bytes.len() as u32) << 3 | 1).to_le_bytes();
    [&[0x28, 0xb5, 0x2f, 0xfd, 0x20, bytes.len() as u8][..], &block[..3], bytes].concat()
}

fn sent(serving: &Serving, path: &str, headers: &str, body: &[u8]) -> Response {
    serving.ask(&format!("POST {path}\n{headers}"), body)
}

const JSON: &str = "content-type: application/json\n";
const RAW: &str = "content-type: application/octet-stream\n";

#[test]
fn bodies_are_decompressed_by_content_encoding() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let json = json!({"queries": [[9, 8]], "k": 1}).to_string();
    let raw = [9.0f32, 8.0].map(f32::to_le_bytes).concat();
    let plain = sent(&serving, "/v1/search", JSON, json.as_bytes()).json()["hits"].clone();
    for (path, kind, body) in [("/v1/search", JSON, json.as_bytes()), ("/v1/search?k=1&element=f32", RAW, &raw)] {
        for (encoding, body) in [
            ("gzip", gzip(body)),
            ("gzip", [gzip(body), vec![0; 37]].concat()),
            ("zstd", zstd(body)),
            ("identity", body.to_vec()),
        ] {
            let answer = sent(&serving, path, &format!("{kind}content-encoding: {encoding}"), &body);
            assert_eq!(answer.json()["hits"], plain, "{encoding}");
        }
        for encoding in ["br", "deflate", "gzip, zstd", "aws-chunked"] {
            let refused = sent(&serving, path, &format!("{kind}content-encoding: {encoding}"), body);
            assert!(refused.problem(415).contains("send the body as it is, or in one of: gzip, zstd"));
            assert!(refused.head.contains("accept-encoding: gzip, zstd"), "{}", refused.head);
        }
        let refused = sent(&serving, path, &format!("{kind}content-encoding: gzip"), body);
        assert!(refused.problem(400).contains("the body is not gzip, as its content encoding says"));
    }
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn out_of_range_numbers_are_refused_and_distances_are_never_null() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let post = |body: &str| sent(&serving, "/v1/search", JSON, body.as_bytes());
    for (body, words) in [
        (r#"{"queries": [[3e38, 3e38]], "k": 1}"#, "has length 4.243e38"),
        (r#"{"queries": [[1e39, 0]], "k": 1}"#, "beyond the range of f32"),
        (r#"{"queries": [[1e400, 0]], "k": 1}"#, "number out of range"),
        (r#"{"queries": [[NaN, 0]], "k": 1}"#, "expected value"),
        (r#"{"queries": [[1, 0]], "k": 1, "k": 2}"#, "duplicate field `k`"),
        (r#"{"queries": [[1, 0]], "k": 1e1}"#, "floating point `10.0`"),
        (r#"{"queries": [[1, 0]], "radius": 1e400}"#, "number out of range"),
    ] {
        let refused = post(body).problem(400);
        assert!(refused.contains(words), "{body}: {refused}");
    }
    for query in
        ["k=1&recall=NaN", "radius=inf", "radius=NaN", "k=1&k=2", "k=-1", "k=1&recall=2", "k=1&nprobe=99999999999"]
    {
        sent(&serving, &format!("/v1/search?{query}&element=f32"), RAW, &[0; 8]).problem(400);
    }
    for value in [f32::NAN, f32::INFINITY, f32::MAX] {
        let refused = sent(&serving, "/v1/search?k=1&element=f32", RAW, &[value, value].map(f32::to_le_bytes).concat());
        refused.problem(400);
    }
    let far = post(r#"{"queries": [[1.2e38, 1.2e38]], "k": 8}"#);
    assert_eq!(far.json()["hits"][0].as_array().unwrap().len(), 8, "{far:?}");
    assert!(!String::from_utf8_lossy(&far.body).contains("\"distance\":null"), "{far:?}");
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn requests_invalid_in_http_are_refused() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let body = json!({"queries": [[9, 8]], "k": 1}).to_string();
    let (length, chunk) = (body.len(), format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()));
    let search = "POST /v1/search HTTP/1.1\r\nconnection: close\r\ncontent-type: application/json\r\n";
    let status = |request: String| {
        let mut stream = serving.connect();
        stream.write_all(request.as_bytes()).unwrap();
        response(stream).status
    };
    for (headers, body, expected) in [
        (format!("host: localhost\r\ncontent-length: {length}\r\n"), &body, 200),
        ("host: localhost\r\ntransfer-encoding: chunked\r\n".into(), &chunk, 200),
        (format!("content-length: {length}\r\n"), &body, 400),
        (format!("host: localhost\r\nhost: localhost\r\ncontent-length: {length}\r\n"), &body, 400),
        ("host: localhost\r\ntransfer-encoding: gzip, chunked\r\n".into(), &chunk, 400),
        (format!("host: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: {length}\r\n"), &chunk, 400),
        (format!("host: localhost\r\ncontent-length: {length}\r\ntransfer-encoding: chunked\r\n"), &chunk, 400),
    ] {
        assert_eq!(status(format!("{search}{headers}\r\n{body}")), expected, "{headers}");
    }
    for path in ["/v1/info", "/livez", "/metrics"] {
        assert_eq!(
            status(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nhost: a\r\nconnection: close\r\n\r\n")),
            400
        );
        assert_eq!(status(format!("GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n")), 400);
        assert_eq!(status(format!("GET {path} HTTP/1.0\r\n\r\n")), 200);
    }
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn attributes_are_stored_exactly_or_refused() {
    let place = Place::new();
    place.done("collection create set.live --dimensions 1 --ids int64 --columns t:text,n:int64,x:float64");
    let serving = Serving::start(&place, "set.live --memory 128MB");
    let put = |id: u32, attributes: &str| {
        let body = format!(r#"{{"ids": [{id}], "vectors": [[0]], "columns": [{attributes}]}}"#);
        sent(&serving, "/v1/vectors", JSON, body.as_bytes())
    };
    for (id, attributes) in [(1, r#"{"n": 1.0, "x": 9007199254740992}"#), (2, r#"{"n": 9007199254740993, "x": 0.1}"#)] {
        assert_eq!(put(id, attributes).status, 200, "{attributes}");
    }
    for depth in [10, 1_000, 6_500, 50_000] {
        let refused = put(3, &format!(r#"{{"t": {}{}}}"#, "[".repeat(depth), "]".repeat(depth)));
        assert!(refused.problem(400).contains("which is not a valid text; give a text, or null"));
        let refused = put(3, &format!(r#"{{"o": {}1{}}}"#, r#"{"a":"#.repeat(depth), "}".repeat(depth)));
        assert!(refused.problem(400).contains("there is no column `o`; choose from: t, n, x"));
    }
    for (attributes, words) in [
        (r#"{"n": 1.5}"#, "`n` is 1.5, which is not a valid int64; give an integer of 64 bits, or null"),
        (r#"{"n": -2.9}"#, "-2.9"),
        (r#"{"n": 1e400}"#, "1e400"),
        (r#"{"x": 1e400}"#, "1e400"),
        (r#"{"x": 9007199254740993}"#, "which is not a valid float64"),
        (r#"{"n": 1, "n": 2}"#, "`n` is given twice"),
        ("null", r#"null is not an object; give {"t":null}"#),
    ] {
        let refused = put(3, attributes).problem(400);
        assert!(refused.contains(words), "{attributes}: {refused}");
    }
    let missing = sent(&serving, "/v1/vectors", JSON, br#"{"ids": [3], "vectors": [[0]]}"#).problem(400);
    assert!(missing.contains(r#"give an object for each vector in `columns`, such as {"t":null}"#), "{missing}");
    assert_eq!(put(3, r#"{"t":null}"#).status, 200);
    let texts = sent(&serving, "/v1/vectors", JSON, br#"{"ids": ["3"], "vectors": [[0]], "columns": [{}]}"#);
    assert!(texts.problem(400).contains("the ids of this collection are integers; give an integer for each vector"));
    for path in ["/v1/search", "/v1/vectors", "/v1/vectors/delete"] {
        for body in ["[]", "7", "", "null"] {
            let refused = sent(&serving, path, JSON, body.as_bytes()).problem(400);
            assert!(refused.contains("send one such as {"), "{path} {body}: {refused}");
        }
    }
    let whole: Value = json!({"queries": [[0]], "k": 9, "where": "n = 1 and x > 9007199254740991"});
    assert_eq!(serving.post("/v1/search", &whole).json()["hits"][0].as_array().unwrap().len(), 1);
    // Long chains and deep nests of conditions must be read or refused, with little time and stack.
    for condition in
        [["n = 1", "+1"], ["n", " is null"], ["n", " between 1 and 2"], ["n", " in (1, 2)"], ["n = 1", " or n = 1"]]
    {
        let condition = condition[0].to_owned() + &condition[1].repeat((4_000 - 5) / condition[1].len());
        let answer = serving.post("/v1/search", &json!({"queries": [[0]], "k": 9, "where": condition}));
        assert!([200, 400].contains(&answer.status), "{condition}");
    }
    assert_eq!(serving.end().0, Some(0));
}
