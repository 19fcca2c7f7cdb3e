//! `adjoin collection`: creating, writing, searching, merging and describing a collection, and refusals.

use crate::inputs::fbin;
use crate::place::Place;

/// Creates a collection of nine points in the plane. Their ids are the row numbers.
pub(crate) fn small() -> Place {
    let place = Place::new();
    place.write("set.fbin", &fbin(2, &[0., 0., 1., 0., 3., 0., 0., 4., 5., 5., 1., 0., 9., 9., -2., 0., 0., -1.]));
    place.write("queries.fbin", &fbin(2, &[0., 0., 9., 8.]));
    place.done("collection create set.live --dimensions 2");
    assert_eq!(place.done("collection write set.live --insert set.fbin").out, "1\n");
    place
}

/// Parses the hits of a search from CSV, and sorts them by query, distance and id.
pub(crate) fn by_distance(csv: &str) -> Vec<(u32, f64, u32)> {
    let hit = |line: &str| {
        let words: Vec<&str> = line.split(',').collect();
        (words[0].parse().unwrap(), words[3].parse().unwrap(), words[2].parse().unwrap())
    };
    let mut hits: Vec<(u32, f64, u32)> = csv.lines().skip(1).map(hit).collect();
    hits.sort_by(|a, b| a.partial_cmp(b).unwrap());
    hits
}

#[test]
fn collection_hits_equal_store_hits_before_and_after_a_merge() {
    let place = small();
    place.done("build set.fbin -o set.store --quiet");
    for round in 0..2 {
        for asked in ["-k 1", "-k 4", "-k 100", "--radius 3.5", "-k 4 -L 9"] {
            let hits = place.done(&format!("search set.live --queries queries.fbin {asked} --quiet")).out;
            let exact = asked.trim_end_matches(" -L 9").to_owned() + " --exact";
            let of_store = place.done(&format!("search set.store --queries queries.fbin {exact} --quiet")).out;
            assert_eq!(sorted(&hits), sorted(&of_store), "{asked}, round {round}");
        }
        let said = place.done("collection merge set.live").said;
        assert!(said.contains("set.live: 9 rows in the index on disk"), "{said}");
    }
    assert_eq!(place.done("verify set.live").out, "sound: all checksums match, 9 rows, 64 B of log\n");
}

/// Returns the hits without ranks and sorted, since hits at equal distances may be in any order.
fn sorted(hits: &str) -> Vec<String> {
    let of = |line: &str| {
        let words: Vec<&str> = line.split(',').collect();
        [words[0], words[3], words[2]].join(",")
    };
    let mut lines: Vec<String> = hits.lines().map(of).collect();
    lines.sort();
    lines
}

#[test]
fn inserts_and_deletes_rows_by_id() {
    let place = small();
    place.write("gone", b"0\n6\n77\n");
    let ran = place.done("collection write set.live --delete gone");
    assert!(ran.said.contains("0 rows written, 2 rows deleted or replaced; 7 rows now"), "{}", ran.said);
    assert!(ran.said.contains("1 id to delete was not found"), "{}", ran.said);
    place.write("new.csv", b"");
    place.write("new.jsonl", b"{\"id\": 3, \"v\": [9, 8]}\n{\"id\": 100, \"v\": [0, 0]}\n");
    place.done("collection write set.live --upsert new.jsonl --durability buffered --quiet");
    let hits = "query,rank,id,distance\n0,1,100,0.0\n1,1,3,0.0\n";
    for _ in 0..2 {
        assert_eq!(place.done("search set.live --queries queries.fbin -k 1 --quiet").out, hits);
        place.done("collection merge set.live --quiet");
    }
    let info = place.done("info set.live").out;
    assert!(info.contains("vectors      8 of 2 x f32") && info.contains("unmerged     0 rows"), "{info}");
    let json: serde_json::Value = serde_json::from_str(&place.done("info set.live --json").out).unwrap();
    assert_eq!((&json["kind"], &json["merged_rows"]), (&"live".into(), &8.into()));
}

#[test]
fn collection_writes_are_atomic() {
    let place = small();
    place.write("gone", b"1\n2\n");
    place.write("twice.jsonl", b"{\"id\": 50, \"v\": [1, 1]}\n{\"id\": 50, \"v\": [2, 2]}\n");
    place.write("there.jsonl", b"{\"id\": 60, \"v\": [1, 1]}\n{\"id\": 3, \"v\": [2, 2]}\n");
    let before = place.done("info set.live").out;
    for (line, words) in [
        ("collection write set.live --delete gone --upsert none.fbin", "none.fbin"),
        ("collection write set.live --delete gone --insert there.jsonl", "the id 3 of row 1 already exists"),
        ("collection write set.live --delete gone --insert twice.jsonl", "the id 50 of row 1 occurs twice"),
        ("collection write set.live --upsert twice.jsonl --insert there.jsonl", "the id 3 of row 1 already exists"),
    ] {
        place.refused(line, &[words]);
        assert_eq!(place.done("info set.live").out, before, "{line}");
    }
    let said = place.done("collection write set.live --delete gone --upsert twice.jsonl").said;
    assert!(said.contains("2 rows written, 3 rows deleted or replaced; 8 rows now"), "{said}");
    place.write("near.fbin", &fbin(2, &[2., 2.]));
    let hits = place.done("search set.live --queries near.fbin -k 1 --quiet").out;
    assert_eq!(hits, "query,rank,id,distance\n0,1,50,0.0\n");
}

