//! What may be found, where a condition leaves the rest out; and how it is looked for.

use adjoin_device::Reservation;

use super::{Index, PURPOSE_SEARCH};
use crate::context::Context;
use crate::error::Result;
use crate::execute::Hit;
use crate::row_numbers::{RankedSet, RowSet};
use crate::sql::Condition;
use crate::store::Passing;

/// What a read costs, with all that a walk does about it, in distances by codes: some tens of microseconds to some nanoseconds.
const READ_COST: f64 = 2_500.0;
/// Reads of a walk for each candidate that it expands, about, as a page brings others too.
const READS_OF_CANDIDATE: f64 = 0.6;

/// Rows that meet a condition, and the vertices that have any.
pub(super) struct Admitted {
    /// By entry.
    rows: Passing,
    vertices: RankedSet,
    _memory: Reservation,
}

impl Admitted {
    /// Those of an index that meet a condition.
    ///
    /// # Errors
    /// Where the index has not the attributes that are asked for, or memory does not suffice.
    pub(super) fn of(context: &Context, index: &Index, condition: &Condition) -> Result<Self> {
        let rows = index.passing(context, condition)?;
        let vertices = index.facts().vertices.into();
        let memory = context.reserve(2 * RankedSet::memory_bytes(vertices), PURPOSE_SEARCH)?;
        let mut admitted = RowSet::new(vertices);
        rows.iter().for_each(|entry| admitted.insert(index.vertex_of(entry).into()));
        Ok(Self { rows, vertices: RankedSet::new(admitted), _memory: memory })
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> u64 {
        self.rows.count()
    }

    /// The vertices that have any.
    pub(super) fn vertices(&self) -> &RankedSet {
        &self.vertices
    }

    /// Keeps the hits that may be found, and of these so many.
    pub(super) fn keep(&self, mut hits: Vec<Hit>, most: usize) -> Vec<Hit> {
        hits.retain(|hit| self.rows.contains(hit.place.0));
        hits.truncate(most);
        hits
    }

    /// Whether a search measures all that may be found by their codes, rather than to walk among all others: a walk that is to
    /// keep `list` of them comes by as many more as they are rare, and reads their pages.
    pub(super) fn is_by_codes(&self, index: &Index, list: usize) -> bool {
        let admitted = f64::from(self.vertices.len());
        let rarity = f64::from(index.facts().vertices) / admitted.max(1.0);
        let reads_in_vain = READS_OF_CANDIDATE * list as f64 * (rarity - 1.0);
        admitted < READ_COST * reads_in_vain
    }
}
