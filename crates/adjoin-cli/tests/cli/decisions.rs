//! `adjoin dedupe --decisions`. Rows that a user has marked must be kept or removed, whichever rows are near them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::options::least_budget;
use crate::place::Place;
use crate::report::data;

/// Writes nine rows with texts at 0, 1, ..., 8, so that each is near the next one. Rows 0 and 5 have the same text,
/// and so on.
fn chain() -> Place {
    let place = Place::new();
    let line = |row: usize| format!("{{\"id\": \"r{row}\", \"text\": \"t{}\", \"v\": [{row}, 0]}}\n", row % 5);
    place.write("set.jsonl", (0..9).map(line).collect::<String>().as_bytes());
    place
}

/// Writes a file of decisions that keeps and removes the rows with these ids.
fn decide(place: &Place, keep: &[&str], remove: &[&str]) {
    let line = |id: &&str, decision: &str| format!("{}\n", json!({"id": id, "decision": decision}));
    let keep = keep.iter().map(|id| line(id, "keep"));
    let lines = keep.chain(remove.iter().map(|id| line(id, "remove")));
    place.write("decisions.jsonl", lines.collect::<String>().as_bytes());
}

/// Returns the numbers of the rows that were kept.
fn kept(place: &Place, name: &str) -> Vec<u64> {
    let row = |line: &str| serde_json::from_str::<Value>(line).unwrap()["v"][0].as_u64().unwrap();
    place.text(name).lines().map(row).collect()
}

fn deduped(place: &Place, options: &str) -> Vec<u64> {
    let removed = "--removed gone.csv --columns text --stats stats.json";
    let line = format!("dedupe set.jsonl --eps 1 --exact --force -o clean.jsonl {removed} {options}");
    place.done(line.trim_end());
    let kept = kept(place, "clean.jsonl");
    let stats: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    let count = |key: &str| stats["dedupe"][key].as_u64().unwrap();
    assert_eq!(count("kept_rows"), kept.len() as u64, "{options}");
    assert_eq!(stats["skipped_rows"], 0, "{options}");
    let gone = place.text("gone.csv").lines().count() as u64 - 1;
    assert_eq!(count("equal_rows") + count("near_rows") + count("decided_rows"), gone, "{options}");
    assert_eq!(gone + kept.len() as u64, 9, "{options}");
    kept
}

#[test]
fn marked_rows_are_kept_and_removed() {
    let place = chain();
    assert_eq!(deduped(&place, ""), [0, 2, 4, 6, 8]);
    // Both rows of a pair may be kept. A row that a decision removes does not cause other rows to be removed.
    decide(&place, &["r1", "r2"], &["r4", "r8"]);
    assert_eq!(deduped(&place, "--decisions decisions.jsonl"), [1, 2, 5, 7]);
    let gone: BTreeSet<String> = place.text("gone.csv").lines().skip(1).map(str::to_owned).collect();
    let expected = [
        "r0,r1,1.0,similar,t0,t1",
        "r3,r2,1.0,similar,t3,t2",
        "r4,,,decision,t4,",
        "r6,r5,1.0,similar,t1,t0",
        "r8,,,decision,t3,",
    ];
    let gone: Vec<String> = gone.into_iter().map(|line| line.replace("1.0,", "1,")).collect();
    assert_eq!(gone, expected.map(|line| line.replace("1.0,", "1,")));
    decide(&place, &["r0", "r8"], &[]);
    assert_eq!(deduped(&place, "--decisions decisions.jsonl"), [0, 2, 4, 6, 8]);
    decide(&place, &["r1"], &[]);
    assert_eq!(deduped(&place, "--decisions decisions.jsonl"), [1, 3, 5, 7]);
    decide(&place, &[], &["r0"]);
    assert_eq!(deduped(&place, "--decisions decisions.jsonl"), [1, 3, 5, 7]);
}

#[test]
fn decisions_take_precedence_over_order_and_equal_texts() {
    let place = chain();
    assert_eq!(deduped(&place, "--keep-by text"), [0, 2, 5, 7]);
    decide(&place, &["r3"], &[]);
    assert_eq!(deduped(&place, "--keep-by text --decisions decisions.jsonl"), [0, 3, 5, 7]);
    // Rows 5 to 8 have the texts of rows 0 to 3.
    assert_eq!(deduped(&place, "--exact-text text"), [0, 2, 4]);
    decide(&place, &["r5", "r0"], &["r2"]);
    assert_eq!(deduped(&place, "--exact-text text --decisions decisions.jsonl"), [0, 3, 5, 7]);
    decide(&place, &["r5"], &[]);
    assert_eq!(deduped(&place, "--exact-text text --decisions decisions.jsonl"), [1, 3, 5]);
    decide(&place, &[], &["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"]);
    assert_eq!(deduped(&place, "--decisions decisions.jsonl"), [] as [u64; 0]);
}

