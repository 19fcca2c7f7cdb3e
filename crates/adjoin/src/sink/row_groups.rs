//! Writes the row groups of a Parquet file. Large files are encoded on several threads.

use std::collections::VecDeque;
use std::thread::JoinHandle;

use adjoin_device::Reservation;
use arrow_array::RecordBatch;
use arrow_schema::{Fields, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::{ParquetError, Result};
use parquet::file::writer::SerializedFileWriter;

use crate::base::context::Context;
use crate::base::output::OutputWriter;
use crate::source::slice_bytes;

/// Number of rows in a row group.
pub(super) const ROW_GROUP_ROWS: usize = 128 * 1024;
/// Size of a row group before it is encoded, in bytes. Long ids make row groups shorter.
pub(super) const ROW_GROUP_BYTES: usize = 6 << 20;
/// Maximum number of threads that encode. More would wait for the thread that writes.
const ENCODERS_MAX: usize = 8;
/// Memory of the encoder of a column, in bytes: a page, and the state of its compression.
const COLUMN_BYTES: usize = 384 << 10;
/// Purpose of the memory in error messages.
const PURPOSE: &str = "encoding the result";

/// Threads that encode row groups.
pub(super) struct Encoders {
    threads: usize,
    _memory: Reservation,
}

impl Encoders {
    /// Reserves the memory of threads that encode rows with these columns. Returns `None` if there is only one thread, or
    /// if the memory would be more than one part in `least_parts` of the free memory.
    pub(super) fn in_spare(context: &Context, fields: &Fields, least_parts: u64) -> Option<Self> {
        let threads = context.threads.min(ENCODERS_MAX);
        // One row group is collected while each thread encodes another.
        let bytes = (threads as u64 + 1) * encoding_bytes(fields);
        if threads == 1 || context.budget().free() < least_parts * bytes {
            return None;
        }
        Some(Self { threads, _memory: context.reserve(bytes, PURPOSE).ok()? })
    }
}

/// Returns the memory in bytes of a row group with these columns while a thread encodes it.
fn encoding_bytes(fields: &Fields) -> u64 {
    let width = fields.iter().map(|field| field.data_type().primitive_width()).sum::<Option<usize>>();
    let bytes = match width {
        // Rows are freed as they are encoded, so both together take no more than the rows.
        Some(width) => (ROW_GROUP_ROWS * width).min(ROW_GROUP_BYTES) + fields.len() * COLUMN_BYTES,
        // The pages of a column may be almost as large as all rows.
        None => 2 * ROW_GROUP_BYTES,
    };
    bytes as u64
}

/// Writer of a Parquet file, row group by row group. The bytes of the file do not depend on the number of threads.
pub(super) struct RowGroups {
    context: Context,
    schema: SchemaRef,
    file: SerializedFileWriter<OutputWriter>,
    factory: ArrowRowGroupWriterFactory,
    /// Number of row groups that were begun.
    begun: usize,
    filling: RowGroup,
    rows: usize,
    bytes: u64,
    encoding: EncodedGroups,
    /// `None` before the first row group is full, or if their memory is not free.
    encoders: Option<Encoders>,
}

/// Row groups that threads encode, in order. Dropping them waits for the threads.
#[derive(Default)]
struct EncodedGroups(VecDeque<JoinHandle<Result<Vec<ArrowColumnChunk>>>>);

impl Drop for EncodedGroups {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// A row group that is being filled.
enum RowGroup {
    /// Rows are encoded as they arrive, on the thread that writes.
    Encoded(Vec<ArrowColumnWriter>),
    /// Rows are collected for a thread that will encode them.
    Collected(Vec<RecordBatch>),
}

impl RowGroups {
    /// Creates a writer from one that has written no rows.
    pub(super) fn new(context: &Context, schema: SchemaRef, writer: ArrowWriter<OutputWriter>) -> Result<Self> {
        let (file, factory) = writer.into_serialized_writer()?;
        let filling = RowGroup::Encoded(factory.create_column_writers(0)?);
        let (context, encoding) = (context.clone(), EncodedGroups::default());
        Ok(Self { context, schema, file, factory, begun: 1, filling, rows: 0, bytes: 0, encoding, encoders: None })
    }

    /// Writes rows.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut start = 0;
        while start < batch.num_rows() {
            let rows = (ROW_GROUP_ROWS - self.rows).min(batch.num_rows() - start);
            self.add(batch.slice(start, rows))?;
            start += rows;
        }
        Ok(())
    }

    /// Adds rows to the row group. Ends it if it is full.
    fn add(&mut self, batch: RecordBatch) -> Result<()> {
        self.rows += batch.num_rows();
        self.bytes += slice_bytes(&batch);
        match &mut self.filling {
            RowGroup::Encoded(columns) => encode(&self.schema, columns, &batch)?,
            RowGroup::Collected(batches) => batches.push(batch),
        }
        if self.rows < ROW_GROUP_ROWS && self.bytes < ROW_GROUP_BYTES as u64 {
            return Ok(());
        }
        self.end_row_group()?;
        self.begin_row_group()
    }

    /// Encodes all row groups but the first on these threads.
    pub(super) fn encode_on(&mut self, encoders: Encoders) {
        self.encoders = Some(encoders);
    }

    /// Starts the next row group. Threads encode it if their memory is free: all other parts of the run have reserved
    /// theirs once the first row group is full.
    fn begin_row_group(&mut self) -> Result<()> {
        if self.encoders.is_none() {
            self.encoders = Encoders::in_spare(&self.context, self.schema.fields(), 2);
        }
        self.filling = match self.encoders {
            Some(_) => RowGroup::Collected(Vec::new()),
            None => RowGroup::Encoded(self.factory.create_column_writers(self.begun)?),
        };
        self.begun += 1;
        Ok(())
    }

    /// Ends the row group, and writes those that are encoded.
    fn end_row_group(&mut self) -> Result<()> {
        (self.rows, self.bytes) = (0, 0);
        match std::mem::replace(&mut self.filling, RowGroup::Collected(Vec::new())) {
            RowGroup::Encoded(columns) => {
                let chunks = columns.into_iter().map(ArrowColumnWriter::close).collect::<Result<Vec<_>>>()?;
                self.append(chunks)
            }
            RowGroup::Collected(batches) => {
                if self.encoders.as_ref().is_some_and(|encoders| self.encoding.0.len() == encoders.threads) {
                    self.append_oldest()?;
                }
                let (schema, mut columns) = (self.schema.clone(), self.factory.create_column_writers(self.begun - 1)?);
                let work = move || {
                    batches.into_iter().try_for_each(|batch| encode(&schema, &mut columns, &batch))?;
                    columns.into_iter().map(ArrowColumnWriter::close).collect()
                };
                let thread = std::thread::Builder::new().name("adjoin encoder".to_owned());
                self.encoding.0.push_back(thread.spawn(work).map_err(|error| ParquetError::External(Box::new(error)))?);
                Ok(())
            }
        }
    }

    /// Waits for the oldest row group that threads encode, and writes it.
    fn append_oldest(&mut self) -> Result<()> {
        let Some(thread) = self.encoding.0.pop_front() else { return Ok(()) };
        let chunks = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        self.append(chunks)
    }

    /// Writes an encoded row group.
    fn append(&mut self, chunks: Vec<ArrowColumnChunk>) -> Result<()> {
        let mut row_group = self.file.next_row_group()?;
        chunks.into_iter().try_for_each(|chunk| chunk.append_to_row_group(&mut row_group))?;
        row_group.close().map(drop)
    }

    /// Writes the remaining rows and the footer. Returns the output.
    pub(super) fn into_inner(mut self) -> Result<OutputWriter> {
        if self.rows > 0 {
            self.end_row_group()?;
        }
        while !self.encoding.0.is_empty() {
            self.append_oldest()?;
        }
        self.file.into_inner()
    }
}

/// Encodes rows at the end of columns.
fn encode(schema: &SchemaRef, columns: &mut [ArrowColumnWriter], batch: &RecordBatch) -> Result<()> {
    let mut columns = columns.iter_mut();
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        for leaf in compute_leaves(field, array)? {
            columns.next().expect("each leaf has a column").write(&leaf)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Float32Array, StringArray, UInt64Array};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::super::table::TableWriter;
    use super::*;
    use crate::base::options::Metric;
    use crate::base::output::Target;
    use crate::base::random::Random;
    use crate::source::IdKind;

    /// Returns a batch of pairs, with texts of up to 1,500 bytes as ids if `texts` is set.
    fn batch(random: &mut Random, rows: usize, texts: bool) -> Vec<ArrayRef> {
        let mut ids = || -> ArrayRef {
            if !texts {
                return Arc::new(UInt64Array::from_iter_values((0..rows).map(|_| random.below(1 << 30))));
            }
            let mut text = || format!("{:b}", random.below(1 << 30)).repeat(1 + random.below(50) as usize);
            Arc::new(StringArray::from_iter_values((0..rows).map(|_| text())))
        };
        let (left, right) = (ids(), ids());
        vec![left, right, Arc::new(Float32Array::from_iter_values((0..rows).map(|row| row as f32)))]
    }

    /// Writes `rows` pairs in batches of different sizes, on threads whose memory `search` has, if given. Returns
    /// the bytes of the file.
    fn written(threads: usize, memory: u64, search: Option<&Context>, rows: usize, texts: bool) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pairs.parquet");
        let mut context = Context::default().with_memory(memory);
        context.threads = threads;
        let kind = if texts { IdKind::Utf8 } else { IdKind::None };
        let fields = vec![kind.field("left_id"), kind.field("right_id"), Metric::L2.value_field()];
        let free = context.budget().free();
        let target = Target::File { path: path.clone(), force: false };
        let mut table = TableWriter::create(&context, &target, fields.clone()).unwrap();
        let fields = Fields::from(fields);
        search.into_iter().for_each(|search| table.encode_on(Encoders::in_spare(search, &fields, 8).unwrap()));
        let (mut random, mut left) = (Random::new(1, "pairs"), rows);
        while left > 0 {
            let rows = (1 + random.below(9_000) as usize).min(left);
            table.write(batch(&mut random, rows, texts)).unwrap();
            left -= rows;
        }
        let is_shared = context.budget().free() < free;
        let is_spare = threads > 1 && memory > 60_000_000 && search.is_none();
        assert_eq!(is_shared, is_spare, "{threads} threads, {memory} bytes");
        assert!(search.is_none_or(|search| search.budget().reserved() > 0));
        assert_eq!(table.finish().unwrap().rows, rows as u64);
        assert_eq!(context.budget().free(), free, "the memory of the threads is returned");
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap()).unwrap();
        let groups = reader.metadata().row_groups().to_vec();
        assert!(groups.len() > 3 && groups.iter().all(|group| group.num_rows() <= ROW_GROUP_ROWS as i64));
        assert_eq!(reader.build().unwrap().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), rows);
        std::fs::read(&path).unwrap()
    }

    #[test]
    fn bytes_do_not_depend_on_threads_or_memory() {
        for (rows, texts) in [(5 * ROW_GROUP_ROWS + 1, false), (4 * ROW_GROUP_ROWS, false), (60_000, true)] {
            let wanted = written(1, 1 << 30, None, rows, texts);
            let mut search = Context::default().with_memory(1 << 30);
            search.threads = 2;
            let search = &search;
            for (threads, memory, search) in
                [(2, 1 << 30, None), (5, 1 << 30, None), (2, 30_000_000, None), (2, 30_000_000, Some(search))]
            {
                let bytes = written(threads, memory, search, rows, texts);
                assert!(bytes == wanted, "{rows} rows, {threads} threads, {memory}");
            }
            assert_eq!(search.budget().reserved(), 0, "the memory of the search is returned");
        }
    }
}
