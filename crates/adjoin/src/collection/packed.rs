//! Encoding of the columns of a row, used in the log and in memory. A null is encoded as the byte 0, any other value
//! as the byte 1 and the value. A text is its length (u32) and its bytes. i64, f64 and microseconds take 8 bytes, days
//! take 4, and a boolean is 1 or 0.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Float64Array, Int64Array, RecordBatch, RecordBatchOptions,
    TimestampMicrosecondArray,
};

use super::attributes::{Attribute, AttributeKind, schema};
use crate::source::TextIds;

/// Packed columns of consecutive rows. Empty if the collection has no columns.
pub(super) type PackedRows = TextIds;

/// Splits the next value off `rest`. Returns its bytes, `Some(None)` if it is null, or `None` if no valid value begins
/// there.
fn next_value<'a>(kind: AttributeKind, rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let [is_there] = *rest.split_off(..1)?.as_array()?;
    let len = match (is_there, kind) {
        (0, _) => return Some(None),
        (1, AttributeKind::Text) => u32::from_le_bytes(*rest.split_off(..size_of::<u32>())?.as_array()?) as usize,
        (1, AttributeKind::Bool) => 1,
        (1, AttributeKind::Date) => size_of::<i32>(),
        (1, AttributeKind::Int64 | AttributeKind::Float64 | AttributeKind::Timestamp) => size_of::<i64>(),
        _ => return None,
    };
    let value = rest.split_off(..len)?;
    let makes_sense = match kind {
        AttributeKind::Text => std::str::from_utf8(value).is_ok(),
        AttributeKind::Bool => value[0] <= 1,
        _ => true,
    };
    makes_sense.then_some(Some(value))
}

/// Splits the next row off `rest`. Returns its bytes, or `None` if no valid row begins there.
pub(super) fn next_row<'a>(attributes: &[Attribute], rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let all = *rest;
    attributes.iter().try_for_each(|attribute| next_value(attribute.kind, rest).map(drop))?;
    Some(&all[..all.len() - rest.len()])
}

/// Returns the bytes of each value of a row that [`pack`] or [`next_row`] returned.
fn values<'a>(attributes: &'a [Attribute], mut row: &'a [u8]) -> impl Iterator<Item = Option<&'a [u8]>> {
    attributes.iter().map(move |attribute| next_value(attribute.kind, &mut row).expect("bytes that were checked"))
}

fn array_of<const N: usize>(value: &[u8]) -> [u8; N] {
    value.try_into().expect("the slice has the bytes of one value")
}

/// Appends the packed columns of a row to `out`. The table must have the columns of the collection.
pub(super) fn pack(table: &RecordBatch, row: usize, out: &mut Vec<u8>) {
    for column in table.columns() {
        out.push(column.is_valid(row).into());
        if column.is_null(row) {
            continue;
        }
        if let Some(texts) = column.as_string_opt::<i32>() {
            let text = texts.value(row);
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.as_bytes());
        } else if let Some(integers) = column.as_primitive_opt::<Int64Type>() {
            out.extend(integers.value(row).to_le_bytes());
        } else if let Some(floats) = column.as_primitive_opt::<Float64Type>() {
            out.extend(floats.value(row).to_le_bytes());
        } else if let Some(truths) = column.as_boolean_opt() {
            out.push(truths.value(row).into());
        } else if let Some(days) = column.as_primitive_opt::<Date32Type>() {
            out.extend(days.value(row).to_le_bytes());
        } else {
            out.extend(column.as_primitive::<TimestampMicrosecondType>().value(row).to_le_bytes());
        }
    }
}

/// Unpacks rows into a table of the columns with the indexes `places`.
pub(super) fn table_of<'a>(
    attributes: &[Attribute],
    places: &[usize],
    rows: impl Iterator<Item = &'a [u8]> + Clone,
) -> RecordBatch {
    let wanted: Vec<Attribute> = places.iter().map(|&place| attributes[place].clone()).collect();
    let column = |&place: &usize| {
        let kind = attributes[place].kind;
        // Values have no offsets, so the values before the column are parsed too.
        let values = rows.clone().map(move |row| values(attributes, row).nth(place).flatten());
        column_of(kind, values)
    };
    // The caller may need no column, if a filter names none. Then the number of rows cannot be inferred from the
    // columns.
    let options = RecordBatchOptions::new().with_row_count(Some(rows.clone().count()));
    let columns = places.iter().map(column).collect();
    RecordBatch::try_new_with_options(schema(&wanted), columns, &options).expect("columns are made for the schema")
}

