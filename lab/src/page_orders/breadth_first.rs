//! Breadth-first orders, which place neighbors near each other.

use adjoin::lab::{Edges, breadth_first};

/// Returns a breadth-first order. Starts at the vertex with the smallest number, and visits vertices with smaller
/// numbers first.
pub(super) fn by_number(edges: &Edges) -> Vec<u32> {
    breadth_first(edges, |vertex| vertex)
}

/// Returns a breadth-first order. Starts at a vertex with the fewest edges, and visits vertices with fewer edges
/// first (NDSearch, section VI-A).
pub(super) fn by_degree(edges: &Edges) -> Vec<u32> {
    breadth_first(edges, |vertex| edges.ties(vertex).len())
}
