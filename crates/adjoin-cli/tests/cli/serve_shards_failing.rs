//! `adjoin serve --shards` with shards that are down, slow, wrong or replaced: they are named, or the request fails.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::inputs::fbin;
use crate::serving::{Response, Serving};
use crate::shards::{MEMORY, addresses, coordinate, hits, ok, pretend, properties, serve_thirds, stores, urls, vector};

/// Time limit for an expected event before a test fails.
const PATIENCE: Duration = Duration::from_secs(600);

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ask(coordinator: &Serving, members: Value) -> Response {
    let mut body = json!({"queries": [vector(0)], "k": 300, "exact": true});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    coordinator.post("/v1/search", &body)
}

/// Checks that an answer is partial, lacks one shard of `total`, and has `rows` hits. Returns the reason.
fn check_partial(answer: &Response, shard: &str, total: usize, rows: usize) -> String {
    assert_eq!(hits(answer)[0].as_array().unwrap().len(), rows);
    assert!(answer.head.contains("adjoin-partial: true"), "{}", answer.head);
    let answer = answer.json();
    assert_eq!((&answer["partial"], &answer["recall"]), (&json!(true), &Value::Null));
    assert_eq!((&answer["shards"]["total"], &answer["shards"]["answered"]), (&json!(total), &json!(total - 1)));
    let failed = answer["shards"]["failed"].as_array().unwrap();
    assert_eq!((failed.len(), failed[0]["shard"].as_str()), (1, Some(shard)));
    failed[0]["detail"].as_str().unwrap().to_owned()
}

#[test]
fn a_shard_that_is_down_is_named_until_it_is_back() {
    let place = stores();
    let mut shards = serve_thirds(&place);
    let coordinator = coordinate(&place, &addresses(&shards));
    assert_eq!(hits(&ask(&coordinator, json!({})))[0].as_array().unwrap().len(), 300);
    let (address, url) = (shards[1].address.to_string(), format!("http://{}", shards[1].address));
    assert_eq!(shards.remove(1).end().0, Some(0));
    // The first request may be the first to notice, and later ones know it.
    for _ in 0..2 {
        let refused = ask(&coordinator, json!({}));
        let detail = refused.problem(503);
        assert!(detail.starts_with(&format!("1 of 3 shards failed: {url}: ")), "{detail}");
        assert!(detail.contains("set partial to true") && refused.head.contains("retry-after: 1"), "{detail}");
        check_partial(&ask(&coordinator, json!({"partial": true})), &url, 3, 200);
    }
    coordinator.post("/v1/rows", &json!({"ids": [1_000]})).problem(503);
    let like = coordinator.post("/v1/search", &json!({"like": [1_150], "k": 1, "partial": true})).problem(503);
    assert!(like.contains(&url), "{like}");
    let like = coordinator.post("/v1/search", &json!({"like": [1_005], "k": 1, "partial": true}));
    assert_eq!(hits(&like)[0][0]["id"], 1_005);
    let ready = coordinator.get("/readyz");
    assert!(ready.status == 200 && String::from_utf8_lossy(&ready.body).contains(&format!("not available: {url}")));
    let info = coordinator.get("/v1/info").json();
    assert_eq!((&info["shards"][1]["available"], &info["shards"][1]["rows"]), (&json!(false), &json!(100)));
    assert_eq!(coordinator.metric(&format!("adjoin_shard_available{{shard=\"{url}\"}}")), 0.0);

    let back = Serving::start_at(&place, &address, &format!("1.store {MEMORY}"), &[]);
    wait_until("the shard is available again", || ask(&coordinator, json!({})).status == 200);
    assert_eq!(hits(&ask(&coordinator, json!({})))[0].as_array().unwrap().len(), 300);
    assert_eq!(back.end().0, Some(0));
    // Another set at the address of the shard is never searched.
    place.write("other.fbin", &fbin(3, &[0., 1., 2.]));
    place.done("build other.fbin -o other.store --quiet");
    let _other = Serving::start_at(&place, &address, &format!("other.store {MEMORY}"), &[]);
    let is_named = || {
        let refused = ask(&coordinator, json!({}));
        assert!([502, 503].contains(&refused.status), "{refused:?}");
        refused.status == 502 && refused.problem(502).contains(&format!("{url}: its rows have no ids"))
    };
    wait_until("the wrong shard is named", is_named);
    shards.into_iter().for_each(|shard| assert_eq!(shard.end().0, Some(0)));
    wait_until("no shard is available", || coordinator.get("/readyz").status == 503);
    assert!(ask(&coordinator, json!({"partial": true})).problem(502).starts_with("3 of 3 shards failed: "));
    let (code, said) = coordinator.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("{url} is available")) && said.contains(&format!("{url} is not available: ")));
}

