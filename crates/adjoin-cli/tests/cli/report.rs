//! The HTML report of a result. Its figures must be right, hostile names must be harmless, and a real browser must
//! show it without errors.

use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression};
use parquet::file::properties::WriterProperties;

use crate::inputs::fbin;
use crate::options::least_budget;
use crate::place::{Place, skip};

/// Creates a result with statistics. Some names try to break out of the script of the page.
fn joined() -> Place {
    let place = Place::new();
    place.done("gen --rows 3000 --dimensions 8 --seed 2 -o set.fbin");
    place.done("join set.fbin --eps 1.6 --recall 0.9 -o pairs.parquet --stats stats.json");
    place.done("join set.fbin --eps 1.6 --exact -o pairs.csv");
    place.done("join set.fbin --eps 1.6 --exact -o pairs.jsonl");
    let mut names = String::from("id,name\n");
    (0..3000).for_each(|row| names += &format!("{row},\"name </script><b>{row}</b> {{{{data}}}} & \"\"so on\"\"\"\n"));
    place.write("names.csv", names.as_bytes());
    place
}

/// Returns the JSON data of the page.
pub(crate) fn data(place: &Place, page: &str) -> serde_json::Value {
    let text = place.text(page);
    let (_, rest) = text.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn reports_of_every_format_are_equal() {
    let place = joined();
    for format in ["csv", "jsonl"] {
        place.done(&format!("report pairs.{format} --names names.csv -o {format}.html"));
    }
    let (mut csv, mut lines) = (data(&place, "csv.html"), data(&place, "jsonl.html"));
    for page in [&mut csv, &mut lines] {
        page["source"] = "".into();
    }
    let pairs = place.text("pairs.csv").lines().count() - 1;
    assert!(pairs > 1000 && csv["total"] == pairs && csv["pairs"]["value"].as_array().unwrap().len() == pairs);
    let distances: Vec<f64> = csv["pairs"]["value"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    assert!(distances.is_sorted() && distances.last().unwrap() <= &1.6);
    assert_eq!(csv["curve"]["pairs"].as_array().unwrap().last().unwrap(), pairs);
    let members = csv["clusters"].as_array().unwrap().iter().map(|cluster| cluster.as_array().unwrap().len());
    assert_eq!(csv["clustered_rows"], members.sum::<usize>());
    assert!(csv["names"][0][1].as_str().unwrap().starts_with("name </script><b>"));
    // Another run may write the pairs in another order. These figures must be equal nevertheless.
    for key in ["total", "curve", "sizes", "clusters_total", "clustered_rows"] {
        assert_eq!(csv[key], lines[key], "{key}");
    }
}

/// Checks that rows without ids are named by their number, which counts the rows of all files.
#[test]
fn report_reads_names_from_one_file_or_many() {
    let place = joined();
    let names = place.text("names.csv");
    let (head, lines) = names.split_once('\n').unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    std::fs::create_dir_all(place.path("names/more")).unwrap();
    for (file, lines) in [("names/part-0.csv", &lines[..1000]), ("names/more/part-1.csv", &lines[1000..])] {
        place.write(file, format!("{head}\n{}\n", lines.join("\n")).as_bytes());
    }
    place.write("names/README.md", b"what they are");
    place.write("names/_SUCCESS.csv", b"");
    (0..3).for_each(|k| place.write(&format!("by-row-{k}.csv"), format!("name\n{}", "text\n".repeat(1000)).as_bytes()));
    let named = |page: &str, names: &str| {
        place.done(&format!("report pairs.csv --names {names} -o {page}"));
        data(&place, page)["names"].clone()
    };
    let one = named("one.html", "names.csv");
    assert!(one == named("folder.html", "names") && one == named("glob.html", "names/**/part-*.csv"));
    let by_row = named("rows.html", "by-row-*.csv");
    assert!(by_row.as_array().unwrap().iter().all(|name| name[1] == "text"), "{by_row}");
    std::fs::create_dir(place.path("empty")).unwrap();
    place.refused("report pairs.csv --names empty -o page.html", &["empty", ".jsonl"]);
    place.refused("report pairs.csv --names no*.csv -o page.html", &["no*.csv"]);
    place.refused("report pairs.csv --names names -o names/page.html", &["names", "another folder"]);
}

#[test]
fn report_refuses_files_that_are_not_results() {
    let place = joined();
    place.write("stats.txt.json", b"{\"command\": \"build\"}");
    let old = place.text("stats.json").replace("\"version\": 2", "\"version\": 1");
    place.write("old.json", old.as_bytes());
    place.write("counts.csv", b"id,count\n1,3\n");
    place.write("pairs-alone.csv", b"left_id,right_id\n1,0\n");
    place.write("damaged.parquet", b"PAR1 and then nothing PAR1");
    place.write("there.html", b"of old");
    for (line, words) in [
        ("report missing.parquet -o page.html", &["missing.parquet"][..]),
        ("report names.csv -o page.html", &["names.csv", "distance or similarity"]),
        ("report counts.csv -o page.html", &["counts.csv has counts of neighbors"]),
        ("report pairs-alone.csv -o page.html", &["pairs-alone.csv has no column distance or similarity"]),
        ("report set.fbin -o page.html", &["set.fbin", ".parquet"]),
        ("report damaged.parquet -o page.html", &["damaged.parquet", "damaged"]),
        ("report pairs.csv --stats stats.txt.json -o page.html", &["stats.txt.json", "--stats"]),
        ("report pairs.csv --stats old.json -o page.html", &["old.json", "version 1", "version 2", "join again"]),
        ("report pairs.csv --names names.csv --name-column title -o page.html", &["names.csv", "title", "id, name"]),
        ("report pairs.csv --names pairs.csv -o page.html", &["pairs.csv", "--name-column"]),
        ("report pairs.csv -o there.html", &["there.html", "--force"]),
        ("report pairs.csv -o -", &["-o writes to a file, not to standard output; name one"]),
        ("report pairs.csv -o pairs.csv --force", &["pairs.csv is an input, so -o cannot write", "another name"]),
        ("report pairs.csv -o page.html --memory 20MB", &["this report needs", "--memory"]),
    ] {
        place.refused(line, words);
    }
}

/// Checks refusals that happen before and after it is known whether the ids fit in the budget.
#[test]
fn the_first_refusal_names_a_budget_that_suffices() {
    let place = joined();
    for (result, budget) in [("pairs.parquet", "19MB"), ("pairs.csv", "19MB"), ("pairs.csv", "31MB")] {
        let line = format!("report {result} --names names.csv -o page.html --force --memory");
        let ran = place.run(&format!("{line} {budget}"));
        if ran.code == Some(2) {
            let again = place.run(&format!("{line} {}", least_budget(&ran.said)));
            assert_eq!(again.code, Some(0), "{line}: {} then {}", ran.said, again.said);
        }
    }
}

/// Checks the budget that is named if memory does not suffice to count the ids. Their number is then bounded by the
/// number of lines, not by the number of bytes.
#[test]
fn long_ids_do_not_multiply_the_budget_that_the_first_refusal_names() {
    let place = Place::new();
    let [left, right] = ["a", "b"].map(|letter| letter.repeat(600));
    let pairs = (0..6_000).map(|k| format!("{left}{k},{right}{k},0.5\n"));
    place.write(
        "pairs.csv",
        ["left_id,right_id,distance\n".into()].into_iter().chain(pairs).collect::<String>().as_bytes(),
    );
    let line = "report pairs.csv -o page.html --force --memory";
    let refused = place.run(&format!("{line} 19MB"));
    let least = least_budget(&refused.said);
    // The ids take 7 MB, and two copies of them are counted.
    assert!(least.trim_end_matches("MB").parse::<f64>().unwrap() < 60.0, "{}", refused.said);
    assert_ne!(place.run(&format!("{line} {least}")).code, Some(2), "{least}");
}

#[test]
fn an_empty_result_with_statistics_has_a_report() {
    let place = joined();
    place.done("join set.fbin --eps 0 --exact -o none.parquet --stats none.json");
    place.done("report none.parquet --stats none.json -o none.html");
    assert_eq!(data(&place, "none.html")["total"], 0);
}

#[test]
fn empty_results_of_every_format_have_a_report() {
    let place = Place::new();
    place.done("gen --rows 100 --dimensions 8 -o set.fbin");
    for format in ["csv", "jsonl", "parquet"] {
        place.done(&format!("join set.fbin --eps 0 --exact -o none.{format}"));
        place.done(&format!("report none.{format} -o {format}.html"));
        let data = data(&place, &format!("{format}.html"));
        assert!(data["total"] == 0 && data["curve"]["thresholds"].as_array().unwrap().is_empty(), "{data}");
    }
}

/// Checks that 007 and 7 are different ids, that ids after the first thousand lines may have another type, and that
/// distances may have fractions.
#[test]
fn text_ids_are_read_verbatim() {
    let place = Place::new();
    let mut pairs = String::from("left_id,right_id,distance\n007,008,0\n7,9,0\n");
    (0..1_500).for_each(|k| pairs += &format!("{k},{},1\n", k + 1));
    place.write("pairs.csv", (pairs + "abc,xyz,0.5\n").as_bytes());
    place.write("names.csv", b"id,text\n007,agent\n7,number\n");
    place.done("report pairs.csv --names names.csv -o page.html");
    let data = data(&place, "page.html");
    assert_eq!((&data["total"], &data["clusters_total"]), (&1_503.into(), &3.into()));
    let named = |id: &str, text: &str| data["names"].as_array().unwrap().contains(&serde_json::json!([id, text]));
    assert!(named("007", "agent") && named("7", "number") && named("abc", ""));
}

/// Writes a file in which 400 rows refer to the same text of 4 MB.
fn write_repeated_text(place: &Place, name: &str) {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(["a".repeat(4 << 20)]));
    let names = DictionaryArray::<Int32Type>::new(Int32Array::from(vec![0; 400]), texts);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..400));
    let table = RecordBatch::try_from_iter([("id", ids), ("name", Arc::new(names) as ArrayRef)]).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::BROTLI(BrotliLevel::default()))
        .set_dictionary_page_size_limit(1 << 30)
        .build();
    let mut writer =
        ArrowWriter::try_new(File::create(place.path(name)).unwrap(), table.schema(), Some(properties)).unwrap();
    writer.write(&table).unwrap();
    writer.close().unwrap();
}

