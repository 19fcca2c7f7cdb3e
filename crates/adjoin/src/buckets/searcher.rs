//! A store opened for searching: its centers in memory, the memory of its queries, and counters of the work done.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::probing::{Measured, Prober};
use super::visits::Visits;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::options::VectorType;
use crate::base::predicate::Predicate;
use crate::execute::{Nearest, NearestSearch};
use crate::load::{BucketPass, Buckets, LoadedBucket, Members, ReadCounts, Subset, least_read_ahead, read_ahead_bytes};
use crate::plan::Probes;
use crate::query::QueryTarget;

/// Purpose of the memory in error messages.
const PURPOSE: &str = "this search";
/// Memory of a probe in bytes: an entry in the list of the query, and an entry in the list of the bucket.
const BYTES_OF_VISIT: u64 = 2 * size_of::<u32>() as u64;
/// Number of hits for which memory is reserved per query, if the target does not limit their number.
const HITS_EXPECTED: u64 = 1_000;
/// Maximum number of queries that are searched at once. More are not faster.
const QUERIES_MAX: u64 = 1 << 17;

/// Store opened for searching, with its centers in memory.
pub(crate) struct Searcher<'a, T: Coordinate> {
    /// Context with the memory of the run.
    pub(crate) context: &'a Context,
    pub(crate) buckets: &'a Buckets<'a>,
    /// Members that can be hits; `None` if all can.
    pub(super) subset: Option<Subset<'a>>,
    /// Threshold that the K nearest must also meet, if any.
    pub(super) within: Option<Predicate>,
    pub(crate) loaded: Arc<LoadedCenters<T>>,
    pub(crate) counts: Counts,
}

/// Centers of a store in memory. They can be used by one searcher after the other.
pub(crate) struct LoadedCenters<T: Coordinate> {
    pub(crate) panel: Panel<T>,
    pub(super) prober: Prober<T>,
    /// Memory of searchers for read-ahead, in bytes.
    pub(crate) read_ahead: u64,
    /// Memory of everything except queries.
    _memory: Reservation,
}

/// Counters of the work done so far.
#[derive(Default)]
pub(crate) struct Counts {
    compared: AtomicU64,
    center_distances: AtomicU64,
    probed: AtomicU64,
}

/// Work done between two points in time.
pub(crate) struct Counted {
    /// Number of computed distances between queries and members.
    pub(super) compared: u64,
    pub(super) center_distances: u64,
    /// Number of probes of all queries together.
    pub(super) probed: u64,
    /// All reads since the start of the run, up to the end of this work.
    pub(super) reads: ReadCounts,
}

impl Counts {
    /// Adds computed distances and probes to the counters.
    pub(super) fn add_compared(&self, compared: u64, probed: u64) {
        self.compared.fetch_add(compared, Ordering::Relaxed);
        self.probed.fetch_add(probed, Ordering::Relaxed);
    }

    pub(super) fn add_center_distances(&self, count: u64) {
        self.center_distances.fetch_add(count, Ordering::Relaxed);
    }

    /// Adds the counters of `other`, and resets these to 0.
    pub(super) fn add(&self, other: &Self) {
        let Counted { compared, center_distances, probed, .. } = other.take(ReadCounts::default());
        self.add_compared(compared, probed);
        self.add_center_distances(center_distances);
    }

    /// Returns the work done since the last call, and resets the counters. `reads` are all reads so far.
    pub(crate) fn take(&self, reads: ReadCounts) -> Counted {
        let of = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let [compared, center_distances, probed] = [&self.compared, &self.center_distances, &self.probed].map(of);
        Counted { compared, center_distances, probed, reads }
    }
}

/// Queries in memory, in the form in which they are compared.
pub(crate) struct Queries<T> {
    pub(super) members: Members<T>,
    /// Bucket of each query, and its position in the bucket, if the queries are rows of the store.
    pub(super) places: Option<Vec<(u32, u32)>>,
}

impl<T: Coordinate> LoadedCenters<T> {
    /// Reads the centers, and reserves the memory that does not depend on the number of queries. `spare` is the number
    /// of bytes that are free in addition to the least memory of the search.
    ///
    /// # Errors
    /// If the budget is too small, or if the centers are damaged.
    pub(crate) fn read(context: &Context, buckets: &Buckets<'_>, spare: u64) -> Result<Self> {
        let read_ahead = read_ahead_bytes(buckets.extents(), false, spare);
        let bytes = Searcher::<T>::fixed_bytes(buckets, context.threads) + read_ahead;
        let memory = context.reserve(bytes, PURPOSE)?;
        let panel = buckets.centers::<T>()?;
        let prober = Prober::new(context.kernel, &panel);
        Ok(Self { panel, prober, read_ahead, _memory: memory })
    }
}

