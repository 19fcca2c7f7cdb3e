//! Chooses the columns of a table that contain the vectors and the ids, and converts their rows.

use std::ops::Range;
use std::path::{Path, PathBuf};

use adjoin_device::Reservation;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type, Int8Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, LargeListArray, LargeListViewArray, ListArray, ListViewArray, RecordBatch,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Schema};

use super::elements::{StoredElement, check_dimensions};
use super::facts::{Dimensions, Facts, ScanMemory};
use super::foreign::other_type;
use super::id_column::IdColumn;
use super::nested::{ColumnPlace, fields_of_structs};
use super::options::{IdChoice, SourceOptions};
use super::parquet_texts::COPIED_BYTES;
use super::vectors::{Fault, IdKind, Ids, VectorBatch, VectorScan};
use crate::base::context::Context;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::message::{Argument, Message, message};
use crate::base::options::{DIMENSIONS_MAX, Element, VectorType};

/// Maximum number of rows to decode at a time. Decoders allocate memory for the requested number of rows.
const DECODED_ROWS_MAX: usize = 1 << 20;

/// Name of the id column if the user names none.
const USUAL_ID_COLUMN: &str = "id";

/// Tables of consecutive rows. They have the chosen columns, in the order of the file.
pub(crate) type Tables = Box<dyn Iterator<Item = Result<RecordBatch>>>;

/// Iterator over tables that also holds the reservation for reading them.
pub(super) struct Holding {
    tables: Tables,
    _memory: Reservation,
}

impl Holding {
    pub(super) fn new(tables: Tables, memory: Reservation) -> Self {
        Self { tables, _memory: memory }
    }
}

impl Iterator for Holding {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.tables.next()
    }
}

/// The columns of vectors and ids of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableColumns {
    path: PathBuf,
    vector: ColumnPlace,
    vector_name: String,
    element: StoredElement,
    /// Number of dimensions, if the type of the column states it.
    dimensions: Option<usize>,
    id: Option<IdColumn>,
}

impl SourceOptions {
    /// Returns the indexes of the columns to read from a table with this schema, in ascending order. These are the
    /// columns of the vectors and of the ids, if any, and `attributes`. For a field of a struct, it is the index of
    /// the outermost struct. `path` is only used in messages.
    ///
    /// # Errors
    /// Fails if a column does not exist or the choice is ambiguous.
    pub fn columns_read(&self, path: &Path, schema: &Schema, attributes: &[String]) -> Result<Vec<usize>> {
        let mut places = TableColumns::choose(path, schema, self)?.places();
        for name in attributes {
            places.push(find_for(path, schema, name, &Argument::Columns.into())?.0);
        }
        let mut tops: Vec<usize> = places.iter().map(ColumnPlace::top_index).collect();
        // Several columns may be fields of the same struct.
        tops.sort_unstable();
        tops.dedup();
        Ok(tops)
    }
}

/// Returns the id column of a table with this schema, if any.
///
/// # Errors
/// Fails as [`columns_read`] does.
pub(crate) fn ids_of(path: &Path, schema: &Schema, options: &SourceOptions) -> Result<Option<IdColumn>> {
    // A table of texts has no vectors. If there are several columns of vectors, none of them is chosen either.
    let vector = choose_vector(path, schema, options.vector_column.as_deref()).ok();
    choose_ids(path, schema, &options.ids, vector.map(|vector| vector.place).as_ref())
}

impl TableColumns {
    /// Chooses the columns as the options request.
    pub(super) fn choose(path: &Path, schema: &Schema, options: &SourceOptions) -> Result<Self> {
        let Choice { place, name, element, length } = choose_vector(path, schema, options.vector_column.as_deref())?;
        let dimensions = length.map(|length| check_dimensions(path, length)).transpose()?;
        let id = choose_ids(path, schema, &options.ids, Some(&place))?;
        Ok(Self { path: path.to_owned(), vector: place, vector_name: name, element, dimensions, id })
    }

