//! A planned join: the decisions of planning, on which execution is based.

use std::borrow::Cow;
use std::ops::Range;

use adjoin_device::{MemoryBudget, Reservation};
use serde::{Deserialize, Serialize};

use super::watched::{Watched, WatchedVectors};
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coding, Space, Threshold};
use crate::base::predicate::Predicate;
use crate::base::report::RecallStatistics;
use crate::load::{Buckets, ReadCounts, Sets};
use crate::plan::{BucketSizes, Division, Explanation, Lead, Rule, Schedule, Step, Task, explain, leg_ends};

/// Upper limit for counts of a run, far larger than any real count.
pub(super) const COUNT_MAX: u64 = 1 << 60;
/// Format version of a plan in a file.
const PLAN_VERSION: u32 = 7;

/// A planned join, ready to run.
pub struct Prepared {
    pub(super) decided: PlanFacts,
    pub(super) sizes: BucketSizes,
    pub(super) schedule: Schedule,
    pub(super) threshold: Threshold,
    /// Vectors with which the recall of an approximate rule is measured. `None` if the rule is exact.
    pub(super) watched: Option<Watched>,
    /// The memory that the plan and its run hold.
    pub(super) memory: RunMemory,
}

/// The memory of a run, from its planning to its last pair.
pub(super) struct RunMemory {
    pub(super) budget: MemoryBudget,
    pub(super) division: Division,
    /// Memory of the schedule.
    pub(super) _tasks: Reservation,
}

impl RunMemory {
    /// Waits until no other run of the plan holds its memory, and returns this memory. All of it is reserved at once:
    /// if two runs of one plan each held a part, they would wait for each other.
    pub(super) fn held(&self) -> MemoryBudget {
        let Self { budget, division, .. } = self;
        let held = budget.reserve_when_free(division.bytes() - division.tasks, || false);
        MemoryBudget::within(held.ok().flatten().expect("the plan holds what its run needs"))
    }
}

/// The decisions of planning without the tasks, and the cost of planning.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PlanFacts {
    pub(super) predicate: Predicate,
    /// Seed of the random samples.
    pub(super) seed: u64,
    pub(super) with_ids: bool,
    pub(super) admission: Admission,
    /// Rounding of floats to bytes, if they are rounded.
    pub(super) coding: Option<Coding>,
    pub(super) recall: RecallStatistics,
    pub(super) predicted: Predicted,
    pub(super) spent: Spent,
}

/// Expected work of execution. Planning is not included.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Predicted {
    /// Number of pairs that the rule admits.
    pub(super) candidate_pairs: u64,
    /// Number of result pairs.
    pub(super) results: u64,
    pub(super) center_distances: u64,
}

/// Cost of planning.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Spent {
    pub(super) center_distances: u64,
    /// Number of distances between sampled vectors and others.
    pub(super) sample_distances: u64,
    pub(super) calibrate_seconds: Option<f64>,
    pub(super) plan_seconds: f64,
    pub(super) reads: ReadCounts,
}

/// Rule that decides which pairs of an edge are compared, with its threshold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Admission {
    pub(super) rule: Rule,
    /// The threshold of the rule; may be infinite. `None` if the rule needs no threshold.
    #[serde(with = "any_number")]
    pub(super) t: Option<f64>,
}

/// Serializes numbers as text, since JSON has no infinity.
mod any_number {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(number: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
        number.map(|number| format!("{number:?}")).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

impl Prepared {
    /// Explains the work that the join will do.
    ///
    /// # Panics
    /// Panics if the sets cannot be joined.
    pub fn explain<'a>(&self, sets: impl Into<Sets<'a>>) -> Explanation {
        let buckets = sets.into().buckets().expect("these sets were planned for");
        let Admission { rule, t } = self.decided.admission;
        let candidate_pairs = self.decided.predicted.candidate_pairs;
        explain(rule, t, &buckets.meetings(), &self.sizes, &self.schedule, candidate_pairs)
    }

    /// Returns the expected number of result pairs. If there are few, only the order of magnitude is correct.
    pub fn predicted_results(&self) -> u64 {
        self.decided.predicted.results
    }

    /// Returns the promised recall, and its estimates before the join. The join may reach a higher recall: whole tiles
    /// are computed, which finds pairs beyond the rule. They are counted when the join runs.
    pub fn recall(&self) -> &RecallStatistics {
        &self.decided.recall
    }

    /// Returns the plan as data. Its memory, about 40 bytes per task, is not counted in the budget.
    pub fn plan<'a>(&self, sets: impl Into<Sets<'a>>) -> JoinPlan {
        self.plan_without_tasks(sets).with_tasks(self.schedule.tasks.clone())
    }

