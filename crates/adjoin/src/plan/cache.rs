//! Simulates the bucket cache. All tasks are known in advance, so Belady's algorithm can evict the bucket whose next
//! use is farthest away (DiskJoin, section 4.2, Algorithm 1). This cache counts bytes; in the paper, all buckets have
//! one size.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::order::Task;

/// Next use of a bucket that has no further use.
const NEVER: u32 = u32::MAX;

/// Which bucket is evicted when another one needs room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Evicts the bucket whose next use is farthest away.
    Belady,
    /// Evicts the bucket that was used longest ago.
    Lru,
}

impl Policy {
    /// Both policies, the better one first.
    pub const ALL: [Self; 2] = [Self::Belady, Self::Lru];

    /// Returns the name for statistics and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Belady => "belady",
            Self::Lru => "lru",
        }
    }
}

/// One step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Read a bucket into the cache.
    Load(u32),
    /// Drop a bucket from the cache.
    Evict(u32),
    /// Compare two cached buckets with each other, or one with itself.
    Verify(Task),
}

/// A bucket to read, and the step that needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Number of the bucket.
    pub bucket: u32,
    /// Number of the step that needs the bucket in memory. In a schedule, it is the number of the task.
    pub step: u64,
}

impl Load {
    /// Returns the loads of the buckets from 0 to `buckets - 1`. The step of each load is the number of its bucket.
    pub fn each(buckets: u32) -> impl Iterator<Item = Self> {
        (0..buckets).map(|bucket| Self { bucket, step: bucket.into() })
    }
}

/// Size and policy of a cache that is empty at the start of a schedule.
#[derive(Debug, Clone, Copy)]
pub struct CacheStart {
    /// Bytes of the cache.
    pub capacity: u64,
    /// Policy that decides which bucket is evicted if another one needs its memory.
    pub policy: Policy,
}

/// Cost of a run of some tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CacheCounts {
    /// Number of buckets read.
    pub loads: u64,
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of uses of buckets by tasks. A task of two buckets has two uses.
    pub uses: u64,
}

impl std::ops::AddAssign for CacheCounts {
    fn add_assign(&mut self, other: Self) {
        self.loads += other.loads;
        self.bytes += other.bytes;
        self.uses += other.uses;
    }
}

impl CacheCounts {
    /// Returns the fraction of uses that found their bucket in the cache.
    pub(crate) fn hit_rate(&self) -> f64 {
        if self.uses == 0 { 1.0 } else { 1.0 - self.loads as f64 / self.uses as f64 }
    }
}

/// Eviction priority of a bucket: the bucket with the largest value is evicted first. With Belady, the value is the
/// task of the next use. With LRU, it decreases with the task of the last use.
type Leave = u32;

/// Iterator over the steps that execute tasks in their order with a cache of a given size. Holds 8 bytes per task with
/// Belady, and none with LRU.
pub struct Steps<'a> {
    tasks: &'a [Task],
    sizes: &'a [u64],
    capacity: u64,
    policy: Policy,
    /// For each task, the next uses of its two buckets. Empty unless the policy is Belady.
    next_uses: Vec<(u32, u32)>,
    at: usize,
    held: u64,
    /// Priority of each bucket in the cache.
    resident: Vec<Option<Leave>>,
    /// Buckets in the cache by priority.
    by_leave: BTreeSet<(Leave, u32)>,
    /// Buckets without further use. They are evicted before the next task.
    finished: Vec<u32>,
}

impl<'a> Steps<'a> {
    /// Memory in bytes per bucket, in addition to the memory per task.
    pub const BYTES_A_BUCKET: usize = size_of::<Option<Leave>>() + 3 * size_of::<(Leave, u32)>();

    /// Creates the steps of `tasks`. `sizes` are the sizes of the buckets in memory.
    ///
    /// # Panics
    /// If the two buckets of a task do not fit together, or there are 2^32 tasks.
    pub fn new(tasks: &'a [Task], sizes: &'a [u64], start: CacheStart) -> Self {
        assert!((tasks.len() as u64) < u64::from(NEVER), "tasks are numbered in 32 bits");
        let CacheStart { capacity, policy } = start;
        // Next uses take 8 bytes per task. Only Belady needs them.
        let uses = if policy == Policy::Belady { next_uses(tasks, sizes.len()) } else { Vec::new() };
        Self {
            tasks,
            sizes,
            capacity,
            policy,
            next_uses: uses,
            at: 0,
            held: 0,
            resident: vec![None; sizes.len()],
            by_leave: BTreeSet::new(),
            finished: Vec::new(),
        }
    }

