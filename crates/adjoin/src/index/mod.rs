//! A graph index on disk: finds the nearest vectors of a query by a walk over pages.
//!
//! An index is a folder that [`Index::build`] creates from a store and [`search()`] reads. It has its own copy of the
//! vectors. Each vector is on a page, next to the numbers of its neighbors in a Vamana graph (`page.rs`). The page
//! layouts in `layout/` put neighbors on the same page if they can (Starling: Wang et al., SIGMOD 2024). Memory holds a
//! code of each vector (`crate::quantize`), which steers walks. It also holds a graph over a sample of the vectors,
//! which finds the entry points of walks (`navigation.rs`).
//!
//! `walk.rs` is the walk of one query, and `run.rs` keeps many in flight. `decide.rs` chooses the method of a search.
//! `promise.rs` chooses the length of the list that reaches a recall. It uses a calibration (`calibration.rs`), which
//! records how many true hits walks find with each list. `sample.rs` samples the calibration queries, and finds their
//! true hits by comparing them with all rows.

mod blocks;
mod build;
mod cache;
mod calibration;
mod decide;
mod delete_list;
mod drafting;
mod filtered_vertices;
mod last_hit;
pub(crate) mod layout;
mod lost;
mod manifest;
mod merge;
mod named;
mod navigation;
mod options;
mod page;
mod page_scan;
mod promise;
mod promised;
mod reader;
mod recently_seen;
mod relayout;
mod rows;
mod run;
mod sample;
mod scan;
mod source;
#[cfg(test)]
mod tests;
mod unmerged_rows;
mod verify;
mod walk;
mod walk_strategy;
mod walks;
mod within;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub(crate) use self::build::building_bytes_of;
use self::build::writing::inserted_bytes;
use self::build::{Build, GivenGraph, check_rows, least_bytes};
pub use self::build::{VertexVectors, vertex_vectors};
use self::cache::PageCache;
pub(crate) use self::delete_list::DeleteList;
use self::filtered_vertices::FilteredVertices;
pub use self::manifest::IndexManifest;
pub(crate) use self::manifest::file_names;
pub(crate) use self::merge::{Merge, Newcomers, REPLACEMENTS};
pub(crate) use self::named::fetching_bytes;
pub use self::options::IndexOptions;
pub(crate) use self::options::IndexParameters;
pub use self::reader::Index;
pub(crate) use self::reader::{column_needs, columns_reading_bytes};
pub use self::relayout::RelayoutReport;
pub use self::relayout::{GivenOrder, PageGraph, relayout_in_order};
use self::run::{IndexSearch, SearchMethod, SearchNeeds};
pub(crate) use self::source::IndexRows;
use self::unmerged_rows::ChangedTarget;
pub(crate) use self::unmerged_rows::{CollectionChanges, UnmergedColumns, UnmergedRows};
pub(crate) use self::verify::{IndexVerifyReport, verifying_bytes};
pub use self::walk_strategy::{Entry, WalkStrategy};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, with_coordinates};
use crate::base::report::{SearchStatistics, Stopwatch};
use crate::graph::Graph;
use crate::query::{HitLookup, QuerySources, SearchOptions, SearchRun, SourceQueries};
use crate::sink::{HitSchema, HitSink};
use crate::source::VectorSource;
use crate::store::{ColumnNeeds, Drafts, FolderKind, ResultColumns, Store, check_target};

/// Purpose of the memory in error messages.
const PURPOSE_BUILD: &str = "building the index";
const PURPOSE_SEARCH: &str = "this search";
/// Divisor of the free memory. If hits carry columns, this part of it is left to the columns, and the page cache does
/// not use it.
const COLUMNS_PART: u64 = 4;
/// Pages that are kept between searches leave at least one part in this number of the memory free.
const LEFT_PART: u64 = 2;

