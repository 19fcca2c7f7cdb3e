//! A search of an index from its first query to its last: some queries under way on each thread, each with one read in flight.

use std::sync::atomic::{AtomicU32, Ordering};

use adjoin_device::{AlignedBuffer, Cause, Completion, ReadQueue, Reservation};

use super::navigation::Navigator;
use super::walk::{Next, Searched, Walk, WalkCounts};
use super::{Index, IndexManifest};
use crate::context::Context;
use crate::error::Result;
use crate::execute::{Hit, Nearest};
use crate::geometry::Coordinate;
use crate::load::{Members, ReadCounts};
use crate::report::{
    CommonStatistics, LatencyStatistics, RecallStatistics, SearchCounts, SearchStatistics, SecondsStatistics,
    SharedSeconds, Stopwatch, StrategyStatistics,
};
use crate::search::{Answered, QueryBatch, SourceQueries, give_hits, hand_over};
use crate::sink::{HitBatch, HitSink};
use crate::source::{IdKind, VectorSource};
use crate::workers::map_items;

pub(super) const PURPOSE: &str = "this search";
/// Queries under way on a thread, at most: enough to hide the time of a read, and few enough that what they have seen and their
/// tables of distances stay in the cache of the processor.
const WALKS_MAX: usize = 16;
/// Reads of a thread that may be in flight where fewer queries are under way: each then looks ahead.
const READS_AT_ONCE: usize = 16;
/// Reads of a query that may be in flight at the same time.
const WIDTH_MAX: usize = 8;
/// Reads that start together, where a thread has other walks to go on with: fewer calls of the system, and few that wait.
const STARTED_AT_ONCE: usize = 4;
/// Queries that are taken in at once, at most.
const QUERIES_MAX: u64 = 4_096;
/// Reads of a query that a trace tells apart.
const STEPS_OF_QUERY: u64 = 1 << 20;
/// Pages that a walk may hold beyond one for each candidate.
const PAGES_BEYOND: u64 = 64;

/// Queries whose walks keep so many candidates, and what they are searched in.
pub(super) struct Walks<'a, T: Coordinate> {
    context: &'a Context,
    index: &'a Index,
    k: usize,
    list: usize,
    at_once: usize,
    navigator: Navigator<'a, T>,
}

/// How a search is to walk.
#[derive(Debug)]
pub(super) struct Decided {
    /// Candidates that a walk keeps.
    pub(super) list: usize,
    pub(super) recall: Option<RecallStatistics>,
    /// What was read to know that; none where the index knew.
    pub(super) reads: Option<ReadCounts>,
}

/// A search under way.
pub(super) struct Run<'a, T: Coordinate> {
    walks: Walks<'a, T>,
    queries: SourceQueries<'a>,
    /// Hits that are asked for of each query, and as many as there can be.
    wanted: u64,
    at_once: usize,
    /// What was decided before, and how long that took.
    decided: (Decided, f64),
    /// Of queries that are read.
    _reading: Reservation,
}

/// What one query found, and what that took.
pub(super) struct Found {
    pub(super) query: u32,
    pub(super) hits: Vec<Hit>,
    pub(super) counts: WalkCounts,
    /// Pages that were read for it, those included that it then did not need.
    pages_read: u64,
    latency_ms: f32,
}

/// What all queries so far took.
#[derive(Default)]
struct Totals {
    counts: WalkCounts,
    pages_read: u64,
    latencies_ms: Vec<f32>,
}

impl<'a, T: Coordinate> Walks<'a, T> {
    /// As many at a time as memory holds.
    pub(super) fn new(context: &'a Context, index: &'a Index, k: usize, list: usize) -> Self {
        let of_walk = Self::walk_bytes(index.facts(), list, k);
        let at_once = context.budget().free() / 2 / of_walk / context.threads.max(1) as u64;
        let navigator = Navigator::new(context.kernel, index.facts().space(), &index.navigation);
        Self { context, index, k, list, at_once: at_once.clamp(1, WALKS_MAX as u64) as usize, navigator }
    }

