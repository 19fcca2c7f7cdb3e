//! The navigation graph is a graph in memory over a sample of the vertices. It finds the vertices of the sample that
//! are nearest to a query. At these, the search of the pages starts (Starling, section 4.2).

use std::any::Any;
use std::sync::OnceLock;

use adjoin_kernels::{Kernel, Panel};

use super::options::IndexParameters;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space, with_coordinates};
use crate::base::random::Random;
use crate::graph::{Graph, GraphOptions, GreedySearch};

/// Divisor of the number of vertices. By default, the sample has this part of the vertices, at most `SAMPLE_MAX`.
const SHARE: u64 = 100;
const SAMPLE_MAX: u64 = 10_000;
/// Largest number of islands that add a vertex to the sample. A random sample may miss a small region, and walks from
/// other regions rarely reach an island.
pub(super) const ISLANDS_MAX: usize = 32;
/// Number of candidates in a search of the navigation graph.
const LIST: usize = 32;
/// Number of entry points of a search of the pages.
const ENTRIES: usize = 8;
const NUMBER_BYTES: usize = size_of::<u32>();

/// A navigation graph in its stored form.
pub(super) struct Navigation {
    /// Vertices of the index that are in the sample.
    vertices: Vec<u32>,
    /// Stored vectors of the sampled vertices, concatenated.
    stored: Vec<u8>,
    graph: Graph,
    /// A `Panel` of the stored vectors as coordinates of the index. The first search makes it.
    panel: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// Returns the bytes that building the navigation graph of an index of `vertices` vertices takes.
pub(super) fn building_bytes(vertices: u64, space: Space<'_>, options: &IndexParameters) -> u64 {
    let count = len_max(vertices, options);
    let panel = Panel::<f32>::bytes_for(count as usize, space.dimensions());
    2 * count * space.vectors.bytes() as u64 + panel + 3 * Graph::memory_bytes(count as usize, options.graph.degree)
}

/// Returns the bytes of the navigation graph of an open index of `vertices` vertices, whose coordinates searches use.
pub(super) fn open_bytes(vertices: u64, space: Space<'_>, options: &IndexParameters) -> u64 {
    let panel = with_coordinates!(space, T => {
        Panel::<T>::bytes_for(len_max(vertices, options) as usize, space.dimensions())
    });
    held_bytes(vertices, space, options) + panel
}

/// Returns the part of [`open_bytes`] that [`Graph::from_bytes`] reserves itself.
pub(super) fn graph_bytes(vertices: u64, options: &IndexParameters) -> u64 {
    Graph::memory_bytes(len_max(vertices, options) as usize, options.graph.degree)
}

/// Returns the bytes that [`Graph::build`] reserves itself, on `threads` threads.
pub(super) fn graph_building_bytes(threads: usize, vertices: u64, options: &IndexParameters) -> u64 {
    Graph::build_bytes(threads, len_max(vertices, options) as usize, &options.graph)
}

/// Returns the bytes of a navigation graph once it is built.
pub(super) fn held_bytes(vertices: u64, space: Space<'_>, options: &IndexParameters) -> u64 {
    let count = len_max(vertices, options);
    Navigation::stored_bytes(count, space) + Graph::memory_bytes(count as usize, options.graph.degree)
}

/// Returns the number of randomly sampled vertices in a navigation graph.
pub(super) fn sample_len(vertices: u64, options: &IndexParameters) -> u64 {
    let by_default = (vertices / SHARE).min(SAMPLE_MAX);
    options.navigation.map_or(by_default, u64::from).clamp(1, vertices)
}

/// Returns the largest number of vertices in a navigation graph, islands included.
fn len_max(vertices: u64, options: &IndexParameters) -> u64 {
    (sample_len(vertices, options) + ISLANDS_MAX as u64).min(vertices)
}

/// Vertices and their stored vectors, concatenated.
pub(super) struct StoredVertices {
    pub(super) vertices: Vec<u32>,
    pub(super) stored: Vec<u8>,
}

impl Navigation {
    /// Returns the bytes of the numbers and stored vectors of `count` vertices.
    pub(super) fn stored_bytes(count: u64, space: Space<'_>) -> u64 {
        count * (space.vectors.bytes() + NUMBER_BYTES) as u64
    }

    /// Returns a random sample of the vertices for a navigation graph, ascending.
    pub(super) fn sample(vertices: u32, options: &IndexParameters) -> Vec<u32> {
        let mut random = Random::new(options.graph.seed, "navigation graph");
        let sample = random.ascending_sample(sample_len(vertices.into(), options), vertices.into());
        sample.into_iter().map(|vertex| vertex as u32).collect()
    }

