//! Columns of a store or an index that results carry.

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

/// Some columns of a store or an index, in the order in which a result has them.
pub(crate) struct ResultColumns<'a> {
    stored: StoredColumns<'a>,
    /// Places of the columns in the file, ascending, and the index of each column of the result among them.
    places: Vec<usize>,
    order: Vec<usize>,
    schema: SchemaRef,
}

/// Schema and memory of the columns of a result.
#[derive(Debug, Clone)]
pub(crate) struct ColumnNeeds {
    pub(crate) schema: SchemaRef,
    /// Bytes for reading them.
    pub(crate) reading_bytes: u64,
    /// Mean bytes of a row where rows are longest, and a bound on the bytes of any row.
    pub(crate) row_bytes: u64,
    pub(crate) row_bytes_max: u64,
}

impl ColumnNeeds {
    /// Adds rows that take at most `row_bytes_max` bytes.
    pub(crate) fn add_rows(&mut self, row_bytes_max: u64) {
        self.row_bytes = self.row_bytes.max(row_bytes_max);
        self.row_bytes_max = self.row_bytes_max.max(row_bytes_max);
    }
}

/// Returns the needs of columns that a store is to keep, if a row takes at most `row_bytes_max` bytes.
pub(crate) fn kept_needs(schema: &SchemaRef, row_bytes_max: u64) -> ColumnNeeds {
    let reading_bytes = reading_bytes_of_rows(schema.fields().len(), row_bytes_max);
    ColumnNeeds { schema: schema.clone(), reading_bytes, row_bytes: row_bytes_max, row_bytes_max }
}

/// Returns the place of each name among the columns of a folder.
///
/// # Errors
/// If a name is given twice, or is not the name of a column; the error lists the columns.
pub(crate) fn places_of(folder: &Path, kept: &Schema, names: &[String]) -> Result<Vec<usize>> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
        return Err(Error::option(message![Argument::Columns.with(twice), " is named twice; name it once"]));
    }
    let place = |name: &String| {
        kept.fields().iter().position(|field| field.name() == name).ok_or_else(|| {
            let all: Vec<&str> = kept.fields().iter().map(|field| field.name().as_str()).collect();
            let keeps = format!(": {} keeps no such column; it keeps {}", folder.display(), all.join(", "));
            Error::option(message![Argument::Columns.with(name), keeps])
        })
    };
    names.iter().map(place).collect()
}

impl<'a> ResultColumns<'a> {
    /// Returns the columns of these names of a folder with `rows` rows; `None` if there are no names.
    ///
    /// # Errors
    /// If the folder does not keep a column, a name is given twice, or the file of the columns cannot be read.
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

    /// Returns the schema and the memory of the columns.
    ///
    /// # Errors
    /// If their file cannot be read.
    pub(crate) fn needs(&self) -> Result<ColumnNeeds> {
        let TablesMemory { reading, row, row_max } = self.stored.memory(&self.places)?;
        let schema = self.schema.clone();
        Ok(ColumnNeeds { schema, reading_bytes: reading, row_bytes: row, row_bytes_max: row_max })
    }

    /// Passes the columns of some rows, ascending and distinct, to `take`: tables of the next rows. Ends early if `take`
    /// breaks. The caller has reserved the bytes for reading in `context`.
    ///
    /// # Errors
    /// If the file cannot be read or is damaged, or if `take` fails.
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
