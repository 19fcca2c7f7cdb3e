//! Chooses the column of ids and converts its rows to ids.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType};
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field};
use arrow_select::take::{TakeOptions, take};

use super::foreign::other_type;
use super::nested::ColumnPlace;
use super::vectors::{IdKind, Ids, TextIds};
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};

/// Name of Arrow's type for UUIDs, which are stored in 16 bytes.
pub(super) const UUID_EXTENSION: &str = "arrow.uuid";
const UUID_BYTES: i32 = 16;

/// The chosen id column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdColumn {
    path: PathBuf,
    /// Place of the column in the file.
    pub(crate) place: ColumnPlace,
    pub(super) name: String,
    pub(crate) kind: IdKind,
}

impl IdColumn {
    /// Creates the id column from the field at `place` of a file.
    ///
    /// # Errors
    /// Fails if the type of the column is not suitable for ids. It must not silently use row numbers instead, since
    /// that would change the meaning of results.
    pub(super) fn of(path: &Path, field: &Field, place: ColumnPlace) -> Result<Self> {
        let kind = kind(field).ok_or_else(|| {
            let (path, name, kind) = (path.display(), field.name(), field.data_type());
            Error::input(message![
                format!("{path}: column {name} is {kind}, but ids must be integers or text; pass "),
                Argument::IdColumn,
                " with another column, or ",
                Argument::NoIds,
                " to use row numbers"
            ])
        })?;
        Ok(Self { path: path.to_owned(), place, name: field.name().clone(), kind })
    }

    /// Converts the ids of some rows. `first_row` is the number in the file of the first of these rows.
    ///
    /// # Errors
    /// Fails if an id is null or too large, or if the column has another type than the schema states.
    pub(crate) fn convert(&self, column: &dyn Array, first_row: u64) -> Result<Ids> {
        let rows = Rows { column: self, first_row };
        match column.data_type() {
            DataType::Int64 => rows.integers::<Int64Type>(column),
            DataType::Int32 => rows.integers::<Int32Type>(column),
            DataType::Int16 => rows.integers::<Int16Type>(column),
            DataType::Int8 => rows.integers::<Int8Type>(column),
            DataType::UInt64 => rows.integers::<UInt64Type>(column),
            DataType::UInt32 => rows.integers::<UInt32Type>(column),
            DataType::UInt16 => rows.integers::<UInt16Type>(column),
            DataType::UInt8 => rows.integers::<UInt8Type>(column),
            DataType::Decimal128(_, 0) => rows.integers::<Decimal128Type>(column),
            DataType::Utf8 => rows.texts(column.as_string_opt::<i32>()),
            DataType::LargeUtf8 => rows.texts(column.as_string_opt::<i64>()),
            DataType::Utf8View => rows.texts(column.as_string_view_opt()),
            DataType::FixedSizeBinary(UUID_BYTES) => {
                let uuids = column.as_fixed_size_binary_opt();
                rows.texts(uuids.map(|uuids| uuids.iter().map(|uuid| uuid.map(uuid_text))))
            }
            DataType::Dictionary(_, _) => {
                let dictionary = column.as_any_dictionary();
                // The keys are from the file. An invalid key must not cause a read beyond the values.
                let checked = Some(TakeOptions { check_bounds: true });
                let plain = take(dictionary.values(), dictionary.keys(), checked);
                self.convert(&plain.map_err(|_| self.other_type())?, first_row)
            }
            _ => Err(self.other_type()),
        }
    }

    fn other_type(&self) -> Error {
        other_type(&self.path, &self.name)
    }
}

/// Returns the kind of the ids in a column. Returns `None` if its type is not suitable.
fn kind(field: &Field) -> Option<IdKind> {
    match field.data_type() {
        DataType::Dictionary(_, values) => plain_kind(values),
        DataType::FixedSizeBinary(UUID_BYTES) => {
            // Other columns of 16 bytes may be hashes or addresses. These have no canonical text.
            let is_uuid = field.metadata().get(EXTENSION_TYPE_NAME_KEY).is_some_and(|name| name == UUID_EXTENSION);
            is_uuid.then_some(IdKind::Utf8)
        }
        plain => plain_kind(plain),
    }
}

fn plain_kind(values: &DataType) -> Option<IdKind> {
    match values {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(IdKind::Utf8),
        // This is HUGEINT of DuckDB, which is the type of its sums.
        DataType::Decimal128(_, 0) => Some(IdKind::Int64),
        integer if integer.is_integer() => Some(IdKind::Int64),
        _ => None,
    }
}

