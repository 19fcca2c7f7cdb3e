//! `adjoin search --columns`. Hits must carry the columns of their rows, equal to a lookup by hand.

use std::fs::File;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Date64Array, Decimal128Array, FixedSizeListArray, Float32Array,
    Float64Array, Int8Array, Int64Array, NullArray, RecordBatch, StringArray, Time32SecondArray, Time64NanosecondArray,
    TimestampMicrosecondArray, TimestampNanosecondArray, UInt16Array, UInt64Array,
};
use arrow_select::concat::concat_batches;
use arrow_select::take::take;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use crate::inputs::{fbin, write_columns};
use crate::options::least_budget;
use crate::place::Place;

pub(crate) const ROWS: usize = 600;
/// Columns of collections, with their types.
const OF_COLLECTIONS: &str =
    "text:text,whole:int64,real:float64,truth:bool,day:date,moment:timestamp,distance:text,rank:int64";

/// Returns a value for each row. Every third value is null.
fn some<T>(value: impl Fn(u64) -> T) -> impl Iterator<Item = Option<T>> {
    // Multiplying by a prime gives the values another order than the rows.
    (0..ROWS as u64).map(move |row| (row % 3 != 1).then(|| value(row * 7_919 % 1_000)))
}

/// Returns columns of types that all kinds of folders can keep. Some have the name of a column of hits.
pub(crate) fn common() -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("text", Arc::new(some(|k| format!("text {k} é\"\n,").repeat(k as usize % 9)).collect::<StringArray>()) as _),
        ("whole", Arc::new(some(|k| k as i64 - 500).collect::<Int64Array>())),
        ("real", Arc::new(some(|k| k as f64 / 7.0).collect::<Float64Array>())),
        ("truth", Arc::new(some(|k| k % 2 == 0).collect::<BooleanArray>())),
        ("day", Arc::new(some(|k| k as i32 * 20).collect::<Date32Array>())),
        ("moment", Arc::new(some(|k| k as i64 * 1_000_003).collect::<TimestampMicrosecondArray>())),
        ("distance", Arc::new(some(|k| format!("d{k}")).collect::<StringArray>())),
        ("rank", Arc::new(some(|k| k as i64).collect::<Int64Array>())),
    ]
}

/// Returns columns of types that only stores and indexes can keep.
pub(crate) fn further() -> Vec<(&'static str, ArrayRef)> {
    let zoned: TimestampNanosecondArray = some(|k| k as i64 * 999).collect();
    vec![
        ("i8", Arc::new(some(|k| k as i8).collect::<Int8Array>()) as _),
        ("u16", Arc::new(some(|k| k as u16).collect::<UInt16Array>())),
        ("u64", Arc::new(some(|k| u64::MAX - k).collect::<UInt64Array>())),
        ("f32", Arc::new(some(|k| k as f32 / 3.0).collect::<Float32Array>())),
        ("decimal", Arc::new(some(i128::from).collect::<Decimal128Array>())),
        ("date64", Arc::new(some(|k| k as i64 * 86_400_000).collect::<Date64Array>())),
        ("time32", Arc::new(some(|k| k as i32).collect::<Time32SecondArray>())),
        ("time64", Arc::new(some(|k| k as i64).collect::<Time64NanosecondArray>())),
        ("zoned", Arc::new(zoned.with_timezone("UTC"))),
        ("nothing", Arc::new(NullArray::new(ROWS))),
    ]
}

/// Returns the vectors of the rows. Some of them are equal.
fn vectors() -> ArrayRef {
    let row = |row: u64| Some([row % 59, row % 31, row % 7].map(|x| Some(x as f32)));
    Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>((0..ROWS as u64).map(row), 3))
}

pub(crate) fn write_rows(place: &Place, name: &str, columns: &[(&str, ArrayRef)], rows: std::ops::Range<usize>) {
    let ids: ArrayRef = Arc::new((0..ROWS as i64).map(|row| row * 3).collect::<Int64Array>());
    let all = [vec![("id", ids), ("v", vectors())], columns.to_vec()].concat();
    let all: Vec<_> = all.into_iter().map(|(name, column)| (name, column.slice(rows.start, rows.len()))).collect();
    write_columns(&place.path(name), &all);
}

pub(crate) fn parquet(place: &Place, name: &str) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(place.path(name)).unwrap()).unwrap();
    let (schema, batches) = (reader.schema().clone(), reader.build().unwrap());
    concat_batches(&schema, &batches.map(|batch| batch.unwrap()).collect::<Vec<_>>()).unwrap()
}

