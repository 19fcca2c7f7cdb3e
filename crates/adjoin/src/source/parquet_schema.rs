//! Determines the types in which the columns of a Parquet file are read.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::LogicalType;
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};

use super::id_column::UUID_EXTENSION;
use super::nested::ColumnPlace;

/// Start of the metadata keys that adjoin writes.
const OWN_KEYS: &str = "adjoin.";

/// Changes the schema so that dictionaries are read as plain values. Pages of Parquet have their own dictionaries,
/// from which the dictionaries of Arrow, such as a pandas categorical, would have to be rebuilt. Some dictionaries of
/// Polars cannot be read at all.
pub(super) fn plain_columns(metadata: ArrowReaderMetadata) -> Result<ArrowReaderMetadata, ParquetError> {
    let schema = metadata.schema();
    let fields = plain_fields(schema.fields());
    // Most files have no such columns, and decoding the metadata again takes time.
    if fields == *schema.fields() {
        return Ok(metadata);
    }
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    ArrowReaderMetadata::try_new(metadata.metadata().clone(), ArrowReaderOptions::new().with_schema(schema))
}

fn plain_fields(fields: &Fields) -> Fields {
    let plain = |field: &FieldRef| match field.data_type() {
        DataType::Dictionary(_, values) => Arc::new(field.as_ref().clone().with_data_type(values.as_ref().clone())),
        DataType::Struct(inner) => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::Struct(plain_fields(inner))))
        }
        _ => field.clone(),
    };
    fields.iter().map(plain).collect()
}

/// Returns the schema in which UUID columns are marked. Only the types of Parquet distinguish UUIDs from other bytes.
pub(super) fn schema_with_uuids(metadata: &ArrowReaderMetadata) -> Schema {
    let types = metadata.parquet_schema().root_schema().get_fields();
    Schema::new(marked(metadata.schema().fields(), types))
}

/// Returns the metadata that adjoin wrote. Metadata of other programs is left out, since it may have any size.
pub(super) fn own_metadata(metadata: &ArrowReaderMetadata) -> HashMap<String, String> {
    let written = metadata.metadata().file_metadata().key_value_metadata().into_iter().flatten();
    let own = written.filter(|entry| entry.key.starts_with(OWN_KEYS));
    own.map(|entry| (entry.key.clone(), entry.value.clone().unwrap_or_default())).collect()
}

fn marked(fields: &Fields, types: &[TypePtr]) -> Fields {
    let marked = |(index, field): (usize, &FieldRef)| {
        let stored = types.get(index);
        let logical = stored.and_then(|stored| stored.get_basic_info().logical_type_ref());
        let mut field = field.as_ref().clone();
        // Arrow represents a UUID as 16 bytes. The extension type distinguishes it from other values of this length.
        if logical == Some(&LogicalType::Uuid) {
            field.metadata_mut().insert(EXTENSION_TYPE_NAME_KEY.to_owned(), UUID_EXTENSION.to_owned());
        }
        match (field.data_type(), stored) {
            (DataType::Struct(inner), Some(stored)) if stored.is_group() => {
                let inner = self::marked(inner, stored.get_fields());
                field.with_data_type(DataType::Struct(inner))
            }
            _ => field,
        }
    };
    fields.iter().enumerate().map(marked).collect::<Vec<Field>>().into()
}

/// Returns the numbers of the Parquet columns that make up a column of the table. A struct is a group with the same
/// fields. The range is empty if the file does not have the column.
pub(super) fn leaves_at(schema: &Type, place: &ColumnPlace) -> Range<usize> {
    let (mut group, mut first) = (schema, 0);
    for step in place.way() {
        let fields = if group.is_group() { group.get_fields() } else { &[] };
        // Leaves are numbered depth first, so the leaves of earlier fields have lower numbers.
        first += fields.iter().take(*step).map(|field| leaf_count(field)).sum::<usize>();
        let Some(field) = fields.get(*step) else { return first..first };
        group = field;
    }
    first..first + leaf_count(group)
}

fn leaf_count(field: &Type) -> usize {
    if field.is_group() { field.get_fields().iter().map(|field| leaf_count(field)).sum() } else { 1 }
}

#[cfg(test)]
mod tests {
    use parquet::column::writer::ColumnWriter;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::base::options::{Element, VectorType};
    use crate::source::fixtures::{Folder, read_all};

    /// Creates a file with three lists of two floats. The definition of the field is `field`. Elements in the list
    /// column have the definition level `level`.
    fn lists(field: &str, level: i16, values: &[f32]) -> Vec<u8> {
        let schema = Arc::new(parse_message_type(&format!("message m {{ {field} }}")).unwrap());
        let mut bytes = Vec::new();
        let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
        let mut group = file.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let ColumnWriter::FloatColumnWriter(elements) = column.untyped() else { unreachable!() };
        elements.write_batch(values, Some(&[level; 6]), Some(&[0, 1, 0, 1, 0, 1])).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        file.close().unwrap();
        bytes
    }

    /// Checks the forms that lists had before the format had a rule for them:
    /// <https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#lists>.
    #[test]
    fn lists_of_old_writers_are_read() {
        let folder = Folder::new();
        let values = [0.5, 1.5, 2.5, 3.5, 4.5, 5.5];
        for (writer, field, level) in [
            ("the format", "optional group v (LIST) { repeated group list { optional float element; } }", 3),
            (
                "Hive and old Spark",
                "optional group v (LIST) { repeated group bag { optional float array_element; } }",
                3,
            ),
            ("old Spark, no nulls", "optional group v (LIST) { repeated float array; }", 2),
            ("Avro", "required group v (LIST) { repeated float array; }", 1),
            ("Thrift", "optional group v (LIST) { repeated float v_tuple; }", 2),
            ("old pyarrow", "optional group v (LIST) { repeated group list { optional float item; } }", 3),
            ("Protocol Buffers", "repeated float v;", 1),
        ] {
            folder.write("a.parquet", &lists(field, level, &values));
            let source = folder.open(&["a.parquet"]).unwrap_or_else(|error| panic!("{writer}: {error}"));
            assert_eq!(source.info().vectors, VectorType { element: Element::F32, dimensions: 2 }, "{writer}");
            let all = read_all(source.as_ref(), 1 << 20);
            assert_eq!((all.rows, all.bytes), (3, values.map(f32::to_le_bytes).concat()), "{writer}");
        }
    }
}
