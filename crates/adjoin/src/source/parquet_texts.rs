//! Copies the texts of Parquet columns in pieces of bounded size.
//!
//! A page of a few bytes can represent any amount of text: a dictionary contains each value once, and a thousand rows
//! may repeat it. Therefore texts are first decoded as views, which refer to the bytes of their page. Then they are
//! copied a few rows at a time.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteViewType;
use arrow_array::{Array, ArrayRef, GenericByteViewArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};

/// Amount of text to copy at a time, in bytes. Exceeded only if a single row has more.
pub(super) const COPIED_BYTES: u64 = 256 << 10;

/// Returns metadata with which text columns are decoded as views, except within lists. If the Parquet crate refuses
/// that, returns the metadata unchanged.
pub(super) fn with_views(metadata: &ArrowReaderMetadata) -> ArrowReaderMetadata {
    let fields = view_fields(metadata.schema().fields());
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata.schema().metadata().clone()));
    let viewed =
        ArrowReaderMetadata::try_new(metadata.metadata().clone(), ArrowReaderOptions::new().with_schema(schema));
    // In this case, texts are decoded in full batches. The limits on pages still apply.
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

/// A table with views. Its rows are returned a few at a time, with texts of the types that they have in the file.
pub(super) struct TextPieces {
    table: RecordBatch,
    schema: Arc<Schema>,
    next_row: usize,
}

impl TextPieces {
    /// Creates pieces of a table with views. `types` are the types of its columns in the file.
    pub(super) fn new(table: RecordBatch, types: &[DataType]) -> Self {
        let viewed = table.schema();
        let fields = viewed.fields().iter().zip(types).map(|(field, data)| {
            let data = if is_view(field.data_type()) { data } else { field.data_type() };
            Field::new(field.name(), data.clone(), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Self { table, schema, next_row: 0 }
    }

    /// Returns the next rows. They have at most [`COPIED_BYTES`] bytes of text, or there is only one row. Returns
    /// `None` after the last row.
    ///
    /// # Errors
    /// Fails if a row has more than `row_bytes_max` bytes of text, or if a text is not UTF-8.
    pub(super) fn next_piece(&mut self, row_bytes_max: u64) -> Result<Option<RecordBatch>, ArrowError> {
        let (first, rows) = (self.next_row, self.table.num_rows());
        if first == rows {
            return Ok(None);
        }
        let views: Vec<&ArrayRef> = self.table.columns().iter().filter(|column| is_view(column.data_type())).collect();
        let bytes_of = |row: usize| views.iter().map(|column| text_bytes(column, row)).sum::<u64>();
        let mut sum = bytes_of(first);
        // Checked before texts are copied, since a few bytes of a page may represent any amount of text.
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
        if views.is_null(row) { 0 } else { u64::from(views.views()[row] as u32) } // the low half is the length
    }
    match column.data_type() {
        DataType::Utf8View => of(column.as_string_view(), row),
        DataType::BinaryView => of(column.as_binary_view(), row),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use ::parquet::arrow::ArrowWriter;
    use ::parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
    use adjoin_device::{Device, FileSystem};
    use arrow_array::types::Int32Type;
    use arrow_array::{DictionaryArray, Int32Array, Int64Array, StringArray};

    use super::*;
    use crate::base::context::Context;
    use crate::source::fixtures::{Folder, table};
    use crate::source::nested::ColumnPlace;
    use crate::source::parquet;

    /// Returns the row numbers and text lengths of a file, and the maximum number of bytes of text in one table.
    fn read(
        folder: &Folder,
        table: &RecordBatch,
        properties: WriterPropertiesBuilder,
    ) -> (Vec<i64>, Vec<usize>, usize) {
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, table.schema(), Some(properties.build())).unwrap();
        writer.write(table).unwrap();
        writer.close().unwrap();
        folder.write("a.parquet", &bytes);
        let (path, context) = (folder.path("a.parquet"), Context::default().with_memory(60_000_000));
        let places = [0, 1].map(ColumnPlace::top);
        let file = FileSystem::pread().open(&path).unwrap();
        let (mut numbers, mut lengths, mut most) = (Vec::new(), Vec::new(), 0);
        for piece in parquet::tables(&context, &path, file, &places, 1_024, 0).unwrap() {
            let piece = piece.unwrap();
            numbers.extend_from_slice(piece.column(0).as_primitive::<arrow_array::types::Int64Type>().values());
            let texts = piece.column(1).as_string::<i32>();
            lengths.extend((0..texts.len()).map(|row| texts.value(row).len()));
            most = most.max((0..texts.len()).map(|row| texts.value(row).len()).sum());
        }
        (numbers, lengths, most)
    }

    #[test]
    fn repeated_long_texts_are_decoded_a_few_rows_at_a_time() {
        let folder = Folder::new();
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(["x".repeat(1 << 20)]));
        let texts = DictionaryArray::<Int32Type>::new(Int32Array::from(vec![0; 300]), texts);
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..300));
        let table = table(&[("n", numbers), ("t", Arc::new(texts))]);
        let properties = WriterProperties::builder().set_dictionary_page_size_limit(1 << 30);
        let (numbers, lengths, most) = read(&folder, &table, properties);
        assert_eq!(numbers, Vec::from_iter(0..300));
        assert!(lengths.iter().all(|&length| length == 1 << 20) && most == 1 << 20);
    }

    #[test]
    fn unusually_large_rows_are_decoded_in_small_batches() {
        let folder = Folder::new();
        let of = |row: usize| if row < 600 { format!("{row:0>60000}") } else { row.to_string() };
        let rows = 20_000;
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(of)));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_data_page_size_limit(100_000)
            .set_write_batch_size(1);
        let (numbers, lengths, most) = read(&folder, &table(&[("n", numbers), ("t", texts)]), properties);
        assert_eq!(numbers, Vec::from_iter(0..rows as i64));
        assert_eq!(lengths, Vec::from_iter((0..rows).map(|row| of(row).len())));
        assert!(most <= COPIED_BYTES as usize, "{most} bytes");
    }
}
