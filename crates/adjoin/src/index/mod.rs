//! A graph index on disk: *which vectors are near this query, by a walk over pages?*
//!
//! An index is a folder that [`build`] makes of a store and [`search()`] reads. It owns copies of the vectors: each lies on a
//! page with its neighbors in a Vamana graph (`page.rs`), near ones on one page where the order of `layout/` can have it so
//! (Starling: Wang et al., SIGMOD 2024). In memory are a code of each vector (`crate::quantize`), by which walks choose their
//! way, and a graph over a sample, which leads them in (`navigation.rs`). `walk.rs` is the walk of one query, `run.rs` keeps
//! many under way. How a search goes is decided in `decide.rs`; how long the list of a walk must be for a recall, in `promise.rs`: by a `calibration.rs`, which
//! rows of the index or other queries made, whose true hits `sample.rs` finds.

mod blocks;
mod build;
mod cache;
mod calibration;
mod decide;
mod drafting;
mod filtered_vertices;
mod layout;
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
mod within;

use std::ops::Range;
use std::path::Path;

pub use self::build::building_bytes;
use self::build::writing::inserted_bytes;
use self::build::{Build, check_rows, least_bytes};
use self::cache::PageCache;
use self::filtered_vertices::FilteredVertices;
pub use self::layout::Layout;
pub(crate) use self::layout::whole_order;
pub use self::manifest::IndexManifest;
pub(crate) use self::manifest::file_names;
pub(crate) use self::merge::{Merge, Newcomers, Repair};
pub use self::options::{GraphMethod, IndexOptions};
pub use self::reader::Index;
pub use self::relayout::{RelayoutReport, TriedLayout, relayout, try_layout};
use self::run::{IndexSearch, SearchMethod, SearchNeeds};
pub(crate) use self::source::IndexRows;
use self::unmerged_rows::ChangedTarget;
pub(crate) use self::unmerged_rows::{CollectionChanges, UnmergedRows};
pub(crate) use self::verify::verifying_bytes;
pub use self::verify::{IndexDamage, IndexVerifyReport, verify};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::geometry::{Coordinate, with_coordinates};
use crate::message::{Argument, message};
use crate::query::{SearchOptions, SearchRun, SourceQueries};
use crate::report::{SearchStatistics, Stopwatch};
use crate::sink::{HitSchema, HitSink};
use crate::source::VectorSource;
use crate::store::{Drafts, Kind, Store, check_target};

/// What memory is for, as a refusal says it.
const PURPOSE_BUILD: &str = "building the index";
const PURPOSE_SEARCH: &str = "this search";

/// What the build of an index did.
#[derive(Debug, Clone)]
pub struct BuiltIndex {
    /// The manifest that was published.
    pub manifest: IndexManifest,
    /// Bytes that went to and from the disk.
    pub io: BuildIo,
    /// Finding equal vectors, and the navigation graph.
    pub load_seconds: f64,
    /// Building the graph.
    pub graph_seconds: f64,
    /// Finding an order for the pages.
    pub layout_seconds: f64,
    /// Learning codes, and writing.
    pub write_seconds: f64,
    /// Learning which recall is reached.
    pub calibrate_seconds: f64,
}

/// Bytes that a build read and wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildIo {
    /// Of the store.
    pub bytes_read: u64,
    /// Of the index.
    pub bytes_written: u64,
    /// To temporary files, which were read again.
    pub spill_bytes: u64,
}

/// Builds an index of a store in `folder`; replaces one that is there where that is wanted (`force`). The same store and
/// options give the same bytes.
///
/// # Errors
/// Where an option is out of range, the budget is too small, something is at `folder` already, or the store cannot be read or
/// the index written. The folder is then as it was before.
pub fn build(
    context: &Context,
    store: &Store,
    folder: &Path,
    options: &IndexOptions,
    force: bool,
) -> Result<BuiltIndex> {
    build_of(context, store, folder, (options, force), 0..0)
}

