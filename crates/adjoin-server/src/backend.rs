//! Answers to batches of requests, from what is served: the one place that knows how a search is done.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use adjoin::context::Context;
use adjoin::device::MemoryBudget;
use adjoin::error::{Error, ErrorKind, Result};
use adjoin::options::{Element, VectorType, format_bytes};
use adjoin::report::Written;
use adjoin::search::Wanted;
use adjoin::sink::{HitBatch, HitSink};

use crate::answer::{Answer, Found, Told};
use crate::request::{Request, Sought, Together};
use crate::served::{Facts, Generation, Served};

/// The weight of the last search in what is known of the cost of a query.
const LEARNED: f64 = 0.2;
/// Of the memory that is free once something is open, the share that searches have; what is left holds the next generation
/// while it is opened.
const SEARCH_SHARE: (u64, u64) = (3, 4);

/// Searches what is served.
pub(crate) struct Backend {
    folder: PathBuf,
    /// Whatever is opened is held in this budget, searches in a part of it.
    context: Context,
    search: Context,
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
                let search = context.for_run(1, "serving")?;
                search.budget().shrink(search.budget().total() / SEARCH_SHARE.1 * SEARCH_SHARE.0);
                search
            }
        };
        let backend = Self {
            folder: folder.to_owned(),
            context: context.clone(),
            search,
            clients,
            served: RwLock::new(Arc::new(served)),
            generation: Mutex::new(generation),
            rows_compared: Mutex::default(),
        };
        backend.try_one()?;
        Ok(backend)
    }

    /// Asks for what is nearest to a vector.
    fn try_one(&self) -> Result<()> {
        let facts = self.facts();
        if facts.rows == 0 {
            return Ok(());
        }
        let dimensions = facts.vectors.dimensions;
        let (vectors, stored) = (VectorType { element: Element::U8, dimensions }, vec![1; dimensions]);
        let (nprobe, list) = if facts.buckets.is_some() { (Some(1), None) } else { (None, Some(1)) };
        let sought = Sought { wanted: Wanted::Nearest(1), recall: None, exact: false, nprobe, list, condition: None };
        let memory = self.clients.reserve(0).expect("nothing can be reserved");
        let request =
            Request { sought, vectors, rows: 1, stored, deadline: std::time::Instant::now(), _memory: memory };
        self.search_together(&[&request]).map(drop)
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

    /// Bytes of vectors that some queries are predicted to be compared with: those of the buckets that they look into where
    /// that is said, else as many as others were.
    pub(crate) fn predicted_bytes(&self, sought: &Sought, queries: usize) -> f64 {
        let Facts { rows, vectors, buckets, .. } = self.facts();
        let rows = match (sought.nprobe, buckets) {
            (Some(nprobe), Some(buckets)) => rows as f64 * f64::from(nprobe.min(buckets)) / f64::from(buckets.max(1)),
            _ => self.rows_compared.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(rows as f64),
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
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(served);
        Ok(true)
    }

    /// Searches for all requests, those that want the same together, and gives the answer of each with its place. Where a search
    /// fails, each request of it is searched for alone, so that it fails for its own faults only.
    pub(crate) fn answer(&self, requests: &[&Request], give: &mut dyn FnMut(usize, Result<Answer>)) {
        for group in groups(requests) {
            let together: Vec<&Request> = group.iter().map(|&k| requests[k]).collect();
            match self.search_together(&together) {
                Ok(answers) => group.iter().zip(answers).for_each(|(&k, answer)| give(k, Ok(answer))),
                Err(error) if group.len() == 1 => give(group[0], Err(error)),
                Err(_) => {
                    for &k in &group {
                        let alone = self.search_together(&[requests[k]]);
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
    fn search_together(&self, requests: &[&Request]) -> Result<Vec<Answer>> {
        let served = self.served();
        let Facts { metric, ids, .. } = served.facts();
        let Request { sought, vectors, .. } = requests[0];
        let queries = &Together::queries(*vectors, requests);
        let found = Mutex::new(Vec::with_capacity(requests.len()));
        for _ in requests {
            lock(&found).push(Found::none(ids, reserve(&self.clients, 0)?));
        }
        let sink = Sharing { found: &found, queries, clients: &self.clients };
        let statistics = served.search(&self.search, queries, sought, Box::new(sink))?;
        let told = Told::of(&statistics);
        if sought.nprobe.is_none() {
            self.learn(told.distances_per_query);
        }
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(found.into_iter().map(|found| Answer { metric, found, told: told.clone() }).collect())
    }

    fn learn(&self, rows: f64) {
        let mut known = self.rows_compared.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(known.map_or(rows, |known| (1.0 - LEARNED) * known + LEARNED * rows));
    }
}

/// The places of requests that are searched for together, in the order of the first of each group.
fn groups(requests: &[&Request]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (k, request) in requests.iter().enumerate() {
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
        for (&row, &end) in batch.query_rows.iter().zip(&batch.ends) {
            let (part, _) = self.queries.part_of(row);
            let hits = (&batch.rows[start..end], (&batch.ids, start), &batch.values[start..end]);
            found[part].push(hits, |bytes| reserve(self.clients, bytes))?;
            start = end;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

fn lock(found: &Mutex<Vec<Found>>) -> std::sync::MutexGuard<'_, Vec<Found>> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory for what clients get.
///
/// # Errors
/// Where there is not so much now.
fn reserve(clients: &MemoryBudget, bytes: u64) -> Result<adjoin::device::Reservation> {
    clients.reserve(bytes).map_err(|refused| {
        Error::budget(format!(
            "the hits of these queries take more than the {} that are free for answers; ask for fewer",
            format_bytes(refused.free)
        ))
    })
}

/// Whether a failure is one of what is served rather than of a request.
pub(crate) fn is_ours(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::Input | ErrorKind::Option | ErrorKind::Budget)
}
