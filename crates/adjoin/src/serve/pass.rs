//! Executes the plan of a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::names::Names;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::workers::map_stream;
use crate::buckets::{ProbePass, Searcher, Visits};
use crate::execute::NearestSearch;
use crate::load::{Buckets, Cache, CachedBucket, LoadedBucket, ReadAhead, StoredBucket};
use crate::plan::Load;
use crate::plan::batch::{BatchPlan, BatchStep};
use crate::source::IdKind;

/// Queries of a batch with one target and effort.
pub(super) struct Group<'a, T: Coordinate> {
    pub(super) looking: ProbePass<'a, T>,
    pub(super) visits: Visits,
    /// Number of each query in the batch.
    pub(super) numbers: Vec<usize>,
}

/// A plan, and everything that is needed to execute it.
pub(super) struct Pass<'a, T: Coordinate> {
    pub(super) searcher: &'a Searcher<'a, T>,
    pub(super) plan: &'a BatchPlan,
    /// Whether queries are answered one after the other. If so, several threads load the buckets of a query, and one
    /// thread compares them.
    pub(super) is_by_query: bool,
    pub(super) groups: &'a [Group<'a, T>],
    /// Group of each query of the batch, and its number in the group.
    pub(super) places: &'a [(usize, u32)],
    pub(super) ids: IdKind,
    pub(super) names: &'a Names,
    /// Number of buckets with which each query was not yet compared.
    pub(super) left: &'a [AtomicU32],
    /// Called with the number of a query once it was compared with all of its buckets.
    pub(super) done: &'a (dyn Fn(usize) + Sync),
}

/// Unit of work of a worker.
enum Job<T: Coordinate> {
    Load(Arc<CachedBucket<T>>),
    Compare { number: u32, bucket: Arc<CachedBucket<T>>, query: Option<u32> },
}

/// State of a worker.
struct Comparer<'a, T: Coordinate> {
    /// One comparison per group.
    comparisons: Vec<NearestSearch<'a, T>>,
    /// Scratch space for the queries of a group that probe a bucket.
    queries: Vec<u32>,
}

