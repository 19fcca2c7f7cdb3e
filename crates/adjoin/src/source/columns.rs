//! The two columns of a table that make a source: which they are, and how their rows become vectors and ids.

use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType, FixedSizeListArray, LargeListArray, ListArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::elements::StoredElement;
use super::facts::{Facts, ScanMemory, check_dimensions};
use super::foreign::damaged;
use super::open::SourceOptions;
use super::vectors::{IdKind, Ids, TextIds, VectorBatch, VectorScan};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::options::{DIMENSIONS_MAX, Element, VectorType};

/// Rows that are decoded at a time, at most: decoders reserve for as many as they are asked for.
const DECODED_ROWS_MAX: usize = 1 << 20;

/// Tables of consecutive rows, with the chosen columns in the order they have in the file.
pub(super) type Tables = Box<dyn Iterator<Item = Result<RecordBatch>>>;

/// The columns chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns {
    path: PathBuf,
    vector: usize,
    vector_name: String,
    element: StoredElement,
    /// Where the column's type fixes it.
    dimensions: Option<usize>,
    id: Option<usize>,
    id_name: String,
    ids: IdKind,
}

/// Places of the columns that are read of a table with this schema, ascending: that of vectors and, if there is one,
/// that of ids. `path` is for messages.
///
/// # Errors
/// Where there is no such column, or it cannot be told which it is.
pub fn columns_read(path: &Path, schema: &Schema, options: &SourceOptions) -> Result<Vec<usize>> {
    Ok(Columns::choose(path, schema, options)?.places())
}

impl Columns {
    /// Chooses as the options say, or the only column of vectors and the column `id`.
    pub(super) fn choose(path: &Path, schema: &Schema, options: &SourceOptions) -> Result<Self> {
        let (vector, (element, length)) = choose_vector(path, schema, options.vector_column.as_deref())?;
        let dimensions = length.map(|length| check_dimensions(path, length)).transpose()?;
        let id = choose_id(path, schema, options.id_column.as_deref())?;
        Ok(Self {
            path: path.to_owned(),
            vector,
            vector_name: schema.field(vector).name().clone(),
            element,
            dimensions,
            id: id.map(|(index, _)| index),
            id_name: id.map_or_else(String::new, |(index, _)| schema.field(index).name().clone()),
            ids: id.map_or(IdKind::None, |(_, kind)| kind),
        })
    }

    /// Places of the columns in the file, ascending.
    pub(super) fn places(&self) -> Vec<usize> {
        let mut places: Vec<usize> = [Some(self.vector), self.id].into_iter().flatten().collect();
        places.sort_unstable();
        places
    }

    /// What the file holds, given its number of rows, the elements that these seem to have, and what a scan takes. The
    /// first vector of lists is looked for in `tables` where the budget has room for that; where it has none, neither has
    /// it for a scan, and whoever plans one says how much would do.
    pub(super) fn facts(
        &self,
        context: &Context,
        (rows, likely_elements): (u64, u64),
        memory: ScanMemory,
        tables: impl FnOnce() -> Result<Tables>,
    ) -> Result<Facts> {
        let likely = || likely_elements.checked_div(rows).map(|mean| mean.clamp(1, DIMENSIONS_MAX as u64) as usize);
        let (dimensions, likely_dimensions) = match self.dimensions {
            Some(dimensions) => (Some(dimensions), None),
            None if rows == 0 => (None, None),
            None => match context.budget().reserve(memory.held) {
                Ok(_room) => (self.first_length(tables()?)?, None),
                Err(_) => (None, likely()),
            },
        };
        Ok(Facts { rows, element: self.element, dimensions, likely_dimensions, ids: self.ids, memory })
    }

    /// Place of the vectors in the file, and the bytes of an element there.
    pub(super) fn vector(&self) -> (usize, usize) {
        (self.vector, self.element.bytes())
    }

    fn first_length(&self, tables: Tables) -> Result<Option<usize>> {
        for table in tables {
            let table = table?;
            let lists = self.lists(&table)?;
            if let Some(row) = (0..table.num_rows()).find(|row| !lists.array().is_null(*row)) {
                return check_dimensions(&self.path, lists.range(row).len() as i128).map(Some);
            }
        }
        Ok(None)
    }

