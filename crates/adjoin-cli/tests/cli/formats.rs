//! Stores that earlier versions wrote. They can still be read, verified and joined, with equal results.

use std::path::Path;

use crate::place::Place;

/// Copies a store of `fixtures/format-1` to `store`, together with its rows. Also returns the pairs that a join of it
/// found when it was written.
fn fixture(name: &str) -> (Place, String) {
    let place = Place::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/format-1");
    std::fs::create_dir(place.path("store")).unwrap();
    for file in std::fs::read_dir(fixtures.join(name)).unwrap().map(|file| file.unwrap()) {
        std::fs::copy(file.path(), place.path("store").join(file.file_name())).unwrap();
    }
    (place, std::fs::read_to_string(fixtures.join(format!("{name}.pairs.csv"))).unwrap())
}

#[test]
fn stores_of_format_1_stay_readable() {
    for (name, threshold, rows, facts) in [
        ("u8", "--eps 12", 90, ["ids          none", "metric       l2"]),
        ("i8", "--min-similarity 0.99", 90, ["ids          int64", "metric       cosine"]),
        ("f16", "--min-similarity 0.99", 88, ["ids          utf8", "skipped      2 rows of 90"]),
        ("f32", "--eps 12", 90, ["ids          int64", "metric       l2"]),
    ] {
        let (place, expected) = fixture(name);
        let before = place.listing();
        let said = place.done("verify store").out;
        assert!(said.starts_with("sound: ") && said.lines().count() == 1, "{name}: {said}");
        let said = place.done("info store").out;
        assert!(said.contains(&format!("vectors      {rows} of 6 x {name}\n")), "{said}");
        facts.iter().for_each(|fact| assert!(said.contains(fact), "{name}: {said}"));
        let pairs = place.done(&format!("join store {threshold} --exact -o - --quiet")).out;
        let mut lines: Vec<&str> = pairs.lines().collect();
        lines[1..].sort_unstable();
        assert_eq!(lines, expected.lines().collect::<Vec<_>>(), "{name}");
        assert_eq!(place.listing(), before);
    }
}
