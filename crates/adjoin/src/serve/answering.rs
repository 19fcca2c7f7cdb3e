//! Answers batches of queries. Chooses their probes, plans the reads, and collects the hits.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use adjoin_device::{MemoryBudget, Reservation};

use super::PURPOSE;
use super::batch::Batch;
use super::names::Names;
use super::options::{CacheOptions, NewPlanner, Planner, ServedHits, ServedQuery, SharedStatistics};
use super::pass::{Group, Pass, held_bytes};
use crate::base::error::{Error, Result};
use crate::base::geometry::Coordinate;
use crate::base::mutex::lock;
use crate::base::options::{Element, VectorType};
use crate::base::report::Stopwatch;
use crate::base::workers::streamed_items;
use crate::buckets::{
    CALIBRATED_K_MAX, CalibrationSamples, LoadedCenters, ProbePass, ProbePlan, Queries, QuerySet, Searcher, Visits,
    least_calibration_bytes,
};
use crate::execute::NearestSearch;
use crate::load::{Buckets, Cache, least_read_ahead};
use crate::plan::Probes;
use crate::plan::batch::{BatchPlan, BucketCosts, Residency};
use crate::query::{QueryTarget, SearchGoal, bytes_for_all_hits, ids_of, in_halves, query_as_stored, too_many_hits};
use crate::source::{IdKind, Ids};
use crate::store::fault_of_vector;

/// Largest number of goals (target and effort) whose queries are answered together. Queries with further goals are
/// answered after these.
const GOALS_TOGETHER: usize = 8;
/// Largest number of goals whose probe plans are remembered.
const GOALS_KNOWN: usize = 64;
/// Cost of a read before its first byte, as the number of bytes that could be read in that time. It is about 0.1 ms on
/// a disk with 1 GB/s.
const READ_COST_BYTES: f64 = 100_000.0;

/// State that is kept from one batch to the next.
pub(super) struct Kept<T: Coordinate> {
    centers: Arc<LoadedCenters<T>>,
    seed: u64,
    statistics: SharedStatistics,
    new_planner: NewPlanner,
    capacity: u64,
    /// Memory of the cached buckets, and of buckets that workers still use.
    buckets_memory: MemoryBudget,
    planner: Planner,
    cache: Cache<T>,
    /// Whether a plan was begun but not finished. The cache may then have other buckets than the planner assumes.
    is_interrupted: bool,
    /// Goals with their probe plans. The most recently used goal is last.
    known: Vec<PlannedGoal>,
    /// Samples from which probe rules are derived.
    samples: CalibrationSamples,
    since_begin: Stopwatch,
    _of_tables: Reservation,
}

/// Answers one batch of queries.
pub(super) struct Answering<'a, T: Coordinate> {
    searcher: &'a Searcher<'a, T>,
    kept: &'a mut Kept<T>,
    ids: IdKind,
    /// Bytes read for calibration during this batch.
    learning_bytes: u64,
}

/// A goal of queries, and the probes that reach it.
#[derive(Clone)]
struct PlannedGoal {
    goal: SearchGoal,
    plan: ProbePlan,
}

/// A valid query of a batch.
struct AskedQuery {
    /// Number of the query in the batch.
    number: usize,
    /// Vector of the query, of the type [`query_type`].
    stored: Vec<u8>,
    /// Position of the goal of the query in the list of goals.
    goal: usize,
}

/// Groups of queries, the buckets that each query probes, and the group of each query with its number in the group.
type Grouped<'t, T> = (Vec<Group<'t, T>>, Vec<Vec<u32>>, Vec<(usize, u32)>);

/// Queries of a batch with one goal.
struct Together<T> {
    goal: usize,
    queries: Queries<T>,
    /// Number of each query among the queries that are answered together.
    numbers: Vec<usize>,
}

impl<T: Coordinate> Kept<T> {
    /// Returns the least bytes with which a store can be served.
    pub(super) fn least_bytes(buckets: &Buckets<'_>, threads: usize, options: &CacheOptions) -> u64 {
        let target = QueryTarget::Nearest(1);
        let of = Searcher::<T>::bytes_of_query(buckets, query_type(buckets), target);
        let cache = capacity::<T>(options, buckets, 0) + worked_on::<T>(buckets, threads);
        let divided = cache + least_calibration_bytes::<T>(buckets, target);
        // If the size of the cache is not given, the cache gets half of the remaining memory, and queries get the other
        // half.
        let divided = if options.cache_bytes.is_some() { divided } else { 2 * divided };
        Searcher::<T>::least_bytes(buckets, threads, 2 * of) + tables_bytes::<T>(buckets) + divided
    }

