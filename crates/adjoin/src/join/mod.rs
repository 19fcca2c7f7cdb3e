//! Finds every pair of vectors within a threshold: [`prepare`] plans a join (`planning/`), and [`join`] runs the plan
//! (`execution/`).

mod execution;
mod options;
mod parts;
mod planning;
mod prepared;
mod selection;
mod watched;

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::report::JoinStatistics;
pub(crate) use crate::load::PairFilter;
pub use crate::load::{JoinSide, RowFilter, Sets};
use crate::sink::PairSink;
use crate::store::Store;
pub(crate) use execution::join;
pub use execution::{Done, run};
pub(crate) use execution::{SaveCheckpoints, hand_over, run_in_legs};
pub use options::{JoinEffort, JoinOptions};
pub(crate) use parts::{DividedTasks, PlannedPart, comparisons, members_of};
pub(crate) use planning::{Foresight, UnopenedSet, least_of_unbuilt, memory_bound, resume_within};
pub use planning::{least_memory, resume};
pub(crate) use planning::{neighbor_curve, prepare};
pub use prepared::{JoinPlan, Prepared};

impl Store {
    /// Returns approximate thresholds at which a vector has certain numbers of neighbors on average, as (neighbors,
    /// threshold). Thresholds are distances or similarities, according to the store's metric. Numbers that the set cannot
    /// reach are left out.
    ///
    /// # Errors
    /// Fails if the store cannot be read or the budget is too small.
    pub fn neighbor_curve(&self, context: &Context, seed: u64) -> Result<Vec<(f64, f64)>> {
        neighbor_curve(context, self, seed)
    }
}

impl JoinOptions {
    /// Plans a join of a store with itself or of two stores with each other.
    ///
    /// # Errors
    /// Fails if
    /// - the predicate does not match the metric of the stores, or their vectors cannot be compared,
    /// - the budget is too small or a store cannot be read, or
    /// - the requested rule cannot be shown to reach the recall.
    pub fn prepare<'a>(&self, context: &Context, sets: impl Into<Sets<'a>>, with_ids: bool) -> Result<Prepared> {
        prepare(context, sets, self, with_ids)
    }
}

impl Prepared {
    /// Finds the pairs as planned and passes them to `sink`, within the memory that the plan holds. If a plan is run twice
    /// at the same time, the second run waits for the first.
    ///
    /// # Errors
    /// Fails if the store or the sink fails, or the work is canceled. The sink's result is then not published.
    pub fn run<'a>(
        &self,
        context: &Context,
        sets: impl Into<Sets<'a>>,
        sink: Box<dyn PairSink + '_>,
    ) -> Result<JoinStatistics> {
        join(context, sets, self, sink)
    }
}
