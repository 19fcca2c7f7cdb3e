//! Facts about one file of a source, known once its header has been read.

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
    /// Facts found by reading through a JSON lines file.
    pub(super) lines: Option<Arc<LineFacts>>,
    /// Contents of an `.npz` file.
    pub(super) arrays: Option<Arc<Arrays>>,
}

impl Facts {
    /// Describes a file that has no rows, in a format that states no columns without rows.
    pub(super) fn of_nothing(lines: Arc<LineFacts>) -> Self {
        let (dimensions, ids, memory) = (Dimensions::Unknown, IdKind::None, ScanMemory::default());
        let lines = Some(lines);
        Self { rows: 0, element: StoredElement::F64, dimensions, vector_column: None, ids, memory, lines, arrays: None }
    }

    /// Returns whether the columns are unknown, so that the file matches every other file.
    pub(super) fn says_nothing(&self) -> bool {
        self.rows == 0 && self.lines.is_some()
    }
}

/// Limit for the sizes that damaged files claim: more memory than any machine has, and small enough that sums do not
/// overflow.
const HELD_BYTES_MAX: u64 = 1 << 60;

/// Memory of a scan of a file, in addition to its batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ScanMemory {
    /// Most bytes that it holds.
    pub(super) held: u64,
    /// Bytes of the largest piece that must be read as a whole: a page, a record batch or a dictionary. Larger pieces
    /// are refused.
    pub(super) piece: u64,
    /// Mean bytes of a text id in the row group with the longest ids; 0 if the header does not state it.
    pub(super) id_bytes: u64,
    /// Mean bytes of a row, with all of its columns, in the row group with the longest rows; 0 if the header does not
    /// state it.
    pub(super) row_bytes: u64,
}

impl ScanMemory {
    /// Creates it from sizes that headers claim.
    pub(super) fn claimed(held: u64, piece: u64) -> Self {
        Self { held: held.min(HELD_BYTES_MAX), piece, id_bytes: 0, row_bytes: 0 }
    }
}

/// Number of elements of a vector, and how it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dimensions {
    /// Stated by the header: all rows have this many.
    Stated(usize),
    /// Length of the first list that is not empty. Other lists may differ.
    Seen(usize),
    /// Estimated from the header, if the budget is too small to read a list. Good enough to report how much memory is
    /// needed.
    Likely(usize),
    /// Unknown: no row has a vector, and the header does not state it.
    Unknown,
}

impl Dimensions {
    /// Returns the number if it is known and not an estimate.
    pub(super) fn known(self) -> Option<usize> {
        match self {
            Self::Stated(dimensions) | Self::Seen(dimensions) => Some(dimensions),
            Self::Likely(_) | Self::Unknown => None,
        }
    }

    /// Returns the number if it is an estimate.
    pub(super) fn likely(self) -> Option<usize> {
        match self {
            Self::Likely(dimensions) => Some(dimensions),
            Self::Stated(_) | Self::Seen(_) | Self::Unknown => None,
        }
    }
}
