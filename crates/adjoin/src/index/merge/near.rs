//! Finds the vertices near the inserted rows of a merge.
//!
//! Comparisons with the nearest cells of the index find the old vertices near an inserted row (`cells.rs`), and the inserted
//! rows near it. If many inserted rows are in one cell, a graph of them in memory finds the latter.

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::cells::{self, CENTERS, Cells, concatenated};
use super::{Newcomers, PURPOSE, list_of};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::{Coordinate, Space, copy_row};
use crate::base::row_numbers::RowSet;
use crate::graph::{Graph, GraphOptions};
use crate::index::{Index, IndexManifest};
use crate::load::Members;

/// Least number of inserted rows that are compared with the index in one pass.
const TOGETHER_MIN: u64 = 4_096;
/// Number of inserted rows whose vectors are converted at once.
const LOADED_TOGETHER: usize = 4_096;

/// Old vertices and inserted rows near each inserted row that has its own vertex.
pub(super) struct Near {
    ends: Vec<u32>,
    vertices: Vec<u32>,
    among: Among,
    _memory: Reservation,
}

/// Inserted rows near each inserted row, among the rows that have their own vertices.
struct Among {
    ends: Vec<u32>,
    places: Vec<u32>,
    _memory: Reservation,
}

/// Inserted rows that have their own vertices.
#[derive(Clone, Copy)]
pub(super) struct NewVertices<'a> {
    pub(super) newcomers: &'a dyn Newcomers,
    /// Numbers of these rows among all inserted rows.
    pub(super) numbers: &'a [u32],
}

impl Near {
    /// Finds kept vertices near each inserted row: the `count` nearest, and up to [`CENTERS`] that are farther.
    ///
    /// # Errors
    /// If pages cannot be read, if memory does not suffice, or if the work is cancelled.
    pub(super) fn find<T: Coordinate>(
        context: &Context,
        index: &Index,
        kept: &RowSet,
        rows: NewVertices<'_>,
        count: usize,
    ) -> Result<Self> {
        let NewVertices { newcomers, numbers } = rows;
        let space = index.facts().space();
        if numbers.is_empty() {
            let among = Among { ends: Vec::new(), places: Vec::new(), _memory: context.reserve(0, PURPOSE)? };
            return Ok(Self { ends: Vec::new(), vertices: Vec::new(), among, _memory: context.reserve(0, PURPOSE)? });
        }
        let cells = Cells::<T>::find(context, index, kept)?;
        let _probed = context.reserve(numbers.len() as u64 * cells::probed_bytes(), PURPOSE)?;
        let (among, probed) = Among::find(context, &cells, &index.facts().parameters().graph, rows)?;
        // Each row has its nearest vertices, and the end of their list.
        let held = numbers.len() as u64 * ((count + CENTERS + 1) * size_of::<u32>()) as u64;
        let memory = context.reserve(held, PURPOSE)?;
        let vertices = Vec::with_capacity(numbers.len() * (count + CENTERS));
        let mut near = Self { ends: Vec::with_capacity(numbers.len()), vertices, among, _memory: memory };
        let of_row = bytes_of_row::<T>(space, count);
        let working = cells::least_working_bytes::<T>(context, index.facts());
        let free = context.budget().free().saturating_sub(working);
        let together = (free / 2 / of_row).max(TOGETHER_MIN).min(numbers.len() as u64);
        let _rows = context.reserve(together * of_row, PURPOSE)?;
        context.progress.begin("search", "vectors", numbers.len() as u64);
        for (some, probed) in numbers.chunks(together as usize).zip(probed.chunks(together as usize)) {
            let stored = concatenated(space, some.iter().map(|&newcomer| newcomers.vector(newcomer)));
            for vertices in cells.nearest(&Members::new(context.kernel, space, &stored), probed, count)? {
                near.vertices.extend(vertices);
                near.ends.push(near.vertices.len() as u32);
            }
            context.progress.advance(near.ends.len() as u64);
        }
        Ok(near)
    }

    /// Returns the old vertices near the inserted row at a place: the nearest ones, nearest first, and then farther ones.
    pub(super) fn of(&self, place: usize) -> &[u32] {
        list_of(&self.ends, &self.vertices, place)
    }

    /// Returns the places of the inserted rows near the inserted row at a place, nearest first.
    pub(super) fn newcomers(&self, place: usize) -> &[u32] {
        list_of(&self.among.ends, &self.among.places, place)
    }

