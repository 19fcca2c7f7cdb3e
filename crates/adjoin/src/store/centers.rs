//! Trains the centers of buckets by k-means on a sample.

use adjoin_device::Reservation;
use adjoin_kernels::{Kernel, Panel};

use super::assign::{Nearest, TwoLevel, center_groups};
use super::partitions::Records;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coding, Coordinate, Means, Space, copy_row};
use crate::base::options::VectorType;
use crate::base::random::Random;

/// Number of rounds of Lloyd's algorithm. With 10 rounds, a join would not have fewer edges or candidates
/// (docs/methods.md, "Number of buckets").
const ROUNDS: usize = 6;
/// Number of initial rounds that group the centers again. In later rounds the centers move little, and grouping would
/// take as long as the round itself.
const GROUPED_ROUNDS: usize = 2;
/// Approximate number of distances to compute per vector, divided by the square root of the number of centers. These
/// are distances to centers and to the means of groups of centers.
const SEARCHED_A_ROOT: f64 = 4.3;
/// Minimum number of rows in the training sample, unless the source has fewer.
const SAMPLE_ROWS_MIN: u64 = 1 << 16;

/// Returns the default number of buckets for `rows` vectors: `(n / 4)^(2/3)`, between 0.1 % and 2 % of the rows. More
/// buckets would leave fewer pairs to compare but more edges, which cost more time (decision 0010).
pub fn default_buckets(rows: u64) -> u32 {
    let wanted = u128::from(rows).pow(2);
    // A binary search for the cube root, by integers. Floats could round differently on another platform, and then the
    // store would differ, too.
    let (mut low, mut high) = (1u64, (rows / 50).max(1));
    while low < high {
        let middle = (low + high).div_ceil(2);
        if u128::from(middle).pow(3) * 16 <= wanted { low = middle } else { high = middle - 1 }
    }
    low.max(rows / 1_000).max(1).min(u64::from(u32::MAX)) as u32
}

/// Returns the number of rows in the training sample: 2 % of the rows, or 65,536 if that is more, but at most all
/// rows. The number depends only on `rows`.
pub(crate) fn sample_rows(rows: u64) -> u64 {
    rows.min((rows / 50).max(SAMPLE_ROWS_MIN))
}

/// Estimates the distances that a build of `rows` vectors computes to train centers and to assign vectors to them.
pub(crate) fn build_distances(rows: u64, buckets: u64) -> f64 {
    let searched = (SEARCHED_A_ROOT * (buckets as f64).sqrt()).min(buckets as f64);
    (sample_rows(rows) * ROUNDS as u64 + rows) as f64 * searched
}

/// The training sample: vectors as stored.
pub(crate) struct TrainingSample {
    /// A single partition.
    pub(crate) records: Records,
    pub(crate) rows: u64,
}

/// Maximum size, in rows and in bytes, of the sample that decides how floats are rounded.
const CODING_ROWS: u64 = 500;
const CODING_BYTES: u64 = 4 << 20;

/// Returns the size of the sample that decides how floats are rounded: its rows, and its bytes as stored and as
/// floats.
fn coding_rows(vectors: VectorType) -> (u64, u64) {
    let a_row = vectors.bytes() as u64 + Panel::<f32>::bytes_for(1, vectors.dimensions);
    // At least two rows are needed, since the choice depends on distances between rows.
    let rows = CODING_ROWS.min(CODING_BYTES / a_row).max(2);
    (rows, rows * a_row)
}

/// Returns the bytes that [`TrainingSample::coding`] holds.
pub(crate) fn coding_bytes(vectors: VectorType) -> u64 {
    coding_rows(vectors).1
}

impl TrainingSample {
    /// Chooses how to round floats to bytes. Returns `None` if rounding would blur which center is nearest.
    ///
    /// # Errors
    /// Fails if the sample cannot be read.
    pub(crate) fn coding(&self, kernel: Kernel, space: Space<'_>, seed: u64) -> Result<Option<Coding>> {
        Ok(self.fit_coding(kernel, space, seed)?.filter(Coding::tells_neighbors_apart))
    }

