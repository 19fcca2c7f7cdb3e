//! Reads CSV tables in small batches of records, so that only the current batch is in memory. Vectors cannot be read
//! from CSV.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, Reservation};
use arrow_array::RecordBatch;
use arrow_csv::reader::{Decoder, Format};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};

use super::foreign::guarded;
use super::lines::Lines;
use crate::base::context::Context;
use crate::base::error::Result;

/// Number of records from which the types of columns are inferred, and maximum size of these records in bytes.
const INFERRED_RECORDS: usize = 1_000;
const INFERRED_BYTES: usize = 1 << 20;
/// Maximum number of records to decode at a time, and maximum size of these records in bytes, unless a single record
/// is larger.
const BATCH_RECORDS: usize = 1 << 10;
const BATCH_BYTES: usize = 256 << 10;
/// Bytes that the decoder holds for a field in addition to its contents.
const FIELD_BYTES: usize = 32;
/// Memory for decoding, per byte of a record. It covers the copy of the record, an entry for a field if the byte is a
/// comma, and the column. Each of them may double as it grows.
const DECODED_BYTES_A_BYTE: u64 = 24;
/// Bytes per column in addition to its values: its field, its name, and inferred facts.
const COLUMN_BYTES: u64 = 512;

/// Infers the columns of a file from its first records. Columns in `texts` are read as text, columns in `numbers` as
/// floats.
///
/// # Errors
/// Fails if the file cannot be read, or if its first records do not fit in the budget.
pub(super) fn schema(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    texts: &[&str],
    numbers: &[&str],
) -> Result<SchemaRef> {
    let mut lines = Lines::of_csv(context, path, file)?;
    let mut room = context.reserve((2 * INFERRED_BYTES) as u64, &format!("{}: its first records", path.display()))?;
    let mut first = Vec::new();
    // Reads one more line than records, for the header.
    for _ in 0..=INFERRED_RECORDS {
        let Some(line) = lines.next_line()?.filter(|_| first.len() < INFERRED_BYTES) else { break };
        // Memory for the records, which are in memory twice while they grow, and for the fields of one record, which
        // the library copies.
        let commas = line.bytes.iter().filter(|byte| **byte == b',').count() as u64;
        let record = DECODED_BYTES_A_BYTE * line.bytes.len() as u64 + COLUMN_BYTES * commas;
        let bytes = 2 * (first.len() + line.bytes.len()) as u64 + record;
        context.grow(&mut room, bytes, &format!("{}: record {}", path.display(), line.number))?;
        first.extend_from_slice(line.bytes);
    }
    let format = Format::default().with_header(true);
    let inferred = guarded(path, "its first records", || format.infer_schema(Cursor::new(&first), None))?.0;
    let corrected = |field: &FieldRef| match field.name().as_str() {
        name if numbers.contains(&name) => Field::new(name, DataType::Float64, true),
        name if texts.contains(&name) => Field::new(name, DataType::Utf8, true),
        _ => field.as_ref().clone(),
    };
    Ok(Arc::new(Schema::new(inferred.fields().iter().map(corrected).collect::<Vec<_>>())))
}

/// Returns the bytes held while a file is opened. A file with large first records takes more.
pub(super) fn opening_bytes() -> u64 {
    Lines::of_csv_bytes() + 2 * INFERRED_BYTES as u64
}

/// Returns the bytes held while records are read. A record that is larger than a batch takes more.
pub(super) fn reading_bytes(fields: usize) -> u64 {
    Lines::of_csv_bytes() + decoding_bytes(fields)
}

/// Returns the memory for a batch: its records while they are decoded, and data for each column.
fn decoding_bytes(fields: usize) -> u64 {
    DECODED_BYTES_A_BYTE * BATCH_BYTES as u64 + (COLUMN_BYTES + 2 * FIELD_BYTES as u64) * fields as u64
}

/// Iterator over the records of a file, as tables of some columns.
pub(super) struct CsvTables {
    context: Context,
    path: PathBuf,
    lines: Lines,
    decoder: Decoder,
    room: Reservation,
    records: u64,
}

impl CsvTables {
    /// Creates an iterator over the columns with the indexes `columns`, which ascend.
    ///
    /// # Errors
    /// Fails if a decoded batch does not fit in the budget.
    pub(super) fn new(
        context: &Context,
        path: &Path,
        file: Arc<dyn ReadFile>,
        schema: SchemaRef,
        columns: &[usize],
    ) -> Result<Self> {
        let lines = Lines::of_csv(context, path, file)?;
        let fields = schema.fields().len().max(1);
        // The decoder allocates memory for all fields of all records of a batch. So a table with many columns is
        // decoded in smaller batches.
        let batch_records = (BATCH_BYTES / (FIELD_BYTES * fields)).clamp(1, BATCH_RECORDS);
        let room = context.reserve(decoding_bytes(fields), &format!("{}: its records", path.display()))?;
        let builder = arrow_csv::ReaderBuilder::new(schema).with_format(Format::default().with_header(true));
        let builder = builder.with_batch_size(batch_records).with_projection(columns.to_vec());
        let (context, path, decoder) = (context.clone(), path.to_owned(), builder.build_decoder());
        Ok(Self { context, path, lines, decoder, room, records: 0 })
    }

    fn next_table(&mut self) -> Result<Option<RecordBatch>> {
        let Self { context, path, lines, decoder, room, .. } = self;
        let (mut bytes, mut is_over) = (0, false);
        while decoder.capacity() > 0 && bytes < BATCH_BYTES {
            let place = format!("record {}", self.records);
            let Some(line) = lines.next_line()? else {
                // Signals the end to the decoder, since the last record may lack a line break.
                guarded(path, place, || decoder.decode(&[]))?;
                is_over = true;
                break;
            };
            bytes += line.bytes.len();
            if bytes > BATCH_BYTES {
                context.grow(room, DECODED_BYTES_A_BYTE * bytes as u64, &format!("{}: {place}", path.display()))?;
            }
            let mut rest = line.bytes;
            // Each call of the decoder stops at the end of a record.
            while !rest.is_empty() {
                let taken = guarded(path, &place, || decoder.decode(rest))?;
                rest = &rest[taken..];
            }
            self.records += u64::from(!line.is_blank());
        }
        let place = format!("the records before {}", self.records);
        let table: Option<RecordBatch> = guarded::<_, ArrowError>(path, place, || decoder.flush())?;
        match table {
            None if !is_over => self.next_table(), // only the header was read
            table => Ok(table),
        }
    }
}

impl Iterator for CsvTables {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_table().transpose()
    }
}
