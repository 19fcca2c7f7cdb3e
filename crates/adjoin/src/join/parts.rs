//! Divides a plan into parts for several machines, and predicts the reads and the memory of each part.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::execution::Done;
use super::prepared::Prepared;
use crate::base::error::Result;
use crate::load::Sets;
use crate::plan::{CacheStart, Division, Task, part_ends, schedule_in_order};

/// A part of a plan: consecutive tasks, and their cost.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PlannedPart {
    /// End of its tasks; they begin at the end of the part before.
    pub(crate) end: usize,
    /// Pairs of rows in the buckets that its tasks compare.
    pub(crate) comparisons: u64,
    /// Buckets that it reads.
    pub(crate) buckets: u64,
    /// Bytes that it reads.
    pub(crate) read_bytes: u64,
    /// Bytes of the buckets that other parts read too.
    pub(crate) halo_bytes: u64,
    /// Bytes of its cache.
    pub(crate) cache_bytes: u64,
    /// Bytes that its run holds, without its result.
    pub(crate) memory_bytes: u64,
    /// Predictions for its tasks, as a run reports them.
    pub(crate) whole: Done,
}

impl Prepared {
    /// Divides the tasks into parts of about equal work, in their order.
    ///
    /// # Errors
    /// Fails if the sets cannot be joined.
    pub(crate) fn divided(&self, sets: Sets<'_>, parts: u32) -> Result<Vec<PlannedPart>> {
        let members = members_of(sets)?;
        let comparisons = |task| comparisons(&members, task);
        let ends = part_ends(self.tasks(), parts, comparisons);
        let begins: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).collect();
        let tasks = |part: usize| &self.tasks()[begins[part]..ends[part]];
        // Number of parts that read each bucket.
        let mut readers = vec![0u32; self.sizes.extents.len()];
        (0..ends.len()).for_each(|part| buckets_of(tasks(part)).iter().for_each(|&b| readers[b as usize] += 1));
        let of_part = |part: usize| {
            let tasks = tasks(part);
            let buckets = buckets_of(tasks);
            let sum = |bytes: &[u64], is_in: &dyn Fn(u32) -> bool| {
                buckets.iter().filter(|&&bucket| is_in(bucket)).map(|&bucket| bytes[bucket as usize]).sum::<u64>()
            };
            let Division { capacity, policy, tasks: tasks_bytes, .. } = self.memory.division;
            let capacity = capacity.min(sum(&self.sizes.memory, &|_| true).max(self.sizes.least_cache(tasks)));
            let start = CacheStart { capacity, policy };
            let schedule = schedule_in_order(tasks.to_vec(), "".into(), self.schedule.lead, &self.sizes, start);
            let whole = Done::foreseen(schedule.counts, center_distances(&members, tasks), schedule.edges());
            let all_tasks = self.tasks().len().max(1) as u64;
            PlannedPart {
                end: ends[part],
                comparisons: tasks.iter().map(|&task| comparisons(task)).sum(),
                buckets: buckets.len() as u64,
                read_bytes: whole.foreseen_bytes(),
                halo_bytes: sum(&self.sizes.extents, &|bucket| readers[bucket as usize] > 1),
                cache_bytes: capacity,
                memory_bytes: self.memory.division.bytes() - self.memory.division.capacity - tasks_bytes
                    + capacity
                    + tasks_bytes / all_tasks * tasks.len() as u64,
                whole,
            }
        };
        Ok((0..ends.len()).map(of_part).collect())
    }
}

/// Returns the number of rows of each bucket.
pub(crate) fn members_of(sets: Sets<'_>) -> Result<Vec<u64>> {
    let buckets = sets.buckets()?;
    Ok((0..buckets.count()).map(|bucket| buckets.members(bucket).into()).collect())
}

/// Returns the pairs of rows that a task compares at most, given the number of rows of each bucket.
pub(crate) fn comparisons(members: &[u64], (i, j): Task) -> u64 {
    let [a, b] = [i, j].map(|bucket| members[bucket as usize]);
    if i == j { a * a.saturating_sub(1) / 2 } else { a * b }
}

/// Returns the distances to centers that a run of tasks computes.
fn center_distances(members: &[u64], tasks: &[Task]) -> u64 {
    let edges = tasks.iter().filter(|(i, j)| i != j);
    edges.map(|&(i, j)| members[i as usize] + members[j as usize]).sum()
}

fn buckets_of(tasks: &[Task]) -> HashSet<u32> {
    tasks.iter().flat_map(|&(i, j)| [i, j]).collect()
}