    /// Bytes of a walk: its pages, its list, what it has seen, and a table of distances.
    pub(super) fn walk_bytes(facts: &IndexManifest, list: usize, k: usize) -> u64 {
        let pages = Self::pages_of_walk(facts, list);
        let held = pages * facts.shape().bytes() as u64;
        let seen = 4 * 4 * pages * facts.degree as u64;
        held + seen + 16 * list as u64 + 1_024 * facts.code_bytes as u64 + Nearest::memory_bytes(k as u64)
    }

    /// Bytes of a thread that has so many walks under way.
    fn worker_bytes(facts: &IndexManifest, (list, k): (usize, usize), walks: usize) -> u64 {
        walks as u64 * Self::walk_bytes(facts, list, k) + (READS_AT_ONCE * facts.shape().bytes()) as u64
    }

    /// Pages that a walk holds at the end, about.
    fn pages_of_walk(facts: &IndexManifest, list: usize) -> u64 {
        (list as u64 + PAGES_BEYOND).min(facts.shape().pages(facts.vertices))
    }

    /// What queries find, in their order, on all threads; those for which a vertex is `hidden` without it.
    ///
    /// # Errors
    /// Where pages cannot be read, memory does not suffice, or the work is cancelled.
    pub(super) fn search(&self, queries: &Members<T>, hidden: &[Option<u32>]) -> Result<Vec<Found>> {
        let Context { threads, cancel, .. } = self.context;
        let next = AtomicU32::new(0);
        let work = |(): &mut (), _: usize| Worker::new(self, (queries, hidden), &next)?.run();
        let found = map_items(*threads, *threads, cancel, || (), work)?;
        let mut found: Vec<Found> = found.into_iter().flatten().collect();
        found.sort_unstable_by_key(|found| found.query);
        Ok(found)
    }
}

impl<'a, T: Coordinate> Run<'a, T> {
    /// # Errors
    /// Where the budget is too small.
    pub(super) fn new(
        context: &'a Context,
        index: &'a Index,
        source: &'a dyn VectorSource,
        (wanted, decided): (u64, (Decided, f64)),
    ) -> Result<Self> {
        let facts = index.facts();
        let (k, list) = list_of(index, wanted, &decided.0);
        let queries = SourceQueries { source, space: facts.space() };
        let reading = context.reserve(queries.reading_bytes(), PURPOSE)?;
        let walks = Walks::new(context, index, k, list);
        let at_once = (context.budget().free() / 4 / Self::query_bytes(index, k)).clamp(1, QUERIES_MAX) as usize;
        Ok(Self { walks, queries, wanted, at_once, decided, _reading: reading })
    }

    /// Bytes that one query at a time takes.
    pub(super) fn least_bytes(
        context: &Context,
        index: &Index,
        source: &dyn VectorSource,
        (wanted, decided): (u64, &Decided),
    ) -> u64 {
        let (k, list) = list_of(index, wanted, decided);
        let queries = SourceQueries { source, space: index.facts().space() };
        let workers = context.threads as u64 * Walks::<T>::worker_bytes(index.facts(), (list, k), 1);
        queries.reading_bytes() + 2 * workers + 4 * Self::query_bytes(index, k)
    }

    fn query_bytes(index: &Index, k: usize) -> u64 {
        let facts = index.facts();
        Members::<T>::memory_bytes(1, facts.space())
            + 4 * facts.vectors.dimensions as u64
            + 4 * Nearest::memory_bytes(k as u64)
    }

    /// Answers all queries.
    ///
    /// # Errors
    /// Where queries or pages cannot be read, or the sink fails.
    pub(super) fn run(&self, mut sink: Box<dyn HitSink + '_>) -> Result<SearchStatistics> {
        let watch = Stopwatch::start();
        let writing = SharedSeconds::default();
        let Walks { context, index, .. } = self.walks;
        let kind = if sink.wants_ids() { index.facts().ids } else { IdKind::None };
        let mut totals = Totals::default();
        let answered = hand_over(&mut *sink, &writing, |give| {
            self.queries.each(context, self.at_once, &mut |batch| self.answer(batch, kind, &mut totals, give))
        })?;
        let execute = watch.seconds();
        let written = writing.measure(|| sink.finish())?;
        let (decided, decide_seconds) = &self.decided;
        let seconds = SecondsStatistics {
            total: decide_seconds + watch.seconds(),
            calibrate: decided.reads.map(|_| *decide_seconds),
            execute: Some(execute),
            write: Some(writing.seconds()),
            ..SecondsStatistics::default()
        };
        Ok(self.statistics(answered, totals, (seconds, written)))
    }

