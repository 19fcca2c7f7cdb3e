//! `adjoin get`: rows of any folder by id.

use adjoin::Random;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use crate::inputs::fbin;
use crate::options::least_budget;
use crate::place::Place;

const LINES: &str = r#"{"id": "a", "v": [0, 0], "lang": "en", "year": 2019}
{"id": "b", "v": [1, 0], "lang": "de", "year": 2021}
{"id": "c", "v": [2, 0.5], "lang": "en", "year": 2022}
{"id": "d", "v": [1, 0], "lang": null, "year": 2023}
"#;

/// Builds a store, an index and a collection of the same rows. Some rows of the collection are on disk and some in
/// memory, and one is deleted.
fn built() -> Place {
    let place = Place::new();
    place.write("set.jsonl", LINES.as_bytes());
    place.done("build set.jsonl --columns lang,year -o set.store --quiet");
    place.done("index build set.jsonl --columns lang,year -o set.index --quiet");
    place.done("collection create set.live --dimensions 2 --ids text --columns lang:text,year:int64");
    place.write("first.jsonl", LINES.lines().take(3).collect::<Vec<_>>().join("\n").as_bytes());
    place.write("last.jsonl", LINES.lines().skip(3).collect::<Vec<_>>().join("\n").as_bytes());
    place.write("gone.jsonl", br#"{"id": "gone", "v": [5, 5], "lang": "en", "year": 2000}"#);
    place.done("collection write set.live --insert first.jsonl gone.jsonl --quiet");
    place.done("collection merge set.live --quiet");
    place.write("gone.txt", b"gone\n");
    place.done("collection write set.live --delete gone.txt --insert last.jsonl --quiet");
    place
}

fn rows(place: &Place, name: &str) -> Vec<Value> {
    place.text(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn rows_of_any_folder_come_in_the_order_of_the_ids() {
    let place = built();
    place.write("ids.txt", b"d\na\nc\na\n");
    let row = |id: &str, vector: [f32; 2], lang: Value, year: i64| json!({"id": id, "vector": vector, "lang": lang, "year": year});
    let a = row("a", [0., 0.], "en".into(), 2019);
    let wanted = [row("d", [1., 0.], Value::Null, 2023), a.clone(), row("c", [2., 0.5], "en".into(), 2022), a];
    for folder in ["set.store", "set.index", "set.live"] {
        let said = place.done(&format!("get {folder} --ids ids.txt -o rows.jsonl --force")).said;
        assert!(said.contains("rows.jsonl: 4 rows, "), "{said}");
        assert_eq!(rows(&place, "rows.jsonl"), wanted, "{folder}");
        place.write("some.txt", b"x\nb\ngone\n");
        place.refused(
            &format!("get {folder} --ids some.txt -o other.jsonl"),
            &["no row has the id \"x\", 2 of 3 ids are missing", "--on-missing skip"],
        );
        let said = place.done(&format!("get {folder} --ids some.txt -o some.jsonl --on-missing skip --force")).said;
        assert!(said.contains("some.jsonl: 1 row, ") && said.contains("2 ids have no row"), "{said}");
        assert_eq!(rows(&place, "some.jsonl"), [row("b", [1., 0.], "de".into(), 2021)]);
    }
}

#[test]
fn rows_without_ids_are_named_by_their_numbers() {
    let place = Place::new();
    place.write("set.fbin", &fbin(2, &[0., 0., 1., 0., 2., 0., 1., 0.]));
    place.done("build set.fbin -o set.store --quiet");
    place.done("index build set.fbin -o set.index --quiet");
    place.write("ids.txt", b"3\n0\n");
    for folder in ["set.store", "set.index"] {
        place.done(&format!("get {folder} --ids ids.txt -o rows.jsonl --quiet --force"));
        let wanted = [json!({"id": 3, "vector": [1., 0.]}), json!({"id": 0, "vector": [0., 0.]})];
        assert_eq!(rows(&place, "rows.jsonl"), wanted);
        place.write("more.txt", b"4\n");
        place.refused(&format!("get {folder} --ids more.txt -o more.jsonl"), &["no row has the number 4;"]);
        place.write("word.txt", b"a\n");
        place.refused(
            &format!("get {folder} --ids word.txt -o more.jsonl"),
            &["line 1 is \"a\", but the ids are integers"],
        );
    }
}

#[test]
fn what_cannot_be_written_is_refused_before_rows_are_read() {
    let place = built();
    place.write("ids.txt", b"a\n");
    place.refused("get set.store --ids ids.txt -o rows.csv", &["rows.csv", ".parquet or .jsonl"]);
    place.refused("get set.store --ids ids.txt -o ids.txt", &["ids.txt", ".parquet or .jsonl"]);
    place.refused(
        "get set.jsonl --ids ids.txt -o rows.parquet",
        &["set.jsonl is not a store, an index or a collection"],
    );
    place.refused("get set.store --ids none.txt -o rows.parquet", &["none.txt: the ids cannot be read"]);
    place.done("get set.store --ids ids.txt -o rows.parquet --quiet");
    place.refused("get set.store --ids ids.txt -o rows.parquet", &["rows.parquet", "--force"]);
}

/// Returns the ids and the vector elements in a Parquet file.
fn parquet(place: &Place, name: &str) -> (Vec<i64>, Vec<f32>) {
    let file = std::fs::File::open(place.path(name)).unwrap();
    let batches = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let (mut ids, mut elements) = (Vec::new(), Vec::new());
    for batch in batches {
        let batch: RecordBatch = batch.unwrap();
        ids.extend(batch.column(0).as_primitive::<Int64Type>().values());
        elements.extend(batch.column(1).as_fixed_size_list().values().as_primitive::<Float32Type>().values());
    }
    (ids, elements)
}

/// Checks that the first budget that a refusal names suffices, and that the rows are equal with any budget.
#[test]
fn rows_that_memory_does_not_hold_are_fetched_in_parts() {
    let place = Place::new();
    place.done("gen --rows 6000 --dimensions 256 --seed 1 -o set.fbin --quiet");
    place.done("collection create set.live --dimensions 256 --code-bytes 16");
    place.done("collection write set.live --insert set.fbin --quiet --memory 2GB");
    place.done("collection merge set.live --quiet --memory 2GB");
    place.done("build set.live -o set.store --quiet");
    let ids: Vec<i64> = (0..6_000).map(|k| k * 7_919 % 6_000).collect();
    let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
    place.write("ids.txt", lines.as_bytes());
    let stored = place.read("set.fbin");
    let of = |id: i64| stored[8 + id as usize * 1_024..][..1_024].as_chunks().0.iter().map(|&x| f32::from_le_bytes(x));
    let wanted: Vec<f32> = ids.iter().flat_map(|&id| of(id)).collect();
    for folder in ["set.store", "set.live"] {
        let get = format!("get {folder} --ids ids.txt -o rows.parquet --quiet --force");
        let refused = place.run(&format!("{get} --memory 19MB"));
        assert_eq!(refused.code, Some(2), "{}", refused.said);
        for budget in [least_budget(&refused.said), "1GB".into()] {
            place.done(&format!("{get} --memory {budget}"));
            assert!(parquet(&place, "rows.parquet") == (ids.clone(), wanted.clone()), "{folder} in {budget}");
        }
    }
}

/// Checks rows with long texts. The first budget that a refusal names must suffice.
#[test]
fn rows_with_long_texts_fit_the_suggested_budget() {
    let place = Place::on_disk();
    // The letters are random, so that a compressed page is not much smaller than its texts.
    let mut random = Random::new(1, "long texts");
    let mut text = || -> String { (0..1_000_000).map(|_| (b'a' + random.below(26) as u8) as char).collect() };
    let lines: String = (0..12).map(|id| format!("{}\n", json!({"id": id, "v": [id, 1], "text": text()}))).collect();
    place.write("set.jsonl", lines.as_bytes());
    place.write("ids.txt", b"11\n0\n7\n");
    place.done("build set.jsonl --columns text -o set.store --quiet");
    place.done("index build set.jsonl --columns text -o set.index --quiet");
    for folder in ["set.store", "set.index"] {
        let line = format!("get {folder} --ids ids.txt -o rows.jsonl --force --quiet");
        let refused = place.run(&format!("{line} --memory 19MB"));
        assert_eq!(refused.code, Some(2), "{}", refused.said);
        place.done(&format!("{line} --memory {}", least_budget(&refused.said)));
        let ids: Vec<Value> = rows(&place, "rows.jsonl").iter().map(|row| row["id"].clone()).collect();
        assert_eq!(ids, [11, 0, 7]);
    }
}
