//! Results per row: numbers of neighbors, clusters of rows that pairs connect, and rows to remove.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use adjoin::format_number;

use crate::place::Place;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sample.parquet");

fn sample_join(rest: &str) -> String {
    assert!(!SAMPLE.contains(' '), "{}", Path::new(SAMPLE).display());
    format!("join {SAMPLE} --id-column name --min-similarity 0.95 --exact {rest}")
}

/// Returns the lines of a CSV file without its header, which must equal `header`.
fn lines(place: &Place, name: &str, header: &str) -> Vec<String> {
    let text = place.text(name);
    let (first, rest) = text.split_once('\n').unwrap();
    assert_eq!(first, header);
    rest.lines().map(str::to_owned).collect()
}

#[test]
fn removed_and_kept_rows_add_up_to_all_rows() {
    let place = Place::new();
    for rule in ["greedy", "cluster"] {
        let said = place
            .done(&sample_join(&format!("--result removed --keep-rule {rule} -o gone.csv --kept kept.csv --force")))
            .said;
        let (gone, kept) = (lines(&place, "gone.csv", "id,kept_id,similarity"), lines(&place, "kept.csv", "id"));
        for words in [
            format!("{} rows to remove written to gone.csv", format_number(gone.len() as u64)),
            format!("{} rows to keep written to kept.csv", format_number(kept.len() as u64)),
        ] {
            assert!(said.lines().any(|line| line == words), "{said} does not say {words}");
        }
        assert!(gone.len() > 100 && gone.len() + kept.len() == 24_000, "{} {}", gone.len(), kept.len());
    }
}

#[test]
fn counts_have_every_row_and_clusters_at_least_two_rows() {
    let place = Place::new();
    let said = place.done(&sample_join("--result counts -o counts.csv")).said;
    assert!(
        said.contains("rows have neighbors") && said.contains("\ncounts of 24,000 rows written to counts.csv\n"),
        "{said}"
    );
    let counts = lines(&place, "counts.csv", "id,count");
    assert_eq!(counts.len(), 24_000);
    let with = counts.iter().filter(|line| !line.ends_with(",0")).count();
    let said = place.done(&sample_join("--result clusters -o clusters.jsonl")).said;
    assert!(said.contains("clusters with"), "{said}");
    assert_eq!(place.text("clusters.jsonl").lines().count(), with);
    assert!(
        said.contains(&format!("{} rows in clusters written to clusters.jsonl", format_number(with as u64))),
        "{said}"
    );
}

#[test]
fn joins_without_an_output_file_print_only_the_summary() {
    let place = Place::new();
    let before = place.listing();
    for (what, words) in [
        ("counts", "rows have neighbors"),
        ("clusters", "clusters with"),
        ("removed", "to keep, "),
        ("kept", "to keep, "),
    ] {
        let ran = place.done(&sample_join(&format!("--result {what}")));
        assert!(ran.said.contains(words) && ran.out.is_empty(), "{}", ran.said);
        assert_eq!(place.listing(), before);
    }
}

/// Writes `rows` rows, each of which is near only the previous and the next one, and `others` rows that are near
/// none.
fn chain(place: &Place, rows: u32, others: u32) {
    let values = (0..rows).map(f64::from).chain((0..others).map(|row| 1e6 + 10.0 * f64::from(row)));
    let bytes: Vec<u8> = values.flat_map(|value| (value as f32).to_le_bytes()).collect();
    let head = [rows + others, 1].map(u32::to_le_bytes).concat();
    place.write("chain.fbin", &[head, bytes].concat());
}

#[test]
fn cluster_rule_reports_rows_removed_beyond_the_threshold() {
    let place = Place::new();
    chain(&place, 400, 0);
    let join = "join chain.fbin --eps 1 --exact --result removed -o gone.csv --force --stats stats.json --keep-rule";
    let said = place.done(&format!("{join} cluster")).said;
    let words = "1 of 400 rows to keep, 399 to remove; 398 of these are not within the threshold";
    assert!(said.contains(words) && said.contains("the largest cluster has 400 rows"), "{said}");
    assert!(said.contains("warning: one cluster has 400 of 400 rows"), "{said}");
    let statistics: serde_json::Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    assert_eq!(statistics["join"]["removed_beyond_threshold"], 398);
    assert_eq!(statistics["join"]["largest_cluster"], 400);
    // Each removed row is within the threshold of a kept row.
    let said = place.done(&format!("{join} greedy")).said;
    assert!(said.contains("200 of 400 rows to keep, 200 to remove\n") && !said.contains("warning"), "{said}");
    let statistics: serde_json::Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    assert!(statistics["join"]["removed_beyond_threshold"].is_null(), "{statistics}");
    assert_eq!(statistics["join"]["largest_cluster"], 2);
    let said = place.done("join chain.fbin --eps 1 --exact --result clusters").said;
    assert!(said.contains("warning: one cluster has 400 of 400 rows"), "{said}");
}

