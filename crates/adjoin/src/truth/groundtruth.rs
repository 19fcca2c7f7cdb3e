//! Finds all pairs within a threshold by brute force, without buckets: the pairs of all rows, or the pairs of a
//! random sample with all rows.

use std::sync::Mutex;
use std::sync::PoisonError;

use adjoin_kernels::{HitMask, PackedColumns, Panel};

use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space, Threshold, with_coordinates};
use crate::base::predicate::Predicate;
use crate::base::random::Random;
use crate::base::workers::map_items;
use crate::sink::{PairBatch, PairSink, PairWriter};
use crate::source::{IdKind, VectorSource};
use crate::store::{UsableRows, read_all, read_all_bytes};

/// Number of vectors per chunk. A chunk is compared with all rows.
const CHUNK_COLUMNS: usize = 2048;
/// Number of rows that are passed to the kernel at once. It bounds the number of hits in memory.
const BLOCK_ROWS: usize = 256;
/// Bytes of pairs that a worker passes to the sink at once.
const BATCH_BYTES: u64 = 256 << 10;

/// Options of the ground truth.
#[derive(Debug, Clone, Copy)]
pub struct GroundtruthOptions {
    /// Predicate of the pairs.
    pub predicate: Predicate,
    /// Number of random rows to compare with all rows; `None` to compare all rows.
    pub sample: Option<u64>,
    /// Seed of the sample.
    pub seed: u64,
}

/// Summary of the ground truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroundtruthReport {
    /// Number of rows that were compared with all rows.
    pub rows: u64,
    /// Number of pairs in the result.
    pub pairs: u64,
    /// Number of pairs that were compared.
    pub verified_pairs: u64,
}

impl GroundtruthOptions {
    /// Finds the pairs and passes them to `sink`. Each pair occurs once, with the earlier row on the left.
    ///
    /// # Errors
    /// If the source has unusable rows or does not fit into the budget, or the sink fails.
    pub fn run(
        &self,
        context: &Context,
        source: &dyn VectorSource,
        sink: Box<dyn PairSink>,
    ) -> Result<GroundtruthReport> {
        let info = source.info();
        let metric = self.predicate.metric();
        let space = Space::plain(info.vectors, metric);
        with_coordinates!(space, T => {
            let of_sink = if sink.wants_ids() { PairWriter::memory_bytes(info.ids != IdKind::None) } else { 0 };
            let _memory = context.reserve(bytes_of::<T>(context, source) + of_sink, "the ground truth")?;
            let (intake, _of_ids) = read_all(context, source, metric)?;
            let mut panel = Panel::<T>::zeroed(intake.rows.len(), info.vectors.dimensions);
            T::load(space, context.kernel, &intake.stored, &mut panel);
            let threshold = Threshold::new(self.predicate, space);
            Scan { context, source, options: self, intake: &intake, panel: &panel, threshold }.run(sink)
        })
    }
}

/// Returns the memory of the comparison, without the memory of the sink.
fn bytes_of<T: Coordinate>(context: &Context, source: &dyn VectorSource) -> u64 {
    let info = source.info();
    let panel_bytes = Panel::<T>::bytes_for(info.rows as usize, info.vectors.dimensions);
    let chunk = PackedColumns::<T>::bytes_for(CHUNK_COLUMNS, info.vectors.dimensions);
    let hits = (2 * 8 * BLOCK_ROWS * CHUNK_COLUMNS) as u64;
    let a_worker = chunk + hits + 16 * info.rows + 2 * BATCH_BYTES;
    read_all_bytes(source) + panel_bytes + context.threads as u64 * a_worker
}

struct Scan<'a, T: Coordinate> {
    context: &'a Context,
    source: &'a dyn VectorSource,
    options: &'a GroundtruthOptions,
    intake: &'a UsableRows,
    panel: &'a Panel<T>,
    threshold: Threshold,
}

