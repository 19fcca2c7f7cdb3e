//! Answers batches of requests: the only module that knows how the store, index or collection is searched.
//!
//! There are two lanes, so that cheap requests do not wait for expensive ones. If a store is served, a [`Service`]
//! answers the quick lane and keeps buckets in memory between batches. All other requests are answered by
//! [`Folder::search`]. On the long lane, this runs in a part of the memory that leaves enough for the quick lane.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use adjoin::context::Context;
use adjoin::device::{MemoryBudget, Reservation};
use adjoin::error::{Error, ErrorKind, Result};
use adjoin::folder::{Folder, FolderFacts};
use adjoin::options::{Element, VectorType, format_bytes};
use adjoin::query::{QueryTarget, SearchEffort, SearchOptions};
use adjoin::report::{Cancel, Written};
use adjoin::serve::{self, ServeOptions, ServeStatistics, Service};
use adjoin::sink::{HitBatch, HitSink};
use adjoin::source::IdKind;
use adjoin::store::Store;

use crate::answer::{Answer, AnswerFacts, QueryHits, RequestHits};
use crate::costs::Costs;
use crate::request::{Request, SEED, Together};
use crate::served::{Generation, Served};

/// Fraction of the memory free after opening that searches get. The rest is for the next generation while it is opened,
/// and for the long lane of a store.
const SEARCH_SHARE: (u64, u64) = (3, 4);
/// Fraction for a store with columns, since its filtered searches run in the long lane.
const FILTERED_SHARE: (u64, u64) = (1, 2);
/// Maximum number of hits of a query in the quick lane.
const QUICK_K: u64 = 100;
/// Maximum list size of a query in the quick lane.
const QUICK_LIST: usize = 1_024;
/// A query of the quick lane probes at most one in this number of the buckets.
const QUICK_PROBES_PART: u32 = 4;
/// Fixed cost of a request and of each query, in bytes compared. Without it, the pace measured on few rows would not
/// apply to many rows.
const REQUEST_BYTES: f64 = (1 << 20) as f64;
const QUERY_BYTES: f64 = (16 << 10) as f64;
/// Waiting queries get one part in this number of the service's memory, and their count is within these bounds.
const WAITING_SHARE: u64 = 16;
const WAITING: (u64, u64) = (64, 8_192);

/// One part in this number of the memory must be free before the long lane of an index takes half of what is free.
const LONG_PART: u64 = 4;
/// Number of hits that most requests ask for.
const USUAL_K: u64 = 10;
/// How long a new generation waits for the memory of searches before it is retried later.
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
    /// Holds everything that is opened; searches get a part of it.
    context: Context,
    search: Context,
    /// Read lock: the quick lane and threads that use the service. Write lock: replacing the service, or a request of
    /// the long lane that needs all of the memory. Nothing else waits for this lock.
    turn: RwLock<()>,
    /// Service of a store; `None` if it could not be opened or has failed, in which case searches do its work. The lock
    /// is held only briefly.
    service: Mutex<Option<Arc<Service>>>,
    /// Memory held for clients.
    clients: MemoryBudget,
    served: RwLock<Arc<Served>>,
    generation: Mutex<Generation>,
    costs: Mutex<Costs>,
    /// Canceled when no client waits for a search anymore.
    end: Cancel,
}

impl Backend {
    /// Opens the store, index or collection in `folder`, and runs one search to check that memory suffices.
    ///
    /// # Errors
    /// As [`Served::open`] and a search.
    pub(crate) fn open(context: &Context, clients: MemoryBudget, folder: &Path) -> Result<Self> {
        let generation = Generation::of(folder);
        let before = context.budget().free();
        let served = Served::open(context, folder)?;
        let search = match served.folder() {
            Folder::Collection(_) => context.clone(), // merges and writes take their turns with searches
            Folder::Store(_) | Folder::Index(_) => {
                let free = context.budget().free();
                let share = if served.is_filtered()? { FILTERED_SHARE } else { SEARCH_SHARE };
                // Leave room to open the next generation, at 5/4 of the size of this one, unless that leaves searches
                // less than half.
                let beside_next = free.saturating_sub((before - free) / 4 * 5).max(free / 2);
                context.with_reserved((free / share.1 * share.0).min(beside_next), "serving")?
            }
        };
        let service = match served.folder() {
            Folder::Store(store) => Some(Arc::new(open_service(&search, store)?)),
            Folder::Index(_) | Folder::Collection(_) => None,
        };
        let backend = Self {
            folder: folder.to_owned(),
            context: context.clone(),
            search,
            turn: RwLock::default(),
            service: Mutex::new(service),
            clients,
            served: RwLock::new(Arc::new(served)),
            generation: Mutex::new(generation),
            costs: Mutex::default(),
            end: Cancel::default(),
        };
        backend.try_one()?;
        Ok(backend)
    }

