//! GreedySearch (FreshDiskANN, Algorithm 1): from the entry point, always on from the nearest vertex that was not looked
//! at, until the `L` nearest of all that were seen have been.

use adjoin_kernels::{Kernel, Panel, prefetch};

use super::adjacency::Graph;
use super::candidate::Candidate;
use crate::geometry::Coordinate;
use crate::row_numbers::RowSet;

/// A vertex that a search found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Near {
    /// Row of the panel.
    pub vertex: u32,
    /// Squared distance to the query, in coordinates, as the kernels compute it.
    pub squared_distance: f64,
}

/// A search, and the memory that it needs: made once, used for any number of queries, which then allocate nothing.
pub struct GreedySearch<T: Coordinate> {
    /// The nearest vertices seen, ascending.
    list: Vec<Candidate>,
    /// Vertices whose distance was computed, as a set and in order.
    seen: RowSet,
    order_seen: Vec<u32>,
    /// Vertices that were expanded, in order.
    visited: Vec<Candidate>,
    distances: Vec<T::Distance>,
}

impl<T: Coordinate> GreedySearch<T> {
    /// A search of graphs with as many vertices as this one.
    pub fn new(graph: &Graph) -> Self {
        Self {
            list: Vec::new(),
            seen: RowSet::new(graph.vertices() as u64),
            order_seen: Vec::new(),
            visited: Vec::new(),
            distances: Vec::new(),
        }
    }

    /// Bytes that a search takes which keeps `list` candidates, about.
    pub(super) fn memory_bytes(vertices: usize, degree: usize, list: usize) -> u64 {
        // About two hops for each place in the list, at each of which half of the neighbours are new.
        let seen = (list * degree) as u64 * size_of::<u32>() as u64;
        RowSet::memory_bytes(vertices as u64) + seen + 3 * (list * size_of::<Candidate>()) as u64
    }

    /// Searches for `x`, a padded row of a panel of the same dimensions, and keeps the `list` nearest that it sees (L).
    /// Equally far vertices are taken in the order of their numbers. Deleted vertices lead on, as others do.
    ///
    /// # Panics
    /// If the panel is not the one that the graph is over, `x` has not its stride, or the search was made for a graph of
    /// fewer vertices.
    pub fn run(&mut self, kernel: Kernel, graph: &Graph, panel: &Panel<T>, x: &[T], list: usize) {
        self.run_from(kernel, (graph, graph.entry()), panel, x, list);
    }

    /// The same from another vertex than the entry of the graph; finds nothing where there is none.
    ///
    /// # Panics
    /// As [`GreedySearch::run`], or if there is no such vertex.
    pub fn run_from(
        &mut self,
        kernel: Kernel,
        (graph, from): (&Graph, Option<u32>),
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
            if let Some(likely) = self.first_from(place + 1) {
                prefetch(graph.slot(self.list[likely].vertex()));
            }
            next = self.look_at(kernel, panel, x, graph.neighbours(vertex), list).min(place + 1);
        }
    }

    /// Forgets the search before.
    fn begin(&mut self) {
        for &vertex in &self.order_seen {
            self.seen.remove(vertex.into());
        }
        self.order_seen.clear();
        self.visited.clear();
        self.list.clear();
    }

    /// Place of the first candidate from `place` on that was not expanded.
    fn first_from(&self, place: usize) -> Option<usize> {
        let later = self.list.get(place..)?;
        later.iter().position(|candidate| !candidate.is_expanded()).map(|after| place + after)
    }

    /// Takes those of some vertices into the list that were not seen before; returns the first place that changed.
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

    /// The `k` nearest of the list that are not deleted, ascending; fewer where there are fewer.
    pub fn nearest(&self, graph: &Graph, k: usize) -> impl Iterator<Item = Near> {
        self.list.iter().filter(|candidate| graph.is_live(candidate.vertex())).take(k).map(|&near| near_of::<T>(near))
    }

    /// The vertices that were expanded, in this order: those whose out-neighbours were looked at.
    pub fn visited(&self) -> impl ExactSizeIterator<Item = Near> {
        self.visited.iter().map(|&visited| near_of::<T>(visited))
    }

    /// How many distances the last search computed.
    pub fn distances(&self) -> u64 {
        self.order_seen.len() as u64
    }

    /// How many vertices the last search expanded.
    pub fn hops(&self) -> u64 {
        self.visited.len() as u64
    }

    /// What was expanded, as candidates.
    pub(super) fn expanded(&self) -> &[Candidate] {
        &self.visited
    }

    /// The list, ascending, deleted vertices included; all of it was expanded.
    pub(super) fn list(&self) -> impl Iterator<Item = u32> {
        self.list.iter().map(|candidate| candidate.vertex())
    }
}

fn near_of<T: Coordinate>(candidate: Candidate) -> Near {
    Near { vertex: candidate.vertex(), squared_distance: candidate.squared::<T>() }
}

/// Inserts into an ascending list of at most `most`; returns its place, `most` where it is too far.
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