    /// Creates the state, and reserves the memory of the cache.
    ///
    /// # Errors
    /// If memory does not suffice.
    pub(super) fn new(
        searcher: &Searcher<'_, T>,
        options: &CacheOptions,
        new_planner: NewPlanner,
        statistics: SharedStatistics,
    ) -> Result<Self> {
        let Searcher { context, buckets, .. } = *searcher;
        let of_tables = context.reserve(tables_bytes::<T>(buckets), PURPOSE)?;
        let worked_on = worked_on::<T>(buckets, context.threads);
        // The other half is for queries, their hits, and calibrations.
        let half = (context.budget().free() / 2).saturating_sub(worked_on);
        let capacity = capacity::<T>(options, buckets, half);
        let buckets_memory = MemoryBudget::within(context.reserve(capacity + worked_on, PURPOSE)?);
        lock(&statistics).cache_bytes = capacity;
        Ok(Self {
            centers: searcher.loaded.clone(),
            seed: options.seed,
            statistics,
            planner: new_planner(costs::<T>(buckets), capacity),
            new_planner,
            capacity,
            cache: Cache::new(buckets_memory.clone(), buckets.count() as usize),
            buckets_memory,
            is_interrupted: false,
            known: Vec::new(),
            samples: CalibrationSamples::default(),
            since_begin: Stopwatch::start(),
            _of_tables: of_tables,
        })
    }

    /// Returns the centers of the store.
    pub(super) fn centers(&self) -> Arc<LoadedCenters<T>> {
        self.centers.clone()
    }

    /// Empties the cache.
    fn forget(&mut self, buckets: &Buckets<'_>) {
        self.planner = (self.new_planner)(costs::<T>(buckets), self.capacity);
        self.cache = Cache::new(self.buckets_memory.clone(), buckets.count() as usize);
    }
}

impl<'a, T: Coordinate> Answering<'a, T> {
    /// Prepares to answer a batch.
    pub(super) fn new(searcher: &'a Searcher<'a, T>, kept: &'a mut Kept<T>) -> Self {
        Self { searcher, kept, ids: searcher.buckets.ids(0), learning_bytes: 0 }
    }

    /// Answers all queries of a batch. The number of queries that are answered together is limited by memory, under the
    /// assumption that each query finds a single vector.
    pub(super) fn answer(&mut self, batch: &Batch<'_>) {
        let most = self.searcher.queries_at_once(self.bytes_of(QueryTarget::Nearest(1))) as usize;
        for together in batch.by_deadline().chunks(most) {
            let mut together = together.to_vec();
            // Queries are put back into the order of arrival, so that the plan does not depend on deadlines.
            together.sort_unstable();
            self.answer_together(batch, together);
        }
        let read_bytes = self.searcher.buckets.read_counts().bytes_read - self.learning_bytes;
        lock(&self.kept.statistics).read_bytes += read_bytes;
    }

    /// Answers some queries of a batch.
    fn answer_together(&mut self, batch: &Batch<'_>, mut open: Vec<usize>) {
        let mut statistics = lock(&self.kept.statistics);
        statistics.queries += open.len() as u64;
        statistics.batches += 1;
        drop(statistics);
        open.iter().for_each(|&number| batch.refuse_late(number));
        open.retain(|&number| batch.is_open(number));
        while !open.is_empty() {
            let (goals, asked) = self.choose(batch, &mut open);
            // Queries without a probe rule read nearly the whole store, so they are answered after the others.
            let is_everywhere = |asked: &&AskedQuery| goals[asked.goal].plan.probes == Probes::Bound;
            let (everywhere, by_rule): (Vec<&AskedQuery>, Vec<&AskedQuery>) = asked.iter().partition(is_everywhere);
            self.in_parts(batch, &by_rule, |answering, some| answering.find(batch, &goals, some));
            for (number, goal) in goals.iter().enumerate() {
                let with_goal: Vec<&AskedQuery> =
                    everywhere.iter().copied().filter(|asked| asked.goal == number).collect();
                self.in_parts(batch, &with_goal, |answering, some| {
                    // This kind of search takes longest, so it is cancelled once the deadlines of all of its queries
                    // have passed.
                    let cancel = &answering.searcher.context.cancel;
                    cancel.set_deadline(batch.last_deadline(some.iter().map(|asked| asked.number)));
                    let answered = answering.probe_all(batch, goal, some).map(Some);
                    cancel.set_deadline(None);
                    answered
                });
            }
        }
    }

