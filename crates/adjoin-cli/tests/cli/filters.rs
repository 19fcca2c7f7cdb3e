//! `adjoin build --columns` and `adjoin search --where`.

use serde_json::Value;

use crate::inputs::fbin;
use crate::place::Place;

const LINES: &str = r#"{"id": "a", "v": [0, 0], "lang": "en", "year": 2019, "meta": {"score": 0.5}}
{"id": "b", "v": [1, 0], "lang": "de", "year": 2021}
{"id": "c", "v": [2, 0], "lang": "en", "year": 2022, "meta": {"score": 2.5}}
{"id": "d", "v": [3, 0], "lang": null, "year": 2023}
{"id": "e", "v": [4, 0], "lang": "en", "year": null}
{"id": "f", "v": [9, 0], "lang": "en", "year": 2024}
"#;

fn built() -> Place {
    let place = Place::new();
    place.write("set.jsonl", LINES.as_bytes());
    place.write("queries.fbin", &fbin(2, &[0., 0.]));
    place.done("build set.jsonl --columns lang,year,meta.score -o set.store --quiet");
    place
}

/// Searches for the origin among the rows that pass a filter. Returns the ids of the hits.
fn found(place: &Place, condition: &str) -> Vec<String> {
    let line = ["search", "set.store", "--queries", "queries.fbin", "-k", "9", "--quiet", "--where", condition];
    let ran = place.run_words(&line);
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    ran.out.lines().skip(1).map(|line| line.split(',').nth(2).unwrap().to_owned()).collect()
}

#[test]
fn filtered_searches_return_matching_rows_nearest_first() {
    let place = built();
    for (condition, ids) in [
        ("lang = 'en'", &["a", "c", "e", "f"][..]),
        ("lang = 'en' and year >= 2020", &["c", "f"]),
        ("not lang = 'en'", &["b"]),
        ("lang is null or year is null", &["d", "e"]),
        ("\"meta.score\" > 1", &["c"]),
        ("year between 2020 and 2022", &["b", "c"]),
        ("LANG LIKE '_e' AND Year <> 2019", &["b"]),
        ("year > 3000", &[]),
        ("year > 0 or true", &["a", "b", "c", "d", "e", "f"]),
    ] {
        assert_eq!(found(&place, condition), ids, "{condition}");
    }
    let line = ["search", "set.store", "--queries", "queries.fbin", "-k", "2", "--where", "lang = 'en'", "--stats"];
    let said = place.run_words(&[&line[..], &["stats.json"]].concat()).said;
    assert!(said.contains("4 of 6 rows match the filter"), "{said}");
    let statistics: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    assert_eq!((&statistics["search"]["passing_rows"], &statistics["search"]["hits"]), (&4.into(), &2.into()));
    assert_eq!(statistics["recall"]["kept"], true);
}

#[test]
fn sort_by_stores_its_column_implicitly() {
    let place = built();
    place.done("build set.jsonl --columns lang --sort-by year -o set.store --force --quiet");
    let said = place.done("info set.store").out;
    assert!(said.contains("columns      lang (Utf8), year (Int64)") && said.contains("sorted by    year"), "{said}");
    let manifest: Value = serde_json::from_str(&place.done("info set.store --json").out).unwrap();
    assert_eq!((&manifest["sorted_by"], &manifest["format_version"]), (&"year".into(), &2.into()));
    assert_eq!(found(&place, "lang = 'en' and year >= 2020"), ["c", "f"]);
    assert_eq!(found(&place, "lang is null or year is null"), ["d", "e"]);
    place.done("verify set.store");
    place.done("join set.store --eps 1.5 --exact --result counts -o counts.csv --quiet");
    let line =
        ["join", "set.store", "--eps", "1.5", "--exact", "-o", "pairs.csv", "--quiet", "--where", "year >= 2021"];
    assert_eq!(place.run_words(&line).code, Some(0));
    let pairs: Vec<String> = place.text("pairs.csv").lines().skip(1).map(|line| line[..3].to_owned()).collect();
    assert_eq!(pairs, ["b,c", "c,d"]);
    place.done("index build set.store -o set.index --quiet");
    place.write("more.jsonl", LINES.replace("\"id\": \"", "\"id\": \"new ").as_bytes());
    place.refused(
        "append set.store --new more.jsonl",
        &["is sorted by year", "build it again from all rows, with --force"],
    );
    for (column, words) in [("month", "no column month for values of --sort-by"), ("v", "column v is List")] {
        place.refused(&format!("build set.jsonl --sort-by {column} -o x.store"), &[words]);
    }
    place.done("build set.jsonl --sort-by year -o kept.store --resume --quiet");
    let [resumed, plain] = ["kept.store", "set.store"].map(|store| place.done(&format!("info {store} --json")).out);
    assert!(resumed.contains("sorted_by") && plain.contains("sorted_by"));
}

#[test]
fn info_lists_columns_and_indexes_copy_them() {
    let place = built();
    let line = "columns      lang (Utf8), year (Int64), meta.score (Float64)";
    assert!(place.done("info set.store").out.contains(line));
    place.done("index build set.store -o of-store.index --quiet");
    place.done("index build set.jsonl --columns lang,year,meta.score -o of-set.index --quiet");
    for index in ["of-store.index", "of-set.index"] {
        assert!(place.done(&format!("info {index}")).out.contains(line), "{index}");
        place.done(&format!("verify {index} --quiet"));
        place.done(&format!("index relayout {index} --quiet"));
        assert!(place.done(&format!("info {index}")).out.contains(line), "{index}");
    }
    place.done("verify set.store --quiet");
    place.done("build set.jsonl -o set.store --force --quiet");
    assert!(!place.done("info set.store").out.contains("columns"));
    let names: Vec<_> =
        place.listing().into_iter().filter(|(path, _)| path.to_string_lossy().contains("set.store/attr")).collect();
    assert!(names.is_empty(), "replacing a store removes its attributes: {names:?}");
}

#[test]
fn refuses_invalid_columns_and_search_filters_in_one_line() {
    let place = built();
    let search = ["search", "set.store", "--queries", "queries.fbin", "-k", "1", "--where"];
    for (condition, words) in [
        ("language = 'en'", &["there is no column language; choose from lang, year, meta.score"][..]),
        ("year = 'x'", &["year = 'x'", "Int64"]),
        ("year", &["not true or false"]),
        ("year >", &["cannot read", "as a condition"]),
        ("", &["--where"]),
    ] {
        place.refused_words(&[&search[..], &[condition]].concat(), words);
    }
    place.done("build set.jsonl -o plain.store --quiet");
    let line = "search plain.store --queries queries.fbin -k 1 --where true";
    place.refused(line, &["plain.store has no columns, which --where needs", "--columns"]);
    place.refused(
        "build queries.fbin --columns lang -o x.store",
        &["queries.fbin", "--columns", "Parquet, Arrow or JSON"],
    );
    place.refused("build set.jsonl --columns long -o x.store", &["set.jsonl: there is no column long for --columns"]);
    place.refused("build set.jsonl --columns v -o x.store", &["column v is List", "name other columns"]);
    place.refused("build set.jsonl --columns meta -o x.store", &["column meta is Struct"]);
    place.refused("build set.jsonl --columns lang,lang -o x.store", &["--columns lang is named twice"]);
    place.refused("index build set.store --columns lang -o x.index", &["--columns"]);
    place.write("mixed.jsonl", b"{\"v\": [1, 2], \"a\": 1}\n{\"v\": [1, 2], \"a\": \"x\"}\n");
    place.refused("build mixed.jsonl --columns a -o x.store", &["column a is a number in line 1 and a text in line 2"]);
}
