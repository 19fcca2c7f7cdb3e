//! Reads Parquet files page by page. Of each column chunk, only the current page is in memory.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, Reservation};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Encoding, Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
    RowGroupMetaData,
};

use super::columns::{ColumnScan, Holding, TableColumns, Tables, rows_per_batch};
use super::facts::{Facts, ScanMemory};
use super::foreign::{damaged, guarded};
use super::nested::{ColumnPlace, Flattening};
use super::options::{ScanOptions, SourceOptions};
use super::parquet_footer::{decoded_bytes, decoded_bytes_max, footer_place, read_footer};
use super::parquet_pages::page_memory;
use super::parquet_schema::{leaves_at, own_metadata, plain_columns, schema_with_uuids};
use super::parquet_texts::{COPIED_BYTES, TextPieces, with_views};
use super::vectors::VectorScan;
use super::window::{Failure, WindowedFile};
use crate::base::context::Context;
use crate::base::error::{Error, Result};

/// Number of rows to decode at a time during the search for the first vector.
const PROBED_ROWS: usize = 64;

/// Size of the rows that are decoded at a time, in bytes. Exceeded only if a single row is longer.
const BATCH_BYTES: u64 = 4 << 20;

/// Bytes per decoded value of fixed width. Includes the free space in arrays that grow.
const VALUE_BYTES: u64 = 24;

/// Limit on the size that a footer may claim for a row or an id, in bytes.
const CLAIMED_BYTES_MAX: u64 = 1 << 20;

/// Maximum length of a number as text.
const DIGITS_MAX: u64 = 24;

/// Name of the footer in messages.
const FOOTER: &str = "its Parquet footer";

/// A file with its decoded footer.
#[derive(Clone)]
struct Footer {
    path: PathBuf,
    file: WindowedFile,
    metadata: ArrowReaderMetadata,
    rows: u64,
}

/// Reads the headers of a file and returns facts about its contents.
pub(super) fn inspect(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    options: &SourceOptions,
) -> Result<Facts> {
    let file = WindowedFile::new(file);
    let _room = reserve_footer(context, path, &file)?;
    let footer = Footer::read(path, file)?;
    let columns = footer.choose(options)?;
    let (memory, elements) = (footer.scan_memory(&columns.places())?, footer.vector_elements(&columns));
    let of_ids = columns.text_ids().map(std::slice::from_ref);
    // A damaged footer may claim any size. So the claim is limited before batches are planned with it.
    let id_bytes = of_ids.map_or(0, |ids| footer.bytes_a_row(ids).min(CLAIMED_BYTES_MAX));
    let memory = ScanMemory { id_bytes, row_bytes: footer.row_bytes().min(CLAIMED_BYTES_MAX), ..memory };
    let footer = footer.with_piece_bytes_max(memory.piece);
    columns.facts(context, footer.rows, elements, memory, || footer.tables(&columns.places(), PROBED_ROWS, 0))
}

/// Starts a scan of a file.
pub(super) fn scan(
    path: &Path,
    file: Arc<dyn ReadFile>,
    options: &SourceOptions,
    scan: ScanOptions,
) -> Result<Box<dyn VectorScan>> {
    let ScanOptions { vectors, batch_bytes, piece_bytes_max, first_row } = scan;
    let footer = Footer::read(path, WindowedFile::new(file))?.with_piece_bytes_max(piece_bytes_max);
    let columns = footer.choose(options)?;
    let footer = footer.reading_ahead(&columns.places());
    // Skipping rows within a row group would read all pages before them anyway.
    let (_, first_row) = footer.group_of(first_row);
    let rows = rows_per_batch(vectors, batch_bytes);
    let tables = footer.scan_tables(&columns, rows, batch_bytes as u64, first_row)?;
    Ok(Box::new(ColumnScan::from_row(first_row, columns, vectors, batch_bytes, tables)))
}

/// Returns the schema of a file.
pub(super) fn schema(path: &Path, file: Arc<dyn ReadFile>) -> Result<SchemaRef> {
    Ok(Arc::new(schema_with_uuids(&Footer::read(path, WindowedFile::new(file))?.metadata)))
}

/// Returns the number of rows of a file.
pub(super) fn rows(context: &Context, path: &Path, file: Arc<dyn ReadFile>) -> Result<u64> {
    let file = WindowedFile::new(file);
    let _room = reserve_footer(context, path, &file)?;
    Ok(Footer::read(path, file)?.rows)
}

/// Reads the columns at `places`, from row `first_row` on, in batches of at most `batch_rows` rows.
pub(super) fn tables(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    places: &[ColumnPlace],
    batch_rows: usize,
    first_row: u64,
) -> Result<Tables> {
    let ahead_bytes = file.read_ahead_bytes();
    let footer = Footer::read(path, WindowedFile::new(file))?;
    let memory = footer.scan_memory(places)?;
    let batch_rows = footer.rows_at_once(places, batch_rows);
    let batch = footer.batch_memory(places, batch_rows, memory.piece);
    // Reserved before any page is read, so that a budget that is too small is noticed early.
    let bytes = batch.held_with(&memory).saturating_add(ahead_bytes);
    let held = context.reserve(bytes, &format!("{}: reading columns", path.display()))?;
    // If the first rows are skipped, nothing is read ahead, since the ranges of the skipped rows would be read as
    // well.
    let footer = if first_row == 0 { footer.reading_ahead(places) } else { footer };
    let footer = footer.with_piece_bytes_max(memory.piece);
    let tables = PiecewiseTables::new(footer, places, batch_rows, first_row, batch)?;
    Ok(Box::new(Holding::new(Box::new(tables), held)))
}

