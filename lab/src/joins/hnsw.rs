//! HNSW (Malkov and Yashunin, 2020) over the centers of a store, with which DiskJoin assigns rows to buckets (section
//! 5.1). The parameters are from the authors' program: M is 20, with 100 candidates in the build and 20 in a search. That
//! program searches the lowest layer only.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use adjoin::{
    Random,
    kernels::{Kernel, Panel},
    lab::geometry::Coordinate,
};

/// Maximum number of links that a new vertex gets in a layer, M.
const LINKS: usize = 20;
/// Number of candidates for the links of a new vertex, efConstruction.
const BUILD_CANDIDATES: usize = 100;
/// Number of candidates of a search, ef.
const SEARCH_CANDIDATES: usize = 20;

/// A vertex and its distance to a query. The distance is a key, see [`Coordinate::distance_key`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Near {
    key: u32,
    pub(super) vertex: u32,
}

impl Near {
    /// Returns the computed squared distance.
    pub(super) fn squared<T: Coordinate>(self) -> f64 {
        T::distance_of(self.key)
    }
}

/// Layers of links between the rows of a panel.
pub(super) struct Hnsw<'a, T: Coordinate> {
    kernel: Kernel,
    panel: &'a Panel<T>,
    /// For each layer, from the lowest one, the links of each vertex. A vertex without links may be missing in a layer.
    layers: Vec<Vec<Vec<u32>>>,
    /// A vertex of the highest layer. `None` if there is no vertex.
    entry: Option<u32>,
}

/// Working memory of searches.
#[derive(Default)]
pub(super) struct Search<D> {
    /// For each vertex, the number of the last search of a layer that saw it.
    seen: Vec<u32>,
    searches: u32,
    unseen: Vec<u32>,
    distances: Vec<D>,
}

impl<'a, T: Coordinate> Hnsw<'a, T> {
    /// Inserts all rows of a panel, in their order.
    pub(super) fn build(kernel: Kernel, panel: &'a Panel<T>, seed: u64) -> Self {
        let mut graph = Self { kernel, panel, layers: Vec::new(), entry: None };
        let (mut random, mut search) = (Random::new(seed, "layers of HNSW"), Search::default());
        for vertex in 0..panel.rows() as u32 {
            // `1 - uniform` is in (0, 1], so the logarithm is finite.
            let top = (-(1.0 - random.uniform()).ln() / (LINKS as f64).ln()) as usize;
            graph.insert(vertex, top, &mut search);
        }
        graph
    }

    /// Returns vertices near a padded row, nearest first.
    pub(super) fn nearest(&self, x: &[T], search: &mut Search<T::Distance>) -> Vec<Near> {
        match self.entry {
            Some(entry) => {
                let from = self.descend(x, entry, 0, search);
                self.search_layer(0, x, from, SEARCH_CANDIDATES, search)
            }
            None => Vec::new(),
        }
    }

    /// Inserts a vertex into the layers up to `top` (Algorithm 1 of the paper).
    fn insert(&mut self, vertex: u32, top: usize, search: &mut Search<T::Distance>) {
        let (panel, before) = (self.panel, self.layers.len());
        let x = panel.row(vertex as usize);
        if let Some(entry) = self.entry {
            let mut from = self.descend(x, entry, top, search);
            for layer in (0..before.min(top + 1)).rev() {
                let near = self.search_layer(layer, x, from, BUILD_CANDIDATES, search);
                from = near[0].vertex;
                let links = self.diverse(&near, LINKS);
                for &other in &links {
                    self.link_back(layer, other, vertex);
                }
                self.layers[layer][vertex as usize] = links;
            }
        }
        if top >= before {
            self.layers.resize(top + 1, vec![Vec::new(); panel.rows()]);
            self.entry = Some(vertex);
        }
    }

    /// Walks from the entry through the layers above `layer`, in each to the nearest vertex. Returns the last vertex.
    fn descend(&self, x: &[T], entry: u32, layer: usize, search: &mut Search<T::Distance>) -> u32 {
        let above = (layer + 1..self.layers.len()).rev();
        above.fold(entry, |from, layer| self.search_layer(layer, x, from, 1, search)[0].vertex)
    }

