//! Columns of new rows, converted from the types of their source to the types of the collection. Converts only without
//! loss: a value that the conversion would change is refused.

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, new_null_array};
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_ord::cmp::not_distinct;
use arrow_schema::DataType;

use super::attributes::{Attribute, AttributeKind, names, schema};
use super::packed::{PackedRows, pack};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Message, message};
use crate::base::options::format_bytes;
use crate::source::{Attributes, NumberedTables, VectorSource};

/// Most bytes of the columns of one row. Rows are processed several at a time, so this bounds the memory for a group.
const ROW_BYTES_MAX: usize = 1 << 20;
/// Most characters of a value in a message.
const SHOWN_MAX: usize = 60;

/// Columns of a source, restricted to those that the collection has.
pub(super) struct Arriving<'a> {
    source: &'a dyn VectorSource,
    attributes: &'a [Attribute],
    columns: Option<Attributes<'a>>,
}

impl<'a> Arriving<'a> {
    /// Selects the columns of `source` that match `attributes`. `collection` is the name of the collection, for
    /// messages.
    ///
    /// # Errors
    /// If the source lacks one of the columns, or has it with an incompatible type.
    pub(super) fn of(
        context: &Context,
        source: &'a dyn VectorSource,
        attributes: &'a [Attribute],
        collection: &str,
    ) -> Result<Self> {
        if attributes.is_empty() {
            return Ok(Self { source, attributes, columns: None });
        }
        let whose = Message::from(format!("the columns of {collection}"));
        let columns = Attributes::of(context, source, &names(attributes), &whose)?;
        for (attribute, field) in attributes.iter().zip(columns.schema().fields()) {
            if !may_become(field.data_type(), attribute.kind) {
                let (file, Attribute { name, kind }) = (source.locate(0).0, attribute);
                return Err(Error::input(message![
                    format!("{}: column {name} is {}, but among ", file.display(), field.data_type()),
                    whose.clone(),
                    format!(" it is {kind}; give values of that type")
                ]));
            }
        }
        Ok(Self { source, attributes, columns: Some(columns) })
    }

    /// Starts a scan of the columns, from the first row.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub(super) fn scan(&'a self, context: &'a Context) -> Result<ArrivingRows<'a>> {
        let tables = self.columns.as_ref().map(|columns| columns.tables(context)).transpose()?;
        Ok(ArrivingRows { of: self, tables, packed: PackedRows::default(), taken: 0 })
    }
}

/// Refuses a source that lacks one of the columns of a collection, or has it with an incompatible type.
pub(super) fn check_columns(
    context: &Context,
    source: &dyn VectorSource,
    attributes: &[Attribute],
    collection: &str,
) -> Result<()> {
    Arriving::of(context, source, attributes, collection).map(drop)
}

/// Scan of the columns of a source, row by row.
pub(super) struct ArrivingRows<'a> {
    of: &'a Arriving<'a>,
    /// `None` if the collection has no columns.
    tables: Option<NumberedTables<'a>>,
    /// Packed rows of the table that was read last.
    packed: PackedRows,
    /// Number of rows of `packed` that were already returned.
    taken: usize,
}

impl ArrivingRows<'_> {
    /// Appends the columns of the next `rows` rows to `out`.
    ///
    /// # Errors
    /// If the source cannot be read or has changed, a value cannot be converted, or a row is too large.
    pub(super) fn take(&mut self, rows: usize, out: &mut PackedRows) -> Result<()> {
        let Some(tables) = &mut self.tables else { return Ok(()) };
        for _ in 0..rows {
            while self.taken == self.packed.len() {
                let Some(table) = tables.next() else {
                    let at = self.of.source.locate(0).0;
                    let said = "it has changed since it was opened; run again when nothing writes to it";
                    return Err(Error::input(format!("{}: {said}", at.display())));
                };
                let (first, table) = table?;
                (self.packed, self.taken) = (self.of.packed(first, &table)?, 0);
            }
            out.push(self.packed.get(self.taken));
            self.taken += 1;
        }
        Ok(())
    }
}

