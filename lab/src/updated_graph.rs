//! Graphs in memory that updates change: graphs of the engine (Vamana and NSG), and HNSW.

use std::str::FromStr;

use adjoin::{
    Context, Error, GraphOptions, Result,
    kernels::Panel,
    lab::{geometry::Coordinate, graph::Graph},
};

use crate::deletes::{DeleteRule, delete};
use crate::held_out::{Cost, Found, HeldOut, Searcher};
use crate::hnsw::{DeletePolicy, Hnsw, HnswOptions, HnswSearch, Near};
use crate::nsg;

/// Seed of the layers of an HNSW.
const SEED: u64 = 1;

/// How a graph is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum GraphKind {
    #[default]
    Vamana,
    Nsg,
    /// With half of the degree as M, so that lists of the lowest layer are as long as those of other graphs.
    Hnsw,
}

/// A graph over the rows of a panel. Some of them may be deleted.
pub(crate) enum UpdatedGraph<'a, T: Coordinate> {
    /// Vamana or NSG.
    Engine(Graph),
    Hnsw(Hnsw<'a, T>),
}

/// Searches of an HNSW.
struct HnswSearcher<'a, T: Coordinate> {
    graph: &'a Hnsw<'a, T>,
    search: HnswSearch<T::Distance>,
    found: Vec<Near>,
}

impl FromStr for GraphKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "vamana" => Ok(Self::Vamana),
            "nsg" => Ok(Self::Nsg),
            "hnsw" => Ok(Self::Hnsw),
            _ => Err(Error::option(format!("{name} is no graph; give vamana, nsg or hnsw"))),
        }
    }
}

impl<'a, T: Coordinate> UpdatedGraph<'a, T> {
    /// Builds a graph over all rows of a panel.
    ///
    /// # Errors
    /// If an option is out of range, if memory does not suffice, or if the work is canceled.
    pub(crate) fn build(
        context: &Context,
        panel: &'a Panel<T>,
        kind: GraphKind,
        options: &GraphOptions,
    ) -> Result<Self> {
        options.check()?;
        match kind {
            GraphKind::Vamana => Graph::build(context, panel, options).map(Self::Engine),
            GraphKind::Nsg => nsg::build(context, panel, options).map(Self::Engine),
            GraphKind::Hnsw => {
                let options = HnswOptions { links: options.degree / 2, candidates: options.build_list };
                Ok(Self::Hnsw(Hnsw::build(context.kernel, panel, options, SEED)))
            }
        }
    }

    /// Inserts rows, into an HNSW on one thread and with the vectors of its build. They may be vertices of a graph of the
    /// engine already.
    ///
    /// # Errors
    /// If memory does not suffice, or if the work is canceled.
    pub(crate) fn insert(&mut self, context: &Context, panel: &Panel<T>, rows: &[u32]) -> Result<()> {
        match self {
            Self::Engine(graph) => graph.insert(context, panel, rows),
            Self::Hnsw(graph) => {
                rows.iter().for_each(|&row| graph.insert(row));
                Ok(())
            }
        }
    }

    /// Deletes rows by a rule; from an HNSW on one thread, and only by those rules that are delete policies of
    /// FreshDiskANN.
    ///
    /// # Errors
    /// If there is no such rule for an HNSW, if memory does not suffice, or if the work is canceled.
    pub(crate) fn delete(&mut self, context: &Context, panel: &Panel<T>, rows: &[u32], rule: DeleteRule) -> Result<()> {
        match self {
            Self::Engine(graph) => delete(context, graph, panel, rows, rule),
            Self::Hnsw(graph) => {
                graph.delete(rows, policy_of(rule)?);
                Ok(())
            }
        }
    }

    /// Searches for all held-out queries with a list length.
    pub(crate) fn search(&self, context: &Context, held: &HeldOut<T>, list: usize) -> Found {
        match self {
            Self::Engine(graph) => held.search(context, graph, list),
            Self::Hnsw(graph) => {
                let mut searcher = HnswSearcher { graph, search: HnswSearch::default(), found: Vec::new() };
                held.search_by(&mut searcher, list)
            }
        }
    }

    /// Returns the out-neighbors of a vertex; of an HNSW, those in the lowest layer.
    pub(crate) fn neighbors(&self, vertex: u32) -> &[u32] {
        match self {
            Self::Engine(graph) => graph.neighbors(vertex),
            Self::Hnsw(graph) => graph.links(vertex),
        }
    }

    /// Returns the number of rows, deleted ones included.
    pub(crate) fn rows(&self) -> u32 {
        match self {
            Self::Engine(graph) => graph.vertices() as u32,
            Self::Hnsw(graph) => graph.rows(),
        }
    }

    /// Returns whether a row is a vertex.
    pub(crate) fn is_live(&self, row: u32) -> bool {
        match self {
            Self::Engine(graph) => graph.is_live(row),
            Self::Hnsw(graph) => graph.is_vertex(row),
        }
    }

    /// Checks a graph of the engine. Tests check an HNSW.
    ///
    /// # Errors
    /// If the graph is damaged.
    pub(crate) fn verify(&self) -> Result<()> {
        match self {
            Self::Engine(graph) => graph.verify(),
            Self::Hnsw(_) => Ok(()),
        }
    }
}

/// Returns the delete policy of an HNSW that is a rule.
///
/// # Errors
/// If the rule is no policy of the paper.
pub(crate) fn policy_of(rule: DeleteRule) -> Result<DeletePolicy> {
    match rule {
        DeleteRule::Drop => Ok(DeletePolicy::Drop),
        DeleteRule::Connect => Ok(DeletePolicy::Connect),
        _ => Err(Error::option("graph=hnsw: give rule=drop or rule=connect")),
    }
}

impl<T: Coordinate> Searcher<T> for HnswSearcher<'_, T> {
    fn run(&mut self, x: &[T], list: usize) -> Cost {
        let before = (self.search.computed, self.search.expanded);
        self.found = self.graph.nearest(x, list, &mut self.search);
        Cost { distances: self.search.computed - before.0, hops: self.search.expanded - before.1 }
    }

    fn squared_distances(&self, k: usize) -> impl Iterator<Item = f64> {
        self.found.iter().take(k).map(|near| near.squared::<T>())
    }
}
