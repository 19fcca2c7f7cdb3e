//! The schedule of a join: its ordered tasks, and the cache that executes them.

use std::borrow::Cow;

use super::cache::{CacheCounts, CacheStart, Load, Policy, Step, Steps, count, loads_for, loads_of};
use super::order::{Lead, Order, Task, sort_tasks};

/// Sizes of buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSizes {
    /// Bytes to read for each bucket.
    pub extents: Vec<u64>,
    /// Size of each bucket in memory, in bytes.
    pub memory: Vec<u64>,
}

impl BucketSizes {
    /// Returns the least cache size for a join with these edges. It holds the two largest buckets that have an edge
    /// between them, and the largest bucket of all.
    pub fn least_cache(&self, edges: &[(u32, u32)]) -> u64 {
        let of = |bucket: u32| self.memory[bucket as usize];
        // Both buckets of a task are in memory at once.
        let edges = edges.iter().filter(|(i, j)| i != j).map(|&(i, j)| of(i) + of(j)).max().unwrap_or(0);
        edges.max(self.memory.iter().copied().max().unwrap_or(0))
    }

    /// Returns a cache size that suffices for any graph: the two largest buckets.
    pub fn two_largest(&self) -> u64 {
        let mut sorted = self.memory.clone();
        sorted.sort_unstable();
        sorted.iter().rev().take(2).sum()
    }
}

/// Ordered tasks, and the cost of their reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Name of the order of the tasks.
    pub order: Cow<'static, str>,
    /// The leading set.
    pub lead: Lead,
    /// Cache policy.
    pub policy: Policy,
    /// The tasks, in order.
    pub tasks: Vec<Task>,
    /// Bytes of the cache.
    pub capacity: u64,
    /// Buckets that a run reads, in order. Empty if simulating the cache again takes less memory than this list.
    listed_loads: Vec<u32>,
    /// The steps of a run. `None` if the cache policy computes them.
    listed_steps: Option<Vec<Step>>,
    /// Cost of the reads.
    pub counts: CacheCounts,
}

impl Schedule {
    fn of(
        tasks: Vec<Task>,
        order: Cow<'static, str>,
        lead: Lead,
        counts: CacheCounts,
        sizes: &BucketSizes,
        start: CacheStart,
    ) -> Self {
        let CacheStart { capacity, policy } = start;
        let mut listed_loads = Vec::new();
        // The list takes 4 bytes per load. With Belady, a second simulation would need another copy of the next uses.
        if policy == Policy::Belady {
            listed_loads.reserve_exact(counts.loads as usize);
            listed_loads.extend(loads_of(Steps::new(&tasks, &sizes.memory, start)));
        }
        Self { order, lead, policy, tasks, capacity, listed_loads, listed_steps: None, counts }
    }

    /// Returns the number of pairs of buckets that are compared.
    pub(crate) fn edges(&self) -> u64 {
        self.tasks.iter().filter(|(i, j)| i != j).count() as u64
    }

    /// Returns the buckets that a run reads, in order, with the tasks that need them.
    pub(crate) fn loads<'a>(&'a self, sizes: &'a BucketSizes) -> Box<dyn Iterator<Item = Load> + 'a> {
        match self.policy {
            Policy::Belady if self.listed_steps.is_none() => {
                Box::new(loads_for(&self.tasks, self.listed_loads.iter().copied()))
            }
            _ => Box::new(loads_for(&self.tasks, loads_of(self.steps(sizes)))),
        }
    }

    /// Returns the steps of a run.
    pub(crate) fn steps<'a>(&'a self, sizes: &'a BucketSizes) -> Box<dyn Iterator<Item = Step> + 'a> {
        let Self { capacity, policy, ref listed_steps, .. } = *self;
        match listed_steps {
            Some(steps) => Box::new(steps.iter().copied()),
            None => Box::new(Steps::new(&self.tasks, &sizes.memory, CacheStart { capacity, policy })),
        }
    }

    /// Returns the name of the cache policy, or `listed` if the steps are given.
    pub(crate) fn cache(&self) -> &'static str {
        if self.listed_steps.is_some() { "listed" } else { self.policy.name() }
    }

    /// Returns the schedule with the given steps, in place of the steps that its policy computes.
    pub(crate) fn with_steps(mut self, steps: Vec<Step>, sizes: &BucketSizes) -> Self {
        self.counts = count(steps.iter().copied(), &self.tasks, &sizes.extents);
        Self { listed_loads: Vec::new(), listed_steps: Some(steps), ..self }
    }
}

