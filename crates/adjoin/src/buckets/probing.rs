//! Chooses the buckets that queries probe. Computes distances to all centers, and applies a rule.

use adjoin_kernels::{Kernel, PackedColumns, Panel};

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::workers::map_items;
use crate::plan::{ProbeRule, Probes};

/// Number of queries, and number of centers, for which a block of distances is computed.
const BLOCK_QUERIES: usize = 16;
const CHUNK_CENTERS: usize = 512;

/// Centers, packed for comparisons with queries.
pub(crate) struct Prober<T: Coordinate> {
    columns: Vec<PackedColumns<T>>,
    dimensions: usize,
}

/// Distances of a query to all centers, as sort keys of squared distances ([`Coordinate::measure_keys`]), in the order
/// of the buckets.
pub(crate) struct Measured<'a> {
    kernel: Kernel,
    keys: &'a [u32],
    /// Squared distance to the nearest center.
    nearest: f64,
    /// Selected buckets. The upper half of an entry is the key, the lower half the bucket.
    found: &'a mut Vec<u64>,
}

/// Buffers of a worker.
struct Buffers<T: Coordinate> {
    distances: Vec<T::Distance>,
    /// Keys of one query for a chunk of centers. `keys` has the keys of all centers, for each query of a block.
    some: Vec<u32>,
    keys: Vec<Vec<u32>>,
    found: Vec<u64>,
}

impl<T: Coordinate> Prober<T> {
    pub(crate) fn new(kernel: Kernel, centers: &Panel<T>) -> Self {
        let all: Vec<u32> = (0..centers.rows() as u32).collect();
        let columns = all.chunks(CHUNK_CENTERS).map(|some| kernel.pack(centers, some)).collect();
        Self { columns, dimensions: centers.dimensions() }
    }

    /// Returns the memory in bytes of the packed centers and of the workers' buffers.
    pub(crate) fn memory_bytes(centers: usize, dimensions: usize, threads: usize) -> u64 {
        let of = |start| PackedColumns::<T>::bytes_for(CHUNK_CENTERS.min(centers - start), dimensions);
        let columns: u64 = (0..centers).step_by(CHUNK_CENTERS).map(of).sum();
        let chunk = BLOCK_QUERIES * CHUNK_CENTERS.min(centers) * size_of::<T::Distance>() + 4 * CHUNK_CENTERS;
        // A vector of keys may have twice the capacity that it needs.
        columns + (threads.max(1) * (chunk + centers * (2 * 4 * BLOCK_QUERIES + 2 * 8)) + 8 * centers) as u64
    }

    /// Computes the distances of queries to all centers on several threads. Calls `work` with the distances of each
    /// query. Returns the results in the order of the queries.
    ///
    /// # Errors
    /// If `work` fails or the run is cancelled.
    pub(crate) fn map<R: Send>(
        &self,
        context: &Context,
        queries: &Panel<T>,
        numbers: impl Iterator<Item = u32>,
        work: impl Fn(u32, &mut Measured<'_>) -> R + Sync,
    ) -> Result<Vec<R>> {
        let (kernel, numbers) = (context.kernel, numbers.collect::<Vec<u32>>());
        let blocks: Vec<&[u32]> = numbers.chunks(BLOCK_QUERIES).collect();
        let state = || Buffers::<T> {
            distances: Vec::new(),
            some: Vec::new(),
            keys: vec![Vec::new(); BLOCK_QUERIES],
            found: Vec::new(),
        };
        let all = map_items(context.threads, blocks.len(), &context.cancel, state, |buffers, number| {
            let block = blocks[number];
            self.measure(kernel, queries, block, buffers);
            let Buffers { keys, found, .. } = buffers;
            let of = |(&query, keys): (&u32, &Vec<u32>)| {
                let nearest = T::measure_of(keys.iter().copied().min().expect("a store has a bucket"));
                work(query, &mut Measured { kernel, keys, nearest, found })
            };
            Ok(block.iter().zip(&*keys).map(of).collect::<Vec<R>>())
        })?;
        Ok(all.into_iter().flatten().collect())
    }

    /// Computes the keys of all centers for a block of queries.
    fn measure(&self, kernel: Kernel, queries: &Panel<T>, block: &[u32], buffers: &mut Buffers<T>) {
        let Buffers { distances, some, keys, .. } = buffers;
        keys.iter_mut().for_each(Vec::clear);
        for columns in &self.columns {
            distances.resize(block.len() * columns.len(), T::Distance::default());
            kernel.many_to_many(queries, block, columns, distances);
            for (distances, keys) in distances.chunks_exact(columns.len()).zip(&mut *keys) {
                T::measure_keys(distances, None, self.dimensions, some);
                keys.extend_from_slice(some);
            }
        }
    }
}

/// Returns the key of an entry of `found`.
fn key_of(found: u64) -> u32 {
    (found >> 32) as u32
}

impl Measured<'_> {
    /// Returns the buckets to probe, in any order. If the admitted buckets have fewer than `least_rows` rows, adds
    /// further buckets, nearest first.
    pub(crate) fn probed<T: Coordinate>(
        &mut self,
        probes: Probes,
        least_rows: u64,
        rows: impl Fn(u32) -> u64,
    ) -> impl Iterator<Item = u32> {
        match probes {
            Probes::Bound => self.find_all(),
            Probes::Nearest(count) => {
                self.find_all();
                let count = (count as usize).clamp(1, self.found.len());
                // The nearest buckets are selected but not sorted, since their order does not matter.
                self.found.select_nth_unstable(count - 1);
                self.found.truncate(count);
            }
            Probes::By(rule) => {
                let count = self.admitted::<T>(rule);
                self.found.truncate(count);
            }
        }
        if self.found.iter().map(|&found| rows(found as u32)).sum::<u64>() < least_rows {
            self.find_all();
            self.found.sort_unstable();
            let mut before = 0;
            let needed = self.found.iter().take_while(|&&found| {
                let is_needed = before < least_rows;
                before += rows(found as u32);
                is_needed
            });
            let count = needed.count();
            self.found.truncate(count);
        }
        self.found.iter().map(|&found| found as u32)
    }

