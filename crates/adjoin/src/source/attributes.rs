//! Columns of a source in addition to its vectors. They are stored with the vectors so that filters can use them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use adjoin_device::ReadFile;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::take::take_record_batch;

use super::columns::{Tables, find_for, list_columns};
use super::file::SourceFile;
use super::foreign::changed;
use super::nested::ColumnPlace;
use super::parquet::{self, OpenTables, TablesMemory};
use super::vector_source::{SourceAttributes, VectorSource};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, Message, message};
use crate::sql::{cast, common};

/// Number of rows to decode at a time.
const BATCH_ROWS: usize = 1_024;

/// Some columns of a source.
pub(crate) struct Attributes<'a> {
    columns: Columns<'a>,
    schema: SchemaRef,
    /// Maximum number of bytes held while one of the files is read. `None` if a scan of the source holds as much.
    reading_bytes: Option<u64>,
    /// Upper bound on the size of a row, in bytes; 0 if the columns are not in files.
    row_bytes_max: u64,
}

/// Location of the columns.
enum Columns<'a> {
    InFiles(Vec<TableFile>),
    /// Columns of the source itself, with their indexes in its schema.
    OfSource(&'a dyn SourceAttributes, Vec<usize>),
}

/// A file that has rows.
struct TableFile {
    file: SourceFile,
    /// Places of the columns in the file, ascending.
    places: Vec<ColumnPlace>,
    /// For each column, its position in `places`.
    order: Vec<usize>,
}

impl<'a> Attributes<'a> {
    /// Opens the named columns of a source. `purpose` states what they are for, in messages.
    ///
    /// # Errors
    /// Fails if a name is given twice, a file does not have a column, or types are not supported or differ between
    /// files.
    pub(crate) fn of(
        context: &Context,
        source: &'a dyn VectorSource,
        names: &[String],
        purpose: &Message,
    ) -> Result<Self> {
        if let Some(attributes) = source.attributes() {
            check_distinct(names)?;
            return Self::of_source(attributes, names, purpose);
        }
        let files = source.files();
        if files.is_empty() {
            return Err(Error::option(message![
                purpose.clone(),
                ": the source has no columns; give a source in \
                                                                Parquet, Arrow or JSON lines"
            ]));
        }
        Self::of_files(context, files, names, purpose)
    }

