//! A search from its first query to its last: where to look, queries in batches of the size that memory holds, hits to the
//! sink.

use std::panic::resume_unwind;

use crossbeam_channel::bounded;

use super::calibration::{self, Calibrated, calibrate};
use super::options::{Effort, SearchOptions, Wanted};
use super::queries::{QueryBatch, QuerySet};
use super::searcher::{Counted, Queries, Searcher};
use super::{PURPOSE, naming};
use crate::error::{Error, Result};
use crate::execute::Hit;
use crate::geometry::Coordinate;
use crate::load::Buckets;
use crate::options::Metric;
use crate::plan::Probes;
use crate::report::{
    CommonStatistics, RecallStatistics, SearchCounts, SearchStatistics, SecondsStatistics, SharedSeconds, Stopwatch,
    StrategyStatistics, Written,
};
use crate::sink::{HitBatch, HitSink};
use crate::source::{IdKind, Ids};
use crate::store::Store;
use crate::workers::spawn_scoped;

/// Hits that are handed over at once, about.
const BATCH_HITS: usize = 16 << 10;

/// A search under way.
pub(super) struct Run<'a, T: Coordinate> {
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

/// The recall that a search must learn to reach. Where all is wanted there is none; nor where queries are no more than a
/// calibration draws, which compares these with all vectors: that costs less for the queries themselves, and misses nothing.
pub(super) fn recall_to_learn(options: &SearchOptions, queries: u64, buckets: &Buckets<'_>) -> Option<f64> {
    let target = options.effort.target().filter(|&target| target < 1.0)?;
    (queries > calibration::VECTORS && calibration::is_worth_it(buckets, calibration::VECTORS)).then_some(target)
}

/// Where queries look, and what is known of that.
struct Decided {
    probes: Probes,
    recall: Option<RecallStatistics>,
    calibrated: bool,
}

