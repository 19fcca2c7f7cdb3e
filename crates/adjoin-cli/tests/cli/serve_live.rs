//! `adjoin serve` of indexes, and of a live index that clients change.

use serde_json::{Value, json};

use crate::inputs::fbin;
use crate::place::Place;
use crate::serving::Serving;

fn ids_of(answer: &Value) -> Vec<Value> {
    answer["hits"][0].as_array().unwrap().iter().map(|hit| hit["id"].clone()).collect()
}

#[test]
fn an_index_is_served() {
    let place = Place::new();
    place.done("gen --rows 3000 --dimensions 8 -o set.fbin --quiet");
    place.done("index build set.fbin -o set.index --quiet");
    place.write("query.fbin", &fbin(8, &[0.5; 8]));
    let serving = Serving::start(&place, "set.index --memory 64MB");
    assert_eq!(serving.get("/v1/info").json()["kind"], "index");
    let found = serving.post("/v1/search", &json!({"queries": [vec![0.5; 8]], "k": 3, "list": 100})).json();
    let wanted = place.done("index search set.index --queries query.fbin -k 3 --list 100 --quiet").out;
    let wanted: Vec<Value> =
        wanted.lines().skip(1).map(|line| line.split(',').nth(2).unwrap().parse::<u64>().unwrap().into()).collect();
    assert_eq!(ids_of(&found), wanted);
    let refused = serving.post("/v1/search", &json!({"queries": [vec![0.5; 8]], "k": 3, "nprobe": 1})).problem(400);
    assert!(refused.contains("of a graph index give list or recall"), "{refused}");
    let refused = serving.post("/v1/vectors/delete", &json!({"ids": [1]})).problem(400);
    assert!(refused.contains("serve a live index to write"), "{refused}");
}

#[test]
fn rows_of_a_live_index_come_go_and_stay_after_the_end() {
    let place = Place::new();
    place.done("live create set.live --dimensions 2 --ids text --attributes lang:text");
    let serve = "set.live --memory 64MB";
    let serving = Serving::start(&place, serve);
    let put = |body: Value| serving.post("/v1/vectors", &body);
    let rows = json!({"ids": ["a", "b", "c"], "vectors": [[0, 0], [1, 0], [5, 5]], "attributes": [{"lang": "en"}, {}, {"lang": "de"}]});
    assert_eq!(put(rows.clone()).json(), json!({"sequence": 1, "rows": 3, "gone": 0, "missing": 0}));
    let find = |condition: &str| {
        let answer = serving.post("/v1/search", &json!({"queries": [[0, 0]], "k": 10, "where": condition}));
        assert_eq!(answer.status, 200, "{answer:?}");
        ids_of(&answer.json())
    };
    assert_eq!(
        (find("lang is null or lang is not null"), find("lang = 'de'")),
        (vec![json!("a"), json!("b"), json!("c")], vec![json!("c")])
    );
    let again = put(json!({"ids": ["a"], "vectors": [[9, 9]], "attributes": [{"lang": "fr"}], "put": "insert"}));
    assert!(again.problem(400).contains("vectors: the id a of row 0 is there already"));
    assert_eq!(put(json!({"ids": ["a"], "vectors": [[9, 9]], "attributes": [{}]})).json()["gone"], 1);
    let gone = serving.post("/v1/vectors/delete", &json!({"where": "lang = 'de'", "durability": "buffered"})).json();
    assert_eq!((&gone["gone"], &gone["sequence"]), (&json!(1), &json!(3)));
    assert_eq!(serving.post("/v1/vectors/delete", &json!({"ids": ["none", "b"]})).json()["missing"], 1);
    assert_eq!(find("lang is null or lang is not null"), [json!("a")]);
    for (body, words) in [
        (json!({"ids": [1], "vectors": [[1, 2]]}), "give a text for each"),
        (json!({"ids": ["x"], "vectors": [[1, 2], [3, 4]]}), "2 vectors have 1 ids"),
        (json!({"vectors": [[1, 2]]}), "give a text for each"),
        (json!({"ids": ["x"], "vectors": [[1, 2]]}), "attributes"),
        (json!({"ids": ["x"], "vectors": [[1, 2]], "attributes": [{"year": 1}]}), "year"),
        (json!({"ids": ["x"], "vectors": [[1, 2, 3]], "attributes": [{}]}), "3 x f32"),
        (
            json!({"ids": ["x", "x"], "vectors": [[1, 2], [3, 4]], "attributes": [{}, {}], "put": "insert"}),
            "comes twice",
        ),
        (json!({"ids": ["x"], "vectors": [[1, 2]], "attributes": [{}], "put": "often"}), "often"),
    ] {
        let detail = put(body.clone()).problem(400);
        assert!(detail.contains(words), "{body}: {detail}");
    }
    assert!(serving.post("/v1/vectors/delete", &json!({})).problem(400).contains("either `ids` or `where`"));
    place.refused("live write set.live --delete none", &["set.live"]);
    assert_eq!(serving.end().0, Some(0));
    let serving = Serving::start(&place, serve);
    assert_eq!(serving.metric("adjoin_rows"), 1.0);
    assert_eq!(ids_of(&serving.post("/v1/search", &json!({"queries": [[9, 9]], "k": 2})).json()), [json!("a")]);
    assert_eq!(ids_of(&serving.post("/v1/search", &json!({"like": ["a"], "k": 2})).json()), [json!("a")]);
    assert!(serving.post("/v1/search", &json!({"like": ["b"], "k": 2})).problem(400).contains("no row is called b"));
}

/// What was acknowledged is there after the process was killed.
#[test]
fn a_write_outlives_the_server() {
    let place = Place::new();
    place.done("live create set.live --dimensions 2");
    let serving = Serving::start(&place, "set.live --memory 64MB");
    for id in 0..20 {
        assert_eq!(serving.post("/v1/vectors", &json!({"ids": [id], "vectors": [[id, 0]]})).status, 200);
    }
    drop(serving); // kills it
    let serving = Serving::start(&place, "set.live --memory 64MB");
    let found = serving.post("/v1/search", &json!({"queries": [[0, 0]], "k": 100})).json();
    assert_eq!(ids_of(&found), (0..20).map(|id| json!(id)).collect::<Vec<_>>());
}