    /// Opens the named columns in the files of a source.
    ///
    /// # Errors
    /// Fails as [`Self::of`] does.
    pub(crate) fn of_files(
        context: &Context,
        files: Vec<SourceFile>,
        names: &[String],
        purpose: &Message,
    ) -> Result<Self> {
        check_distinct(names)?;
        let mut kinds: Option<Vec<DataType>> = None;
        let (mut found, mut reading_bytes, mut row_bytes_max) = (Vec::new(), 0, 0);
        // Files without rows are skipped: they may lack a schema, and they have no values that could conflict with
        // other files.
        for file in files.into_iter().filter(|file| file.rows > 0) {
            if !file.is_table() {
                let at = file.path.display();
                return Err(Error::option(message![
                    format!("{at}: it has no columns other than its vectors, for "),
                    purpose.clone(),
                    "; give a source in Parquet, Arrow or JSON lines"
                ]));
            }
            let schema = file.schema(context)?;
            let ways = names.iter().map(|name| find_for(&file.path, &schema, name, purpose));
            let (ways, of_file): (Vec<ColumnPlace>, Vec<DataType>) =
                ways.collect::<Result<Vec<_>>>()?.into_iter().unzip();
            let mut places = ways.clone();
            // Readers return columns in the order of the file. `order` restores the order of the names.
            places.sort_unstable();
            places.dedup();
            // Columns that cannot be read are refused before any other work.
            let memory = file.tables_memory(context, &places, BATCH_ROWS)?;
            (reading_bytes, row_bytes_max) = (memory.reading.max(reading_bytes), memory.row_max.max(row_bytes_max));
            let of_file = names.iter().zip(of_file).map(|(name, kind)| kept_as(&file.path, name, kind, purpose));
            let of_file = of_file.collect::<Result<Vec<_>>>()?;
            kinds = Some(match kinds {
                None => of_file,
                Some(known) => shared(&file.path, names, known, of_file)?,
            });
            let at = |way: &ColumnPlace| places.binary_search(way).expect("`places` has the place of each column");
            let order = ways.iter().map(at).collect();
            found.push(TableFile { file, places, order });
        }
        // If no file has rows, any type fits.
        let kinds = kinds.unwrap_or_else(|| vec![DataType::Null; names.len()]);
        let fields = names.iter().zip(kinds).map(|(name, kind)| Field::new(name, kind, true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self { columns: Columns::InFiles(found), schema, reading_bytes: Some(reading_bytes), row_bytes_max })
    }

    fn of_source(attributes: &'a dyn SourceAttributes, names: &[String], purpose: &Message) -> Result<Self> {
        let schema = attributes.schema()?;
        let place = |name: &String| {
            let fields = schema.fields().iter();
            fields.clone().position(|field| field.name() == name).ok_or_else(|| {
                let there = list_columns(&schema);
                let said = [format!("there is no column {name} for "), format!("; the source has {there}")];
                Error::input(message![said[0].clone(), purpose.clone(), said[1].clone()])
            })
        };
        let places = names.iter().map(place).collect::<Result<Vec<usize>>>()?;
        let schema = schema.project(&places).map_err(|error| Error::input(error.to_string()))?;
        let reading_bytes = attributes.reading_bytes()?;
        let columns = Columns::OfSource(attributes, places);
        Ok(Self { columns, schema: Arc::new(schema), reading_bytes, row_bytes_max: 0 })
    }

    /// Returns the bytes that [`Self::tables`] holds. Returns `None` if a scan of the source holds as much.
    pub(crate) fn reading_bytes(&self) -> Option<u64> {
        self.reading_bytes
    }

    /// Returns an upper bound on the size of a row, in bytes; 0 if the columns are not in files.
    pub(crate) fn row_bytes_max(&self) -> u64 {
        self.row_bytes_max
    }

    /// Returns the schema of the columns as they will be stored.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Reads all rows in order. Each table has the number of its first row. The iterator fails if a file has changed
    /// or cannot be read, or if a decoded batch does not fit in the budget.
    ///
    /// # Errors
    /// Fails if a source that does not consist of files cannot be read.
    pub(crate) fn tables<'s>(&'s self, context: &'s Context) -> Result<NumberedTables<'s>> {
        self.tables_from(context, 0, BATCH_ROWS)
    }

    /// Reads all rows as [`Self::tables`] does, with at most `rows` rows in a table if the format of the file allows it.
    /// Small tables take less memory.
    ///
    /// # Errors
    /// Fails as [`Self::tables`] does.
    pub(crate) fn small_tables<'s>(&'s self, context: &'s Context, rows: usize) -> Result<NumberedTables<'s>> {
        self.tables_from(context, 0, rows)
    }

    /// Passes the columns of `rows` to `take`, as tables of the next rows. The rows must be distinct and ascending.
    /// Ends early if `take` breaks.
    ///
    /// # Errors
    /// Fails as [`Self::tables`] does, if a row does not exist, or if `take` fails.
    pub(crate) fn each_of(
        &self,
        context: &Context,
        rows: &[u64],
        take: &mut dyn FnMut(RecordBatch) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let Some(&first) = rows.first() else { return Ok(()) };
        let mut rest = rows;
        for table in self.tables_from(context, first, BATCH_ROWS)? {
            let (start, table) = table?;
            let (here, after) = rest.split_at(rest.partition_point(|&row| row < start + table.num_rows() as u64));
            rest = after;
            if here.is_empty() {
                continue;
            }
            let here: Vec<u32> = here.iter().map(|&row| (row - start) as u32).collect();
            let rows = take_record_batch(&table, &UInt32Array::from(here));
            let rows = rows.map_err(|error| Error::input(error.to_string()))?;
            if take(rows)?.is_break() || rest.is_empty() {
                return Ok(());
            }
        }
        Err(Error::input("the source has fewer rows than when it was opened; run again when nothing writes to it"))
    }

    /// Reads the rows in order, from row `row` or an earlier row of its file on, about `batch_rows` at a time.
    fn tables_from<'s>(&'s self, context: &'s Context, row: u64, batch_rows: usize) -> Result<NumberedTables<'s>> {
        Ok(match &self.columns {
            Columns::InFiles(files) => {
                let each = move |table: &'s TableFile| FileScan {
                    context,
                    attributes: self,
                    table,
                    row,
                    batch_rows,
                    open: None,
                };
                let skipped = files.partition_point(|table| table.file.first_row + table.file.rows <= row);
                Box::new(files[skipped..].iter().flat_map(each))
            }
            Columns::OfSource(attributes, places) => {
                let mut row = 0;
                Box::new(attributes.tables(context)?.map(move |table| {
                    let table = table?.project(places).map_err(|error| Error::input(error.to_string()))?;
                    row += table.num_rows() as u64;
                    Ok((row - table.num_rows() as u64, table))
                }))
            }
        })
    }
}

/// Refuses a name that is given twice, since two columns with the same name could not be distinguished.
fn check_distinct(names: &[String]) -> Result<()> {
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(Error::option(message![Argument::Columns.with(twice), " is named twice; name it once"])),
        None => Ok(()),
    }
}

/// Tables, each with the number of its first row.
pub(crate) type NumberedTables<'a> = Box<dyn Iterator<Item = Result<(u64, RecordBatch)>> + 'a>;

/// A scan of the columns of a file.
struct FileScan<'a> {
    context: &'a Context,
    attributes: &'a Attributes<'a>,
    table: &'a TableFile,
    /// Number of the first row that is needed. It may be in an earlier file.
    row: u64,
    batch_rows: usize,
    /// Remaining tables and the number of the next row. `None` before the file is opened.
    open: Option<(Tables, u64)>,
}

impl Iterator for FileScan<'_> {
    type Item = Result<(u64, RecordBatch)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_table().transpose()
    }
}

