//! Queries in memory against the buckets of a store: which buckets, one pass over them, what each query found.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::options::Wanted;
use super::probing::Prober;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::execute::{AllNearest, Hit, Nearest, NearestSearch};
use crate::geometry::{Coordinate, Space};
use crate::load::{BucketPass, Buckets, Members, ReadCounts, least_read_ahead, read_ahead_bytes};
use crate::message::{Argument, message};
use crate::options::VectorType;
use crate::plan::{Load, Probes};
use crate::workers::map_items;

/// What memory is for, as a refusal says it.
const PURPOSE: &str = "this search";
/// Hits that queries without a limit on their number hold at least, before fewer are searched at once.
const HITS_EXPECTED: u64 = 1_000;
/// Bytes of a bucket that a query looks into: in the list of the query, which may have doubled, and that of the bucket.
const BYTES_OF_VISIT: u64 = 4 * size_of::<u32>() as u64;
/// Bytes of a hit of a query without a limit on their number: in a heap that doubles, sorted, and on its way out.
const BYTES_OF_HIT: u64 = 4 * size_of::<Hit>() as u64;
/// Queries that are searched at once, at most: more would not make it faster.
const QUERIES_MAX: u64 = 1 << 17;

/// A store that is searched: its centers are in memory.
pub(super) struct Searcher<'a, T: Coordinate> {
    /// Its budget is that of the run.
    pub(super) context: &'a Context,
    pub(super) buckets: &'a Buckets<'a>,
    pub(super) centers: Panel<T>,
    pub(super) prober: Prober<T>,
    pub(super) counts: Counts,
    read_ahead: u64,
    /// All that is held beside queries.
    _memory: Reservation,
}

/// What was done so far.
#[derive(Default)]
pub(super) struct Counts {
    compared: AtomicU64,
    center_distances: AtomicU64,
    probed: AtomicU64,
}

/// What was done for some queries.
pub(super) struct Counted {
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
    /// What was done since the last call, after `reads` in all.
    pub(super) fn take(&self, reads: ReadCounts) -> Counted {
        let of = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let [compared, center_distances, probed] = [&self.compared, &self.center_distances, &self.probed].map(of);
        Counted { compared, center_distances, probed, reads }
    }
}

/// Queries in memory.
pub(super) struct Queries<T> {
    pub(super) members: Members<T>,
    /// Where each lies itself, of queries from the store.
    pub(super) places: Option<Vec<(u32, u32)>>,
}

/// Queries that look into each bucket.
enum Visits {
    /// All into every one.
    Every(Vec<u32>),
    /// Where those of each bucket end, and the queries.
    Some(Vec<usize>, Vec<u32>),
}

impl Visits {
    fn of(&self, bucket: u32) -> &[u32] {
        match self {
            Self::Every(queries) => queries,
            Self::Some(ends, queries) => {
                let start = if bucket == 0 { 0 } else { ends[bucket as usize - 1] };
                &queries[start..ends[bucket as usize]]
            }
        }
    }

    /// Buckets that queries look into, added up.
    fn count(&self, buckets: u32) -> u64 {
        match self {
            Self::Every(queries) => queries.len() as u64 * u64::from(buckets),
            Self::Some(_, queries) => queries.len() as u64,
        }
    }

    /// The buckets that anyone looks into, ascending.
    fn loads(&self, buckets: u32) -> impl Iterator<Item = Load> {
        Load::each(buckets).filter(|load| !self.of(load.bucket).is_empty())
    }
}

impl<'a, T: Coordinate> Searcher<'a, T> {
    /// Reads the centers; takes the memory that does not depend on the number of queries.
    ///
    /// # Errors
    /// Where the budget is too small, or the centers are not as written.
    pub(super) fn new(context: &'a Context, buckets: &'a Buckets<'a>) -> Result<Self> {
        let (extents, free) = (buckets.extents(), context.budget().free());
        let read_ahead = read_ahead_bytes(extents, false, free);
        let memory = context.reserve(Self::fixed_bytes(buckets, context.threads) + read_ahead, PURPOSE)?;
        let centers = buckets.centers::<T>()?;
        let prober = Prober::new(context.kernel, &centers);
        let counts = Counts::default();
        Ok(Self { context, buckets, centers, prober, counts, read_ahead, _memory: memory })
    }