/// Checks that hits have the columns `names` with the values of their rows.
fn check(place: &Place, hits: &str, columns: &[(&str, ArrayRef)], names: &[&str], what: &str) {
    let hits = parquet(place, hits);
    let fields: Vec<String> = hits.schema().fields().iter().map(|field| field.name().clone()).collect();
    let renamed = |name: &&str| match *name {
        "distance" | "rank" => format!("columns.{name}"),
        name => name.to_owned(),
    };
    let wanted = ["query", "rank", "id", "distance"].map(str::to_owned).into_iter().chain(names.iter().map(renamed));
    assert_eq!(fields, wanted.collect::<Vec<_>>(), "{what}");
    let rows: UInt64Array =
        hits.column(2).as_primitive::<Int64Type>().values().iter().map(|id| Some(*id as u64 / 3)).collect();
    for (k, name) in names.iter().enumerate() {
        let (_, column) = columns.iter().find(|(other, _)| other == name).unwrap();
        let by_hand = take(column, &rows, None).unwrap();
        assert_eq!(hits.column(4 + k), &by_hand, "{what}: {name}");
    }
    assert!(rows.len() > 100, "{what}: a result that says something");
}

#[test]
fn hits_of_any_folder_carry_columns_of_every_type() {
    let place = Place::new();
    let all = [common(), further()].concat();
    write_rows(&place, "set.parquet", &all, 0..ROWS);
    let elements: Vec<f32> = (0..60).map(|k| (k * 13 % 50) as f32).collect();
    place.write("queries.fbin", &fbin(3, &elements));
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let list = names.join(",");
    place.done(&format!("build set.parquet --columns {list} -o set.store --quiet"));
    place.done(&format!("index build set.parquet --columns {list} -o set.index --quiet"));
    let reversed: Vec<&str> = names.iter().rev().copied().collect();
    for folder in ["set.store", "set.index"] {
        for names in [&names[..], &reversed, &["text"], &["rank", "nothing"]] {
            let search =
                format!("search {folder} --queries queries.fbin -k 9 --quiet --force --columns {}", names.join(","));
            place.done(&format!("{search} -o hits.parquet"));
            check(&place, "hits.parquet", &all, names, folder);
        }
        let within = format!("search {folder} --queries queries.fbin --radius 30 --where whole>0 --columns text,whole");
        place.done(&format!("{within} --quiet --force -o hits.parquet"));
        check(&place, "hits.parquet", &all, &["text", "whole"], folder);
        let itself = "search set.store --queries set.store -k 3 --columns real --quiet --force -o hits.parquet";
        place.done(itself);
        check(&place, "hits.parquet", &all, &["real"], "a store with itself");
        for name in ["hits.csv", "hits.jsonl"] {
            let search = format!("search {folder} --queries queries.fbin -k 9 --columns {list} --quiet --force");
            place.done(&format!("{search} -o {name}"));
        }
        let lines = place.text("hits.jsonl");
        assert_eq!(lines.lines().count(), 20 * 9);
        for line in lines.lines() {
            let hit: Value = serde_json::from_str(line).unwrap();
            let row = hit["id"].as_u64().unwrap() / 3;
            let whole = (row % 3 != 1).then(|| (row * 7_919 % 1_000) as i64 - 500);
            assert_eq!((&hit["whole"], &hit["nothing"]), (&json!(whole), &Value::Null), "{line}");
        }
    }
}

#[test]
fn hits_of_a_collection_carry_columns_of_merged_and_unmerged_rows() {
    let place = Place::new();
    let all = common();
    let list = all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
    let names: Vec<&str> = list.split(',').collect();
    write_rows(&place, "first.parquet", &all, 0..400);
    // From row 350 on, the rows get the columns of other rows. Replaced rows must not keep their old columns.
    let others: UInt64Array =
        (0..ROWS as u64).map(|row| Some(if row < 350 { row } else { ROWS as u64 - row })).collect();
    let changed: Vec<_> = all.iter().map(|(name, column)| (*name, take(column, &others, None).unwrap())).collect();
    write_rows(&place, "more.parquet", &changed, 350..ROWS);
    let elements: Vec<f32> = (0..60).map(|k| (k * 13 % 50) as f32).collect();
    place.write("queries.fbin", &fbin(3, &elements));
    place.write("gone.txt", (0..ROWS).step_by(10).map(|row| format!("{}\n", row * 3)).collect::<String>().as_bytes());
    place.done(&format!("collection create set.live --dimensions 3 --columns {OF_COLLECTIONS}"));
    let search =
        format!("search set.live --queries queries.fbin -k 9 --columns {list} --quiet --force -o hits.parquet");
    place.done("collection write set.live --insert first.parquet --quiet");
    place.done(&search);
    check(&place, "hits.parquet", &all, &names, "all rows in memory");
    place.done("collection merge set.live --quiet");
    place.done(&search);
    check(&place, "hits.parquet", &all, &names, "all rows on disk");
    place.done("collection write set.live --delete gone.txt --upsert more.parquet --quiet");
    place.done(&search);
    check(&place, "hits.parquet", &changed, &names, "rows in memory and on disk");
    place.done(&format!("{search} --where whole<=0"));
    check(&place, "hits.parquet", &changed, &names, "with a filter");
}

