//! Which queries a search of a store is about: those of a source, or its own rows.

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

/// What is asked.
#[derive(Clone, Copy)]
pub enum QuerySet<'a> {
    /// The vectors of a source, in their order.
    Source(&'a dyn VectorSource),
    /// The vectors of the store itself that may be found, in the order in which they lie there; none finds itself.
    Rows,
    /// All vectors of the store, whether they may be found or not; none finds itself.
    AllRows,
}

impl QuerySet<'_> {
    /// How many there are, those that are refused later among them.
    pub(super) fn count<T: Coordinate>(self, searcher: &Searcher<'_, T>) -> u64 {
        match self {
            Self::Source(source) => source.info().rows,
            Self::Rows => searcher.all_rows(),
            Self::AllRows => searcher.buckets.rows(),
        }
    }

    /// Their type once they are compared: their own where coordinates are floats, else that of the store.
    pub(super) fn vectors(self, space: Space<'_>) -> VectorType {
        match self {
            Self::Source(source) => SourceQueries { source, space }.vectors(),
            Self::Rows | Self::AllRows => space.vectors,
        }
    }

    /// Kind of their ids.
    pub(super) fn ids(self, store: IdKind) -> IdKind {
        match self {
            Self::Source(source) => source.info().ids,
            Self::Rows | Self::AllRows => store,
        }
    }

    /// Bytes that are held while they are read.
    pub(super) fn reading_bytes(self, buckets: &Buckets<'_>) -> u64 {
        match self {
            Self::Source(source) => SourceQueries { source, space: buckets.space() }.reading_bytes(),
            Self::Rows | Self::AllRows => {
                let of_buckets = (2 * least_read_ahead(buckets.extents(), true)).max(naming_bytes(buckets));
                of_buckets + gathering_bytes(buckets.ids(0))
            }
        }
    }

    /// Refuses queries of other dimensions than the vectors of a store.
    pub(super) fn check(self, space: Space<'_>, store: &Path) -> Result<()> {
        match self {
            Self::Source(source) => SourceQueries { source, space }.check(store),
            Self::Rows | Self::AllRows => Ok(()),
        }
    }

    /// Hands all queries to `take`, at most `at_once` at a time.
    ///
    /// # Errors
    /// Where they cannot be read or are none that the store can have, or `take` fails.
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