    fn statistics(
        &self,
        answered: Answered,
        totals: Totals,
        (seconds, written): (SecondsStatistics, crate::report::Written),
    ) -> SearchStatistics {
        let Walks { context, index, list, .. } = self.walks;
        let (facts, page_bytes) = (index.facts(), index.facts().shape().bytes() as u64);
        let WalkCounts { reads, distances } = totals.counts;
        let per = |count: u64| count as f64 / answered.queries.max(1) as f64;
        let search = SearchCounts {
            queries: answered.queries,
            k: Some(self.wanted),
            hits: answered.hits,
            buckets: None,
            probes_per_query: None,
            distances_per_query: per(distances),
            center_distances_per_query: None,
            reads_per_query: per(reads),
            bytes_per_query: per(reads * page_bytes),
            queries_per_second: seconds.execute.map_or(0.0, |seconds| answered.queries as f64 / seconds),
            latency_ms: LatencyStatistics::of(totals.latencies_ms),
        };
        let (read, bytes) = (totals.pages_read, totals.pages_read * page_bytes);
        let mut counts = ReadCounts { reads: read, bytes_requested: bytes, bytes_read: bytes };
        counts += self.decided.0.reads.unwrap_or_default();
        let all = (index.pages.len(), index.pages.is_direct());
        let common = CommonStatistics {
            recall: self.decided.0.recall.clone(),
            io: counts.statistics(context, all, written),
            seconds,
            strategy: StrategyStatistics {
                order: Some(facts.layout.name()),
                probes: Some("walk"),
                t: Some(list as f64),
                ..StrategyStatistics::default()
            },
            ..facts.statistics(context, "index search")
        };
        SearchStatistics { common, search }
    }

    fn answer(
        &self,
        batch: QueryBatch,
        kind: IdKind,
        totals: &mut Totals,
        give: &dyn Fn(HitBatch) -> Result<()>,
    ) -> Result<()> {
        let QueryBatch { vectors, stored, rows, ids, .. } = batch;
        let Walks { context, index, k, .. } = self.walks;
        let facts = index.facts();
        let of_queries = rows.len() as u64 * Self::query_bytes(index, k);
        let _memory = context.reserve(of_queries, PURPOSE)?;
        let space = facts.space().of_queries(vectors);
        let members = Members::<T>::new(context.kernel, space, &stored);
        let found = self.walks.search(&members, &[])?;
        for Found { counts, pages_read, latency_ms, .. } in &found {
            totals.pages_read += pages_read;
            totals.counts.reads += counts.reads;
            totals.counts.distances += counts.distances;
            totals.latencies_ms.push(*latency_ms);
        }
        let entries: Vec<u32> = match kind {
            IdKind::None => Vec::new(),
            _ => found.iter().flat_map(|found| &found.hits).map(|hit| hit.place.0).collect(),
        };
        let hit_ids = index.ids_of(kind, &entries)?;
        let hits = found.into_iter().map(|found| found.hits).collect();
        give_hits(facts.metric, (&rows, &ids, 0), (hits, &hit_ids), give)
    }
}

/// How many hits walks hold, and how many candidates they keep.
fn list_of(index: &Index, wanted: u64, decided: &Decided) -> (usize, usize) {
    let k = wanted.min(index.facts().rows) as usize;
    (k, decided.list.max(k))
}

