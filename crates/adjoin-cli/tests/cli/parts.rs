//! Joins in parts as users run them: with one process per part, started by a shell.

use std::fs::File;

use crate::place::{Place, Ran};

const PARTS: u32 = 4;

/// Creates a folder with a store and a plan for a join of it.
fn planned(rows: u32, result: &str) -> Place {
    let place = Place::new();
    done(&place, &format!("gen --rows {rows} --dimensions 32 -o set.fbin"));
    done(&place, "build set.fbin -o set.store");
    done(&place, &format!("plan set.store --eps 2.0 --parts {PARTS} --result {result} -o set.plan --stats plan.json"));
    place
}

#[track_caller]
fn done(place: &Place, line: &str) -> Ran {
    let ran = place.run(line);
    assert_eq!(ran.code, Some(0), "{line}: {}", ran.said);
    ran
}

#[track_caller]
fn refused(place: &Place, line: &str, words: &str) {
    let ran = place.run(line);
    assert_eq!(ran.code, Some(2), "{line}: {}", ran.said);
    assert!(ran.said.contains(words) && ran.said.trim_end().lines().count() == 1, "{line}: {}", ran.said);
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn run_parts(place: &Place) {
    (1..=PARTS).for_each(|part| drop(done(place, &format!("run-part set.plan --part {part}/{PARTS} -o parts"))));
}

#[test]
fn parts_give_the_result_of_one_machine() {
    let place = planned(3_000, "pairs");
    run_parts(&place);
    let again = done(&place, "run-part set.plan --part 2/4 -o parts");
    assert!(again.said.contains("part 2/4 is in parts already"), "{}", again.said);
    let merged = done(&place, "merge set.plan parts -o merged.csv --stats merged.json");
    assert!(merged.said.contains("of 4 parts merged in"), "{}", merged.said);
    done(&place, "join set.store --eps 2.0 -o one.csv --stats one.json");
    assert!(place.text("one.csv").lines().count() > 100);
    assert_eq!(sorted(&place.text("merged.csv")), sorted(&place.text("one.csv")));
    for result in ["counts", "clusters", "removed", "kept"] {
        done(&place, &format!("merge set.plan parts --result {result} -o merged-{result}.csv"));
        done(&place, &format!("join set.store --eps 2.0 --result {result} -o one-{result}.csv"));
        assert_eq!(place.text(&format!("merged-{result}.csv")), place.text(&format!("one-{result}.csv")), "{result}");
    }
    let [merged, one] = ["merged.json", "one.json"]
        .map(|name| -> serde_json::Value { serde_json::from_str(&place.text(name)).unwrap() });
    for name in ["pairs", "candidate_pairs", "verified_pairs", "exact_checks", "center_distances", "edges"] {
        assert_eq!(merged["join"][name], one["join"][name], "{name}");
    }
    assert_eq!(merged["recall"], one["recall"]);
    let plan: serde_json::Value = serde_json::from_str(&place.text("plan.json")).unwrap();
    assert_eq!(plan["plan"]["parts"].as_array().unwrap().len(), PARTS as usize);
}

#[test]
fn wrong_parts_are_refused_in_one_line() {
    let place = planned(1_000, "clusters");
    refused(&place, "run-part set.plan --part 5/4 -o parts", "give 1/4 to 4/4");
    refused(&place, "merge set.plan parts -o merged.csv", "parts");
    done(&place, "run-part set.plan --part 1/4 -o parts");
    refused(&place, "merge set.plan parts -o merged.csv", "3 of 4 parts missing in parts: 2, 3, 4; run them first");
    run_parts(&place);
    refused(&place, "merge set.plan parts --result pairs -o merged.csv", "was planned for the result clusters");
    let whole = place.read("parts/part-00003-of-00004");
    place.write("parts/part-00003-of-00004", &whole[..whole.len() - 3]);
    refused(&place, "merge set.plan parts -o merged.csv", "part-00003-of-00004 is damaged (it is cut off)");
    place.write("parts/part-00003-of-00004", &whole);
    let lock = File::create(place.path("parts/writer.lock")).unwrap();
    lock.lock().unwrap();
    refused(&place, "merge set.plan parts -o merged.csv", "parts is being merged by");
    drop(lock);
    assert!(!place.path("merged.csv").exists());
    done(&place, "merge set.plan parts -o merged.csv");
    refused(&place, "merge set.plan parts -o merged.csv", "give --force to replace it");
    place.write("old.plan", &[&place.read("set.plan")[..8], &[0; 100]].concat());
    refused(&place, "run-part old.plan --part 1/4 -o parts", "format version 0, older than the version 1");
    done(&place, "build set.fbin --seed 2 --force -o set.store");
    refused(&place, "run-part set.plan --part 1/4 --force -o parts", "this plan is for another store than");
}
