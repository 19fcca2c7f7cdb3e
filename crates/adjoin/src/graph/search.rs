//! GreedySearch (FreshDiskANN, Algorithm 1): starts at the entry point, and expands the nearest unexpanded vertex until
//! the `L` nearest vertices seen have been expanded.

use adjoin_kernels::{Kernel, Panel, prefetch};

use super::adjacency::Graph;
use super::candidate::Candidate;
use crate::base::geometry::Coordinate;
use crate::base::row_numbers::RowSet;

/// A vertex found by a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Near {
    /// Row of the panel.
    pub vertex: u32,
    /// Squared distance to the query in coordinates, as computed by the kernels.
    pub squared_distance: f64,
}

/// A search with its working memory. It is created once and reused for any number of queries.
pub struct GreedySearch<T: Coordinate> {
    /// Nearest vertices seen, sorted by distance.
    list: Vec<Candidate>,
    /// Set of the vertices whose distance was computed.
    seen: RowSet,
    /// These vertices in the order in which they were seen.
    order_seen: Vec<u32>,
    /// Expanded vertices, in the order of expansion.
    visited: Vec<Candidate>,
    distances: Vec<T::Distance>,
}

impl<T: Coordinate> GreedySearch<T> {
    /// Creates a search for graphs that have at most as many vertices as `graph`.
    pub fn new(graph: &Graph) -> Self {
        Self {
            list: Vec::new(),
            seen: RowSet::new(graph.vertices() as u64),
            order_seen: Vec::new(),
            visited: Vec::new(),
            distances: Vec::new(),
        }
    }

    /// Returns the approximate bytes of a search that keeps `list` candidates.
    pub(super) fn memory_bytes(vertices: usize, degree: usize, list: usize) -> u64 {
        // A search makes about two hops per list entry, and half of the neighbors that a hop sees are new.
        let seen = (list * degree) as u64 * size_of::<u32>() as u64;
        RowSet::memory_bytes(vertices as u64) + seen + 3 * (list * size_of::<Candidate>()) as u64
    }

    /// Searches for the vertices near `x`, a padded row of a panel with the dimensions of `panel`. Keeps the `list`
    /// nearest vertices seen (L). If distances are equal, the vertex with the lower number counts as nearer.
    ///
    /// # Panics
    /// If the panel and the graph differ in their number of vertices, if the length of `x` is not the stride of the
    /// panel, or if the search was created for a graph with fewer vertices.
    pub fn run(&mut self, kernel: Kernel, graph: &Graph, panel: &Panel<T>, x: &[T], list: usize) {
        self.run_from(kernel, graph, graph.entry(), panel, x, list);
    }

    /// Searches as [`GreedySearch::run`] does, but starts at the vertex `from`. Finds nothing if `from` is `None`.
    ///
    /// # Panics
    /// In the cases of [`GreedySearch::run`], and if `from` is not a vertex of the graph.
    pub fn run_from(
        &mut self,
        kernel: Kernel,
        graph: &Graph,
        from: Option<u32>,
        panel: &Panel<T>,
        x: &[T],
        list: usize,
    ) {
        assert_eq!(panel.rows(), graph.vertices(), "a vertex for each row");
        self.begin();
        let mut next = match from {
            Some(entry) => self.look_at(kernel, panel, x, &[entry], list),
            None => return,
        };
        while let Some(place) = self.first_from(next) {
            let vertex = self.list[place].vertex();
            self.visited.push(self.list[place]);
            self.list[place].expand();
            // Prefetches the neighbors of the vertex that is likely to be next, while the neighbors of this vertex are
            // compared.
            if let Some(likely) = self.first_from(place + 1) {
                prefetch(graph.slot(self.list[likely].vertex()));
            }
            // All candidates before the first changed position are expanded already, so the search goes on there.
            next = self.look_at(kernel, panel, x, graph.neighbors(vertex), list).min(place + 1);
        }
    }

    /// Clears the previous search.
    fn begin(&mut self) {
        // A search sees only a small part of a large graph, so clearing single bits is faster than clearing the whole
        // set.
        for &vertex in &self.order_seen {
            self.seen.remove(vertex.into());
        }
        self.order_seen.clear();
        self.visited.clear();
        self.list.clear();
    }

    /// Returns the position of the first unexpanded candidate from `place` on.
    fn first_from(&self, place: usize) -> Option<usize> {
        let later = self.list.get(place..)?;
        later.iter().position(|candidate| !candidate.is_expanded()).map(|after| place + after)
    }

    /// Adds vertices that were not seen before to the list, if they are near enough. Returns the first position that
    /// changed.
    fn look_at(&mut self, kernel: Kernel, panel: &Panel<T>, x: &[T], vertices: &[u32], list: usize) -> usize {
        let from = self.order_seen.len();
        for &vertex in vertices {
            if !self.seen.contains(vertex.into()) {
                self.seen.insert(vertex.into());
                self.order_seen.push(vertex);
            }
        }
        let new = &self.order_seen[from..];
        self.distances.resize(new.len(), T::Distance::default());
        kernel.one_to_some(x, panel, new, &mut self.distances);
        let mut changed = list;
        for (&vertex, &distance) in new.iter().zip(&self.distances) {
            changed = changed.min(insert(&mut self.list, Candidate::new::<T>(distance, vertex), list));
        }
        changed
    }

    /// Returns the `k` nearest vertices in the list, nearest first. Returns fewer if the list has fewer.
    pub fn nearest(&self, k: usize) -> impl Iterator<Item = Near> {
        self.list.iter().take(k).map(|&near| near_of::<T>(near))
    }

    /// Returns the expanded vertices, in the order of expansion.
    pub fn visited(&self) -> impl ExactSizeIterator<Item = Near> {
        self.visited.iter().map(|&visited| near_of::<T>(visited))
    }

    /// Returns the number of distances that the last search computed.
    pub fn distances(&self) -> u64 {
        self.order_seen.len() as u64
    }

    /// Returns the number of vertices that the last search expanded.
    pub fn hops(&self) -> u64 {
        self.visited.len() as u64
    }

    /// Returns the expanded vertices as candidates.
    pub(super) fn expanded(&self) -> &[Candidate] {
        &self.visited
    }

    /// Returns the vertices of the list, nearest first. All of them were expanded.
    pub(super) fn list(&self) -> impl Iterator<Item = u32> {
        self.list.iter().map(|candidate| candidate.vertex())
    }
}

fn near_of<T: Coordinate>(candidate: Candidate) -> Near {
    Near { vertex: candidate.vertex(), squared_distance: candidate.squared::<T>() }
}

/// Inserts a candidate into a sorted list of at most `most` candidates. Returns its position, or `most` if it is too
/// far.
fn insert(list: &mut Vec<Candidate>, candidate: Candidate, most: usize) -> usize {
    if list.len() >= most {
        match list.last() {
            Some(&last) if candidate < last => list.pop(),
            _ => return most,
        };
    }
    let place = list.partition_point(|&other| other < candidate);
    list.insert(place, candidate);
    place
}
