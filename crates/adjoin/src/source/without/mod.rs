//! A file written again, in its own format, without some of its rows. What stays is copied, not made anew: every column,
//! with its type, in its order.

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
use super::file::changed;
use super::json_lines::LineFacts;
use super::npz::Arrays;
use super::open::Format;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::output::OutputWriter;

/// What is asked for.
pub(super) struct Without<'a> {
    pub(super) context: &'a Context,
    /// The file that is read.
    pub(super) path: &'a Path,
    /// Its rows.
    pub(super) rows: u64,
    /// Whether a row goes, by its number in the file.
    pub(super) is_gone: &'a (dyn Fn(u64) -> bool + Sync),
    /// Is told how many rows more are done.
    pub(super) done: &'a (dyn Fn(u64) + Sync),
}

/// What is known of a file whose rows or directory told it.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) lines: Option<&'a LineFacts>,
    pub(super) arrays: Option<&'a Arc<Arrays>>,
}

/// Which of some rows stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Staying {
    All,
    None,
    Some,
}

impl Without<'_> {
    /// How many of some rows stay.
    fn count(&self, rows: Range<u64>) -> u64 {
        rows.filter(|row| !(self.is_gone)(*row)).count() as u64
    }

    fn staying(&self, rows: Range<u64>) -> Staying {
        match self.count(rows.clone()) {
            0 => Staying::None,
            all if all == rows.end - rows.start => Staying::All,
            _ => Staying::Some,
        }
    }

    /// After some rows: tells that, and whether to stop.
    fn advance(&self, rows: u64) -> Result<()> {
        (self.done)(rows);
        self.context.cancel.check()
    }
}

/// What writing a file of this format takes.
///
/// # Errors
/// Where its headers cannot be read.
pub(super) fn memory(
    (format, known): (Format, Known<'_>),
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
) -> Result<ScanMemory> {
    let holding = |held: u64| ScanMemory { held, piece: 0 };
    Ok(match format {
        Format::Parquet => parquet::memory(path, file)?,
        Format::Arrow => holding(arrow::held_bytes(context, path, file)?),
        Format::JsonLines => holding(known.lines.map_or(0, json_lines::held_bytes)),
        Format::Npz => holding(npz::held_bytes(path, known.arrays.ok_or_else(|| changed(path))?)?),
        Format::Dense(_) => holding(dense::HELD_BYTES),
    })
}

/// Writes what stays, which takes as much memory as [`memory`] says.
///
/// # Errors
/// Where the file cannot be read, or the result not be written.
pub(super) fn write(
    (format, known): (Format, Known<'_>),
    memory: ScanMemory,
    wanted: &Without<'_>,
    file: Arc<dyn ReadFile>,
    out: OutputWriter,
) -> Result<OutputWriter> {
    let purpose = format!("{}: writing it again", wanted.path.display());
    let _memory = wanted.context.reserve(memory.held, &purpose)?;
    match format {
        Format::Parquet => parquet::write(memory.piece, wanted, file, out),
        Format::Arrow => arrow::write(wanted, file, out),
        Format::JsonLines => json_lines::write(known.lines.ok_or_else(|| changed(wanted.path))?, wanted, file, out),
        Format::Npz => npz::write(known.arrays.ok_or_else(|| changed(wanted.path))?, wanted, file, out),
        Format::Dense(format) => dense::write(format, wanted, &*file, out),
    }
}

/// The error of a result that cannot be written: the device's own, which names the file, where it is under that of a crate.
fn cannot_write(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let under = error.source().map(ToString::to_string);
    let words = under.unwrap_or_else(|| format!("cannot write the rows that stay: {error}"));
    Error::device(words).caused_by(error)
}