/// Returns the bytes that [`tables`] reserves. Refuses columns that it cannot read.
pub(super) fn tables_bytes(
    path: &Path,
    file: Arc<dyn ReadFile>,
    places: &[ColumnPlace],
    batch_rows: usize,
) -> Result<u64> {
    Ok(tables_memory(path, file, places, batch_rows)?.reading)
}

/// Memory for reading some columns, and size of their rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TablesMemory {
    /// Bytes to reserve for a scan.
    pub(crate) reading: u64,
    /// Mean size of a row in the row group with the longest rows, in bytes.
    pub(crate) row: u64,
    /// Upper bound on the size of the texts in a row, in bytes.
    pub(crate) row_max: u64,
}

/// Returns the memory for reading some columns. Refuses columns that [`tables`] cannot read.
pub(super) fn tables_memory(
    path: &Path,
    file: Arc<dyn ReadFile>,
    places: &[ColumnPlace],
    batch_rows: usize,
) -> Result<TablesMemory> {
    let ahead_bytes = file.read_ahead_bytes();
    let footer = Footer::read(path, WindowedFile::new(file))?;
    let memory = footer.scan_memory(places)?;
    let batch_rows = footer.rows_at_once(places, batch_rows);
    let batch = footer.batch_memory(places, batch_rows, memory.piece);
    let row = footer.bytes_a_row(places);
    drop(PiecewiseTables::new(footer, places, batch_rows, 0, batch)?); // reads no page yet
    // A text is within one page, and a piece of copied texts can hold the texts of at least one row.
    let row_max = row.max(batch.copied - COPIED_BYTES);
    Ok(TablesMemory { reading: batch.held_with(&memory).saturating_add(ahead_bytes), row, row_max })
}

/// Some columns of an open file. Rows can be read several times, from any row on.
pub(crate) struct OpenTables {
    footer: Footer,
    places: Vec<ColumnPlace>,
    batch_rows: usize,
    batch: BatchMemory,
    _held: Reservation,
}

impl OpenTables {
    /// Opens a file as [`tables`] does.
    pub(super) fn open(
        context: &Context,
        path: &Path,
        file: Arc<dyn ReadFile>,
        places: &[ColumnPlace],
        batch_rows: usize,
    ) -> Result<Self> {
        let footer = Footer::read(path, WindowedFile::new(file))?;
        let memory = footer.scan_memory(places)?;
        let batch_rows = footer.rows_at_once(places, batch_rows);
        let batch = footer.batch_memory(places, batch_rows, memory.piece);
        let held = context.reserve(batch.held_with(&memory), &format!("{}: reading columns", path.display()))?;
        let footer = footer.with_piece_bytes_max(memory.piece);
        Ok(Self { footer, places: places.to_vec(), batch_rows, batch, _held: held })
    }

    /// Reads the rows from row `first_row` on.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn tables_from(&self, first_row: u64) -> Result<Tables> {
        let Self { footer, places, batch_rows, batch, .. } = self;
        Ok(Box::new(PiecewiseTables::new(footer.clone(), places, *batch_rows, first_row, *batch)?))
    }
}

/// Returns the number of rows of a file, and an upper bound on the total length of the distinct values of some
/// columns, as texts. The bound relies on the fact that each text is in the file at least once, in a page or in a
/// dictionary. It does not hold for delta-encoded texts.
pub(super) fn size(path: &Path, file: Arc<dyn ReadFile>, columns: &[usize]) -> Result<(u64, u64)> {
    let footer = Footer::read(path, WindowedFile::new(file))?;
    let places: Vec<ColumnPlace> = columns.iter().copied().map(ColumnPlace::top).collect();
    let (schema, groups) = (footer.metadata.parquet_schema(), footer.metadata.metadata().row_groups());
    let bytes = footer.leaves(&places).map(|leaf| match schema.column(leaf).physical_type() {
        Type::BYTE_ARRAY => {
            let chunks = groups.iter().map(|group| group.column(leaf).uncompressed_size().unsigned_abs());
            chunks.fold(0, u64::saturating_add)
        }
        _ => footer.rows.saturating_mul(DIGITS_MAX),
    });
    Ok((footer.rows, bytes.fold(0, u64::saturating_add)))
}

/// Returns the schema of a file. Reserves memory for the footer while it is decoded.
pub(super) fn schema_within(context: &Context, path: &Path, file: Arc<dyn ReadFile>) -> Result<SchemaRef> {
    let file = WindowedFile::new(file);
    let _room = reserve_footer(context, path, &file)?;
    let metadata = Footer::read(path, file)?.metadata;
    Ok(Arc::new(schema_with_uuids(&metadata).with_metadata(own_metadata(&metadata))))
}

