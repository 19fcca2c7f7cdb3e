//! Holds the open store, index or collection and the memory for its searches, and chooses how each batch is answered.
//!
//! There are two lanes, so that cheap requests do not wait for expensive ones. If a store is served, a
//! [`CachedSearch`] answers the quick lane and keeps buckets in memory between batches. All other requests are
//! answered by [`Folder::search`]. In the long lane, such a search gets only a part of the memory, so that enough is
//! left for the quick lane. `answering.rs` implements both methods.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use adjoin::{
    CacheStatistics, CachedSearch, Cancel, Context, Element, Error, ErrorKind, Folder, FolderFacts, QueryTarget,
    Result, SearchEffort, SearchOptions, Store, VectorType, device::MemoryBudget,
};

use crate::answering::{Answering, BatchPart, Give, SearchMethod, lock};
use crate::costs::Costs;
use crate::request::{Request, SEED};
use crate::served::{Generation, Served};

/// Fraction of the memory that searches get, of the memory that is free after opening. The rest is for opening the
/// next generation, and for the long lane of a store.
const SEARCH_SHARE: (u64, u64) = (3, 4);
/// Fraction that searches get for a store with columns. It is smaller, since filtered searches run in the long lane.
const FILTERED_SHARE: (u64, u64) = (1, 2);
/// Maximum number of hits of a query in the quick lane.
const QUICK_K: u64 = 100;
/// Maximum list size of a query in the quick lane.
const QUICK_LIST: usize = 1_024;
/// A query of the quick lane probes at most the number of buckets divided by this number.
const QUICK_PROBES_PART: u32 = 4;
/// Fixed cost of a request, and of each of its queries, in bytes compared. Without these, a pace that was measured
/// with few rows would not apply to many rows.
const REQUEST_BYTES: f64 = (1 << 20) as f64;
const QUERY_BYTES: f64 = (16 << 10) as f64;
/// The long lane of an index takes half of the free memory. It waits until the total memory divided by this number is
/// free.
const LONG_PART: u64 = 4;
/// Number of hits that most requests ask for.
const USUAL_K: u64 = 10;
/// How long the opening of a new generation waits for searches to release memory, before it is retried later.
const TAKE_UP_WAIT: Duration = Duration::from_secs(2);
/// Time limit of the first search, which may read a large store from a cold disk.
const TRIAL: Duration = Duration::from_secs(3_600);

/// Queue of requests that wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Requests answered in a fraction of the time that comparing all rows takes.
    Quick,
    /// Requests that may take long.
    Long,
}

impl Lane {
    pub(crate) const ALL: [Self; 2] = [Self::Quick, Self::Long];
}

/// Searches the open store, index or collection.
pub(crate) struct Backend {
    folder: PathBuf,
    /// Context with the memory of everything that is opened. `search` is the part of it for searches.
    context: Context,
    search: Context,
    /// The quick lane, and every thread that uses the cached search, holds a read lock. A write lock is held to
    /// replace the cached search, and for a request of the long lane that needs all of the memory.
    turn: RwLock<()>,
    /// Cached search of a store. `None` if it could not be opened again; ordinary searches then answer the quick
    /// lane. The lock is held only briefly.
    cached: Mutex<Option<Arc<CachedSearch>>>,
    /// Memory held for clients.
    clients: MemoryBudget,
    served: RwLock<Arc<Served>>,
    generation: Mutex<Generation>,
    costs: Mutex<Costs>,
    /// Canceled at shutdown, when no client waits for a search anymore.
    end: Cancel,
}

