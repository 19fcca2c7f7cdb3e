//! Computes breadth-first orders of vertices.
//!
//! One of these orders visits vertices with few edges first (NDSearch, section VI-A). Vertices with many edges follow
//! later, when more of their neighbors have places. This reduces the bandwidth of the graph. It does not aim at OR(G):
//! the order ignores the bounds of pages.

use std::collections::VecDeque;

use crate::base::row_numbers::RowSet;
use crate::index::layout::Edges;

/// Returns a breadth-first order in which vertices with fewer neighbors are visited first. Incoming and outgoing edges
/// both count.
pub(super) fn by_degree(edges: &Edges) -> Vec<u32> {
    breadth_first(edges, |vertex| edges.ties(vertex).len())
}

/// Returns a breadth-first order. It starts at the vertex with the smallest key, and visits the neighbors of a vertex
/// in the order of their keys.
pub fn breadth_first<K: Ord>(edges: &Edges, key: impl Fn(u32) -> K) -> Vec<u32> {
    let mut roots: Vec<u32> = edges.numbers().collect();
    roots.sort_by_key(|&vertex| key(vertex));
    let mut met = RowSet::new(roots.len() as u64);
    let mut order = Vec::with_capacity(roots.len());
    let mut queue = VecDeque::new();
    let mut next: Vec<u32> = Vec::new();
    for root in roots {
        if !met.contains(root.into()) {
            met.insert(root.into());
            queue.push_back(root);
        }
        while let Some(vertex) = queue.pop_front() {
            order.push(vertex);
            next.clear();
            next.extend(edges.ties(vertex).iter().map(|tie| tie.other()).filter(|&other| !met.contains(other.into())));
            next.sort_by_key(|&other| key(other));
            next.iter().for_each(|&other| met.insert(other.into()));
            queue.extend(&next);
        }
    }
    order
}
