//! Columns of single rows of a store or an index, in any order.

use std::ops::ControlFlow;

use adjoin_device::Reservation;
use arrow_array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;

use super::filter_bitmap::StoredColumns;
use crate::base::context::Context;
use crate::base::error::{Error, Result};

/// Number of copies of the rows in memory: parts of tables, their concatenation, and the rows in the requested order.
const COPIES: u64 = 3;
/// Purpose of the memory, for messages.
const PURPOSE: &str = "fetching rows by their ids";

/// Columns of some rows, with the reservation of their memory.
pub(crate) struct AttributeRows {
    pub(crate) table: RecordBatch,
    _memory: Reservation,
}

impl AttributeRows {
    /// Reads the columns of `rows`, in the order of `rows`. If there is no file of columns, the table has no columns.
    ///
    /// # Errors
    /// Fails if the file is damaged or cannot be read, or memory does not suffice.
    pub(crate) fn read(context: &Context, columns: Option<StoredColumns<'_>>, rows: &[u32]) -> Result<Self> {
        let mut memory = context.reserve(0, PURPOSE)?;
        let Some(columns) = columns else {
            return Ok(Self { table: without_columns(rows.len())?, _memory: memory });
        };
        let mut order: Vec<u32> = (0..rows.len() as u32).collect();
        // The file is read once from front to back, in any case. The rows are put in the requested order afterwards.
        order.sort_unstable_by_key(|&k| rows[k as usize]);
        let ascending: Vec<u32> = order.iter().map(|&k| rows[k as usize]).collect();
        let (mut tables, mut bytes) = (Vec::new(), 0);
        columns.each_of(context, &columns.all()?, &ascending, &mut |table, here| {
            let some = take_record_batch(table, &UInt32Array::from(here)).map_err(refused)?;
            bytes += COPIES * some.get_array_memory_size() as u64;
            context.grow(&mut memory, bytes, PURPOSE)?;
            tables.push(some);
            Ok(ControlFlow::Continue(()))
        })?;
        let mut places = vec![0; rows.len()];
        (0..).zip(&order).for_each(|(at, &k)| places[k as usize] = at);
        Ok(Self { table: in_order(&columns.schema()?, &tables, places)?, _memory: memory })
    }

    /// Returns a table with the columns of `schema` but without rows.
    ///
    /// # Errors
    /// Fails in a forked child.
    pub(crate) fn empty(context: &Context, schema: SchemaRef) -> Result<Self> {
        Ok(Self { table: RecordBatch::new_empty(schema), _memory: context.reserve(0, PURPOSE)? })
    }

    /// Combines these rows with `others`, which have the same columns. Row `places[k]` of both, concatenated, becomes
    /// row `k`.
    ///
    /// # Errors
    /// Fails if memory does not suffice.
    pub(crate) fn join(self, context: &Context, others: RecordBatch, places: Vec<u32>) -> Result<Self> {
        let Self { table, _memory: mut memory } = self;
        let bytes = COPIES * (table.get_array_memory_size() + others.get_array_memory_size()) as u64;
        context.grow(&mut memory, bytes, PURPOSE)?;
        if table.num_columns() == 0 {
            return Ok(Self { table: without_columns(places.len())?, _memory: memory });
        }
        Ok(Self { table: in_order(&table.schema(), &[table, others], places)?, _memory: memory })
    }
}

/// Returns a table of `rows` rows without columns.
fn without_columns(rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Schema::empty().into(), Vec::new(), &options).map_err(refused)
}

/// Concatenates tables and reorders their rows. Row `places[k]` of the concatenation becomes row `k`.
fn in_order(schema: &SchemaRef, tables: &[RecordBatch], places: Vec<u32>) -> Result<RecordBatch> {
    let all = concat_batches(schema, tables).map_err(refused)?;
    take_record_batch(&all, &UInt32Array::from(places)).map_err(refused)
}

fn refused(error: ArrowError) -> Error {
    Error::input(error.to_string())
}
