//! Columns of rows gathered in another order than the one in which they are read.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::interleave::interleave;

use crate::base::error::{Error, Result};

/// Bytes of a line while its columns are gathered: its key twice, its rank in the order of keys, and its position in the
/// tables.
pub(crate) const GATHERED_LINE_BYTES: u64 = 2 * size_of::<u64>() as u64 + 3 * size_of::<u32>() as u64;

/// Columns of the rows that some lines of a result name. Lines of one row share a row of a table.
pub(crate) struct GatheredColumns {
    tables: Vec<RecordBatch>,
    /// Table and row of each line.
    positions: Vec<(u32, u32)>,
}

/// Lookup in progress: lines get the rows of tables that are added in the order of their keys.
pub(crate) struct ColumnGathering {
    /// Key of the row of each line, and the order of lines by key.
    keys: Vec<u64>,
    order: Vec<u32>,
    next: usize,
    columns: GatheredColumns,
}

impl ColumnGathering {
    /// Prepares a lookup for lines with these keys, which are equal for lines of one row.
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

    /// Adds a table of the rows with the next distinct keys.
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
    /// If a line has no row yet.
    pub(crate) fn finish(self) -> GatheredColumns {
        assert_eq!(self.next, self.order.len(), "each line has a row");
        self.columns
    }
}

impl GatheredColumns {
    /// Returns the bytes of the values of a line.
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
    /// If a column takes more than 2 GiB.
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
