//! Rows of a source in memory, from the first scan until the buckets are written. A build that holds them reads the
//! source once.

use std::ops::Range;

use adjoin_device::Reservation;

use super::assign::Nearest;
use super::intake::UsableRows;
use super::partitions::Records;
use super::records::Tally;
use super::shuffle::ShuffledRows;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space};
use crate::source::{IdKind, Ids, SourceInfo};

/// Returns the centers of some rows, for the numbers of the rows and their stored vectors, end to end.
pub(super) type AssignRows<'a, D> = dyn Fn(&[u64], &[u8]) -> Result<Vec<Nearest<D>>> + 'a;

/// Rows that are compared with the centers in one step. The results of a step are in memory at once.
const STEP_ROWS: usize = 1 << 16;
/// Copies of a step's results: by chunk, and concatenated.
const STEP_COPIES: usize = 2;
/// Purpose of the memory, for messages.
const PURPOSE: &str = "the build";

/// All usable rows of a source, in order.
pub(super) struct HeldRows {
    rows: UsableRows,
    memory: Reservation,
    /// Bytes of the reservation without the texts of ids, whose length is unknown before they are read.
    fixed: u64,
    /// The most bytes of texts.
    texts_max: u64,
}

/// Rows in memory, in the order of their centers.
pub(super) struct GroupedRows {
    held: HeldRows,
    /// The center of each row.
    centers: Vec<u32>,
    /// Positions of the rows among all usable rows, by center. Within a center they ascend until they are sorted by a
    /// column.
    order: Vec<u32>,
    /// Number of rows before each center in `order`.
    starts: Vec<usize>,
}

/// Rows, assigned to centers.
pub(super) enum AssignedRows {
    /// In memory or on disk, by partition.
    Records(Records),
    /// In the files of the reading parts of a build. Each center is a partition.
    Shuffled(ShuffledRows),
    /// All in memory.
    Grouped(GroupedRows),
}

impl AssignedRows {
    /// Returns the bytes written to temporary files.
    pub(super) fn spilled(&self) -> u64 {
        match self {
            Self::Records(records) => records.spilled(),
            Self::Grouped(_) | Self::Shuffled(_) => 0,
        }
    }

    /// Returns the number of partitions of records.
    pub(super) fn partitions(&self) -> usize {
        match self {
            Self::Records(records) => records.count(),
            Self::Shuffled(rows) => rows.centers(),
            Self::Grouped(_) => 0,
        }
    }

    /// Passes the records of consecutive partitions to `take`. Within each center, they are in the order of the source.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is damaged, or if `take` fails.
    ///
    /// # Panics
    /// Panics if the rows are grouped in memory.
    pub(super) fn read(&self, partitions: Range<usize>, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match self {
            Self::Records(records) => {
                partitions.into_iter().try_for_each(|partition| records.read(partition, &mut take))
            }
            Self::Shuffled(rows) => rows.read(partitions, take),
            Self::Grouped(_) => unreachable!("grouped rows have no records"),
        }
    }
}

impl HeldRows {
    /// Returns the bytes of all rows of a source and of their order, for `centers` centers. `None` if there are too many
    /// rows to hold.
    pub(super) fn bytes(info: &SourceInfo, centers: usize, is_sorted: bool) -> Option<u64> {
        let ids = match info.ids {
            IdKind::None => 0,
            // For texts, the ends; their bytes follow as they arrive.
            IdKind::Int64 | IdKind::Utf8 => size_of::<u64>(),
        };
        let of_order = (2 + usize::from(is_sorted)) * size_of::<u32>();
        let row = info.vectors.bytes() + size_of::<u64>() + ids + of_order;
        let step = STEP_COPIES * STEP_ROWS * size_of::<Nearest<f32>>() + centers * size_of::<usize>();
        let rows = u32::try_from(info.rows).ok()?;
        Some(u64::from(rows) * row as u64 + step as u64)
    }

    /// Reserves `fixed` bytes for all rows of a source, as [`Self::bytes`] returns them. The texts of ids may take up to
    /// `texts_max` bytes more.
    ///
    /// # Errors
    /// Fails if the memory is not free.
    pub(super) fn new(context: &Context, info: &SourceInfo, fixed: u64, texts_max: u64) -> Result<Self> {
        let memory = context.reserve(fixed, PURPOSE)?;
        // Not in large pages: on virtual machines, which return large free blocks to the host, the first scan took longer
        // by more than writing became faster.
        let stored = Vec::with_capacity(info.rows as usize * info.vectors.bytes());
        let mut ids = Ids::empty(info.ids);
        ids.reserve(info.rows as usize);
        let rows = UsableRows { stored, rows: Vec::with_capacity(info.rows as usize), ids };
        Ok(Self { rows, memory, fixed, texts_max })
    }

    /// Appends rows. Returns whether memory suffices for them.
    pub(super) fn push(&mut self, context: &Context, usable: &UsableRows) -> bool {
        // A buffer of texts doubles as it grows.
        let texts = 2 * (self.rows.ids.bytes_of_texts() + usable.ids.bytes_of_texts());
        let fits = texts <= self.texts_max && context.grow(&mut self.memory, self.fixed + texts, PURPOSE).is_ok();
        if fits {
            self.rows.stored.extend_from_slice(&usable.stored);
            self.rows.rows.extend_from_slice(&usable.rows);
            self.rows.ids.append(&usable.ids);
        }
        fits
    }

