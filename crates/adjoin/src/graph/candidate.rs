//! A vertex and its distance in one integer, which is ordered by distance.

use crate::base::geometry::Coordinate;

/// Lowest bit, which is set if the vertex was expanded. The vertex number is in the bits above.
const FLAG: u64 = 1;

/// A vertex with its squared distance. Candidates are ordered by distance and then by vertex number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate(u64);

impl Candidate {
    /// Creates a candidate that is not expanded. `vertex` must be below 2^31.
    pub(super) fn new<T: Coordinate>(distance: T::Distance, vertex: u32) -> Self {
        Self::of_key(T::distance_key(distance), vertex)
    }

    /// Creates a candidate from the key of its squared distance.
    pub(super) fn of_key(key: u32, vertex: u32) -> Self {
        // The distance is in the upper bits, so comparing integers compares distances first, and then vertices.
        Self(u64::from(key) << 32 | u64::from(vertex) << 1)
    }

    /// Returns the key of the squared distance.
    pub(super) fn key(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn vertex(self) -> u32 {
        self.0 as u32 >> 1
    }

    /// Returns the squared distance.
    pub(super) fn squared<T: Coordinate>(self) -> f64 {
        T::distance_of(self.key())
    }

    pub(super) fn is_expanded(self) -> bool {
        self.0 & FLAG != 0
    }

    pub(super) fn expand(&mut self) {
        self.0 |= FLAG;
    }
}
