//! A store that is searched: what it holds in memory, how many queries are searched at once, and what was done so far.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::probe_pass::ProbePass;
use super::probing::{Measured, Prober};
use super::visits::Visits;
use crate::context::Context;
use crate::error::Result;
use crate::execute::{Hit, Nearest, NearestSearch};
use crate::geometry::Coordinate;
use crate::load::{BucketPass, Buckets, LoadedBucket, Members, ReadCounts, Subset, least_read_ahead, read_ahead_bytes};
use crate::options::VectorType;
use crate::plan::Probes;
use crate::predicate::Predicate;
use crate::query::QueryTarget;
use crate::query::in_halves;

/// What memory is for, as a refusal says it.
const PURPOSE: &str = "this search";
/// Bytes of a bucket that a query looks into: in the list of the query and in that of the bucket.
const BYTES_OF_VISIT: u64 = 2 * size_of::<u32>() as u64;
/// Hits that queries without a limit on their number hold at least, before fewer are searched at once.
const HITS_EXPECTED: u64 = 1_000;
/// Queries that are searched at once, at most: more would not make it faster.
const QUERIES_MAX: u64 = 1 << 17;

/// A store that is searched: its centers are in memory.
pub(crate) struct Searcher<'a, T: Coordinate> {
    /// Its budget is that of the run.
    pub(crate) context: &'a Context,
    pub(crate) buckets: &'a Buckets<'a>,
    /// The members that may be found, where not all may.
    pub(super) subset: Option<Subset<'a>>,
    /// How near the nearest must be to be found, where that matters.
    pub(super) within: Option<Predicate>,
    pub(crate) centers: Panel<T>,
    pub(super) prober: Prober<T>,
    pub(crate) counts: Counts,
    pub(crate) read_ahead: u64,
    /// All that is held beside queries.
    _memory: Reservation,
}

/// What was done so far.
#[derive(Default)]
pub(crate) struct Counts {
    compared: AtomicU64,
    center_distances: AtomicU64,
    probed: AtomicU64,
}

/// What was done for some queries.
pub(crate) struct Counted {
    /// Pairs whose distance was computed.
    pub(super) compared: u64,
    /// Distances to centers.
    pub(super) center_distances: u64,
    /// Buckets that queries looked into, added up.
    pub(super) probed: u64,
    /// All reads up to then.
    pub(super) reads: ReadCounts,
}

impl Counts {
    /// Counts pairs whose distance was computed, and buckets that queries looked into.
    pub(super) fn add_compared(&self, compared: u64, probed: u64) {
        self.compared.fetch_add(compared, Ordering::Relaxed);
        self.probed.fetch_add(probed, Ordering::Relaxed);
    }

    /// Counts distances to centers.
    pub(super) fn add_center_distances(&self, count: u64) {
        self.center_distances.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts what was done elsewhere.
    fn add(&self, other: &Self) {
        let Counted { compared, center_distances, probed, .. } = other.take(ReadCounts::default());
        self.add_compared(compared, probed);
        self.add_center_distances(center_distances);
    }

    /// What was done since the last call, after `reads` in all.
    pub(crate) fn take(&self, reads: ReadCounts) -> Counted {
        let of = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let [compared, center_distances, probed] = [&self.compared, &self.center_distances, &self.probed].map(of);
        Counted { compared, center_distances, probed, reads }
    }
}

/// Queries in memory.
pub(crate) struct Queries<T> {
    pub(super) members: Members<T>,
    /// Where each lies itself, of queries from the store.
    pub(super) places: Option<Vec<(u32, u32)>>,
}

impl<'a, T: Coordinate> Searcher<'a, T> {
    /// Reads the centers; takes the memory that does not depend on the number of queries.
    ///
    /// # Errors
    /// Where the budget is too small, or the centers are not as written.
    pub(crate) fn new(context: &'a Context, buckets: &'a Buckets<'a>) -> Result<Self> {
        let (extents, free) = (buckets.extents(), context.budget().free());
        let read_ahead = read_ahead_bytes(extents, false, free);
        let memory = context.reserve(Self::fixed_bytes(buckets, context.threads) + read_ahead, PURPOSE)?;
        let centers = buckets.centers::<T>()?;
        let prober = Prober::new(context.kernel, &centers);
        let counts = Counts::default();
        Ok(Self { context, buckets, subset: None, within: None, centers, prober, counts, read_ahead, _memory: memory })
    }

