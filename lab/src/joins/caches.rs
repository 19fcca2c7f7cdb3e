//! Cache policies that do not know future uses. Belady's cache is compared with them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use adjoin::lab::plan::{Step, Task};

/// Which bucket is evicted when another one needs its space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CachePolicy {
    /// The bucket with the fewest uses since it was read. If several have equally few, the one that was used longest
    /// ago.
    Lfu,
    /// The bucket that was read longest ago.
    Fifo,
}

/// Rank of a bucket: its number of uses, and the position of its last use. The bucket with the smallest rank is
/// evicted first.
type Stay = (u64, usize);

struct Held<'a> {
    policy: CachePolicy,
    sizes: &'a [u64],
    bytes: u64,
    stays: Vec<Option<Stay>>,
    by_stay: BTreeSet<(Stay, Reverse<u32>)>,
}

impl Held<'_> {
    fn insert(&mut self, bucket: u32, stay: Stay) {
        self.stays[bucket as usize] = Some(stay);
        self.by_stay.insert((stay, Reverse(bucket)));
        self.bytes += self.sizes[bucket as usize];
    }

    fn remove(&mut self, bucket: u32) -> Stay {
        let stay = self.stays[bucket as usize].take().expect("only a held bucket is evicted");
        self.by_stay.remove(&(stay, Reverse(bucket)));
        self.bytes -= self.sizes[bucket as usize];
        stay
    }

    /// Records that task `at` uses a bucket.
    fn note_use(&mut self, bucket: u32, at: usize) {
        if self.policy == CachePolicy::Lfu {
            let (uses, _) = self.remove(bucket);
            self.insert(bucket, (uses + 1, at));
        }
    }
}

/// Returns the steps that execute tasks in their order, with a cache of `capacity` bytes.
///
/// # Panics
/// If the two buckets of a task do not fit at the same time.
pub(super) fn steps(tasks: &[Task], sizes: &[u64], capacity: u64, policy: CachePolicy) -> Vec<Step> {
    let mut held = Held { policy, sizes, bytes: 0, stays: vec![None; sizes.len()], by_stay: BTreeSet::new() };
    let mut steps = Vec::new();
    for (at, &(i, j)) in tasks.iter().enumerate() {
        for bucket in [i, j] {
            if held.stays[bucket as usize].is_some() {
                continue;
            }
            while held.bytes + sizes[bucket as usize] > capacity {
                let victim =
                    held.by_stay.iter().map(|&(_, Reverse(other))| other).find(|&other| other != i && other != j);
                let victim = victim.expect("the two buckets of a task fit together");
                held.remove(victim);
                steps.push(Step::Evict(victim));
            }
            held.insert(bucket, (0, at));
            steps.push(Step::Load(bucket));
        }
        held.note_use(i, at);
        if i != j {
            held.note_use(j, at);
        }
        steps.push(Step::Verify((i, j)));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_of_loads(tasks: &[Task], policy: CachePolicy) -> Vec<u32> {
        let steps = steps(tasks, &[1; 4], 3, policy).into_iter();
        steps.filter_map(|step| if let Step::Load(bucket) = step { Some(bucket) } else { None }).collect()
    }

    #[test]
    fn policies_evict_by_their_rule() {
        // Bucket 3 needs space. Bucket 0 was read first, so it is evicted.
        let tasks = [(0, 0), (1, 1), (2, 2), (0, 0), (3, 3), (0, 1)];
        assert_eq!(order_of_loads(&tasks, CachePolicy::Fifo), [0, 1, 2, 3, 0]);
        // Bucket 3 needs space. Buckets 0 and 2 were used twice. Bucket 1 was used once, so it is evicted although it
        // was used last.
        let tasks = [(0, 0), (2, 2), (2, 2), (0, 0), (1, 1), (3, 3), (0, 2), (1, 1)];
        assert_eq!(order_of_loads(&tasks, CachePolicy::Lfu), [0, 2, 1, 3, 1]);
        // Buckets 1 and 2 were used once each. Bucket 1 was used longer ago, so it is evicted.
        let ties = [(0, 0), (0, 0), (1, 1), (2, 2), (3, 3), (2, 2), (1, 1)];
        assert_eq!(order_of_loads(&ties, CachePolicy::Lfu), [0, 1, 2, 3, 1]);
        // Uses before the last read of a bucket do not count. Bucket 2 evicts bucket 0. When bucket 3 is read, bucket
        // 0 has been read again and has fewer uses than bucket 1.
        let again = [(0, 0), (0, 0), (0, 0), (1, 1), (1, 1), (1, 1), (1, 1), (2, 3), (0, 0), (2, 2), (3, 3), (1, 2)];
        assert_eq!(order_of_loads(&again, CachePolicy::Lfu), [0, 1, 2, 3, 0, 3]);
    }

    #[test]
    fn lfu_evicts_by_bytes() {
        // A bucket of 4 bytes evicts both buckets with fewer uses, and not the most used one.
        let (tasks, sizes) = ([(0, 0), (1, 1), (2, 2), (1, 1), (3, 3), (1, 1)], [2, 2, 2, 4]);
        let steps = steps(&tasks, &sizes, 6, CachePolicy::Lfu).into_iter();
        let evicted = steps.filter_map(|step| if let Step::Evict(bucket) = step { Some(bucket) } else { None });
        assert_eq!(evicted.collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn the_cache_never_exceeds_its_capacity() {
        let sizes = [3, 5, 2, 7, 1];
        let tasks: Vec<Task> = (0..5).flat_map(|i| (i..5).map(move |j| (i, j))).collect();
        for policy in [CachePolicy::Lfu, CachePolicy::Fifo] {
            let (mut held, mut verified) = (0, 0);
            for step in steps(&tasks, &sizes, 12, policy) {
                match step {
                    Step::Load(bucket) => held += sizes[bucket as usize],
                    Step::Evict(bucket) => held -= sizes[bucket as usize],
                    Step::Verify(_) => verified += 1,
                }
                assert!(held <= 12);
            }
            assert_eq!(verified, tasks.len());
        }
    }
}