    /// Calls `find` with queries, all or some of which it answers. If memory does not hold all of them, or if an error
    /// occurs, each half is tried separately. Thus each query gets its own error.
    fn in_parts(
        &mut self,
        batch: &Batch<'_>,
        asked: &[&AskedQuery],
        find: impl Fn(&mut Self, &[&AskedQuery]) -> Result<Option<()>>,
    ) {
        let Searcher { context, buckets, .. } = *self.searcher;
        let answer_some = |range: Range<u32>| {
            let some = &asked[range.start as usize..range.end as usize];
            // Deadlines are checked before each attempt, since earlier attempts took time.
            some.iter().for_each(|asked| batch.refuse_late(asked.number));
            let open: Vec<&AskedQuery> = some.iter().copied().filter(|asked| batch.is_open(asked.number)).collect();
            if open.is_empty() {
                return Ok(Some(()));
            }
            match (find(self, &open), &open[..]) {
                (Ok(Some(())), _) => Ok(Some(())),
                (failed, [alone]) => {
                    batch.answer(
                        alone.number,
                        Err(failed.err().unwrap_or_else(|| too_many_hits(context, bytes_for_all_hits(buckets.rows())))),
                    );
                    Ok(Some(()))
                }
                _ => Ok(None),
            }
        };
        in_halves(context, bytes_for_all_hits(buckets.rows()), asked.len() as u32, answer_some, |_, ()| Ok(()))
            .expect("a lone query gets its error as an answer");
    }

    /// Removes queries from `open`: those with one of the first [`GOALS_TOGETHER`] different goals. Returns these
    /// goals, with plans, and the queries. Answers invalid queries with an error.
    fn choose(&mut self, batch: &Batch<'_>, open: &mut Vec<usize>) -> (Vec<PlannedGoal>, Vec<AskedQuery>) {
        let (mut goals, mut asked): (Vec<PlannedGoal>, Vec<AskedQuery>) = (Vec::new(), Vec::new());
        open.retain(|&number| {
            let query = &batch.queries[number];
            let goal = SearchGoal { target: query.target, effort: query.effort };
            let known = goals.iter().position(|known| known.goal == goal);
            // If there are too many goals, the query is left for the next round.
            if known.is_none() && goals.len() == GOALS_TOGETHER {
                return true;
            }
            let decided = self.checked(query).and_then(|stored| match known {
                Some(goal) => Ok(AskedQuery { number, stored, goal }),
                None => {
                    goals.push(self.decide(goal)?);
                    Ok(AskedQuery { number, stored, goal: goals.len() - 1 })
                }
            });
            match decided {
                Ok(query) => asked.push(query),
                Err(error) => batch.answer(number, Err(error)),
            }
            false
        });
        (goals, asked)
    }

    /// Checks a query. Returns its vector, converted to the type [`query_type`].
    ///
    /// # Errors
    /// If it is not a valid query of this store.
    fn checked(&self, query: &ServedQuery<'_>) -> Result<Vec<u8>> {
        let Searcher { buckets, .. } = *self.searcher;
        let (store, _) = buckets.at(0);
        let (dimensions, vector) = (buckets.vectors().dimensions, query.floats());
        if vector.len() != dimensions {
            return Err(Error::input(format!(
                "queries have {} dimensions, but the vectors of {} have {dimensions}; give queries of the same model",
                vector.len(),
                store.folder().display()
            )));
        }
        let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
        if let Some(fault) = fault_of_vector(Element::F32, buckets.metric(), &bytes) {
            return Err(Error::input(format!("the query {fault}; give another vector")));
        }
        let element = query_type(buckets).element;
        let mut stored = Vec::with_capacity(query_type(buckets).bytes());
        query_as_stored(&vector, element, &mut stored).map_err(|unfit| Error::input(unfit.message("the query")))?;
        query.target.check(buckets.metric(), store.folder())?;
        Ok(stored)
    }

