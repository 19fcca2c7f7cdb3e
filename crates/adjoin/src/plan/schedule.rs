//! The plan of a join: tasks in an order, and the cache that goes with it.

use super::cache::{CacheCounts, CacheStart, Load, Policy, Steps, count, loads_for, loads_of};
use super::order::{Lead, Order, Task, sort_tasks};

/// What buckets take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSizes {
    /// Bytes to read for each.
    pub extents: Vec<u64>,
    /// Bytes that each takes in memory.
    pub memory: Vec<u64>,
}

impl BucketSizes {
    /// The least cache with which buckets can be joined, given their edges: the largest two that meet.
    pub fn least_cache(&self, edges: &[(u32, u32)]) -> u64 {
        let of = |bucket: u32| self.memory[bucket as usize];
        let edges = edges.iter().filter(|(i, j)| i != j).map(|&(i, j)| of(i) + of(j)).max().unwrap_or(0);
        edges.max(self.memory.iter().copied().max().unwrap_or(0))
    }

    /// A cache that is enough for any graph: the largest two buckets.
    pub fn two_largest(&self) -> u64 {
        let mut sorted = self.memory.clone();
        sorted.sort_unstable();
        sorted.iter().rev().take(2).sum()
    }
}

/// Tasks in their order, and what reading for them costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// How the tasks are ordered.
    pub order: Order,
    /// Which set is gone through.
    pub lead: Lead,
    /// What is held between them.
    pub policy: Policy,
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Bytes of the cache.
    pub capacity: u64,
    /// The buckets that are in it when a run begins.
    pub resident: Vec<u32>,
    /// The buckets that a run reads, in its order; empty where to simulate it again holds less.
    listed_loads: Vec<u32>,
    /// What that costs.
    pub counts: CacheCounts,
}

impl Schedule {
    fn of(
        tasks: Vec<Task>,
        ((order, lead), counts): ((Order, Lead), CacheCounts),
        sizes: &BucketSizes,
        start: CacheStart<'_>,
    ) -> Self {
        let CacheStart { capacity, policy, resident } = start;
        let mut listed_loads = Vec::new();
        if policy == Policy::Belady {
            listed_loads.reserve_exact(counts.loads as usize);
            listed_loads.extend(loads_of(Steps::new(&tasks, &sizes.memory, start)));
        }
        Self { order, lead, policy, tasks, capacity, resident: resident.to_vec(), listed_loads, counts }
    }

    /// Pairs of buckets that are compared.
    pub fn edges(&self) -> u64 {
        self.tasks.iter().filter(|(i, j)| i != j).count() as u64
    }

    /// The buckets that a run reads, in its order, with the tasks that need them.
    pub fn loads<'a>(&'a self, sizes: &'a BucketSizes) -> Box<dyn Iterator<Item = Load> + 'a> {
        match self.policy {
            Policy::Belady => Box::new(loads_for(&self.tasks, self.listed_loads.iter().copied())),
            _ => Box::new(loads_for(&self.tasks, loads_of(self.steps(sizes)))),
        }
    }

    /// The steps of a run.
    pub fn steps<'a>(&'a self, sizes: &'a BucketSizes) -> Steps<'a> {
        let Self { capacity, policy, ref resident, .. } = *self;
        Steps::new(&self.tasks, &sizes.memory, CacheStart { capacity, policy, resident })
    }
}

