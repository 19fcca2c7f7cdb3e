//! `adjoin serve`. It must return the hits of `adjoin search` for every kind of body, and refuse invalid requests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use adjoin::{Choice, Durability, Element};
use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, Float64Builder, ListBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use serde_json::{Value, json};

use crate::inputs::{fbin, sample};
use crate::place::Place;
use crate::serving::Serving;

/// Creates a store of 8 points in the plane.
pub(crate) fn small() -> Place {
    let place = Place::new();
    place.write("set.fbin", &fbin(2, &[0., 0., 1., 0., 3., 0., 0., 4., 5., 5., 1., 0., 9., 9., -2., 0.]));
    place.done("build set.fbin -o set.store --quiet");
    place
}

#[test]
fn the_server_returns_the_hits_of_the_search_command() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let answer = serving.post("/v1/search", &json!({"queries": [[0, 0], [9, 8]], "k": 3}));
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let hit = |id: u64, distance: f64| json!({"id": id, "distance": distance});
    assert_eq!(answer["hits"][0], json!([hit(0, 0.0), hit(1, 1.0), hit(5, 1.0)]));
    assert_eq!(answer["hits"][1].as_array().unwrap()[..2], [hit(6, 1.0), hit(4, 5.0)]);
    assert_eq!(answer["recall"]["target"], 0.95);
    assert!(answer["recall"]["low"].as_f64().unwrap() >= 0.95, "{answer}");
    assert!(answer["bytes_per_query"].as_f64().unwrap() > 0.0 && answer["batch_queries"] == 2);
    let within = serving.post("/v1/search", &json!({"queries": [[0, 0]], "radius": 1, "exact": true})).json();
    assert_eq!(within["hits"], json!([[hit(0, 0.0), hit(1, 1.0), hit(5, 1.0)]]));
    let probed = serving.post("/v1/search", &json!({"queries": [[0, 0]], "k": 1, "nprobe": 1})).json();
    assert_eq!((&probed["recall"], &probed["probes_per_query"]), (&Value::Null, &json!(1.0)));
    let floats: Vec<u8> = [9.0f32, 8.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let raw = serving.ask("POST /v1/search?k=1\ncontent-type: application/octet-stream", &floats);
    assert_eq!(raw.json()["hits"], json!([[hit(6, 1.0)]]));
    let raw = serving.ask("POST /v1/search?k=1&element=u8\ncontent-type: application/octet-stream", &[9, 8, 0, 0]);
    assert_eq!(raw.json()["hits"], json!([[hit(6, 1.0)], [hit(0, 0.0)]]));
    assert_eq!(serving.metric("adjoin_queries_total"), 7.0);
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("store of 8 rows: listening on http://127.0.0.1:"), "{said}");
    assert!(said.contains("memory: ") && said.contains("the budget is 64.0 MB"), "{said}");
}

#[test]
fn the_server_logs_json_lines_if_requested() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB --log debug --log-format json");
    assert_eq!(serving.get("/livez").status, 200);
    let (code, said) = serving.end();
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has = |level: &str, words: &str| {
        let is_it = |line: &Value| line["level"] == level && line["message"].as_str().unwrap().contains(words);
        lines.iter().any(is_it)
    };
    assert!(has("INFO", "store of 8 rows: listening on http://127.0.0.1:"), "{said}");
    let request = lines.iter().find(|line| line["message"] == "request").unwrap();
    assert_eq!(
        [&request["method"], &request["path"], &request["status"]],
        [&json!("GET"), &json!("/livez"), &json!(200)]
    );
    assert!(request["milliseconds"].is_f64() && request["level"] == "DEBUG", "{said}");
    assert!(lines.iter().all(|line| line["timestamp"].is_string()), "{said}");
}