    /// Runs one search for the nearest rows. For a store, this calibrates the default recall, so that no client waits
    /// for that.
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

    /// Returns the context that holds everything that is opened.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Returns statistics of the store's service since it was opened.
    pub(crate) fn service_statistics(&self) -> Option<ServeStatistics> {
        lock(&self.service).as_ref().map(|service| service.statistics())
    }

    /// Chooses the lane of a request. The long lane takes exact searches, filters, thresholds, many hits or probes,
    /// long lists, and a recall that has not been calibrated yet.
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
        if is_quick && is_short && search.filter.is_none() && served.is_calibrated(search) {
            Lane::Quick
        } else {
            Lane::Long
        }
    }

    /// Predicts the bytes of vectors that the queries of a request are compared with: all in the probed buckets if
    /// `nprobe` is given, otherwise as many as earlier queries of the same kind.
    pub(crate) fn predicted_bytes(&self, search: &SearchOptions, queries: usize) -> f64 {
        let FolderFacts { rows, buckets, .. } = self.facts();
        let fraction = match (search.effort, buckets) {
            (SearchEffort::Probes(probes), Some(buckets)) => f64::from(probes.min(buckets)) / f64::from(buckets.max(1)),
            (effort, _) if effort.compares_all() => 1.0,
            _ => lock(&self.costs).fraction(search),
        };
        self.bytes_compared(queries, rows as f64 * fraction)
    }

    /// Returns the cost of `queries` queries that are compared with `distances` vectors each, in bytes: the vectors and
    /// the fixed costs.
    pub(crate) fn bytes_compared(&self, queries: usize, distances: f64) -> f64 {
        let bytes = distances * self.facts().vectors.bytes() as f64;
        REQUEST_BYTES + queries as f64 * (QUERY_BYTES + bytes)
    }

    /// Opens a generation that was published since this one was opened, or restarts a failed service. Requests are
    /// accepted while the generation is opened; answers wait only while the service is replaced. Returns whether a new
    /// generation is served.
    ///
    /// # Errors
    /// If the generation cannot be opened: the old one is still served, and the next call tries again.
    pub(crate) fn take_up(&self) -> Result<bool> {
        let now = Generation::of(&self.folder);
        let mut generation = lock(&self.generation);
        let before = self.served();
        if matches!(before.folder(), Folder::Collection(_)) {
            return Ok(false);
        }
        // Without a new generation, the only work is a service that has failed.
        if *generation == now {
            self.restart_failed_service(&before)?;
            return Ok(false);
        }
        let next = match self.open_next() {
            // Running searches may hold the memory. They end soon, or the next call of this function tries again.
            Err(error) if error.kind() == ErrorKind::Budget => {
                self.wait_for_searches();
                self.open_next()?
            }
            opened => opened?,
        };
        // From here on, no thread uses the service. The quick lane waits until the new one is in place.
        let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        if let Folder::Store(store) = next.folder()
            && let Err(error) = self.replace_service(store)
        {
            // The service of the old generation is closed by now. It is opened again, so that its clients get
            // answers.
            if let Folder::Store(before) = before.folder() {
                self.replace_service(before)?;
            }
            return Err(error);
        }
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        *generation = now;
        Ok(true)
    }

    /// Waits until no search holds memory outside the service.
    fn wait_for_searches(&self) {
        let mut context = self.context.clone();
        context.cancel = context.cancel.with_deadline(Some(Instant::now() + TAKE_UP_WAIT));
        drop(context.for_run(context.budget().free() + 1, "serving"));
    }

    /// Opens the current generation of the folder.
    fn open_next(&self) -> Result<Served> {
        let (before, next) = (self.facts(), Served::open(&self.context, &self.folder)?);
        let after = next.folder().facts();
        // Requests in the queues were checked against the facts of the old generation.
        if (before.kind, before.vectors.dimensions, before.metric)
            != (after.kind, after.vectors.dimensions, after.metric)
        {
            return Err(Error::input(format!(
                "{}: what was published has another kind, dimension or metric; start the server again to serve it",
                self.folder.display()
            )));
        }
        Ok(next)
    }

    /// Opens a service of `store` in the memory of the old service, which no search uses anymore.
    fn replace_service(&self, store: &Arc<Store>) -> Result<()> {
        // Closed first: the memory does not hold two services.
        let before = lock(&self.service).take();
        drop(before);
        let service = Arc::new(open_service(&self.search, store)?);
        *lock(&self.service) = Some(service);
        Ok(())
    }

    fn restart_failed_service(&self, served: &Served) -> Result<()> {
        let Folder::Store(store) = served.folder() else { return Ok(()) };
        if lock(&self.service).as_ref().is_some_and(|service| !service.has_failed()) {
            return Ok(());
        }
        // Searches that use the failed service must end before its memory is taken.
        let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        self.replace_service(store)?;
        tracing::warn!("the service of the store had failed; it was started again");
        Ok(())
    }

    /// Answers all requests of a lane; calls `give` with the index of each request and its answer.
    pub(crate) fn answer(&self, lane: Lane, requests: &[&Request], give: &mut dyn FnMut(usize, Result<Answer>)) {
        let batch = BatchPart { requests, positions: (0..requests.len()).collect() };
        if lane == Lane::Quick {
            return self.with_service(|service| match service {
                Some(service) => self.serve(service, batch, give),
                None => self.search(&self.search, batch, give),
            });
        }
        // The part may be too small for a request. If so, it is searched again in all of the memory, after the
        // others.
        let mut refused = Vec::new();
        self.search_in_part(batch, &mut |k, answer| match answer {
            Err(error) if error.kind() == ErrorKind::Budget => refused.push((k, error)),
            answer => give(k, answer),
        });
        refused.into_iter().for_each(|(k, error)| self.search_in_all(requests, k, error, give));
    }

    /// Calls `answer` with the service, which is not replaced during the call, or with `None` if no service works.
    fn with_service<R>(&self, answer: impl FnOnce(Option<&Service>) -> R) -> R {
        let _turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        let service = lock(&self.service).clone();
        answer(service.as_deref().filter(|service| !service.has_failed()))
    }

    /// Searches for requests of the long lane in a part of the memory, while the quick lane runs.
    fn search_in_part(&self, batch: BatchPart<'_>, give: &mut dyn FnMut(usize, Result<Answer>)) {
        if self.facts().buckets.is_some() {
            return self.search(&self.context, batch, give); // next to the service
        }
        let mut context = self.search.clone();
        context.cancel = self.end.with_deadline(batch.positions.iter().map(|&k| batch.requests[k].deadline).max());
        let part = context.for_run(context.budget().total() / LONG_PART, "a long search");
        let Ok(part) = part else { return self.search(&self.search, batch, give) };
        // The other half is left for searches of the quick lane that start in the meantime.
        part.budget().shrink(part.budget().total() / 2);
        self.search(&part, batch, give);
    }

    /// Searches in all of the memory for a request that did not fit into a part of it.
    fn search_in_all(
        &self,
        requests: &[&Request],
        k: usize,
        refused: Error,
        give: &mut dyn FnMut(usize, Result<Answer>),
    ) {
        if self.facts().buckets.is_none() {
            // The quick lane waits meanwhile: a request that fits into the whole memory must not fail because others
            // use some of it.
            let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
            return self.search(&self.search, BatchPart { requests, positions: vec![k] }, give);
        }
        self.with_service(|service| match service {
            // A service does not support filters.
            Some(_) if requests[k].search.filter.is_some() => give(k, Err(refused)),
            Some(service) => self.serve(service, BatchPart { requests, positions: vec![k] }, give),
            None => self.search(&self.search, BatchPart { requests, positions: vec![k] }, give),
        });
    }

    /// Answers requests with the service, which gets as many queries at once as may wait for it.
    fn serve(&self, service: &Service, batch: BatchPart<'_>, give: &mut dyn FnMut(usize, Result<Answer>)) {
        let BatchPart { requests, positions } = batch;
        let (begun, FolderFacts { metric, ids, .. }) = (Instant::now(), self.facts());
        let mut open: Vec<Option<Gathered>> = requests.iter().map(|_| None).collect();
        let mut asked = Vec::new();
        for k in positions {
            let memory = self.clients.reserve(0).expect("zero bytes can always be reserved");
            open[k] = Some(Gathered::new(requests[k].rows, memory));
            asked.extend((0..requests[k].rows).map(|query| (k, query)));
        }
        // The service refuses queries beyond the number that may wait.
        for some in asked.chunks(service.waiting_max()) {
            let asked = some.iter().map(|&(k, query)| serve::Request {
                vector: requests[k].query(query),
                target: requests[k].search.target,
                effort: requests[k].search.effort,
                deadline: Some(requests[k].deadline),
            });
            service.answer_each(asked.collect(), |number, answer| {
                let (k, query) = some[number];
                // Its request may have failed already.
                let Some(gathered) = &mut open[k] else { return };
                let whole = match answer.and_then(|answer| gathered.add(query, answer, &self.clients)) {
                    Ok(false) => return,
                    Ok(true) => {
                        open[k].take().expect("the request is open, as checked above").whole(ids, &self.clients)
                    }
                    Err(error) => Err(error),
                };
                // Later answers to this request are dropped, whether it has succeeded or failed.
                open[k] = None;
                let search_ms = begun.elapsed().as_secs_f64() * 1e3;
                if let Ok((_, facts)) = &whole {
                    self.learn(&requests[k].search, facts.distances_per_query);
                }
                give(
                    k,
                    whole.map(|(found, facts)| Answer { metric, found, facts: AnswerFacts { search_ms, ..facts } }),
                );
            });
        }
    }

    /// Searches for requests, with equal targets searched together. If such a search fails, each of its requests is
    /// searched alone, so that a request fails only for its own faults.
    fn search(&self, context: &Context, batch: BatchPart<'_>, give: &mut dyn FnMut(usize, Result<Answer>)) {
        let BatchPart { requests, positions } = batch;
        for group in groups(requests, &positions) {
            let together: Vec<&Request> = group.iter().map(|&k| requests[k]).collect();
            match self.search_together(context, &together) {
                Ok(answers) => group.iter().zip(answers).for_each(|(&k, answer)| give(k, Ok(answer))),
                Err(error) if group.len() == 1 => give(group[0], Err(error)),
                Err(_) => {
                    for &k in &group {
                        let alone = self.search_together(context, &[requests[k]]);
                        give(k, alone.map(|mut answers| answers.remove(0)));
                    }
                }
            }
        }
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

    /// Runs one search for requests with equal targets.
    fn search_together(&self, context: &Context, requests: &[&Request]) -> Result<Vec<Answer>> {
        let served = self.served();
        let FolderFacts { metric, ids, .. } = served.folder().facts();
        let Request { search, vectors, .. } = requests[0];
        let queries = &Together::queries(*vectors, requests);
        let found = Mutex::new(Vec::with_capacity(requests.len()));
        for _ in requests {
            lock(&found).push(RequestHits::none(ids, reserve(&self.clients, 0, 0)?));
        }
        let sink = Sharing { found: &found, queries, clients: &self.clients };
        // The search is canceled after the last deadline, as no client waits for it then.
        let deadline = requests.iter().map(|request| request.deadline).max();
        let mut context = context.clone();
        context.cancel = self.end.with_deadline(deadline);
        let statistics = served.search(&context, queries, search, Box::new(sink))?;
        let facts = AnswerFacts::of(&statistics);
        self.learn(search, facts.distances_per_query);
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(found.into_iter().map(|found| Answer { metric, found, facts: facts.clone() }).collect())
    }

    fn learn(&self, search: &SearchOptions, distances: f64) {
        // A given number of probes has a known cost.
        if !matches!(search.effort, SearchEffort::Probes(_)) {
            lock(&self.costs).learn(search, distances, self.facts().rows);
        }
    }
}

