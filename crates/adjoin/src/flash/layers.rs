//! The upper layers of an HNSW graph (Malkov and Yashunin, 2020): *where does the search for a query begin?*
//!
//! A row is in the layer above with a chance of 1 in the degree, drawn from its number. Each layer is a graph of its rows with
//! pruning as HNSW's (alpha 1), built as the engine builds all graphs: inserts search from the medoid of their layer, in
//! batches, where HNSW's come down from the layer above, one at a time.

use adjoin_kernels::{Kernel, Panel};

use crate::context::Context;
use crate::error::Result;
use crate::geometry::Coordinate;
use crate::graph::{Graph, GraphOptions, GreedySearch};
use crate::random::Random;

/// Rows that a layer has at least: a search of fewer from the medoid takes a few steps.
const LAYER_ROWS_MIN: usize = 64;

/// Options of the lowest layer, in which all rows are: it has twice the neighbors of those above.
pub(super) fn lowest(options: &GraphOptions) -> GraphOptions {
    GraphOptions { alpha: 1.0, ..*options }
}

/// The layers above the lowest, the topmost first. A row of one is in all below.
pub(super) struct Layers<T> {
    layers: Vec<Layer<T>>,
}

struct Layer<T> {
    /// Ascending.
    rows: Vec<u32>,
    panel: Panel<T>,
    graph: Graph,
}

/// Where the search in the lowest layer begins, and how many distances that took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) row: Option<u32>,
    pub(super) distances: u64,
}

impl<T: Coordinate> Layers<T> {
    /// None: searches begin at the entry of the graph.
    pub(super) fn none() -> Self {
        Self { layers: Vec::new() }
    }

    /// Draws and builds the layers above that of all rows, whose options these are.
    pub(super) fn build(context: &Context, all: &Panel<T>, options: &GraphOptions) -> Result<Self> {
        let degree = (options.degree / 2).max(2);
        let upper = GraphOptions { degree, build_list: options.build_list.max(degree), ..lowest(options) };
        let mut layers = Vec::new();
        let mut rows: Vec<u32> = (0..all.rows() as u32).collect();
        let mut random = Random::new(options.seed, "layers of a graph");
        loop {
            rows.retain(|_| random.below(degree as u64) == 0);
            if rows.len() < LAYER_ROWS_MIN {
                break;
            }
            let mut panel = Panel::zeroed(rows.len(), all.dimensions());
            for (place, &row) in rows.iter().enumerate() {
                panel.row_mut(place).copy_from_slice(&all.row(row as usize)[..all.dimensions()]);
            }
            let graph = Graph::build(context, &panel, &upper)?;
            layers.push(Layer { rows: rows.clone(), panel, graph });
        }
        layers.reverse();
        Ok(Self { layers })
    }

    /// Bytes that the layers above so many rows take, about, each row so many.
    pub(super) fn bytes_for(rows: usize, row_bytes: u64, options: &GraphOptions) -> u64 {
        let upper = rows as u64 * 2 / (options.degree as u64 / 2).max(2);
        upper * (row_bytes + 4)
    }

    /// Goes down from layer to layer, in each to the row nearest to a query.
    pub(super) fn descend(&self, kernel: Kernel, query: &[T]) -> Start {
        let mut start = Start { row: None, distances: 0 };
        for Layer { rows, panel, graph } in &self.layers {
            let from = start.row.map(|row| rows.binary_search(&row).expect("a row is in all layers below") as u32);
            let mut search = GreedySearch::new(graph);
            search.run_from(kernel, (graph, from.or(graph.entry())), panel, query, 1);
            start.distances += search.distances();
            start.row = search.nearest(graph, 1).next().map(|near| rows[near.vertex as usize]);
        }
        start
    }
}