    /// Builds a navigation graph of some vertices.
    ///
    /// # Errors
    /// If memory does not suffice, or if the work is cancelled.
    pub(super) fn build<T: Coordinate>(
        context: &Context,
        space: Space<'_>,
        StoredVertices { vertices, stored }: StoredVertices,
        options: &GraphOptions,
    ) -> Result<Self> {
        let panel = panel_of::<T>(context.kernel, space, &stored);
        Ok(Self { graph: Graph::build(context, &panel, options)?, vertices, stored, panel: OnceLock::new() })
    }

    /// Returns the vertices of the index that are in the graph.
    pub(super) fn vertices(&self) -> &[u32] {
        &self.vertices
    }

    /// Returns whether a vertex is in the graph.
    pub(super) fn has(&self, vertex: u32) -> bool {
        // Vertices that were added later are at the end, so the list is not sorted.
        self.vertices.contains(&vertex)
    }

    /// Returns the number of vertices that may still be added.
    pub(super) fn room(&self, vertices: u64, options: &IndexParameters) -> usize {
        (len_max(vertices, options) as usize).saturating_sub(self.vertices.len())
    }

    /// Returns the graph with additional vertices.
    ///
    /// # Errors
    /// If memory does not suffice, or if the work is cancelled.
    pub(super) fn with<T: Coordinate>(
        &self,
        context: &Context,
        space: Space<'_>,
        more: StoredVertices,
        options: &GraphOptions,
    ) -> Result<Self> {
        self.changed::<T>(context, space, Some, more, options)
    }

    /// Returns the graph of an index that has changed. `number_of` returns the new number of a vertex, or `None` if the
    /// vertex is removed. `more` has additional vertices.
    ///
    /// # Errors
    /// If memory does not suffice, or if the work is cancelled.
    pub(super) fn changed<T: Coordinate>(
        &self,
        context: &Context,
        space: Space<'_>,
        number_of: impl Fn(u32) -> Option<u32>,
        more: StoredVertices,
        options: &GraphOptions,
    ) -> Result<Self> {
        let bytes = space.vectors.bytes();
        let count = self.vertices.len() + more.vertices.len();
        let (mut vertices, mut was) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut stored = Vec::with_capacity(count * bytes);
        for (number, (&vertex, vector)) in (0..).zip(self.vertices.iter().zip(self.stored.chunks_exact(bytes))) {
            let Some(vertex) = number_of(vertex) else { continue };
            vertices.push(vertex);
            was.push(Some(number));
            stored.extend_from_slice(vector);
        }
        vertices.extend_from_slice(&more.vertices);
        was.resize(vertices.len(), None);
        stored.extend_from_slice(&more.stored);
        let panel = panel_of::<T>(context.kernel, space, &stored);
        let graph = self.graph.changed(context, &panel, &was, options)?;
        Ok(Self { graph, vertices, stored, panel: OnceLock::new() })
    }

    /// Returns the vertex at which searches of this graph start.
    pub(super) fn entry(&self) -> u32 {
        // The graph is never empty, since a sample has at least one vertex.
        self.vertices[self.graph.entry().expect("a navigation graph has a vertex") as usize]
    }

    /// Encodes the number of vertices, the vertices, their vectors and the graph. `place_of` returns the number under
    /// which a vertex is stored.
    pub(super) fn to_bytes(&self, place_of: impl Fn(u32) -> u32) -> Vec<u8> {
        let count = self.vertices.len() as u32;
        // During a build, vertices are numbered by buckets. In an index, they are numbered by their places on pages.
        let vertices = self.vertices.iter().map(|&vertex| place_of(vertex));
        let mut bytes: Vec<u8> = std::iter::once(count).chain(vertices).flat_map(u32::to_le_bytes).collect();
        bytes.extend_from_slice(&self.stored);
        bytes.extend(self.graph.to_bytes());
        bytes
    }

    /// Decodes what [`Self::to_bytes`] encoded, for an index of `vertices` vertices.
    ///
    /// # Errors
    /// If the bytes are not valid, or if memory does not suffice.
    pub(super) fn from_bytes(context: &Context, space: Space<'_>, vertices: u32, bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::corrupt("the navigation graph ends early");
        let number = |bytes: &[u8; NUMBER_BYTES]| u32::from_le_bytes(*bytes);
        let (count, rest) = bytes.split_first_chunk::<NUMBER_BYTES>().ok_or_else(damaged)?;
        let count = number(count) as usize;
        // The product saturates, since for a damaged count it might wrap to a length that fits.
        let (numbers, rest) = rest.split_at_checked(count.saturating_mul(NUMBER_BYTES)).ok_or_else(damaged)?;
        let (stored, graph) = rest.split_at_checked(count.saturating_mul(space.vectors.bytes())).ok_or_else(damaged)?;
        let own: Vec<u32> = numbers.as_chunks::<NUMBER_BYTES>().0.iter().map(number).collect();
        let graph = Graph::from_bytes(context, graph)?;
        if own.iter().any(|&vertex| vertex >= vertices) || graph.vertices() != count || count == 0 {
            return Err(Error::corrupt("the navigation graph has vertices that are not in the index"));
        }
        Ok(Self { vertices: own, stored: stored.to_vec(), graph, panel: OnceLock::new() })
    }
}

fn panel_of<T: Coordinate>(kernel: Kernel, space: Space<'_>, stored: &[u8]) -> Panel<T> {
    let mut panel = Panel::zeroed(stored.len() / space.vectors.bytes(), space.dimensions());
    T::load(space, kernel, stored, &mut panel);
    panel
}

/// A navigation graph with its vectors as coordinates.
pub(super) struct Navigator<'a, T: Coordinate> {
    navigation: &'a Navigation,
    panel: &'a Panel<T>,
    kernel: Kernel,
}