    /// The least bytes of a search beside `of_queries`: a query may look into every bucket.
    pub(super) fn least_bytes(buckets: &Buckets<'_>, threads: usize, of_queries: u64) -> u64 {
        let visits = BYTES_OF_VISIT * u64::from(buckets.count());
        let fixed = Self::fixed_bytes(buckets, threads) + 2 * least_read_ahead(buckets.extents(), true);
        of_queries.saturating_add(fixed + visits)
    }

    /// Bytes of centers and workers.
    fn fixed_bytes(buckets: &Buckets<'_>, threads: usize) -> u64 {
        let (centers, dimensions) = (buckets.extents().len(), buckets.vectors().dimensions);
        let a_worker = NearestSearch::<T>::memory_bytes(buckets.rows_max(), dimensions);
        Panel::<T>::bytes_for(centers, dimensions)
            + Prober::<T>::memory_bytes(centers, dimensions, threads)
            + BucketPass::<T>::bytes(threads, buckets)
            + threads.max(1) as u64 * a_worker
    }

    /// Bytes of a query of a type: as it is stored, as coordinates, what it finds, and a place in each list.
    pub(super) fn bytes_of_query(buckets: &Buckets<'_>, queries: VectorType, wanted: Wanted) -> u64 {
        let answers = match wanted {
            Wanted::Nearest(k) => Nearest::memory_bytes(k.min(buckets.rows())),
            // In a heap that doubles as it grows.
            Wanted::Within(_) => Nearest::memory_bytes(2 * HITS_EXPECTED.min(buckets.rows())),
        };
        let members = Members::<T>::memory_bytes(1, queries, buckets.metric());
        answers.saturating_add(2 * queries.bytes() as u64 + members + 64)
    }

    /// Queries that are searched at once, at least one: half of the memory is for lists of the buckets that they look into.
    pub(super) fn queries_at_once(&self, of: u64) -> u64 {
        (self.context.budget().free() / 2 / of).clamp(1, QUERIES_MAX)
    }

    /// What queries find. Fewer are searched at once where memory does not hold what they look into or find; that changes
    /// nothing of what they find. `take` gets the answers of some, in their order.
    ///
    /// # Errors
    /// Where the store cannot be read, the answers of one query do not fit into memory, or `take` fails.
    pub(super) fn search(
        &self,
        queries: &Queries<T>,
        wanted: Wanted,
        probes: Probes,
        mut take: impl FnMut(Range<u32>, Vec<Vec<Hit>>) -> Result<()>,
    ) -> Result<()> {
        let mut ranges: Vec<Range<u32>> = std::iter::once(0..queries.members.len() as u32).collect();
        while let Some(range) = ranges.pop() {
            if range.is_empty() {
                continue;
            }
            match self.search_some(queries, range.clone(), wanted, probes)? {
                Some(found) => take(range, found)?,
                None => {
                    let middle = range.start + (range.end - range.start) / 2;
                    ranges.extend([middle..range.end, range.start..middle]);
                }
            }
        }
        Ok(())
    }

    /// What some queries find; none where memory holds less, and they are several.
    fn search_some(
        &self,
        queries: &Queries<T>,
        range: Range<u32>,
        wanted: Wanted,
        probes: Probes,
    ) -> Result<Option<Vec<Vec<Hit>>>> {
        let Self { context, buckets, centers, read_ahead, .. } = self;
        let Some((visits, memory)) = self.visits(queries, range.clone(), wanted, probes)? else { return Ok(None) };
        let (count, within) = wanted.bounds(buckets.rows());
        let place = |query: u32| queries.places.as_ref().map(|places| places[query as usize]);
        let nearest = AllNearest::new(range.clone().map(|query| Nearest::new(count, within, place(query))));
        // A query's own list is bounded by k; without k, by what is left.
        let room = match wanted {
            Wanted::Nearest(_) => u64::MAX,
            Wanted::Within(_) => context.budget().free() / BYTES_OF_HIT,
        };
        let held = AtomicU64::new(0);
        let pass = BucketPass { context, buckets, centers, phase: "search", read_ahead: *read_ahead };
        let space = buckets.space();
        let state = || NearestSearch::new(context.kernel, space, (&queries.members, range.start), &nearest);
        let together = queries.together(range.clone());
        map_items(context.threads, together.len(), &context.cancel, state, |search, number| {
            search.bound(&together[number]);
            Ok(())
        })?;
        let compared = pass.run_over(visits.loads(buckets.count()), state, |search, number, bucket| {
            if held.load(Ordering::Relaxed) > room {
                return Ok(0);
            }
            let (compared, more) = search.compare(number, bucket, visits.of(number));
            held.fetch_add(more, Ordering::Relaxed);
            Ok(compared)
        })?;
        drop(memory);
        let visited = visits.count(buckets.count());
        if held.into_inner() > room {
            let alone = range.end - range.start == 1;
            return if alone { Err(too_many_hits()) } else { Ok(None) };
        }
        self.counts.compared.fetch_add(compared.iter().sum(), Ordering::Relaxed);
        self.counts.probed.fetch_add(visited, Ordering::Relaxed);
        nearest.into_sorted(context).map(Some)
    }

