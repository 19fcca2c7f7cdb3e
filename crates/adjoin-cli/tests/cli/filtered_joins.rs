//! Filtered joins: `adjoin join --where`, `--where-other` and `--where-pair`.

use serde_json::Value;

use crate::place::Place;

const LINES: &str = r#"{"id": "a", "v": [0, 0], "lang": "en", "year": 2019, "source": "web"}
{"id": "b", "v": [1, 0], "lang": "de", "year": 2021, "source": "web"}
{"id": "c", "v": [2, 0], "lang": "en", "year": 2022, "source": "book"}
{"id": "d", "v": [3, 0], "lang": null, "year": 2023, "source": "web"}
{"id": "e", "v": [4, 0], "lang": "en", "year": null, "source": "book"}
{"id": "f", "v": [9, 0], "lang": "en", "year": 2024, "source": "web"}
"#;

const OTHERS: &str = r#"{"id": 1, "v": [0, 1], "lang": "en", "year": 2020}
{"id": 2, "v": [2, 1], "lang": "de", "year": 2020}
{"id": 3, "v": [9, 1], "lang": "en", "year": 2030}
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("set.jsonl", LINES.as_bytes());
    place.write("others.jsonl", OTHERS.as_bytes());
    place.done("build set.jsonl --columns lang,year,source -o set.store --quiet");
    place.done("build others.jsonl --columns lang,year -o others.store --quiet");
    place
}

/// Runs a join. Returns the sorted lines of its result, with only their first `columns` columns.
fn lines(place: &Place, arguments: &[&str], columns: usize) -> Vec<String> {
    let ran = place.run_words(&[&["join"], arguments, &["--exact", "--quiet", "-o", "-"]].concat());
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.said);
    let line = |line: &str| line.split(',').take(columns).collect::<Vec<_>>().join(",");
    let mut lines: Vec<String> = ran.out.lines().skip(1).map(line).collect();
    lines.sort();
    lines
}

#[test]
fn joins_only_rows_and_pairs_that_pass_the_filter() {
    let place = place();
    for from in ["set.store", "set.jsonl"] {
        for (conditions, pairs) in [
            (&["--where", "lang = 'en'"][..], &["a,c", "c,e"][..]),
            (&["--where", "lang = 'en' and year >= 2020"], &[]),
            (&["--where", "lang is null or year is null"], &["d,e"]),
            (&["--where-pair", "left.lang <> right.lang"], &["a,b", "b,c"]),
            (&["--where-pair", "left.source <> right.source"], &["a,c", "b,c", "c,d", "d,e"]),
            (&["--where-pair", "left.source = right.source and left.year < right.year"], &["a,b", "b,d"]),
            (&["--where", "lang = 'en'", "--where-pair", "left.source = right.source"], &["c,e"]),
        ] {
            assert_eq!(lines(&place, &[&[from, "--eps", "2"], conditions].concat(), 2), pairs, "{from} {conditions:?}");
        }
    }
    assert_eq!(lines(&place, &["set.store", "--eps", "2", "--where", "false"], 2), [""; 0]);
}

#[test]
fn cross_joins_filter_each_set_separately() {
    let place = place();
    for [from, with] in [["set.store", "others.store"], ["set.jsonl", "others.store"], ["set.jsonl", "others.jsonl"]] {
        for (conditions, pairs) in [
            (&["--where", "lang = 'en'"][..], &["a,1", "c,2", "f,3"][..]),
            (&["--where-other", "lang = 'en'"], &["a,1", "b,1", "f,3"]),
            (&["--where", "lang = 'en'", "--where-other", "year = 2020"], &["a,1", "c,2"]),
            (&["--where-pair", "left.year > right.year"], &["b,1", "b,2", "c,2", "d,2"]),
        ] {
            let arguments = [&[from, "--with", with, "--eps", "1.5"], conditions].concat();
            assert_eq!(lines(&place, &arguments, 2), pairs, "{arguments:?}");
        }
    }
}

