//! Layout of files with rows at a fixed stride.

use super::elements::StoredElement;

/// Layout of the rows of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DenseLayout {
    /// Offset of the first row.
    pub(super) start: u64,
    pub(super) rows: u64,
    /// `None` if the file is empty and has no header.
    pub(super) dimensions: Option<usize>,
    pub(super) element: StoredElement,
    /// Whether each row starts with its own i32 number of dimensions.
    pub(super) counted_rows: bool,
}

impl DenseLayout {
    /// Returns the bytes before the elements of each row.
    pub(super) fn count_bytes(&self) -> usize {
        if self.counted_rows { 4 } else { 0 }
    }

    /// Returns the bytes of a row of `dimensions` in the file.
    pub(super) fn row_bytes(&self, dimensions: usize) -> usize {
        self.count_bytes() + dimensions * self.element.bytes()
    }
}
