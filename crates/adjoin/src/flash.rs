//! Prepares graph searches over real vectors for the model of flash devices, which predicts the time that they take on
//! a given machine.
//!
//! [`adjoin_flash`] models only addresses and times. This module supplies a graph, an order of its vertices on the
//! device, and the real distances.

mod breadth_first;
mod layers;
mod trace_reads;

use adjoin_device::Reservation;
use adjoin_kernels::{Kernel, Panel};

use adjoin_flash::{Distances, FlashError, Geometry, Hit, LunCsr, Mapping, SearchReport, Start};

pub use self::breadth_first::breadth_first;
use self::layers::Layers;
pub use self::trace_reads::TraceReads;
use crate::base::choice::choices;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coordinate, Space, with_coordinates};
use crate::base::message::{Argument, message};
use crate::base::options::Metric;
use crate::graph::{Graph, GraphOptions, GreedySearch};
use crate::index::layout::{order_of, whole_order};
use crate::source::VectorSource;
use crate::store::{read_all, read_all_bytes};

/// Purpose of the memory in error messages.
const PURPOSE: &str = "the graph and the vectors of a model";

impl From<FlashError> for Error {
    fn from(error: FlashError) -> Self {
        Self::input(error.to_string()).caused_by(error)
    }
}

/// Kind of graph that is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GraphKind {
    /// A single layer, pruned with alpha. A search starts at its medoid.
    #[default]
    Vamana,
    /// Layers that get smaller toward the top. A search descends through them to the lowest layer, which has all rows.
    Hnsw,
}

choices! { Argument::Graph => GraphKind { Vamana = "vamana", Hnsw = "hnsw" } }

/// Order of the vectors on the pages of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorOrder {
    /// By row number.
    Rows,
    /// Breadth-first order, in which vertices with fewer edges are visited first (NDSearch, section VI-A).
    Degree,
    /// Order of the vectors on the pages of an index.
    Grown,
}

choices! { Argument::Layout => VectorOrder { Rows = "rows", Degree = "degree", Grown = "grown" } }

/// A graph over vectors, and the queries that are searched in it.
pub struct Searches {
    graph: Graph,
    vectors: Box<dyn Vectors>,
    /// Bytes of a stored vector.
    vector_bytes: u32,
    dimensions: u32,
    queries: u32,
    _memory: Reservation,
}

/// Vectors with one coordinate type.
trait Vectors {
    fn distance(&self, query: u32, row: u32) -> f64;

    fn nearest(&self, graph: &Graph, query: u32, list: usize, k: usize) -> Vec<Hit>;

    fn start(&self, query: u32) -> layers::Start;
}

struct Loaded<T> {
    kernel: Kernel,
    base: Panel<T>,
    queries: Panel<T>,
    layers: Layers<T>,
}

impl<T: Coordinate> Vectors for Loaded<T> {
    fn distance(&self, query: u32, row: u32) -> f64 {
        let mut distance = [T::Distance::default()];
        self.kernel.one_to_some(self.queries.row(query as usize), &self.base, &[row], &mut distance);
        T::distance_of(T::distance_key(distance[0]))
    }

    fn nearest(&self, graph: &Graph, query: u32, list: usize, k: usize) -> Vec<Hit> {
        let mut search = GreedySearch::new(graph);
        // Without layers, there is no start for the query, so the entry of the graph is used.
        let from = self.start(query).row.or(graph.entry());
        search.run_from(self.kernel, graph, from, &self.base, self.queries.row(query as usize), list);
        let near = search.nearest(k);
        near.map(|near| Hit { distance: near.squared_distance, vertex: near.vertex }).collect()
    }

    fn start(&self, query: u32) -> layers::Start {
        self.layers.descend(self.kernel, self.queries.row(query as usize))
    }
}