    fn lists<'a>(&self, table: &'a RecordBatch) -> Result<Lists<'a>> {
        let place = usize::from(self.id.is_some_and(|id| id < self.vector));
        let column = table.columns().get(place).and_then(|column| Lists::new(column.as_ref()));
        column.ok_or_else(|| self.other_type(&self.vector_name))
    }

    fn other_type(&self, name: &str) -> Error {
        damaged(&self.path, format!("column {name}"), "its type is not the one that the schema says")
    }

    /// Rows of a table as vectors and ids; row 0 of it is `first_row` of the file.
    fn convert(&self, table: &RecordBatch, first_row: u64, vectors: VectorType) -> Result<VectorBatch> {
        let rows = table.num_rows();
        let lists = self.lists(table)?;
        let values = lists.values();
        let stored = stored_bytes(values, self.element).ok_or_else(|| self.other_type(&self.vector_name))?;
        let null_elements = values.nulls().filter(|nulls| nulls.null_count() > 0);
        let width = self.element.bytes();
        let mut bytes = Vec::with_capacity(rows * vectors.bytes());
        let mut missing = Vec::new();
        for row in 0..rows {
            let elements = lists.range(row);
            if lists.array().is_null(row) {
                missing.push(row);
            } else if elements.len() != vectors.dimensions {
                return Err(self.other_length(first_row + row as u64, elements.len(), vectors.dimensions));
            } else if null_elements.is_some_and(|nulls| elements.clone().any(|k| nulls.is_null(k))) {
                missing.push(row);
            } else {
                self.element.append(&stored[elements.start * width..elements.end * width], &mut bytes);
            }
            bytes.resize((row + 1) * vectors.bytes(), 0);
        }
        Ok(VectorBatch { first_row, rows, bytes, missing, ids: self.convert_ids(table, first_row)? })
    }

    fn other_length(&self, row: u64, length: usize, dimensions: usize) -> Error {
        Error::input(format!(
            "{}: row {row} of column {} has {length} elements, the first vector has {dimensions}; all vectors of a set \
             must have the same number",
            self.path.display(),
            self.vector_name
        ))
    }

    fn convert_ids(&self, table: &RecordBatch, first_row: u64) -> Result<Ids> {
        let Some(id) = self.id else { return Ok(Ids::None) };
        let place = usize::from(self.vector < id);
        let column = table.columns().get(place).ok_or_else(|| self.other_type(&self.id_name))?;
        match column.data_type() {
            DataType::Int64 => self.integers::<Int64Type>(column, first_row),
            DataType::Int32 => self.integers::<Int32Type>(column, first_row),
            DataType::Int16 => self.integers::<Int16Type>(column, first_row),
            DataType::Int8 => self.integers::<Int8Type>(column, first_row),
            DataType::UInt64 => self.integers::<UInt64Type>(column, first_row),
            DataType::UInt32 => self.integers::<UInt32Type>(column, first_row),
            DataType::UInt16 => self.integers::<UInt16Type>(column, first_row),
            DataType::UInt8 => self.integers::<UInt8Type>(column, first_row),
            DataType::Utf8 => self.texts(column.as_string_opt::<i32>(), first_row),
            DataType::LargeUtf8 => self.texts(column.as_string_opt::<i64>(), first_row),
            DataType::Utf8View => self.texts(column.as_string_view_opt(), first_row),
            _ => Err(self.other_type(&self.id_name)),
        }
    }

    fn integers<T>(&self, column: &dyn Array, first_row: u64) -> Result<Ids>
    where
        T: ArrowPrimitiveType<Native: TryInto<i64> + Display>,
    {
        let column = column.as_primitive_opt::<T>().ok_or_else(|| self.other_type(&self.id_name))?;
        let mut ids = Vec::with_capacity(column.len());
        for (row, id) in (first_row..).zip(column) {
            let id = id.ok_or_else(|| self.null_id(row))?;
            ids.push(id.try_into().map_err(|_| self.large_id(row, id))?);
        }
        Ok(Ids::Int64(ids))
    }

    fn texts<'a>(&self, column: Option<impl IntoIterator<Item = Option<&'a str>>>, first_row: u64) -> Result<Ids> {
        let mut ids = TextIds::default();
        for (row, id) in (first_row..).zip(column.ok_or_else(|| self.other_type(&self.id_name))?) {
            ids.push(id.ok_or_else(|| self.null_id(row))?.as_bytes());
        }
        Ok(Ids::Utf8(ids))
    }

    fn null_id(&self, row: u64) -> Error {
        Error::input(format!(
            "{}: row {row} has a null id in column {}; fill it, or choose another id column",
            self.path.display(),
            self.id_name
        ))
    }

    fn large_id(&self, row: u64, id: impl Display) -> Error {
        Error::input(format!(
            "{}: row {row} has the id {id} in column {}, beyond the largest signed 64-bit integer; write it as text",
            self.path.display(),
            self.id_name
        ))
    }
}

