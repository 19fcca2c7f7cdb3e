//! Finds the nearest members of queries, bucket by bucket. For later buckets, the kernel uses the farthest hit that a
//! query holds as a limit. The final hits do not depend on the order of the buckets.

use std::cell::Cell;
use std::cmp;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_kernels::{HitMask, Kernel, PackedColumns, Panel, TILE_COLUMNS, TILE_ROWS};

use super::tiles::{MASK_COLUMNS_MIN, block_rows};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space};
use crate::base::mutex::lock;
use crate::base::options::{Element, Metric};
use crate::base::predicate::Predicate;
use crate::base::workers::map_items;
use crate::load::{Decider, LoadedBucket, Members};

/// Number of queries whose hits one task sorts.
const SORTED_AT_ONCE: usize = 256;

/// A hit of a query. Hits are ordered by nearness, then by row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    /// Nearness of the member; see [`Predicate::up_to`].
    pub(crate) nearness: f64,
    /// Row number of the member.
    pub(crate) row: u64,
    /// Bucket of the member, and its position in the bucket.
    pub(crate) place: (u32, u32),
}

impl Ord for Hit {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.nearness.total_cmp(&other.nearness).then(self.row.cmp(&other.row))
    }
}

impl PartialOrd for Hit {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Hit {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == cmp::Ordering::Equal
    }
}

impl Eq for Hit {}

/// The hits of a query so far: its nearest members, or all within a threshold.
#[derive(Debug)]
pub(crate) struct Nearest {
    /// The farthest hit is on top.
    hits: BinaryHeap<Hit>,
    count: usize,
    within: Predicate,
    /// Nearness within which the query certainly finds `count` members. Infinite if there is no such bound.
    bound: f64,
    /// Place of the query itself, which is never a hit.
    left_out: Option<(u32, u32)>,
}

impl Nearest {
    /// Creates an empty result that collects the `count` nearest members, without the one at `left_out`. Allocates the
    /// memory for all of them.
    pub(crate) fn of(count: usize, metric: Metric, left_out: Option<(u32, u32)>) -> Self {
        let within = Predicate::all(metric);
        Self { hits: BinaryHeap::with_capacity(count), count, within, bound: f64::INFINITY, left_out }
    }

    /// Restricts hits to members within a threshold.
    pub(crate) fn only_within(self, within: Predicate) -> Self {
        Self { within, ..self }
    }

    /// Creates an empty result that collects all members within a threshold, without the one at `left_out`.
    pub(crate) fn within(within: Predicate, left_out: Option<(u32, u32)>) -> Self {
        Self { hits: BinaryHeap::new(), count: usize::MAX, within, bound: f64::INFINITY, left_out }
    }

    /// Returns the memory in bytes of a query with up to `hits` hits.
    pub(crate) fn memory_bytes(hits: u64) -> u64 {
        // Each query also has a lock and entries in lists.
        (size_of::<Mutex<Self>>() as u64 + 64).saturating_add(hits.saturating_mul(size_of::<Hit>() as u64))
    }

    /// Returns the nearness that a member must reach, apart from the threshold. `None` if there is no such limit yet.
    fn nearer(&self) -> Option<f64> {
        match self.hits.peek() {
            Some(farthest) if self.hits.len() == self.count => Some(farthest.nearness),
            _ => (self.bound < f64::INFINITY).then_some(self.bound),
        }
    }

    /// Returns the nearness that a member must reach to be a hit.
    fn most(&self) -> f64 {
        self.nearer().unwrap_or_else(|| self.within.nearness())
    }

    /// Returns the predicate that decides whether a member may be a hit.
    fn predicate(&self, element: Element) -> Predicate {
        self.nearer().map_or(self.within, |most| Predicate::up_to(most, self.within.metric(), element))
    }

    /// Adds a member that may be a hit according to [`Self::predicate`], if it is nearer than the farthest hit or the
    /// result is not full.
    pub(crate) fn offer(&mut self, hit: Hit) {
        if self.left_out == Some(hit.place) {
            return;
        }
        if self.hits.len() < self.count {
            self.hits.push(hit);
        } else if let Some(mut farthest) = self.hits.peek_mut()
            && hit < *farthest
        {
            *farthest = hit;
        }
    }

    /// Returns the hits, nearest first.
    pub(crate) fn into_sorted(self) -> Vec<Hit> {
        self.hits.into_sorted_vec()
    }

    /// Returns the number of hits.
    pub(crate) fn len(&self) -> usize {
        self.hits.len()
    }
}