#[test]
fn the_server_reports_its_data_health_and_metrics() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let info = serving.get("/v1/info").json();
    assert_eq!((&info["kind"], &info["rows"], &info["dimensions"]), (&json!("store"), &json!(8), &json!(2)));
    assert_eq!((&info["metric"], &info["element"], &info["columns"]), (&json!("l2"), &json!("f32"), &json!([])));
    assert!(info["limits"]["body_bytes"].as_u64().unwrap() > 100_000);
    assert_eq!([serving.get("/livez").status, serving.get("/readyz").status], [200, 200]);
    assert_eq!((serving.metric("adjoin_memory_bytes{kind=\"budget\"}"), serving.metric("adjoin_rows")), (64e6, 8.0));
}

#[test]
fn the_server_refuses_invalid_requests_with_a_message() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let one = json!([[0, 0]]);
    for (body, words) in [
        (json!({"queries": one}), "either k, radius or min_similarity"),
        (json!({"queries": one, "k": 0}), "k 0 asks for nothing"),
        (json!({"queries": one, "k": 3, "recall": 1.5}), "the recall is 1.5"),
        (json!({"queries": one, "k": 3, "nprobe": 0}), "nprobe 0"),
        (json!({"queries": one, "k": 3, "nprobe": 1, "recall": 0.9}), "at most one of recall, exact, nprobe and list"),
        (json!({"queries": one, "k": 3, "list": 10}), "list 10 is for graph indexes"),
        (json!({"queries": one, "k": 3, "radius": 2}), "either k"),
        (json!({"queries": one, "radius": -1}), "the radius is -1"),
        (json!({"queries": one, "min_similarity": 0.5}), "metric l2; give radius"),
        (json!({"queries": one, "k": 10_001}), "at most 10000"),
        (json!({"queries": one, "k": 3, "where": "a = 1"}), "columns"),
        (json!({"queries": one, "k": 3, "where": "a ="}), "cannot read"),
        (json!({"queries": one, "k": 3, "deadline_ms": 0}), "deadline_ms is 0"),
        (json!({"queries": one, "k": 3, "element": "u8"}), "element is for raw bodies"),
        (json!({"queries": one, "k": 3, "top": 1}), "unknown field `top`"),
        (json!({"queries": [[1, 2, 3]], "k": 3}), "queries have 3 dimensions, but the vectors of set.store have 2"),
        (json!({"queries": [[1, 2], [3]], "k": 3}), "vector 1 has 1 numbers"),
        (json!({"queries": [], "k": 3}), "queries is missing or empty"),
        (json!({"k": 3}), "queries is missing or empty"),
        (json!([1, 2]), "the body is not a JSON object; send one such as"),
    ] {
        let detail = serving.post("/v1/search", &body).problem(400);
        assert!(detail.contains(words), "{body}: {detail}");
    }
    let raw = |query: &str, bytes: &[u8]| {
        let head = format!("POST /v1/search?{query}\ncontent-type: application/octet-stream");
        serving.ask(&head, bytes).problem(400)
    };
    assert!(raw("k=1", &[0; 9]).contains("whole vectors of 2 x f32, 8 bytes each"));
    assert!(raw("k=1&element=f64", &[0; 8]).contains("the element type is \"f64\"; give f32, f16, u8 or i8"));
    assert!(raw("k=x", &[0; 8]).contains("k"));
    assert!(raw("k=1&element=f32", &[0xff; 8]).contains("the query has NaN at element 0; give another vector"));
    let json = "POST /v1/search?k=1\ncontent-type: application/json";
    assert!(serving.ask(json, br#"{"queries": [[0, 0]], "k": 1}"#).problem(400).contains("leave out those after"));
    assert!(serving.ask("POST /v1/search", b"{}").problem(415).contains("application/json"));
    assert!(serving.get("/v1/search").problem(405).contains("/openapi.json"));
    for path in ["/v2", "/v1/search/", "/../etc/passwd", "/v1/%2e%2e/info", "//livez", "/v1/info%00"] {
        serving.get(path).problem(404);
    }
    serving.ask_under("rebound.example.org", "GET /v1/info", b"").problem(403);
    assert_eq!(serving.end().0, Some(0));
}

#[test]
fn an_invalid_query_does_not_fail_concurrent_queries() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let ask = |number: usize| match number % 3 {
        0 => serving.ask("POST /v1/search?k=1\ncontent-type: application/octet-stream", &[0xff; 8]).status,
        _ => serving.post("/v1/search", &json!({"queries": [[number, 0]], "k": 1})).status,
    };
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..30).map(|number| scope.spawn(move || ask(number))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let wanted: Vec<u16> = (0..30).map(|number| if number % 3 == 0 { 400 } else { 200 }).collect();
    assert_eq!(statuses, wanted);
}