impl<'a, T: Coordinate> Navigator<'a, T> {
    pub(super) fn new(kernel: Kernel, space: Space<'_>, navigation: &'a Navigation) -> Self {
        let panel = navigation.panel.get_or_init(|| Box::new(panel_of::<T>(kernel, space, &navigation.stored)));
        let panel = panel.downcast_ref().expect("the coordinates of an index are of one type");
        Self { navigation, panel, kernel }
    }

    pub(super) fn search(&self) -> GreedySearch<T> {
        GreedySearch::new(&self.navigation.graph)
    }

    /// Returns the number of vertices of the graph.
    pub(super) fn len(&self) -> u32 {
        self.navigation.vertices.len() as u32
    }

    /// Returns the vertex of the index that has a number in the graph.
    pub(super) fn vertex(&self, number: u32) -> u32 {
        self.navigation.vertices[number as usize]
    }

    /// Returns the `count` vertices of the graph that are nearest to a query, by their numbers in the graph. The search
    /// keeps `list` candidates, and starts at `from` if it is given. The query is a padded row of a panel.
    pub(super) fn nearest(
        &self,
        search: &mut GreedySearch<T>,
        (from, query): (Option<u32>, &[T]),
        list: usize,
        count: usize,
    ) -> impl Iterator<Item = u32> {
        let graph = &self.navigation.graph;
        search.run_from(self.kernel, graph, from.or(graph.entry()), self.panel, query, list);
        search.nearest(count).map(|near| near.vertex)
    }

    /// Returns the vertex in `among`, given by numbers in the graph, that is nearest to a query. The query is a padded row of
    /// a panel.
    ///
    /// # Panics
    /// If `among` is empty.
    pub(super) fn nearest_among(&self, query: &[T], among: &[u32]) -> u32 {
        let mut distances = vec![T::Distance::default(); among.len()];
        self.kernel.one_to_some(query, self.panel, among, &mut distances);
        let keys = distances.into_iter().map(T::distance_key);
        keys.zip(among).min().map(|(_, &nearest)| nearest).expect("the nearest of some")
    }

    /// Appends the vertices at which the search for `query` starts to `entries`. `query` is a padded row of a panel.
    /// Returns the number of distances that were computed.
    pub(super) fn enter(&self, search: &mut GreedySearch<T>, query: &[T], entries: &mut Vec<u32>) -> u64 {
        let Navigation { graph, vertices, .. } = self.navigation;
        search.run(self.kernel, graph, self.panel, query, LIST);
        entries.extend(search.nearest(ENTRIES).map(|near| vertices[near.vertex as usize]));
        search.distances()
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::IndexOptions;
    use super::*;
    use crate::base::allocated::{allocated, assert_states_bytes};
    use crate::base::options::{Element, Metric, VectorType};

    #[test]
    fn a_navigation_graph_holds_the_bytes_that_are_stated_for_it() {
        let context = &Context::default().with_threads(1);
        for (count, dimensions) in [(40u32, 4), (600, 16), (900, 65)] {
            let space = Space::plain(VectorType { element: Element::F32, dimensions }, Metric::L2);
            let options = IndexOptions { navigation: Some(count), ..IndexOptions::default() };
            let mut options = options.parameters(space.vectors);
            (options.graph.degree, options.graph.build_list) = (12, 24);
            let mut random = Random::new(1, "vectors");
            let (_navigation, held) = allocated(|| {
                let mut stored = Vec::with_capacity(count as usize * space.vectors.bytes());
                let values = (0..count as usize * dimensions).map(|_| random.below(1_000) as f32);
                values.for_each(|value| stored.extend_from_slice(&value.to_le_bytes()));
                let vertices = StoredVertices { vertices: (0..count).collect(), stored };
                Navigation::build::<f32>(context, space, vertices, &options.graph).unwrap()
            });
            assert_states_bytes(held, held_bytes(count.into(), space, &options));
        }
    }
}