fn reserve_footer(context: &Context, path: &Path, file: &WindowedFile) -> Result<Reservation> {
    // Counting the parts of the footer reads its bytes, so these are reserved first. Then the size of the decoded
    // footer is known.
    let place = decode(path, file, FOOTER, || footer_place(file))?;
    let purpose = format!("{}: {FOOTER}", path.display());
    let stored = place.end - place.start;
    // If not even the stored bytes fit, the parts of the footer cannot be counted. So the error also names an upper
    // bound on the size of the decoded footer.
    let naming = context.naming_more(stored.saturating_add(decoded_bytes_max(stored)));
    let mut memory = naming.reserve_between_runs(stored, &purpose)?;
    let decoded = decode(path, file, FOOTER, || decoded_bytes(file, place))?;
    memory.join(context.reserve_between_runs(decoded, &purpose)?);
    Ok(memory)
}

/// Memory for a batch of rows of some columns, in bytes.
#[derive(Debug, Clone, Copy)]
struct BatchMemory {
    /// Pages to which texts refer, and arrays of all other columns.
    pages: u64,
    /// Texts that are copied from their pages at a time.
    copied: u64,
    /// Whether many rows may be decoded at a time.
    takes_many: bool,
}

impl BatchMemory {
    /// Returns the bytes that a batch and the scan itself hold.
    fn held_with(&self, scan: &ScanMemory) -> u64 {
        scan.held.saturating_add(self.pages).saturating_add(self.copied)
    }
}

impl Footer {
    fn read(path: &Path, file: WindowedFile) -> Result<Self> {
        let metadata = decode(path, &file, FOOTER, || {
            plain_columns(ArrowReaderMetadata::try_new(Arc::new(metadata(&file)?), ArrowReaderOptions::new())?)
        })?;
        let rows =
            metadata.metadata().row_groups().iter().try_fold(0u64, |rows, group| {
                u64::try_from(group.num_rows()).ok().and_then(|more| rows.checked_add(more))
            });
        let rows = rows.ok_or_else(|| damaged(path, FOOTER, "a number of rows is negative or too large"))?;
        Ok(Self { path: path.to_owned(), file, metadata, rows })
    }

    fn choose(&self, options: &SourceOptions) -> Result<TableColumns> {
        TableColumns::choose(&self.path, &schema_with_uuids(&self.metadata), options)
    }

    /// Sets a limit on the size of a page. Larger pages are refused.
    fn with_piece_bytes_max(self, bytes: u64) -> Self {
        Self { file: self.file.with_page_bytes_max(bytes), ..self }
    }

    /// Reads the chunks of some columns ahead if the file is remote.
    fn reading_ahead(self, places: &[ColumnPlace]) -> Self {
        let groups = self.metadata.metadata().row_groups().iter();
        let ranges = || groups.map(|group| self.leaves(places).map(|leaf| chunk_range(group.column(leaf))).collect());
        let file = self.file.reading_ahead(|| ranges().collect());
        Self { file, ..self }
    }

    /// Returns the numbers of the Parquet columns that make up some columns of the table.
    fn leaves(&self, places: &[ColumnPlace]) -> impl Iterator<Item = usize> {
        let (parquet, mask) = (self.metadata.parquet_schema(), self.mask(places));
        (0..parquet.num_columns()).filter(move |&column| mask.leaf_included(column))
    }

    fn mask(&self, places: &[ColumnPlace]) -> ProjectionMask {
        let parquet = self.metadata.parquet_schema();
        let leaves = places.iter().flat_map(|place| leaves_at(parquet.root_schema(), place));
        ProjectionMask::leaves(parquet, leaves)
    }

    /// Returns the memory for the footer, the windows, and the pages of the chosen columns.
    fn scan_memory(&self, places: &[ColumnPlace]) -> Result<ScanMemory> {
        let metadata = self.metadata.metadata();
        let leaves = self.leaves(places);
        let place = "its page headers";
        let pages = decode(&self.path, &self.file, place, || Ok(page_memory(&self.file, metadata, leaves)))?;
        let held = pages.held.saturating_add(metadata.memory_size() as u64 + super::window::bytes());
        Ok(ScanMemory::claimed(held, pages.largest))
    }

    /// Returns the total number of elements of all vectors according to the footer. A null or empty vector counts as
    /// one element.
    fn vector_elements(&self, columns: &TableColumns) -> u64 {
        let groups = self.metadata.metadata().row_groups();
        let elements = self.leaves(std::slice::from_ref(columns.vector().0)).next().map(|leaf| {
            let counts = groups.iter().map(|group| group.column(leaf).num_values().unsigned_abs());
            counts.fold(0, u64::saturating_add)
        });
        elements.unwrap_or(0)
    }