    /// Adds a bucket to the cache.
    fn hold(&mut self, bucket: u32, leave: Leave) {
        let before = self.resident[bucket as usize].replace(leave);
        assert!(before.is_none(), "a bucket is loaded when it is not in the cache");
        self.held += self.sizes[bucket as usize];
        self.by_leave.insert((leave, bucket));
    }

    fn evict(&mut self, bucket: u32) -> Step {
        let leave = self.resident[bucket as usize].take().expect("only buckets in the cache are evicted");
        self.by_leave.remove(&(leave, bucket));
        self.held -= self.sizes[bucket as usize];
        Step::Evict(bucket)
    }

    /// Loads `bucket` if it fits, otherwise evicts another bucket.
    fn bring(&mut self, bucket: u32, task: Task) -> Step {
        let size = self.sizes[bucket as usize];
        if self.held + size <= self.capacity {
            // The next use of the bucket is the current task.
            let leave = if self.policy == Policy::Belady { self.at as u32 } else { NEVER - self.at as u32 };
            self.hold(bucket, leave);
            return Step::Load(bucket);
        }
        // The buckets of the current task are not evicted, even if their next use is farthest away.
        let victim = self.by_leave.iter().rev().map(|&(_, held)| held).find(|&held| held != task.0 && held != task.1);
        self.evict(victim.expect("the two buckets of a task fit together"))
    }

    fn note_use(&mut self, bucket: u32, next_use: u32) {
        let before = self.resident[bucket as usize].expect("the task's buckets are in the cache");
        // With LRU, later uses have smaller values, so the bucket to evict is the last one in the set, as with Belady.
        let leave = match self.policy {
            Policy::Belady => next_use,
            Policy::Lru => NEVER - self.at as u32,
        };
        self.resident[bucket as usize] = Some(leave);
        self.by_leave.remove(&(before, bucket));
        self.by_leave.insert((leave, bucket));
        // A bucket without further use is evicted now, before another bucket needs its memory.
        if self.policy == Policy::Belady && next_use == NEVER {
            self.finished.push(bucket);
        }
    }
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if let Some(bucket) = self.finished.pop() {
            return Some(self.evict(bucket));
        }
        let task = *self.tasks.get(self.at)?;
        // Each call returns one step: `bring` evicts buckets until there is space, and then loads.
        if let Some(missing) = [task.0, task.1].into_iter().find(|&bucket| self.resident[bucket as usize].is_none()) {
            return Some(self.bring(missing, task));
        }
        let (first, second) = self.next_uses.get(self.at).copied().unwrap_or((NEVER, NEVER));
        self.note_use(task.0, first);
        if task.1 != task.0 {
            self.note_use(task.1, second);
        }
        self.at += 1;
        Some(Step::Verify(task))
    }
}

/// Returns for each task the next uses of its two buckets after the task.
fn next_uses(tasks: &[Task], buckets: usize) -> Vec<(u32, u32)> {
    let mut next = vec![NEVER; buckets];
    let mut uses = vec![(NEVER, NEVER); tasks.len()];
    // The tasks are visited backward, so the next uses of their buckets are already known.
    for (at, &(i, j)) in tasks.iter().enumerate().rev() {
        uses[at] = (next[i as usize], next[j as usize]);
        next[i as usize] = at as u32;
        next[j as usize] = at as u32;
    }
    uses
}

/// Returns the buckets that the steps load, in order.
pub(super) fn loads_of(steps: impl Iterator<Item = Step>) -> impl Iterator<Item = u32> {
    steps.filter_map(|step| if let Step::Load(bucket) = step { Some(bucket) } else { None })
}

/// Returns the loads of `buckets`, each with the task that needs it. The buckets must be in the order in which a run
/// of `tasks` reads them.
///
/// # Panics
/// The iterator panics if no run of these tasks reads these buckets.
pub(super) fn loads_for<'a>(
    tasks: &'a [Task],
    buckets: impl Iterator<Item = u32> + 'a,
) -> impl Iterator<Item = Load> + 'a {
    let mut step = 0;
    buckets.map(move |bucket| {
        // The bucket was not in the cache before. So the task that needs it is the first one from here on that uses
        // it.
        let uses = |task: &Task| task.0 == bucket || task.1 == bucket;
        step += tasks[step..].iter().position(uses).expect("a bucket is read for a task");
        Load { bucket, step: step as u64 }
    })
}

