//! Runs the walks of many queries. Each thread has several walks in progress, and each walk has a read in flight.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use adjoin_device::{AlignedBuffer, Cause, Completion, ReadQueue, Reservation};

use super::cache::PageCache;
use super::filtered_vertices::FilteredVertices;
use super::last_hit::LastHit;
use super::navigation::Navigator;
use super::page::Page;
use super::recently_seen::RecentlySeen;
use super::walk::{Walk, WalkAim, WalkCounts, WalkedIndex};
use super::walk_strategy::WalkStrategy;
use super::{Index, IndexManifest, PURPOSE_SEARCH};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::Coordinate;
use crate::base::report::Stopwatch;
use crate::base::workers::map_items;
use crate::execute::{Hit, Nearest};
use crate::load::Members;
use crate::query::QueryTarget;

/// Number of reads that a thread keeps in flight. If it has fewer walks in progress, each walk also prefetches pages.
const READS_AT_ONCE: usize = 16;
/// Number of reads that a thread submits together while it has other walks to continue. A larger number would delay the
/// first of these reads; a smaller number would cost more system calls.
const STARTED_AT_ONCE: u64 = 4;
/// Number of hits for which a query reserves memory if its number of hits has no limit.
const HITS_EXPECTED: u64 = 1_000;
/// Number of queries in a unit of work that finds their entry points in the navigation graph.
const ENTERED_TOGETHER: usize = 64;
/// Number of steps that a trace sets aside for each query. Each read of a query is a step.
const STEPS_OF_QUERY: u64 = 1 << 20;
/// Approximate number of pages that a walk reads in addition to one page per candidate.
const PAGES_BEYOND: u64 = 64;

/// Queries of which some are answered by walks.
#[derive(Clone, Copy)]
pub(super) struct WalkQueries<'a, T> {
    pub(super) members: &'a Members<T>,
    /// For each query, a vertex that its walk ignores. Empty if there are none.
    pub(super) hidden: &'a [Option<u32>],
    /// For each query to answer, its hits outside the index, nearest first. Empty if there are none. With such hits, a walk
    /// needs to find fewer.
    pub(super) outside: &'a [Vec<Hit>],
}

impl<'a, T> WalkQueries<'a, T> {
    /// Returns queries whose hits are all in the index.
    pub(super) fn inside(members: &'a Members<T>, hidden: &'a [Option<u32>]) -> Self {
        Self { members, hidden, outside: &[] }
    }
}

/// Parameters and resources of the walks of a search.
pub(super) struct Walks<'a, T: Coordinate> {
    context: &'a Context,
    index: &'a Index,
    aim: WalkAim,
    admitted: Option<&'a FilteredVertices<'a>>,
    strategy: WalkStrategy,
    at_once: usize,
    cache: &'a PageCache,
    navigator: Navigator<'a, T>,
}

/// Hits of one query, and the work of finding them.
pub(super) struct WalkHits {
    pub(super) query: u32,
    pub(super) hits: Vec<Hit>,
    /// Length of the shortest list with which the walk finds each hit. Empty unless `aim.measures` is set.
    pub(super) least_lists: Vec<u32>,
    pub(super) counts: WalkCounts,
    /// Number of pages read for the query, including prefetched pages that its walk did not need.
    pub(super) pages_read: u64,
    pub(super) latency_ms: f32,
}

impl<'a, T: Coordinate> Walks<'a, T> {
    /// Prepares walks. As many walks are in progress at once as half of the free memory holds, up to the limit of
    /// `strategy`. Pages in `cache` are not read again.
    pub(super) fn new(
        context: &'a Context,
        index: &'a Index,
        aim: WalkAim,
        admitted: Option<&'a FilteredVertices<'a>>,
        strategy: WalkStrategy,
        cache: &'a PageCache,
    ) -> Self {
        let of_walk = Self::walk_bytes(index.facts(), aim, strategy);
        let at_once = context.budget().free() / 2 / of_walk / context.threads.max(1) as u64;
        let at_once = at_once.clamp(1, strategy.walks as u64) as usize;
        let navigator = Navigator::new(context.kernel, index.facts().space(), &index.navigation);
        Self { context, index, aim, admitted, strategy, at_once, cache, navigator }
    }

