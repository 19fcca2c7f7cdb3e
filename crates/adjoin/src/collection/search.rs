//! Searches of a collection.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::Collection;
use super::attributes::schema;
use super::delete_where::check_attributes;
use super::long_term_index::folder_name;
use super::manifest::CollectionManifest;
use super::memory::Manifests;
use super::state::StateView;
use super::temporary_index::TemporaryView;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::Argument;
use crate::base::options::Metric;
use crate::base::report::{
    CommonStatistics, RecallStatistics, SearchCounts, SearchStatistics, Stopwatch, StrategyStatistics,
};
use crate::execute::{Hit, Nearest};
use crate::index::{CollectionChanges, UnmergedColumns, UnmergedRows, column_needs, search_bytes, search_changed};
use crate::query::{
    BatchSearch, HitLookup, IdRoom, NamedHits, Naming, QuerySources, QueryTarget, QueryVectors, RanSearch,
    SearchOptions, SearchRun, SearchWork, SourceQueries, StoredQueries,
};
use crate::sink::{HitSchema, HitSink};
use crate::source::{IdKind, VectorSource};
use crate::store::{ColumnGathering, ColumnNeeds, FolderKind, GatheredColumns, places_of};

/// Name of the command in statistics.
const COMMAND: &str = "search";
/// Purpose of the memory, for error messages.
const PURPOSE: &str = "this search";
/// Maximum number of queries in a batch.
const QUERIES_MAX: u64 = 4_096;
/// Maximum number of hits that a query holds for each hit that it wants, while it is compared with the rows in memory.
const HITS_OF_QUERY: u64 = 16;
/// Recall among rows in memory if a search promises none.
const RECALL_WITH_LIST: f64 = 0.99;
/// Number of hits per query for which memory is planned if a search does not limit it. If there are more hits, batches
/// become smaller.
const HITS_EXPECTED: u64 = 1_000;

impl Collection {
    /// Finds the hits of each query among the rows that exist at the start of the call. Passes the hits to `sink` in
    /// the order of the queries. The promised recall holds for queries with the distribution of the calibration
    /// queries or, if there are none, of the rows. Hits are identified by ids; their row numbers have no meaning.
    ///
    /// # Errors
    /// If an option is out of range, the type of the queries does not match the collection, the budget is too small, or
    /// the sink fails.
    pub fn search(
        &self,
        context: &Context,
        queries: QuerySources<'_>,
        options: &SearchOptions,
        mut sink: Box<dyn HitSink + '_>,
    ) -> Result<SearchStatistics> {
        self.check_creator()?;
        options.check()?;
        let manifest = self.manifest();
        let space = manifest.space();
        options.target.check(space.metric, self.folder())?;
        options.effort.check_for(FolderKind::Collection)?;
        for source in [Some(queries.queries), queries.calibrate_with].into_iter().flatten() {
            SourceQueries { source, space }.check(self.folder())?;
        }
        // All queries search one view, even if rows are written meanwhile.
        let StateView { long_term, deleted, mut view, rows, .. } = self.state().moment();
        if let Some(condition) = &options.filter {
            self.check_attributes(Argument::Where.into())?;
            view = view.passing(context, &self.manifest().attributes, condition)?;
        }
        if let Some(recall) = recall_in_memory(&queries, options).filter(|_| long_term.is_some()) {
            view = view.with_recall(recall);
        }
        let columns = result_columns(self.folder(), &manifest, &options.columns)?;
        let places = columns.as_ref().map_or(&[][..], |columns| &columns.places);
        let first_of = |numbers: &[u32]| view.columns(&manifest.attributes, places, numbers);
        let row_bytes_max = if columns.is_some() { view.columns_bytes_max() } else { 0 };
        let carried = columns.as_ref().map(|_| UnmergedColumns { first_of: &first_of, row_bytes_max });
        if let Some(long_term) = long_term {
            let changes = CollectionChanges { deleted: &deleted, unmerged: &view, columns: carried };
            let mut found = search_changed(context, &long_term.index, queries, options, &changes, sink)?;
            found.common.command = COMMAND;
            found.common.rows = rows;
            found.search.passing_rows = found.search.passing_rows.map(|on_disk| on_disk + view.rows());
            if let Some(recall) = view.recall_of_hits(options.target) {
                found.common.recall.iter_mut().for_each(|measured| limit(measured, recall));
            }
            return Ok(found);
        }
        let queries = SourceQueries { source: queries.queries, space };
        let query_bytes = scan_query_bytes(queries, options.target, view.rows());
        let finding = view.finding_bytes(context);
        let columns = columns.as_ref().map(|columns| needs_of_memory(columns.schema.clone(), row_bytes_max));
        let lookup = HitLookup { ids: manifest.ids, naming_bytes: 0, columns };
        let delivery = SearchRun::least_bytes(&lookup, &*sink);
        let least = queries.reading_bytes() + finding + 2 * query_bytes + delivery;
        let more = options.target.all_hits_bytes(rows).saturating_add(lookup.long_row_bytes());
        let context = &context.naming_more(least.saturating_add(more)).for_run(least, PURPOSE)?;
        let _reading = context.reserve(queries.reading_bytes(), PURPOSE)?;
        let run = SearchRun::new(context, options.target, lookup, &mut *sink)?;
        let room = context.budget().free().saturating_sub(finding) / 2;
        let at_once = (room / query_bytes).clamp(1, QUERIES_MAX) as usize;
        let read = |answer: &mut dyn FnMut(_) -> Result<()>| queries.each(context, at_once, answer);
        let mut scan = TemporaryScan {
            context,
            view: &view,
            metric: space.metric,
            target: options.target,
            carried,
            latencies_ms: Vec::new(),
        };
        let ran = run.run(&mut scan, queries.source.info().rows, query_bytes, read, sink)?;
        let common = manifest.statistics(context, rows, COMMAND);
        Ok(scan.statistics(options, common, &ran))
    }

