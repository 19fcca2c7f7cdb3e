//! Finds the nearest neighbors of each row of a store.
//!
//! The rows are queries in the order of the buckets, so the queries of a batch share most of the buckets that they
//! probe.

use super::queries::SearchQueries;
use super::{Neighbors, calibration, hit_schema, search_for};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::Metric;
use crate::base::predicate::Predicate;
use crate::base::report::{CommonStatistics, NearestCounts, NearestStatistics, SearchStatistics};
use crate::execute::Nearest;
use crate::query::{QueryTarget, SearchEffort, SearchOptions};
use crate::sink::{HitSchema, HitSink};
use crate::store::Store;

/// Options of a search for the neighbors of each row.
#[derive(Debug, Clone, Copy)]
pub struct NearestOptions {
    /// Number of neighbors to find for each row, not counting the row itself. At least 1.
    pub k: u64,
    /// Threshold that neighbors must also meet, if any. It is a distance or, under cosine, a similarity.
    pub within: Option<f64>,
    /// Effort of the search.
    pub effort: SearchEffort,
    /// Seed of the calibration sample.
    pub seed: u64,
}

impl NearestOptions {
    /// Returns the approximate memory in bytes of a search for neighbors among `rows` rows, in addition to the memory
    /// of a join of these rows. Used before a store exists.
    pub(crate) fn bytes_besides_join(&self, rows: u64) -> u64 {
        let target = QueryTarget::Nearest(self.k.saturating_add(1)).among(rows);
        // At least two queries are in memory, and their hits are also sorted, named and delivered.
        let of_hits = 8 * Nearest::memory_bytes(target.hits_max() as u64);
        of_hits.saturating_add(calibration::sample_bytes_max(target))
    }

    /// Returns the threshold as a predicate of the store's metric.
    fn predicate(&self, metric: Metric) -> Result<Option<Predicate>> {
        let Some(within) = self.within else { return Ok(None) };
        let given = Argument::Within.with(within);
        let predicate = match metric {
            Metric::L2 => Predicate::l2(within)
                .map_err(|_| Error::option(message![given, " is not a distance; give a finite number of at least 0"])),
            Metric::Cosine => Predicate::cosine(within)
                .map_err(|_| Error::option(message![given, " is not a cosine; give a similarity between -1 and 1"])),
            Metric::Ip => Err(Error::option(message!["inner products have no threshold; leave out ", given])),
        };
        predicate.map(Some)
    }
}

/// Finds the nearest neighbors of each row of a store and passes them to `sink`, in the order of the rows in the store.
///
/// # Errors
/// If an option is out of range, if the budget is too small, if the store cannot be read, or if the sink fails.
pub fn nearest(
    context: &Context,
    store: &Store,
    options: &NearestOptions,
    sink: Box<dyn HitSink + '_>,
) -> Result<NearestStatistics> {
    let NearestOptions { k, within, effort, seed } = *options;
    let search = SearchOptions::new(QueryTarget::of(Some(k), None, None)?, effort, seed);
    let neighbors = Neighbors { within: options.predicate(store.manifest().metric)? };
    let rows = SearchQueries::default();
    let SearchStatistics { common, search } = search_for(context, store, rows, &search, Some(neighbors), sink)?;
    // A row is not compared with itself.
    let others = common.rows.saturating_sub(1).max(1);
    let nearest = NearestCounts {
        k,
        within,
        neighbors: search.hits,
        buckets: store.manifest().buckets.into(),
        probes_per_row: search.probes_per_query.unwrap_or_default(),
        distances_per_row: search.distances_per_query,
        distances_share: search.distances_per_query / others as f64,
        center_distances_per_row: search.center_distances_per_query.unwrap_or_default(),
        bytes_per_row: search.bytes_per_query,
        rows_per_second: search.queries_per_second,
    };
    Ok(NearestStatistics { common: CommonStatistics { command: "join", ..common }, nearest })
}

impl Store {
    /// Returns the schema of the neighbors of a store's rows.
    pub fn neighbor_schema(&self) -> HitSchema {
        hit_schema(self, SearchQueries::default())
    }
}