    /// Returns the bytes of a walk: the pages that it waits for, the vertices that it has seen, its list, a table of
    /// distances, and its hits.
    pub(super) fn walk_bytes(facts: &IndexManifest, aim: WalkAim, strategy: WalkStrategy) -> u64 {
        let pages = (aim.held as u64 + PAGES_BEYOND).min(facts.shape().pages(facts.vertices));
        // For a search within a threshold, hash tables have the pages that were processed or are to be processed.
        let seen = RecentlySeen::BYTES + 2 * 16 * pages;
        // Neighbors of all vertices of a page, with their distances.
        let offered = (2 * 8 * facts.shape().records() * facts.degree) as u64;
        // Each candidate may hold its neighbors. The vector of these and the candidate take less than 72 bytes.
        let list = aim.held as u64 * (4 * facts.degree as u64 + 72);
        let awaited = strategy.beam as u64 * facts.shape().bytes() as u64;
        let table = 1_024 * facts.code_bytes as u64;
        let last_hit = match aim.wanted.among(facts.rows) {
            QueryTarget::Nearest(k) => LastHit::memory_bytes(k, aim.held as u64),
            QueryTarget::Within(_) => 0,
        };
        awaited + seen + offered + 12 * pages + list + table + last_hit + bytes_of_hits(facts, aim.wanted)
    }

    /// Returns the bytes of a thread that has `walks` walks of `of_walk` bytes each in progress.
    pub(super) fn worker_bytes(facts: &IndexManifest, of_walk: u64, walks: usize) -> u64 {
        walks as u64 * of_walk + (READS_AT_ONCE * facts.shape().bytes()) as u64
    }

    pub(super) fn working_bytes(&self) -> u64 {
        let facts = self.index.facts();
        let of_walk = Self::walk_bytes(facts, self.aim, self.strategy);
        self.context.threads as u64 * Self::worker_bytes(facts, of_walk, self.at_once)
    }

    /// Finds the hits of the queries in `range` by walks on all threads. Returns the hits in the order of the queries,
    /// or `None` if memory does not hold them, which can happen only if the number of hits has no limit.
    ///
    /// # Errors
    /// If pages cannot be read, if memory does not suffice, or if the work is cancelled.
    pub(super) fn search(&self, queries: WalkQueries<'_, T>, range: Range<u32>) -> Result<Option<Vec<WalkHits>>> {
        let Context { threads, cancel, .. } = self.context;
        let first = range.start;
        let order = self.order(queries.members, range)?;
        // Few queries start neither threads nor walks that would have nothing to do.
        let threads = order.len().clamp(1, *threads);
        let shared = Shared {
            first,
            order: &order,
            at_once: order.len().div_ceil(threads).clamp(1, self.at_once),
            next: AtomicUsize::new(0),
            room: self.aim.wanted.room(self.context),
            held: AtomicU64::new(0),
            full: AtomicBool::new(false),
        };
        let work = |(): &mut (), _: usize| Worker::new(self, queries, &shared)?.run();
        // There is one item per thread. The thread's worker takes queries from the shared order until none is left.
        let found = map_items(threads, threads, cancel, || (), work)?;
        if shared.full.into_inner() {
            return Ok(None);
        }
        let mut found: Vec<WalkHits> = found.into_iter().flatten().collect();
        // Threads finish queries in any order.
        found.sort_unstable_by_key(|found| found.query);
        Ok(Some(found))
    }

    /// Returns the order in which queries start. If there are many queries, they are sorted by their entry points,
    /// since queries with nearby entry points need the same pages.
    fn order(&self, queries: &Members<T>, range: Range<u32>) -> Result<Vec<u32>> {
        let Self { context, navigator, strategy, at_once, .. } = self;
        let (first, mut order) = (range.start, range.collect::<Vec<u32>>());
        // If all queries can be in progress at once, their order does not matter.
        if strategy.near_together && order.len() > at_once * context.threads {
            let chunks: Vec<&[u32]> = order.chunks(ENTERED_TOGETHER).collect();
            let state = || (navigator.search(), Vec::new());
            let begin = |(search, entries): &mut (_, Vec<u32>), number: usize| {
                let first = |&query: &u32| {
                    entries.clear();
                    navigator.enter(search, queries.panel.row(query as usize), entries);
                    entries.first().copied()
                };
                Ok(chunks[number].iter().map(first).collect::<Vec<_>>())
            };
            let entries = map_items(context.threads, chunks.len(), &context.cancel, state, begin)?.concat();
            order.sort_by_key(|&query| entries[(query - first) as usize]);
        }
        Ok(order)
    }
}

/// Returns the bytes to reserve for the hits of a query.
pub(super) fn bytes_of_hits(facts: &IndexManifest, wanted: QueryTarget) -> u64 {
    match wanted.among(facts.rows) {
        QueryTarget::Nearest(k) => Nearest::memory_bytes(k),
        QueryTarget::Within(_) => Nearest::memory_bytes(HITS_EXPECTED.min(facts.rows)),
    }
}

