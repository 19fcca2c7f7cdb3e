//! Finds the vertices that no search can reach, and links them. Pruning may remove the last edge to a vertex, so that
//! no search would find it.

use adjoin_kernels::Panel;

use super::adjacency::Graph;
use super::candidate::Candidate;
use super::search::GreedySearch;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::Coordinate;
use crate::base::row_numbers::RowSet;

/// Vertices reached from the entry point.
struct Reached {
    vertices: RowSet,
    /// Reached vertices that are not expanded yet.
    open: Vec<u32>,
}

impl Reached {
    fn from_entry(graph: &Graph) -> Self {
        let mut reached = Self { vertices: RowSet::new(graph.vertices() as u64), open: Vec::new() };
        graph.entry().into_iter().for_each(|entry| reached.flood(graph, entry));
        reached
    }

    fn contains(&self, vertex: u32) -> bool {
        self.vertices.contains(vertex.into())
    }

    /// Marks a vertex and all vertices that are reachable from it as reached.
    fn flood(&mut self, graph: &Graph, vertex: u32) {
        self.take(vertex);
        while let Some(vertex) = self.open.pop() {
            graph.neighbors(vertex).iter().for_each(|&neighbor| self.take(neighbor));
        }
    }

    fn take(&mut self, vertex: u32) {
        if !self.contains(vertex) {
            self.vertices.insert(vertex.into());
            self.open.push(vertex);
        }
    }
}

/// Links each unreachable vertex from the nearest reachable vertex that a search for it finds.
///
/// # Errors
/// If memory does not suffice, or if the work is cancelled.
pub(super) fn repair<T: Coordinate>(context: &Context, panel: &Panel<T>, graph: &mut Graph) -> Result<()> {
    let (vertices, list) = (graph.vertices(), graph.options().build_list);
    let search_bytes = GreedySearch::<T>::memory_bytes(vertices, graph.options().degree, list);
    // In the worst case, all vertices are open at once.
    let bytes = RowSet::memory_bytes(vertices as u64) + (vertices * size_of::<u32>()) as u64 + search_bytes;
    let _reserved = context.reserve(bytes, "finding vectors that no search reaches")?;
    let mut reached = Reached::from_entry(graph);
    let mut search = GreedySearch::new(graph);
    for vertex in 0..vertices as u32 {
        if graph.present.contains(vertex.into()) && !reached.contains(vertex) {
            context.cancel.check()?;
            search.run(context.kernel, graph, panel, panel.row(vertex as usize), list);
            link(context, panel, graph, vertex, &search);
            // Vertices that are reachable from this one need no link of their own.
            reached.flood(graph, vertex);
        }
    }
    Ok(())
}

/// Adds an edge to an unreachable vertex from the nearest found vertex whose list is not full. If all lists are full,
/// the edge replaces an edge of the nearest vertex, and the linked vertex gets an edge to the target of the replaced
/// edge. Thus reached vertices stay reachable.
fn link<T: Coordinate>(context: &Context, panel: &Panel<T>, graph: &mut Graph, vertex: u32, search: &GreedySearch<T>) {
    let degree = graph.options().degree;
    if let Some(near) = search.list().find(|&near| graph.neighbors(near).len() < degree) {
        return replace(graph, near, None, vertex);
    }
    let sorted = |neighbors: &[u32]| {
        let x = panel.row(vertex as usize);
        let distance = |neighbor: u32| context.kernel.distance(x, panel.row(neighbor as usize));
        neighbors.iter().map(|&neighbor| Candidate::new::<T>(distance(neighbor), neighbor)).collect::<Vec<_>>()
    };
    // The list of the nearest vertex is full, so it has out-neighbors. A search finds a vertex unless the graph is
    // empty.
    let Some(nearest) = search.list().next() else { return };
    let Some(passed_on) = sorted(graph.neighbors(nearest)).into_iter().min() else { return };
    replace(graph, nearest, Some(passed_on.vertex()), vertex);
    let own = graph.neighbors(vertex);
    if !own.contains(&passed_on.vertex()) {
        // If the list of the linked vertex is full, its farthest neighbor is replaced.
        let farthest = sorted(own).into_iter().max().filter(|_| own.len() == degree);
        replace(graph, vertex, farthest.map(Candidate::vertex), passed_on.vertex());
    }
}

/// Replaces the out-neighbor `old` of a vertex by `new`. Appends `new` if there is no such out-neighbor.
fn replace(graph: &mut Graph, vertex: u32, old: Option<u32>, new: u32) {
    let mut neighbors = graph.neighbors(vertex).to_vec();
    match neighbors.iter_mut().find(|neighbor| Some(**neighbor) == old) {
        Some(place) => *place = new,
        None => neighbors.push(new),
    }
    graph.set_neighbors(vertex, &neighbors);
}

impl Graph {
    /// Checks the invariants of a graph. The out-neighbors of a vertex are in the graph, distinct, not the vertex
    /// itself, and at most as many as the degree. Each vertex is reachable from the entry point.
    ///
    /// # Errors
    /// If an invariant is violated. The error names the first such vertex.
    pub fn verify(&self) -> Result<()> {
        for vertex in 0..self.vertices() as u32 {
            if let Some(fault) = self.fault_of(vertex) {
                return Err(Error::corrupt(format!("vertex {vertex} of a graph {fault}; build it again")));
            }
        }
        let reached = Reached::from_entry(self);
        match (0..self.vertices() as u32)
            .find(|&vertex| self.present.contains(vertex.into()) && !reached.contains(vertex))
        {
            Some(vertex) => {
                Err(Error::corrupt(format!("vertex {vertex} of a graph cannot be reached by a search; build it again")))
            }
            None => Ok(()),
        }
    }

    fn fault_of(&self, vertex: u32) -> Option<String> {
        let degree = self.slot(vertex)[0] as usize;
        if degree > self.options().degree {
            return Some(format!("has {degree} out-neighbors, more than {}", self.options().degree));
        }
        let neighbors = self.neighbors(vertex);
        if !self.present.contains(vertex.into()) && degree > 0 {
            return Some("is not in it, but has out-neighbors".into());
        }
        let mut sorted = neighbors.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Some(format!("has the out-neighbor {} twice", twice[0]));
        }
        let is_wrong = |&&neighbor: &&u32| {
            neighbor == vertex || neighbor as usize >= self.vertices() || !self.present.contains(neighbor.into())
        };
        neighbors.iter().find(is_wrong).map(|neighbor| format!("has the invalid out-neighbor {neighbor}"))
    }
}
