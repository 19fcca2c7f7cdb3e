//! `adjoin join --neighbors`, which finds the nearest neighbors of each row: results in every format, and refusals.

use serde_json::Value;

use crate::inputs::{fbin, sample, write_parquet};
use crate::place::Place;

/// Creates 8 points in the plane, two of which are equal, as a file and as a store.
fn small() -> Place {
    let place = Place::new();
    place.write("set.fbin", &fbin(2, &[0., 0., 1., 0., 3., 0., 0., 4., 5., 5., 1., 0., 9., 9., -2., 0.]));
    place.done("build set.fbin -o set.store --quiet");
    place
}

/// Returns the lines of a table without its header.
fn lines(table: &str) -> Vec<&str> {
    table.lines().skip(1).collect()
}

#[test]
fn rows_are_in_order_and_their_neighbors_by_distance_then_row() {
    let place = small();
    let within = "0,1,1,1.0 0,2,5,1.0 1,1,5,0.0 1,2,0,1.0 2,1,1,2.0 2,2,5,2.0 5,1,1,0.0 5,2,0,1.0 7,1,0,2.0 7,2,1,3.0";
    for input in ["set.store", "set.fbin"] {
        let table = place.done(&format!("join {input} --neighbors 2 --within 3 -o - --quiet")).out;
        assert_eq!(table.lines().next(), Some("query,rank,id,distance"));
        assert_eq!(lines(&table).join(" "), within, "{input}");
    }
    place.done("join set.store --neighbors 1 --exact -o one.csv --quiet");
    let one = "0,1,1,1.0 1,1,5,0.0 2,1,1,2.0 3,1,0,4.0 4,1,3,5.0990195 5,1,1,0.0 6,1,4,5.656854 7,1,0,2.0";
    assert_eq!(lines(&place.text("one.csv")).join(" "), one);
    let all = place.done("join set.store --neighbors 100 -o - --quiet").out;
    assert_eq!(all.lines().count(), 1 + 8 * 7, "fewer than k where there are fewer");
    let command = "join set.store --neighbors 1 -o hits.jsonl --quiet";
    place.done(command);
    let of_row = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let wanted = serde_json::json!({"query": 3, "rank": 1, "id": 0, "distance": 4.0});
    assert!(place.text("hits.jsonl").lines().map(of_row).any(|row| row == wanted));
    place.refused(command, &["hits.jsonl", "--force"]);
    let said = place.done("join set.store --neighbors 2 --within 3").said;
    assert!(said.contains("rows: 8; 10 neighbors found"), "counted without a result: {said}");
}

#[test]
fn nearest_joins_support_inner_products() {
    let place = Place::new();
    place.write("set.fbin", &fbin(2, &[0., 0., 3., 4., 1., 0., -2., 0.]));
    let table = place.done("join set.fbin --metric ip --neighbors 1 -o - --quiet").out;
    assert_eq!(table.lines().next(), Some("query,rank,id,score"));
    assert_eq!(lines(&table), ["0,1,1,0.0", "1,1,2,3.0", "2,1,1,3.0", "3,1,0,0.0"]);
    let cosine = place.done("join set.fbin --metric cosine --on-bad skip --neighbors 1 --within 0.5 -o - --quiet").out;
    assert_eq!(lines(&cosine), ["1,1,2,0.6", "2,1,1,0.6"], "a zero vector has no direction");
}

#[test]
fn nearest_join_of_a_real_set_reaches_its_recall_and_budget() {
    let place = Place::new();
    let line = format!("join {} --id-column name --metric cosine --neighbors 5 --recall 0.9", sample());
    let said = place.done(&format!("{line} -o hits.csv --stats stats.json --memory 100MB")).said;
    for words in
        ["rows: 24,000; 120,000 neighbors found", ", of 23,999 other rows", "at least 90 % requested", "memory: "]
    {
        assert!(said.contains(words), "{said}");
    }
    let text = place.text("hits.csv");
    assert_eq!(text.lines().next(), Some("query,rank,id,similarity"));
    let itself = |line: &&str| {
        let fields: Vec<&str> = line.split(',').collect();
        fields[0] == fields[2]
    };
    assert_eq!(text.lines().skip(1).filter(itself).count(), 0, "no row is its own neighbor");
    let statistics: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    assert_eq!((&statistics["version"], &statistics["command"]), (&2.into(), &"join".into()));
    assert_eq!((&statistics["nearest"]["k"], &statistics["nearest"]["within"]), (&5.into(), &Value::Null));
    assert_eq!(statistics["nearest"]["neighbors"], 120_000);
    assert!(statistics["nearest"]["distances_share"].as_f64().unwrap() < 0.5);
    assert!(statistics["recall"]["at_k"]["estimate"].as_f64().unwrap() > 0.9);
    assert!(statistics["seconds"]["build"].as_f64().is_some(), "the store was built for it");
    assert_eq!(statistics["memory"]["kept"], true);
}

#[test]
fn refuses_invalid_requests_in_one_line() {
    let place = small();
    place.done("build set.fbin --metric ip -o products.store --quiet");
    write_parquet(&place.path("one.parquet"), &[("a", Some([1.0, 2.0]))]);
    for (line, words) in [
        ("join set.store --neighbors 0", &["--neighbors", "0"][..]),
        ("join set.store --neighbors -3", &["-3"]),
        ("join set.store --neighbors many", &["--neighbors", "many"]),
        ("join set.store --neighbors 3 --eps 1", &["--neighbors", "--eps"]),
        ("join set.store --neighbors 3 --result counts", &["--neighbors", "--result"]),
        ("join set.store --neighbors 3 --recall 2", &["recall is 2"]),
        ("join set.store --neighbors 3 --recall 0.9 --exact", &["--recall", "--exact"]),
        ("join set.store --within 3 --eps 1", &["--within"]),
        ("join set.store --neighbors 3 --within -1", &["--within -1 is not a distance"]),
        ("join set.fbin --metric cosine --on-bad skip --neighbors 3 --within 1.5", &["--within 1.5 is not a cosine"]),
        ("join products.store --neighbors 3 --within 1", &["inner products have no threshold", "--within 1"]),
        ("join set.store --neighbors 3 --metric cosine", &["--metric cosine", "set.store"]),
        ("join set.fbin --eps 1 --metric l2", &["leave out --metric"]),
        ("join set.store --neighbors 3 -o hits.txt", &["hits.txt", ".parquet"]),
        ("join set.store --neighbors 3 -o set.fbin", &["set.fbin"]),
        ("join set.store --neighbors 3 --memory 1MB", &["--memory"]),
        ("join one.parquet --neighbors 3 --id-column b", &["one.parquet", "b"]),
    ] {
        place.refused(line, words);
    }
}
