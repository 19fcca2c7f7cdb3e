//! A view of a file for the Parquet crate, which reads page by page. A few windows in memory serve its small reads.

use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adjoin_device::{DeviceError, ReadFile};
use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use super::ahead;
use super::parquet_claims::{PageSizes, check_page};

/// Size of a window, in bytes. A page header is read together with the bytes after it, so only the rest of the page is
/// read later.
const WINDOW_BYTES: u64 = 128 << 10;
/// Size of a window if only page headers are read, in bytes.
const HEADER_WINDOW_BYTES: u64 = 4_096;
/// Windows start at multiples of this, so that direct reads do not read a block twice.
const WINDOW_ALIGNMENT: u64 = 4_096;
/// Number of windows: one for each column that is read, which are vectors and ids.
const WINDOWS: usize = 2;
/// Size of the buffer of a sequential reader, in bytes. It reads page headers, which have about 50 bytes.
const HEADER_BYTES: usize = 256;
/// Number of bytes at the start of a page header that contain both sizes of the page, stored and decompressed.
const PAGE_SIZES_BYTES: usize = 32;

/// A file with its windows. Clones share the windows.
#[derive(Clone)]
pub(super) struct WindowedFile {
    file: Arc<dyn ReadFile>,
    windows: Arc<Mutex<Windows>>,
    window_bytes: u64,
    /// Limit on the bytes of a page, stored and decompressed together. Larger pages are refused before they are read.
    page_bytes_max: u64,
}

/// Limit on the pages that are read for one batch of rows.
#[derive(Default)]
struct BatchPages {
    /// Decompressed bytes of the pages read so far for this batch.
    read: u64,
    /// Maximum number of decompressed bytes; `None` if there is no limit.
    limit: Option<u64>,
}

#[derive(Default)]
struct Windows {
    /// Windows in memory, most recently used first.
    kept: Vec<Window>,
    /// Reason for the last failed read. The error of the Parquet crate only quotes it.
    failure: Option<Failure>,
    /// Sizes that the last page header states.
    page: PageSizes,
    batch: BatchPages,
}

/// Reason why a read failed.
pub(super) enum Failure {
    /// The device failed.
    Device(DeviceError),
    /// A page takes `bytes` bytes, which is more than expected for the file.
    LargePage { bytes: u64, expected: u64 },
    /// The pages of a batch of rows exceed the limit of the batch.
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

    /// Returns whether the file is remote. Then every read takes long, even a short one.
    pub(super) fn is_remote(&self) -> bool {
        self.file.is_remote()
    }

    /// Creates a view of the same file. If the file is remote, the view reads the ranges of `groups` ahead.
    pub(super) fn reading_ahead(&self, groups: impl FnOnce() -> Vec<Vec<Range<u64>>>) -> Self {
        Self { file: ahead::grouped(self.file.clone(), groups), ..self.clone() }
    }

    /// Sets a limit on the bytes of a page.
    #[must_use]
    pub(super) fn with_page_bytes_max(self, page_bytes_max: u64) -> Self {
        Self { page_bytes_max, ..self }
    }

    /// Starts a batch of rows. Its pages may have up to `limit` decompressed bytes; `None` for no limit.
    pub(super) fn begin_batch(&self, limit: Option<u64>) {
        // Pages that are still in memory from the previous batch do not count for this batch.
        self.lock().batch = BatchPages { read: 0, limit };
    }

    /// Returns the reason for the last failed read, if any, and clears it.
    pub(super) fn take_failure(&self) -> Option<Failure> {
        self.lock().failure.take()
    }

    /// Returns the sizes that the last page header states.
    pub(super) fn last_page(&self) -> PageSizes {
        self.lock().page
    }

    fn lock(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the sizes that a page header claims.
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
        // This is not an error of the file. The caller reads this batch again, row by row.
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
            // The Parquet crate cannot carry our error. So the error is saved here, and the crate gets its text.
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
            // A long read goes directly to the caller's buffer, so that the windows keep their contents for short
            // reads.
            if (buffer.len() - done) as u64 >= window_bytes {
                file.read_at(position, &mut buffer[done..])?;
                return Ok(());
            }
            self.load(file, window_bytes, position)?;
            done += self.copy_kept(position, &mut buffer[done..]);
        }
        Ok(())
    }

    /// Copies bytes from the window that contains `offset`, if any. Returns the number of copied bytes.
    fn copy_kept(&mut self, offset: u64, buffer: &mut [u8]) -> usize {
        let holds =
            |window: &Window| offset.checked_sub(window.start).is_some_and(|skip| skip < window.bytes.len() as u64);
        let Some(place) = self.kept.iter().position(holds) else { return 0 };
        // Moves the window to the front, so that the least recently used window is replaced first.
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
        // The length is checked before the buffer is allocated, since a damaged header may ask for any length.
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

/// Sequential reader from a position of the file.
pub(super) struct WindowReader {
    file: WindowedFile,
    position: u64,
    is_checked: bool,
}

impl WindowReader {
    /// Returns how many of the next `most` bytes are within the file.
    fn present(&self, most: usize) -> usize {
        self.file.len().saturating_sub(self.position).min(most as u64) as usize
    }

    /// Checks a page header before it is read. The Parquet crate reads only headers from such a reader. It also
    /// creates readers at other positions, but does not read from them.
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
