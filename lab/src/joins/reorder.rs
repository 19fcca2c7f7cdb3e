//! Orders of buckets to compare the default with: a random order, and orders that are computed from the bucket graph.

use std::str::FromStr;

use adjoin::{
    Error, Random, Result,
    lab::plan::{BucketGraph, Lead, Task},
};

/// An order of the buckets of a join. The tasks follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BucketOrder {
    /// Bucket by bucket, in a random order.
    Id,
    /// The next bucket is always the one that shares the most neighbors with the last buckets (DiskJoin, Algorithm 2,
    /// with undirected edges).
    Gorder,
    /// DiskJoin's Algorithm 2 as printed. An edge points from the bucket with the lower number to the other one, and
    /// the next bucket shares the most out-neighbors with the last ones. A bucket is followed by the tasks of its
    /// out-edges (section 4.3).
    GorderOut,
    /// Bucket by bucket in reverse Cuthill-McKee order.
    CuthillMcKee,
}

impl BucketOrder {
    /// All orders.
    pub(super) const ALL: [Self; 4] = [Self::Id, Self::Gorder, Self::GorderOut, Self::CuthillMcKee];

    /// Returns the name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Gorder => "gorder",
            Self::GorderOut => "gorder-out",
            Self::CuthillMcKee => "rcm",
        }
    }

    /// Sorts tasks. `sizes` has the size of each bucket in memory, in bytes. `capacity` is the number of bytes that
    /// fit in memory at the same time. `lead` is used only by `GorderOut`, which sorts tasks by their bucket of that
    /// side first.
    pub(super) fn sort(self, tasks: &mut [Task], sizes: &[u64], capacity: u64, lead: Lead) {
        let rank = self.ranks(tasks, sizes, capacity);
        let of = |bucket: u32| rank[bucket as usize];
        tasks.sort_unstable_by_key(|&(i, j)| match (self, lead) {
            (Self::GorderOut, Lead::Left) => (of(i), of(j)),
            (Self::GorderOut, Lead::Right) => (of(j), of(i)),
            _ => (of(i).min(of(j)), of(i).max(of(j))),
        });
    }

    /// Returns the position of each bucket in this order.
    fn ranks(self, tasks: &[Task], sizes: &[u64], capacity: u64) -> Vec<u32> {
        let edges = tasks.iter().copied().filter(|(i, j)| i != j).collect();
        let graph = BucketGraph { buckets: sizes.len(), edges };
        let mean = sizes.iter().sum::<u64>() as f64 / sizes.len().max(1) as f64;
        let in_cache = capacity as f64 / mean.max(1.0);
        let buckets = match self {
            Self::Id => shuffled(sizes.len()),
            Self::Gorder => gorder(&graph, in_cache),
            Self::GorderOut => gorder_out(&graph, in_cache),
            Self::CuthillMcKee => cuthill_mckee(&graph),
        };
        let mut rank = vec![0; buckets.len()];
        buckets.iter().zip(0..).for_each(|(&bucket, at)| rank[bucket as usize] = at);
        rank
    }
}

impl FromStr for BucketOrder {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::option(format!("no such order: {name}; choose one of tree, block-nested, {names}"))
        })
    }
}

/// Lists of the neighbors of each bucket.
struct Adjacency {
    starts: Vec<usize>,
    neighbors: Vec<u32>,
}

impl Adjacency {
    /// Creates lists of all neighbors. An edge counts in both directions.
    fn both(graph: &BucketGraph) -> Self {
        Self::new(graph.buckets, graph.edges.iter().flat_map(|&(i, j)| [(i, j), (j, i)]))
    }

    /// Creates lists of out-neighbors. An edge (i, j) with i < j leads from i to j.
    fn outgoing(graph: &BucketGraph) -> Self {
        Self::new(graph.buckets, graph.edges.iter().copied())
    }

    /// Creates lists of in-neighbors. An edge (i, j) with i < j leads from i to j.
    fn incoming(graph: &BucketGraph) -> Self {
        Self::new(graph.buckets, graph.edges.iter().map(|&(i, j)| (j, i)))
    }

