//! A temporary file with the vectors of a source of floats, as bytes.

use std::path::PathBuf;
use std::sync::Arc;

use adjoin_device::{ReadFile, Reservation, WRITE_BUFFER_BYTES, WriteFile};

use super::dense::DenseScan;
use super::dense_layout::DenseLayout;
use super::elements::StoredElement;
use super::options::ScanOptions;
use super::vector_source::SourceInfo;
use super::vectors::{IdKind, VectorBatch};
use crate::base::context::Context;
use crate::base::locks::OwnFolder;

/// Minimum bytes of a file. Scanning the source of fewer bytes takes little time.
const BYTES_MIN: u64 = 4 << 20;
/// Free space of the disk that a file requires, as a multiple of its size: for the file, and for the records and the buckets
/// of a store.
const FREE_MULTIPLE: u64 = 4;
/// Name of the file.
const FILE: &str = "vectors";

/// A complete file. It is removed when this value is dropped.
pub(super) struct NarrowedFile {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    _folder: OwnFolder,
}

/// A file that is being written.
pub(super) struct NarrowedWriter {
    folder: OwnFolder,
    file: Box<dyn WriteFile>,
    /// Size of the complete file in bytes.
    bytes: u64,
    _buffer: Reservation,
}

impl NarrowedWriter {
    /// Creates a file for the rows of a source. `first` has the batches that were scanned before. Returns `None` if the file
    /// is not worthwhile or cannot be written: the source can be scanned again instead. Rows with ids or faults are not
    /// written.
    pub(super) fn begin(context: &Context, info: &SourceInfo, first: &[VectorBatch]) -> Option<Self> {
        let (bytes, temporary) = (info.rows * info.vectors.dimensions as u64, context.temporary(None));
        if info.ids != IdKind::None || bytes < BYTES_MIN {
            return None;
        }
        let free = context.device.free_bytes(&temporary).ok()?;
        if free / FREE_MULTIPLE < bytes {
            return None;
        }
        let buffer = context.budget().reserve(WRITE_BUFFER_BYTES as u64).ok()?;
        let folder = OwnFolder::create(&context.device, &temporary, "bytes").ok()?;
        let file = context.device.create(&folder.path().join(FILE)).ok()?;
        let mut writer = Self { folder, file, bytes, _buffer: buffer };
        first.iter().all(|batch| writer.append(batch)).then_some(writer)
    }

    /// Appends a batch whose vectors are bytes. Returns whether this was possible.
    pub(super) fn append(&mut self, batch: &VectorBatch) -> bool {
        batch.faults.is_empty() && self.file.append(&batch.bytes).is_ok()
    }

    /// Completes the file. Returns `None` if it cannot be written.
    pub(super) fn finish(self, context: &Context) -> Option<NarrowedFile> {
        let Self { folder, mut file, bytes, .. } = self;
        let path = folder.path().join(FILE);
        file.sync().ok()?; // scans bypass the page cache
        drop(file);
        let file = context.device.open(&path).ok().filter(|file| file.len() == bytes)?;
        Some(NarrowedFile { path, file, _folder: folder })
    }
}

impl NarrowedFile {
    /// Returns the size of the file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.file.len()
    }

    /// Starts a scan of the rows of a source, whose vectors are bytes.
    pub(super) fn scan(&self, info: &SourceInfo, batch_bytes: usize, first_row: u64) -> DenseScan {
        let layout = DenseLayout {
            start: 0,
            rows: info.rows,
            dimensions: Some(info.vectors.dimensions),
            element: StoredElement::Same(info.vectors.element),
            counted_rows: false,
        };
        let options = ScanOptions { vectors: info.vectors, batch_bytes, piece_bytes_max: 0, first_row };
        DenseScan::new(self.path.clone(), self.file.clone(), layout, options)
    }
}