    /// Returns the places of the columns in the file, ascending.
    pub(super) fn places(&self) -> Vec<ColumnPlace> {
        let id = self.id.iter().map(|id| &id.place);
        let mut places: Vec<ColumnPlace> = id.chain([&self.vector]).cloned().collect();
        places.sort_unstable();
        places
    }

    /// Returns facts about a file with `rows` rows. `likely_elements` is the likely number of elements of all vectors,
    /// `memory` is the memory of a scan. If the budget allows it, reads the first list that is not empty from
    /// `tables`. Otherwise the budget is also too small for a scan, and the code that plans the scan reports how much
    /// is needed.
    pub(super) fn facts(
        &self,
        context: &Context,
        rows: u64,
        likely_elements: u64,
        memory: ScanMemory,
        tables: impl FnOnce() -> Result<Tables>,
    ) -> Result<Facts> {
        let dimensions = match self.dimensions {
            Some(dimensions) => Dimensions::Stated(dimensions),
            None if rows == 0 => Dimensions::Unknown,
            None => match context.reserve_between_runs(memory.held, "the first vector") {
                Ok(_room) => self.first_length(tables()?)?.map_or(Dimensions::Unknown, Dimensions::Seen),
                Err(error) if error.kind() == ErrorKind::Budget => {
                    // The estimate is only used in the error message about the memory of a scan.
                    Dimensions::Likely((likely_elements / rows).clamp(1, DIMENSIONS_MAX as u64) as usize)
                }
                Err(error) => return Err(error),
            },
        };
        let vector_column = Some(self.vector_name.clone());
        let ids = self.id.as_ref().map_or(IdKind::None, |id| id.kind);
        Ok(Facts { rows, element: self.element, dimensions, vector_column, ids, memory, lines: None, arrays: None })
    }

    /// Returns the place of the ids if the ids are texts.
    pub(super) fn text_ids(&self) -> Option<&ColumnPlace> {
        self.id.as_ref().filter(|id| id.kind == IdKind::Utf8).map(|id| &id.place)
    }

    /// Returns the place of the vectors in the file, and the size of a stored element in bytes.
    pub(super) fn vector(&self) -> (&ColumnPlace, usize) {
        (&self.vector, self.element.bytes())
    }

    fn first_length(&self, tables: Tables) -> Result<Option<usize>> {
        for table in tables {
            let table = table?;
            let lists = self.lists(&table)?;
            let mut rows = (0..table.num_rows()).filter(|row| !lists.array().is_null(*row));
            if let Some(length) = rows.find_map(|row| Some(lists.range(row).len()).filter(|length| *length > 0)) {
                return check_dimensions(&self.path, length as i128).map(Some);
            }
        }
        Ok(None)
    }

    fn lists<'a>(&self, table: &'a RecordBatch) -> Result<Lists<'a>> {
        // The table has only the chosen columns, in the order of the file. So the vectors are the first or the second
        // column.
        let place = usize::from(self.id.as_ref().is_some_and(|id| id.place < self.vector));
        let column = table.columns().get(place).and_then(|column| Lists::new(column.as_ref()));
        column.ok_or_else(|| other_type(&self.path, &self.vector_name))
    }

    /// Converts the rows of a table to vectors and ids. `first_row` is the number in the file of the table's first
    /// row.
    fn convert(&self, table: &RecordBatch, first_row: u64, vectors: VectorType) -> Result<VectorBatch> {
        let rows = table.num_rows();
        let lists = self.lists(table)?;
        let values = lists.values();
        let stored = stored_bytes(values, self.element).ok_or_else(|| other_type(&self.path, &self.vector_name))?;
        // Found once per table, because files with null elements are rare.
        let null_elements = values.nulls().filter(|nulls| nulls.null_count() > 0);
        let width = self.element.bytes();
        let mut bytes = Vec::with_capacity(rows * vectors.bytes());
        let mut faults = Vec::new();
        for row in 0..rows {
            let elements = lists.range(row);
            let null_at = |nulls: &NullBuffer| elements.clone().position(|k| nulls.is_null(k));
            let fault = if lists.array().is_null(row) {
                Some(Fault::Null)
            } else if elements.len() != vectors.dimensions {
                Some(Fault::Length(elements.len()))
            } else if let Some(at) = null_elements.and_then(null_at) {
                Some(Fault::NullElement { at })
            } else {
                self.element.append(&stored[elements.start * width..elements.end * width], &mut bytes)
            };
            faults.extend(fault.map(|fault| (row, fault)));
            // A row with a fault gets zeros, so that later rows remain at their positions.
            bytes.resize((row + 1) * vectors.bytes(), 0);
        }
        Ok(VectorBatch { first_row, rows, bytes, faults, ids: self.convert_ids(table, first_row)? })
    }

    fn convert_ids(&self, table: &RecordBatch, first_row: u64) -> Result<Ids> {
        let Some(id) = &self.id else { return Ok(Ids::None) };
        let place = usize::from(self.vector < id.place);
        let column = table.columns().get(place).ok_or_else(|| other_type(&self.path, &id.name))?;
        id.convert(column, first_row)
    }
}

