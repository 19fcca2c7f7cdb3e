//! Deletion (FreshDiskANN, section 4.2): at first a vertex only goes on the delete list; much later Algorithm 4 takes all of
//! that list out of the graph.

use adjoin_kernels::Panel;

use super::adjacency::Graph;
use super::medoid::nearest_live;
use super::prune::{Pruner, Vectors};
use super::reach;
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::workers::map_items;

/// Vertices whose new out-neighbours are in memory beside the old ones.
const ROUND: usize = 1 << 16;
/// Vertices that a thread takes at once.
const TOGETHER: usize = 1 << 10;

impl Graph {
    /// Puts a vertex on the delete list: no search returns it any more, though all may pass through it. No effect on one
    /// that is not in the graph.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn delete(&mut self, vertex: u32) {
        if self.present.contains(vertex.into()) {
            self.deleted.insert(vertex.into());
        }
    }

    /// Takes what is on the delete list out of the graph (FreshDiskANN, Algorithm 4). Whoever had a deleted out-neighbour
    /// may have the out-neighbours of that one instead.
    ///
    /// # Errors
    /// Where memory does not suffice, or the work is cancelled: before the last step the graph is then as it was, or with
    /// fewer edges to deleted vertices.
    pub fn consolidate<T: Coordinate>(&mut self, context: &Context, panel: &Panel<T>) -> Result<()> {
        let degree = self.options().degree;
        let _lists = context.reserve((ROUND * degree * size_of::<u32>()) as u64, "taking deleted vectors out")?;
        let entry = match self.entry {
            Some(entry) if !self.is_live(entry) => nearest_live(context, panel, self, entry)?,
            entry => entry,
        };
        for first in (0..self.vertices()).step_by(ROUND) {
            let chunks = (self.vertices() - first).min(ROUND).div_ceil(TOGETHER);
            let lists = map_items(
                context.threads,
                chunks,
                &context.cancel,
                || (),
                |(), chunk| {
                    let first = first + chunk * TOGETHER;
                    let end = self.vertices().min(first + TOGETHER);
                    Ok(self.without_deleted(Vectors { kernel: context.kernel, panel }, first as u32..end as u32))
                },
            )?;
            lists.into_iter().flatten().for_each(|(vertex, neighbours)| self.set_neighbours(vertex, &neighbours));
        }
        self.entry = entry;
        self.forget_deleted();
        reach::repair(context, panel, self)
    }

    /// The new out-neighbours of those of the vertices that have a deleted one. The paper prunes the old out-neighbours
    /// too, deleted ones among them: Algorithm 3 takes them in again. Here no deleted vertex becomes a candidate.
    fn without_deleted<T: Coordinate>(
        &self,
        vectors: Vectors<'_, T>,
        vertices: std::ops::Range<u32>,
    ) -> Vec<(u32, Vec<u32>)> {
        let mut pruner = Pruner::new(self.options());
        let mut candidates = Vec::new();
        let affected = vertices.filter(|&vertex| self.is_live(vertex) && self.has_deleted_neighbour(vertex));
        let lists = affected.map(|vertex| {
            candidates.clear();
            for &neighbour in self.neighbours(vertex) {
                match self.is_live(neighbour) {
                    true => candidates.push(neighbour),
                    false => candidates.extend(self.neighbours(neighbour).iter().filter(|&&next| self.is_live(next))),
                }
            }
            pruner.begin(vertex);
            pruner.add_vertices(vectors, &candidates);
            (vertex, pruner.prune(vectors).to_vec())
        });
        lists.collect()
    }

    fn has_deleted_neighbour(&self, vertex: u32) -> bool {
        self.neighbours(vertex).iter().any(|&neighbour| !self.is_live(neighbour))
    }

    /// Empties the delete list and the slots of what was on it.
    fn forget_deleted(&mut self) {
        for vertex in 0..self.vertices() as u32 {
            if self.deleted.contains(vertex.into()) {
                self.set_neighbours(vertex, &[]);
                self.present.remove(vertex.into());
                self.deleted.remove(vertex.into());
            }
        }
    }
}