/// A thread that searches: walks under way, each with a read in flight, or several where there are few walks.
struct Worker<'a, T: Coordinate> {
    run: &'a Walks<'a, T>,
    queries: &'a Members<T>,
    hidden: &'a [Option<u32>],
    searched: Searched<'a, T>,
    /// The query that nobody has begun with.
    next: &'a AtomicU32,
    queue: Box<dyn ReadQueue>,
    /// Reads that were handed to the queue.
    handed: usize,
    walks: Vec<UnderWay<T>>,
    /// Of these walks, those that have not ended.
    under_way: usize,
    /// Pages that a walk is likely to need: of the moment.
    likely: Vec<u32>,
    spare: Vec<AlignedBuffer>,
    found: Vec<Found>,
    /// Buffers for pages, and those for which there is memory.
    buffers: u64,
    buffers_max: u64,
    memory: Reservation,
}

/// A walk, and when it began.
struct UnderWay<T: Coordinate> {
    walk: Walk<T>,
    query: u32,
    /// The page that it waits for.
    page: Option<u32>,
    /// Pages that were asked for before it needs them, and what they hold once they have come.
    ahead: Vec<(u32, Option<AlignedBuffer>)>,
    pages_read: u64,
    begun: Stopwatch,
}

impl<'a, T: Coordinate> Worker<'a, T> {
    fn new(
        run: &'a Walks<'a, T>,
        (queries, hidden): (&'a Members<T>, &'a [Option<u32>]),
        next: &'a AtomicU32,
    ) -> Result<Self> {
        let (context, index) = (run.context, run.index);
        let facts = index.facts();
        let searched = Searched {
            kernel: context.kernel,
            index,
            shape: facts.shape(),
            space: facts.space(),
            navigator: &run.navigator,
            k: run.k,
            list: run.list,
        };
        let queue = context.device.read_queue(run.at_once + READS_AT_ONCE)?;
        let memory = context.reserve(Walks::<T>::worker_bytes(facts, (run.list, run.k), run.at_once), PURPOSE)?;
        let buffers_max = run.at_once as u64 * Walks::<T>::pages_of_walk(facts, run.list) + READS_AT_ONCE as u64;
        Ok(Self {
            run,
            queries,
            hidden,
            searched,
            next,
            queue,
            handed: 0,
            walks: Vec::new(),
            under_way: 0,
            likely: Vec::new(),
            spare: Vec::new(),
            found: Vec::new(),
            buffers: 0,
            buffers_max,
            memory,
        })
    }

    /// A buffer for a page. Walks that hold more pages than was thought take more memory.
    fn buffer(&mut self) -> Result<AlignedBuffer> {
        if let Some(buffer) = self.spare.pop() {
            return Ok(buffer);
        }
        let bytes = self.searched.shape.bytes();
        self.buffers += 1;
        if self.buffers > self.buffers_max {
            let more = self.memory.bytes() + bytes as u64;
            self.run.context.grow(&mut self.memory, more, PURPOSE)?;
        }
        Ok(AlignedBuffer::zeroed(bytes))
    }

    /// Answers queries until there are no more.
    fn run(mut self) -> Result<Vec<Found>> {
        for slot in 0..self.run.at_once {
            let (walk, ahead) = (Walk::new(&self.searched), Vec::new());
            self.walks.push(UnderWay { walk, query: 0, page: None, ahead, pages_read: 0, begun: Stopwatch::start() });
            if !self.begin(slot)? {
                break;
            }
        }
        while self.under_way > 0 {
            let done = self.queue.wait().expect("each walk under way waits for a page");
            self.run.context.cancel.check()?;
            let (slot, page) = ((done.token >> u32::BITS) as usize, done.token as u32);
            if self.walks[slot].page == Some(page) {
                done.result?;
                self.walks[slot].walk.take(&self.searched, self.queries, page, done.buffer)?;
                self.go_on(slot)?;
            } else {
                self.keep(slot, page, done);
            }
        }
        Ok(self.found)
    }

    /// Keeps a page that came before its walk needs it. One that could not be read is asked for again where it is needed.
    fn keep(&mut self, slot: usize, page: u32, done: Completion) {
        let ahead = &mut self.walks[slot].ahead;
        match ahead.iter().position(|(asked, kept)| *asked == page && kept.is_none()) {
            Some(place) if done.result.is_ok() => ahead[place].1 = Some(done.buffer),
            Some(place) => drop(ahead.swap_remove(place)),
            None => self.spare.push(done.buffer), // of a query that has been answered
        }
    }

