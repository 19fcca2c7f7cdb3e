//! Result tables as Parquet, CSV or JSON lines.

use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use adjoin_device::WRITE_BUFFER_BYTES;
use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::row_groups::{Encoders, ROW_GROUP_BYTES, ROW_GROUP_ROWS, RowGroups};
use crate::base::context::Context;
use crate::base::error::{Error, Result, device_failure};
use crate::base::options::Metric;
use crate::base::output::{Draft, OutputWriter, Target};
use crate::base::report::Written;
use crate::source::{IdKind, Ids};

/// Maximum uncompressed bytes of a page of text ids, and number of ids after which the size is checked. By default,
/// it is checked after a thousand ids, so pages of long ids would be large.
const TEXT_PAGE_BYTES: usize = 256 << 10;
const TEXT_PAGE_CHECKED: usize = 64;
/// Maximum number of rows of a page, and number of numbers that are written to it at once. The buffer of a page doubles as
/// it grows. With these numbers, it stays below 64 KiB. Each larger buffer would be a mapping of its own, and system calls
/// and page faults would take a fifth of the encoding time. Smaller pages take longer to compress, and make larger files.
const PAGE_ROWS: usize = 8000;
const ROWS_AT_ONCE: usize = 1000;
/// Maximum number of row groups of a Parquet file, since they are numbered with 16 bits.
const ROW_GROUPS_MAX: u64 = i16::MAX as u64;
/// Bytes of metadata that the writer holds until the end of the file, per row group with three columns.
const ROW_GROUP_METADATA_BYTES: u64 = 4 << 10;
/// Bytes of text that are buffered before they are written.
const TEXT_BUFFER_BYTES: usize = 1 << 18;
/// Memory for rows in transit to a table, and for encoding and compression.
const ENCODING_BYTES: u64 = 1 << 20;
/// Memory for writing a Parquet file with rows of any width.
pub(crate) const WIDE_ROWS_BYTES: u64 = (WRITE_BUFFER_BYTES + ROW_GROUP_BYTES) as u64 + ENCODING_BYTES;
/// Bytes of a row without text ids: at most two ids and a value.
const NUMBERS_BYTES: usize = 20;

/// Format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object per line.
    JsonLines,
}

impl TableFormat {
    /// Returns the format for a file's extension.
    ///
    /// # Errors
    /// If the extension is unknown.
    pub fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("parquet") => Ok(Self::Parquet),
            Some("csv") => Ok(Self::Csv),
            Some("jsonl" | "ndjson") => Ok(Self::JsonLines),
            _ => Err(Error::option(format!(
                "{}: a result is written as .parquet, .csv or .jsonl, or - for standard output",
                path.display()
            ))),
        }
    }

    /// Approximate bytes of a Parquet file without rows. `parquet_bytes_of_a_pair` are the bytes of a pair in a file
    /// of many pairs; they compress better than [`TableFormat::bytes_of_a_pair`] assumes. `id_bytes` is the length of
    /// a text id, or 0 if there are no text ids.
    pub(crate) const PARQUET_BYTES: f64 = 1_600.0;
    pub(crate) fn parquet_bytes_of_a_pair(id_bytes: f64) -> f64 {
        5.6 + (id_bytes - 8.0).max(0.0) / 4.0
    }

    /// Returns the approximate bytes of a pair. Assumes that text ids have the length of URLs, and that Parquet is
    /// compressed.
    pub fn bytes_of_a_pair(self, ids: [IdKind; 2]) -> u64 {
        let ids = ids.map(|ids| if ids == IdKind::Utf8 { 40 } else { 8 }).iter().sum::<u64>();
        match self {
            Self::Parquet => ids / 2 + 4,
            Self::Csv => ids + 10,
            Self::JsonLines => ids + 40,
        }
    }
}

type Text = BufWriter<OutputWriter>;