    /// Returns the tasks of the plan, in order.
    pub(crate) fn tasks(&self) -> &[Task] {
        &self.schedule.tasks
    }

    /// Returns the ends of the plan's legs, after each of which a run saves a checkpoint.
    ///
    /// # Errors
    /// Fails if the sets cannot be joined.
    pub(crate) fn leg_ends(&self, sets: Sets<'_>) -> Result<Vec<usize>> {
        let buckets = sets.buckets()?;
        let Predicted { candidate_pairs, center_distances, .. } = self.decided.predicted;
        // This saturates, since the predictions of a plan that was read from a file are not checked.
        let distances = candidate_pairs.saturating_add(center_distances);
        let members = |bucket| u64::from(buckets.members(bucket));
        let weight = |(i, j)| members(i) * members(j);
        Ok(leg_ends(self.tasks(), distances.saturating_mul(buckets.vectors().dimensions as u64), weight))
    }

    /// Returns the plan as data, without its tasks.
    pub(crate) fn plan_without_tasks<'a>(&self, sets: impl Into<Sets<'a>>) -> JoinPlan {
        let Schedule { ref order, lead, capacity, .. } = self.schedule;
        JoinPlan {
            version: PLAN_VERSION,
            sets: sets.into().checksums(),
            decided: self.decided.clone(),
            watched: self.watched.as_ref().map(Watched::vectors),
            order: order.clone(),
            lead,
            capacity,
            tasks: Vec::new(),
            steps: None,
        }
    }

    /// Returns the capacity of the plan's cache and the sizes of its buckets, from which another order of tasks can be
    /// computed.
    #[doc(hidden)]
    pub fn cache(&self) -> (u64, &BucketSizes) {
        (self.schedule.capacity, &self.sizes)
    }
}

/// A plan as data, which can be written, read, divided, and run with [`super::resume`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JoinPlan {
    version: u32,
    /// Checksums of the sets for which the plan was computed.
    sets: Vec<String>,
    pub(super) decided: PlanFacts,
    pub(super) watched: Option<Vec<WatchedVectors>>,
    /// The name of the order of the tasks.
    pub(super) order: Cow<'static, str>,
    pub(super) lead: Lead,
    /// Bytes of the cache.
    pub(super) capacity: u64,
    pub(super) tasks: Vec<Task>,
    /// The steps of the run. `None` lets the policy of the cache decide them.
    #[serde(skip)]
    pub(super) steps: Option<Vec<Step>>,
}

impl JoinPlan {
    /// Encodes the plan as JSON.
    pub fn write(&self) -> String {
        serde_json::to_string(self).expect("a plan has no map with other keys than text")
    }

    /// Decodes a plan from JSON.
    ///
    /// # Errors
    /// Fails if the text is not a plan, or a plan of another version.
    pub fn read(text: &str) -> Result<Self> {
        let refused = |error| Error::input(format!("this is not the plan of a join: {error}")).caused_by(error);
        let plan: Self = serde_json::from_str(text).map_err(refused)?;
        plan.check_version()?;
        Ok(plan)
    }

    /// Returns the plan without the times that planning took.
    pub(crate) fn without_times(&self) -> Self {
        let mut plan = self.clone();
        let spent = &mut plan.decided.spent;
        (spent.calibrate_seconds, spent.plan_seconds) = (None, 0.0);
        plan
    }

    /// Returns the plan without the cost of planning, for the statistics of a part: the parts of a plan were planned
    /// together.
    pub(crate) fn without_costs(mut self) -> Self {
        self.decided.spent = Spent::default();
        self
    }

