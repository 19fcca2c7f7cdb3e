//! Answers to batches of requests, from what is served: the one place that knows how a search is done. Queries of a store are
//! answered by a [`Service`], which keeps buckets in memory; where they have conditions, and of indexes, by a search.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use adjoin::context::Context;
use adjoin::device::{MemoryBudget, Reservation};
use adjoin::error::{Error, ErrorKind, Result};
use adjoin::options::{Element, VectorType, format_bytes};
use adjoin::report::Written;
use adjoin::search::Wanted;
use adjoin::serve::{self, ServeOptions, ServeStatistics, Service};
use adjoin::sink::{HitBatch, HitSink};
use adjoin::source::IdKind;
use adjoin::store::Store;

use crate::answer::{Answer, Found, Told};
use crate::request::{Request, Sought, Together};
use crate::served::{Facts, Generation, SEED, Served, effort};

/// The weight of the last search in what is known of the cost of a query.
const LEARNED: f64 = 0.2;
/// Of the memory that is free once something is open, the share that searches have; what is left holds the next generation
/// while it is opened.
const SEARCH_SHARE: (u64, u64) = (3, 4);
/// The same of a store whose rows have attributes.
const FILTERED_SHARE: (u64, u64) = (1, 2);
/// Of what a service has, the share that queries have which wait for it, and how many these may be.
const WAITING_SHARE: u64 = 16;
const WAITING: (u64, u64) = (64, 8_192);

/// How many hits most ask for.
const USUAL_K: u64 = 10;
/// How long the first search may take: of a large store on a cold disk.
const TRIAL: Duration = Duration::from_secs(3_600);

/// Searches what is served.
pub(crate) struct Backend {
    folder: PathBuf,
    /// Whatever is opened is held in this budget, searches in a part of it.
    context: Context,
    search: Context,
    /// Of a store; none where it could not be opened, and searches do its work.
    service: RwLock<Option<Service>>,
    /// What is held for clients.
    clients: MemoryBudget,
    served: RwLock<Arc<Served>>,
    generation: Mutex<Generation>,
    /// Rows that a query is compared with, where that is not known beforehand.
    rows_compared: Mutex<Option<f64>>,
}

impl Backend {
    /// Opens what is in a folder, and searches it once to see that memory suffices.
    ///
    /// # Errors
    /// As [`Served::open`] and a search.
    pub(crate) fn open(context: &Context, clients: MemoryBudget, folder: &Path) -> Result<Self> {
        let generation = Generation::of(folder);
        let served = Served::open(context, folder)?;
        let search = match served {
            Served::Live { .. } => context.clone(), // merges and writes take their turns with searches
            Served::Store(_) | Served::Index(_) => {
                // Searches with conditions are done beside the service.
                let share = if served.is_filtered()? { FILTERED_SHARE } else { SEARCH_SHARE };
                context.with_reserved(context.budget().free() / share.1 * share.0, "serving")?
            }
        };
        let service = match &served {
            Served::Store(store) => Some(open_service(&search, store)?),
            Served::Index(_) | Served::Live { .. } => None,
        };
        let backend = Self {
            folder: folder.to_owned(),
            context: context.clone(),
            search,
            service: RwLock::new(service),
            clients,
            served: RwLock::new(Arc::new(served)),
            generation: Mutex::new(generation),
            rows_compared: Mutex::default(),
        };
        backend.try_one()?;
        Ok(backend)
    }

    /// Asks what is nearest to a vector, of a store with the recall that is usual: what it takes to learn how far queries look
    /// for that is known then, and nobody waits for it later.
    fn try_one(&self) -> Result<()> {
        let facts = self.facts();
        if facts.rows == 0 {
            return Ok(());
        }
        let dimensions = facts.vectors.dimensions;
        let (vectors, stored) = (VectorType { element: Element::U8, dimensions }, vec![1; dimensions]);
        let list = facts.buckets.is_none().then_some(USUAL_K as usize);
        let wanted = Wanted::Nearest(USUAL_K);
        let sought = Sought { wanted, recall: None, exact: false, nprobe: None, list, condition: None };
        let memory = self.clients.reserve(0).expect("nothing can be reserved");
        let deadline = Instant::now() + TRIAL;
        let request = Request { sought, vectors, rows: 1, stored, deadline, _memory: memory };
        let mut tried = Ok(());
        self.answer(&[&request], &mut |_, answer| tried = answer.map(drop));
        tried
    }

    /// What is served now.
    pub(crate) fn served(&self) -> Arc<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is told of it.
    pub(crate) fn facts(&self) -> Facts {
        self.served().facts()
    }

    /// What is held for clients.
    pub(crate) fn clients(&self) -> &MemoryBudget {
        &self.clients
    }

    /// What everything works with.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// What the service of a store has done since it was opened.
    pub(crate) fn service_statistics(&self) -> Option<ServeStatistics> {
        let service = self.service.read().unwrap_or_else(PoisonError::into_inner);
        service.as_ref().map(Service::statistics)
    }

