//! What the laboratory (`lab/`) needs beside the public face: parts of a plan that it computes by other rules.

pub use crate::flash::breadth_first;
pub use crate::graph::{Pruner, Vectors};
pub use crate::index::layout::{
    Edges, Filling, ROUNDS_MAX, Room, Tie, grown, overlap_ratio, swapped, weight, whole_order, windows,
};
pub use crate::index::{GivenOrder, PageGraph, relayout_in_order};
pub use crate::quantize::{Axes, Principal};