    /// Returns the rows.
    pub(super) fn rows(&self) -> &UsableRows {
        &self.rows
    }

    /// Assigns each row to a center and counts it in the center's tally. Radii are lengths of
    /// stored vectors.
    ///
    /// # Errors
    /// Fails if `assign` fails.
    pub(super) fn group<T: Coordinate>(
        self,
        context: &Context,
        assign: &AssignRows<'_, T::Distance>,
        space: Space<'_>,
        tallies: &mut [Tally],
    ) -> Result<GroupedRows> {
        let UsableRows { stored, rows, ids } = &self.rows;
        let mut centers = Vec::with_capacity(rows.len());
        for (step, numbers) in stored.chunks(STEP_ROWS * space.vectors.bytes()).zip(rows.chunks(STEP_ROWS)) {
            for nearest in assign(numbers, step)? {
                tallies[nearest.center as usize].count::<T>(nearest, ids.len_of(centers.len()), space);
                centers.push(nearest.center);
            }
            context.progress.advance(rows.get(centers.len() - 1).map_or(0, |row| row + 1));
        }
        tallies.iter_mut().for_each(|tally| tally.radius = space.stored_length(tally.radius));
        let mut starts = Vec::with_capacity(tallies.len());
        starts.extend(tallies.iter().scan(0, |before, tally| {
            let start = *before;
            *before += tally.rows as usize;
            Some(start)
        }));
        // Each start advances to the end of its center, which is the start of the next one.
        let mut order = vec![0; centers.len()];
        for (&center, position) in centers.iter().zip(0..) {
            let next = &mut starts[center as usize];
            order[*next] = position;
            *next += 1;
        }
        starts.iter_mut().zip(tallies).for_each(|(end, tally)| *end -= tally.rows as usize);
        Ok(GroupedRows { held: self, centers, order, starts })
    }
}

impl GroupedRows {
    /// Calls `take` with the number and the center of each row.
    pub(super) fn each_center(&self, mut take: impl FnMut(u64, u32)) {
        self.held.rows.rows.iter().zip(&self.centers).for_each(|(&row, &center)| take(row, center));
    }

    /// Sorts the rows within each center. `rank` returns the rank of a row, given by its number, within its center.
    pub(super) fn sort(&mut self, rank: impl Fn(u64) -> u64) {
        let mut sorted = vec![0; self.order.len()];
        for &position in &self.order {
            let start = self.starts[self.centers[position as usize] as usize];
            sorted[start + rank(self.held.rows.rows[position as usize]) as usize] = position;
        }
        self.order = sorted;
    }

    /// Returns the positions of `rows` rows of a center, from its row `first` on.
    pub(super) fn positions(&self, center: u32, first: u64, rows: u32) -> &[u32] {
        let start = self.starts[center as usize] + first as usize;
        &self.order[start..start + rows as usize]
    }

    /// Returns all rows, in the order of the source.
    pub(super) fn rows(&self) -> &UsableRows {
        &self.held.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::{Element, VectorType};

    fn usable(rows: std::ops::Range<u64>, text: &str) -> UsableRows {
        let ids = rows.clone().map(|row| format!("{text}{row}")).collect();
        UsableRows { stored: rows.clone().flat_map(|row| [row as u8; 3]).collect(), rows: rows.collect(), ids }
    }

    #[test]
    fn rows_are_held_until_their_texts_exceed_the_limit() {
        let vectors = VectorType { element: Element::U8, dimensions: 3 };
        let info = SourceInfo { rows: 9, vectors, ids: IdKind::Utf8, rounded_from_f64: false };
        let fixed = HeldRows::bytes(&info, 2, false).unwrap();
        assert_eq!(HeldRows::bytes(&SourceInfo { rows: 1 << 32, ..info.clone() }, 2, false), None);
        // The texts take 12 bytes, in a buffer of up to 24.
        let context = Context::default();
        let mut held = HeldRows::new(&context, &info, fixed, 24).unwrap();
        assert!(held.push(&context, &usable(1..4, "a")) && held.push(&context, &usable(6..9, "b")));
        assert_eq!(context.budget().reserved(), fixed + 24);
        assert!(!held.push(&context, &usable(9..10, "")), "two bytes more");
        let UsableRows { stored, rows, ids } = held.rows();
        assert_eq!((&rows[..], ids), (&[1, 2, 3, 6, 7, 8][..], &["a1", "a2", "a3", "b6", "b7", "b8"].iter().collect()));
        assert_eq!(stored[..6], [1, 1, 1, 2, 2, 2]);
        drop(held);
        assert_eq!(context.budget().reserved(), 0);
        let small = context.with_reserved(fixed - 1, PURPOSE).unwrap();
        assert!(HeldRows::new(&small, &info, fixed, 24).is_err());
    }
}