/// Checks that names are read within the budget. If more memory were held, the exit code would be 1.
#[test]
fn report_reads_large_names_within_the_budget() {
    let place = Place::new();
    place.write("pairs.csv", b"left_id,right_id,distance\n0,1,0.5\n");
    let long = "a".repeat(30 << 20);
    write_repeated_text(&place, "repeated.parquet");
    assert!(place.read("repeated.parquet").len() < 10_000);
    place.write("long.jsonl", format!("{{\"id\": 0, \"name\": \"{long}\"}}\n").as_bytes());
    place.write("long.csv", format!("id,name\n0,\"{long}\"\n").as_bytes());
    place.done("report pairs.csv --names repeated.parquet -o page.html --memory 52MB");
    let names = data(&place, "page.html")["names"].clone();
    assert!(names.as_array().unwrap().iter().all(|name| name[1].as_str().unwrap() == "a".repeat(400)));
    for names in ["long.jsonl", "long.csv"] {
        let line = format!("report pairs.csv --names {names} -o page.html --force");
        place.refused(&format!("{line} --memory 52MB"), &[names, "give --memory"]);
        assert_eq!(place.run(&format!("{line} --memory 2GB")).code, Some(0));
    }
    place.write("stats.json", format!("[{}0]", "0,".repeat(4 << 20)).as_bytes());
    place
        .refused("report pairs.csv --stats stats.json -o page.html --force --memory 64MB", &["stats.json", "--memory"]);
}

