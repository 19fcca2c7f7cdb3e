//! `adjoin join STORE --new MORE`. It must find the pairs with new rows that a join of all rows would find.

use serde_json::Value;

use crate::inputs::{fbin, lines, sample};
use crate::place::Place;

/// Vectors of the rows 0 to 4, which are on a line, and of four new rows.
const OLD: [f32; 5] = [0.0, 1.0, 2.0, 10.0, 20.0];
const NEW: [f32; 4] = [1.25, 10.5, 10.75, 99.0];

fn place() -> Place {
    let place = Place::new();
    place.write("old.fbin", &fbin(1, &OLD));
    place.write("new.fbin", &fbin(1, &NEW));
    let named = |values: &[f32], first: usize| -> String {
        let line = |(k, value): (usize, &f32)| {
            let id = first + k;
            format!("{{\"id\": \"r{id}\", \"v\": [{value}], \"even\": {}}}\n", id.is_multiple_of(2))
        };
        values.iter().enumerate().map(line).collect()
    };
    place.write("old.jsonl", named(&OLD, 0).as_bytes());
    place.write("new.jsonl", named(&NEW, OLD.len()).as_bytes());
    place.done("build old.fbin -o old.store --quiet");
    place.done("build old.jsonl -o named.store --columns even --quiet");
    place
}

#[test]
fn pairs_are_ordered_and_new_rows_numbered_after_old_ones() {
    let place = place();
    let pairs = ["1,5,0.25", "2,5,0.75", "3,6,0.5", "3,7,0.75", "6,7,0.25"];
    for [old, new] in [["old.store", "new.fbin"], ["old.fbin", "new.fbin"]] {
        let line = format!("join {old} --new {new} --eps 0.75 --exact -o - --quiet");
        assert_eq!(lines(&place.done(&line).out), pairs, "{line}");
    }
    let named = place.done("join named.store --new new.jsonl --eps 0.75 --exact -o - --quiet").out;
    assert_eq!(lines(&named), ["r1,r5,0.25", "r2,r5,0.75", "r3,r6,0.5", "r3,r7,0.75", "r6,r7,0.25"]);
    let alone = place.done("join old.store --new new.fbin --eps 0.1 --exact -o - --quiet").out;
    assert_eq!(lines(&alone), [""; 0]);
}

#[test]
fn joins_with_new_rows_count_and_remove_only_new_rows() {
    let place = place();
    let of = |options: &str| place.done(&format!("join old.store --new new.fbin --eps 0.75 --exact {options}"));
    assert_eq!(lines(&of("--result counts -o - --quiet").out), ["5,2", "6,2", "7,2", "8,0"]);
    let said = of("--result removed -o gone.csv --kept kept.csv --stats stats.json").said;
    assert_eq!(place.text("kept.csv").lines().collect::<Vec<_>>(), ["id", "8"], "{said}");
    // The nearest kept row is an old one, since no new row nearby is kept.
    assert_eq!(lines(&place.text("gone.csv")), ["5,1,0.25", "6,3,0.5", "7,3,0.75"]);
    let statistics: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    let join = &statistics["join"];
    assert_eq!((&statistics["rows"], &join["new_rows"], &join["with_rows"]), (&5.into(), &4.into(), &Value::Null));
    assert_eq!((&join["pairs"], &statistics["recall"]["pair"]["low"]), (&5.into(), &1.0.into()));
    // If no old rows are near, the first of the new rows is kept.
    let place = Place::new();
    place.write("old.fbin", &fbin(1, &[500.0]));
    place.write("new.fbin", &fbin(1, &NEW));
    let keep = "join old.fbin --new new.fbin --eps 0.75 --exact --result removed -o - --quiet";
    assert_eq!(lines(&place.done(keep).out), ["3,2,0.25"]);
}

#[test]
fn clusters_have_the_old_and_new_rows_that_pairs_with_new_rows_connect() {
    let place = place();
    let of = |sets: &str, options: &str| {
        place.done(&format!("join {sets} --eps 0.75 --exact --result clusters {options} -o - --quiet")).out
    };
    let wanted = "id,cluster,new\n1,1,false\n2,1,false\n5,1,true\n3,3,false\n6,3,true\n7,3,true\n";
    assert_eq!(of("old.store --new new.fbin", ""), wanted);
    assert_eq!(of("old.fbin --new new.fbin", ""), wanted);
    let named = of("named.store --new new.jsonl", "--columns even");
    let wanted = ["r1,r1,false,false", "r2,r1,false,true", "r5,r1,true,false", "r3,r3,false,false"];
    assert_eq!(named.lines().skip(1).take(4).collect::<Vec<_>>(), wanted, "{named}");
    // A cluster of new rows alone is named by the first of them.
    place.write("far.fbin", &fbin(1, &[500.0]));
    assert_eq!(lines(&of("far.fbin --new new.fbin", "")), ["2,2,true", "3,2,true"]);
}

