//! Items that only the laboratory (`lab/`) uses, to compute orders, graphs and codes by other rules.

pub use crate::flash::breadth_first;
pub use crate::graph::{Pruner, Vectors};
pub use crate::index::layout::{
    Edges, Filling, ROUNDS_MAX, Room, Tie, grown, overlap_ratio, swapped, weight, whole_order, windows,
};
pub use crate::index::{GivenOrder, PageGraph, relayout_in_order};
pub use crate::quantize::{Axes, Principal};
pub use crate::store::default_buckets;
