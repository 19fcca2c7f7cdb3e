//! Vectors with their ids as a table: a Parquet file that other tools read, and that is a source again.

use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Float16Array, Float32Array, Int8Array, UInt8Array};
use arrow_schema::{DataType, Field, FieldRef};
use half::f16;

use super::table::{TableFormat, TableWriter, WIDE_ROWS_BYTES, id_column, id_field};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::options::{Element, VectorType};
use crate::output::Target;
use crate::report::Written;
use crate::source::{VectorBatch, VectorSource};

/// Bytes of vectors that are written at once, about.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes that encoding takes for an element: where it lies, and how deep in its list.
const BYTES_OF_ELEMENT: u64 = 16;
/// What memory is for, as a refusal says it.
const PURPOSE: &str = "writing the vectors";

/// Writes the rows of a source as Parquet: a column `id`, the number of the row where it has no ids, and a column `vector` of lists
/// of one length.
///
/// # Errors
/// Where the name does not end in `.parquet`, or is taken; a row has no vector; memory does not suffice; or the disk refuses. Nothing
/// is left of the file then.
pub fn write_vectors(context: &Context, source: &dyn VectorSource, target: &Target) -> Result<Written> {
    let Some(path) = target.path() else {
        return Err(Error::option("vectors are written to a file, not to standard output; name one"));
    };
    if !TableFormat::of(path).is_ok_and(|format| format == TableFormat::Parquet) {
        let at = path.display();
        return Err(Error::option(format!("{at}: vectors are written as Parquet; give a name that ends in .parquet")));
    }
    let info = source.info();
    let batch = BATCH_BYTES.max(info.vectors.bytes()) as u64;
    let elements = batch / info.vectors.element.bytes() as u64;
    let _memory = context
        .reserve(source.scan_bytes(batch) + 3 * batch + elements * BYTES_OF_ELEMENT + WIDE_ROWS_BYTES, PURPOSE)?;
    let element = Arc::new(Field::new("element", element_type(info.vectors.element), false));
    let list = DataType::FixedSizeList(element.clone(), info.vectors.dimensions as i32);
    let fields = vec![id_field("id", info.ids), Field::new("vector", list, false)];
    let mut table = TableWriter::create(context, target, fields)?;
    context.progress.begin("write", "rows", info.rows);
    let mut scan = source.scan(BATCH_BYTES)?;
    while let Some(batch) = scan.next_batch()? {
        context.cancel.check()?;
        if let Some((row, _)) = batch.faults.first() {
            let (file, row) = source.locate(batch.first_row + *row as u64);
            return Err(Error::input(format!("{}: row {row} has no vector; leave it out", file.display())));
        }
        let VectorBatch { first_row, rows, bytes, ids, .. } = batch;
        let numbers: Vec<u64> = (first_row..first_row + rows as u64).collect();
        let vectors = lists(info.vectors, element.clone(), &bytes);
        table.write(vec![id_column(&numbers, &ids), vectors])?;
        context.progress.advance(first_row + rows as u64);
    }
    table.finish()
}

fn element_type(element: Element) -> DataType {
    match element {
        Element::F32 => DataType::Float32,
        Element::F16 => DataType::Float16,
        Element::U8 => DataType::UInt8,
        Element::I8 => DataType::Int8,
    }
}

/// Stored vectors as a column.
fn lists(vectors: VectorType, element: FieldRef, stored: &[u8]) -> ArrayRef {
    let elements: ArrayRef = match vectors.element {
        Element::F32 => {
            let floats = stored.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
            Arc::new(Float32Array::from_iter_values(floats))
        }
        Element::F16 => {
            let floats = stored.as_chunks().0.iter().map(|&bytes| f16::from_le_bytes(bytes));
            Arc::new(Float16Array::from_iter_values(floats))
        }
        Element::U8 => Arc::new(UInt8Array::from(stored.to_vec())),
        Element::I8 => Arc::new(Int8Array::from_iter_values(stored.iter().map(|byte| byte.cast_signed()))),
    };
    Arc::new(FixedSizeListArray::new(element, vectors.dimensions as i32, elements, None))
}