#[test]
fn filters_apply_to_old_and_new_rows() {
    let place = place();
    let of = |condition: &str| {
        let words = ["join", "named.store", "--new", "new.jsonl", "--eps", "0.75", "--exact", "-o", "-", "--quiet"];
        let ran = place.run_words(&[&words[..], &condition.splitn(2, ' ').collect::<Vec<_>>()].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.said);
        lines(&ran.out).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of("--where not even"), ["r1,r5,0.25", "r3,r7,0.75"]);
    assert_eq!(of("--where-pair left.even <> right.even"), ["r2,r5,0.75", "r3,r6,0.5", "r6,r7,0.25"]);
}

#[test]
fn skipped_rows_of_both_sets_are_counted() {
    let place = place();
    place.write("bad.fbin", &fbin(1, &[1.25, f32::NAN, 10.5]));
    for how in ["new", "with"] {
        let line = format!("join old.store --{how} bad.fbin --eps 0.75 --exact --on-bad skip -o - --stats {how}.json");
        let ran = place.done(&line);
        assert!(ran.said.contains("skipped: 1 row without a usable vector"), "{how}: {}", ran.said);
        let statistics: Value = serde_json::from_str(&place.text(&format!("{how}.json"))).unwrap();
        assert_eq!((&statistics["skipped_rows"], lines(&ran.out).len()), (&1.into(), 3), "{how}");
    }
}

#[test]
fn refuses_invalid_new_rows() {
    let place = place();
    place.write("wide.fbin", &fbin(2, &[0.0, 1.0]));
    for (line, words) in [
        ("join old.store --new new.jsonl --eps 1", &["no ids", "text ids", "--no-ids"][..]),
        ("join named.store --new new.fbin --eps 1", &["text ids", "no ids"]),
        ("join old.store --new wide.fbin --eps 1", &["wide.fbin", "1 x f32", "2 x f32"]),
        (
            "join old.store --new new.fbin --eps 1 --result removed --keep-rule cluster -o -",
            &["clusters need a single set", "--new"],
        ),
        ("join old.store --new new.fbin --with new.fbin --eps 1", &["--new", "--with"]),
        ("join old.store --new new.fbin --neighbors 2", &["--new", "--neighbors"]),
        ("join old.store --new new.fbin --eps 1 -o new.fbin --force", &["new.fbin"]),
        ("join named.store --new new.jsonl --eps 1 --where-other even", &["--where-other", "--with"]),
    ] {
        place.refused(line, words);
    }
}

/// Checks that joining a new tenth of a set finds the pairs that a full join finds, and computes less than half
/// as many distances.
#[test]
fn joins_a_new_tenth_with_fewer_distances_than_a_full_join() {
    let place = Place::new();
    place.done("gen --rows 20000 --dimensions 24 --element u8 -o all.u8bin --quiet");
    let all = std::fs::read(place.path("all.u8bin")).unwrap();
    let (old, new) = all[8..].split_at(18_000 * 24);
    for (name, part) in [("old.u8bin", old), ("new.u8bin", new)] {
        let head = [(part.len() as u32 / 24).to_le_bytes(), 24u32.to_le_bytes()].concat();
        place.write(name, &[&head, part].concat());
    }
    let eps = 70;
    let join = |inputs: &str, options: &str, name: &str| {
        place.done(&format!("join {inputs} --eps {eps} {options} -o {name}.csv --stats {name}.json --quiet"));
        let statistics: Value = serde_json::from_str(&place.text(&format!("{name}.json"))).unwrap();
        statistics
    };
    let of_all = join("all.u8bin", "--exact", "all");
    let grown = join("old.u8bin --new new.u8bin", "--exact", "grown");
    let right = |line: &&str| line.split(',').nth(1).unwrap().parse::<u32>().unwrap() >= 18_000;
    let text = place.text("all.csv");
    let wanted: Vec<&str> = lines(&text).into_iter().filter(right).collect();
    assert!(wanted.len() > 1_000, "{}", wanted.len());
    assert_eq!(lines(&place.text("grown.csv")), wanted);
    let verified = |statistics: &Value| statistics["join"]["verified_pairs"].as_u64().unwrap();
    assert!(2 * verified(&grown) < verified(&of_all), "{} of {}", verified(&grown), verified(&of_all));
    let some = join("old.u8bin --new new.u8bin", "--recall 0.9", "some");
    let (found, all) = (some["join"]["pairs"].as_u64().unwrap(), wanted.len());
    assert!(found as f64 >= 0.9 * all as f64, "{found} of {all}");
    assert_eq!(some["recall"]["kept"], true);
}

