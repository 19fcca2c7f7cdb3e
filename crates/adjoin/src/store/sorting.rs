//! Puts rows into the partitions of their centers, while a source is scanned.

use std::sync::Mutex;

use crossbeam_channel::bounded;
use zerocopy::IntoBytes;

use super::assign::{Nearest, TwoLevel};
use super::checkpoint::BuildCheckpoint;
use super::intake::{Intake, Scanned, UsableRows};
use super::partitions::Partitions;
use super::records::{RecordHead, Tally, id_bytes};
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space};
use crate::base::mutex::lock;
use crate::base::workers::spawn_scoped;

/// Rows that are being put into the partitions of their centers.
pub(super) struct Sorting<'a> {
    pub(super) records: Partitions,
    /// Tallies by center. Their radii are in coordinates until [`Self::measure`] converts them.
    pub(super) tallies: Vec<Tally>,
    pub(super) partition_of_center: Vec<usize>,
    /// Checkpoints from which another run can continue, if requested.
    pub(super) kept: Option<&'a Mutex<BuildCheckpoint>>,
    pub(super) distances_a_row: u64,
}

impl Sorting<'_> {
    /// Scans the rows of a source that no checkpoint covers, and adds each row to the partition of its center. Before
    /// that, rows are passed to `look`, which may change their numbers or centers.
    ///
    /// # Errors
    /// Fails if the source cannot be read or has a bad row that must not be skipped, if a file cannot be written, if
    /// the work is canceled, or if `look` fails.
    pub(super) fn scan<T: Coordinate>(
        &mut self,
        intake: &Intake<'_>,
        levels: &TwoLevel<T>,
        space: Space<'_>,
        mut look: impl FnMut(&mut UsableRows, &mut [Nearest<T::Distance>]) -> Result<()>,
    ) -> Result<Scanned> {
        let (first, _) = self.done_before();
        let (send, receive) = bounded::<(UsableRows, Vec<Nearest<T::Distance>>)>(1);
        std::thread::scope(|scope| {
            // A second thread adds rows to partitions, while this thread compares the next rows with centers.
            let sorter = spawn_scoped(scope, "adjoin sorter", move || {
                receive.iter().try_for_each(|(usable, nearest)| self.add::<T>(&usable, &nearest, space))
            })?;
            let scanned = intake.scan(|mut usable| {
                // A resumed build reads the source from its first row. Rows before `first` are skipped, since the
                // checkpoint has them.
                let before = usable.rows.partition_point(|&row| row < first);
                let mut usable = if before == 0 { usable } else { usable.split_off(before) };
                let mut nearest = levels.nearest(intake.context, space, &usable.stored)?;
                look(&mut usable, &mut nearest)?;
                // Sending fails only if the sorter has failed. Its error is reported below.
                let sent = send.send((usable, nearest));
                sent.map_err(|_| Error::input("rows can no longer be sorted"))
            });
            drop(send);
            let sorted = sorter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // The sorter's error takes precedence: if the sorter failed, the scan failed only because it could not
            // send.
            sorted.and(scanned)
        })
    }

    /// Converts the radii to lengths of stored vectors. Must be called after all rows were added.
    pub(super) fn measure(&mut self, space: Space<'_>) {
        self.tallies.iter_mut().for_each(|tally| tally.radius = space.stored_length(tally.radius));
    }

    /// Returns the number of the first row that is not in a checkpoint, and whether the checkpoint has all rows.
    pub(super) fn done_before(&self) -> (u64, bool) {
        let before = self.kept.and_then(|kept| lock(kept).kept.state().rows.clone());
        before.map_or((0, false), |rows| (rows.next_row, rows.are_all))
    }

    /// Writes a checkpoint of the rows before `next_row`, if checkpoints were requested.
    pub(super) fn keep(&mut self, next_row: u64, are_all: bool) -> Result<()> {
        let Some(kept) = self.kept else { return Ok(()) };
        lock(kept).keep_rows(&mut self.records, &self.tallies, next_row, self.distances_a_row, are_all)
    }

    fn add<T: Coordinate>(
        &mut self,
        usable: &UsableRows,
        nearest: &[Nearest<T::Distance>],
        space: Space<'_>,
    ) -> Result<()> {
        let mut id = Vec::new();
        for (k, (nearest, vector)) in nearest.iter().zip(usable.stored.chunks_exact(space.vectors.bytes())).enumerate()
        {
            id_bytes(&usable.ids, k, &mut id);
            self.tallies[nearest.center as usize].count::<T>(*nearest, id.len() as u64, space);
            let head = RecordHead::new(nearest.center, usable.rows[k], &id);
            self.records.push(self.partition_of_center[nearest.center as usize], &[head.as_bytes(), vector, &id])?;
        }
        let next_row = usable.rows.last().map_or(0, |row| row + 1);
        if next_row > 0 && self.kept.is_some_and(|kept| lock(kept).is_due(next_row)) {
            self.keep(next_row, false)?;
        }
        Ok(())
    }
}