    /// Returns a context for opening a collection and searching it. If the budget is too small for any step, the error
    /// names a budget that suffices for all steps. `sink_bytes` returns the memory of the sink in bytes, given the
    /// schema of the hits.
    ///
    /// # Errors
    /// If the manifest of the long-term index cannot be read.
    pub(crate) fn search_context(
        context: &Context,
        folder: &Path,
        manifest: &CollectionManifest,
        queries: QuerySources<'_>,
        options: &SearchOptions,
        sink_bytes: &dyn Fn(HitSchema) -> u64,
    ) -> Result<Context> {
        let columns = result_columns(folder, manifest, &options.columns)?;
        let schema = schema_of(manifest, queries.queries).with_columns(columns.map(|columns| columns.schema));
        let manifests = Manifests::read(context, folder, manifest.clone())?;
        let needs = manifests.column_needs(context, folder, &options.columns)?;
        let sink_bytes = sink_bytes(schema);
        let of_search = manifests.search_bytes(context, queries, options, needs, sink_bytes);
        let bytes_of =
            |rows: &dyn VectorSource| of_search.saturating_add(options.target.all_hits_bytes(rows.info().rows));
        Ok(context.naming_at_least(manifests.least_with_rows(context, folder, &bytes_of).unwrap_or(0)))
    }

    /// Returns whether the list size for finding the `k` nearest rows with `recall` is already known
    /// ([`crate::index::Index::is_calibrated`]).
    pub fn is_calibrated(&self, k: u64, recall: f64, seed: u64) -> bool {
        self.state().moment().long_term.is_none_or(|long_term| long_term.index.is_calibrated(k, recall, seed))
    }

    /// Returns the schema of the hits of `queries`, without columns.
    pub fn hit_schema(&self, queries: &dyn VectorSource) -> HitSchema {
        schema_of(&self.manifest(), queries)
    }

    /// Returns the schema of the columns with these names; `None` if `names` is empty.
    ///
    /// # Errors
    /// If rows do not have one of the columns, or a name is given twice.
    pub(crate) fn columns_schema(&self, names: &[String]) -> Result<Option<SchemaRef>> {
        Ok(result_columns(self.folder(), &self.manifest(), names)?.map(|columns| columns.schema))
    }
}