impl<'a, T: Coordinate> Searcher<'a, T> {
    /// Opens a store for one search. `spare` is the number of bytes that are free in addition to the least memory of
    /// the search.
    ///
    /// # Errors
    /// As [`LoadedCenters::read`].
    pub(crate) fn new(context: &'a Context, buckets: &'a Buckets<'a>, spare: u64) -> Result<Self> {
        Ok(Self::with_centers(context, buckets, LoadedCenters::read(context, buckets, spare)?.into()))
    }

    /// Creates a searcher with centers that were already read.
    pub(crate) fn with_centers(context: &'a Context, buckets: &'a Buckets<'a>, loaded: Arc<LoadedCenters<T>>) -> Self {
        Self { context, buckets, subset: None, within: None, loaded, counts: Counts::default() }
    }

    /// Restricts the hits to some of the members.
    pub(super) fn among(self, subset: Subset<'a>) -> Self {
        Self { subset: Some(subset), ..self }
    }

    /// Restricts the K nearest to those within a threshold.
    pub(super) fn within(self, within: Option<Predicate>) -> Self {
        Self { within, ..self }
    }

    /// Returns the empty result of a query. The member at `but` is excluded from the hits.
    pub(super) fn none_found(&self, target: QueryTarget, but: Option<(u32, u32)>) -> Nearest {
        let none = target.among(self.all_rows()).nearest(self.buckets.metric(), but);
        match self.within {
            Some(within) => none.only_within(within),
            None => none,
        }
    }

    /// Returns the number of members that can be hits.
    pub(super) fn all_rows(&self) -> u64 {
        self.subset.map_or_else(|| self.buckets.rows(), Subset::len)
    }

    /// Returns the number of members of a bucket that can be hits.
    pub(super) fn rows(&self, bucket: u32) -> u64 {
        self.subset.map_or_else(|| self.buckets.extent(bucket).rows.into(), |subset| subset.rows(bucket))
    }

    /// Returns the least memory in bytes of a search if all queries take `queries_bytes`. It suffices even if a query
    /// probes every bucket.
    pub(crate) fn least_bytes(buckets: &Buckets<'_>, threads: usize, queries_bytes: u64) -> u64 {
        // Half of the memory is for queries.
        let visits = 4 * BYTES_OF_VISIT * u64::from(buckets.count());
        let fixed = Self::fixed_bytes(buckets, threads) + 2 * least_read_ahead(buckets.extents(), true);
        queries_bytes.saturating_add(fixed + visits)
    }

    /// Returns the memory in bytes of centers and workers.
    fn fixed_bytes(buckets: &Buckets<'_>, threads: usize) -> u64 {
        let (centers, dimensions) = (buckets.extents().len(), buckets.space().dimensions());
        let a_worker = NearestSearch::<T>::memory_bytes(buckets.rows_max(), dimensions);
        Panel::<T>::bytes_for(centers, dimensions)
            + Prober::<T>::memory_bytes(centers, dimensions, threads)
            + BucketPass::<T>::bytes(threads, buckets)
            + threads.max(1) as u64 * a_worker
    }

    /// Returns the memory in bytes of a query: its stored vector, its coordinates, its hits, and an entry in each
    /// list.
    pub(crate) fn bytes_of_query(buckets: &Buckets<'_>, queries: VectorType, target: QueryTarget) -> u64 {
        let answers = match target {
            QueryTarget::Nearest(k) => Nearest::memory_bytes(k.min(buckets.rows())),
            // The hits are in a heap that doubles when it grows.
            QueryTarget::Within(_) => Nearest::memory_bytes(2 * HITS_EXPECTED.min(buckets.rows())),
        };
        answers.saturating_add(Self::bytes_of_vector(buckets, queries))
    }

    /// Returns the memory in bytes of a query without its hits.
    pub(super) fn bytes_of_vector(buckets: &Buckets<'_>, queries: VectorType) -> u64 {
        let members = Members::<T>::memory_bytes(1, buckets.space().of_queries(queries));
        2 * queries.bytes() as u64 + members + 64
    }

    /// Returns the number of queries to search at once if each takes `query_bytes`. It is at least 1.
    pub(crate) fn queries_at_once(&self, query_bytes: u64) -> u64 {
        self.queries_in_memory(query_bytes).min(QUERIES_MAX)
    }

    /// Returns how many queries fit in the free memory if each takes `query_bytes`. It is at least 1. Half of the memory is
    /// for the lists of their probes.
    pub(super) fn queries_in_memory(&self, query_bytes: u64) -> u64 {
        (self.context.budget().free() / 2 / query_bytes).max(1)
    }

