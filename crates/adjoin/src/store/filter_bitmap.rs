//! Evaluates filters: which rows of a store or an index pass?

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use adjoin_device::{ReadFile, Reservation};
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{Field, Schema};
use arrow_select::filter::filter_record_batch;

use super::attributes::{Reordering, foreseen_reading_bytes, least_bytes};
use super::files::{FileFacts, Role};
use super::folder::{FolderFiles, read_checked};
use super::publish::Drafts;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::row_numbers::{RankedSet, RowSet};
use crate::base::shared_rows::SharedRows;
use crate::source::{TablesMemory, kept_schema, kept_tables, kept_tables_bytes, kept_tables_memory, open_kept_tables};
use crate::sql::Condition;

/// Size of the pieces in which the file is read for verification, in bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes that [`StoredColumns::check`] takes.
pub(crate) const CHECKING_BYTES: u64 = PIECE_BYTES as u64;
/// Bytes reserved for decoding one batch.
pub(super) const READING_BYTES: u64 = 8 << 20;
/// Memory for fetching single rows, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FetchingBytes {
    /// Memory if the rows have mean length.
    pub(crate) least: u64,
    /// Memory if the rows have the maximum possible length.
    pub(crate) longest: u64,
}

impl FetchingBytes {
    /// Returns the memory if other work, at another time, takes `bytes` bytes.
    pub(crate) fn or(self, bytes: u64) -> Self {
        Self { least: self.least.max(bytes), longest: self.longest.max(bytes) }
    }

    /// Returns the memory if other work, at the same time, takes `bytes` bytes.
    pub(crate) fn and(self, bytes: u64) -> Self {
        Self { least: self.least.saturating_add(bytes), longest: self.longest.saturating_add(bytes) }
    }
}

/// Number of copies of a fetched row in memory: as read, in the requested order, and in the buffers of a table.
const FETCHED_COPIES: u64 = 8;
/// Maximum gap between two requested rows across which reading continues. After a larger gap, reading starts again.
const NEAR_ROWS: u64 = 8 << 10;
/// Purpose of the memory, for messages.
const PURPOSE: &str = "evaluating a filter";

/// Rows that pass a filter. In a store, a row is identified by its *place*, its position in bucket order. In an index,
/// it is identified by its *entry*.
pub struct FilterBitmap {
    rows: RankedSet,
    _memory: Reservation,
}

impl FilterBitmap {
    /// Returns the minimum memory for filtering `rows` rows, in bytes.
    pub(crate) fn least_bytes(rows: u64) -> u64 {
        // For a store, this includes the first position of each bucket.
        2 * RankedSet::memory_bytes(rows) + PIECE_BYTES as u64 + READING_BYTES
    }

    /// Returns whether a row passes. `row` is a position in a store, or an entry of an index.
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

/// Returns the minimum memory for reading columns and writing them in another order, in bytes. There are `columns`
/// columns of `rows` rows. The columns of a row take `row_bytes` bytes on average. Reading takes at least `reading`
/// bytes.
pub(crate) fn columns_bytes(rows: u64, columns: usize, row_bytes: u64, reading: u64) -> u64 {
    let reading = reading.max(READING_BYTES).max(foreseen_reading_bytes(rows, columns, row_bytes));
    least_bytes(rows, columns, reading)
}

/// The columns of an open store or index.
pub(crate) struct AttributeFile {
    file: Arc<dyn ReadFile>,
    /// Set after the whole file was verified. The first request for single rows verifies it.
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

    /// Returns the columns in this file, which belongs to `files` and has `rows` rows.
    pub(crate) fn columns<'a>(&'a self, files: FolderFiles<'a>, rows: u64) -> StoredColumns<'a> {
        StoredColumns { file: self, files, rows }
    }
}

/// Function that takes a table and the indices of the requested rows in it. Returns whether to continue.
pub(super) type TakeRows<'a> = dyn FnMut(&RecordBatch, Vec<u32>) -> Result<ControlFlow<()>> + 'a;

/// Columns of an open store or index, with everything needed to read them. Error messages name the folder.
#[derive(Clone, Copy)]
pub(crate) struct StoredColumns<'a> {
    file: &'a AttributeFile,
    files: FolderFiles<'a>,
    rows: u64,
}

impl<'a> StoredColumns<'a> {
    /// Verifies the checksum of the file.
    ///
    /// # Errors
    /// Fails if the file is damaged or the device fails.
    pub(crate) fn check(self, context: &Context) -> Result<()> {
        let _piece = context.reserve_between_runs(CHECKING_BYTES, PURPOSE)?;
        read_checked(&*self.file.file, self.files, Role::Attributes, PIECE_BYTES, |_| ())
    }