impl<T: Coordinate> Run<'_, T> {
    pub(super) fn run(&self, mut sink: Box<dyn HitSink + '_>) -> Result<SearchStatistics> {
        let mut watch = Stopwatch::start();
        let decided = self.decide()?;
        let decide_seconds = watch.lap();
        let calibration = self.searcher.counts.take(self.searcher.buckets.read_counts());
        let answered = self.answer_all(decided.probes, &mut *sink)?;
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
        decided: &Decided,
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
                Wanted::Nearest(k) => Some(k),
                Wanted::Within(_) => None,
            },
            hits: answered.hits,
            buckets: u64::from(manifest.buckets),
            probes_per_query: per(counted.probed),
            distances_per_query: per(counted.compared),
            center_distances_per_query: per(counted.center_distances),
            reads_per_query: per(counted.reads.reads - calibration.reads.reads),
            bytes_per_query: per(counted.reads.bytes_read - calibration.reads.bytes_read),
            queries_per_second: seconds.execute.map_or(0.0, |seconds| answered.queries as f64 / seconds),
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

    /// Where to look.
    fn decide(&self) -> Result<Decided> {
        let Self { searcher, queries, options, .. } = *self;
        let every = |target: f64| {
            let recall = Some(RecallStatistics::proved_at_k(target));
            Decided { probes: Probes::Bound, recall, calibrated: false }
        };
        if let Effort::Probes(count) = options.effort {
            let probes = Probes::Nearest(count.min(searcher.buckets.count()));
            return Ok(Decided { probes, recall: None, calibrated: false });
        }
        let Some(target) = recall_to_learn(options, queries.count(searcher.buckets), searcher.buckets) else {
            return Ok(every(options.effort.target().unwrap_or(1.0)));
        };
        Ok(match calibrate(searcher, self.like, options.wanted, (target, options.seed))? {
            None => Decided { calibrated: true, ..every(target) },
            Some(Calibrated { rule, at_k, p5, vectors }) => Decided {
                probes: Probes::By(rule),
                recall: Some(RecallStatistics {
                    at_k: Some(at_k),
                    p5: Some(p5),
                    queries: Some(match self.like {
                        QuerySet::Rows => "rows of the store".to_owned(),
                        QuerySet::Source(_) => "calibrate-with".to_owned(),
                    }),
                    sample_queries: Some(vectors),
                    ..RecallStatistics::promised(target)
                }),
                calibrated: true,
            },
        })
    }

    /// Answers all queries on a thread of its own, while this one hands what they find to the sink.
    fn answer_all(&self, probes: Probes, sink: &mut (dyn HitSink + '_)) -> Result<Answered> {
        let mut answered = Answered::default();
        let at_once = self.searcher.queries_at_once(self.of) as usize;
        let wants_ids = sink.wants_ids();
        std::thread::scope(|scope| {
            // Received here alone: once this thread takes no more, the other one ends.
            let (sender, batches) = bounded(1);
            let searching = spawn_scoped(scope, "adjoin search", move || {
                let give = |batch| sender.send(batch).map_err(|_| Error::cancelled());
                self.queries.each(self.searcher, at_once, &mut |batch| self.answer(probes, batch, wants_ids, &give))
            })?;
            for batch in batches {
                answered.queries += batch.query_rows.len() as u64;
                answered.hits += batch.rows.len() as u64;
                self.writing.measure(|| sink.accept(&batch))?;
            }
            searching.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            Ok(answered)
        })
    }

    fn answer(
        &self,
        probes: Probes,
        batch: QueryBatch,
        wants_ids: bool,
        give: &dyn Fn(HitBatch) -> Result<()>,
    ) -> Result<()> {
        let QueryBatch { vectors, stored, rows, ids, places } = batch;
        let _memory = self.searcher.context.reserve(rows.len() as u64 * self.of, PURPOSE)?;
        let queries = Queries::new(self.searcher, vectors, &stored, places);
        drop(stored);
        self.searcher.search(&queries, self.options.wanted, probes, |range, found| {
            let kind = if wants_ids { self.store.manifest().ids } else { IdKind::None };
            self.batches(
                kind,
                &rows[range.start as usize..range.end as usize],
                (&ids, range.start as usize),
                found,
                give,
            )
        })
    }

    /// Hands over what queries of these rows and ids, the first at a place, found: some at a time, so that it is never all in memory twice.
    fn batches(
        &self,
        kind: IdKind,
        query_rows: &[u64],
        (query_ids, first): (&Ids, usize),
        found: Vec<Vec<Hit>>,
        give: &dyn Fn(HitBatch) -> Result<()>,
    ) -> Result<()> {
        let Searcher { context, buckets, .. } = *self.searcher;
        let places: Vec<(u32, u32)> = match kind {
            IdKind::None => Vec::new(),
            _ => found.iter().flatten().map(|hit| hit.place).collect(),
        };
        let ids = naming::ids_of(context, buckets, kind, &places)?;
        drop(places);
        let value = |hit: &Hit| match buckets.metric() {
            Metric::L2 => hit.nearness.sqrt() as f32,
            Metric::Cosine => -hit.nearness as f32,
        };
        let mut named = 0;
        let empty = || HitBatch {
            query_rows: Vec::new(),
            query_ids: Ids::empty(query_ids.kind()),
            ends: Vec::new(),
            rows: Vec::new(),
            ids: Ids::empty(kind),
            values: Vec::new(),
        };
        let mut batch = empty();
        for (query, hits) in found.into_iter().enumerate() {
            batch.query_rows.push(query_rows[query]);
            batch.query_ids.push_from(query_ids, first + query);
            batch.rows.extend(hits.iter().map(|hit| hit.row));
            batch.values.extend(hits.iter().map(value));
            (named..named + hits.len()).for_each(|hit| batch.ids.push_from(&ids, hit));
            named += hits.len();
            batch.ends.push(batch.rows.len());
            if batch.rows.len() >= BATCH_HITS {
                give(std::mem::replace(&mut batch, empty()))?;
            }
        }
        if batch.ends.is_empty() { Ok(()) } else { give(batch) }
    }
}

/// Queries and hits so far.
#[derive(Default)]
struct Answered {
    queries: u64,
    hits: u64,
}
