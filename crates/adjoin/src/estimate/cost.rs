//! Predicts the time, memory and disk that a join of the source takes.
//!
//! Planning estimates the cost of its choices by the number of operations of each kind, times their weights
//! ([`Weights`]). The time in seconds is this cost, times the speed of this machine as measured by the scans, times
//! constants that were fitted to real runs.

use adjoin_kernels::Panel;
use serde::Serialize;

use super::compare::Compared;
use super::memory::FORESEEN;
use super::survey::{Scans, Survey};
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, Threshold};
use crate::base::report::Interval;
use crate::join::{Foresight, JoinEffort, UnopenedSet, least_of_unbuilt};
use crate::load::Members;
use crate::plan::{Choice, Costs, SetSize, Weights};
use crate::sink::TableFormat;
use crate::source::IdKind;
use crate::store::{BuildInput, BuildMemory, TwoLevel, build_distances, extent_rows_max, row_bytes, train};

/// Seconds that a run takes even if the set is small.
const FIXED_SECONDS: f64 = 0.2;
/// Nanoseconds that a build takes per byte of vectors, for checking, sorting and writing.
const BYTE_NANOSECONDS: f64 = 3.5;
/// Time of a join divided by the time of the operations that planning counts. Planning does not count loading,
/// decisions and waiting.
const EXACT_FACTOR: f64 = 1.15;
const CALIBRATED_FACTOR: f64 = 1.7;
/// Fraction of the time of a build, and of writing pairs, that wider registers do not reduce, such as sorting and
/// reading.
const NOT_SCALED: f64 = 0.45;
/// Number of dimensions for which wider registers speed up half of the work of a distance.
const HALF_SCALED_DIMENSIONS: f64 = 22.0;
/// Nanoseconds to write a pair with integer ids, and with text ids.
const PAIR_NANOSECONDS: f64 = 110.0;
const TEXT_PAIR_NANOSECONDS: f64 = 230.0;
/// Size of a Parquet file of pairs, divided by its predicted size. It varies, since the order in which pairs are
/// found affects how well ids compress. For 40 results of 10,000 to 16M pairs, it was 0.89 to 1.2.
const COMPRESSED: Interval = Interval { estimate: 1.0, low: 0.85, high: 1.25 };
/// Maximum factor by which real runs were faster or slower than the estimate.
const OFF: f64 = 2.0;
/// Approximate size of the largest bucket, divided by the mean size.
const LARGEST_BUCKET: u64 = 4;
/// Memory that a build needs for its rows, divided by the bytes of the rows. It is above 1, since rows are in blocks
/// that are not full. For 9 sets of 0.1M to 10M rows, it was 1.5 to 2.1.
const HELD: Interval = Interval { estimate: 1.8, low: 1.0, high: 2.2 };
/// Memory of a build that scans its source once, relative to the bytes of its rows. On 4 sets it was 1.0 to 1.4.
const HELD_AT_ONCE: Interval = Interval { estimate: 1.1, low: 1.0, high: 1.6 };
/// The size of a bucket is rounded up to a multiple of this.
const BLOCK_BYTES: u64 = 4_096;
/// Bytes of a bucket's header, its entry in the table, and the padding to the next bucket.
const BUCKET_BYTES: u64 = 512;

/// Memory and disk of a join with any threshold, in bytes. The bounds cover what is unknown before the build: the size
/// of the largest bucket, how full blocks of rows are, and the rounding of buckets.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Footprint {
    /// Approximate smallest budget with which a join can run. The estimate is the budget that a refused join at the
    /// default recall names if it writes pairs.
    pub least_memory_bytes: Interval,
    /// Approximate memory that a join would use, if it had the budget that was given to the estimate.
    pub memory_bytes: Interval,
    /// Size of the temporary store that a join of a source builds.
    pub store_bytes: Interval,
    /// Bytes that this build writes to other temporary files, if it has the budget of the estimate.
    pub spill_bytes: Interval,
}

