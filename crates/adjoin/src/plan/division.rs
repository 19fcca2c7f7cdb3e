//! How is the memory of a run divided among its parts, and how many workers does it bear?

use std::ops::RangeInclusive;

use super::cache::Policy;

/// Bytes of the schedule for each task: the task itself, the next uses of its buckets, and the loads before it; most
/// tasks find their buckets in the cache.
const BYTES_A_TASK: u64 = 8 + 8 + 4;
/// The same where the uses to come are not known.
const BYTES_A_TASK_ALONE: u64 = 8;
/// The part of the memory beyond that of one worker that others may take: the rest makes every pass faster.
const WORKERS_SHARE: (u64, u64) = (3, 4);

/// What the parts of a run need, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Held all the time, whoever works.
    pub fixed: u64,
    /// Held by each worker.
    pub a_worker: u64,
    /// Number of tasks.
    pub tasks: u64,
    /// Pairs on their way to the sink: with less, workers wait for it again and again; more makes nobody wait less.
    pub queue: RangeInclusive<u64>,
    /// Reading ahead of the cache.
    pub read_ahead: RangeInclusive<u64>,
    /// The cache: the largest two buckets that meet, and all buckets.
    pub cache: RangeInclusive<u64>,
}

/// Who gets how many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// Workers.
    pub threads: usize,
    /// What the cache goes by: where nothing was said and the uses to come cannot be held, by those that were.
    pub policy: Policy,
    /// Bytes of the schedule.
    pub tasks: u64,
    /// Bytes of pairs on their way to the sink.
    pub queue: u64,
    /// Bytes for reading ahead of the cache.
    pub read_ahead: u64,
    /// Bytes of the cache.
    pub capacity: u64,
    /// Bytes of everything else, the workers above all.
    pub workers: u64,
}

impl Division {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.tasks + self.queue + self.read_ahead + self.capacity + self.workers
    }
}

impl Needs {
    /// The least bytes with which a run of so many workers can be made.
    pub fn least(&self, threads: usize, policy: Policy) -> u64 {
        let parts = [self.queue.start(), self.read_ahead.start(), self.cache.start()];
        parts.into_iter().sum::<u64>() + bytes_of_tasks(self.tasks, policy) + self.workers(threads)
    }

    fn workers(&self, threads: usize) -> u64 {
        self.fixed + self.a_worker * threads as u64
    }
}

/// Bytes of a schedule of so many tasks.
fn bytes_of_tasks(tasks: u64, policy: Policy) -> u64 {
    tasks * if policy == Policy::Belady { BYTES_A_TASK } else { BYTES_A_TASK_ALONE }
}

/// Divides `free` bytes among the parts of a run of at most `threads` workers; none where they do not suffice for one.
/// `policy` is what the cache goes by and `cache` are its bytes, where that was said.
pub fn divide(
    needs: &Needs,
    (threads, policy): (usize, Option<Policy>),
    cache: Option<u64>,
    free: u64,
) -> Option<Division> {
    // Fewer workers rather than a cache that does not know what comes.
    let policies = policy.map_or([Policy::Belady, Policy::Lru], |named| [named; 2]);
    let mut choices = policies.into_iter().flat_map(|policy| (1..=threads).rev().map(move |n| (n, policy)));
    let (threads, policy) = choices.find(|&(threads, policy)| needs.least(threads, policy) <= free)?;
    let spare = free - needs.least(threads, policy);
    let queue = (needs.queue.start() + spare / 8).min(*needs.queue.end());
    let spare = spare - (queue - needs.queue.start());
    let read_ahead = (spare / 8).clamp(*needs.read_ahead.start(), *needs.read_ahead.end());
    let left = needs.cache.start() + spare - (read_ahead - needs.read_ahead.start()).min(spare);
    // More than all buckets is of no use.
    let capacity = left.min(cache.unwrap_or((*needs.cache.end()).max(*needs.cache.start())));
    let (tasks, workers) = (bytes_of_tasks(needs.tasks, policy), needs.workers(threads));
    Some(Division { threads, policy, tasks, queue, read_ahead, capacity, workers })
}

/// How many of `threads` workers find room in `free` bytes, where a number of them needs `least` of it, more the more they
/// are.
pub fn threads_within(threads: usize, free: u64, least: impl Fn(usize) -> u64) -> usize {
    let alone = least(1);
    let spare = free.saturating_sub(alone) / WORKERS_SHARE.1 * WORKERS_SHARE.0;
    // By halves, as `least` may look at every bucket.
    let (mut most, mut too_many) = (1, threads + 1);
    while most + 1 < too_many {
        let tried = most.midpoint(too_many);
        if least(tried) - alone <= spare { most = tried } else { too_many = tried }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs =
        Needs { fixed: 100, a_worker: 50, tasks: 10, queue: 10..=20, read_ahead: 5..=40, cache: 30..=500 };

    #[test]
    fn what_is_divided_fits_and_every_part_gets_its_least() {
        for free in 0..2_000 {
            for threads in 1..=4 {
                let Some(division) = divide(&NEEDS, (threads, None), None, free) else {
                    assert!(free < NEEDS.least(1, Policy::Lru), "{free}");
                    continue;
                };
                assert!(division.bytes() <= free, "{division:?} of {free}");
                assert!((1..=threads).contains(&division.threads));
                assert!(NEEDS.queue.contains(&division.queue) && NEEDS.read_ahead.contains(&division.read_ahead));
                assert!(NEEDS.cache.contains(&division.capacity));
                assert_eq!(division.workers, 100 + 50 * division.threads as u64);
            }
        }
    }

    #[test]
    fn workers_go_before_the_knowledge_of_what_comes() {
        let at = |free| divide(&NEEDS, (4, None), None, free).map(|d| (d.threads, d.policy));
        let least = |threads, policy| NEEDS.least(threads, policy);
        assert_eq!(at(least(4, Policy::Belady)), Some((4, Policy::Belady)));
        assert_eq!(at(least(4, Policy::Belady) - 1), Some((3, Policy::Belady)));
        assert_eq!(at(least(1, Policy::Belady)), Some((1, Policy::Belady)));
        assert_eq!(at(least(1, Policy::Belady) - 1), Some((3, Policy::Lru)));
        assert_eq!(at(least(1, Policy::Lru)), Some((1, Policy::Lru)));
        assert_eq!(at(least(1, Policy::Lru) - 1), None);
    }

    #[test]
    fn a_policy_that_was_asked_for_is_used_or_there_is_no_run() {
        for policy in Policy::ALL {
            let least = NEEDS.least(1, policy);
            let at = |free| divide(&NEEDS, (4, Some(policy)), None, free).map(|division| division.policy);
            assert_eq!([least - 1, least, 10_000].map(at), [None, Some(policy), Some(policy)]);
        }
    }

    #[test]
    fn a_cache_that_was_asked_for_is_no_larger() {
        let division = divide(&NEEDS, (1, None), Some(64), 10_000).unwrap();
        assert_eq!((division.capacity, division.queue, division.read_ahead), (64, 20, 40));
    }

    #[test]
    fn further_workers_leave_a_quarter_of_the_memory() {
        let least = |threads: usize| 100 + 50 * threads as u64;
        let with = |free| threads_within(4, free, least);
        assert_eq!([0, 150, 150 + 66, 150 + 68, 150 + 136, 150 + 200, 10_000].map(with), [1, 1, 1, 2, 3, 4, 4]);
    }
}
