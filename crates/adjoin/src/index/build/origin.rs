//! Interface to the vertices of an index that is being built. They come from a store (`gathering.rs`), or from an index
//! and inserted rows (`crate::index::merge`).

use adjoin_kernels::{Kernel, Panel};

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, copy_row};
use crate::base::row_numbers::{RankedSet, RowSet};
use crate::source::{IdKind, Ids};

/// Source of vertices. One row of a vertex *represents* it. Vertices near each other have numbers near each other.
pub(in crate::index) trait Origin: Sync {
    /// Returns the context of the build.
    fn context(&self) -> &Context;

    /// Returns the number of vertices.
    fn vertices(&self) -> u32;

    /// Returns the space in which the distances of vertices are measured.
    fn space(&self) -> Space<'_>;

    /// Returns the kind of the ids, and the approximate bytes of an id.
    fn ids(&self) -> (IdKind, u64);

    /// Returns the memory for vectors that are gathered at once.
    fn room(&self) -> GatherRoom;

    /// Returns whether several rows share a vertex.
    fn has_others(&self) -> bool;

    /// Passes the rows that represent the wanted vertices to `take`, in the order of the vertices.
    ///
    /// # Errors
    /// If they cannot be read, or if `take` fails.
    fn each(&self, wanted: &RankedSet, with_ids: bool, take: &mut dyn FnMut(Gathered<'_>) -> Result<()>) -> Result<()>;

    /// Passes the further rows, which do not represent their vertices, to `take`. Their vectors may be empty.
    ///
    /// # Errors
    /// The errors of [`Self::each`].
    fn each_other(&self, with_ids: bool, take: &mut dyn FnMut(Gathered<'_>) -> Result<()>) -> Result<()>;

    /// Returns the vectors of some vertices as coordinates.
    ///
    /// # Errors
    /// If they cannot be read.
    fn vectors<T: Coordinate>(&self, wanted: VectorsToGather) -> Result<Vectors<T>>;

    /// Returns the code of a vertex if it is known, so that the vector need not be encoded.
    fn code(&self, _vertex: u32) -> Option<&[u8]> {
        None
    }

    /// Returns a converter that converts single vectors to coordinates.
    fn loading<T: Coordinate>(&self) -> Loading<'_, T> {
        let space = self.space();
        Loading { space, kernel: self.context().kernel, one: Panel::zeroed(1, space.dimensions()) }
    }
}

/// Memory for vertices that are processed at once, and for the vectors that are gathered for them.
#[derive(Debug, Clone, Copy)]
pub(in crate::index) struct GatherRoom {
    pub(in crate::index) bytes: u64,
    /// Bytes of a vector, as coordinates.
    pub(in crate::index) vector_bytes: u64,
}

/// Vertices for which vectors are gathered, with the bytes of each.
pub(in crate::index) struct GatherNeeds {
    pub(in crate::index) vertices: u64,
    /// Bytes of a vector, as coordinates.
    pub(in crate::index) vector_bytes: u64,
    /// Bytes of a vertex while it is processed, in addition to its vector.
    pub(in crate::index) vertex_bytes: u64,
    /// Largest number of vectors that are compared to prune a vertex.
    pub(in crate::index) candidates_max: u64,
    /// Number of vertices on a page.
    pub(in crate::index) records: u64,
}

impl GatherRoom {
    /// Returns the room of `bytes` bytes, but not more than all vertices need. It has at least twice the candidates of a
    /// vertex and twice the vertices of a page.
    pub(in crate::index) fn within(bytes: u64, needs: GatherNeeds) -> Self {
        let GatherNeeds { vertices, vector_bytes, vertex_bytes, candidates_max, records } = needs;
        let least = 2 * (candidates_max.max(records) * vector_bytes + records * vertex_bytes);
        Self { bytes: bytes.min(vertices * (vector_bytes + vertex_bytes)).max(least), vector_bytes }
    }
}

/// A row that an origin passes to its caller.
pub(in crate::index) struct Gathered<'a> {
    pub(in crate::index) vertex: u32,
    /// Stored bytes of the vector.
    pub(in crate::index) stored: &'a [u8],
    pub(in crate::index) row: u64,
    /// Ids of several rows.
    pub(in crate::index) ids: &'a Ids,
    /// Position of the id of this row in `ids`.
    pub(in crate::index) id_at: usize,
}

/// Set of vertices whose vectors are wanted, with its size.
pub(in crate::index) struct VectorsToGather {
    set: RowSet,
    count: usize,
}

impl VectorsToGather {
    pub(in crate::index) fn none(vertices: u32) -> Self {
        Self { set: RowSet::new(vertices.into()), count: 0 }
    }

    /// Creates the set of `some` of `vertices` vertices.
    pub(in crate::index) fn of(vertices: u32, some: impl IntoIterator<Item = u32>) -> Self {
        let mut wanted = Self::none(vertices);
        some.into_iter().for_each(|vertex| wanted.add(vertex));
        wanted
    }

    pub(in crate::index) fn add(&mut self, vertex: u32) {
        if !self.set.contains(vertex.into()) {
            self.set.insert(vertex.into());
            self.count += 1;
        }
    }

    pub(in crate::index) fn len(&self) -> usize {
        self.count
    }

    /// Returns the set with the rank of each vertex in it.
    pub(in crate::index) fn ranked(self) -> RankedSet {
        RankedSet::new(self.set)
    }
}

/// Vectors of some vertices as coordinates, in the order of the vertices.
pub(in crate::index) struct Vectors<T> {
    pub(in crate::index) panel: Panel<T>,
    ranks: RankedSet,
}

impl<T> Vectors<T> {
    /// Creates the set from a panel. The vector of a vertex is the row of the panel with the rank of the vertex.
    pub(in crate::index) fn new(panel: Panel<T>, ranks: RankedSet) -> Self {
        Self { panel, ranks }
    }

    /// Returns the row of a wanted vertex in the panel.
    pub(in crate::index) fn row_of(&self, vertex: u32) -> u32 {
        debug_assert!(self.ranks.contains(vertex), "vertex {vertex} was not gathered");
        self.ranks.rank(vertex)
    }
}

/// Converter returned by [`Origin::loading`].
pub(in crate::index) struct Loading<'a, T> {
    space: Space<'a>,
    kernel: Kernel,
    one: Panel<T>,
}

impl<T: Coordinate> Loading<'_, T> {
    /// Converts a stored vector into a row of a panel.
    pub(in crate::index) fn load(&mut self, stored: &[u8], panel: &mut Panel<T>, row: usize) {
        T::load(self.space, self.kernel, stored, &mut self.one);
        copy_row(&self.one, 0, panel, row);
    }
}
