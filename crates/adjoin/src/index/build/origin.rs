//! What an index is made of: vertices, and the rows that stand for them. They lie in a store (`gathering.rs`), or in an index and
//! among rows that came since (`crate::index::merge`).

use adjoin_kernels::{Kernel, Panel};

use crate::context::Context;
use crate::error::Result;
use crate::geometry::{Coordinate, Space, copy_row};
use crate::row_numbers::{RankedSet, RowSet};
use crate::source::{IdKind, Ids};

/// Vertices in an order in which near ones have near numbers.
pub(in crate::index) trait Origin: Sync {
    /// What the build works with.
    fn context(&self) -> &Context;

    /// How many vertices.
    fn vertices(&self) -> u32;

    /// Where their distances to each other are measured.
    fn space(&self) -> Space<'_>;

    /// The kind of their ids, and bytes of one, about.
    fn ids(&self) -> (IdKind, u64);

    /// Vectors that are gathered at once, at most, and bytes for what is done with them.
    fn room(&self) -> (usize, u64);

    /// Whether several rows share a vertex.
    fn has_others(&self) -> bool;

    /// Hands the rows that stand for wanted vertices to `take`, in the order of these.
    ///
    /// # Errors
    /// Where they cannot be read, or `take` fails.
    fn each(&self, wanted: &RankedSet, with_ids: bool, take: &mut dyn FnMut(Gathered<'_>) -> Result<()>) -> Result<()>;

    /// Hands the rows to `take` that do not stand for their vertices; their vectors may be left out.
    ///
    /// # Errors
    /// As [`Self::each`].
    fn each_other(&self, with_ids: bool, take: &mut dyn FnMut(Gathered<'_>) -> Result<()>) -> Result<()>;

    /// The vectors of some vertices as coordinates.
    ///
    /// # Errors
    /// Where they cannot be read.
    fn vectors<T: Coordinate>(&self, wanted: VectorsToGather) -> Result<Vectors<T>>;

    /// The code of a vertex, where it is known before its vector is encoded.
    fn code(&self, _vertex: u32) -> Option<&[u8]> {
        None
    }

    /// Makes coordinates of vectors one by one.
    fn loading<T: Coordinate>(&self) -> Loading<'_, T> {
        let space = self.space();
        Loading { space, kernel: self.context().kernel, one: Panel::zeroed(1, space.dimensions()) }
    }
}

/// A row that is handed over.
pub(in crate::index) struct Gathered<'a> {
    pub(in crate::index) vertex: u32,
    /// The vector as stored.
    pub(in crate::index) stored: &'a [u8],
    pub(in crate::index) row: u64,
    /// Ids, and which of them is that of this row.
    pub(in crate::index) id: (&'a Ids, usize),
}

/// Vertices that are wanted, and how many.
pub(in crate::index) struct VectorsToGather {
    set: RowSet,
    count: usize,
}

impl VectorsToGather {
    pub(in crate::index) fn none(vertices: u32) -> Self {
        Self { set: RowSet::new(vertices.into()), count: 0 }
    }

    /// Some of so many vertices.
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

    /// The set, with the number of each vertex among them.
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
    /// Rows of a panel, that of each vertex at its rank.
    pub(in crate::index) fn new(panel: Panel<T>, ranks: RankedSet) -> Self {
        Self { panel, ranks }
    }

    /// The row of a vertex, which was wanted.
    pub(in crate::index) fn row_of(&self, vertex: u32) -> u32 {
        debug_assert!(self.ranks.contains(vertex), "vertex {vertex} was not gathered");
        self.ranks.rank(vertex)
    }
}

/// See [`Origin::loading`].
pub(in crate::index) struct Loading<'a, T> {
    space: Space<'a>,
    kernel: Kernel,
    one: Panel<T>,
}

impl<T: Coordinate> Loading<'_, T> {
    /// Makes coordinates of a stored vector the row `at` of a panel.
    pub(in crate::index) fn load(&mut self, stored: &[u8], panel: &mut Panel<T>, at: usize) {
        T::load(self.space, self.kernel, stored, &mut self.one);
        copy_row(&self.one, 0, panel, at);
    }
}