    /// Returns the mean decompressed size of a row with all columns, in the row group with the longest rows, in bytes.
    fn row_bytes(&self) -> u64 {
        let of =
            |group: &RowGroupMetaData| group.total_byte_size().unsigned_abs() / group.num_rows().unsigned_abs().max(1);
        self.metadata.metadata().row_groups().iter().map(of).max().unwrap_or(0)
    }

    /// Returns the mean decompressed size of a row with the columns at `places`, in the row group with the longest
    /// rows, in bytes.
    fn bytes_a_row(&self, places: &[ColumnPlace]) -> u64 {
        let leaves: Vec<usize> = self.leaves(places).collect();
        let of = |group: &RowGroupMetaData| {
            let bytes = leaves.iter().map(|leaf| group.column(*leaf).uncompressed_size().unsigned_abs());
            bytes.fold(0, u64::saturating_add) / group.num_rows().unsigned_abs().max(1)
        };
        self.metadata.metadata().row_groups().iter().map(of).max().unwrap_or(0)
    }

    /// Returns how many rows of some columns to decode at a time: `batch_rows`, or fewer if rows are long.
    fn rows_at_once(&self, places: &[ColumnPlace], batch_rows: usize) -> usize {
        // Rows are limited because decoded texts keep their pages in memory.
        batch_rows.min((BATCH_BYTES / self.bytes_a_row(places).max(1)).max(1) as usize)
    }

    /// Returns the memory for `batch_rows` rows of average size of some columns, and for the largest page of each
    /// column. A single list may have all elements of its row group. If texts are stored as changes to the previous
    /// text, each text may take as much as a page. Such texts are decoded one row at a time.
    fn batch_memory(&self, places: &[ColumnPlace], batch_rows: usize, page_bytes: u64) -> BatchMemory {
        let (schema, groups) = (self.metadata.parquet_schema(), self.metadata.metadata().row_groups());
        let mut batch = BatchMemory { pages: 0, copied: COPIED_BYTES, takes_many: true };
        for leaf in self.leaves(places) {
            let most = |of: &dyn Fn(&ColumnChunkMetaData) -> u64| {
                groups.iter().map(|group| of(group.column(leaf))).max().unwrap_or(0)
            };
            // A page cannot be larger than its chunk, so small columns do not reserve the size of the largest page in
            // the file.
            let page = page_bytes.min(most(&|chunk| chunk.uncompressed_size().unsigned_abs()));
            batch.pages = batch.pages.saturating_add(page);
            let column = schema.column(leaf);
            // A single list may have all elements of its row group.
            if column.max_rep_level() > 0 {
                let elements = most(&|chunk| chunk.num_values().unsigned_abs());
                batch.pages = batch.pages.saturating_add(elements.saturating_mul(VALUE_BYTES));
            } else if column.physical_type() == Type::BYTE_ARRAY {
                batch.copied = batch.copied.saturating_add(page);
                batch.takes_many &= most(&|chunk| chunk.encodings().any(is_incremental).into()) == 0;
            }
            batch.pages = batch.pages.saturating_add(batch_rows as u64 * VALUE_BYTES);
        }
        let rows = if batch.takes_many { batch_rows as u64 } else { 1 };
        batch.pages = batch.pages.saturating_add(self.bytes_a_row(places).saturating_mul(rows));
        batch
    }

    /// Reads the columns at `places`, `rows` rows at a time, from row `first_row` on.
    fn tables(&self, places: &[ColumnPlace], rows: usize, first_row: u64) -> Result<Tables> {
        let reader = self.reader(places, rows, first_row)?;
        let (path, file, flattening) = (self.path.clone(), self.file.clone(), Flattening::of(places));
        Ok(Box::new(ParquetTables { path, file, reader, flattening, next_row: first_row }))
    }

    /// Reads vectors and ids, in batches of at most `rows` rows. If the ids of a batch would take more than `id_bytes`
    /// bytes, batches have fewer rows, since all ids of a batch are decoded at once. `first_row` is the first row of a
    /// row group.
    fn scan_tables(self, columns: &TableColumns, rows: usize, id_bytes: u64, first_row: u64) -> Result<Tables> {
        let places = columns.places();
        // Without text ids, a batch never takes more memory than the plan of the scan assumes.
        let Some(ids) = columns.text_ids().map(std::slice::from_ref) else {
            return self.tables(&places, rows, first_row);
        };
        let rows = rows.min((id_bytes / self.bytes_a_row(ids).max(1)) as usize).max(1);
        let takes_many = self.batch_memory(ids, rows, u64::MAX).takes_many;
        // No limits are needed here: the plan of the scan already includes the largest page and the ids.
        let batch = BatchMemory { pages: u64::MAX, copied: u64::MAX, takes_many };
        Ok(Box::new(PiecewiseTables::new(self, &places, rows, first_row, batch)?))
    }

    /// Returns the number of the row group that contains a row, and the first row of this group.
    fn group_of(&self, row: u64) -> (usize, u64) {
        let mut start = 0;
        for (number, group) in self.metadata.metadata().row_groups().iter().enumerate() {
            let end = start + group.num_rows().unsigned_abs();
            if row < end {
                return (number, start);
            }
            start = end;
        }
        (self.metadata.metadata().num_row_groups(), start)
    }

