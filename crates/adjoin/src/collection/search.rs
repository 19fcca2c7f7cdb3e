//! What is nearest to some queries among the rows that are there now?

use std::path::Path;

use super::Collection;
use super::long_term_index::folder_name;
use super::temporary_index::TemporaryView;
use super::manifest::CollectionManifest;
use super::state::StateView;
use crate::context::Context;
use crate::error::Result;
use crate::execute::Nearest;
use crate::index::{UnmergedRows, CollectionChanges, Index, SearchEffort, SearchOptions, search_bytes, search_changed};
use crate::message::Argument;
use crate::report::{
    LatencyStatistics, RecallStatistics, SearchCounts, SearchStatistics, SecondsStatistics, SharedSeconds, Stopwatch,
    StrategyStatistics,
};
use crate::query::{Give, HitDelivery, IdMemory, IdRoom, Naming, QueryBatch, SourceQueries, QueryTarget, give_hits, in_halves};
use crate::sink::{HitSchema, HitSink};
use crate::source::{IdKind, VectorSource};

/// What statistics call it.
const COMMAND: &str = "live search";
/// What memory is for, as a refusal says it.
const PURPOSE: &str = "this search";
/// Queries that are compared at once, at most.
const QUERIES_MAX: u64 = 4_096;
/// Hits that a query holds for each that it is to find among rows in memory, at most.
const HITS_OF_QUERY: u64 = 16;
/// Hits of a query without a limit on their number for which there is room before fewer are searched at once.
const HITS_EXPECTED: u64 = 1_000;

impl Collection {
    /// Finds what is wanted of each query among the rows that are there when it begins, and hands it to `sink`, in the order of
    /// the queries. The recall is promised for queries that are distributed as the vectors of `like`, or as rows of the index on
    /// disk where there is none. Hits have ids; the numbers of their rows mean nothing.
    ///
    /// # Errors
    /// Where an option is out of range, the queries are not of the collection's kind, the budget is too small, or the sink fails.
    pub fn search(
        &self,
        context: &Context,
        (queries, like): (&dyn VectorSource, Option<&dyn VectorSource>),
        options: &SearchOptions,
        sink: Box<dyn HitSink + '_>,
    ) -> Result<SearchStatistics> {
        self.check_creator()?;
        options.check()?;
        let manifest = self.manifest();
        let space = manifest.space();
        options.wanted.check(space.metric, self.folder())?;
        for source in [Some(queries), like].into_iter().flatten() {
            SourceQueries { source, space }.check(self.folder())?;
        }
        let StateView { base, gone, mut view, rows, .. } = self.state().moment();
        if let Some(condition) = &options.condition {
            self.check_attributes(Argument::Where.into())?;
            view = view.passing(context, &self.manifest().attributes, condition)?;
        }
        if let Some(base) = base {
            let changes = CollectionChanges { deleted: &gone.entries, beside: &view };
            let mut found = search_changed(context, &base.index, (queries, like), options, &changes, sink)?;
            found.common.command = COMMAND;
            found.common.rows = rows;
            found.search.passing_rows = found.search.passing_rows.map(|on_disk| on_disk + view.rows());
            return Ok(found);
        }
        let queries = SourceQueries { source: queries, space };
        let of_query = queries.vectors().bytes() as u64 * 4
            + 4 * Nearest::memory_bytes(match options.wanted {
                QueryTarget::Nearest(k) => k.min(view.rows()),
                QueryTarget::Within(_) => HITS_EXPECTED.min(view.rows()),
            });
        let finding = view.finding_bytes(context);
        let ids = if sink.wants_ids() { manifest.ids } else { IdKind::None };
        let handing = HitDelivery::least_bytes(&*sink) + IdMemory::least_bytes(ids, 0);
        let context = &context.for_run(queries.reading_bytes() + finding + 2 * of_query + handing, PURPOSE)?;
        let _reading = context.reserve(queries.reading_bytes(), PURPOSE)?;
        let ids = IdMemory::new(context, ids, 0)?;
        let handing = HitDelivery::new(context, &*sink)?;
        let room = context.budget().free().saturating_sub(finding) / 2;
        let at_once = (room / of_query).clamp(1, QUERIES_MAX);
        ScanSearch { context, manifest, view, queries, options, at_once, of_query, rows, ids }.run(sink, &handing)
    }

    /// Bytes that suffice for a search once the collection in a folder is open, as far as its manifest and the options tell, with a
    /// sink that holds what `sink_bytes` says.
    ///
    /// # Errors
    /// If there is no collection, or its manifest or that of its index on disk cannot be read.
    pub fn search_bytes(
        (context, folder): (&Context, &Path),
        (queries, like): (&dyn VectorSource, Option<&dyn VectorSource>),
        options: &SearchOptions,
        sink_bytes: &dyn Fn(HitSchema) -> u64,
    ) -> Result<u64> {
        let manifest = CollectionManifest::read(context, folder)?;
        let sink_bytes = sink_bytes(schema_of(&manifest, queries));
        let hits = match options.wanted {
            QueryTarget::Nearest(k) => k,
            QueryTarget::Within(_) => HITS_EXPECTED,
        };
        let of_hits = HITS_OF_QUERY.saturating_mul(Nearest::memory_bytes(hits));
        let on_disk = manifest.merged().map(|sequence| Index::manifest(context, &folder.join(folder_name(sequence))));
        let of_search = match on_disk.transpose()? {
            Some(facts) => search_bytes(context, &facts, (queries, like), options, sink_bytes),
            None => {
                let queries = SourceQueries { source: queries, space: manifest.space() };
                let handing = HitDelivery::bytes_with(sink_bytes) + IdMemory::least_bytes(manifest.ids, 0);
                queries.reading_bytes() + 8 * queries.vectors().bytes() as u64 + handing
            }
        };
        Ok(of_search.saturating_add(of_hits).saturating_add(TemporaryView::finding_bytes_of(context, manifest.space())))
    }

