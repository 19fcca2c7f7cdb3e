//! Compares sampled rows with all rows of the source, in one scan.

use std::sync::{Mutex, PoisonError};

use super::ladder::Ladder;
use super::memory::{CHUNK_ROWS, COLUMNS};
use super::near_pairs::NearPair;
use super::notes::{NO_RUNG, Notes, Removal};
use super::survey::Scans;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, Threshold};
use crate::base::mutex::lock;
use crate::base::predicate::Predicate;
use crate::base::report::Stopwatch;
use crate::base::workers::map_items;
use crate::execute::{Ordered, Tiles};
use crate::load::Members;
use crate::truth::DistanceHistogram;

/// Number of rows per block of distances. `HISTOGRAM_ROWS` is the maximum number of sampled rows that are compared
/// with all sampled rows for the histogram.
const BLOCK: usize = 32;
const HISTOGRAM_ROWS: usize = 1_024;
/// Number of rows whose pairs are found at once if the sample is the whole set. It is small, so that few pairs are
/// held.
const GREEDY_COLUMNS: usize = 64;

/// Rows of a source, in the form in which they are compared.
pub(super) struct Compared<'a, T: Coordinate> {
    pub(super) scans: Scans<'a>,
    pub(super) space: Space<'a>,
    pub(super) members: Members<T>,
    /// Positions of the rows among the usable rows, ascending.
    pub(super) places: &'a [u64],
}

/// Distances between sampled rows.
pub(super) struct Among {
    pub(super) histogram: DistanceHistogram,
    /// Number of distances.
    pub(super) pairs: u64,
    /// Nanoseconds to compute one distance on one thread.
    pub(super) nanoseconds: f64,
}

impl<'a, T: Coordinate> Compared<'a, T> {
    pub(super) fn new(scans: Scans<'a>, space: Space<'a>, stored: &[u8], places: &'a [u64]) -> Self {
        let members = Members::new(scans.context.kernel, space, stored);
        Self { scans, space, members, places }
    }

    /// Computes the distances between the sampled rows.
    pub(super) fn among(&self) -> Result<Among> {
        let (context, panel) = (self.scans.context, &self.members.panel);
        let all: Vec<u32> = (0..panel.rows() as u32).collect();
        let columns = context.kernel.pack(panel, &all);
        let mut distances = vec![T::Distance::default(); BLOCK * all.len()];
        let (mut histogram, mut least) = (DistanceHistogram::new(), f64::INFINITY);
        let some = &all[..all.len().min(HISTOGRAM_ROWS)];
        for block in some.chunks(BLOCK) {
            context.cancel.check()?;
            let distances = &mut distances[..block.len() * all.len()];
            let watch = Stopwatch::start();
            context.kernel.many_to_many(panel, block, &columns, distances);
            // The minimum over the blocks is used, since other processes may have used this core meanwhile.
            least = least.min(watch.seconds() / distances.len() as f64);
            histogram.add::<T>(distances);
        }
        histogram.leave_out_zeros(some.len() as u64); // of each row to itself
        Ok(Among { histogram, pairs: (some.len() * (all.len() - 1)) as u64, nanoseconds: least * 1e9 })
    }

    /// Compares the first `count` rows with all others of the source.
    pub(super) fn with_all(&self, ladder: &Ladder, count: usize) -> Result<Vec<Notes>> {
        let chunks = (0..count).step_by(CHUNK_ROWS);
        let chunks = chunks.map(|first| Notes::new(first..count.min(first + CHUNK_ROWS), ladder.len()));
        let notes: Vec<Mutex<Notes>> = chunks.map(Mutex::new).collect();
        // The pairs within the farthest rung include the pairs within all nearer rungs.
        let predicate = ladder.predicate(ladder.len() - 1)?;
        let threshold = Threshold::new(predicate, self.space);
        let bytes = self.space.vectors.bytes();
        self.each_slice("compare", |place, stored, columns| {
            let order: Vec<u32> = (0..columns.len() as u32).collect();
            self.each_chunk(notes.len(), predicate, &threshold, |tiles, chunk| {
                let notes = &mut *lock(&notes[chunk]);
                let rows: Vec<u32> = notes.rows.clone().map(|row| row as u32).collect();
                let reach = vec![order.len() as u32; rows.len()];
                let (rows, columns) =
                    (Ordered { members: &self.members, order: &rows }, Ordered { members: columns, order: &order });
                // A sampled row is one of all rows too, but is not its own neighbor.
                let is_other = |x: u32, y: u32| self.places[x as usize] != place + u64::from(y);
                tiles.compare(rows, columns, &reach, is_other, |x, y, value| {
                    let (x, other, rung) = (x as usize, place + u64::from(y), ladder.rung_of(value));
                    notes.count(x, rung);
                    let pair = NearPair::new(self.places[x], other, value, ladder.farness(value));
                    notes.farthest[usize::from(rung)].add(pair);
                    if other < self.places[x] {
                        notes.count_earlier(x, rung, other, &stored[y as usize * bytes..][..bytes]);
                    }
                    Ok(())
                })?;
                Ok(())
            })
        })?;
        Ok(notes.into_iter().map(|notes| notes.into_inner().unwrap_or_else(PoisonError::into_inner)).collect())
    }