/// Chooses the id column. `vector` is the place of the vectors, if any, which cannot be the ids.
fn choose_ids(path: &Path, schema: &Schema, ids: &IdChoice, vector: Option<&ColumnPlace>) -> Result<Option<IdColumn>> {
    let found = match ids {
        IdChoice::RowNumbers => None,
        IdChoice::Column(name) => Some((find(path, schema, name)?, name.as_str())),
        IdChoice::IfThere => {
            // A column is chosen by its usual name only if it is not within a struct. The user must name fields of
            // structs.
            let place = schema.fields().iter().position(|field| field.name() == USUAL_ID_COLUMN);
            let usual = place.map(|place| ((ColumnPlace::top(place), schema.field(place)), USUAL_ID_COLUMN));
            usual.filter(|((place, _), _)| Some(place) != vector)
        }
    };
    found.map(|((place, field), name)| IdColumn::of(path, &field.clone().with_name(name), place)).transpose()
}

/// Column that may be chosen for the vectors.
struct Choice {
    place: ColumnPlace,
    name: String,
    element: StoredElement,
    /// Length of the vectors, if the type of the column states it.
    length: Option<i128>,
}

impl Choice {
    fn of(place: ColumnPlace, field: &Field, name: &str) -> Option<Self> {
        let (element, length) = vector_type(field)?;
        Some(Self { place, name: name.to_owned(), element, length })
    }
}

fn choose_vector(path: &Path, schema: &Schema, requested: Option<&str>) -> Result<Choice> {
    if let Some(name) = requested {
        let (place, field) = find(path, schema, name)?;
        return Choice::of(place, field, name).ok_or_else(|| {
            Error::input(format!(
                "{}: column {name} is {}, not a list of f32, f16, f64, u8 or i8; choose another vector column",
                path.display(),
                field.data_type()
            ))
        });
    }
    let fields = schema.fields().iter().enumerate();
    let mut choices: Vec<_> =
        fields.filter_map(|(index, field)| Choice::of(ColumnPlace::top(index), field, field.name())).collect();
    // If there are several candidates, none is chosen: a wrong guess would not be noticed.
    if let (Some(only), true) = (choices.pop(), choices.is_empty()) {
        return Ok(only);
    }
    Err(no_sole_choice(path, schema))
}

/// Returns the error for a table that has no column of vectors, or several of them.
fn no_sole_choice(path: &Path, schema: &Schema) -> Error {
    let is_vectors = |field: &Field| vector_type(field).is_some();
    let columns = schema.fields().iter().filter(|field| is_vectors(field)).map(|field| field.name().clone());
    let columns: Vec<String> = columns.collect();
    let (what, names) = match columns.is_empty() {
        false => ("several columns hold vectors", columns),
        true => ("no column holds vectors, except inside a struct", fields_of_structs(schema.fields(), &is_vectors)),
    };
    if names.is_empty() {
        return Error::input(format!(
            "{}: no column holds vectors, lists of f32, f16, f64, u8 or i8; its columns are {}; cast lists of other \
             numbers to f32",
            path.display(),
            list_columns(schema)
        ));
    }
    Error::input(message![
        format!("{}: {what}; pass ", path.display()),
        Argument::VectorColumn.with("NAME"),
        format!(" (one of: {})", names.join(", "))
    ])
}

