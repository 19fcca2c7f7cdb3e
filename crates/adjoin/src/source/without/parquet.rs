//! Copies Parquet files without some rows, one column chunk at a time. It does not use Arrow: values and their levels
//! are copied from a chunk of the file to a chunk of the result. So types that Arrow does not know are preserved, and
//! only some pages of a row group are in memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::ReadFile;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type, Int96Type,
};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter};

use super::{RowsToKeep, Without, cannot_write};
use crate::base::error::Result;
use crate::base::output::OutputWriter;
use crate::source::facts::ScanMemory;
use crate::source::foreign::damaged;
use crate::source::parquet::{decode, metadata};
use crate::source::parquet_pages::page_memory;
use crate::source::window::{self, WindowedFile};

/// Number of values to copy at a time.
const VALUES_AT_ONCE: u64 = 1 << 15;
/// Memory for a value and its levels, in addition to the value's own bytes.
const VALUE_BYTES: u64 = 48;
/// Memory for the pages and the dictionary of the chunk that is being written.
const WRITING_BYTES: u64 = 8 << 20;
/// Bytes per value of a chunk that is written with a dictionary. Its pages are held until the dictionary is complete.
const CODED_BYTES: u64 = 4;

/// Copies the rows that are kept. `page_bytes_max` is the largest page that [`memory`] found. Larger pages are
/// refused.
pub(super) fn write(
    page_bytes_max: u64,
    wanted: &Without<'_>,
    file: Arc<dyn ReadFile>,
    out: OutputWriter,
) -> Result<OutputWriter> {
    let file = WindowedFile::new(file);
    let metadata = decode(wanted.path, &file, "its Parquet footer", || metadata(&file))?;
    let copy = Copy { wanted, file: file.with_page_bytes_max(page_bytes_max) };
    let schema = metadata.file_metadata().schema_descr().root_schema_ptr();
    let mut target = SerializedFileWriter::new(out, schema, Arc::new(properties(&metadata))).map_err(cannot_write)?;
    let mut first = 0;
    for group in metadata.row_groups() {
        let end = first + group.num_rows().unsigned_abs();
        let staying = wanted.kept(first..end);
        if staying != RowsToKeep::None {
            let target_group = target.next_row_group().map_err(cannot_write)?;
            copy.row_group(group, first, target_group)?;
        }
        wanted.advance(end - first)?;
        first = end;
    }
    // If the numbers of rows differ, row numbers would refer to other rows than those that were compared.
    if first != wanted.rows {
        return Err(damaged(wanted.path, "its Parquet footer", "its row groups do not add up to its rows"));
    }
    target.into_inner().map_err(cannot_write)
}

/// Returns the memory for copying a file.
pub(super) fn memory(path: &Path, file: Arc<dyn ReadFile>) -> Result<ScanMemory> {
    let file = WindowedFile::new(file);
    let metadata = decode(path, &file, "its Parquet footer", || metadata(&file))?;
    let memory = page_memory(&file, &metadata, 0..metadata.file_metadata().schema_descr().num_columns());
    Ok(ScanMemory { held: memory_bytes(&metadata, memory.largest), piece: memory.largest, ..ScanMemory::default() })
}

/// Returns the bytes held at a time: footer, windows, pages that are read, values, and pages that are written.
fn memory_bytes(metadata: &ParquetMetaData, largest_page: u64) -> u64 {
    let columns = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    // A chunk with a dictionary is written after it is complete, so the codes of all its values are held.
    let coded = columns.filter(|chunk| chunk.dictionary_page_offset().is_some() && !holds_vectors(chunk));
    let coded = coded.map(|chunk| chunk.num_values().unsigned_abs().saturating_mul(CODED_BYTES)).max().unwrap_or(0);
    let held = metadata.memory_size() as u64 + window::bytes() + VALUES_AT_ONCE * VALUE_BYTES + WRITING_BYTES;
    // The factor 4 covers the current page, the previous page, the dictionary, and the references to values in the
    // dictionary.
    held.saturating_add(coded).saturating_add(largest_page.saturating_mul(4))
}

/// Returns properties for the result, with the compression and the encodings of the file's first row group.
fn properties(metadata: &ParquetMetaData) -> WriterProperties {
    let of_file = metadata.file_metadata();
    let first = metadata.row_groups().first();
    let mut properties = WriterProperties::builder()
        .set_key_value_metadata(of_file.key_value_metadata().cloned())
        .set_sorting_columns(first.and_then(RowGroupMetaData::sorting_columns).cloned())
        .set_max_row_group_row_count(None);
    for chunk in first.into_iter().flat_map(RowGroupMetaData::columns) {
        let column = chunk.column_path().clone();
        let is_coded = chunk.dictionary_page_offset().is_some() && !holds_vectors(chunk);
        properties = properties
            .set_column_compression(column.clone(), compression(chunk))
            .set_column_dictionary_enabled(column.clone(), is_coded);
        if holds_vectors(chunk) {
            properties = properties.set_column_statistics_enabled(column.clone(), EnabledStatistics::None);
        }
        if let Some(encoding) = own_encoding(chunk).filter(|_| !is_coded) {
            properties = properties.set_column_encoding(column, encoding);
        }
    }
    properties.build()
}

