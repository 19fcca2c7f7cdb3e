//! Chooses how many rows are sampled, and computes the memory for comparing them.

use adjoin_kernels::Panel;

use super::near_pairs::PAIRS_BYTES;
use super::notes::{NOTES_MAX, TRACED_SHARE};
use crate::base::context::Context;
use crate::base::geometry::{Coordinate, Space};
use crate::base::options::{Metric, VectorType};
use crate::load::Members;
use crate::source::VectorSource;
use crate::store::{
    BuildOptions, PartitionSizes, assigning_bytes, batch_bytes, coding_bytes, default_buckets, scan_bytes,
    training_bytes,
};
use crate::truth::DistanceHistogram;

use crate::execute::Tiles;

/// Maximum number of rows that are compared with all rows, and maximum of their bytes as floats.
const COMPARED: u64 = 4_096;
const COMPARED_BYTES: u64 = 16 << 20;
/// If the set is larger than this, fewer rows are compared, but at least `COMPARED_MIN`, so that an estimate costs
/// much less than the join.
const ROWS_OF_ALL_COMPARED: u64 = 4_000_000;
const COMPARED_MIN: u64 = 512;
/// Number of training rows per center.
const TRAINED_A_CENTER: u64 = 16;
/// Minimum number of training rows per center, and limits on the number and bytes of all training rows. For a large
/// set, the number of rows per center is reduced first, and only then the number of centers: with fewer centers than
/// a build has, buckets would be larger, and a rule would admit many more pairs.
const TRAINED_A_CENTER_MIN: u64 = 4;
const TRAINING_ROWS_MAX: u64 = 1 << 17;
const TRAINING_BYTES: u64 = 64 << 20;
/// Number of rows of a scanned batch that are compared at once.
pub(super) const COLUMNS: usize = 1_024;
/// Number of sampled rows that a worker compares at once.
pub(super) const CHUNK_ROWS: usize = 512;
/// Number of sampled vectors whose pairs are used to measure the effect of a rule.
pub(super) const FORESEEN: usize = 1_000;

/// Numbers of rows, and bytes, of each part of an estimate.
pub(super) struct Sizes {
    pub(super) batch: u64,
    /// Number of rows that are compared with all rows, and the memory for them during sampling.
    pub(super) compared: u64,
    pub(super) compared_bytes: u64,
    /// Number of rows on which centers are trained, and the memory for them during sampling.
    pub(super) training: u64,
    pub(super) training_bytes: u64,
    /// Number of buckets that a build would create, and number of centers that the estimate trains in their place.
    pub(super) buckets: u64,
    pub(super) centers: u32,
}

impl Sizes {
    /// Chooses the sizes by the number of rows, their type and the options. The budget affects only the memory during
    /// sampling.
    pub(super) fn new(source: &dyn VectorSource, options: &BuildOptions, free: u64) -> Self {
        let info = source.info();
        let (rows, vectors) = (info.rows, info.vectors);
        let floats = (vectors.dimensions * size_of::<f32>()) as u64;
        let of_rows = (COMPARED as u128 * u128::from(ROWS_OF_ALL_COMPARED) / u128::from(rows.max(1))) as u64;
        // At least two rows, since a single one has no pairs.
        let compared = of_rows.clamp(COMPARED_MIN, COMPARED).min(COMPARED_BYTES / floats).max(2).min(rows);
        let buckets = u64::from(options.buckets.unwrap_or(default_buckets(rows))).clamp(1, rows.max(1));
        let affordable = TRAINING_ROWS_MAX.min(TRAINING_BYTES / floats).max(2);
        let training = (TRAINED_A_CENTER * buckets).max(COMPARED_MIN).min(affordable).min(rows);
        let centers = buckets.min((training / TRAINED_A_CENTER_MIN).max(1)) as u32;
        let wanted = |rows: u64| 2 * PartitionSizes::least() + rows * vectors.bytes() as u64 * 11 / 10;
        let compared_bytes = wanted(compared).min((free / 8).max(PartitionSizes::least()));
        let training_bytes = wanted(training).min((free / 8).max(PartitionSizes::least()));
        let batch = batch_bytes(free);
        Self { batch, compared, compared_bytes, training, training_bytes, buckets, centers }
    }

    /// Returns the memory of an estimate: the maximum over the coordinate types.
    pub(super) fn bytes(&self, context: &Context, source: &dyn VectorSource, metric: Metric) -> u64 {
        let vectors = source.info().vectors;
        let of = |bytes: fn(&Self, &Context, &dyn VectorSource, Metric) -> u64| bytes(self, context, source, metric);
        let coding = coding_bytes(vectors);
        of(Self::bytes_of::<u8>).max(of(Self::bytes_of::<f32>)).max(coding + self.compared_bytes + self.training_bytes)
    }

    fn bytes_of<T: Coordinate>(&self, context: &Context, source: &dyn VectorSource, metric: Metric) -> u64 {
        let (info, threads) = (source.info(), context.threads);
        let vectors = info.vectors;
        let space = Space::plain(vectors, metric);
        let (a_vector, dimensions) = (vectors.bytes() as u64, space.dimensions());
        let scan = scan_bytes(source, self.batch);
        let drawn = 8 * (2 * self.compared + self.training) + self.compared_bytes + self.training_bytes;
        let stored = self.compared * a_vector;
        let noted = (self.compared / TRACED_SHARE + 1) * NOTES_MAX as u64 * (a_vector + 64);
        // Rows that are searched for earlier neighbors of neighbors replace the notes about them.
        let later = (noted / (a_vector + 64)).min(self.compared * 2);
        // Counts and example pairs by rung.
        let counts = self.compared * (128 * 4 + 64) + (self.compared / CHUNK_ROWS as u64 + 1) * 128 * PAIRS_BYTES;
        let columns = COLUMNS.min(info.rows as usize);
        let comparing = Members::<T>::memory_bytes(self.compared.max(later), space)
            + Members::<T>::memory_bytes(columns as u64, space)
            + columns as u64 * a_vector
            + threads as u64 * Tiles::<T>::memory_bytes(columns, dimensions)
            + DistanceHistogram::BYTES
            + 32 * self.compared * size_of::<T::Distance>() as u64;
        let foreseeing = foreseeing_bytes::<T>(self, threads, vectors);
        drawn + stored + (scan + noted + 2 * counts + comparing).max(foreseeing)
    }
}

fn foreseeing_bytes<T: Coordinate>(sizes: &Sizes, threads: usize, vectors: VectorType) -> u64 {
    let (centers, dimensions) = (sizes.centers as usize, vectors.dimensions);
    let vectors_bytes = 4 * Panel::<T>::bytes_for(FORESEEN, dimensions);
    training_bytes::<T>(threads, centers, dimensions)
        + assigning_bytes::<T>(threads, centers, dimensions)
        + vectors_bytes
        + 3 * 32 * (FORESEEN * size_of::<T::Distance>()) as u64
}
