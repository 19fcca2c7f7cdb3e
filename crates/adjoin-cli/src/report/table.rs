//! Tables from files, column by column, whatever their format.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::context::Context;
use adjoin::device::Reservation;
use adjoin::error::{Error, Result};
use adjoin::sink::TableFormat;
use adjoin::source::{expand, guarded};
use arrow_array::{Array, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_csv::reader::Format;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::Names;

/// Rows of a batch.
const BATCH_ROWS: usize = 8 << 10;
/// Lines from which the types of a text file's columns are told.
const LINES_LOOKED_AT: usize = 1_000;
/// Most characters of a name.
const NAME_CHARACTERS_MAX: usize = 400;
/// Names for which memory is taken at once, and what one takes, about.
const NAMES_AT_ONCE: usize = 1 << 12;
const BYTES_A_NAME: u64 = 512;

type Batches = Box<dyn Iterator<Item = std::result::Result<RecordBatch, ArrowError>>>;

/// A table that is being read.
pub(super) struct Table {
    path: PathBuf,
    pub(super) schema: SchemaRef,
    batches: Batches,
}

impl Table {
    /// Opens a table; columns of ids, which a text file does not tell from numbers, are named in `ids`.
    pub(super) fn open(path: &Path, ids: &[&str]) -> Result<Self> {
        let format = TableFormat::of(path).map_err(|_| {
            Error::option(format!("{}: a table is a .parquet, .csv or .jsonl file; name one", path.display()))
        })?;
        let cannot = |error| Error::device(format!("cannot read {}: {error}", path.display()));
        let mut file = File::open(path).map_err(cannot)?;
        let (schema, batches): (SchemaRef, Batches) = guarded(path, "the table", || match format {
            TableFormat::Parquet => {
                let builder = ParquetRecordBatchReaderBuilder::try_new(file)?.with_batch_size(BATCH_ROWS);
                Ok::<_, ArrowError>((builder.schema().clone(), Box::new(builder.build()?) as Batches))
            }
            TableFormat::Csv => {
                let format = Format::default().with_header(true);
                let schema = format.infer_schema(&mut file, Some(LINES_LOOKED_AT))?.0;
                file.rewind()?;
                let schema = Arc::new(corrected(&schema, ids));
                let builder = arrow_csv::ReaderBuilder::new(schema.clone()).with_format(format);
                Ok((schema, Box::new(builder.with_batch_size(BATCH_ROWS).build(file)?)))
            }
            TableFormat::JsonLines => {
                let mut lines = BufReader::new(file);
                let schema = arrow_json::reader::infer_json_schema(&mut lines, Some(LINES_LOOKED_AT))?.0;
                lines.rewind()?;
                let schema = Arc::new(corrected(&schema, &[]));
                let builder = arrow_json::ReaderBuilder::new(schema.clone()).with_batch_size(BATCH_ROWS);
                Ok((schema, Box::new(builder.build(lines)?)))
            }
        })?;
        Ok(Self { path: path.to_owned(), schema, batches })
    }

    /// The place of a column.
    pub(super) fn column(&self, name: &str) -> Result<usize> {
        self.schema.index_of(name).map_err(|_| {
            let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
            let at = self.path.display();
            Error::input(format!("{at} has no column {name}; it has {}", names.join(", ")))
        })
    }

    /// Hands all batches, each with the number of its first row, to `take`.
    pub(super) fn each(
        mut self,
        context: &Context,
        mut take: impl FnMut(u64, &RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let mut row = 0;
        loop {
            context.cancel.check()?;
            let place = format!("row {row}");
            let Some(batch) = guarded(&self.path, place, || self.batches.next().transpose())? else { return Ok(()) };
            take(row, &batch)?;
            row += batch.num_rows() as u64;
        }
    }
}

/// What a text file's first lines tell of its columns, put right: ids are texts, as 007 is another id than 7, and values
/// of pairs need not be whole because the first ones are.
fn corrected(schema: &Schema, ids: &[&str]) -> Schema {
    let of = |field: &Arc<Field>| match field.name().as_str() {
        "distance" | "similarity" => Field::new(field.name(), DataType::Float64, true),
        name if ids.contains(&name) => Field::new(name, DataType::Utf8, true),
        _ => field.as_ref().clone(),
    };
    Schema::new(schema.fields().iter().map(of).collect::<Vec<_>>())
}

/// How the values of a column are shown.
const SHOWN: FormatOptions<'static> = FormatOptions::new();

/// The values of a column as texts.
pub(super) fn texts_of(column: &dyn Array) -> Result<impl Fn(usize) -> Result<String>> {
    let refused = |error| Error::input(format!("a value cannot be shown: {error}"));
    let shown = ArrayFormatter::try_new(column, &SHOWN).map_err(refused)?;
    Ok(move |row| shown.value(row).try_to_string().map_err(refused))
}

/// The files of tables that a name stands for: a file, those in a folder and its folders, or those that match a glob.
fn files_of(name: &str) -> Result<Vec<PathBuf>> {
    let folder = Path::new(name);
    if !folder.is_dir() {
        return expand(name);
    }
    let mut files = Vec::new();
    list(folder, &mut files).map_err(|error| Error::device(format!("cannot list {name}: {error}")).caused_by(error))?;
    files.sort_by(|a, b| a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes()));
    match files.is_empty() {
        true => Err(Error::input(format!("{name} holds no .parquet, .csv or .jsonl file; name a folder that does"))),
        false => Ok(files),
    }
}

/// Tables in a folder; what is hidden, and notes of whoever wrote them, such as `_SUCCESS`, are none.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if matches!(entry.file_name().as_encoded_bytes().first(), Some(b'.' | b'_')) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            list(&path, files)?;
        } else if path.is_file() && TableFormat::of(&path).is_ok() {
            files.push(path);
        }
    }
    Ok(())
}

