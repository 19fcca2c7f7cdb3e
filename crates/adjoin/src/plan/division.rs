//! Divides the memory of a run among its parts, and decides how many workers it suffices for.

use std::ops::RangeInclusive;

use super::cache::Policy;

/// Bytes of the schedule per task: the task, the next uses of its buckets, and its loads. Most tasks find their
/// buckets in the cache, so less than one load per task is expected.
const BYTES_A_TASK: u64 = 8 + 8 + 4;
/// Bytes per task if next uses are not stored.
const BYTES_A_TASK_ALONE: u64 = 8;
/// Fraction of the memory that additional workers may take, after the first worker has what it needs. The rest makes
/// every pass faster.
const WORKERS_SHARE: (u64, u64) = (3, 4);

/// Memory needs of the parts of a run, in bytes. A range has the minimum and the maximum of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Memory that does not depend on the number of workers.
    pub fixed: u64,
    /// Memory of each worker.
    pub a_worker: u64,
    /// Number of tasks.
    pub tasks: u64,
    /// Pairs on their way to the sink. With less than the minimum, workers often wait for the sink. More than the
    /// maximum does not reduce waiting.
    pub queue: RangeInclusive<u64>,
    /// Read-ahead for the cache.
    pub read_ahead: RangeInclusive<u64>,
    /// The cache. The minimum holds the two largest buckets that have an edge, the maximum holds all buckets.
    pub cache: RangeInclusive<u64>,
}

/// Memory of each part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    /// Number of workers.
    pub threads: usize,
    /// Cache policy. It is LRU if the memory is too small for the next uses.
    pub policy: Policy,
    /// Bytes of the schedule.
    pub tasks: u64,
    /// Bytes of pairs on their way to the sink.
    pub queue: u64,
    /// Bytes of read-ahead.
    pub read_ahead: u64,
    /// Bytes of the cache.
    pub capacity: u64,
    /// Bytes of evicted buckets that workers still use. Without them, a load would wait for these workers.
    pub evicted: u64,
    /// Bytes of everything else, mostly the workers.
    pub workers: u64,
}

impl Division {
    /// Returns the sum of all parts.
    pub(crate) fn bytes(&self) -> u64 {
        self.tasks + self.queue + self.read_ahead + self.capacity + self.evicted + self.workers
    }
}

impl Needs {
    /// Returns the least memory in bytes for a run with `threads` workers.
    pub(crate) fn least(&self, threads: usize, policy: Policy) -> u64 {
        let parts = [self.queue.start(), self.read_ahead.start(), self.cache.start()];
        parts.into_iter().sum::<u64>() + bytes_of_tasks(self.tasks, policy) + self.workers(threads)
    }

    fn workers(&self, threads: usize) -> u64 {
        self.fixed + self.a_worker * threads as u64
    }
}

/// Returns the bytes of a schedule of `tasks` tasks.
fn bytes_of_tasks(tasks: u64, policy: Policy) -> u64 {
    tasks * if policy == Policy::Belady { BYTES_A_TASK } else { BYTES_A_TASK_ALONE }
}

/// Divides `free` bytes among the parts of a run with at most `threads` workers. Returns `None` if they do not suffice
/// for one worker. `cache` is the size of the cache if the user set it.
pub(crate) fn divide(needs: &Needs, threads: usize, cache: Option<u64>, free: u64) -> Option<Division> {
    // A smaller number of workers is tried before LRU, since a cache that does not know the next uses costs more.
    let mut choices = Policy::ALL.into_iter().flat_map(|policy| (1..=threads).rev().map(move |n| (n, policy)));
    let (threads, policy) = choices.find(|&(threads, policy)| needs.least(threads, policy) <= free)?;
    let spare = free - needs.least(threads, policy);
    let queue = (needs.queue.start() + spare / 8).min(*needs.queue.end());
    let spare = spare - (queue - needs.queue.start());
    let read_ahead = (spare / 8).clamp(*needs.read_ahead.start(), *needs.read_ahead.end());
    let spare = spare - (read_ahead - needs.read_ahead.start()).min(spare);
    let (room, evicted) = (needs.cache.start() + spare, (spare / 16).min(*needs.read_ahead.end()));
    // A cache that is larger than all buckets is useless.
    let most = cache.unwrap_or((*needs.cache.end()).max(*needs.cache.start()));
    let (capacity, evicted) = match room.checked_sub(most) {
        // No bucket is evicted to make room for another one.
        Some(_) if most >= *needs.cache.end() => (most, 0),
        Some(left) => (most, left.min(evicted)),
        None => (room - evicted, evicted),
    };
    let (tasks, workers) = (bytes_of_tasks(needs.tasks, policy), needs.workers(threads));
    Some(Division { threads, policy, tasks, queue, read_ahead, capacity, evicted, workers })
}