/// State shared by the threads of a search.
struct Shared<'a> {
    /// First query to answer.
    first: u32,
    /// Order in which queries start.
    order: &'a [u32],
    /// Position in `order` of the first query that has not started.
    next: AtomicUsize,
    /// Number of walks that each thread has in progress.
    at_once: usize,
    /// Number of hits that fit in memory.
    room: u64,
    /// Number of hits that all walks hold.
    held: AtomicU64,
    /// Whether more hits were found than fit in memory. All threads stop then.
    full: AtomicBool,
}

/// A search thread with its walks in progress. Each walk has a read in flight, or several if there are few walks.
struct Worker<'a, T: Coordinate> {
    run: &'a Walks<'a, T>,
    queries: WalkQueries<'a, T>,
    searched: WalkedIndex<'a, T>,
    shared: &'a Shared<'a>,
    /// Queue of the reads. It is created for the first read: a search needs none if all of its pages are cached.
    queue: Option<Box<dyn ReadQueue>>,
    /// Number of reads submitted to the queue.
    handed: u64,
    in_flight: Vec<InFlight>,
    walks: Vec<UnderWay<T>>,
    /// Number of walks in progress.
    under_way: usize,
    /// Scratch space for the pages that a walk is likely to need.
    likely: Vec<u32>,
    /// Page buffers to reuse.
    spare: Vec<AlignedBuffer>,
    found: Vec<WalkHits>,
    _memory: Reservation,
}

/// Contents of a page, shared by the walks that use it.
type SharedPage = Arc<AlignedBuffer>;

/// A page being read, and the walks that requested it.
struct InFlight {
    /// Number of the read, which identifies it in the queue.
    number: u64,
    page: u32,
    /// Slots of the walks that requested the page.
    asked: Vec<usize>,
}

/// A walk in progress, with its start time.
struct UnderWay<T: Coordinate> {
    walk: Walk<T>,
    query: u32,
    /// Pages that the walk waits for.
    needed: Vec<u32>,
    /// Pages that the walk has requested: the needed ones and prefetched ones. Their contents are set once they are
    /// read.
    asked: Vec<(u32, Option<SharedPage>)>,
    pages_read: u64,
    begun: Stopwatch,
}

impl<T: Coordinate> UnderWay<T> {
    /// Returns the position of a page in `asked`, if the walk has requested the page.
    fn has_asked(&self, page: u32) -> Option<usize> {
        self.asked.iter().position(|&(asked, _)| asked == page)
    }

    /// Returns whether all pages that the walk waits for have arrived.
    fn may_go_on(&self) -> bool {
        let has_come = |&page: &u32| self.has_asked(page).is_some_and(|place| self.asked[place].1.is_some());
        !self.needed.is_empty() && self.needed.iter().all(has_come)
    }
}

impl<'a, T: Coordinate> Worker<'a, T> {
    fn new(run: &'a Walks<'a, T>, queries: WalkQueries<'a, T>, shared: &'a Shared<'a>) -> Result<Self> {
        let (context, index) = (run.context, run.index);
        let facts = index.facts();
        let searched = WalkedIndex {
            kernel: context.kernel,
            index,
            shape: facts.shape(),
            space: facts.space(),
            navigator: &run.navigator,
            aim: run.aim,
            admitted: run.admitted,
            strategy: run.strategy,
        };
        let of_walk = Walks::<T>::walk_bytes(facts, run.aim, run.strategy);
        let memory = context.reserve(Walks::<T>::worker_bytes(facts, of_walk, shared.at_once), PURPOSE_SEARCH)?;
        Ok(Self {
            run,
            queries,
            searched,
            shared,
            queue: None,
            handed: 0,
            in_flight: Vec::new(),
            walks: Vec::new(),
            under_way: 0,
            likely: Vec::new(),
            spare: Vec::new(),
            found: Vec::new(),
            _memory: memory,
        })
    }

    /// Answers queries until none is left.
    fn run(mut self) -> Result<Vec<WalkHits>> {
        for slot in 0..self.shared.at_once {
            let (walk, begun) = (Walk::new(&self.searched), Stopwatch::start());
            let (needed, asked) = (Vec::new(), Vec::new());
            self.walks.push(UnderWay { walk, query: 0, needed, asked, pages_read: 0, begun });
            if self.begin(slot) {
                self.go_on(slot)?;
            }
        }
        while self.under_way > 0 && !self.shared.full.load(Ordering::Relaxed) {
            let done = self.queue.as_mut().and_then(|queue| queue.wait());
            let done = done.expect("each walk in progress waits for a page");
            self.run.context.cancel.check()?;
            self.arrive(done)?;
        }
        Ok(self.found)
    }

