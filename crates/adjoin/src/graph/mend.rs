//! Replacement of deleted out-neighbors, with one function per rule.

use adjoin_device::Reservation;
use adjoin_kernels::Panel;

use super::adjacency::Graph;
use super::candidate::Candidate;
use super::prune::{Pruner, Vectors};
use super::search::GreedySearch;
use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::workers::map_items;

/// Nearest live vertices found for each deleted one (IP-DiskANN's k).
const NEAREST: usize = 50;
/// How many of them an in-neighbor is linked to (IP-DiskANN's c).
const LINKS: usize = 3;
/// Deleted vertices that a thread takes at once.
const TOGETHER: usize = 64;

/// Rule that replaces the deleted out-neighbors of a vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeleteRule {
    /// No replacement (FreshDiskANN's Delete Policy A). For comparison: the graph gradually loses its paths.
    Drop,
    /// Prunes the remaining out-neighbors together with the out-neighbors of deleted ones (FreshDiskANN, Algorithm 4).
    #[default]
    Neighbors,
    /// Replaces each deleted vertex by the 3 nearest of the 50 live vertices around it ("In-Place Updates of a Graph
    /// Index for Streaming Approximate Nearest Neighbor Search", Xu et al., 2025, Algorithm 5, without its edges from
    /// these vertices to the out-neighbors of the deleted one). Costs one search per deleted vertex.
    Nearest,
    /// Replaces each deleted vertex by the first of its out-neighbors that is live and not yet an out-neighbor. Since
    /// lists are pruned nearest first, this is a near one. No distance is computed.
    Replace,
}

/// Computes out-neighbor lists without deleted vertices.
pub(super) struct Mender<'a, T: Coordinate> {
    rule: DeleteRule,
    graph: &'a Graph,
    vectors: Vectors<'a, T>,
    around: &'a LiveNeighborhoods,
    pruner: Pruner<T>,
    candidates: Vec<u32>,
}

impl<'a, T: Coordinate> Mender<'a, T> {
    pub(super) fn new(
        rule: DeleteRule,
        graph: &'a Graph,
        vectors: Vectors<'a, T>,
        around: &'a LiveNeighborhoods,
    ) -> Self {
        let pruner = Pruner::new(graph.options());
        Self { rule, graph, vectors, around, pruner, candidates: Vec::new() }
    }

    /// Returns the new out-neighbors of a live vertex; `None` if no out-neighbor is deleted.
    pub(super) fn mended(&mut self, vertex: u32) -> Option<&[u32]> {
        let neighbors = self.graph.neighbors(vertex);
        if neighbors.iter().all(|&neighbor| self.graph.is_live(neighbor)) {
            return None;
        }
        self.candidates.clear();
        match self.rule {
            DeleteRule::Drop => self.candidates.extend(self.live_neighbors(vertex)),
            DeleteRule::Neighbors => self.take_neighbors(neighbors),
            DeleteRule::Nearest => self.take_nearest(vertex, neighbors),
            DeleteRule::Replace => self.replace_deleted(vertex, neighbors),
        }
        let is_pruned = self.rule == DeleteRule::Neighbors || self.candidates.len() > self.graph.options().degree;
        Some(if is_pruned { self.pruned(vertex) } else { &self.candidates })
    }