/// The hits of all queries so far. The hits of each query have their own lock. The nearness that a member must reach
/// is also in an atomic, which is read without a lock. Its value may be outdated. An outdated value is too large,
/// which is safe.
pub(crate) struct AllNearest {
    most: Vec<AtomicU64>,
    found: Vec<Mutex<Nearest>>,
}

impl AllNearest {
    pub(crate) fn new(all: impl Iterator<Item = Nearest>) -> Self {
        let found: Vec<Mutex<Nearest>> = all.map(Mutex::new).collect();
        let most = found.iter().map(|nearest| AtomicU64::new(lock(nearest).most().to_bits())).collect();
        Self { most, found }
    }

    /// Returns the hits of each query, nearest first.
    ///
    /// # Errors
    /// Fails if the run is canceled.
    pub(crate) fn into_sorted(self, context: &Context) -> Result<Vec<Vec<Hit>>> {
        let some: Vec<&[Mutex<Nearest>]> = self.found.chunks(SORTED_AT_ONCE).collect();
        let sorted = |nearest: &Mutex<Nearest>| std::mem::take(&mut lock(nearest).hits).into_sorted_vec();
        let work = |(): &mut (), number: usize| Ok(some[number].iter().map(sorted).collect::<Vec<_>>());
        Ok(map_items(context.threads, some.len(), &context.cancel, || (), work)?.into_iter().flatten().collect())
    }

    /// Removes and returns the hits of a query, nearest first.
    pub(crate) fn take_sorted(&self, query: u32) -> Vec<Hit> {
        std::mem::take(&mut lock(&self.found[query as usize]).hits).into_sorted_vec()
    }

    /// Returns the places of a query's hits, in any order.
    pub(crate) fn places(&self, query: u32) -> Vec<(u32, u32)> {
        lock(&self.found[query as usize]).hits.iter().map(|hit| hit.place).collect()
    }

    /// Returns the maximum number of hits of a query.
    fn count(&self, query: u32) -> usize {
        lock(&self.found[query as usize]).count
    }

    fn within(&self, query: u32) -> Predicate {
        lock(&self.found[query as usize]).within
    }

    /// Returns the nearness that a member must reach to be a hit of a query.
    pub(crate) fn most(&self, query: u32) -> f64 {
        f64::from_bits(self.most[query as usize].load(Ordering::Relaxed))
    }

    /// Sets a nearness within which a query certainly finds enough members, so that farther members are left out.
    fn bound(&self, query: u32, most: f64) {
        self.add(query, |nearest| nearest.bound = most);
    }

    /// Calls `work`, which may add hits to a query. Returns the increase in the number of hits.
    fn add(&self, query: u32, work: impl FnOnce(&mut Nearest)) -> u64 {
        let mut nearest = lock(&self.found[query as usize]);
        let before = nearest.len();
        work(&mut nearest);
        // Relaxed suffices: an older value is larger, so a thread that reads it only examines more candidates.
        self.most[query as usize].store(nearest.most().to_bits(), Ordering::Relaxed);
        (nearest.len() - before) as u64
    }
}

/// Queries of one batch, which are consecutive in `members`. Results number them from 0.
#[derive(Clone, Copy)]
pub(crate) struct NumberedQueries<'a, T> {
    pub(crate) members: &'a Members<T>,
    /// Index in `members` of query 0 of the batch.
    pub(crate) first: u32,
}

/// Rows of a bucket, packed for repeated comparisons.
pub(crate) struct PackedBucket<T: Coordinate> {
    space: Space<'static>,
    bucket: LoadedBucket<T>,
    columns: PackedColumns<T>,
}

impl<T: Coordinate> PackedBucket<T> {
    /// Packs a bucket whose rows are in `space`.
    pub(crate) fn new(kernel: Kernel, space: Space<'static>, bucket: LoadedBucket<T>) -> Self {
        let order: Vec<u32> = (0..bucket.members.len() as u32).collect();
        let columns = kernel.pack(&bucket.members.panel, &order);
        Self { space, bucket, columns }
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.bucket.len()
    }

    /// Returns the row number of a member.
    pub(crate) fn row(&self, member: u32) -> u64 {
        self.bucket.row(member)
    }

    /// Returns the memory in bytes of `rows` packed rows.
    pub(crate) fn memory_bytes(rows: usize, space: Space<'_>) -> u64 {
        let numbers = (rows * size_of::<u64>()) as u64;
        Members::<T>::memory_bytes(rows as u64, space)
            + PackedColumns::<T>::bytes_for(rows, space.dimensions())
            + numbers
    }
}

/// Message for `expect`: why `columns` is always present.
const THERE: &str = "columns are put back after each use";