    fn new(buckets: usize, edges: impl Iterator<Item = (u32, u32)> + Clone) -> Self {
        let mut starts = vec![0; buckets + 1];
        edges.clone().for_each(|(from, _)| starts[from as usize + 1] += 1);
        (0..buckets).for_each(|bucket| starts[bucket + 1] += starts[bucket]);
        let (mut ends, mut neighbors) = (starts.clone(), vec![0; starts[buckets]]);
        for (from, to) in edges {
            neighbors[ends[from as usize]] = to;
            ends[from as usize] += 1;
        }
        Self { starts, neighbors }
    }

    fn buckets(&self) -> usize {
        self.starts.len() - 1
    }

    fn of(&self, bucket: u32) -> &[u32] {
        &self.neighbors[self.starts[bucket as usize]..self.starts[bucket as usize + 1]]
    }

    fn degree(&self, bucket: u32) -> usize {
        self.of(bucket).len()
    }

    fn mean_degree(&self) -> f64 {
        self.neighbors.len() as f64 / self.buckets().max(1) as f64
    }
}

/// Returns buckets in a random order. It is as if their centers had been drawn at random.
fn shuffled(buckets: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..buckets as u32).collect();
    Random::new(1, "shuffled buckets").shuffle(&mut order);
    order
}

/// The unit heap of Gorder. It has the buckets without a position, ordered by the number of neighbors that each
/// shares with a window. There is a linked list for each number. Numbers change by one at a time, so a bucket moves
/// to an adjacent list.
struct Shares {
    shared: Vec<u32>,
    /// `first` has the first bucket of each list. `before` and `after` have, for each bucket, the previous and the
    /// next one in its list.
    first: Vec<Option<u32>>,
    before: Vec<Option<u32>>,
    after: Vec<Option<u32>>,
    placed: Vec<bool>,
}

impl Shares {
    /// Creates a heap in which no bucket shares a neighbor. Within a list, the bucket that was added last is first.
    fn new(buckets: usize) -> Self {
        let empty = || vec![None; buckets];
        let (first, placed) = (vec![None], vec![false; buckets]);
        let mut all = Self { shared: vec![0; buckets], first, before: empty(), after: empty(), placed };
        (0..buckets as u32).rev().for_each(|bucket| all.link(bucket));
        all
    }

    fn link(&mut self, bucket: u32) {
        let list = self.shared[bucket as usize] as usize;
        if list == self.first.len() {
            self.first.push(None);
        }
        let next = self.first[list].replace(bucket);
        (self.before[bucket as usize], self.after[bucket as usize]) = (None, next);
        if let Some(next) = next {
            self.before[next as usize] = Some(bucket);
        }
    }

    fn unlink(&mut self, bucket: u32) {
        let (before, after) = (self.before[bucket as usize], self.after[bucket as usize]);
        match before {
            Some(before) => self.after[before as usize] = after,
            None => self.first[self.shared[bucket as usize] as usize] = after,
        }
        if let Some(after) = after {
            self.before[after as usize] = before;
        }
    }

    /// Updates the number of a bucket, because one of its neighbors entered or left the window.
    fn change(&mut self, bucket: u32, entered: bool) {
        if self.placed[bucket as usize] {
            return;
        }
        self.unlink(bucket);
        let shared = &mut self.shared[bucket as usize];
        *shared = if entered { *shared + 1 } else { *shared - 1 };
        self.link(bucket);
    }

    fn place(&mut self, bucket: u32) {
        self.unlink(bucket);
        self.placed[bucket as usize] = true;
    }

    /// Returns a bucket that shares the most neighbors with the window.
    fn most(&mut self) -> Option<u32> {
        while self.first.len() > 1 && self.first.last() == Some(&None) {
            self.first.pop();
        }
        self.first.last().copied().flatten()
    }
}

/// Orders buckets by DiskJoin's Algorithm 2 with undirected edges, since a bucket is needed together with all of its
/// neighbors.
fn gorder(graph: &BucketGraph, buckets_in_cache: f64) -> Vec<u32> {
    let both = Adjacency::both(graph);
    by_overlap(&both, &both, buckets_in_cache)
}