impl Searches {
    /// Reads vectors and queries, and builds a graph for L2 distances.
    ///
    /// # Errors
    /// If a source cannot be read, if the types or dimensions of vectors and queries differ, if either is empty, or if
    /// memory does not suffice.
    pub fn load(
        context: &Context,
        base: &dyn VectorSource,
        queries: &dyn VectorSource,
        kind: GraphKind,
        options: &GraphOptions,
    ) -> Result<Self> {
        let [of_base, of_queries] = [base.info(), queries.info()];
        if of_base.vectors != of_queries.vectors {
            let [rows, asked] = [of_base.vectors, of_queries.vectors];
            return Err(Error::input(message![
                format!("vectors are {} x {}, but those of ", rows.dimensions, rows.element),
                Argument::Queries,
                format!(
                    " are {} x {}; give queries of the same dimensions and element type",
                    asked.dimensions, asked.element
                )
            ]));
        }
        let space = Space::plain(of_base.vectors, Metric::L2);
        with_coordinates!(space, T => {
            let rows = [&of_base, &of_queries].map(|info| info.rows as usize);
            let panels = rows.map(|rows| Panel::<T>::bytes_for(rows, space.dimensions())).iter().sum::<u64>();
            let row_bytes = Panel::<T>::bytes_for(1, space.dimensions());
            let above = match kind {
                GraphKind::Vamana => 0,
                GraphKind::Hnsw => Layers::<T>::bytes_for(rows[0], row_bytes, options),
            };
            let memory = context.reserve(panels + above, PURPOSE)?;
            let load = |source: &dyn VectorSource| -> Result<Panel<T>> {
                // The stored vectors are held only until they are converted.
                let _reading = context.reserve(read_all_bytes(source), PURPOSE)?;
                let (all, _of_ids) = read_all(context, source, Metric::L2)?;
                let mut panel = Panel::zeroed(all.rows.len(), space.dimensions());
                T::load(space, context.kernel, &all.stored, &mut panel);
                Ok(panel)
            };
            let (base, queries) = (load(base)?, load(queries)?);
            if base.rows() == 0 || queries.rows() == 0 {
                return Err(Error::input("there are no vectors or no queries; give some of both"));
            }
            let (graph, layers) = match kind {
                GraphKind::Vamana => (Graph::build(context, &base, options)?, Layers::none()),
                GraphKind::Hnsw => {
                    (Graph::build(context, &base, &layers::lowest(options))?, Layers::build(context, &base, options)?)
                }
            };
            Ok(Self {
                graph,
                vector_bytes: of_base.vectors.bytes() as u32,
                dimensions: space.dimensions() as u32,
                queries: queries.rows() as u32,
                vectors: Box::new(Loaded { kernel: context.kernel, base, queries, layers }),
                _memory: memory,
            })
        })
    }

    /// Returns the number of vectors.
    pub fn vertices(&self) -> u32 {
        self.graph.vertices() as u32
    }

    /// Returns the number of queries.
    pub fn queries(&self) -> u32 {
        self.queries
    }

    /// Returns the number of dimensions of the vectors.
    pub fn dimensions(&self) -> u32 {
        self.dimensions
    }

    /// Returns the size of a stored vector in bytes.
    pub fn vector_bytes(&self) -> u32 {
        self.vector_bytes
    }

    /// Returns the hits of a search of the graph in memory. Hits have row numbers as vertices.
    pub fn nearest(&self, query: u32, list: usize, k: usize) -> Vec<Hit> {
        self.vectors.nearest(&self.graph, query, list, k)
    }

    /// Returns the hits of a search of the graph in memory, for each query.
    pub fn nearest_of_each(&self, list: usize, k: usize) -> Vec<Vec<Hit>> {
        (0..self.queries).map(|query| self.nearest(query, list, k)).collect()
    }

    /// Returns the true K nearest vectors of a query, nearest first. Equally near vectors are ordered by row.
    pub fn nearest_of_all(&self, query: u32, k: usize) -> Vec<Hit> {
        let hit = |vertex| Hit { distance: self.vectors.distance(query, vertex), vertex };
        let mut all: Vec<Hit> = (0..self.vertices()).map(hit).collect();
        let order = |a: &Hit, b: &Hit| a.distance.total_cmp(&b.distance).then(a.vertex.cmp(&b.vertex));
        // Only the K nearest are sorted, after a selection that takes linear time.
        if k < all.len() {
            all.select_nth_unstable_by(k, order);
            all.truncate(k);
        }
        all.sort_by(order);
        all
    }

    /// Returns the graph that is searched.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the number of vectors on a page of a device.
    pub fn vectors_of_page(&self, geometry: &Geometry) -> usize {
        (geometry.page_bytes / self.vector_bytes).max(1) as usize
    }

    /// Places the vectors on a device, in the given kind of order.
    ///
    /// # Errors
    /// If the device is too small, or if memory does not suffice.
    pub fn lay_out(
        &self,
        context: &Context,
        geometry: &Geometry,
        order: VectorOrder,
        mapping: Mapping,
    ) -> Result<LaidOut<'_>> {
        let records = self.vectors_of_page(geometry);
        let order = match order {
            VectorOrder::Rows => (0..self.vertices()).collect(),
            VectorOrder::Degree => {
                whole_order(context, &self.graph, records, |_, edges, _| Ok(breadth_first::by_degree(edges)))?
            }
            VectorOrder::Grown => whole_order(context, &self.graph, records, order_of)?,
        };
        self.lay_out_in_order(context, geometry, order, mapping)
    }

    /// Places the vectors on a device in the order `order`, which has the row at each place.
    ///
    /// # Errors
    /// If the device is too small, or if memory does not suffice.
    ///
    /// # Panics
    /// If the order does not have each row once.
    pub fn lay_out_in_order(
        &self,
        context: &Context,
        geometry: &Geometry,
        order: Vec<u32>,
        mapping: Mapping,
    ) -> Result<LaidOut<'_>> {
        // The memory is for two copies of the adjacency lists, with 4 bytes per edge and 24 bytes per list, and for 16
        // bytes per vertex for its order, LUN and block.
        let of_vertex = 2 * (4 * self.graph.options().degree as u64 + 24) + 16;
        let memory = context.reserve(u64::from(self.vertices()) * of_vertex, PURPOSE)?;
        let mut place_of = vec![0; order.len()];
        (0..).zip(&order).for_each(|(place, &row)| place_of[row as usize] = place);
        // Vertices are numbered by their places in the layout, so neighbors get new numbers.
        let neighbors: Vec<Vec<u32>> = order
            .iter()
            .map(|&row| self.graph.neighbors(row).iter().map(|&neighbor| place_of[neighbor as usize]).collect())
            .collect();
        let entry = place_of[self.graph.entry().expect("a graph of some vectors has an entry") as usize];
        let of = |place: u32| &neighbors[place as usize][..];
        let layout = LunCsr::new(geometry, self.vertices(), entry, of, self.vector_bytes, mapping)?;
        Ok(LaidOut { searches: self, order, place_of, layout, _memory: memory })
    }
}

