//! Columns of a source that are kept beside its vectors, to filter searches by.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use adjoin_device::ReadFile;
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::columns::{Tables, list_columns};
use super::file::SourceFile;
use super::nested::ColumnPlace;
use super::parquet;
use super::vectors::VectorSource;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::message::{Argument, message};
use crate::sql::{cast, common};

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 1_024;

/// Some columns of the files of a source.
pub(crate) struct Attributes {
    /// Files that have rows, with the places of the columns in them, ascending, and where among these each column is.
    files: Vec<(SourceFile, Vec<ColumnPlace>, Vec<usize>)>,
    schema: SchemaRef,
}

impl Attributes {
    /// The columns of these names.
    ///
    /// # Errors
    /// Where a name is given twice, a file has no such column, types are none that can be kept or differ between files, or
    /// the budget does not hold what is decoded at a time.
    pub(crate) fn of(context: &Context, source: &dyn VectorSource, names: &[String]) -> Result<Self> {
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
            return Err(Error::option(message![Argument::Attributes.with(twice), " is named twice; name it once"]));
        }
        let files = source.files();
        if files.is_empty() {
            return Err(Error::option(message![Argument::Attributes, " are columns, and the source has none"]));
        }
        let mut kinds: Option<Vec<DataType>> = None;
        let mut found = Vec::new();
        for file in files.into_iter().filter(|file| file.rows > 0) {
            if !file.is_table() {
                let at = file.path.display();
                return Err(Error::option(message![
                    format!("{at}: it has no columns beside its vectors; leave out "),
                    Argument::Attributes,
                    ", or give a source in Parquet, Arrow or JSON lines"
                ]));
            }
            let schema = file.schema(context)?;
            let ways = names.iter().map(|name| find(&file.path, &schema, name));
            let (ways, of_file): (Vec<ColumnPlace>, Vec<DataType>) =
                ways.collect::<Result<Vec<_>>>()?.into_iter().unzip();
            let mut places = ways.clone();
            places.sort_unstable();
            places.dedup();
            // What cannot be read is refused before any work.
            drop(file.tables(context, &places, BATCH_ROWS)?);
            let of_file = names.iter().zip(of_file).map(|(name, kind)| kept_as(&file.path, name, kind));
            let of_file = of_file.collect::<Result<Vec<_>>>()?;
            kinds = Some(match kinds {
                None => of_file,
                Some(known) => shared(&file.path, names, (known, of_file))?,
            });
            let at = |way: &ColumnPlace| places.binary_search(way).expect("each is among them");
            let order = ways.iter().map(at).collect();
            found.push((file, places, order));
        }
        let kinds = kinds.unwrap_or_else(|| vec![DataType::Null; names.len()]);
        let fields = names.iter().zip(kinds).map(|(name, kind)| Field::new(name, kind, true));
        Ok(Self { files: found, schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())) })
    }

    /// The columns as they are kept.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Hands over all rows in their order, some at a time, with the number of the first.
    ///
    /// # Errors
    /// Where a file has changed or cannot be read, the budget does not hold what is decoded at a time, or `take` fails.
    pub(crate) fn each(&self, context: &Context, mut take: impl FnMut(u64, RecordBatch) -> Result<()>) -> Result<()> {
        for (file, places, order) in &self.files {
            let mut row = file.first_row;
            for table in file.tables(context, places, BATCH_ROWS)? {
                context.cancel.check()?;
                let table = table?;
                let columns = order.iter().zip(self.schema.fields()).map(|(&at, field)| {
                    let column = table.columns().get(at).ok_or_else(|| super::file::changed(&file.path))?;
                    cast(column, field.data_type())
                });
                let columns = columns.collect::<Result<Vec<_>>>()?;
                let rows = table.num_rows() as u64;
                let table = RecordBatch::try_new(self.schema.clone(), columns);
                take(row, table.map_err(|error| Error::input(format!("{}: {error}", file.path.display())))?)?;
                row += rows;
                context.progress.advance(row);
            }
            file.check_rows(row - file.first_row)?;
        }
        Ok(())
    }
}

/// A Parquet file of ours, of which some columns are read.
///
/// # Errors
/// Where it cannot be read, or the budget does not hold what is decoded at a time.
pub(crate) fn kept_tables(context: &Context, path: &Path, file: Arc<dyn ReadFile>, places: &[usize]) -> Result<Tables> {
    let places: Vec<ColumnPlace> = places.iter().copied().map(ColumnPlace::top).collect();
    parquet::tables(context, path, file, (&places, BATCH_ROWS), 0)
}

/// Its columns.
///
/// # Errors
/// Where it cannot be read.
pub(crate) fn kept_schema(path: &Path, file: Arc<dyn ReadFile>) -> Result<SchemaRef> {
    parquet::schema(path, file)
}

/// The column of a name, and its type.
pub(super) fn find(path: &Path, schema: &Schema, name: &str) -> Result<(ColumnPlace, DataType)> {
    let found = ColumnPlace::find(schema.fields(), name);
    let found = found.map(|(place, field)| (place, field.data_type().clone()));
    found.ok_or_else(|| {
        Error::input(message![
            format!("{}: there is no column {name} for ", path.display()),
            Argument::Attributes,
            format!("; its columns are {}", list_columns(schema))
        ])
    })
}

/// The type as which values of a type are kept: of dictionaries what they stand for, texts of one kind.
fn kept_as(path: &Path, name: &str, kind: DataType) -> Result<DataType> {
    Ok(match kind {
        DataType::Dictionary(_, values) => return kept_as(path, name, *values),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Null | DataType::Boolean => kind,
        kind if kind.is_numeric() => kind,
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..) => {
            kind
        }
        kind => {
            return Err(Error::input(message![
                format!("{}: column {name} is {kind}, and ", path.display()),
                Argument::Attributes,
                " are texts, numbers, dates, times, or true and false; name other columns"
            ]));
        }
    })
}

/// The types that columns of two files have in common.
fn shared(path: &Path, names: &[String], (known, of_file): (Vec<DataType>, Vec<DataType>)) -> Result<Vec<DataType>> {
    let pairs = names.iter().zip(known.into_iter().zip(of_file));
    let both = pairs.map(|(name, (known, kind))| {
        let common = common(&known, &kind).map(|common| if common.is_string() { DataType::Utf8 } else { common });
        common.ok_or_else(|| {
            Error::input(format!(
                "{}: column {name} is {kind}, and in an earlier file {known}; all files of a set must have the same",
                path.display()
            ))
        })
    });
    both.collect()
}