    /// Starts the next query in a slot. Returns `false` if no query is left.
    fn begin(&mut self, slot: usize) -> bool {
        let place = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let Some(&query) = self.shared.order.get(place) else { return false };
        let WalkQueries { members, hidden, outside } = self.queries;
        let hidden = hidden.get(query as usize).copied().flatten();
        let outside = outside.get((query - self.shared.first) as usize).map_or(&[][..], Vec::as_slice);
        let under_way = &mut self.walks[slot];
        (under_way.query, under_way.pages_read, under_way.begun) = (query, 0, Stopwatch::start());
        under_way.walk.begin(&self.searched, members, query, hidden, outside);
        self.under_way += 1;
        true
    }

    /// Continues the walk in a slot until it waits for a page. If the walk ends, starts the next query in the slot.
    fn go_on(&mut self, slot: usize) -> Result<()> {
        loop {
            let UnderWay { walk, needed, .. } = &mut self.walks[slot];
            needed.clear();
            walk.likely(&self.searched, self.run.strategy.beam, needed);
            if needed.is_empty() {
                self.end(slot);
                // With a filled cache, walks never wait, so this is the only place that notices a cancellation.
                self.run.context.cancel.check()?;
                if !self.begin(slot) {
                    return Ok(());
                }
                continue;
            }
            if !self.run.cache.is_filled() {
                for k in 0..self.walks[slot].needed.len() {
                    self.ask(slot, self.walks[slot].needed[k])?;
                }
                // Prefetched pages are requested last, so that needed pages are read first.
                self.look_ahead(slot)?;
                if !self.walks[slot].may_go_on() {
                    return Ok(());
                }
            }
            self.take(slot)?;
        }
    }

    /// Passes the needed pages to the walk in a slot, after all of them have arrived.
    fn take(&mut self, slot: usize) -> Result<()> {
        for k in 0..self.walks[slot].needed.len() {
            let number = self.walks[slot].needed[k];
            if let Some(page) = self.run.cache.of_whole(number) {
                self.pass(slot, number, page)?;
                continue;
            }
            let UnderWay { asked, .. } = &mut self.walks[slot];
            let place = asked.iter().position(|&(page, _)| page == number).expect("a needed page was requested");
            let page = asked.swap_remove(place).1.expect("a needed page has arrived");
            self.pass(slot, number, &page)?;
            // The buffer is reused unless another walk still holds the page.
            self.spare.extend(Arc::into_inner(page));
        }
        self.walks[slot].needed.clear();
        Ok(())
    }