    /// Plans the probes of a goal. Calibrates if the goal is new.
    fn decide(&mut self, goal: SearchGoal) -> Result<PlannedGoal> {
        let Kept { known: known_goals, samples, seed, statistics, .. } = &mut *self.kept;
        if let Some(position) = known_goals.iter().position(|known| known.goal == goal) {
            // The list is in the order of use, so the first goal is forgotten first.
            let known = known_goals.remove(position);
            known_goals.push(known);
        } else if let Some(recall) = exact_recall(goal) {
            return Ok(PlannedGoal { goal, plan: ProbePlan::everywhere(recall) });
        } else {
            // The number of later queries is unknown, and they may be distributed like any rows.
            let before = self.searcher.buckets.read_counts().bytes_read;
            let plan = ProbePlan::of(self.searcher, u64::MAX, QuerySet::AllRows, goal, *seed, Some(samples))?;
            let learning_bytes = self.searcher.buckets.read_counts().bytes_read - before;
            self.learning_bytes += learning_bytes;
            lock(statistics).learning_bytes += learning_bytes;
            if known_goals.len() == GOALS_KNOWN {
                known_goals.remove(0);
            }
            known_goals.push(PlannedGoal { goal, plan });
        }
        Ok(known_goals.last().expect("the goal was just pushed").clone())
    }

    /// Answers queries with a goal for which no probe rule exists, by a search with exact bounds.
    fn probe_all(&self, batch: &Batch<'_>, planned: &PlannedGoal, asked: &[&AskedQuery]) -> Result<()> {
        let target = planned.goal.target;
        let Searcher { buckets, context, .. } = *self.searcher;
        let _memory = context.reserve(self.bytes_of(target).saturating_mul(asked.len() as u64), PURPOSE)?;
        let queries = self.queries(asked);
        let before = buckets.read_counts().bytes_read;
        self.searcher.search(&queries, target, Probes::Bound, |range, found| {
            let places: Vec<(u32, u32)> = match self.ids {
                IdKind::None => Vec::new(),
                _ => found.iter().flatten().map(|hit| hit.place).collect(),
            };
            let all_ids = ids_of(context, buckets, self.ids, &places)?;
            let read_bytes = (buckets.read_counts().bytes_read - before) / found.len().max(1) as u64;
            let mut named = 0;
            for (asked, hits) in asked[range.start as usize..range.end as usize].iter().zip(&found) {
                let mut ids = Ids::empty(self.ids);
                (named..named + hits.len()).for_each(|hit| ids.push_from(&all_ids, hit));
                named += hits.len();
                let answer = ServedHits {
                    probes: buckets.count().into(),
                    looked_at: buckets.rows(),
                    read_bytes,
                    together: found.len() as u32,
                    recall: planned.plan.recall.clone(),
                    ..ServedHits::new(buckets.metric(), hits, ids)
                };
                batch.answer(asked.number, Ok(answer));
            }
            Ok(())
        })
    }

