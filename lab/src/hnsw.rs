//! HNSW (Malkov and Yashunin, 2020). DiskJoin assigns rows to buckets with one over the centers of a store (section 5.1).
//! FreshDiskANN's Figure 1 shows how updates change the recall of an HNSW.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use adjoin::{
    Random,
    kernels::{Kernel, Panel},
    lab::geometry::Coordinate,
};

/// Size of an HNSW.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HnswOptions {
    /// Maximum number of links that a new vertex gets in a layer, M. A vertex of the lowest layer has at most twice as many.
    pub(crate) links: usize,
    /// Number of candidates for the links of a new vertex, efConstruction.
    pub(crate) candidates: usize,
}

impl HnswOptions {
    /// Returns the maximum number of links of a vertex in a layer.
    fn links_max(self, layer: usize) -> usize {
        if layer == 0 { 2 * self.links } else { self.links }
    }
}

/// A vertex and its distance to a query. The distance is a key, see [`Coordinate::distance_key`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Near {
    key: u32,
    pub(crate) vertex: u32,
}

impl Near {
    /// Returns the computed squared distance.
    pub(crate) fn squared<T: Coordinate>(self) -> f64 {
        T::distance_of(self.key)
    }
}

/// Layers of links between some rows of a panel.
pub(crate) struct Hnsw<'a, T: Coordinate> {
    kernel: Kernel,
    panel: &'a Panel<T>,
    options: HnswOptions,
    /// For each layer, from the lowest one, the links of each vertex. A vertex without links may be missing in a layer.
    layers: Vec<Vec<Vec<u32>>>,
    /// For each row of the panel, the highest layer in which it is a vertex. `None` if it is in no layer.
    tops: Vec<Option<usize>>,
    /// A vertex of the highest layer. `None` if there is no vertex.
    entry: Option<u32>,
    random: Random,
    /// Working memory of inserts.
    inserting: HnswSearch<T::Distance>,
}

/// What happens to the links to a deleted vertex: the delete policies of FreshDiskANN, section 3.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeletePolicy {
    /// They disappear (policy A).
    Drop,
    /// Vertices that were linked to it are linked to the vertices to which it was linked. Lists that are then too long keep
    /// diverse links only (policy B).
    Connect,
}

/// Working memory of searches.
#[derive(Default)]
pub(crate) struct HnswSearch<D> {
    /// For each vertex, the number of the last search of a layer that saw it.
    seen: Vec<u32>,
    searches: u32,
    unseen: Vec<u32>,
    distances: Vec<D>,
    /// Number of distances that all searches computed, and of vertices that they expanded.
    pub(crate) computed: u64,
    pub(crate) expanded: u64,
}

impl<'a, T: Coordinate> Hnsw<'a, T> {
    /// Creates a graph without vertices.
    fn empty(kernel: Kernel, panel: &'a Panel<T>, options: HnswOptions, seed: u64) -> Self {
        let (random, inserting) = (Random::new(seed, "layers of HNSW"), HnswSearch::default());
        let tops = vec![None; panel.rows()];
        Self { kernel, panel, options, layers: Vec::new(), tops, entry: None, random, inserting }
    }

    /// Inserts all rows of a panel, in their order.
    pub(crate) fn build(kernel: Kernel, panel: &'a Panel<T>, options: HnswOptions, seed: u64) -> Self {
        let mut graph = Self::empty(kernel, panel, options, seed);
        (0..panel.rows() as u32).for_each(|vertex| graph.insert(vertex));
        graph
    }

    /// Returns the vertices near a padded row that a search with a number of candidates (ef) finds, nearest first.
    pub(crate) fn nearest(&self, x: &[T], candidates: usize, search: &mut HnswSearch<T::Distance>) -> Vec<Near> {
        match self.entry {
            Some(entry) => {
                let from = self.descend(x, entry, 0, search);
                self.search_layer(0, x, from, candidates, search)
            }
            None => Vec::new(),
        }
    }

    /// Returns the links of a vertex in the lowest layer.
    pub(crate) fn links(&self, vertex: u32) -> &[u32] {
        self.layers.first().map_or(&[], |lowest| &lowest[vertex as usize])
    }

