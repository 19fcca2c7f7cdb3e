//! Rows with equal texts, found by 128-bit hashes before any vectors are compared.

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

/// Hashes some bytes; returns the part used as a record's sort key, and the rest.
fn hashed(bytes: &[u8]) -> ((u64, u64), [u8; HASH_REST_BYTES]) {
    // Big-endian, so that the numeric order of the parts is the order of the hash.
    let hash = xxh3_128(bytes).to_be_bytes();
    let (first, rest) = hash.split_at(2 * ROW_BYTES);
    let first = (number(&first[..ROW_BYTES]), number(&first[ROW_BYTES..]));
    (first, rest.try_into().expect("the rest of a hash has a fixed length"))
}

/// Rows to remove because an earlier row has an equal text.
pub(super) struct Equal {
    pub(super) gone: Arc<RowSet>,
    /// Removed rows, sorted by the row kept for each.
    pub(super) by_kept: Sorted,
    _memory: [Reservation; 2],
}

/// Finds rows with equal texts. Of each group, the first row in the order is kept. Rows without a text are never equal.
/// Rows that `decisions` mark to be kept are kept, and rows marked to be removed are not compared.
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
        // Rows without a text say nothing about each other, and a row that is removed anyway is kept for no other.
        if is_null || decisions.is_some_and(|decisions| decisions.removed.contains(row)) {
            return Ok(());
        }
        let (first, rest) = hashed(key);
        // The place sorts rows of equal text, so the first in the requested order leads its group.
        let place = places.map_or(row, |places| places.get(row));
        sorter.push(first, &[&rest[..], &place.to_be_bytes(), &row.to_be_bytes()].concat())
    })?;
    let mut sorted = sorter.finish()?;
    let mut gone = RowSet::new(tables.rows);
    // Half of the first sorter's share, since both exist at the same time.
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
    /// Counts the rows whose id occurs in an earlier row, and notes it, since the list in `target` cannot distinguish
    /// them.
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
