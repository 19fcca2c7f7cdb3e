//! Inserts vertices in batches (FreshDiskANN, Algorithm 2). The build of a graph inserts all vertices.
//!
//! All threads search for the vertices of a batch in the unchanged graph. Then the edges of the batch and their back
//! edges are added. Each search therefore sees the graph after the previous batch, and the result does not depend on
//! the threads. DiskANN's crate inserts in batches too (`multi_insert`). As in that crate, out-degrees may exceed the
//! degree during the inserts: pruning a full list for each new back edge would cost more than the searches.

use std::sync::Mutex;

use adjoin_kernels::Panel;

use super::adjacency::{Graph, Part};
use super::medoid::{medoid, nearest_live};
use super::options::GraphOptions;
use super::prune::{Pruner, Vectors};
use super::reach;
use super::search::GreedySearch;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::mutex::lock;
use crate::base::random::Random;
use crate::base::workers::map_items;

/// Divisor of the number of vertices in the graph. A batch has at most this part of them, since its members do not see
/// each other.
const BATCH_SHARE: usize = 64;
/// Largest number of vertices in a batch.
const BATCH_MAX: usize = 2_048;
/// Number of vertices of a batch that a thread takes at once.
const MEMBERS_TOGETHER: usize = 16;
/// Number of parts into which the graph is divided. Each part is changed by one thread at a time.
const PARTS: usize = 64;

impl Graph {
    /// Builds the graph over all vectors of a panel. The graph depends only on panel and options.
    ///
    /// # Errors
    /// If an option is out of range, if memory does not suffice, or if the work is cancelled.
    pub fn build<T: Coordinate>(context: &Context, panel: &Panel<T>, options: &GraphOptions) -> Result<Self> {
        options.check()?;
        let vertices = panel.rows();
        let mut graph = Self::empty(context, vertices, options)?;
        let medoid = medoid(context, panel, |_| true)?;
        let mut order: Vec<u32> = (0..vertices as u32).filter(|&vertex| Some(vertex) != medoid).collect();
        Random::new(options.seed, "order of inserts").shuffle(&mut order);
        // The first vertex becomes the entry. Walks from the middle of the set are shortest.
        order.splice(0..0, medoid);
        graph.insert_into_room(context, panel, &order)?;
        Ok(graph)
    }

    /// Inserts vertices in the given order (FreshDiskANN, Algorithm 2). If a vertex is in the graph already, it gets
    /// new out-neighbors. These are chosen from its current out-neighbors and from the vertices that a search for it
    /// visits. Inserting all vertices again is thus like a second pass of the build.
    ///
    /// # Errors
    /// If memory does not suffice, in which case the graph is unchanged. If the work is cancelled, in which case the
    /// graph must not be used, since lists may be too long.
    ///
    /// # Panics
    /// If one of the vertices is not a row of the panel.
    pub fn insert<T: Coordinate>(&mut self, context: &Context, panel: &Panel<T>, vertices: &[u32]) -> Result<()> {
        self.widen(context)?;
        self.insert_into_room(context, panel, vertices)
    }

    /// Removes the vertices `removed`, and replaces the out-neighbors of the vertices in `lists`. Then links the
    /// vertices that no search reaches. The laboratory uses this for updates by its own rules.
    ///
    /// # Errors
    /// If memory does not suffice, or if the work is cancelled.
    ///
    /// # Panics
    /// If a list is longer than the degree.
    #[doc(hidden)]
    pub fn replace<T: Coordinate>(
        &mut self,
        context: &Context,
        panel: &Panel<T>,
        removed: &[u32],
        lists: &[(u32, Vec<u32>)],
    ) -> Result<()> {
        for &vertex in removed {
            self.set_neighbors(vertex, &[]);
            self.present.remove(vertex.into());
        }
        lists.iter().for_each(|(vertex, neighbors)| self.set_neighbors(*vertex, neighbors));
        // If the entry was removed, the vertex nearest to it becomes the entry.
        if let Some(entry) = self.entry.filter(|&entry| !self.is_live(entry)) {
            self.entry = nearest_live(context, panel, self, entry)?;
        }
        reach::repair(context, panel, self)
    }

