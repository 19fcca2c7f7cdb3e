//! Items that only the laboratory (`lab/`) uses, to compute orders, graphs and codes by other rules.

pub use crate::flash::breadth_first;
pub use crate::graph::{Pruner, Vectors};
pub use crate::index::layout::{
    Edges, Filling, ROUNDS_MAX, Room, Tie, grown, overlap_ratio, swapped, weight, whole_order, windows,
};
pub use crate::index::{
    Entry, GivenOrder, PageGraph, VertexVectors, WalkStrategy, build_with_graph, relayout_in_order, vertex_vectors,
};
pub use crate::quantize::{Axes, Principal};
pub use crate::store::default_buckets;
pub use crate::truth::{Certification, PairSample, ROWS_MIN, RowSample, rows_to_draw};
