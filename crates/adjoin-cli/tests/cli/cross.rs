//! `adjoin join A --with B`, which finds pairs between the rows of two sets.

use serde_json::Value;

use crate::inputs::{fbin, lines, sample};
use crate::place::Place;

/// Writes the set with rows 0 to 5 on a line, and another set of four rows with names as ids.
fn place() -> Place {
    let place = Place::new();
    place.write("set.fbin", &fbin(1, &[0.0, 1.0, 2.0, 10.0, 20.0, 21.0]));
    let others = [("a", 0.5), ("b", 2.0), ("c", 20.75), ("d", 99.0)];
    let lines: String = others.iter().map(|(id, at)| format!("{{\"id\": \"{id}\", \"v\": [{at}]}}\n")).collect();
    place.write("others.jsonl", lines.as_bytes());
    place.done("build set.fbin -o set.store --quiet");
    place.done("build others.jsonl -o others.store --quiet");
    place
}

#[test]
fn left_rows_of_pairs_are_from_the_first_set() {
    let place = place();
    for [first, second] in [["set.store", "others.store"], ["set.fbin", "others.store"], ["set.fbin", "others.jsonl"]] {
        let line = format!("join {first} --with {second} --eps 0.5 --exact -o - --quiet");
        assert_eq!(lines(&place.done(&line).out), ["0,a,0.5", "1,a,0.5", "2,b,0.0", "5,c,0.25"], "{line}");
        let line = format!("join {second} --with {first} --eps 0.5 --exact -o - --quiet");
        assert_eq!(lines(&place.done(&line).out), ["a,0,0.5", "a,1,0.5", "b,2,0.0", "c,5,0.25"], "{line}");
    }
    // If a set is joined with itself, each row is also paired with itself.
    let itself = place.done("join set.store --with set.store --eps 0 --exact -o - --quiet").out;
    assert_eq!(lines(&itself), ["0,0,0.0", "1,1,0.0", "2,2,0.0", "3,3,0.0", "4,4,0.0", "5,5,0.0"]);
}

#[test]
fn cross_joins_count_and_remove_rows_of_the_first_set() {
    let place = place();
    let of = |options: &str| place.done(&format!("join set.store --with others.store --eps 0.5 --exact {options}"));
    assert_eq!(lines(&of("--result counts -o - --quiet").out), ["0,1", "1,1", "2,1", "3,0", "4,0", "5,1"]);
    let keep = of("--result removed -o gone.csv --kept kept.csv --stats stats.json").said;
    assert_eq!(place.text("kept.csv").lines().collect::<Vec<_>>(), ["id", "3", "4"], "{keep}");
    assert_eq!(lines(&place.text("gone.csv")), ["0,a,0.5", "1,a,0.5", "2,b,0.0", "5,c,0.25"]);
    let statistics: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    assert_eq!((&statistics["rows"], &statistics["join"]["with_rows"]), (&6.into(), &4.into()));
    assert!(["left", "right"].contains(&statistics["strategy"]["lead"].as_str().unwrap()), "{statistics}");
}

#[test]
fn clusters_of_two_sets_have_the_side_of_each_row() {
    let place = place();
    place.write("more.fbin", &fbin(1, &[0.5, 2.0, 20.75, 99.0]));
    place.done("build more.fbin -o more.store --quiet");
    let clusters = "--eps 0.5 --exact --result clusters --quiet";
    // The rows of both sets are numbered from 0 on, so only the side distinguishes rows with equal numbers.
    for sets in ["set.store --with more.store", "set.fbin --with more.store", "set.fbin --with more.fbin"] {
        let found = place.done(&format!("join {sets} {clusters} -o -")).out;
        let wanted = "id,cluster,side\n0,0,left\n1,0,left\n0,0,right\n2,2,left\n1,2,right\n5,5,left\n2,5,right\n";
        assert_eq!(found, wanted, "{sets}");
    }
    let found = place.done(&format!("join more.store --with set.store {clusters} -o -")).out;
    let wanted = "id,cluster,side\n0,0,left\n0,0,right\n1,0,right\n1,1,left\n2,1,right\n2,2,left\n5,2,right\n";
    assert_eq!(found, wanted, "the first set is on the left");
    let texts = place.done(&format!("join others.store --with others.jsonl {clusters} -o -")).out;
    assert_eq!(lines(&texts)[..4], ["a,a,left", "a,a,right", "b,b,left", "b,b,right"]);
    place.refused(
        &format!("join set.store --with others.store {clusters} -o -"),
        &["the rows of the first set have no ids, but those of the second have text ids", "--no-ids"],
    );
}

#[test]
fn cross_joins_of_real_vectors_reach_the_recall_of_both_sides() {
    let place = Place::new();
    place.done(&format!("build {} --id-column name --metric cosine -o set.store --quiet", sample()));
    let line = "join set.store --with set.store --min-similarity 0.9 --recall 0.9";
    let said = place.done(&format!("{line} -o pairs.csv --stats stats.json --memory 200MB")).said;
    // The result has each of the 35,159 pairs in both directions, and a pair of each row with itself.
    let pairs = place.text("pairs.csv").lines().count() - 1;
    let every = 2 * 35_159 + 24_000;
    assert!(pairs <= every && pairs as f64 >= 0.9 * every as f64, "{pairs}: {said}");
    let recall = &serde_json::from_str::<Value>(&place.text("stats.json")).unwrap()["recall"];
    assert_eq!(recall["kept"], true);
    for of in ["pair", "per_vector", "per_right_vector"] {
        assert!(recall[of]["low"].as_f64().unwrap() >= 0.85, "{of}: {recall}");
    }
}

#[test]
fn sets_that_cannot_be_compared_are_refused() {
    let place = place();
    place.write("wide.fbin", &fbin(2, &[0.0, 1.0, 2.0, 3.0]));
    place.done("build set.fbin --metric cosine --on-bad skip -o cosine.store --quiet");
    for (line, words) in [
        ("join set.store --with wide.fbin --eps 1", &["1 x f32", "2 x f32", "wide.fbin"][..]),
        ("join set.store --with cosine.store --eps 1", &["cosine.store", "metric"]),
        ("join set.store --with missing.store --eps 1", &["missing.store"]),
        ("join set.store --with others.store --neighbors 2", &["--with", "--neighbors"]),
        ("join set.store --with others.store --eps 1 -o others.store", &["others.store"]),
    ] {
        place.refused(line, words);
    }
}
