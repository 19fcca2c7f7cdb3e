//! Here are queries; what is nearest to each in this store?
//!
//! A query looks into the buckets whose centers are nearest, as far as a rule goes (`crate::plan::ProbeRule`), whose threshold
//! `calibration.rs` sets so that enough is found, or wherever a bound says that something may be. A batch of queries is known
//! before any bucket is read: `probing.rs` measures queries against centers, `visits.rs` says who looks into which bucket,
//! `looking.rs` reads a bucket once and compares it with all of its queries. One query and ten thousand are the same.

mod calibration;
mod decide;
mod nearest;
mod of_rows;
mod probe_pass;
mod probing;
mod queries;
mod run;
mod searcher;
mod visits;

pub(crate) use self::calibration::CalibrationSamples;
pub use self::calibration::NOTED as CALIBRATED_K_MAX;
pub(crate) use self::calibration::VECTORS as CALIBRATION_VECTORS;
pub(crate) use self::calibration::least_bytes as least_calibration_bytes;
pub(crate) use self::decide::{ProbePlan, recall_to_learn};
pub use self::nearest::{NearestOptions, nearest, neighbor_schema};
pub(crate) use self::of_rows::{NearRows, least_near_rows};
pub(crate) use self::probe_pass::ProbePass;
pub use self::queries::QuerySet;
use self::run::StoreSearch;
pub(crate) use self::searcher::{Queries, Searcher};
pub(crate) use self::visits::Visits;
use crate::context::Context;
use crate::error::Result;
use crate::geometry::{Coding, Coordinate, with_coordinates};
use crate::load::{Buckets, Subset, coding_bytes, fit_coding, starts};
use crate::predicate::Predicate;
use crate::query::{SearchOptions, SearchRun, naming_bytes};
use crate::report::SearchStatistics;
use crate::sink::{HitSchema, HitSink};
use crate::store::{FilterBitmap, Kind, Store};

/// What memory is for, as a refusal says it.
const PURPOSE: &str = "this search";

/// Finds what is wanted of each query and hands it to `sink`, in the order of the queries. The recall is promised for queries
/// that are distributed as the vectors of `like`.
///
/// # Errors
/// Where the queries or those of `like` are not of the store's kind, the budget is too small, the store cannot be read, or the sink fails.
pub fn search(
    context: &Context,
    store: &Store,
    (queries, like): (QuerySet<'_>, QuerySet<'_>),
    options: &SearchOptions,
    sink: Box<dyn HitSink + '_>,
) -> Result<SearchStatistics> {
    search_for(context, store, (queries, like), (options, None), sink)
}

/// Rows of a store look for their neighbors.
#[derive(Debug, Clone, Copy)]
struct Neighbors {
    /// Only those within a threshold are found, if there is one.
    within: Option<Predicate>,
}

/// The same, for neighbors of rows maybe.
fn search_for(
    context: &Context,
    store: &Store,
    (queries, like): (QuerySet<'_>, QuerySet<'_>),
    (options, neighbors): (&SearchOptions, Option<Neighbors>),
    sink: Box<dyn HitSink + '_>,
) -> Result<SearchStatistics> {
    let buckets = Buckets::of(store);
    [queries, like].iter().try_for_each(|set| set.check(buckets.space(), store.folder()))?;
    options.check()?;
    options.target.check(store.manifest().metric, store.folder())?;
    options.effort.check_for(Kind::Store)?;
    options.filter.as_ref().map_or(Ok(()), |_| store.check_filtered())?;
    // Queries from elsewhere are like any rows, whichever of these may be found.
    let like = match (queries, like) {
        (QuerySet::Source(_), QuerySet::Rows) => QuerySet::AllRows,
        _ => like,
    };
    // Floats cost several times what bytes do; lifted ones may differ in less than codes tell apart.
    let may_round = neighbors.is_some() && buckets.space().is_of_floats() && buckets.space().lift.is_none();
    let handing = SearchRun::least_bytes(store.manifest().ids, naming_bytes(&buckets), &*sink);
    let least = least_bytes(context, &buckets, (queries, like), (options, may_round));
    let context = &context.for_run(least.saturating_add(handing), PURPOSE)?;
    let coding = if may_round { fit_coding(context, &buckets, options.seed, PURPOSE)? } else { None };
    let rounded = buckets.rounded(coding.filter(Coding::tells_neighbors_apart));
    let passing = options.filter.as_ref().map(|condition| store.passing(context, condition)).transpose()?;
    let starts = if passing.is_some() { starts(store.extents()) } else { Vec::new() };
    let of_reading = queries.reading_bytes(&rounded).max(like.reading_bytes(&rounded));
    let _of_reading = context.reserve(of_reading + (starts.len() * size_of::<u32>()) as u64, PURPOSE)?;
    let subset = passing.as_ref().map(|passing| Subset { places: passing.rows(), starts: &starts });
    let buckets = &rounded.seeking(subset);
    with_coordinates!(buckets.space(), T => {
        let of = Searcher::<T>::bytes_of_query(buckets, queries.vectors(buckets.space()), options.target);
        let searcher = Searcher::<T>::new(context, buckets)?.within(neighbors.and_then(|of| of.within));
        let searcher = &match subset {
            Some(subset) => searcher.among(subset),
            None => searcher,
        };
        StoreSearch { searcher, store, queries, calibration_queries: like, options, query_bytes: of }.run(sink)
    })
}

/// The least bytes of a search. Where floats may be rounded, that is decided by vectors that are drawn.
fn least_bytes(
    context: &Context,
    buckets: &Buckets<'_>,
    (queries, like): (QuerySet<'_>, QuerySet<'_>),
    (options, may_round): (&SearchOptions, bool),
) -> u64 {
    let finding = || FilterBitmap::least_bytes(buckets.rows()) + buckets.at(0).0.parts_bytes();
    let of_condition = options.filter.as_ref().map_or(0, |_| finding());
    let of_reading = queries.reading_bytes(buckets).max(like.reading_bytes(buckets));
    let mut least =
        with_coordinates!(buckets.space(), T => least_of_searching::<T>(context, buckets, queries, options));
    if may_round {
        least = least.max(least_of_searching::<u8>(context, buckets, queries, options)).max(coding_bytes(buckets));
    }
    of_reading.saturating_add(least).saturating_add(of_condition)
}

/// The same of what goes by the type of coordinates.
fn least_of_searching<T: Coordinate>(
    context: &Context,
    buckets: &Buckets<'_>,
    queries: QuerySet<'_>,
    options: &SearchOptions,
) -> u64 {
    let of = Searcher::<T>::bytes_of_query(buckets, queries.vectors(buckets.space()), options.target);
    // Which rows may be found is not known yet: at most all.
    let all = buckets.rows();
    let asked = if let QuerySet::Source(source) = queries { source.info().rows } else { all };
    let calibrates = recall_to_learn(options.effort, asked, all).is_some();
    let of_calibration = if calibrates { calibration::least_bytes::<T>(buckets, options.target) } else { 0 };
    Searcher::<T>::least_bytes(buckets, context.threads, of.saturating_mul(2)).saturating_add(of_calibration)
}

/// What is known of the hits of queries in a store.
pub fn hit_schema(store: &Store, queries: QuerySet<'_>) -> HitSchema {
    let manifest = store.manifest();
    HitSchema { query_ids: queries.ids(manifest.ids), ids: manifest.ids, metric: manifest.metric, of_rows: false }
}