    /// Computes the distances of some queries to all centers, and calls `work` with them. Returns the results.
    pub(super) fn measure<R: Send>(
        &self,
        queries: &Queries<T>,
        numbers: impl Iterator<Item = u32>,
        counts: &Counts,
        work: impl Fn(u32, &mut Measured<'_>) -> R + Sync,
    ) -> Result<Vec<R>> {
        let measured = self.loaded.prober.map(self.context, &queries.members.panel, numbers, work)?;
        counts.add_center_distances(measured.len() as u64 * u64::from(self.buckets.count()));
        Ok(measured)
    }

    /// Returns the probes of a range of queries according to a rule. The buckets of each query have at least
    /// `least_rows` rows. Returns `None` if there are several queries and memory is too small for their probes.
    pub(super) fn visits(
        &self,
        queries: &Queries<T>,
        range: Range<u32>,
        probes: Probes,
        least_rows: u64,
        counts: &Counts,
    ) -> Result<Option<(Visits, Reservation)>> {
        let Self { context, buckets, .. } = *self;
        let room = AtomicU64::new(context.budget().free());
        let lists = self.measure(queries, range.clone(), counts, |_, measured| {
            let mut list: Vec<u32> = measured.probed::<T>(probes, least_rows, |bucket| self.rows(bucket)).collect();
            list.shrink_to_fit();
            let bytes = list.len() as u64 * BYTES_OF_VISIT;
            // All threads share the free memory. If a list does not fit, the attempt ends.
            let fits = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(bytes)).is_ok();
            // A single query cannot be divided further. If its list does not fit, the reservation below fails.
            if fits || range.len() == 1 { Some(list) } else { None }
        })?;
        let Some(lists) = lists.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let visits: usize = lists.iter().map(Vec::len).sum();
        let memory = context.reserve(visits as u64 * BYTES_OF_VISIT, PURPOSE)?;
        Ok(Some((Visits::of_lists(&lists, range.start, buckets.count()), memory)))
    }

    /// Reads the probed buckets in one pass. Calls `work` with each bucket and the queries that probe it. Returns the
    /// results in the order of the buckets.
    pub(super) fn look<S, R: Send>(
        &self,
        visits: &Visits,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, u32, &LoadedBucket<T>, &[u32]) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let Self { context, buckets, ref loaded, .. } = *self;
        let LoadedCenters { panel: ref centers, read_ahead, .. } = **loaded;
        let pass = BucketPass { context, buckets, centers, phase: "search", read_ahead };
        // A bucket is not read if none of its members can be a hit.
        let loads = visits.loads(buckets.count()).filter(|load| self.rows(load.bucket) > 0);
        let state = || (state(), Vec::new());
        pass.run_over(loads, state, |(state, buffer), number, bucket| {
            work(state, number, bucket, visits.of(number, buffer))
        })
    }
}

/// Returns the number of queries in a group.
fn count_of(group: &[(u32, Range<u32>)]) -> usize {
    group.iter().map(|(_, queries)| queries.len()).sum()
}

impl<T: Coordinate> Queries<T> {
    pub(crate) fn len(&self) -> u32 {
        self.members.len() as u32
    }

    /// Groups the queries of a range by bucket, if they are rows of the store. A group has the queries of one bucket.
    /// The queries of the following buckets are added while the group has fewer than `least` queries and would not
    /// have more than `most`.
    pub(super) fn groups(&self, range: Range<u32>, least: usize, most: usize) -> Vec<Vec<(u32, Range<u32>)>> {
        let Some(places) = &self.places else { return Vec::new() };
        let bucket = |query: u32| places[query as usize].0;
        let mut groups: Vec<Vec<(u32, Range<u32>)>> = Vec::new();
        let mut next = range.start;
        while next < range.end {
            let start = next;
            next += (start..range.end).take_while(|&query| bucket(query) == bucket(start)).count() as u32;
            let own = (bucket(start), start..next);
            match groups.last_mut() {
                Some(last) if count_of(last) < least && count_of(last) + own.1.len() <= most => last.push(own),
                _ => groups.push(vec![own]),
            }
        }
        groups
    }

    /// Converts stored queries of type `vectors`. This type may differ from the type of the store.
    pub(crate) fn new(
        searcher: &Searcher<'_, T>,
        vectors: VectorType,
        stored: &[u8],
        places: Option<Vec<(u32, u32)>>,
    ) -> Self {
        let space = searcher.buckets.space().of_queries(vectors);
        Self { members: Members::new(searcher.context.kernel, space, stored), places }
    }
}