/// Builds an index of a store whose `inserted` rows a merge inserts: their recall is measured apart, as that of a merge which
/// changes an index. An index in `folder` is replaced.
///
/// # Errors
/// As [`build`].
pub(crate) fn build_merged(
    context: &Context,
    store: &Store,
    folder: &Path,
    options: &IndexOptions,
    inserted: Range<u64>,
) -> Result<BuiltIndex> {
    build_of(context, store, folder, (options, true), inserted)
}

fn build_of(
    context: &Context,
    store: &Store,
    folder: &Path,
    (options, force): (&IndexOptions, bool),
    inserted: Range<u64>,
) -> Result<BuiltIndex> {
    options.check()?;
    if options.layout.goes_by_vectors() {
        let why =
            " goes by vectors, which a build does not hold; build the index in another order, then lay it out anew";
        return Err(Error::option(message![Argument::Layout.with(options.layout), why]));
    }
    check_rows(store)?;
    check_target(context, (folder, Kind::Index), force)?;
    let space = store.manifest().space();
    with_coordinates!(space, T => {
        let of_attributes = match store.attribute_file() {
            (Some(attributes), files) => attributes.reordering_bytes(files, store.manifest().rows)?,
            (None, _) => 0,
        };
        let beside = inserted_bytes(inserted.end - inserted.start);
        let least = least_bytes::<T>(context, store, options, of_attributes) + beside;
        let context = &context.for_run(least, PURPOSE_BUILD)?;
        let drafts = Drafts::begin(context, (folder, Kind::Index))?;
        Build { context, store, options, drafts, beside, force, inserted }.run::<T>(space)
    })
}

/// Finds what is wanted of each query and hands it to `sink`, in the order of the queries. The recall is promised for queries
/// that are distributed as the vectors of `like`, or as the rows of the index where there is none.
///
/// # Errors
/// Where an option is out of range, the queries or those of `like` are not of the index's kind, the budget is too small, the
/// index cannot be read, or the sink fails.
pub fn search(
    context: &Context,
    index: &Index,
    (queries, like): (&dyn VectorSource, Option<&dyn VectorSource>),
    options: &SearchOptions,
    sink: Box<dyn HitSink + '_>,
) -> Result<SearchStatistics> {
    find(context, index, (queries, like), (options, None), sink)
}

/// The same as if rows of the index were deleted, and there were others beside it, whose numbers follow on those of its
/// source. The recall is that of hits in the index; what lies beside it is found as its own search finds it. A condition is
/// asked of the rows in the index; those beside it must meet it.
///
/// # Errors
/// As [`search()`].
pub(crate) fn search_changed(
    context: &Context,
    index: &Index,
    queries: (&dyn VectorSource, Option<&dyn VectorSource>),
    options: &SearchOptions,
    changes: &CollectionChanges<'_>,
    sink: Box<dyn HitSink + '_>,
) -> Result<SearchStatistics> {
    find(context, index, queries, (options, Some(changes)), sink)
}