#[test]
fn requests_need_the_key_if_one_is_set() {
    let place = small();
    place.write("key", b"secret\nsecond line\n");
    let serving = Serving::start(&place, "set.store --memory 64MB --key-file key");
    for header in ["", "\napi-key: wrong", "\nauthorization: Basic secret", "\nauthorization: Bearer secre"] {
        assert!(serving.ask(&format!("GET /v1/info{header}"), b"").problem(401).contains("api-key: KEY"));
        serving.ask(&format!("POST /v1/search{header}\ncontent-type: application/json"), b"{}").problem(401);
        serving.ask(&format!("GET /metrics{header}"), b"").problem(401);
    }
    for header in ["\napi-key: secret", "\nauthorization: Bearer secret"] {
        assert_eq!(serving.ask(&format!("GET /v1/info{header}"), b"").status, 200);
    }
    assert_eq!(serving.get("/livez").status, 200, "who looks after the server needs no key");
}

#[test]
fn refuses_invalid_serve_options_in_one_line() {
    let place = small();
    place.write("empty", b"\n");
    place.write("taken", b"secret");
    for (line, words) in [
        ("serve set.store --listen 0.0.0.0:0", &["0.0.0.0:0", "--key-file", "--insecure"][..]),
        ("serve set.store --listen nowhere", &["nowhere"]),
        ("serve set.store --listen 192.0.2.1:9 --insecure", &["cannot listen on 192.0.2.1:9", "--listen"]),
        ("serve set.store --key-file nothing", &["nothing", "key"]),
        ("serve set.store --key-file empty", &["empty: its first line is not a key"]),
        ("serve set.store --key-file taken --insecure", &["--insecure"]),
        ("serve set.store --memory 20MB", &["--memory"]),
        ("serve set.fbin", &["set.fbin is not a store", "adjoin build"]),
        ("serve nothing", &["nothing", "adjoin build"]),
        ("serve", &["<FOLDER>"]),
    ] {
        place.refused(line, words);
    }
}

#[test]
fn the_server_returns_ids_and_applies_filters() {
    let place = Place::new();
    place.done(&format!("build {} --id-column name --columns name --metric cosine -o set.store --quiet", sample()));
    let serving = Serving::start(&place, "set.store --memory 128MB");
    let dimensions = serving.get("/v1/info").json()["dimensions"].as_u64().unwrap() as usize;
    let query: Vec<f64> = (0..dimensions).map(|k| (k as f64).sin()).collect();
    let ask = |condition: &str| {
        let answer =
            serving.post("/v1/search", &json!({"queries": [query], "k": 5, "nprobe": 1000, "where": condition}));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["hits"][0].as_array().unwrap().clone()
    };
    let (all, some) = (ask("name is not null"), ask("name like 'lib%'"));
    assert_eq!([all.len(), some.len()], [5, 5]);
    let name = &some[0]["id"];
    let like = serving.post("/v1/search", &json!({"like": [name], "k": 2, "nprobe": 1000})).json();
    assert_eq!(&like["hits"][0][0]["id"], name);
    let unknown = serving.post("/v1/search", &json!({"like": [name, "no such\nname"], "k": 2})).problem(400);
    assert!(unknown.contains("no row has the id"), "{unknown}");
    assert!(serving.post("/v1/search", &json!({"like": [7], "k": 2})).problem(400).contains("give texts"));
    let is_named = |hit: &Value| hit["id"].as_str().unwrap().starts_with("lib") && hit["similarity"].is_number();
    assert!(some.iter().all(is_named) && !all.iter().all(is_named), "{all:?} {some:?}");
}

