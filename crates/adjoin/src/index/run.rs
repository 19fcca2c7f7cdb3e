//! Answers batches of queries with an index, by walks or by comparison with all pages.

use std::ops::{AddAssign, Range};

use super::cache::PageCache;
use super::filtered_vertices::FilteredVertices;
use super::page_scan::{self, PageScan};
use super::unmerged_rows::{ChangedTarget, UnmergedHits};
use super::walk::{WalkAim, WalkCounts};
use super::walk_strategy::WalkStrategy;
use super::walks::{WalkHits, WalkQueries, Walks, bytes_of_hits};
use super::{Index, IndexManifest, PURPOSE_SEARCH};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::options::{Metric, VectorType};
use crate::base::report::{CommonStatistics, RecallStatistics, SearchCounts, SearchStatistics, StrategyStatistics};
use crate::execute::Hit;
use crate::load::{Members, ReadCounts};
use crate::query::{
    BatchSearch, IdRoom, NamedHits, QueryTarget, QueryVectors, RanSearch, SearchWork, SourceQueries, StoredQueries,
};
use crate::source::{IdKind, VectorSource};
use crate::store::{GatheredColumns, ResultColumns};

/// Largest number of queries in a batch.
const QUERIES_MAX: u64 = 4_096;
/// Divisor of the free memory. The queries of a batch take this part of it if the rest caches pages.
const BATCH_PART: u64 = 8;

/// Method of answering queries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SearchMethod {
    /// Walks through the graph.
    Walk(WalkAim),
    /// Comparison with all vectors on all pages.
    PageScan,
}

/// Everything except the method that determines the memory of a search.
#[derive(Clone, Copy)]
pub(super) struct SearchNeeds<'a> {
    pub(super) context: &'a Context,
    pub(super) facts: &'a IndexManifest,
    pub(super) source: &'a dyn VectorSource,
    pub(super) sought: ChangedTarget<'a>,
    pub(super) strategy: WalkStrategy,
    /// Bytes for the delivery of hits: for the hits themselves, for their ids, and for the sink.
    pub(super) handing: u64,
}

/// Method chosen for a search, and the recall that it promises.
#[derive(Debug)]
pub(super) struct SearchPlan {
    pub(super) method: SearchMethod,
    pub(super) recall: Option<RecallStatistics>,
    /// Reads of the calibration; `None` if the method was chosen without a new calibration.
    pub(super) reads: Option<ReadCounts>,
}

impl SearchPlan {
    /// Returns the plan that compares queries with all rows. It reaches any recall. `reads` are the reads of a
    /// calibration that was tried before.
    pub(super) fn whole(target: f64, reads: Option<ReadCounts>) -> Self {
        Self { method: SearchMethod::PageScan, recall: Some(RecallStatistics::proved_at_k(target)), reads }
    }
}

/// A search of an index that is ready to run.
pub(super) struct IndexSearch<'a, T: Coordinate> {
    context: &'a Context,
    index: &'a Index,
    /// Walks of the search; `None` if queries are compared with all pages instead.
    walks: Option<Walks<'a, T>>,
    sought: ChangedTarget<'a>,
    /// Vertices that can be hits; `None` if all can.
    admitted: Option<&'a FilteredVertices<'a>>,
    /// Columns that hits carry, if any.
    carried: Option<&'a ResultColumns<'a>>,
    totals: Totals,
    /// Bytes that suffice for the largest batch with all its walks and hits at once.
    enough_bytes: u64,
}

/// Work of all queries so far.
#[derive(Default)]
struct Totals {
    counts: WalkCounts,
    pages_read: u64,
    /// Reads of comparisons with all pages.
    whole: ReadCounts,
    latencies_ms: Vec<f32>,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        self.pages_read += other.pages_read;
        self.whole += other.whole;
        self.latencies_ms.extend(other.latencies_ms);
    }
}

impl<'a, T: Coordinate> IndexSearch<'a, T> {
    /// Prepares a search by `method`. Pages in `cache` are not read again.
    pub(super) fn new(
        needs: &SearchNeeds<'a>,
        index: &'a Index,
        method: SearchMethod,
        admitted: Option<&'a FilteredVertices<'a>>,
        cache: &'a PageCache,
    ) -> Self {
        let SearchNeeds { context, sought, strategy, .. } = *needs;
        let walks = match method {
            SearchMethod::Walk(aim) => Some(Walks::new(context, index, aim, admitted, strategy, cache)),
            SearchMethod::PageScan => None,
        };
        let enough_bytes = Self::bytes_for_batch(needs, method, QUERIES_MAX);
        Self { context, index, walks, sought, admitted, carried: None, totals: Totals::default(), enough_bytes }
    }

    /// Sets the columns that hits carry.
    pub(super) fn carrying(self, carried: Option<&'a ResultColumns<'a>>) -> Self {
        Self { carried, ..self }
    }