    /// Creates a reader of the columns at `places` from row `first_row` on.
    fn reader(&self, places: &[ColumnPlace], rows: usize, first_row: u64) -> Result<ParquetRecordBatchReader> {
        // The Parquet crate skips rows by reading the header of each page. So whole row groups before the first row
        // are left out instead.
        let (group, start) = self.group_of(first_row);
        let (groups, skipped) = (self.metadata.metadata().row_groups(), first_row - start);
        decode(&self.path, &self.file, "its Parquet columns", || {
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.file.clone(), self.metadata.clone())
                .with_row_groups((group..groups.len()).collect())
                .with_projection(self.mask(places))
                .with_batch_size(rows)
                .with_offset(skipped as usize)
                .build()
        })
    }
}

/// Returns the byte range of a chunk in the file. The footer that states it may be damaged.
fn chunk_range(chunk: &ColumnChunkMetaData) -> Range<u64> {
    let start = chunk.dictionary_page_offset().unwrap_or(i64::MAX).min(chunk.data_page_offset()).unsigned_abs();
    start..start.saturating_add(chunk.compressed_size().unsigned_abs())
}

/// Decodes the footer, without statistics.
pub(super) fn metadata(file: &WindowedFile) -> std::result::Result<ParquetMetaData, ParquetError> {
    // Statistics are skipped, since they may take more memory than the rest of the footer and are not used here.
    let settings = ParquetMetaDataOptions::new().with_column_stats_policy(ParquetStatisticsPolicy::SkipAll);
    let bytes = read_footer(file, footer_place(file)?)?;
    ParquetMetaDataReader::decode_metadata_with_options(&bytes, Some(&settings))
}

/// Runs `read`, which calls the Parquet crate. If the device failed during the call, returns the error of the device.
pub(super) fn decode<T>(
    path: &Path,
    file: &WindowedFile,
    place: &str,
    read: impl FnOnce() -> std::result::Result<T, ParquetError>,
) -> Result<T> {
    let decoded = guarded(path, place, read);
    // The crate's error only quotes the error of the device, which has the path and the kind of the failure.
    conclude(path, place, file.take_failure(), decoded)
}

/// Returns the decoded value. If a read failed, returns the reason instead.
fn conclude<T>(path: &Path, place: &str, failure: Option<Failure>, decoded: Result<T>) -> Result<T> {
    match failure {
        Some(Failure::Device(failure)) => Err(failure.into()),
        Some(Failure::LargePage { bytes, expected }) => Err(Error::input(format!(
            "{}: cannot read {place}: a page takes {bytes} bytes, but at most {expected} were expected from the other \
             pages; write the file again with pages of about equal size",
            path.display()
        ))),
        Some(Failure::LargeBatch) | None => decoded,
    }
}

/// Returns whether values of a page are stored as changes to the previous value.
fn is_incremental(encoding: Encoding) -> bool {
    encoding == Encoding::DELTA_BYTE_ARRAY
}

/// Reader of columns other than vectors. Copies texts out of their pages in pieces. If the pages of a batch exceed the
/// reserved memory because rows are larger than average, decodes the rest of the file row by row.
struct PiecewiseTables {
    footer: Footer,
    places: Vec<ColumnPlace>,
    /// Types that the columns have in the file.
    types: Vec<DataType>,
    batch: BatchMemory,
    batch_rows: usize,
    reader: ParquetRecordBatchReader,
    flattening: Flattening,
    next_row: u64,
    /// Whether the next batch also reads pages of earlier rows, in order to skip these rows.
    skips: bool,
    pieces: Option<TextPieces>,
}

impl PiecewiseTables {
    fn new(
        footer: Footer,
        places: &[ColumnPlace],
        batch_rows: usize,
        first_row: u64,
        batch: BatchMemory,
    ) -> Result<Self> {
        let batch_rows = if batch.takes_many { batch_rows } else { 1 };
        let types = places.iter().map(|place| place.field(footer.metadata.schema().fields()).data_type().clone());
        let types = types.collect();
        let footer = Footer { metadata: with_views(&footer.metadata), ..footer };
        let reader = footer.reader(places, batch_rows, first_row)?;
        let (places, flattening) = (places.to_vec(), Flattening::of(places));
        let skips = first_row > 0;
        Ok(Self {
            footer,
            places,
            types,
            batch,
            batch_rows,
            reader,
            flattening,
            next_row: first_row,
            skips,
            pieces: None,
        })
    }

