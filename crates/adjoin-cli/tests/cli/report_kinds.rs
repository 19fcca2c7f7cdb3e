//! Reports of removed rows, clusters, hits and neighbors, with the texts that results carry.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::options::least_budget;
use crate::place::Place;
use crate::report::{browsed, data};

/// Writes rows with a text, a language and a path each. They form groups of three rows that are near each other. The
/// first row of a group is English.
fn place_of_groups(groups: usize) -> Place {
    let place = Place::new();
    let line = |row: usize| {
        let (x, y) = ((row / 3) as f64, (row % 3) as f64 / 10.0);
        let language = ["en", "de", "en"][row % 3];
        format!(
            "{{\"id\": \"r{row}\", \"text\": \"the {row} th text </script>\", \"lang\": \"{language}\", \"path\": \"images/{row}.png\", \"v\": [{x}, {y}]}}\n"
        )
    };
    place.write("set.jsonl", (0..3 * groups).map(line).collect::<String>().as_bytes());
    place
}

/// Returns a value for each line of a page. `of` receives the index of the name on one side of the line.
fn of_side<T>(page: &Value, side: &str, of: impl Fn(usize) -> T) -> Vec<T> {
    page["pairs"][side].as_array().unwrap().iter().map(|name| of(name.as_u64().unwrap() as usize)).collect()
}

fn id(page: &Value, name: usize) -> usize {
    page["names"][name][0].as_str().unwrap()[1..].parse().unwrap()
}

/// Checks that each row on the page has its own text and columns.
fn check_texts(page: &Value, names: impl IntoIterator<Item = usize>) {
    assert_eq!(page["columns"], json!(["lang", "path"]));
    for name in names {
        let row = id(page, name);
        assert_eq!(page["names"][name][1], format!("the {row} th text </script>"));
        let language = ["en", "de", "en"][row % 3];
        assert_eq!(page["details"][name], json!([language, format!("images/{row}.png")]));
    }
}

/// Returns the number of lines of the page for each pair of values that a column has on both sides.
fn shares(page: &Value, column: &str) -> BTreeMap<(String, String), u64> {
    let shares = page["shares"].as_array().unwrap().iter().find(|shares| shares["column"] == column).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let lines = shares["lines"].as_array().unwrap().iter();
    lines.map(|line| ((text(&line[0]), text(&line[1])), line[2].as_u64().unwrap())).collect()
}

fn counted(counts: &[(&str, &str, u64)]) -> BTreeMap<(String, String), u64> {
    counts.iter().map(|&(left, right, lines)| ((left.to_owned(), right.to_owned()), lines)).collect()
}

