//! Computes the memory of a Parquet file's pages from their headers, before any page is read.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::page::PageReader;
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::parquet_claims::PageSizes;
use super::window::WindowedFile;

/// Pages up to this size, in bytes, are expected and need no check. Common writers create pages of 1 MiB.
const PAGE_BYTES_GRANTED: u64 = 2 << 20;
/// Maximum number of page headers to read in a file. It covers a gigabyte of pages of 1 MiB, and reading it takes a
/// tenth of a second. If there are more pages, only the first headers of each column chunk are read, since the pages
/// of a writer are similar.
const HEADERS_MAX: u64 = 1_024;
/// Minimum number of headers to read per column chunk: a dictionary and the first pages.
const HEADERS_A_CHUNK: u64 = 3;
/// Safety factor for the sizes of pages in a remote file. Each header takes a request there, so only the largest chunk
/// of each column is checked.
const REMOTE_PAGES_GROW: u64 = 2;
/// Bytes per dictionary value in addition to the value itself: an offset, a view or a pointer.
const DICTIONARY_VALUE_BYTES: u64 = 16;

/// Maximum window of Brotli's decoder, in bytes. The decoder also holds a copy of its input.
const BROTLI_WINDOW_BYTES: u64 = 16 << 20;

/// Memory for the pages of some columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageMemory {
    /// Maximum number of bytes that a scan holds.
    pub(super) held: u64,
    /// Size of the largest page, stored and decompressed together.
    pub(super) largest: u64,
}

/// Computes the memory for the pages of some columns from page headers. If a header cannot be read, the rest of its
/// chunk is not checked. Readers must refuse pages that are larger than the returned size.
pub(super) fn page_memory(
    file: &WindowedFile,
    metadata: &ParquetMetaData,
    columns: impl Iterator<Item = usize>,
) -> PageMemory {
    let columns: Vec<usize> = columns.collect();
    let chunks = |column: usize| metadata.row_groups().iter().map(move |group| group.column(column));
    let looked_at = columns.iter().flat_map(|column| chunks(*column)).filter(|chunk| is_looked_at(chunk)).count();
    // Divides the number of headers among all chunks, so that a file with many columns does not take longer to open.
    let headers_max = (HEADERS_MAX / (looked_at as u64).max(1)).max(HEADERS_A_CHUNK);
    let (headers_max, unseen) = if file.is_remote() { (HEADERS_A_CHUNK, REMOTE_PAGES_GROW) } else { (headers_max, 1) };
    // Headers of small chunks are not read, so the largest page is assumed to have at least the expected size.
    let mut memory = PageMemory { held: 0, largest: 2 * PAGE_BYTES_GRANTED };
    for column in columns {
        let mut held = chunks(column).map(granted).max().unwrap_or(0);
        let looked_at = chunks(column).filter(|chunk| is_looked_at(chunk));
        let looked_at: Vec<&ColumnChunkMetaData> = match file.is_remote() {
            true => looked_at.max_by_key(|chunk| chunk.uncompressed_size()).into_iter().collect(),
            false => looked_at.collect(),
        };
        for chunk in looked_at {
            let mut pages = ChunkPages { compression: Some(chunk.compression()), ..ChunkPages::default() };
            let _ = pages.look(file, chunk, headers_max); // reading the page will report its fault
            held = held.max(pages.held.saturating_mul(unseen));
            memory.largest = memory.largest.max(pages.largest.saturating_mul(unseen));
        }
        memory.held = memory.held.saturating_add(held);
    }
    memory
}

/// Returns the memory for a chunk with pages of the expected size: a dictionary and a page, compressed and
/// decompressed.
fn granted(chunk: &ColumnChunkMetaData) -> u64 {
    3 * chunk.uncompressed_size().unsigned_abs().min(PAGE_BYTES_GRANTED)
}

fn is_looked_at(chunk: &ColumnChunkMetaData) -> bool {
    chunk.uncompressed_size().unsigned_abs() > PAGE_BYTES_GRANTED
}

/// Memory for the checked pages of a column chunk.
#[derive(Default)]
struct ChunkPages {
    compression: Option<Compression>,
    dictionary: u64,
    /// Size of the previous page. Its decoder keeps it until the next page is decoded.
    before: u64,
    held: u64,
    largest: u64,
}

impl ChunkPages {
    /// Reads up to `headers_max` page headers.
    fn look(&mut self, file: &WindowedFile, chunk: &ColumnChunkMetaData, headers_max: u64) -> Result<()> {
        // Uses small windows, since headers are far apart and the pages between them are not needed.
        let file = Arc::new(file.for_headers());
        let mut pages = SerializedPageReader::new(file.clone(), chunk, 0, None)?;
        for _ in 0..headers_max {
            if pages.peek_next_page()?.is_none() {
                return Ok(());
            }
            self.add(file.last_page());
            pages.skip_next_page()?;
        }
        // Pages that are not checked may be a little larger.
        self.held = self.held.saturating_add(self.held / 4);
        self.largest = self.largest.saturating_add(self.largest / 4);
        Ok(())
    }

    fn add(&mut self, page: PageSizes) {
        let decoding = match self.compression {
            Some(Compression::UNCOMPRESSED) => 0,
            Some(Compression::BROTLI(_)) => {
                page.stored.saturating_mul(2).saturating_add(page.grown.min(BROTLI_WINDOW_BYTES))
            }
            _ => page.stored,
        };
        let read = decoding.saturating_add(page.grown);
        self.largest = self.largest.max(page.stored.saturating_add(page.grown));
        // While a page is decoded, the dictionary and the previous page are still in memory.
        self.held = self.held.max(self.dictionary.saturating_add(self.before).saturating_add(read));
        match page.dictionary {
            Some(values) => {
                let values = values.saturating_mul(DICTIONARY_VALUE_BYTES);
                // Counts the page twice: as read, and as decoded values.
                self.dictionary = page.grown.saturating_mul(2).saturating_add(values);
                self.held = self.held.max(self.dictionary);
            }
            None => self.before = page.grown,
        }
    }
}

