//! A pass over the store that finds the least margin between the members of each bucket and every other center.

use std::ops::Range;

use adjoin_device::Reservation;
use adjoin_kernels::{PackedColumns, Panel};

use super::PLAN_PURPOSE;
use super::edge_sides::{EdgeSides, room_for_edges};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Threshold};
use crate::load::{self, Buckets, LoadedBucket, least_read_ahead};
use crate::plan::{BucketGraph, LeastMargin, Task, add_margin_edges, within};

/// Numbers of members and centers between which distances are computed at once. They are small enough for the
/// distances to stay in the second-level cache until they are used.
pub(super) const CHUNK_ROWS: usize = 32;
pub(super) const CHUNK_CENTERS: usize = 512;

/// Minimum memory for margins that are being collected.
pub(super) const MARGIN_BYTES_MIN: u64 = 2 << 20;

/// A member has a negative margin if another center is nearer than the center of its bucket. The first pass assumes
/// that no margin is further below 0 than this fraction of the squared radius of the bucket. If the pass finds one
/// that is, it is repeated with the measured values.
const SHORTFALL_EXPECTED: f64 = 0.5;
/// If floats were rounded, a pass assumes that residuals are at most this multiple of the largest one seen so far.
pub(super) const RESIDUAL_EXPECTED: f64 = 1.25;

/// A bucket graph and its cost.
pub(super) struct Graph {
    pub(super) graph: BucketGraph,
    /// Memory of its edges.
    pub(super) memory: Reservation,
    pub(super) center_distances: u64,
}

/// Memory of the pass that computes the graph of the margin-sum rule, without its workers.
#[derive(Debug, Clone, Copy)]
pub(super) struct PassMemory {
    /// Bytes for read-ahead.
    pub(super) read_ahead: u64,
    /// Bytes for margins that are being collected. Margins that do not fit are written to a temporary file.
    pub(super) margins: u64,
}

/// Computes the graph of the margin-sum rule from the distances between all vectors and all centers.
pub(super) fn margin_edges<T: Coordinate>(
    context: &Context,
    buckets: &Buckets<'_>,
    centers: &Panel<T>,
    threshold: &Threshold,
    memory: PassMemory,
) -> Result<Graph> {
    let count = buckets.count();
    let expected = (0..count).map(|bucket| {
        let radius = buckets.radius(bucket);
        let shortfall = SHORTFALL_EXPECTED * radius * radius + f64::from(f32::MIN_POSITIVE);
        Depth { shortfall, residual: RESIDUAL_EXPECTED * buckets.space().residual_seen() }
    });
    let sink = EdgeSides::new(context, count, memory.margins);
    let of =
        |towards, depths| MarginPass::new(context, buckets, centers, threshold, towards, depths, memory.read_ahead);
    let mut pass = of(buckets.taking_part().collect(), expected.collect());
    let measured = pass.run(&sink)?;
    let mut distances = pass.distances();
    // Some members may exceed the assumed bounds of their buckets. The margins towards these buckets are computed
    // again with the measured bounds, so the graph misses no edge.
    let deeper = |j: &u32| !measured[*j as usize].is_within(&pass.depths[*j as usize]);
    let deeper: Vec<u32> = buckets.taking_part().filter(deeper).collect();
    if !deeper.is_empty() {
        pass = of(deeper, measured.clone());
        pass.run(&sink)?;
        distances += pass.distances();
    }
    let limit = |i: u32, j: u32| {
        let squared = context.kernel.distance(centers.row(i as usize), centers.row(j as usize));
        let residuals = measured[i as usize].residual + measured[j as usize].residual;
        T::margin_limit(&threshold.widened(residuals), T::at_most(squared, centers.dimensions()))
    };
    let gathered = sink.gather()?;
    let edges = room_for_edges(context, gathered.count());
    let mut graph = BucketGraph { buckets: count as usize, edges };
    let mut memory = context.reserve(0, PLAN_PURPOSE)?;
    gathered.each(|sides| {
        add_margin_edges(&mut graph, sides, limit);
        context.grow(&mut memory, (graph.edges.len() * size_of::<Task>()) as u64, PLAN_PURPOSE)
    })?;
    graph.edges.shrink_to_fit();
    // Edges were found cell by cell, but tasks need them in ascending order.
    graph.edges.sort_unstable();
    Ok(Graph { graph, memory, center_distances: distances })
}

