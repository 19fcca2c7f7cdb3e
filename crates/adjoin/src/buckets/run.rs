//! Runs a search of a store: probes buckets, batch by batch.

use std::ops::Range;

use super::decide::ProbePlan;
use super::queries::QuerySet;
use super::searcher::{Counted, Queries, Searcher};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::options::Metric;
use crate::base::report::{CommonStatistics, SearchCounts, SearchStatistics, Stopwatch, StrategyStatistics};
use crate::execute::Hit;
use crate::load::Subset;
use crate::plan::Probes;
use crate::query::{
    BatchSearch, HitLookup, IdRoom, NamedHits, QueryTarget, SearchOptions, SearchRun, SearchWork, StoredQueries,
    name_places,
};
use crate::sink::HitSink;
use crate::source::IdKind;
use crate::store::{ColumnGathering, GatheredColumns, ResultColumns, Store};

/// A search of a store that is ready to run.
pub(super) struct StoreSearch<'a, T: Coordinate> {
    pub(super) searcher: &'a Searcher<'a, T>,
    pub(super) store: &'a Store,
    pub(super) queries: QuerySet<'a>,
    pub(super) calibration_queries: QuerySet<'a>,
    pub(super) options: &'a SearchOptions,
    /// Columns that hits carry, if any.
    pub(super) carried: Option<CarriedColumns<'a>>,
    /// Memory in bytes of a query while its batch is answered.
    pub(super) query_bytes: u64,
}

/// Columns that hits carry, and how to find their rows.
#[derive(Clone, Copy)]
pub(super) struct CarriedColumns<'a> {
    pub(super) columns: &'a ResultColumns<'a>,
    /// Position in bucket order of the first row of each bucket.
    pub(super) starts: &'a [u32],
}

/// Search that answers batches of queries by probing buckets.
struct Probing<'a, T: Coordinate> {
    searcher: &'a Searcher<'a, T>,
    target: QueryTarget,
    probes: Probes,
    carried: Option<CarriedColumns<'a>>,
}

impl<T: Coordinate> BatchSearch for Probing<'_, T> {
    type Batch = Queries<T>;

    fn metric(&self) -> Metric {
        self.searcher.buckets.metric()
    }

    fn rows(&self) -> u64 {
        self.searcher.all_rows()
    }

    fn prepare(&self, StoredQueries { vectors, stored, places }: StoredQueries) -> Queries<T> {
        Queries::new(self.searcher, vectors, &stored, places)
    }

    fn find(&mut self, batch: &Queries<T>, range: Range<u32>) -> Result<Option<Vec<Vec<Hit>>>> {
        self.searcher.search_some(batch, range, self.target, self.probes)
    }

    fn name(&self, kind: IdKind, places: &[(u32, u32)], room: &mut IdRoom<'_>) -> Result<Option<NamedHits>> {
        name_places(self.searcher.context, self.searcher.buckets, kind, places, room)
    }

    fn columns(
        &self,
        context: &Context,
        places: &[(u32, u32)],
        room: &mut IdRoom<'_>,
    ) -> Result<Option<GatheredColumns>> {
        let Some(CarriedColumns { columns, starts }) = self.carried else { return Ok(None) };
        let position = |&(bucket, member): &(u32, u32)| u64::from(starts[bucket as usize]) + u64::from(member);
        let mut gathering = ColumnGathering::new(places.iter().map(position).collect());
        let rows: Vec<u32> = gathering.distinct().iter().map(|&row| row as u32).collect();
        let fits = gathering.add_stored(context, columns, &rows, room)?;
        Ok(fits.then(|| gathering.finish()))
    }
}

impl<T: Coordinate> StoreSearch<'_, T> {
    /// Chooses the probes, then answers all queries.
    ///
    /// # Errors
    /// If the budget is too small, queries or buckets cannot be read, or the sink fails.
    pub(super) fn run(&self, lookup: HitLookup, mut sink: Box<dyn HitSink + '_>) -> Result<SearchStatistics> {
        let Self { searcher, queries, options, query_bytes, .. } = *self;
        let Searcher { context, buckets, .. } = *searcher;
        let mut watch = Stopwatch::start();
        let run = SearchRun::new(context, options.target, lookup, &mut *sink)?;
        let (count, calibration_queries) = (queries.count(searcher), self.calibration_queries);
        let plan = ProbePlan::of(searcher, count, calibration_queries, options.goal(), options.seed, None)?;
        let planning_seconds = watch.lap();
        // Resets the counters, so that they count only the work for the queries after this.
        let calibration = searcher.counts.take(buckets.read_counts());
        let at_once = searcher.queries_at_once(query_bytes) as usize;
        let read = |answer: &mut dyn FnMut(_) -> Result<()>| queries.each(searcher, at_once, answer);
        let mut probing = Probing { searcher, target: options.target, probes: plan.probes, carried: self.carried };
        let ran = run.run(&mut probing, count, query_bytes, read, sink)?;

        let (manifest, reads) = (self.store.manifest(), buckets.read_counts());
        let work = work_of(&searcher.counts.take(reads), &calibration);
        let search = SearchCounts {
            passing_rows: searcher.subset.map(Subset::len),
            buckets: Some(u64::from(manifest.buckets)),
            ..ran.counts(options.target, work)
        };
        let common = CommonStatistics {
            seed: options.seed,
            recall: plan.recall.clone(),
            io: reads.statistics(context, buckets.bytes(false), buckets.is_direct(), ran.written),
            seconds: ran.seconds(planning_seconds, plan.calibrated),
            strategy: self.strategy(plan.probes, calibration.compared),
            ..manifest.statistics(context, "search")
        };
        Ok(SearchStatistics { common, search })
    }

    fn strategy(&self, probes: Probes, sample_distances: u64) -> StrategyStatistics {
        let (name, t, per_margin) = match probes {
            Probes::Bound => ("bound", None, None),
            Probes::Nearest(_) => ("nprobe", None, None),
            Probes::By(rule) => ("rank-and-margin", Some(rule.t), Some(rule.per_margin)),
        };
        StrategyStatistics {
            probes: Some(name),
            t,
            per_margin,
            sample_seed: Some(self.options.seed),
            sample_distances: Some(sample_distances),
            ..StrategyStatistics::default()
        }
    }
}

/// Returns the work of a search, without its calibration.
fn work_of(counted: &Counted, calibration: &Counted) -> SearchWork {
    SearchWork {
        distances: counted.compared,
        center_distances: Some(counted.center_distances),
        probes: Some(counted.probed),
        reads: counted.reads.reads - calibration.reads.reads,
        bytes: counted.reads.bytes_read - calibration.reads.bytes_read,
        latencies_ms: Vec::new(),
    }
}
