//! Reads tables of names, in files of any format.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use adjoin::device::{Location, Reservation};
use adjoin::{Context, Error, ErrorKind, Result, SourceOptions, TableFile, TableFormat};
use arrow_array::Array;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;

use super::Names;

/// Maximum number of columns that a message lists.
const NAMES_LISTED: usize = 20;
/// Maximum number of characters of a name on the page; the rest is cut off.
pub(super) const NAME_CHARACTERS_MAX: usize = 400;
/// Bytes that are reserved at once.
pub(super) const NAMES_BYTES_AT_ONCE: u64 = 256 << 10;
/// Bytes of a name in addition to the texts of the name and of its id. `BYTES_A_TEXT` are the bytes of each further
/// text of the row, in addition to the text itself.
const BYTES_A_NAME: u64 = 160;
const BYTES_A_TEXT: u64 = 64;

/// Opens a table. `ids` are the names of its id columns, which a text file does not distinguish from numbers.
pub(super) fn open(context: &Context, path: &Path, ids: &[&str]) -> Result<TableFile> {
    TableFile::open(context, path, ids, &["distance", "similarity", "score"])
}

/// Returns the index of a column.
pub(super) fn column(table: &TableFile, path: &Path, name: &str) -> Result<usize> {
    let schema = table.schema();
    schema.index_of(name).map_err(|_| {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        Error::input(format!("{} has no column {name}; it has {}", path.display(), list(&names)))
    })
}

/// Lists names for a message, up to a maximum number.
fn list(names: &[&str]) -> String {
    let listed: Vec<String> = names.iter().take(NAMES_LISTED).map(|name| name.chars().take(100).collect()).collect();
    let more = if names.len() > NAMES_LISTED { ", ..." } else { "" };
    format!("{}{more}", listed.join(", "))
}

/// Format of the values of a column.
const SHOWN: FormatOptions<'static> = FormatOptions::new();

/// Returns the values of a column as texts.
pub(super) fn texts_of(column: &dyn Array) -> Result<impl Fn(usize) -> Result<String>> {
    let refused = |error| Error::input(format!("a value cannot be shown: {error}"));
    let shown = ArrayFormatter::try_new(column, &SHOWN).map_err(refused)?;
    Ok(move |row| shown.value(row).try_to_string().map_err(refused))
}

/// Returns the files of tables that a name stands for: a file, the files in a folder and its subfolders, or the matches
/// of a glob.
fn files_of(name: &str) -> Result<Vec<PathBuf>> {
    if Location::is_remote(Path::new(name)) && name.contains(['*', '?']) {
        return Err(Error::input(format!("{name}: names in an object store are in one file; name that file")));
    }
    // A folder is never taken for a glob, even if its name contains `*` or `?`.
    let folder = Path::new(name);
    if !folder.is_dir() {
        return SourceOptions::expand(name);
    }
    let mut files = Vec::new();
    add_tables(folder, &mut files)
        .map_err(|error| Error::device(format!("cannot list {name}: {error}")).caused_by(error))?;
    // The order must be fixed, since row numbers continue from one file to the next.
    files.sort_by(|a, b| a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes()));
    match files.is_empty() {
        true => Err(Error::input(format!("{name} holds no .parquet, .csv or .jsonl file; name a folder that does"))),
        false => Ok(files),
    }
}