impl Arriving<'_> {
    /// Packs the rows of a table, whose first row has number `first`.
    fn packed(&self, first: u64, table: &RecordBatch) -> Result<PackedRows> {
        let columns = table.columns().iter().zip(self.attributes);
        let columns = columns.map(|(column, attribute)| {
            converted(column, attribute.kind).map_err(|(k, why)| {
                let (file, row) = self.source.locate(first + k as u64);
                Error::input(format!("{}: column {} of row {row} is {why}", file.display(), attribute.name))
            })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let table = RecordBatch::try_new(schema(self.attributes), columns).expect("columns of these types");
        let (mut packed, mut bytes) = (PackedRows::default(), Vec::new());
        for k in 0..table.num_rows() {
            bytes.clear();
            pack(&table, k, &mut bytes);
            if bytes.len() > ROW_BYTES_MAX {
                let (file, row) = self.source.locate(first + k as u64);
                let (held, most) = (format_bytes(bytes.len() as u64), format_bytes(ROW_BYTES_MAX as u64));
                let why = format!(
                    "the columns of row {row} take {held}, more than the {most} allowed; shorten its \
                                   texts"
                );
                return Err(Error::input(format!("{}: {why}", file.display())));
            }
            packed.push(&bytes);
        }
        Ok(packed)
    }
}

/// Returns whether a column of type `from` may hold values that convert to `kind` without loss.
fn may_become(from: &DataType, kind: AttributeKind) -> bool {
    let is_time = matches!(from, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..));
    match kind {
        _ if *from == DataType::Null => true,
        AttributeKind::Text => from.is_string(),
        AttributeKind::Int64 | AttributeKind::Float64 => from.is_numeric(),
        AttributeKind::Bool => *from == DataType::Boolean,
        AttributeKind::Date | AttributeKind::Timestamp => is_time || from.is_string(),
    }
}

/// Converts a column to `kind`. The error holds the index of the first value that cannot be converted, and the reason.
fn converted(column: &ArrayRef, kind: AttributeKind) -> std::result::Result<ArrayRef, (usize, String)> {
    let to = kind.data_type();
    if *column.data_type() == to {
        return Ok(column.clone());
    }
    // If all values of a column are null, its source may have no type for it.
    if *column.data_type() == DataType::Null {
        return Ok(new_null_array(&to, column.len()));
    }
    let refused = |k: usize| {
        let shown = array_value_to_string(column, k).unwrap_or_default();
        let cut: String = shown.chars().take(SHOWN_MAX).collect();
        (k, format!("{cut:?}, which is not a valid {kind}; correct it, or leave it out"))
    };
    let cast = |column: &ArrayRef, to: &DataType| {
        // With `safe`, a value that cannot be cast becomes null, so its row can be reported. A strict cast fails
        // without naming the row.
        let lenient = CastOptions { safe: true, ..CastOptions::default() };
        cast_with_options(column, to, &lenient).map_err(|_| refused(0))
    };
    // Times with a zone are stored in UTC.
    let from = match column.data_type() {
        DataType::Timestamp(unit, Some(_)) => cast(column, &DataType::Timestamp(*unit, None))?,
        _ => column.clone(),
    };
    let found = cast(&from, &to)?;
    if let Some(k) = (0..found.len()).find(|&k| found.is_null(k) && from.is_valid(k)) {
        return Err(refused(k));
    }
    // Several texts can denote one time, so a text is checked as a time below. Any other value must equal the original
    // after it is converted back.
    if from.data_type().is_string() {
        let is_exact = |k: usize| found.is_null(k) || is_exact_time(&text_of(&from, k), kind);
        return (0..found.len()).find(|&k| !is_exact(k)).map_or(Ok(found.clone()), |k| Err(refused(k)));
    }
    let back = cast(&found, from.data_type())?;
    let same: BooleanArray = not_distinct(&back, &from).map_err(|_| refused(0))?;
    if let Some(k) = (0..same.len()).find(|&k| !same.value(k)) {
        return Err(refused(k));
    }
    Ok(found)
}

fn text_of(texts: &ArrayRef, k: usize) -> String {
    array_value_to_string(texts, k).unwrap_or_default()
}