/// Result of building an index.
#[derive(Debug, Clone)]
pub struct BuiltIndex {
    /// Manifest that was published.
    pub manifest: IndexManifest,
    /// Bytes read from and written to disk.
    pub io: BuildIo,
    /// Seconds to find equal vectors and to build the navigation graph.
    pub load_seconds: f64,
    /// Seconds to build the graph.
    pub graph_seconds: f64,
    /// Seconds to order the vertices on pages.
    pub layout_seconds: f64,
    /// Seconds to train the codes and to write the files.
    pub write_seconds: f64,
    /// Seconds to calibrate the recall.
    pub calibrate_seconds: f64,
}

/// Bytes that a build read and wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildIo {
    /// Bytes read from the store.
    pub bytes_read: u64,
    /// Bytes of the index.
    pub bytes_written: u64,
    /// Bytes written to temporary files and read again.
    pub spill_bytes: u64,
}

impl Index {
    /// Builds an index of a store in `folder`. If `force` is set, an existing index in this folder is replaced. The
    /// same store and options give the same bytes.
    ///
    /// # Errors
    /// If an option is out of range, if the budget is too small, if `folder` exists already, if the store cannot be
    /// read, or if the index cannot be written. The folder is then left unchanged.
    pub fn build(
        context: &Context,
        store: &Store,
        folder: &Path,
        options: &IndexOptions,
        force: bool,
    ) -> Result<BuiltIndex> {
        build_of(context, store, folder, options, force, None, 0..0)
    }
}

/// Builds an index of a store from a given graph. The vertices of the graph are the vectors that [`vertex_vectors`]
/// returns. `method` names the method that built the graph.
///
/// # Errors
/// The errors of [`Index::build`], and if the graph does not have one vertex per distinct vector.
pub fn build_with_graph(
    context: &Context,
    store: &Store,
    folder: &Path,
    options: &IndexOptions,
    graph: &Graph,
    method: &str,
) -> Result<BuiltIndex> {
    build_of(context, store, folder, options, false, Some(GivenGraph { graph, method }), 0..0)
}

/// Builds an index of a store for a merge that inserts the rows `inserted`. The recall of these rows is measured
/// separately, as after a merge that changes an existing index. An index in `folder` is replaced.
///
/// # Errors
/// The errors of [`Index::build`].
pub(crate) fn build_merged(
    context: &Context,
    store: &Store,
    folder: &Path,
    options: &IndexOptions,
    inserted: Range<u64>,
) -> Result<BuiltIndex> {
    build_of(context, store, folder, options, true, None, inserted)
}

fn build_of(
    context: &Context,
    store: &Store,
    folder: &Path,
    options: &IndexOptions,
    force: bool,
    graph: Option<GivenGraph<'_>>,
    inserted: Range<u64>,
) -> Result<BuiltIndex> {
    options.check()?;
    check_rows(store)?;
    check_target(context, folder, FolderKind::Index, force)?;
    let space = store.manifest().space();
    let options = &options.parameters(space.vectors);
    with_coordinates!(space, T => {
        let column_bytes =
            store.columns().map_or(Ok(0), |columns| columns.reordering_bytes(store.manifest().rows))?;
        let inserted_bytes = inserted_bytes(inserted.end - inserted.start);
        let least = least_bytes::<T>(context, store, options, column_bytes) + inserted_bytes;
        let context = &context.for_run(least, PURPOSE_BUILD)?;
        let drafts = Drafts::begin(context, folder, FolderKind::Index)?;
        Build { context, store, options, graph, drafts, inserted_bytes, force, inserted }.run::<T>(space)
    })
}

/// Finds the hits of each query and passes them to `sink`, in the order of the queries. The recall is promised for
/// queries with the distribution of the calibration queries or, if there are none, of the rows of the index.
///
/// # Errors
/// If an option is out of range, if queries or calibration queries do not match the type of the index, if the budget is
/// too small, if the index cannot be read, or if the sink fails.
pub fn search(
    context: &Context,
    index: &Index,
    queries: QuerySources<'_>,
    options: &SearchOptions,
    sink: Box<dyn HitSink + '_>,
) -> Result<SearchStatistics> {
    find(context, index, queries, options, None, sink)
}

