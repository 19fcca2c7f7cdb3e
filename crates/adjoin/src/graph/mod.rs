//! A Vamana graph in memory, which finds the vectors near a query by a walk from neighbor to neighbor.
//!
//! Each vertex is a row of a panel of coordinates and has out-neighbors. A search walks from the entry point toward its
//! query. The algorithms are from FreshDiskANN (Singh et al., 2021): GreedySearch (Algorithm 1, `search.rs`), Insert
//! (Algorithm 2, `build.rs`) and RobustPrune (Algorithm 3, `prune.rs`).
//!
//! The result does not depend on threads: if distances are equal, the number of the vertex decides, and the sizes of
//! insert batches depend only on the number of vertices. Every vertex can be reached from the entry point (`reach.rs`).
//!
//! ```
//! use adjoin::{Context, GraphOptions, kernels::Panel, lab::graph::{Graph, GreedySearch}};
//!
//! let mut panel = Panel::<u8>::zeroed(200, 2);
//! (0..200).for_each(|row| panel.row_mut(row).copy_from_slice(&[row as u8, 7]));
//! let context = Context::default();
//! let graph = Graph::build(&context, &panel, &GraphOptions::default())?;
//!
//! let mut search = GreedySearch::new(&graph);
//! search.run(context.kernel, &graph, &panel, panel.row(40), 20);
//! let nearest: Vec<u32> = search.nearest(3).map(|near| near.vertex).collect();
//! assert_eq!(nearest, [40, 39, 41]);
//! # Ok::<(), adjoin::Error>(())
//! ```

mod adjacency;
mod build;
mod candidate;
mod medoid;
mod options;
mod prune;
mod reach;
mod saved;
mod search;
#[cfg(test)]
mod tests;

pub use adjacency::Graph;
pub(crate) use adjacency::VERTICES_MAX;
pub use options::GraphOptions;
pub use prune::{Pruner, Vectors};
pub use search::GreedySearch;