impl Backend {
    /// Opens the store, index or collection in `folder`, and runs one search to check that memory suffices.
    ///
    /// # Errors
    /// If the folder cannot be opened ([`Served::open`]), or the search fails.
    pub(crate) fn open(context: &Context, clients: MemoryBudget, folder: &Path) -> Result<Self> {
        let generation = Generation::of(folder);
        let before = context.budget().free();
        let served = Served::open(context, folder)?;
        let search = match served.folder() {
            Folder::Collection(_) => context.clone(), // merges and writes take their turns with searches
            Folder::Store(_) | Folder::Index(_) => {
                let free = context.budget().free();
                let share = if served.is_filtered()? { FILTERED_SHARE } else { SEARCH_SHARE };
                // Leaves memory to open the next generation, which may take 5/4 of the memory of this one. But
                // searches get at least half of the free memory.
                let beside_next = free.saturating_sub((before - free) / 4 * 5).max(free / 2);
                context.with_reserved((free / share.1 * share.0).min(beside_next), "serving")?
            }
        };
        let cached = match served.folder() {
            Folder::Store(store) => Some(Arc::new(open_cached(&search, store)?)),
            Folder::Index(_) | Folder::Collection(_) => None,
        };
        let backend = Self {
            folder: folder.to_owned(),
            context: context.clone(),
            search: search.keeping_caches(),
            turn: RwLock::default(),
            cached: Mutex::new(cached),
            clients,
            served: RwLock::new(Arc::new(served)),
            generation: Mutex::new(generation),
            costs: Mutex::default(),
            end: Cancel::default(),
        };
        backend.try_one()?;
        Ok(backend)
    }

    /// Runs one search for the nearest rows. For a store, it calibrates the default recall, so that no client has to
    /// wait for the calibration.
    fn try_one(&self) -> Result<()> {
        let facts = self.facts();
        if facts.rows == 0 {
            return Ok(());
        }
        let dimensions = facts.vectors.dimensions;
        let (vectors, stored) = (VectorType { element: Element::U8, dimensions }, vec![1; dimensions]);
        let is_graph = facts.buckets.is_none();
        let effort = if is_graph { SearchEffort::List(USUAL_K as usize) } else { SearchEffort::default() };
        let search = SearchOptions::new(QueryTarget::Nearest(USUAL_K), effort, SEED);
        let memory = self.clients.reserve(0).expect("zero bytes can always be reserved");
        let deadline = Instant::now() + TRIAL;
        let request = Request { search, vectors, rows: 1, stored, deadline, _memory: memory };
        let mut tried = Ok(());
        self.answer(Lane::Quick, &[&request], &mut |_, answer| tried = answer.map(drop));
        tried
    }

    /// Returns the generation that is served now.
    pub(crate) fn served(&self) -> Arc<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns metadata of the generation that is served now.
    pub(crate) fn facts(&self) -> FolderFacts {
        self.served().folder().facts()
    }

    /// Returns the budget of the memory held for clients.
    pub(crate) fn clients(&self) -> &MemoryBudget {
        &self.clients
    }

    /// Returns the context with the memory of everything that is opened.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Returns statistics of the cached search since it was opened.
    pub(crate) fn cache_statistics(&self) -> Option<CacheStatistics> {
        lock(&self.cached).as_ref().map(|cached| cached.statistics())
    }

    /// Chooses the lane of a request. The long lane gets exact searches, thresholds, filters, requests for columns of
    /// hits from a store, requests for many hits or probes or with long lists, and recalls that are not calibrated
    /// yet.
    pub(crate) fn lane(&self, search: &SearchOptions) -> Lane {
        let served = self.served();
        let buckets = served.folder().facts().buckets;
        let is_quick = match search.target {
            QueryTarget::Nearest(k) => k <= QUICK_K,
            QueryTarget::Within(_) => false,
        };
        let is_short = match (search.effort, buckets) {
            (SearchEffort::Probes(probes), Some(buckets)) => probes <= (buckets / QUICK_PROBES_PART).max(1),
            (SearchEffort::List(list), _) => list <= QUICK_LIST,
            (effort, _) => !effort.compares_all(),
        };
        let is_uncached = buckets.is_some() && needs_search(search);
        if is_quick && is_short && !is_uncached && search.filter.is_none() && served.is_calibrated(search) {
            Lane::Quick
        } else {
            Lane::Long
        }
    }

