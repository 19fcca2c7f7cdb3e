//! Finds the places of the nearest members of many queries. Compares only computed distances, without bounds on
//! rounding. This suffices if the caller compares the candidates itself. If many rows look for many neighbors each, it
//! is much cheaper than exact hits ([`super::NearestSearch`]).

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use adjoin_kernels::{Kernel, PackedColumns, Panel, TILE_ROWS};

use super::nearest::NumberedQueries;
use crate::base::geometry::Coordinate;
use crate::base::mutex::lock;
use crate::load::{LoadedBucket, Members, Subset};

/// Number of queries that are compared with a bucket at once, so that their distances stay in the CPU cache.
const QUERIES_TOGETHER: usize = 4 * TILE_ROWS;

/// The nearest members of each query so far. The final result does not depend on the order of comparisons.
pub(crate) struct NearPlaces {
    /// Number of members to find per query.
    count: usize,
    /// For each query, the sort key of the distance beyond which members are left out. It is read without a lock, so
    /// the value may be outdated. An outdated value is too large, which is safe.
    most: Vec<AtomicU32>,
    /// The nearest members so far, per query. The upper half of an entry is the key of the distance, the lower half is
    /// the place. A list may grow to 1.5 times the number of members to find, so that the farthest members are removed
    /// in batches.
    found: Vec<Mutex<Vec<u64>>>,
}

/// Returns the maximum number of members that a query holds if it finds `count`.
fn held_at_once(count: usize) -> usize {
    count + count / 2 + 1
}

impl NearPlaces {
    pub(crate) fn new(queries: usize, count: usize) -> Self {
        let most = (0..queries).map(|_| AtomicU32::new(u32::MAX)).collect();
        Self { count, most, found: (0..queries).map(|_| Mutex::new(Vec::with_capacity(held_at_once(count)))).collect() }
    }

    /// Returns the memory in bytes of a query that finds `count` members, including the result.
    pub(crate) fn memory_bytes(count: u64) -> u64 {
        let one = (size_of::<Mutex<Vec<u64>>>() + size_of::<AtomicU32>() + size_of::<Vec<u32>>()) as u64;
        let held = held_at_once(count as usize) * size_of::<u64>();
        one + held as u64 + count * size_of::<u32>() as u64
    }

    /// Adds candidates to a query, except the query's own place.
    fn add(&self, query: usize, own: u32, candidates: impl Iterator<Item = u64>) {
        let mut found = lock(&self.found[query]);
        // The query may be a member of the bucket, but is not its own neighbor.
        for one in candidates.filter(|&one| one as u32 != own) {
            // Removing the farthest takes time proportional to the length of the list, so it is done for several at
            // once.
            if found.len() == held_at_once(self.count) {
                self.leave_out(query, &mut found);
            }
            found.push(one);
        }
    }

    /// Removes all but the nearest `count` members.
    fn leave_out(&self, query: usize, found: &mut Vec<u64>) {
        if found.len() > self.count {
            let (_, last, _) = found.select_nth_unstable(self.count - 1);
            // Relaxed suffices: if a thread reads an older, larger value, it only adds members that are removed later.
            self.most[query].store((*last >> 32) as u32, Ordering::Relaxed);
            found.truncate(self.count);
        }
    }

    /// Returns the places of the members that each query found, in no particular order.
    pub(crate) fn into_places(mut self) -> Vec<Vec<u32>> {
        let found = std::mem::take(&mut self.found);
        let places = found.into_iter().enumerate().map(|(query, found)| {
            let mut found = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
            self.leave_out(query, &mut found);
            found.into_iter().map(|one| one as u32).collect()
        });
        places.collect()
    }
}