#[test]
fn csv_records_may_span_lines_and_lack_a_final_newline() {
    let place = Place::new();
    place.write("pairs.csv", b"left_id,right_id,distance\r\n0,1,0.5\r\n\r\n1,2,0.25");
    place.write("names.csv", b"id,name\r\n0,\"two\nlines, and a \"\"quote\"\"\"\r\n1,5\" wide\r\n2,\"last\"");
    place.done("report pairs.csv --names names.csv -o page.html");
    let data = data(&place, "page.html");
    assert_eq!(data["total"], 2);
    let mut names: Vec<&str> = data["names"].as_array().unwrap().iter().map(|name| name[1].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["5\" wide", "last", "two\nlines, and a \"quote\""]);
}

#[test]
fn report_shows_small_clusters_and_omits_a_huge_one() {
    let place = Place::new();
    let mut pairs = String::from("left_id,right_id,distance\n");
    (0..100_001).for_each(|k| pairs += &format!("0,{},0.5\n", k + 1));
    place.write("pairs.csv", (pairs + "a,b,0.25\n").as_bytes());
    place.done("report pairs.csv -o page.html");
    let data = data(&place, "page.html");
    assert_eq!(data["clusters_total"], 2);
    let shown = data["clusters"].as_array().unwrap();
    assert!(shown.len() == 1 && shown[0].as_array().unwrap().len() == 2, "{shown:?}");
}

