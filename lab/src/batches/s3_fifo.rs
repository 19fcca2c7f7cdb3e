//! S3-FIFO (Yang et al., SOSP 2023, Algorithm 1), with sizes in bytes. New buckets pass through a small queue. If
//! they are used more than once there, they move to the main queue. The numbers of buckets that left the small queue
//! recently are remembered.
//!
//! The crates for it (`quick_cache`, `foyer`) hold values and evict by themselves. A plan asks for a victim among the
//! buckets that are not about to be used, so it is implemented here.

use std::collections::VecDeque;

/// Fraction of the capacity in bytes for the small queue.
const SMALL_SHARE: f64 = 0.1;
/// Maximum number of uses that is counted.
const USES_MAX: u8 = 3;
/// Buckets with more uses than this move from the small queue to the main queue.
const ONCE: u8 = 1;

pub(super) struct S3Fifo {
    small_bytes_max: u64,
    small_bytes: u64,
    /// Buckets in order of insertion.
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// Buckets that left the small queue and are not cached. There are at most as many as in the main queue.
    ghosts: VecDeque<u32>,
    uses: Vec<u8>,
}

impl S3Fifo {
    pub(super) fn new(capacity: u64, buckets: usize) -> Self {
        let small_bytes_max = (capacity as f64 * SMALL_SHARE) as u64;
        let [small, main, ghosts] = [(); 3].map(|()| VecDeque::new());
        Self { small_bytes_max, small_bytes: 0, small, main, ghosts, uses: vec![0; buckets] }
    }

    pub(super) fn note_use(&mut self, bucket: u32) {
        let uses = &mut self.uses[bucket as usize];
        *uses = (*uses + 1).min(USES_MAX);
    }

    pub(super) fn insert(&mut self, bucket: u32, bytes: u64) {
        self.uses[bucket as usize] = 0;
        if let Some(at) = self.ghosts.iter().position(|&ghost| ghost == bucket) {
            self.ghosts.remove(at);
            self.main.push_back(bucket);
        } else {
            self.small_bytes += bytes;
            self.small.push_back(bucket);
        }
    }

    /// Returns the next bucket to evict among the buckets for which `may_go` returns true, if there is one. Buckets
    /// that are passed over may move to another place or queue.
    pub(super) fn victim(&mut self, size: impl Fn(u32) -> u64, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        if !self.small.iter().chain(&self.main).any(|&bucket| may_go(bucket)) {
            return None;
        }
        loop {
            let small_may = self.small.iter().any(|&bucket| may_go(bucket));
            let main_may = self.main.iter().any(|&bucket| may_go(bucket));
            let is_small = small_may && (self.small_bytes > self.small_bytes_max || !main_may);
            let queue = if is_small { &mut self.small } else { &mut self.main };
            let bucket = queue.pop_front().expect("the queue has a bucket that may be evicted");
            let uses = &mut self.uses[bucket as usize];
            if !may_go(bucket) {
                queue.push_back(bucket);
            } else if is_small && *uses > ONCE {
                self.small_bytes -= size(bucket);
                *uses = 0;
                self.main.push_back(bucket);
            } else if !is_small && *uses > 0 {
                *uses -= 1;
                self.main.push_back(bucket);
            } else {
                // Kept in the queue until the caller evicts it.
                if is_small {
                    self.small.push_front(bucket)
                } else {
                    self.main.push_front(bucket)
                }
                return Some(bucket);
            }
        }
    }

    pub(super) fn evict(&mut self, bucket: u32, bytes: u64) {
        if let Some(at) = self.small.iter().position(|&held| held == bucket) {
            self.small.remove(at);
            self.small_bytes -= bytes;
            self.ghosts.push_back(bucket);
            while self.ghosts.len() > self.main.len().max(1) {
                self.ghosts.pop_front();
            }
        } else {
            self.main.retain(|&held| held != bucket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evicts a bucket for which `may_go` returns true. Each bucket has one byte.
    fn evict(queues: &mut S3Fifo, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        let victim = queues.victim(|_| 1, may_go)?;
        queues.evict(victim, 1);
        Some(victim)
    }

    #[test]
    fn s3_fifo_evicts_single_uses_and_keeps_returning_buckets() {
        let mut queues = S3Fifo::new(10, 20);
        (0..10).for_each(|bucket| queues.insert(bucket, 1));
        [0, 0, 3].into_iter().for_each(|bucket| queues.note_use(bucket));
        assert_eq!(evict(&mut queues, |_| true), Some(1), "0 was used twice and moves to the main queue");
        assert_eq!(evict(&mut queues, |_| true), Some(2));
        queues.insert(2, 1);
        assert_eq!(evict(&mut queues, |_| true), Some(3), "2 was gone a moment ago and is in the main queue");
        assert_eq!(evict(&mut queues, |bucket| bucket > 4), Some(5), "4 is in use");
        let rest: Vec<u32> = std::iter::from_fn(|| evict(&mut queues, |_| true)).collect();
        assert_eq!(rest, [6, 7, 8, 9, 0, 2, 4], "the small queue down to its share, then the main one, then the rest");
        assert_eq!(evict(&mut queues, |_| true), None);
    }

    #[test]
    fn a_use_gives_another_round_in_the_main_queue() {
        let mut queues = S3Fifo::new(2, 20);
        [5, 6].into_iter().for_each(|bucket| {
            queues.insert(bucket, 1);
            (0..5).for_each(|_| queues.note_use(bucket));
        });
        // Both move to the main queue, and their uses are counted from 0 again.
        assert_eq!(queues.victim(|_| 1, |_| true), Some(5));
        queues.note_use(5);
        assert_eq!(evict(&mut queues, |_| true), Some(6));
        assert_eq!(evict(&mut queues, |_| true), Some(5));
    }
}