    /// Who looks into which buckets; none where memory does not hold that of several queries.
    fn visits(
        &self,
        queries: &Queries<T>,
        range: Range<u32>,
        wanted: Wanted,
        probes: Probes,
    ) -> Result<Option<(Visits, Option<Reservation>)>> {
        let (count, buckets) = (u64::from(range.end - range.start), self.buckets.count());
        if probes == Probes::Every {
            return Ok(Some((Visits::Every(range.collect()), None)));
        }
        let room = AtomicU64::new(self.context.budget().free());
        let panel = &queries.members.panel;
        // As many as there are to find, and the query itself.
        let least_rows = match wanted {
            Wanted::Nearest(k) => k.saturating_add(1).min(self.buckets.rows()),
            Wanted::Within(_) => 0,
        };
        let rows = |bucket| u64::from(self.buckets.extent(bucket).rows);
        let lists = self.prober.map(self.context, panel, range.clone(), |_, measured| {
            let list: Vec<u32> = measured.probed::<T>(probes, least_rows, rows).collect();
            let bytes = list.len() as u64 * BYTES_OF_VISIT;
            let fits = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(bytes)).is_ok();
            if fits || count == 1 { Some(list) } else { None }
        })?;
        let Some(lists) = lists.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        self.counts.center_distances.fetch_add(count * u64::from(buckets), Ordering::Relaxed);
        let visits: usize = lists.iter().map(Vec::len).sum();
        let memory = self.context.reserve(visits as u64 * BYTES_OF_VISIT, PURPOSE)?;
        Ok(Some((by_bucket(&lists, range.start, buckets), Some(memory))))
    }
}

/// The refusal of a query that finds more than memory holds.
fn too_many_hits() -> Error {
    Error::budget(message![
        "the hits of one query do not fit into memory; give more ",
        Argument::Memory,
        ", a smaller ",
        Argument::Radius,
        " or a larger ",
        Argument::MinSimilarity
    ])
}

/// The queries of each bucket, ascending, given the buckets of each query.
fn by_bucket(lists: &[Vec<u32>], first: u32, buckets: u32) -> Visits {
    let mut ends = vec![0; buckets as usize];
    lists.iter().flatten().for_each(|&bucket| ends[bucket as usize] += 1);
    let mut end = 0;
    ends.iter_mut().for_each(|count| {
        let start = end;
        end += *count;
        *count = start;
    });
    let mut queries = vec![0; end];
    for (query, list) in (first..).zip(lists) {
        for &bucket in list {
            queries[ends[bucket as usize]] = query;
            ends[bucket as usize] += 1;
        }
    }
    Visits::Some(ends, queries)
}

impl<T: Coordinate> Queries<T> {
    /// Those of a range that lie in one bucket, as many together as a bucket has at most.
    fn together(&self, range: Range<u32>) -> Vec<Vec<u32>> {
        let Some(places) = &self.places else { return Vec::new() };
        let all: Vec<u32> = range.collect();
        all.chunk_by(|&a, &b| places[a as usize].0 == places[b as usize].0).map(<[u32]>::to_vec).collect()
    }

    /// Queries as they are stored, in the space of a store whose vectors may be of another type.
    pub(super) fn new(
        searcher: &Searcher<'_, T>,
        vectors: VectorType,
        stored: &[u8],
        places: Option<Vec<(u32, u32)>>,
    ) -> Self {
        let space = Space { vectors, ..searcher.buckets.space() };
        Self { members: Members::new(searcher.context.kernel, space, stored), places }
    }
}