/// Creates two sets without ids, a table of names for each, and pairs of their rows. Rows of both sets are identified
/// by their numbers.
fn of_two_sets() -> Place {
    let place = Place::new();
    place.write("first.fbin", &fbin(1, &[0.0, 10.0, 20.0, 30.0]));
    place.write("second.fbin", &fbin(1, &[20.25, 30.25, 0.25, 30.5]));
    for side in ["first", "second"] {
        let names: String = (0..4).map(|row| format!("{side} {row}\n")).collect();
        place.write(&format!("{side}.csv"), format!("name\n{names}").as_bytes());
    }
    for format in ["parquet", "csv", "jsonl"] {
        place.done(&format!(
            "join first.fbin --with second.fbin --eps 0.5 --exact -o pairs.{format} --stats {format}.json"
        ));
    }
    place
}

/// Checks that row 2 of one set and row 2 of the other set are different rows, with their own texts and in different
/// clusters.
#[test]
fn report_separates_names_and_clusters_of_two_sets() {
    let place = of_two_sets();
    for format in ["parquet", "csv", "jsonl"] {
        place.done(&format!("report pairs.{format} --names first.csv --with-names second.csv -o {format}.html"));
        let page = data(&place, &format!("{format}.html"));
        let (names, pairs) = (page["names"].as_array().unwrap(), &page["pairs"]);
        let sided = |side: &str, k: usize| -> String {
            let name = pairs[side][k].as_u64().unwrap() as usize;
            assert_eq!(page["sides"][name], u64::from(side == "right"), "{page}");
            names[name][1].as_str().unwrap().to_owned()
        };
        let mut shown: Vec<_> = (0..4).map(|k| (sided("left", k), sided("right", k))).collect();
        shown.sort_unstable();
        let wanted =
            [("first 0", "second 2"), ("first 2", "second 0"), ("first 3", "second 1"), ("first 3", "second 3")];
        assert_eq!(shown, wanted.map(|(left, right)| (left.to_owned(), right.to_owned())), "{format}");
        assert_eq!((&page["clusters_total"], &page["clustered_rows"]), (&3.into(), &7.into()), "{format}");
    }
    // Pairs within one set have no sides.
    place.done("join first.fbin --eps 10 --exact -o one.parquet --stats one.json");
    place.done("report one.parquet --stats one.json --names first.csv -o one.html");
    let page = data(&place, "one.html");
    assert!(page["sides"].as_array().unwrap().is_empty() && page["clusters_total"] == 1, "{page}");
    let line = "report one.parquet --stats one.json --names first.csv --with-names second.csv -o of-one.html";
    place.refused(line, &["one set", "leave out --with-names"]);
}

