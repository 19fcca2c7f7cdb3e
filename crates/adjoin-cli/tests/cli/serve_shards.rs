//! `adjoin serve --shards`: a coordinator returns the hits of one server with all rows.

use std::collections::BTreeSet;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use serde_json::{Value, json};

use crate::place::Place;
use crate::serve::queries;
use crate::serving::{Response, Serving};
use crate::shards::{MEMORY, OF_SHARD, ROWS, addresses, coordinate, hits, serve_thirds, stores, urls, vector};

const ARROW: &str = "application/vnd.apache.arrow.stream";

fn table(response: &Response) -> RecordBatch {
    assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
    let tables: Vec<_> = StreamReader::try_new(&response.body[..], None).unwrap().map(Result::unwrap).collect();
    let [table] = &tables[..] else { panic!("{} tables", tables.len()) };
    table.clone()
}

#[test]
fn a_coordinator_returns_the_hits_of_one_server() {
    let place = stores();
    let (all, shards) = (Serving::start(&place, &format!("all.store {MEMORY}")), serve_thirds(&place));
    let coordinator = coordinate(&place, &addresses(&shards));
    let queries: Vec<[f32; 4]> = [0, 5, 139, 250].map(vector).to_vec();
    let long = format!("year in ({}2001, 2003)", "1, ".repeat(1_000));
    for wanted in [
        json!({"k": 1}),
        json!({"k": 7, "exact": true}),
        json!({"k": 10_000, "exact": true}),
        json!({"radius": 6.5, "exact": true}),
        json!({"radius": 0}),
        json!({"k": 9, "exact": true, "where": "year >= 2003 and rank <> 'row\n5'"}),
        json!({"k": 9, "exact": true, "where": long, "columns": ["year"]}),
        json!({"k": 20, "exact": true, "columns": ["rank", "year"]}),
        json!({"k": 3, "exact": true, "where": "year is null", "columns": ["year"]}),
        json!({"k": 5, "nprobe": 1_000, "partial": true}),
    ] {
        let mut body = json!({"queries": queries});
        body.as_object_mut().unwrap().extend(wanted.as_object().unwrap().clone());
        let [one, many] = [&all, &coordinator].map(|serving| serving.post("/v1/search", &body));
        let exact = wanted["k"] != 1; // a store answers few hits by a rule, which promises a recall
        assert!(!exact || hits(&one) == hits(&many), "{wanted}\n{}\n{}", hits(&one), hits(&many));
        assert_eq!(hits(&many).as_array().unwrap().len(), 4);
        let answer = many.json();
        assert_eq!(answer["partial"], false);
        assert_eq!(answer["shards"], json!({"total": 3, "answered": 3, "failed": []}));
        assert!(!many.head.contains("adjoin-partial"));
        let head = format!("POST /v1/search\ncontent-type: application/json\naccept: {ARROW}");
        let [one, many] = [&all, &coordinator].map(|serving| table(&serving.ask(&head, body.to_string().as_bytes())));
        assert!(!exact || one.columns() == many.columns(), "{wanted}: {one:?}\n{many:?}");
        let names = |table: &RecordBatch| -> Vec<_> {
            table.schema().fields().iter().map(|field| field.name().clone()).collect()
        };
        assert_eq!(names(&one), names(&many));
        let facts: Value = serde_json::from_str(&many.schema().metadata()["adjoin"]).unwrap();
        assert_eq!(facts["shards"]["answered"], 3);
    }
    let (code, said) = coordinator.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("3 shards of 300 rows: listening on http://"), "{said}");
}

#[test]
fn a_coordinator_takes_queries_in_every_form() {
    let place = stores();
    let (all, shards) = (Serving::start(&place, &format!("all.store {MEMORY}")), serve_thirds(&place));
    let coordinator = coordinate(&place, &addresses(&shards));
    let floats: Vec<u8> = vector(7).iter().flat_map(|value| value.to_le_bytes()).collect();
    let bytes: Vec<u8> = vector(7).iter().map(|&value| value as u8).collect();
    let arrow = queries(&[Some(vector(7).to_vec()), Some(vector(8).to_vec())]);
    for (kind, members, body) in [
        ("application/octet-stream", "k=9&exact=true", &floats[..]),
        ("application/octet-stream", "k=9&exact=true&element=u8", &bytes),
        ("application/octet-stream", "k=9&exact=true&columns=year,rank&where=year%3D2001", &floats),
        (ARROW, "k=9&exact=true", &arrow),
    ] {
        let head = format!("POST /v1/search?{members}\ncontent-type: {kind}");
        let [one, many] = [&all, &coordinator].map(|serving| hits(&serving.ask(&head, body)));
        assert_eq!(one, many, "{kind}: {members}");
    }
    let [one, many] = [&all, &coordinator].map(|serving| {
        let like = serving.post("/v1/search", &json!({"like": [1_299, 1_003, 1_299], "k": 4, "exact": true}));
        hits(&like)
    });
    assert_eq!(one, many);
    for body in [
        json!({"ids": [1_250, 1_001, 1_250, 1_100]}),
        json!({"ids": [1_250, 7, 1_100], "on_missing": "skip"}),
        json!({"ids": [1_250, 7, 1_100]}),
        json!({"ids": []}),
    ] {
        let [one, many] = [&all, &coordinator].map(|serving| serving.post("/v1/rows", &body));
        assert_eq!((one.status, one.json()["rows"].take()), (many.status, many.json()["rows"].take()), "{body}");
    }
}