/// Searches an index, with changes where there are some.
fn find(
    context: &Context,
    index: &Index,
    (queries, like): (&dyn VectorSource, Option<&dyn VectorSource>),
    (options, changes): (&SearchOptions, Option<&CollectionChanges<'_>>),
    sink: Box<dyn HitSink + '_>,
) -> Result<SearchStatistics> {
    options.check()?;
    let space = index.facts().space();
    options.target.check(space.metric, index.folder())?;
    options.effort.check_for(Kind::Index)?;
    for source in [Some(queries), like].into_iter().flatten() {
        SourceQueries { source, space }.check(index.folder())?;
    }
    let facts = index.facts();
    let handing = SearchRun::least_bytes(facts.ids, 0, &*sink);
    let sought = ChangedTarget { wanted: options.target, changes };
    with_coordinates!(space, T => {
        let watch = Stopwatch::start();
        let needs = SearchNeeds { context, facts, source: queries, sought, strategy: options.walk, handing };
        let running = |way: SearchMethod| IndexSearch::<T>::least_bytes(&needs, way);
        let of_admitted = FilteredVertices::least_bytes(facts, (options.filter.is_some(), changes));
        let held = context.budget().total() - context.budget().free();
        let context = &context.naming_at_least(held + bytes_of_any::<T>(&needs, like, options, of_admitted));
        if of_admitted > 0 {
            drop(context.for_run(of_admitted + running(decide::least_way(facts, options)), PURPOSE_SEARCH)?);
        }
        let admitted = match (&options.filter, changes) {
            (Some(condition), changes) => {
                let deleted = changes.map(|changes| changes.deleted);
                Some(FilteredVertices::of(context, index, (condition, deleted))?)
            }
            (None, Some(changes)) => FilteredVertices::without(context, index, changes.deleted)?,
            (None, None) => None,
        };
        let admitted = admitted.as_ref();
        let plan = decide::decide::<T>(context, index, (queries, like), (options, admitted), &running)?;
        let context = &context.for_run(running(plan.method), PURPOSE_SEARCH)?;
        let enough = IndexSearch::<T>::enough_bytes(&needs, plan.method);
        let keep = if options.walk.shares { enough } else { u64::MAX };
        let cache = &PageCache::beside(context, index, keep)?;
        let planning = watch.seconds();
        let queries = SourceQueries { source: queries, space };
        let _reading = context.reserve(queries.reading_bytes(), PURPOSE_SEARCH)?;
        let run = SearchRun::new(context, options.target, facts.ids, 0, &*sink)?;
        let mut search = IndexSearch::<T>::new((context, index), plan.method, (sought, admitted), (options.walk, cache));
        let (at_once, query_bytes) = (search.queries_at_once(), IndexSearch::<T>::query_bytes(facts, sought));
        let read = |answer: &mut dyn FnMut(_) -> Result<()>| queries.each(context, at_once, answer);
        let ran = run.run(&mut search, query_bytes, read, sink)?;
        Ok(search.statistics(options.target, &plan, planning, &ran))
    })
}

/// Bytes that suffice for a search in an index that is open, as far as its manifest and the options tell, with a sink that holds
/// `sink_bytes`.
pub fn search_bytes(
    context: &Context,
    facts: &IndexManifest,
    (queries, like): (&dyn VectorSource, Option<&dyn VectorSource>),
    options: &SearchOptions,
    sink_bytes: u64,
) -> u64 {
    let handing = SearchRun::bytes_with(facts.ids, 0, sink_bytes);
    let sought = ChangedTarget { wanted: options.target, changes: None };
    let of_admitted = FilteredVertices::least_bytes(facts, (options.filter.is_some(), None));
    with_coordinates!(facts.space(), T => {
        let needs = SearchNeeds { context, facts, source: queries, sought, strategy: options.walk, handing };
        bytes_of_any::<T>(&needs, like, options, of_admitted)
    })
}

/// Bytes that suffice for a search whichever way is decided.
fn bytes_of_any<T: Coordinate>(
    needs: &SearchNeeds<'_>,
    like: Option<&dyn VectorSource>,
    options: &SearchOptions,
    of_admitted: u64,
) -> u64 {
    let SearchNeeds { context, facts, .. } = *needs;
    let ways = decide::longest_ways(facts, options).into_iter();
    let running = ways.map(|way| IndexSearch::<T>::least_bytes(needs, way)).max().unwrap_or(0);
    of_admitted.saturating_add(running.max(decide::deciding_bytes::<T>(context, facts, like, options)))
}

/// What is known of the hits of queries in an index.
pub fn hit_schema(facts: &IndexManifest, queries: &dyn VectorSource) -> HitSchema {
    HitSchema { query_ids: queries.info().ids, ids: facts.ids, metric: facts.metric, of_rows: false }
}
