//! The plan of a join: tasks in an order, and the cache that goes with it.

use super::bucket_graph::BucketGraph;
use super::cache::{CacheCounts, Steps, count};
use super::order::{Order, Task, tasks};

/// What buckets take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSizes {
    /// Bytes to read for each.
    pub extents: Vec<u64>,
    /// Bytes that each takes in memory.
    pub memory: Vec<u64>,
}

impl BucketSizes {
    /// The least cache with which a graph can be joined: the largest two buckets that meet.
    pub fn least_cache(&self, graph: &BucketGraph) -> u64 {
        let of = |bucket: u32| self.memory[bucket as usize];
        let edges = graph.edges.iter().map(|&(i, j)| of(i) + of(j)).max().unwrap_or(0);
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
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Bytes of the cache.
    pub capacity: u64,
    /// What a run reads.
    pub counts: CacheCounts,
}

impl Schedule {
    /// The steps of a run.
    pub fn steps<'a>(&'a self, sizes: &'a BucketSizes) -> Steps<'a> {
        Steps::new(&self.tasks, &sizes.memory, self.capacity)
    }
}

/// The order that reads least with a cache of `capacity` bytes: both are simulated, as tree order wins on sparse
/// graphs and block-nested loops on dense ones (docs/methods.md, "Order").
pub fn schedule(graph: &BucketGraph, sizes: &BucketSizes, capacity: u64) -> Schedule {
    let largest = sizes.memory.iter().copied().max().unwrap_or(0);
    let of = |order| {
        let tasks = tasks(graph, &sizes.memory, order);
        let counts = count(Steps::new(&tasks, &sizes.memory, capacity), &sizes.extents);
        Schedule { order, tasks, capacity, counts }
    };
    let tree = of(Order::Tree);
    if tree.counts.loads == graph.buckets as u64 {
        return tree; // each bucket once: nothing reads less
    }
    let nested = of(Order::BlockNested { block_bytes: capacity.saturating_sub(largest) });
    if nested.counts.bytes < tree.counts.bytes { nested } else { tree }
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
        let dense = BucketGraph { buckets: 20, edges: dense, edge_pairs_max: 0 };
        let plan = schedule(&dense, &sizes(20), 16 * 5);
        assert_eq!(plan.order.name(), "block-nested");
        let chain = BucketGraph { buckets: 20, edges: (0..19).map(|i| (i, i + 1)).collect(), edge_pairs_max: 0 };
        let plan = schedule(&chain, &sizes(20), 32);
        assert_eq!((plan.order, plan.counts.loads, plan.counts.bytes), (Order::Tree, 20, 200));
    }

    #[test]
    fn the_least_cache_holds_the_largest_edge() {
        let graph = BucketGraph { buckets: 3, edges: vec![(0, 1)], edge_pairs_max: 0 };
        let of = |memory: [u64; 3]| BucketSizes { extents: vec![1; 3], memory: memory.into() }.least_cache(&graph);
        assert_eq!((of([2, 3, 4]), of([2, 3, 40])), (5, 40));
    }
}
