//! Cache policies that do not know future uses, to compare Belady's cache with.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use adjoin::lab::plan::{Step, Task};

/// Which bucket is evicted when another one needs its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CachePolicy {
    /// The one with the fewest uses since it was read; among equals, the one used longest ago.
    Lfu,
    /// The one read longest ago.
    Fifo,
}

/// Rank of a bucket, by its uses and its last use: the least is evicted first.
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

    /// Notes a use of a bucket by a task.
    fn note_use(&mut self, bucket: u32, at: usize) {
        if self.policy == CachePolicy::Lfu {
            let (uses, _) = self.remove(bucket);
            self.insert(bucket, (uses + 1, at));
        }
    }
}

/// Returns the steps that execute tasks in their order with a cache of `capacity` bytes.
///
/// # Panics
/// If the two buckets of a task do not fit together.
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
        // 3 needs a place; 0 was read first.
        let tasks = [(0, 0), (1, 1), (2, 2), (0, 0), (3, 3), (0, 1)];
        assert_eq!(order_of_loads(&tasks, CachePolicy::Fifo), [0, 1, 2, 3, 0]);
        // 3 needs a place; 0 and 2 were used twice, and 1 once, but last.
        let tasks = [(0, 0), (2, 2), (2, 2), (0, 0), (1, 1), (3, 3), (0, 2), (1, 1)];
        assert_eq!(order_of_loads(&tasks, CachePolicy::Lfu), [0, 2, 1, 3, 1]);
        // 1 and 2 were used once each; 1 is evicted, since it was used longer ago.
        let ties = [(0, 0), (0, 0), (1, 1), (2, 2), (3, 3), (2, 2), (1, 1)];
        assert_eq!(order_of_loads(&ties, CachePolicy::Lfu), [0, 1, 2, 3, 1]);
        // Uses before the last read do not count: 2 evicts 0, which is read again and has fewer uses than 1 when 3 is
        // read.
        let again = [(0, 0), (0, 0), (0, 0), (1, 1), (1, 1), (1, 1), (1, 1), (2, 3), (0, 0), (2, 2), (3, 3), (1, 2)];
        assert_eq!(order_of_loads(&again, CachePolicy::Lfu), [0, 1, 2, 3, 0, 3]);
    }

    #[test]
    fn lfu_evicts_by_bytes() {
        // A bucket of 4 bytes evicts both less used ones, and not the most used one.
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