    /// Returns the order in which inserted rows are numbered: their places, sorted by the nearest old vertex, and the
    /// nearest old vertex of each. The vertex `otherwise` is used for a row near which no vertex was found.
    pub(super) fn order(&self, otherwise: u32) -> (Vec<u32>, Vec<u32>) {
        let nearest = |place: u32| self.of(place as usize).first().copied().unwrap_or(otherwise);
        let mut places: Vec<u32> = (0..self.ends.len() as u32).collect();
        // The sort is stable: rows with one nearest vertex keep their order, so equal merges give equal indexes.
        places.sort_by_key(|&place| nearest(place));
        let behind = places.iter().map(|&place| nearest(place)).collect();
        (places, behind)
    }
}

impl Among {
    /// Finds the inserted rows near each inserted row. Returns them, and the cells that each row is compared with. The result
    /// must not depend on the budget, since the merged index must not depend on it.
    fn find<T: Coordinate>(
        context: &Context,
        cells: &Cells<'_, T>,
        options: &GraphOptions,
        NewVertices { newcomers, numbers }: NewVertices<'_>,
    ) -> Result<(Self, Vec<Vec<u32>>)> {
        let (rows, space) = (numbers.len(), cells.space());
        let _panel = context.reserve(Panel::<T>::bytes_for(rows, space.dimensions()), PURPOSE)?;
        let mut panel = Panel::<T>::zeroed(rows, space.dimensions());
        let mut stored = Vec::new();
        for (part, some) in numbers.chunks(LOADED_TOGETHER).enumerate() {
            stored.clear();
            some.iter().for_each(|&newcomer| stored.extend_from_slice(newcomers.vector(newcomer)));
            let mut loaded = Panel::<T>::zeroed(some.len(), space.dimensions());
            T::load(space, context.kernel, &stored, &mut loaded);
            (0..some.len()).for_each(|row| copy_row(&loaded, row, &mut panel, part * LOADED_TOGETHER + row));
        }
        let probed = cells.probed(&panel)?;
        let memory = context.reserve(Self::memory_bytes(rows as u64, options), PURPOSE)?;
        let mut among = Self { ends: Vec::with_capacity(rows), places: Vec::new(), _memory: memory };
        let comparing =
            context.reserve(cells::comparing_bytes::<T>(context, space, rows as u64, options.degree), PURPOSE)?;
        if let Some(near) = cells.near_each_other(&panel, &probed, options.degree)? {
            near.iter().for_each(|near| among.push(near));
        } else {
            drop(comparing);
            let graph = Graph::build(context, &panel, options)?;
            (0..rows as u32).for_each(|place| among.push(graph.neighbors(place)));
        }
        // No memory is reserved for spare capacity.
        among.places.shrink_to_fit();
        Ok((among, probed))
    }

    fn push(&mut self, near: &[u32]) {
        self.places.extend_from_slice(near);
        self.ends.push(self.places.len() as u32);
    }

    fn memory_bytes(rows: u64, options: &GraphOptions) -> u64 {
        rows * (options.degree as u64 + 1) * size_of::<u32>() as u64
    }
}

/// Returns the bytes of an inserted row while the `count` vertices nearest to it are found.
fn bytes_of_row<T: Coordinate>(space: Space<'_>, count: usize) -> u64 {
    let of_vector = Members::<T>::memory_bytes(1, space) + space.vectors.bytes() as u64;
    of_vector + cells::bytes_of_row(count) + ((count + CENTERS) * size_of::<u32>()) as u64
}

/// Returns the least bytes for finding the vertices and the inserted rows near each of `rows` inserted rows.
pub(super) fn least_bytes<T: Coordinate>(context: &Context, facts: &IndexManifest, rows: u64) -> u64 {
    let graph = facts.parameters().graph;
    let working = cells::least_working_bytes::<T>(context, facts);
    let comparing = working + rows.min(TOGETHER_MIN) * bytes_of_row::<T>(facts.space(), graph.build_list);
    let held = cells::held_bytes(facts) + rows * cells::probed_bytes();
    held + comparing.max(among_bytes::<T>(context, facts.space(), &graph, rows))
}

/// Returns the bytes for finding the inserted rows near each of `rows` inserted rows, while the cells are held.
fn among_bytes<T: Coordinate>(context: &Context, space: Space<'_>, options: &GraphOptions, rows: u64) -> u64 {
    let panel = Panel::<T>::bytes_for(rows as usize, space.dimensions());
    let building = Graph::build_bytes(context.threads, rows as usize, options);
    let comparing = cells::comparing_bytes::<T>(context, space, rows, options.degree);
    panel + Among::memory_bytes(rows, options) + building.max(comparing)
}