    /// Predicts the bytes of the vectors that the queries of a request will be compared with. If `nprobe` is given,
    /// these are the vectors in the probed buckets. Otherwise the prediction is based on earlier queries of this
    /// kind.
    pub(crate) fn predicted_bytes(&self, search: &SearchOptions, queries: usize) -> f64 {
        let FolderFacts { rows, buckets, .. } = self.facts();
        let fraction = match (search.effort, buckets) {
            (SearchEffort::Probes(probes), Some(buckets)) => f64::from(probes.min(buckets)) / f64::from(buckets.max(1)),
            (effort, _) if effort.compares_all() => 1.0,
            _ => lock(&self.costs).fraction(search),
        };
        self.bytes_compared(queries, rows as f64 * fraction)
    }

    /// Returns the cost, in bytes, of `queries` queries that are compared with `distances` vectors each. It includes
    /// the fixed costs.
    pub(crate) fn bytes_compared(&self, queries: usize, distances: f64) -> f64 {
        let bytes = distances * self.facts().vectors.bytes() as f64;
        REQUEST_BYTES + queries as f64 * (QUERY_BYTES + bytes)
    }

    /// Opens the newest generation of the folder, unless it is served already. Also opens the cached search again if
    /// it is missing. Requests are accepted meanwhile; answers wait only while the cached search is replaced. Returns
    /// whether a new generation is served.
    ///
    /// # Errors
    /// If the generation cannot be opened. The old one is then still served, and the next call tries again.
    pub(crate) fn take_up(&self) -> Result<bool> {
        let now = Generation::of(&self.folder);
        let mut generation = lock(&self.generation);
        let before = self.served();
        if matches!(before.folder(), Folder::Collection(_)) {
            return Ok(false);
        }
        if *generation == now {
            if let Folder::Store(store) = before.folder()
                && lock(&self.cached).is_none()
            {
                let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
                self.replace_cached(store)?;
            }
            return Ok(false);
        }
        let next = match self.open_next() {
            // Running searches may hold the memory. Waits for them; if that is not enough, the next call of this
            // function tries again.
            Err(error) if error.kind() == ErrorKind::Budget => {
                self.wait_for_searches();
                self.open_next()?
            }
            opened => opened?,
        };
        // While this lock is held, no thread uses the cached search, and the quick lane waits.
        let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        if let Folder::Store(store) = next.folder()
            && let Err(error) = self.replace_cached(store)
        {
            // The cached search of the old generation has been closed, so it is opened again.
            if let Folder::Store(before) = before.folder() {
                self.replace_cached(before)?;
            }
            return Err(error);
        }
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        *generation = now;
        Ok(true)
    }

    /// Waits until no search holds memory outside the cached search.
    fn wait_for_searches(&self) {
        let mut context = self.context.clone();
        context.cancel = context.cancel.with_deadline(Some(Instant::now() + TAKE_UP_WAIT));
        drop(context.for_run(context.budget().free() + 1, "serving"));
    }

    /// Opens the current generation of the folder.
    fn open_next(&self) -> Result<Served> {
        let (before, next) = (self.facts(), Served::open(&self.context, &self.folder)?);
        let after = next.folder().facts();
        // Waiting requests were checked against the old generation, so the new one must agree with it in these facts.
        if (before.kind, before.vectors.dimensions, before.metric)
            != (after.kind, after.vectors.dimensions, after.metric)
        {
            return Err(Error::input(format!(
                "{}: the published generation has another kind, dimension or metric; restart the server to serve it",
                self.folder.display()
            )));
        }
        Ok(next)
    }