/// Checks that stores, indexes and collections can be shards of one coordinator, and that rows are found that were
/// inserted after its start.
#[test]
fn shards_may_be_of_different_kinds() {
    let place = stores();
    place.done("index build 1.store -o 1.index --quiet");
    place.done("collection create 2.live --dimensions 4 --ids int64 --columns year:int64,rank:text");
    let all = Serving::start(&place, &format!("all.store {MEMORY}"));
    let shards = ["0.store", "1.index", "2.live"].map(|folder| Serving::start(&place, &format!("{folder} {MEMORY}")));
    let coordinator = coordinate(&place, &addresses(&shards));
    let rows: Vec<usize> = (2 * OF_SHARD..ROWS).collect();
    let vectors: Vec<[f32; 4]> = rows.iter().map(|&row| vector(row)).collect();
    let ids: Vec<usize> = rows.iter().map(|row| 1_000 + row).collect();
    let put = json!({"ids": ids, "vectors": vectors, "columns": vec![json!({}); rows.len()]});
    let refused = coordinator.post("/v1/vectors", &put).problem(400);
    assert!(refused.contains("a coordinator does not write; send the write to the server of the shard"), "{refused}");
    coordinator.post("/v1/vectors/delete", &json!({"ids": [1_000]})).problem(400);
    let written = shards[2].post("/v1/vectors", &put);
    assert_eq!(written.status, 200, "{}", String::from_utf8_lossy(&written.body));
    let body = json!({"queries": [vector(3), vector(222)], "k": 12, "exact": true});
    let [one, many] = [&all, &coordinator].map(|serving| serving.post("/v1/search", &body));
    assert_eq!(hits(&one), hits(&many));
    assert_eq!(many.json()["recall"], json!({"target": 1.0, "low": 1.0, "kept": true}));
}

#[test]
fn a_coordinator_reports_its_shards_and_metrics() {
    let place = stores();
    let shards = serve_thirds(&place);
    let coordinator = coordinate(&place, &addresses(&shards));
    let info = coordinator.get("/v1/info").json();
    let one = shards[0].get("/v1/info").json();
    for member in ["dimensions", "metric", "element", "ids", "columns", "version"] {
        assert_eq!(info[member], one[member], "{member}");
    }
    assert_eq!((&info["kind"], &info["rows"]), (&json!("coordinator"), &json!(300)));
    let shard = &info["shards"][2];
    let url = format!("http://{}", shards[2].address);
    assert_eq!(shard, &json!({"shard": url, "available": true, "kind": "store", "rows": 100, "detail": null}));
    assert_eq!((coordinator.get("/readyz").status, coordinator.get("/livez").status), (200, 200));
    hits(&coordinator.post("/v1/search", &json!({"queries": [vector(0), vector(1)], "k": 3})));
    assert_eq!((coordinator.metric("adjoin_queries_total"), coordinator.metric("adjoin_rows")), (2.0, 300.0));
    assert_eq!(
        coordinator.metric(&format!("adjoin_shard_requests_total{{shard=\"{url}\",outcome=\"answered\"}}")),
        1.0
    );
    assert_eq!(coordinator.metric(&format!("adjoin_shard_available{{shard=\"{url}\"}}")), 1.0);
    assert!(coordinator.get("/").status == 200 && coordinator.get("/openapi.json").status == 200);
    coordinator.get("/v2").problem(404);
}

/// Checks that each shard is asked for the recall with which the union of hits reaches the target at worst.
#[test]
fn the_promised_recall_holds_for_all_shards_together() {
    let place = Place::new();
    for shard in 0..2 {
        place.done(&format!("gen --rows 4000 --dimensions 8 --seed {shard} -o {shard}.fbin --quiet"));
        place.done(&format!("collection create {shard}.live --dimensions 8 --ids int64"));
        place.done(&format!("build {shard}.fbin -o plain{shard}.store --quiet"));
    }
    // Rows of generated files have no ids, so these stores cannot be shards.
    let plain = Serving::start(&place, &format!("plain0.store {MEMORY}"));
    place.refused(
        &format!("serve --shards http://{} --listen 127.0.0.1:0", plain.address),
        &["its rows have no ids", "--id-column"],
    );
    let stores = stores();
    let shards = serve_thirds(&stores);
    let coordinator = coordinate(&stores, &addresses(&shards));
    let answer = coordinator.post("/v1/search", &json!({"queries": [vector(0)], "k": 3, "recall": 0.7})).json();
    let low = answer["recall"]["low"].as_f64().unwrap();
    assert!(answer["recall"]["target"] == 0.7 && answer["recall"]["kept"] == true && low >= 0.7, "{answer}");
    let probed = coordinator.post("/v1/search", &json!({"queries": [vector(0)], "k": 3, "nprobe": 1})).json();
    assert_eq!((&probed["recall"], &probed["probes_per_query"]), (&Value::Null, &json!(3.0)));
}

