//! Collects selected rows during a scan of a source.

use std::iter::Peekable;
use std::vec::IntoIter;

use super::centers::TrainingSample;
use super::intake::UsableRows;
use super::partitions::Partitions;
use crate::base::error::Result;

/// Collector of selected rows during a scan. Row numbers count usable rows only, from 0.
pub(crate) struct Draw {
    picked: Peekable<IntoIter<u64>>,
    records: Partitions,
    drawn: u64,
    seen: u64,
}

impl Draw {
    /// Creates a collector of the rows `picked`, which ascend. It stores them in the first partition of `records`.
    pub(crate) fn new(picked: Vec<u64>, records: Partitions) -> Self {
        Self { picked: picked.into_iter().peekable(), records, drawn: 0, seen: 0 }
    }

    /// Collects the selected rows of the next batch of the scan.
    ///
    /// # Errors
    /// Fails if the rows do not fit in memory and cannot be written to disk.
    pub(crate) fn take(&mut self, usable: &UsableRows) -> Result<()> {
        let end = self.seen + usable.rows.len() as u64;
        let bytes = usable.stored.len() / usable.rows.len().max(1);
        while let Some(row) = self.picked.next_if(|&row| row < end) {
            let at = (row - self.seen) as usize * bytes;
            self.records.push(0, &[&usable.stored[at..at + bytes]])?;
            self.drawn += 1;
        }
        self.seen = end;
        Ok(())
    }

    /// Returns the collected rows.
    ///
    /// # Errors
    /// Fails as [`Draw::take`] does.
    pub(crate) fn finish(self) -> Result<TrainingSample> {
        Ok(TrainingSample { records: self.records.finish()?, rows: self.drawn })
    }
}
