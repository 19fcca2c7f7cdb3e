//! One file of a source, for reading some of its columns, or for copying it without some rows.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use adjoin_device::{FileStamp, ReadFile};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::columns::{Tables, ids_of};
use super::facts::ScanMemory;
use super::foreign::changed;
use super::format::Format;
use super::id_column::IdColumn;
use super::json_lines;
use super::json_types::LineFacts;
use super::nested::ColumnPlace;
use super::npz;
use super::npz_arrays::Arrays;
use super::options::SourceOptions;
use super::without::{self, Known, Without};
use super::{TablesMemory, ahead, arrow, parquet};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::output::OutputWriter;

/// A file of a source, in the state that it had when the source was opened.
#[derive(Clone)]
pub struct SourceFile {
    /// Path relative to the name that the user gave, e.g. relative to a folder.
    pub name: PathBuf,
    /// Path of the file.
    pub path: PathBuf,
    /// Row number in the source of the file's first row.
    pub first_row: u64,
    /// Number of rows in the file.
    pub rows: u64,
    pub(super) format: Format,
    pub(super) stamp: FileStamp,
    pub(super) lines: Option<Arc<LineFacts>>,
    pub(super) arrays: Option<Arc<Arrays>>,
    /// Memory for copying the file, once it is known.
    pub(super) writing: OnceLock<ScanMemory>,
}

impl SourceFile {
    /// Opens a table that need not have vectors.
    ///
    /// # Errors
    /// Fails if the file has no columns, or if its headers cannot be read.
    pub(super) fn of_table(
        context: &Context,
        name: PathBuf,
        path: PathBuf,
        format: Format,
        first_row: u64,
    ) -> Result<Self> {
        let file = context.device.open(&path)?;
        let stamp = file.stamp()?;
        let mut lines = None;
        let rows = match format {
            Format::Parquet => parquet::rows(context, &path, file)?,
            Format::Arrow => arrow::rows(context, &path, file)?,
            Format::JsonLines => {
                let facts = json_lines::facts(context, &path, ahead::sequential(file))?;
                lines.insert(Arc::new(facts)).rows()
            }
            Format::Npz => {
                let at = path.display();
                let refused = format!("{at}: texts of .npz cannot be read; write them to Parquet, Arrow or JSON lines");
                return Err(Error::input(refused));
            }
            Format::Dense(_) => return Err(no_columns(&path)),
        };
        Ok(Self { name, path, first_row, rows, format, stamp, lines, arrays: None, writing: OnceLock::new() })
    }

    /// Returns whether the file is a table with columns.
    pub(crate) fn is_table(&self) -> bool {
        !matches!(self.format, Format::Dense(_))
    }

    /// Returns whether the columns of the file are unknown: it is a table without rows, in a format without a schema.
    pub(crate) fn says_nothing(&self) -> bool {
        self.rows == 0 && self.lines.is_some()
    }

    /// Returns the schema of the columns.
    ///
    /// # Errors
    /// Fails if the file has no columns, has changed, or cannot be read.
    pub(crate) fn schema(&self, context: &Context) -> Result<SchemaRef> {
        let file = self.open(context)?;
        match self.format {
            Format::Parquet => parquet::schema(&self.path, file),
            Format::Arrow => arrow::schema(&self.path, file),
            Format::JsonLines => Ok(self.line_facts()?.schema()),
            Format::Npz => Ok(self.arrays()?.schema()),
            Format::Dense(_) => Err(self.no_columns()),
        }
    }

    /// Reads the columns at `places`, which ascend. Tables have about `batch_rows` rows.
    ///
    /// # Errors
    /// Fails as [`SourceFile::schema`] does, or if a decoded batch does not fit in the budget.
    pub(crate) fn tables(&self, context: &Context, places: &[ColumnPlace], batch_rows: usize) -> Result<Tables> {
        Ok(self.tables_from(context, places, batch_rows, 0)?.0)
    }

    /// Returns the memory for reading the columns at `places`. Refuses columns that [`SourceFile::tables`] cannot
    /// read.
    ///
    /// # Errors
    /// Fails as [`SourceFile::schema`] does.
    pub(crate) fn tables_memory(
        &self,
        context: &Context,
        places: &[ColumnPlace],
        batch_rows: usize,
    ) -> Result<TablesMemory> {
        let file = self.open(context)?;
        // Headers state only the total size of several rows, except in Parquet.
        let of_rows = |bytes| TablesMemory { reading: bytes, row: bytes, row_max: bytes };
        match self.format {
            Format::Parquet => parquet::tables_memory(&self.path, file, places, batch_rows),
            Format::Arrow => arrow::tables_bytes(context, &self.path, file, places).map(of_rows),
            Format::JsonLines => {
                let facts = self.line_facts()?;
                // Opening the file refuses columns with values of several types.
                drop(json_lines::tables(context, &self.path, file, places, 0, facts)?);
                Ok(TablesMemory { row_max: facts.line_bytes_max as u64, ..of_rows(facts.held_bytes()) })
            }
            Format::Npz => npz::tables_bytes(&self.path, file, places, self.arrays()?).map(of_rows),
            Format::Dense(_) => Err(self.no_columns()),
        }
    }

