//! Answers the requests of a batch, in the same way for a store, an index and a collection.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use adjoin::{
    CachedSearch, Cancel, Context, Error, FolderFacts, HitBatch, HitSink, IdKind, Result, SearchEffort, SearchOptions,
    ServedHits, Written,
    device::{MemoryBudget, Reservation},
    format_bytes,
};

use crate::answer::{Answer, AnswerFacts, QueryHits, RequestHits};
use crate::costs::Costs;
use crate::request::{Request, Together};
use crate::served::Served;

/// Callback for an answer, called on any thread with the position of the request in its batch.
pub(crate) type Give<'a> = &'a mut (dyn FnMut(usize, Result<Answer>) + Send);

/// Method by which a batch is answered.
pub(crate) enum SearchMethod<'a> {
    /// A cached search of a store, which keeps buckets in memory. A request is answered when its last query is.
    Cached(&'a CachedSearch),
    /// A search in the memory of a context. Requests with equal targets are answered together.
    Search(&'a Context),
}

/// Answers batches from an open folder.
pub(crate) struct Answering<'a> {
    pub(crate) served: &'a Served,
    /// Memory held for clients.
    pub(crate) clients: &'a MemoryBudget,
    pub(crate) costs: &'a Mutex<Costs>,
    /// Canceled at shutdown, when no client waits for a search anymore.
    pub(crate) end: &'a Cancel,
}

/// Requests of a batch that are answered in the same way.
pub(crate) struct BatchPart<'a> {
    /// All requests of the batch.
    pub(crate) requests: &'a [&'a Request],
    /// Positions of the requests of this part.
    pub(crate) positions: Vec<usize>,
}

impl Answering<'_> {
    /// Answers the requests of a batch.
    pub(crate) fn answer(&self, method: SearchMethod<'_>, batch: BatchPart<'_>, give: Give<'_>) {
        match method {
            SearchMethod::Cached(cached) => self.by_cached(cached, batch, give),
            SearchMethod::Search(context) => self.by_search(context, batch, give),
        }
    }

    fn by_cached(&self, cached: &CachedSearch, BatchPart { requests, positions }: BatchPart<'_>, give: Give<'_>) {
        let (begun, FolderFacts { metric, ids, .. }) = (Instant::now(), self.served.folder().facts());
        let mut open: Vec<Option<Gathered>> = requests.iter().map(|_| None).collect();
        let (mut asked, mut queries) = (Vec::new(), Vec::new());
        for k in positions {
            let memory = self.clients.reserve(0).expect("zero bytes can always be reserved");
            open[k] = Some(Gathered::new(requests[k].rows, memory));
            asked.extend((0..requests[k].rows).map(|query| (k, query)));
            queries.extend((0..requests[k].rows).map(|query| requests[k].query(query)));
        }
        cached.answer(&queries, &mut |number, hits| {
            let (k, query) = asked[number];
            // The request of this query may have failed already.
            let Some(gathered) = &mut open[k] else { return };
            let whole = match hits.and_then(|hits| gathered.add(query, hits, self.clients)) {
                Ok(false) => return,
                Ok(true) => open[k].take().expect("its last query was just added").whole(ids, self.clients),
                Err(error) => Err(error),
            };
            // Later hits for this request are dropped, whether it has succeeded or failed.
            open[k] = None;
            let search_ms = begun.elapsed().as_secs_f64() * 1e3;
            if let Ok((_, facts)) = &whole {
                self.learn(&requests[k].search, facts.distances_per_query);
            }
            give(k, whole.map(|(found, facts)| Answer { metric, found, facts: AnswerFacts { search_ms, ..facts } }));
        });
    }

    /// Searches for requests. Requests with equal targets are searched together. If such a search fails, each of its
    /// requests is searched alone, so that one faulty request does not make the others fail.
    fn by_search(&self, context: &Context, BatchPart { requests, positions }: BatchPart<'_>, give: Give<'_>) {
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

    /// Runs one search for requests with equal targets.
    fn search_together(&self, context: &Context, requests: &[&Request]) -> Result<Vec<Answer>> {
        let FolderFacts { metric, ids, .. } = self.served.folder().facts();
        let Request { search, vectors, .. } = requests[0];
        let queries = &Together::queries(*vectors, requests);
        let found = Mutex::new(Vec::with_capacity(requests.len()));
        for _ in requests {
            lock(&found).push(RequestHits::none(ids, reserve(self.clients, 0, 0)?));
        }
        let sink = Sharing { found: &found, queries, clients: self.clients };
        // The search is canceled after the last deadline, since no client waits for it then.
        let deadline = requests.iter().map(|request| request.deadline).max();
        let mut context = context.clone();
        context.cancel = self.end.with_deadline(deadline);
        let statistics = self.served.search(&context, queries, search, Box::new(sink))?;
        let facts = AnswerFacts::of(&statistics);
        self.learn(search, facts.distances_per_query);
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(found.into_iter().map(|found| Answer { metric, found, facts: facts.clone() }).collect())
    }

    fn learn(&self, search: &SearchOptions, distances: f64) {
        // The cost of a given number of probes is known, so there is nothing to learn from it.
        if !matches!(search.effort, SearchEffort::Probes(_)) {
            lock(self.costs).learn(search, distances, self.served.folder().facts().rows);
        }
    }
}

