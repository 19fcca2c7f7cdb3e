//! Computes the distances between the members of a bucket and the centers of other buckets, for several tasks at once.
//! So a bucket passes through the CPU caches once for several other buckets.

use adjoin_kernels::{Kernel, PackedColumns, Panel};

use crate::base::geometry::Coordinate;
use crate::execute::{Loaded, TASKS_PER_JOB};
use crate::load::LoadedBucket;

/// If a bucket has fewer centers than this to compare with, they are processed one by one: a tile would compute
/// distances to this many anyway.
const CENTERS_OF_A_TILE: usize = 3;

/// Squared distances of the members of two buckets to each other's center, for several visits.
pub(super) struct Views<T: Coordinate> {
    kernel: Kernel,
    /// For each visit, the distances of both sides.
    distances: Vec<[Vec<T::Distance>; 2]>,
    wanted: Vec<BucketView>,
    /// Buffers for one bucket: the numbers of its members, the centers, and the computed distances.
    order: Vec<u32>,
    centers: Vec<u32>,
    columns: PackedColumns<T>,
    tile: Vec<T::Distance>,
}

/// A bucket, and a center to which the distances of its members are needed. The order of values is by bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct BucketView {
    bucket: u32,
    center: u32,
    visit: usize,
    /// Side of the bucket in the visit.
    side: usize,
}

impl<T: Coordinate> Views<T> {
    pub(super) fn new(kernel: Kernel, dimensions: usize) -> Self {
        Self {
            kernel,
            distances: (0..TASKS_PER_JOB).map(|_| [Vec::new(), Vec::new()]).collect(),
            wanted: Vec::with_capacity(2 * TASKS_PER_JOB),
            order: Vec::new(),
            centers: Vec::with_capacity(TASKS_PER_JOB),
            columns: kernel.pack(&Panel::zeroed(0, dimensions), &[]),
            tile: Vec::new(),
        }
    }

    /// Returns the memory in bytes for buckets of at most `rows` members.
    pub(super) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        // This counts the distances of both sides of each visit and in a tile, with the spare capacity of vectors that
        // grow, and the order.
        let a_member = 2 * 3 * TASKS_PER_JOB * size_of::<T::Distance>() + 4;
        let wanted = 2 * TASKS_PER_JOB * size_of::<BucketView>();
        (rows * a_member + wanted) as u64 + PackedColumns::<T>::bytes_for(TASKS_PER_JOB, dimensions)
    }

    /// Computes the distances for `visits`. Returns the number of distances.
    pub(super) fn look(&mut self, centers: &Panel<T>, visits: &[Loaded<'_, T>]) -> u64 {
        self.wanted.clear();
        for (visit, Loaded { task: (i, j), .. }) in
            visits.iter().enumerate().filter(|(_, visit)| visit.task.0 != visit.task.1)
        {
            self.wanted.push(BucketView { bucket: *i, center: *j, visit, side: 0 });
            self.wanted.push(BucketView { bucket: *j, center: *i, visit, side: 1 });
        }
        self.wanted.sort_unstable();
        let wanted = std::mem::take(&mut self.wanted);
        let computed = wanted.chunk_by(|a, b| a.bucket == b.bucket).map(|of_bucket| {
            let BucketView { visit, side, .. } = of_bucket[0];
            let bucket = [visits[visit].a, visits[visit].b][side];
            self.look_at(bucket, centers, of_bucket);
            (of_bucket.len() * bucket.len()) as u64
        });
        let computed = computed.sum();
        self.wanted = wanted;
        computed
    }

    /// Computes the distances between the members of one bucket and all wanted centers.
    fn look_at(&mut self, bucket: &LoadedBucket<T>, centers: &Panel<T>, wanted: &[BucketView]) {
        let (rows, panel) = (bucket.len(), &bucket.members.panel);
        for &BucketView { visit, side, .. } in wanted {
            self.distances[visit][side].resize(rows, T::Distance::default());
        }
        if wanted.len() < CENTERS_OF_A_TILE {
            for &BucketView { center, visit, side, .. } in wanted {
                self.kernel.one_to_many(centers.row(center as usize), panel, &mut self.distances[visit][side]);
            }
            return;
        }
        self.order.clear();
        self.order.extend(0..rows as u32);
        self.centers.clear();
        self.centers.extend(wanted.iter().map(|wanted| wanted.center));
        self.kernel.pack_into(centers, &self.centers, &mut self.columns);
        self.tile.resize(rows * wanted.len(), T::Distance::default());
        self.kernel.many_to_many(panel, &self.order, &self.columns, &mut self.tile);
        for (place, &BucketView { visit, side, .. }) in wanted.iter().enumerate() {
            // The tile has a row for each member and a column for each center.
            let of_center = self.tile.iter().skip(place).step_by(wanted.len());
            self.distances[visit][side].iter_mut().zip(of_center).for_each(|(to, &from)| *to = from);
        }
    }

    /// Returns the distances of the members of the first and of the second bucket of a visit, each to the other's
    /// center.
    pub(super) fn of(&mut self, visit: usize) -> &mut [Vec<T::Distance>; 2] {
        &mut self.distances[visit]
    }
}
