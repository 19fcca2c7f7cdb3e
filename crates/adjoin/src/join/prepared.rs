//! A join that is planned: what planning decided and execution obeys.

use adjoin_device::{MemoryBudget, Reservation};

use super::watched::Watched;
use crate::geometry::Threshold;
use crate::load::{Coding, ReadCounts};
use crate::plan::{BucketSizes, Division, Explanation, Rule, Schedule, explain};
use crate::report::RecallStatistics;
use crate::store::Store;

/// A join that is planned and can be run.
pub struct Prepared {
    pub(super) sizes: BucketSizes,
    pub(super) schedule: Schedule,
    pub(super) threshold: Threshold,
    /// How floats are rounded for a first look.
    pub(super) coding: Option<Coding>,
    pub(super) admission: Admission,
    pub(super) recall: RecallStatistics,
    /// Tells the recall of a rule that is not exact.
    pub(super) watched: Option<Watched>,
    /// Distances that planning took, to centers and between sampled vectors and others.
    pub(super) center_distances: u64,
    pub(super) sample_distances: u64,
    /// Pairs that the rule is expected to admit, and those of the result.
    pub(super) predicted_pairs: u64,
    pub(super) predicted_results: u64,
    pub(super) calibrate_seconds: Option<f64>,
    pub(super) plan_seconds: f64,
    pub(super) with_ids: bool,
    /// The memory that the plan and its run hold.
    pub(super) memory: RunMemory,
    /// What planning read.
    pub(super) reads: ReadCounts,
}

/// The memory of a run, from its planning to its last pair.
pub(super) struct RunMemory {
    pub(super) budget: MemoryBudget,
    pub(super) division: Division,
    /// That of the schedule.
    pub(super) _tasks: Reservation,
}

/// Which pairs of an edge are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Admission {
    pub(super) rule: Rule,
    /// The threshold of a rule that needs one.
    pub(super) threshold: Option<f64>,
}

impl Prepared {
    /// What the join is going to do.
    pub fn explain(&self, store: &Store) -> Explanation {
        let rows = store.manifest().rows;
        let Admission { rule, threshold } = self.admission;
        explain((rule, threshold), rows, &self.sizes, &self.schedule, self.predicted_pairs)
    }

    /// How many pairs the result is expected to have; of few, no more than their order of magnitude.
    pub fn predicted_results(&self) -> u64 {
        self.predicted_results
    }

    /// The recall that is promised and what is known of it before the join: what its tiles find beyond the rule comes on
    /// top, and is measured when it runs.
    pub fn recall(&self) -> &RecallStatistics {
        &self.recall
    }
}
