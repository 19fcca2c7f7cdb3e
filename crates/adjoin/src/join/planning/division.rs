//! Computes the memory of a join, and divides it among the parts of a run.

use adjoin_kernels::Panel;

use super::calibration::{self, vectors_in_least};
use super::estimate::PairSample;
use super::margins;
use crate::base::geometry::Coordinate;
use crate::join::execution::{Queue, Verifier};
use crate::join::options::{JoinEffort, JoinOptions};
use crate::load::{Buckets, Cache, LoadedBucket, coding_bytes, least_read_ahead, most_read_ahead};
use crate::plan::{BucketSizes, Needs, Policy, Steps};
use crate::sink::PairWriter;
use crate::source::IdKind;
use crate::store::format::Extent;

/// Returns the least memory of a join in bytes. It suffices no matter whether floats are rounded, which is decided
/// later with sampled vectors.
pub(super) fn least_of_any(buckets: &Buckets<'_>, options: &JoinOptions, with_ids: bool) -> u64 {
    let of_bytes = least::<u8>(buckets, options, with_ids, 1);
    if !buckets.space().is_of_floats() {
        return of_bytes;
    }
    of_bytes.max(least::<f32>(buckets, options, with_ids, 1)).max(coding_bytes(buckets))
}

/// Returns an upper bound on the memory of a join in bytes, which holds for most results of planning. A refusal before
/// planning names it. It includes a calibration, which may not be needed, and an assumed number of edges per bucket.
pub(super) fn advised(buckets: &Buckets<'_>, options: &JoinOptions, with_ids: bool) -> u64 {
    let count = buckets.extents().len() as u64;
    // There are never more edges than pairs of buckets.
    let edges = (count * count / 2).min(count * EDGES_A_BUCKET) * EDGE_BYTES;
    let of_writer = if with_ids { kept_of_pairs(buckets.rows(), id_bytes_of(buckets)) } else { 0 };
    let edges = edges + of_writer;
    let of_bytes = least_to_calibrate::<u8>(buckets, options, with_ids, 1);
    if !buckets.space().is_of_floats() {
        return edges + of_bytes;
    }
    let of_floats = least_to_calibrate::<f32>(buckets, options, with_ids, 1);
    edges + of_bytes.max(of_floats).max(coding_bytes(buckets))
}

/// Number of edges per bucket that a bound on the memory assumes, and bytes per edge in the graph and the schedule.
pub(super) const EDGES_A_BUCKET: u64 = 32;
pub(super) const EDGE_BYTES: u64 = 16;
/// Number of result pairs that a bound on the memory assumes, and the additional number for each row.
const PAIRS: u64 = 4 << 20;
const PAIRS_A_ROW: u64 = 32;

/// Returns the expected memory in bytes that a result holds about its pairs until its file is complete.
pub(super) fn kept_of_pairs(rows: u64, id_bytes: u64) -> u64 {
    PairWriter::metadata_bytes(PAIRS + PAIRS_A_ROW * rows, id_bytes)
}

/// Returns the mean bytes of an id.
fn id_bytes_of(buckets: &Buckets<'_>) -> u64 {
    buckets.extents().iter().map(|extent| extent.id_bytes).sum::<u64>() / buckets.rows().max(1)
}

/// Returns the least memory in bytes of a join with `threads` threads, for any result of its passes over the buckets.
pub(super) fn least<T: Coordinate>(
    buckets: &Buckets<'_>,
    options: &JoinOptions,
    with_ids: bool,
    threads: usize,
) -> u64 {
    let sizes = sizes::<T>(buckets, with_ids);
    let tasks = buckets.extents().len() as u64; // at least the comparison of each bucket with itself
    let run = needs::<T>(buckets, &sizes, with_ids, RunSize { tasks, results: 0 }, sizes.two_largest())
        .least(threads, Policy::Lru);
    let pass = match options.rule {
        Some(rule) if !rule.is_exact() => least_of_calibration::<T>(buckets, options.aim, threads),
        _ => margins::least_bytes::<T>(threads, buckets),
    };
    let planning = pass.max(PairSample::<T>::memory_bytes(buckets));
    // The run follows the planning, so only the larger of both counts.
    run.max(centers_bytes::<T>(buckets) + planning)
}