#[test]
fn warns_of_a_cluster_with_a_large_fraction_of_rows() {
    let place = Place::new();
    for (rows, others, warned) in [(99, 0, false), (100, 0, true), (100, 9_900, false), (101, 9_899, true)] {
        chain(&place, rows, others);
        let said = place.done("join chain.fbin --eps 1 --exact --result clusters").said;
        assert_eq!(said.contains("warning: one cluster has"), warned, "{rows} of {}: {said}", rows + others);
    }
    // The rows that are removed for one kept row form a cluster of the deduplication, together with the kept row.
    for (equal, warned) in [(99, false), (150, true)] {
        let values = (0..equal).map(|_| 0.0).chain((0..50).map(|row| 10.0 + 10.0 * f64::from(row)));
        let bytes: Vec<u8> = values.flat_map(|value| (value as f32).to_le_bytes()).collect();
        let head = [equal + 50, 1].map(u32::to_le_bytes).concat();
        place.write("set.fbin", &[head, bytes].concat());
        let said = place.done("dedupe set.fbin --eps 1 --exact -o unique.fbin --force --stats stats.json").said;
        assert_eq!(said.contains("warning: one cluster has 150 of 200 rows"), warned, "{said}");
        let statistics: serde_json::Value = serde_json::from_str(&place.text("stats.json")).unwrap();
        assert_eq!(statistics["dedupe"]["largest_cluster"], equal);
    }
}

#[test]
fn options_for_other_results_are_refused() {
    let place = Place::new();
    place.done("gen --rows 500 --dimensions 4 -o set.fbin");
    place.write("there.csv", b"of old");
    for (options, words) in [
        ("--result pairs --kept kept.csv", &["--kept", "--result removed"][..]),
        ("--result counts --keep-rule cluster", &["--keep-rule", "--result removed"]),
        ("--result kept --kept kept.csv", &["--kept", "-o"]),
        ("--result removed --kept -", &["--kept", "standard output"]),
        ("--result removed --kept there.csv", &["there.csv", "--force"]),
        ("--result removed --kept kept.txt", &["kept.txt", ".parquet"]),
        ("--result removed -o one.csv --kept one.csv", &["one.csv", "-o", "--kept"]),
        ("--result removed -o set.fbin --force", &["set.fbin"]),
        ("--result rings -o rings.csv", &["rings", "--result"]),
        ("--result removed --keep-rule best", &["best", "--keep-rule"]),
        ("--result clusters --memory 20MB", &["--memory"]),
    ] {
        place.refused(&format!("join set.fbin --eps 1 {options}"), words);
    }
    assert_eq!(place.text("there.csv"), "of old");
}

/// Checks that rows to keep are not named by ids that occur twice. If all rows with an id were removed, the kept row
/// would be removed too.
#[test]
fn refuses_to_name_kept_rows_by_duplicate_ids() {
    let place = Place::new();
    let rows = [("a", Some([0.0, 1.0])), ("a", Some([0.0, 1.0])), ("b", Some([9.0, 1.0]))];
    crate::inputs::write_parquet(&place.path("set.parquet"), &rows);
    let join = "join set.parquet --eps 1 --result removed -o gone.csv";
    place.refused(&format!("{join} --id-column key --on-duplicate-id keep"), &["more than once", "--no-ids"]);
    place.done(join);
    assert_eq!(lines(&place, "gone.csv", "id,kept_id,distance"), ["1,0,0.0"]);
}

/// Checks a store in a read-only folder. Results for standard output are sorted in the folder for temporary files, so
/// nothing is written to the store's folder.
#[test]
fn a_read_only_store_can_be_joined_to_row_results() {
    let place = Place::new();
    place.done("gen --rows 500 --dimensions 4 -o set.fbin");
    place.done("build set.fbin -o store");
    let wanted = place.done("join store --eps 1 --exact --result clusters -o -").out;
    assert!(wanted.lines().count() > 10);
    std::fs::set_permissions(place.path("store"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let line = ["join", "store", "--eps", "1", "--exact", "--result", "clusters", "-o", "-"];
    let Some(mut command) = place.powerless(&line) else { return };
    let ran = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), wanted, "{}", String::from_utf8_lossy(&ran.stderr));
}
