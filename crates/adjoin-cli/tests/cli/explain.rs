//! `adjoin explain` of sources that have no store.

use crate::inputs::{fbin, write_parquet};
use crate::place::Place;

fn figures(place: &Place, line: &str) -> serde_json::Value {
    let words: Vec<&str> = ["explain"].into_iter().chain(line.split_whitespace()).chain(["--json"]).collect();
    let ran = place.run_words(&words);
    assert_eq!(ran.code, Some(0), "{line}: {}", ran.said);
    serde_json::from_str(&ran.out).unwrap()
}

/// Returns the figures for the threshold that was asked for.
fn asked(figures: &serde_json::Value) -> &serde_json::Value {
    let thresholds = figures["explain"]["thresholds"].as_array().unwrap();
    thresholds.iter().find(|at| at["asked"] == true).unwrap()
}

#[test]
fn explain_describes_a_source_and_writes_nothing() {
    let place = Place::new();
    place.done("gen --rows 6000 --dimensions 16 -o set.fbin --quiet");
    let before = place.listing();
    let said = place.done("explain set.fbin --eps 2").out;
    for words in [
        "6,000 of 16 f32, l2",
        "4,096 rows compared",
        "memory       needs about ",
        "would use about ",
        "disk         about ",
        "as Parquet about ",
        "--eps 2, requested:",
        "pairs ",
        "removed ",
        " % of all\n",
        "time ",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said.matches("--eps").count() >= 4, "several thresholds: {said}");
    assert_eq!(place.listing(), before);
    let cosine = place.done("explain set.fbin --metric cosine --exact").out;
    assert!(cosine.contains("--min-similarity 0.") && !cosine.contains("requested"), "{cosine}");
}

#[test]
fn estimates_of_a_small_source_are_exact() {
    let place = Place::new();
    place.done("gen --rows 900 --dimensions 8 --hardness 0.3 -o set.fbin --quiet");
    for (threshold, removed) in [("--eps 0.7", "a.csv"), ("--min-similarity 0.95", "b.csv")] {
        let figures = figures(&place, &format!("set.fbin {threshold}"));
        place.done(&format!("join set.fbin {threshold} --exact -o pairs.csv --force"));
        place.done(&format!("join set.fbin {threshold} --exact --result removed -o {removed}"));
        let lines = |file: &str| place.text(file).lines().count() as f64 - 1.0;
        for (name, found) in [("pairs", lines("pairs.csv")), ("removed_rows", lines(removed))] {
            let told = &asked(&figures)[name];
            assert!(found > 0.0, "{threshold}");
            for bound in ["estimate", "low", "high"] {
                assert_eq!(told[bound], found, "{threshold} {name}");
            }
        }
    }
}

#[test]
fn estimates_depend_on_the_seed_not_on_threads_or_memory() {
    let place = Place::new();
    place.done("gen --rows 9000 --dimensions 12 -o set.fbin --quiet");
    let told = |options: &str| {
        let mut told = figures(&place, &format!("set.fbin --eps 1.5 {options}"));
        for at in told["explain"]["thresholds"].as_array_mut().unwrap() {
            at.as_object_mut().unwrap().remove("seconds");
        }
        told["explain"]["thresholds"].clone()
    };
    let once = told("");
    assert_eq!(once, told("--threads 1 --memory 100MB"));
    assert_eq!(once, told("--device pread --kernel reference --threads 3"));
    assert_ne!(once, told("--seed 2"));
}

/// Joins sets of two element types and five seeds within two thresholds each. Compares counts and bytes with the
/// estimates, but not times.
#[test]
fn actual_counts_and_bytes_are_in_90_percent_of_estimated_bounds() {
    let place = Place::new();
    let mut outside: Vec<String> = Vec::new();
    let mut compared = 0;
    for seed in 1..=5 {
        for (element, set) in [("u8", "set.u8bin"), ("f32", "set.fbin")] {
            place.done(&format!(
                "gen --rows 20000 --dimensions 16 --element {element} --seed {seed} -o {set} --force --quiet"
            ));
            let figures = figures(&place, &format!("{set} --seed {seed} --quiet"));
            let mut check = |name: &str, told: &serde_json::Value, truth: f64| {
                let [low, estimate, high] = ["low", "estimate", "high"].map(|bound| told[bound].as_f64().unwrap());
                assert!(0.0 <= low && low <= estimate && estimate <= high && high <= 4.0 * estimate, "{name}: {told}");
                compared += 1;
                if !(low..=high).contains(&truth) {
                    outside.push(format!("{name} of {element}, seed {seed}: {truth} is not in {told}"));
                }
            };
            place.done(&format!("build {set} -o store --force --quiet"));
            let files = std::fs::read_dir(place.path("store")).unwrap();
            let stored: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
            check("store_bytes", &figures["explain"]["footprint"]["store_bytes"], stored as f64);
            let thresholds = figures["explain"]["thresholds"].as_array().unwrap();
            for at in [&thresholds[1], &thresholds[2]] {
                let join = format!("join {set} --eps {} --seed {seed} --force --quiet", at["threshold"]);
                // The join has the default recall. The more pairs it misses, the nearer it is to the lower bound.
                place.done(&format!("{join} -o pairs.parquet --stats stats.json"));
                let statistics: serde_json::Value = serde_json::from_str(&place.text("stats.json")).unwrap();
                check("pairs", &at["pairs"], statistics["join"]["pairs"].as_f64().unwrap());
                check("pairs_bytes", &at["pairs_bytes"], place.read("pairs.parquet").len() as f64);
                place.done(&format!("{join} --exact --result removed -o removed.csv"));
                check("removed_rows", &at["removed_rows"], place.text("removed.csv").lines().count() as f64 - 1.0);
            }
        }
    }
    assert!(compared == 70 && 10 * outside.len() <= compared, "{} of {compared}: {outside:#?}", outside.len());
}