/// Searches an index together with the unmerged changes of a collection. Deleted rows are not hits. Unmerged rows can
/// be hits. They are numbered after the rows of the source that the index was built from.
///
/// The promised recall applies to rows of the index only; unmerged rows are searched separately, by the caller's rule. The filter is
/// evaluated on rows of the index only, so the caller must pass unmerged rows that meet it.
///
/// # Errors
/// The errors of [`search()`].
pub(crate) fn search_changed(
    context: &Context,
    index: &Index,
    queries: QuerySources<'_>,
    options: &SearchOptions,
    changes: &CollectionChanges<'_>,
    sink: Box<dyn HitSink + '_>,
) -> Result<SearchStatistics> {
    find(context, index, queries, options, Some(changes), sink)
}

/// Searches an index, together with the changes of a collection if `changes` is set.
fn find(
    context: &Context,
    index: &Index,
    queries: QuerySources<'_>,
    options: &SearchOptions,
    changes: Option<&CollectionChanges<'_>>,
    mut sink: Box<dyn HitSink + '_>,
) -> Result<SearchStatistics> {
    options.check()?;
    let space = index.facts().space();
    options.target.check(space.metric, index.folder())?;
    options.effort.check_for(FolderKind::Index)?;
    for source in [Some(queries.queries), queries.calibrate_with].into_iter().flatten() {
        SourceQueries { source, space }.check(index.folder())?;
    }
    let facts = index.facts();
    let columns = index.result_columns(&options.columns)?;
    let mut needs = columns.as_ref().map(ResultColumns::needs).transpose()?;
    if let (Some(needs), Some(unmerged)) = (&mut needs, changes.and_then(|changes| changes.columns)) {
        needs.add_rows(unmerged.row_bytes_max);
    }
    let lookup = HitLookup { ids: facts.ids, naming_bytes: 0, columns: needs };
    let (handing, long_rows) = (SearchRun::least_bytes(&lookup, &*sink), lookup.long_row_bytes());
    let sought = ChangedTarget { wanted: options.target, changes };
    with_coordinates!(space, T => {
        let watch = Stopwatch::start();
        let strategy = index.strategy.shared_if(options.shares_pages);
        let needs = SearchNeeds { context, facts, source: queries.queries, sought, strategy, handing };
        let running = |way: SearchMethod| IndexSearch::<T>::least_bytes(&needs, way);
        let filter_bytes = FilteredVertices::least_bytes(facts, options.filter.is_some());
        // The open index holds memory already. If the budget is too small, the error names a budget for the index and
        // the search together.
        let least = bytes_of_any::<T>(&needs, queries.calibrate_with, options, filter_bytes);
        let context = &context.naming_more(least + long_rows);
        // Evaluating the filter may take long, so a budget that is too small is refused before that.
        if filter_bytes > 0 {
            drop(context.for_run(filter_bytes + running(decide::least_way(facts, options)), PURPOSE_SEARCH)?);
        }
        let admitted = match (&options.filter, changes) {
            (Some(condition), changes) => {
                let deleted = changes.map(|changes| changes.deleted);
                Some(FilteredVertices::of(context, index, condition, deleted)?)
            }
            (None, Some(changes)) => FilteredVertices::excluding(index, changes.deleted),
            (None, None) => None,
        };
        let admitted = admitted.as_ref();
        let plan = decide::decide::<T>(context, index, queries, options, admitted, &running)?;
        let (outer, context) = (context, &context.for_run(running(plan.method), PURPOSE_SEARCH)?);
        let needs = SearchNeeds { context, ..needs };
        let needed = IndexSearch::<T>::bytes_beside_cache(&needs, plan.method);
        // The more columns fit in memory, the less often their file is read.
        let of_columns = if columns.is_some() { context.budget().free() / COLUMNS_PART } else { 0 };
        let cache = &page_cache(outer, context, index, strategy, needed.saturating_add(of_columns))?;
        let planning = watch.seconds();
        let queries = SourceQueries { source: queries.queries, space };
        let _reading = context.reserve(queries.reading_bytes(), PURPOSE_SEARCH)?;
        let run = SearchRun::new(context, options.target, lookup, &mut *sink)?;
        let search = IndexSearch::<T>::new(&needs, index, plan.method, admitted, cache);
        let mut search = search.carrying(columns.as_ref());
        let (at_once, query_bytes) = (search.queries_at_once(), IndexSearch::<T>::query_bytes(facts, sought));
        let read = |answer: &mut dyn FnMut(_) -> Result<()>| queries.each(context, at_once, answer);
        let ran = run.run(&mut search, queries.source.info().rows, query_bytes, read, sink)?;
        Ok(search.statistics(options.target, &plan, planning, &ran))
    })
}