/// Returns the recall to reach among rows in memory; `None` if queries must be compared with all of them. A rule for
/// buckets is calibrated with rows in memory, so it holds neither for a filter nor for queries of another distribution.
fn recall_in_memory(queries: &QuerySources<'_>, options: &SearchOptions) -> Option<f64> {
    let seeks_nearest = matches!(options.target, QueryTarget::Nearest(_));
    if !seeks_nearest || options.filter.is_some() || queries.calibrate_with.is_some() || options.effort.compares_all() {
        return None;
    }
    // Half of the hits that may be missed on disk. So a search finds nearly as many hits as a search that compares its
    // queries with all rows in memory.
    Some(options.effort.recall().map_or(RECALL_WITH_LIST, |recall| 1.0 - (1.0 - recall) / 2.0))
}

/// Limits a measured recall to the recall of the hits in memory.
fn limit(measured: &mut RecallStatistics, recall: f64) {
    if let Some(at_k) = &mut measured.at_k {
        at_k.estimate = at_k.estimate.min(recall);
        at_k.low = at_k.low.min(recall);
    }
}

impl Manifests {
    /// Returns the schema of the columns that hits carry, and the memory that they need; `None` if `names` is empty.
    /// The memory does not include rows in the log, which have not been read yet.
    fn column_needs(&self, context: &Context, folder: &Path, names: &[String]) -> Result<Option<ColumnNeeds>> {
        let Some(columns) = result_columns(folder, &self.collection, names)? else { return Ok(None) };
        match (&self.index, self.collection.merged()) {
            (Some(facts), Some(sequence)) => column_needs(context, &folder.join(folder_name(sequence)), facts, names),
            _ => Ok(Some(needs_of_memory(columns.schema, 0))),
        }
    }

    /// Returns the memory in bytes that suffices for a search once the collection is open. Hits carry `columns`, and
    /// the sink holds `sink_bytes`.
    fn search_bytes(
        &self,
        context: &Context,
        queries: QuerySources<'_>,
        options: &SearchOptions,
        columns: Option<ColumnNeeds>,
        sink_bytes: u64,
    ) -> u64 {
        let Self { collection: manifest, index } = self;
        let hits = match options.target {
            QueryTarget::Nearest(k) => k,
            QueryTarget::Within(_) => HITS_EXPECTED,
        };
        let of_hits = HITS_OF_QUERY.saturating_mul(Nearest::memory_bytes(hits));
        let of_search = match index {
            Some(facts) => search_bytes(context, facts, queries, options, columns, sink_bytes),
            None => {
                let queries = SourceQueries { source: queries.queries, space: manifest.space() };
                let lookup = HitLookup { ids: manifest.ids, naming_bytes: 0, columns };
                let handing = SearchRun::bytes_with(&lookup, sink_bytes);
                queries.reading_bytes() + 8 * queries.vectors().bytes() as u64 + handing
            }
        };
        of_search.saturating_add(of_hits).saturating_add(TemporaryView::finding_bytes_of(context, manifest.space()))
    }
}

fn schema_of(manifest: &CollectionManifest, queries: &dyn VectorSource) -> HitSchema {
    HitSchema::of(queries.info().ids, manifest.ids, manifest.metric)
}

/// Columns of a collection that hits carry.
struct CarriedColumns {
    /// Index of each carried column among the columns of the collection.
    places: Vec<usize>,
    schema: SchemaRef,
}

/// Returns the columns with these names; `None` if `names` is empty.
///
/// # Errors
/// If rows do not have one of the columns, or a name is given twice.
fn result_columns(folder: &Path, manifest: &CollectionManifest, names: &[String]) -> Result<Option<CarriedColumns>> {
    if names.is_empty() {
        return Ok(None);
    }
    check_attributes(folder, manifest, Argument::Columns.into())?;
    let kept = schema(&manifest.attributes);
    let places = places_of(folder, &kept, names)?;
    let schema = Arc::new(kept.project(&places).map_err(|error| Error::input(error.to_string()))?);
    Ok(Some(CarriedColumns { places, schema }))
}

