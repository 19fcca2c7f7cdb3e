//! Predicts the decisions of planning for vectors of which no store has been built.

use adjoin_kernels::{Kernel, Panel};

use super::calibration::{bytes_of_certified, vectors_drawn, vectors_foreseen, vectors_in_least};
use super::comparison::Comparison;
use super::division::{EDGE_BYTES, EDGES_A_BUCKET, THREADS_BYTES, WORKER_BYTES, kept_of_pairs, tables_bytes_of};
use super::drawn_groups::DrawnGroups;
use super::estimate::{PairSample, Placed, pairs_of};
use super::margins::MARGIN_BYTES_MIN;
use super::neighbors::{neighbors_bytes, noted_bound};
use crate::base::geometry::{Coordinate, Space, Threshold};
use crate::base::options::{Metric, VectorType};
use crate::join::execution::{Queue, Verifier};
use crate::join::options::JoinEffort;
use crate::load::{Cache, Members};
use crate::plan::{BucketPairsToVisit, Choice, Costs, RuleTarget, SetSize, Weights, choose};
use crate::sink::PairWriter;
use crate::source::{IdKind, VectorSource};
use crate::store::{BuildOptions, Role, StoreManifest, default_buckets, extent_rows_max, row_bytes};

/// A sample of a set. Its vectors are assigned to centers that approximate the buckets of a build.
pub(crate) struct Foresight<'a, T: Coordinate> {
    pairs: PairSample<T>,
    space: Space<'a>,
}

impl<'a, T: Coordinate> Foresight<'a, T> {
    /// Creates the sample from sampled vectors. `nearest` has the nearest center of each vector, and the squared
    /// distance to it. `size` has the number of rows of the whole set, and the number of buckets that a build would
    /// create.
    pub(crate) fn new(
        kernel: Kernel,
        space: Space<'a>,
        vectors: Panel<T>,
        nearest: Vec<(u32, f64)>,
        centers: &Panel<T>,
        size: SetSize,
    ) -> Self {
        let SetSize { rows, buckets } = size;
        let (bucket_numbers, own) = nearest.into_iter().unzip();
        let placed = Placed { vectors, buckets: bucket_numbers, own };
        // The sizes of the buckets are not known, so they are assumed to be equal.
        let own_pairs = pairs_of(rows.div_ceil(buckets.max(1))).saturating_mul(buckets).min(pairs_of(rows));
        let pairs = PairSample::new(kernel, placed, centers, own_pairs, BucketPairsToVisit::within(size));
        Self { pairs, space }
    }

    /// Returns the method that a join with this threshold would choose, and the expected costs of all methods.
    pub(crate) fn choice(&self, threshold: &Threshold, aim: JoinEffort) -> (Choice, Costs) {
        let weights = Weights::of(!T::is_float(), self.space.vectors.dimensions);
        let (recall, patience) = (aim.target(), aim.patience());
        let facts = self.pairs.facts(threshold, self.space.residual_seen(), recall);
        let costs = Costs::of(&facts, &weights);
        if recall >= 1.0 || threshold.distance == 0.0 {
            return (Choice::Exact, costs);
        }
        let sample = vectors_foreseen(facts.meets.rows, facts.results, recall);
        (choose(&facts, RuleTarget { recall, patience, sample }, &weights), costs)
    }

    /// Returns the number of vectors that a calibration samples from `rows` rows: if its first test succeeds, and if
    /// only its last one does.
    pub(crate) fn drawn(&self, rows: u64, neighbors: f64, aim: JoinEffort) -> [u64; 2] {
        let drawn = vectors_drawn(rows, neighbors, aim.target());
        [drawn[0], drawn[drawn.len() - 1]]
    }
}

/// Estimates the least memory of a join for a store of `buckets` buckets, the largest of which has `rows_max` rows.
pub(crate) fn least_of_unbuilt<T: Coordinate>(
    vectors: VectorType,
    metric: Metric,
    rows_max: u64,
    buckets: u64,
    ids: IdKind,
) -> u64 {
    let (dimensions, rows) = (vectors.dimensions, rows_max as usize);
    let centers = Panel::<T>::bytes_for(buckets as usize, dimensions);
    let bucket = Members::<T>::memory_bytes(rows_max, Space::plain(vectors, metric)) + rows_max * BYTES_A_MEMBER;
    let stored = rows_max * vectors.bytes() as u64;
    let worker = Verifier::<T>::memory_bytes(rows, dimensions).max(Comparison::<T>::memory_bytes(rows, dimensions));
    let writer = PairWriter::memory_bytes(ids != IdKind::None);
    centers + Cache::<T>::table_bytes(buckets as usize) + writer + worker + Queue::least(true) + stored + 2 * bucket
}

/// Properties of a set without an open store. They determine the memory of a join.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnopenedSet {
    pub(crate) vectors: VectorType,
    pub(crate) metric: Metric,
    pub(crate) rows: u64,
    pub(crate) buckets: u64,
    /// Approximate bytes of an id.
    pub(crate) id_bytes: u64,
}