#[test]
fn joins_new_rows_with_duplicate_text_ids_on_demand() {
    let place = Place::new();
    place.done(&format!("build {} --id-column name --metric cosine -o set.store --quiet", sample()));
    let same = format!("join set.store --new {} --id-column name --min-similarity 0.999 --exact", sample());
    // As in an append, rows with existing ids are refused.
    let refused = ["was used by an earlier row (24,000 such rows in all)", "--on-duplicate-id keep"];
    place.refused(&same, &refused);
    place.refused(&format!("append set.store --new {} --id-column name", sample()), &refused);
    let same = same + " --on-duplicate-id keep";
    let said = place.done(&format!("{same} --result counts -o - --quiet")).out;
    // Each row was added a second time, so each has at least its copy as a neighbor.
    assert_eq!(said.lines().count(), 24_001);
    assert!(said.lines().skip(1).all(|line| !line.ends_with(",0")), "{}", &said[..200]);
}

#[test]
fn append_inserts_and_deletes_rows_of_a_store() {
    let place = place();
    let before = place.done("join named.store --eps 0.75 --exact -o - --quiet").out;
    place.write("gone.txt", b"r0\nr2\nr7\n");
    let said = place.done("append named.store --new new.jsonl --delete gone.txt").said;
    for words in [
        "named.store: 4 rows appended, 2 rows deleted; 7 now",
        "1 id to delete was not found",
        "written in",
        "memory: ",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let pairs = place.done("join named.store --eps 0.75 --exact -o - --quiet").out;
    assert_eq!(lines(&before), [""; 0]);
    assert_eq!(lines(&pairs), ["r1,r5,0.25", "r3,r6,0.5", "r3,r7,0.75", "r6,r7,0.25"]);
    let even = ["join", "named.store", "--eps", "0.75", "--exact", "-o", "-", "--quiet", "--where", "not even"];
    assert_eq!(lines(&place.run_words(&even).out), ["r1,r5,0.25", "r3,r7,0.75"]);
    place.done("verify named.store");
    let told = place.done("info named.store").out;
    assert!(told.contains("skipped      2 rows of 9 (2 deleted)") && told.contains("4 rows appended since"), "{told}");
    let manifest: Value = serde_json::from_str(&place.done("info named.store --json").out).unwrap();
    assert_eq!((&manifest["removed_rows"], &manifest["built_rows"]), (&2.into(), &5.into()));
    // If rows have no ids, they are identified by their numbers. A number does not change when other rows are
    // deleted.
    place.write("gone.txt", b"0\n3\n");
    place.done("append old.store --delete gone.txt --quiet");
    place.done("append old.store --new new.fbin --quiet");
    let pairs = place.done("join old.store --eps 0.75 --exact -o - --quiet").out;
    assert_eq!(lines(&pairs), ["1,5,0.25", "2,5,0.75", "6,7,0.25"]);
}

#[test]
fn refuses_invalid_appends() {
    let place = place();
    place.write("odd.jsonl", b"{\"id\": \"r9\", \"v\": [3], \"even\": 1}\n");
    place.write("bare.jsonl", b"{\"id\": \"r9\", \"v\": [3]}\n");
    place.write("same.jsonl", b"{\"id\": \"r3\", \"v\": [3], \"even\": false}\n");
    place.write("many.fbin", &fbin(1, &[0.5; 6]));
    place.write("gone.txt", b"first\n");
    for (line, words) in [
        ("append named.store", &["--new"][..]),
        ("append missing --new new.fbin", &["missing"]),
        ("append old.fbin --new new.fbin", &["old.fbin", "adjoin build"]),
        ("append named.store --new new.fbin", &["text ids", "no ids"]),
        ("append named.store --new odd.jsonl", &["column even", "Int64", "Boolean"]),
        ("append named.store --new bare.jsonl", &["no column even", "the columns of named.store"]),
        ("append named.store --new same.jsonl", &["the id r3 of row 0", "--on-duplicate-id keep", "--delete"]),
        ("append old.store --new many.fbin", &["was built from 5 rows", "6 rows appended", "--force"]),
        ("append old.store --delete gone.txt", &["gone.txt: line 1 is \"first\""]),
        ("append old.store --delete missing.txt", &["missing.txt"]),
        ("append old.store --new old.store", &["old.store"]),
    ] {
        place.refused(line, words);
    }
    place.done("append named.store --new same.jsonl --on-duplicate-id keep --quiet");
}
