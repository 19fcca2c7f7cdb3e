//! Columns of a store or an index that are part of results.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::take::take_record_batch;

use super::attributes::reading_bytes_of_rows;
use super::filter_bitmap::{StoredColumns, required_columns};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::source::TablesMemory;

/// Some columns of a store or an index, in the order in which the result has them.
pub(crate) struct ResultColumns<'a> {
    stored: StoredColumns<'a>,
    /// Indexes of the columns in the file, ascending.
    places: Vec<usize>,
    /// For each column of the result, its position in `places`.
    order: Vec<usize>,
    schema: SchemaRef,
}

/// Schema and memory of the columns of a result.
#[derive(Debug, Clone)]
pub(crate) struct ColumnNeeds {
    pub(crate) schema: SchemaRef,
    /// Bytes for reading the columns.
    pub(crate) reading_bytes: u64,
    /// Mean bytes of a row in that part of the file in which rows are longest.
    pub(crate) row_bytes: u64,
    /// Upper bound on the bytes of any row.
    pub(crate) row_bytes_max: u64,
}

impl ColumnNeeds {
    /// Extends the needs to rows that take up to `row_bytes_max` bytes.
    pub(crate) fn add_rows(&mut self, row_bytes_max: u64) {
        self.row_bytes = self.row_bytes.max(row_bytes_max);
        self.row_bytes_max = self.row_bytes_max.max(row_bytes_max);
    }
}

/// Returns the needs of columns that a future store will keep, if a row takes at most `row_bytes_max` bytes.
pub(crate) fn kept_needs(schema: &SchemaRef, row_bytes_max: u64) -> ColumnNeeds {
    let reading_bytes = reading_bytes_of_rows(schema.fields().len(), row_bytes_max);
    ColumnNeeds { schema: schema.clone(), reading_bytes, row_bytes: row_bytes_max, row_bytes_max }
}

/// Returns the index of each named column in `kept`, the columns of a folder.
///
/// # Errors
/// Fails if a name is given twice or is not the name of a column. The error lists the columns.
pub(crate) fn places_of(folder: &Path, kept: &Schema, names: &[String]) -> Result<Vec<usize>> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
        return Err(Error::option(message![Argument::Columns.with(twice), " is named twice; name it once"]));
    }
    let place = |name: &String| {
        kept.fields().iter().position(|field| field.name() == name).ok_or_else(|| {
            let all: Vec<&str> = kept.fields().iter().map(|field| field.name().as_str()).collect();
            let keeps = format!(": {} has no such column; it has {}", folder.display(), all.join(", "));
            Error::option(message![Argument::Columns.with(name), keeps])
        })
    };
    names.iter().map(place).collect()
}

impl<'a> ResultColumns<'a> {
    /// Returns the named columns of a folder with `rows` rows. Returns `None` if no names are given.
    ///
    /// # Errors
    /// Fails if the folder does not have a named column, a name is given twice, or the file of columns cannot be read.
    pub(crate) fn of(
        stored: Option<StoredColumns<'a>>,
        folder: &Path,
        rows: u64,
        names: &[String],
    ) -> Result<Option<Self>> {
        if names.is_empty() {
            return Ok(None);
        }
        let stored = required_columns(stored, folder, rows, Argument::Columns)?;
        let kept = stored.schema()?;
        let wanted = places_of(folder, &kept, names)?;
        let mut places = wanted.clone();
        // Tables have columns in the order of the file.
        places.sort_unstable();
        let at = |place: &usize| places.binary_search(place).expect("`places` has the place of each column");
        let order = wanted.iter().map(at).collect();
        let fields: Vec<_> = wanted.iter().map(|&place| kept.field(place).clone().with_nullable(true)).collect();
        Ok(Some(Self { stored, places, order, schema: Arc::new(Schema::new(fields)) }))
    }

    /// Returns the schema of the columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the schema of the columns and the memory for reading them.
    ///
    /// # Errors
    /// Fails if the file of columns cannot be read.
    pub(crate) fn needs(&self) -> Result<ColumnNeeds> {
        let TablesMemory { reading, row, row_max } = self.stored.memory(&self.places)?;
        let schema = self.schema.clone();
        Ok(ColumnNeeds { schema, reading_bytes: reading, row_bytes: row, row_bytes_max: row_max })
    }

    /// Passes the columns of `rows` to `take`, as tables of the next rows. The rows must be distinct and ascending.
    /// Ends early if `take` breaks. The caller has reserved the memory for reading.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is damaged, or if `take` fails.
    pub(crate) fn each_of(
        &self,
        context: &Context,
        rows: &[u32],
        take: &mut dyn FnMut(RecordBatch) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let refused = |error: arrow_schema::ArrowError| Error::input(error.to_string());
        self.stored.each_of(context, &self.places, rows, &mut |table, here| {
            let rows = take_record_batch(table, &UInt32Array::from(here)).map_err(refused)?;
            let columns = self.order.iter().map(|&at| rows.column(at).clone()).collect();
            take(RecordBatch::try_new(self.schema.clone(), columns).map_err(refused)?)
        })
    }
}