/// Returns whether a chunk contains the elements of lists of numbers. A dictionary or minimum values of such elements
/// would be useless, and would take more time than everything else.
fn holds_vectors(chunk: &ColumnChunkMetaData) -> bool {
    chunk.column_descr().max_rep_level() > 0 && chunk.column_type() != Type::BYTE_ARRAY
}

/// Returns the compression for the result. Hadoop's framing of LZ4 can be read, but current writers do not produce it.
fn compression(chunk: &ColumnChunkMetaData) -> Compression {
    match chunk.compression() {
        Compression::LZ4 => Compression::LZ4_RAW,
        other => other,
    }
}

/// Returns the encoding of the values in a chunk without a dictionary.
fn own_encoding(chunk: &ColumnChunkMetaData) -> Option<Encoding> {
    let of_levels_or_dictionaries = [
        Encoding::RLE,
        #[expect(deprecated)]
        Encoding::BIT_PACKED,
        Encoding::RLE_DICTIONARY,
        Encoding::PLAIN_DICTIONARY,
    ];
    chunk.encodings().find(|encoding| !of_levels_or_dictionaries.contains(encoding))
}

/// A file that is being copied.
struct Copy<'a> {
    wanted: &'a Without<'a>,
    file: WindowedFile,
}

impl Copy<'_> {
    /// Copies the rows of a row group that are kept. `first` is the number in the file of the group's first row.
    fn row_group(
        &self,
        group: &RowGroupMetaData,
        first: u64,
        mut target: SerializedRowGroupWriter<'_, OutputWriter>,
    ) -> Result<()> {
        for (place, chunk) in group.columns().iter().enumerate() {
            self.wanted.advance(0)?;
            let pages = decode(self.wanted.path, &self.file, "its pages", || {
                SerializedPageReader::new(Arc::new(self.file.clone()), chunk, group.num_rows() as usize, None)
            })?;
            let values_read = Arc::new(AtomicU64::new(0));
            let pages = CountedPages { pages, values_read: values_read.clone() };
            let reader = get_column_reader(group.schema_descr().column(place), Box::new(pages));
            let column = target.next_column().map_err(cannot_write)?;
            let Some(mut column) = column else { return Err(self.damaged("it has more columns than its schema")) };
            let rows = first..first + group.num_rows().unsigned_abs();
            // If rows have long lists, each row has many values. So fewer rows are read at a time.
            let at_once = VALUES_AT_ONCE * (rows.end - rows.start) / chunk.num_values().unsigned_abs().max(1);
            let at_once = at_once.clamp(1, VALUES_AT_ONCE);
            let rows = Rows { first: rows.start, next: rows.start, end: rows.end, at_once, values_read };
            self.any_column(reader, rows, &mut column)?;
            column.close().map_err(cannot_write)?;
        }
        target.close().map_err(cannot_write)?;
        Ok(())
    }

    fn any_column(&self, reader: ColumnReader, rows: Rows, target: &mut SerializedColumnWriter<'_>) -> Result<()> {
        match &reader {
            ColumnReader::BoolColumnReader(_) => self.column::<BoolType>(reader, rows, target),
            ColumnReader::Int32ColumnReader(_) => self.column::<Int32Type>(reader, rows, target),
            ColumnReader::Int64ColumnReader(_) => self.column::<Int64Type>(reader, rows, target),
            ColumnReader::Int96ColumnReader(_) => self.column::<Int96Type>(reader, rows, target),
            ColumnReader::FloatColumnReader(_) => self.column::<FloatType>(reader, rows, target),
            ColumnReader::DoubleColumnReader(_) => self.column::<DoubleType>(reader, rows, target),
            ColumnReader::ByteArrayColumnReader(_) => self.column::<ByteArrayType>(reader, rows, target),
            ColumnReader::FixedLenByteArrayColumnReader(_) => {
                self.column::<FixedLenByteArrayType>(reader, rows, target)
            }
        }
    }

    fn column<T: DataType>(
        &self,
        reader: ColumnReader,
        mut rows: Rows,
        target: &mut SerializedColumnWriter<'_>,
    ) -> Result<()> {
        let mut reader: ColumnReaderImpl<T> = get_typed_column_reader(reader);
        let target = target.typed::<T>();
        let (definition, repetition) =
            (target.get_descriptor().max_def_level(), target.get_descriptor().max_rep_level());
        let mut records = Records::<T>::new(definition, repetition);
        while rows.next < rows.end {
            // Values refer to their page, so values of many pages would hold all of these pages.
            let wanted = if repetition == 0 { rows.in_page() } else { rows.at_once };
            let wanted = wanted.min(rows.end - rows.next);
            let place = format!("the rows from {} on", rows.next);
            let read = decode(self.wanted.path, &self.file, &place, || records.read(&mut reader, wanted as usize))?;
            // Without this check, the loop would never end if a chunk has too few rows.
            if read == 0 {
                return Err(self.damaged("a column has fewer rows than its row group"));
            }
            let taken = rows.next..rows.next + read as u64;
            rows.next = taken.end;
            match self.wanted.kept(taken.clone()) {
                RowsToKeep::None => continue,
                RowsToKeep::All => {}
                RowsToKeep::Some => records.retain(taken.start, self.wanted.is_removed),
            }
            let (definitions, repetitions) = (records.definitions(), records.repetitions());
            target.write_batch(&records.values, definitions, repetitions).map_err(cannot_write)?;
        }
        Ok(())
    }

    fn damaged(&self, fault: &str) -> crate::base::error::Error {
        damaged(self.wanted.path, "its Parquet columns", fault)
    }
}

