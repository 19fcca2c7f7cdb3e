//! Ground truth: finds the true pairs by comparing all rows, or a random sample, with all rows. Also estimates and
//! certifies the fraction of true pairs that a rule finds.

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
pub use calibrate::{NeighborSample, Recalls};
pub(crate) use calibrate::{Tally, recalls};
pub use certify::{Certification, PairSample, ROWS_MIN, RowSample, rows_to_draw};
pub(crate) use certify::{rows_of_step, steps_to_test};
pub use groundtruth::GroundtruthOptions;
pub use groundtruth_files::{GroundtruthTarget, RangeForm, TruthFiles};
pub(crate) use histogram::DistanceHistogram;
pub(crate) use means::{least_share, means};