/// Checks requests that give ids of rows as queries. The server must search for the vectors of these rows.
#[test]
fn the_server_searches_by_row_id() {
    let place = small();
    place.done("index build set.store -o set.index --quiet");
    for served in ["set.store", "set.index"] {
        let serving = Serving::start(&place, &format!("{served} --memory 64MB"));
        let ask = |body: Value| serving.post("/v1/search", &body);
        let like = ask(json!({"like": [6, 0, 6], "k": 3}));
        assert_eq!(like.status, 200, "{served}: {like:?}");
        let vectors = ask(json!({"queries": [[9, 9], [0, 0], [9, 9]], "k": 3})).json();
        assert_eq!(like.json()["hits"], vectors["hits"], "{served}");
        assert_eq!(like.json()["hits"][0][0], json!({"id": 6, "distance": 0.0}), "{served}");
        for (body, words) in [
            (json!({"like": [8], "k": 1}), "no row has the id 8"),
            (json!({"like": [-1], "k": 1}), "no row has the id -1"),
            (json!({"like": ["a"], "k": 1}), "give row numbers"),
            (json!({"like": [], "k": 1}), "like is empty"),
            (json!({"like": [1, "a"], "k": 1}), "ids of one kind"),
            (json!({"like": [0], "queries": [[0, 0]], "k": 1}), "give one of them"),
            (json!({"like": [0]}), "either k, radius or min_similarity"),
            (json!({"like": vec![0; 4_097], "k": 1}), "at most 4096"),
        ] {
            let detail = ask(body.clone()).problem(400);
            assert!(detail.contains(words), "{served}: {body}: {detail}");
        }
    }
}

/// Checks that `/openapi.json` lists exactly the existing paths, with their methods and limits.
#[test]
fn openapi_lists_the_existing_paths_and_limits() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let described = serving.get("/openapi.json").json();
    let paths = described["paths"].as_object().unwrap();
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let status = serving.ask(&format!("{} {path}", method.to_uppercase()), b"").status;
            assert!(![404, 405].contains(&status), "{method} {path}: {status}");
        }
    }
    // Generators of clients name functions by these ids, so they must be unique.
    let operations = paths.values().flat_map(|methods| methods.as_object().unwrap().values());
    let ids: BTreeSet<&str> = operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), paths.len(), "{ids:?}");
    let mut names: Vec<&str> = paths.keys().map(String::as_str).collect();
    names.sort_unstable();
    let there = [
        "/livez",
        "/metrics",
        "/openapi.json",
        "/readyz",
        "/v1/info",
        "/v1/rows",
        "/v1/search",
        "/v1/vectors",
        "/v1/vectors/delete",
    ];
    assert_eq!(names, there);
    let limits = &serving.get("/v1/info").json()["limits"];
    let search = &described["components"]["schemas"]["Search"]["properties"];
    let said = [&search["k"]["maximum"], &search["queries"]["maxItems"], &search["deadline_ms"]["maximum"]];
    assert_eq!(said, ["k", "queries", "deadline_ms"].map(|name| &limits[name]));
    assert_eq!(described["components"]["schemas"]["Durability"]["enum"], json!(Durability::names()));
    let parameters = described["paths"]["/v1/search"]["post"]["parameters"].as_array().unwrap();
    let element = parameters.iter().find(|parameter| parameter["name"] == "element").unwrap();
    assert_eq!(element["schema"]["enum"], json!(Element::names()));
}

