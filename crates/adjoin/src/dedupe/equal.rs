//! Finds rows with equal texts by 128-bit hashes, before vectors are compared.

use std::sync::Arc;

use adjoin_device::Reservation;
use xxhash_rust::xxh3::xxh3_128;

use super::decisions::Decisions;
use super::{SORTING_SHARE, Tables};
use crate::base::error::Result;
use crate::base::options::format_count;
use crate::base::output::Target;
use crate::base::row_numbers::{ROW_BYTES, RowNumbers, RowSet};
use crate::base::sorter::{Sorted, number};
use crate::source::SourceOptions;
use crate::sql::OrderBy;

/// Bytes of a hash that are not part of a record's sort key.
const HASH_REST_BYTES: usize = 16 - 2 * ROW_BYTES;

/// Hashes bytes. Returns the part of the hash that is the sort key of a record, and the rest.
fn hashed(bytes: &[u8]) -> ((u64, u64), [u8; HASH_REST_BYTES]) {
    // The bytes are big-endian, so that sorting by the parts sorts by the hash.
    let hash = xxh3_128(bytes).to_be_bytes();
    let (first, rest) = hash.split_at(2 * ROW_BYTES);
    let first = (number(&first[..ROW_BYTES]), number(&first[ROW_BYTES..]));
    (first, rest.try_into().expect("the rest of a hash has a fixed length"))
}

/// Rows to remove because an earlier row has an equal text.
pub(super) struct Equal {
    pub(super) gone: Arc<RowSet>,
    /// Removed rows, each with the row kept for it, sorted by the kept row.
    pub(super) by_kept: Sorted,
    _memory: [Reservation; 2],
}

/// Finds rows with equal texts. The first row of each group in the order is kept. Rows without a text are not equal
/// to any row. Rows that `decisions` keep are kept, and rows that `decisions` remove are not compared.
///
/// # Errors
/// If a file has no such column, or memory does not suffice.
pub(super) fn rows(
    tables: &Tables<'_>,
    text: &OrderBy,
    places: Option<&RowNumbers>,
    decisions: Option<&Decisions>,
) -> Result<Equal> {
    let set_memory = tables.context.reserve(RowSet::memory_bytes(tables.rows), "rows with equal texts")?;
    let (mut sorter, _sorting) = tables.sorter(SORTING_SHARE)?;
    tables.each_key("texts", text, |row, key, is_null| {
        // Rows without a text are not compared. A row that is removed by decision is not either, since it cannot be
        // the row that is kept for others.
        if is_null || decisions.is_some_and(|decisions| decisions.removed.contains(row)) {
            return Ok(());
        }
        let (first, rest) = hashed(key);
        // Within a group, rows are sorted by position, so the first row in the requested order is first.
        let place = places.map_or(row, |places| places.get(row));
        sorter.push(first, &[&rest[..], &place.to_be_bytes(), &row.to_be_bytes()].concat())
    })?;
    let mut sorted = sorter.finish()?;
    let mut gone = RowSet::new(tables.rows);
    // This sorter gets half as much memory as the first one, since both exist at the same time.
    let (mut by_kept, memory) = tables.sorter(2 * SORTING_SHARE)?;
    let (mut kept, mut record) = (None, Vec::new());
    while let Some(key) = sorted.next(&mut record)? {
        let (text, row) = ((key, record[..HASH_REST_BYTES].to_vec()), number(&record[record.len() - 8..]));
        match &kept {
            Some((kept_text, kept)) if *kept_text == text => {
                if decisions.is_some_and(|decisions| decisions.kept.contains(row)) {
                    continue;
                }
                gone.insert(row);
                by_kept.push((*kept, row), &[])?;
            }
            _ => kept = Some((text, row)),
        }
    }
    Ok(Equal { gone: Arc::new(gone), by_kept: by_kept.finish()?, _memory: [set_memory, memory] })
}

impl Tables<'_> {
    /// Counts the rows whose id occurs in an earlier row. If there are any, prints a note, since the list in `target`
    /// cannot distinguish such rows.
    ///
    /// # Errors
    /// If ids cannot be read, or memory or disk space does not suffice.
    pub(super) fn note_duplicate_ids(&self, options: &SourceOptions, target: &Target) -> Result<u64> {
        let (mut sorter, _memory) = self.sorter(SORTING_SHARE)?;
        self.each_id(options, |_, id| {
            let (first, rest) = hashed(id);
            sorter.push(first, &rest)
        })?;
        let (mut sorted, mut before, mut record, mut count) = (sorter.finish()?, None, Vec::new(), 0);
        while let Some(first) = sorted.next(&mut record)? {
            let id = Some((first, record.clone()));
            count += u64::from(id == before);
            before = id;
        }
        if let (1.., Some(path)) = (count, target.path()) {
            self.context.progress.note(&format!(
                "{}: {} with the id of an earlier row, so ids do not identify the removed rows; give each row its own \
                 id",
                path.display(),
                format_count(count, "row")
            ));
        }
        Ok(count)
    }
}