    /// Returns the number of rows of the panel.
    pub(crate) fn rows(&self) -> u32 {
        self.tops.len() as u32
    }

    pub(crate) fn is_vertex(&self, row: u32) -> bool {
        self.tops[row as usize].is_some()
    }

    /// Inserts a row that is no vertex into the layers up to a random one (Algorithm 1 of the paper).
    pub(crate) fn insert(&mut self, vertex: u32) {
        assert!(!self.is_vertex(vertex), "a vertex is inserted once");
        // `1 - uniform` is in (0, 1], so the logarithm is finite.
        let top = (-(1.0 - self.random.uniform()).ln() / (self.options.links as f64).ln()) as usize;
        let (panel, before) = (self.panel, self.layers.len());
        let (x, mut search) = (panel.row(vertex as usize), std::mem::take(&mut self.inserting));
        if let Some(entry) = self.entry {
            let mut from = self.descend(x, entry, top, &mut search);
            for layer in (0..before.min(top + 1)).rev() {
                let near = self.search_layer(layer, x, from, self.options.candidates, &mut search);
                from = near[0].vertex;
                let links = self.diverse(&near, self.options.links);
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
        self.tops[vertex as usize] = Some(top);
        self.inserting = search;
    }

    /// Deletes vertices from all layers, all at once: policy B links around one deleted vertex, not around several in a row.
    pub(crate) fn delete(&mut self, removed: &[u32], policy: DeletePolicy) {
        removed.iter().for_each(|&vertex| self.tops[vertex as usize] = None);
        for layer in 0..self.layers.len() {
            for vertex in 0..self.rows() {
                let links = &self.layers[layer][vertex as usize];
                if self.is_vertex(vertex) && links.iter().any(|&link| !self.is_vertex(link)) {
                    self.layers[layer][vertex as usize] = self.mended(layer, vertex, policy);
                }
            }
            // Links of deleted vertices are needed until all others of the layer are mended.
            removed.iter().for_each(|&vertex| self.layers[layer][vertex as usize].clear());
        }
        let top = self.tops.iter().flatten().max().copied();
        self.layers.truncate(top.map_or(0, |top| top + 1));
        if self.entry.is_some_and(|entry| !self.is_vertex(entry)) {
            let highest = top.and_then(|top| self.tops.iter().position(|&other| other == Some(top)));
            self.entry = highest.map(|vertex| vertex as u32);
        }
    }

    /// Returns the links of a vertex after some of its links were deleted.
    fn mended(&self, layer: usize, vertex: u32, policy: DeletePolicy) -> Vec<u32> {
        let all = &self.layers[layer];
        let (mut links, gone): (Vec<u32>, Vec<u32>) =
            all[vertex as usize].iter().partition(|&&link| self.is_vertex(link));
        if policy == DeletePolicy::Drop {
            return links;
        }
        let theirs = gone.iter().flat_map(|&gone| &all[gone as usize]).copied();
        links.extend(theirs.filter(|&link| link != vertex && self.is_vertex(link)));
        links.sort_unstable();
        links.dedup();
        self.shortened(layer, vertex, links)
    }

    /// Walks from the entry through the layers above `layer`, in each to the nearest vertex. Returns the last vertex.
    fn descend(&self, x: &[T], entry: u32, layer: usize, search: &mut HnswSearch<T::Distance>) -> u32 {
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
        search: &mut HnswSearch<T::Distance>,
    ) -> Vec<Near> {
        search.seen.resize(self.panel.rows(), 0);
        search.searches += 1;
        search.computed += 1;
        search.seen[from as usize] = search.searches;
        let first = self.near(x, from);
        let (mut open, mut found) = (BinaryHeap::from([Reverse(first)]), BinaryHeap::from([first]));
        while let Some(Reverse(next)) = open.pop() {
            if found.len() >= candidates && found.peek().is_some_and(|farthest| next > *farthest) {
                break;
            }
            let HnswSearch { seen, searches, unseen, distances, .. } = search;
            unseen.clear();
            unseen.extend(
                self.layers[layer][next.vertex as usize]
                    .iter()
                    .filter(|&&other| std::mem::replace(&mut seen[other as usize], *searches) != *searches),
            );
            distances.resize(unseen.len(), T::Distance::default());
            self.kernel.one_to_some(x, self.panel, unseen, distances);
            search.computed += unseen.len() as u64;
            search.expanded += 1;
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

    /// Adds a link from `vertex` to `new`.
    fn link_back(&mut self, layer: usize, vertex: u32, new: u32) {
        let mut links = std::mem::take(&mut self.layers[layer][vertex as usize]);
        links.push(new);
        self.layers[layer][vertex as usize] = self.shortened(layer, vertex, links);
    }

    /// Returns the links of a vertex in a layer, or only diverse ones if there are too many.
    fn shortened(&self, layer: usize, vertex: u32, links: Vec<u32>) -> Vec<u32> {
        let most = self.options.links_max(layer);
        if links.len() <= most {
            return links;
        }
        let x = self.panel.row(vertex as usize);
        let mut near: Vec<Near> = links.iter().map(|&link| self.near(x, link)).collect();
        near.sort_unstable();
        self.diverse(&near, most)
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
    use adjoin::Context;

    use super::*;
    use crate::deletes::tests::vectors;

    const OPTIONS: HnswOptions = HnswOptions { links: 20, candidates: 100 };

    /// Returns rows of uniform bytes.
    fn panel(rows: usize, dimensions: usize, seed: u64) -> Panel<u8> {
        let (mut panel, mut random) = (Panel::zeroed(rows, dimensions), Random::new(seed, "rows"));
        (0..rows).for_each(|row| panel.row_mut(row)[..dimensions].fill_with(|| random.below(256) as u8));
        panel
    }

    /// Checks that all links of a graph lead to other vertices of their layer, that no list is too long, and that none has a
    /// link twice.
    fn check(graph: &Hnsw<'_, u8>) {
        assert_eq!(graph.entry.and_then(|entry| graph.tops[entry as usize]), graph.layers.len().checked_sub(1));
        for (layer, lists) in graph.layers.iter().enumerate() {
            let most = graph.options.links_max(layer);
            for (vertex, links) in lists.iter().enumerate() {
                let is_in = |row: usize| graph.tops[row].is_some_and(|top| top >= layer);
                assert!(links.len() <= most && (links.is_empty() || is_in(vertex)));
                assert!(links.iter().all(|&link| link as usize != vertex && is_in(link as usize)));
                let distinct: std::collections::HashSet<u32> = links.iter().copied().collect();
                assert_eq!(distinct.len(), links.len());
            }
        }
    }

    /// Returns the fraction of the rows that a search for their own vectors finds first. Equal vectors count as found.
    fn found(graph: &Hnsw<'_, u8>, rows: &Panel<u8>) -> f64 {
        let mut search = HnswSearch::default();
        let mut is_first = |row| graph.nearest(rows.row(row), 30, &mut search)[0].squared::<u8>() == 0.0;
        (0..rows.rows()).filter(|&row| is_first(row)).count() as f64 / rows.rows() as f64
    }

    #[test]
    fn nearly_all_searches_find_the_two_nearest_vertices() {
        let kernel = Context::default().kernel;
        let (centers, rows) = (panel(2_000, 16, 1), panel(500, 16, 2));
        let graph = Hnsw::build(kernel, &centers, OPTIONS, 1);
        assert!(graph.layers.len() > 1, "2,000 vertices need more than one layer");
        check(&graph);
        let (mut search, mut distances, mut found) = (HnswSearch::default(), vec![0; 2_000], 0);
        for row in 0..rows.rows() {
            kernel.one_to_many(rows.row(row), &centers, &mut distances);
            let near = graph.nearest(rows.row(row), 20, &mut search);
            assert!(near.is_sorted() && near.len() == 20);
            assert_eq!(near[0].squared::<u8>(), f64::from(distances[near[0].vertex as usize]));
            let mut keys: Vec<u32> = distances.iter().map(|&distance| u8::distance_key(distance)).collect();
            keys.sort_unstable();
            found += near[..2].iter().zip(&keys).filter(|(near, key)| near.key == **key).count();
        }
        assert!(found >= 950, "{found} of 1,000");
        assert!(search.expanded >= 500 * 20 && search.computed > search.expanded);
    }

    #[test]
    fn a_graph_of_one_vertex_finds_it() {
        let one = panel(1, 16, 1);
        let mut graph = Hnsw::build(Context::default().kernel, &one, OPTIONS, 1);
        let find = |graph: &Hnsw<'_, u8>| -> Vec<u32> {
            graph.nearest(one.row(0), 20, &mut HnswSearch::default()).iter().map(|near| near.vertex).collect()
        };
        assert_eq!(find(&graph), [0]);
        graph.delete(&[0], DeletePolicy::Connect);
        assert!(find(&graph).is_empty() && graph.links(0).is_empty());
        graph.insert(0);
        assert_eq!(find(&graph), [0]);
        let none = panel(0, 16, 1);
        let empty = Hnsw::build(Context::default().kernel, &none, OPTIONS, 1);
        assert!(empty.nearest(one.row(0), 20, &mut HnswSearch::default()).is_empty());
    }

    #[test]
    fn links_stay_valid_while_vertices_are_deleted_and_inserted() {
        let (rows, mut random) = (vectors(1_200, 3), Random::new(5, "deletes"));
        let options = HnswOptions { links: 6, candidates: 30 };
        for policy in [DeletePolicy::Drop, DeletePolicy::Connect] {
            let mut graph = Hnsw::build(Context::default().kernel, &rows, options, 1);
            let before = found(&graph, &rows);
            assert!(before > 0.99, "{before}");
            for percent in [5, 50, 100, 20] {
                let drawn = random.ascending_sample(12 * percent, 1_200);
                let drawn: Vec<u32> = drawn.into_iter().map(|vertex| vertex as u32).collect();
                let layers = graph.layers.clone();
                graph.delete(&drawn, policy);
                check(&graph);
                assert!(drawn.iter().all(|&vertex| !graph.is_vertex(vertex) && graph.links(vertex).is_empty()));
                let (whole, new) = mended_as_documented(&graph, &layers, policy);
                let mends = policy == DeletePolicy::Connect && percent < 100;
                assert!(!mends || (whole > 0 && new > 0), "{percent} %: {whole} lists are whole, {new} have new links");
                drawn.iter().for_each(|&vertex| graph.insert(vertex));
                check(&graph);
                assert!((0..1_200).all(|vertex| graph.is_vertex(vertex)));
            }
            let after = found(&graph, &rows);
            assert!(policy == DeletePolicy::Drop || after > before - 0.05, "{after} from {before}");
        }
    }

    /// Compares the lists of all layers with those before deletes. Returns the number of lists that have all links which
    /// policy B adds, and the number of lists with a link that they did not have.
    fn mended_as_documented(graph: &Hnsw<'_, u8>, before: &[Vec<Vec<u32>>], policy: DeletePolicy) -> (usize, usize) {
        let (mut whole, mut new) = (0, 0);
        for (layer, (lists, before)) in graph.layers.iter().zip(before).enumerate() {
            let most = graph.options.links_max(layer);
            for vertex in (0..1_200).filter(|&vertex| graph.is_vertex(vertex as u32)) {
                let (mut left, gone): (Vec<u32>, Vec<u32>) =
                    before[vertex].iter().partition(|&&link| graph.is_vertex(link));
                if policy == DeletePolicy::Drop || gone.is_empty() {
                    assert_eq!(lists[vertex], left);
                    continue;
                }
                let had = left.len();
                let theirs = gone.iter().flat_map(|&gone| &before[gone as usize]).copied();
                left.extend(theirs.filter(|&link| link as usize != vertex && graph.is_vertex(link)));
                let is_new = |link: &&u32| !left[..had].contains(link);
                new += usize::from(lists[vertex].iter().any(|link| is_new(&link)));
                left.sort_unstable();
                left.dedup();
                if left.len() <= most {
                    whole += 1;
                    assert_eq!(lists[vertex], left);
                }
                assert!(lists[vertex].iter().all(|link| left.contains(link)));
            }
        }
        (whole, new)
    }
}