    /// Returns the vertices of a layer near `x` that a search from `from` finds, nearest first (Algorithm 2).
    fn search_layer(
        &self,
        layer: usize,
        x: &[T],
        from: u32,
        candidates: usize,
        search: &mut Search<T::Distance>,
    ) -> Vec<Near> {
        search.seen.resize(self.panel.rows(), 0);
        search.searches += 1;
        search.seen[from as usize] = search.searches;
        let first = self.near(x, from);
        let (mut open, mut found) = (BinaryHeap::from([Reverse(first)]), BinaryHeap::from([first]));
        while let Some(Reverse(next)) = open.pop() {
            if found.len() >= candidates && found.peek().is_some_and(|farthest| next > *farthest) {
                break;
            }
            let Search { seen, searches, unseen, distances } = search;
            unseen.clear();
            unseen.extend(
                self.layers[layer][next.vertex as usize]
                    .iter()
                    .filter(|&&other| std::mem::replace(&mut seen[other as usize], *searches) != *searches),
            );
            distances.resize(unseen.len(), T::Distance::default());
            self.kernel.one_to_some(x, self.panel, unseen, distances);
            for (&vertex, &distance) in unseen.iter().zip(&*distances) {
                let near = Near { key: T::distance_key(distance), vertex };
                if found.len() < candidates || found.peek().is_some_and(|farthest| near < *farthest) {
                    open.push(Reverse(near));
                    found.push(near);
                    if found.len() > candidates {
                        found.pop();
                    }
                }
            }
        }
        found.into_sorted_vec()
    }

    /// Adds a link from `vertex` to `new`. If the list is full, only diverse links are kept.
    fn link_back(&mut self, layer: usize, vertex: u32, new: u32) {
        let most = if layer == 0 { 2 * LINKS } else { LINKS };
        let mut links = std::mem::take(&mut self.layers[layer][vertex as usize]);
        links.push(new);
        if links.len() > most {
            let x = self.panel.row(vertex as usize);
            let mut near: Vec<Near> = links.iter().map(|&link| self.near(x, link)).collect();
            near.sort_unstable();
            links = self.diverse(&near, most);
        }
        self.layers[layer][vertex as usize] = links;
    }

    /// Chooses at most `most` links among candidates, nearest first. A candidate is left out if it is nearer to a
    /// chosen one than to the vertex (Algorithm 4). With few candidates, all are chosen.
    fn diverse(&self, candidates: &[Near], most: usize) -> Vec<u32> {
        if candidates.len() < most {
            return candidates.iter().map(|near| near.vertex).collect();
        }
        let mut chosen: Vec<u32> = Vec::with_capacity(most);
        for near in candidates {
            let x = self.panel.row(near.vertex as usize);
            if chosen.len() < most && chosen.iter().all(|&other| self.near(x, other).key >= near.key) {
                chosen.push(near.vertex);
            }
        }
        chosen
    }

    fn near(&self, x: &[T], vertex: u32) -> Near {
        let distance = self.kernel.distance(x, self.panel.row(vertex as usize));
        Near { key: T::distance_key(distance), vertex }
    }
}

#[cfg(test)]
mod tests {
    use adjoin::{Context, lab::geometry::Coordinate};

    use super::*;

    /// Returns rows of uniform bytes.
    fn panel(rows: usize, dimensions: usize, seed: u64) -> Panel<u8> {
        let (mut panel, mut random) = (Panel::zeroed(rows, dimensions), Random::new(seed, "rows"));
        (0..rows).for_each(|row| panel.row_mut(row)[..dimensions].fill_with(|| random.below(256) as u8));
        panel
    }

    #[test]
    fn nearly_all_searches_find_the_two_nearest_vertices() {
        let kernel = Context::default().kernel;
        let (centers, rows) = (panel(2_000, 16, 1), panel(500, 16, 2));
        let graph = Hnsw::build(kernel, &centers, 1);
        assert!(graph.layers.len() > 1, "2,000 vertices need more than one layer");
        assert!(graph.layers[0].iter().all(|links| links.len() <= 2 * LINKS));
        assert!(graph.layers[1].iter().all(|links| links.len() <= LINKS));
        let (mut search, mut distances, mut found) = (Search::default(), vec![0; 2_000], 0);
        for row in 0..rows.rows() {
            kernel.one_to_many(rows.row(row), &centers, &mut distances);
            let near = graph.nearest(rows.row(row), &mut search);
            assert!(near.is_sorted() && near.len() == SEARCH_CANDIDATES);
            assert_eq!(near[0].squared::<u8>(), f64::from(distances[near[0].vertex as usize]));
            let mut keys: Vec<u32> = distances.iter().map(|&distance| u8::distance_key(distance)).collect();
            keys.sort_unstable();
            found += near[..2].iter().zip(&keys).filter(|(near, key)| near.key == **key).count();
        }
        assert!(found >= 950, "{found} of 1,000");
    }

    #[test]
    fn a_graph_of_one_vertex_finds_it() {
        let one = panel(1, 16, 1);
        let graph = Hnsw::build(Context::default().kernel, &one, 1);
        let found: Vec<u32> =
            graph.nearest(one.row(0), &mut Search::default()).iter().map(|near| near.vertex).collect();
        assert_eq!(found, [0]);
        let none = panel(0, 16, 1);
        assert!(
            Hnsw::build(Context::default().kernel, &none, 1).nearest(one.row(0), &mut Search::default()).is_empty()
        );
    }
}
