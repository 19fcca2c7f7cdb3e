//! Vectors with their ids as a Parquet table, for other tools, and usable as a source.

use std::sync::Arc;

use adjoin_device::Reservation;
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float16Array, Float32Array, Int8Array, RecordBatch, RecordBatchOptions, UInt8Array,
};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use half::f16;

use super::table::{TableFormat, TableWriter, WIDE_ROWS_BYTES};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::options::{Element, VectorType};
use crate::base::output::Target;
use crate::base::report::Written;
use crate::source::{AttributeTables, VectorBatch, VectorSource};

/// Approximate bytes of vectors written at once.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes that the encoder needs per element, for its position and its level in the list.
const BYTES_OF_ELEMENT: u64 = 16;
/// Maximum number of rows that are written at once if there are other columns.
const ROWS_TOGETHER: usize = 1_024;
/// Purpose of the memory, used in error messages.
const PURPOSE: &str = "writing the vectors";

impl Target {
    /// Writes the rows of a source as Parquet: a column `id` (the row number if the source has no ids), a column `vector`
    /// of fixed-size lists, and the source's other columns.
    ///
    /// # Errors
    /// If the name does not end in `.parquet` or is taken, a row has no vector, memory does not suffice, or the disk
    /// fails. The unfinished file is then removed.
    pub fn write_vectors(&self, context: &Context, source: &dyn VectorSource) -> Result<Written> {
        let Some(path) = self.path() else {
            return Err(Error::option("vectors are written to a file, not to standard output; name one"));
        };
        if !TableFormat::of(path).is_ok_and(|format| format == TableFormat::Parquet) {
            let at = path.display();
            return Err(Error::option(format!(
                "{at}: vectors are written as Parquet; give a name that ends in .parquet"
            )));
        }
        let info = source.info();
        let batch = BATCH_BYTES.max(info.vectors.bytes()) as u64;
        let _memory = context.reserve(source.scan_bytes(batch) + writing_bytes(info.vectors), PURPOSE)?;
        let mut fields = vec![info.ids.field("id"), vector_field(info.vectors)];
        let mut others = OtherColumns::of(context, source)?;
        fields.extend(others.schema.fields().iter().map(|field| field.as_ref().clone()));
        let mut table = TableWriter::create(context, self, fields)?;
        context.progress.begin("write", "rows", info.rows);
        let mut scan = source.scan(BATCH_BYTES)?;
        while let Some(batch) = scan.next_batch()? {
            context.cancel.check()?;
            if let Some((row, _)) = batch.faults.first() {
                let (file, row) = source.locate(batch.first_row + *row as u64);
                return Err(Error::input(format!("{}: row {row} has no vector; remove the row", file.display())));
            }
            let VectorBatch { first_row, rows, bytes, ids, .. } = batch;
            let numbers: Vec<u64> = (first_row..first_row + rows as u64).collect();
            let columns = [ids.column(&numbers), vector_column(info.vectors, &bytes)];
            // Batches of vectors and of other columns have different lengths, so each part that is written is the
            // shorter of both.
            let mut done = 0;
            while done < rows {
                let some = others.take(source, rows - done)?;
                let of_rows = columns.iter().map(|column| column.slice(done, some.num_rows()));
                table.write(of_rows.chain(some.columns().iter().cloned()).collect())?;
                done += some.num_rows();
            }
            context.progress.advance(first_row + rows as u64);
        }
        table.finish()
    }
}

/// Returns the bytes that [`Target::write_vectors`] holds in addition to the source and its columns.
pub(crate) fn writing_bytes(vectors: VectorType) -> u64 {
    let batch = BATCH_BYTES.max(vectors.bytes()) as u64;
    3 * batch + batch / vectors.element.bytes() as u64 * BYTES_OF_ELEMENT + WIDE_ROWS_BYTES
}

/// The other columns of a source, in order.
struct OtherColumns<'a> {
    context: &'a Context,
    schema: SchemaRef,
    /// `None` if there are no columns.
    tables: Option<AttributeTables<'a>>,
    /// Rows that were read but not taken yet. `memory` is their reservation.
    rest: RecordBatch,
    memory: Reservation,
}

impl<'a> OtherColumns<'a> {
    fn of(context: &'a Context, source: &'a dyn VectorSource) -> Result<Self> {
        let attributes = source.attributes();
        let schema = attributes.map_or_else(|| Ok(Arc::new(Schema::empty())), |attributes| attributes.schema())?;
        let tables = attributes.map(|attributes| attributes.tables(context)).transpose()?;
        let (rest, memory) = (RecordBatch::new_empty(schema.clone()), context.reserve(0, PURPOSE)?);
        Ok(Self { context, schema, tables, rest, memory })
    }

    /// Takes up to `rows` of the next rows, at least one.
    fn take(&mut self, source: &dyn VectorSource, rows: usize) -> Result<RecordBatch> {
        let Some(tables) = &mut self.tables else {
            let none = RecordBatchOptions::new().with_row_count(Some(rows));
            let taken = RecordBatch::try_new_with_options(self.schema.clone(), Vec::new(), &none);
            return taken.map_err(|error| Error::input(error.to_string()));
        };
        while self.rest.num_rows() == 0 {
            let Some(table) = tables.next().transpose()? else {
                let at = source.locate(0).0;
                return Err(Error::corrupt(format!("{}: its columns have fewer rows than its vectors", at.display())));
            };
            // Twice, for the decoded table and for its encoded form.
            self.context.grow(&mut self.memory, 2 * table.get_array_memory_size() as u64, PURPOSE)?;
            self.rest = table;
        }
        let some = rows.min(self.rest.num_rows()).min(ROWS_TOGETHER);
        let taken = self.rest.slice(0, some);
        self.rest = self.rest.slice(some, self.rest.num_rows() - some);
        Ok(taken)
    }
}

fn element_type(element: Element) -> DataType {
    match element {
        Element::F32 => DataType::Float32,
        Element::F16 => DataType::Float16,
        Element::U8 => DataType::UInt8,
        Element::I8 => DataType::Int8,
    }
}

fn element_field(vectors: VectorType) -> FieldRef {
    Arc::new(Field::new("element", element_type(vectors.element), false))
}

/// Returns the field of a column of vectors.
pub(crate) fn vector_field(vectors: VectorType) -> Field {
    let list = DataType::FixedSizeList(element_field(vectors), vectors.dimensions as i32);
    Field::new("vector", list, false)
}

/// Converts stored vectors to a column of vectors.
pub(crate) fn vector_column(vectors: VectorType, stored: &[u8]) -> ArrayRef {
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
    Arc::new(FixedSizeListArray::new(element_field(vectors), vectors.dimensions as i32, elements, None))
}
