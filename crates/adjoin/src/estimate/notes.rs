//! Records the neighbors of each sampled row: how many it has within each threshold, and, for some rows, which of
//! them precede the row.

use std::ops::Range;

use super::ladder::{Rungs, before_rung, from_rung};
use super::near_pairs::FarthestPairs;

/// Earlier neighbors are recorded for one of this number of sampled rows.
pub(super) const TRACED_SHARE: u64 = 8;
/// Maximum number of earlier neighbors that are recorded for a row, in total and within one threshold. The first ones
/// are recorded, since they are the most likely to be kept.
pub(super) const NOTES_MAX: usize = 8;
const NOTES_WITHIN: usize = 2;
/// Value instead of a rung for a row without earlier neighbors.
pub(super) const NO_RUNG: u8 = u8::MAX;

pub(super) struct Note {
    /// First rung within which the row is a neighbor.
    pub(super) rung: u8,
    /// Position of the row among the usable rows. `vector` is its stored vector.
    pub(super) place: u64,
    pub(super) vector: Box<[u8]>,
}

/// Neighbors of some consecutive compared rows.
pub(super) struct Notes {
    /// Range of the rows.
    pub(super) rows: Range<usize>,
    rungs: usize,
    /// For each row and rung, the number of neighbors within the rung but not within the previous one.
    counts: Vec<u32>,
    /// First rung within which each row has an earlier neighbor.
    pub(super) earlier: Vec<u8>,
    /// Earlier neighbors of every [`TRACED_SHARE`]th row.
    pub(super) traced: Vec<Vec<Note>>,
    /// For each rung, the farthest pairs within the rung but not within the previous one.
    pub(super) farthest: Vec<FarthestPairs>,
}

impl Notes {
    pub(super) fn new(rows: Range<usize>, rungs: usize) -> Self {
        let (count, traced) = (rows.len(), rows.len().div_ceil(TRACED_SHARE as usize));
        let traced = (0..traced).map(|_| Vec::new()).collect();
        let farthest = vec![FarthestPairs::default(); rungs];
        Self { rows, rungs, counts: vec![0; count * rungs], earlier: vec![NO_RUNG; count], traced, farthest }
    }

    /// Records a neighbor.
    pub(super) fn count(&mut self, row: usize, rung: u8) {
        let count = &mut self.counts[(row - self.rows.start) * self.rungs + usize::from(rung)];
        // The count saturates. The exact number does not matter if it exceeds 32 bits.
        *count = count.saturating_add(1);
    }

    /// Records a neighbor that precedes the row. Neighbors must be passed in ascending order of their positions.
    pub(super) fn count_earlier(&mut self, row: usize, rung: u8, place: u64, vector: &[u8]) {
        let row = row - self.rows.start;
        self.earlier[row] = self.earlier[row].min(rung);
        if !row.is_multiple_of(TRACED_SHARE as usize) {
            return;
        }
        let noted = &mut self.traced[row / TRACED_SHARE as usize];
        let within = noted.iter().filter(|note| note.rung <= rung).count();
        if within < NOTES_WITHIN && noted.len() < NOTES_MAX {
            noted.push(Note { rung, place, vector: vector.into() });
        }
    }

    /// Returns the number of neighbors of each row within a rung.
    pub(super) fn neighbors(&self, rung: usize) -> impl Iterator<Item = u64> {
        self.counts.chunks_exact(self.rungs).map(move |of| of[..=rung].iter().map(|&count| u64::from(count)).sum())
    }
}

impl Note {
    /// Returns whether the row is a neighbor within a rung.
    pub(super) fn is_within(&self, rung: usize) -> bool {
        usize::from(self.rung) <= rung
    }
}

/// Decides exactly which rows are removed, if the sample has all rows. A row is removed if an earlier kept row is its
/// neighbor.
pub(super) struct Removal {
    /// For each row that was decided so far, the rungs at which it is kept.
    stays: Vec<Rungs>,
}

impl Removal {
    pub(super) fn new(rows: usize) -> Self {
        Self { stays: Vec::with_capacity(rows) }
    }

    /// Decides the next row. `earlier` lists earlier rows, each with the first rung at which it is a neighbor of this
    /// row.
    pub(super) fn decide(&mut self, earlier: impl Iterator<Item = (u32, u8)>) {
        // A row is removed at each rung at which an earlier row is its neighbor and is kept.
        let goes = earlier.fold(0, |goes, (row, rung)| goes | (from_rung(rung) & self.stays[row as usize]));
        self.stays.push(!goes);
    }

    /// Returns the number of rows that are removed at a rung.
    pub(super) fn removed(&self, rung: usize) -> u64 {
        self.stays.iter().filter(|stays| *stays >> rung & 1 == 0).count() as u64
    }
}

/// Returns the rungs at which a row is certainly kept, since it has no earlier neighbor within them.
pub(super) fn surely_stays(first_with_earlier: u8) -> Rungs {
    before_rung(first_with_earlier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_keeps_every_other_row_of_a_chain_and_one_equal_row() {
        let mut removal = Removal::new(4);
        for row in 0u32..4 {
            // Within rung 1, consecutive rows are neighbors; within rung 3, all are.
            removal.decide((0..row).map(|other| (other, if other + 1 == row { 1 } else { 3 })));
        }
        assert_eq!([0, 1, 2, 3].map(|rung| removal.removed(rung)), [0, 2, 2, 3]);
    }

    #[test]
    fn the_first_neighbors_within_each_rung_are_noted() {
        let mut notes = Notes::new(8..24, 5);
        for (place, rung) in [(3, 4), (4, 4), (5, 4), (6, 2), (7, 3), (9, 2), (10, 2), (11, 0)] {
            notes.count(8, rung);
            notes.count_earlier(8, rung, place, &[0]);
        }
        let noted: Vec<u64> = notes.traced[0].iter().map(|note| note.place).collect();
        assert_eq!((noted, notes.earlier[0]), (vec![3, 4, 6, 7, 9, 11], 0));
        assert_eq!([0, 2, 4].map(|rung| notes.neighbors(rung).next().unwrap()), [1, 4, 8]);
        assert_eq!((notes.traced.len(), notes.earlier[1]), (2, NO_RUNG));
    }
}
