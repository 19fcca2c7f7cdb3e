//! Here is a store, find every pair within a threshold: carries out what [`crate::plan`] decided.

mod bucket;
mod calibration;
mod codes;
mod curve;
mod edge_sides;
mod estimate;
mod margins;
mod nearness;
mod neighbours;
mod options;
mod prepare;
mod run;
mod sample;
mod verify;
mod watched;

pub use curve::neighbour_curve;
pub use options::{Aim, JoinOptions};
pub use prepare::{Prepared, least_memory, prepare, prepare_each};
pub use run::join;
