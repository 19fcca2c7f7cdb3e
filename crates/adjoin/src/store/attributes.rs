//! Stores columns as a Parquet file, in the order in which the rows are stored. So a filter reads only the columns
//! that it names, and any tool can read the file.
//!
//! Rows arrive in the order of a source and are moved to the positions of their vectors. Until then, they are encoded
//! as bytes (`arrow_row`) in partitions by position, so any budget suffices. The bytes of the file depend neither on
//! memory nor on the order of arrival.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use adjoin_device::{Reservation, WRITE_BUFFER_BYTES, WriteFile};
use arrow_array::RecordBatch;
use arrow_row::{RowConverter, SortField};
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use xxhash_rust::xxh3::Xxh3;

use super::files::{FileFacts, Role};
use super::partitions::{PartitionSizes, Partitions, Records};
use super::publish::Drafts;
use crate::base::context::Context;
use crate::base::error::{Error, Result, device_failure};
use crate::base::row_numbers::{ROW_BYTES, packed, unpacked};
use crate::source::{Attributes, slice_bytes};
use crate::sql::cast;

/// Maximum size of a batch that is encoded at once, in rows and bytes. These limits and the settings of the file
/// determine the bytes of the file.
const BATCH_ROWS: usize = 4_096;
const BATCH_BYTES: usize = 1 << 20;
/// Maximum size of a row group, in rows and bytes.
const ROW_GROUP_ROWS: usize = 128 << 10;
const ROW_GROUP_BYTES: usize = 4 << 20;
/// Maximum size of a page, in bytes. A filter decodes one page at a time of each column that it names.
const PAGE_BYTES: usize = 128 << 10;
/// Bytes reserved per column: for the row group that is being encoded, and for a batch that is added to it.
const COLUMN_BYTES: u64 = 4 * PAGE_BYTES as u64;
/// Number of copies of a batch in memory: its rows as bytes, its columns, and buffers that double as they grow.
const BATCH_COPIES: u64 = 4;
const BATCHES_BYTES: u64 = BATCH_COPIES * BATCH_BYTES as u64;
/// Bounds for reading the file: pages of a column in memory at once, rows decoded at once, bytes of a value without
/// its text, and bytes of the buffers of the file.
const PAGES_AT_ONCE: u64 = 5;
const READ_ROWS: u64 = 1_024;
const VALUE_BYTES: u64 = 24;
const READ_WINDOW_BYTES: u64 = 1 << 20;
/// Bytes that a reader reserves for a page of a column.
const PAGES_READ_BYTES: u64 = 1 << 20;
/// Minimum number of bytes of the rows that are put in order at a time. Each pass over a partition collects that much.
const ORDERED_BYTES: u64 = 2 << 20;
/// Approximate number of rows of a partition, and the maximum number of partitions.
const PARTITION_ROWS: u64 = 128 << 10;
const PARTITIONS_MAX: u64 = 512;
/// Size of the head of an encoded row, in bytes: its position and its length.
const PLACE_BYTES: usize = ROW_BYTES + size_of::<u32>();
/// Purpose of the memory, for messages.
const PURPOSE: &str = "writing the columns";

/// Returns the minimum memory for putting `columns` columns of `rows` rows in order, in bytes. `reading` bytes of it
/// are for reading the columns.
pub(crate) fn least_bytes(rows: u64, columns: usize, reading: u64) -> u64 {
    let partition = rows.div_ceil(partitions(rows));
    let adding = reading + partition * size_of::<u64>() as u64 + BATCHES_BYTES;
    let writing = lengths_bytes(partition) + ORDERED_BYTES + writer_bytes(columns) + BATCHES_BYTES;
    // Adding and writing happen one after the other. The buffers of the partitions are held during both.
    sizes(0, rows).memory_bytes() + adding.max(writing)
}

/// Returns an upper bound on the memory for reading a file of columns that is still to be written, in bytes. The file
/// has `rows` rows, and the columns of a row take `row_bytes` bytes.
pub(super) fn foreseen_reading_bytes(rows: u64, columns: usize, row_bytes: u64) -> u64 {
    let (columns, at_once) = (columns as u64, rows.min(READ_ROWS));
    let group = (ROW_GROUP_BYTES + BATCH_BYTES) as u64;
    let group = group.min(rows.saturating_mul(row_bytes + columns * VALUE_BYTES));
    // In memory are a page and its dictionary, each stored and decoded, the previous page, the pages of a batch, and a
    // copy of their texts. All pages of a column together are at most a row group.
    PAGES_AT_ONCE * group + at_once * (row_bytes + columns * VALUE_BYTES) + READ_WINDOW_BYTES
}

