//! What a join needs in memory, and how it is divided.

use adjoin_kernels::Panel;

use super::calibration::{self, vectors_in_least};
use super::estimate::PairSample;
use super::margins;
use crate::geometry::Coordinate;
use crate::join::execution::{Queue, Verifier};
use crate::join::options::{Aim, JoinOptions};
use crate::load::{Buckets, Cache, LoadedBucket, coding_bytes, least_read_ahead, most_read_ahead};
use crate::plan::{BucketSizes, Needs, Rule};
use crate::sink::PairWriter;
use crate::source::IdKind;

/// The least that a join needs, whether floats are rounded or not, which is decided by vectors that are drawn.
pub(super) fn least_of_any(buckets: &Buckets<'_>, options: &JoinOptions, with_ids: bool) -> u64 {
    let of_bytes = least::<u8>(buckets, options, with_ids, 1);
    if !buckets.space().is_of_floats() {
        return of_bytes;
    }
    of_bytes.max(least::<f32>(buckets, options, with_ids, 1)).max(coding_bytes(buckets))
}

/// The least that a join needs with so many threads, whatever its passes over the buckets find.
pub(super) fn least<T: Coordinate>(
    buckets: &Buckets<'_>,
    options: &JoinOptions,
    with_ids: bool,
    threads: usize,
) -> u64 {
    let sizes = sizes::<T>(buckets, with_ids);
    let tasks = buckets.extents().len() as u64; // each with itself
    let run =
        needs::<T>(buckets, &sizes, with_ids, (tasks, sizes.two_largest())).least(threads, options.least_policy());
    let pass = match options.rule {
        Some(rule) if !rule.is_exact() => least_of_calibration::<T>(buckets, (rule, options.aim), threads),
        _ => margins::least_bytes::<T>(threads, buckets),
    };
    let planning = pass.max(PairSample::<T>::memory_bytes(buckets));
    run.max(centers_bytes::<T>(buckets) + planning)
}

/// The same where a calibration may come.
pub(super) fn least_to_calibrate<T: Coordinate>(
    buckets: &Buckets<'_>,
    options: &JoinOptions,
    with_ids: bool,
    threads: usize,
) -> u64 {
    let least = least::<T>(buckets, options, with_ids, threads);
    if options.aim == Aim::Every || options.rule.is_some() {
        return least;
    }
    let pass = least_of_calibration::<T>(buckets, (Rule::Union, options.aim), threads);
    least.max(centers_bytes::<T>(buckets) + pass)
}

/// The least that a calibration needs at first, beside the centers.
fn least_of_calibration<T: Coordinate>(buckets: &Buckets<'_>, (rule, aim): (Rule, Aim), threads: usize) -> u64 {
    let vectors = vectors_in_least(buckets, aim.target());
    calibration::least_bytes::<T>(buckets, rule, threads, vectors)
}

/// Bytes of the centers.
pub(super) fn centers_bytes<T: Coordinate>(buckets: &Buckets<'_>) -> u64 {
    Panel::<T>::bytes_for(buckets.extents().len(), buckets.vectors().dimensions)
}

/// Bytes of the buckets, on disk and in memory.
pub(super) fn sizes<T: Coordinate>(buckets: &Buckets<'_>, with_ids: bool) -> BucketSizes {
    let memory = |number| LoadedBucket::<T>::memory_bytes(buckets, number, with_ids);
    BucketSizes {
        extents: (0..buckets.count()).map(|number| buckets.read_bytes(number, with_ids)).collect(),
        memory: (0..buckets.count()).map(memory).collect(),
    }
}

/// What a run of so many tasks needs, with a cache of so many bytes at least.
pub(super) fn needs<T: Coordinate>(
    buckets: &Buckets<'_>,
    sizes: &BucketSizes,
    with_ids: bool,
    (tasks, least_cache): (u64, u64),
) -> Needs {
    let (dimensions, count, rows) = (buckets.vectors().dimensions, buckets.extents().len(), buckets.rows_max());
    let ids = (0..buckets.count()).any(|bucket| buckets.ids(bucket) != IdKind::None);
    let writer = if with_ids { PairWriter::memory_bytes(ids) } else { 0 };
    let extents = buckets.extents();
    Needs {
        fixed: centers_bytes::<T>(buckets) + Cache::<T>::table_bytes(count) + writer,
        a_worker: Verifier::<T>::memory_bytes(rows, dimensions) + LoadedBucket::<T>::loading_bytes(buckets, with_ids),
        tasks,
        queue: Queue::least(with_ids)..=Queue::most(with_ids),
        read_ahead: least_read_ahead(extents, with_ids)..=most_read_ahead(extents, with_ids),
        cache: least_cache..=sizes.memory.iter().sum::<u64>(),
    }
}
