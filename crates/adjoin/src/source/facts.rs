//! What is known of one file of a source once its header has been read.

use std::path::Path;
use std::sync::Arc;

use super::elements::StoredElement;
use super::json_lines::LineFacts;
use super::npz::Arrays;
use super::vectors::IdKind;
use crate::error::{Error, Result};
use crate::options::DIMENSIONS_MAX;

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) rows: u64,
    pub(super) element: StoredElement,
    pub(super) dimensions: Dimensions,
    /// Name of the column of vectors, where the format has columns.
    pub(super) vector_column: Option<String>,
    pub(super) ids: IdKind,
    pub(super) memory: ScanMemory,
    /// What reading through a file of JSON lines has told.
    pub(super) lines: Option<Arc<LineFacts>>,
    /// What lies in an `.npz`.
    pub(super) arrays: Option<Arc<Arrays>>,
}

impl Facts {
    /// Of a file whose rows would tell its columns, and that has none.
    pub(super) fn of_nothing(lines: Arc<LineFacts>) -> Self {
        let (dimensions, ids, memory) = (Dimensions::Unknown, IdKind::None, ScanMemory::default());
        let lines = Some(lines);
        Self { rows: 0, element: StoredElement::F64, dimensions, vector_column: None, ids, memory, lines, arrays: None }
    }

    /// Whether it says nothing of columns, so that it goes with every other file.
    pub(super) fn says_nothing(&self) -> bool {
        self.rows == 0 && self.lines.is_some()
    }
}

/// What damaged files claim beyond this counts as this: more than a machine has, and little enough to be added to.
const HELD_BYTES_MAX: u64 = 1 << 60;

/// What a scan of a file takes beside its batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ScanMemory {
    /// Bytes that it holds at most.
    pub(super) held: u64,
    /// Bytes of the largest piece that the format wants read as a whole, a page, a record batch or a
    /// dictionary. Larger ones are refused.
    pub(super) piece: u64,
}

impl ScanMemory {
    /// Of what headers claim.
    pub(super) fn claimed(held: u64, piece: u64) -> Self {
        Self { held: held.min(HELD_BYTES_MAX), piece }
    }
}

/// How many elements a vector has, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dimensions {
    /// By the header: all rows have as many.
    Stated(usize),
    /// By the first list that is not empty: others may differ.
    Seen(usize),
    /// By what the header makes likely, where the budget is too small to look at a list: good enough to say how much
    /// memory is needed.
    Likely(usize),
    /// No row has a vector, and the header does not say.
    Unknown,
}

impl Dimensions {
    /// The number, if it is known and no guess.
    pub(super) fn known(self) -> Option<usize> {
        match self {
            Self::Stated(dimensions) | Self::Seen(dimensions) => Some(dimensions),
            Self::Likely(_) | Self::Unknown => None,
        }
    }

    /// The number that the header makes likely, where no more was looked at.
    pub(super) fn likely(self) -> Option<usize> {
        match self {
            Self::Likely(dimensions) => Some(dimensions),
            Self::Stated(_) | Self::Seen(_) | Self::Unknown => None,
        }
    }
}

/// The number of dimensions that a file states, if it is one that the engine takes.
pub(super) fn check_dimensions(path: &Path, stated: i128) -> Result<usize> {
    match usize::try_from(stated) {
        Ok(dimensions @ 1..=DIMENSIONS_MAX) => Ok(dimensions),
        _ => Err(Error::input(format!(
            "{}: its vectors have {stated} dimensions; vectors of 1 to {DIMENSIONS_MAX} dimensions can be read",
            path.display()
        ))),
    }
}
