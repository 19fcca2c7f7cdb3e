//! The nearest members that queries find, bucket after bucket: the farthest of those that a query holds is the limit of its
//! kernel from then on. Which are held at the end does not depend on the order of the buckets.

use std::cell::Cell;
use std::cmp;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_kernels::{HitMask, Kernel, PackedColumns, Panel, TILE_COLUMNS, TILE_ROWS};

use super::tiles::{MASK_COLUMNS_MIN, block_rows};
use crate::context::Context;
use crate::error::Result;
use crate::geometry::{Coordinate, Space};
use crate::load::{LoadedBucket, Members, Subset};
use crate::options::{Element, Metric};
use crate::predicate::Predicate;
use crate::workers::{lock, map_items};

/// Queries whose hits are sorted at once.
const SORTED_AT_ONCE: usize = 256;

/// A member that a query found. Hits are ordered by nearness, then by row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    /// As [`Predicate::up_to`] says.
    pub(crate) nearness: f64,
    /// The member's row.
    pub(crate) row: u64,
    /// Its bucket, and its place there.
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

/// What a query has found so far: its nearest members, or all within a threshold.
#[derive(Debug)]
pub(crate) struct Nearest {
    /// The farthest comes first.
    hits: BinaryHeap<Hit>,
    count: usize,
    within: Predicate,
    /// A nearness within which there are as many as it is to hold.
    bound: f64,
    /// A place that does not count: that of the query itself.
    but: Option<(u32, u32)>,
}

impl Nearest {
    /// So many nearest members, that at `but` left out. Memory is taken for all at once.
    pub(crate) fn of(count: usize, metric: Metric, but: Option<(u32, u32)>) -> Self {
        let within = Predicate::all(metric);
        Self { hits: BinaryHeap::with_capacity(count), count, within, bound: f64::INFINITY, but }
    }

    /// The same where only members within a threshold count.
    pub(crate) fn only_within(self, within: Predicate) -> Self {
        Self { within, ..self }
    }

    /// All members within a threshold, that at `but` left out.
    pub(crate) fn within(within: Predicate, but: Option<(u32, u32)>) -> Self {
        Self { hits: BinaryHeap::new(), count: usize::MAX, within, bound: f64::INFINITY, but }
    }

    /// Bytes that it holds for so many hits, where that is the most that it holds.
    pub(crate) fn memory_bytes(hits: u64) -> u64 {
        // Each has a lock and places in lists.
        (size_of::<Mutex<Self>>() as u64 + 64).saturating_add(hits.saturating_mul(size_of::<Hit>() as u64))
    }

    /// How near a member must be to count, where that does not depend on the threshold.
    fn nearer(&self) -> Option<f64> {
        match self.hits.peek() {
            Some(farthest) if self.hits.len() == self.count => Some(farthest.nearness),
            _ => (self.bound < f64::INFINITY).then_some(self.bound),
        }
    }

    /// How near a member must be to count.
    fn most(&self) -> f64 {
        self.nearer().unwrap_or_else(|| self.within.nearness())
    }

    /// What decides whether a member may count.
    fn predicate(&self, element: Element) -> Predicate {
        self.nearer().map_or(self.within, |most| Predicate::up_to(most, (self.within.metric(), element)))
    }

