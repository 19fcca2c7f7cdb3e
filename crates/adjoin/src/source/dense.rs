//! Reads files with rows of a fixed size: raw, NumPy and safetensors files.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{AlignedBuffer, ReadFile};

use super::dense_layout::DenseLayout;
use super::elements::StoredElement;
use super::facts::{Dimensions, Facts, ScanMemory};
use super::options::ScanOptions;
use super::vectors::{Fault, IdKind, Ids, VectorBatch, VectorScan};
use super::{npy, raw, safetensors};
use crate::base::error::{Error, Result};
use crate::base::options::Element;

/// File format with rows of a fixed size. Its header determines the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DenseFormat {
    Npy,
    Safetensors,
    /// Starts with the numbers of rows and dimensions. The rows follow.
    CountedFile(Element),
    /// Each row starts with its number of dimensions.
    CountedRows(Element),
}

impl DenseFormat {
    /// Reads the header of a file. `name` is the name of the tensor with the vectors, which is needed if the file has
    /// several.
    pub(super) fn layout(self, path: &Path, file: &dyn ReadFile, name: Option<&str>) -> Result<DenseLayout> {
        match self {
            Self::Npy => npy::layout(path, file),
            Self::Safetensors => safetensors::layout(path, file, name),
            Self::CountedFile(element) => raw::counted_file(path, file, element),
            Self::CountedRows(element) => raw::counted_rows(path, file, element),
        }
    }
}

impl DenseLayout {
    /// Returns the facts about a file with this layout.
    pub(super) fn facts(&self) -> Facts {
        let dimensions = self.dimensions.map_or(Dimensions::Unknown, Dimensions::Stated);
        Facts {
            rows: self.rows,
            element: self.element,
            dimensions,
            vector_column: None,
            ids: IdKind::None,
            memory: ScanMemory::default(),
            lines: None,
            arrays: None,
        }
    }
}

/// A scan of a file with rows of a fixed size.
pub(super) struct DenseScan {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    layout: DenseLayout,
    dimensions: usize,
    rows_per_batch: usize,
    next_row: u64,
    /// The last bytes that were read.
    buffer: AlignedBuffer,
}

impl DenseScan {
    /// Creates a scan that starts at the row that is needed first.
    pub(super) fn new(path: PathBuf, file: Arc<dyn ReadFile>, layout: DenseLayout, scan: ScanOptions) -> Self {
        let ScanOptions { batch_bytes, first_row: next_row, .. } = scan;
        let dimensions = layout.dimensions.unwrap_or(0); // unknown only if there are no rows
        let rows_per_batch = (batch_bytes / (dimensions * layout.element.element().bytes()).max(1)).max(1);
        Self { path, file, layout, dimensions, rows_per_batch, next_row, buffer: AlignedBuffer::zeroed(0) }
    }

    /// Reads the next rows into the buffer. Returns their place in it.
    fn read(&mut self, rows: usize) -> Result<Range<usize>> {
        let row_bytes = self.layout.row_bytes(self.dimensions) as u64;
        let start = self.layout.start + self.next_row * row_bytes;
        let end = start + rows as u64 * row_bytes;
        let blocks = self.file.blocks_of(start..end);
        self.buffer.resize((blocks.end - blocks.start) as usize);
        self.file.read_at(blocks.start, &mut self.buffer)?;
        Ok((start - blocks.start) as usize..(end - blocks.start) as usize)
    }

    /// Converts the rows in `stored` and appends their elements to `bytes`. Returns the rows that cannot be converted.
    fn unpack(&self, stored: &[u8], bytes: &mut Vec<u8>) -> Result<Vec<(usize, Fault)>> {
        let mut faults = Vec::new();
        for (k, row) in stored.chunks_exact(self.layout.row_bytes(self.dimensions)).enumerate() {
            let (count, elements) = row.split_at(self.layout.count_bytes());
            // Each row states its own length. If a length differs, later rows are not at the assumed offsets.
            if let Some(count) = count.first_chunk() {
                self.check_count(self.next_row + k as u64, i32::from_le_bytes(*count))?;
            }
            faults.extend(self.layout.element.append(elements, bytes).map(|fault| (k, fault)));
        }
        Ok(faults)
    }

    fn check_count(&self, row: u64, count: i32) -> Result<()> {
        if usize::try_from(count) == Ok(self.dimensions) {
            return Ok(());
        }
        Err(Error::input(format!(
            "{}: row {row} has {count} dimensions, row 0 has {}; all vectors of a set must have the same number",
            self.path.display(),
            self.dimensions
        )))
    }
}

impl VectorScan for DenseScan {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let rows = (self.layout.rows - self.next_row).min(self.rows_per_batch as u64) as usize;
        if rows == 0 {
            return Ok(None);
        }
        let stored = self.read(rows)?;
        let stored = &self.buffer[stored];
        // Rows without counts have the layout of a batch.
        let as_it_lies = !self.layout.counted_rows && matches!(self.layout.element, StoredElement::Same(_));
        let (bytes, faults) = if as_it_lies {
            (stored.to_vec(), Vec::new())
        } else {
            let mut bytes = Vec::with_capacity(rows * self.dimensions * self.layout.element.element().bytes());
            let faults = self.unpack(stored, &mut bytes)?;
            (bytes, faults)
        };
        let batch = VectorBatch { first_row: self.next_row, rows, bytes, faults, ids: Ids::None };
        self.next_row += rows as u64;
        Ok(Some(batch))
    }
}
