//! Searches of an index as if rows had come and gone: an index on disk never changes, so what is gone is left out of what its
//! walks find (`admitted.rs`), and what has come lies beside it and is searched there (FreshDiskANN: Singh et al., 2021).

use super::Index;
use crate::context::Context;
use crate::error::Result;
use crate::execute::{Hit, Nearest};
use crate::options::VectorType;
use crate::query::{IdRoom, NamedHits, Naming, QueryTarget};
use crate::row_numbers::RowSet;
use crate::source::{IdKind, Ids};

/// What is not in an index any more, and what is found beside it.
#[derive(Clone, Copy)]
pub(crate) struct CollectionChanges<'a> {
    /// Entries that no search finds, of all that the index has: those of first rows of vertices have the numbers of these, the
    /// others follow, by vertex.
    pub(crate) deleted: &'a RowSet,
    /// Rows that are not in the index.
    pub(crate) beside: &'a dyn UnmergedRows,
}

/// Rows that are searched with those of an index.
pub(crate) trait UnmergedRows: Sync {
    /// How many there are.
    fn rows(&self) -> u64;

    /// Bytes that [`UnmergedRows::find`] takes on all threads, what queries find apart.
    fn finding_bytes(&self, context: &Context) -> u64;

    /// What some queries (stored end to end, of this type) find among them, each nearest first; `row` of a hit is its number
    /// among them, from 0, plus `first_row`, `place.0` that number. None where memory does not hold what queries without a limit
    /// on their hits find.
    ///
    /// # Errors
    /// Where memory does not suffice, or the work is cancelled.
    fn find(
        &self,
        context: &Context,
        queries: (VectorType, &[u8]),
        wanted: QueryTarget,
        first_row: u64,
    ) -> Result<Option<Vec<Vec<Hit>>>>;

    /// Appends the id of a row to ids of the same kind if there is room for it; returns whether there is.
    fn append_id(&self, number: u32, ids: &mut Ids, room: &mut IdRoom<'_>) -> bool;
}

/// `place.1` of hits that lie beside the index; those in it have 0.
const BESIDE: u32 = 1;

/// What is looked for, and what has changed since the index was built.
#[derive(Clone, Copy)]
pub(super) struct ChangedTarget<'a> {
    pub(super) wanted: QueryTarget,
    pub(super) changes: Option<&'a CollectionChanges<'a>>,
}

impl ChangedTarget<'_> {
    /// How many rows there are.
    pub(super) fn rows(self, index: &Index) -> u64 {
        index.facts().rows + self.changes.map_or(0, |changes| changes.beside.rows())
    }

    /// Bytes of the hits of a query that lie beside the index, where memory for so many is taken at once.
    pub(super) fn bytes_of_hits(self) -> u64 {
        let rows = self.changes.map_or(0, |changes| changes.beside.rows());
        match self.wanted.among(rows) {
            QueryTarget::Nearest(0) | QueryTarget::Within(_) => 0,
            QueryTarget::Nearest(k) => Nearest::memory_bytes(k),
        }
    }

    /// Bytes that it takes to find them.
    pub(super) fn finding_bytes(self, context: &Context) -> u64 {
        self.changes.map_or(0, |changes| changes.beside.finding_bytes(context))
    }

    /// Adds what queries find beside an index to what they found in it, and keeps the nearest of both. None where memory does
    /// not hold that.
    ///
    /// # Errors
    /// Those of [`UnmergedRows::find`].
    pub(super) fn joined(
        self,
        (context, index): (&Context, &Index),
        queries: (VectorType, &[u8]),
        mut found: Vec<Vec<Hit>>,
    ) -> Result<Option<Vec<Vec<Hit>>>> {
        let Some(CollectionChanges { beside, .. }) = self.changes.filter(|changes| changes.beside.rows() > 0) else {
            return Ok(Some(found));
        };
        let held = self.wanted.held_bytes(found.iter().map(|hits| hits.len() as u64).sum());
        let Ok(_held) = context.budget().reserve(held) else { return Ok(None) };
        let wanted = self.wanted.among(beside.rows());
        let Some(more) = beside.find(context, queries, wanted, index.facts().source_rows)? else { return Ok(None) };
        for (hits, more) in found.iter_mut().zip(more) {
            hits.extend(more.into_iter().map(|hit| Hit { place: (hit.place.0, BESIDE), ..hit }));
            hits.sort(); // of two parts that are sorted
            hits.truncate(self.wanted.hits_max());
        }
        Ok(Some(found))
    }

    /// Finds the ids of the hits at some places.
    ///
    /// # Errors
    /// Where those of the index cannot be read, or are not as written.
    pub(super) fn name(
        self,
        index: &Index,
        kind: IdKind,
        (places, room): (&[(u32, u32)], &mut IdRoom<'_>),
    ) -> Result<Option<NamedHits>> {
        let mut naming = Naming::new(kind, places);
        let mut reader = index.id_reader(kind);
        while let Some((number, whose)) = naming.place() {
            let fits = match self.changes.filter(|_| whose == BESIDE) {
                Some(CollectionChanges { beside, .. }) => beside.append_id(number, naming.ids(), room),
                None => {
                    let appended = reader.append(number, naming.ids(), &mut |bytes| room.take_id(bytes));
                    appended.map_err(|unreadable| index.unreadable_id(unreadable))?
                }
            };
            if !fits {
                return Ok(None);
            }
            naming.advance();
        }
        Ok(Some(naming.finish()))
    }
}