#[test]
fn explain_handles_columns_and_bad_rows_like_a_join() {
    let place = Place::new();
    let rows = [("a", Some([1.0, 0.0])), ("b", Some([1.0, 0.001])), ("c", None), ("d", Some([0.0, 1.0]))];
    write_parquet(&place.path("set.parquet"), &rows);
    place.refused("explain set.parquet --min-similarity 0.9", &["set.parquet", "row 2", "--on-bad skip"]);
    let told = figures(&place, "set.parquet --min-similarity 0.9 --on-bad skip");
    assert_eq!((&told["rows"], &told["skipped_rows"]), (&3.into(), &1.into()));
    assert_eq!(
        (&asked(&told)["pairs"]["estimate"], &asked(&told)["removed_rows"]["estimate"]),
        (&1.0.into(), &1.0.into())
    );
    place.refused("explain set.parquet --vector-column nothing", &["nothing"]);
}

#[test]
fn estimates_for_equal_rows_count_all_pairs_and_keep_one_row() {
    let place = Place::new();
    place.write("equal.fbin", &fbin(2, &[0.5, 0.25].repeat(5000)));
    for threshold in ["--eps 0", "--eps 1", "--min-similarity 0.99"] {
        let told = figures(&place, &format!("equal.fbin {threshold}"));
        assert_eq!(asked(&told)["pairs"]["estimate"], 5000.0 * 4999.0 / 2.0, "{threshold}");
        let removed = asked(&told)["removed_rows"]["estimate"].as_f64().unwrap();
        assert!((4990.0..=5000.0).contains(&removed), "{threshold}: {removed}");
    }
}

#[test]
fn explain_shows_columns_of_pairs_near_each_threshold() {
    let place = Place::new();
    let line = |k: usize| format!("{{\"vector\": [{}, 1.0], \"text\": \"text\\n{k}\", \"n\": {k}}}\n", k * k);
    place.write("set.jsonl", (0..40).map(line).collect::<String>().as_bytes());
    let said = place.done("explain set.jsonl --eps 9 --columns text").out;
    let wanted = "\n  9.0000     row 0: text 0\n             row 3: text 3\n  9.0000     row 4: text 4\n             row 5: text 5\n";
    let at = said.split("\n--eps ").find(|at| at.starts_with("9, requested")).unwrap();
    assert!(format!("{at}\n").contains(wanted), "{said}");
    let said = place.done("explain set.jsonl --eps 9 --columns text,n").out;
    assert!(said.contains("row 4; n: 4; text: text 4\n"), "{said}");
    assert!(!place.done("explain set.jsonl --eps 9").out.contains("row "));
    place.refused(
        "explain set.jsonl --columns body",
        &["there is no column body for --columns; its columns are vector", "text (Utf8)"],
    );
    place.done("build set.jsonl -o store");
    place.refused("explain store --eps 9 --columns text", &["--columns", "the data set that the store was built from"]);
}

#[test]
fn explain_refuses_invalid_sources() {
    let place = Place::new();
    place.done("gen --rows 300 --dimensions 4 -o set.fbin --quiet");
    place.write("one.fbin", &fbin(2, &[1.0, 2.0]));
    place.write("none.fbin", &fbin(2, &[]));
    place.write("nan.fbin", &fbin(2, &[1.0, 2.0, f32::NAN, 1.0, 3.0, 3.0]));
    place.write("left.fbin", &fbin(2, &[1.0, 2.0, f32::NAN, 1.0]));
    place.write("other.fbin", &fbin(3, &[1.0, 2.0, 3.0]));
    for (line, words) in [
        ("one.fbin --eps 1", &["one row", "no pairs"][..]),
        ("none.fbin", &["none.fbin", "no rows"]),
        ("nan.fbin --eps 1", &["nan.fbin", "row 1", "--on-bad skip"]),
        ("left.fbin --on-bad skip", &["one usable row", "no pairs"]),
        ("set.fbin other.fbin --eps 1", &["dimensions"]),
        ("nowhere --eps 1", &["nowhere"]),
        ("set.fbin --metric cosine --eps 1", &["--min-similarity", "--metric cosine"]),
        ("set.fbin --metric l2 --min-similarity 0.9", &["--eps", "--metric l2"]),
        ("set.fbin --eps 1 --cache 1MB", &["--cache", "plan of a store"]),
        ("set.fbin --eps 1 --memory 21MB", &["this estimate needs at least", "--memory"]),
        ("set.fbin --eps -1", &["eps is -1"]),
    ] {
        place.refused(&format!("explain {line}"), words);
    }
    place.done("build set.fbin -o store");
    place.refused("explain store --eps 1 --json", &["--json"]);
    place.refused("explain store set.fbin --eps 1", &["cannot be combined with other inputs"]);
    place.refused("explain store --eps 1 --on-bad skip", &["--on-bad skip", "applies only when a store is built"]);
}