    /// Bytes of vectors that some queries are predicted to be compared with: those of the buckets that they look into where
    /// that is said, else as many as others were.
    pub(crate) fn predicted_bytes(&self, sought: &Sought, queries: usize) -> f64 {
        let Facts { rows, vectors, buckets, .. } = self.facts();
        let rows = match (sought.nprobe, buckets) {
            (Some(nprobe), Some(buckets)) => rows as f64 * f64::from(nprobe.min(buckets)) / f64::from(buckets.max(1)),
            _ => lock(&self.rows_compared).unwrap_or(rows as f64),
        };
        queries as f64 * rows * vectors.bytes() as f64
    }

    /// Takes up what was published since it was opened, if anything was; requests go on meanwhile. Returns whether it did.
    ///
    /// # Errors
    /// Where that cannot be opened: the one before goes on.
    pub(crate) fn take_up(&self) -> Result<bool> {
        let now = Generation::of(&self.folder);
        let mut generation = self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*self.served(), Served::Live { .. }) || *generation == now {
            return Ok(false);
        }
        *generation = now; // what fails is not tried again until it changes
        let (before, served) = (self.facts(), Served::open(&self.context, &self.folder)?);
        let after = served.facts();
        if (before.kind, before.vectors.dimensions, before.metric)
            != (after.kind, after.vectors.dimensions, after.metric)
        {
            return Err(Error::input(format!(
                "{}: what was published has another kind, dimension or metric; start the server anew to serve it",
                self.folder.display()
            )));
        }
        // Batches wait meanwhile, and requests for them.
        let mut service = self.service.write().unwrap_or_else(PoisonError::into_inner);
        if let Served::Store(store) = &served {
            *service = None; // its memory is for the next one
            *service = Some(open_service(&self.search, store)?);
        }
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(served);
        Ok(true)
    }

    /// Finds what all requests want, and gives the answer of each with its place.
    pub(crate) fn answer(&self, requests: &[&Request], give: &mut dyn FnMut(usize, Result<Answer>)) {
        let service = self.service.read().unwrap_or_else(PoisonError::into_inner);
        let all = 0..requests.len();
        let Some(service) = service.as_ref() else { return self.search(&self.search, (requests, all.collect()), give) };
        let (served, searched): (Vec<usize>, Vec<usize>) = all.partition(|&k| requests[k].sought.condition.is_none());
        self.serve(service, (requests, served), give);
        self.search(&self.context, (requests, searched), give);
    }

    /// Lets a service answer some of the requests, as many queries at once as may wait for it.
    fn serve(
        &self,
        service: &Service,
        (requests, places): (&[&Request], Vec<usize>),
        give: &mut dyn FnMut(usize, Result<Answer>),
    ) {
        let (begun, Facts { metric, ids, .. }) = (Instant::now(), self.facts());
        let mut open: Vec<Option<Gathered>> = requests.iter().map(|_| None).collect();
        let mut asked = Vec::new();
        for k in places {
            match effort(&requests[k].sought) {
                Ok(effort) => {
                    open[k] = Some(Gathered::new(
                        requests[k].rows,
                        self.clients.reserve(0).expect("nothing can be reserved"),
                    ));
                    asked.extend((0..requests[k].rows).map(|query| (k, query, effort)));
                }
                Err(error) => give(k, Err(error)),
            }
        }
        for some in asked.chunks(service.waiting_max()) {
            let asked = some.iter().map(|&(k, query, effort)| serve::Request {
                vector: requests[k].query(query),
                wanted: requests[k].sought.wanted,
                effort,
                deadline: Some(requests[k].deadline),
            });
            service.answer_each(asked.collect(), |number, answer| {
                let (k, query, _) = some[number];
                // It may have failed before.
                let Some(gathered) = &mut open[k] else { return };
                let whole = match answer.and_then(|answer| gathered.add(query, answer, &self.clients)) {
                    Ok(false) => return,
                    Ok(true) => open[k].take().expect("it is there").whole(ids, &self.clients),
                    Err(error) => Err(error),
                };
                open[k] = None;
                let search_ms = begun.elapsed().as_secs_f64() * 1e3;
                if let (Ok((_, told)), None) = (&whole, requests[k].sought.nprobe) {
                    self.learn(told.distances_per_query);
                }
                give(k, whole.map(|(found, told)| Answer { metric, found, told: Told { search_ms, ..told } }));
            });
        }
    }

    /// Searches for some of the requests, those that want the same together. Where a search fails, each request of it is
    /// searched for alone, so that it fails for its own faults only.
    fn search(
        &self,
        context: &Context,
        (requests, places): (&[&Request], Vec<usize>),
        give: &mut dyn FnMut(usize, Result<Answer>),
    ) {
        for group in groups(requests, &places) {
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

    /// Lets go of what is served; of a live index all writes are durable then.
    ///
    /// # Errors
    /// Where its log cannot be written.
    pub(crate) fn close(self) -> Result<()> {
        let served = self.served.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(Served::Live { collection, _merger: merger }) = Arc::into_inner(served) else { return Ok(()) };
        drop(merger);
        Arc::into_inner(collection).map_or(Ok(()), adjoin::live::Collection::close)
    }

    /// Searches once for requests that want the same.
    fn search_together(&self, context: &Context, requests: &[&Request]) -> Result<Vec<Answer>> {
        let served = self.served();
        let Facts { metric, ids, .. } = served.facts();
        let Request { sought, vectors, .. } = requests[0];
        let queries = &Together::queries(*vectors, requests);
        let found = Mutex::new(Vec::with_capacity(requests.len()));
        for _ in requests {
            lock(&found).push(Found::none(ids, reserve(&self.clients, 0)?));
        }
        let sink = Sharing { found: &found, queries, clients: &self.clients };
        // Given up when nobody waits for it any more.
        let deadline = requests.iter().map(|request| request.deadline).max();
        let mut context = context.clone();
        context.cancel = context.cancel.with_deadline(deadline);
        let statistics = served.search(&context, queries, sought, Box::new(sink))?;
        let told = Told::of(&statistics);
        if sought.nprobe.is_none() {
            self.learn(told.distances_per_query);
        }
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(found.into_iter().map(|found| Answer { metric, found, told: told.clone() }).collect())
    }

    fn learn(&self, rows: f64) {
        let mut known = lock(&self.rows_compared);
        *known = Some(known.map_or(rows, |known| (1.0 - LEARNED) * known + LEARNED * rows));
    }
}

/// A service of a store with memory of its own.
fn open_service(context: &Context, store: &Arc<Store>) -> Result<Service> {
    let share = context.budget().total() / WAITING_SHARE;
    let waiting_max = share / ServeOptions::waiting_bytes(store.manifest().vectors.dimensions);
    let waiting_max = waiting_max.clamp(WAITING.0, WAITING.1) as usize;
    Service::open(context, store.clone(), ServeOptions { waiting_max, seed: SEED, ..ServeOptions::default() })
}

/// What the queries of a request have found so far.
struct Gathered {
    found: Vec<Option<serve::Answer>>,
    left: usize,
    /// Of the hits.
    memory: Reservation,
}

impl Gathered {
    fn new(queries: usize, memory: Reservation) -> Self {
        Self { found: vec![None; queries], left: queries, memory }
    }

    /// Adds what a query found; returns whether that was the last.
    ///
    /// # Errors
    /// Where the memory for clients does not hold it.
    fn add(&mut self, query: usize, answer: serve::Answer, clients: &MemoryBudget) -> Result<bool> {
        self.memory.join(reserve(clients, bytes_of(&answer))?);
        self.found[query] = Some(answer);
        self.left -= 1;
        Ok(self.left == 0)
    }

    /// All of it.
    ///
    /// # Errors
    /// Where the memory for clients does not hold it.
    fn whole(self, ids: IdKind, clients: &MemoryBudget) -> Result<(Found, Told)> {
        let Self { found: each, mut memory, .. } = self;
        let (queries, mut told) = (each.len(), Told::default());
        let mut found = Found::none(ids, reserve(clients, 0)?);
        for answer in each.into_iter().flatten() {
            told.add(&answer, queries);
            found.push((&answer.rows, (&answer.ids, 0), &answer.values), |bytes| reserve(clients, bytes))?;
            // Gone, so that all of it is held once only.
            memory.shrink(memory.bytes() - bytes_of(&answer));
        }
        Ok((found, told))
    }
}

/// Bytes of what a query found.
fn bytes_of(answer: &serve::Answer) -> u64 {
    (answer.rows.len() * (size_of::<u64>() + size_of::<f32>())) as u64 + answer.ids.bytes()
}

/// The places of requests that are searched for together, of those in `places`, in the order of the first of each group.
fn groups(requests: &[&Request], places: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for &k in places {
        let request = requests[k];
        let is_like = |other: &Request| other.vectors == request.vectors && other.sought == request.sought;
        match groups.iter_mut().find(|group| is_like(requests[group[0]])) {
            Some(group) => group.push(k),
            None => groups.push(vec![k]),
        }
    }
    groups
}

/// Hands hits to the requests whose queries found them.
struct Sharing<'a> {
    found: &'a Mutex<Vec<Found>>,
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
            let hits = (&batch.rows[start..end], (&batch.ids, start), &batch.values[start..end]);
            if query == 0 && batch.hits_before > 0 {
                found[part].reopen();
            }
            found[part].push(hits, |bytes| reserve(self.clients, bytes))?;
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

/// Memory for what clients get.
///
/// # Errors
/// Where there is not so much now.
fn reserve(clients: &MemoryBudget, bytes: u64) -> Result<Reservation> {
    clients.reserve(bytes).map_err(|refused| {
        Error::budget(format!(
            "the hits of these queries take more than the {} that are free for answers; ask for fewer",
            format_bytes(refused.free)
        ))
    })
}

/// Whether a failure is one of what is served rather than of a request.
pub(crate) fn is_ours(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Input | ErrorKind::Option | ErrorKind::Budget | ErrorKind::Late)
}