impl FileScan<'_> {
    fn next_table(&mut self) -> Result<Option<(u64, RecordBatch)>> {
        let Self { context, attributes, table: TableFile { file, places, order }, row: first, batch_rows, open } = self;
        context.cancel.check()?;
        let (tables, row) = match open {
            Some(open) => open,
            None => {
                let within = first.saturating_sub(file.first_row);
                let (tables, skipped) = file.tables_from(context, places, *batch_rows, within)?;
                open.insert((tables, file.first_row + skipped))
            }
        };
        let Some(table) = tables.next().transpose()? else {
            // If a file ended early, all later rows would be assigned to the wrong vectors.
            return file.check_rows(*row - file.first_row).map(|()| None);
        };
        let columns = order.iter().zip(attributes.schema.fields()).map(|(&at, field)| {
            let column = table.columns().get(at).ok_or_else(|| changed(&file.path))?;
            cast(column, field.data_type())
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let first = *row;
        *row += table.num_rows() as u64;
        let table = RecordBatch::try_new(attributes.schema.clone(), columns);
        let table = table.map_err(|error| Error::input(format!("{}: {error}", file.path.display())))?;
        Ok(Some((first, table)))
    }
}

/// Returns the size of the rows of a table, in bytes. The table may be a slice of a larger one. If the size of the
/// slice is unknown, returns the size of the whole table.
pub(crate) fn slice_bytes(table: &RecordBatch) -> u64 {
    // Slices share the buffers of their table. The size of the buffers would include rows outside the slice.
    let of = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(column.get_array_memory_size());
    table.columns().iter().map(of).sum::<usize>() as u64
}

/// Reads the columns with the indexes `places` of a Parquet file that adjoin wrote, from row `first_row` on.
///
/// # Errors
/// Fails if the file cannot be read, or if a decoded batch does not fit in the budget.
pub(crate) fn kept_tables(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    places: &[usize],
    first_row: u64,
) -> Result<Tables> {
    let places: Vec<ColumnPlace> = places.iter().copied().map(ColumnPlace::top).collect();
    parquet::tables(context, path, file, &places, BATCH_ROWS, first_row)
}

/// Opens a Parquet file that adjoin wrote, to read the columns with the indexes `places`. Rows can be read several
/// times, from any row on.
///
/// # Errors
/// Fails if the file cannot be read, or if a decoded batch does not fit in the budget.
pub(crate) fn open_kept_tables(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    places: &[usize],
) -> Result<OpenTables> {
    let places: Vec<ColumnPlace> = places.iter().copied().map(ColumnPlace::top).collect();
    OpenTables::open(context, path, file, &places, BATCH_ROWS)
}

/// Returns the memory for reading the columns with the indexes `places` of a Parquet file that adjoin wrote.
///
/// # Errors
/// Fails if the file cannot be read.
pub(crate) fn kept_tables_memory(path: &Path, file: Arc<dyn ReadFile>, places: &[usize]) -> Result<TablesMemory> {
    let places: Vec<ColumnPlace> = places.iter().copied().map(ColumnPlace::top).collect();
    parquet::tables_memory(path, file, &places, BATCH_ROWS)
}

/// Returns the bytes that [`kept_tables`] reserves.
///
/// # Errors
/// Fails if the file cannot be read.
pub(crate) fn kept_tables_bytes(path: &Path, file: Arc<dyn ReadFile>, places: &[usize]) -> Result<u64> {
    let places: Vec<ColumnPlace> = places.iter().copied().map(ColumnPlace::top).collect();
    parquet::tables_bytes(path, file, &places, BATCH_ROWS)
}

/// Returns the schema of a Parquet file that adjoin wrote.
///
/// # Errors
/// Fails if the file cannot be read.
pub(crate) fn kept_schema(path: &Path, file: Arc<dyn ReadFile>) -> Result<SchemaRef> {
    parquet::schema(path, file)
}

/// Returns the type in which values of type `kind` are stored. Dictionaries are stored as their values, and all texts
/// have one type.
fn kept_as(path: &Path, name: &str, kind: DataType, purpose: &Message) -> Result<DataType> {
    Ok(match kind {
        DataType::Dictionary(_, values) => return kept_as(path, name, *values, purpose),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Null | DataType::Boolean => kind,
        kind if kind.is_numeric() => kind,
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..) => {
            kind
        }
        kind => {
            return Err(Error::input(message![
                format!("{}: column {name} is {kind}, but ", path.display()),
                purpose.clone(),
                " must be texts, numbers, dates, times or booleans; name other columns"
            ]));
        }
    })
}

/// Returns the common type of each column in the earlier files and in the file `path`.
fn shared(path: &Path, names: &[String], earlier: Vec<DataType>, new: Vec<DataType>) -> Result<Vec<DataType>> {
    let pairs = names.iter().zip(earlier.into_iter().zip(new));
    let both = pairs.map(|(name, (earlier, kind))| {
        let common = common(&earlier, &kind).map(|common| if common.is_string() { DataType::Utf8 } else { common });
        common.ok_or_else(|| {
            Error::input(format!(
                "{}: column {name} is {kind}, but {earlier} in an earlier file; all files of a set must agree",
                path.display()
            ))
        })
    });
    both.collect()
}