/// Returns the cache of pages for a run that needs `needed` bytes. Memory that the run does not need is used to cache
/// pages, unless queries must not share them. The cache serves later searches too if `outer`, the context of the run,
/// keeps caches.
///
/// # Errors
/// Fails if other threads take the memory first.
fn page_cache(
    outer: &Context,
    run: &Context,
    index: &Index,
    strategy: WalkStrategy,
    needed: u64,
) -> Result<Arc<PageCache>> {
    if !strategy.shares {
        return Ok(Arc::new(PageCache::leaving(run, index, u64::MAX)?));
    }
    if !outer.keeps_caches() {
        return Ok(Arc::new(PageCache::leaving(run, index, needed)?));
    }
    let all = run.budget().free();
    run.budget().shrink(needed);
    // Left for searches that run at the same time, and for larger ones.
    Ok(index.kept_pages.cache(outer, index, needed.max(all / LEFT_PART)))
}

/// Returns the bytes that suffice for a search of an open index. This is a prediction from the manifest and the
/// options. `columns` describes the columns that hits carry, and `sink_bytes` is the memory of the sink.
pub(crate) fn search_bytes(
    context: &Context,
    facts: &IndexManifest,
    queries: QuerySources<'_>,
    options: &SearchOptions,
    columns: Option<ColumnNeeds>,
    sink_bytes: u64,
) -> u64 {
    let lookup = HitLookup { ids: facts.ids, naming_bytes: 0, columns };
    let handing = SearchRun::bytes_with(&lookup, sink_bytes);
    let sought = ChangedTarget { wanted: options.target, changes: None };
    let filter_bytes = FilteredVertices::least_bytes(facts, options.filter.is_some());
    with_coordinates!(facts.space(), T => {
        let strategy = WalkStrategy::default().shared_if(options.shares_pages);
        let needs = SearchNeeds { context, facts, source: queries.queries, sought, strategy, handing };
        bytes_of_any::<T>(&needs, queries.calibrate_with, options, filter_bytes)
    })
}

/// Returns the bytes that suffice for a search, no matter which method is chosen.
fn bytes_of_any<T: Coordinate>(
    needs: &SearchNeeds<'_>,
    calibrate_with: Option<&dyn VectorSource>,
    options: &SearchOptions,
    filter_bytes: u64,
) -> u64 {
    let SearchNeeds { context, facts, .. } = *needs;
    let ways = decide::longest_ways(facts, options).into_iter();
    let running = ways.map(|way| IndexSearch::<T>::least_bytes(needs, way)).max().unwrap_or(0);
    let of_search = running.saturating_add(needs.sought.all_hits_bytes(facts));
    filter_bytes.saturating_add(of_search.max(decide::deciding_bytes::<T>(context, facts, calibrate_with, options)))
}

/// Returns the schema of hits in an index, without the columns that hits may carry.
pub fn hit_schema(facts: &IndexManifest, queries: &dyn VectorSource) -> HitSchema {
    HitSchema::of(queries.info().ids, facts.ids, facts.metric)
}
