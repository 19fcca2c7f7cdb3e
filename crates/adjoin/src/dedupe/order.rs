//! The place of each row in an order by columns.

use adjoin_device::Reservation;

use super::{BATCH_ROWS, SORTING_SHARE, Tables};
use crate::error::Result;
use crate::row_numbers::{ROW_BYTES, RowNumbers};
use crate::source::ColumnPlace;
use crate::sql::OrderBy;

/// Places of all rows: those of equal keys follow each other as in the source.
///
/// # Errors
/// Where a file has no such columns, or memory does not hold a number for each row.
pub(super) fn places(tables: &Tables<'_>, order: &OrderBy) -> Result<(RowNumbers, Reservation)> {
    let bytes = RowNumbers::memory_bytes(tables.rows);
    let memory = tables.context.reserve(bytes, "the order of the rows")?;
    let mut places = RowNumbers::new(tables.rows, |row| row);
    let (mut sorter, _sorting) = tables.sorter(SORTING_SHARE)?;
    let mut record = Vec::new();
    tables.each_key("order", order, |row, key, _| {
        // The first ten bytes are the key that is compared first; the row ends what is compared last.
        let (mut first, rest) = ([0; 2 * ROW_BYTES], key.get(2 * ROW_BYTES..).unwrap_or_default());
        let taken = key.len().min(2 * ROW_BYTES);
        first[..taken].copy_from_slice(&key[..taken]);
        record.clear();
        record.extend_from_slice(rest);
        record.extend_from_slice(&row.to_be_bytes());
        sorter.push((number(&first[..ROW_BYTES]), number(&first[ROW_BYTES..])), &record)
    })?;
    let mut sorted = sorter.finish()?;
    let mut place = 0;
    while sorted.next(&mut record)?.is_some() {
        let row = record.last_chunk().map_or(0, |row| u64::from_be_bytes(*row));
        places.set(row, place);
        place += 1;
    }
    Ok((places, memory))
}

/// Bytes as a number that sorts as they do.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Tables<'_> {
    /// Hands over the key of every row by some expressions, and whether its first value is null.
    pub(super) fn each_key(
        &self,
        phase: &str,
        order: &OrderBy,
        mut take: impl FnMut(u64, &[u8], bool) -> Result<()>,
    ) -> Result<()> {
        self.context.progress.begin(phase, "rows", self.rows);
        for file in &self.files {
            let bound = order.bind(&*file.schema(self.context)?)?;
            let mut row = file.first_row;
            let places: Vec<ColumnPlace> = bound.places.iter().copied().map(ColumnPlace::top).collect();
            for table in file.tables(self.context, &places, BATCH_ROWS)? {
                self.context.cancel.check()?;
                let table = table?;
                let keys = bound.keys(&table)?;
                for k in 0..table.num_rows() {
                    take(row, keys.of(k), keys.is_null(k))?;
                    row += 1;
                }
                self.context.progress.advance(row);
            }
            file.check_rows(row - file.first_row)?;
        }
        Ok(())
    }
}