    /// Answers queries by their probe rules. Returns `None` if there are several queries and memory does not hold their
    /// hits.
    fn find(&mut self, batch: &Batch<'_>, goals: &[PlannedGoal], asked: &[&AskedQuery]) -> Result<Option<()>> {
        let Searcher { buckets, .. } = *self.searcher;
        let bytes = asked.iter().map(|asked| self.bytes_of(goals[asked.goal].goal.target)).sum();
        let Some(_memory) = self.reserve(bytes, asked.len())? else { return Ok(None) };
        let together = self.together(asked);
        let (groups, lists, places) = self.groups(&together, goals, asked.len())?;
        let Some(_of_lists) = self.reserve(self.plan_bytes(&lists, groups.len()), asked.len())? else {
            return Ok(None);
        };
        if self.kept.is_interrupted {
            self.kept.forget(buckets);
        }
        self.kept.is_interrupted = true;
        let plan = self.plan(&lists);
        let read_bytes = plan.steps.iter().filter_map(|step| step.loaded());
        let read_bytes: u64 = read_bytes.map(|bucket| buckets.extent(bucket).bytes(self.ids != IdKind::None)).sum();
        let (names, together) = (Names::new(self.ids, asked.len()), asked.len() as u32);
        let done = |number: usize| {
            let ((group, own), asked) = (places[number], asked[number]);
            let looking = &groups[group].looking;
            // If memory was full, hits were dropped. The query is then answered again, together with fewer other
            // queries.
            if !looking.is_full() {
                let hits = looking.take_found(own);
                let held: Vec<(u32, u32)> = hits.iter().map(|hit| hit.place).collect();
                let list = &lists[number];
                let answer = ServedHits {
                    probes: list.len() as u64,
                    looked_at: list.iter().map(|&bucket| u64::from(buckets.extent(bucket).rows)).sum(),
                    read_bytes: read_bytes / u64::from(together),
                    together,
                    recall: goals[asked.goal].plan.recall.clone(),
                    ..ServedHits::new(buckets.metric(), &hits, names.take(number, &held))
                };
                batch.answer(asked.number, Ok(answer));
            }
        };
        let left: Vec<AtomicU32> = lists.iter().map(|list| AtomicU32::new(list.len() as u32)).collect();
        let pass = Pass {
            searcher: self.searcher,
            plan: &plan,
            is_by_query: plan.is_by_query(),
            groups: &groups,
            places: &places,
            ids: self.ids,
            names: &names,
            left: &left,
            done: &done,
        };
        pass.run(&mut self.kept.cache)?;
        self.kept.is_interrupted = false;
        Ok(groups.iter().all(|group| !group.looking.is_full()).then_some(()))
    }

