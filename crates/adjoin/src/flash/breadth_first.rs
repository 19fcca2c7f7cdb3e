//! Breadth-first orders of vertices.
//!
//! One of them visits vertices with few edges first (NDSearch, section VI-A). Vertices with many edges follow later,
//! near more neighbors that are already placed. This reduces the bandwidth of the graph rather than OR(G), since pages
//! cut the order anywhere.

use std::collections::VecDeque;

use crate::base::row_numbers::RowSet;
use crate::index::layout::Edges;

/// Returns the breadth-first order that visits vertices with fewer edges, both ways, first.
pub(super) fn by_degree(edges: &Edges) -> Vec<u32> {
    breadth_first(edges, |vertex| edges.ties(vertex).len())
}

/// Orders vertices breadth first, from and to those of small keys before others.
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