    /// Passes a page to the walk in a slot.
    fn pass(&mut self, slot: usize, number: u32, page: &[u8]) -> Result<()> {
        let UnderWay { walk, .. } = &mut self.walks[slot];
        let before = walk.hits();
        walk.take(&self.searched, self.queries.members, number, Page::of_checked(self.searched.shape, page))?;
        let more = walk.hits() - before;
        if self.shared.held.fetch_add(more, Ordering::Relaxed) + more > self.shared.room {
            self.shared.full.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn end(&mut self, slot: usize) {
        let UnderWay { walk, query, asked, pages_read, begun, .. } = &mut self.walks[slot];
        let hits = walk.end(&self.searched);
        let least_lists = if self.run.aim.measures { walk.least_lists(&self.searched, &hits) } else { Vec::new() };
        // The remaining pages were prefetched but not needed.
        self.spare.extend(asked.drain(..).filter_map(|(_, page)| Arc::into_inner(page?)));
        let latency_ms = (begun.seconds() * 1e3) as f32;
        let (query, counts, pages_read) = (*query, walk.counts, *pages_read);
        self.found.push(WalkHits { query, hits, least_lists, counts, pages_read, latency_ms });
        self.under_way -= 1;
    }

    /// Requests a page for the walk in a slot. A page that was already requested or that is cached is not read. If
    /// several walks need a page, they share one read.
    fn ask(&mut self, slot: usize, page: u32) -> Result<()> {
        if self.walks[slot].has_asked(page).is_some() {
            return Ok(());
        }
        let held = self.held(page);
        let is_held = held.is_some();
        self.walks[slot].asked.push((page, held));
        if is_held {
            return Ok(());
        }
        let shares = self.run.strategy.shares;
        match self.in_flight.iter_mut().find(|in_flight| shares && in_flight.page == page) {
            // The request may stem from the slot's previous query.
            Some(in_flight) if in_flight.asked.contains(&slot) => Ok(()),
            Some(in_flight) => {
                in_flight.asked.push(slot);
                Ok(())
            }
            None => self.read(slot, page),
        }
    }

    /// Returns a copy of a page if it is cached.
    fn held(&mut self, page: u32) -> Option<SharedPage> {
        if !self.run.cache.has(page) {
            return None;
        }
        let mut buffer = self.buffer();
        match self.run.cache.get(page, &mut buffer) {
            true => Some(Arc::new(buffer)),
            false => {
                self.spare.push(buffer); // evicted in the meantime
                None
            }
        }
    }

    fn buffer(&mut self) -> AlignedBuffer {
        self.spare.pop().unwrap_or_else(|| AlignedBuffer::zeroed(self.searched.shape.bytes()))
    }

    fn read(&mut self, slot: usize, page: u32) -> Result<()> {
        let UnderWay { walk, query, needed, pages_read, .. } = &mut self.walks[slot];
        let step = u64::from(*query) * STEPS_OF_QUERY + walk.counts.reads;
        let after = (walk.counts.reads > 0).then(|| step - 1);
        let is_needed = needed.contains(&page);
        let cause = Cause { consumer: "index", step: is_needed.then_some(step), after: after.filter(|_| is_needed) };
        *pages_read += 1;
        let buffer = self.buffer();
        self.handed += 1;
        self.in_flight.push(InFlight { number: self.handed, page, asked: vec![slot] });
        let submit = if self.handed.is_multiple_of(STARTED_AT_ONCE) {
            <dyn ReadQueue>::submit
        } else {
            <dyn ReadQueue>::submit_later
        };
        let offset = u64::from(page) * self.searched.shape.bytes() as u64;
        let Self { run, shared, .. } = *self;
        let queue = match &mut self.queue {
            Some(queue) => queue,
            none => {
                let depth = shared.at_once * run.strategy.beam + READS_AT_ONCE;
                none.insert(run.context.device.read_queue(depth)?)
            }
        };
        Ok(submit(&mut **queue, self.handed, cause, &run.index.pages, offset, buffer)?)
    }

    /// Passes a page to the walks that requested it, and continues the walks that waited for it.
    ///
    /// If the page is damaged or cannot be read, this is an error only if a walk needs the page. Walks that prefetched
    /// it drop their request. They request the page again once they need it.
    fn arrive(&mut self, Completion { token, result, buffer }: Completion) -> Result<()> {
        let is_this = |in_flight: &InFlight| in_flight.number == token;
        let place = self.in_flight.iter().position(is_this).expect("the page was requested");
        let InFlight { page, asked, .. } = self.in_flight.swap_remove(place);
        if let Err(error) = result.map_err(Error::from).and_then(|_| self.check(page, &buffer)) {
            if asked.iter().any(|&slot| self.walks[slot].needed.contains(&page)) {
                return Err(error);
            }
            asked.iter().for_each(|&slot| self.walks[slot].asked.retain(|(other, _)| *other != page));
            self.spare.push(buffer);
            return Ok(());
        }
        self.run.cache.put(page, &buffer);
        let shared = Arc::new(buffer);
        for &slot in &asked {
            if let Some(place) = self.walks[slot].has_asked(page) {
                self.walks[slot].asked[place].1 = Some(shared.clone());
            }
        }
        self.spare.extend(Arc::into_inner(shared)); // reuse the buffer if no walk holds it
        for slot in asked {
            if self.walks[slot].needed.contains(&page) && self.walks[slot].may_go_on() {
                self.take(slot)?;
                self.go_on(slot)?;
            }
        }
        Ok(())
    }

    fn check(&self, page: u32, buffer: &AlignedBuffer) -> Result<()> {
        let checked = Page::check(self.searched.shape, page, buffer);
        checked.map(drop).ok_or_else(|| self.run.index.damaged_page(page, "checksum mismatch"))
    }

    /// Prefetches pages that a walk is likely to need next, if too few walks are in progress to keep the device busy.
    /// This is the speculative searching of NDSearch (section VI-B). It does not affect the hits.
    fn look_ahead(&mut self, slot: usize) -> Result<()> {
        let waiting = self.shared.order.len().saturating_sub(self.shared.next.load(Ordering::Relaxed));
        let walks = (self.under_way + waiting).clamp(1, self.run.at_once);
        let width = (READS_AT_ONCE / walks).min(self.run.strategy.ahead);
        if width <= self.run.strategy.beam || !self.run.strategy.shares {
            return Ok(());
        }
        let mut likely = std::mem::take(&mut self.likely);
        likely.clear();
        self.walks[slot].walk.likely(&self.searched, width, &mut likely);
        likely.iter().try_for_each(|&page| self.ask(slot, page))?;
        self.likely = likely;
        Ok(())
    }
}