    /// Returns the minimum memory for writing these columns in another order, in bytes. The new file has `rows` rows.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn reordering_bytes(self, rows: u64) -> Result<u64> {
        Ok(least_bytes(rows, self.schema()?.fields().len(), self.reading_bytes()?))
    }

    /// Returns the bytes held while all columns are read.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn reading_bytes(self) -> Result<u64> {
        // The file is first verified and then read, so the larger of both sizes suffices.
        Ok(kept_tables_bytes(&self.path(), self.file.file.clone(), &self.all()?)?.max(CHECKING_BYTES))
    }

    /// Returns the memory for reading single rows and copying them to a table.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn fetching_bytes(self) -> Result<FetchingBytes> {
        let TablesMemory { reading, row, row_max } = self.memory(&self.all()?)?;
        let with = |row: u64| reading.saturating_add(FETCHED_COPIES.saturating_mul(row));
        Ok(FetchingBytes { least: with(row), longest: with(row_max) })
    }

    /// Writes the rows in another order to a new file. `place` returns the new position of a row. Rows that do not fit
    /// in memory are written to the folder `temporary`. Returns the manifest entry of the new file, and the number of
    /// bytes that did not fit in memory.
    ///
    /// # Errors
    /// Fails if the file is damaged, a file cannot be written, or memory does not suffice.
    pub(crate) fn reorder(
        self,
        context: &Context,
        drafts: &Drafts<'_>,
        temporary: &Path,
        place: impl Fn(u32) -> u32,
    ) -> Result<(FileFacts, u64)> {
        let reading = self.reading_bytes()?;
        let mut reordering = Reordering::new(context, temporary, &self.schema()?, self.rows, reading)?;
        self.add_to(context, &mut reordering, |row| Some(place(row as u32).into()))?;
        reordering.write(drafts)
    }

    /// Adds all rows to `reordering`. Calls `place` for each row, in order. It returns the new position of the row, or
    /// `None` to leave the row out.
    ///
    /// # Errors
    /// Fails as [`Self::reorder`] does.
    pub(crate) fn add_to(
        self,
        context: &Context,
        reordering: &mut Reordering<'_>,
        mut place: impl FnMut(u64) -> Option<u64>,
    ) -> Result<()> {
        // Verifies the file first. Otherwise a damaged value would be copied to a new file with a valid checksum.
        self.check(context)?;
        let mut row = 0;
        for table in self.tables(context, &self.all()?, 0)? {
            context.cancel.check()?;
            let table = table?;
            self.check_count(row + table.num_rows() as u64)?;
            reordering.add(&table, |k| Ok(place(row + k as u64)))?;
            row += table.num_rows() as u64;
        }
        Ok(())
    }

    /// Returns the names and types of the columns.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn names(self) -> Result<Vec<(String, String)>> {
        let named = |field: &Arc<Field>| (field.name().clone(), field.data_type().to_string());
        Ok(self.schema()?.fields().iter().map(named).collect())
    }

    /// Returns the schema of the columns.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn schema(self) -> Result<Arc<Schema>> {
        kept_schema(&self.path(), self.file.file.clone())
    }

    fn path(self) -> PathBuf {
        self.files.files[Role::Attributes].path(self.files.folder)
    }

    /// Returns the indexes of all columns.
    pub(super) fn all(self) -> Result<Vec<usize>> {
        Ok((0..self.schema()?.fields().len()).collect())
    }

    /// Reads the rows in order, starting at `first_row`. Only the columns with the indexes `places`, which ascend, are
    /// read.
    ///
    /// # Errors
    /// Fails if the file cannot be read or a decoded batch does not fit in the budget.
    fn tables(
        self,
        context: &Context,
        places: &[usize],
        first_row: u64,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
        kept_tables(context, &self.path(), self.file.file.clone(), places, first_row)
    }

    /// Reads all columns of all rows in order, except the rows in `left_out`.
    ///
    /// # Errors
    /// Fails as [`Self::check`] does, or if a decoded batch does not fit in the budget.
    pub(crate) fn excluding(
        self,
        context: &Context,
        left_out: Option<&'a SharedRows>,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<'a>> {
        self.check(context)?;
        let mut row = 0;
        Ok(self.tables(context, &self.all()?, 0)?.map(move |table| {
            let (first, table) = (row, table?);
            row += table.num_rows() as u64;
            self.check_count(row)?;
            without(&table, left_out, first).map(|(table, _)| table)
        }))
    }

    /// Returns the memory for reading the columns with the indexes `places`, which ascend.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(super) fn memory(self, places: &[usize]) -> Result<TablesMemory> {
        let memory = kept_tables_memory(&self.path(), self.file.file.clone(), places)?;
        Ok(TablesMemory { reading: memory.reading.max(CHECKING_BYTES), ..memory })
    }

    /// Passes columns of the rows `rows` to `take`. Both `rows` and `places`, the indexes of the columns, ascend.
    /// `take` gets a table, and the indices in it of the next of these rows. Ends early if `take` breaks.
    ///
    /// # Errors
    /// Fails as [`Self::excluding`] does, or if `take` fails.
    pub(super) fn each_of(
        self,
        context: &Context,
        places: &[usize],
        rows: &[u32],
        take: &mut TakeRows<'_>,
    ) -> Result<()> {
        if self.file.is_sound.get().is_none() {
            self.check(context)?;
            let _ = self.file.is_sound.set(()); // another thread may have been first
        }
        let open = open_kept_tables(context, &self.path(), self.file.file.clone(), places)?;
        let (mut left, mut next, mut tables) = (rows, 0, None);
        while let Some(&first) = left.first() {
            context.cancel.check()?;
            // Starting again at a distant row avoids reading the pages before it. For a near row, reading the tables
            // before it costs less than starting again.
            if u64::from(first) > next + NEAR_ROWS {
                tables = None;
                next = first.into();
            }
            let tables = match &mut tables {
                Some(tables) => tables,
                None => tables.insert(open.tables_from(next)?),
            };
            let table = tables.next().ok_or_else(|| self.too_few_rows())??;
            let start = next;
            next += table.num_rows() as u64;
            let (here, after) = left.split_at(left.partition_point(|&row| u64::from(row) < next));
            left = after;
            let here: Vec<u32> = here.iter().map(|&row| (u64::from(row) - start) as u32).collect();
            if !here.is_empty() && take(&table, here)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the rows that meet a condition, except those in `left_out`.
    ///
    /// # Errors
    /// Fails if the condition names a missing column or cannot be evaluated, if the file cannot be read or is damaged,
    /// or if memory does not suffice.
    pub(crate) fn passing(
        self,
        context: &Context,
        condition: &Condition,
        left_out: Option<&SharedRows>,
    ) -> Result<FilterBitmap> {
        self.check(context)?;
        let memory = context.reserve_between_runs(RankedSet::memory_bytes(self.rows), PURPOSE)?;
        let places = condition.bind(&*self.schema()?)?;
        let mut set = RowSet::new(self.rows);
        self.each_table(context, &places, |first, table| {
            let (table, numbers) = without(table, left_out, first)?;
            // A row does not pass if the condition is null, as in SQL.
            condition.is_true(&table)?.values().set_indices().for_each(|k| set.insert(numbers[k]));
            Ok(())
        })?;
        Ok(FilterBitmap { rows: RankedSet::new(set), _memory: memory })
    }

    /// Passes columns of all rows to `take`: tables, each with the number of its first row. `places` are the indexes
    /// of the columns, which ascend. The caller has verified the file.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has another number of rows, memory does not suffice, or `take` fails.
    pub(crate) fn each_table(
        self,
        context: &Context,
        places: &[usize],
        mut take: impl FnMut(u64, &RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let mut row = 0;
        context.progress.begin("filter", "rows", self.rows);
        for table in self.tables(context, places, 0)? {
            context.cancel.check()?;
            let (first, table) = (row, table?);
            row += table.num_rows() as u64;
            self.check_count(row)?;
            take(first, &table)?;
            context.progress.advance(row);
        }
        if row < self.rows { Err(self.too_few_rows()) } else { Ok(()) }
    }

    fn too_few_rows(self) -> Error {
        self.files.damaged(Role::Attributes, "it has fewer rows than there are vectors")
    }

    fn check_count(self, count: u64) -> Result<()> {
        if count <= self.rows {
            return Ok(());
        }
        Err(self.files.damaged(Role::Attributes, "it has more rows than there are vectors"))
    }
}

/// Removes the rows in `left_out` from a table. The first row of the table has the number `first`. Returns the other
/// rows and their numbers.
fn without(table: &RecordBatch, left_out: Option<&SharedRows>, first: u64) -> Result<(RecordBatch, Vec<u64>)> {
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

/// Returns the columns of a folder, or an error if it has none. The option `argument` needs them.
///
/// # Errors
/// Fails if there are no columns, or if there are too many rows to number them with 32 bits.
pub(crate) fn required_columns<'a>(
    columns: Option<StoredColumns<'a>>,
    folder: &Path,
    rows: u64,
    argument: Argument,
) -> Result<StoredColumns<'a>> {
    let at = folder.display();
    if rows > u64::from(u32::MAX) {
        let most = format!(" takes at most {}", u32::MAX);
        return Err(Error::input(message![format!("{at} has {rows} rows, but "), argument, most]));
    }
    columns.ok_or_else(|| {
        Error::input(message![
            format!("{at} has no columns, which "),
            argument,
            " needs; build it again with ",
            Argument::Columns,
            " and the names of columns"
        ])
    })
}