    /// Returns the number of queries per batch that fit in memory.
    pub(super) fn queries_at_once(&self) -> usize {
        let Self { context, index, walks, sought, .. } = self;
        let scanning = || page_scan::working_bytes::<T>(context, index.facts());
        let working = walks.as_ref().map_or_else(scanning, Walks::working_bytes);
        let room = context.budget().free().saturating_sub(working.max(sought.finding_bytes(context))) / 2;
        (room / Self::query_bytes(index.facts(), *sought)).clamp(1, QUERIES_MAX) as usize
    }

    /// Returns the bytes for answering one query at a time by the method `way`.
    pub(super) fn least_bytes(needs: &SearchNeeds<'_>, way: SearchMethod) -> u64 {
        Self::bytes_for(needs, way, 1, 1)
    }

    /// Returns the bytes that a search needs. It uses memory beyond this for caching pages. Little memory has small
    /// batches, since cached pages save more time than large batches.
    pub(super) fn bytes_beside_cache(needs: &SearchNeeds<'_>, way: SearchMethod) -> u64 {
        let of_batch = needs.context.budget().free() / BATCH_PART;
        let queries = of_batch / Self::query_bytes(needs.facts, needs.sought);
        Self::bytes_for_batch(needs, way, queries.clamp(1, QUERIES_MAX))
    }

    /// Returns the bytes that suffice for batches of `queries` queries, or of all if these are fewer, with all walks and
    /// hits at once.
    fn bytes_for_batch(needs: &SearchNeeds<'_>, way: SearchMethod, queries: u64) -> u64 {
        let of_hits = needs.sought.all_hits_bytes(needs.facts);
        let queries = queries.min(needs.source.info().rows);
        Self::bytes_for(needs, way, needs.strategy.walks, queries).saturating_add(of_hits)
    }

    /// Returns the bytes for a batch of `queries` queries with `walks` walks at a time on each thread.
    fn bytes_for(needs: &SearchNeeds<'_>, way: SearchMethod, walks: usize, queries: u64) -> u64 {
        let SearchNeeds { context, facts, source, sought, strategy, handing } = *needs;
        let reading = SourceQueries { source, space: facts.space() }.reading_bytes();
        // Walks take up to half of the free memory (`Walks::new`), and queries up to half of what the walks leave
        // (`queries_at_once`).
        let (working, of_walks) = match way {
            SearchMethod::Walk(aim) => {
                let of_walk = Walks::<T>::walk_bytes(facts, aim, strategy);
                let working = context.threads as u64 * Walks::<T>::worker_bytes(facts, of_walk, walks);
                (working, 2 * working)
            }
            SearchMethod::PageScan => (page_scan::working_bytes::<T>(context, facts), 0),
        };
        let of_queries = (2 * queries).saturating_mul(Self::query_bytes(facts, sought));
        let of_batch = working.max(sought.finding_bytes(context)).saturating_add(of_queries);
        (reading + handing).saturating_add(of_batch.max(of_walks))
    }

    /// Returns the bytes that a query takes while its batch is answered: its vector, stored and converted, and its
    /// hits.
    pub(super) fn query_bytes(facts: &IndexManifest, sought: ChangedTarget<'_>) -> u64 {
        Members::<T>::memory_bytes(1, facts.space())
            + 4 * facts.vectors.dimensions as u64
            + 4 * (bytes_of_hits(facts, sought.wanted) + sought.bytes_of_hits())
    }

    /// Returns the statistics of a search that has run.
    pub(super) fn statistics(
        self,
        target: QueryTarget,
        plan: &SearchPlan,
        planning_seconds: f64,
        ran: &RanSearch,
    ) -> SearchStatistics {
        let Self { context, index, admitted, totals, .. } = self;
        let (facts, page_bytes) = (index.facts(), index.facts().shape().bytes() as u64);
        let WalkCounts { reads, distances, led_on, on_pages } = totals.counts;
        let needed_bytes = if totals.whole.reads == 0 { reads * page_bytes } else { totals.whole.bytes_read };
        let latencies_ms = totals.latencies_ms;
        let work = SearchWork { distances, reads, bytes: needed_bytes, latencies_ms, ..SearchWork::default() };
        let search = SearchCounts {
            passing_rows: admitted.and_then(FilteredVertices::passing_rows),
            vertex_utilization: (on_pages > 0).then(|| led_on as f64 / on_pages as f64),
            ..ran.counts(target, work)
        };
        let (read, bytes) = (totals.pages_read, totals.pages_read * page_bytes);
        let mut counts = ReadCounts { reads: read, bytes_requested: bytes, bytes_read: bytes };
        counts += totals.whole;
        counts += plan.reads.unwrap_or_default();
        let common = CommonStatistics {
            recall: plan.recall.clone(),
            io: counts.statistics(context, index.pages.len(), index.pages.is_direct(), ran.written),
            seconds: ran.seconds(planning_seconds, plan.reads.is_some()),
            strategy: strategy_of(facts, plan.method),
            ..facts.statistics(context, "search")
        };
        SearchStatistics { common, search }
    }

