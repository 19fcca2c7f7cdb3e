//! Columns of rows in answers.

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_json::WriterBuilder;
use arrow_json::writer::LineDelimited;
use arrow_schema::{ArrowError, SchemaRef};

/// Maximum bytes of a value as JSON if it is not text: a number, a date, or a time with its zone.
const TEXT_BYTES_OF_VALUE: u64 = 100;
/// Maximum bytes of JSON per byte of a text or a name. A control character is escaped to six bytes.
const TEXT_BYTES_OF_BYTE: u64 = 6;
/// Bytes of a column in one part, in addition to its values.
const PART_BYTES: u64 = 256;

/// Columns of rows, in parts.
pub(crate) struct Columns {
    pub(crate) schema: SchemaRef,
    pub(crate) parts: Vec<RecordBatch>,
    rows: u64,
    /// Bytes of all values. `part_bytes_max` are the bytes of the values in the largest part.
    bytes: u64,
    part_bytes_max: u64,
}

impl Columns {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self { schema, parts: Vec::new(), rows: 0, bytes: 0, part_bytes_max: 0 }
    }

    /// Adds the columns of the next rows.
    pub(crate) fn push(&mut self, part: RecordBatch) {
        if part.num_rows() == 0 {
            return;
        }
        // Parts are slices of larger tables that other requests share, so only the bytes of the slice are counted.
        let of = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(column.get_array_memory_size());
        let bytes = part.columns().iter().map(of).sum::<usize>() as u64;
        self.rows += part.num_rows() as u64;
        self.bytes += bytes;
        self.part_bytes_max = self.part_bytes_max.max(bytes);
        self.parts.push(part);
    }

    /// Returns the bytes of all parts.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.bytes + PART_BYTES * (self.parts.len() * self.schema.fields().len()) as u64
    }

    /// Returns the maximum bytes for writing the rows as JSON, including the buffer for one part.
    pub(crate) fn text_bytes(&self) -> u64 {
        let names: u64 = self.schema.fields().iter().map(|field| field.name().len() as u64).sum();
        let of_row = TEXT_BYTES_OF_BYTE * names + TEXT_BYTES_OF_VALUE * (1 + self.schema.fields().len() as u64);
        // The text of a part is written to a vector that grows by doubling.
        of_row * self.rows + TEXT_BYTES_OF_BYTE * (self.bytes + 2 * self.part_bytes_max)
    }
}

/// Writes rows as JSON, one after the other.
pub(crate) struct ColumnTexts<'a> {
    parts: std::slice::Iter<'a, RecordBatch>,
    /// The rows of the current part, one per line. `end` is the end of the last line that was written.
    lines: Vec<u8>,
    end: usize,
}

impl<'a> ColumnTexts<'a> {
    pub(crate) fn new(columns: &'a Columns) -> Self {
        Self { parts: columns.parts.iter(), lines: Vec::new(), end: 0 }
    }

    /// Writes the next row as an object.
    ///
    /// # Errors
    /// If there is no next row, or Arrow cannot write a column as JSON.
    pub(crate) fn write_next(&mut self, text: &mut Vec<u8>) -> Result<(), ArrowError> {
        if self.end == self.lines.len() {
            let part = self.parts.next().ok_or_else(|| ArrowError::JsonError("a hit has no columns".into()))?;
            self.lines.clear();
            self.end = 0;
            // By default, objects would lack the names of null values.
            let writer = WriterBuilder::new().with_explicit_nulls(true);
            let mut writer = writer.build::<_, LineDelimited>(&mut self.lines);
            writer.write(part)?;
            writer.finish()?;
        }
        let rest = self.lines.get(self.end..).unwrap_or_default();
        // Line breaks within texts are escaped, so the first one ends the row.
        let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
        text.extend_from_slice(line);
        self.end += line.len() + 1;
        Ok(())
    }
}
