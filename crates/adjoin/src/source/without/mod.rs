//! Copies a file in its own format without some of its rows. Kept rows are copied as they are: with all columns and
//! types, in the order of the file.

mod arrow;
mod dense;
mod json_lines;
mod npz;
mod parquet;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use adjoin_device::ReadFile;

use super::facts::ScanMemory;
use super::foreign::changed;
use super::format::Format;
use super::json_types::LineFacts;
use super::npz_arrays::Arrays;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::output::OutputWriter;

/// A request to copy a file without some rows.
pub(super) struct Without<'a> {
    pub(super) context: &'a Context,
    /// The file to read.
    pub(super) path: &'a Path,
    /// Number of rows in the file.
    pub(super) rows: u64,
    /// Returns whether a row is removed. Its argument is the number of the row in the file.
    pub(super) is_removed: &'a (dyn Fn(u64) -> bool + Sync),
    /// Called with the number of rows completed since the last call.
    pub(super) done: &'a (dyn Fn(u64) + Sync),
}

/// Format of a file, and facts about it that were found in its rows or its directory.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) format: Format,
    pub(super) lines: Option<&'a LineFacts>,
    pub(super) arrays: Option<&'a Arc<Arrays>>,
}

/// States which rows of a range are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowsToKeep {
    All,
    None,
    Some,
}

impl Without<'_> {
    /// Returns the number of rows of a range that are kept.
    fn count(&self, rows: Range<u64>) -> u64 {
        rows.filter(|row| !(self.is_removed)(*row)).count() as u64
    }

    fn kept(&self, rows: Range<u64>) -> RowsToKeep {
        match self.count(rows.clone()) {
            0 => RowsToKeep::None,
            all if all == rows.end - rows.start => RowsToKeep::All,
            _ => RowsToKeep::Some,
        }
    }

    /// Reports completed rows and checks for cancellation.
    fn advance(&self, rows: u64) -> Result<()> {
        (self.done)(rows);
        self.context.cancel.check()
    }
}

/// Returns the memory for copying a file.
///
/// # Errors
/// Fails if the headers of the file cannot be read.
pub(super) fn memory(known: Known<'_>, context: &Context, path: &Path, file: Arc<dyn ReadFile>) -> Result<ScanMemory> {
    let holding = |held: u64| ScanMemory { held, ..ScanMemory::default() };
    Ok(match known.format {
        Format::Parquet => parquet::memory(path, file)?,
        Format::Arrow => holding(arrow::held_bytes(context, path, file)?),
        Format::JsonLines => holding(known.lines.map_or(0, json_lines::held_bytes)),
        Format::Npz => holding(npz::held_bytes(path, known.arrays.ok_or_else(|| changed(path))?)?),
        Format::Dense(format) => holding(dense::held_bytes(format, path, &*file)?),
    })
}

/// Copies the rows that are kept. `memory` is the result of the function [`memory`].
///
/// # Errors
/// Fails if the file cannot be read or the result cannot be written.
pub(super) fn write(
    known: Known<'_>,
    memory: ScanMemory,
    request: &Without<'_>,
    file: Arc<dyn ReadFile>,
    out: OutputWriter,
) -> Result<OutputWriter> {
    let purpose = format!("{}: writing it again", request.path.display());
    let _memory = request.context.reserve(memory.held, &purpose)?;
    match known.format {
        Format::Parquet => parquet::write(memory.piece, request, file, out),
        Format::Arrow => arrow::write(request, file, out),
        Format::JsonLines => json_lines::write(known.lines.ok_or_else(|| changed(request.path))?, request, file, out),
        Format::Npz => npz::write(known.arrays.ok_or_else(|| changed(request.path))?, request, file, out),
        Format::Dense(format) => dense::write(format, request, &*file, out),
    }
}

/// Returns the error for a result that cannot be written. If an error of the device caused it, uses the message of the
/// device.
fn cannot_write(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    // The crates wrap the error of the device. Its message names the file.
    let under = error.source().map(ToString::to_string);
    let words = under.unwrap_or_else(|| format!("cannot write the kept rows: {error}"));
    Error::device(words).caused_by(error)
}
