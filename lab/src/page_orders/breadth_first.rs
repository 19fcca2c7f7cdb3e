//! Orders in which neighbors follow one another as a search that goes breadth first meets them.

use adjoin::lab::{Edges, breadth_first};

/// Breadth first from and to vertices of small numbers before others.
pub(super) fn by_number(edges: &Edges) -> Vec<u32> {
    breadth_first(edges, |vertex| vertex)
}

/// Breadth first from and to vertices of few edges before others (NDSearch, section VI-A).
pub(super) fn by_degree(edges: &Edges) -> Vec<u32> {
    breadth_first(edges, |vertex| edges.ties(vertex).len())
}
