//! Searches of a store, which find the nearest rows of each query, or all rows within a threshold.
//!
//! A query probes the buckets with the nearest centers. A rule (`crate::plan::ProbeRule`) limits their number.
//! `calibration.rs` sets the threshold of the rule for the target recall. An exact search uses a bound instead, and
//! probes every bucket that may hold a hit. The queries of a batch are known before any bucket is read: `probing.rs`
//! measures queries against centers, `visits.rs` lists the queries of each bucket, and `probe_pass.rs` reads a bucket
//! once and compares it with all of its queries. A single query takes the same path as ten thousand.

mod calibration;
mod decide;
mod nearest;
mod of_rows;
mod probe_pass;
mod probe_sample;
mod probing;
mod queries;
mod run;
mod searcher;
mod visits;

pub(crate) use self::calibration::CalibrationSamples;
pub(crate) use self::calibration::NOTED as CALIBRATED_K_MAX;
pub(crate) use self::calibration::VECTORS as CALIBRATION_VECTORS;
pub(crate) use self::calibration::least_bytes as least_calibration_bytes;
pub(crate) use self::decide::{ProbePlan, recall_to_learn};
pub use self::nearest::{NearestOptions, nearest};
pub(crate) use self::of_rows::{NearRows, least_near_rows};
pub(crate) use self::probe_pass::ProbePass;
pub(crate) use self::probe_sample::{ProbeSample, SampledQuery};
pub(crate) use self::probing::Prober;
pub(crate) use self::queries::QuerySet;
pub use self::queries::SearchQueries;
use self::run::{CarriedColumns, StoreSearch};
pub(crate) use self::searcher::{LoadedCenters, Queries, Searcher};
pub(crate) use self::visits::Visits;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coding, Coordinate, with_coordinates};
use crate::base::predicate::Predicate;
use crate::base::report::SearchStatistics;
use crate::load::{Buckets, Subset, coding_bytes, fit_coding, starts};
use crate::query::{HitLookup, SearchOptions, SearchRun, naming_bytes};
use crate::sink::{HitSchema, HitSink};
use crate::store::{FilterBitmap, FolderKind, ResultColumns, Store};

/// Purpose of the memory in error messages.
const PURPOSE: &str = "this search";

/// Finds the hits of each query and passes them to `sink`, in the order of the queries. The promised recall holds for
/// queries with the distribution of the calibration queries.
///
/// # Errors
/// If queries or calibration queries do not match the type of the store, if the budget is too small, if the store
/// cannot be read, or if the sink fails.
pub fn search(
    context: &Context,
    store: &Store,
    queries: SearchQueries<'_>,
    options: &SearchOptions,
    sink: Box<dyn HitSink + '_>,
) -> Result<SearchStatistics> {
    search_for(context, store, queries, options, None, sink)
}

/// Options of a search in which the queries are the rows of the store, which look for their neighbors.
#[derive(Debug, Clone, Copy)]
struct Neighbors {
    /// Threshold that neighbors must also meet, if any.
    within: Option<Predicate>,
}