/// Adds the tables in a folder, without hidden files and markers such as `_SUCCESS`.
fn add_tables(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if matches!(entry.file_name().as_encoded_bytes().first(), Some(b'.' | b'_')) {
            continue;
        }
        // Links to folders are not followed, since they may form a cycle.
        if entry.file_type()?.is_dir() {
            add_tables(&path, files)?;
        } else if path.is_file() && TableFormat::of(&path).is_ok() {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the memory of a row's texts and its id. `texts` is their number, and `text_bytes` the sum of their
/// lengths.
pub(super) fn bytes_of_texts(id_bytes: usize, text_bytes: usize, texts: usize) -> u64 {
    BYTES_A_NAME + BYTES_A_TEXT * texts.saturating_sub(1) as u64 + 2 * (id_bytes + text_bytes) as u64
}

/// Returns the part of a text that a page shows.
pub(super) fn shown_part(text: &str) -> String {
    text.chars().take(NAME_CHARACTERS_MAX).collect()
}

/// Returns the peak memory, in bytes, for reading names and for reading the `counted` columns of their tables one at
/// a time. The memory of names on the page is not included. If the header of a text file does not fit in memory, the
/// file is assumed to have `columns` columns.
pub(super) fn reading_bytes(context: &Context, names: Names<'_>, counted: &[&str], columns: usize) -> Result<u64> {
    let mut most = 0;
    for path in files_of(names.files)? {
        let bytes = match open(context, &path, &[names.id_column.unwrap_or("id")]) {
            // A JSON file without lines has no columns.
            Ok(table) if table.schema().fields().is_empty() => 0,
            Ok(table) => {
                let (id, name) = columns_of(&table, &path, names)?;
                let own: Vec<usize> = std::iter::once(name).chain(id).collect();
                let counted = counted.iter().filter_map(|name| table.schema().index_of(name).ok());
                let counted = counted.map(|column| table.reading_bytes(&[column]));
                counted
                    .chain([table.reading_bytes(&own)])
                    .try_fold(0, |most, bytes| Ok::<u64, Error>(bytes?.max(most)))?
            }
            Err(error) if error.kind() == ErrorKind::Budget => TableFile::csv_bytes(&path, columns).ok_or(error)?,
            Err(error) => return Err(error),
        };
        most = most.max(bytes);
    }
    Ok(most)
}

/// Passes each value of a column in the tables of names to `take`. Returns whether all tables have the column.
///
/// # Errors
/// If a table cannot be read, or memory does not suffice.
pub(super) fn each_value(context: &Context, names: Names<'_>, name: &str, mut take: impl FnMut(&str)) -> Result<bool> {
    for path in files_of(names.files)? {
        let table = open(context, &path, &[names.id_column.unwrap_or("id")])?;
        if table.schema().fields().is_empty() {
            continue;
        }
        let Ok(column) = table.schema().index_of(name) else { return Ok(false) };
        table.each(context, &[column], |_, batch| {
            let value = texts_of(batch.column(0))?;
            (0..batch.num_rows()).try_for_each(|row| value(row).map(|value| take(&value)))
        })?;
    }
    Ok(true)
}

/// Returns an upper bound on the number of rows in the tables of names. If a table cannot be opened, the bound is the
/// largest number.
pub(super) fn rows_max(context: &Context, names: Names<'_>) -> u64 {
    let rows =
        |path: &PathBuf| open(context, path, &[]).and_then(|table| table.size(&[])).map_or(u64::MAX, |size| size.0);
    files_of(names.files).map_or(u64::MAX, |files| files.iter().map(rows).fold(0, u64::saturating_add))
}

/// Passes each id to `take`, with a function that returns its name. Returns whether a table had no id column, so that
/// row numbers were used as ids.
///
/// # Errors
/// If a table cannot be read, memory does not suffice, or `take` fails.
pub(super) fn each_name(
    context: &Context,
    names: Names<'_>,
    mut take: impl FnMut(&str, &dyn Fn() -> Result<String>) -> Result<()>,
) -> Result<bool> {
    let (mut by_number, mut before) = (false, 0);
    for path in files_of(names.files)? {
        let table = open(context, &path, &[names.id_column.unwrap_or("id")])?;
        if table.schema().fields().is_empty() {
            continue; // a JSON file without lines has no names
        }
        let (id, name) = columns_of(&table, &path, names)?;
        by_number |= id.is_none();
        let mut rows = 0;
        let columns: Vec<usize> = std::iter::once(name).chain(id).collect();
        table.each(context, &columns, |first, batch| {
            let id_of = id.map(|_| texts_of(batch.column(1))).transpose()?;
            let name_of = texts_of(batch.column(0))?;
            for k in 0..batch.num_rows() {
                let id = match &id_of {
                    Some(id_of) => id_of(k)?,
                    None => (before + first + k as u64).to_string(),
                };
                // The name is passed as a function, since most names are not on the page and need not be formatted.
                take(&id, &|| Ok(shown_part(&name_of(k)?)))?;
            }
            rows = first + batch.num_rows() as u64;
            Ok(())
        })?;
        before += rows;
    }
    Ok(by_number)
}

/// Returns the texts of `ids`.
pub(super) fn names_of(context: &Context, names: Names<'_>, ids: &HashSet<&str>) -> Result<Texts> {
    let mut texts = Texts::default();
    texts.by_number = each_name(context, names, |id, name| match ids.contains(id) {
        true => texts.add(context, id.to_owned(), vec![name()?]),
        false => Ok(()),
    })?;
    Ok(texts)
}

/// Texts of rows by id, collected from one table after the other.
#[derive(Default)]
pub(super) struct Texts {
    /// The texts of each id, one per column that is read.
    pub(super) of: HashMap<String, Vec<String>>,
    pub(super) memory: Vec<Reservation>,
    /// Whether a table had no id column, so that row numbers were used as ids.
    pub(super) by_number: bool,
    /// Bytes that are reserved but not used yet.
    granted_bytes: u64,
}

impl Texts {
    /// Adds the texts of a row, or replaces them.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(super) fn add(&mut self, context: &Context, id: String, texts: Vec<String>) -> Result<()> {
        let bytes = bytes_of_texts(id.len(), texts.iter().map(String::len).sum(), texts.len());
        if bytes > self.granted_bytes {
            let granted = bytes.max(NAMES_BYTES_AT_ONCE);
            self.memory.push(context.reserve(granted, "the names on this report")?);
            self.granted_bytes = granted;
        }
        self.granted_bytes -= bytes;
        self.of.insert(id, texts);
        Ok(())
    }
}

/// Returns the columns of ids and of texts.
fn columns_of(table: &TableFile, path: &Path, names: Names<'_>) -> Result<(Option<usize>, usize)> {
    let schema = table.schema();
    let id = match names.id_column {
        Some(name) => Some(column(table, path, name)?),
        None => schema.index_of("id").ok(),
    };
    if let Some(name) = names.name_column {
        return Ok((id, column(table, path, name)?));
    }
    let is_text = |k: &usize| {
        let data = schema.field(*k).data_type();
        Some(*k) != id && matches!(data, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    };
    let none = || Error::input(format!("{} has no text column; name one with --name-column", path.display()));
    Ok((id, (0..schema.fields().len()).find(is_text).ok_or_else(none)?))
}
