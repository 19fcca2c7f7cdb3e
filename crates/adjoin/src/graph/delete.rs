//! Deletion (FreshDiskANN, section 4.2): a vertex is only added to the delete list; consolidation later removes all of
//! that list from the graph, by one of the rules in `mend.rs`.

use adjoin_kernels::Panel;

use super::adjacency::Graph;
use super::medoid::nearest_live;
use super::mend::{DeleteRule, LiveNeighborhoods, Mender};
use super::prune::Vectors;
use super::reach;
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::workers::map_items;

/// Vertices processed per round; their new out-neighbors are held in addition to the old ones.
const ROUND: usize = 1 << 16;
/// Vertices that a thread takes at once.
const TOGETHER: usize = 1 << 10;

impl Graph {
    /// Adds a vertex to the delete list: searches no longer return it, but may pass through it. Does nothing if the
    /// vertex is not in the graph.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn delete(&mut self, vertex: u32) {
        if self.present.contains(vertex.into()) {
            self.deleted.insert(vertex.into());
        }
    }

    /// Removes the vertices of the delete list from the graph. The rule determines the replacements of deleted
    /// out-neighbors. Vertices that no search reaches afterward are linked.
    ///
    /// # Errors
    /// If memory does not suffice, or the work is cancelled. If the last step was not reached, the graph is then
    /// unchanged, or has fewer edges to deleted vertices.
    pub fn consolidate<T: Coordinate>(&mut self, context: &Context, panel: &Panel<T>, rule: DeleteRule) -> Result<()> {
        let degree = self.options().degree;
        let _lists = context.reserve((ROUND * degree * size_of::<u32>()) as u64, "taking deleted vectors out")?;
        let entry = match self.entry {
            Some(entry) if !self.is_live(entry) => nearest_live(context, panel, self, entry)?,
            entry => entry,
        };
        let around = LiveNeighborhoods::find(context, panel, self, rule)?;
        for first in (0..self.vertices()).step_by(ROUND) {
            let chunks = (self.vertices() - first).min(ROUND).div_ceil(TOGETHER);
            let mender = || Mender::new(rule, self, Vectors { kernel: context.kernel, panel }, &around);
            let lists = map_items(context.threads, chunks, &context.cancel, mender, |mender, chunk| {
                let first = first + chunk * TOGETHER;
                let end = self.vertices().min(first + TOGETHER);
                let live = (first as u32..end as u32).filter(|&vertex| self.is_live(vertex));
                let mended = live.filter_map(|vertex| Some((vertex, mender.mended(vertex)?.to_vec())));
                Ok(mended.collect::<Vec<_>>())
            })?;
            lists.into_iter().flatten().for_each(|(vertex, neighbors)| self.set_neighbors(vertex, &neighbors));
        }
        self.entry = entry;
        self.forget_deleted();
        reach::repair(context, panel, self)
    }

    /// Empties the delete list and the slots of its vertices.
    fn forget_deleted(&mut self) {
        for vertex in 0..self.vertices() as u32 {
            if self.deleted.contains(vertex.into()) {
                self.set_neighbors(vertex, &[]);
                self.present.remove(vertex.into());
                self.deleted.remove(vertex.into());
            }
        }
    }
}