enum Writer {
    Parquet(Box<RowGroups>),
    Csv(Box<arrow_csv::Writer<Text>>),
    JsonLines(Box<arrow_json::LineDelimitedWriter<Text>>),
}

/// Writer of a result that appears completely or not at all.
pub(crate) struct TableWriter {
    writer: Writer,
    schema: SchemaRef,
    draft: Option<Draft>,
    rows: u64,
    written: Arc<AtomicU64>,
    place: Place,
}

/// Memory of a table.
pub(crate) struct TableBytes {
    /// Bytes that are held from the creation of the table on.
    pub(crate) begun: u64,
    /// Bytes that are held while rows are written.
    pub(crate) written: u64,
}

/// Location of a result, for messages.
struct Place {
    name: String,
    reader_gone: Arc<AtomicBool>,
}

impl TableWriter {
    /// Returns the memory of a table whose ids have the kind `ids`.
    ///
    /// # Errors
    /// If the extension is unknown.
    pub(crate) fn memory_bytes(target: &Target, ids: IdKind) -> Result<TableBytes> {
        let format = target.path().map_or(Ok(TableFormat::Csv), TableFormat::of)?;
        let begun = (WRITE_BUFFER_BYTES + TEXT_BUFFER_BYTES) as u64;
        let gathered = match (format, ids) {
            (TableFormat::Parquet, IdKind::Utf8) => ROW_GROUP_BYTES,
            (TableFormat::Parquet, _) => ROW_GROUP_ROWS * NUMBERS_BYTES,
            (TableFormat::Csv | TableFormat::JsonLines, _) => 0,
        };
        Ok(TableBytes { begun, written: begun + gathered as u64 + ENCODING_BYTES })
    }

    /// Returns the memory for the metadata of a Parquet file, which is held until the end of the file. The file has
    /// `rows` rows of `row_bytes` bytes.
    pub(crate) fn metadata_bytes(rows: u64, row_bytes: u64) -> u64 {
        let in_group = (ROW_GROUP_BYTES as u64 / row_bytes.max(1)).clamp(1, ROW_GROUP_ROWS as u64);
        (rows / in_group).min(ROW_GROUPS_MAX) * ROW_GROUP_METADATA_BYTES
    }

    /// Creates the result.
    ///
    /// # Errors
    /// If the name is taken, its extension is unknown, or the folder may not be written.
    pub(crate) fn create(context: &Context, target: &Target, fields: Vec<Field>) -> Result<Self> {
        Self::create_of(context, target, Schema::new(fields))
    }

    /// Starts a result whose schema has metadata, which only Parquet keeps.
    ///
    /// # Errors
    /// As [`TableWriter::create`].
    pub(crate) fn create_of(context: &Context, target: &Target, schema: Schema) -> Result<Self> {
        let schema = Arc::new(schema);
        let (format, draft, output, name) = match target {
            Target::Standard { outlives_reader } => {
                let output = OutputWriter::standard(context, *outlives_reader);
                (TableFormat::Csv, None, output, "standard output".to_owned())
            }
            Target::File { path, force } => {
                // Before the draft is created, so that a wrong name leaves nothing behind.
                let format = TableFormat::of(path)?;
                let (draft, output) = Draft::create(context, path, *force)?;
                (format, Some(draft), output, path.display().to_string())
            }
        };
        let written = output.written();
        let place = Place { name, reader_gone: output.reader_gone() };
        let writer = match format {
            TableFormat::Parquet => {
                let writer = parquet_writer(output, &schema, &place)?;
                let row_groups = RowGroups::new(context, schema.clone(), writer);
                Writer::Parquet(Box::new(row_groups.map_err(|error| place.failed(error))?))
            }
            TableFormat::Csv => Writer::Csv(Box::new(arrow_csv::Writer::new(text(output)))),
            TableFormat::JsonLines => {
                // Without this, an object would lack the names whose values are null.
                let lines = arrow_json::WriterBuilder::new().with_explicit_nulls(true);
                Writer::JsonLines(Box::new(lines.build(text(output))))
            }
        };
        let empty = RecordBatch::new_empty(schema.clone());
        let mut writer = Self { writer, schema, draft, rows: 0, written, place };
        writer.write_batch(&empty)?; // writes the header line even if no row follows
        Ok(writer)
    }