    /// Chooses how to round floats to bytes, even if that blurs which center is nearest. Returns `None` for inner
    /// products, since rounding would make short vectors too similar to distinguish.
    ///
    /// # Errors
    /// Fails as [`TrainingSample::coding`] does.
    pub(crate) fn fit_coding(&self, kernel: Kernel, space: Space<'_>, seed: u64) -> Result<Option<Coding>> {
        if !space.is_of_floats() || space.lift.is_some() {
            return Ok(None);
        }
        // This random stream is separate, so that the number of rows drawn here does not affect the first centers.
        let drawn = self.draw::<f32>(kernel, space, coding_rows(space.vectors).0, Random::new(seed, "coding"))?;
        Ok(Coding::fit(kernel, &drawn))
    }

    /// Reads all rows as stored, end to end.
    ///
    /// # Errors
    /// Fails as [`TrainingSample::coding`] does.
    pub(crate) fn stored(&self, vectors: VectorType) -> Result<Vec<u8>> {
        let mut all = Vec::with_capacity(self.rows as usize * vectors.bytes());
        self.records.read(0, |stored| {
            all.extend_from_slice(stored);
            Ok(())
        })?;
        Ok(all)
    }

    /// Returns `count` random rows of the sample, or all rows if there are fewer.
    fn draw<T: Coordinate>(
        &self,
        kernel: Kernel,
        space: Space<'_>,
        count: u64,
        mut random: Random,
    ) -> Result<Panel<T>> {
        let (count, bytes) = (count.min(self.rows), space.vectors.bytes());
        let mut picked = random.ascending_sample(count, self.rows).into_iter().peekable();
        let (mut drawn, mut first_row) = (Vec::with_capacity(count as usize * bytes), 0);
        self.records.read(0, |stored| {
            let rows = (stored.len() / bytes) as u64;
            while let Some(row) = picked.next_if(|&row| row < first_row + rows) {
                drawn.extend_from_slice(&stored[(row - first_row) as usize * bytes..][..bytes]);
            }
            first_row += rows;
            Ok(())
        })?;
        let mut panel = Panel::zeroed(count as usize, space.dimensions());
        T::load(space, kernel, &drawn, &mut panel);
        Ok(panel)
    }
}

/// Sample as coordinates. They are all in memory if they fit. Otherwise each pass converts the sample block by block.
enum Coordinates<'a, T: Coordinate> {
    All { panel: Panel<T>, _memory: Reservation },
    Blocks(&'a TrainingSample),
}

impl<'a, T: Coordinate> Coordinates<'a, T> {
    fn of(context: &Context, sample: &'a TrainingSample, space: Space<'_>) -> Result<Self> {
        let (rows, dimensions) = (sample.rows as usize, space.dimensions());
        // This includes the results for all rows, which are in memory twice while they are concatenated.
        let found = 2 * rows * size_of::<Nearest<T::Distance>>();
        // Lack of memory is not an error: each round can convert the sample again, block by block.
        let Ok(memory) = context.reserve(Panel::<T>::bytes_for(rows, dimensions) + found as u64, "the build") else {
            return Ok(Self::Blocks(sample));
        };
        let mut all = Panel::zeroed(rows, dimensions);
        let mut next = 0;
        Self::Blocks(sample).for_each(context.kernel, space, |panel| {
            (0..panel.rows()).for_each(|row| copy_row(panel, row, &mut all, next + row));
            next += panel.rows();
            Ok(())
        })?;
        Ok(Self::All { panel: all, _memory: memory })
    }

    /// Passes all rows to `take`, in order.
    fn for_each(&self, kernel: Kernel, space: Space<'_>, mut take: impl FnMut(&Panel<T>) -> Result<()>) -> Result<()> {
        match self {
            Self::All { panel, .. } => take(panel),
            Self::Blocks(sample) => {
                let mut panel = Panel::zeroed(0, space.dimensions());
                sample.records.read(0, |stored| {
                    panel.reset(stored.len() / space.vectors.bytes(), space.dimensions());
                    T::load(space, kernel, stored, &mut panel);
                    take(&panel)
                })
            }
        }
    }
}