fn find<'a>(path: &Path, schema: &'a Schema, name: &str) -> Result<(ColumnPlace, &'a Field)> {
    let found = ColumnPlace::find(schema.fields(), name).map(|(place, field)| (place, field.as_ref()));
    found.ok_or_else(|| {
        Error::input(format!("{}: there is no column {name}; its columns are {}", path.display(), list_columns(schema)))
    })
}

/// Lists the columns with their types, for a message.
pub(super) fn list_columns(schema: &Schema) -> String {
    let columns: Vec<String> =
        schema.fields().iter().map(|field| format!("{} ({})", field.name(), field.data_type())).collect();
    if columns.is_empty() { "none".into() } else { columns.join(", ") }
}

/// Returns the element type of a column of vectors, and their length if the type states it. Returns `None` if the
/// column cannot hold vectors.
fn vector_type(field: &Field) -> Option<(StoredElement, Option<i128>)> {
    match field.data_type() {
        DataType::FixedSizeList(values, length) => Some((element_type(values)?, Some(i128::from(*length)))),
        DataType::List(values)
        | DataType::LargeList(values)
        | DataType::ListView(values)
        | DataType::LargeListView(values) => Some((element_type(values)?, None)),
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

/// Returns the bytes of an array of elements, including elements that are null.
fn stored_bytes(values: &dyn Array, element: StoredElement) -> Option<&[u8]> {
    Some(match element {
        StoredElement::Same(Element::F32) => values.as_primitive_opt::<Float32Type>()?.values().inner(),
        StoredElement::Same(Element::F16) => values.as_primitive_opt::<Float16Type>()?.values().inner(),
        StoredElement::Same(Element::U8) => values.as_primitive_opt::<UInt8Type>()?.values().inner(),
        StoredElement::Same(Element::I8) => values.as_primitive_opt::<Int8Type>()?.values().inner(),
        StoredElement::F64 => values.as_primitive_opt::<Float64Type>()?.values().inner(),
        StoredElement::Bf16 => return None,
    })
}

/// A column of lists, in any layout.
enum Lists<'a> {
    Fixed(&'a FixedSizeListArray),
    Small(&'a ListArray),
    Large(&'a LargeListArray),
    View(&'a ListViewArray),
    LargeView(&'a LargeListViewArray),
}

impl<'a> Lists<'a> {
    fn new(column: &'a dyn Array) -> Option<Self> {
        let small = || column.as_list_opt::<i32>().map(Self::Small);
        let large = || column.as_list_opt::<i64>().map(Self::Large);
        let view = || column.as_list_view_opt::<i32>().map(Self::View);
        let large_view = || column.as_list_view_opt::<i64>().map(Self::LargeView);
        let fixed = column.as_fixed_size_list_opt().map(Self::Fixed);
        fixed.or_else(small).or_else(large).or_else(view).or_else(large_view)
    }

    fn array(&self) -> &'a dyn Array {
        match self {
            Self::Fixed(lists) => *lists,
            Self::Small(lists) => *lists,
            Self::Large(lists) => *lists,
            Self::View(lists) => *lists,
            Self::LargeView(lists) => *lists,
        }
    }

    fn values(&self) -> &'a dyn Array {
        let values: &'a ArrayRef = match self {
            Self::Fixed(lists) => lists.values(),
            Self::Small(lists) => lists.values(),
            Self::Large(lists) => lists.values(),
            Self::View(lists) => lists.values(),
            Self::LargeView(lists) => lists.values(),
        };
        values.as_ref()
    }

    /// Returns the range of a row's elements within the values.
    fn range(&self, row: usize) -> Range<usize> {
        match self {
            Self::Fixed(lists) => {
                let length = lists.value_length() as usize;
                let start = lists.value_offset(row) as usize;
                start..start + length
            }
            Self::Small(lists) => lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize,
            Self::Large(lists) => lists.value_offsets()[row] as usize..lists.value_offsets()[row + 1] as usize,
            Self::View(lists) => range_of(i64::from(lists.value_offset(row)), i64::from(lists.value_size(row))),
            Self::LargeView(lists) => range_of(lists.value_offset(row), lists.value_size(row)),
        }
    }
}

/// Returns the range of `size` elements that starts at `offset`.
fn range_of(offset: i64, size: i64) -> Range<usize> {
    let offset = offset as usize;
    // Saturates: a damaged size must cause an error about the range, not give a wrong range.
    offset..offset.saturating_add(size as usize)
}

/// Returns the number of rows that have about `batch_bytes` bytes of vectors.
pub(super) fn rows_per_batch(vectors: VectorType, batch_bytes: usize) -> usize {
    (batch_bytes / vectors.bytes()).clamp(1, DECODED_ROWS_MAX)
}

/// Returns how many of the first `rows` rows fit in a batch. These rows have no more text than a batch may copy, or
/// there is only one. The texts are ids.
fn rows_within(table: &RecordBatch, rows: usize) -> usize {
    // The plan of a scan reserves this much for the texts of a batch. So batches with longer ids have fewer rows.
    let limit = (COPIED_BYTES as usize).max(TEXT_BYTES_A_ROW * rows);
    let mut left = vec![limit; table.num_columns()];
    for row in 0..rows {
        for (column, left) in table.columns().iter().zip(&mut left) {
            match left.checked_sub(text_bytes(column, row)) {
                Some(rest) => *left = rest,
                None => return row.max(1),
            }
        }
    }
    rows
}

/// Bytes of text that are planned for each row of a batch.
const TEXT_BYTES_A_ROW: usize = 48;

/// Returns the length of the text in a row, in bytes; 0 for other types.
fn text_bytes(column: &ArrayRef, row: usize) -> usize {
    match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value_length(row) as usize,
        DataType::LargeUtf8 => column.as_string::<i64>().value_length(row) as usize,
        DataType::Utf8View => column.as_string_view().value(row).len(),
        _ => 0,
    }
}

/// A scan of tables that returns batches of vectors.
pub(super) struct ColumnScan {
    columns: TableColumns,
    vectors: VectorType,
    rows_per_batch: usize,
    /// `None` after the last table and after an error, since a decoder that has failed must not be used again.
    tables: Option<Tables>,
    /// Remaining rows of the current table.
    rest: Option<RecordBatch>,
    next_row: u64,
}

impl ColumnScan {
    /// Creates a scan of tables that start at the first row.
    pub(super) fn new(columns: TableColumns, vectors: VectorType, batch_bytes: usize, tables: Tables) -> Self {
        Self::from_row(0, columns, vectors, batch_bytes, tables)
    }

    /// Creates a scan of tables that start at row `next_row`.
    pub(super) fn from_row(
        next_row: u64,
        columns: TableColumns,
        vectors: VectorType,
        batch_bytes: usize,
        tables: Tables,
    ) -> Self {
        let rows_per_batch = rows_per_batch(vectors, batch_bytes);
        Self { columns, vectors, rows_per_batch, tables: Some(tables), rest: None, next_row }
    }

    /// Returns the next rows before their conversion.
    fn next_piece(&mut self) -> Result<Option<RecordBatch>> {
        // All formats permit tables without rows. They are skipped, since an empty batch would end the scan.
        let mut table = self.rest.take().filter(|rest| rest.num_rows() > 0);
        while table.as_ref().is_none_or(|table| table.num_rows() == 0) {
            match self.tables.as_mut().and_then(Iterator::next) {
                Some(next) => table = Some(next.inspect_err(|_| self.tables = None)?),
                None => return Ok(None),
            }
        }
        Ok(table.map(|table| {
            let rows = rows_within(&table, table.num_rows().min(self.rows_per_batch));
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

/// Finds the column `name` and its type. `purpose` states what it is for, in messages.
pub(super) fn find_for(path: &Path, schema: &Schema, name: &str, purpose: &Message) -> Result<(ColumnPlace, DataType)> {
    let found = ColumnPlace::find(schema.fields(), name);
    let found = found.map(|(place, field)| (place, field.data_type().clone()));
    found.ok_or_else(|| {
        Error::input(message![
            format!("{}: there is no column {name} for ", path.display()),
            purpose.clone(),
            format!("; its columns are {}", list_columns(schema))
        ])
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{FixedSizeListBuilder, Float32Builder, LargeListBuilder, ListBuilder};
    use arrow_array::{
        ArrayRef, Float16Array, Float32Array, Float64Array, Int8Array, Int32Array, StringArray, UInt8Array,
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

    /// Returns the errors with which all formats refuse the table, either when it is opened or while it is read.
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
        let ids = IdChoice::new(id, false).unwrap();
        let options = SourceOptions { vector_column: vector.map(Into::into), ids, split: None };
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
    fn null_vectors_and_null_elements_are_faults() {
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
                    let faults = [(0, Fault::Null), (2, Fault::NullElement { at: 1 }), (3, Fault::Null)];
                    assert_eq!(all.faults, faults, "{name}");
                    let expected = [0f32, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 4.0, 5.0];
                    assert_eq!(all.bytes, expected.map(f32::to_le_bytes).concat());
                }
            }
        }
    }

    #[test]
    fn list_views_may_overlap_and_be_out_of_order() {
        let values: ArrayRef = Arc::new(Float32Array::from_iter_values((0..8u8).map(f32::from)));
        let field = Arc::new(Field::new("item", DataType::Float32, true));
        let nulls = Some(NullBuffer::from(vec![true, true, true, false, true]));
        let (offsets, sizes) = ([6, 4, 5, 0, 0], [2, 2, 2, 0, 1]);
        let small = ListViewArray::new(
            field.clone(),
            offsets.to_vec().into(),
            sizes.to_vec().into(),
            values.clone(),
            nulls.clone(),
        );
        let (offsets, sizes) = (offsets.map(i64::from), sizes.map(i64::from));
        let large = LargeListViewArray::new(field, offsets.to_vec().into(), sizes.to_vec().into(), values, nulls);
        let columns: [ArrayRef; 2] = [Arc::new(small), Arc::new(large)];
        let folder = Folder::new();
        for column in columns {
            for name in TABLE_FORMATS {
                let whole = table(&[("v", column.clone())]);
                write_tables(&folder, name, &[whole.slice(0, 2), whole.slice(2, 3)]);
                let source = folder.open(&[name]).unwrap();
                assert_eq!(source.info().vectors, VectorType { element: Element::F32, dimensions: 2 });
                for batch_bytes in [1, 1 << 20] {
                    let all = read_all(source.as_ref(), batch_bytes);
                    assert_eq!(all.faults, [(3, Fault::Null), (4, Fault::Length(1))], "{name}");
                    let expected = [6f32, 7.0, 4.0, 5.0, 5.0, 6.0, 0.0, 0.0, 0.0, 0.0];
                    assert_eq!(all.bytes, expected.map(f32::to_le_bytes).concat());
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
        let ids = IdChoice::Column("key".into());
        let options = SourceOptions { vector_column: Some("b".into()), ids, split: None };
        for name in TABLE_FORMATS {
            write_tables(&folder, name, &[table(&columns)]);
            let all = read_all(folder.open_with(&[name], &options).unwrap().as_ref(), 100);
            assert_eq!((all.bytes, all.ids), ([2f32, 3.0].map(f32::to_le_bytes).concat(), Ids::Int64(vec![7])));
        }
        refused_with(&columns, None, None, "several columns hold vectors; pass vector-column NAME (one of: a, b)");
        refused_with(
            &columns[2..3],
            None,
            None,
            "no column holds vectors, lists of f32, f16, f64, u8 or i8; its columns are key (Int32)",
        );
        refused_with(&columns, Some("c"), None, "there is no column c; its columns are id (Float32), a (List(Float32");
        refused_with(&columns, Some("key"), None, "column key is Int32, not a list of f32");
        refused_with(&columns, Some("a"), Some("c"), "there is no column c");
    }

    #[test]
    fn refuses_sets_without_valid_dimensions() {
        refused_with(&[("v", fixed(Arc::new(Float32Array::from(vec![0.0; 0])), 0))], None, None, "have 0 dimensions");
        refused_with(&[("v", rows(&[Some(&[])]))], None, None, "no row has a vector");
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
    fn the_first_nonempty_list_decides_the_dimensions() {
        let folder = Folder::new();
        for name in TABLE_FORMATS {
            let first = rows(&[None, Some(&[]), Some(&[1.0, 2.0]), Some(&[3.0])]);
            write_tables(&folder, &format!("0-{name}"), &[table(&[("v", first)])]);
            write_tables(&folder, &format!("1-{name}"), &[table(&[("v", rows(&[Some(&[4.0]), Some(&[5.0, 6.0])]))])]);
            let all = read_all(folder.open(&[&format!("?-{name}")]).unwrap().as_ref(), 1 << 20);
            let lengths = [(1, 0), (3, 1), (4, 1)].map(|(row, length)| (row, Fault::Length(length)));
            assert_eq!(all.faults, [&[(0, Fault::Null)], &lengths[..]].concat());
            assert_eq!(all.bytes[40..], [5f32, 6.0].map(f32::to_le_bytes).concat());
        }
    }

    #[test]
    fn doubles_beyond_f32_are_distinguished_from_infinity() {
        let folder = Folder::new();
        let doubles = Float64Array::from(vec![1e300, 1.0, f64::INFINITY, 1.0, 1.0, -3.5e38, f64::NAN, 3.4e38]);
        for name in TABLE_FORMATS {
            write_tables(&folder, name, &[table(&[("v", fixed(Arc::new(doubles.clone()), 2))])]);
            let all = read_all(folder.open(&[name]).unwrap().as_ref(), 1 << 20);
            let too_large = |at, value| Fault::TooLarge { at, value };
            assert_eq!(all.faults, [(0, too_large(0, 1e300)), (2, too_large(1, -3.5e38))]);
            assert_eq!(all.bytes[16..24], [0; 8]);
        }
    }

    #[test]
    fn shards_without_vectors_get_the_dimensions_of_the_others() {
        let folder = Folder::new();
        for name in TABLE_FORMATS {
            write_tables(&folder, &format!("0-{name}"), &[table(&[("v", rows(&[]))])]);
            write_tables(&folder, &format!("1-{name}"), &[table(&[("v", rows(&[None]))])]);
            write_tables(&folder, &format!("2-{name}"), &[table(&[("v", rows(&[Some(&[1.0, 2.0])]))])]);
            let source = folder.open(&[&format!("?-{name}")]).unwrap();
            let all = read_all(source.as_ref(), 1);
            assert_eq!((all.rows, all.faults), (2, vec![(0, Fault::Null)]));
            assert_eq!(source.locate(1), (folder.path(&format!("2-{name}")), 0));
        }
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        write_tables(&folder, "3.parquet", &[table(&[("v", rows(&[Some(&[1.0, 2.0])])), ("id", ids)])]);
        assert!(error_of(folder.open(&["2-a.parquet", "3.parquet"])).contains("differ in ids: none and int64"));
        write_tables(&folder, "4.parquet", &[table(&[("w", rows(&[Some(&[1.0, 2.0])]))])]);
        let message = error_of(folder.open(&["2-a.parquet", "4.parquet"]));
        assert!(message.contains("4.parquet differ in their columns of vectors: v and w"), "{message}");
    }
}