/// Returns the least memory of a join in bytes, including a calibration if one may be needed.
pub(super) fn least_to_calibrate<T: Coordinate>(
    buckets: &Buckets<'_>,
    options: &JoinOptions,
    with_ids: bool,
    threads: usize,
) -> u64 {
    let least = least::<T>(buckets, options, with_ids, threads);
    // If the rule is given, `least` includes its calibration.
    if options.aim == JoinEffort::Every || options.rule.is_some() {
        return least;
    }
    let pass = least_of_calibration::<T>(buckets, options.aim, threads);
    least.max(centers_bytes::<T>(buckets) + pass)
}

/// Returns the least memory in bytes of the first step of a calibration, without the centers.
fn least_of_calibration<T: Coordinate>(buckets: &Buckets<'_>, aim: JoinEffort, threads: usize) -> u64 {
    let vectors = vectors_in_least(buckets.rows(), buckets.promised().len() as u64, aim.target());
    calibration::least_bytes::<T>(buckets, threads, vectors)
}

/// Returns the bytes of the centers.
pub(super) fn centers_bytes<T: Coordinate>(buckets: &Buckets<'_>) -> u64 {
    Panel::<T>::bytes_for(buckets.extents().len(), buckets.vectors().dimensions)
}

/// Returns the bytes of the buckets, on disk and in memory.
pub(super) fn sizes<T: Coordinate>(buckets: &Buckets<'_>, with_ids: bool) -> BucketSizes {
    let memory = |number| LoadedBucket::<T>::memory_bytes(buckets, number, with_ids);
    BucketSizes {
        extents: (0..buckets.count()).map(|number| buckets.read_bytes(number, with_ids)).collect(),
        memory: (0..buckets.count()).map(memory).collect(),
    }
}

/// Bytes of thread stacks, and of freed small blocks that the allocator of the system keeps per thread.
/// `THREADS_BYTES` is for the calling thread and the reader together, `WORKER_BYTES` for each worker.
pub(super) const THREADS_BYTES: u64 = 640 << 10;
pub(super) const WORKER_BYTES: u64 = 384 << 10;

/// Returns the memory in bytes that a run holds for all buckets, no matter whether they are loaded:
/// - the table of the cache and its steps,
/// - the steps again, which the reader simulates if future uses are not known,
/// - sizes on disk and in memory, and
/// - the extents again if there are two stores.
pub(super) fn tables_bytes_of<T: Coordinate>(count: usize, sets: usize) -> u64 {
    let extents = if sets > 1 { size_of::<Extent>() } else { 0 };
    let sizes = 3 * size_of::<u64>(); // including a sorted copy, for the least cache
    Cache::<T>::table_bytes(count) + (count * (Steps::BYTES_A_BUCKET + sizes + extents)) as u64
}

/// Extent of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunSize {
    /// Number of tasks: edges, and buckets that are compared with themselves.
    pub(super) tasks: u64,
    /// Expected number of result pairs.
    pub(super) results: u64,
}

/// Returns the memory needs of a run with a cache of at least `least_cache` bytes.
pub(super) fn needs<T: Coordinate>(
    buckets: &Buckets<'_>,
    sizes: &BucketSizes,
    with_ids: bool,
    run: RunSize,
    least_cache: u64,
) -> Needs {
    let (dimensions, count, rows) = (buckets.vectors().dimensions, buckets.extents().len(), buckets.rows_max());
    let ids = (0..buckets.count()).any(|bucket| buckets.ids(bucket) != IdKind::None);
    let id_bytes = id_bytes_of(buckets);
    let writer =
        if with_ids { PairWriter::memory_bytes(ids) + PairWriter::metadata_bytes(run.results, id_bytes) } else { 0 };
    let extents = buckets.extents();
    Needs {
        fixed: centers_bytes::<T>(buckets)
            + tables_bytes_of::<T>(count, buckets.parts().len())
            + writer
            + THREADS_BYTES,
        a_worker: Verifier::<T>::memory_bytes(rows, dimensions)
            + LoadedBucket::<T>::loading_bytes(buckets, with_ids)
            + WORKER_BYTES,
        tasks: run.tasks,
        queue: Queue::least(with_ids)..=Queue::most(with_ids),
        read_ahead: least_read_ahead(extents, with_ids)..=most_read_ahead(extents, with_ids),
        cache: least_cache..=sizes.memory.iter().sum::<u64>(),
    }
}