#[test]
fn refuses_invalid_requests() {
    let place = small();
    place.write("other.fbin", &fbin(3, &[0., 0., 1.]));
    place.write("nan.fbin", &fbin(2, &[0., f32::NAN]));
    place.write("gone", b"1\nx\n");
    place.done("build set.fbin -o set.store --quiet");
    place.done("collection create none.live --dimensions 2");
    for (line, words) in [
        (
            "collection write set.live --insert set.fbin",
            &["set.fbin: the id 0 of row 0 already exists", "set.live"][..],
        ),
        ("collection write set.live --insert other.fbin", &["other.fbin has vectors of 3 x f32", "stores 2 x f32"]),
        ("collection write set.live --upsert nan.fbin", &["nan.fbin", "NaN"]),
        ("collection write set.live --delete gone", &["gone: line 2 is \"x\", but the ids are integers"]),
        (
            "collection write set.live --delete none",
            &["none: the ids cannot be read", "name a file with one id per line"],
        ),
        ("collection write set.live", &["nothing to write", "--insert"]),
        (
            "collection write set.store --insert set.fbin",
            &["set.store is a store, not a collection", "adjoin collection create"],
        ),
        ("search set.live --queries other.fbin -k 1", &["queries have 3 dimensions"]),
        ("search set.live --queries queries.fbin -k 0", &["-k 0"]),
        ("search set.live --queries queries.fbin --min-similarity 0.5", &["give --radius"]),
        (
            "search set.live --queries queries.fbin -k 1 --where a=1",
            &["set.live is a collection whose rows have no columns, which --where needs", "--columns"],
        ),
        ("collection write set.live --delete-where a=1", &["no columns, which --delete-where needs"]),
        ("collection write set.live --delete-where a=", &["cannot read \"a=\" as a condition"]),
        (
            "collection create new.live --dimensions 2 --columns lang",
            &["--columns lang: give a name, a colon and a type"],
        ),
        ("collection create new.live --dimensions 2 --columns a:text,a:bool", &["--columns a is named twice"]),
        ("collection create new.live --dimensions 2 --columns id:int64", &["--columns id: this name is reserved"]),
        ("search nothing --queries queries.fbin -k 1", &["nothing is not a store, an index or a collection"]),
        ("collection create set.live --dimensions 2", &["set.live is already a collection"]),
        ("collection create new.live --dimensions 0", &["0 dimensions"]),
        ("collection create new.live --dimensions 2 --degree 0", &["--degree"]),
        ("search set.live --queries queries.fbin -k 1 --nprobe 2", &["--nprobe 2 is for stores", "--list"]),
        ("join set.live set.fbin --eps 1", &["set.live is a collection, which cannot be combined with other sources"]),
        ("join set.live --eps 1 --no-ids", &["set.live is a collection", "--no-ids applies only to files"]),
        ("build set.live --columns x -o new.store", &["--columns", "the source has no columns"]),
        ("join none.live --eps 1", &["none.live has no rows"]),
        ("join set.live --eps 1 -o set.live/pairs.csv", &["set.live is a collection and an input, so -o cannot write"]),
        ("dedupe set.live --eps 1 -o out", &["set.live is a collection", "adjoin collection snapshot"]),
    ] {
        place.refused(line, words);
    }
    assert!(place.done("info set.live").out.contains("vectors      9 of"));
}

