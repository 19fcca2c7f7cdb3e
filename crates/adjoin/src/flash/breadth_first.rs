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

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of NDSearch's Figure 10, as its text describes it: the degrees of `a`, `c`, `e` and `f`, which `d`
    /// connects with `g` and `h`. The text does not give all edges; these fit its degrees.
    #[test]
    fn the_example_of_the_paper_has_its_order() {
        let edges = ["hg", "gd", "da", "dc", "de", "df", "ac", "ab", "ec", "ef", "fb", "cb"];
        let mut neighbors = vec![Vec::new(); 8];
        for edge in edges {
            let [x, y] = [0, 1].map(|end| u32::from(edge.as_bytes()[end] - b'a'));
            neighbors[x as usize].push(y);
        }
        let order = by_degree(&Edges::of(0..8, |vertex| &neighbors[vertex as usize]));
        let names: String = order.into_iter().map(|vertex| char::from(b'a' + vertex as u8)).collect();
        assert_eq!(names, "hgdaefcb");
    }

    #[test]
    fn each_component_begins_at_a_vertex_with_few_neighbors() {
        let neighbors = [vec![1, 2], vec![2], vec![], vec![4], vec![], vec![]];
        let order = by_degree(&Edges::of(0..6, |vertex| &neighbors[vertex as usize]));
        // Vertex 5 has no neighbor, 3 and 4 have one each, and the others two.
        assert_eq!(order, [5, 3, 4, 0, 1, 2]);
    }
}
