//! Columns in an append: new rows must have the columns of the store.

use super::old_rows::OldRows;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::source::{Attributes, VectorSource};
use crate::sql::common;
use crate::store::AttributeFile;
use crate::store::folder::FolderFiles;
use crate::store::reader::Store;
use crate::store::records::Tally;

/// Opens the columns of the new rows that the store also has. Returns `None` if the store has no columns or there are
/// no new rows.
///
/// # Errors
/// Fails if a column is missing or its values do not have the type of the store's column.
pub(super) fn coming<'a>(
    context: &Context,
    store: &Store,
    source: Option<&'a dyn VectorSource>,
) -> Result<Option<Attributes<'a>>> {
    let (Some(columns), Some(source)) = (store.columns(), source) else { return Ok(None) };
    let (at, kept) = (store.folder().display(), columns.schema()?);
    let names: Vec<String> = kept.fields().iter().map(|field| field.name().clone()).collect();
    let whose = message![format!("the columns of {at}")];
    let attributes = Attributes::of(context, source, &names, &whose)?;
    // Only types are compared here. The values are cast to the store's types when the rows are reordered.
    for (there, new) in kept.fields().iter().zip(attributes.schema().fields()) {
        let (kind, coming) = (there.data_type(), new.data_type());
        if common(kind, coming).as_ref() != Some(kind) {
            let name = there.name();
            return Err(Error::input(format!(
                "column {name} of the new rows is {coming}, but that of {at} is {kind}; convert it to that type"
            )));
        }
    }
    Ok(Some(attributes))
}

/// Size of a batch in bytes, for columns that are not in files.
const BATCH_BYTES: u64 = 64 << 10;

/// Returns the bytes held while the columns of new rows are read.
pub(super) fn reading_bytes(attributes: Option<&Attributes<'_>>, source: Option<&dyn VectorSource>) -> u64 {
    let scan = || source.map_or(0, |source| source.scan_bytes(BATCH_BYTES));
    attributes.map_or(0, |attributes| attributes.reading_bytes().unwrap_or_else(scan))
}

/// Returns the number of columns of a store that is not open yet, and the bytes held while columns of the store or of
/// the new rows are read.
///
/// # Errors
/// Fails if the file of columns cannot be read.
pub(super) fn foreseen(
    context: &Context,
    files: FolderFiles<'_>,
    rows: u64,
    source: Option<&dyn VectorSource>,
) -> Result<(usize, u64)> {
    let Some(file) = AttributeFile::open(context, files)? else { return Ok((0, 0)) };
    let columns = file.columns(files, rows);
    let kept = columns.schema()?;
    let names: Vec<String> = kept.fields().iter().map(|field| field.name().clone()).collect();
    let whose = message![Argument::Columns];
    // Missing columns are reported when the columns are opened.
    let new = source.and_then(|source| Attributes::of(context, source, &names, &whose).ok());
    Ok((names.len(), columns.reading_bytes()?.max(reading_bytes(new.as_ref(), source))))
}

/// Iterator over the old rows by position, which returns their new positions. In each bucket, old rows precede new
/// rows.
pub(super) struct OldPlaces<'a> {
    old: &'a OldRows<'a>,
    /// Position of the first row of each bucket.
    starts: Vec<u64>,
    /// The next old position.
    place: u64,
    /// Bucket of that position.
    bucket: usize,
    /// Number of kept rows before that position in its bucket.
    before: u64,
}

impl<'a> OldPlaces<'a> {
    /// Creates the iterator. `tallies` has the new number of rows of each bucket.
    pub(super) fn new(old: &'a OldRows<'a>, tallies: &[Tally]) -> Self {
        let mut start = 0;
        let starts = tallies.iter().map(|tally| {
            start += tally.rows;
            start - tally.rows
        });
        Self { old, starts: starts.collect(), place: 0, bucket: 0, before: 0 }
    }

    /// Returns the new position of the next old row; `None` if the row is removed.
    pub(super) fn next(&mut self) -> Option<u64> {
        let place = self.place;
        self.place += 1;
        while self.old.firsts().get(self.bucket + 1) == Some(&place) {
            (self.bucket, self.before) = (self.bucket + 1, 0);
        }
        self.old.stays(place).then(|| {
            self.before += 1;
            self.starts[self.bucket] + self.before - 1
        })
    }
}