    /// The same among some of the members only.
    pub(super) fn among(self, subset: Subset<'a>) -> Self {
        Self { subset: Some(subset), ..self }
    }

    /// The same where of the nearest only those within a threshold are found.
    pub(super) fn within(self, within: Option<Predicate>) -> Self {
        Self { within, ..self }
    }

    /// What a query has found of what is wanted when it has looked nowhere; the member at `but` does not count.
    pub(super) fn none_found(&self, wanted: QueryTarget, but: Option<(u32, u32)>) -> Nearest {
        let none = wanted.among(self.all_rows()).nearest(self.buckets.metric(), but);
        match self.within {
            Some(within) => none.only_within(within),
            None => none,
        }
    }

    /// How many members of all buckets may be found.
    pub(super) fn all_rows(&self) -> u64 {
        self.subset.map_or_else(|| self.buckets.rows(), Subset::len)
    }

    /// How many members of a bucket may be found.
    pub(super) fn rows(&self, bucket: u32) -> u64 {
        self.subset.map_or_else(|| self.buckets.extent(bucket).rows.into(), |subset| subset.rows(bucket))
    }

    /// The least bytes of a search beside `of_queries`: a query may look into every bucket.
    pub(crate) fn least_bytes(buckets: &Buckets<'_>, threads: usize, of_queries: u64) -> u64 {
        // Half of the memory is for queries.
        let visits = 4 * BYTES_OF_VISIT * u64::from(buckets.count());
        let fixed = Self::fixed_bytes(buckets, threads) + 2 * least_read_ahead(buckets.extents(), true);
        of_queries.saturating_add(fixed + visits)
    }

    /// Bytes of centers and workers.
    fn fixed_bytes(buckets: &Buckets<'_>, threads: usize) -> u64 {
        let (centers, dimensions) = (buckets.extents().len(), buckets.space().dimensions());
        let a_worker = NearestSearch::<T>::memory_bytes(buckets.rows_max(), dimensions);
        Panel::<T>::bytes_for(centers, dimensions)
            + Prober::<T>::memory_bytes(centers, dimensions, threads)
            + BucketPass::<T>::bytes(threads, buckets)
            + threads.max(1) as u64 * a_worker
    }

    /// Bytes of a query of a type: as it is stored, as coordinates, what it finds, and a place in each list.
    pub(crate) fn bytes_of_query(buckets: &Buckets<'_>, queries: VectorType, wanted: QueryTarget) -> u64 {
        let answers = match wanted {
            QueryTarget::Nearest(k) => Nearest::memory_bytes(k.min(buckets.rows())),
            // In a heap that doubles as it grows.
            QueryTarget::Within(_) => Nearest::memory_bytes(2 * HITS_EXPECTED.min(buckets.rows())),
        };
        answers.saturating_add(Self::bytes_of_vector(buckets, queries))
    }

    /// The same without what it finds.
    pub(super) fn bytes_of_vector(buckets: &Buckets<'_>, queries: VectorType) -> u64 {
        let members = Members::<T>::memory_bytes(1, buckets.space().of_queries(queries));
        2 * queries.bytes() as u64 + members + 64
    }

    /// Queries that are searched at once, at least one: half of the memory is for lists of the buckets that they look into.
    pub(crate) fn queries_at_once(&self, of: u64) -> u64 {
        (self.context.budget().free() / 2 / of).clamp(1, QUERIES_MAX)
    }