fn column_of<'a>(kind: AttributeKind, values: impl Iterator<Item = Option<&'a [u8]>>) -> ArrayRef {
    let long = |value: &[u8]| i64::from_le_bytes(array_of(value));
    match kind {
        AttributeKind::Text => {
            let mut texts = StringBuilder::new();
            // The row was checked when it was parsed or packed, so its texts are valid and the lossy conversion
            // changes nothing.
            values.for_each(|value| texts.append_option(value.map(String::from_utf8_lossy)));
            Arc::new(texts.finish())
        }
        AttributeKind::Int64 => Arc::new(values.map(|value| value.map(long)).collect::<Int64Array>()),
        AttributeKind::Float64 => {
            let float = |value: &[u8]| f64::from_le_bytes(array_of(value));
            Arc::new(values.map(|value| value.map(float)).collect::<Float64Array>())
        }
        AttributeKind::Bool => Arc::new(values.map(|value| value.map(|value| value[0] == 1)).collect::<BooleanArray>()),
        AttributeKind::Date => {
            let days = |value: &[u8]| i32::from_le_bytes(array_of(value));
            Arc::new(values.map(|value| value.map(days)).collect::<Date32Array>())
        }
        AttributeKind::Timestamp => {
            Arc::new(values.map(|value| value.map(long)).collect::<TimestampMicrosecondArray>())
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns one column of each type.
    pub(crate) fn all_kinds() -> Vec<Attribute> {
        let all = ["t:text", "i:int64", "f:float64", "b:bool", "d:date", "u:timestamp"];
        all.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn table() -> RecordBatch {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(arrow_array::StringArray::from(vec![Some("ä, long enough"), None, Some("")])),
            Arc::new(Int64Array::from(vec![Some(i64::MIN), None, Some(-1)])),
            Arc::new(Float64Array::from(vec![Some(-0.0), None, Some(f64::INFINITY)])),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
            Arc::new(Date32Array::from(vec![Some(i32::MAX), None, Some(-1)])),
            Arc::new(TimestampMicrosecondArray::from(vec![Some(1), None, Some(i64::MAX)])),
        ];
        RecordBatch::try_new(schema(&all_kinds()), columns).unwrap()
    }

    pub(crate) fn packed() -> PackedRows {
        let (table, mut all) = (table(), PackedRows::default());
        for row in 0..table.num_rows() {
            let mut bytes = Vec::new();
            pack(&table, row, &mut bytes);
            all.push(&bytes);
        }
        all
    }

    #[test]
    fn packed_rows_round_trip_and_other_bytes_are_refused() {
        let (kinds, table, packed) = (all_kinds(), table(), packed());
        let rows = (0..packed.len()).map(|row| packed.get(row));
        for places in [&[0, 1, 2, 3, 4, 5][..], &[1, 4], &[]] {
            assert_eq!(table_of(&kinds, places, rows.clone()), table.project(places).unwrap());
        }
        for row in rows {
            let mut rest = row;
            assert_eq!((next_row(&kinds, &mut rest), rest), (Some(row), &[][..]));
            assert!((0..row.len()).all(|len| next_row(&kinds, &mut &row[..len]).is_none()));
            for (at, flip) in (0..row.len()).flat_map(|at| [1, 2, 0x80, 0xff].map(|flip| (at, flip))) {
                let mut other = row.to_vec();
                other[at] ^= flip;
                let mut rest = &other[..];
                if let Some(read) = next_row(&kinds, &mut rest) {
                    table_of(&kinds, &[0, 2, 3], std::iter::once(read));
                }
            }
        }
    }
}
