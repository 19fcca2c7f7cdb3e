//! A view of a file for the Parquet crate, which reads page by page. Small reads are served from a few windows in
//! memory.

use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adjoin_device::{DeviceError, ReadFile};
use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use super::ahead;
use super::parquet_claims::{PageSizes, check_page};

/// Bytes of a window. A page header and the bytes after it arrive in one read, so the page reads only its rest.
const WINDOW_BYTES: u64 = 128 << 10;
/// Bytes of a window if only page headers are read.
const HEADER_WINDOW_BYTES: u64 = 4_096;
/// Windows start at a block, so that direct reads transfer nothing twice.
const WINDOW_ALIGNMENT: u64 = 4_096;
/// Number of windows: one per column that is read, vectors and ids.
const WINDOWS: usize = 2;
/// Buffer of a sequential reader. It reads page headers, of about 50 bytes.
const HEADER_BYTES: usize = 256;
/// The sizes of a page, stored and decompressed, are within this many bytes of its header.
const PAGE_SIZES_BYTES: usize = 32;

/// A file with its windows. Clones share them.
#[derive(Clone)]
pub(super) struct WindowedFile {
    file: Arc<dyn ReadFile>,
    windows: Arc<Mutex<Windows>>,
    window_bytes: u64,
    /// Pages that take more, stored and decompressed together, are refused before they are read.
    page_bytes_max: u64,
}

/// Limits the pages that are read for one batch of rows.
#[derive(Default)]
struct BatchPages {
    /// Decompressed bytes of the pages read so far.
    read: u64,
    /// `None` if there is no limit.
    limit: Option<u64>,
}

#[derive(Default)]
struct Windows {
    /// Most recently used first.
    kept: Vec<Window>,
    /// Why the last failed read ended. The Parquet crate's error only quotes the reason.
    failure: Option<Failure>,
    /// Sizes in the page header that was read last.
    page: PageSizes,
    batch: BatchPages,
}

/// Why a read ended.
pub(super) enum Failure {
    /// The device failed.
    Device(DeviceError),
    /// A page takes `bytes` bytes, more than was expected of the file's pages.
    LargePage { bytes: u64, expected: u64 },
    /// The pages of a batch of rows exceed its limit.
    LargeBatch,
}

struct Window {
    start: u64,
    bytes: Vec<u8>,
}

/// Returns the bytes that the windows of a file hold.
pub(super) fn bytes() -> u64 {
    WINDOWS as u64 * WINDOW_BYTES
}

impl WindowedFile {
    /// Creates a view of a file.
    pub(super) fn new(file: Arc<dyn ReadFile>) -> Self {
        Self { file, windows: Arc::default(), window_bytes: WINDOW_BYTES, page_bytes_max: u64::MAX }
    }

    /// Creates a view of the same file with its own windows, for reading only page headers.
    pub(super) fn for_headers(&self) -> Self {
        Self { windows: Arc::default(), window_bytes: HEADER_WINDOW_BYTES, ..self.clone() }
    }

    /// Returns whether each read takes long whatever its length.
    pub(super) fn is_remote(&self) -> bool {
        self.file.is_remote()
    }

    /// Creates a view of the same file that reads groups of ranges ahead, if the file is remote.
    pub(super) fn reading_ahead(&self, groups: impl FnOnce() -> Vec<Vec<Range<u64>>>) -> Self {
        Self { file: ahead::grouped(self.file.clone(), groups), ..self.clone() }
    }

    /// Sets a limit on the bytes of a page.
    #[must_use]
    pub(super) fn with_page_bytes_max(self, page_bytes_max: u64) -> Self {
        Self { page_bytes_max, ..self }
    }

    /// Starts a batch of rows with pages of up to `limit` decompressed bytes; `None` for no limit.
    pub(super) fn begin_batch(&self, limit: Option<u64>) {
        // Pages that are still in memory from the last batch count as part of that batch.
        self.lock().batch = BatchPages { read: 0, limit };
    }

    /// Takes the reason for a failed read, if any.
    pub(super) fn take_failure(&self) -> Option<Failure> {
        self.lock().failure.take()
    }

    /// Returns the sizes in the page header that was read last.
    pub(super) fn last_page(&self) -> PageSizes {
        self.lock().page
    }

