//! Ground truth: finds the pairs that really exist, by comparing everything, or a random sample, with everything, and
//! measures how many of them a rule finds.

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

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::options::Metric;
use crate::sink::PairSink;
use crate::source::VectorSource;
pub(crate) use calibrate::setting_half;
pub use calibrate::{NeighborSample, Recalls};
pub(crate) use calibrate::{Tally, recalls};
pub use certify::{Certification, PairSample, ROWS_MIN, RowSample, rows_to_draw};
pub(crate) use certify::{rows_of_step, steps_to_test};
pub use groundtruth::GroundtruthOptions;
pub(crate) use groundtruth::{GroundtruthReport, groundtruth};
pub use groundtruth_files::{GroundtruthTarget, RangeForm, TruthFiles};
pub(crate) use groundtruth_files::{TruthReport, groundtruth_files};
pub(crate) use histogram::DistanceHistogram;
pub(crate) use means::{least_share, means};

impl GroundtruthOptions {
    /// Finds the pairs and passes them to `sink`. Each pair occurs once, with the earlier row on the left.
    ///
    /// # Errors
    /// If the source has unusable rows or does not fit into the budget, or the sink fails.
    pub fn run(
        &self,
        context: &Context,
        source: &dyn VectorSource,
        sink: Box<dyn PairSink>,
    ) -> Result<GroundtruthReport> {
        groundtruth(context, source, self, sink)
    }
}

impl TruthFiles<'_> {
    /// Finds the true answers to all queries and writes them, nearest first. Distances are squared under L2. Under cosine
    /// they are squared distances of the normalized vectors (2 - 2 cos). For inner products, the product itself is written,
    /// and the largest are first.
    ///
    /// # Errors
    /// If a file cannot be read or does not have the length in its header, a vector is unusable, dimensions or numbers of
    /// rows are inconsistent, memory does not suffice, or the result cannot be written.
    pub fn compare(&self, context: &Context, metric: Metric, target: GroundtruthTarget) -> Result<TruthReport> {
        groundtruth_files(context, self, metric, target)
    }
}
