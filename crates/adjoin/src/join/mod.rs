//! Here is a store, find every pair within a threshold: carries out what [`crate::plan`] decided.

mod bucket;
mod margins;
mod options;
mod prepare;
mod run;
mod verify;

pub use options::{JoinOptions, Rule};
pub use prepare::{Prepared, prepare};
pub use run::join;