/// Returns the memory that hits need for columns of rows in memory. The columns of a row take at most `row_bytes_max`
/// bytes.
fn needs_of_memory(schema: SchemaRef, row_bytes_max: u64) -> ColumnNeeds {
    ColumnNeeds { schema, reading_bytes: 0, row_bytes: row_bytes_max, row_bytes_max }
}

/// Returns the memory in bytes of one query while its batch is compared with `rows` rows in memory.
fn scan_query_bytes(queries: SourceQueries<'_>, target: QueryTarget, rows: u64) -> u64 {
    let hits = match target {
        QueryTarget::Nearest(k) => k.min(rows),
        QueryTarget::Within(_) => HITS_EXPECTED.min(rows),
    };
    4 * (queries.vectors().bytes() as u64 + Nearest::memory_bytes(hits))
}

/// Search that compares batches of queries with all rows of a temporary index.
struct TemporaryScan<'a> {
    context: &'a Context,
    view: &'a TemporaryView,
    metric: Metric,
    target: QueryTarget,
    /// Columns that hits carry, if any.
    carried: Option<UnmergedColumns<'a>>,
    latencies_ms: Vec<f32>,
}

impl BatchSearch for TemporaryScan<'_> {
    type Batch = StoredQueries;

    fn metric(&self) -> Metric {
        self.metric
    }

    fn rows(&self) -> u64 {
        self.view.rows()
    }

    fn prepare(&self, queries: StoredQueries) -> StoredQueries {
        queries
    }

    fn find(&mut self, queries: &StoredQueries, range: Range<u32>) -> Result<Option<Vec<Vec<Hit>>>> {
        let StoredQueries { vectors, stored, .. } = queries;
        let stored = &stored[range.start as usize * vectors.bytes()..range.end as usize * vectors.bytes()];
        let queries = QueryVectors { vectors: *vectors, stored };
        let watch = Stopwatch::start();
        let hits = self.view.find(self.context, queries, self.target.among(self.view.rows()), 0)?;
        if hits.is_some() {
            self.latencies_ms.extend(range.map(|_| (watch.seconds() * 1e3) as f32));
        }
        Ok(hits)
    }

    fn name(&self, kind: IdKind, places: &[(u32, u32)], room: &mut IdRoom<'_>) -> Result<Option<NamedHits>> {
        let mut naming = Naming::new(kind, places);
        while let Some((number, _)) = naming.place() {
            if !self.view.append_id(number, naming.ids(), room) {
                // The ids do not fit into memory. The caller asks again with fewer hits.
                return Ok(None);
            }
            naming.advance();
        }
        Ok(Some(naming.finish()))
    }

    fn columns(
        &self,
        _context: &Context,
        places: &[(u32, u32)],
        room: &mut IdRoom<'_>,
    ) -> Result<Option<GatheredColumns>> {
        let Some(carried) = self.carried else { return Ok(None) };
        let mut gathering = ColumnGathering::new(places.iter().map(|&(number, _)| number.into()).collect());
        let numbers: Vec<u32> = gathering.distinct().iter().map(|&number| number as u32).collect();
        let fits = carried.add_to(&mut gathering, &numbers, room);
        Ok(fits.then(|| gathering.finish()))
    }
}

impl TemporaryScan<'_> {
    fn statistics(self, options: &SearchOptions, common: CommonStatistics, ran: &RanSearch) -> SearchStatistics {
        let distances = self.view.rows() * ran.delivered.queries;
        let work = SearchWork { distances, latencies_ms: self.latencies_ms, ..SearchWork::default() };
        let search = SearchCounts {
            passing_rows: options.filter.as_ref().map(|_| self.view.rows()),
            ..ran.counts(options.target, work)
        };
        let common = CommonStatistics {
            // Each query was compared with every row, so the recall is 100 % and need not be estimated.
            recall: options.effort.recall().map(RecallStatistics::proved_at_k),
            seconds: ran.seconds(0.0, false),
            strategy: StrategyStatistics { probes: Some("whole"), ..StrategyStatistics::default() },
            seed: options.seed,
            ..common
        };
        SearchStatistics { common, search }
    }
}