#[cfg(test)]
mod tests {
    use adjoin_device::{Device, FileSystem};
    use arrow_array::types::Float32Type;
    use arrow_array::{ArrayRef, ListArray, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{BrotliLevel, GzipLevel, ZstdLevel};
    use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};

    use super::*;
    use crate::base::options::{Element, VectorType};
    use crate::source::SourceOptions;
    use crate::source::fixtures::{Folder, error_of, table};
    use crate::source::options::ScanOptions;

    const DIMENSIONS: usize = 128;
    /// Size of the elements that [`vectors`] creates. It is also the size of a page, unless the writer splits the
    /// pages.
    const ELEMENT_BYTES: u64 = 30_000 * DIMENSIONS as u64 * 4;

    /// Creates 30,000 lists. Their type states no length.
    fn vectors(element: impl Fn(usize) -> f32) -> ArrayRef {
        let rows = (0..30_000)
            .map(|row| Some((0..DIMENSIONS).map(|k| Some(element(row * DIMENSIONS + k))).collect::<Vec<_>>()));
        Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(rows))
    }

    /// Returns properties with which a writer creates a single page per column chunk.
    fn large_pages() -> WriterPropertiesBuilder {
        WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_data_page_size_limit(1 << 30)
            .set_data_page_row_count_limit(usize::MAX)
            .set_write_batch_size(1 << 20)
    }

    fn write(folder: &Folder, table: &RecordBatch, properties: WriterPropertiesBuilder) {
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, table.schema(), Some(properties.build())).unwrap();
        writer.write(table).unwrap();
        writer.close().unwrap();
        folder.write("a.parquet", &bytes);
    }

    #[test]
    fn scan_memory_counts_decompressed_pages() {
        let folder = Folder::new();
        let zeros = table(&[("v", vectors(|_| 0.0))]);
        let compressions = [
            Compression::SNAPPY,
            Compression::ZSTD(ZstdLevel::default()),
            Compression::GZIP(GzipLevel::default()),
            Compression::BROTLI(BrotliLevel::default()),
            Compression::LZ4_RAW,
        ];
        for compression in compressions {
            write(&folder, &zeros, large_pages().set_compression(compression));
            let held = folder.open(&["a.parquet"]).unwrap().scan_bytes(0);
            let most = if matches!(compression, Compression::BROTLI(_)) { 9 } else { 5 } * ELEMENT_BYTES / 4;
            assert!((ELEMENT_BYTES..most).contains(&held), "{compression}: {held} bytes");
        }
        write(&folder, &table(&[("v", vectors(|k| (k * 7_919 % 10_007) as f32))]), large_pages());
        let held = folder.open(&["a.parquet"]).unwrap().scan_bytes(0);
        assert!((ELEMENT_BYTES..ELEMENT_BYTES * 5 / 4).contains(&held), "not compressed: {held} bytes");
    }

    #[test]
    fn scan_memory_counts_two_consecutive_pages() {
        let folder = Folder::new();
        let whole = table(&[("v", vectors(|k| k as f32))]);
        write(&folder, &whole, large_pages().set_data_page_row_count_limit(10_000).set_write_batch_size(1_000));
        let held = folder.open(&["a.parquet"]).unwrap().scan_bytes(0);
        assert!((ELEMENT_BYTES * 2 / 3..ELEMENT_BYTES).contains(&held), "{held} bytes");
    }

    #[test]
    fn scan_memory_counts_dictionary_values() {
        let folder = Folder::new();
        let ids: ArrayRef = Arc::new(StringArray::from_iter_values((0..30_000).map(|row| format!("{row:0200}"))));
        let table = table(&[("id", ids), ("v", vectors(|_| 0.0).slice(0, 30_000))]);
        let properties = large_pages().set_column_dictionary_enabled("id".into(), true);
        write(&folder, &table, properties.set_dictionary_page_size_limit(1 << 30));
        let held = folder.open(&["a.parquet"]).unwrap().scan_bytes(0);
        assert!(held >= ELEMENT_BYTES + 2 * 30_000 * 204, "{held} bytes");
    }

    #[test]
    fn a_file_can_be_opened_with_a_budget_too_small_for_a_page() {
        let folder = Folder::new();
        write(&folder, &table(&[("v", vectors(|k| k as f32))]), large_pages());
        let open = |memory| folder.open_within(&["a.parquet"], &SourceOptions::default(), memory).unwrap();
        let (small, large) = (open(21 << 20), open(64 << 20));
        assert_eq!(small.info(), large.info());
        assert_eq!(small.scan_bytes(1), large.scan_bytes(1));
    }

    #[test]
    fn refuses_pages_larger_than_reserved() {
        let folder = Folder::new();
        write(&folder, &table(&[("v", vectors(|k| k as f32))]), large_pages());
        let path = folder.path("a.parquet");
        let scan = |piece_bytes_max| {
            let vectors = VectorType { element: Element::F32, dimensions: DIMENSIONS };
            let wanted = ScanOptions { vectors, batch_bytes: 1 << 20, piece_bytes_max, first_row: 0 };
            let file = FileSystem::pread().open(&path).unwrap();
            crate::source::parquet::scan(&path, file, &SourceOptions::default(), wanted)?.next_batch()
        };
        assert!(scan(3 * ELEMENT_BYTES).unwrap().is_some());
        let message = error_of(scan(ELEMENT_BYTES));
        assert!(message.contains("a.parquet: cannot read the rows from 0 on: a page takes"), "{message}");
    }
}
