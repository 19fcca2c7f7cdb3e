//! Evaluates filters: which rows of a store or an index pass?

use std::path::Path;
use std::sync::{Arc, OnceLock};

use adjoin_device::{ReadFile, Reservation};
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{Field, Schema};
use arrow_select::filter::filter_record_batch;

use super::attributes::{Reordering, least_bytes};
use super::files::{FileFacts, Role};
use super::folder::{FolderFiles, read_checked};
use super::publish::Drafts;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::message::{Argument, message};
use crate::row_numbers::{RankedSet, RowSet};
use crate::source::{kept_schema, kept_tables};
use crate::sql::Condition;

/// Bytes per read while the file is verified.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes that [`AttributeFile::check`] takes.
pub(crate) const CHECKING_BYTES: u64 = PIECE_BYTES as u64;
/// Bytes reserved for decoding one batch.
pub(super) const READING_BYTES: u64 = 8 << 20;
/// Purpose of the memory, for messages.
const PURPOSE: &str = "finding the rows that meet a condition";

/// Rows that pass a filter: in a store by *place*, the position of a row in bucket order; in an index by *entry*.
pub struct FilterBitmap {
    rows: RankedSet,
    _memory: Reservation,
}

impl FilterBitmap {
    /// Returns the least bytes with which `rows` rows are filtered.
    pub(crate) fn least_bytes(rows: u64) -> u64 {
        // For a store, this includes the first position of each bucket.
        2 * RankedSet::memory_bytes(rows) + PIECE_BYTES as u64 + READING_BYTES
    }

    /// Returns all of `rows` rows except `left_out`.
    ///
    /// # Errors
    /// Fails if memory does not suffice. `purpose` is named in the message.
    pub(crate) fn others(context: &Context, left_out: &RowSet, rows: u64, purpose: &str) -> Result<Self> {
        let memory = context.reserve_between_runs(RankedSet::memory_bytes(rows), purpose)?;
        Ok(Self { rows: RankedSet::new(left_out.others(rows)), _memory: memory })
    }

    /// Returns whether the row at a position, or of an entry, passes.
    pub fn contains(&self, row: u32) -> bool {
        self.rows.contains(row)
    }

    /// Returns the number of rows that pass.
    pub fn count(&self) -> u64 {
        self.rows.len().into()
    }

    /// Iterates over the rows that pass, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.rows.iter()
    }

    /// Returns the rows that pass as a set.
    pub(crate) fn rows(&self) -> &RankedSet {
        &self.rows
    }
}

/// The bytes with which so many columns of so many rows are read and written in another order, at least.
pub(crate) fn columns_bytes(rows: u64, columns: usize) -> u64 {
    least_bytes(rows, columns) + READING_BYTES
}

/// The columns of an open store or index.
pub(crate) struct AttributeFile {
    file: Arc<dyn ReadFile>,
    /// Set once the whole file has been verified, which the first request for single rows triggers.
    is_sound: OnceLock<()>,
}

impl AttributeFile {
    /// Opens the file, if present.
    ///
    /// # Errors
    /// Fails if the file is missing or of another length.
    pub(crate) fn open(context: &Context, files: FolderFiles<'_>) -> Result<Option<Self>> {
        let there = files.files.get(Role::Attributes);
        let open = |_: &FileFacts| Ok(Self { file: files.open(context, Role::Attributes)?, is_sound: OnceLock::new() });
        there.map(open).transpose()
    }

    /// Verifies the checksum of the file.
    ///
    /// # Errors
    /// Fails if the file is damaged or the device fails.
    pub(crate) fn check(&self, context: &Context, files: FolderFiles<'_>) -> Result<()> {
        let _piece = context.reserve_between_runs(CHECKING_BYTES, PURPOSE)?;
        read_checked(&*self.file, files, Role::Attributes, PIECE_BYTES, |_| ())
    }

