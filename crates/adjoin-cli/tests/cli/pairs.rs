//! Reads results of all formats into one form.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::place::Place;

/// Left id, right id and bits of the value of each pair, in ascending order.
pub(crate) type Pairs = Vec<(String, String, u32)>;

/// Reads a result. Returns the names of its columns, and its pairs.
pub(crate) fn pairs_of(place: &Place, name: &str) -> (Vec<String>, Pairs) {
    match name.rsplit_once('.').unwrap().1 {
        "parquet" => of_parquet(place, name),
        "csv" => of_csv(&place.text(name)),
        _ => of_json_lines(&place.text(name)),
    }
}

fn sorted(mut pairs: Pairs) -> Pairs {
    pairs.sort();
    assert!(pairs.windows(2).all(|two| (&two[0].0, &two[0].1) != (&two[1].0, &two[1].1)), "a pair came twice");
    pairs
}

fn of_parquet(place: &Place, name: &str) -> (Vec<String>, Pairs) {
    let file = std::fs::File::open(place.path(name)).unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let columns = builder.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut pairs = Vec::new();
    for batch in builder.build().unwrap() {
        let batch = batch.unwrap();
        let values = batch.column(2).as_primitive::<Float32Type>();
        let rows = ids(&batch, 0).into_iter().zip(ids(&batch, 1)).zip(values.values());
        pairs.extend(rows.map(|((left, right), value)| (left, right, value.to_bits())));
    }
    (columns, sorted(pairs))
}

fn ids(batch: &RecordBatch, column: usize) -> Vec<String> {
    let column = batch.column(column);
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().iter().map(|id| id.unwrap().to_owned()).collect(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().values().iter().map(u64::to_string).collect(),
        other => panic!("ids of type {other}"),
    }
}

/// Parses the pairs in a CSV text. Ids must not contain line breaks.
pub(crate) fn of_csv(text: &str) -> (Vec<String>, Pairs) {
    let mut lines = text.lines().map(fields);
    let columns = lines.next().unwrap();
    let pairs = lines.map(|fields| {
        let [left, right, value]: [String; 3] = fields.try_into().unwrap();
        (left, right, value.parse::<f32>().unwrap().to_bits())
    });
    (columns, sorted(pairs.collect()))
}

/// Splits a CSV line into fields. Within quotes, a comma is text, and two quotes stand for one.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => fields.last_mut().unwrap().push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().unwrap().push(character),
        }
    }
    fields
}

fn of_json_lines(text: &str) -> (Vec<String>, Pairs) {
    let lines: Vec<serde_json::Map<String, serde_json::Value>> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut columns: Vec<String> = lines.first().map(|line| line.keys().cloned().collect()).unwrap_or_default();
    columns.sort_by_key(|column| ["left_id", "right_id"].iter().position(|name| name == column).unwrap_or(2));
    let id = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs = lines.iter().map(|line| {
        let value = line[&columns[2]].as_f64().unwrap() as f32;
        (id(&line["left_id"]), id(&line["right_id"]), value.to_bits())
    });
    let pairs = pairs.collect();
    (columns, sorted(pairs))
}