#[test]
fn a_shard_that_is_down_at_the_start_may_be_started_later() {
    let place = stores();
    let first = Serving::start(&place, &format!("0.store {MEMORY}"));
    let later = Serving::start(&place, &format!("1.store {MEMORY}"));
    let address = later.address;
    later.end();
    let coordinator = coordinate(&place, &[first.address, address]);
    let detail = check_partial(&ask(&coordinator, json!({"partial": true})), &format!("http://{address}"), 2, 100);
    assert!(detail.starts_with("cannot connect: "), "{detail}");
    let _later = Serving::start_at(&place, &address.to_string(), &format!("1.store {MEMORY}"), &[]);
    wait_until("the shard is available", || ask(&coordinator, json!({})).status == 200);
}

#[test]
fn a_slow_shard_is_named_at_the_deadline() {
    let place = stores();
    let shard = Serving::start(&place, &format!("0.store {MEMORY}"));
    let slow = pretend(&properties(), None);
    let coordinator = coordinate(&place, &[slow, shard.address]);
    // The other shard must have answered by then, also on a busy machine.
    let late = ask(&coordinator, json!({"deadline_ms": 3_000})).problem(504);
    assert!(late.starts_with(&format!("1 of 2 shards failed: http://{slow}: no answer before the deadline")), "{late}");
    let partial = ask(&coordinator, json!({"deadline_ms": 3_000, "partial": true}));
    let detail = check_partial(&partial, &format!("http://{slow}"), 2, 100);
    assert!(detail.contains("deadline"), "{detail}");
    assert_eq!(
        coordinator.metric(&format!("adjoin_shard_requests_total{{shard=\"http://{slow}\",outcome=\"late\"}}")),
        2.0
    );
    assert_eq!(coordinator.get("/readyz").body, b"ready\n", "slow is not down");
}