/// Rows of a row group that are still to be copied.
struct Rows {
    first: u64,
    next: u64,
    end: u64,
    /// Maximum number of rows to read at once.
    at_once: u64,
    /// Number of values of all pages of the column that were read.
    values_read: Arc<AtomicU64>,
}

impl Rows {
    /// Returns the number of rows to read at once in a column with one value per row: the remaining rows of the current
    /// page. If there are none, one row is read, with the next page.
    fn in_page(&self) -> u64 {
        let rest = self.values_read.load(Ordering::Relaxed).saturating_sub(self.next - self.first);
        rest.clamp(1, VALUES_AT_ONCE)
    }
}

/// The pages of a column. Counts the values of the pages that were read.
struct CountedPages {
    pages: SerializedPageReader<WindowedFile>,
    values_read: Arc<AtomicU64>,
}

impl PageReader for CountedPages {
    fn get_next_page(&mut self) -> parquet::errors::Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = page.as_ref().filter(|page| page.is_data_page()) {
            self.values_read.fetch_add(page.num_values().into(), Ordering::Relaxed);
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> parquet::errors::Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> parquet::errors::Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> parquet::errors::Result<bool> {
        self.pages.at_record_boundary()
    }
}

impl Iterator for CountedPages {
    type Item = parquet::errors::Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// Some rows of a column in Dremel's encoding: the levels of all values, including missing ones, and the values that
/// exist.
struct Records<T: DataType> {
    values: Vec<T::T>,
    definition_levels: Vec<i16>,
    repetition_levels: Vec<i16>,
    /// Maximum definition level. If it is 0, there are no definition levels.
    definition: i16,
    /// Maximum repetition level. If it is 0, there are no repetition levels.
    repetition: i16,
}

impl<T: DataType> Records<T> {
    /// Creates an empty buffer for a column with these maximum levels.
    fn new(definition: i16, repetition: i16) -> Self {
        let (values, definition_levels, repetition_levels) = (Vec::new(), Vec::new(), Vec::new());
        Self { values, definition_levels, repetition_levels, definition, repetition }
    }

    /// Replaces the contents with the next rows. Returns the number of these rows.
    fn read(&mut self, reader: &mut ColumnReaderImpl<T>, rows: usize) -> parquet::errors::Result<usize> {
        self.values.clear();
        self.definition_levels.clear();
        self.repetition_levels.clear();
        let definitions = (self.definition > 0).then_some(&mut self.definition_levels);
        let repetitions = (self.repetition > 0).then_some(&mut self.repetition_levels);
        let (records, _, _) = reader.read_records(rows, definitions, repetitions, &mut self.values)?;
        Ok(records)
    }

    fn definitions(&self) -> Option<&[i16]> {
        (self.definition > 0).then_some(&self.definition_levels)
    }

    fn repetitions(&self) -> Option<&[i16]> {
        (self.repetition > 0).then_some(&self.repetition_levels)
    }

    /// Removes the rows for which `is_removed` returns true. `row` is the number of the first row. A row starts at
    /// each level with repetition level 0.
    fn retain(&mut self, mut row: u64, is_removed: &dyn Fn(u64) -> bool) {
        let levels = if self.definition > 0 { self.definition_levels.len() } else { self.values.len() };
        let (mut level_end, mut value, mut value_end, mut stays) = (0, 0, 0, true);
        for level in 0..levels {
            if self.repetition == 0 || self.repetition_levels[level] == 0 {
                stays = !is_removed(row);
                row += 1;
            }
            // Nulls and empty lists have levels but no value.
            let has_value = self.definition == 0 || self.definition_levels[level] == self.definition;
            if stays {
                if self.definition > 0 {
                    self.definition_levels[level_end] = self.definition_levels[level];
                }
                if self.repetition > 0 {
                    self.repetition_levels[level_end] = self.repetition_levels[level];
                }
                level_end += 1;
                if has_value {
                    // Values are swapped instead of cloned. So removed values move after the kept values and are cut
                    // off below.
                    self.values.swap(value_end, value);
                    value_end += 1;
                }
            }
            value += usize::from(has_value);
        }
        self.values.truncate(value_end);
        self.definition_levels.truncate(level_end);
        self.repetition_levels.truncate(level_end);
    }
}
