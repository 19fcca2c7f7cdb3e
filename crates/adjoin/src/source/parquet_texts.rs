//! Texts of Parquet columns in pieces of bounded size.
//!
//! A page of a few bytes can stand for any amount of text: a dictionary has each value once, and a thousand rows repeat it.
//! Texts are therefore decoded as views, which refer to the bytes of their page, and only some rows at a time are copied out.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteViewType;
use arrow_array::{Array, ArrayRef, GenericByteViewArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};

/// Bytes of texts that are copied out at once, unless a single row has more.
pub(super) const COPIED_BYTES: u64 = 256 << 10;

/// Returns the metadata by which columns of text are decoded as views; those within lists stay as they are. Returns the
/// metadata unchanged if the Parquet crate refuses that.
pub(super) fn with_views(metadata: &ArrowReaderMetadata) -> ArrowReaderMetadata {
    let fields = view_fields(metadata.schema().fields());
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata.schema().metadata().clone()));
    let viewed =
        ArrowReaderMetadata::try_new(metadata.metadata().clone(), ArrowReaderOptions::new().with_schema(schema));
    viewed.unwrap_or_else(|_| metadata.clone())
}

fn view_fields(fields: &Fields) -> Fields {
    let viewed = |field: &FieldRef| {
        let data = match field.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
            DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
            DataType::Struct(inner) => DataType::Struct(view_fields(inner)),
            _ => return field.clone(),
        };
        Arc::new(field.as_ref().clone().with_data_type(data))
    };
    fields.iter().map(viewed).collect()
}

/// A table with views, handed out some rows at a time with texts of the types that the file says.
pub(super) struct TextPieces {
    table: RecordBatch,
    schema: Arc<Schema>,
    next_row: usize,
}

impl TextPieces {
    /// Takes a table whose columns are to become those of the types in `types`.
    pub(super) fn new(table: RecordBatch, types: &[DataType]) -> Self {
        let viewed = table.schema();
        let fields = viewed.fields().iter().zip(types).map(|(field, data)| {
            let data = if is_view(field.data_type()) { data } else { field.data_type() };
            Field::new(field.name(), data.clone(), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Self { table, schema, next_row: 0 }
    }

    /// Returns the next rows: as many as have at most [`COPIED_BYTES`] of text, and at least one. `None` after the last.
    ///
    /// # Errors
    /// If a row has more than `row_bytes_max` bytes of text, or one that is not UTF-8.
    pub(super) fn next_piece(&mut self, row_bytes_max: u64) -> Result<Option<RecordBatch>, ArrowError> {
        let (first, rows) = (self.next_row, self.table.num_rows());
        if first == rows {
            return Ok(None);
        }
        let views: Vec<&ArrayRef> = self.table.columns().iter().filter(|column| is_view(column.data_type())).collect();
        let bytes_of = |row: usize| views.iter().map(|column| text_bytes(column, row)).sum::<u64>();
        let mut sum = bytes_of(first);
        if sum > row_bytes_max.max(COPIED_BYTES) {
            return Err(ArrowError::ParquetError(format!("a row has {sum} bytes of text, more than its pages claim")));
        }
        let mut end = first + 1;
        while end < rows {
            sum += bytes_of(end);
            if sum > COPIED_BYTES {
                break;
            }
            end += 1;
        }
        self.next_row = end;
        let copied = self.table.columns().iter().zip(self.schema.fields()).map(|(column, field)| {
            let part = column.slice(first, end - first);
            if is_view(part.data_type()) { arrow_cast::cast(&part, field.data_type()) } else { Ok(part) }
        });
        let columns = copied.collect::<Result<Vec<ArrayRef>, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(end - first));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map(Some)
    }
}

fn is_view(data: &DataType) -> bool {
    matches!(data, DataType::Utf8View | DataType::BinaryView)
}

fn text_bytes(column: &ArrayRef, row: usize) -> u64 {
    fn of<T: ByteViewType + ?Sized>(views: &GenericByteViewArray<T>, row: usize) -> u64 {
        if views.is_null(row) { 0 } else { u64::from(views.views()[row] as u32) } // the low half of a view is its length
    }
    match column.data_type() {
        DataType::Utf8View => of(column.as_string_view(), row),
        DataType::BinaryView => of(column.as_binary_view(), row),
        _ => 0,
    }
}
