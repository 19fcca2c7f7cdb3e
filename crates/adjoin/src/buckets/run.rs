//! A search from its first query to its last: queries in batches of the size that memory holds, hits to the
//! sink.

use super::PURPOSE;
use super::decide::ProbePlan;
use super::hand_over::{Answered, Give, HitDelivery, give_hits};
use super::naming::{IdMemory, IdRoom, name_places, naming_bytes};
use super::options::{SearchOptions, QueryTarget};
use super::queries::QuerySet;
use super::searcher::{Counted, Queries, Searcher};
use super::source_queries::QueryBatch;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::load::Subset;
use crate::plan::Probes;
use crate::report::{
    CommonStatistics, SearchCounts, SearchStatistics, SecondsStatistics, SharedSeconds, Stopwatch, StrategyStatistics,
    Written,
};
use crate::sink::HitSink;
use crate::source::IdKind;
use crate::store::Store;

/// A search under way.
pub(super) struct SearchRun<'a, T: Coordinate> {
    pub(super) searcher: &'a Searcher<'a, T>,
    pub(super) store: &'a Store,
    pub(super) queries: QuerySet<'a>,
    /// Vectors that are distributed as the queries are.
    pub(super) like: QuerySet<'a>,
    pub(super) options: &'a SearchOptions,
    /// Bytes of a query on its way.
    pub(super) of: u64,
    pub(super) writing: SharedSeconds,
}

impl<T: Coordinate> SearchRun<'_, T> {
    pub(super) fn run(&self, mut sink: Box<dyn HitSink + '_>) -> Result<SearchStatistics> {
        let mut watch = Stopwatch::start();
        let Self { searcher, queries, like, options, .. } = *self;
        let kind = if sink.wants_ids() { self.store.manifest().ids } else { IdKind::None };
        let ids = IdMemory::new(searcher.context, kind, naming_bytes(searcher.buckets))?;
        let handing = HitDelivery::new(searcher.context, &*sink)?;
        let asked = (queries.count(searcher), like);
        let decided = ProbePlan::of(searcher, asked, (options.wanted, options.effort), options.seed, None)?;
        let decide_seconds = watch.lap();
        let calibration = self.searcher.counts.take(self.searcher.buckets.read_counts());
        let answered = self.answer_all(decided.probes, (&mut *sink, &handing), &ids)?;
        let written = self.writing.measure(|| sink.finish())?;
        let seconds = SecondsStatistics {
            total: decide_seconds + watch.seconds(),
            calibrate: decided.calibrated.then_some(decide_seconds),
            execute: Some(watch.seconds()),
            write: Some(self.writing.seconds()),
            ..SecondsStatistics::default()
        };
        Ok(self.statistics(&decided, &calibration, &answered, (seconds, written)))
    }

    fn statistics(
        &self,
        decided: &ProbePlan,
        calibration: &Counted,
        answered: &Answered,
        (seconds, written): (SecondsStatistics, Written),
    ) -> SearchStatistics {
        let Searcher { context, buckets, counts, .. } = self.searcher;
        let (manifest, all) = (self.store.manifest(), buckets.read_counts());
        let counted = counts.take(all);
        let per = |count: u64| count as f64 / answered.queries.max(1) as f64;
        let search = SearchCounts {
            queries: answered.queries,
            k: match self.options.wanted {
                QueryTarget::Nearest(k) => Some(k),
                QueryTarget::Within(_) => None,
            },
            hits: answered.hits,
            passing_rows: self.searcher.subset.map(Subset::len),
            buckets: Some(u64::from(manifest.buckets)),
            probes_per_query: Some(per(counted.probed)),
            distances_per_query: per(counted.compared),
            center_distances_per_query: Some(per(counted.center_distances)),
            reads_per_query: per(counted.reads.reads - calibration.reads.reads),
            bytes_per_query: per(counted.reads.bytes_read - calibration.reads.bytes_read),
            vertex_utilization: None,
            queries_per_second: seconds.execute.map_or(0.0, |seconds| answered.queries as f64 / seconds),
            latency_ms: None,
        };
        let common = CommonStatistics {
            seed: self.options.seed,
            recall: decided.recall.clone(),
            io: all.statistics(context, (buckets.bytes(false), buckets.is_direct()), written),
            seconds,
            strategy: self.strategy(decided.probes, calibration.compared),
            ..manifest.statistics(context, "search")
        };
        SearchStatistics { common, search }
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

    /// Answers all queries while their hits are handed to the sink.
    fn answer_all(
        &self,
        probes: Probes,
        (sink, handing): (&mut (dyn HitSink + '_), &HitDelivery<'_>),
        ids: &IdMemory<'_>,
    ) -> Result<Answered> {
        let at_once = self.searcher.queries_at_once(self.of) as usize;
        handing.run(sink, &self.writing, |give| {
            self.queries.each(self.searcher, at_once, &mut |batch| self.answer(probes, batch, ids, give))
        })
    }

    fn answer(&self, probes: Probes, batch: QueryBatch, id_memory: &IdMemory<'_>, give: &Give<'_>) -> Result<()> {
        let QueryBatch { vectors, stored, rows, ids, places } = batch;
        let Searcher { context, buckets, .. } = *self.searcher;
        let _memory = context.reserve(rows.len() as u64 * self.of, PURPOSE)?;
        let queries = Queries::new(self.searcher, vectors, &stored, places);
        drop(stored);
        let wanted = self.options.wanted;
        self.searcher.search(&queries, wanted, probes, |range, found| {
            let _found = context.reserve(wanted.found_bytes(&found), PURPOSE)?;
            let query_rows = &rows[range.start as usize..range.end as usize];
            let of_queries = (query_rows, &ids, range.start as usize);
            let kind = id_memory.kind();
            let name =
                &mut |places: &[(u32, u32)], room: &mut IdRoom<'_>| name_places(context, buckets, kind, (places, room));
            give_hits(buckets.metric(), of_queries, &found, (id_memory, name), give)
        })
    }
}
