//! `adjoin join --result removed --target-rows`, which finds the threshold at which a given number of rows is left.

use crate::inputs::{fbin, sample};
use crate::place::Place;

/// Returns the number before `words` in a line.
fn number_before(said: &str, words: &str) -> f64 {
    let before = said.split(words).next().unwrap().split_whitespace().last();
    before.unwrap_or_else(|| panic!("{words}: {said}")).replace(',', "").parse().unwrap()
}

#[test]
fn target_rows_finds_the_best_threshold_of_a_small_set() {
    let place = Place::new();
    // The rows are on a line, with growing gaps.
    let places: Vec<f32> = (0..400).map(|row: u16| f32::from(row) * (1.0 + f32::from(row) / 400.0)).collect();
    place.write("set.fbin", &fbin(1, &places));
    for wanted in [40, 120, 300] {
        let line = format!("join set.fbin --result removed --target-rows {wanted} --exact --kept kept.csv --force");
        let said = place.done(&line).said;
        assert!(said.contains("--eps "), "{said}");
        let kept = place.text("kept.csv").lines().count() as f64 - 1.0;
        assert_eq!(kept, number_before(&said, " rows (between"), "known for sure where all rows were compared: {said}");
        assert!((kept / f64::from(wanted)).ln().abs() < 0.05, "{wanted}: {said}");
    }
}

#[test]
fn target_rows_tries_finer_thresholds_and_reports_failure() {
    let place = Place::new();
    // The rows form pairs. The distance within a pair grows slowly from pair to pair.
    let places: Vec<f32> =
        (0..400u16).flat_map(|k| [0.0, 1.0 + f32::from(k) / 1_000.0].map(|x| x + 3.0 * f32::from(k))).collect();
    place.write("set.fbin", &fbin(1, &places));
    for wanted in [401, 523, 640, 797] {
        let line = format!("join set.fbin --result removed --target-rows {wanted} --exact --kept kept.csv --force");
        let said = place.done(&line).said;
        let kept = place.text("kept.csv").lines().count() - 1;
        assert!(kept.abs_diff(wanted) <= 1, "{kept} of {wanted}: {said}");
    }
    // Always five rows are equal, so no threshold leaves half of the rows.
    let places: Vec<f32> = (0..500u16).map(|row| 3.0 * f32::from(row / 5) * f32::from(row / 5)).collect();
    place.write("equal.fbin", &fbin(1, &places));
    let ran = place.run("join equal.fbin --result removed --target-rows 250 --exact");
    assert!(
        ran.code == Some(1) && ran.said.contains("--target-rows 250: no threshold leaves that number of rows"),
        "{}",
        ran.said
    );
}

#[test]
fn target_rows_keeps_about_that_number_of_rows_of_a_real_set() {
    let place = Place::new();
    let line = format!("join {} --id-column name --metric cosine --result removed --target-rows 20000", sample());
    let said = place.done(&format!("{line} --recall 0.9 --kept kept.csv --stats stats.json --memory 200MB")).said;
    let kept = place.text("kept.csv").lines().count() as f64 - 1.0;
    assert!((19_000.0..21_000.0).contains(&kept), "{kept}: {said}");
    assert!(said.contains("--min-similarity 0.") && said.contains("at least 90 % requested"), "{said}");
    let statistics: serde_json::Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    assert_eq!(statistics["recall"]["kept"], true);
    assert!(said.contains(&format!("--min-similarity {} leaves", statistics["join"]["min_similarity"])), "{said}");
}

#[test]
fn refuses_invalid_target_rows() {
    let place = Place::new();
    let spread: Vec<f32> = (0..3_000_u16).map(|x| f32::from(x) * 1.618_034 % 1.0).collect();
    place.write("set.fbin", &fbin(3, &spread));
    place.done("build set.fbin -o set.store --quiet");
    for (line, words) in [
        ("join set.fbin --target-rows 10", &["--result removed"][..]),
        ("join set.fbin --result counts --target-rows 10", &["--result removed"]),
        ("join set.fbin --result removed --keep-rule cluster --target-rows 10", &["--keep-rule greedy"]),
        ("join set.fbin --result removed --target-rows 0", &["--target-rows", "0"]),
        ("join set.fbin --result removed --target-rows 10 --eps 1", &["--target-rows", "--eps"]),
        ("join set.fbin --result removed --target-rows 10 --within 1", &["--target-rows", "--within"]),
        ("join set.fbin --result removed --target-rows 1000", &["1,000 rows cannot be kept", "1,000 usable rows"]),
        ("join set.fbin --result removed --target-rows 1", &["leaves about", "at least"]),
        ("join set.fbin --result removed --metric ip --target-rows 10", &["ip"]),
        ("join set.store --result removed --target-rows 10", &["set.store is a store", "source"]),
        ("join set.fbin --result removed --target-rows 10 --kept set.fbin", &["set.fbin"]),
        ("join set.fbin --result removed --target-rows 10 --memory 1MB", &["--memory"]),
    ] {
        place.refused(line, words);
    }
}
