//! Which pairs are there really? By comparing everything with everything.

mod groundtruth;

pub use groundtruth::{GroundtruthOptions, GroundtruthReport, groundtruth};
