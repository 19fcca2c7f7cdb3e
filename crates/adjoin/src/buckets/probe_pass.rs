//! Probes buckets for many queries at once. The buckets are selected by a rule, in one pass, or by a bound, which
//! misses nothing.
//!
//! The bound needs an upper limit on the distance to the k-th nearest row, so queries probe their nearest buckets
//! first. But if there are many queries, these first probes may already read the whole store, and in many dimensions
//! the bound excludes hardly any bucket. Therefore a few queries, the *scouts*, are tried first: all queries probe the
//! nearest buckets of the scouts. The fraction of buckets that the bound excludes for the scouts decides whether it is
//! used for the other queries.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::PURPOSE;
use super::probing::Measured;
use super::searcher::{Counts, Queries, Searcher};
use super::visits::{Marks, Visits};
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Threshold};
use crate::base::workers::map_items;
use crate::execute::{AllNearest, Hit, NearestSearch, NumberedQueries};
use crate::load::LoadedBucket;
use crate::plan::Probes;
use crate::query::{QueryTarget, bytes_for_all_hits, in_halves};

/// Maximum number of scouts.
const SCOUTS: usize = 16;
/// Queries that are near each other are compared in groups. This is the size of a group, as a multiple of K.
const NEIGHBORS_OF_EACH: u64 = 4;
/// Number of nearest buckets that a query probes before it uses the bound.
const NEAR: u32 = 2;
/// Fraction of buckets that the bound must exclude for the scouts to be used for the other queries. If it is used,
/// each query first probes its nearest buckets. Some buckets are then read twice, which costs less than comparing
/// queries with half of all vectors.
const SHARE_MIN: f64 = 0.5;

impl<T: Coordinate> Searcher<'_, T> {
    /// Finds the hits of queries, and passes them to `take` in order, for some queries at a time. If memory is too
    /// small for the probes or hits of a range, fewer queries are searched at once. The hits do not depend on this.
    ///
    /// # Errors
    /// If the store cannot be read, if memory is too small for the hits of one query, or if `take` fails.
    pub(crate) fn search(
        &self,
        queries: &Queries<T>,
        target: QueryTarget,
        probes: Probes,
        take: impl FnMut(Range<u32>, Vec<Vec<Hit>>) -> Result<()>,
    ) -> Result<()> {
        in_halves(
            self.context,
            bytes_for_all_hits(self.all_rows()),
            queries.members.len() as u32,
            |range| self.search_some(queries, range, target, probes),
            take,
        )
    }

    /// Finds the hits of a range of queries. Returns `None` if they do not fit into memory.
    pub(super) fn search_some(
        &self,
        queries: &Queries<T>,
        range: Range<u32>,
        target: QueryTarget,
        probes: Probes,
    ) -> Result<Option<Vec<Vec<Hit>>>> {
        let looking = ProbePass::new(self, queries, range, target);
        let fits = match probes {
            Probes::Bound => looking.by_bound()?,
            _ => looking.by_rule(probes)?,
        };
        if !fits || looking.is_full() {
            return Ok(None);
        }
        let (found, counts) = looking.into_found()?;
        // The work is counted only if the hits fit. Otherwise the search is repeated in halves, and would be counted
        // twice.
        self.counts.add(&counts);
        Ok(Some(found))
    }
}

/// A pass over buckets for some queries of a batch, and the hits of these queries so far.
pub(crate) struct ProbePass<'a, T: Coordinate> {
    searcher: &'a Searcher<'a, T>,
    queries: &'a Queries<T>,
    range: Range<u32>,
    target: QueryTarget,
    nearest: AllNearest,
    /// Number of hits of queries without a limit on hits. `full` is set if memory is full.
    held: AtomicU64,
    full: AtomicBool,
    counts: Counts,
}

impl<'a, T: Coordinate> ProbePass<'a, T> {
    /// Creates a pass without hits.
    pub(crate) fn new(
        searcher: &'a Searcher<'a, T>,
        queries: &'a Queries<T>,
        range: Range<u32>,
        target: QueryTarget,
    ) -> Self {
        let none = |query: u32| {
            let own = queries.places.as_ref().map(|places| places[query as usize]);
            searcher.none_found(target, own)
        };
        let nearest = AllNearest::new(range.clone().map(none));
        let (held, full, counts) = Default::default();
        Self { searcher, queries, range, target, nearest, held, full, counts }
    }

    /// Returns whether hits were dropped because memory was full.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Returns the hits of each query, nearest first, and the work done.
    ///
    /// # Errors
    /// If the run is cancelled.
    pub(super) fn into_found(self) -> Result<(Vec<Vec<Hit>>, Counts)> {
        Ok((self.nearest.into_sorted(self.searcher.context)?, self.counts))
    }