/// Creates a store, an index and a collection of the same rows, with a column of texts and one of numbers. Some rows
/// of the collection are not merged.
fn folders() -> Place {
    let place = Place::new();
    let columns: Vec<_> = common().into_iter().filter(|(name, _)| ["text", "whole"].contains(name)).collect();
    write_rows(&place, "set.parquet", &columns, 0..ROWS);
    write_rows(&place, "first.parquet", &columns, 0..400);
    write_rows(&place, "more.parquet", &columns, 400..ROWS);
    place.done("build set.parquet --columns text,whole -o set.store --quiet");
    place.done("index build set.parquet --columns text,whole -o set.index --quiet");
    place.done("collection create set.live --dimensions 3 --columns text:text,whole:int64");
    place.done("collection write set.live --insert first.parquet --quiet");
    place.done("collection merge set.live --quiet");
    place.done("collection write set.live --insert more.parquet --quiet");
    place
}

#[cfg(feature = "serve")]
#[test]
fn the_server_returns_columns_of_hits_and_rows_by_id() {
    let place = folders();
    let columns = common();
    let (texts, whole) = (columns[0].1.as_string::<i32>(), columns[1].1.as_primitive::<Int64Type>());
    let of_row = |id: &Value| {
        let row = id.as_u64().unwrap() as usize / 3;
        let text = texts.is_valid(row).then(|| texts.value(row));
        json!({"text": text, "whole": whole.is_valid(row).then(|| whole.value(row))})
    };
    for folder in ["set.store", "set.index", "set.live"] {
        let serving = crate::serving::Serving::start(&place, &format!("{folder} --memory 256MB"));
        let queries = json!([[0, 0, 0], [9, 8, 1], [50, 30, 6]]);
        for target in [json!({"k": 9}), json!({"k": 200}), json!({"radius": 20}), json!({"k": 3, "where": "whole > 0"})]
        {
            let mut asked = json!({"queries": queries, "columns": ["whole", "text"]});
            asked.as_object_mut().unwrap().extend(target.as_object().unwrap().clone());
            let answer = serving.post("/v1/search", &asked);
            assert_eq!(answer.status, 200, "{folder}: {answer:?}");
            let answer = answer.json();
            let hits: Vec<&Value> =
                answer["hits"].as_array().unwrap().iter().flat_map(|hits| hits.as_array().unwrap()).collect();
            assert!(hits.len() >= 9, "{folder}: {answer}");
            hits.iter().for_each(|hit| assert_eq!(hit["columns"], of_row(&hit["id"]), "{folder}"));
            asked.as_object_mut().unwrap().remove("columns");
            let without = serving.post("/v1/search", &asked).json();
            assert!(without["hits"][0][0]["columns"].is_null());
        }
        let floats: Vec<u8> = [9.0f32, 8.0, 1.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let raw =
            serving.ask("POST /v1/search?k=2&columns=text,whole\ncontent-type: application/octet-stream", &floats);
        let hit = &raw.json()["hits"][0][1];
        assert_eq!(hit["columns"], of_row(&hit["id"]), "{folder}");
        let unknown = serving.post("/v1/search", &json!({"queries": queries, "k": 1, "columns": ["url"]}));
        assert!(unknown.problem(400).contains("has no such column; it has text, whole"), "{folder}");
        let rows = serving.post("/v1/rows", &json!({"ids": [1797, 0, 3, 0]}));
        assert_eq!(rows.status, 200, "{folder}: {rows:?}");
        let row = |id: u64| {
            let vector = [id / 3 % 59, id / 3 % 31, id / 3 % 7].map(|x| x as f64);
            json!({"id": id, "vector": vector, "columns": of_row(&json!(id))})
        };
        assert_eq!(rows.json()["rows"], json!([row(1797), row(0), row(3), row(0)]), "{folder}");
        let missing = serving.post("/v1/rows", &json!({"ids": [3, 4]})).problem(400);
        assert!(missing.contains("no row has the id 4"), "{missing}");
        let some = serving.post("/v1/rows", &json!({"ids": [4, 3], "on_missing": "skip"})).json();
        assert_eq!(some["rows"], json!([row(3)]));
        for (asked, words) in [(json!({"ids": []}), "ids is empty"), (json!({"ids": [1], "on_missing": "no"}), "skip")]
        {
            assert!(serving.post("/v1/rows", &asked).problem(400).contains(words), "{asked}");
        }
        let (code, said) = serving.end();
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn columns_that_are_not_kept_are_refused_before_any_search() {
    let place = Place::new();
    write_rows(&place, "set.parquet", &common(), 0..ROWS);
    place.write("queries.fbin", &fbin(3, &[1., 2., 3.]));
    place.done("build set.parquet --columns text,whole -o set.store --quiet");
    place.done("index build set.parquet --columns text,whole -o set.index --quiet");
    place.done("collection create set.live --dimensions 3 --columns text:text,whole:int64");
    place.done("build set.parquet -o bare.store --quiet");
    place.done("collection create bare.live --dimensions 3");
    for folder in ["set.store", "set.index", "set.live"] {
        let search = format!("search {folder} --queries queries.fbin -k 3 -o hits.csv --columns");
        let keeps = format!("{folder} has no such column; it has text, whole");
        place.refused(&format!("{search} text,url"), &["--columns url", &keeps]);
        place.refused(&format!("{search} text,text"), &["--columns text is named twice"]);
    }
    place.refused(
        "search bare.store --queries queries.fbin -k 3 --columns text",
        &["bare.store has no columns, which --columns"],
    );
    place.refused(
        "search bare.live --queries queries.fbin -k 3 --columns text",
        &["bare.live", "no columns", "--columns"],
    );
    assert!(!place.path("hits.csv").exists());
}

/// Writes `set.parquet` with 20 rows. Their vectors are the numbers 0 to 19, and their ids are multiples of `step`.
/// Each row has a text of 1 MB, except some with a null. Returns the texts.
pub(crate) fn write_long_texts(place: &Place, step: i64) -> ArrayRef {
    let rows = 20;
    let text = |row: u64| {
        let mut state = row * 2 + 1;
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + (state >> 58) as u8) // 64 characters, including quotes and commas
        };
        (0..1_000_000).map(|_| letter()).collect::<String>()
    };
    let texts: ArrayRef = Arc::new((0..rows).map(|row| (row % 7 != 3).then(|| text(row))).collect::<StringArray>());
    let ids: ArrayRef = Arc::new((0..rows as i64).map(|row| row * step).collect::<Int64Array>());
    let vector = |row: u64| Some([Some(row as f32), Some(0.0)]);
    let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>((0..rows).map(vector), 2);
    write_columns(&place.path("set.parquet"), &[("id", ids), ("v", Arc::new(vectors)), ("text", texts.clone())]);
    texts
}

/// Checks hits with texts of 1 MB. The first budget that a refusal names must suffice, and hits must be equal with
/// any budget.
#[test]
fn hits_with_texts_of_a_megabyte_fit_the_least_budget() {
    let place = Place::on_disk();
    let texts = write_long_texts(&place, 1);
    place.write("queries.fbin", &fbin(2, &(0..40).map(|k| (k / 2) as f32).collect::<Vec<_>>()));
    place.done("build set.parquet --columns text -o set.store --quiet");
    place.done("index build set.parquet --columns text -o set.index --quiet");
    place.done("collection create set.live --dimensions 2 --columns text:text");
    place.done("collection write set.live --insert set.parquet --quiet");
    place.done("collection create merged.live --dimensions 2 --columns text:text");
    place.done("collection write merged.live --insert set.parquet --quiet");
    place.done("collection merge merged.live --quiet");
    for folder in ["set.store", "set.index", "set.live", "merged.live"] {
        for name in ["hits.parquet", "hits.jsonl", "hits.csv"] {
            let search = format!(
                "search {folder} --queries queries.fbin -k 4 --columns text --force --stats stats.json -o {name}"
            );
            let refused = place.run(&format!("{search} --memory 20MB"));
            assert_eq!(refused.code, Some(2), "{folder}: {}", refused.said);
            let budget = least_budget(&refused.said);
            let ran = place.run(&format!("{search} --memory {budget}"));
            assert_eq!(ran.code, Some(0), "{folder} {name} in {budget}: {}", ran.said);
            let stats: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
            assert_eq!(stats["memory"]["kept"], true, "{folder} {name} in {budget}: {}", stats["memory"]);
        }
        let hits = parquet(&place, "hits.parquet");
        let found: UInt64Array =
            hits.column(2).as_primitive::<Int64Type>().values().iter().map(|id| Some(*id as u64)).collect();
        assert_eq!(found.len(), 20 * 4);
        assert!(hits.column(4) == &take(&texts, &found, None).unwrap(), "{folder}");
    }
}
