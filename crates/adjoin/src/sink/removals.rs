//! Chooses rows to remove, for a caller that processes them further, such as `dedupe`.

use std::sync::{Arc, Mutex, PoisonError};

use adjoin_device::{Reservation, WRITE_BUFFER_BYTES};

use super::keep::{decide, largest_cluster};
use super::row_ids::{Rows, SinkNeeds};
use super::sink::{PairBatch, PairSink, Written};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::row_numbers::{ROW_BYTES, RowNumbers, RowSet, packed, unpacked};
use crate::base::sorter::{Sorted, Sorter};
use crate::store::Store;

/// Chooses rows to remove by the greedy rule of [`super::Keep`]. Rows can be visited in any order.
#[derive(Clone)]
pub struct Removals {
    /// Position of each row in the order. `None` for the order of row numbers.
    pub(crate) places: Option<Arc<RowNumbers>>,
    /// Number of rows, at the first positions of the order, that are never removed.
    never_removed: u64,
    decided: Arc<Mutex<Option<RemovedRows>>>,
}

/// Rows to remove.
pub struct RemovedRows {
    /// The set of these rows.
    pub(crate) gone: RowSet,
    /// Each removed row with its nearest kept row. The payload is the value of the pair, as f32.
    pub(crate) pairs: Sorted,
    pub(crate) _memory: Reservation,
}

impl Removals {
    /// Creates an empty result.
    pub fn new(places: Option<Arc<RowNumbers>>) -> Self {
        Self { places, never_removed: 0, decided: Arc::default() }
    }

    /// Never removes the rows at the first `rows` positions.
    pub(crate) fn never_removing(self, rows: u64) -> Self {
        Self { never_removed: rows, ..self }
    }

    /// Takes the rows to remove. Returns `None` until the join has ended.
    pub fn take(&self) -> Option<RemovedRows> {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Creates the sink that chooses the rows. It reserves its memory before the join is planned.
    pub(crate) fn sink<'a>(&self, context: &'a Context, store: &'a Store, join_bytes: u64) -> Result<Deciding<'a>> {
        let bytes = 2 * RowSet::memory_bytes(Rows::end(store)) + WRITE_BUFFER_BYTES as u64;
        let purpose = "choosing rows to remove";
        let needs = SinkNeeds { bytes, sorters_during: 1, sorters_after: 2, join_bytes, purpose };
        let rows = Rows::reserve(context, store, [None, None], needs)?;
        let pairs = Box::new(rows.sorter());
        Ok(Deciding { asked: self.clone(), rows, pairs })
    }
}

/// Sink that collects pairs. When all pairs have arrived, it chooses the rows to remove.
pub(crate) struct Deciding<'a> {
    asked: Removals,
    rows: Rows<'a>,
    pairs: Box<Sorter>,
}

impl Deciding<'_> {
    fn place(&self, row: u64) -> u64 {
        self.asked.places.as_ref().map_or(row, |places| places.get(row))
    }
}

impl PairSink for Deciding<'_> {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        for ((&left, &right), value) in batch.left_rows.iter().zip(&batch.right_rows).zip(&batch.values) {
            let (a, b) = ((self.place(left), left), (self.place(right), right));
            // The row of a pair that is later in the requested order may be removed, even if its number is smaller.
            let (earlier, later) = if a.0 < b.0 { (a, b) } else { (b, a) };
            if later.0 < self.asked.never_removed {
                continue;
            }
            // The sort keys are positions in the order, so the row numbers are in the payload.
            let mut record = [0; size_of::<f32>() + 2 * ROW_BYTES];
            record[..4].copy_from_slice(&value.to_le_bytes());
            record[4..][..ROW_BYTES].copy_from_slice(&packed(later.1));
            record[4 + ROW_BYTES..].copy_from_slice(&packed(earlier.1));
            self.pairs.push((later.0, earlier.0), &record)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        let Self { asked, rows, pairs } = *self;
        let end = Rows::end(rows.store);
        let (mut pairs, mut by_row) = (pairs.finish()?, rows.sorter());
        // `places_gone` contains positions in the order, `gone` contains row numbers.
        let (mut places_gone, mut gone) = (RowSet::new(end), RowSet::new(end));
        decide(&mut pairs, rows.store.manifest().metric, &mut places_gone, |_, record| {
            let (value, both) = record.split_at(size_of::<f32>());
            let (row, near) = (unpacked(&both[..ROW_BYTES]), unpacked(&both[ROW_BYTES..]));
            gone.insert(row);
            by_row.push((row, near), value)
        })?;
        let spilled = pairs.spilled();
        drop((pairs, places_gone));
        let mut by_row = by_row.finish()?;
        let (mut by_kept, mut payload) = (rows.sorter(), Vec::new());
        while let Some((row, near)) = by_row.next(&mut payload)? {
            by_kept.push((near, row), &[])?;
        }
        by_row.restart();
        let mut by_kept = by_kept.finish()?;
        let largest = largest_cluster(&mut by_kept)?;
        let spill_bytes = spilled + by_row.spilled() + by_kept.spilled();
        drop(by_kept);
        let written = Written { rows: gone.len(), spill_bytes, largest_cluster: Some(largest), ..Written::default() };
        written.cluster_warning(rows.covered_rows()).iter().for_each(|warning| rows.context.progress.note(warning));
        let decided = RemovedRows { gone, pairs: by_row, _memory: rows.into_memory() };
        *asked.decided.lock().unwrap_or_else(PoisonError::into_inner) = Some(decided);
        Ok(written)
    }
}