/// Returns the number of workers to use, from 1 to `threads`, with `free` bytes. Additional workers may take three
/// quarters of the memory that the first one leaves. `least(n)` is the memory that n workers need; it increases with
/// n.
pub(crate) fn threads_within(threads: usize, free: u64, least: impl Fn(usize) -> u64) -> usize {
    let alone = least(1);
    let spare = free.saturating_sub(alone) / WORKERS_SHARE.1 * WORKERS_SHARE.0;
    // This is a binary search, since `least` may visit every bucket.
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
    fn divided_memory_fits_and_each_part_has_its_minimum() {
        for free in 0..2_000 {
            for threads in 1..=4 {
                let Some(division) = divide(&NEEDS, threads, None, free) else {
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
    fn small_memory_reduces_workers_before_the_cache_policy() {
        let at = |free| divide(&NEEDS, 4, None, free).map(|d| (d.threads, d.policy));
        let least = |threads, policy| NEEDS.least(threads, policy);
        assert_eq!(at(least(4, Policy::Belady)), Some((4, Policy::Belady)));
        assert_eq!(at(least(4, Policy::Belady) - 1), Some((3, Policy::Belady)));
        assert_eq!(at(least(1, Policy::Belady)), Some((1, Policy::Belady)));
        assert_eq!(at(least(1, Policy::Belady) - 1), Some((3, Policy::Lru)));
        assert_eq!(at(least(1, Policy::Lru)), Some((1, Policy::Lru)));
        assert_eq!(at(least(1, Policy::Lru) - 1), None);
    }

    #[test]
    fn the_cache_has_at_most_the_requested_size() {
        let division = divide(&NEEDS, 1, Some(64), 10_000).unwrap();
        assert_eq!((division.capacity, division.queue, division.read_ahead), (64, 20, 40));
    }

    #[test]
    fn a_part_of_the_spare_memory_is_for_evicted_buckets() {
        let least = NEEDS.least(1, Policy::Belady);
        let divided = |cache, spare| divide(&NEEDS, 1, cache, least + spare).unwrap();
        let evicted = |cache, spare| divided(cache, spare).evicted;
        // The queue takes 10 bytes, and the read-ahead 33 of the others.
        assert_eq!([0, 320].map(|spare| evicted(None, spare)), [0, 277 / 16]);
        assert_eq!(divided(None, 320).capacity, 30 + 277 - 277 / 16);
        assert_eq!(evicted(None, 2_000), 0, "the cache holds all buckets");
        assert_eq!([320, 2_000].map(|spare| evicted(Some(64), spare)), [277 / 16, 40]);
        assert_eq!(evicted(Some(30 + 277 - 5), 320), 5, "the requested cache comes first");
    }

    #[test]
    fn additional_workers_leave_a_quarter_of_the_memory() {
        let least = |threads: usize| 100 + 50 * threads as u64;
        let with = |free| threads_within(4, free, least);
        assert_eq!([0, 150, 150 + 66, 150 + 68, 150 + 136, 150 + 200, 10_000].map(with), [1, 1, 1, 2, 3, 4, 4]);
    }
}