    /// Creates the graph of other vectors, most of which are vectors of this graph. `was` has the vertex of this graph
    /// that each row of `panel` was, or `None` for a new vector. The lists of kept vertices are kept, but a removed
    /// neighbor is replaced by its own neighbors (FreshDiskANN, Algorithm 4). Then the new vectors are inserted,
    /// with `options`.
    ///
    /// # Errors
    /// If memory does not suffice, or if the work is cancelled.
    pub(crate) fn changed<T: Coordinate>(
        &self,
        context: &Context,
        panel: &Panel<T>,
        was: &[Option<u32>],
        options: &GraphOptions,
    ) -> Result<Self> {
        let mut graph = Self::empty(context, panel.rows(), options)?;
        let numbers = (self.vertices() + was.len()) * size_of::<Option<u32>>();
        let _numbers = context.reserve(numbers as u64, "changing a graph")?;
        let mut now = vec![None; self.vertices()];
        let mut new = Vec::new();
        for (row, was) in (0..).zip(was) {
            match was {
                Some(vertex) => {
                    now[*vertex as usize] = Some(row);
                    graph.present.insert(row.into());
                }
                None => new.push(row),
            }
        }
        let (vectors, mut pruner) = (Vectors { kernel: context.kernel, panel }, Pruner::new(options));
        for (row, was) in (0..).zip(was).filter_map(|(row, was)| Some((row, (*was)?))) {
            let kept: Vec<u32> = self.neighbors(was).iter().filter_map(|&neighbor| now[neighbor as usize]).collect();
            if kept.len() == self.neighbors(was).len() {
                graph.set_neighbors(row, &kept);
                continue;
            }
            let removed = self.neighbors(was).iter().filter(|&&neighbor| now[neighbor as usize].is_none());
            let beyond =
                removed.flat_map(|&removed| self.neighbors(removed)).filter_map(|&neighbor| now[neighbor as usize]);
            let candidates: Vec<u32> = kept.iter().copied().chain(beyond).collect();
            pruner.begin(row);
            pruner.add_vertices(vectors, &candidates);
            graph.set_neighbors(row, pruner.prune(vectors));
        }
        graph.entry = match self.entry.and_then(|entry| now[entry as usize]) {
            None => medoid(context, panel, |vertex| graph.is_live(vertex))?,
            entry => entry,
        };
        graph.insert_into_room(context, panel, &new)?;
        Ok(graph)
    }

    /// Inserts vertices into a graph with enlarged slots, and then shrinks the slots. The first vertex of an empty
    /// graph becomes the entry.
    fn insert_into_room<T: Coordinate>(&mut self, context: &Context, panel: &Panel<T>, order: &[u32]) -> Result<()> {
        let options = *self.options();
        let purpose = format!("building a graph of {} vectors", self.vertices());
        let _working = context.reserve(working_bytes(context.threads, self.vertices(), &options), &purpose)?;
        // The first vertex of an empty graph has no neighbors to find. It becomes the entry.
        let others = match (self.entry, order.split_first()) {
            (None, Some((&first, others))) => {
                self.entry = Some(first);
                self.present.insert(first.into());
                others
            }
            _ => order,
        };
        let insertion = Insertion::new(context, panel, &options);
        insertion.insert(self, others)?;
        // Lists may be longer than the degree until this point, since the slots are larger.
        insertion.prune_all(self)?;
        self.narrow();
        // Pruning may have removed the last edge to a vertex.
        reach::repair(context, panel, self)
    }
}

impl Graph {
    /// Returns the bytes for building a graph over `vertices` vectors, including the graph.
    pub fn build_bytes(threads: usize, vertices: usize, options: &GraphOptions) -> u64 {
        Self::building_bytes(vertices, options) + working_bytes(threads, vertices, options)
    }
}

/// Returns the bytes for a build in addition to the graph: searches, the order of inserts, and the edges of a batch.
fn working_bytes(threads: usize, vertices: usize, options: &GraphOptions) -> u64 {
    let search = GreedySearch::<f32>::memory_bytes(vertices, options.degree, options.build_list);
    let edges = BATCH_MAX * options.degree * (size_of::<u32>() + 2 * size_of::<(u32, u32)>());
    threads as u64 * search + (vertices * size_of::<u32>() + edges) as u64
}

/// Returns the size of the next batch if the graph has `inserted` vertices.
fn batch_len(inserted: usize) -> usize {
    (inserted / BATCH_SHARE).clamp(1, BATCH_MAX)
}

/// Returns the number of vertices per part, at least 1.
fn part_len(graph: &Graph) -> usize {
    graph.vertices().div_ceil(PARTS).max(1)
}

/// Insertion of vertices into a graph over a panel.
struct Insertion<'a, T: Coordinate> {
    context: &'a Context,
    vectors: Vectors<'a, T>,
    options: &'a GraphOptions,
    /// Searches that no thread uses at the moment. Threads end after each batch, but the working memory of their
    /// searches is reused.
    idle: Mutex<Vec<GreedySearch<T>>>,
}

impl<'a, T: Coordinate> Insertion<'a, T> {
    fn new(context: &'a Context, panel: &'a Panel<T>, options: &'a GraphOptions) -> Self {
        let vectors = Vectors { kernel: context.kernel, panel };
        Self { context, vectors, options, idle: Mutex::default() }
    }

    /// Inserts vertices in the given order, batch by batch.
    fn insert(&self, graph: &mut Graph, order: &[u32]) -> Result<()> {
        self.context.progress.begin("graph", "vectors", order.len() as u64);
        let mut inserted = graph.present.len() as usize;
        let mut left = order;
        while !left.is_empty() {
            let (batch, later) = left.split_at(batch_len(inserted).min(left.len()));
            self.insert_batch(graph, batch)?;
            inserted += batch.len();
            left = later;
            self.context.progress.advance(batch.len() as u64);
        }
        Ok(())
    }