/// Opens a service of a store, with memory of its own.
fn open_service(context: &Context, store: &Arc<Store>) -> Result<Service> {
    let share = context.budget().total() / WAITING_SHARE;
    let waiting_max = share / ServeOptions::waiting_bytes(store.manifest().vectors.dimensions);
    let waiting_max = waiting_max.clamp(WAITING.0, WAITING.1) as usize;
    Service::open(context, store.clone(), ServeOptions { waiting_max, seed: SEED, ..ServeOptions::default() })
}

/// Requests of a batch that are answered in the same way.
struct BatchPart<'a> {
    /// All requests of the batch.
    requests: &'a [&'a Request],
    /// Positions of those that are part of this.
    positions: Vec<usize>,
}

/// Answers received so far for the queries of a request.
struct Gathered {
    found: Vec<Option<serve::Answer>>,
    left: usize,
    /// Reservation for the hits.
    memory: Reservation,
}

impl Gathered {
    fn new(queries: usize, memory: Reservation) -> Self {
        Self { found: vec![None; queries], left: queries, memory }
    }

    /// Adds the answer to a query. Returns whether it was the last.
    ///
    /// # Errors
    /// If the memory for clients does not hold it.
    fn add(&mut self, query: usize, answer: serve::Answer, clients: &MemoryBudget) -> Result<bool> {
        let more = reserve(clients, bytes_of(&answer), self.memory.bytes())?;
        self.memory.join(more);
        self.found[query] = Some(answer);
        self.left -= 1;
        Ok(self.left == 0)
    }

