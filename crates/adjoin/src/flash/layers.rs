//! Builds the upper layers of an HNSW graph (Malkov and Yashunin, 2020). They determine the row at which the search of
//! the lowest layer starts.
//!
//! A row of a layer is also in the next higher layer with a probability of 1 / d, where d is the degree of the upper
//! layers. Each layer is a graph of its rows, pruned as in HNSW (alpha 1). Rows are inserted in batches, and the search
//! for a row starts at the medoid of its layer, as in every graph of the engine. In contrast, HNSW inserts one row at a
//! time and descends from the layer above.

use adjoin_kernels::{Kernel, Panel};

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::random::Random;
use crate::graph::{Graph, GraphOptions, GreedySearch};

/// Least number of rows in a layer. If a layer had fewer rows, a search of the layer below from its medoid would take
/// only a few steps anyway.
const LAYER_ROWS_MIN: usize = 64;

/// Returns the options of the lowest layer, which has all rows. Its degree is twice the degree of the layers above.
pub(super) fn lowest(options: &GraphOptions) -> GraphOptions {
    GraphOptions { alpha: 1.0, ..*options }
}

/// Layers above the lowest layer, topmost first. Every row of a layer is also in all layers below it.
pub(super) struct Layers<T> {
    layers: Vec<Layer<T>>,
}

struct Layer<T> {
    /// Rows of the layer, ascending.
    rows: Vec<u32>,
    panel: Panel<T>,
    graph: Graph,
}

/// Row at which the search of the lowest layer starts, and the number of distances that were computed to find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) row: Option<u32>,
    pub(super) distances: u64,
}

impl<T: Coordinate> Layers<T> {
    /// Creates an empty list of layers. Searches then start at the entry of the graph.
    pub(super) fn none() -> Self {
        Self { layers: Vec::new() }
    }

    /// Samples the rows of the layers above the lowest layer, and builds these layers. `options` are the options of the
    /// lowest layer.
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

    /// Returns the approximate bytes of the upper layers of a graph of `rows` rows with `row_bytes` bytes each.
    pub(super) fn bytes_for(rows: usize, row_bytes: u64, options: &GraphOptions) -> u64 {
        let upper = rows as u64 * 2 / (options.degree as u64 / 2).max(2);
        upper * (row_bytes + 4)
    }

    /// Descends through the layers. In each layer, finds the row nearest to the query, where the search of the next
    /// layer starts.
    pub(super) fn descend(&self, kernel: Kernel, query: &[T]) -> Start {
        let mut start = Start { row: None, distances: 0 };
        for Layer { rows, panel, graph } in &self.layers {
            let from = start.row.map(|row| rows.binary_search(&row).expect("a row is in all layers below") as u32);
            let mut search = GreedySearch::new(graph);
            search.run_from(kernel, graph, from.or(graph.entry()), panel, query, 1);
            start.distances += search.distances();
            start.row = search.nearest(1).next().map(|near| rows[near.vertex as usize]);
        }
        start
    }
}
