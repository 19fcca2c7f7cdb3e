//! Gathers columns of rows for the lines of a result. Rows are read in another order than that of the lines.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::interleave::interleave;

use crate::base::error::{Error, Result};

/// Bytes per line while columns are gathered: its key twice, its rank in the order of keys, and the table and row
/// where its columns are.
pub(crate) const GATHERED_LINE_BYTES: u64 = 2 * size_of::<u64>() as u64 + 3 * size_of::<u32>() as u64;

/// Columns of the rows that the lines of a result name. Lines that name the same row share a row of a table.
pub(crate) struct GatheredColumns {
    tables: Vec<RecordBatch>,
    /// For each line, the number of a table and of a row in it.
    positions: Vec<(u32, u32)>,
}

/// Gathering in progress. Tables are added in the order of their rows' keys, and each row is assigned to its lines.
pub(crate) struct ColumnGathering {
    /// For each line, the key of its row.
    keys: Vec<u64>,
    /// Lines in the order of their keys.
    order: Vec<u32>,
    next: usize,
    columns: GatheredColumns,
}

impl ColumnGathering {
    /// Prepares to gather the rows of some lines. `keys` holds the key of each line's row. Lines with equal keys name
    /// the same row.
    pub(crate) fn new(keys: Vec<u64>) -> Self {
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_unstable_by_key(|&line| keys[line as usize]);
        let positions = vec![(0, 0); keys.len()];
        Self { keys, order, next: 0, columns: GatheredColumns { tables: Vec::new(), positions } }
    }

    /// Returns the distinct keys, ascending.
    pub(crate) fn distinct(&self) -> Vec<u64> {
        let mut distinct: Vec<u64> = self.order.iter().map(|&line| self.keys[line as usize]).collect();
        distinct.dedup();
        distinct
    }

    /// Adds a table with the rows that have the next distinct keys.
    pub(crate) fn push(&mut self, table: RecordBatch) {
        let number = self.columns.tables.len() as u32;
        for row in 0..table.num_rows() as u32 {
            let key = self.keys[self.order[self.next] as usize];
            while let Some(&line) = self.order.get(self.next).filter(|&&line| self.keys[line as usize] == key) {
                self.columns.positions[line as usize] = (number, row);
                self.next += 1;
            }
        }
        self.columns.tables.push(table);
    }

    /// Returns the columns of all lines.
    ///
    /// # Panics
    /// Panics if the row of a line was not added.
    pub(crate) fn finish(self) -> GatheredColumns {
        assert_eq!(self.next, self.order.len(), "each line has a row");
        self.columns
    }
}

impl GatheredColumns {
    /// Returns the size of a line's values, in bytes.
    pub(crate) fn bytes_of(&self, line: usize) -> u64 {
        let (table, row) = self.positions[line];
        let bytes = |column: &ArrayRef| match column.as_string_opt::<i32>() {
            Some(texts) => size_of::<i32>() as u64 + u64::from(texts.value_length(row as usize).unsigned_abs()),
            None => column.data_type().primitive_width().unwrap_or(1) as u64,
        };
        self.tables[table as usize].columns().iter().map(bytes).sum()
    }

    /// Returns the columns of some lines as one table.
    ///
    /// # Errors
    /// Fails if a column takes more than 2 GiB.
    pub(crate) fn table(&self, schema: &SchemaRef, lines: std::ops::Range<usize>) -> Result<RecordBatch> {
        let positions = &self.positions[lines];
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