    /// Measures some queries against all centers.
    pub(super) fn measure<R: Send>(
        &self,
        (queries, numbers): (&Queries<T>, impl Iterator<Item = u32>),
        counts: &Counts,
        work: impl Fn(u32, &mut Measured<'_>) -> R + Sync,
    ) -> Result<Vec<R>> {
        let measured = self.prober.map(self.context, &queries.members.panel, numbers, work)?;
        counts.add_center_distances(measured.len() as u64 * u64::from(self.buckets.count()));
        Ok(measured)
    }

    /// The buckets that some queries look into by a rule, at least until these have so many rows; none where memory does not
    /// hold that of several queries.
    pub(super) fn visits(
        &self,
        (queries, range): (&Queries<T>, Range<u32>),
        (probes, least_rows): (Probes, u64),
        counts: &Counts,
    ) -> Result<Option<(Visits, Reservation)>> {
        let Self { context, buckets, .. } = *self;
        let room = AtomicU64::new(context.budget().free());
        let lists = self.measure((queries, range.clone()), counts, |_, measured| {
            let mut list: Vec<u32> = measured.probed::<T>(probes, least_rows, |bucket| self.rows(bucket)).collect();
            list.shrink_to_fit();
            let bytes = list.len() as u64 * BYTES_OF_VISIT;
            let fits = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(bytes)).is_ok();
            if fits || range.len() == 1 { Some(list) } else { None }
        })?;
        let Some(lists) = lists.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let visits: usize = lists.iter().map(Vec::len).sum();
        let memory = context.reserve(visits as u64 * BYTES_OF_VISIT, PURPOSE)?;
        Ok(Some((Visits::of_lists(&lists, range.start, buckets.count()), memory)))
    }

    /// One pass over the buckets that queries look into, each with these queries; the results come in the order of the buckets.
    pub(super) fn look<S, R: Send>(
        &self,
        visits: &Visits,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, u32, &LoadedBucket<T>, &[u32]) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let Self { context, buckets, ref centers, read_ahead, .. } = *self;
        let pass = BucketPass { context, buckets, centers, phase: "search", read_ahead };
        // A bucket of which no member may be found is not read.
        let loads = visits.loads(buckets.count()).filter(|load| self.rows(load.bucket) > 0);
        let state = || (state(), Vec::new());
        pass.run_over(loads, state, |(state, buffer), number, bucket| {
            work(state, number, bucket, visits.of(number, buffer))
        })
    }

    /// What queries find. Fewer are searched at once where memory does not hold what they look into or find; that changes
    /// nothing of what they find. `take` gets the answers of some, in their order.
    ///
    /// # Errors
    /// Where the store cannot be read, the answers of one query do not fit into memory, or `take` fails.
    pub(crate) fn search(
        &self,
        queries: &Queries<T>,
        wanted: QueryTarget,
        probes: Probes,
        take: impl FnMut(Range<u32>, Vec<Vec<Hit>>) -> Result<()>,
    ) -> Result<()> {
        in_halves(
            (self.context, self.all_rows()),
            queries.members.len() as u32,
            |range| self.search_some(queries, range, wanted, probes),
            take,
        )
    }

    /// What some queries find; none where memory holds less.
    pub(super) fn search_some(
        &self,
        queries: &Queries<T>,
        range: Range<u32>,
        wanted: QueryTarget,
        probes: Probes,
    ) -> Result<Option<Vec<Vec<Hit>>>> {
        let looking = ProbePass::new(self, queries, range, wanted);
        let fits = match probes {
            Probes::Bound => looking.by_bound()?,
            _ => looking.by_rule(probes)?,
        };
        if !fits || looking.is_full() {
            return Ok(None);
        }
        let (found, counts) = looking.into_found()?;
        self.counts.add(&counts);
        Ok(Some(found))
    }
}

/// Queries of a group.
fn count_of(group: &[(u32, Range<u32>)]) -> usize {
    group.iter().map(|(_, queries)| queries.len()).sum()
}

impl<T: Coordinate> Queries<T> {
    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        self.members.len() as u32
    }

    /// Those of a range that lie in the store, in groups of buckets with their queries: those of one bucket, and of buckets
    /// behind it while they are fewer than `least`, but not more than `most`.
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

    /// Queries as they are stored, in the space of a store whose vectors may be of another type.
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