/// Orders buckets by DiskJoin's Algorithm 2 as printed. It counts the out-neighbors of a bucket, `N(v) = {u : (v, u)
/// in E}`. Each pair of buckets is one edge, from the lower number to the higher one (section 3).
fn gorder_out(graph: &BucketGraph, buckets_in_cache: f64) -> Vec<u32> {
    by_overlap(&Adjacency::outgoing(graph), &Adjacency::incoming(graph), buckets_in_cache)
}

/// Orders buckets such that the next one shares the most neighbors with the buckets in a sliding window (DiskJoin,
/// Algorithm 2, after Gorder). The first bucket has the most neighbors. The size of the window is the number of
/// buckets that fit in the cache, divided by the mean degree. `backwards` has the edges of `adjacency` in the
/// opposite direction.
fn by_overlap(adjacency: &Adjacency, backwards: &Adjacency, buckets_in_cache: f64) -> Vec<u32> {
    let buckets = adjacency.buckets();
    let window = ((buckets_in_cache / adjacency.mean_degree()) as usize).clamp(1, buckets.max(1));
    let mut shares = Shares::new(buckets);
    let mut order: Vec<u32> = Vec::with_capacity(buckets);
    let all = 0..buckets as u32;
    let mut next = all.max_by_key(|&bucket| (adjacency.degree(bucket), std::cmp::Reverse(bucket)));
    while let Some(bucket) = next {
        shares.place(bucket);
        order.push(bucket);
        let leaving = order.len().checked_sub(window + 1).map(|at| order[at]);
        for (moved, entered) in [(Some(bucket), true), (leaving, false)] {
            for &common in moved.map_or(&[][..], |moved| adjacency.of(moved)) {
                backwards.of(common).iter().for_each(|&other| shares.change(other, entered));
            }
        }
        next = shares.most();
    }
    order
}

