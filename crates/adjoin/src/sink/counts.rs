//! How many neighbours each row has: for outliers, and to choose a threshold.

use std::sync::Arc;

use arrow_array::UInt64Array;
use arrow_schema::{DataType, Field};

use super::row_ids::{IdColumn, Needs, Rows};
use super::row_numbers::RowNumbers;
use super::sink::{PairBatch, PairSink, Written};
use super::table::TableWriter;
use crate::context::Context;
use crate::error::Result;
use crate::options::format_number;
use crate::output::Target;
use crate::store::Store;

/// Counts the pairs of each row: columns `id` and `count`, a line for every row, in the order of rows.
pub struct Counts<'a> {
    rows: Rows<'a>,
    counts: RowNumbers,
    table: Option<TableWriter>,
}

impl<'a> Counts<'a> {
    /// Starts a result; without a target only the summary is told. Takes its memory before the join is planned,
    /// which needs `beside` bytes at least.
    ///
    /// # Errors
    /// Where memory does not suffice, or as [`super::PairWriter::create`].
    pub fn create(context: &'a Context, store: &'a Store, target: Option<&Target>, beside: u64) -> Result<Self> {
        let end = Rows::end(store);
        let bytes = RowNumbers::memory_bytes(end);
        let needs = Needs { bytes, sorters: 1, beside, purpose: "counting neighbours" };
        let column = Field::new("count", DataType::UInt64, false);
        let (rows, table) = Rows::with_table(context, store, target, needs, column)?;
        Ok(Self { rows, counts: RowNumbers::new(end, |_| 0), table })
    }

    /// Writes the table; returns its bytes and those of temporary files.
    fn write(&self, mut table: TableWriter) -> Result<Written> {
        let mut rows = self.rows.sorted()?;
        let (mut ids, mut counts, mut id) = (IdColumn::new(self.rows.ids()), Vec::new(), Vec::new());
        loop {
            let row = rows.next(&mut id)?;
            if let Some(row) = row {
                ids.push(row, &id);
                counts.push(self.counts.get(row));
            }
            if row.is_none() || ids.is_full() {
                table.write(vec![ids.take(), Arc::new(UInt64Array::from(std::mem::take(&mut counts)))])?;
            }
            if row.is_none() {
                return Ok(Written { spill_bytes: rows.spilled(), ..table.finish()? });
            }
        }
    }
}

impl PairSink for Counts<'_> {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        for &row in batch.left_rows.iter().chain(&batch.right_rows) {
            self.counts.set(row, self.counts.get(row) + 1);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written> {
        let counts = (0..Rows::end(self.rows.store)).map(|row| self.counts.get(row));
        let (with, most) = counts.fold((0u64, 0), |(with, most), count| (with + u64::from(count > 0), count.max(most)));
        let [with, rows, most] = [with, self.rows.store.manifest().rows, most].map(format_number);
        self.rows.context.progress.note(&format!("{with} of {rows} rows have neighbours, one row at most {most}"));
        self.table.take().map_or(Ok(Written::default()), |table| self.write(table))
    }
}