impl UnopenedSet {
    /// Returns the approximate properties of the store that would be built from a source.
    pub(crate) fn of_source(source: &dyn VectorSource, options: &BuildOptions) -> Self {
        let info = source.info();
        let buckets = options.buckets.unwrap_or(default_buckets(info.rows)).into();
        let id_bytes = match info.ids {
            IdKind::None => 0,
            IdKind::Int64 => 8,
            IdKind::Utf8 => source.id_bytes().unwrap_or(TEXT_ID_BYTES),
        };
        Self { vectors: info.vectors, metric: options.metric, rows: info.rows, buckets, id_bytes }
    }

    /// Returns the properties that the manifest of a store states.
    pub(crate) fn of_store(manifest: &StoreManifest) -> Self {
        let StoreManifest { vectors, metric, rows, buckets, .. } = *manifest;
        let stored = manifest.files[Role::Vectors].bytes / rows.max(1);
        let id_bytes = stored.saturating_sub(row_bytes(vectors));
        Self { vectors, metric, rows, buckets: buckets.into(), id_bytes }
    }

    /// Returns an approximate upper bound in bytes on the memory of a join of this set, for most results of planning.
    /// It is approximate because the size of the largest bucket is unknown. If two sets are joined, `rows` and
    /// `buckets` must be the totals of both. `recall` is the target of a calibration.
    pub(crate) fn join_bytes(&self, with_ids: bool, recall: f64) -> u64 {
        let plain = Space::plain(self.vectors, self.metric);
        let of_bytes = self.bytes_of::<u8>(with_ids, recall);
        if plain.is_of_floats() { of_bytes.max(self.bytes_of::<f32>(with_ids, recall)) } else { of_bytes }
    }

    fn bytes_of<T: Coordinate>(&self, with_ids: bool, recall: f64) -> u64 {
        let Self { vectors, metric, buckets, .. } = *self;
        let (space, id_bytes) = (Space::plain(vectors, metric), if with_ids { self.id_bytes } else { 0 });
        let (dimensions, count) = (space.dimensions(), buckets as usize);
        let mean = self.rows.div_ceil(buckets.max(1));
        let rows = extent_rows_max(self.rows, buckets.max(1), vectors).min(LARGEST_BUCKET * mean).min(self.rows);
        let members = |rows: u64| Members::<T>::memory_bytes(rows, space);
        let centers = Panel::<T>::bytes_for(count, dimensions);
        let bucket = members(rows) + rows * (BYTES_A_MEMBER + id_bytes) + BUCKET_MORE_BYTES;
        let read = rows * (row_bytes(vectors) + id_bytes) + BUCKET_MORE_BYTES;
        let edges = (buckets * buckets / 2).min(buckets * EDGES_A_BUCKET) * EDGE_BYTES;
        let kept = kept_of_pairs(self.rows, id_bytes);
        let writer = if with_ids { PairWriter::memory_bytes(id_bytes > 0) + kept } else { 0 };
        let worker = Verifier::<T>::memory_bytes(rows as usize, dimensions) + WORKER_BYTES;
        let run = tables_bytes_of::<T>(count, 1) + writer + THREADS_BYTES + worker + Queue::least(with_ids);
        let run = run + read + 2 * bucket + edges;

        let drawn = |count: u64| members(count) + count * (row_bytes(vectors) + 24);
        let pairs = drawn(1_000) + 2 * Panel::<T>::bytes_for(1_000, dimensions) + 3 * 32 * 1_000 * 4;
        let packed = 2 * centers + 512 * Panel::<T>::bytes_for(1, dimensions);
        let a_pass = bucket + read + buckets * CENTER_BYTES + 2 * rows * 8 + (1 << 16);
        let margins = packed + a_pass + MARGIN_BYTES_MIN;
        let vectors = vectors_in_least(self.rows, 2, recall);
        let certified = noted_bound(self.rows, vectors) * bytes_of_certified(1);
        let comparing = Comparison::<T>::memory_bytes(rows as usize, dimensions)
            + drawn(1_024)
            + DrawnGroups::<T>::least_bytes(dimensions)
            + 1_024 * (DrawnGroups::<T>::bytes_a_vector(dimensions) + Comparison::<T>::BYTES_A_VECTOR);
        let calibrating = match recall < 1.0 {
            true => neighbors_bytes(self.rows, vectors) + a_pass + comparing.max(packed + (2 << 20) + certified),
            false => 0,
        };
        centers + run.max(pairs).max(margins).max(calibrating)
    }
}

/// Assumed bytes of a text id in a source.
const TEXT_ID_BYTES: u64 = 64;
/// Bytes of a bucket in addition to its members: headers, and rounding up to blocks.
const BUCKET_MORE_BYTES: u64 = 5 * 4_096;
/// Assumed number of rows of the largest bucket, as a multiple of the mean.
const LARGEST_BUCKET: u64 = 6;
/// Approximate bytes that the passes of planning hold per center.
const CENTER_BYTES: u64 = 160;

/// Approximate bytes of the row number, id and distances of a loaded member.
const BYTES_A_MEMBER: u64 = 24;