    /// Takes a member that may count ([`Self::predicate`]).
    pub(crate) fn offer(&mut self, hit: Hit) {
        if self.but == Some(hit.place) {
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

    /// What was found, nearest first.
    pub(crate) fn into_sorted(self) -> Vec<Hit> {
        self.hits.into_sorted_vec()
    }

    /// How many it holds.
    pub(crate) fn len(&self) -> usize {
        self.hits.len()
    }
}

/// What queries have found so far, each under a lock of its own. How near a member must be to count lies beside that, where
/// looking costs no lock: it may be a moment old, and is then too large.
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

    /// What each query found, nearest first.
    ///
    /// # Errors
    /// Where the run is cancelled.
    pub(crate) fn into_sorted(self, context: &Context) -> Result<Vec<Vec<Hit>>> {
        let some: Vec<&[Mutex<Nearest>]> = self.found.chunks(SORTED_AT_ONCE).collect();
        let sorted = |nearest: &Mutex<Nearest>| std::mem::take(&mut lock(nearest).hits).into_sorted_vec();
        let work = |(): &mut (), number: usize| Ok(some[number].iter().map(sorted).collect::<Vec<_>>());
        Ok(map_items(context.threads, some.len(), &context.cancel, || (), work)?.into_iter().flatten().collect())
    }

    /// What a query found, nearest first; it is then as if it had found nothing.
    pub(crate) fn take_sorted(&self, query: u32) -> Vec<Hit> {
        std::mem::take(&mut lock(&self.found[query as usize]).hits).into_sorted_vec()
    }

    /// Where that lies which a query holds, in any order.
    pub(crate) fn places(&self, query: u32) -> Vec<(u32, u32)> {
        lock(&self.found[query as usize]).hits.iter().map(|hit| hit.place).collect()
    }

    /// How many members a query holds at most.
    fn count(&self, query: u32) -> usize {
        lock(&self.found[query as usize]).count
    }

    fn within(&self, query: u32) -> Predicate {
        lock(&self.found[query as usize]).within
    }

    /// How near a member must be to count for a query.
    pub(crate) fn most(&self, query: u32) -> f64 {
        f64::from_bits(self.most[query as usize].load(Ordering::Relaxed))
    }

    /// Leaves out members beyond a nearness within which a query has as many as it holds.
    fn bound(&self, query: u32, most: f64) {
        self.add(query, |nearest| nearest.bound = most);
    }

    /// Lets `work` add to what a query found; returns how many hits more it holds.
    fn add(&self, query: u32, work: impl FnOnce(&mut Nearest)) -> u64 {
        let mut nearest = lock(&self.found[query as usize]);
        let before = nearest.len();
        work(&mut nearest);
        self.most[query as usize].store(nearest.most().to_bits(), Ordering::Relaxed);
        (nearest.len() - before) as u64
    }
}

/// Members and their rows, packed for comparisons that come often.
pub(crate) struct PackedBucket<T: Coordinate> {
    bucket: LoadedBucket<T>,
    columns: PackedColumns<T>,
}

impl<T: Coordinate> PackedBucket<T> {
    pub(crate) fn new(kernel: Kernel, bucket: LoadedBucket<T>) -> Self {
        let order: Vec<u32> = (0..bucket.members.len() as u32).collect();
        let columns = kernel.pack(&bucket.members.panel, &order);
        Self { bucket, columns }
    }

    /// Bytes that so many rows take.
    pub(crate) fn memory_bytes(rows: usize, space: Space<'_>) -> u64 {
        let numbers = (rows * size_of::<u64>()) as u64;
        Members::<T>::memory_bytes(rows as u64, space)
            + PackedColumns::<T>::bytes_for(rows, space.dimensions())
            + numbers
    }
}

/// Why columns are there.
const THERE: &str = "they are put back";

/// One worker's comparison of queries with buckets.
pub(crate) struct NearestSearch<'a, T: Coordinate> {
    kernel: Kernel,
    space: Space<'a>,
    queries: &'a Members<T>,
    /// The number of the first of them that is looked for.
    first: u32,
    nearest: &'a AllNearest,
    /// The members that may be found, where not all may.
    subset: Option<Subset<'a>>,
    /// None while a bucket is compared.
    columns: Option<PackedColumns<T>>,
    order: Vec<u32>,
    limits: Vec<T::Distance>,
    hits: Vec<HitMask>,
}

impl<'a, T: Coordinate> NearestSearch<'a, T> {
    /// Of queries from a number on, and what each of these has found, among buckets of a space, or some of their members.
    pub(crate) fn new(
        kernel: Kernel,
        space: Space<'a>,
        (queries, first): (&'a Members<T>, u32),
        (nearest, subset): (&'a AllNearest, Option<Subset<'a>>),
    ) -> Self {
        let columns = Some(kernel.pack(&Panel::zeroed(0, space.dimensions()), &[]));
        let (order, limits, hits) = (Vec::new(), Vec::new(), Vec::new());
        Self { kernel, space, queries, first, nearest, subset, columns, order, limits, hits }
    }

    /// Bytes that it holds for buckets of at most `rows` members.
    pub(crate) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let columns = rows.next_multiple_of(TILE_COLUMNS);
        let hits = 2 * block_rows(rows) * columns / MASK_COLUMNS_MIN * size_of::<HitMask>();
        let floats = 2 * dimensions * size_of::<f32>();
        PackedColumns::<T>::bytes_for(columns, dimensions) + (hits + 4 * rows + floats) as u64
    }