    fn live_neighbors(&self, vertex: u32) -> impl Iterator<Item = u32> + use<'a, T> {
        let graph = self.graph;
        graph.neighbors(vertex).iter().copied().filter(|&neighbor| graph.is_live(neighbor))
    }

    /// Adds the candidates of [`DeleteRule::Neighbors`]. The paper also prunes the old out-neighbors, including
    /// deleted ones, because Algorithm 3 adds them again. Here no deleted vertex becomes a candidate.
    fn take_neighbors(&mut self, neighbors: &[u32]) {
        for &neighbor in neighbors {
            match self.graph.is_live(neighbor) {
                true => self.candidates.push(neighbor),
                false => self.candidates.extend(self.live_neighbors(neighbor)),
            }
        }
    }

    fn take_nearest(&mut self, vertex: u32, neighbors: &[u32]) {
        self.candidates.extend(self.live_neighbors(vertex));
        let Vectors { kernel, panel } = self.vectors;
        let x = panel.row(vertex as usize);
        for &deleted in neighbors.iter().filter(|&&neighbor| !self.graph.is_live(neighbor)) {
            let others = self.around.of(deleted).iter().filter(|&&other| other != vertex);
            let candidate = |&other: &u32| Candidate::new::<T>(kernel.distance(x, panel.row(other as usize)), other);
            let mut others: Vec<Candidate> = others.map(candidate).collect();
            others.sort_unstable();
            for link in others.into_iter().take(LINKS).map(Candidate::vertex) {
                if !self.candidates.contains(&link) {
                    self.candidates.push(link);
                }
            }
        }
    }

    fn replace_deleted(&mut self, vertex: u32, neighbors: &[u32]) {
        for &neighbor in neighbors {
            let is_new = |next: &u32| *next != vertex && !neighbors.contains(next) && !self.candidates.contains(next);
            let instead = match self.graph.is_live(neighbor) {
                true => Some(neighbor),
                false => self.live_neighbors(neighbor).find(is_new),
            };
            self.candidates.extend(instead);
        }
    }

    fn pruned(&mut self, vertex: u32) -> &[u32] {
        self.pruner.begin(vertex);
        self.pruner.add_vertices(self.vectors, &self.candidates);
        self.pruner.prune(self.vectors)
    }
}

/// The live vertices around each deleted one, for rules that need them.
pub(super) struct LiveNeighborhoods {
    /// Deleted vertices, ascending.
    deleted: Vec<u32>,
    nearest: Vec<Vec<u32>>,
    _reservation: Reservation,
}

impl LiveNeighborhoods {
    /// Searches for each deleted vertex in the unchanged graph, with the list of the build.
    ///
    /// # Errors
    /// If memory does not suffice, or the work is cancelled.
    pub(super) fn find<T: Coordinate>(
        context: &Context,
        panel: &Panel<T>,
        graph: &Graph,
        rule: DeleteRule,
    ) -> Result<Self> {
        let count = match rule {
            DeleteRule::Nearest => graph.deleted.len() as usize,
            _ => 0,
        };
        let options = *graph.options();
        let search = GreedySearch::<T>::memory_bytes(graph.vertices(), options.degree, options.build_list);
        let searches = context.threads.min(count) as u64 * search;
        let list = size_of::<u32>() + size_of::<Vec<u32>>() + NEAREST * size_of::<u32>();
        let lists = (count * list) as u64;
        let mut reservation = context.reserve(lists + searches, "finding what is near deleted vectors")?;
        let all = 0..graph.vertices() as u32;
        let deleted: Vec<u32> = all.filter(|&vertex| graph.deleted.contains(vertex.into())).take(count).collect();
        let chunks: Vec<&[u32]> = deleted.chunks(TOGETHER).collect();
        let make = || GreedySearch::new(graph);
        let nearest = map_items(context.threads, chunks.len(), &context.cancel, make, |search, chunk| {
            let nearest_of = |&vertex: &u32| -> Vec<u32> {
                search.run(context.kernel, graph, panel, panel.row(vertex as usize), options.build_list);
                search.nearest(graph, NEAREST).map(|near| near.vertex).collect()
            };
            Ok(chunks[chunk].iter().map(nearest_of).collect::<Vec<_>>())
        })?;
        reservation.shrink(lists);
        Ok(Self { nearest: nearest.into_iter().flatten().collect(), deleted, _reservation: reservation })
    }

    /// Returns the live vertices around a deleted one, nearest first.
    fn of(&self, vertex: u32) -> &[u32] {
        self.deleted.binary_search(&vertex).map_or(&[], |place| &self.nearest[place])
    }
}
