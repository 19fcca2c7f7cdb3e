//! Orders in which neighbors follow one another as a search that goes breadth first meets them.
//!
//! From and to vertices of few edges before others (NDSearch, section VI-A): those of many edges, met later, can lie near to more
//! neighbors that have their places. Bandwidth is what that makes small, not OR(G): pages cut the order anywhere.

use std::collections::VecDeque;

use super::edges::Edges;
use crate::row_numbers::RowSet;

/// Breadth first from and to vertices of small numbers before others.
pub(super) fn by_number(edges: &Edges) -> Vec<u32> {
    breadth_first(edges, |vertex| vertex)
}

/// The same by how many edges they have, both ways.
pub(super) fn by_degree(edges: &Edges) -> Vec<u32> {
    breadth_first(edges, |vertex| edges.ties(vertex).len())
}

fn breadth_first<K: Ord>(edges: &Edges, key: impl Fn(u32) -> K) -> Vec<u32> {
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