#[test]
fn removed_rows_have_a_page_with_both_texts_and_shares() {
    let place = place_of_groups(40);
    for format in ["parquet", "csv", "jsonl"] {
        place.done(&format!(
            "dedupe set.jsonl --eps 0.5 --exact -o clean-{format}.jsonl --removed gone.{format} --columns lang,text,path \
             --stats {format}.json"
        ));
        let ran = place.done(&format!("report gone.{format} --stats {format}.json -o {format}.html"));
        assert!(ran.said.contains("80 removed rows, of which 80 are on the page"), "{}", ran.said);
        let page = data(&place, &format!("{format}.html"));
        assert_eq!((&page["kind"], &page["total"], &page["decidable"]), (&json!("removed"), &json!(80), &json!(true)));
        assert_eq!(page["causes"], json!({"near": 80, "equal": 0, "decided": 0}));
        let (gone, kept) = (of_side(&page, "left", |name| name), of_side(&page, "right", |name| name));
        assert!(gone.iter().zip(&kept).all(|(&gone, &kept)| id(&page, kept) == id(&page, gone) / 3 * 3), "{format}");
        assert!(gone.iter().all(|&name| page["sides"][name] == 0) && kept.iter().all(|&name| page["sides"][name] == 1));
        check_texts(&page, gone.into_iter().chain(kept));
        // Rows that are far from their kept row are doubtful, so they are first.
        let values: Vec<f64> =
            page["pairs"]["value"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        assert!(values.is_sorted_by(|a, b| a >= b) && values[0] > 0.19 && values[79] < 0.11, "{values:?}");
        assert_eq!(page["clusters_total"], 40);
        assert_eq!(page["sizes"], json!([[3, 40]]));
        assert_eq!(shares(&page, "lang"), counted(&[("de", "en", 40), ("en", "en", 40)]), "{format}");
    }
    // With the names of the whole set, the page also shows the number of rows of each language.
    place.done("report gone.parquet --names set.jsonl -o named.html");
    let page = data(&place, "named.html");
    assert_eq!(page["shares"][0]["rows"], json!([["de", 40], ["en", 80]]));
    check_texts(&page, of_side(&page, "left", |name| name));
}

#[test]
fn names_of_one_table_name_removed_and_kept_rows() {
    let place = place_of_groups(4);
    place.done("dedupe set.jsonl --eps 0.5 --exact -o clean.jsonl --removed gone.csv");
    place.done("report gone.csv --names set.jsonl --name-column text -o page.html");
    let page = data(&place, "page.html");
    let names = page["names"].as_array().unwrap();
    assert_eq!(names.len(), 12);
    for name in names {
        assert_eq!(name[1], format!("the {} th text </script>", &name[0].as_str().unwrap()[1..]));
    }
    assert!(page["columns"].as_array().unwrap().is_empty());
    // If rows have no ids, a kept row with a higher number than its removed row may be of another set.
    place.write("rows.csv", b"id,kept_id,distance\n0,3,0.5\n1,4,0.5\n");
    place.write("names.csv", b"name\na\nb\nc\nd\ne\n");
    place.refused("report rows.csv --names names.csv -o rows.html", &["rows.csv", "give --with-names"]);
    place.done("report rows.csv --names names.csv --with-names names.csv -o rows.html");
    place.write("rows.csv", b"id,kept_id,distance\n3,0,0.5\n4,1,0.5\n");
    place.done("report rows.csv --names names.csv -o rows.html --force");
    assert!(data(&place, "rows.html")["names"].as_array().unwrap().contains(&json!(["0", "a"])));
}

#[test]
fn rows_with_equal_texts_come_after_the_near_ones() {
    let place = Place::new();
    place.write("gone.csv", b"id,kept_id,distance,reason\n1,0,,equal text\n2,0,0.25,similar\n3,0,0.5,similar\n");
    place.done("report gone.csv -o page.html");
    let page = data(&place, "page.html");
    assert_eq!(page["pairs"]["value"], json!([0.5, 0.25, null]));
    assert_eq!(page["causes"], json!({"near": 2, "equal": 1, "decided": 0}));
    assert_eq!(page["curve"]["pairs"].as_array().unwrap().last().unwrap(), 2);
    place.write("gone.jsonl", b"{\"id\": 1, \"kept_id\": 0, \"distance\": null, \"reason\": \"equal text\"}\n");
    place.done("report gone.jsonl -o lines.html");
    assert_eq!(data(&place, "lines.html")["pairs"]["value"], json!([null]));
    place.write("pairs.csv", b"left_id,right_id,distance\n0,1,0.5\n0,2,\n");
    place.refused("report pairs.csv -o pairs.html", &["pairs.csv: row 1 has no number in column distance"]);
}

#[test]
fn pairs_have_a_page_with_the_texts_that_they_carry() {
    let place = place_of_groups(5);
    for format in ["parquet", "csv", "jsonl"] {
        place.done(&format!("join set.jsonl --eps 0.15 --exact --columns text,lang,path -o pairs.{format}"));
        place.done(&format!("report pairs.{format} -o {format}.html"));
        let page = data(&place, &format!("{format}.html"));
        assert_eq!((&page["total"], &page["sides"]), (&json!(10), &json!([])));
        check_texts(&page, of_side(&page, "left", |name| name).into_iter().chain(of_side(&page, "right", |name| name)));
        assert_eq!(shares(&page, "lang").values().sum::<u64>(), 10);
    }
    // For two sets, each side has its own columns, so no table of names is needed.
    place.done("join set.jsonl --with set.jsonl --eps 0 --exact --columns text,lang,path -o both.parquet");
    place.done("report both.parquet -o both.html");
    let page = data(&place, "both.html");
    assert_eq!((&page["decidable"], page["names"].as_array().unwrap().len()), (&json!(false), 30));
    check_texts(&page, 0..30);
}

#[test]
fn hits_have_a_page_by_query_in_their_order() {
    let place = place_of_groups(30);
    place.done("build set.jsonl --columns text,lang,path -o set.store");
    place.write("queries.jsonl", b"{\"id\": \"q0\", \"v\": [0, 0]}\n{\"id\": \"q1\", \"v\": [7, 0.1]}\n");
    place.write("queries.csv", b"id,question\nq0,which is first\nq1,which is later\n");
    for format in ["parquet", "csv", "jsonl"] {
        let search = "search set.store --queries queries.jsonl -k 6 --exact --columns text,lang,path";
        place.done(&format!("{search} -o hits.{format} --stats {format}.json"));
        place.done(&format!("report hits.{format} --names queries.csv --stats {format}.json -o {format}.html"));
        let page = data(&place, &format!("{format}.html"));
        assert_eq!((&page["kind"], &page["total"], &page["queries"]), (&json!("hits"), &json!(12), &json!(2)));
        let queries = of_side(&page, "left", |name| page["names"][name][1].as_str().unwrap().to_owned());
        assert_eq!(queries[..6], vec!["which is first"; 6], "{format}");
        assert_eq!(queries[6..], vec!["which is later"; 6], "{format}");
        let hits = of_side(&page, "right", |name| name);
        check_texts(&page, hits.iter().copied());
        assert_eq!(hits[..3].iter().map(|&hit| id(&page, hit)).collect::<Vec<_>>(), [0, 1, 2], "{format}");
        assert_eq!(shares(&page, "lang").values().sum::<u64>(), 12);
        assert_eq!((&page["decidable"], &page["clusters"]), (&json!(false), &json!([])));
    }
}

#[test]
fn neighbors_have_a_page_with_names_of_their_set() {
    let place = place_of_groups(30);
    place.done("join set.jsonl -k 2 --exact -o near.csv --stats near.json");
    // Only the statistics distinguish neighbors of rows from the hits of other queries.
    let ran = place.done("report near.csv --stats near.json --names set.jsonl --name-column text -o near.html");
    assert!(ran.said.contains("180 neighbors, of which 180 are on the page"), "{}", ran.said);
    let page = data(&place, "near.html");
    assert_eq!((&page["kind"], &page["total"], &page["queries"]), (&json!("hits"), &json!(180), &json!(90)));
    for name in page["names"].as_array().unwrap() {
        assert_eq!(name[1], format!("the {} th text </script>", &name[0].as_str().unwrap()[1..]));
    }
    assert_eq!(page["sides"], json!([]));
    place.done("report near.csv --names set.jsonl --name-column text -o queries.html");
    let page = data(&place, "queries.html");
    assert!(
        page["names"]
            .as_array()
            .unwrap()
            .iter()
            .zip(page["sides"].as_array().unwrap())
            .all(|(name, side)| { (name[1] == "") == (side == 1) })
    );
}

#[test]
fn clusters_have_a_page_with_the_largest_first() {
    let place = place_of_groups(6);
    for format in ["parquet", "csv", "jsonl"] {
        place.done(&format!("join set.jsonl --eps 0.15 --exact --result clusters -o clusters.{format}"));
        let ran =
            place.done(&format!("report clusters.{format} --names set.jsonl --name-column text -o {format}.html"));
        assert!(ran.said.contains("18 rows, of which 18 are on the page"), "{}", ran.said);
        let page = data(&place, &format!("{format}.html"));
        assert_eq!(
            (&page["kind"], &page["value"], &page["sizes"]),
            (&json!("clusters"), &json!(null), &json!([[3, 6]]))
        );
        assert!(page["pairs"]["left"].as_array().unwrap().is_empty());
        for members in page["clusters"].as_array().unwrap() {
            let rows: Vec<usize> =
                members.as_array().unwrap().iter().map(|name| id(&page, name.as_u64().unwrap() as usize)).collect();
            assert!(rows.iter().all(|row| row / 3 == rows[0] / 3), "{rows:?}");
        }
    }
    // Columns that were added to the rows of clusters are shown too.
    place.write("sized.csv", b"id,cluster,distance,text\na,a,1,one\nb,a,2,two\nc,c,3,three\nd,c,4,four\ne,c,5,five\n");
    place.done("report sized.csv -o sized.html");
    let page = data(&place, "sized.html");
    assert_eq!(page["sizes"], json!([[2, 1], [3, 1]]));
    assert!(page["names"].as_array().unwrap().contains(&json!(["d", "four"])), "{page}");
}

/// Checks clusters of two sets whose ids are equal, but not their texts.
#[test]
fn clusters_of_two_sets_have_a_page_with_the_columns_of_each_row() {
    let place = place_of_groups(6);
    let other = place.text("set.jsonl").replace(" th text </script>", " th other");
    place.write("other.jsonl", other.as_bytes());
    let join = "join set.jsonl --with other.jsonl --eps 0.15 --exact --result clusters";
    for format in ["parquet", "csv", "jsonl"] {
        for columns in ["", "--columns lang,text,path"] {
            place.done(&format!("{join} {columns} -o clusters.{format} --stats clusters.json --force"));
            let names = match columns {
                "" => "--names set.jsonl --with-names other.jsonl --name-column text --with-name-column text",
                _ => "",
            };
            place.done(&format!("report clusters.{format} --stats clusters.json {names} -o page.html --force"));
            let page = data(&place, "page.html");
            assert_eq!((&page["sizes"], &page["decidable"]), (&json!([[6, 6]]), &json!(false)), "{format} {columns}");
            for members in page["clusters"].as_array().unwrap() {
                let members: Vec<usize> =
                    members.as_array().unwrap().iter().map(|k| k.as_u64().unwrap() as usize).collect();
                let left: Vec<_> = members.iter().filter(|&&name| page["sides"][name] == 0).collect();
                assert_eq!((members.len(), left.len()), (6, 3), "{format} {columns}");
                for name in members {
                    let row = id(&page, name);
                    let text = ["th text </script>", "th other"][page["sides"][name].as_u64().unwrap() as usize];
                    assert_eq!(page["names"][name][1], format!("the {row} {text}"), "{format} {columns}");
                    if !columns.is_empty() {
                        let language = ["en", "de", "en"][row % 3];
                        assert_eq!(page["details"][name], json!([language, format!("images/{row}.png")]));
                    }
                }
            }
        }
    }
    let names = "report clusters.csv --names set.jsonl -o page.html --force";
    place.refused(names, &["clusters.csv has rows of two sets, but the names are of one", "--with-names"]);
    place.write("bad.csv", b"id,cluster,side\na,a,left\na,a,east\n");
    place.refused("report bad.csv -o page.html --force", &["bad.csv: row 1 has neither left nor right in column side"]);
    // In a Parquet file of one set, `side` is a column of the rows.
    place.write("sides.jsonl", other.replace("\"lang\"", "\"side\"").as_bytes());
    place.done("join sides.jsonl --eps 0.15 --exact --result clusters --columns side -o sides.parquet");
    place.done("report sides.parquet -o sides.html");
    let page = data(&place, "sides.html");
    assert_eq!((&page["sides"], &page["names"][1][1]), (&json!([]), &json!("de")), "{page}");
}

#[test]
fn names_are_shown_with_the_columns_of_a_result() {
    let place = place_of_groups(4);
    place.done("join set.jsonl --eps 0.15 --exact --columns text,lang -o pairs.csv");
    let names: String = (0..12).map(|row| format!("r{row},Name {row}\n")).collect();
    place.write("names.csv", format!("id,name\n{names}").as_bytes());
    place.done("report pairs.csv --names names.csv -o page.html");
    let page = data(&place, "page.html");
    assert_eq!(page["columns"], json!(["text", "lang"]));
    for (name, details) in page["names"].as_array().unwrap().iter().zip(page["details"].as_array().unwrap()) {
        let row = &name[0].as_str().unwrap()[1..];
        assert_eq!(
            (&name[1], &details[0]),
            (&json!(format!("Name {row}")), &json!(format!("the {row} th text </script>")))
        );
    }
    place.write("others.csv", b"id,name\nx,none\n");
    for result in ["pairs.csv", "bare.csv"] {
        place.done("join set.jsonl --eps 0.15 --exact -o bare.csv --force");
        let line = format!("report {result} --names others.csv -o page.html --force");
        place.refused(&line, &["others.csv: none of its ids is in", result]);
    }
}

#[test]
fn statistics_of_another_run_are_refused() {
    let place = place_of_groups(6);
    for (name, line) in [
        ("pairs", "join set.jsonl --eps 0.15 --exact"),
        ("clusters", "join set.jsonl --eps 0.15 --exact --result clusters"),
        ("removed", "join set.jsonl --eps 0.15 --exact --result removed"),
        ("near", "join set.jsonl -k 2 --exact"),
    ] {
        place.done(&format!("{line} -o {name}.csv --stats {name}.json"));
        // The other run has only the first two groups, and one more row.
        let set: String = place.text("set.jsonl").lines().take(7).map(|line| format!("{line}\n")).collect();
        place.write("few.jsonl", set.replace("[1,", "[0,").replace("[2,", "[0.05,").as_bytes());
        let other = line.replace("set.jsonl", "few.jsonl");
        place.done(&format!("{other} -o other.csv --stats other.json --force"));
        place.done(&format!("report {name}.csv --stats {name}.json -o {name}.html"));
        place.refused(
            &format!("report {name}.csv --stats other.json -o {name}.html --force"),
            &["the statistics are of another run: they count ", &format!("but {name}.csv has ")],
        );
    }
    for (name, rows) in [("gone", "set.jsonl"), ("less", "few.jsonl")] {
        place.done(&format!(
            "dedupe {rows} --eps 0.15 --exact -o {name}.jsonl --removed {name}.csv --stats {name}.json"
        ));
    }
    place.done("report gone.csv --stats gone.json -o gone.html");
    let line = "report gone.csv --stats less.json -o gone.html --force";
    place.refused(line, &["they count", "removed rows, but gone.csv has 6"]);
}

#[test]
fn results_of_parts_are_shown_with_the_statistics_of_the_merge() {
    let place = place_of_groups(6);
    place.done("build set.jsonl -o set.store --buckets 4");
    place.done("plan set.store --eps 0.15 --exact --parts 2 -o set.plan");
    for part in 1..=2 {
        place.done(&format!("run-part set.plan --part {part}/2 -o parts --stats part.json --force"));
    }
    for result in ["pairs", "clusters", "removed"] {
        place.done(&format!("merge set.plan parts --result {result} -o {result}.csv --stats {result}.json"));
        place.done(&format!("report {result}.csv --stats {result}.json -o {result}.html"));
        assert!(place.text(&format!("{result}.html")).contains("\"command\":\"merge\""));
    }
    let line = "report pairs.csv --stats part.json -o page.html";
    place.refused(line, &["part.json has statistics of run-part", "name those of join, merge, dedupe or search"]);
}

/// Checks a page with long texts. The first budget that a refusal names must suffice.
#[test]
fn texts_of_results_fit_the_least_budget() {
    let place = Place::new();
    let text = |row: usize| format!("{row} {}", "a text of many words ".repeat(30));
    let gone = (0..3_000).map(|row| format!("{row}x,{}y,0.5,{},{}\n", row % 100, text(row), text(row % 100)));
    let head = "id,kept_id,distance,text,kept_text\n".to_owned();
    place.write("gone.csv", std::iter::once(head).chain(gone).collect::<String>().as_bytes());
    let hits = (0..3_000).map(|row| format!("{},{},{row}x,0.5,{}\n", row / 10, row % 10 + 1, text(row)));
    let head = "query,rank,id,distance,text\n".to_owned();
    place.write("hits.csv", std::iter::once(head).chain(hits).collect::<String>().as_bytes());
    for result in ["gone.csv", "hits.csv"] {
        let line = format!("report {result} -o page.html --force --memory");
        for budget in ["19MB", "22MB"] {
            let ran = place.run(&format!("{line} {budget}"));
            assert_eq!(ran.code, Some(2), "{result} in {budget}: {}", ran.said);
            let again = place.run(&format!("{line} {}", least_budget(&ran.said)));
            assert_eq!(again.code, Some(0), "{result}: {} then {}", ran.said, again.said);
        }
    }
}

#[test]
fn a_browser_renders_pages_of_every_kind_without_errors() {
    let place = place_of_groups(40);
    place.done("dedupe set.jsonl --eps 0.5 --exact -o clean.jsonl --removed gone.csv --columns lang,text,path --stats gone.json");
    place.done("report gone.csv --stats gone.json --names set.jsonl --name-column text -o page.html");
    let Some(dom) = browsed(&place, "page.html") else { return };
    for words in [
        "80 removed rows",
        "of 120 rows: 66.7 %",
        "Removed rows by lang",
        "40 of 40: 100.0 %",
        "40 have a kept row of another lang",
        "the <mark class=\"left\">2</mark> th",
        "the <mark class=\"right\">0</mark> th text &lt;/script&gt;",
        "lang: en · path: images/2.png",
        "farthest first",
        "Save decisions",
    ] {
        assert!(dom.contains(words), "{words}: {dom}");
    }
    place.done("join set.jsonl -k 2 --exact -o near.csv --stats near.json");
    let ran = place.done("report near.csv --stats near.json --names set.jsonl --name-column text -o near.html");
    assert!(ran.said.contains("240 neighbors, of which 240 are on the page"), "{}", ran.said);
    let dom = browsed(&place, "near.html").unwrap();
    assert!(dom.contains("240 hits of 120 queries") && dom.contains("2 nearest") && dom.contains("1. r"), "{dom}");
    place.done("join set.jsonl --eps 0.15 --exact --result clusters -o clusters.csv");
    place.done("report clusters.csv -o clusters.html");
    let dom = browsed(&place, "clusters.html").unwrap();
    assert!(dom.contains("40 clusters of 120 rows") && dom.contains("<div class=\"row member head\""), "{dom}");
}