    fn next_table(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Footer { path, file, .. } = &self.footer;
            let place = format!("the rows from {} on", self.next_row);
            if let Some(pieces) = &mut self.pieces {
                let piece = guarded(path, &place, || pieces.next_piece(self.batch.copied))?;
                if let Some(piece) = piece {
                    self.next_row += piece.num_rows() as u64;
                    return Ok(Some(piece));
                }
                self.pieces = None; // drop its pages before the next are read
            }
            // To skip rows, pages of earlier rows are read, too. So the first batch after a skip may exceed the limit.
            let is_bounded = self.batch_rows > 1 && !self.skips;
            file.begin_batch(is_bounded.then_some(self.batch.pages));
            self.skips = false;
            let (reader, flattening) = (&mut self.reader, &self.flattening);
            let next = || reader.next().transpose()?.map(|table| flattening.flatten(table)).transpose();
            let decoded = guarded(path, &place, next);
            match file.take_failure() {
                // Rows are larger here than on average. A single row is always read, no matter how large its pages
                // are.
                Some(Failure::LargeBatch) => self.read_row_by_row()?,
                failure => match conclude(path, &place, failure, decoded)? {
                    None => return Ok(None),
                    Some(table) => self.pieces = Some(TextPieces::new(table, &self.types)),
                },
            }
        }
    }

    fn read_row_by_row(&mut self) -> Result<()> {
        self.batch_rows = 1;
        self.reader = self.footer.reader(&self.places, self.batch_rows, self.next_row)?;
        Ok(())
    }
}

impl Iterator for PiecewiseTables {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_table().transpose()
    }
}

struct ParquetTables {
    path: PathBuf,
    file: WindowedFile,
    reader: ParquetRecordBatchReader,
    flattening: Flattening,
    next_row: u64,
}