/// Computes a schedule for a cache. Simulates the tree order, which is better for sparse graphs, and block-nested
/// loops, which are better for dense graphs (docs/methods.md, "Order"). Also tries each set in `leads` as the leading
/// set. Chooses the combination that reads the fewest bytes.
pub(crate) fn schedule(mut tasks: Vec<Task>, sizes: &BucketSizes, start: CacheStart, leads: &[Lead]) -> Schedule {
    let buckets = buckets_of(&tasks, sizes.memory.len());
    let mut cost = |(order, lead)| {
        // The tasks are sorted in place. They may be the largest part of a plan, so there is no copy for each order.
        sort_tasks(&mut tasks, &sizes.memory, start.capacity, order, lead);
        count(Steps::new(&tasks, &sizes.memory, start), &tasks, &sizes.extents)
    };
    let mut ways = Order::ALL.into_iter().flat_map(|order| leads.iter().map(move |&lead| (order, lead)));
    let first = ways.next().expect("at least one set can lead");
    let (mut last, mut chosen) = (first, (first, cost(first)));
    for way in ways {
        if chosen.1.loads <= buckets {
            break; // if each bucket is read once, nothing reads less
        }
        let counts = cost(way);
        last = way;
        // Only a strictly smaller number is better, so ties go to the first order, which is the order on disk.
        if counts.bytes < chosen.1.bytes {
            chosen = (way, counts);
        }
    }
    if last != chosen.0 {
        cost(chosen.0); // restores the order of the tasks
    }
    let ((order, lead), counts) = chosen;
    Schedule::of(tasks, order.name().into(), lead, counts, sizes, start)
}

/// Returns the number of buckets that have a task.
fn buckets_of(tasks: &[Task], buckets: usize) -> u64 {
    let mut seen = vec![false; buckets];
    tasks.iter().for_each(|&(i, j)| (seen[i as usize], seen[j as usize]) = (true, true));
    seen.into_iter().filter(|&seen| seen).count() as u64
}

/// Computes a schedule of tasks that are already in order.
pub(crate) fn schedule_in_order(
    tasks: Vec<Task>,
    order: Cow<'static, str>,
    lead: Lead,
    sizes: &BucketSizes,
    start: CacheStart,
) -> Schedule {
    let counts = count(Steps::new(&tasks, &sizes.memory, start), &tasks, &sizes.extents);
    Schedule::of(tasks, order, lead, counts, sizes, start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{BucketGraph, tasks_of};

    fn sizes(count: usize) -> BucketSizes {
        BucketSizes { extents: vec![10; count], memory: vec![16; count] }
    }

    #[test]
    fn dense_graphs_are_joined_in_blocks_and_sparse_ones_in_tree_order() {
        let dense = (0..20).flat_map(|i| (i + 1..20).map(move |j| (i, j))).collect();
        let dense = BucketGraph { buckets: 20, edges: dense };
        let start = CacheStart { capacity: 16 * 5, policy: Policy::Belady };
        let plan = schedule(tasks_of(dense, &Vec::from_iter(0..20)), &sizes(20), start, &[Lead::Left]);
        assert_eq!(plan.order, "block-nested");
        let chain = BucketGraph { buckets: 20, edges: (0..19).map(|i| (i, i + 1)).collect() };
        let start = CacheStart { capacity: 32, policy: Policy::Belady };
        let plan = schedule(tasks_of(chain, &Vec::from_iter(0..20)), &sizes(20), start, &[Lead::Left]);
        assert_eq!((&*plan.order, plan.counts.loads, plan.counts.bytes), ("tree", 20, 200));
    }

    /// Each of 12 small buckets has an edge to each of 4 large ones. The buckets that are read repeatedly should be
    /// the small ones.
    #[test]
    fn the_leading_set_is_the_one_that_reads_less() {
        let sizes = BucketSizes {
            extents: [[1; 12].as_slice(), &[40; 4]].concat(),
            memory: [[1; 12].as_slice(), &[40; 4]].concat(),
        };
        let tasks: Vec<Task> = (0..12).flat_map(|i| (12..16).map(move |j| (i, j))).collect();
        let start = CacheStart { capacity: 42, policy: Policy::Belady };
        let bytes = |leads: &[Lead]| schedule(tasks.clone(), &sizes, start, leads).counts.bytes;
        let (left, right) = (bytes(&[Lead::Left]), bytes(&[Lead::Right]));
        let chosen = schedule(tasks.clone(), &sizes, start, &Lead::ALL);
        assert!(right < left, "{right} {left}");
        assert_eq!((chosen.lead, chosen.counts.bytes), (Lead::Right, right));
        assert_eq!(chosen.tasks, schedule(tasks, &sizes, start, &[Lead::Right]).tasks);
    }

    #[test]
    fn the_least_cache_fits_the_largest_edge() {
        let graph = BucketGraph { buckets: 3, edges: vec![(0, 1)] };
        let of =
            |memory: [u64; 3]| BucketSizes { extents: vec![1; 3], memory: memory.into() }.least_cache(&graph.edges);
        assert_eq!((of([2, 3, 4]), of([2, 3, 40])), (5, 40));
    }
}
