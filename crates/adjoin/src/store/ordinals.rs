//! Ranks the rows of each center by the values of a column.

use std::path::Path;

use adjoin_device::Reservation;
use arrow_row::{RowConverter, SortField};
use arrow_schema::SortOptions;

use super::held::AssignedRows;
use super::records::{Record, Tally};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::VectorType;
use crate::base::row_numbers::RowNumbers;
use crate::base::sorter::{SORTER_BYTES_MIN, Sorter};
use crate::source::{Attributes, VectorSource, slice_bytes};

/// Maximum memory of the sorter, in bytes. More memory would not make sorting faster.
const SORTER_BYTES_MAX: u64 = 64 << 20;
/// Number of copies of a batch of the column in memory: the values, and the sort keys derived from them.
const BATCH_COPIES: u64 = 4;
/// Bytes reserved for a batch. A batch is larger only if it is a single large row.
const BATCH_BYTES: u64 = 1 << 20;
/// Marks rows that have no center. It is larger than any center number.
const NO_CENTER: u64 = 1 << u32::BITS;
/// Purpose of the memory, for messages.
const PURPOSE: &str = "sorting rows by a column";

/// Ranks of the rows of a source: each row's rank among the rows of its center.
pub(super) struct Ordinals {
    of: RowNumbers,
    /// Bytes written to disk while the ranks were computed.
    pub(super) spilled: u64,
    _memory: Reservation,
}

/// Opens the column of a source by whose values the rows are sorted.
///
/// # Errors
/// Fails if the column does not exist or its values have no order.
pub(super) fn sort_column<'a>(context: &Context, source: &'a dyn VectorSource, name: &str) -> Result<Attributes<'a>> {
    let whose = message!["values of ", Argument::SortBy];
    Attributes::of(context, source, &[name.to_owned()], &whose)
}

/// Rows of a source to rank by a column.
pub(super) struct RowsToRank<'a> {
    pub(super) column: &'a Attributes<'a>,
    pub(super) source_rows: u64,
    /// The rows to rank, with the tallies of their centers.
    pub(super) rows: &'a AssignedRows,
    pub(super) vectors: VectorType,
    pub(super) tallies: &'a [Tally],
}

impl Ordinals {
    /// Returns the bytes that the ranks of `rows` rows take.
    pub(super) fn memory_bytes(rows: u64) -> u64 {
        RowNumbers::memory_bytes(rows)
    }

    /// Returns the bytes that the computation takes in addition to the ranks, for `centers` centers. The sorter and
    /// the source are not included.
    pub(super) fn finding_bytes(centers: usize) -> u64 {
        BATCH_COPIES * BATCH_BYTES + (centers * size_of::<u64>()) as u64
    }

    /// Returns the size of the sorter, in bytes, if `free` bytes of memory are free.
    pub(super) fn sorter_bytes(free: u64) -> u64 {
        free.clamp(SORTER_BYTES_MIN, SORTER_BYTES_MAX)
    }

    /// Ranks rows by the values of a column: ascending, nulls last, equal values in row order. The sorter uses
    /// `sorter_bytes` bytes of memory and writes the rest to the folder `temporary`.
    ///
    /// # Errors
    /// Fails if the source cannot be read or has changed, if a file cannot be written, or if memory does not suffice.
    pub(super) fn by(context: &Context, temporary: &Path, rows: &RowsToRank<'_>, sorter_bytes: u64) -> Result<Self> {
        let &RowsToRank { column, source_rows, vectors, tallies, .. } = rows;
        let memory = context.reserve(Self::memory_bytes(source_rows), PURPOSE)?;
        // One array has two uses: it first holds the center of each row, later its rank. So a row takes 5 bytes
        // instead of 10.
        let mut of = RowNumbers::new(source_rows, |_| NO_CENTER);
        match rows.rows {
            AssignedRows::Grouped(rows) => rows.each_center(|row, center| of.set(row, center.into())),
            rows => rows.read(0..rows.partitions(), |records| {
                context.cancel.check()?;
                Record::each(records, vectors, |record| of.set(record.row, record.center.into()));
                Ok(())
            })?,
        }
        let mut counts = vec![0; tallies.len()];
        let _finding = context.reserve(size_of_val(&counts[..]) as u64 + sorter_bytes, PURPOSE)?;
        let mut sorter = Sorter::new(context, temporary, sorter_bytes);
        // Rows without a center were skipped by the build, but the column has values for them, too.
        each_key(context, column, source_rows, |row, key| match row < source_rows && of.get(row) != NO_CENTER {
            true => sorter.push_row(key, row),
            false => Ok(()),
        })?;
        let (mut sorted, mut payload) = (sorter.finish()?, Vec::new());
        // Rows arrive in the order of the column, so counting them per center gives their ranks.
        while let Some(row) = sorted.next_row(&mut payload)? {
            let count: &mut u64 = &mut counts[of.get(row) as usize];
            of.set(row, *count);
            *count += 1;
        }
        // If the counts differ, two rows could be assigned to the same position.
        if counts.iter().zip(tallies).any(|(&count, tally)| count != tally.rows) {
            return Err(Error::input("the source changed while it was read; build again when nothing writes to it"));
        }
        Ok(Self { of, spilled: sorted.spilled(), _memory: memory })
    }

    /// Returns the rank of a row within its center.
    pub(super) fn of(&self, row: u64) -> u64 {
        self.of.get(row)
    }
}

/// Calls `take` with each row and a sort key: bytes whose order is the order of the values.
fn each_key(
    context: &Context,
    column: &Attributes<'_>,
    rows: u64,
    mut take: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let failed = |error: arrow_schema::ArrowError| Error::input(format!("cannot sort rows by that column: {error}"));
    let kind = column.schema().field(0).data_type().clone();
    let options = SortOptions { descending: false, nulls_first: false };
    let converter = RowConverter::new(vec![SortField::new_with_options(kind, options)]).map_err(failed)?;
    context.progress.begin("sort", "rows", rows);
    for table in column.tables(context)? {
        context.cancel.check()?;
        let (first, table) = table?;
        let _of_keys = context.reserve(BATCH_COPIES * slice_bytes(&table), PURPOSE)?;
        let keys = converter.convert_columns(table.columns()).map_err(failed)?;
        (first..).zip(&keys).try_for_each(|(row, key)| take(row, key.data()))?;
        context.progress.advance(first + table.num_rows() as u64);
    }
    Ok(())
}
