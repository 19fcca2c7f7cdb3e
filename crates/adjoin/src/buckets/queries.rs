//! Queries of a search of a store: the vectors of a source, or the store's own rows.

use std::path::Path;

use super::searcher::Searcher;
use crate::error::Result;
use crate::geometry::{Coordinate, Space};
use crate::load::{Buckets, ReadAhead, least_read_ahead};
use crate::options::VectorType;
use crate::plan::Load;
use crate::query::naming_bytes;
use crate::query::{Gathering, QueryBatch, SourceQueries, gathering_bytes};
use crate::source::{IdKind, VectorSource};

/// Set of queries.
#[derive(Clone, Copy)]
pub enum QuerySet<'a> {
    /// Vectors of a source, in their order.
    Source(&'a dyn VectorSource),
    /// Rows of the store that pass the filter, in the order of the store. A row does not find itself.
    Rows,
    /// All rows of the store, whether they pass the filter or not. A row does not find itself.
    AllRows,
}

impl QuerySet<'_> {
    /// Returns the number of queries, including rows of a source that are rejected later.
    pub(super) fn count<T: Coordinate>(self, searcher: &Searcher<'_, T>) -> u64 {
        match self {
            Self::Source(source) => source.info().rows,
            Self::Rows => searcher.all_rows(),
            Self::AllRows => searcher.buckets.rows(),
        }
    }

    /// Returns the type in which the queries are compared: their own type if coordinates are floats, otherwise the type
    /// of the store.
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

    /// Returns the bytes held while the queries are read.
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
        let mut all = Gathering::new((context, at_once), (buckets.vectors(), buckets.ids(0)), Some(Vec::new()), take);
        let loads = Load::each(buckets.count());
        let memory = least_read_ahead(buckets.extents(), true);
        let ahead = ReadAhead::new(context, "queries", buckets, true, memory, loads, &context.cancel)?;
        let mut ahead = if only.is_some() { ahead.in_parts() } else { ahead };
        while let Some(stored) = ahead.next_bucket()? {
            let members = stored.members(buckets)?;
            let numbered = (members.first..).zip(members.vectors.chunks_exact(bytes)).zip(&members.rows);
            let counts = |member| only.is_none_or(|only| only.contains(stored.number(), member));
            for ((k, vector), &row) in numbered.filter(|((k, _), _)| counts(*k)) {
                all.add(row, (&members.ids, (k - members.first) as usize), Some((stored.number(), k)), |stored| {
                    stored.extend_from_slice(vector);
                    Ok(())
                })?;
            }
        }
        all.finish()
    }
}
