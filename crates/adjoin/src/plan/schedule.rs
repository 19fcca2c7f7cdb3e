//! The plan of a join: tasks in an order, and the cache that goes with it.

use super::bucket_graph::BucketGraph;
use super::cache::{CacheCounts, CacheStart, Load, Policy, Steps, count, loads_for, loads_of};
use super::order::{Order, Task, sort_tasks, tasks_of};

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
    fn of(tasks: Vec<Task>, (order, counts): (Order, CacheCounts), sizes: &BucketSizes, start: CacheStart<'_>) -> Self {
        let CacheStart { capacity, policy, resident } = start;
        let mut listed_loads = Vec::new();
        if policy == Policy::Belady {
            listed_loads.reserve_exact(counts.loads as usize);
            listed_loads.extend(loads_of(Steps::new(&tasks, &sizes.memory, start)));
        }
        Self { order, policy, tasks, capacity, resident: resident.to_vec(), listed_loads, counts }
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
/// as tree order wins on sparse graphs and block-nested loops on dense ones (docs/methods.md, "Order").
pub fn schedule(graph: BucketGraph, sizes: &BucketSizes, start: CacheStart<'_>, order: Option<Order>) -> Schedule {
    let capacity = start.capacity;
    let buckets = graph.buckets as u64;
    let mut tasks = tasks_of(graph);
    let mut cost = |order| {
        sort_tasks(&mut tasks, &sizes.memory, capacity, order);
        count(Steps::new(&tasks, &sizes.memory, start), &sizes.extents)
    };
    let first = order.unwrap_or(Order::Tree);
    let (mut order_chosen, mut counts) = (first, cost(first));
    // With each bucket read once, nothing reads less.
    if order.is_none() && counts.loads > buckets {
        let nested = cost(Order::BlockNested);
        (order_chosen, counts) = match nested.bytes < counts.bytes {
            true => (Order::BlockNested, nested),
            false => (first, cost(first)), // puts the tasks in its order again
        };
    }
    Schedule::of(tasks, (order_chosen, counts), sizes, start)
}

/// A schedule of tasks that are in their order already.
pub fn schedule_in_order(tasks: Vec<Task>, order: Order, sizes: &BucketSizes, start: CacheStart<'_>) -> Schedule {
    let counts = count(Steps::new(&tasks, &sizes.memory, start), &sizes.extents);
    Schedule::of(tasks, (order, counts), sizes, start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(count: usize) -> BucketSizes {
        BucketSizes { extents: vec![10; count], memory: vec![16; count] }
    }

    #[test]
    fn dense_graphs_are_joined_in_blocks_and_sparse_ones_in_tree_order() {
        let dense = (0..20).flat_map(|i| (i + 1..20).map(move |j| (i, j))).collect();
        let dense = BucketGraph { buckets: 20, edges: dense };
        let plan = schedule(dense, &sizes(20), CacheStart::cold(16 * 5, Policy::Belady), None);
        assert_eq!(plan.order.name(), "block-nested");
        let chain = BucketGraph { buckets: 20, edges: (0..19).map(|i| (i, i + 1)).collect() };
        let plan = schedule(chain, &sizes(20), CacheStart::cold(32, Policy::Belady), None);
        assert_eq!((plan.order, plan.counts.loads, plan.counts.bytes), (Order::Tree, 20, 200));
    }

    #[test]
    fn the_least_cache_holds_the_largest_edge() {
        let graph = BucketGraph { buckets: 3, edges: vec![(0, 1)] };
        let of =
            |memory: [u64; 3]| BucketSizes { extents: vec![1; 3], memory: memory.into() }.least_cache(&graph.edges);
        assert_eq!((of([2, 3, 4]), of([2, 3, 40])), (5, 40));
    }
}
