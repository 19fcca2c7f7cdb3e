//! Columns of hits, read for as many hits at a time as memory holds.

use std::ops::ControlFlow;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::interleave::interleave;

use super::id_room::IdRoom;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::store::ResultColumns;

/// Bytes of a hit while its columns are read: its rank in the order of rows, its row, and its position in the tables.
pub(super) const BYTES_OF_HIT: u64 = 6 * size_of::<u32>() as u64;

/// Columns of some hits. Hits of one row share a row of a table.
pub(crate) struct HitColumns {
    tables: Vec<RecordBatch>,
    /// Table and row of each hit.
    positions: Vec<(u32, u32)>,
}

/// Lookup in progress: hits get the rows of tables that are added in the order of their keys.
pub(crate) struct ColumnGathering {
    /// Key of the row of each hit, and the order of hits by key.
    keys: Vec<u64>,
    order: Vec<u32>,
    next: usize,
    columns: HitColumns,
}

impl ColumnGathering {
    /// Prepares a lookup for hits with these keys, which are equal for hits of one row.
    pub(crate) fn new(keys: Vec<u64>) -> Self {
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_unstable_by_key(|&hit| keys[hit as usize]);
        let positions = vec![(0, 0); keys.len()];
        Self { keys, order, next: 0, columns: HitColumns { tables: Vec::new(), positions } }
    }

    /// Returns the distinct keys, ascending.
    pub(crate) fn distinct(&self) -> Vec<u64> {
        let mut distinct: Vec<u64> = self.order.iter().map(|&hit| self.keys[hit as usize]).collect();
        distinct.dedup();
        distinct
    }

    /// Adds a table of the rows with the next distinct keys. Returns whether `room` holds it.
    pub(crate) fn add(&mut self, table: RecordBatch, room: &mut IdRoom<'_>) -> bool {
        if !room.take(table.get_array_memory_size() as u64) {
            return false;
        }
        let number = self.columns.tables.len() as u32;
        for row in 0..table.num_rows() as u32 {
            let key = self.keys[self.order[self.next] as usize];
            while let Some(&hit) = self.order.get(self.next).filter(|&&hit| self.keys[hit as usize] == key) {
                self.columns.positions[hit as usize] = (number, row);
                self.next += 1;
            }
        }
        self.columns.tables.push(table);
        true
    }

    /// Adds the rows that are stored in `columns`, whose keys are their numbers: the next `rows`. Returns whether `room`
    /// holds them.
    ///
    /// # Errors
    /// If the columns cannot be read.
    pub(crate) fn add_stored(
        &mut self,
        context: &Context,
        columns: &ResultColumns<'_>,
        rows: &[u32],
        room: &mut IdRoom<'_>,
    ) -> Result<bool> {
        let mut fits = true;
        columns.each_of(context, rows, &mut |table| {
            fits = self.add(table, room);
            Ok(if fits { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(fits)
    }

    /// Returns the columns of all hits.
    ///
    /// # Panics
    /// If a hit has no row yet.
    pub(crate) fn finish(self) -> HitColumns {
        assert_eq!(self.next, self.order.len(), "each hit has a row");
        self.columns
    }
}

impl HitColumns {
    /// Returns the bytes of the values of a hit.
    pub(super) fn bytes_of(&self, hit: usize) -> u64 {
        let (table, row) = self.positions[hit];
        let bytes = |column: &ArrayRef| match column.as_string_opt::<i32>() {
            Some(texts) => size_of::<i32>() as u64 + u64::from(texts.value_length(row as usize).unsigned_abs()),
            None => column.data_type().primitive_width().unwrap_or(1) as u64,
        };
        self.tables[table as usize].columns().iter().map(bytes).sum()
    }

    /// Returns the columns of some hits as one table.
    ///
    /// # Errors
    /// If a column takes more than 2 GiB.
    pub(super) fn table(&self, schema: &SchemaRef, hits: std::ops::Range<usize>) -> Result<RecordBatch> {
        let positions = &self.positions[hits];
        let mut numbers: Vec<u32> = positions.iter().map(|&(table, _)| table).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let at = |table: u32| numbers.binary_search(&table).expect("`numbers` has each table");
        let indices: Vec<(usize, usize)> = positions.iter().map(|&(table, row)| (at(table), row as usize)).collect();
        let column = |k: usize| {
            let parts: Vec<&dyn Array> = numbers.iter().map(|&n| &**self.tables[n as usize].column(k)).collect();
            interleave(&parts, &indices)
        };
        let columns: std::result::Result<Vec<ArrayRef>, ArrowError> = match numbers.is_empty() {
            true => Ok(RecordBatch::new_empty(schema.clone()).columns().to_vec()),
            false => (0..schema.fields().len()).map(column).collect(),
        };
        let options = RecordBatchOptions::new().with_row_count(Some(positions.len()));
        let table = columns.and_then(|columns| RecordBatch::try_new_with_options(schema.clone(), columns, &options));
        table.map_err(|error| Error::input(error.to_string()))
    }
}
