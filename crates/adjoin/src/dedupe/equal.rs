//! Rows that say the same: found by hashes of 128 bits, before anything is compared.

use std::sync::Arc;

use adjoin_device::Reservation;
use xxhash_rust::xxh3::xxh3_128;

use super::order::number;
use super::{SORTING_SHARE, Tables};
use crate::error::Result;
use crate::row_numbers::{ROW_BYTES, RowNumbers, RowSet};
use crate::sink::Sorted;
use crate::sql::OrderBy;

/// Rows that go since another says the same.
pub(super) struct Equal {
    pub(super) gone: Arc<RowSet>,
    /// Each by the row that stays for it.
    pub(super) by_kept: Sorted,
    _memory: [Reservation; 2],
}

/// Finds rows with equal texts; of each such the first stays, by its place in the order. Rows without a text are equal to
/// none.
///
/// # Errors
/// Where a file has no such column, or memory does not suffice.
pub(super) fn rows(tables: &Tables<'_>, text: &OrderBy, places: Option<&RowNumbers>) -> Result<Equal> {
    let set_memory = tables.context.reserve(RowSet::memory_bytes(tables.rows), "rows with equal texts")?;
    let (mut sorter, _sorting) = tables.sorter(SORTING_SHARE)?;
    tables.each_key("texts", text, |row, key, is_null| {
        if is_null {
            return Ok(());
        }
        let hash = xxh3_128(key).to_be_bytes();
        let (first, rest) = hash.split_at(2 * ROW_BYTES);
        let place = places.map_or(row, |places| places.get(row));
        let record = [rest, &place.to_be_bytes(), &row.to_be_bytes()].concat();
        sorter.push((number(&first[..ROW_BYTES]), number(&first[ROW_BYTES..])), &record)
    })?;
    let mut sorted = sorter.finish()?;
    let mut gone = RowSet::new(tables.rows);
    let (mut by_kept, memory) = tables.sorter(2 * SORTING_SHARE)?;
    let (mut kept, mut record) = (None, Vec::new());
    while let Some(key) = sorted.next(&mut record)? {
        let (text, row) = ((key, record[..6].to_vec()), number(&record[record.len() - 8..]));
        match &kept {
            Some((kept_text, kept)) if *kept_text == text => {
                gone.insert(row);
                by_kept.push((*kept, row), &[])?;
            }
            _ => kept = Some((text, row)),
        }
    }
    Ok(Equal { gone: Arc::new(gone), by_kept: by_kept.finish()?, _memory: [set_memory, memory] })
}