/// The texts of some ids, and the memory that they take.
pub(super) fn names_of(
    context: &Context,
    names: Names<'_>,
    ids: &HashSet<&str>,
) -> Result<(HashMap<String, String>, Vec<Reservation>)> {
    let mut texts = Texts::default();
    for path in files_of(names.files)? {
        texts.read(context, &path, names, ids)?;
    }
    Ok((texts.of, texts.memory))
}

/// Texts of ids, by tables one after the other.
#[derive(Default)]
struct Texts {
    of: HashMap<String, String>,
    memory: Vec<Reservation>,
    /// Rows of the tables before.
    rows: u64,
}

impl Texts {
    fn read(&mut self, context: &Context, path: &Path, names: Names<'_>, ids: &HashSet<&str>) -> Result<()> {
        let table = Table::open(path, &[names.id_column.unwrap_or("id")])?;
        if table.schema.fields().is_empty() {
            return Ok(()); // no line of JSON, no name
        }
        let (id, name) = columns_of(&table, names)?;
        let before = self.rows;
        table.each(context, |first, batch| {
            let id_of = id.map(|id| texts_of(batch.column(id))).transpose()?;
            let name_of = texts_of(batch.column(name))?;
            for k in 0..batch.num_rows() {
                let id = match &id_of {
                    Some(id_of) => id_of(k)?,
                    None => (before + first + k as u64).to_string(),
                };
                if ids.contains(id.as_str()) {
                    if self.of.len().is_multiple_of(NAMES_AT_ONCE) {
                        let bytes = NAMES_AT_ONCE as u64 * BYTES_A_NAME;
                        self.memory.push(context.reserve(bytes, "the names on this report")?);
                    }
                    self.of.insert(id, name_of(k)?.chars().take(NAME_CHARACTERS_MAX).collect());
                }
            }
            self.rows = before + first + batch.num_rows() as u64;
            Ok(())
        })
    }
}

/// The columns of ids and of texts.
fn columns_of(table: &Table, names: Names<'_>) -> Result<(Option<usize>, usize)> {
    let id = match names.id_column {
        Some(name) => Some(table.column(name)?),
        None => table.schema.index_of("id").ok(),
    };
    if let Some(name) = names.name_column {
        return Ok((id, table.column(name)?));
    }
    let is_text = |k: &usize| {
        let data = table.schema.field(*k).data_type();
        Some(*k) != id && matches!(data, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    };
    let none = || Error::input(format!("{} has no column of texts; name one with --name-column", table.path.display()));
    Ok((id, (0..table.schema.fields().len()).find(is_text).ok_or_else(none)?))
}