#[test]
fn report_refuses_names_of_one_set_for_pairs_of_two_sets() {
    let place = of_two_sets();
    // A result is recognized as pairs of two sets by its Parquet metadata, by its statistics, or because neither side
    // has the smaller row number in all lines.
    for result in
        ["pairs.parquet", "pairs.csv --stats csv.json", "pairs.jsonl --stats jsonl.json", "pairs.csv", "pairs.jsonl"]
    {
        let line = format!("report {result} --names first.csv -o page.html");
        place.refused(&line, &["rows of two sets", "give --with-names", "the same table again"]);
    }
    // If no names are given, the rows of two sets still have separate clusters.
    place.done("report pairs.parquet -o page.html");
    assert_eq!(data(&place, "page.html")["clusters_total"], 3);
    place.refused("report pairs.csv --with-names second.csv -o other.html", &["--names"]);
    place.refused(
        "report pairs.csv --names first.csv --with-names pairs.csv -o pairs.csv --force",
        &["pairs.csv is an input"],
    );
}

/// Checks one table with the ids of both sets, and two tables with different columns.
#[test]
fn report_selects_id_and_text_columns_for_each_side() {
    let place = Place::new();
    place.write("left.jsonl", b"{\"id\": \"a\", \"v\": [0.0]}\n{\"id\": \"b\", \"v\": [9.0]}\n");
    place.write("right.jsonl", b"{\"id\": \"b\", \"v\": [0.5]}\n{\"id\": \"c\", \"v\": [9.5]}\n");
    place.write("left.csv", b"id,text\na,left a\nb,left b\n");
    place.write("right.csv", b"key,other,title\nb,no,right b\nc,no,right c\n");
    place.write("both.csv", b"id,text\na,A\nb,B\nc,C\n");
    place.done("join left.jsonl --with right.jsonl --eps 1 --exact -o pairs.parquet");
    let texts = |page: &str, options: &str| {
        place.done(&format!("report pairs.parquet {options} -o {page}"));
        let names = data(&place, page)["names"].clone();
        let mut texts: Vec<String> =
            names.as_array().unwrap().iter().map(|name| name[1].as_str().unwrap().into()).collect();
        texts.sort_unstable();
        texts
    };
    let of_right = "--with-names right.csv --with-id-column key --with-name-column title";
    assert_eq!(texts("two.html", &format!("--names left.csv {of_right}")), ["left a", "left b", "right b", "right c"]);
    assert_eq!(texts("same.html", "--names both.csv --with-names both.csv"), ["A", "B", "B", "C"]);
}

/// Opens a page in a browser, if one is installed, and returns the resulting document. The page must cause no errors.
pub(crate) fn browsed(place: &Place, page: &str) -> Option<String> {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let Some(browser) = browsers.into_iter().find(|name| is_there(name)) else {
        skip("chromium", "no browser is installed");
        return None;
    };
    let page = format!("file://{}", place.path(page).display());
    let profile = format!("--user-data-dir={}", place.path("profile").display());
    let options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"];
    let browsed = Command::new(browser).args(options).args(["--virtual-time-budget=5000", &profile, &page]).output();
    let browsed = browsed.unwrap();
    let (dom, said) = (String::from_utf8_lossy(&browsed.stdout), String::from_utf8_lossy(&browsed.stderr));
    assert!(!said.contains("CONSOLE"), "{said}");
    Some(dom.into_owned())
}

#[test]
fn a_browser_renders_the_report_without_errors() {
    let place = joined();
    place.done("report pairs.parquet --stats stats.json --names names.csv -o page.html");
    let Some(dom) = browsed(&place, "page.html") else { return };
    let drawn = dom.matches("class=\"row\"").count();
    assert!((5..100).contains(&drawn), "{drawn} rows in the document");
    assert_eq!(dom.matches("<canvas").count(), 3, "a chart of thresholds, of sizes, of memory");
    for words in ["Recall", "promise kept", "budget kept", "name &lt;/script&gt;&lt;b&gt;", "closest first"] {
        assert!(dom.contains(words), "{words}");
    }
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}
