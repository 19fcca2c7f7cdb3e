//! The nearest members that queries find, bucket after bucket: the farthest of those that a query holds is the limit of its
//! kernel from then on. Which are held at the end does not depend on the order of the buckets.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Mutex;

use adjoin_kernels::{HitMask, Kernel, PackedColumns, Panel, TILE_COLUMNS};

use super::tiles::{MASK_COLUMNS_MIN, block_rows};
use crate::geometry::{Coordinate, Space, Threshold};
use crate::load::{LoadedBucket, Members};
use crate::workers::lock;

/// A member that a query found. Hits are ordered by nearness, then by row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    /// The squared distance under L2, the cosine with its sign turned under cosine.
    pub(crate) nearness: f64,
    /// The member's row.
    pub(crate) row: u64,
    /// Its bucket, and its place there.
    pub(crate) place: (u32, u32),
}

impl Ord for Hit {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nearness.total_cmp(&other.nearness).then(self.row.cmp(&other.row))
    }
}

impl PartialOrd for Hit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Hit {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Hit {}

/// What a query has found so far: its nearest members, of those within a nearness.
#[derive(Debug)]
pub(crate) struct Nearest {
    /// The farthest comes first.
    hits: BinaryHeap<Hit>,
    count: usize,
    within: f64,
    /// A place that does not count: that of the query itself.
    but: Option<(u32, u32)>,
}

impl Nearest {
    /// Nothing yet, of at most `count` members up to `within`, that at `but` left out.
    pub(crate) fn new(count: usize, within: f64, but: Option<(u32, u32)>) -> Self {
        Self { hits: BinaryHeap::new(), count, within, but }
    }

    /// Bytes that it holds for so many hits.
    pub(crate) fn memory_bytes(hits: u64) -> u64 {
        // A heap doubles as it grows; each has a lock and a place in a list.
        (size_of::<Mutex<Self>>() as u64 + 16).saturating_add(hits.saturating_mul(2 * size_of::<Hit>() as u64))
    }

    /// How near a member must be to count.
    fn most(&self) -> f64 {
        match self.hits.peek() {
            Some(farthest) if self.hits.len() == self.count => farthest.nearness,
            _ => self.within,
        }
    }

    /// Takes a member up to [`Self::most`].
    fn offer(&mut self, hit: Hit) {
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

    /// How many it holds.
    pub(crate) fn len(&self) -> usize {
        self.hits.len()
    }

    /// What it holds, nearest first.
    pub(crate) fn into_sorted(self) -> Vec<Hit> {
        self.hits.into_sorted_vec()
    }
}

/// One worker's comparison of queries with buckets.
pub(crate) struct NearestSearch<'a, T: Coordinate> {
    kernel: Kernel,
    space: Space<'a>,
    queries: &'a Members<T>,
    /// The number of the first of them that is looked for.
    first: u32,
    nearest: &'a [Mutex<Nearest>],
    columns: PackedColumns<T>,
    order: Vec<u32>,
    limits: Vec<T::Distance>,
    hits: Vec<HitMask>,
}

impl<'a, T: Coordinate> NearestSearch<'a, T> {
    /// Of queries from a number on, and what each of these has found, among buckets of a space.
    pub(crate) fn new(
        kernel: Kernel,
        space: Space<'a>,
        (queries, first): (&'a Members<T>, u32),
        nearest: &'a [Mutex<Nearest>],
    ) -> Self {
        let columns = kernel.pack(&Panel::zeroed(0, space.vectors.dimensions), &[]);
        let (order, limits, hits) = (Vec::new(), Vec::new(), Vec::new());
        Self { kernel, space, queries, first, nearest, columns, order, limits, hits }
    }

    /// Bytes that it holds for buckets of at most `rows` members.
    pub(crate) fn memory_bytes(rows: usize, dimensions: usize) -> u64 {
        let columns = rows.next_multiple_of(TILE_COLUMNS);
        let hits = 2 * block_rows(rows) * columns / MASK_COLUMNS_MIN * size_of::<HitMask>();
        let floats = 2 * dimensions * size_of::<f32>();
        PackedColumns::<T>::bytes_for(columns, dimensions) + (hits + 4 * rows + floats) as u64
    }

    /// Compares queries with all members of a bucket; returns how many pairs that were, and how many hits more are held.
    pub(crate) fn compare(&mut self, number: u32, bucket: &LoadedBucket<T>, queries: &[u32]) -> (u64, u64) {
        let members = &bucket.members;
        self.order.clear();
        self.order.extend(0..members.len() as u32);
        self.kernel.pack_into(&members.panel, &self.order, &mut self.columns);
        let residuals = self.queries.residual + members.residual;
        let (mut compared, mut more) = (0, 0);
        for some in queries.chunks(block_rows(members.len())) {
            let (nearest, first, space) = (self.nearest, self.first, self.space);
            let most = |query: u32| lock(&nearest[(query - first) as usize]).most();
            self.limits.clear();
            self.limits.extend(some.iter().map(|&query| limit_of::<T>(most(query), space, residuals)));
            self.hits.clear();
            let rows = (&self.queries.panel, some, &self.limits[..]);
            compared += self.kernel.within_each(rows, &self.columns, &mut self.hits);
            for mask in &self.hits {
                more += self.take(some[mask.row as usize], mask, number, bucket);
            }
        }
        (compared, more)
    }

    /// Decides the hits of a query; returns how many more it holds.
    fn take(&self, query: u32, mask: &HitMask, number: u32, bucket: &LoadedBucket<T>) -> u64 {
        let mut nearest = lock(&self.nearest[(query - self.first) as usize]);
        let before = nearest.len();
        let (by, others) = ((self.kernel, self.space.metric), (&bucket.members, mask.columns()));
        let most = nearest.most();
        self.queries.each_nearness(by, query, others, most, |member, nearness| {
            nearest.offer(Hit { nearness, row: bucket.row(member), place: (number, member) });
            nearest.most()
        });
        (nearest.len() - before) as u64
    }
}

/// A computed distance above this is surely above a nearness.
fn limit_of<T: Coordinate>(most: f64, space: Space<'_>, residuals: f64) -> T::Distance {
    if most == f64::INFINITY {
        return T::FARTHEST;
    }
    T::tile_limit(&Threshold::up_to(most, space).widened(residuals))
}
