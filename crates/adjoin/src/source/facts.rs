//! What is known of one file of a source once its header has been read.

use std::path::Path;

use super::elements::StoredElement;
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
    /// Bytes that a scan holds beside its batches: what the format wants read as a whole.
    pub(super) held_bytes: u64,
}

/// How many elements a vector has, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dimensions {
    /// By the header: all rows have as many.
    Stated(usize),
    /// By the first list that is not empty: others may differ.
    Seen(usize),
    /// No row has a vector, and the header does not say.
    Unknown,
}

impl Dimensions {
    /// The number, if it is known.
    pub(super) fn known(self) -> Option<usize> {
        match self {
            Self::Stated(dimensions) | Self::Seen(dimensions) => Some(dimensions),
            Self::Unknown => None,
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