    /// Compares queries with each other that are members of the store, given by buckets, so that each knows a nearness within
    /// which it will find as many as it is to hold in the buckets that it looks into: whatever is farther then costs nothing
    /// but its distance. Queries that `counts` refuses are found by none. Returns how many pairs that were.
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
        if all <= count {
            return 0;
        }
        let columns = self.columns.as_mut().expect(THERE);
        kernel.pack_into(&queries.panel, &self.order, columns);
        let (mut distances, mut keys, mut found) = (Vec::new(), Vec::new(), Vec::new());
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
                if found.len() < count {
                    continue;
                }
                found.select_nth_unstable(count - 1);
                let others = found[..count].iter().map(|&(_, other)| other);
                let (mut most, mut near, within) = (f64::NEG_INFINITY, 0, nearest.within(query - first));
                queries.each_nearness((kernel, within), query, (queries, others), |_, nearness| {
                    most = most.max(nearness);
                    near += 1;
                    within
                });
                // Where a threshold leaves fewer, it is the bound.
                if near == count {
                    nearest.bound(query - first, most);
                }
            }
        }
        (all * all) as u64
    }

    /// Compares queries with all members of a bucket; returns how many pairs that were, and how many hits more are held.
    pub(crate) fn compare(&mut self, number: u32, bucket: &LoadedBucket<T>, queries: &[u32]) -> (u64, u64) {
        let members = &bucket.members;
        self.order.clear();
        let counts = |&member: &u32| self.subset.is_none_or(|subset| subset.contains(number, bucket.place(member)));
        self.order.extend((0..members.len() as u32).filter(counts));
        if self.order.is_empty() {
            return (0, 0);
        }
        let mut columns = self.columns.take().expect(THERE);
        self.kernel.pack_into(&members.panel, &self.order, &mut columns);
        let found = self.compare_with(number, (bucket, &columns), &|_| true, queries);
        self.columns = Some(columns);
        found
    }

    /// The same with a bucket whose members are packed already, in their order; only those count that `counts` says.
    pub(crate) fn compare_packed(
        &mut self,
        number: u32,
        packed: &PackedBucket<T>,
        counts: &dyn Fn(u32) -> bool,
        queries: &[u32],
    ) -> (u64, u64) {
        self.order.clear();
        self.order.extend(0..packed.bucket.members.len() as u32);
        self.compare_with(number, (&packed.bucket, &packed.columns), counts, queries)
    }

    fn compare_with(
        &mut self,
        number: u32,
        (bucket, columns): (&LoadedBucket<T>, &PackedColumns<T>),
        counts: &dyn Fn(u32) -> bool,
        queries: &[u32],
    ) -> (u64, u64) {
        let members = &bucket.members;
        let (mut compared, mut more) = (0, 0);
        for some in queries.chunks(block_rows(members.len())) {
            let mut limits = std::mem::take(&mut self.limits);
            limits.clear();
            limits
                .extend(some.iter().map(|&query| self.limit((query, self.nearest.most(query - self.first)), members)));
            self.limits = limits;
            self.hits.clear();
            let rows = (&self.queries.panel, some, &self.limits[..]);
            compared += self.kernel.within_each(rows, columns, &mut self.hits);
            for mask in &self.hits {
                more += self.take((some[mask.row as usize], mask), (number, bucket), counts);
            }
        }
        (compared, more)
    }

    /// Decides the hits of a query; returns how many more it holds.
    fn take(
        &self,
        (query, mask): (u32, &HitMask),
        (number, bucket): (u32, &LoadedBucket<T>),
        counts: &dyn Fn(u32) -> bool,
    ) -> u64 {
        let Self { kernel, space, queries, .. } = *self;
        let (element, others) = (space.vectors.element, &bucket.members);
        self.nearest.add(query - self.first, |nearest| {
            // The kernel's limit was that of four queries, some time ago. Exact distances decide at once; else that costs several
            // times as much as a distance.
            let limit = (!queries.are_exact()).then(|| Cell::new(self.limit((query, nearest.most()), others)));
            let x = queries.panel.row(query as usize);
            let may_count = |&member: &u32| {
                let is_beyond =
                    |limit: &Cell<T::Distance>| kernel.distance(x, others.panel.row(member as usize)) > limit.get();
                counts(member) && !limit.as_ref().is_some_and(is_beyond)
            };
            let members = mask.columns().map(|column| self.order[column as usize]).filter(may_count);
            let predicate = nearest.predicate(element);
            queries.each_nearness((kernel, predicate), query, (others, members), |member, nearness| {
                nearest.offer(Hit { nearness, row: bucket.row(member), place: (number, bucket.place(member)) });
                limit.iter().for_each(|limit| limit.set(self.limit((query, nearest.most()), others)));
                nearest.predicate(element)
            });
        })
    }

    /// A computed distance of a query to one of `members` above this is surely above a nearness.
    fn limit(&self, (query, most): (u32, f64), members: &Members<T>) -> T::Distance {
        if most == f64::INFINITY {
            return T::FARTHEST;
        }
        let residuals = self.queries.residual + members.residual;
        T::tile_limit(&self.queries.threshold(query, most, self.space).widened(residuals))
    }
}