    /// Encodes a Parquet file on other threads.
    pub(super) fn encode_on(&mut self, encoders: Encoders) {
        if let Writer::Parquet(writer) = &mut self.writer {
            writer.encode_on(encoders);
        }
    }

    /// Writes rows, column by column.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn write(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        self.write_batch(&RecordBatch::try_new(self.schema.clone(), columns).expect("columns are made for the schema"))
    }

    fn write_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        match &mut self.writer {
            Writer::Parquet(writer) => writer.write(batch).map_err(|error| self.place.failed(error)),
            Writer::Csv(writer) => writer.write(batch).map_err(|error| self.place.failed(error)),
            Writer::JsonLines(writer) => writer.write(batch).map_err(|error| self.place.failed(error)),
        }
    }

    /// Completes the result, and makes it appear.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn finish(self) -> Result<Written> {
        self.end()?.publish()
    }

    /// Completes the result, which is then on disk but has no name yet.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn end(self) -> Result<Ended> {
        let place = self.place;
        let end_text = |text: Text| text.into_inner().map_err(|error| place.failed(error.into_error()));
        let output = match self.writer {
            Writer::Parquet(writer) => writer.into_inner().map_err(|error| place.failed(error))?,
            Writer::Csv(writer) => end_text(writer.into_inner())?,
            Writer::JsonLines(mut writer) => {
                writer.finish().map_err(|error| place.failed(error))?;
                end_text(writer.into_inner())?
            }
        };
        // Durable before it gets its name, so that a loss of power cannot leave a name without contents.
        output.sync()?;
        let bytes = self.written.load(Ordering::Relaxed);
        Ok(Ended { draft: self.draft, written: Written { rows: self.rows, bytes, ..Written::default() } })
    }
}

/// A complete result without a name.
pub(crate) struct Ended {
    draft: Option<Draft>,
    written: Written,
}

impl Ended {
    /// Makes the result appear.
    ///
    /// # Errors
    /// If the name has been taken meanwhile, or the disk fails.
    pub(crate) fn publish(self) -> Result<Written> {
        self.draft.map_or(Ok(()), Draft::publish)?;
        Ok(self.written)
    }
}

impl Place {
    fn failed(&self, error: impl std::error::Error + Send + Sync + 'static) -> Error {
        // A pipe that its reader has closed, as `head` does, is not an error of this program.
        if self.reader_gone.load(Ordering::Relaxed) {
            return Error::reader_gone().caused_by(error);
        }
        let failed = device_failure(&error);
        let failed = failed.unwrap_or_else(|| Error::device(format!("cannot write {}: {error}", self.name)));
        failed.caused_by(error)
    }
}

/// Adds columns of rows to the fields of a result. A column with the name of an earlier field, such as `id`, is called
/// `columns.id`.
pub(crate) fn add_columns(fields: &mut Vec<Field>, columns: &Schema) {
    for column in columns.fields() {
        let mut name = column.name().clone();
        while fields.iter().any(|field| *field.name() == name) {
            name = format!("columns.{name}");
        }
        fields.push(column.as_ref().clone().with_name(name));
    }
}

fn text(output: OutputWriter) -> Text {
    BufWriter::with_capacity(TEXT_BUFFER_BYTES, output)
}