    /// Returns a lower bound on the squared distance between the query and the center of a bucket.
    pub(super) fn squared<T: Coordinate>(&self, bucket: u32) -> f64 {
        T::measure_of(self.keys[bucket as usize])
    }

    /// Collects all buckets in `found`.
    fn find_all(&mut self) {
        self.found.clear();
        self.kernel.at_most(self.keys, u32::MAX, self.found);
    }

    /// Collects the nearest buckets in `found`, nearest first. Returns how many of them the rule admits.
    fn admitted<T: Coordinate>(&mut self, rule: ProbeRule) -> usize {
        let nearest = self.nearest;
        let key_of_rank = |rank| T::key_up_to(nearest + rule.margin_max(rank));
        // Consider the largest margin that the rule admits at `rank`. If at least `rank` buckets are within this
        // margin, every bucket beyond it has a rank of at least `rank`, and is not admitted.
        let enough = |&(rank, key): &(u64, u32)| self.kernel.count_at_most(self.keys, key) >= rank;
        let ranks = (0..self.keys.len().ilog2()).map(|doubled| 1 << doubled);
        let most = ranks.map(|rank| (rank, key_of_rank(rank))).take_while(enough).last();
        self.found.clear();
        self.kernel.at_most(self.keys, most.map_or(key_of_rank(0), |(_, key)| key), self.found);
        self.found.sort_unstable();
        // The nearest bucket is always probed, for any threshold.
        rule.count(self.found.iter().map(|&found| T::measure_of(key_of(found)) - nearest)).max(1)
    }

    /// Returns the number of rows in the buckets that a rule admits.
    pub(super) fn rows_of<T: Coordinate>(&mut self, rule: ProbeRule, rows: impl Fn(u32) -> u64) -> u64 {
        let count = self.admitted::<T>(rule);
        self.found[..count].iter().map(|&found| rows(found as u32)).sum()
    }

    /// Returns the rank of a bucket among all buckets, and its margin.
    pub(super) fn place_of<T: Coordinate>(&self, bucket: u32) -> (u64, f64) {
        let key = self.keys[bucket as usize];
        let nearer = if key == 0 { 0 } else { self.kernel.count_at_most(self.keys, key - 1) };
        // Buckets with equal keys are ranked by number, as in `admitted`, which sorts them.
        let equal = self.keys[..bucket as usize].iter().filter(|&&other| other == key).count();
        (nearer + equal as u64, T::measure_of(key) - self.nearest)
    }

    /// Returns the margin of the bucket with rank `rank`, or of the last bucket if there are fewer.
    pub(super) fn margin_of_rank<T: Coordinate>(&mut self, rank: usize) -> f64 {
        self.find_all();
        let rank = rank.min(self.found.len() - 1);
        let (_, &mut at, _) = self.found.select_nth_unstable(rank);
        T::measure_of(key_of(at)) - self.nearest
    }
}