    fn lock(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the sizes that a page's header claims.
    fn check_page(&self, header: &[u8]) -> io::Result<()> {
        let page = check_page(header).map_err(io::Error::other)?;
        let (bytes, expected) = (page.stored.saturating_add(page.grown), self.page_bytes_max);
        let mut windows = self.lock();
        windows.page = page;
        if bytes > expected {
            windows.failure = Some(Failure::LargePage { bytes, expected });
            return Err(io::Error::other("a page is larger than expected"));
        }
        windows.batch.read = windows.batch.read.saturating_add(page.grown);
        // Not an error of the file: the caller reads this batch again, row by row.
        if windows.batch.limit.is_some_and(|limit| windows.batch.read > limit) {
            windows.failure = Some(Failure::LargeBatch);
            return Err(io::Error::other("the pages of a batch are larger than expected"));
        }
        Ok(())
    }

    /// Fills `buffer`. The range must lie within the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut windows = self.lock();
        let read = windows.read_at(self.file.as_ref(), self.window_bytes, offset, buffer);
        read.map_err(|error| {
            // The Parquet crate cannot carry our error, so it is kept here, and the crate gets its text.
            let quoted = io::Error::other(error.to_string());
            windows.failure = Some(Failure::Device(error));
            quoted
        })
    }
}

impl Windows {
    fn read_at(
        &mut self,
        file: &dyn ReadFile,
        window_bytes: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<(), DeviceError> {
        let mut done = self.copy_kept(offset, buffer);
        while done < buffer.len() {
            let position = offset + done as u64;
            // A read longer than a window is read into the caller's buffer, and leaves the windows to short reads.
            if (buffer.len() - done) as u64 >= window_bytes {
                file.read_at(position, &mut buffer[done..])?;
                return Ok(());
            }
            self.load(file, window_bytes, position)?;
            done += self.copy_kept(position, &mut buffer[done..]);
        }
        Ok(())
    }

    /// Copies bytes from a window that contains `offset`. Returns the number of bytes copied.
    fn copy_kept(&mut self, offset: u64, buffer: &mut [u8]) -> usize {
        let holds =
            |window: &Window| offset.checked_sub(window.start).is_some_and(|skip| skip < window.bytes.len() as u64);
        let Some(place) = self.kept.iter().position(holds) else { return 0 };
        // Moves the window to the front, so the least recently used one is replaced.
        self.kept[..=place].rotate_right(1);
        let window = &self.kept[0];
        let present = &window.bytes[(offset - window.start) as usize..];
        let copied = present.len().min(buffer.len());
        buffer[..copied].copy_from_slice(&present[..copied]);
        copied
    }

    /// Reads the window that contains `position`, which must lie within the file.
    fn load(&mut self, file: &dyn ReadFile, window_bytes: u64, position: u64) -> std::result::Result<(), DeviceError> {
        let start = position - position % WINDOW_ALIGNMENT;
        let mut bytes = vec![0; window_bytes.min(file.len() - start) as usize];
        file.read_at(start, &mut bytes)?;
        self.kept.truncate(WINDOWS - 1);
        self.kept.insert(0, Window { start, bytes });
        Ok(())
    }
}

impl Length for WindowedFile {
    fn len(&self) -> u64 {
        self.file.len()
    }
}

impl ChunkReader for WindowedFile {
    type T = BufReader<WindowReader>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::with_capacity(
            HEADER_BYTES,
            WindowReader { file: self.clone(), position: start, is_checked: false },
        ))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // check before allocating the buffer: a damaged header may ask for any length
        if start.checked_add(length as u64).is_none_or(|end| end > self.file.len()) {
            return Err(ParquetError::EOF(format!(
                "{length} bytes expected at byte {start}, but the file has {}",
                self.file.len()
            )));
        }
        let mut bytes = vec![0; length];
        self.read_at(start, &mut bytes)?;
        Ok(bytes.into())
    }
}

/// Reads sequentially from a position.
pub(super) struct WindowReader {
    file: WindowedFile,
    position: u64,
    is_checked: bool,
}

impl WindowReader {
    /// Returns the number of bytes present, up to `most`.
    fn present(&self, most: usize) -> usize {
        self.file.len().saturating_sub(self.position).min(most as u64) as usize
    }

    /// Checks a page's header before it is read. The Parquet crate reads only headers this way; it also creates readers
    /// at other positions, but does not read from them.
    fn check_page(&mut self) -> io::Result<()> {
        self.is_checked = true;
        let mut header = [0; PAGE_SIZES_BYTES];
        let header = &mut header[..self.present(PAGE_SIZES_BYTES)];
        self.file.read_at(self.position, header)?; // this loads the window for the read that follows
        self.file.check_page(header)
    }
}

impl Read for WindowReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.is_checked {
            self.check_page()?;
        }
        let present = self.present(buffer.len());
        self.file.read_at(self.position, &mut buffer[..present])?;
        self.position += present as u64;
        Ok(present)
    }
}