/// Answers to the queries of one request that have arrived so far.
struct Gathered {
    found: Vec<Option<ServedHits>>,
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
    /// If the memory for clients is too small for it.
    fn add(&mut self, query: usize, answer: ServedHits, clients: &MemoryBudget) -> Result<bool> {
        let more = reserve(clients, answer.bytes(), self.memory.bytes())?;
        self.memory.join(more);
        self.found[query] = Some(answer);
        self.left -= 1;
        Ok(self.left == 0)
    }

    /// Combines the answers of all queries.
    ///
    /// # Errors
    /// If the memory for clients is too small for them.
    fn whole(self, ids: IdKind, clients: &MemoryBudget) -> Result<(RequestHits, AnswerFacts)> {
        let Self { found: each, mut memory, .. } = self;
        let (queries, mut facts) = (each.len(), AnswerFacts::default());
        let mut found = RequestHits::none(ids, reserve(clients, 0, 0)?);
        for answer in each.into_iter().flatten() {
            facts.add(&answer, queries);
            let ServedHits { rows, ids, values, .. } = &answer;
            found.push(QueryHits { rows, ids, first_id: 0, values, columns: None }, |bytes, held| {
                reserve(clients, bytes, held + memory.bytes())
            })?;
            // The hits were copied, so the reservation for the originals is released.
            memory.shrink(memory.bytes() - answer.bytes());
        }
        Ok((found, facts))
    }
}

/// Groups the requests at `positions` that can be searched together. Groups are in the order of their first requests.
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

/// Sink that assigns each hit to the request of its query.
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
            let columns = batch.columns.as_ref().map(|columns| columns.slice(start, end - start));
            let hits = QueryHits { rows, ids: &batch.ids, first_id: start, values, columns };
            // If the hits of a query do not fit in one batch of hits, the next batch continues with this query.
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

/// Locks a mutex, even if a thread has panicked while it held the lock.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reserves memory for the answer to a request, in addition to the `held` bytes of that request.
///
/// # Errors
/// If the memory is not free. The kind is [`ErrorKind::Budget`] if the request itself needs most of the memory for
/// clients. Otherwise it is [`ErrorKind::Overloaded`], since other requests will release memory.
fn reserve(clients: &MemoryBudget, bytes: u64, held: u64) -> Result<Reservation> {
    clients.reserve(bytes).map_err(|refused| {
        let total = format_bytes(refused.total);
        if held.saturating_add(bytes) > refused.total / 2 {
            return Error::budget(format!(
                "the hits of these queries take most of the {total} for answers; request fewer"
            ));
        }
        Error::overloaded("other requests hold the memory for answers; try again later")
    })
}