/// Trained centers and the cost of the training.
pub(crate) struct Training<T: Coordinate> {
    pub(crate) centers: Panel<T>,
    /// Number of distances computed.
    pub(crate) distances: u64,
}

/// Returns the bytes that [`train`] holds in addition to the sample, including its result.
pub(crate) fn training_bytes<T: Coordinate>(threads: usize, centers: usize, dimensions: usize) -> u64 {
    let sums = (centers * dimensions * size_of::<T::Sum>()) as u64;
    Panel::<T>::bytes_for(centers, dimensions) + sums + super::assign::memory_bytes::<T>(threads, centers, dimensions)
}

/// Trains centers for `buckets` buckets on a sample.
///
/// # Errors
/// Fails if the work is canceled or the sample cannot be read.
pub(crate) fn train<T: Coordinate>(
    context: &Context,
    sample: &TrainingSample,
    space: Space<'_>,
    buckets: u32,
    seed: u64,
) -> Result<Training<T>> {
    let kernel = context.kernel;
    let centers = sample.draw(kernel, space, buckets.into(), Random::new(seed, "first centers"))?;
    let mut training = Training { centers, distances: 0 };
    context.progress.begin("train", "rounds", ROUNDS as u64);
    let mut groups = Vec::new();
    let coordinates = Coordinates::of(context, sample, space)?;
    for round in 0..ROUNDS {
        if round < GROUPED_ROUNDS {
            groups = center_groups(kernel, &training.centers);
        }
        let levels = TwoLevel::of_groups(kernel, &training.centers, &groups);
        let mut means = Means::new(training.centers.rows(), training.centers.dimensions());
        coordinates.for_each(kernel, space, |panel| {
            let nearest = levels.nearest_of(context, panel)?;
            (0..panel.rows()).for_each(|row| means.add(nearest[row].center as usize, panel.row(row)));
            Ok(())
        })?;
        means.write(&mut training.centers);
        training.distances += sample.rows * levels.distances_a_vector() as u64;
        context.progress.advance(round as u64 + 1);
    }
    Ok(training)
}

/// Encodes a center as f32, which can represent both types of coordinates.
pub(super) fn encode_center<T: Coordinate>(centers: &Panel<T>, row: usize, dimensions: usize) -> Vec<u8> {
    centers.row(row)[..dimensions].iter().flat_map(|value| (value.value() as f32).to_le_bytes()).collect()
}

/// Decodes a center that [`encode_center`] has encoded.
pub(super) fn decode_center<T: Coordinate>(centers: &mut Panel<T>, row: usize, bytes: &[u8]) {
    let values = bytes.as_chunks().0.iter().map(|&value| f64::from(f32::from_le_bytes(value)));
    centers.row_mut(row).iter_mut().zip(values).for_each(|(to, value)| *to = T::from_mean(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::options::{Element, Metric};
    use crate::store::partitions::{PartitionSizes, Partitions};

    #[test]
    fn default_bucket_counts_are_fixed() {
        let counts = [1, 49, 100, 20_000, 200_000, 900_000, 100_000_000].map(default_buckets);
        assert_eq!(counts, [1, 1, 2, 292, 1357, 3699, 100_000]);
        assert_eq!([10, 100_000, 10_000_000].map(sample_rows), [10, 65_536, 200_000]);
    }

    #[test]
    fn centers_move_to_the_means_of_their_members() {
        let folder = tempfile::tempdir().unwrap();
        let context = Context::default();
        let mut records = Partitions::new(&context, folder.path(), "sample", PartitionSizes::within(1 << 20, 1));
        (0..60).for_each(|k| records.push(0, &[&[[0, 60, 200][k % 3] + (k / 30) as u8, (k / 3 % 2) as u8]]).unwrap());
        let records = records.finish().unwrap();
        let vectors = VectorType { element: Element::U8, dimensions: 2 };
        let (sample, space) = (TrainingSample { records, rows: 60 }, Space::plain(vectors, Metric::L2));
        assert_eq!(train::<u8>(&context, &sample, space, 1, 1).unwrap().centers.row(0)[..2], [87, 1]);
    }
}