    /// Begins queries until one waits for a page; false where there are no more.
    fn begin(&mut self, slot: usize) -> Result<bool> {
        let query = self.next.fetch_add(1, Ordering::Relaxed);
        if query as usize >= self.queries.len() {
            return Ok(false);
        }
        let hidden = self.hidden.get(query as usize).copied().flatten();
        let under_way = &mut self.walks[slot];
        (under_way.query, under_way.pages_read, under_way.begun) = (query, 0, Stopwatch::start());
        under_way.walk.begin(&self.searched, (self.queries, query), hidden);
        self.under_way += 1;
        self.go_on(slot)?;
        Ok(true)
    }

    /// Lets a walk go on until it waits for a page. Where it ends, the next query begins.
    fn go_on(&mut self, slot: usize) -> Result<()> {
        while let Next::Read(number) = self.walks[slot].walk.next(&self.searched)? {
            self.walks[slot].page = Some(number);
            let asked = self.walks[slot].ahead.iter().position(|&(page, _)| page == number);
            let kept = match asked {
                Some(place) => self.walks[slot].ahead.swap_remove(place).1,
                None => {
                    self.read(slot, number)?;
                    None
                }
            };
            self.look_ahead(slot)?;
            let Some(buffer) = kept else { return Ok(()) };
            self.walks[slot].walk.take(&self.searched, self.queries, number, buffer)?;
        }
        self.end(slot);
        self.begin(slot).map(|_| ())
    }

    fn end(&mut self, slot: usize) {
        let UnderWay { walk, query, page, ahead, pages_read, begun } = &mut self.walks[slot];
        let hits = walk.end(&self.searched, &mut self.spare);
        self.spare.extend(ahead.drain(..).filter_map(|(_, buffer)| buffer));
        let latency_ms = (begun.seconds() * 1e3) as f32;
        let (query, counts, pages_read) = (*query, walk.counts, *pages_read);
        *page = None;
        self.found.push(Found { query, hits, counts, pages_read, latency_ms });
        self.under_way -= 1;
    }

    /// Asks for a page.
    fn read(&mut self, slot: usize, page: u32) -> Result<()> {
        let UnderWay { walk, query, page: needed, pages_read, .. } = &mut self.walks[slot];
        let step = u64::from(*query) * STEPS_OF_QUERY + walk.counts.reads;
        let after = (walk.counts.reads > 0).then(|| step - 1);
        let is_needed = *needed == Some(page);
        let cause = Cause { consumer: "index", step: is_needed.then_some(step), after: after.filter(|_| is_needed) };
        *pages_read += 1;
        let (token, offset) = ((slot as u64) << u32::BITS | u64::from(page), u64::from(page));
        let offset = offset * self.searched.shape.bytes() as u64;
        let buffer = self.buffer()?;
        self.handed += 1;
        let submit = if self.handed.is_multiple_of(STARTED_AT_ONCE) {
            <dyn ReadQueue>::submit
        } else {
            <dyn ReadQueue>::submit_later
        };
        Ok(submit(&mut *self.queue, token, cause, &self.run.index.pages, offset, buffer)?)
    }

    /// Asks for pages that a walk is likely to need after the one that it waits for, where too few walks are under way to
    /// keep the device busy. What it finds does not depend on that.
    fn look_ahead(&mut self, slot: usize) -> Result<()> {
        let waiting = self.queries.len().saturating_sub(self.next.load(Ordering::Relaxed) as usize);
        let width = (READS_AT_ONCE / (self.under_way + waiting).max(1)).min(WIDTH_MAX);
        if width < 2 {
            return Ok(());
        }
        let mut likely = std::mem::take(&mut self.likely);
        likely.clear();
        self.walks[slot].walk.likely(&self.searched, width, &mut likely);
        for &page in &likely[1..] {
            let has_room = !self.spare.is_empty() || self.buffers < self.buffers_max;
            let ahead = &mut self.walks[slot].ahead;
            if has_room && !ahead.iter().any(|&(asked, _)| asked == page) {
                ahead.push((page, None));
                self.read(slot, page)?;
            }
        }
        self.likely = likely;
        Ok(())
    }
}