/// State of a worker that compares queries with buckets.
pub(crate) struct NearestSearch<'a, T: Coordinate> {
    kernel: Kernel,
    space: Space<'a>,
    queries: &'a Members<T>,
    /// Number of the first query.
    first: u32,
    nearest: &'a AllNearest,
    /// `None` while a bucket is compared.
    columns: Option<PackedColumns<T>>,
    order: Vec<u32>,
    limits: Vec<T::Distance>,
    hits: Vec<HitMask>,
}

impl<'a, T: Coordinate> NearestSearch<'a, T> {
    /// Creates a worker that compares queries with buckets.
    pub(crate) fn new(
        kernel: Kernel,
        space: Space<'a>,
        queries: NumberedQueries<'a, T>,
        nearest: &'a AllNearest,
    ) -> Self {
        let NumberedQueries { members: queries, first } = queries;
        let columns = Some(kernel.pack(&Panel::zeroed(0, space.dimensions()), &[]));
        let (order, limits, hits) = (Vec::new(), Vec::new(), Vec::new());
        Self { kernel, space, queries, first, nearest, columns, order, limits, hits }
    }

    /// Returns the memory in bytes of a worker for buckets of at most `rows` members.
    pub(crate) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let columns = rows.next_multiple_of(TILE_COLUMNS);
        let hits = 2 * block_rows(rows) * columns / MASK_COLUMNS_MIN * size_of::<HitMask>();
        let floats = 2 * dimensions * size_of::<f32>();
        PackedColumns::<T>::bytes_for(columns, dimensions) + (hits + 4 * rows + floats) as u64
    }

    /// Compares queries that are rows of the store with each other, to bound the nearness of each query's hits.
    /// `together` lists the queries by bucket. `looks` returns whether a query probes a bucket. If a query finds
    /// enough other queries in the buckets that it probes, the farthest of the K nearest ones is its bound: for
    /// farther members, only a distance has to be computed later. Queries for which `counts` returns false are not
    /// found by others. Returns the number of compared pairs.
    pub(crate) fn bound(
        &mut self,
        together: &[(u32, Range<u32>)],
        looks: &impl Fn(u32, u32) -> bool,
        counts: &impl Fn(u32) -> bool,
    ) -> u64 {
        let Self { kernel, space, queries, first, nearest, .. } = *self;
        self.order.clear();
        self.order.extend(together.iter().flat_map(|(_, members)| members.clone()));
        let (all, start) = (self.order.len(), self.order[0]);
        let count = nearest.count(start - first);
        // A query needs `count` hits other than itself, so more than `count` rows must be compared.
        if all <= count {
            return 0;
        }
        let columns = self.columns.as_mut().expect(THERE);
        kernel.pack_into(&queries.panel, &self.order, columns);
        let (mut distances, mut keys, mut found) = (Vec::new(), Vec::new(), Vec::new());
        // Compares a few rows at a time, so that their distances stay in the CPU cache.
        for some in self.order.chunks(TILE_ROWS) {
            distances.resize(some.len() * all, T::Distance::default());
            kernel.many_to_many(&queries.panel, some, columns, &mut distances);
            for (&query, distances) in some.iter().zip(distances.chunks_exact(all)) {
                T::measure_keys(distances, None, space.dimensions(), &mut keys);
                found.clear();
                for (_, members) in together.iter().filter(|(bucket, _)| looks(*bucket, query)) {
                    let others = members.clone().filter(|&other| other != query && counts(other));
                    found.extend(others.map(|other| (keys[(other - start) as usize], other)));
                }
                // If too few were found, there is no bound: hits may be in other buckets.
                if found.len() < count {
                    continue;
                }
                found.select_nth_unstable(count - 1);
                let others = found[..count].iter().map(|&(_, other)| other);
                let (mut most, mut near, within) = (f64::NEG_INFINITY, 0, nearest.within(query - first));
                let decider = Decider { kernel, predicate: within };
                queries.each_nearness(decider, query, queries, others, |_, nearness| {
                    most = most.max(nearness);
                    near += 1;
                    within
                });
                // If the threshold excludes some of them, there is no bound but the threshold.
                if near == count {
                    nearest.bound(query - first, most);
                }
            }
        }
        (all * all) as u64
    }

    /// Compares queries with the members of a bucket for which `counts` returns true, given their places. Returns the
    /// number of compared pairs, and the increase in the number of hits.
    pub(crate) fn compare(
        &mut self,
        number: u32,
        bucket: &LoadedBucket<T>,
        counts: &dyn Fn(u32) -> bool,
        queries: &[u32],
    ) -> (u64, u64) {
        let members = &bucket.members;
        self.order.clear();
        self.order.extend((0..members.len() as u32).filter(|&member| counts(bucket.place(member))));
        if self.order.is_empty() {
            return (0, 0);
        }
        // Taken out of `self`, since `compare_with` borrows all of `self`.
        let mut columns = self.columns.take().expect(THERE);
        self.kernel.pack_into(&members.panel, &self.order, &mut columns);
        let found = self.compare_with(self.space, (number, bucket), &columns, &|_| true, queries);
        self.columns = Some(columns);
        found
    }

    /// Compares queries with a packed bucket. Only members for which `counts` returns true may be found. Returns the
    /// number of compared pairs, and the increase in the number of hits.
    pub(crate) fn compare_packed(
        &mut self,
        number: u32,
        packed: &PackedBucket<T>,
        counts: &dyn Fn(u32) -> bool,
        queries: &[u32],
    ) -> (u64, u64) {
        self.order.clear();
        self.order.extend(0..packed.bucket.members.len() as u32);
        self.compare_with(packed.space, (number, &packed.bucket), &packed.columns, counts, queries)
    }

    /// Compares queries with a bucket, given its number and its members, which are in `space`.
    fn compare_with(
        &mut self,
        space: Space<'_>,
        numbered: (u32, &LoadedBucket<T>),
        columns: &PackedColumns<T>,
        counts: &dyn Fn(u32) -> bool,
        queries: &[u32],
    ) -> (u64, u64) {
        let members = &numbered.1.members;
        let (mut compared, mut more) = (0, 0);
        // Queries are divided into blocks, which bounds the memory of the hits, no matter how many queries probe the
        // bucket.
        for some in queries.chunks(block_rows(members.len())) {
            let mut limits = std::mem::take(&mut self.limits);
            limits.clear();
            let limit = |&query: &u32| self.limit(query, self.nearest.most(query - self.first), space, members);
            limits.extend(some.iter().map(limit));
            self.limits = limits;
            self.hits.clear();
            let panel = &self.queries.panel;
            compared += self.kernel.within_each(panel, some, &self.limits, columns, &mut self.hits);
            for mask in &self.hits {
                more += self.take(some[mask.row as usize], mask, space, numbered, counts);
            }
        }
        (compared, more)
    }

    /// Decides which candidates of a query are hits, and adds these. Returns the increase in the number of hits.
    fn take(
        &self,
        query: u32,
        mask: &HitMask,
        space: Space<'_>,
        (number, bucket): (u32, &LoadedBucket<T>),
        counts: &dyn Fn(u32) -> bool,
    ) -> u64 {
        let Self { kernel, queries, .. } = *self;
        let (element, others) = (space.vectors.element, &bucket.members);
        self.nearest.add(query - self.first, |nearest| {
            // The kernel used the largest limit of four queries, and this query may have found nearer hits since. If
            // distances are exact, a decision is cheap. Otherwise it costs several times as much as a distance, so
            // candidates are first compared with the current limit.
            let limit = (!queries.are_exact()).then(|| Cell::new(self.limit(query, nearest.most(), space, others)));
            let x = queries.panel.row(query as usize);
            let may_count = |&member: &u32| {
                let is_beyond =
                    |limit: &Cell<T::Distance>| kernel.distance(x, others.panel.row(member as usize)) > limit.get();
                counts(member) && !limit.as_ref().is_some_and(is_beyond)
            };
            let members = mask.columns().map(|column| self.order[column as usize]).filter(may_count);
            let decider = Decider { kernel, predicate: nearest.predicate(element) };
            queries.each_nearness(decider, query, others, members, |member, nearness| {
                nearest.offer(Hit { nearness, row: bucket.row(member), place: (number, bucket.place(member)) });
                limit.iter().for_each(|limit| limit.set(self.limit(query, nearest.most(), space, others)));
                nearest.predicate(element)
            });
        })
    }

    /// Returns a limit on computed distances: if the computed distance of a member to the query is larger, the member
    /// is certainly farther than the nearness `most`. Members are in `space`.
    fn limit(&self, query: u32, most: f64, space: Space<'_>, members: &Members<T>) -> T::Distance {
        if most == f64::INFINITY {
            return T::FARTHEST;
        }
        // Computed distances are distances of rounded vectors, so the limit is widened by the rounding errors of both.
        let residuals = self.queries.residual_of(query) + members.residual_max();
        T::tile_limit(&self.queries.threshold(query, most, space).widened(residuals))
    }
}
