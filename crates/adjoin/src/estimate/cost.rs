//! What a join of the source would take: time, memory and disk.
//!
//! Planning weighs its choices by the number of operations of each kind ([`Weights`]). The same weights, times how long
//! such operations take on this machine as the scans measured it, and some constants that real runs taught, make seconds.

use adjoin_kernels::Panel;
use serde::Serialize;

use super::compare::Compared;
use super::memory::FORESEEN;
use super::survey::{Scans, Survey};
use crate::context::RUNTIME_BYTES;
use crate::error::Result;
use crate::geometry::{Coordinate, Space, Threshold};
use crate::join::{Foresight, JoinEffort, least_of_unbuilt};
use crate::load::Members;
use crate::plan::{Choice, Costs, Weights};
use crate::report::Interval;
use crate::sink::TableFormat;
use crate::source::IdKind;
use crate::store::{BuildMemory, TwoLevel, build_distances, extent_rows_max, row_bytes, train};

/// Of a run: what it takes however small the set is, in seconds.
const FIXED_SECONDS: f64 = 0.12;
/// Of a build: for each byte of vectors what it takes to check, sort and write it, in nanoseconds.
const BYTE_NANOSECONDS: f64 = 3.5;
/// How many times as long what planning weighs takes with all that it does not: loading, decisions, waiting.
const EXACT_FACTOR: f64 = 1.5;
const CALIBRATED_FACTOR: f64 = 2.4;
/// To write a pair, with ids of numbers and with those of text, in nanoseconds.
const PAIR_NANOSECONDS: f64 = 110.0;
const TEXT_PAIR_NANOSECONDS: f64 = 230.0;
/// How many times the bytes that are expected of a pair a Parquet file has: ids of pairs compress better or worse by the order in
/// which the pairs are found. On 40 results of 10,000 to 16M pairs it was 0.89 to 1.2.
const COMPRESSED: Interval = Interval { estimate: 1.0, low: 0.85, high: 1.25 };
/// Real runs took between the estimate divided and multiplied by this.
const OFF: f64 = 2.0;
/// Bytes of the largest bucket, in multiples of the mean one, about.
const LARGEST_BUCKET: u64 = 4;
/// How many times the bytes of its rows a build in memory holds: rows lie in blocks that are not full. On 9 sets of 0.1M to 10M
/// rows it was 1.5 to 2.1.
const HELD: Interval = Interval { estimate: 1.8, low: 1.0, high: 2.2 };
/// Bytes to which a bucket is rounded up.
const BLOCK_BYTES: u64 = 4_096;
/// Bytes of a bucket's head and of its place in the table, up to where the next begins.
const BUCKET_BYTES: u64 = 512;

/// Memory and disk of a join whatever its threshold, in bytes; the bounds are those of what is not known before the build:
/// the size of the largest bucket, how full blocks of rows are, and how much buckets are rounded up.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Footprint {
    /// The least budget, about.
    pub least_memory_bytes: Interval,
    /// What a join would hold of the budget that the estimate was given, about.
    pub memory_bytes: Interval,
    /// The store that a join of a source builds in a temporary place.
    pub store_bytes: Interval,
    /// What that writes to temporary files beside it, with this budget.
    pub spill_bytes: Interval,
}

/// How long it takes to find pairs within a threshold.
pub(super) struct Clock<'a, T: Coordinate> {
    foresight: Foresight<'a, T>,
    aim: JoinEffort,
    /// Seconds for each nanosecond of a core that [`Weights`] speak of, on this machine with its threads.
    rate: f64,
    build_seconds: f64,
    rows: u64,
    /// Distances of a drawn vector to the centers of all buckets, weighed.
    centers_a_vector: f64,
    pair_seconds: f64,
    pair_bytes: f64,
}

impl<'a, T: Coordinate> Clock<'a, T> {
    /// Places some of the compared rows in buckets such as a build would make. `nanoseconds` are those of a distance between
    /// drawn vectors and others, on one thread.
    pub(super) fn new(compared: &Compared<'a, T>, survey: &Survey, nanoseconds: f64, aim: JoinEffort) -> Result<Self> {
        let Scans { context, options, sizes, source } = compared.scans;
        let (space, rows) = (compared.space, survey.scanned.usable_rows);
        let vectors = sample_panel(compared);
        let trained = train::<T>(context, &survey.training, space, sizes.centers, true, options.seed)?;
        let nearest = TwoLevel::new(context.kernel, &trained.centers).nearest_of(context, &vectors)?;
        let dimensions = space.vectors.dimensions;
        let placed = nearest.iter().map(|nearest| (nearest.center, T::at_most(nearest.squared, dimensions))).collect();
        let of_set = (rows, sizes.buckets);
        let foresight = Foresight::new(context.kernel, space, (vectors, placed), &trained.centers, of_set);

        let weights = Weights::of(!T::is_float(), dimensions);
        let speed = nanoseconds / weights.sampled() * 1e-9;
        let rate = speed / context.threads as f64;
        let bytes = rows as f64 * space.vectors.bytes() as f64;
        let build_seconds = FIXED_SECONDS
            + 2.0 * survey.scan_seconds
            + bytes * BYTE_NANOSECONDS * speed
            + build_distances(rows, sizes.buckets) * weights.center() * rate;
        let of_text = source.info().ids == IdKind::Utf8;
        let a_pair = if of_text { TEXT_PAIR_NANOSECONDS } else { PAIR_NANOSECONDS };
        Ok(Self {
            foresight,
            aim,
            rate,
            build_seconds,
            rows,
            centers_a_vector: sizes.buckets as f64 * weights.sampled(),
            pair_seconds: a_pair * speed,
            pair_bytes: TableFormat::parquet_bytes_of_a_pair(survey.id_bytes as f64 / rows as f64),
        })
    }

