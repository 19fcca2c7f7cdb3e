//! Which pairs are there really, and how many of them does a rule find? By comparing everything with everything, or a
//! random sample with everything.

mod calibrate;
mod certify;
mod groundtruth;
mod groundtruth_files;
mod groundtruth_nearest;
mod histogram;
mod means;
mod poisson;
#[cfg(test)]
mod populations;

pub(crate) use calibrate::setting_half;
pub use calibrate::{NeighbourSample, Recalls, Tally, recalls};
pub(crate) use certify::{Certification, PairSample, ROWS_MIN, RowSample, rows_of_step, rows_to_draw, steps_to_test};
pub use groundtruth::{GroundtruthOptions, GroundtruthReport, groundtruth};
pub use groundtruth_files::{RangeForm, Sought, TruthFiles, TruthReport, groundtruth_files};
pub(crate) use histogram::DistanceHistogram;
pub(crate) use means::{least_share, means};
