//! What is noted of a compared row: how many neighbors it has within each threshold, and which of those come before it.

use std::ops::Range;

use super::ladder::{Rungs, before_rung, from_rung};

/// Of one compared row in so many, earlier neighbors are noted.
pub(super) const TRACED_SHARE: u64 = 8;
/// Earlier neighbors noted of a row, at most, and within one threshold: those that come first are the likeliest to stay.
pub(super) const NOTES_MAX: usize = 8;
const NOTES_WITHIN: usize = 2;
/// No rung: of a row without earlier neighbors.
pub(super) const NO_RUNG: u8 = u8::MAX;

/// An earlier neighbor.
pub(super) struct Note {
    /// From which rung on it is one.
    pub(super) rung: u8,
    /// Its place among the usable rows, and its vector as stored.
    pub(super) place: u64,
    pub(super) vector: Box<[u8]>,
}

/// What is noted of some consecutive compared rows.
pub(super) struct Notes {
    /// Which rows.
    pub(super) rows: Range<usize>,
    rungs: usize,
    /// Neighbors of each row that lie within a rung and not within the one before.
    counts: Vec<u32>,
    /// The first rung within which each has an earlier neighbor.
    pub(super) earlier: Vec<u8>,
    /// Of every so many rows, earlier neighbors.
    pub(super) traced: Vec<Vec<Note>>,
}

impl Notes {
    pub(super) fn new(rows: Range<usize>, rungs: usize) -> Self {
        let (count, traced) = (rows.len(), rows.len().div_ceil(TRACED_SHARE as usize));
        let traced = (0..traced).map(|_| Vec::new()).collect();
        Self { rows, rungs, counts: vec![0; count * rungs], earlier: vec![NO_RUNG; count], traced }
    }

    /// Notes a neighbor.
    pub(super) fn count(&mut self, row: usize, rung: u8) {
        let count = &mut self.counts[(row - self.rows.start) * self.rungs + usize::from(rung)];
        *count = count.saturating_add(1);
    }

    /// Notes that it comes before the row; neighbors come in ascending order of their places.
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

    /// Neighbors of each row within a rung.
    pub(super) fn neighbors(&self, rung: usize) -> impl Iterator<Item = u64> {
        self.counts.chunks_exact(self.rungs).map(move |of| of[..=rung].iter().map(|&count| u64::from(count)).sum())
    }
}

impl Note {
    /// Whether it is an earlier neighbor within a rung.
    pub(super) fn is_within(&self, rung: usize) -> bool {
        usize::from(self.rung) <= rung
    }
}

/// Which rows go, of all there are, by the rule that a row goes where an earlier one that stays is a neighbor.
pub(super) struct Removal {
    /// For each row so far, the rungs with which it stays.
    stays: Vec<Rungs>,
}

impl Removal {
    pub(super) fn new(rows: usize) -> Self {
        Self { stays: Vec::with_capacity(rows) }
    }

    /// Decides the next row, given its earlier neighbors and from which rung on they are.
    pub(super) fn decide(&mut self, earlier: impl Iterator<Item = (u32, u8)>) {
        let goes = earlier.fold(0, |goes, (row, rung)| goes | (from_rung(rung) & self.stays[row as usize]));
        self.stays.push(!goes);
    }

    /// How many rows go with a rung.
    pub(super) fn removed(&self, rung: usize) -> u64 {
        self.stays.iter().filter(|stays| *stays >> rung & 1 == 0).count() as u64
    }
}

/// The rungs with which a row stays whatever others do, as it has no earlier neighbor then.
pub(super) fn surely_stays(first_with_earlier: u8) -> Rungs {
    before_rung(first_with_earlier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_loses_every_other_row_and_equal_rows_all_but_one() {
        let mut removal = Removal::new(4);
        for row in 0u32..4 {
            // Neighbors within rung 1 are next to each other, within rung 3 are all.
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