/// Checks that the schema of each JSON body has exactly the members that the server accepts. A refused member names them.
#[test]
fn openapi_has_the_members_of_every_body() {
    let place = crate::collection::small();
    let serving = Serving::start(&place, "set.live --memory 64MB");
    let described = serving.get("/openapi.json").json();
    for (path, methods) in described["paths"].as_object().unwrap() {
        let operation = &methods["post"];
        let Some(schema) = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str() else {
            assert!(operation.is_null(), "{path} has no JSON body");
            continue;
        };
        let properties = described.pointer(&schema[1..]).unwrap()["properties"].as_object().unwrap();
        let mut names: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
        if path == "/v1/search" {
            let parameters = operation["parameters"].as_array().unwrap();
            let mut of_url: BTreeSet<&str> = parameters.iter().map(|one| one["name"].as_str().unwrap()).collect();
            names.insert("element");
            of_url.extend(["queries", "like"]);
            assert_eq!(names, of_url, "bodies that are not JSON have the same members in the URL");
        }
        let detail = serving.post(path, &json!({"no_member": 1})).problem(400);
        let (_, expected) = detail.split_once("expected one of ").unwrap();
        assert_eq!(names, expected.split('`').skip(1).step_by(2).collect(), "{path}");
    }
}

#[test]
fn the_dashboard_shows_existing_metrics() {
    let dashboard =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana.json")).unwrap();
    let words = dashboard.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
    let names: BTreeSet<&str> = words.filter(|word| word.starts_with("adjoin_")).collect();
    assert!(names.len() > 10, "{names:?}");
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let metrics = String::from_utf8(serving.get("/metrics").body).unwrap();
    let existing: BTreeSet<&str> = metrics.lines().filter_map(|line| line.split([' ', '{']).next()).collect();
    let missing: Vec<_> = names.difference(&existing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Checks that requests for many hits or within a threshold are answered exactly, in the long lane. Requests for few
/// hits must still have the recall of a rule.
#[test]
fn large_requests_are_exact_and_do_not_affect_small_ones() {
    let place = Place::new();
    place.done("gen --rows 20000 --dimensions 4 -o set.fbin --quiet");
    place.done("build set.fbin -o set.store --quiet");
    let serving = Serving::start(&place, "set.store --memory 96MB");
    let ask = |wanted: Value| {
        let mut body = json!({"queries": [[0, 0, 0, 0]], "deadline_ms": 600_000});
        body.as_object_mut().unwrap().extend(wanted.as_object().unwrap().clone());
        let answer = serving.post("/v1/search", &body);
        assert_eq!(answer.status, 200, "{wanted}: {}", String::from_utf8_lossy(&answer.body));
        let answer = answer.json();
        (answer["hits"][0].as_array().unwrap().len(), answer["recall"]["low"].as_f64().unwrap())
    };
    for (wanted, hits) in
        [(json!({"k": 1_000}), 1_000), (json!({"k": 10_000}), 10_000), (json!({"radius": 1e9}), 20_000)]
    {
        assert_eq!(ask(wanted), (hits, 1.0));
        let (hits, low) = ask(json!({"k": 3}));
        assert!(hits == 3 && low < 1.0, "{low}");
    }
}

#[test]
fn the_web_page_loads_nothing_from_other_hosts() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let page = serving.get("/");
    assert!(page.status == 200 && page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    let text = String::from_utf8(page.body).unwrap();
    assert!(text.contains("<title>adjoin</title>") && !text.contains("http://") && !text.contains("https://"));
}

#[test]
fn hits_are_returned_as_arrow_if_accepted() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let head = "POST /v1/search\ncontent-type: application/json\naccept: application/vnd.apache.arrow.stream";
    let answer = serving.ask(head, json!({"queries": [[0, 0], [9, 8]], "k": 2}).to_string().as_bytes());
    assert!(answer.head.contains("content-type: application/vnd.apache.arrow.stream"), "{}", answer.head);
    let tables = arrow_ipc::reader::StreamReader::try_new(&answer.body[..], None).unwrap();
    let rows: usize = tables.map(|table| table.unwrap().num_rows()).sum();
    assert_eq!(rows, 4);
}

#[test]
fn queries_can_be_sent_as_arrow() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let ask = |members: &str, body: &[u8]| {
        let head = format!("POST /v1/search?{members}\ncontent-type: application/vnd.apache.arrow.stream");
        serving.ask(&head, body)
    };
    let asked = serving.post("/v1/search", &json!({"queries": [[9, 8], [0, 0]], "k": 3})).json();
    for table in [queries(&[Some(vec![9.0, 8.0]), Some(vec![0.0, 0.0])]), fixed_queries([9.0, 8.0, 0.0, 0.0])] {
        assert_eq!(ask("k=3", &table).json()["hits"], asked["hits"]);
    }
    let right = queries(&[Some(vec![9.0, 8.0])]);
    for (members, body, words) in [
        ("k=1", &b"no table"[..], "the body: cannot read"),
        ("k=1", b"", "the body: cannot read"),
        ("k=1", &right[..right.len() / 2], "the body: cannot read"),
        ("k=1", &queries(&[]), "it has no vectors"),
        ("k=1", &queries(&[Some(vec![9.0, 8.0]), None]), "the body: row 1 is null"),
        ("k=1", &queries(&[Some(vec![9.0, 8.0]), Some(vec![1.0])]), "row 1 has 1 element; 2 are expected"),
        ("k=1", &queries(&[Some(vec![9.0, f32::NAN])]), "the query has NaN at element 1"),
        ("k=1", &queries(&[Some(vec![9.0])]), "queries have 1 dimensions"),
        ("k=1", &queries(&vec![Some(vec![9.0, 8.0]); 4_097]), "4097 queries; ask for at most 4096"),
        ("k=1&element=f32", &right, "element is for raw bodies"),
        ("", &right, "either k, radius or min_similarity"),
    ] {
        let detail = ask(members, body).problem(400);
        assert!(detail.contains(words), "{words}: {detail}");
    }
    assert_eq!(serving.end().0, Some(0));
}

