//! `adjoin serve` with an index, and with a collection that clients change.

use serde_json::{Value, json};

use crate::inputs::fbin;
use crate::place::{Place, SmallDisk};
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
    let wanted = place.done("search set.index --queries query.fbin -k 3 --list 100 --quiet").out;
    let wanted: Vec<Value> =
        wanted.lines().skip(1).map(|line| line.split(',').nth(2).unwrap().parse::<u64>().unwrap().into()).collect();
    assert_eq!(ids_of(&found), wanted);
    let refused = serving.post("/v1/search", &json!({"queries": [vec![0.5; 8]], "k": 3, "nprobe": 1})).problem(400);
    assert!(refused.contains("nprobe 1 is for stores, but this is a graph index; give recall or list"), "{refused}");
    // For a recall of 1, the server makes no estimate but compares every row.
    let exact = serving.post("/v1/search", &json!({"queries": [vec![0.5; 8]], "k": 3, "exact": true})).json();
    let all = serving.post("/v1/search", &json!({"queries": [vec![0.5; 8]], "k": 3, "recall": 1})).json();
    assert_eq!((ids_of(&exact), ids_of(&all)), (wanted.clone(), wanted));
    for answer in [exact, all] {
        assert_eq!(
            answer["recall"],
            json!({"target": answer["recall"]["target"], "low": 1.0, "kept": true}),
            "{answer}"
        );
    }
    let refused = serving.post("/v1/vectors/delete", &json!({"ids": [1]})).problem(400);
    assert!(refused.contains("serve a collection to write"), "{refused}");
}

#[test]
fn collection_writes_survive_a_restart_of_the_server() {
    let place = Place::new();
    place.done("collection create set.live --dimensions 2 --ids text --columns lang:text");
    let serve = "set.live --memory 128MB";
    let serving = Serving::start(&place, serve);
    let put = |body: Value| serving.post("/v1/vectors", &body);
    let rows = json!({"ids": ["a", "b", "c"], "vectors": [[0, 0], [1, 0], [5, 5]], "columns": [{"lang": "en"}, {}, {"lang": "de"}]});
    assert_eq!(put(rows.clone()).json(), json!({"sequence": 1, "rows": 3, "deleted": 0, "missing": 0}));
    let find = |condition: &str| {
        let answer = serving.post("/v1/search", &json!({"queries": [[0, 0]], "k": 10, "where": condition}));
        assert_eq!(answer.status, 200, "{answer:?}");
        ids_of(&answer.json())
    };
    assert_eq!(
        (find("lang is null or lang is not null"), find("lang = 'de'")),
        (vec![json!("a"), json!("b"), json!("c")], vec![json!("c")])
    );
    let again = put(json!({"ids": ["a"], "vectors": [[9, 9]], "columns": [{"lang": "fr"}], "put": "insert"}));
    assert!(again.problem(400).contains("vectors: the id a of row 0 already exists"));
    assert_eq!(put(json!({"ids": ["a"], "vectors": [[9, 9]], "columns": [{}]})).json()["deleted"], 1);
    let gone = serving.post("/v1/vectors/delete", &json!({"where": "lang = 'de'", "durability": "buffered"})).json();
    assert_eq!((&gone["deleted"], &gone["sequence"]), (&json!(1), &json!(3)));
    assert_eq!(serving.post("/v1/vectors/delete", &json!({"ids": ["none", "b"]})).json()["missing"], 1);
    assert_eq!(find("lang is null or lang is not null"), [json!("a")]);
    for (body, words) in [
        (json!({"ids": [1], "vectors": [[1, 2]]}), "give a text for each"),
        (json!({"ids": ["x"], "vectors": [[1, 2], [3, 4]]}), "there are 2 vectors, but 1 ids"),
        (json!({"vectors": [[1, 2]]}), "give a text for each"),
        (json!({"ids": ["x"], "vectors": [[1, 2]]}), "columns"),
        (json!({"ids": ["x"], "vectors": [[1, 2]], "columns": [{"year": 1}]}), "year"),
        (json!({"ids": ["x"], "vectors": [[1, 2, 3]], "columns": [{}]}), "3 x f32"),
        (json!({"ids": ["x", "x"], "vectors": [[1, 2], [3, 4]], "columns": [{}, {}], "put": "insert"}), "occurs twice"),
        (json!({"ids": ["x"], "vectors": [[1, 2]], "columns": [{}], "put": "often"}), "often"),
    ] {
        let detail = put(body.clone()).problem(400);
        assert!(detail.contains(words), "{body}: {detail}");
    }
    assert!(serving.post("/v1/vectors/delete", &json!({})).problem(400).contains("either `ids` or `where`"));
    place.refused("collection write set.live --delete none", &["set.live"]);
    assert_eq!(serving.end().0, Some(0));
    let serving = Serving::start(&place, serve);
    assert_eq!(serving.metric("adjoin_rows"), 1.0);
    assert_eq!(ids_of(&serving.post("/v1/search", &json!({"queries": [[9, 9]], "k": 2})).json()), [json!("a")]);
    assert_eq!(ids_of(&serving.post("/v1/search", &json!({"like": ["a"], "k": 2})).json()), [json!("a")]);
    assert!(serving.post("/v1/search", &json!({"like": ["b"], "k": 2})).problem(400).contains("no row has the id b"));
}