/// Returns an upper bound on the memory for reading single rows of such a file, in bytes. A row takes at most
/// `row_bytes_max` bytes.
pub(super) fn reading_bytes_of_rows(columns: usize, row_bytes_max: u64) -> u64 {
    // A page ends with the row that fills it, so it may exceed its size by one row.
    PAGES_AT_ONCE * (columns as u64 * PAGES_READ_BYTES + row_bytes_max) + READ_WINDOW_BYTES
}

/// Returns the bytes for the length of each row of a partition, and for the end of each row that is put in order.
fn lengths_bytes(rows: u64) -> u64 {
    rows.saturating_mul(size_of::<(u32, u64)>() as u64)
}

fn writer_bytes(columns: usize) -> u64 {
    (WRITE_BUFFER_BYTES + ROW_GROUP_BYTES) as u64 + columns as u64 * COLUMN_BYTES
}

fn partitions(rows: u64) -> u64 {
    rows.div_ceil(PARTITION_ROWS).clamp(1, PARTITIONS_MAX)
}

fn sizes(memory: u64, rows: u64) -> PartitionSizes {
    let partitions = partitions(rows);
    PartitionSizes::within(memory.max(PartitionSizes::least_for(partitions)), partitions)
}

/// Returns the range of numbers within `0..rows` that belong to a partition.
fn range(partition: usize, sizes: PartitionSizes, rows: u64) -> Range<u64> {
    // Rounds up, as the inverse of `partition_of`, which rounds down. Both functions must agree on every number.
    let start = |partition: usize| (partition as u64 * rows).div_ceil(sizes.partitions as u64);
    start(partition)..start(partition + 1)
}

/// Returns the partition of a number.
fn partition_of(number: u64, sizes: PartitionSizes, rows: u64) -> usize {
    (number * sizes.partitions as u64 / rows) as usize
}

/// Rows of columns that are being moved to their positions.
pub(crate) struct Reordering<'a> {
    context: &'a Context,
    schema: SchemaRef,
    converter: RowConverter,
    sizes: PartitionSizes,
    placed: Partitions,
    rows: u64,
    _memory: Reservation,
}

impl<'a> Reordering<'a> {
    /// Prepares to put `rows` rows of the columns in `schema` in order. Leaves `reading` bytes of memory free for
    /// reading them. Rows that do not fit in memory are written to the folder `temporary`.
    ///
    /// # Errors
    /// Fails if memory does not suffice.
    pub(crate) fn new(
        context: &'a Context,
        temporary: &Path,
        schema: &SchemaRef,
        rows: u64,
        reading: u64,
    ) -> Result<Self> {
        let least = least_bytes(rows, schema.fields().len(), reading);
        // Half of the spare memory is for partitions. The other half is for putting rows in order later.
        let spare = context.budget().free().saturating_sub(least);
        let sizes = sizes(spare / 2, rows);
        let memory = context.reserve(sizes.memory_bytes(), PURPOSE)?;
        let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
        let converter = RowConverter::new(fields.collect()).map_err(|error| Error::input(error.to_string()))?;
        let placed = Partitions::new(context, temporary, "attributes", sizes);
        Ok(Self { context, schema: schema.clone(), converter, sizes, placed, rows, _memory: memory })
    }

