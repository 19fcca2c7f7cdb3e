//! Facts about one file of a source, which are known after its header was read.

use std::sync::Arc;

use super::elements::StoredElement;
use super::json_types::LineFacts;
use super::npz_arrays::Arrays;
use super::vectors::IdKind;

/// Contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) rows: u64,
    pub(super) element: StoredElement,
    pub(super) dimensions: Dimensions,
    /// Name of the column of vectors, if the format has columns.
    pub(super) vector_column: Option<String>,
    pub(super) ids: IdKind,
    pub(super) memory: ScanMemory,
    /// Facts about a JSON lines file, which are found by reading all of it.
    pub(super) lines: Option<Arc<LineFacts>>,
    /// Directory of the arrays in an `.npz` file.
    pub(super) arrays: Option<Arc<Arrays>>,
}

impl Facts {
    /// Describes a file without rows, in a format that states no columns if there are no rows.
    pub(super) fn of_nothing(lines: Arc<LineFacts>) -> Self {
        let (dimensions, ids, memory) = (Dimensions::Unknown, IdKind::None, ScanMemory::default());
        let lines = Some(lines);
        Self { rows: 0, element: StoredElement::F64, dimensions, vector_column: None, ids, memory, lines, arrays: None }
    }

    /// Returns whether the columns are unknown. Such a file matches every other file.
    pub(super) fn says_nothing(&self) -> bool {
        self.rows == 0 && self.lines.is_some()
    }
}

/// Limit for sizes that headers claim, since a header may be damaged. It is more than the memory of any machine, and
/// small enough that sums do not overflow.
const HELD_BYTES_MAX: u64 = 1 << 60;

/// Memory of a scan of a file, in addition to its batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ScanMemory {
    /// Maximum number of bytes that the scan holds.
    pub(super) held: u64,
    /// Size of the largest piece that must be read as a whole, in bytes: a page, a record batch or a dictionary.
    /// Larger pieces are refused.
    pub(super) piece: u64,
    /// Mean length of text ids in the row group with the longest ids, in bytes; 0 if the header does not state it.
    pub(super) id_bytes: u64,
    /// Mean size of a row with all of its columns, in the row group with the longest rows, in bytes; 0 if the header
    /// does not state it.
    pub(super) row_bytes: u64,
}

impl ScanMemory {
    /// Creates the memory of a scan from sizes that headers claim.
    pub(super) fn claimed(held: u64, piece: u64) -> Self {
        Self { held: held.min(HELD_BYTES_MAX), piece, id_bytes: 0, row_bytes: 0 }
    }
}

/// Number of dimensions of the vectors of a file, and how it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dimensions {
    /// Stated by the header. It is the same for all rows.
    Stated(usize),
    /// Length of the first list that is not empty. Other lists may have other lengths.
    Seen(usize),
    /// Estimate from the header. Used if the budget is too small to read a list, to report how much memory is needed.
    Likely(usize),
    /// Unknown, since no row has a vector and the header does not state the number.
    Unknown,
}

impl Dimensions {
    /// Returns the number of dimensions if it is known and not an estimate.
    pub(super) fn known(self) -> Option<usize> {
        match self {
            Self::Stated(dimensions) | Self::Seen(dimensions) => Some(dimensions),
            Self::Likely(_) | Self::Unknown => None,
        }
    }

    /// Returns the number of dimensions if it is an estimate.
    pub(super) fn likely(self) -> Option<usize> {
        match self {
            Self::Likely(dimensions) => Some(dimensions),
            Self::Stated(_) | Self::Seen(_) | Self::Unknown => None,
        }
    }
}