    /// Combines the answers of all queries.
    ///
    /// # Errors
    /// If the memory for clients does not hold them.
    fn whole(self, ids: IdKind, clients: &MemoryBudget) -> Result<(RequestHits, AnswerFacts)> {
        let Self { found: each, mut memory, .. } = self;
        let (queries, mut facts) = (each.len(), AnswerFacts::default());
        let mut found = RequestHits::none(ids, reserve(clients, 0, 0)?);
        for answer in each.into_iter().flatten() {
            facts.add(&answer, queries);
            let serve::Answer { rows, ids, values, .. } = &answer;
            found.push(QueryHits { rows, ids, first_id: 0, values }, |bytes, held| {
                reserve(clients, bytes, held + memory.bytes())
            })?;
            // Shrink the reservation, so that each hit is counted once.
            memory.shrink(memory.bytes() - bytes_of(&answer));
        }
        Ok((found, facts))
    }
}

/// Returns the bytes of the answer to a query.
fn bytes_of(answer: &serve::Answer) -> u64 {
    (answer.rows.len() * (size_of::<u64>() + size_of::<f32>())) as u64 + answer.ids.bytes()
}

/// Groups the requests at `positions` that can be searched together, in the order of the first of each group.
fn groups(requests: &[&Request], positions: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &k in positions {
        let request = requests[k];
        let is_like = |other: &Request| other.vectors == request.vectors && other.search == request.search;
        match groups.iter_mut().find(|group| is_like(requests[group[0]])) {
            Some(group) => group.push(k),
            None => groups.push(vec![k]),
        }
    }
    groups
}