fn choose_vector(path: &Path, schema: &Schema, wanted: Option<&str>) -> Result<(usize, (StoredElement, Option<i128>))> {
    if let Some(name) = wanted {
        let index = find(path, schema, name)?;
        let field = schema.field(index);
        return vector_type(field).map(|kind| (index, kind)).ok_or_else(|| {
            Error::input(format!(
                "{}: column {name} is {}, not a list of f32, f16, f64, u8 or i8; choose another vector column",
                path.display(),
                field.data_type()
            ))
        });
    }
    let fields = schema.fields().iter().enumerate();
    let choices: Vec<_> = fields.filter_map(|(index, field)| Some((index, vector_type(field)?))).collect();
    match choices.as_slice() {
        [only] => Ok(*only),
        [] => Err(Error::input(format!(
            "{}: no column holds vectors, lists of f32, f16, f64, u8 or i8; its columns are {}",
            path.display(),
            list_columns(schema)
        ))),
        several => {
            let names: Vec<&str> = several.iter().map(|(index, _)| schema.field(*index).name().as_str()).collect();
            Err(Error::input(format!(
                "{}: several columns hold vectors: {}; choose the vector column",
                path.display(),
                names.join(", ")
            )))
        }
    }
}

fn choose_id(path: &Path, schema: &Schema, wanted: Option<&str>) -> Result<Option<(usize, IdKind)>> {
    let Some(name) = wanted else {
        let index = schema.fields().iter().position(|field| field.name() == "id");
        return Ok(index.and_then(|index| Some((index, id_kind(schema.field(index))?))));
    };
    let index = find(path, schema, name)?;
    let field = schema.field(index);
    id_kind(field).map(|kind| Some((index, kind))).ok_or_else(|| {
        Error::input(format!(
            "{}: column {name} is {}; ids are integers or text: choose another id column",
            path.display(),
            field.data_type()
        ))
    })
}

fn find(path: &Path, schema: &Schema, name: &str) -> Result<usize> {
    schema.fields().iter().position(|field| field.name() == name).ok_or_else(|| {
        Error::input(format!(
            "{}: no column is called {name}; its columns are {}",
            path.display(),
            list_columns(schema)
        ))
    })
}

/// The columns with their types, for a message.
fn list_columns(schema: &Schema) -> String {
    let columns: Vec<String> =
        schema.fields().iter().map(|field| format!("{} ({})", field.name(), field.data_type())).collect();
    if columns.is_empty() { "none".into() } else { columns.join(", ") }
}

/// Element and fixed length of a column's vectors, if it holds vectors.
fn vector_type(field: &Field) -> Option<(StoredElement, Option<i128>)> {
    match field.data_type() {
        DataType::FixedSizeList(values, length) => Some((element_type(values)?, Some(i128::from(*length)))),
        DataType::List(values) | DataType::LargeList(values) => Some((element_type(values)?, None)),
        _ => None,
    }
}

