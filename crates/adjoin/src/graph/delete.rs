//! Deletion (FreshDiskANN, section 4.2): at first a vertex only goes on the delete list; much later all of that list is
//! taken out of the graph, by one of the rules in `mend.rs`.

use adjoin_kernels::Panel;

use super::adjacency::Graph;
use super::medoid::nearest_live;
use super::mend::{Around, DeleteRule, Mender};
use super::prune::Vectors;
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
    /// Puts a vertex on the delete list: no search returns it any more, though all may pass through it. No effect on
    /// one that is not in the graph.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn delete(&mut self, vertex: u32) {
        if self.present.contains(vertex.into()) {
            self.deleted.insert(vertex.into());
        }
    }

    /// Takes what is on the delete list out of the graph. What a vertex has in the place of deleted out-neighbours is
    /// up to the rule; what no search comes to then is linked.
    ///
    /// # Errors
    /// Where memory does not suffice, or the work is cancelled: before the last step the graph is then as it was, or
    /// with fewer edges to deleted vertices.
    pub fn consolidate<T: Coordinate>(&mut self, context: &Context, panel: &Panel<T>, rule: DeleteRule) -> Result<()> {
        let degree = self.options().degree;
        let _lists = context.reserve((ROUND * degree * size_of::<u32>()) as u64, "taking deleted vectors out")?;
        let entry = match self.entry {
            Some(entry) if !self.is_live(entry) => nearest_live(context, panel, self, entry)?,
            entry => entry,
        };
        let around = Around::find(context, panel, self, rule)?;
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
            lists.into_iter().flatten().for_each(|(vertex, neighbours)| self.set_neighbours(vertex, &neighbours));
        }
        self.entry = entry;
        self.forget_deleted();
        reach::repair(context, panel, self)
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