/// State of a worker that compares queries with buckets.
pub(crate) struct NearComparison<'a, T: Coordinate> {
    kernel: Kernel,
    queries: &'a Members<T>,
    /// Place of each query.
    own: &'a [u32],
    /// Number of the first query.
    first: u32,
    near: &'a NearPlaces,
    /// The members that may be found.
    subset: Subset<'a>,
    columns: PackedColumns<T>,
    order: Vec<u32>,
    distances: Vec<T::Distance>,
    keys: Vec<u32>,
    found: Vec<u64>,
}

impl<'a, T: Coordinate> NearComparison<'a, T> {
    /// Creates a worker that compares queries with members of `subset`. `own` has the place of each query.
    pub(crate) fn new(
        kernel: Kernel,
        queries: NumberedQueries<'a, T>,
        own: &'a [u32],
        near: &'a NearPlaces,
        subset: Subset<'a>,
    ) -> Self {
        let NumberedQueries { members: queries, first } = queries;
        let columns = kernel.pack(&Panel::zeroed(0, queries.panel.dimensions()), &[]);
        let (order, distances, keys, found) = Default::default();
        Self { kernel, queries, own, first, near, subset, columns, order, distances, keys, found }
    }

    /// Returns the memory in bytes of a worker for buckets of at most `rows` members.
    pub(crate) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let of_query = rows * size_of::<T::Distance>();
        let of_member = 2 * (2 * size_of::<u32>() + size_of::<u64>());
        PackedColumns::<T>::bytes_for(rows, dimensions) + (QUERIES_TOGETHER * of_query + rows * of_member) as u64
    }

    /// Compares a range of queries with each other. They must be all filtered members of one bucket. If this is done
    /// first, few members of other buckets are near enough to be examined.
    pub(crate) fn compare_own(&mut self, range: Range<u32>) {
        self.order.clear();
        self.order.extend(range);
        self.kernel.pack_into(&self.queries.panel, &self.order, &mut self.columns);
        // Taken out of `self`, since the comparison borrows all of `self`.
        let (all, own) = (std::mem::take(&mut self.order), self.own);
        let place = |column: u32| own[all[column as usize] as usize];
        all.chunks(QUERIES_TOGETHER).for_each(|some| self.compare_some(some, place));
        self.order = all;
    }

    /// Compares queries with all filtered members of a bucket.
    pub(crate) fn compare(&mut self, number: u32, bucket: &LoadedBucket<T>, queries: &[u32]) {
        let members = &bucket.members;
        let subset = self.subset;
        self.order.clear();
        self.order.extend((0..members.len() as u32).filter(|&member| subset.contains(number, member)));
        self.kernel.pack_into(&members.panel, &self.order, &mut self.columns);
        let start = subset.starts[number as usize];
        self.order.iter_mut().for_each(|member| *member += start);
        let places = std::mem::take(&mut self.order);
        queries.chunks(QUERIES_TOGETHER).for_each(|some| self.compare_some(some, |column| places[column as usize]));
        self.order = places;
    }

    /// Compares some queries with the packed columns. `place` returns the place of a column.
    fn compare_some(&mut self, queries: &[u32], place: impl Fn(u32) -> u32) {
        let Self { kernel, near, first, .. } = *self;
        let count = self.columns.len();
        self.distances.resize(queries.len() * count, T::Distance::default());
        kernel.many_to_many(&self.queries.panel, queries, &self.columns, &mut self.distances);
        for (&query, distances) in queries.iter().zip(self.distances.chunks_exact(count.max(1))) {
            let at = (query - first) as usize;
            self.keys.clear();
            self.keys.extend(distances.iter().map(|&distance| T::distance_key(distance)));
            self.found.clear();
            // Keys are compared as integers, which excludes most members before the lock is taken.
            kernel.at_most(&self.keys, near.most[at].load(Ordering::Relaxed), &mut self.found);
            if !self.found.is_empty() {
                // The upper half, which is the key, is kept. The lower half, which is the column, is replaced by the
                // place.
                let some = self.found.iter().map(|&one| one >> 32 << 32 | u64::from(place(one as u32)));
                near.add(at, self.own[query as usize], some);
            }
        }
    }
}