/// Orders buckets by reverse Cuthill-McKee, which gives neighbors close positions. A breadth-first search starts at a
/// bucket of smallest degree and visits neighbors in ascending order of degree. Then the order is reversed.
fn cuthill_mckee(graph: &BucketGraph) -> Vec<u32> {
    let adjacency = Adjacency::both(graph);
    let by_degree = |bucket: &u32| (adjacency.degree(*bucket), *bucket);
    let mut starts: Vec<u32> = (0..graph.buckets as u32).collect();
    starts.sort_unstable_by_key(by_degree);
    let mut seen = vec![false; graph.buckets];
    let mut order: Vec<u32> = Vec::with_capacity(graph.buckets);
    for start in starts {
        if std::mem::replace(&mut seen[start as usize], true) {
            continue;
        }
        let mut at = order.len();
        order.push(start);
        while at < order.len() {
            let new = adjacency.of(order[at]).iter().copied();
            let mut new: Vec<u32> =
                new.filter(|&bucket| !std::mem::replace(&mut seen[bucket as usize], true)).collect();
            new.sort_unstable_by_key(by_degree);
            order.extend(new);
            at += 1;
        }
    }
    order.reverse();
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two rings of 10 buckets. Consecutive numbers alternate between the rings.
    fn rings() -> BucketGraph {
        let edge = |ring: u32, k: u32| (2 * (k % 10) + ring, 2 * ((k + 1) % 10) + ring);
        let edges = (0..2).flat_map(|ring| (0..10).map(move |k| edge(ring, k)));
        let mut edges: Vec<_> = edges.map(|(i, j)| (i.min(j), i.max(j))).collect();
        edges.sort_unstable();
        BucketGraph { buckets: 20, edges }
    }

    fn assert_all(order: &[u32]) {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn every_order_has_every_bucket_once() {
        for order in [shuffled(20), gorder(&rings(), 6.0), gorder_out(&rings(), 6.0), cuthill_mckee(&rings())] {
            assert_all(&order);
        }
        let empty = BucketGraph { buckets: 0, edges: Vec::new() };
        assert!(gorder(&empty, 1.0).is_empty() && gorder_out(&empty, 1.0).is_empty());
    }

    #[test]
    fn cuthill_mckee_keeps_connected_components_together() {
        let order = cuthill_mckee(&rings());
        let changes = order.windows(2).filter(|pair| pair[0] % 2 != pair[1] % 2).count();
        assert_eq!(changes, 1, "{order:?}");
    }

    /// Checks the definition of the order, by counting all shared neighbors again for each position.
    fn assert_shares_most(order: &[u32], window: usize, neighbors: &[Vec<u32>]) {
        for at in 1..order.len() {
            let window = &order[at.saturating_sub(window)..at];
            let shared = |bucket: u32| {
                let of = |bucket: u32| &neighbors[bucket as usize];
                let common = |placed: &u32| of(*placed).iter().filter(|n| of(bucket).contains(n)).count();
                window.iter().map(common).sum::<usize>()
            };
            let best = order[at..].iter().map(|&bucket| shared(bucket)).max().unwrap();
            assert_eq!(shared(order[at]), best, "{at}");
        }
    }

    #[test]
    fn gorder_selects_the_bucket_that_shares_most_with_the_window() {
        let mut random = Random::new(5, "graph");
        let mut edges: Vec<_> = (0..60).map(|_| (random.below(20) as u32, random.below(20) as u32)).collect();
        edges.retain(|(i, j)| i < j);
        edges.sort_unstable();
        edges.dedup();
        let graph = BucketGraph { buckets: 20, edges };
        let (mut both, mut out) = (vec![Vec::new(); 20], vec![Vec::new(); 20]);
        for &(i, j) in &graph.edges {
            out[i as usize].push(j);
            both[i as usize].push(j);
            both[j as usize].push(i);
        }
        let out_degree = graph.edges.len() as f64 / 20.0;
        assert_shares_most(&gorder(&graph, 3.0 * 2.0 * out_degree), 3, &both);
        let order = gorder_out(&graph, 3.0 * out_degree);
        assert_shares_most(&order, 3, &out);
        assert_eq!(out[order[0] as usize].len(), out.iter().map(Vec::len).max().unwrap());
        assert_ne!(order, gorder(&graph, 3.0 * 2.0 * out_degree));
    }

    /// Checks Figure 5. Bucket 4 shares the neighbors 5 and 6 with bucket 1. Buckets 2 and 3 share none with it.
    #[test]
    fn gorder_out_follows_shared_out_neighbors() {
        let graph = BucketGraph { buckets: 7, edges: vec![(1, 2), (1, 5), (1, 6), (2, 3), (4, 5), (4, 6)] };
        assert_eq!(gorder_out(&graph, 3.0)[..2], [1, 4]);
    }

    #[test]
    fn every_order_has_a_name_and_all_tasks_once() {
        let all = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 3), (2, 2), (2, 3), (3, 3)];
        for order in BucketOrder::ALL {
            for lead in Lead::ALL {
                let mut tasks = all;
                tasks.reverse();
                order.sort(&mut tasks, &[1; 4], 3, lead);
                tasks.sort_unstable();
                assert_eq!(tasks, all, "{order:?}");
            }
            assert_eq!(order.name().parse::<BucketOrder>().unwrap(), order);
        }
        assert!("gorder-in".parse::<BucketOrder>().unwrap_err().to_string().contains("gorder, gorder-out, rcm"));
    }

    /// Bucket 1 has the most out-neighbors. Bucket 0 shares one of them, and the edge between both buckets leaves
    /// bucket 0.
    #[test]
    fn gorder_out_groups_tasks_by_the_bucket_that_edges_leave() {
        let mut tasks = vec![(0, 1), (0, 2), (1, 2), (1, 3), (1, 4), (0, 0), (1, 1), (2, 2), (3, 3), (4, 4)];
        BucketOrder::GorderOut.sort(&mut tasks, &[1; 5], 3, Lead::Left);
        let leaving: Vec<u32> = tasks.chunk_by(|a, b| a.0 == b.0).map(|tasks| tasks[0].0).collect();
        assert_eq!((&leaving[..2], leaving.len()), (&[1, 0][..], 5));
    }
}
