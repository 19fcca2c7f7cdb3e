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

/// How keys of metadata begin that adjoin wrote.
const OWN_KEYS: &str = "adjoin.";

/// Reads dictionaries as plain values. Parquet's pages have dictionaries of their own, and Arrow's dictionaries, such
/// as a categorical of pandas, would only be rebuilt from them. Some dictionaries of Polars could not be read at all.
pub(super) fn plain_columns(metadata: ArrowReaderMetadata) -> Result<ArrowReaderMetadata, ParquetError> {
    let schema = metadata.schema();
    let fields = plain_fields(schema.fields());
    // Most files have no such columns, and decoding the metadata again is not free.
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

/// Returns the schema, with columns of UUIDs marked. Only Parquet's own types distinguish these from other bytes.
pub(super) fn schema_with_uuids(metadata: &ArrowReaderMetadata) -> Schema {
    let types = metadata.parquet_schema().root_schema().get_fields();
    Schema::new(marked(metadata.schema().fields(), types))
}

/// Returns the metadata that adjoin wrote; that of other programs may have any size.
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
        // Arrow has a UUID as 16 bytes. The extension type distinguishes it from other values of this length.
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

/// Returns the Parquet columns of a column of the table. A struct is a group with the same fields; the range is empty
/// if the file differs.
pub(super) fn leaves_at(schema: &Type, place: &ColumnPlace) -> Range<usize> {
    let (mut group, mut first) = (schema, 0);
    for step in place.way() {
        let fields = if group.is_group() { group.get_fields() } else { &[] };
        // Leaves are numbered depth first, so those of earlier fields come before.
        first += fields.iter().take(*step).map(|field| leaf_count(field)).sum::<usize>();
        let Some(field) = fields.get(*step) else { return first..first };
        group = field;
    }
    first..first + leaf_count(group)
}

fn leaf_count(field: &Type) -> usize {
    if field.is_group() { field.get_fields().iter().map(|field| leaf_count(field)).sum() } else { 1 }
}
