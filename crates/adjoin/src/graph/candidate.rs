//! A vertex and how far it is, in one integer whose order is the order of the search.

use crate::geometry::Coordinate;

/// Bits of a vertex's number, and one that says whether it was expanded.
const FLAG: u64 = 1;

/// A vertex at a squared distance: ordered by distance, equally far ones by their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate(u64);

impl Candidate {
    /// A vertex, below 2^31, that was not expanded.
    pub(super) fn new<T: Coordinate>(distance: T::Distance, vertex: u32) -> Self {
        Self(u64::from(T::distance_key(distance)) << 32 | u64::from(vertex) << 1)
    }

    pub(super) fn vertex(self) -> u32 {
        self.0 as u32 >> 1
    }

    /// The squared distance.
    pub(super) fn squared<T: Coordinate>(self) -> f64 {
        T::distance_of((self.0 >> 32) as u32)
    }

    pub(super) fn is_expanded(self) -> bool {
        self.0 & FLAG != 0
    }

    pub(super) fn expand(&mut self) {
        self.0 |= FLAG;
    }
}
