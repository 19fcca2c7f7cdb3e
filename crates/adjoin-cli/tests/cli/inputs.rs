//! Small inputs, written byte by byte or with the Parquet crate.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;

/// Returns the path of a file of 24,000 embeddings with names. It has 35,159 pairs with a cosine of at least 0.9.
pub(crate) fn sample() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sample.parquet").into()
}

/// Returns a file of f32 vectors. Its header has the number of vectors and the number of dimensions.
pub(crate) fn fbin(dimensions: usize, elements: &[f32]) -> Vec<u8> {
    let counts = [elements.len() / dimensions, dimensions].map(|count| (count as u32).to_le_bytes()).concat();
    [counts, elements.iter().flat_map(|element| element.to_le_bytes()).collect()].concat()
}

/// Returns a NumPy file with this header.
pub(crate) fn npy(header: &str, elements: &[u8]) -> Vec<u8> {
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let header = format!("{header:<width$}\n", width = padded - 1);
    [b"\x93NUMPY\x01\x00", &(padded as u16).to_le_bytes()[..], header.as_bytes(), elements].concat()
}

/// A vector of a Parquet file. `None` stands for null.
pub(crate) type Vector = Option<[f32; 2]>;

/// Writes a Parquet file with the columns `key` and `embedding`.
pub(crate) fn write_parquet(path: &Path, rows: &[(&str, Vector)]) {
    let keys: StringArray = rows.iter().map(|(key, _)| Some(*key)).collect();
    let vectors = rows.iter().map(|(_, vector)| vector.map(|vector| vector.map(Some)));
    let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2);
    write_columns(path, &[("key", Arc::new(keys)), ("embedding", Arc::new(vectors))]);
}

/// Writes a Parquet file of these columns.
pub(crate) fn write_columns(path: &Path, columns: &[(&str, ArrayRef)]) {
    let columns = columns.iter().map(|(name, column)| (*name, column.clone(), true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Returns the sorted lines of a table without its header.
pub(crate) fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().skip(1).collect();
    lines.sort_unstable();
    lines
}
