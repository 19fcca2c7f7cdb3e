//! How many rows are drawn, and what comparing them takes.

use adjoin_kernels::Panel;

use super::notes::{NOTES_MAX, TRACED_SHARE};
use crate::context::Context;
use crate::geometry::{Coordinate, Space};
use crate::load::Members;
use crate::options::{Metric, VectorType};
use crate::source::VectorSource;
use crate::store::{
    BuildOptions, PartitionSizes, assigning_bytes, batch_bytes, coding_bytes, default_buckets, scan_bytes,
    training_bytes,
};
use crate::truth::DistanceHistogram;

use crate::execute::Tiles;

/// Rows that are compared with all others: so many, or fewer that take so many bytes as floats.
const COMPARED: u64 = 4_096;
const COMPARED_BYTES: u64 = 16 << 20;
/// Of larger sets fewer are compared, so that this costs a part of what the join does; but so many.
const ROWS_OF_ALL_COMPARED: u64 = 4_000_000;
const COMPARED_MIN: u64 = 512;
/// Rows on which centers are trained: so many for each, or fewer that take so many bytes.
const TRAINED_A_CENTER: u64 = 16;
/// Of large sets centers are trained on fewer rows each, but on so many: fewer centers than a build makes would have larger
/// cells, of which a rule admits many times as many pairs.
const TRAINED_A_CENTER_MIN: u64 = 4;
const TRAINING_ROWS_MAX: u64 = 1 << 17;
const TRAINING_BYTES: u64 = 64 << 20;
/// Rows of a batch that are compared at once.
pub(super) const COLUMNS: usize = 1_024;
/// Compared rows that one worker takes at once.
pub(super) const CHUNK_ROWS: usize = 512;
/// Drawn vectors from whose pairs is learned what a rule admits.
pub(super) const FORESEEN: usize = 1_000;

/// Rows and bytes of each part.
pub(super) struct Sizes {
    pub(super) batch: u64,
    /// Rows that are compared with all, and the bytes of those in memory while they are drawn.
    pub(super) compared: u64,
    pub(super) compared_bytes: u64,
    /// The same of the rows on which centers are trained.
    pub(super) training: u64,
    pub(super) training_bytes: u64,
    /// Buckets that a build would make, and centers that stand for theirs.
    pub(super) buckets: u64,
    pub(super) centers: u32,
}

impl Sizes {
    /// What the number of rows, their type and the options say; memory decides of rows in memory alone.
    pub(super) fn new(source: &dyn VectorSource, options: &BuildOptions, free: u64) -> Self {
        let info = source.info();
        let (rows, vectors) = (info.rows, info.vectors);
        let floats = (vectors.dimensions * size_of::<f32>()) as u64;
        let of_rows = (COMPARED as u128 * u128::from(ROWS_OF_ALL_COMPARED) / u128::from(rows.max(1))) as u64;
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

    /// Bytes of an estimate, whatever its coordinates.
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
        // Those whose earlier neighbors are looked for take the place of what was noted of them.
        let later = (noted / (a_vector + 64)).min(self.compared * 2);
        let counts = self.compared * (128 * 4 + 64);
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
