//! Reads CSV tables one record at a time: only the current records are in memory. Vectors are not read from CSV.

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

/// Records from which the types of columns are inferred, and most bytes of these.
const INFERRED_RECORDS: usize = 1_000;
const INFERRED_BYTES: usize = 1 << 20;
/// Most records to decode at a time, and most bytes of them, unless a single record has more.
const BATCH_RECORDS: usize = 1 << 10;
const BATCH_BYTES: usize = 256 << 10;
/// Bytes that the decoder keeps for a field, whatever its length.
const FIELD_BYTES: usize = 32;
/// Memory of decoding, per byte of a record: its copy, its entry among the fields if it is a comma, and the column,
/// each while it grows.
const DECODED_BYTES_A_BYTE: u64 = 24;
/// Bytes of a column in addition to its values: its field, its name, and facts inferred about it.
const COLUMN_BYTES: u64 = 512;

/// Infers the columns of a file from its first records. Columns named in `texts` are texts, columns named in `numbers`
/// are floats.
///
/// # Errors
/// Fails if the file cannot be read, or the budget does not hold its first records.
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
    // One more line than records, for the header.
    for _ in 0..=INFERRED_RECORDS {
        let Some(line) = lines.next_line()?.filter(|_| first.len() < INFERRED_BYTES) else { break };
        // the records, twice while they grow, and the fields of one, which the library copies
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

/// Returns the bytes held while a file is opened, unless its first records are large.
pub(super) fn opening_bytes() -> u64 {
    Lines::of_csv_bytes() + 2 * INFERRED_BYTES as u64
}

/// Returns the bytes held while records are read, unless one is larger than a batch.
pub(super) fn reading_bytes(fields: usize) -> u64 {
    Lines::of_csv_bytes() + decoding_bytes(fields)
}

/// Returns the bytes of a batch: its records while they are decoded, and the data kept for each column.
fn decoding_bytes(fields: usize) -> u64 {
    DECODED_BYTES_A_BYTE * BATCH_BYTES as u64 + (COLUMN_BYTES + 2 * FIELD_BYTES as u64) * fields as u64
}

/// The records of a file as tables of some columns.
pub(super) struct CsvTables {
    context: Context,
    path: PathBuf,
    lines: Lines,
    decoder: Decoder,
    room: Reservation,
    records: u64,
}

impl CsvTables {
    /// Reads the columns at some places, ascending.
    ///
    /// # Errors
    /// Fails if the budget does not hold a decoded batch.
    pub(super) fn new(
        context: &Context,
        path: &Path,
        file: Arc<dyn ReadFile>,
        schema: SchemaRef,
        columns: &[usize],
    ) -> Result<Self> {
        let lines = Lines::of_csv(context, path, file)?;
        let fields = schema.fields().len().max(1);
        // The decoder allocates fields times records at once, so a table with many columns is decoded in smaller
        // batches.
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
                // signal the end to the decoder, since the last record may lack a line break
                guarded(path, place, || decoder.decode(&[]))?;
                is_over = true;
                break;
            };
            bytes += line.bytes.len();
            if bytes > BATCH_BYTES {
                context.grow(room, DECODED_BYTES_A_BYTE * bytes as u64, &format!("{}: {place}", path.display()))?;
            }
            let mut rest = line.bytes;
            // The decoder stops at the end of each record it completes.
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