    /// Finds the hits of the queries in `range` by walks. Their hits among unmerged rows are known. Returns the hits of
    /// each query and the work, or `None` if memory does not hold the hits.
    fn walk(
        &self,
        walks: &Walks<'_, T>,
        members: &Members<T>,
        range: Range<u32>,
        unmerged: &UnmergedHits,
    ) -> Result<Option<(Vec<Vec<Hit>>, Totals)>> {
        let queries = WalkQueries { outside: unmerged.hits(), ..WalkQueries::inside(members, &[]) };
        let Some(found) = walks.search(queries, range)? else { return Ok(None) };
        let (mut totals, mut all) = (Totals::default(), Vec::with_capacity(found.len()));
        for WalkHits { hits, counts, pages_read, latency_ms, .. } in found {
            let latencies_ms = vec![latency_ms];
            totals += Totals { counts, pages_read, latencies_ms, ..Totals::default() };
            all.push(hits);
        }
        Ok(Some((all, totals)))
    }

    /// Finds the hits of the queries in `range` by comparison with all pages. Returns the hits of each query and the
    /// work, or `None` if memory does not hold the hits.
    fn compare(&self, queries: &Members<T>, range: Range<u32>) -> Result<Option<(Vec<Vec<Hit>>, Totals)>> {
        let Self { context, index, sought, admitted, .. } = *self;
        let (facts, count) = (index.facts(), range.len() as u64);
        let wanted = sought.wanted.among(facts.rows);
        let whole = PageScan { context, index, queries, wanted, admitted, purpose: PURPOSE_SEARCH, phase: "search" };
        let compared = admitted.map_or(facts.vertices, |admitted| admitted.vertices());
        let Some((hits, reads)) = whole.search(range, |_| None)? else { return Ok(None) };
        let counts = WalkCounts { reads: reads.reads, distances: count * u64::from(compared), ..WalkCounts::default() };
        Ok(Some((hits, Totals { counts, whole: reads, ..Totals::default() })))
    }
}

/// Queries of a batch, as stored bytes and converted to kernel coordinates.
pub(super) struct IndexQueries<T> {
    vectors: VectorType,
    stored: Vec<u8>,
    members: Members<T>,
}

impl<T: Coordinate> BatchSearch for IndexSearch<'_, T> {
    type Batch = IndexQueries<T>;

    fn metric(&self) -> Metric {
        self.index.facts().metric
    }

    fn rows(&self) -> u64 {
        self.sought.rows(self.index.facts())
    }

    fn bytes_for_all_hits(&self) -> u64 {
        self.enough_bytes
    }

    fn prepare(&self, StoredQueries { vectors, stored, .. }: StoredQueries) -> IndexQueries<T> {
        let space = self.index.facts().space().of_queries(vectors);
        let members = Members::<T>::new(self.context.kernel, space, &stored);
        IndexQueries { vectors, stored, members }
    }

    fn find(&mut self, queries: &IndexQueries<T>, range: Range<u32>) -> Result<Option<Vec<Vec<Hit>>>> {
        let IndexQueries { vectors, stored, members } = queries;
        let stored = &stored[range.start as usize * vectors.bytes()..range.end as usize * vectors.bytes()];
        let own = QueryVectors { vectors: *vectors, stored };
        // A batch whose hits do not fit in memory is repeated in halves, which count their own work.
        let Some(unmerged) = self.sought.unmerged_hits(self.context, self.index, own)? else { return Ok(None) };
        let found = match &self.walks {
            Some(walks) => self.walk(walks, members, range, &unmerged),
            None => self.compare(members, range),
        };
        let Some((mut hits, totals)) = found? else { return Ok(None) };
        unmerged.add_to(&mut hits, self.sought.wanted);
        self.totals += totals;
        Ok(Some(hits))
    }

    fn name(&self, kind: IdKind, places: &[(u32, u32)], room: &mut IdRoom<'_>) -> Result<Option<NamedHits>> {
        self.sought.name(self.index, kind, places, room)
    }

    fn columns(
        &self,
        context: &Context,
        places: &[(u32, u32)],
        room: &mut IdRoom<'_>,
    ) -> Result<Option<GatheredColumns>> {
        self.carried.map_or(Ok(None), |carried| self.sought.columns(context, carried, places, room))
    }
}

fn strategy_of(facts: &IndexManifest, method: SearchMethod) -> StrategyStatistics {
    let (probes, t) = match method {
        SearchMethod::Walk(aim) if aim.by_codes => ("codes", Some(aim.list as f64)),
        SearchMethod::Walk(aim) => ("walk", Some(aim.list as f64)),
        SearchMethod::PageScan => ("whole", None),
    };
    StrategyStatistics {
        order: Some(facts.layout.clone().into()),
        probes: Some(probes),
        t,
        ..StrategyStatistics::default()
    }
}
