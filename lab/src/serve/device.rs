//! Executes plans of batches in simulated time, on a disk and a processor with given speeds.
//!
//! Several loaders read concurrently. Each read waits for the disk and then takes its turn on the link. One
//! thread compares. In plans by query, a read begins after the comparisons of all earlier turns, and a comparison
//! after all earlier reads, as in `crates/adjoin/src/serve/pass.rs`.

use adjoin::lab::plan::batch::{BatchPlan, BatchStep};

/// Speeds of the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Device {
    /// Maximum number of concurrent reads.
    pub(super) loaders: usize,
    /// Time in seconds from the start of a read to its first byte.
    pub(super) request: f64,
    /// Bytes read per second.
    pub(super) reads: f64,
    /// Bytes of vectors that the thread compares with a query per second.
    pub(super) compares: f64,
}

/// Times of an executed batch, in seconds from any fixed moment.
#[derive(Debug, PartialEq)]
pub(super) struct Executed {
    /// For each query, when the search of its buckets in the cache began, and when its last comparison ended. If
    /// queries run one after another, a query begins when the one before it ends.
    pub(super) queries: Vec<(f64, f64)>,
    /// For each read, when it began, its bucket, and whether it was a prefetch.
    pub(super) reads: Vec<(f64, u32, bool)>,
    /// When the last step ended.
    pub(super) end: f64,
}

impl Device {
    /// Executes a plan. `lists` has the buckets that each query probes, `extents` the bytes of each bucket, and `at`
    /// is the time when the batch begins.
    pub(super) fn execute(&self, plan: &BatchPlan, lists: &[Vec<u32>], extents: &[u64], at: f64) -> Executed {
        let is_by_query = plan.is_by_query();
        let probing = if is_by_query { Vec::new() } else { queries_of_buckets(lists, extents.len()) };
        let mut left: Vec<usize> = lists.iter().map(Vec::len).collect();
        let mut done = Executed { queries: vec![(at, at); lists.len()], reads: Vec::new(), end: at };
        let (mut free, mut loaded) = (vec![at; self.loaders], vec![at; extents.len()]);
        // When the link is free, when the thread is free, when this turn began, and when the last query ended.
        let (mut link, mut thread, mut turn_began, mut query_ended) = (at, at, at, at);
        let mut last_turn = None;
        for step in &plan.steps {
            match *step {
                BatchStep::Evict(_) => {}
                BatchStep::Load { bucket, turn } => {
                    if is_by_query && last_turn != Some(turn) {
                        (last_turn, turn_began) = (Some(turn), thread);
                    }
                    let loader = (0..free.len()).min_by(|&a, &b| free[a].total_cmp(&free[b])).expect("some loaders");
                    let began = free[loader].max(turn_began);
                    link = link.max(began + self.request) + extents[bucket as usize] as f64 / self.reads;
                    (free[loader], loaded[bucket as usize]) = (link, link);
                    // The queries of a batch have odd turns.
                    done.reads.push((began, bucket, turn % 2 == 0));
                }
                BatchStep::Compare { bucket, query } => {
                    let own = query.as_slice();
                    let queries = if query.is_some() { own } else { &probing[bucket as usize] };
                    let ready = if is_by_query { link } else { loaded[bucket as usize] };
                    let bytes = extents[bucket as usize] * queries.len() as u64;
                    thread = thread.max(ready) + bytes as f64 / self.compares;
                    for &query in queries {
                        left[query as usize] -= 1;
                        if left[query as usize] == 0 {
                            done.queries[query as usize] = (query_ended, thread);
                        }
                    }
                    if own.iter().any(|&query| left[query as usize] == 0) {
                        query_ended = thread;
                    }
                }
            }
        }
        done.end = thread.max(link);
        done
    }
}

/// Returns the queries that probe each bucket.
fn queries_of_buckets(lists: &[Vec<u32>], buckets: usize) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new(); buckets];
    for (query, list) in (0..).zip(lists) {
        list.iter().for_each(|&bucket| all[bucket as usize].push(query));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::{BatchOrder, Retention, plan_batch};
    use crate::serve::plans::Capacity;

    /// A read takes a second and one per byte, two at a time; a comparison takes a quarter of a second per byte.
    const DEVICE: Device = Device { loaders: 2, request: 1.0, reads: 1.0, compares: 4.0 };

    fn executed(order: BatchOrder, lists: &[Vec<u32>], entries: u64) -> Executed {
        let extents = [4; 4];
        let mut cache = Capacity::Entries(entries).cache(Retention::Lru, &extents);
        let plan = plan_batch(order, lists, &mut cache, 0.0);
        DEVICE.execute(&plan, lists, &extents, 10.0)
    }

    #[test]
    fn queries_of_a_plan_by_query_wait_for_the_queries_before_them() {
        let lists = [vec![0, 1], vec![1, 2]];
        let done = executed(BatchOrder::Arrival, &lists, 3);
        // Reads of 0 and 1 begin at 10 and share the link: 15 and 19. Two comparisons follow. Bucket 2 is read then.
        assert_eq!(done.reads, [(10.0, 0, false), (10.0, 1, false), (21.0, 2, false)]);
        assert_eq!(done.queries, [(10.0, 21.0), (21.0, 28.0)]);
        assert_eq!(done.end, 28.0);
    }

    #[test]
    fn a_plan_by_bucket_reads_while_it_compares() {
        let lists = [vec![0, 1], vec![1, 2]];
        let done = executed(BatchOrder::BucketMajor, &lists, 3);
        // The reads end at 15, 19 and 23. Bucket 1 is compared with both queries.
        assert_eq!(done.reads, [(10.0, 0, false), (10.0, 1, false), (15.0, 2, false)]);
        assert_eq!(done.queries, [(10.0, 21.0), (10.0, 24.0)]);
    }

    #[test]
    fn a_prefetch_begins_after_the_comparisons_of_its_group() {
        let lists = [vec![0, 1], vec![2, 3]];
        let done = executed("call".parse().unwrap(), &lists, 4);
        assert_eq!(done.reads[2..], [(21.0, 2, true), (21.0, 3, true)]);
        assert_eq!(done.queries[1], (21.0, 32.0));
    }
}