    /// Opens a cached search of `store` in the memory of the old one, which no thread uses anymore.
    fn replace_cached(&self, store: &Arc<Store>) -> Result<()> {
        // The old search is closed first, since memory does not suffice for two.
        let before = lock(&self.cached).take();
        drop(before);
        let cached = Arc::new(open_cached(&self.search, store)?);
        *lock(&self.cached) = Some(cached);
        Ok(())
    }

    /// Answers all requests of a lane. Calls `give` with the index of each request and its answer.
    pub(crate) fn answer(&self, lane: Lane, requests: &[&Request], give: Give<'_>) {
        let batch = BatchPart { requests, positions: (0..requests.len()).collect() };
        if lane == Lane::Quick {
            return self.answer_cached(batch, give);
        }
        // If the part of the memory is too small for a request, the request is searched again in all of the memory,
        // after the other requests.
        let mut refused = Vec::new();
        self.search_in_part(batch, &mut |k, answer| match answer {
            Err(error) if error.kind() == ErrorKind::Budget => refused.push((k, error)),
            answer => give(k, answer),
        });
        refused.into_iter().for_each(|(k, error)| self.search_in_all(requests, k, error, give));
    }

    /// Answers requests by a method.
    fn answer_by(&self, method: SearchMethod<'_>, batch: BatchPart<'_>, give: Give<'_>) {
        let Self { clients, costs, end, .. } = self;
        Answering { served: &self.served(), clients, costs, end }.answer(method, batch, give);
    }

    /// Answers requests with the cached search, or by ordinary searches if there is none. The cached search is not
    /// replaced meanwhile.
    fn answer_cached(&self, batch: BatchPart<'_>, give: Give<'_>) {
        let _turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        let cached = lock(&self.cached).clone();
        self.answer_by(cached.as_deref().map_or(SearchMethod::Search(&self.search), SearchMethod::Cached), batch, give);
    }

    /// Searches for requests of the long lane in a part of the memory, while the quick lane runs.
    fn search_in_part(&self, batch: BatchPart<'_>, give: Give<'_>) {
        if self.facts().buckets.is_some() {
            return self.answer_by(SearchMethod::Search(&self.context), batch, give); // next to the cached search
        }
        let mut context = self.search.clone();
        context.cancel = self.end.with_deadline(batch.positions.iter().map(|&k| batch.requests[k].deadline).max());
        let part = context.for_run(context.budget().total() / LONG_PART, "a long search");
        let Ok(part) = part else { return self.answer_by(SearchMethod::Search(&self.search), batch, give) };
        // Half of the memory is left for searches of the quick lane that start meanwhile.
        part.budget().shrink(part.budget().total() / 2);
        self.answer_by(SearchMethod::Search(&part), batch, give);
    }

    /// Searches in all of the memory for a request that did not fit into a part of it.
    fn search_in_all(&self, requests: &[&Request], k: usize, refused: Error, give: Give<'_>) {
        let batch = BatchPart { requests, positions: vec![k] };
        if self.facts().buckets.is_none() {
            // The write lock makes the quick lane wait, so that a request that fits into the whole memory does not
            // fail because of other requests.
            let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
            return self.answer_by(SearchMethod::Search(&self.search), batch, give);
        }
        if needs_search(&requests[k].search) && lock(&self.cached).is_some() {
            return give(k, Err(refused));
        }
        self.answer_cached(batch, give);
    }

    /// Cancels running searches at shutdown, when their clients no longer wait.
    pub(crate) fn end_searches(&self) {
        self.end.cancel();
    }

    /// Closes the store, index or collection. All writes to a collection are then durable.
    ///
    /// # Errors
    /// If the log of the collection cannot be written.
    pub(crate) fn close(self) -> Result<()> {
        let served = self.served.into_inner().unwrap_or_else(PoisonError::into_inner);
        // The threads of the lanes have ended, so this is the last owner.
        Arc::into_inner(served).map_or(Ok(()), Served::close)
    }
}