/// Returns the cost of the steps. `extents` are the bytes to read for each bucket.
pub(super) fn count(steps: impl Iterator<Item = Step>, tasks: &[Task], extents: &[u64]) -> CacheCounts {
    let uses = tasks.iter().map(|task| if task.0 == task.1 { 1 } else { 2 }).sum();
    loads_of(steps).fold(CacheCounts { uses, ..CacheCounts::default() }, |counts, bucket| CacheCounts {
        loads: counts.loads + 1,
        bytes: counts.bytes + extents[bucket as usize],
        ..counts
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn loads(tasks: &[Task], sizes: &[u64], capacity: u64) -> u64 {
        count(Steps::new(tasks, sizes, CacheStart { capacity, policy: Policy::Belady }), tasks, sizes).loads
    }

    fn order_of_loads(tasks: &[Task], policy: Policy) -> Vec<u32> {
        loads_of(Steps::new(tasks, &[1; 4], CacheStart { capacity: 3, policy })).collect()
    }

    #[test]
    fn policies_evict_by_their_rule() {
        // When bucket 3 needs space, bucket 0 was read first, bucket 1 was used longest ago, and bucket 2 is never
        // used again.
        let tasks = [(0, 0), (1, 1), (2, 2), (0, 0), (3, 3), (0, 1)];
        assert_eq!(order_of_loads(&tasks, Policy::Belady), [0, 1, 2, 3]);
        assert_eq!(order_of_loads(&tasks, Policy::Lru), [0, 1, 2, 3, 1]);
    }

    #[test]
    fn belady_has_the_fewest_loads() {
        let tasks = [(0, 1), (2, 3), (0, 2), (1, 3), (0, 3), (1, 2), (0, 1)];
        for capacity in 2..=4 {
            assert_eq!(loads(&tasks, &[1; 4], capacity), least_loads(&tasks, 0, 0, capacity as u32), "{capacity}");
        }
    }

    /// Returns the minimum number of loads, by trying all choices. `held` is the set of cached buckets, as bits.
    fn least_loads(tasks: &[Task], at: usize, held: u32, capacity: u32) -> u64 {
        let Some(&(i, j)) = tasks.get(at) else { return 0 };
        let needed = (1 << i) | (1 << j);
        let loads = u64::from((needed & !held).count_ones());
        let all = held | needed;
        let kept = (0..16u32).filter(|set| set & !all == 0 && set & needed == needed && set.count_ones() <= capacity);
        loads + kept.map(|set| least_loads(tasks, at + 1, set, capacity)).min().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn loads_are_assigned_to_their_task(
            tasks in prop::collection::vec((0u32..6, 0u32..6), 0..60),
            sizes in prop::collection::vec(1u64..9, 6),
            capacity in 16u64..40,
        ) {
            for policy in Policy::ALL {
                let start = CacheStart { capacity, policy };
                let steps = || Steps::new(&tasks, &sizes, start);
                let (mut expected, mut done) = (Vec::new(), 0);
                for step in steps() {
                    match step {
                        Step::Load(bucket) => expected.push(Load { bucket, step: done }),
                        Step::Verify(_) => done += 1,
                        Step::Evict(_) => {}
                    }
                }
                prop_assert_eq!(loads_for(&tasks, loads_of(steps())).collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn the_cache_never_exceeds_its_capacity() {
        let sizes = [3, 5, 2, 7, 1];
        let tasks: Vec<Task> = (0..5).flat_map(|i| (i..5).map(move |j| (i, j))).collect();
        for policy in Policy::ALL {
            let (mut held, mut verified) = (0, 0);
            for step in Steps::new(&tasks, &sizes, CacheStart { capacity: 12, policy }) {
                match step {
                    Step::Load(bucket) => held += sizes[bucket as usize],
                    Step::Evict(bucket) => held -= sizes[bucket as usize],
                    Step::Verify(_) => verified += 1,
                }
                assert!(held <= 12);
            }
            assert_eq!(verified, tasks.len());
            assert!(held == 0 || policy != Policy::Belady);
        }
    }
}