#[test]
fn keys_of_the_coordinator_and_of_the_shards_differ() {
    let place = stores();
    place.write("inner", b"inner-secret\n");
    place.write("outer", b"outer-secret\n");
    let shards: Vec<Serving> =
        (0..2).map(|shard| Serving::start(&place, &format!("{shard}.store {MEMORY} --key-file inner"))).collect();
    let shards_option = format!("--shards {}", urls(&addresses(&shards)));
    place.refused(&format!("serve {shards_option} --listen 127.0.0.1:0"), &["needs a key", "ADJOIN_SHARD_KEY"]);
    place.refused(
        &format!("serve {shards_option} --shard-key-file outer --listen 127.0.0.1:0"),
        &["needs a key, or another one", "--shard-key-file"],
    );
    let line = format!("{shards_option} {MEMORY} --key-file outer --log debug");
    let by_file = Serving::start(&place, &format!("{line} --shard-key-file inner"));
    let by_variable = Serving::start_at(&place, "127.0.0.1:0", &line, &[("ADJOIN_SHARD_KEY", "inner-secret")]);
    for coordinator in [by_file, by_variable] {
        let body = json!({"queries": [[90125, 0, 0, 0]], "k": 1}).to_string();
        let ask = |key: &str| {
            let head = format!("POST /v1/search\ncontent-type: application/json\napi-key: {key}");
            coordinator.ask(&head, body.as_bytes())
        };
        ask("inner-secret").problem(401);
        coordinator.get("/metrics").problem(401);
        assert_eq!(hits(&ask("outer-secret"))[0].as_array().unwrap().len(), 1);
        let (_, said) = coordinator.end();
        assert!(said.contains("/v1/search") && !said.contains("secret") && !said.contains("90125"), "{said}");
    }
}

#[test]
fn many_clients_are_answered_at_once() {
    let place = stores();
    let shards = serve_thirds(&place);
    let coordinator = coordinate(&place, &addresses(&shards));
    let body = |row: usize| json!({"queries": [vector(row)], "k": 5, "exact": true, "deadline_ms": 600_000});
    let wanted: Vec<Value> = (0..8).map(|row| hits(&coordinator.post("/v1/search", &body(row)))).collect();
    std::thread::scope(|scope| {
        for client in 0..48 {
            let (coordinator, wanted) = (&coordinator, &wanted);
            scope.spawn(move || {
                for row in 0..8 {
                    let row = (row + client) % 8;
                    assert_eq!(hits(&coordinator.post("/v1/search", &body(row))), wanted[row]);
                }
            });
        }
    });
    assert_eq!(coordinator.metric("adjoin_queries_total"), 8.0 + 48.0 * 8.0);
    assert_eq!(coordinator.end().0, Some(0));
}

/// Checks that answers of shards beyond the memory for clients are refused, and that the coordinator stays within its
/// budget.
#[test]
fn answers_beyond_the_memory_are_refused() {
    let place = stores();
    let shards: Vec<Serving> =
        (0..3).map(|shard| Serving::start(&place, &format!("{shard}.store --memory 512MB"))).collect();
    let coordinator = Serving::start(&place, &format!("--shards {} --memory 40MB", urls(&addresses(&shards))));
    // A body may have a sixteenth of the memory for clients, and a query has 300 hits of at least 28 bytes.
    let memory = 16 * coordinator.get("/v1/info").json()["limits"]["body_bytes"].as_u64().unwrap() as usize;
    let queries = memory / (300 * 28) + 1;
    let large = json!({"queries": vec![vector(1); queries], "k": 100, "exact": true, "columns": ["rank"],
        "deadline_ms": 600_000});
    let statuses: BTreeSet<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(|| coordinator.post("/v1/search", &large).status)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [429, 507].contains(status)), "{statuses:?}");
    let refused = coordinator.post("/v1/search", &large).problem(507);
    assert!(refused.contains("request fewer at once"), "{refused}");
    let too_long = json!({"queries": [vector(1)], "k": 1, "where": "a".repeat(memory / 16)});
    coordinator.post("/v1/search", &too_long).problem(413);
    hits(&coordinator.post("/v1/search", &json!({"queries": [vector(1)], "k": 300, "exact": true})));
    let (code, said) = coordinator.end();
    assert_eq!(code, Some(0), "{said}");
}