impl<T: Coordinate> Scan<'_, T> {
    fn run(&self, sink: Box<dyn PairSink>) -> Result<GroundtruthReport> {
        let all = self.panel.rows() as u64;
        let rows: Vec<u32> = match self.options.sample {
            Some(0) => return Err(Error::option("a sample of 0 rows finds nothing; give at least 1")),
            Some(wanted) => Random::new(self.options.seed, "ground truth").ascending_sample(wanted.min(all), all),
            None => (0..all).collect(),
        }
        .iter()
        .map(|&row| row as u32)
        .collect();
        let shared = Mutex::new(sink);
        let chunks = self.panel.rows().div_ceil(CHUNK_COLUMNS);
        self.context.progress.begin("compare", "chunks", chunks as u64);
        let counts = map_items(
            self.context.threads,
            chunks,
            &self.context.cancel,
            || (),
            |(), chunk| {
                let counts = self.compare(&rows, chunk, &shared)?;
                self.context.progress.advance(chunk as u64 + 1);
                Ok(counts)
            },
        )?;
        shared.into_inner().unwrap_or_else(PoisonError::into_inner).finish()?;
        let sum = |of: fn(&(u64, u64)) -> u64| counts.iter().map(of).sum();
        Ok(GroundtruthReport { rows: rows.len() as u64, pairs: sum(|c| c.0), verified_pairs: sum(|c| c.1) })
    }

    /// Compares rows with a chunk of all rows. Returns the numbers of pairs that were found and compared.
    fn compare(&self, rows: &[u32], chunk: usize, sink: &Mutex<Box<dyn PairSink>>) -> Result<(u64, u64)> {
        let start = (chunk * CHUNK_COLUMNS) as u32;
        let end = (self.panel.rows() as u32).min(start + CHUNK_COLUMNS as u32);
        let columns = self.context.kernel.pack(self.panel, &(start..end).collect::<Vec<_>>());
        let reach_of = |row: u32| match self.options.sample {
            Some(_) => end - start,
            None => row.clamp(start, end) - start, // a row is compared only with earlier rows, so each pair occurs once
        };
        let limit = T::tile_limit(&self.threshold);
        let (mut found, mut verified) = (0, 0);
        let mut hits = Vec::new();
        for block in rows.chunks(BLOCK_ROWS) {
            self.context.cancel.check()?;
            let reach: Vec<u32> = block.iter().map(|&row| reach_of(row)).collect();
            hits.clear();
            verified += self.context.kernel.within(self.panel, block, &columns, &reach, limit, &mut hits);
            let of = |mask: &HitMask| (block[mask.row as usize], *mask);
            let places = hits.iter().map(of).flat_map(|(row, mask)| mask.columns().map(move |at| (row, start + at)));
            found += self.give(rows, places, sink)?;
        }
        Ok((found, verified))
    }

    /// Passes pairs to the sink in batches of limited size, since a block may have many hits, with long ids. Returns
    /// the number of pairs.
    fn give(
        &self,
        rows: &[u32],
        places: impl Iterator<Item = (u32, u32)>,
        sink: &Mutex<Box<dyn PairSink>>,
    ) -> Result<u64> {
        let empty = || PairBatch::new(self.source.info().ids);
        let accept = |batch: &PairBatch| sink.lock().unwrap_or_else(PoisonError::into_inner).accept(batch);
        let (mut batch, mut found) = (empty(), 0);
        for (row, other) in places {
            // A pair is reported by its later row. If the later row is not in the sample, the earlier row reports it.
            if other == row || (other > row && (self.options.sample.is_none() || rows.binary_search(&other).is_ok())) {
                continue;
            }
            let (left, right) = (row.min(other), row.max(other));
            let Some(value) = self.decide(left, right) else { continue };
            batch.left_rows.push(self.intake.rows[left as usize]);
            batch.right_rows.push(self.intake.rows[right as usize]);
            batch.left_ids.push_from(&self.intake.ids, left as usize);
            batch.right_ids.push_from(&self.intake.ids, right as usize);
            batch.values.push(value);
            found += 1;
            if batch.bytes() >= BATCH_BYTES {
                accept(&std::mem::replace(&mut batch, empty()))?;
            }
        }
        if !batch.is_empty() {
            accept(&batch)?;
        }
        Ok(found)
    }

    fn decide(&self, left: u32, right: u32) -> Option<f32> {
        let vectors = self.source.info().vectors;
        let stored = |row: u32| &self.intake.stored[row as usize * vectors.bytes()..][..vectors.bytes()];
        self.options.predicate.decide(vectors, stored(left), stored(right))
    }
}