    /// How a join with a threshold would find its pairs.
    pub(super) fn way(&self, threshold: &Threshold) -> Way {
        let (choice, costs) = self.foresight.choice(threshold, self.aim);
        Way { choice, costs, recall: if matches!(choice, Choice::Exact(_)) { 1.0 } else { self.aim.target() } }
    }

    /// Returns the seconds of a join that writes its pairs, of which there are so many within the threshold.
    pub(super) fn seconds(&self, way: &Way, pairs: Interval) -> Interval {
        let Costs { exact, approximate, a_vector } = way.costs;
        // Fewer pairs make a calibration draw more vectors, so that a join of few pairs may take longer.
        let seconds = |pairs: f64, test: usize| {
            let find = match way.choice {
                Choice::Exact(_) => exact * EXACT_FACTOR,
                Choice::Calibrated { .. } => {
                    let neighbors = 2.0 * pairs / self.rows as f64;
                    let drawn = self.foresight.drawn(self.rows, neighbors, self.aim)[test] as f64;
                    (approximate + drawn * (a_vector + self.centers_a_vector)) * CALIBRATED_FACTOR
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

    /// Bytes of the pairs as a Parquet file.
    pub(super) fn bytes(&self, pairs: Interval) -> Interval {
        let bytes = |pairs: f64, times: f64| TableFormat::PARQUET_BYTES + pairs * self.pair_bytes * times;
        Interval {
            estimate: bytes(pairs.estimate, COMPRESSED.estimate),
            low: bytes(pairs.low, COMPRESSED.low),
            high: bytes(pairs.high, COMPRESSED.high),
        }
    }
}

/// How a join would find its pairs.
pub(super) struct Way {
    choice: Choice,
    costs: Costs,
    /// The least fraction of the pairs that it finds.
    pub(super) recall: f64,
}

/// Some of the compared rows, evenly.
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
    /// Of a join with a budget of which `free` bytes are for buffers.
    pub(super) fn new<T: Coordinate>(scans: &Scans<'_>, survey: &Survey, free: u64) -> Self {
        let Scans { context, options, sizes, source } = *scans;
        let (info, rows) = (source.info(), survey.scanned.usable_rows);
        let (vectors, buckets) = (info.vectors, sizes.buckets);
        let mean = rows.div_ceil(buckets);
        let most = extent_rows_max(rows, buckets, vectors).min(rows);
        let run_with = |largest: u64| {
            least_of_unbuilt::<T>(vectors, options.metric, (largest.clamp(mean, most.max(mean)), buckets), info.ids)
        };
        let foreseen = BuildMemory::foresee::<T>(context.threads, (source, options), (survey.id_bytes, free));
        let build = foreseen.least;
        let outside = context.memory_bytes() - context.budget().total().min(context.memory_bytes());
        let records = rows * (row_bytes(vectors) + BUCKET_BYTES / 64) + survey.id_bytes;
        let all = run_with(LARGEST_BUCKET * mean)
            + Members::<T>::memory_bytes(rows, Space::plain(vectors, options.metric))
            + rows * size_of::<u64>() as u64;
        let held = |times: f64| all.max(build + (records as f64 * times) as u64).min(free) as f64;
        let least = |largest: u64| (build.max(run_with(largest)) + RUNTIME_BYTES) as f64;
        let stored = rows * row_bytes(vectors) + survey.id_bytes;
        let store_of = |a_bucket: u64| (stored + buckets * a_bucket) as f64;
        Self {
            least_memory_bytes: Interval {
                estimate: least(LARGEST_BUCKET * mean),
                low: least(mean),
                high: least(most),
            },
            memory_bytes: Interval {
                estimate: outside as f64 + held(HELD.estimate),
                low: held(HELD.low), // what is outside the budget is reserved, and need not be used
                high: outside as f64 + held(HELD.high),
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
