//! Orders of the tasks of a join.

use serde::{Deserialize, Serialize};

use super::bucket_graph::BucketGraph;

/// Maximum number of consecutive buckets that are compared, as a group, with each other bucket.
const TOGETHER: u64 = 8;

/// A task of a join: the comparison of two buckets, or of one bucket with itself.
pub type Task = (u32, u32);

/// The leading set of a join of two sets. Its buckets are processed one after the other. The buckets of the other set
/// with which they are compared are cached. (DiskJoin, section 3, reorders one set and caches the other.) If a set is
/// joined with itself, it is the leading set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lead {
    /// The first set.
    Left,
    /// The second set.
    Right,
}

impl Lead {
    /// Both sets.
    pub const ALL: [Self; 2] = [Self::Left, Self::Right];

    /// Returns the name for statistics and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }

    /// Returns the buckets of a task, with the bucket of the leading set first.
    fn first(self, task: Task) -> Task {
        let (i, j) = task;
        match self {
            Self::Left => (i, j),
            Self::Right => (j, i),
        }
    }
}

/// An order of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The order on disk, which is the order of the k-means tree of the centers. A few consecutive buckets are
    /// compared together with each later bucket that has an edge to one of them.
    Tree,
    /// Block-nested loops. As many consecutive buckets as fit are cached, and every other bucket with an edge to one
    /// of them is read once. Reads fewer bytes than the tree order if the graph is dense.
    BlockNested,
}

impl Order {
    /// Both orders.
    pub const ALL: [Self; 2] = [Self::Tree, Self::BlockNested];

    /// Returns the name for statistics and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::BlockNested => "block-nested",
        }
    }
}

/// Returns all tasks of a graph: its edges, and the comparisons of the buckets `with_themselves` with themselves.
/// Reuses the memory of the edges, which may be the largest part of a plan.
pub(crate) fn tasks_of(graph: BucketGraph, with_themselves: &[u32]) -> Vec<Task> {
    let mut tasks = graph.edges;
    // Reserves the exact capacity: if the vector doubled, the largest part of a plan would be in memory twice.
    tasks.reserve_exact(with_themselves.len());
    tasks.extend(with_themselves.iter().map(|&bucket| (bucket, bucket)));
    tasks
}

/// Sorts tasks in an order. If there are two sets, `lead` is the leading one. `sizes` are the sizes of all buckets in
/// memory, in bytes. `capacity` is the number of bytes that fit in memory at the same time.
pub fn sort_tasks(tasks: &mut [Task], sizes: &[u64], capacity: u64, order: Order, lead: Lead) {
    match order {
        Order::Tree => {
            let together = together(sizes, capacity);
            tasks.sort_unstable_by_key(|&task| {
                let (i, j) = lead.first(task);
                // A few buckets i are compared with one bucket j, one after the other, so j stays in the processor's
                // caches.
                (i / together, j, i)
            });
        }
        Order::BlockNested => {
            let largest = sizes.iter().copied().max().unwrap_or(0);
            let together = together(sizes, capacity);
            // Buckets of other blocks are in memory one at a time, so the largest of them must fit next to the block.
            let block_of = blocks(sizes, capacity.saturating_sub(largest));
            // Tasks inside a block are in tree order. After them, each later bucket is compared with all buckets of
            // the block to which it has edges.
            tasks.sort_unstable_by_key(|&task| {
                let (i, j) = lead.first(task);
                let inside = block_of[i as usize] == block_of[j as usize];
                if inside { (block_of[i as usize], i / together, j, i) } else { (block_of[i as usize], u32::MAX, j, i) }
            });
        }
    }
}

/// Returns how many consecutive buckets are compared with another bucket together, so that it passes through the
/// processor's caches once for all of them. They are only a small part of the buckets that fit in memory.
fn together(sizes: &[u64], capacity: u64) -> u32 {
    let largest = sizes.iter().copied().max().unwrap_or(0).max(1);
    (capacity / largest / 4).clamp(1, TOGETHER) as u32
}

/// Returns the block number of each bucket. A block consists of consecutive buckets of at most `block_bytes` in total,
/// but of at least one.
fn blocks(sizes: &[u64], block_bytes: u64) -> Vec<u32> {
    let mut block = 0;
    let mut held = 0;
    let mut of = Vec::with_capacity(sizes.len());
    for &size in sizes {
        if held > 0 && held + size > block_bytes {
            block += 1;
            held = 0;
        }
        held += size;
        of.push(block);
    }
    of
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(order: Order) -> Vec<Task> {
        let graph = BucketGraph { buckets: 4, edges: vec![(0, 1), (0, 2), (1, 3), (2, 3)] };
        let mut tasks = tasks_of(graph, &[0, 1, 2, 3]);
        sort_tasks(&mut tasks, &[1; 4], 3, order, Lead::Left);
        tasks
    }

    #[test]
    fn tree_order_follows_the_order_on_disk() {
        let expected = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 3), (2, 2), (2, 3), (3, 3)];
        assert_eq!(tasks(Order::Tree), expected);
    }

    #[test]
    fn every_order_holds_every_task_once() {
        for order in Order::ALL {
            let mut tasks = tasks(order);
            tasks.sort_unstable();
            assert_eq!(tasks, [(0, 0), (0, 1), (0, 2), (1, 1), (1, 3), (2, 2), (2, 3), (3, 3)], "{order:?}");
        }
    }

    /// Buckets 0 to 2 belong to one set, 3 and 4 to the other.
    #[test]
    fn buckets_of_the_leading_set_are_consecutive() {
        let edges = vec![(0, 3), (0, 4), (1, 3), (2, 3), (2, 4)];
        for order in Order::ALL {
            for lead in Lead::ALL {
                let mut tasks = edges.clone();
                sort_tasks(&mut tasks, &[1; 5], 3, order, lead);
                let changes = |of: fn(Task) -> u32| tasks.windows(2).filter(|two| of(two[0]) != of(two[1])).count();
                if order == Order::Tree {
                    let (first, count) = (changes(|task| task.0), changes(|task| task.1));
                    let (leading, others) = if lead == Lead::Left { (first, 2) } else { (count, 1) };
                    assert_eq!(leading, others, "{order:?}, {lead:?}: {tasks:?}");
                }
                tasks.sort_unstable();
                assert_eq!(tasks, edges, "{order:?}, {lead:?}");
            }
        }
    }

    #[test]
    fn block_nested_order_visits_each_later_bucket_once_per_block() {
        let expected = [(0, 0), (0, 1), (1, 1), (0, 2), (1, 3), (2, 2), (2, 3), (3, 3)];
        assert_eq!(tasks(Order::BlockNested), expected);
        assert_eq!(blocks(&[5, 1, 1, 9, 1], 4), [0, 1, 1, 2, 3]);
    }
}