/// Opens a cached search of a store, with memory of its own.
fn open_cached(context: &Context, store: &Arc<Store>) -> Result<CachedSearch> {
    CachedSearch::open(context, store.clone(), SEED)
}

/// Returns whether a request has a filter or columns, which the cached search does not support.
fn needs_search(search: &SearchOptions) -> bool {
    // All options are listed, so that this code does not compile after a new option is added without a decision here.
    let SearchOptions { target: _, effort: _, filter, columns, seed: _, shares_pages: _ } = search;
    filter.is_some() || !columns.is_empty()
}

/// Returns whether an error is a fault of the server or its data, not of the request.
pub(crate) fn is_ours(error: &Error) -> bool {
    !matches!(
        error.kind(),
        ErrorKind::Input | ErrorKind::Option | ErrorKind::Budget | ErrorKind::Late | ErrorKind::Overloaded
    )
}

#[cfg(test)]
mod tests {
    use adjoin::{BuildOptions, IdKind, Ids, Store};

    use super::*;
    use crate::request::{Part, Together};

    const PAIRS: VectorType = VectorType { element: Element::U8, dimensions: 2 };

    /// Publishes a store of `rows` rows in a folder, replacing an existing one.
    fn publish(folder: &Path, rows: usize) {
        let stored: Vec<u8> = (0..2 * rows).map(|number| number as u8).collect();
        let part = Part { rows, stored: &stored, ids: &Ids::None };
        let source = Together::new(PAIRS, IdKind::None, vec![part], "rows");
        let options = BuildOptions { force: true, ..BuildOptions::default() };
        Store::build(&Context::default(), &source, folder, &options).unwrap();
    }

    fn open(folder: &Path) -> Backend {
        let context = Context::default().with_memory(64_000_000);
        let backend = Backend::open(&context, MemoryBudget::new(1 << 20), folder).unwrap();
        assert_eq!(backend.facts().rows, 100);
        backend
    }

    #[test]
    fn a_new_generation_is_opened_once_memory_suffices() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("set.store");
        publish(&folder, 100);
        let backend = open(&folder);
        assert!(!backend.take_up().unwrap());
        publish(&folder, 200);
        let budget = backend.context().budget();
        let held = budget.reserve(budget.free()).unwrap();
        assert_eq!(backend.take_up().unwrap_err().kind(), ErrorKind::Budget);
        assert_eq!(backend.facts().rows, 100, "the one before is served");
        drop(held);
        assert!(backend.take_up().unwrap());
        assert_eq!(backend.facts().rows, 200);
        assert!(!backend.take_up().unwrap());
    }

    /// Checks that metadata and statistics do not wait while the cached search is replaced.
    #[test]
    fn statistics_are_available_while_the_cached_search_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("set.store");
        publish(&folder, 100);
        let backend = open(&folder);
        let _turn = backend.turn.write().unwrap();
        assert!(backend.cache_statistics().is_some() && backend.facts().rows == 100);
    }

    #[test]
    fn large_requests_use_the_long_lane() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("set.store");
        publish(&folder, 100);
        let backend = open(&folder);
        let nearest = |k| SearchOptions::new(QueryTarget::Nearest(k), SearchEffort::default(), SEED);
        assert_eq!(backend.lane(&nearest(50)), Lane::Quick);
        assert_eq!(backend.lane(&nearest(51)), Lane::Long);
        assert_eq!(backend.lane(&SearchOptions { effort: SearchEffort::Exact, ..nearest(1) }), Lane::Long);
        assert_eq!(backend.lane(&SearchOptions { effort: SearchEffort::Probes(1), ..nearest(1) }), Lane::Quick);
        let within = QueryTarget::of(None, Some(1.0), None).unwrap();
        assert_eq!(backend.lane(&SearchOptions { target: within, ..nearest(1) }), Lane::Long);
        assert_eq!(backend.lane(&SearchOptions { columns: vec!["text".into()], ..nearest(1) }), Lane::Long);
    }
}