    /// Chooses the probes of `queries` queries, which are grouped by goal in `together`.
    fn groups<'t>(&self, together: &'t [Together<T>], goals: &[PlannedGoal], queries: usize) -> Result<Grouped<'t, T>>
    where
        'a: 't,
    {
        let (mut lists, mut places) = (vec![Vec::new(); queries], vec![(0, 0); queries]);
        let mut groups = Vec::with_capacity(together.len());
        for (group, of) in together.iter().enumerate() {
            let PlannedGoal { goal, plan } = &goals[of.goal];
            let looking = ProbePass::new(self.searcher, &of.queries, 0..of.queries.len(), goal.target);
            let own = looking.lists(plan.probes)?;
            let visits = Visits::of_lists(&own, 0, self.searcher.buckets.count());
            for ((list, &number), query) in own.into_iter().zip(&of.numbers).zip(0..) {
                (lists[number], places[number]) = (list, (group, query));
            }
            groups.push(Group { looking, visits, numbers: of.numbers.clone() });
        }
        Ok((groups, lists, places))
    }

    /// Plans the reads of a batch, and adds the counts of the plan to the statistics.
    fn plan(&mut self, lists: &[Vec<u32>]) -> BatchPlan {
        let watch = Stopwatch::start();
        let seconds = self.kept.since_begin.seconds();
        let plan = (self.kept.planner)(lists, seconds);
        let mut statistics = lock(&self.kept.statistics);
        statistics.counts += plan.counts;
        statistics.plan_seconds += watch.seconds();
        plan
    }

    /// Returns the bytes of the lists of buckets, of their plan, and of the comparisons of all workers with `groups`
    /// groups.
    fn plan_bytes(&self, lists: &[Vec<u32>], groups: usize) -> u64 {
        let uses: u64 = lists.iter().map(|list| list.len() as u64).sum();
        3 * uses * size_of::<u32>() as u64 + BatchPlan::memory_bytes(uses) + self.comparing_bytes(groups)
    }

    /// Returns the bytes of the comparisons of all workers with `groups` groups. The first group is not counted, since
    /// its bytes are reserved already.
    fn comparing_bytes(&self, groups: usize) -> u64 {
        let Searcher { context, buckets, .. } = *self.searcher;
        let of = NearestSearch::<T>::memory_bytes(buckets.rows_max(), buckets.space().dimensions());
        (groups.saturating_sub(1) * context.threads.max(1)) as u64 * of
    }

    /// Reserves memory for queries. If memory does not suffice, returns `None` for several queries, but an error for a
    /// single query.
    fn reserve(&self, bytes: u64, queries: usize) -> Result<Option<Reservation>> {
        match self.searcher.context.reserve(bytes, PURPOSE) {
            Ok(memory) => Ok(Some(memory)),
            Err(_) if queries > 1 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the bytes of a query, its hits and their ids.
    fn bytes_of(&self, target: QueryTarget) -> u64 {
        let Searcher { buckets, .. } = *self.searcher;
        let hits = match target {
            QueryTarget::Nearest(k) => k.min(buckets.rows()),
            // Hits within a threshold are counted when they are found.
            QueryTarget::Within(_) => 0,
        };
        let names = Names::memory_bytes(buckets, hits);
        Searcher::<T>::bytes_of_query(buckets, query_type(buckets), target).saturating_add(names)
    }

    /// Groups queries by goal.
    fn together(&self, asked: &[&AskedQuery]) -> Vec<Together<T>> {
        let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
        for (number, one) in asked.iter().enumerate() {
            match groups.iter_mut().find(|(goal, _)| *goal == one.goal) {
                Some((_, numbers)) => numbers.push(number),
                None => groups.push((one.goal, vec![number])),
            }
        }
        let of = |(goal, numbers): (usize, Vec<usize>)| {
            let own: Vec<&AskedQuery> = numbers.iter().map(|&number| asked[number]).collect();
            Together { goal, queries: self.queries(&own), numbers }
        };
        groups.into_iter().map(of).collect()
    }

    /// Converts queries to the coordinates of the store.
    fn queries(&self, asked: &[&AskedQuery]) -> Queries<T> {
        let stored: Vec<&[u8]> = asked.iter().map(|query| &query.stored[..]).collect();
        Queries::new(self.searcher, query_type(self.searcher.buckets), &stored.concat(), None)
    }
}

/// Returns the recall of a goal if an exact search should reach it. This is the case if a query may have many hits. A
/// probe rule saves little then, and a calibration would have to find as many hits for each sampled vector while all
/// queries wait.
fn exact_recall(SearchGoal { target, effort }: SearchGoal) -> Option<f64> {
    let is_large = match target {
        QueryTarget::Nearest(k) => k > CALIBRATED_K_MAX,
        QueryTarget::Within(_) => true,
    };
    effort.recall().filter(|_| is_large)
}

/// Returns the bytes of each bucket in memory.
fn bucket_bytes<'b, T: Coordinate>(buckets: &'b Buckets<'_>) -> impl Iterator<Item = u64> + 'b {
    (0..buckets.count()).map(move |number| held_bytes::<T>(buckets, number))
}

/// Returns an upper bound on the bytes of evicted buckets that workers still use.
fn worked_on<T: Coordinate>(buckets: &Buckets<'_>, threads: usize) -> u64 {
    bucket_bytes::<T>(buckets).max().unwrap_or(0) * streamed_items(threads) as u64
}

/// Returns the capacity of the cache in bytes. This is the option or, if it is not given, `unsaid`. It is at least the
/// largest bucket and at most all buckets.
fn capacity<T: Coordinate>(options: &CacheOptions, buckets: &Buckets<'_>, unsaid: u64) -> u64 {
    let largest = bucket_bytes::<T>(buckets).max().unwrap_or(0);
    options.cache_bytes.unwrap_or(unsaid).clamp(largest, bucket_bytes::<T>(buckets).sum::<u64>().max(largest))
}

/// Returns the bytes of the tables that have an entry per bucket, and the additional bytes for reading ids with the
/// vectors.
fn tables_bytes<T: Coordinate>(buckets: &Buckets<'_>) -> u64 {
    let count = buckets.count() as usize;
    // Ids are stored after the vectors. Other searches do not read them, so their bytes are not part of other bounds.
    let of_ids = least_read_ahead(buckets.extents(), true) - least_read_ahead(buckets.extents(), false);
    Residency::memory_bytes(count) + Cache::<T>::table_bytes(count) + of_ids
}

/// Returns the memory and the cost of a read of each bucket, as plans use them.
fn costs<T: Coordinate>(buckets: &Buckets<'_>) -> BucketCosts {
    let reads = buckets.extents().iter().map(|extent| READ_COST_BYTES + extent.bytes(true) as f64).collect();
    BucketCosts { sizes: bucket_bytes::<T>(buckets).collect(), reads }
}

/// Returns the type to which queries are converted: f32 if the coordinates are floats, otherwise the type of the store.
fn query_type(buckets: &Buckets<'_>) -> VectorType {
    let space = buckets.space();
    if space.is_of_floats() { VectorType { element: Element::F32, ..space.vectors } } else { space.vectors }
}