impl<T: Coordinate> Pass<'_, T> {
    /// Executes the plan. The cache must be in the state that the plan assumes.
    ///
    /// # Errors
    /// If the device fails, if a bucket is damaged, or if the run is cancelled. The cache must not be used after an
    /// error.
    pub(super) fn run(&self, cache: &mut Cache<T>) -> Result<()> {
        let Self { searcher, plan, is_by_query, .. } = *self;
        let Searcher { context, buckets, ref loaded, .. } = *searcher;
        let loads = plan.steps.iter().filter_map(|step| match *step {
            BatchStep::Load { bucket, turn } => Some(Load { bucket, step: turn.into() }),
            BatchStep::Evict(_) | BatchStep::Compare { .. } => None,
        });
        let mut ahead = ReadAhead::new(
            context,
            "serve",
            buckets,
            self.ids != IdKind::None,
            loaded.read_ahead,
            loads,
            &context.cancel,
        )?;
        let mut steps = plan.steps.iter().peekable();
        let state = &|| Comparer {
            comparisons: self.groups.iter().map(|group| group.looking.comparison()).collect(),
            queries: Vec::new(),
        };
        if !is_by_query {
            ahead.begin()?;
            let next = || self.next_job(&mut steps, &mut ahead, cache);
            map_stream(context.threads, next, state, |state, job| self.work(state, job))?;
            return Ok(());
        }
        let mut own = state();
        while let Some(step) = steps.peek() {
            // Several threads load the buckets up to the next comparison. Comparisons run on this thread.
            if !matches!(step, BatchStep::Compare { .. }) {
                let next = || match steps.peek() {
                    Some(BatchStep::Compare { .. }) => Ok(None),
                    _ => self.next_job(&mut steps, &mut ahead, cache),
                };
                map_stream(context.threads, next, state, |state, job| self.work(state, job))?;
            } else if let Some(job) = self.next_job(&mut steps, &mut ahead, cache)? {
                self.work(&mut own, job)?;
            }
        }
        Ok(())
    }

    /// Executes evictions up to the next step that is work for a worker, and returns this work.
    fn next_job<'s>(
        &self,
        steps: &mut impl Iterator<Item = &'s BatchStep>,
        ahead: &mut ReadAhead<'_>,
        cache: &mut Cache<T>,
    ) -> Result<Option<Job<T>>> {
        self.searcher.context.cancel.check()?;
        for step in steps {
            match *step {
                BatchStep::Evict(bucket) => cache.evict(bucket),
                BatchStep::Load { bucket, turn } => {
                    if self.is_by_query {
                        ahead.hold_after(turn.into());
                    }
                    // Waits for memory, since workers may still use evicted buckets.
                    let cancel = &self.searcher.context.cancel;
                    let memory = cache.reserve_when_free(held_bytes::<T>(self.searcher.buckets, bucket), cancel)?;
                    let stored = ahead.next_bucket()?.expect("reader and plan follow one list of steps");
                    assert_eq!(stored.number(), bucket, "reader and plan follow one list of steps");
                    return Ok(Some(Job::Load(cache.insert(stored, memory))));
                }
                BatchStep::Compare { bucket, query } => {
                    return Ok(Some(Job::Compare { number: bucket, bucket: cache.get(bucket), query }));
                }
            }
        }
        Ok(None)
    }

    fn work(&self, Comparer { comparisons, queries }: &mut Comparer<'_, T>, job: Job<T>) -> Result<()> {
        let (number, bucket, query) = match job {
            Job::Load(bucket) => return bucket.load_ahead(|stored| self.load(stored)),
            Job::Compare { number, bucket, query } => (number, bucket, query),
        };
        // If loading failed, the worker that tried to load the bucket reports the error.
        let Some(loaded) = bucket.loaded(|stored| self.load(stored))? else { return Ok(()) };
        if let Some(query) = query {
            let (group, own) = self.places[query as usize];
            self.compare(&mut comparisons[group], group, number, loaded, &[own]);
            return Ok(());
        }
        for (group, comparison) in comparisons.iter_mut().enumerate() {
            let queries = self.groups[group].visits.of(number, queries);
            if !queries.is_empty() {
                self.compare(comparison, group, number, loaded, queries);
            }
        }
        Ok(())
    }

    /// Compares queries of a group with a bucket, and notes the ids of their hits. Calls `done` with each query that
    /// was compared with all of its buckets.
    fn compare(
        &self,
        comparison: &mut NearestSearch<'_, T>,
        group: usize,
        number: u32,
        bucket: &LoadedBucket<T>,
        queries: &[u32],
    ) {
        let Group { looking, numbers, .. } = &self.groups[group];
        looking.compare(comparison, number, bucket, queries);
        for &own in queries {
            let query = numbers[own as usize];
            if self.ids != IdKind::None {
                let held = looking.places(own).into_iter().filter(|place| place.0 == number);
                let members: Vec<u32> = held.map(|(_, member)| member).collect();
                self.names.note(query, number, &members, bucket.ids(), || looking.places(own));
            }
            // Acquire and release ensure that the last comparison of a query sees the hits of all other comparisons.
            if self.left[query].fetch_sub(1, Ordering::AcqRel) == 1 {
                (self.done)(query);
            }
        }
    }

    fn load(&self, stored: StoredBucket) -> Result<LoadedBucket<T>> {
        let Searcher { context, buckets, ref loaded, .. } = *self.searcher;
        LoadedBucket::load(buckets, context.kernel, &loaded.panel, stored)
    }
}

/// Returns the bytes of a bucket in memory.
pub(super) fn held_bytes<T: Coordinate>(buckets: &Buckets<'_>, bucket: u32) -> u64 {
    LoadedBucket::<T>::memory_bytes(buckets, bucket, buckets.ids(0) != IdKind::None)
}