#[test]
fn every_output_has_only_filtered_rows() {
    let place = place();
    let of = |output: &[&str], columns| {
        lines(&place, &[&["set.store", "--eps", "2", "--where", "lang = 'en'"], output].concat(), columns)
    };
    assert_eq!(of(&["--result", "counts"], 2), ["a,1", "c,2", "e,1", "f,0"]);
    assert_eq!(of(&["--result", "clusters"], 2), ["a,a", "c,a", "e,a"]);
    assert_eq!(of(&["--result", "removed", "--kept", "kept.csv"], 2), ["c,a"]);
    assert_eq!(place.text("kept.csv").lines().collect::<Vec<_>>(), ["id", "a", "e", "f"]);
    assert_eq!(of(&["--result", "removed", "--keep-rule", "cluster"], 2), ["c,a", "e,a"]);
    let pairs = ["--where-pair", "left.source = right.source"];
    let of_pairs = |output: &[&str]| of(&[&pairs, output].concat(), 2);
    assert_eq!(of_pairs(&["--result", "counts"]), ["a,0", "c,1", "e,1", "f,0"]);
    assert_eq!(of_pairs(&["--result", "removed"]), ["e,c"]);
    assert_eq!(of_pairs(&["--result", "clusters"]), ["c,c", "e,c"]);
}

#[test]
fn statistics_count_filtered_rows() {
    let place = place();
    let line = ["join", "set.store", "--with", "others.store", "--eps", "1.5", "--where", "lang = 'en'"];
    let ran = place.run_words(&[&line[..], &["--where-other", "year = 2020", "--stats", "stats.json"]].concat());
    assert!(ran.said.contains("4 of 6 rows match the filter"), "{}", ran.said);
    assert!(ran.said.contains("2 of 3 rows match the filter"), "{}", ran.said);
    let statistics: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    let join = &statistics["join"];
    assert_eq!((&join["passing_rows"], &join["with_passing_rows"]), (&4.into(), &2.into()));
    assert_eq!((&join["pairs"], &join["skipped_buckets"]), (&2.into(), &0.into()));
    place.done("join set.store --eps 1.5 --where false --stats none.json --quiet");
    let none: Value = serde_json::from_str(&place.text("none.json")).unwrap();
    assert_eq!((&none["join"]["pairs"], &none["io"]["bytes_read"]), (&0.into(), &0.into()));
    assert_eq!((&none["join"]["skipped_buckets"], &none["recall"]["kept"]), (&none["join"]["buckets"], &true.into()));
}

#[test]
fn refuses_invalid_join_filters_in_one_line() {
    let place = place();
    let join = ["join", "set.store", "--eps", "1"];
    for (option, condition, words) in [
        ("--where", "language = 'en'", &["there is no column language; choose from lang, year, source"][..]),
        ("--where", "year = 'x'", &["year = 'x'", "Int64"]),
        ("--where", "year >", &["cannot read", "as a condition"]),
        ("--where", "", &["--where"]),
        ("--where-pair", "source <> right.source", &["write left.source or right.source"]),
        ("--where-pair", "left.source <> right.language", &["there is no column language; choose from lang"]),
        ("--where-pair", "left.source <> right.year", &["the left side is Utf8 and the right side Int64"]),
        ("--where-pair", "left.year - right.year < 1", &["only one row"]),
        ("--where-pair", "left.source <>", &["cannot read", "as a condition on pairs"]),
        ("--where-other", "lang = 'en'", &["--where-other", "--with"]),
    ] {
        place.refused_words(&[&join[..], &[option, condition]].concat(), words);
    }
    place.done("build set.jsonl -o plain.store --quiet");
    for option in ["--where", "--where-pair"] {
        let condition = if option == "--where" { "true" } else { "left.a = right.a" };
        let words = [&*format!("plain.store has no columns, which {option} needs"), "--columns"];
        place.refused_words(&["join", "plain.store", "--eps", "1", option, condition], &words);
    }
    place.refused_words(
        &["join", "set.jsonl", "--eps", "1", "--where", "language = 'en'"],
        &["set.jsonl: there is no column language"],
    );
    place.refused_words(&["join", "set.jsonl", "--eps", "1", "--where", "false"], &["--where names no column"]);
}
