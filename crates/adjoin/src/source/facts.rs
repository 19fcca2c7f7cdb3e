//! What is known of one file of a source once its header has been read.

use std::path::Path;

use super::elements::StoredElement;
use super::vectors::IdKind;
use crate::error::{Error, Result};
use crate::options::DIMENSIONS_MAX;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) rows: u64,
    pub(super) element: StoredElement,
    /// Not known where no row has a vector and the header does not say, or where the budget is too small to look at one.
    pub(super) dimensions: Option<usize>,
    /// What the header makes of them where no vector was looked at: good enough to say how much memory is needed.
    pub(super) likely_dimensions: Option<usize>,
    pub(super) ids: IdKind,
    pub(super) memory: ScanMemory,
}

/// What a scan of a file takes beside its batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ScanMemory {
    /// Bytes that it holds at most.
    pub(super) held: u64,
    /// Bytes of the largest piece that the format wants read as a whole, a page or a record batch. Larger ones are refused.
    pub(super) piece: u64,
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