/// A schedule for a cache. Where no order is asked for, the one that reads least: both are simulated,
/// as tree order wins on sparse graphs and block-nested loops on dense ones (docs/methods.md, "Order"); so is each set of
/// `leads` in the lead.
pub fn schedule(
    mut tasks: Vec<Task>,
    sizes: &BucketSizes,
    start: CacheStart<'_>,
    (order, leads): (Option<Order>, &[Lead]),
) -> Schedule {
    let buckets = buckets_of(&tasks, sizes.memory.len());
    let mut cost = |(order, lead)| {
        sort_tasks(&mut tasks, &sizes.memory, start.capacity, (order, lead));
        count(Steps::new(&tasks, &sizes.memory, start), &sizes.extents)
    };
    let orders = order.map_or([Order::Tree, Order::BlockNested], |order| [order; 2]);
    let orders = if order.is_some() { &orders[..1] } else { &orders };
    let mut ways = orders.iter().flat_map(|&order| leads.iter().map(move |&lead| (order, lead)));
    let first = ways.next().expect("there is an order, and a set that leads");
    let (mut last, mut chosen) = (first, (first, cost(first)));
    for way in ways {
        if chosen.1.loads <= buckets {
            break; // with each bucket read once, nothing reads less
        }
        let counts = cost(way);
        last = way;
        if counts.bytes < chosen.1.bytes {
            chosen = (way, counts);
        }
    }
    if last != chosen.0 {
        cost(chosen.0); // puts the tasks in its order again
    }
    Schedule::of(tasks, chosen, sizes, start)
}

/// How many of so many buckets have a task.
fn buckets_of(tasks: &[Task], buckets: usize) -> u64 {
    let mut seen = vec![false; buckets];
    tasks.iter().for_each(|&(i, j)| (seen[i as usize], seen[j as usize]) = (true, true));
    seen.into_iter().filter(|&seen| seen).count() as u64
}

/// A schedule of tasks that are in their order already.
pub fn schedule_in_order(
    tasks: Vec<Task>,
    order: (Order, Lead),
    sizes: &BucketSizes,
    start: CacheStart<'_>,
) -> Schedule {
    let counts = count(Steps::new(&tasks, &sizes.memory, start), &sizes.extents);
    Schedule::of(tasks, (order, counts), sizes, start)
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
        let start = CacheStart::cold(16 * 5, Policy::Belady);
        let plan = schedule(tasks_of(dense, &Vec::from_iter(0..20)), &sizes(20), start, (None, &[Lead::Left]));
        assert_eq!(plan.order.name(), "block-nested");
        let chain = BucketGraph { buckets: 20, edges: (0..19).map(|i| (i, i + 1)).collect() };
        let start = CacheStart::cold(32, Policy::Belady);
        let plan = schedule(tasks_of(chain, &Vec::from_iter(0..20)), &sizes(20), start, (None, &[Lead::Left]));
        assert_eq!((plan.order, plan.counts.loads, plan.counts.bytes), (Order::Tree, 20, 200));
    }

    /// Every one of 12 small buckets meets every one of 4 large ones: what passes by again and again should be small.
    #[test]
    fn the_set_leads_whose_lead_reads_less() {
        let sizes = BucketSizes {
            extents: [[1; 12].as_slice(), &[40; 4]].concat(),
            memory: [[1; 12].as_slice(), &[40; 4]].concat(),
        };
        let tasks: Vec<Task> = (0..12).flat_map(|i| (12..16).map(move |j| (i, j))).collect();
        let start = CacheStart::cold(42, Policy::Belady);
        let bytes = |leads: &[Lead]| schedule(tasks.clone(), &sizes, start, (None, leads)).counts.bytes;
        let (left, right) = (bytes(&[Lead::Left]), bytes(&[Lead::Right]));
        let chosen = schedule(tasks.clone(), &sizes, start, (None, &Lead::ALL));
        assert!(right < left, "{right} {left}");
        assert_eq!((chosen.lead, chosen.counts.bytes), (Lead::Right, right));
        assert_eq!(chosen.tasks, schedule(tasks, &sizes, start, (None, &[Lead::Right])).tasks);
    }

    #[test]
    fn the_least_cache_holds_the_largest_edge() {
        let graph = BucketGraph { buckets: 3, edges: vec![(0, 1)] };
        let of =
            |memory: [u64; 3]| BucketSizes { extents: vec![1; 3], memory: memory.into() }.least_cache(&graph.edges);
        assert_eq!((of([2, 3, 4]), of([2, 3, 40])), (5, 40));
    }
}
