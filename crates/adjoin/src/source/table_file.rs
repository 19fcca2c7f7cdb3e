//! Tables in Parquet, CSV or JSON lines files, for commands that read columns but no vectors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::ReadFile;
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use super::columns::Tables;
use super::csv::CsvTables;
use super::json_types::LineFacts;
use super::nested::ColumnPlace;
use super::{csv, json_lines, parquet};
use crate::base::context::Context;
use crate::base::error::{Error, Result};

/// Extensions of tables. The last two are JSON lines.
const ENDINGS: [&str; 4] = ["parquet", "csv", "jsonl", "ndjson"];
/// Number of rows to decode at a time.
const BATCH_ROWS: usize = 1 << 10;

/// A table in a file. Its columns are read within the budget, even if the file makes false claims.
pub struct TableFile {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    schema: SchemaRef,
    kind: Kind,
}

enum Kind {
    Parquet,
    Csv,
    JsonLines(Box<LineFacts>),
}

impl TableFile {
    /// Opens a table. CSV columns in `texts` are read as text, because 007 and 7 are different ids. CSV columns in
    /// `numbers` are read as floats, even if their first values are integers.
    ///
    /// # Errors
    /// Fails if the file cannot be read or does not match its extension, or if its longest line or its footer does not
    /// fit in the budget.
    pub fn open(context: &Context, path: &Path, texts: &[&str], numbers: &[&str]) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if !ENDINGS.contains(&ending) {
            let at = path.display();
            return Err(Error::option(format!("{at}: a table is a .parquet, .csv or .jsonl file; name one")));
        }
        let file = context.device.open(path)?;
        let (schema, kind) = match ending {
            "parquet" => (parquet::schema_within(context, path, file.clone())?, Kind::Parquet),
            "csv" => (csv::schema(context, path, file.clone(), texts, numbers)?, Kind::Csv),
            _ => {
                let facts = json_lines::facts(context, path, file.clone())?;
                (facts.schema(), Kind::JsonLines(Box::new(facts)))
            }
        };
        Ok(Self { path: path.to_owned(), file, schema, kind })
    }

    /// Returns the schema of the columns. It has no columns if a JSON lines file has no rows.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Passes batches of rows to `take`, each with the number of its first row. The batches have the columns with the
    /// indexes `columns`, in this order.
    ///
    /// # Errors
    /// Fails if the file cannot be read, a decoded batch does not fit in the budget, or `take` fails.
    pub fn each(
        &self,
        context: &Context,
        columns: &[usize],
        mut take: impl FnMut(u64, &RecordBatch) -> Result<()>,
    ) -> Result<()> {
        self.each_table(context, columns, &mut take)
    }

    fn each_table(
        &self,
        context: &Context,
        columns: &[usize],
        take: &mut dyn FnMut(u64, &RecordBatch) -> Result<()>,
    ) -> Result<()> {
        // Readers return each column once, in the order of the file. `project` restores the requested order.
        let mut ascending = columns.to_vec();
        ascending.sort_unstable();
        ascending.dedup();
        let at = |column: &usize| ascending.binary_search(column).expect("`ascending` has each requested column");
        let order: Vec<usize> = columns.iter().map(at).collect();
        let mut row = 0;
        for table in self.tables(context, &ascending)? {
            context.cancel.check()?;
            let table = table?.project(&order);
            let table = table.map_err(|error| Error::input(format!("{}: {error}", self.path.display())))?;
            take(row, &table)?;
            row += table.num_rows() as u64;
        }
        Ok(())
    }

    /// Returns the bytes held while the columns with the indexes `columns` are read.
    ///
    /// # Errors
    /// Fails if page headers cannot be read.
    pub fn reading_bytes(&self, columns: &[usize]) -> Result<u64> {
        let mut places: Vec<ColumnPlace> = columns.iter().copied().map(ColumnPlace::top).collect();
        places.sort_unstable();
        Ok(match &self.kind {
            Kind::Parquet => parquet::tables_bytes(&self.path, self.file.clone(), &places, BATCH_ROWS)?,
            Kind::Csv => csv::reading_bytes(self.schema.fields().len()),
            Kind::JsonLines(facts) => facts.held_bytes(),
        })
    }

    /// Returns the bytes held while a CSV file with `columns` columns is opened and read. Returns `None` for other
    /// formats, since their headers state more.
    pub fn csv_bytes(path: &Path, columns: usize) -> Option<u64> {
        let is_csv = path.extension().is_some_and(|ending| ending == "csv");
        is_csv.then(|| csv::reading_bytes(columns).max(csv::opening_bytes()))
    }

    /// Returns upper bounds on the number of rows, and on the total length of the distinct values in some columns, as
    /// texts.
    ///
    /// # Errors
    /// Fails if a header cannot be read.
    pub fn size(&self, columns: &[usize]) -> Result<(u64, u64)> {
        let bytes = self.file.len();
        Ok(match &self.kind {
            Kind::Parquet => parquet::size(&self.path, self.file.clone(), columns)?,
            // Each field of a record takes at least two bytes, with its separator.
            Kind::Csv => (bytes / (2 * self.schema.fields().len() as u64).max(1), bytes),
            Kind::JsonLines(facts) => (facts.rows(), bytes),
        })
    }

    fn tables(&self, context: &Context, columns: &[usize]) -> Result<Tables> {
        let (path, file) = (&self.path, self.file.clone());
        let places: Vec<ColumnPlace> = columns.iter().copied().map(ColumnPlace::top).collect();
        Ok(match &self.kind {
            Kind::Parquet => parquet::tables(context, path, file, &places, BATCH_ROWS, 0)?,
            Kind::Csv => Box::new(CsvTables::new(context, path, file, self.schema.clone(), columns)?),
            Kind::JsonLines(facts) => json_lines::tables(context, path, file, &places, 0, facts)?,
        })
    }
}
