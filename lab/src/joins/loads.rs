//! Compares the bytes that orders of tasks read with a lower bound for any order.
//!
//! `loads STORE [NAME=VALUE]...` plans a join of a store with itself by the engine's rule, and prints for each order of
//! tasks how many buckets and how many bytes Belady's cache reads. Names: `eps` or `similarity`; `recall` (default
//! 0.95); `seed`; `cache` in bytes; `memory`; `threads`.

use std::path::Path;

use adjoin::{
    Error, JoinEffort, JoinOptions, Predicate, Result, Store,
    lab::{
        join::Sets,
        plan::{CacheStart, Lead, Order, Policy, Step, Steps, Task},
    },
    parse_bytes,
};

use super::reorder::BucketOrder;
use super::{Named, TaskOrder};

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let [store, named @ ..] = arguments else { return Err(Error::option("give STORE [NAME=VALUE]...")) };
    let named = Named(named);
    let context = named.context()?;
    let store = Store::open(&context, Path::new(store))?;
    let sets = Sets::from(&store);
    let predicate = Predicate::of(named.value("eps")?, named.value("similarity")?)?;
    let effort = named.value("recall")?.map_or(Ok(JoinEffort::Unsaid), JoinEffort::recall)?;
    let (seed, cache_bytes) = (named.value("seed")?.unwrap_or(1), named.text("cache").map(parse_bytes).transpose()?);
    let options = JoinOptions { seed, cache_bytes, ..JoinOptions::approximate(predicate, effort) };
    let prepared = options.prepare(&context, sets, false)?;
    let (capacity, sizes) = prepared.cache();
    let sizes = &sizes.memory;
    let mut tasks = Vec::new();
    let _ = prepared.plan(sets).reordered("", Lead::Left, |all| tasks = all.to_vec(), |_| None);

    let stored: u64 = used(&tasks, sizes.len()).zip(sizes).filter(|(used, _)| *used).map(|(_, size)| size).sum();
    let times = |bytes: u64| bytes as f64 / stored.max(1) as f64;
    let least = least_bytes(&tasks, sizes, capacity);
    println!("order         loads  times the store is read  over the bound");
    println!("bound  {:12} {:24.3} {:15.2}", "", times(least), 1.0);
    let orders = Order::ALL.map(TaskOrder::Engine).into_iter().chain(BucketOrder::ALL.map(TaskOrder::Lab));
    for order in orders {
        order.sort(&mut tasks, sizes, capacity, Lead::Left);
        let (loads, bytes) = read(&tasks, sizes, capacity);
        println!("{:12} {loads:6} {:24.3} {:15.2}", order.name(), times(bytes), bytes as f64 / least.max(1) as f64);
    }
    Ok(())
}

/// Returns whether each of the buckets has a task.
fn used(tasks: &[Task], buckets: usize) -> impl Iterator<Item = bool> {
    let mut used = vec![false; buckets];
    tasks.iter().for_each(|&(i, j)| [i, j].into_iter().for_each(|bucket| used[bucket as usize] = true));
    used.into_iter()
}

/// Returns the number of buckets that Belady's cache reads, and their bytes.
pub(super) fn read(tasks: &[Task], sizes: &[u64], capacity: u64) -> (u64, u64) {
    let steps = Steps::new(tasks, sizes, CacheStart { capacity, policy: Policy::Belady });
    let loads =
        steps.filter_map(|step| if let Step::Load(bucket) = step { Some(sizes[bucket as usize]) } else { None });
    loads.fold((0, 0), |(loads, bytes), size| (loads + 1, bytes + size))
}

/// Returns a lower bound on the bytes that any order of tasks and any cache read (the minimum edge cover with a cache,
/// DiskJoin, section 4.1).
///
/// There are two bounds. First, each bucket with a task is read once. Second, let the weight of an edge be the product
/// of the sizes of its buckets, W the sum of the weights, and B the bytes that are read. An edge is first covered when
/// one of its buckets is read while the other is held. If a bucket of size s is read, the buckets held next to it have
/// at most `room = capacity - smallest` bytes, and at most the x bytes that were read before. So this read covers edges
/// of weight at most `s * min(x, room)`, which is at most the integral of `min(y, room)` for y from x to x + s. All
/// reads together cover at most the integral from 0 to B, which is `room * B - room^2 / 2` if B is at least `room`, and
/// `B^2 / 2` otherwise. It must be at least W. If all buckets have size 1 and the cache holds C of them, the bound is
/// about `edges / (C - 1) + C / 2`.
pub(super) fn least_bytes(tasks: &[Task], sizes: &[u64], capacity: u64) -> u64 {
    let of = |bucket: u32| sizes[bucket as usize] as f64;
    let weight: f64 = tasks.iter().filter(|(i, j)| i != j).map(|&(i, j)| of(i) * of(j)).sum();
    let in_use = || used(tasks, sizes.len()).zip(sizes).filter(|(used, _)| *used).map(|(_, &size)| size);
    let room = capacity.saturating_sub(in_use().min().unwrap_or(0)) as f64;
    let covering = if weight <= room * room / 2.0 { (2.0 * weight).sqrt() } else { weight / room + room / 2.0 };
    // Rounds down, and by a few bytes more than the rounding of the sum.
    in_use().sum::<u64>().max((covering * (1.0 - 1e-9)) as u64)
}

#[cfg(test)]
mod tests {
    use adjoin::Random;

    use super::*;

    /// Returns the fewest bytes of any order of tasks, by trying them all, with Belady's cache.
    fn fewest(tasks: &mut [Task], at: usize, sizes: &[u64], capacity: u64) -> u64 {
        if at == tasks.len() {
            return read(tasks, sizes, capacity).1;
        }
        let each = (at..tasks.len()).map(|next| {
            tasks.swap(at, next);
            let bytes = fewest(tasks, at + 1, sizes, capacity);
            tasks.swap(at, next);
            bytes
        });
        each.min().unwrap()
    }

    #[test]
    fn no_order_reads_less_than_the_bound() {
        let mut random = Random::new(1, "bound on loads");
        let mut above = 0;
        let mut tasks: Vec<Task> = (0..4).flat_map(|i| (i + 1..4).map(move |j| (i, j))).collect();
        for _ in 0..60 {
            let sizes: Vec<u64> = (0..4).map(|_| 2 + random.below(2)).collect();
            let capacity = 6 + random.below(2);
            let (least, fewest) = (least_bytes(&tasks, &sizes, capacity), fewest(&mut tasks, 0, &sizes, capacity));
            assert!(least <= fewest, "{least} and {fewest}: {tasks:?} {sizes:?} {capacity}");
            above += u64::from(least > sizes.iter().sum());
        }
        assert!(above > 10, "the second bound decides in {above} cases");
    }

    #[test]
    fn the_bound_is_near_a_known_optimum() {
        // Of 101 buckets of equal size, 100 have an edge to each other, and a cache holds all of them.
        let tasks: Vec<Task> = (0..100).flat_map(|i| (i + 1..100).map(move |j| (i, j))).collect();
        assert_eq!(least_bytes(&tasks, &[8; 101], 800), 800);
        // A cache of 11 covers at most 10 edges with each read: 4,950 edges need at least 495 + 5 reads.
        assert_eq!(least_bytes(&tasks, &[8; 101], 88), 8 * 500 - 1);
        let (loads, _) = read(&tasks, &[8; 101], 88);
        assert!(loads >= 500);
    }
}