/// Checks that searches of an empty collection do not affect the predicted times of searches after it has grown.
#[test]
fn searches_of_an_empty_collection_do_not_affect_later_searches() {
    let place = Place::new();
    place.done("collection create set.live --dimensions 2");
    let serving = Serving::start(&place, "set.live --memory 128MB");
    let find = || serving.post("/v1/search", &json!({"queries": [[0, 0]], "k": 3})).status;
    assert_eq!([find(), find(), find()], [200; 3]);
    for first in (0..10_000).step_by(1_000) {
        let ids: Vec<u32> = (first..first + 1_000).collect();
        let vectors: Vec<[u32; 2]> = ids.iter().map(|&id| [id, 0]).collect();
        assert_eq!(serving.post("/v1/vectors", &json!({"ids": ids, "vectors": vectors})).status, 200);
    }
    assert_eq!([find(), find(), find()], [200; 3]);
}

/// Checks that acknowledged writes survive if the server is killed.
#[test]
fn acknowledged_writes_survive_a_killed_server() {
    let place = Place::new();
    place.done("collection create set.live --dimensions 2");
    let serving = Serving::start(&place, "set.live --memory 64MB");
    for id in 0..20 {
        assert_eq!(serving.post("/v1/vectors", &json!({"ids": [id], "vectors": [[id, 0]]})).status, 200);
    }
    drop(serving); // kills it
    let serving = Serving::start(&place, "set.live --memory 64MB");
    let found = serving.post("/v1/search", &json!({"queries": [[0, 0]], "k": 100})).json();
    assert_eq!(ids_of(&found), (0..20).map(|id| json!(id)).collect::<Vec<_>>());
}

/// Checks that writes are refused with a message while the disk is full. When it has space again, they must be
/// accepted without a restart.
#[test]
fn the_server_survives_a_full_disk() {
    let place = Place::new();
    let Some(_disk) = SmallDisk::new(&place, 1 << 20) else { return };
    place.done("collection create disk/set.live --dimensions 2");
    let serving = Serving::start(&place, "disk/set.live --memory 128MB");
    let put = |id: i64| serving.post("/v1/vectors", &json!({"ids": [id], "vectors": [[id, 0]]}));
    assert_eq!((put(0).status, serving.get("/readyz").status), (200, 200));
    let mut filler = 1 << 20;
    while filler > 0 {
        // The write fills the disk even if it fails.
        let _ = std::fs::write(place.path(&format!("disk/filler-{filler}")), vec![1; filler]);
        filler /= 2;
    }
    // The last block of the log has free space only for a few writes.
    let refused = (1..2_000).map(put).find(|answer| answer.status != 200).expect("the disk is full");
    let detail = refused.problem(503);
    assert!(detail.contains("the write was refused") && detail.contains("No space left"), "{detail}");
    assert_eq!(serving.get("/livez").status, 200);
    let detail = serving.get("/readyz").problem(503);
    assert!(detail.contains("writes are refused"), "{detail}");
    let rows = serving.metric("adjoin_rows");
    for entry in std::fs::read_dir(place.path("disk")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_str().unwrap().contains("filler") {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!((put(5_000).status, serving.get("/readyz").status), (200, 200));
    assert_eq!(serving.metric("adjoin_rows"), rows + 1.0);
    assert_eq!(serving.end().0, Some(0));
}

/// Checks that a server refuses to start if no merge fits in its budget, and that it names a budget that suffices.
#[test]
fn a_budget_too_small_for_merges_is_refused_at_the_start() {
    let place = Place::new();
    place.done("gen --rows 3000 --dimensions 32 -o set.fbin --quiet");
    place.done("collection create set.live --dimensions 32");
    place.done("collection write set.live --insert set.fbin --quiet");
    let refused = place.run("serve set.live --listen 127.0.0.1:0 --memory 56MB --quiet");
    assert_eq!(refused.code, Some(2), "{}", refused.said);
    let budget = refused.said.split("--memory ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let serving = Serving::start(&place, &format!("set.live --memory {budget}"));
    let rows = json!({"ids": [9_999], "vectors": [vec![0.5; 32]]});
    assert_eq!(serving.post("/v1/vectors", &rows).status, 200);
    assert_eq!(serving.end().0, Some(0));
}