fn element_type(field: &Field) -> Option<StoredElement> {
    Some(match field.data_type() {
        DataType::Float32 => StoredElement::Same(Element::F32),
        DataType::Float16 => StoredElement::Same(Element::F16),
        DataType::UInt8 => StoredElement::Same(Element::U8),
        DataType::Int8 => StoredElement::Same(Element::I8),
        DataType::Float64 => StoredElement::F64,
        _ => return None,
    })
}

fn id_kind(field: &Field) -> Option<IdKind> {
    match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(IdKind::Utf8),
        integer if integer.is_integer() => Some(IdKind::Int64),
        _ => None,
    }
}

/// The bytes of an array of elements, nulls among them.
fn stored_bytes(values: &dyn Array, element: StoredElement) -> Option<&[u8]> {
    Some(match element {
        StoredElement::Same(Element::F32) => values.as_primitive_opt::<Float32Type>()?.values().inner(),
        StoredElement::Same(Element::F16) => values.as_primitive_opt::<Float16Type>()?.values().inner(),
        StoredElement::Same(Element::U8) => values.as_primitive_opt::<UInt8Type>()?.values().inner(),
        StoredElement::Same(Element::I8) => values.as_primitive_opt::<Int8Type>()?.values().inner(),
        StoredElement::F64 => values.as_primitive_opt::<Float64Type>()?.values().inner(),
    })
}

/// A column of lists, whichever way it is laid out.
enum Lists<'a> {
    Fixed(&'a FixedSizeListArray),
    Small(&'a ListArray),
    Large(&'a LargeListArray),
}

impl<'a> Lists<'a> {
    fn new(column: &'a dyn Array) -> Option<Self> {
        let small = || column.as_list_opt::<i32>().map(Self::Small);
        let large = || column.as_list_opt::<i64>().map(Self::Large);
        column.as_fixed_size_list_opt().map(Self::Fixed).or_else(small).or_else(large)
    }

    fn array(&self) -> &'a dyn Array {
        match self {
            Self::Fixed(lists) => *lists,
            Self::Small(lists) => *lists,
            Self::Large(lists) => *lists,
        }
    }

    fn values(&self) -> &'a dyn Array {
        match self {
            Self::Fixed(lists) => lists.values().as_ref(),
            Self::Small(lists) => lists.values().as_ref(),
            Self::Large(lists) => lists.values().as_ref(),
        }
    }

    /// Where a row's elements lie among the values.
    fn range(&self, row: usize) -> Range<usize> {
        match self {
            Self::Fixed(lists) => {
                let length = lists.value_length() as usize;
                let start = lists.value_offset(row) as usize;
                start..start + length
            }
            Self::Small(lists) => lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize,
            Self::Large(lists) => lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize,
        }
    }
}

/// Rows that make up about `batch_bytes` of vectors.
pub(super) fn rows_per_batch(vectors: VectorType, batch_bytes: usize) -> usize {
    (batch_bytes / vectors.bytes()).clamp(1, DECODED_ROWS_MAX)
}

/// A scan of tables.
pub(super) struct ColumnScan {
    columns: Columns,
    vectors: VectorType,
    rows_per_batch: usize,
    /// None after the last, and after an error: a decoder that failed is not used again.
    tables: Option<Tables>,
    /// What is left of the table at hand.
    rest: Option<RecordBatch>,
    next_row: u64,
}

impl ColumnScan {
    /// Starts at the first row.
    pub(super) fn new(columns: Columns, vectors: VectorType, batch_bytes: usize, tables: Tables) -> Self {
        let rows_per_batch = rows_per_batch(vectors, batch_bytes);
        Self { columns, vectors, rows_per_batch, tables: Some(tables), rest: None, next_row: 0 }
    }

    /// The next rows, not yet converted.
    fn next_piece(&mut self) -> Result<Option<RecordBatch>> {
        let mut table = self.rest.take().filter(|rest| rest.num_rows() > 0);
        while table.as_ref().is_none_or(|table| table.num_rows() == 0) {
            match self.tables.as_mut().and_then(Iterator::next) {
                Some(next) => table = Some(next.inspect_err(|_| self.tables = None)?),
                None => return Ok(None),
            }
        }
        Ok(table.map(|table| {
            let rows = table.num_rows().min(self.rows_per_batch);
            self.rest = Some(table.slice(rows, table.num_rows() - rows));
            table.slice(0, rows)
        }))
    }
}