    /// Compares queries that are near each other in the store with each other, if the queries are its rows. This gives
    /// a bound on the distance to the k-th nearest row. Uses only rows of buckets that the query will probe; `looks`
    /// returns whether a query probes a bucket.
    fn at_each_other(&self, looks: impl Fn(u32, u32) -> bool + Sync) -> Result<()> {
        let (QueryTarget::Nearest(k), Searcher { context, buckets, subset, .. }) = (self.target, self.searcher) else {
            return Ok(());
        };
        let subset = *subset;
        let least = k.saturating_mul(NEIGHBORS_OF_EACH).min(buckets.rows()) as usize;
        let groups = self.queries.groups(self.range.clone(), least, buckets.rows_max());
        let places = self.queries.places.as_deref().unwrap_or_default();
        let counts = |query: u32| {
            let (bucket, member) = places[query as usize];
            subset.is_none_or(|subset| subset.contains(bucket, member))
        };
        let (state, cancel) = (|| self.comparison(), &context.cancel);
        let compared = map_items(context.threads, groups.len(), cancel, state, |search, number| {
            Ok(search.bound(&groups[number], &looks, &counts))
        })?;
        self.counts.add_compared(compared.iter().sum(), 0);
        Ok(())
    }

    /// Creates the state of a worker that compares queries.
    pub(crate) fn comparison(&self) -> NearestSearch<'_, T> {
        let Searcher { context, buckets, .. } = self.searcher;
        let queries = NumberedQueries { members: &self.queries.members, first: self.range.start };
        NearestSearch::new(context.kernel, buckets.space(), queries, &self.nearest)
    }

    /// Probes the buckets that a rule admits. Returns `false` if there are several queries and memory is too small for
    /// their probes.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn by_rule(&self, probes: Probes) -> Result<bool> {
        let (range, least_rows) = (self.range.clone(), self.least_rows());
        let visits = self.searcher.visits(self.queries, range, probes, least_rows, &self.counts)?;
        let Some((visits, _memory)) = visits else { return Ok(false) };
        self.at_each_other(|bucket, query| visits.holds(bucket, query))?;
        self.look(&visits)?;
        Ok(true)
    }

    /// Probes every bucket that may hold a hit. Returns `false` if there are several queries and memory is too small
    /// for their probes.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn by_bound(&self) -> Result<bool> {
        let Searcher { context, buckets, .. } = self.searcher;
        let _of_buckets = context.reserve(2 * u64::from(buckets.count()), PURPOSE)?;
        self.at_each_other(|_, _| true)?;
        let mut looked = vec![false; buckets.count() as usize];
        let scouts: Vec<u32> = self.range.clone().step_by(self.range.len().div_ceil(SCOUTS)).collect();
        let go_ahead = matches!(self.target, QueryTarget::Nearest(_));
        if go_ahead {
            looked = self.near_to(&scouts)?;
            self.look(&Visits::All(self.range.clone().collect(), looked.clone()))?;
        }
        let are_others = go_ahead && scouts.len() < self.range.len();
        // The radius of a bucket is a bound only if coordinates are not rounded.
        if buckets.coding().is_some() || (are_others && !self.is_worth_it(&scouts)?) {
            // All queries probe all other buckets, so each bucket is read once in total.
            looked.iter_mut().for_each(|looked| *looked = !*looked);
            self.look(&Visits::All(self.range.clone().collect(), looked))?;
            return Ok(true);
        }
        let bytes = Marks::bytes(buckets.count(), &self.range);
        // With fewer queries, the marks take less memory.
        if self.range.len() > 1 && bytes > context.budget().free() {
            return Ok(false);
        }
        let _of_marks = context.reserve(bytes, PURPOSE)?;
        let mut marks = Marks::none(buckets.count(), &self.range);
        if are_others {
            self.each_near(self.range.clone(), |query, bucket| {
                if !looked[bucket as usize] {
                    marks.set(bucket, query);
                }
            })?;
            marks = self.look_at(marks)?;
        }
        self.reached(self.range.clone(), |query, bucket, reached| {
            let is_needed = reached && !looked[bucket as usize];
            // A mark of a bucket that the query has already probed is removed, so that it is not probed again.
            if is_needed || marks.is_set(bucket, query) {
                marks.turn(bucket, query);
            }
        })?;
        self.look_at(marks)?;
        Ok(true)
    }

    /// Probes the marked buckets and returns the marks.
    fn look_at(&self, marks: Marks) -> Result<Marks> {
        let visits = Visits::Marked(marks);
        self.look(&visits)?;
        match visits {
            Visits::Marked(marks) => Ok(marks),
            _ => unreachable!("the visits were built from marks"),
        }
    }

    /// Reads the probed buckets in one pass, and compares each with the queries that probe it.
    fn look(&self, visits: &Visits) -> Result<()> {
        self.searcher.look(
            visits,
            || self.comparison(),
            |search, number, bucket, queries| {
                self.compare(search, number, bucket, queries);
                Ok(())
            },
        )?;
        Ok(())
    }

    /// Compares queries with a bucket, unless memory is already full.
    pub(crate) fn compare(
        &self,
        search: &mut NearestSearch<'_, T>,
        number: u32,
        bucket: &LoadedBucket<T>,
        queries: &[u32],
    ) {
        if self.is_full() {
            return;
        }
        let subset = self.searcher.subset;
        let counts = |place: u32| subset.is_none_or(|subset| subset.contains(number, place));
        let (compared, more) = search.compare(number, bucket, &counts, queries);
        // If the target is K, the list of each query is bounded. Otherwise, the number of hits is bounded by the free
        // memory.
        if self.held.fetch_add(more, Ordering::Relaxed) + more > self.target.room(self.searcher.context) {
            self.full.store(true, Ordering::Relaxed);
        }
        self.counts.add_compared(compared, queries.len() as u64);
    }

    /// Removes and returns the hits of a query, nearest first. Called once the query has probed all of its buckets.
    pub(crate) fn take_found(&self, query: u32) -> Vec<Hit> {
        self.nearest.take_sorted(query - self.range.start)
    }

    /// Returns the places of a query's hits so far, in any order.
    pub(crate) fn places(&self, query: u32) -> Vec<(u32, u32)> {
        self.nearest.places(query - self.range.start)
    }

    /// Returns the buckets that each query probes according to a rule.
    ///
    /// # Errors
    /// If the run is cancelled.
    pub(crate) fn lists(&self, probes: Probes) -> Result<Vec<Vec<u32>>> {
        self.measure(self.range.clone(), |_, measured| {
            measured.probed::<T>(probes, self.least_rows(), |bucket| self.searcher.rows(bucket)).collect()
        })
    }

    /// Returns for each bucket whether at least one of the queries probes it before the bound is used.
    fn near_to(&self, queries: &[u32]) -> Result<Vec<bool>> {
        let near: Vec<AtomicBool> = (0..self.searcher.buckets.count()).map(|_| AtomicBool::new(false)).collect();
        self.each_near(queries.iter().copied(), |_, bucket| near[bucket as usize].store(true, Ordering::Relaxed))?;
        Ok(near.into_iter().map(AtomicBool::into_inner).collect())
    }

    /// Calls `take` with each query and each bucket that the query probes before the bound is used.
    fn each_near(&self, queries: impl Iterator<Item = u32>, take: impl Fn(u32, u32) + Sync) -> Result<()> {
        let (least_rows, rows) = (self.least_rows(), |bucket| self.searcher.rows(bucket));
        self.measure(queries, |query, measured| {
            measured.probed::<T>(Probes::Nearest(NEAR), least_rows, rows).for_each(|bucket| take(query, bucket));
        })?;
        Ok(())
    }

    /// Returns whether the bound excludes enough of the scouts' buckets.
    fn is_worth_it(&self, scouts: &[u32]) -> Result<bool> {
        let left_out = AtomicU64::new(0);
        self.reached(scouts.iter().copied(), |_, _, reached| {
            left_out.fetch_add(u64::from(!reached), Ordering::Relaxed);
        })?;
        let all = scouts.len() as u64 * u64::from(self.searcher.buckets.count());
        Ok(left_out.into_inner() as f64 >= SHARE_MIN * all as f64)
    }

    /// Calls `take` for each query and each bucket. The third argument is whether the bucket may hold a hit that the
    /// query does not have yet.
    fn reached(&self, queries: impl Iterator<Item = u32>, take: impl Fn(u32, u32, bool) + Sync) -> Result<()> {
        let buckets = self.searcher.buckets;
        assert!(buckets.coding().is_none(), "the radius of a bucket is a bound for coordinates that are not rounded");
        self.measure(queries, |query, measured| {
            let most = self.nearest.most(query - self.range.start);
            let members = &self.queries.members;
            // A query that has fewer than K hits has no bound, so no bucket is excluded.
            let threshold = (most < f64::INFINITY).then(|| members.threshold(query, most, buckets.space()));
            for bucket in 0..buckets.count() {
                let reached = |threshold: &Threshold| {
                    threshold.reaches(measured.squared::<T>(bucket), buckets.extent(bucket).radius.into())
                };
                take(query, bucket, threshold.as_ref().is_none_or(reached));
            }
        })?;
        Ok(())
    }

    fn measure<R: Send>(
        &self,
        queries: impl Iterator<Item = u32>,
        work: impl Fn(u32, &mut Measured<'_>) -> R + Sync,
    ) -> Result<Vec<R>> {
        self.searcher.measure(self.queries, queries, &self.counts, work)
    }

    /// Returns the minimum number of rows with which a query is compared: K, and one for the query itself.
    fn least_rows(&self) -> u64 {
        match self.target {
            QueryTarget::Nearest(k) => k.saturating_add(1).min(self.searcher.all_rows()),
            QueryTarget::Within(_) => 0,
        }
    }
}
