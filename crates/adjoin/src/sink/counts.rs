//! How many neighbours each row has: for outliers, and to choose a threshold.

use std::sync::Arc;

use arrow_array::UInt64Array;
use arrow_schema::{DataType, Field};

use super::row_ids::{IdColumn, Needs, RowIds, Rows};
use super::sink::{PairBatch, PairSink, Written};
use super::sorter::{Records, Sorter};
use super::table::TableWriter;
use crate::context::Context;
use crate::error::Result;
use crate::options::format_number;
use crate::output::Target;
use crate::store::Store;

/// Neighbours after which the counter of a row is 0 again.
const WRAP: u64 = 1 << u8::BITS;

/// Counts the pairs of each row: columns `id` and `count`, a line for every row, in the order of rows.
///
/// Most rows have few neighbours, so a row has one byte; each time it passes 255 a record of the row is sorted on disk.
pub struct Counts<'a> {
    rows: Rows<'a>,
    /// The count of each row without the multiples of [`WRAP`].
    counters: Vec<u8>,
    /// A record of a row for each [`WRAP`] of its neighbours.
    wraps: Sorter,
    lines: Option<Lines>,
}

impl<'a> Counts<'a> {
    /// Starts a result; without a target only the summary is told. Takes its memory before the join is planned,
    /// which needs `beside` bytes at least.
    ///
    /// # Errors
    /// Where memory does not suffice, or as [`super::PairWriter::create`].
    pub fn create(context: &'a Context, store: &'a Store, target: Option<&Target>, beside: u64) -> Result<Self> {
        let end = Rows::end(store);
        // Sorted after the join: ids, where there are any, beside what was counted.
        let sorters_after = if Rows::are_numbers(store) || target.is_none() { 1 } else { 2 };
        let purpose = "counting neighbours";
        let needs = Needs { bytes: end, sorters_during: 1, sorters_after, beside, purpose };
        let column = Field::new("count", DataType::UInt64, false);
        let (rows, table) = Rows::with_table(context, store, target, needs, column)?;
        let lines = table.map(|table| Lines { table, ids: IdColumn::new(rows.ids()), counts: Vec::new() });
        Ok(Self { counters: vec![0; end as usize], wraps: rows.sorter(), rows, lines })
    }
}

impl PairSink for Counts<'_> {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        for &row in batch.left_rows.iter().chain(&batch.right_rows) {
            let counter = &mut self.counters[row as usize];
            *counter = counter.wrapping_add(1);
            if *counter == 0 {
                self.wraps.push((row, 0), &[])?;
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Self { rows, counters, wraps, mut lines } = *self;
        let wraps = wraps.finish()?;
        // The summary alone needs no ids.
        let mut named = if lines.is_some() { rows.sorted()? } else { RowIds::numbers(counters.len() as u64) };
        let (mut wraps, mut id) = (Records::new(wraps)?, Vec::new());
        let (mut with, mut most) = (0u64, 0);
        while let Some(row) = named.next(&mut id)? {
            let mut count = u64::from(counters[row as usize]);
            wraps.each_of(row, |_, _| {
                count += WRAP;
                Ok(())
            })?;
            with += u64::from(count > 0);
            most = count.max(most);
            lines.as_mut().map_or(Ok(()), |lines| lines.push(row, &id, count))?;
        }
        let [with, all, most] = [with, rows.store.manifest().rows, most].map(format_number);
        rows.context.progress.note(&format!("{with} of {all} rows have neighbours, one row at most {most}"));
        let spill_bytes = wraps.spilled() + named.spilled();
        let written = lines.map_or(Ok(Written::default()), Lines::finish)?;
        Ok(Written { spill_bytes, ..written })
    }
}

/// The table that is written.
struct Lines {
    table: TableWriter,
    ids: IdColumn,
    counts: Vec<u64>,
}

impl Lines {
    fn push(&mut self, row: u64, id: &[u8], count: u64) -> Result<()> {
        self.ids.push(row, id);
        self.counts.push(count);
        if self.ids.is_full() { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        let counts = UInt64Array::from(std::mem::take(&mut self.counts));
        self.table.write(vec![self.ids.take(), Arc::new(counts)])
    }

    fn finish(mut self) -> Result<Written> {
        self.write()?;
        self.table.finish()
    }
}