impl VectorScan for ColumnScan {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let Some(piece) = self.next_piece()? else { return Ok(None) };
        let batch = self.columns.convert(&piece, self.next_row, self.vectors)?;
        self.next_row += batch.rows as u64;
        Ok(Some(batch))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, LargeListBuilder, ListBuilder};
    use arrow_array::{
        ArrayRef, Float16Array, Float32Array, Float64Array, Int8Array, Int32Array, Int64Array, LargeStringArray,
        StringArray, StringViewArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
    };
    use half::f16;

    use super::*;
    use crate::source::fixtures::{Folder, TABLE_FORMATS, error_of, read_all, table, try_read_all, write_tables};

    fn fixed(values: ArrayRef, dimensions: i32) -> ArrayRef {
        let field = Arc::new(Field::new("item", values.data_type().clone(), true));
        Arc::new(FixedSizeListArray::new(field, dimensions, values, None))
    }

    fn rows(vectors: &[Option<&[f32]>]) -> ArrayRef {
        let mut builder = ListBuilder::new(Float32Builder::new());
        for vector in vectors {
            builder.append_option(vector.map(|vector| vector.iter().copied().map(Some)));
        }
        Arc::new(builder.finish())
    }

    /// The errors with which the table is refused, in each format, at opening or while it is read.
    fn refused(columns: &[(&str, ArrayRef)], options: &SourceOptions) -> Vec<String> {
        let folder = Folder::new();
        let refuse = |name: &&str| {
            write_tables(&folder, name, &[table(columns)]);
            let source = folder.open_with(&[name], options);
            let message = error_of(source.and_then(|source| try_read_all(source.as_ref(), 1 << 20)));
            assert!(message.contains(&folder.path(name).display().to_string()), "{message}");
            message
        };
        TABLE_FORMATS.iter().map(refuse).collect()
    }

    fn refused_with(columns: &[(&str, ArrayRef)], vector: Option<&str>, id: Option<&str>, words: &str) {
        let options = SourceOptions { vector_column: vector.map(Into::into), id_column: id.map(Into::into) };
        for message in refused(columns, &options) {
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn every_element_type_is_read_with_any_batch() {
        let small: Vec<i8> = (0..60).collect();
        let singles: Vec<f32> = small.iter().map(|v| f32::from(*v) / 8.0).collect();
        let as_bytes: Vec<u8> = singles.iter().flat_map(|v| v.to_le_bytes()).collect();
        let small_bytes: Vec<u8> = small.iter().map(|v| v.cast_unsigned()).collect();
        let halves: Vec<f16> = singles.iter().map(|v| f16::from_f32(*v)).collect();
        let half_bytes: Vec<u8> = halves.iter().flat_map(|v| v.to_le_bytes()).collect();
        let doubles = Float64Array::from_iter_values(singles.iter().map(|v| f64::from(*v) * (1.0 + 1e-12)));
        let cases: [(ArrayRef, Element, &[u8], bool); 5] = [
            (Arc::new(Float32Array::from(singles.clone())), Element::F32, &as_bytes, false),
            (Arc::new(Float16Array::from(halves.clone())), Element::F16, &half_bytes, false),
            (Arc::new(doubles), Element::F32, &as_bytes, true),
            (Arc::new(UInt8Array::from(small_bytes.clone())), Element::U8, &small_bytes, false),
            (Arc::new(Int8Array::from(small.clone())), Element::I8, &small_bytes, false),
        ];
        let folder = Folder::new();
        for (values, element, delivered, rounded) in cases {
            let whole = table(&[("text", Arc::new(StringArray::from(vec!["x"; 20]))), ("embedding", fixed(values, 3))]);
            for name in TABLE_FORMATS {
                write_tables(&folder, name, &[whole.slice(0, 7), whole.slice(7, 0), whole.slice(7, 13)]);
                let source = folder.open(&[name]).unwrap();
                assert_eq!(source.info().vectors, VectorType { element, dimensions: 3 });
                assert_eq!((source.info().rows, source.info().rounded_from_f64), (20, rounded));
                for batch_bytes in [1, 25, usize::MAX] {
                    let all = read_all(source.as_ref(), batch_bytes);
                    assert_eq!((all.rows, all.bytes.as_slice()), (20, delivered), "{name} {element}");
                }
            }
        }
    }

    #[test]
    fn null_vectors_and_null_elements_are_missing() {
        let mut fixed = FixedSizeListBuilder::new(Float32Builder::new(), 2);
        let mut large = LargeListBuilder::new(Float32Builder::new());
        let mut small = ListBuilder::new(Float32Builder::new());
        for vector in [None, Some([Some(1.0), Some(2.0)]), Some([Some(3.0), None]), None, Some([Some(4.0), Some(5.0)])]
        {
            fixed.values().append_slice(&[]);
            vector.unwrap_or_default().iter().for_each(|value| fixed.values().append_option(*value));
            fixed.append(vector.is_some());
            large.append_option(vector);
            small.append_option(vector);
        }
        let columns: [ArrayRef; 3] = [Arc::new(fixed.finish()), Arc::new(large.finish()), Arc::new(small.finish())];
        let folder = Folder::new();
        for column in columns {
            for name in TABLE_FORMATS {
                write_tables(&folder, name, &[table(&[("v", column.clone())])]);
                let source = folder.open(&[name]).unwrap();
                assert_eq!(source.info().vectors, VectorType { element: Element::F32, dimensions: 2 });
                for batch_bytes in [1, 1 << 20] {
                    let all = read_all(source.as_ref(), batch_bytes);
                    assert_eq!(all.missing, [0, 2, 3], "{name}");
                    let expected = [0f32, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 4.0, 5.0];
                    assert_eq!(all.bytes, expected.map(f32::to_le_bytes).concat());
                }
            }
        }
    }

    #[test]
    fn ids_of_all_kinds_are_read() {
        let texts = ["", "b", "ünï"];
        let integers: [ArrayRef; 6] = [
            Arc::new(Int64Array::from(vec![1, 2, 3])),
            Arc::new(Int32Array::from(vec![1, 2, 3])),
            Arc::new(Int8Array::from(vec![1, 2, 3])),
            Arc::new(UInt16Array::from(vec![1, 2, 3])),
            Arc::new(UInt32Array::from(vec![1, 2, 3])),
            Arc::new(UInt64Array::from(vec![1, 2, 3])),
        ];
        let strings: [ArrayRef; 3] = [
            Arc::new(StringArray::from_iter_values(texts)),
            Arc::new(LargeStringArray::from_iter_values(texts)),
            Arc::new(StringViewArray::from_iter_values(texts)),
        ];
        let mut expected = TextIds::default();
        texts.iter().for_each(|text| expected.push(text.as_bytes()));
        let cases = integers.map(|ids| (ids, Ids::Int64(vec![1, 2, 3]))).into_iter();
        let folder = Folder::new();
        for (ids, expected) in cases.chain(strings.map(|ids| (ids, Ids::Utf8(expected.clone())))) {
            let vectors = rows(&[Some(&[1.0]), None, Some(&[2.0])]);
            for columns in [[("id", ids.clone()), ("v", vectors.clone())], [("v", vectors), ("id", ids)]] {
                for name in TABLE_FORMATS {
                    write_tables(&folder, name, &[table(&columns)]);
                    let source = folder.open(&[name]).unwrap();
                    assert_eq!(read_all(source.as_ref(), 1).ids, expected, "{name}");
                    assert_eq!(read_all(source.as_ref(), 1 << 20).ids, expected, "{name}");
                }
            }
        }
    }

    #[test]
    fn columns_are_chosen_by_name() {
        let folder = Folder::new();
        let columns: [(&str, ArrayRef); 4] = [
            ("id", Arc::new(Float32Array::from(vec![0.5]))),
            ("a", rows(&[Some(&[1.0])])),
            ("key", Arc::new(Int32Array::from(vec![7]))),
            ("b", rows(&[Some(&[2.0, 3.0])])),
        ];
        let options = SourceOptions { vector_column: Some("b".into()), id_column: Some("key".into()) };
        for name in TABLE_FORMATS {
            write_tables(&folder, name, &[table(&columns)]);
            let all = read_all(folder.open_with(&[name], &options).unwrap().as_ref(), 100);
            assert_eq!((all.bytes, all.ids), ([2f32, 3.0].map(f32::to_le_bytes).concat(), Ids::Int64(vec![7])));
            write_tables(&folder, name, &[table(&columns[..2])]); // an id that is no id is left alone
            assert_eq!(folder.open(&[name]).unwrap().info().ids, IdKind::None);
        }
        refused_with(&columns, None, None, "several columns hold vectors: a, b; choose the vector column");
        refused_with(
            &columns[2..3],
            None,
            None,
            "no column holds vectors, lists of f32, f16, f64, u8 or i8; its columns are key (Int32)",
        );
        refused_with(&columns, Some("c"), None, "no column is called c; its columns are id (Float32), a (List(Float32");
        refused_with(&columns, Some("key"), None, "column key is Int32, not a list of f32");
        refused_with(&columns, Some("a"), Some("c"), "no column is called c");
        refused_with(&columns, Some("a"), Some("id"), "column id is Float32; ids are integers or text");
    }

    #[test]
    fn rows_that_cannot_be_used_are_named() {
        let two = || rows(&[Some(&[1.0]), Some(&[2.0])]);
        let nulls: [ArrayRef; 2] =
            [Arc::new(Int32Array::from(vec![Some(1), None])), Arc::new(StringArray::from(vec![Some("a"), None]))];
        for ids in nulls {
            refused_with(&[("id", ids), ("v", two())], None, None, "row 1 has a null id in column id; fill it");
        }
        let large: ArrayRef = Arc::new(UInt64Array::from(vec![1, 1 << 63]));
        refused_with(&[("id", large), ("v", two())], None, None, "row 1 has the id 9223372036854775808 in column id");
        let uneven = rows(&[None, Some(&[1.0, 2.0]), Some(&[1.0, 2.0, 3.0])]);
        refused_with(&[("v", uneven)], None, None, "row 2 of column v has 3 elements, the first vector has 2");
        refused_with(&[("v", rows(&[Some(&[])]))], None, None, "have 0 dimensions");
        refused_with(&[("v", rows(&[None, None]))], None, None, "no row has a vector");
        refused_with(&[("v", rows(&[Some(&[0.0; 8_193])]))], None, None, "8193 dimensions");
        refused_with(
            &[("v", fixed(Arc::new(Float32Array::from(vec![0.0; 8_193])), 8_193))],
            None,
            None,
            "8193 dimensions",
        );
    }

    #[test]
    fn shards_without_vectors_take_the_dimensions_of_the_others() {
        let folder = Folder::new();
        for name in TABLE_FORMATS {
            write_tables(&folder, &format!("0-{name}"), &[table(&[("v", rows(&[]))])]);
            write_tables(&folder, &format!("1-{name}"), &[table(&[("v", rows(&[None]))])]);
            write_tables(&folder, &format!("2-{name}"), &[table(&[("v", rows(&[Some(&[1.0, 2.0])]))])]);
            let source = folder.open(&[&format!("?-{name}")]).unwrap();
            let all = read_all(source.as_ref(), 1);
            assert_eq!((all.rows, all.missing), (2, vec![0]));
            assert_eq!(source.locate(1), (folder.path(&format!("2-{name}")), 0));
        }
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        write_tables(&folder, "3.parquet", &[table(&[("v", rows(&[Some(&[1.0, 2.0])])), ("id", ids)])]);
        assert!(error_of(folder.open(&["2-a.parquet", "3.parquet"])).contains("differ in ids: none and int64"));
    }
}
