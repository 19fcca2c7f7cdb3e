//! Breadth-first orders, in which neighbors follow each other.

use adjoin::lab::{Edges, breadth_first};

/// Orders breadth first, starting from and visiting vertices with small numbers first.
pub(super) fn by_number(edges: &Edges) -> Vec<u32> {
    breadth_first(edges, |vertex| vertex)
}

/// Orders breadth first, starting from and visiting vertices with few edges first (NDSearch, section VI-A).
pub(super) fn by_degree(edges: &Edges) -> Vec<u32> {
    breadth_first(edges, |vertex| edges.ties(vertex).len())
}