/// Predicts the time to find the pairs within a threshold.
pub(super) struct Clock<'a, T: Coordinate> {
    foresight: Foresight<'a, T>,
    aim: JoinEffort,
    /// Seconds that finding pairs takes with all threads on this machine, per unit of cost ([`Weights`] count
    /// nanoseconds of one core).
    rate: f64,
    build_seconds: f64,
    rows: u64,
    pair_seconds: f64,
    pair_bytes: f64,
}

impl<'a, T: Coordinate> Clock<'a, T> {
    /// Creates the predictor. To do so, assigns some of the compared rows to buckets, as a build would. `nanoseconds`
    /// is the measured time of one distance on one thread.
    pub(super) fn new(compared: &Compared<'a, T>, survey: &Survey, nanoseconds: f64, aim: JoinEffort) -> Result<Self> {
        let Scans { context, options, sizes, source } = compared.scans;
        let (space, rows) = (compared.space, survey.scanned.usable_rows);
        let vectors = sample_panel(compared);
        let trained = train::<T>(context, &survey.training, space, sizes.centers, options.seed)?;
        let nearest = TwoLevel::new(context.kernel, &trained.centers).nearest_of(context, &vectors)?;
        let dimensions = space.vectors.dimensions;
        let nearest = nearest.iter().map(|nearest| (nearest.center, T::at_most(nearest.squared, dimensions))).collect();
        let size = SetSize { rows, buckets: sizes.buckets };
        let foresight = Foresight::new(context.kernel, space, vectors, nearest, &trained.centers, size);

        // The weights were measured on one machine. They are scaled by the time of a distance on this machine.
        let weights = Weights::of(!T::is_float(), dimensions);
        let measured = nanoseconds / weights.tile();
        let scaled = |not: f64| (not + (1.0 - not) * measured) * 1e-9;
        let speed = scaled(NOT_SCALED);
        let of_distances = scaled(HALF_SCALED_DIMENSIONS / (HALF_SCALED_DIMENSIONS + dimensions as f64));
        let threads = context.threads as f64;
        let bytes = rows as f64 * space.vectors.bytes() as f64;
        let build_seconds = FIXED_SECONDS
            + 2.0 * survey.scan_seconds
            + bytes * BYTE_NANOSECONDS * speed
            + build_distances(rows, sizes.buckets) * weights.center() * speed / threads;
        let of_text = source.info().ids == IdKind::Utf8;
        let a_pair = if of_text { TEXT_PAIR_NANOSECONDS } else { PAIR_NANOSECONDS };
        Ok(Self {
            foresight,
            aim,
            rate: of_distances / threads,
            build_seconds,
            rows,
            pair_seconds: a_pair * speed,
            pair_bytes: TableFormat::parquet_bytes_of_a_pair(survey.id_bytes as f64 / rows as f64),
        })
    }

    /// Returns the method by which a join with a threshold would find its pairs.
    pub(super) fn way(&self, threshold: &Threshold) -> Way {
        let (choice, costs) = self.foresight.choice(threshold, self.aim);
        Way { choice, costs, recall: if matches!(choice, Choice::Exact) { 1.0 } else { self.aim.target() } }
    }

    /// Returns the seconds of a join that writes its pairs, given the number of pairs within the threshold.
    pub(super) fn seconds(&self, method: &Way, pairs: Interval) -> Interval {
        let Costs { exact, approximate, a_vector } = method.costs;
        // If there are fewer pairs, a calibration samples more vectors, so the join may take longer.
        let seconds = |pairs: f64, test: usize| {
            let find = match method.choice {
                Choice::Exact => exact * EXACT_FACTOR,
                Choice::Calibrated { .. } => {
                    let neighbors = 2.0 * pairs / self.rows as f64;
                    let drawn = self.foresight.drawn(self.rows, neighbors, self.aim)[test] as f64;
                    // If the calibration would cost more than an exact join, the join is exact.
                    ((approximate + drawn * a_vector) * CALIBRATED_FACTOR).min(exact * EXACT_FACTOR)
                }
            };
            self.build_seconds + find * self.rate + pairs * self.pair_seconds
        };
        let estimate = seconds(pairs.estimate, 0);
        let others =
            [(pairs.low, 0), (pairs.low, 1), (pairs.high, 0), (pairs.high, 1)].map(|(n, test)| seconds(n, test));
        Interval {
            estimate,
            low: others.into_iter().fold(estimate / OFF, f64::min),
            high: others.into_iter().fold(estimate * OFF, f64::max),
        }
    }