/// Returns queries as an Arrow stream of variable-size lists.
pub(crate) fn queries(rows: &[Option<Vec<f32>>]) -> Vec<u8> {
    let mut lists = ListBuilder::new(Float32Builder::new());
    rows.iter().for_each(|row| match row {
        Some(row) => lists.append_value(row.iter().copied().map(Some)),
        None => lists.append_null(),
    });
    stream(Arc::new(lists.finish()))
}

/// Returns points of the plane as an Arrow stream of fixed-size lists of f64.
fn fixed_queries(values: [f64; 4]) -> Vec<u8> {
    let mut lists = FixedSizeListBuilder::new(Float64Builder::new(), 2);
    for row in values.chunks(2) {
        lists.values().append_slice(row);
        lists.append(true);
    }
    stream(Arc::new(lists.finish()))
}

fn stream(column: ArrayRef) -> Vec<u8> {
    let table = RecordBatch::try_from_iter([("embedding", column)]).unwrap();
    let mut stream = StreamWriter::try_new(Vec::new(), &table.schema()).unwrap();
    stream.write(&table).unwrap();
    stream.into_inner().unwrap()
}

#[test]
fn bench_serve_measures_requests() {
    let place = small();
    let serving = Serving::start(&place, "set.store --memory 64MB");
    let line = format!("bench-serve http://{}/v1/search --queries set.fbin --rate 200 --seconds 1", serving.address);
    let told = place.done(&format!("{line} --at-once 2 --stats stats.json")).out;
    let stats: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    assert!(stats["requests"].as_u64().unwrap() > 0 && stats["requests"] == stats["answered"], "{told}");
    assert!(told.contains(" refused, 0 late, 0 failed\n") && told.contains("answers, ms: mean "), "{told}");
    place.refused(&format!("{line} --stats stats.json"), &["stats.json", "--force"]);
    let failed = place.run(&line.replace("/v1/search", "/v1/nothing"));
    assert!(failed.said.contains(" requests failed, the first with status 404"), "{}", failed.said);
    assert_eq!(failed.code, Some(2));
    for (line, words) in [
        ("bench-serve nowhere --queries set.fbin", &["nowhere is not a valid address"][..]),
        ("bench-serve http://127.0.0.1:1/v1/search --queries set.fbin", &["127.0.0.1:1"]),
        ("bench-serve http://127.0.0.1:1/v1/search --queries set.fbin --rate 0", &["0 requests per second"]),
        ("bench-serve http://127.0.0.1:1/v1/search --queries set.fbin --members 7", &["--members 7", "an object"]),
    ] {
        place.refused(line, words);
    }
}
