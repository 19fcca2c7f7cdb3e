//! Estimates how many neighbors a vector has at each threshold, which helps users choose a threshold.

use adjoin_kernels::{PackedColumns, Panel};

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, with_coordinates};
use crate::base::mutex::lock;
use crate::base::options::Metric;
use crate::load::{BucketPass, Buckets, DrawnVectors, draw_places, least_read_ahead};
use crate::store::Store;
use crate::truth::DistanceHistogram;

/// Number of sampled vectors, which are compared with all others.
const VECTORS: u64 = 256;
/// Number of sampled vectors per call of the kernel.
const BLOCK: usize = 32;
/// Numbers of neighbors per vector for which thresholds are returned.
const NEIGHBORS: [f64; 5] = [0.1, 1.0, 10.0, 100.0, 1000.0];

impl Store {
    /// Returns the approximate thresholds at which a vector has certain numbers of neighbors on average. The result
    /// has pairs of a number of neighbors and a threshold, which is a distance or a similarity according to the metric
    /// of the store. Numbers that the set cannot reach are left out.
    ///
    /// # Errors
    /// Fails if the store cannot be read or the budget is too small.
    pub fn neighbor_curve(&self, context: &Context, seed: u64) -> Result<Vec<(f64, f64)>> {
        let manifest = self.manifest();
        manifest.metric.check_joins(self.folder().display())?;
        let buckets = Buckets::of(self);
        let counts = with_coordinates!(buckets.space(), T => count::<T>(context, &buckets, seed)?);
        let drawn = VECTORS.min(manifest.rows) as f64;
        let at = |&neighbors: &f64| {
            let wanted = (neighbors * drawn).ceil() as u64;
            let squared = counts.squared_of(wanted)?;
            let threshold = match manifest.metric {
                Metric::L2 => squared.sqrt(),
                // The squared distance of unit vectors is 2 - 2 cos.
                Metric::Cosine | Metric::Ip => 1.0 - squared / 2.0,
            };
            Some((neighbors, threshold))
        };
        Ok(NEIGHBORS.iter().filter_map(at).collect())
    }
}

/// Computes a histogram of the distances between all vectors and the sampled ones.
fn count<T: Coordinate>(context: &Context, buckets: &Buckets<'_>, seed: u64) -> Result<DistanceHistogram> {
    let (vectors, extents) = (buckets.vectors(), buckets.extents());
    let rows = buckets.rows_max();
    let dimensions = vectors.dimensions;
    let a_worker = DistanceHistogram::BYTES
        + PackedColumns::<T>::bytes_for(rows, dimensions)
        + (BLOCK * rows * size_of::<T::Distance>()) as u64;
    let read_ahead = least_read_ahead(extents, false);
    let bytes = DrawnVectors::<T>::memory_bytes(buckets, VECTORS)
        + Panel::<T>::bytes_for(extents.len(), dimensions)
        + (context.threads as u64 + 1) * a_worker
        + BucketPass::<T>::bytes(context.threads, buckets)
        + read_ahead;
    let _memory = context.reserve(bytes, "the curve of neighbors")?;

    let centers = &buckets.centers::<T>()?;
    let drawn = DrawnVectors::read(context, buckets, centers, &draw_places(buckets, VECTORS, seed, "curve"))?;
    let total = std::sync::Mutex::new(DistanceHistogram::new());
    let state = Vec::<T::Distance>::new;
    let pass = BucketPass { context, buckets, centers, phase: "curve", read_ahead };
    pass.run(state, |distances, _, bucket| {
        let members: Vec<u32> = (0..bucket.len() as u32).collect();
        let columns = context.kernel.pack(&bucket.members.panel, &members);
        let all: Vec<u32> = (0..drawn.len() as u32).collect();
        for block in all.chunks(BLOCK) {
            distances.resize(block.len() * members.len(), T::Distance::default());
            context.kernel.many_to_many(&drawn.members.panel, block, &columns, distances);
            lock(&total).add::<T>(distances);
        }
        Ok(())
    })?;
    let mut counts = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    counts.leave_out_zeros(drawn.len() as u64); // the distance of each vector to itself
    Ok(counts)
}