/// Checks that every command that accepts a source accepts a collection. The collection has rows on disk, rows in
/// memory and deleted rows.
#[test]
fn every_command_accepts_a_collection_as_source() {
    let place = small();
    place.done("collection merge set.live --quiet");
    place.write("gone", b"0\n6\n");
    place.write("new.jsonl", b"{\"id\": 3, \"v\": [1, 0.5]}\n{\"id\": 100, \"v\": [9, 8]}\n");
    place.done("collection write set.live --delete gone --upsert new.jsonl --quiet");
    let rows =
        [(1, [1., 0.]), (2, [3., 0.]), (3, [1., 0.5]), (4, [5., 5.]), (5, [1., 0.]), (7, [-2., 0.]), (8, [0., -1.])];
    let line = |&(id, [x, y]): &(u32, [f64; 2])| format!("{{\"id\": {id}, \"v\": [{x}, {y}]}}\n");
    place.write("there.jsonl", (rows.iter().map(line).collect::<String>() + &line(&(100, [9., 8.]))).as_bytes());
    let pairs = |source: &str, of: &str| {
        let out = place.done(&format!("{of} {source} --eps 2 --quiet -o -")).out;
        let ordered = |line: &str| {
            let (mut words, value): (Vec<&str>, &str) = {
                let words: Vec<&str> = line.split(',').collect();
                (words[..2].to_vec(), words[2])
            };
            words.sort_unstable();
            format!("{},{value}", words.join(","))
        };
        let mut lines: Vec<String> = out.lines().map(ordered).collect();
        lines.sort();
        lines
    };
    let wanted = pairs("there.jsonl", "join --exact");
    assert!(wanted.len() > 5, "{wanted:?}");
    assert_eq!(pairs("set.live", "join --exact"), wanted);
    assert_eq!(pairs("set.live", "groundtruth"), wanted);
    place.done("build set.live -o live.store --quiet");
    assert_eq!(pairs("live.store", "join --exact"), wanted);
    let search = "--queries queries.fbin -k 3 --quiet";
    let hits = |of: &str| by_distance(&place.done(&format!("{of} {search}")).out);
    let wanted = hits("search set.live");
    place.done("index build set.live -o live.index --quiet");
    assert_eq!(hits("search live.index"), wanted);
    let removed = place.done("join set.live --eps 0.1 --exact --result removed --quiet -o -").out;
    assert!(removed == "id,kept_id,distance\n5,1,0.0\n" || removed == "id,kept_id,distance\n1,5,0.0\n", "{removed}");
    assert!(place.done("explain set.live --eps 2").out.contains("8 of 2 f32"));
    place.done("collection create copy.live --dimensions 2");
    place.done("collection write copy.live --insert set.live --quiet");
    assert_eq!(hits("search copy.live"), wanted);
}

#[test]
fn filters_select_hits_and_deleted_rows() {
    let place = Place::new();
    place.write("queries.fbin", &fbin(2, &[0., 0.]));
    let line = |id: i32, rest: &str| format!("{{\"id\": {id}, \"v\": [{id}.0, 0.0]{rest}}}\n");
    let rows =
        [r#", "lang": "en", "year": 2019"#, r#", "lang": "de", "year": 2020"#, r#", "lang": null, "year": 2021"#];
    place.write("rows.jsonl", (0..9).map(|id| line(id, rows[id as usize % 3])).collect::<String>().as_bytes());
    place.write("less.jsonl", line(20, r#", "lang": "en""#).as_bytes());
    place.write("wrong.jsonl", (line(20, rows[0]) + &line(21, r#", "lang": "en", "year": 2020.5"#)).as_bytes());
    place.done("collection create set.live --dimensions 2 --columns lang:text,year:int64");
    place.done("collection write set.live --insert rows.jsonl --quiet");
    let info = place.done("info set.live").out;
    assert!(info.contains("columns      lang (text), year (int64)\n"), "{info}");
    for (line, words) in [
        (
            "collection write set.live --insert less.jsonl",
            &["less.jsonl: there is no column year", "set.live", "id (Int64), v (List(Float64)), lang (Utf8)"][..],
        ),
        (
            "collection write set.live --insert wrong.jsonl",
            &["wrong.jsonl: column year of row 1 is \"2020.5\", which is not a valid int64"],
        ),
        (
            "collection write set.live --insert queries.fbin",
            &["queries.fbin: it has no columns other than its vectors"],
        ),
        ("search set.live --queries queries.fbin -k 1 --where y=1", &["no column y; choose from lang, year"]),
    ] {
        place.refused(line, words);
    }
    let found = |condition: &str| {
        let line = "search set.live --queries queries.fbin -k 2 --no-ids --quiet --where";
        let words: Vec<&str> = line.split(' ').chain([condition]).collect();
        let out = place.run_words(&words).out;
        out.lines().skip(1).map(|line| line.split(',').nth(2).unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    for _ in 0..2 {
        assert_eq!(
            [found("lang = 'de'"), found("lang is null and year > 2020"), found("year < 0")],
            ["1 4", "2 5", ""]
        );
        place.done("collection merge set.live --quiet");
    }
    let ran = place.run_words(&["collection", "write", "set.live", "--delete-where", "year < 2020"]);
    assert!(
        ran.code == Some(0) && ran.said.contains("0 rows written, 3 rows deleted or replaced; 6 rows now"),
        "{}",
        ran.said
    );
    assert_eq!([found("year < 2021"), found("lang = 'en'")], ["1 4", ""]);
    let sound = place.done("verify set.live").out;
    assert!(sound.starts_with("sound: "), "{sound}");
}