fn parquet_writer(output: OutputWriter, schema: &SchemaRef, place: &Place) -> Result<ArrowWriter<OutputWriter>> {
    let metadata = schema.metadata().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(metadata.collect()).filter(|metadata: &Vec<KeyValue>| !metadata.is_empty()))
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(ROWS_AT_ONCE)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        // Statistics of pages are disabled: they would be held until the end of the file, and would exceed the pages
        // in size.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    let has_texts = schema.fields().iter().any(|field| *field.data_type() == DataType::Utf8);
    let properties = match has_texts {
        true => properties.set_data_page_size_limit(TEXT_PAGE_BYTES).set_write_batch_size(TEXT_PAGE_CHECKED),
        false => properties,
    };
    ArrowWriter::try_new(output, schema.clone(), Some(properties.build())).map_err(|error| place.failed(error))
}

impl Metric {
    /// Returns the field of the column with the distances, similarities or scores.
    pub fn value_field(self) -> Field {
        let name = match self {
            Metric::L2 => "distance",
            Metric::Cosine => "similarity",
            Metric::Ip => "score",
        };
        Field::new(name, DataType::Float32, false)
    }
}

impl IdKind {
    /// Returns the field of a column of ids, or of row numbers if there are none.
    pub fn field(self, name: &str) -> Field {
        let data = match self {
            IdKind::None => DataType::UInt64,
            IdKind::Int64 => DataType::Int64,
            IdKind::Utf8 => DataType::Utf8,
        };
        Field::new(name, data, false)
    }
}

impl Ids {
    /// Returns the ids as a column of a table. If there are no ids, returns the row numbers `rows`.
    pub fn column(&self, rows: &[u64]) -> ArrayRef {
        match self {
            Ids::None => Arc::new(UInt64Array::from(rows.to_vec())),
            Ids::Int64(ids) => Arc::new(Int64Array::from(ids.clone())),
            Ids::Utf8(texts) => {
                // The column is allocated with its exact size, since a growing column of long ids would take twice
                // its bytes.
                let mut column = StringBuilder::with_capacity(texts.len(), texts.bytes());
                (0..texts.len()).for_each(|k| column.append_value(String::from_utf8_lossy(texts.get(k))));
                Arc::new(column.finish())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::StringArray;
    use parquet::file::metadata::ParquetMetaDataReader;

    use super::*;
    use crate::base::random::Random;

    /// Checks that the metadata that is held until the end of the file fits into its reservation, even with long ids.
    #[test]
    fn row_group_metadata_fits_its_reservation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.parquet");
        let target = Target::File { path: path.clone(), force: false };
        let fields = vec![IdKind::Utf8.field("left_id"), IdKind::Utf8.field("right_id"), Metric::L2.value_field()];
        let mut table = TableWriter::create(&Context::default(), &target, fields).unwrap();
        let mut random = Random::new(1, "ids");
        let mut text = || (0..20).map(|_| format!("{:016x}", random.below(u64::MAX))).collect::<String>();
        for _ in 0..30 {
            let [left, right] = [(); 2].map(|()| StringArray::from_iter_values((0..1_000).map(|_| text())));
            let values = arrow_array::Float32Array::from(vec![0.5; 1_000]);
            table.write(vec![Arc::new(left), Arc::new(right), Arc::new(values)]).unwrap();
        }
        table.finish().unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let mut reader =
            ParquetMetaDataReader::new().with_page_index_policy(parquet::file::metadata::PageIndexPolicy::Optional);
        reader.try_parse(&file).unwrap();
        let metadata = reader.finish().unwrap();
        let groups = metadata.num_row_groups() as u64;
        assert!(groups > 1, "{groups} row groups");
        assert!(metadata.memory_size() as u64 / groups < ROW_GROUP_METADATA_BYTES, "{} bytes", metadata.memory_size());
        let chunks = metadata.row_groups().iter().flat_map(|group| group.columns());
        assert!(
            chunks.clone().all(|chunk| chunk.offset_index_offset().is_none() && chunk.column_index_offset().is_none())
        );
        assert_eq!(TableWriter::metadata_bytes(10 * ROW_GROUP_ROWS as u64, 20), 10 * ROW_GROUP_METADATA_BYTES);
    }
}
