//! Divides a plan into parts for several machines, and predicts the reads and the memory of each part.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::execution::Done;
use super::prepared::Prepared;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::load::Sets;
use crate::plan::{BucketSizes, CacheStart, Division, Lead, PartInputs, Task, schedule_in_order};

/// Bytes per task for dividing tasks into parts: so that parts share few buckets, and in the simplest way.
const COVER_BYTES: u64 = 160;
const DIVIDE_BYTES: u64 = 48;

/// A part of a plan: consecutive tasks, and their cost.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PlannedPart {
    /// End of the tasks of the part. They begin at the end of the preceding part.
    pub(crate) end: usize,
    /// Number of pairs of rows in the buckets that the tasks compare.
    pub(crate) comparisons: u64,
    /// Number of buckets that the part reads.
    pub(crate) buckets: u64,
    /// Bytes that the part reads.
    pub(crate) read_bytes: u64,
    /// Bytes of the buckets that other parts read too.
    pub(crate) halo_bytes: u64,
    /// Bytes of the part's cache.
    pub(crate) cache_bytes: u64,
    /// Memory in bytes of a run of the part, without its result.
    pub(crate) memory_bytes: u64,
    /// Predictions for the tasks of the part.
    pub(crate) whole: Done,
}

/// The tasks of a plan, in the order of the parts.
pub(crate) struct DividedTasks {
    pub(crate) tasks: Vec<Task>,
    pub(crate) parts: Vec<PlannedPart>,
}

/// The facts of a plan that determine its parts. Unlike the plan, they do not hold the memory of a run.
pub(crate) struct PartDivider {
    sizes: BucketSizes,
    division: Division,
    lead: Lead,
    /// Number of all tasks.
    tasks: usize,
}

impl Prepared {
    /// Returns the facts that determine the parts of the plan.
    pub(crate) fn divider(&self) -> PartDivider {
        let (sizes, division) = (self.sizes.clone(), self.memory.division);
        PartDivider { sizes, division, lead: self.schedule.lead, tasks: self.tasks().len() }
    }
}

impl PartDivider {
    /// Divides the tasks into parts of approximately equal work. The tasks of a part stay in their order.
    ///
    /// # Errors
    /// Fails if the sets cannot be joined, or memory does not suffice.
    pub(crate) fn divide(&self, context: &Context, sets: Sets<'_>, tasks: &[Task], parts: u32) -> Result<DividedTasks> {
        let members = members_of(sets)?;
        let count = tasks.len() as u64;
        // If memory is short, a simpler division is used, whose parts share more buckets.
        let memory = context.reserve(COVER_BYTES * count, "dividing the plan").ok();
        let _divide = context.reserve(if memory.is_some() { 0 } else { DIVIDE_BYTES * count }, "dividing the plan")?;
        let inputs = PartInputs { tasks, bytes: &self.sizes.extents, work: &|task| comparisons(&members, task) };
        let part_of = if memory.is_some() { inputs.divide(parts) } else { inputs.consecutive(parts) };
        let mut numbers = Vec::from_iter(0..tasks.len());
        // The sort is stable, so the tasks of a part stay in their order.
        numbers.sort_by_key(|&number| part_of[number]);
        let ordered: Vec<Task> = numbers.iter().map(|&number| tasks[number]).collect();
        let mut ends = vec![0; parts as usize];
        part_of.iter().for_each(|&part| ends[part as usize] += 1);
        let mut end = 0;
        ends.iter_mut().for_each(|of_part| {
            end += *of_part;
            *of_part = end;
        });
        let begins: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).collect();
        let tasks_of = |part: usize| &ordered[begins[part]..ends[part]];
        // Number of parts that read each bucket.
        let mut readers = vec![0u32; self.sizes.extents.len()];
        (0..ends.len()).for_each(|part| buckets_of(tasks_of(part)).iter().for_each(|&b| readers[b as usize] += 1));
        let of_part = |part: usize| PlannedPart { end: ends[part], ..self.planned(&members, tasks_of(part), &readers) };
        let parts = (0..ends.len()).map(of_part).collect();
        Ok(DividedTasks { tasks: ordered, parts })
    }

    /// Predicts the cost of a part.
    fn planned(&self, members: &[u64], tasks: &[Task], readers: &[u32]) -> PlannedPart {
        let Self { ref sizes, lead, .. } = *self;
        let Division { capacity, policy, tasks: tasks_bytes, .. } = self.division;
        let buckets = buckets_of(tasks);
        let memory: u64 = buckets.iter().map(|&bucket| sizes.memory[bucket as usize]).sum();
        // The cache is not larger than all buckets of the part, but at least as large as a run requires.
        let cache_bytes = capacity.min(memory.max(sizes.least_cache(tasks)));
        let start = CacheStart { capacity: cache_bytes, policy };
        let schedule = schedule_in_order(tasks.to_vec(), "".into(), lead, sizes, start);
        let whole = Done::foreseen(schedule.counts, center_distances(members, tasks), schedule.edges());
        let shared = buckets.iter().filter(|&&bucket| readers[bucket as usize] > 1);
        PlannedPart {
            end: 0,
            comparisons: tasks.iter().map(|&task| comparisons(members, task)).sum(),
            buckets: buckets.len() as u64,
            read_bytes: whole.foreseen_bytes(),
            halo_bytes: shared.map(|&bucket| sizes.extents[bucket as usize]).sum(),
            cache_bytes,
            memory_bytes: self.division.bytes() - capacity - tasks_bytes
                + cache_bytes
                + tasks_bytes / self.tasks.max(1) as u64 * tasks.len() as u64,
            whole,
        }
    }
}

/// Returns the number of rows of each bucket.
pub(crate) fn members_of(sets: Sets<'_>) -> Result<Vec<u64>> {
    let buckets = sets.buckets()?;
    Ok((0..buckets.count()).map(|bucket| buckets.members(bucket).into()).collect())
}

/// Returns the maximum number of pairs of rows that a task compares. `members` has the number of rows of each bucket.
pub(crate) fn comparisons(members: &[u64], (i, j): Task) -> u64 {
    let [a, b] = [i, j].map(|bucket| members[bucket as usize]);
    if i == j { a * a.saturating_sub(1) / 2 } else { a * b }
}

/// Returns the number of distances to centers that a run of these tasks computes.
fn center_distances(members: &[u64], tasks: &[Task]) -> u64 {
    let edges = tasks.iter().filter(|(i, j)| i != j);
    edges.map(|&(i, j)| members[i as usize] + members[j as usize]).sum()
}

fn buckets_of(tasks: &[Task]) -> HashSet<u32> {
    tasks.iter().flat_map(|&(i, j)| [i, j]).collect()
}
