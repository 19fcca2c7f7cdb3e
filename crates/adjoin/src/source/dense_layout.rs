//! Layout of files with rows of a fixed size.

use super::elements::StoredElement;

/// Layout of the rows in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DenseLayout {
    /// Offset of the first row.
    pub(super) start: u64,
    pub(super) rows: u64,
    /// Number of dimensions; `None` if the file is empty and has no header.
    pub(super) dimensions: Option<usize>,
    pub(super) element: StoredElement,
    /// Whether each row starts with its own number of dimensions, as an i32.
    pub(super) counted_rows: bool,
}

impl DenseLayout {
    /// Returns the number of bytes that precede the elements of a row.
    pub(super) fn count_bytes(&self) -> usize {
        if self.counted_rows { 4 } else { 0 }
    }

    /// Returns the size in the file of a row with `dimensions` elements, in bytes.
    pub(super) fn row_bytes(&self, dimensions: usize) -> usize {
        self.count_bytes() + dimensions * self.element.bytes()
    }
}