    /// Returns the least bytes with which `rows` rows of the file are written in another order.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn reordering_bytes(&self, files: FolderFiles<'_>, rows: u64) -> Result<u64> {
        Ok(columns_bytes(rows, self.schema(files)?.fields().len()))
    }

    /// Writes the rows in another order: `place` maps each row to its new position. Returns the entry of the new file
    /// for the manifest, and the bytes that did not fit in memory.
    ///
    /// # Errors
    /// Fails if the file is damaged, the disk refuses, or memory does not suffice.
    pub(crate) fn reorder(
        &self,
        (context, files): (&Context, FolderFiles<'_>),
        (drafts, temporary): (&Drafts<'_>, &Path),
        (rows, place): (u64, impl Fn(u32) -> u32),
    ) -> Result<(FileFacts, u64)> {
        let mut reordering = Reordering::new(context, temporary, &self.schema(files)?, rows)?;
        self.add_to((context, files), rows, &mut reordering, |row| Some(place(row as u32).into()))?;
        reordering.write(drafts)
    }

    /// Adds the `rows` rows of the file to `reordering`. `place` is called for each row, in order, and returns its new
    /// position, or `None` to leave it out.
    ///
    /// # Errors
    /// Fails as [`Self::reorder`] does.
    pub(crate) fn add_to(
        &self,
        (context, files): (&Context, FolderFiles<'_>),
        rows: u64,
        reordering: &mut Reordering<'_>,
        mut place: impl FnMut(u64) -> Option<u64>,
    ) -> Result<()> {
        self.check(context, files)?;
        let all: Vec<usize> = (0..self.schema(files)?.fields().len()).collect();
        let mut row = 0;
        for table in self.tables(context, files, (&all, 0))? {
            context.cancel.check()?;
            let table = table?;
            check_count(row + table.num_rows() as u64, rows, files)?;
            reordering.add(&table, |k| Ok(place(row + k as u64)))?;
            row += table.num_rows() as u64;
        }
        Ok(())
    }

    /// Returns the names and types of the columns.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn names(&self, files: FolderFiles<'_>) -> Result<Vec<(String, String)>> {
        let named = |field: &Arc<Field>| (field.name().clone(), field.data_type().to_string());
        Ok(self.schema(files)?.fields().iter().map(named).collect())
    }

    /// Returns the schema of the columns.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn schema(&self, files: FolderFiles<'_>) -> Result<Arc<Schema>> {
        kept_schema(&files.files[Role::Attributes].path(files.folder), self.file.clone())
    }

    /// Reads the rows in order, starting at `first_row`. Only the columns at `places` (ascending) are read.
    ///
    /// # Errors
    /// Fails if the file cannot be read or the budget does not hold a decoded batch.
    pub(crate) fn tables(
        &self,
        context: &Context,
        files: FolderFiles<'_>,
        (places, first_row): (&[usize], u64),
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
        let path = files.files[Role::Attributes].path(files.folder);
        kept_tables(context, (&path, self.file.clone()), places, first_row)
    }

    /// Reads all columns of `rows` rows in order, except the rows in `left_out`.
    ///
    /// # Errors
    /// Fails as [`Self::check`] and [`Self::tables`] do.
    pub(crate) fn others<'a>(
        &self,
        context: &Context,
        files: FolderFiles<'a>,
        (left_out, rows): (Option<&'a RowSet>, u64),
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<'a>> {
        self.check(context, files)?;
        let all: Vec<usize> = (0..self.schema(files)?.fields().len()).collect();
        let mut row = 0;
        Ok(self.tables(context, files, (&all, 0))?.map(move |table| {
            let (first, table) = (row, table?);
            row += table.num_rows() as u64;
            check_count(row, rows, files)?;
            without(&table, left_out, first).map(|(table, _)| table)
        }))
    }

    /// Passes some rows, ascending, to `take`: the index in `rows`, a table, and the index of the row in the table.
    ///
    /// # Errors
    /// Fails as [`Self::check`] and [`Self::tables`] do, or if `take` fails.
    pub(crate) fn each_of(
        &self,
        context: &Context,
        files: FolderFiles<'_>,
        rows: &[u32],
        take: &mut dyn FnMut(usize, &RecordBatch, usize) -> Result<()>,
    ) -> Result<()> {
        if self.is_sound.get().is_none() {
            self.check(context, files)?;
            let _ = self.is_sound.set(()); // another thread may have been first
        }
        let all: Vec<usize> = (0..self.schema(files)?.fields().len()).collect();
        let mut place = 0;
        while place < rows.len() {
            let first = rows[place];
            let table = self.tables(context, files, (&all, first.into()))?.next();
            let table =
                table.ok_or_else(|| files.damaged(Role::Attributes, "it has fewer rows than there are vectors"))??;
            while let Some(k) = rows.get(place).map(|row| (row - first) as usize).filter(|&k| k < table.num_rows()) {
                take(place, &table, k)?;
                place += 1;
            }
        }
        Ok(())
    }
}