    /// Casts a table of appended rows to the column types of the store.
    ///
    /// # Errors
    /// Fails if a value cannot be cast.
    fn as_kept(&self, table: &RecordBatch) -> Result<RecordBatch> {
        let columns = table.columns().iter().zip(self.schema.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type())).collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new(self.schema.clone(), columns).map_err(|error| Error::input(error.to_string()))
    }

    /// Adds the rows of a table. `place` returns the position of a row, or `None` to leave the row out.
    ///
    /// # Errors
    /// Fails if a file cannot be written or memory does not suffice.
    pub(crate) fn add(
        &mut self,
        table: &RecordBatch,
        mut place: impl FnMut(usize) -> Result<Option<u64>>,
    ) -> Result<()> {
        let mut first = 0;
        while first < table.num_rows() {
            // Tables of a source may be large, but the encoded rows must fit in the reservation for a batch.
            let part = first_rows(&table.slice(first, table.num_rows() - first));
            self.add_part(&part, |k| place(first + k))?;
            first += part.num_rows();
        }
        Ok(())
    }

    /// Adds a batch of rows, which is encoded at once.
    fn add_part(&mut self, part: &RecordBatch, mut place: impl FnMut(usize) -> Result<Option<u64>>) -> Result<()> {
        let _of_rows = self.context.reserve(BATCH_COPIES * slice_bytes(part), PURPOSE)?;
        let rows = self.converter.convert_columns(part.columns());
        let rows = rows.map_err(|error| Error::input(error.to_string()))?;
        for (k, row) in rows.iter().enumerate() {
            let Some(place) = place(k)? else { continue };
            let length = u32::try_from(row.data().len())
                .map_err(|_| Error::input("the columns of a row take more than 4 GB; keep fewer columns"))?;
            let partition = partition_of(place, self.sizes, self.rows);
            self.placed.push(partition, &[&packed(place), &length.to_le_bytes(), row.data()])?;
        }
        Ok(())
    }

    /// Writes all rows in the order of their positions. Returns the manifest entry of the file, and the number of
    /// bytes that did not fit in memory.
    ///
    /// # Errors
    /// Fails if a position has no row, a file cannot be written, or memory does not suffice.
    pub(crate) fn write(self, drafts: &Drafts<'_>) -> Result<(FileFacts, u64)> {
        let Self { context, schema, converter, sizes, placed, rows, _memory } = self;
        let records = placed.finish()?;
        let mut out = AttributeWriter::create(context, drafts, schema, converter)?;
        context.progress.begin("columns", "rows", rows);
        for partition in 0..sizes.partitions {
            let range = range(partition, sizes, rows);
            each_in_order(context, &records, partition, range.clone(), |row| out.push(row))?;
            context.progress.advance(range.end);
        }
        Ok((out.finish()?, records.spilled()))
    }
}

/// Returns the first rows of a table that take at most [`BATCH_BYTES`], but at least one.
fn first_rows(table: &RecordBatch) -> RecordBatch {
    let mut rows = table.num_rows();
    while rows > 1 && slice_bytes(&table.slice(0, rows)) > BATCH_BYTES as u64 {
        rows = rows.div_ceil(2);
    }
    table.slice(0, rows)
}

/// Splits off the first row. Returns its position, the encoded row, and the remaining records.
fn split(records: &[u8]) -> (u64, &[u8], &[u8]) {
    let (head, rest) = records.split_at(PLACE_BYTES);
    // The length is little-endian, so the last byte is the most significant.
    let length = head[ROW_BYTES..].iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte));
    let (row, rest) = rest.split_at(length);
    (unpacked(&head[..ROW_BYTES]), row, rest)
}

/// Passes the rows of a partition to `take`, in the order of their positions. Each pass over the partition collects as
/// many rows as fit in memory.
fn each_in_order(
    context: &Context,
    records: &Records,
    partition: usize,
    places: Range<u64>,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let count = (places.end - places.start) as usize;
    // The first pass collects the length of each row. The lengths determine where each row is in the buffers of later
    // passes.
    let _of_lengths = context.reserve(lengths_bytes(count as u64), PURPOSE)?;
    let mut lengths = vec![0u32; count];
    each_row(records, partition, |place, row| lengths[(place - places.start) as usize] = row.len() as u32)?;
    // An encoded row has at least one byte per column. So a length of 0 means that no row arrived.
    if let Some(missing) = lengths.iter().position(|&length| length == 0) {
        let place = places.start + missing as u64;
        return Err(Error::input(format!(
            "the row at position {place} has no columns: the source changed while it was read; build again when \
             nothing writes to it"
        )));
    }
    let room = context.budget().free().saturating_sub(BATCHES_BYTES);
    let mut start = 0;
    while start < count {
        context.cancel.check()?;
        let (mut end, mut bytes) = (start, 0);
        // Takes as many rows as fit, but at least one. If that row is larger than the free memory, the reservation
        // below fails.
        let mut ends: Vec<u64> = Vec::with_capacity(count - start);
        while end < count && (end == start || bytes + u64::from(lengths[end]) <= room) {
            bytes += u64::from(lengths[end]);
            ends.push(bytes);
            end += 1;
        }
        let _of_rows = context.reserve(bytes, PURPOSE)?;
        let mut rows = vec![0; bytes as usize];
        each_row(records, partition, |place, row| {
            let at = (place - places.start) as usize;
            if (start..end).contains(&at) {
                let end = ends[at - start] as usize;
                rows[end - row.len()..end].copy_from_slice(row);
            }
        })?;
        let mut from = 0;
        for end in ends {
            take(&rows[from..end as usize])?;
            from = end as usize;
        }
        start = end;
    }
    Ok(())
}

