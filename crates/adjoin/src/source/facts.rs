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
    /// Not known where no row has a vector and the header does not say.
    pub(super) dimensions: Option<usize>,
    pub(super) ids: IdKind,
    /// Bytes that a scan holds beside its batches: what the format wants read as a whole.
    pub(super) held_bytes: u64,
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
