//! Estimates the fraction of rows that are removed if the first of near-duplicates is kept.
//!
//! A row without earlier neighbors is kept. A row with earlier neighbors is removed, unless all of them are removed
//! themselves. So the fraction of rows with earlier neighbors is an upper bound. A row is certainly removed if one of
//! its first earlier neighbors has no earlier neighbor itself. For the other rows, the probability that an earlier
//! neighbor is removed is assumed to be the fraction of removed rows among all rows with earlier neighbors.

use std::collections::BTreeMap;

use super::compare::Compared;
use super::ladder::{Ladder, Rungs};
use super::notes::{NO_RUNG, Note, Notes, Removal, TRACED_SHARE, surely_stays};
use super::{certain, times};
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::report::Interval;
use crate::truth::{least_share, means};

/// Number of iterations after which the fraction of removed rows has converged.
const ROUNDS: usize = 64;

/// Estimate of the number of removed rows.
pub(super) enum RemovalEstimate<'a> {
    /// All rows are known.
    Whole(Removal),
    /// A sample of the rows is known.
    DrawnVectors {
        /// Neighbors of the sampled rows.
        notes: Vec<Notes>,
        traces: Traces,
        /// Positions of the sampled rows among all rows. `rows` is the number of all rows.
        places: &'a [u64],
        rows: u64,
        seed: u64,
    },
}

impl<'a> RemovalEstimate<'a> {
    /// Prepares the estimate for some rungs, from the notes about sampled rows. `rows` is the number of all rows.
    pub(super) fn new<T: Coordinate>(
        compared: &Compared<'a, T>,
        ladder: &Ladder,
        mut notes: Vec<Notes>,
        rungs: &[usize],
        rows: u64,
        seed: u64,
    ) -> Result<Self> {
        let places = compared.places;
        if places.len() as u64 == rows {
            return Ok(Self::Whole(compared.removal(ladder)?));
        }
        let traces = Traces::new(compared, ladder, &mut notes, rungs)?;
        Ok(Self::DrawnVectors { notes, traces, places, rows, seed })
    }

    /// Returns the number of rows that are removed at a rung.
    pub(super) fn removed(&self, rung: usize) -> Interval {
        match self {
            Self::Whole(removal) => certain(removal.removed(rung) as f64),
            Self::DrawnVectors { notes, traces, places, rows, seed } => {
                let first = notes.iter().flat_map(|notes| &notes.earlier);
                let has_earlier = |&first: &u8| f64::from(u8::from(first != NO_RUNG && usize::from(first) <= rung));
                let with_earlier = means(&[first.map(has_earlier).collect()], false, *seed)[0];
                let neighbors = notes.iter().flat_map(|notes| notes.neighbors(rung));
                // If a fraction p of all rows precedes a row, about the fraction p of its neighbors does too.
                let before = |place: u64| place as f64 / *rows as f64;
                let earlier = neighbors.zip(*places).map(|(count, &place)| count as f64 * before(place));
                times(traces.share(rung, with_earlier, &earlier.collect::<Vec<f64>>()), *rows as f64)
            }
        }
    }
}

/// Sampled rows whose earlier neighbors were recorded.
pub(super) struct Traces {
    traced: Vec<Traced>,
    /// For each recorded neighbor, by position: the rungs at which it is certainly kept.
    stays: BTreeMap<u64, Rungs>,
}

/// A row with its recorded earlier neighbors.
struct Traced {
    notes: Vec<(u8, u64)>,
    /// Number of the row among the sampled rows.
    row: usize,
}

impl Traces {
    /// Finds the earlier neighbors of the recorded neighbors, within some rungs.
    fn new<T: Coordinate>(
        compared: &Compared<'_, T>,
        ladder: &Ladder,
        notes: &mut [Notes],
        rungs: &[usize],
    ) -> Result<Self> {
        // Several rows may have recorded one neighbor. The map has it once, ordered by position.
        let mut wanted: BTreeMap<u64, Box<[u8]>> = BTreeMap::new();
        let mut traced = Vec::new();
        for notes in notes {
            let rows = notes.rows.clone().step_by(TRACED_SHARE as usize);
            for (row, noted) in rows.zip(std::mem::take(&mut notes.traced)) {
                traced.push(Traced { notes: noted.iter().map(|note| (note.rung, note.place)).collect(), row });
                let is_wanted = |note: &Note| rungs.iter().any(|&rung| note.is_within(rung));
                wanted.extend(noted.into_iter().filter(is_wanted).map(|note| (note.place, note.vector)));
            }
        }
        let Some(&last) = rungs.iter().max().filter(|_| !wanted.is_empty()) else {
            return Ok(Self { traced, stays: BTreeMap::new() });
        };
        let (places, vectors): (Vec<u64>, Vec<Box<[u8]>>) = wanted.into_iter().unzip();
        let stored = vectors.concat();
        // `stored` has a copy of these vectors.
        drop(vectors);
        let neighbors = Compared::<T>::new(compared.scans, compared.space, &stored, &places);
        drop(stored);
        let first = neighbors.first_rungs(ladder, last)?;
        let stays = places.iter().copied().zip(first.into_iter().map(surely_stays)).collect();
        Ok(Self { traced, stays })
    }

    /// Returns the fraction of rows that are removed at a rung. `with_earlier` is the fraction of rows with an
    /// earlier neighbor. `earlier` has the approximate number of earlier neighbors of each sampled row.
    fn share(&self, rung: usize, with_earlier: Interval, earlier: &[f64]) -> Interval {
        let (mut all, mut surely, mut open) = (0u64, 0u64, Vec::new());
        for Traced { notes, row } in &self.traced {
            let mut within = notes.iter().filter(|(first, _)| usize::from(*first) <= rung).peekable();
            if within.peek().is_none() {
                continue;
            }
            all += 1;
            let stays = |place: &u64| self.stays.get(place).is_some_and(|stays| stays >> rung & 1 == 1);
            if within.any(|(_, place)| stays(place)) { surely += 1 } else { open.push(earlier[*row].max(1.0)) }
        }
        if all == 0 {
            return Interval { low: 0.0, ..with_earlier };
        }
        // All earlier neighbors of an undecided row have earlier neighbors themselves. So each is assumed to be
        // removed with the probability `goes`, the fraction of removed rows among the rows with earlier neighbors. It
        // is computed by iteration.
        let mut goes = 1.0;
        for _ in 0..ROUNDS {
            let of_open: f64 = open.iter().map(|&neighbors| 1.0 - f64::powf(goes, neighbors)).sum();
            goes = (goes + (surely as f64 + of_open) / all as f64) / 2.0; // averaged with the previous value, since it would oscillate
        }
        Interval {
            estimate: with_earlier.estimate * goes,
            low: with_earlier.low * least_share(surely, all),
            high: with_earlier.high,
        }
    }
}
