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
/// Where fewer vectors than this share have neighbors, a calibration may have to look at all centers around each. It does
/// so in some sets and not in others.
const SHARE_SPARSE: f64 = 0.04;
const SPARSE_FACTOR: f64 = 0.5;
/// To write a pair, with ids of numbers and with those of text, in nanoseconds.
const PAIR_NANOSECONDS: f64 = 110.0;
const TEXT_PAIR_NANOSECONDS: f64 = 230.0;
/// Real runs took between the estimate divided and multiplied by this.
const OFF: f64 = 2.0;
/// Bytes of the largest bucket, in multiples of the mean one, about.
const LARGEST_BUCKET: u64 = 4;
/// Bytes of a bucket's head and of its place in the table, up to where the next begins.
const BUCKET_BYTES: u64 = 512;

/// Memory and disk of a join whatever its threshold, in bytes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Footprint {
    /// The least budget, about.
    pub least_memory_bytes: u64,
    /// What a join would hold of the budget that the estimate was given, about.
    pub memory_bytes: u64,
    /// The store that a join of a source builds in a temporary place.
    pub store_bytes: u64,
    /// What that writes to temporary files beside it, with this budget.
    pub spill_bytes: u64,
}

/// How long it takes to find pairs within a threshold.
pub(super) struct Clock<'a, T: Coordinate> {
    foresight: Foresight<'a, T>,
    aim: JoinEffort,
    /// Seconds for each nanosecond of a core that [`Weights`] speak of, on this machine with its threads.
    rate: f64,
    build_seconds: f64,
    /// Distances of all vectors to all centers, weighed.
    all_centers: f64,
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
            all_centers: (rows * sizes.buckets) as f64 * weights.center(),
            pair_seconds: a_pair * speed,
            pair_bytes: TableFormat::parquet_bytes_of_a_pair(survey.id_bytes as f64 / rows as f64),
        })
    }

    /// Of a join that writes its pairs, where this share of the vectors has neighbors.
    pub(super) fn seconds(&self, threshold: &Threshold, pairs: Interval, share: f64) -> Interval {
        let (choice, Costs { exact, approximate, a_vector }, sample) = self.foresight.choice(threshold, self.aim);
        let (find, more) = match choice {
            Choice::Exact(_) => (exact * EXACT_FACTOR, 0.0),
            Choice::Calibrated { .. } => {
                let sparse = if share < SHARE_SPARSE { self.all_centers * SPARSE_FACTOR } else { 0.0 };
                ((approximate + sample as f64 * a_vector) * CALIBRATED_FACTOR + sparse, sparse)
            }
        };
        let seconds = |pairs: f64| self.build_seconds + find * self.rate + pairs * self.pair_seconds;
        let estimate = seconds(pairs.estimate);
        Interval {
            estimate,
            low: (estimate / OFF).min(seconds(pairs.low)),
            high: (estimate * OFF).max(seconds(pairs.high)) + more * self.rate,
        }
    }

    /// Bytes of the pairs as a Parquet file.
    pub(super) fn bytes(&self, pairs: Interval) -> Interval {
        let of = |pairs: f64| TableFormat::PARQUET_BYTES + pairs * self.pair_bytes;
        Interval { estimate: of(pairs.estimate), low: of(pairs.low), high: of(pairs.high) }
    }
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
        let largest = (LARGEST_BUCKET * rows.div_ceil(buckets)).min(extent_rows_max(rows, buckets, vectors)).min(rows);
        let run = least_of_unbuilt::<T>(vectors, options.metric, (largest, buckets), info.ids);
        let (build, spill_bytes) =
            BuildMemory::foresee::<T>(context.threads, (source, options), (survey.id_bytes, free));
        let outside = context.memory_bytes() - context.budget().total().min(context.memory_bytes());
        let least = build.max(run);
        let records = rows * (row_bytes(vectors) + BUCKET_BYTES / 64) + survey.id_bytes;
        let all = run
            + Members::<T>::memory_bytes(rows, Space::plain(vectors, options.metric))
            + rows * size_of::<u64>() as u64;
        Self {
            least_memory_bytes: least + RUNTIME_BYTES,
            memory_bytes: outside + all.max(build + records).min(free),
            store_bytes: rows * row_bytes(vectors) + survey.id_bytes + buckets * BUCKET_BYTES,
            spill_bytes,
        }
    }
}