/// Vectors placed on a device.
pub struct LaidOut<'s> {
    searches: &'s Searches,
    /// Row at each place.
    order: Vec<u32>,
    /// Place of each row.
    place_of: Vec<u32>,
    /// Graph whose vertices are places.
    pub layout: LunCsr,
    _memory: Reservation,
}

impl LaidOut<'_> {
    /// Returns the row of a hit.
    pub fn row(&self, hit: Hit) -> u32 {
        self.order[hit.vertex as usize]
    }

    /// Checks that a run on a device has the hits `expected`, which a search in memory found.
    ///
    /// # Panics
    /// If the hits differ, which is a fault of the model.
    pub fn check(&self, report: &SearchReport, expected: &[Vec<Hit>]) {
        // Distances are compared exactly, since both sides compute them with the same kernel.
        let is_same = |(hit, other): (&Hit, &Hit)| self.row(*hit) == other.vertex && hit.distance == other.distance;
        for (query, (hits, expected)) in report.hits.iter().zip(expected).enumerate() {
            let is_same = hits.len() == expected.len() && hits.iter().zip(expected).all(is_same);
            assert!(is_same, "query {query} found other vectors on the modelled device than in memory");
        }
    }
}

impl Distances for LaidOut<'_> {
    fn distance(&self, query: u32, vertex: u32) -> f64 {
        self.searches.vectors.distance(query, self.order[vertex as usize])
    }

    fn rank(&self, vertex: u32) -> u32 {
        self.order[vertex as usize]
    }

    fn start(&self, query: u32) -> Option<Start> {
        let layers::Start { row, distances } = self.searches.vectors.start(query);
        row.map(|row| Start { vertex: self.place_of[row as usize], distances })
    }
}

#[cfg(test)]
mod tests {
    use adjoin_flash::{Config, Device, Platform, SearchOptions, search};

    use super::*;
    use crate::base::options::{Element, VectorType};
    use crate::base::output::Target;
    use crate::source::{Generated, open};

    #[test]
    fn every_platform_finds_the_hits_of_an_in_memory_search() {
        let (folder, context) = (tempfile::tempdir().unwrap(), Context::default().with_memory(256 << 20));
        let set = |name: &str, rows, seed| {
            let (path, vectors) = (folder.path().join(name), VectorType { element: Element::U8, dimensions: 12 });
            let what = Generated { rows, vectors, hardness: 1.0, seed };
            what.write(&context, &Target::File { path: path.clone(), force: false }).unwrap();
            open(&context, &[path.display().to_string()], &Default::default()).unwrap()
        };
        let (base, queries) = (set("base.u8bin", 3_000, 1), set("queries.u8bin", 40, 2));
        let options = GraphOptions { degree: 12, build_list: 24, ..GraphOptions::default() };
        for kind in [GraphKind::Vamana, GraphKind::Hnsw] {
            let searches = Searches::load(&context, &*base, &*queries, kind, &options).unwrap();
            let expected: Vec<Vec<Hit>> = (0..40).map(|query| searches.nearest(query, 20, 10)).collect();
            let mut config = Config::preset("ndsearch").unwrap();
            config.set("geometry.page", 4_096.0, "test").unwrap();
            let device = Device::new(&config).unwrap();
            for (layout, mapping) in [(VectorOrder::Rows, Mapping::Linear), (VectorOrder::Degree, Mapping::MultiPlane)]
            {
                let laid = searches.lay_out(&context, device.geometry(), layout, mapping).unwrap();
                for platform in Platform::ALL {
                    let options = SearchOptions {
                        platform,
                        list: 20,
                        k: 10,
                        batch: 16,
                        dimensions: searches.dimensions(),
                        multi_plane: true,
                        allocating: true,
                        speculating: true,
                        memory_share: 0.1,
                        spans: 0,
                    };
                    let found = search(&device, &laid.layout, &laid, searches.queries(), &options).unwrap();
                    let rows = |hits: &Vec<Hit>| hits.iter().map(|&hit| Hit { vertex: laid.row(hit), ..hit }).collect();
                    assert_eq!(
                        found.hits.iter().map(rows).collect::<Vec<Vec<Hit>>>(),
                        expected,
                        "{platform:?} {layout:?}"
                    );
                }
            }
        }
    }
}