/// Returns whether parsing `text` as `kind` lost nothing. When Arrow parses a date, it drops the time of day. When it
/// parses a time, it drops fractions of a microsecond.
fn is_exact_time(text: &str, kind: AttributeKind) -> bool {
    let fraction = text.split_once(['.', ',']).map_or("", |(_, rest)| rest);
    let digits = fraction.split(|character: char| !character.is_ascii_digit()).next().unwrap_or_default();
    match kind {
        AttributeKind::Date => {
            // A date consists of the first 10 characters. A time of day after it is lost unless it is midnight.
            let time = text.trim_start().get(10..).unwrap_or_default();
            let zone = time.rfind(['Z', 'z', '+', '-']).unwrap_or(time.len());
            !time.bytes().take(zone).any(|byte| (b'1'..=b'9').contains(&byte))
        }
        // Microseconds are six digits of the fraction. Further digits are lost unless they are zero.
        AttributeKind::Timestamp => digits.bytes().skip(6).all(|digit| digit == b'0'),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int8Type;
    use arrow_array::{
        Date64Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int16Array, Int64Array, NullArray,
        StringArray, TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
    };

    use super::*;

    #[test]
    fn values_are_converted_without_loss_or_refused() {
        let of = |column: ArrayRef, kind| (converted(&column, kind).map(|found| found.len()), column);
        let utc = |array: TimestampNanosecondArray| Arc::new(array.with_timezone("+02:00")) as ArrayRef;
        let kinds = [
            AttributeKind::Int64,
            AttributeKind::Float64,
            AttributeKind::Date,
            AttributeKind::Timestamp,
            AttributeKind::Text,
        ];
        let [int, float, date, time, text] = kinds;
        let fine: Vec<(ArrayRef, AttributeKind)> = vec![
            (Arc::new(Int16Array::from(vec![Some(-3), None])), int),
            (Arc::new(Float64Array::from(vec![Some(2020.0), None])), int),
            (Arc::new(UInt64Array::from(vec![i64::MAX as u64, 0])), int),
            (Arc::new(Float32Array::from(vec![0.1, f32::INFINITY])), float),
            (Arc::new(Int64Array::from(vec![1 << 53, -1])), float),
            (Arc::new(Decimal128Array::from(vec![25, 50]).with_precision_and_scale(4, 2).unwrap()), float),
            (Arc::new(StringArray::from(vec![Some("2020-02-29"), None])), date),
            (Arc::new(Date64Array::from(vec![86_400_000, 0])), date),
            (Arc::new(TimestampSecondArray::from(vec![86_400, 0])), date),
            (Arc::new(StringArray::from(vec!["2020-02-29T01:02:03.000004Z", "2020-02-29 01:02:03"])), time),
            (Arc::new(StringArray::from(vec!["2020-02-29T01:02:03.000004000+02:00", "2020-02-29"])), time),
            (Arc::new(StringArray::from(vec!["2020-02-29T00:00:00Z", "2020-02-29 00:00:00.0"])), date),
            (Arc::new(TimestampNanosecondArray::from(vec![1_000, -5_000])), time),
            (utc(TimestampNanosecondArray::from(vec![1_000, -5_000])), time),
            (Arc::new(NullArray::new(2)), text),
            (Arc::new(NullArray::new(2)), date),
        ];
        for (column, kind) in fine {
            let (found, column) = of(column, kind);
            assert!(may_become(column.data_type(), kind), "{} as {kind}", column.data_type());
            assert_eq!(found, Ok(2), "{column:?} as {kind}");
        }
        let wrong: Vec<(ArrayRef, AttributeKind)> = vec![
            (Arc::new(Float64Array::from(vec![1.0, 2020.5])), int),
            (Arc::new(Float64Array::from(vec![1.0, f64::NAN])), int),
            (Arc::new(UInt64Array::from(vec![1, u64::MAX])), int),
            (Arc::new(Int64Array::from(vec![1, (1 << 53) + 1])), float),
            (Arc::new(StringArray::from(vec!["2020-02-28", "2021-02-29"])), date),
            (Arc::new(TimestampSecondArray::from(vec![0, 1])), date),
            (Arc::new(TimestampNanosecondArray::from(vec![0, 1])), time),
            (Arc::new(StringArray::from(vec!["2020-02-28", "noon"])), time),
            (Arc::new(StringArray::from(vec!["2020-02-28", "2020-02-29T01:02:03.0000045Z"])), time),
            (Arc::new(StringArray::from(vec!["2020-02-28", "2020-02-29T01:02:03"])), date),
            (Arc::new(Float64Array::from(vec![1.0, -2.9])), int),
            (Arc::new(Float64Array::from(vec![1.0, f64::INFINITY])), int),
            (Arc::new(Float64Array::from(vec![1.0, 9_223_372_036_854_775_808.0])), int),
        ];
        for (column, kind) in wrong {
            let (found, column) = of(column, kind);
            assert!(may_become(column.data_type(), kind));
            let (k, why) = found.expect_err(&format!("{column:?} as {kind}"));
            assert!(k == 1 && why.contains(&format!("which is not a valid {kind}")), "{why}");
        }
        let never: [(DataType, AttributeKind); 4] = [
            (DataType::Utf8, int),
            (DataType::Int64, text),
            (DataType::Int64, time),
            (DictionaryArray::<Int8Type>::from_iter(["a"]).data_type().clone(), AttributeKind::Bool),
        ];
        never.iter().for_each(|(from, kind)| assert!(!may_become(from, *kind), "{from} as {kind}"));
    }
}