/// Returns the least memory in bytes for finding the edges of the margin-sum rule, without the centers.
pub(super) fn least_bytes<T: Coordinate>(threads: usize, buckets: &Buckets<'_>) -> u64 {
    memory_bytes::<T>(threads, buckets) + least_read_ahead(buckets.extents(), false) + MARGIN_BYTES_MIN
}

/// Returns the memory in bytes of the pass of the margin-sum rule, without the centers, the read-ahead, and the
/// margins that are being collected.
pub(super) fn memory_bytes<T: Coordinate>(threads: usize, buckets: &Buckets<'_>) -> u64 {
    let (count, rows, dimensions) = (buckets.extents().len(), buckets.rows_max(), buckets.vectors().dimensions);
    let distance = size_of::<T::Distance>();
    let chunk = CHUNK_ROWS.min(rows) * CHUNK_CENTERS.min(count) * distance;
    // Each center has a bound, a distance, and the least margin. Each member has a number, and a distance to its own
    // center. Sides are held until they are added to the collection.
    let a_worker = chunk + count * (8 + distance + 4 + size_of::<LeastMargin>()) + rows * (4 + 4);
    let depths = 3 * size_of::<Depth>() * count;
    columns_bytes::<T>(buckets.parts(), dimensions)
        + (depths + threads * a_worker) as u64
        + load::BucketPass::<T>::bytes(threads, buckets)
}

/// Returns the memory in bytes of all centers, packed in chunks.
fn columns_bytes<T: Coordinate>(parts: Vec<Range<u32>>, dimensions: usize) -> u64 {
    let of = |part: Range<u32>| {
        let chunk =
            |start: u32| PackedColumns::<T>::bytes_for(CHUNK_CENTERS.min((part.end - start) as usize), dimensions);
        part.clone().step_by(CHUNK_CENTERS).map(chunk).sum::<u64>()
    };
    parts.into_iter().map(of).sum()
}

/// Bounds on the members of a bucket. They determine how large the margins of members of other buckets may be for a
/// pair to be possible.
#[derive(Debug, Clone, Copy)]
struct Depth {
    /// Upper bound on how far the members' margins are below 0.
    shortfall: f64,
    /// Upper bound on the distance between a member and its rounded form.
    residual: f64,
}

impl Depth {
    fn is_within(&self, other: &Self) -> bool {
        self.shortfall <= other.shortfall && self.residual <= other.residual
    }
}

/// A pass over all members that finds their margins towards the centers `towards`.
struct MarginPass<'a, T: Coordinate> {
    context: &'a Context,
    buckets: &'a Buckets<'a>,
    centers: &'a Panel<T>,
    threshold: &'a Threshold,
    /// The target centers in ascending order. `columns` has the same centers, packed in chunks. A chunk has centers of
    /// one part only.
    towards: Vec<u32>,
    columns: Vec<PackedColumns<T>>,
    /// Assumed bounds of each bucket.
    depths: Vec<Depth>,
    /// Bytes for read-ahead.
    read_ahead: u64,
}

impl<'a, T: Coordinate> MarginPass<'a, T> {
    fn new(
        context: &'a Context,
        buckets: &'a Buckets<'a>,
        centers: &'a Panel<T>,
        threshold: &'a Threshold,
        towards: Vec<u32>,
        depths: Vec<Depth>,
        read_ahead: u64,
    ) -> Self {
        let of_parts = towards.chunk_by(|&i, &j| buckets.part_of(i) == buckets.part_of(j));
        let chunks = of_parts.flat_map(|of_part| of_part.chunks(CHUNK_CENTERS));
        let columns = chunks.map(|chunk| context.kernel.pack(centers, chunk)).collect();
        Self { context, buckets, centers, threshold, towards, columns, depths, read_ahead }
    }

    /// Returns the number of distances that a run computes.
    fn distances(&self) -> u64 {
        let partners = |&j: &u32| self.buckets.rows_of(self.buckets.partners(j));
        let buckets = self.centers.rows() as u64;
        self.towards.iter().map(partners).sum::<u64>() + buckets * buckets
    }

