//! Counts the neighbors of each row, to find outliers and to choose a threshold.

use std::sync::Arc;

use arrow_array::UInt64Array;
use arrow_schema::{DataType, Field};

use super::row_ids::{IdColumn, RowIds, Rows, SinkNeeds};
use super::sink::{PairBatch, PairSink, Written};
use super::table::TableWriter;
use super::tally::Tally;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::options::format_number;
use crate::base::output::Target;
use crate::load::Sets;

/// Counts the pairs of each row. If there are two sets, only rows of the first set are counted. If a set has grown,
/// only its new rows are counted. The table has the columns `id` and `count`, and a line for every counted row that
/// passes the filter, in the order of rows.
pub struct Counts<'a> {
    rows: Rows<'a>,
    tally: Tally,
    /// Whether only left rows are counted, because right rows are of another set.
    left_only: bool,
    /// First row to count. The counter of a row is at the row's number minus this number.
    first: u64,
    lines: Option<Lines>,
}

impl<'a> Counts<'a> {
    /// Creates the sink. Without a target, it only reports the summary. It reserves its memory before the join is
    /// planned, and leaves at least `join_bytes` bytes for the join.
    ///
    /// # Errors
    /// If memory does not suffice, or the table cannot be created ([`super::PairWriter::create`]).
    pub fn create(
        context: &'a Context,
        sets: impl Into<Sets<'a>>,
        target: Option<&Target>,
        join_bytes: u64,
    ) -> Result<Self> {
        let sets = sets.into();
        let told_of = Sets::from(sets.results_of());
        let (end, is_grown) = (Rows::end(told_of), sets.have_grown());
        // After the join, the overflows of the counts are sorted, and also the ids, if there are any.
        let sorters_after = if Rows::are_numbers(told_of) || target.is_none() { 1 } else { 2 };
        let purpose = "counting neighbors";
        let needs = SinkNeeds { bytes: end, sorters_during: 1, sorters_after, join_bytes, purpose };
        let column = Field::new("count", DataType::UInt64, false);
        let (rows, table) = Rows::with_table(context, told_of, target, needs, column)?;
        let lines = table.map(|table| Lines { table, ids: IdColumn::new(rows.ids()), counts: Vec::new() });
        let left_only = sets.other().is_some() && !is_grown;
        let first = if is_grown { Rows::end(sets.left()) } else { 0 };
        Ok(Self { tally: Tally::new(end, rows.sorter()), left_only, first, rows, lines })
    }
}

impl PairSink for Counts<'_> {
    fn wants_ids(&self) -> bool {
        false
    }

    fn tally(&self) -> Option<&Tally> {
        Some(&self.tally).filter(|_| self.first == 0) // threads that count directly would count old rows too
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        let right = if self.left_only { &[][..] } else { &batch.right_rows };
        let mut rows = batch.left_rows.iter().chain(right).filter_map(|row| row.checked_sub(self.first));
        rows.try_for_each(|row| self.tally.add(row, 1))
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Self { rows, tally, first, mut lines, .. } = *self;
        let mut counts = tally.finish()?;
        // If only the summary is needed, ids are not read.
        let mut named = if lines.is_some() { rows.sorted()? } else { RowIds::numbers(counts.rows()) };
        let (mut id, mut with, mut most) = (Vec::new(), 0u64, 0);
        while let Some(row) = named.next(&mut id)? {
            let count = counts.of(row)?;
            with += u64::from(count > 0);
            most = count.max(most);
            lines.as_mut().map_or(Ok(()), |lines| lines.push(first + row, &id, count))?;
        }
        let [with, all, most] = [with, rows.covered_rows(), most].map(format_number);
        rows.context.progress.note(&format!("{with} of {all} rows have neighbors, at most {most} per row"));
        let spill_bytes = counts.spilled() + named.spilled();
        let written = lines.map_or(Ok(Written::default()), Lines::finish)?;
        Ok(Written { spill_bytes, ..written })
    }
}

/// The table being written.
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
