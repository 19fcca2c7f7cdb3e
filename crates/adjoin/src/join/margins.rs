//! One pass over the store that tells the plan how near the members of each bucket come to every other center.

use adjoin_device::Reservation;
use adjoin_kernels::{Columns, Panel};

use super::bucket::LoadedBucket;
use crate::context::Context;
use crate::error::Result;
use crate::geometry::{Coordinate, Threshold};
use crate::plan::{BucketGraph, LeastMargin, margin_graph, triangle_graph, within};
use crate::store::Store;
use crate::workers::map_items;

/// Members whose distances to all centers are computed at once.
const CHUNK_ROWS: usize = 32;

/// A bucket graph and what it cost to make.
pub(super) struct Graph {
    pub(super) graph: BucketGraph,
    pub(super) center_distances: u64,
}

/// The graph of the margin-sum rule. Computes the distance of each vector to each center.
pub(super) fn margin_edges<T: Coordinate>(context: &Context, store: &Store, threshold: &Threshold) -> Result<Graph> {
    let centers = store.centers::<T>()?;
    let buckets = centers.rows();
    let columns = context.kernel.pack(&centers, &(0..buckets as u32).collect::<Vec<_>>());
    let pass = Pass { context, store, centers: &centers, columns: &columns, threshold };
    context.progress.begin("plan", "buckets", buckets as u64);
    let found = map_items(context.threads, buckets, &context.cancel, Vec::new, |distances, bucket| {
        let margins = pass.least_margins(bucket as u32, distances)?;
        let held = context.reserve((margins.len() * size_of::<LeastMargin>()) as u64, "the plan of this join")?;
        context.progress.advance(bucket as u64 + 1);
        Ok((margins, held))
    })?;
    let (margins, _held): (Vec<Vec<LeastMargin>>, Vec<Reservation>) = found.into_iter().unzip();
    let limit = |i: u32, j: u32| {
        let squared = context.kernel.distance(centers.row(i as usize), centers.row(j as usize));
        T::margin_limit(threshold, T::at_most(squared, centers.dimensions()))
    };
    let vectors = store.manifest().rows;
    let center_distances = vectors * buckets as u64 + (buckets * buckets) as u64;
    Ok(Graph { graph: margin_graph(&margins, limit), center_distances })
}

/// The graph of DiskJoin's triangle rule. Reads no bucket.
pub(super) fn triangle_edges<T: Coordinate>(context: &Context, store: &Store, threshold: &Threshold) -> Result<Graph> {
    let centers = store.centers::<T>()?;
    let dimensions = centers.dimensions();
    let rows: Vec<u32> = store.extents().iter().map(|extent| extent.rows).collect();
    let radii: Vec<f32> = store.extents().iter().map(|extent| extent.radius).collect();
    let mut squared = vec![T::Distance::default(); centers.rows()];
    let graph = triangle_graph(&rows, &radii, threshold.distance, |i, distances| {
        context.kernel.one_to_many(centers.row(i as usize), &centers, &mut squared);
        distances.clear();
        distances.extend(squared.iter().map(|&squared| T::at_least(squared, dimensions).sqrt()));
    });
    Ok(Graph { graph, center_distances: (centers.rows() * centers.rows()) as u64 })
}

struct Pass<'a, T: Coordinate> {
    context: &'a Context,
    store: &'a Store,
    centers: &'a Panel<T>,
    columns: &'a Columns<T>,
    threshold: &'a Threshold,
}

impl<T: Coordinate> Pass<'_, T> {
    /// The least margins of a bucket's members towards all centers that may matter, by ascending bucket.
    fn least_margins(&self, bucket: u32, distances: &mut Vec<T::Distance>) -> Result<Vec<LeastMargin>> {
        let loaded = LoadedBucket::read(self.store, self.context.kernel, self.centers, bucket, false)?;
        let buckets = self.centers.rows();
        let bounds = self.bounds(bucket);
        let near_enough: Vec<f32> = bounds.iter().map(|&bound| (bound as f32).next_up()).collect();
        let mut least = vec![f32::INFINITY; buckets];
        let mut members = vec![0; buckets];
        for start in (0..loaded.len()).step_by(CHUNK_ROWS) {
            let order: Vec<u32> = (start..loaded.len().min(start + CHUNK_ROWS)).map(|k| k as u32).collect();
            distances.resize(order.len() * buckets, T::Distance::default());
            self.context.kernel.many_to_many(&loaded.panel, &order, self.columns, distances);
            for (row, &member) in distances.chunks_exact(buckets).zip(&order) {
                let own = (loaded.own_at_most[member as usize] as f32).next_up();
                fold_margins::<T>(row, own, &near_enough, &mut least, &mut members);
            }
        }
        let own_most = loaded.own_at_most.iter().copied().fold(0.0, f64::max);
        let certain = |rough: f32| T::least_margin(rough, own_most, self.centers.dimensions());
        let all = least.iter().zip(&members).zip(&bounds).zip(0u32..);
        let near = all.filter(|&(((&rough, _), &bound), j)| j != bucket && within(certain(rough), bound));
        let down = |margin: f64| (margin as f32).next_down();
        Ok(near
            .map(|(((&rough, &members), _), j)| LeastMargin { bucket: j, margin: down(certain(rough)), members })
            .collect())
    }

    /// For each other bucket j, the largest margin towards it with which a member can still take part: the limit of
    /// the edge less the least margin that any member of j can have. Each vector lies with the center that was
    /// computed as its nearest, so that is 0 but for rounding.
    fn bounds(&self, bucket: u32) -> Vec<f64> {
        let dimensions = self.centers.dimensions();
        let mut squared = vec![T::Distance::default(); self.centers.rows()];
        self.context.kernel.one_to_many(self.centers.row(bucket as usize), self.centers, &mut squared);
        let of = |(squared, radius): (&T::Distance, f32)| {
            let limit = T::margin_limit(self.threshold, T::at_most(*squared, dimensions));
            let bound = limit + T::nearest_slack(f64::from(radius), dimensions);
            if bound.is_nan() { f64::INFINITY } else { bound }
        };
        squared.iter().zip(self.store.extents().iter().map(|extent| extent.radius)).map(of).collect()
    }
}

/// Takes one member into account: its margins, rough by a few roundings of f32, towards all centers. The innermost
/// loop of the pass; it is kept so simple that the compiler turns it into vector instructions.
fn fold_margins<T: Coordinate>(
    squared: &[T::Distance],
    own: f32,
    near_enough: &[f32],
    least: &mut [f32],
    members: &mut [u32],
) {
    for (((&squared, &near_enough), least), members) in squared.iter().zip(near_enough).zip(least).zip(members) {
        let margin = T::rough(squared) - own;
        *least = if margin < *least { margin } else { *least };
        *members += u32::from(margin <= near_enough);
    }
}