#[test]
fn ids_may_be_integers_row_numbers_or_texts() {
    let place = Place::new();
    let line = |row: usize| format!("{{\"key\": {}, \"v\": [{row}, 0]}}\n", 10 * row);
    place.write("set.jsonl", (0..4).map(line).collect::<String>().as_bytes());
    place.write(
        "decisions.jsonl",
        b"{\"id\": \"10\", \"decision\": \"keep\"}\n\n{\"decision\": \"keep\", \"id\": 30}\r\n",
    );
    let dedupe = "dedupe set.jsonl --eps 1 --exact --force -o clean.jsonl --decisions";
    place.done(&format!("{dedupe} decisions.jsonl --id-column key"));
    assert_eq!(kept(&place, "clean.jsonl"), [1, 3]);
    place.write("rows.jsonl", b"{\"id\": 1, \"decision\": \"keep\"}\n{\"id\": \"3\", \"decision\": \"remove\"}\n");
    place.done(&format!("{dedupe} rows.jsonl --removed gone.parquet"));
    assert_eq!(kept(&place, "clean.jsonl"), [1]);
    // A row removed by a decision has no kept row in the list. `adjoin report` accepts this list.
    place.done("report gone.parquet -o page.html");
    let page = data(&place, "page.html");
    assert_eq!(page["causes"], json!({"near": 2, "equal": 0, "decided": 1}));
    assert_eq!(page["pairs"]["right"].as_array().unwrap()[2], json!(null));
    place.refused(&format!("{dedupe} decisions.jsonl"), &["decisions.jsonl: line 1: no row has the id 10"]);
}

#[test]
fn decisions_may_begin_with_a_byte_order_mark() {
    let place = chain();
    place.write("decisions.jsonl", b"\xEF\xBB\xBF{\"id\": \"r1\", \"decision\": \"keep\"}\r\n");
    assert_eq!(deduped(&place, "--decisions decisions.jsonl"), [1, 3, 5, 7]);
}

#[test]
fn contradictory_and_unknown_decisions_are_refused_with_file_and_line() {
    let place = chain();
    let dedupe = "dedupe set.jsonl --eps 1 --exact -o clean.jsonl --decisions decisions.jsonl";
    for (lines, words) in [
        (
            "{\"id\": \"r1\", \"decision\": \"keep\"}\n\n{\"id\": \"r1\", \"decision\": \"remove\"}\n",
            "line 3 marks a row as remove, but line 1 marks it as keep",
        ),
        (
            "{\"id\": \"r1\", \"decision\": \"keep\"}\n{\"id\": \"r9\", \"decision\": \"keep\"}\n",
            "line 2: no row has the id r9",
        ),
        ("{\"id\": \"r1\", \"decision\": \"maybe\"}\n", "line 1 is not a decision"),
        ("id,decision\n", "line 1 is not a decision"),
        ("{\"id\": null, \"decision\": \"keep\"}\n", "line 1 is not a decision"),
    ] {
        place.write("decisions.jsonl", lines.as_bytes());
        place.refused(dedupe, &["decisions.jsonl: ", words]);
    }
    place.refused(&dedupe.replace("decisions.jsonl", "missing.jsonl"), &["missing.jsonl"]);
    place.refused(
        "dedupe set.jsonl --eps 1 -o decisions.jsonl --decisions decisions.jsonl --force",
        &["decisions.jsonl is an input"],
    );
    place.write("set.jsonl", b"{\"id\": 7, \"v\": [0]}\n{\"id\": 7, \"v\": [5]}\n");
    place.write("decisions.jsonl", b"{\"id\": 7, \"decision\": \"keep\"}\n");
    place.refused(dedupe, &["decisions.jsonl: line 1: rows 0 and 1 both have this id"]);
    place.write("decisions.jsonl", b"{\"id\": \"seven\", \"decision\": \"keep\"}\n");
    place.refused(dedupe, &["decisions.jsonl: line 1 has a text as its id"]);
}

#[test]
fn decisions_fit_the_least_budget() {
    let place = Place::on_disk();
    place.done("gen --rows 60000 --dimensions 4 --seed 1 -o set.fbin");
    let line = |row: usize| format!("{{\"id\":{row},\"decision\":\"{}\"}}\n", ["keep", "remove"][row % 2]);
    place.write("decisions.jsonl", (0..60_000).map(line).collect::<String>().as_bytes());
    let dedupe = "dedupe set.fbin --eps 0.1 --exact -o clean.fbin --force --decisions decisions.jsonl --memory";
    let mut budget = "1MB".to_owned();
    for refusals in 0.. {
        let ran = place.run(&format!("{dedupe} {budget}"));
        if ran.code == Some(0) {
            break;
        }
        assert!(ran.code == Some(2) && refusals < 2, "{budget}: {}", ran.said);
        budget = least_budget(&ran.said);
    }
    let rows = place.read("clean.fbin")[..4].try_into().map(u32::from_le_bytes).unwrap();
    assert_eq!(rows, 30_000);
}
