//! Queries of a search of a store: the vectors of a source, or the store's own rows.

use std::path::Path;

use super::searcher::Searcher;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space};
use crate::base::message::{Argument, message};
use crate::base::options::VectorType;
use crate::load::{Buckets, ReadAhead, least_read_ahead};
use crate::plan::Load;
use crate::query::{Gathering, QueryBatch, QueryRow, QuerySources, SourceQueries, gathering_bytes, naming_bytes};
use crate::source::{IdKind, VectorSource};
use crate::store::FolderKind;

/// Set of queries, or of calibration queries.
#[derive(Clone, Copy)]
pub(crate) enum QuerySet<'a> {
    /// Vectors of a source, in the order of the source.
    Source(&'a dyn VectorSource),
    /// Rows of the store that pass the filter, in the order of the store. A row is not its own hit.
    Rows,
    /// All rows of the store, even those that do not pass the filter. A row is not its own hit.
    AllRows,
}

/// Queries of a search, and the queries with which its recall is calibrated.
#[derive(Clone, Copy, Default)]
pub struct SearchQueries<'a> {
    /// Vectors that are the queries. If `None`, the rows of the store that pass the filter are the queries; a row is
    /// not its own hit.
    pub source: Option<&'a dyn VectorSource>,
    /// Vectors with the same distribution as the queries. If `None`, the calibration samples rows of the folder.
    pub calibrate_with: Option<&'a dyn VectorSource>,
}

impl<'a> SearchQueries<'a> {
    /// Creates queries whose recall is calibrated with rows of the folder.
    pub fn new(source: &'a dyn VectorSource) -> Self {
        Self { source: Some(source), calibrate_with: None }
    }

    /// Returns the queries and the calibration queries as sources. Fails if there is no source of queries: only for a
    /// store can its own rows be the queries.
    pub(crate) fn into_sources(self, kind: FolderKind) -> Result<QuerySources<'a>> {
        let queries = self.source.ok_or_else(|| {
            Error::option(message![
                format!("the rows of {kind} cannot be its own queries; search a store, or give a file as "),
                Argument::Queries
            ])
        })?;
        Ok(QuerySources { queries, calibrate_with: self.calibrate_with })
    }

    /// Returns the set of the queries.
    pub(super) fn set(self) -> QuerySet<'a> {
        self.source.map_or(QuerySet::Rows, QuerySet::Source)
    }

    /// Returns the set from which calibration queries are sampled.
    pub(super) fn calibration_set(self) -> QuerySet<'a> {
        match (self.calibrate_with, self.source) {
            (Some(source), _) => QuerySet::Source(source),
            // Queries from a source may resemble any row, even one that does not pass the filter.
            (None, Some(_)) => QuerySet::AllRows,
            (None, None) => QuerySet::Rows,
        }
    }

    /// Returns the memory in bytes for reading queries or calibration queries.
    pub(super) fn reading_bytes(self, buckets: &Buckets<'_>) -> u64 {
        self.set().reading_bytes(buckets).max(self.calibration_set().reading_bytes(buckets))
    }
}

impl QuerySet<'_> {
    /// Returns the number of queries. Includes rows of a source that are rejected later.
    pub(super) fn count<T: Coordinate>(self, searcher: &Searcher<'_, T>) -> u64 {
        match self {
            Self::Source(source) => source.info().rows,
            Self::Rows => searcher.all_rows(),
            Self::AllRows => searcher.buckets.rows(),
        }
    }

    /// Returns the type in which queries are compared. If coordinates are floats, it is the queries' own type;
    /// otherwise it is the type of the store.
    pub(super) fn vectors(self, space: Space<'_>) -> VectorType {
        match self {
            Self::Source(source) => SourceQueries { source, space }.vectors(),
            Self::Rows | Self::AllRows => space.vectors,
        }
    }

    /// Returns the kind of the queries' ids.
    pub(super) fn ids(self, store: IdKind) -> IdKind {
        match self {
            Self::Source(source) => source.info().ids,
            Self::Rows | Self::AllRows => store,
        }
    }

    /// Returns the memory in bytes for reading the queries.
    pub(super) fn reading_bytes(self, buckets: &Buckets<'_>) -> u64 {
        match self {
            Self::Source(source) => SourceQueries { source, space: buckets.space() }.reading_bytes(),
            Self::Rows | Self::AllRows => {
                let of_buckets = (2 * least_read_ahead(buckets.extents(), true)).max(naming_bytes(buckets));
                of_buckets + gathering_bytes(buckets.ids(0))
            }
        }
    }

    /// Checks that the queries and the vectors of the store have the same dimension.
    pub(super) fn check(self, space: Space<'_>, store: &Path) -> Result<()> {
        match self {
            Self::Source(source) => SourceQueries { source, space }.check(store),
            Self::Rows | Self::AllRows => Ok(()),
        }
    }

    /// Passes all queries to `take`, at most `at_once` at a time.
    ///
    /// # Errors
    /// If a query cannot be read or converted, or if `take` fails.
    pub(super) fn each<T: Coordinate>(
        self,
        searcher: &Searcher<'_, T>,
        at_once: usize,
        take: &mut dyn FnMut(QueryBatch) -> Result<()>,
    ) -> Result<()> {
        let Searcher { context, buckets, subset, .. } = *searcher;
        if let Self::Source(source) = self {
            return SourceQueries { source, space: buckets.space() }.each(context, at_once, take);
        }
        let only = if matches!(self, Self::Rows) { subset } else { None };
        let bytes = buckets.vectors().bytes();
        let mut all =
            Gathering::new(context, at_once, QueryBatch::empty(buckets.vectors(), buckets.ids(0), true), take);
        let loads = Load::each(buckets.count());
        let memory = least_read_ahead(buckets.extents(), true);
        let ahead = ReadAhead::new(context, "queries", buckets, true, memory, loads, &context.cancel)?;
        // If there is a filter, only the parts of buckets that contain passing rows are read.
        let mut ahead = if only.is_some() { ahead.in_parts() } else { ahead };
        while let Some(stored) = ahead.next_bucket()? {
            let members = stored.members(buckets)?;
            let numbered = (members.first..).zip(members.vectors.chunks_exact(bytes)).zip(&members.rows);
            let counts = |member| only.is_none_or(|only| only.contains(stored.number(), member));
            // Rows of a bucket that are in one batch are compared with each other, whatever their probes are. If all of
            // them are, the results do not depend on how many rows fit in memory.
            all.keep_together((members.first..).take(members.rows.len()).filter(|&k| counts(k)).count())?;
            for ((k, vector), &row) in numbered.filter(|((k, _), _)| counts(*k)) {
                let (id_at, place) = ((k - members.first) as usize, Some((stored.number(), k)));
                all.add(QueryRow { row, ids: &members.ids, id_at, place }, |stored| {
                    stored.extend_from_slice(vector);
                    Ok(())
                })?;
            }
        }
        all.finish()
    }
}