    /// Fails if the plan has another format version. Called for plans that were decoded as a part of other data.
    pub(crate) fn check_version(&self) -> Result<()> {
        let version = self.version;
        if version != PLAN_VERSION {
            return Err(Error::input(format!("this plan has version {version}, not {PLAN_VERSION}; plan again")));
        }
        Ok(())
    }

    /// Returns the pairs to find.
    pub(crate) fn predicate(&self) -> Predicate {
        self.decided.predicate
    }

    /// Returns the tasks, in order.
    pub(crate) fn all_tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Returns the number of tasks.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Replaces the tasks of the plan.
    pub(crate) fn with_tasks(self, tasks: Vec<Task>) -> Self {
        Self { tasks, ..self }
    }

    /// Returns the plan with another order of tasks, in which `lead` is the leading set. If `steps` returns cache
    /// steps, the run follows them.
    ///
    /// # Panics
    /// A run of the plan panics if the steps do not match the tasks and the cache.
    #[doc(hidden)]
    #[must_use]
    pub fn reordered(
        mut self,
        order: &str,
        lead: Lead,
        sort: impl FnOnce(&mut [Task]),
        steps: impl FnOnce(&[Task]) -> Option<Vec<Step>>,
    ) -> Self {
        sort(&mut self.tasks);
        let steps = steps(&self.tasks);
        Self { order: order.to_owned().into(), lead, steps, ..self }
    }

    /// Returns a part of the plan, with a range of its tasks. Parts that together have all tasks find the same pairs
    /// as the plan.
    ///
    /// # Panics
    /// Panics if the range exceeds the tasks.
    #[must_use]
    pub fn part(&self, tasks: Range<usize>) -> Self {
        Self { tasks: self.tasks[tasks].to_vec(), ..self.clone_without_tasks() }
    }

    fn clone_without_tasks(&self) -> Self {
        let Self { version, ref sets, ref decided, ref watched, ref order, lead, capacity, .. } = *self;
        let (sets, decided, watched, order) = (sets.clone(), decided.clone(), watched.clone(), order.clone());
        Self { version, sets, decided, watched, order, lead, capacity, tasks: Vec::new(), steps: None }
    }

    /// Checks that the plan was computed for these stores, and has valid tasks and a valid rounding.
    pub(super) fn check(&self, sets: Sets<'_>, buckets: &Buckets<'_>) -> Result<()> {
        let manifest = sets.left().manifest();
        let at = sets.stores().map(|store| store.folder().display().to_string()).collect::<Vec<_>>().join(" and ");
        let refused = |why: &str| Err(Error::input(format!("this plan {why} {at}; plan again")));
        // With other stores, a plan could name buckets that do not exist, or could miss pairs without an error.
        if self.sets != sets.checksums() || self.decided.predicate.metric() != manifest.metric {
            return refused("is for another store than");
        }
        let takes_part = |number| buckets.members(number) > 0;
        let is_task = |&(i, j): &Task| {
            i <= j && j < buckets.count() && buckets.partners(i).contains(&j) && takes_part(i) && takes_part(j)
        };
        if !self.tasks.iter().all(is_task) {
            return refused("compares buckets that are not in");
        }
        let of_floats = Space::plain(manifest.vectors, manifest.metric).is_of_floats();
        let fits = |coding: &Coding| of_floats && coding.fits(manifest.vectors.dimensions);
        if !self.decided.coding.as_ref().is_none_or(fits) {
            return refused("rounds other vectors than those of");
        }
        let Spent { center_distances, sample_distances, reads, .. } = self.decided.spent;
        // Counts are added later, and the sum must not overflow, even if the plan is damaged.
        let counts = [center_distances, sample_distances, reads.reads, reads.bytes_requested, reads.bytes_read];
        if counts.iter().any(|count| *count > COUNT_MAX) {
            return refused("has impossible counts for");
        }
        let sets_watched = self.watched.as_ref().map(Vec::len);
        if sets_watched.is_some_and(|watched| watched != buckets.promised().len()) {
            return refused("watches vectors that are not in");
        }
        let Admission { rule, t } = self.decided.admission;
        // Exact rules have no threshold, and all other rules have one.
        if t.is_none() != rule.is_exact() || t.is_some_and(f64::is_nan) {
            return refused("has an invalid threshold for");
        }
        Ok(())
    }
}