    /// Whether a search for the `k` nearest rows with a recall knows how long its walks must be ([`crate::index::Index::is_calibrated`]).
    pub fn is_calibrated(&self, k: u64, recall: f64, seed: u64) -> bool {
        self.state().moment().base.is_none_or(|base| base.index.is_calibrated(k, recall, seed))
    }

    /// What is known of the hits of queries.
    pub fn hit_schema(&self, queries: &dyn VectorSource) -> HitSchema {
        schema_of(&self.manifest(), queries)
    }
}

fn schema_of(manifest: &CollectionManifest, queries: &dyn VectorSource) -> HitSchema {
    HitSchema { query_ids: queries.info().ids, ids: manifest.ids, metric: manifest.metric, of_rows: false }
}

/// A search under way.
struct ScanSearch<'a> {
    context: &'a Context,
    manifest: CollectionManifest,
    view: TemporaryView,
    queries: SourceQueries<'a>,
    options: &'a SearchOptions,
    at_once: u64,
    of_query: u64,
    rows: u64,
    ids: IdMemory<'a>,
}

impl ScanSearch<'_> {
    fn run(&self, mut sink: Box<dyn HitSink + '_>, handing: &HitDelivery<'_>) -> Result<SearchStatistics> {
        let watch = Stopwatch::start();
        let writing = SharedSeconds::default();
        let mut latencies_ms = Vec::new();
        let answered = handing.run(&mut *sink, &writing, |give| {
            let answer = &mut |batch| self.answer(batch, &mut latencies_ms, give);
            self.queries.each(self.context, self.at_once as usize, answer)
        })?;
        let execute = watch.seconds();
        writing.measure(|| sink.finish())?;
        let seconds = SecondsStatistics {
            total: watch.seconds(),
            execute: Some(execute),
            write: Some(writing.seconds()),
            ..SecondsStatistics::default()
        };
        let recall = match self.options.effort {
            SearchEffort::Recall(target) => Some(RecallStatistics::proved_at_k(target)),
            SearchEffort::Exact => Some(RecallStatistics::proved_at_k(1.0)),
            SearchEffort::List(_) => None,
        };
        let k = match self.options.wanted {
            QueryTarget::Nearest(k) => Some(k),
            QueryTarget::Within(_) => None,
        };
        let search = SearchCounts {
            queries: answered.queries,
            k,
            hits: answered.hits,
            passing_rows: self.options.condition.as_ref().map(|_| self.view.rows()),
            buckets: None,
            probes_per_query: None,
            distances_per_query: self.view.rows() as f64,
            center_distances_per_query: None,
            reads_per_query: 0.0,
            bytes_per_query: 0.0,
            vertex_utilization: None,
            queries_per_second: answered.queries as f64 / execute,
            latency_ms: LatencyStatistics::of(latencies_ms),
        };
        let strategy = StrategyStatistics { probes: Some("whole"), ..StrategyStatistics::default() };
        let common = self.manifest.statistics(self.context, self.rows, COMMAND);
        let common = crate::report::CommonStatistics { recall, seconds, strategy, seed: self.options.seed, ..common };
        Ok(SearchStatistics { common, search })
    }

    fn answer(&self, batch: QueryBatch, latencies_ms: &mut Vec<f32>, give: &Give<'_>) -> Result<()> {
        let QueryBatch { vectors, stored, rows, ids, .. } = batch;
        let Self { context, view, options, .. } = self;
        let _memory = context.reserve(rows.len() as u64 * self.of_query, PURPOSE)?;
        let wanted = options.wanted.among(view.rows());
        let watch = Stopwatch::start();
        let find = |range: std::ops::Range<u32>| {
            let some = &stored[range.start as usize * vectors.bytes()..range.end as usize * vectors.bytes()];
            view.find(context, (vectors, some), wanted, 0)
        };
        let kind = self.ids.kind();
        let name = &mut |places: &[(u32, u32)], room: &mut IdRoom<'_>| {
            let mut naming = Naming::new(kind, places);
            while let Some((number, _)) = naming.place() {
                if !view.append_id(number, naming.ids(), room) {
                    return Ok(None);
                }
                naming.advance();
            }
            Ok(Some(naming.finish()))
        };
        in_halves((context, view.rows()), rows.len() as u32, find, |range, hits| {
            let _found = context.reserve(wanted.found_bytes(&hits), PURPOSE)?;
            latencies_ms.extend(range.clone().map(|_| (watch.seconds() * 1e3) as f32));
            let query_rows = &rows[range.start as usize..range.end as usize];
            let of_queries = (query_rows, &ids, range.start as usize);
            give_hits(self.manifest.metric, of_queries, &hits, (&self.ids, name), give)
        })
    }
}