    /// Returns, for each row, the number of the smallest threshold of `ladder`, up to number `last`, within which the row
    /// has a neighbor with a smaller row number.
    pub(super) fn first_rungs(&self, ladder: &Ladder, last: usize) -> Result<Vec<u8>> {
        let predicate = ladder.predicate(last)?;
        let threshold = Threshold::new(predicate, self.space);
        // Rows are in descending order, so that rows with a similar number of earlier rows are in one tile, which
        // compares each of its rows with as many columns as the row with the most.
        let order: Vec<u32> = (0..self.places.len() as u32).rev().collect();
        let first = Mutex::new(vec![NO_RUNG; self.places.len()]);
        self.each_slice("trace", |place, _, columns| {
            let reach_of = |row: u32| self.places[row as usize].saturating_sub(place).min(columns.len() as u64) as u32;
            let all: Vec<u32> = (0..columns.len() as u32).collect();
            let chunks: Vec<&[u32]> = order.chunks(CHUNK_ROWS).collect();
            self.each_chunk(chunks.len(), predicate, &threshold, |tiles, chunk| {
                let reach: Vec<u32> = chunks[chunk].iter().map(|&row| reach_of(row)).collect();
                let (rows, columns) = (
                    Ordered { members: &self.members, order: chunks[chunk] },
                    Ordered { members: columns, order: &all },
                );
                let is_earlier = |x: u32, y: u32| place + u64::from(y) < self.places[x as usize];
                tiles.compare(rows, columns, &reach, is_earlier, |x, _, value| {
                    let first = &mut lock(&first)[x as usize];
                    *first = ladder.rung_of(value).min(*first);
                    Ok(())
                })?;
                Ok(())
            })
        })?;
        Ok(first.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Decides which rows are removed, if these are all rows of the source.
    pub(super) fn removal(&self, ladder: &Ladder) -> Result<Removal> {
        let predicate = ladder.predicate(ladder.len() - 1)?;
        let threshold = Threshold::new(predicate, self.space);
        let mut tiles = Tiles::new(self.scans.context.kernel, predicate, &threshold);
        let all: Vec<u32> = (0..self.members.len() as u32).collect();
        let mut removal = Removal::new(all.len());
        let mut found: Vec<(u32, u32, u8)> = Vec::new();
        for columns in all.chunks(GREEDY_COLUMNS) {
            self.scans.context.cancel.check()?;
            let rows = &all[..columns.last().map_or(0, |&last| last as usize + 1)];
            let reach = vec![columns.len() as u32; rows.len()];
            let (rows, of_block) =
                (Ordered { members: &self.members, order: rows }, Ordered { members: &self.members, order: columns });
            found.clear();
            tiles.compare(
                rows,
                of_block,
                &reach,
                |x, y| x < y,
                |x, y, value| {
                    found.push((y, x, ladder.rung_of(value)));
                    Ok(())
                },
            )?;
            // Pairs are sorted by the later row, so that each row is decided after all earlier rows.
            found.sort_unstable();
            let mut left = &found[..];
            for &row in columns {
                let (of_row, others) = left.split_at(left.partition_point(|(y, _, _)| *y <= row));
                removal.decide(of_row.iter().map(|&(_, x, rung)| (x, rung)));
                left = others;
            }
        }
        Ok(removal)
    }

    /// Passes all usable rows to `compare`, a few at a time: the place of the first one among all, the stored vectors,
    /// and the vectors in the form in which they are compared.
    fn each_slice(&self, phase: &str, compare: impl Fn(u64, &[u8], &Members<T>) -> Result<()>) -> Result<()> {
        let (context, bytes) = (self.scans.context, self.space.vectors.bytes());
        let mut place = 0;
        self.scans.scan(phase, |usable| {
            for stored in usable.stored.chunks(COLUMNS * bytes) {
                let columns = Members::new(context.kernel, self.space, stored);
                compare(place, stored, &columns)?;
                place += columns.len() as u64;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Calls `compare` with the number of each chunk, in parallel, and tiles for pairs within a threshold.
    fn each_chunk(
        &self,
        chunks: usize,
        predicate: Predicate,
        threshold: &Threshold,
        compare: impl Fn(&mut Tiles<'_, T>, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let context = self.scans.context;
        let state = || Tiles::new(context.kernel, predicate, threshold);
        map_items(context.threads, chunks, &context.cancel, state, compare).map(drop)
    }
}