    /// Reads the columns at `places`, which ascend, from row `row` or an earlier row on. Tables have about
    /// `batch_rows` rows. Returns the tables and the number of the first row that they contain.
    ///
    /// # Errors
    /// Fails as [`SourceFile::tables`] does.
    pub(crate) fn tables_from(
        &self,
        context: &Context,
        places: &[ColumnPlace],
        batch_rows: usize,
        row: u64,
    ) -> Result<(Tables, u64)> {
        let file = self.open(context)?;
        Ok(match self.format {
            Format::Parquet => (parquet::tables(context, &self.path, file, places, batch_rows, row)?, row),
            Format::JsonLines => (json_lines::tables(context, &self.path, file, places, row, self.line_facts()?)?, row),
            // Files of these formats can only be read from the start.
            Format::Arrow => (arrow::tables(context, &self.path, file, places)?, 0),
            Format::Npz => (npz::tables(context, &self.path, file, places, self.arrays()?)?, 0),
            Format::Dense(_) => return Err(self.no_columns()),
        })
    }

    /// Reads the columns at `places` of a single row.
    ///
    /// # Errors
    /// Fails as [`SourceFile::tables`] does.
    pub(crate) fn row(&self, context: &Context, places: &[ColumnPlace], row: u64) -> Result<RecordBatch> {
        let (tables, first) = self.tables_from(context, places, 1, row)?;
        let mut before = row - first;
        for table in tables {
            let table = table?;
            let rows = table.num_rows() as u64;
            if before < rows {
                return Ok(table.slice(before as usize, 1));
            }
            before -= rows;
        }
        Err(changed(&self.path))
    }

    /// Returns the bytes held while the file is copied.
    ///
    /// # Errors
    /// Fails if the headers of the file cannot be read.
    pub(crate) fn writing_bytes(&self, context: &Context) -> Result<u64> {
        Ok(self.writing(context)?.held)
    }

    /// Returns the memory for copying the file. Reads headers only at the first call.
    fn writing(&self, context: &Context) -> Result<ScanMemory> {
        if let Some(known) = self.writing.get() {
            return Ok(*known);
        }
        let file = self.open(context)?;
        let ahead_bytes = file.read_ahead_bytes();
        let mut found = without::memory(self.known(), context, &self.path, file)?;
        found.held = found.held.saturating_add(ahead_bytes);
        Ok(*self.writing.get_or_init(|| found))
    }

    /// Copies the file in its own format, without the rows for which `is_removed` returns true. Rows are numbered from
    /// the start of the file. From time to time, `done` is called with the number of rows completed since its last
    /// call.
    ///
    /// # Errors
    /// Fails if the file has changed, cannot be read or written, or the budget does not suffice.
    pub(crate) fn write_without(
        &self,
        context: &Context,
        is_removed: &(dyn Fn(u64) -> bool + Sync),
        done: &(dyn Fn(u64) + Sync),
        out: OutputWriter,
    ) -> Result<OutputWriter> {
        let file = self.open(context)?;
        let request = Without { context, path: &self.path, rows: self.rows, is_removed, done };
        let memory = self.writing(context)?;
        let ahead = ahead::sequential(file.clone()); // the copy reads all formats in the order of the file
        let out = without::write(self.known(), memory, &request, ahead, out)?;
        // Checked after reading, since the file may have changed while it was read.
        self.check(&*file)?;
        Ok(out)
    }

    /// Returns the id column of the file, if any.
    ///
    /// # Errors
    /// Fails as [`SourceFile::schema`] does, or if the column is ambiguous.
    pub(crate) fn ids(&self, context: &Context, options: &SourceOptions) -> Result<Option<IdColumn>> {
        if !self.is_table() || self.says_nothing() {
            return Ok(None);
        }
        let ids = ids_of(&self.path, &*self.schema(context)?, options);
        // A column with values of several types has no usable type in the schema. The error about its conflict is more
        // helpful.
        let conflict = || self.lines.as_ref().and_then(|lines| json_lines::conflict_of(&self.path, lines, options));
        let no_column = || self.arrays.as_ref().and_then(|arrays| arrays.no_column(&self.path, options));
        ids.map_err(|error| conflict().or_else(no_column).unwrap_or(error))
    }

    /// Checks that the file has as many rows as when the source was opened.
    pub(crate) fn check_rows(&self, found: u64) -> Result<()> {
        if found == self.rows { Ok(()) } else { Err(changed(&self.path)) }
    }

    fn open(&self, context: &Context) -> Result<Arc<dyn ReadFile>> {
        let file = context.device.open(&self.path)?;
        self.check(&*file)?;
        Ok(file)
    }

    fn check(&self, file: &dyn ReadFile) -> Result<()> {
        if file.stamp()?.has_contents_of(&self.stamp) { Ok(()) } else { Err(changed(&self.path)) }
    }

    fn known(&self) -> Known<'_> {
        Known { format: self.format, lines: self.lines.as_deref(), arrays: self.arrays.as_ref() }
    }

    fn line_facts(&self) -> Result<&LineFacts> {
        self.lines.as_deref().ok_or_else(|| changed(&self.path))
    }

    fn arrays(&self) -> Result<&Arc<Arrays>> {
        self.arrays.as_ref().ok_or_else(|| changed(&self.path))
    }

    fn no_columns(&self) -> Error {
        no_columns(&self.path)
    }
}

fn no_columns(path: &Path) -> Error {
    Error::input(format!("{}: has no columns; give a file of Parquet, Arrow or JSON lines", path.display()))
}