    fn insert_batch(&self, graph: &mut Graph, batch: &[u32]) -> Result<()> {
        let chunks: Vec<&[u32]> = batch.chunks(MEMBERS_TOGETHER).collect();
        let found = self.on_threads(chunks.len(), |pruner, chunk| {
            // Each search has a set over all vertices, which is expensive to create for every chunk.
            let mut search = lock(&self.idle).pop().unwrap_or_else(|| GreedySearch::new(graph));
            let of = |&vertex: &u32| self.out_neighbors(&mut search, pruner, graph, vertex);
            let lists: Vec<Vec<u32>> = chunks[chunk].iter().map(of).collect();
            lock(&self.idle).push(search);
            lists
        })?;
        // The graph is changed only after all searches, so that no vertex of the batch sees another, no matter how many
        // threads there are.
        for (&vertex, neighbors) in batch.iter().zip(found.iter().flatten()) {
            graph.set_neighbors(vertex, neighbors);
            graph.present.insert(vertex.into());
        }
        self.add_back_edges(graph, batch)
    }

    /// Chooses the out-neighbors of a vertex from those that a search for it expands.
    fn out_neighbors(
        &self,
        search: &mut GreedySearch<T>,
        pruner: &mut Pruner<T>,
        graph: &Graph,
        vertex: u32,
    ) -> Vec<u32> {
        let Vectors { kernel, panel } = self.vectors;
        search.run(kernel, graph, panel, panel.row(vertex as usize), self.options.build_list);
        pruner.begin(vertex);
        // A vertex that is inserted again keeps its neighbors as candidates.
        pruner.add_vertices(self.vectors, graph.neighbors(vertex));
        pruner.add(search.expanded().iter().copied());
        pruner.prune(self.vectors).to_vec()
    }

    /// Adds a back edge for each out-neighbor of the batch.
    fn add_back_edges(&self, graph: &mut Graph, batch: &[u32]) -> Result<()> {
        let part_vertices = part_len(graph);
        // Edges are grouped by the part of their target, so that only one thread changes each part.
        let mut edges = vec![Vec::new(); PARTS];
        for &vertex in batch {
            for &neighbor in graph.neighbors(vertex) {
                edges[neighbor as usize / part_vertices].push((neighbor, vertex));
            }
        }
        let parts: Vec<_> = graph.parts(part_vertices).zip(edges).filter(|(_, edges)| !edges.is_empty()).collect();
        // No thread waits for these locks, since each item has its own part.
        let parts: Vec<_> = parts.into_iter().map(Mutex::new).collect();
        self.on_threads(parts.len(), |pruner, part| {
            let (part, edges) = &mut *lock(&parts[part]);
            // Edges are sorted by target, so that a vertex gets all of its new edges at once, in an order that does not
            // depend on threads.
            edges.sort_unstable();
            edges.dedup();
            for group in edges.chunk_by(|a, b| a.0 == b.0) {
                self.add_neighbors(pruner, part, group);
            }
        })?;
        Ok(())
    }

    /// Adds edges that start at one vertex. Prunes its list if it is full.
    fn add_neighbors(&self, pruner: &mut Pruner<T>, part: &mut Part<'_>, edges: &[(u32, u32)]) {
        let vertex = edges[0].0;
        let known = part.neighbors(vertex);
        let new = edges.iter().map(|edge| edge.1).filter(|neighbor| !known.contains(neighbor));
        let new: Vec<u32> = new.collect();
        if !part.try_append(vertex, &new) {
            pruner.begin(vertex);
            pruner.add_vertices(self.vectors, part.neighbors(vertex));
            pruner.add_vertices(self.vectors, &new);
            part.set_neighbors(vertex, pruner.prune(self.vectors));
        }
    }

    /// Prunes all lists that are longer than the degree.
    fn prune_all(&self, graph: &mut Graph) -> Result<()> {
        let part_vertices = part_len(graph);
        let parts: Vec<_> = graph.parts(part_vertices).map(Mutex::new).collect();
        self.on_threads(parts.len(), |pruner, part| {
            let part = &mut *lock(&parts[part]);
            for vertex in part.vertices() {
                if part.neighbors(vertex).len() > self.options.degree {
                    pruner.begin(vertex);
                    pruner.add_vertices(self.vectors, part.neighbors(vertex));
                    part.set_neighbors(vertex, pruner.prune(self.vectors));
                }
            }
        })?;
        Ok(())
    }

    /// Processes items on all threads. Returns the results in the order of the items.
    fn on_threads<R: Send>(&self, items: usize, work: impl Fn(&mut Pruner<T>, usize) -> R + Sync) -> Result<Vec<R>> {
        let Context { threads, cancel, .. } = self.context;
        map_items(*threads, items, cancel, || Pruner::new(self.options), |pruner, item| Ok(work(pruner, item)))
    }
}