/// Hands hits to the requests of their queries.
struct Sharing<'a> {
    found: &'a Mutex<Vec<RequestHits>>,
    queries: &'a Together<'a>,
    clients: &'a MemoryBudget,
}

impl HitSink for Sharing<'_> {
    fn wants_ids(&self) -> bool {
        true
    }

    fn accept(&mut self, batch: &HitBatch) -> Result<()> {
        let mut found = lock(self.found);
        let mut start = 0;
        for (query, (&row, &end)) in batch.query_rows.iter().zip(&batch.ends).enumerate() {
            let (part, _) = self.queries.part_of(row);
            let (rows, values) = (&batch.rows[start..end], &batch.values[start..end]);
            let hits = QueryHits { rows, ids: &batch.ids, first_id: start, values };
            // The engine splits the hits of a query that exceed a batch. The next batch then continues with the same
            // query.
            if query == 0 && batch.hits_before > 0 {
                found[part].reopen();
            }
            found[part].push(hits, |bytes, held| reserve(self.clients, bytes, held))?;
            start = end;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reserves memory for the answer to a request, in addition to the `held` bytes of that request.
///
/// # Errors
/// If it is not free: [`ErrorKind::Budget`] if the request itself holds most of the memory, otherwise
/// [`ErrorKind::Overloaded`], since other requests will release it.
fn reserve(clients: &MemoryBudget, bytes: u64, held: u64) -> Result<Reservation> {
    clients.reserve(bytes).map_err(|refused| {
        let total = format_bytes(refused.total);
        if held.saturating_add(bytes) > refused.total / 2 {
            return Error::budget(format!(
                "the hits of these queries take most of the {total} for answers; ask for fewer"
            ));
        }
        Error::overloaded("other requests take the memory that is for answers now; try again later")
    })
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
    use adjoin::source::Ids;
    use adjoin::store::{BuildOptions, build};

    use super::*;
    use crate::request::Part;

    const PAIRS: VectorType = VectorType { element: Element::U8, dimensions: 2 };

    /// Publishes a store of `rows` rows in a folder, replacing an existing one.
    fn publish(folder: &Path, rows: usize) {
        let stored: Vec<u8> = (0..2 * rows).map(|number| number as u8).collect();
        let part = Part { rows, stored: &stored, ids: &Ids::None };
        let source = Together::new(PAIRS, IdKind::None, vec![part], "rows");
        let options = BuildOptions { force: true, ..BuildOptions::default() };
        build(&Context::default(), &source, folder, &options).unwrap();
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

    /// Checks that metadata and statistics do not wait while the service is replaced.
    #[test]
    fn statistics_are_available_while_the_service_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("set.store");
        publish(&folder, 100);
        let backend = open(&folder);
        let _turn = backend.turn.write().unwrap();
        assert!(backend.service_statistics().is_some() && backend.facts().rows == 100);
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
    }
}
