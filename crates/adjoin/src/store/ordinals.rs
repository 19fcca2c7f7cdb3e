//! The places of rows among those of their center, where a column decides about them.

use std::path::Path;

use adjoin_device::Reservation;
use arrow_row::{RowConverter, SortField};
use arrow_schema::SortOptions;

use super::buckets::{Record, Tally};
use super::partitions::Records;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::message::{Argument, message};
use crate::options::VectorType;
use crate::row_numbers::RowNumbers;
use crate::sorter::{SORTER_BYTES_MIN, Sorter};
use crate::source::{Attributes, VectorSource, slice_bytes};

/// More memory would not sort faster.
const SORTER_BYTES_MAX: u64 = 64 << 20;
/// Copies of a batch of the column: its values, and the keys that they become.
const BATCH_COPIES: u64 = 4;
/// Bytes granted for these, where a row is not larger.
const BATCH_BYTES: u64 = 1 << 20;
/// What a row has that no center has; they are of fewer bits.
const NO_CENTER: u64 = 1 << u32::BITS;
/// What memory is for, as a refusal says it.
const PURPOSE: &str = "sorting rows by a column";

/// For each row of a source where it lies among the rows of its center.
pub(super) struct Ordinals {
    of: RowNumbers,
    /// Bytes that went to disk while they were found.
    pub(super) spilled: u64,
    _memory: Reservation,
}

/// The column of a source that rows are sorted by.
///
/// # Errors
/// Where there is no such column, or its values have no order.
pub(super) fn sort_column<'a>(context: &Context, source: &'a dyn VectorSource, name: &str) -> Result<Attributes<'a>> {
    let whose = message!["values of ", Argument::SortBy];
    Attributes::of(context, source, (&[name.to_owned()], &whose))
}

impl Ordinals {
    /// Bytes that those of so many rows take.
    pub(super) fn memory_bytes(rows: u64) -> u64 {
        RowNumbers::memory_bytes(rows)
    }

    /// Bytes that finding them takes beside that, for so many centers; the sorter, and what the source holds, apart.
    pub(super) fn finding_bytes(centers: usize) -> u64 {
        BATCH_COPIES * BATCH_BYTES + (centers * size_of::<u64>()) as u64
    }

    /// Bytes of the sorter where so many are free.
    pub(super) fn sorter_bytes(free: u64) -> u64 {
        free.clamp(SORTER_BYTES_MIN, SORTER_BYTES_MAX)
    }

    /// Of the rows of a source that are records, by the values of a column, ascending, nulls last; of equal values the earlier row
    /// comes first.
    ///
    /// # Errors
    /// Where the source cannot be read or has changed, the disk refuses, or memory does not suffice.
    pub(super) fn by(
        (context, temporary): (&Context, &Path),
        (column, source_rows): (&Attributes<'_>, u64),
        (records, vectors): (&Records, VectorType),
        (tallies, sorter_bytes): (&[Tally], u64),
    ) -> Result<Self> {
        let memory = context.reserve(Self::memory_bytes(source_rows), PURPOSE)?;
        let mut of = RowNumbers::new(source_rows, |_| NO_CENTER);
        for partition in 0..records.count() {
            context.cancel.check()?;
            records.read(partition, |records| {
                Record::each(records, vectors, |record| of.set(record.row, record.center.into()));
                Ok(())
            })?;
        }
        let mut counts = vec![0; tallies.len()];
        let _finding = context.reserve(size_of_val(&counts[..]) as u64 + sorter_bytes, PURPOSE)?;
        let mut sorter = Sorter::new(context, temporary, sorter_bytes);
        each_key(context, column, source_rows, |row, key| match row < source_rows && of.get(row) != NO_CENTER {
            true => sorter.push_row(key, row),
            false => Ok(()),
        })?;
        let (mut sorted, mut payload) = (sorter.finish()?, Vec::new());
        while let Some(row) = sorted.next_row(&mut payload)? {
            let count: &mut u64 = &mut counts[of.get(row) as usize];
            of.set(row, *count);
            *count += 1;
        }
        // Else two rows would come to lie at one place.
        if counts.iter().zip(tallies).any(|(&count, tally)| count != tally.rows) {
            return Err(Error::input("the source changed while it was read; build again when nobody writes to it"));
        }
        Ok(Self { of, spilled: sorted.spilled(), _memory: memory })
    }

    /// Where a row lies among those of its center.
    pub(super) fn of(&self, row: u64) -> u64 {
        self.of.get(row)
    }
}

/// Hands over every row with bytes that sort as its value should.
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