#[test]
fn answers_that_are_not_hits_are_refused() {
    let place = stores();
    let shard = Serving::start(&place, &format!("0.store {MEMORY}"));
    let stream = "application/vnd.apache.arrow.stream";
    let huge = [&[0xFF; 4][..], &0x7FFF_FFFFu32.to_le_bytes(), b"more"].concat();
    let hits_of_others = {
        let head = format!("POST /v1/search\ncontent-type: application/json\naccept: {stream}");
        let body = json!({"queries": [vector(0), vector(1)], "k": 5, "columns": ["year"]});
        shard.ask(&head, body.to_string().as_bytes()).body
    };
    for (answer, status, words) in [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n".to_vec(), 502, "it does not answer in HTTP"),
        (ok("text/html", b"<html>"), 502, "Arrow stream"),
        (ok(stream, &huge), 502, "cut off"),
        (ok(stream, &hits_of_others), 502, "5 columns, 4 are expected"),
        (ok(stream, &hits_of_others[..hits_of_others.len() / 2]), 502, "cut off"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nshort".to_vec(), 503, "closed before the end"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n".to_vec(), 507, "request fewer"),
        (b"HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\n{}".to_vec(), 502, "status 500"),
        (b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n".to_vec(), 502, "status 302"),
        (Vec::new(), 503, "the connection was"),
    ] {
        let wrong = pretend(&properties(), Some(&answer));
        let coordinator = coordinate(&place, &[shard.address, wrong]);
        let detail = ask(&coordinator, json!({})).problem(status);
        assert!(detail.contains(words), "{words}: {detail}");
        if status != 507 {
            check_partial(&ask(&coordinator, json!({"partial": true})), &format!("http://{wrong}"), 2, 100);
        }
        let (code, said) = coordinator.end();
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn invalid_requests_fail_with_the_message_of_a_shard() {
    let place = stores();
    let shards = serve_thirds(&place);
    let coordinator = coordinate(&place, &addresses(&shards));
    let one = json!([vector(0)]);
    for (body, words) in [
        (json!({"queries": one}), "either k, radius or min_similarity"),
        (json!({"queries": one, "k": 10_001}), "at most 10000"),
        (json!({"queries": one, "k": 3, "recall": 1.5}), "the recall is 1.5"),
        (json!({"queries": one, "min_similarity": 0.5}), "metric l2; give radius"),
        (json!({"queries": one, "k": 3, "list": 10, "partial": true}), "list 10 is for graph indexes"),
        (json!({"queries": one, "k": 3, "where": "nothing = 1"}), "nothing"),
        (json!({"queries": one, "k": 3, "columns": ["a,b"]}), "a,b"),
        (json!({"queries": one, "k": 3, "deadline_ms": 0}), "deadline_ms is 0"),
        (json!({"queries": [[1, 2, 3]], "k": 3}), "queries have 3 dimensions, the vectors of the shards 4"),
        (json!({"queries": [], "k": 3}), "queries is missing or empty"),
        (json!({"like": [5], "k": 3}), "no row has the id 5"),
        (json!({"like": ["a"], "k": 3}), "give integers"),
        (json!({"queries": one, "k": 3, "partial": 1}), "a boolean"),
    ] {
        let detail = coordinator.post("/v1/search", &body).problem(400);
        assert!(detail.contains(words), "{body}: {detail}");
    }
    assert!(coordinator.post("/v1/rows", &json!({"ids": [5]})).problem(400).contains("no row has the id 5"));
    assert_eq!(coordinator.get("/readyz").body, b"ready\n");
}

#[test]
fn shards_that_disagree_are_refused_in_one_line() {
    let place = stores();
    let shard = Serving::start(&place, &format!("0.store {MEMORY}"));
    let with = |member: &str, value: Value| {
        let mut properties = properties();
        properties[member] = value;
        pretend(&properties, None)
    };
    let url = format!("http://{}", shard.address);
    for (other, words) in [
        (with("dimensions", json!(5)), "it has dimensions 5, but URL has 4; serve shards that agree"),
        (with("metric", json!("cosine")), "the metric cosine, but URL has l2"),
        (with("element", json!("u8")), "elements of type u8, but URL has f32"),
        (with("ids", json!("utf8")), "ids of kind text, but URL has int64"),
        (with("ids", json!("none")), "its rows have no ids"),
        (with("metric", json!("nearest")), "it does not answer /v1/info as a server of adjoin"),
    ] {
        let line = format!("serve --shards {} --listen 127.0.0.1:0", urls(&[shard.address, other]));
        place.refused(&line, &[&format!("http://{other}: "), &words.replace("URL", &url)]);
    }
    let nobody = "http://127.0.0.1:1";
    for (line, words) in [
        (
            format!("serve --shards {nobody} --listen 127.0.0.1:0"),
            &["no shard answers", nobody, "start the servers"][..],
        ),
        (format!("serve --shards {url},{url}/ --listen 127.0.0.1:0"), &["is given twice"]),
        ("serve --shards a:7700".into(), &["not the address of a server", "http://10.0.0.7:7700"]),
        ("serve --shards https://a".into(), &["asks for TLS"]),
        (format!("serve 0.store --shards {url}"), &["--shards", "cannot be used with"]),
        ("serve 0.store --shard-key-file key".into(), &["--shards"]),
        (format!("serve --shards {url} --listen 0.0.0.0:0"), &["--key-file"]),
    ] {
        place.refused(&line, words);
    }
}
