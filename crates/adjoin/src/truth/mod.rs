//! Which pairs are there really, and how many of them does a rule find? By comparing everything with everything, or a
//! random sample with everything.

mod calibrate;
mod groundtruth;
mod poisson;

pub use calibrate::{NeighbourSample, Recalls, Tally, recalls};
pub use groundtruth::{GroundtruthOptions, GroundtruthReport, groundtruth};