fn each_row(records: &Records, partition: usize, mut take: impl FnMut(u64, &[u8])) -> Result<()> {
    records.read(partition, |mut records| {
        while !records.is_empty() {
            let (place, row, rest) = split(records);
            take(place, row);
            records = rest;
        }
        Ok(())
    })
}

/// The file while it is being written.
struct AttributeWriter<'a> {
    context: &'a Context,
    at: String,
    converter: RowConverter,
    schema: SchemaRef,
    writer: ArrowWriter<Hashed>,
    /// Rows of the current batch, end to end.
    rows: Vec<u8>,
    /// End of each row in `rows`.
    ends: Vec<usize>,
    _memory: Reservation,
}

/// Writer of a file that also computes the checksum of the file.
struct Hashed {
    file: Box<dyn WriteFile>,
    hash: Xxh3,
    bytes: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        // The Parquet writer passes on an I/O error only. `failed` extracts the device's error from it.
        self.file.append(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> AttributeWriter<'a> {
    fn create(context: &'a Context, drafts: &Drafts<'_>, schema: SchemaRef, converter: RowConverter) -> Result<Self> {
        let path = drafts.path(Role::Attributes.file());
        let memory = context.reserve(writer_bytes(schema.fields().len()), PURPOSE)?;
        let file = Hashed { file: context.device.create(&path)?, hash: Xxh3::new(), bytes: 0 };
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
            .set_data_page_size_limit(PAGE_BYTES)
            .set_dictionary_page_size_limit(PAGE_BYTES)
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let at = path.display().to_string();
        let writer = ArrowWriter::try_new(file, schema.clone(), Some(properties));
        let writer = writer.map_err(|error| failed(&at, error))?;
        Ok(Self { context, at, converter, schema, writer, rows: Vec::new(), ends: Vec::new(), _memory: memory })
    }

    fn push(&mut self, row: &[u8]) -> Result<()> {
        self.rows.extend_from_slice(row);
        self.ends.push(self.rows.len());
        if self.ends.len() == BATCH_ROWS || self.rows.len() >= BATCH_BYTES { self.write_batch() } else { Ok(()) }
    }

    fn write_batch(&mut self) -> Result<()> {
        let _of_batch = self.context.reserve((BATCH_COPIES - 1) * self.rows.len() as u64, PURPOSE)?;
        let parser = self.converter.parser();
        let starts = std::iter::once(&0).chain(&self.ends);
        let rows = starts.zip(&self.ends).map(|(&start, &end)| parser.parse(&self.rows[start..end]));
        let columns = self.converter.convert_rows(rows);
        let table = columns.and_then(|columns| RecordBatch::try_new(self.schema.clone(), columns));
        let table = table.map_err(|error| failed(&self.at, error.into()))?;
        self.writer.write(&table).map_err(|error| failed(&self.at, error))?;
        self.rows.clear();
        self.ends.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<FileFacts> {
        if !self.ends.is_empty() {
            self.write_batch()?;
        }
        let Hashed { mut file, hash, bytes } = self.writer.into_inner().map_err(|error| failed(&self.at, error))?;
        file.sync()?;
        let checksum = hash.digest();
        Ok(FileFacts::new(&Role::Attributes.file_of(checksum), bytes, Some(checksum)))
    }
}

fn failed(path: &str, error: ParquetError) -> Error {
    let failed = device_failure(&error);
    failed.unwrap_or_else(|| Error::device(format!("cannot write {path}: {error}"))).caused_by(error)
}

/// Positions of a source's rows in the store. They are recorded while buckets are written.
pub(super) struct RowPlaces {
    sizes: PartitionSizes,
    source_rows: u64,
    /// Row number in the store of the first row of the source. Rows with lower numbers are not from the source.
    first: u64,
    placed: Partitions,
    next: u64,
    memory: Reservation,
}

impl RowPlaces {
    /// Returns the bytes needed while positions are recorded. Looking them up takes more.
    pub(super) fn memory_bytes(source_rows: u64) -> u64 {
        sizes(0, source_rows).memory_bytes()
    }

    /// Creates the map for the rows of a source. `rows` is the range of their row numbers in the store.
    pub(super) fn new(context: &Context, temporary: &Path, rows: Range<u64>) -> Result<Self> {
        let (first, source_rows) = (rows.start, rows.end - rows.start);
        let sizes = sizes(0, source_rows);
        let memory = context.reserve(sizes.memory_bytes(), PURPOSE)?;
        let placed = Partitions::new(context, temporary, "places", sizes);
        Ok(Self { sizes, source_rows, first, placed, next: 0, memory })
    }

    /// Records the rows at the next positions.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn add(&mut self, rows: &[u64]) -> Result<()> {
        for row in rows {
            // Old rows of an append also have positions, but their columns are read from the store.
            if let Some(row) = row.checked_sub(self.first) {
                let partition = partition_of(row, self.sizes, self.source_rows);
                self.placed.push(partition, &[&packed(row), &packed(self.next)])?;
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Writes the columns of all recorded rows to a draft. Reading the columns takes `reading` bytes. Returns the
    /// manifest entry of the file, and the number of bytes that did not fit in memory.
    ///
    /// # Errors
    /// Fails if the source cannot be read or has changed, a file cannot be written, or memory does not suffice.
    pub(super) fn write(
        self,
        context: &Context,
        attributes: &Attributes<'_>,
        reading: u64,
        drafts: &Drafts<'_>,
    ) -> Result<(FileFacts, u64)> {
        let mut reordering = Reordering::new(context, &drafts.temporary(), attributes.schema(), self.next, reading)?;
        let spilled = self.add_to(context, attributes, &mut reordering)?;
        let (facts, more) = reordering.write(drafts)?;
        Ok((facts, spilled + more))
    }

    /// Adds the columns of all recorded rows to `reordering`, which may also hold other rows. Returns the number of
    /// bytes that did not fit in memory.
    ///
    /// # Errors
    /// Fails as [`Self::write`] does.
    pub(super) fn add_to(
        self,
        context: &Context,
        attributes: &Attributes<'_>,
        reordering: &mut Reordering<'_>,
    ) -> Result<u64> {
        let Self { sizes, source_rows, placed, memory: _memory, .. } = self;
        let records = placed.finish()?;
        let places_max = source_rows.div_ceil(sizes.partitions as u64) * size_of::<u64>() as u64;
        let _of_places = context.reserve(places_max, PURPOSE)?;
        let mut lookup = Lookup { records: &records, sizes, source_rows, loaded: 0..0, places: Vec::new() };
        context.progress.begin("columns", "rows", source_rows);
        for table in attributes.tables(context)? {
            let (first, table) = table?;
            reordering.add(&reordering.as_kept(&table)?, |k| lookup.place(first + k as u64))?;
            context.progress.advance(first + table.num_rows() as u64);
        }
        Ok(records.spilled())
    }
}

/// Lookup of the positions of rows. Rows must be looked up in ascending order.
struct Lookup<'a> {
    records: &'a Records,
    sizes: PartitionSizes,
    source_rows: u64,
    /// Range of rows with positions in `places`.
    loaded: Range<u64>,
    places: Vec<u64>,
}

impl Lookup<'_> {
    /// Returns the position of a row; `None` if the store does not contain the row.
    fn place(&mut self, row: u64) -> Result<Option<u64>> {
        if !self.loaded.contains(&row) {
            let partition = partition_of(row, self.sizes, self.source_rows);
            // Rows are looked up in order, so each partition is read once.
            self.loaded = range(partition, self.sizes, self.source_rows);
            let Self { loaded, places, .. } = self;
            places.clear();
            // A row without a position was skipped as unusable, or left out on request.
            places.resize((loaded.end - loaded.start) as usize, u64::MAX);
            self.records.read(partition, |records| {
                for record in records.chunks_exact(2 * ROW_BYTES) {
                    let (row, place) = record.split_at(ROW_BYTES);
                    places[(unpacked(row) - loaded.start) as usize] = unpacked(place);
                }
                Ok(())
            })?;
        }
        Ok(Some(self.places[(row - self.loaded.start) as usize]).filter(|&place| place != u64::MAX))
    }
}