    /// Passes all margins that may belong to an edge to `sink`. Returns the measured bounds of each bucket.
    fn run(&self, sink: &EdgeSides<'_, LeastMargin>) -> Result<Vec<Depth>> {
        let Self { context, buckets, centers, read_ahead, .. } = *self;
        let pass = load::BucketPass { context, buckets, centers, phase: "plan", read_ahead };
        let known =
            pass.run(Vec::new, |distances, bucket, loaded| self.least_margins(bucket, loaded, distances, sink))?;
        let mut depths = vec![Depth { shortfall: 0.0, residual: 0.0 }; buckets.count() as usize];
        buckets.taking_part().zip(known).for_each(|(bucket, depth)| depths[bucket as usize] = depth);
        Ok(depths)
    }

    /// Finds the least margin of a bucket's members towards each target center, and passes those that may belong to an
    /// edge to `sink`.
    fn least_margins(
        &self,
        bucket: u32,
        loaded: &LoadedBucket<T>,
        distances: &mut Vec<T::Distance>,
        sink: &EdgeSides<'_, LeastMargin>,
    ) -> Result<Depth> {
        let towards = self.towards.len();
        let bounds = self.bounds(bucket, loaded.members.residual_max());
        let mut least = vec![f32::INFINITY; towards];
        let all: Vec<u32> = (0..loaded.len() as u32).collect();
        // The distance is rounded up, so that no margin is computed as larger than it is.
        let own: Vec<f32> = all.iter().map(|&member| (loaded.own_at_most(member) as f32).next_up()).collect();
        let (partners, mut end) = (self.buckets.partners(bucket), 0);
        for columns in &self.columns {
            let of = end..end + columns.len();
            end = of.end;
            // All centers of a chunk belong to one part, so all or none of them are partners.
            if !partners.contains(&self.towards[of.start]) {
                continue;
            }
            for (order, own) in all.chunks(CHUNK_ROWS).zip(own.chunks(CHUNK_ROWS)) {
                distances.resize(order.len() * columns.len(), T::Distance::default());
                self.context.kernel.many_to_many(&loaded.members.panel, order, columns, distances);
                for (row, &own) in distances.chunks_exact(columns.len()).zip(own) {
                    fold_margins::<T>(row, own, &mut least[of.clone()]);
                }
            }
        }
        let own_most = all.iter().map(|&member| loaded.own_at_most(member)).fold(0.0, f64::max);
        let certain = |rough: f32| T::least_margin(rough, own_most, self.centers.dimensions());
        let all = least.iter().zip(&bounds).zip(&self.towards);
        let near =
            all.filter(|&((&rough, &bound), &j)| self.buckets.may_meet(bucket, j) && within(certain(rough), bound));
        // The margin is rounded down, since it is used as a lower bound.
        let down = |margin: f64| (margin as f32).next_down();
        let said = |((&rough, _), &towards)| LeastMargin { from: bucket, towards, margin: down(certain(rough)) };
        sink.take(near.map(said))?;
        let shortfall = -certain(least.iter().copied().fold(f32::INFINITY, f32::min));
        Ok(Depth { shortfall, residual: loaded.members.residual_max() })
    }

    /// Returns for each target center the largest margin towards it with which a member can be part of a pair. It is
    /// the limit of the edge minus the assumed least margin of the members of that center's bucket.
    fn bounds(&self, bucket: u32, residual: f64) -> Vec<f64> {
        let dimensions = self.centers.dimensions();
        let mut squared = vec![T::Distance::default(); self.centers.rows()];
        self.context.kernel.one_to_many(self.centers.row(bucket as usize), self.centers, &mut squared);
        let of = |&j: &u32| {
            let depth = self.depths[j as usize];
            let threshold = self.threshold.widened(residual + depth.residual);
            let limit = T::margin_limit(&threshold, T::at_most(squared[j as usize], dimensions));
            let bound = limit + depth.shortfall;
            if bound.is_nan() { f64::INFINITY } else { bound }
        };
        self.towards.iter().map(of).collect()
    }
}

/// Updates the least margins with the margins of one member towards all centers. The margins are inexact by a few f32
/// roundings. This is the innermost loop of the pass, and is simple enough that the compiler vectorizes it.
fn fold_margins<T: Coordinate>(squared: &[T::Distance], own: f32, least: &mut [f32]) {
    for (&squared, least) in squared.iter().zip(least) {
        let margin = T::rough(squared) - own;
        *least = if margin < *least { margin } else { *least };
    }
}
