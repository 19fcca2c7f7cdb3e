//! What the columns of a Parquet file are read as.

use std::sync::Arc;

use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::LogicalType;
use parquet::errors::ParquetError;

use super::id_column::UUID_EXTENSION;

/// Reads dictionaries as what they hold: Parquet's pages know dictionaries of their own, and those of Arrow, such as a
/// categorical of pandas, would only be made of them again. Some of Polars' could not be read at all.
pub(super) fn plain_columns(metadata: ArrowReaderMetadata) -> Result<ArrowReaderMetadata, ParquetError> {
    let schema = metadata.schema();
    if !schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Dictionary(_, _))) {
        return Ok(metadata);
    }
    let plain = |field: &Arc<Field>| match field.data_type() {
        DataType::Dictionary(_, values) => Arc::new(field.as_ref().clone().with_data_type(values.as_ref().clone())),
        _ => field.clone(),
    };
    let fields: Vec<Arc<Field>> = schema.fields().iter().map(plain).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    ArrowReaderMetadata::try_new(metadata.metadata().clone(), ArrowReaderOptions::new().with_schema(schema))
}

/// The schema, with a mark at columns of UUIDs that only Parquet's own types tell from other bytes.
pub(super) fn schema_with_uuids(metadata: &ArrowReaderMetadata) -> Schema {
    let types = metadata.parquet_schema().root_schema().get_fields();
    let marked = |(index, field): (usize, &Arc<Field>)| {
        let logical = types.get(index).and_then(|stored| stored.get_basic_info().logical_type_ref());
        let mut field = field.as_ref().clone();
        if logical == Some(&LogicalType::Uuid) {
            field.metadata_mut().insert(EXTENSION_TYPE_NAME_KEY.to_owned(), UUID_EXTENSION.to_owned());
        }
        field
    };
    Schema::new(metadata.schema().fields().iter().enumerate().map(marked).collect::<Vec<_>>())
}
