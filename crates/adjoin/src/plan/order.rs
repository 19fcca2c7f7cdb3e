//! In which order are the edges verified?

use super::bucket_graph::BucketGraph;

/// Compare two buckets, or one with itself.
pub type Task = (u32, u32);

/// A way to order tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Bucket by bucket in the order on disk, which is that of the k-means tree of the centers: each with the later
    /// buckets that it has an edge to.
    Tree,
    /// Block-nested loops: as many consecutive buckets as fit are held, all others that have an edge to one of them
    /// pass by once. Reads less where the graph is dense.
    BlockNested {
        /// Bytes of a block.
        block_bytes: u64,
    },
}

impl Order {
    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::BlockNested { .. } => "block-nested",
        }
    }
}

/// All tasks of a graph, each once. `sizes` are the bytes that buckets take in memory.
pub fn tasks(graph: &BucketGraph, sizes: &[u64], order: Order) -> Vec<Task> {
    match order {
        Order::Tree => in_tree_order(graph),
        Order::BlockNested { block_bytes } => in_blocks(graph, sizes, block_bytes),
    }
}

fn in_tree_order(graph: &BucketGraph) -> Vec<Task> {
    let mut tasks = Vec::with_capacity(graph.buckets + graph.edges.len());
    let mut edges = graph.edges.iter().peekable();
    for bucket in 0..graph.buckets as u32 {
        tasks.push((bucket, bucket));
        while let Some(&edge) = edges.next_if(|edge| edge.0 == bucket) {
            tasks.push(edge);
        }
    }
    tasks
}

fn in_blocks(graph: &BucketGraph, sizes: &[u64], block_bytes: u64) -> Vec<Task> {
    let block_of = blocks(sizes, block_bytes);
    let mut tasks = in_tree_order(graph);
    // Within a block as in tree order; then each later bucket once, with all of the block that it meets.
    tasks.sort_by_key(|&(i, j)| {
        let inside = block_of[i as usize] == block_of[j as usize];
        if inside { (block_of[i as usize], 0, i, j) } else { (block_of[i as usize], 1, j, i) }
    });
    tasks
}

/// The number of each bucket's block: consecutive buckets of at most `block_bytes`, at least one.
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

    fn graph() -> BucketGraph {
        BucketGraph { buckets: 4, edges: vec![(0, 1), (0, 2), (1, 3), (2, 3)], edge_pairs_max: 0 }
    }

    #[test]
    fn tree_order_follows_the_disk() {
        let expected = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 3), (2, 2), (2, 3), (3, 3)];
        assert_eq!(tasks(&graph(), &[1; 4], Order::Tree), expected);
    }

    #[test]
    fn blocks_meet_each_later_bucket_once() {
        let expected = [(0, 0), (0, 1), (1, 1), (0, 2), (1, 3), (2, 2), (2, 3), (3, 3)];
        assert_eq!(tasks(&graph(), &[1; 4], Order::BlockNested { block_bytes: 2 }), expected);
        assert_eq!(blocks(&[5, 1, 1, 9, 1], 4), [0, 1, 1, 2, 3]);
    }
}
