//! Runs RobustPrune on many vertices, in groups. A group is as large as the memory for the vectors of its vertices and
//! candidates allows.

use adjoin_kernels::Panel;

use super::PURPOSE;
use super::origin::{GatherRoom, Origin, VectorsToGather};
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::workers::map_items;
use crate::graph::{GraphOptions, Pruner, Vectors};

/// Largest number of edges back that are candidates of a vertex, as a multiple of the degree. If there are more, an
/// evenly spread selection of them is used.
pub(in crate::index) const BACK_MAX: usize = 8;
/// Number of vertices that a thread prunes at once.
const PRUNED_TOGETHER: usize = 64;

/// Parameters and vectors for pruning.
pub(in crate::index) struct Pruning<'a, T: Coordinate, O> {
    pub(in crate::index) origin: &'a O,
    /// Vectors of all vertices, if memory holds them. Otherwise vectors are gathered when they are compared.
    pub(in crate::index) all: Option<&'a Panel<T>>,
    pub(in crate::index) options: &'a GraphOptions,
    /// Largest number of vectors that are compared to prune a vertex, including its own vector.
    pub(in crate::index) candidates_max: usize,
    /// Typical number of candidates of a vertex.
    pub(in crate::index) candidates: usize,
}

/// A vertex to prune. Its candidates are stored separately.
#[derive(Clone, Copy)]
pub(in crate::index) struct Next {
    pub(in crate::index) vertex: u32,
    /// Whether the candidates are kept as they are, in their order.
    pub(in crate::index) is_kept: bool,
}

/// A group of vertices, each with a list.
#[derive(Default)]
struct PruneBatch {
    vertices: Vec<Next>,
    /// End of each list in `all`.
    ends: Vec<usize>,
    /// All lists, concatenated.
    all: Vec<u32>,
}

impl PruneBatch {
    fn of(&self, number: usize) -> &[u32] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.all[start..self.ends[number]]
    }

    fn end(&mut self, next: Next) {
        self.vertices.push(next);
        self.ends.push(self.all.len());
    }
}

/// Returns the bytes of a vertex with `candidates` candidates: the candidates and the chosen neighbors.
pub(in crate::index) fn bytes_of_vertex(candidates: usize, degree: usize) -> u64 {
    // A growing list may have twice the capacity that it needs.
    ((2 * candidates + 2 * degree + 10) * size_of::<u32>()) as u64
}

impl<T: Coordinate, O: Origin> Pruning<'_, T, O> {
    /// Prunes the candidates of each vertex. Passes each vertex and its chosen neighbors, nearest first, to `take`.
    /// `next` returns the next vertex, if any, and appends the candidates of this vertex to a list.
    ///
    /// # Errors
    /// If vectors cannot be read, if the work is cancelled, or if `next` or `take` fails.
    pub(in crate::index) fn run(
        &self,
        next: &mut dyn FnMut(&mut Vec<u32>) -> Result<Option<Next>>,
        take: &mut dyn FnMut(u32, &[u32]) -> Result<()>,
    ) -> Result<()> {
        let GatherRoom { bytes, vector_bytes } = self.origin.room();
        // The larger a group is, the fewer vectors are read several times. Gathering needs some of the free memory.
        let context = self.origin.context();
        let more = if self.all.is_some() { 0 } else { context.budget().free() / 4 * 3 };
        let _memory = context.reserve(more, PURPOSE)?;
        let of_vertex = bytes_of_vertex(self.candidates, self.options.degree);
        let taken = |vectors: usize, vertices: usize| vectors as u64 * vector_bytes + vertices as u64 * of_vertex;
        loop {
            let mut wanted = VectorsToGather::none(if self.all.is_some() { 0 } else { self.origin.vertices() });
            let mut some = PruneBatch::default();
            // A vertex may need `candidates_max` vectors. A group ends if not that many more vectors fit.
            while taken(wanted.len() + self.candidates_max, some.ends.len() + 1) <= bytes + more {
                let start = some.all.len();
                let Some(next) = next(&mut some.all)? else { break };
                // Lists that are kept as they are need no vectors.
                if self.all.is_none() && !next.is_kept {
                    wanted.add(next.vertex);
                    some.all[start..].iter().for_each(|&candidate| wanted.add(candidate));
                }
                some.end(next);
            }
            if some.ends.is_empty() {
                return Ok(());
            }
            match self.all {
                Some(panel) => self.prune_some(panel, |vertex| vertex, &some, take)?,
                None => {
                    let vectors = self.origin.vectors::<T>(wanted)?;
                    self.prune_some(&vectors.panel, |vertex| vectors.row_of(vertex), &some, take)?;
                }
            }
        }
    }

    /// Prunes a group of vertices. The vectors of vertices and candidates are rows of `panel`.
    fn prune_some(
        &self,
        panel: &Panel<T>,
        row_of: impl Fn(u32) -> u32 + Sync,
        candidates: &PruneBatch,
        take: &mut dyn FnMut(u32, &[u32]) -> Result<()>,
    ) -> Result<()> {
        let Context { kernel, threads, cancel, .. } = self.origin.context();
        let compared = Vectors { kernel: *kernel, panel };
        let count = candidates.ends.len();
        let state = || (Pruner::<T>::new(self.options), Vec::new(), Vec::new());
        let chunks = count.div_ceil(PRUNED_TOGETHER);
        let pruned = map_items(*threads, chunks, cancel, state, |(pruner, sorted, rows), chunk| {
            let mut kept = PruneBatch::default();
            for number in chunk * PRUNED_TOGETHER..count.min((chunk + 1) * PRUNED_TOGETHER) {
                let (next, of_vertex) = (candidates.vertices[number], candidates.of(number));
                if next.is_kept {
                    kept.all.extend_from_slice(of_vertex);
                    kept.end(next);
                    continue;
                }
                sorted.clear();
                sorted.extend_from_slice(of_vertex);
                // Rows of the panel are in the order of the vertices, so a binary search finds the vertex of a row.
                sorted.sort_unstable();
                rows.clear();
                rows.extend(sorted.iter().map(|&candidate| row_of(candidate)));
                pruner.begin(row_of(next.vertex));
                pruner.add_vertices(compared, rows);
                // If the candidates do not exceed the degree, they are not pruned but only sorted by distance.
                let chosen = match of_vertex.len() <= self.options.degree {
                    true => pruner.sorted(),
                    false => pruner.prune(compared),
                };
                let vertex_of = |row: &u32| sorted[rows.binary_search(row).expect("a chosen row is a candidate")];
                kept.all.extend(chosen.iter().map(vertex_of));
                kept.end(next);
            }
            kept.all.shrink_to_fit();
            Ok(kept)
        })?;
        for some in pruned {
            (0..some.ends.len()).try_for_each(|number| take(some.vertices[number].vertex, some.of(number)))?;
        }
        Ok(())
    }
}

/// Returns at most `most` elements, evenly spread over `all`.
pub(in crate::index) fn spread(all: &[u32], most: usize) -> impl Iterator<Item = u32> {
    let count = all.len().min(most);
    (0..count).map(move |number| all[number * all.len() / count])
}