/// Formats a UUID in its canonical form: lower-case digits in groups of 8, 4, 4, 4 and 12.
fn uuid_text(bytes: &[u8]) -> String {
    let digits = bytes.iter().fold(0u128, |digits, byte| digits << 8 | u128::from(*byte));
    let group = |shift: u32, count: u32| digits >> shift & ((1 << (4 * count)) - 1);
    let [a, b, c, d, e] = [group(96, 8), group(80, 4), group(64, 4), group(48, 4), group(0, 12)];
    format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}

/// Rows of the id column that are being converted.
struct Rows<'a> {
    column: &'a IdColumn,
    first_row: u64,
}

impl Rows<'_> {
    fn integers<T>(&self, column: &dyn Array) -> Result<Ids>
    where
        T: ArrowPrimitiveType<Native: TryInto<i64> + Display>,
    {
        let column = column.as_primitive_opt::<T>().ok_or_else(|| self.column.other_type())?;
        let mut ids = Vec::with_capacity(column.len());
        for (row, id) in (self.first_row..).zip(column) {
            let id = id.ok_or_else(|| self.null_id(row))?;
            ids.push(id.try_into().map_err(|_| self.large_id(row, id))?);
        }
        Ok(Ids::Int64(ids))
    }

    fn texts<T: AsRef<str>>(&self, column: Option<impl IntoIterator<Item = Option<T>>>) -> Result<Ids> {
        let mut ids = TextIds::default();
        for (row, id) in (self.first_row..).zip(column.ok_or_else(|| self.column.other_type())?) {
            ids.push(id.ok_or_else(|| self.null_id(row))?.as_ref().as_bytes());
        }
        Ok(Ids::Utf8(ids))
    }

    fn null_id(&self, row: u64) -> Error {
        let (path, column) = (self.column.path.display(), &self.column.name);
        Error::input(message![
            format!("{path}: row {row} has a null id in column {column}; fill it, pass "),
            Argument::IdColumn,
            " with another column, or ",
            Argument::NoIds,
            " to use row numbers"
        ])
    }

    fn large_id(&self, row: u64, id: impl Display) -> Error {
        Error::input(format!(
            "{}: row {row} has the id {id} in column {}, which does not fit into a signed 64-bit integer; write it as \
             text",
            self.column.path.display(),
            self.column.name
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use arrow_array::builder::{ListBuilder, UInt8Builder};
    use arrow_array::types::ArrowDictionaryKeyType;
    use arrow_array::{
        ArrayRef, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray, FixedSizeBinaryArray, Float64Array,
        Int8Array, Int32Array, Int64Array, LargeStringArray, PrimitiveArray, RecordBatch, StringArray, StringViewArray,
        TimestampMicrosecondArray, UInt16Array, UInt32Array, UInt64Array,
    };

    use super::*;
    use crate::source::fixtures::{Folder, TABLE_FORMATS, error_of, read_all, table, try_read_all, write_tables};
    use crate::source::{IdChoice, SourceOptions};

    const TEXTS: [&str; 3] = ["", "b", "ünï"];

    fn vectors(rows: usize) -> ArrayRef {
        let mut lists = ListBuilder::new(UInt8Builder::new());
        (0..rows).for_each(|row| lists.append_value([Some(row as u8), Some(1)]));
        Arc::new(lists.finish())
    }

    fn coded<K: ArrowDictionaryKeyType>(keys: PrimitiveArray<K>, values: ArrayRef) -> ArrayRef {
        Arc::new(DictionaryArray::<K>::new(keys, values))
    }

    /// Reads the ids from each format, with the column of vectors before or after the ids and with batches of several
    /// sizes.
    fn read_as(ids: &ArrayRef, expected: &Ids) {
        read_from(&TABLE_FORMATS, ids, expected);
    }

    fn read_from(formats: &[&str], ids: &ArrayRef, expected: &Ids) {
        let folder = Folder::new();
        let vectors = vectors(ids.len());
        for columns in [[("id", ids.clone()), ("v", vectors.clone())], [("v", vectors), ("id", ids.clone())]] {
            for name in formats {
                let whole = table(&columns);
                write_tables(&folder, name, &[whole.slice(0, 1), whole.slice(1, ids.len() - 1)]);
                let source = folder.open(&[name]).unwrap();
                assert_eq!(&read_all(source.as_ref(), 2).ids, expected, "{name} {}", ids.data_type());
                assert_eq!(&read_all(source.as_ref(), 1 << 20).ids, expected, "{name} {}", ids.data_type());
            }
        }
    }

    fn texts(texts: &[&str]) -> Ids {
        let mut ids = TextIds::default();
        texts.iter().for_each(|text| ids.push(text.as_bytes()));
        Ids::Utf8(ids)
    }

    /// Returns the errors with which all formats refuse the ids in the column `name`.
    fn refusals(name: &str, ids: &ArrayRef, choice: &IdChoice) -> Vec<String> {
        let folder = Folder::new();
        let options = SourceOptions { ids: choice.clone(), ..SourceOptions::default() };
        let refuse = |file: &&str| {
            write_tables(&folder, file, &[table(&[(name, ids.clone()), ("v", vectors(ids.len()))])]);
            let source = folder.open_with(&[file], &options);
            let message = error_of(source.and_then(|source| try_read_all(source.as_ref(), 1 << 20)));
            assert!(message.contains(&folder.path(file).display().to_string()), "{message}");
            message
        };
        TABLE_FORMATS.iter().map(refuse).collect()
    }

    #[test]
    fn integers_and_texts_of_any_width_are_ids() {
        let integers: [ArrayRef; 7] = [
            Arc::new(Int64Array::from(vec![1, 2, 3])),
            Arc::new(Int32Array::from(vec![1, 2, 3])),
            Arc::new(Int8Array::from(vec![1, 2, 3])),
            Arc::new(UInt16Array::from(vec![1, 2, 3])),
            Arc::new(UInt32Array::from(vec![1, 2, 3])),
            Arc::new(UInt64Array::from(vec![1, 2, 3])),
            Arc::new(Decimal128Array::from(vec![1, 2, 3]).with_precision_and_scale(38, 0).unwrap()),
        ];
        integers.iter().for_each(|ids| read_as(ids, &Ids::Int64(vec![1, 2, 3])));
        let strings: [ArrayRef; 3] = [
            Arc::new(StringArray::from_iter_values(TEXTS)),
            Arc::new(LargeStringArray::from_iter_values(TEXTS)),
            Arc::new(StringViewArray::from_iter_values(TEXTS)),
        ];
        strings.iter().for_each(|ids| read_as(ids, &texts(&TEXTS)));
    }

    #[test]
    fn dictionaries_of_integers_and_texts_are_ids() {
        let expected = texts(&["ünï", "", "ünï", "b"]);
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(TEXTS));
        // The Parquet writer does not support dictionaries of views.
        read_from(&TABLE_FORMATS[1..], &coded(UInt32Array::from(vec![2, 0, 2, 1]), views), &expected);
        let values: [ArrayRef; 2] =
            [Arc::new(StringArray::from_iter_values(TEXTS)), Arc::new(LargeStringArray::from_iter_values(TEXTS))];
        for values in values {
            read_as(&coded(Int8Array::from(vec![2, 0, 2, 1]), values.clone()), &expected);
            read_as(&coded(UInt32Array::from(vec![2, 0, 2, 1]), values.clone()), &expected);
            read_as(&coded(Int64Array::from(vec![2, 0, 2, 1]), values), &expected);
        }
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![70, -80]));
        read_as(&coded(Int8Array::from(vec![1, 0, 1]), numbers), &Ids::Int64(vec![-80, 70, -80]));
    }

    #[test]
    fn a_stream_may_change_its_dictionary() {
        let folder = Folder::new();
        let batch = |values: Vec<&str>, keys: Vec<i32>| -> RecordBatch {
            let vectors = vectors(keys.len());
            table(&[("id", coded(Int32Array::from(keys), Arc::new(StringArray::from(values)))), ("v", vectors)])
        };
        let batches = [batch(vec!["a", "b"], vec![0, 1]), batch(vec!["c"], vec![0]), batch(vec!["d", "a"], vec![1])];
        write_tables(&folder, "a.ipc", &batches);
        let source = folder.open(&["a.ipc"]).unwrap();
        assert_eq!(read_all(source.as_ref(), 1 << 20).ids, texts(&["a", "b", "c", "a"]));
    }

    #[test]
    fn nulls_of_a_dictionary_are_no_ids() {
        let values: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        for keys in [vec![Some(0), None], vec![Some(0), Some(1)]] {
            for message in refusals("id", &coded(Int8Array::from(keys), values.clone()), &IdChoice::IfThere) {
                assert!(message.contains("row 1 has a null id in column id; fill it"), "{message}");
            }
        }
    }

    #[test]
    fn uuids_become_text_ids() {
        let bytes = |first: u8| (first..=first + 15).collect::<Vec<u8>>();
        let rows = [bytes(0), bytes(0xf0)];
        let uuids = FixedSizeBinaryArray::try_from_iter(rows.iter()).unwrap();
        let mark = HashMap::from([(EXTENSION_TYPE_NAME_KEY.to_owned(), UUID_EXTENSION.to_owned())]);
        let field = Field::new("id", DataType::FixedSizeBinary(16), false).with_metadata(mark);
        let expected = texts(&["00010203-0405-0607-0809-0a0b0c0d0e0f", "f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff"]);
        let column = IdColumn::of(Path::new("a"), &field, ColumnPlace::top(0)).unwrap();
        assert_eq!((column.kind, column.convert(&uuids, 0).unwrap()), (IdKind::Utf8, expected.clone()));

        // DuckDB writes UUIDs like this, in files without a schema of Arrow.
        let folder = Folder::new();
        folder.write("a.parquet", &parquet_of_uuids(&rows));
        assert_eq!(read_all(folder.open(&["a.parquet"]).unwrap().as_ref(), 100).ids, expected);
    }

    fn parquet_of_uuids(rows: &[Vec<u8>]) -> Vec<u8> {
        use parquet::column::writer::ColumnWriter;
        use parquet::file::writer::SerializedFileWriter;
        use parquet::schema::parser::parse_message_type;

        let schema = "message m { required fixed_len_byte_array(16) id (UUID);
            required group v (LIST) { repeated group list { required float element; } } }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut bytes = Vec::new();
        let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
        let mut group = file.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            match column.untyped() {
                ColumnWriter::FixedLenByteArrayColumnWriter(ids) => {
                    let rows: Vec<_> = rows.iter().map(|row| row.clone().into()).collect();
                    ids.write_batch(&rows, None, None).unwrap();
                }
                ColumnWriter::FloatColumnWriter(elements) => {
                    let ones = vec![1; rows.len()];
                    elements.write_batch(&vec![0.5; rows.len()], Some(&ones), Some(&vec![0; rows.len()])).unwrap();
                }
                _ => unreachable!(),
            }
            column.close().unwrap();
        }
        group.close().unwrap();
        file.close().unwrap();
        bytes
    }

    #[test]
    fn refuses_invalid_id_columns_and_can_use_row_numbers() {
        let types: [(ArrayRef, &str); 6] = [
            (Arc::new(Float64Array::from(vec![0.5])), "Float64"),
            (Arc::new(BooleanArray::from(vec![true])), "Boolean"),
            (Arc::new(BinaryArray::from_vec(vec![b"a"])), "Binary"),
            (Arc::new(FixedSizeBinaryArray::try_from_iter([[7; 16]].iter()).unwrap()), "FixedSizeBinary(16)"),
            (Arc::new(TimestampMicrosecondArray::from(vec![1])), "Timestamp(µs)"),
            (Arc::new(Decimal128Array::from(vec![1]).with_precision_and_scale(9, 2).unwrap()), "Decimal128(9, 2)"),
        ];
        for (ids, kind) in types {
            let words = format!("is {kind}, but ids must be integers or text; pass id-column with another column");
            for (name, choice) in [("id", IdChoice::IfThere), ("key", IdChoice::Column("key".into()))] {
                for message in refusals(name, &ids, &choice) {
                    assert!(message.contains(&format!("column {name} {words}")), "{message}");
                    assert!(message.contains("no-ids to use row numbers"), "{message}");
                }
            }
            let folder = Folder::new();
            let by_number = SourceOptions { ids: IdChoice::RowNumbers, ..SourceOptions::default() };
            for name in TABLE_FORMATS {
                write_tables(&folder, name, &[table(&[("id", ids.clone()), ("v", vectors(1))])]);
                assert_eq!(read_all(folder.open_with(&[name], &by_number).unwrap().as_ref(), 9).ids, Ids::None);
            }
        }
    }

    #[test]
    fn null_and_out_of_range_ids_are_reported() {
        let nulls: [ArrayRef; 2] =
            [Arc::new(Int32Array::from(vec![Some(1), None])), Arc::new(StringArray::from(vec![Some("a"), None]))];
        for message in nulls.iter().flat_map(|ids| refusals("id", ids, &IdChoice::IfThere)) {
            assert!(message.contains("row 1 has a null id in column id; fill it, pass id-column"), "{message}");
        }
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![1, 1 << 63]));
        for message in refusals("id", &large, &IdChoice::IfThere) {
            assert!(message.contains("row 1 has the id 9223372036854775808 in column id, which does not"), "{message}");
        }
    }

    #[test]
    fn a_vector_column_named_id_is_a_vector_column() {
        let folder = Folder::new();
        for name in TABLE_FORMATS {
            write_tables(&folder, name, &[table(&[("id", vectors(1))])]);
            assert_eq!(read_all(folder.open(&[name]).unwrap().as_ref(), 9).bytes, [0, 1]);
        }
    }
}