impl Iterator for ParquetTables {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let place = format!("the rows from {} on", self.next_row);
        let (reader, flattening) = (&mut self.reader, &self.flattening);
        let next = || Ok(reader.next().transpose()?.map(|table| flattening.flatten(table)).transpose()?);
        let table = decode(&self.path, &self.file, &place, next).transpose()?;
        self.next_row += table.as_ref().map_or(0, |table| table.num_rows() as u64);
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicU64, Ordering};

    use adjoin_device::{Device, DeviceError, FileKind, FileSystem, Lock, Operation, ReadQueue};
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float32Type, Int64Type};
    use arrow_array::{FixedSizeListArray, Float32Array, Int64Array, ListArray, StringArray};
    use arrow_schema::{DataType, Field};
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
    use parquet::file::properties::WriterProperties;
    use proptest::prelude::*;

    use super::*;
    use crate::base::error::ErrorKind;
    use crate::base::options::{Element, VectorType};
    use crate::source::VectorSource;
    use crate::source::fixtures::{Folder, error_of, on, read_all, real_sets, table};
    use crate::source::{Fault, Ids, open};

    const DIMENSIONS: usize = 64;

    fn embeddings(rows: usize) -> RecordBatch {
        let values = Float32Array::from_iter_values((0..rows * DIMENSIONS).map(|i| (i * 7_919 % 10_007) as f32));
        let field = Arc::new(Field::new("item", DataType::Float32, true));
        let vectors = FixedSizeListArray::new(field, DIMENSIONS as i32, Arc::new(values), None);
        let ids = Int64Array::from_iter_values((0..rows as i64).map(|row| row * 3));
        let texts = StringArray::from_iter_values((0..rows).map(|row| format!("{row:0400}")));
        table(&[("text", Arc::new(texts)), ("id", Arc::new(ids)), ("embedding", Arc::new(vectors))])
    }

    fn write(table: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, table.schema(), Some(properties)).unwrap();
        writer.write(table).unwrap();
        writer.close().unwrap();
        bytes
    }

    fn plain_pages() -> WriterProperties {
        WriterProperties::builder()
            .set_compression(Compression::UNCOMPRESSED)
            .set_data_page_size_limit(200 << 10)
            .set_dictionary_enabled(false)
            .build()
    }

    fn expected_bytes(rows: usize) -> Vec<u8> {
        (0..rows * DIMENSIONS).flat_map(|i| ((i * 7_919 % 10_007) as f32).to_le_bytes()).collect()
    }

    #[test]
    fn every_compression_page_size_and_version_is_read() {
        let folder = Folder::new();
        let table = embeddings(500);
        let compressions = [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::ZSTD(ZstdLevel::default()),
            Compression::GZIP(GzipLevel::default()),
            Compression::BROTLI(BrotliLevel::default()),
            Compression::LZ4_RAW,
        ];
        for compression in compressions {
            for (page_bytes, dictionary, group_rows) in [(1 << 10, false, 100), (1 << 20, true, 1_000)] {
                let properties = WriterProperties::builder()
                    .set_compression(compression)
                    .set_data_page_size_limit(page_bytes)
                    .set_write_batch_size(16)
                    .set_dictionary_enabled(dictionary)
                    .set_max_row_group_row_count(Some(group_rows))
                    .build();
                folder.write("a.parquet", &write(&table, properties));
                let source = folder.open(&["a.parquet"]).unwrap();
                for batch_bytes in [1, 70 * DIMENSIONS * 4, usize::MAX] {
                    let all = read_all(source.as_ref(), batch_bytes);
                    assert!(all.bytes == expected_bytes(500), "{compression}");
                    assert_eq!(all.ids, Ids::Int64((0..500).map(|row| row * 3).collect()));
                }
            }
        }
    }

    /// File system that counts the bytes read and fails after some number of reads.
    struct Watched {
        transferred: Arc<AtomicU64>,
        longest: Arc<AtomicU64>,
        reads_left: Arc<AtomicU64>,
    }

    struct WatchedFile {
        file: Arc<dyn ReadFile>,
        path: PathBuf,
        counts: Watched,
    }

    impl Watched {
        fn new(reads: u64) -> Self {
            Self { transferred: Arc::default(), longest: Arc::default(), reads_left: Arc::new(reads.into()) }
        }

        fn share(&self) -> Self {
            let Self { transferred, longest, reads_left } = self;
            Self { transferred: transferred.clone(), longest: longest.clone(), reads_left: reads_left.clone() }
        }
    }

    impl ReadFile for WatchedFile {
        fn len(&self) -> u64 {
            self.file.len()
        }

        fn is_direct(&self) -> bool {
            self.file.is_direct()
        }

        fn alignment(&self) -> usize {
            self.file.alignment()
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::result::Result<u64, DeviceError> {
            let left =
                self.counts.reads_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            left.map_err(|_| DeviceError {
                operation: Operation::Read,
                path: self.path.clone(),
                offset: Some(offset),
                source: std::io::Error::other("the disk is gone"),
            })?;
            self.counts.transferred.fetch_add(buffer.len() as u64, Ordering::SeqCst);
            self.counts.longest.fetch_max(buffer.len() as u64, Ordering::SeqCst);
            self.file.read_at(offset, buffer)
        }
    }

    impl Device for Watched {
        fn open(&self, path: &Path) -> std::result::Result<Arc<dyn ReadFile>, DeviceError> {
            let file = FileSystem::pread().open(path)?;
            Ok(Arc::new(WatchedFile { file, path: path.to_owned(), counts: self.share() }))
        }

        fn create(&self, path: &Path) -> std::result::Result<Box<dyn adjoin_device::WriteFile>, DeviceError> {
            FileSystem::pread().create(path)
        }

        fn create_folder(&self, path: &Path) -> std::result::Result<(), DeviceError> {
            FileSystem::pread().create_folder(path)
        }

        fn rename(&self, from: &Path, to: &Path) -> std::result::Result<(), DeviceError> {
            FileSystem::pread().rename(from, to)
        }

        fn remove(&self, path: &Path) -> std::result::Result<(), DeviceError> {
            FileSystem::pread().remove(path)
        }

        fn remove_folder(&self, path: &Path) -> std::result::Result<(), DeviceError> {
            FileSystem::pread().remove_folder(path)
        }

        fn sync_folder(&self, path: &Path) -> std::result::Result<(), DeviceError> {
            FileSystem::pread().sync_folder(path)
        }

        fn free_bytes(&self, path: &Path) -> std::result::Result<u64, DeviceError> {
            FileSystem::pread().free_bytes(path)
        }

        fn name(&self) -> &'static str {
            FileSystem::pread().name()
        }

        fn kind(&self, path: &Path) -> std::result::Result<Option<FileKind>, DeviceError> {
            FileSystem::pread().kind(path)
        }

        fn list(&self, folder: &Path) -> std::result::Result<Vec<std::ffi::OsString>, DeviceError> {
            FileSystem::pread().list(folder)
        }

        fn lock(&self, path: &Path) -> std::result::Result<Lock, DeviceError> {
            FileSystem::pread().lock(path)
        }

        fn read_queue(&self, depth: usize) -> std::result::Result<Box<dyn ReadQueue>, DeviceError> {
            FileSystem::pread().read_queue(depth)
        }
    }

    fn open_watched(folder: &Folder, watched: &Watched) -> crate::base::error::Result<Arc<dyn VectorSource>> {
        let path = folder.path("a.parquet").to_str().unwrap().to_owned();
        open(&on(Arc::new(watched.share())), &[path], &SourceOptions::default())
    }

    #[test]
    fn chosen_parquet_columns_are_read_once_page_by_page() {
        let folder = Folder::new();
        let rows = 20_000;
        let bytes = write(&embeddings(rows), plain_pages());
        folder.write("a.parquet", &bytes);
        let watched = Watched::new(u64::MAX);
        let source = open_watched(&folder, &watched).unwrap();
        let opened = watched.transferred.swap(0, Ordering::SeqCst);
        assert!(opened <= 400 << 10, "{opened} bytes to open");
        assert!(read_all(source.as_ref(), 1 << 20).bytes == expected_bytes(rows));
        let wanted = (rows * (DIMENSIONS * 4 + 8)) as u64;
        let transferred = watched.transferred.load(Ordering::SeqCst);
        assert!(bytes.len() as u64 > 2 * wanted && transferred < wanted * 5 / 4, "{transferred} read for {wanted}");
        let longest = watched.longest.load(Ordering::SeqCst);
        assert!(longest < 1 << 20, "{longest} bytes in one read");
    }

    #[test]
    fn rows_are_read_from_any_row_on() {
        let folder = Folder::new();
        let table = embeddings(1_000).project(&[0, 1]).unwrap();
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(100))
            .set_data_page_row_count_limit(30)
            .set_write_batch_size(10);
        folder.write("a.parquet", &write(&table, properties.build()));
        let path = folder.path("a.parquet");
        let (context, file) = (on(Arc::new(FileSystem::pread())), FileSystem::pread().open(&path).unwrap());
        let open = OpenTables::open(&context, &path, file, &[0, 1].map(ColumnPlace::top), 64).unwrap();
        for first in [0, 1, 99, 100, 101, 555, 900, 999, 1_000] {
            let tables = open.tables_from(first).unwrap().collect::<Result<Vec<_>>>().unwrap();
            let rows: Vec<i64> =
                tables.iter().flat_map(|table| table.column(1).as_primitive::<Int64Type>().values().to_vec()).collect();
            assert_eq!(rows, (first as i64..1_000).map(|row| row * 3).collect::<Vec<_>>());
        }
    }

    #[test]
    fn device_errors_are_not_reported_as_damage() {
        let folder = Folder::new();
        folder.write("a.parquet", &write(&embeddings(5_000), plain_pages()));
        for reads in 0.. {
            let watched = Watched::new(reads);
            let read = || -> crate::base::error::Result<()> {
                let source = open_watched(&folder, &watched)?;
                let mut scan = source.scan(1 << 16)?;
                while scan.next_batch()?.is_some() {}
                Ok(())
            };
            match read() {
                Ok(()) => return assert!(reads > 5, "only {reads} reads"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Device);
                    assert!(error.to_string().contains("a.parquet at byte"), "{error}");
                }
            }
        }
    }

    #[test]
    fn the_budget_for_a_large_footer_is_named_at_once() {
        let folder = Folder::new();
        // The file has a row group per row, so that its footer is larger than the buffers that the smallest budget
        // allows.
        let (rows, mut bytes) = (embeddings(6_000), Vec::new());
        let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), None).unwrap();
        for row in 0..rows.num_rows() {
            writer.write(&rows.slice(row, 1)).unwrap();
            writer.flush().unwrap();
        }
        writer.close().unwrap();
        folder.write("a.parquet", &bytes);
        let path = folder.path("a.parquet");
        let reserve = |memory| {
            let file = WindowedFile::new(FileSystem::pread().open(&path).unwrap());
            reserve_footer(&on(Arc::new(FileSystem::pread())).with_memory(memory), &path, &file).map(drop)
        };
        let refused = reserve(19_000_000).err().unwrap().to_string();
        let named = refused.split("give memory ").nth(1).and_then(|rest| rest.split("MB").next());
        let named = named.unwrap_or_else(|| panic!("{refused}")).parse::<u64>().unwrap() * 1_000_000;
        assert!(reserve(named).is_ok(), "{refused}");
    }

    #[test]
    fn plain_lists_are_read_and_invalid_footers_are_refused() {
        let folder = Folder::new();
        let lists = ListArray::from_iter_primitive::<Float32Type, _, _>([Some([Some(1.0)]), None]);
        folder.write("a.parquet", &write(&table(&[("v", Arc::new(lists))]), WriterProperties::default()));
        let source = folder.open(&["a.parquet"]).unwrap();
        assert_eq!(source.info().vectors, VectorType { element: Element::F32, dimensions: 1 });
        assert_eq!(read_all(source.as_ref(), 100).faults, [(1, Fault::Null)]);
        for bytes in [&b""[..], b"PAR1", b"PAR1xxxxxxxxPAR1", b"not a Parquet file"] {
            folder.write("b.parquet", bytes);
            let message = error_of(folder.open(&["b.parquet"]));
            assert!(message.contains("b.parquet: cannot read its Parquet footer"), "{message}");
        }
    }

    #[test]
    fn a_real_table_without_vectors_is_refused() {
        let Some(data) = real_sets() else { return eprintln!("skipped: ADJOIN_DATA names no folder") };
        let path = data.join("debdesc.texts.parquet").to_str().unwrap().to_owned();
        let message = error_of(open(&on(Arc::new(FileSystem::pread())), &[path], &SourceOptions::default()));
        eprintln!("{message}");
        assert!(message.contains("no column holds vectors"), "{message}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn no_bytes_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
                          compressed in any::<bool>(), in_footer in any::<bool>(), cut in any::<bool>()) {
            let compression = if compressed { Compression::SNAPPY } else { Compression::UNCOMPRESSED };
            let properties = WriterProperties::builder().set_compression(compression).build();
            let table = embeddings(9).project(&[1, 2]).unwrap();
            let mut bytes = write(&table, properties);
            let footer = bytes.len() - 8 - bytes[bytes.len() - 8..][..4].iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
            for (place, byte) in &changes {
                let range = if in_footer { footer..bytes.len() } else { 0..footer };
                *place.get_mut(&mut bytes[range]) = *byte;
            }
            if cut {
                bytes.truncate(changes[0].0.index(bytes.len()));
            }
            let folder = Folder::new();
            folder.survive("a.parquet", &bytes);
            fs::remove_file(folder.path("a.parquet")).unwrap();
        }
    }
}