/// Runs a search of a store. `neighbors` is set if the rows of the store look for their neighbors.
fn search_for(
    context: &Context,
    store: &Store,
    search: SearchQueries<'_>,
    options: &SearchOptions,
    neighbors: Option<Neighbors>,
    sink: Box<dyn HitSink + '_>,
) -> Result<SearchStatistics> {
    let buckets = Buckets::of(store);
    let (queries, calibration_queries) = (search.set(), search.calibration_set());
    [queries, calibration_queries].iter().try_for_each(|set| set.check(buckets.space(), store.folder()))?;
    options.check()?;
    options.target.check(store.manifest().metric, store.folder())?;
    options.effort.check_for(FolderKind::Store)?;
    options.filter.as_ref().map_or(Ok(()), |_| store.check_filtered())?;
    // Floats are rounded to bytes if possible, since comparing floats costs several times as much. Lifted vectors are
    // not rounded: their differences may be smaller than the resolution of the codes.
    let may_round = neighbors.is_some() && buckets.space().is_of_floats() && buckets.space().lift.is_none();
    let columns = store.result_columns(&options.columns)?;
    let needs = columns.as_ref().map(ResultColumns::needs).transpose()?;
    let lookup = HitLookup { ids: store.manifest().ids, naming_bytes: naming_bytes(&buckets), columns: needs };
    let handing = SearchRun::least_bytes(&lookup, &*sink);
    let least = least_bytes(context, &buckets, search, options, may_round);
    let least = least.saturating_add(handing);
    let more = options.target.all_hits_bytes(buckets.rows()).saturating_add(lookup.long_row_bytes());
    let context = &context.naming_more(least.saturating_add(more)).for_run(least, PURPOSE)?;
    let spare = context.budget().free() - least;
    let coding = if may_round { fit_coding(context, &buckets, options.seed, PURPOSE)? } else { None };
    // If the codes do not distinguish neighbors, nearly every row would have to be decided by its floats.
    let rounded = buckets.rounded(coding.filter(Coding::tells_neighbors_apart));
    let passing = options.filter.as_ref().map(|condition| store.passing(context, condition)).transpose()?;
    let places_rows = passing.is_some() || columns.is_some();
    let starts = if places_rows { starts(store.extents()) } else { Vec::new() };
    let _of_reading =
        context.reserve(search.reading_bytes(&rounded) + (starts.len() * size_of::<u32>()) as u64, PURPOSE)?;
    let subset = passing.as_ref().map(|passing| Subset { places: passing.rows(), starts: &starts });
    let buckets = &rounded.seeking(subset);
    with_coordinates!(buckets.space(), T => {
        let of = Searcher::<T>::bytes_of_query(buckets, queries.vectors(buckets.space()), options.target);
        let searcher = Searcher::<T>::new(context, buckets, spare)?.within(neighbors.and_then(|of| of.within));
        let searcher = &match subset {
            Some(subset) => searcher.among(subset),
            None => searcher,
        };
        let carried = columns.as_ref().map(|columns| CarriedColumns { columns, starts: &starts });
        let search = StoreSearch { searcher, store, queries, calibration_queries, options, carried, query_bytes: of };
        search.run(lookup, sink)
    })
}

/// Returns the least memory of a search in bytes. If floats may be rounded, it suffices whether they are or not, and
/// also for the sampled vectors that decide this.
fn least_bytes(
    context: &Context,
    buckets: &Buckets<'_>,
    search: SearchQueries<'_>,
    options: &SearchOptions,
    may_round: bool,
) -> u64 {
    let finding = || FilterBitmap::least_bytes(buckets.rows()) + buckets.at(0).0.parts_bytes();
    let of_condition = options.filter.as_ref().map_or(0, |_| finding());
    // Place of the first row of each bucket, with which columns are found.
    let of_columns = if options.columns.is_empty() { 0 } else { u64::from(buckets.count()) * size_of::<u32>() as u64 };
    let queries = search.set();
    let mut least =
        with_coordinates!(buckets.space(), T => least_of_searching::<T>(context, buckets, queries, options));
    if may_round {
        least = least.max(least_of_searching::<u8>(context, buckets, queries, options)).max(coding_bytes(buckets));
    }
    search.reading_bytes(buckets).saturating_add(least).saturating_add(of_condition + of_columns)
}

/// Returns the part of the least memory that depends on the type of coordinates, in bytes.
fn least_of_searching<T: Coordinate>(
    context: &Context,
    buckets: &Buckets<'_>,
    queries: QuerySet<'_>,
    options: &SearchOptions,
) -> u64 {
    let of = Searcher::<T>::bytes_of_query(buckets, queries.vectors(buckets.space()), options.target);
    // The number of rows that pass the filter is not known yet, so it is assumed that all do.
    let all = buckets.rows();
    let asked = if let QuerySet::Source(source) = queries { source.info().rows } else { all };
    let calibrates = recall_to_learn(options.effort, asked, all).is_some();
    let of_calibration = if calibrates { calibration::least_bytes::<T>(buckets, options.target) } else { 0 };
    Searcher::<T>::least_bytes(buckets, context.threads, of.saturating_mul(2)).saturating_add(of_calibration)
}

/// Returns the schema of the hits of queries in a store, without columns.
pub fn hit_schema(store: &Store, queries: SearchQueries<'_>) -> HitSchema {
    let manifest = store.manifest();
    HitSchema::of(queries.set().ids(manifest.ids), manifest.ids, manifest.metric)
}

impl Store {
    /// Largest K for which a search of a store is calibrated. A server answers queries for a larger K exactly.
    pub const CALIBRATED_K_MAX: u64 = CALIBRATED_K_MAX;

    /// Returns the bytes of all buckets, with their ids.
    pub fn bucket_bytes(&self) -> u64 {
        Buckets::of(self).bytes(true)
    }
}