/// Removes the rows in `left_out` from a table that starts with row number `first`. Returns the other rows and their
/// numbers.
fn without(table: &RecordBatch, left_out: Option<&RowSet>, first: u64) -> Result<(RecordBatch, Vec<u64>)> {
    let numbers = first..first + table.num_rows() as u64;
    let stays = |row: u64| left_out.is_none_or(|left_out| !left_out.contains(row));
    let rows: Vec<u64> = numbers.clone().filter(|&row| stays(row)).collect();
    if rows.len() == table.num_rows() {
        return Ok((table.clone(), rows));
    }
    let mask: BooleanArray = numbers.map(|row| Some(stays(row))).collect();
    let table = filter_record_batch(table, &mask).map_err(|error| Error::input(error.to_string()))?;
    Ok((table, rows))
}

/// Returns the rows, out of `rows`, that meet a condition and are not in `left_out`.
///
/// # Errors
/// Fails if there are no columns, the condition names others or cannot be evaluated, the file cannot be read or is
/// damaged, or memory does not suffice.
pub(crate) fn passing(
    context: &Context,
    (attributes, files): (Option<&AttributeFile>, FolderFiles<'_>),
    (condition, left_out): (&Condition, Option<&RowSet>),
    rows: u64,
) -> Result<FilterBitmap> {
    let attributes = asked_for((attributes, files), rows, Argument::Where)?;
    attributes.check(context, files)?;
    let memory = context.reserve_between_runs(RankedSet::memory_bytes(rows), PURPOSE)?;
    let places = condition.bind(&*attributes.schema(files)?)?;
    let mut set = RowSet::new(rows);
    each_table(context, (attributes, files), (&places, rows), |first, table| {
        let (table, numbers) = without(table, left_out, first)?;
        condition.is_true(&table)?.values().set_indices().for_each(|k| set.insert(numbers[k]));
        Ok(())
    })?;
    Ok(FilterBitmap { rows: RankedSet::new(set), _memory: memory })
}

/// Passes the columns at `places` (ascending) of all `rows` rows of a verified file to `take`: tables, each with the
/// number of its first row.
///
/// # Errors
/// Fails if the file cannot be read or has another number of rows, memory does not suffice, or `take` fails.
pub(crate) fn each_table(
    context: &Context,
    (attributes, files): (&AttributeFile, FolderFiles<'_>),
    (places, rows): (&[usize], u64),
    mut take: impl FnMut(u64, &RecordBatch) -> Result<()>,
) -> Result<()> {
    let mut row = 0;
    context.progress.begin("filter", "rows", rows);
    for table in attributes.tables(context, files, (places, 0))? {
        context.cancel.check()?;
        let (first, table) = (row, table?);
        row += table.num_rows() as u64;
        check_count(row, rows, files)?;
        take(first, &table)?;
        context.progress.advance(row);
    }
    match row < rows {
        true => Err(files.damaged(Role::Attributes, "it has fewer rows than there are vectors")),
        false => Ok(()),
    }
}

/// Returns the file of the columns of `rows` rows, which the option `asking` needs.
///
/// # Errors
/// Fails if there are no columns, or too many rows to number them with 32 bits.
pub(crate) fn asked_for<'a>(
    (attributes, files): (Option<&'a AttributeFile>, FolderFiles<'_>),
    rows: u64,
    asking: Argument,
) -> Result<&'a AttributeFile> {
    let at = files.folder.display();
    if rows > u64::from(u32::MAX) {
        let most = format!(" takes at most {}", u32::MAX);
        return Err(Error::input(message![format!("{at} has {rows} rows, "), asking, most]));
    }
    attributes.ok_or_else(|| {
        Error::input(message![
            format!("{at} has no attributes, which "),
            asking,
            " asks for; build it again with ",
            Argument::Attributes,
            " and the names of columns"
        ])
    })
}

fn check_count(count: u64, rows: u64, files: FolderFiles<'_>) -> Result<()> {
    if count <= rows {
        return Ok(());
    }
    Err(files.damaged(Role::Attributes, "it has more rows than there are vectors"))
}
