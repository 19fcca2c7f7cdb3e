//! Searches a store, and keeps buckets in memory from one batch of queries to the next.

use std::sync::{Arc, Mutex};

use super::PURPOSE;
use super::answering::{Answering, Kept};
use super::batch::Batch;
use super::options::{
    CacheOptions, CacheStatistics, NewPlanner, ServedHits, ServedQuery, SharedStatistics, usual_planner,
};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, with_coordinates};
use crate::base::mutex::lock;
use crate::buckets::Searcher;
use crate::load::Buckets;
use crate::store::Store;

/// Answers batches of queries of a store, one batch at a time.
pub struct CachedSearch {
    /// Separate from the search, so that statistics are available during a batch.
    statistics: SharedStatistics,
    search: Mutex<Box<dyn AnswerBatch>>,
}

/// Answers batches. Hides the type of the coordinates.
trait AnswerBatch: Send {
    fn answer(&mut self, batch: &Batch<'_>);
}

/// An open store, and everything that is kept for the next batch.
struct OpenSearch<T: Coordinate> {
    context: Context,
    store: Arc<Store>,
    kept: Kept<T>,
}

impl CachedSearch {
    /// Opens a store for searches. The search uses all of the free memory in the budget of the context, half of it for
    /// buckets, so the context should have a budget of its own. `seed` is the seed of the calibration sample.
    ///
    /// # Errors
    /// If the budget is too small, or if the store cannot be read.
    pub fn open(context: &Context, store: Arc<Store>, seed: u64) -> Result<Self> {
        Self::open_planned(context, store, &CacheOptions { cache_bytes: None, seed }, usual_planner())
    }

    /// Opens a store for searches whose batches are planned by `new_planner`, for example in the laboratory.
    ///
    /// # Errors
    /// The errors of [`CachedSearch::open`].
    #[doc(hidden)]
    pub fn open_planned(
        context: &Context,
        store: Arc<Store>,
        options: &CacheOptions,
        new_planner: NewPlanner,
    ) -> Result<Self> {
        let statistics = SharedStatistics::default();
        let shared = statistics.clone();
        let search = with_coordinates!(Buckets::of(&store).space(), T => {
            Box::new(OpenSearch::<T>::new(context, store, options, new_planner, shared)?) as Box<dyn AnswerBatch>
        });
        Ok(Self { statistics, search: Mutex::new(search) })
    }

    /// Answers a batch of queries. Calls `deliver` with the number and the hits of each query as soon as they are
    /// known, on any thread. Returns after the last query. If another thread is answering a batch, waits for it first.
    pub fn answer(&self, queries: &[ServedQuery<'_>], deliver: &mut (dyn FnMut(usize, Result<ServedHits>) + Send)) {
        lock(&self.search).answer(&Batch::new(queries, deliver));
    }

    /// Returns the statistics so far.
    pub fn statistics(&self) -> CacheStatistics {
        *lock(&self.statistics)
    }
}

impl<T: Coordinate> OpenSearch<T> {
    fn new(
        context: &Context,
        store: Arc<Store>,
        options: &CacheOptions,
        new_planner: NewPlanner,
        statistics: SharedStatistics,
    ) -> Result<Self> {
        let buckets = &Buckets::of(&store);
        let least = Kept::<T>::least_bytes(buckets, context.threads, options);
        let context = context.for_run(least, PURPOSE)?;
        let spare = context.budget().free() - least;
        let kept = Kept::new(&Searcher::new(&context, buckets, spare)?, options, new_planner, statistics)?;
        Ok(Self { context, kept, store })
    }
}

impl<T: Coordinate> AnswerBatch for OpenSearch<T> {
    fn answer(&mut self, batch: &Batch<'_>) {
        let buckets = Buckets::of(&self.store);
        let mut context = self.context.clone();
        // Queries have deadlines of their own, so the deadline of the context is removed. It may also be a deadline
        // that an earlier batch left after a panic.
        context.cancel = context.cancel.with_deadline(None);
        let searcher = Searcher::with_centers(&context, &buckets, self.kept.centers());
        Answering::new(&searcher, &mut self.kept).answer(batch);
    }
}