    /// Returns the size of the pairs as a Parquet file.
    pub(super) fn bytes(&self, pairs: Interval) -> Interval {
        let bytes = |pairs: f64, times: f64| TableFormat::PARQUET_BYTES + pairs * self.pair_bytes * times;
        Interval {
            estimate: bytes(pairs.estimate, COMPRESSED.estimate),
            low: bytes(pairs.low, COMPRESSED.low),
            high: bytes(pairs.high, COMPRESSED.high),
        }
    }
}

/// Method by which a join would find its pairs.
pub(super) struct Way {
    choice: Choice,
    costs: Costs,
    /// Minimum fraction of the pairs that the method finds.
    pub(super) recall: f64,
}

/// Returns some of the compared rows, evenly spread.
fn sample_panel<T: Coordinate>(compared: &Compared<'_, T>) -> Panel<T> {
    let panel = &compared.members.panel;
    let count = panel.rows().min(FORESEEN);
    let mut some = Panel::zeroed(count, panel.dimensions());
    for k in 0..count {
        some.row_mut(k).copy_from_slice(&panel.row(k * panel.rows() / count)[..panel.dimensions()]);
    }
    some
}

impl Footprint {
    /// Predicts a join with a budget that has `free` bytes for buffers.
    pub(super) fn new<T: Coordinate>(scans: &Scans<'_>, survey: &Survey, free: u64) -> Self {
        let Scans { context, options, sizes, source } = *scans;
        let (info, rows) = (source.info(), survey.scanned.usable_rows);
        let (vectors, buckets) = (info.vectors, sizes.buckets);
        let mean = rows.div_ceil(buckets);
        let most = extent_rows_max(rows, buckets, vectors).min(rows);
        let run_with = |largest: u64| {
            let rows_max = largest.clamp(mean, most.max(mean));
            least_of_unbuilt::<T>(vectors, options.metric, rows_max, buckets, info.ids)
        };
        let input = BuildInput::of(context, source, options);
        let foreseen = BuildMemory::foresee::<T>(context.threads, input, survey.id_bytes, free);
        let build = foreseen.least;
        let outside = context.memory_bytes() - context.budget().total().min(context.memory_bytes());
        let records = rows * (row_bytes(vectors) + BUCKET_BYTES / 64) + survey.id_bytes;
        let all = run_with(LARGEST_BUCKET * mean)
            + Members::<T>::memory_bytes(rows, Space::plain(vectors, options.metric))
            + rows * size_of::<u64>() as u64;
        let times = if foreseen.holds_rows { HELD_AT_ONCE } else { HELD };
        let held = |times: f64| all.max(build + (records as f64 * times) as u64).min(free) as f64;
        let least = |run: u64| context.least_budget(build.max(run)) as f64;
        let suffices = UnopenedSet::of_source(source, options).join_bytes(true, JoinEffort::Unsaid.target());
        let stored = rows * row_bytes(vectors) + survey.id_bytes;
        let store_of = |a_bucket: u64| (stored + buckets * a_bucket) as f64;
        Self {
            least_memory_bytes: Interval {
                estimate: least(suffices),
                low: least(run_with(mean).min(suffices)),
                high: least(run_with(most).max(suffices)),
            },
            memory_bytes: Interval {
                estimate: outside as f64 + held(times.estimate),
                low: held(times.low), // memory outside the budget is reserved, but may remain unused
                high: outside as f64 + held(times.high),
            },
            store_bytes: Interval {
                estimate: store_of(BUCKET_BYTES),
                low: stored as f64,
                high: store_of(BUCKET_BYTES + BLOCK_BYTES),
            },
            spill_bytes: foreseen.spilled(),
        }
    }
}
